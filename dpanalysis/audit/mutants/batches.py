"""Mistakes with batches: amplified twice, divided by a secret, drawn in another way."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from ... import privacy
from ...privacy.events import Laplace, Sampled
from ...privacy.mechanisms import laplace, random_source
from ...privacy.relations import ADD_OR_REMOVE_ONE
from ...privacy.sampling import Poisson, WithReplacement
from ..exact import Density
from .base import Mutant

__all__ = ["MUTANTS", "BatchMean"]


@dataclass(frozen=True)
class BatchMean:
    """The mean of a batch plus Laplace noise, on data so small that all batches can be listed.

    Parameters
    ----------
    sampling : Poisson or WithReplacement
    scale : float
        Of the noise.
    divisor : float, optional
        What the sum is divided by; None for the size of the batch.
    accesses : int
        How often it is asked.
    fresh : bool
        Whether each access draws its own batch.
    """

    sampling: Poisson | WithReplacement
    scale: float
    divisor: float | None
    accesses: int = 1
    fresh: bool = False

    def _batches(self, n: int) -> Iterator[tuple[tuple[int, ...], float]]:
        """Yield all batches of n records with their probabilities."""
        if isinstance(self.sampling, WithReplacement):
            for batch in itertools.product(range(n), repeat=self.sampling.m):
                yield batch, 1.0 / n**self.sampling.m
        else:
            rate = self.sampling.rate
            for size in range(n + 1):
                for batch in itertools.combinations(range(n), size):
                    yield batch, rate**size * (1.0 - rate) ** (n - size)

    def _means(self, dataset: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return the different means of a batch and their probabilities."""
        rows = np.asarray(dataset, dtype=np.float64)
        means, chances = [], []
        for batch, chance in self._batches(len(rows)):
            divisor = max(1, len(batch)) if self.divisor is None else self.divisor
            means.append(math.fsum(rows[list(batch)]) / divisor)
            chances.append(chance)
        values, which = np.unique(means, return_inverse=True)
        return values, np.bincount(which, weights=chances)

    def __call__(self, dataset: Any, rng: Any, size: int) -> np.ndarray:  # noqa: D102
        random = random_source(rng)
        means, chances = self._means(dataset)
        uniform = random.random((size, self.accesses if self.fresh else 1))
        drawn = np.searchsorted(np.cumsum(chances)[:-1], uniform, side="right")
        answers = means[drawn] + laplace(random, self.scale, (size, self.accesses))
        return answers[:, 0] if self.accesses == 1 else answers

    def law(self, dataset: Any) -> Density | np.ndarray:
        """Density of one answer; of several, the law of how many are above all means."""
        means, chances = self._means(dataset)
        if self.accesses == 1:
            log_weight = np.log(chances) - math.log(2.0 * self.scale)

            def logpdf(x: np.ndarray) -> np.ndarray:
                exponent = -abs(x[:, None] - means) / self.scale
                return np.asarray(np.logaddexp.reduce(exponent + log_weight, axis=1))

            return Density(logpdf, tuple(means))
        high = 0.5 * np.exp(-abs(1.0 - means) / self.scale)  # means in [0, 1]
        if self.fresh:
            high = np.array([chances @ high])
            chances = np.ones(1)
        count = np.arange(self.accesses + 1)
        ways = special.comb(self.accesses, count)
        each = ways * high[:, None] ** count * (1.0 - high[:, None]) ** (self.accesses - count)
        return chances @ each


_RATE, _PUBLIC_SIZE = 0.2, 2.0
_SHARED = [Laplace(scale=0.5, sensitivity=1.0)]
_POISSON = Sampled(Poisson(_RATE), _SHARED)
_CROWD = -np.ones(9)

MUTANTS = (
    Mutant(
        name="one batch amplified twice",
        source="errata 002-4: Chen and Lee (2020), Algorithm 2",
        why="gradient and line search look at the same batch and are amplified one by one",
        broken=BatchMean(Poisson(_RATE), 0.5, divisor=1.0, accesses=2),
        correct=BatchMean(Poisson(_RATE), 0.5, divisor=1.0, accesses=2, fresh=True),
        dataset=np.array([0.0, 1.0]),
        neighbour=np.array([0.0]),
        claim=privacy.epsilon([_POISSON, _POISSON], 0.0, ADD_OR_REMOVE_ONE),
        relation=ADD_OR_REMOVE_ONE,
    ),
    Mutant(
        name="division by the size of the batch",
        source="errata 002-6: Chen and Lee (2020), Algorithm 2",
        why="the size is secret, and in a small batch a record weighs more than 1/(q n)",
        broken=BatchMean(Poisson(_RATE), 1.0 / _PUBLIC_SIZE, divisor=None),
        correct=BatchMean(Poisson(_RATE), 1.0 / _PUBLIC_SIZE, divisor=_PUBLIC_SIZE),
        dataset=np.append(_CROWD, 1.0),
        neighbour=_CROWD,
        claim=privacy.epsilon(
            Sampled(Poisson(_RATE), [Laplace(1.0 / _PUBLIC_SIZE, 1.0 / _PUBLIC_SIZE)]),
            0.0,
            ADD_OR_REMOVE_ONE,
        ),
        relation=ADD_OR_REMOVE_ONE,
    ),
    Mutant(
        name="drawn with replacement",
        source="errata 000-8: Xia et al. (2023), Algorithm 1",
        why="accounted as Poisson batches, but a record drawn k times moves the sum k times as far",
        broken=BatchMean(WithReplacement(3), 0.5, divisor=1.0),
        correct=BatchMean(Poisson(0.5), 0.5, divisor=1.0),
        dataset=np.append(np.zeros(5), 1.0),
        neighbour=np.zeros(5),
        claim=privacy.epsilon(Sampled(Poisson(0.5), _SHARED), 0.0, ADD_OR_REMOVE_ONE),
        relation=ADD_OR_REMOVE_ONE,
    ),
)
