"""What a claim allows: how probable an event may be on one input, given how probable on the other.

Both curves rise in q and in their level, so that what a level allows is allowed by every larger
one. :mod:`.joint` asks for no more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

__all__ = ["ApproximateLimit", "GaussianLimit", "Limit"]


class Limit(Protocol):
    """A family of curves p <= most(q, level), from the level 0 on; a value, which can be hashed."""

    def __hash__(self) -> int:
        """Return the same for equal families."""
        ...

    def describe(self, level: float) -> str:
        """Return a level in words."""
        ...

    def most(self, q: ArrayLike, level: ArrayLike) -> NDArray[np.float64]:
        """Return the largest p that is allowed."""
        ...

    def least(self, p: ArrayLike, level: ArrayLike) -> NDArray[np.float64]:
        """Return the smallest q at which p is allowed."""
        ...

    def level(self, p: ArrayLike, q: ArrayLike) -> NDArray[np.float64]:
        """Return the smallest level that allows the pair; -inf where every one does."""
        ...

    def slope(self, p: ArrayLike, q: ArrayLike) -> NDArray[np.float64]:
        """Return the slope of the curve through the pair."""
        ...


@dataclass(frozen=True)
class ApproximateLimit:
    """(epsilon, delta)-differential privacy: p <= e**epsilon q + delta.

    Examples
    --------
    >>> limit = ApproximateLimit(delta=0.1)
    >>> float(limit.most(0.2, 0.0)), float(limit.level(0.6, 0.25))
    (0.3, 0.69315)
    """

    delta: float

    def describe(self, level: float) -> str:
        """Return a level in words."""
        return f"epsilon = {level:g} at delta = {self.delta:g}"

    def most(self, q: ArrayLike, level: ArrayLike) -> NDArray[np.float64]:
        """Return the largest p that is allowed."""
        return np.minimum(1.0, self.delta + np.exp(np.minimum(level, 700.0)) * np.asarray(q))

    def least(self, p: ArrayLike, level: ArrayLike) -> NDArray[np.float64]:
        """Return the smallest q at which p is allowed."""
        least = np.maximum(0.0, np.asarray(p) - self.delta) * np.exp(-np.asarray(level))
        return np.asarray(least, dtype=np.float64)

    def level(self, p: ArrayLike, q: ArrayLike) -> NDArray[np.float64]:
        """Return the smallest epsilon that allows the pair; -inf where every one does."""
        with np.errstate(divide="ignore"):
            excess = np.log(np.maximum(0.0, np.asarray(p) - self.delta))
            return np.where(np.isneginf(excess), -np.inf, excess - np.log(q))

    def slope(self, p: ArrayLike, q: ArrayLike) -> NDArray[np.float64]:
        """Return the slope of the curve through the pair; 1 below the curve of epsilon = 0."""
        return np.maximum(1.0, (np.asarray(p) - self.delta) / np.maximum(q, 1e-300))


@dataclass(frozen=True)
class GaussianLimit:
    """mu-Gaussian differential privacy: p <= Phi(Phi^-1(q) + mu) (Dong, Roth, Su, 2022).

    Examples
    --------
    >>> float(GaussianLimit().most(0.5, 1.0)), float(GaussianLimit().level(0.5, 0.5))
    (0.84134, 0.0)
    """

    def describe(self, level: float) -> str:
        """Return a level in words."""
        return f"mu = {level:g}"

    def most(self, q: ArrayLike, level: ArrayLike) -> NDArray[np.float64]:
        """Return the largest p that is allowed."""
        return np.asarray(special.ndtr(special.ndtri(q) + level), dtype=np.float64)

    def least(self, p: ArrayLike, level: ArrayLike) -> NDArray[np.float64]:
        """Return the smallest q at which p is allowed."""
        return np.asarray(special.ndtr(special.ndtri(p) - level), dtype=np.float64)

    def level(self, p: ArrayLike, q: ArrayLike) -> NDArray[np.float64]:
        """Return the smallest mu that allows the pair; -inf where every one does."""
        p, q = np.asarray(p), np.asarray(q)
        with np.errstate(invalid="ignore"):
            found = special.ndtri(p) - special.ndtri(q)
        return np.where((p <= 0.0) | (q >= 1.0), -np.inf, found)

    def slope(self, p: ArrayLike, q: ArrayLike) -> NDArray[np.float64]:
        """Return the slope of the curve through the pair."""
        return np.exp(0.5 * (special.ndtri(q) ** 2 - special.ndtri(p) ** 2))
