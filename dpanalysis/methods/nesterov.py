"""Nesterov's accelerated gradient with noisy gradients."""

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

__all__ = ["Nesterov"]


@dataclass(frozen=True, repr=False)
class Nesterov(Bounded):
    """Nesterov's method with constant step size, (4.1).

        y_t = x_t + beta (x_t - x_{t-1}),    x_{t+1} = y_t - alpha (grad F(y_t) + noise_t),

    beta = (1 - sqrt(mu alpha)) / (1 + sqrt(mu alpha)). Problem: an L-smooth, mu-strongly
    convex F. Guarantee for alpha <= 1/L: Theorem 4.1, corrected (the initial gap enters
    twice), with the weights of :func:`dpanalysis.theory.nesterov_weights`.

    Parameters
    ----------
    step_size : float
        alpha in (0, 1/mu].
    iterations : int
        T >= 1.
    mu : float
        Strong convexity that sets the momentum, > 0.
    noise, sampling, mechanism, choose_iterations, clipping
        See :class:`dpanalysis.methods.recursion.Bounded`.

    Raises
    ------
    ValueError
        If an argument is outside its range.

    References
    ----------
    Kuru, Birbil, Gurbuzbalaban, Yildirim, Differentially private accelerated optimization
    algorithms, SIAM J. Optim. 32 (2022): DP-NAG and DP-NAG-opt, section 4.1.

    Examples
    --------
    >>> import dpanalysis as dpa
    >>> problem = dpa.Quadratic([0.01, 1.0])
    >>> method = dpa.methods.Nesterov(step_size=1.0, iterations=200, mu=0.01)
    >>> float(problem.value(dpa.minimize(problem, method, w0=[8.0, 8.0]).w)[0]) < 1e-6
    True
    """

    step_size: float
    iterations: int
    mu: float

    def __post_init__(self) -> None:
        check_number("step_size", self.step_size, low=0.0, low_open=True)
        check_number("mu", self.mu, low=0.0, low_open=True)
        if self.mu * self.step_size > 1.0:
            raise ValueError(
                f"step_size must be at most 1/mu = {1.0 / self.mu:g}, got {self.step_size!r}"
            )
        self._check()

    def coefficients(self) -> Coefficients:
        """Return constant coefficients with extrapolation equal to momentum."""
        from ..theory import nesterov_momentum

        beta = float(nesterov_momentum(self.step_size, self.mu))
        return constant_coefficients(self.iterations, self.step_size, beta, beta)

    def error_recursion(self, facts: PublicFacts) -> ErrorRecursion:
        """Return Theorem 4.1, corrected; needs step_size <= 1/L."""
        from ..theory import nesterov_recursion

        check_bounded_curvature(facts, self.mu)
        return nesterov_recursion(self.iterations, self.step_size, self.mu, facts.L)
