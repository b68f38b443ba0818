"""The privacy loss of numbers released with noise of known law, from their densities."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy import special, stats

from .replay import SAME, RecordedRun, close
from .verify import ParsedClaim

CLOSEST = 64  # most entries whose densities are compared point by point
EVERYWHERE = -math.inf, math.inf
_LARGEST = 600.0  # epsilon beyond which e^-epsilon times a probability may underflow
LAWS: dict[str, Any] = {
    "cauchy": stats.cauchy,
    "exponential": stats.expon,
    "gumbel": stats.gumbel_r,
    "laplace": stats.laplace,
    "logistic": stats.logistic,
    "normal": stats.norm,
    "uniform": stats.uniform,
}
_SYMMETRIC = ("cauchy", "laplace", "logistic", "normal")


class Fit(NamedTuple):
    """One input's runs where an output entry equals a N + c, N one number of noise."""

    noise: int  # index of N among all numbers of noise
    factor: float  # a
    center: float  # c
    off: float  # largest deviation


@dataclass
class Entry:
    """An output entry that equals a N + c on both inputs, for one number N of noise."""

    place: int  # in the output
    key: Any  # of the draw
    index: int  # of N in the draw
    law: str
    factor: tuple[float, float]  # a, on each input
    center: tuple[float, float]  # c, on each input
    spread: tuple[float, float]  # scale of the noise in the output, with the sign of the factor
    off: float  # error of these numbers, in units of the spread
    seen: tuple[float, float] = EVERYWHERE  # the range where the output is a N + c (clamps)
    ordered: bool = True  # whether numbers above that range stay above it, and those below, below

    @property
    def shift(self) -> float:
        """Shift of the quantity in units of the draw, if both inputs have the same factor."""
        return abs(self.center[1] - self.center[0]) / abs(self.factor[0])

    @property
    def same_scale(self) -> bool:
        """Whether the noise has the same scale on both inputs."""
        return close(self.spread[0], self.spread[1])


