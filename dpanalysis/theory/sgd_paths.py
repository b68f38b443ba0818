r"""How far stochastic gradient descent can stray (Fang et al. 2023, section 4).

The paper leaves its constants open. They are not needed: with :math:`\tilde\sigma` such
that the gradient noise satisfies :math:`E[\zeta_t | w_t] = 0` and :math:`E[\exp(\|\zeta_t\|^2/
\tilde\sigma^2) | w_t] \le e`, and with :math:`\eta \le 1/L`, :math:`S = \eta^2 \tilde\sigma^2 T`,
:math:`Y_t = f(w_t) - f^*`, every step of the method obeys

.. math:: E[e^{\lambda (Y_{t+1} - Y_t)}] \le \exp\left(-\lambda\eta (1 - L\eta/2) \|\nabla f\|^2
          + \tfrac{1}{2} \lambda L \eta^2 \tilde\sigma^2
          + \tfrac{3}{2} \lambda^2 \eta^2 (1 - L\eta)^2 \tilde\sigma^2 \|\nabla f\|^2\right)

for :math:`\lambda L \eta^2 \tilde\sigma^2 \le 1` (Cauchy-Schwarz; a centred variable with
:math:`E e^{Y^2} \le e` has :math:`E e^{\lambda Y} \le e^{3\lambda^2/4}`). With
:math:`\lambda = 2/(3 \eta \tilde\sigma^2)` the decrease pays for the noise; with
:math:`1/\lambda_t = m + 3LSt/T` the growth of :math:`\lambda_t` does. Ville's inequality turns both
supermartingales into bounds on the whole path, without the paper's factor ln T.
"""

from __future__ import annotations

import math
from math import expm1, inf, log, sqrt

import numpy as np
from numpy.typing import ArrayLike

from .._validation import check_int, check_number
from ._arguments import check_array, check_failure, check_positive

__all__ = ["light_tail_scale", "sgd_noise_scale", "sgd_objective_bound"]

# E exp(|mean of B|^2 / K^2) <= e for K^2 = 4 rho^2 / ((1 - e^-2) B): cosh(lambda |sum|) has mean
# at most exp(B lambda^2 rho^2) (Pinelis), averaged over a Gaussian lambda.
_MEAN_OF_BATCH = 4.0 / -expm1(-2.0)


def path_bound(gap: float, L: float, S: float, log_failure: float, iterations: int) -> float:
    """Return the bound on max_t Y_t that needs S = eta^2 sigma^2 T only; increasing in S."""
    start = gap + 0.5 * L * S
    m = max(sqrt(3.0 * L * S * start / log_failure), L * S / iterations)
    if m == 0.0:  # no noise
        return start
    bound = (1.0 + 3.0 * L * S / m) * (start + m * log_failure)
    return inf if math.isnan(bound) else bound  # a product beyond the largest number


def sgd_objective_bound(
    initial_gap: float,
    L: float,
    step_size: float,
    noise_scale: float,
    iterations: int,
    failure: float,
) -> float:
    r"""Return a bound on :math:`\max_{t \le T} f(w_t) - f^*` that fails with a small probability.

    The smaller of :math:`D + L S/2 + \tfrac32 \eta \tilde\sigma^2 \ln(1/\delta)` and, about,
    :math:`(\sqrt{D + L S/2} + \sqrt{3 L S \ln(1/\delta)})^2`, derived in the module's docstring.

    Parameters
    ----------
    initial_gap : float
        :math:`D = f(w_0) - f^* \ge 0`.
    L : float
        Smoothness of f, positive.
    step_size : float
        :math:`\eta` in ``(0, 1/L]``.
    noise_scale : float
        :math:`\tilde\sigma \ge 0`, in units of the gradient: see :func:`sgd_noise_scale`.
    iterations : int
        T >= 1.
    failure : float
        :math:`\delta` in ``(0, 0.5]``.

    Returns
    -------
    float
        In units of f.

    Raises
    ------
    ValueError
        If an argument is out of its range.

    References
    ----------
    Fang et al. (2023), Proposition 4.2. The noise must be centred given the past; the paper does
    not say so.

    Examples
    --------
    >>> sgd_objective_bound(1.0, 1.0, 0.05, 0.5, 1000, 1e-6)
    1.5715
    """
    gap = check_number("initial_gap", initial_gap, low=0.0)
    L = check_positive("L", L)
    eta = check_number("step_size", step_size, low=0.0, low_open=True, high=1.0 / L)
    scale = check_number("noise_scale", noise_scale, low=0.0)
    T = check_int("iterations", iterations, low=1)
    failure = check_failure(failure)
    S = eta * scale * (eta * scale) * T
    paid = gap + 0.5 * L * S + 1.5 * (eta * scale) * scale * -log(failure)
    path = path_bound(gap, L, S, -log(failure), T)
    return path if math.isnan(paid) else min(paid, path)


