"""Sums over the rows of a dense C-ordered matrix.

One pass over ``X`` gives the sum of the losses, the sum of the (clipped) gradients and
the number of clipped samples, by tiles of rows that stay in cache: predictions, then the losses
of the tile in vector registers, then the gradient.

A row's prediction and coefficient depend on that row alone, to the last bit: not on its place,
on the other rows or on the number of threads. A row that has grown since it was bounded adds
nothing: :mod:`dpanalysis.kernels.norms`. The terms are added up by blocks of rows; see
:mod:`dpanalysis.kernels.rounding`.

``rows`` selects rows in place, without a copy, when ``indexed``; ``scale``, ``norms`` and
``weights`` have one entry per row of ``X`` or are empty (then 1).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .._numba import FAST, finish, first_task, next_task, njit
from .norms import count_doubtful, is_doubtful, is_inside
from .rounding import BLOCK_ROWS
from .tile import LINE_BYTES, SCALE, fill_tile, new_tile, prefetch, scale_terms, terms_at

# Entries of X in a tile: half of a first-level cache, or less where the next tile is prefetched.
_TILE_ENTRIES, _FAR_TILE_ENTRIES = 4096, 2048
_NEAR_BYTES = 1 << 23  # smaller data stay in a cache that is fast enough without prefetching
_PAGE_BYTES = 4096  # longer rows are prefetched by the processor


@njit(**FAST)
def dense_range(
    X: Any,
    samples: Any,
    rows: Any,
    indexed: bool,
    lo: int,
    hi: int,
    w: Any,
    terms: int,
    numbers: Any,
    want_value: int,
    want_gradient: int,
    gradient: Any,
    careful: bool,
) -> Any:
    """Add the gradients of positions ``lo..hi`` to ``gradient``; return value, clipped, grown.

    ``grown`` is the number of rows outside their limits; if ``careful`` they are left out, and it
    is 0.
    """
    y, scale, norms, weights, limits = samples
    d = X.shape[1]
    far = X.shape[0] * d * X.itemsize > _NEAR_BYTES and d * X.itemsize <= _PAGE_BYTES
    rows_of_tile = (_FAR_TILE_ENTRIES if far else _TILE_ENTRIES) // d
    size = max(4, min(256, rows_of_tile - rows_of_tile % 8))
    line = LINE_BYTES // X.itemsize
    last = hi - size - 3 if far else lo  # nothing is prefetched from here on
    tile = new_tile(size)
    index, table = tile
    z = np.empty(size)
    c = np.empty(size)
    known = norms.shape[0] > 0 and limits[2] < math.inf
    sized, squared = limits[0] < math.inf, known or limits[1] < math.inf
    sizes, squares, row = np.empty(size), np.empty(size), np.empty(d, X.dtype)
    grown = 0
    # The sum of a block of rows, and the sum of all earlier blocks.
    many = want_gradient and hi - lo > BLOCK_ROWS
    block = np.zeros(d) if many else gradient
    block_value = value = 0.0
    room = BLOCK_ROWS
    clipped = 0
    for start in range(lo, hi, size):
        m = min(size, hi - start)
        fill_tile(y, scale, norms, weights, rows, indexed, start, m, tile)
        # Multiples of four, so that a row has the same bits at every place.
        quads = m + -m % 4
        for k in range(m, quads):
            index[k] = index[m - 1]
            c[k] = 0.0
        for k in range(0, quads, 4):  # four rows at a time: w is loaded once for four
            x0, x1, x2, x3 = X[index[k]], X[index[k + 1]], X[index[k + 2]], X[index[k + 3]]
            s0 = s1 = s2 = s3 = 0.0
            for j in range(d):
                s0 += x0[j] * w[j]
                s1 += x1[j] * w[j]
                s2 += x2[j] * w[j]
                s3 += x3[j] * w[j]
            z[k], z[k + 1], z[k + 2], z[k + 3] = s0, s1, s2, s3
            if start + k < last:  # the same rows of the next tile
                ahead = start + size + k
                for q in range(ahead, ahead + 4):
                    i = rows[q] if indexed else q
                    for j in range(0, d, line):
                        prefetch(X, i, j)  # type: ignore[call-arg]
        for k in range(m):
            z[k] *= table[SCALE, k]
        part, count = terms_at(terms, numbers, want_value, want_gradient, z, 0, table, m, c)
        block_value += part
        clipped += count
        if want_gradient:
            scale_terms(table, c, m)
            if careful:
                for k in range(m):
                    row[:] = X[index[k]]
                    if is_inside(row, k, table, limits, known):
                        for j in range(d):
                            block[j] += c[k] * row[j]
            elif squared:  # squares of the very numbers that are added
                for k in range(0, quads, 4):
                    x0, x1, x2, x3 = X[index[k]], X[index[k + 1]], X[index[k + 2]], X[index[k + 3]]
                    c0, c1, c2, c3 = c[k], c[k + 1], c[k + 2], c[k + 3]
                    s0 = s1 = s2 = s3 = 0.0
                    for j in range(d):
                        block[j] += c0 * x0[j] + c1 * x1[j] + c2 * x2[j] + c3 * x3[j]
                        s0 += np.float64(x0[j]) * np.float64(x0[j])
                        s1 += np.float64(x1[j]) * np.float64(x1[j])
                        s2 += np.float64(x2[j]) * np.float64(x2[j])
                        s3 += np.float64(x3[j]) * np.float64(x3[j])
                    squares[k], squares[k + 1], squares[k + 2], squares[k + 3] = s0, s1, s2, s3
            else:
                for k in range(0, quads, 4):
                    x0, x1, x2, x3 = X[index[k]], X[index[k + 1]], X[index[k + 2]], X[index[k + 3]]
                    c0, c1, c2, c3 = c[k], c[k + 1], c[k + 2], c[k + 3]
                    for j in range(d):
                        block[j] += c0 * x0[j] + c1 * x1[j] + c2 * x2[j] + c3 * x3[j]
            if sized and not careful:
                for k in range(0, quads, 4):
                    x0, x1, x2, x3 = X[index[k]], X[index[k + 1]], X[index[k + 2]], X[index[k + 3]]
                    s0 = s1 = s2 = s3 = 0.0
                    for j in range(d):
                        s0 += abs(np.float64(x0[j]))
                        s1 += abs(np.float64(x1[j]))
                        s2 += abs(np.float64(x2[j]))
                        s3 += abs(np.float64(x3[j]))
                    sizes[k], sizes[k + 1], sizes[k + 2], sizes[k + 3] = s0, s1, s2, s3
            if not careful and count_doubtful(sizes, squares, table, limits, known, m):
                for k in range(m):
                    if is_doubtful(sizes[k], squares[k], k, table, limits, known):
                        grown += 0 if is_inside(X[index[k]], k, table, limits, known) else 1
        room -= m
        if room < size or start + m == hi:
            room = BLOCK_ROWS
            value += block_value
            block_value = 0.0
            if many:
                for j in range(d):
                    gradient[j] += block[j]
                    block[j] = 0.0
    return value, clipped, grown


@njit(**FAST)
def dense_tasks(
    X: Any,
    samples: Any,
    rows: Any,
    indexed: bool,
    tasks: Any,
    W: Any,
    terms: int,
    numbers: Any,
    want_value: int,
    want_gradient: int,
    values: Any,
    gradients: Any,
    clipped: Any,
    queue: Any,
    wake_flags: Any,
    helper: int,
) -> None:
    """Run tasks ``(replicate, lo, hi)`` from the queue; each has a row of the outputs."""
    t = first_task(queue, wake_flags, helper)
    while t < tasks.shape[0]:
        for careful in range(2):
            values[t], clipped[t], grown = dense_range(
                X,
                samples,
                rows,
                indexed,
                tasks[t, 1],
                tasks[t, 2],
                W[tasks[t, 0]],
                terms,
                numbers,
                want_value,
                want_gradient,
                gradients[t],
                careful > 0,
            )
            if grown == 0:
                break
            gradients[t, :] = 0.0
        t = next_task(queue)
    finish(queue, tasks.shape[0], wake_flags, helper)
