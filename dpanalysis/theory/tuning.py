"""Tuning of the heavy ball method under a privacy budget.

Kuru et al. (2022), section 3.2, observe that Polyak's noiseless optimum is not the best choice
under privacy, because more iterations and longer steps add more noise. Here the worst quadratic's
exact error, or a certified bound, is minimized over step size, momentum and number of iterations.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from .._validation import check_choice, check_int, check_positive
from ..errors import CertificateNotFound
from ._arguments import FloatArray, check_array, check_constants
from .allocation import check_sizes, laplace_scales
from .certificates import heavy_ball_certificate
from .lmi import Certificate, Start, start_bounds
from .quadratic import as_spectrum, heavy_ball_recurrence
from .recursion import noise_second_moment, subsampling_variance

NoiseLaw = Callable[[int], float]
# From step sizes and momenta to their errors, and the best numbers of iterations.
Errors = Callable[[FloatArray, FloatArray], tuple[FloatArray, np.ndarray]]


@dataclass(frozen=True, eq=False)
class TunedHeavyBall:
    """Best parameters found for the heavy ball method."""

    step_size: float
    momentum: float
    iterations: int
    value: float  # the minimized error (bound)
    certificate: Certificate | None = None  # proof of it on all functions of the class


def laplace_noise(
    epsilon: float, sensitivity: float, n: int, dimension: int, m: int | None = None
) -> NoiseLaw:
    """Return ``T -> E||w||^2`` when a pure budget is spread evenly over ``T`` iterations.

    Parameters
    ----------
    epsilon, sensitivity, n, dimension, m
        As in :func:`~dpanalysis.theory.horizon_bounds`.

    Examples
    --------
    >>> law = laplace_noise(epsilon=1.0, sensitivity=2.0, n=1000, dimension=10)
    >>> law(1), law(10)
    (8e-05, 0.008)
    """
    epsilon = check_positive("epsilon", epsilon)
    check_sizes(n, m)
    dimension = check_int("dimension", dimension, low=1)
    variance = subsampling_variance(sensitivity, n, n if m is None else m)

    def law(iterations: int) -> float:
        scale = laplace_scales(epsilon / iterations, sensitivity, n, m)
        return float(noise_second_moment(scale, dimension, variance))

    return law


def tune_heavy_ball(
    mu: float,
    L: float,
    noise_law: NoiseLaw,
    horizon_max: int,
    initial: Start,
    *,
    objective: str = "quadratic",
    eigenvalues: ArrayLike | None = None,
) -> TunedHeavyBall:
    """Return step size, momentum and number of iterations with the smallest final error.

    A deterministic search: a grid over step size (logarithmic, from ``1e-4 / L`` to ``3 / L``) and
    momentum (logarithmic in ``1 - momentum``, 0 to 0.999) is refined five times around its best
    point, with the best number of iterations for each pair.

    Parameters
    ----------
    mu, L : float
        ``0 < mu <= L``.
    noise_law : callable
        ``T -> E||w||^2`` of the gradient noise in a run of ``T`` iterations, such as
        :func:`laplace_noise`.
    horizon_max : int
        Largest ``T``.
    initial : float or (distance, gap)
        Public guesses, as in :func:`~dpanalysis.theory.heavy_ball_certificate`.
    objective : {"quadratic", "certified"}
        The worst exact error over quadratics of the class and over noise directions (some 3 s for
        ``horizon_max=1000``), or the bound of a certificate for every function of the
        class (about 200 certificates, some 5 s).
    eigenvalues : (d,) array_like, optional
        For ``objective="quadratic"``: the spectrum, if known, with isotropic noise. Default:
        the worst of 65 values spaced logarithmically in ``[mu, L]`` for most pairs, and also of
        ``8 horizon_max``, at most 8000, further values for the best pairs, with all noise in the
        worst direction. Up to ``horizon_max=1000`` the error between these values may be larger by
        a few parts in a thousand.

    Raises
    ------
    CertificateNotFound
        If no pair on the grid has a certificate.

    Examples
    --------
    >>> law = laplace_noise(epsilon=1.0, sensitivity=2.0, n=1000, dimension=10)
    >>> tuned = tune_heavy_ball(0.1, 1.0, law, 50, initial=(1.0, None))
    >>> 0 < tuned.step_size < 2 and 1 <= tuned.iterations <= 50
    True
    """
    mu, L = check_constants(mu, L)
    horizon_max = check_int("horizon_max", horizon_max, low=1)
    check_choice("objective", objective, ("quadratic", "certified"))
    if not callable(noise_law):
        raise TypeError(f"noise_law must be a function of the iterations, got {noise_law!r}")
    square, gap = start_bounds(mu, L, initial)
    noise = check_array("noise_law(T)", [noise_law(t) for t in range(1, horizon_max + 1)], low=0.0)
    if objective == "quadratic":
        if eigenvalues is None:
            spectrum, isotropic = np.geomspace(mu, L, 65), False
        else:
            spectrum, isotropic = as_spectrum(eigenvalues)[0], True
            # The initial error and gap are bounded by mu and L; computed eigenvalues are rounded.
            off = 1e-9 * L
            check_array("eigenvalues", spectrum, low=mu - off, high=L + off)
            spectrum = np.clip(spectrum, mu, L)

        given = isotropic, noise, square, gap
        errors = partial(_quadratic_errors, spectrum, *given)
        fine = _fine_spectrum(mu, L, horizon_max)
        exact = errors if isotropic else partial(_quadratic_errors, fine, *given)
        return TunedHeavyBall(*_refine(errors, L, (13, 11), exact))
    if eigenvalues is not None:
        raise ValueError("eigenvalues belong to objective='quadratic'")
    found: dict[tuple[float, float], Certificate] = {}

    def bounds(alpha: FloatArray, beta: FloatArray) -> tuple[FloatArray, np.ndarray]:
        values, horizons = np.full(alpha.size, np.inf), np.ones(alpha.size, int)
        for i, pair in enumerate(zip(alpha.tolist(), beta.tolist())):
            try:
                certificate, values[i], horizons[i] = _certified(
                    *pair, mu, L, noise, (float(np.sqrt(square)), gap)
                )
            except CertificateNotFound:
                continue
            found[pair] = certificate
        return values, horizons

    alpha, beta, iterations, value = _refine(bounds, L, (7, 5))
    if (alpha, beta) not in found:
        raise CertificateNotFound(f"no step size and momentum on the grid for mu={mu}, L={L}")
    return TunedHeavyBall(alpha, beta, iterations, value, found[alpha, beta])


def _refine(
    evaluate: Errors, L: float, sizes: tuple[int, int], exact: Errors | None = None
) -> tuple[float, float, int, float]:
    """Minimize over ``(ln alpha L, -ln(1 - beta))`` by a grid and five smaller ones.

    The best eight points of each grid are compared by ``exact``, which is more expensive, if given.
    """
    low = np.array([np.log(1e-4), 0.0])
    high = np.array([np.log(3.0), -np.log(1e-3)])
    box = (low, high)
    best = (np.nan, np.nan, 1, np.inf)
    for _ in range(6):
        axes = [np.linspace(a, b, size) for a, b, size in zip(*box, sizes)]
        x, y = (grid.ravel() for grid in np.meshgrid(*axes, indexing="ij"))
        alpha, beta = np.exp(x) / L, -np.expm1(-y)
        values, horizons = evaluate(alpha, beta)
        if exact is not None:
            top = np.argsort(values)[:8]
            x, y, alpha, beta = x[top], y[top], alpha[top], beta[top]
            values, horizons = exact(alpha, beta)
        k = int(np.argmin(values))
        if values[k] < best[3]:
            best = (float(alpha[k]), float(beta[k]), int(horizons[k]), float(values[k]))
            center = np.array([x[k], y[k]])
        elif not np.isfinite(best[3]):
            break
        spacing = np.array([axis[1] - axis[0] for axis in axes])
        box = (np.maximum(center - spacing, low), np.minimum(center + spacing, high))
    return best


def _fine_spectrum(mu: float, L: float, horizon: int) -> FloatArray:
    """Return eigenvalues dense enough to resolve the error of any run of ``horizon`` steps.

    After t steps the error is a trigonometric polynomial of degree t in the angle of the roots,
    which equals the angle here if the roots become real at the ends of [mu, L].
    """
    angle = np.linspace(0.0, np.pi, 8 * min(horizon, 1000) + 1)
    return np.union1d(np.geomspace(mu, L, 65), mu + (L - mu) * np.sin(0.5 * angle) ** 2)


def _quadratic_errors(
    spectrum: FloatArray,
    isotropic: bool,
    noise: FloatArray,
    square: float,
    gap: float,
    alpha: FloatArray,
    beta: FloatArray,
) -> tuple[FloatArray, np.ndarray]:
    """Return the least error over ``T`` and its ``T`` for arrays of step sizes and momenta.

    With the impulse response ``k``, the mean error is multiplied by ``phi_t = k_t - beta
    k_{t-1}`` and the variance of unit noise is ``alpha^2 sum_{s < t} k_s^2``.
    """
    p, q, *_ = heavy_ball_recurrence(spectrum, alpha[:, None], beta[:, None])
    response, before = np.ones_like(p), np.zeros_like(p)
    energy = np.zeros_like(p)
    best, horizon = np.full(alpha.size, np.inf), np.ones(alpha.size, int)
    half = 0.5 * spectrum
    with np.errstate(over="ignore", invalid="ignore"):
        for t, moment in enumerate(noise.tolist(), start=1):
            energy += response * response
            response, before = p * response - q * before, response
            phi2 = (response - q * before) ** 2
            transient = np.minimum(phi2.max(1) * gap, (half * phi2).max(1) * square)
            gain = (half * energy).mean(1) if isotropic else (half * energy).max(1)
            error = transient + alpha * alpha * gain * moment
            better = error < best  # False for the NaN of a diverged pair
            best[better], horizon[better] = error[better], t
    return best, horizon


def _certified(
    alpha: float, beta: float, mu: float, L: float, noise: FloatArray, initial: tuple[float, float]
) -> tuple[Certificate, float, int]:
    """Return certificate, bound and horizon, optimizing ``T`` and certificate in turn, twice."""
    times = np.arange(1, noise.size + 1)
    certificate = heavy_ball_certificate(alpha, beta, mu, L)
    best = (certificate, np.inf, 1)
    for _ in range(2):
        bounds = np.asarray(certificate.bound(times, certificate.lyapunov(*initial), noise))
        k = int(np.argmin(bounds))
        if bounds[k] < best[1]:
            best = (certificate, float(bounds[k]), k + 1)
        certificate = heavy_ball_certificate(
            alpha, beta, mu, L, objective="bound", horizon=k + 1,
            noise_second_moment=float(noise[k]), initial=initial,
        )  # fmt: skip
    bound = float(certificate.bound(k + 1, certificate.lyapunov(*initial), float(noise[k])))
    return (certificate, bound, k + 1) if bound < best[1] else best
