"""Sums over the rows of a CSR matrix; see :mod:`dpanalysis.kernels.dense`.

The matrix is the tuple ``(data, indices, indptr)``. Its indices are read as unsigned: the
check for negative ones would double the time of a pass. A block has up to ``max(BLOCK_ROWS, d)``
rows: clearing a block's sum must cost less than filling it.

Rows of a batch lie far apart, and the processor cannot foresee which comes next: each is prefetched
:data:`_AHEAD` rows before its use.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import types, uint64
from numba.extending import intrinsic

from .._numba import FAST, INNER, borrowed, finish, first_task, next_task, njit
from .norms import count_grown, is_inside
from .rounding import BLOCK_ROWS
from .tile import SCALE, close_block, fill_tile, new_tile, scale_terms, terms_at
from .vectors import prefetch_line

_TILE_ROWS, _SHARED_TILE_ROWS = 64, 256  # read again from the caches L1 and L2
_AHEAD = 16
_PREFETCHED = 512  # entries; the processor itself prefetches the rest of a longer row
_ONE, _TWO, _THREE, _FOUR = np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(4)


@njit(forceinline=True, **INNER)
def _product(entries: Any, indices: Any, first: Any, last: Any, w: Any) -> float:
    """Return the product of a row and ``w``, by four independent sums."""
    s0 = s1 = s2 = s3 = 0.0
    e = first
    while e + _THREE < last:
        s0 += entries[e] * w[uint64(indices[e])]
        s1 += entries[e + _ONE] * w[uint64(indices[e + _ONE])]
        s2 += entries[e + _TWO] * w[uint64(indices[e + _TWO])]
        s3 += entries[e + _THREE] * w[uint64(indices[e + _THREE])]
        e += _FOUR
    while e < last:
        s0 += entries[e] * w[uint64(indices[e])]
        e += _ONE
    return (s0 + s1) + (s2 + s3)


@njit(forceinline=True, **INNER)
def _add_row(
    entries: Any, indices: Any, first: Any, last: Any, c: float, block: Any, sized: bool
) -> Any:
    """Add a row times ``c`` to ``block``; return the sums of its sizes, if wanted, and squares."""
    size = square = square1 = square2 = square3 = 0.0
    e = first
    while e + _THREE < last:
        x0, x1 = np.float64(entries[e]), np.float64(entries[e + _ONE])
        x2, x3 = np.float64(entries[e + _TWO]), np.float64(entries[e + _THREE])
        block[uint64(indices[e])] += c * x0
        block[uint64(indices[e + _ONE])] += c * x1
        block[uint64(indices[e + _TWO])] += c * x2
        block[uint64(indices[e + _THREE])] += c * x3
        if sized:
            size += (abs(x0) + abs(x1)) + (abs(x2) + abs(x3))
        square += x0 * x0
        square1 += x1 * x1
        square2 += x2 * x2
        square3 += x3 * x3
        e += _FOUR
    while e < last:
        x0 = np.float64(entries[e])
        block[uint64(indices[e])] += c * x0
        if sized:
            size += abs(x0)
        square += x0 * x0
        e += _ONE
    return size, (square + square1) + (square2 + square3)


@intrinsic
def _prefetch_entry(typingctx: Any, array: Any, place: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        view = context.make_array(signature.args[0])(context, builder, args[0])
        prefetch_line(builder, builder.gep(view.data, [args[1]]))
        return context.get_dummy_value()

    return types.void(array, types.uint64), codegen


#: Typed as Any: the signature of an intrinsic is not that of its calls.
_prefetch: Any = _prefetch_entry


@njit(forceinline=True, **INNER)
def _prefetch_row(matrix: Any, rows: Any, place: int, end: int) -> None:
    """Prefetch the row that is used :data:`_AHEAD` rows after position ``place``."""
    if place + _AHEAD >= end:
        return
    entries, indices, indptr = matrix
    i = uint64(rows[place + _AHEAD])
    first, last = uint64(indptr[i]), uint64(indptr[i + _ONE])
    last = min(last, first + uint64(_PREFETCHED))
    for e in range(first, last, uint64(8)):  # entries of 8 bytes in a cache line
        _prefetch(entries, e)
        _prefetch(indices, e)
    if first < last:
        _prefetch(entries, last - _ONE)
        _prefetch(indices, last - _ONE)


@njit(**INNER)
def csr_range(
    data: Any, lo: int, hi: int, w: Any, wanted: Any, gradient: Any, careful: bool
) -> Any:
    """Add gradients like :func:`~dpanalysis.kernels.dense.dense_range`."""
    matrix, samples, rows, indexed = borrowed(data)
    _, _, norms, _, limits = samples
    terms, numbers, want_value, want_gradient = wanted
    entries, indices, indptr = matrix
    size = _TILE_ROWS
    tile = new_tile(size)
    index, table = tile
    z = np.empty(size)
    c = np.empty(size)
    known = norms.shape[0] > 0 and limits[2] < math.inf
    sized = limits[0] < math.inf
    bounded = sized or known or limits[1] < math.inf
    sizes, squares = np.empty(size), np.empty(size)
    grown = 0
    # The sum of a block of rows, and the sum of all earlier blocks.
    most = max(BLOCK_ROWS, w.shape[0])
    many = want_gradient and hi - lo > most
    block = np.zeros(w.shape[0]) if many else gradient
    block_value = value = 0.0
    room = most
    clipped = 0
    for start in range(lo, hi, size):
        m = min(size, hi - start)
        fill_tile(samples, rows, indexed, start, m, tile)
        for k in range(m):
            if indexed:
                _prefetch_row(matrix, rows, start + k, hi)
            i = uint64(index[k])
            first, last = uint64(indptr[i]), uint64(indptr[i + _ONE])
            z[k] = _product(entries, indices, first, last, w)
        for k in range(m):
            z[k] *= table[SCALE, k]
        part, count = terms_at(terms, numbers, want_value, want_gradient, z, 0, table, m, c)
        block_value += part
        clipped += count
        if want_gradient:
            scale_terms(table, c, m)
            for k in range(m):
                i, ck = uint64(index[k]), c[k]
                first, last = uint64(indptr[i]), uint64(indptr[i + _ONE])
                if careful:
                    row = entries[first:last].copy()
                    if is_inside(row, k, table, limits, known):
                        for entry in range(first, last):
                            block[uint64(indices[entry])] += ck * row[entry - first]
                    continue
                sizes[k], squares[k] = _add_row(entries, indices, first, last, ck, block, sized)
            if bounded and not careful:
                grown += count_grown(sizes, squares, c, table, limits, known, m)
        room -= m
        if room < size or start + m == hi:
            room = most
            value += block_value
            block_value = 0.0
            if many:
                close_block(block, gradient)
    return value, clipped, grown


@njit(**FAST)
def csr_tasks(
    data: Any, tasks: Any, W: Any, wanted: Any, sums: Any, queue: Any, wake_flags: Any, helper: int
) -> None:
    """Run tasks ``(replicate, lo, hi)`` from the queue; each has a row of the outputs."""
    values, gradients, clipped = sums
    t = first_task(queue, wake_flags, helper)
    while t < tasks.shape[0]:
        for careful in range(2):
            values[t], clipped[t], grown = csr_range(
                data, tasks[t, 1], tasks[t, 2], W[tasks[t, 0]], wanted, gradients[t], careful > 0
            )
            if grown == 0:
                break
            gradients[t, :] = 0.0
        t = next_task(queue)
    finish(queue, tasks.shape[0], wake_flags, helper)


@njit(**INNER)
def csr_replicates_range(
    data: Any,
    lo: int,
    hi: int,
    W: Any,
    wanted: Any,
    values: Any,
    gradients: Any,
    clipped: Any,
    careful: bool,
) -> int:
    """Add the sums of positions ``lo..hi`` for each row of ``W``; return how many rows grew."""
    matrix, samples, rows, indexed = borrowed(data)
    _, _, norms, _, limits = samples
    terms, numbers, want_value, want_gradient = wanted
    entries, indices, indptr = matrix
    replicates = W.shape[0]
    # Features first: the replicates of a nonzero entry are contiguous.
    V = np.ascontiguousarray(W.T)
    sums = np.zeros(V.shape if want_gradient else (0, 0))
    block_values = np.zeros(replicates)
    most = max(BLOCK_ROWS, V.shape[0])
    room = most
    size = _SHARED_TILE_ROWS
    tile = new_tile(size)
    index, table = tile
    z = np.empty(replicates * size)
    c = np.empty(replicates * size)
    z_row = np.empty(replicates)
    c_row = np.empty(replicates)
    known = norms.shape[0] > 0 and limits[2] < math.inf
    bounded = known or min(limits[0], limits[1]) < math.inf
    sizes, squares, most_c = np.empty(size), np.empty(size), np.empty(size)
    grown = 0
    for start in range(lo, hi, size):
        m = min(size, hi - start)
        fill_tile(samples, rows, indexed, start, m, tile)
        for k in range(m):
            if indexed:
                _prefetch_row(matrix, rows, start + k, hi)
            i = uint64(index[k])
            z_row[:] = 0.0
            factor = table[SCALE, k]
            for entry in range(uint64(indptr[i]), uint64(indptr[i + _ONE])):
                x, v = factor * entries[entry], V[uint64(indices[entry])]
                for r in range(replicates):
                    z_row[r] += x * v[r]
            for r in range(replicates):
                z[r * size + k] = z_row[r]
        for r in range(replicates):
            part, count = terms_at(
                terms, numbers, want_value, want_gradient, z, r * size, table, m, c
            )
            block_values[r] += part
            clipped[r] += count
        if want_gradient:
            for k in range(m):
                i = uint64(index[k])
                most_c[k] = 0.0
                for r in range(replicates):
                    c_row[r] = c[r * size + k]
                    most_c[k] = max(most_c[k], abs(c_row[r]))
                factor = table[SCALE, k]
                first, last = uint64(indptr[i]), uint64(indptr[i + _ONE])
                if careful:
                    row = entries[first:last].copy()
                    if is_inside(row, k, table, limits, known):
                        for entry in range(first, last):
                            x, gradient = factor * row[entry - first], sums[uint64(indices[entry])]
                            for r in range(replicates):
                                gradient[r] += x * c_row[r]
                    continue
                total = square = 0.0
                for entry in range(first, last):
                    number = entries[entry]
                    x, gradient = factor * number, sums[uint64(indices[entry])]
                    for r in range(replicates):
                        gradient[r] += x * c_row[r]
                    total += abs(np.float64(number))
                    square += np.float64(number) * np.float64(number)
                sizes[k], squares[k] = total, square
            if bounded and not careful:
                grown += count_grown(sizes, squares, most_c, table, limits, known, m)
        room -= m
        if room < size or start + m == hi:
            room = most
            close_block(block_values, values)
            if want_gradient:
                for r in range(replicates):
                    for j in range(V.shape[0]):
                        gradients[r, j] += sums[j, r]
                        sums[j, r] = 0.0
    return grown


@njit(**FAST)
def csr_replicates_tasks(
    data: Any, tasks: Any, W: Any, wanted: Any, sums: Any, queue: Any, wake_flags: Any, helper: int
) -> None:
    """Run tasks ``(0, lo, hi)`` from the queue; each has a row of the outputs."""
    values, gradients, clipped = sums
    t = first_task(queue, wake_flags, helper)
    while t < tasks.shape[0]:
        for careful in range(2):
            grown = csr_replicates_range(
                data,
                tasks[t, 1],
                tasks[t, 2],
                W,
                wanted,
                values[t],
                gradients[t],
                clipped[t],
                careful > 0,
            )
            if grown == 0:
                break
            values[t, :] = 0.0
            gradients[t, :, :] = 0.0
            clipped[t, :] = 0
        t = next_task(queue)
    finish(queue, tasks.shape[0], wake_flags, helper)


@njit(**FAST)
def csr_products(matrix: Any, rows: Any, vectors: Any, products: Any) -> None:
    """Write the products of the rows with ``vectors`` (K, d) to ``products`` (m, K).

    The bits of a product depend on its row and vector alone.
    """
    matrix = borrowed(matrix)
    entries, indices, indptr = matrix
    for k in range(rows.size):
        _prefetch_row(matrix, rows, k, rows.size)
        i = uint64(rows[k])
        first, last = uint64(indptr[i]), uint64(indptr[i + _ONE])
        for c in range(vectors.shape[0]):
            products[k, c] = _product(entries, indices, first, last, vectors[c])