def terms(run: RecordedRun, entries: list[Entry], side: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the entries of an output and a N + c for each, NaN where the run lacks either."""
    output, wanted = np.full((2, len(entries)), np.nan)
    draws = {key: draw.added for key, draw in run.noise.items() if draw.added is not None}
    for k, entry in enumerate(entries):
        noise = draws.get(entry.key)
        if noise is not None and entry.index < noise.size and entry.place < run.numbers.size:
            output[k] = run.numbers[entry.place]
            wanted[k] = entry.factor[side] * noise.flat[entry.index] + entry.center[side]
    return output, wanted


def mirrored(entry: Entry) -> Entry:
    """Return the entry with the same sign of the noise on both inputs, if its law is symmetric."""
    one, other = entry.spread
    signed = one, math.copysign(other, one)
    return replace(entry, spread=signed) if entry.law in _SYMMETRIC else entry


def violation(
    entries: list[Entry], epsilon: float, asked: ParsedClaim, rho: float | None
) -> str | None:
    """Describe how the noise of released entries violates a claim, or return None."""
    level = asked.level
    off = sum(e.off for e in entries)
    normal = [e for e in entries if e.law == "normal" and e.same_scale]
    kl = _divergence(normal)
    moves = [abs(e.center[1] - e.center[0]) / abs(e.spread[0]) for e in normal]
    mu = max(math.sqrt(2.0 * kl), *moves, 0.0)  # any range reveals the full mu of one entry
    if asked.name == "mu":
        if mu > level * (1.0 + SAME) + off:
            return f"normal noise: mu >= {mu:.4g} where {level:.4g} is claimed"
        return None
    if rho is not None and kl > rho * (1.0 + SAME) + (mu + off) * off:
        return f"normal noise: rho >= {kl:.4g} where {rho:.4g} is claimed"
    if asked.delta == 0.0:
        if not epsilon > level * (1.0 + SAME) + SAME + off:
            return None
        worst = entries[0]
        if math.isinf(epsilon):
            return (
                f"epsilon is infinite where {level:.4g} is claimed: the ratio of the "
                f"densities of {worst.law} noise has no bound here"
            )
        adds_up = worst.law == "laplace" and worst.same_scale
        shown = f": shift/scale adds up to {epsilon:.4g}" if adds_up else ""
        return f"epsilon >= {epsilon:.4g} where {level:.4g} is claimed{shown}"
    delta = _largest_delta(entries, level + off)
    if delta > asked.delta * (1.0 + 1e-6) + off + 1e-12:
        return f"delta >= {delta:.4g} at epsilon = {level:.4g} where {asked.delta:.4g} is claimed"
    return None


def _largest_delta(entries: list[Entry], epsilon: float) -> float:
    """Return a lower bound on delta: of single entries, of all normal ones, of Laplace tails."""
    delta = max([delta_of(e, epsilon) for e in entries[:CLOSEST]], default=0.0)
    whole = [e for e in entries if e.same_scale and e.seen == EVERYWHERE]
    moves = [(e.center[1] - e.center[0]) / e.spread[0] for e in whole if e.law == "normal"]
    if mu := math.sqrt(sum(move**2 for move in moves)):
        a, b = 0.5 * mu - epsilon / mu, -0.5 * mu - epsilon / mu
        delta = max(delta, float(special.ndtr(a) - math.exp(epsilon + special.log_ndtr(b))))
    laplace = [e for e in whole if e.law == "laplace" and e.shift]
    total = 0.0
    for count, e in enumerate(laplace[:200], 1):  # the event that all are in their tails
        total += e.shift * abs(e.factor[0]) / abs(e.spread[0])
        delta = max(delta, -(0.5**count) * math.expm1(min(0.0, epsilon - total)))
    return delta


def _divergence(entries: list[Entry]) -> float:
    """Return a lower bound on the larger KL divergence of entries with normal noise."""
    scale = np.array([abs(e.spread[0]) for e in entries])
    low, high, *centers = np.array([(*e.seen, *e.center) for e in entries]).reshape(-1, 4).T
    ordered, found = np.array([e.ordered for e in entries], dtype=bool), []
    for one, other in (centers, centers[::-1]):
        move, a, b = (other - one) / scale, (low - one) / scale, (high - one) / scale
        below, above = (
            [special.ndtr(s * (c - x)) for x in (0.0, move)] for s, c in ((1, a), (-1, b))
        )
        inside = 0.5 * move**2 * (1.0 - below[0] - above[0])
        inside += move * (stats.norm.pdf(b) - stats.norm.pdf(a))
        rest = special.rel_entr(*below) + special.rel_entr(*above)  # each side as one outcome
        both = special.rel_entr(*np.add(below, above))
        found.append(float(np.sum(inside + np.where(ordered, rest, both))))
    return max(found)


def _pair(entry: Entry) -> list[Any]:
    """Return the laws of an output entry on both inputs, mirrored where its factor is negative."""
    sign = math.copysign(1.0, entry.spread[0])
    law = LAWS[entry.law]
    return [law(loc=sign * c, scale=abs(s)) for c, s in zip(entry.center, entry.spread)]


def _points(entry: Entry) -> np.ndarray:
    sign = math.copysign(1.0, entry.spread[0])
    steps = np.concatenate([np.linspace(-40.0, 40.0, 4001), np.geomspace(1e-9, 1e-2, 29)])
    points = [sign * c + abs(s) * steps for c, s in zip(entry.center, entry.spread)]
    at = np.unique(np.concatenate([*points, [sign * c for c in entry.center]]))
    return at[(sign * at >= entry.seen[0]) & (sign * at <= entry.seen[1])]


def loss(entry: Entry) -> tuple[float, float]:
    """Return the largest log ratio of densities, in both directions."""
    if entry.spread[0] * entry.spread[1] < 0.0:
        return 0.0, 0.0
    shift, everywhere = abs(entry.center[1] - entry.center[0]), entry.seen == EVERYWHERE
    bounded = ("laplace", "logistic") if everywhere else ("laplace",)
    if entry.same_scale and (entry.law in bounded or shift == 0.0):
        return (shift / abs(entry.spread[0]),) * 2
    if everywhere and entry.same_scale and entry.law in ("normal", "gumbel"):
        return math.inf, math.inf
    first, second = _pair(entry)
    at = _points(entry)
    with np.errstate(all="ignore"):
        ratio = first.logpdf(at) - second.logpdf(at)
    ratio = ratio[~np.isnan(ratio)]
    largest = float(ratio.max(initial=0.0)), float((-ratio).max(initial=0.0))
    tails = entry.law in ("laplace", "logistic", "normal", "gumbel")
    if everywhere and tails and not entry.same_scale:
        # In the tails, the ratio of the wider density to the other is unbounded.
        wide = abs(entry.spread[0]) > abs(entry.spread[1])
        return (math.inf, largest[1]) if wide else (largest[0], math.inf)
    return largest


def delta_of(entry: Entry, epsilon: float) -> float:
    """Return a lower bound on delta from one entry: P(S) - e^epsilon Q(S) of a union of cells."""
    if entry.spread[0] * entry.spread[1] < 0.0 or epsilon > _LARGEST:
        return 0.0
    at = _points(entry)
    if entry.seen == EVERYWHERE:
        at = np.concatenate([[-np.inf], at, [np.inf]])
    one, two = (_masses(law, at) for law in _pair(entry))
    excess = (np.maximum(0.0, p - math.exp(epsilon) * q) for p, q in ((one, two), (two, one)))
    return max(0.0, *(float(each.sum()) for each in excess))


def _masses(law: Any, at: np.ndarray) -> np.ndarray:
    """Return the probabilities of the cells between points."""
    # From the smaller tail of the law, wherever it lies: a small probability must not be a
    # difference of large ones, since e^epsilon multiplies its rounding error.
    below = np.maximum(0.0, np.minimum(np.diff(law.cdf(at)), 1.0))
    above = np.maximum(0.0, -np.diff(law.sf(at)))
    return np.where(at[1:] <= law.median(), below, above)
