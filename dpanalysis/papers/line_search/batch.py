"""Chen and Lee (2020), Algorithm 2: the cost of a batch, and the budget of the run."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize, special, stats

from ...audit.attack import Range, pair_quotient, quotient
from ...audit.exact import Density
from ...audit.laws import subsampled_gaussian, subsampled_laplace
from ...experiments import Result, minimize
from ...losses import Logistic
from ...methods import LineSearchSGD
from ...privacy import (
    Budget,
    rdp_gaussian,
    rdp_laplace,
    rdp_poisson,
    rdp_poisson_gaussian,
    rdp_pure,
)
from ...privacy.accounting.relations import ADD_OR_REMOVE_ONE
from ...privacy.accounting.sampling import Poisson
from ...privacy.budget import Filter
from ...privacy.events import AboveThreshold, Event, Gaussian, Pure, Sampled, innermost
from ...problems import ERM
from ..claim import Effort, Evidence, premise, printed, reading, used
from ..registry import register
from ..tools import (
    Array,
    Laws,
    gaussian_mixture,
    largest_delta,
    mixed,
    product,
    randomized_response,
    renyi,
    search_min,
)
from .search import PARTS, RATE, SIZES, loss_changes, search, searches

Curve: TypeAlias = Callable[[float], float]

DELTA = 1e-8  # 5.4


def smallest_order(epsilon: float) -> int:
    """Return the smallest order with a budget, epsilon + ln(delta)/(order - 1) > 0."""
    return 2 + math.floor(-math.log(DELTA) / epsilon)


# --- the charges as printed ---


def lemma_4(order: int, rate: float, curve: Curve) -> float:
    """Return the amplified cost of Lemma 4 as printed.

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


@lru_cache(maxsize=8192)
def search_curve(eps: float, order: float) -> float:
    """Return the cost (4) of a search with eps_1 = eps/2, eps_2 = eps/4."""
    return 2.0 * float(rdp_laplace(order, 0.5 * eps))


# --- the cost of a batch ---


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
    return max(float(max(moments)), 0.0) / (order - 1.0)  # not below 0 by rounding


def one_search(steps: int, eps: float) -> Laws:
    """Return the laws of the halting index: a record with f(w) = 0, f(w - eta g) = Delta_f."""
    return searches(np.full(steps, -0.5), -np.ones(steps), "laplace", 2.0 / eps, 4.0 / eps)


def amplified(order: float, rate: float, events: list[Event]) -> float:
    """Return the charge of a ledger for one batch."""
    return float(Sampled(Poisson(rate), events).rdp_cost(np.array([order]))[0])


# --- 002-6: the division by |B| ---


def log_norm_law(n: int, rate: float, d: int, grid: Array) -> Array:
    """Return the law of ln ||z/|B| || on an even grid: z normal in R^d, |B| ~ Bin(n, rate)."""
    # If all gradients are 0, this is all that the noisy mean depends on.
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
        chances = rate**count * (1.0 - rate) ** (values.size - count)
        return gaussian_mixture(inside @ values, std, chances)

    return law(np.append(rest, new)), law(rest)


def adult_sizes(order: float) -> float:
    """Return exact cost / charge of one batch of Adult at epsilon = .05, all gradients 0."""
    n, rate, d, rho = 48_842, 0.1, 124, 0.5 * (0.05 / PARTS) ** 2  # C drops out
    middle, width = 0.5 * math.log(d) - math.log(n * rate), 10.0 / math.sqrt(2.0 * d)
    grid = np.linspace(middle - width, middle + width, 401)
    more, fewer = (log_norm_law(n + k, rate, d, grid) for k in (1, 0))
    return renyi((more, fewer), order) / lemma_4(int(order), rate, partial(gradient_curve, rho))


def size_and_sum(order: int, epsilon: float) -> float:
    """Return exact cost / charge of |B| and the noisy sum, all gradients but one 0 (Adult)."""
    n, rate, part = 48_842, 0.1, epsilon / PARTS
    law = stats.binom.pmf(np.arange(n + 1), n, rate)
    low, high = np.flatnonzero(law > 1e-40)[[1, -1]]
    with_record, without = law[low - 1 : high], law[low : high + 1]  # one more, or none
    exact = sampled_cost((with_record, without), rate, 1.0 / part, order)
    return exact / lemma_4(order, rate, partial(gradient_curve, 0.5 * part**2))


