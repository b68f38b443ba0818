"""Learning of the event that is most likely to refute a claim, from runs on the two inputs.

Scores of an outcome are tried, some without parameters, others fitted. The event is counted in
other runs, so a bad choice costs power and no validity.
"""

from __future__ import annotations

import importlib.util
import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import special

from .events import (
    Additive,
    Cells,
    Coordinate,
    Limit,
    Line,
    Linear,
    LogisticScore,
    Norm,
    OutcomeEvent,
    Rows,
    Score,
    Trees,
    Union,
    Unit,
    bounded,
    row_keys,
    unit_of,
    values_of,
)
from .joint import Grid, Prefixes, Product, Products, order_of, pairs_of_coordinates, ranked
from .outcomes import Outcomes, Reader

_COORDINATES = 16  # coordinates that are tried one by one
_PAIRS = 6  # largest dimension in which differences of all pairs are tried too
_PAIRS_LEARNED = 8  # pairs of coordinates whose products the fitted scores use
_PAIRS_ALONE = 2  # pairs of coordinates that have scores of their own
_SPREADS = 2  # coordinates whose distance from the median has a score of its own
_KNOWN = 64  # different outcomes whose table is as good as what trees learn
_LEARNED = 32  # coordinates that the fitted scores use
_LINEAR = 512  # coordinates that the linear scores use; covariances are (k, k)
_TREES = 1_000  # fewest runs of each input that trees are grown from
_FITTED = 20_000  # runs of each input that scores are fitted to, at most
_SCALED = 8_192  # runs from which medians and scales are taken, at most twice as many


_Scores: TypeAlias = "tuple[np.ndarray, np.ndarray]"  # of the runs on both inputs


def fixed_scores(first: Outcomes, second: Outcomes, sides: _Scores) -> list[Score | None]:
    """Return scores to try, by the ranks on both sides; None stands for the atoms alone."""
    width = first.values.shape[1]
    scores: list[Score | None] = []
    if first.codes is not None or second.codes is not None:
        scores.append(None)
    if width <= 1:
        return scores + [Coordinate(0)] * width
    order = _order(sides)
    scores += [Coordinate(int(j)) for j in order[:_COORDINATES]]
    if width <= _PAIRS:
        signs = np.array([1.0, -1.0])
        scores += [Linear(signs, np.array(pair)) for pair in combinations(range(width), 2)]
    return scores + [Norm(kind) for kind in ("norm", "max |.|", "max", "min")]


def fitted_scores(first: Outcomes, second: Outcomes, sides: _Scores) -> dict[str, Score]:
    """Return scores fitted to runs on the two inputs, by the name of the fit."""
    if first.values.shape[1] == 0:
        return {}
    if first.values.shape[1] == 1:
        return _squares(first[:_FITTED].values, second[:_FITTED].values, np.array([0]))
    prefixes = Prefixes.fit(first.values, second.values)
    first, second = first[:_FITTED], second[:_FITTED]
    plain = first.values[first.plain], second.values[second.plain]
    scores: dict[str, Score] = {}
    rows = _rows(first, second)
    if rows is not None:
        scores["rows"] = rows
    if prefixes is not None:
        scores["prefixes"] = prefixes
    with np.errstate(all="ignore"):
        order = _order(sides)
        differing = order if order.size > _COORDINATES else order_of(sides)
        pairs = pairs_of_coordinates(sides, order, _PAIRS_LEARNED)
        products = _products(np.concatenate([first.values, second.values]), pairs)
        for place, pair in enumerate(pairs[:_PAIRS_ALONE].tolist()):
            scores[f"product {place}"] = Product((pair[0], pair[1]), tuple(products.center[place]))
            scores[f"grid {place}"] = Grid.fit(first.values, second.values, (pair[0], pair[1]))
        scores |= _squares(first.values, second.values, differing[:_SPREADS])
        columns = ((first.values[:, j], second.values[:, j]) for j in order[:_LEARNED])
        cells = tuple(Cells.fit(pair, (None, None), 0, bins=32) for pair in columns)
        additive = Additive(order[:_LEARNED], cells)
        if min(map(len, plain)) > 1:
            scores |= _linear(plain, np.sort(order[:_LINEAR]))
        scores["additive"] = additive
        if min(map(len, plain)) > 1:
            scores["logistic"] = _logistic(plain, additive, products)
            # Where few outcomes repeat, their table is as good as trees.
            known = 0 if rows is None else len(rows.table)
            if not 0 < known <= _KNOWN:
                index = np.union1d(additive.index, pairs)
                if (trees := _trees(first, second, index, products)) is not None:
                    scores["trees"] = trees
    return scores


