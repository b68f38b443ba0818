"""Sums of second derivatives over samples, by blocks of rows, in any namespace."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import scipy.sparse as sp

from ..losses import Loss
from ._data import as_float64, is_sparse, one_blas_thread, row_blocks

__all__ = ["hessian_sum", "hvp_sum"]


def _blocks(X: Any, y: Any, scale: Any, loss: Loss, w: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each block of (scaled) rows in float64 with its second derivatives."""
    for lo, hi, block in row_blocks(X):
        block = as_float64(block)
        if scale is not None:
            part = scale[lo:hi]
            block = sp.diags_array(part) @ block if is_sparse(block) else block * part[:, None]
        yield block, loss.second_derivative(block @ w, as_float64(y[lo:hi]))


def hessian_sum(X: Any, y: Any, scale: Any, loss: Loss, w: Any) -> Any:
    """Sum of the samples' Hessians at ``w``, shape ``(d, d)``."""
    total: Any = 0.0 * (w[:, None] * w[None, :])
    with one_blas_thread():
        for block, curvature in _blocks(X, y, scale, loss, w):
            if is_sparse(block):
                total = total + (block.T @ (sp.diags_array(curvature) @ block)).toarray()
            else:
                total = total + block.T @ (curvature[:, None] * block)
    return total


def hvp_sum(X: Any, y: Any, scale: Any, loss: Loss, w: Any, v: Any) -> Any:
    """Sum of the samples' Hessians at ``w`` times ``v``, shape ``(d,)``."""
    total: Any = 0.0 * w
    with one_blas_thread():
        for block, curvature in _blocks(X, y, scale, loss, w):
            total = total + block.T @ (curvature * (block @ v))
    return total
