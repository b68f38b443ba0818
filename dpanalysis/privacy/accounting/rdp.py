r"""Renyi differential privacy: costs at real orders, amplification, and the tight conversion.

Every cost is computed as ``ln(1 + x)/(order - 1)`` with x a sum of positive terms, so it keeps its
relative accuracy when the loss or the sampling rate is tiny. Orders are real and above 1; infinity
stands for pure privacy where that is finite. The cost of a subsampled release of known pure loss is
the largest that any such release can have, so no smaller bound is valid.

References
----------
Mironov (2017); Canonne, Kamath, Steinke (2020); Balle, Barthe, Gaboardi (2018); Mironov, Talwar,
Zhang (2019); Zhu, Wang (2019); Wang, Balle, Kasiviswanathan (2019); Zhu, Dong, Wang (2022).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from ..._validation import as_scalar, check_choice, check_number, check_reals
from .pure import _fraction, _positive, amplify

Array: TypeAlias = NDArray[np.float64]


def _orders(orders: ArrayLike) -> Any:
    """Return the orders as floats, each in (1, inf]."""
    array = check_reals("orders", orders)
    if not (array > 1.0).all():
        raise ValueError(f"orders must lie in (1, inf], got {orders!r}")
    return array


def rdp_gaussian(orders: ArrayLike, noise_multiplier: ArrayLike) -> Any:
    """Return the Renyi cost of Gaussian noise: order/(2 noise_multiplier**2).

    Parameters
    ----------
    orders : array_like
        Renyi orders in (1, inf].
    noise_multiplier : array_like
        Standard deviation over L2 sensitivity, in (0, inf]; broadcasts with ``orders``.

    Returns
    -------
    float or ndarray

    References
    ----------
    Mironov (2017), Corollary 3.

    Examples
    --------
    >>> rdp_gaussian([2, 10], 2.0)
    array([0.25, 1.25])
    """
    sigma = _positive("noise_multiplier", noise_multiplier)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):  # both infinite
        cost = _orders(orders) * np.maximum(0.5 / sigma**2, 5e-324)  # sigma**2 may overflow
    return as_scalar(np.where(np.isinf(sigma), 0.0, cost))


def rdp_laplace(orders: ArrayLike, epsilon: ArrayLike) -> Any:
    r"""Return the Renyi cost of a Laplace release with pure loss ``epsilon`` = S1/b.

    .. math:: \frac{1}{\alpha-1} \ln\Big(\frac{\alpha}{2\alpha-1} e^{(\alpha-1)\epsilon}
              + \frac{\alpha-1}{2\alpha-1} e^{-\alpha\epsilon}\Big)

    The arguments are those of :func:`rdp_gaussian`, except ``epsilon`` in [0, inf], the L1
    sensitivity over the scale.

    References
    ----------
    Mironov (2017), Proposition 6. A release in d dimensions costs no more than this:
    see :class:`dpanalysis.privacy.events.Laplace`.

    Examples
    --------
    >>> rdp_laplace(2, 1.0)
    0.61912
    """
    a, loss = _orders(orders), _positive("epsilon", epsilon, allow_zero=True)
    with np.errstate(invalid="ignore"):  # infinite orders
        low, gap = (a - 1.0) / (2.0 * a - 1.0), (2.0 * a - 1.0) * loss
    return _two_exponentials(a, loss, low, gap, _laplace_excess)


def _laplace_excess(a: Array, loss: Array) -> Array:
    # The linear terms of both exponentials cancel; omitting them avoids cancellation.
    return (a * _expm1_minus((a - 1.0) * loss) + (a - 1.0) * _expm1_minus(-a * loss)) / (
        2.0 * a - 1.0
    )


def rdp_pure(orders: ArrayLike, epsilon: ArrayLike) -> Any:
    r"""Return the largest Renyi cost of any epsilon-private release (tight).

    .. math:: \epsilon - \frac{\ln(1 + e^{-\epsilon})
              - \ln(1 + e^{-(2\alpha-1)\epsilon})}{\alpha-1}

    Attained by randomized response. The arguments are those of :func:`rdp_laplace`.

    Examples
    --------
    >>> rdp_pure([2, 10], 1.0)
    array([0.73533, 0.96519])
    """
    a, loss = _orders(orders), _positive("epsilon", epsilon, allow_zero=True)
    # cosh((a - 1/2) e)/cosh(e/2) = 1 + 2 sinh(a e/2) sinh((a - 1) e/2)/cosh(e/2)
    with np.errstate(invalid="ignore"):  # infinite orders
        gap = 2.0 * (a - 1.0) * loss
    return _two_exponentials(
        a,
        loss,
        special.expit(-loss),
        gap,
        lambda b, e: 2.0 * np.sinh(0.5 * b * e) * np.sinh(0.5 * (b - 1.0) * e) / np.cosh(0.5 * e),
    )


def _two_exponentials(
    a: Array, loss: Array, low: Array, gap: Array, excess: Callable[[Array, Array], Array]
) -> Any:
    """Return ln((1 - low) e^{(a-1) loss} + low e^{(a-1) loss - gap})/(a - 1).

    ``excess`` computes the sum in the logarithm minus 1, accurately for small losses.
    """
    a, loss, low, gap = np.broadcast_arrays(a, loss, low, gap)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        size = a * loss
        small = np.isfinite(a) & (size < 20.0)
        tame_a, tame_loss = np.where(small, a, 2.0), np.where(small, loss, 0.0)
        near = np.log1p(excess(tame_a, tame_loss)) / (tame_a - 1.0)
        far = loss + np.log1p(low * np.expm1(-gap)) / (a - 1.0)
    value = np.where(small, near, np.where(np.isinf(loss), np.inf, far))
    return as_scalar(np.where(np.isinf(a), loss, value))


def _expm1_minus(x: Any) -> Any:
    """Return e**x - 1 - x without cancellation."""
    x = np.asarray(x, dtype=np.float64)
    value = np.asarray(np.expm1(x) - x)
    near = np.abs(x) < 0.05
    if near.any():
        t = x[near]
        series = np.ones_like(t)
        for k in range(10, 2, -1):
            series = 1.0 + t / k * series
        value[near] = 0.5 * t * t * series
    return value


def _power_excess(x: Any, a: Any) -> Any:
    """Return s**a - 1 - a (s - 1) >= 0 at s = e**x, for a >= 1, without cancellation.

    With b = a - 1 it is e**x (e**(b x) - 1 - b x) + b (1 - e**x + x e**x): no term is negative.
    """
    x = np.asarray(x, dtype=np.float64)
    power = np.exp(x)
    entropy = np.asarray(x * power - np.expm1(x))
    near = np.abs(x) < 0.05
    if near.any():
        entropy[near] = power[near] * _expm1_minus(-x[near])
    return power * _expm1_minus((a - 1.0) * x) + (a - 1.0) * entropy


def _log_power_excess(u: Any, order: Any) -> Any:
    """Return ln(s**order - 1 - order (s - 1)) at s = e**u, even where the power overflows."""
    big = np.asarray(order * u > 30.0)
    value = np.empty(big.shape)
    u, order = np.broadcast_to(u, big.shape), np.broadcast_to(order, big.shape)
    with np.errstate(divide="ignore", over="ignore"):
        value[~big] = np.log(_power_excess(u[~big], order[~big]))
        tame, order = u[big], order[big]
        beta = order - 1.0
        # 1 - order e^(-beta u) + beta e^(-order u), without cancellation near order 1.
        rest = -np.expm1(-beta * tame) - beta * (np.exp(-beta * tame) - np.exp(-order * tame))
        value[big] = order * tame + np.log(rest)
    return value


def rdp_to_epsilon(orders: ArrayLike, rdp: ArrayLike, delta: float) -> tuple[float, float]:
    r"""Convert a Renyi curve to (epsilon, delta) by the tight formula, at the best order.

    .. math:: \min_\alpha R(\alpha) + \ln(1 - 1/\alpha)
              - \frac{\ln\delta + \ln\alpha}{\alpha - 1}

    Parameters
    ----------
    orders, rdp : array_like, shape (k,)
        Renyi orders in (1, inf], and costs at these orders, in [0, inf].
    delta : float
        In [0, 1); at 0 only order infinity gives a finite epsilon.

    Returns
    -------
    epsilon : float
        At least 0.
    order : float
        The order at which it is attained.

    References
    ----------
    Canonne, Kamath, Steinke (2020), Proposition 12; sharper than Mironov's
    R + ln(1/delta)/(order - 1).

    Examples
    --------
    >>> orders = np.arange(2, 64)
    >>> epsilon, order = rdp_to_epsilon(orders, rdp_gaussian(orders, 4.0), 1e-5)
    >>> round(epsilon, 4), order
    (1.0126, 18.0)
    """
    a = np.atleast_1d(_orders(orders))
    cost = np.atleast_1d(_positive("rdp", rdp, allow_zero=True))
    if a.shape != cost.shape or a.size == 0:
        raise ValueError(f"orders and rdp must have one shape, got {a.shape} and {cost.shape}")
    delta = check_number("delta", delta, low=0.0, high=1.0, high_open=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        slack = np.log1p(-1.0 / a) - (np.log(delta) + np.log(a)) / (a - 1.0)
    bound = cost + np.where(np.isinf(a), 0.0, slack)
    best = int(np.argmin(bound))
    return max(0.0, float(bound[best])), float(a[best])


# Subsampled releases of which only the pure loss is known


def rdp_pure_poisson(orders: ArrayLike, rate: float, epsilon: float) -> Any:
    r"""Return the largest Renyi cost of an epsilon-private release on a Poisson batch.

    It is that of randomized response with the first law mixed: with p = 1/(1 + e^epsilon),

    .. math:: \frac{1}{\alpha-1} \ln\big(p (1 + q (e^\epsilon - 1))^\alpha
              + (1 - p)(1 - q (1 - e^{-\epsilon}))^\alpha\big).
    """
    a = _orders(orders)
    q = check_number("rate", rate, low=0.0, high=1.0, low_open=True)
    loss = check_number("epsilon", epsilon, low=0.0, finite=False)
    top = amplify(loss, q)
    if q == 1.0 or math.isinf(loss):
        return rdp_pure(a, loss)
    bottom = math.log1p(q * math.expm1(-loss))
    log_low, log_high = -float(np.logaddexp(0.0, loss)), -float(np.logaddexp(0.0, -loss))
    tame = np.where(np.isfinite(a), a, 2.0)
    # E s^a = 1 + E (s^a - 1 - a (s - 1)) for a density s, whose mean is 1.
    excess = np.logaddexp(
        log_low + _log_power_excess(top, tame), log_high + _log_power_excess(bottom, tame)
    )
    value = np.logaddexp(0.0, excess) / (tame - 1.0)
    return as_scalar(np.where(np.isinf(a), top, value))


def rdp_pure_without_replacement(orders: ArrayLike, n: int, m: int, epsilon: float) -> Any:
    r"""Return the largest Renyi cost of an epsilon-private release on m of n records.

    With x = ln(1 + (m/n)(e^epsilon - 1)), the amplified loss, the release is dominated by
    a randomized response at x that answers only with probability (1 + e^x)/(1 + e^epsilon)
    and is silent otherwise: its privacy profile is exactly the amplified one.
    Balle, Barthe, Gaboardi (2018), Theorem 9, gives delta(x(t)) <= (m/n) delta(t) for
    every t; with delta(t) = (e^epsilon - e^t)/(1 + e^epsilon) for randomized response the
    bound is (e^x - e^t')/(1 + e^epsilon), t' = x(t): the profile above. By Zhu, Dong, Wang
    (2022) a larger profile implies a larger Renyi curve, and the bounds compose.
    """
    a, fraction = _orders(orders), _fraction(n, m)
    loss = check_number("epsilon", epsilon, low=0.0, finite=False)
    if fraction == 1.0 or math.isinf(loss):
        return rdp_pure(a, loss)
    top = amplify(loss, fraction)
    log_speak = float(np.logaddexp(0.0, top) - np.logaddexp(0.0, loss))
    speak = math.exp(log_speak)
    with np.errstate(invalid="ignore"):
        moment = np.where(np.isinf(a), 0.0, a - 1.0) * rdp_pure(a, top)
        near = np.log1p(speak * np.expm1(np.minimum(moment, 30.0)))
        far = np.logaddexp(math.log1p(-speak) if speak < 1.0 else -np.inf, log_speak + moment)
        value = np.where(moment < 30.0, near, far) / (a - 1.0)
    return as_scalar(np.where(np.isinf(a), top, value))


# Subsampled releases


Curve: TypeAlias = Callable[[Array], ArrayLike]

# Binomial sums longer than this are replaced by integrals.
_LONGEST_SUM = 1024
# Integrals over more units than this (order times mu squared) take too long.
_LONGEST_GRID = 1e6


def _log_binomials(a: Array) -> Array:
    """Return ln C(a, j), orders a in rows, j = 2..max a, -inf for j > a; caches small tables."""
    return _cached_table(a.tobytes()) if a.size * a.max() < 2e5 else _table(a)


@lru_cache(maxsize=64)
def _cached_table(key: bytes) -> Array:
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
    """Return ln(1 + keep**a sum_{j >= 2} C(a, j) odds**j t_j)/(a - 1) for integer orders a."""
    # Orders are grouped by powers of 2: one table for all of them would be mostly zeros.
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
    binomials = _log_binomials(a)
    with np.errstate(invalid="ignore"):
        exponent = binomials + (log_terms + log_odds * j)
    exponent[np.isneginf(binomials)] = -np.inf  # also where the term is infinite
    top = np.clip(exponent.max(axis=1), -1e300, 1e300)
    exponent -= top[:, None]
    # The largest term is now 1: e**-100 changes no digit, and subnormal powers are very slow.
    np.maximum(exponent, -100.0, out=exponent)
    with np.errstate(divide="ignore"):
        total = top + a * log_keep + np.log(np.exp(exponent, out=exponent).sum(axis=1))
    return np.logaddexp(0.0, total) / (a - 1.0)


def _log_expm1(x: Array) -> Array:
    """Return ln(e**x - 1) for x >= 0."""
    with np.errstate(divide="ignore"):
        return np.where(np.isinf(x), np.inf, x + np.log(-np.expm1(-x)))


_MOST_ORDERS = 1024  # integers at which a cost is computed
_LARGEST_SUM = 2.0**17  # terms: at larger orders a cost is that without amplification


def _between_integers(orders: Any, cost: Callable[[Array], Array], pure: float) -> Array:
    """Return costs at real orders from ``cost`` at the integers >= 2, and ``pure`` at infinity.

    Infinite at orders above :data:`_LARGEST_SUM`.

    The log moment, (order - 1) times the cost, is convex in the order and vanishes at
    order 1. So the chord between bounds at the two neighbouring integers is a bound; it is
    never above the bound at the next integer, because costs increase with the order.
    """
    flat = np.ravel(orders)
    finite = flat <= _LARGEST_SUM
    values = np.where(np.isinf(flat), pure, math.inf)
    if finite.any():
        ends = np.concatenate([np.floor(flat[finite]), np.ceil(flat[finite])])
        whole = np.unique(np.maximum(ends, 2.0))
        if whole.size > _MOST_ORDERS:  # of nested sampling; longer chords are bounds, too
            places = np.geomspace(1.0, whole.size, _MOST_ORDERS).round().astype(np.intp)
            whole = whole[np.unique(places) - 1]
        moments = np.concatenate([[0.0], (whole - 1.0) * cost(whole)])
        chord = np.interp(flat[finite], np.concatenate([[1.0], whole]), moments)
        values[finite] = chord / (flat[finite] - 1.0)
    return values.reshape(np.shape(orders))


def rdp_poisson_gaussian(orders: ArrayLike, rate: float, noise_multiplier: float) -> Any:
    r"""Return the Renyi cost of Gaussian noise on a Poisson batch, at any real orders above 1.

    Exact for the pair N(0, s**2) and (1-q) N(0, s**2) + q N(1, s**2), which dominates
    add-or-remove-one; the other direction is never larger. Where the noise is so small that
    order/s**2 is above 1e6, orders without a binomial sum cost as if without sampling.

    Parameters
    ----------
    orders : array_like
        Renyi orders in (1, inf].
    rate : float
        Sampling rate q in [0, 1].
    noise_multiplier : float
        Standard deviation over the add-or-remove L2 sensitivity, in (0, inf].

    Returns
    -------
    float or ndarray

    Notes
    -----
    Integer orders up to 1024 use the binomial sum. For the others
    :math:`E(1 - q + q e^{\mu x - \mu^2/2})^\alpha`, x standard normal, is computed by the
    trapezoidal rule with step h. The integrand is analytic for \|Im x\| < pi s and bounded
    there by its value on the real line times e^{d^2/2} at height d, so the relative error is
    at most 2 e^{d^2/2}/(e^{2 pi d/h} - 1): below 1e-12 for h = min(0.6, 0.45 s).

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
        return as_scalar(np.zeros(a.shape))
    # Below 1e-6 the release all but reveals the batch; above 1e100 a square may overflow.
    if q == 1.0 or not 1e-6 <= s <= 1e100:
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
        if flat[i] / s**2 > _LONGEST_GRID:  # by convexity sampling never costs more
            values[i] = rdp_gaussian(flat[i], s)
        else:
            values[i] = _poisson_gaussian_integral(float(flat[i]), q, 1.0 / s)
    return as_scalar(values.reshape(a.shape))


def _poisson_gaussian_integral(a: float, q: float, mu: float) -> float:
    step = min(0.6, 0.45 / mu)
    # The mass of the power lies near a mu; that of its second-order part in q near 2 mu.
    x = np.arange(-9.5, max(a, 2.0) * mu + 9.5 + step, step)
    loss = mu * x - 0.5 * mu**2
    weight = step / math.sqrt(2.0 * math.pi)
    exponent = a * np.logaddexp(math.log1p(-q), math.log(q) + loss) - 0.5 * x * x
    if exponent.max() > 3.0:
        return (float(special.logsumexp(exponent)) + math.log(weight)) / (a - 1.0)
    # Where the power does not overflow, 1 + a u, of mean 1, is left out without cancellation.
    log_normal = -0.5 * x * x
    near = exponent - log_normal < 300.0
    rest = _power_excess(np.log1p(q * np.expm1(loss[near])), a)
    total = float((np.exp(log_normal[near]) * rest).sum())
    far, log_far = loss[~near], log_normal[~near]
    linear = a * q * np.exp(far + log_far) + (1.0 - a * q) * np.exp(log_far)
    total += float((np.exp(exponent[~near]) - linear).sum())
    return math.log1p(weight * total) / (a - 1.0)


def rdp_poisson(orders: ArrayLike, rate: float, base_rdp: Curve, exact_pair: bool = False) -> Any:
    r"""Return the Renyi cost of any release on a Poisson batch, given its curve on the batch.

    .. math:: \frac{1}{\alpha-1} \ln\Big((1-q)^{\alpha-1}(\alpha q - q + 1)
              + \binom{\alpha}{2} q^2 (1-q)^{\alpha-2} e^{R(2)}
              + c \sum_{l=3}^{\alpha} \binom{\alpha}{l} q^l (1-q)^{\alpha-l} e^{(l-1) R(l)}\Big)

    at integer orders, and between them the chord of (order - 1) cost, which is convex.

    Parameters
    ----------
    orders : array_like
        Renyi orders in (1, inf]. Above 2^17 the cost is that without sampling.
    rate : float
        Sampling rate q in [0, 1], add-or-remove-one.
    base_rdp : callable
        R: array of orders -> costs on the batch. Called with the integers >= 2 and with ``orders``.
    exact_pair : bool, default=False
        False: c = 3, valid for every R that bounds the release's curve. True: c = 1, exact
        when R is the curve of a dominating pair of distributions swapped by an involution:
        Gaussian, Laplace, randomized response, and products of them.

    Returns
    -------
    float or ndarray
        At most ``base_rdp(orders)``, which is valid too (joint quasi-convexity).

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
    check_choice("exact_pair", exact_pair, (False, True))
    base = _curve(base_rdp, a)
    if q == 0.0:
        return as_scalar(np.zeros(a.shape))
    if q == 1.0:
        return as_scalar(base)
    log_keep = math.log1p(-q)
    log_factor = 0.0 if exact_pair else math.log(3.0)

    def cost(whole: Array) -> Array:
        j = np.arange(2.0, whole.max() + 1.0)
        log_moments = (j - 1.0) * _curve(base_rdp, j) + np.where(j > 2.0, log_factor, 0.0)
        return _binomial_cost(whole, math.log(q) - log_keep, log_keep, _log_expm1(log_moments))

    return as_scalar(np.minimum(_between_integers(a, cost, _pure_limit(a, base, q)), base))


def _curve(base_rdp: Curve, orders: Any) -> Array:
    if not callable(base_rdp):
        raise TypeError(f"base_rdp must be a function of the orders, got {base_rdp!r}")
    return np.asarray(base_rdp(orders), dtype=np.float64)


def _pure_limit(orders: Any, base: Array, fraction: float) -> float:
    """Return the amplified pure loss if order infinity is among the orders, else infinity."""
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
    orders, base_rdp
        As in :func:`rdp_poisson`, with orders up to infinity.
    n, m : int
        Numbers of records and of drawn records, 1 <= m <= n; replace-one.
    pure_epsilon : float, default=inf
        R(inf), the pure loss on the batch if it is finite.

    Returns
    -------
    float or ndarray
        As in :func:`rdp_poisson`.

    References
    ----------
    Gao and Wright (2023), Theorem B.4, after Wang, Balle, Kasiviswanathan (2019), Theorem 9.

    Examples
    --------
    >>> rdp_without_replacement(8, 1000, 10, lambda a: rdp_gaussian(a, 2.0))
    0.00048839
    """
    pure = check_number("pure_epsilon", pure_epsilon, low=0.0, finite=False)
    return _fixed_size(_orders(orders), _fraction(n, m), base_rdp, pure)


def _fixed_size(a: Any, s: float, base_rdp: Curve, pure: float = math.inf) -> Any:
    """Return the formula above for a record that is in the batch with probability ``s``."""
    base = _curve(base_rdp, a)
    if s == 1.0:
        return as_scalar(base)
    log_pure = float(_log_expm1(np.asarray(pure)))

    def cost(whole: Array) -> Array:
        j = np.arange(2.0, whole.max() + 1.0)
        curve = _curve(base_rdp, j)
        log_terms = (j - 1.0) * curve + np.minimum(math.log(2.0), j * log_pure)
        log_terms[0] = min(log_terms[0], math.log(4.0) + float(_log_expm1(curve[0])))
        return _binomial_cost(whole, math.log(s), 0.0, log_terms)

    return as_scalar(np.minimum(_between_integers(a, cost, _pure_limit(a, base, s)), base))
