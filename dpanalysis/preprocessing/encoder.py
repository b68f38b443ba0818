"""Tables of numbers and words, encoded by public domains."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from .._validation import refuse_mask
from .columns import PublicColumns, with_columns
from .domain import Categories, Range, is_missing, parse_domain, read_domain, text_of

__all__ = ["PublicEncoder"]

_MOST_SPARSE = 0.4  # share of entries that are not 0 up to which rows are sparse


class PublicEncoder(TransformerMixin, BaseEstimator):
    """Scale numbers to [0, 1] and make indicators of categories, by **public** domains.

    Nothing is learnt from the data: what becomes of a row depends on that row and the domain
    alone, so the encoder needs no privacy budget. It knows the bounds on the rows, and an
    estimator of :mod:`dpanalysis.linear_model` takes them from what it is given.

    Parameters
    ----------
    domain : mapping, or path of a TOML file
        ``(low, high)`` or a list of categories for every column that is used, in the order of the
        encoded columns. To declare what an empty cell stands for:
        ``{"range": (0, 100), "missing": 40}`` or ``{"categories": ["a", "b"], "missing": "?"}``.
        Other columns are left out.

    Attributes
    ----------
    columns_ : PublicColumns
        Ranges and groups of the encoded columns, with ``radius(1)``, ``radius(2)`` and
        ``radius(inf)``, bounds on the norms of the rows.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Of data with names.

    Notes
    -----
    Empty cells are None, NaN, NA and blank text. A number outside its range counts as the nearest
    end; how often that happens is not told, since it depends on the private data.

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
        """Look at the names and the number of the columns, and at nothing else.

        Raises
        ------
        ValueError, TypeError
            If the domain is not one, or a column of it is missing.
        """
        if isinstance(self.domain, (str, os.PathLike)):
            domain = read_domain(self.domain)[0]
        else:
            domain = parse_domain(self.domain)
        names, count = _names(X)
        self._domain = domain
        if names is not None:
            twice = sorted({name for name in names if names.count(name) > 1})
            if twice:
                raise ValueError(f"X has several columns named {twice[0]!r}: rename them")
            absent = [name for name in domain if name not in names]
            if absent:
                raise ValueError(
                    f"X has no column {absent[0]!r}, which the domain declares; it has "
                    f"{', '.join(map(repr, names))}"
                )
            self.feature_names_in_ = np.asarray(names, dtype=object)
            self._places = [names.index(name) for name in domain]
        elif count != len(domain):
            raise ValueError(
                f"X must have the {len(domain)} columns of the domain, in its order, since it has "
                f"no names; got {count}"
            )
        else:
            self._places = list(range(count))
        self.n_features_in_ = count
        self.columns_ = _columns(domain)
        return self

    def transform(self, X: Any) -> Any:
        """Return the encoded rows, float64: an array, or CSR where few entries are not 0.

        Parameters
        ----------
        X : DataFrame, array_like of shape (n, columns), or list of rows

        Raises
        ------
        ValueError
            If a cell is not in its domain: the message names row, column and value. If the
            columns are not those of :meth:`fit`.
        """
        check_is_fitted(self)
        cells = _cells(X, self._names_kept(), self.n_features_in_, self._places)
        n, names = len(cells[0]), list(self._domain)
        values = np.empty((n, len(names)))
        places = np.empty((n, len(names)), dtype=np.int32)
        width = 0
        for k, (name, domain) in enumerate(self._domain.items()):
            if isinstance(domain, Range):
                values[:, k] = _numbers(name, domain, cells[k])
                places[:, k] = width
            else:
                values[:, k] = 1.0
                places[:, k] = width + _codes(name, domain, cells[k])
            width += domain.width
        if width == len(names):
            return with_columns(values, self.columns_)
        if len(names) > _MOST_SPARSE * width:
            dense = np.zeros((n, width))
            np.put_along_axis(dense, places, values, axis=1)
            return with_columns(dense, self.columns_)
        indptr = np.arange(n + 1, dtype=np.int64) * len(names)
        rows = sp.csr_array((values.ravel(), places.ravel(), indptr), shape=(n, width))
        return with_columns(rows, self.columns_)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Return the names of the encoded columns, ``column`` or ``column=category``."""
        check_is_fitted(self)
        return np.asarray(
            [
                name if isinstance(domain, Range) else f"{name}={value}"
                for name, domain in self._domain.items()
                for value in (("",) if isinstance(domain, Range) else domain.values)
            ],
            dtype=object,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the domain, and the columns that :meth:`fit` saw, as plain JSON values."""
        check_is_fitted(self)
        names = self._names_kept()
        return {
            "domain": {name: domain.to_dict() for name, domain in self._domain.items()},
            "columns": None if names is None else list(names),
        }

    @classmethod
    def from_dict(cls, kept: Mapping[str, Any]) -> PublicEncoder:
        """Return the fitted encoder that :meth:`to_dict` describes."""
        encoder = cls(kept["domain"])
        names = kept["columns"]
        header: Any = np.empty((0, len(kept["domain"]))) if names is None else _Header(names)
        return encoder.fit(header)

    def _names_kept(self) -> list[str] | None:
        names = getattr(self, "feature_names_in_", None)
        return None if names is None else list(names)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = tags.input_tags.categorical = tags.input_tags.allow_nan = True
        return tags


