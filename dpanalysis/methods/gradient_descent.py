"""Gradient descent with noisy gradients."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._validation import check_number
from ..privacy.oracle import PublicFacts
from .base import Coefficients, Method, Options, constant_coefficients

__all__ = ["GradientDescent"]


@dataclass(frozen=True)
class _Arguments:
    step_size: float
    iterations: int


@dataclass(frozen=True)
class GradientDescent(Options, _Arguments, Method):
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
        See :class:`dpanalysis.methods.base.Options`.

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

    def __post_init__(self) -> None:
        check_number("step_size", self.step_size, low=0.0, low_open=True)
        self._check()

    def coefficients(self) -> Coefficients:
        """Return constant coefficients without momentum."""
        return constant_coefficients(self.iterations, self.step_size)

    def bound_weights(self, iterations: int, facts: PublicFacts) -> tuple[float, np.ndarray]:
        """Return the weights of the guarantee above.

        Raises
        ------
        ValueError
            If mu = 0, or the step size is not below 2/L.
        """
        alpha, mu, L = self.step_size, facts.mu, facts.L
        if mu <= 0.0:
            raise ValueError("the error bound of GradientDescent needs strong convexity, mu > 0")
        if not alpha * L < 2.0:
            raise ValueError(f"the error bound needs step_size < 2/L = {2.0 / L:g}, got {alpha:g}")
        factor = 1.0 - 2.0 * mu * alpha * (1.0 - alpha * L / 2.0)
        powers = factor ** np.arange(iterations, dtype=float)
        return factor**iterations, L * alpha**2 * powers[::-1]
