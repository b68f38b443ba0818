"""What is recorded of a run, computed from the data without noise."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

__all__ = ["RECORDERS", "Log", "Recorder", "Recording", "choose_recorders"]

Recorder = Callable[[Any, np.ndarray], np.ndarray]

RECORDERS: Mapping[str, Recorder] = {
    "objective": lambda problem, w: problem.value(w),
    "gradient_norm": lambda problem, w: np.linalg.norm(problem.gradient(w), axis=-1),
    "accuracy": lambda problem, w: problem.accuracy(w),
    "iterate": lambda problem, w: w.copy(),
}


def choose_recorders(record: Iterable[str | Recorder], problem: Any) -> dict[str, Recorder]:
    """Return the recorders named or given, by their names, after checking them."""
    chosen: dict[str, Recorder] = {}
    for item in _each(record):
        if callable(item):
            name = getattr(item, "__name__", repr(item))
            if name in chosen:
                raise ValueError(f"record must have one function of a name, got two named {name!r}")
            chosen[name] = item
        elif item == "accuracy" and not hasattr(problem, item):
            raise ValueError(f"record 'accuracy' needs a classification problem, got {problem!r}")
        elif item == "gap" and not hasattr(problem, "solve"):
            raise ValueError(
                f"record 'gap' needs a problem that can be solved, got {problem!r}: record "
                "'objective' instead"
            )
        elif item in RECORDERS:
            chosen[item] = RECORDERS[item]
        elif item == "gap":
            chosen[item] = _gap(problem)
        else:
            known = ", ".join(map(repr, ("gap", *RECORDERS)))
            raise ValueError(f"record must name {known} or be callable, got {item!r}")
    return chosen


def _each(record: Any) -> Iterable[Any]:
    if isinstance(record, str) or callable(record):
        return (record,)
    if not isinstance(record, Iterable):
        raise TypeError(f"record must list names and functions, () for none, got {record!r}")
    return record


def _gap(problem: Any) -> Recorder:
    @cache  # at the first record, when everything that could fail without data has been checked
    def optimum() -> float:
        return problem.value(problem.solve())

    return lambda problem, w: problem.value(w) - optimum()


@dataclass(frozen=True)
class Recording:
    """What the caller of a run wants to see of it."""

    problem: Any
    recorders: Mapping[str, Recorder]
    every: int
    progress: bool
    callback: Callable[[int, np.ndarray], Any] | None

    def log(self) -> Log:
        """Return an empty record."""
        return Log(self.problem, self.recorders, self.every)

    def stops(self, iteration: int, w: np.ndarray) -> bool:
        """Return whether the callback stops the run."""
        return self.callback is not None and bool(self.callback(iteration, _read_only(w)))

    def bar(self, total: int, title: str, unit: str) -> Any:
        """Return a progress bar, as a context; invisible unless it is wanted."""
        if not self.progress:
            return _NoBar()
        from tqdm.auto import tqdm

        return tqdm(total=total, desc=title, unit=unit)


def _read_only(w: np.ndarray) -> np.ndarray:
    """View iterates so that they can be looked at and not written: they are what is released."""
    view = w.view()
    view.flags.writeable = False
    return view


class _NoBar(nullcontext[Any]):
    def __enter__(self) -> _NoBar:
        return self

    def update(self) -> None:
        """Show nothing."""


class Log:
    """The record of a run: rows of (iteration, values of the R replicates)."""

    def __init__(self, problem: Any, recorders: Mapping[str, Recorder], every: int) -> None:
        self._problem, self._recorders, self._every = problem, recorders, every
        self._iterations: list[int] = []
        self._values: dict[str, list[np.ndarray]] = {name: [] for name in recorders}
        self._released: Mapping[str, float] = {}

    def add(
        self,
        iteration: int,
        w: np.ndarray,
        released: Mapping[str, float] | None = None,
        force: bool = False,
    ) -> None:
        """Record the iterates ``w`` (R, d) if it is their turn, and what came with them."""
        self._released = self._released if released is None else released
        if self._iterations and self._iterations[-1] == iteration:
            return
        if not force and iteration % self._every:
            return
        absent = np.full(len(w), np.nan)
        for name in dict.fromkeys((*self._released, *self._values)):
            if name not in self._recorders:
                rows = self._values.setdefault(name, [absent] * len(self._iterations))
                rows.append(np.full(len(w), self._released.get(name, np.nan)))
        with np.errstate(over="ignore", invalid="ignore"):
            for name, recorder in self._recorders.items():
                value = np.asarray(recorder(self._problem, _read_only(w)))
                if value.shape[:1] != (len(w),):
                    raise ValueError(
                        f"record {name!r} must return one value a replicate, shape "
                        f"({len(w)},) or ({len(w)}, ...), got shape {value.shape}"
                    )
                self._values[name].append(value)
        self._iterations.append(iteration)

    @staticmethod
    def merge(logs: Sequence[Log]) -> dict[str, np.ndarray]:
        """Return the records of several runs, side by side on common iterations.

        A run that has ended keeps its last values.
        """
        iterations = np.unique(np.concatenate([log._iterations for log in logs]))
        merged = {"iteration": iterations}
        names = dict.fromkeys(name for log in logs for name in log._values)
        for name in names:
            columns = []
            for log in logs:
                # A run that ended at once has released nothing under that name.
                values = log._values.get(name) or [np.full(1, np.nan)] * len(log._iterations)
                held = np.searchsorted(log._iterations, iterations, side="right") - 1
                columns.append(np.array(values)[held])
            merged[name] = np.concatenate(columns, axis=1)
        return merged
