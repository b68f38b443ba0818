"""Chen and Lee (2020), Algorithm 1: what the noisy search costs, its query, and its use."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
from scipy import special, stats

from ...audit.assertions import sensitivity
from ...audit.attack import Range, pair_quotient, quotient
from ...audit.exact import renyi_divergence
from ...audit.laws import above_threshold_distribution, report_noisy_min_distribution
from ...privacy import Budget, Filter, Poisson, rdp_pure
from ...privacy.accounting.relations import ADD_OR_REMOVE_ONE, REPLACE_ONE
from ...privacy.accounting.sampling import Full
from ...privacy.accounting.sparse_vector import rdp_above_threshold
from ...privacy.events import Gaussian, Pure, Sampled
from ...privacy.facts import PublicFacts
from ...privacy.queries import NoisyMin
from ...theory import search_slack
from ..mutants.methods import EndlessSearch
from ..registry import Effort, Evidence, printed, register, used
from ..tools import Array, Laws, renyi, search_max, search_min
from .printed import printed_above_threshold

SIZES: dict[str, Any] = {"starts": (15, 100), "searches": (1, 2), "steps": (15, 50)}


def search(
    effort: Effort, ratio: Callable[..., float], space: Mapping[str, Range], **options: Any
) -> Array:
    """Return exact / bound at every point of a search for the smallest bound / exact."""
    return np.asarray(1.0 / search_min(effort, ratio, space, **{**SIZES, **options}))


def searches(levels: Array, changes: Array, noise: str, first: float, second: float) -> Laws:
    """Return where Algorithm 1 halts on D and on D': its queries are levels -+ changes / 2."""
    half = 0.5 * np.asarray(changes)
    with_record, without = (
        above_threshold_distribution(levels + sign * half, noise, first, second)
        for sign in (1.0, -1.0)
    )
    return with_record, without


# --- 002-1: pure epsilon ---


def loss_changes(before: float, after: Array) -> Array:
    """Return the change of every query by one record: its loss at w less that at w - eta g.

    Its loss at w is the same in all queries.
    """
    return before - np.asarray(after)


def epsilon_quotient(
    changes: Array, levels: Array, eps_1: float, eps_2: float, claim: float
) -> float:
    """Return claimed / true epsilon with Laplace noise."""
    laws = searches(levels, changes, "laplace", 1.0 / eps_1, 1.0 / eps_2)
    return quotient(claim, renyi(laws, math.inf))


