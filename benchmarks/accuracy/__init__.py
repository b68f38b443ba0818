"""Private linear classifiers beside their peers: ``python -m benchmarks accuracy``.

Same rows, same public bounds on them, defaults only. diffprivlib and Opacus run in virtual
environments of their own, since they need other versions of scikit-learn and PyTorch.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

from .cells import BUNDLED, EPSILONS, METHODS, REAL, SEEDS, Runner, cells, missing_data, pythons
from .tables import FIELDS, SUMMARY, by_epsilon, losses, picture, score, summary, write

FOLDER = Path(__file__).parents[2] / "figures" / "results" / "accuracy"
KEPT = Path(__file__).parents[1] / "output" / "accuracy.jsonl"


def main(argv: list[str], machine: dict[str, str]) -> int:
    """Run what is missing of the comparison, and write its tables and its picture."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks accuracy", description=__doc__.split("\n\n")[0]
    )
    for library in ("diffprivlib", "opacus"):
        parser.add_argument(
            f"--{library}",
            metavar="PYTHON",
            default=os.environ.get(f"DPANALYSIS_{library.upper()}"),
            help=f"interpreter of an environment with {library} (or $DPANALYSIS_"
            f"{library.upper()}); left out without one",
        )
    parser.add_argument("--seeds", type=int, default=len(SEEDS), help="default: %(default)s")
    parser.add_argument("--only", metavar="METHOD", help="run only methods that start so")
    parser.add_argument("--fresh", action="store_true", help="run again what was run before")
    parser.add_argument("--kept", type=Path, default=KEPT, metavar="FILE", help="finished cells")
    parser.add_argument("--out", type=Path, default=FOLDER, metavar="DIR", help="of the tables")
    arguments = parser.parse_args(argv)
    arguments.kept.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.mkdir(parents=True, exist_ok=True)
    if arguments.fresh:
        arguments.kept.unlink(missing_ok=True)
    names = BUNDLED if missing_data(REAL) else REAL
    where = pythons({"diffprivlib": arguments.diffprivlib, "opacus": arguments.opacus})
    rows, versions = _kept(arguments.kept)
    done = {_key(row) for row in rows}
    with Runner(where) as runner, open(arguments.kept, "a", encoding="utf-8") as file:
        for cell in cells(names, range(arguments.seeds)):
            library = METHODS[cell.method][0]
            wanted = arguments.only is None or cell.method.startswith(arguments.only)
            if library not in where or not wanted or _key(vars(cell)) in done:
                continue
            row = runner.run(cell)
            rows.append(row)
            versions.update(runner.versions)
            print(json.dumps(row | {"versions": runner.versions}), file=file, flush=True)
            print(*(row.get(name, "") for name in (*FIELDS, "refused")), flush=True)
    rows = [row for row in rows if row["data"] in names]
    _write(arguments.out, rows, machine, versions, set(METHODS) - {row["method"] for row in rows})
    return 0


def _key(row: Any) -> tuple[Any, ...]:
    return tuple(row[name] for name in FIELDS[:5])


def _kept(path: Path) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Return the finished cells, and the versions that made them."""
    rows, versions = [], {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        row = json.loads(line)
        versions.update(row.pop("versions"))
        rows.append(row)
    return rows, versions


def _write(
    folder: Path,
    rows: list[Any],
    machine: dict[str, str],
    versions: dict[str, str],
    absent: set[str],
) -> None:
    refused = {
        f"{row['method']}, {row['data']}, epsilon {row['epsilon']:g}": row["refused"]
        for row in rows
        if "refused" in row
    }
    rows = [row for row in rows if "refused" not in row]
    table = summary(rows)
    write(folder / "cells.csv", FIELDS, rows)
    write(folder / "accuracy.csv", SUMMARY, table)
    about = {
        **machine,
        "rivals": versions,
        "not run": sorted(absent),
        "refused": refused,
        "a rival wins": losses(table),
        "relation": "ours and diffprivlib: one record replaced; Opacus: one added or removed",
        "delta": "0 (pure) or n**-1.1 (approximate)",
        "bounds": "the L2 radius of the public columns; ours also takes their groups",
        "rows": "published test part, or a fifth drawn once; digits: an even number or not",
        "grid": "diffprivlib's C by its mean test accuracy, which no budget pays for",
        "seconds": "median of the fits on a machine that does other work too: a rough guide",
    }
    (folder / "about.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    picture(table, folder / "accuracy.png")
    ordered = sorted(table, key=lambda row: row["data"])
    print(by_epsilon(ordered, EPSILONS, score), *losses(table), sep="\n")
