"""CSV files encoded by public domains, and the domains of the UCI attributes.

Category lists and ranges are constants of this code, never computed from the data. So the encoding
of a row depends on that row only, and an encoded row obeys its norm bound whatever the data are
(values outside a range are clipped). Category lists are those of ``adult.names`` and
``bank-names.txt``. Ranges are those of the survey codes where documented; otherwise a round number
near the largest published values is declared, chosen by looking at these public data. For private
data the owner must declare ranges without looking at the data: see :func:`load_csv`.
"""

from __future__ import annotations

import codecs
import csv
import io
import os
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse

from .._validation import check_number
from .files import is_finite, read_bytes

#: Domain of a CSV column: a public range ``(low, high)`` or a public list of categories.
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
    r"""Read a CSV file and encode it by **public** domains, never by the data.

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
        Texts that mean "missing"; such an attribute is encoded as zeros, which keeps the row bound.
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
    ValueError
        If a field is not a finite number, a listed category or a listed label, a line has another
        number of fields, or a column is unknown; the message names the file and the line.

    Notes
    -----
    For example, IPUMS-BR and IPUMS-US of Chen and Lee (2020) (38,000 x 53 and 40,000 x 58, the
    larger class .507 and .513) must not be redistributed: make the extracts and download them at
    https://www.ipums.org as CSV. Declare a range for every number (``"AGE": (0, 100)``, from the
    code book, not from the file) and the list of codes for every category (``"MARST": ("1", "2",
    "3", "4", "5", "6")``; codes for "not known" are ``missing``), and add the two bounds:

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
    if isinstance(missing, str) or not isinstance(missing, Iterable):  # its letters, if a text
        raise TypeError(f"missing must be a list of texts such as ['?', 'NA'], got {missing!r}")
    for name, domain in (columns or {}).items():
        _check_domain(f"columns[{name!r}]", domain)
    if names is not None:
        names = different_names("names", list(names))
    content = read_bytes(path).removeprefix(codecs.BOM_UTF8)
    rows: _NumericTable | _TextTable | None = None
    plain = columns is None or all(_is_range(domain) for domain in columns.values())
    if plain and labels is None and not missing and comment is None:
        rows = _NumericTable.parse(path, content, names, delimiter)
    if rows is None:  # a field is not a number; if it is an error, this parser names the line
        rows = _TextTable(path, content, names, delimiter, comment)
    target = rows.position(label)
    if columns is None:
        used: Mapping[str, Any] = {name: None for j, name in enumerate(rows.names) if j != target}
    else:
        used = columns
        if target in map(rows.position, used):
            raise ValueError(f"columns must not hold the label, {label!r}; its domain is labels")
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
                low, high = map(float, domain)
                half = 0.5 * high - 0.5 * low  # the difference of the ends may overflow
                with np.errstate(all="ignore"):  # a warning reveals a record
                    numbers = np.clip((0.5 * numbers - 0.5 * low) / half, 0.0, 1.0)
            values[:, k] = np.nan_to_num(numbers, copy=False)  # missing is NaN until here
            column[:, k] = width
            width += 1
        else:
            table_of = {str(text): float(code) for code, text in enumerate(domain)}
            codes = rows.codes(source, table_of | dict.fromkeys(missing, -1.0))
            values[:, k] = codes >= 0
            column[:, k] = width + np.maximum(codes, 0)
            width += len(table_of)
    if width == len(used) and not sparse:  # numbers only
        return values, y
    indptr = np.arange(n + 1, dtype=np.int32) * np.int32(len(used))
    X = scipy.sparse.csr_array((values.ravel(), column.ravel(), indptr), shape=(n, width))
    X.eliminate_zeros()
    return (X if sparse else X.toarray()), y


def _check_mapping(name: str, value: Any, example: str) -> None:
    if not (value is None or isinstance(value, Mapping)):
        raise TypeError(f"{name} must be a mapping such as {example}, got {value!r}")


def _check_domain(name: str, domain: Any) -> None:
    """Raise unless a domain is a range of two finite numbers or a list of categories."""
    # A set has another order in each process, and so would the columns.
    if isinstance(domain, (str, Mapping, Set)) or not isinstance(domain, Collection):
        raise TypeError(
            f"{name} must be (low, high) or a list of categories, got {domain!r}; dates and "
            "values for missing cells are for dpanalysis.preprocessing.PublicEncoder"
        )
    if _is_range(domain):
        low, high = (check_number(name, bound) for bound in domain)
        if not 0.5 * low < 0.5 * high:  # numbers are divided by half of the width
            raise ValueError(f"{name} must be (low, high) with low < high, got {domain!r}")
    elif not 0 < len(domain) == len(set(map(str, domain))):  # two would share a column
        raise ValueError(f"{name} must be a list of different categories, got {domain!r}")


def _is_range(domain: Any) -> bool:
    return len(domain) == 2 and not any(isinstance(bound, str) for bound in domain)


class _Table:
    """A CSV file with named columns."""

    path: str | os.PathLike[str]
    names: list[str]

    def position(self, column: str | int) -> int:
        """Return the position of a column given by name or position."""
        path, names = self.path, self.names
        if isinstance(column, int):
            if not -len(names) <= column < len(names):
                raise ValueError(f"{path}: column {column} is not one of the {len(names)} columns")
            return column % len(names)
        if column not in names:
            known = ", ".join(map(repr, names))
            hint = delimiter_hint(names, "delimiter=")
            raise ValueError(f"{path}: column {column!r} is not one of {known}{hint}")
        return names.index(column)


def _decoded(path: str | os.PathLike[str], content: bytes) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise ValueError(
            f"{path}, line {line}: not UTF-8 ({error.reason}); save the file as UTF-8"
        ) from None


def different_names(path: str | os.PathLike[str], names: list[str]) -> list[str]:
    """Return the names of a header, or raise if one occurs twice."""
    for j, name in enumerate(names):
        if name in names[:j]:
            raise ValueError(
                f"{path}: the header has {name!r} twice, in columns {names.index(name) + 1} and "
                f"{j + 1}: rename one"
            )
    return names


def delimiter_hint(names: Sequence[str], argument: str, used: str = ",") -> str:
    """Return a hint for an error message if the header suggests another delimiter, else ""."""
    found = [each for each in ";\t|,".replace(used, "") if len(names) == 1 and each in names[0]]
    return f"; is the delimiter {found[0]!r}? Pass it by {argument}" if found else ""


class _TextTable(_Table):
    """A CSV file of text columns."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        content: bytes,
        names: Sequence[str] | None,
        delimiter: str,
        comment: str | None,
    ) -> None:
        self.path = path
        lines = io.StringIO(_decoded(path, content), newline=None)
        # Strict: a quote that one record does not close would hold all records after it.
        reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=True, strict=True)
        rows: list[list[str]] = []
        self.lines: list[int] = []
        try:
            for row in reader:
                if not row or (comment is not None and row[0].startswith(comment)):
                    continue
                if names is None:
                    names = different_names(path, row)
                elif len(row) == len(names):
                    rows.append(row)
                    self.lines.append(reader.line_num)
                else:
                    hint = delimiter_hint(names, "delimiter=")
                    raise ValueError(
                        f"{path}, line {reader.line_num}: expected {len(names)} fields, got "
                        f"{len(row)}{hint}"
                    )
        except csv.Error as error:
            raise ValueError(f"{path}, line {reader.line_num}: {error}") from None
        if not rows or names is None:
            raise ValueError(f"{path}: expected rows of fields split by {delimiter!r}, got none")
        self.names = list(names)
        self.columns = list(zip(*rows, strict=True))

    def numbers(self, column: int, missing: Sequence[str] = (), hint: str = "") -> np.ndarray:
        """Return a column as floats, NaN where it is missing."""
        gaps = set(missing)
        fields = ["nan" if field in gaps else field for field in self.columns[column]]
        text = "".join(fields)
        try:
            if "_" in text or not text.isascii():  # NumPy reads 1_0 as 10
                raise ValueError
            values = np.array(fields, dtype=np.float64)
            bad = ~np.isfinite(values) & (np.array(fields) != "nan")
        except ValueError:
            bad = np.array([not is_finite(field) and field != "nan" for field in fields])
        bad |= np.array([field == "nan" and field not in gaps for field in self.columns[column]])
        if bad.any():
            raise self._error(column, int(np.argmax(bad)), "a finite number", hint)
        return values

    def codes(self, column: int, table: Mapping[str, float]) -> np.ndarray:
        """Return the codes of a column's texts."""
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