@register(
    "002-1",
    "Theorem 1",
    "\\|f_i\\| <= Delta_f, Laplace noise, Delta_q = Delta_f: (eps_1 + 2 eps_2)-private",
    "needs 0 <= f_i <= Delta_f (clamp on both sides); then even eps_1 + eps_2, as f_i(w) is in "
    "all queries; eps_1 + 2 eps_2 for queries that share nothing; all tight; 2 (eps_1 + eps_2) "
    "for signed losses or a replaced record",
    verdict="corrected",
)
def pure_search(effort: Effort) -> Iterator[Evidence]:
    """Search exact laws of nine queries.

    Queries move by c_i = f(w; d) - f(w - eta_i g; d), all in [a - 1, a] for an a in [0, 1], in
    units of Delta_f. Coupling the thresholds r on D and r + 1 - a on D' leaves no query off by
    more than 1: that costs (1 - a) eps_1 + eps_2. In the case of equality eight queries lie far
    above the threshold, and then one below: to get there, its noise must have been larger still.
    """
    steps = 9
    levels = np.append(np.full(steps - 1, 20.0), -1.0)
    last = np.arange(steps) == steps - 1
    eps_1, eps_2 = 0.5, 0.25

    def loss(before: float, after: Array) -> float:
        changes = loss_changes(before, after)
        return renyi(searches(levels, changes, "laplace", 1.0 / eps_1, 1.0 / eps_2), math.inf)

    signed = loss(-1.0, np.where(last, -1.0, 1.0))
    yield printed("true epsilon, f_i in [-1, 1] = [-Delta_f, Delta_f], claimed 1", signed, "<=", 1)

    space = {
        "levels": Range(-20.0, 20.0, size=steps),
        "after": Range(0.0, 1.0, size=steps),
        "before": Range(0.0, 1.0),
        "eps_1": Range(0.05, 2.0, log=True),
        "eps_2": Range(0.05, 2.0, log=True),
    }
    worst = {"levels": levels, "after": np.where(last, 0.0, 1.0), "before": 0.0}
    worst |= {"eps_1": eps_1, "eps_2": eps_2}

    def own(before: float, after: Array, levels: Array, eps_1: float, eps_2: float) -> float:
        changes = loss_changes(before, after)
        return epsilon_quotient(changes, levels, eps_1, eps_2, eps_1 + eps_2)

    def twice(before: float, after: Array, levels: Array, eps_1: float, eps_2: float) -> float:
        changes = loss_changes(2.0 * before - 1.0, 2.0 * after - 1.0)
        return epsilon_quotient(changes, levels, eps_1, eps_2, 2.0 * (eps_1 + eps_2))

    def free(after: Array, levels: Array, eps_1: float, eps_2: float) -> float:
        return epsilon_quotient(2.0 * after - 1.0, levels, eps_1, eps_2, eps_1 + 2.0 * eps_2)

    opposite = {**worst, "after": np.where(last, 1.0, 0.0)}
    opposite.pop("before")
    independent = {name: part for name, part in space.items() if name != "before"}
    for what, bound, box, guess in (
        ("epsilon / (eps_1 + eps_2), f_i in [0, 1]", own, space, worst),
        ("epsilon / (2 eps_1 + 2 eps_2), signed or replaced", twice, space, worst),
        ("epsilon / (eps_1 + 2 eps_2), queries sharing nothing", free, independent, opposite),
    ):
        found = search(effort, bound, box, guesses=(guess,))
        yield used(f"largest {what}", found, "<=", 1.0, tolerance=1e-9)
        yield used("that is, attained", found.max(), ">=", 0.999)


# --- 002-2, 002-3: Renyi ---


def profile(
    steps: int,
    start: float,
    slope: float,
    bend: float,
    shift: float,
    swing: float,
    last: float,
    jump: float,
) -> tuple[Array, Array]:
    """Return levels, in units of the noise, and changes of queries of sensitivity 1.

    Levels that bend upwards keep the chance of halting now, if not before, from falling
    behind; changes alternate around a shift, and the last query stands alone.
    """
    i = np.arange(steps)
    levels = start + slope * i / max(1, steps - 1) - bend * np.log1p(-i / steps)
    changes = np.clip(shift + swing * (-1.0) ** i, -1.0, 1.0)
    if steps > 1:
        levels[-1] += jump
        changes[-1] = last
    return levels, changes


PROFILE = {
    "start": Range(-12.0, 12.0),
    "slope": Range(-8.0, 8.0),
    "bend": Range(-2.0, 2.0),
    "shift": Range(-1.5, 1.5),
    "swing": Range(0.0, 1.5),
    "last": Range(-1.0, 1.0),
    "jump": Range(-12.0, 12.0),
}
# Halting is about as likely at every query, and each query moves against its neighbours.
ALTERNATE = {"slope": 1.0, "bend": 0.5, "shift": 0.0, "swing": 1.0, "last": -1.0, "jump": 0.0}
STEPS = Range(2, 60, log=True, integer=True)


def renyi_search(
    bound: Callable[[float, float, float, int], float], noise: str, shared: bool = False
) -> Callable[..., float]:
    """Return bound / exact as a function of order, scales, and the profile of the queries.

    ``shared``: all changes lie in one interval of length 1 around 0, as those of a search do.
    """

    def ratio(order: float, first: float, second: float, steps: int, **shape: float) -> float:
        levels, changes = profile(steps, **shape)
        if shared:
            changes = 0.5 * changes
        laws = searches(second * levels, changes, noise, first, second)
        return pair_quotient(bound(order, first, second, steps), laws, order=order)

    return ratio


