"""Rows in memory, with the sums over them that linear predictors need."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from array_api_compat import array_namespace, is_numpy_array

from ..._parallel import one_blas_thread
from ...clipping import Clipping
from ...kernels.array_api import (
    ArraySums,
    Total,
    bounded_rows,
    formula_values,
    product_sum,
    scaled_rows,
    within,
)
from ...kernels.compiled import CompiledSums, sparse_products
from ...kernels.kernel_table import is_compiled
from ...kernels.products import row_product
from ...kernels.rounding import BLOCK_ROWS
from ...losses import Loss
from ..row_bound import Order, RowBound
from .checks import (
    as_float64,
    check_unchanged,
    is_sparse,
    norm_limits,
    not_finite,
    overflowing,
    read_only,
    refuse_labels,
    refuse_not_finite,
    refuse_overflow,
    refuse_rows,
    row_blocks,
    row_limits,
    row_norms,
    rows_over,
    wrong_labels,
    zero_or_one,
)


@dataclass(frozen=True)
class RowStatistics:
    """Results of checking every row once; those of two parts can be added."""

    not_finite: tuple[tuple[int, str], ...]  # see checks.not_finite, in X and in y
    overflow: tuple[int, list[int]]  # see overflowing
    wrong_label: float | None
    zero_or_one: bool
    over: tuple[tuple[int, list[int], float], ...]  # see rows_over, for each bound

    @classmethod
    def of(
        cls,
        X: Any,
        y: Any,
        classification: bool,
        bounds: Sequence[RowBound],
        norms_of: Callable[[Any, Order], Any],
        start: int,
    ) -> RowStatistics:
        """Return the statistics of rows, of which the first has the number ``start``."""
        wrong = wrong_labels(y) if classification else y[:0]
        over = []
        for bound in bounds:
            count, first, largest = rows_over(norms_of(X, bound.order), bound)
            over.append((count, [start + i for i in first], largest))
        first_wrong = float(wrong[0]) if wrong.size else None
        finite = not_finite(X, start=start), not_finite(y, start=start)
        count, first = overflowing(X)
        overflow = count, [start + i for i in first]
        return cls(finite, overflow, first_wrong, zero_or_one(y), tuple(over))

    def __add__(self, other: RowStatistics) -> RowStatistics:
        both = zip(self.not_finite, other.not_finite)
        bad = tuple((a[0] + b[0], a[1] or b[1]) for a, b in both)
        wrong = other.wrong_label if self.wrong_label is None else self.wrong_label
        over = tuple(
            (a[0] + b[0], (a[1] + b[1])[:5], max(a[2], b[2])) for a, b in zip(self.over, other.over)
        )
        first = (self.overflow[1] + other.overflow[1])[:5]
        overflow = self.overflow[0] + other.overflow[0], first
        zero_one = self.zero_or_one and other.zero_or_one
        return RowStatistics(bad, overflow, wrong, zero_one, over)

    def check(self, bounds: Sequence[RowBound]) -> None:
        """Raise ValueError if the rows or labels are not valid."""
        for name, bad in zip(("X", "y"), self.not_finite):
            refuse_not_finite(name, *bad)
        refuse_overflow(*self.overflow)
        if self.wrong_label is not None:
            refuse_labels(self.wrong_label, self.zero_or_one)
        for bound, found in zip(bounds, self.over):
            if bound.enforce == "check":
                refuse_rows(bound, *found)


# Sums


def finite_or_zero(array: Any) -> Any:
    """Replace entries that are not finite by 0: a record that overflows adds nothing."""
    xp = array_namespace(array)
    return xp.where(xp.isfinite(array), array, xp.zeros_like(array))


class HostSums(ArraySums):
    """Sums by NumPy and SciPy, for losses and clipping rules that are not compiled."""

    def sums(self, *arguments: Any) -> tuple[Any, Any, Any]:
        """See :meth:`ArraySums.sums`; on one thread, so that the bits never vary."""
        with one_blas_thread():
            return super().sums(*arguments)


class InMemoryRows:
    """Rows, labels and multipliers of the rows, in the form returned by :func:`prepare`.

    ``norms(X, order)`` are the norms of rows (n,), and ``scale`` (n,) enforces ``bounds``. X is not
    copied and may be written to: see the notes of :class:`~dpanalysis.ERM`. Labels, multipliers and
    cached norms are copies that nothing else refers to.
    """

    def __init__(
        self,
        X: Any,
        y: Any,
        loss: Loss,
        scale: Any = None,
        norms: Callable[[Any, Order], Any] = row_norms,
        bounds: Sequence[RowBound] = (),
    ) -> None:
        self.X, self.y, self.scale = X, read_only(y), read_only(scale)
        self._bounds = tuple(bounds)
        self.n, self.d = X.shape
        self._limits = row_limits(self._bounds, self.d)
        self.parts = 1
        self.on_host = is_sparse(X) or is_numpy_array(X)
        self._loss, self._norms = loss, norms
        self._kept_norms: Any = None
        self._backends: dict[type, Any] = {}

    def most_parts(self, rows: int) -> int:
        """Return 1: any number of rows in memory is one part."""
        return 1

    def __getstate__(self) -> dict[str, Any]:
        # The other process would compile a pickled kernel again; it can load it from the cache.
        return {**self.__dict__, "_backends": {}}

    def sums(
        self, W: Any, rows: Any, clipping: Any, weights: Any, value: bool, gradient: bool
    ) -> tuple[Any, Any, Any]:
        """Return ``values (R,), gradients (R, d), clipped (R,)``, for checked arguments."""
        norms = None if clipping is None else self.norms()
        return self.backend(clipping).sums(W, rows, clipping, norms, weights, value, gradient)

    def backend(self, clipping: Clipping | None = None) -> Any:
        """Return the implementation of the sums, created on first use (it may import Numba)."""
        rule = type(clipping)
        if rule not in self._backends:
            kind: Any = ArraySums
            if self.on_host:
                kind = CompiledSums if is_compiled(self._loss, clipping) else HostSums
            made = {type(each): each for each in self._backends.values()}
            arguments = (self.X, self.y, self._loss, self.scale, self._limits)
            self._backends[rule] = made[kind] if kind in made else kind(*arguments)
        return self._backends[rule]

    def norms(self) -> Any:
        """Bounds on the L2 norms of the (scaled) rows, computed once; see :func:`norm_limits`."""
        if self._kept_norms is None:
            self._kept_norms = norm_limits(self.X, self.scale, self._limits[1], self._norms)
        return self._kept_norms

    def check_unchanged(self) -> None:
        """Raise ValueError if a row has grown since it was checked; one pass over X."""
        check_unchanged(self.X, self.scale, self._bounds, self._kept_norms)

    def predictions(self, ray: Any, rows: Any) -> tuple[Any, Any]:
        """Return ``<x, w>`` for the columns w of ``ray`` (d, k), shape (m, k), and the labels."""
        # The caller bounds values that overflow; a warning would reveal them.
        with one_blas_thread(), np.errstate(all="ignore"):
            if is_sparse(self.X):  # not copied
                rows = np.arange(self.n) if rows is None else rows
                z, labels = sparse_products(self.X, rows, ray), self.y[rows]
                return (z if self.scale is None else z * self.scale[rows, None]), labels
            data, labels, scale = self._take(rows)
            blocks = [row_product(as_float64(block), ray) for _, _, block in row_blocks(data)]
            xp = array_namespace(ray)
            z = xp.concat(blocks or [ray[:0, :]])
            return (z if scale is None else z * scale[:, None]), labels

    def _take(self, rows: Any) -> tuple[Any, Any, Any]:
        """Return rows, labels and scales of the samples ``rows``, or of all if None."""
        data, labels, scale = self.X, self.y, self.scale
        if rows is None:
            return data, labels, scale
        xp = array_namespace(labels)
        data = data[rows] if is_sparse(data) else xp.take(data, rows, axis=0)
        scale = None if scale is None else xp.take(scale, rows)
        return data, xp.take(labels, rows), scale

    def _curvatures(self, w: Any, rows: Any) -> Iterator[tuple[Any, Any]]:
        """Yield blocks of (scaled) rows in float64 with their second derivatives."""
        data, labels, scale = self._take(rows)
        for lo, hi, block in row_blocks(data, rows=BLOCK_ROWS if self.on_host else None):
            part = None if scale is None else scale[lo:hi]
            # A copy on the host: the owner of X may write to it after a norm was computed.
            block = block.astype(np.float64) if self.on_host else as_float64(block)
            block = bounded_rows(block, part, self._limits)
            if part is not None:
                block = scaled_rows(block, part)
            z = row_product(block, w[:, None])[:, 0]
            formula = self._loss.second_derivative
            curvature = formula_values(formula, z, as_float64(labels[lo:hi]))
            # Clipped to the bounds used for calibration.
            low = 0.0 if self._loss.convex else -self._loss.smoothness
            yield block, within(finite_or_zero(0.0 * z + curvature), low, self._loss.smoothness)

    def hessian_sum(self, w: Any, rows: Any) -> Any:
        """Sum of the samples' Hessians at ``w``, shape ``(d, d)``."""
        total = Total(array_namespace(w).zeros((self.d, self.d), dtype=w.dtype, device=w.device))
        with one_blas_thread(), np.errstate(all="ignore"):
            for block, curvature in self._curvatures(w, rows):
                part = total.open(block.shape[0])
                if is_sparse(block):
                    part += (block.T @ (sp.diags_array(curvature) @ block)).toarray()
                elif self._loss.convex:  # a product with itself takes half the multiplications
                    roots = curvature[:, None] ** 0.5 * block
                    part += product_sum(roots, roots)
                else:
                    part += product_sum(curvature[:, None] * block, block)
        return total.close()

    def hvp_sum(self, w: Any, v: Any, rows: Any) -> Any:
        """Sum of the samples' Hessians at ``w`` times ``v``, shape ``(d,)``."""
        total = Total(array_namespace(w).zeros((1, self.d), dtype=w.dtype, device=w.device))
        with one_blas_thread(), np.errstate(all="ignore"):
            for block, curvature in self._curvatures(w, rows):
                part = total.open(block.shape[0])
                part += product_sum(finite_or_zero(curvature * (block @ v))[:, None], block)
        return total.close()[0, :]

    def correct(self, W: Any) -> Any:
        """Count the labels predicted correctly by the sign of ``<x, w>``, for each row of ``W``."""
        xp = array_namespace(W)
        right = xp.zeros(W.shape[0], dtype=xp.int64, device=W.device)
        with one_blas_thread():
            for lo, hi, block in row_blocks(self.X):
                positive = (as_float64(block) @ W.T) > 0
                match = positive == (self.y[lo:hi] > 0)[:, None]
                right += xp.sum(xp.astype(match, xp.int64), axis=0)
        return right
