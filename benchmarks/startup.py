"""Start of a new process: imports beside peers, and the first call beside the second.

The first call is timed with an empty folder for compiled kernels, and again with the folder that
it has filled; its parts are measured in the same process, one after the other. Numba's own import
comes before and is a separate row.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Iterator

from .measure import installed, printed
from .table import Row

FIRST_CALL = """
import json, time
clock = [time.perf_counter()]
def lap():
    clock.append(time.perf_counter())
    return 1e3 * (clock[-1] - clock[-2])
import numpy as np
from dpanalysis import ERM, losses
problem = ERM(np.ones((100, 5)), np.ones(100), losses.Logistic())
parts = {"import and problem": lap()}
import numba
parts["import numba"] = lap()
from dpanalysis.kernels import dense
parts["import the kernels' files"] = lap()
problem.sums(np.zeros(5))
parts["load the kernel"] = lap()
problem.sums(np.zeros(5))
parts["second"] = lap()
print(json.dumps(parts))
"""


def child(statement: str, **environment: str) -> tuple[float, str]:
    """Return the milliseconds and the output of a new process."""
    start = time.perf_counter()
    output = printed("-c", statement, **environment)
    return 1e3 * (time.perf_counter() - start), output


def imports(repetitions: int) -> Iterator[Row]:
    """Time imports by turns, minus the time of an empty process."""
    names = ["dpanalysis", "dpanalysis.privacy", "dpanalysis.theory"]
    names += ["dp_accounting"] if installed("dp-accounting") else []
    names += ["opacus"] if installed("opacus") else []
    times: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(repetitions):
        nothing, _ = child("pass")
        for name, series in times.items():
            series.append(child(f"import {name}")[0] - nothing)
    ours = [name for name in names if name.startswith("dpanalysis")]
    yield Row("import dpanalysis", "", tuple(times["dpanalysis"]))
    for name in ours:
        for peer in names[len(ours) :]:
            mine, other = tuple(times[name]), tuple(times[peer])
            yield Row(f"import {name}", "", mine, peer=f"import {peer}", other=other)


def first_calls(repetitions: int) -> Iterator[Row]:
    """Time the first call with and without compiled kernels on disk."""
    with tempfile.TemporaryDirectory() as folder:
        runs = [
            json.loads(child(FIRST_CALL, NUMBA_CACHE_DIR=folder)[1]) for _ in range(1 + repetitions)
        ]
    late = ("import the kernels' files", "load the kernel")

    def over(parts: dict[str, float]) -> float:
        return sum(parts[name] for name in late) - parts["second"]

    cold, warm = runs[0], runs[1:]
    yield Row("first call over the second, kernels compiled", "", (over(cold),))
    yield Row("first call over the second, kernels cached", "", tuple(map(over, warm)))
    for name in late:
        share = statistics.median(parts[name] / over(parts) for parts in warm)
        yield Row(f"of that, {name}", f"{share:.0%}", tuple(parts[name] for parts in warm))
    yield Row("import numba, before that", "", tuple(parts["import numba"] for parts in warm))


def run(quick: bool) -> Iterator[Row]:
    """Run both."""
    yield from imports(1 if quick else 10)
    yield from first_calls(2 if quick else 10)
