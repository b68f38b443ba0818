"""The compiled kernels' sums in plain array-API calls: CuPy, or any other namespace.

Rows go by blocks, so that no temporary array holds more than a few million entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from array_api_compat import array_namespace

from ..clipping import Clipping
from ..losses import Loss

__all__ = ["ArraySums"]

_BLOCK_ENTRIES = 1 << 24


class ArraySums:
    """Sums over samples of a dense matrix in its own namespace and on its own device.

    Parameters
    ----------
    X : array of shape (n, d)
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
            parts = [
                self.sums(
                    W[r : r + 1, :], part, clipping, norms, weights, want_value, want_gradient
                )
                for r, part in enumerate(rows)
            ]
            return tuple(xp.concat(column) for column in zip(*parts))
        replicates = W.shape[0]
        values = xp.zeros(replicates, dtype=W.dtype, device=W.device)
        gradients = xp.zeros(W.shape, dtype=W.dtype, device=W.device)
        clipped = xp.zeros(replicates, dtype=xp.int64, device=W.device)
        count = self.n if rows is None else rows.shape[0]
        step = max(1, _BLOCK_ENTRIES // max(replicates, self.d))
        for lo in range(0, count, step):
            hi = min(count, lo + step)
            if rows is None:
                chosen: Any = slice(lo, hi)
                X = self._X[chosen, :]
            else:
                chosen = rows[lo:hi]
                X = xp.take(self._X, chosen, axis=0)

            def pick(vector: Any, chosen: Any = chosen) -> Any:
                """Entries of a per-sample vector, as a column."""
                part = vector[chosen] if rows is None else xp.take(vector, chosen)
                return xp.astype(part, W.dtype)[:, None]

            X = xp.astype(X, W.dtype, copy=False)
            if self._scale is not None:
                X = X * pick(self._scale)
            y = pick(self._y)
            z = X @ W.T
            if want_value:
                losses = self._loss.value(z, y)
                values += xp.sum(losses if weights is None else losses * pick(weights), axis=0)
            if want_gradient:
                c = self._loss.derivative(z, y)
                if clipping is not None:
                    size = xp.abs(c) * pick(norms)
                    factor = clipping.weight(size)
                    cut = factor < 1.0
                    if weights is not None:
                        cut = cut & (pick(weights) > 0.0)
                    clipped += xp.sum(xp.astype(cut, xp.int64), axis=0)
                    # A gradient that overflows counts as zero: inf * 0 would give every
                    # sample away.
                    c = xp.where(xp.isfinite(size), c * factor, xp.zeros_like(c))
                if weights is not None:
                    c = c * pick(weights)
                gradients += c.T @ X
        return values, gradients, clipped