class _NumericTable(_Table):
    """A CSV file of numbers only, parsed at once: ten times as fast as the text table."""

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
        """Return the table, or ``None`` unless every line has the same number of plain numbers."""
        if b'"' in content or b" " in content or b"\t" in content:
            return None
        if names is None:
            header, _, content = content.partition(b"\n")
            header = header.rstrip(b"\r")
            names = different_names(path, _decoded(path, header).split(delimiter))
        if not content.strip():
            return None
        try:
            table = np.loadtxt(io.BytesIO(content), delimiter=delimiter, comments=None, ndmin=2)
        except ValueError:
            return None
        if table.shape[1] != len(names) or not np.isfinite(table).all():
            return None
        return cls(path, list(names), table)

    def numbers(self, column: int, missing: Sequence[str] = (), hint: str = "") -> np.ndarray:
        """Return a column, which has no missing values."""
        return self.table[:, column].copy()

    def codes(self, column: int, table: Mapping[str, float]) -> np.ndarray:
        raise AssertionError("a table of numbers has no categories")


# Domains of the UCI attributes, in the files' order


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split(", "))


#: Adult: ages are top-coded at 90 and start above 16, weekly hours are coded 1 to 99, the
#: survey codes capital gains up to 99,999; losses and the survey weight have no printed
#: maximum, and are cut at 5,000 and 1,500,000.
ADULT: dict[str, Domain] = {
    "age": (16, 90),
    "workclass": _words(
        "Private, Self-emp-not-inc, Self-emp-inc, Federal-gov, Local-gov, State-gov, "
        "Without-pay, Never-worked"
    ),
    "fnlwgt": (0, 1_500_000),
    "education": _words(
        "Bachelors, Some-college, 11th, HS-grad, Prof-school, Assoc-acdm, Assoc-voc, 9th, "
        "7th-8th, 12th, Masters, 1st-4th, 10th, Doctorate, 5th-6th, Preschool"
    ),
    "education-num": (1, 16),
    "marital-status": _words(
        "Married-civ-spouse, Divorced, Never-married, Separated, Widowed, "
        "Married-spouse-absent, Married-AF-spouse"
    ),
    "occupation": _words(
        "Tech-support, Craft-repair, Other-service, Sales, Exec-managerial, Prof-specialty, "
        "Handlers-cleaners, Machine-op-inspct, Adm-clerical, Farming-fishing, "
        "Transport-moving, Priv-house-serv, Protective-serv, Armed-Forces"
    ),
    "relationship": _words("Wife, Own-child, Husband, Not-in-family, Other-relative, Unmarried"),
    "race": _words("White, Asian-Pac-Islander, Amer-Indian-Eskimo, Other, Black"),
    "sex": ("Female", "Male"),
    "capital-gain": (0, 99_999),
    "capital-loss": (0, 5_000),
    "hours-per-week": (1, 99),
    "native-country": _words(
        "United-States, Cambodia, England, Puerto-Rico, Canada, Germany, "
        "Outlying-US(Guam-USVI-etc), India, Japan, Greece, South, China, Cuba, Iran, "
        "Honduras, Philippines, Italy, Poland, Jamaica, Vietnam, Mexico, Portugal, Ireland, "
        "France, Dominican-Republic, Laos, Ecuador, Taiwan, Haiti, Columbia, Hungary, "
        "Guatemala, Nicaragua, Scotland, Thailand, Yugoslavia, El-Salvador, "
        "Trinadad&Tobago, Peru, Hong, Holand-Netherlands"
    ),
}
ADULT_NAMES = (*ADULT, "income")

