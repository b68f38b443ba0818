"""What every momentum method shares: a schedule, a state, and one update.

All methods of Kuru et al. (2022) are one recursion,

    y_t     = x_t + gamma_t (x_t - x_{t-1})
    x_{t+1} = x_t + beta_t (x_t - x_{t-1}) - alpha_t (grad F(y_t) + noise_t),

with gamma = beta = 0 for gradient descent, gamma = 0 for the heavy ball (3.1) and
gamma = beta for Nesterov's method (4.1). A method is its coefficients and its bound.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np

from .._validation import (
    check_choice,
    check_finite,
    check_int,
    check_number,
    check_reals,
    warn_caller,
)
from ..clipping import check_clipping
from ..privacy.events import Event
from ..privacy.facts import PublicFacts
from ..privacy.oracle import PrivateOracle
from ..privacy.relations import Budget
from ..privacy.sampling import Sampling, check_sampling
from .base import FULL, Method, Shown, Step
from .schedules import NoiseRequest, choose_horizon, noise_scales, planned_events

if TYPE_CHECKING:
    from ..theory import ErrorRecursion

__all__ = ["Bounded", "Coefficients", "Recursion", "Schedule", "State"]

GivenNoise = str | Sequence[float] | np.ndarray


class Coefficients(NamedTuple):
    """Coefficients of the recursion at each iteration, all of shape (T,).

    ``restart`` says where a stage starts: the momentum is reset (x_{t-1} := x_t) before
    that iteration.
    """

    step_size: np.ndarray
    momentum: np.ndarray
    extrapolation: np.ndarray
    restart: np.ndarray


@dataclass(frozen=True)
class Schedule:
    """Everything fixed before the data are touched.

    Attributes
    ----------
    coefficients : Coefficients
        Of each iteration.
    scales : ndarray of shape (T,) or None
        Laplace scale or Gaussian standard deviation of each iteration; None runs exactly.
    """

    coefficients: Coefficients
    scales: np.ndarray | None

    @property
    def iterations(self) -> int:
        """Number of iterations, after :attr:`Recursion.choose_iterations`."""
        return len(self.coefficients.step_size)

    def __repr__(self) -> str:
        """Show the range of the noise, not T numbers."""
        noise = "no noise"
        if self.scales is not None:
            noise = f"scales {self.scales.min():g} to {self.scales.max():g}"
        return f"Schedule({self.iterations} iterations, {noise})"


@dataclass(frozen=True)
class State:
    """Where a run stands: ``w`` and ``previous`` of shape (R, d) after ``iteration`` steps."""

    w: np.ndarray
    previous: np.ndarray
    iteration: int
    plan: Schedule = field(repr=False)


class Recursion(Shown, Method):
    """A method that is a recursion of noisy gradients; see the concrete classes.

    :meth:`prepare` turns public facts and a budget into the coefficients and the noise of
    every iteration, :meth:`step` asks the oracle for one noisy gradient, and
    :meth:`state_space` gives the same update to the theory.
    """

    together: ClassVar[bool] = True
    iterations: int
    noise: GivenNoise
    mechanism: str
    choose_iterations: float | None

    @abstractmethod
    def coefficients(self) -> Coefficients:
        """Return the coefficients of the planned iterations."""

    @abstractmethod
    def error_recursion(self, facts: PublicFacts) -> ErrorRecursion:
        """Return the method's error bound, one iteration at a time.

        Divides the budget when ``noise="optimal"`` and chooses the horizon.
        """

    def _check(self) -> None:
        check_int("iterations", self.iterations, low=1)
        check_choice("mechanism", self.mechanism, ("laplace", "gaussian"))
        check_clipping(self.clipping)
        check_sampling(self.sampling)
        if self.choose_iterations is not None:
            check_number("choose_iterations", self.choose_iterations, low=0.0, low_open=True)
        if isinstance(self.noise, str):
            check_choice("noise", self.noise, ("uniform", "optimal"))
            return
        scales = check_finite("noise", check_reals("noise", self.noise))
        if scales.shape != (self.iterations,) or scales.min() < 0.0:
            raise ValueError(
                f"noise given as numbers must be {self.iterations} values >= 0, one an "
                f"iteration, got shape {scales.shape} with minimum {scales.min(initial=0.0):g}"
            )
        if self.choose_iterations is not None:
            raise ValueError("choose_iterations needs noise='uniform' or 'optimal', not numbers")
        object.__setattr__(self, "noise", tuple(scales.tolist()))  # hashable, comparable

    def prepare(self, facts: PublicFacts, budget: Budget | None, accountant: str) -> Schedule:
        """Fix coefficients, number of iterations and noise; see :meth:`Method.prepare`."""
        coefficients = self.coefficients()
        self._warn_if_unstable(coefficients, facts)
        if not isinstance(self.noise, str):
            return Schedule(coefficients, np.asarray(self.noise) if np.any(self.noise) else None)
        if budget is None:
            return Schedule(coefficients, None)
        request = NoiseRequest(
            facts=facts,
            budget=budget,
            sampling=self.sampling,
            mechanism=self.mechanism,
            clipping=self.clipping,
            optimal=self.noise == "optimal",
            accountant=accountant,
        )
        iterations, recursion = self.iterations, None
        if request.optimal or self.choose_iterations is not None:
            recursion = self.error_recursion(facts)
            if self.choose_iterations is not None:
                iterations = choose_horizon(request, recursion, self.choose_iterations)
        scales = noise_scales(request, recursion, iterations)
        return Schedule(Coefficients(*(each[:iterations] for each in coefficients)), scales)

    def events(self, facts: PublicFacts, plan: Schedule) -> Sequence[Event]:
        """Return one noisy gradient an iteration; nothing where one of them is exact."""
        if not facts.has_records or plan.scales is None or not np.all(plan.scales > 0.0):
            return ()
        return planned_events(facts, self.sampling, self.mechanism, plan.scales, self.clipping)

    def length(self, plan: Schedule) -> int:
        """Return the number of iterations planned."""
        return plan.iterations

    def run(self, w: np.ndarray, oracle: PrivateOracle, plan: Schedule) -> Iterator[Step]:
        """Make the planned iterations of all replicates from ``w`` (R, d)."""
        state = self.init(w, plan)
        for _ in range(plan.iterations):
            state = self.step(state, oracle)
            yield Step(state.w)

    def _warn_if_unstable(self, coefficients: Coefficients, facts: PublicFacts) -> None:
        # A clipped gradient is bounded: what is left to diverge is the regulariser's.
        name, curvature = ("L", facts.L) if self.clipping is None else ("mu", facts.mu)
        largest = float(coefficients.step_size.max())
        if curvature > 0.0 and largest > 2.0 / curvature > 0.0:  # an infinite L is no bound
            warn_caller(
                f"step_size {largest:g} is above 2/{name} = {2.0 / curvature:g} ({name} = "
                f"{curvature:g} from the public bounds): the method may diverge",
            )

    def with_noise_multiplier(self, noise_multiplier: float, n: int) -> Self:
        """Return this method with Gaussian noise of ``noise_multiplier`` times the clip norm.

        The convention of Xia et al. (2023) and Fang et al. (2023): N(0, (noise_multiplier
        clip_norm)^2) in every coordinate of the SUM of clipped gradients. Divided by the expected
        batch size, that is the standard deviation which ``noise`` takes.

        Parameters
        ----------
        noise_multiplier : float
            In (0, inf).
        n : int
            Public number of records.

        Raises
        ------
        ValueError
            If an argument is outside its range, or the method has no clipping rule or other
            noise than Gaussian.

        Examples
        --------
        >>> import dpanalysis as dpa
        >>> method = dpa.methods.SGD(0.1, 10, dpa.Poisson(0.01), dpa.clipping.Flat(2.0))
        >>> method.with_noise_multiplier(1.5, n=1000).noise[:2]
        (0.3, 0.3)
        """
        multiplier = check_number("noise_multiplier", noise_multiplier, low=0.0, low_open=True)
        if self.clipping is None or self.mechanism != "gaussian":
            raise ValueError(
                "noise_multiplier needs a clipping rule and mechanism='gaussian', got "
                f"clipping={self.clipping!r} and mechanism={self.mechanism!r}"
            )
        std = multiplier * self.clipping.clip_norm / self.sampling.expected_size(n)
        return replace(self, noise=np.full(self.iterations, std))  # type: ignore[type-var]

    def init(self, w0: np.ndarray, plan: Schedule) -> State:
        """Start from ``w0`` of shape (R, d) with x_{-1} = x_0."""
        return State(w0, w0, 0, plan)

    def step(self, state: State, oracle: PrivateOracle) -> State:
        """Make one iteration: one batch, one noisy gradient."""
        alpha, beta, gamma, restart = (each[state.iteration] for each in state.plan.coefficients)
        x = here = ahead = state.w
        if not restart and (beta or gamma):  # what is nought costs nothing: x may be long
            difference = x - state.previous
            here, ahead = x + gamma * difference, x + beta * difference
        after = alpha * self._gradient(here, state, oracle)
        np.subtract(ahead, after, out=after)
        return State(after, x, state.iteration + 1, state.plan)

    def _gradient(self, w: np.ndarray, state: State, oracle: PrivateOracle) -> np.ndarray:
        """Return the noisy gradient at ``w`` on a batch of its own."""
        scales = state.plan.scales
        scale = 0.0 if scales is None else float(scales[state.iteration])
        return oracle.gradient(w, self.sampling, self.mechanism, scale, self.clipping)

    def state_space(self, iteration: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return (A, B, C) of xi_{t+1} = A xi_t + B u_t, y_t = C xi_t, u_t = grad F(y_t) + noise.

        The state is xi_t = (x_t, x_{t-1}); (3.10) of Kuru et al. with the sign of B mended.

        Parameters
        ----------
        iteration : int
            The coefficients may change from one iteration to the next.

        Returns
        -------
        A : ndarray of shape (2, 2)
        B : ndarray of shape (2, 1)
        C : ndarray of shape (1, 2)
        """
        alpha, beta, gamma, restart = (float(each[iteration]) for each in self.coefficients())
        if restart:
            beta = gamma = 0.0
        return (
            np.array([[1.0 + beta, -beta], [1.0, 0.0]]),
            np.array([[-alpha], [0.0]]),
            np.array([[1.0 + gamma, -gamma]]),
        )


