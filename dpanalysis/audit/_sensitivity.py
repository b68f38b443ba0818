"""The largest change of a function over given pairs of neighbouring data sets."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .._validation import check_number, check_reals
from .empirical.neighbours import pairs_of

__all__ = ["sensitivity"]

_DRAWN = 1000  # pairs of a strategy


def sensitivity(
    function: Callable[[Any], Any],
    neighbours: Any,
    norm: float,
    *,
    full_output: bool = False,
) -> Any:
    """Return the largest norm of function(D) - function(D') over the pairs (D, D').

    The result is a lower bound on the sensitivity, and the sensitivity itself if the pairs are
    all that exist. A claimed bound that is smaller is refuted by the pair that was found.

    Parameters
    ----------
    function : callable
        D -> scalar or array of real numbers, of one shape for both members of a pair.
    neighbours : iterable of (dataset, neighbour), or Hypothesis strategy of such pairs
        At least one pair; data sets are whatever ``function`` takes. The first 1000 pairs of a
        strategy are tried, the same ones in every run.
    norm : float
        Order in [1, inf] of the vector norm, e.g. 1, 2 or ``math.inf``. All entries of an
        output count as one vector, so that the norm of a matrix is not its operator norm.
    full_output : bool, default=False
        Also return the pair where the largest change was found.

    Returns
    -------
    float
        At least 0.
    pair : tuple
        Only with ``full_output``.

    Raises
    ------
    TypeError, ValueError
        If ``norm`` is below 1, there is no pair, or an output is no finite real array or
        changes its shape; the message names the pair by its number, from 0.

    References
    ----------
    Chen and Lee (2020), Definition 4.

    Examples
    --------
    >>> pairs = [([0, 1, 1], [0, 1]), ([0, 1, 1], [1, 1])]
    >>> sensitivity(lambda data: np.bincount(data, minlength=2), pairs, norm=1)
    1.0
    """
    if not callable(function):
        raise TypeError(f"function must be callable, got {function!r}")
    order = check_number("norm", norm, low=1.0, finite=False)
    largest, worst = -math.inf, None
    for number, (first, second) in enumerate(pairs_of(neighbours, _DRAWN)):
        values = [
            _output(function, data, f"function(pair {number}[{side}])")
            for side, data in enumerate((first, second))
        ]
        if values[0].shape != values[1].shape:
            raise ValueError(
                f"function must return one shape for both data sets, pair {number} gave "
                f"{values[0].shape} and {values[1].shape}"
            )
        change = _norm(values[0] - values[1], order)
        if change > largest:
            largest, worst = change, (first, second)
    if worst is None:
        raise ValueError("neighbours must hold at least one pair, got none")
    return (largest, worst) if full_output else largest


def _output(function: Callable[[Any], Any], data: Any, name: str) -> np.ndarray:
    value = check_reals(name, function(data))
    bad = value.size - int(np.count_nonzero(np.isfinite(value)))
    if bad:
        raise ValueError(f"{name} must be finite, got {bad} NaN or infinite entries in {value!r}")
    return value


def _norm(change: np.ndarray, order: float) -> float:
    size = np.abs(change).ravel()
    top = float(size.max(initial=0.0))
    if top == 0.0 or math.isinf(order):
        return top
    # Relative to the largest entry, so that no power overflows.
    return top * float(np.sum((size / top) ** order)) ** (1.0 / order)
