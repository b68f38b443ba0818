"""What :mod:`~dpanalysis.kernels.within` does, in plain array-API calls, block by block."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from array_api_compat import array_namespace, is_numpy_array

__all__ = ["bounded_rows"]

_LEAST = 2.0**-1022  # the smallest normal number
_MANY = 1 << 16  # entries that are worth a kernel


def bounded_rows(X: Any, scale: Any, limits: Sequence[float], kept: Any = None) -> Any:
    """Return the rows, with zeros in those that are outside their limits.

    Parameters
    ----------
    X : array or scipy.sparse.csr_array of shape (m, d)
        Returned as it is where all are inside; on a device, which is not asked, as a copy.
    scale : array of shape (m,), or None
        Multipliers that the rows lack.
    limits : sequence of 3 floats
    kept : array of shape (m,), optional
        Norms that were kept of the scaled rows.

    Returns
    -------
    array or CSR matrix of shape (m, d)

    Examples
    --------
    >>> X = np.array([[3.0, 4.0], [0.3, np.nan], [0.6, 0.8]])
    >>> bounded_rows(X, None, (np.inf, 1.0, 1.0))
    array([[0. , 0. ],
           [0. , 0. ],
           [0.6, 0.8]])
    """
    if min(limits[0], limits[1]) == math.inf and (kept is None or limits[2] == math.inf):
        return X
    with np.errstate(all="ignore"):
        outside = _rows_outside(X, scale, limits, kept)
    if sp.issparse(X):
        if outside.any():
            lost = np.repeat(outside, np.diff(X.indptr))
            X = sp.csr_array((np.where(lost, 0, X.data), X.indices, X.indptr), X.shape)
    elif not is_numpy_array(X) or outside.any():
        xp = array_namespace(X)
        X = xp.where(outside[:, None], xp.zeros((), dtype=X.dtype, device=X.device), X)
    return X


def _rows_outside(X: Any, scale: Any, limits: Sequence[float], kept: Any) -> Any:
    """Return which rows are outside their limits, see :func:`bounded_rows`."""
    values = X.data if sp.issparse(X) else X
    xp, outside = array_namespace(values), None
    for order, limit in ((1, limits[0]), (2, limits[1])):
        if order == 2 and kept is not None and limits[2] < math.inf:
            room = limits[2] * xp.astype(kept, xp.float64, copy=False)
        elif limit < math.inf:
            room = xp.full(X.shape[0], limit, dtype=xp.float64, device=values.device)
        else:
            continue
        longer = _longer(xp, X, order, room if scale is None else room / scale)
        outside = longer if outside is None else outside | longer
    return outside


def _longer(xp: Any, X: Any, order: int, room: Any) -> Any:
    """Return which rows have a norm of order 1 or 2 that is more than their room, or no number."""
    if is_numpy_array(X) and X.size >= _MANY and X.flags.c_contiguous and X.dtype.char in "fd":
        from .norms import norms  # here: Numba takes its time

        return ~(norms(X, order) <= room)
    # In units of the room a square that leaves the normal numbers does not matter.
    unit = xp.where(room < _LEAST, xp.full_like(room, _LEAST), room)
    if sp.issparse(X):
        shares = abs(X.data.astype(np.float64)) / np.repeat(unit, np.diff(X.indptr))
        sums = sp.csr_array((shares**order, X.indices, X.indptr), X.shape) @ np.ones(X.shape[1])
    else:
        shares = xp.abs(xp.astype(X, xp.float64, copy=False)) / unit[:, None]
        sums = xp.vecdot(shares, shares) if order == 2 else xp.sum(shares, axis=1)
    return ~(sums <= 1.0)
