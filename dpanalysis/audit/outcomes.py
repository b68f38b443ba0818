"""Read outputs of a mechanism as numbers and atoms, and check the data sets that it runs on.

A run's outcome is a vector of real numbers of one fixed shape, or an *atom*: a text or another
object, an output of another shape, an exception. Every step here is post-processing, so it can
hide a violation of privacy but never create one. Pairs of data sets are checked to be neighbours,
as far as their types show records, and to stay unchanged.
"""

from __future__ import annotations

import hashlib
import math
import numbers
import sys
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp

from ..privacy.accounting.relations import ADD_OR_REMOVE_ONE, REPLACE_ONE
from .entries import (
    Entries,
    Outcome,
    as_array,
    hashable,
    is_collection,
    plain,
    printed,
    words_and_numbers,
)

__tracebackhide__ = True  # pytest shows the line that calls this package

# Outputs of several runs: a numeric array whose first axis is the runs, or a list of any objects.
Batch: TypeAlias = "np.ndarray | list[Any]"

CHANGED = "mechanism must not change its data set: runs were of different inputs"

_MANY_COLLECTIONS = 32  # above this number of distinct collections, their entries are read
_LONGEST_SEQUENCE = 64  # longer sequences of another shape are atoms by their shape alone


@dataclass(frozen=True)
class Raised(Outcome):
    """The outcome of a run that raised: the exception's type, without its message."""

    kind: str

    def __str__(self) -> str:
        return f"raises {self.kind}"


@dataclass(frozen=True)
class _Shape(Outcome):
    """The outcome of a run whose output has another shape."""

    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"shape == {self.shape}"


@dataclass(frozen=True)
class Outcomes:
    """Outcomes of many runs."""

    values: np.ndarray  # (runs, k), NaN in the rows of atoms
    codes: np.ndarray | None = None  # (runs,), 0 for numbers, else the atom; None without atoms

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, part: slice) -> Outcomes:
        return Outcomes(self.values[part], None if self.codes is None else self.codes[part])

    @property
    def plain(self) -> np.ndarray:
        """Mask of the rows that are finite numbers, shape (runs,)."""
        finite = np.isfinite(self.values).all(axis=1)
        return finite if self.codes is None else finite & (self.codes == 0)

    @staticmethod
    def join(parts: Sequence[Outcomes]) -> Outcomes:
        """Concatenate the runs of all parts."""
        if len(parts) == 1:
            return parts[0]
        codes = None
        if any(part.codes is not None for part in parts):
            codes = np.concatenate(
                [np.zeros(len(p), np.int64) if p.codes is None else p.codes for p in parts]
            )
        return Outcomes(np.concatenate([part.values for part in parts]), codes)


def as_batch(returned: Any, size: int) -> Batch:
    """Return a copy of what a mechanism returned for ``size`` runs, as a batch."""
    returned = as_array(returned)
    if isinstance(returned, (list, tuple)):
        returned = [plain(output) for output in returned]
    try:
        array = np.array(returned)  # a copy: the mechanism may reuse its buffer
    except ValueError:  # rows of different shapes
        array = np.empty(len(returned), dtype=object)
        array[:] = list(returned)
    if array.ndim == 0 or array.shape[0] != size:
        found = "a single value" if array.ndim == 0 else f"{array.shape[0]} rows"
        raise ValueError(
            f"mechanism must return one row a run, {size} for size={size}, got {found} "
            f"(shape {array.shape})"
        )
    if array.dtype.kind == "c":
        array = np.stack([array.real, array.imag], axis=-1)
    if array.dtype.kind in "biuf":
        return array
    # A list is kept: next to a text, NumPy would convert numbers to texts.
    return list(returned) if isinstance(returned, (list, tuple)) else list(array.tolist())


