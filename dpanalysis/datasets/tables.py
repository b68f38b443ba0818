"""CSV files, encoded by public domains: ranges and category lists, never the data's own."""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse

from .formats import parse_numbers, read_bytes

__all__ = ["Domain", "load_csv"]

#: What a CSV column may hold: a public range ``(low, high)`` or a public list of categories.
Domain: TypeAlias = tuple[float, float] | Sequence[str]


def load_csv(
    path: str | os.PathLike[str],
    *,
    label: str | int = -1,
    columns: Mapping[str, Domain] | None = None,
    labels: Mapping[str, float] | None = None,
    names: Sequence[str] | None = None,
    delimiter: str = ",",
    missing: Sequence[str] = (),
    comment: str | None = None,
    sparse: bool = False,
) -> tuple[Any, np.ndarray]:
    r"""Read a CSV file and encode it by **public** domains: nothing is learnt from the data.

    A numeric column with range ``(low, high)`` becomes ``clip((v - low)/(high - low), 0, 1)``;
    a column with ``m`` categories becomes ``m`` indicators. So a row of ``k`` source columns
    has L1 norm at most ``k`` and L2 norm at most ``sqrt(k)``, whatever the data are. Ranges
    read from the data (``X.min()``, ``X.max()``) would be an unaccounted release.

    Parameters
    ----------
    path : str or path-like
        Plain, ``.gz`` or ``.bz2`` file; fields may be quoted, blank lines are skipped.
    label : str or int
        Name or position of the label column.
    columns : mapping of str to (low, high) or list of str, optional
        The columns to use, in this order, with their public domains. Default: every column
        but the label, as plain numbers without scaling (then no row bound is implied).
    labels : mapping of str to float, optional
        Number for each text of the label column; default: the column is numeric.
    names : sequence of str, optional
        Column names of a file without a header; default: the first line is the header.
    delimiter : str
        One character.
    missing : sequence of str
        Texts that mean "missing"; such an attribute is encoded as zeros, which keeps the
        row bound.
    comment : str, optional
        Lines that start with this text are skipped.
    sparse : bool
        Return ``X`` as CSR.

    Returns
    -------
    X : ndarray or scipy.sparse.csr_array, shape (n, d)
        float64.
    y : ndarray, shape (n,)
        float64 labels.

    Raises
    ------
    TypeError
        If ``columns`` or ``labels`` is no mapping.
    ValueError
        If a line has the wrong number of fields, a field is not a finite number, not a
        listed category or not a listed label (file and line are named), or a column is
        unknown.

    Notes
    -----
    So are read data sets whose terms forbid passing them on: IPUMS-BR and IPUMS-US of paper
    Chen and Lee (2020) (38,000 x 53 and 40,000 x 58, the larger class .507 and .513) are extracts
    that the user makes and downloads at https://www.ipums.org as CSV. Declare a range for every
    number (``"AGE": (0, 100)``, from the code book, not from the file) and the list of codes for
    every category (``"MARST": ("1", "2", "3", "4", "5", "6")``; codes that mean "not known"
    go in ``missing``), then put the two bounds beside the matrix:

    .. code-block:: python

        X, y = load_csv("ipums.csv", label="RICH", labels={"0": -1, "1": 1}, columns=columns)
        k = len(columns)
        bounds = (dpa.RowBound(order=1, radius=k), dpa.RowBound(order=2, radius=k**0.5))
        data = dpa.datasets.Dataset(X, y, None, None, "ipums", bounds)

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "people.csv")
    ...     _ = path.write_text("age,sex,rich\n30,F,yes\n80,M,no\n")
    ...     X, y = load_csv(
    ...         path, label="rich", labels={"yes": 1, "no": -1},
    ...         columns={"age": (0, 100), "sex": ("F", "M")},
    ...     )
    >>> X
    array([[0.3, 1. , 0. ],
           [0.8, 0. , 1. ]])
    >>> y
    array([ 1., -1.])
    """
    if not isinstance(delimiter, str) or len(delimiter) != 1:
        raise ValueError(f"delimiter must be one character, got {delimiter!r}")
    _check_mapping("columns", columns, "{'age': (0, 100), 'job': ['clerk', 'nurse']}")
    _check_mapping("labels", labels, "{'no': -1, 'yes': 1}")
    content = read_bytes(path)
    rows: _NumericTable | _TextTable | None = None
    plain = columns is None or all(_is_range(domain) for domain in columns.values())
    if plain and labels is None and not missing and comment is None:
        rows = _NumericTable.parse(path, content, names, delimiter)
    if rows is None:  # something is not a number; if it is an error, this parser names the line
        rows = _TextTable(path, content, names, delimiter, comment)
    target = rows.position(label)
    if columns is None:
        used: Mapping[str, Domain | None] = {
            name: None for j, name in enumerate(rows.names) if j != target
        }
    else:
        used = columns
    hint = "; for labels in words pass labels={'no': -1, 'yes': 1}"
    y = rows.numbers(target, hint=hint) if labels is None else rows.codes(target, labels)

    n = y.size
    values = np.empty((n, len(used)))
    column = np.empty((n, len(used)), dtype=np.int32)
    width = 0
    for k, (name, domain) in enumerate(used.items()):
        source = rows.position(name)
        if domain is None or _is_range(domain):
            numbers = rows.numbers(source, missing)
            if domain is not None:
                low, high = (float(bound) for bound in domain)
                if not low < high:
                    raise ValueError(
                        f"columns[{name!r}] must be (low, high) with low < high, got {domain!r}"
                    )
                numbers = np.clip((numbers - low) / (high - low), 0.0, 1.0)
            values[:, k] = np.nan_to_num(numbers, copy=False)  # missing is NaN until here
            column[:, k] = width
            width += 1
        else:
            table_of = {str(text): float(code) for code, text in enumerate(domain)}
            codes = rows.codes(source, table_of | dict.fromkeys(missing, -1.0))
            values[:, k] = codes >= 0
            column[:, k] = width + np.maximum(codes, 0)
            width += len(table_of)
    if width == len(used) and not sparse:  # numbers only: the table is the matrix
        return values, y
    indptr = np.arange(n + 1, dtype=np.int32) * np.int32(len(used))
    X = scipy.sparse.csr_array((values.ravel(), column.ravel(), indptr), shape=(n, width))
    X.eliminate_zeros()
    return (X if sparse else X.toarray()), y


