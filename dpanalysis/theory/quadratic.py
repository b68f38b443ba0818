"""Exact second moments of two-step methods on quadratics.

On ``F(w) = 1/2 sum_i lambda_i (w_i - w*_i)^2`` with independent zero-mean gradient noise of
variance ``s_t`` in every coordinate, the heavy ball method and Nesterov's method are both

    ``e_{t+1} = p e_t - q e_{t-1} - step_size * noise_t``,   ``e_t = w_t - w*``,

in each eigen-direction, with

============  ======================================  ====================================
method        p                                       q
============  ======================================  ====================================
heavy ball    1 + momentum - step_size lambda         momentum
Nesterov      (1 + momentum)(1 - step_size lambda)    momentum (1 - step_size lambda)
============  ======================================  ====================================

so the mean follows a recursion with two state variables and the covariance one with three.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from .._validation import as_scalar
from ._arguments import FloatArray, check_array


class Recurrence(NamedTuple):
    """Coefficients of ``e_{t+1} = p e_t - q e_{t-1} - step_size noise_t``; arrays broadcast."""

    p: FloatArray
    q: FloatArray
    step_size: FloatArray
    discriminant: FloatArray  # p^2 - 4 q, factored: the difference would cancel near a double root


def heavy_ball_recurrence(
    eigenvalues: FloatArray, step_size: ArrayLike, momentum: ArrayLike
) -> Recurrence:
    """Return the heavy ball method's coefficients (characteristic polynomial of (3.18))."""
    alpha, beta = np.asarray(step_size, float), np.asarray(momentum, float)
    x, root = alpha * eigenvalues, np.sqrt(beta)
    p = 1.0 + beta - x
    discriminant = (((1.0 - beta) / (1.0 + root)) ** 2 - x) * ((1.0 + root) ** 2 - x)
    return Recurrence(p, np.broadcast_to(beta, p.shape), alpha, discriminant)


def nesterov_recurrence(
    eigenvalues: FloatArray, step_size: ArrayLike, momentum: ArrayLike
) -> Recurrence:
    """Return Nesterov's coefficients, with the gradient at the extrapolated point."""
    alpha, beta = np.asarray(step_size, float), np.asarray(momentum, float)
    x = alpha * eigenvalues
    shrink = 1.0 - x
    discriminant = shrink * ((1.0 - beta) ** 2 - (1.0 + beta) ** 2 * x)
    return Recurrence((1.0 + beta) * shrink, beta * shrink, alpha, discriminant)


def as_spectrum(
    eigenvalues: ArrayLike, initial_error: ArrayLike | None = None, name: str = "eigenvalues"
) -> tuple[FloatArray, FloatArray]:
    """Return eigenvalues ``(d,)`` and initial error ``w_0 - w*`` broadcast to ``(d,)``."""
    spectrum = np.atleast_1d(check_array(name, eigenvalues, low=0.0, low_open=True))
    if spectrum.ndim != 1 or spectrum.size == 0:
        raise ValueError(f"{name} must be a number or of shape (d,), d >= 1, got {spectrum.shape}")
    error = check_array("initial_error", 0.0 if initial_error is None else initial_error)
    if error.ndim and error.shape != spectrum.shape:
        raise ValueError(
            f"initial_error must be a number or of shape {spectrum.shape}, got {error.shape}"
        )
    return spectrum, np.broadcast_to(error, spectrum.shape)


def spectral_radius(recurrence: Recurrence) -> FloatArray:
    """Return the larger root modulus of ``z^2 - p z + q``; arrays broadcast.

    Complex roots have modulus ``sqrt(q)``; of two real ones the larger in modulus is
    ``(|p| + sqrt(p^2 - 4 q)) / 2``.
    """
    p, q, _, discriminant = recurrence
    real = 0.5 * (np.abs(p) + np.sqrt(np.maximum(discriminant, 0.0)))
    return np.where(discriminant >= 0.0, real, np.sqrt(np.maximum(q, 0.0)))


def worst_rate(
    recurrence: Callable[[FloatArray, ArrayLike, ArrayLike], Recurrence],
    step_size: FloatArray,
    momentum: FloatArray,
    mu: float,
    L: float,
) -> FloatArray | float:
    """Return the spectral radius at the worse end of ``[mu, L]``, over which it is quasi-convex."""
    ends = (recurrence(np.asarray(end), step_size, momentum) for end in (mu, L))
    return as_scalar(np.maximum(*map(spectral_radius, ends)))


def quadratic_gap(
    spectrum: FloatArray,
    initial_error: FloatArray,
    recurrences: Sequence[tuple[Recurrence, int]],
    noise_variance: FloatArray,
) -> FloatArray:
    """Return the exact ``E[F(w_t) - F*]``, ``t = 0..T``; stages start with ``w_{t-1} := w_t``."""
    total = sum(length for _, length in recurrences)
    shape = np.broadcast_shapes(spectrum.shape, *(r.p.shape for r, _ in recurrences))
    mean = np.broadcast_to(initial_error, shape)
    variance = np.zeros(shape)
    gap = np.empty((total + 1, *shape[:-1]))
    gap[0] = 0.5 * (mean * mean) @ spectrum
    t = 0
    with np.errstate(over="ignore", invalid="ignore"):  # if the method diverges
        for (p, q, alpha, _), length in recurrences:
            p2, q2, pq2 = p * p, q * q, 2.0 * p * q
            kick = alpha * alpha
            # The reset w_{t-1} = w_t: all second moments of the pair coincide.
            mean_before, cross, variance_before = mean, variance, variance
            for _ in range(length):
                mean, mean_before = p * mean - q * mean_before, mean
                variance, cross, variance_before = (
                    p2 * variance - pq2 * cross + q2 * variance_before + kick * noise_variance[t],
                    p * variance - q * cross,
                    variance,
                )
                t += 1
                gap[t] = 0.5 * (mean * mean + variance) @ spectrum
    gap[np.isnan(gap)] = np.inf  # inf - inf
    return np.moveaxis(gap, 0, -1)


def stationary_gap(
    spectrum: FloatArray, recurrence: Recurrence, noise_variance: ArrayLike
) -> FloatArray:
    """Return the limit of ``E[F(w_t) - F*]``; infinite where the recursion does not contract.

    The variance of ``e_{t+1} = p e_t - q e_{t-1} - a noise`` with noise variance ``s`` tends to
    ``a^2 s (1 + q) / ((1 - q) ((1 + q)^2 - p^2))`` when ``|q| < 1`` and ``|p| < 1 + q``. In both
    methods ``1 + q - p = a lambda``, which is positive and cancels against one of the two factors
    ``a`` and the eigenvalue in front of the variance: no loss of digits if ``a lambda`` is tiny.
    """
    p, q, alpha, _ = recurrence
    beyond = (1.0 + q) + p
    stable = (np.abs(q) < 1.0) & (beyond > 0.0)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        gain = np.where(stable, alpha * (1.0 + q) / ((1.0 - q) * beyond), np.inf)
    noise = check_array("noise_variance", noise_variance, low=0.0)
    if noise.ndim:
        raise ValueError(f"noise_variance must be one number here, got shape {noise.shape}")
    if noise == 0.0:  # even where the gain is infinite
        return np.zeros(np.broadcast_shapes(gain.shape, spectrum.shape)[:-1])
    gain = np.broadcast_to(gain, np.broadcast_shapes(gain.shape, spectrum.shape))
    return 0.5 * float(noise) * np.sum(gain, axis=-1)
