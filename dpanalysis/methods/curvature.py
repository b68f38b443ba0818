"""What methods share that look for approximate second-order points: Gao and Wright (2023).

Such a method makes at most so many noisy gradients, Hessians and searches as it takes to go from
f(w0) to the lower bound of f by steps of some least decrease. That number T is public, and it
decides the noise; the filter then stops whatever would pass the budget.
"""

from __future__ import annotations

import math
import os
import warnings
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
from scipy import special

from .. import privacy
from .._validation import check_number
from ..privacy.events import AboveThreshold, Event, Gaussian, Repeated, Sampled
from ..privacy.facts import PublicFacts, sampled_event
from ..privacy.filters import Filter
from ..privacy.oracle import PrivateOracle
from ..privacy.orders import plan_order
from ..privacy.queries import NoisyHessian, NoisyValue, Query, hessian_sensitivity
from ..privacy.relations import Budget
from ..privacy.sampling import Full, Sampling, WithoutReplacement, check_sampling
from ..theory import gradient_noise_norm, hessian_noise_norm, iteration_bound
from .adaptive import AdaptiveMethod
from .base import FULL

__all__ = ["CurvatureMethod", "Noise", "Outlook", "Questions"]


@dataclass(frozen=True)
class Noise:
    """What every answer of a phase is perturbed by; zeros are exact answers.

    Attributes
    ----------
    gradient, hessian : float
        Standard deviations.
    search : float
        lambda: the search is 1/lambda-private.
    """

    gradient: float = 0.0
    hessian: float = 0.0
    search: float = 0.0


@dataclass(frozen=True)
class Outlook:
    """What is fixed before the data are touched, for a start at w0 = 0.

    Attributes
    ----------
    min_decrease : float
        Of every step, as long as the noise is small.
    iterations : int
        T: the number of steps, and one iteration more that evaluates the last point.
    noise : Noise
        Of the first phase.
    n_min : float
        Records with which the noise of all T iterations is small enough, likely; 0 without noise.
    price : Filter or None
        What answers cost, and the limit: never spent from. None without a budget.
    """

    min_decrease: float
    iterations: int
    noise: Noise
    n_min: float
    price: Filter | None

    def __repr__(self) -> str:
        return (
            f"Outlook(T = {self.iterations} steps of {self.min_decrease:.4g} or more, "
            f"{self.noise!r}, n_min = {self.n_min:.4g})"
        )


