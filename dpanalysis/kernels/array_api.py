"""Sums over samples by array-API calls: CuPy, PyTorch or any other namespace.

On NumPy and SciPy CSR data they replace the compiled kernels if a loss or a clipping rule is not
compiled, and for networks. Rows are processed by blocks, so that no temporary array is large. Sums
over records are in double precision, by at most :data:`~dpanalysis.kernels.rounding.BLOCK_ROWS`
rows at a time, as in the compiled kernels. No number is read from the device, so that the host
never waits but queues one block after the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from array_api_compat import array_namespace, is_array_api_obj, is_numpy_array

from .._devices import on_host
from ..clipping import Clipping, Custom
from ..losses import Loss
from .products import row_product
from .rounding import BLOCK_ROWS, NO_LIMITS, TINY


def row_blocks(count: int, step: int, rows: Any = None) -> Iterator[tuple[int, Callable[..., Any]]]:
    """Yield ``(size, pick)`` for blocks of at most ``step`` rows; ``pick`` selects its rows."""
    parts = -(-count // step)
    for part in range(parts):
        lo, hi = part * count // parts, (part + 1) * count // parts

        def pick(array: Any, whole: int = 1, lo: int = lo, hi: int = hi) -> Any:
            size = -(-(hi - lo) // whole) * whole
            if rows is None:
                chosen = slice(lo, lo + size)
                return array[chosen] if sp.issparse(array) else array[chosen, ...]
            part = rows[lo:hi] if whole == 1 else np.resize(rows[lo:hi], size)
            if sp.issparse(array):
                return array[part]
            return array_namespace(array).take(array, part, axis=0)

        yield hi - lo, pick


class Total:
    """Accumulator of a sum over records by blocks; overwrites ``zeros``, a float64 array."""

    def __init__(self, zeros: Any) -> None:
        self._total, self._block = zeros, None
        self._filled = 0

    def open(self, rows: int) -> Any:
        """Return the array to which the caller adds the terms of the next ``rows`` rows."""
        if self._block is None or self._filled + rows > BLOCK_ROWS:
            self.close()
            self._block = array_namespace(self._total).zeros_like(self._total)
            self._filled = 0
        self._filled += rows
        return self._block

    def close(self) -> Any:
        """Return the total so far."""
        if self._block is not None:
            self._total += self._block
            self._block = None
        return self._total


def product_sum(c: Any, X: Any) -> Any:
    """Return ``c.T @ X`` in double precision, added up by blocks of rows."""
    xp = array_namespace(c)
    if sp.issparse(X):
        return c.T @ X.astype(c.dtype, copy=False)
    X = xp.astype(X, c.dtype, copy=False)
    rows, blocks = X.shape[0], X.shape[0] // BLOCK_ROWS
    if rows <= BLOCK_ROWS:
        return c.T @ X
    whole = blocks * BLOCK_ROWS
    left = xp.reshape(c[:whole, :], (blocks, BLOCK_ROWS, c.shape[1]))
    right = xp.reshape(X[:whole, :], (blocks, BLOCK_ROWS, X.shape[1]))
    total = xp.sum(xp.matmul(xp.permute_dims(left, (0, 2, 1)), right), axis=0)
    return total + c[whole:, :].T @ X[whole:, :]


def scaled_rows(X: Any, scale: Any) -> Any:
    """Return rows times their multipliers; entries of sparse rows keep their order."""
    # A product of sparse matrices would reorder them. Predictions then round in another way, for
    # all records as soon as one has a multiplier.
    if sp.issparse(X):
        times = np.repeat(scale, np.diff(X.indptr))
        return sp.csr_array((X.data * times, X.indices, X.indptr), X.shape)
    return X * scale[:, None]


# The check of :mod:`~dpanalysis.kernels.norms`, by array-API calls


_LEAST = 2.0**-1022  # the smallest normal number
_MANY = 1 << 16  # fewest entries for which the compiled kernel is used


def snapshot(X: Any) -> Any:
    """Return a copy of rows on the host: their owner may write to them after they are measured."""
    if sp.issparse(X) or is_numpy_array(X):
        return X.copy()
    return array_namespace(X).asarray(X, copy=True) if on_host(X) else X


def bounded_rows(X: Any, scale: Any, limits: Sequence[float], kept: Any = None) -> Any:
    """Return the rows, with those outside their limits set to zero."""
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
    """Return a mask of the rows outside their limits; see :func:`bounded_rows`."""
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
    """Return a mask of the rows whose norm of order 1 or 2 exceeds ``room`` or is NaN."""
    if is_numpy_array(X) and X.size >= _MANY and X.flags.c_contiguous and X.dtype.char in "fd":
        from .norms import norms  # Numba is slow to import

        return ~(norms(X, order) <= room)
    # In units of ``room``, so that underflow and overflow of squares do not matter.
    unit = xp.where(room < _LEAST, xp.full_like(room, _LEAST), room)
    if sp.issparse(X):
        shares = abs(X.data.astype(np.float64)) / np.repeat(unit, np.diff(X.indptr))
        sums = sp.csr_array((shares**order, X.indices, X.indptr), X.shape) @ np.ones(X.shape[1])
    else:
        shares = xp.abs(xp.astype(X, xp.float64, copy=False)) / unit[:, None]
        sums = xp.vecdot(shares, shares) if order == 2 else xp.sum(shares, axis=1)
    return ~(sums <= 1.0)


# Losses, clipping weights and sums

# Memory of a block's arrays on a device, where every call takes microseconds to start.
DEVICE_BLOCK_BYTES = 1 << 28
_HOST_ENTRIES = 1 << 18  # stays in cache
_COLUMNS = 10  # approximate number of temporary arrays (m, R) of a block
_PORTION_ENTRIES = 1 << 24  # of the rows that a device multiplies at a time, padded at the end


def rounding_margin(xp: Any, dtype: Any) -> float:
    """Return 1 minus the relative rounding error between a norm and the terms that are added."""
    return 1.0 - 8.0 * float(xp.finfo(dtype).eps)


def clip_to_bound(clipping: Clipping, norms: Any, losses: Any, dtype: Any = None) -> Any:
    """Return the rule's weights, clipped to the bounds used for calibration.

    The noise is computed from ``clip_norm`` and ``largest_weight``, so no weight may exceed them.
    A negative weight counts as zero, and a weight is NaN where the rule fails: an error caused by
    one record would reveal it. If the weights will be rounded to ``dtype``, there is room for that.
    """
    xp = array_namespace(norms)
    largest, limit, most, bound = clip_limits(xp, clipping, dtype)
    with np.errstate(all="ignore"):
        weights = rule_weights(clipping, norms, losses)
        zeros = xp.zeros_like(weights)
        weights = xp.where(weights < 0.0, zeros, weights)
        weights = xp.where(weights > largest, xp.full_like(weights, largest), weights)
        weights = xp.where(weights * norms > most, limit / norms, weights)
        # Still over where the quotient is subnormal.
        return xp.where(weights * norms > bound, zeros, weights)


def clip_limits(xp: Any, clipping: Clipping, dtype: Any) -> tuple[float, float, float, float]:
    """Return the largest weight, the norm to which longer terms are cut, that length, the bound."""
    bound = float(clipping.clip_norm)
    limit = rounding_margin(xp, xp.float64 if dtype is None else dtype) * bound
    return float(clipping.largest_weight), limit, bound if dtype is None else limit, bound


def rule_weights(clipping: Clipping, norms: Any, losses: Any) -> Any:
    """Return the rule's weights, NaN for samples at which it raises or gives no real number."""
    xp = array_namespace(norms)
    try:  # with copies, for the norms bound the weights afterwards, and a rule may write to its own
        own = [None if each is None else xp.asarray(each, copy=True) for each in (norms, losses)]
        return _real_like(norms, clipping.weight(*own))
    except Exception:
        flat = xp.reshape(norms, (-1,))
        if flat.shape[0] <= 1:
            return xp.full_like(norms, math.nan)
    sizes = None if losses is None else xp.reshape(losses, (-1,))
    half = flat.shape[0] // 2
    parts = [
        rule_weights(clipping, flat[k], None if sizes is None else sizes[k])
        for k in (slice(half), slice(half, None))
    ]
    return xp.reshape(xp.concat(parts), norms.shape)


