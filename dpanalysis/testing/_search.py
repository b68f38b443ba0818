"""Where to look at a function of one number, and how steep it is there."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

__all__ = ["labels_of", "margins", "quotients"]


def labels_of(loss: Any) -> list[float]:
    """Return labels to try."""
    return [-1.0, 1.0] if loss.classification else [-30.0, -1.0, 0.0, 0.7, 1.0, 30.0]


@cache
def _margins() -> np.ndarray:
    sizes = np.concatenate([np.logspace(-9, 3, 241), np.linspace(0.0, 12.0, 4801)[1:]])
    sizes = np.concatenate([sizes, np.linspace(12.0, 60.0, 961), 1.0 + np.logspace(-6, -1, 21)])
    return np.unique(np.concatenate([-sizes, [0.0], sizes]))


def margins() -> np.ndarray:
    """Return predictions to try, sorted: of all sizes, and close together up to 60."""
    return _margins().copy()


def quotients(formula: Callable[[Any], Any], bound: float, finest: float) -> tuple[float, float]:
    """Search for the largest change of a function for a unit of its argument, and its place.

    On the grid first, then by halving the steepest intervals: where the function jumps the
    quotient grows without an end, so that a jump passes any finite bound. For a bound of inf
    there is nothing to find. ``finest`` is the shortest interval, relative to where it is:
    below, rounding is larger.
    """
    if not np.isfinite(bound):
        return 0.0, 0.0
    z = margins()
    wide = np.diff(z) > finest
    low, high = z[:-1][wide], z[1:][wide]
    best, place = 0.0, 0.0
    for _ in range(14):
        first, last = np.asarray(formula(low)), np.asarray(formula(high))
        width = high - low
        rounding = 4e-16 * np.maximum(np.abs(first), np.abs(last))
        slopes = (np.abs(last - first) - 4.0 * rounding) / width
        slopes = np.where(np.isfinite(slopes), slopes, 0.0)
        k = int(np.argmax(slopes))
        if slopes[k] > best:
            best, place = float(slopes[k]), float(0.5 * (low[k] + high[k]))
        steepest = np.argsort(slopes)[-40:]
        steepest = steepest[width[steepest] > 2.0 * finest * np.maximum(1.0, np.abs(low[steepest]))]
        if not len(steepest):
            break
        middle = 0.5 * (low[steepest] + high[steepest])
        low, high = (
            np.concatenate([low[steepest], middle]),
            np.concatenate([middle, high[steepest]]),
        )
    return best, place