def division_as_printed(effort: Effort) -> Iterator[Evidence]:
    """Grant the paper the charge of Lemma 4, and leave out empty batches."""
    yield premise("P(an empty batch)", 0.9**48_842, "<=", 1e-300)
    for order in (2, 10_000):
        what = f"exact / charged, Adult, q = .1, eps = .05, order {order:,}"
        yield printed(what, adult_sizes(order), "<=", 1)


@register(
    "002-6",
    "Algorithms 2 and 3, line 6 and line 4",
    "the noisy sum is divided by \\|B\\|, at the cost of the sum, alpha rho",
    "division by the public q n, as the scale of the noise reveals \\|B\\|. At the orders to 500 "
    "that a budget of 5.4 leaves, the printed charge suffices where the other gradients are 0, "
    "even for \\|B\\| itself and the sum, because of the factor 3",
    verdict="corrected",
    says="line 6: '1/|B| (g_t + gamma)'; line 7 charges amp(alpha rho_grad)",
    hypotheses="Poisson samples of Adult's n records, the budget of 5.4 at epsilon = .05; zero "
    "gradients; order 2, at which no term of Lemma 4 has the factor 3, and 10,000, at which it "
    "counts for little: 4.3 names those to 500 as an example",
    changes="|B| read as q n, or public; orders at which the factor 3 covers the difference",
    adversary=division_as_printed,
)
def division(effort: Effort) -> Iterator[Evidence]:
    """Compare neighbours whose gradients are all 0: only the scale of the noise differs."""
    for order in (2, 10_000):
        what = f"exact / charged, Adult, eps = .05, order {order:,}, zero gradients"
        yield printed(what, adult_sizes(order), "<=", 1)
    batch, d = 300, 795_010
    wide, narrow = stats.norm(scale=1.0 / batch), stats.norm(scale=1.0 / (batch + 1))
    cost = d * renyi((narrow, wide), 2)
    what = "exact cost of a batch of 300 or 301 zero gradients, MNIST MLP, order 2, rho = 1"
    yield printed(what, cost, "<=", 2.0)
    what = "exact / charged, Adult, eps = .05, orders 370 (the first with a budget) and 500"
    yield used(what, [adult_sizes(order) for order in (smallest_order(0.05), 500)], "<=", 0.1)
    what = "the same, |B| and the sum, another record's gradient C, epsilon = .05, .4, 1.6"
    ends = [(k, eps) for eps in (0.05, 0.4, 1.6) for k in (smallest_order(eps), 500)]
    yield used(what, [size_and_sum(*end) for end in ends], "<=", 1.0)

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
    what = "largest exact / charged, sum over a Poisson sample of 3, divided by q n"
    yield used(what, found, "<=", 1.0, tolerance=1e-9)
    yield used("bound attained", found.max(), ">=", 0.999)


# --- 002-10: Lemma 4 ---


def gaussian_curve(std: float) -> Curve:
    """Return order -> cost of a Gaussian release of sensitivity 1."""
    return lambda order: float(rdp_gaussian(order, std))


def gaussian(order: int, rate: float, std: float) -> float:
    """Return Lemma 4 / exact value for a Gaussian release from a Poisson sample."""
    laws = subsampled_gaussian(std, 1.0, rate)
    return pair_quotient(lemma_4(order, rate, gaussian_curve(std)), laws, order=order)


def laplace(order: int, rate: float, std: float) -> float:
    """Return Lemma 4 / exact value for a Laplace release of scale ``std``."""

    def curve(order: float) -> float:
        return float(rdp_laplace(order, 1.0 / std))

    return pair_quotient(
        lemma_4(order, rate, curve), subsampled_laplace(std, 1.0, rate), order=order
    )


