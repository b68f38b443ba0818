"""Public facts about the columns of a matrix: ranges, and groups of indicators."""

from __future__ import annotations

import copy
import math
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass, field, replace
from functools import wraps
from typing import Any
from uuid import uuid4

import numpy as np

from .._validation import check_finite, check_number, check_reals, plain_numbers, refuse_mask
from ..privacy.accounting.relations import REPLACE_ONE, check_relation
from ..privacy.ledger import Ledger
from ..problems.row_bound import RowBound


@dataclass(frozen=True)
class LearnedRanges:
    """A private fit that learned ranges, and its cost.

    Parameters
    ----------
    epsilon : float
    relation : {"replace_one", "add_or_remove_one"}
    fit : str
        Identifier of the fit: copies of its release count once, other fits are added.
    size : int, optional
        Public nominal size; without it the fit took the number of records as public.
    repeatable : bool
        Whether the noise was drawn from a seed or a generator, for research only.
    """

    epsilon: float
    relation: str = REPLACE_ONE
    fit: str = field(default_factory=lambda: uuid4().hex)
    size: int | None = None
    repeatable: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", check_number("epsilon", self.epsilon, low=0.0))
        check_relation(self.relation)
        plain_numbers(self)  # for files

    def of_choice(self, ledger: Ledger, delta: float, repeatable: bool = False) -> LearnedRanges:
        """Return the ranges of a run that was selected from several; as for a card, but pure."""
        repeatable = self.repeatable or repeatable
        return replace(self, epsilon=ledger.epsilon(0.0), repeatable=repeatable)


@dataclass(frozen=True, eq=False)
class PublicColumns:
    """Public ranges of columns, and groups of indicators of which at most one is 1.

    Parameters
    ----------
    low, high : array_like of shape (d,)
        Range of every column, ``low < high``; 0 and 1 for indicators.
    groups : sequence of (start, stop)
        Columns start..stop-1 are nonnegative and sum to at most 1, as in a one-hot encoding.
    epsilon : float
        Cost of learning ranges from the data, 0 for declared ones. An estimator adds it to its own.
    learned : sequence of LearnedRanges
        The fits that learned the ranges. An ``epsilon`` above their sum counts as one more fit,
        under ``"replace_one"``.
    classes : sequence
        All labels that can occur, if they were declared beside the ranges.

    Examples
    --------
    >>> columns = PublicColumns([0, 0, 0], [1, 1, 1], [(1, 3)])
    >>> columns.radius(1), columns.radius(2) ** 2, columns.radius(np.inf)
    (2.0, 2.0, 1.0)
    """

    low: np.ndarray
    high: np.ndarray
    groups: tuple[tuple[int, int], ...] = ()
    epsilon: float = 0.0
    learned: tuple[LearnedRanges, ...] = ()
    classes: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        paid = check_number("epsilon", self.epsilon, low=0.0)
        learned = tuple(dict.fromkeys([*self.learned, *fits_in([self.low, self.high])]))
        rest = paid - math.fsum(each.epsilon for each in learned)
        if rest > 0.0:
            learned += (LearnedRanges(rest),)
        object.__setattr__(self, "learned", learned)
        object.__setattr__(self, "epsilon", math.fsum(each.epsilon for each in learned))
        for name in ("low", "high"):
            array = check_finite(name, check_reals(name, getattr(self, name))).copy()
            object.__setattr__(self, name, traced(array, learned) if learned else array)
        if self.low.ndim != 1 or self.low.shape != self.high.shape or not self.low.size:
            raise ValueError(
                f"low and high must be one number a column, got shapes {self.low.shape} and "
                f"{self.high.shape}"
            )
        wrong = np.flatnonzero(~(self.low < self.high))
        if wrong.size:
            j = int(wrong[0])
            raise ValueError(
                f"low must be below high in every column, got {self.low[j]:g} and "
                f"{self.high[j]:g} in column {j}"
            )
        groups = tuple(sorted((int(start), int(stop)) for start, stop in self.groups))
        ends = [0, *(stop for _, stop in groups)]
        if any(not last <= start < stop <= self.d for last, (start, stop) in zip(ends, groups)):
            raise ValueError(f"groups must be ranges of columns apart, got {self.groups!r}")
        object.__setattr__(self, "groups", groups)

    def __deepcopy__(self, memo: dict[int, Any]) -> PublicColumns:
        """Return a copy whose epsilon is that of the copied fits, which a choice restates."""
        names = "low", "high", "learned", "classes"
        parts = {name: copy.deepcopy(getattr(self, name), memo) for name in names}
        return replace(self, epsilon=0.0, **parts)

    def __repr__(self) -> str:
        """Return the number of columns, and whether they were learned, for a model's card."""
        if self.learned:
            return f"<ranges of {self.d} columns, learned for epsilon {self.epsilon:g}>"
        return f"<public ranges of {self.d} columns>"

    @property
    def d(self) -> int:
        """Number of columns."""
        return len(self.low)

    @property
    def numbers(self) -> np.ndarray:
        """Indices of the columns that are in no group."""
        grouped = np.zeros(self.d, dtype=bool)
        for start, stop in self.groups:
            grouped[start:stop] = True
        return np.flatnonzero(~grouped)

    def radius(self, order: float) -> float:
        """Return a tight bound on the norm of a row, for order 1, 2 or inf."""
        sizes = np.maximum(abs(self.low), abs(self.high))[self.numbers]
        sizes = np.concatenate([sizes, np.ones(len(self.groups))])
        return float(sizes.max() if math.isinf(order) else (sizes**order).sum() ** (1 / order))

    @property
    def row_bound(self) -> tuple[RowBound, ...]:
        """Bounds on the rows, for :class:`dpanalysis.ERM`."""
        return tuple(RowBound(order, self.radius(order)) for order in (1, 2, math.inf))


