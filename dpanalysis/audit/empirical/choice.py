"""The event with the best prospects, learned from some runs and counted in others."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .event import Event, Line, Union
from .limits import Limit
from .outcomes import Outcomes, Reader
from .scores import Cells, Coordinate, Norm, Score, candidates, values_of

__all__ = ["POWER", "Choice", "Goal", "learn_event"]

_TAIL_RANKS = 24  # thresholds tried in each tail, at ranks 1, 2, 3, 5, 8, ...
_THRESHOLDS = 256  # thresholds tried in between
_CROSSED = 1 << 14  # up to so many runs, halves take turns to be learned from and counted in
_CHARGE = 2.0  # standard errors of the estimates: the best of many is the luckiest, too
POWER = 1.2816  # standard errors: the bound that nine in ten repetitions reach

_Array: TypeAlias = NDArray[np.float64]
_Pair: TypeAlias = tuple[Outcomes, Outcomes]


class Goal(NamedTuple):
    """What the event is for.

    Attributes
    ----------
    limit : Limit
    runs : int
        On how many new runs of each input it is going to be counted.
    quantile : float
        Of the normal law, at the confidence of the bound.
    """

    limit: Limit
    runs: int
    quantile: float


class Choice(NamedTuple):
    """An event, the input on which it is likelier (0, 1), and the slope to test its counts with."""

    event: Event
    likelier: int
    slope: float


def _worst(p: _Array, q: _Array, limit: Limit, square: float) -> tuple[_Array, _Array]:
    """Return the pair at which a bound ends, ``square`` = (standard errors)**2 / runs away.

    The errors of p and q are shared as in the sum of their squares, and Wilson's intervals stand
    in for exact ones: cheap, and only used to choose.
    """
    # Rates of 0 and 1 are moved inside, as the middles of those intervals are.
    inner = [(rate + 0.5 * square) / (1.0 + square) for rate in (p, q)]
    variances = [rate * (1.0 - rate) for rate in inner]
    part = limit.slope(*inner) ** 2 * variances[1]
    share = variances[0] / (variances[0] + part)

    def end(rate: _Array, part: _Array, sign: float) -> _Array:
        k = square * part
        return (rate + 0.5 * k + sign * np.sqrt(k * rate * (1.0 - rate) + 0.25 * k**2)) / (1.0 + k)

    return end(p, share, -1.0), end(q, 1.0 - share, 1.0)


def _prospects(counts: tuple[_Array, _Array], size: int, goal: Goal) -> _Array:
    """Return about the bound that nine of ten tests of each event will reach, or pass.

    ``counts`` are of ``size`` runs, and their own uncertainty is charged: without that, the
    luckiest of thousands of events wins, and it is a rare one.
    """
    errors = (max(goal.quantile, 0.0) + POWER) / math.sqrt(goal.runs) + _CHARGE / math.sqrt(size)
    pair = _worst(counts[0] / size, counts[1] / size, goal.limit, errors**2)
    with np.errstate(divide="ignore", invalid="ignore"):
        bound = goal.limit.level(*pair)
    # Where runs are too few for any bound, the largest difference is the best there is.
    return np.where(np.isfinite(bound), bound, (counts[0] - counts[1]) / size - 1e6)


def _slope(p: float, q: float, goal: Goal) -> float:
    r"""Return the c of X - cY for which the test is about the same along the claim's curve.

    With :math:`V = p(1-p) + c^2 q(1-q)` the test's quantile is :math:`\sqrt n (x - cy - p + cq) /
    \sqrt V`. Its derivative along p = h(q) is 0 where :math:`c = h' + z V'/(2 \sqrt{nV})`.
    """
    z, n = max(goal.quantile, 0.0), goal.runs
    p, q = (float(x) for x in _worst(np.array(p), np.array(q), goal.limit, max(z, 1.0) ** 2 / n))
    if p in (0.0, 1.0) or q in (0.0, 1.0):  # nothing has been learned
        return 1.0
    rise = float(goal.limit.slope(p, q))
    variance = p * (1.0 - p) + rise**2 * q * (1.0 - q)
    bend = rise * (1.0 - 2.0 * p) + rise**2 * (1.0 - 2.0 * q)
    slope = rise + 0.5 * z * bend / math.sqrt(n * variance) if variance > 0.0 else rise
    return max(slope, 0.5 * rise) if math.isfinite(slope) else 1.0


def learn_event(reader: Reader, first: Any, second: Any, goal: Goal) -> Choice:
    """Return the event with the best prospects.

    Scores are fitted to one half of the runs given; which score, which threshold and which
    direction is decided on the other half. Scores that need no fitting are judged by all the
    runs: a threshold on both halves, cells on each half by ratios learned on the other.

    Parameters
    ----------
    reader : Reader
    first, second : batch or Outcomes
        Runs on the two inputs, as many on each.
    goal : Goal

    Examples
    --------
    >>> from .limits import ApproximateLimit
    >>> low, high = np.zeros(500), np.ones(500)
    >>> goal = Goal(ApproximateLimit(delta=0.0), runs=500, quantile=3.0)
    >>> event, likelier, slope = learn_event(Reader([low]), low, high, goal)
    >>> print(event, likelier)
    output < 1 0
    """
    first, second = (x if isinstance(x, Outcomes) else reader.read(x) for x in (first, second))
    half = len(first) // 2
    fit, held = (first[:half], second[:half]), (first[half:], second[half:])
    best, chosen = -math.inf, None
    for score in candidates(*fit):
        learned = not (score is None or isinstance(score, (Coordinate, Norm)))
        whole = held if learned else (first, second)
        folds = [(fit, held)] if learned or half > _CROSSED else [(fit, held), (held, fit)]
        for counts, make, size in (*_lines(score, whole), *_unions(score, folds, reader)):
            for side in (0, 1):
                pair = counts[side], counts[1 - side]
                prospects = _prospects(pair, size, goal)
                place = int(np.argmax(prospects))
                # Simple events come first: a later one must be clearly better.
                if chosen is None or prospects[place] > best + 0.01 * max(best, 0.0):
                    best = float(prospects[place])
                    slope = _slope(pair[0][place] / size, pair[1][place] / size, goal)
                    chosen = Choice(Event(make(place), reader), side, slope)
    assert chosen is not None  # there is always a score, or an atom
    return chosen


# Counts of many events on the two inputs, how to make the event at one place, runs of each input.
_Family: TypeAlias = tuple[tuple[np.ndarray, np.ndarray], Callable[[int], "Line | Union"], int]


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

    def line(above: bool) -> Callable[[int], Line]:
        return lambda place: Line(score, float(thresholds[place]), above)

    size = len(held[0])
    yield (below[0], below[1]), line(False), size
    yield (ordered[0].size - below[0], ordered[1].size - below[1]), line(True), size


def _thresholds(pooled: np.ndarray) -> np.ndarray:
    """Return values to cut at, of sorted ones: quantiles, and many in both tails."""
    ranks = np.unique((1.4 ** np.arange(_TAIL_RANKS)).astype(np.int64))
    middle = np.linspace(0, pooled.size - 1, _THRESHOLDS).astype(np.int64)
    places = np.concatenate([ranks, middle, pooled.size - 1 - ranks])
    return np.unique(pooled[places[(places >= 0) & (places < pooled.size)]])


def _unions(
    score: Score | None, folds: list[tuple[_Pair, _Pair]], reader: Reader
) -> Iterator[_Family]:
    """Yield the events that the learned log-ratio of the cell is large, and that it is not.

    In each fold the ratios are learned from the one part and the events are counted in the
    other. Without a score, the cells are the atoms that have been seen.
    """
    names = tuple(reader.name(code) for code in range(1, reader.atoms + 1))

    def learned(part: _Pair, halves: int = 1) -> Cells:
        scores = values_of(score, part[0]), values_of(score, part[1])
        more = 0.5 * halves  # so that a cell of one input has the same ratio in all and in half
        return Cells.fit(scores, (part[0].codes, part[1].codes), reader.atoms, more=more)

    parts = [learned(part) for part, _ in folds]
    first, second = (Outcomes.join([part[side] for part, _ in folds]) for side in (0, 1))
    final = parts[0] if len(folds) == 1 else learned((first, second), len(folds))
    levels = np.unique(np.concatenate([cells.ratios for cells in parts]))[::-1]
    above, total = np.zeros((2, levels.size), dtype=np.int64), np.zeros((2, 1), dtype=np.int64)
    eligible = np.ones(final.ratios.size, dtype=bool)
    if score is None:
        eligible[: -1 - len(names)] = eligible[-1] = False
    for cells, (_, counted) in zip(parts, folds):
        order = np.argsort(-cells.ratios, kind="stable")
        places = np.searchsorted(-cells.ratios[order], -levels, side="right")
        for side, outcomes in enumerate(counted):
            index = cells.index(values_of(score, outcomes), outcomes.codes)
            counts = np.bincount(index, minlength=cells.ratios.size)
            counts = (counts * eligible if score is None else counts)[order]
            above[side] += np.concatenate([[0], np.cumsum(counts)])[places]
            total[side] += counts.sum()
    size = sum(len(counted[0]) for _, counted in folds)

    def union(large: bool) -> Callable[[int], Union]:
        def make(place: int) -> Union:
            included = ((final.ratios >= levels[place] - 1e-9) == large) & eligible
            return Union(score, final, included, names)

        return make

    yield (above[0], above[1]), union(True), size
    below = total - above
    yield (below[0], below[1]), union(False), size
