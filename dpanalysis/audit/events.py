"""Events that distinguish two inputs, the scores that define them, and the limits of a claim.

A score maps an outcome to a number that tends to be larger on one input. An event is a set of
outcomes defined by a score; it can be counted again and printed. A limit is a curve: the largest
probability p of an event on one input that a claim allows at probability q on the other. Both
curves here increase in q and in their level, which is all that :mod:`.counting` requires.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from .joint import Products
from .outcomes import Outcomes, Reader, as_batch

__all__ = [
    "ApproximateLimit",
    "Cells",
    "CellsEvent",
    "GaussianLimit",
    "Limit",
    "OutcomeEvent",
    "Score",
    "ThresholdEvent",
    "unit_of",
    "values_of",
]


class Score(Protocol):
    """A function that maps the numbers of each run's outcome to one number."""

    def __call__(self, values: np.ndarray) -> np.ndarray:
        """Map an array of shape (runs, k) to one of shape (runs,); NaN where undefined."""
        ...


def values_of(score: Score | None, outcomes: Outcomes) -> np.ndarray:
    """Return the score of every run, NaN for atoms; floating-point errors give no warnings."""
    if score is None:
        return np.full(len(outcomes), np.nan)
    with np.errstate(all="ignore"):
        return score(outcomes.values)


def unit_of(score: Score | None) -> tuple[float, float]:
    """Return the location and scale of a fitted score; log-ratios and log-odds need none."""
    return score.unit if isinstance(score, Linear) else (0.0, 1.0)


@dataclass(frozen=True)
class Coordinate:
    """One coordinate of the outcome."""

    index: int

    def __call__(self, values: np.ndarray) -> np.ndarray:
        return values[:, self.index]

    def __str__(self) -> str:
        return f"output[{self.index}]"


@dataclass(frozen=True)
class Norm:
    """The Euclidean norm, or the largest absolute, largest or smallest entry."""

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
    """A weighted sum of coordinates, to so many bits of its usual largest term (0: all)."""

    # The last bits of y - (y + 1) are those of the noise, which no claim covers.

    weights: np.ndarray
    index: np.ndarray
    unit: tuple[float, float] = (0.0, 1.0)  # location and scale, to compare separate fits
    bits: int = 0
    usual: float = 0.0

    def __call__(self, values: np.ndarray) -> np.ndarray:
        terms = values[:, self.index]
        total = terms @ self.weights
        if not self.bits:
            return total
        largest = np.maximum(self.usual, np.abs(terms * self.weights).max(axis=1))
        grid = np.ldexp(1.0, np.maximum(np.frexp(largest)[1] - self.bits, -1000))
        return np.rint(total / grid) * grid

    @classmethod
    def fit(cls, weights: np.ndarray, index: np.ndarray, terms: np.ndarray, *unit: float) -> Linear:
        """Learn from the coordinates how large terms are and how precise; integers are exact."""
        terms = terms[np.isfinite(terms).all(axis=1)]
        bits = 0 if (terms == np.rint(terms)).all() else 44
        with np.errstate(over="ignore"):
            if bits and (terms == terms.astype(np.float32)).all():
                bits = 17
        usual = float(np.quantile(np.abs(terms * weights).max(axis=1), 0.99)) if bits else 0.0
        return cls(weights, index, (unit[0], unit[1]) if unit else (0.0, 1.0), bits, usual)

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
    """A partition of the outcomes by a score: bins, repeated values, NaN, atoms, anything else."""

    edges: np.ndarray  # of the bins
    repeated: np.ndarray  # values that each form a cell
    ratios: np.ndarray  # estimated log-ratio of each cell

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
        pseudocount: float = 0.5,
    ) -> Cells:
        """Learn the cells from scores on the two inputs; a pseudocount is added to each count."""
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
        edges = np.unique(pooled[places[places > 0]])
        cells = cls(edges, repeated, np.zeros(edges.size + repeated.size + atoms + 3))
        first, second = (
            np.bincount(cells.index(s, c), minlength=cells.ratios.size)
            for s, c in zip(scores, codes)
        )
        ratios = np.log((first + pseudocount) / first.sum())
        ratios -= np.log((second + pseudocount) / second.sum())
        return cls(edges, repeated, np.where(first + second > 0, ratios, 0.0))


_OFTEN, _REPEATED = 5, 256  # fewest counts of a value that forms a cell, and most such values


def _repeated(ordered: np.ndarray) -> np.ndarray:
    """Return the repeated values (the most frequent if there are many) and infinite ones."""
    if not ordered.size:
        return ordered
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    counts = np.diff(np.append(starts, ordered.size))
    kept = np.flatnonzero((counts >= _OFTEN) | np.isinf(ordered[starts]))
    if kept.size > _REPEATED:
        kept = np.sort(kept[np.argsort(-counts[kept], kind="stable")[:_REPEATED]])
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
class LogisticScore:
    """Log-odds of a logistic regression on coordinates, their products and their log-ratios."""

    additive: Additive
    products: Products
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
        rest = self.products(values), self.additive(values)[:, None], np.ones((len(z), 1))
        return np.hstack([*columns, *rest])

    def __str__(self) -> str:
        return "learned classifier of the output"


@dataclass(frozen=True, eq=False)
class Trees:
    """Log-odds of scikit-learn's gradient-boosted trees on some coordinates and products."""

    index: np.ndarray
    products: Products
    model: Any

    def __call__(self, values: np.ndarray) -> np.ndarray:
        from threadpoolctl import threadpool_limits

        with threadpool_limits(1):
            features = np.hstack([bounded(values[:, self.index]), self.products(values)])
            return self.model.decision_function(features)

    def __str__(self) -> str:
        return "learned trees of the output"


