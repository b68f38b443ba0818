"""Zero-concentrated differential privacy, and the exact privacy of Gaussian noise.

References
----------
Bun, Steinke (2016); Canonne, Kamath, Steinke (2020); Balle, Wang (2018).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from ..._validation import as_scalar, check_fraction, check_number, check_positive, check_reals
from .pure import _positive

_LOG_ROOT_2PI = 0.5 * math.log(2.0 * math.pi)
# Nodes and weights of the Gauss-Legendre rule on [0, 1], eight of each.
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)
_GAUSS = 0.5 * (1.0 + _NODES), 0.5 * _WEIGHTS
_FEW = 256


def zcdp_pure(epsilon: ArrayLike) -> Any:
    """Return the smallest rho of an arbitrary epsilon-private release: epsilon tanh(epsilon/2).

    It is less than epsilon**2/2, and attained by randomized response in the limit of order 1.
    ``epsilon`` is a number or an array in [0, inf].

    Examples
    --------
    >>> zcdp_pure(1.0)
    0.4621172
    """
    loss = _positive("epsilon", epsilon, allow_zero=True)
    return as_scalar(loss * np.tanh(0.5 * loss))


def zcdp_gaussian(noise_multiplier: ArrayLike) -> Any:
    """Return rho of Gaussian noise: 1/(2 noise_multiplier**2)."""
    sigma = _positive("noise_multiplier", noise_multiplier)
    least = np.where(np.isinf(sigma), 0.0, 5e-324)  # sigma**2 may overflow
    with np.errstate(over="ignore"):
        return as_scalar(np.maximum(0.5 / sigma**2, least))


def zcdp_to_epsilon(rho: float, delta: float) -> float:
    r"""Return the smallest epsilon that rho-zCDP implies at ``delta``.

    .. math:: \min_{\alpha > 1} \alpha\rho + \ln(1 - 1/\alpha)
              - \frac{\ln\delta + \ln\alpha}{\alpha - 1}

    over all real orders; every order is valid, so the numerical minimum is too.

    Parameters
    ----------
    rho : float
        In [0, inf].
    delta : float
        In [0, 1); 0 gives infinity, unless rho is 0.

    References
    ----------
    Canonne, Kamath, Steinke (2020), Proposition 12.

    Examples
    --------
    >>> zcdp_to_epsilon(0.1, 1e-6)
    2.1419
    """
    from scipy import optimize  # heavy, hence not at the top

    rho = check_number("rho", rho, low=0.0, finite=False)
    delta = check_number("delta", delta, low=0.0, high=1.0, high_open=True)
    if rho == 0.0:
        return 0.0
    if delta == 0.0 or math.isinf(rho):
        return math.inf

    def bound(t: Any) -> Any:
        excess = np.exp(t)  # order - 1
        cost, gain = (1.0 + excess) * rho, np.log1p(np.exp(-t))  # of order/(order - 1)
        tail = (math.log(delta) + np.log1p(excess)) / excess
        return cost - gain - tail + 1e-15 * (cost + gain + abs(tail))  # rounded up

    grid = np.linspace(-30.0, 60.0, 901)
    best = int(np.argmin(bound(grid)))
    around = (grid[max(best - 1, 0)], grid[min(best + 1, grid.size - 1)])
    refined = optimize.minimize_scalar(
        bound, bounds=around, method="bounded", options={"xatol": 1e-9}
    )
    return max(0.0, float(refined.fun))


def epsilon_to_zcdp(epsilon: float, delta: float) -> float:
    """Return the largest rho whose zCDP still implies (epsilon, delta).

    Parameters
    ----------
    epsilon : float
        In (0, inf).
    delta : float
        In (0, 1).

    Returns
    -------
    float
        ``zcdp_to_epsilon(rho, delta) <= epsilon`` holds for the returned rho.

    Examples
    --------
    >>> rho = epsilon_to_zcdp(1.0, 1e-6)
    >>> zcdp_to_epsilon(rho, 1e-6)
    1.0
    """
    from scipy import optimize  # heavy, hence not at the top

    epsilon = check_positive("epsilon", epsilon)
    delta = check_fraction("delta", delta)

    def excess(log_rho: float) -> float:
        return zcdp_to_epsilon(math.exp(log_rho), delta) - epsilon

    # zcdp_to_epsilon(rho) >= rho - ln(1/(1-delta)) and it vanishes with rho.
    high = math.log(epsilon - math.log1p(-delta)) + 1e-6
    low = high
    while excess(low) > 0.0:
        low -= 5.0
    root = optimize.brentq(excess, low, high, xtol=1e-13, rtol=1e-14) if low < high else high
    while excess(root) > 0.0:
        root -= 1e-13 * max(1.0, abs(root))
    return math.exp(root)


def gaussian_delta(noise_multiplier: ArrayLike, epsilon: ArrayLike) -> Any:
    r"""Return the exact delta of Gaussian noise at ``epsilon``.

    .. math:: \Phi(\mu/2 - \epsilon/\mu) - e^\epsilon \Phi(-\mu/2 - \epsilon/\mu),
              \qquad \mu = 1/\text{noise multiplier}

    Several Gaussian releases with multipliers fixed beforehand, also adaptively chosen ones,
    are equivalent to one whose mu**2 is the sum of theirs.

    Parameters
    ----------
    noise_multiplier : array_like
        Standard deviation over L2 sensitivity, in (0, inf].
    epsilon : array_like
        Any real numbers.

    Returns
    -------
    float or ndarray
        In [0, 1].

    References
    ----------
    Balle, Wang (2018), Theorem 8.

    Examples
    --------
    >>> gaussian_delta(1.0, 1.0)
    0.126937
    """
    mu = 1.0 / _positive("noise_multiplier", noise_multiplier)
    return as_scalar(gaussian_divergence(mu, real_losses(epsilon)))


def real_losses(epsilon: ArrayLike) -> Any:
    """Return ``epsilon`` as numbers, or raise: any real ones, and infinite ones."""
    losses = check_reals("epsilon", epsilon)
    if np.isnan(losses).any():
        raise ValueError(f"epsilon must not be NaN, got {epsilon!r}")
    return losses


def gaussian_divergence(mu: ArrayLike, loss: ArrayLike) -> Any:
    r"""Return the hockey-stick divergence of N(mu, 1) from N(0, 1) at real losses.

    With :math:`a = \mu/2 - \epsilon/\mu`, the normal density :math:`\varphi` and Mills' ratio
    :math:`m = \Phi/\varphi` it is

    .. math:: \Phi(a) - e^\epsilon \Phi(a - \mu) = \varphi(a) (m(a) - m(a - \mu))
              = \varphi(a) \int_{a-\mu}^a m'(t)\,dt, \qquad m'(t) = 1 + t\,m(t) > 0.

    The integral replaces the difference where :math:`\mu < 1/2`, to avoid cancellation. Losses
    below 0 follow from those above: :math:`H(-t) = 1 - e^{-t} + e^{-t} H(t)`.
    """
    shift, t = np.broadcast_arrays(np.asarray(mu, dtype=np.float64), loss)
    above = np.exp(_log_divergence(shift, np.abs(t)))
    below = np.minimum(t, 0.0)
    return np.where(t >= 0.0, above, -np.expm1(below) + np.exp(below) * above)


def _log_divergence(mu: Any, loss: Any) -> Any:
    """Return the logarithm of the divergence at losses >= 0."""
    positive = np.asarray((mu > 0.0) & np.isfinite(mu) & np.isfinite(loss))
    value = np.array(np.where((mu == 0.0) | np.isposinf(loss), -np.inf, 0.0))
    narrow = mu < 0.5
    for some, formula in ((positive & narrow, _narrow), (positive & ~narrow, _wide)):
        if some.any():
            shift = np.broadcast_to(mu, some.shape)[some]
            t = np.broadcast_to(loss, some.shape)[some]
            value[some] = formula(0.5 * shift - t / shift, shift)
    return value


@np.errstate(divide="ignore", over="ignore")
def _narrow(a: Any, shift: Any) -> Any:
    """Return the logarithm of phi(a) times the integral of the slope, for small shifts."""
    tame = np.minimum(a, 1.0)
    nodes, weights = _GAUSS
    slopes: Any = (_mills_slope(tame - shift * p) for p in nodes)
    if tame.size <= _FEW:  # the same numbers in one call, fast for searches over single losses
        slopes = _mills_slope(tame - np.multiply.outer(nodes, shift))
    mean = sum(w * slope for w, slope in zip(weights, slopes))
    return -0.5 * a * a - _LOG_ROOT_2PI + np.log(shift) + np.log(mean)


def _wide(a: Any, shift: Any) -> Any:
    """Return the logarithm of Phi(a) - e^epsilon Phi(a - mu), for shifts of 1/2 or more."""
    log_phi = special.log_ndtr(a)
    inside, right = np.empty_like(a), a > 0.0
    inside[right] = np.exp(-0.5 * a[right] ** 2 - _LOG_ROOT_2PI - log_phi[right])
    inside[~right] = 1.0 / _mills(a[~right])
    with np.errstate(divide="ignore"):
        return log_phi + np.log1p(-np.minimum(inside * _mills(a - shift), 1.0))


def _mills(x: Any) -> Any:
    """Return Phi/phi at x <= 1."""
    return math.sqrt(0.5 * math.pi) * special.erfcx(-x * math.sqrt(0.5))


def _mills_slope(x: Any) -> Any:
    """Return 1 + x Phi(x)/phi(x) > 0, the derivative of Mills' ratio, at x <= 1."""
    value = np.empty_like(x)
    far = x < -20.0
    value[~far] = 1.0 + x[~far] * _mills(x[~far])
    if far.any():
        inverse = 1.0 / (x[far] * x[far])
        series = np.ones_like(inverse)
        for k in range(10, 0, -1):  # 1 - 3/x^2 (1 - 5/x^2 (1 - ...))
            series = 1.0 - (2 * k + 1) * inverse * series
        value[far] = inverse * series
    return value


