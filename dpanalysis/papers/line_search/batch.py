"""Chen and Lee (2020), Algorithm 2: what a batch costs, and which budget the run keeps."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize, special, stats

from ...audit.attack import Range, pair_quotient, quotient
from ...audit.exact import Density, hockey_stick
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
from ..registry import Effort, Evidence, printed, register, used
from ..tools import Array, Laws, largest_delta, mixed, product, renyi, search_min
from .search import SIZES, loss_changes, search, searches

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
    return max(float(max(moments)), 0.0) / (order - 1.0)  # not below 0 by rounding


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
    cost = renyi((more, fewer), 2)
    claimed = lemma_4(2, rate, lambda order: order * rho)
    what = "exact / charged, Adult, eps = .05, order 2, gradients 0"
    yield printed(what, cost / claimed, "<=", 1)
    batch, d = 300, 795_010
    wide, narrow = stats.norm(scale=1.0 / batch), stats.norm(scale=1.0 / (batch + 1))
    cost = d * renyi((narrow, wide), 2)
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
    what = "largest exact / charged, sum over a Poisson sample of 3, divided by q n"
    yield used(what, found, "<=", 1.0, tolerance=1e-9)
    yield used("that is, attained", found.max(), ">=", 0.999)


# --- 002-10: Lemma 4 ---


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
    for what, ratio, space in (("Gaussian", one, known), ("randomised response", coin, flips)):
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
    yield used("Lemma 4 / cost without sampling, same", printed_cost / unsampled, ">=", 1.0)


# --- 002-4, 002-5: several accesses to one batch ---


def search_event(steps: int, eps: float) -> AboveThreshold:
    """Return the event of a search on losses in [0, Delta_f], in units of Delta_f."""
    return AboveThreshold("laplace", 2.0 / eps, 4.0 / eps, 1.0, steps, shared=True)


def shared_search(levels: Array, before: float, after: Array, eps: float) -> Laws:
    """Return where a search on a record with losses ``before`` and ``after`` its steps halts."""
    return searches(levels, loss_changes(before, after), "laplace", 2.0 / eps, 4.0 / eps)


# Budgets of searches are powers of 2, so that the curve of each is computed once.
SEARCHES = {
    "before": Range(0.0, 1.0),
    "budget": Range(-3, 2, integer=True),
    "rate": Range(1e-3, 0.9, log=True),
    "order": Range(2, 16, log=True, integer=True),
}


def a_run() -> Result:
    """Return a run of the method itself."""
    random = np.random.default_rng(0)
    x = random.uniform(-1.0, 1.0, (2000, 5))
    problem = ERM(x, np.sign(x @ np.arange(1.0, 6.0)), Logistic())
    method = LineSearchSGD(Poisson(0.01), rho=0.5, epsilon=2.0)
    return minimize(problem, method, Budget(2.0, 1e-5, ADD_OR_REMOVE_ONE), rng=0, record=())


def costs_of(run: Result, order: int) -> tuple[float, float, float]:
    """Return what the batches of a run cost for worst data, apart as printed, and charged.

    The costs follow from its ledger, however often and whatever it searched.
    """
    exact = apart = charged = 0.0
    for repeated in run.ledger:
        batch = innermost(repeated)
        assert isinstance(batch, Sampled)
        count = getattr(repeated, "count", 1)
        rate, (gradient, *rest) = batch.fraction, batch.events
        assert isinstance(gradient, Gaussian)
        laws, std = (np.ones(1), np.ones(1)), 1.0 / gradient.mu
        apart += count * lemma_4(order, rate, partial(gradient_curve, 0.5 / std**2))
        for asked in rest:
            assert isinstance(asked, AboveThreshold) and asked.max_queries is not None
            eps = 2.0 * asked.sensitivity / asked.threshold_scale
            laws = product(laws, one_search(asked.max_queries, eps))
            apart += count * lemma_4(order, rate, partial(search_curve, eps))
        exact += count * sampled_cost(laws, rate, std, order)
        charged += count * float(batch.rdp_cost(np.array([order]))[0])
    return exact, apart, charged


@register(
    "002-4",
    "Algorithm 2, lines 7 and 11",
    "gradient and search of one batch are amplified one by one: amp(alpha rho) + amp(eps_ls)",
    "everything that touches a batch is composed, then amplified once; for Gaussian noise and a "
    "pure release with the factor 1 of 002-10",
    verdict="corrected",
)
def shared_batch(effort: Effort) -> Iterator[Evidence]:
    """Compare at q = .01, rho = 1, eps_BT = 2, order 8; search; and run the method.

    At low orders, where a budget is used, the factor 3 of Lemma 4 can hide the mistake.
    """
    rate, rho, eps, order = 0.01, 1.0, 2.0, 8
    std = math.sqrt(0.5 / rho)
    gradient = lemma_4(order, rate, partial(gradient_curve, rho))
    cost = sampled_cost(one_search(20, eps), rate, std, order)
    charged = gradient + lemma_4(order, rate, partial(search_curve, eps))
    what = "exact cost of gradient and search, q = .01, rho = 1, eps_BT = 2, order 8"
    yield printed(what, cost, "<=", charged)
    response = randomized_response(eps)
    exact = sampled_cost(response, rate, std, order)
    charged = gradient + lemma_4(order, rate, lambda order: float(rdp_pure(order, eps)))
    yield printed("the same for the worst 2-private release", exact, "<=", charged)
    once = amplified(order, rate, [Gaussian(std, 1.0), Pure(eps)])
    yield used("that, amplified once", exact, "==", once, tolerance=1e-9 * once)

    def ratio(
        levels: Array, before: float, after: Array, budget: int, rate: float, std: float, order: int
    ) -> float:
        eps = 2.0**budget
        laws = shared_search(levels, before, after, eps)
        bound = amplified(order, rate, [Gaussian(std, 1.0), search_event(len(levels), eps)])
        return quotient(bound, sampled_cost(laws, rate, std, order))

    space = {
        "levels": Range(-20.0, 20.0, size=5),
        "after": Range(0.0, 1.0, size=5),
        "std": Range(0.5, 10.0, log=True),
        **SEARCHES,
    }
    found = search(effort, ratio, space)
    yield used("largest exact / charged", found, "<=", 1.0, tolerance=1e-9)
    run = a_run()
    for order in (6, 12, 24):
        exact, apart, charged = costs_of(run, order)
        what = f"a run of LineSearchSGD on worst data, q = .01, rho = .5, eps_BT = 2, order {order}"
        yield printed(f"exact / charged one by one, {what}", exact / apart, "<=", 1.0)
        yield used(f"exact / charged at once, {what}", exact / charged, "<=", 1.0)


@register(
    "002-5",
    "Algorithm 2, lines 9 to 11",
    "every further search on the same batch costs amp(eps_ls) more",
    "they are composed with the first one, then amplified once",
    verdict="corrected",
)
def repeated_searches(effort: Effort) -> Iterator[Evidence]:
    """Enumerate the outcomes of several searches of a few steps."""
    rate, eps, order, count = 0.01, 2.0, 32, 8
    outcome = one_search(3, eps)
    cost = sampled_cost(product(*[outcome] * count), rate, math.inf, order)
    charged = count * lemma_4(order, rate, partial(search_curve, eps))
    yield printed("exact cost of 8 searches, q = .01, eps_BT = 2, order 32", cost, "<=", charged)

    def ratio(
        levels: Array, before: float, after: Array, count: int, budget: int, rate: float, order: int
    ) -> float:
        eps = 2.0**budget
        joint = product(*[shared_search(levels, before, after, eps)] * count)
        bound = amplified(order, rate, [search_event(len(levels), eps)] * count)
        return quotient(bound, sampled_cost(joint, rate, math.inf, order))

    space = {
        "levels": Range(-20.0, 20.0, size=4),
        "after": Range(0.0, 1.0, size=4),
        "count": Range(1, 4, integer=True),
        **SEARCHES,
    }
    found = search(effort, ratio, space)
    yield used("largest exact / charged", found, "<=", 1.0, tolerance=1e-9)
    coins = sampled_cost(product(*[randomized_response(eps)] * 4), rate, math.inf, order)
    charged = amplified(order, rate, [Pure(eps)] * 4)
    yield used("exact cost of 4 coins of loss 2, q = .01, order 32", coins, "<=", charged)


# --- 002-7: which order is the budget's ---


@dataclass(frozen=True)
class TwoLaws(Event):
    """A release known by its laws with and without a record."""

    present: tuple[float, ...]
    absent: tuple[float, ...]

    def rdp_cost(self, orders: ArrayLike) -> Array:  # noqa: D102
        laws = np.array(self.present), np.array(self.absent)
        return np.array([renyi(laws, order) for order in np.ravel(orders)])

    @property
    def laws(self) -> Laws:
        """The two laws."""
        return np.array(self.present), np.array(self.absent)


NOTHING = TwoLaws((1.0,), (1.0,))


def leak(chance: float, loss: float) -> TwoLaws:
    """Return a release that loses ``loss`` with a small chance and next to nothing otherwise."""
    low = chance * math.exp(-loss)
    return TwoLaws((chance, 1.0 - chance), (low, 1.0 - low))


def coin(loss: float) -> TwoLaws:
    """Return randomized response, which loses ``loss`` nearly always if that is large."""
    present, absent = randomized_response(loss)
    return TwoLaws(tuple(present), tuple(absent))


def cost(release: TwoLaws, order: float) -> float:
    """Return the Renyi cost at one order."""
    return float(release.rdp_cost([order])[0])


def two_stages(first: TwoLaws, then: tuple[TwoLaws, TwoLaws]) -> Laws:
    """Return the laws of a release and the one that its outcome chooses."""
    pieces = [
        [chance * law for chance, law in zip(outcome, following.laws)]
        for outcome, following in zip(zip(*first.laws), then)
    ]
    present, absent = (np.concatenate(side) for side in zip(*pieces))
    return present, absent


def adversary(
    budgets: tuple[float, float], orders: tuple[float, float], epsilon: float, delta: float
) -> tuple[TwoLaws, tuple[TwoLaws, TwoLaws]]:
    """Return releases that use up one order's budget or the other's, as luck would have it.

    The first release separates the two: one rare outcome carries nearly all of its Renyi sum at
    the high order and hardly any at the low one. After it a coin spends what is left at the high
    order; after the other outcome a leak spends what is left at the low order, with the loss that
    makes the most of it. Either would give delta on its own.
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
    """Return the laws of random releases, chosen on the way, that a filter lets through."""
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


