"""Data in files, read by blocks of rows, so that memory does not grow with the number of rows.

A sum over samples is a sum over blocks. Each time a block is read, it is converted if its dtype
requires it, and its norms and multipliers are recomputed: nothing of the length of the data is
stored, and the rows that enter a sum are within the public bounds whatever the file contains by
then. The blocks depend only on the shape of the data and are added in order, so that any number of
threads or workers gives the same bits.
"""

from __future__ import annotations

import mmap
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..._validation import refuse_mask
from ...kernels.array_api import each_replicate
from ...losses import Loss
from ..row_bound import Order, RowBound
from .checks import (
    canonical_csr,
    check_real,
    dense_rows,
    is_sparse,
    prepare,
    refuse_length,
    refuse_shape,
    row_norms,
    row_scale,
)
from .memory import InMemoryRows, RowStatistics


def mapping(array: Any) -> Any:
    """Return the file mapping that backs ``array``, or None."""
    return getattr(array, "_mmap", None) if isinstance(array, np.memmap) else None


class Mapped:
    """A memmap that records its file's size and is reopened when unpickled."""

    def __init__(self, array: Any) -> None:
        self.array = array
        self._bytes = mapping(array).size()
        self.check()

    def check(self) -> None:
        """Raise OSError if the file's size has changed: a read past its end kills the process."""
        now = mapping(self.array).size()  # of the file, by fstat
        if now != self._bytes or now < self._start() + len(mapping(self.array)):
            raise OSError(
                f"{self.array.filename or 'a file without a name'} has changed its size while it "
                f"was mapped: {self._bytes} bytes then, {now} now"
            )

    def _start(self) -> int:
        """Return the offset of the mapping in the file."""
        offset: int = self.array.offset
        return offset - offset % mmap.ALLOCATIONGRANULARITY

    def __reduce__(self) -> Any:
        array = self.array
        order = "C" if array.flags.c_contiguous else "F"
        if array.filename is None or not (array.flags.c_contiguous or array.flags.f_contiguous):
            raise TypeError(f"cannot pickle rows that are no whole part of a named file: {array!r}")
        # The ``offset`` of a slice of a memmap is that of the whole memmap.
        first = np.frombuffer(mapping(array), np.uint8).__array_interface__["data"][0]
        offset = self._start() + array.__array_interface__["data"][0] - first
        return _reopen, (array.filename, array.dtype, offset, array.shape, order, self._bytes)


def _reopen(
    name: Any, dtype: Any, offset: int, shape: tuple[int, ...], order: Any, size: int
) -> Mapped:
    mapped = Mapped(np.memmap(name, dtype, "r", offset, shape, order))
    mapped._bytes = size
    mapped.check()
    return mapped


# Blocks of rows


BLOCK_BYTES = 1 << 24  # large enough to be worth starting threads, small enough for any memory
ROW_BYTES = 32  # label, norm, multiplier and weight of a row
_ROWS_KEPT = 1 << 22  # number of rows up to which those four are kept

Call = Callable[[Any, Any, Any], Any]  # of a part, its rows, its weights


class Chunks(ABC):
    """Abstract base class of rows outside memory, with the sums of :class:`InMemoryRows`."""

    n: int
    d: int
    on_host = True
    X = None  # never loaded as a whole
    y = np.empty(0)  # identifies the namespace and device

    def check_unchanged(self) -> None:  # noqa: B027
        """Do nothing: rows are scaled to the bounds each time they are read."""

    @property
    @abstractmethod
    def parts(self) -> int:
        """Largest number of parts whose sums are added."""

    @abstractmethod
    def _all(self, call: Call, rows: Any, weights: Any) -> list[Any]:
        """Return ``call(part, rows, weights)`` for every part that has rows, in order."""

    @abstractmethod
    def _sum(self, call: Call, rows: Any, weights: Any) -> tuple[Any, ...] | None:
        """Return the elementwise sum of these tuples; None if there is no part."""

    def sums(
        self, W: Any, rows: Any, clipping: Any, weights: Any, value: bool, gradient: bool
    ) -> tuple[Any, Any, Any]:
        """See :meth:`InMemoryRows.sums`."""
        stated = _bounds_of(clipping)

        def sums(part: Any, rows: Any, weights: Any) -> tuple[Any, Any, Any]:
            refuse_other_code("clipping", clipping, _bounds_of(clipping), stated)
            return part.sums(W, rows, clipping, weights, value, gradient)

        R = W.shape[0]
        total = self._sum(sums, rows, weights)
        values, gradients, clipped = total or (np.zeros(R), np.zeros(W.shape), np.zeros(R, int))
        return values, gradients if gradient else np.empty((R, 0)), clipped

    def predictions(self, ray: Any, rows: Any) -> tuple[Any, Any]:
        """See :meth:`InMemoryRows.predictions`; needs memory for every requested row."""
        found = self._all(lambda part, rows, _: part.predictions(ray, rows), rows, None)
        z, labels = zip(*found) if found else ([np.empty((0, ray.shape[1]))], [np.empty(0)])
        return np.concatenate(z), np.concatenate(labels)

    def hessian_sum(self, w: Any, rows: Any) -> Any:
        """See :meth:`InMemoryRows.hessian_sum`."""
        total = self._sum(lambda part, rows, _: (part.hessian_sum(w, rows),), rows, None)
        return total[0] if total else np.zeros((self.d, self.d))

    def hvp_sum(self, w: Any, v: Any, rows: Any) -> Any:
        """See :meth:`InMemoryRows.hvp_sum`."""
        total = self._sum(lambda part, rows, _: (part.hvp_sum(w, v, rows),), rows, None)
        return total[0] if total else np.zeros(self.d)

    def correct(self, W: Any) -> Any:
        """See :meth:`InMemoryRows.correct`."""
        total = self._sum(lambda part, rows, weights: (part.correct(W),), None, None)
        return total[0] if total else np.zeros(W.shape[0], int)


