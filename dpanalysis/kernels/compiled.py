"""Sums by the compiled kernels: dense and CSR data, one or many replicates.

The rows are divided into tasks whose bounds depend on the data's shape and on the selected rows,
never on the number of threads, and the partial sums of the tasks are added in a fixed order: any
number of threads gives the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from .._parallel import MOST_TASKS, run_tasks
from ..clipping import Clipping
from ..losses import Loss
from . import SHARED_BLOCK, kernel_table
from .rounding import NO_LIMITS

_EMPTY = np.empty(0)
_EMPTY.flags.writeable = False
_NO_ROWS = np.empty(0, np.int64)
_NO_ROWS.flags.writeable = False

_TASK_ENTRIES = 1 << 16  # least entries of X for a separate task
_MAX_SHARED_FEATURES = 2048  # a wider dense tile does not fit into a cache
_MIN_SHARED = 2  # least replicates for which a shared pass is faster

# Address and numbers of the formulas; whether values and gradients are wanted.
_Wanted: TypeAlias = tuple[int, np.ndarray, int, int]


def _read_only(array: np.ndarray) -> np.ndarray:
    """View an array as read-only and C-ordered: every kernel is compiled for one type only."""
    flags = array.flags
    if flags.c_contiguous and not flags.writeable:
        return array
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


def sparse_products(X: Any, rows: np.ndarray, ray: np.ndarray) -> np.ndarray:
    """Return the products (m, K) of rows of a CSR matrix with the columns of ``ray`` (d, K)."""
    from .csr import csr_products

    products = np.empty((rows.size, ray.shape[1]))
    matrix = tuple(_read_only(part) for part in (X.data, X.indices, X.indptr))
    csr_products(matrix, _read_only(rows), _read_only(ray.T), products)
    return products


class CompiledSums:
    """Sums over samples of a NumPy matrix or a SciPy CSR matrix, by Numba.

    ``X`` (n, d) is C-ordered, float32 or float64; sums are accumulated in float64. ``scale`` (n,)
    has the multiplier of each row; for ``limits`` see :mod:`dpanalysis.kernels.norms`.
    """

    def __init__(
        self,
        X: Any,
        y: np.ndarray,
        loss: Loss,
        scale: np.ndarray | None = None,
        limits: Sequence[float] = NO_LIMITS,
    ) -> None:
        self.n, self.d = X.shape
        self._y = _read_only(y.astype(np.float64, copy=False))
        self._scale = _EMPTY if scale is None else _read_only(scale)
        self._limits = _read_only(np.array(limits))
        self._loss = loss
        self._kept: tuple[Clipping | None, kernel_table.KernelPlan] | None = None
        self._data: Any
        self._sparse = not isinstance(X, np.ndarray)
        if self._sparse:
            self._data = tuple(_read_only(part) for part in (X.data, X.indices, X.indptr))
            self._entries = X.nnz
            self._block, self._wide = 1, self.d
        else:
            self._data = _read_only(X)
            self._entries = self.n * self.d
            self._block, self._wide = SHARED_BLOCK, _MAX_SHARED_FEATURES
        self._all_rows = self._tasks([(0, self.n)])

    def sums(
        self,
        W: np.ndarray,
        rows: np.ndarray | Sequence[np.ndarray] | None,
        clipping: Clipping | None,
        norms: np.ndarray | None,
        weights: np.ndarray | None,
        want_value: bool,
        want_gradient: bool,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return ``values (R,), gradients (R, d), clipped (R,)`` for validated arguments."""
        samples = (
            self._y,
            self._scale,
            _EMPTY if norms is None else _read_only(norms),
            _EMPTY if weights is None else _read_only(weights),
            self._limits,
        )
        terms, numbers, kernels = self._plan(clipping)
        wanted = (terms, numbers, int(want_value), int(want_gradient))
        together = W.shape[0] >= _MIN_SHARED and self.d <= self._wide
        if together and (rows is None or isinstance(rows, np.ndarray)):
            return self._sums_shared(W, rows, samples, wanted, partial(run_tasks, kernels.shared))
        return self._sums_each(W, rows, samples, wanted, partial(run_tasks, kernels.each))

    def _plan(self, clipping: Clipping | None) -> kernel_table.KernelPlan:
        """Return the kernels and formulas of the sums, cached for the last rule."""
        kept = self._kept  # read once: another thread may replace it by that of another rule
        if kept is None or kept[0] is not clipping:
            kept = clipping, kernel_table.plan(self._loss, clipping, self._sparse)
            if kernel_table.is_fixed(self._loss, clipping):
                self._kept = kept
        return kept[1]

    def _sums_each(
        self, W: np.ndarray, rows: Any, samples: Any, wanted: _Wanted, run: Any
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Pass over the rows separately for each replicate."""
        replicates = W.shape[0]
        if rows is None or isinstance(rows, np.ndarray):
            count = self.n if rows is None else rows.size
            flat, bounds = rows, [(0, count)] * replicates
        else:
            flat = np.concatenate(rows) if replicates > 1 else rows[0]
            ends = np.cumsum([part.size for part in rows]).tolist()
            bounds = list(zip([0, *ends[:-1]], ends))
        indexed = flat is not None
        flat = _NO_ROWS if flat is None else _read_only(flat)
        tasks = self._all_rows if rows is None and replicates == 1 else self._tasks(bounds)
        values = np.zeros(len(tasks))
        gradients = np.zeros((len(tasks), self.d if wanted[3] else 0))
        clipped = np.zeros(len(tasks), np.int64)
        W = _read_only(W)
        data = (self._data, samples, flat, indexed)
        run((data, tasks, W, wanted, (values, gradients, clipped)), len(tasks))
        if len(tasks) == 1:
            return values, gradients, clipped
        starts = np.searchsorted(tasks[:, 0], np.arange(replicates))
        return (
            np.add.reduceat(values, starts),
            np.add.reduceat(gradients, starts, axis=0),
            np.add.reduceat(clipped, starts),
        )

    def _sums_shared(
        self, W: np.ndarray, rows: np.ndarray | None, samples: Any, wanted: _Wanted, run: Any
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Pass once over rows that all replicates share."""
        replicates = W.shape[0]
        high = -(-replicates // self._block) * self._block
        wide = -(-self.d // self._block) * self._block
        padded = np.zeros((high, wide))
        padded[:replicates, : self.d] = W
        indexed = rows is not None
        count = self.n if rows is None else rows.size
        tasks = self._tasks([(0, count)], replicates)
        values = np.zeros((len(tasks), high))
        gradients = np.zeros((len(tasks), *((high, wide) if wanted[3] else (0, 0))))
        clipped = np.zeros((len(tasks), high), np.int64)
        flat = _NO_ROWS if rows is None else _read_only(rows)
        data = (self._data, samples, flat, indexed)
        padded = _read_only(padded)
        run((data, tasks, padded, wanted, (values, gradients, clipped)), len(tasks))
        return (
            values.sum(axis=0)[:replicates],
            gradients.sum(axis=0)[:replicates, : self.d],
            clipped.sum(axis=0)[:replicates],
        )

    def _tasks(self, bounds: list[tuple[int, int]], replicates: int = 1) -> np.ndarray:
        """Divide ``bounds[r] = (lo, hi)`` into tasks ``(r, lo, hi)``, at least one each."""
        tasks = []
        for replicate, (lo, hi) in enumerate(bounds):
            entries = (hi - lo) * self._entries // self.n
            # Partial gradients must not take more memory than their data.
            most = min(MOST_TASKS, entries // (self.d * replicates))
            count = max(1, min(most, entries * replicates // _TASK_ENTRIES))
            for k in range(count):
                cuts = lo + (hi - lo) * k // count, lo + (hi - lo) * (k + 1) // count
                tasks.append((replicate, *cuts))
        return np.array(tasks, dtype=np.int64)
