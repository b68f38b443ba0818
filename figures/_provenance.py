"""What made a stored result: commit, processor, device, threads and versions; and what is unknown.

A result is *known* if it names a clean commit, the processor, the device, the threads and the
versions. Results that were stored before this was asked for wait in ``results/waiting.json``:
``python -m figures again`` computes them again, and the list only gets shorter.
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

#: Versions that every maker names; those of torch beside them where a network is trained by it.
VERSIONS = ("python", "numpy", "scipy", "numba")
#: The files that results follow from: a change of any other leaves a commit clean.
CODE = ("dpanalysis/*.py", "figures/*.py")


@cache
def commit(root: Path = Path(__file__).parents[1]) -> str:
    """Return the commit of this code, ``-dirty`` after it where a Python file is not as committed.

    From git, or where there is none from ``$GIT_COMMIT``. Asked once, so before a result of this
    process is stored: those are files of the repository too.
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
    """Tell whether a commit says what the code was.

    >>> is_clean("9e4daa2" + 33 * "0"), is_clean("9e4daa2-dirty"), is_clean("unknown")
    (True, False, False)
    """
    return re.fullmatch("[0-9a-f]{40}", name) is not None


def trains_networks(name: str) -> bool:
    """Tell whether a figure's cells are networks of PyTorch, which may be on a device."""
    return getattr(load(name), "NEEDS", "") == "torch"


def here(name: str) -> dict[str, str]:
    """Return what is said of a figure's cells beside code, versions and processor."""
    if not trains_networks(name):
        return {"commit": commit(), "device": "cpu", "threads": "1"}
    from . import _cnn

    return {
        "commit": commit(),
        "device": _cnn.device(),
        "threads": "1",
        "torch": version("torch"),
    }


def is_known(name: str, maker: Mapping[str, str], stored_at: str = "unknown") -> bool:
    """Tell whether a maker says all that a result depends on.

    Makers of old entries do not name their commit: it is the one at which the entry was stored.
    Nor do they name device and threads, which sweeps leave no choice of (one thread of the CPU)
    but for networks of PyTorch.
    """
    named = {"threads": "1", "device": "cpu"} if not trains_networks(name) else {}
    known = {**named, **maker}
    said = all(
        known.get(key, "unknown") != "unknown"
        for key in ("code", "processor", "device", "threads", *VERSIONS)
    )
    return said and is_clean(known.get("commit", stored_at))


def unknown_cells(name: str) -> tuple[int, int]:
    """Return how many of a figure's cells nobody knows what made them, and how many there are.

    A figure without cells is one: its tables.
    """
    about, rows = _ledger.read_about(name), _ledger.read_cells(name)
    makers = about["made_by"]
    known = [is_known(name, maker, about["commit"]) for maker in makers]
    if not rows:
        return int(not all(known)), 1
    return sum(not known[row["made_by"]] for row in rows), len(rows)


def waiting() -> dict[str, int]:
    """Return the figures with cells whose maker is not known, and how many: what waits now."""
    found = {name: unknown_cells(name)[0] for name in _ledger.stored()}
    return {name: count for name, count in found.items() if count}


def forget_unknown(name: str, cells: Path) -> int:
    """Remove kept cells whose maker is not known, so that they are computed; return how many."""
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
    """Return the list of figures that wait, as it is in the repository."""
    path = _ledger.RESULTS / "waiting.json"
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}


def write_list() -> dict[str, int]:
    """Take off the list what waits no more, and return it; nothing is ever added.

    Raises
    ------
    ValueError
        If a figure waits that is not on the list, or with more cells.
    """
    before, now = listed(), waiting()
    new = {name: count for name, count in now.items() if count > before.get(name, 0)}
    if new:
        raise ValueError(
            f"what made them is unknown: {new}; a result is stored from a committed tree, "
            "by python -m figures NAME --scale paper --store"
        )
    if now != before:
        with atomic_write(_ledger.RESULTS / "waiting.json") as file:
            json.dump(now, file, indent=1)
            file.write("\n")
    return now


def oldest_first(names: Sequence[str]) -> list[str]:
    """Order figures: stored earliest first, and those that cost least before others of the day."""
    abouts = {name: _ledger.read_about(name) for name in names}
    return sorted(names, key=lambda name: (abouts[name].get("date", ""), _cost(abouts[name])))


def _cost(about: Mapping[str, Any]) -> float:
    return float(about["core_seconds"])
