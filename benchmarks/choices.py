"""Choices that are fixed for all machines, beside others: what they cost on this one.

Tiles and tasks decide in which order a sum is added up, and so its last bits: two machines that
tuned them would give different results, and a stored table could not be made again. Prefetching
alone changes no bit, but goes with smaller tiles, and what a busy machine measures once would stay.
So all are fixed, and this is what another choice would gain: it is faster where the ratio is below
1, by more than that of the same choice in a second process, whose memory lies elsewhere.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from .kernels import used
from .measure import Worker, compare, effort, thread_counts
from .table import Row

NEVER = 1 << 62
CONTROL = "the same choice again"
DENSE = {
    "no prefetching": {"dense._NEAR_BYTES": NEVER},
    "prefetching always": {"dense._NEAR_BYTES": 0},
    "tiles of half the size": {"dense._TILE_ENTRIES": 2048, "dense._FAR_TILE_ENTRIES": 1024},
    "tiles of twice the size": {"dense._TILE_ENTRIES": 8192, "dense._FAR_TILE_ENTRIES": 4096},
    "weights not kept in registers": {"vectors._IN_REGISTERS": 1},
}
TASKS = {
    "tasks of a quarter of the size": {"compiled._TASK_ENTRIES": 1 << 14},
    "tasks of four times the size": {"compiled._TASK_ENTRIES": 1 << 18},
}
CSR = {
    "no prefetching": {"csr._PREFETCHED": 0},
    "prefetching 4 rows ahead": {"csr._AHEAD": 4},
    "prefetching 64 rows ahead": {"csr._AHEAD": 64},
    "tiles of four times the size": {"csr._TILE_ROWS": 256},
}
#: Rows, features, entries a row of sparse rows, type, share of the rows in a batch, choices.
CASES: tuple[tuple[int, int, int, str, float, dict[str, Any]], ...] = (
    (1_000, 124, 0, "float64", 1, DENSE | TASKS),
    (100_000, 8, 0, "float64", 1, DENSE | TASKS),
    (100_000, 20, 0, "float64", 1, DENSE | TASKS),
    (48_842, 124, 0, "float64", 1, DENSE | TASKS),
    (60_000, 784, 0, "float64", 1, DENSE),
    (60_000, 784, 0, "float32", 1, DENSE),
    (495_141, 54, 0, "float64", 0.01, DENSE),
    (48_842, 124, 14, "float64", 1, CSR | TASKS),
    (48_842, 124, 14, "float64", 0.1, CSR),
)


def run(quick: bool) -> Iterator[Row]:
    """Run all comparisons; quick: a tenth of the rows, and the last number of threads only."""
    counts = thread_counts()
    with tempfile.TemporaryDirectory() as caches:
        for case in CASES:
            for threads in counts[-1:] if quick else counts:
                yield from _case(*case, threads, Path(caches), quick)


def _case(
    n: int,
    d: int,
    entries: int,
    dtype: str,
    rate: float,
    choices: dict[str, dict[str, int]],
    threads: int,
    caches: Path,
    quick: bool,
) -> Iterator[Row]:
    """Compare the choices, each in a process with kernels of its own."""
    n = n // 10 if quick else n
    asked = {"n": n, "d": d, "entries": entries, "dtype": dtype, "rate": rate}
    shape = f"CSR, {entries} of {d}, n = {n:,}" if entries else f"{n:,} x {d} {dtype}"
    case = shape if rate == 1 else f"batches of {rate:g}, {shape}"
    with contextlib.ExitStack() as stack:
        workers = {}
        for name, constants in {"fixed": {}, CONTROL: {}, **choices}.items():
            given = {**asked, "constants": constants, "cache": str(caches / name)}
            workers[name] = Worker("choice_forms", "sums", threads, given)
            stack.callback(workers[name].close)
            workers[name].wait()
        fixed = workers.pop("fixed")
        expected = fixed.result("sum")
        for worker in workers.values():
            np.testing.assert_allclose(worker.result("sum"), expected, atol=1e-9 * n)
        others = {name: partial(worker.times, "sum") for name, worker in workers.items()}
        about = f"{case}, {used(threads)}"
        yield from compare(
            "fixed choices", about, partial(fixed.times, "sum"), others, effort(quick)
        )
