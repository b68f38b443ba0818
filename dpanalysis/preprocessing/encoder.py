"""Encoder of tables by public domains of the columns, which are never inferred from the data."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from datetime import UTC, date, datetime, time, timedelta
from types import SimpleNamespace
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from sklearn import get_config
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from .._validation import refuse_mask
from .columns import (
    LearnedRanges,
    PublicColumns,
    column_names,
    fits_in,
    learned_by,
    row_name,
    tables_traced,
    with_columns,
)

_UNFILLED = "FILL IN"


def is_missing(value: Any) -> bool:
    """Return whether a cell is empty: None, NaN, NaT, NA, or blank text."""
    if value is None:
        return True
    if isinstance(value, str):
        return not value.strip()
    try:
        return bool(value != value)  # NaN and NaT
    except TypeError:  # pandas.NA has no truth value
        return True


def text_of(value: Any) -> str:
    """Return a category as text, the same for ``1``, ``1.0`` and ``"1"``."""
    if isinstance(value, str):
        return value.strip()
    # One cell of text or none makes a table keep NumPy's numbers in all other cells of the column.
    if isinstance(value, (np.bool_, np.number)):
        value = value.item()
    try:
        if not isinstance(value, bool) and float(value).is_integer():
            return str(int(value))
    except (TypeError, ValueError, OverflowError):
        pass
    return str(value)


def number_of(cell: Any) -> float:
    """Return a cell as a number, or raise ValueError; of text, only what CSV readers take."""
    if isinstance(cell, bytes) or (isinstance(cell, str) and ("_" in cell or not cell.isascii())):
        raise ValueError(f"no number: {cell!r}")
    return float(cell)


def text_read(text: str) -> str:
    """Return a text as it looks after a CSV reader has parsed it as a number or a boolean."""
    # A reader decides by all cells of a column: ``01`` is 1 in a column of numbers, else text.
    if text.lower() in ("true", "false"):
        return text.capitalize()
    try:
        number = number_of(text)
        return text if math.isnan(number) else text_of(number)
    except ValueError:
        return text


@dataclass(frozen=True)
class NumericDomain:
    """Range of numbers (dates: seconds since 1970); empty cells get ``missing``, if declared."""

    low: float
    high: float
    missing: float | None = None
    dates: bool = False
    learned: tuple[LearnedRanges, ...] = field(default=(), repr=False)

    width = 1

    def to_dict(self) -> dict[str, Any]:
        """Return the declaration, readable by :func:`parse_domain`."""
        values = [self.low, self.high, self.missing]
        if self.dates:
            texts = [None if v is None else (_EPOCH + timedelta(seconds=v)) for v in values]
            low, high, missing = (t and t.replace(tzinfo=None).isoformat() for t in texts)
            return _declaration("dates", [low, high], missing, self.learned)
        return _declaration("range", values[:2], self.missing, self.learned)


@dataclass(frozen=True)
class Categories:
    """Category names; ``missing`` is that of empty cells, ``other`` that of unlisted values."""

    values: tuple[str, ...]
    missing: str | None = None
    other: str | None = None
    learned: tuple[LearnedRanges, ...] = field(default=(), repr=False)

    @property
    def width(self) -> int:
        """Number of indicators."""
        return len(self.values)

    def to_dict(self) -> dict[str, Any]:
        """Return the declaration, readable by :func:`parse_domain`."""
        declared = _declaration("categories", list(self.values), self.missing, self.learned)
        return declared if self.other is None else {**declared, "other": self.other}


Domain: TypeAlias = NumericDomain | Categories


def _declaration(
    kind: str, values: list[Any], missing: Any, learned: tuple[LearnedRanges, ...]
) -> dict[str, Any]:
    declared = {kind: values} if missing is None else {kind: values, "missing": missing}
    # The values are plain, so that a file would hide what they cost.
    return {**declared, "learned": [list(astuple(fit)) for fit in learned]} if learned else declared


def parse_domain(domain: Mapping[str, Any]) -> dict[str, Domain]:
    """Return the parsed domain of every column."""
    if not isinstance(domain, Mapping) or not domain:
        raise TypeError(
            'domain must be a mapping such as {"age": (17, 90), "job": ["a", "b"]}, got '
            f"{domain!r}"
        )
    parsed = {}
    for name, declared in domain.items():
        try:
            fits = tuple(dict.fromkeys(_learned(declared)))
            parsed[str(name)] = replace(_parse(declared), learned=fits)
        except (ValueError, OverflowError) as error:
            raise ValueError(f"domain of column {str(name)!r}: {error}") from None
    return parsed


def _parse(declared: Any) -> Domain:
    if isinstance(declared, (NumericDomain, Categories)):
        return declared
    if isinstance(declared, Mapping):
        kinds = [kind for kind in ("range", "categories", "dates") if kind in declared]
        more = {"missing", "other"} if kinds == ["categories"] else {"missing"}
        if len(kinds) != 1 or set(declared) - {*kinds, *more, "learned"}:
            raise ValueError(
                "must have 'range' or 'categories' or 'dates', and perhaps 'missing', and 'other' "
                f"beside categories, got {dict(declared)!r}"
            )
        values, missing = declared[kinds[0]], declared.get("missing")
        if kinds == ["categories"]:
            return _categories(values, missing, declared.get("other"))
        return (_range if kinds == ["range"] else _dates)(values, missing)
    if isinstance(declared, str) or not isinstance(declared, Iterable):
        why = "not filled in yet: " if declared == _UNFILLED else ""
        raise ValueError(
            f'{why}declare a range such as [0, 100] or categories such as ["yes", "no"], got '
            f"{declared!r}"
        )
    values = list(declared)
    if isinstance(declared, (set, frozenset)):
        return _categories(declared, None)
    pair = len(values) == 2 and all(map(_is_number, values))
    if len(values) == 2 and all(isinstance(value, date | np.datetime64) for value in values):
        raise ValueError(f'declare dates as {{"dates": [first, last]}}, got {declared!r}')
    return _range(values, None) if pair else _categories(values, None)


def _is_number(value: Any) -> bool:
    return not isinstance(value, (str, bool)) and hasattr(value, "__float__")


def _listed(declared: Any) -> list[Any]:
    """Return the values of an iterable; an empty list for text and other objects."""
    return [] if isinstance(declared, str) or not isinstance(declared, Iterable) else [*declared]


def _range(declared: Any, missing: Any) -> NumericDomain:
    values = _listed(declared)
    numbers = values if missing is None else [*values, missing]
    if len(values) != 2 or not all(_is_number(v) and math.isfinite(float(v)) for v in numbers):
        raise ValueError(
            "a range must be two finite numbers, and missing a finite number, got "
            f"{declared!r} and {missing!r}"
        )
    low, high = (float(value) for value in values)
    if not 0.5 * low < 0.5 * high:  # half of the width, by which cells are divided, may be 0
        raise ValueError(f"low must be below high, got {low:g} and {high:g}")
    if missing is not None and not low <= float(missing) <= high:
        raise ValueError(f"missing must be within its range, {low:g} to {high:g}, got {missing!r}")
    return NumericDomain(low, high, None if missing is None else float(missing))


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _seconds(value: Any) -> float:
    """Return the seconds since 1970 of an ISO date or time, in UTC unless a zone is given."""
    if isinstance(value, np.datetime64):
        value = value.astype("datetime64[us]").item()
    if isinstance(value, str):
        value = datetime.fromisoformat(value.strip())
    if not isinstance(value, date):
        raise ValueError(f"no date: {value!r}")
    if not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)
    zoned = value if value.tzinfo else value.replace(tzinfo=UTC)
    return ((zoned - _EPOCH) // timedelta(microseconds=1)) / 1e6


def _dates(declared: Any, missing: Any) -> NumericDomain:
    values = _listed(declared)
    try:
        low, high = map(_seconds, values)
        filled = None if missing is None else _seconds(missing)
    except ValueError:
        raise ValueError(
            'dates must be the first and the last date, such as ["2020-01-01", "2024-12-31"], and '
            f"missing a date, got {declared!r} and {missing!r}"
        ) from None
    if not low < high:
        raise ValueError(f"the first date must be before the last, got {declared!r}")
    if filled is not None and not low <= filled <= high:
        raise ValueError(f"missing must be within the dates {declared!r}, got {missing!r}")
    return NumericDomain(low, high, filled, dates=True)


def _categories(declared: Any, missing: Any, other: Any = None) -> Categories:
    if isinstance(declared, (set, frozenset)):
        raise ValueError(f"categories must be in an order, in a list, got the set {declared!r}")
    listed = _listed(declared)
    if any(is_missing(value) and not isinstance(value, str) for value in listed):
        raise ValueError(
            f'categories must be labels, got {declared!r}: declare empty cells by "missing"'
        )
    values = [text_of(value) for value in listed]
    missing = None if missing is None else text_of(missing)
    other = None if other is None else text_of(other)
    values += [v for v in dict.fromkeys((missing, other)) if v is not None and v not in values]
    if not values or len(set(values)) < len(values) or _UNFILLED in values:
        raise ValueError(f"categories must be a list of different values, got {declared!r}")
    return Categories(tuple(values), missing, other)


def read_domain(path: str | os.PathLike[str]) -> tuple[dict[str, Domain], list[Any]]:
    """Return the domains and the classes declared in a TOML file."""
    import tomllib

    try:
        with open(path, encoding="utf-8-sig") as file:  # editors on Windows write its mark
            content = tomllib.loads(file.read())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: not TOML: {error}") from error
    columns = content.get("columns")
    unknown = set(content) - {"columns", "classes"}
    if not isinstance(columns, dict) or unknown:
        raise ValueError(
            f"{path}: must have a table [columns], and perhaps classes = [...], got "
            f"{', '.join(map(repr, content)) or 'nothing'}"
        )
    classes = content.get("classes", [])
    if not isinstance(classes, list) or any(value == _UNFILLED for value in classes):
        raise ValueError(f"{path}: classes must be a list of labels, got {classes!r}")
    if len(classes) < 2 and "classes" in content:  # none would be read off the private labels
        raise ValueError(
            f"{path}: classes must be at least two labels, got {classes!r}; or delete the line"
        )
    if len({text_of(value) for value in classes}) < len(classes):
        raise ValueError(f"{path}: classes must be different labels, got {classes!r}")
    try:
        return parse_domain(columns), classes
    except (TypeError, ValueError) as error:
        raise type(error)(f"{path}: {error}") from None


def template(names: Iterable[str], label: str | None = None) -> str:
    """Return a TOML template for the domains of all columns except the label."""
    import json

    of = "" if label is None else f" in {json.dumps(label, ensure_ascii=False)}"

    lines = [
        "# Fill in, for every column, what can occur: from the code book, never from these data.",
        "#   a number:    [0, 100]            or {range = [0, 100], missing = 40}",
        '#   categories:  ["a", "b", "c"]     or {categories = ["a", "b"], missing = "unknown"}',
        '#                                    or {categories = ["a", "b"], other = "other"}',
        "#   a date:      {dates = [2020-01-01, 2024-12-31]}",
        "# Values outside a range count as its nearest end. Delete the columns that are not used.",
        f'# classes = ["no", "yes"]            # the labels{of}: else they are read off the data',
        "",
        "[columns]",
    ]
    columns = [json.dumps(name, ensure_ascii=False) for name in names if name != label]
    lines += [f"{name} = {json.dumps(_UNFILLED)}" for name in columns]
    return "\n".join(lines) + "\n"


_MOST_SPARSE = 0.4  # largest share of nonzero entries for which rows are returned as CSR


class PublicEncoder(TransformerMixin, BaseEstimator):
    """Scale numbers to [0, 1] and one-hot encode categories, by **public** domains.

    Nothing is learned from the data: an encoded row depends only on that row and the domain, so
    the encoder needs no privacy budget. It attaches the bounds on the rows, which estimators of
    :mod:`dpanalysis.linear_model` use.

    Parameters
    ----------
    domain : mapping, or path of a TOML file
        ``(low, high)`` or a list of categories (two numbers are a range) for every column to be
        used, in the order of the encoded columns. To declare the value of an empty cell:
        ``{"range": (0, 100), "missing": 40}`` or ``{"categories": ["a", "b"], "missing": "?"}``.
        ``{"categories": ["a", "b"], "other": "other"}`` has a category for all unlisted values but
        empty cells. ``{"dates": ("2020-01-01", "2024-12-31")}`` is a range of ISO dates or times,
        which become numbers. Columns not listed are dropped; of a table with names, also of new
        rows, only the listed ones are needed, in any order. The ``classes`` of a file are those
        of a classifier after the encoder.

    Attributes
    ----------
    columns_ : PublicColumns
        Ranges and groups of the encoded columns, with ``radius(1)``, ``radius(2)`` and
        ``radius(inf)``, which bound the norms of the rows.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Of data with names.

    Notes
    -----
    *Cells parsed as numbers.* A reader such as ``pandas.read_csv`` converts a column to numbers if
    all of its cells are numbers, so that one record affects how the others are read. Therefore a
    text that is not a category is treated as such a reader would parse it, and a number is rejected
    in a column with a category that parsing would change, such as ``"01"``, and a time where
    unlisted values have a category: read them as text.

    Empty cells are None, NaN, NA and blank text. A number outside its range is clipped to the
    nearest end; how often is not reported, since it depends on the private data.

    Domains are taken as declared. What a :class:`PrivateBounds` has spent on them is passed on to
    the estimator if it can be traced: through an end of a range that is an entry of ``low_`` or
    ``high_``, or through rows returned by its ``transform``.

    Examples
    --------
    >>> jobs = {"categories": ["a", "b"], "missing": "?"}
    >>> encoder = PublicEncoder({"age": (20, 60), "job": jobs})
    >>> encoder.fit_transform([[30, "a"], [99, None]])
    _Encoded([[0.25, 1.  , 0.  , 0.  ],
              [1.  , 0.  , 0.  , 1.  ]])
    >>> encoder.get_feature_names_out().tolist()
    ['age', 'job=a', 'job=b', 'job=?']
    >>> encoder.columns_.radius(1)
    2.0
    """

    def __init__(self, domain: Mapping[str, Any] | str | os.PathLike[str]) -> None:
        self.domain = domain

    def fit(self, X: Any, y: Any = None) -> PublicEncoder:
        """Read the names and the number of the columns, and nothing else."""
        if isinstance(self.domain, (str, os.PathLike)):
            domain, classes = read_domain(self.domain)
        else:
            domain, classes = parse_domain(self.domain), []
        names, count = _names(X)
        if names is not None:
            places = [_place(name, names) for name in domain]
            self.feature_names_in_ = np.asarray(names, dtype=object)
        elif count != len(domain):
            raise ValueError(
                f"X must have the {len(domain)} columns of the domain, in its order, since it has "
                f"no names; got {count}"
            )
        else:
            places = list(range(count))
            self.__dict__.pop("feature_names_in_", None)
        # Only after everything that may raise, so that an earlier fit survives an error.
        self._domain, self._places, self.n_features_in_ = domain, places, count
        fits = [*learned_by(X), *(fit for each in domain.values() for fit in each.learned)]
        self.columns_ = replace(_columns(domain), learned=tuple(fits), classes=tuple(classes))
        return self

    def transform(self, X: Any) -> Any:
        """Return the encoded rows, float64: an array, or CSR if few entries are nonzero.

        A table if ``set_output`` requests one.

        Parameters
        ----------
        X : DataFrame, array_like of shape (n, columns), or list of rows

        Raises
        ------
        ValueError
            If a cell is not in its domain (the message names the row, column and value of the
            first such cell of every column), or the columns are not those of :meth:`fit`.
        """
        check_is_fitted(self)
        cells = self._cells(X)
        columns = self.columns_
        if learned := learned_by(X):
            columns = replace(columns, learned=(*columns.learned, *learned))
        n, names = len(cells[0]), list(self._domain)
        values = np.empty((n, len(names)))
        places = np.empty((n, len(names)), dtype=np.int32)
        width, wrong = 0, list[tuple[int, str, Any, str]]()
        for k, (name, domain) in enumerate(self._domain.items()):
            try:
                if isinstance(domain, NumericDomain):
                    values[:, k] = _numbers(name, domain, cells[k])
                    places[:, k] = width
                else:
                    values[:, k] = 1.0
                    places[:, k] = width + _codes(name, domain, cells[k])
            except WrongCell as error:
                wrong += error.places
            width += domain.width
        if wrong:
            raise WrongCell(wrong, [row_name(X, row) for row, *_ in wrong])
        if width == len(names):
            return with_columns(values, columns)
        # Tables hold no sparse rows. scikit-learn stores an estimator's ``set_output`` here.
        asked = getattr(self, "_sklearn_output_config", {}).get("transform")
        tables = (asked or get_config()["transform_output"]) != "default"
        if tables or len(names) > _MOST_SPARSE * width:
            dense = np.zeros((n, width))
            np.put_along_axis(dense, places, values, axis=1)
            return with_columns(dense, columns)
        indptr = np.arange(n + 1, dtype=np.int64) * len(names)
        rows = sp.csr_array((values.ravel(), places.ravel(), indptr), shape=(n, width))
        return with_columns(rows, columns)

    def _cells(self, X: Any) -> list[Any]:
        """Return the columns of the domain: by name if there are names, else by place."""
        (names, found), count, places = _names(X), self.n_features_in_, self._places
        if names is not None and hasattr(self, "feature_names_in_"):
            places = [_place(name, names) for name in self._domain]
        elif found != count:
            raise ValueError(
                f"X has {found} features, but PublicEncoder is expecting {count} features"
            )
        if names is not None:
            if hasattr(X, "column_names"):  # of Arrow, whose cells are not Python's
                return [X[names[j]].to_pandas() for j in places]
            return [X.iloc[:, j] if hasattr(X, "iloc") else X[names[j]] for j in places]
        if sp.issparse(X):
            X = X.toarray()
        elif not hasattr(X, "shape"):
            rows = list(X)
            ragged = next((i for i, row in enumerate(rows) if len(row) != count), None)
            if ragged is not None:
                raise ValueError(
                    f"X must have {count} cells in every row, got {len(rows[ragged])} in row "
                    f"{ragged}"
                )
            return [[row[j] for row in rows] for j in places]
        return [X[:, j] for j in places]

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Return the names of the encoded columns, ``column`` or ``column=category``."""
        check_is_fitted(self)
        names: list[str] = []
        for name, domain in self._domain.items():
            if isinstance(domain, NumericDomain):
                names.append(name)
            else:
                names += [f"{name}={value}" for value in domain.values]
        return np.asarray(names, dtype=object)

    def to_dict(self) -> dict[str, Any]:
        """Return the domain, what it cost, and the columns seen in :meth:`fit`, as JSON values."""
        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", None)
        return {
            "domain": {name: domain.to_dict() for name, domain in self._domain.items()},
            "columns": None if names is None else list(names),
        }

    @classmethod
    def from_dict(cls, kept: Mapping[str, Any]) -> PublicEncoder:
        """Return a fitted encoder from the output of :meth:`to_dict`."""
        encoder = cls(kept["domain"])
        names = kept["columns"]
        unnamed = np.empty((0, len(kept["domain"])))
        return encoder.fit(unnamed if names is None else SimpleNamespace(columns=names))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = tags.input_tags.categorical = tags.input_tags.allow_nan = True
        return tags


