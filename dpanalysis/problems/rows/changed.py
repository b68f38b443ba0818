"""Rows in memory may be changed by whoever holds them, after they were checked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from array_api_compat import array_namespace, is_numpy_array

from ..row_bound import Order, RowBound, implied_radius, norm_name
from .checks import NORM_ENTRIES, is_sparse, row_blocks, row_norms

__all__ = ["check_unchanged", "growth", "row_limits"]

# So many entries are worth a kernel.
_MANY = 1 << 20


def growth(d: int) -> float:
    """Return by how much, relatively, a row may have grown without being refused.

    That is the rounding of two norms of rows of d entries, computed in different orders; the
    bound on the rounding of sums has it added.
    """
    return 2.0**-40 + 4.0 * (d + 16) * 2.0**-53


def row_limits(bounds: Sequence[RowBound], d: int) -> tuple[float, float, float]:
    """Return what sums compare rows with when they use them: see :mod:`dpanalysis.kernels.within`.

    Bounds on the L1 and on the L2 norm, from which all that is public of a row in these norms
    follows, and how much more than a kept norm a norm may be. All with the rounding of
    :func:`growth`.

    Examples
    --------
    >>> print(*(round(limit, 9) for limit in row_limits([RowBound(math.inf, 2.0)], 4)))
    inf 4.0 1.0
    """
    sizes = [
        implied_radius([b], 1, d) for b in bounds if b.order == 1 or isinstance(b.order, tuple)
    ]
    lengths = [implied_radius([b], 2, d) for b in bounds if b.order != 1]
    more = 1.0 + growth(d)
    return more * min(sizes, default=math.inf), more * min(lengths, default=math.inf), more


def check_unchanged(X: Any, scale: Any, bounds: Sequence[RowBound], norms: Any = None) -> None:
    """Raise ValueError where a row has grown since its multiplier and its norm were computed.

    Parameters
    ----------
    X : array or CSR matrix of shape (n, d)
        Read once for each norm that counts.
    scale : array of shape (n,) or None
        The multipliers that :func:`row_scale` gave.
    bounds : sequence of RowBound
    norms : array of shape (n,), optional
        The L2 norms of the scaled rows that were kept.
    """
    if is_sparse(X):
        _check_indices(X)
    allowed: list[tuple[Order, Any]] = [(bound.order, bound.radius) for bound in bounds]
    if norms is not None or not allowed:  # without any bound, whether the rows are finite
        allowed.append((2, math.inf if norms is None else norms))
    more, sizes = 1.0 + growth(X.shape[1]), {}
    for order, limit in allowed:
        if order not in sizes:
            sizes[order] = _quick_norms(X, order)
        size = sizes[order]
        xp = array_namespace(size)
        size = size if scale is None else size * scale
        wrong = xp.nonzero(~((size <= more * limit) & xp.isfinite(size)))[0]
        if not wrong.shape[0]:
            continue
        i = int(wrong[0])
        old = limit if isinstance(limit, float) else float(limit[i])
        raise ValueError(
            f"X has been changed since the problem was built: row {i} had an {norm_name(order)} "
            f"norm of at most {old:.6g} where it counts, and has {float(size[i]):.6g} now; build a "
            "new problem"
        )


@np.errstate(all="ignore")
def _quick_norms(X: Any, order: Order) -> Any:
    """Return the norms of the rows, in float64 and one read, careful where squares vanish."""
    if isinstance(order, tuple) or order == math.inf:
        return row_norms(X, order)
    if is_sparse(X):
        sizes = abs(X.data.astype(np.float64)) ** order
        total = sp.csr_array((sizes, X.indices, X.indptr), X.shape) @ np.ones(X.shape[1])
    elif not is_numpy_array(X):
        return row_norms(X, order)
    elif X.size >= _MANY and X.flags.c_contiguous and X.dtype.char in "fd":
        from ...kernels.norms import norms  # here: Numba takes its time

        return norms(X, int(order))
    elif order == 2:
        total = np.einsum("ij,ij->i", X, X, dtype=np.float64)
    else:
        blocks = row_blocks(X, NORM_ENTRIES)
        total = np.concatenate([abs(block).sum(axis=1, dtype=np.float64) for *_, block in blocks])
    if order == 1:
        return total
    doubtful = np.nonzero(~((total > 1e-280) & (total < 1e300)))[0]
    total = np.sqrt(total)
    if doubtful.size:
        total[doubtful] = row_norms(X[doubtful], 2)
    return total


def _check_indices(X: Any) -> None:
    """Raise ValueError where a CSR matrix is not canonical any more: the kernels trust it."""
    fresh = sp.csr_array((X.data, X.indices, X.indptr), X.shape)  # with nothing remembered
    try:
        fresh.check_format(full_check=True)
        canonical = fresh.has_canonical_format
    except ValueError:
        canonical = False
    if not canonical:
        raise ValueError(
            "X has been changed since the problem was built: its indices are not sorted, valid "
            "and different any more; build a new problem"
        )
