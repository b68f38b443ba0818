"""Tests of a copy of the checkout with one fault, and whether one of them notices it.

The working tree is never changed. A run that crashes or exceeds its time limit counts as noticed.
A copy has the byte code and the compiled kernels of the checkout; a fault in compiled code gets a
new empty folder for its kernels.
"""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from queue import Queue

from .contexts import ROOT, Contexts
from .operators import Fault

_LEFT_OUT = shutil.ignore_patterns(
    ".*", "site", "dist", "*.egg-info", "numba", "output", "_build", "_generated"
)
_FIRST = 25  # fastest tests that are run first: these notice most faults
_BUDGET = 150.0  # seconds of tests for one fault, as measured without it
_ENDED = "pytest ended with {}"
_NO_TEST = _ENDED.format(4)  # of this name


# Imported once, in the process that all trials are forked from. The package itself is not.
PRELOADED = (
    "numpy", "scipy.stats", "scipy.optimize", "scipy.sparse.linalg", "scipy.integrate", "mpmath",
    "numba", "hypothesis.extra.numpy", "pytest", "matplotlib.pyplot", "array_api_compat.numpy",
    "joblib", "sklearn.linear_model", "sklearn.pipeline", "pandas", "torch",
)  # fmt: skip


def _pytest(
    place: Path, kernels: Path | None, tests: list[str], profile: str, printed: Path
) -> None:  # pragma: no cover: in a process of its own
    """Run tests in a copy; the process ends with pytest's exit code."""
    import numba
    import pytest

    os.setsid()
    with printed.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.environ.update(HYPOTHESIS_PROFILE=profile, PYTHONPATH=str(place), MPLBACKEND="Agg")
    os.environ.update(NUMBA_CACHE_DIR=str(kernels or ""), PYTHONDONTWRITEBYTECODE="1")
    numba.config.CACHE_DIR = str(kernels or "")
    sys.dont_write_bytecode = True  # no byte code of a fault stays in the copy
    os.chdir(place)
    sys.path.insert(0, str(place))
    loaded = "ignore:Module already imported:pytest.PytestAssertRewriteWarning"
    code = pytest.main(["-x", "-q", "--tb=no", "-p", "no:cacheprovider", "-W", loaded, *tests])
    sys.stdout.flush()
    os._exit(int(code))


def run_tests(
    tests: list[str], place: Path, kernels: Path | None, limit: float, profile: str = "few"
) -> str | None:
    """Return the first test that fails in a copy, how the run ended otherwise, or None."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([name for name in PRELOADED if _is_installed(name)])
    with tempfile.TemporaryDirectory() as folder:
        printed = Path(folder) / "printed"
        process = context.Process(target=_pytest, args=(place, kernels, tests, profile, printed))
        process.start()
        process.join(limit)
        if process.exitcode is None:
            os.killpg(process.pid, signal.SIGKILL)  # its workers, too
            process.join()
            return f"no end within {limit:.0f} s"
        if process.exitcode == 0:
            return None
        for line in printed.read_text().splitlines() if printed.exists() else ():
            if line.startswith(("FAILED", "ERROR ")):
                return line.partition(" ")[2].partition(" - ")[0]
        return _ENDED.format(process.exitcode)


@cache
def _is_installed(name: str) -> bool:
    return importlib.util.find_spec(name.partition(".")[0]) is not None


class Copies:
    """Copies of the checkout to try faults in, one for each process.

    Parameters
    ----------
    jobs : int
        How many faults are tried at a time.
    """

    def __init__(self, jobs: int) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._free: Queue[Path] = Queue()
        for k in range(jobs):
            place = Path(self._folder.name) / str(k)
            shutil.copytree(ROOT, place, ignore=_LEFT_OUT)
            self._free.put(place)

    def __enter__(self) -> Copies:
        return self

    def __exit__(self, *error: object) -> None:
        self._folder.cleanup()

    @contextmanager
    def holding(self, fault: Fault) -> Iterator[tuple[Path, Path | None]]:
        """Yield a copy with the fault in it, and a folder for its own compiled kernels, or None."""
        place = self._free.get()
        path = place / fault.file
        text, stamp = path.read_text("utf-8"), path.stat()
        path.write_text(fault.apply(text), "utf-8")
        os.utime(path, (stamp.st_mtime + 10.0,) * 2)  # byte code is identified by seconds and size
        compiled = "njit" in text or fault.file.startswith("dpanalysis/kernels/")
        try:
            with tempfile.TemporaryDirectory() as empty:
                yield place, Path(empty) if compiled else None
        finally:
            path.write_text(text, "utf-8")
            os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
            self._free.put(place)

    def try_fault(self, fault: Fault, contexts: Contexts) -> tuple[str, str]:
        """Return a verdict, "noticed", "alive" or "not run", and the test or the reason."""
        source = (ROOT / fault.file).read_text("utf-8").splitlines()
        lines = [" ".join(line.split()) for line in source[fault.first - 1 : fault.last]]
        tests = contexts.tests(fault.file, fault.function, lines)
        if not tests:
            return "not run", "no test runs this line"
        affordable, seconds = [], 0.0
        for test in tests:
            seconds += contexts.seconds[test]
            if affordable and seconds > _BUDGET:
                break
            affordable.append(test)
        with self.holding(fault) as (place, kernels):
            for part in (affordable[:_FIRST], affordable[_FIRST:]):
                if not part:
                    continue
                limit = 90.0 + 5.0 * sum(contexts.seconds[test] for test in part)
                noticed = run_tests(part, place, kernels, limit)
                if noticed == _NO_TEST:  # renamed since, or the fault is in its name
                    files = sorted({test.partition("::")[0] for test in part})
                    noticed = run_tests(files, place, kernels, 600.0)
                if noticed:
                    return "noticed", noticed
        return "alive", f"{len(affordable)} of {len(tests)} tests"

    def try_test(self, fault: Fault, test: str) -> bool:
        """Return whether one test notices the fault; ValueError if there is no such test."""
        with self.holding(fault) as (place, kernels):
            ended = run_tests([test], place, kernels, 120.0)
        if ended == _NO_TEST:
            raise ValueError(f"no test {test}")
        return ended is not None