# Wraps scikit-learn's own wrapper: its ``set_output`` loses what is attached to an array.
PublicEncoder.transform = tables_traced(PublicEncoder.transform)  # type: ignore


def _columns(domain: Mapping[str, Domain]) -> PublicColumns:
    groups, width = [], 0
    for each in domain.values():
        if isinstance(each, Categories):
            groups.append((width, width + each.width))
        width += each.width
    return PublicColumns(np.zeros(width), np.ones(width), tuple(groups))


def _learned(declared: Any) -> Iterator[LearnedRanges]:
    """Yield the private fits that learned a declared domain, if they are attached to its values."""
    parts = list(declared.values()) if isinstance(declared, Mapping) else [declared]
    if isinstance(declared, NumericDomain):
        parts = [declared.low, declared.high, declared.missing]
    if isinstance(declared, (NumericDomain, Categories)):
        yield from declared.learned
    elif isinstance(declared, Mapping):  # of to_dict()
        yield from (LearnedRanges(*fit) for fit in declared.get("learned", ()))
    yield from fits_in(parts)


def _names(X: Any) -> tuple[list[str] | None, int]:
    """Return the names of the columns, or None, and their number."""
    refuse_mask("X", X)
    if hasattr(X, "columns"):
        names = [str(name) for name in column_names(X)]
        return names, len(names)
    if hasattr(X, "shape"):
        if len(X.shape) != 2:
            raise ValueError(f"X must be a table with rows and columns, got shape {X.shape}")
        return None, int(X.shape[1])
    rows = list(X) if isinstance(X, Iterable) else []
    cells = rows and hasattr(rows[0], "__len__")
    if not cells or isinstance(rows[0], (str, bytes, Mapping)):
        raise ValueError("X must be a table with rows and columns, such as a DataFrame")
    return None, len(rows[0])


