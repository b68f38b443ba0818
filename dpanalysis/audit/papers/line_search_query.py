"""Chen and Lee (2020): the query of the search, the division by the batch, and noisy minima."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from ...privacy.facts import PublicFacts
from ...privacy.queries import NoisyMin
from ...privacy.relations import ADD_OR_REMOVE_ONE, REPLACE_ONE
from ...privacy.sampling import Full
from .._sensitivity import sensitivity
from ..attack import Range, pair_quotient, quotient
from ..laws import report_noisy_min_distribution
from ..registry import Effort, Evidence, printed, register, used
from .line_search import at_most_one, pure_loss, search

Array: TypeAlias = NDArray[np.float64]

# --- 002-9: the query ---


def backtrack(
    query: Callable[[float], float], step_size: float = 1.0, shrink: float = 0.9, tries: int = 200
) -> float:
    """Return the first step size whose query is not negative, 0 if there is none: no noise."""
    for _ in range(tries):
        if query(step_size) >= 0.0:
            return step_size
        step_size *= shrink
    return 0.0


def logistic(w: Array, x: Array) -> Array:
    """Return the logistic losses of the rows x, labels 1."""
    return np.logaddexp(0.0, -(x @ w))


def logistic_gradient(w: Array, x: Array) -> Array:
    """Return their mean gradient."""
    return np.asarray(-(special.expit(-(x @ w)) @ x) / len(x))


def decrease(x: Array, w: Array, w_then: Array, bound: float, of_differences: bool) -> float:
    """Return the sum of the decreases of the losses, one or the other clipped."""
    now, then = logistic(w, x), logistic(w_then, x)
    if of_differences:
        return float(np.clip(now - then, -bound, bound).sum())
    return float(np.sum(np.clip(now, 0.0, bound) - np.clip(then, 0.0, bound)))


def armijo(x: Array, w: Array, alpha: float, size: int) -> Callable[[float], float]:
    """Return the query of line 7 as a function of eta; the sum is divided by ``size``."""
    g = logistic_gradient(w, x)

    def query(eta: float) -> float:
        gain = decrease(x, w, w - eta * g, math.inf, False) / size
        return float(gain - alpha * eta * (g @ g))

    return query


def clipped(data: tuple[Array, Array, Array], of_differences: bool) -> float:
    """Return the decrease as a function of the data: x, w and the w after the step."""
    return decrease(*data, 0.3, of_differences)


@register(
    "002-9",
    "Algorithm 1, line 7",
    "f is a sum (objective clipping) and g a mean in the query f(w) - alpha eta \\|\\|g\\|\\|^2 - "
    "f(w - eta g); losses are clipped",
    "f_sum/(q n), sensitivity Delta_f/(q n); clipped losses, or clipped differences "
    "f_i(w) - f_i(w - eta g), which do not saturate",
    verdict="corrected",
)
def armijo_query(effort: Effort) -> Iterator[Evidence]:
    """Run logistic regression without noise."""
    random = effort.random()
    alpha, records, cases = 0.5, 4, effort.cases(30, 300)
    least, change = math.inf, {"sum": 1.0, "mean": 1.0}
    for _ in range(cases):
        x, w = random.normal(size=(records, 3)), random.normal(size=3)
        twice, g = np.concatenate([x, x]), logistic_gradient(w, x)
        start = 100.0 / np.linalg.eigvalsh(x.T @ x / records).max()
        for name, size in (("sum", 1), ("mean", records)):
            step = backtrack(armijo(x, w, alpha, size), start)
            copied = backtrack(armijo(twice, w, alpha, size if size == 1 else 2 * size), start)
            change[name] = max(change[name], copied / step, step / copied)
            if name == "sum":
                gain = np.mean(logistic(w, x) - logistic(w - step * g, x))
                least = min(least, float(gain / (alpha * step * (g @ g))))
    what = "smallest decrease / (alpha eta ||g||^2) at the step found, alpha = .5, 4 records"
    yield printed(what, least, ">=", 1.0, cases=cases)
    what = "largest change of the step when all data are doubled"
    yield printed(what, change["sum"], "==", 1.0, cases=cases)
    yield used(f"{what}, f_sum/(q n)", change["mean"], "==", 1.0, tolerance=1e-9, cases=cases)

    # All margins are about -5, and all losses above 4.
    x, w = np.eye(3)[:1] + 0.1 * random.normal(size=(30, 3)), np.array([-5.0, 0.0, 0.0])
    g, sizes = logistic_gradient(w, x), np.linspace(0.1, 1.0, 10)
    required = alpha * sizes * (g @ g)
    decreases = [
        [decrease(x, w, w - eta * g, 1.0, clip) / len(x) for eta in sizes] for clip in (False, True)
    ]
    what = "largest query, every loss above Delta_f = 1, clipped"
    yield printed(f"{what} losses", (decreases[0] - required).max(), ">=", 0.0)
    yield used(f"{what} differences", (decreases[1] - required).max(), ">=", 0.0)

    for of_differences, which in ((False, "losses"), (True, "differences")):
        pairs = []
        for far in (1.0, 40.0):  # far out some record loses all, and then nothing
            for _ in range(cases):
                x, w, change_w = (random.normal(size=size) for size in ((30, 3), 3, 3))
                after = -far * w if far > 1.0 else w + change_w
                pairs.append(((x, far * w, after), (x[1:], far * w, after)))
        moved = sensitivity(partial(clipped, of_differences=of_differences), pairs, 1)
        what = f"sensitivity of the summed query / Delta_f, clipped {which}"
        yield used(what, moved / 0.3, "<=", 1.0, tolerance=1e-9, cases=len(pairs))
        yield used("that is, attained", moved / 0.3, ">=", 0.999)


# --- 002-11: noisy minima ---


def added_exponential(values: Array, scale: float) -> Array:
    """Return the law of argmin(values + exponential noise): the wrong sign for a minimum.

    The minimum exceeds t with probability exp(-sum_i (t - v_i)_+ / scale); whoever may attain
    it at t does so equally likely.
    """
    order = np.argsort(values, kind="stable")
    v = values[order]
    count = np.arange(1, v.size + 1)
    exceeds = np.append(np.exp((np.cumsum(v) - count * v) / scale), 0.0)
    shares = -np.diff(exceeds) / count
    law = np.empty(v.size)
    law[order] = np.cumsum(shares[::-1])[::-1]
    return law


def noisy_min_ratio(
    noise: str, relation: str, values: Array, change: Array, eps: float, order: float = math.inf
) -> float:
    """Return charged / exact for report-noisy-min with noise of scale 1/eps on losses in [0, 1]."""
    laws = (
        report_noisy_min_distribution(values, noise, 1.0 / eps),
        report_noisy_min_distribution(values + change, noise, 1.0 / eps),
    )
    facts = PublicFacts(1, 1, 0.0, 1.0, relation, (1.0, 1.0))
    event = NoisyMin(np.zeros((len(values), 1)), 1.0, 1.0 / eps, noise).event(facts, Full())
    assert event is not None
    if math.isinf(order):
        return quotient(event.pure_cost(), pure_loss(laws))
    return pair_quotient(float(event.rdp_cost(order)), laws, order=order)


@register(
    "002-11",
    "DP-AGD, a baseline: the public code of a co-author",
    "argmin(values + exponential noise of scale Delta/eps) is eps-private",
    "the noise is subtracted: eps-private for losses, which a record can only raise; "
    "2 eps otherwise; eps^2/8-zCDP with Gumbel noise (`privacy.queries.NoisyMin`)",
    verdict="corrected",
)
def noisy_min(effort: Effort) -> Iterator[Evidence]:
    """Take the code's 21 candidates: the sizes of 20 steps, and 0."""
    eps, candidates = 0.1, 21
    values = np.zeros(candidates)
    moved = values.copy()
    moved[0] = 1.0
    laws = added_exponential(values, 1.0 / eps), added_exponential(moved, 1.0 / eps)
    yield printed("true epsilon, 21 candidates, claimed .1", pure_loss(laws), "<=", eps)
    simulated = np.bincount(
        np.argmin(moved + effort.random(7).exponential(1.0 / eps, (200_000, candidates)), axis=1),
        minlength=candidates,
    )
    chance = stats.chisquare(simulated, 200_000 * laws[1]).pvalue
    yield used("p-value of that law against 200,000 runs", chance, ">=", 1e-6)

    size = 6
    last = np.arange(size) == size - 1
    for relation, low, what in (
        (ADD_OR_REMOVE_ONE, 0.0, "values rise"),
        (REPLACE_ONE, -1.0, "values move"),
    ):
        space = {
            "values": Range(0.0, 30.0, size=size),
            "change": Range(low, 1.0, size=size),
            "eps": Range(0.02, 2.0, log=True),
        }
        far = {"values": np.where(last, 30.0, 0.0), "change": np.where(last, 1.0, low), "eps": 1.0}
        for noise in ("exponential", "gumbel"):
            ratio = partial(noisy_min_ratio, noise, relation)
            found = search(effort, ratio, space, guesses=(far,))
            yield at_most_one(used, f"epsilon / charged, {what}, {noise} noise", found)
            yield used("that is, attained", 1.0 / found.ratio, ">=", 0.999)
        ratio = partial(noisy_min_ratio, "gumbel", relation)
        found = search(effort, ratio, {**space, "order": Range(1.1, 32.0, log=True)})
        yield at_most_one(used, f"Renyi cost / charged, {what}, gumbel noise", found)
