"""Files of a table of verdicts: the claims, the evidence, and the versions and settings used."""

from __future__ import annotations

import csv
import json
import platform
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy
import scipy

import dpanalysis
from dpanalysis.papers.claim import NotChecked
from dpanalysis.papers.report import Table, summary

from .environment import NotInstallable

if TYPE_CHECKING:
    from .registry import Package, Statement

__all__ = ["write"]

_VERDICTS = ("id", "package", "version", "verdict", "expected", "source", "claimed", "twin")
_EVIDENCE = ("id", "about", "what", "value", "sense", "bound", "tolerance", "cases", "holds")


def write(
    table: Table,
    statements: Sequence[tuple[Statement, Package]],
    folder: Path,
    environments: Path | None,
    quick: bool,
) -> None:
    """Write ``verdicts.csv``, ``evidence.csv`` and ``about.json`` to a folder.

    Parameters
    ----------
    table : Table
    statements : sequence of (Statement, Package)
        The checked statements, with the package in the checked version.
    folder : Path
        Created if it is missing; its files of these names are replaced.
    environments : Path or None
        Folder of the environments.
    quick : bool
        Whether fewer runs were made.
    """
    packages = {statement.id: package for statement, package in statements}
    name = table.words.name
    verdicts = [
        (
            outcome.claim.id,
            packages[outcome.claim.id].name,
            packages[outcome.claim.id].version,
            name(outcome.verdict),
            name(outcome.claim.verdict),
            outcome.claim.source,
            outcome.claim.printed,
            outcome.claim.used,
            *(text for _, text in outcome.claim.notes),
            outcome.missing or outcome.error or "",
            f"{outcome.seconds:.1f}",
        )
        for outcome in table
    ]
    evidence = [
        (outcome.claim.id, *(getattr(item, key) for key in _EVIDENCE[1:]))
        for outcome in table
        for item in outcome.evidence
    ]
    folder.mkdir(parents=True, exist_ok=True)
    heads = (*_VERDICTS, "configuration", "not tested", "trouble", "seconds")
    _csv(folder / "verdicts.csv", heads, verdicts)
    _csv(folder / "evidence.csv", _EVIDENCE, evidence)
    about = {
        "summary": summary(table),
        "command": ["python", "-m", "dpanalysis", *sys.argv[1:]],
        "quick": quick,
        "seeds": "0 wherever a package takes one; OpenDP draws from the operating system's entropy",
        "commit": _commit(),
        "dpanalysis": dpanalysis.__version__,
        "python": platform.python_version(),
        "numpy": numpy.__version__,
        "scipy": scipy.__version__,
        "machine": f"{platform.system()} {platform.machine()}",
        "seconds": round(table.seconds, 1),
        "environments": _environments(packages.values(), environments),
    }
    text = json.dumps(about, indent=1, ensure_ascii=False)
    (folder / "about.json").write_text(text + "\n", encoding="utf-8")


def _csv(path: Path, heads: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(heads)
        writer.writerows(rows)


def _commit() -> str:
    """Return the commit of this code, with a "+" where files have changed since; "" without git."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(Path(__file__).parent), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    root = str(Path(__file__).parents[1])
    try:
        git("ls-files", "--error-unmatch", __file__)  # the repository may be another one
        changed = git("status", "--porcelain", "--untracked-files=no", "--", root)
        return git("rev-parse", "HEAD") + "+" * bool(changed)
    except (OSError, subprocess.CalledProcessError):
        return ""


def _environments(packages: Iterable[Package], folder: Path | None) -> dict[str, dict[str, str]]:
    """Return the versions of everything in each environment."""
    found = {}
    for package in packages:
        name = f"{package.name}=={package.version}"
        if name not in found:
            try:
                found[name] = package.environment(folder).versions
            except (NotInstallable, NotChecked):
                found[name] = {}
    return found
