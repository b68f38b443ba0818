"""Private backtracking line search: paper 002, Algorithms 1 to 3."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, replace
from typing import ClassVar

import numpy as np

from .._validation import check_choice, check_int, check_number
from ..clipping import Flat
from ..privacy.events import Event
from ..privacy.oracle import Batch, PrivateOracle, PublicFacts, gradient_event, sampled_event
from ..privacy.queries import FirstDecrease, decrease_sensitivity
from ..privacy.relations import Budget
from ..privacy.sampling import Sampling, check_sampling
from .adaptive import AdaptiveMethod, Step

__all__ = ["LineSearchSGD", "Spending"]


@dataclass(frozen=True)
class Spending:
    """What the next attempt costs before amplification, and its clips; they change on the way.

    Attributes
    ----------
    rho : float
        zCDP cost of one gradient; infinite for an exact one.
    epsilon : float
        Pure cost of one line search by Theorem 1 of 002; infinite for an exact one.
    clip_norm, clip_loss : float
    """

    rho: float
    epsilon: float
    clip_norm: float
    clip_loss: float


@dataclass(frozen=True, repr=False)
class LineSearchSGD(AdaptiveMethod):
    r"""DP-BLSGD: stochastic descent whose steps a private backtracking line search chooses.

    On each batch it releases a noisy clipped gradient g, and by AboveThreshold the first step
    size of :math:`\eta_0, \beta\eta_0, \beta^2\eta_0, \dots` with a noisy Armijo decrease

    .. math:: F_B(w) - F_B(w - \eta g) \ge \alpha \eta \lVert g \rVert^2.

    Where none is found, a second gradient at w is released on a new batch. If the two point
    apart, the gradient is too noisy and its budget grows; if they point alike, that of the line
    search does. Their mean is searched along again.

    Parameters
    ----------
    sampling : Poisson, WithoutReplacement or Full
        How each batch is drawn; the paper takes ``Poisson(0.1)``.
    step_size : float
        eta_0 > 0, where the first search starts.
    iterations : int
        At most so many; with a budget the filter ends the run, as a rule.
    clip_norm, clip_loss : float
        C_grad and C_obj, in (0, inf).
    sufficient_decrease : float
        alpha in (0, 1).
    backtrack : float
        beta in (0, 1).
    max_queries : int
        Step sizes tried in one search, at least 1.
    noise : {"laplace", "gaussian"}
        Of the line search.
    rho, epsilon : float, optional
        Cost of the first gradient (zCDP) and of the first line search (pure, by the paper's
        Theorem 1; (epsilon, 0) becomes epsilon^2/2-zCDP with Gaussian noise), before
        amplification. By default those of the paper: e = budget.epsilon/100 for the line
        search and e^2/2 for the gradient.
    growth : float
        xi >= 0: budgets grow by 1 + xi.
    adapt : {"angle", "always", "never"}
        Grow the one that the angle accuses, both, or none.
    angle_decay, angle_max, angle_min : float
        psi in (0, 1), phi_max > 1, phi_min in (0, 1): the mean of the angles between
        consecutive gradients forgets by psi, and an angle is large or small against it.
    memory, headroom : int, float
        tau and varsigma > 1: every tau iterations searches start at varsigma times the largest
        step that was chosen since, if that is less.
    clip_decay : float
        zeta in [0, 1): both clips shrink by 1 - zeta in an iteration that lets rho grow. .05
        is DP-BLSGD-AC.
    fresh_batch : bool
        Search on a batch of its own: each access is then amplified on its own, validly.
    query : {"loss_clip", "difference_clip"}
        What is clipped in the line search, see :class:`dpanalysis.privacy.queries.FirstDecrease`.

    Raises
    ------
    ValueError
        If an argument is outside its range.

    Notes
    -----
    What the paper does and is not private is done otherwise here. Gradient and search on one
    batch are composed and then amplified, together (errata 002-4, 002-5); the second search is
    made on the batch of the second gradient. Sums are divided by the expected batch size
    (002-6). The filter has one Renyi order, and is asked before each access (002-7, 002-8).

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
    step_size: float = 1.0
    iterations: int = 10_000
    clip_norm: float = 3.0
    clip_loss: float = 1.0
    sufficient_decrease: float = 0.5
    backtrack: float = 0.8
    max_queries: int = 20
    noise: str = "laplace"
    rho: float | None = None
    epsilon: float | None = None
    growth: float = 0.3
    adapt: str = "angle"
    angle_decay: float = 0.8
    angle_max: float = 1.1
    angle_min: float = 0.5
    memory: int = 10
    headroom: float = 1.2
    clip_decay: float = 0.0
    fresh_batch: bool = False
    query: str = "loss_clip"

    released: ClassVar[tuple[str, ...]] = (
        *AdaptiveMethod.released,
        "step sizes",
        "noise and clips of every attempt",
    )

    def __post_init__(self) -> None:
        check_sampling(self.sampling)
        for name in ("step_size", "clip_norm", "clip_loss"):
            check_number(name, getattr(self, name), low=0.0, low_open=True)
        for name in ("sufficient_decrease", "backtrack", "angle_decay", "angle_min"):
            check_number(
                name, getattr(self, name), low=0.0, high=1.0, low_open=True, high_open=True
            )
        for name in ("angle_max", "headroom"):
            check_number(name, getattr(self, name), low=1.0, low_open=True)
        for name in ("iterations", "max_queries", "memory"):
            check_int(name, getattr(self, name), low=1)
        for name in ("rho", "epsilon"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), low=0.0, low_open=True)
        check_number("growth", self.growth, low=0.0)
        check_number("clip_decay", self.clip_decay, low=0.0, high=1.0, high_open=True)
        check_choice("noise", self.noise, ("laplace", "gaussian"))
        check_choice("adapt", self.adapt, ("angle", "always", "never"))
        check_choice("query", self.query, ("loss_clip", "difference_clip"))

    def prepare(self, facts: PublicFacts, budget: Budget | None) -> Spending:
        """Return what the first attempt spends."""
        rho, epsilon = first_spending(budget, self.rho, self.epsilon)
        return Spending(rho, epsilon, self.clip_norm, self.clip_loss)

    def iteration(self, facts: PublicFacts, settings: Spending) -> list[Event]:
        """Return the events of one attempt on its batch, or on its two batches."""
        gradient, search = self._events(facts, settings)
        batches = [[gradient], [search]] if self.fresh_batch else [[gradient, search]]
        return [sampled_event(facts, self.sampling, batch) for batch in batches]

    def run(self, w: np.ndarray, oracle: PrivateOracle, settings: Spending) -> Iterator[Step]:
        """Yield the iterates of Algorithm 2 until no attempt can be paid."""
        spending, start = settings, self.step_size
        chosen: list[float] = []
        angle, previous = 0.5 * math.pi, None
        for count in range(1, self.iterations + 1):
            gradient: np.ndarray | None = None
            step: float | None = None
            clips = spending.clip_norm, spending.clip_loss
            while gradient is None or step is None:
                if not oracle.can_ask(self.sampling, *self._asked(oracle, spending)):
                    return
                with oracle.batch(self.sampling) as batch:
                    second = self._gradient(batch, w, oracle, spending)
                    if gradient is not None:  # Algorithm 3
                        spending = self._enlarge(spending, gradient, second, angle, clips)
                        second = 0.5 * (gradient + second)
                    gradient = second
                    if not self.fresh_batch:
                        step = self._search(batch, w, gradient, start, oracle, spending)
                if self.fresh_batch:
                    with oracle.batch(self.sampling) as batch:
                        step = self._search(batch, w, gradient, start, oracle, spending)
                if step is None and math.isinf(spending.rho):
                    return  # exact answers would not change
            w = w - step * gradient
            if previous is not None:
                turned = angle_between(gradient, previous)
                angle = self.angle_decay * angle + (1.0 - self.angle_decay) * turned
            previous = gradient
            chosen.append(step)
            if count % self.memory == 0:
                start, chosen = min(self.headroom * max(chosen), start), []
            yield Step(w, {"step_size": step, "rho": spending.rho, "epsilon": spending.epsilon})

    def _asked(self, oracle: PrivateOracle, spending: Spending) -> list[Event]:
        """Return what an attempt asks of its first batch."""
        if math.isinf(spending.rho):
            return []
        gradient, search = self._events(oracle.facts, spending)
        return [gradient] if self.fresh_batch else [gradient, search]

    def _events(self, facts: PublicFacts, spending: Spending) -> tuple[Event, Event]:
        rule = Flat(spending.clip_norm)
        std = gradient_std(facts, self.sampling, rule, spending.rho)
        gradient = gradient_event(facts, self.sampling, "gaussian", std, rule)
        nowhere = np.zeros(facts.d)
        search = self._query(nowhere, nowhere, self.step_size, facts, spending)
        event = search.event(facts, self.sampling)
        assert event is not None
        return gradient, event

    def _gradient(
        self, batch: Batch, w: np.ndarray, oracle: PrivateOracle, spending: Spending
    ) -> np.ndarray:
        rule = Flat(spending.clip_norm)
        std = gradient_std(oracle.facts, self.sampling, rule, spending.rho)
        return batch.gradient(w[None, :], "gaussian", std, rule)[0]

    def _query(
        self,
        w: np.ndarray,
        gradient: np.ndarray,
        start: float,
        facts: PublicFacts,
        spending: Spending,
    ) -> FirstDecrease:
        steps = start * self.backtrack ** np.arange(self.max_queries)
        required = self.sufficient_decrease * steps * float(gradient @ gradient)
        scales = search_scales(self.noise, spending.epsilon)
        unit = decrease_sensitivity(facts, self.sampling, spending.clip_loss)
        return FirstDecrease(
            w,
            gradient,
            steps,
            required,
            spending.clip_loss,
            self.noise,
            unit * scales[0],
            unit * scales[1],
            self.query,
        )

    def _search(
        self,
        batch: Batch,
        w: np.ndarray,
        gradient: np.ndarray,
        start: float,
        oracle: PrivateOracle,
        spending: Spending,
    ) -> float | None:
        query = self._query(w, gradient, start, oracle.facts, spending)
        found = batch.ask(query)
        return None if found is None else float(query.step_sizes[found])

    def _enlarge(
        self,
        spending: Spending,
        first: np.ndarray,
        second: np.ndarray,
        mean_angle: float,
        clips: tuple[float, float],
    ) -> Spending:
        """Let the budget grow that two gradients at one point accuse (Algorithm 3 and (9))."""
        angle = angle_between(first, second)
        always = self.adapt == "always"
        apart = float(first @ second) < 0.0 or angle > self.angle_max * mean_angle
        alike = not apart and angle < self.angle_min * mean_angle
        if self.adapt == "never":
            return spending
        if always or apart:
            kept = 1.0 - self.clip_decay  # once an iteration, from the clips that it began with
            spending = replace(
                spending,
                rho=(1.0 + self.growth) * spending.rho,
                clip_norm=kept * clips[0],
                clip_loss=kept * clips[1],
            )
        if always or alike:
            spending = replace(spending, epsilon=(1.0 + self.growth) * spending.epsilon)
        return spending


