"""What holds for every sweep inside a ``with`` block: a time limit, who is told of its cells."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .._validation import check_number

__all__ = ["Conditions", "SweepStopped", "current", "sweeping"]

#: Told of each finished cell: the file that it is kept in, and its result.
Watch = Callable[[Path, dict[str, np.ndarray]], None]


class SweepStopped(RuntimeError):
    """The time limit came before the end of a sweep; what is finished is kept.

    Attributes
    ----------
    finished, total : int
        Cells.

    Examples
    --------
    >>> print(SweepStopped(12, 48))
    12 of 48 cells are finished and kept, 36 are left
    """

    def __init__(self, finished: int, total: int) -> None:
        super().__init__(
            f"{finished} of {total} cells are finished and kept, {total - finished} are left"
        )
        self.finished, self.total = finished, total


@dataclass(frozen=True)
class Conditions:
    """A point in time of ``time.monotonic``, and who is told of finished cells."""

    stop_at: float = math.inf
    watch: Watch | None = None

    def may_begin(self) -> bool:
        """Tell whether a cell may still begin."""
        return time.monotonic() < self.stop_at


_ALWAYS = Conditions()
_current: ContextVar[Conditions] = ContextVar("conditions", default=_ALWAYS)


def current() -> Conditions:
    """Return what holds here."""
    return _current.get()


@contextmanager
def sweeping(*, stop_after: float | None = None, watch: Watch | None = None) -> Iterator[None]:
    """Set a time limit for the sweeps inside, or have their cells told.

    When the time is over no cell begins any more; those at work are finished and kept, and the
    sweep raises :class:`SweepStopped`: a batch queue's limit costs no work. On Dask and Ray give
    sweeps a number of ``jobs``; without one all cells are handed over, and so begun, at once.

    Parameters
    ----------
    stop_after : float, optional
        Seconds from now, at least 0; an enclosing limit that is earlier stays.
    watch : callable, optional
        Called as ``watch(path, result)`` for each cell of a finished sweep, computed or kept,
        in their order; beside the ``.npz`` file lies the ``.json`` file that says what it is.

    Raises
    ------
    TypeError, ValueError
        If ``stop_after`` is no number of at least 0.

    Examples
    --------
    >>> import tempfile
    >>> from dpanalysis.experiments import sweep
    >>> with tempfile.TemporaryDirectory() as folder, sweeping(stop_after=0):
    ...     sweep(dict, [{"a": 1}, {"a": 2}], folder=folder, progress=False)
    Traceback (most recent call last):
    ...
    dpanalysis.experiments.conditions.SweepStopped: 0 of 2 cells are finished and kept, 2 are left
    """
    around = current()
    stop_at = around.stop_at
    if stop_after is not None:
        stop_at = min(stop_at, time.monotonic() + check_number("stop_after", stop_after, low=0.0))
    token = _current.set(Conditions(stop_at, watch or around.watch))
    try:
        yield
    finally:
        _current.reset(token)
