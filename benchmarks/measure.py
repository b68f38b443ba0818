"""Interleaved timing: ours in this process, each peer in its own (see :mod:`benchmarks.worker`)."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from . import ENVIRONMENT
from .table import Row
from .targets import TARGETS
from .worker import timed

# The packages required by a module of ``peers``, by their names on PyPI.
NEEDS = {
    "numpy_forms": (),
    "sklearn_forms": ("scikit-learn",),
    "jax_forms": ("jax",),
    "torch_forms": ("torch",),
    "opacus_forms": ("opacus",),
    "module_forms": ("torch",),
    "diffprivlib_forms": ("diffprivlib",),
}
# A peer that conflicts with the others may have its own interpreter.
PYTHON = {"diffprivlib_forms": "DIFFPRIVLIB_PYTHON"}
IMPORTED_AS = {
    "scikit-learn": "sklearn",
    "dp-accounting": "dp_accounting",
    "jax-privacy": "jax_privacy",
    "pepit": "PEPit",
}
ROOT = Path(__file__).parents[1]

skipped: dict[str, str] = {}
"""Peers that were not measured in this run, and why."""

Times = Callable[[float, int], list[float]]
"""Return the milliseconds of a turn, given seconds to settle and the number of calls."""


def installed(*packages: str) -> bool:
    """Return whether all packages are installed; record missing ones as skipped."""
    missing = [p for p in packages if importlib.util.find_spec(IMPORTED_AS.get(p, p)) is None]
    for package in missing:
        extra = "dask" if package in ("dask", "distributed") else "peers"
        _skip(package, f'{package} is not installed (pip install "dpanalysis-toolkit[{extra}]")')
    return not missing


def unavailable(package: str, why: str) -> None:
    """Record a peer as skipped."""
    _skip(package, why)


def _skip(package: str, why: str) -> None:
    if package not in skipped:
        skipped[package] = why
        print(f"skipped: {why}", file=sys.stderr)


@dataclass(frozen=True)
class Effort:
    """Turns, seconds to settle before each, and calls in each."""

    turns: int
    settle: float
    calls: int


def effort(quick: bool) -> Effort:
    """Return the effort for a comparison in a quick or a full run."""
    return Effort(2, 0.08, 3) if quick else Effort(5, 0.3, 4)


def printed(*arguments: object, **environment: str) -> str:
    """Return what a new process of this interpreter prints."""
    command = [sys.executable, "-W", "ignore", *map(str, arguments)]
    variables = {**os.environ, **environment}
    return subprocess.run(
        command, check=True, capture_output=True, text=True, cwd=ROOT, env=variables
    ).stdout


def quietly(call: Callable[[], object]) -> object:
    """Call a peer and suppress its warnings and output."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        return call()


@contextlib.contextmanager
def numba_threads(count: int | None) -> Iterator[None]:
    """Run with that many of Numba's threads; None changes nothing."""
    if count is None:
        yield
        return
    import numba

    before = numba.get_num_threads()
    numba.set_num_threads(count)
    try:
        yield
    finally:
        numba.set_num_threads(before)


def here(call: Callable[[], object], threads: int | None = None) -> Times:
    """Time a call in this process, with that many of Numba's threads."""

    def times(settle: float, calls: int) -> list[float]:
        with numba_threads(threads):
            return timed(call, settle, calls)

    return times


def _python(module: str) -> str:
    """Return the interpreter of a module of ``peers``."""
    return os.environ.get(PYTHON.get(module, ""), sys.executable)


class Worker:
    """A module of ``peers`` in a separate process; ``names`` are its calls."""

    def __init__(self, module: str, work: str, threads: int, arguments: dict[str, Any]) -> None:
        self.module = module
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115, closed by close()
        self._process = subprocess.Popen(
            [
                *(_python(module), "-W", "ignore", "-m", "benchmarks.worker"),
                *(module, work, str(threads), json.dumps(arguments)),
            ],
            cwd=ROOT,
            env=ENVIRONMENT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def wait(self) -> list[str]:
        """Wait until it is ready and return its calls; RuntimeError has its last output."""
        return self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            self._errors.seek(0)
            words = self._errors.read().strip().splitlines() or ["no message"]
            raise RuntimeError(f"{self.module} stopped: {words[-1]}")
        return json.loads(line)

    def _ask(self, **request: Any) -> list[float]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def result(self, name: str) -> np.ndarray:
        """Return the result of a call as a flat array."""
        return np.array(self._ask(name=name, settle=0.0, calls=0))

    def times(self, name: str, settle: float, calls: int) -> list[float]:
        """Return the milliseconds of one turn."""
        return self._ask(name=name, settle=settle, calls=calls)

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._errors.close()


@contextlib.contextmanager
def peers(
    modules: Sequence[str],
    work: str,
    threads: int,
    arguments: dict[str, Any],
    expected: Callable[[str], np.ndarray | None],
    tolerance: float = 3e-5,
    found: dict[str, np.ndarray] | None = None,
) -> Iterator[dict[str, Times]]:
    """Start all installed peers, in parallel, and yield timers of their calls.

    ``expected(name)`` is the expected result of a call, to ``tolerance`` times its largest entry;
    None if it cannot be compared. ``found``, if given, receives the results of all calls. A peer
    that does not start is recorded as skipped.
    """
    with contextlib.ExitStack() as stack:
        workers = []
        for module in modules:
            if _python(module) != sys.executable or installed(*NEEDS[module]):
                workers.append(Worker(module, work, threads, arguments))
                stack.callback(workers[-1].close)
        calls: dict[str, Times] = {}
        for worker in workers:
            try:
                names = worker.wait()
            except RuntimeError as error:
                _skip(worker.module, str(error))
                continue
            for name in names:
                wanted = expected(name)
                if wanted is not None:
                    scale = float(np.abs(wanted).max())
                    np.testing.assert_allclose(
                        worker.result(name), wanted.ravel(), rtol=0, atol=tolerance * scale
                    )
                if found is not None:
                    found[name] = worker.result(name)
                calls[name] = partial(worker.times, name)
        yield calls


def by_turns(series: Sequence[Times], spent: Effort) -> np.ndarray:
    """Return the median milliseconds of every turn, shape ``(turns, series)``.

    One call of each comes first: it compiles, imports and fills caches.
    """
    for times in series:
        times(0.0, 1)
    return np.array(
        [
            [float(np.median(times(spent.settle, spent.calls))) for times in series]
            for _ in range(spent.turns)
        ]
    )


def compare(
    key: str, case: str, ours: Times, beside: Mapping[str, Times], spent: Effort
) -> list[Row]:
    """Return a row per peer, timed by turns, after one of ours alone if that has a target."""
    times = by_turns((ours, *beside.values()), spent)
    mine = tuple(times[:, 0])
    rows = [] if f"{key}/" not in TARGETS and beside else [Row(key, case, mine)]
    for name, other in zip(beside, times.T[1:], strict=True):
        rows.append(Row(key, case, mine, peer=name, other=tuple(other)))
    return rows


def forget_epsilons() -> None:
    """Clear the caches of accounting, so that the work is measured and not the cache."""
    from dpanalysis.privacy.accounting import accountant

    accountant._cached_epsilon.cache_clear()


def thread_counts() -> list[int]:
    """Return one and two threads, as far as the machine has them."""
    import numba

    return sorted({1, min(2, numba.config.NUMBA_NUM_THREADS)})
