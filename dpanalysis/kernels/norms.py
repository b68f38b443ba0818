"""Norms of rows, and the check that the rows of a sum are still within their bounds.

Multipliers and norms are computed when the data are checked, but the owner of the data may write
to them later: between two sums of one run, or during a sum. So a kernel adds up the absolute
values or the squares of a row's entries in the loop that adds the row, or next to it. If a row has
grown, its task is repeated row by row: each row is copied and measured, and the copy is added only
if it is inside its limits. A row that has grown then adds exactly zero, and all others the same as
without it, except for the order of additions. If none has grown, sums are the same to the last bit
as without the check.

The ``limits`` of a row are bounds on its L1 and L2 norms after its multiplier, infinite if there
are none, and a multiple of its stored norm (if ``known``).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import uint64

from .._numba import EXACT, FAST, INNER, finish, first_task, next_task, njit
from .._parallel import run_tasks
from .tile import NORM, SCALE

_TASK_ROWS = 1 << 14
# Sums of squares between the first two are accurate: no relevant square was subnormal or infinite,
# nor did two multipliers make one subnormal if the result is above the third.
_SMALL, _LARGE, _SMALL_SCALED = 1e-280, 1e300, 1e-290
# With squares below _SMALL a row is shorter than the first, and negligible times the second.
_NO_TINY_LIMIT, _USUAL = 1e-130, 1e60


@njit(**EXACT)  # the reciprocal of a tiny largest entry would overflow
def careful_norm(x: Any) -> float:
    """Return the L2 norm of a row whose squares may not be normal numbers."""
    largest = 0.0
    for j in range(x.shape[0]):
        size = abs(np.float64(x[j]))
        largest = largest if size < largest else size  # NaN is kept
    unit = largest if largest > 0.0 else 1.0
    total = 0.0
    for j in range(x.shape[0]):
        size = np.float64(x[j]) / unit
        total += size * size
    return largest * math.sqrt(total)


@njit(**INNER)
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
def _norms_tasks(X: Any, order: int, out: Any, queue: Any, wake_flags: Any, helper: int) -> None:
    n = X.shape[0]
    tasks = (n + _TASK_ROWS - 1) // _TASK_ROWS
    t = first_task(queue, wake_flags, helper)
    while t < tasks:
        _norms_range(X, order, t * _TASK_ROWS, min(n, (t + 1) * _TASK_ROWS), out)
        t = next_task(queue)
    finish(queue, tasks, wake_flags, helper)


def norms(X: np.ndarray, order: int) -> np.ndarray:
    """Return the norms of the rows, computed by all threads."""
    X = X.view()
    X.flags.writeable = False  # kernels are compiled for one type only
    out = np.empty(X.shape[0])
    run_tasks(_norms_tasks, (X, order, out), -(-X.shape[0] // _TASK_ROWS))
    return out


@njit(forceinline=True, **INNER)
def _is_short(square: float, scale: float, limit: float) -> bool:
    """Return whether a row with this sum of squares has an L2 norm certainly within the limit."""
    scaled = square * scale * scale
    normal = (square > _SMALL) & (square < _LARGE) & (scaled > _SMALL_SCALED)
    return normal & (scaled <= limit * limit)


@njit(forceinline=True, **INNER)
def count_grown(
    sizes: Any, squares: Any, c: Any, table: Any, limits: Any, known: bool, count: int
) -> int:
    """Return how many limits are not certainly satisfied by a tile's rows; NaN satisfies none."""
    # From the very numbers that were added, times ``c``: the row may have changed since.
    large = long = 0
    if limits[0] < math.inf:
        for k in range(uint64(count)):
            large += 0 if sizes[k] * table[SCALE, k] <= limits[0] else 1
    if known:
        for k in range(uint64(count)):
            limit = limits[2] * table[NORM, k]
            long += 0 if _is_short(squares[k], table[SCALE, k], limit) else 1
    elif limits[1] < math.inf:
        for k in range(uint64(count)):
            long += 0 if _is_short(squares[k], table[SCALE, k], limits[1]) else 1
    if long and limits[1] >= _NO_TINY_LIMIT:
        for k in range(count):  # rows of zeros, or of tiny numbers, added less than 1e-79
            long -= 1 if (squares[k] <= _SMALL) & (abs(c[k]) < _USUAL) else 0
    return large + long


@njit(**INNER)
def is_inside(x: Any, k: int, table: Any, limits: Any, known: bool) -> bool:
    """Return whether row ``k`` of a tile, with the entries ``x``, is within its limits."""
    scale, total = table[SCALE, k], 0.0
    limit = limits[2] * table[NORM, k] if known else limits[1]
    for j in range(x.shape[0]):
        total += abs(np.float64(x[j]))
    # One of the limits is finite, or no row would be asked about; NaN satisfies neither.
    return (total * scale <= limits[0]) & (careful_norm(x) * scale <= limit)


@njit(**INNER)
def empty_rows_outside(
    x: Any, width: int, d: int, table: Any, limits: Any, known: bool, count: int, sums: Any
) -> None:
    """Set the rows of a tile that are outside their limits to zero.

    Entry j of row k is ``x[j * width + k]``, a scaled copy. ``sums``, (2, width), is overwritten.
    """
    sums[:, :] = 0.0
    for j in range(d):
        base = uint64(j * width)
        for k in range(uint64(width)):
            size = x[base + k]
            sums[0, k] += abs(size)
            sums[1, k] += size * size
    row = np.empty(d)
    for k in range(count):
        limit = limits[2] * table[NORM, k] if known else limits[1]
        if sums[0, k] <= limits[0] and (limit == math.inf or _is_short(sums[1, k], 1.0, limit)):
            continue
        for j in range(d):
            row[j] = x[j * width + k]
        if not (sums[0, k] <= limits[0] and careful_norm(row) <= limit):
            for j in range(d):
                x[j * width + k] = 0.0
