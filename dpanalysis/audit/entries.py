"""Outputs with entries, as rows of numbers: dictionaries, sets, and sequences of any length.

Such an output is an atom by itself, equal to no other as soon as it holds noise. Here each key or
place is a column, and so is the number of entries. What an output lacks is a number below all that
its column has shown. This is post-processing, so it can hide a violation and never make one up.
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
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp

_COLUMNS = 1_024  # keys or places that are columns: the most frequent ones
_DEEPEST = 4  # collections within collections
_COUNTED = 64  # different entries of sequences that are counted, at most
_REMEMBERED = 1 << 16  # sequences whose row is kept

_PLAIN = {float, int, bool, np.float64, np.int64, np.bool_}
_SIMPLE = {*_PLAIN, str}

_COUNT = object()  # the first key of such a column
_Path: TypeAlias = "tuple[Hashable, ...]"
_Column: TypeAlias = "tuple[_Path, bool]"  # and whether its entries are words


class Outcome:
    """What a run gave where that is no output, such as an exception."""


class Shown(str):
    """How an object that has no hash is printed: it may hold more than it shows."""

    __slots__ = ()


def is_shown(key: Hashable) -> bool:
    """Whether a stand-in for an object, or one within it, is only how it is printed."""
    return isinstance(key, Shown) or (
        isinstance(key, (tuple, frozenset)) and any(map(is_shown, key))
    )


def as_array(output: Any) -> Any:
    """Return tensors and sparse matrices as arrays, with NaN for what is masked; others as is."""
    if type(output) in _SIMPLE:
        return output
    if hasattr(output, "detach") and hasattr(output, "cpu"):  # PyTorch
        tensor = output.detach().cpu()
        tensor = tensor.to_dense() if str(tensor.layout) != "torch.strided" else tensor
        try:
            return tensor.resolve_conj().numpy()
        except TypeError:  # numbers that NumPy does not have
            return tensor.float().numpy()
    if sp.issparse(output):
        return output.toarray()
    if isinstance(output, np.ma.MaskedArray):
        if output.dtype.kind in "biuf":
            return np.ma.filled(output.astype(np.float64), np.nan)
        return np.array(output.tolist(), dtype=object)
    return output


def plain(output: Any) -> Any:
    """Return an object with fields as a dictionary, a table as an array or as its columns."""
    if type(output) in _SIMPLE:
        return output
    if dataclasses.is_dataclass(output) and not isinstance(output, (type, Outcome)):
        return {each.name: getattr(output, each.name) for each in dataclasses.fields(output)}
    if hasattr(output, "iloc") and hasattr(output, "to_numpy"):  # of pandas
        named = type(output.index).__name__ != "RangeIndex"
        values = output.to_numpy()
        if values.ndim == 1 and named and output.index.is_unique:
            return dict(output.items())
        if values.ndim == 1 or (values.dtype.kind in "biuf" and not named):
            return values
        columns = {name: output[name].to_numpy() for name in output.columns}
        return {"index": output.index.to_numpy(), **columns} if named else columns
    if isinstance(output, Mapping | deque) and not isinstance(output, dict):
        return dict(output) if isinstance(output, Mapping) else list(output)
    if isinstance(output, np.ndarray | np.void) and output.dtype.names:
        return {name: output[name] for name in output.dtype.names}
    return _measured(as_array(output))


_DAY_ONE = datetime.datetime(1970, 1, 1)


def _measured(output: Any) -> Any:
    """Return dates, durations and decimal numbers as numbers; others as is."""
    if isinstance(output, decimal.Decimal):
        return float(output)
    if isinstance(output, np.ndarray | np.generic) and output.dtype.kind in "mM":
        # Whole seconds first: nanoseconds have room for 292 years on either side of 1970 alone.
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
    """Return a text as the words between its numbers, and the numbers at the odd places."""
    parts: list[Any] = _DELIMITED.split(text)
    parts[1::2] = map(float, parts[1::2])
    return parts


def is_collection(output: Any) -> bool:
    """Return whether an output has entries."""
    return isinstance(output, (dict, list, tuple, set, frozenset)) or (
        isinstance(output, np.ndarray) and output.ndim == 1
    )


class Entries:
    """The columns of collections, fixed by some of them."""

    def __init__(self, outputs: list[Any]) -> None:
        shown: dict[_Column, list[float]] = {}
        words: set[Hashable] = set()
        for output in outputs:
            for path, leaf in (*_leaves(output), *_counts(output)):
                value = _number(leaf)
                if value is None:
                    words.add(hashable(leaf))
                shown.setdefault((path, value is None), []).append(0.0 if value is None else value)
        # Not in the order in which they came: outputs on one input came first.
        self._words = {word: float(code) for code, word in enumerate(sorted(words, key=printed))}
        counted = [column for column in shown if column[0][0] is _COUNT]
        self._counts = 0 < len(counted) <= _COUNTED
        if not self._counts:
            shown = {column: shown[column] for column in shown if column[0][0] is not _COUNT}
        kept = sorted(shown, key=lambda column: -len(shown[column]))[:_COLUMNS]
        kept.sort(key=lambda column: column[0][0] is _COUNT)  # places come first
        self._columns = {column: place for place, column in enumerate(kept)}
        self._missing = np.array([_below(shown[column]) for column in kept] + [0.0])
        # Dictionaries of numbers alone, the most common ones, need no look at each entry.
        flat = all(len(path) == 1 and not word for path, word in kept)
        self._keys = [path[0] for path, _ in kept] if flat else None
        self._known: dict[Hashable, np.ndarray] = {}

    @property
    def width(self) -> int:
        """How many numbers an outcome has."""
        return int(self._missing.size)

    def rows(self, outputs: list[Any]) -> np.ndarray:
        """Return the numbers of outputs, an array of shape (outputs, width)."""
        if self._keys is not None and all(type(output) is dict for output in outputs):
            pairs = list(zip(self._keys, self._missing.tolist()))
            found = [[x.get(*pair) for pair in pairs] + [len(x)] for x in outputs]
            if set(map(type, chain.from_iterable(found))) <= _PLAIN:
                with suppress(OverflowError):  # integers beyond the range of floats
                    return np.array(found, dtype=np.float64)
        return np.array([self._row(output) for output in outputs]).reshape(-1, self.width)

    def _row(self, output: Any) -> np.ndarray:
        """Return the numbers of one output; sequences of words, or of integers, repeat."""
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
        """Return a column in words."""
        if place >= len(self._columns):
            return "len(output)"
        path, word = list(self._columns)[place]
        if path[0] is _COUNT:
            return f"output.count({path[1]!r})"
        entry = "output" + "".join(f"[{key!r}]" for key in path)
        return f"word of {entry}" if word else entry


def _leaves(output: Any, path: _Path = ()) -> Iterator[tuple[_Path, Any]]:
    """Yield the entries of a collection, and those of collections within it."""
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
    """Return a leaf as a number, None where it is none."""
    if type(leaf) is str or not isinstance(leaf, (numbers.Real, np.bool_)):
        return None
    try:
        return float(leaf)
    except OverflowError:
        return None


def _below(shown: list[float]) -> float:
    """Return a number below those shown."""
    return math.floor(min((value for value in shown if math.isfinite(value)), default=0.0)) - 1.0


def hashable(output: Any) -> Hashable:
    """Return a hashable stand-in for any object: equal ones have equal stand-ins."""
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
        return Shown(repr(output))
    return output


def printed(key: Any) -> str:
    """Return the repr of a stand-in, with sets in an order that no hash decides."""
    if isinstance(key, frozenset) and key:
        return "frozenset({" + ", ".join(sorted(map(printed, key))) + "})"
    if type(key) is tuple:
        return "(" + ", ".join(map(printed, key)) + (",)" if len(key) == 1 else ")")
    return repr(key)
