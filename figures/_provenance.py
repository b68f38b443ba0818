"""Provenance of stored results: commit, processor, device, threads and versions.

The origin of a result is *known* if it names a clean commit, the processor, the device, the
threads and the versions. ``results/waiting.json`` lists results stored before this was required;
``python -m figures again`` recomputes them, and the list only gets shorter.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from dpanalysis.experiments.records import atomic_write

from . import _ledger, load

__all__ = ["commit", "forget_unknown", "here", "is_clean", "unknown_cells", "waiting"]

#: Versions that every maker names; torch is added where it trains a network.
VERSIONS = ("python", "numpy", "scipy", "numba")
#: The files that results depend on: changes of other files leave a commit clean.
CODE = ("dpanalysis/*.py", "figures/*.py")


@cache
def commit(root: Path = Path(__file__).parents[1]) -> str:
    """Return the commit of this code, with ``-dirty`` if a Python file differs from it.

    From git, or without git from ``$GIT_COMMIT``. Cached, so that it is read before this process
    stores results, which are files of the repository too.
    """

    def git(*words: str) -> str:
        call = ["git", *words]
        done = subprocess.run(
            call, cwd=root, capture_output=True, text=True, check=True, timeout=60
        )
        return done.stdout.strip()

    try:
        changed = git("status", "--porcelain", "--", *CODE)
        return git("rev-parse", "HEAD") + ("-dirty" if changed else "")
    except (OSError, subprocess.SubprocessError):
        return os.environ.get("GIT_COMMIT", "unknown")


def is_clean(name: str) -> bool:
    """Return whether a commit identifies the code.

    >>> is_clean("9e4daa2" + 33 * "0"), is_clean("9e4daa2-dirty"), is_clean("unknown")
    (True, False, False)
    """
    return re.fullmatch("[0-9a-f]{40}", name) is not None


def trains_networks(name: str) -> bool:
    """Return whether a figure's cells train PyTorch networks, possibly on a device."""
    return getattr(load(name), "NEEDS", "") == "torch"


#: Raised where the package changes last bits on purpose; makers of old entries name none, that is
#: "1". "2": products and sums over sparse rows are added up in another order.
LAST_BITS = "2"


def here(name: str) -> dict[str, str]:
    """Return the provenance of a figure's cells besides code, versions and processor."""
    if not trains_networks(name):
        return {"commit": commit(), "device": "cpu", "threads": "1", "last_bits": LAST_BITS}
    from . import _cnn

    return {
        "commit": commit(),
        "device": _cnn.device(),
        "threads": "1",
        "torch": version("torch"),
        "last_bits": LAST_BITS,
    }


def is_known(name: str, maker: Mapping[str, str], stored_at: str = "unknown") -> bool:
    """Return whether a maker records everything that a result depends on.

    Makers of old entries name no commit: it is the one at which the entry was stored. Nor do they
    name device and threads, which sweeps fix (one thread of the CPU) except for PyTorch networks.
    """
    named = {"threads": "1", "device": "cpu"} if not trains_networks(name) else {}
    known = {**named, **maker}
    said = all(
        known.get(key, "unknown") != "unknown"
        for key in ("code", "processor", "device", "threads", *VERSIONS)
    )
    return said and is_clean(known.get("commit", stored_at))


def unknown_cells(name: str) -> tuple[int, int]:
    """Return the number of a figure's cells of unknown origin, and the number of all cells.

    A figure without cells counts as one cell: its tables.
    """
    about, rows = _ledger.read_about(name), _ledger.read_cells(name)
    makers = about["made_by"]
    known = [is_known(name, maker, about["commit"]) for maker in makers]
    if not rows:
        return int(not all(known)), 1
    return sum(not known[row["made_by"]] for row in rows), len(rows)


def waiting() -> dict[str, int]:
    """Return the figures with cells of unknown origin, and how many each has."""
    found = {name: unknown_cells(name)[0] for name in _ledger.stored()}
    return {name: count for name, count in found.items() if count}


def forget_unknown(name: str, cells: Path) -> int:
    """Remove kept cells of unknown origin so that they are recomputed; return how many."""
    removed = 0
    for path in sorted(cells.glob("*.json")):
        about = json.loads(path.read_text(encoding="utf-8"))
        if not is_known(name, about.get("made_by", {})):
            path.with_suffix(".npz").unlink(missing_ok=True)
            path.unlink()
            removed += 1
    return removed


# ------------------------------------------------------------------ the list


def listed() -> dict[str, int]:
    """Return the repository's list of figures to be recomputed."""
    path = _ledger.RESULTS / "waiting.json"
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}


def write_list() -> dict[str, int]:
    """Remove recomputed figures from the list and return it; nothing is ever added."""
    before, now = listed(), waiting()
    new = {name: count for name, count in now.items() if count > before.get(name, 0)}
    if new:
        raise ValueError(
            f"what made them is unknown: {new}; store results from a committed tree, "
            "by python -m figures NAME --scale paper --store"
        )
    if now != before:
        with atomic_write(_ledger.RESULTS / "waiting.json") as file:
            json.dump(now, file, indent=1)
            file.write("\n")
    return now


def oldest_first(names: Sequence[str]) -> list[str]:
    """Order figures by the day they were stored, then by cost."""
    abouts = {name: _ledger.read_about(name) for name in names}
    return sorted(names, key=lambda name: (abouts[name].get("date", ""), _cost(abouts[name])))


def _cost(about: Mapping[str, Any]) -> float:
    return float(about["core_seconds"])