def _order(sides: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Return the coordinates, those that differ most between the inputs first."""
    width = sides[0].shape[1]
    return np.arange(width) if width <= _COORDINATES else order_of(sides)


def _linear(plain: tuple[np.ndarray, np.ndarray], index: np.ndarray) -> dict[str, Score]:
    """Return the difference of the means, plain and whitened (Fisher's discriminant)."""
    first, second = plain[0][:, index], plain[1][:, index]
    # Medians and clipping, because of heavy tails.
    pooled = np.concatenate([first, second])
    center, spread = _scale(pooled)
    z = [np.clip((part - center) / spread, -20.0, 20.0) for part in (first, second)]
    shift = z[0].mean(axis=0) - z[1].mean(axis=0)
    covariance = sum((np.atleast_2d(np.cov(part, rowvar=False)) for part in z), np.array(0.0))
    ridge = 1e-10 * max(float(np.trace(covariance)) / index.size, 1e-12)
    whitened = np.linalg.solve(covariance + ridge * np.eye(index.size), shift)
    scores: dict[str, Score] = {}
    for name, weights in (("means", shift / spread), ("whitened", whitened / spread)):
        length = np.linalg.norm(weights)
        if np.isfinite(length) and length > 0.0:
            weights = weights / length
            middle, width = _scale((pooled @ weights)[:, None])
            unit = Unit(float(middle[0]), float(width[0]))
            scores[name] = Linear(weights, index, unit)
    return scores


def _scale(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the median of each coordinate and a scale, 1 for one that hardly varies."""
    values = values[:: 1 + len(values) // _SCALED]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a coordinate that is always NaN
        center = np.nanmedian(values, axis=0)
        spread = np.nanquantile(np.abs(values - center), 0.75, axis=0)
    return center, np.where((spread > 0.0) & np.isfinite(spread), spread, 1.0)


def _squares(first: np.ndarray, second: np.ndarray, order: np.ndarray) -> dict[str, Score]:
    """Return the squared distances from medians: for noise whose scale differs."""
    center, _ = _scale(np.concatenate([first[:, order], second[:, order]]))
    return {
        f"square {place}": Product((j, j), (at, at))
        for place, (j, at) in enumerate(zip(order.tolist(), center.tolist()))
    }


def _products(values: np.ndarray, pairs: np.ndarray) -> Products:
    """Return the products of the pairs, each from its medians and in units of its spread."""
    index, place = np.unique(pairs, return_inverse=True)
    place = place.reshape(pairs.shape)
    center, spread = _scale(values[:, index])
    return Products(pairs, center[place], spread[place])


def _logistic(
    plain: tuple[np.ndarray, np.ndarray], additive: Additive, products: Products
) -> LogisticScore:
    """Fit by Newton's method with a small ridge."""
    values = np.concatenate(plain)
    label = np.repeat([1.0, 0.0], [len(part) for part in plain])
    model = LogisticScore(additive, products, *_scale(values[:, additive.index]), np.zeros(0))
    features = model.features(values)
    ridge = 1e-3 * len(values) * np.mean(features**2, axis=0) + 1e-9
    weights = np.zeros(features.shape[1])
    for _ in range(12):
        chance = special.expit(features @ weights)
        gradient = features.T @ (chance - label) + ridge * weights
        curvature = (features * (chance * (1.0 - chance))[:, None]).T @ features
        step = np.linalg.solve(curvature + np.diag(ridge), gradient)
        weights = weights - step
        if np.abs(step).max() < 1e-6 * (1.0 + np.abs(weights).max()):
            break
    return replace(model, weights=weights)


def _trees(
    first: Outcomes, second: Outcomes, index: np.ndarray, products: Products
) -> Trees | None:
    """Return gradient-boosted trees, where scikit-learn is installed and the runs are enough."""
    if len(first) < _TREES or importlib.util.find_spec("sklearn") is None:
        return None
    from sklearn.ensemble import HistGradientBoostingClassifier  # heavy, and not required
    from threadpoolctl import threadpool_limits

    values = np.concatenate([first.values, second.values])
    values = np.hstack([bounded(values[:, index]), products(values)])
    label = np.repeat([1, 0], [len(first), len(second)])
    model = HistGradientBoostingClassifier(
        max_iter=30, max_leaf_nodes=15, min_samples_leaf=40, early_stopping=False, random_state=0
    )
    with threadpool_limits(1):  # more threads do not pay for so few runs
        model.fit(values, label)
    return Trees(index, products, model)


def _rows(first: Outcomes, second: Outcomes) -> Rows | None:
    """Return the score of whole outcomes, or None where most outcomes are seen once."""
    counts: dict[bytes, list[int]] = {}
    for side, outcomes in enumerate((first, second)):
        values = outcomes.values
        if outcomes.codes is not None:
            values = values[outcomes.codes == 0]
        for key in row_keys(values):
            counts.setdefault(key, [0, 0])[side] += 1
    if not counts or len(counts) > 0.5 * (len(first) + len(second)):
        return None
    return Rows({key: math.log((a + 0.5) / (b + 0.5)) for key, (a, b) in counts.items()})


# The event with the best prospects


_TAIL_RANKS = 24  # thresholds tried in each tail, at ranks 1, 2, 3, 5, 8, ...
_THRESHOLDS = 256  # thresholds tried in between
_CROSSED = 1 << 14  # most runs at which both halves are learned from and counted in, in turn
_CHARGE = 2.0  # standard errors charged to estimates: the best of many is lucky, too
_MORE = (0.5, 8.0)  # counts added to those of cells: rare ones are lucky, too
_MANY_CELLS = 16  # repeated values and atoms from which on more counts are tried
_LUCK = 1.0  # standard errors by which a chance to refute must exceed an even one
# Counts added to rates: the middle of Wilson's interval at 95%, and more where runs are few, or
# else rare events that were lucky win too often.
_MOVED, _MOVED_FEW = 4.0, 3_000.0
POWER = 1.2816  # standard errors below a bound that nine in ten repetitions reach

_Array: TypeAlias = NDArray[np.float64]
_Pair: TypeAlias = tuple[Outcomes, Outcomes]


class Goal(NamedTuple):
    """The claim that an event shall refute, and the test that follows."""

    limit: Limit
    claim: float  # the level to be refuted
    runs: int  # new runs of each input, in which the event will be counted
    quantile: float  # of the normal law, at the confidence of the bound


class Choice(NamedTuple):
    """An event, the input on which it is likelier (0, 1), and what was learned of its test."""

    # About how often it happens on that input and on the other, and about which level nine of ten
    # tests will bound, the uncertainty of the learning charged.

    event: OutcomeEvent
    likelier: int
    rates: tuple[float, float]
    level: float


def worst(p: _Array, q: _Array, limit: Limit, square: float) -> tuple[_Array, _Array]:
    """Return the pair at which a bound ends, ``square`` = (standard errors)**2 / runs away."""
    # Wilson's intervals stand in for exact ones: cheap, and only used to choose.
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
      bound. The uncertainty of the counts is charged: otherwise the luckiest of thousands of
      events wins, which is a rare one.
    - 2: the event has a better than even chance to refute the claim; the value is its distance
      from the claim's curve, in standard deviations of one run.
    - 1: there will be a bound, which is the value.
    - 0: the runs are too few for any bound; the value is the distance again.
    """
    p, q = counts[0] / size, counts[1] / size
    z, bound = max(goal.quantile, 0.0), _bounds(p, q, size, goal, _CHARGE)
    distance = _distances(p, q, size, goal)
    even = z / math.sqrt(goal.runs) + _LUCK / math.sqrt(size)
    surely, likely = bound > goal.claim, distance >= even
    classes = np.select([surely, likely, bound > 0.0], [3, 2, 1])
    return classes, np.where(classes % 2 == 1, bound, distance)


def _bounds(p: _Array, q: _Array, size: int, goal: Goal, charge: float) -> _Array:
    """Return about which level nine of ten tests will bound, by rates in ``size`` runs."""
    errors = (max(goal.quantile, 0.0) + POWER) / math.sqrt(goal.runs) + charge / math.sqrt(size)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(goal.limit.level(*worst(p, q, goal.limit, errors**2)))


def _distances(p: _Array, q: _Array, size: int, goal: Goal) -> _Array:
    """Return how far above the claim's curve each pair lies, in standard deviations of one run."""
    k = (_MOVED + _MOVED_FEW / size) / size
    p, q = (p + 0.5 * k) / (1.0 + k), (q + 0.5 * k) / (1.0 + k)
    allowed = goal.limit.most(q, goal.claim)
    slope = goal.limit.slope(allowed, q)
    return np.asarray((p - allowed) / np.sqrt(p * (1.0 - p) + slope**2 * q * (1.0 - q)))


def learn_event(reader: Reader, first: Any, second: Any, goal: Goal) -> Choice:
    """Return the event with the best prospects."""
    # Score, threshold and direction are chosen on runs that the score was not fitted to: each half
    # judges the fits to the other one, and the winner is fitted again to all. Of very many runs the
    # first half serves fits alone; scores without parameters are judged by all.
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
                    rates = float(pair[0][place] / size), float(pair[1][place] / size)
                    level = float(
                        _bounds(np.array(rates[0]), np.array(rates[1]), size, goal, _LUCK)
                    )
                    chosen = Choice(OutcomeEvent(make(place), reader), side, rates, level)
    assert chosen is not None  # there is always a score, or an atom
    return chosen


class _Fold(NamedTuple):
    """A score, the runs it was fitted to and others to judge it by, each of both inputs."""

    score: Score | None
    fit: _Pair
    held: _Pair
    fit_scores: _Scores
    held_scores: _Scores


class _Trial(NamedTuple):
    """A score to try, in its final form, and the folds that judge it."""

    score: Score | None
    folds: list[_Fold]
    scores: _Scores | None  # of all runs, which judge a score without parameters


def _scores(score: Score | None, pair: _Pair) -> _Scores:
    return values_of(score, pair[0]), values_of(score, pair[1])


def _trials(first: Outcomes, second: Outcomes) -> Iterator[_Trial]:
    """Yield the scores, simple ones first."""
    half = len(first) // 2
    parts = [slice(None, half), slice(half, None)]
    places = [parts] if half > _CROSSED else [parts, parts[::-1]]
    folds = [((first[a], second[a]), (first[b], second[b])) for a, b in places]
    # Ranks of many runs are taken once.
    learned = folds[0][0] if len(folds) == 1 else (first, second)
    sides = _ranked(*learned)
    for score in fixed_scores(first, second, sides):
        x, y = _scores(score, (first, second))
        halves = [((x[a], y[a]), (x[b], y[b])) for a, b in places]
        yield _Trial(score, [_Fold(score, *f, *s) for f, s in zip(folds, halves)], (x, y))
    final = fitted_scores(*learned, sides)
    fits = [final] if len(folds) == 1 else [fitted_scores(*fit, _ranked(*fit)) for fit, _ in folds]
    for name, fitted in final.items():
        if all(name in fit for fit in fits):
            judged = [(fit[name], *fold) for fit, fold in zip(fits, folds)]
            pairs = [_Fold(x, a, b, _scores(x, a), _scores(x, b)) for x, a, b in judged]
            yield _Trial(fitted, pairs, None)


def _ranked(first: Outcomes, second: Outcomes) -> _Scores:
    with np.errstate(all="ignore"):
        return ranked(first.values[:_FITTED], second.values[:_FITTED])


# Counts of many events on the two inputs, a function that makes one of them, runs of each input.
_Family: TypeAlias = tuple[tuple[np.ndarray, np.ndarray], Callable[[int], "Line | Union"], int]


def _lines(trial: _Trial) -> Iterator[_Family]:
    """Yield the events that the score lies on one side of a threshold."""
    final = trial.score
    if final is None:
        return
    if trial.scores is not None:
        scores = trial.scores
    else:
        # Thresholds are in the units of each fold's score, and then in those of the final one.
        parts = [[unit_of(f.score).standardize(x) for x in f.held_scores] for f in trial.folds]
        scores = np.concatenate([x for x, _ in parts]), np.concatenate([y for _, y in parts])
    ordered = [np.sort(s[~np.isnan(s)]) for s in scores]
    thresholds = _thresholds(np.sort(np.concatenate(ordered), kind="stable"))
    if not thresholds.size:
        return
    below = [np.searchsorted(s, thresholds) for s in ordered]
    kept = thresholds if trial.scores is not None else unit_of(final).restore(thresholds)

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
    """Yield the events that the learned log-ratio of the cell is large, and that it is not."""
    # In each fold the ratios are learned from the one part and the events counted in the other.
    names = tuple(reader.name(code) for code in range(1, reader.atoms + 1))

    def learned(part: _Pair, scores: _Scores, more: float) -> Cells:
        return Cells.fit(scores, (part[0].codes, part[1].codes), reader.atoms, more=more)

    folds = trial.folds
    if len(folds) > 1:
        first, second = (Outcomes.join([fold.held[side] for fold in folds]) for side in (0, 1))
        scores = _scores(trial.score, (first, second))
    for more in _MORE:
        parts = [learned(fold.fit, fold.fit_scores, more) for fold in folds]
        final = parts[0]
        if len(folds) > 1:
            # A cell seen on one input has the same ratio in all and in a half.
            final = learned((first, second), scores, more * len(folds))
        yield from _unions_of(trial.score, folds, parts, final, names)
        if final.repeated.size + len(names) < _MANY_CELLS:
            return  # all cells have been seen often


def _unions_of(
    score: Score | None,
    folds: list[_Fold],
    parts: list[Cells],
    final: Cells,
    names: tuple[str, ...],
) -> Iterator[_Family]:
    """Yield the unions of the final cells, judged by the cells of each fold."""
    levels = np.unique(np.concatenate([cells.ratios for cells in parts]))[::-1]
    above, total = np.zeros((2, levels.size), dtype=np.int64), np.zeros((2, 1), dtype=np.int64)
    for cells, fold in zip(parts, folds):
        eligible = _eligible(cells, score, len(names))
        order = np.argsort(-cells.ratios, kind="stable")
        places = np.searchsorted(-cells.ratios[order], -levels, side="right")
        for side, (scores, outcomes) in enumerate(zip(fold.held_scores, fold.held)):
            index = cells.index(scores, outcomes.codes)
            counts = (np.bincount(index, minlength=cells.ratios.size) * eligible)[order]
            above[side] += np.concatenate([[0], np.cumsum(counts)])[places]
            total[side] += counts.sum()
    size = sum(len(fold.held[0]) for fold in folds)
    allowed = _eligible(final, score, len(names))
    known = final.ratios[allowed]

    def union(large: bool) -> Callable[[int], Union]:
        def make(place: int) -> Union:
            # Ratios of more runs are less extreme: one cell at least is on this side.
            level = levels[place]
            if known.size:
                level = min(level, known.max()) if large else max(level, known.min() + 2e-9)
            included = ((final.ratios >= level - 1e-9) == large) & allowed
            return Union(score, final, included, names)

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
