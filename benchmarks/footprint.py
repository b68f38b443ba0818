"""Memory: the data and the peak of a clipped gradient, and steps of networks, beside peers.

Each is measured in a separate process, as the peak of the resident memory minus the resident memory
before the data were loaded, or before the step (Linux only).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

from .measure import installed, printed
from .networks import NETWORKS
from .peers import data
from .peers.footprint import WAYS
from .table import Row


def megabytes(way: str, n: int, d: int, R: int = 1) -> tuple[float, float]:
    """Return data and peak, and the data alone."""
    total, alone = json.loads(_last_line("footprint", way, n, d, R))
    return total, alone


def of_step(work: str, batch: int, module: str = "module_forms") -> float:
    """Return the peak memory of a private step of a network."""
    return float(_last_line(module, work, batch))


def _last_line(module: str, *arguments: object) -> str:
    """Return the last line that a module of the peers prints."""
    return printed("-m", f"benchmarks.peers.{module}", *arguments).splitlines()[-1]


def run(quick: bool) -> Iterator[Row]:
    """Measure ours for one iterate and for twenty, and one gradient of the peers."""
    if not sys.platform.startswith("linux"):
        return
    n = 60_000 // (data.SHRINK if quick else 1)
    case = f"{n:,} x 784 float64"
    ours, alone = megabytes("ours", n, 784)
    key = "data and peak of a clipped gradient"
    yield Row(key, case, (ours,), "MB", "the data", (alone,))
    for name, (package, _) in WAYS.items():
        if package and installed(package):
            yield Row(key, case, (ours,), "MB", name, (megabytes(name, n, 784)[0],))
    n = 600_000  # blocks of the data take some MB, independent of the size
    ours, alone = megabytes("ours", n, 20, 20)
    yield Row(key, f"20 replicates, {n:,} x 20", (ours,), "MB", "the data", (alone,))
    if installed("torch"):
        few, many = (of_step("cnn", batch) for batch in (512, 4096))
        key = "memory of a CNN's clipped sum, batch 4096"
        yield Row(key, "beside the data", (many,), "MB", "batch 512", (few,))
    for work, name in NETWORKS.items() if installed("opacus") else ():
        ours, theirs = (of_step(work, 512, each) for each in ("module_forms", "opacus_forms"))
        key = f"memory of a step of {name}, Module"
        yield Row(key, "batch 512", (ours,), "MB", "Opacus, ghost", (theirs,))
