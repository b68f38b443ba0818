"""Allocation of a privacy budget to iterations, and the best number of iterations.

Kuru et al. (2022), sections 3.1 and 4.1, and Remark 4.1.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from .._validation import check_choice, check_int, check_number, check_positive
from ..privacy.accounting.pure import deamplify
from ._arguments import FloatArray, check_array, check_constants, check_kind
from .nesterov import multistage_recursion
from .recursion import ErrorRecursion, noise_second_moment, subsampling_variance


def check_sizes(n: int, m: float | None) -> tuple[int, float]:
    """Return data size and expected batch size, ``0 < m <= n``; None means the full batch."""
    n = check_int("n", n, low=1)
    return n, n if m is None else check_number("m", m, low=0.0, high=n, low_open=True)


# Smallest weight relative to the largest: one that underflows to 0 has infinite noise.
LEAST_IMPORTANCE = 2.0**-52


def _check_weights(weights: ArrayLike) -> FloatArray:
    values = check_array("weights", weights, low=0.0)
    if values.ndim != 1 or values.size == 0:
        raise ValueError(f"weights must have shape (T,) with T >= 1, got {values.shape}")
    if not values.any():
        raise ValueError("weights must not all be 0")
    if values.all():
        return values
    return np.maximum(values, LEAST_IMPORTANCE * values.max())


def error_bound(
    a0: float,
    a: ArrayLike,
    initial_gap: float,
    laplace_scales: ArrayLike,
    dimension: int,
    subsampling_variance: float = 0.0,
) -> float:
    """Return the error bound of Kuru et al. (2022), (4.3) and (4.8).

    Parameters
    ----------
    a0, a : float, (T,) array_like
        Weights, see :func:`~dpanalysis.theory.nesterov_weights` and
        :func:`~dpanalysis.theory.multistage_weights`.
    initial_gap : float
        ``E_0 >= F(w_0) - F*``.
    laplace_scales : float or (T,) array_like
        Scale ``b_t`` of the Laplace noise of each iteration.
    dimension : int
        ``d``.
    subsampling_variance : float
        ``sigma_s^2``, see :func:`subsampling_variance`.

    Returns
    -------
    float
        ``a0 E_0 + sum_t a_t (d b_t^2 + sigma_s^2 / 2) >= E[F(w_T) - F*]``.

    Examples
    --------
    >>> from dpanalysis import theory
    >>> a0, a = theory.nesterov_weights(100, step_size=1.0, mu=0.01, L=1.0)
    >>> error_bound(a0, a, initial_gap=1.0, laplace_scales=0.01, dimension=10)
    0.020052
    """
    a = check_array("a", a, low=0.0)
    gap = check_number("initial_gap", initial_gap, low=0.0)
    moment = noise_second_moment(laplace_scales, dimension, subsampling_variance)
    if np.shape(moment) not in ((), a.shape):
        raise ValueError(
            f"laplace_scales must be a number or of shape {a.shape}, got {np.shape(moment)}"
        )
    return float(check_number("a0", a0, low=0.0) * gap + np.sum(a * (0.5 * np.asarray(moment))))


def _log_slope(epsilon: FloatArray, ratio: float) -> tuple[FloatArray, FloatArray]:
    """Return ``psi = ln h' - 3 ln h`` and its derivative in ``ln epsilon``.

    ``h(epsilon) = ln(1 + (e^epsilon - 1) / ratio)`` is the budget of the mechanism before
    amplification, so that its noise variance is proportional to ``h^-2``.
    """
    rest = -(1.0 - ratio) * np.expm1(-epsilon)  # slope below is 1 / (1 - (1 - ratio) e^-epsilon)
    slope = 1.0 / (ratio + rest)
    h = deamplify(epsilon, ratio)
    decay = epsilon * (1.0 - ratio - rest) * slope  # - epsilon h'' / h'
    return np.log(slope) - 3.0 * np.log(h), -3.0 * epsilon * slope / h - decay


def _invert_slope(target: FloatArray, ratio: float, guess: FloatArray) -> FloatArray:
    """Solve ``psi(epsilon) = target`` elementwise by Newton's method in ``ln epsilon``.

    ``psi`` falls with a slope between -4 and 0 in ``ln epsilon``; a step that leaves the
    bracket found so far is replaced by bisection, so the iteration always converges.
    """
    u = np.log(guess)
    low, high = u - 50.0, u + 50.0
    for _ in range(200):
        value, derivative = _log_slope(np.exp(u), ratio)
        excess = value - target
        low = np.where(excess >= 0.0, u, low)
        high = np.where(excess <= 0.0, u, high)
        proposal = u - excess / derivative
        outside = (proposal < low) | (proposal > high)
        proposal = np.where(outside, 0.5 * (low + high), proposal)
        done = np.abs(proposal - u).max() <= 1e-13 * max(1.0, np.abs(u).max())
        u = proposal
        if done:
            break
    return np.exp(u)


def solve_dual(
    log_weights: FloatArray, epsilon: float, ratio: float, guess: FloatArray | None = None
) -> FloatArray:
    """Minimize ``sum_t a_t / h(eps_t)^2`` subject to ``sum_t eps_t = epsilon``.

    The objective is convex because ``h`` is concave, increasing and positive. Stationarity
    says ``psi(eps_t) = nu - ln a_t`` with one multiplier ``nu`` for all ``t``, and
    ``ln sum_t eps_t(nu)`` falls with ``nu``: a search in one dimension.
    """
    closed = _full_batch(log_weights)
    closed = epsilon * (closed / closed.sum())
    if epsilon <= 1e-17 * ratio:  # h is linear to the last bit, so that the closed form is exact
        return closed
    guess = closed if guess is None else guess
    shares = np.maximum(guess, 1e-290)
    nu = float(np.average(_log_slope(shares, ratio)[0] + log_weights, weights=shares))
    low, high = -np.inf, np.inf
    for _ in range(200):
        shares = _invert_slope(nu - log_weights, ratio, shares)
        excess = math.log(shares.sum() / epsilon)
        if abs(excess) <= 1e-13:
            break
        low, high = (nu, high) if excess > 0.0 else (low, nu)
        # d ln(sum eps) / d nu = the mean, weighted by eps, of d ln(eps_t) / d nu.
        derivative = float(np.average(1.0 / _log_slope(shares, ratio)[1], weights=shares))
        nu -= excess / derivative
        if not low < nu < high:
            nu = 0.5 * (low + high)
            if not low < nu < high:
                break
    return shares


def _full_batch(log_weights: FloatArray) -> FloatArray:
    """Return the best shares of the full batch, ``a_t^(1/3)``, relative to the largest."""
    return np.exp((log_weights - log_weights.max()) / 3.0)


def _normalize(shares: FloatArray, epsilon: float) -> FloatArray:
    """Scale to the sum ``epsilon``, never above it by a rounding error."""
    if shares.any():  # all of them may have underflowed
        shares = shares * (epsilon / math.fsum(shares))
    while math.fsum(shares) > epsilon:
        shares = np.nextafter(shares, 0.0)
    if not shares.all():
        raise ValueError(f"epsilon must be large enough for {shares.size} shares, got {epsilon!r}")
    return shares


def allocate_epsilon(
    weights: ArrayLike, epsilon: float, n: int | None = None, m: float | None = None
) -> FloatArray:
    """Return the allocation of a pure budget to the iterations that minimizes the error bound.

    Minimizes ``sum_t a_t b_t^2`` over the Laplace scales ``b_t`` that spend ``epsilon`` in all
    (Kuru et al. 2022, (4.4)). For the full batch the optimum is Proposition 4.2, where ``eps_t`` is
    proportional to ``a_t^(1/3)``. For ``m < n`` the paper calls the problem intractable; it is
    convex in the ``eps_t`` and is solved here exactly by a search over its one multiplier. (Remark
    4.2 suggests the full batch's ``eps_t`` under subsampling, with (3.5) to be inverted for each:
    the full batch's scales, used unchanged, spend up to 2.27 where 1 is claimed, errata 001-13.)

    Parameters
    ----------
    weights : (T,) array_like
        ``a_t > 0``.
    epsilon : float
        Total budget, positive, by basic composition.
    n, m : int, float, optional
        Data and batch size for sampling ``m`` of ``n`` without replacement (replace-one), or the
        expected batch size of Poisson sampling (add-or-remove-one); the full batch when omitted.

    Returns
    -------
    (T,) ndarray
        Budgets after amplification; they sum to ``epsilon``, never above it. A share that
        would be rounded to 0 raises ValueError.

    Examples
    --------
    >>> allocate_epsilon([1.0, 8.0], epsilon=3.0)
    array([1., 2.])
    >>> allocate_epsilon([1.0, 8.0], epsilon=3.0, n=100, m=1)
    array([0.58487, 2.41512])
    """
    a = _check_weights(weights)
    epsilon = check_positive("epsilon", epsilon)
    if n is None and m is not None:
        raise ValueError(f"m needs n, the number of samples; got m={m!r} and n=None")
    size, batch = (1, 1) if n is None else check_sizes(n, m)
    log_weights = np.log(a)
    if batch == size:
        return _normalize(_full_batch(log_weights), epsilon)
    return _normalize(solve_dual(log_weights, epsilon, batch / size), epsilon)


def laplace_scales(
    epsilons: ArrayLike, sensitivity: float, n: int, m: float | None = None
) -> FloatArray:
    """Return the Laplace scale that spends each iteration's budget: Kuru et al. (2022), (3.4, 3.5).

    Parameters
    ----------
    epsilons : (T,) array_like
        Budgets ``eps_t > 0`` after amplification, see :func:`allocate_epsilon`.
    sensitivity : float
        ``S_1``, the L1 sensitivity of the sum of gradients (replace-one: the largest distance
        between two samples' gradients).
    n, m : int, float
        Data size; batch size without replacement, or expected Poisson batch size, by default ``n``.

    Returns
    -------
    (T,) ndarray
        ``b_t = S_1 / (m ln(1 + (e^{eps_t} - 1) n / m))``, for noise on the *mean* gradient. Noise
        that would be rounded to 0 raises ValueError.

    Examples
    --------
    >>> laplace_scales([0.01], sensitivity=40.0, n=100_000)
    array([0.04])
    >>> laplace_scales([0.01], sensitivity=40.0, n=100_000, m=1000)
    array([0.0575])
    """
    budgets = check_array("epsilons", epsilons, low=0.0, low_open=True)
    sensitivity = check_number("sensitivity", sensitivity, low=0.0)
    size, batch = check_sizes(n, m)
    scales = np.asarray(sensitivity / (batch * deamplify(budgets, batch / size)))
    return _check_not_rounded_to_0(scales, sensitivity)


def allocate_gaussian(weights: ArrayLike, rho: float, sensitivity: float) -> FloatArray:
    """Return Gaussian noise levels that minimize ``sum_t a_t s_t^2`` under a zCDP budget.

    Each release of L2 sensitivity ``D`` with standard deviation ``s_t`` costs
    ``D^2 / (2 s_t^2)``; under ``sum_t D^2 / (2 s_t^2) = rho`` the optimum has ``s_t^2``
    proportional to ``a_t^(-1/2)``, and the minimum is ``D^2 / (2 rho) (sum_t sqrt a_t)^2``.

    Full batches only: sampling does not lower the zCDP cost of Gaussian noise. For batches
    ``methods.Nesterov(..., sampling=WithoutReplacement(m), mechanism="gaussian", noise="optimal")``
    takes noise in about these proportions, and calibrates it to a budget of epsilon and delta.

    Parameters
    ----------
    weights : (T,) array_like
        ``a_t > 0``.
    rho : float
        Total zCDP budget, positive.
    sensitivity : float
        L2 sensitivity of the released quantity (of the mean, for noise on the mean).

    Returns
    -------
    (T,) ndarray
        Standard deviations of the noise per coordinate. Noise that rounds to 0 raises ValueError.

    Examples
    --------
    >>> allocate_gaussian([1.0, 1.0], rho=1.0, sensitivity=1.0)
    array([1., 1.])
    >>> (allocate_gaussian([1.0, 16.0], rho=0.5, sensitivity=1.0) ** 2).tolist()
    [5.0, 1.25]
    """
    a = _check_weights(weights)
    rho = check_positive("rho", rho)
    sensitivity = check_number("sensitivity", sensitivity, low=0.0)
    # Square roots of the weights relative to the largest: no overflow, however extreme.
    log_root = 0.5 * np.log(a)
    total = np.exp(log_root - log_root.max()).sum()
    # The mantissa of the sensitivity: squaring it cannot overflow or underflow.
    unit, exponent = math.frexp(sensitivity)
    factor = math.sqrt(total) * unit / math.sqrt(2.0) / math.sqrt(rho)
    std = factor * np.exp(0.5 * (log_root.max() - log_root))
    return _check_not_rounded_to_0(np.ldexp(std, exponent), sensitivity)


def _check_not_rounded_to_0(noise: FloatArray, sensitivity: float) -> FloatArray:
    """Return the noise levels, or raise if a positive one was rounded to 0."""
    if sensitivity > 0.0 and not noise.all():
        raise ValueError(f"sensitivity must be larger for noise above 0, got {sensitivity!r}")
    return noise


# Number of iterations


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
    """Return the error bounds of runs of ``t`` iterations that spend the budget, ``t = 1..T``.

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
        As in :func:`laplace_scales`.
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
    epsilon = check_positive("epsilon", epsilon)
    size, batch = check_sizes(n, m)
    check_kind("recursion", recursion, ErrorRecursion)
    start, factors, gains = recursion
    horizon = factors.size
    counts = np.arange(1, horizon + 1)
    transient = start * gap * np.cumprod(factors)
    total = _scan(factors, gains)  # sum_j a_{t,j}
    if variance is None:
        variance = subsampling_variance(sensitivity, size, check_int("m", size if m is None else m))
    variance = check_number("variance", variance, low=0.0)
    if noise == "uniform":
        scales = laplace_scales(epsilon / counts, sensitivity, size, batch)
        return transient + total * (dimension * scales**2 + 0.5 * variance)
    subsampling = 0.5 * variance * total if variance else 0.0
    if batch == size:
        # sum_j a_{t,j}^(1/3) satisfies the recursion with cube roots.
        cubes = _scan(np.cbrt(factors), np.cbrt(gains)) ** 3
        noise_error = dimension * (sensitivity / (size * epsilon)) ** 2 * cubes
    else:
        noise_error = dimension * _optimal_noise(factors, gains, epsilon, sensitivity, size, batch)
    return transient + subsampling + noise_error


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
    """Return ``min sum_j a_{t,j} b_j^2`` for every ``t``, for ``m < n``, with warm starts."""
    out = np.empty(factors.size)
    log_weights = np.empty(0)
    shares = np.empty(0)
    with np.errstate(divide="ignore"):
        log_factors, log_gains = np.log(factors), np.log(gains)
    for t in range(factors.size):
        log_weights = np.append(log_weights + log_factors[t], log_gains[t])
        # A factor 0 discards all earlier iterations; weights near 0 have scales near infinity, and
        # contribute to the sum only by a third of their exponent.
        alive = log_weights > log_weights.max() - 600.0
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

    More iterations contract the initial error further, but each gets less of the budget. The bound
    of Nesterov's method, single or multistage, needs no data (Kuru et al. 2022, Remark 4.1).

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
    iterations, bound : int, float
        The smallest minimizer, and its bound.

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
    steps = check_array("step_sizes", step_sizes, low=0.0, low_open=True)
    if steps.ndim == 0:
        steps = np.full(horizon, steps)
    if steps.size < horizon:
        raise ValueError(f"step_sizes must cover max_iterations={horizon}, got {steps.size}")
    if stages is not None and np.size(stages) < horizon:
        raise ValueError(f"stages must cover max_iterations={horizon}, got {stages!r}")
    numbers = None if stages is None else np.asarray(stages)[:horizon]
    recursion = multistage_recursion(steps[:horizon], numbers, mu, L)
    bounds = horizon_bounds(
        recursion, initial_gap, dimension, sensitivity, n, epsilon, m=m, noise=noise
    )
    best = int(np.argmin(bounds))
    return best + 1, float(bounds[best])