def light_tail_scale(deviations: ArrayLike, probabilities: ArrayLike | None = None) -> float:
    r"""Return the smallest :math:`\rho` with :math:`\sum_i p_i \exp(d_i^2/\rho^2) \le e`.

    Parameters
    ----------
    deviations : (n,) array_like
        :math:`d_i = \|\nabla f_i(w) - \nabla f(w)\|_2 \ge 0`.
    probabilities : (n,) array_like, optional
        Positive, sum 1; equal by default.

    Returns
    -------
    float
        0 if all deviations are 0.

    Raises
    ------
    ValueError
        If an argument is out of its range, or shapes do not fit.

    Notes
    -----
    The scale of the deviations does not matter, down to the smallest floating-point number, where
    the result is the smallest such number that satisfies the inequality.

    References
    ----------
    Fang et al. (2023), Assumption 4.1, at one w; the assumption wants one value for all w.

    Examples
    --------
    >>> light_tail_scale([2.0, 2.0, 2.0])
    2.0
    >>> light_tail_scale([0.0, 2.0])
    1.6385
    """
    from scipy.optimize import brentq
    from scipy.special import logsumexp

    d = check_array("deviations", deviations, low=0.0)
    if d.ndim != 1 or d.size == 0:
        raise ValueError(f"deviations must have shape (n,) with n at least 1, got {d.shape}")
    p = np.full(d.size, 1.0 / d.size)
    if probabilities is not None:
        p = check_array("probabilities", probabilities, low=0.0, low_open=True)
        if p.shape != d.shape or abs(p.sum() - 1.0) > 1e-9:
            raise ValueError(
                f"probabilities must have shape {d.shape} and sum 1, got {p.shape}, {p.sum()}"
            )
    largest = float(d.max())
    if largest == 0.0:
        return 0.0
    # In units of the largest deviation: no number of any size, however small, steers the search.
    d = d / largest

    def excess(rho: float) -> float:
        return float(logsumexp((d / rho) ** 2 + np.log(p)) - 1.0)

    # One summand alone reaches e at the lower end, all together do not pass it at the upper.
    low = float(np.max(d / np.sqrt(1.0 - np.log(p))))
    if low >= 1.0 or excess(1.0) >= 0.0:
        return largest
    quotient = float(brentq(excess, low, 1.0, xtol=1e-14))
    rho = quotient * largest
    # Subnormal numbers are far apart: of the two neighbours the larger one keeps the inequality.
    return rho if rho / largest >= quotient else math.nextafter(rho, inf)


def sgd_noise_scale(
    clip_norm: float,
    noise_multiplier: float,
    batch_size: int,
    dimension: int,
    rho: float = 0.0,
) -> float:
    r"""Return a :math:`\tilde\sigma` for the mean of a batch with Gaussian noise.

    .. math:: \tilde\sigma = \sqrt{\frac{4}{1 - e^{-2}}} \frac{\rho}{\sqrt B} +
              \frac{C \sigma}{B} \sqrt{\frac{2}{1 - e^{-2/d}}},

    the second term exact, for a fixed number of B samples with or without replacement.

    No such constant exists for Poisson sampling, whose sum is divided by B and not by the size of
    the batch: its noise has a part :math:`(|B_t|/B - 1) \nabla f` that Assumption 4.1 does not
    bound, as the paper's proof of Proposition 4.4 takes it to.

    Parameters
    ----------
    clip_norm, noise_multiplier : float
        C > 0 and :math:`\sigma \ge 0`: the noise on the sum has standard deviation
        :math:`C\sigma` in each coordinate.
    batch_size, dimension : int
        B and d, at least 1.
    rho : float
        The constant of Assumption 4.1; 0 for full batches.

    Returns
    -------
    float
        In units of the gradient.

    Raises
    ------
    ValueError
        If an argument is out of its range.

    References
    ----------
    Fang et al. (2023), proof of Proposition 4.4, (12).

    Examples
    --------
    >>> sgd_noise_scale(10.0, 1.0, 100, 50, rho=1.0)
    0.9293
    """
    C = check_positive("clip_norm", clip_norm)
    sigma = check_number("noise_multiplier", noise_multiplier, low=0.0)
    B, d = check_int("batch_size", batch_size, low=1), check_int("dimension", dimension, low=1)
    rho = check_number("rho", rho, low=0.0)
    return sqrt(_MEAN_OF_BATCH / B) * rho + C * sigma / B * sqrt(2.0 / -expm1(-2.0 / d))
