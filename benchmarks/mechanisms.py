"""Mechanisms that break their claim, each with the best distinguishing event, for the oracle.

All claim epsilon = 1 (at ``delta``) and have noise too small by sqrt 2; the sparse vector has half
the noise. The oracle's probabilities are exact: distribution functions, or
:mod:`dpanalysis.audit.laws`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from dpanalysis.audit import above_threshold_distribution, report_noisy_min_distribution
from dpanalysis.privacy import gaussian_epsilon

SHORT = 1.0 / math.sqrt(2.0)
CLAIM = 1.0


@dataclass(frozen=True)
class Broken:
    """A mechanism, called as ``mechanism(bit, rng, size)``, and its best event."""

    name: str
    mechanism: Callable[[int, Any, int], np.ndarray]
    delta: float
    p: float  # probability of the best event on the likelier input
    q: float  # and on the other
    simple: bool = False  # outputs are numbers and the best event is a half line
    # What the second input adds to an outcome, up to a factor; for selections, to every choice.
    canary: Any = 1.0

    def score(self, bit: int, rng: Any, size: int) -> np.ndarray:
        """Return outcomes as scores of the canary, see :func:`scores`."""
        return scores(self.mechanism, self.canary, bit, rng, size)


def scores(
    mechanism: Callable[..., np.ndarray], canary: Any, bit: int, rng: Any, size: int
) -> np.ndarray:
    """Return the scores of outcomes: the canary's inner product, or its entry at a choice."""
    outcomes = np.asarray(mechanism(bit, rng, size))
    if outcomes.ndim == 1 and np.ndim(canary) == 1:
        return canary[outcomes]
    return outcomes.reshape(size, -1) @ np.atleast_1d(canary)


def best(p: np.ndarray, q: np.ndarray, delta: float) -> int:
    """Return the index of the pair for which a test of the claim needs the fewest runs."""
    c = math.exp(CLAIM)
    with np.errstate(divide="ignore", invalid="ignore"):
        score = (p - c * q - delta) / np.sqrt(p * (1.0 - p) + c**2 * q * (1.0 - q))
    return int(np.nanargmax(score))


def half_line(first: Any, second: Any, delta: float) -> tuple[float, float, float]:
    """Return the best half line for two distributions: its start and its two probabilities."""
    at = np.linspace(*second.ppf([0.01, 1.0 - 1e-9]), 20_001)
    place = best(first.sf(at), second.sf(at), delta)
    return float(at[place]), float(first.sf(at[place])), float(second.sf(at[place]))


def _outcomes(p: np.ndarray, q: np.ndarray) -> tuple[float, float]:
    pairs = []
    for a, b in ((p, q), (q, p)):
        order = np.argsort(-a / b)
        first, second = np.cumsum(a[order])[:-1], np.cumsum(b[order])[:-1]
        place = best(first, second, 0.0)
        pairs.append((float(first[place]), float(second[place])))
    return max(pairs, key=lambda pair: pair[0] - math.exp(CLAIM) * pair[1])


def multiplier(delta: float) -> float:
    """Return the standard deviation with which Gaussian noise satisfies the claim."""
    low, high = 0.1, 100.0
    for _ in range(60):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if gaussian_epsilon(middle, delta) > CLAIM else (low, middle)
    return high