def _place(name: str, names: list[str]) -> int:
    """Return the place of a declared column in a table, or raise unless it has one."""
    if name not in names:
        raise ValueError(
            f"X has no column {name!r}, which the domain declares; it has "
            f"{', '.join(map(repr, names))}"
        )
    if names.count(name) > 1:
        raise ValueError(f"X has several columns named {name!r}: rename them")
    return names.index(name)


@np.errstate(all="ignore")  # a warning would reveal a record
def _numbers(name: str, domain: NumericDomain, cells: Any) -> np.ndarray:
    """Return a column scaled to [0, 1]."""
    given = array = np.asarray(cells, dtype=None if hasattr(cells, "dtype") else object)
    allowed = "a number" if domain.missing is None else "a number or a blank cell"
    if domain.dates:
        array = _dates_as_numbers(name, array)
    elif array.dtype.kind in "mM":  # tolist() makes whole numbers of nanoseconds
        array = array.astype(f"{array.dtype.kind}8[us]")
    if array.dtype.kind in "fiu":
        numbers = array.astype(np.float64)
    else:
        numbers = np.empty(len(array))
        for i, cell in enumerate(array.tolist()):
            try:
                numbers[i] = np.nan if is_missing(cell) else number_of(cell)
            except (TypeError, ValueError, OverflowError):
                raise WrongCell([(i, name, cell, allowed)]) from None
    empty = np.isnan(numbers)
    if domain.missing is None or array.dtype.kind not in "fiu":
        for i in np.flatnonzero(empty).tolist():
            if isinstance(array[i], str) and array[i].strip():  # "nan" is a number to float()
                raise WrongCell([(i, name, array[i], allowed)])
            if domain.missing is None:
                kind = "a date" if domain.dates else "a number"
                expected = f"{kind}, since no value is declared for empty cells"
                raise WrongCell([(i, name, given[i], expected)])
    if domain.missing is not None:
        numbers[empty] = domain.missing
    if np.isinf(numbers).any():
        i = int(np.argmax(np.isinf(numbers)))
        raise WrongCell([(i, name, array[i], "a finite number")])
    half = 0.5 * domain.high - 0.5 * domain.low  # the difference of the ends may overflow
    return np.clip((0.5 * numbers - 0.5 * domain.low) / half, 0.0, 1.0)