def proved(noise: str, shared: bool = False) -> Callable[[float, float, float, int], float]:
    """Return the proved cost as a function of order, scales and the number of queries."""

    def cost(order: float, first: float, second: float, steps: int) -> float:
        return float(
            rdp_above_threshold(order, noise, first, second, steps, coupling="best", shared=shared)
        )

    return cost


def proof_of_theorem_2(order: float, level: float, steps: int) -> float:
    """Return what the proof sums over the halting indices / what it says that the sum is.

    The proof bounds the law on D at each index by the one on D' with the densities of the
    threshold and of the halting query shifted by 1 and 2, (10), and takes the Renyi sum under
    the integral; its last line is the product of two Renyi sums. Queries at one level, eps = 1.
    """
    first, second = 2.0, 4.0
    z, width = np.linspace(-60.0, 60.0, 60_001, retstep=True)
    log_f = -np.abs(z) / first - math.log(2.0 * first)
    log_shifted = -np.abs(z - 1.0) / first - math.log(2.0 * first)
    threshold = np.exp(order * log_shifted + (1.0 - order) * log_f) * width
    y, step = np.linspace(-200.0, 200.0, 200_001, retstep=True)
    log_g = -np.abs(y) / second - math.log(2.0 * second)
    log_moved = -np.abs(y - 2.0) / second - math.log(2.0 * second)
    density = np.exp(order * log_moved + (1.0 - order) * log_g)
    beyond = np.append(np.cumsum(density[::-1] * step)[::-1], 0.0)
    above = np.interp(z - level, np.append(y, y[-1] + step), beyond)
    tail = 0.5 * np.exp(-np.abs(z - level) / second)
    stays = np.where(z > level, 1.0 - tail, tail)
    indices = sum(stays**k for k in range(steps)) * above + stays**steps
    return float(np.sum(threshold * indices) / (threshold.sum() * density.sum() * step))


@register(
    "002-2",
    "Theorem 2",
    "with Laplace noise the search costs (4), RDP_Lap(eps_1) + RDP_Lap(2 eps_2) (its proof drops "
    "the sum over the halting index)",
    "`privacy.rdp_above_threshold`, proved; its best coupling is below (4) at every point with "
    "eps <= 4 that was tried, above it from eps of about 8 on, where (4) has no proof; less for "
    "losses in [0, Delta_f], which share f_i(w)",
    verdict="sharpened",
)
def laplace_search(effort: Effort) -> Iterator[Evidence]:
    """Sum exact laws of up to 60 queries, for any eps_1 and eps_2."""

    def theorem(order: float, first: float, second: float, steps: int) -> float:
        return float(printed_above_threshold(order, "laplace", first, second))

    scale = Range(0.3, 30.0, log=True)
    space = {"order": Range(1.05, 32.0, log=True), "first": scale, "second": scale, "steps": STEPS}
    space |= PROFILE
    found = search(effort, renyi_search(theorem, "laplace"), space)
    yield printed("largest exact / (4)", found, "<=", 1.0, tolerance=1e-9)

    def unlimited(order: float, eps: float) -> float:
        first, second = 2.0 / eps, 4.0 / eps
        best = rdp_above_threshold(order, "laplace", first, second, None, coupling="best")
        return quotient(theorem(order, first, second, 1), float(best))

    box = {"order": Range(1.01, 256.0, log=True), "eps": Range(1e-3, 4.0, log=True)}
    found = search(effort, unlimited, box, guesses=({"order": 256.0, "eps": 4.0},))
    yield printed("largest proved / (4), eps <= 4, any number of queries", found, "<=", 1.0)
    above = max(1.0 / unlimited(order, 30.0) for order in (1.5, 2.0, 4.0, 16.0))
    yield used("the same, eps = 30: (4) is not proved there", above, ">=", 1.0)
    yield used("and no further above it", above, "<=", 1.02)

    at, beside = (2.0, 2.0, 4.0, 20), "beside (4), eps = 1, order 2, 20 queries"
    for shared, which in ((False, ""), (True, " for losses in [0, Delta_f]")):
        cost = proved("laplace", shared)
        found = search(effort, renyi_search(cost, "laplace", shared), space)
        yield used(f"largest exact / proved{which}", found, "<=", 1.0, tolerance=1e-9)
        yield used(f"proved{which} {beside}", cost(*at), "<=", theorem(*at))
    sums = max(proof_of_theorem_2(2.0, level, 20) for level in (-4.0, 0.0, 4.0))
    what = "the sum over the halting index / the proof's last line, eps = 1, order 2, 20 queries"
    yield used(what, sums, ">=", 1.0)