_WRITES = (np.copyto, np.put, np.place, np.putmask, np.put_along_axis)  # into the first argument


class _Traced(np.ndarray):
    """Array of numbers released by private fits, which records those fits.

    Copies, slices, entries, and what functions of NumPy compute from them keep the record; lists
    that are made an array lose it.
    """

    learned: tuple[LearnedRanges, ...] = ()

    def __array_finalize__(self, source: Any) -> None:
        self.learned = getattr(source, "learned", ())

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        learned = tuple(dict.fromkeys(fits_in([*inputs, *options.values()])))
        given = [np.asarray(each) if isinstance(each, _Traced) else each for each in inputs]
        written = options.get("out", inputs[:1] if method == "at" else ())
        if "out" in options:
            options["out"] = tuple(None if out is None else np.asarray(out) for out in written)
        for each in written:
            if isinstance(each, _Traced):
                each.learned = learned
        found = getattr(ufunc, method)(*given, **options)
        if isinstance(found, tuple):
            return tuple(traced(np.asarray(each), learned) for each in found)
        return found if found is None else traced(np.asarray(found), learned)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        given = [*args, *kwargs.values()]
        before = [(each, each.tobytes()) for each in given if isinstance(each, _Traced)]
        found = super().__array_function__(func, types, args, kwargs)
        learned = dict.fromkeys(fits_in(given))
        written = args[:1] if func in _WRITES else (kwargs.get("out"),)
        for each, entries in before:
            # By another name or place, a change tells which argument was written to.
            if any(each is one for one in written) or each.tobytes() != entries:
                each.learned = tuple(learned)
        number = isinstance(found, (np.ndarray, np.floating)) and not isinstance(found, _Encoded)
        return traced(np.asarray(found), tuple(learned)) if number and learned else found

    def __iter__(self) -> Iterator[Any]:
        return (self[k] for k in range(len(self)))

    def __round__(self, digits: int | None = None) -> Any:
        return np.round(self, digits or 0)

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        return traced(np.asarray(found), self.learned) if isinstance(found, np.generic) else found

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, value)
        self.learned = tuple(dict.fromkeys([*self.learned, *fits_in([value])]))

    def fill(self, value: Any) -> None:
        self[...] = value

    def __reduce__(self) -> Any:
        return traced, (np.asarray(self), self.learned)

    def __deepcopy__(self, memo: dict[int, Any] | None) -> Any:  # NumPy's keeps the same fits
        make, arguments = self.__reduce__()
        return make(*copy.deepcopy(arguments, memo))

    def __repr__(self) -> str:
        return repr(np.asarray(self))


