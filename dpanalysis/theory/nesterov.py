"""Rate, exact error and bounds of Nesterov's method, single and multistage (Kuru et al. 2022)."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from .._validation import check_int, check_number, check_positive
from ._arguments import (
    FloatArray,
    check_constants,
    check_method,
    check_noise_variance,
    check_step,
)
from .quadratic import as_spectrum, nesterov_recurrence, quadratic_gap, stationary_gap, worst_rate
from .recursion import ErrorRecursion


def nesterov_momentum(step_size: ArrayLike, mu: float) -> FloatArray | float:
    """Return the momentum ``(1 - sqrt(mu alpha)) / (1 + sqrt(mu alpha))`` (Kuru et al. 2022).

    Parameters
    ----------
    step_size : array_like
        Step sizes ``alpha``, in ``(0, 1/mu]``.
    mu : float
        Strong convexity constant, positive.

    Examples
    --------
    >>> float(nesterov_momentum(1.0, 0.01))
    0.818181
    """
    mu = check_positive("mu", mu)
    alpha = check_step("step_size", step_size, (1.0 + 1e-12) / mu, "1/mu")
    root = np.minimum(np.sqrt(mu * alpha), 1.0)
    return (1.0 - root) / (1.0 + root)


def nesterov_rate(
    step_size: ArrayLike, momentum: ArrayLike, mu: float, L: float
) -> FloatArray | float:
    """Return the exact rate of Nesterov's method on quadratics, per iteration.

    As :func:`~dpanalysis.theory.heavy_ball_rate`, with the polynomial ``z^2 - (1 + beta)(1 -
    alpha lambda) z + beta (1 - alpha lambda)``. Fig. 1 in the repository of Kuru et al. (2022)
    shows this rate as that of the heavy ball method (erratum 001-21).

    Parameters
    ----------
    step_size, momentum, mu, L
        As in :func:`~dpanalysis.theory.heavy_ball_rate`.

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

    Examples
    --------
    >>> gap = nesterov_gap([0.1, 1.0], 1.0, 0.1, noise_variance=0.01, initial_error=1.0,
    ...                    iterations=200)
    >>> float(gap[0]), float(gap[-1])
    (0.55, 0.00986)
    """
    spectrum, error = as_spectrum(eigenvalues, initial_error)
    iterations = check_int("iterations", iterations)
    step_size = check_positive("step_size", step_size)
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

    It is infinite where the method diverges, but 0 without noise.

    Parameters
    ----------
    eigenvalues, mu
        As in :func:`nesterov_gap`.
    step_size : float
        ``alpha`` in ``(0, 1/mu]``.
    noise_variance : float
        Variance of each coordinate of the gradient noise, at least 0.

    Examples
    --------
    >>> nesterov_stationary_gap([0.1, 1.0], 1.0, 0.1, noise_variance=0.01)
    0.00986
    """
    spectrum, _ = as_spectrum(eigenvalues)
    step_size = check_positive("step_size", step_size)
    recurrence = nesterov_recurrence(spectrum, step_size, nesterov_momentum(step_size, mu))
    return float(stationary_gap(spectrum, recurrence, noise_variance))


def nesterov_recursion(iterations: int, step_size: float, mu: float, L: float) -> ErrorRecursion:
    """Return the error recursion of Nesterov's method (Kuru et al. 2022, Theorem 4.1, corrected).

    Theorem 4.1 holds for ``V_t = F(w_t) - F* + 1/2 ||(w_t - w*)/sqrt(alpha) + (sqrt(mu) -
    1/sqrt(alpha))(w_{t-1} - w*)||^2``, not for ``F(w_t) - F*`` itself; ``V_0`` is at most
    twice the initial gap. The printed (4.3) omits this factor.

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
    alpha = check_positive("step_size", step_size)
    check_step("step_size", alpha, (1.0 + 1e-12) / L, "1/L")
    return multistage_recursion(np.full(iterations, alpha), None, mu, L)


def nesterov_weights(
    iterations: int, step_size: float, mu: float, L: float, printed: bool = False
) -> tuple[float, FloatArray]:
    """Return the weights ``(a0, a)`` of the error bound (Kuru et al. 2022, (4.3)).

    ``E[F(w_T) - F*] <= a0 (F(w_0) - F*) + sum_t a_t (d b_t^2 + sigma_s^2 / 2)`` where ``b_t`` is
    the Laplace scale of iteration ``t = 1..T``. ``a`` increases with ``t``: the best noise falls.

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


