"""Convert collections to rows of numbers: dictionaries, sets, and sequences of any length.

As an atom, such an output equals no other once it contains noise. Here each key or position is a
column, and so is the number of entries. A missing entry becomes a number below all values of its
column. This is post-processing, so it can hide a violation but never create one.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import math
import numbers
import re
from collections import Counter, deque
from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import chain
from types import SimpleNamespace
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp

_COLUMNS = 1_024  # most keys or positions that are columns: the most frequent ones
_DEEPEST = 4  # deepest nesting of collections
_COUNTED = 64  # most distinct entries of sequences whose occurrences are counted
_REMEMBERED = 1 << 16  # most sequences whose row is cached

_PLAIN = {float, int, bool, np.float64, np.int64, np.bool_}
_SIMPLE = {*_PLAIN, str}
_BUILT_IN = (str, float, int, complex, list, tuple, dict, set, frozenset, np.ndarray)

_COUNT = object()  # first key in the path of a column that counts an entry
_Path: TypeAlias = "tuple[Hashable, ...]"
_Column: TypeAlias = "tuple[_Path, bool]"  # path, and whether its entries are words


class Outcome:
    """The result of a run that is not an output, such as an exception."""


class Repr(str):
    """The repr of an object that has no hash; the object may hold more than it prints."""

    __slots__ = ()


def is_repr(key: Hashable) -> bool:
    """Return whether a key, or a part of it, is only the repr of an object."""
    return isinstance(key, Repr) or (isinstance(key, (tuple, frozenset)) and any(map(is_repr, key)))


def as_array(output: Any) -> Any:
    """Return tensors, sparse and masked arrays as arrays, masked entries as NaN; others as is."""
    if type(output) in _SIMPLE:
        return output
    if hasattr(output, "detach") and hasattr(output, "cpu"):  # PyTorch
        tensor = output.detach().cpu()
        tensor = tensor.to_dense() if str(tensor.layout) != "torch.strided" else tensor
        try:
            return tensor.resolve_conj().numpy()
        except TypeError:  # a dtype that NumPy lacks
            return tensor.float().numpy()
    if sp.issparse(output):
        return output.toarray()
    if isinstance(output, np.ma.MaskedArray):
        if output.dtype.kind in "biuf":
            return np.ma.filled(output.astype(np.float64), np.nan)
        return np.array(output.tolist(), dtype=object)
    return output


def plain(output: Any) -> Any:
    """Return objects and records as dictionaries, tables as arrays or dicts, bytes as texts."""
    if type(output) in _SIMPLE:
        return output
    if isinstance(output, bytes | bytearray):
        return bytes(output).decode(errors="backslashreplace")
    if isinstance(output, memoryview):
        return np.asarray(output)
    if isinstance(output, SimpleNamespace):
        return vars(output)
    if dataclasses.is_dataclass(output) and not isinstance(output, (type, Outcome)):
        return {each.name: getattr(output, each.name) for each in dataclasses.fields(output)}
    if _is_table(output):
        named = type(output.index).__name__ != "RangeIndex"
        values = output.to_numpy()
        if values.ndim == 1 and named and output.index.is_unique:
            return dict(output.items())
        if values.ndim == 1:
            return values
        counted = list(output.columns) == list(range(len(output.columns)))
        if values.dtype.kind in "biuf" and not named and counted:
            return values
        columns = {name: output[name].to_numpy() for name in output.columns}
        return {"index": output.index.to_numpy(), **columns} if named else columns
    if isinstance(output, Mapping | deque) and not isinstance(output, dict):
        return dict(output) if isinstance(output, Mapping) else list(output)
    if isinstance(output, np.ndarray | np.void) and output.dtype.names:
        return {name: output[name] for name in output.dtype.names}
    return _measured(as_array(output))


def _is_table(output: Any) -> bool:
    """Return whether an output is a table or a column of pandas."""
    return hasattr(output, "iloc") and hasattr(output, "to_numpy")


_DAY_ONE = datetime.datetime(1970, 1, 1)


def _measured(output: Any) -> Any:
    """Return dates, durations and decimal numbers as numbers; others as is."""
    if isinstance(output, decimal.Decimal):
        return float(output)
    if isinstance(output, np.ndarray | np.generic) and output.dtype.kind in "mM":
        # Whole seconds first: nanoseconds cover only 292 years on either side of 1970.
        seconds = output.astype(f"{output.dtype.kind}8[s]")
        rest = (output - seconds.astype(output.dtype)).astype("m8[ns]").astype(np.int64)
        return np.where(np.isnat(output), np.nan, seconds.astype(np.int64) + 1e-9 * rest)
    if isinstance(output, datetime.datetime):
        since = _DAY_ONE.replace(tzinfo=datetime.UTC) if output.tzinfo else _DAY_ONE
        return (output - since).total_seconds()
    if isinstance(output, datetime.timedelta):
        return output.total_seconds()
    if isinstance(output, datetime.date):
        return 86_400.0 * (output - _DAY_ONE.date()).days
    return output


_DELIMITED = re.compile(
    r"""(?:(?<=[\s,:;=\[\](){}"'])|^)"""
    r"""([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)"""
    r"""(?=\.?(?:[\s,:;)\]}"'%]|$))"""
)


def words_and_numbers(text: str) -> list[Any]:
    """Split a text at its numbers: words at even positions, numbers at odd ones."""
    parts: list[Any] = _DELIMITED.split(text)
    parts[1::2] = map(float, parts[1::2])
    return parts


def form(output: Any) -> Iterator[tuple[str, Any]]:
    """Yield (name, value) of what :func:`plain` leaves out: how an output is stored or written."""
    kind = type(output)
    yield "type", kind if kind in _SIMPLE else f"{kind.__module__}.{kind.__qualname__}"
    if kind in _PLAIN and (output or kind not in (float, np.float64)):  # a zero has a sign
        return
    if isinstance(output, str):
        for written in _DELIMITED.findall(output):  # before the point the noise decides
            yield "number", re.sub(r"\d", "0", re.sub(r"^[-+]?\d+", "0", written))
    several = _is_table(output) and hasattr(output, "columns")
    for dtype in output.dtypes if several else [getattr(output, "dtype", "")]:
        yield "dtype", (str(dtype), *getattr(dtype, "categories", ()))
    if _is_table(output):
        yield "index", repr((output.index, getattr(output, "name", None), output.attrs))
    elif sp.issparse(output):
        stored = sp.coo_array(output).coords
        yield "stored entries", (output.format, *(each.tolist() for each in stored))
    elif isinstance(output, np.ma.MaskedArray):
        yield "masked entries", output.data[np.ma.getmaskarray(output)].tolist()
    elif dataclasses.is_dataclass(output) or isinstance(output, _BUILT_IN):
        known = getattr(output, "__dataclass_fields__", ())
        held = getattr(output, "__dict__", {}).items()
        yield "attributes", [(k, hashable(v)) for k, v in held if k not in known]
    if isinstance(output, float | np.floating | np.ndarray):
        array = np.asarray(output)
        if array.dtype.kind == "f":
            yield "sign of zero", np.signbit(array[array == 0.0]).tolist()


def is_collection(output: Any) -> bool:
    """Return whether an output is a collection: dict, list, tuple, set or 1-D array."""
    return isinstance(output, (dict, list, tuple, set, frozenset)) or (
        isinstance(output, np.ndarray) and output.ndim == 1
    )


class Entries:
    """The columns of collections, fixed by a sample of them."""

    def __init__(self, outputs: list[Any]) -> None:
        shown: dict[_Column, list[float]] = {}
        words: set[Hashable] = set()
        for output in outputs:
            for path, leaf in (*_leaves(output), *_counts(output)):
                value = _number(leaf)
                if value is None:
                    words.add(hashable(leaf))
                shown.setdefault((path, value is None), []).append(0.0 if value is None else value)
        # Sorted, not in order of appearance: outputs on one input came first.
        self._words = {word: float(code) for code, word in enumerate(sorted(words, key=printed))}
        counted = [column for column in shown if column[0][0] is _COUNT]
        self._counts = 0 < len(counted) <= _COUNTED
        if not self._counts:
            shown = {column: shown[column] for column in shown if column[0][0] is not _COUNT}
        kept = sorted(shown, key=lambda column: -len(shown[column]))[:_COLUMNS]
        kept.sort(key=lambda column: column[0][0] is _COUNT)  # positions come first
        self._columns = {column: place for place, column in enumerate(kept)}
        self._missing = np.array([_below(shown[column]) for column in kept] + [0.0])
        # A fast path for flat dictionaries of numbers, the most common outputs.
        flat = all(len(path) == 1 and not word for path, word in kept)
        self._keys = [path[0] for path, _ in kept] if flat else None
        self._known: dict[Hashable, np.ndarray] = {}

    @property
    def width(self) -> int:
        """Number of columns."""
        return int(self._missing.size)

    def rows(self, outputs: list[Any]) -> np.ndarray:
        """Return the rows of outputs, an array of shape (outputs, width)."""
        if self._keys is not None and all(type(output) is dict for output in outputs):
            pairs = list(zip(self._keys, self._missing.tolist()))
            found = [[x.get(*pair) for pair in pairs] + [len(x)] for x in outputs]
            if set(map(type, chain.from_iterable(found))) <= _PLAIN:
                with suppress(OverflowError):  # integers beyond the range of floats
                    return np.array(found, dtype=np.float64)
        return np.array([self._row(output) for output in outputs]).reshape(-1, self.width)

    def _row(self, output: Any) -> np.ndarray:
        """Return the row of one output; those of sequences, which may repeat, are cached."""
        try:
            key = tuple(output) if isinstance(output, (list, tuple)) else None
            row = self._known.get(key) if key is not None else self._read(output)
        except TypeError:  # collections within the sequence
            return self._read(output)
        if row is None:
            row = self._read(output)
            if len(self._known) < _REMEMBERED:
                self._known[key] = row
        return row

    def _read(self, output: Any) -> np.ndarray:
        row = self._missing.copy()
        for path, leaf in (*_leaves(output), *(_counts(output) if self._counts else ())):
            value = _number(leaf)
            place = self._columns.get((path, value is None))
            if place is not None:
                new = float(len(self._words))
                row[place] = self._words.get(hashable(leaf), new) if value is None else value
        row[-1] = len(output)
        return row

    def name(self, place: int) -> str:
        """Return the name of a column."""
        if place >= len(self._columns):
            return "len(output)"
        path, word = list(self._columns)[place]
        if path[0] is _COUNT:
            return f"output.count({path[1]!r})"
        entry = "output" + "".join(f"[{key!r}]" for key in path)
        return f"word of {entry}" if word else entry


def _leaves(output: Any, path: _Path = ()) -> Iterator[tuple[_Path, Any]]:
    """Yield (path, entry) of a collection, recursively."""
    if isinstance(output, (set, frozenset)):
        pairs: Iterable[tuple[Any, Any]] = ((key, 1.0) for key in sorted(output, key=printed))
    else:
        pairs = output.items() if isinstance(output, dict) else enumerate(output)
    for key, entry in pairs:
        entry = plain(entry)
        entry = entry.tolist() if isinstance(entry, np.ndarray) else entry
        if is_collection(entry) and len(path) < _DEEPEST:
            yield from _leaves(entry, (*path, key))
        else:
            yield (*path, key), entry


def _counts(output: Any) -> Iterator[tuple[_Path, Any]]:
    """Yield how often each entry occurs in a sequence."""
    if not isinstance(output, (dict, set, frozenset)):
        for entry, count in Counter(map(hashable, output)).items():
            yield (_COUNT, entry), count


def _number(leaf: Any) -> float | None:
    """Return a leaf as a number, None if it is not one."""
    if type(leaf) is str or not isinstance(leaf, (numbers.Real, np.bool_)):
        return None
    try:
        return float(leaf)
    except OverflowError:
        return None


def _below(shown: list[float]) -> float:
    """Return a number below all finite values of a column."""
    return math.floor(min((value for value in shown if math.isfinite(value)), default=0.0)) - 1.0


def hashable(output: Any) -> Hashable:
    """Return a hashable key for any object; equal objects have equal keys."""
    if type(output) is str:  # the most common ones
        return output
    output = plain(output)
    if isinstance(output, np.ndarray):
        output = output.tolist()
    if isinstance(output, (list, tuple)):
        return tuple(hashable(entry) for entry in output)
    if isinstance(output, dict):
        return frozenset((hashable(k), hashable(v)) for k, v in output.items())
    if isinstance(output, (set, frozenset)):
        return frozenset(hashable(entry) for entry in output)
    try:
        hash(output)
    except TypeError:
        return Repr(repr(output))
    return output


def printed(key: Any) -> str:
    """Return the repr of a key, with sets in an order that does not depend on hashes."""
    if isinstance(key, frozenset) and key:
        return "frozenset({" + ", ".join(sorted(map(printed, key))) + "})"
    if type(key) is tuple:
        return "(" + ", ".join(map(printed, key)) + (",)" if len(key) == 1 else ")")
    return repr(key)
