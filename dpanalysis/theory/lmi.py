"""Lyapunov functions of first-order methods as linear matrix inequalities.

Kuru et al. (2022), section 3.1.

A method with two-step memory is a linear system in feedback with a gradient,

    ``xi_{t+1} = A xi_t + B (g_t + w_t)``,  ``z_t = C xi_t``,  ``g_t = grad F(z_t)``,

where ``xi_t = (w_t, w_{t-1})`` and ``w_t`` (the noise, not the iterate) is zero-mean given the
past. The function ``V(xi) = (xi - xi*)' (P x I_d) (xi - xi*) + c (F(w_t) - F*)`` contracts,

    ``E V(xi_{t+1}) <= rate^2 V(xi_t) + noise_coefficient E||w_t||^2``,

for every ``mu``-strongly convex ``F`` with ``L``-Lipschitz gradient in every dimension, if a
3 x 3 matrix linear in ``(P, c, c0)`` is positive semidefinite: the :meth:`LyapunovLMI.residual`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from .._validation import check_number
from ._arguments import FloatArray, check_array

__all__ = [
    "Certificate",
    "LyapunovLMI",
    "Start",
    "StateSpace",
    "heavy_ball_system",
    "lyapunov_lmi",
    "nesterov_system",
    "start_bounds",
]


class StateSpace(NamedTuple):
    """``xi_{t+1} = A xi_t + B (grad F(C xi_t) + w_t)`` with ``xi_t = (w_t, w_{t-1})``.

    Attributes
    ----------
    A : (2, 2) ndarray
    B, C : (2,) ndarray
    """

    A: FloatArray
    B: FloatArray
    C: FloatArray


def heavy_ball_system(step_size: float, momentum: float) -> StateSpace:
    """Return ``A = [[1 + beta, -beta], [1, 0]], B = [-alpha, 0], C = [1, 0]``.

    (3.10) of Kuru et al. (2022) prints ``B`` with the opposite sign, which is another method.

    Parameters
    ----------
    step_size, momentum : float
        ``alpha`` and ``beta``.

    Returns
    -------
    StateSpace

    Examples
    --------
    >>> heavy_ball_system(0.5, 0.25).A.tolist()
    [[1.25, -0.25], [1.0, 0.0]]
    """
    A = np.array([[1.0 + momentum, -momentum], [1.0, 0.0]])
    return StateSpace(A, np.array([-step_size, 0.0]), np.array([1.0, 0.0]))


def nesterov_system(step_size: float, momentum: float) -> StateSpace:
    """Return the same ``A`` and ``B`` with ``C = [1 + beta, -beta]``.

    Parameters
    ----------
    step_size, momentum : float
        ``alpha`` and ``beta``.

    Returns
    -------
    StateSpace

    Examples
    --------
    >>> nesterov_system(0.5, 0.25).C.tolist()
    [1.25, -0.25]
    """
    A, B, _ = heavy_ball_system(step_size, momentum)
    return StateSpace(A, B, A[0].copy())


@dataclass(frozen=True)
class LyapunovLMI:
    """The blocks of ``c0 X0 + c [X1 + (1 - rate^2) X2] - Phi(A, B, P, rate) >= 0``.

    Kuru et al. (2022), (3.14).

    Attributes
    ----------
    system : StateSpace
        What ``Phi`` is made of.
    mu, L : float
        The class of functions.
    X0, X1, X2 : (3, 3) ndarray
        Quadratic forms in ``(w_t - w*, w_{t-1} - w*, g_t)``: the sector condition (``X0 <= 0``
        on every function of the class), and lower bounds of the decrease, ``X1 <= F(w_t) -
        F(w_{t+1})`` and ``X1 + X2 <= F* - F(w_{t+1})``, up to noise terms.
    """

    system: StateSpace
    mu: float
    L: float
    X0: FloatArray
    X1: FloatArray
    X2: FloatArray

    def phi(self, rate_squared: float, P: FloatArray) -> FloatArray:
        """Return ``[A B]' P [A B] - rate^2 diag(P, 0)``."""
        step = np.column_stack([self.system.A, self.system.B])
        form = step.T @ P @ step
        form[:2, :2] -= rate_squared * P
        return form

    def residual(self, rate: float, P: ArrayLike, c: float, c0: float) -> FloatArray:
        """Return the 3 x 3 matrix whose positive semidefiniteness is the certificate."""
        square = rate * rate
        form = c0 * self.X0 + c * (self.X1 + (1.0 - square) * self.X2)
        return form - self.phi(square, np.asarray(P, dtype=float))


