"""The smallest noise that fits a budget."""

from __future__ import annotations

import math
from collections.abc import Callable

from .._validation import check_number
from .accountant import Events, fits
from .relations import Budget

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
        Relative width at which the bisection stops, in (0, 1).
    accountant : {"tightest", "pure", "zcdp", "rdp", "pld"}

    Returns
    -------
    float
        The upper end of the last interval: it fits, and ``(1 - tol)`` times it does not,
        unless it is ``low``.

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
    low, high = bracket
    low = check_number("bracket[0]", low, low=0.0, low_open=True)
    high = check_number("bracket[1]", high, low=low, low_open=True)
    tol = check_number("tol", tol, low=0.0, high=1.0, low_open=True, high_open=True)
    if not fits(make_events(high), budget, accountant):
        raise ValueError(
            f"even the upper end of bracket = ({low:g}, {high:g}) does not fit {budget!r}: "
            "raise it, or the budget"
        )
    if fits(make_events(low), budget, accountant):
        return low
    while high > low * (1.0 + tol):
        middle = math.sqrt(low) * math.sqrt(high)
        if not low < middle < high:
            break
        if fits(make_events(middle), budget, accountant):
            high = middle
        else:
            low = middle
    return high