def gaussian_epsilon(noise_multiplier: float, delta: float) -> float:
    """Return the exact smallest epsilon of Gaussian noise at ``delta``, rounded up.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation over L2 sensitivity, in (0, inf].
    delta : float
        In [0, 1); 0 gives infinity, unless the noise is infinite.

    Returns
    -------
    float
        Never below the exact value. If delta is at most 1/2, it exceeds the exact value by at most
        1e-12 of that value plus 1e-13 over the noise multiplier.

    Examples
    --------
    >>> gaussian_epsilon(1.0, 0.126937)
    1.000
    """
    multiplier = check_number(
        "noise_multiplier", noise_multiplier, low=0.0, low_open=True, finite=False
    )
    delta = check_number("delta", delta, low=0.0, high=1.0, high_open=True)
    if math.isinf(multiplier):
        return 0.0
    if delta == 0.0:
        return math.inf
    quantile = float(special.ndtri(delta))
    return _gaussian_root(1.0 / multiplier, math.log(delta), quantile, 1.0) * (1.0 + 1e-13)


def gaussian_lower_epsilon(noise_multiplier: float, delta: float) -> float:
    """Return a number just below the exact epsilon of :func:`gaussian_epsilon`, delta in (0, 1)."""
    quantile = float(special.ndtri(delta))
    return _gaussian_root(1.0 / noise_multiplier, math.log(delta), quantile, -1.0) * (1.0 - 1e-11)