def _real_like(array: Any, values: Any) -> Any:
    """Return a formula's values in the dtype and the shape of ``array``, or raise."""
    # One record may make them all complex, as numpy.emath.sqrt does at one negative number.
    xp = array_namespace(array)
    if not is_array_api_obj(values):
        values = xp.asarray(values, device=array.device)
    if xp.isdtype(values.dtype, "complex floating"):
        raise TypeError("the formula must give real numbers")
    return xp.broadcast_to(xp.astype(values, array.dtype, copy=False), array.shape)


def within(slopes: Any, low: float, high: float) -> Any:
    """Return derivatives clipped to the bounds used for calibration; NaN is kept."""
    xp = array_namespace(slopes)
    if high < math.inf:
        slopes = xp.where(slopes > high, xp.full_like(slopes, high), slopes)
    if low > -math.inf:
        slopes = xp.where(slopes < low, xp.full_like(slopes, low), slopes)
    return slopes


def formula_values(formula: Callable[[Any, Any], Any], z: Any, y: Any) -> Any:
    """Return a formula's values, NaN where it raises: an error at one record would reveal it."""
    xp = array_namespace(z)
    try:
        return _real_like(z, formula(z, y))
    except Exception:
        if z.shape[0] <= 1:
            return xp.full_like(z, math.nan)
    half = z.shape[0] // 2
    parts = (slice(half), slice(half, None))
    return xp.concat([formula_values(formula, z[k, ...], y[k, ...]) for k in parts])


