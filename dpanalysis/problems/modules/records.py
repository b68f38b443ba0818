"""Records of a module: read, checked, and moved to its device as one tensor per input."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset

from ..._validation import refuse_mask
from ...kernels.array_api import rounding_margin
from ..row_bound import RowBound
from ..rows.checks import has_read_width, is_sparse, row_scale
from .network import Inputs, rows_of

_BLOCK = 256  # records of a Dataset that are read at a time
_SHOWN = 8  # records kept as examples of the form of all


class Records:
    """Records stored as one tensor per input, on the device; ``first`` has the form of all."""

    def __init__(self, samples: Inputs) -> None:
        self.samples = samples
        self.first = rows_of(samples, slice(_SHOWN))

    def __len__(self) -> int:
        return len(self.samples[0])

    def chunk(self, chosen: slice | Tensor, length: int) -> Inputs:
        """Return the chosen records, padded with zeros to a length."""
        return tuple(filled(each, chosen, length) for each in self.samples)


class StoredRecords:
    """Records of a Dataset, read whenever a chunk contains them.

    All are read once at construction, so that an invalid record is named before anything is spent;
    the labels are kept. No record can affect what was read for another: each has its own tensor.
    """

    def __init__(
        self, dataset: Any, dtype: torch.dtype, device: torch.device, bounds: Sequence[RowBound]
    ) -> None:
        self._dataset, self._dtype, self._device, self._bounds = dataset, dtype, device, bounds
        self._form: list[Tensor] = []
        labels = []
        for lo in range(0, len(dataset), _BLOCK):
            inputs, found = self._read(range(lo, min(lo + _BLOCK, len(dataset))))
            labels.append(found)
            if lo == 0:
                self.first = tuple(each[:_SHOWN].clone() for each in inputs)
        if not labels:
            raise ValueError("X must have at least one record, got an empty Dataset")
        self.labels = torch.cat(labels)
        last = range(min(_SHOWN, len(dataset)) - 1, -1, -1)
        again, kept = self._read(last)
        pairs = zip((*rows_of(self.first, list(last)), self.labels[list(last)]), (*again, kept))
        if not all(torch.equal(before, now) for before, now in pairs):
            raise ValueError(
                "X must be a Dataset that gives the same record whenever it is asked for it, with "
                "in_memory=False: for random views of a record take augment="
            )

    def __len__(self) -> int:
        return len(self.labels)

    def chunk(self, chosen: slice | Tensor, length: int) -> Inputs:
        """Return the chosen records, read now, padded with zeros to a length."""
        numbers = range(chosen.start, chosen.stop) if isinstance(chosen, slice) else chosen.tolist()
        inputs, _ = self._read(numbers)
        return tuple(filled(each, slice(0, len(numbers)), length) for each in inputs)

    def _read(self, numbers: Sequence[int]) -> tuple[Inputs, Tensor]:
        """Return some records, in the form for the module, and their labels."""
        arrays, labels = _read(self._dataset, numbers, self._form)
        samples = as_samples(arrays, self._dtype, self._device, numbers)
        return inside(samples, self._bounds), labels


def as_records(
    X: Any,
    y: Any,
    in_memory: bool,
    dtype: torch.dtype,
    device: torch.device,
    bounds: Sequence[RowBound],
) -> tuple[Records | StoredRecords, Any, bool]:
    """Return records and labels, and whether the number of columns was inferred from a file."""
    if not in_memory:
        if not isinstance(X, Dataset):
            raise TypeError(
                "X must be a torch.utils.data.Dataset with in_memory=False, got "
                f"{type(X).__name__}; an array may be a numpy.memmap"
            )
        _refuse_undrawable(X, y)
        stored = StoredRecords(X, dtype, device, bounds)
        return stored, stored.labels, False
    arrays, labels = as_arrays(X, y)
    records = Records(inside(as_samples(arrays, dtype, device), bounds))
    return records, labels, any(map(has_read_width, arrays))


def as_arrays(X: Any, y: Any) -> tuple[tuple[Any, ...], Any]:
    """Return one array per input, and the labels; a map-style Dataset is read in order."""
    _refuse_undrawable(X, y)
    if isinstance(X, Dataset):
        if not len(X):
            raise ValueError("X must have at least one record, got an empty Dataset")
        return _read(X, range(len(X)), [])
    if y is None:
        raise TypeError(
            "y must be given, unless X is a torch.utils.data.Dataset of pairs (x, y), got "
            f"{type(X).__name__} alone"
        )
    if isinstance(X, tuple):
        if not X:
            raise ValueError("X must have an array for each input of the module, got ()")
        for place, each in enumerate(X):
            if not _is_array(each):
                raise TypeError(
                    "X must be one array, or a tuple of arrays, one for each input of the module, "
                    f"got a tuple with {type(each).__name__} at place {place}"
                )
        return X, y
    several = isinstance(X, list) and X and all(map(_is_array, X)) and len(X) != len(y)
    if several or isinstance(X, dict):
        raise TypeError(
            "X must be one array, or a tuple of arrays, one for each input of the module in the "
            f"order of forward, got a {type(X).__name__} of {len(X)}"
        )
    return (X,), y


def _refuse_undrawable(X: Any, y: Any) -> None:
    """Raise TypeError for objects without indexed records, or a Dataset together with labels."""
    # A DataLoader draws batches itself, but the sampling is part of the guarantee.
    if isinstance(X, DataLoader):
        raise TypeError(
            "X must hold the records, got a DataLoader, which draws batches itself: give its "
            "dataset, Module(module, loader.dataset), and how batches are drawn to the method, as "
            "in SGD(..., sampling=Poisson(rate))"
        )
    if isinstance(X, IterableDataset):
        raise TypeError(
            "X must be an array or a Dataset with a length, got an IterableDataset: batches are "
            "drawn by the number of a record"
        )
    if isinstance(X, Dataset) and y is not None:
        raise TypeError("y must be left out where X is a Dataset, which holds the labels")


def _is_array(each: Any) -> bool:
    return isinstance(each, Tensor) or hasattr(each, "__array__")


def _read(dataset: Any, numbers: Sequence[int], form: list[Tensor]) -> tuple[Inputs, Tensor]:
    """Return the inputs and the labels of some records of a Dataset, as tensors.

    ``form`` stores the parts of the first record ever read, whose form all others must have.
    """
    columns: list[list[Tensor]] = []
    for i in numbers:
        arrays = [_tensor(f"record {i} of a Dataset", each) for each in _parts_of(dataset[i], i)]
        form.extend(arrays if not form else [])
        columns = columns or [[] for _ in arrays]
        if len(arrays) != len(form):
            raise ValueError(
                f"X must be a Dataset whose records all have {len(form)} parts, as record 0, "
                f"got {len(arrays)} for record {i}"
            )
        for place, (array, first, read) in enumerate(zip(arrays, form, columns)):
            part = "y" if place == len(form) - 1 else "x"
            if array.shape != first.shape:
                raise ValueError(
                    f"X must be a Dataset whose {part} all have one shape, got "
                    f"{tuple(first.shape)} and, for record {i}, {tuple(array.shape)}"
                )
            if array.dtype != first.dtype:  # else one record would change the dtype of the others
                raise ValueError(
                    f"X must be a Dataset whose {part} all have one dtype, got {first.dtype} and, "
                    f"for record {i}, {array.dtype}"
                )
            read.append(array.clone())  # a Dataset may return the same array again, modified
    *inputs, labels = (torch.stack(read) for read in columns)
    return tuple(inputs), labels


def _parts_of(record: Any, i: int) -> list[Any]:
    """Return the inputs of a record, followed by its label."""
    if not isinstance(record, (tuple, list)) or len(record) < 2:
        length = f" of {len(record)}" if isinstance(record, (tuple, list)) else ""
        raise TypeError(
            "X must be a Dataset of pairs (x, y), or of (x1, x2, ..., y) for several inputs, got a "
            f"{type(record).__name__}{length} for record {i}"
        )
    *inputs, label = record
    if len(inputs) == 1 and isinstance(inputs[0], tuple):
        inputs = list(inputs[0])
    return [*inputs, label]


def as_samples(
    X: tuple[Any, ...],
    dtype: torch.dtype,
    device: torch.device,
    numbers: Sequence[int] | None = None,
) -> Inputs:
    """Return the inputs (n, ...) on the device: real numbers in ``dtype``, integers as int64.

    If there are several, booleans stay booleans, and (n,) is one number per sample. ``numbers`` are
    the record numbers, for a message.
    """
    if len(X) == 1:
        return (_input("X", X[0], 2, dtype, device, numbers),)
    found = tuple(
        _input(f"X[{place}]", each, 1, dtype, device, numbers) for place, each in enumerate(X)
    )
    for place, each in enumerate(found):
        if len(each) != len(found[0]):
            raise ValueError(
                f"X must have inputs of one length, got {len(found[0])} in X[0] and {len(each)} in "
                f"X[{place}]"
            )
    return found


def _input(
    name: str,
    X: Any,
    axes: int,
    dtype: torch.dtype,
    device: torch.device,
    numbers: Sequence[int] | None,
) -> Tensor:
    array = _tensor(name, X)
    if array.ndim < axes or not array.numel():
        shape = "(n, ...)" if axes > 1 else "(n,) or (n, ...)"
        raise ValueError(f"{name} must have shape {shape} with n >= 1, got {tuple(array.shape)}")
    if not array.dtype.is_floating_point:
        keeps = array.dtype == torch.bool and axes == 1
        return array.to(device) if keeps else array.to(torch.int64).to(device)
    finite = torch.isfinite(array).reshape(len(array), -1).all(dim=1)
    if not bool(finite.all()):
        wrong = int((~finite).nonzero()[0])
        wrong = wrong if numbers is None else numbers[wrong]
        raise ValueError(f"{name} must be finite, got record {wrong} that is not")
    return array.to(dtype).to(device)


def inside(X: Inputs, bounds: Sequence[RowBound]) -> Inputs:
    """Return the samples scaled to the bounds on their norms; a copy if any must be scaled."""
    # Slightly inside, to allow for the rounding of the product.
    if not bounds:
        return X
    if len(X) > 1:
        raise ValueError(f"row_bound is for one input, and must be left out for {len(X)} of them")
    samples = X[0]
    if not samples.dtype.is_floating_point:
        raise TypeError(f"row_bound needs samples that are real numbers, got {samples.dtype}")
    rows = samples.flatten(1)
    row_scale(rows, [bound for bound in bounds if bound.enforce == "check"])
    below = rounding_margin(torch, samples.dtype)
    scale = row_scale(rows, [RowBound(each.order, below * each.radius) for each in bounds])
    if scale is None:
        return X
    return (samples * scale.to(samples.dtype).view(-1, *[1] * (samples.ndim - 1)),)


def as_labels(y: Any, classes: bool, n: int, device: torch.device) -> Tensor:
    """Return a copy of ``y`` (n, ...) on the device, as labels 0, 1, ... if it holds classes."""
    array = _tensor("y", y)
    if array.ndim < 1 or len(array) != n:
        raise ValueError(f"y must have {n} entries, as X, got shape {tuple(array.shape)}")
    if classes:
        labels = array.to(torch.int64)
        wrong = (labels.to(array.dtype) != array) | (labels < 0)
        if array.ndim != 1 or bool(wrong.any()):
            got = f"shape {tuple(array.shape)}" if array.ndim != 1 else repr(array[wrong][0].item())
            raise ValueError(f"y must hold labels 0, 1, ... in shape (n,), got {got}")
        return labels.to(device, copy=True)
    if array.dtype.is_floating_point and not bool(torch.isfinite(array).all()):
        raise ValueError("y must be finite")
    return array.to(device, copy=True)


def _tensor(name: str, array: Any) -> Tensor:
    """Return an array as a plain tensor that shares its memory if possible."""
    layout = getattr(array, "layout", torch.strided)
    if layout != torch.strided or is_sparse(array):
        got = type(array).__name__ if is_sparse(array) else f"a tensor of layout {layout}"
        raise TypeError(f"{name} must be dense, got {got}: give its to_dense() or toarray()")
    if isinstance(array, Tensor):
        found = array.detach().as_subclass(Tensor)  # operations on a subclass may mix samples
    else:
        refuse_mask(name, array)
        listed, array = not hasattr(array, "dtype"), np.asarray(array)
        if array.dtype.kind not in "iufb":
            raise TypeError(f"{name} must hold real numbers, got {array.dtype}")
        if listed:  # one record with another type of number would change the dtype of all
            array = array.astype(np.float64)
        # PyTorch accepts no array that is read-only, reversed, or of another byte order.
        dtype = np.dtype(np.float64) if array.dtype.itemsize > 8 else array.dtype.newbyteorder("=")
        taken = (
            array.flags.writeable and dtype == array.dtype and min(array.strides, default=0) >= 0
        )
        found = torch.from_numpy(array if taken else np.array(array, dtype, order="C"))
    if found.dtype.is_complex:
        raise TypeError(f"{name} must hold real numbers, got {found.dtype}")
    return found


def filled(array: Tensor, chosen: slice | Tensor, length: int) -> Tensor:
    """Return a copy of the chosen entries, padded with zeros to a length."""
    # A copy, since the owner may write to the array between a sample's norm and its gradient; in
    # one memory layout for all, since layers choose kernels by it.
    if isinstance(chosen, slice) and chosen.stop - chosen.start == length:
        return array[chosen].clone(memory_format=torch.contiguous_format)
    if not isinstance(chosen, slice) and len(chosen) == length:
        return array.index_select(0, chosen)
    filled = array.new_zeros(length, *array.shape[1:])
    if isinstance(chosen, slice):
        filled[: chosen.stop - chosen.start] = array[chosen]
    else:
        torch.index_select(array, 0, chosen, out=filled[: len(chosen)])
    return filled
