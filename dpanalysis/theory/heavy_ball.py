"""Rate, exact error and bounds of the noisy heavy ball method (Kuru et al. 2022, section 3)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from .._validation import as_scalar, check_int
from ._arguments import (
    FloatArray,
    check_constants,
    check_method,
    check_noise_variance,
    check_step,
)
from .quadratic import as_spectrum, heavy_ball_recurrence, quadratic_gap, stationary_gap, worst_rate

_CHUNK = 1 << 14  # number of matrices whose norms are computed at a time


def heavy_ball_rate(
    step_size: ArrayLike, momentum: ArrayLike, mu: float, L: float
) -> FloatArray | float:
    """Return the exact rate on quadratics per iteration, not squared: Kuru et al. (2022), (3.18).

    The largest root modulus of ``z^2 - (1 + beta - alpha lambda) z + beta`` for ``lambda`` in
    ``{mu, L}``, which equals its maximum over ``[mu, L]``.

    Parameters
    ----------
    step_size, momentum : array_like
        ``alpha > 0`` and ``beta`` in ``[0, 1)``; broadcast.
    mu, L : float
        ``0 < mu <= L``.

    Returns
    -------
    float or ndarray
        At least 1 where the method diverges.

    Examples
    --------
    >>> heavy_ball_rate(0.2, 0.5, mu=0.5, L=1.0)
    0.707106
    >>> heavy_ball_rate(1.0, [0.0, 0.2, 0.5], mu=0.5, L=1.0).tolist()
    [0.5, 0.4472, 0.7071]
    """
    alpha, beta = check_method(step_size, momentum)
    return worst_rate(heavy_ball_recurrence, alpha, beta, *check_constants(mu, L))


def heavy_ball_optimal_momentum(step_size: ArrayLike, mu: float, L: float) -> FloatArray | float:
    """Return the momentum with the best :func:`heavy_ball_rate` for a step size.

    ``max{(1 - sqrt(alpha mu))^2, (1 - sqrt(alpha L))^2}``: the smallest momentum for which the
    roots at both ends of the spectrum are complex or double, where the rate is ``sqrt(momentum)``.

    Parameters
    ----------
    step_size : array_like
        ``alpha`` in ``(0, 4/L)``; beyond that, no momentum below 1 converges.
    mu, L : float
        ``0 < mu <= L``.

    Returns
    -------
    float or ndarray
        In ``[0, 1)``.

    Examples
    --------
    >>> heavy_ball_optimal_momentum(1.0, mu=0.25, L=1.0)
    0.25
    """
    mu, L = check_constants(mu, L)
    alpha = check_step("step_size", step_size, 4.0 / L, "4/L", below=True)
    momentum = np.maximum((1.0 - np.sqrt(alpha * mu)) ** 2, (1.0 - np.sqrt(alpha * L)) ** 2)
    return as_scalar(np.minimum(momentum, np.nextafter(1.0, 0.0)))


def heavy_ball_gap(
    eigenvalues: ArrayLike,
    step_size: ArrayLike,
    momentum: ArrayLike,
    noise_variance: ArrayLike,
    initial_error: ArrayLike,
    iterations: int,
) -> FloatArray:
    """Return the exact ``E[F(w_t) - F*]``, ``t = 0..T``, of the heavy ball method on a quadratic.

    Parameters
    ----------
    eigenvalues : (d,) array_like
        Eigenvalues of the Hessian, positive.
    step_size, momentum : array_like
        ``alpha > 0`` and ``beta`` in ``[0, 1)``; broadcast to the leading shape of the result.
    noise_variance : float or (T,) array_like
        Variance of each coordinate of the gradient noise, in every iteration; the noise is
        zero-mean and uncorrelated over time.
    initial_error : float or (d,) array_like
        ``w_0 - w*`` in the eigenbasis; ``w_{-1} = w_0``.
    iterations : int
        ``T >= 0``.

    Returns
    -------
    (..., T + 1) ndarray
        Grows without bound where the method diverges.

    Examples
    --------
    >>> gap = heavy_ball_gap([0.5, 1.0], 0.5, 0.25, noise_variance=1e-4, initial_error=1.0,
    ...                      iterations=50)
    >>> gap.shape, gap[[0, 10]].tolist()
    ((51,), [0.75, 4.831e-05])
    """
    spectrum, error = as_spectrum(eigenvalues, initial_error)
    alpha, beta = check_method(step_size, momentum)
    iterations = check_int("iterations", iterations)
    recurrence = heavy_ball_recurrence(spectrum, alpha[..., None], beta[..., None])
    noise = check_noise_variance(noise_variance, iterations)
    return quadratic_gap(spectrum, error, [(recurrence, iterations)], noise)


def heavy_ball_stationary_gap(
    eigenvalues: ArrayLike, step_size: ArrayLike, momentum: ArrayLike, noise_variance: float
) -> FloatArray | float:
    """Return the limit of :func:`heavy_ball_gap`: the noise floor (Kuru et al. 2022, Theorem 3.5).

    Parameters
    ----------
    eigenvalues, step_size, momentum
        As in :func:`heavy_ball_gap`.
    noise_variance : float
        Variance ``s`` of each coordinate of the gradient noise, at least 0.

    Returns
    -------
    float or ndarray
        ``(s/2) sum_i alpha (1 + beta) / ((1 - beta)(2 + 2 beta - alpha lambda_i))``; infinite
        where the method diverges, but 0 without noise.

    Examples
    --------
    >>> heavy_ball_stationary_gap([0.5, 1.0], 0.5, 0.25, noise_variance=1e-4)
    3.935e-05
    """
    spectrum, _ = as_spectrum(eigenvalues)
    alpha, beta = check_method(step_size, momentum)
    recurrence = heavy_ball_recurrence(spectrum, alpha[..., None], beta[..., None])
    return as_scalar(stationary_gap(spectrum, recurrence, noise_variance))


def _power_norms(p: FloatArray, q: FloatArray, t: np.ndarray) -> FloatArray:
    """Return ``max_i ||T_i^t||`` (spectral) for ``T_i = [[p_i, -q_i], [1, 0]]``."""
    steps = int(t.max(initial=0))
    # T^t = [[k_t, -q k_{t-1}], [k_{t-1}, -q k_{t-2}]] with the impulse response k; k_{-1} = 0
    # and -q k_{-2} = 1 make T^0 the identity.
    power = np.broadcast_to(np.eye(2), (p.size, 2, 2))
    closed = np.zeros((p.size, 2, 2))
    closed[:, 0, 0], closed[:, 0, 1], closed[:, 1, 0] = p, -q, 1.0
    norms = np.empty(steps + 1)
    chunk = max(1, _CHUNK // p.size)
    for start in range(0, steps + 1, chunk):
        powers = np.empty((min(chunk, steps + 1 - start), p.size, 2, 2))
        for each in powers:
            each[:] = power
            power = closed @ power
        square = np.sum(powers**2, axis=(2, 3))
        determinant = powers[..., 0, 0] * powers[..., 1, 1] - powers[..., 0, 1] * powers[..., 1, 0]
        # Largest singular value of a 2 x 2 matrix from its Frobenius norm and determinant.
        root = np.sqrt(np.maximum(square**2 - 4.0 * determinant**2, 0.0))
        norms[start : start + chunk] = np.sqrt(0.5 * (square + root)).max(axis=1)
    return norms[t]


def heavy_ball_bound(
    eigenvalues: ArrayLike,
    step_size: float,
    momentum: float,
    noise_variance: float,
    initial_error: ArrayLike,
    t: ArrayLike,
    printed: bool = False,
) -> FloatArray | float:
    """Return the bound of Kuru et al. (2022), Theorem 3.5 on ``E[F(w_t) - F*]`` for a quadratic.

    Sharpened: ``(L/2) C_t^2 rate^{2t} ||xi_0 - xi*||^2`` plus the stationary gap, where ``C_t =
    max_i ||T_i^t|| / rate^t`` and ``xi_0 = (w_0, w_0)``, so that ``||xi_0 - xi*||^2 = 2 ||w_0 -
    w*||^2``. The paper prints ``C_t = O(t)``, without the factor; its noise term is loose by a
    factor of at least 2.

    The noise must have mean 0, and a second moment of at most ``noise_variance I``, *given both
    points of the state*, ``w_t`` and ``w_{t-1}``. Given ``w_t`` alone, as the theorem displays it,
    the gap can tend to several times the bound (erratum 001-30). Independent noise and the noise of
    independently drawn batches satisfy the condition.

    Parameters
    ----------
    eigenvalues : (d,) array_like
        Eigenvalues of the Hessian, positive; ``mu`` and ``L`` are the extreme ones.
    step_size, momentum : float
        ``alpha > 0`` and ``beta`` in ``[0, 1)``.
    noise_variance : float
        Largest variance of the gradient noise in any direction, given ``w_t`` and ``w_{t-1}``.
    initial_error : float or (d,) array_like
        ``w_0 - w*``; ``w_{-1} = w_0``.
    t : array_like of int
        Iterations, ``t >= 0``.
    printed : bool
        Return (3.17) with ``C_t = t``, to reproduce the paper's Fig. 1. It is not a bound.

    Returns
    -------
    float or ndarray
        Infinite where the method diverges.

    Examples
    --------
    >>> heavy_ball_bound([0.5, 1.0], 0.5, 0.25, 1e-4, initial_error=1.0, t=[0, 10]).tolist()
    [2.00004, 0.0012353]
    """
    spectrum, error = as_spectrum(eigenvalues, initial_error)
    alpha, beta = check_method(step_size, momentum)
    if alpha.ndim or beta.ndim:
        raise ValueError("step_size and momentum must be numbers here, not arrays")
    times = np.asarray(t)
    if not np.issubdtype(times.dtype, np.integer) or (times < 0).any():
        raise ValueError(f"t must be integers >= 0, got {t!r}")
    low, high = float(spectrum.min()), float(spectrum.max())
    distance = 2.0 * float(error @ error)
    rate = heavy_ball_rate(alpha, beta, low, high)
    floor = heavy_ball_stationary_gap(spectrum, alpha, beta, noise_variance)
    if rate >= 1.0:
        bound = np.full(times.shape, np.inf)
    elif printed:
        start = distance + noise_variance * alpha**2 / (1.0 - rate**2)
        terms = 2.0 * alpha * (1.0 + beta)
        terms = terms / ((1.0 - beta) * spectrum * (2.0 + 2.0 * beta - alpha * spectrum))
        bound = start * times**2 * rate ** (2.0 * times)
        bound = bound + high * 0.5 * noise_variance * terms.sum()
    else:
        p, q, *_ = heavy_ball_recurrence(spectrum, alpha, beta)
        bound = 0.5 * high * _power_norms(p, q, times) ** 2 * distance + floor
    return as_scalar(bound)
