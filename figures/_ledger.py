"""The ledger of results: the figures' tables at paper scale and their provenance.

``results/NAME/`` holds the tables, ``about.json`` (settings, caption, commit, versions, digests)
and ``cells.csv``: one line per cell, with its parameters, a digest of its result to the last bit,
and a few of its numbers for machines that round differently.
"""

from __future__ import annotations

import csv
import hashlib
import importlib
import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import dpanalysis
from dpanalysis.experiments import load_table, save_table
from dpanalysis.experiments.records import Table, atomic_write, plain
from dpanalysis.experiments.sweep import Finished, kept_cell, provenance

from . import load

__all__ = [
    "RESULTS",
    "Cell",
    "call",
    "caption",
    "digest",
    "keep_unfinished",
    "probes",
    "read",
    "read_about",
    "read_cells",
    "restore",
    "settings_of",
    "store",
    "stored",
    "write_about",
]

RESULTS = Path(__file__).with_name("results")
#: Decimal digits of the numbers in the stored tables; digests use all digits.
DIGITS = 5

#: A cell as a sweep reports it: its file and its result.
Cell = tuple[Path, dict[str, np.ndarray]]


def is_timing(name: str) -> bool:
    """Return whether a column or result is a time, which is not reproducible."""
    return "seconds" in name


def is_published(name: str) -> bool:
    """Return whether a table holds the paper's own numbers, which we may not store."""
    return name.startswith("published")


def call(row: Mapping[str, Any]) -> str:
    """Return the identity of a cell: its function and parameters."""
    named = {key: row[key] for key in row if key.startswith(("function", "parameter."))}
    return json.dumps(named, sort_keys=True)


def digest(columns: Mapping[str, Any]) -> str:
    """Return a digest of named arrays, to the last bit, without times."""
    found = hashlib.sha256()
    for name in sorted(columns):
        if not is_timing(name):
            array = np.asarray(columns[name])
            head = f"{name} {array.dtype.kind} {array.shape}"
            exact = "\0".join(array.ravel()) if array.dtype.kind == "U" else None
            body = array.tobytes() if exact is None else exact.encode()
            found.update(head.encode() + b"\0" + body)
    return found.hexdigest()[:16]


def probes(result: Mapping[str, Any]) -> dict[str, float]:
    """Return a few numbers of a result: every scalar, and last entry and mean of every array."""
    found = {}
    for name, value in result.items():
        array = np.asarray(value)
        if array.dtype.kind in "biuf" and array.size and not is_timing(name):
            found[f"last.{name}"] = float(array.ravel()[-1])
            if array.size > 1:
                found[f"mean.{name}"] = float(array.mean())
    return found


# ------------------------------------------------------------------ writing


def store(
    name: str,
    tables: Mapping[str, Table],
    cells: Sequence[Cell],
    seconds: float,
    out: Path,
    here: Mapping[str, str],
) -> Path:
    """Write a figure's tables and their provenance; ``seconds`` excludes the cells' seconds.

    ``here`` is the commit, device and threads of this run. Cells may come from earlier code, which
    ``made_by`` records; ``verify`` checks from the numbers whether they can still be reproduced.
    """
    module, folder = load(name), out / name
    rows, makers, restored = _rows(cells)
    stored = {}
    for table_name, table in tables.items():
        if not is_published(table_name):
            save_table(folder / f"{table_name}.csv", _rounded(table))
            stored[table_name] = {
                "rows": len(next(iter(table.values()))),
                "digest": digest(table),
                "file": file_digest(folder / f"{table_name}.csv"),
            }
    if rows:
        write_cells(folder / "cells.csv", rows)
    for path in folder.glob("unfinished.*"):
        path.unlink()
    about = {
        "name": name,
        "title": module.TITLE,
        "scale": "paper",
        "settings": _settings(module),
        "caption": module.caption(dict(tables), "paper"),
        "version": dpanalysis.__version__,
        "commit": here["commit"],
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "made_by": makers or [{**provenance(__package__), **here}],
        "core_seconds": round(seconds + sum(row["seconds"] for row in rows), 1),
        "cells": len(rows),
        **({"restored": restored} if restored else {}),
        "tables": stored,
    }
    write_about(folder, about)  # last: the entry is complete
    return folder


def _settings(module: Any) -> dict[str, Any]:
    return dict(json.loads(json.dumps(plain(dict(module.settings("paper")), "settings"))))


def write_about(folder: Path, about: Mapping[str, Any]) -> None:
    """Write ``about.json`` of an entry."""
    with atomic_write(folder / "about.json") as file:
        json.dump(about, file, indent=1, ensure_ascii=False)
        file.write("\n")


def caption(name: str) -> str:
    """Return the caption of this code for the stored tables, with their stored settings.

    Those may differ from today's: the grid may be wider now, or the data not available.
    """
    module, (about, tables) = load(name), read(name)
    with settings_of(module, about["settings"]):
        return str(module.caption(tables, "paper"))


@contextmanager
def settings_of(module: Any, stored: Mapping[str, Any]) -> Iterator[None]:
    """Make a figure's module return the stored settings."""
    original = module.settings
    module.settings = lambda scale: dict(stored)
    try:
        yield
    finally:
        module.settings = original


