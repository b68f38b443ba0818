"""The event with the best prospects, learned from some runs and counted in others."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .event import Event, Line, Union
from .learning import fitted_scores, fixed_scores
from .limits import Limit
from .outcomes import Outcomes, Reader
from .scores import Cells, Score, unit_of, values_of

__all__ = ["POWER", "Choice", "Goal", "learn_event"]

_TAIL_RANKS = 24  # thresholds tried in each tail, at ranks 1, 2, 3, 5, 8, ...
_THRESHOLDS = 256  # thresholds tried in between
_CROSSED = 1 << 14  # up to so many runs, halves take turns to be learned from and counted in
_CHARGE = 2.0  # standard errors of the estimates: the best of many is the luckiest, too
_LUCK = 1.0  # standard errors by which the chance must be more than even, to be believed
_MOVED = 4.0  # counts that move a rate inside: the middle of Wilson's interval at 95%
POWER = 1.2816  # standard errors: the bound that nine in ten repetitions reach

_Array: TypeAlias = NDArray[np.float64]
_Pair: TypeAlias = tuple[Outcomes, Outcomes]


class Goal(NamedTuple):
    """What the event is for.

    Attributes
    ----------
    limit : Limit
    claim : float
        The level to be refuted.
    runs : int
        On how many new runs of each input it is going to be counted.
    quantile : float
        Of the normal law, at the confidence of the bound.
    """

    limit: Limit
    claim: float
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


def _merits(counts: tuple[_Array, _Array], size: int, goal: Goal) -> tuple[_Array, _Array]:
    """Return how good each event is: a class, and a value to compare within the class.

    ``counts`` are of ``size`` runs.

    - 3: nine of ten tests of the event will bound the level above the claim; the value is that
      bound. The uncertainty of the counts is charged: without that, the luckiest of thousands of
      events wins, and it is a rare one.
    - 2: the event has an even chance to refute the claim, and more; the value is its distance from
      what the claim allows, in standard deviations of one run. These distances are all estimated
      with about the same error, which only decides whether the chance is believed.
    - 1: there will be a bound, and it is the value.
    - 0: the runs are too few for any bound; the value is the distance again.
    """
    p, q = counts[0] / size, counts[1] / size
    z = max(goal.quantile, 0.0)
    errors = (z + POWER) / math.sqrt(goal.runs) + _CHARGE / math.sqrt(size)
    with np.errstate(divide="ignore", invalid="ignore"):
        bound = goal.limit.level(*_worst(p, q, goal.limit, errors**2))
    distance = _distances(p, q, size, goal)
    even = z / math.sqrt(goal.runs) + _LUCK / math.sqrt(size)
    surely, likely = bound > goal.claim, distance >= even
    classes = np.select([surely, likely, bound > 0.0], [3, 2, 1])
    return classes, np.where(classes % 2 == 1, bound, distance)


def _distances(p: _Array, q: _Array, size: int, goal: Goal) -> _Array:
    """Return how far each pair lies above the claim's curve, in standard deviations of one run.

    The rates are moved inside a little, as in Wilson's intervals: counts of 0 have a variance.
    """
    k = _MOVED / size
    p, q = (p + 0.5 * k) / (1.0 + k), (q + 0.5 * k) / (1.0 + k)
    allowed = goal.limit.most(q, goal.claim)
    slope = goal.limit.slope(allowed, q)
    return np.asarray((p - allowed) / np.sqrt(p * (1.0 - p) + slope**2 * q * (1.0 - q)))


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

    Which score, which threshold and which direction is decided on runs that the score was not
    fitted to: each half of the runs judges what is learned from the other half, and the winner is
    learned again from all. Of very many runs, the first half is for learning alone. Scores that
    need no fitting are judged by all the runs.

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
    >>> goal = Goal(ApproximateLimit(delta=0.0), claim=1.0, runs=500, quantile=3.0)
    >>> event, likelier, slope = learn_event(Reader([low]), low, high, goal)
    >>> print(event, likelier)
    output < 1 0
    """
    first, second = (x if isinstance(x, Outcomes) else reader.read(x) for x in (first, second))
    best, chosen = (-1, -math.inf), None
    for trial in _trials(first, second):
        for counts, make, size in (*_lines(trial), *_unions(trial, reader)):
            for side in (0, 1):
                pair = counts[side], counts[1 - side]
                classes, values = _merits(pair, size, goal)
                top = int(classes.max())
                place = int(np.argmax(np.where(classes == top, values, -math.inf)))
                # Simple events come first: a later one must be clearly better.
                least = best[1] + 0.01 * max(best[1], 0.0)
                if chosen is None or (top, values[place]) > (best[0], least):
                    best = top, float(values[place])
                    slope = _slope(pair[0][place] / size, pair[1][place] / size, goal)
                    chosen = Choice(Event(make(place), reader), side, slope)
    assert chosen is not None  # there is always a score, or an atom
    return chosen


class _Fold(NamedTuple):
    """A score, the runs it was learned from and others to judge it by, each of both inputs."""

    score: Score | None
    fit: _Pair
    held: _Pair


class _Trial(NamedTuple):
    """A score to try, as it would be used, and the folds that judge it.

    ``whole`` are the runs that a score without parameters is judged by, None if it has any.
    """

    score: Score | None
    folds: list[_Fold]
    whole: _Pair | None


