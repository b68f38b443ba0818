"""The compiled kernels' sums in plain array-API calls: CuPy, or any other namespace.

On NumPy and SciPy CSR they stand in for the compiled ones where a loss or a clipping rule is
not compiled. Rows go by blocks, so that no temporary array is large. Nothing here asks the
device for a number, so that the host never waits: it queues one block after the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from array_api_compat import array_namespace, is_numpy_array

from ..clipping import Clipping, Custom
from ..losses import Loss
from .blocks import Total, product_sum, row_blocks
from .products import row_product
from .rounding import BLOCK_ROWS, NO_LIMITS, TINY
from .within_arrays import bounded_rows

__all__ = [
    "DEVICE_BLOCK_BYTES",
    "ArraySums",
    "below_one",
    "each_replicate",
    "formula_values",
    "kept_weights",
    "within",
    "within_bound",
]

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


def kept_weights(clipping: Clipping, norms: Any, losses: Any) -> Any:
    """Return the rule's weights, cut to what the rule promises: its two public numbers.

    The noise is computed from ``clip_norm`` and ``largest_weight``, so no method of a rule may
    go beyond them. A weight that is negative counts as zero, and is NaN where the rule fails: an
    error that one record alone brings about would tell that the record is there.
    """
    xp = array_namespace(norms)
    with np.errstate(all="ignore"):
        weights = _weights(clipping, norms, losses)
        zeros, largest = xp.zeros_like(weights), clipping.largest_weight
        weights = xp.where(weights < 0.0, zeros, weights)
        weights = xp.where(weights > largest, xp.full_like(weights, largest), weights)
        limit = below_one(xp, xp.float64) * clipping.clip_norm
        weights = xp.where(weights * norms > clipping.clip_norm, limit / norms, weights)
        # Still over where the quotient is subnormal.
        return xp.where(weights * norms > clipping.clip_norm, zeros, weights)


def _weights(clipping: Clipping, norms: Any, losses: Any) -> Any:
    """Return the rule's weights, NaN for a sample at which it fails."""
    try:
        return clipping.weight(norms, losses)
    except Exception:
        xp = array_namespace(norms)
        flat = xp.reshape(norms, (-1,))
        if flat.shape[0] <= 1:
            return xp.full_like(norms, math.nan)
    sizes = None if losses is None else xp.reshape(losses, (-1,))
    half = flat.shape[0] // 2
    parts = [
        _weights(clipping, flat[k], None if sizes is None else sizes[k])
        for k in (slice(half), slice(half, None))
    ]
    return xp.reshape(xp.concat(parts), norms.shape)


def within(slopes: Any, low: float, high: float) -> Any:
    """Return what a formula of a loss gives, cut to the constants that the noise goes by."""
    xp = array_namespace(slopes)
    if high < math.inf:
        slopes = xp.where(slopes > high, xp.full_like(slopes, high), slopes)
    if low > -math.inf:
        slopes = xp.where(slopes < low, xp.full_like(slopes, low), slopes)
    return slopes