def lyapunov_lmi(system: StateSpace, mu: float, L: float) -> LyapunovLMI:
    """Build the inequality of a method from its state space.

    With ``z`` the point of the gradient ``g``, smoothness between ``z`` and ``w_{t+1}`` and
    strong convexity between ``z`` and ``w_t``, or ``z`` and ``w*``, bound the two decreases.
    For the heavy ball method (``z = w_t``) this gives exactly the ``X1`` and ``X2`` printed in
    Proposition 3.4, with the scalar 2 in the corner of ``X0``.

    Parameters
    ----------
    system : StateSpace
        See :func:`heavy_ball_system` and :func:`nesterov_system`.
    mu, L : float
        ``0 < mu <= L``.

    Returns
    -------
    LyapunovLMI

    Examples
    --------
    >>> lmi = lyapunov_lmi(heavy_ball_system(1.0, 0.5), mu=0.5, L=1.0)
    >>> lmi.X0.tolist()
    [[1.0, 0.0, -1.5], [0.0, 0.0, 0.0], [-1.5, 0.0, 2.0]]
    """

    def product(a: FloatArray, b: FloatArray) -> FloatArray:
        return 0.5 * (np.outer(a, b) + np.outer(b, a))

    # Linear forms in (w_t - w*, w_{t-1} - w*, g).
    now, gradient = np.array([1.0, 0.0, 0.0]), np.array([0.0, 0.0, 1.0])
    point = np.append(system.C, 0.0)
    after = np.append(system.A[0], system.B[0])
    sector = (
        2.0 * mu * L * product(point, point)
        - 2.0 * (mu + L) * product(point, gradient)
        + 2.0 * product(gradient, gradient)
    )
    smooth = product(gradient, point - after) - 0.5 * L * product(after - point, after - point)
    to_now = product(gradient, now - point) + 0.5 * mu * product(now - point, now - point)
    to_optimum = -product(gradient, point) + 0.5 * mu * product(point, point)
    return LyapunovLMI(system, mu, L, sector, smooth + to_now, to_optimum - to_now)


