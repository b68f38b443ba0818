"""Mutants, their exact audits, and errors in noise, sensitivity, batches and clipping."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, Protocol

import numpy as np
from scipy import special

from dpanalysis import clipping, privacy, theory
from dpanalysis._validation import check_number
from dpanalysis.audit.exact import Density, privacy_profile, renyi_divergence
from dpanalysis.audit.laws import report_noisy_min_distribution
from dpanalysis.losses import Logistic
from dpanalysis.papers.tools import added_exponential, gaussian_mixture
from dpanalysis.privacy.accounting.relations import ADD_OR_REMOVE_ONE, REPLACE_ONE, Budget
from dpanalysis.privacy.accounting.sampling import Poisson, WithReplacement
from dpanalysis.privacy.events import Gaussian, Laplace, Pure, Repeated, Sampled
from dpanalysis.privacy.mechanisms import gaussian, laplace, random_source

Law = np.ndarray | Density


class Mechanism(Protocol):
    """A mechanism that can be sampled; some also have a method ``law(dataset)``."""

    def __call__(self, dataset: Any, rng: Any, size: int) -> np.ndarray:
        """Return ``size`` independent outputs, (size,) or (size, k)."""


@dataclass(frozen=True)
class Mutant:
    """A mechanism that violates its claim, with a correct one that satisfies it.

    Attributes
    ----------
    name : str
    source : str
        Where the error occurred.
    why : str
        What is wrong, in a sentence.
    broken, correct : Mechanism
        Called as ``broken(dataset, rng, size)``. If the output, or a function of it, has an
        exact law, ``broken.law(dataset)`` returns probabilities or a
        :class:`~dpanalysis.audit.Density`.
    dataset, neighbour : array
        Neighbours for which the claim is violated.
    claim, delta : float
        Claims (claim, delta)-differential privacy.
    relation : {"replace_one", "add_or_remove_one"}

    Examples
    --------
    >>> from tests import broken_mechanisms as mutants
    >>> mutant = mutants.MUTANTS[0]
    >>> mutant.name, mutant.claim, mutant.engines
    ('laplace by standard deviation', 1.0, ('exact', 'empirical'))
    >>> mutant.broken(mutant.dataset, 0, 5).shape
    (5,)
    """

    name: str
    source: str
    why: str
    broken: Mechanism = field(repr=False)
    correct: Mechanism = field(repr=False)
    dataset: Any = field(repr=False)
    neighbour: Any = field(repr=False)
    claim: float
    delta: float = 0.0
    relation: str = REPLACE_ONE

    @property
    def engines(self) -> tuple[str, ...]:
        """Applicable audits: "exact" if there is a law, and always "empirical"."""
        exact = hasattr(self.broken, "law") and hasattr(self.correct, "law")
        return ("exact", "empirical") if exact else ("empirical",)


@dataclass(frozen=True)
class ExactVerdict:
    """The result of an exact audit of a claim.

    Attributes
    ----------
    refuted : bool
    epsilon : float
        The least epsilon for the pair at ``delta``; inf if there is none.
    claim, delta : float

    Examples
    --------
    >>> ExactVerdict(refuted=True, epsilon=1.1, claim=1.0, delta=0.0).epsilon
    1.1
    """

    refuted: bool
    epsilon: float
    claim: float
    delta: float


def exact_verdict(
    mechanism: Any, dataset: Any, neighbour: Any, claim: float, *, delta: float = 0.0
) -> ExactVerdict:
    """Audit a mechanism by its exact law: the counterpart of ``verify_privacy`` without samples.

    Parameters
    ----------
    mechanism : object
        With a method ``law(dataset)``, the law of its output or of a function of it.
    dataset, neighbour : array
    claim : float
        In [0, inf].
    delta : float
        In [0, 1).

    Returns
    -------
    ExactVerdict
        Refuted where the loss exceeds the claim by more than rounding (1e-9).

    Examples
    --------
    >>> from tests.broken_mechanisms import MUTANTS
    >>> mutant = MUTANTS[0]
    >>> exact_verdict(mutant.broken, mutant.dataset, mutant.neighbour, mutant.claim)
    ExactVerdict(refuted=True, epsilon=1.4142, claim=1.0, delta=0.0)
    """
    claim = check_number("claim", claim, low=0.0, finite=False)
    delta = check_number("delta", delta, low=0.0, high=1.0, high_open=True)
    p, q = mechanism.law(dataset), mechanism.law(neighbour)
    epsilon = _least_epsilon(p, q, delta)
    return ExactVerdict(epsilon > claim + 1e-9 * (1.0 + claim), epsilon, claim, delta)


def _least_epsilon(p: Law, q: Law, delta: float) -> float:
    largest = max(renyi_divergence(p, q, math.inf), renyi_divergence(q, p, math.inf))
    if delta == 0.0 or privacy_profile(p, q, 0.0) <= delta:
        return float(largest) if delta == 0.0 else 0.0
    from scipy import optimize

    @cache
    def excess(epsilon: float) -> float:
        return math.log(max(float(privacy_profile(p, q, epsilon)), 1e-300) / delta)

    low, high = 0.0, 1.0
    while excess(high) > 0.0:
        low, high = high, 2.0 * high
        if high > 1e3:
            return math.inf
    if excess(high) == 0.0:
        return high
    return float(optimize.toms748(excess, low, high, xtol=1e-11 * high, rtol=1e-13))


@dataclass(frozen=True)
class Detection:
    """The verdicts of an auditor on a mutant and its correct mechanism.

    Attributes
    ----------
    mutant : Mutant
    broken, correct : object
        The verdicts, each with an attribute ``refuted``.

    Examples
    --------
    >>> from tests import broken_mechanisms as mutants
    >>> verdict = ExactVerdict(refuted=False, epsilon=1.0, claim=1.0, delta=0.0)
    >>> print(Detection(mutants.MUTANTS[0], verdict, verdict))
    laplace by standard deviation: claims 1, NOT CAUGHT; correct one accepted
    """

    mutant: Mutant
    broken: Any
    correct: Any

    @property
    def passed(self) -> bool:
        """Whether the auditor refuted the mutant and not the correct mechanism."""
        return bool(self.broken.refuted) and not self.correct.refuted

    def __str__(self) -> str:
        found = getattr(self.broken, "epsilon", math.nan)
        caught = f"caught (epsilon >= {found:.4g})" if self.broken.refuted else "NOT CAUGHT"
        correct = "FALSELY ACCUSED" if self.correct.refuted else "accepted"
        return (
            f"{self.mutant.name}: claims {self.mutant.claim:.4g}, {caught}; correct one {correct}"
        )


# Errors in the noise of a release, or in the sensitivity for which it is calibrated


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

    def __call__(self, dataset: Any, rng: Any, size: int) -> np.ndarray:
        draw = laplace if self.noise == "laplace" else gaussian
        return self.total(dataset) + np.asarray(draw(random_source(rng), self.spread, size))

    def law(self, dataset: Any) -> Density:
        """Density of the output."""
        center, spread = self.total(dataset), self.spread
        if self.noise == "laplace":
            log_norm = math.log(2.0 * spread)
            return Density(lambda x: -abs(x - center) / spread - log_norm, (center,))
        return gaussian_mixture(np.array([center]), spread)


@dataclass(frozen=True)
class TwoSums:
    """The sums of x and of x**2 with Laplace noise, independent or shared by both."""

    scale: float
    fresh: bool

    def __call__(self, dataset: Any, rng: Any, size: int) -> np.ndarray:
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

    Called with the true scores as the data set; returns the position of the least noisy score.
    """

    scale: float
    sign: int

    def __call__(self, dataset: Any, rng: Any, size: int) -> np.ndarray:
        scores = np.asarray(dataset, dtype=np.float64)
        # The magnitude of Laplace noise is exponential.
        noise = abs(laplace(random_source(rng), self.scale, (size, len(scores))))
        return np.argmin(scores + self.sign * noise, axis=1)

    def law(self, dataset: Any) -> np.ndarray:
        """Probability of each position."""
        if self.sign < 0:
            return np.asarray(report_noisy_min_distribution(dataset, "exponential", self.scale))
        return added_exponential(np.asarray(dataset, dtype=np.float64), self.scale)


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

    def __call__(self, dataset: Any, rng: Any, size: int) -> np.ndarray:
        losses = np.asarray(dataset, dtype=np.float64)
        z = gaussian(random_source(rng), self._std(len(losses)), size)
        noise = abs(z) if self.margin is None else z + self.margin
        steps = np.ceil((losses.mean() + noise) / self.min_decrease)
        return np.maximum(steps, 0.0).astype(np.int64)

    def law(self, dataset: Any) -> np.ndarray:
        """Probabilities of 0, 1, ... iterations; very large numbers are pooled."""
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
    """Randomized responses about one bit, each of them ``epsilon``-private."""

    epsilon: float
    count: int

    @property
    def event(self) -> Repeated:
        """The event of all responses."""
        return Repeated(Pure(self.epsilon), self.count)

    def __call__(self, dataset: Any, rng: Any, size: int) -> np.ndarray:
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

