"""The scores to try: some as they are, others learned from runs on the two inputs.

Whatever is learned here is counted in other runs, so none of it needs to be right.
"""

from __future__ import annotations

import importlib.util
import math
from itertools import combinations

import numpy as np
from scipy import special

from .outcomes import Outcomes
from .scores import (
    Additive,
    Cells,
    Coordinate,
    Linear,
    Logistic,
    Norm,
    Rows,
    Score,
    Trees,
    Unit,
    bounded,
    row_keys,
)

__all__ = ["fitted_scores", "fixed_scores"]

_COORDINATES = 16  # coordinates tried on their own
_PAIRS = 6  # up to this dimension, differences of all pairs are tried too
_LEARNED = 32  # coordinates that the learned scores use
_LINEAR = 512  # coordinates that the linear scores use; covariances are (k, k)
_TREES = 1_000  # runs of each input without which trees are not grown
_FITTED = 20_000  # runs of each input that the learned scores are fitted to


def fixed_scores(first: Outcomes, second: Outcomes) -> list[Score | None]:
    """Return scores without parameters to try; None stands for the atoms alone."""
    width = first.values.shape[1]
    scores: list[Score | None] = []
    if first.codes is not None or second.codes is not None:
        scores.append(None)
    if width <= 1:
        return scores + [Coordinate(0, alone=True)] * width
    with np.errstate(all="ignore"):
        order = _order(first.values[:_FITTED], second.values[:_FITTED])
    scores += [Coordinate(int(j)) for j in order[:_COORDINATES]]
    if width <= _PAIRS:
        signs = np.array([1.0, -1.0])
        scores += [Linear(signs, np.array(pair)) for pair in combinations(range(width), 2)]
    return scores + [Norm(kind) for kind in ("norm", "max |.|", "max", "min")]


def fitted_scores(first: Outcomes, second: Outcomes) -> dict[str, Score]:
    """Return scores learned from runs on the two inputs, by the name of the way to learn them."""
    if first.values.shape[1] <= 1:
        return {}
    first, second = first[:_FITTED], second[:_FITTED]
    plain = first.values[first.plain], second.values[second.plain]
    scores: dict[str, Score] = {}
    rows = _rows(first, second)
    if rows is not None:
        scores["rows"] = rows
    with np.errstate(all="ignore"):
        order = _order(first.values, second.values)
        additive = _additive(first.values, second.values, order[:_LEARNED])
        if min(map(len, plain)) > 1:
            scores |= _linear(plain, np.sort(order[:_LINEAR]))
        scores["additive"] = additive
        if min(map(len, plain)) > 1:
            scores["logistic"] = _logistic(plain, additive)
            if rows is None and (trees := _trees(first, second, additive.index)) is not None:
                scores["trees"] = trees  # where outcomes repeat, their table says it all
    return scores


def _order(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the coordinates, those that differ most between the inputs first."""
    if first.shape[1] <= _COORDINATES:
        return np.arange(first.shape[1])
    ranks = np.nan_to_num(np.concatenate([first, second]), nan=np.inf).argsort(axis=0)
    ranks = ranks.argsort(axis=0) / len(ranks) - 0.5
    # Moments of the ranks: differences of location, then of spread.
    moments = [np.abs(m[: len(first)].mean(0) - m[len(first) :].mean(0)) for m in (ranks, ranks**2)]
    return np.argsort(-(moments[0] + 2.0 * moments[1]), kind="stable")


def _linear(plain: tuple[np.ndarray, np.ndarray], index: np.ndarray) -> dict[str, Score]:
    """Return the difference of the means, plain and whitened (Fisher's discriminant)."""
    first, second = plain[0][:, index], plain[1][:, index]
    # Medians and clipping: the means of heavy tails tell nothing.
    pooled = np.concatenate([first, second])
    center = np.median(pooled, axis=0)
    spread = _spread(pooled, center)
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
            along = pooled @ weights
            middle = np.median(along)
            unit = Unit(float(middle), float(_spread(along[:, None], middle)[0]))
            scores[name] = Linear(weights, index, unit)
    return scores


def _spread(values: np.ndarray, center: np.ndarray) -> np.ndarray:
    """Return a scale of each coordinate, 1 for one that hardly varies."""
    spread = np.quantile(np.abs(values - center), 0.75, axis=0)
    return np.where((spread > 0.0) & np.isfinite(spread), spread, 1.0)


def _additive(first: np.ndarray, second: np.ndarray, index: np.ndarray) -> Additive:
    cells = tuple(Cells.fit((first[:, j], second[:, j]), (None, None), 0, bins=32) for j in index)
    return Additive(index, cells)


def _logistic(plain: tuple[np.ndarray, np.ndarray], additive: Additive) -> Logistic:
    """Fit by Newton's method with a small ridge."""
    values = np.concatenate(plain)
    label = np.repeat([1.0, 0.0], [len(part) for part in plain])
    kept = values[:, additive.index]
    center = np.median(kept, axis=0)
    model = Logistic(additive, center, _spread(kept, center), np.zeros(0))
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
    return Logistic(additive, center, model.spread, weights)


def _trees(first: Outcomes, second: Outcomes, index: np.ndarray) -> Trees | None:
    """Return gradient-boosted trees, where scikit-learn is installed and the runs are enough."""
    if len(first) < _TREES or importlib.util.find_spec("sklearn") is None:
        return None
    from sklearn.ensemble import HistGradientBoostingClassifier  # heavy, and not required
    from threadpoolctl import threadpool_limits

    values = bounded(np.concatenate([first.values, second.values])[:, index])
    label = np.repeat([1, 0], [len(first), len(second)])
    model = HistGradientBoostingClassifier(
        max_iter=30, max_leaf_nodes=15, min_samples_leaf=40, early_stopping=False, random_state=0
    )
    with threadpool_limits(1):  # more do not pay for so few runs, and wait for one another
        model.fit(values, label)
    return Trees(index, model)


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