@register(
    "002-3",
    "Theorem 3, (5)",
    "with Gaussian noise the search costs alpha (4 sigma_1^2 + sigma_2^2)/(2 sigma_1^2 "
    "sigma_2^2), which is alpha rho, whatever max_it",
    "`privacy.rdp_above_threshold`: it grows with max_it; below (5) for max_it = 20, and less "
    "for losses in [0, Delta_f]",
    verdict="corrected",
)
def gaussian_search(effort: Effort) -> Iterator[Evidence]:
    """Sum exact laws at rho = .01 and order 2, where (5) is .02, then search.

    Queries that move by -+Delta_f in turn need |f_i| <= Delta_f, as printed, or clipped
    differences; losses in [0, Delta_f] move them over half that range. Without max_it that is
    enough: the lower the queries lie, the more a move by a half changes the chance to halt.
    """
    order, rho = 2.0, 0.01
    scales = math.sqrt(1.5 / rho), math.sqrt(3.0 / rho)
    for steps in (300, 1000, 5000):
        shape = {**ALTERNATE, "start": special.ndtri(1.0 / steps) - 0.5}
        levels, changes = profile(steps, **shape)
        cost = renyi(searches(scales[1] * levels, changes, "gaussian", *scales), order)
        what = f"exact cost, signed losses, max_it = {steps}, (5) is .02"
        yield printed(what, cost, "<=", order * rho)
    endless = EndlessSearch("gaussian", *scales)
    far = -12.0 * scales[1] + np.array([0.25, -0.25])
    cost_of_no_end = renyi((endless.law(far), endless.law(far[::-1])), order)
    what = "the same, losses in [0, Delta_f], no max_it, queries 12 sigma_2 below the threshold"
    yield printed(what, cost_of_no_end, "<=", order * rho)

    space = {
        "order": Range(1.05, 32.0, log=True),
        "first": Range(1.0, 30.0, log=True),
        "second": Range(1.0, 30.0, log=True),
        "steps": STEPS,
        **PROFILE,
    }
    guess = {"order": order, "first": scales[0], "second": scales[1], "steps": 60, "start": -2.6}
    for shared, which in ((False, ""), (True, " for losses in [0, Delta_f]")):
        bound = proved("gaussian", shared)
        ratio = renyi_search(bound, "gaussian", shared)
        found = search(effort, ratio, space, guesses=({**guess, **ALTERNATE},))
        yield used(f"largest exact / proved{which}", found, "<=", 1.0, tolerance=1e-9)
        yield used(f"proved{which}, max_it = 20", bound(order, *scales, 20), "<=", order * rho)
    yield used("proved, max_it = 5000", proved("gaussian")(order, *scales, 5000), ">=", cost)


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
    gains: list[float] = []
    changes: dict[str, list[float]] = {"sum": [], "mean": []}
    for _ in range(cases):
        x, w = random.normal(size=(records, 3)), random.normal(size=3)
        twice, g = np.concatenate([x, x]), logistic_gradient(w, x)
        start = 100.0 / np.linalg.eigvalsh(x.T @ x / records).max()
        for name, size in (("sum", 1), ("mean", records)):
            step = backtrack(armijo(x, w, alpha, size), start)
            copied = backtrack(armijo(twice, w, alpha, size if size == 1 else 2 * size), start)
            changes[name].append(max(copied / step, step / copied))
            if name == "sum":
                gain = np.mean(logistic(w, x) - logistic(w - step * g, x))
                gains.append(float(gain / (alpha * step * (g @ g))))
    what = "smallest decrease / (alpha eta ||g||^2) at the step found, alpha = .5, 4 records"
    yield printed(what, gains, ">=", 1.0)
    what = "largest change of the step when all data are doubled"
    yield printed(what, changes["sum"], "==", 1.0)
    yield used(f"{what}, f_sum/(q n)", changes["mean"], "==", 1.0, tolerance=1e-9)

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
        return quotient(event.pure_cost(), renyi(laws, math.inf))
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
    yield printed("true epsilon, 21 candidates, claimed .1", renyi(laws, math.inf), "<=", eps)
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
            name = f"largest epsilon / charged, {what}, {noise} noise"
            yield used(name, found, "<=", 1.0, tolerance=1e-9)
            yield used("that is, attained", found.max(), ">=", 0.999)
        ratio = partial(noisy_min_ratio, "gumbel", relation)
        found = search(effort, ratio, {**space, "order": Range(1.1, 32.0, log=True)})
        name = f"largest Renyi cost / charged, {what}, gumbel noise"
        yield used(name, found, "<=", 1.0, tolerance=1e-9)