RELEASES = (
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
        source="a bound on the rows that is asserted and not enforced",
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


# Errors with batches: amplified twice, divided by a private size, drawn from another law


@dataclass(frozen=True)
class BatchMean:
    """The mean of a batch plus Laplace noise, on data so small that batches are enumerated."""

    sampling: Poisson | WithReplacement
    scale: float
    divisor: float | None  # None for the size of the batch
    accesses: int = 1
    fresh: bool = False  # whether each access draws its own batch

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
        """Return the distinct means of a batch and their probabilities."""
        rows = np.asarray(dataset, dtype=np.float64)
        means, chances = [], []
        for batch, chance in self._batches(len(rows)):
            divisor = max(1, len(batch)) if self.divisor is None else self.divisor
            means.append(math.fsum(rows[list(batch)]) / divisor)
            chances.append(chance)
        values, which = np.unique(means, return_inverse=True)
        return values, np.bincount(which, weights=chances)

    def __call__(self, dataset: Any, rng: Any, size: int) -> np.ndarray:
        random = random_source(rng)
        means, chances = self._means(dataset)
        uniform = random.random((size, self.accesses if self.fresh else 1))
        drawn = np.searchsorted(np.cumsum(chances)[:-1], uniform, side="right")
        answers = means[drawn] + laplace(random, self.scale, (size, self.accesses))
        return answers[:, 0] if self.accesses == 1 else answers

    def law(self, dataset: Any) -> Density | np.ndarray:
        """Density of one answer; for several, the law of the number above all means."""
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

BATCHES = (
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


# Errors in the weights that bound the contribution of a record to a sum of gradients


# The margin at which the logistic loss attains the bound of weak growth, so that a clipped
# gradient has norm C.
_STEEPEST = 0.92142
_SMALL_NORM = 0.1
_GAIN = 16.0
_BLOCK = 4


def _by_value(rows: Any, mean: bool) -> float:
    """Return the sum of the slopes of logistic losses at -margins ``rows``, clipped by value.

    With ``mean`` the mean loss determines the weight of every sample.
    """
    negative_margins = np.asarray(rows, dtype=np.float64)
    losses = np.logaddexp(0.0, negative_margins)
    rule = clipping.Value(_SMALL_NORM, *Logistic().weak_growth(1.0))
    weights = rule.weight(None, np.full_like(losses, losses.mean()) if mean else losses)
    return math.fsum(weights * special.expit(negative_margins))


def printed_weak_growth_mlp(row_norm: float, spectral_norms: Any) -> float:
    """Return 8 ||x||^2 sum_i sum_{j != i} ||W_j||^2: Fang et al. (2023), Appendix D.

    The sign between sum and norms is lost in our text. A product over the other layers is needed:
    with three layers or more this does not bound the gradient. See 004-4.
    """
    norms = np.asarray(spectral_norms)
    return float(8.0 * row_norm**2 * (len(norms) - 1) * (norms**2).sum())


def _network(rows: Any, printed: bool) -> float:
    """Return a sum of gradients of a ReLU network with layers 1 x 1, 1 x 1 and 2 x 1.

    The rows are the inputs, in [0, 1]. All gradients are collinear, so their sum is a number.
    ``printed`` selects the formula for the constant of weak growth.
    """
    x = np.asarray(rows, dtype=np.float64)
    last = 0.5 * _STEEPEST / _GAIN**2  # the scores are -last gain^2 x of the label, and the other
    losses = np.logaddexp(0.0, _STEEPEST * x)
    length = math.sqrt(2.0 * _GAIN**4 + 8.0 * (last * _GAIN) ** 2)
    gradients = length * x * special.expit(_STEEPEST * x)
    norms = [_GAIN, _GAIN, math.sqrt(2.0) * last]
    weak_growth = printed_weak_growth_mlp if printed else theory.weak_growth_mlp
    beta1 = float(weak_growth(1.0, norms))
    return math.fsum(clipping.Value(1.0, beta1).weight(None, losses) * gradients)


def _in_blocks(rows: Any, rest: bool) -> float:
    """Return the sum of numbers clipped at 1 in blocks; a last partial one only with ``rest``."""
    numbers = np.asarray(rows, dtype=np.float64)
    weights = clipping.Flat(1.0).weight(abs(numbers))
    if not rest:
        weights[len(numbers) // _BLOCK * _BLOCK :] = 1.0
    return math.fsum(weights * numbers)


def _claim(clip_norm: float) -> float:
    return privacy.epsilon(Laplace(clip_norm, sensitivity=clip_norm), 0.0, ADD_OR_REMOVE_ONE)


_FAR_CROWD = np.full(99, -40.0)
_INPUTS = np.array([0.0, 0.5])
_NUMBERS = np.array([0.25, -0.5, 0.5, -0.25])

CLIPPING = (
    Mutant(
        name="value clipping by the mean loss",
        source="errata 004-1: Fang et al. (2023), Algorithm 3, line 4",
        why="among many good samples the mean is small, and a bad one keeps its long gradient",
        broken=NoisySum(_SMALL_NORM, total=partial(_by_value, mean=True)),
        correct=NoisySum(_SMALL_NORM, total=partial(_by_value, mean=False)),
        dataset=np.append(_FAR_CROWD, _STEEPEST),
        neighbour=_FAR_CROWD,
        claim=_claim(_SMALL_NORM),
        relation=ADD_OR_REMOVE_ONE,
    ),
    Mutant(
        name="weak growth by a sum over layers",
        source="errata 004-4: Fang et al. (2023), Appendix D, read as a sum over other layers",
        why="from three layers on only the product of the other layers' norms bounds a gradient",
        broken=NoisySum(1.0, total=partial(_network, printed=True)),
        correct=NoisySum(1.0, total=partial(_network, printed=False)),
        dataset=np.append(_INPUTS, 1.0),
        neighbour=_INPUTS,
        claim=_claim(1.0),
        relation=ADD_OR_REMOVE_ONE,
    ),
    Mutant(
        name="rest of the last block unclipped",
        source="a loop over blocks of rows that forgets what is left behind the last full one",
        why="the weight of one record is not applied",
        broken=NoisySum(1.0, total=partial(_in_blocks, rest=False)),
        correct=NoisySum(1.0, total=partial(_in_blocks, rest=True)),
        dataset=np.append(_NUMBERS, 4.0),
        neighbour=_NUMBERS,
        claim=_claim(1.0),
        relation=ADD_OR_REMOVE_ONE,
    ),
)
