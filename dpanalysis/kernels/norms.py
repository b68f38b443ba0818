"""Norms of the rows of a dense matrix, for data whose norms are too many to be kept."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit, prange

from .scalar import EXACT, FAST

# Compiled with scalar.py, sha256 bf3f66e93e22f545

__all__ = ["norms_parallel", "norms_range"]

_TASK_ROWS = 1 << 14
# Between these no square of an entry that matters has left the normal numbers.
_SMALL, _LARGE = 1e-280, 1e300


@njit(**EXACT)  # a reciprocal of the largest entry would overflow where that is tiny
def _careful(x: Any) -> float:
    """Return the L2 norm of a row whose squares may not be normal numbers."""
    largest = 0.0
    for j in range(x.shape[0]):
        size = abs(np.float64(x[j]))
        largest = largest if size < largest else size  # NaN passes
    unit = largest if largest > 0.0 else 1.0
    total = 0.0
    for j in range(x.shape[0]):
        size = np.float64(x[j]) / unit
        total += size * size
    return largest * math.sqrt(total)


@njit(**FAST)
def norms_range(X: Any, order: int, lo: int, hi: int, out: Any) -> None:
    """Write the norms of order 1 or 2 of the rows ``lo..hi``, safe from overflow."""
    d = X.shape[1]
    for i in range(lo, hi):
        x = X[i]
        total = 0.0
        if order == 1:
            for j in range(d):
                total += abs(np.float64(x[j]))
        else:
            for j in range(d):
                size = np.float64(x[j])
                total += size * size
            total = math.sqrt(total) if _SMALL < total < _LARGE else _careful(x)
        out[i] = total


@njit(parallel=True, **FAST)
def norms_parallel(X: Any, order: int, out: Any) -> None:
    """Do that for all rows, by all threads."""
    for t in prange((X.shape[0] + _TASK_ROWS - 1) // _TASK_ROWS):
        norms_range(X, order, t * _TASK_ROWS, min(X.shape[0], (t + 1) * _TASK_ROWS), out)
