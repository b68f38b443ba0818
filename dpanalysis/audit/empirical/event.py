"""A set of outcomes that can be counted again, and read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .outcomes import Outcomes, Reader, as_batch
from .scores import Cells, Rows, Score, values_of

__all__ = ["Event", "Line", "Union"]

_PIECES = 6  # pieces of an event that are written out


@dataclass(frozen=True, eq=False)
class Line:
    """Outcomes whose score is at least, or less than, a threshold."""

    score: Score
    threshold: float
    above: bool

    def contains(self, outcomes: Outcomes) -> np.ndarray:
        """Return which runs lie in it."""
        scores = values_of(self.score, outcomes)
        return scores >= self.threshold if self.above else scores < self.threshold

    def __str__(self) -> str:
        if isinstance(self.score, Rows):
            rows, unseen = self.score.outcomes(self.threshold, self.above)
            shown = ", ".join(f"({', '.join(f'{x:g}' for x in row)})" for row in rows[:_PIECES])
            more = f", ... ({len(rows)} in all)" if len(rows) > _PIECES else ""
            return f"output in {{{shown}{more}}}" + " or never seen before" * unseen
        return f"{self.score} {'>=' if self.above else '<'} {_number(self.threshold)}"


@dataclass(frozen=True, eq=False)
class Union:
    """Outcomes that lie in some of the cells of a score."""

    score: Score | None
    cells: Cells
    included: np.ndarray
    names: tuple[str, ...]

    def contains(self, outcomes: Outcomes) -> np.ndarray:
        """Return which runs lie in it."""
        scores = values_of(self.score, outcomes)
        return self.included[self.cells.index(scores, outcomes.codes)]

    def __str__(self) -> str:
        edges = np.concatenate([[-np.inf], self.cells.edges, [np.inf]])
        bins = edges.size - 1
        name, pieces, parts = str(self.score), [], []
        inside = np.concatenate([[False], self.included[:bins], [False]])
        starts = np.flatnonzero(inside[1:] & ~inside[:-1])
        for lo, hi in zip(starts, np.flatnonzero(inside[:-1] & ~inside[1:])):
            pieces.append(f"[{_number(edges[lo])}, {_number(edges[hi])})")
        values = self.included[bins : bins + self.cells.repeated.size]
        points = [_number(value) for value in self.cells.repeated[values]]
        if points and not pieces and len(points) == 1:
            parts.append(f"{name} == {points[0]}")
        elif points:
            more = ", ..." if len(points) > _PIECES else ""
            pieces.append(f"{{{', '.join(points[:_PIECES])}{more}}}")
        if pieces:
            more = " or ..." if len(pieces) > _PIECES else ""
            parts.append(f"{name} in {' or '.join(pieces[:_PIECES])}{more}")
        rest = self.included[bins + values.size :]
        if rest[0]:
            parts.append(f"{name} is nan")
        parts += [f"{self.names[i]}" for i in np.flatnonzero(rest[1:-1])[:_PIECES]]
        if np.count_nonzero(rest[1:-1]) > _PIECES:
            parts.append("...")
        return " or ".join(parts) or "an output unlike those learned from"


def _number(value: float) -> str:
    return f"{value:.6g}"


class Event:
    """A set of outcomes; call it on outputs to see which lie in it.

    Examples
    --------
    >>> from .choice import Goal, learn_event
    >>> from .limits import ApproximateLimit
    >>> low, high = np.zeros(500), np.ones(500)
    >>> goal = Goal(ApproximateLimit(delta=0.0), claim=1.0, runs=500, quantile=3.0)
    >>> event = learn_event(Reader([low]), low, high, goal).event
    >>> print(event)
    output < 1
    >>> event([0.0, 0.5, 2.0])
    array([ True,  True, False])
    """

    def __init__(self, test: Line | Union, reader: Reader) -> None:
        self._test, self._reader = test, reader

    def __call__(self, outputs: Any) -> np.ndarray:
        """Return whether each run's output lies in the event.

        Parameters
        ----------
        outputs : array_like
            As the mechanism returned them: the first axis is the runs.

        Returns
        -------
        ndarray of bool, shape (runs,)
        """
        return self._test.contains(self._reader.read(as_batch(outputs, len(outputs))))

    def count(self, outcomes: Outcomes) -> int:
        """Return how many of the outcomes lie in the event."""
        return int(np.count_nonzero(self._test.contains(outcomes)))

    def __str__(self) -> str:
        return str(self._test)

    def __repr__(self) -> str:
        return f"Event({self})"
