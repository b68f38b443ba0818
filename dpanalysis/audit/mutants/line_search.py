"""Mistakes of a private line search: those of Chen and Lee (2020), and a wrong correction."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from ... import privacy
from ...privacy.events import AboveThreshold
from ...privacy.mechanisms import gaussian, laplace, random_source
from .base import Mutant
from .sparse_vector import SparseVector

__all__ = ["MUTANTS", "EndlessSearch"]

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(400)


@dataclass(frozen=True)
class EndlessSearch:
    """Asks two queries in turn, with noise, until one is above a noisy threshold around 0.

    Called with the two true answers as the data set, it returns which of the two that was, 0 or 1.

    Parameters
    ----------
    noise : {"laplace", "gaussian"}
    threshold_scale, query_scale : float
        Laplace scales or standard deviations.
    """

    noise: str
    threshold_scale: float
    query_scale: float

    def _second(self, dataset: Any, threshold: np.ndarray) -> np.ndarray:
        """Return the probability that it is the second one, at given noisy thresholds (n,)."""
        z = (np.asarray(dataset, dtype=np.float64)[:, None] - threshold) / self.query_scale
        if self.noise == "gaussian":
            first, second = special.log_ndtr(z)
        else:
            tail = -abs(z) - math.log(2.0)
            first, second = np.where(z < 0.0, tail, np.log1p(-np.exp(tail)))
        odds = np.exp(second - first) * -np.expm1(first)
        return np.asarray(odds / (1.0 + odds))

    def __call__(self, dataset: Any, rng: Any, size: int) -> np.ndarray:  # noqa: D102
        random = random_source(rng)
        draw = laplace if self.noise == "laplace" else gaussian
        threshold = draw(random, self.threshold_scale, size)
        return (random.random(size) < self._second(dataset, threshold)).astype(np.int64)

    def law(self, dataset: Any) -> np.ndarray:
        """Return the probability of either query."""
        x = 40.0 * self.threshold_scale * _NODES**3  # dense around the kink at 0
        weights = 120.0 * self.threshold_scale * _NODES**2 * _WEIGHTS
        z = x / self.threshold_scale
        density = np.exp(-abs(z)) / 2.0
        if self.noise == "gaussian":
            density = np.exp(-0.5 * z**2) / math.sqrt(2.0 * math.pi)
        mass = weights * density / self.threshold_scale
        second = float(mass @ self._second(dataset, x))
        return np.array([1.0 - second, second])


# What (5) says whatever the number of queries: rho-zCDP.
_RHO, _DELTA = 0.01, 1e-3
_EPSILON = privacy.zcdp_to_epsilon(_RHO, _DELTA)
_FAR = -12.0 * math.sqrt(3.0 / _RHO)
_UP, _DOWN = _FAR + 0.5, _FAR - 0.5

MUTANTS = (
    Mutant(
        name="sparse vector with Gaussian noise and no cap",
        source="errata 002-3: Chen and Lee (2020), Theorem 3",
        why="far below the threshold a query that a record raises is ever more likely to halt",
        broken=EndlessSearch("gaussian", math.sqrt(1.5 / _RHO), math.sqrt(3.0 / _RHO)),
        # Laplace noise needs no cap; a tenth of the loss for the threshold.
        correct=EndlessSearch("laplace", 10.0 / _EPSILON, 2.0 / (0.9 * _EPSILON)),
        dataset=np.array([_UP, _DOWN]),
        neighbour=np.array([_DOWN, _UP]),
        claim=_EPSILON,
        delta=_DELTA,
    ),
    Mutant(
        name="sparse vector on clipped decreases",
        source="errata 002-9: a decrease clipped as a whole, charged as one of clamped losses",
        why="without a common f(w) a record moves one query up and another down",
        broken=SparseVector(10.0, 1.0 / 0.9, cutoff=1),
        correct=SparseVector(10.0, 2.0 / 0.9, cutoff=1),
        dataset=np.array([0.5] * 4 + [-0.5]),
        neighbour=np.array([-0.5] * 4 + [0.5]),
        claim=privacy.epsilon(
            AboveThreshold("laplace", 10.0, 1.0 / 0.9, 1.0, None, shared=True),
            0.0,
            privacy.REPLACE_ONE,
        ),
    ),
)
