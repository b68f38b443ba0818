"""Threads that share the tasks of a sum: the one that asks, and helpers that are kept.

How many is Numba's number (``numba.set_num_threads``, ``NUMBA_NUM_THREADS``). The threads are our
own, and not a pool of OpenMP: such a pool waits for all its threads, and where one of them wakes
up on the core of the thread that woke it, or on one that a BLAS library is still spinning on, the
sum takes longer than on one thread. Here nobody waits for a thread that has not begun, and helpers
keep away from the core of the thread that asks.

Any number of threads may ask at once: who finds the helpers at work does the tasks alone.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from typing import Any

import numba
import numpy as np

from .rounding import MOST_TASKS
from .turns import FAILED, LEADER, RUNG, SEEN, new_turns

__all__ = ["share"]


def share(kernel: Any, arguments: tuple[Any, ...], tasks: int) -> None:
    """Run ``kernel(*arguments, turns, bells, helper)`` in this thread, and in helpers beside it.

    Parameters
    ----------
    kernel : compiled function
        Does tasks in turn while there are any, and then leaves; see
        :mod:`~dpanalysis.kernels.turns`. It holds no lock of the interpreter.
    arguments : tuple
        What else it takes.
    tasks : int
        Number of tasks.

    Raises
    ------
    MemoryError
        If a helper fails: kernels compute without exceptions, but they allocate.
    """
    turns = new_turns()
    wanted = 0 if tasks < 2 else min(tasks, MOST_TASKS, numba.get_num_threads()) - 1
    if wanted and _crew.lock.acquire(blocking=False):
        try:
            helpers = _crew.helpers(wanted)
            bells = _crew.bells[: len(helpers)]
            for helper in helpers:
                helper.ask(kernel, arguments, turns, bells)
            kernel(*arguments, turns, bells, LEADER)
        finally:
            _crew.lock.release()
    else:
        kernel(*arguments, turns, _crew.bells[:0], LEADER)
    if turns[FAILED]:
        raise MemoryError("a thread had no memory for its part of a sum")


class _Helper:
    """A thread that waits for a part in a sum."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._job: Any = None
        self._go = threading.Lock()
        self._go.acquire()
        self._cores: set[int] | None = None
        self._thread = threading.Thread(target=self._serve, daemon=True, name="dpanalysis-helper")
        self._thread.start()

    def ask(self, *job: Any) -> None:
        """Have it take part; one that has not come back from an earlier sum is left out."""
        if self._job is None:
            self._job = job
            self._go.release()

    def stay_on(self, cores: set[int]) -> None:
        """Let it run on these cores only."""
        if cores != self._cores:
            self._cores = cores
            os.sched_setaffinity(self._thread.native_id or 0, cores)

    def _serve(self) -> None:
        while True:
            self._go.acquire()
            kernel, arguments, turns, bells = self._job
            bell = bells[self._number]
            bell[SEEN] = bell[RUNG]
            self._job = None
            try:
                kernel(*arguments, turns, bells, self._number)
            except BaseException:
                turns[FAILED] = 1
            del kernel, arguments, turns  # no data are kept


class _Crew:
    """The helpers of this process, and the lock of the thread that they work for."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.bells = np.zeros((MOST_TASKS, 16), np.int64)
        self._helpers: list[_Helper] = []
        self._core = _core_of_this_thread()

    def helpers(self, count: int) -> list[_Helper]:
        """Return up to ``count`` helpers, none on the core that this thread is on."""
        others: set[int] | None = None
        if self._core is not None:
            others = os.sched_getaffinity(0) - {self._core()}
            if not others:
                return []
        try:
            while len(self._helpers) < count:
                self._helpers.append(_Helper(len(self._helpers)))
        except RuntimeError:  # the system gives no more threads
            pass
        found = self._helpers[:count]
        if others is not None:
            try:
                for helper in found:
                    helper.stay_on(others)
            except OSError:  # a system that lets nobody choose
                self._core = None
        return found


def _core_of_this_thread() -> Callable[[], int] | None:
    """Return a function that says on which core it is called; None where none can be chosen."""
    if not hasattr(os, "sched_setaffinity"):
        return None
    try:
        found: Callable[[], int] = ctypes.CDLL(None).sched_getcpu
    except (OSError, AttributeError):
        return None
    return found


_crew = _Crew()


def _forget() -> None:
    """Begin anew in a forked process, in which no helper lives."""
    global _crew
    _crew = _Crew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
