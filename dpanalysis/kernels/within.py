"""Whether the rows that a sum adds are within what was bounded, at the time when it adds them.

Multipliers and norms were computed when the data were checked, and whoever holds the data may
write to them since: between two sums of one run, or while a sum is computed. So a kernel adds up
the sizes or the squares of a row's entries in the loop that adds the row, or just beside it. Where
a row has grown, its task is done once more, row by row: each is copied and measured, and the copy
is added only if it is inside. A row that has grown then adds exactly zero, and all others what
they would without it, but for the order of additions. Where none has grown, sums are the same to
the last bit as without a look.

What a row may be is in ``limits``: bounds on its L1 and on its L2 norm after its multiplier,
infinite where there are none, and how many times the norm that was kept of it (``known``).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit, uint64

from .norms import careful_norm
from .scalar import FAST
from .tile import NORM, SCALE

# Compiled with norms.py, sha256 a233b2a832218a4c
# Compiled with scalar.py, sha256 6943957e836d8dd8
# Compiled with tile.py, sha256 e46d6b790b3ebabe

__all__ = ["count_doubtful", "empty_rows_outside", "is_doubtful", "is_inside"]

# Between the first two no square that matters has left the normal numbers, nor has it after two
# multipliers that leave it above the third.
_SMALL, _LARGE, _SMALL_SCALED = 1e-280, 1e300, 1e-290


@njit(forceinline=True, **FAST)
def _is_short(square: float, scale: float, limit: float) -> bool:
    """Whether the L2 norm of a row with this sum of squares is within the limit for certain."""
    scaled = square * scale * scale
    normal = (square > _SMALL) & (square < _LARGE) & (scaled > _SMALL_SCALED)
    return normal & (scaled <= limit * limit)


@njit(forceinline=True, **FAST)
def count_doubtful(
    sizes: Any, squares: Any, table: Any, limits: Any, known: bool, count: int
) -> int:
    """Return in how many ways rows of a tile are not within a limit for certain; NaN is not."""
    doubtful = 0
    if limits[0] < math.inf:
        for k in range(uint64(count)):
            doubtful += 0 if sizes[k] * table[SCALE, k] <= limits[0] else 1
    if known:
        for k in range(uint64(count)):
            limit = limits[2] * table[NORM, k]
            doubtful += 0 if _is_short(squares[k], table[SCALE, k], limit) else 1
    elif limits[1] < math.inf:
        for k in range(uint64(count)):
            doubtful += 0 if _is_short(squares[k], table[SCALE, k], limits[1]) else 1
    return doubtful


@njit(**FAST)
def is_doubtful(size: float, square: float, k: int, table: Any, limits: Any, known: bool) -> bool:
    """Whether row ``k`` is one of those."""
    scale = table[SCALE, k]
    limit = limits[2] * table[NORM, k] if known else limits[1]
    long = limit < math.inf and not _is_short(square, scale, limit)
    return long or (limits[0] < math.inf and not size * scale <= limits[0])


@njit(**FAST)
def is_inside(x: Any, k: int, table: Any, limits: Any, known: bool) -> bool:
    """Whether row ``k`` of a tile, with the entries ``x``, is within its limits."""
    scale, total = table[SCALE, k], 0.0
    limit = limits[2] * table[NORM, k] if known else limits[1]
    for j in range(x.shape[0]):
        total += abs(np.float64(x[j]))
    # An infinite limit allows every finite norm, but none that is infinite or NaN.
    return (total * scale <= limits[0]) & (careful_norm(x) * scale <= limit) & (total < math.inf)


@njit(**FAST)
def empty_rows_outside(
    x: Any, width: int, d: int, table: Any, limits: Any, known: bool, count: int, sums: Any
) -> None:
    """Write zeros into those rows of a tile that are outside their limits.

    Entry j of row k is ``x[j * width + k]``, a copy, and has its multiplier. ``sums`` has two rows
    of as many numbers, which are overwritten.
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
