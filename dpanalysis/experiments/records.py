"""Tables on disk: a CSV file, and a JSON file with its settings and column types."""

from __future__ import annotations

import csv
import json
import os
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np

#: Errors of reading a damaged ``.npz`` file; RuntimeError if bits of a header ask for a password.
DAMAGED = (
    *(OSError, EOFError, KeyError, RuntimeError, TypeError, ValueError),
    *(zipfile.BadZipFile, zlib.error),
)

#: Columns by name: one-dimensional arrays of equal length.
Table: TypeAlias = dict[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class Record:
    """One finished cell of a sweep.

    Attributes
    ----------
    parameters : dict
        Arguments of the function.
    result : dict of str to ndarray
        Return value of the function (numbers as 0-d arrays).

    Examples
    --------
    >>> import numpy as np
    >>> float(Record({"seed": 1}, {"gap": np.array(0.5)}).result["gap"])
    0.5
    """

    parameters: dict[str, Any]
    result: dict[str, np.ndarray]


def plain(value: Any, name: str = "value") -> Any:
    """Return ``value`` with NumPy scalars converted to Python numbers, for JSON."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"{name} must have text keys, got {key!r}")
        return {key: plain(item, f"{name}[{key!r}]") for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item, f"{name}[{i}]") for i, item in enumerate(value)]
    raise TypeError(
        f"{name} must be made of numbers, text, None, lists and dicts, got {type(value).__name__}"
    )


@contextmanager
def atomic_write(path: str | os.PathLike[str], mode: str = "w") -> Iterator[IO[Any]]:
    """Open a temporary file that is renamed to ``path`` when it is complete."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, scratch = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    text: dict[str, Any] = {} if "b" in mode else {"encoding": "utf-8", "newline": ""}
    try:
        with os.fdopen(handle, mode, **text) as file:
            yield file
        os.replace(scratch, target)
    except BaseException:
        Path(scratch).unlink(missing_ok=True)  # Ctrl-C may come after it was renamed
        raise


def save_table(
    path: str | os.PathLike[str],
    table: Mapping[str, Any],
    settings: Mapping[str, Any] | None = None,
) -> None:
    r"""Write a table as CSV, and its settings and column types as JSON next to it.

    Numbers are written with enough digits to be read back unchanged.

    Parameters
    ----------
    path : str or path-like
        The CSV file; the JSON file has the same name with the suffix ``.json``.
    table : mapping of str to one-dimensional array
        Columns of equal length: numbers, booleans or text.
    settings : mapping, optional
        Settings of the computation.

    Examples
    --------
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_table(Path(folder, "t.csv"), {"t": [1, 2], "gap": [0.5, 0.25]}, {"runs": 20})
    ...     Path(folder, "t.csv").read_text()
    ...     load_table(Path(folder, "t.csv"))
    't,gap\n1,0.5\n2,0.25\n'
    ({'t': array([1, 2]), 'gap': array([0.5 , 0.25])}, {'runs': 20})
    """
    columns = {name: np.asarray(column) for name, column in table.items()}
    lengths = {name: column.shape for name, column in columns.items()}
    if len(set(lengths.values())) > 1 or any(len(shape) != 1 for shape in lengths.values()):
        raise ValueError(f"table must have 1-d columns of equal length, got shapes {lengths}")
    for name, column in columns.items():
        if column.dtype.kind not in "biufU":
            raise ValueError(f"table[{name!r}] must hold numbers or text, got {column.dtype}")
    target = Path(path)
    about = {
        "columns": {name: column.dtype.str for name, column in columns.items()},
        "settings": plain(dict(settings or {}), "settings"),
    }
    with atomic_write(target.with_suffix(".json")) as file:
        json.dump(about, file, indent=1)
    with atomic_write(target) as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*(column.tolist() for column in columns.values()), strict=True))


def load_table(path: str | os.PathLike[str]) -> tuple[Table, dict[str, Any]]:
    """Read a table written by :func:`save_table`.

    Parameters
    ----------
    path : str or path-like
        The CSV file.

    Returns
    -------
    table, settings : dict
        Columns, with their original types; ValueError if they are not those of the JSON file.
    """
    target = Path(path)
    about = json.loads(target.with_suffix(".json").read_text(encoding="utf-8"))
    types: dict[str, str] = about["columns"]
    with open(target, encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    if header != list(types) or any(len(row) != len(header) for row in rows):
        raise ValueError(f"{target}: expected rows of the columns {', '.join(types)}")
    fields = list(zip(*rows, strict=True)) if rows else [()] * len(header)
    table = {}
    for (name, kind), texts in zip(types.items(), fields, strict=True):
        dtype = np.dtype(kind)
        column = np.array(texts, dtype=str)
        table[name] = column == "True" if dtype.kind == "b" else column.astype(dtype)
    return table, about["settings"]


def tabulate(records: Sequence[Record]) -> Table:
    """Concatenate the records of a sweep, in order, into one long table.

    Parameters
    ----------
    records : sequence of Record
        Records with 1-d arrays of one length (scalars are repeated); parameters become columns too.

    Examples
    --------
    >>> from dpanalysis.experiments import Record
    >>> cell = Record({"T": 2}, {"t": np.arange(2), "gap": np.array([0.5, 0.25])})
    >>> tabulate([cell])
    {'T': array([2, 2]), 't': array([0, 1]), 'gap': array([0.5 , 0.25])}
    """
    parts: list[Table] = []
    for record in records:
        columns = {
            name: np.asarray(value) for name, value in (record.parameters | record.result).items()
        }
        if parts and columns.keys() != parts[0].keys():
            raise ValueError(
                f"records must have the same columns, got {list(columns)} and {list(parts[0])}"
            )
        if any(column.ndim > 1 for column in columns.values()):
            raise ValueError("records must hold scalars and 1-d arrays to become one table")
        lengths = {column.size for column in columns.values() if column.ndim == 1}
        if len(lengths) > 1:
            raise ValueError(f"a record must hold arrays of one length, got {sorted(lengths)}")
        rows = lengths.pop() if lengths else 1
        parts.append({name: np.broadcast_to(column, rows) for name, column in columns.items()})
    if not parts:
        return {}
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
