"""Recompute some cells of the ledger and compare them with the stored results."""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dpanalysis.experiments import SweepError, sweep
from dpanalysis.experiments.sweep import provenance

from . import _ledger, load
from ._provenance import LAST_BITS

__all__ = ["TOLERANCE", "close_row", "tolerances", "verify"]

#: Relative difference allowed between machines or versions that round differently. It exceeds the
#: change of an accuracy by one test sample.
TOLERANCE = 1e-3


def tolerances(module: str) -> dict[str, float]:
    """Return the tolerances of the last entries and the means of a cell's arrays.

    A figure whose cells amplify rounding sets its tolerances in ``ELSEWHERE``.
    """
    own = getattr(importlib.import_module(module), "ELSEWHERE", {})
    return {"last": TOLERANCE, "mean": TOLERANCE} | own


def verify(
    name: str, count: int | None, at_most: float, random: np.random.Generator, jobs: int
) -> tuple[list[str], str]:
    """Recompute random cells of a figure, or all and its tables: lines on what differs, and a text.

    Cells that took more than ``at_most`` seconds are skipped. The text says what was compared; it
    is empty if everything takes longer.
    """
    about, _ = _ledger.read(name)
    rows = _ledger.read_cells(name)
    with tempfile.TemporaryDirectory() as folder:
        # Tables of cells that are stored with six digits differ by rounding.
        if (count is None and not about.get("restored")) or not rows:
            if about["core_seconds"] > at_most:
                return [], ""
            return _tables(name, about, Path(folder), jobs)
        quick = [row for row in rows if row["seconds"] <= at_most]
        if not quick:
            return [], ""
        chosen = [quick[k] for k in random.permutation(len(quick))[:count]]
        return _cells(chosen, about, Path(folder), len(rows))


def _cells(
    chosen: Sequence[dict[str, Any]], about: dict[str, Any], folder: Path, total: int
) -> tuple[list[str], str]:
    differences, exactly = [], 0
    for row in chosen:
        function = _function(row["function"])
        head = "parameter."
        cell = {k.removeprefix(head): v for k, v in row.items() if k.startswith(head)}
        try:
            (record,) = sweep(function, [cell], folder=folder, jobs=1, progress=False)
        except SweepError as error:
            trace = error.failures[0][1].strip()
            if "FileNotFoundError" in trace:  # a missing data set, and its source
                raise FileNotFoundError(trace.rsplit("\n", 1)[-1]) from error
            raise
        exact = _same_bits(about["made_by"][row["made_by"]], function.__module__)
        exactly += exact
        if _ledger.digest(record.result) == row["digest"]:
            continue
        values = _ledger.probes(record.result)
        wrong = [
            f"{key.replace('.', ' of ')} {row.get(key, np.nan):g} stored, {values[key]:g} now"
            for key in _apart(row, values, function.__module__)
        ]
        if exact or wrong:
            said = ", ".join(wrong) or "last bits"
            differences.append(f"{row['function']}({cell}): {said}")
    return differences, f"{len(chosen)} of {total} cells, {_how(exactly, len(chosen))}"


def _tables(name: str, about: dict[str, Any], folder: Path, jobs: int) -> tuple[list[str], str]:
    module = load(name)
    tables = module.compute("paper", jobs=jobs, cache=folder, progress=False)
    exact = all(_same_bits(maker, module.__name__) for maker in about["made_by"])
    _, before = _ledger.read(name)
    differences = []
    for table, known in about["tables"].items():
        now = tables.get(table, {})
        if _ledger.digest(now) == known["digest"]:
            continue
        wrong = [
            column
            for column, values in before[table].items()
            if not _ledger.is_timing(column)
            and (column not in now or not _close(values, now[column]))
        ]
        if exact or wrong:
            differences.append(f"table {table}: {', '.join(wrong) or 'last bits'}")
    return differences, f"all {len(about['tables'])} tables, {_how(int(exact), 1)}"


def _how(exactly: int, total: int) -> str:
    if exactly == total:
        return "to the last bit"
    return f"to {TOLERANCE:g} or the figure's tolerance, since versions, processor or sums differ"


def _same_bits(maker: dict[str, str], module: str) -> bool:
    """Return whether identical bits are expected: the code may differ, not its last bits."""
    now = provenance(module)
    if maker.get("device", "cpu") != "cpu" or maker.get("last_bits", "1") != LAST_BITS:
        return False
    return all(maker.get(key) == now[key] for key in now if key not in ("code", "dpanalysis"))


def close_row(before: dict[str, Any], now: dict[str, Any]) -> bool:
    """Return whether the numbers of two rows of a cell agree within the tolerance."""
    names = [key for key in now if key.startswith(("last.", "mean."))]
    return not _apart(
        before, {key: now[key] for key in names}, _function(now["function"]).__module__
    )


def _apart(before: dict[str, Any], now: dict[str, Any], module: str) -> list[str]:
    """Return the numbers that are missing in the other row or differ beyond the tolerance."""
    allowed = tolerances(module)
    return [
        key
        for key, value in now.items()
        if key not in before or not _close(before[key], value, allowed[key.partition(".")[0]])
    ]


def _close(before: Any, now: Any, tolerance: float = TOLERANCE) -> bool:
    """Return whether numbers agree within the tolerance and text is equal."""
    a, b = np.asarray(before), np.asarray(now)
    if a.shape != b.shape:
        return False
    if a.dtype.kind not in "biuf" or b.dtype.kind not in "biuf":
        return bool((a == b).all())
    a, b = a.astype(float), b.astype(float)
    with np.errstate(invalid="ignore"):
        near = np.abs(a - b) <= tolerance * np.maximum(np.abs(a), np.abs(b))
    return bool((near | (a == b) | (np.isnan(a) & np.isnan(b))).all())


def _function(name: str) -> Any:
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)