def fits_in(values: Iterable[Any]) -> Iterator[LearnedRanges]:
    """Yield the fits attached to the arguments, and to elements of nested lists."""
    for each in values:
        yield from fits_in(each) if isinstance(each, (list, tuple)) else learned_by(each)


def traced(numbers: np.ndarray, learned: tuple[LearnedRanges, ...]) -> np.ndarray:
    """Return a view of ``numbers`` with the fits that learned them attached."""
    view = numbers.view(_Traced)
    view.learned = learned
    return view


_IN_TABLES = "dpanalysis.learned"  # key of the fits in the attributes of a DataFrame


def learned_by(array: Any) -> tuple[LearnedRanges, ...]:
    """Return the fits attached to an array by :func:`traced`, to sparse rows, or to a DataFrame."""
    if isinstance(array, _Traced):
        return array.learned
    columns = getattr(array, "public_columns", None)
    if isinstance(columns, PublicColumns):
        return columns.learned
    kept = getattr(array, "attrs", None)
    return tuple(LearnedRanges(*each) for each in kept.get(_IN_TABLES, ())) if kept else ()


def tables_traced(transform: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Wrap a ``transform`` so that fits stay attached if scikit-learn returns a DataFrame.

    pandas propagates ``attrs``, and writes them into files as JSON.
    """

    @wraps(transform)
    def traced_too(self: Any, X: Any) -> Any:
        rows = transform(self, X)
        learned = dict.fromkeys([*self.columns_.learned, *learned_by(X)])
        if learned and isinstance(getattr(rows, "attrs", None), dict):
            rows.attrs[_IN_TABLES] = [list(astuple(each)) for each in learned]
        return rows

    return traced_too


class _Encoded(_Traced):
    """Rows with their public columns attached; arrays computed from them are plain.

    Rows that are written to lose the columns: what is written may be learned from other rows.
    """

    public_columns: PublicColumns | None = None
    __iter__ = np.ndarray.__iter__
    __repr__ = np.ndarray.__repr__

    def __array_finalize__(self, source: Any) -> None:
        super().__array_finalize__(source)
        kept = getattr(source, "public_columns", None)
        # A slice of rows has the same columns.
        same = kept is not None and self.ndim == 2 and self.shape[1] == kept.d
        self.public_columns = kept if same else None

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        plain = [np.asarray(each) if isinstance(each, _Encoded) else each for each in inputs]
        _forget_columns(options.get("out", inputs[:1] if method == "at" else ()))
        if "out" in options:  # also for X -= 1: the result no longer lies in the columns' ranges
            options["out"] = tuple(
                np.asarray(each) if isinstance(each, _Encoded) else each for each in options["out"]
            )
        return getattr(ufunc, method)(*plain, **options)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        _forget_columns(args[:1] if func in _WRITES else (kwargs.get("out"),))
        return np.ndarray.__array_function__(self, func, types, args, kwargs)

    def __getitem__(self, key: Any) -> Any:
        found = np.ndarray.__getitem__(self, key)  # an entry is a plain number
        kept = getattr(found, "public_columns", None)
        if kept is not None and isinstance(key, tuple) and not any(k is None for k in key[:2]):
            places = np.arange(kept.d)
            if len(key) > 1 and not np.array_equal(places[key[-1]].ravel(), places):
                found.public_columns = None  # the columns are in another order
        return found

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, value)
        _forget_columns([self])

    def __reduce__(self) -> Any:
        return with_columns, (np.asarray(self), self.public_columns, self.learned)


def _forget_columns(written: Iterable[Any]) -> None:
    for each in written:
        if isinstance(each, _Encoded):
            each.public_columns = None


def with_columns(
    X: Any, columns: PublicColumns | None, learned: tuple[LearnedRanges, ...] = ()
) -> Any:
    """Return the rows with ``columns`` attached, or only the fits that ``learned`` them."""
    if isinstance(X, np.ndarray):
        X = X.view(_Encoded)
        X.learned = learned if columns is None else columns.learned
    else:
        X.public_checksum = _checksum(X)
    X.public_columns = columns
    return X


def _checksum(X: Any) -> int:
    """Return a checksum of sparse rows, which may be written to without their notice."""
    return zlib.crc32(np.ascontiguousarray(X.data))


def columns_of(X: Any) -> PublicColumns | None:
    """Return the columns attached to the rows, or None; wrong bounds would not harm privacy."""
    columns = getattr(X, "public_columns", None)
    if not isinstance(columns, PublicColumns) or columns.d != X.shape[1]:
        return None
    if not isinstance(X, np.ndarray) and getattr(X, "public_checksum", None) != _checksum(X):
        return None
    return columns


@contextmanager
def all_or_nothing(estimator: Any) -> Iterator[None]:
    """Restore the attributes of an estimator if its fit raises, so that an earlier fit survives."""
    # scikit-learn sets the column names before it checks the rest.
    before = dict(vars(estimator))
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise


@contextmanager
def numbers_only(X: Any) -> Iterator[None]:
    """Turn errors about entries of X that are no numbers into ones that name place and remedy."""
    refuse_mask("X", X)
    named = hasattr(X, "columns")  # a column alone has one dtype
    columns = list(zip(column_names(X), getattr(X, "dtypes", ()))) if named else []
    try:
        for kind in [getattr(X, "dtype", None), *(kind for _, kind in columns)]:
            if getattr(kind, "kind", "f") in "Mm":
                raise np.exceptions.DTypePromotionError("a date or a duration is not a number")
        with np.errstate(all="ignore"):  # a warning would reveal a record
            yield
    except (ValueError, OverflowError, np.exceptions.DTypePromotionError) as error:
        if "Input X contains NaN" in str(error):  # scikit-learn suggests models without privacy
            raise ValueError(
                f"Input X contains NaN{_place(X, np.isnan)}: a PublicEncoder before the estimator "
                'gives empty cells a declared value, as in {"range": (0, 100), "missing": 40}, or '
                "a category of their own"
            ) from None
        if "Input X contains infinity" in str(error):
            raise ValueError(f"{str(error).rstrip('.')}{_place(X, np.isinf)}") from None
        words = "could not convert string to float" in str(error)
        if isinstance(error, ValueError) and not words:
            raise
        other = [each for each in columns if getattr(each[1], "kind", "f") not in "biuf"]
        where = f", not {other[0][1]} as in column {other[0][0]!r}" if other else ""
        raise ValueError(
            f"X must hold numbers{where} ({error}): put a PublicEncoder with the columns' "
            "domains before the estimator"
        ) from None


def _place(X: Any, is_wrong: Callable[[Any], Any]) -> str:
    """Return the place of the first wrong entry of a dense table, for a message."""
    try:
        wrong = np.argwhere(is_wrong(np.asarray(X, dtype=np.float64)))
    except (TypeError, ValueError):  # sparse rows, or missing values of their own kind
        return ""
    if not wrong.size:
        return ""
    row, column = map(int, wrong[0])
    name = column_names(X)[column] if hasattr(X, "columns") else column
    return f", first in {row_name(X, row)}, column {name!r}"


def row_name(table: Any, i: int) -> str:
    """Return the place of a row for a message, with its label if pandas has another one there."""
    label = table.index[i] if hasattr(table, "iloc") else i
    return f"row {i}" if str(label) == str(i) else f"row {i} (index {label})"


def column_names(table: Any) -> list[Any]:
    """Return the names of a table's columns; ``columns`` of an Arrow table are their values."""
    return list(getattr(table, "column_names", table.columns))
