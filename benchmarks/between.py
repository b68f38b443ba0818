"""Sums between other work: after pauses and BLAS calls, as in users' loops.

A thread that has slept may wake up on the core of the thread that woke it, and a BLAS library keeps
its threads spinning after a call. Here, unlike in all other comparisons, calls do not follow one
another immediately. The work in between is not timed; NumPy's closed form runs in the same process,
with as many BLAS threads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np

from dpanalysis import ERM, clipping, losses

from .measure import Effort, Times, compare, numba_threads, thread_counts
from .peers import data
from .peers.numpy_forms import clipped
from .table import Row
from .targets import ONE_THREAD


def _after(between: Callable[[], object], call: Callable[[], object], threads: int) -> Times:
    """Time a call that follows other work."""

    def times(settle: float, calls: int) -> list[float]:
        found = []
        with numba_threads(threads):
            time.sleep(settle)  # until the thread pools used before are asleep
            call()
            for _ in range(calls):
                between()
                start = time.perf_counter()
                call()
                found.append(1e3 * (time.perf_counter() - start))
        return found

    return times


def run(quick: bool) -> Iterator[Row]:
    """Time a clipped gradient of Adult's size after each kind of other work."""
    n, d = (48_842 // (data.SHRINK if quick else 1), 124)
    X, y, w, norms = data.dense(n, d)
    problem, square = ERM(X, y, losses.Logistic()), np.random.default_rng(0).random((400, 400))
    rule = clipping.Flat(data.CLIP)

    def pause(seconds: float) -> Callable[[], object]:
        return lambda: time.sleep(seconds)

    def product() -> object:
        return square @ square

    def both() -> None:
        product()
        time.sleep(2e-3)

    betweens: dict[str, Callable[[], object]] = {
        "nothing": lambda: None,
        "0.5 ms": pause(5e-4),
        "2 ms": pause(2e-3),
        "20 ms": pause(2e-2),
        "a matrix product": product,
        "a matrix product and 2 ms": both,
    }
    threads = thread_counts()[-1]

    def ours() -> object:
        return problem.sums(w, clipping=rule, value=False)

    def numpy() -> object:
        return clipped(X, y, w, norms, "logistic")

    spent = Effort(3, 0.1, 9) if quick else Effort(7, 0.2, 25)
    for name, between in betweens.items():
        others = {
            ONE_THREAD: _after(between, ours, 1),
            "NumPy closed form, same process": _after(between, numpy, threads),
        }
        case = f"{name}, {n:,} x {d}, {threads} threads"
        yield from compare("gradient after", case, _after(between, ours, threads), others, spent)
