"""Gradient descent with noisy gradients."""

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

__all__ = ["GradientDescent"]


@dataclass(frozen=True, repr=False)
class GradientDescent(Bounded):
    """Gradient descent, x_{t+1} = x_t - alpha (grad F(x_t) + noise_t).

    Problem: an L-smooth, mu-strongly convex F. Guarantee, for alpha < 2/L and noise of
    conditional mean zero:

        E_{t+1} <= (1 - 2 mu alpha (1 - alpha L / 2)) E_t + (L alpha^2 / 2) E||w_t||^2,

    E_t = E F(x_t) - F*, by the descent lemma and ||grad F||^2 >= 2 mu (F - F*).

    Parameters
    ----------
    step_size : float
        alpha > 0; above 2/L a run warns.
    iterations : int
        T >= 1.
    noise, sampling, mechanism, choose_iterations, clipping
        See :class:`dpanalysis.methods.recursion.Bounded`.

    Raises
    ------
    ValueError
        If an argument is outside its range.

    References
    ----------
    Kuru, Birbil, Gurbuzbalaban, Yildirim, Differentially private accelerated optimization
    algorithms, SIAM J. Optim. 32 (2022): the baseline DP-GD of section 5.

    Examples
    --------
    >>> import dpanalysis as dpa
    >>> problem = dpa.Quadratic([0.5, 1.0])
    >>> method = dpa.methods.GradientDescent(step_size=1.0, iterations=3)
    >>> result = dpa.minimize(problem, method, w0=[8.0, 8.0])
    >>> result.w.round(3).tolist()
    [[1.0, 0.0]]
    """

    step_size: float
    iterations: int

    def __post_init__(self) -> None:
        check_number("step_size", self.step_size, low=0.0, low_open=True)
        self._check()

    def coefficients(self) -> Coefficients:
        """Return constant coefficients without momentum."""
        return constant_coefficients(self.iterations, self.step_size)

    def error_recursion(self, facts: PublicFacts) -> ErrorRecursion:
        """Return the guarantee above."""
        from ..theory import gradient_descent_recursion

        check_bounded_curvature(facts)
        return gradient_descent_recursion(self.iterations, self.step_size, facts.mu, facts.L)
