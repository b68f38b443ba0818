"""Noisy gradient descent with private step size selection: DP-BLSGD, DP-BLGD and DP-AGD.

Chen and Lee (2020), Algorithms 1 to 3, and their baseline by Lee and Kifer (2018).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, astuple, dataclass, replace
from typing import Any, ClassVar

import numpy as np

from .._validation import check_choice, check_fraction, check_int, check_number, check_positive
from ..clipping import Flat
from ..privacy.accounting.relations import Budget
from ..privacy.accounting.sampling import Sampling, check_sampling
from ..privacy.events import Event
from ..privacy.facts import PublicFacts, gradient_event, sampled_event
from ..privacy.oracle import Batch, PrivateOracle
from ..privacy.queries import FirstDecrease, NoisyMin, Query, Ray, decrease_sensitivity
from .base import AdaptiveMethod, Step, check_gaussian_budget, require_records


@dataclass(frozen=True)
class AttemptBudget:
    """Costs (before amplification) and clipping bounds of one attempt to find a step."""

    rho: float  # zCDP cost of one gradient; infinite if exact
    epsilon: float  # pure cost of one search; infinite if exact
    clip_norm: float
    clip_loss: float

    @property
    def exact(self) -> bool:
        """Whether there is no noise, so that repeated queries have the same answer."""
        return math.isinf(self.rho)


@dataclass(frozen=True, repr=False, kw_only=True)
class GradientSearch(AdaptiveMethod):
    """A method that releases noisy clipped gradients and step sizes along them."""

    step_size: float
    iterations: int = 10_000
    clip_norm: float = 3.0
    clip_loss: float = 1.0
    rho: float | None = None
    growth: float
    memory: int = 10
    headroom: float
    needs: ClassVar[tuple[str, ...]] = ("line_losses",)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("step_size", "clip_norm", "clip_loss"):
            check_positive(name, getattr(self, name))
        for name in ("iterations", "memory"):
            check_int(name, getattr(self, name), low=1)
        if self.rho is not None:
            check_positive("rho", self.rho)
        check_number("growth", self.growth, low=0.0)
        check_number("headroom", self.headroom, low=1.0, low_open=True)

    @abstractmethod
    def _first_costs(self, total: float) -> tuple[float, float]:
        """Return the costs of the first gradient (zCDP) and search (pure), given total epsilon."""

    @abstractmethod
    def _ray(self, w: np.ndarray, gradient: np.ndarray, max_step: float) -> Ray:
        """Return the candidate points from ``w``, with step sizes up to ``max_step``."""

    @abstractmethod
    def _query(self, ray: Ray, facts: PublicFacts, attempt: AttemptBudget) -> Query:
        """Return the query for a step size."""

    def prepare(self, facts: PublicFacts, budget: Budget | None, accountant: str) -> AttemptBudget:
        """Return the first attempt's budget; without a budget all answers are exact."""
        require_records(facts, f"{type(self).__name__} clips the gradient and the loss of each")
        rho = epsilon = math.inf
        if budget is not None:
            check_gaussian_budget(budget)
            total = budget.limit if budget.rho is None else math.sqrt(2.0 * budget.rho)
            rho, epsilon = self._first_costs(total)
        return AttemptBudget(rho, epsilon, self.clip_norm, self.clip_loss)

    def iteration(self, facts: PublicFacts, plan: AttemptBudget) -> list[Event]:
        """Return the event of one attempt on one batch."""
        asked = [event for event in self._attempt_events(facts, plan) if event is not None]
        return [sampled_event(facts, self.sampling, asked)]

    def _attempt_events(self, facts: PublicFacts, attempt: AttemptBudget) -> list[Event | None]:
        """Return the events of a gradient and a search along it, each None if exact."""
        if attempt.exact:
            return [None, None]
        rule, std = self._noise(facts, attempt)
        zero = np.zeros(facts.d)
        query = self._query(self._ray(zero, zero, 1.0), facts, attempt)
        return [
            gradient_event(facts, self.sampling, "gaussian", std, rule),
            query.event(facts, self.sampling),
        ]

    def _noise(self, facts: PublicFacts, attempt: AttemptBudget) -> tuple[Flat, float]:
        """Return the clipping rule and the noise of a mean gradient, 0 if it is exact."""
        rule = Flat(attempt.clip_norm)
        sensitivity = facts.gradient_sensitivity(self.sampling, 2, rule)
        return rule, sensitivity / math.sqrt(2.0 * attempt.rho)

    def _gradient(
        self, batch: Batch, w: np.ndarray, facts: PublicFacts, attempt: AttemptBudget
    ) -> np.ndarray:
        rule, std = self._noise(facts, attempt)
        return batch.gradient(w, "gaussian", std, rule)

    def _new_max_step(self, chosen: Sequence[float], max_step: float) -> float:
        """Return the largest step size, given those ``chosen`` in :attr:`memory` iterations."""
        return min(self.headroom * max(chosen), max_step)

    def run(self, w: np.ndarray, oracle: PrivateOracle, plan: AttemptBudget) -> Iterator[Step]:
        """Yield the iterates until the budget does not cover another attempt."""
        return self.resume(Step(w), 0, 0, oracle, plan)

    def _restored(
        self, state: Mapping[str, np.ndarray], plan: AttemptBudget
    ) -> tuple[AttemptBudget, float, list[float]]:
        """Return the next attempt, the largest step and those chosen; see :func:`_saved`."""
        if not state:
            return plan, self.step_size, []
        attempt = AttemptBudget(*np.asarray(state["attempt"]).tolist())
        return attempt, float(state["max_step"]), np.asarray(state["chosen"]).tolist()


