"""Scores of an outcome: numbers that tend to be larger on one input than on the other.

All of them are learned from samples that the bound does not use, so none needs to be right.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Protocol

import numpy as np
from scipy import special

from .outcomes import Outcomes

__all__ = ["Cells", "Score", "candidates", "values_of"]

_COORDINATES = 16  # coordinates tried on their own
_PAIRS = 6  # up to this dimension, differences of all pairs are tried too
_LEARNED = 32  # coordinates that the learned scores use
_LINEAR = 512  # coordinates that the linear scores use; covariances are (k, k)
_TREES = 1_000  # runs of each input without which trees are not grown
_FITTED = 20_000  # runs of each input that the learned scores are fitted to


class Score(Protocol):
    """A number for each run, from the numbers of its outcome."""

    def __call__(self, values: np.ndarray) -> np.ndarray:
        """Map an array of shape (runs, k) to one of shape (runs,); NaN where undefined."""
        ...


def values_of(score: Score | None, outcomes: Outcomes) -> np.ndarray:
    """Return the score of every run, NaN for atoms; floating-point errors become NaN quietly."""
    if score is None:
        return np.full(len(outcomes), np.nan)
    with np.errstate(all="ignore"):
        return score(outcomes.values)


@dataclass(frozen=True)
class Coordinate:
    """One number of the outcome."""

    index: int
    alone: bool = False

    def __call__(self, values: np.ndarray) -> np.ndarray:
        return values[:, self.index]

    def __str__(self) -> str:
        return "output" if self.alone else f"output[{self.index}]"


@dataclass(frozen=True)
class Norm:
    """Euclidean, or largest absolute, or largest, or smallest entry."""

    kind: str

    def __call__(self, values: np.ndarray) -> np.ndarray:
        if self.kind == "norm":
            return np.sqrt(np.einsum("ij,ij->i", values, values))
        if self.kind == "max |.|":
            return np.abs(values).max(axis=1)
        return values.max(axis=1) if self.kind == "max" else values.min(axis=1)

    def __str__(self) -> str:
        return "max |output|" if self.kind == "max |.|" else f"{self.kind}(output)"


@dataclass(frozen=True, eq=False)
class Linear:
    """A weighted sum of coordinates."""

    weights: np.ndarray
    index: np.ndarray

    def __call__(self, values: np.ndarray) -> np.ndarray:
        return values[:, self.index] @ self.weights

    def __str__(self) -> str:
        order = np.argsort(-np.abs(self.weights), kind="stable")
        order = order[self.weights[order] != 0.0]
        text = ""
        for i in order[:4]:
            size = "" if abs(self.weights[i]) == 1.0 else f"{abs(self.weights[i]):.4g} "
            text += f" {'-' if self.weights[i] < 0.0 else '+'} {size}output[{self.index[i]}]"
        return text.removeprefix(" + ").strip() + f" + ... ({order.size} terms)" * (order.size > 4)


@dataclass(frozen=True, eq=False)
class Cells:
    """A partition of the outcomes by a score: repeated values, bins, NaN, and the atoms.

    Attributes
    ----------
    edges, repeated : ndarray
        Borders of the bins; values that are cells of their own.
    ratios : ndarray
        Estimated log-ratio of the cells' probabilities on the two inputs: first the bins, then
        the repeated values, NaN, the atoms, and last whatever was not seen.
    """

    edges: np.ndarray
    repeated: np.ndarray
    ratios: np.ndarray

    def index(self, scores: np.ndarray, codes: np.ndarray | None) -> np.ndarray:
        """Return the cell of every run."""
        cells = np.searchsorted(self.edges, scores, side="right")
        bins = self.edges.size + 1
        if self.repeated.size:
            place = np.minimum(np.searchsorted(self.repeated, scores), self.repeated.size - 1)
            cells = np.where(self.repeated[place] == scores, bins + place, cells)
        first_atom = bins + self.repeated.size
        cells[np.isnan(scores)] = first_atom
        if codes is not None:
            coded = codes > 0
            cells[coded] = np.minimum(first_atom + codes[coded], self.ratios.size - 1)
        return cells

    @classmethod
    def fit(
        cls,
        scores: tuple[np.ndarray, np.ndarray],
        codes: tuple[np.ndarray | None, np.ndarray | None],
        atoms: int,
        bins: int = 64,
        more: float = 0.5,
    ) -> Cells:
        """Learn the cells from the scores on the two inputs.

        ``more`` counts are added to each: a cell without samples says nothing.
        """
        pooled = np.concatenate(scores)
        pooled = np.sort(pooled[~np.isnan(pooled)])
        repeated = _repeated(pooled)
        if repeated.size:
            place = np.minimum(np.searchsorted(repeated, pooled), repeated.size - 1)
            pooled = pooled[repeated[place] != pooled]
        levels = np.linspace(0.0, 1.0, bins + 1)[1:-1]
        tails = np.array([1e-4, 1e-3, 5e-3])
        levels = np.concatenate([tails, levels, 1.0 - tails])
        places = np.unique((levels * pooled.size).astype(np.int64))
        edges = np.unique(pooled[places[places > 0]]) if pooled.size > 1 else pooled
        cells = cls(edges, repeated, np.zeros(edges.size + repeated.size + atoms + 3))
        first, second = (
            np.bincount(cells.index(s, c), minlength=cells.ratios.size)
            for s, c in zip(scores, codes)
        )
        ratios = np.log((first + more) / first.sum()) - np.log((second + more) / second.sum())
        return cls(edges, repeated, np.where(first + second > 0, ratios, 0.0))


def _repeated(ordered: np.ndarray, least: int = 5, most: int = 256) -> np.ndarray:
    """Return the values that repeat, the most frequent ones if many, and every infinite one."""
    if not ordered.size:
        return ordered
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    counts = np.diff(np.append(starts, ordered.size))
    kept = np.flatnonzero((counts >= least) | np.isinf(ordered[starts]))
    if kept.size > most:
        kept = np.sort(kept[np.argsort(-counts[kept], kind="stable")[:most]])
    return ordered[starts[kept]]


@dataclass(frozen=True, eq=False)
class Additive:
    """Sum over coordinates of their cells' log-ratios: exact for independent coordinates."""

    index: np.ndarray
    cells: tuple[Cells, ...]

    def __call__(self, values: np.ndarray) -> np.ndarray:
        total = np.zeros(len(values))
        for j, cells in zip(self.index, self.cells):
            total += cells.ratios[cells.index(values[:, j], None)]
        return total

    def __str__(self) -> str:
        return "sum of the learned log-ratios of the coordinates"


