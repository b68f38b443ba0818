"""Learn the event that is most likely to refute a claim, from runs on the two inputs.

Scores of an outcome are tried, some without parameters, others fitted. The event is counted in
other runs, so a bad choice costs power but not validity.
"""

from __future__ import annotations

import importlib.util
import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import special

from .events import (
    Additive,
    Cells,
    CellsEvent,
    Coordinate,
    Limit,
    Linear,
    LogisticScore,
    Norm,
    OutcomeEvent,
    Rows,
    Score,
    ThresholdEvent,
    Trees,
    bounded,
    row_keys,
    unit_of,
    values_of,
)
from .joint import Grid, Prefixes, Product, Products, order_of, pairs_of_coordinates, ranked
from .outcomes import Outcomes, Reader

_COORDINATES = 16  # coordinates that are tried one by one
_PAIRS = 6  # largest dimension in which differences of all pairs are tried, too
_PAIRS_LEARNED = 8  # pairs of coordinates whose products the fitted scores use
_PAIRS_ALONE = 2  # pairs of coordinates whose product and grid are separate scores
_SPREADS = 2  # coordinates whose squared distance from the median is a separate score
_KNOWN = 64  # up to this many distinct outcomes, a table is as good as trees
_LEARNED = 32  # coordinates that the fitted scores use
_LINEAR = 512  # coordinates that the linear scores use; covariances are (k, k)
_TREES = 1_000  # fewest runs of each input for growing trees
_FITTED = 20_000  # most runs of each input to which scores are fitted
_SCALED = 8_192  # medians and scales are computed from at most twice this many runs


_Scores: TypeAlias = "tuple[np.ndarray, np.ndarray]"  # of the runs on both inputs


def fixed_scores(first: Outcomes, second: Outcomes, sides: _Scores) -> list[Score | None]:
    """Return the parameter-free scores to try, given the ranks on both inputs; None: atoms only."""
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
        pooled = np.concatenate([first.values, second.values])
        pairs = map(np.array, combinations(range(width), 2))
        scores += [Linear.fit(signs, pair, pooled[:, pair]) for pair in pairs]
    return scores + [Norm(kind) for kind in ("norm", "max |.|", "max", "min")]


def fitted_scores(first: Outcomes, second: Outcomes, sides: _Scores) -> dict[str, Score]:
    """Return the scores fitted to runs on the two inputs: name of the fit -> score."""
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
            # With few distinct outcomes, which repeat, their table is as good as trees.
            known = 0 if rows is None else len(rows.table)
            if not 0 < known <= _KNOWN:
                index = np.union1d(additive.index, pairs)
                if (trees := _trees(first, second, index, products)) is not None:
                    scores["trees"] = trees
    return scores


