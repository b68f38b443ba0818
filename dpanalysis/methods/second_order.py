"""Noisy descent along gradients and negative curvature to approximate second-order points.

Gao and Wright (2023), Algorithms 1 to 3. Every step decreases f by at least MIN_DEC, so f(w0) and a
lower bound of f limit the number T of noisy gradients, Hessians and searches. T is public and
determines the noise.

Full batches are charged to a zCDP filter, so that a run can set the remaining noise adaptively.
Small batches have no zCDP cost, and the Renyi bound for batches of a fixed size (Theorem B.4 of
Gao and Wright 2023) can be ten times the exact cost. So a run on batches is fixed in advance,
except for whether the next answer is a gradient or a Hessian.

*Proof that this is private.* Each answer uses a separate batch, and both kinds have Gaussian noise
of the same multiplier s: a record moves an answer by at most 1/s standard deviations. So the pair
N(0, 1), N(1/s, 1), amplified by the sampling, dominates an answer of either kind, and the product
of as many pairs as a phase has answers dominates the phase, whichever kind is next and wherever it
ends (see :class:`dpanalysis.privacy.Plan`). With two multipliers this is false: the answers would
decide how often each pair occurs. Privacy loss distributions compose products of fixed pairs.
"""

from __future__ import annotations

import math
import os
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import ClassVar

import numpy as np
from scipy import linalg, optimize, special

from .. import privacy, theory
from .._validation import check_choice, check_fraction, check_number, check_positive, warn_caller
from ..privacy.accounting.relations import Budget
from ..privacy.accounting.sampling import Full, Sampling, WithoutReplacement, check_sampling
from ..privacy.budget import Filter
from ..privacy.events import AboveThreshold, Event, Gaussian, Repeated, Sampled
from ..privacy.facts import PublicFacts, sampled_event
from ..privacy.oracle import PrivateOracle
from ..privacy.queries import (
    FirstDecrease,
    NoisyCurvature,
    NoisyHessian,
    NoisyValue,
    Ray,
    decrease_sensitivity,
    hessian_sensitivity,
)
from ..theory import Shares, gradient_noise_norm, hessian_noise_norm, iteration_bound
from ..theory.second_order_data import check_shares
from .base import FULL, AdaptiveMethod, Step, check_gaussian_budget


@dataclass(frozen=True)
class Noise:
    """Noise scales of the answers of a phase; zeros for exact answers."""

    gradient: float = 0.0  # standard deviation
    hessian: float = 0.0  # standard deviation
    search: float = 0.0  # lambda: the search is 1/lambda-private


def batch_multipliers(
    sampling: Sampling, n: int, phases: Sequence[tuple[int, float]], budget: Budget, accountant: str
) -> tuple[list[float], tuple[Event, ...]]:
    """Return the noise multiplier of each phase on batches, and the largest list of events.

    The phases' shares of the budget are shares of rho, to which the cost of small batches is nearly
    proportional: the variance of a phase is proportional to its number of answers over its share.
    Gao and Wright (2023), Section 3.3 and Appendix B; errata 003-20.
    """
    check_gaussian_budget(budget)
    if budget.rho is not None:
        raise ValueError(
            f"budget must be an epsilon with delta > 0 for {sampling!r}, got {budget!r}: small "
            "batches have no zCDP cost"
        )
    sizes = np.sqrt([count / share for count, share in phases])
    sizes /= sizes[0]

    def asked(multiplier: float) -> list[Event]:
        batches = (Sampled(sampling, [Gaussian(multiplier * size, 1.0)], n) for size in sizes)
        return [Repeated(batch, count) for batch, (count, _) in zip(batches, phases, strict=True)]

    least = privacy.calibrate(asked, budget, (1e-2, 1e6), tol=1e-3, accountant=accountant)
    return [float(least * size * (1.0 + 1e-11)) for size in sizes], tuple(asked(least))


def epsilon_of_zcdp(rho: float) -> float:
    """Return the epsilon with epsilon tanh(epsilon/2) = rho (errata 003-6)."""
    low = math.sqrt(2.0 * rho)
    high = low + rho + 1.0
    root = optimize.brentq(lambda e: privacy.zcdp_pure(e) - rho, low, high, rtol=1e-14)
    return root * (1.0 - 1e-12)


