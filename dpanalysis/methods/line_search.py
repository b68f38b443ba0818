"""Private backtracking line search: Chen and Lee (2020), Algorithms 1 to 3."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, replace
from typing import ClassVar

import numpy as np

from .._validation import check_choice, check_number
from ..privacy.events import Event
from ..privacy.facts import PublicFacts, sampled_event
from ..privacy.oracle import PrivateOracle
from ..privacy.sampling import Sampling, check_sampling
from .adaptive import AdaptiveMethod
from .base import Step
from .searching import LineSearch, Refinement, Spending

__all__ = ["LineSearchGD", "LineSearchSGD"]


@dataclass(frozen=True, repr=False)
class LineSearchSGD(LineSearch):
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
        search and e^2/2 for the gradient. Without a budget there is no noise, and the run
        ends with the first search that finds no step.
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
    smallest_step : bool
        Where none is found, take the step size that would have been tried next instead of
        measuring again: what the paper does for networks.
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
    (002-6). The filter has one Renyi order, and each batch is bought from it before it is opened
    (002-7, 002-8): a budget that grows because of a gradient does so from the next batch on.

    The paper leaves eta_0 and the number of queries open. They are for rows of length 1 to 3: on
    Adult, 20 queries from eta_0 = 2 do as well as more, which at small budgets only find by chance
    ever shorter steps; from eta_0 = 4, 20 may end above the steps that are wanted late.

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
            check_number(
                name, getattr(self, name), low=0.0, high=1.0, low_open=True, high_open=True
            )
        check_number("angle_max", self.angle_max, low=1.0, low_open=True)
        check_number("clip_decay", self.clip_decay, low=0.0, high=1.0, high_open=True)
        check_choice("adapt", self.adapt, ("angle", "always", "never"))

    def iteration(self, facts: PublicFacts, plan: Spending) -> list[Event]:
        """Return the events of one attempt on its batch, or on its two batches."""
        asked = [event for event in self._asked(facts, plan) if event is not None]
        batches = [[event] for event in asked] if self.fresh_batch else [asked]
        return [sampled_event(facts, self.sampling, batch) for batch in batches]

    def run(self, w: np.ndarray, oracle: PrivateOracle, plan: Spending) -> Iterator[Step]:
        """Yield the iterates of Algorithm 2 until no attempt can be paid."""
        spending, reach = plan, self.step_size
        chosen: list[float] = []
        angle, previous = 0.5 * math.pi, None
        for count in range(1, self.iterations + 1):
            found = self._find_step(w, oracle, spending, reach, angle)
            if found is None:
                return
            step, gradient, spending = found
            w = w - step * gradient
            if previous is not None:
                turned = angle_between(gradient, previous)
                angle = self.angle_decay * angle + (1.0 - self.angle_decay) * turned
            previous = gradient
            chosen.append(step)
            if count % self.memory == 0:
                reach, chosen = self._reach(chosen, reach), []
            yield Step(w, {"step_size": step, "rho": spending.rho, "epsilon": spending.epsilon})

    def _find_step(
        self, w: np.ndarray, oracle: PrivateOracle, spending: Spending, reach: float, angle: float
    ) -> tuple[float, np.ndarray, Spending] | None:
        """Return a step size, its gradient, and what comes next costs; None to end the run.

        What an attempt asks is named before its batch is opened: the budgets that its gradient
        lets grow hold from the next batch on.
        """
        facts, clips = oracle.facts, (spending.clip_norm, spending.clip_loss)
        before: np.ndarray | None = None  # the mean of the gradients at w so far
        while True:
            asked = self._asked(facts, spending)[: 1 if self.fresh_batch else 2]
            if not oracle.can_ask(self.sampling, *asked):
                return None
            with oracle.batch(self.sampling, asked) as batch:
                gradient, grown = self._gradient(batch, w, facts, spending), spending
                if before is not None:
                    grown = self._enlarge(spending, before, gradient, angle, clips)
                    gradient = 0.5 * (before + gradient)
                ray = self._ray(w, gradient, reach)
                if not self.fresh_batch:
                    place = batch.ask(self._question(ray, facts, spending))
            if self.fresh_batch:
                place = oracle.ask(self._question(ray, facts, grown), self.sampling)
            if place is not None:
                return float(ray.step_sizes[place]), gradient, grown
            if self.smallest_step:
                return reach * self.backtrack**self.max_queries, gradient, grown
            if spending.exact:
                return None  # the answers would be the same, on a full batch
            before, spending = gradient, grown

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


@dataclass(frozen=True, repr=False, kw_only=True)
class LineSearchGD(LineSearch, Refinement):
    r"""DP-BLGD: descent with full batches whose steps a private line search chooses.

    Each iteration releases a noisy clipped gradient g of all records, and by AboveThreshold the
    first step size of :math:`\eta_0, \beta\eta_0, \beta^2\eta_0, \dots` with a noisy decrease of
    at least :math:`\alpha \eta \lVert g \rVert^2`, as :class:`LineSearchSGD` does. Where none is
    found, the gradient's budget grows as in :class:`AdaptiveGD`: what it grew by buys another
    measurement, which is averaged with the old one.

    Parameters
    ----------
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
        Cost of the first gradient and of every line search, as in :class:`LineSearchSGD`.
    growth : float
        xi > 0: the gradient's budget grows by 1 + xi.
    memory, headroom : int, float
        tau and varsigma > 1: every tau iterations searches start at varsigma times the largest
        step that was chosen since, if that is less.
    query : {"loss_clip", "difference_clip"}
        What is clipped in the line search, see :class:`dpanalysis.privacy.queries.FirstDecrease`.

    Raises
    ------
    ValueError
        If an argument is outside its range.

    Notes
    -----
    Chen and Lee (2020) call it the full-batch version with the budget rule of DP-AGD, and leave xi
    open there: it is .3 as in DP-BLSGD. The filter is asked for a gradient and its search together.

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
    >>> method = dpa.methods.LineSearchGD(rho=1e-3, epsilon=0.05, step_size=8.0)
    >>> result = dpa.minimize(problem, method, dpa.Budget(1.0, delta=1e-6), rng=0)
    >>> result.epsilon(), bool(problem.accuracy(result.w)[0] > 0.9)
    (1.0, True)
    """

    released: ClassVar[tuple[str, ...]] = (
        *AdaptiveMethod.released,
        "step sizes",
        "noise of every attempt",
    )


def angle_between(first: np.ndarray, second: np.ndarray) -> float:
    """Return the angle between two vectors in [0, pi]; a right one if either is zero.

    Examples
    --------
    >>> angle_between(np.array([1.0, 0.0]), np.array([1.0, 1.0]))
    0.7854
    """
    size = float(np.linalg.norm(first) * np.linalg.norm(second))
    return math.acos(max(-1.0, min(1.0, float(first @ second) / size))) if size else 0.5 * math.pi
