"""Scores of an outcome: numbers that tend to be larger on one input than on the other."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any, Protocol

import numpy as np

from .outcomes import Outcomes

__all__ = ["Cells", "Score", "unit_of", "values_of"]


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


def unit_of(score: Score | None) -> Unit:
    """Return the unit of a fitted score; log-ratios and log-odds need none."""
    return score.unit if isinstance(score, Linear) else Unit()


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


@dataclass(frozen=True)
class Unit:
    """Where a score has its middle, and how far it spreads: so scores fitted apart compare."""

    middle: float = 0.0
    spread: float = 1.0

    def less(self, scores: np.ndarray) -> np.ndarray:
        """Return scores without the unit."""
        return (scores - self.middle) / self.spread

    def more(self, scores: np.ndarray) -> np.ndarray:
        """Return scores with the unit."""
        return self.middle + self.spread * scores


@dataclass(frozen=True, eq=False)
class Linear:
    """A weighted sum of coordinates."""

    weights: np.ndarray
    index: np.ndarray
    unit: Unit = Unit()

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
            return self.model.decision_function(bounded(values[:, self.index]))

    def __str__(self) -> str:
        return "learned trees of the output"


def bounded(values: np.ndarray) -> np.ndarray:
    """Return the values without infinite ones, which the trees refuse; NaN they take."""
    return np.clip(values, -1e300, 1e300)


@dataclass(frozen=True, eq=False)
class Rows:
    """Learned log-ratio of the whole outcome, where outcomes repeat."""

    table: dict[bytes, float]

    def __call__(self, values: np.ndarray) -> np.ndarray:
        get = self.table.get
        return np.array([get(key, 0.0) for key in row_keys(values)])

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


def row_keys(values: np.ndarray) -> list[bytes]:
    """Return each row as bytes: equal rows have equal ones."""
    flat = np.ascontiguousarray(values + 0.0)  # -0.0 and 0.0 are one outcome
    keys = flat.view(np.dtype((np.void, flat.shape[1] * 8)))
    return [bytes(key) for key in keys.reshape(-1).tolist()]