def _rows(cells: Iterable[Cell]) -> tuple[list[dict[str, Any]], list[dict[str, str]], int]:
    """Return a row per cell, the makers that rows refer to by number, and how many are restored."""
    rows, makers, restored = list[dict[str, Any]](), list[dict[str, str]](), 0
    for path, result in cells:
        about = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        maker = about.get("made_by", {"code": "unknown"})
        if maker not in makers:
            makers.append(maker)
        restored += "digest" in about
        rows.append(
            {
                "function": about["function"],
                "version": about["version"],
                "made_by": makers.index(maker),
                "seconds": float(f"{about['seconds']:.3g}"),
                "digest": about.get("digest") or digest(result),
                **{f"parameter.{key}": value for key, value in about["parameters"].items()},
                **{key: float(f"{value:.6g}") for key, value in probes(result).items()},
            }
        )
    return rows, makers, restored


def write_cells(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows as CSV: entries are JSON, except plain text; "" is none."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    with atomic_write(path) as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(names)
        writer.writerows([json.dumps(row[n]) if n in row else "" for n in names] for row in rows)


def _rounded(table: Table) -> Table:
    """Return a table rounded to the stored digits."""
    return {
        name: np.array([float(f"{x:.{DIGITS}g}") for x in column.tolist()])
        if column.dtype.kind == "f"
        else column
        for name, column in table.items()
    }


# ------------------------------------------------------------------ resuming


def restore(name: str, folder: Path) -> None:
    """Write the ledger's cells into a sweep's folder if their results are numbers alone.

    A figure with more seeds then computes only the new cells. The numbers have the ledger's six
    digits, the digest stays that of all digits. ``WHOLE`` in a module names such functions.
    """
    for row, maker in _stored_cells(name):
        if not _is_whole(row["function"]):
            continue
        parameters, result = _fields(row, "parameter."), _fields(row, "last.")
        cell = kept_cell(row["function"], row["version"], parameters, folder)
        result["seconds"] = row["seconds"]
        if not cell.path.exists():
            arrays = {key: np.asarray(value) for key, value in result.items()}
            about = {**json.loads(cell.identity), "seconds": row["seconds"], "made_by": maker}
            error = cell.keep(Finished(arrays, {**about, "digest": row["digest"]}))
            if error:
                raise error


def keep_unfinished(name: str, folder: Path) -> None:
    """Store a stopped sweep's finished cells with the entry, for ``restore``; keep the tables."""
    cells = []
    for path in sorted(folder.glob("*.npz")):
        with np.load(path) as file:
            cells.append((path, {key: file[key] for key in file.files}))
    rows, makers, _ = _rows((path, _fields(result, "result.")) for path, result in cells)
    known = {call(row) for row in read_cells(name)}
    rows = [row for row in rows if call(row) not in known and _is_whole(row["function"])]
    if rows:
        write_cells(RESULTS / name / "unfinished.csv", rows)
        with atomic_write(RESULTS / name / "unfinished.json") as file:
            json.dump({"made_by": makers}, file, indent=1)
            file.write("\n")


def _stored_cells(name: str) -> Iterator[tuple[dict[str, Any], dict[str, str]]]:
    """Yield the rows of an entry and of its unfinished cells, each with its maker."""
    for cells, about in (("cells.csv", "about.json"), ("unfinished.csv", "unfinished.json")):
        path = RESULTS / name / about
        if path.is_file():
            said = json.loads(path.read_text(encoding="utf-8"))
            implied = {"commit": said.get("commit", "unknown")}  # old makers name no commit
            for row in read_cells(name, cells):
                yield row, {**implied, **said["made_by"][row["made_by"]]}


def _is_whole(function: str) -> bool:
    """Return whether the ledger has everything that a cell of this function returns."""
    module, _, name = function.rpartition(".")
    return name in getattr(importlib.import_module(module), "WHOLE", ())


def _fields(row: Mapping[str, Any], head: str) -> dict[str, Any]:
    """Return the fields whose names start with ``head``, under the rest of their names."""
    return {key.removeprefix(head): value for key, value in row.items() if key.startswith(head)}


# ------------------------------------------------------------------ reading


def stored() -> list[str]:
    """Return the figures that have results, in no particular order."""
    abouts = sorted(RESULTS.glob("*/about.json"))  # includes the results of other commands
    return [path.parent.name for path in abouts if '"scale": "paper"' in path.read_text("utf-8")]


def read(name: str) -> tuple[dict[str, Any], dict[str, Table]]:
    """Return ``about.json`` and the tables of a figure, with the published ones if available."""
    about, folder, tables = read_about(name), RESULTS / name, {}
    for table_name, known in about["tables"].items():
        path = folder / f"{table_name}.csv"
        if file_digest(path) != known["file"]:
            raise ValueError(f"{path} is not as the figure wrote it")
        tables[table_name] = load_table(path)[0]
    published = getattr(load(name), "published", dict)
    return about, {**tables, **published()}


def read_about(name: str) -> dict[str, Any]:
    """Return ``about.json`` of a figure."""
    path = RESULTS / name / "about.json"
    if not path.is_file():
        raise FileNotFoundError(
            f"{name} has no results in {RESULTS}: python -m figures {name} --scale paper --store"
        )
    return dict(json.loads(path.read_text(encoding="utf-8")))


def read_cells(name: str, file_name: str = "cells.csv") -> list[dict[str, Any]]:
    """Return the rows of ``cells.csv``, none if the figure has no cells."""
    path = RESULTS / name / file_name
    if not path.is_file():
        return []
    with open(path, encoding="utf-8", newline="") as file:
        return [
            {key: json.loads(text) for key, text in row.items() if text}
            for row in csv.DictReader(file)
        ]


def file_digest(path: Path) -> str:
    """Return a digest of a text file, independent of its line ends."""
    data = path.read_bytes().replace(b"\r\n", b"\n")
    return hashlib.sha256(data).hexdigest()[:16]