def formula_values(formula: Callable[[Any, Any], Any], z: Any, y: Any) -> Any:
    """Return what a formula of a loss gives, NaN for a sample at which it fails.

    An error that one record alone brings about would tell that the record is there.

    Parameters
    ----------
    formula : callable
        ``formula(z, y)``.
    z, y : arrays of shape (m, ...)
        One row a sample.
    """
    xp = array_namespace(z)
    try:
        return xp.astype(formula(z, y), z.dtype, copy=False)
    except Exception:
        if z.shape[0] <= 1:
            return xp.full_like(z, math.nan)
    half = z.shape[0] // 2
    parts = (slice(half), slice(half, None))
    return xp.concat([formula_values(formula, z[k, ...], y[k, ...]) for k in parts])


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

    Of float32 data on a device the predictions are computed in single precision: each is a
    function of one row. Losses, norms, weights and everything that is added over rows are
    double. On the host everything is double, as in the compiled kernels.

    A sample whose prediction, loss, derivative, norm or weight is not finite, or at which a
    formula fails, adds exactly zero.

    Parameters
    ----------
    X : array or scipy.sparse.csr_array of shape (n, d)
    y : array of shape (n,)
    loss : Loss
    scale : array of shape (n,), optional
        Multiplier of each row.
    limits : sequence of 3 floats
        See :mod:`dpanalysis.kernels.within`.
    """

    def __init__(
        self,
        X: Any,
        y: Any,
        loss: Loss,
        scale: Any = None,
        limits: Sequence[float] = NO_LIMITS,
    ) -> None:
        self.n, self.d = X.shape
        self._limits = limits
        self._X, self._y, self._loss, self._scale = X, y, loss, scale
        self._sparse = bool(sp.issparse(X))
        self._on_host = self._sparse or is_numpy_array(X)

    @np.errstate(all="ignore")  # a warning about one record would tell that it is there
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

        def zeros(width: int) -> Any:
            return xp.zeros((replicates, width), dtype=W.dtype, device=W.device)

        values, gradients = Total(zeros(1)), Total(zeros(self.d if want_gradient else 0))
        clipped = xp.zeros(replicates, dtype=xp.int64, device=W.device)
        needs_losses = want_gradient and clipping is not None and clipping.needs_losses
        count = self.n if rows is None else rows.shape[0]
        for size, pick in row_blocks(count, self._step(rows is not None, replicates), rows):

            def column(vector: Any, pick: Any = pick) -> Any:
                return None if vector is None else xp.astype(pick(vector), W.dtype)[:, None]

            jumps = self._loss.smoothness == math.inf or type(clipping) is Custom
            X, scale, z = self._predict(xp, W, pick(self._X), column(self._scale), jumps)
            y, counts = column(self._y), column(weights)
            known = xp.isfinite(z)
            losses = None
            if want_value or needs_losses:
                losses = formula_values(self._loss.value, z, y)
                finite = known & xp.isfinite(losses)
            if want_value:
                terms = xp.where(finite, losses, xp.zeros_like(z))
                ones = xp.ones_like(y) if counts is None else counts
                block = values.open(size)
                block += product_sum(terms, ones)
            if not want_gradient:
                continue
            c = formula_values(self._loss.derivative, z, y)
            known = known & xp.isfinite(c)
            c = within(c, -self._loss.lipschitz, self._loss.lipschitz)
            if clipping is not None:
                norm = xp.abs(c) * column(norms)
                if needs_losses:
                    known = known & finite
                factor = kept_weights(clipping, norm, losses if needs_losses else None)
                c = c * factor
                known = known & xp.isfinite(norm) & xp.isfinite(c)
                cut = known & (factor < 1.0)
                if counts is not None:
                    cut = cut & (counts > 0.0)
                clipped += xp.sum(xp.astype(cut, xp.int64), axis=0)
            if scale is not None:
                c = c * scale
            # What is not finite counts as zero: NaN and inf * 0 would give a sample away.
            c = xp.where(known & (xp.abs(c) >= TINY), c, xp.zeros_like(c))
            if counts is not None:
                c = c * counts
            left = None if scale is None else scale[:, 0]
            X = bounded_rows(X, left, self._limits, None if norms is None else pick(norms))
            block = gradients.open(size)
            block += product_sum(c, X)
        return values.close()[:, 0], gradients.close(), clipped

    def _predict(self, xp: Any, W: Any, X: Any, scale: Any, jumps: bool) -> tuple[Any, Any, Any]:
        """Return rows, the multipliers that they still lack, predictions (m, R) in float64.

        A matrix product may round a row by its place in the block. Where one record is added, the
        places of others change, and where a derivative jumps that turns a rounding into a whole
        gradient, as it does where weights are very large. On the host no product does so. On a
        device, which nobody checks, the rows of a loss that jumps are added up one by one.
        """
        if self._on_host:
            X = X.astype(W.dtype, copy=False)
            if scale is not None:
                X = sp.diags_array(scale[:, 0]) @ X if self._sparse else X * scale
                scale = None
        factors = xp.astype(W, X.dtype, copy=False)
        if jumps and not self._on_host:
            columns = [xp.sum(X * factors[r, :], axis=1) for r in range(W.shape[0])]
            z = xp.stack(columns, axis=1)
        else:
            z = row_product(X, factors.T) if self._on_host else X @ factors.T
        z = xp.astype(z, W.dtype, copy=False)
        # The products are fewer than the data.
        return X, scale, z if scale is None else z * scale

    def _step(self, gathered: bool, replicates: int) -> int:
        """Return the number of rows of a block."""
        if self._on_host:
            width = self._X.nnz // self.n if self._sparse else self.d
            return max(1, min(BLOCK_ROWS, _HOST_ENTRIES // max(replicates, width)))
        # A slice of all rows is no copy, unless its numbers have to become double.
        copies = self.d * (gathered + (self._X.dtype != array_namespace(self._X).float64))
        return max(1, DEVICE_BLOCK_BYTES // (8 * (_COLUMNS * replicates + copies)))
