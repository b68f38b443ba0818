"""Random broken mechanisms: a generator of distributions, faults, dimensions and decoys.

All claim epsilon = 1 (at ``delta``). A fault and a seed determine a mechanism: the distribution of
its output, the number of decoys (uninformative numbers) in between, and the form of the output: an
array, a dictionary or a sequence of words. The event that best distinguishes the inputs depends
only on the broken part, so that it is exact for any decoys. Mechanisms for which an oracle needs
too many runs are drawn again.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from .mechanisms import CLAIM, SHORT, Broken, best, half_line, multiplier

WIDEST = 100  # largest number of entries of an output
_FAINTEST = 1e-3  # so that an oracle needs at most some 50,000 runs
_GRID = 4_001  # values of a threshold's noise, of equal probability
_LOUD = math.exp(math.sqrt(2.0))  # the ratio of probabilities where 1 is claimed, not sqrt 2

Event = Callable[[np.ndarray], np.ndarray]
Sampler = Callable[[int, Any, int], np.ndarray]


@dataclass(frozen=True)
class Core:
    """The broken part of a mechanism, and its best event."""

    text: str
    sample: Sampler  # of arrays of shape (size, width)
    event: Event  # indicator by row
    p: float  # probability of the event on the likelier input
    q: float  # and on the other
    delta: float = 0.0
    words: bool = False  # the entries are from a few integers, which may be released as words


@dataclass(frozen=True)
class Drawn:
    """A mechanism, its core before decoys and form, and the positions of the core."""

    broken: Broken
    core: Core
    places: np.ndarray


def _scale(random: np.random.Generator) -> Core:
    """Add noise to one number that is too small by sqrt 2."""
    law = random.choice(["Laplace", "Gaussian", "geometric"])
    if law == "geometric":
        ratio = 1.0 / _LOUD

        def geometric(bit: int, rng: Any, size: int) -> np.ndarray:
            noise = rng.geometric(1.0 - ratio, (size, 1)) - rng.geometric(1.0 - ratio, (size, 1))
            return np.asarray(bit + noise, dtype=np.float64)

        p, q = 1.0 / (1.0 + ratio), ratio / (1.0 + ratio)
        return Core("geometric noise", geometric, lambda x: x[:, 0] >= 1.0, p, q)
    delta = 0.0 if law == "Laplace" else 1e-2
    std = SHORT * multiplier(delta) if delta else SHORT
    noise = stats.norm if delta else stats.laplace
    at, p, q = half_line(noise(1.0, std), noise(0.0, std), delta)

    def number(bit: int, rng: Any, size: int) -> np.ndarray:
        draw = rng.normal if delta else rng.laplace
        return np.asarray(bit + draw(0.0, std, (size, 1)))

    return Core(f"{law} noise", number, lambda x: x[:, 0] >= at, p, q, delta)


def _spread(random: np.random.Generator) -> Core:
    """Make the scale of Laplace noise depend on the data."""
    ratio = float(random.uniform(2.0, 4.0))
    at = np.linspace(0.01, 25.0, 20_001)
    p, q = np.exp(-at / ratio), np.exp(-at)
    place = best(p, q, 0.0)
    reach = float(at[place])

    def sample(bit: int, rng: Any, size: int) -> np.ndarray:
        return np.asarray(rng.laplace(0.0, ratio if bit else 1.0, (size, 1)))

    far = float(p[place]), float(q[place])
    return Core("two scales", sample, lambda x: np.abs(x[:, 0]) >= reach, *far)


def _product(random: np.random.Generator) -> Core:
    """Answer by the sign of a product of two numbers, with too small a probability to lie."""
    law = random.choice(["Laplace", "Gaussian", "bits"])
    p, q = _LOUD / (1.0 + _LOUD), 1.0 / (1.0 + _LOUD)

    def sample(bit: int, rng: Any, size: int) -> np.ndarray:
        same = (rng.random(size) < q) != bool(bit)
        if law == "bits":
            x = rng.integers(0, 2, size)
            return np.stack([x, np.where(same, x, 1 - x)], axis=1).astype(np.float64)
        x = rng.laplace(0.0, 1.0, (size, 2)) if law == "Laplace" else rng.normal(size=(size, 2))
        x[:, 1] = np.abs(x[:, 1]) * np.sign(x[:, 0]) * np.where(same, 1.0, -1.0)
        return np.asarray(x)

    middle = 0.5 if law == "bits" else 0.0
    return Core(
        f"product of two, {law}",
        sample,
        lambda x: (x[:, 0] > middle) == (x[:, 1] > middle),
        p,
        q,
        words=law == "bits",
    )


def _several(random: np.random.Generator) -> Core:
    """Add Gaussian noise that is too small by sqrt 2 to numbers that share the shift."""
    width, delta = int(random.integers(2, 17)), 1e-2
    std = SHORT * multiplier(delta)
    shift = random.choice([-1.0, 1.0], width) * random.dirichlet(np.ones(width)) ** 0.5
    at, p, q = half_line(stats.norm(1.0, std), stats.norm(0.0, std), delta)

    def sample(bit: int, rng: Any, size: int) -> np.ndarray:
        return np.asarray(bit * shift + rng.normal(0.0, std, (size, width)))

    return Core(f"{width} Gaussian numbers", sample, lambda x: x @ shift >= at, p, q, delta)


def _rare(random: np.random.Generator) -> Core:
    """Cap a number too often."""
    q = float(random.uniform(0.02, 0.15))

    def sample(bit: int, rng: Any, size: int) -> np.ndarray:
        capped = rng.random((size, 1)) < (_LOUD * q if bit else q)
        return np.where(capped, 3.0, rng.normal(size=(size, 1)))

    return Core("a cap", sample, lambda x: x[:, 0] == 3.0, _LOUD * q, q)


def _table(text: str, outcomes: np.ndarray, laws: np.ndarray) -> Core:
    """Draw from a finite distribution: rows of integers, their probabilities on both inputs."""
    found = []
    for side in (0, 1):
        order = np.argsort(-laws[side] / laws[1 - side], kind="stable")
        p, q = np.cumsum(laws[side][order])[:-1], np.cumsum(laws[1 - side][order])[:-1]
        place = best(p, q, 0.0)
        margin = (p[place] - math.e * q[place]) / math.sqrt(p[place] + math.e**2 * q[place])
        found.append((margin, order[: place + 1], float(p[place]), float(q[place])))
    _, kept, p, q = max(found, key=lambda each: each[0])
    edges = np.cumsum(laws, axis=1)
    edges /= edges[:, -1:]
    inside = {tuple(outcomes[place]) for place in kept}

    def sample(bit: int, rng: Any, size: int) -> np.ndarray:
        return outcomes[np.searchsorted(edges[bit], rng.random(size), side="right")]

    def event(x: np.ndarray) -> np.ndarray:
        return np.array([tuple(row) in inside for row in x.tolist()])

    return Core(text, sample, event, p, q, words=True)


def _key(random: np.random.Generator) -> Core:
    """Release one of many keys, few of which have different probabilities."""
    keys = round(math.exp(random.uniform(math.log(20.0), math.log(2_000.0))))
    few = 2 * int(random.integers(1, 1 + min(10, keys // 4)))
    common = float(random.uniform(0.2, 0.8))
    base = np.r_[np.full(few, common / few), np.full(keys - few, (1.0 - common) / (keys - few))]
    tilt = np.r_[np.repeat([0.5, -0.5], few // 2) * math.log(_LOUD), np.zeros(keys - few)]
    laws = np.stack([base * np.exp(-tilt), base * np.exp(tilt)])
    laws /= laws.sum(axis=1, keepdims=True)
    names = random.permutation(keys).astype(np.float64)[:, None]
    return _table(f"{few} of {keys} keys", names, laws)


def _halts(random: np.random.Generator) -> Core:
    """Let a sparse vector halt several times, with the noise for one halt."""
    queries, halts = int(random.integers(6, 13)), int(random.integers(2, 5))
    ones = random.permutation(np.arange(queries) < max(1, queries // 3)).astype(np.float64)
    scale = float(random.uniform(1.0, 1.4))
    laws = [_halting(values, halts, scale) for values in (ones, 1.0 - ones)]
    outcomes = sorted(laws[0])
    table = np.array([[law[outcome] for outcome in outcomes] for law in laws])
    text = f"{halts} halts in {queries} queries"
    return _table(text, np.array(outcomes, dtype=np.float64), table)


def _halting(values: np.ndarray, halts: int, scale: float) -> dict[tuple[int, ...], float]:
    """Return the distribution of the answers: 0 below, 1 above, 2 after the last halt."""
    threshold = stats.laplace(1.0, scale).ppf((np.arange(_GRID) + 0.5) / _GRID)
    above = stats.laplace.sf(threshold[:, None], loc=values, scale=2.0 * scale)
    law = {}
    for count in range(halts + 1):
        for places in itertools.combinations(range(values.size), count):
            end = places[-1] + 1 if count == halts else values.size
            answers = [int(place in places) for place in range(end)]
            chance = np.prod(np.where(answers, above[:, :end], 1.0 - above[:, :end]), axis=1).mean()
            law[(*answers, *[2] * (values.size - end))] = float(chance)
    return law


FAULTS: dict[str, Callable[[np.random.Generator], Core]] = {
    "too little noise": _scale,
    "noise that depends on the data": _spread,
    "an interaction of two numbers": _product,
    "a shift shared by several numbers": _several,
    "a value that is too common": _rare,
    "few of many keys": _key,
    "several halts": _halts,
}


def drawn(fault: str, seed: int) -> Drawn:
    """Return the mechanism of a fault and a seed."""
    random = np.random.default_rng([seed, list(FAULTS).index(fault)])
    core = FAULTS[fault](random)
    while _signal(core) < _FAINTEST:
        core = FAULTS[fault](random)
    width = core.sample(0, np.random.default_rng(0), 1).shape[1]
    most = max(width, WIDEST if fault != "several halts" else 2 * width)
    total = round(math.exp(random.uniform(math.log(width), math.log(most))))
    places = random.permutation(total)
    form = str(random.choice(["array", "words"] if core.words else ["array", "dictionary"]))

    def mechanism(bit: int, rng: Any, size: int) -> Any:
        values = np.empty((size, total))
        values[:, :width] = core.sample(bit, rng, size)
        decoys = (size, total - width)
        values[:, width:] = rng.integers(0, 2, decoys) if core.words else rng.laplace(size=decoys)
        # Decoys are placed between the numbers, whose order is kept.
        return _formed(values[:, np.argsort(_ordered(places, width))], form)

    name = f"{core.text}, {total - width} decoys, {form}"
    return Drawn(Broken(name, mechanism, core.delta, core.p, core.q), core, np.sort(places[:width]))


def _signal(core: Core) -> float:
    """Return the squared excess over the claim, in standard deviations of one run."""
    c = math.exp(CLAIM)
    variance = core.p * (1.0 - core.p) + c**2 * core.q * (1.0 - core.q)
    return max(0.0, core.p - c * core.q - core.delta) ** 2 / variance


def _ordered(places: np.ndarray, width: int) -> np.ndarray:
    """Return the positions with those of the core in increasing order."""
    return np.concatenate([np.sort(places[:width]), places[width:]])


def _formed(values: np.ndarray, form: str) -> Any:
    if form == "dictionary":
        keys = [f"key {place}" for place in range(values.shape[1])]
        return [dict(zip(keys, row)) for row in values.tolist()]
    if form == "words":
        rows = [tuple(f"w{x:.0f}" for x in row) for row in values.tolist()]
        return [row[0] if len(row) == 1 else row for row in rows]
    return values[:, 0] if values.shape[1] == 1 else values
