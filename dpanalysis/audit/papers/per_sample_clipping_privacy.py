"""Xia et al. (2023): the constants of Theorem 1, and batches drawn with replacement."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from ... import privacy
from ..attack import Range
from ..registry import Effort, Evidence, printed, register, used
from ._composition import Mixture, epsilon_bounds
from .second_order import largest
from .value_clipping import used_length

Array = NDArray[np.float64]


# --- 000-8: sampling with replacement ---


def multiplicities(draws: int, n: int, most: int = 12) -> tuple[Array, Array]:
    """Return the law of how often a record is drawn: probabilities and counts."""
    counts = np.arange(min(draws, most) + 1)
    return stats.binom.pmf(counts, draws, 1.0 / n), counts.astype(np.float64)


def deltas(
    first: tuple[Array, Array], second: tuple[Array, Array], std: float, epsilon: float
) -> Array:
    """Return both hockey-stick divergences of two Gaussian mixtures (weights, means)."""
    means = np.concatenate([first[1], second[1]])
    x = np.arange(means.min() - 10.0 * std, means.max() + 10.0 * std, std / 400.0)
    p, q = (
        stats.norm.pdf(x[:, None], centres, std) @ weights for weights, centres in (first, second)
    )
    rise = math.exp(epsilon)
    gains = np.maximum(p - rise * q, 0.0), np.maximum(q - rise * p, 0.0)
    return np.sum(gains, axis=1) * (std / 400.0)


def drawn(records: Array, draws: int) -> tuple[Array, Array]:
    """Return the law of the sum of ``draws`` records, drawn with replacement."""
    sums = np.array([sum(batch) for batch in itertools.product(records, repeat=draws)])
    return np.full(sums.size, 1.0 / sums.size), sums


def removal_quotient(records: Array, std: float, epsilon: float) -> float:
    """Return delta of removing the first of three records, two draws, over the mixture's.

    The mixture has shifts 2k: a record of norm 1 takes the place of another one.
    """
    exact = deltas(drawn(records, 2), drawn(records[1:], 2), std, epsilon)
    weights, counts = multiplicities(2, records.size)
    claimed = deltas((weights, 2.0 * counts), (np.ones(1), np.zeros(1)), std, epsilon)
    return float((exact / np.maximum(claimed, 1e-6)).max())


@register(
    "000-8",
    "Algorithm 1; Theorem 1",
    "a batch drawn with replacement costs what Poisson sampling at q = B/N costs",
    "Poisson sampling; with replacement a record that is drawn k times moves the sum by up to "
    "2 k C: the Binomial mixture with shifts 2 k C",
    verdict="corrected",
)
def with_replacement(effort: Effort) -> Iterator[Evidence]:
    """Compose both on a grid with error bounds; enumerate all batches of three records."""
    n, size, steps, noise, delta = 60_000, 512, 500, 0.8, 1e-5
    rate = size / n
    step = privacy.events.Sampled(
        privacy.Poisson(rate), [privacy.events.Gaussian(std=noise, sensitivity=1.0)]
    )
    claimed = privacy.epsilon(
        privacy.events.Repeated(step, steps), delta, privacy.ADD_OR_REMOVE_ONE, "pld"
    )
    weights, counts = multiplicities(size, n)
    setting = "N = 60000, B = 512, T = 500, sigma = .8, delta = 1e-5"
    for others, factor in (("0", 1.0), ("opposite", 2.0)):
        low, _ = epsilon_bounds(Mixture(weights, factor * counts, noise), steps, delta)
        what = f"epsilon at least, other gradients {others} ({setting})"
        yield printed(what, low, "<=", claimed)
    alone = Mixture(np.array([1.0 - rate, rate]), np.array([0.0, 1.0]), noise)
    low, high = epsilon_bounds(alone, steps, delta)
    yield used("epsilon of Poisson sampling, lower bound", low, "<=", claimed)
    yield used("epsilon of Poisson sampling, upper bound", high, ">=", claimed)
    space = {
        "records": Range(-1.0, 1.0, size=3),
        "std": Range(0.4, 5.0, log=True),
        "epsilon": Range(0.01, 4.0, log=True),
    }
    guess = {"records": [1.0, -1.0, -1.0], "std": 1.0, "epsilon": 0.5}
    found, cases = largest(effort, removal_quotient, space, cost=4, guesses=[guess])
    what = "delta / that of the mixture, N = 3, B = 2"
    yield used(what, found, "<=", 1.0, tolerance=1e-4, cases=cases)
    yield used("that is, attained", found, ">=", 0.999)


# --- 000-9: the constants of Theorem 1 ---


def large_epsilon(c1: float, c2: float, delta: float) -> float:
    """Return true delta / delta of T full batches at epsilon = c1 T, sigma of Theorem 1.

    T is so large that the mean of the loss, epsilon^2/(2 c2^2 ln(1/delta)), exceeds epsilon.
    """
    spread = c2 * math.sqrt(math.log(1.0 / delta))
    epsilon = c1 * math.ceil(8.0 * spread * max(1.0, spread) / c1)
    mu = epsilon / spread  # sqrt(T) / sigma
    near, far = 0.5 * mu - epsilon / mu, -0.5 * mu - epsilon / mu
    return float(special.ndtr(near) - math.exp(epsilon + special.log_ndtr(far))) / delta


def small_epsilon(rate: float, share: float, delta: float, factor: float) -> float:
    """Return an upper bound of epsilon / epsilon at epsilon = share ln(1/delta), c1 = 1, c2 = 2."""
    return used_length(rate, share * math.log(1.0 / delta), delta, factor)


@register(
    "000-9",
    "Theorem 1",
    "for some c1, c2, (epsilon, delta)-DP if sigma >= c2 q sqrt(T ln(1/delta))/epsilon, for any "
    "epsilon <= c1 q^2 T (sigma is lost in our text; as Theorem 3.4 of Fang et al. 2023)",
    "for any epsilon <= min{q^2 T, ln(1/delta)} with c2 = 2; noise is calibrated by an accountant",
    verdict="corrected",
)
def large_budgets(effort: Effort) -> Iterator[Evidence]:
    """Exact composition of full batches, for all constants; Renyi divergences of the others."""
    constants, failures = np.geomspace(1e-3, 1e3, effort.cases(13, 61)), (1e-8, 1e-5, 0.1)
    grid = list(itertools.product(constants, constants, failures))
    least = min(large_epsilon(*each) for each in grid)
    what = "delta / delta claimed, q = 1, epsilon = c1 T, T large, smallest over c1, c2, delta"
    yield printed(what, least, "<=", 1.0, cases=len(grid))
    space = {
        "rate": Range(1e-3, 1.0, log=True),
        "share": Range(0.01, 1.0, log=True),
        "delta": Range(1e-10, 0.5, log=True),
        "factor": Range(1.0, 1000.0, log=True),
    }
    found, cases = largest(effort, small_epsilon, space, cost=4)
    yield used("epsilon / epsilon claimed", found, "<=", 1.0, cases=cases)
