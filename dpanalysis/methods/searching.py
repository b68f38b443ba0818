"""What methods share that search for a step along a noisy gradient."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from .._validation import check_choice, check_int, check_number
from ..clipping import Flat
from ..privacy.events import Event
from ..privacy.facts import PublicFacts, gradient_event, sampled_event
from ..privacy.oracle import Batch, PrivateOracle
from ..privacy.queries import FirstDecrease, Query, Ray, decrease_sensitivity
from ..privacy.relations import Budget
from .adaptive import AdaptiveMethod
from .base import Step

__all__ = ["GradientSearch", "LineSearch", "Refinement", "Spending"]


@dataclass(frozen=True)
class Spending:
    """What the next attempt costs before amplification, and its clips; they change on the way.

    Attributes
    ----------
    rho : float
        zCDP cost of one gradient; infinite for an exact one.
    epsilon : float
        Pure cost of one search, as it is asked for; infinite for an exact one.
    clip_norm, clip_loss : float
    """

    rho: float
    epsilon: float
    clip_norm: float
    clip_loss: float

    @property
    def exact(self) -> bool:
        """Whether there is no noise: the same question would have the same answer."""
        return math.isinf(self.rho)


@dataclass(frozen=True, repr=False, kw_only=True)
class GradientSearch(AdaptiveMethod):
    """A method that releases noisy clipped gradients, and how far to go along them."""

    step_size: float
    iterations: int = 10_000
    clip_norm: float = 3.0
    clip_loss: float = 1.0
    rho: float | None = None
    growth: float
    memory: int = 10
    headroom: float

    def __post_init__(self) -> None:
        for name in ("step_size", "clip_norm", "clip_loss"):
            check_number(name, getattr(self, name), low=0.0, low_open=True)
        for name in ("iterations", "memory"):
            check_int(name, getattr(self, name), low=1)
        if self.rho is not None:
            check_number("rho", self.rho, low=0.0, low_open=True)
        check_number("growth", self.growth, low=0.0)
        check_number("headroom", self.headroom, low=1.0, low_open=True)

    @abstractmethod
    def _first_costs(self, total: float) -> tuple[float, float]:
        """Return what the first gradient (zCDP) and search (pure) cost, of ``total`` epsilon."""

    @abstractmethod
    def _ray(self, w: np.ndarray, gradient: np.ndarray, reach: float) -> Ray:
        """Return where one may go from ``w``, with step sizes up to ``reach``."""

    @abstractmethod
    def _question(self, ray: Ray, facts: PublicFacts, spending: Spending) -> Query:
        """Return what asks how far to go."""

    def prepare(self, facts: PublicFacts, budget: Budget | None, accountant: str) -> Spending:
        """Return what the first attempt spends; without a budget all is exact."""
        if not facts.has_records or facts.declared_sensitivity is not None:
            raise ValueError(
                f"problem must consist of records, as an ERM does: {type(self).__name__} clips "
                "the gradient and the loss of each"
            )
        rho = epsilon = math.inf
        if budget is not None:
            if budget.rho is None and budget.delta == 0.0:
                raise ValueError(
                    f"budget must have delta > 0 or be zCDP for Gaussian noise, got {budget!r}"
                )
            total = budget.limit if budget.rho is None else math.sqrt(2.0 * budget.rho)
            rho, epsilon = self._first_costs(total)
        return Spending(rho, epsilon, self.clip_norm, self.clip_loss)

    def iteration(self, facts: PublicFacts, plan: Spending) -> list[Event]:
        """Return the event of one attempt on its batch."""
        asked = [event for event in self._asked(facts, plan) if event is not None]
        return [sampled_event(facts, self.sampling, asked)]

    def _asked(self, facts: PublicFacts, spending: Spending) -> list[Event | None]:
        """Return what a gradient and a search along it cost; None each if they are exact."""
        if spending.exact:
            return [None, None]
        rule, std = self._noise(facts, spending)
        nowhere = np.zeros(facts.d)
        question = self._question(self._ray(nowhere, nowhere, 1.0), facts, spending)
        return [
            gradient_event(facts, self.sampling, "gaussian", std, rule),
            question.event(facts, self.sampling),
        ]

    def _noise(self, facts: PublicFacts, spending: Spending) -> tuple[Flat, float]:
        """Return the rule and the standard deviation of a mean gradient; 0 if it is exact."""
        rule = Flat(spending.clip_norm)
        sensitivity = facts.gradient_sensitivity(self.sampling, 2, rule)
        return rule, sensitivity / math.sqrt(2.0 * spending.rho)

    def _gradient(
        self, batch: Batch, w: np.ndarray, facts: PublicFacts, spending: Spending
    ) -> np.ndarray:
        rule, std = self._noise(facts, spending)
        return batch.gradient(w, "gaussian", std, rule)

    def _reach(self, chosen: Sequence[float], reach: float) -> float:
        """Return where searches start after :attr:`memory` iterations, which chose ``chosen``."""
        return min(self.headroom * max(chosen), reach)


@dataclass(frozen=True, repr=False, kw_only=True)
class LineSearch(GradientSearch):
    """A search by AboveThreshold for the first step size with a noisy Armijo decrease."""

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
            check_number(
                name, getattr(self, name), low=0.0, high=1.0, low_open=True, high_open=True
            )
        check_int("max_queries", self.max_queries, low=1)
        check_choice("noise", self.noise, ("laplace", "gaussian"))
        check_choice("query", self.query, ("loss_clip", "difference_clip"))
        if self.epsilon is not None:
            check_number("epsilon", self.epsilon, low=0.0, low_open=True)

    def _first_costs(self, total: float) -> tuple[float, float]:
        each = total / 100.0  # Chen and Lee (2020), 5.4
        return self.rho or 0.5 * each**2, self.epsilon or each

    def _ray(self, w: np.ndarray, gradient: np.ndarray, reach: float) -> Ray:
        return Ray(w, gradient, reach * self.backtrack ** np.arange(self.max_queries))

    def _question(self, ray: Ray, facts: PublicFacts, spending: Spending) -> FirstDecrease:
        unit = decrease_sensitivity(facts, self.sampling, spending.clip_loss)
        threshold, query = (unit * scale for scale in _search_scales(self.noise, spending.epsilon))
        return FirstDecrease(
            ray,
            self.sufficient_decrease * ray.step_sizes * float(ray.direction @ ray.direction),
            spending.clip_loss,
            self.noise,
            threshold,
            query,
            self.query,
        )


def _search_scales(noise: str, epsilon: float) -> tuple[float, float]:
    """Return the scales of threshold and queries (Chen and Lee 2020, Algorithm 1, line 3)."""
    if noise == "laplace":
        return 2.0 / epsilon, 4.0 / epsilon
    rho = 0.5 * epsilon**2
    return math.sqrt(1.5 / rho), math.sqrt(3.0 / rho)


@dataclass(frozen=True, repr=False, kw_only=True)
class Refinement(GradientSearch):
    """Full-batch descent that measures a gradient better until the search finds a step.

    Where it finds none, the gradient's budget rho grows by 1 + growth for good, and the growth
    buys another measurement at the same point. Their mean, each weighted by its cost, that is by
    its inverse variance, is as good as one measurement at the new budget.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("growth", self.growth, low=0.0, low_open=True)

    def run(self, w: np.ndarray, oracle: PrivateOracle, plan: Spending) -> Iterator[Step]:
        """Yield the iterates until a gradient and a search cannot be paid any more."""
        facts, spending, reach = oracle.facts, plan, self.step_size
        chosen: list[float] = []
        for count in range(1, self.iterations + 1):
            gradient, bought, step = np.zeros_like(w), 0.0, 0.0
            while step == 0.0:
                wanted = replace(spending, rho=spending.rho - bought)
                asked = self._asked(facts, wanted)
                if not oracle.can_ask(self.sampling, *asked):
                    return
                share = wanted.rho / spending.rho if bought else 1.0
                with oracle.batch(self.sampling, asked) as batch:
                    measured = self._gradient(batch, w, facts, wanted)
                    gradient = gradient + share * (measured - gradient)
                    ray = self._ray(w, gradient, reach)
                    answer = batch.ask(self._question(ray, facts, spending))
                step = 0.0 if answer is None else float(ray.step_sizes[answer])
                if step == 0.0:
                    if spending.exact:
                        return  # the answers would be the same
                    bought = spending.rho
                    spending = replace(spending, rho=(1.0 + self.growth) * bought)
            w = w - step * ray.direction
            chosen.append(step)
            if count % self.memory == 0:
                reach, chosen = self._reach(chosen, reach), []
            yield Step(w, {"step_size": step, "rho": spending.rho})