def _dates_as_numbers(name: str, cells: np.ndarray) -> np.ndarray:
    """Return dates in seconds since 1970, NaN for empty cells."""
    if cells.dtype.kind == "M":
        micro = cells.astype("datetime64[us]")
        return np.where(np.isnat(micro), np.nan, micro.astype(np.int64) / 1e6)
    numbers = np.full(len(cells), np.nan)
    for i, cell in enumerate(cells):
        if not is_missing(cell):
            try:
                numbers[i] = _seconds(cell)
            except ValueError:
                raise WrongCell([(i, name, cell, "a date such as 2024-05-31")]) from None
    return numbers


def _codes(name: str, domain: Categories, cells: Any) -> np.ndarray:
    """Return the index of each cell's category, independently of the other cells."""
    # An unlisted text counts as its parsed value, and a number is rejected if a category changes
    # when parsed: a reader converts a column to numbers if all its cells are numbers.
    if isinstance(cells, np.ndarray) and cells.dtype.kind == "M":
        cells = cells.astype("datetime64[us]")  # the hour of one cell would be in all texts
    code = {value: k for k, value in enumerate(domain.values)}
    lost = next((value for value in domain.values if text_read(value) != value), None)
    seen: dict[Any, int] = {}
    found = np.empty(len(cells), dtype=np.int32)
    for i, cell in enumerate(cells.tolist() if hasattr(cells, "tolist") else cells):
        key = cell if type(cell) is str else (type(cell), _as_key(cell))  # 1 and True are equal
        try:
            found[i] = seen[key]
            continue
        except (KeyError, TypeError):
            pass
        if is_missing(cell):
            if domain.missing is None:
                expected = "a category, since none is declared for empty cells"
                raise WrongCell([(i, name, cell, expected)])
            found[i] = code[domain.missing]
            continue
        if isinstance(cell, complex):  # one makes a table complex, and so the texts of all others
            raise WrongCell([(i, name, cell, "a label that is no complex number")])
        if domain.other is not None and isinstance(cell, (datetime, time)):
            # Read as times, a column has other texts than if one record makes it a column of texts.
            raise WrongCell([(i, name, cell, "text, not a time (read it with dtype=str)")])
        text = text_of(cell)
        if lost is not None and not isinstance(cell, str) and hasattr(cell, "__float__"):
            expected = f"text, since {lost!r} would be {text_read(lost)!r} (read it with dtype=str)"
            raise WrongCell([(i, name, cell, expected)])
        text = text if text in code else text_read(text)
        if text not in code and domain.other is None:
            raise WrongCell([(i, name, cell, f"one of {few(domain.values)}")])
        found[i] = seen[key] = code.get(text, code.get(str(domain.other), 0))
    return found


