"""The smallest noise that fits a budget."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import TypeAlias

import numpy as np

from .._validation import check_number
from .accountant import Events, spent, spent_without_grid
from .relations import Budget, check_budget

__all__ = ["calibrate"]

Cost: TypeAlias = Callable[[Events, Budget, str], float]


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
        parameter -> events (one or a list), for example a noise multiplier -> the whole
        run. The cost must not increase with the parameter.
    budget : Budget
        Names the neighbouring relation.
    bracket : (float, float)
        0 < low < high: where to look.
    tol : float, default=1e-6
        Relative accuracy of the parameter, in (0, 1); 2e-4 at best where the epsilon comes from a
        loss distribution on a grid.
    accountant : {"tightest", "pure", "zcdp", "rdp", "pld"}

    Returns
    -------
    float
        It fits; for a cost that strictly decreases, ``(1 - tol)`` times it does not, unless
        it is ``low``.

    Raises
    ------
    ValueError
        If the bracket is not one, or even its upper end does not fit.
    IncompatibleAccounting
        As :func:`dpanalysis.privacy.epsilon`.

    Examples
    --------
    >>> from dpanalysis.privacy.events import Laplace, Repeated
    >>> def run(scale):
    ...     return Repeated(Laplace(scale, sensitivity=1.0), 100)
    >>> round(calibrate(run, Budget(1.0), bracket=(1.0, 1e4)), 3)
    100.0
    """
    check_budget(budget)
    low, high = bracket
    low = check_number("bracket[0]", low, low=0.0, low_open=True)
    high = check_number("bracket[1]", high, low=low, low_open=True)
    tol = check_number("tol", tol, low=0.0, high=1.0, low_open=True, high_open=True)
    from scipy import optimize  # heavy, hence not at the top

    @cache
    def excess(log_parameter: float, cost: Cost = spent) -> float:
        value = cost(make_events(math.exp(log_parameter)), budget, accountant)
        # Costs are near to power laws of the noise; logarithms make the search short.
        return float(np.log(np.clip(value / budget.limit, 1e-20, 1e20)))

    ends = math.log(low), math.log(high)
    if accountant == "tightest":
        ends = _nearer(excess, *ends)
    if excess(ends[1]) > 0.0:
        raise ValueError(
            f"even the upper end of bracket = ({low:g}, {high:g}) does not fit {budget!r}: "
            "raise it, or the budget"
        )
    if excess(ends[0]) <= 0.0:
        return low if ends[0] == math.log(low) else math.exp(ends[0])
    # Where a grid of losses decides, costs jump by 1e-4 or so: a finer search would find nothing.
    coarse = excess(ends[1]) < excess(ends[1], spent_without_grid)
    step, tried = max(0.25 * tol, 5e-5 * coarse), {ends[1]}

    def followed(log_parameter: float) -> float:
        tried.add(log_parameter)
        return excess(log_parameter)

    root = float(optimize.toms748(followed, *ends, xtol=step, rtol=1e-14))
    # What is returned must fit: where none that does is near, walk up, with doubling steps.
    fits = min(each for each in tried if excess(each) <= 0.0)
    while root + step < fits and excess(root) > 0.0:
        root, step = root + step, 2.0 * step
        fits = root if excess(root) <= 0.0 else fits
    return math.exp(fits)


def _nearer(excess: Callable[..., float], low: float, high: float) -> tuple[float, float]:
    """Return a narrower bracket, from costs that need no grid: cheap, and never the smallest."""
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
    # Renyi costs may rise with the noise, where orders are searched for.
    return (bottom, top) if fits or excess(top) <= 0.0 else (low, high)
