"""Chen and Lee (2020): Lemma 2, "a tighter bound", and what the paper says of its experiments."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy import special

from ...privacy import Budget, Filter, Poisson, rdp_pure
from ...privacy.events import Gaussian, Pure, Sampled
from ...privacy.sparse_vector import rdp_above_threshold
from ...theory import search_slack
from ..attack import Range
from ..exact import renyi_divergence
from ..laws import above_threshold_distribution
from ..registry import Effort, Evidence, printed, register, used
from .line_search_printed import printed_above_threshold
from .second_order import largest

# 5.4: delta, per-iteration budget epsilon/100, the rows of nine folds of Adult.
DELTA, PARTS, ROWS, RATE = 1e-8, 100.0, 43_957, 0.1


def pure_over_lemma(order: float, epsilon: float) -> float:
    """Return the exact cost of randomised response / alpha epsilon^2/2."""
    law = special.expit(np.array([epsilon, -epsilon]))
    return renyi_divergence(law, law[::-1], order) / (0.5 * order * epsilon**2)


@register(
    "002-12",
    "Lemma 2",
    "(epsilon, 0)-DP implies (alpha, alpha epsilon^2/2)-RDP",
    "`privacy.rdp_pure`, which randomised response attains: at most epsilon at any order",
    verdict="sharpened",
)
def pure_to_renyi(effort: Effort) -> Iterator[Evidence]:
    """Search for the worst randomised response."""
    space = {"order": Range(1.001, 1e3, log=True), "epsilon": Range(1e-3, 20.0, log=True)}
    found, cases = largest(effort, pure_over_lemma, space, cost=2)
    yield printed("exact / (alpha epsilon^2/2)", found, "<=", 1.0, tolerance=1e-9, cases=cases)
    yield printed("that is, attained in the limit", found, ">=", 0.999)

    def against_used(order: float, epsilon: float) -> float:
        exact = pure_over_lemma(order, epsilon) * 0.5 * order * epsilon**2
        return exact / float(rdp_pure(order, epsilon))

    found, cases = largest(effort, against_used, space, cost=2)
    yield used("exact / used", found, "<=", 1.0, tolerance=1e-6, cases=cases)
    saved = 0.5 * 8.0 * 4.0**2 / float(rdp_pure(8.0, 4.0))
    yield used("cost saved, epsilon = 4, alpha = 8, factor", saved, ">=", 15.0)


@register(
    "002-13",
    "4.1, before Theorem 2",
    "(4) is a tighter bound on a search than its pure loss by Lemma 2, alpha epsilon^2/2",
    "the bound that is proved, `privacy.rdp_above_threshold`, is tighter too, and tighter than "
    "the exact conversion of the pure loss",
    verdict="sharpened",
)
def tighter(effort: Effort) -> Iterator[Evidence]:
    """Compare at eps_1 = epsilon/2, eps_2 = epsilon/4, for any order."""
    space = {"order": Range(1.01, 500.0, log=True), "epsilon": Range(1e-3, 30.0, log=True)}

    def of_theorem(order: float, epsilon: float) -> float:
        cost = float(printed_above_threshold(order, "laplace", 2.0 / epsilon, 4.0 / epsilon))
        return cost / (0.5 * order * epsilon**2)

    found, cases = largest(effort, of_theorem, space, cost=2)
    yield printed("(4) / (alpha epsilon^2/2)", found, "<=", 1.0, cases=cases)

    def of_proof(order: float, epsilon: float) -> float:
        cost = rdp_above_threshold(order, "laplace", 2.0 / epsilon, 4.0 / epsilon, 20)
        return float(cost) / float(rdp_pure(order, epsilon))

    space = {"order": Range(1.1, 64.0, log=True), "epsilon": Range(1e-2, 30.0, log=True)}
    found, cases = largest(effort, of_proof, space, cost=effort.cases(25, 60))
    what = "proved, 20 queries / exact cost of the pure loss"
    yield used(what, found, "<=", 1.0, tolerance=1e-9, cases=cases)


def affordable(rate: float, epsilon: float) -> float:
    """Return how many iterations of the first cost a budget pays, the batch amplified once.

    The search costs its pure loss, 3/4 of the nominal one (errata 002-1).
    """
    part = epsilon / PARTS
    batch = Sampled(Poisson(rate), [Gaussian(1.0 / part, 1.0), Pure(0.75 * part)])
    budget = Budget(epsilon, DELTA, "add_or_remove_one")
    counts = []
    for order in (48.0, 64.0, 96.0, 128.0):
        guard = Filter(budget, order=order)
        counts.append(guard.limit / guard.cost(batch))
    return max(counts)


@register(
    "002-14",
    "5.5, Fig. 2",
    "subsampling can greatly reduce the number of objective and gradient evaluations, at a "
    "similar accuracy",
    "of one iteration; a budget that is spent pays for so many more iterations on batches, by the "
    "correct accounting, that it buys as many evaluations or more",
    verdict="corrected",
)
def evaluations(effort: Effort) -> Iterator[Evidence]:
    """Count what epsilon = .4 pays at the first cost, for q = .1 and for all records."""
    small, full = (affordable(rate, 0.4) for rate in (RATE, 1.0))
    what = "gradients evaluated at q = 1 / at q = .1, epsilon = .4 spent at the first cost"
    yield printed(what, full / (RATE * small), ">=", 2.0)
    yield used("iterations at q = .1 / at q = 1", small / full, ">=", 10.0)
    yield used("gradients evaluated by one iteration, q = 1 / q = .1", 1.0 / RATE, ">=", 10.0)


def accepts(shortfall: float, epsilon: float, rate: float = RATE) -> float:
    """Return P(the first step is accepted) where it misses the condition by ``shortfall``.

    Losses are in [0, 1] and a mean, so that one record moves the query by 1/(q n).
    """
    part = epsilon / PARTS
    scale = 1.0 / (part * rate * ROWS)
    low = np.array([-shortfall])
    law = above_threshold_distribution(low, "laplace", 2.0 * scale, 4.0 * scale)
    return float(law[0])


@register(
    "002-15",
    "Abstract; 5.6",
    "the search chooses a step that satisfies the Armijo condition with high probability, which "
    "is useful at high privacy (epsilon = .05, Adult, q = .1)",
    "at epsilon = .05 its answers are noise; a step that is accepted misses the condition by at "
    "most 4 ln(2 i/(3 eta)) units of noise, with probability 1 - eta",
    verdict="corrected",
)
def noisy_answers(effort: Effort) -> Iterator[Evidence]:
    """Exact laws of one query, losses at most 1."""
    noise = 4.0 / (0.05 / PARTS * RATE * ROWS)
    yield printed("scale of the noise of a query, losses <= 1", noise, "<=", 1.0)
    bad, good = accepts(0.3, 0.05), accepts(-0.3, 0.05)
    what = "P(a step is accepted that misses the condition by .3), epsilon = .05"
    yield printed(what, bad, "<=", 0.05)
    yield used("the same, one that meets it by .3", good, "<=", 0.6)
    worst, cases = 0.0, effort.cases(50, 500)
    random = effort.random()
    for _ in range(cases):
        tries, eta = int(random.integers(1, 40)), float(np.exp(random.uniform(-12.0, -0.5)))
        low = np.full(tries, -search_slack(tries, eta))
        law = above_threshold_distribution(low, "laplace", 2.0, 4.0)
        worst = max(worst, float(law[:-1].sum()) / eta)
    yield used("P(accepted below the slack) / eta", worst, "<=", 1.0, tolerance=1e-9, cases=cases)
    reached = accepts(0.3, 1.6)
    yield used("P(accepted), misses by .3, epsilon = 1.6", reached, "<=", 0.05)
