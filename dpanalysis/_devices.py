"""Conversion of arrays between host and devices."""

from __future__ import annotations

from typing import Any

import numpy as np
from array_api_compat import array_namespace, is_array_api_obj, is_numpy_array, is_torch_array


def shares_namespace(array: Any, data: Any) -> bool:
    """Return whether ``array`` has the namespace of ``data``."""
    return is_array_api_obj(array) and array_namespace(array) is array_namespace(data)


def match_device(name: str, array: Any, data: Any) -> Any:
    """Return ``array`` in the namespace and on the device of ``data``, or raise TypeError."""
    if not shares_namespace(array, data):
        xp = array_namespace(data)
        host = readable(name, array, data)
        # PyTorch takes no array that is read-only, reversed or of another byte order.
        host = np.require(host, host.dtype.newbyteorder("="), ["C", "W"])
        return xp.asarray(host, device=data.device)
    if array.device != data.device:
        raise TypeError(f"{name} must be on {data.device} as the data, got one on {array.device}")
    return array


def settled(array: Any) -> Any:
    """Return a tensor as a plain one without gradients or pending signs; another array as it is."""
    if not is_torch_array(array):
        return array
    return array.detach().as_subclass(array_namespace(array).Tensor).resolve_neg()


def readable(name: str, array: Any, data: Any = None) -> np.ndarray:
    """Return ``array`` as a NumPy array; the TypeError names the library of ``data``."""
    allowed = "numpy" if data is None else f"numpy or, as the data, of {_library(data)}"
    if hasattr(array, "tocsr"):
        raise TypeError(f"{name} must be an array of {allowed}, got a sparse matrix")
    try:
        return np.asarray(array)
    except (TypeError, RuntimeError) as error:
        if not is_array_api_obj(array):
            raise
        raise TypeError(
            f"{name} must be an array of {allowed}, got one of {_library(array)}: {error}"
        ) from error


def _library(array: Any) -> str:
    return array_namespace(array).__name__.removeprefix("array_api_compat.")


def on_host(array: Any) -> bool:
    """Return whether :func:`to_host` returns a view of the array."""
    return is_numpy_array(array) or (is_torch_array(array) and array.device.type == "cpu")


def to_host(array: Any) -> np.ndarray:
    """Return an array as a NumPy array; waits for its device."""
    if is_numpy_array(array):
        return array
    if is_torch_array(array):
        return array.detach().cpu().numpy()
    return np.asarray(array.get() if hasattr(array, "get") else array)
