"""Broken sparse vectors, line searches, second-order methods and regression, and correct ones."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import special

from dpanalysis import privacy
from dpanalysis._validation import check_choice, check_int, check_positive
from dpanalysis.audit.exact import Density
from dpanalysis.papers.tools import gaussian_mixture
from dpanalysis.privacy.accounting.relations import REPLACE_ONE, Budget
from dpanalysis.privacy.accounting.sampling import WithoutReplacement
from dpanalysis.privacy.events import AboveThreshold, Event, Gaussian, Laplace, Repeated, Sampled
from dpanalysis.privacy.mechanisms import gaussian, laplace, random_source

from .releases import Mutant

# The sparse vector technique as published, in six versions of which two are private

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(32)


def _tail(x: np.ndarray, scale: float) -> np.ndarray:
    """P(noise >= x) of Laplace noise; without noise, whether 0 >= x."""
    if scale == 0.0:
        return np.where(x <= 0.0, 1.0, 0.0)
    half = 0.5 * np.exp(-abs(x) / scale)
    return np.where(x > 0.0, half, 1.0 - half)


@dataclass(frozen=True)
class SparseVector:
    """Compares noisy queries with a noisy threshold around 0, and returns which are above.

    Called with the true answers as the data set, it returns a row of codes for each sample:
    1 above, 0 below, -1 after it stopped. With ``values`` it stops at the first query above
    and returns how many were below and a noisy value (0 if none was above).

    Parameters
    ----------
    threshold_scale, query_scale : float
        Laplace scales; a ``query_scale`` of 0 leaves the queries without noise.
    cutoff : int, optional
        Stop after this number of queries above; None never stops.
    refresh : bool
        Draw a new threshold after every query above.
    values : bool
        Publish a noisy value of the query that was above (with ``cutoff=1``).
    value_scale : float
        Its Laplace scale; with 0 the compared value itself is published.
    """

    threshold_scale: float
    query_scale: float
    cutoff: int | None = None
    refresh: bool = False
    values: bool = False
    value_scale: float = 0.0

    def __post_init__(self) -> None:
        if self.values and self.cutoff != 1:
            raise ValueError(f"cutoff must be 1 where values are published, got {self.cutoff}")

    @property
    def events(self) -> list[Event]:
        """Events for queries of sensitivity 1, by the proof of Lyu, Su and Li."""
        if self.cutoff is None or not self.query_scale or (self.values and not self.value_scale):
            raise ValueError(f"{self} is not private at any epsilon")
        threshold = Laplace(self.threshold_scale, 1.0)
        queries = Laplace(self.query_scale, 2.0 * self.cutoff)
        values = [Laplace(self.value_scale, 1.0)] if self.values else []
        return [Repeated(threshold, self.cutoff if self.refresh else 1), queries, *values]

    def __call__(self, dataset: Any, rng: Any, size: int) -> np.ndarray:
        random = random_source(rng)
        queries = np.asarray(dataset, dtype=np.float64)
        threshold = laplace(random, self.threshold_scale, size)
        codes = np.full((size, len(queries)), -1, dtype=np.int8)
        value = np.zeros(size)
        found = np.zeros(size, dtype=np.int64)
        for i, query in enumerate(queries):
            active = True if self.cutoff is None else found < self.cutoff
            noisy = query + laplace(random, self.query_scale, size)
            above = active & (noisy >= threshold)
            codes[:, i] = np.where(active, above, -1)
            if self.value_scale:
                noisy = query + laplace(random, self.value_scale, size)
            value = np.where(above, noisy, value)
            found += above
            if self.refresh:
                threshold = np.where(above, laplace(random, self.threshold_scale, size), threshold)
        if self.values:
            return np.column_stack([(codes == 0).sum(axis=1), value])
        return codes

    def law(self, dataset: Any) -> np.ndarray:
        """Probabilities of all sequences of codes; a value counts only as below 0 or not."""
        queries = np.asarray(dataset, dtype=np.float64)
        nodes, density = self._grid(queries)
        return np.array(list(self._leaves(queries, nodes, density, density, 0)))

    def _grid(self, queries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Quadrature nodes and weights for the threshold; panels end at kinks."""
        kinks = np.unique([0.0, *queries])
        far = 50.0 * max(self.threshold_scale, self.query_scale)
        width = min(self.threshold_scale, self.query_scale or math.inf)
        ends = np.concatenate([[kinks[0] - far], kinks, [kinks[-1] + far]])
        edges = np.concatenate(
            [np.linspace(a, b, 1 + int(np.ceil((b - a) / width)))[:-1] for a, b in pairwise(ends)]
        )
        edges = np.append(edges, ends[-1])
        half, middle = np.diff(edges)[:, None] / 2.0, (edges[:-1, None] + edges[1:, None]) / 2.0
        nodes = (middle + half * _NODES).ravel()
        density = np.exp(-abs(nodes) / self.threshold_scale) / (2.0 * self.threshold_scale)
        return nodes, (half * _WEIGHTS).ravel() * density

    def _leaves(
        self,
        queries: np.ndarray,
        nodes: np.ndarray,
        density: np.ndarray,
        mass: np.ndarray,
        found: int,
    ) -> Iterator[float]:
        """Yield the probabilities of the remaining codes, given those before them."""
        if not len(queries) or found == self.cutoff:
            yield float(mass.sum())
            return
        query, rest = queries[0], queries[1:]
        above = _tail(nodes - query, self.query_scale)
        yield from self._leaves(rest, nodes, density, mass * (1.0 - above), found)
        said = mass * above
        if self.values:
            if self.value_scale:
                negative = said * (1.0 - _tail(np.array(-query), self.value_scale))
            else:
                negative = mass * np.maximum(above - _tail(np.array(-query), self.query_scale), 0.0)
            yield float(negative.sum())
            said = said - negative
        if self.refresh:
            said = said.sum() * density
        yield from self._leaves(rest, nodes, density, said, found + 1)


