"""A good event: learned from samples of two inputs, and bounded by Clopper and Pearson."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from scipy import special

from .outcomes import Outcomes, Reader, as_batch
from .scores import Cells, Rows, Score, candidates, values_of

__all__ = ["Event", "epsilon_lower_bound", "learn_event", "probability_bounds"]

_TAIL_RANKS = 24  # thresholds tried in each tail, at ranks 1, 2, 3, 5, 8, ...
_THRESHOLDS = 256  # thresholds tried in between
_PIECES = 6  # pieces of an event that are written out


@dataclass(frozen=True, eq=False)
class _Line:
    """Outcomes whose score is at least, or less than, a threshold."""

    score: Score
    threshold: float
    above: bool

    def contains(self, outcomes: Outcomes) -> np.ndarray:
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
class _Union:
    """Outcomes that lie in some of the cells of a score."""

    score: Score | None
    cells: Cells
    included: np.ndarray
    names: tuple[str, ...]

    def contains(self, outcomes: Outcomes) -> np.ndarray:
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
    >>> low, high = np.zeros(500), np.ones(500)
    >>> event = learn_event(Reader([low]), low, high, runs=500, delta=0.0, miss=1e-3)[0]
    >>> print(event)
    output < 1
    >>> event([0.0, 0.5, 2.0])
    array([ True,  True, False])
    """

    def __init__(self, test: _Line | _Union, reader: Reader) -> None:
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


def probability_bounds(counts: tuple[int, int], runs: int, miss: float) -> tuple[float, float]:
    """Return a lower bound of the first probability and an upper bound of the second.

    Clopper and Pearson's one-sided bounds; each misses with probability at most ``miss / 2``,
    so together they miss with probability at most ``miss``, however the two depend.

    Parameters
    ----------
    counts : (int, int)
        How many of ``runs`` runs lay in the event, on the one and on the other input.
    runs : int
    miss : float
        In (0, 1).

    Examples
    --------
    >>> probability_bounds((100, 0), 100, 0.05)
    (0.96378, 0.03622)
    """
    low, high = counts
    lower = special.betaincinv(low, runs - low + 1, miss / 2) if low else 0.0
    upper = special.betainccinv(high + 1, runs - high, miss / 2) if high < runs else 1.0
    return float(lower), float(upper)


def epsilon_lower_bound(bounds: tuple[float, float], delta: float) -> float:
    """Return the epsilon that an event with these probabilities needs: ln((p - delta)/q).

    Examples
    --------
    >>> epsilon_lower_bound((0.5, 0.25), 0.0)
    0.693147
    """
    lower, upper = bounds
    return max(0.0, math.log((lower - delta) / upper)) if lower > delta else 0.0


def _estimates(
    first: np.ndarray, second: np.ndarray, size: int, runs: int, delta: float, miss: float
) -> np.ndarray:
    """Return about the bound that ``runs`` new runs will give, for many events at once.

    Wilson's intervals stand in for Clopper and Pearson's: cheap, and only used to choose.
    """
    square = special.ndtri(miss / 2) ** 2
    scale = 1.0 / (runs + square)

    def end(count: np.ndarray, sign: float) -> np.ndarray:
        p = count / size
        root = np.sqrt(square * runs * p * (1.0 - p) + 0.25 * square**2)
        return (runs * p + 0.5 * square + sign * root) * scale

    with np.errstate(divide="ignore", invalid="ignore"):
        bound = np.log((end(first, -1.0) - delta) / end(second, 1.0))
    return np.where(np.isnan(bound), -np.inf, bound)