@register(
    "002-10",
    "Lemma 4",
    "amplification with a factor 3 in all terms but the first three, integer orders",
    "factor 1 for Gaussian noise and randomized response, for which it is exact; never more than "
    "the cost without sampling",
    verdict="sharpened",
)
def amplification(effort: Effort) -> Iterator[Evidence]:
    """Integrate known pairs, and sum random pairs of three outcomes."""
    order, rate = Range(2, 64, log=True, integer=True), Range(1e-3, 0.9, log=True)
    std = Range(0.5, 20.0, log=True)

    def finite(
        bound: Callable[[int, float, Curve], float], order: int, rate: float, p: Array, q: Array
    ) -> float:
        laws = p / p.sum(), q / q.sum()
        value = bound(order, rate, partial(renyi, laws))
        return pair_quotient(value, mixed(rate, laws), order=order)

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
        yield printed(f"largest exact / Lemma 4, {what}", found, "<=", 1.0, tolerance=1e-9)

    def one(order: int, rate: float, std: float) -> float:
        ours = rdp_poisson(order, rate, lambda x: rdp_gaussian(x, std), exact_pair=True)
        return pair_quotient(float(ours), subsampled_gaussian(std, 1.0, rate), order=order)

    def coin(order: int, rate: float, eps: float) -> float:
        ours = rdp_poisson(order, rate, lambda x: rdp_pure(x, eps), exact_pair=True)
        return pair_quotient(float(ours), mixed(rate, randomized_response(eps)), order=order)

    flips = {"order": order, "rate": rate, "eps": Range(0.01, 5.0, log=True)}
    for what, ratio, space in (("Gaussian", one, known), ("randomized response", coin, flips)):
        off = search_min(
            effort, lambda ratio=ratio, **at: -abs(math.log(ratio(**at))), space, **SIZES
        )
        yield used(f"largest |ln(factor 1 / exact)|, {what}", -off, "<=", 1e-8)

    def ours(order: int, rate: float, curve: Curve) -> float:
        return float(rdp_poisson(order, rate, np.vectorize(curve)))

    found = search(effort, partial(finite, ours), anything)
    yield used("largest exact / used, three outcomes", found, "<=", 1.0, tolerance=1e-9)
    printed_cost = lemma_4(8, 0.1, gaussian_curve(50.0))
    where = "Gaussian, q = .1, sigma = 50, order 8"
    yield used(f"Lemma 4 / exact, {where}", gaussian(8, 0.1, 50.0), ">=", 1.0)
    unsampled = float(rdp_gaussian(8, 50.0))
    yield used("Lemma 4 / cost without sampling, the same", printed_cost / unsampled, ">=", 1.0)


# --- 002-4, 002-5: several accesses to one batch ---


def search_event(steps: int, eps: float) -> AboveThreshold:
    """Return the event of a search on losses in [0, Delta_f], in units of Delta_f."""
    return AboveThreshold("laplace", 2.0 / eps, 4.0 / eps, 1.0, steps, shared=True)


def shared_search(levels: Array, before: float, after: Array, eps: float) -> Laws:
    """Return the laws of the halting index: losses ``before`` and ``after`` the steps."""
    return searches(levels, loss_changes(before, after), "laplace", 2.0 / eps, 4.0 / eps)


# Budgets of searches are powers of 2, so that the curve of each is computed once.
SEARCHES = {
    "before": Range(0.0, 1.0),
    "budget": Range(-3, 2, integer=True),
    "rate": Range(1e-3, 0.9, log=True),
    "order": Range(2, 16, log=True, integer=True),
}


def a_run() -> Result:
    """Return a run of the method."""
    random = np.random.default_rng(0)
    x = random.uniform(-1.0, 1.0, (2000, 5))
    problem = ERM(x, np.sign(x @ np.arange(1.0, 6.0)), Logistic())
    method = LineSearchSGD(Poisson(0.01), rho=0.5, epsilon=2.0)
    return minimize(problem, method, Budget(2.0, 1e-5, ADD_OR_REMOVE_ONE), rng=0, record=())


def one_iteration(count: int = 1, order: int = 8, rho: float = 1.0) -> tuple[float, float]:
    """Return exact cost and printed charge of a gradient and searches on one batch."""
    # q = .01, eps_BT = 2. The record lowers every query by Delta_f. Another search follows only a
    # failed one, and so does a gradient on a separate batch, which is charged too.
    rate, eps, steps = 0.01, 2.0, 20 if count == 1 else 3
    fail = [law[-1] for law in one_search(steps, eps)]
    laws = [
        np.concatenate([*(f**j * law[:-1] for j in range(count)), [f**count]])
        for f, law in zip(fail, one_search(steps, eps))
    ]
    exact = sampled_cost((laws[0], laws[1]), rate, math.sqrt(0.5 / rho), order)
    gradient = lemma_4(order, rate, partial(gradient_curve, rho))
    return exact, count * (gradient + lemma_4(order, rate, partial(search_curve, eps)))


