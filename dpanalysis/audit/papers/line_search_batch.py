"""Chen and Lee (2020): what a batch costs: Lemma 4, and the division by the batch.

Several accesses to one batch are in ``line_search_shared``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from ...privacy import (
    rdp_gaussian,
    rdp_laplace,
    rdp_poisson,
    rdp_poisson_gaussian,
    rdp_pure,
)
from ...privacy.events import Event, Sampled
from ...privacy.sampling import Poisson
from ..attack import Range, pair_quotient
from ..exact import Density, hockey_stick, renyi_divergence
from ..laws import subsampled_gaussian, subsampled_laplace
from ..registry import Effort, Evidence, printed, register, used
from .line_search import Laws, at_most_one, renyi, search, searches

Array: TypeAlias = NDArray[np.float64]
Curve: TypeAlias = Callable[[float], float]

# --- what is charged, as printed ---


def lemma_4(order: int, rate: float, curve: Curve) -> float:
    """Return the amplified cost of Lemma 4 as it is printed.

    The binomial probabilities sum to 1; without them only positive terms are left.
    """
    j = np.arange(2, order + 1)
    growth = (j - 1) * np.array([curve(int(k)) for k in j]) + np.where(j > 2, math.log(3.0), 0.0)
    with np.errstate(divide="ignore"):
        log_terms = stats.binom.logpmf(j, order, rate) + growth + np.log(-np.expm1(-growth))
    return float(np.logaddexp(0.0, special.logsumexp(log_terms))) / (order - 1)


def gradient_curve(rho: float, order: float) -> float:
    """Return the cost alpha rho of the noisy gradient."""
    return order * rho


def search_curve(eps: float, order: float) -> float:
    """Return the cost (4) of a search with eps_1 = eps/2, eps_2 = eps/4."""
    return 2.0 * float(rdp_laplace(order, 0.5 * eps))


# --- what a batch costs ---


def product(laws: Laws, others: Laws) -> Laws:
    """Return the joint laws of independent outcomes."""
    with_record, without = (np.outer(a, b).ravel() for a, b in zip(laws, others))
    return with_record, without


def randomized_response(eps: float) -> Laws:
    """Return the two laws of a coin that tells the truth with odds e^eps."""
    p = special.expit(eps)
    return np.array([p, 1.0 - p]), np.array([1.0 - p, p])


def sampled_cost(laws: Laws, rate: float, std: float, order: float) -> float:
    """Return the exact Renyi cost of an outcome and a Gaussian release of one Poisson sample.

    That is, of (1 - rate) P' x N(0) + rate P x N(1) and P' x N(0) for laws P with the record in
    the batch, P' without it: both directions, by sums on an even grid, which converge
    exponentially. ``std`` may be infinite.
    """
    ratio = np.log(laws[0]) - np.log(laws[1])
    if math.isinf(std):
        x, log_weights = np.zeros(1), np.zeros(1)
    else:  # the integrand has its peaks at 0 and, in one direction, up to the order
        x = np.arange(-10.0 * std - order, 10.0 * std + order + 1.0, 0.05 * std)
        log_weights = -0.5 * (x / std) ** 2 + math.log(0.05 / math.sqrt(2.0 * math.pi))
    change = ratio[:, None] + (2.0 * x - 1.0) / (2.0 * std**2)
    change = np.logaddexp(math.log(rate) + change, math.log1p(-rate))
    log_p = np.log(laws[1])[:, None] + log_weights
    moments = [special.logsumexp(log_p + power * change) for power in (order, 1.0 - order)]
    return float(max(moments)) / (order - 1.0)


def one_search(steps: int, eps: float) -> Laws:
    """Return where a search on a record with f(w) = 0, f(w - eta g) = Delta_f halts."""
    return searches(np.full(steps, -0.5), -np.ones(steps), "laplace", 2.0 / eps, 4.0 / eps)


def amplified(order: float, rate: float, events: list[Event]) -> float:
    """Return what a ledger charges for one batch."""
    return float(Sampled(Poisson(rate), events).rdp_cost(np.array([order]))[0])


# --- 002-6: the division by |B| ---


def log_norm_law(n: int, rate: float, d: int, grid: Array) -> Array:
    """Return the law of ln ||z/|B| || on an even grid: z normal in R^d, |B| ~ Bin(n, rate).

    That is all there is in the noisy mean of gradients that are all 0. Batches that are empty
    or have otherwise a probability below 1e-30 are left out.
    """
    sizes = np.arange(1, n + 1)
    weights = stats.binom.pmf(sizes, n, rate)
    sizes, weights = sizes[weights > 1e-30], weights[weights > 1e-30]
    # The density of ln of a chi variable, shifted by ln |B|.
    y = grid[:, None] + np.log(sizes)
    log_chi = (
        d * y - 0.5 * np.exp(2.0 * y) - special.gammaln(0.5 * d) + (1.0 - 0.5 * d) * math.log(2)
    )
    return np.asarray(np.exp(log_chi) @ weights) * (grid[1] - grid[0])


def poisson_sums(rest: Array, new: float, rate: float, std: float) -> tuple[Density, Density]:
    """Return the laws of a noisy sum over a Poisson sample with and without a record."""

    def law(values: Array) -> Density:
        inside = np.array(list(itertools.product((0.0, 1.0), repeat=values.size)))
        count = inside.sum(axis=1)
        log_p = count * math.log(rate) + (values.size - count) * math.log1p(-rate)
        centres = inside @ values

        def logpdf(x: Array) -> Array:
            z = (x[:, None] - centres) / std
            log_phi = -0.5 * z * z - math.log(std * math.sqrt(2.0 * math.pi))
            return np.asarray(np.logaddexp.reduce(log_phi + log_p, axis=1))

        return Density(logpdf, tuple(np.unique(centres)))

    return law(np.append(rest, new)), law(rest)


@register(
    "002-6",
    "Algorithms 2 and 3, line 6 and line 4",
    "the noisy sum is divided by \\|B\\|, at the cost of the sum, alpha rho",
    "division by the public q n: the noise gives \\|B\\| away, and an empty batch has no mean",
    verdict="corrected",
)
def division(effort: Effort) -> Iterator[Evidence]:
    """Neighbours whose gradients are all 0: only the size of the noise tells them apart."""
    # The paper's Adult data at eps = .05: rho = (eps/100)^2/2, C = 3 drops out.
    n, rate, d, rho = 48_842, 0.1, 124, 0.5 * (0.05 / 100.0) ** 2
    middle, width = 0.5 * math.log(d) - math.log(n * rate), 10.0 / math.sqrt(2.0 * d)
    grid = np.linspace(middle - width, middle + width, 401)
    more, fewer = (log_norm_law(n + k, rate, d, grid) for k in (1, 0))
    cost = max(renyi_divergence(more, fewer, 2), renyi_divergence(fewer, more, 2))
    claimed = lemma_4(2, rate, lambda order: order * rho)
    yield printed(
        "exact / charged, Adult, eps = .05, order 2, gradients 0", cost / claimed, "<=", 1
    )
    batch, d = 300, 795_010
    wide, narrow = stats.norm(scale=1.0 / batch), stats.norm(scale=1.0 / (batch + 1))
    cost = d * max(renyi_divergence(narrow, wide, 2), renyi_divergence(wide, narrow, 2))
    what = "exact cost of a batch of 300 or 301 gradients 0, MNIST MLP, order 2, rho = 1"
    yield printed(what, cost, "<=", 2.0)
    empty = hockey_stick([rate, 1.0 - rate], [0.0, 1.0], 100.0)
    yield printed("delta at epsilon = 100, one record or none (no mean), q = .1", empty, "<=", 0.0)

    def ratio(rest: Array, new: float, rate: float, std: float, order: float) -> float:
        laws = poisson_sums(rest, new, rate, std)
        return pair_quotient(float(rdp_poisson_gaussian(order, rate, std)), laws, order=order)

    space = {
        "rest": Range(-1.0, 1.0, size=2),
        "new": Range(-1.0, 1.0),
        "rate": Range(0.01, 0.9, log=True),
        "std": Range(0.5, 10.0, log=True),
        "order": Range(1.1, 20.0, log=True),
    }
    worst = {"rest": np.zeros(2), "new": 1.0, "rate": 0.1, "std": 1.0, "order": 8.0}
    found = search(effort, ratio, space, starts=(15, 60), steps=(10, 30), guesses=(worst,))
    value = 1.0 / found.ratio
    what = "largest exact / charged, sum over a Poisson sample of 3, divided by q n"
    yield used(what, value, "<=", 1.0, tolerance=1e-9, cases=found.evaluations)
    yield used("that is, attained", value, ">=", 0.999)


# --- 002-10: Lemma 4 ---


def sampled_pair(laws: Laws, rate: float) -> Laws:
    """Return the laws of the release of a Poisson sample with and without the record."""
    return (1.0 - rate) * laws[1] + rate * laws[0], laws[1]


def gaussian_curve(std: float) -> Curve:
    """Return order -> cost of a Gaussian release of sensitivity 1."""
    return lambda order: float(rdp_gaussian(order, std))


def gaussian(order: int, rate: float, std: float) -> float:
    """Return Lemma 4 / exact value for a Gaussian release from a Poisson sample."""
    laws = subsampled_gaussian(std, 1.0, rate)
    return pair_quotient(lemma_4(order, rate, gaussian_curve(std)), laws, order=order)


def laplace(order: int, rate: float, std: float) -> float:
    """Return the same for a Laplace release of scale ``std``."""

    def curve(order: float) -> float:
        return float(rdp_laplace(order, 1.0 / std))

    return pair_quotient(
        lemma_4(order, rate, curve), subsampled_laplace(std, 1.0, rate), order=order
    )


@register(
    "002-10",
    "Lemma 4",
    "amplification with a factor 3 in all terms but the first three, integer orders",
    "factor 1 for Gaussian noise and randomised response, where it is exact; never more than "
    "the cost without sampling",
    verdict="sharpened",
)
def amplification(effort: Effort) -> Iterator[Evidence]:
    """Integrate pairs that are known, and sum random ones of three outcomes."""
    order, rate = Range(2, 64, log=True, integer=True), Range(1e-3, 0.9, log=True)
    std = Range(0.5, 20.0, log=True)

    def finite(
        bound: Callable[[int, float, Curve], float], order: int, rate: float, p: Array, q: Array
    ) -> float:
        laws = p / p.sum(), q / q.sum()
        value = bound(order, rate, partial(renyi, laws))
        return pair_quotient(value, sampled_pair(laws, rate), order=order)

    ratio: Callable[..., float]
    known = {"order": order, "rate": rate, "std": std}
    weight = Range(1e-3, 1.0, log=True, size=3)
    anything = {"order": order, "rate": rate, "p": weight, "q": weight}
    for what, ratio, space in (
        ("Gaussian", gaussian, known),
        ("Laplace", laplace, known),
        ("three outcomes", partial(finite, lemma_4), anything),
    ):
        found = search(effort, ratio, space)
        yield at_most_one(printed, f"exact / Lemma 4, {what}", found)

    def one(order: int, rate: float, std: float) -> float:
        ours = rdp_poisson(order, rate, lambda x: rdp_gaussian(x, std), exact_pair=True)
        return pair_quotient(float(ours), subsampled_gaussian(std, 1.0, rate), order=order)

    def coin(order: int, rate: float, eps: float) -> float:
        ours = rdp_poisson(order, rate, lambda x: rdp_pure(x, eps), exact_pair=True)
        return pair_quotient(float(ours), sampled_pair(randomized_response(eps), rate), order=order)

    flips = {"order": order, "rate": rate, "eps": Range(0.01, 5.0, log=True)}
    for what, ratio, space in (("Gaussian", one, known), ("randomised response", coin, flips)):
        found = search(effort, lambda ratio=ratio, **at: -abs(math.log(ratio(**at))), space)
        yield used(f"largest |ln(factor 1 / exact)|, {what}", -found.ratio, "<=", 1e-8,
                   cases=found.evaluations)  # fmt: skip

    def ours(order: int, rate: float, curve: Curve) -> float:
        return float(rdp_poisson(order, rate, np.vectorize(curve)))

    found = search(effort, partial(finite, ours), anything)
    yield at_most_one(used, "exact / used, three outcomes", found)
    printed_cost = lemma_4(8, 0.1, gaussian_curve(50.0))
    where = "Gaussian, q = .1, sigma = 50, order 8"
    yield used(f"Lemma 4 / exact, {where}", gaussian(8, 0.1, 50.0), ">=", 1.0)
    unsampled = float(rdp_gaussian(8, 50.0))
    yield used("Lemma 4 / cost without sampling, same", printed_cost / unsampled, ">=", 1.0)