#: Bank Marketing: balances in euros, durations in seconds, days since the last contact
#: (-1: never); the documentation prints no ranges, so round ones are declared here.
BANK: dict[str, Domain] = {
    "age": (18, 100),
    "job": _words(
        "admin., unknown, unemployed, management, housemaid, entrepreneur, student, "
        "blue-collar, self-employed, retired, technician, services"
    ),
    "marital": ("married", "divorced", "single"),
    "education": ("unknown", "secondary", "primary", "tertiary"),
    "default": ("yes", "no"),
    "balance": (-10_000, 100_000),
    "housing": ("yes", "no"),
    "loan": ("yes", "no"),
    "contact": ("unknown", "telephone", "cellular"),
    "day": (1, 31),
    "month": _words("jan, feb, mar, apr, may, jun, jul, aug, sep, oct, nov, dec"),
    "duration": (0, 5_000),
    "campaign": (1, 50),
    "pdays": (-1, 1_000),
    "previous": (0, 50),
    "poutcome": ("unknown", "other", "failure", "success"),
}

#: Covertype: the known ranges of the ten numeric columns, then 4 + 40 indicators.
COVERTYPE: dict[str, Domain] = {
    "Elevation": (1859, 3858),
    "Aspect": (0, 360),
    "Slope": (0, 66),
    "Horizontal_Distance_To_Hydrology": (0, 1397),
    "Vertical_Distance_To_Hydrology": (-173, 601),
    "Horizontal_Distance_To_Roadways": (0, 7117),
    "Hillshade_9am": (0, 254),
    "Hillshade_Noon": (0, 254),
    "Hillshade_3pm": (0, 254),
    "Horizontal_Distance_To_Fire_Points": (0, 7173),
    **{f"Wilderness_Area_{k}": (0, 1) for k in range(1, 5)},
    **{f"Soil_Type_{k}": (0, 1) for k in range(1, 41)},
}
COVERTYPE_NAMES = (*COVERTYPE, "Cover_Type")

_CELL_NUCLEUS = (30, 40, 200, 3000, 0.2, 0.4, 0.5, 0.25, 0.4, 0.1)
_CELL_NUCLEUS_ERROR = (3, 5, 25, 500, 0.05, 0.15, 0.4, 0.05, 0.1, 0.03)
_CELL_NUCLEUS_WORST = (40, 50, 260, 4500, 0.25, 1.0, 1.25, 0.3, 0.7, 0.2)

#: Breast cancer (Wisconsin, diagnostic): upper ends of the declared ranges ``[0, high]`` of
#: the 30 columns (mean, standard error, worst of radius, texture, perimeter, area,
#: smoothness, compactness, concavity, concave points, symmetry, fractal dimension). The
#: source prints no ranges: these round numbers were chosen with the published data in view
#: (they clip less than 0.5% of the values), in place of ranges declared by a data owner.
BREAST_CANCER: tuple[float, ...] = (*_CELL_NUCLEUS, *_CELL_NUCLEUS_ERROR, *_CELL_NUCLEUS_WORST)