@dataclass(frozen=True, repr=False, kw_only=True)
class Bounded(Recursion):
    """A recursion with an error bound; its arguments are given by keyword.

    Attributes
    ----------
    noise : {"uniform", "optimal"} or array_like of shape (iterations,)
        How the budget is divided over the iterations: evenly, or so that the method's
        error bound is least (Proposition 4.2 and beyond). An array gives the Laplace scales
        or Gaussian standard deviations themselves; without a budget the ledger then says
        what they cost.
    sampling : Full, WithoutReplacement, WithReplacement or Poisson
        How the batch of each iteration is drawn.
    mechanism : {"laplace", "gaussian"}
        Law of the noise.
    choose_iterations : float, optional
        A guess E0 of F(x_0) - F*: run the number of iterations T' <= ``iterations`` that
        minimises the error bound (Remark 4.1).
    clipping : object, optional
        Per-sample rule of :mod:`dpanalysis.clipping`, for losses without a bounded gradient.
    """

    noise: GivenNoise = "uniform"
    sampling: Sampling = FULL
    mechanism: str = "laplace"
    choose_iterations: float | None = None
    clipping: Any = None


def check_bounded_curvature(facts: PublicFacts, mu: float | None = None) -> None:
    """Raise ValueError where the problem's public constants leave a method without a bound.

    ``mu`` is the strong convexity that the method was given; that of the problem by default.
    """
    why = "the error bound that noise='optimal' and choose_iterations use"
    if not np.isfinite(facts.L):
        raise ValueError(
            f"{why} needs a finite L, got {facts.L!r}: give the problem a row_bound and a smooth "
            "loss"
        )
    if (facts.mu if mu is None else mu) <= 0.0:
        raise ValueError(
            f"{why} needs strong convexity, got mu = {facts.mu!r}: give the problem a regularizer "
            "such as L2(strength)"
        )


def constant_coefficients(
    iterations: int,
    step_size: float | np.ndarray,
    momentum: float = 0.0,
    extrapolation: float = 0.0,
) -> Coefficients:
    """Return coefficients that do not change, but for step sizes given as an array (T,).

    Each is kept once, however many iterations there are, and cannot be written to.
    """
    each = (step_size, momentum, extrapolation, False)
    return Coefficients(*(np.broadcast_to(value, (iterations,)) for value in each))
