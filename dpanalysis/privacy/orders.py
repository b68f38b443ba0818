"""The Renyi order at which a filter counts: chosen beforehand, from the schedule expected."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .accountant import Events, best_order, group
from .events import Event
from .relations import Budget

__all__ = ["order_of_most", "plan_order"]


def plan_order(events: Events, budget: Budget) -> float:
    """Return the Renyi order at which ``events`` cost the least epsilon at the budget's delta.

    Give it the schedule that is expected; what then really happens may differ, and the
    filter at this order stays valid.

    Parameters
    ----------
    events : Event or iterable of Event
    budget : Budget
        With delta > 0.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If the budget has no delta.

    Examples
    --------
    >>> from dpanalysis.privacy.events import Gaussian
    >>> budget = Budget(1.0, 1e-5)
    >>> order = plan_order([Gaussian(std=50.0, sensitivity=1.0)] * 100, budget)
    >>> order > 1.0
    True
    """
    if budget.delta == 0.0:
        raise ValueError(f"budget must have delta > 0 to have a best order, got {budget!r}")
    return best_order(group(events, budget.relation), budget.delta)[1]


def order_of_most(events: Sequence[Event], budget: Budget) -> float:
    """Return the Renyi order at which ``events`` fit the budget most often.

    For a filter over so many iterations as the budget affords, when each costs about the same.

    Parameters
    ----------
    events : sequence of Event
        What one iteration costs.
    budget : Budget
        With delta > 0.

    Returns
    -------
    float
        An integer, as curves of Poisson batches are sums over integers.

    Raises
    ------
    ValueError
        If the budget has no delta, or affords no iteration at any order; the message gives the
        smallest epsilon that would.

    Examples
    --------
    >>> from dpanalysis.privacy.events import Gaussian
    >>> order_of_most([Gaussian(std=100.0, sensitivity=1.0)], Budget(1.0, 1e-5))
    17.0
    """
    if budget.delta == 0.0:
        raise ValueError(f"budget must have delta > 0 to have a best order, got {budget!r}")
    orders = np.unique(np.round(np.geomspace(2.0, 2.0**15, 100)))
    cost = np.sum([event.rdp_cost(orders) for event in events], axis=0)
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