def shared_as_printed(effort: Effort) -> Iterator[Evidence]:
    """Release only the last iterate, whose length reveals the step in 20,000 dimensions."""
    moves = loss_changes(0.0, np.ones(20))
    yield premise("largest change of a query / Delta_f", np.abs(moves), "<=", 1.0)
    # The step sizes differ by .8; the length of the noise hardly varies.
    doubt = 20_000 * np.array([0.8, 1.25])
    misread = stats.chi2.cdf(doubt[0], 20_000) + stats.chi2.sf(doubt[1], 20_000)
    yield premise("P(the iterate does not reveal the step)", misread, "<=", 1e-50)
    for count, at in ((1, (8, 1.0)), (8, (32, 1e-3))):
        exact, charged = one_iteration(count, *at)
        what = f"exact cost, {count} searches, order {at[0]}, rho = {at[1]:g}"
        yield printed(what, exact, "<=", charged)


@register(
    "002-4",
    "Algorithm 2, lines 7 and 11; section 4.3; proof of Theorem 4",
    "gradient and search of one batch are amplified separately: amp(alpha rho) + amp(eps_ls)",
    "all releases from a batch are composed, then amplified once, for Gaussian noise and a pure "
    "release with the factor 1 of 002-10. At the budgets of 5.4 and orders to 500 the printed "
    "charge suffices, because of the factor 3",
    verdict="corrected",
    says="'use Lemma 4 to amplify for subsampling, and Lemma 3 to calculate the overall privacy'",
    hypotheses="q, rho_grad, eps_BT and the order are free in Algorithm 2; losses in [0, Delta_f]",
    changes="a separate batch for every access, or budgets so small that the factor 3 covers the "
    "difference; in section 5.7 gradient and search are composed first",
    adversary=shared_as_printed,
)
def shared_batch(effort: Effort) -> Iterator[Evidence]:
    """Compare at q = .01, rho = 1, eps_BT = 2, order 8; search; and the budgets of 5.4."""
    rate, rho, eps, order = 0.01, 1.0, 2.0, 8
    std = math.sqrt(0.5 / rho)
    exact, charged = one_iteration()
    what = "exact cost of gradient and search, q = .01, rho = 1, eps_BT = 2, order 8"
    yield printed(what, exact, "<=", charged)
    exact = sampled_cost(randomized_response(eps), rate, std, order)
    once = amplified(order, rate, [Gaussian(std, 1.0), Pure(eps)])
    what = "exact cost of gradient and worst 2-private release, amplified once"
    yield used(what, exact, "==", once, tolerance=1e-9 * once)

    def ratio(
        levels: Array, before: float, after: Array, budget: int, rate: float, std: float, order: int
    ) -> float:
        eps = 2.0**budget
        laws = shared_search(levels, before, after, eps)
        bound = amplified(order, rate, [Gaussian(std, 1.0), search_event(len(levels), eps)])
        return quotient(bound, sampled_cost(laws, rate, std, order))

    space = {"levels": Range(-20.0, 20.0, size=5), "after": Range(0.0, 1.0, size=5), **SEARCHES}
    found = search(effort, ratio, space | {"std": Range(0.5, 10.0, log=True)}, cost=2)
    yield used("largest exact / charged", found, "<=", 1.0, tolerance=1e-9)
    shares = []
    for epsilon in (0.05, 0.2, 0.4, 1.6):
        part = epsilon / PARTS
        curves = partial(gradient_curve, 0.5 * part**2), partial(search_curve, part)
        for order in (smallest_order(epsilon), 500):
            valid = amplified(order, RATE, [Gaussian(1.0 / part, 1.0), Pure(0.75 * part)])
            shares.append(valid / sum(lemma_4(order, RATE, curve) for curve in curves))
    yield used("valid / printed charge, 5.4, epsilon = .05 to 1.6", shares, "<=", 0.5)


@register(
    "002-5",
    "Algorithm 2, lines 9 to 11",
    "every further search on the same batch costs amp(eps_ls) more",
    "all searches on a batch are composed, then amplified once",
    verdict="corrected",
    says="line 10 searches on B again, line 11 subtracts amp(eps_ls(alpha)); Algorithm 3 samples a "
    "B as well, and does not return it",
    hypotheses="a further search follows only a failed one; the gradients between them are charged",
    changes="a separate batch for every search, as if Algorithm 3 replaced the B of Algorithm 2; "
    "in section 5.7 no batch is searched twice",
    adversary=shared_as_printed,
)
def repeated_searches(effort: Effort) -> Iterator[Evidence]:
    """Enumerate the outcomes of several searches of a few steps."""
    exact, charged = one_iteration(8, 32, 1e-3)
    what = "exact cost of up to 8 searches and gradients, q = .01, eps_BT = 2, order 32"
    yield printed(what, exact, "<=", charged)

    def ratio(
        levels: Array, before: float, after: Array, count: int, budget: int, rate: float, order: int
    ) -> float:
        eps = 2.0**budget
        joint = product(*[shared_search(levels, before, after, eps)] * count)
        bound = amplified(order, rate, [search_event(len(levels), eps)] * count)
        return quotient(bound, sampled_cost(joint, rate, math.inf, order))

    space = {"levels": Range(-20.0, 20.0, size=4), "after": Range(0.0, 1.0, size=4), **SEARCHES}
    found = search(effort, ratio, space | {"count": Range(1, 4, integer=True)})
    yield used("largest exact / charged", found, "<=", 1.0, tolerance=1e-9)
    coins = sampled_cost(product(*[randomized_response(2.0)] * 4), 0.01, math.inf, 32)
    charged = amplified(32, 0.01, [Pure(2.0)] * 4)
    yield used("exact cost of 4 coins of loss 2, q = .01, order 32", coins, "<=", charged)


