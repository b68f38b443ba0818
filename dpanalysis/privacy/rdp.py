r"""Renyi differential privacy: costs at a real order, and the tight conversion.

Every cost is computed as ``ln(1 + x)/(order - 1)`` with x a sum of positive terms, so it
keeps its relative accuracy when the loss is tiny. Orders are real and above 1; infinity
stands for pure privacy where that is finite.

References
----------
Mironov (2017); Canonne, Kamath, Steinke (2020).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from .._validation import check_number
from .pure import _positive, _scalar

__all__ = ["rdp_gaussian", "rdp_laplace", "rdp_pure", "rdp_to_epsilon"]

Array: TypeAlias = NDArray[np.float64]


def _orders(orders: ArrayLike) -> Any:
    """Return the orders as floats, each in (1, inf]."""
    array = np.asarray(orders, dtype=np.float64)
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

    Raises
    ------
    ValueError
        If an argument is outside its range.

    References
    ----------
    Mironov (2017), Corollary 3.

    Examples
    --------
    >>> rdp_gaussian([2, 10], 2.0)
    array([0.25, 1.25])
    """
    return _scalar(_orders(orders) * (0.5 / _positive("noise_multiplier", noise_multiplier) ** 2))


def rdp_laplace(orders: ArrayLike, epsilon: ArrayLike) -> Any:
    r"""Return the Renyi cost of a Laplace release with pure loss ``epsilon`` = S1/b.

    .. math:: \frac{1}{\alpha-1} \ln\Big(\frac{\alpha}{2\alpha-1} e^{(\alpha-1)\epsilon}
              + \frac{\alpha-1}{2\alpha-1} e^{-\alpha\epsilon}\Big)

    Parameters
    ----------
    orders : array_like
        Renyi orders in (1, inf].
    epsilon : array_like
        L1 sensitivity over scale, in [0, inf]; broadcasts with ``orders``.

    Returns
    -------
    float or ndarray

    Raises
    ------
    ValueError
        If an argument is outside its range.

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
    # The linear terms of both exponentials cancel; without them nothing is lost.
    return (a * _expm1_minus((a - 1.0) * loss) + (a - 1.0) * _expm1_minus(-a * loss)) / (
        2.0 * a - 1.0
    )


def rdp_pure(orders: ArrayLike, epsilon: ArrayLike) -> Any:
    r"""Return the largest Renyi cost of any epsilon-private release (tight).

    .. math:: \epsilon - \frac{\ln(1 + e^{-\epsilon})
              - \ln(1 + e^{-(2\alpha-1)\epsilon})}{\alpha-1}

    Parameters
    ----------
    orders : array_like
        Renyi orders in (1, inf].
    epsilon : array_like
        In [0, inf]; broadcasts with ``orders``.

    Returns
    -------
    float or ndarray
        Attained by randomised response.

    Raises
    ------
    ValueError
        If an argument is outside its range.

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

    ``excess`` is the same sum less 1, accurate for small losses.
    """
    a, loss, low, gap = np.broadcast_arrays(a, loss, low, gap)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        size = a * loss
        small = np.isfinite(a) & (size < 20.0)
        tame_a, tame_loss = np.where(small, a, 2.0), np.where(small, loss, 0.0)
        near = np.log1p(excess(tame_a, tame_loss)) / (tame_a - 1.0)
        far = loss + np.log1p(low * np.expm1(-gap)) / (a - 1.0)
    value = np.where(small, near, np.where(np.isinf(loss), np.inf, far))
    return _scalar(np.where(np.isinf(a), loss, value))


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
    """Return ln(s**order - 1 - order (s - 1)) at s = e**u, also where the power overflows."""
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
    orders : array_like, shape (k,)
        Renyi orders in (1, inf].
    rdp : array_like, shape (k,)
        Costs at these orders, in [0, inf].
    delta : float
        In [0, 1); with 0 only order infinity gives a finite epsilon.

    Returns
    -------
    epsilon : float
        At least 0.
    order : float
        The order that gave it.

    Raises
    ------
    ValueError
        If an argument is outside its range or the shapes differ.

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
