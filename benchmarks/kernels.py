"""Sums over samples, beside one read of the data, NumPy and SciPy.

A row compares two things that were timed by turns in the same run (medians): ``ratio`` is
``peer_ms / ours_ms`` where the target says "faster", else ``ours_ms / peer_ms``.
"""

from __future__ import annotations

import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from numba import njit, prange

from dpanalysis import ERM, RowBound, clipping, losses
from dpanalysis.privacy.sampling import Poisson, WithoutReplacement

CLIP = clipping.Flat(0.5)


@njit(parallel=True, fastmath=True, cache=True)
def read(flat: Any, parts: int) -> float:
    """Add up an array: as fast as it can be read by all threads."""
    total = 0.0
    size = flat.size // parts
    for part in prange(parts):
        block = flat[part * size : (part + 1) * size]
        subtotal = 0.0
        for i in range(size):
            subtotal += block[i]
        total += subtotal
    return total


def by_turns(*calls: Callable[[], object], repetitions: int) -> list[float]:
    """Milliseconds of each call: medians over repetitions that take turns.

    BLAS and OpenMP have pools of their own, and idle OpenBLAS threads spin on the cores that
    the other pool needs. A pause of 50 ms was seen to be too short; half a second is not.
    """
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(repetitions):
        for call, series in zip(calls, times):
            settled = time.perf_counter() + 0.5
            while time.perf_counter() < settled:
                call()
            for _ in range(5):
                start = time.perf_counter()
                call()
                series.append(1e3 * (time.perf_counter() - start))
    return [statistics.median(series) for series in times]


def numpy_sum(X: Any, y: np.ndarray, w: np.ndarray, norms: np.ndarray) -> np.ndarray:
    """Clipped gradient sum in closed form: two products, no n x d temporary."""
    margin = y * (X @ w)
    e = np.exp(-np.abs(margin))
    c = -y * np.where(margin < 0, 1.0, e) / (1.0 + e)
    c *= np.minimum(1.0, CLIP.clip_norm / np.maximum(np.abs(c) * norms, 1e-300))
    return X.T @ c


