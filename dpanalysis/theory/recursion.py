"""Variance of private gradients, and error recursions of the noisy methods.

Kuru et al. (2022), section 3.1. In every bound of this package on ``E[F(w_t) - F*]`` each
iteration contracts the error by a factor and adds its noise.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from .._validation import as_scalar, check_int, check_number, check_positive
from ._arguments import FloatArray, check_array, check_constants, check_kind, check_step
from .lmi import Certificate


def subsampling_variance(sensitivity: float, n: int, m: int) -> float:
    r"""Return a bound on the variance of a mean of ``m`` of ``n`` gradients (Kuru et al., (3.13)).

    It bounds the trace of the covariance of the sampling error, and so its norm.

    Parameters
    ----------
    sensitivity : float
        ``S_1``: largest L1 distance between two samples' gradients.
    n, m : int
        Data and batch size, ``1 <= m <= n``; sampling is without replacement.

    Returns
    -------
    float
        ``S_1^2/4 (n - m) / (m (n - 1))``; 0 for the full batch.

    Notes
    -----
    *Proof.* The trace is :math:`(n - m)/(m (n - 1))` times the mean square distance of the
    gradients from their mean, which is at most the squared radius :math:`r^2` of the smallest
    Euclidean ball around them. To show: :math:`r \le S_1/2`. The center of that ball is a mean of
    gradients on its sphere. Let X and X' be independent with the law of this mean, the center 0 and
    r = 1. Then :math:`E X = 0`, :math:`\|X\|_2 = 1`, :math:`w = 1 - X \cdot X' \ge 0` and
    :math:`E w = 1`, so that it suffices to show :math:`E w \|X - X'\|_1 \ge 2`: two gradients then
    have at least the distance 2.

    Let k(a, b) be the smaller size of two numbers of the same sign, else 0. From
    :math:`|a - b| = |a| + |b| - 2 k(a, b)`,

    .. math:: E w \|X - X'\|_1 = 2 E \|X\|_1 - 2 \sum_j E k(X_j, X_j') (1 - \sum_i X_i X_i'),

    where terms with :math:`i \ne j` may be left out: k is positive semidefinite, so
    :math:`E k(X_j, X_j') X_i X_i' \ge 0`. Let :math:`Y = X_j`. For :math:`0 \le y \le z \le 1`

    .. math:: 2 y (1 - y z) = y (1 - y) (1 + z) + z (1 - z) (1 + y) - (z - y) (1 - z) (1 + y),

    and the last product is not negative. So the part of :math:`E k(Y, Y') (1 - Y Y')` with both
    positive is at most :math:`E Y^+ (1 - Y^+)` times :math:`P(Y > 0) + E Y^+`, which is at most 1
    since :math:`E Y^+ = E Y^- \le P(Y < 0)`. With the negative part the sum over j is at most
    :math:`E \|X\|_1 - E \|X\|_2^2 = E \|X\|_1 - 1`.

    Examples
    --------
    >>> subsampling_variance(sensitivity=40.0, n=100_000, m=1000)
    0.396003
    """
    sensitivity = check_number("sensitivity", sensitivity, low=0.0)
    n = check_int("n", n, low=1)
    m = check_int("m", m, low=1, high=n)
    if m == n:
        return 0.0
    return sensitivity * sensitivity / 4.0 * (n - m) / (m * (n - 1.0))


def noise_second_moment(
    laplace_scales: ArrayLike, dimension: int, subsampling_variance: float = 0.0
) -> FloatArray | float:
    """Return ``E||w||^2`` of the total gradient noise (Kuru et al. 2022, (3.12)), a trace.

    Parameters
    ----------
    laplace_scales : array_like
        Laplace scale(s) ``b >= 0``; the variance of a coordinate is ``2 b^2``.
    dimension : int
        ``d >= 1``.
    subsampling_variance : float
        ``sigma_s^2``, see :func:`subsampling_variance`.

    Returns
    -------
    float or ndarray
        ``sigma_s^2 + 2 d b^2``: a bound on the trace of the covariance, which the paper calls its
        norm; the spectral norm is ``sigma_s^2 + 2 b^2``.

    Examples
    --------
    >>> noise_second_moment(0.1, dimension=20)
    0.4
    """
    scales = check_array("laplace_scales", laplace_scales, low=0.0)
    dimension = check_int("dimension", dimension, low=1)
    variance = check_number("subsampling_variance", subsampling_variance, low=0.0)
    return as_scalar(variance + 2.0 * dimension * scales**2)


class ErrorRecursion(NamedTuple):
    """Error recursion of a noisy method.

    ``V_0 <= start E_0`` and ``V_t <= factors_t V_{t-1} + gains_t (d b_t^2 + sigma_s^2 / 2)``
    with ``E[F(w_t) - F*] <= V_t``, for Laplace noise of scale ``b_t`` and subsampling noise of
    second moment ``sigma_s^2``.

    Attributes
    ----------
    start : float
    factors, gains : (T,) ndarray

    Examples
    --------
    >>> a0, a = ErrorRecursion(1.0, np.array([0.5, 0.5]), np.array([1.0, 1.0])).weights()
    >>> a0, a.tolist()
    (0.25, [0.5, 1.0])
    """

    start: float
    factors: FloatArray
    gains: FloatArray

    def weights(self) -> tuple[float, FloatArray]:
        """Return ``(a0, a)``: the last error is at most ``a0 E_0 + sum_t a_t (...)``."""
        later = np.append(np.cumprod(self.factors[::-1])[::-1], 1.0)
        return float(self.start * later[0]), self.gains * later[1:]

    def prefix(self, iterations: int) -> ErrorRecursion:
        """Return the recursion of the first ``iterations`` iterations."""
        return ErrorRecursion(self.start, self.factors[:iterations], self.gains[:iterations])


def gradient_descent_recursion(
    iterations: int, step_size: float, mu: float, L: float
) -> ErrorRecursion:
    """Return the error recursion of noisy gradient descent.

    Smoothness and the Polyak-Lojasiewicz inequality give, for ``alpha <= 2/L``,
    ``E_t <= (1 - 2 mu alpha (1 - alpha L / 2)) E_{t-1} + alpha^2 L / 2 E||w||^2``.

    Parameters
    ----------
    iterations, mu, L
        As in :func:`~dpanalysis.theory.nesterov_recursion`.
    step_size : float
        ``alpha`` in ``(0, 2/L]``.

    Examples
    --------
    >>> gradient_descent_recursion(1, step_size=1.0, mu=0.1, L=1.0)
    ErrorRecursion(start=1.0, factors=array([0.9]), gains=array([1.]))
    """
    mu, L = check_constants(mu, L)
    iterations = check_int("iterations", iterations, low=1)
    alpha = check_positive("step_size", step_size)
    check_step("step_size", alpha, 2.0 / L, "2/L")
    factor = 1.0 - 2.0 * mu * alpha * (1.0 - 0.5 * alpha * L)
    return ErrorRecursion(1.0, np.full(iterations, factor), np.full(iterations, alpha * alpha * L))


def heavy_ball_recursion(iterations: int, certificate: Certificate) -> ErrorRecursion:
    """Return the error recursion that a certificate proves, with ``V_0`` bounded by ``E_0``.

    Parameters
    ----------
    iterations : int
        ``T >= 1``.
    certificate : Certificate
        From :func:`~dpanalysis.theory.heavy_ball_certificate` or
        :func:`~dpanalysis.theory.nesterov_certificate`.

    Examples
    --------
    >>> from dpanalysis import theory
    >>> certificate = theory.heavy_ball_certificate(1.0, 0.0, mu=0.5, L=1.0)
    >>> heavy_ball_recursion(2, certificate).factors
    array([0.25, 0.25])
    """
    iterations = check_int("iterations", iterations, low=1)
    check_kind("certificate", certificate, Certificate)
    scale = certificate.value_coefficient
    return ErrorRecursion(
        certificate.lyapunov(gap=1.0) / scale,
        np.full(iterations, certificate.rate**2),
        np.full(iterations, 2.0 * certificate.noise_coefficient / scale),
    )