@dataclass(frozen=True, repr=False)
class CurvatureMethod(AdaptiveMethod):
    """Tolerances, noise and horizon of a method that ends at an (eps_g, eps_H)-2NS.

    Attributes
    ----------
    eps_g, eps_H : float
        Positive.
    sampling : Full or WithoutReplacement
        Each noisy gradient and Hessian gets a batch of its own.
    c, c1, c2 : float
        Shares of the tolerances that noise may take, see :func:`dpanalysis.theory.tolerated_noise`.
    failure : float
        In (0, 1): what ``n_min`` is computed for; also the probability that T is too small
        because of the noisy value of a start that is not 0.
    lower_bound : float
        Public lower bound of the objective.
    start_share : float
        Of what is left of the budget, in (0, 1): for the noisy value at a start that is not 0.
    """

    eps_g: float
    eps_H: float
    _: KW_ONLY
    sampling: Sampling = FULL
    c: float = 0.1
    c1: float = 0.25
    c2: float = 0.1
    failure: float = 0.05
    lower_bound: float = 0.0
    start_share: float = 0.05

    released: ClassVar[tuple[str, ...]] = (
        *AdaptiveMethod.released,
        "noisy gradients and curvatures",
        "step sizes",
    )

    def __post_init__(self) -> None:
        for name in ("eps_g", "eps_H", "c", "c1", "c2"):
            check_number(name, getattr(self, name), low=0.0, low_open=True)
        for name in ("failure", "start_share"):
            check_number(
                name, getattr(self, name), low=0.0, high=1.0, low_open=True, high_open=True
            )
        check_number("lower_bound", self.lower_bound)
        if not isinstance(check_sampling(self.sampling), (Full, WithoutReplacement)):
            raise ValueError(
                f"sampling must be Full() or WithoutReplacement(m), got {self.sampling!r}"
            )

    @abstractmethod
    def _least_decrease(self, facts: PublicFacts) -> float:
        """Return MIN_DEC."""

    @abstractmethod
    def _tolerated(self, facts: PublicFacts) -> tuple[float, float]:
        """Return how long the noise of a gradient and of a Hessian may be."""

    def _hessian_unit(self, facts: PublicFacts) -> float:
        """Return how far one record moves the mean Hessian of a batch."""
        return hessian_sensitivity(facts, self.sampling)

    def _hessian_query(self, w: np.ndarray, std: float) -> NoisyHessian:
        """Return the question for the noisy Hessian at ``w``."""
        return NoisyHessian(w, std)

    def _asked(self, iterations: int) -> Mapping[str, int]:
        """Return how often each kind of answer is asked in so many iterations, at most."""
        return {"gradient": iterations, "hessian": iterations}

    def _first(self, iterations: int, limit: float) -> tuple[int, float]:
        """Return the iterations of the first phase, and what they may cost."""
        return iterations, limit

    def _final(self, limit: float) -> float:
        """Return what the phase that the guarantee rests on may cost, at least."""
        return limit

    # Before the data are touched

    def prepare(self, facts: PublicFacts, budget: Budget | None, accountant: str) -> Outlook:
        """Return the horizon and the noise for a start at 0.

        Raises
        ------
        ValueError
            If the records' gradients and Hessians have no public bound, the Hessian is not
            Lipschitz, f(0) is not public, or the budget does not go with the sampling.

        Warns
        -----
        UserWarning
            If n is below n_min.
        """
        _check_facts(facts)
        decrease = self._least_decrease(facts)
        assert facts.value_at_zero is not None
        iterations = self._horizon(facts.value_at_zero, decrease)
        price = None if budget is None else self._price(facts, budget, iterations)
        if price is None:
            return Outlook(decrease, iterations, Noise(), 0.0, None)
        noise = self._noise(facts, price, *self._first(iterations, price.limit))
        worst = self._noise(facts, price, iterations, self._final(price.limit))
        n_min = self._smallest_n(facts, worst, iterations)
        if facts.n < n_min:
            warnings.warn(
                f"n = {facts.n} is below n_min = {n_min:.4g}: with noise for T = {iterations} "
                f"iterations, nothing says that a second-order point at eps_g = {self.eps_g:g} and "
                f"eps_H = {self.eps_H:g} is found; larger tolerances or a larger budget would help",
                UserWarning,
                stacklevel=4,
            )
        return Outlook(decrease, iterations, noise, n_min, price)

    def order(self, facts: PublicFacts, plan: Outlook, budget: Budget) -> float | None:
        """Return the order that the noise was computed for; None for full batches: zCDP."""
        return None if plan.price is None else plan.price.order

    def iteration(self, facts: PublicFacts, plan: Outlook) -> list[Event]:
        """Return the events of one iteration that asks for everything."""
        noise = plan.noise
        asked: list[Event] = [
            Gaussian(noise.gradient, facts.gradient_sensitivity(self.sampling, 2)),
            Gaussian(noise.hessian, hessian_sensitivity(facts, self.sampling)),
        ]
        events = [sampled_event(facts, self.sampling, [each]) for each in asked]
        if noise.search:
            events.append(AboveThreshold("laplace", 2 * noise.search, 4 * noise.search, 1.0, None))
        return events

    def _horizon(self, value: float, decrease: float) -> int:
        """Return T: floor((f(w0) - lower bound)/MIN_DEC) steps, and a last evaluation."""
        return iteration_bound(max(value - self.lower_bound, 0.0), decrease)

    def _price(self, facts: PublicFacts, budget: Budget, iterations: int) -> Filter:
        """Return a filter that answers are priced by; its order is the best for T of them."""
        if budget.rho is None and budget.delta == 0.0:
            raise ValueError(
                f"budget must have delta > 0 or be zCDP for Gaussian noise, got {budget!r}"
            )
        if isinstance(self.sampling, Full):
            return Filter(budget)
        if budget.rho is not None:
            raise ValueError(
                f"budget must be an epsilon with delta > 0 for {self.sampling!r}, got {budget!r}: "
                "small batches have no zCDP cost"
            )
        times = sum(self._asked(iterations).values())

        def run(multiplier: float) -> Event:
            return Repeated(self._one(facts, multiplier), times)

        multiplier = privacy.calibrate(run, budget, (1e-2, 1e6), tol=1e-3, accountant="rdp")
        return Filter(budget, order=plan_order(run(multiplier), budget))

    def _one(self, facts: PublicFacts, multiplier: float) -> Event:
        return Sampled(self.sampling, [Gaussian(multiplier, 1.0)], facts.n)

    def _noise(self, facts: PublicFacts, price: Filter, iterations: int, limit: float) -> Noise:
        """Return the noise with which so many iterations cost ``limit`` at most, in equal parts."""
        asked = self._asked(iterations)
        each = {kind: limit / len(asked) / count for kind, count in asked.items()}
        gradient, hessian = (
            self._multiplier(facts, price, each[kind]) for kind in ("gradient", "hessian")
        )
        return Noise(
            gradient * facts.gradient_sensitivity(self.sampling, 2),
            hessian * self._hessian_unit(facts),
            1.0 / _pure_of(each["search"]) if "search" in each else 0.0,
        )

    def _multiplier(self, facts: PublicFacts, price: Filter, cost: float) -> float:
        """Return the noise multiplier of one answer on a batch, at most that expensive."""
        whole = math.sqrt((price.order or 1.0) / (2.0 * cost))
        if isinstance(self.sampling, Full):
            return whole
        from scipy import optimize  # here: it takes its time

        def excess(log_multiplier: float) -> float:
            curve = self._one(facts, math.exp(log_multiplier)).rdp_cost([price.order or 1.0])
            return min(math.log(float(curve[0]) / cost), 100.0)

        root = optimize.brentq(excess, math.log(1e-3 * whole), math.log(10.0 * whole), xtol=1e-13)
        return math.exp(root) * (1.0 + 1e-11)

    # How much data the guarantee takes

    def _smallest_n(self, facts: PublicFacts, noise: Noise, iterations: int) -> float:
        """Return n_min at these noise multipliers and, of batches, at this fraction m/n.

        All noise is within its tolerance but for the probability ``failure``: (12) and (18) with
        the norms of errata 003-9; for batches, within half of it, and the batches' own deviations
        (Lemmas B.1, B.2) within the other half.
        """
        each = self.failure / sum(self._asked(iterations).values())
        gradient, hessian = self._tolerated(facts)
        # What counts for the norm are the entries above the diagonal.
        query = self._hessian_query(np.zeros(facts.d), noise.hessian)
        std = noise.hessian * query.off_diagonal * math.sqrt(2.0)
        sizes = (
            gradient_noise_norm(facts.d, noise.gradient, each) / gradient,
            hessian_noise_norm(facts.d, std, each) / hessian,
            self._search_slack(facts, noise, each),
        )
        if isinstance(self.sampling, Full):
            return facts.n * max(sizes)
        log = math.log(2.0 * facts.d / each)
        m = max(
            128.0 * (facts.gradient_bounds[1] / gradient) ** 2 * (log + 0.25),
            64.0 * (facts.hessian_bound / hessian) ** 2 * log,
        )
        return max(2.0 * facts.n * max(sizes), m / self.sampling.fraction(facts.n))

    def _search_slack(self, facts: PublicFacts, noise: Noise, failure: float) -> float:
        """Return what the noise of a search may cost of its step, over what it may cost."""
        return 0.0


