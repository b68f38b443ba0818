"""Mistakes with the noise of a release, or with the sensitivity it is calibrated to."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from ... import clipping, privacy
from ...privacy.events import Gaussian, Laplace, Pure, Repeated
from ...privacy.mechanisms import gaussian, laplace, random_source
from ...privacy.relations import REPLACE_ONE, Budget
from ..exact import Density
from ..laws import report_noisy_min_distribution
from .base import Mutant

__all__ = ["MUTANTS", "IterationBound", "NoisyMinimum", "NoisySum", "Responses", "TwoSums"]


def _sum(rows: Any) -> float:
    return math.fsum(np.asarray(rows, dtype=np.float64))


def _clipped_sum(rows: Any) -> float:
    rows = np.asarray(rows, dtype=np.float64)
    return _sum(rows * clipping.Flat(1.0).weight(abs(rows)))


@dataclass(frozen=True)
class NoisySum:
    """A sum of numbers plus noise of the given scale or standard deviation."""

    spread: float
    noise: str = "laplace"
    total: Callable[[Any], float] = _clipped_sum

    def __call__(self, dataset: Any, rng: Any, size: int) -> np.ndarray:  # noqa: D102
        draw = laplace if self.noise == "laplace" else gaussian
        return self.total(dataset) + np.asarray(draw(random_source(rng), self.spread, size))

    def law(self, dataset: Any) -> Density:
        """Density of the output."""
        center, spread = self.total(dataset), self.spread
        if self.noise == "laplace":
            log_norm = math.log(2.0 * spread)
            return Density(lambda x: -abs(x - center) / spread - log_norm, (center,))
        log_norm = 0.5 * math.log(2.0 * math.pi) + math.log(spread)
        return Density(lambda x: -0.5 * ((x - center) / spread) ** 2 - log_norm, (center,))


@dataclass(frozen=True)
class TwoSums:
    """The sums of x and of x**2, each with Laplace noise: of its own, or the same for both."""

    scale: float
    fresh: bool

    def __call__(self, dataset: Any, rng: Any, size: int) -> np.ndarray:  # noqa: D102
        random, rows = random_source(rng), np.asarray(dataset, dtype=np.float64)
        noise = laplace(random, self.scale, (size, 2 if self.fresh else 1))
        return np.array([_clipped_sum(rows), _clipped_sum(rows**2)]) + noise

    def law(self, dataset: Any) -> np.ndarray:
        """Law of whether the first output is more than 1 below the second."""
        rows = np.asarray(dataset, dtype=np.float64)
        gap = (_clipped_sum(rows) - _clipped_sum(rows**2) + 1.0) / self.scale
        below = float(gap < 0.0)
        if self.fresh:  # a difference of two Laplace variables
            tail = 0.25 * (2.0 + abs(gap)) * math.exp(-abs(gap))
            below = 1.0 - tail if gap < 0.0 else tail
        return np.array([below, 1.0 - below])


@dataclass(frozen=True)
class NoisyMinimum:
    """Report-noisy-min with exponential noise, which must be subtracted (``sign=-1``).

    Called with the true scores as the data set; returns the position of the least noisy one.
    """

    scale: float
    sign: int

    def __call__(self, dataset: Any, rng: Any, size: int) -> np.ndarray:  # noqa: D102
        scores = np.asarray(dataset, dtype=np.float64)
        # The magnitude of Laplace noise is exponential.
        noise = abs(laplace(random_source(rng), self.scale, (size, len(scores))))
        return np.argmin(scores + self.sign * noise, axis=1)

    def law(self, dataset: Any) -> np.ndarray:
        """Probability of each position."""
        if self.sign < 0:
            return np.asarray(report_noisy_min_distribution(dataset, "exponential", self.scale))
        return _argmin_added(np.asarray(dataset, dtype=np.float64) / self.scale)


def _argmin_added(scores: np.ndarray) -> np.ndarray:
    """Return the law of argmin(scores + E) with unit exponential E.

    Between two neighbouring scores only the m smaller ones can be the first to be reached,
    each of them with the same chance.
    """
    order = np.argsort(scores)
    ranked = scores[order]
    law = np.zeros(len(scores))
    for m, end in enumerate([*ranked[1:], math.inf], start=1):
        first, last = (math.exp(-math.fsum(x - ranked[:m])) for x in (ranked[m - 1], end))
        law[order[:m]] += (first - last) / m
    return law


@dataclass(frozen=True)
class IterationBound:
    """Return the number of iterations of Gao and Wright (2023), (6), at least 0.

    It is ceil((f + noise - f_lower)/MIN_DEC).

    The data set holds the samples' losses at the start, in [0, 1]; f is their mean. The noise
    is ``|z|`` as printed, or z + margin.
    """

    noise_multiplier: float
    min_decrease: float
    margin: float | None

    def _std(self, n: int) -> float:
        return self.noise_multiplier / n

    def __call__(self, dataset: Any, rng: Any, size: int) -> np.ndarray:  # noqa: D102
        losses = np.asarray(dataset, dtype=np.float64)
        z = gaussian(random_source(rng), self._std(len(losses)), size)
        noise = abs(z) if self.margin is None else z + self.margin
        steps = np.ceil((losses.mean() + noise) / self.min_decrease)
        return np.maximum(steps, 0.0).astype(np.int64)

    def law(self, dataset: Any) -> np.ndarray:
        """Probabilities of 0, 1, ... iterations; of very many, together."""
        losses = np.asarray(dataset, dtype=np.float64)
        std = self._std(len(losses))
        most = math.ceil((1.0 + (self.margin or 0.0) + 9.0 * std) / self.min_decrease)
        noise = self.min_decrease * np.arange(most) - losses.mean()
        if self.margin is None:  # P(|z| <= a), 0 for a < 0
            reached = special.erf(np.maximum(noise, 0.0) / (std * math.sqrt(2.0)))
        else:
            reached = special.ndtr((noise - self.margin) / std)
        return np.diff(reached, prepend=0.0, append=1.0)


@dataclass(frozen=True)
class Responses:
    """Randomised responses about one bit, each of them ``epsilon``-private."""

    epsilon: float
    count: int

    @property
    def event(self) -> Repeated:
        """What is released."""
        return Repeated(Pure(self.epsilon), self.count)

    def __call__(self, dataset: Any, rng: Any, size: int) -> np.ndarray:  # noqa: D102
        lie = random_source(rng).random((size, self.count)) < special.expit(-self.epsilon)
        return np.where(lie, 1 - int(dataset[0]), int(dataset[0]))

    def law(self, dataset: Any) -> np.ndarray:
        """Probabilities of 0, ..., count ones: the number of ones is sufficient."""
        ones = np.arange(self.count + 1)
        truth = ones if int(dataset[0]) else self.count - ones
        log_odds = -self.epsilon * (self.count - truth) + self.count * special.log_expit(
            self.epsilon
        )
        return special.comb(self.count, ones) * np.exp(log_odds)


def _pure(*events: Any) -> float:
    return privacy.epsilon(events, 0.0, REPLACE_ONE)


def _gaussian_std(budget: Budget, sensitivity: float) -> float:
    return privacy.calibrate(lambda std: Gaussian(std, sensitivity), budget, (0.1, 100.0))


_LONE, _ZERO, _OPPOSITE = (np.array([x, 0.25, -0.5]) for x in (1.0, 0.0, -1.0))
_BUDGET = Budget(1.0, delta=1e-3)
_SELECTION = 0.1
_CANDIDATES = 21
_RHO_NOISE, _STEP, _LOSSES = 2.0, 0.05, 10

MUTANTS = (
    Mutant(
        name="laplace by standard deviation",
        source="errata 001-19: the MATLAB code that Kuru et al. (2022) published",
        why="the scale b is taken for the standard deviation, which is sqrt(2) b",
        broken=NoisySum(math.sqrt(0.5)),
        correct=NoisySum(1.0),
        dataset=_LONE,
        neighbour=_ZERO,
        claim=_pure(Laplace(scale=1.0, sensitivity=1.0)),
    ),
    Mutant(
        name="sensitivity of the other relation",
        source="accounting: a clipped sum moves by C when a record goes, by 2C when it is replaced",
        why="Gaussian noise is calibrated to C where a record is replaced",
        broken=NoisySum(_gaussian_std(_BUDGET, 1.0), "gaussian"),
        correct=NoisySum(_gaussian_std(_BUDGET, 2.0), "gaussian"),
        dataset=_LONE,
        neighbour=_OPPOSITE,
        claim=_BUDGET.limit,
        delta=_BUDGET.delta,
    ),
    Mutant(
        name="unclipped row",
        source="errata 003-14: a row bound that is asserted and not enforced",
        why="one row lies outside the ball that the noise is calibrated to",
        broken=NoisySum(2.0, total=_sum),
        correct=NoisySum(2.0, total=_clipped_sum),
        dataset=np.array([4.0, 0.25, -0.5]),
        neighbour=_OPPOSITE,
        claim=_pure(Laplace(scale=2.0, sensitivity=2.0)),
    ),
    Mutant(
        name="noise drawn once",
        source="a generator seeded anew in every iteration",
        why="two releases share their noise, so their difference has none",
        broken=TwoSums(3.0, fresh=False),
        correct=TwoSums(3.0, fresh=True),
        dataset=_LONE,
        neighbour=_OPPOSITE,
        claim=_pure(Laplace(3.0, sensitivity=2.0), Laplace(3.0, sensitivity=1.0)),
    ),
    Mutant(
        name="noisy-min with the wrong sign",
        source="errata 002-11: public code of DP-AGD",
        why="exponential noise is added where the least score is sought: it must be subtracted",
        broken=NoisyMinimum(2.0 / _SELECTION, +1),
        correct=NoisyMinimum(2.0 / _SELECTION, -1),
        dataset=np.zeros(_CANDIDATES),
        neighbour=np.append(np.full(_CANDIDATES - 1, -1.0), 1.0),
        claim=_pure(Laplace(2.0 / _SELECTION, sensitivity=2.0)),
    ),
    Mutant(
        name="half-normal iteration bound",
        source="errata 003-4: Gao and Wright (2023), (6)",
        why="|z| keeps a bound above the true value, so small bounds give the data away",
        broken=IterationBound(_RHO_NOISE, _STEP, margin=None),
        correct=IterationBound(_RHO_NOISE, _STEP, margin=3.0 * _RHO_NOISE / _LOSSES),
        dataset=np.append(np.zeros(_LOSSES - 1), 0.0),
        neighbour=np.append(np.zeros(_LOSSES - 1), 1.0),
        claim=privacy.epsilon(
            Gaussian(_RHO_NOISE / _LOSSES, sensitivity=1.0 / _LOSSES), 0.01, REPLACE_ONE, "zcdp"
        ),
        delta=0.01,
    ),
    Mutant(
        name="count ignored",
        source="dp-accounting 0.6.0, PLDAccountant.compose(RandomizedResponse, count)",
        why="five releases are accounted for as one",
        broken=Responses(1.0, 5),
        correct=Responses(0.2, 5),
        dataset=np.array([1]),
        neighbour=np.array([0]),
        claim=_pure(Responses(1.0, 5).event.event),
    ),
)
