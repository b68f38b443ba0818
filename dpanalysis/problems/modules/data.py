"""Records for a module: checked, and moved to where it computes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..._validation import refuse_mask
from ...kernels.array_api import below_one
from ..row_bound import RowBound
from ..rows.checks import row_scale

__all__ = ["as_labels", "as_samples", "inside"]


def as_samples(X: Any, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return ``X`` (n, ...) on the device: real numbers in ``dtype``, integers as int64.

    Raises
    ------
    ValueError, TypeError
        If it is empty or not finite, or holds no numbers; the message names the record.
    """
    array = _tensor("X", X)
    if array.ndim < 2 or not array.numel():
        raise ValueError(f"X must have shape (n, ...) with n >= 1, got {tuple(array.shape)}")
    if not array.dtype.is_floating_point:
        return array.to(torch.int64).to(device)
    finite = torch.isfinite(array).flatten(1).all(dim=1)
    if not bool(finite.all()):
        raise ValueError(f"X must be finite, got record {int((~finite).nonzero()[0])} that is not")
    return array.to(dtype).to(device)


def inside(X: Tensor, bounds: Sequence[RowBound]) -> Tensor:
    """Return the samples within the bounds on their norms: a copy where one has to be scaled.

    A hair inside, for the rounding of the product.

    Raises
    ------
    ValueError
        If a sample lies over a bound that is to be checked.
    TypeError
        If there is a bound, and the samples are not real numbers.
    """
    if not bounds:
        return X
    if not X.dtype.is_floating_point:
        raise TypeError(f"row_bound needs samples that are real numbers, got {X.dtype}")
    rows = X.flatten(1)
    row_scale(rows, [bound for bound in bounds if bound.enforce == "check"])
    below = below_one(torch, X.dtype)
    scale = row_scale(rows, [RowBound(each.order, below * each.radius) for each in bounds])
    if scale is None:
        return X
    return X * scale.to(X.dtype).view(-1, *[1] * (X.ndim - 1))


def as_labels(y: Any, classes: bool, n: int, device: torch.device) -> Tensor:
    """Return a copy of ``y`` (n, ...) on the device; labels 0, 1, ... where it holds classes.

    Raises
    ------
    ValueError, TypeError
        If it is not finite or not as long as X, or a label is not a class.
    """
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
    """Return an array as a tensor; shared with it where that is possible."""
    if isinstance(array, Tensor):
        found = array.detach()
    else:
        refuse_mask(name, array)
        array = np.asarray(array)
        if array.dtype.kind not in "iufb":
            raise TypeError(f"{name} must hold real numbers, got {array.dtype}")
        # PyTorch takes no array that cannot be written to.
        found = torch.from_numpy(array if array.flags.writeable else array.copy())
    if found.dtype.is_complex:
        raise TypeError(f"{name} must hold real numbers, got {found.dtype}")
    return found
