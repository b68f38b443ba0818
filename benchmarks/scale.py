"""Growth to 1e8 rows of a file, what follows for 1e9, and the same sum on workers of Dask.

The file is created for the run and removed after it, like that of :mod:`benchmarks.memory`. It is
read from the system's file cache; a file larger than the memory is read from the disk, whose speed
then determines the time.
"""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from dpanalysis import clipping

from .growth import decades, slope
from .measure import Effort, Times, by_turns, compare, here, installed, unavailable
from .memory import D, problem, write
from .peers import data
from .table import Row

FLAT = clipping.Flat(data.CLIP)
AHEAD = 1_000_000_000  # rows for which the time is extrapolated
SHARED = 10_000_000  # rows shared by Dask workers
IN_PLACE = 1 << 22  # rows up to which a map is used as an array; larger maps are read in blocks
TASKS = 500
CONFIDENCE = 0.95


def sums(way: str, folder: Path, n: int) -> Callable[[], object]:
    """Return one clipped gradient over n rows of the file."""
    return partial(problem(way, folder, n).sums, np.full(D, 0.1), clipping=FLAT, value=False)


def forecast(sizes: Any, times: Any, size: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return slope and time at another size, each as (low, best, high), at :data:`CONFIDENCE`.

    Both come from the least squares line through the logarithms; the interval of the time is the
    prediction interval of one more measurement.
    """
    fitted, x, t = slope(sizes, times), np.log(sizes), np.log(times)
    if len(x) < 3:
        raise ValueError(f"sizes must be three at least, got {sizes}")
    center, spread = x.mean(), float(((x - x.mean()) ** 2).sum())
    error = math.sqrt(float(((t - t.mean() - fitted * (x - center)) ** 2).sum()) / (len(x) - 2))
    quantile = float(stats.t.ppf(0.5 + 0.5 * CONFIDENCE, len(x) - 2))
    half = quantile * error / math.sqrt(spread)
    away = math.log(size) - center
    ahead = float(t.mean()) + fitted * away
    more = quantile * error * math.sqrt(1.0 + 1.0 / len(x) + away**2 / spread)
    best = tuple(math.exp(ahead + sign * more) for sign in (-1, 0, 1))
    return (fitted - half, fitted, fitted + half), best


def fitting(sizes: list[int], free: float) -> list[int]:
    """Return the sizes whose file fits on the disk; record the others as skipped."""
    needed = {n: 1.1 * n * (4 * D + 1) for n in sizes}
    for n in sizes:
        if needed[n] > free:
            unavailable(
                f"{n:,} rows",
                f"{n:,} rows need {needed[n] / 1e9:.1f} GB of the temporary folder, "
                f"{free / 1e9:.1f} GB are free",
            )
    return [n for n in sizes if needed[n] <= free]


def run(quick: bool) -> Iterator[Row]:
    """Measure the map by size, then Dask; quick: up to 1e7 rows."""
    sizes = [n for n in decades(1_000_000, 9) if n <= SHARED or not quick]
    sizes = fitting(sizes, shutil.disk_usage(tempfile.gettempdir()).free)
    if len(sizes) < 3:
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, sizes[-1])
        yield from by_size(folder, sizes, 2 if quick else 5)
        if sizes[-1] >= SHARED and installed("dask", "distributed"):
            yield from shared(folder, SHARED, Effort(2 if quick else 5, 0.0, 1 if quick else 2))


def by_size(folder: Path, sizes: list[int], turns: int) -> Iterator[Row]:
    """Time the sums by size, fit a line, and extrapolate it to :data:`AHEAD` rows.

    The line is fitted to the sizes read in blocks, like all larger ones, if there are three.
    """
    calls = [here(sums("memmap", folder, n)) for n in sizes]
    seconds = 1e-3 * by_turns(calls, Effort(turns, 0.0, 1))
    for n, times in zip(sizes, seconds.T):
        yield Row("clipped gradient of a file", f"{n:,} x {D} float32", tuple(times), "s")
    blocks = [n for n in sizes if n > IN_PLACE]
    used = blocks if len(blocks) >= 3 else sizes
    slopes, ahead = forecast(used, np.median(seconds, axis=0)[-len(used) :], AHEAD)
    case = f"clipped gradient of a file, n from {used[0]:,} to {used[-1]:,}, 95% interval"
    yield Row("growth in n", case, slopes, "")
    yield Row("extrapolated, 95% interval", f"{AHEAD:,} x {D} float32", ahead, "s")


def shared(folder: Path, n: int, spent: Effort) -> Iterator[Row]:
    """Time the sum on one worker and on two, each a process of one thread."""
    with ExitStack() as stack:
        one, two = (cluster(stack, workers) for workers in (1, 2))
        calls = [on(client, sums_on(client, folder, n)) for client in (one, two)]
        beside = {"1 worker": calls[0], "the map, 1 thread": here(sums("memmap", folder, n), 1)}
        case = f"2 workers, {n:,} x {D} float32"
        yield from compare("clipped gradient on a cluster of Dask", case, calls[1], beside, spent)
        (times,) = by_turns([on(one, empty)], spent).T
        yield Row("a task that does nothing", f"of {TASKS} on 1 worker", tuple(times / TASKS))


def cluster(stack: ExitStack, workers: int) -> Any:
    """Start workers, processes of one thread each, and return their client."""
    from distributed import Client, LocalCluster

    made = LocalCluster(
        n_workers=workers,
        threads_per_worker=1,
        processes=True,
        dashboard_address=None,
        env={"NUMBA_NUM_THREADS": "1"},
    )
    return stack.enter_context(Client(stack.enter_context(made), set_as_default=False))


def sums_on(client: Any, folder: Path, n: int) -> Callable[[], object]:
    """Return the sum over a Dask array whose rows this cluster has checked."""
    with client.as_current():
        return sums("dask", folder, n)


def on(client: Any, call: Callable[[], object]) -> Times:
    """Time a call whose tasks run on this cluster."""

    def timed() -> object:
        with client.as_current():
            return call()

    return here(timed)


def empty() -> object:
    """Run :data:`TASKS` empty tasks."""
    import dask

    return dask.compute(*(dask.delayed(int, pure=False)(k) for k in range(TASKS)))


def summary(rows: list[Row]) -> str:
    """Return the assumptions of the extrapolation."""
    if not any(row.key.startswith("extrapolated") for row in rows):
        return ""
    return (
        f"The time for {AHEAD:,} rows follows the line through the others, and so assumes that the "
        "system's cache holds the file, here 32 GB, or that its disk is as fast."
    )