def _order(sides: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Return the coordinates, those that differ most between the inputs first if they are many."""
    width = sides[0].shape[1]
    return np.arange(width) if width <= _COORDINATES else order_of(sides)


def _linear(plain: tuple[np.ndarray, np.ndarray], index: np.ndarray) -> dict[str, Score]:
    """Return scores along the difference of the means, plain and whitened (Fisher)."""
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
            scores[name] = Linear.fit(weights, index, pooled, float(middle[0]), float(width[0]))
    return scores


def _scale(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the median and a scale of each coordinate; the scale is 1 if it hardly varies."""
    values = values[:: 1 + len(values) // _SCALED]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a coordinate that is always NaN
        center = np.nanmedian(values, axis=0)
        spread = np.nanquantile(np.abs(values - center), 0.75, axis=0)
    return center, np.where((spread > 0.0) & np.isfinite(spread), spread, 1.0)


def _squares(first: np.ndarray, second: np.ndarray, order: np.ndarray) -> dict[str, Score]:
    """Return scores of squared distances from medians, which detect noise of different scales."""
    center, _ = _scale(np.concatenate([first[:, order], second[:, order]]))
    return {
        f"square {place}": Product((j, j), (at, at))
        for place, (j, at) in enumerate(zip(order.tolist(), center.tolist()))
    }


def _products(values: np.ndarray, pairs: np.ndarray) -> Products:
    """Return the products of the pairs, centered at medians and in units of the spreads."""
    index, place = np.unique(pairs, return_inverse=True)
    place = place.reshape(pairs.shape)
    center, spread = _scale(values[:, index])
    return Products(pairs, center[place], spread[place])


def _logistic(
    plain: tuple[np.ndarray, np.ndarray], additive: Additive, products: Products
) -> LogisticScore:
    """Fit a logistic regression by Newton's method with a small ridge penalty."""
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
    """Return gradient-boosted trees, None without scikit-learn or with too few runs."""
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
    with threadpool_limits(1):  # more threads would not help with so few runs
        model.fit(values, label)
    return Trees(index, products, model)


def _rows(first: Outcomes, second: Outcomes) -> Rows | None:
    """Return the log-ratios of whole outcomes as a score, None if most outcomes occur once."""
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
_CROSSED = 1 << 14  # most runs of a half for two-fold cross-validation
_CHARGE = 2.0  # standard errors subtracted from estimates, against selection bias
_PSEUDOCOUNTS = (0.5, 8.0)  # of cells; both are tried, against selection bias of rare cells
_MANY_CELLS = 16  # number of repeated values and atoms from which both pseudocounts are tried
_LUCK = 1.0  # standard errors by which a chance to refute must exceed an even one
# Pseudocounts of rates: the center of Wilson's interval at 95%, and more with few runs, since
# otherwise rare events win too often by chance.
_RATE_PSEUDOCOUNT, _WITH_FEW_RUNS = 4.0, 3_000.0
POWER = 1.2816  # normal quantile at 90%: nine in ten repetitions reach this bound

_Array: TypeAlias = NDArray[np.float64]
_Pair: TypeAlias = tuple[Outcomes, Outcomes]


class Goal(NamedTuple):
    """The claim that an event should refute, and the parameters of the test."""

    limit: Limit
    claim: float  # the level to be refuted
    runs: int  # new runs of each input in which the event will be counted
    quantile: float  # normal quantile at the confidence of the bound


class Choice(NamedTuple):
    """A learned event and estimates of its test."""

    event: OutcomeEvent
    likelier: int  # the input on which the event is likelier, 0 or 1
    rates: tuple[float, float]  # estimated, on that input and on the other
    level: float  # about the bound of nine of ten tests, less the uncertainty of learning


def worst(p: _Array, q: _Array, limit: Limit, square: float) -> tuple[_Array, _Array]:
    """Return the pair that attains a bound ``square`` = (standard errors)**2 / runs away."""
    # Wilson's intervals approximate the exact ones: they are cheap, and only used to choose.
    # Rates of 0 and 1 are moved inside, to the centers of those intervals.
    inner = [(rate + 0.5 * square) / (1.0 + square) for rate in (p, q)]
    variances = [rate * (1.0 - rate) for rate in inner]
    part = limit.slope(*inner) ** 2 * variances[1]
    share = variances[0] / (variances[0] + part)

    def end(rate: _Array, part: _Array, sign: float) -> _Array:
        k = square * part
        return (rate + 0.5 * k + sign * np.sqrt(k * rate * (1.0 - rate) + 0.25 * k**2)) / (1.0 + k)

    return end(p, share, -1.0), end(q, 1.0 - share, 1.0)


def _merits(counts: tuple[_Array, _Array], size: int, goal: Goal) -> tuple[_Array, _Array]:
    """Return the merit of each event: a class, and a value to compare within the class.

    ``counts`` are those of ``size`` runs.

    - 3: nine of ten tests of the event will bound the level above the claim; the value is that
      bound. It is reduced by the uncertainty of the counts: otherwise the luckiest of thousands
      of events would win, which is a rare one.
    - 2: the event refutes the claim with probability above 1/2; the value is its distance from
      the claim's curve, in standard deviations of one run.
    - 1: nine of ten tests will bound the level above 0; the value is that bound.
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
    """Return about the level that nine of ten tests will bound, given rates in ``size`` runs."""
    errors = (max(goal.quantile, 0.0) + POWER) / math.sqrt(goal.runs) + charge / math.sqrt(size)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(goal.limit.level(*worst(p, q, goal.limit, errors**2)))


def _distances(p: _Array, q: _Array, size: int, goal: Goal) -> _Array:
    """Return each pair's distance above the claim's curve, in standard deviations of one run."""
    k = (_RATE_PSEUDOCOUNT + _WITH_FEW_RUNS / size) / size
    p, q = (p + 0.5 * k) / (1.0 + k), (q + 0.5 * k) / (1.0 + k)
    allowed = goal.limit.most(q, goal.claim)
    slope = goal.limit.slope(allowed, q)
    return np.asarray((p - allowed) / np.sqrt(p * (1.0 - p) + slope**2 * q * (1.0 - q)))


def learn_event(reader: Reader, first: Outcomes, second: Outcomes, goal: Goal) -> Choice:
    """Return the event with the highest merit."""
    # Score, threshold and direction are chosen by two-fold cross-validation: each half evaluates
    # the scores fitted to the other, and the winner is refitted to all runs. With very many runs
    # the first half is used for fitting only. Scores without parameters are evaluated on all runs.
    best, chosen = (-1, -math.inf), None
    for trial in _trials(first, second):
        for counts, make, size in (*_lines(trial), *_unions(trial, reader)):
            for side in (0, 1):
                pair = counts[side], counts[1 - side]
                classes, values = _merits(pair, size, goal)
                top = int(classes.max())
                place = int(np.argmax(np.where(classes == top, values, -math.inf)))
                # Simple events come first; a later one must be clearly better.
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
    """A score, the runs to which it was fitted and held-out runs, on both inputs."""

    score: Score | None
    fit: _Pair
    held: _Pair
    fit_scores: _Scores
    held_scores: _Scores


class _Trial(NamedTuple):
    """A score to try, in its final form, and the folds that evaluate it."""

    score: Score | None
    folds: list[_Fold]
    scores: _Scores | None  # of all runs, to evaluate a score without parameters


def _scores(score: Score | None, pair: _Pair) -> _Scores:
    return values_of(score, pair[0]), values_of(score, pair[1])


def _trials(first: Outcomes, second: Outcomes) -> Iterator[_Trial]:
    """Yield the scores, simple ones first."""
    half = len(first) // 2
    parts = [slice(None, half), slice(half, None)]
    places = [parts] if half > _CROSSED else [parts, parts[::-1]]
    folds = [((first[a], second[a]), (first[b], second[b])) for a, b in places]
    # With many runs, ranks are computed only once.
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


# Counts of many events on both inputs, a function index -> event, and the runs of each input.
_Family: TypeAlias = tuple[
    tuple[np.ndarray, np.ndarray], Callable[[int], "ThresholdEvent | CellsEvent"], int
]


def _lines(trial: _Trial) -> Iterator[_Family]:
    """Yield the families of events {score >= threshold} and {score < threshold}."""
    final = trial.score
    if final is None:
        return
    if trial.scores is not None:
        scores = trial.scores
    else:
        # Thresholds are chosen for standardized scores, then restored to the final score's unit.
        parts = []
        for fold in trial.folds:
            location, scale = unit_of(fold.score)
            parts.append([(x - location) / scale for x in fold.held_scores])
        scores = np.concatenate([x for x, _ in parts]), np.concatenate([y for _, y in parts])
    ordered = [np.sort(s[~np.isnan(s)]) for s in scores]
    thresholds = _thresholds(np.sort(np.concatenate(ordered), kind="stable"))
    if not thresholds.size:
        return
    below = [np.searchsorted(s, thresholds) for s in ordered]
    location, scale = unit_of(final)
    kept = thresholds if trial.scores is not None else location + scale * thresholds

    def line(above: bool) -> Callable[[int], ThresholdEvent]:
        return lambda place: ThresholdEvent(final, float(kept[place]), above)

    size = scores[0].size
    yield (below[0], below[1]), line(False), size
    yield (ordered[0].size - below[0], ordered[1].size - below[1]), line(True), size


def _thresholds(pooled: np.ndarray) -> np.ndarray:
    """Return thresholds from sorted values: quantiles, and many in both tails."""
    ranks = np.unique((1.4 ** np.arange(_TAIL_RANKS)).astype(np.int64))
    middle = np.linspace(0, pooled.size - 1, _THRESHOLDS).astype(np.int64)
    places = np.concatenate([ranks, middle, pooled.size - 1 - ranks])
    return np.unique(pooled[places[(places >= 0) & (places < pooled.size)]])


def _unions(trial: _Trial, reader: Reader) -> Iterator[_Family]:
    """Yield the families of events that the cell's learned log-ratio is large, or is not."""
    # In each fold, ratios are learned from one part and events are counted in the other.
    names = tuple(reader.name(code) for code in range(1, reader.atoms + 1))

    def learned(part: _Pair, scores: _Scores, pseudocount: float) -> Cells:
        codes = part[0].codes, part[1].codes
        return Cells.fit(scores, codes, reader.atoms, pseudocount=pseudocount)

    folds = trial.folds
    if len(folds) > 1:
        first, second = (Outcomes.join([fold.held[side] for fold in folds]) for side in (0, 1))
        scores = _scores(trial.score, (first, second))
    for pseudocount in _PSEUDOCOUNTS:
        parts = [learned(fold.fit, fold.fit_scores, pseudocount) for fold in folds]
        final = parts[0]
        if len(folds) > 1:
            # So a cell seen on one input only has the same ratio in all runs as in a half.
            final = learned((first, second), scores, pseudocount * len(folds))
        yield from _unions_of(trial.score, folds, parts, final, names)
        if final.repeated.size + len(names) < _MANY_CELLS:
            return  # all cells are frequent


def _unions_of(
    score: Score | None,
    folds: list[_Fold],
    parts: list[Cells],
    final: Cells,
    names: tuple[str, ...],
) -> Iterator[_Family]:
    """Yield unions of the final cells, with the counts of the folds' cells on held-out runs."""
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

    def union(large: bool) -> Callable[[int], CellsEvent]:
        def make(place: int) -> CellsEvent:
            # Ratios from more runs are less extreme, so ensure that at least one cell is included.
            level = levels[place]
            if known.size:
                level = min(level, known.max()) if large else max(level, known.min() + 2e-9)
            included = ((final.ratios >= level - 1e-9) == large) & allowed
            return CellsEvent(score, final, included, names)

        return make

    yield (above[0], above[1]), union(True), size
    below = total - above
    yield (below[0], below[1]), union(False), size


def _eligible(cells: Cells, score: Score | None, atoms: int) -> np.ndarray:
    """Return which cells may be in an event: all, or without a score only atoms that were seen."""
    eligible = np.ones(cells.ratios.size, dtype=bool)
    if score is None:
        eligible[: -1 - atoms] = eligible[-1] = False
    return eligible
