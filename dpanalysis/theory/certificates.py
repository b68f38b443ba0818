"""Certificates of convergence with the best rate, noise floor or bound at a horizon.

These are three different certificates. At a fixed rate each solves a semidefinite program in
``(P, c, c0, s)``; the rate is found by a one-dimensional search.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize_scalar

from .._validation import check_choice, check_int, check_number, check_positive
from ..errors import CertificateNotFound
from ._arguments import FloatArray, check_constants, check_method
from .heavy_ball import heavy_ball_rate
from .lmi import (
    Certificate,
    CertificateSearch,
    LyapunovLMI,
    Start,
    heavy_ball_system,
    lyapunov_lmi,
    nesterov_system,
    start_bounds,
)
from .nesterov import nesterov_momentum, nesterov_rate


def best_certificate(
    lmi: LyapunovLMI,
    exact_rate: float,
    name: str,
    rate: float | None = None,
    objective: str = "rate",
    horizon: int | None = None,
    noise_second_moment: float | None = None,
    initial: Start | None = None,
    solver: str | None = None,
) -> Certificate:
    """Return the best certificate of an inequality; see :func:`heavy_ball_certificate`.

    ``exact_rate`` is a lower bound for the search; it and ``name`` appear in the error message.
    """
    goal = _goal(lmi, objective, horizon, noise_second_moment, initial)
    if rate is not None:
        rate = check_number("rate", rate, low=0.0, high=1.0, high_open=True)
    search = CertificateSearch(lmi, solver)
    certificate = None
    best = search.best_square(exact_rate) if rate is None else rate * rate
    if best is not None and goal is not None:

        def least_cost(square: float) -> tuple[float, FloatArray]:
            return search.least_cost(square, search.coefficients(*goal(square)))

        square = best
        if rate is None:
            square = _minimize_rate(lambda tried: least_cost(tried)[0], best)
        certificate = search.verified_near(square, least_cost(square)[1])
    if best is not None and certificate is None:
        certificate = search.verified_above(best) if rate is None else search.verified_near(best)
    if certificate is None:
        at = "" if rate is None else f" at rate {rate:g}"
        raise CertificateNotFound(
            f"no verified Lyapunov function (Kuru et al. 2022, (3.14)) for {name} on all functions "
            f"with mu={lmi.mu:g}, L={lmi.L:g}{at}; its exact rate on quadratics is {exact_rate:.6g}"
        )
    return certificate


def _goal(
    lmi: LyapunovLMI,
    objective: str,
    horizon: int | None,
    noise_second_moment: float | None,
    initial: Start | None,
) -> Callable[[float], tuple[float, float, float]] | None:
    """Map a squared rate to weights of ``(||w_0 - w*||^2, F(w_0) - F*, noise)``; None for rate."""
    check_choice("objective", objective, ("rate", "noise", "bound"))
    needed = {"horizon": horizon, "noise_second_moment": noise_second_moment, "initial": initial}
    if objective != "bound":
        given = [name for name, value in needed.items() if value is not None]
        if given:
            raise ValueError(f"{given} belong to objective='bound', got objective={objective!r}")
        return None if objective == "rate" else lambda square: (0.0, 0.0, 1.0 / (1.0 - square))
    if horizon is None or noise_second_moment is None or initial is None:
        missing = [name for name, value in needed.items() if value is None]
        raise ValueError(f"objective='bound' needs {missing} too")
    steps = check_int("horizon", horizon)
    moment = check_number("noise_second_moment", noise_second_moment, low=0.0)
    square_distance, gap = start_bounds(lmi.mu, lmi.L, initial)

    def weights(square: float) -> tuple[float, float, float]:
        decay = square**steps
        noise = (1.0 - decay) / (1.0 - square) * moment
        return decay * square_distance, decay * gap, noise

    return weights


def _minimize_rate(value: Callable[[float], float], best: float) -> float:
    """Return a squared rate in ``(best, 1)`` that minimizes ``value``."""
    # In ``ln(1 - square)``: a coarse grid, then Brent's method between the adjacent grid points.

    def at(s: float) -> float:
        return value(1.0 - (1.0 - best) * float(np.exp(-s)))

    grid = np.array([1e-6, 0.02, 0.1, 0.25, 0.5, 1.0, 1.7, 2.5, 4.0, 6.0])
    values = np.nan_to_num([at(s) for s in grid], nan=np.inf)
    k = int(np.argmin(values))
    bounds = (grid[max(k - 1, 0)], grid[min(k + 1, grid.size - 1)])
    fine = minimize_scalar(at, bounds=bounds, method="bounded", options={"xatol": 1e-3})
    s = fine.x if fine.fun < values[k] else grid[k]
    return 1.0 - (1.0 - best) * float(np.exp(-s))


def heavy_ball_certificate(
    step_size: float,
    momentum: float,
    mu: float,
    L: float,
    *,
    rate: float | None = None,
    objective: str = "rate",
    horizon: int | None = None,
    noise_second_moment: float | None = None,
    initial: Start | None = None,
    solver: str | None = None,
) -> Certificate:
    """Return a verified Lyapunov function of the heavy ball method.

    It holds for every ``mu``-strongly convex function with ``L``-Lipschitz gradient, in every
    dimension, and for every gradient noise of mean 0 given both points of the state (errata
    001-30). Kuru et al. (2022), Proposition 3.4, with corrections: ``B = [-alpha, 0]`` in (3.10),
    the scalar 2 in the corner of (3.14), the trivial solution ``P = 0, c = 0`` excluded, and the
    bound (3.15) without its factor ``d`` and without ``1/c``.

    Parameters
    ----------
    step_size, momentum : float
        ``alpha > 0`` and ``beta`` in ``[0, 1)``.
    mu, L : float
        ``0 < mu <= L``.
    rate : float, optional
        Rate to certify, in ``[0, 1)``; by default it is optimized too.
    objective : {"rate", "noise", "bound"}
        Minimize the rate (at a given rate: maximize the margin), the ``noise_gain``, or the bound
        after ``horizon`` iterations.
    horizon : int, optional
        ``T``, for ``objective="bound"``.
    noise_second_moment : float, optional
        ``E||w||^2``, for ``objective="bound"``.
    initial : float or (distance, gap), optional
        ``||w_0 - w*||`` and ``F(w_0) - F*``, for ``objective="bound"``; one may be None and is
        then bounded by the other. A number is the distance.
    solver : str, optional
        A solver of cvxpy, such as ``"CLARABEL"`` or ``"SCS"``. By default Clarabel is called
        directly, which is several times faster. The certificate is verified whatever the solver.

    Raises
    ------
    CertificateNotFound
        If no certificate of this form exists, or the solver's solution fails verification. The
        message gives the exact rate on quadratics, a lower bound.

    Examples
    --------
    >>> certificate = heavy_ball_certificate(1.0, 0.2, mu=0.5, L=1.0)
    >>> certificate.rate, certificate.margin >= 0.0
    (0.6146, True)
    >>> quiet = heavy_ball_certificate(1.0, 0.2, mu=0.5, L=1.0, objective="noise")
    >>> quiet.noise_gain < certificate.noise_gain
    True
    """
    mu, L = check_constants(mu, L)
    step_size = check_positive("step_size", step_size)
    momentum = check_number("momentum", momentum, low=0.0, high=1.0, high_open=True)
    given = rate, objective, horizon, noise_second_moment, initial, solver
    return best_certificate(
        lyapunov_lmi(heavy_ball_system(step_size, momentum), mu, L),
        float(heavy_ball_rate(step_size, momentum, mu, L)),
        f"the heavy ball method (step_size={step_size:g}, momentum={momentum:g})",
        *given,
    )


def heavy_ball_certified_rate(
    step_size: ArrayLike, momentum: ArrayLike, mu: float, L: float, *, solver: str | None = None
) -> FloatArray | float:
    """Return the best certified rates of the heavy ball method, for arrays of its parameters.

    Each is :attr:`Certificate.rate` of :func:`heavy_ball_certificate`, in about 4 milliseconds.

    Parameters
    ----------
    step_size, momentum : array_like
        ``alpha > 0`` and ``beta`` in ``[0, 1)``; broadcast.
    mu, L, solver
        As in :func:`heavy_ball_certificate`. With cvxpy, one compiled program is used for all.

    Returns
    -------
    float or ndarray
        NaN where there is no certificate; never below :func:`~dpanalysis.theory.heavy_ball_rate`.

    Examples
    --------
    >>> rates = heavy_ball_certified_rate([[0.5], [1.0]], [0.0, 0.2, 0.8], mu=0.5, L=1.0)
    >>> rates.round(3).tolist()
    [[0.75, 0.637, 0.961], [0.5, 0.615, nan]]
    """
    alphas, betas = np.broadcast_arrays(*check_method(step_size, momentum))
    mu, L = check_constants(mu, L)

    def rate(alpha: float, beta: float) -> float:
        try:
            return heavy_ball_certificate(alpha, beta, mu, L, solver=solver).rate
        except CertificateNotFound:
            return np.nan

    rates = [rate(float(a), float(b)) for a, b in zip(alphas.flat, betas.flat)]
    return np.reshape(rates, alphas.shape) if alphas.ndim else rates[0]


def nesterov_certificate(
    step_size: float,
    mu: float,
    L: float,
    *,
    momentum: float | None = None,
    rate: float | None = None,
    objective: str = "rate",
    horizon: int | None = None,
    noise_second_moment: float | None = None,
    initial: Start | None = None,
    solver: str | None = None,
) -> Certificate:
    """Return a verified Lyapunov function of Nesterov's method.

    As :func:`heavy_ball_certificate`, including the errors raised. With the standard momentum the
    rate is at least as good as the classical ``rate^2 = 1 - sqrt(mu alpha)`` of Kuru et al. (2022),
    Theorem 4.1, but for up to 1e-9, within which it is verified.

    Parameters
    ----------
    momentum : float, optional
        In ``[0, 1)``; default :func:`~dpanalysis.theory.nesterov_momentum`.
    step_size, mu, L, rate, objective, horizon, noise_second_moment, initial, solver
        As in :func:`heavy_ball_certificate`.

    Examples
    --------
    >>> certificate = nesterov_certificate(1.0, mu=0.01, L=1.0)
    >>> certificate.rate**2 <= 1.0 - 0.1
    True
    """
    mu, L = check_constants(mu, L)
    step_size = check_positive("step_size", step_size)
    if momentum is None:
        momentum = float(nesterov_momentum(step_size, mu))
    momentum = check_number("momentum", momentum, low=0.0, high=1.0, high_open=True)
    given = rate, objective, horizon, noise_second_moment, initial, solver
    return best_certificate(
        lyapunov_lmi(nesterov_system(step_size, momentum), mu, L),
        float(nesterov_rate(step_size, momentum, mu, L)),
        f"Nesterov's method (step_size={step_size:g}, momentum={momentum:g})",
        *given,
    )
