"""Errors in the loss distribution of an epoch in which every record is in one random batch."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from scipy import optimize, special

from dpanalysis.audit.exact import Density
from dpanalysis.privacy.accounting.epochs import Bins, Epoch
from dpanalysis.privacy.accounting.relations import ADD_OR_REMOVE_ONE
from dpanalysis.privacy.accounting.sampling import BallsInBins
from dpanalysis.privacy.events import Gaussian
from dpanalysis.privacy.mechanisms import gaussian, random_source

from .releases import Mutant

# Delta of an epoch at an epsilon.
Rule = Callable[[Bins, float], float]

_BATCHES = 10
_TAIL = 0.02  # mass that without_tail ignores
_CELL = 1.0  # width of the cells of rounded_down


def both_directions(pair: Bins, epsilon: float) -> float:
    """Return the larger of both divergences."""
    return max(float(each(np.array([epsilon]))[0]) for each in (pair.remove, pair.add))


def one_direction(pair: Bins, epsilon: float) -> float:
    """Return the divergence where a record is added, which is the smaller one."""
    return float(pair.add(np.array([epsilon]))[0])


def without_tail(pair: Bins, epsilon: float) -> float:
    """Return the divergence from likelihood ratios on a finite grid only."""
    ratios, mass, *_ = replace(pair, tail=_TAIL)._laws()
    some = ratios > 0.0
    return float(np.maximum(mass[some] * (1.0 - math.exp(epsilon) / ratios[some]), 0.0).sum())


def rounded_down(pair: Bins, epsilon: float) -> float:
    """Return the divergence with the mass of every cell of losses moved to its lower end."""
    ratios, mass, *_ = pair._laws()
    some = ratios > 0.0
    losses = _CELL * np.floor(np.log(ratios[some]) / _CELL)
    return float((mass[some] * np.maximum(-np.expm1(epsilon - losses), 0.0)).sum())


@cache
def _smallest_std(rule: Rule, epsilon: float, delta: float) -> float:
    """Return the noise at which the rule gives delta."""

    def excess(std: float) -> float:
        pair = Epoch(BallsInBins(_BATCHES), [Gaussian(std, 1.0)]).pair()
        assert isinstance(pair, Bins)
        return math.log(max(rule(pair, epsilon), 1e-300) / delta)  # about linear

    high = 2.0
    low = 0.75 * high
    while excess(low) < 0.0:
        high, low = low, 0.75 * low
    return float(optimize.brentq(excess, low, high, xtol=1e-4))


@dataclass(frozen=True)
class LargestOfBins:
    """The largest noisy sum over batches; the records, zeros and ones, are in one batch each.

    The noise is calibrated to ``epsilon`` and ``delta`` by a rule for the delta of an epoch.
    """

    rule: Rule
    epsilon: float
    delta: float

    @property
    def std(self) -> float:
        """Standard deviation of the noise on every sum."""
        return _smallest_std(self.rule, self.epsilon, self.delta)

    def __call__(self, dataset: Any, rng: Any, size: int) -> np.ndarray:
        random, rows = random_source(rng), np.asarray(dataset, dtype=np.float64)
        sums = gaussian(random, self.std, (size, _BATCHES))
        chosen = (_BATCHES * random.random((size, len(rows)))).astype(np.int64)
        for place, row in enumerate(rows):
            sums[np.arange(size), chosen[:, place]] += row
        return sums.max(axis=1)

    def law(self, dataset: Any) -> Density:
        """Density of the largest of independent sums, for at most one record equal to 1."""
        shift, std, t = float(np.sum(dataset)), self.std, _BATCHES
        at_level = -math.log(std * math.sqrt(2.0 * math.pi))

        def logpdf(x: np.ndarray) -> np.ndarray:
            others, its = x / std, (x - shift) / std
            below = special.log_ndtr(others)
            it_is = -0.5 * its**2 + (t - 1) * below
            another = -0.5 * others**2 + special.log_ndtr(its) + (t - 2) * below
            return np.asarray(at_level + np.logaddexp(it_is, math.log(t - 1) + another))

        return Density(logpdf, (0.0, shift)) if shift else Density(logpdf, (0.0,))


def _epoch(name: str, why: str, broken: Rule, epsilon: float, delta: float) -> Mutant:
    return Mutant(
        name=name,
        source="accounting: loss distributions of epochs on a grid",
        why=why,
        broken=LargestOfBins(broken, epsilon, delta),
        correct=LargestOfBins(both_directions, epsilon, delta),
        dataset=np.array([0.0, 1.0]),
        neighbour=np.array([0.0]),
        claim=epsilon,
        delta=delta,
        relation=ADD_OR_REMOVE_ONE,
    )


EPOCHS = (
    _epoch(
        "epoch in one direction",
        "a record that is added costs less than one that is removed, and only the first is bounded",
        one_direction,
        2.0,
        1e-3,
    ),
    _epoch(
        "tail of an epoch uncharged",
        "likelihood ratios beyond the grid have a mass, and it is not added to delta",
        without_tail,
        2.0,
        1e-3,
    ),
    _epoch(
        "losses of an epoch rounded down",
        "a cell's mass is moved to the end where its loss is smaller",
        rounded_down,
        1.0,
        1e-2,
    ),
)