# --- 002-7: the order at which the budget holds ---


@dataclass(frozen=True)
class TwoLaws(Event):
    """A release given by its laws with and without a record."""

    present: tuple[float, ...]
    absent: tuple[float, ...]

    def rdp_cost(self, orders: ArrayLike) -> Array:  # noqa: D102
        return np.array([renyi(self.laws, order) for order in np.ravel(orders)])

    @property
    def laws(self) -> Laws:
        """The two laws."""
        return np.array(self.present), np.array(self.absent)


NOTHING = TwoLaws((1.0,), (1.0,))


def leak(chance: float, loss: float) -> TwoLaws:
    """Return a release with loss ``loss`` with a small probability and almost none otherwise."""
    low = chance * math.exp(-loss)
    return TwoLaws((chance, 1.0 - chance), (low, 1.0 - low))


def coin(loss: float) -> TwoLaws:
    """Return randomized response; if ``loss`` is large, that is its loss nearly always."""
    present, absent = randomized_response(loss)
    return TwoLaws(tuple(present), tuple(absent))


def cost(release: TwoLaws, order: float) -> float:
    """Return the Renyi cost at one order."""
    return float(release.rdp_cost([order])[0])


def two_stages(first: TwoLaws, then: tuple[TwoLaws, TwoLaws]) -> Laws:
    """Return the joint laws of a release and a second one that depends on its outcome."""
    pieces = [
        [chance * law for chance, law in zip(outcome, following.laws)]
        for outcome, following in zip(zip(*first.laws), then)
    ]
    present, absent = (np.concatenate(side) for side in zip(*pieces))
    return present, absent


def adversary(
    budgets: tuple[float, float], orders: tuple[float, float], epsilon: float, delta: float
) -> tuple[TwoLaws, tuple[TwoLaws, TwoLaws]]:
    """Return releases that exhaust the budget of one order or the other, by the outcome.

    The first release separates them: one rare outcome carries nearly all of its Renyi sum at the
    high order and hardly any at the low order. After it, a coin spends the rest of the budget at
    the high order; after the other outcome, a leak spends the rest at the low order, with the most
    harmful loss. Either of them alone would attain delta.
    """
    low, high = orders
    chance = high * delta
    first = leak(chance, (7.5 - math.log(chance)) / (high - 1.0))
    left = budgets[1] - cost(first, high)
    loss = optimize.brentq(lambda loss: cost(coin(loss), high) - left, 0.0, left + 5.0)
    best = epsilon + math.log(low / (low - 1.0))
    left_low = budgets[0] - cost(first, low)
    chance = math.exp(
        optimize.brentq(lambda x: cost(leak(math.exp(x), best), low) - left_low, -40.0, -1e-3)
    )
    return first, (coin(loss), leak(chance, best))


def granted(guard: Filter, release: TwoLaws) -> TwoLaws:
    """Return the release if the filter allows it, and charge it; otherwise nothing."""
    if not guard.can_spend(release):
        return NOTHING
    guard.spend(release)
    return release


def guarded_tree(guard: Filter, random: np.random.Generator, depth: int) -> Laws:
    """Return the laws of random, adaptively chosen releases that a filter allows."""
    one = np.ones(1)
    if depth == 0:
        return one, one
    left, order = guard.remaining, guard.order
    assert order is not None
    if random.random() < 0.5 or left <= 0.0:
        release = coin(left * random.choice([0.1, 0.5, 1.0, 1.0001, 2.0]))
    else:
        loss = guard.budget.limit * random.uniform(0.1, 1.2)
        exponent = (order - 1.0) * (left * random.choice([0.1, 0.5, 0.9, 0.999, 1.1]) - loss)
        release = leak(min(0.5, math.exp(exponent)), loss)
    if granted(guard, release) is NOTHING:
        return one, one
    branches = [guarded_tree(guard.branch(), random, depth - 1) for _ in range(2)]
    return two_stages(release, tuple(TwoLaws(tuple(p), tuple(q)) for p, q in branches))  # type: ignore[arg-type]


