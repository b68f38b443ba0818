"""Plans and runs the compiled kernels: dense and CSR data, one or many replicates.

The rows are cut into tasks whose bounds depend on the data's shape and on the rows
asked for, never on the number of threads, and the partial sums of the tasks are added
in a fixed order: any number of threads gives the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from ..clipping import Clipping
from ..losses import Loss

__all__ = ["CompiledSums"]

_EMPTY = np.empty(0)
_EMPTY.flags.writeable = False
_NO_ROWS = np.empty(0, np.int64)
_NO_ROWS.flags.writeable = False

_TASK_ENTRIES = 1 << 16  # entries of X worth a task of their own
_MAX_TASKS = 64  # per replicate


def _read_only(array: np.ndarray) -> np.ndarray:
    """View an array as read-only, so that every kernel is compiled for one type only."""
    view = array.view()
    view.flags.writeable = False
    return view


class CompiledSums:
    """Sums over samples of a NumPy matrix or a SciPy CSR matrix, by Numba.

    Parameters
    ----------
    X : ndarray of shape (n, d) or scipy.sparse.csr_array
        C-ordered; float32 or float64. Sums are accumulated in float64.
    y : ndarray of shape (n,)
    loss : Loss
    scale : ndarray of shape (n,), optional
        Multiplier of each row.
    """

    def __init__(self, X: Any, y: np.ndarray, loss: Loss, scale: np.ndarray | None = None) -> None:
        self.n, self.d = X.shape
        self._y = _read_only(np.ascontiguousarray(y, dtype=np.float64))
        self._scale = _EMPTY if scale is None else _read_only(scale)
        self._loss = loss
        self._data: Any
        if isinstance(X, np.ndarray):
            from . import dense

            self._data = _read_only(X)
            self._entries = self.n * self.d
            self._single, self._parallel = dense.dense_range, dense.dense_parallel
        else:
            from . import sparse

            self._data = tuple(_read_only(part) for part in (X.data, X.indices, X.indptr))
            self._entries = X.nnz
            self._single, self._parallel = sparse.csr_range, sparse.csr_parallel

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
        """Return ``values (R,), gradients (R, d), clipped (R,)``; arguments are checked."""
        replicates = W.shape[0]
        indexed = rows is not None
        if rows is None:
            flat, bounds = _NO_ROWS, [(0, self.n)] * replicates
        elif isinstance(rows, np.ndarray):
            flat, bounds = rows, [(0, rows.size)] * replicates
        else:
            flat = np.concatenate(rows) if replicates > 1 else rows[0]
            ends = np.cumsum([part.size for part in rows]).tolist()
            bounds = list(zip([0, *ends[:-1]], ends))
        samples = (
            self._y,
            self._scale,
            _EMPTY if norms is None else _read_only(norms),
            _EMPTY if weights is None else _read_only(weights),
        )
        rule = (
            self._loss.code,
            self._loss.parameter,
            0 if clipping is None else clipping.code,
            1.0 if clipping is None else clipping.clip_norm,
        )
        tasks = self._tasks(bounds)
        values = np.zeros(len(tasks))
        gradients = np.zeros((len(tasks), self.d if want_gradient else 0))
        clipped = np.zeros(len(tasks), np.int64)
        wanted = (rule, want_value, want_gradient)
        flat, W = _read_only(flat), _read_only(W)
        if len(tasks) == 1:
            _, lo, hi = tasks[0]
            values[0], clipped[0] = self._single(
                self._data, samples, flat, indexed, lo, hi, W[0], *wanted, gradients[0]
            )
            return values, gradients, clipped
        self._parallel(
            self._data, samples, flat, indexed, tasks, W, *wanted, values, gradients, clipped
        )
        starts = np.searchsorted(tasks[:, 0], np.arange(replicates))
        return (
            np.add.reduceat(values, starts),
            np.add.reduceat(gradients, starts, axis=0),
            np.add.reduceat(clipped, starts),
        )

    def _tasks(self, bounds: list[tuple[int, int]]) -> np.ndarray:
        """Cut ``bounds[r] = (lo, hi)`` into tasks ``(r, lo, hi)``, at least one each."""
        tasks = []
        for replicate, (lo, hi) in enumerate(bounds):
            work = (hi - lo) * self._entries // self.n
            # No more partial gradients than the data itself is worth.
            count = max(1, min(_MAX_TASKS, work // _TASK_ENTRIES, work // self.d))
            cuts = np.linspace(lo, hi, count + 1).astype(np.int64)
            tasks += [(replicate, a, b) for a, b in pairwise(cuts)]
        return np.array(tasks, dtype=np.int64)