# Multistage method (section 4.2)


def multistage_schedule(
    iterations: int,
    mu: float,
    L: float,
    p: float = 1,
    first_stage: int | None = None,
    scale: float = 1.0,
) -> tuple[FloatArray, np.ndarray]:
    """Return step size and stage of every iteration (Kuru et al. 2022, (4.7)).

    Stage 1 has ``first_stage`` iterations and step size ``scale / L``; stage ``k >= 2`` has
    ``2^k ceil(sqrt(kappa) ln 2^(p+2))`` iterations and step size ``scale / (4^k L)``, where
    ``kappa = L / mu``.

    Parameters
    ----------
    iterations : int
        ``T >= 1``; the last stage ends there.
    mu, L : float
        ``0 < mu <= L``.
    p : float
        At least 1.
    first_stage : int, optional
        Length of the first stage; default ``ceil(2 sqrt(kappa) ln sqrt(kappa))``, at least 1
        (the authors' Fig. 2 uses the floor, Figs 3 and 4 the ceiling).
    scale : float
        Factor ``c`` on every step size, in ``(0, 1]``.

    Returns
    -------
    step_sizes : (T,) ndarray
    stages : (T,) ndarray of int
        1, 1, ..., 2, 2, ...

    Examples
    --------
    >>> step_sizes, stages = multistage_schedule(60, mu=1.0, L=20.0, first_stage=13)
    >>> np.bincount(stages)[1:].tolist(), (20 * step_sizes[[0, 13, 53]]).tolist()
    ([13, 40, 7], [1.0, 0.0625, 0.015625])
    """
    mu, L = check_constants(mu, L)
    iterations = check_int("iterations", iterations, low=1)
    p = check_number("p", p, low=1.0)
    scale = check_number("scale", scale, low=0.0, low_open=True, high=1.0)
    root = math.sqrt(L / mu)
    if first_stage is None:
        first_stage = max(1, math.ceil(min(2.0 * root * math.log(root), iterations)))
    first_stage = check_int("first_stage", first_stage, low=1)
    unit = math.ceil(min(root * (p + 2.0) * math.log(2.0), iterations))  # no stage is longer
    lengths = [min(first_stage, iterations)]
    while sum(lengths) < iterations:
        length = 2 ** (len(lengths) + 1) * unit
        lengths.append(min(length, iterations - sum(lengths)))
    stages = np.repeat(np.arange(1, len(lengths) + 1), lengths)
    return scale / L * np.where(stages == 1, 1.0, 0.25**stages), stages


def check_stages(
    step_sizes: ArrayLike, stages: ArrayLike | None, L: float | None = None
) -> tuple[FloatArray, np.ndarray]:
    """Return step sizes and stages, both ``(T,)``; stages run 1, 1, ..., 2, ... without gaps."""
    high = np.inf if L is None else (1.0 + 1e-12) / L
    alphas = check_step("step_sizes", step_sizes, high, "1/L")
    if alphas.ndim != 1 or alphas.size == 0:
        raise ValueError(f"step_sizes must have shape (T,) with T >= 1, got {alphas.shape}")
    numbers = np.ones(alphas.size, int) if stages is None else np.asarray(stages)
    if numbers.shape != alphas.shape or not np.issubdtype(numbers.dtype, np.integer):
        raise ValueError(
            f"stages must be integers of shape {alphas.shape}, got {numbers.dtype} of shape "
            f"{numbers.shape}"
        )
    jumps = np.diff(numbers)
    if numbers[0] != 1 or ((jumps != 0) & (jumps != 1)).any():
        raise ValueError("stages must start at 1 and rise by 0 or 1 from one iteration to the next")
    if (np.diff(alphas)[jumps == 0] != 0.0).any():
        raise ValueError("step_sizes must be constant within a stage")
    return alphas, numbers


