"""Sums over the rows of a CSR matrix; see :mod:`dpanalysis.kernels.dense`.

The matrix is the tuple ``(data, indices, indptr)``. Its indices are read as unsigned: the
check for negative ones would double the time of a pass. A block of rows has as many as there
are features where those are more: clearing a block's sum must cost less than filling it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, uint64

from .rounding import BLOCK_ROWS
from .scalar import FAST
from .terms import terms_at
from .tile import SCALE, fill_tile, new_tile, scale_terms
from .turns import begin, go_on, leave

# Compiled with rounding.py, sha256 8067f7744591ab36
# Compiled with terms.py, sha256 7ae39dcd9967d0ea
# Compiled with tile.py, sha256 954ec87d1fb4b8b3
# Compiled with turns.py, sha256 66c80a357f4c812e

__all__ = ["csr_replicates_tasks", "csr_tasks"]

_TILE_ROWS = 256


@njit(**FAST)
def csr_range(
    matrix: Any,
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
) -> Any:
    """Add the gradients of positions ``lo..hi`` to ``gradient``; return value, clipped."""
    y, scale, norms, weights = samples
    data, indices, indptr = matrix
    size = _TILE_ROWS
    tile = new_tile(size)
    index, table = tile
    z = np.empty(size)
    c = np.empty(size)
    # The sum of a block of rows, and all sums of blocks before it.
    most = max(BLOCK_ROWS, w.shape[0])
    many = want_gradient and hi - lo > most
    block = np.zeros(w.shape[0]) if many else gradient
    block_value = value = 0.0
    room = most
    clipped = 0
    for start in range(lo, hi, size):
        m = min(size, hi - start)
        fill_tile(y, scale, norms, weights, rows, indexed, start, m, tile)
        for k in range(m):
            i = uint64(index[k])
            total = 0.0
            for entry in range(uint64(indptr[i]), uint64(indptr[i + uint64(1)])):
                total += data[entry] * w[uint64(indices[entry])]
            z[k] = total
        for k in range(m):
            z[k] *= table[SCALE, k]
        part, count = terms_at(terms, numbers, want_value, want_gradient, z, 0, table, m, c)
        block_value += part
        clipped += count
        if want_gradient:
            scale_terms(table, c, m)
            for k in range(m):
                i, ck = uint64(index[k]), c[k]
                for entry in range(uint64(indptr[i]), uint64(indptr[i + uint64(1)])):
                    block[uint64(indices[entry])] += ck * data[entry]
        room -= m
        if room < size or start + m == hi:
            room = most
            value += block_value
            block_value = 0.0
            if many:
                for j in range(block.shape[0]):
                    gradient[j] += block[j]
                    block[j] = 0.0
    return value, clipped


@njit(**FAST)
def csr_tasks(
    matrix: Any,
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
    turns: Any,
    bells: Any,
    helper: int,
) -> None:
    """Do tasks ``(replicate, lo, hi)`` in turn; partial sums of each go to a row of its own."""
    t = begin(turns, bells, helper)
    while t < tasks.shape[0]:
        values[t], clipped[t] = csr_range(
            matrix,
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
        )
        t = go_on(turns)
    leave(turns, tasks.shape[0], bells, helper)


@njit(**FAST)
def csr_replicates_range(
    matrix: Any,
    samples: Any,
    rows: Any,
    indexed: bool,
    lo: int,
    hi: int,
    W: Any,
    terms: int,
    numbers: Any,
    want_value: int,
    want_gradient: int,
    values: Any,
    gradients: Any,
    clipped: Any,
) -> None:
    """Add the sums of positions ``lo..hi``, one row of the outputs for each row of ``W``."""
    y, scale, norms, weights = samples
    data, indices, indptr = matrix
    replicates = W.shape[0]
    # Features first, so that a non-zero entry meets all its replicates side by side.
    V = np.ascontiguousarray(W.T)
    sums = np.zeros(V.shape if want_gradient else (0, 0))
    block_values = np.zeros(replicates)
    most = max(BLOCK_ROWS, V.shape[0])
    room = most
    tile = new_tile(_TILE_ROWS)
    index, table = tile
    z = np.empty(replicates * _TILE_ROWS)
    c = np.empty(replicates * _TILE_ROWS)
    z_row = np.empty(replicates)
    c_row = np.empty(replicates)
    for start in range(lo, hi, _TILE_ROWS):
        m = min(_TILE_ROWS, hi - start)
        fill_tile(y, scale, norms, weights, rows, indexed, start, m, tile)
        for k in range(m):
            i = uint64(index[k])
            z_row[:] = 0.0
            factor = table[SCALE, k]
            for entry in range(uint64(indptr[i]), uint64(indptr[i + uint64(1)])):
                x, v = factor * data[entry], V[uint64(indices[entry])]
                for r in range(replicates):
                    z_row[r] += x * v[r]
            for r in range(replicates):
                z[r * _TILE_ROWS + k] = z_row[r]
        for r in range(replicates):
            part, count = terms_at(
                terms, numbers, want_value, want_gradient, z, r * _TILE_ROWS, table, m, c
            )
            block_values[r] += part
            clipped[r] += count
        if want_gradient:
            for k in range(m):
                i = uint64(index[k])
                for r in range(replicates):
                    c_row[r] = c[r * _TILE_ROWS + k]
                factor = table[SCALE, k]
                for entry in range(uint64(indptr[i]), uint64(indptr[i + uint64(1)])):
                    x, gradient = factor * data[entry], sums[uint64(indices[entry])]
                    for r in range(replicates):
                        gradient[r] += x * c_row[r]
        room -= m
        if room < _TILE_ROWS or start + m == hi:
            room = most
            values += block_values
            block_values[:] = 0.0
            if want_gradient:
                gradients += sums.T
                sums[:, :] = 0.0


@njit(**FAST)
def csr_replicates_tasks(
    matrix: Any,
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
    turns: Any,
    bells: Any,
    helper: int,
) -> None:
    """Do tasks ``(0, lo, hi)`` in turn; partial sums of each go to a row of its own."""
    t = begin(turns, bells, helper)
    while t < tasks.shape[0]:
        csr_replicates_range(
            matrix,
            samples,
            rows,
            indexed,
            tasks[t, 1],
            tasks[t, 2],
            W,
            terms,
            numbers,
            want_value,
            want_gradient,
            values[t],
            gradients[t],
            clipped[t],
        )
        t = go_on(turns)
    leave(turns, tasks.shape[0], bells, helper)
