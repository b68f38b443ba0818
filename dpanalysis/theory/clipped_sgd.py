r"""Utility of private SGD with a clip norm that is rarely exceeded (Fang et al. 2023, section 4).

The paper does not give its constants c1 to c5; the bounds here need none. Let
:math:`\tilde\sigma` be such that the gradient noise satisfies :math:`E[\zeta_t | F_t] = 0` and
:math:`E[\exp(\|\zeta_t\|^2/\tilde\sigma^2) | F_t] \le e`, where :math:`F_t` is the past (noise
whose size is drawn once for all steps has no such bound: claim 004-18). With :math:`\eta \le 1/L`,
:math:`S = \eta^2 \tilde\sigma^2 T`, :math:`Y_t = f(w_t) - f^*`, every step of the method satisfies

.. math:: E[e^{\lambda (Y_{t+1} - Y_t)} | F_t] \le \exp\left(
          -\lambda\eta (1 - L\eta/2) \|\nabla f\|^2
          + \tfrac{1}{2} \lambda L \eta^2 \tilde\sigma^2
          + \tfrac{3}{2} \lambda^2 \eta^2 (1 - L\eta)^2 \tilde\sigma^2 \|\nabla f\|^2\right)

for :math:`\lambda L \eta^2 \tilde\sigma^2 \le 1` (Cauchy-Schwarz; a centered variable with :math:`E
e^{Y^2} \le e` has :math:`E e^{\lambda Y} \le e^{3\lambda^2/4}`). With :math:`\lambda = 2/(3 \eta
\tilde\sigma^2)` the decrease compensates the noise; with :math:`1/\lambda_t = m + 3LSt/T` the
change of :math:`\lambda_t` does. Ville's inequality turns both supermartingales into bounds on the
whole path, without the paper's factor ln T. The noise multiplier is calibrated numerically
(:func:`dpanalysis.privacy.calibrate`), not by the paper's Theorem 3.4.

Batches have a fixed size, or are Poisson samples whose sum is divided by :math:`B = qn`. The
noise of Poisson batches has a component of the size of the gradient: its variance is at most
:math:`((1-q) (\|\nabla f\|^2 + \rho^2) + d C^2 \sigma^2/B)/B`. As long as :math:`Y_t \le H`, so
that :math:`\|\nabla f\|^2 \le 2LH`, one :math:`\tilde\sigma` is valid for every step
(:func:`poisson_noise_scale`). The bound on the path depends only on :math:`S \le s^2`; with this
bound as H, the path leaves :math:`Y_t \le H` with at most the failure probability.

Full batches need no light tails (Remark 4.2, printed without proof): no sample's excess loss
exceeds the sum of all, so :math:`\|\nabla f_i\|^2 \le 2L (f_i - \inf f_i)` gives

.. math:: \max_i \|\nabla f_i(w)\| \le \sqrt{2 L n\, (f(w) - f^* + \Gamma)}, \qquad
          \Gamma = f^* - \tfrac1n \textstyle\sum_i \inf f_i,

with equality if one sample has all the excess loss. This is the remark's :math:`\sqrt n`; the
remark omits :math:`\Gamma` (of Lemma A.13), which is 0 if one w minimizes every :math:`f_i`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from math import expm1, inf, log, sqrt
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import logsumexp

from .._validation import check_choice, check_int, check_number, check_positive
from ._arguments import check_array, check_failure

# E exp(|mean of B|^2 / K^2) <= e for K^2 = 4 rho^2 / ((1 - e^-2) B): cosh(lambda |sum|) has mean
# at most exp(B lambda^2 rho^2) (Pinelis); average over a Gaussian lambda.
_MEAN_OF_BATCH = 4.0 / -expm1(-2.0)


def path_bound(gap: float, L: float, S: float, log_failure: float, iterations: int) -> float:
    """Return the bound on max_t Y_t that depends only on S = eta^2 sigma^2 T; increasing in S."""
    start = gap + 0.5 * L * S
    m = max(sqrt(3.0 * L * S * start / log_failure), L * S / iterations)
    if m == 0.0:  # no noise
        return start
    bound = (1.0 + 3.0 * L * S / m) * (start + m * log_failure)
    return inf if math.isnan(bound) else bound  # a product overflowed


def sgd_objective_bound(
    initial_gap: float,
    L: float,
    step_size: float,
    noise_scale: float,
    iterations: int,
    failure: float,
) -> float:
    r"""Return a bound on :math:`\max_{t \le T} f(w_t) - f^*` that fails with a small probability.

    The smaller of :math:`D + L S/2 + \tfrac32 \eta \tilde\sigma^2 \ln(1/\delta)` and approximately
    :math:`(\sqrt{D + L S/2} + \sqrt{3 L S \ln(1/\delta)})^2`, derived in the module's docstring.
    Fang et al. (2023), Proposition 4.2, which omits that the noise must be centered and satisfy the
    moment condition *given the past*.
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

    References
    ----------
    Fang et al. (2023), Assumption 4.1, at one w; the assumption requires one value for all w.

    Examples
    --------
    >>> light_tail_scale([2.0, 2.0, 2.0])
    2.0
    >>> light_tail_scale([0.0, 2.0])
    1.6385
    """
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
    # Relative to the largest deviation, so that the scale does not matter.
    d = d / largest

    def excess(rho: float) -> float:
        return float(logsumexp((d / rho) ** 2 + np.log(p)) - 1.0)

    # One summand alone reaches e at the lower end; the whole sum does not exceed it at the upper.
    low = float(np.max(d / np.sqrt(1.0 - np.log(p))))
    if low >= 1.0 or excess(1.0) >= 0.0:
        return largest
    quotient = float(brentq(excess, low, 1.0, xtol=1e-14))
    rho = quotient * largest
    # Subnormal numbers are far apart: of the two adjacent ones the larger keeps the inequality.
    return rho if rho / largest >= quotient else math.nextafter(rho, inf)


def sgd_noise_scale(
    clip_norm: float, noise_multiplier: float, batch_size: int, dimension: int, rho: float = 0.0
) -> float:
    r"""Return a :math:`\tilde\sigma` for the mean of a batch with Gaussian noise.

    .. math:: \tilde\sigma = \sqrt{\frac{4}{1 - e^{-2}}} \frac{\rho}{\sqrt B} +
              \frac{C \sigma}{B} \sqrt{\frac{2}{1 - e^{-2/d}}},

    whose second term is exact, for a fixed number B of samples with or without replacement.

    Fang et al. (2023), proof of Proposition 4.4, (12). No such constant exists for Poisson
    batches, contrary to that proof: :func:`poisson_noise_scale`.
    """
    C = check_positive("clip_norm", clip_norm)
    sigma = check_number("noise_multiplier", noise_multiplier, low=0.0)
    B, d = check_int("batch_size", batch_size, low=1), check_int("dimension", dimension, low=1)
    rho = check_number("rho", rho, low=0.0)
    return sqrt(_MEAN_OF_BATCH / B) * rho + C * sigma / B * sqrt(2.0 / -expm1(-2.0 / d))


def bernoulli_proxy(rate: float) -> float:
    """Return the least K with E exp(t (b - q)) <= exp(K t^2/2), P(b=1) = q (Kearns, Saul 1998)."""
    if rate == 1.0:
        return 0.0
    odds = math.log1p(-rate) - log(rate)
    return 0.25 if abs(odds) < 1e-6 else (0.5 - rate) / odds


def poisson_noise_scale(
    clip_norm: float,
    noise_multiplier: float,
    batch_size: float,
    n: int,
    dimension: int,
    mean_square: float,
) -> float:
    r"""Return a :math:`\tilde\sigma` for the sum of a Poisson batch over B = q n, with its noise.

    .. math:: \tilde\sigma^2 = \frac{2}{1 - e^{-2}} \left(\frac{K m}{q B} +
              \frac{d C^2 \sigma^2}{B^2}\right), \qquad K = \frac{1/2 - q}{\ln((1-q)/q)},

    where m is the mean of :math:`\|\nabla f_i\|^2`, at most :math:`\|\nabla f\|^2 + \rho^2`. Proof:
    for h standard normal :math:`e^{\|\zeta\|^2/s^2} = E_h e^{\sqrt 2 h^\top \zeta/s}`; the samples
    are independent, so the mean over :math:`\zeta` is at most :math:`e^{h^\top M h/s^2}` with an
    :math:`M \succeq 0` whose trace is in brackets, and :math:`E_h e^{h^\top M h/s^2} \le
    (1 - 2\,\mathrm{tr} M/s^2)^{-1/2}`. Alternatively the scales of sampling and noise are added,
    the latter exact; the smaller result is returned.
    """
    rate = batch_size / n
    sampled = bernoulli_proxy(rate) / rate / batch_size * mean_square
    noise = clip_norm * noise_multiplier / batch_size
    both = 2.0 / -expm1(-2.0) * (sampled + dimension * noise**2)
    apart = sqrt(2.0 / -expm1(-2.0) * sampled) + noise * sqrt(2.0 / -expm1(-2.0 / dimension))
    return min(sqrt(both), apart)


def no_clipping_norm(
    initial_gap: float,
    L: float,
    rho: float | None,
    n: int,
    iterations: int,
    failure: float,
    *,
    spread: float = 1.0,
    interpolation_gap: float | None = None,
) -> float:
    r"""Return a clip norm that no gradient exceeds in a run, with probability 1 - ``failure``.

    .. math:: C = \sqrt{2 L\, \max_t (f(w_t) - f^*)} + \rho \sqrt{1 + \ln n},

    for every step size :math:`\eta \le \min\{1/L, s/(\tilde\sigma \sqrt T)\}`. The second term
    holds for all i and w at once, as a mean of n nonnegative terms is at least any of them over n;
    the paper's union bound has :math:`\ln(nT)` and an unspecified constant. Without light tails

    .. math:: C = \sqrt{2 L n\, (\max_t (f(w_t) - f^*) + \Gamma)},

    and the smaller of both if both ``rho`` and ``interpolation_gap`` are given.

    Parameters
    ----------
    initial_gap, L, n, iterations, failure
        As in :func:`clipped_sgd_bound`.
    rho : float or None
        The constant of Assumption 4.1, >= 0; None if it does not hold.
    spread : float
        The distance s >= 0 that the noise may move the iterates; 1 in the paper.
    interpolation_gap : float, optional
        :math:`\Gamma = f^* - \frac1n \sum_i \inf f_i \ge 0`, or larger; required without ``rho``.

    Returns
    -------
    float
        Clip norm, in units of the gradient.

    Raises
    ------
    ValueError
        If an argument is out of its range, or neither ``rho`` nor ``interpolation_gap`` is given.

    References
    ----------
    Fang et al. (2023), Proposition 4.3 and (11); Remark 4.2, with the constants derived here.

    Examples
    --------
    >>> no_clipping_norm(1.0, 1.0, 1.0, 10_000, 1000, 1e-6)
    14.031
    >>> no_clipping_norm(1.0, 1.0, None, 10_000, 1000, 1e-6, interpolation_gap=0.0)
    1083.7
    """
    gap, L = check_number("initial_gap", initial_gap, low=0.0), check_positive("L", L)
    n = check_int("n", n, low=1)
    rho, interpolation_gap = _check_tails(rho, interpolation_gap)
    T, failure = check_int("iterations", iterations, low=1), check_failure(failure)
    spread = check_number("spread", spread, low=0.0)
    highest = path_bound(gap, L, spread * spread, -log(failure), T)
    return _needed_norm(highest, L, rho, n, interpolation_gap)


def _check_tails(rho: Any, interpolation_gap: Any) -> tuple[float | None, float | None]:
    """Return the constants that bound one sample's gradient by the mean loss, or raise."""
    if rho is None and interpolation_gap is None:
        raise ValueError("rho and interpolation_gap must not both be None")
    if rho is not None:
        rho = check_number("rho", rho, low=0.0)
    if interpolation_gap is not None:
        interpolation_gap = check_number("interpolation_gap", interpolation_gap, low=0.0)
    return rho, interpolation_gap


