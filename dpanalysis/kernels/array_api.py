"""The compiled kernels' sums in plain array-API calls: CuPy, or any other namespace.

On NumPy and SciPy CSR they stand in for the compiled ones where a clipping rule has no
compiled twin. Rows go by blocks, so that no temporary array holds more than a few million
entries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import scipy.sparse as sp
from array_api_compat import array_namespace, is_numpy_array

from ..clipping import Clipping
from ..losses import Loss

__all__ = ["ArraySums", "each_replicate"]

_BLOCK_ENTRIES = 1 << 24
_HOST_ENTRIES = 1 << 18


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
        """Return ``values (R,), gradients (R, d), clipped (R,)``; arguments are checked."""
        xp = array_namespace(W)
        if isinstance(rows, Sequence):  # one index array per replicate
            return each_replicate(
                self.sums, W, rows, clipping, norms, weights, want_value, want_gradient
            )
        replicates = W.shape[0]
        values = xp.zeros(replicates, dtype=W.dtype, device=W.device)
        gradients = xp.zeros(W.shape, dtype=W.dtype, device=W.device)
        clipped = xp.zeros(replicates, dtype=xp.int64, device=W.device)
        count = self.n if rows is None else rows.shape[0]
        needs_losses = want_gradient and clipping is not None and clipping.needs_losses
        sparse = sp.issparse(self._X)
        width = self._X.nnz // self.n if sparse else self.d
        entries = _HOST_ENTRIES if is_numpy_array(W) else _BLOCK_ENTRIES
        step = max(1, entries // max(replicates, width))
        for lo in range(0, count, step):
            hi = min(count, lo + step)
            chosen: Any = slice(lo, hi) if rows is None else rows[lo:hi]

            def pick(vector: Any, chosen: Any = chosen) -> Any:
                """Entries of a per-sample vector, as a column."""
                part = vector[chosen] if rows is None else xp.take(vector, chosen)
                return xp.astype(part, W.dtype)[:, None]

            if sparse:
                X = self._X[chosen].astype(W.dtype, copy=False)
            else:
                X = self._X[chosen, :] if rows is None else xp.take(self._X, chosen, axis=0)
                X = xp.astype(X, W.dtype, copy=False)
            if self._scale is not None:
                scale = pick(self._scale)
                X = sp.diags_array(scale[:, 0]) @ X if sparse else X * scale
            y = pick(self._y)
            z = X @ W.T
            if want_value or needs_losses:
                losses = self._loss.value(z, y)
            if want_value:
                values += xp.sum(losses if weights is None else losses * pick(weights), axis=0)
            if want_gradient:
                c = self._loss.derivative(z, y)
                if clipping is not None:
                    size = xp.abs(c) * pick(norms)
                    factor = clipping.weight(size, losses if needs_losses else None)
                    cut = factor < 1.0
                    if weights is not None:
                        cut = cut & (pick(weights) > 0.0)
                    clipped += xp.sum(xp.astype(cut, xp.int64), axis=0)
                    # A gradient that overflows counts as zero: inf * 0 would give every
                    # sample away.
                    c = c * factor
                    c = xp.where(xp.isfinite(c), c, xp.zeros_like(c))
                if weights is not None:
                    c = c * pick(weights)
                gradients += c.T @ X
        return values, gradients, clipped
