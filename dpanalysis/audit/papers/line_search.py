"""Chen and Lee (2020), Algorithm 1: what the noisy backtracking search costs.

Its query is in ``line_search_query``, what Algorithm 2 makes of it in ``line_search_batch`` and
``line_search_filter``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import special

from ...privacy.sparse_vector import rdp_above_threshold
from ..attack import Attack, Range, pair_quotient, quotient, worst_case
from ..exact import renyi_divergence
from ..laws import above_threshold_distribution
from ..mutants.line_search import EndlessSearch
from ..registry import Effort, Evidence, Paper, printed, register, used
from .line_search_printed import printed_above_threshold

PAPER = register(
    Paper(
        id="002",
        authors="Chen, Lee",
        year=2020,
        title="Stochastic adaptive line search for differentially private optimization",
        setting="Add-or-remove-one neighbours, Poisson sampling.",
    )
)

Array: TypeAlias = NDArray[np.float64]
Laws: TypeAlias = tuple[Array, Array]


def search(
    effort: Effort,
    ratio: Callable[..., float],
    space: Mapping[str, Range],
    *,
    starts: tuple[int, int] = (15, 100),
    steps: tuple[int, int] = (15, 50),
    guesses: tuple[Mapping[str, Any], ...] = (),
) -> Attack:
    """Return the smallest value of ``ratio`` found in ``space``; sizes are (quick, full)."""
    return worst_case(
        ratio,
        space,
        starts=effort.cases(*starts),
        searches=effort.cases(1, 2),
        steps=effort.cases(*steps),
        guesses=guesses,
        rng=effort.random(),
    )


def at_most_one(about: Callable[..., Evidence], what: str, found: Attack) -> Evidence:
    """Return the evidence of a search for the smallest bound / exact, as the largest inverse."""
    value, cases = 1.0 / found.ratio, found.evaluations
    return about(f"largest {what}", value, "<=", 1.0, tolerance=1e-9, cases=cases)


def searches(levels: Array, changes: Array, noise: str, first: float, second: float) -> Laws:
    """Return where Algorithm 1 halts on D and on D': its queries are levels -+ changes / 2."""
    half = 0.5 * np.asarray(changes)
    with_record, without = (
        above_threshold_distribution(levels + sign * half, noise, first, second)
        for sign in (1.0, -1.0)
    )
    return with_record, without


def pure_loss(laws: Laws) -> float:
    """Return the epsilon of a pair of laws."""
    return max(renyi_divergence(p, q, math.inf) for p, q in (laws, laws[::-1]))


def renyi(laws: Laws, order: float) -> float:
    """Return the larger Renyi divergence of a pair of laws."""
    return max(renyi_divergence(p, q, order) for p, q in (laws, laws[::-1]))


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
    return quotient(claim, pure_loss(laws))


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
        return pure_loss(searches(levels, changes, "laplace", 1.0 / eps_1, 1.0 / eps_2))

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
        yield at_most_one(used, f"{what}", found)
        yield used("that is, attained", 1.0 / found.ratio, ">=", 0.999)


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
    yield at_most_one(printed, "exact / (4)", found)

    def unlimited(order: float, eps: float) -> float:
        first, second = 2.0 / eps, 4.0 / eps
        best = rdp_above_threshold(order, "laplace", first, second, None, coupling="best")
        return quotient(theorem(order, first, second, 1), float(best))

    box = {"order": Range(1.01, 256.0, log=True), "eps": Range(1e-3, 4.0, log=True)}
    corner = ({"order": 256.0, "eps": 4.0},)
    found = search(effort, unlimited, box, guesses=corner)
    below = 1.0 / found.ratio
    what = "largest proved / (4), eps <= 4, any number of queries"
    yield printed(what, below, "<=", 1.0, cases=found.evaluations)
    above = max(1.0 / unlimited(order, 30.0) for order in (1.5, 2.0, 4.0, 16.0))
    yield used("the same, eps = 30: (4) is not proved there", above, ">=", 1.0)
    yield used("and no further above it", above, "<=", 1.02)

    at, beside = (2.0, 2.0, 4.0, 20), "beside (4), eps = 1, order 2, 20 queries"
    for shared, which in ((False, ""), (True, " for losses in [0, Delta_f]")):
        cost = proved("laplace", shared)
        found = search(effort, renyi_search(cost, "laplace", shared), space)
        yield at_most_one(used, f"exact / proved{which}", found)
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
        yield at_most_one(used, f"exact / proved{which}", found)
        yield used(f"proved{which}, max_it = 20", bound(order, *scales, 20), "<=", order * rho)
    yield used("proved, max_it = 5000", proved("gaussian")(order, *scales, 5000), ">=", cost)
