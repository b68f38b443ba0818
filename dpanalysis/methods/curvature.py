"""What methods share that look for approximate second-order points: Gao and Wright (2023).

Such a method makes at most so many noisy gradients, Hessians and searches as it takes to go from
f(w0) to the lower bound of f by steps of some least decrease. That number T is public, and it
decides the noise. How is in :mod:`dpanalysis.methods.curvature_noise`.
"""

from __future__ import annotations

import math
import os
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
from scipy import special

from .._validation import check_number, warn_caller
from ..privacy.events import AboveThreshold, Event, Gaussian
from ..privacy.facts import PublicFacts, sampled_event
from ..privacy.filters import Filter
from ..privacy.oracle import PrivateOracle
from ..privacy.queries import NoisyHessian, NoisyValue, Query, hessian_sensitivity
from ..privacy.relations import Budget
from ..privacy.sampling import Full, Sampling, WithoutReplacement, check_sampling
from ..theory import Shares, gradient_noise_norm, hessian_noise_norm, iteration_bound
from .adaptive import AdaptiveMethod
from .base import FULL
from .curvature_noise import Noise, batch_multipliers, check_noise, pure_of

__all__ = ["CurvatureMethod", "Noise", "Outlook", "Questions", "check_facts", "check_memory"]


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
        What answers on all records cost, and the limit: never spent from. None without a budget.
    phases : tuple of (int, Noise)
        Of a run on batches: the iterations and the noise of each phase, all fixed.
    asked : tuple of Event
        Of a run on batches: what is asked at most, in its order.
    shares : theory.Shares or None
        Of :class:`~dpanalysis.methods.SecondOrder`: what noise may take.
    """

    min_decrease: float
    iterations: int
    noise: Noise
    n_min: float
    price: Filter | None
    phases: tuple[tuple[int, Noise], ...] = ()
    asked: tuple[Event, ...] = ()
    shares: Shares | None = None

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
        Each noisy gradient and Hessian gets a batch of its own. T and the noise of a run on
        batches are those for a start at 0, from wherever it starts.
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
    failure: float = 0.05
    lower_bound: float = 0.0
    start_share: float = 0.05

    released: ClassVar[tuple[str, ...]] = (
        *AdaptiveMethod.released,
        "noisy gradients and curvatures",
        "step sizes",
    )

    def __post_init__(self) -> None:
        for name in ("eps_g", "eps_H"):
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

    def _phases(self, iterations: int) -> list[tuple[int, float]]:
        """Return the iterations of each phase, T in all or in the last, and its budget's share."""
        return [(iterations, 1.0)]

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
        check_facts(facts)
        decrease = self._least_decrease(facts)
        assert facts.value_at_zero is not None
        iterations = self._horizon(facts.value_at_zero, decrease)
        price: Filter | None = None
        phases: tuple[tuple[int, Noise], ...] = ()
        asked: tuple[Event, ...] = ()
        shares, full = self._phases(iterations), isinstance(self.sampling, Full)
        if budget is None:
            phases = () if full else tuple((T, Noise()) for T, _ in shares)
            return Outlook(decrease, iterations, Noise(), 0.0, None, phases)
        if full:
            price = self._price(budget)
            noises = [self._noise(facts, T, share * price.limit) for T, share in shares]
        else:
            counts = [(sum(self._asked(T).values()), share) for T, share in shares]
            found, asked = batch_multipliers(self.sampling, facts.n, counts, budget, accountant)
            noises = [self._scaled(facts, each, each, 0.0) for each in found]
            phases = tuple((T, noise) for (T, _), noise in zip(shares, noises, strict=True))
        noise, worst = noises[0], max(noises, key=lambda noise: noise.gradient)
        n_min = self._smallest_n(facts, worst, iterations)
        if facts.n < n_min:
            warn_caller(
                f"n = {facts.n} is below n_min = {n_min:.4g}: with noise for T = {iterations} "
                f"iterations, nothing says that a second-order point at eps_g = {self.eps_g:g} and "
                f"eps_H = {self.eps_H:g} is found; larger tolerances or a larger budget would help",
            )
        return Outlook(decrease, iterations, noise, n_min, price, phases, asked)

    def events(self, facts: PublicFacts, plan: Outlook) -> Sequence[Event] | None:
        """Return what is asked of batches at most; None for full ones, which a filter pays."""
        return plan.asked or None

    def order(self, facts: PublicFacts, plan: Outlook, budget: Budget) -> None:
        """Return None: a filter of full batches sums rho."""

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

    def _price(self, budget: Budget) -> Filter:
        """Return a filter that answers on all records are priced by."""
        check_noise(budget)
        return Filter(budget)

    def _noise(self, facts: PublicFacts, iterations: int, limit: float) -> Noise:
        """Return the noise with which so many iterations cost rho = ``limit``, in equal parts."""
        asked = self._asked(iterations)
        each = {kind: limit / len(asked) / count for kind, count in asked.items()}
        search = 1.0 / pure_of(each["search"]) if "search" in each else 0.0
        gradient, hessian = (math.sqrt(0.5 / each[kind]) for kind in ("gradient", "hessian"))
        return self._scaled(facts, gradient, hessian, search)

    def _scaled(self, facts: PublicFacts, gradient: float, hessian: float, search: float) -> Noise:
        """Return the noise of these multipliers of the sensitivities."""
        unit = facts.gradient_sensitivity(self.sampling, 2)
        return Noise(gradient * unit, hessian * self._hessian_unit(facts), search)

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
        std = 0.0
        if self._plan.price is not None:
            std = math.sqrt(0.5 / (method.start_share * self.left)) * clip / facts.n
        margin = -float(special.ndtri(method.failure)) * std
        return self.ask(NoisyValue(w, clip, std), FULL) + max(margin, 0.0)

    def phases(self) -> int:
        """Return the number of phases."""
        return len(self._plan.phases or self._method._phases(self._plan.iterations))

    def phase(self, place: int, w: np.ndarray) -> tuple[int, Noise]:
        """Return the iterations and the noise of a phase that starts at ``w``.

        On batches they are fixed. Otherwise T follows from the value at ``w``, and the noise from
        what is left of the budget.
        """
        method, plan = self._method, self._plan
        if plan.phases:
            return plan.phases[place]
        iterations = plan.iterations
        if place or w.any():
            iterations = method._horizon(self.value(w), plan.min_decrease)
        phases = method._phases(iterations)[place:]
        count, share = phases[0]
        if plan.price is None:
            return count, Noise()
        rest = math.fsum(share for _, share in phases)
        return count, method._noise(self.facts, count, share / rest * self.left)


def check_facts(facts: PublicFacts) -> None:
    """Raise ValueError unless all is public that these methods need."""
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