@register(
    "002-7",
    "4.3",
    "go on while some order has budget left (with the tight conversion of that order)",
    "one order, fixed beforehand",
    verdict="corrected",
)
def some_order(effort: Effort) -> Iterator[Evidence]:
    """Play an adversary over the orders 12 and 128, at epsilon = 2, delta = 1e-5."""
    epsilon, delta, orders = 2.0, 1e-5, (12.0, 128.0)
    guards = [Filter(Budget(epsilon, delta), order=order) for order in orders]
    budgets = guards[0].limit, guards[1].limit
    first, then = adversary(budgets, orders, epsilon, delta)
    over = max(
        cost(first, order) + cost(after, order) - budget
        for order, after, budget in zip(orders, then[::-1], budgets)
    )
    yield used("what a path spends beyond the budget of its order", over, "<=", 0.0, tolerance=1e-9)
    total = largest_delta(two_stages(first, then), epsilon) / delta
    yield printed("true delta / claimed, orders 12 and 128, epsilon = 2", total, "<=", 1.0)

    loose = epsilon + math.log(delta) / 11.0, epsilon + math.log(delta) / 127.0
    releases = adversary(loose, orders, epsilon, delta)
    hidden = largest_delta(two_stages(*releases), epsilon) / delta
    yield printed("the same by Proposition 1, whose slack hides it", hidden, "<=", 1.0)

    shares = []
    for guard in guards:
        start = granted(guard, first)
        allowed = tuple(granted(guard.branch(), release) for release in then)
        laws = two_stages(start, allowed)  # type: ignore[arg-type]
        shares.append(largest_delta(laws, epsilon) / delta)
    yield used("the same adversary, one order fixed", max(shares), "<=", 1.0, tolerance=1e-9)
    yield used("that is, attained", max(shares), ">=", 0.99)
    random, shares = effort.random(), []
    for _ in range(effort.cases(60, 1000)):
        epsilon, delta = random.uniform(0.5, 8.0), 10.0 ** random.uniform(-6.0, -1.0)
        low = 1.0 + 3.0 * math.log(1.0 / delta) / epsilon
        guard = Filter(Budget(epsilon, delta), order=low * random.uniform(1.0, 10.0))
        laws = guarded_tree(guard, random, 3)
        shares.append(largest_delta(laws, epsilon) / delta)
    yield used("random adversaries, one order fixed", shares, "<=", 1.0, tolerance=1e-6)


