"""Noisy gradient descent, heavy ball, Nesterov and multistage Nesterov methods.

Kuru, Birbil, Gurbuzbalaban, Yildirim, Differentially private accelerated optimization algorithms,
SIAM J. Optim. 32 (2022).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from .. import theory
from .._validation import check_int, check_number, check_positive
from ..privacy.facts import PublicFacts
from ..theory import Certificate, ErrorRecursion
from .planned import Coefficients, WithErrorBound, check_bounded_curvature, constant_coefficients


@dataclass(frozen=True, repr=False)
class GradientDescent(WithErrorBound):
    """Gradient descent, x_{t+1} = x_t - alpha (grad F(x_t) + noise_t).

    Problem: L-smooth, mu-strongly convex F. Guarantee for alpha < 2/L, noise of conditional mean 0:

        E_{t+1} <= (1 - 2 mu alpha (1 - alpha L / 2)) E_t + (L alpha^2 / 2) E||noise_t||^2,

    E_t = E F(x_t) - F*, by the descent lemma and ||grad F||^2 >= 2 mu (F - F*).

    Parameters
    ----------
    step_size : float
        alpha > 0; above 2/L a run warns.
    iterations : int
        T >= 1.
    noise, sampling, mechanism, choose_iterations, clipping
        See :class:`dpanalysis.methods.planned.WithErrorBound`.

    References
    ----------
    Kuru et al. (2022): the baseline DP-GD of section 5.

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
        super().__post_init__()
        check_positive("step_size", self.step_size)
        self._check()

    def coefficients(self) -> Coefficients:
        """Return constant coefficients without momentum."""
        return constant_coefficients(self.iterations, self.step_size)

    def error_recursion(self, facts: PublicFacts) -> ErrorRecursion:
        """Return the guarantee above."""
        check_bounded_curvature(facts)
        return theory.gradient_descent_recursion(self.iterations, self.step_size, facts.mu, facts.L)


