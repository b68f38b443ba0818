"""Pairs of data sets: where they come from, whether they are neighbours, whether they changed."""

from __future__ import annotations

import hashlib
import math
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

from ...privacy.relations import ADD_OR_REMOVE_ONE, REPLACE_ONE
from .outcomes import hashable

__all__ = ["check_neighbours", "draw_pairs", "fingerprint", "pairs_of"]

_RECORD = "records"  # the kind of records that are dictionaries, texts beside numbers, ...


def check_neighbours(
    dataset: Any, neighbour: Any, relation: str | None = None, default: str | None = None
) -> None:
    """Raise unless the two data sets are neighbours, as far as that can be seen.

    Parameters
    ----------
    dataset, neighbour : object
        Records are the rows of an array with two axes or more or of a sparse matrix, the pairs
        (row of X, entry of y) of a tuple ``(X, y)`` or of an object with ``X`` and ``y``, the
        entries of a list of dictionaries, tuples or other collections, and, where ``relation``
        is given, the entries of an array of one axis. Everything else, and arrays of one axis
        and the same length without a relation, may hold anything (answers to queries, say, all
        of which one record may move), but must not be equal.
    relation : {"replace_one", "add_or_remove_one"}, optional
        By default either will do.
    default : {"replace_one", "add_or_remove_one"}, optional
        The relation of records that are rows, where ``relation`` is not given.

    Raises
    ------
    ValueError
        If records are not neighbours; it says in what they differ. Rows are compared exactly:
        for "replace_one" place by place, for "add_or_remove_one" as multisets.

    Examples
    --------
    >>> check_neighbours(np.zeros((3, 2)), np.zeros((2, 2)))
    >>> check_neighbours(np.zeros((3, 2)), np.ones((3, 2)))
    Traceback (most recent call last):
    ValueError: dataset and neighbour must differ in one row ..., they differ in 3 (0, 1, 2)
    """
    first, second = _records(dataset, relation), _records(neighbour, relation)
    if (first and first[0]) != (second and second[0]) and all(
        isinstance(data, list) for data in (dataset, neighbour)
    ):  # rows of different lengths
        first, second = _listed(dataset), _listed(neighbour)
    if (first is None) != (second is None):
        kinds = [type(data).__name__ for data in (dataset, neighbour)]
        raise ValueError(
            f"dataset and neighbour must be of one kind, got {kinds[0]} and {kinds[1]}"
        )
    if first is None or second is None:
        if _equal(dataset, neighbour):
            raise ValueError("dataset and neighbour must differ, they are equal")
        return
    if first[0] != second[0]:
        raise ValueError(
            "dataset and neighbour must have records of one kind, "
            f"got {_describe(first[0])} and {_describe(second[0])}"
        )
    entries = first[0] == ((),)
    keys, other = first[1], second[1]
    if relation is None and entries and len(keys) == len(other) and keys != other:
        return
    wanted = relation or (None if entries else default)
    _compare(keys, other, wanted, "entry" if entries else "row")


def _compare(keys: list[Any], other: list[Any], relation: str | None, what: str) -> None:
    lengths = f"they have {len(keys)} and {len(other)}"
    several = {"row": "rows", "entry": "entries"}[what]
    if relation is None:
        relation = REPLACE_ONE if len(keys) == len(other) else ADD_OR_REMOVE_ONE
    if relation == REPLACE_ONE:
        rule = f"dataset and neighbour must differ in one {what} (replace_one)"
        if len(keys) != len(other):
            raise ValueError(f"{rule}: the same number of {several}, but {lengths}")
        places = [i for i, (a, b) in enumerate(zip(keys, other)) if a != b]
        if len(places) == 1:
            return
        if not places:
            raise ValueError(f"{rule}, they are equal")
        shown = ", ".join(map(str, places[:5])) + (", ..." if len(places) > 5 else "")
        moved = (Counter(keys) - Counter(other)).total()
        order = f"; {moved} if order is ignored: give both in one order" if moved < 2 else ""
        raise ValueError(f"{rule}, they differ in {len(places)} ({shown}){order}")
    rule = f"one of dataset and neighbour must be the other without one {what} (add_or_remove_one)"
    if abs(len(keys) - len(other)) != 1:
        raise ValueError(f"{rule}, but {lengths} {several}")
    longer, shorter = (keys, other) if len(keys) > len(other) else (other, keys)
    extra = (Counter(longer) - Counter(shorter)).total()
    if extra != 1:
        raise ValueError(f"{rule}, but {extra} {several} of the longer are not in the shorter")


def _equal(dataset: Any, neighbour: Any) -> bool:
    """Return whether two objects are surely equal."""
    if dataset is neighbour:
        return True
    try:
        return type(dataset) is type(neighbour) and bool(dataset == neighbour)
    except (TypeError, ValueError):  # arrays inside
        return False


def _describe(kind: tuple[Any, ...]) -> str:
    names = {(): "numbers", _RECORD: "collections"}
    return " and ".join(names.get(shape, f"rows of shape {shape}") for shape in kind)


def _listed(data: list[Any]) -> tuple[Any, list[Any]]:
    return (_RECORD,), [hashable(record) for record in data]