# --- 002-8: the bookkeeping ---


def algorithm_2(
    budget: float, compared: tuple[float, float], charged: tuple[float, float]
) -> tuple[float, float]:
    """Return what the printed bookkeeping has left after the last step taken, and at the end.

    Both pairs are the costs of a gradient and of a search: what is compared with what is left,
    and what is subtracted. No search fails, so that lines 15 to 20 are never reached.
    """
    left = after_step = budget
    while True:
        left -= charged[0]  # line 7
        if left > compared[1]:  # line 9
            left -= charged[1]  # line 11
            after_step = left  # line 13
        if left <= compared[0]:  # line 21
            return after_step, left


def costs(order: int, rate: float, rho: float, eps: float) -> tuple[Array, Array]:
    """Return the printed costs of a gradient and a search, on the batch and amplified."""
    curves = partial(gradient_curve, rho), partial(search_curve, eps)
    batch = np.array([curve(order) for curve in curves])
    return batch, np.array([lemma_4(order, rate, curve) for curve in curves])


@register(
    "002-8",
    "Algorithm 2, lines 7, 9, 15, 21",
    "the total stays within the budget, and the run goes on while the next access fits (4.3)",
    "a filter checks what it charges, before every access",
    verdict="corrected",
)
def bookkeeping(effort: Effort) -> Iterator[Evidence]:
    """Trace the charges: amplified ones are subtracted, unamplified ones compared."""
    batch, sampled = costs(order=8, rate=0.01, rho=0.05, eps=0.5)
    left = algorithm_2(1.0, tuple(batch), tuple(sampled))[1]
    setting = "q = .01, rho = .05, eps_BT = .5, order 8, budget 1"
    what = f"budget left / next charge at the end, {setting}"
    yield printed(what, left / sampled[0], "<=", 1.0)
    # The paper's q and eps; at order 500 Lemma 4 charges more than the batch itself costs.
    order, epsilon = 500, 0.05
    budget = epsilon + math.log(1e-8) / (order - 1)
    iteration = epsilon / 100.0
    batch, sampled = costs(order, rate=0.1, rho=0.5 * iteration**2, eps=iteration)
    left = algorithm_2(budget, tuple(batch), tuple(sampled))[0]
    what = "charged / budget after the last step, the paper's q = .1, eps = .05, order 500"
    yield printed(what, 1.0 - left / budget, "<=", 1.0)

    random, spent, idle = effort.random(), [], []
    for _ in range(effort.cases(40, 400)):
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
    charges = [run.guard.cost(event) for event in run.ledger]
    left = run.guard.limit - math.fsum(charges)
    what = "a run of LineSearchSGD"
    yield used(f"charged / budget, {what}", 1.0 - left / run.guard.limit, "<=", 1.0, tolerance=1e-8)
    last = run.guard.cost(innermost(run.ledger.events[-1]))
    yield used(f"budget left / last charge, {what}", left / last, "<=", 1.0, tolerance=1e-8)
