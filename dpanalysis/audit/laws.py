"""Exact output laws of mechanisms: tables over all batches, selection, and pairs of densities.

A subsampled mechanism on a few records is a mixture over all batches. A table of its laws, one row
per batch, makes no assumptions: a bound must hold for all tables, in both directions.

The probability of an outcome of AboveThreshold or report-noisy-min is one integral of a log-concave
function, over the noise of the threshold or over the winning value. This makes the quadrature safe:
a concave logarithm lies below the extrapolation of its chords, so no peak is missed, and the error
is relative, however rare the outcome.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from .._validation import (
    check_choice,
    check_finite,
    check_int,
    check_number,
    check_positive,
    check_reals,
)
from ..privacy.accounting.rdp import _expm1_minus
from .quadrature import EPS, Array, Density, LogIntegrand, integrate

# Tables over all batches of tiny data


@dataclass(frozen=True, eq=False)
class Subsampling:
    """The laws of batches from two neighbouring data sets, and which batches are neighbours."""

    first: Array  # (batches,), probability of each batch from one data set
    second: Array  # (batches,), from the other
    neighbours: NDArray[np.int64]  # (pairs, 2), pairs of batches that are neighbours

    def __post_init__(self) -> None:
        for name in ("first", "second", "neighbours"):  # read-only: cached and shared by callers
            array = np.array(getattr(self, name))
            array.flags.writeable = False
            object.__setattr__(self, name, array)

    def laws(self, table: ArrayLike) -> tuple[Array, Array]:
        """Return the laws of the outcome on the two data sets."""
        table = np.asarray(table, dtype=np.float64)
        return self.first @ table, self.second @ table

    def loss(self, table: ArrayLike) -> float:
        """Return the pure privacy loss of the mechanism on a batch."""
        logs = np.log(np.asarray(table, dtype=np.float64))
        return float(np.abs(logs[self.neighbours[:, 0]] - logs[self.neighbours[:, 1]]).max())

    def curve(self, table: ArrayLike) -> Callable[[ArrayLike], Array]:
        """Return the Renyi curve of the mechanism on a batch: the maximum over all pairs."""
        table = np.asarray(table, dtype=np.float64)
        ordered = np.concatenate([self.neighbours, self.neighbours[:, ::-1]])
        p, q = table[ordered[:, 0]], table[ordered[:, 1]]

        def curve(orders: ArrayLike) -> Array:
            orders = np.asarray(orders, dtype=np.float64)
            return renyi_curve(p, q, orders.ravel()).max(axis=0).reshape(orders.shape)

        return curve


def renyi_curve(p: ArrayLike, q: ArrayLike, orders: ArrayLike) -> Array:
    """Return the Renyi divergences of many pairs of positive laws at many orders."""
    p, q = np.asarray(p, dtype=np.float64)[:, None, :], np.asarray(q, dtype=np.float64)[:, None, :]
    orders = np.asarray(orders, dtype=np.float64)
    loss = np.log(p / q)
    a = np.where(np.isinf(orders), 2.0, orders)[None, :, None]
    # As in :mod:`.exact`: positive terms only, so that small divergences keep their digits.
    size = a * np.abs(loss)
    tame = np.where(size < 300.0, loss, 0.0)
    parts = _expm1_minus(-tame) + _expm1_minus((a - 1.0) * tame) / (a - 1.0)
    near = np.log1p((a[..., 0] - 1.0) * (p * parts).sum(axis=-1))
    far = special.logsumexp(np.log(q) + a * loss, axis=-1)
    moment = np.where(size.max(axis=-1) < 300.0, near, far) / (a[..., 0] - 1.0)
    return np.where(np.isinf(orders), loss.max(axis=-1), moment)


def laws_of(logits: ArrayLike, outcomes: int, spread: float = 1.0) -> Array:
    """Return a table of laws from any numbers: the softmax of ``spread`` times each row."""
    outcomes = check_int("outcomes", outcomes, low=2)
    spread = check_number("spread", spread, low=0.0)
    rows = np.asarray(logits, dtype=np.float64).reshape(-1, outcomes)
    return special.softmax(spread * rows, axis=1)


@lru_cache(maxsize=64)
def without_replacement(n: int, m: int) -> Subsampling:
    """Return all batches of m records from two data sets of n that differ in one record."""
    n = check_int("n", n, low=1, high=8)
    m = check_int("m", m, low=1, high=n)
    # Record 0 is replaced by record n.
    sides = [
        [frozenset(batch) for batch in itertools.combinations(records, m)]
        for records in (range(n), range(1, n + 1))
    ]
    batches = list(dict.fromkeys(sides[0] + sides[1]))
    first, second = (np.array([(batch in side) / len(side) for batch in batches]) for side in sides)
    return Subsampling(first, second, _pairs(batches, 2))


@lru_cache(maxsize=64)
def poisson(n: int, rate: float) -> Subsampling:
    """Return all Poisson batches of n records; the second data set lacks the last record."""
    n = check_int("n", n, low=1, high=8)
    rate = check_number("rate", rate, low=0.0, high=1.0)
    batches = [
        frozenset(batch)
        for size in range(n + 1)
        for batch in itertools.combinations(range(n), size)
    ]

    def law(records: int) -> Array:
        return np.array(
            [
                rate ** len(b) * (1.0 - rate) ** (records - len(b))
                if max(b, default=-1) < records
                else 0.0
                for b in batches
            ]
        )

    return Subsampling(law(n), law(n - 1), _pairs(batches, 1))


def _pairs(batches: list[frozenset[int]], distance: int) -> NDArray[np.int64]:
    found = [
        (i, j)
        for (i, a), (j, b) in itertools.combinations(enumerate(batches), 2)
        if len(a ^ b) == distance
    ]
    return np.array(found, dtype=np.int64).reshape(-1, 2)


@lru_cache(maxsize=64)
def presence(fraction: float, relation: str) -> Subsampling:
    """Return a subsampling of any size, for mechanisms that look at one record only."""
    # Rows: the batch has the record; it has the replacement ("replace_one" only); neither.
    q = check_number("fraction", fraction, low=0.0, high=1.0, low_open=True)
    if relation == "add_or_remove_one":
        return Subsampling(np.array([q, 1.0 - q]), np.array([0.0, 1.0]), np.array([[0, 1]]))
    return Subsampling(
        np.array([q, 0.0, 1.0 - q]), np.array([0.0, q, 1.0 - q]), np.array([[0, 1], [0, 2], [1, 2]])
    )


# Selection among finitely many outcomes


# Smaller probabilities are reported as this: two laws must not differ by underflow alone.
_RAREST = 1e-300
# The mass beyond the ends of an integral is below exp(-_NEGLIGIBLE) of each outcome's mass.
_NEGLIGIBLE = 50.0


def above_threshold_distribution(
    queries: ArrayLike,
    noise: str,
    threshold_scale: float,
    query_scale: float,
    *,
    threshold: float = 0.0,
    full_output: bool = False,
) -> Any:
    r"""Return the law of the index at which AboveThreshold halts.

    It halts at the first i with :math:`q_i + \nu_i \ge T + \varrho`, so that outcome i has
    probability :math:`\int f(r) \prod_{j<i} F(T + r - q_j)\, (1 - F)(T + r - q_i)\, dr` with f the
    density of the threshold's noise and F the distribution function of a query's. Chen and Lee
    (2020), Lemma 5 and Algorithm 1; Dwork and Roth (2014), Algorithm 1.

    Parameters
    ----------
    queries : array_like, shape (K,)
        Values of the queries, finite, in the order in which they are asked.
    noise : {"laplace", "gaussian"}
        The law of the noise, both of the threshold and of the queries.
    threshold_scale, query_scale : float
        Laplace scale or standard deviation, positive.
    threshold : float, default=0
        Public threshold T.
    full_output : bool, default=False
        Also return an estimate of the relative error of each probability.

    Returns
    -------
    probabilities : ndarray, shape (K + 1,)
        The probabilities of halting at query 1, ..., K, and of never halting. Small ones have
        as many correct digits as large ones; those below 1e-300 are returned as 1e-300.
    error : ndarray, shape (K + 1,)
        Only with ``full_output``.

    Examples
    --------
    >>> above_threshold_distribution([0.0, 0.0], "laplace", 2.0, 4.0)
    array([0.5    , 0.20833, 0.29167])
    """
    q = _values("queries", queries)
    check_choice("noise", noise, ("laplace", "gaussian"))
    first = check_positive("threshold_scale", threshold_scale)
    second = check_positive("query_scale", query_scale)
    q = q - check_number("threshold", threshold)
    logpdf, log_below_above = _NOISE[noise]
    distinct, index = np.unique(q, return_inverse=True)

    def log_f(r: Array) -> tuple[Array, Array]:
        stays, halts = log_below_above((r[:, None] - distinct) / second)
        # np.unique has sorted the values, so restore their order even if none repeats.
        stays, halts = stays[:, index], halts[:, index]
        value = np.empty((r.size, q.size + 1))
        value[:, 0] = 0.0
        np.cumsum(stays, axis=1, out=value[:, 1:])
        value[:, :-1] += halts
        value += logpdf(r[:, None] / first) - math.log(first)
        return value, _rounding(value, q.size)

    ends = min(0.0, distinct[0]), max(0.0, distinct[-1])
    kinks = np.union1d(distinct, 0.0) if noise == "laplace" else None
    scales = np.array([first, second])
    return _law(log_f, ends, np.zeros(1), scales, kinks, full_output)


def report_noisy_min_distribution(
    values: ArrayLike, noise: str, scale: float, *, full_output: bool = False
) -> Any:
    r"""Return the law of the index of the smallest noisy value.

    McKenna, Sheldon (2020) for the exponential noise.

    Parameters
    ----------
    values : array_like, shape (K,)
        Finite.
    noise : {"laplace", "gaussian", "exponential", "gumbel"}
        Exponential and Gumbel noise is SUBTRACTED (the winner is argmin of values - noise, as
        report-noisy-max adds it): with values of sensitivity S, exponential noise of scale 2
        S/epsilon is then epsilon-private ("permute and flip"); added, it is not. With Gumbel noise
        outcome i has a probability proportional to exp(-values_i/scale): the exponential mechanism.
    scale : float
        Laplace, exponential or Gumbel scale, or standard deviation; positive.
    full_output : bool, default=False
        As for :func:`above_threshold_distribution`, as are the returned values.

    Returns
    -------
    probabilities, error : ndarray, shape (K,)

    Examples
    --------
    >>> report_noisy_min_distribution([0.0, 1.0], "gumbel", 1.0)
    array([0.73106, 0.26894])
    >>> report_noisy_min_distribution([0.0, 1.0], "exponential", 1.0)
    array([0.81606, 0.18394])
    """
    v = _values("values", values)
    check_choice("noise", noise, ("laplace", "gaussian", "exponential", "gumbel"))
    scale = check_positive("scale", scale)
    if noise == "gumbel":
        logits = -(v - v.min()) / scale
        law = np.maximum(np.exp(logits - special.logsumexp(logits)), _RAREST)
        return (law, 4.0 * EPS * (1.0 - logits)) if full_output else law
    logpdf, log_below_above = _NOISE[noise]
    distinct, index = np.unique(v, return_inverse=True)

    def log_f(x: Array) -> tuple[Array, Array]:
        z = (x[:, None] - distinct) / scale
        above, density = log_below_above(z)[1], logpdf(z) - math.log(scale)
        above, density = above[:, index], density[:, index]
        with np.errstate(invalid="ignore"):
            value = above.sum(axis=1, keepdims=True) - above + density
        # At the end of the support of one-sided noise, a null set.
        value[np.isnan(value)] = -np.inf
        return value, _rounding(value, v.size)

    kinks = distinct if noise == "laplace" else None
    # If positive noise is subtracted, the winning value does not exceed the smallest value.
    closed = noise == "exponential"
    ends = distinct[0], distinct[0 if closed else -1]
    return _law(log_f, ends, np.array(ends), np.array([scale]), kinks, full_output, closed)


def _law(
    log_f: LogIntegrand,
    ends: tuple[float, float],
    anchors: Array,
    scales: Array,
    kinks: Array | None,
    full_output: bool,
    closed: bool = False,
) -> Any:
    """Integrate a log-concave function per outcome; ``closed``: zero beyond the right end."""
    steps = np.exp2(np.arange(-4.0, 60.0, 2.0))
    around = [anchor + sign * s * steps for anchor in anchors for sign in (-1, 1) for s in scales]
    inner = np.concatenate([*around, anchors])
    inner = np.unique(inner[(inner > ends[0]) & (inner < ends[1])])
    size = math.fsum(scales)
    best = log_f(np.append(inner, ends[0] - size))[0].max(axis=0)
    low = _reach(log_f, ends[0], -size, best)
    high = np.empty(0) if closed else _reach(log_f, ends[1], size, best)
    edges = np.unique(np.concatenate([low, ends, inner, high]))
    log_law, error = integrate(log_f, edges, cuts=kinks, floor=math.log(_RAREST))
    law = np.maximum(np.exp(log_law), _RAREST)
    error = np.where(law > _RAREST, error, 0.0)
    return (law, error) if full_output else law


def _reach(log_f: LogIntegrand, end: float, step: float, best: Array) -> Array:
    """Return points at increasing distances, until no outcome has mass beyond the last one.

    Beyond a point a concave logarithm falls at least as fast as on the interval before it.
    """
    points = [end + step]
    value = log_f(np.array(points))[0][0]
    while math.isfinite(points[-1]):
        step *= 2.0
        points.append(points[-1] + step)
        before, value = value, log_f(np.array(points[-1:]))[0][0]
        best = np.maximum(best, value)
        with np.errstate(invalid="ignore"):
            falls = (before - value > 1.0) | np.isneginf(value)
        floor = np.maximum(best + math.log(abs(step)), math.log(_RAREST)) - _NEGLIGIBLE
        if (falls & (value + math.log(abs(step)) < floor)).all():
            break
    return np.array(points)


def _rounding(value: Array, terms: int) -> Array:
    """Return the rounding error of logarithms that are sums of ``terms`` of one sign."""
    return 2.0 * EPS * (2.0 + (1.0 + 0.25 * math.sqrt(terms)) * np.abs(value))


def _laplace_logpdf(z: Array) -> Array:
    return -np.abs(z) - math.log(2.0)


def _gaussian_logpdf(z: Array) -> Array:
    return -0.5 * z * z - 0.5 * math.log(2.0 * math.pi)


def _symmetric(log_tail: Callable[[Array], Array]) -> Callable[[Array], tuple[Array, Array]]:
    """Return z -> ln F(z), ln(1 - F(z)), from ln(1 - F(z)) for z >= 0."""

    def log_below_above(z: Array) -> tuple[Array, Array]:
        tail = log_tail(np.abs(z))
        body, right = np.log1p(-np.exp(tail)), z > 0.0
        return np.where(right, body, tail), np.where(right, tail, body)

    return log_below_above


def _exponential(z: Array) -> tuple[Array, Array]:
    below = np.minimum(z, 0.0)
    with np.errstate(divide="ignore"):
        return below, np.log(-np.expm1(below))


# noise -> (z -> log density, z -> log probabilities of at most z and of more), at scale one.
# The exponential noise is negative.
_NOISE: dict[str, tuple[Callable[[Array], Array], Callable[[Array], tuple[Array, Array]]]] = {
    "laplace": (_laplace_logpdf, _symmetric(lambda z: -z - math.log(2.0))),
    "gaussian": (_gaussian_logpdf, _symmetric(lambda z: special.log_ndtr(-z))),
    "exponential": (lambda z: np.where(z <= 0.0, z, -np.inf), _exponential),
}


def _values(name: str, value: ArrayLike) -> Array:
    array = check_finite(name, check_reals(name, value))
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"{name} must have shape (K,), K >= 1, got shape {array.shape}")
    return array


# Dominating pairs of subsampled noise


def subsampled_laplace(scale: float, sensitivity: float, rate: float) -> tuple[Density, Density]:
    """Return the dominating pair of a Laplace release from a Poisson sample.

    Parameters
    ----------
    scale : float
        Laplace scale, positive.
    sensitivity : float
        Distance of the two centers, positive.
    rate : float
        Probability that the record is in the sample, in [0, 1].

    Returns
    -------
    with_record, without_record : Density
        (1 - rate) Lap(0) + rate Lap(sensitivity), and Lap(0).

    Examples
    --------
    >>> from dpanalysis import audit
    >>> pair = subsampled_laplace(1.0, 1.0, 0.1)
    >>> audit.renyi_divergence(*pair, float("inf"))     # ln(1 + .1 (e - 1))
    0.158565
    """
    scale = check_positive("scale", scale)
    return _subsampled(_laplace_logpdf, scale, sensitivity, rate)


def subsampled_gaussian(std: float, sensitivity: float, rate: float) -> tuple[Density, Density]:
    """Return the dominating pair of a Gaussian release from a Poisson sample.

    Parameters
    ----------
    std : float
        Standard deviation, positive.
    sensitivity, rate
        As for :func:`subsampled_laplace`.

    Returns
    -------
    with_record, without_record : Density
        (1 - rate) N(0, std**2) + rate N(sensitivity, std**2), and N(0, std**2).

    Examples
    --------
    >>> from dpanalysis import audit, privacy
    >>> pair = subsampled_gaussian(1.0, 1.0, 0.01)
    >>> ours = float(privacy.rdp_poisson_gaussian(8, 0.01, 1.0))
    >>> abs(audit.renyi_divergence(*pair, 8) - ours) < 1e-9 * ours
    True
    """
    std = check_positive("std", std)
    return _subsampled(_gaussian_logpdf, std, sensitivity, rate)


def _subsampled(
    logpdf: Callable[[Array], Array], scale: float, sensitivity: float, rate: float
) -> tuple[Density, Density]:
    shift = check_positive("sensitivity", sensitivity)
    rate = check_number("rate", rate, low=0.0, high=1.0)
    log_scale = math.log(scale)

    def without(x: Array) -> Array:
        return logpdf(x / scale) - log_scale

    def mixture(x: Array) -> Array:
        # From the ratio of the two, which is exact for tiny rates, not from their sum.
        base = logpdf(x / scale)
        apart = logpdf((x - shift) / scale) - base
        change = rate * np.expm1(np.minimum(apart, 700.0))
        # Near -1, where the rate is almost 1, the ratio is a sum of two terms.
        large = np.logaddexp(
            apart + (math.log(rate) if rate else -math.inf),
            math.log1p(-rate) if rate < 1.0 else -math.inf,
        )
        return base - log_scale + np.where(np.abs(change) < 0.5, np.log1p(change), large)

    return Density(mixture, (0.0, shift)), Density(without, (0.0,))
