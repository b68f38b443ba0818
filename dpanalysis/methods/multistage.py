"""Multistage accelerated gradient: Nesterov's method with shrinking steps and restarts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .._validation import check_number
from ..privacy.facts import PublicFacts
from .recursion import Bounded, Coefficients, check_bounded_curvature

if TYPE_CHECKING:
    from ..theory import ErrorRecursion

__all__ = ["MultistageNesterov"]


@dataclass(frozen=True, repr=False)
class MultistageNesterov(Bounded):
    """Nesterov's method in stages, (4.7): each halves sqrt(alpha) and doubles its length.

    The momentum is reset when a stage starts. Problem: an L-smooth, mu-strongly convex F.
    Guarantee: Theorem 4.3, corrected, with the weights of
    :func:`dpanalysis.theory.multistage_weights`.

    Parameters
    ----------
    iterations : int
        T >= 1; the last stage is cut there.
    mu, L : float
        Strong convexity and smoothness that set the schedule, 0 < mu <= L.
    p : float
        p >= 1 of (4.7): longer stages for larger p.
    scale : float
        Constant c in (0, 1] before every step size.
    noise, sampling, mechanism, choose_iterations, clipping
        See :class:`dpanalysis.methods.recursion.Bounded`.

    Raises
    ------
    ValueError
        If an argument is outside its range.

    References
    ----------
    Kuru, Birbil, Gurbuzbalaban, Yildirim, Differentially private accelerated optimization
    algorithms, SIAM J. Optim. 32 (2022): DP-MASG and DP-MASG-opt, section 4.2. Aybat, Fallah,
    Gurbuzbalaban, Ozdaglar, A universally optimal multistage accelerated stochastic gradient
    method, NeurIPS 2019.

    Examples
    --------
    >>> import dpanalysis as dpa
    >>> method = dpa.methods.MultistageNesterov(iterations=53, mu=1.0, L=20.0)
    >>> sorted({float(a) for a in method.coefficients().step_size})
    [0.003125, 0.05]
    """

    iterations: int
    mu: float
    L: float
    p: float = 1.0
    scale: float = 1.0

    def __post_init__(self) -> None:
        check_number("mu", self.mu, low=0.0, low_open=True)
        check_number("L", self.L, low=self.mu)
        check_number("p", self.p, low=1.0)
        check_number("scale", self.scale, low=0.0, low_open=True, high=1.0)
        self._check()

    def _schedule(self) -> tuple[np.ndarray, np.ndarray]:
        from ..theory import multistage_schedule

        return multistage_schedule(self.iterations, self.mu, self.L, p=self.p, scale=self.scale)

    def coefficients(self) -> Coefficients:
        """Return the coefficients of (4.7), restarting where the stage changes."""
        from ..theory import nesterov_momentum

        step_sizes, stages = self._schedule()
        beta = np.asarray(nesterov_momentum(step_sizes, self.mu))
        restart = np.diff(stages, prepend=stages[0]) > 0
        return Coefficients(step_sizes, beta, beta, restart)

    def error_recursion(self, facts: PublicFacts) -> ErrorRecursion:
        """Return Theorem 4.3, corrected; a stage that starts doubles the error."""
        from ..theory import multistage_recursion

        check_bounded_curvature(facts, self.mu)
        return multistage_recursion(*self._schedule(), self.mu, max(self.L, facts.L))