def sum_of_deltas(epsilon: float) -> float:
    """Return the sum of the exact deltas of all orders with a budget, over DELTA.

    A run that continues while some order has budget ends within the budget of one of them. On the
    event of each order it is the run that this order alone would stop, so its delta is at most
    their sum. With a budget by Proposition 1 the exact delta of order a is about DELTA/10 at most.
    """
    orders = np.arange(2.0, 501.0)
    orders = orders[epsilon + math.log(DELTA) / (orders - 1.0) > 0.0]
    return float(np.sum((1.0 - 1.0 / orders) ** (orders - 1.0) / orders))


@register(
    "002-7",
    "4.3",
    "a run that continues while some order from 2 to 500 has budget left by Proposition 1 is "
    "(epsilon, delta)-private",
    "one order, fixed beforehand, with the exact conversion; in the paper the slack of the "
    "conversion by Proposition 1 covers the choice of the order (proved up to epsilon = .55, "
    "within 1.4 delta at 1.6)",
    verdict="sharpened",
    says="'keep track of total privacy budget spent for each case of alpha, and halt' when all are "
    "too low",
    hypotheses="delta = 1e-8, orders 2 to 500, Proposition 1, epsilon = .05, .2 and .4 (section 5)",
    changes="releases that exceed the slack of Proposition 1, at epsilon above .55",
)
def some_order(effort: Effort) -> Iterator[Evidence]:
    """Add up deltas; run an adversary on orders 12 and 128, at epsilon = 2, delta = 1e-5."""
    sums = [sum_of_deltas(epsilon) for epsilon in (0.05, 0.2, 0.4)]
    yield printed("largest sum of the deltas of all orders / delta", sums, "<=", 1.0)
    epsilon, delta, orders = 2.0, 1e-5, (12.0, 128.0)
    guards = [Filter(Budget(epsilon, delta), order=order) for order in orders]
    exact = guards[0].limit, guards[1].limit
    loose = epsilon + math.log(delta) / 11.0, epsilon + math.log(delta) / 127.0
    total = [
        largest_delta(two_stages(*adversary(budgets, orders, epsilon, delta)), epsilon) / delta
        for budgets in (loose, exact)
    ]
    yield printed("true delta / claimed, orders 12 and 128, epsilon = 2", total[0], "<=", 1.0)
    yield used("the same with exact conversions, unlike the paper's", total[1], ">=", 1.0)

    first, then = adversary(exact, orders, epsilon, delta)
    shares = []
    for guard in guards:
        start = granted(guard, first)
        allowed = tuple(granted(guard.branch(), release) for release in then)
        laws = two_stages(start, allowed)  # type: ignore[arg-type]
        shares.append(largest_delta(laws, epsilon) / delta)
    yield used("the same adversary, one order fixed", shares, "<=", 1.0, tolerance=1e-9)
    yield used("bound attained", max(shares), ">=", 0.99)
    random, shares = effort.random(), []
    for _ in range(effort.cases(20, 1000)):
        epsilon, delta = random.uniform(0.5, 8.0), 10.0 ** random.uniform(-6.0, -1.0)
        low = 1.0 + 3.0 * math.log(1.0 / delta) / epsilon
        guard = Filter(Budget(epsilon, delta), order=low * random.uniform(1.0, 10.0))
        laws = guarded_tree(guard, random, 3)
        shares.append(largest_delta(laws, epsilon) / delta)
    yield used("random adversaries, one order fixed", shares, "<=", 1.0, tolerance=1e-6)


# --- 002-8: the bookkeeping ---


def algorithm_2(budget: Array, compared: list[Array], charged: list[Array]) -> Array:
    """Return the budget left after the last step, as printed, at every order.

    Both pairs are the costs of a gradient and of a search: those compared with the remaining
    budget, and those subtracted. The run continues while one order allows it (4.3). No search
    fails, so lines 15 to 20 are never reached.
    """
    left = after_step = budget
    while True:
        left = left - charged[0]  # line 7
        if (left > compared[1]).any():  # line 9
            left = left - charged[1]  # line 11
            after_step = left  # line 13
        if (left <= compared[0]).all():  # line 21
            return after_step


