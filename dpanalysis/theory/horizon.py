"""Choice of the number of iterations under a privacy budget (Kuru et al. 2022, Remark 4.1)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from .._validation import check_choice, check_int, check_number
from ._arguments import FloatArray, check_constants
from .allocation import check_sizes, laplace_scales, solve_dual
from .multistage import multistage_recursion
from .recursion import ErrorRecursion, subsampling_variance


def horizon_bounds(
    recursion: ErrorRecursion,
    initial_gap: float,
    dimension: int,
    sensitivity: float,
    n: int,
    epsilon: float,
    m: float | None = None,
    noise: str = "optimal",
    variance: float | None = None,
) -> FloatArray:
    """Return the error bound of a run of ``t`` iterations with the whole budget, ``t = 1..T``.

    Parameters
    ----------
    recursion : ErrorRecursion
        Recursion of ``T`` iterations; a shorter run is its prefix.
    initial_gap : float
        ``E_0 >= F(w_0) - F*``, public.
    dimension : int
        ``d``.
    sensitivity : float
        ``S_1``, the L1 replace-one sensitivity of one sample's gradient.
    n, m : int, float
        Data and batch size (expected, for Poisson sampling); the full batch when ``m`` is
        omitted.
    epsilon : float
        Pure budget of the run.
    noise : {"optimal", "uniform"}
        Allocation of the budget to the iterations.
    variance : float, optional
        Second moment of the subsampling error; by default that of sampling ``m`` of ``n``
        without replacement, :func:`~dpanalysis.theory.subsampling_variance`.

    Returns
    -------
    (T,) ndarray
        For the full batch and optimal noise ``a_{t,0} E_0 + d S_1^2 / (n eps)^2 (sum_j
        a_{t,j}^(1/3))^3``, (4.6) of Kuru et al. (2022).
        Costs O(T), and O(T^2) for optimal noise with ``m < n``.

    Examples
    --------
    >>> from dpanalysis import theory
    >>> recursion = theory.nesterov_recursion(200, step_size=1.0, mu=0.01, L=1.0)
    >>> bounds = horizon_bounds(recursion, 1.0, dimension=10, sensitivity=2.0, n=1000, epsilon=1.0)
    >>> int(bounds.argmin()) + 1
    20
    """
    check_choice("noise", noise, ("optimal", "uniform"))
    gap = check_number("initial_gap", initial_gap, low=0.0)
    dimension = check_int("dimension", dimension, low=1)
    sensitivity = check_number("sensitivity", sensitivity, low=0.0)
    epsilon = check_number("epsilon", epsilon, low=0.0, low_open=True)
    n_, m_ = check_sizes(n, m)
    assert n_ is not None and m_ is not None
    start, factors, gains = recursion
    horizon = factors.size
    counts = np.arange(1, horizon + 1)
    transient = start * gap * np.cumprod(factors)
    total = _scan(factors, gains)  # sum_j a_{t,j}
    if variance is None:
        variance = subsampling_variance(sensitivity, n_, check_int("m", n_ if m is None else m))
    variance = check_number("variance", variance, low=0.0)
    if noise == "uniform":
        scales = laplace_scales(epsilon / counts, sensitivity, n_, m_)
        return transient + total * (dimension * scales**2 + 0.5 * variance)
    if m_ == n_:
        # (sum_j a_{t,j}^(1/3)) obeys the recursion with cube roots.
        cubes = _scan(np.cbrt(factors), np.cbrt(gains)) ** 3
        return transient + dimension * (sensitivity / (n_ * epsilon)) ** 2 * cubes
    return (
        transient
        + 0.5 * variance * total
        + dimension * _optimal_noise(factors, gains, epsilon, sensitivity, n_, m_)
    )


def _scan(factors: FloatArray, gains: FloatArray) -> FloatArray:
    """Return ``s_t = factors_t s_{t-1} + gains_t`` with ``s_0 = 0``."""
    out, value = [], 0.0
    for factor, gain in zip(factors.tolist(), gains.tolist()):
        value = factor * value + gain
        out.append(value)
    return np.array(out)


def _optimal_noise(
    factors: FloatArray, gains: FloatArray, epsilon: float, sensitivity: float, n: int, m: float
) -> FloatArray:
    """Return ``min sum_j a_{t,j} b_j^2`` for every horizon ``t``, with ``m < n``.

    The optimum of each horizon is the starting point for the next.
    """
    out = np.empty(factors.size)
    log_weights = np.empty(0)
    shares = np.empty(0)
    with np.errstate(divide="ignore"):
        log_factors, log_gains = np.log(factors), np.log(gains)
    for t in range(factors.size):
        log_weights = np.append(log_weights + log_factors[t], log_gains[t])
        alive = np.isfinite(log_weights)  # a factor 0 discards all earlier iterations
        shares = np.append(shares, shares.max() if t else epsilon)[alive]
        log_weights = log_weights[alive]
        shares = solve_dual(log_weights, epsilon, m / n, epsilon * shares / shares.sum())
        scales = laplace_scales(shares, sensitivity, n, m)
        out[t] = np.exp(log_weights) @ scales**2
    return out


def best_horizon(
    max_iterations: int,
    step_sizes: ArrayLike,
    stages: ArrayLike | None,
    mu: float,
    L: float,
    initial_gap: float,
    dimension: int,
    sensitivity: float,
    n: int,
    epsilon: float,
    *,
    m: int | None = None,
    noise: str = "optimal",
) -> tuple[int, float]:
    """Return the number of iterations ``T' <= T`` with the smallest bound, and the bound.

    More iterations contract the initial error further, but each has a smaller share of the
    budget. The bound of Nesterov's method, single or multistage, needs no data (Kuru et al. 2022,
    Remark 4.1).

    Parameters
    ----------
    max_iterations : int
        ``T >= 1``.
    step_sizes : float or (T,) array_like
        A number for Nesterov's method; see
        :func:`~dpanalysis.theory.multistage_schedule` for the multistage one.
    stages : (T,) array_like of int or None
        ``None`` for a single stage.
    mu, L : float
        ``0 < mu <= L``; step sizes at most ``1/L``.
    initial_gap, dimension, sensitivity, n, epsilon, m, noise
        As in :func:`horizon_bounds`.

    Returns
    -------
    iterations : int
        The smallest minimizer.
    bound : float

    Examples
    --------
    >>> settings = dict(mu=0.02, L=5.1, initial_gap=10.0, dimension=20, sensitivity=40.0,
    ...                 n=100_000, epsilon=1.0)
    >>> iterations, bound = best_horizon(1000, 1 / 5.1, None, **settings)
    >>> iterations, bound
    (121, 0.11084)
    """
    mu, L = check_constants(mu, L)
    horizon = check_int("max_iterations", max_iterations, low=1)
    steps = np.asarray(step_sizes, dtype=float)
    if steps.ndim == 0:
        steps = np.full(horizon, steps)
    if steps.size < horizon:
        raise ValueError(f"step_sizes must cover max_iterations={horizon}, got {steps.size}")
    numbers = None if stages is None else np.asarray(stages)[:horizon]
    recursion = multistage_recursion(steps[:horizon], numbers, mu, L)
    bounds = horizon_bounds(
        recursion, initial_gap, dimension, sensitivity, n, epsilon, m=m, noise=noise
    )
    best = int(np.argmin(bounds))
    return best + 1, float(bounds[best])
