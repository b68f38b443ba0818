"""Zero-concentrated differential privacy, and the exact guarantee of Gaussian noise.

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

from .._validation import check_number
from .pure import _positive, _scalar

__all__ = [
    "epsilon_to_zcdp",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_sum_epsilon",
    "zcdp_gaussian",
    "zcdp_pure",
    "zcdp_to_epsilon",
]


def zcdp_pure(epsilon: ArrayLike) -> Any:
    """Return the smallest rho of an arbitrary epsilon-private release: epsilon tanh(epsilon/2).

    Parameters
    ----------
    epsilon : array_like
        In [0, inf].

    Returns
    -------
    float or ndarray
        Attained by randomised response in the limit of order 1; below epsilon**2/2.

    Raises
    ------
    ValueError
        If an epsilon is negative or NaN.

    Examples
    --------
    >>> zcdp_pure(1.0)
    0.4621172
    """
    loss = _positive("epsilon", epsilon, allow_zero=True)
    return _scalar(loss * np.tanh(0.5 * loss))


def zcdp_gaussian(noise_multiplier: ArrayLike) -> Any:
    """Return rho of Gaussian noise: 1/(2 noise_multiplier**2).

    Parameters
    ----------
    noise_multiplier : array_like
        Standard deviation over L2 sensitivity, in (0, inf].

    Returns
    -------
    float or ndarray

    Raises
    ------
    ValueError
        If a multiplier is not positive.

    Examples
    --------
    >>> zcdp_gaussian(2.0)
    0.125
    """
    return _scalar(0.5 / _positive("noise_multiplier", noise_multiplier) ** 2)


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

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If an argument is outside its range.

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
        log_order = np.log1p(excess)
        return (1.0 + excess) * rho + t - log_order - (math.log(delta) + log_order) / excess

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

    Raises
    ------
    ValueError
        If an argument is outside its range.

    Examples
    --------
    >>> rho = epsilon_to_zcdp(1.0, 1e-6)
    >>> zcdp_to_epsilon(rho, 1e-6)
    1.0
    """
    from scipy import optimize  # heavy, hence not at the top

    epsilon = check_number("epsilon", epsilon, low=0.0, low_open=True)
    delta = check_number("delta", delta, low=0.0, high=1.0, low_open=True, high_open=True)

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

    Several Gaussian releases, also adaptively chosen ones with multipliers fixed
    beforehand, equal one whose mu**2 is the sum.

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

    Raises
    ------
    ValueError
        If a multiplier is not positive.

    References
    ----------
    Balle, Wang (2018), Theorem 8.

    Examples
    --------
    >>> gaussian_delta(1.0, 1.0)
    0.126937
    """
    mu = 1.0 / _positive("noise_multiplier", noise_multiplier)
    loss = np.asarray(epsilon, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(mu > 0.0, loss / mu, np.where(loss >= 0.0, np.inf, -np.inf))
    with np.errstate(invalid="ignore"):  # infinite epsilons
        upper = special.log_ndtr(0.5 * mu - ratio)
        lower = loss + special.log_ndtr(-0.5 * mu - ratio)
        delta = np.exp(upper) * -np.expm1(np.minimum(lower - upper, 0.0))
    return _scalar(np.where(np.isneginf(upper), 0.0, delta))


def gaussian_epsilon(noise_multiplier: float, delta: float) -> float:
    """Return the exact smallest epsilon of Gaussian noise at ``delta``.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation over L2 sensitivity, in (0, inf].
    delta : float
        In [0, 1); 0 gives infinity.

    Returns
    -------
    float
        At least 0; rounded up by at most 1e-12 relative.

    Raises
    ------
    ValueError
        If an argument is outside its range.

    Examples
    --------
    >>> gaussian_epsilon(1.0, 0.126937)
    1.000
    """
    from scipy import optimize  # heavy, hence not at the top

    multiplier = check_number(
        "noise_multiplier", noise_multiplier, low=0.0, low_open=True, finite=False
    )
    delta = check_number("delta", delta, low=0.0, high=1.0, high_open=True)
    if math.isinf(multiplier):
        return 0.0
    if delta == 0.0:
        return math.inf
    if gaussian_delta(multiplier, 0.0) <= delta:
        return 0.0

    def excess(epsilon: float) -> float:
        mu = 1.0 / multiplier
        upper = special.log_ndtr(0.5 * mu - epsilon / mu)
        lower = epsilon + special.log_ndtr(-0.5 * mu - epsilon / mu)
        return float(upper + math.log(-math.expm1(min(lower - upper, -1e-300)))) - math.log(delta)

    mu = 1.0 / multiplier
    high = 0.5 * mu * mu - mu * float(special.ndtri(delta))  # delta <= Phi(mu/2 - eps/mu)
    high = max(high, mu * mu) + mu
    root = float(optimize.brentq(excess, 0.0, high, xtol=1e-300, rtol=1e-13))
    return root * (1.0 + 1e-12)


def gaussian_sum_epsilon(mus: ArrayLike, weights: ArrayLike, delta: float) -> float:
    """Return the smallest epsilon at which weighted deltas of Gaussian noise add to ``delta``.

    Parameters
    ----------
    mus : array_like of shape (k,)
        Sensitivities over standard deviations, in [0, inf).
    weights : array_like of shape (k,)
        Positive.
    delta : float
        In [0, 1); 0 gives infinity.

    Returns
    -------
    float
        At least 0; rounded up by at most 1e-12 relative.

    Examples
    --------
    >>> gaussian_sum_epsilon([0.5, 1.0], [0.9, 0.1], 1e-6)
    4.3772
    >>> gaussian_sum_epsilon([1.0], [2.0], 1e-6) == gaussian_epsilon(1.0, 5e-7)
    True
    """
    from scipy import optimize  # heavy, hence not at the top

    shifts, shares = np.asarray(mus, dtype=np.float64), np.asarray(weights, dtype=np.float64)
    largest = float(shifts.max())
    if largest == 0.0:
        return 0.0
    high = gaussian_epsilon(1.0 / largest, delta / float(shares.sum()))
    if shifts.size == 1 or not 0.0 < high < math.inf:
        return high
    with np.errstate(divide="ignore"):  # some may be nought
        multipliers = 1.0 / shifts

    def excess(epsilon: float) -> float:
        return math.log(float(shares @ gaussian_delta(multipliers, epsilon)) / delta)

    if excess(0.0) <= 0.0:
        return 0.0
    if excess(high) >= 0.0:  # by rounding, where all are alike
        return high
    root = float(optimize.brentq(excess, 0.0, high, xtol=1e-300, rtol=1e-13))
    return root * (1.0 + 1e-12)
