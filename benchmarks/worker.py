"""A peer in a separate process: ``python -m benchmarks.worker MODULE WORK THREADS ARGUMENTS``.

Thread pools disturb each other: idle OpenBLAS and OpenMP threads spin on the cores that another
pool needs, and XLA's pool cannot be resized. So every peer has a process that does not import
dpanalysis and is pinned to as many cores as it may use threads before any library sizes its pool.
It waits on its standard input while others are timed.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

POOLS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
LONGEST = 1.0  # seconds of a turn after which no further call is made


def timed(call: Callable[[], object], settle: float, calls: int) -> list[float]:
    """Return the milliseconds of up to ``calls`` calls, after ``settle`` seconds of the same call.

    Other thread pools need that time to go to sleep: half a second is enough, 50 ms was observed
    to be too short within one process.
    """
    settled = time.perf_counter() + settle
    while time.perf_counter() < settled:
        call()
    times: list[float] = []
    while len(times) < calls and sum(times) < 1e3 * LONGEST:
        start = time.perf_counter()
        call()
        times.append(1e3 * (time.perf_counter() - start))
    return times


def use_cores(threads: int) -> None:
    """Pin this process to ``threads`` cores, which libraries loaded later respect."""
    for pool in POOLS:
        os.environ[pool] = str(threads)
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, cores[:threads])


def serve(module: str, work: str, threads: int, arguments: dict[str, Any]) -> None:
    """Answer requests, one line of JSON each, until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # keep the output of libraries out of the answers
    use_cores(threads)
    prepared = getattr(importlib.import_module(f"benchmarks.peers.{module}"), work)(**arguments)
    print(json.dumps(list(prepared)), file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        call = prepared[request["name"]]
        if request["calls"]:
            answer = timed(call, request["settle"], request["calls"])
        else:
            import numpy as np

            answer = np.asarray(call(), float).ravel().tolist()
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2], int(sys.argv[3]), json.loads(sys.argv[4]))
