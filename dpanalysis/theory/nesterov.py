"""Rate, exact error and bounds of noisy Nesterov acceleration (Kuru et al. 2022, section 4.1)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from .._validation import check_int, check_number
from ._arguments import (
    FloatArray,
    check_array,
    check_constants,
    check_method,
    check_noise_variance,
)
from .quadratic import (
    as_spectrum,
    nesterov_recurrence,
    quadratic_gap,
    stationary_gap,
    worst_rate,
)
from .recursion import ErrorRecursion


def nesterov_momentum(step_size: ArrayLike, mu: float) -> FloatArray | float:
    """Return the momentum ``(1 - sqrt(mu alpha)) / (1 + sqrt(mu alpha))`` (Kuru et al. 2022).

    Parameters
    ----------
    step_size : array_like
        Step sizes ``alpha``, in ``(0, 1/mu]``.
    mu : float
        Strong convexity constant, positive.

    Returns
    -------
    float or ndarray
        In ``[0, 1)``, of the shape of ``step_size``.

    Examples
    --------
    >>> float(nesterov_momentum(1.0, 0.01))
    0.818181
    """
    mu = check_number("mu", mu, low=0.0, low_open=True)
    alpha = check_array("step_size", step_size, low=0.0, low_open=True, high=(1.0 + 1e-12) / mu)
    root = np.minimum(np.sqrt(mu * alpha), 1.0)
    return (1.0 - root) / (1.0 + root)


def nesterov_rate(
    step_size: ArrayLike, momentum: ArrayLike, mu: float, L: float
) -> FloatArray | float:
    """Return the exact rate of Nesterov's method on quadratics, per iteration.

    As :func:`~dpanalysis.theory.heavy_ball_rate`, with the polynomial ``z^2 - (1 + beta)(1 -
    alpha lambda) z + beta (1 - alpha lambda)``. The published Fig. 1 of Kuru et al. (2022) shows
    this rate, although labeled as the heavy ball method's.

    Parameters
    ----------
    step_size, momentum : array_like
        ``alpha > 0`` and ``beta`` in ``[0, 1)``; broadcast.
    mu, L : float
        ``0 < mu <= L``.

    Returns
    -------
    float or ndarray
        Not squared; at least 1 where the method diverges.

    Examples
    --------
    >>> nesterov_rate(1.0, 0.519494, mu=0.1, L=1.0)
    0.6837
    """
    alpha, beta = check_method(step_size, momentum)
    return worst_rate(nesterov_recurrence, alpha, beta, *check_constants(mu, L))


def nesterov_gap(
    eigenvalues: ArrayLike,
    step_size: float,
    mu: float,
    noise_variance: ArrayLike,
    initial_error: ArrayLike,
    iterations: int,
    momentum: float | None = None,
) -> FloatArray:
    """Return the exact ``E[F(w_t) - F*]``, ``t = 0..T``, of Nesterov's method on a quadratic.

    Parameters
    ----------
    eigenvalues, noise_variance, initial_error, iterations
        As in :func:`~dpanalysis.theory.heavy_ball_gap`.
    step_size : float
        ``alpha > 0``.
    mu : float
        Strong convexity constant for the default momentum, positive.
    momentum : float, optional
        In ``[0, 1)``; default :func:`nesterov_momentum`.

    Returns
    -------
    (T + 1,) ndarray
        Grows without bound where the method diverges.

    Examples
    --------
    >>> gap = nesterov_gap([0.1, 1.0], 1.0, 0.1, noise_variance=0.01, initial_error=1.0,
    ...                    iterations=200)
    >>> float(gap[0]), float(gap[-1])
    (0.55, 0.00986)
    """
    spectrum, error = as_spectrum(eigenvalues, initial_error)
    iterations = check_int("iterations", iterations)
    step_size = check_number("step_size", step_size, low=0.0, low_open=True)
    if momentum is None:
        momentum = float(nesterov_momentum(step_size, mu))
    momentum = check_number("momentum", momentum, low=0.0, high=1.0, high_open=True)
    recurrence = nesterov_recurrence(spectrum, step_size, momentum)
    noise = check_noise_variance(noise_variance, iterations)
    return quadratic_gap(spectrum, error, [(recurrence, iterations)], noise)


def nesterov_stationary_gap(
    eigenvalues: ArrayLike, step_size: float, mu: float, noise_variance: float
) -> float:
    """Return the limit of :func:`nesterov_gap` with the default momentum.

    Parameters
    ----------
    eigenvalues, mu
        As in :func:`nesterov_gap`.
    step_size : float
        ``alpha`` in ``(0, 1/mu]``.
    noise_variance : float
        Variance of each coordinate of the gradient noise, at least 0.

    Returns
    -------
    float
        Infinite where the method diverges.

    Examples
    --------
    >>> nesterov_stationary_gap([0.1, 1.0], 1.0, 0.1, noise_variance=0.01)
    0.00986
    """
    spectrum, _ = as_spectrum(eigenvalues)
    step_size = check_number("step_size", step_size, low=0.0, low_open=True)
    recurrence = nesterov_recurrence(spectrum, step_size, nesterov_momentum(step_size, mu))
    return float(stationary_gap(spectrum, recurrence, noise_variance))


def nesterov_recursion(iterations: int, step_size: float, mu: float, L: float) -> ErrorRecursion:
    """Return the error recursion of Nesterov's method (Kuru et al. 2022, Theorem 4.1, corrected).

    Theorem 4.1 holds for ``V_t = F(w_t) - F* + 1/2 ||(w_t - w*)/sqrt(alpha) + (sqrt(mu) -
    1/sqrt(alpha))(w_{t-1} - w*)||^2`` and not for ``F(w_t) - F*`` itself; ``V_0`` is at most
    twice the initial gap, a factor missing in the printed (4.3).

    Parameters
    ----------
    iterations : int
        ``T >= 1``.
    step_size : float
        ``alpha`` in ``(0, 1/L]``.
    mu, L : float
        ``0 < mu <= L``.

    Examples
    --------
    >>> recursion = nesterov_recursion(2, step_size=1.0, mu=0.01, L=1.0)
    >>> recursion.start, recursion.factors, recursion.gains
    (2.0, array([0.9, 0.9]), array([2., 2.]))
    """
    mu, L = check_constants(mu, L)
    iterations = check_int("iterations", iterations, low=1)
    alpha = check_number("step_size", step_size, low=0.0, low_open=True, high=(1.0 + 1e-12) / L)
    return ErrorRecursion(
        start=2.0,
        factors=np.full(iterations, max(0.0, 1.0 - np.sqrt(mu * alpha))),
        gains=np.full(iterations, alpha * (1.0 + alpha * L)),
    )


def nesterov_weights(
    iterations: int, step_size: float, mu: float, L: float, printed: bool = False
) -> tuple[float, FloatArray]:
    """Return the weights ``(a0, a)`` of the error bound (Kuru et al. 2022, (4.3)).

    ``E[F(w_T) - F*] <= a0 (F(w_0) - F*) + sum_t a_t (d b_t^2 + sigma_s^2 / 2)`` where ``b_t``
    is the Laplace scale of iteration ``t = 1..T``. ``a`` increases with ``t``: the optimal noise
    decreases.

    Parameters
    ----------
    iterations, step_size, mu, L
        As in :func:`nesterov_recursion`.
    printed : bool
        Omit the factor 2 in ``a0`` as printed, for comparison; that bound is false.

    Returns
    -------
    a0 : float
        ``2 (1 - sqrt(mu alpha))^T``.
    a : (T,) ndarray
        ``a_t = (1 - sqrt(mu alpha))^(T - t) alpha (1 + alpha L)``.

    Examples
    --------
    >>> a0, a = nesterov_weights(3, step_size=1.0, mu=0.01, L=1.0)
    >>> a0, a.tolist()
    (1.458, [1.62, 1.8, 2.0])
    """
    a0, a = nesterov_recursion(iterations, step_size, mu, L).weights()
    return (0.5 * a0 if printed else a0), a