def problem_of(X: Any, seed: int = 0) -> tuple[ERM, np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    n, d = X.shape
    y = np.where(random.random(n) < 0.5, 1.0, -1.0)
    norms = np.asarray(np.sqrt(X.multiply(X).sum(1)).ravel() if sp.issparse(X) else 0.0)
    if not sp.issparse(X):
        norms = np.sqrt(np.einsum("ij,ij->i", X, X, dtype=np.float64))
    return ERM(X, y, losses.Logistic()), y, random.standard_normal(d) / d**0.5, norms


def row(work: str, ours: float, peer: str, other: float, target: str) -> dict[str, Any]:
    ratio = other / ours if "faster" in target else ours / other
    return {
        "work": work,
        "ours_ms": ours,
        "peer": peer,
        "peer_ms": other,
        "ratio": ratio,
        "target": target,
    }


def dense(n: int, d: int, dtype: Any, target: str, repetitions: int) -> list[dict[str, Any]]:
    X = np.random.default_rng(1).random((n, d)).astype(dtype)
    problem, y, w, norms = problem_of(X)
    ours, one_read, peer = by_turns(
        lambda: problem.sums(w, clipping=CLIP, value=False),
        lambda: read(X.reshape(-1), 64),
        lambda: numpy_sum(X, y, w.astype(dtype), norms),
        repetitions=repetitions,
    )
    work = f"dense clipped gradient, {n} x {d} {np.dtype(dtype).name}"
    return [
        row(work, ours, "one parallel read of X", one_read, target),
        row(work, ours, "NumPy closed form", peer, "1.5 x faster"),
    ]


def rules(n: int, d: int, repetitions: int) -> list[dict[str, Any]]:
    """Other clipping rules and losses, beside flat clipping of the logistic loss."""
    X = np.random.default_rng(8).random((n, d))
    logistic, y, w, _ = problem_of(X)
    radius = d**0.5
    bounded = ERM(X, y, losses.Logistic(), row_bound=RowBound(2, radius))
    value = clipping.Value(CLIP.clip_norm, *bounded.loss.weak_growth(radius))
    own = clipping.Custom(lambda norm, loss: min(1.0, 0.5 / max(norm, 1e-300)), CLIP.clip_norm)
    compared: list[tuple[str, ERM, Any, str]] = [
        ("Automatic", logistic, clipping.Automatic(0.1), "<= 1.1"),
        ("PerSampleAdaptive", logistic, clipping.PerSampleAdaptive(0.1), "<= 1.1"),
        ("Value", bounded, value, "<= 1.5"),
        ("Custom", logistic, own, "1 us a sample"),
        ("Flat, Hinge", ERM(X, y, losses.Hinge()), CLIP, "<= 1"),
        ("Flat, HuberizedHinge", ERM(X, y, losses.HuberizedHinge()), CLIP, "<= 1"),
    ]
    flat, *others = by_turns(
        lambda: logistic.sums(w, clipping=CLIP, value=False),
        *(
            lambda problem=problem, rule=rule: problem.sums(w, clipping=rule, value=False)
            for _, problem, rule, _ in compared
        ),
        repetitions=repetitions,
    )
    return [
        row(f"{name}, dense gradient, {n} x {d}", ours, "Flat, Logistic", flat, target)
        for (name, _, _, target), ours in zip(compared, others)
    ]


def sparse(n: int, d: int, entries: int, repetitions: int) -> list[dict[str, Any]]:
    random = np.random.default_rng(2)
    columns = np.sort(random.random((n, d)).argpartition(entries, axis=1)[:, :entries], axis=1)
    indptr = np.arange(0, n * entries + 1, entries)
    X = sp.csr_array((np.ones(n * entries), columns.ravel().astype(np.int32), indptr), (n, d))
    problem, y, w, norms = problem_of(X)
    full = ERM(X.toarray(), y, losses.Logistic())
    ours, peer, as_dense = by_turns(
        lambda: problem.sums(w, clipping=CLIP, value=False),
        lambda: numpy_sum(X, y, w, norms),
        lambda: full.sums(w, clipping=CLIP, value=False),
        repetitions=repetitions,
    )
    work = f"CSR clipped gradient, {entries} of {d}, n = {n}"
    return [
        row(work, ours, "SciPy closed form", peer, "2.5 x faster"),
        row(work, ours, "the same, dense", as_dense, "2 x faster (Adult-like)"),
    ]


def minibatch(n: int, d: int, rate: float, repetitions: int) -> list[dict[str, Any]]:
    X = np.random.default_rng(3).random((n, d))
    problem, y, w, norms = problem_of(X)
    random = np.random.default_rng(4)
    result = []
    for sampling in (Poisson(rate), WithoutReplacement(round(rate * n))):
        # Fresh rows every time: a batch drawn once would stay in cache.
        batches = itertools.cycle([sampling.draw(n, random) for _ in range(101)])

        def ours_next(batches: Iterator[np.ndarray] = batches) -> object:
            return problem.sums(w, next(batches), clipping=CLIP, value=False)

        def peer_next(batches: Iterator[np.ndarray] = batches) -> object:
            rows = next(batches)
            return numpy_sum(X[rows], y[rows], w, norms[rows])

        ours, peer, draw = by_turns(
            ours_next,
            peer_next,
            lambda sampling=sampling: sampling.draw(n, random),
            repetitions=repetitions,
        )
        work = f"minibatch {type(sampling).__name__}, {rate:g} of {n} x {d}"
        result.append(row(work, ours, "NumPy on X[idx]", peer, "2 x faster"))
        result.append(row(f"draw of {work}", draw, "its gradient", ours, "<= .1"))
    return result


def replicates(n: int, d: int, R: int, repetitions: int) -> list[dict[str, Any]]:
    X = np.random.default_rng(5).random((n, d))
    problem, _, _, _ = problem_of(X)
    W = np.random.default_rng(6).standard_normal((R, d)) / d**0.5
    result = []
    for what, wanted in (
        ("gradient", {"value": False}),
        ("value", {"gradient": False}),
        ("both", {}),
    ):
        ours, peer = by_turns(
            lambda wanted=wanted: problem.sums(W, **wanted),
            lambda wanted=wanted: [problem.sums(w, **wanted) for w in W],
            repetitions=repetitions,
        )
        result.append(
            row(
                f"{R} replicates, {n} x {d}, {what}", ours, f"{R} single passes", peer, "3 x faster"
            )
        )
    return result


_START = """
import time
import numpy as np
from dpanalysis import ERM, losses
problem = ERM(np.ones((100, 5)), np.ones(100), losses.Logistic())
first = time.perf_counter(); problem.sums(np.zeros(5)); first = time.perf_counter() - first
second = time.perf_counter(); problem.sums(np.zeros(5)); second = time.perf_counter() - second
print(1e3 * first, 1e3 * second)
"""


def start() -> list[dict[str, Any]]:
    """First call in a new process, with an empty cache and with the kernels cached."""
    result = []
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "NUMBA_CACHE_DIR": folder}
        for name, target in (("cold", "compiles"), ("cached", "<= .3 s over the second")):
            output = subprocess.run(
                [sys.executable, "-c", _START],
                check=True,
                capture_output=True,
                text=True,
                env=environment,
            ).stdout
            first, second = map(float, output.split())
            result.append(row(f"first call, {name}", first, "second call", second, target))
    return result


def memory(n: int, d: int) -> list[dict[str, Any]]:
    """Peak of Python and NumPy allocations while the problem is built and used, in MB."""
    X = np.random.default_rng(7).random((n, d))
    y = np.ones(n)
    ERM(X[:100], y[:100], losses.Logistic()).sums(np.zeros(d), clipping=CLIP)  # compiled
    tracemalloc.start()
    problem = ERM(X, y, losses.Logistic())
    problem.sums(np.zeros(d), clipping=CLIP)
    extra = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    work = f"data + peak of a clipped gradient, {n} x {d} (MB, not ms)"
    return [row(work, (X.nbytes + extra) / 1e6, "the data", X.nbytes / 1e6, "<= 1.05")]


def run(quick: bool = True) -> list[dict[str, Any]]:
    """Run all comparisons; ``quick`` uses smaller data and fewer repetitions."""
    k = 1 if quick else 4  # turns, of five timed calls each
    shrink = 4 if quick else 1
    return [
        *dense(60_000 // shrink, 784, np.float64, "<= 1.2 (RAM)", k),
        *dense(60_000 // shrink, 784, np.float32, "<= 1.5 (RAM)", k),
        *dense(100_000, 20, np.float64, "<= 1.7 (cache)", k),
        *rules(100_000, 20, k),
        *sparse(32_561, 124, 14, k),
        *sparse(100_000, 54, 12, k),
        *minibatch(495_141 // shrink, 54, 0.01, k),
        *replicates(100_000, 20, 20, k),
        *start(),
        *memory(60_000 // shrink, 784),
    ]


if __name__ == "__main__":
    for line in run("--quick" in sys.argv):
        print(
            f"{line['work']:60s} {line['ours_ms']:10.3f} {line['peer']:24s}"
            f" {line['peer_ms']:10.3f} {line['ratio']:7.2f}  {line['target']}"
        )
