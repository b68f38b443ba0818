"""Memory: the data and the peak of a clipped gradient, beside the data, Opacus and JAX.

Each is measured in a process of its own, as the peak of the memory that is resident less what was
resident before the data came (Linux only).
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

from .measure import ROOT, installed
from .peers import data
from .peers.footprint import WAYS
from .table import Row


def megabytes(way: str, n: int, d: int, R: int = 1) -> tuple[float, float]:
    """Return data and peak, and the data alone."""
    output = subprocess.run(
        [
            *(sys.executable, "-W", "ignore", "-m", "benchmarks.peers.footprint"),
            *(way, str(n), str(d), str(R)),
        ],
        check=True,
        capture_output=True,
        text=True,
        cwd=ROOT,
    ).stdout
    total, alone = json.loads(output.splitlines()[-1])
    return total, alone


def run(quick: bool) -> Iterator[Row]:
    """Measure ours for one iterate and for twenty, and a gradient of the peers."""
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
    n = 600_000  # the blocks that the data go by take some MB, for more data as for less
    ours, alone = megabytes("ours", n, 20, 20)
    yield Row(key, f"20 replicates, {n:,} x 20", (ours,), "MB", "the data", (alone,))