def lyu(algorithm: int, epsilon: float, cutoff: int = 1) -> SparseVector:
    """Return an algorithm of Figure 1 of Lyu, Su and Li, for queries of sensitivity 1.

    Algorithms 1 (theirs) and 2 (Dwork and Roth) are ``epsilon``-private; the others are not.

    Parameters
    ----------
    algorithm : {1, ..., 6}
    epsilon : float
        The claimed loss, in (0, inf).
    cutoff : int
        The c of the paper: the number of queries above at which it stops (1 for Algorithm 3).

    Examples
    --------
    >>> lyu(5, epsilon=1.0).law([0.0, 1.0])  # below-below, -above, above-below, -above
    array([0.3033, 0.1967, 0.    , 0.5   ])
    """
    epsilon = check_positive("epsilon", epsilon)
    cutoff = check_int("cutoff", cutoff, low=1)
    unit = 2.0 / epsilon  # the scale that costs half of epsilon at sensitivity 1
    if algorithm == 1:
        return SparseVector(unit, 2.0 * cutoff * unit, cutoff)
    if algorithm == 2:
        return SparseVector(cutoff * unit, 2.0 * cutoff * unit, cutoff, refresh=True)
    if algorithm == 3:
        return SparseVector(unit, cutoff * unit, cutoff, values=True)
    if algorithm == 4:
        return SparseVector(4.0 / epsilon, 4.0 / (3.0 * epsilon), cutoff)
    check_choice("algorithm", algorithm, (1, 2, 3, 4, 5, 6))
    return SparseVector(unit, 0.0 if algorithm == 5 else unit)


def _mutant(
    algorithm: int,
    author: str,
    why: str,
    epsilon: float,
    correct: SparseVector,
    cutoff: int,
    answers: list[float],
    others: list[float],
) -> Mutant:
    return Mutant(
        name=f"sparse vector of {author}",
        source=f"Lyu, Su, Li, VLDB 2017, Algorithm {algorithm}",
        why=why,
        broken=lyu(algorithm, epsilon, cutoff),
        correct=correct,
        dataset=np.array(answers),
        neighbour=np.array(others),
        claim=privacy.epsilon(correct.events, 0.0, REPLACE_ONE),
    )


# Half of the budget for the comparisons and half for the value, with independent noise.
_NUMERIC = SparseVector(2.0, 4.0, cutoff=1, values=True, value_scale=1.0)