def _trials(first: Outcomes, second: Outcomes) -> Iterator[_Trial]:
    """Yield the scores, simple ones first."""
    half = len(first) // 2
    fit, held = (first[:half], second[:half]), (first[half:], second[half:])
    pairs = [(fit, held)] if half > _CROSSED else [(fit, held), (held, fit)]
    for score in fixed_scores(first, second):
        yield _Trial(score, [_Fold(score, *pair) for pair in pairs], (first, second))
    parts = [fitted_scores(*part) for part, _ in pairs]
    final = parts[0] if len(pairs) == 1 else fitted_scores(first, second)
    for name, fitted in final.items():
        if all(name in part for part in parts):
            folds = [_Fold(part[name], *pair) for part, pair in zip(parts, pairs)]
            yield _Trial(fitted, folds, None)


# Counts of many events on the two inputs, how to make the event at one place, runs of each input.
_Family: TypeAlias = tuple[tuple[np.ndarray, np.ndarray], Callable[[int], "Line | Union"], int]


def _lines(trial: _Trial) -> Iterator[_Family]:
    """Yield the events that the score lies on one side of a threshold."""
    final = trial.score
    if final is None:
        return
    if trial.whole is not None:
        scores = [values_of(final, part) for part in trial.whole]
    else:
        # Thresholds are in the units of each fold's score, and then in those of the final one.
        parts = [
            [unit_of(f.score).less(values_of(f.score, x)) for x in f.held] for f in trial.folds
        ]
        scores = [np.concatenate(side) for side in zip(*parts)]
    ordered = [np.sort(s[~np.isnan(s)]) for s in scores]
    thresholds = _thresholds(np.sort(np.concatenate(ordered), kind="stable"))
    if not thresholds.size:
        return
    below = [np.searchsorted(s, thresholds) for s in ordered]
    kept = thresholds if trial.whole is not None else unit_of(final).more(thresholds)

    def line(above: bool) -> Callable[[int], Line]:
        return lambda place: Line(final, float(kept[place]), above)

    size = scores[0].size
    yield (below[0], below[1]), line(False), size
    yield (ordered[0].size - below[0], ordered[1].size - below[1]), line(True), size


def _thresholds(pooled: np.ndarray) -> np.ndarray:
    """Return values to cut at, of sorted ones: quantiles, and many in both tails."""
    ranks = np.unique((1.4 ** np.arange(_TAIL_RANKS)).astype(np.int64))
    middle = np.linspace(0, pooled.size - 1, _THRESHOLDS).astype(np.int64)
    places = np.concatenate([ranks, middle, pooled.size - 1 - ranks])
    return np.unique(pooled[places[(places >= 0) & (places < pooled.size)]])


def _unions(trial: _Trial, reader: Reader) -> Iterator[_Family]:
    """Yield the events that the learned log-ratio of the cell is large, and that it is not.

    In each fold the ratios are learned from the one part and the events are counted in the
    other. Without a score, the cells are the atoms that have been seen.
    """
    names = tuple(reader.name(code) for code in range(1, reader.atoms + 1))

    def learned(score: Score | None, part: _Pair, halves: int = 1) -> Cells:
        scores = values_of(score, part[0]), values_of(score, part[1])
        more = 0.5 * halves  # so that a cell of one input has the same ratio in all and in half
        return Cells.fit(scores, (part[0].codes, part[1].codes), reader.atoms, more=more)

    folds = trial.folds
    parts = [learned(fold.score, fold.fit) for fold in folds]
    final = parts[0]
    if len(folds) > 1:
        first, second = (Outcomes.join([fold.held[side] for fold in folds]) for side in (0, 1))
        final = learned(trial.score, (first, second), len(folds))
    levels = np.unique(np.concatenate([cells.ratios for cells in parts]))[::-1]
    above, total = np.zeros((2, levels.size), dtype=np.int64), np.zeros((2, 1), dtype=np.int64)
    for cells, fold in zip(parts, folds):
        eligible = _eligible(cells, trial.score, len(names))
        order = np.argsort(-cells.ratios, kind="stable")
        places = np.searchsorted(-cells.ratios[order], -levels, side="right")
        for side, outcomes in enumerate(fold.held):
            index = cells.index(values_of(fold.score, outcomes), outcomes.codes)
            counts = (np.bincount(index, minlength=cells.ratios.size) * eligible)[order]
            above[side] += np.concatenate([[0], np.cumsum(counts)])[places]
            total[side] += counts.sum()
    size = sum(len(fold.held[0]) for fold in folds)
    allowed = _eligible(final, trial.score, len(names))

    def union(large: bool) -> Callable[[int], Union]:
        def make(place: int) -> Union:
            included = ((final.ratios >= levels[place] - 1e-9) == large) & allowed
            return Union(trial.score, final, included, names)

        return make

    yield (above[0], above[1]), union(True), size
    below = total - above
    yield (below[0], below[1]), union(False), size


def _eligible(cells: Cells, score: Score | None, atoms: int) -> np.ndarray:
    """Return which cells may be in an event: all, or without a score the atoms seen."""
    eligible = np.ones(cells.ratios.size, dtype=bool)
    if score is None:
        eligible[: -1 - atoms] = eligible[-1] = False
    return eligible
