"""How the error bound of a noisy method moves in one iteration.

Every bound of this package on ``E[F(w_t) - F*]`` has one shape: the error contracts by a factor,
and the iteration's noise adds its share. The methods differ in the factors and in the shares.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .._validation import check_int, check_number
from ._arguments import FloatArray, check_constants
from .lmi import Certificate

__all__ = ["ErrorRecursion", "gradient_descent_recursion", "heavy_ball_recursion"]


class ErrorRecursion(NamedTuple):
    """Error of a noisy method, one iteration at a time.

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
        """Return the recursion of a run that stops after ``iterations``."""
        return ErrorRecursion(self.start, self.factors[:iterations], self.gains[:iterations])


def gradient_descent_recursion(
    iterations: int, step_size: float, mu: float, L: float
) -> ErrorRecursion:
    """Return the error recursion of noisy gradient descent.

    Smoothness and the Polyak-Lojasiewicz inequality give, for ``alpha <= 2/L``,
    ``E_t <= (1 - 2 mu alpha (1 - alpha L / 2)) E_{t-1} + alpha^2 L / 2 E||w||^2``.

    Parameters
    ----------
    iterations : int
        ``T >= 1``.
    step_size : float
        ``alpha`` in ``(0, 2/L]``.
    mu, L : float
        ``0 < mu <= L``.

    Returns
    -------
    ErrorRecursion

    Raises
    ------
    ValueError
        If an argument is out of its range.

    Examples
    --------
    >>> gradient_descent_recursion(1, step_size=1.0, mu=0.1, L=1.0)
    ErrorRecursion(start=1.0, factors=array([0.9]), gains=array([1.]))
    """
    mu, L = check_constants(mu, L)
    iterations = check_int("iterations", iterations, low=1)
    alpha = check_number("step_size", step_size, low=0.0, low_open=True, high=2.0 / L)
    factor = 1.0 - 2.0 * mu * alpha * (1.0 - 0.5 * alpha * L)
    return ErrorRecursion(1.0, np.full(iterations, factor), np.full(iterations, alpha * alpha * L))


def heavy_ball_recursion(iterations: int, certificate: Certificate) -> ErrorRecursion:
    """Return the error recursion that a certificate proves, from ``E_0`` alone.

    Parameters
    ----------
    iterations : int
        ``T >= 1``.
    certificate : Certificate
        Of :func:`~dpanalysis.theory.heavy_ball_certificate` or
        :func:`~dpanalysis.theory.nesterov_certificate`.

    Returns
    -------
    ErrorRecursion

    Examples
    --------
    >>> from dpanalysis import theory
    >>> certificate = theory.heavy_ball_certificate(1.0, 0.0, mu=0.5, L=1.0)
    >>> heavy_ball_recursion(2, certificate).factors
    array([0.25, 0.25])
    """
    iterations = check_int("iterations", iterations, low=1)
    scale = certificate.value_coefficient
    return ErrorRecursion(
        certificate.lyapunov(gap=1.0) / scale,
        np.full(iterations, certificate.rate**2),
        np.full(iterations, 2.0 * certificate.noise_coefficient / scale),
    )
