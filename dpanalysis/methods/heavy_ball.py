"""Polyak's heavy ball with noisy gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .._validation import check_number
from ..privacy.facts import PublicFacts
from .recursion import (
    Bounded,
    Coefficients,
    check_bounded_curvature,
    constant_coefficients,
)

if TYPE_CHECKING:
    from ..theory import ErrorRecursion

__all__ = ["HeavyBall"]


@dataclass(frozen=True, repr=False)
class HeavyBall(Bounded):
    """Heavy ball, x_{t+1} = x_t - alpha (grad F(x_t) + noise_t) + beta (x_t - x_{t-1}).

    Problem: an L-smooth, mu-strongly convex F. Guarantee: Proposition 3.4, corrected; with
    a certificate (rate, P, c) of :func:`dpanalysis.theory.heavy_ball_certificate`,

        E F(x_T) - F* <= [rate^{2T} V_0 + sum_t rate^{2(T-t)} alpha^2 (P11 + c L/2) E||w_t||^2] / D

    where ``D = c + 2 |P| / (L P22)``.

    Parameters
    ----------
    step_size : float
        alpha > 0; above 2/L a run warns.
    momentum : float
        beta in [0, 1).
    iterations : int
        T >= 1.
    noise, sampling, mechanism, choose_iterations, clipping
        See :class:`dpanalysis.methods.recursion.Bounded`. ``noise="optimal"`` and
        ``choose_iterations`` use the certificate, so they need one to exist.

    Raises
    ------
    ValueError
        If an argument is outside its range.
    CertificateNotFound
        On use of the bound where no certificate exists.

    References
    ----------
    Kuru, Birbil, Gurbuzbalaban, Yildirim, Differentially private accelerated optimization
    algorithms, SIAM J. Optim. 32 (2022): DP-SHB, (3.1).

    Examples
    --------
    >>> import dpanalysis as dpa
    >>> problem = dpa.Quadratic([0.5, 1.0])
    >>> method = dpa.methods.HeavyBall(step_size=1.0, momentum=0.1, iterations=60)
    >>> float(abs(dpa.minimize(problem, method, w0=[8.0, 8.0]).w).max()) < 1e-6
    True
    """

    step_size: float
    momentum: float
    iterations: int

    def __post_init__(self) -> None:
        check_number("step_size", self.step_size, low=0.0, low_open=True)
        check_number("momentum", self.momentum, low=0.0, high=1.0, high_open=True)
        self._check()

    def coefficients(self) -> Coefficients:
        """Return constant coefficients with momentum and no extrapolation."""
        return constant_coefficients(self.iterations, self.step_size, self.momentum)

    def error_recursion(self, facts: PublicFacts) -> ErrorRecursion:
        """Return what the certificate with the lowest noise floor proves."""
        from ..theory import heavy_ball_certificate, heavy_ball_recursion

        check_bounded_curvature(facts)
        certificate = heavy_ball_certificate(
            self.step_size, self.momentum, facts.mu, facts.L, objective="noise"
        )
        return heavy_ball_recursion(self.iterations, certificate)
