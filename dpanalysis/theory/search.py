"""The semidefinite programs behind :mod:`dpanalysis.theory.certificates`.

No number that a solver returns counts before NumPy has verified it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import brentq

from ._arguments import FloatArray
from .lmi import Certificate, LyapunovLMI
from .sdp import maximise, modelled

__all__ = ["CertificateSearch"]

# Symmetric 2 x 2 matrices by their entries p11, p12, p22.
_BASIS = np.array([[[1.0, 0.0], [0.0, 0.0]], [[0.0, 1.0], [1.0, 0.0]], [[0.0, 0.0], [0.0, 1.0]]])


class CertificateSearch:
    """The inequality over the unknowns ``y = (p11, p12, p22, c, c0)``, in scaled units.

    Functions are divided by ``L``, states measured as ``(sqrt(mu) w_t, (w_t - w_{t-1}) /
    sqrt(alpha))`` and gradients as ``sqrt(alpha) g``: then the classical Lyapunov functions
    have entries near 1 whatever the condition number. A congruence changes no sign.

    ``solver`` names a solver of cvxpy; None calls Clarabel directly.
    """

    def __init__(self, lmi: LyapunovLMI, solver: str | None = None) -> None:
        self.lmi = lmi
        self.solver = solver
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

    def _solve(self, cost: Sequence[float], blocks: Sequence[FloatArray]) -> FloatArray:
        if self.solver is None:
            return maximise(cost, blocks)
        return modelled(cost, blocks, self.solver)

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
        p11, p12, p22, c0, _ = self._solve([0.0, 0.0, 0.0, 0.0, 1.0], blocks)
        return np.array([p11, p12, p22, max(1.0 - p11 - p22, 0.0), max(c0, 0.0)])

    def best_margin(self, square: float) -> float:
        """Return the largest margin at a squared rate; its sign decides feasibility."""
        return self.margin(square, self.centre(square))

    def best_square(self, exact_rate: float) -> float | None:
        """Return the smallest feasible squared rate, or None; feasibility is monotone in it."""
        if exact_rate >= 1.0:
            return None
        low = exact_rate**2
        if self.best_margin(1.0) <= 0.0:
            return None
        if self.best_margin(low) >= 0.0:
            return low
        return float(brentq(self.best_margin, low, 1.0, xtol=1e-10 * (1.0 - low), rtol=1e-15))

    def shifted(self, square: float) -> Certificate | None:
        """Return a verified certificate a little above the boundary of feasibility.

        The rate rises by 1e-6 of its distance to 1 and, where that is not enough for the
        solver's accuracy, by ten times more.
        """
        rate = float(np.sqrt(square))
        for shift in 1e-6 * 10.0 ** np.arange(6):
            certificate = self.repaired(float((rate + shift * (1.0 - rate)) ** 2))
            if certificate is not None:
                return certificate
        return None

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
        p11, p12, p22, c0, q = self._solve(-objective / np.abs(cost).max(), blocks)
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
        total = float(P[0, 0] + P[1, 1]) + c
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