def bounded(values: np.ndarray) -> np.ndarray:
    """Return the values with infinities clipped: trees accept NaN but not infinities."""
    return np.clip(values, -1e300, 1e300)


@dataclass(frozen=True, eq=False)
class Rows:
    """Learned log-ratio of the whole outcome, for outcomes that repeat; 0 for a new one."""

    table: dict[bytes, float]

    def __call__(self, values: np.ndarray) -> np.ndarray:
        get = self.table.get
        return np.array([get(key, 0.0) for key in row_keys(values)])

    def __str__(self) -> str:
        return "learned log-ratio of the whole output"

    def outcomes(self, threshold: float, above: bool) -> tuple[list[list[float]], bool]:
        """Return the outcomes on one side of a threshold, and whether new outcomes lie there."""
        rows = [
            np.frombuffer(key).tolist()
            for key, ratio in self.table.items()
            if (ratio >= threshold) == above
        ]
        return rows, (threshold <= 0.0) == above


def row_keys(values: np.ndarray) -> list[bytes]:
    """Return each row as bytes, equal for equal rows."""
    flat = np.ascontiguousarray(values + 0.0)  # -0.0 becomes 0.0
    keys = flat.view(np.dtype((np.void, flat.shape[1] * 8)))
    return [bytes(key) for key in keys.reshape(-1).tolist()]


# Events


_PIECES = 6  # most pieces of an event that are printed


@dataclass(frozen=True, eq=False)
class ThresholdEvent:
    """Outcomes whose score is at least, or less than, a threshold."""

    score: Score
    threshold: float
    above: bool

    def contains(self, outcomes: Outcomes) -> np.ndarray:
        """Return which runs lie in the event."""
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
class CellsEvent:
    """Outcomes that lie in some of the cells of a score."""

    score: Score | None
    cells: Cells
    included: np.ndarray
    names: tuple[str, ...]

    def contains(self, outcomes: Outcomes) -> np.ndarray:
        """Return which runs lie in the event."""
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


class OutcomeEvent:
    """A set of outcomes; calling it on outputs returns which of them it contains."""

    def __init__(self, test: ThresholdEvent | CellsEvent, reader: Reader) -> None:
        self._test, self._reader = test, reader

    def __call__(self, outputs: Any) -> np.ndarray:
        """Return whether each run's output lies in the event."""
        return self._test.contains(self._reader.read(as_batch(outputs, len(outputs))))

    def count(self, outcomes: Outcomes) -> int:
        """Return how many of the outcomes lie in the event."""
        return int(np.count_nonzero(self._test.contains(outcomes)))

    def __str__(self) -> str:
        return re.sub(r"output\[(\d+)\]", lambda m: self._reader.column(int(m[1])), str(self._test))

    def __repr__(self) -> str:
        return f"Event({self})"


# Limits


@dataclass(frozen=True)
class ApproximateLimit:
    """(epsilon, delta)-differential privacy: p <= e**epsilon q + delta."""

    delta: float

    def describe(self, level: float) -> str:
        """Return the description of a level."""
        return f"epsilon = {level:g} at delta = {self.delta:g}"

    def most(self, q: ArrayLike, level: ArrayLike) -> NDArray[np.float64]:
        """Return the largest p that is allowed."""
        return np.minimum(1.0, self.delta + np.exp(np.minimum(level, 700.0)) * np.asarray(q))

    def least(self, p: ArrayLike, level: ArrayLike) -> NDArray[np.float64]:
        """Return the smallest q at which p is allowed."""
        least = np.maximum(0.0, np.asarray(p) - self.delta) * np.exp(-np.asarray(level))
        return np.asarray(least, dtype=np.float64)

    def level(self, p: ArrayLike, q: ArrayLike) -> NDArray[np.float64]:
        """Return the smallest epsilon that allows the pair; -inf if every epsilon does."""
        with np.errstate(divide="ignore"):
            excess = np.log(np.maximum(0.0, np.asarray(p) - self.delta))
            return np.where(np.isneginf(excess), -np.inf, excess - np.log(q))

    def slope(self, p: ArrayLike, q: ArrayLike) -> NDArray[np.float64]:
        """Return the slope of the curve through the pair; 1 below the curve of epsilon = 0."""
        return np.maximum(1.0, (np.asarray(p) - self.delta) / np.maximum(q, 1e-300))


@dataclass(frozen=True)
class GaussianLimit:
    """mu-Gaussian differential privacy: p <= Phi(Phi^-1(q) + mu) (Dong, Roth, Su, 2022)."""

    def describe(self, level: float) -> str:
        """Return the description of a level."""
        return f"mu = {level:g}"

    def most(self, q: ArrayLike, level: ArrayLike) -> NDArray[np.float64]:
        """Return the largest p that is allowed."""
        return np.asarray(special.ndtr(special.ndtri(q) + level), dtype=np.float64)

    def least(self, p: ArrayLike, level: ArrayLike) -> NDArray[np.float64]:
        """Return the smallest q at which p is allowed."""
        return np.asarray(special.ndtr(special.ndtri(p) - level), dtype=np.float64)

    def level(self, p: ArrayLike, q: ArrayLike) -> NDArray[np.float64]:
        """Return the smallest mu that allows the pair; -inf if every mu does."""
        p, q = np.asarray(p), np.asarray(q)
        with np.errstate(invalid="ignore"):
            found = special.ndtri(p) - special.ndtri(q)
        return np.where((p <= 0.0) | (q >= 1.0), -np.inf, found)

    def slope(self, p: ArrayLike, q: ArrayLike) -> NDArray[np.float64]:
        """Return the slope of the curve through the pair."""
        return np.exp(0.5 * (special.ndtri(q) ** 2 - special.ndtri(p) ** 2))


Limit: TypeAlias = ApproximateLimit | GaussianLimit