@dataclass(frozen=True)
class SecondOrderPlan:
    """Horizon and noise for a start at w0 = 0, fixed before the data are accessed."""

    min_decrease: float  # of a step, if the noise is small
    iterations: int  # T: the steps, and one more iteration that evaluates the last point
    noise: Noise  # of the first phase
    n_min: float  # number of records for which all noise is small, with probability 1 - failure
    price: Filter | None  # computes costs on full batches, never charged; None without a budget
    phases: tuple[tuple[int, Noise], ...] = ()  # iterations and noise of a run on batches
    asked: tuple[Event, ...] = ()  # largest list of events of a run on batches, in order
    shares: Shares | None = None  # of the tolerances, in SecondOrder

    def __repr__(self) -> str:
        return (
            f"SecondOrderPlan(T = {self.iterations} steps of {self.min_decrease:.4g} or more, "
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
        Each noisy gradient and Hessian has a separate batch. T and the noise of a run on batches
        are those for a start at 0, whatever the start.
    failure : float
        In (0, 1): failure probability for ``n_min``; also the probability that T is too small
        because of the noisy value at a start other than 0.
    lower_bound : float
        Public lower bound of the objective.
    start_share : float
        In (0, 1): share of the remaining budget for the noisy value at a start other than 0.
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
        super().__post_init__()
        for name in ("eps_g", "eps_H"):
            check_positive(name, getattr(self, name))
        for name in ("failure", "start_share"):
            check_fraction(name, getattr(self, name))
        check_number("lower_bound", self.lower_bound)
        if not isinstance(check_sampling(self.sampling), (Full, WithoutReplacement)):
            raise ValueError(
                f"sampling must be Full() or WithoutReplacement(m), got {self.sampling!r}"
            )

    @abstractmethod
    def _least_decrease(self, facts: PublicFacts) -> float:
        """Return MIN_DEC, the least decrease of a step."""

    @abstractmethod
    def _tolerated(self, facts: PublicFacts) -> tuple[float, float]:
        """Return the largest tolerated norms of the noise of a gradient and of a Hessian."""

    def _hessian_unit(self, facts: PublicFacts) -> float:
        """Return the sensitivity of the mean Hessian of a batch."""
        return hessian_sensitivity(facts, self.sampling)

    def _hessian_query(self, w: np.ndarray, std: float) -> NoisyHessian:
        """Return the query for the noisy Hessian at ``w``."""
        return NoisyHessian(w, std)

    def _query_counts(self, iterations: int) -> Mapping[str, int]:
        """Return the largest number of queries of each kind."""
        return {"gradient": iterations, "hessian": iterations}

    def _phases(self, iterations: int) -> list[tuple[int, float]]:
        """Return (iterations, budget share) of each phase, with T iterations in all or the last."""
        return [(iterations, 1.0)]

    # Planning

    def prepare(
        self, facts: PublicFacts, budget: Budget | None, accountant: str
    ) -> SecondOrderPlan:
        """Return the horizon and the noise for a start at 0; warn if n is below n_min."""
        require_bounded_curvature(facts)
        decrease = self._least_decrease(facts)
        assert facts.value_at_zero is not None
        iterations = self._horizon(facts.value_at_zero, decrease)
        price: Filter | None = None
        phases: tuple[tuple[int, Noise], ...] = ()
        asked: tuple[Event, ...] = ()
        shares, full = self._phases(iterations), isinstance(self.sampling, Full)
        if budget is None:
            phases = () if full else tuple((T, Noise()) for T, _ in shares)
            return SecondOrderPlan(decrease, iterations, Noise(), 0.0, None, phases)
        if full:
            check_gaussian_budget(budget)
            price = Filter(budget)
            noises = [self._noise(facts, T, share * price.limit) for T, share in shares]
        else:
            counts = [(sum(self._query_counts(T).values()), share) for T, share in shares]
            found, asked = batch_multipliers(self.sampling, facts.n, counts, budget, accountant)
            noises = [self._scaled(facts, each, each, 0.0) for each in found]
            phases = tuple((T, noise) for (T, _), noise in zip(shares, noises, strict=True))
        noise, worst = noises[0], max(noises, key=lambda noise: noise.gradient)
        n_min = self._smallest_n(facts, worst, iterations)
        if facts.n < n_min:
            warn_caller(
                f"n = {facts.n} is below n_min = {n_min:.4g}: with noise for T = {iterations} "
                f"iterations, a second-order point at eps_g = {self.eps_g:g} and eps_H = "
                f"{self.eps_H:g} may not be found; larger tolerances or a larger budget would help"
            )
        return SecondOrderPlan(decrease, iterations, noise, n_min, price, phases, asked)

    def events(self, facts: PublicFacts, plan: SecondOrderPlan) -> Sequence[Event] | None:
        """Return the largest list of events on batches; None for full batches (a filter)."""
        return plan.asked or None

    def order(self, facts: PublicFacts, plan: SecondOrderPlan, budget: Budget) -> None:
        """Return None: the filter of full batches sums rho."""

    def iteration(self, facts: PublicFacts, plan: SecondOrderPlan) -> list[Event]:
        """Return the events of an iteration with every kind of query."""
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

    def _noise(self, facts: PublicFacts, iterations: int, limit: float) -> Noise:
        """Return the noise for which ``iterations`` cost rho = ``limit``, in equal parts."""
        asked = self._query_counts(iterations)
        each = {kind: limit / len(asked) / count for kind, count in asked.items()}
        search = 1.0 / epsilon_of_zcdp(each["search"]) if "search" in each else 0.0
        gradient, hessian = (math.sqrt(0.5 / each[kind]) for kind in ("gradient", "hessian"))
        return self._scaled(facts, gradient, hessian, search)

    def _scaled(self, facts: PublicFacts, gradient: float, hessian: float, search: float) -> Noise:
        """Return the noise of gradient and Hessian at these multiples of their sensitivities."""
        unit = facts.gradient_sensitivity(self.sampling, 2)
        return Noise(gradient * unit, hessian * self._hessian_unit(facts), search)

    def _smallest_n(self, facts: PublicFacts, noise: Noise, iterations: int) -> float:
        """Return n_min at these noise multipliers and, for batches, at this fraction m/n.

        All noise is within its tolerance except with probability ``failure``: (12) and (18) with
        the norms of errata 003-9; for batches, within half of it, and the sampling errors of the
        batches (Lemmas B.1, B.2) within the other half.
        """
        each = self.failure / sum(self._query_counts(iterations).values())
        gradient, hessian = self._tolerated(facts)
        # The entries above the diagonal determine the norm.
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
        """Return the decrease that the noise of a search may cost, over the tolerated decrease."""
        return 0.0


class QueryCounter:
    """Count the queries of a run, and plan by the remaining budget, which the guard enforces."""

    def __init__(
        self, method: CurvatureMethod, oracle: PrivateOracle, plan: SecondOrderPlan
    ) -> None:
        self._method, self._oracle, self._plan = method, oracle, plan
        self.facts, self.iterations, self.ask = oracle.facts, plan.iterations, oracle.ask
        self.gradients = self.hessians = 0

    @property
    def left(self) -> float:
        """Remaining budget, in the filter's units."""
        price = self._plan.price
        assert price is not None
        return price.limit - sum(map(price.cost, self._oracle.ledger.events))

    def gradient(self, w: np.ndarray, noise: Noise) -> np.ndarray:
        """Return the noisy gradient at ``w`` (d,)."""
        self.gradients += 1
        return self._oracle.gradient(w, self._method.sampling, "gaussian", noise.gradient)

    def hessian(self, w: np.ndarray, noise: Noise) -> np.ndarray:
        """Return the noisy Hessian at ``w``, (d, d)."""
        self.hessians += 1
        return self.ask(self._method._hessian_query(w, noise.hessian), self._method.sampling)

    def value(self, w: np.ndarray) -> float:
        """Return an upper bound of f(w), which fails with probability at most ``failure``.

        f(0) has a public bound B. Elsewhere a loss is at most B plus its Lipschitz constant times
        ||w||, which bounds the sensitivity of the mean (errata 003-5); the noisy value gets a fixed
        margin (errata 003-4).
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

    def released(
        self, found: bool, length: float, eigenvalue: float = math.nan, **more: float
    ) -> dict[str, float]:
        """Return the numbers that an iteration releases."""
        return {
            "second_order_point": float(found),
            "gradient_norm_noisy": length,
            "smallest_eigenvalue": eigenvalue,
            **more,
            "gradients": float(self.gradients),
            "hessians": float(self.hessians),
        }

    def phases(self) -> int:
        """Return the number of phases."""
        return len(self._plan.phases or self._method._phases(self._plan.iterations))

    def phase(self, place: int, w: np.ndarray) -> tuple[int, Noise]:
        """Return the iterations and the noise of a phase that starts at ``w``."""
        # On batches both are fixed; else they depend on the value at w and the remaining budget.
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


def require_bounded_curvature(facts: PublicFacts) -> None:
    """Raise ValueError unless the public bounds that these methods need are finite."""
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
        raise ValueError("f(0) must have a public bound: take Logistic()")


def check_memory(d: int, instead: str = "") -> None:
    """Raise ValueError unless a Hessian, its noise and its eigenvectors fit into memory."""
    needed = 4 * 8 * d * d
    known = hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names
    held = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if known else needed
    if needed > held:
        raise ValueError(
            f"a Hessian of d = {d} with its eigenvectors takes {needed / 2**30:.3g} GiB, the "
            f"machine has {held / 2**30:.3g}" + instead
        )


@dataclass(frozen=True, repr=False)
class SecondOrder(CurvatureMethod):
    r"""Descent to a point with a small gradient and almost no negative curvature.

    Each iteration releases a noisy gradient g. If its norm exceeds eps_g, the step is along it;
    otherwise the smallest eigenvalue of a noisy Hessian and its eigenvector p (with <p, g> <= 0)
    are released, and if the eigenvalue is below -eps_H, the step is along p. If it is not, the
    released values show an (eps_g, eps_H)-2NS, and the run ends with
    ``released["second_order_point"] = 1``; the true gradient and curvature are then within
    (1 + c1) eps_g and (1 + c) eps_H, if the noise was small.

    Parameters
    ----------
    eps_g, eps_H : float
        Tolerances, positive.
    step : {"short", "line_search"}
        Step sizes 1/G and 2 lambda/M; or those of a private backtracking search from ``b_g`` times
        :math:`2(1 - c_1 - c_g)/G`, or ``b_H`` times :math:`t_2\lambda/M`, else these.
    two_phase : bool
        Spend ``first_share`` of the budget on T/``speedup`` iterations; if they find no point,
        continue from the last one with the rest.
    hessian : {"full", "lanczos"}
        Form the noisy Hessian, or only multiply by it, see
        :class:`~dpanalysis.privacy.queries.NoisyCurvature`. With "lanczos" a step is made if the
        computed eigenvalue is below -eps_H/2.
    sampling : Full or WithoutReplacement
        Batches for short steps only; each gradient and Hessian has a separate batch.
    shares : theory.Shares, optional
        Shares of the tolerances allowed for the noise: c1 < 1/2, c + c2 < 1/3 for short steps;
        c1 < 1, c + sqrt(8 c2/3) < 1 for the line search, which also has the sufficient decrease
        c_g in (0, 1 - c1) and c_H in (0, 1 - c - sqrt(8 c2/3)). By default those that need the
        fewest records, see below; ``plan.shares`` has those of the run.
    b_g, b_H, beta_g, beta_H : float
        The search starts at b > 1 times its fallback, and backtracks by beta in (0, 1).
    first_share, speedup : float
        Parameters of ``two_phase``: in (0, 1), and above 1.
    failure, lower_bound, start_share
        See :class:`~dpanalysis.methods.second_order.CurvatureMethod`.

    Notes
    -----
    The noise is for the worst case, T = floor((f(w0) - lower_bound)/MIN_DEC) + 1 iterations with
    every kind of query. The paper reports the cost of the steps actually made, which is not a
    guarantee (errata 003-3); here the filter enforces the budget. f(0) is public; from another
    start T is computed from a noisy value with a fixed margin (errata 003-4). The noise of the
    Hessian is for its true sensitivity (errata 003-1, 003-2). Searches query q(gamma)/gamma (errata
    003-7), and never at the fallback, where they end in any case.

    The paper's proof for batches amplifies gradient and Hessian of one batch separately, which
    requires a batch for each (errata 003-19). A run on batches is fixed in advance except for the
    kind of the next answer, so privacy loss distributions apply:
    :mod:`dpanalysis.methods.second_order` has the proof. T is that for a start at 0, which is
    enough if f(w0) <= f(0), and the second of two phases has the remaining iterations of T.

    The paper does not choose the shares. Those of :func:`dpanalysis.theory.best_shares` depend on
    public facts only, and not on the budget: n_min is proportional to :math:`\rho^{-1/2}`. The
    tolerances are fixed, so that a larger c1 or c allows a larger true gradient or curvature of
    the answer. They are optimal for full batches; on small ones they need fewer records than
    shares of .1, .25 and .1, but need not be optimal.

    ``speedup``, b and beta have no values in the paper. Lemma 7 requires beta_H > t_1/t_2; here
    any is enough, as a search that fails ends at its fallback.

    References
    ----------
    Gao and Wright (2023), Algorithms 1 to 3 and Sections 3.3, 3.4.

    Examples
    --------
    >>> import numpy as np
    >>> import dpanalysis as dpa
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(20_000, 3))
    >>> y = np.where(X @ [1.0, -2.0, 0.5] > 0, 1, -1)
    >>> penalty = dpa.regularizers.GemanMcClure(0.001)
    >>> problem = dpa.ERM(X, y, dpa.losses.Logistic(), penalty, dpa.RowBound(2, 1.0, "clip"))
    >>> method = dpa.methods.SecondOrder(eps_g=0.12, eps_H=0.4)
    >>> result = dpa.minimize(problem, method, dpa.Budget(2.0, delta=1e-6), rng=0)
    >>> result.iterations, float(result.history["second_order_point"][-1, 0])
    (4, 1.0)
    >>> round(result.plan.shares.c1, 2)
    0.32
    """

    _: KW_ONLY
    step: str = "short"
    two_phase: bool = False
    hessian: str = "full"
    shares: theory.Shares | None = None
    b_g: float = 10.0
    b_H: float = 10.0
    beta_g: float = 0.5
    beta_H: float = 0.5
    first_share: float = 0.75
    speedup: float = 10.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("step", self.step, ("short", "line_search"))
        check_choice("hessian", self.hessian, ("full", "lanczos"))
        for name in ("b_g", "b_H", "speedup"):
            check_number(name, getattr(self, name), low=1.0, low_open=True)
        for name in ("beta_g", "beta_H", "first_share"):
            check_fraction(name, getattr(self, name))
        if not isinstance(self.two_phase, bool):
            raise TypeError(f"two_phase must be True or False, got {self.two_phase!r}")
        if self._searches and not isinstance(self.sampling, Full):
            raise ValueError(
                f"sampling must be Full() with step='line_search', got {self.sampling!r}: a "
                "decrease on a batch says nothing of the objective"
            )
        if self.shares is not None:
            check_shares(self.shares)
            if (self.shares.c_g is None) == self._searches:
                raise ValueError(
                    "shares must have c_g and c_H with step='line_search', and not with "
                    f"step='short', got {self.shares!r}"
                )
            self._decrease(1.0, 1.0)

    @property
    def _searches(self) -> bool:
        return self.step == "line_search"

    @property
    def _curvature(self) -> float:
        """Threshold for a negative eigenvalue; the Lanczos method has an error up to eps_H/2."""
        return self.eps_H * (0.5 if self.hessian == "lanczos" else 1.0)

    def _decrease(self, G: float, M: float) -> float:
        c, c1, c2, c_g, c_H = self._shares
        given = (self.eps_g, self._curvature, G, M, c, c1, c2)
        if c_g is not None and c_H is not None:
            return theory.min_decrease_line_search(*given, c_g, c_H)
        return theory.min_decrease_short(*given)

    @property
    def _shares(self) -> theory.Shares:
        """The shares, given or chosen by :meth:`prepare`."""
        assert self.shares is not None
        return self.shares

    def _best_shares(self, facts: PublicFacts) -> theory.Shares:
        """Return the shares for which a run on full batches needs the fewest records."""
        require_bounded_curvature(facts)
        assert facts.value_at_zero is not None
        multiple, backtrack = max(
            (self.b_g, self.beta_g),
            (self.b_H, self.beta_H),
            key=lambda given: len(_step_sizes(1.0, *given)),
        )
        target = theory.SecondOrderTarget(
            self.eps_g,
            self._curvature,
            theory.SecondOrderConstants(
                facts.L, facts.hessian_lipschitz, facts.gradient_bounds[1], facts.hessian_bound
            ),
            facts.d,
            1.0,  # the shares do not depend on rho
            max(facts.value_at_zero - self.lower_bound, 0.0),
            self.failure,
            convex=facts.convex_records,
            multiple=multiple,
            backtrack=backtrack,
        )
        return theory.best_shares(target, self.step)

    def prepare(
        self, facts: PublicFacts, budget: Budget | None, accountant: str
    ) -> SecondOrderPlan:
        """Return the shares, and the horizon and the noise for a start at 0."""
        shares = self.shares or self._best_shares(facts)
        plan = CurvatureMethod.prepare(replace(self, shares=shares), facts, budget, accountant)
        return replace(plan, shares=shares)

    def _least_decrease(self, facts: PublicFacts) -> float:
        if self.hessian == "full":
            most = theory.lanczos_iterations(facts.d, facts.L, self.eps_H, self.failure)
            check_memory(
                facts.d,
                f": hessian='lanczos' takes about {most} vectors of d numbers, "
                f"{most * facts.d * 8 / 2**30:.3g} GiB",
            )
        return self._decrease(facts.L, facts.hessian_lipschitz)

    def _tolerated(self, facts: PublicFacts) -> tuple[float, float]:
        return theory.tolerated_noise(
            self.eps_g, self._curvature, facts.hessian_lipschitz, *self._shares[:3]
        )

    def _query_counts(self, iterations: int) -> Mapping[str, int]:
        searches = {"search": iterations} if self._searches else {}
        return {**super()._query_counts(iterations), **searches}

    def _phases(self, iterations: int) -> list[tuple[int, float]]:
        """Return T/speedup iterations at the first share, then T, or on batches the rest of T."""
        # With n_min records every step of the first phase decreases f by MIN_DEC, since the noise
        # of both phases is within its tolerance. So the rest of T is enough.
        first = math.ceil(iterations / self.speedup)
        full = isinstance(self.sampling, Full)
        rest = iterations if full else iterations - first
        if not self.two_phase or not rest:
            return [(iterations, 1.0)]
        return [(first, self.first_share), (rest, 1.0 - self.first_share)]

    def _search_slack(self, facts: PublicFacts, noise: Noise, failure: float) -> float:
        """Return (16), sharpened, without the factors b: noise of q/gamma is constant in gamma."""
        if not self._searches:
            return 0.0
        tries = max(
            len(_step_sizes(1.0, self.b_g, self.beta_g)),
            len(_step_sizes(1.0, self.b_H, self.beta_H)),
        )
        c, _, c2, c_g, c_H = self._shares
        assert c_g is not None and c_H is not None
        _, t2 = theory.curvature_roots(c, c2, c_H)
        worst = max(
            1.0 / (c_g * self.eps_g),
            2.0 * facts.hessian_lipschitz / (t2 * c_H * self._curvature**2),
        )
        unit = decrease_sensitivity(facts, self.sampling, facts.gradient_bounds[1])
        return 2.0 * noise.search * theory.search_slack(tries, failure) * unit * worst

    # Algorithms 1 to 3

    def run(self, w: np.ndarray, oracle: PrivateOracle, plan: SecondOrderPlan) -> Iterator[Step]:
        """Yield the iterates of Algorithm 1 or 3, up to a second-order point if one is found."""
        method = replace(self, shares=plan.shares)
        queries = QueryCounter(method, oracle, plan)
        for phase in range(queries.phases()):
            iterations, noise = queries.phase(phase, w)
            for _ in range(iterations):
                w, released = method._iterate(w, queries, noise)
                yield Step(w, {**released, "phase": float(phase + 1)})
                if released["second_order_point"]:
                    return

    def _iterate(
        self, w: np.ndarray, queries: QueryCounter, noise: Noise
    ) -> tuple[np.ndarray, dict[str, float]]:
        g = queries.gradient(w, noise)
        length, eigenvalue, step = float(np.linalg.norm(g)), math.nan, 0.0
        found = False
        if length > self.eps_g:
            step = self._gradient_step(w, g, queries, noise)
            w = w - step * g
        else:
            eigenvalue, p = self._smallest(w, queries, noise)
            found = eigenvalue >= -self._curvature
            if not found:
                p = -p if float(p @ g) > 0.0 else p
                step = self._curvature_step(w, p, -eigenvalue, queries, noise)
                w = w + step * p
        return w, queries.released(found, length, eigenvalue, step_size=step)

    def _smallest(
        self, w: np.ndarray, queries: QueryCounter, noise: Noise
    ) -> tuple[float, np.ndarray]:
        """Return the smallest eigenvalue of the noisy Hessian, and its eigenvector."""
        if self.hessian == "full":
            return smallest_eigenpair(queries.hessian(w, noise))
        facts = queries.facts
        queries.hessians += 1
        failure = self.failure / queries.iterations
        U = facts.L + theory.hessian_noise_norm(facts.d, noise.hessian, failure)
        steps = theory.lanczos_iterations(facts.d, U, self.eps_H, failure)
        return queries.ask(NoisyCurvature(w, noise.hessian, steps), self.sampling)

    def _gradient_step(
        self, w: np.ndarray, g: np.ndarray, queries: QueryCounter, noise: Noise
    ) -> float:
        if not self._searches:
            return 1.0 / queries.facts.L
        c_g = self._shares.c_g
        assert c_g is not None
        fallback = 2.0 * (1.0 - self._shares.c1 - c_g) / queries.facts.L
        steps = _step_sizes(fallback, self.b_g, self.beta_g)
        ray = Ray(w, g, steps)
        return self._search(ray, c_g * float(g @ g) * steps, fallback, queries, noise)

    def _curvature_step(
        self, w: np.ndarray, p: np.ndarray, depth: float, queries: QueryCounter, noise: Noise
    ) -> float:
        M = queries.facts.hessian_lipschitz
        if not self._searches:
            return 2.0 * depth / M
        c, _, c2, _, c_H = self._shares
        assert c_H is not None
        fallback = theory.curvature_roots(c, c2, c_H)[1] * depth / M
        steps = _step_sizes(fallback, self.b_H, self.beta_H)
        ray = Ray(w, -p, steps)
        return self._search(ray, 0.5 * c_H * depth * steps**2, fallback, queries, noise)

    def _search(
        self, ray: Ray, required: np.ndarray, fallback: float, queries: QueryCounter, noise: Noise
    ) -> float:
        """Return Algorithm 2's step size: the first that decreases f enough, or the fallback."""
        clip = queries.facts.gradient_bounds[1] * float(np.linalg.norm(ray.direction))
        unit = decrease_sensitivity(queries.facts, self.sampling, clip) * noise.search
        query = FirstDecrease(
            ray, required, clip, "laplace", 2.0 * unit, 4.0 * unit, query="slope_clip"
        )
        found = queries.ask(query, self.sampling)
        return fallback if found is None else float(ray.step_sizes[found])


def smallest_eigenpair(matrix: np.ndarray) -> tuple[float, np.ndarray]:
    """Return the smallest eigenvalue of a symmetric matrix and its unit eigenvector."""
    values, vectors = linalg.eigh(matrix, subset_by_index=[0, 0])
    return float(values[0]), vectors[:, 0]


def _step_sizes(fallback: float, multiple: float, factor: float) -> np.ndarray:
    """Return the fallback times multiple, multiple factor, ..., down to just above the fallback."""
    count = math.ceil(math.log(1.0 / multiple) / math.log(factor) - 1e-9)
    return fallback * multiple * factor ** np.arange(max(count, 1))