def _as_key(cell: Any) -> Any:
    """Return a number of Python, else the text: equal times of two zones are different texts."""
    return cell if type(cell) in (bool, int, float) else str(cell)


def few(values: Sequence[str]) -> str:
    """Return up to five values for a message, and the number of others."""
    more = f" or {len(values) - 5} more" if len(values) > 5 else ""
    return ", ".join(map(repr, values[:5])) + more


class WrongCell(ValueError):
    """Error for cells outside their domains, as (row, column, value, what was expected)."""

    def __init__(self, places: list[tuple[int, str, Any, str]], rows: Sequence[str] = ()) -> None:
        self.places, self.rows = places, rows or [f"row {row}" for row, *_ in places]
        cells = zip(self.rows, places)
        super().__init__("; ".join(f"{row}, {_cell_message(*rest)}" for row, (_, *rest) in cells))

    def by_line(self, lines: Sequence[int]) -> str:
        """Return the message with line numbers of a file instead of rows."""
        return "; ".join(f"line {lines[row]}, {_cell_message(*rest)}" for row, *rest in self.places)

    def __reduce__(self) -> Any:
        return WrongCell, (self.places, self.rows)


def _cell_message(column: str, value: Any, expected: str) -> str:
    value = value.item() if isinstance(value, np.number) else value  # nan, not np.float64(nan)
    return f"column {column!r}: expected {expected}, got {value!r}"