def sampled_tails(rho: float | None, batch_size: int, n: int) -> float:
    """Return the light-tail constant of the sampling error: 0 for full batches."""
    if batch_size == n:
        return 0.0
    if rho is None:
        raise ValueError(f"rho must be given for batches of {batch_size} of {n} samples, got None")
    return rho


def _needed_norm(
    highest: float, L: float, rho: float | None, n: int, interpolation_gap: float | None
) -> float:
    """Return a bound on every sample's gradient norm if f - f* is at most ``highest``."""
    bounds = []
    if rho is not None:
        bounds.append(sqrt(2.0 * L * highest) + rho * sqrt(1.0 + log(n)))
    if interpolation_gap is not None:
        bounds.append(sqrt(2.0 * L * n * (highest + interpolation_gap)))
    return min(bounds)


@dataclass(frozen=True)
class ClippedSGDBound:
    r"""C, :math:`\eta`, :math:`\tilde\sigma` and the guarantee of :func:`clipped_sgd_bound`."""

    clip_norm: float
    step_size: float
    noise_scale: float
    conditional: float  # on the utility, given that nothing was clipped (Proposition 4.4)
    expected: float  # on the utility, unconditionally (Theorem 4.5)


def clipped_sgd_bound(
    initial_gap: float,
    L: float,
    rho: float | None,
    n: int,
    batch_size: int,
    dimension: int,
    noise_multiplier: float,
    iterations: int,
    failure: float,
    *,
    distance: float | None = None,
    spread: float = 1.0,
    interpolation_gap: float | None = None,
    sampling: str = "fixed",
) -> ClippedSGDBound:
    r"""Return clip norm, step size and utility of private SGD that rarely clips.

    The output is uniform among :math:`w_0, \dots, w_T`. Utility is :math:`f - f^*` for convex f
    (``distance`` given), :math:`\|\nabla f\|^2` otherwise; with
    :math:`v = \rho^2/B + d(C\sigma/B)^2`

    .. math:: U = \frac{\|w_0 - w^*\|^2}{2(T+1)\eta} + \frac{v\eta}{2} \quad\text{or}\quad
              U = \frac{D/((T+1)\eta) + Lv\eta/2}{1 - L\eta/2}, \qquad
              \eta = \min\left\{\frac{1}{2L}, \frac{s}{\tilde\sigma\sqrt T}\right\},

    bounds the utility of the method without clipping (at most 1/2 and 2/3 of the paper's Lemma
    A.12). Given that nothing was clipped the bound is :math:`U/(1 - \delta')`; unconditionally it
    is :math:`U + \delta'(\beta + \gamma(1 + \ln(1/\delta')))`, with 2L times the second term for
    non-convex f, where the worst growth in a run is :math:`\beta = 2D + 2L\eta^2T^2(C^2 +
    K_\xi^2/B^2)`, :math:`\gamma = 2L\eta^2TK_\xi^2/B^2`, :math:`K_\xi^2 = 2C^2\sigma^2/(1 -
    e^{-2/d})`. The clip norm is at most :func:`no_clipping_norm`. Full batches need no ``rho``;
    without it C, and the utility where noise dominates, are :math:`\sqrt n` times larger.

    For Poisson batches (``sampling="poisson"``) v contains :math:`(1 - q) \rho^2/B`, the
    denominator for non-convex f is :math:`1 - L\eta (1 + (1 - q)/B)/2`, :math:`\beta` contains
    :math:`C^2/q^2` in place of :math:`C^2`, and :math:`\tilde\sigma` is that of
    :func:`poisson_noise_scale`: for a small sampling rate q the term :math:`1/\sqrt{BT}` is
    larger by the factor :math:`\sqrt{K/q}`, with K defined there.

    Parameters
    ----------
    initial_gap : float
        :math:`D = f(w_0) - f^* \ge 0`.
    L : float
        Smoothness of every :math:`f_i`, positive.
    rho : float or None
        The constant of Assumption 4.1; None, with B = n only, if it does not hold.
    n, batch_size, dimension : int
        n samples, of which a step draws B (B <= n; B = n has no sampling error), and d parameters.
    noise_multiplier : float
        :math:`\sigma \ge 0`, calibrated to a budget; it does not depend on C.
    iterations : int
        T >= 1.
    failure : float
        :math:`\delta'` in ``(0, 0.5]``: the probability that something is clipped. C depends only
        on its logarithm; choose it tiny (1e-12) for a small ``expected``.
    distance : float, optional
        :math:`\|w_0 - w^*\| \ge 0`, for convex :math:`f_i`.
    spread : float
        The distance s > 0; 1 in the paper. A value near ``distance`` is best.
    interpolation_gap : float, optional
        As in :func:`no_clipping_norm`.
    sampling : {"fixed", "poisson"}
        Whether a batch has B samples, or contains each of the n with probability B/n, as the
        privacy analysis of Algorithm 1 assumes.

    Raises
    ------
    ValueError
        If an argument is out of its range, or ``rho`` is None and B < n.

    References
    ----------
    Fang et al. (2023), Proposition 4.4, Theorem 4.5, Remark 4.2, Lemmas A.9, A.12 and B.1, with
    constants derived here.

    Examples
    --------
    >>> found = clipped_sgd_bound(1.0, 1.0, 1.0, 10_000, 10_000, 20, 5.0, 1000, 1e-12,
    ...                           distance=1.0)
    >>> found.clip_norm, found.step_size, found.expected
    (4.6210, 0.5, 0.00103)
    """
    gap, L = check_number("initial_gap", initial_gap, low=0.0), check_positive("L", L)
    n = check_int("n", n, low=1)
    B = check_int("batch_size", batch_size, low=1, high=n)
    rho, interpolation_gap = _check_tails(rho, interpolation_gap)
    d, T = check_int("dimension", dimension, low=1), check_int("iterations", iterations, low=1)
    sigma = check_number("noise_multiplier", noise_multiplier, low=0.0)
    failure = check_failure(failure)
    spread = check_positive("spread", spread)
    if distance is not None:
        distance = check_number("distance", distance, low=0.0)
    sampled, rate = sampled_tails(rho, B, n), B / n
    poisson = check_choice("sampling", sampling, ("fixed", "poisson")) == "poisson"

    def steps(highest: float) -> tuple[float, float, float]:
        """Return clip norm, noise scale and step size for a path with f - f* <= highest."""
        C = _needed_norm(highest, L, rho, n, interpolation_gap)
        if poisson:
            mean_square = 2.0 * L * highest + sampled**2
            scale = poisson_noise_scale(C, sigma, B, n, d, mean_square)
        else:
            scale = sgd_noise_scale(C, sigma, B, d, sampled)
        return C, scale, min(0.5 / L, spread / (scale * sqrt(T)) if scale else inf)

    highest = path_bound(gap, L, spread**2, -log(failure), T)
    # A smaller C means less noise, so that a smaller C suffices: every iteration stays valid.
    for _ in range(50):
        _, scale, eta = steps(highest)
        highest = min(highest, sgd_objective_bound(gap, L, eta, scale, T, failure))
    C, scale, eta = steps(highest)
    missed = 1.0 - rate if poisson else 1.0
    variance = missed * sampled**2 / B + d * (C * sigma / B) ** 2
    if distance is None:
        slack = 1.0 - 0.5 * L * eta * (1.0 + (missed / B if poisson else 0.0))
        first, factor = 2.0 * gap / slack, 2.0 * L
        second = L * variance * eta / slack
    else:
        first, factor, second = distance**2, 1.0, variance * eta
    utility = 0.5 * (first / ((T + 1) * eta) + second)
    gaussian = sgd_noise_scale(C, sigma, B, d)
    growth = 2.0 * L * eta**2 * T
    worst = 2.0 * gap + growth * T * ((C / rate if poisson else C) ** 2 + gaussian**2)
    tail = growth * gaussian**2 * (1.0 - log(failure))
    return ClippedSGDBound(
        clip_norm=C,
        step_size=eta,
        noise_scale=scale,
        conditional=utility / (1.0 - failure),
        expected=utility + factor * failure * (worst + tail),
    )