# --- 002-12 to 002-15: the pure loss, and the experiments ---

# 5.4: delta, per-iteration budget epsilon/100, the rows of nine folds of Adult.
DELTA, PARTS, ROWS, RATE = 1e-8, 100.0, 43_957, 0.1


def pure_over_lemma(order: float, epsilon: float) -> float:
    """Return the exact cost of randomized response / alpha epsilon^2/2."""
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
    """Search for the worst randomized response."""
    space = {"order": Range(1.001, 1e3, log=True), "epsilon": Range(1e-3, 20.0, log=True)}
    found = search_max(effort, pure_over_lemma, space, cost=2)
    yield printed("exact / (alpha epsilon^2/2)", found, "<=", 1.0, tolerance=1e-9)
    yield printed("that is, attained in the limit", found.max(), ">=", 0.999)

    def against_used(order: float, epsilon: float) -> float:
        exact = pure_over_lemma(order, epsilon) * 0.5 * order * epsilon**2
        return exact / float(rdp_pure(order, epsilon))

    found = search_max(effort, against_used, space, cost=2)
    yield used("exact / used", found, "<=", 1.0, tolerance=1e-6)
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

    found = search_max(effort, of_theorem, space, cost=2)
    yield printed("(4) / (alpha epsilon^2/2)", found, "<=", 1.0)

    def of_proof(order: float, epsilon: float) -> float:
        cost = rdp_above_threshold(order, "laplace", 2.0 / epsilon, 4.0 / epsilon, 20)
        return float(cost) / float(rdp_pure(order, epsilon))

    space = {"order": Range(1.1, 64.0, log=True), "epsilon": Range(1e-2, 30.0, log=True)}
    found = search_max(effort, of_proof, space, cost=effort.cases(25, 60))
    what = "proved, 20 queries / exact cost of the pure loss"
    yield used(what, found, "<=", 1.0, tolerance=1e-9)


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
    random, shares = effort.random(), []
    for _ in range(effort.cases(50, 500)):
        tries, eta = int(random.integers(1, 40)), float(np.exp(random.uniform(-12.0, -0.5)))
        low = np.full(tries, -search_slack(tries, eta))
        law = above_threshold_distribution(low, "laplace", 2.0, 4.0)
        shares.append(float(law[:-1].sum()) / eta)
    yield used("P(accepted below the slack) / eta", shares, "<=", 1.0, tolerance=1e-9)
    yield used("P(accepted), misses by .3, epsilon = 1.6", accepts(0.3, 1.6), "<=", 0.05)