@dataclass(frozen=True, eq=False)
class Certificate:
    """A verified Lyapunov function of a method on all of ``S_{mu,L}``.

    Attributes
    ----------
    rate : float
        Contraction per iteration, not squared: ``V`` shrinks by ``rate^2``.
    P : (2, 2) ndarray
        Positive semidefinite; ``trace(P) + c = 1``.
    c, c0 : float
        Non-negative multipliers of ``F(w_t) - F*`` and of the sector condition.
    margin : float
        Smallest eigenvalue of the residual, recomputed from the numbers above; at least 0.
    lmi : LyapunovLMI
        The inequality that they satisfy.

    Examples
    --------
    >>> from dpanalysis import theory
    >>> certificate = theory.heavy_ball_certificate(0.2, 0.5, mu=0.5, L=1.0)
    >>> certificate.rate
    0.7915
    >>> start = certificate.lyapunov(distance=1.0, gap=0.4)
    >>> bool(certificate.bound(30, start, noise_second_moment=0.0) < 2e-6)
    True
    """

    rate: float
    P: FloatArray
    c: float
    c0: float
    margin: float
    lmi: LyapunovLMI = field(repr=False)

    @property
    def noise_coefficient(self) -> float:
        """What ``V`` gains per unit of ``E||w||^2`` in one iteration: ``B'PB + c L alpha^2/2``."""
        B = self.lmi.system.B
        return float(B @ self.P @ B + 0.5 * self.c * self.lmi.L * B[0] ** 2)

    @property
    def value_coefficient(self) -> float:
        """The largest known ``k`` with ``V >= k (F(w_t) - F*)``: ``c + 2 det P / (L P22)``.

        ``det P / P22`` is the least of the quadratic part over ``w_{t-1}`` per unit of ``||w_t -
        w*||^2``; where ``P22 = 0`` that is ``P11``.
        """
        (p11, p12), (_, p22) = self.P
        least = p11 - p12 * p12 / p22 if p22 > 0.0 else p11
        return float(self.c + 2.0 * max(least, 0.0) / self.lmi.L)

    @property
    def noise_gain(self) -> float:
        """Limit of the noise term of :meth:`bound` per unit of ``E||w||^2``."""
        return self.noise_coefficient / (self.value_coefficient * (1.0 - self.rate**2))

    def lyapunov(self, distance: float | None = None, gap: float | None = None) -> float:
        """Return ``V`` at a start with ``w_{-1} = w_0``, or a bound on it.

        Parameters
        ----------
        distance : float, optional
            ``||w_0 - w*||``; when missing, ``sqrt(2 gap / mu)`` bounds it.
        gap : float, optional
            ``F(w_0) - F*``; when missing, ``L distance^2 / 2`` bounds it.

        Returns
        -------
        float
            ``(P11 + 2 P12 + P22) distance^2 + c gap``.

        Raises
        ------
        ValueError
            If both are missing or one is negative.
        """
        square, gap = initial_bounds(self.lmi.mu, self.lmi.L, distance, gap)
        return float(self.P.sum()) * square + self.c * gap

    def bound(
        self,
        t: ArrayLike,
        initial_lyapunov: float,
        noise_second_moment: ArrayLike,
    ) -> FloatArray | float:
        """Return the bound on ``E[F(w_t) - F*]`` (Kuru et al. 2022, (3.15), corrected).

        Parameters
        ----------
        t : array_like
            Iterations, at least 0.
        initial_lyapunov : float
            ``V_0``, see :meth:`lyapunov`.
        noise_second_moment : array_like
            ``E||w||^2`` of the whole gradient noise, at most this in every iteration; see
            :func:`~dpanalysis.theory.noise_second_moment`. Broadcasts with ``t``: a budget
            spread over more iterations means more noise in each.

        Returns
        -------
        float or ndarray
            ``(rate^{2t} V_0 + (1 - rate^{2t}) / (1 - rate^2) noise_coefficient E||w||^2) /
            value_coefficient``.
        """
        times = check_array("t", t, low=0.0)
        start = check_number("initial_lyapunov", initial_lyapunov, low=0.0)
        moment = check_array("noise_second_moment", noise_second_moment, low=0.0)
        decay = self.rate ** (2.0 * times)
        bound = decay * (start / self.value_coefficient) + (1.0 - decay) * (
            self.noise_gain * moment
        )
        return bound if bound.ndim else float(bound)


Start = float | tuple[float | None, float | None]


def start_bounds(mu: float, L: float, initial: Start) -> tuple[float, float]:
    """Return squared distance and gap of ``(distance, gap)``; a number is the distance."""
    if not isinstance(initial, tuple):
        initial = (initial, None)
    if len(initial) != 2:
        raise ValueError(f"initial must be a distance or (distance, gap), got {initial!r}")
    return initial_bounds(mu, L, *initial)


def initial_bounds(
    mu: float, L: float, distance: float | None, gap: float | None
) -> tuple[float, float]:
    """Return squared distance and gap of the start; the missing one bounded by the other."""
    if distance is None and gap is None:
        raise ValueError("give distance = ||w_0 - w*||, gap = F(w_0) - F*, or both")
    if distance is not None:
        distance = check_number("distance", distance, low=0.0)
    if gap is not None:
        gap = check_number("gap", gap, low=0.0)
    square = 2.0 * gap / mu if distance is None else distance * distance  # type: ignore[operator]
    return square, 0.5 * L * square if gap is None else gap
