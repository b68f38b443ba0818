"""CSV files in blocks of rows, with the line of every row."""

from __future__ import annotations

import csv
import gzip
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Block", "CsvFile"]

_ROWS = 10_000


@dataclass(frozen=True)
class Block:
    """Some rows: the cells by column, and the line of the file on which each row ends."""

    cells: dict[str, list[str]]
    lines: list[int]

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return list(self.cells)

    def __getitem__(self, name: str) -> list[str]:
        return self.cells[name]

    def only(self, names: Sequence[str]) -> Block:
        """Return some of the columns."""
        return Block({name: self.cells[name] for name in names}, self.lines)


class CsvFile:
    """A CSV file with a header, read in blocks: UTF-8, with or without a byte order mark.

    Parameters
    ----------
    path : str or path-like
        Plain or ``.gz``.
    delimiter : str

    Raises
    ------
    ValueError
        If there is no header, it has a name twice or an empty one; while the blocks are read, if
        a line has another number of fields, or is no text.
    OSError
        If the file cannot be read.
    """

    def __init__(self, path: str | os.PathLike[str], delimiter: str = ",") -> None:
        self.path, self._delimiter = path, delimiter
        with self._open() as file:
            header = next(self._rows(file), None)
        if header is None:
            raise ValueError(f"{path}: expected a header line, got an empty file")
        self.names = [name.strip() for name in header[1]]
        for j, name in enumerate(self.names):
            if not name:
                raise ValueError(f"{path}: column {j + 1} of the header has no name")
            if name in self.names[:j]:
                raise ValueError(
                    f"{path}: the header has {name!r} twice, in columns "
                    f"{self.names.index(name) + 1} and {j + 1}: rename one"
                )

    def _open(self) -> Any:
        opener: Any = gzip.open if str(self.path).endswith(".gz") else open
        return opener(self.path, "rt", encoding="utf-8-sig", newline="")

    def _rows(self, file: Any) -> Iterator[tuple[int, list[str]]]:
        """Yield line number and fields of every row that is not blank."""
        reader = csv.reader(file, delimiter=self._delimiter, skipinitialspace=True, strict=True)
        while True:
            try:
                for row in reader:
                    if row:
                        yield reader.line_num, row
                return
            except csv.Error as error:
                raise ValueError(f"{self.path}, line {reader.line_num}: {error}") from None
            except UnicodeDecodeError as error:
                raise ValueError(
                    f"{self.path}, after line {reader.line_num}: not UTF-8 ({error.reason}); save "
                    "the file as UTF-8"
                ) from None

    def require(self, names: Sequence[str]) -> None:
        """Raise ValueError unless there are columns of these names."""
        for name in names:
            if name not in self.names:
                raise ValueError(
                    f"{self.path}: there is no column {name!r}; the header has "
                    f"{', '.join(map(repr, self.names))}"
                )

    def blocks(self) -> Iterator[Block]:
        """Yield the rows in blocks of at most 10,000."""
        with self._open() as file:
            rows = self._rows(file)
            next(rows, None)
            kept: list[list[str]] = []
            lines: list[int] = []
            for line, row in rows:
                if len(row) != len(self.names):
                    raise ValueError(
                        f"{self.path}, line {line}: expected {len(self.names)} fields, as in the "
                        f"header, got {len(row)}"
                    )
                kept.append(row)
                lines.append(line)
                if len(kept) == _ROWS:
                    yield self._block(kept, lines)
                    kept, lines = [], []
            if kept:
                yield self._block(kept, lines)

    def _block(self, rows: list[list[str]], lines: list[int]) -> Block:
        columns = zip(*rows)
        return Block({name: list(cells) for name, cells in zip(self.names, columns)}, lines)