# Algorithm 2 of the paper is private, so it serves as the correct one.
SPARSE_VECTOR = (
    _mutant(
        3,
        "Roth (2011)",
        "publishes the noisy value that was compared, which bounds the noisy threshold",
        epsilon=2.0,
        correct=_NUMERIC,
        cutoff=1,
        answers=[-1.0] * 10 + [0.0],
        others=[0.0] * 10 + [-1.0],
    ),
    _mutant(
        4,
        "Lee and Clifton (2014)",
        "the noise of the queries does not grow with the cutoff c: (1 + 6c)/4 epsilon",
        epsilon=1.0,
        correct=lyu(2, 1.0, cutoff=2),
        cutoff=2,
        answers=[-0.5] * 3 + [0.5] * 2,
        others=[0.5] * 3 + [-0.5] * 2,
    ),
    _mutant(
        5,
        "Stoddard et al. (2014)",
        "the queries have no noise, so their order shows",
        epsilon=1.0,
        correct=lyu(1, 1.0),
        cutoff=1,
        answers=[0.0, 1.0],
        others=[1.0, 0.0],
    ),
    _mutant(
        6,
        "Chen et al. (2015)",
        "every query above is free, so the loss grows with their number",
        epsilon=1.0,
        correct=lyu(1, 1.0, cutoff=3),
        cutoff=3,
        answers=[-0.5] * 3 + [0.5] * 3,
        others=[0.5] * 3 + [-0.5] * 3,
    ),
)


# Private line searches: the errors of Chen and Lee (2020), and a wrong correction

_MANY_NODES, _MANY_WEIGHTS = np.polynomial.legendre.leggauss(400)


