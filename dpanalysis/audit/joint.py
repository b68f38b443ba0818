"""Scores of several coordinates jointly: products and grids of pairs, and prefixes.

Coordinates may distinguish the inputs jointly though none of them does alone: by the sign of a
product, or by the order of answers. All pairs are compared by moments of ranks, and the few that
differ most get separate scores. An outcome that was hardly seen before is scored by its longest
prefix that is known better.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import special

__all__ = ["order_of", "pairs_of_coordinates", "ranked", "ranks"]

_RANKED = 1 << 21  # most entries of one input that are ranked
_COMPARED = 1 << 29  # most work for comparing all pairs: runs times squared number of coordinates
_WIDEST = 512  # most coordinates of which all pairs are compared
_BINS = 64  # bins of the ranks of a coordinate
_REPEATING = 64  # most values of a coordinate that prefixes use
_PRIOR = 4.0  # pseudocounts by which a prefix's log-ratio is shrunk to its parent's


def ranks(values: np.ndarray) -> np.ndarray:
    """Return the rank of each entry in its column, scaled to [-1, 1]; ties get the mean rank."""
    from scipy.stats import rankdata  # slow to import

    places = rankdata(np.nan_to_num(values, nan=np.inf), axis=0)
    return np.asarray((2.0 * places - 1.0) / len(values) - 1.0)


def ranked(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the pooled ranks of the entries on both inputs, for at most the first runs."""
    runs = max(1, min(len(first), len(second), _RANKED // max(1, first.shape[1])))
    found = ranks(np.concatenate([first[:runs], second[:runs]]))
    return found[:runs], found[runs:]


def order_of(sides: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Return the coordinates, those whose ranks differ most between the inputs first."""
    # By location, by spread and, since words have no order, by a histogram. If nothing differs,
    # each statistic has mean 0 or 1 and variance 2.
    runs, width = sides[0].shape
    found = np.zeros(width)
    for a, b in (sides, (sides[0] ** 2, sides[1] ** 2)):
        variance = np.maximum(a.var(axis=0) + b.var(axis=0), 1e-12)
        found += runs * (a.mean(axis=0) - b.mean(axis=0)) ** 2 / variance
    counts = []
    for side in sides:
        bins = np.minimum((0.5 * _BINS * (side + 1.0)).astype(np.int64), _BINS - 1)
        flat = (bins + _BINS * np.arange(width)).ravel()
        counts.append(np.bincount(flat, minlength=_BINS * width).reshape(width, _BINS))
    both = counts[0] + counts[1]
    squares = ((counts[0] - counts[1]) ** 2 / np.maximum(both, 1)).sum(axis=1)
    free = np.maximum((both > 0).sum(axis=1) - 1, 1)
    return np.argsort(-(found + (squares - free) / np.sqrt(free)), kind="stable")


def pairs_of_coordinates(
    sides: tuple[np.ndarray, np.ndarray], order: np.ndarray, most: int
) -> np.ndarray:
    """Return the pairs whose ranks, or their distances from the middle, covary most differently."""
    kept = np.sort(order[:_WIDEST])
    runs = max(2, min(len(sides[0]), _COMPARED // (4 * kept.size**2)))
    moments = []
    for side in sides:
        part = side[:runs, kept]
        features = np.hstack([part, part**2])
        features = (features - features.mean(axis=0)).astype(np.float32)
        scale = np.sqrt(np.mean(features**2, axis=0))
        features /= np.where(scale > 0.0, scale, 1.0)
        moments.append(features.T @ features)
    change = np.abs(moments[0] - moments[1])
    k = kept.size
    change = change.reshape(2, k, 2, k).max(axis=(0, 2))
    rows, columns = np.triu_indices(k, 1)
    best = np.argsort(-change[rows, columns], kind="stable")[:most]
    return np.stack([kept[rows[best]], kept[columns[best]]], axis=1)


@dataclass(frozen=True, eq=False)
class Products:
    """Products of pairs of coordinates, each first mapped into (-1, 1)."""

    pairs: np.ndarray  # (pairs, 2)
    center: np.ndarray  # of each coordinate of each pair
    spread: np.ndarray

    def __call__(self, values: np.ndarray) -> np.ndarray:
        """Map an array of shape (runs, k) to one of shape (runs, pairs)."""
        z = np.clip((values[:, self.pairs] - self.center) / self.spread, -1e9, 1e9)
        z /= 1.0 + np.abs(z)
        return z[:, :, 0] * z[:, :, 1]


@dataclass(frozen=True, eq=False)
class Product:
    """The product of two centered coordinates, which may be the same one."""

    pair: tuple[int, int]
    center: tuple[float, float]

    def __call__(self, values: np.ndarray) -> np.ndarray:
        i, j = self.pair
        return (values[:, i] - self.center[0]) * (values[:, j] - self.center[1])

    def __str__(self) -> str:
        factors = [
            f"(output[{place}] {'+' if at < 0.0 else '-'} {abs(at):.4g})"
            if at
            else f"output[{place}]"
            for place, at in zip(self.pair, self.center)
        ]
        return f"{factors[0]}**2" if factors[0] == factors[1] else " * ".join(factors)


@dataclass(frozen=True, eq=False)
class Grid:
    """Learned log-ratio of the cell in which two coordinates lie."""

    pair: tuple[int, int]
    edges: tuple[np.ndarray, np.ndarray]
    ratios: np.ndarray

    def __call__(self, values: np.ndarray) -> np.ndarray:
        return self.ratios[self.cells(values)]

    def cells(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the row and the column of each run's cell."""
        rows, columns = (_cells(values[:, j], at) for j, at in zip(self.pair, self.edges))
        return rows, columns

    def __str__(self) -> str:
        return f"learned log-ratio of (output[{self.pair[0]}], output[{self.pair[1]}])"

    @classmethod
    def fit(cls, first: np.ndarray, second: np.ndarray, pair: tuple[int, int]) -> Grid:
        """Learn the log-ratios of the cells."""
        pooled = np.concatenate([first[:, pair], second[:, pair]])
        # An even number, so that the median is an edge.
        bins = 2 * int(np.clip(0.25 * len(pooled) ** (1.0 / 3.0), 1.0, 8.0))
        levels = np.linspace(0.0, 1.0, bins + 1)[1:-1]
        edges = tuple(
            np.unique(np.quantile(column[~np.isnan(column)], levels, method="lower"))
            if not np.isnan(column).all()
            else np.zeros(0)
            for column in pooled.T
        )
        shape = edges[0].size + 2, edges[1].size + 2
        grid = cls(pair, (edges[0], edges[1]), np.zeros(shape))
        counts = [np.zeros(shape) for _ in range(2)]
        for count, part in zip(counts, (first, second)):
            np.add.at(count, grid.cells(part), 1.0)
        return cls(pair, grid.edges, np.log((counts[0] + 0.5) / (counts[1] + 0.5)))


def _cells(values: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Return the cell of each value; NaN lies in the last cell."""
    cells = np.searchsorted(edges, values, side="right")
    cells[np.isnan(values)] = edges.size + 1
    return cells


@dataclass(frozen=True, eq=False)
class Prefixes:
    """Log-ratio of the longest known prefix of repeating values, shrunk to that of its parents."""

    index: np.ndarray
    values: tuple[np.ndarray, ...]  # of each coordinate
    prefixes: tuple[np.ndarray, ...]  # parent * (number of values + 1) + index of the value
    ratios: tuple[np.ndarray, ...]

    def __call__(self, values: np.ndarray) -> np.ndarray:
        found, parent = np.zeros(len(values)), np.zeros(len(values), dtype=np.int64)
        for j, known, prefixes, ratios in zip(self.index, self.values, self.prefixes, self.ratios):
            prefix, seen = _extended(parent, values[:, j], known)
            place = np.minimum(np.searchsorted(prefixes, prefix), prefixes.size - 1)
            seen &= (prefixes[place] == prefix) & (parent >= 0)
            found = np.where(seen, ratios[place], found)
            parent = np.where(seen, place, -1)
        return found

    def __str__(self) -> str:
        return "learned log-ratio of the longest known prefix of the output"

    @classmethod
    def fit(cls, first: np.ndarray, second: np.ndarray) -> Prefixes | None:
        """Learn the prefixes' log-ratios; None if fewer than two coordinates repeat values."""
        pooled = np.concatenate([first, second])
        side = np.repeat([0, 1], [len(first), len(second)])
        parent, above = np.zeros(len(pooled), dtype=np.int64), np.zeros(1)
        parents = np.array([[len(first)], [len(second)]])
        levels = []
        for j in range(pooled.shape[1]):
            if parents.size > len(pooled):  # most prefixes occur only once
                break
            if not _few(pooled[:, j]):
                continue
            known = np.unique(pooled[:, j])
            known = known[~np.isnan(known)]
            prefix, _ = _extended(parent, pooled[:, j], known)
            prefixes, parent = np.unique(prefix, return_inverse=True)
            counts = np.stack([np.bincount(parent[side == s], None, prefixes.size) for s in (0, 1)])
            up = prefixes // (known.size + 1)
            prior = _PRIOR * special.expit(above[up])
            learned = np.log(counts[0] + prior) - np.log(counts[1] + _PRIOR - prior)
            # A prefix with the same counts as its parent adds no information.
            above = np.where((counts == parents[:, up]).all(axis=0), above[up], learned)
            levels.append((j, known, prefixes, above))
            parents = counts
        if len(levels) < 2:
            return None
        index, values, learned_prefixes, ratios = zip(*levels)
        return cls(np.array(index), values, learned_prefixes, ratios)


def _few(column: np.ndarray) -> bool:
    """Return whether a coordinate takes few values, but more than one."""
    if np.unique(column[:1_000]).size > _REPEATING:  # the common case, and cheap
        return False
    return 1 < np.unique(column).size <= _REPEATING


def _extended(
    parent: np.ndarray, column: np.ndarray, known: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the prefixes extended by the next value (NaN is the last), and whether it is known."""
    place = np.minimum(np.searchsorted(known, column), known.size - 1)
    missing = np.isnan(column)
    seen = (known[place] == column) | missing
    return parent * (known.size + 1) + np.where(missing, known.size, place), seen
