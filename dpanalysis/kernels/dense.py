"""Sums over the rows of a dense C-ordered matrix.

One pass over ``X`` gives the sum of the losses, the sum of the (clipped) gradients and
the number of clipped samples, by tiles of rows that stay in cache: predictions, then the losses
of the tile in vector registers, then the gradient (:mod:`dpanalysis.kernels.vectors`).

A row's prediction and coefficient depend on that row alone, to the last bit: not on its position,
the other rows or the number of threads. A row that has grown since it was bounded adds zero; see
:mod:`dpanalysis.kernels.norms`. The terms are added up by blocks of rows; see
:mod:`dpanalysis.kernels.rounding`.

``data`` is ``(X, samples, rows, indexed)``: ``rows`` selects rows in place, without a copy, when
``indexed``; ``samples`` is ``(y, scale, norms, weights, limits)``, whose ``scale``, ``norms`` and
``weights`` have one entry per row of ``X`` or are empty (then 1). ``wanted`` has the address and
the numbers of the formulas, and flags for values and gradients.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import uint64

from .._numba import FAST, INNER, borrowed, finish, first_task, next_task, njit
from . import SHARED_BLOCK
from .norms import count_grown, empty_rows_outside, is_inside
from .rounding import BLOCK_ROWS
from .tile import SCALE, close_block, fill_tile, new_tile, scale_terms, terms_at
from .vectors import LANES, add_rows, predict

# Fixed, not tuned to the machine: tiles determine the blocks of a sum, and blocks its last bits.
# Entries of X in a tile of narrow rows: a first-level cache, or half of it for larger data. Tiles
# of fewer than 64 rows are slower, whatever the cache.
_TILE_ENTRIES, _FAR_TILE_ENTRIES, _FEWEST_ROWS = 4096, 2048, 64
_NEAR_BYTES = 1 << 23  # smaller data stay in a cache that is fast enough without prefetching


@njit(**INNER)
def _copy(X: Any, i: int, row: Any) -> None:
    """Copy a row of the matrix, since another thread may write to it while it is measured."""
    for j in range(row.shape[0]):
        row[j] = X[i, j]


@njit(**INNER)
def dense_range(
    data: Any, lo: int, hi: int, w: Any, wanted: Any, gradient: Any, careful: bool
) -> Any:
    """Add the gradients of positions ``lo..hi`` to ``gradient``; return value, clipped, grown."""
    # ``grown`` counts the rows outside their limits; if ``careful``, it is 0 and they are left out.
    X, samples, rows, indexed = borrowed(data)
    _, _, norms, _, limits = samples
    terms, numbers, want_value, want_gradient = wanted
    d = X.shape[1]
    far = X.shape[0] * d * X.itemsize > _NEAR_BYTES
    # Whether predictions prefetch all rows: no pass follows, or the rows are scattered.
    alone = indexed or not want_gradient
    rows_of_tile = (_FAR_TILE_ENTRIES if far else _TILE_ENTRIES) // d
    size = max(_FEWEST_ROWS, min(256, rows_of_tile - rows_of_tile % 8))
    tile = new_tile(size)
    index, table = tile
    ahead = np.empty(size, np.int64)
    z = np.empty(size)
    c = np.empty(size)
    known = norms.shape[0] > 0 and limits[2] < math.inf
    sized = limits[0] < math.inf
    sizes, squares, row = np.empty(size), np.empty(size), np.empty(d, X.dtype)
    grown = 0
    # The weights and the sum of a block of rows, in whole vectors.
    v, block = np.zeros(d + -d % LANES), np.zeros(d + -d % LANES)
    for j in range(d):  # not a slice, whose error for unequal shapes takes long to compile
        v[j] = w[j]
    block_value = value = 0.0
    room = BLOCK_ROWS
    clipped = 0
    for start in range(lo, hi, size):
        m = min(size, hi - start)
        fill_tile(samples, rows, indexed, start, m, tile)
        # Padded to a multiple of four, so that a row gives the same bits at every position.
        quads = m + -m % 4
        for k in range(m, quads):
            index[k] = index[m - 1]
            c[k] = 0.0
        more = far and start + m < hi
        shared = more and not alone
        if more:
            for k in range(quads):  # the rows of the next tile
                q = min(start + m + k, hi - 1)
                ahead[k] = rows[q] if indexed else q
        predict(X, index, quads, v, z, more, ahead, alone)
        for k in range(m):
            z[k] *= table[SCALE, k]
        part, count = terms_at(terms, numbers, want_value, want_gradient, z, 0, table, m, c)
        block_value += part
        clipped += count
        if want_gradient:
            scale_terms(table, c, m)
            if careful:
                for k in range(m):
                    _copy(X, index[k], row)
                    if is_inside(row, k, table, limits, known):
                        for j in range(d):
                            block[j] += c[k] * row[j]
            else:
                add_rows(X, index, quads, c, block, squares, sizes, sized, shared, ahead)
                grown += count_grown(sizes, squares, c, table, limits, known, m)
        room -= m
        if room < size or start + m == hi:
            room = BLOCK_ROWS
            value += block_value
            block_value = 0.0
            if want_gradient:
                close_block(block, gradient)
    return value, clipped, grown


@njit(**FAST)
def dense_tasks(
    data: Any, tasks: Any, W: Any, wanted: Any, sums: Any, queue: Any, wake_flags: Any, helper: int
) -> None:
    """Run tasks ``(replicate, lo, hi)`` from the queue; each has a row of the outputs."""
    values, gradients, clipped = sums
    t = first_task(queue, wake_flags, helper)
    while t < tasks.shape[0]:
        for careful in range(2):
            values[t], clipped[t], grown = dense_range(
                data, tasks[t, 1], tasks[t, 2], W[tasks[t, 0]], wanted, gradients[t], careful > 0
            )
            if grown == 0:
                break
            gradients[t, :] = 0.0
        t = next_task(queue)
    finish(queue, tasks.shape[0], wake_flags, helper)


# One pass for all replicates. The matrix is too thin for a fast matrix product. Instead a tile of
# rows is transposed once, all replicates use it while it is in cache, and every inner loop runs
# along the rows of the tile, in vector registers, for a block of four features by four replicates.
#
# A transposed tile is flat, feature j at j * T .. (j + 1) * T, and indexed by unsigned integers:
# constant offsets of one pointer cannot overlap, and an unsigned index cannot be negative, so the
# compiler vectorizes the loops.

_T = 128  # rows of a tile
_T1, _T2, _T3 = np.uint64(_T), np.uint64(2 * _T), np.uint64(3 * _T)


@njit(**INNER)
def _transpose(X: Any, index: Any, factor: Any, count: int, x: Any) -> None:
    """Write the scaled rows ``index[:count]`` of ``X`` into the columns of the tile."""
    d = X.shape[1]
    quads = count - count % 4
    for k in range(0, quads, 4):
        x0, x1, x2, x3 = X[index[k]], X[index[k + 1]], X[index[k + 2]], X[index[k + 3]]
        f0, f1, f2, f3 = factor[k], factor[k + 1], factor[k + 2], factor[k + 3]
        for j in range(d):
            at = uint64(j * _T + k)
            x[at] = f0 * x0[j]
            x[at + uint64(1)] = f1 * x1[j]
            x[at + uint64(2)] = f2 * x2[j]
            x[at + uint64(3)] = f3 * x3[j]
    for k in range(quads, count):
        row = X[index[k]]
        for j in range(d):
            x[j * _T + k] = factor[k] * row[j]


@njit(**INNER)
def _predict(x: Any, W: Any, r: int, z: Any) -> None:
    """Write the predictions of replicates ``r .. r + 3``, a tile for each, into ``z``."""
    v0, v1, v2, v3 = W[r], W[r + 1], W[r + 2], W[r + 3]
    z[:] = 0.0
    for j in range(0, W.shape[1], SHARED_BLOCK):
        a0, a1, a2, a3 = v0[j], v0[j + 1], v0[j + 2], v0[j + 3]
        b0, b1, b2, b3 = v1[j], v1[j + 1], v1[j + 2], v1[j + 3]
        c0, c1, c2, c3 = v2[j], v2[j + 1], v2[j + 2], v2[j + 3]
        d0, d1, d2, d3 = v3[j], v3[j + 1], v3[j + 2], v3[j + 3]
        base = uint64(j * _T)
        for k in range(_T1):
            at = base + k
            x0, x1, x2, x3 = x[at], x[at + _T1], x[at + _T2], x[at + _T3]
            z[k] += a0 * x0 + a1 * x1 + a2 * x2 + a3 * x3
            z[k + _T1] += b0 * x0 + b1 * x1 + b2 * x2 + b3 * x3
            z[k + _T2] += c0 * x0 + c1 * x1 + c2 * x2 + c3 * x3
            z[k + _T3] += d0 * x0 + d1 * x1 + d2 * x2 + d3 * x3


@njit(**INNER)
def _add_gradients(x: Any, c: Any, r: int, gradients: Any) -> None:
    """Add the tile to the gradients of replicates ``r .. r + 3``."""
    y0, y1, y2, y3 = gradients[r], gradients[r + 1], gradients[r + 2], gradients[r + 3]
    for j in range(0, gradients.shape[1], SHARED_BLOCK):
        g00 = g01 = g02 = g03 = g10 = g11 = g12 = g13 = 0.0
        g20 = g21 = g22 = g23 = g30 = g31 = g32 = g33 = 0.0
        base = uint64(j * _T)
        for k in range(_T1):
            at = base + k
            x0, x1, x2, x3 = x[at], x[at + _T1], x[at + _T2], x[at + _T3]
            c0, c1, c2, c3 = c[k], c[k + _T1], c[k + _T2], c[k + _T3]
            g00 += c0 * x0
            g01 += c0 * x1
            g02 += c0 * x2
            g03 += c0 * x3
            g10 += c1 * x0
            g11 += c1 * x1
            g12 += c1 * x2
            g13 += c1 * x3
            g20 += c2 * x0
            g21 += c2 * x1
            g22 += c2 * x2
            g23 += c2 * x3
            g30 += c3 * x0
            g31 += c3 * x1
            g32 += c3 * x2
            g33 += c3 * x3
        for y, g0, g1, g2, g3 in (
            (y0, g00, g01, g02, g03),
            (y1, g10, g11, g12, g13),
            (y2, g20, g21, g22, g23),
            (y3, g30, g31, g32, g33),
        ):
            y[j] += g0
            y[j + 1] += g1
            y[j + 2] += g2
            y[j + 3] += g3


@njit(**INNER)
def replicates_range(
    data: Any, lo: int, hi: int, W: Any, wanted: Any, values: Any, gradients: Any, clipped: Any
) -> None:
    """Add the sums of positions ``lo..hi``, one row of the outputs for each row of ``W``.

    ``W`` and ``gradients`` are padded to whole blocks of features and of replicates.
    """
    X, samples, rows, indexed = borrowed(data)
    _, _, norms, _, limits = samples
    terms, numbers, want_value, want_gradient = wanted
    tile = new_tile(_T)
    index, table = tile
    x = np.zeros(W.shape[1] * _T)
    z = np.empty(SHARED_BLOCK * _T)
    c = np.zeros(SHARED_BLOCK * _T)
    known = norms.shape[0] > 0 and limits[2] < math.inf
    bounded = want_gradient and (known or min(limits[0], limits[1]) < math.inf)
    sums = np.empty((2, _T))
    # The sums of a block of rows, and the sums of all earlier blocks.
    many = hi - lo > BLOCK_ROWS
    block = np.zeros(gradients.shape) if many else gradients
    block_values = np.zeros(W.shape[0])
    room = BLOCK_ROWS
    for start in range(lo, hi, _T):
        m = min(_T, hi - start)
        fill_tile(samples, rows, indexed, start, m, tile)
        _transpose(X, index, table[SCALE], m, x)
        if bounded:
            empty_rows_outside(x, _T, X.shape[1], table, limits, known, m, sums)
        c[:] = 0.0  # clears coefficients of an earlier tile beyond row m
        for first in range(0, W.shape[0], SHARED_BLOCK):
            _predict(x, W, first, z)
            # Not range(SHARED_BLOCK), which would be unrolled.
            for r in range(min(SHARED_BLOCK, W.shape[0] - first)):
                part, count = terms_at(
                    terms, numbers, want_value, want_gradient, z, r * _T, table, m, c
                )
                block_values[first + r] += part
                clipped[first + r] += count
            if want_gradient:
                _add_gradients(x, c, first, block)
        room -= m
        if room < _T or start + m == hi:
            room = BLOCK_ROWS
            close_block(block_values, values)
            if many:
                for r in range(W.shape[0]):
                    close_block(block[r], gradients[r])


@njit(**FAST)
def replicates_tasks(
    data: Any, tasks: Any, W: Any, wanted: Any, sums: Any, queue: Any, wake_flags: Any, helper: int
) -> None:
    """Run tasks ``(0, lo, hi)`` from the queue; each has a row of the outputs."""
    values, gradients, clipped = sums
    t = first_task(queue, wake_flags, helper)
    while t < tasks.shape[0]:
        replicates_range(
            data, tasks[t, 1], tasks[t, 2], W, wanted, values[t], gradients[t], clipped[t]
        )
        t = next_task(queue)
    finish(queue, tasks.shape[0], wake_flags, helper)