class Reader:
    """Reads batches as outcomes: numbers of one shape, atoms, or rows of entries."""

    # The first numeric output fixes the shape. Outputs of other shapes are atoms, identified by
    # their content if they are short sequences of integers, else by their shape.

    def __init__(self, batches: Iterable[Batch], entries: bool = False) -> None:
        batches = list(batches)
        self.shape: tuple[int, ...] | None = None
        self.entries: Entries | None = None
        self._codes: dict[Hashable, int] = {}
        self._names: list[str] = [""]
        self._compared_by_identity = False
        self._read = 0
        for batch in batches:
            if self.shape is None:
                self.shape = _first_shape(batch)
        self.texts = entries and _hold_numbers(batches)
        if self.texts:
            batches = [list(map(_opened, _listed_outputs([batch]))) for batch in batches]
        if entries and self._are_uneven(batches):
            self.entries = Entries([x for x in _listed_outputs(batches) if is_collection(x)])
            self.shape = (self.entries.width,)

    def _are_uneven(self, batches: list[Batch]) -> bool:
        """Return whether no output is a number and many distinct collections are of odd shapes."""
        if all(isinstance(batch, np.ndarray) for batch in batches):
            return False
        uneven: set[Hashable] = set()
        for output in _listed_outputs(batches):
            if isinstance(output, (numbers.Real, np.bool_)):
                return False
            if len(uneven) <= _MANY_COLLECTIONS and is_collection(output):
                array = _as_numbers(output)
                if array is None or array.shape != self.shape:
                    uneven.add(hashable(output))
        return len(uneven) > _MANY_COLLECTIONS

    @property
    def width(self) -> int:
        """Number of real numbers in an outcome."""
        return 0 if self.shape is None else int(np.prod(self.shape))

    @property
    def atoms(self) -> int:
        """Number of atoms seen so far."""
        return len(self._codes)

    def name(self, code: int) -> str:
        """Return the description of an atom."""
        return self._names[code]

    def column(self, place: int) -> str:
        """Return the name of a coordinate."""
        if self.entries is not None:
            return self.entries.name(place)
        return f"output[{place}]" if self.width > 1 else "output"

    def read(self, batch: Batch) -> Outcomes:
        """Return the outcomes of a batch; a new atom gets a new code."""
        if self.texts:
            batch = list(map(_opened, _listed_outputs([batch])))
        if self.entries is not None:
            return self._read_entries(self.entries, list(_listed_outputs([batch])))
        if not isinstance(batch, np.ndarray):
            batch = _stack(batch)
        self._read += len(batch)
        if isinstance(batch, np.ndarray):
            if batch.shape[1:] == self.shape:
                values = batch.reshape(len(batch), self.width)
                return Outcomes(np.ascontiguousarray(values, dtype=np.float64))
            if batch.dtype.kind == "f" or np.prod(batch.shape[1:]) > _LONGEST_SEQUENCE:
                code = self._code(_Shape(batch.shape[1:]))
                empty = np.full((len(batch), self.width), np.nan)
                return Outcomes(empty, np.full(len(batch), code))
            batch = list(batch)
        values = np.full((len(batch), self.width), np.nan)
        codes = np.zeros(len(batch), dtype=np.int64)
        known: dict[Any, int] = {}  # a fast path for texts, the most common atoms
        for i, output in enumerate(batch):
            if type(output) is str:
                if output not in known:
                    known[output] = self._code(output)
                codes[i] = known[output]
                continue
            array = _as_numbers(output)
            if array is not None and array.shape == self.shape:
                values[i] = array.reshape(-1)
            else:
                codes[i] = self._code(_atom(output, array))
        return Outcomes(values, codes if codes.any() else None)

    def _read_entries(self, entries: Entries, outputs: list[Any]) -> Outcomes:
        self._read += len(outputs)
        rows = np.array([is_collection(output) for output in outputs], dtype=bool)
        values = np.full((len(outputs), entries.width), np.nan)
        values[rows] = entries.rows([x for x, is_row in zip(outputs, rows) if is_row])
        if rows.all():
            return Outcomes(values)
        codes = [0 if is_row else self._code(hashable(x)) for x, is_row in zip(outputs, rows)]
        return Outcomes(values, np.array(codes, dtype=np.int64))

    def check_comparable(self) -> None:
        """Raise if every output is a new object that equals only itself."""
        if self._compared_by_identity and self.atoms == self._read:
            raise TypeError(
                "mechanism returns objects that equal nothing but themselves "
                f"({self._names[-1]}): return numbers, texts, tuples or objects with __eq__"
            )

    def _code(self, atom: Hashable) -> int:
        try:
            return self._codes[atom]
        except KeyError:
            pass
        kind = type(atom)
        if kind.__eq__ is object.__eq__ and not isinstance(atom, type):
            self._compared_by_identity = True
        named = isinstance(atom, (Raised, _Shape))
        self._names.append(str(atom) if named else f"output == {_shorten(printed(atom))}")
        self._codes[atom] = len(self._names) - 1
        return self._codes[atom]


def _listed_outputs(batches: Iterable[Batch]) -> Iterator[Any]:
    for batch in batches:
        yield from batch.tolist() if isinstance(batch, np.ndarray) else batch


