"""Mistakes of Gao and Wright (2023): the number of evaluations, Hessians and batches."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ... import privacy
from ...privacy.events import Gaussian, Sampled
from ...privacy.mechanisms import gaussian, random_source
from ...privacy.relations import Budget
from ...privacy.sampling import WithoutReplacement
from ..exact import Density
from .base import Mutant

__all__ = ["MUTANTS", "BatchOfOne", "Evaluations", "HessianTrace"]


def _clipped(rows: Any) -> np.ndarray:
    return np.clip(np.asarray(rows, dtype=np.float64), -1.0, 1.0)


def _mixture(centers: np.ndarray, std: float) -> Density:
    """Return the density of N(c, std^2) with c drawn among the centers."""
    different, counts = np.unique(centers, return_counts=True)
    log_weights = np.log(counts / (len(centers) * std * math.sqrt(2.0 * math.pi)))

    def logpdf(x: np.ndarray) -> np.ndarray:
        exponent = -0.5 * ((x[:, None] - different) / std) ** 2
        return np.asarray(np.logaddexp.reduce(exponent + log_weights, axis=1))

    return Density(logpdf, tuple(different))


@dataclass(frozen=True)
class Evaluations:
    """The mean of ``count`` noisy sums, which says as much as all of them."""

    std: float
    count: int

    def __call__(self, dataset: Any, rng: Any, size: int) -> np.ndarray:  # noqa: D102
        noise = gaussian(random_source(rng), self.std, (size, self.count))
        return np.asarray(_clipped(dataset).sum() + noise.mean(axis=1))

    def law(self, dataset: Any) -> Density:
        """Density of the output."""
        return _mixture(_clipped(dataset).sum(keepdims=True), self.std / math.sqrt(self.count))


@dataclass(frozen=True)
class HessianTrace:
    """The trace over sqrt d of a noisy Hessian; that of record i is h_i times the identity."""

    std: float
    d: int

    def __call__(self, dataset: Any, rng: Any, size: int) -> np.ndarray:  # noqa: D102
        diagonal = _clipped(dataset).sum() + gaussian(random_source(rng), self.std, (size, self.d))
        return np.asarray(diagonal.sum(axis=1) / math.sqrt(self.d))

    def law(self, dataset: Any) -> Density:
        """Density of the output."""
        return _mixture(math.sqrt(self.d) * _clipped(dataset).sum(keepdims=True), self.std)


@dataclass(frozen=True)
class BatchOfOne:
    """One of the records, drawn at random, plus Gaussian noise."""

    std: float

    def __call__(self, dataset: Any, rng: Any, size: int) -> np.ndarray:  # noqa: D102
        random, rows = random_source(rng), _clipped(dataset)
        drawn = rows[np.minimum((random.random(size) * len(rows)).astype(np.int64), len(rows) - 1)]
        return np.asarray(drawn + gaussian(random, self.std, size))

    def law(self, dataset: Any) -> Density:
        """Density of the output."""
        return _mixture(_clipped(dataset), self.std)


_BUDGET = Budget(1.0, delta=1e-2)
_STD = privacy.calibrate(lambda std: Gaussian(std, 1.0), _BUDGET, (0.1, 100.0))
_D = 9
_RECORDS, _BATCH_STD, _BATCH_DELTA = 20, 0.3, 1e-3
_BATCH_CLAIM = privacy.zcdp_to_epsilon(2.0 / (_RECORDS * _BATCH_STD) ** 2, _BATCH_DELTA)

MUTANTS = (
    Mutant(
        name="last evaluation forgotten",
        source="errata 003-17: Gao and Wright (2023), (6) and Theorem 1",
        why="noise for T = 1 iteration, but after its step the point is evaluated once more",
        broken=Evaluations(_STD, 2),
        correct=Evaluations(math.sqrt(2.0) * _STD, 2),
        dataset=np.array([1.0, 0.25, -0.5]),
        neighbour=np.array([0.0, 0.25, -0.5]),
        claim=_BUDGET.limit,
        delta=_BUDGET.delta,
    ),
    Mutant(
        name="Hessian of full rank",
        source="errata 003-1: the sensitivity of rank one, for any Hessian",
        why="2 B_H instead of 2 sqrt(d) B_H, where a record moves all eigenvalues",
        broken=HessianTrace(2.0 * _STD, _D),
        correct=HessianTrace(2.0 * math.sqrt(_D) * _STD, _D),
        dataset=np.array([1.0, 0.25, -0.5]),
        neighbour=np.array([-1.0, 0.25, -0.5]),
        claim=_BUDGET.limit,
        delta=_BUDGET.delta,
    ),
    Mutant(
        name="small batch by an approximation",
        source="errata 003-10: Gao and Wright (2023), (28)",
        why="2 s^2 alpha/sigma^2 leaves out what a small batch costs when the record is in it",
        broken=BatchOfOne(_BATCH_STD),
        correct=BatchOfOne(
            privacy.calibrate(
                lambda std: Sampled(WithoutReplacement(1), [Gaussian(std, 1.0)], _RECORDS),
                Budget(_BATCH_CLAIM, delta=_BATCH_DELTA),
                (0.1, 100.0),
                accountant="rdp",
            )
        ),
        dataset=np.append(np.zeros(_RECORDS - 1), 1.0),
        neighbour=np.zeros(_RECORDS),
        claim=_BATCH_CLAIM,
        delta=_BATCH_DELTA,
    ),
)
