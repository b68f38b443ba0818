r"""An exact test of a claim for a release that is assumed to be Gaussian; void if it is not.

Let the release be :math:`N(m, \Sigma)` on one input and :math:`N(m', \Sigma)` on the other, all
three unknown, in k dimensions. The optimal test of the two inputs is that of N(0, 1) against
N(mu, 1), so the release is exactly mu-Gaussian private on them (Dong, Roth, Su, 2022) with

.. math:: \mu^2 = (m - m')^T \Sigma^{-1} (m - m').

From n runs of each input compute the difference of the means d and the pooled covariance S.
Hotelling's statistic :math:`T^2 = \tfrac n2 d^T S^{-1} d` satisfies

.. math:: \frac{2n - k - 1}{k (2n - 2)} T^2 \sim F'\bigl(k, 2n - k - 1, \tfrac n2 \mu^2\bigr),

a noncentral F law; for k = 1 it is that of the square of Student's noncentral t. The law's upper
tail increases in mu, so the largest mu under which the statistic or a larger one has probability at
most :math:`\alpha` is a lower bound that is too high with probability :math:`\alpha`, exactly, for
any number of runs. All deltas follow from mu.

**What is not tested remains an assumption.** Normality is tested by the Anderson-Darling statistic
with Stephens' (1986) approximate p-values, equal variances by the F test and equal means in two
calls by the t test, each along every coordinate and the direction that separates the inputs best. A
law that passes may still differ in its tails, where few runs fall and where small deltas are
decided.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import optimize, special, stats

from .._validation import check_fraction, check_int, check_number
from ..privacy.accounting.relations import Budget
from ..privacy.accounting.zcdp import gaussian_epsilon
from ..privacy.mechanisms import spawn
from .counting import Mechanism, check_independent
from .outcomes import CHANGED, Outcomes, Reader, as_batch, fingerprint
from .verify import GaussianPrivacy, VerdictBase, check_inputs, parse_claim

__tracebackhide__ = True  # pytest shows the line that calls this package

_FEWEST = 8
_LARGEST = 1e9  # noncentrality: SciPy's law is wrong far beyond; a smaller one is a lower bound
_SAFETY = 1e-9  # relative error of the root, and of epsilon, which is rounded up


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class GaussianVerdict(VerdictBase):
    """The result of a test of a claim on a release that is assumed to be Gaussian.

    Attributes
    ----------
    refuted, bounded, claim, delta, confidence, notes
        As of a :class:`Verdict`.
    void : str
        Why the release does not count as Gaussian, so that nothing is refuted; empty if it does.
    bound : float
        Lower bound on the claimed parameter, epsilon at ``delta`` or mu; 0 if void.
    least_mu : float
        Lower bound on mu, whichever parameter is claimed; also ``mu``.
    estimate : float
        Point estimate of mu.
    samples : int
        Runs of each input.
    """

    void: str
    least_mu: float
    estimate: float
    samples: int

    @property
    def mu(self) -> float:
        """Lower bound on mu, at least 0."""
        return self.least_mu

    def epsilon_at(self, delta: float) -> float:
        """Return the lower bound on epsilon at any delta in (0, 1) implied by that on mu.

        Examples
        --------
        >>> noise = lambda count, rng, size: count + rng.normal(0.0, 1.0, size)
        >>> verdict = verify_gaussian(noise, 0, 1, GaussianPrivacy(1.0), rng=0)
        >>> verdict.refuted, round(verdict.epsilon_at(1e-5), 1)
        (False, 3.8)
        """
        delta = check_fraction("delta", delta)
        return _epsilon(self.least_mu, delta)

    def __str__(self) -> str:
        if self.void:
            return f"void: {self.void}, so nothing follows from the assumption of Gaussian noise."
        return self._sentences(
            f"If the release is Gaussian, mu = {self.estimate:.4g} is its estimate from "
            f"{self.samples:,} runs of each input; if it is not, this verdict is void.",
            "inputs",
        )


def verify_gaussian(
    mechanism: Mechanism,
    dataset: Any,
    neighbour: Any,
    claim: float | Budget | GaussianPrivacy,
    *,
    delta: float = 0.0,
    samples: int = 10_000,
    confidence: float = 1 - 1e-9,
    fit: float = 0.01,
    rng: Any = None,
    relation: str | None = None,
    vectorized: bool = True,
) -> GaussianVerdict:
    r"""Test a claim about a release that is assumed to be Gaussian on both inputs.

    **What is assumed:** runs are independent, and normally distributed on each of the two inputs,
    with any means and with the same covariance on both. Then everything depends on the difference
    of the means, which is bounded exactly (:mod:`.gaussian`). This takes fewer runs than
    :func:`verify_privacy`, above all at a small delta, which only rare events contradict otherwise.
    **If the assumption fails, the verdict is void**, in either direction: a law with other tails
    can be more or less private than the normal law with these moments. So normality and equal
    variances are tested first, and the claim is not judged if they are rejected. To assume
    nothing, test a :class:`GaussianPrivacy` by :func:`verify_privacy`.

    Parameters
    ----------
    mechanism, dataset, neighbour, claim, rng, relation, vectorized
        As for :func:`verify_privacy`. Outputs are numbers or vectors of one shape.
    delta : float, default=0
        In (0, 1), since Gaussian noise has no finite epsilon at 0; 0 if mu is claimed.
    samples : int, default=10_000
        Runs of each input, at least 8 and more than the output's dimension.
    confidence : float, default=1 - 1e-9
        In (0, 1): one minus the rate of false alarms, if the assumption holds.
    fit : float, default=0.01
        In [0, 1): approximate probability that a Gaussian release is rejected as not Gaussian,
        which makes the verdict void; 0 skips the tests of fit.

    Raises
    ------
    ValueError
        If the inputs are not neighbours, or the mechanism returns the wrong number of rows, repeats
        its runs or changes its input.

    References
    ----------
    Hotelling (1931); Stephens (1986), *Tests based on EDF statistics*; Dong, Roth, Su (2022).

    Examples
    --------
    >>> def mechanism(count, rng, size):
    ...     return count + rng.normal(0.0, 2.5, size)
    >>> verdict = verify_gaussian(mechanism, 0, 1, 1.0, delta=1e-5, rng=0)
    >>> verdict.refuted, round(verdict.epsilon, 1), round(verdict.mu, 1)
    (True, 1.1, 0.3)
    >>> def laplace(count, rng, size):
    ...     return count + rng.laplace(0.0, 2.5, size)
    >>> print(verify_gaussian(laplace, 0, 1, 1.0, delta=1e-5, rng=0))
    void: output is not normal on the ..., so nothing follows from the assumption ...
    """
    asked = parse_claim(claim, delta)
    if asked.name == "epsilon" and asked.delta == 0.0:
        raise ValueError("delta must lie in (0, 1): Gaussian noise keeps no epsilon at delta = 0")
    samples = check_int("samples", samples, low=_FEWEST)
    confidence = check_fraction("confidence", confidence)
    fit = check_number("fit", fit, low=0.0, high=1.0, high_open=True)
    check_inputs(mechanism, dataset, neighbour, relation, asked, vectorized)
    runs = _runs(mechanism, (dataset, neighbour), samples, rng, bool(vectorized))
    void, least, estimate = "an output is not a vector of finite numbers", 0.0, math.nan
    if all(part.plain.all() for part in runs) and runs[0].values.shape[1]:
        void, least, estimate = _bound_mu((runs[0].values, runs[1].values), 1.0 - confidence, fit)
    bound = least if asked.name == "mu" else _epsilon(least, asked.delta)
    return GaussianVerdict(
        **asked.judged(bound, confidence),
        void=void,
        least_mu=least,
        estimate=estimate,
        samples=samples,
    )


def _runs(
    mechanism: Mechanism, inputs: tuple[Any, Any], samples: int, rng: Any, vectorized: bool
) -> list[Outcomes]:
    """Return the runs on each input, made by two calls whose outputs must differ."""
    before = tuple(map(fingerprint, inputs))
    sizes = samples // 2, samples - samples // 2
    batches = []
    for data, random in zip(inputs, spawn(rng, 2)):
        for size in sizes:
            if vectorized:
                batches.append(as_batch(mechanism(data, random, size), size))
            else:
                batches.append([mechanism(data, random) for _ in range(size)])
    if tuple(map(fingerprint, inputs)) != before:
        raise ValueError(CHANGED)
    reader = Reader(batches)
    read = [reader.read(batch) for batch in batches]
    if vectorized:
        check_independent(read[0], read[1])
        check_independent(read[2], read[3])
    return [Outcomes.join(read[:2]), Outcomes.join(read[2:])]


def _bound_mu(
    runs: tuple[np.ndarray, np.ndarray], miss: float, fit: float
) -> tuple[str, float, float]:
    """Return why the release is not Gaussian (or ""), the lower bound on mu, and an estimate."""
    n, k = runs[0].shape
    if n < k + 2:
        raise ValueError(f"samples must be at least {k + 2:,} for outputs of {k:,}, got {n:,}")
    spread = np.sqrt(runs[0].var(axis=0) + runs[1].var(axis=0))
    if not spread.all():
        return f"{_name(int(np.argmin(spread)), k)} does not vary", 0.0, math.nan
    first, second = ((part - runs[0].mean(axis=0)) / spread for part in runs)
    pooled = 0.5 * sum(np.atleast_2d(np.cov(part, rowvar=False)) for part in (first, second))
    if np.linalg.matrix_rank(pooled) < k:
        return "the numbers of the output depend on each other linearly", 0.0, math.nan
    shift = first.mean(axis=0) - second.mean(axis=0)
    weights = np.linalg.solve(pooled, shift)
    squared = max(0.0, float(shift @ weights))
    directions = [(_name(j, k), first[:, j], second[:, j]) for j in range(k)]
    if k > 1:
        directions.append(("the most informative sum", first @ weights, second @ weights))
    void = _misfit(directions, fit)
    least = 0.0 if void else _least_mu(squared, n, k, miss)
    return void, least, math.sqrt(squared)


def _name(index: int, width: int) -> str:
    return "output" if width == 1 else f"output[{index}]"


def _least_mu(squared: float, n: int, k: int, miss: float) -> float:
    """Return the mu under which this squared distance or a larger one has probability ``miss``."""
    rest, squared = 2 * n - k - 1, min(squared, 2.0 * _LARGEST / n)
    statistic = rest / (k * (2 * n - 2)) * 0.5 * n * squared

    def excess(mu: float) -> float:
        tail = stats.ncf.sf(statistic, k, rest, 0.5 * n * mu**2)
        return math.log(max(float(tail), 1e-300)) - math.log(miss)

    if stats.f.sf(statistic, k, rest) >= miss:
        return 0.0
    high = math.sqrt(squared)
    while excess(high) < 0.0:
        high *= 2.0
    return float(optimize.brentq(excess, 1e-9 * high, high, rtol=_SAFETY)) * (1.0 - 2.0 * _SAFETY)


def _epsilon(mu: float, delta: float) -> float:
    """Return the epsilon of mu-Gaussian privacy at delta, rounded down."""
    return gaussian_epsilon(1.0 / mu, delta) * (1.0 - _SAFETY) if mu > 0.0 else 0.0


def _misfit(directions: list[tuple[str, np.ndarray, np.ndarray]], level: float) -> str:
    """Return the strongest evidence against normal laws of equal variance (Bonferroni), or ""."""
    found = []
    for name, *pair in directions:
        for side, values in zip(("dataset", "neighbour"), pair):
            text = f"{name} is not normal on the {side} (Anderson-Darling"
            found.append((_normal_p_value(values), text))
            calls = np.array_split(values, [len(values) // 2])
            text = f"{name} has another mean in another call on the {side} (t test"
            found.append((float(stats.ttest_ind(*calls).pvalue), text))
        ratio = max(np.var(pair[0]), 1e-300) / max(np.var(pair[1]), 1e-300)
        free = len(pair[0]) - 1
        p_value = 2.0 * float(stats.f.sf(max(ratio, 1.0 / ratio), free, free))
        found.append((p_value, f"{name} has another variance on the neighbour (F test"))
    p_value, text = min(found)
    if p_value * len(found) >= level:
        return ""
    return f"{text}, p = {p_value:.2g}, the smallest of {len(found)})"


def _normal_p_value(values: np.ndarray) -> float:
    """Return the approximate p-value of the Anderson-Darling test of normality (Stephens, 1986)."""
    n = values.size
    spread = values.std(ddof=1)
    if spread == 0.0:
        return 0.0
    z = np.sort((values - values.mean()) / spread)
    weights = 2.0 * np.arange(1, n + 1) - 1.0
    squared = -n - float(weights @ (special.log_ndtr(z) + special.log_ndtr(-z[::-1]))) / n
    a = min(squared * (1.0 + 0.75 / n + 2.25 / n**2), 100.0)
    if a >= 0.6:
        return math.exp(1.2937 - 5.709 * a + 0.0186 * a**2)
    if a >= 0.34:
        return math.exp(0.9177 - 4.279 * a - 1.38 * a**2)
    if a >= 0.2:
        return 1.0 - math.exp(-8.318 + 42.796 * a - 59.938 * a**2)
    return 1.0 - math.exp(-13.436 + 101.14 * a - 223.73 * a**2)