@dataclass(frozen=True, eq=False)
class Logistic:
    """Log-odds of a logistic regression on coordinates, their products and their log-ratios."""

    additive: Additive
    center: np.ndarray
    spread: np.ndarray
    weights: np.ndarray

    def __call__(self, values: np.ndarray) -> np.ndarray:
        return self.features(values) @ self.weights

    def features(self, values: np.ndarray) -> np.ndarray:
        z = (values[:, self.additive.index] - self.center) / self.spread
        z = np.clip(z, -10.0, 10.0)
        k = z.shape[1]
        pairs = combinations(range(k), 2) if k <= 8 else ()
        columns = [z, z * z, *(z[:, [i]] * z[:, [j]] for i, j in pairs)]
        return np.hstack([*columns, self.additive(values)[:, None], np.ones((len(z), 1))])

    def __str__(self) -> str:
        return "learned classifier of the output"


@dataclass(frozen=True, eq=False)
class Trees:
    """Log-odds of scikit-learn's gradient-boosted trees on some coordinates."""

    index: np.ndarray
    model: Any

    def __call__(self, values: np.ndarray) -> np.ndarray:
        from threadpoolctl import threadpool_limits

        with threadpool_limits(1):
            return self.model.decision_function(_bounded(values[:, self.index]))

    def __str__(self) -> str:
        return "learned trees of the output"


def _bounded(values: np.ndarray) -> np.ndarray:
    """Return the values without infinite ones, which the trees refuse; NaN they take."""
    return np.clip(values, -1e300, 1e300)


