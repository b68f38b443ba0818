"""Momentum methods with a noise schedule fixed in advance, and its calibration to a budget.

All methods of Kuru et al. (2022) are one recursion,

    y_t     = x_t + gamma_t (x_t - x_{t-1})
    x_{t+1} = x_t + beta_t (x_t - x_{t-1}) - alpha_t (grad F(y_t) + noise_t),

with gamma = beta = 0 for gradient descent, gamma = 0 for the heavy ball (3.1) and
gamma = beta for Nesterov's method (4.1). A method consists of its coefficients and its bound.
"""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from .. import privacy
from .._validation import (
    check_choice,
    check_finite,
    check_int,
    check_positive,
    check_reals,
    warn_caller,
)
from ..clipping import check_clipping
from ..privacy.accounting.accountant import spent_without_grid
from ..privacy.accounting.relations import Budget
from ..privacy.accounting.sampling import (
    EpochSampling,
    Full,
    Sampling,
    WithoutReplacement,
    WithReplacement,
    check_sampling,
)
from ..privacy.events import Epoch, Event, Repeated
from ..privacy.facts import NORM_ORDER, PublicFacts, gradient_event, sampled_event
from ..privacy.oracle import Batch, PrivateOracle
from ..theory import ErrorRecursion, allocate_epsilon, horizon_bounds, laplace_scales
from ..theory.allocation import LEAST_IMPORTANCE
from .base import FULL, Method, Step

# Size of the grid of horizons if each one needs a numerical calibration; ratio about 1.2.
CALIBRATED_HORIZONS = 40
# A calibrated schedule is rounded to 64 levels of noise, the largest at most 100 times the least.
# An accountant's time grows with the number of distinct events, and rounding the levels makes the
# noise term of the error bound less than 1% larger.
NOISE_LEVELS, NOISE_RANGE = 64, 100.0


@dataclass(frozen=True)
class NoiseRequest:
    """The inputs, besides the number of iterations, that determine the noise of a run."""

    facts: PublicFacts
    budget: Budget
    sampling: Sampling | EpochSampling
    mechanism: str
    clipping: Any
    optimal: bool
    accountant: str

    @property
    def record_sensitivity(self) -> float:
        """Sensitivity of the sum of gradients in the mechanism's norm."""
        return self.facts.record_sensitivity(NORM_ORDER[self.mechanism], self.clipping)

    @property
    def closed(self) -> bool:
        """Whether a pure privacy loss can be allocated in closed form."""
        other = isinstance(self.sampling, WithReplacement | EpochSampling)
        return self.mechanism == "laplace" and not other

    @property
    def pure(self) -> bool:
        """Whether the budget is pure epsilon and has a closed form."""
        budget = self.budget
        return budget.epsilon is not None and budget.delta == 0.0 and self.closed


def planned_events(
    facts: PublicFacts,
    sampling: Sampling | EpochSampling,
    mechanism: str,
    scales: np.ndarray,
    clipping: Any = None,
) -> list[Event]:
    """Return the events of a run with these ``scales`` (T,); equal consecutive ones are merged."""
    return _events(facts, sampling, mechanism, *_merged(scales), clipping)