def learn_event(
    reader: Reader, first: Any, second: Any, *, runs: int, delta: float, miss: float
) -> tuple[Event, int]:
    """Return the event with the best prospects, and the input on which it is likelier (0, 1).

    Scores are fitted to one half of the runs given; which score, which threshold and which
    direction is decided on the other half.

    Parameters
    ----------
    reader : Reader
    first, second : batch or Outcomes
        Runs on the two inputs, as many on each.
    runs : int
        On how many new runs of each input the event is going to be counted.
    delta, miss : float
        As they are going to be used for the bound.
    """
    first, second = (x if isinstance(x, Outcomes) else reader.read(x) for x in (first, second))
    half = len(first) // 2
    fit, held = (first[:half], second[:half]), (first[half:], second[half:])
    best, chosen, likelier = -math.inf, None, 0
    for score in candidates(*fit):
        for counts, make in (*_lines(score, held), *_unions(score, fit, held, reader)):
            for side in (0, 1):
                estimates = _estimates(
                    counts[side], counts[1 - side], len(held[0]), runs, delta, miss
                )
                place = int(np.argmax(estimates))
                # Simple events come first: a later one must be clearly better.
                if chosen is None or estimates[place] > best + 0.01 * max(best, 0.0):
                    best, chosen, likelier = float(estimates[place]), make(place), side
    assert chosen is not None  # there is always a score, or an atom
    return Event(chosen, reader), likelier


# Counts of many events on the two inputs, and how to make the event at one place.
_Family: TypeAlias = tuple[tuple[np.ndarray, np.ndarray], Callable[[int], "_Line | _Union"]]


def _lines(score: Score | None, held: tuple[Outcomes, Outcomes]) -> Iterator[_Family]:
    """Yield the events that the score lies on one side of a threshold."""
    if score is None:
        return
    scores = [values_of(score, part) for part in held]
    ordered = [np.sort(s[~np.isnan(s)]) for s in scores]
    thresholds = _thresholds(np.sort(np.concatenate(ordered), kind="stable"))
    if not thresholds.size:
        return
    below = [np.searchsorted(s, thresholds) for s in ordered]

    def line(above: bool) -> Callable[[int], _Line]:
        return lambda place: _Line(score, float(thresholds[place]), above)

    yield (below[0], below[1]), line(False)
    yield (ordered[0].size - below[0], ordered[1].size - below[1]), line(True)


def _thresholds(pooled: np.ndarray) -> np.ndarray:
    """Return values to cut at, of sorted ones: quantiles, and many in both tails."""
    ranks = np.unique((1.4 ** np.arange(_TAIL_RANKS)).astype(np.int64))
    middle = np.linspace(0, pooled.size - 1, _THRESHOLDS).astype(np.int64)
    places = np.concatenate([ranks, middle, pooled.size - 1 - ranks])
    return np.unique(pooled[places[(places >= 0) & (places < pooled.size)]])


def _unions(
    score: Score | None,
    fit: tuple[Outcomes, Outcomes],
    held: tuple[Outcomes, Outcomes],
    reader: Reader,
) -> Iterator[_Family]:
    """Yield the events that the learned log-ratio of the cell is large, and that it is not.

    Without a score, the cells are the atoms that have been seen.
    """
    learned = values_of(score, fit[0]), values_of(score, fit[1])
    cells = Cells.fit(learned, (fit[0].codes, fit[1].codes), reader.atoms)
    names = tuple(reader.name(code) for code in range(1, reader.atoms + 1))
    order = np.argsort(-cells.ratios, kind="stable")
    if score is None:
        order = order[(order > order.size - 2 - len(names)) & (order < order.size - 1)]
    found = (cells.index(values_of(score, part), part.codes) for part in held)
    head = [np.cumsum(np.bincount(index, minlength=cells.ratios.size)[order]) for index in found]

    def union(large: bool) -> Callable[[int], _Union]:
        def make(place: int) -> _Union:
            included = np.zeros(cells.ratios.size, dtype=bool)
            included[order[: place + 1] if large else order[place + 1 :]] = True
            return _Union(score, cells, included, names)

        return make

    yield (head[0], head[1]), union(True)
    yield (head[0][-1] - head[0], head[1][-1] - head[1]), union(False)