def _hold_numbers(batches: Iterable[Batch]) -> bool:
    """Return whether outputs are texts that contain numbers and seldom repeat."""
    if all(isinstance(batch, np.ndarray) for batch in batches):
        return False
    texts = [output for output in _listed_outputs(batches) if type(output) is str]
    different = set(texts)
    if len(different) <= max(_MANY_COLLECTIONS, len(texts) // 2):
        return False
    return sum(len(words_and_numbers(text)) > 1 for text in different) > len(different) // 2


def _opened(output: Any) -> Any:
    return words_and_numbers(output) if type(output) is str else output


def _shorten(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."


def _first_shape(batch: Batch) -> tuple[int, ...] | None:
    if isinstance(batch, np.ndarray):
        return batch.shape[1:] if batch[:1].size else None
    for output in batch:
        array = _as_numbers(output)
        if array is not None:
            return array.shape
    return None


def _stack(outputs: list[Any]) -> Batch:
    """Return the outputs as one array if all are numbers of one shape, else unchanged."""
    if set(map(type, outputs)) <= {float, int, bool, np.float64, np.int64, np.bool_}:
        try:
            return np.array(outputs, dtype=np.float64)
        except OverflowError:  # integers beyond the range of floats
            return outputs
    if all(isinstance(output, np.ndarray) for output in outputs):
        shape = outputs[0].shape
        if all(o.shape == shape and o.dtype.kind in "biuf" for o in outputs):
            return np.stack(outputs)
    return outputs


def _as_numbers(output: Any) -> np.ndarray | None:
    """Return one output as an array of real numbers, None if it is not numeric."""
    output = plain(output)
    if isinstance(output, (numbers.Real, np.bool_)):
        try:
            return np.array(float(output))
        except OverflowError:
            return None
    if isinstance(output, (numbers.Complex, np.ndarray, list, tuple)) or hasattr(
        output, "__array__"
    ):
        try:
            array = np.asarray(output)
        except ValueError:  # ragged
            return None
        if array.dtype.kind == "c":
            return np.stack([array.real, array.imag], axis=-1)
        return array if array.dtype.kind in "biuf" and array.size else None
    return None


def _atom(output: Any, array: np.ndarray | None) -> Hashable:
    """Return a hashable key for one output that is not a vector of the usual shape."""
    if array is not None and (array.dtype.kind == "f" or array.size > _LONGEST_SEQUENCE):
        return _Shape(array.shape)
    return hashable(output)


# Pairs of data sets


_RECORD = "records"  # the kind of records that are dictionaries, mixed texts and numbers, ...


class _Records(NamedTuple):
    """The shapes of a record's parts (or what it is), and a hashable key of every record."""

    kind: tuple[Any, ...]
    keys: list[Any]


def check_neighbours(
    dataset: Any, neighbour: Any, relation: str | None = None, default: str | None = None
) -> None:
    """Raise unless the two data sets are neighbours, as far as their types show records."""
    first, second = _records(dataset, relation), _records(neighbour, relation)
    listed = isinstance(dataset, list) and isinstance(neighbour, list)
    if listed and (first and first.kind) != (second and second.kind):  # rows of different lengths
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
    if first.kind != second.kind:
        raise ValueError(
            "dataset and neighbour must have records of one kind, "
            f"got {_describe(first.kind)} and {_describe(second.kind)}"
        )
    keys, other = first.keys, second.keys
    if first.kind != ((),):
        _compare(keys, other, relation or default, "row", "rows")
    elif relation or len(keys) != len(other) or keys == other:  # else numbers, perhaps statistics
        _compare(keys, other, relation, "entry", "entries")


def _compare(
    keys: list[Any], other: list[Any], relation: str | None, what: str, several: str
) -> None:
    lengths = f"they have {len(keys)} and {len(other)}"
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
    """Return whether two objects are certainly equal."""
    if dataset is neighbour:
        return True
    try:
        return type(dataset) is type(neighbour) and bool(dataset == neighbour)
    except (TypeError, ValueError):  # arrays inside
        return False


def _describe(kind: tuple[Any, ...]) -> str:
    names = {(): "numbers", _RECORD: "collections"}
    return " and ".join(names.get(shape, f"rows of shape {shape}") for shape in kind)


def _listed(data: list[Any]) -> _Records:
    return _Records((_RECORD,), [hashable(record) for record in data])


def _records(data: Any, relation: str | None) -> _Records | None:
    """Return the kind of the records and a hashable key of each, or None for opaque data."""
    if isinstance(data, list) and data and all(isinstance(x, (dict, set)) for x in data):
        return _listed(data)
    parts = _parts(data)
    if parts is None:
        return None
    if len(parts) == 2:
        lengths = parts[0].shape[0], parts[1].shape[0]
        if relation is None and (parts[0].ndim == 1 or lengths[0] != lengths[1]):
            return None  # not rows and labels
        if lengths[0] != lengths[1]:
            raise ValueError(
                f"X and y must have one length, got {lengths[0]} rows and {lengths[1]} labels"
            )
    kind = tuple(part.shape[1:] for part in parts)
    keys = [_keys(part) for part in parts]
    return _Records(kind, keys[0] if len(keys) == 1 else list(zip(*keys)))


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
    """Return a dense array, or a sparse one in canonical form, of records, or None."""
    if sp.issparse(data):
        rows = sp.csr_array(data, copy=True)
        rows.sum_duplicates()
        rows.eliminate_zeros()
        return rows
    if isinstance(data, (list, tuple)) or hasattr(data, "__array__"):
        try:
            array = np.asarray(as_array(data))
        except ValueError:
            return None
        return array if array.ndim >= 1 else None
    return None


def _keys(array: Any) -> list[Any]:
    """Return one hashable key per row; equal numbers have equal keys, whatever their dtype."""
    if sp.issparse(array):
        return [
            (
                array.indices[lo:hi].astype(np.int64).tobytes(),
                array.data[lo:hi].astype(np.float64).tobytes(),
            )
            for lo, hi in zip(array.indptr[:-1], array.indptr[1:])
        ]
    if array.dtype.kind not in "biuf":
        return [hashable(row) for row in array.tolist()]
    width = math.prod(array.shape[1:])  # not -1, which an empty array does not allow
    flat = np.ascontiguousarray(array.reshape(len(array), width), dtype=np.float64) + 0.0
    return [row.tobytes() for row in flat]


def fingerprint(data: Any) -> Any:
    """Return a value that changes when an array inside ``data`` does."""
    if isinstance(data, np.ndarray):
        if data.dtype.hasobject:
            return repr(data.tolist())
        bytes_ = np.ascontiguousarray(data).view(np.uint8).reshape(-1)
        return data.shape, data.dtype.str, hashlib.blake2b(bytes_.data).hexdigest()
    if sp.issparse(data) and hasattr(data, "data"):
        names = ("data", "indices", "indptr", "row", "col", "coords", "offsets", "rows")
        return tuple(fingerprint(getattr(data, name, None)) for name in names)
    if isinstance(data, (tuple, list)):
        return tuple(fingerprint(entry) for entry in data)
    if isinstance(data, dict):
        return tuple((key, fingerprint(entry)) for key, entry in data.items())
    if isinstance(data, (int, float, complex, str, bytes)):
        return repr(data)
    if hasattr(data, "columns") and hasattr(data, "iloc"):  # a table: each column has its own type
        columns = (data.iloc[:, place].to_numpy() for place in range(len(data.columns)))
        return tuple(map(repr, data.columns)), tuple(map(fingerprint, columns))
    if hasattr(data, "iloc"):
        return fingerprint(data.to_numpy())
    if hasattr(data, "detach"):  # PyTorch
        return fingerprint(as_array(data))
    return tuple(
        (name, fingerprint(vars(data)[name]))
        for name in ("X", "y", "_X", "_y")
        if hasattr(data, "__dict__") and name in vars(data)
    )


def pairs_of(neighbours: Any, most: int) -> Iterator[tuple[Any, Any]]:
    """Yield the pairs of an iterable, or the first ``most`` of a Hypothesis strategy."""
    # If Hypothesis has not been imported, there is no strategy.
    hypothesis = sys.modules.get("hypothesis")
    if hypothesis and isinstance(neighbours, hypothesis.strategies.SearchStrategy):
        neighbours = draw_pairs(neighbours, most)
    if not isinstance(neighbours, Iterable):
        raise TypeError(
            "neighbours must be pairs of data sets or a strategy of Hypothesis that yields them, "
            f"got {neighbours!r}"
        )
    for number, pair in enumerate(neighbours):
        # An array does not count as a pair: its two rows are not data sets.
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise TypeError(
                f"neighbours must hold pairs (dataset, neighbour), number {number} is {pair!r}"
            )
        if isinstance(pair, list) and all(isinstance(each, (int, float)) for each in pair):
            raise TypeError(
                f"neighbours must hold pairs (dataset, neighbour), number {number} is {pair!r}, "
                "which looks like a data set: for one pair write [(dataset, neighbour)]"
            )
        yield pair[0], pair[1]


def draw_pairs(strategy: Any, most: int) -> list[Any]:
    """Return the first values of a strategy, the simplest first; the same in every run."""
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