def overspent(epsilon: float, amplified_too: bool = False) -> float:
    """Return charged / budget after the last step, at the best order, in the setting of 5.4.

    Lines 9 and 21 compare costs without sampling, or amplified ones.
    """
    part = epsilon / PARTS
    orders = np.arange(smallest_order(epsilon), 501, 6 if epsilon > 0.1 else 1)
    curves = partial(gradient_curve, 0.5 * part**2), partial(search_curve, part)
    compared = [np.array([curve(order) for order in orders]) for curve in curves]
    charged = [np.array([lemma_4(int(order), RATE, c) for order in orders]) for c in curves]
    budget = epsilon + math.log(DELTA) / (orders - 1)
    left = algorithm_2(budget, charged if amplified_too else compared, charged)
    return float(np.min(1.0 - left / budget))


@register(
    "002-8",
    "Algorithm 2, lines 7, 9, 15, 21; 4.3",
    "the total charge stays within the budget",
    "a filter checks every charge before the access; amplified costs never exceed those without "
    "sampling. By exact costs, the overdraft of the paper's runs is no loss of privacy",
    verdict="open",
    says="'to ensure that the total privacy budget spent by the algorithm is smaller than the "
    "given total privacy budget'. Lines 9 and 21 compare costs without amp(.); 4.3 halts at 'the "
    "minimum budget required to call a sub-routine', computed with it.",
    hypotheses="the run of 5.4 at epsilon = .05; the best of all orders from 370 to 500, the range "
    "that 4.3 gives as an example",
    changes="amp(.) in lines 9 and 21, which is true; lines 9 and 21 as listed are false where "
    "Lemma 4 exceeds the cost without sampling",
)
def bookkeeping(effort: Effort) -> Iterator[Evidence]:
    """Trace the charges: amplified costs are subtracted, unamplified ones compared."""
    what = "charged / budget at the best order, q = .1, eps = .05, lines 9 and 21"
    yield reading(f"{what} with amp", overspent(0.05, amplified_too=True), "<=", 1.0)
    yield reading(f"{what} as listed", overspent(0.05), "<=", 1.0)

    random, spent, idle = effort.random(), [], []
    for _ in range(effort.cases(15, 400)):
        order, rate = int(random.integers(8, 64)), float(random.choice([0.1, 0.5, 0.9]))
        guard = Filter(Budget(random.uniform(1.0, 8.0), 1e-2, relation=ADD_OR_REMOVE_ONE), order)
        std, eps = random.uniform(0.7, 4.0), random.uniform(0.1, 2.0)
        accesses: list[list[Event]] = [[Gaussian(std, 1.0), Pure(eps)], [Pure(eps)]]
        events = [Sampled(Poisson(rate), access) for access in accesses]
        charges = [amplified(order, rate, access) for access in accesses]
        total, chosen = 0.0, 0
        while guard.can_spend(events[chosen]):
            guard.spend(events[chosen])
            total += charges[chosen]
            chosen = int(random.random() < 0.3)
        spent.append(total / guard.limit)
        idle.append((guard.limit - total) / charges[chosen])
    yield used("largest charged / budget", spent, "<=", 1.0, tolerance=1e-8)
    yield used("largest budget left / next charge", idle, "<=", 1.0, tolerance=1e-8)

    run = a_run()
    assert run.guard is not None
    left = run.guard.limit - math.fsum(run.guard.cost(event) for event in run.ledger)
    what = "a run of LineSearchSGD"
    yield used(f"charged / budget, {what}", 1.0 - left / run.guard.limit, "<=", 1.0, tolerance=1e-8)
    last = run.guard.cost(innermost(run.ledger.events[-1]))
    yield used(f"budget left / last charge, {what}", left / last, "<=", 1.0, tolerance=1e-8)


# --- 002-14, 002-17: what a budget covers ---


def affordable(rate: float, epsilon: float) -> float:
    """Return how many iterations at the initial cost a budget covers, amplified once.

    The search costs its pure loss, 3/4 of the nominal one (errata 002-1).
    """
    part = epsilon / PARTS
    batch = Sampled(Poisson(rate), [Gaussian(1.0 / part, 1.0), Pure(0.75 * part)])
    budget = Budget(epsilon, DELTA, "add_or_remove_one")
    lowest = smallest_order(epsilon)
    guards = [Filter(budget, order=many * lowest) for many in (1.25, 1.5, 2.0)]
    return max(guard.limit / guard.cost(batch) for guard in guards)


