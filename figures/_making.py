"""Make figures one after the other: reuse finished ones and estimate the remaining time."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import figures
from dpanalysis import plotting
from dpanalysis.experiments import SweepStopped, sweeping
from dpanalysis.experiments.records import Table, plain
from dpanalysis.experiments.sweep import code_digest

from . import _ledger, _provenance
from ._data import made_of
from ._page import is_kept, write_figure

__all__ = ["Clock", "Computed", "Options", "compute", "draw", "unusable", "word_on_kernels"]


@dataclass(frozen=True)
class Options:
    """Options of a run; see ``python -m figures --help``."""

    out: Path
    scale: str = "quick"
    jobs: int = -1
    fresh: bool = False
    progress: bool = True
    store: bool = False
    restore: bool = True  # reuse cells that the ledger has


@dataclass(frozen=True)
class Computed:
    """The tables of a figure and all else that its picture and page depend on."""

    name: str
    settings: Mapping[str, Any]
    tables: dict[str, Table]
    seconds: float
    key: str


def compute(name: str, options: Options) -> Computed | None:
    """Compute a figure's tables, and store them if requested; None if all of it is up to date.

    A picture depends on the scale, the settings, the code and the available data: if none of them
    changed, nothing is recomputed.
    """
    start = time.perf_counter()
    module, folder = figures.load(name), options.out / name
    settings = module.settings(options.scale)
    key = _key(options.scale, settings)
    cache = folder / "cells"
    if options.fresh:
        shutil.rmtree(cache, ignore_errors=True)
    elif is_kept(folder, name, key) and not options.store:
        return None
    cells: dict[Path, dict[str, np.ndarray]] = {}  # once each, even if sweeps share some
    here = _provenance.here(name)
    if options.store and options.restore and not options.fresh:
        _ledger.restore(name, cache)
    try:
        with sweeping(watch=cells.__setitem__, made_by=here):
            tables = module.compute(
                options.scale, jobs=options.jobs, cache=cache, progress=options.progress
            )
    except (SweepStopped, KeyboardInterrupt):
        if options.store:
            _ledger.keep_unfinished(name, cache)
        raise
    seconds = time.perf_counter() - start
    if options.store:
        beside = 0.0 if cells else seconds
        _ledger.store(name, tables, list(cells.items()), beside, _ledger.RESULTS, here)
    return Computed(name, settings, tables, seconds, key)


def draw(computed: Computed, options: Options) -> None:
    """Draw a figure, and write it with its tables and its caption."""
    name, settings, scale = computed.name, computed.settings, options.scale
    module = figures.load(name)
    title, caption = module.TITLE, module.caption(computed.tables, scale)
    with plotting.style():
        picture = module.draw(computed.tables)
        if scale == "quick" and settings != module.settings("paper"):
            said = ": ".join(filter(None, ("Quick look", made_of(settings))))
            picture.suptitle(said, x=0.01, ha="left", color="#555555")
            title = f"{title}. {said}"
            decided = "\n\nFinding of the quick look, which decides nothing about the paper:"
            caption = caption.replace("\n\nFinding:", decided)
    write_figure(
        options.out / name,
        name,
        title,
        scale,
        settings,
        computed.tables,
        picture,
        caption,
        computed.seconds,
        computed.key,
    )


def _key(scale: str, settings: Mapping[str, Any]) -> str:
    """Return a digest of everything that a figure depends on."""
    made_from = {
        "scale": scale,
        "settings": plain(dict(settings), "settings"),
        "code": code_digest("dpanalysis", "figures"),
        "data": os.environ.get("DPANALYSIS_DATA"),
    }
    return hashlib.sha256(json.dumps(made_from, sort_keys=True).encode()).hexdigest()[:32]


def unusable(folder: Path) -> str | None:
    """Create a folder and return why it is not writable, None if it is."""
    probe = folder / f".write-{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.write_bytes(b"x")
        probe.unlink()
    except OSError as error:
        return f"{error.strerror or error}"
    return None


class Clock:
    """Estimates the remaining time of a run from the seconds of each figure at quick scale."""

    def __init__(self, names: Sequence[str]) -> None:
        self.left = {name: figures.FIGURES[name] for name in names}
        self.total, self.seconds, self.done = len(names), 0.0, 0.0

    def announce(self, name: str) -> str:
        """Return the line printed before a figure."""
        place = self.total - len(self.left) + 1
        pace = self.seconds / self.done if self.done else 1.0
        left = "" if not self.done else f", {_about(pace * sum(self.left.values()))} left"
        return f"[{place} of {self.total}{left}] {name}"

    def finish(self, name: str, seconds: float) -> None:
        """Record the seconds of a figure; a figure that was kept does not affect the pace."""
        weight = self.left.pop(name)
        if seconds:
            self.seconds, self.done = self.seconds + seconds, self.done + weight


def _about(seconds: float) -> str:
    """Return an approximate duration as text.

    >>> _about(12.0), _about(100.0), _about(9000.0)
    ('less than a minute', 'about 2 minutes', 'about 2.5 hours')
    """
    if seconds < 45.0:
        return "less than a minute"
    if seconds < 5400.0:
        minutes = max(1, round(seconds / 60.0))
        return f"about {minutes} minute{'s' * (minutes > 1)}"
    return f"about {seconds / 3600.0:.2g} hours"


def word_on_kernels() -> str | None:
    """Return a notice if no kernel is compiled yet on this machine, else None."""
    from dpanalysis.kernels.dense import dense_tasks

    folder = Path(dense_tasks.stats.cache_path or "")
    if any(folder.glob("dense.*.nbi")):
        return None
    return "The kernels are compiled first, once on this machine: that takes some seconds."