def first_spending(
    budget: Budget | None, rho: float | None, epsilon: float | None
) -> tuple[float, float]:
    """Return what the first gradient (zCDP) and line search (pure) cost, by the rule of 002.

    That is e = epsilon/100 and e^2/2; a zCDP budget rho counts as epsilon = sqrt(2 rho).

    Raises
    ------
    ValueError
        If the budget is pure: Gaussian noise has no pure cost.
    """
    if budget is None:
        return math.inf, math.inf
    if budget.rho is None and budget.delta == 0.0:
        raise ValueError(
            f"budget must have delta > 0 or be zCDP for Gaussian noise, got {budget!r}"
        )
    total = budget.limit if budget.rho is None else math.sqrt(2.0 * budget.rho)
    each = total / 100.0
    return (0.5 * each**2 if rho is None else rho), (each if epsilon is None else epsilon)


def gradient_std(facts: PublicFacts, sampling: Sampling, rule: Flat, rho: float) -> float:
    """Return the standard deviation of a mean gradient that costs rho; 0 for infinite rho."""
    return facts.gradient_sensitivity(sampling, 2, rule) / math.sqrt(2.0 * rho)


def search_scales(noise: str, epsilon: float) -> tuple[float, float]:
    """Return the scales of threshold and queries at sensitivity 1 (Algorithm 1, line 3)."""
    if noise == "laplace":
        return 2.0 / epsilon, 4.0 / epsilon
    rho = 0.5 * epsilon**2
    return math.sqrt(1.5 / rho), math.sqrt(3.0 / rho)


def angle_between(first: np.ndarray, second: np.ndarray) -> float:
    """Return the angle between two vectors in [0, pi]; a right one if either is zero.

    Examples
    --------
    >>> angle_between(np.array([1.0, 0.0]), np.array([1.0, 1.0]))
    0.7854
    """
    size = float(np.linalg.norm(first) * np.linalg.norm(second))
    return math.acos(max(-1.0, min(1.0, float(first @ second) / size))) if size else 0.5 * math.pi
