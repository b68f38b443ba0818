"""Search for certificates: the best rate, the lowest noise floor, the best bound at a horizon.

The three are different certificates. At a fixed rate each is a semidefinite program in ``(P,
c, c0, s)``; the rate is found by a search in one dimension. No number that a solver returns
counts before NumPy has verified it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.optimize import brentq, minimize_scalar

from .._validation import check_choice, check_int, check_number
from ..errors import CertificateNotFound
from ._arguments import FloatArray, check_constants
from .heavy_ball import heavy_ball_rate
from .lmi import (
    Certificate,
    LyapunovLMI,
    heavy_ball_system,
    initial_bounds,
    lyapunov_lmi,
    nesterov_system,
)
from .nesterov import nesterov_momentum, nesterov_rate
from .sdp import maximise

__all__ = ["heavy_ball_certificate", "nesterov_certificate"]

OBJECTIVES = ("rate", "noise", "bound")

# Symmetric 2 x 2 matrices by their entries p11, p12, p22.
_BASIS = np.array([[[1.0, 0.0], [0.0, 0.0]], [[0.0, 1.0], [1.0, 0.0]], [[0.0, 0.0], [0.0, 1.0]]])


class _Search:
    """The inequality over the unknowns ``y = (p11, p12, p22, c, c0)``, in scaled units.

    Functions are divided by ``L``, states measured as ``(sqrt(mu) w_t, (w_t - w_{t-1}) /
    sqrt(alpha))`` and gradients as ``sqrt(alpha) g``: then the classical Lyapunov functions
    have entries near 1 whatever the condition number. A congruence changes no sign.
    """

    def __init__(self, lmi: LyapunovLMI) -> None:
        self.lmi = lmi
        self.ratio = lmi.mu / lmi.L
        step = abs(float(lmi.system.B[0])) * lmi.L
        across, back = 1.0 / np.sqrt(self.ratio), np.sqrt(step)
        self.states = np.array([[across, 0.0], [across, -back]])
        self.frame = np.zeros((3, 3))
        self.frame[:2, :2], self.frame[2, 2] = self.states, lmi.L / back
        inverse = np.array([[1.0 / across, 0.0], [1.0 / back, -1.0 / back]])
        self.shapes = lmi.L * (inverse.T @ _BASIS @ inverse)
        at = [
            np.array(
                [
                    *(-lmi.phi(square, P) for P in self.shapes),
                    lmi.X1 + (1.0 - square) * lmi.X2,
                    lmi.X0 / lmi.L,
                ]
            )
            for square in (0.0, 1.0)
        ]
        self._still, one = (self._congruent(forms) / lmi.L for forms in at)
        self._moving = one - self._still

    def _congruent(self, matrices: FloatArray) -> FloatArray:
        return self.frame.T @ matrices @ self.frame

    def _forms(self, square: float) -> FloatArray:
        return self._still + square * self._moving

    def coefficients(self, distance_squared: float, gap: float, moment: float) -> FloatArray:
        """Return ``V_0 + moment * noise_coefficient`` as a linear form in ``p11, p12, p22, c``."""
        B, L = self.lmi.system.B, self.lmi.L
        quadratic = [distance_squared * P.sum() + moment * (B @ P @ B) for P in self.shapes]
        return np.array([*quadratic, gap + 0.5 * moment * L * B[0] ** 2])

    def margin(self, square: float, y: FloatArray) -> float:
        """Smallest eigenvalue of residual and ``P`` at trace one; ``-inf`` for nonsense."""
        size = y[0] + y[2] + y[3]
        if not np.isfinite(y).all() or size <= 0.0 or y[3] < 0.0 or y[4] < 0.0:
            return -np.inf
        residual = np.tensordot(y, self._forms(square), axes=1)
        P = np.array([[y[0], y[1]], [y[1], y[2]]])
        return float(min(np.linalg.eigvalsh(residual)[0], np.linalg.eigvalsh(P)[0]) / size)

    def centre(self, square: float) -> FloatArray:
        """Return the unknowns with the largest margin ``t`` at a squared rate.

        ``c = 1 - p11 - p22`` excludes the trivial solution; the unknowns of the program are
        ``p11, p12, p22, c0, t``.
        """
        f = self._forms(square)
        blocks = [
            np.array([f[3], f[0] - f[3], f[1], f[2] - f[3], f[4], -np.eye(3)]),
            np.array([np.zeros((2, 2)), *_BASIS, np.zeros((2, 2)), -np.eye(2)]),
            np.array([1.0, -1.0, 0.0, -1.0, 0.0, 0.0]).reshape(6, 1, 1),
            np.array([0.0, 0.0, 0.0, 0.0, 1.0, 0.0]).reshape(6, 1, 1),
        ]
        p11, p12, p22, c0, _ = maximise([0.0, 0.0, 0.0, 0.0, 1.0], blocks)
        return np.array([p11, p12, p22, max(1.0 - p11 - p22, 0.0), max(c0, 0.0)])

    def best_margin(self, square: float) -> float:
        """Return the largest margin at a squared rate; its sign decides feasibility."""
        return self.margin(square, self.centre(square))

    def best_square(self, exact_rate: float) -> float | None:
        """Return the smallest feasible squared rate, or None; feasibility is monotone in it."""
        low = min(exact_rate, 1.0) ** 2
        if self.best_margin(1.0) <= 0.0:
            return None
        if self.best_margin(low) >= 0.0:
            return low
        return float(brentq(self.best_margin, low, 1.0, xtol=1e-10 * (1.0 - low), rtol=1e-15))

    def cheapest(self, square: float, cost: FloatArray) -> tuple[float, FloatArray]:
        """Minimise a linear form in ``p11, p12, p22, c`` where ``V >= F(w_t) - F*``.

        ``V >= (c + q)(F - F*)`` if ``P - q / (2 mu/L) e1 e1'`` is positive semidefinite in the
        scaled units; ``c = 1 - q``. The unknowns of the program are ``p11, p12, p22, c0, q``.
        """
        f = self._forms(square)
        nothing = np.zeros((2, 2))
        blocks = [
            np.array([f[3], f[0], f[1], f[2], f[4], -f[3]]),
            np.array([nothing, *_BASIS, nothing, -_BASIS[0] / (2.0 * self.ratio)]),
            np.array([1.0, 0.0, 0.0, 0.0, 0.0, -1.0]).reshape(6, 1, 1),
            np.array([0.0, 0.0, 0.0, 0.0, 1.0, 0.0]).reshape(6, 1, 1),
            np.array([0.0, 0.0, 0.0, 0.0, 0.0, 1.0]).reshape(6, 1, 1),
        ]
        objective = np.array([*cost[:3], 0.0, -cost[3]])
        p11, p12, p22, c0, q = maximise(-objective / np.abs(cost).max(), blocks)
        y = np.array([p11, p12, p22, max(1.0 - q, 0.0), max(c0, 0.0)])
        return float(cost @ y[:4]), y

    def verified(self, square: float, y: FloatArray) -> Certificate | None:
        """Return the certificate if it holds for the very numbers it contains, else None."""
        lmi = self.lmi
        rate = float(np.sqrt(square))
        if not (rate < 1.0 and self.margin(square, y) >= 0.0):
            return None
        P = np.tensordot(y[:3], self.shapes, axes=1)
        P, c, c0 = 0.5 * (P + P.T), float(y[3]), float(y[4] / lmi.L)
        total = P[0, 0] + P[1, 1] + c
        P, c, c0 = P / total, c / total, c0 / total
        residual = lmi.residual(rate, P, c, c0)
        signs = (
            np.linalg.eigvalsh(self._congruent(residual))[0],
            np.linalg.eigvalsh(self.states.T @ P @ self.states)[0],
        )
        if min(signs) < 0.0:
            return None
        # The scaled residual is positive; in the user's units rounding may hide that.
        margin = max(float(np.linalg.eigvalsh(residual)[0]), 0.0)
        return Certificate(rate, P, c, c0, margin, lmi)

    def repaired(self, square: float, y: FloatArray | None = None) -> Certificate | None:
        """Return the verified certificate closest to ``y`` on the way to the centre.

        Optimal solutions lie on the boundary, and solvers stop on either side of it. The set
        of certificates at a fixed rate is convex, so a small step towards the one with the
        largest margin enters it.
        """
        middle = self.centre(square)
        middle = middle / (middle[0] + middle[2] + middle[3])
        if y is None or not np.isfinite(y).all() or y[0] + y[2] + y[3] <= 0.0:
            return self.verified(square, middle)
        y = y / (y[0] + y[2] + y[3])
        for step in (0.0, *np.logspace(-9, 0, 28)):
            certificate = self.verified(square, (1.0 - step) * y + step * middle)
            if certificate is not None:
                return certificate
        return None


def _certificate(
    lmi: LyapunovLMI,
    exact_rate: float,
    name: str,
    rate: float | None,
    objective: str,
    horizon: int | None,
    noise_second_moment: float | None,
    initial: tuple[float | None, float | None] | None,
) -> Certificate:
    """Search, verify and return; arguments as in :func:`heavy_ball_certificate`."""
    check_choice("objective", objective, OBJECTIVES)
    needed = (horizon, noise_second_moment, initial)
    if (objective == "bound") != all(value is not None for value in needed) or (
        objective != "bound" and any(value is not None for value in needed)
    ):
        raise ValueError(
            "horizon, noise_second_moment and initial belong to objective='bound', which needs "
            f"all three; got objective={objective!r} with {needed!r}"
        )
    if rate is not None:
        rate = check_number("rate", rate, low=0.0, high=1.0, high_open=True)
    search = _Search(lmi)
    failure = CertificateNotFound(
        f"no Lyapunov function of the form (3.14) certifies {name} on all functions with "
        f"mu={lmi.mu:g}, L={lmi.L:g}"
        + (f" at rate {rate:g}" if rate is not None else "")
        + f"; its exact rate on quadratics is {exact_rate:.6g}"
    )
    if rate is None:
        best = search.best_square(exact_rate)
        if best is None:
            raise failure
    else:
        best = rate * rate
        if search.best_margin(best) < 0.0:
            raise failure

    def cost(square: float) -> FloatArray:
        if objective == "noise":
            return search.coefficients(0.0, 0.0, 1.0 / (1.0 - square))
        assert horizon is not None and noise_second_moment is not None and initial is not None
        decay = square**horizon
        noise = (1.0 - decay) / (1.0 - square) * noise_second_moment
        return search.coefficients(*(decay * np.array(start)), noise)

    certificate = None
    if objective == "rate":
        squares = [best] if rate is not None else _shifted(best)
        found = (search.repaired(square) for square in squares)
        certificate = next((one for one in found if one is not None), None)
    else:
        start = (0.0, 0.0)
        if initial is not None:
            horizon = check_int("horizon", horizon, low=0)
            noise_second_moment = check_number("noise_second_moment", noise_second_moment, low=0.0)
            start = initial_bounds(lmi.mu, lmi.L, *initial)
        if rate is None:
            best = _minimise_rate(lambda square: search.cheapest(square, cost(square))[0], best)
        certificate = search.repaired(best, search.cheapest(best, cost(best))[1])
    if certificate is None:
        raise failure
    return certificate


def _shifted(square: float) -> list[float]:
    """Return squared rates a little above the boundary of feasibility, in growing steps."""
    rate = np.sqrt(square)
    shifts = [1e-6 * 10.0**k * min(1.0, 1.0 - rate) for k in range(6)]
    return [float((rate + shift) ** 2) for shift in shifts]


def _minimise_rate(value: Callable[[float], float], best: float) -> float:
    """Return the squared rate in ``(best, 1)`` with the smallest value, to about 1e-4 in it.

    The scale is ``ln(1 - square)``: a coarse grid, then Brent's method between its neighbours.
    """

    def at(s: float) -> float:
        return value(1.0 - (1.0 - best) * float(np.exp(-s)))

    grid = np.array([1e-6, 0.02, 0.1, 0.25, 0.5, 1.0, 1.7, 2.5, 4.0, 6.0])
    values = [at(s) for s in grid]
    k = int(np.nanargmin(values))
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
    initial: tuple[float | None, float | None] | None = None,
) -> Certificate:
    """Return a verified Lyapunov function of the heavy ball method (001, Proposition 3.4).

    It holds for every ``mu``-strongly convex function with ``L``-Lipschitz gradient, in every
    dimension, and for every zero-mean gradient noise. Corrections to the paper: ``B = [-alpha,
    0]`` in (3.10), the scalar 2 in the corner of (3.14), the trivial solution ``P = 0, c = 0``
    excluded, and the bound (3.15) without its factor ``d`` and without ``1/c``.

    Parameters
    ----------
    step_size, momentum : float
        ``alpha > 0`` and ``beta`` in ``[0, 1)``.
    mu, L : float
        ``0 < mu <= L``.
    rate : float, optional
        Certify this rate, in ``[0, 1)``. By default the rate is chosen too.
    objective : {"rate", "noise", "bound"}
        What the certificate is best at: the smallest rate (at a given rate: the largest
        margin), the smallest ``noise_gain``, or the smallest bound after ``horizon``
        iterations.
    horizon : int, optional
        ``T``, for ``objective="bound"``.
    noise_second_moment : float, optional
        ``E||w||^2``, for ``objective="bound"``.
    initial : (distance, gap), optional
        ``||w_0 - w*||`` and ``F(w_0) - F*``, for ``objective="bound"``; one may be None and is
        then bounded by the other.

    Returns
    -------
    Certificate

    Raises
    ------
    CertificateNotFound
        If there is none of this form, or the solver's answer fails verification. The message
        has the exact rate on quadratics, which no certificate can beat.
    ValueError
        If an argument is out of its range.

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
    step_size = check_number("step_size", step_size, low=0.0, low_open=True)
    momentum = check_number("momentum", momentum, low=0.0, high=1.0, high_open=True)
    return _certificate(
        lyapunov_lmi(heavy_ball_system(step_size, momentum), mu, L),
        float(heavy_ball_rate(step_size, momentum, mu, L)),
        f"the heavy ball method (step_size={step_size:g}, momentum={momentum:g})",
        rate,
        objective,
        horizon,
        noise_second_moment,
        initial,
    )


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
    initial: tuple[float | None, float | None] | None = None,
) -> Certificate:
    """Return a verified Lyapunov function of Nesterov's method.

    The same inequality from another state space. With the standard momentum it certifies at
    least the classical ``rate^2 = 1 - sqrt(mu alpha)`` of 001, Theorem 4.1.

    Parameters
    ----------
    step_size : float
        ``alpha > 0``.
    mu, L : float
        ``0 < mu <= L``.
    momentum : float, optional
        In ``[0, 1)``; default :func:`~dpanalysis.theory.nesterov_momentum`.
    rate, objective, horizon, noise_second_moment, initial
        As in :func:`heavy_ball_certificate`.

    Returns
    -------
    Certificate

    Raises
    ------
    CertificateNotFound
        If there is none of this form.
    ValueError
        If an argument is out of its range.

    Examples
    --------
    >>> certificate = nesterov_certificate(1.0, mu=0.01, L=1.0)
    >>> certificate.rate**2 <= 1.0 - 0.1
    True
    """
    mu, L = check_constants(mu, L)
    step_size = check_number("step_size", step_size, low=0.0, low_open=True)
    if momentum is None:
        momentum = float(nesterov_momentum(step_size, mu))
    momentum = check_number("momentum", momentum, low=0.0, high=1.0, high_open=True)
    return _certificate(
        lyapunov_lmi(nesterov_system(step_size, momentum), mu, L),
        float(nesterov_rate(step_size, momentum, mu, L)),
        f"Nesterov's method (step_size={step_size:g}, momentum={momentum:g})",
        rate,
        objective,
        horizon,
        noise_second_moment,
        initial,
    )
