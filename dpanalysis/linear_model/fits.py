"""Detection of repeated fits on the same records within one process.

A record used by several fits is charged for each of them (basic composition). The data of a fit are
remembered as two small sketches, of the rows and of the columns; values cannot be recovered from
them without the secret key of this process.
"""

from __future__ import annotations

import math
import secrets
import threading
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..preprocessing.columns import LearnedRanges
from ..privacy.accounting.relations import directed

_KEPT = 512  # digests per sketch
_TABLES = 256  # tables that a process remembers
_ROWS, _COLUMNS = 0.1, 0.5  # least shares in common to count as the same records
_BLOCK = 1 << 15  # entries hashed at a time, so that they stay in cache
_OF_ROWS = 1 << 40  # index of the first row key; smaller indices are column keys
_KEY = np.uint64(secrets.randbits(64))
_ODD = np.uint64(0x9E3779B97F4A7C15)


def _mixed(words: np.ndarray) -> np.ndarray:
    """Return keyed splitmix64 of unsigned integers, a bijection mixing all bits (Vigna 2015)."""
    words = words + _KEY
    words ^= words >> np.uint64(30)
    words *= np.uint64(0xBF58476D1CE4E5B9)
    words ^= words >> np.uint64(27)
    words *= np.uint64(0x94D049BB133111EB)
    words ^= words >> np.uint64(31)
    return words


def _keys(count: int, first: int = 0) -> np.ndarray:
    """Return the odd keys number ``first`` to ``first + count - 1`` of this process."""
    return _mixed(np.arange(first, first + count, dtype=np.uint64) * _ODD) | np.uint64(1)


def _words(values: np.ndarray) -> np.ndarray:
    """Return a hash of every number, equal for 0 and -0 and for both precisions."""
    return _mixed((np.ascontiguousarray(values, dtype=np.float64) + 0.0).view(np.uint64))


@dataclass(frozen=True)
class Sketch:
    """Bottom-k sketches of the distinct rows and columns of a table, and the sum of row digests."""

    n: int
    total: int  # sum of the digests of all rows, whatever their order
    distinct: int  # number of distinct rows
    rows: np.ndarray
    columns: np.ndarray  # of the columns that are not constant

    def shares(self, other: Sketch, within: bool) -> bool:
        """Return whether two tables have rows in common, or columns of the same rows."""
        # Where rows repeat, equal rows need not be the same records: then the tables must be equal,
        # or belong to one ensemble or search (``within``).
        if (self.n, self.total) == (other.n, other.total):
            return True
        if self.n == other.n and _common(self.columns, other.columns, False) >= _COLUMNS:
            return True
        # Of the smaller table it would tell whether a table has the one row of an earlier one.
        mostly_distinct = all(2 * each.distinct >= each.n for each in (self, other))
        return (within or mostly_distinct) and _common(self.rows, other.rows, True) >= _ROWS


def _common(first: np.ndarray, second: np.ndarray, larger: bool) -> float:
    """Estimate, from bottom-k sketches, the share of one set that is in the other.

    It is the ``larger`` set, or the smaller one. Below the smaller of the two largest digests, both
    sketches are complete.
    """
    ends = [each[-1] for each in (first, second) if len(each) == _KEPT]
    if ends:
        first, second = (each[each <= min(ends)] for each in (first, second))
    size = (max if larger else min)(len(first), len(second))
    return len(np.intersect1d(first, second, assume_unique=True)) / size if size else 0.0


def _least(digests: np.ndarray) -> np.ndarray:
    """Return the smallest of some sorted digests, without keeping the others in memory."""
    return digests[:_KEPT].copy()


def sketch(X: Any) -> Sketch:
    """Return the sketch of an array or a CSR matrix."""
    n, d = X.shape
    across, rows, down = _keys(d), np.empty(n, np.uint64), np.zeros(d, np.uint64)
    varies = np.zeros(d, dtype=bool)
    if sp.issparse(X):
        words = _words(X.data)
        ends = np.concatenate([[np.uint64(0)], np.cumsum(words * across[X.indices])])
        rows[:] = ends[X.indptr[1:]] - ends[X.indptr[:-1]]  # modulo 2**64, as are the sums
        np.add.at(down, X.indices, words * np.repeat(_keys(n, _OF_ROWS), np.diff(X.indptr)))
        varies[X.indices] = True
    else:
        step = max(1, _BLOCK // max(d, 1))
        first = _words(X[:1])
        for lo in range(0, n, step):
            words = _words(X[lo : lo + step])
            rows[lo : lo + step] = words @ across
            down += _keys(len(words), _OF_ROWS + lo) @ words
            varies |= (words != first).any(axis=0)
    rows = _mixed(rows)
    different = np.unique(rows)
    columns = _least(np.unique(_mixed(down[varies])))
    return Sketch(n, int(rows.sum()), len(different), _least(different), columns)


# The fits of this process


@dataclass
class Spent:
    """Privacy cost of the fits on one table."""

    table: Sketch
    fits: int = 0
    epsilon: float = 0.0  # excluding learned ranges, which several fits may share
    delta: float = 0.0
    learned: set[LearnedRanges] = field(default_factory=set)
    seeds: set[Any] = field(default_factory=set)  # states of the sources that were given
    same_seed: bool = False  # whether two fits had one of them

    def add(self, other: Spent) -> None:
        """Add the fits of ``other``."""
        self.same_seed |= other.same_seed or bool(self.seeds & other.seeds)
        self.seeds |= other.seeds
        self.fits += other.fits
        self.epsilon += other.epsilon
        self.delta += other.delta
        self.learned |= other.learned

    def __str__(self) -> str:
        epsilon = self.epsilon + math.fsum(each.epsilon for each in self.learned)
        delta = f", delta = {directed(self.delta, 3)}" if self.delta else ""
        return f"epsilon = {directed(epsilon, 6)}{delta}"


class Fits:
    """Thread-safe record of the most recently fitted tables and what was spent on each."""

    def __init__(self) -> None:
        self._tables: list[Spent] = []
        self._lock = threading.Lock()

    def on(self, table: Sketch, within: bool) -> Spent:
        """Return the cost of all fits that share rows with a table; see :meth:`Sketch.shares`."""
        found = Spent(table)
        for each in self._tables:
            if each.table.shares(table, within):
                found.add(each)
        return found

    def spend(self, cost: Spent) -> None:
        """Record a fit."""
        with self._lock:
            same = [each for each in self._tables if _equal(each.table, cost.table)]
            if same:
                same[0].add(cost)
            else:
                self._tables = [*self._tables[1 - _TABLES :], cost]


def _equal(first: Sketch, second: Sketch) -> bool:
    return (first.n, first.total) == (second.n, second.total) and np.array_equal(
        first.columns, second.columns
    )


#: The fits of this process; joblib workers in other processes have their own.
PROCESS = Fits()