@dataclass(frozen=True)
class EndlessSearch:
    """Repeats two noisy queries in turn until one is above a noisy threshold around 0.

    Called with the two true answers as the data set, it returns the index of that query, 0 or 1.
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

    def __call__(self, dataset: Any, rng: Any, size: int) -> np.ndarray:
        random = random_source(rng)
        draw = laplace if self.noise == "laplace" else gaussian
        threshold = draw(random, self.threshold_scale, size)
        return (random.random(size) < self._second(dataset, threshold)).astype(np.int64)

    def law(self, dataset: Any) -> np.ndarray:
        """Return the probability of either query."""
        x = 40.0 * self.threshold_scale * _MANY_NODES**3  # dense around the kink at 0
        weights = 120.0 * self.threshold_scale * _MANY_NODES**2 * _MANY_WEIGHTS
        z = x / self.threshold_scale
        density = np.exp(-abs(z)) / 2.0
        if self.noise == "gaussian":
            density = np.exp(-0.5 * z**2) / math.sqrt(2.0 * math.pi)
        mass = weights * density / self.threshold_scale
        second = float(mass @ self._second(dataset, x))
        return np.array([1.0 - second, second])


# (5) claims rho-zCDP for any number of queries.
_RHO, _DELTA = 0.01, 1e-3
_EPSILON = privacy.zcdp_to_epsilon(_RHO, _DELTA)
_FAR = -12.0 * math.sqrt(3.0 / _RHO)
_UP, _DOWN = _FAR + 0.5, _FAR - 0.5

LINE_SEARCH = (
    Mutant(
        name="sparse vector with Gaussian noise and no cap",
        source="errata 002-3: Chen and Lee (2020), Theorem 3",
        why="far below the threshold a query that a record raises is ever more likely to halt",
        broken=EndlessSearch("gaussian", math.sqrt(1.5 / _RHO), math.sqrt(3.0 / _RHO)),
        # Laplace noise needs no cap; a tenth of the loss is spent on the threshold.
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


# Second-order methods: the errors of Gao and Wright (2023)


def _clipped(rows: Any) -> np.ndarray:
    return np.clip(np.asarray(rows, dtype=np.float64), -1.0, 1.0)


@dataclass(frozen=True)
class Evaluations:
    """The mean of ``count`` noisy sums, which is a sufficient statistic."""

    std: float
    count: int

    def __call__(self, dataset: Any, rng: Any, size: int) -> np.ndarray:
        noise = gaussian(random_source(rng), self.std, (size, self.count))
        return np.asarray(_clipped(dataset).sum() + noise.mean(axis=1))

    def law(self, dataset: Any) -> Density:
        """Density of the output."""
        return gaussian_mixture(
            _clipped(dataset).sum(keepdims=True), self.std / math.sqrt(self.count)
        )


@dataclass(frozen=True)
class HessianTrace:
    """The trace over sqrt d of a noisy Hessian; record i has Hessian h_i times the identity."""

    std: float
    d: int

    def __call__(self, dataset: Any, rng: Any, size: int) -> np.ndarray:
        diagonal = _clipped(dataset).sum() + gaussian(random_source(rng), self.std, (size, self.d))
        return np.asarray(diagonal.sum(axis=1) / math.sqrt(self.d))

    def law(self, dataset: Any) -> Density:
        """Density of the output."""
        return gaussian_mixture(math.sqrt(self.d) * _clipped(dataset).sum(keepdims=True), self.std)


@dataclass(frozen=True)
class BatchOfOne:
    """One of the records, drawn at random, plus Gaussian noise."""

    std: float

    def __call__(self, dataset: Any, rng: Any, size: int) -> np.ndarray:
        random, rows = random_source(rng), _clipped(dataset)
        drawn = rows[np.minimum((random.random(size) * len(rows)).astype(np.int64), len(rows) - 1)]
        return np.asarray(drawn + gaussian(random, self.std, size))

    def law(self, dataset: Any) -> Density:
        """Density of the output."""
        return gaussian_mixture(_clipped(dataset), self.std)


_BUDGET = Budget(1.0, delta=1e-2)
_STD = privacy.calibrate(lambda std: Gaussian(std, 1.0), _BUDGET, (0.1, 100.0))
_D = 9
_RECORDS, _BATCH_STD, _BATCH_DELTA = 20, 0.3, 1e-3
_BATCH_CLAIM = privacy.zcdp_to_epsilon(2.0 / (_RECORDS * _BATCH_STD) ** 2, _BATCH_DELTA)

SECOND_ORDER = (
    Mutant(
        name="last evaluation forgotten",
        source="Gao and Wright (2023), Theorem 1, with T rounded down",
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
        source="Gao and Wright (2023), (28), used as a bound beyond small s and large sigma",
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


# Regression by objective perturbation, with unbounded gradients


@dataclass(frozen=True)
class PerturbedMean:
    """The minimizer of losses of w - y plus w^2/2 plus w times Laplace noise."""

    scale: float
    clipped: bool  # targets at [-1, 1], residuals at 1/2 (Huber's loss); else squared errors

    def _knots(self, dataset: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return points between which the gradient is linear, and the gradient there."""
        y = _clipped(dataset) if self.clipped else np.asarray(dataset, dtype=np.float64)
        kinks = np.unique([y - 0.5, y + 0.5])
        w = np.concatenate([[-1e6], kinks, [1e6]])
        residuals = w[:, None] - y
        pulls = np.clip(residuals, -0.5, 0.5) if self.clipped else residuals
        return w, pulls.sum(axis=1) + w

    def __call__(self, dataset: Any, rng: Any, size: int) -> np.ndarray:
        w, gradient = self._knots(dataset)
        return np.interp(laplace(random_source(rng), self.scale, size), gradient, w)

    def law(self, dataset: Any) -> Density:
        """Density of the output: that of the noise times the slope of the gradient."""
        w, gradient = self._knots(dataset)
        slopes = np.diff(gradient) / np.diff(w)

        def logpdf(x: np.ndarray) -> np.ndarray:
            place = np.clip(np.searchsorted(w, x, side="right") - 1, 0, len(slopes) - 1)
            noise = gradient[place] + slopes[place] * (x - w[place])
            return np.asarray(np.log(slopes[place] / (2.0 * self.scale)) - abs(noise) / self.scale)

        return Density(logpdf, (*w[1:-1], float(np.interp(0.0, gradient, w))))


REGRESSION = (
    Mutant(
        name="regression whose targets are not clipped",
        source="a range of the target that is asserted and not enforced",
        why="a residual beyond the range pulls harder than the noise is calibrated to",
        broken=PerturbedMean(1.0, clipped=False),
        correct=PerturbedMean(1.0, clipped=True),
        dataset=np.array([-4.0, 1.0, 1.0]),
        neighbour=np.array([1.0, 1.0, 1.0]),
        # Two opposite gradients of 1/2, and a curvature of 1 relative to a penalty of 1.
        claim=1.0 + math.log(2.0),
    ),
)