class _Header:
    """A table of names without rows."""

    def __init__(self, columns: Sequence[str]) -> None:
        self.columns = list(columns)


def _columns(domain: Mapping[str, Range | Categories]) -> PublicColumns:
    groups, width = [], 0
    for each in domain.values():
        if isinstance(each, Categories):
            groups.append((width, width + each.width))
        width += each.width
    return PublicColumns(np.zeros(width), np.ones(width), tuple(groups))


def _names(X: Any) -> tuple[list[str] | None, int]:
    """Return the names of the columns, if they have any, and their number."""
    refuse_mask("X", X)
    if hasattr(X, "columns"):
        names = [str(name) for name in X.columns]
        return names, len(names)
    if hasattr(X, "shape"):
        if len(X.shape) != 2:
            raise ValueError(f"X must be a table with rows and columns, got shape {X.shape}")
        return None, int(X.shape[1])
    rows = list(X)
    if not rows or isinstance(rows[0], (str, bytes)) or not hasattr(rows[0], "__len__"):
        raise ValueError("X must be a table with rows and columns, such as a DataFrame")
    return None, len(rows[0])


def _cells(X: Any, kept: list[str] | None, count: int, places: list[int]) -> list[Any]:
    """Return the columns that are used, or raise where they are not those of :meth:`fit`."""
    names, found = _names(X)
    if kept is not None and names is not None and names != kept:
        missing = [name for name in kept if name not in names]
        raise ValueError(
            f"X must have the columns of fit, {', '.join(map(repr, kept))}, in that order, got "
            + (f"no {missing[0]!r}" if missing else ", ".join(map(repr, names)))
        )
    if found != count:
        raise ValueError(f"X has {found} features, but PublicEncoder is expecting {count} features")
    if names is not None:
        return [X.iloc[:, j].to_numpy() if hasattr(X, "iloc") else X[names[j]] for j in places]
    if sp.issparse(X):
        X = X.toarray()
    elif not hasattr(X, "shape"):
        rows = list(X)
        ragged = next((i for i, row in enumerate(rows) if len(row) != count), None)
        if ragged is not None:
            raise ValueError(
                f"X must have {count} cells in every row, got {len(rows[ragged])} in row {ragged}"
            )
        return [[row[j] for row in rows] for j in places]
    return [X[:, j] for j in places]


def _numbers(name: str, domain: Range, cells: Any) -> np.ndarray:
    """Return a column scaled to [0, 1]."""
    array = np.asarray(cells, dtype=None if hasattr(cells, "dtype") else object)
    if array.dtype.kind in "fiu":
        numbers = array.astype(np.float64)
    else:
        numbers = np.empty(len(array))
        for i, cell in enumerate(array.tolist()):
            try:
                numbers[i] = np.nan if is_missing(cell) else float(cell)
            except (TypeError, ValueError):
                raise _wrong(i, name, cell, "a number") from None
    empty = np.isnan(numbers)
    if empty.any():
        i = int(np.argmax(empty))
        if domain.missing is None:
            raise _wrong(i, name, array[i], "a number, since no value is declared for empty cells")
        cell = array[i]
        if isinstance(cell, str) and cell.strip():  # the text "nan" is a number to float()
            raise _wrong(i, name, cell, "a number")
        numbers[empty] = domain.missing
    if np.isinf(numbers).any():
        i = int(np.argmax(np.isinf(numbers)))
        raise _wrong(i, name, array[i], "a finite number")
    half = 0.5 * domain.high - 0.5 * domain.low  # the difference of the ends may overflow
    return np.clip((0.5 * numbers - 0.5 * domain.low) / half, 0.0, 1.0)


def _codes(name: str, domain: Categories, cells: Any) -> np.ndarray:
    """Return the number of each cell's category, which no other cell changes."""
    code = {value: k for k, value in enumerate(domain.values)}
    seen: dict[Any, int] = {}
    found = np.empty(len(cells), dtype=np.int32)
    for i, cell in enumerate(cells.tolist() if hasattr(cells, "tolist") else cells):
        key = cell if type(cell) is str else (type(cell), cell)  # 1 and True are equal
        try:
            found[i] = seen[key]
            continue
        except (KeyError, TypeError):
            pass
        if is_missing(cell):
            if domain.missing is None:
                raise _wrong(i, name, cell, "a category, since none is declared for empty cells")
            found[i] = code[domain.missing]
            continue
        if text_of(cell) not in code:
            listed = ", ".join(map(repr, domain.values))
            raise _wrong(i, name, cell, f"one of {listed}")
        found[i] = seen[key] = code[text_of(cell)]
    return found


def _wrong(row: int, column: str, value: Any, expected: str) -> ValueError:
    error = ValueError(f"row {row}, column {column!r}: expected {expected}, got {value!r}")
    error.place = row, column, value, expected  # type: ignore[attr-defined]
    return error
