"""What a mechanism returned, as numbers and atoms, one row a run.

A run's outcome is a vector of real numbers of one fixed shape, or an *atom*: a text or another
object, an output of another shape, an exception. Every step here is post-processing, so it can
hide a violation of privacy but never make one up.
"""

from __future__ import annotations

import numbers
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

__all__ = ["Batch", "Outcomes", "Raised", "Reader", "as_batch", "hashable"]

# Runs as returned: a numeric array whose first axis is the runs, or a list of any outputs.
Batch: TypeAlias = "np.ndarray | list[Any]"

_LONGEST_SEQUENCE = 64  # longer sequences of another shape are told apart by shape alone


@dataclass(frozen=True)
class Raised:
    """The outcome of a run that raised: the exception's type, without its message.

    Examples
    --------
    >>> print(Raised("ZeroDivisionError"))
    raises ZeroDivisionError
    """

    kind: str

    def __str__(self) -> str:
        return f"raises {self.kind}"


@dataclass(frozen=True)
class _Shape:
    """The outcome of a run whose output has not the shape of the others."""

    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"shape == {self.shape}"


@dataclass(frozen=True)
class Outcomes:
    """Outcomes of many runs.

    Attributes
    ----------
    values : ndarray of shape (runs, k)
        The numbers; NaN in the rows of atoms.
    codes : ndarray of shape (runs,), or None
        0 for numbers, else which atom; None where there is no atom.
    """

    values: np.ndarray
    codes: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, part: slice) -> Outcomes:
        return Outcomes(self.values[part], None if self.codes is None else self.codes[part])

    @property
    def plain(self) -> np.ndarray:
        """The rows that are finite numbers, as an array of shape (runs,) of bool."""
        finite = np.isfinite(self.values).all(axis=1)
        return finite if self.codes is None else finite & (self.codes == 0)

    @staticmethod
    def join(parts: Sequence[Outcomes]) -> Outcomes:
        """Return the runs of all parts."""
        if len(parts) == 1:
            return parts[0]
        codes = None
        if any(part.codes is not None for part in parts):
            codes = np.concatenate(
                [np.zeros(len(p), np.int64) if p.codes is None else p.codes for p in parts]
            )
        return Outcomes(np.concatenate([part.values for part in parts]), codes)


def as_batch(returned: Any, size: int) -> Batch:
    """Return a copy of what a mechanism returned for ``size`` runs, as a batch.

    Raises
    ------
    ValueError
        If it does not hold one row a run.

    Examples
    --------
    >>> as_batch([1, 2], 2)
    array([1, 2])
    >>> as_batch(["a", None], 2)
    ['a', None]
    """
    try:
        array = np.array(returned)  # a copy: the mechanism may use its buffer again
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
    # A list is kept as it is: NumPy makes texts of the numbers beside a text.
    return list(returned) if isinstance(returned, (list, tuple)) else list(array.tolist())


class Reader:
    """Reads batches as outcomes; which outputs count as numbers is fixed by the first ones.

    Parameters
    ----------
    batches : iterable of batch
        The shape of the first numeric output found here is that of the numbers; outputs of
        other shapes are atoms: by their content where they are short and of integers, else by
        their shape.

    Examples
    --------
    >>> reader = Reader([["a", 1.0]])
    >>> reader.read(["b", 2.0, [1.0, 2.0]]).codes
    array([1, 0, 2])
    >>> reader.name(2)
    'shape == (2,)'
    """

    def __init__(self, batches: Iterable[Batch]) -> None:
        self.shape: tuple[int, ...] | None = None
        self._codes: dict[Hashable, int] = {}
        self._names: list[str] = [""]
        self._compared_by_identity = False
        self._read = 0
        for batch in batches:
            if self.shape is None:
                self.shape = _first_shape(batch)

    @property
    def width(self) -> int:
        """How many numbers an outcome has."""
        return 0 if self.shape is None else int(np.prod(self.shape))

    @property
    def atoms(self) -> int:
        """How many atoms have been seen."""
        return len(self._codes)

    def name(self, code: int) -> str:
        """Return an atom in words."""
        return self._names[code]

    def read(self, batch: Batch) -> Outcomes:
        """Return the runs of a batch; an atom that is new gets a new code."""
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
        known: dict[Any, int] = {}  # texts are most of what comes here
        for i, output in enumerate(batch):
            if type(output) is str:
                if output not in known:
                    known[output] = self._code(output)
                codes[i] = known[output]
                continue
            numbers_ = _as_numbers(output)
            if numbers_ is not None and numbers_.shape == self.shape:
                values[i] = numbers_.reshape(-1)
            else:
                codes[i] = self._code(_atom(output, numbers_))
        return Outcomes(values, codes if codes.any() else None)

    def check_comparable(self) -> None:
        """Raise where outputs are objects that equal only themselves, so that no two agree."""
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
        self._names.append(str(atom) if named else f"output == {_shorten(repr(atom))}")
        self._codes[atom] = len(self._names) - 1
        return self._codes[atom]


def _shorten(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."


def _first_shape(batch: Batch) -> tuple[int, ...] | None:
    if isinstance(batch, np.ndarray):
        return batch.shape[1:] if batch[:1].size else None
    for output in batch:
        numbers_ = _as_numbers(output)
        if numbers_ is not None:
            return numbers_.shape
    return None


def _stack(outputs: list[Any]) -> Batch:
    """Return the outputs as one array where all are numbers of one shape."""
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
    """Return one output as an array of real numbers, or None where it is none."""
    if isinstance(output, (numbers.Real, np.bool_)):
        try:
            return np.array(float(output))
        except OverflowError:
            return None
    if isinstance(output, (str, bytes, Raised)) or output is None:
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


def _atom(output: Any, numbers_: np.ndarray | None) -> Hashable:
    """Return a hashable stand-in for one output that is not a vector of the usual shape."""
    if numbers_ is not None and (numbers_.dtype.kind == "f" or numbers_.size > _LONGEST_SEQUENCE):
        return _Shape(numbers_.shape)
    return hashable(output)


def hashable(output: Any) -> Hashable:
    """Return a hashable stand-in for any object: equal ones have equal stand-ins.

    Examples
    --------
    >>> hashable({"a": [1, 2]}) == hashable({"a": np.array([1, 2])})
    True
    """
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
        return repr(output)
    return output
