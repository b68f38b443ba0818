"""The quadratic problem, for which rates and bounds are exact."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .._validation import check_finite, check_number, check_reals
from ..clipping import Clipping, check_clipping
from ..privacy.facts import PublicFacts
from .base import Problem


class Quadratic(Problem):
    r"""Separable quadratic :math:`F(w) = \frac12\sum_i \lambda_i (w_i - c_i)^2`.

    Parameters
    ----------
    eigenvalues : array_like of shape (d,)
        Non-negative and finite, in any order; ``mu`` and ``L`` are the smallest and the largest.
    center : array_like of shape (d,), optional
        The minimizer c; zero by default.
    sensitivity : float, optional
        L1 sensitivity of the gradient to one record, as declared by the caller; it also bounds the
        L2 sensitivity, which is never larger. So it suits Laplace noise, which needs the L1 norm,
        and Gaussian noise, which needs the L2 norm. None (the default): no private data.

    References
    ----------
    Kuru et al. (2022), (3.16).

    Examples
    --------
    >>> problem = Quadratic([0.5, 1.0])
    >>> float(problem.value([2.0, 2.0]))
    3.0
    >>> problem.gradient([[2.0, 2.0], [0.0, 1.0]])
    array([[1., 2.],
           [0., 1.]])
    """

    n = 1

    def __init__(self, eigenvalues: Any, center: Any = None, sensitivity: float | None = None):
        self.eigenvalues = check_reals("eigenvalues", eigenvalues).copy()
        if self.eigenvalues.ndim != 1 or not self.eigenvalues.size:
            raise ValueError(
                f"eigenvalues must have shape (d,) with d >= 1, got {self.eigenvalues.shape}"
            )
        check_finite("eigenvalues", self.eigenvalues)
        self.mu, self.L = float(self.eigenvalues.min()), float(self.eigenvalues.max())
        check_number("eigenvalues", self.mu, low=0.0)
        self.d = self.eigenvalues.size
        self.center = np.zeros(self.d) if center is None else check_reals("center", center).copy()
        if self.center.shape != (self.d,):
            raise ValueError(f"center must have shape ({self.d},), got {self.center.shape}")
        check_finite("center", self.center)
        if sensitivity is not None:
            sensitivity = check_number("sensitivity", sensitivity, low=0.0)
        self.sensitivity = sensitivity

    def facts(self, relation: str) -> PublicFacts:
        """Return the constants and the declared sensitivity, for both the L1 and L2 norms."""
        none, declared = (math.inf, math.inf), self.sensitivity
        return PublicFacts(
            self.n, self.d, self.mu, self.L, relation, none, declared, declared is not None
        )

    def check_clipping(self, clipping: Clipping | None) -> None:
        """Raise TypeError unless ``clipping`` is a rule or None: the sensitivity is declared."""
        check_clipping(clipping)

    def __repr__(self) -> str:
        return f"Quadratic(d={self.d}, mu={self.mu:g}, L={self.L:g})"

    def _check(self, name: str, w: Any) -> np.ndarray:
        w = check_reals(name, w)
        if w.ndim not in (1, 2) or w.shape[-1] != self.d or not w.shape[0]:
            raise ValueError(f"{name} must have shape ({self.d},) or (R, {self.d}), got {w.shape}")
        return check_finite(name, w)

    def value(self, w: Any) -> Any:
        """Objective at ``w``: scalar for ``(d,)``, shape ``(R,)`` for ``(R, d)``."""
        error = self._check("w", w) - self.center
        return 0.5 * (error * error) @ self.eigenvalues

    def gradient(self, w: Any) -> np.ndarray:
        """Gradient at ``w``, the shape of ``w``."""
        return self.eigenvalues * (self._check("w", w) - self.center)

    def gradient_sum(self, w: Any, rows: Any = None, clipping: Clipping | None = None) -> Any:
        """Return each iterate's gradient times the multiplicity of the only record in its batch."""
        gradient = self.gradient(w)
        if rows is None:
            return gradient
        return gradient * np.array([[float(len(batch))] for batch in rows])

    def hessian(self, w: Any = None) -> np.ndarray:
        """Hessian: ``(d, d)``, or ``(R, d, d)`` for ``w`` of shape ``(R, d)``."""
        hessian = np.diag(self.eigenvalues)
        if w is None or (w := self._check("w", w)).ndim == 1:
            return hessian
        return np.broadcast_to(hessian, (w.shape[0], self.d, self.d))

    def hvp(self, w: Any, v: Any) -> np.ndarray:
        """Hessian times ``v``, the shape of ``v``."""
        return self.eigenvalues * self._check("v", v)

    def solve(self) -> np.ndarray:
        """Return the minimizer, shape ``(d,)``."""
        return self.center.copy()