class Questions:
    """What a run asks, counted; the guard decides, ``spent`` only says what is left to plan by."""

    def __init__(self, method: CurvatureMethod, oracle: PrivateOracle, plan: Outlook) -> None:
        self._method, self._oracle, self._plan = method, oracle, plan
        self.facts, self.iterations = oracle.facts, plan.iterations
        self.gradients = self.hessians = 0

    @property
    def left(self) -> float:
        """What is left of the budget, in the notion of its filter; infinite without one."""
        price = self._plan.price
        if price is None:
            return math.inf
        return price.limit - sum(map(price.cost, self._oracle.ledger.events))

    def ask(self, query: Query, sampling: Sampling) -> Any:
        """Ask one question of a batch of its own."""
        return self._oracle.ask(query, sampling)

    def gradient(self, w: np.ndarray, noise: Noise) -> np.ndarray:
        """Return the noisy gradient at ``w`` (d,)."""
        self.gradients += 1
        return self._oracle.gradient(w, self._method.sampling, "gaussian", noise.gradient)

    def hessian(self, w: np.ndarray, noise: Noise) -> np.ndarray:
        """Return the noisy Hessian at ``w``, (d, d)."""
        self.hessians += 1
        return self.ask(self._method._hessian_query(w, noise.hessian), self._method.sampling)

    def value(self, w: np.ndarray) -> float:
        """Return a number that is below f(w) with probability ``failure`` at most.

        f(0) is public. Elsewhere a loss is at most f(0) plus its Lipschitz constant times ||w||,
        which bounds what one record does to the mean (errata 003-5); the noisy value gets a
        fixed margin (errata 003-4).
        """
        method, facts = self._method, self.facts
        assert facts.value_at_zero is not None
        if not w.any():
            return facts.value_at_zero
        clip = facts.value_at_zero + facts.gradient_bounds[1] * float(np.linalg.norm(w))
        std, price = 0.0, self._plan.price
        if price is not None:
            cost = method.start_share * self.left
            std = math.sqrt((price.order or 1.0) / (2.0 * cost)) * clip / facts.n
        margin = -float(special.ndtri(method.failure)) * std
        return self.ask(NoisyValue(w, clip, std), FULL) + max(margin, 0.0)

    def horizon(self, w: np.ndarray) -> tuple[int, float]:
        """Return T for a start at ``w``, and what is left for it."""
        method = self._method
        return method._horizon(self.value(w), self._plan.min_decrease), self.left

    def noise(self, iterations: int, limit: float) -> Noise:
        """Return the noise with which so many iterations cost at most ``limit``."""
        if self._plan.price is None:
            return Noise()
        return self._method._noise(self.facts, self._plan.price, iterations, limit)