def _bounds_of(clipping: Any) -> tuple[float, ...]:
    return () if clipping is None else (float(clipping.clip_norm), float(clipping.largest_weight))


def refuse_other_code(
    name: str, owner: Any, found: tuple[Any, ...], stated: tuple[Any, ...]
) -> None:
    """Raise ValueError if an object has other constants in this process than in the caller's."""
    # It is pickled by the name of its class, whose code or globals may differ there.
    if found != stated:
        raise ValueError(
            f"{name}: {owner!r} has the constants {found} in a worker, and {stated} in the process "
            "that computes the noise from them: restart the workers, with the same modules"
        )


def add(parts: Iterable[tuple[Any, ...]]) -> tuple[Any, ...] | None:
    """Add tuples of arrays elementwise, in order; None if there are none."""
    total = None
    for part in parts:
        total = part if total is None else tuple(a + b for a, b in zip(total, part))
    return total


class Blocks(Chunks):
    """Rows of a local array, memory-mapped or in memory, processed by blocks.

    X may have any real dtype and order, dense or sparse. ``in_place``: X, which the kernels can
    read directly, is one block, checked here.
    """

    def __init__(
        self, X: Any, y: Any, loss: Loss, bounds: Sequence[RowBound] = (), in_place: bool = False
    ) -> None:
        self.n, self.d = X.shape
        self._loss, self._bounds = loss, tuple(bounds)
        self._in_place = in_place
        if is_sparse(X):  # converted first, because duplicate entries are summed
            X = X.astype(_kernel_dtype(X.dtype), copy=False).tocsr()
        self._sources = [a if mapping(a) is None else Mapped(a) for a in (X, y)]
        self._open()

    def _open(self) -> None:
        # Plain arrays: slicing a memmap costs several times as much.
        arrays: list[Any] = [
            source if is_sparse(source) else np.asarray(getattr(source, "array", source))
            for source in self._sources
        ]
        self._rows, self._labels = arrays
        self._whole: InMemoryRows | None = None
        if self._in_place:
            X, y = prepare(self._rows, self._labels, self._loss.classification)
            scale = row_scale(X, self._bounds)
            self._whole = InMemoryRows(X, y, self._loss, scale, bounds=self._bounds)

    @classmethod
    def mapped(cls, X: np.memmap, y: Any, loss: Loss, bounds: Sequence[RowBound]) -> Blocks:
        """Return the checked blocks of a mapped file.

        A small number of rows that the kernels can read directly are one block, used in place.
        """
        check_real("X", X)
        refuse_mask("y", y)
        y = np.array(y) if mapping(y) is None else y  # a copy that nothing else refers to
        check_real("y", y)
        refuse_shape(X)
        refuse_length(X, y)
        readable = _kernel_dtype(X.dtype) == X.dtype and X.flags.c_contiguous and X.flags.aligned
        blocks = cls(X, y, loss, bounds, in_place=readable and len(X) <= _ROWS_KEPT)
        if not blocks._in_place:
            blocks.statistics().check(bounds)
        return blocks

    def statistics(self, start: int = 0) -> RowStatistics:
        """Return the statistics of all rows, read once; ``start`` is the number of the first."""

        def look(chosen: slice) -> RowStatistics:
            X, y = self._read(chosen)
            first = start + chosen.start
            return RowStatistics.of(
                X, y, self._loss.classification, self._bounds, self._norms, first
            )

        return reduce(RowStatistics.__add__, map(look, self._slices(self.n)))

    # Parts

    @property
    def parts(self) -> int:
        """Largest number of parts whose sums are added; a batch of n + 1 rows has one more."""
        return 1 if self._whole is not None else 2 + sum(1 for _ in self._slices(self.n))

    def most_parts(self, rows: int) -> int:
        """Return the largest number of parts for any dense file of at most ``rows`` rows."""
        entry = _kernel_dtype(self._rows.dtype).itemsize
        return 2 + -(-rows // _rows_in_block(entry * self.d))

    def _slices(self, count: int) -> Iterator[slice]:
        """Yield the slices that divide ``count`` rows into blocks."""
        X = self._rows
        entry = _kernel_dtype(X.dtype).itemsize
        width = 2 * entry * X.nnz // max(1, self.n) if is_sparse(X) else entry * self.d
        step = _rows_in_block(width)
        for lo in range(0, count, step):
            yield slice(lo, min(count, lo + step))

    def _check_files(self) -> None:
        for source in self._sources:
            if isinstance(source, Mapped):
                source.check()

    def _read(self, chosen: Any) -> tuple[Any, Any]:
        """Return rows and labels for a slice or an index array, in the form the kernels need."""
        self._check_files()
        dtype = _kernel_dtype(self._rows.dtype)
        labels = self._labels[chosen].astype(np.float64)  # a copy that nothing else refers to
        if is_sparse(self._rows):
            return canonical_csr(self._rows[chosen]), labels
        whole = isinstance(chosen, slice)
        rows = self._rows[chosen] if whole else self._rows.take(chosen, axis=0)
        return dense_rows(rows, dtype), labels

    def _norms(self, X: Any, order: Order) -> Any:
        if is_sparse(X) or order not in (1, 2):
            return row_norms(X, order)
        from ...kernels.norms import norms

        return norms(X, int(order))

    def _part(self, chosen: Any) -> InMemoryRows:
        X, y = self._read(chosen)
        orders: set[Order] = {bound.order for bound in self._bounds} or {2}
        norms = {order: self._norms(X, order) for order in orders}
        lost = self._invalid_rows(y, norms)
        if lost.any():
            X, y = _with_zero_rows(X, lost), np.where(lost, 1.0, y)
            norms = {order: np.where(lost, 0.0, found) for order, found in norms.items()}

        def norms_of(_: Any, order: Order) -> Any:
            if order not in norms:
                norms[order] = self._norms(X, order)
            return norms[order]

        bounds = [replace(bound, enforce="clip") for bound in self._bounds]
        scale = row_scale(X, bounds, norms_of)
        return InMemoryRows(X, y, self._loss, scale, norms_of, bounds)

    def _invalid_rows(self, y: Any, norms: dict[Order, Any]) -> Any:
        """Return a mask of the rows that have become invalid, which count as zeros with label 1.

        A file may change after it was checked. An error in the middle of a run would reveal the
        presence of such a record; a row of zeros is a record like any other.
        """
        lost = ~np.isfinite(y)
        if self._loss.classification:
            lost |= (y != 1.0) & (y != -1.0)
        for found in norms.values():
            lost |= ~np.isfinite(found)
        return lost

    def _each(self, call: Call, rows: Any, weights: Any) -> Iterator[Any]:
        self._check_files()
        if self._whole is not None:
            yield call(self._whole, rows, weights)
            return
        for chosen in self._slices(self.n if rows is None else len(rows)):
            picked = chosen if rows is None else rows[chosen]
            yield call(self._part(picked), None, None if weights is None else weights[picked])

    def _all(self, call: Call, rows: Any, weights: Any) -> list[Any]:
        return list(self._each(call, rows, weights))

    def _sum(self, call: Call, rows: Any, weights: Any) -> tuple[Any, ...] | None:
        return add(self._each(call, rows, weights))

    def sums(
        self, W: Any, rows: Any, clipping: Any, weights: Any, value: bool, gradient: bool
    ) -> tuple[Any, Any, Any]:
        """See :meth:`InMemoryRows.sums`."""
        if isinstance(rows, list) and self._whole is None:
            return each_replicate(super().sums, W, rows, clipping, weights, value, gradient)
        return super().sums(W, rows, clipping, weights, value, gradient)

    def check_unchanged(self) -> None:
        """Raise ValueError if rows used in place have grown since they were checked.

        Other rows are scaled to the bounds each time they are read.
        """
        self._check_files()
        if self._whole is not None:
            self._whole.check_unchanged()

    # Pickling

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_rows": None, "_labels": None, "_whole": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open()


def _rows_in_block(width: int) -> int:
    """Return the number of rows per block, for rows of ``width`` bytes."""
    return max(1, BLOCK_BYTES // (width + ROW_BYTES))


def _with_zero_rows(X: Any, lost: Any) -> Any:
    """Return a copy of ``X`` with zeros in the ``lost`` rows."""
    if is_sparse(X):
        kept = np.where(np.repeat(lost, np.diff(X.indptr)), 0, X.data).astype(X.dtype)
        return sp.csr_array((kept, X.indices, X.indptr), X.shape)
    X = X.copy()
    X[lost] = 0
    return X


def _kernel_dtype(dtype: np.dtype) -> np.dtype:
    """Return float32 if it represents every number of ``dtype`` exactly, else float64."""
    return np.dtype(np.float32 if np.can_cast(dtype, np.float32) else np.float64)
