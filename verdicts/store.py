"""Files of a table of verdicts: the claims, the evidence, and the versions and settings used.

A full run takes more than an hour. Each claim's rows are written as soon as it is checked, with the
commit and the libraries, so that a table may be the result of many runs.
"""

from __future__ import annotations

import csv
import datetime
import hashlib
import json
import platform
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy
import scipy

import dpanalysis
from dpanalysis.experiments.records import atomic_write
from dpanalysis.papers.claim import NotChecked

from .environment import NotInstallable

if TYPE_CHECKING:
    from dpanalysis.papers.claim import Outcome
    from dpanalysis.papers.report import Words

    from .registry import Package, Statement

_VERDICTS = ("id", "package", "version", "verdict", "expected", "source", "claimed", "twin")
_MORE = ("configuration", "not tested", "trouble", "seconds", "runs", "date", "made by")
_EVIDENCE = ("id", "about", "what", "value", "sense", "bound", "tolerance", "cases", "holds")
_SEEDS = "0 wherever a package takes one; OpenDP draws from the operating system's entropy"

Rows = list[dict[str, str]]


def keep(
    outcome: Outcome,
    package: Package,
    words: Words,
    folder: Path,
    environments: Path | None,
    quick: bool,
) -> None:
    """Replace a claim's rows in ``verdicts.csv`` and ``evidence.csv``, with their provenance."""
    claim = outcome.claim
    maker = _maker()
    key = hashlib.sha256(json.dumps(maker).encode()).hexdigest()[:8]
    values = (
        claim.id,
        package.name,
        package.version,
        words.name(outcome.verdict),
        words.name(claim.verdict),
        claim.source,
        claim.printed,
        claim.used,
        *(text for _, text in claim.notes),
        outcome.missing or outcome.error or "",
        f"{outcome.seconds:.1f}",
        "quick" if quick else "full",
        datetime.date.today().isoformat(),
        key,
    )
    row = dict(zip((*_VERDICTS, *_MORE), values, strict=True))
    evidence = [
        {"id": claim.id, **{name: str(getattr(item, name)) for name in _EVIDENCE[1:]}}
        for item in outcome.evidence
    ]
    folder.mkdir(parents=True, exist_ok=True)
    verdicts = _exchanged(folder / "verdicts.csv", (*_VERDICTS, *_MORE), [row])
    _exchanged(folder / "evidence.csv", _EVIDENCE, evidence, claim.id)
    path = folder / "about.json"
    about = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    made = {"": {}, **about.get("made_by", {}), key: maker}
    of_package = {f"{package.name}=={package.version}": _versions(package, environments)}
    found = {**about.get("environments", {}), **of_package}
    checked = {f"{each['package']}=={each['version']}" for each in verdicts}
    about = {
        "seeds": _SEEDS,
        "made_by": {each: made[each] for each in sorted({row["made by"] for row in verdicts})},
        "environments": {name: found[name] for name in sorted(checked & set(found), key=str.lower)},
    }
    with atomic_write(path) as file:
        file.write(json.dumps(about, indent=1, ensure_ascii=False) + "\n")


def missing(folder: Path, statements: Iterable[tuple[Statement, Package]]) -> list[str]:
    """Return the ids of claims whose row is missing, of another release, or of a quick run."""
    rows = {row["id"]: row for row in _read(folder / "verdicts.csv")}
    done = {
        id
        for id, row in rows.items()
        if row.get("runs") == "full" and row["verdict"] not in _FAILED
    }
    return [
        statement.id
        for statement, package in statements
        if statement.id not in done or rows[statement.id]["version"] != package.version
    ]


_FAILED = ("error", "not checked")


def _exchanged(path: Path, heads: Sequence[str], rows: Rows, id: str = "") -> Rows:
    """Replace the rows of a claim; return all rows, ordered by package and number."""
    id = id or rows[0]["id"]
    rows = [row for row in _read(path) if row["id"] != id] + rows
    rows = [{head: row.get(head) or "" for head in heads} for row in rows]
    rows.sort(key=lambda row: order(row["id"]))
    with atomic_write(path) as file:
        writer = csv.DictWriter(file, heads, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return rows


def order(id: str) -> tuple[str, int]:
    """Return a key that sorts claims by package and number."""
    name, _, number = id.rpartition("-")
    return name.lower(), int(number)


def _read(path: Path) -> Rows:
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _maker() -> dict[str, str]:
    """Return the provenance of a check."""
    return {
        "commit": _commit(),
        "dpanalysis": dpanalysis.__version__,
        "python": platform.python_version(),
        "numpy": numpy.__version__,
        "scipy": scipy.__version__,
        "machine": f"{platform.system()} {platform.machine()}",
    }


def _commit() -> str:
    """Return the commit of this code, with a "+" if files have changed since; "" without git.

    Stored results are excluded: they change with every stored claim.
    """

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(Path(__file__).parent), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    root = str(Path(__file__).parents[1])
    try:
        git("ls-files", "--error-unmatch", __file__)  # the repository may be a different one
        others = [root, f":(exclude){root}/figures/results"]
        changed = git("status", "--porcelain", "--untracked-files=no", "--", *others)
        return git("rev-parse", "HEAD") + "+" * bool(changed)
    except (OSError, subprocess.CalledProcessError):
        return ""


def _versions(package: Package, folder: Path | None) -> dict[str, str]:
    """Return the versions of everything in the package's environment."""
    try:
        return package.environment(folder).versions
    except (NotInstallable, NotChecked):
        return {}
