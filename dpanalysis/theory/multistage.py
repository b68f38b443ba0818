"""Schedule, exact error and bounds of multistage Nesterov (Kuru et al. 2022, section 4.2)."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from .._validation import check_int, check_number
from ._arguments import FloatArray, check_array, check_constants, check_noise_variance
from .nesterov import nesterov_momentum
from .quadratic import as_spectrum, nesterov_recurrence, quadratic_gap
from .recursion import ErrorRecursion


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
        (the authors' Fig. 2 takes the floor, Figs 3 and 4 the ceiling).
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
    alphas = check_array("step_sizes", step_sizes, low=0.0, low_open=True, high=high)
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

    Returns
    -------
    (T + 1,) ndarray

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

    Kuru et al. (2022), Theorem 4.3, corrected. Each stage, including the first, costs a factor 2
    (``s_0 = 0``); iteration ``t`` contracts by ``1 - sqrt(mu alpha_t)`` and adds ``alpha_t (1 +
    alpha_t L)`` times its noise.

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
