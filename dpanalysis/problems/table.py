"""A table of private numbers without a loss: what noisy quantiles are asked of."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..privacy.facts import PublicFacts
from .base import Problem
from .rows.checks import prepare

__all__ = ["Table"]


class Table(Problem):
    """Rows of numbers; queries read them, and methods that descend have nothing to do here.

    Parameters
    ----------
    X : array_like of shape (n, d)
        Finite numbers; a copy is kept.

    Examples
    --------
    >>> Table([[1.0], [2.0]]).facts("replace_one").n
    2
    """

    mu, L = 0.0, math.inf

    def __init__(self, X: Any) -> None:
        X, _ = prepare(np.array(X, dtype=np.float64), np.ones(len(X)), False)
        self.X = X
        self.n, self.d = X.shape

    def facts(self, relation: str) -> PublicFacts:
        """Return the sizes; no gradient is bounded."""
        return PublicFacts(self.n, self.d, self.mu, self.L, relation, (math.inf, math.inf))

    def gradient_sum(self, w: Any, rows: Any = None, clipping: Any = None) -> Any:
        """There is no loss: raise TypeError."""
        self._lacks("gradient")

    def value(self, w: Any) -> Any:
        """There is no loss: raise TypeError."""
        self._lacks("value")

    def gradient(self, w: Any) -> Any:
        """There is no loss: raise TypeError."""
        self._lacks("gradient")