def affordable_as_printed(rate: float, epsilon: float, orders: Iterable[int] = ()) -> float:
    """Return that number by (4), Lemma 4 and Proposition 1, at the best order, up to 500."""
    part = epsilon / PARTS
    counts = []
    for order in orders or range(smallest_order(epsilon), 501):
        curves = (lambda a: 0.5 * a * part**2), partial(search_curve, part)
        costs = [lemma_4(order, rate, c) if rate < 1.0 else c(order) for c in curves]
        counts.append((epsilon + math.log(DELTA) / (order - 1)) / sum(costs))
    return max(counts)


@register(
    "002-14",
    "5.5, Fig. 2",
    "subsampling can greatly reduce the number of objective and gradient evaluations",
    "true by the printed accounting, and for a single iteration; by the correct accounting a "
    "budget that is spent at the initial cost, which then never grows, takes more evaluations with "
    "batches, since it covers so many more iterations. In runs with growing costs the smallest "
    "batches save both kinds of evaluations at a similar accuracy, larger ones do not; by the "
    "printed accounting all save, and the accuracy falls (`figures search_evaluations`)",
    verdict="open",
    says="'Although the performance is similar for stochastic and full gradient descent, as Figure "
    "2 shows, subsampling can greatly reduce the number of objective and gradient evaluations'",
    changes="the accounting, which decides it; accuracy, of which no number is printed, is not "
    "judged here",
    hypotheses="epsilon = .4, delta = 1e-8, q = .1 and 1, initial budgets of 5.4, orders up to 500",
)
def evaluations(effort: Effort) -> Iterator[Evidence]:
    """Count the iterations that epsilon = .4 covers at the initial cost, q = .1 and q = 1."""
    what = "gradients evaluated at q = 1 / at q = .1, epsilon = .4 spent at the initial cost"
    for name, count in (("printed", affordable_as_printed), ("correct", affordable)):
        small, full = (count(rate, 0.4) for rate in (RATE, 1.0))
        yield reading(f"{what}, {name} accounting", full / (RATE * small), ">=", 2.0)


@register(
    "002-17",
    "Introduction; 4.3",
    "sampling relaxes the budget constraint, by the amplification of Lemma 4",
    "a budget covers about 100 times as many iterations at q = .1 as at q = 1 by the correct "
    "accounting, but only 2 times by Lemma 4, at orders of 1,800/epsilon. With the orders to 500 "
    "it covers fewer at the values of epsilon that section 5 names: there the factor 3 costs more "
    "than sampling saves",
    verdict="sharpened",
    says="'Applying the sparse vector algorithm on a randomly subsampled data further allows the "
    "algorithm to relax the budget constraint using the recent privacy amplification results'; "
    "4.3: 'privacy amplification through Lemma 4', at 'a series of' orders, '(e.g., integers "
    "between 2 and 500)'",
    hypotheses="q = .1, delta = 1e-8, the initial budgets of 5.4 at epsilon = .05, .2 and .4 "
    "(5.5), gradient and search as charged in Algorithm 2",
    changes="If the orders end at 500, as in the example, Lemma 4 relaxes nothing there, nor does "
    "the smaller of Lemma 4 and the cost without sampling.",
)
def relaxed(effort: Effort) -> Iterator[Evidence]:
    """Count the iterations that a budget covers at the initial cost, q = .1 and q = 1."""
    what, named = "iterations covered at q = .1 / at q = 1", (0.05, 0.2, 0.4)
    by_lemma, exact, to_500 = [], [], []
    for epsilon in named:
        full = affordable_as_printed(1.0, epsilon, range(smallest_order(epsilon), 1001))
        by_lemma.append(affordable_as_printed(RATE, epsilon, [round(1800 / epsilon)]) / full)
        exact.append(affordable(RATE, epsilon) / affordable(1.0, epsilon))
        few, many = (affordable_as_printed(rate, epsilon) for rate in (RATE, 1.0))
        to_500.append(few / many)
    where = "epsilon = .05, .2, .4"
    yield printed(f"{what}, {where}, Lemma 4, order 1,800/epsilon", by_lemma, ">=", 2.0)
    yield used(f"{what}, {where}, correct accounting", exact, ">=", 90.0)
    yield used(f"{what}, {where}, Lemma 4, orders to 500", to_500, "<=", 0.5)
    few = affordable_as_printed(RATE, 0.05)
    what = (
        "iterations covered, q = .1, epsilon = .05, Lemma 4, orders to 500 (5.4 expects about 50)"
    )
    yield used(what, few, "<=", 3.0)
