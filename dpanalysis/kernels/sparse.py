"""Sums over the rows of a CSR matrix; see :mod:`dpanalysis.kernels.dense`.

The matrix is the tuple ``(data, indices, indptr)``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, prange

from .dense import fill_tile, new_tile
from .scalar import FAST, tile_terms

__all__ = ["csr_parallel", "csr_range"]

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
    rule: Any,
    want_value: bool,
    want_gradient: bool,
    gradient: Any,
) -> Any:
    """Add the gradients of positions ``lo..hi`` to ``gradient``; return value, clipped."""
    y, scale, norms, weights = samples
    loss_code, loss_parameter, clip_code, clip_bound = rule
    data, indices, indptr = matrix
    size = _TILE_ROWS
    tile = new_tile(size)
    index, y_tile, scale_tile, norm_tile, weight_tile = tile
    z = np.empty(size)
    c = np.empty(size)
    value = 0.0
    clipped = 0
    for start in range(lo, hi, size):
        m = min(size, hi - start)
        fill_tile(y, scale, norms, weights, rows, indexed, start, m, tile)
        for k in range(m):
            i = index[k]
            total = 0.0
            for entry in range(indptr[i], indptr[i + 1]):
                total += data[entry] * w[indices[entry]]
            z[k] = total
        for k in range(m):
            z[k] *= scale_tile[k]
        part, count = tile_terms(
            loss_code,
            loss_parameter,
            clip_code,
            clip_bound,
            want_value,
            want_gradient,
            z[:m],
            y_tile[:m],
            norm_tile[:m],
            weight_tile[:m],
            c[:m],
        )
        value += part
        clipped += count
        if want_gradient:
            for k in range(m):
                c[k] *= scale_tile[k]
            for k in range(m):
                i, ck = index[k], c[k]
                for entry in range(indptr[i], indptr[i + 1]):
                    gradient[indices[entry]] += ck * data[entry]
    return value, clipped


@njit(parallel=True, **FAST)
def csr_parallel(
    matrix: Any,
    samples: Any,
    rows: Any,
    indexed: bool,
    tasks: Any,
    W: Any,
    rule: Any,
    want_value: bool,
    want_gradient: bool,
    values: Any,
    gradients: Any,
    clipped: Any,
) -> None:
    """Run every task ``(replicate, lo, hi)``; its partial sums go to a row of their own."""
    for t in prange(tasks.shape[0]):
        values[t], clipped[t] = csr_range(
            matrix,
            samples,
            rows,
            indexed,
            tasks[t, 1],
            tasks[t, 2],
            W[tasks[t, 0]],
            rule,
            want_value,
            want_gradient,
            gradients[t],
        )
