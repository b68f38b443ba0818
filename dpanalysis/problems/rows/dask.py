"""Data in a Dask array: one task per chunk of rows, a tree of additions, one call per sum.

The current scheduler runs them: threads, processes, or a cluster.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Any

import dask
import dask.array as da
import numpy as np

from ..._validation import refuse_mask, warn_caller
from ...losses import Loss, constants_of
from ..row_bound import RowBound
from .checks import check_real, is_sparse, refuse_length, refuse_shape
from .mapped import BLOCK_BYTES, ROW_BYTES, Blocks, Call, Chunks, add, refuse_other_code
from .memory import RowStatistics

_BRANCHES = 8  # of the tree of additions
_MOST_CHUNKS, _ROWS_IN_CHUNK = 1024, 4096  # with a size: this many chunks, or one per so many rows


class DaskChunks(Chunks):
    """Checked chunks of rows of a Dask array.

    Chunks of X are NumPy arrays of any real dtype, or SciPy CSR matrices. Chunks along the features
    are merged and unknown sizes are computed, each with a warning. A NumPy array y is sent to a
    cluster with every sum; a Dask array is not.
    """

    def __init__(self, X: Any, y: Any, loss: Loss, bounds: Sequence[RowBound]) -> None:
        if not isinstance(X, da.Array):
            raise TypeError(
                f"X must be a dask.array.Array, got {type(X)}; of a data frame pass "
                "X.to_dask_array(lengths=True)"
            )
        refuse_mask("X", X._meta)
        check_real("X", X)
        X = _known("X", X)
        refuse_shape(X)
        if len(X.chunks[1]) > 1:
            warn_caller(
                f"X has {len(X.chunks[1])} chunks along the features and is rechunked, since a "
                "prediction needs a whole row: X.rechunk({1: -1}) beforehand is cheaper, once"
            )
            X = X.rechunk({1: -1})
        self.n, self.d = X.shape
        if isinstance(y, da.Array):
            check_real("y", y)
            y = _known("y", y)
            refuse_length(X, y)
            y = y.rechunk((X.chunks[0],))
        else:
            refuse_mask("y", y)
            y = np.array(y)  # a copy that nothing else refers to
            check_real("y", y)
            refuse_length(X, y)
            y = da.from_array(y, chunks=(X.chunks[0],))
        self._source = X, y  # a cluster frees its data when these are deleted
        sizes = X.chunks[0]
        self._chunks = [
            (int(end - size), int(end), rows, labels)
            for size, end, rows, labels in zip(
                sizes, np.cumsum(sizes), X.to_delayed().ravel(), y.to_delayed().ravel(), strict=True
            )
            if size
        ]
        self._public = self.d, loss, tuple(bounds), constants_of(loss)
        statistics, public = dask.delayed(_statistics), dask.delayed(self._public, traverse=False)
        found = dask.compute(*(statistics(public, *chunk) for chunk in self._chunks))
        reduce(RowStatistics.__add__, found).check(bounds)

    @property
    def parts(self) -> int:
        """Largest number of parts whose sums are added: each chunk is summed by blocks of rows."""
        return sum(3 + (hi - lo) // self._step for lo, hi, _, _ in self._chunks)

    @property
    def _step(self) -> int:
        """Minimum number of rows in a block, that of a dense one."""
        return max(1, BLOCK_BYTES // (2 * (8 * self.d + ROW_BYTES)))

    def most_parts(self, rows: int) -> int:
        """Return the largest number of parts of ``rows`` rows in the allowed number of chunks."""
        most = max(_MOST_CHUNKS, rows // _ROWS_IN_CHUNK)
        if len(self._chunks) > most:
            raise ValueError(
                f"X must have at most {most} chunks of rows where size is given, got "
                f"{len(self._chunks)}: the noise covers the rounding errors of so many sums; "
                "X.rechunk((rows, -1)) makes fewer"
            )
        return 3 * most + rows // self._step

    def _tasks(self, call: Call, rows: Any, weights: Any) -> list[Any]:
        """Return a task for each chunk that has rows."""
        shared = dask.delayed((call, self._public), traverse=False)  # sent once
        task = dask.delayed(_task)
        tasks = []
        for chunk, picked in zip(self._chunks, self._split(rows)):
            batches = picked if isinstance(picked, list) else [picked]
            if picked is None or any(len(batch) for batch in batches):
                multiplicities = None if weights is None else weights[slice(*chunk[:2])]
                tasks.append(task(shared, *chunk, picked, multiplicities))
        return tasks

    def _split(self, rows: Any) -> Iterator[Any]:
        """Yield the rows of each chunk, numbered from its own first row."""
        several = isinstance(rows, list)
        parts = [None if part is None else np.sort(part) for part in (rows if several else [rows])]
        for lo, hi, _, _ in self._chunks:
            found = [
                None if part is None else part[slice(*np.searchsorted(part, (lo, hi)))] - lo
                for part in parts
            ]
            yield found if several else found[0]

    def _all(self, call: Call, rows: Any, weights: Any) -> list[Any]:
        return list(dask.compute(*self._tasks(call, rows, weights)))

    def _sum(self, call: Call, rows: Any, weights: Any) -> tuple[Any, ...] | None:
        tasks, plus = self._tasks(call, rows, weights), dask.delayed(add)
        while len(tasks) > 1:
            tasks = [plus(tasks[k : k + _BRANCHES]) for k in range(0, len(tasks), _BRANCHES)]
        return dask.compute(*tasks)[0] if tasks else None

    def predictions(self, ray: Any, rows: Any) -> tuple[Any, Any]:
        """See :meth:`InMemoryRows.predictions`."""
        z, labels = super().predictions(ray, rows)
        if rows is None:
            return z, labels
        place = np.empty(len(rows), np.int64)  # of each requested row in sorted order
        place[np.argsort(rows, kind="stable")] = np.arange(len(rows))
        return z[place], labels[place]


def _known(name: str, array: Any) -> Any:
    """Return ``array`` with chunks of known sizes."""
    if not any(math.isnan(size) for sizes in array.chunks for size in sizes):
        return array
    warn_caller(
        f"{name} has chunks of unknown sizes, which are computed now by a pass over the data; "
        f"{name}.compute_chunk_sizes() beforehand does it once"
    )
    return array.copy().compute_chunk_sizes()  # modifies the array in place


# Run by the workers


def _blocks(public: Any, lo: int, hi: int, X: Any, y: Any) -> Blocks:
    """Return the rows of a chunk; raise if they differ from the array's metadata."""
    d, loss, bounds, constants = public
    refuse_other_code("loss", loss, constants_of(loss), constants)
    if not (is_sparse(X) or isinstance(X, np.ndarray)):
        raise TypeError(f"chunks of X must be NumPy arrays or SciPy CSR matrices, got {type(X)}")
    refuse_mask("X", X)
    refuse_mask("y", y)
    check_real("X", X)
    check_real("y", y)
    if X.shape != (hi - lo, d) or y.shape != (hi - lo,):
        raise ValueError(
            f"rows {lo} to {hi - 1} must be a chunk of X of shape {(hi - lo, d)} and one of y of "
            f"shape {(hi - lo,)}, as the arrays' metadata say, got {X.shape} and {y.shape}"
        )
    return Blocks(X, y, loss, bounds)


def _statistics(public: Any, lo: int, hi: int, X: Any, y: Any) -> RowStatistics:
    return _blocks(public, lo, hi, X, y).statistics(lo)


def _task(shared: Any, lo: int, hi: int, X: Any, y: Any, rows: Any, weights: Any) -> Any:
    call, public = shared
    return call(_blocks(public, lo, hi, X, y), rows, weights)
