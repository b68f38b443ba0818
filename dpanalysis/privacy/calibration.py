"""The smallest noise that fits a budget."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np

from .._validation import check_number
from .accountant import Events, spent
from .relations import Budget, check_budget

__all__ = ["calibrate"]


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
        Relative accuracy of the parameter, in (0, 1).
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
    def excess(log_parameter: float) -> float:
        cost = spent(make_events(math.exp(log_parameter)), budget, accountant)
        # Costs are near to power laws of the noise; logarithms make the search short.
        return float(np.log(np.clip(cost / budget.limit, 1e-20, 1e20)))

    if excess(math.log(high)) > 0.0:
        raise ValueError(
            f"even the upper end of bracket = ({low:g}, {high:g}) does not fit {budget!r}: "
            "raise it, or the budget"
        )
    if excess(math.log(low)) <= 0.0:
        return low
    step = 0.25 * tol
    ends = math.log(low), math.log(high)
    root = float(optimize.toms748(excess, *ends, xtol=step, rtol=1e-14))
    # What is returned must fit: walk up from the root, with doubling steps.
    while excess(root) > 0.0:
        root, step = min(root + step, ends[1]), 2.0 * step
    return math.exp(root)