def broken() -> Iterator[Broken]:
    """Yield the broken mechanisms, first those of one number."""

    def laplace(bit: int, rng: Any, size: int) -> np.ndarray:
        return bit + rng.laplace(0.0, SHORT, size)

    one = half_line(stats.laplace(1.0, SHORT), stats.laplace(0.0, SHORT), 0.0)[1:]
    yield Broken("Laplace", laplace, 0.0, *one, simple=True)
    for delta in (1e-2, 1e-5):
        std = SHORT * multiplier(delta)

        def gaussian(bit: int, rng: Any, size: int, std: float = std) -> np.ndarray:
            return bit + rng.normal(0.0, std, size)

        pair = half_line(stats.norm(1.0, std), stats.norm(0.0, std), delta)[1:]
        yield Broken(f"Gaussian, delta = {delta:g}", gaussian, delta, *pair, simple=True)
    lie = 1.0 / (1.0 + math.exp(math.sqrt(2.0)))

    def response(bit: int, rng: Any, size: int) -> np.ndarray:
        return (rng.random(size) < lie) != bool(bit)

    yield Broken("randomized response", response, 0.0, 1.0 - lie, lie, simple=True)
    ratio = math.exp(-math.sqrt(2.0))

    def geometric(bit: int, rng: Any, size: int) -> np.ndarray:
        return bit + rng.geometric(1.0 - ratio, size) - rng.geometric(1.0 - ratio, size)

    yield Broken("geometric", geometric, 0.0, 1 / (1 + ratio), ratio / (1 + ratio), simple=True)
    yield from _selections()
    yield from _vectors(one)


def _selections() -> Iterator[Broken]:
    values = np.zeros(10), np.r_[1.0, -np.ones(9)]

    def noisy_max(bit: int, rng: Any, size: int) -> np.ndarray:
        return np.argmax(values[bit] + rng.laplace(0.0, 2.0 * SHORT, (size, 10)), axis=1)

    laws = [report_noisy_min_distribution(-v, "laplace", 2.0 * SHORT) for v in values]
    yield Broken("report noisy max of 10", noisy_max, 0.0, *_outcomes(*laws), canary=values[1])
    queries, scales = (np.r_[np.zeros(9), 1.0], np.r_[np.ones(9), 0.0]), (1.0, 2.0)

    def sparse(bit: int, rng: Any, size: int) -> np.ndarray:
        threshold = 1.0 + rng.laplace(0.0, scales[0], (size, 1))
        halts = queries[bit] + rng.laplace(0.0, scales[1], (size, 10)) >= threshold
        return np.where(halts.any(axis=1), halts.argmax(axis=1), 10)

    laws = [above_threshold_distribution(q, "laplace", *scales, threshold=1.0) for q in queries]
    canary = np.r_[queries[1] - queries[0], 0.0]  # nothing is chosen
    yield Broken("sparse vector of 10", sparse, 0.0, *_outcomes(*laws), canary=canary)


def _vectors(one: tuple[float, float]) -> Iterator[Broken]:
    for bins in (10, 100):

        def histogram(bit: int, rng: Any, size: int, bins: int = bins) -> np.ndarray:
            counts = rng.laplace(0.0, SHORT, (size, bins))
            counts[:, bins // 3] += bit
            return counts

        canary = np.eye(bins)[bins // 3]
        yield Broken(f"histogram of {bins}", histogram, 0.0, *one, canary=canary)
    for width in (2, 10, 100):

        def vector(bit: int, rng: Any, size: int, width: int = width) -> np.ndarray:
            values = rng.normal(size=(size, width))
            values[:, -1] = bit + rng.laplace(0.0, SHORT, size)
            return values

        canary = np.eye(width)[-1]
        yield Broken(f"vector of {width}, one leaks", vector, 0.0, *one, canary=canary)
    delta, steps = 1e-2, 50
    std = SHORT * multiplier(delta)

    def descent(bit: int, rng: Any, size: int) -> np.ndarray:
        """50 noisy gradient steps on (w + bit)**2 / 4, every iterate released."""
        w, path = np.zeros(size), np.empty((size, steps))
        for t in range(steps):
            w = w - 0.1 * (0.5 * w + bit + rng.normal(0.0, std * math.sqrt(steps), size))
            path[:, t] = w
        return path

    pair = half_line(stats.norm(1.0, std), stats.norm(0.0, std), delta)[1:]
    canary = 0.95 ** np.arange(1, steps + 1) - 1.0  # the path without noise
    yield Broken("DP-SGD of 50 steps", descent, delta, *pair, canary=canary)