def _merged(scales: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return run-length encoded scales: values and counts."""
    starts = np.flatnonzero(np.append(True, scales[1:] != scales[:-1]))
    return scales[starts], np.diff(starts, append=scales.size)


def _events(
    facts: PublicFacts,
    sampling: Sampling | EpochSampling,
    mechanism: str,
    scales: np.ndarray,
    counts: np.ndarray,
    clipping: Any,
) -> list[Event]:
    """Return one event for each scale, repeated by its count; an epoch is one event."""
    events: list[Event] = []
    for place, (scale, count) in enumerate(zip(scales.tolist(), counts.tolist())):
        event = gradient_event(facts, sampling, mechanism, scale, clipping)
        if isinstance(sampling, EpochSampling):
            if count % sampling.batches and place < len(counts) - 1:
                raise ValueError(
                    f"noise must be the same in all {sampling.batches} batches of an epoch, which "
                    f"is charged as a whole, got {count} of {scale:g} in a row"
                )
            event, count = Epoch(sampling, [event]), -(-count // sampling.batches)
        else:
            event = sampled_event(facts, sampling, [event])
        events.append(event if count == 1 else Repeated(event, count))
    return events


def noise_scales(
    request: NoiseRequest, recursion: ErrorRecursion | None, iterations: int
) -> np.ndarray:
    """Allocate the budget to ``iterations``: Laplace scales or Gaussian deviations, (T,).

    A pure budget is allocated in closed form or by the exact dual search of
    :func:`dpanalysis.theory.allocate_epsilon`. For any other budget the schedule is proportional
    to a_t^{-1/4}, which is optimal if the cost of a release is proportional to 1/variance, as for
    zCDP, and the accountant calibrates the factor.
    """
    budget = request.budget
    if request.mechanism == "gaussian" and budget.epsilon is not None and budget.delta == 0.0:
        raise ValueError(
            f"mechanism='gaussian' needs a budget with delta > 0 or in zCDP (rho=), got {budget!r}"
        )
    importance = _importance(request, recursion, iterations)
    if request.pure:
        return _pure_scales(request, importance)
    return _better(request, importance, _calibrated_scales(request, importance))


def _importance(
    request: NoiseRequest, recursion: ErrorRecursion | None, iterations: int
) -> np.ndarray:
    """Return the weight of each iteration's noise variance in the error bound, (T,)."""
    if not request.optimal or recursion is None:
        return np.broadcast_to(1.0, (iterations,))  # without copies
    weights = recursion.prefix(iterations).weights()[1]
    return np.maximum(weights, LEAST_IMPORTANCE * weights.max())


def _better(request: NoiseRequest, importance: np.ndarray, calibrated: np.ndarray) -> np.ndarray:
    """Return the better schedule: pure epsilon, where valid, can be better for few iterations."""
    if not request.closed or request.budget.epsilon is None:
        return calibrated
    if request.accountant not in ("tightest", "pure"):
        return calibrated
    pure = _pure_scales(request, importance)
    with np.errstate(over="ignore"):  # of noise for budgets as small as 1e-200
        return min((pure, calibrated), key=lambda scales: float(importance @ scales**2))


def _pure_scales(request: NoiseRequest, importance: np.ndarray) -> np.ndarray:
    n = request.facts.n
    m = request.sampling.expected_size(n)
    assert request.budget.epsilon is not None
    if request.optimal:
        epsilons = allocate_epsilon(importance, request.budget.epsilon, n, m)
    else:
        epsilons = np.full(len(importance), request.budget.epsilon / len(importance))
    return laplace_scales(epsilons, request.record_sensitivity, n, m)


def _calibrated_scales(request: NoiseRequest, importance: np.ndarray) -> np.ndarray:
    if importance.min() == importance.max():  # avoids arrays of length T
        shape = np.broadcast_to(importance[0] ** -0.25, importance.shape)
    else:
        shape = _levels(importance**-0.25)
    return _multiplier(request, shape, request.accountant) * shape


def _levels(shape: np.ndarray) -> np.ndarray:
    """Round to NOISE_LEVELS values, spaced evenly in the logarithm, over at most NOISE_RANGE."""
    logs = np.log(shape)
    low = logs.min()
    high = min(logs.max(), low + np.log(NOISE_RANGE))
    logs = np.minimum(logs, high)
    steps = np.round((logs - low) / max(high - low, 1e-300) * (NOISE_LEVELS - 1))
    return np.exp(low + (high - low) * steps / (NOISE_LEVELS - 1))


def _multiplier(request: NoiseRequest, shape: np.ndarray, accountant: str) -> float:
    """Return the smallest factor of ``shape`` that fits the budget."""
    facts, sampling, budget = request.facts, request.sampling, request.budget
    unit = request.record_sensitivity / sampling.expected_size(facts.n) / shape.min()
    levels, counts = _merged(shape)

    def make_events(factor: float) -> Sequence[Event]:
        scales = factor * unit * levels
        return _events(facts, sampling, request.mechanism, scales, counts, request.clipping)

    def fit(factor: float) -> bool:
        return spent_without_grid(make_events(factor), budget, accountant) <= budget.limit

    low, high = _bracket(fit)
    bracket = low / 64.0, high  # a privacy loss distribution may need much less noise
    return unit * privacy.calibrate(make_events, budget, bracket, accountant=accountant)


def _bracket(fit: Callable[[float], bool], ratio: float = 4.0) -> tuple[float, float]:
    """Return (low, high) around the smallest multiplier that fits; a tiny low may also fit."""
    high = 1.0
    if fit(high):
        while high > 1e-6 and fit(high / ratio):
            high /= ratio
    else:
        while high < 1e12 and not fit(high):
            high *= ratio
    return high / ratio, high


def choose_horizon(request: NoiseRequest, recursion: ErrorRecursion, initial_gap: float) -> int:
    """Return the T' with the least error bound (Remark 4.1), at most that of ``recursion``."""
    # For a pure budget every T' is tried. Otherwise a grid of horizons is compared, with noise of
    # the same sum of 1/variance as a uniform schedule that fits the budget. This heuristic does not
    # depend on the data; the noise of the chosen horizon is then calibrated exactly.
    facts, variance = request.facts, batch_variance(request)
    if request.pure:
        assert request.budget.epsilon is not None
        bounds = horizon_bounds(
            recursion,
            initial_gap,
            facts.d,
            request.record_sensitivity,
            facts.n,
            request.budget.epsilon,
            m=request.sampling.expected_size(facts.n),
            noise="optimal" if request.optimal else "uniform",
            variance=variance,
        )
        return int(bounds.argmin()) + 1
    grid = np.geomspace(1, len(recursion.factors), CALIBRATED_HORIZONS).round().astype(int)
    accountant = "zcdp" if request.budget.rho is not None else "rdp"

    def bound(iterations: int) -> float:
        a0, a = recursion.prefix(iterations).weights()
        importance = _importance(request, recursion, iterations)
        shape = importance**-0.25
        uniform = _multiplier(request, np.ones(iterations), accountant)
        calibrated = uniform * np.sqrt(np.mean(shape**-2.0)) * shape
        scales = _better(request, importance, calibrated)
        per_coordinate = scales**2 * (2.0 if request.mechanism == "laplace" else 1.0)
        return a0 * initial_gap + 0.5 * float(a @ (facts.d * per_coordinate + variance))

    return min(np.unique(grid).tolist(), key=bound)


def batch_variance(request: NoiseRequest) -> float:
    """Bound E||mean over a batch - mean over all||^2, given the bound G on one gradient."""
    # Without replacement: (3.13) of Kuru et al. with S = 2G; for m independent draws: G^2/m; for a
    # Poisson batch, divided by q n: ((1-q)/q n) G^2.
    facts, sampling = request.facts, request.sampling
    if isinstance(sampling, Full) or facts.n == 1:
        return 0.0
    bound = facts.record_sensitivity(2, request.clipping) / facts.sum_sensitivity(1.0)
    size = sampling.expected_size(facts.n)
    if isinstance(sampling, WithReplacement):
        return bound**2 / size
    rate = size / facts.n
    exact = isinstance(sampling, WithoutReplacement)
    return bound**2 / size * (1.0 - rate) * (facts.n / (facts.n - 1) if exact else 1.0)


# The recursion


GivenNoise = str | Sequence[float] | np.ndarray


class Coefficients(NamedTuple):
    """Coefficients of the recursion at each iteration, all of shape (T,)."""

    step_size: np.ndarray
    momentum: np.ndarray
    extrapolation: np.ndarray
    restart: np.ndarray  # the first iteration of a stage, before which x_{t-1} := x_t


@dataclass(frozen=True)
class Schedule:
    """Coefficients and noise of every iteration, fixed before the data are accessed."""

    coefficients: Coefficients
    scales: np.ndarray | None  # (T,): Laplace scales, Gaussian deviations; None for exact gradients

    @property
    def iterations(self) -> int:
        """Number of iterations, after :attr:`Recursion.choose_iterations`."""
        return len(self.coefficients.step_size)

    def __repr__(self) -> str:
        noise = "no noise"
        if self.scales is not None:
            noise = f"scales {self.scales.min():g} to {self.scales.max():g}"
        return f"Schedule({self.iterations} iterations, {noise})"


@dataclass(frozen=True)
class State:
    """Iterates ``w`` and ``previous`` of shape (R, d) after ``iteration`` steps."""

    w: np.ndarray
    previous: np.ndarray
    iteration: int
    plan: Schedule = field(repr=False)


def _released(state: State) -> Step:
    """Return the step of a state, all of which is computed from noisy gradients."""
    known = ("w", "iteration", "plan")
    return Step(state.w, state={k: each for k, each in vars(state).items() if k not in known})


class Recursion(Method):
    """Base class of recursions with noisy gradients.

    :meth:`prepare` computes the coefficients and the noise of every iteration from public facts
    and a budget, :meth:`step` queries the oracle for one noisy gradient, and :meth:`state_space`
    is the same update as a linear system.
    """

    together: ClassVar[bool] = True
    #: Whether batches may be those of an epoch, which is charged as a whole.
    epochs: ClassVar[bool] = False
    iterations: int
    noise: GivenNoise
    mechanism: str
    choose_iterations: float | None

    @abstractmethod
    def coefficients(self) -> Coefficients:
        """Return the coefficients of the planned iterations."""

    @abstractmethod
    def error_recursion(self, facts: PublicFacts) -> ErrorRecursion:
        """Return the method's error bound as a recursion.

        It determines the allocation if ``noise="optimal"``, and the horizon.
        """

    def _check(self) -> None:
        check_int("iterations", self.iterations, low=1)
        check_choice("mechanism", self.mechanism, ("laplace", "gaussian"))
        check_clipping(self.clipping)
        check_sampling(self.sampling, epochs=self.epochs)
        if self.choose_iterations is not None:
            check_positive("choose_iterations", self.choose_iterations)
        if isinstance(self.noise, str):
            check_choice("noise", self.noise, ("uniform", "optimal"))
            return
        scales = check_finite("noise", check_reals("noise", self.noise))
        if scales.shape != (self.iterations,) or scales.min() < 0.0:
            raise ValueError(
                f"noise given as numbers must be {self.iterations} values >= 0, one per "
                f"iteration, got shape {scales.shape} with minimum {scales.min(initial=np.inf):g}"
            )
        if self.choose_iterations is not None:
            raise ValueError("choose_iterations needs noise='uniform' or 'optimal', not numbers")
        object.__setattr__(self, "noise", tuple(scales.tolist()))  # hashable, comparable

    def prepare(self, facts: PublicFacts, budget: Budget | None, accountant: str) -> Schedule:
        """Return coefficients and noise of all iterations; see :meth:`Method.prepare`."""
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
        """Return the events of one noisy gradient per iteration; empty if one of them is exact."""
        if not facts.has_records or plan.scales is None or not np.all(plan.scales > 0.0):
            return ()
        return planned_events(facts, self.sampling, self.mechanism, plan.scales, self.clipping)

    def length(self, plan: Schedule) -> int:
        """Return the planned number of iterations."""
        return plan.iterations

    def run(self, w: np.ndarray, oracle: PrivateOracle, plan: Schedule) -> Iterator[Step]:
        """Yield the iterates of all replicates from ``w`` (R, d)."""
        return self.resume(Step(w), 0, 0, oracle, plan)

    def resume(
        self, step: Step, made: int, lost: int, oracle: PrivateOracle, plan: Schedule
    ) -> Iterator[Step]:
        """Yield the iterates after ``step``; lost iterations leave them unchanged."""
        state = replace(self.init(step.w, plan), iteration=made, **step.state)
        epoch = self.sampling.batches if isinstance(self.sampling, EpochSampling) else 1
        charged = min((-(-made // epoch) + lost) * epoch, plan.iterations)
        while state.iteration < charged:
            state = replace(state, previous=state.w, iteration=state.iteration + 1)
            yield _released(state)
        if isinstance(self.sampling, EpochSampling):
            yield from self._run_epochs(state, oracle, self.sampling)
            return
        while state.iteration < plan.iterations:
            state = self.step(state, oracle)
            yield _released(state)

    def _run_epochs(
        self, state: State, oracle: PrivateOracle, sampling: EpochSampling
    ) -> Iterator[Step]:
        """Yield the iterates of epochs, each charged as a whole; the last may end early."""
        while state.iteration < state.plan.iterations:
            scale = self._scale(state)
            event = oracle.gradient_event(sampling, self.mechanism, scale, self.clipping)
            left = state.plan.iterations - state.iteration
            with oracle.epoch(sampling, [event]) as epoch:
                for batch in itertools.islice(epoch, left):
                    with batch:
                        state = self.step(state, batch)
                    yield _released(state)

    def _warn_if_unstable(self, coefficients: Coefficients, facts: PublicFacts) -> None:
        # Clipped gradients are bounded: only the regularizer's can diverge.
        name, curvature = ("L", facts.L) if self.clipping is None else ("mu", facts.mu)
        largest = float(coefficients.step_size.max())
        if curvature > 0.0 and largest > 2.0 / curvature > 0.0:  # an infinite L is no bound
            warn_caller(
                f"step_size {largest:g} is above 2/{name} = {2.0 / curvature:g} ({name} = "
                f"{curvature:g} from the public bounds): the method may diverge"
            )

    def with_noise_multiplier(self, noise_multiplier: float, n: int) -> Self:
        """Return this method with Gaussian noise of ``noise_multiplier`` times the clip norm.

        For Gaussian noise and a clipping rule, in the convention of Xia et al. (2023) and Fang et
        al. (2023): N(0, (noise_multiplier clip_norm)^2) in every coordinate of the SUM of clipped
        gradients; ``noise`` is this standard deviation over the expected batch size.

        Parameters
        ----------
        noise_multiplier : float
            In (0, inf).
        n : int
            Public number of records, at least 1.

        Examples
        --------
        >>> import dpanalysis as dpa
        >>> method = dpa.methods.SGD(0.1, 10, dpa.Poisson(0.01), dpa.clipping.Flat(2.0))
        >>> method.with_noise_multiplier(1.5, n=1000).noise[:2]
        (0.3, 0.3)
        """
        multiplier = check_positive("noise_multiplier", noise_multiplier)
        n = check_int("n", n, low=1)
        if self.clipping is None or self.mechanism != "gaussian":
            raise ValueError(
                "noise_multiplier needs a clipping rule and mechanism='gaussian', got "
                f"clipping={self.clipping!r} and mechanism={self.mechanism!r}"
            )
        std = multiplier * float(self.clipping.clip_norm) / self.sampling.expected_size(n)
        return replace(self, noise=np.full(self.iterations, std))  # type: ignore[type-var]

    def init(self, w0: np.ndarray, plan: Schedule) -> State:
        """Return the state at ``w0`` of shape (R, d) with x_{-1} = x_0."""
        return State(w0, w0, 0, plan)

    def step(self, state: State, oracle: PrivateOracle | Batch) -> State:
        """Return the state after one iteration: one batch, one noisy gradient.

        The batch is drawn from the oracle here, or it is one of an epoch that was charged.
        """
        t, (step_sizes, betas, gammas, restarts) = state.iteration, state.plan.coefficients
        alpha, beta, gamma, restart = step_sizes[t], betas[t], gammas[t], restarts[t]
        x = y = ahead = state.w
        if not restart and (beta or gamma):  # no temporary arrays without momentum
            difference = x - state.previous
            y, ahead = x + gamma * difference, x + beta * difference
        after = alpha * self._gradient(y, state, oracle)
        np.subtract(ahead, after, out=after)
        return State(after, x, state.iteration + 1, state.plan)

    def _scale(self, state: State) -> float:
        """Return the noise of the next iteration."""
        scales = state.plan.scales
        return 0.0 if scales is None else float(scales[state.iteration])

    def _gradient(self, w: np.ndarray, state: State, oracle: PrivateOracle | Batch) -> np.ndarray:
        """Return the noisy gradient at ``w`` on a new batch."""
        scale = self._scale(state)
        if isinstance(oracle, Batch):
            return oracle.gradient(w, self.mechanism, scale, self.clipping)
        return oracle.gradient(w, self.sampling, self.mechanism, scale, self.clipping)

    def state_space(self, iteration: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return (A, B, C) of xi_{t+1} = A xi_t + B u_t, y_t = C xi_t, u_t = grad F(y_t) + noise.

        The state is xi_t = (x_t, x_{t-1}); (3.10) of Kuru et al. with the sign of B corrected.

        Parameters
        ----------
        iteration : int
            Iteration t, on which the coefficients may depend.

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
class WithErrorBound(Recursion):
    """A recursion with an error bound; its arguments are keyword-only.

    Attributes
    ----------
    noise : {"uniform", "optimal"} or array_like of shape (iterations,)
        Allocation of the budget to the iterations: uniform, or minimizing the method's error
        bound (Proposition 4.2 and beyond). An array gives the Laplace scales or Gaussian standard
        deviations; without a budget the ledger then records their cost. Noise is fixed in advance,
        for a sensitivity that bounds S_1(x_t) of (3.4) at every iterate (Assumption 3.2).
    sampling : Full, WithoutReplacement, WithReplacement or Poisson
        Sampling of the batch of each iteration.
    mechanism : {"laplace", "gaussian"}
        Distribution of the noise.
    choose_iterations : float, optional
        A guess E0 of F(x_0) - F*: run the number of iterations T' <= ``iterations`` that
        minimizes the error bound (Remark 4.1).
    clipping : object, optional
        Per-sample rule of :mod:`dpanalysis.clipping`, for losses with unbounded gradients.
    """

    noise: GivenNoise = "uniform"
    sampling: Sampling = FULL
    mechanism: str = "laplace"
    choose_iterations: float | None = None
    clipping: Any = None


def check_bounded_curvature(facts: PublicFacts, mu: float | None = None) -> None:
    """Raise ValueError unless L is finite and 0 < mu <= L; warn if mu is above the problem's."""
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
    if mu is not None and mu > facts.L:
        raise ValueError(f"mu must be at most the problem's L = {facts.L:g}, got {mu!r}, for {why}")
    if mu is not None and 0.0 < facts.mu < mu * (1.0 - 1e-9):
        warn_caller(
            f"mu {mu:g} is above the problem's public mu = {facts.mu:g}: {why} holds only if the "
            "objective is so strongly convex, and the noise may be far from the best otherwise"
        )


def constant_coefficients(
    iterations: int,
    step_size: float | np.ndarray,
    momentum: float = 0.0,
    extrapolation: float = 0.0,
) -> Coefficients:
    """Return constant coefficients without copies; the step sizes may be an array (T,)."""
    each = (step_size, momentum, extrapolation, False)
    return Coefficients(*(np.broadcast_to(value, (iterations,)) for value in each))
