"""Accountants: the epsilon of a list of events, and calibration of noise to a budget.

``pure`` adds exact amplified losses, ``zcdp`` adds rho, ``rdp`` adds Renyi curves and takes
the best order, ``pld`` composes privacy loss distributions. Each of them is a valid upper
bound where it applies, so ``tightest`` returns the smallest.

Computed costs are rounded. Amplified pure losses and the epsilon of Gaussian noise are never
below the exact value. Every other cost of an event is below it by a relative error of at most
1e-9. A sum of n costs has a relative error of at most n 2^-53. When comparing with a budget,
:func:`fits` allows a relative rounding error of 1e-12, and filters and plans allow 1e-9.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, lru_cache
from itertools import repeat
from operator import attrgetter, methodcaller, mul
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..._validation import check_choice, check_fraction, check_number, check_positive
from ...errors import IncompatibleAccounting
from .events import Event, Sampled, check_event, counted_gaussian_terms
from .rdp import rdp_to_epsilon
from .relations import Budget, check_budget, check_relation
from .zcdp import gaussian_sum_epsilon, zcdp_to_epsilon

ACCOUNTANTS = ("tightest", "pure", "zcdp", "rdp", "pld")

Groups: TypeAlias = Mapping[Event, int]
Events: TypeAlias = Event | Iterable[Event]

# Initial grid of the search for the best real order. Subsampled curves are sums over integers.
_SAMPLED_ORDERS = np.concatenate(
    [1.0 + np.geomspace(1e-3, 0.9, 12), np.arange(2.0, 65.0), np.round(np.geomspace(70, 1024, 24))]
)
# The epsilon of more distinct events than this is not cached: such lists seldom recur.
_MOST_CACHED = 64
_IS_IMMUTABLE = attrgetter("immutable")
_FULL_ORDERS = np.concatenate([1.0 + np.geomspace(1e-4, 1e8, 241), [np.inf]])


def listed(events: Events) -> list[Event]:
    """Return one event or several as a list, or raise TypeError."""
    if isinstance(events, Event):
        return [events]
    if isinstance(events, str) or not isinstance(events, Iterable):
        raise TypeError(f"events must be an event or a sequence of events, got {events!r}")
    return list(events)


def group(events: Events, relation: str) -> dict[Event, int]:
    """Return the count of each event, checked and expanded into its :meth:`Event.parts`."""
    check_relation(relation)
    counts: dict[Event, int] = {}
    pending = list(zip(listed(events), repeat(1)))
    while pending:
        event, count = pending.pop()
        check_event(event, relation)
        parts = event.parts()
        if parts is None:
            counts[event] = counts.get(event, 0) + count
        else:
            for part, times in parts:
                pending.append((part, count * times))
    return counts


def epsilon(events: Events, delta: float, relation: str, accountant: str = "tightest") -> float:
    """Return the epsilon at ``delta`` of all events together, a valid upper bound in [0, inf].

    Parameters
    ----------
    events : Event or iterable of Event
        What was or will be released. For ``pld`` and ``tightest`` the list must be fixed
        beforehand: queries may depend on earlier answers, noise levels may not. Methods that
        choose noise levels adaptively run under a :class:`dpanalysis.privacy.Filter`.
    delta : float
        In [0, 1). At 0 the result is the pure loss, which is infinite for Gaussian noise.
    relation : {"replace_one", "add_or_remove_one"}
    accountant : {"tightest", "pure", "zcdp", "rdp", "pld"}
        ``tightest`` is the smallest of those that are valid for the whole list.

    Raises
    ------
    IncompatibleAccounting
        If a sampling scheme is not valid for the relation, or the requested accountant cannot
        account for an event.

    Examples
    --------
    >>> from dpanalysis.privacy.events import Gaussian, Laplace, Repeated
    >>> from dpanalysis.privacy.accounting.sampling import Poisson
    >>> round(epsilon(Laplace(scale=10.0, sensitivity=1.0), 0.0, "replace_one"), 6)
    0.1
    >>> step = Sampled(Poisson(0.01), [Gaussian(std=1.0, sensitivity=1.0)])
    >>> round(epsilon(Repeated(step, 1000), 1e-5, "add_or_remove_one", "rdp"), 2)
    2.1
    """
    check_choice("accountant", accountant, ACCOUNTANTS)
    delta = check_number("delta", delta, low=0.0, high=1.0, high_open=True)
    return _epsilon(group(events, relation), delta, accountant)


def _epsilon(groups: Groups, delta: float, accountant: str) -> float:
    if accountant != "tightest":
        return _epsilon_by(accountant, groups, delta)
    return min(_epsilon_by(name, groups, delta) for name in _applicable(groups, delta))


def fits(events: Events, budget: Budget, accountant: str = "tightest") -> bool:
    """Return whether all events together stay within ``budget``.

    The accountants are tried from the cheapest on; the first whose bound fits decides. The
    parameters are those of :func:`spent`.

    Examples
    --------
    >>> from dpanalysis.privacy.events import Pure
    >>> fits(Pure(0.5), Budget(1.0)), fits(Pure(1.5), Budget(1.0))
    (True, False)
    """
    check_choice("accountant", accountant, ACCOUNTANTS)
    limit = check_budget(budget).limit * (1.0 + 1e-12)
    groups = group(events, budget.relation)  # once: events may be an iterator
    if budget.rho is not None or accountant != "tightest":
        return _spent(groups, budget, accountant) <= limit
    return any(
        _epsilon_by(name, groups, budget.delta) <= limit
        for name in _applicable(groups, budget.delta)
    )


def spent(events: Events, budget: Budget, accountant: str = "tightest") -> float:
    """Return the cost of the events in the unit of the budget: epsilon at its delta, or rho.

    Parameters
    ----------
    events, accountant
        As in :func:`epsilon`; for a zCDP budget "tightest" or "zcdp".
    budget : Budget

    Raises
    ------
    IncompatibleAccounting
        As in :func:`epsilon`, or if a zCDP budget is combined with another accountant.

    Examples
    --------
    >>> from dpanalysis.privacy.events import Gaussian
    >>> spent([Gaussian(2.0, 1.0)] * 4, Budget.zcdp(1.0))
    0.5
    """
    check_choice("accountant", accountant, ACCOUNTANTS)
    return _spent(group(events, check_budget(budget).relation), budget, accountant)


def _spent(groups: Groups, budget: Budget, accountant: str) -> float:
    if budget.rho is None:
        return _epsilon(groups, budget.delta, accountant)
    if accountant not in ("tightest", "zcdp"):
        raise IncompatibleAccounting(
            f"a zCDP budget is accounted by 'zcdp' (or 'tightest'), not by {accountant!r}"
        )
    return _zcdp(groups)


def spent_without_grid(events: Events, budget: Budget, accountant: str = "tightest") -> float:
    """Return a quick upper bound on :func:`spent`, without loss distributions on a grid."""
    if budget.rho is not None or accountant != "tightest":
        return spent(events, budget, accountant)
    groups = group(events, budget.relation)
    names = _applicable(groups, budget.delta, on_grid=False)
    return min(_epsilon_by(name, groups, budget.delta) for name in names)


def _epsilon_by(name: str, groups: Groups, delta: float) -> float:
    """Return the epsilon by one accountant, cached where all events are immutable."""
    if len(groups) <= _MOST_CACHED and all(map(_IS_IMMUTABLE, groups)):
        return _cached_epsilon(name, tuple(groups.items()), delta)
    return _ACCOUNTS[name](groups, delta)


@lru_cache(maxsize=4096)
def _cached_epsilon(name: str, items: tuple[tuple[Event, int], ...], delta: float) -> float:
    return _ACCOUNTS[name](dict(items), delta)


def _applicable(groups: Groups, delta: float, on_grid: bool = True) -> list[str]:
    """Return the accountants that are valid for the whole list, the cheapest first."""
    if delta == 0.0:
        return ["pure"] if _all_finite(groups, "pure_cost") else ["rdp"]
    names = [n for n in ("pure", "zcdp") if _all_finite(groups, f"{n}_cost")] + ["rdp"]
    if counted_gaussian_terms(groups.items()) is not None:  # a closed form, needs no grid
        return [*names, "pld"]
    if not on_grid:
        return names
    from .pld import has_profiles

    return [*names, "pld"] if has_profiles(groups) else names


def _all_finite(groups: Groups, cost: str) -> bool:
    return all(map(math.isfinite, map(methodcaller(cost), groups)))


def _sum(groups: Groups, cost: str, accountant: str, instead: str) -> float:
    costs = dict(zip(groups, map(float, map(methodcaller(cost), groups))))
    for event, value in costs.items():
        if math.isinf(value):
            raise IncompatibleAccounting(
                f"{event!r} has no finite {accountant} cost; account it by {instead}"
            )
    return math.fsum(map(mul, groups.values(), costs.values()))


def _pure_epsilon(groups: Groups, delta: float) -> float:
    # A pure guarantee holds at every delta.
    return _sum(groups, "pure_cost", "pure", "'zcdp', 'rdp' or 'pld' with delta > 0")


def _zcdp(groups: Groups) -> float:
    return _sum(groups, "zcdp_cost", "zCDP", "'rdp' or 'pld', with epsilon and delta")


def rdp_curve(groups: Groups, orders: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the composed Renyi cost of counted events at ``orders``, shape (k,)."""
    total = np.zeros(orders.shape)
    for event, count in groups.items():
        total += count * np.asarray(event.rdp_cost(orders), dtype=np.float64)
    return total