def _saved(attempt: AttemptBudget, max_step: float, chosen: Sequence[float]) -> dict[str, Any]:
    """Return the state of a search, which is a function of its answers."""
    return {"attempt": astuple(attempt), "max_step": max_step, "chosen": tuple(chosen)}


@dataclass(frozen=True, repr=False, kw_only=True)
class LineSearch(GradientSearch):
    """Line search by AboveThreshold for the first step size with a noisy Armijo decrease."""

    step_size: float = 2.0
    sufficient_decrease: float = 0.5
    backtrack: float = 0.8
    max_queries: int = 20
    noise: str = "laplace"
    epsilon: float | None = None
    growth: float = 0.3
    headroom: float = 1.2
    query: str = "loss_clip"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("sufficient_decrease", "backtrack"):
            check_fraction(name, getattr(self, name))
        check_int("max_queries", self.max_queries, low=1)
        check_choice("noise", self.noise, ("laplace", "gaussian"))
        check_choice("query", self.query, ("loss_clip", "difference_clip"))
        if self.epsilon is not None:
            check_positive("epsilon", self.epsilon)

    def _first_costs(self, total: float) -> tuple[float, float]:
        each = total / 100.0  # Chen and Lee (2020), 5.4
        return self.rho or 0.5 * each**2, self.epsilon or each

    def _ray(self, w: np.ndarray, gradient: np.ndarray, max_step: float) -> Ray:
        return Ray(w, gradient, max_step * self.backtrack ** np.arange(self.max_queries))

    def _query(self, ray: Ray, facts: PublicFacts, attempt: AttemptBudget) -> FirstDecrease:
        unit = decrease_sensitivity(facts, self.sampling, attempt.clip_loss)
        threshold, query = (unit * scale for scale in _search_scales(self.noise, attempt.epsilon))
        size = float(ray.direction @ ray.direction)
        needed = self.sufficient_decrease * ray.step_sizes * size
        clip, noise = attempt.clip_loss, self.noise
        return FirstDecrease(ray, needed, clip, noise, threshold, query, self.query)


def _search_scales(noise: str, epsilon: float) -> tuple[float, float]:
    """Return the scales of threshold and queries (Chen and Lee 2020, Algorithm 1, line 3)."""
    if noise == "laplace":
        return 2.0 / epsilon, 4.0 / epsilon
    rho = 0.5 * epsilon**2
    return math.sqrt(1.5 / rho), math.sqrt(3.0 / rho)