def _pure_of(rho: float) -> float:
    """Return the epsilon with epsilon tanh(epsilon/2) = rho (errata 003-6)."""
    from scipy import optimize

    low = math.sqrt(2.0 * rho)
    high = low + rho + 1.0
    root = optimize.brentq(lambda e: privacy.zcdp_pure(e) - rho, low, high, rtol=1e-14)
    return root * (1.0 - 1e-12)


def _check_facts(facts: PublicFacts) -> None:
    if not math.isfinite(facts.gradient_bounds[1]):
        raise ValueError(
            "one record's gradient and Hessian have no public bound: give the problem a row_bound "
            "and a loss with a bounded derivative"
        )
    if not math.isfinite(facts.hessian_lipschitz) or not math.isfinite(facts.hessian_bound):
        raise ValueError(
            "the loss must have a Lipschitz Hessian, got hessian_lipschitz = "
            f"{facts.hessian_lipschitz:g}: take Logistic()"
        )
    if facts.value_at_zero is None:
        raise ValueError("f(0) must be public, the same for every label: take Logistic()")


def check_memory(d: int, instead: str = "") -> None:
    """Raise unless the machine can hold a Hessian, its noise and its eigenvectors.

    Raises
    ------
    ValueError
        Naming the sizes, and ``instead``.
    """
    needed = 4 * 8 * d * d
    known = hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names
    held = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if known else needed
    if needed > held:
        raise ValueError(
            f"a Hessian of d = {d} with its eigenvectors takes {needed / 2**30:.3g} GiB, the "
            f"machine has {held / 2**30:.3g}" + instead
        )