def _records(data: Any, relation: str | None) -> tuple[Any, list[Any]] | None:
    """Return the kind of the records and a hashable key of each, or None for opaque data."""
    if isinstance(data, list) and data and all(isinstance(x, (dict, set)) for x in data):
        return _listed(data)
    parts = _parts(data)
    if parts is None:
        return None
    if len(parts) == 2:
        lengths = len(parts[0]), len(parts[1])
        if relation is None and (parts[0].ndim == 1 or lengths[0] != lengths[1]):
            return None  # not rows and labels
        if lengths[0] != lengths[1]:
            raise ValueError(
                f"X and y must have one length, got {lengths[0]} rows and {lengths[1]} labels"
            )
    kind = tuple(part.shape[1:] for part in parts)
    keys = [_keys(part) for part in parts]
    return kind, keys[0] if len(keys) == 1 else list(zip(*keys))


class _Sparse:
    """A sparse matrix that has a length, as an array has."""

    def __init__(self, matrix: Any) -> None:
        self.matrix = sp.csr_array(matrix)
        self.matrix.sum_duplicates()
        self.matrix.eliminate_zeros()
        self.shape, self.ndim = self.matrix.shape, 2

    def __len__(self) -> int:
        return int(self.shape[0])


def _parts(data: Any) -> list[Any] | None:
    """Return the arrays whose rows are the records, or None."""
    if isinstance(data, tuple) and len(data) == 2:
        pair = [_array(part) for part in data]
        if all(part is not None for part in pair):
            return pair
    for names in (("X", "y"), ("_X", "_y")):  # a data set, a problem
        if all(hasattr(data, name) for name in names):
            return [part for name in names if (part := _array(getattr(data, name))) is not None]
    array = _array(data)
    return None if array is None else [array]


def _array(data: Any) -> Any:
    """Return a dense or sparse array of records, or None."""
    if sp.issparse(data):
        return _Sparse(data)
    if isinstance(data, (list, tuple)) or hasattr(data, "__array__"):
        try:
            array = np.asarray(data)
        except ValueError:
            return None
        return array if array.ndim >= 1 else None
    return None


def _keys(array: Any) -> list[Any]:
    """Return one hashable key a row; equal numbers have equal keys, whatever their dtype."""
    if isinstance(array, _Sparse):
        rows = array.matrix
        return [
            (
                rows.indices[lo:hi].astype(np.int64).tobytes(),
                (rows.data[lo:hi] + 0.0).astype(np.float64).tobytes(),
            )
            for lo, hi in zip(rows.indptr[:-1], rows.indptr[1:])
        ]
    if array.dtype.kind not in "biuf":
        return [hashable(row) for row in array.tolist()]
    width = math.prod(array.shape[1:])  # not -1, which an empty array does not allow
    flat = np.ascontiguousarray(array.reshape(len(array), width), dtype=np.float64) + 0.0
    return [row.tobytes() for row in flat]


def fingerprint(data: Any) -> Any:
    """Return something that changes when an array inside ``data`` does.

    Arrays are looked for in tuples, lists, dictionaries and the ``X`` and ``y`` of an object.

    Examples
    --------
    >>> data = [np.zeros(3)]
    >>> before = fingerprint(data)
    >>> data[0][1] = 1.0
    >>> fingerprint(data) == before
    False
    """
    if isinstance(data, np.ndarray):
        if data.dtype.hasobject:
            return repr(data.tolist())
        bytes_ = np.ascontiguousarray(data).view(np.uint8).reshape(-1)
        return data.shape, data.dtype.str, hashlib.blake2b(bytes_.data).hexdigest()
    if sp.issparse(data) and hasattr(data, "data"):
        return tuple(fingerprint(getattr(data, name, None)) for name in ("data", "indices"))
    if isinstance(data, (tuple, list)):
        return tuple(fingerprint(entry) for entry in data)
    if isinstance(data, dict):
        return tuple((key, fingerprint(entry)) for key, entry in data.items())
    if isinstance(data, (int, float, complex, str, bytes)):
        return repr(data)
    return tuple(
        (name, fingerprint(vars(data)[name]))
        for name in ("X", "y", "_X", "_y")
        if hasattr(data, "__dict__") and name in vars(data)
    )


def pairs_of(neighbours: Any, most: int) -> Iterator[tuple[Any, Any]]:
    """Yield the pairs of an iterable, or the first ``most`` of a Hypothesis strategy.

    Raises
    ------
    TypeError
        If it is neither, or holds anything but tuples or lists of two.

    Examples
    --------
    >>> list(pairs_of([(0, 1), [1, 2]], 10))
    [(0, 1), (1, 2)]
    """
    # A strategy cannot be there before Hypothesis is.
    hypothesis = sys.modules.get("hypothesis")
    if hypothesis and isinstance(neighbours, hypothesis.strategies.SearchStrategy):
        neighbours = draw_pairs(neighbours, most)
    if not isinstance(neighbours, Iterable):
        raise TypeError(
            "neighbours must be pairs of data sets or a strategy of Hypothesis that yields them, "
            f"got {neighbours!r}"
        )
    for number, pair in enumerate(neighbours):
        # Not an array: its two rows are no data sets.
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise TypeError(
                f"neighbours must hold pairs (dataset, neighbour), number {number} is {pair!r}"
            )
        yield pair[0], pair[1]


def draw_pairs(strategy: Any, most: int) -> list[Any]:
    """Return the first values of a strategy, the simplest one first; the same in every run."""
    from hypothesis import HealthCheck, Phase, given, settings

    drawn: list[Any] = []

    @settings(
        max_examples=most,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def collect(pair: Any) -> None:
        drawn.append(pair)

    collect()
    return drawn[:most]
