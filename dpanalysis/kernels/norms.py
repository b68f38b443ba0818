"""Norms of the rows of a dense matrix, by all threads."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from .crew import share
from .scalar import EXACT, FAST
from .turns import begin, go_on, leave

# Compiled with scalar.py, sha256 6943957e836d8dd8
# Compiled with turns.py, sha256 66c80a357f4c812e

__all__ = ["careful_norm", "norms"]

_TASK_ROWS = 1 << 14
# Between these no square of an entry that matters has left the normal numbers.
_SMALL, _LARGE = 1e-280, 1e300


@njit(**EXACT)  # a reciprocal of the largest entry would overflow where that is tiny
def careful_norm(x: Any) -> float:
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
def _norms_range(X: Any, order: int, lo: int, hi: int, out: Any) -> None:
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
            total = math.sqrt(total) if _SMALL < total < _LARGE else careful_norm(x)
        out[i] = total


@njit(**FAST)
def _norms_tasks(X: Any, order: int, out: Any, turns: Any, bells: Any, helper: int) -> None:
    n = X.shape[0]
    tasks = (n + _TASK_ROWS - 1) // _TASK_ROWS
    t = begin(turns, bells, helper)
    while t < tasks:
        _norms_range(X, order, t * _TASK_ROWS, min(n, (t + 1) * _TASK_ROWS), out)
        t = go_on(turns)
    leave(turns, tasks, bells, helper)


def norms(X: np.ndarray, order: int) -> np.ndarray:
    """Return the norms of the rows, by all threads.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        C-ordered, float32 or float64.
    order : int
        1 or 2.

    Returns
    -------
    ndarray of shape (n,)
    """
    X = X.view()
    X.flags.writeable = False  # kernels are compiled for one type only
    out = np.empty(X.shape[0])
    share(_norms_tasks, (X, order, out), -(-X.shape[0] // _TASK_ROWS))
    return out