@dataclass(frozen=True, repr=False)
class HeavyBall(WithErrorBound):
    """Heavy ball, x_{t+1} = x_t - alpha (grad F(x_t) + noise_t) + beta (x_t - x_{t-1}).

    Problem: an L-smooth, mu-strongly convex F. Guarantee: Proposition 3.4, corrected; with
    a certificate (rate, P, c) of :func:`dpanalysis.theory.heavy_ball_certificate`,

        E F(x_T) - F* <= [rate^{2T} V_0 + sum_t rate^{2(T-t)} alpha^2 (P11 + c L/2) s_t^2] / D

    where ``D = c + 2 |P| / (L P22)`` and ``s_t^2 = E||noise_t||^2``.

    Parameters
    ----------
    step_size : float
        alpha > 0; above 2/L a run warns.
    momentum : float
        beta in [0, 1).
    iterations : int
        T >= 1.
    noise, sampling, mechanism, choose_iterations, clipping
        See :class:`dpanalysis.methods.planned.WithErrorBound`. ``noise="optimal"`` and
        ``choose_iterations`` require a certificate.

    Raises
    ------
    CertificateNotFound
        When the bound is used and no certificate exists.

    References
    ----------
    Kuru et al. (2022), (3.1): DP-SHB.

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
        super().__post_init__()
        check_positive("step_size", self.step_size)
        check_number("momentum", self.momentum, low=0.0, high=1.0, high_open=True)
        self._check()

    def coefficients(self) -> Coefficients:
        """Return constant coefficients with momentum and no extrapolation."""
        return constant_coefficients(self.iterations, self.step_size, self.momentum)

    def error_recursion(self, facts: PublicFacts) -> ErrorRecursion:
        """Return the recursion proved by the certificate with the lowest noise floor."""
        check_bounded_curvature(facts)
        numbers = self.step_size, self.momentum, facts.mu, facts.L
        certificate = _least_noise(*map(float, numbers))  # 0-d arrays are not hashable
        return theory.heavy_ball_recursion(self.iterations, certificate)


@lru_cache(maxsize=16)  # called again for the plan and for every horizon that is compared
def _least_noise(step_size: float, momentum: float, mu: float, L: float) -> Certificate:
    """Return the certificate with the lowest noise floor."""
    return theory.heavy_ball_certificate(step_size, momentum, mu, L, objective="noise")


@dataclass(frozen=True, repr=False)
class Nesterov(WithErrorBound):
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
        Strong convexity constant for the momentum, > 0. The error bound behind ``noise="optimal"``
        and ``choose_iterations`` holds if the objective is mu-strongly convex: above the problem's
        public ``mu`` that is your statement, and above a positive one the run warns.
    noise, sampling, mechanism, choose_iterations, clipping
        See :class:`dpanalysis.methods.planned.WithErrorBound`.

    References
    ----------
    Kuru et al. (2022), section 4.1: DP-NAG and DP-NAG-opt.

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
        super().__post_init__()
        check_positive("step_size", self.step_size)
        check_positive("mu", self.mu)
        if self.mu * self.step_size > 1.0:
            raise ValueError(
                f"step_size must be at most 1/mu = {1.0 / self.mu:g}, got {self.step_size!r}"
            )
        self._check()

    def coefficients(self) -> Coefficients:
        """Return constant coefficients with extrapolation equal to momentum."""
        beta = float(theory.nesterov_momentum(self.step_size, self.mu))
        return constant_coefficients(self.iterations, self.step_size, beta, beta)

    def error_recursion(self, facts: PublicFacts) -> ErrorRecursion:
        """Return Theorem 4.1, corrected; needs step_size <= 1/L."""
        check_bounded_curvature(facts, self.mu)
        return theory.nesterov_recursion(self.iterations, self.step_size, self.mu, facts.L)


@dataclass(frozen=True, repr=False)
class MultistageNesterov(WithErrorBound):
    """Nesterov's method in stages, (4.7).

    Each stage from the third on halves sqrt(alpha) and doubles the length. The momentum is reset
    at the start of a stage, as in MASG: (4.7) does not say so, but Theorem 4.3 needs it (errata
    001-15). Problem: an L-smooth, mu-strongly convex F. Guarantee: Theorem 4.3, corrected, with
    the weights of :func:`dpanalysis.theory.multistage_weights`.

    Parameters
    ----------
    iterations : int
        T >= 1; the last stage ends there.
    mu, L : float
        Strong convexity and smoothness constants for the schedule, 0 < mu <= L; mu also for the
        error bound, as in :class:`Nesterov`.
    p : float
        p >= 1 of (4.7): longer stages for larger p.
    scale : float
        Factor c in (0, 1] of every step size.
    first_stage : int, optional
        n_1 >= 1 of (4.7), which leaves it open: by default that of
        :func:`dpanalysis.theory.multistage_schedule`.
    noise, sampling, mechanism, choose_iterations, clipping
        See :class:`dpanalysis.methods.planned.WithErrorBound`.

    References
    ----------
    Kuru et al. (2022), section 4.2: DP-MASG and DP-MASG-opt. Aybat, Fallah, Gurbuzbalaban,
    Ozdaglar, A universally optimal multistage accelerated stochastic gradient method, NeurIPS
    2019.

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
    first_stage: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("mu", self.mu)
        check_number("L", self.L, low=self.mu)
        check_number("p", self.p, low=1.0)
        check_number("scale", self.scale, low=0.0, low_open=True, high=1.0)
        if self.first_stage is not None:
            check_int("first_stage", self.first_stage, low=1)
        self._check()

    def _schedule(self) -> tuple[np.ndarray, np.ndarray]:
        return theory.multistage_schedule(
            self.iterations, self.mu, self.L, self.p, self.first_stage, self.scale
        )

    def coefficients(self) -> Coefficients:
        """Return the coefficients of (4.7), restarting where the stage changes."""
        step_sizes, stages = self._schedule()
        beta = np.asarray(theory.nesterov_momentum(step_sizes, self.mu))
        restart = np.diff(stages, prepend=stages[0]) > 0
        return Coefficients(step_sizes, beta, beta, restart)

    def error_recursion(self, facts: PublicFacts) -> ErrorRecursion:
        """Return Theorem 4.3, corrected: each stage's start doubles the error."""
        check_bounded_curvature(facts, self.mu)
        return theory.multistage_recursion(*self._schedule(), self.mu, max(self.L, facts.L))