def best_order(groups: Groups, delta: float) -> tuple[float, float]:
    """Return the epsilon of counted events by Renyi accounting, and the order that attains it."""
    if not groups:
        return 0.0, 2.0

    def best(orders: NDArray[np.float64]) -> tuple[float, float]:
        return rdp_to_epsilon(orders, rdp_curve(groups, orders), delta)

    sampled = any(isinstance(event, Sampled) for event in groups)
    orders = _SAMPLED_ORDERS if sampled else _FULL_ORDERS
    result = best(orders)
    # A very small epsilon needs large orders. The bound may have several local minima there: a
    # search that stopped at the first one would return a cost that increases with the noise.
    if sampled and result[1] > 0.25 * orders[-1]:
        larger = orders[-1] * 2.0 ** np.arange(1, 8)
        result = min(result, best(larger))
        orders = np.concatenate([orders, larger])
    # Orders are real: search between the neighbours of the best one, twice.
    for _ in range(2):
        place = int(np.argmin(np.abs(orders - result[1]))) if math.isfinite(result[1]) else 0
        if not 0 < place < orders.size - 1 or math.isinf(orders[place + 1]):
            break
        orders = np.linspace(orders[place - 1], orders[place + 1], 17)
        result = min(result, best(orders))
    return result


def _pld_epsilon(groups: Groups, delta: float) -> float:
    terms = counted_gaussian_terms(groups.items())
    if terms is not None:  # exact for Gaussian noise alone
        mus, weights, offset = terms
        return offset + gaussian_sum_epsilon(mus, weights, delta)
    if delta == 0.0:
        return _pure_epsilon(groups, delta)
    from .pld import pld_epsilon

    return pld_epsilon(groups, delta)


