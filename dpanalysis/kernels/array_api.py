"""The compiled kernels' sums in plain array-API calls: CuPy, or any other namespace.

On NumPy and SciPy CSR they stand in for the compiled ones where a clipping rule has no
compiled twin. Rows go by blocks, so that no temporary array is large. Nothing here asks the
device for a number, so that the host never waits: it queues one block after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import scipy.sparse as sp
from array_api_compat import array_namespace, is_numpy_array

from ..clipping import Clipping
from ..losses import Loss

__all__ = ["DEVICE_BLOCK_BYTES", "ArraySums", "below_one", "each_replicate", "within_bound"]

# What a block's arrays take on a device: there every call costs microseconds before it starts.
DEVICE_BLOCK_BYTES = 1 << 28
_HOST_ENTRIES = 1 << 18  # stays in cache
_COLUMNS = 10  # about so many arrays of one number a row and replicate


def below_one(xp: Any, dtype: Any) -> float:
    """Return 1 less the few roundings that lie between a norm and what is added up."""
    return 1.0 - 8.0 * float(xp.finfo(dtype).eps)


def within_bound(xp: Any, dtype: Any, clipping: Clipping, weights: Any, norms: Any) -> Any:
    """Return the weights, cut where rounding to ``dtype`` could leave more than the clip norm."""
    limit = below_one(xp, dtype) * clipping.clip_norm
    over = weights * norms > limit
    return xp.where(over, limit / xp.where(over, norms, xp.ones_like(norms)), weights)


def each_replicate(
    sums: Callable[..., tuple[Any, ...]], W: Any, rows: Sequence[Any], *rest: Any
) -> tuple[Any, ...]:
    """Return ``sums(W, rows, *rest)`` where every replicate has an index array of its own.

    Each array of the result has the replicates as its first axis.
    """
    parts = [sums(W[r : r + 1, :], part, *rest) for r, part in enumerate(rows)]
    if len(parts) == 1:  # putting one array together would copy it
        return parts[0]
    return tuple(array_namespace(W).concat(column) for column in zip(*parts))


class ArraySums:
    """Sums over samples of a matrix in its own namespace and on its own device.

    Of float32 data on a device the products are single precision, so that the data are read as
    they are and no block is copied; losses, norms, weights and sums over blocks are double. On
    the host everything is double, as in the compiled kernels.

    Parameters
    ----------
    X : array or scipy.sparse.csr_array of shape (n, d)
    y : array of shape (n,)
    loss : Loss
    scale : array of shape (n,), optional
        Multiplier of each row.
    """

    def __init__(self, X: Any, y: Any, loss: Loss, scale: Any = None) -> None:
        self.n, self.d = X.shape
        self._X, self._y, self._loss, self._scale = X, y, loss, scale
        self._sparse = bool(sp.issparse(X))
        self._on_host = self._sparse or is_numpy_array(X)

    def sums(
        self,
        W: Any,
        rows: Any | Sequence[Any] | None,
        clipping: Clipping | None,
        norms: Any,
        weights: Any,
        want_value: bool,
        want_gradient: bool,
    ) -> tuple[Any, Any, Any]:
        """Return ``values (R,), gradients (R, d), clipped (R,)``; arguments are checked.

        Gradients that are not wanted have no columns.
        """
        xp = array_namespace(W)
        if isinstance(rows, Sequence):  # one index array per replicate
            return each_replicate(
                self.sums, W, rows, clipping, norms, weights, want_value, want_gradient
            )
        replicates = W.shape[0]
        shape = (replicates, self.d if want_gradient else 0)
        values = xp.zeros(replicates, dtype=W.dtype, device=W.device)
        gradients = xp.zeros(shape, dtype=W.dtype, device=W.device)
        clipped = xp.zeros(replicates, dtype=xp.int64, device=W.device)
        count = self.n if rows is None else rows.shape[0]
        needs_losses = want_gradient and clipping is not None and clipping.needs_losses
        dtype = W.dtype if self._on_host else self._X.dtype  # of the products
        factors = xp.astype(W, dtype, copy=False).T
        step = self._step(rows is not None, replicates)
        for lo in range(0, count, step):
            hi = min(count, lo + step)
            chosen: Any = slice(lo, hi) if rows is None else rows[lo:hi]

            def pick(vector: Any, chosen: Any = chosen) -> Any:
                """Entries of a per-sample vector, as a column."""
                part = vector[chosen] if rows is None else xp.take(vector, chosen)
                return xp.astype(part, W.dtype)[:, None]

            scale = None if self._scale is None else pick(self._scale)
            if self._sparse:
                X = self._X[chosen].astype(W.dtype, copy=False)
            else:
                X = self._X[chosen, :] if rows is None else xp.take(self._X, chosen, axis=0)
            if self._on_host:
                X = X.astype(W.dtype, copy=False)
                if scale is not None:
                    X = sp.diags_array(scale[:, 0]) @ X if self._sparse else X * scale
                    scale = None
            y = pick(self._y)
            z = xp.astype(X @ factors, W.dtype, copy=False)
            if scale is not None:  # the products are fewer than the data
                z = z * scale
            if want_value or needs_losses:
                losses = self._loss.value(z, y)
            if want_value:
                values += xp.sum(losses if weights is None else losses * pick(weights), axis=0)
            if want_gradient:
                c = self._loss.derivative(z, y)
                if clipping is not None:
                    size = xp.abs(c) * pick(norms)
                    factor = clipping.weight(size, losses if needs_losses else None)
                    if dtype != W.dtype:
                        factor = within_bound(xp, dtype, clipping, factor, size)
                    cut = factor < 1.0
                    if weights is not None:
                        cut = cut & (pick(weights) > 0.0)
                    clipped += xp.sum(xp.astype(cut, xp.int64), axis=0)
                    c = c * factor
                if scale is not None:
                    c = c * scale
                c = xp.astype(c, dtype, copy=False)
                if clipping is not None:
                    # A gradient that overflows counts as zero: inf * 0 would give every
                    # sample away.
                    c = xp.where(xp.isfinite(c), c, xp.zeros_like(c))
                if weights is not None:
                    c = c * xp.astype(pick(weights), dtype, copy=False)
                gradients += xp.astype(c.T @ X, W.dtype, copy=False)
        return values, gradients, clipped

    def _step(self, gathered: bool, replicates: int) -> int:
        """Return the number of rows of a block."""
        if self._on_host:
            width = self._X.nnz // self.n if self._sparse else self.d
            return max(1, _HOST_ENTRIES // max(replicates, width))
        copied = self.d * gathered  # a slice of all rows is no copy
        return max(1, DEVICE_BLOCK_BYTES // (8 * (_COLUMNS * replicates + copied)))