def _check_mapping(name: str, value: Any, example: str) -> None:
    if not (value is None or isinstance(value, Mapping)):
        raise TypeError(f"{name} must be a mapping such as {example}, got {value!r}")


def _is_range(domain: Domain) -> bool:
    return len(domain) == 2 and not any(isinstance(bound, str) for bound in domain)


class _TextTable:
    """A CSV file as columns of text."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        content: bytes,
        names: Sequence[str] | None,
        delimiter: str,
        comment: str | None,
    ) -> None:
        self.path = path
        text = content.decode("utf-8", "replace")
        reader = csv.reader(io.StringIO(text), delimiter=delimiter, skipinitialspace=True)
        rows: list[list[str]] = []
        self.lines: list[int] = []
        for row in reader:
            if not row or (comment is not None and row[0].startswith(comment)):
                continue
            if names is None:
                names = row
            elif len(row) == len(names):
                rows.append(row)
                self.lines.append(reader.line_num)
            else:
                raise ValueError(
                    f"{path}, line {reader.line_num}: expected {len(names)} fields, got {len(row)}"
                )
        if not rows or names is None:
            raise ValueError(f"{path}: expected rows of fields split by {delimiter!r}, got none")
        self.names = list(names)
        self.columns = list(zip(*rows, strict=True))

    def position(self, column: str | int) -> int:
        return _position(self.path, self.names, column)

    def numbers(self, column: int, missing: Sequence[str] = (), hint: str = "") -> np.ndarray:
        """Return a column as floats, NaN where it is missing."""
        gaps = set(missing)
        fields = ["nan" if field in gaps else field for field in self.columns[column]]
        try:
            values = np.array(fields, dtype=np.float64)
            bad = ~np.isfinite(values) & (np.array(fields) != "nan")
        except ValueError:
            bad = np.array([not _finite(field) and field != "nan" for field in fields])
        bad |= np.array([field == "nan" and field not in gaps for field in self.columns[column]])
        if bad.any():
            raise self._error(column, int(np.argmax(bad)), "a finite number", hint)
        return values

    def codes(self, column: int, table: Mapping[str, float]) -> np.ndarray:
        """Return the numbers that ``table`` gives the texts of a column."""
        try:
            return np.array([table[field] for field in self.columns[column]], dtype=np.float64)
        except KeyError:
            row = next(i for i, field in enumerate(self.columns[column]) if field not in table)
            raise self._error(column, row, f"one of {', '.join(map(repr, table))}") from None

    def _error(self, column: int, row: int, expected: str, hint: str = "") -> ValueError:
        return ValueError(
            f"{self.path}, line {self.lines[row]}, column {self.names[column]!r}: "
            f"expected {expected}, got {self.columns[column][row]!r}{hint}"
        )


class _NumericTable:
    """A CSV file of numbers only, parsed in one go: ten times as fast as the text table."""

    def __init__(self, path: str | os.PathLike[str], names: list[str], table: np.ndarray) -> None:
        self.path = path
        self.names = names
        self.table = table

    @classmethod
    def parse(
        cls,
        path: str | os.PathLike[str],
        content: bytes,
        names: Sequence[str] | None,
        delimiter: str,
    ) -> _NumericTable | None:
        """Return the table, or ``None`` unless every line is the same count of bare numbers."""
        if b'"' in content or b" " in content or b"\t" in content:
            return None
        if names is None:
            header, _, content = content.partition(b"\n")
            names = header.decode("utf-8", "replace").rstrip("\r").split(delimiter)
        text = np.frombuffer(content, dtype=np.uint8)
        ends = np.flatnonzero(text == ord("\n"))
        if text.size and text[-1] != ord("\n"):
            ends = np.append(ends, text.size)
        commas = np.searchsorted(np.flatnonzero(text == ord(delimiter)), ends)
        fields = np.diff(commas, prepend=0) + 1
        spaced = content.replace(delimiter.encode(), b" ")
        flat = parse_numbers(spaced)
        size = fields.size * len(names)
        if size == 0 or (fields != len(names)).any() or len(spaced.split()) != size:
            return None
        if flat is None or flat.size != size or not np.isfinite(flat).all():
            return None
        return cls(path, list(names), flat.reshape(-1, len(names)))

    def position(self, column: str | int) -> int:
        return _position(self.path, self.names, column)

    def numbers(self, column: int, missing: Sequence[str] = (), hint: str = "") -> np.ndarray:
        """Return a column; nothing is missing in a table of numbers."""
        return self.table[:, column].copy()

    def codes(self, column: int, table: Mapping[str, float]) -> np.ndarray:
        raise AssertionError("a table of numbers has no categories")


def _position(path: str | os.PathLike[str], names: list[str], column: str | int) -> int:
    """Return the position of a column given by name or position."""
    if isinstance(column, int):
        if not -len(names) <= column < len(names):
            raise ValueError(f"{path}: column {column} is not one of the {len(names)} columns")
        return column % len(names)
    if column not in names:
        raise ValueError(f"{path}: column {column!r} is not one of {', '.join(map(repr, names))}")
    return names.index(column)


def _finite(field: str) -> bool:
    try:
        return math.isfinite(float(field))
    except ValueError:
        return False