def _gaussian_root(mu: float, log_delta: float, quantile: float, sign: float) -> float:
    """Return the epsilon of a shift mu at ln delta, rounded up (``sign`` 1) or down (-1).

    ``quantile`` is the standard normal quantile at delta.
    """
    from scipy import optimize  # heavy, hence not at the top

    if mu > 1e150:  # its square may overflow
        return math.inf if sign > 0.0 else 0.0

    def excess(epsilon: float) -> float:
        # The added term bounds the relative error of the divergence. For mu above about 200 the
        # error of a dominates instead, and the final factor in the callers covers it.
        a = 0.5 * mu - epsilon / mu
        log = float(_log_divergence(np.float64(mu), np.float64(epsilon)))
        return log + sign * 1e-15 * (4.0 - log + 2.0 * min(a, 0.0) ** 2) - log_delta

    if mu == 0.0 or excess(0.0) <= 0.0:
        return 0.0
    high = 0.5 * mu * mu - mu * quantile  # delta <= Phi(mu/2 - eps/mu)
    high = max(high, mu * mu) + mu
    return float(optimize.brentq(excess, 0.0, high, xtol=1e-300, rtol=1e-14))


def gaussian_sum_epsilon(mus: ArrayLike, weights: ArrayLike, delta: float) -> float:
    """Return the least epsilon at which a weighted sum of Gaussian deltas equals ``delta``."""
    from scipy import optimize  # heavy, hence not at the top

    shifts, shares = np.asarray(mus, dtype=np.float64), np.asarray(weights, dtype=np.float64)
    largest = float(shifts.max())
    if largest == 0.0 or delta >= float(shares.sum()):
        return 0.0
    if delta == 0.0 or math.isinf(largest):
        return math.inf
    each = delta / float(shares.sum())
    if each <= 1e-300:  # huge weights make deltas subnormal: take all shifts to be the largest
        log_each = math.log(delta) - math.log(float(shares.sum()))
        quantile = float(special.ndtri_exp(log_each))
        return _gaussian_root(largest, log_each, quantile, 1.0) * (1.0 + 1e-13)
    high = gaussian_epsilon(1.0 / largest, each)
    if shifts.size == 1 or high == 0.0:
        return high

    def excess(epsilon: float) -> float:
        # The added terms bound the relative error of the divergences, and of their sum.
        total = float(shares @ gaussian_divergence(shifts, epsilon))
        if total == 0.0:  # of a shift so large that rounding moves epsilon past the divergence
            return -math.inf
        return math.log(total / delta) + 1e-14 + 3e-15 * (epsilon / largest) ** 2

    if excess(0.0) <= 0.0:
        return 0.0
    if not -math.inf < excess(high) < 0.0:  # by rounding, where all shifts are alike or huge
        return high
    root = float(optimize.brentq(excess, 0.0, high, xtol=1e-300, rtol=1e-14))
    return root * (1.0 + 1e-13)
