r"""Renyi costs of releases on a random part of the data.

Every cost is ``ln(1 + x)/(order - 1)`` with x a sum of positive terms, so that it keeps its
relative accuracy at the smallest sampling rates.

References
----------
Mironov, Talwar, Zhang (2019); Zhu, Wang (2019); Wang, Balle, Kasiviswanathan (2019).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from .._validation import check_int, check_number
from .pure import _scalar, amplify
from .rdp import Array, _orders, _power_excess, rdp_gaussian
from .subsampled_pure import rdp_pure_poisson, rdp_pure_without_replacement

__all__ = [
    "rdp_poisson",
    "rdp_poisson_gaussian",
    "rdp_pure_poisson",
    "rdp_pure_without_replacement",
    "rdp_without_replacement",
]

Curve: TypeAlias = Callable[[Array], ArrayLike]

# Binomial sums longer than this are integrated instead.
_LONGEST_SUM = 1024
# Integrals over more units than this (order times mu squared) are not worth their time.
_LONGEST_GRID = 1e6


def _log_binomials(a: Array) -> Array:
    """Return ln C(a, j) for integer orders a (rows) and j = 2..max a; -inf where j > a.

    Tables of usual size, which are asked for again with every new noise, are kept.
    """
    return _kept_table(a.tobytes()) if a.size * a.max() < 2e5 else _table(a)


@lru_cache(maxsize=64)
def _kept_table(key: bytes) -> Array:
    return _table(np.frombuffer(key, dtype=np.float64))


def _table(orders: Array) -> Array:
    a = orders.astype(np.intp)[:, None]
    log_factorials = special.gammaln(np.arange(1.0, a.max() + 2.0))
    j = np.arange(2, a.max() + 1)
    table = log_factorials[a] - log_factorials[j] - log_factorials[np.maximum(a - j, 0)]
    table[j > a] = -np.inf
    table.setflags(write=False)
    return table


def _binomial_cost(a: Array, log_odds: float, log_keep: float, log_terms: Array) -> Array:
    """Return ln(1 + keep**a sum_{j >= 2} C(a, j) odds**j t_j)/(a - 1) for integer orders a.

    Orders are taken together from one power of 2 to the next: a table of all of them would be
    zeros for the most part.
    """
    values, octaves = np.empty(a.size), np.frexp(a)[1]
    for octave in np.unique(octaves):
        some = octaves == octave
        terms = log_terms[: int(a[some].max()) - 1]
        values[some] = _binomial_cost_of_similar(a[some], log_odds, log_keep, terms)
    return values


def _binomial_cost_of_similar(
    a: Array, log_odds: float, log_keep: float, log_terms: Array
) -> Array:
    j = np.arange(2.0, log_terms.size + 2.0)
    exponent = _log_binomials(a) + (log_terms + log_odds * j)
    top = np.clip(exponent.max(axis=1), -1e300, 1e300)
    exponent -= top[:, None]
    # The largest term is 1 now: e**-100 changes no digit, and subnormal powers take ages.
    np.maximum(exponent, -100.0, out=exponent)
    with np.errstate(divide="ignore"):
        total = top + a * log_keep + np.log(np.exp(exponent, out=exponent).sum(axis=1))
    return np.logaddexp(0.0, total) / (a - 1.0)


def _log_expm1(x: Array) -> Array:
    """Return ln(e**x - 1) for x >= 0."""
    with np.errstate(divide="ignore"):
        return np.where(np.isinf(x), np.inf, x + np.log(-np.expm1(-x)))


def _between_integers(orders: Any, cost: Callable[[Array], Array], pure: float) -> Array:
    """Return costs at real orders from ``cost`` at the integers >= 2, and ``pure`` at infinity.

    The logarithm of the moment, (order - 1) cost, is convex in the order and vanishes at
    order 1. So the chord between bounds at the two neighbouring integers is a bound; it is
    never above the bound at the next integer, because costs increase with the order.
    """
    flat = np.ravel(orders)
    finite = np.isfinite(flat)
    values = np.full(flat.shape, pure)
    if finite.any():
        ends = np.concatenate([np.floor(flat[finite]), np.ceil(flat[finite])])
        whole = np.unique(np.maximum(ends, 2.0))
        moments = np.concatenate([[0.0], (whole - 1.0) * cost(whole)])
        chord = np.interp(flat[finite], np.concatenate([[1.0], whole]), moments)
        values[finite] = chord / (flat[finite] - 1.0)
    return values.reshape(np.shape(orders))


def rdp_poisson_gaussian(orders: ArrayLike, rate: float, noise_multiplier: float) -> Any:
    r"""Return the Renyi cost of Gaussian noise on a Poisson batch, at any real orders above 1.

    Exact for the pair N(0, s**2) and (1-q) N(0, s**2) + q N(1, s**2), which dominates
    add-or-remove-one; the other direction is never larger. Where the noise is so small that
    order/s**2 is above 1e6, orders off the binomial sum cost as if without sampling.

    Parameters
    ----------
    orders : array_like
        Renyi orders in (1, inf).
    rate : float
        Sampling rate q in [0, 1].
    noise_multiplier : float
        Standard deviation over the add-or-remove L2 sensitivity, in (0, inf].

    Returns
    -------
    float or ndarray

    Raises
    ------
    ValueError
        If an argument is outside its range.

    Notes
    -----
    Integer orders up to 1024 use the binomial sum. For the others
    :math:`E(1 - q + q e^{\mu x - \mu^2/2})^\alpha`, x standard normal, is summed on a
    grid of step h. The integrand is analytic for \|Im x\| < pi s and bounded there by
    its value on the real line times e^{d^2/2} at height d, so the trapezoidal rule has a
    relative error of at most 2 e^{d^2/2}/(e^{2 pi d/h} - 1): below 1e-12 for
    h = min(0.6, 0.45 s).

    References
    ----------
    Mironov, Talwar, Zhang (2019), Theorems 4 and 5 and Section 3.3.

    Examples
    --------
    >>> rdp_poisson_gaussian([2, 2.5, 32], 0.01, 1.0)
    array([1.7181e-04, 2.1758e-04, 1.12463e+01])
    """
    a = _orders(orders)
    q = check_number("rate", rate, low=0.0, high=1.0)
    s = check_number("noise_multiplier", noise_multiplier, low=0.0, low_open=True, finite=False)
    if q == 0.0 or math.isinf(s):
        return _scalar(np.zeros(a.shape))
    if q == 1.0 or s < 1e-6:  # below that, the batch is as good as known
        return rdp_gaussian(a, s)
    flat = np.ravel(a)
    values = np.full(flat.shape, np.inf)
    summed = (flat == np.floor(flat)) & (flat <= _LONGEST_SUM)
    if summed.any():
        j = np.arange(2.0, flat[summed].max() + 1.0)
        log_keep = math.log1p(-q)
        log_terms = _log_expm1(j * (j - 1.0) * (0.5 / s**2))
        values[summed] = _binomial_cost(flat[summed], math.log(q) - log_keep, log_keep, log_terms)
    for i in np.flatnonzero(~summed & np.isfinite(flat)):
        if flat[i] / s**2 > _LONGEST_GRID:  # sampling is convex, so it costs no more than without
            values[i] = rdp_gaussian(flat[i], s)
        else:
            values[i] = _poisson_gaussian_integral(float(flat[i]), q, 1.0 / s)
    return _scalar(values.reshape(a.shape))


def _poisson_gaussian_integral(a: float, q: float, mu: float) -> float:
    step = min(0.6, 0.45 / mu)
    x = np.arange(-9.5, a * mu + 9.5 + step, step)
    loss = mu * x - 0.5 * mu**2
    weight = step / math.sqrt(2.0 * math.pi)
    exponent = a * np.logaddexp(math.log1p(-q), math.log(q) + loss) - 0.5 * x * x
    if exponent.max() > 3.0:
        return (float(special.logsumexp(exponent)) + math.log(weight)) / (a - 1.0)
    # Where the power fits a float, 1 + a u, whose mean is 1, is left out without cancellation.
    log_normal = -0.5 * x * x
    near = exponent - log_normal < 300.0
    rest = _power_excess(np.log1p(q * np.expm1(loss[near])), a)
    total = float((np.exp(log_normal[near]) * rest).sum())
    far, log_far = loss[~near], log_normal[~near]
    linear = a * q * np.exp(far + log_far) + (1.0 - a * q) * np.exp(log_far)
    total += float((np.exp(exponent[~near]) - linear).sum())
    return math.log1p(weight * total) / (a - 1.0)


def rdp_poisson(orders: ArrayLike, rate: float, base_rdp: Curve, exact_pair: bool = False) -> Any:
    r"""Return the Renyi cost of any release on a Poisson batch, from its curve on the batch.

    .. math:: \frac{1}{\alpha-1} \ln\Big((1-q)^{\alpha-1}(\alpha q - q + 1)
              + \binom{\alpha}{2} q^2 (1-q)^{\alpha-2} e^{R(2)}
              + c \sum_{l=3}^{\alpha} \binom{\alpha}{l} q^l (1-q)^{\alpha-l} e^{(l-1) R(l)}\Big)

    at integer orders; see Notes for the others.

    Parameters
    ----------
    orders : array_like
        Renyi orders in (1, inf].
    rate : float
        Sampling rate q in [0, 1], add-or-remove-one.
    base_rdp : callable
        R: array of orders -> costs on the batch. Asked at the integers from 2 and at
        ``orders``.
    exact_pair : bool, default=False
        False: c = 3, valid for every R that bounds the release's curve. True: c = 1, exact
        when R is the curve of a dominating pair of distributions that some involution
        swaps: Gaussian, Laplace, randomised response, and products of them.

    Returns
    -------
    float or ndarray
        Never above ``base_rdp(orders)``, which is valid too (joint quasi-convexity).

    Raises
    ------
    ValueError
        If an argument is outside its range.

    Notes
    -----
    Between integers the chord of (order - 1) cost is used: that function is convex.

    References
    ----------
    Chen and Lee (2020), Lemma 4, after Zhu, Wang (2019), Theorem 6 (errata 002-10); Mironov,
    Talwar, Zhang (2019), Theorem 5 for the swapped direction of symmetric pairs.

    Examples
    --------
    >>> base = lambda orders: rdp_gaussian(orders, 1.0)
    >>> exact = rdp_poisson(8, 0.01, base, exact_pair=True)
    >>> exact == rdp_poisson_gaussian(8, 0.01, 1.0)
    True
    >>> rdp_poisson(8, 0.01, base) > exact
    True
    """
    a = _orders(orders)
    q = check_number("rate", rate, low=0.0, high=1.0)
    base = np.asarray(base_rdp(a), dtype=np.float64)
    if q == 0.0:
        return _scalar(np.zeros(a.shape))
    if q == 1.0:
        return _scalar(base)
    log_keep = math.log1p(-q)
    log_factor = 0.0 if exact_pair else math.log(3.0)

    def cost(whole: Array) -> Array:
        j = np.arange(2.0, whole.max() + 1.0)
        log_moments = (j - 1.0) * np.asarray(base_rdp(j)) + np.where(j > 2.0, log_factor, 0.0)
        return _binomial_cost(whole, math.log(q) - log_keep, log_keep, _log_expm1(log_moments))

    return _scalar(np.minimum(_between_integers(a, cost, _pure_limit(a, base, q)), base))


def _pure_limit(orders: Any, base: Array, fraction: float) -> float:
    """Return the amplified pure loss where order infinity was asked for, else infinity."""
    at_infinity = base[np.isinf(orders)] if base.ndim else base
    if not np.isinf(orders).any():
        return math.inf
    return float(amplify(at_infinity.flat[0], fraction))


def rdp_without_replacement(
    orders: ArrayLike, n: int, m: int, base_rdp: Curve, pure_epsilon: float = math.inf
) -> Any:
    r"""Return the Renyi cost of any release on m of n records drawn without replacement.

    .. math:: \frac{1}{\alpha-1} \ln\Big(1 + s^2 \binom{\alpha}{2}
              \min\{4(e^{R(2)}-1), e^{R(2)} \min\{2, (e^{R(\infty)}-1)^2\}\}
              + \sum_{j=3}^{\alpha} s^j \binom{\alpha}{j} e^{(j-1)R(j)}
              \min\{2, (e^{R(\infty)}-1)^j\}\Big), \qquad s = m/n

    Parameters
    ----------
    orders : array_like
        Renyi orders in (1, inf]; between integers the chord of (order - 1) cost is used.
    n, m : int
        Numbers of records and of those drawn, 1 <= m <= n; replace-one.
    base_rdp : callable
        R: array of orders -> costs on the batch. Asked at the integers from 2 and at
        ``orders``.
    pure_epsilon : float, default=inf
        R(inf), the pure loss on the batch where there is one.

    Returns
    -------
    float or ndarray
        Never above ``base_rdp(orders)``, which is valid too (joint quasi-convexity).

    Raises
    ------
    ValueError
        If an argument is outside its range.

    References
    ----------
    Gao and Wright (2023), Theorem B.4, after Wang, Balle, Kasiviswanathan (2019), Theorem 9.

    Examples
    --------
    >>> rdp_without_replacement(8, 1000, 10, lambda a: rdp_gaussian(a, 2.0))
    0.00048839
    """
    a = _orders(orders)
    n = check_int("n", n, low=1)
    s = check_int("m", m, low=1, high=n) / n
    pure = check_number("pure_epsilon", pure_epsilon, low=0.0, finite=False)
    return _fixed_size(a, s, base_rdp, pure)


def _fixed_size(a: Any, s: float, base_rdp: Curve, pure: float = math.inf) -> Any:
    """Return the formula above for a record that is in the batch with probability ``s``."""
    base = np.asarray(base_rdp(a), dtype=np.float64)
    if s == 1.0:
        return _scalar(base)
    log_pure = float(_log_expm1(np.asarray(pure)))

    def cost(whole: Array) -> Array:
        j = np.arange(2.0, whole.max() + 1.0)
        curve = np.asarray(base_rdp(j), dtype=np.float64)
        log_terms = (j - 1.0) * curve + np.minimum(math.log(2.0), j * log_pure)
        log_terms[0] = min(log_terms[0], math.log(4.0) + float(_log_expm1(curve[0])))
        return _binomial_cost(whole, math.log(s), 0.0, log_terms)

    return _scalar(np.minimum(_between_integers(a, cost, _pure_limit(a, base, s)), base))
