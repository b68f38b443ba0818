"""Thread limits of BLAS libraries, and the thread pool that runs the tasks of a sum.

Most BLAS libraries have one number of threads for the whole process. The first thread that needs
a limit of one sets it, and the last one restores the original number: otherwise the second of two
overlapping contexts would save the limit of the first as the original number and restore that.

The number of threads of the pool is Numba's (``numba.set_num_threads``, ``NUMBA_NUM_THREADS``). It
is not an OpenMP pool, which waits for all its threads: if one of them wakes up on the core of the
thread that woke it, or on one where a BLAS library is still spinning, the sum takes longer than on
one thread. Here no thread waits for one that has not started, and helpers do not run on the core of
the calling thread. Any number of threads may call concurrently: a caller that finds the helpers
busy runs its tasks alone.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any

import numpy as np

from ._validation import rounds_to_nearest

MOST_TASKS = 64  # largest number of tasks of a sum

# Entries of the task queue, one per cache line since threads write to them concurrently.
NEXT, DONE, FAILED = 0, 8, 16
# Entries of a helper's wake flag: the number of wake-ups, and the last such number it has seen.
WAKES, SEEN = 0, 8
LEADER = -1


@cache
def _pools() -> Any:
    """Return the thread pools of the loaded BLAS libraries."""
    from threadpoolctl import ThreadpoolController

    # A separate controller: limiting some pools of a controller later resets all of them.
    return ThreadpoolController().select(user_api="blas")


def blas_threads() -> tuple[int, ...]:
    """Return the current number of threads of each BLAS library."""
    return tuple(library.num_threads for library in _pools().lib_controllers)


def _take_control() -> None:
    """Allow this thread to set the number of threads, whichever thread set it last."""
    import threadpoolctl

    # Since version 3.8 threadpoolctl silently ignores a number set by a second thread.
    clear = getattr(threadpoolctl.OpenBLASController, "clear_controlling_thread", None)
    if clear is not None:
        clear(force=True)


_lock = threading.Lock()
_limits = ExitStack()
_inside = 0


@contextmanager
def one_blas_thread(rescan: bool = False) -> Iterator[int]:
    """Limit BLAS to one thread; yield the number of active contexts; ``rescan`` the libraries."""
    # Blocks are small, and a pool that competes with another for the cores is hundreds of times
    # slower. Moreover, results then do not depend on the number of threads.
    global _inside
    with _lock:
        if rescan:
            _pools.cache_clear()
        if rescan or not _inside:
            pools = _pools()
            if any(library.num_threads != 1 for library in pools.lib_controllers):
                _take_control()
                _limits.enter_context(pools.limit(limits=1))
        _inside += 1
        inside = _inside
    try:
        yield inside
    finally:
        with _lock:
            _inside -= 1
            if not _inside:
                _take_control()
                _limits.close()


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit BLAS, OpenMP and Numba to one thread; any number of threads may enter concurrently."""
    import numba
    import scipy.linalg  # noqa: F401  # loads SciPy's BLAS now, so that it is limited too
    from threadpoolctl import ThreadpoolController

    # Numba and OpenMP have one number per calling thread, BLAS libraries one per process.
    before = numba_threads()
    numba.set_num_threads(1)
    try:
        openmp = ThreadpoolController().select(user_api="openmp")
        with openmp.limit(limits=1), one_blas_thread(rescan=True):
            yield
    finally:
        numba.set_num_threads(before)


# The thread pool


@cache
def _launch() -> None:
    """Let Numba start its threads without changing OpenMP's number, which PyTorch uses too."""
    import numba
    from threadpoolctl import ThreadpoolController

    pools = ThreadpoolController().select(user_api="openmp").lib_controllers
    before = [pool.num_threads for pool in pools]
    numba.get_num_threads()
    for pool, count in zip(pools, before):
        pool.set_num_threads(count)


def numba_threads() -> int:
    """Return the number of threads of Numba."""
    import numba

    _launch()
    return int(numba.get_num_threads())


def run_tasks(kernel: Any, arguments: tuple[Any, ...], tasks: int) -> None:
    """Run ``kernel(*arguments, queue, wake_flags, helper)`` in this thread and its helpers."""
    queue = np.zeros(24, np.int64)
    wanted = 0 if tasks < 2 else min(tasks, MOST_TASKS, numba_threads()) - 1
    if wanted and _pool.lock.acquire(blocking=False):
        try:
            helpers = _pool.helpers(wanted)
            wake_flags = _pool.wake_flags[: len(helpers)]
            for helper in helpers:
                helper.ask(kernel, arguments, queue, wake_flags)
            kernel(*arguments, queue, wake_flags, LEADER)
        finally:
            _pool.lock.release()
    else:
        kernel(*arguments, queue, _pool.wake_flags[:0], LEADER)
    if queue[FAILED]:
        raise MemoryError("a thread had no memory for its part of a sum")


class _Helper:
    """Thread that waits for tasks of a sum."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._job: Any = None
        self._go = threading.Lock()
        self._go.acquire()
        self._cores: set[int] | None = None
        self._thread = threading.Thread(target=self._serve, daemon=True, name="dpanalysis-helper")
        self._thread.start()

    def ask(self, *job: Any) -> None:
        """Wake the thread, unless it has not yet taken its previous job."""
        if self._job is None:
            self._job = job
            self._go.release()

    def stay_on(self, cores: set[int]) -> None:
        """Restrict the thread to these cores."""
        if cores != self._cores:
            self._cores = cores
            os.sched_setaffinity(self._thread.native_id or 0, cores)

    def _serve(self) -> None:
        while True:
            self._go.acquire()
            kernel, arguments, queue, wake_flags = self._job
            flag = wake_flags[self._number]
            flag[SEEN] = flag[WAKES]
            self._job = None
            try:
                kernel(*arguments, queue, wake_flags, self._number)
            except BaseException:
                queue[FAILED] = 1
            del kernel, arguments, queue  # drop the references to the data


class _ThreadPool:
    """The helpers of this process, and the lock held by the thread that uses them."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.wake_flags = np.zeros((MOST_TASKS, 16), np.int64)
        self._helpers: list[_Helper] = []
        self._core = _core_of_this_thread()

    def helpers(self, count: int) -> list[_Helper]:
        """Return up to ``count`` helpers, none on the core of the calling thread."""
        others: set[int] | None = None
        if self._core is not None:
            others = os.sched_getaffinity(0) - {self._core()}
            if not others:
                return []
        try:
            # A thread keeps the rounding mode of the one that starts it.
            while len(self._helpers) < count and rounds_to_nearest():
                self._helpers.append(_Helper(len(self._helpers)))
        except RuntimeError:  # the system's limit on threads
            pass
        found = self._helpers[:count]
        if others is not None:
            try:
                for helper in found:
                    helper.stay_on(others)
            except OSError:  # the system does not allow it
                self._core = None
        return found


def _core_of_this_thread() -> Callable[[], int] | None:
    """Return a function that gets the current core; None if affinity cannot be set."""
    if not hasattr(os, "sched_setaffinity"):
        return None
    try:
        found: Callable[[], int] = ctypes.CDLL(None).sched_getcpu
    except (OSError, AttributeError):
        return None
    return found


_pool = _ThreadPool()


def _forget() -> None:
    """Make a new pool in a forked process, which has no helpers."""
    global _pool
    _pool = _ThreadPool()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
