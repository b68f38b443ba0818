"""A table of private numbers without a loss: what noisy quantiles are asked of."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..privacy.facts import MOST_ROWS, PublicFacts, check_size
from .base import Problem
from .rows.checks import prepare

__all__ = ["ColumnTable"]


class ColumnTable(Problem):
    """Rows of numbers (n, d) without a loss: queries read them, and no method descends on them.

    A copy of the finite numbers is kept. ``size`` is the public nominal size; by default n, which
    is then stated to be public.
    """

    mu, L = 0.0, math.inf

    def __init__(self, X: Any, size: int | None = None) -> None:
        X, _ = prepare(np.array(X, dtype=np.float64), np.ones(len(X)), False)
        self.X = X
        self.n, self.d = X.shape
        self._size = None if size is None else check_size(size, self.n)

    def facts(self, relation: str) -> PublicFacts:
        """Return the sizes; no gradient is bounded."""
        n, most = self.n, None
        if self._size is not None:
            n, most = self._size, MOST_ROWS * self._size
        none = (math.inf, math.inf)
        return PublicFacts(n, self.d, self.mu, self.L, relation, none, max_records=most)

    def gradient_sum(self, w: Any, rows: Any = None, clipping: Any = None) -> Any:
        """There is no loss: raise TypeError."""
        self._lacks("gradient")

    def value(self, w: Any) -> Any:
        """There is no loss: raise TypeError."""
        self._lacks("value")

    def gradient(self, w: Any) -> Any:
        """There is no loss: raise TypeError."""
        self._lacks("gradient")