def multistage_gap(
    eigenvalues: ArrayLike,
    step_sizes: ArrayLike,
    stages: ArrayLike,
    mu: float,
    noise_variance: ArrayLike,
    initial_error: ArrayLike,
) -> FloatArray:
    """Return the exact ``E[F(w_t) - F*]``, ``t = 0..T``, on a quadratic.

    The momentum of each stage is :func:`~dpanalysis.theory.nesterov_momentum` of its step
    size, and the method restarts (``w_{t-1} := w_t``) when a stage begins, as the proof of
    Theorem 4.3 of Kuru et al. (2022) needs.

    Parameters
    ----------
    eigenvalues, noise_variance, initial_error
        As in :func:`~dpanalysis.theory.heavy_ball_gap`.
    step_sizes, stages : (T,) array_like
        As returned by :func:`multistage_schedule`.
    mu : float
        Strong convexity constant for the momentum, positive.

    Examples
    --------
    >>> step_sizes, stages = multistage_schedule(300, mu=0.1, L=1.0)
    >>> gap = multistage_gap([0.1, 1.0], step_sizes, stages, 0.1, 0.01, 1.0)
    >>> bool(gap[-1] < gap[8] < gap[0])
    True
    """
    spectrum, error = as_spectrum(eigenvalues, initial_error)
    alphas, numbers = check_stages(step_sizes, stages)
    starts = np.flatnonzero(np.diff(numbers, prepend=0))
    lengths = np.diff(np.append(starts, alphas.size))
    recurrences = [
        (nesterov_recurrence(spectrum, alpha, nesterov_momentum(alpha, mu)), int(length))
        for alpha, length in zip(alphas[starts], lengths)
    ]
    return quadratic_gap(
        spectrum, error, recurrences, check_noise_variance(noise_variance, alphas.size)
    )


def multistage_recursion(
    step_sizes: ArrayLike, stages: ArrayLike | None, mu: float, L: float
) -> ErrorRecursion:
    """Return the error recursion of the multistage method.

    Kuru et al. (2022), Theorem 4.3, with the momentum reset when a stage starts (erratum 001-15).
    Each stage, including the first, costs a factor 2 (``s_0 = 0``); iteration ``t`` contracts by
    ``1 - sqrt(mu alpha_t)`` and adds ``alpha_t (1 + alpha_t L)`` times its noise.

    Parameters
    ----------
    step_sizes, stages : (T,) array_like
        As returned by :func:`multistage_schedule`; ``stages=None`` is one stage.
    mu, L : float
        ``0 < mu <= L``; step sizes at most ``1/L``.

    Examples
    --------
    >>> step_sizes, stages = multistage_schedule(3, mu=1.0, L=4.0, first_stage=2)
    >>> multistage_recursion(step_sizes, stages, 1.0, 4.0).factors.tolist()
    [0.5, 0.5, 1.75]
    """
    mu, L = check_constants(mu, L)
    alphas, numbers = check_stages(step_sizes, stages, L)
    factors = np.maximum(0.0, 1.0 - np.sqrt(mu * alphas))
    factors[1:][np.diff(numbers) == 1] *= 2.0
    return ErrorRecursion(2.0, factors, alphas * (1.0 + alphas * L))


def multistage_weights(
    step_sizes: ArrayLike, stages: ArrayLike | None, mu: float, L: float
) -> tuple[float, FloatArray]:
    """Return the weights ``(a0, a)`` of the error bound (Kuru et al. 2022, (4.8)).

    As :func:`~dpanalysis.theory.nesterov_weights`, with a factor 2 for every later stage.

    Parameters
    ----------
    step_sizes, stages, mu, L
        As in :func:`multistage_recursion`.

    Returns
    -------
    a0 : float
        ``2^(s_T) prod_i (1 - sqrt(mu alpha_i))``.
    a : (T,) ndarray
        ``a_t = 2^(s_T - s_t) prod_{i > t} (1 - sqrt(mu alpha_i)) alpha_t (1 + alpha_t L)``.

    Examples
    --------
    >>> step_sizes, stages = multistage_schedule(3, mu=1.0, L=4.0, first_stage=2)
    >>> a0, a = multistage_weights(step_sizes, stages, 1.0, 4.0)
    >>> a0, a.tolist()
    (0.875, [0.4375, 0.875, 0.0166])
    """
    return multistage_recursion(step_sizes, stages, mu, L).weights()
