"""Data larger than the memory: a file of 1e8 rows, read under a limit that it does not fit in.

A separate process has limited private memory (``RLIMIT_DATA``, which excludes the pages of the
file and of the program) and raises ``MemoryError`` beyond it. The file is created for the run and
removed after it; it takes several GB of the temporary folder. Linux only.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from .measure import installed, printed
from .table import Row

D = 8
LIMIT = 320  # MB in addition to the imports
CHUNK = 1 << 20
MEGABYTE = 1e6


def write(folder: Path, n: int) -> int:
    """Write n rows of float32 and their labels, by blocks; return the bytes of the rows."""
    random = np.random.default_rng(0)
    with open(folder / "X", "wb") as X, open(folder / "y", "wb") as y:
        for lo in range(0, n, CHUNK):
            rows = random.random((min(n - lo, CHUNK), D), dtype=np.float32)
            rows.tofile(X)
            np.where(rows[:, 0] > rows[:, 1], 1, -1).astype(np.int8).tofile(y)
    return (folder / "X").stat().st_size


def kilobytes(what: str) -> int:
    """Return an entry of ``/proc/self/status``."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(what + ":"))


class Peak(threading.Thread):
    """The largest private memory, sampled a hundred times a second."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.kilobytes = 0

    def run(self) -> None:
        while True:
            self.kilobytes = max(self.kilobytes, kilobytes("RssAnon"))
            time.sleep(0.01)


def read(file: Path, lo: int, hi: int) -> np.ndarray:
    """Read rows, or labels."""
    dtype, width = (np.float32, D) if file.name == "X" else (np.int8, 1)
    rows = np.fromfile(file, dtype, (hi - lo) * width, offset=lo * width * np.dtype(dtype).itemsize)
    return rows.reshape(-1, D) if file.name == "X" else rows


def chunked(file: Path, n: int) -> Any:
    """Return a file as a Dask array; ``from_array`` would copy it into memory."""
    import dask
    import dask.array as da

    parts = []
    for lo in range(0, n, CHUNK):
        hi = min(n, lo + CHUNK)
        shape, dtype = ((hi - lo, D), np.float32) if file.name == "X" else ((hi - lo,), np.int8)
        parts.append(da.from_delayed(dask.delayed(read)(file, lo, hi), shape, dtype))
    return da.concatenate(parts)


def problem(way: str, folder: Path, n: int) -> Any:
    """Return a problem with the first n rows of the file, as a memory map or a Dask array."""
    from dpanalysis import ERM, RowBound, losses

    X: Any = np.memmap(folder / "X", np.float32, "r", shape=(n, D))
    y: Any = np.memmap(folder / "y", np.int8, "r", shape=(n,))
    if way == "dask":
        X, y = (chunked(folder / name, n) for name in "Xy")
    return ERM(X, y, losses.Logistic(), row_bound=RowBound(2, 3.0))


def measure(way: str, folder: Path, n: int) -> dict[str, float]:
    """Build the problem and use it, in this process; seconds and MB."""
    import resource  # not on Windows

    from dpanalysis import clipping, methods, minimize
    from dpanalysis.privacy.accounting.sampling import Poisson

    mapped = np.memmap(folder / "X", np.float32, "r", shape=(n, D))
    flat = clipping.Flat(0.5)

    def batches(data: Any) -> object:
        sgd = methods.SGD(
            step_size=1.0, iterations=10, sampling=Poisson(1e-4), clipping=flat, noise=[1e-3] * 10
        )
        return minimize(data, sgd, rng=0, record=())

    def one_read() -> None:
        for lo in range(0, n, CHUNK):
            mapped[lo : lo + CHUNK].sum()

    def timed(call: Callable[[], Any]) -> float:
        start = time.perf_counter()
        call()
        return time.perf_counter() - start

    w = np.full(D, 0.1)
    small = problem(way, folder, min(n, 5 * CHUNK))  # compiles or loads the kernels
    small.sums(w, clipping=flat), batches(small)
    limit = kilobytes("VmData") * 1024 + int(LIMIT * MEGABYTE)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    peak = Peak()
    before = kilobytes("RssAnon")
    peak.start()
    found = {"limit": limit / MEGABYTE, "one read": timed(one_read)}
    start = time.perf_counter()
    data = problem(way, folder, n)
    found["construction"] = time.perf_counter() - start
    found["value and gradient"] = timed(lambda: data.sums(w))
    found["clipped gradient"] = timed(lambda: data.sums(w, clipping=flat, value=False))
    found["10 steps of DP-SGD, rate 1e-4"] = timed(lambda: batches(data))
    found["peak"] = (peak.kilobytes - before) * 1024 / MEGABYTE
    found["all"] = peak.kilobytes * 1024 / MEGABYTE
    return found


def run(quick: bool) -> Iterator[Row]:
    """Measure the map and, if Dask is installed, the same file as a Dask array."""
    if not sys.platform.startswith("linux"):
        return
    n = 20_000_000 if quick else 100_000_000
    with tempfile.TemporaryDirectory() as name:
        size = write(Path(name), n) / MEGABYTE
        for way in ("memmap", *(["dask"] if installed("dask") else [])):
            found = json.loads(printed("-m", "benchmarks.memory", way, name, n))
            case = f"{way}, {n:,} x {D} float32, limit {found.pop('limit'):.0f} MB"
            for what, peer, other in (("peak", "the file", size), ("all", "the file", size)):
                key = {"peak": "private memory beyond the start", "all": "private memory"}[what]
                yield Row(key, case, (found.pop(what),), "MB", peer, (other,))
            one_read = found.pop("one read")
            for what, seconds in found.items():
                yield Row(what, case, (seconds,), "s", "one read by NumPy", (one_read,))


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))))