def each_replicate(
    sums: Callable[..., tuple[Any, ...]], W: Any, rows: Sequence[Any], *rest: Any
) -> tuple[Any, ...]:
    """Return ``sums(W, rows, *rest)`` with one index array per replicate, the first axis."""
    parts = [sums(W[r : r + 1, :], part, *rest) for r, part in enumerate(rows)]
    if len(parts) == 1:  # concatenation would copy it
        return parts[0]
    return tuple(array_namespace(W).concat(column) for column in zip(*parts))


class ArraySums:
    """Sums over samples of a matrix in its own namespace and on its own device.

    For float32 data on a device the predictions, each a function of one row, are computed in
    single precision. Losses, norms, weights and sums over rows are double. On the host everything
    is double, as in the compiled kernels.

    A sample whose prediction, loss, derivative, norm or weight is not finite, or at which a
    formula raises, adds exactly zero. ``scale`` (n,) has the multiplier of each row; for
    ``limits`` see :mod:`dpanalysis.kernels.norms`.
    """

    def __init__(
        self, X: Any, y: Any, loss: Loss, scale: Any = None, limits: Sequence[float] = NO_LIMITS
    ) -> None:
        self.n, self.d = X.shape
        self._limits = limits
        self._X, self._y, self._loss, self._scale = X, y, loss, scale
        self._sparse = bool(sp.issparse(X))
        self._on_host = self._sparse or is_numpy_array(X)

    @np.errstate(all="ignore")  # a warning about one record would reveal it
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
        """Return ``values (R,), gradients (R, d or 0), clipped (R,)`` for validated arguments."""
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
                factor = clip_to_bound(clipping, norm, losses if needs_losses else None)
                c = c * factor
                known = known & xp.isfinite(norm) & xp.isfinite(c)
                cut = known & (factor < 1.0)
                if counts is not None:
                    cut = cut & (counts > 0.0)
                clipped += xp.sum(xp.astype(cut, xp.int64), axis=0)
            if scale is not None:
                c = c * scale
            # Nonfinite terms count as zero: NaN and inf * 0 would reveal a sample.
            c = xp.where(known & (xp.abs(c) >= TINY), c, xp.zeros_like(c))
            if counts is not None:
                c = c * counts
            left = None if scale is None else scale[:, 0]
            X = bounded_rows(X, left, self._limits, None if norms is None else pick(norms))
            block = gradients.open(size)
            block += product_sum(c, X)
        return values.close()[:, 0], gradients.close(), clipped

    def _predict(self, xp: Any, W: Any, X: Any, scale: Any, jumps: bool) -> tuple[Any, Any, Any]:
        """Return rows, their remaining multipliers, and predictions (m, R) in float64.

        A matrix product may round a row differently at each position in the block, and positions
        change if a record is added. If the derivative is discontinuous, or weights are very large,
        that turns a rounding error into a whole gradient. :func:`row_product` prevents this. On a
        device, which is not checked, products for a discontinuous derivative are summed by row.
        """
        if self._on_host:
            X = X.astype(W.dtype)  # a copy: the owner may write to X after a row is measured
            if scale is not None:
                X, scale = scaled_rows(X, scale[:, 0]), None
        else:
            X = snapshot(X)
        factors = xp.astype(W, X.dtype, copy=False)
        if jumps and not (self._sparse or on_host(X)):
            columns = [xp.sum(X * factors[r, :], axis=1) for r in range(W.shape[0])]
            z = xp.stack(columns, axis=1)
        else:
            z = row_product(X, factors.T, _PORTION_ENTRIES)
        z = xp.astype(z, W.dtype, copy=False)
        # Scaling the predictions is cheaper than scaling the rows.
        return X, scale, z if scale is None else z * scale

    def _step(self, gathered: bool, replicates: int) -> int:
        """Return the number of rows of a block."""
        if self._on_host:
            width = self._X.nnz // self.n if self._sparse else self.d
            return max(1, min(BLOCK_ROWS, _HOST_ENTRIES // max(replicates, width)))
        # A slice is not a copy, unless it is converted to double.
        copies = self.d * (gathered + (self._X.dtype != array_namespace(self._X).float64))
        return max(1, DEVICE_BLOCK_BYTES // (8 * (_COLUMNS * replicates + copies)))