@dataclass(frozen=True, eq=False)
class Rows:
    """Learned log-ratio of the whole outcome, where outcomes repeat."""

    table: dict[bytes, float]

    def __call__(self, values: np.ndarray) -> np.ndarray:
        get = self.table.get
        return np.array([get(key, 0.0) for key in _row_keys(values)])

    def __str__(self) -> str:
        return "learned log-ratio of the whole output"

    def outcomes(self, threshold: float, above: bool) -> tuple[list[list[float]], bool]:
        """Return the outcomes on one side of a threshold, and whether new ones lie there."""
        rows = [
            np.frombuffer(key).tolist()
            for key, ratio in self.table.items()
            if (ratio >= threshold) == above
        ]
        return rows, (threshold <= 0.0) == above


def _row_keys(values: np.ndarray) -> list[bytes]:
    flat = np.ascontiguousarray(values + 0.0)  # -0.0 and 0.0 are one outcome
    keys = flat.view(np.dtype((np.void, flat.shape[1] * 8)))
    return [bytes(key) for key in keys.reshape(-1).tolist()]


def candidates(first: Outcomes, second: Outcomes) -> list[Score | None]:
    """Return scores to try, simple ones first; None stands for the atoms alone."""
    width = first.values.shape[1]
    scores: list[Score | None] = []
    if first.codes is not None or second.codes is not None:
        scores.append(None)
    if width <= 1:
        return scores + [Coordinate(0, alone=True)] * width
    first, second = first[:_FITTED], second[:_FITTED]
    plain = first.values[first.plain], second.values[second.plain]
    rows = _rows(first, second)
    scores += rows
    with np.errstate(all="ignore"):
        order = _order(first.values, second.values)
        scores += [Coordinate(int(j)) for j in order[:_COORDINATES]]
        if width <= _PAIRS:
            signs = np.array([1.0, -1.0])
            scores += [Linear(signs, np.array(pair)) for pair in combinations(range(width), 2)]
        scores += [Norm(kind) for kind in ("norm", "max |.|", "max", "min")]
        additive = _additive(first.values, second.values, order[:_LEARNED])
        if min(map(len, plain)) > 1:
            scores += _linear(plain, np.sort(order[:_LINEAR]))
            scores += [additive, _logistic(plain, additive)]
            if not rows:  # where outcomes repeat, their table says it all
                scores += _trees(first, second, additive.index)
        else:
            scores.append(additive)
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


def _linear(plain: tuple[np.ndarray, np.ndarray], index: np.ndarray) -> Iterator[Linear]:
    """Yield the difference of the means, plain and whitened (Fisher's discriminant)."""
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
    for weights in (shift / spread, whitened / spread):
        length = np.linalg.norm(weights)
        if np.isfinite(length) and length > 0.0:
            yield Linear(weights / length, index)


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


def _trees(first: Outcomes, second: Outcomes, index: np.ndarray) -> Iterator[Trees]:
    """Yield gradient-boosted trees, where scikit-learn is installed and the runs are enough."""
    if len(first) < _TREES or importlib.util.find_spec("sklearn") is None:
        return
    from sklearn.ensemble import HistGradientBoostingClassifier  # heavy, and not required
    from threadpoolctl import threadpool_limits

    values = _bounded(np.concatenate([first.values, second.values])[:, index])
    label = np.repeat([1, 0], [len(first), len(second)])
    model = HistGradientBoostingClassifier(
        max_iter=30, max_leaf_nodes=15, min_samples_leaf=40, early_stopping=False, random_state=0
    )
    with threadpool_limits(1):  # more do not pay for so few runs, and wait for one another
        model.fit(values, label)
    yield Trees(index, model)


def _rows(first: Outcomes, second: Outcomes) -> list[Rows]:
    """Return the score of whole outcomes, or none where most outcomes are seen once."""
    counts: dict[bytes, list[int]] = {}
    for side, outcomes in enumerate((first, second)):
        values = outcomes.values
        if outcomes.codes is not None:
            values = values[outcomes.codes == 0]
        for key in _row_keys(values):
            counts.setdefault(key, [0, 0])[side] += 1
    if not counts or len(counts) > 0.5 * (len(first) + len(second)):
        return []
    return [Rows({key: math.log((a + 0.5) / (b + 0.5)) for key, (a, b) in counts.items()})]