@dataclass(frozen=True, repr=False, kw_only=True)
class Refinement(GradientSearch):
    """Full-batch descent that refines a noisy gradient until the search finds a step."""

    # If no step is found, the gradient's budget rho is multiplied by 1 + growth from then on, and
    # the increase is spent on another measurement at the same point. Their mean, weighted by
    # inverse variance, has the variance of one measurement at the new budget.

    released: ClassVar[tuple[str, ...]] = (
        *AdaptiveMethod.released,
        "step sizes",
        "noise of every attempt",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("growth", self.growth, low=1e-9)  # else the increase may be lost in rounding

    def resume(
        self, step: Step, made: int, lost: int, oracle: PrivateOracle, plan: AttemptBudget
    ) -> Iterator[Step]:
        """Yield the iterates until the budget does not cover a gradient and a search."""
        w, facts = step.w, oracle.facts
        oracle.check_clipping(Flat(plan.clip_norm))
        attempt, max_step, chosen = self._restored(step.state, plan)
        for count in range(made + 1, self.iterations + 1):
            gradient, spent, size = np.zeros_like(w), 0.0, 0.0
            while size == 0.0:
                increase = replace(attempt, rho=attempt.rho - spent)
                asked = self._attempt_events(facts, increase)
                if not oracle.can_ask(self.sampling, *asked):
                    return
                share = increase.rho / attempt.rho if spent else 1.0
                with oracle.batch(self.sampling, asked) as batch:
                    measured = self._gradient(batch, w, facts, increase)
                    gradient = gradient + share * (measured - gradient)
                    ray = self._ray(w, gradient, max_step)
                    answer = batch.ask(self._query(ray, facts, attempt))
                size = 0.0 if answer is None else float(ray.step_sizes[answer])
                if size == 0.0:
                    if attempt.exact:
                        return  # the answers would be the same
                    spent = attempt.rho
                    attempt = replace(attempt, rho=(1.0 + self.growth) * spent)
            w = w - size * ray.direction
            chosen.append(size)
            if count % self.memory == 0:
                max_step, chosen = self._new_max_step(chosen, max_step), []
            released = {"step_size": size, "rho": attempt.rho}
            yield Step(w, released, _saved(attempt, max_step, chosen))


@dataclass(frozen=True, repr=False)
class LineSearchSGD(LineSearch):
    r"""DP-BLSGD: stochastic gradient descent with a private backtracking line search.

    On each batch it releases a noisy clipped gradient g, and by AboveThreshold the first step
    size of :math:`\eta_0, \beta\eta_0, \beta^2\eta_0, \dots` with a noisy Armijo decrease

    .. math:: F_B(w) - F_B(w - \eta g) \ge \alpha \eta \lVert g \rVert^2.

    If none is found, a second gradient at w is released on a new batch. If the angle between the
    two is large, the gradient is too noisy and its budget grows; if it is small, the budget of the
    line search grows. The next search is along their mean.

    Parameters
    ----------
    sampling : Poisson, WithoutReplacement or Full
        Sampling of each batch; the paper uses ``Poisson(0.1)``.
    step_size : float
        eta_0 > 0, the first step size tried.
    iterations : int
        Largest number of iterations; with a budget the filter usually ends the run earlier.
    clip_norm, clip_loss : float
        C_grad and C_obj, in (0, inf).
    sufficient_decrease : float
        alpha in (0, 1).
    backtrack : float
        beta in (0, 1).
    max_queries : int
        Step sizes tried in one search, at least 1.
    noise : {"laplace", "gaussian"}
        Noise of the line search.
    rho, epsilon : float, optional
        Cost of the first gradient (zCDP) and of the first line search (pure, by the paper's
        Theorem 1; (epsilon, 0) becomes epsilon^2/2-zCDP with Gaussian noise), before
        amplification. By default those of the paper: e = budget.epsilon/100 for the line
        search and e^2/2 for the gradient. Without a budget there is no noise, and the run
        ends with the first search that finds no step.
    growth : float
        xi >= 0: budgets grow by the factor 1 + xi.
    adapt : {"angle", "always", "never"}
        Increase the budget that the angle indicates, both budgets, or neither.
    angle_decay, angle_max, angle_min : float
        psi in (0, 1), phi_max > 1, phi_min in (0, 1). The moving average of the angles between
        consecutive gradients has decay psi. An angle above phi_max times the average, or above
        pi/2, is large; an angle below phi_min times the average is small.
    memory, headroom : int, float
        tau >= 1 and varsigma > 1: every tau iterations, the first step size tried becomes
        varsigma times the largest one chosen in them, if that is less.
    clip_decay : float
        zeta in [0, 1): both clipping bounds are multiplied by 1 - zeta in an iteration in which
        rho grows. .05 is DP-BLSGD-AC.
    fresh_batch : bool
        Draw a separate batch for the search: gradient and search are then amplified separately.
    smallest_step : bool
        If none is found, take the next smaller step size instead of measuring again, as the
        paper does for networks.
    query : {"loss_clip", "difference_clip"}
        What is clipped in the line search, see :class:`dpanalysis.privacy.queries.FirstDecrease`.

    Notes
    -----
    Differences from the paper, whose accounting is not proved: gradient and search on one batch
    are composed and then amplified together (errata 002-4, 002-5); the second search uses the
    batch of the second gradient. Sums are divided by the expected batch size (002-6), and the
    public penalty is added to them after clipping. The filter has one Renyi order, and each batch
    is charged to it before it is drawn (002-7, 002-8): a budget that grows because of a gradient
    does so from the next batch on.

    The paper does not give eta_0 and the number of queries. The defaults are for row norms of 1
    to 3: on Adult, 20 queries from eta_0 = 2 do as well as more, which at small budgets only find
    ever shorter steps by chance; from eta_0 = 4, 20 may end above the best late step sizes.

    References
    ----------
    Chen, Lee, Stochastic adaptive line search for differentially private optimization, 2020.

    Examples
    --------
    >>> import numpy as np
    >>> import dpanalysis as dpa
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(5000, 3))
    >>> problem = dpa.ERM(X, np.sign(X @ [1.0, -2.0, 0.5]), dpa.losses.Logistic())
    >>> method = dpa.methods.LineSearchSGD(dpa.Poisson(0.1), rho=0.01, epsilon=0.1, step_size=8.0)
    >>> budget = dpa.Budget(1.0, delta=1e-6, relation="add_or_remove_one")
    >>> result = dpa.minimize(problem, method, budget, rng=0)
    >>> result.epsilon(), bool(problem.accuracy(result.w)[0] > 0.9)
    (1.0, True)
    """

    sampling: Sampling
    _: KW_ONLY
    adapt: str = "angle"
    angle_decay: float = 0.8
    angle_max: float = 1.1
    angle_min: float = 0.5
    clip_decay: float = 0.0
    fresh_batch: bool = False
    smallest_step: bool = False

    released: ClassVar[tuple[str, ...]] = (
        *AdaptiveMethod.released,
        "step sizes",
        "noise and clips of every attempt",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sampling(self.sampling)
        for name in ("angle_decay", "angle_min"):
            check_fraction(name, getattr(self, name))
        check_number("angle_max", self.angle_max, low=1.0, low_open=True)
        check_number("clip_decay", self.clip_decay, low=0.0, high=1.0, high_open=True)
        check_choice("adapt", self.adapt, ("angle", "always", "never"))

    def iteration(self, facts: PublicFacts, plan: AttemptBudget) -> list[Event]:
        """Return the events of one attempt on one batch, or on two."""
        asked = [event for event in self._attempt_events(facts, plan) if event is not None]
        batches = [[event] for event in asked] if self.fresh_batch else [asked]
        return [sampled_event(facts, self.sampling, batch) for batch in batches]

    def resume(
        self, step: Step, made: int, lost: int, oracle: PrivateOracle, plan: AttemptBudget
    ) -> Iterator[Step]:
        """Yield the iterates of Algorithm 2 until the budget does not cover another attempt."""
        w, previous = step.w, step.state.get("previous")
        oracle.check_clipping(Flat(plan.clip_norm))
        attempt, max_step, chosen = self._restored(step.state, plan)
        angle = float(step.state.get("angle", 0.5 * math.pi))
        for count in range(made + 1, self.iterations + 1):
            found = self._find_step(w, oracle, attempt, max_step, angle)
            if found is None:
                return
            size, gradient, attempt = found
            w = w - size * gradient
            if previous is not None:
                turned = angle_between(gradient, previous)
                angle = self.angle_decay * angle + (1.0 - self.angle_decay) * turned
            previous = gradient
            chosen.append(size)
            if count % self.memory == 0:
                max_step, chosen = self._new_max_step(chosen, max_step), []
            released = {"step_size": size, "rho": attempt.rho, "epsilon": attempt.epsilon}
            state = _saved(attempt, max_step, chosen)
            yield Step(w, released, {**state, "angle": angle, "previous": gradient})

    def _find_step(
        self,
        w: np.ndarray,
        oracle: PrivateOracle,
        attempt: AttemptBudget,
        max_step: float,
        angle: float,
    ) -> tuple[float, np.ndarray, AttemptBudget] | None:
        """Return a step size, its gradient and the next attempt's budget; None to end the run."""
        # The events of an attempt are declared before its batch is drawn: budgets that grow
        # because of its gradient do so from the next batch on.
        facts, clips = oracle.facts, (attempt.clip_norm, attempt.clip_loss)
        before: np.ndarray | None = None  # of those at w so far, the last counts for half
        while True:
            asked = self._attempt_events(facts, attempt)[: 1 if self.fresh_batch else 2]
            if not oracle.can_ask(self.sampling, *asked):
                return None
            with oracle.batch(self.sampling, asked) as batch:
                gradient, grown = self._gradient(batch, w, facts, attempt), attempt
                if before is not None:
                    grown = self._grow_budgets(attempt, before, gradient, angle, clips)
                    gradient = 0.5 * (before + gradient)
                ray = self._ray(w, gradient, max_step)
                if not self.fresh_batch:
                    place = batch.ask(self._query(ray, facts, attempt))
            if self.fresh_batch:
                place = oracle.ask(self._query(ray, facts, grown), self.sampling)
            if place is not None:
                return float(ray.step_sizes[place]), gradient, grown
            if self.smallest_step:
                return max_step * self.backtrack**self.max_queries, gradient, grown
            if attempt.exact:
                return None  # the answers would be the same, on a full batch
            before, attempt = gradient, grown

    def _grow_budgets(
        self,
        attempt: AttemptBudget,
        first: np.ndarray,
        second: np.ndarray,
        mean_angle: float,
        clips: tuple[float, float],
    ) -> AttemptBudget:
        """Increase the budget indicated by two gradients at one point (Algorithm 3 and (9))."""
        if self.adapt == "never":
            return attempt
        angle = angle_between(first, second)
        always = self.adapt == "always"
        large = float(first @ second) < 0.0 or angle > self.angle_max * mean_angle
        small = not large and angle < self.angle_min * mean_angle
        if always or large:
            kept = 1.0 - self.clip_decay  # once per iteration, from the clips at its start
            attempt = replace(
                attempt,
                rho=(1.0 + self.growth) * attempt.rho,
                clip_norm=kept * clips[0],
                clip_loss=kept * clips[1],
            )
        if always or small:
            attempt = replace(attempt, epsilon=(1.0 + self.growth) * attempt.epsilon)
        return attempt


@dataclass(frozen=True, repr=False, kw_only=True)
class LineSearchGD(LineSearch, Refinement):
    r"""DP-BLGD: full-batch gradient descent with a private backtracking line search.

    Each iteration releases a noisy clipped gradient g of all records, and by AboveThreshold the
    first step size of :math:`\eta_0, \beta\eta_0, \beta^2\eta_0, \dots` with a noisy decrease of
    at least :math:`\alpha \eta \lVert g \rVert^2`, as in :class:`LineSearchSGD`. If none is
    found, the gradient's budget grows as in :class:`AdaptiveGD`: the increase is spent on another
    measurement, which is averaged with the old one. The parameters are as in
    :class:`LineSearchSGD`, except for ``growth``; every line search costs ``epsilon``.

    Parameters
    ----------
    growth : float
        xi >= 1e-9: the gradient's budget grows by the factor 1 + xi.

    Notes
    -----
    Chen and Lee (2020) describe it as the full-batch version with the budget rule of DP-AGD, and do
    not give xi, here .3 as in DP-BLSGD. A gradient and its search are charged together.

    Examples
    --------
    >>> import numpy as np
    >>> import dpanalysis as dpa
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(5000, 3))
    >>> problem = dpa.ERM(X, np.sign(X @ [1.0, -2.0, 0.5]), dpa.losses.Logistic())
    >>> method = dpa.methods.LineSearchGD(rho=1e-3, epsilon=0.05, step_size=8.0)
    >>> result = dpa.minimize(problem, method, dpa.Budget(1.0, delta=1e-6), rng=0)
    >>> result.epsilon(), bool(problem.accuracy(result.w)[0] > 0.9)
    (1.0, True)
    """


def angle_between(first: np.ndarray, second: np.ndarray) -> float:
    """Return the angle between two vectors in [0, pi]; pi/2 if either is zero."""
    size = float(np.linalg.norm(first) * np.linalg.norm(second))
    return math.acos(max(-1.0, min(1.0, float(first @ second) / size))) if size else 0.5 * math.pi


@dataclass(frozen=True, repr=False, kw_only=True)
class AdaptiveGD(Refinement):
    r"""DP-AGD: normalized gradient descent with step sizes selected by report noisy min.

    Each iteration releases a noisy clipped gradient g of all records and then, of

    .. math:: w - \eta\, g / \lVert g \rVert, \quad
              \eta \in \{0, \tfrac{\eta_0}{K}, \tfrac{2 \eta_0}{K}, \dots, \eta_0\},

    the index of a point of small clamped loss. If it is 0, the gradient is considered too noisy:
    its budget grows, and the increase is spent on another measurement, averaged with the old one.

    Parameters
    ----------
    step_size : float
        eta_0 > 0, the largest initial step: a length, as the gradient is normalized.
    candidates : int
        K >= 1 step sizes besides 0.
    iterations, clip_norm, clip_loss
        As in :class:`LineSearchSGD`.
    rho, selection_rho : float, optional
        zCDP cost of the first gradient and of every selection of a step size (rho_ng and
        rho_nmax); by default e^2/2 each with e = budget.epsilon/120. Without a budget there is no
        noise, and the run ends when no step of the grid decreases the loss.
    growth : float
        gamma >= 1e-9: the gradient's budget grows by the factor 1 + gamma.
    memory, headroom : int, float
        tau >= 1 and 1 + eta > 1: every tau iterations the largest step becomes 1 + eta times the
        largest one chosen in them, but at most ``step_size``.
    noise : {"gumbel", "exponential"}
        Noise of the selection, see :class:`dpanalysis.privacy.queries.NoisyMin`.

    Notes
    -----
    Lee and Kifer's Algorithm 2. Chen and Lee (2020) only say that it is a baseline with full
    batches whose step sizes NoisyMin selects, with C_grad = 3 and C_obj = 1 for all methods. The
    20 candidates up to 2, gamma = .1, tau = 10, eta = .1, the cap, the division by 120 (60
    iterations, half of the budget for the selections), and C_obj = 3 are those of Lee's public
    code: clamping losses at 1 hides the records whose loss a gradient step reduces most, so that
    index 0 is selected repeatedly (Adult at epsilon = .8: the accuracy of the majority class).

    Differences: the selection is private (errata 002-11) and its index 0 means the step 0, not the
    point before it; with Gumbel noise it costs a quarter of the zCDP that they charge at the same
    scale. The first gradient costs as much as a selection; in their code it costs 2 ln(1.25/delta)
    times less. The penalty's gradient is added before the sum is normalized, and the penalty is
    included in the compared objectives. The filter is charged before each access, not after.

    References
    ----------
    Lee, Kifer, Concentrated differentially private gradient descent with adaptive per-iteration
    privacy budget, KDD 2018.

    Examples
    --------
    >>> import numpy as np
    >>> import dpanalysis as dpa
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(5000, 3))
    >>> problem = dpa.ERM(X, np.sign(X @ [1.0, -2.0, 0.5]), dpa.losses.Logistic())
    >>> method = dpa.methods.AdaptiveGD(rho=1e-3, selection_rho=1e-3)
    >>> result = dpa.minimize(problem, method, dpa.Budget(1.0, delta=1e-6), rng=0)
    >>> result.epsilon(), bool(problem.accuracy(result.w)[0] > 0.9)
    (1.0, True)
    """

    step_size: float = 2.0
    clip_loss: float = 3.0
    candidates: int = 20
    selection_rho: float | None = None
    growth: float = 0.1
    headroom: float = 1.1
    noise: str = "gumbel"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_int("candidates", self.candidates, low=1)
        check_choice("noise", self.noise, ("gumbel", "exponential"))
        if self.selection_rho is not None:
            check_positive("selection_rho", self.selection_rho)

    def _first_costs(self, total: float) -> tuple[float, float]:
        each = 0.5 * (total / 120.0) ** 2
        factor = 8.0 if self.noise == "gumbel" else 2.0  # eps^2/8-zCDP; eps^2/2 if only eps-DP
        return self.rho or each, math.sqrt(factor * (self.selection_rho or each))

    def _ray(self, w: np.ndarray, gradient: np.ndarray, max_step: float) -> Ray:
        size = float(np.linalg.norm(gradient)) or 1.0
        return Ray(w, gradient / size, np.linspace(0.0, max_step, self.candidates + 1))

    def _query(self, ray: Ray, facts: PublicFacts, attempt: AttemptBudget) -> NoisyMin:
        sensitivity = decrease_sensitivity(facts, self.sampling, attempt.clip_loss)
        return NoisyMin(ray, attempt.clip_loss, sensitivity / attempt.epsilon, self.noise)

    def _new_max_step(self, chosen: Sequence[float], max_step: float) -> float:
        return super()._new_max_step(chosen, self.step_size)