_ACCOUNTS: dict[str, Callable[[Groups, float], float]] = {
    "pure": _pure_epsilon,
    "zcdp": lambda groups, delta: zcdp_to_epsilon(_zcdp(groups), delta),
    "rdp": lambda groups, delta: best_order(groups, delta)[0],
    "pld": _pld_epsilon,
}


# The Renyi order of a filter, from the expected schedule


def plan_order(events: Events, budget: Budget) -> float:
    """Return the Renyi order at which ``events`` cost the least epsilon at the budget's delta > 0.

    Pass the expected schedule. A filter at this order stays valid if the actual schedule differs.
    The parameters are those of :func:`spent`.

    Examples
    --------
    >>> from dpanalysis.privacy.events import Gaussian
    >>> order = plan_order([Gaussian(std=50.0, sensitivity=1.0)] * 100, Budget(1.0, 1e-5))
    >>> order > 1.0
    True
    """
    if check_budget(budget).delta == 0.0:
        raise ValueError(f"budget must have delta > 0 to have a best order, got {budget!r}")
    return best_order(group(events, budget.relation), budget.delta)[1]


def order_of_most(events: Sequence[Event], budget: Budget) -> float:
    """Return the order at which a filter with ``budget`` affords most iterations of ``events``."""
    orders = np.unique(np.round(np.geomspace(2.0, 2.0**15, 100)))
    cost = np.sum([event.rdp_cost(orders) for event in events], axis=0, dtype=np.float64)
    slack = np.log1p(-1.0 / orders) - (np.log(budget.delta) + np.log(orders)) / (orders - 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        times = np.where(cost > 0.0, (budget.limit - slack) / cost, np.inf)
    best = int(np.argmax(times))
    if times[best] < 1.0:
        raise ValueError(
            f"budget must afford one iteration, got {budget!r}: at delta = {budget.delta:g} the "
            f"smallest epsilon that does is {float(np.min(cost + slack)):.4g}"
        )
    return float(orders[best])


# Calibration


def calibrate(
    make_events: Callable[[float], Events],
    budget: Budget,
    bracket: tuple[float, float],
    tol: float = 1e-6,
    *,
    accountant: str = "tightest",
) -> float:
    """Return the smallest parameter in ``bracket`` whose events fit ``budget``.

    Parameters
    ----------
    make_events : callable
        Maps the parameter to events (one or a list), for example a noise multiplier to those of
        the whole run. The cost must not increase with the parameter.
    budget : Budget
        Also names the neighbouring relation.
    bracket : (float, float)
        The interval to search, 0 < low < high.
    tol : float, default=1e-6
        Relative accuracy of the parameter, in (0, 1); no better than 2e-4 where the epsilon comes
        from a loss distribution on a grid.
    accountant : {"tightest", "pure", "zcdp", "rdp", "pld"}

    Returns
    -------
    float
        A parameter that fits. If the cost is strictly decreasing, ``(1 - tol)`` times it does not
        fit, unless it is ``low``.

    Raises
    ------
    ValueError
        If the bracket is invalid, or even its upper end does not fit.
    IncompatibleAccounting
        As in :func:`dpanalysis.privacy.epsilon`.

    Examples
    --------
    >>> from dpanalysis.privacy.events import Laplace, Repeated
    >>> def run(scale):
    ...     return Repeated(Laplace(scale, sensitivity=1.0), 100)
    >>> round(calibrate(run, Budget(1.0), bracket=(1.0, 1e4)), 3)
    100.0
    """
    check_budget(budget)
    if not callable(make_events):
        raise TypeError(f"make_events must be a function of a number, got {make_events!r}")
    if np.shape(bracket) != (2,):
        raise TypeError(f"bracket must be (low, high), got {bracket!r}")
    low, high = bracket
    low = check_positive("bracket[0]", low)
    high = check_number("bracket[1]", high, low=low, low_open=True)
    tol = check_fraction("tol", tol)
    from scipy import optimize  # heavy, hence not at the top

    @cache
    def excess(log_parameter: float, cost: Callable[..., float] = spent) -> float:
        value = cost(make_events(math.exp(log_parameter)), budget, accountant)
        # Costs are close to power laws in the noise: on a log-log scale the search is short.
        return float(np.log(np.clip(value / budget.limit, 1e-20, 1e20)))

    ends = math.log(low), math.log(high)
    if accountant == "tightest":
        ends = _narrow_bracket(excess, *ends)
    if excess(ends[1]) > 0.0:
        pure = budget.rho is None and budget.delta == 0.0
        raise ValueError(
            f"{budget!r} is too small: even the upper end of bracket = ({low:g}, {high:g}) does "
            "not fit it" + ("; at delta = 0 only pure releases do" if pure else "")
        )
    if excess(ends[0]) <= 0.0:
        return low if ends[0] == math.log(low) else math.exp(ends[0])
    # Where a loss distribution on a grid decides, costs jump by about 1e-4: search no finer.
    coarse = excess(ends[1]) < excess(ends[1], spent_without_grid)
    step, tried = max(0.25 * tol, 5e-5 * coarse), {ends[1]}

    def recorded_excess(log_parameter: float) -> float:
        tried.add(log_parameter)
        return excess(log_parameter)

    optimize.toms748(recorded_excess, *ends, xtol=step, rtol=1e-14)
    # The upper end of the last bracket was tried, and fits; the root is its middle.
    return math.exp(min(each for each in tried if excess(each) <= 0.0))


def _narrow_bracket(excess: Callable[..., float], low: float, high: float) -> tuple[float, float]:
    """Return a narrower bracket, by the cheap upper bound :func:`spent_without_grid`."""
    from scipy import optimize

    def cheap(log_parameter: float) -> float:
        return excess(log_parameter, spent_without_grid)

    if not cheap(low) > 0.0 >= cheap(high):
        return low, high
    top = min(float(optimize.toms748(cheap, low, high, xtol=1e-3)) + 2e-3, high)
    bottom, fits = low, False
    for step in (0.1, 0.3, 1.0):
        if top - step <= low:
            break
        if excess(top - step) > 0.0:
            bottom = top - step
            break
        top, fits = top - step, True
    # Renyi costs may increase with the noise, because the search for an order is not exact.
    return (bottom, top) if fits or excess(top) <= 0.0 else (low, high)
