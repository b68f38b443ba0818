"""Worker process in the environment of another package, and its message format.

This file is run as a script by an interpreter without this project: it needs only NumPy and the
standard library. It loads a *probe*, a file of functions that use the package, and answers calls
to them.

A message is ``DPA1``, the number of its parts, and each part preceded by its length. The first
part is JSON; the others are the bytes of arrays, whose dtype and shape are in the JSON. Nothing in
a message is ever executed: no pickle, and no object arrays.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import math
import os
import struct
import sys
import traceback
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

MAGIC = b"DPA1"
LIMIT = 2**30  # bytes of one message
_COUNT, _LENGTH = struct.Struct(">I"), struct.Struct(">Q")
_KINDS = "biufc"  # Booleans and numbers
_MARK = "__array__"


class Garbled(Exception):
    """The data are not a valid message."""


def pack(value: Any) -> bytes:
    """Return the bytes of a message.

    It may contain None, Booleans, numbers, strings and numeric arrays, in lists and in dictionaries
    with string keys. Tuples become lists; TypeError for anything else.

    Examples
    --------
    >>> data = pack({"x": np.arange(3.0)})
    >>> import io
    >>> unpack(io.BytesIO(data).read)
    {'x': array([0., 1., 2.])}
    """
    blobs: list[bytes] = []
    try:
        text = json.dumps(_plain(value, blobs)).encode("utf-8")
    except (RecursionError, ValueError) as error:
        raise TypeError(f"a message cannot hold this value: {error}") from None
    parts = [text, *blobs]
    body = b"".join(_LENGTH.pack(len(part)) + part for part in parts)
    return MAGIC + _COUNT.pack(len(parts)) + body


def _plain(value: Any, blobs: list[bytes]) -> Any:
    """Return the value for JSON; the bytes of its arrays are appended to the blobs."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, np.generic) and value.dtype.kind in "biuf":
        return value.item()
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in _KINDS:
            raise TypeError(f"a message holds arrays of numbers, got one of dtype {value.dtype}")
        array = np.ascontiguousarray(value).astype(value.dtype.newbyteorder("<"), copy=False)
        blobs.append(array.tobytes())
        return {_MARK: len(blobs), "dtype": array.dtype.str, "shape": list(value.shape)}
    if isinstance(value, (list, tuple)):
        return [_plain(item, blobs) for item in value]
    if isinstance(value, dict):
        if _MARK in value or not all(isinstance(key, str) for key in value):
            raise TypeError("a message holds dictionaries whose keys are texts")
        return {key: _plain(item, blobs) for key, item in value.items()}
    raise TypeError(f"a message cannot hold {type(value).__name__}")


def unpack(read: Callable[[int], bytes], limit: int = LIMIT) -> Any:
    """Return the value of the next message, of at most ``limit`` bytes.

    ``read(n)`` returns n bytes, or fewer at the end of the stream. Raises EOFError if that is where
    the message would begin.
    """
    start = read(len(MAGIC))
    if not start:
        raise EOFError("the stream has ended")
    if start != MAGIC:
        raise Garbled(f"a message begins with {MAGIC!r}, got {start!r}")
    count = _COUNT.unpack(_exactly(read, _COUNT.size))[0]
    parts = []
    for _ in range(count):
        length = _LENGTH.unpack(_exactly(read, _LENGTH.size))[0]
        limit -= length + _LENGTH.size
        if limit < 0:
            raise Garbled("the message is too long")
        parts.append(_exactly(read, length))
    if not parts:
        raise Garbled("the message is empty")
    try:
        return _restored(json.loads(parts[0]), parts)
    except (ValueError, RecursionError) as error:
        raise Garbled(f"the message is not as it should be: {error}") from None


def _exactly(read: Callable[[int], bytes], size: int) -> bytes:
    data = read(size)
    if len(data) != size:
        raise Garbled("the message is cut off")
    return data


def _restored(value: Any, parts: list[bytes]) -> Any:
    if isinstance(value, list):
        return [_restored(item, parts) for item in value]
    if isinstance(value, dict):
        if _MARK in value:
            return _array(value, parts)
        return {key: _restored(item, parts) for key, item in value.items()}
    return value


def _array(value: dict[str, Any], parts: list[bytes]) -> np.ndarray:
    """Return an array; its number of bytes must match its dtype and shape."""
    place, name, shape = value[_MARK], value.get("dtype"), value.get("shape")
    if type(place) is not int or not 1 <= place < len(parts):
        raise ValueError("there is no such array")
    try:
        dtype = np.dtype(name) if isinstance(name, str) else None
    except (TypeError, ValueError, SyntaxError):
        dtype = None
    if dtype is None or dtype.kind not in _KINDS:
        raise ValueError(f"an array is of numbers, got dtype {name!r}")
    if not isinstance(shape, list) or not all(type(n) is int and n >= 0 for n in shape):
        raise ValueError(f"a shape is a list of lengths, got {shape!r}")
    if math.prod(shape) * dtype.itemsize != len(parts[place]):
        raise ValueError("an array has another size than its shape says")
    return np.frombuffer(parts[place], dtype).reshape(shape).copy()


def _load(path: str) -> ModuleType:
    """Load the probe from its file and return the module."""
    spec = importlib.util.spec_from_file_location("probe", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["probe"] = module
    spec.loader.exec_module(module)
    return module


def _introduction(name: str, imported: str) -> str | None:
    """Import the package, to test that it works here, and return its version."""
    from importlib.metadata import PackageNotFoundError, version

    importlib.import_module(imported)
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _reply(function: Callable[..., Any], arguments: dict[str, Any]) -> bytes:
    try:
        return pack({"result": function(**arguments)})
    except BaseException as error:  # sys.exit() in a package must not end the worker silently
        shown = {
            "type": type(error).__name__,
            "message": str(error)[:2000],
            "traceback": traceback.format_exc()[-4000:],
        }
        return pack({"error": shown})


def main(probe: str, name: str, imported: str, *folders: str) -> None:
    """Answer calls until the stream of requests ends.

    Output of the package goes to standard error: only this function writes to the answer pipe.
    """
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    sys.path[:0] = folders

    def answer(function: Callable[..., Any], arguments: dict[str, Any]) -> None:
        answers.write(_reply(function, arguments))
        answers.flush()

    answer(_introduction, {"name": name, "imported": imported})
    module: ModuleType | None = None
    while True:
        try:
            request = unpack(requests.read)
        except EOFError:
            return

        def call(function: str, arguments: dict[str, Any]) -> Any:
            nonlocal module
            module = module or _load(probe)
            if function.startswith("_") or not callable(getattr(module, function, None)):
                raise AttributeError(f"the probe has no function {function!r}")
            return getattr(module, function)(**arguments)

        answer(call, request)


if __name__ == "__main__":
    main(*sys.argv[1:])
