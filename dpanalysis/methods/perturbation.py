"""Output perturbation, objective perturbation and quantiles: methods of one step."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar

import numpy as np

from .._validation import check_choice, check_fraction, check_int, check_number, check_positive
from ..privacy.accounting.accountant import calibrate
from ..privacy.accounting.relations import Budget
from ..privacy.events import Event
from ..privacy.facts import PublicFacts
from ..privacy.k_norm import gaussian_shape, norm_shape
from ..privacy.oracle import PrivateOracle
from ..privacy.queries import (
    NoisyDescent,
    NoisyQuantile,
    PerturbedMinimum,
    Query,
    curvature_of,
    largest_step,
)
from ..privacy.queries.solutions import rounding_of_gradient
from .base import FULL, Method, Step

#: Privacy cost of the noise that masks the solver's error, relative to that of the minimizer.
SOLVER_SHARE = 0.01
_MOST_HIDING = 0.02  # most of its effect on a record's gradient, relative to the gradient's bound


class OneShot(Method):
    """A method that releases the answer to one query on all records."""

    released: ClassVar[tuple[str, ...]] = ("w",)

    @abstractmethod
    def prepare(self, facts: PublicFacts, budget: Budget | None, accountant: str) -> Query:
        """Return the query with its calibrated noise."""

    def events(self, facts: PublicFacts, plan: Query) -> list[Event]:
        """Return the one event of the run."""
        event = plan.event(facts, FULL)
        return [] if event is None else [event]

    def run(self, w: np.ndarray, oracle: PrivateOracle, plan: Query) -> Iterator[Step]:
        """Yield the answer."""
        yield Step(oracle.ask(plan, FULL))


@dataclass(frozen=True, repr=False)
class OutputPerturbation(OneShot):
    r"""Gradient descent without noise, followed by noise on the result: bolt-on privacy.

    The sensitivity of the result follows from the contraction of gradient steps. The noise is
    Gaussian or, for a pure budget, has density proportional to :math:`e^{-\|x\|/s}`.

    Parameters
    ----------
    kind : {"permuted_sgd", "gradient_descent"}
        ``"permuted_sgd"``: passes over the records in random batches, drawn once; the iterates of
        the last pass are averaged, followed by one step on all records.
        ``"gradient_descent"``: every step on all records.
    passes : int, default=10
        Number of passes over the records.
    batches : int
        Number of batches in a pass of ``"permuted_sgd"``.
    step_size : float, optional
        At most :func:`dpanalysis.privacy.queries.largest_step`; by default half of it, about 1/L.

    Raises
    ------
    ValueError
        In :func:`dpanalysis.minimize`, if a record's loss is not convex, Lipschitz and smooth by
        public bounds (the hinge loss is not smooth), the penalty is not convex or does not have its
        minimum at 0, the step size is too large, or gradients are computed in single precision
        (float32 rows of another library).

    Notes
    -----
    The proofs are in :class:`dpanalysis.privacy.queries.NoisyDescent`. Strong convexity (an L2
    penalty) helps but is not required. Both neighbouring relations are covered; the batch of each
    record is drawn independently and not by a permutation, so that an added record leaves the
    other records in their batches.

    References
    ----------
    Chen, Lee, Kifer (2019), Renyi differentially private ERM for smooth objectives; Wu et al.
    (2017), Bolt-on differential privacy; Zhang et al. (2017), Efficient private ERM for smooth
    objectives.

    Examples
    --------
    >>> import numpy as np
    >>> import dpanalysis as dpa
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(5000, 3))
    >>> problem = dpa.ERM(X, np.sign(X @ [1.0, -2.0, 0.5]), dpa.losses.Logistic(),
    ...                   dpa.regularizers.L2(0.01), dpa.RowBound(2, 3.0**0.5))
    >>> method = dpa.methods.OutputPerturbation("gradient_descent", passes=20)
    >>> result = dpa.minimize(problem, method, dpa.Budget(1.0, delta=1e-6), rng=0)
    >>> result.epsilon(), bool(problem.accuracy(result.w)[0] > 0.9)
    (1.0, True)
    """

    kind: str = "permuted_sgd"
    _: KW_ONLY
    passes: int = 10
    batches: int = 50
    step_size: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("kind", self.kind, ("permuted_sgd", "gradient_descent"))
        check_int("passes", self.passes, low=1)
        check_int("batches", self.batches, low=1)
        if self.step_size is not None:
            check_positive("step_size", self.step_size)

    def prepare(self, facts: PublicFacts, budget: Budget | None, accountant: str) -> NoisyDescent:
        """Return the descent with its calibrated noise."""
        sgd = self.kind == "permuted_sgd"
        batches = self.batches if sgd else 1
        step = self.step_size or 0.5 * largest_step(facts, batches)
        start = np.zeros(facts.d)
        query = NoisyDescent(start, step, batches, self.passes, sgd, _noise_law(budget), 0.0)
        unit = float(query.sensitivities(facts)[0].max())
        if budget is None:
            return query
        scale = smallest_scale(
            lambda scale: replace(query, scale=scale), unit, facts, budget, accountant
        )
        return replace(query, scale=scale)

    def run(self, w: np.ndarray, oracle: PrivateOracle, plan: Any) -> Iterator[Step]:
        """Yield the noisy result of the descent from ``w``."""
        return super().run(w, oracle, replace(plan, start=w))


@dataclass(frozen=True, repr=False)
class ObjectivePerturbation(OneShot):
    r"""Minimization of the objective plus a random linear term.

    The term is Gaussian, or has density proportional to :math:`e^{-\|b\|/s}`, in the norm, or the
    norms of blocks of columns, for which the public bounds on the rows make it shortest.

    Parameters
    ----------
    curvature_share : float
        In (0, 1): the largest share of epsilon for the curvature of a record. If it would cost
        more, the L2 penalty is increased as needed.
    tolerance : float
        In (0, 1): the solver stops at a gradient of this norm, in units of the sum of the bound
        on one record's gradient and the norm of the random term over n, or above the rounding
        errors. Small noise on the minimizer masks the remaining error, at a hundredth of the cost.
        The penalty is increased as needed for this noise to change a record's gradient by at most
        a fiftieth of its bound.
    ridge : float
        L2 penalty that is always added.

    Raises
    ------
    ValueError
        As in :class:`OutputPerturbation`, except for the penalty and the step size; also if the
        loss is no function of linear predictions, and for zCDP budgets, which have no bound here.

    Notes
    -----
    The proofs are in :class:`dpanalysis.privacy.queries.PerturbedMinimum`. Both neighbouring
    relations are covered.

    *The noise.* Each bound on the rows gives a norm, or blocks of columns with a norm each, over
    which :func:`dpanalysis.privacy.k_norm.norm_shape` divides the budget. Of these and, for delta >
    0, the Gaussian ones, the term of least expected square is used, whatever the data.

    References
    ----------
    Chaudhuri, Monteleoni, Sarwate (2011); Kifer, Smith, Thakurta (2012); Iyengar et al. (2019);
    Redberg, Koskela, Wang (2023); Hardt and Talwar (2010), Awan and Slavkovic (2020) for the norms.

    Examples
    --------
    >>> import numpy as np
    >>> import dpanalysis as dpa
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(5000, 3))
    >>> problem = dpa.ERM(X, np.sign(X @ [1.0, -2.0, 0.5]), dpa.losses.Logistic(),
    ...                   dpa.regularizers.L2(0.01), dpa.RowBound(2, 3.0**0.5))
    >>> method = dpa.methods.ObjectivePerturbation()
    >>> result = dpa.minimize(problem, method, dpa.Budget(0.1), rng=0)
    >>> result.epsilon(), bool(problem.accuracy(result.w)[0] > 0.9)
    (0.1, True)
    """

    curvature_share: float = 0.25
    tolerance: float = 1e-10
    ridge: float = 0.0
    needs: ClassVar[tuple[str, ...]] = ("minimize_perturbed",)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("ridge", self.ridge, low=0.0)
        for name in ("curvature_share", "tolerance"):
            check_fraction(name, getattr(self, name))

    def prepare(
        self, facts: PublicFacts, budget: Budget | None, accountant: str
    ) -> PerturbedMinimum:
        """Return the query with the added penalty and both noise scales."""
        if budget is None:
            return PerturbedMinimum("gaussian", 0.0, self.ridge, self.tolerance, 0.0)
        if budget.rho is not None:
            raise ValueError(
                f"budget must be of (epsilon, delta) for objective perturbation, got {budget!r}"
            )
        curvature = curvature_of(facts)
        # For a share above 30 the required penalty is negligible.
        most = min(self.curvature_share * budget.limit, 30.0)
        ridge = max(self.ridge, curvature.convexity(most) / facts.n - facts.mu)
        kinds = self._best_terms(facts, budget)
        while True:
            terms = (
                self._calibrated(replace(term, ridge=ridge), facts, budget, accountant)
                for term in kinds
            )
            best = min(terms, key=lambda term: term.expected_square(facts.d))
            # The smaller the penalty, the larger the bound on the solver's error: far from 0,
            # predictions are rounded more. The noise that hides it must not change gradients much.
            last = "gaussian" if best.law == "gaussian" else "spherical"
            hiding = replace(best, law=last, shape=(), scale=best.output_scale)
            change = curvature.trace * math.sqrt(hiding.expected_square(facts.d))
            small = change <= _MOST_HIDING * facts.gradient_bounds[1]
            if small or facts.mu + ridge >= curvature.trace:
                return best
            ridge = 4.0 * (facts.mu + ridge) - facts.mu

    def least_tolerance(self, facts: PublicFacts, convexity: float, tilt: float) -> float:
        """Return the solver's tolerance, given the strong convexity and the term's norm over n.

        It is above twice the rounding errors of a gradient at the minimizer and of its predictions.
        """
        slope = facts.gradient_bounds[1] + tilt
        return max(self.tolerance * slope, 2.0 * rounding_of_gradient(facts, tilt, convexity))

    def _best_terms(self, facts: PublicFacts, budget: Budget) -> list[PerturbedMinimum]:
        """Return the best term of each kind of noise that the budget allows, at scale 1."""
        plain = PerturbedMinimum("spherical", 1.0, 0.0, self.tolerance, 1.0)
        pure = [plain] + [
            replace(plain, law="blocks", shape=norm_shape(moved))
            for moved in facts.block_sensitivities(1)
        ]
        laws = [pure]
        if _noise_law(budget) == "gaussian":
            round_term = replace(plain, law="gaussian")
            shapes = [gaussian_shape(moved) for moved in facts.block_sensitivities(2)]
            laws.append([round_term] + [replace(round_term, shape=shape) for shape in shapes])
        # Compared at equal cost, at the scales for which the sensitivity is 1.
        return [
            min(law, key=lambda term: term.expected_square(facts.d) * term.shift(facts) ** 2)
            for law in laws
        ]

    def _calibrated(
        self, term: PerturbedMinimum, facts: PublicFacts, budget: Budget, accountant: str
    ) -> PerturbedMinimum:
        """Return the term with the smallest scales that fit the budget."""
        shift, convexity = term.shift(facts), facts.mu + term.ridge
        length = math.sqrt(term.expected_square(facts.d)) / facts.n  # in the mean, at scale 1
        share = math.sqrt(SOLVER_SHARE) if term.law == "gaussian" else SOLVER_SHARE

        def at(scale: float) -> PerturbedMinimum:
            tolerance = self.least_tolerance(facts, convexity, scale * length)
            hidden = 2.0 * tolerance / convexity * scale / (share * shift)
            return replace(term, scale=scale, tolerance=tolerance, output_scale=hidden)

        return at(smallest_scale(at, shift, facts, budget, accountant))


@dataclass(frozen=True, repr=False)
class Quantiles(Method):
    """A noisy quantile of every column of a table: see :class:`.queries.NoisyQuantile`."""

    level: float
    candidates: tuple[float, ...]
    _: KW_ONLY
    side: str = "below"
    released: ClassVar[tuple[str, ...]] = ("w",)

    def __post_init__(self) -> None:
        super().__post_init__()
        NoisyQuantile(0, self.level, self.candidates, 1.0, self.side)  # validates the arguments

    def prepare(
        self, facts: PublicFacts, budget: Budget | None, accountant: str
    ) -> list[NoisyQuantile]:
        """Return a query for every column, with equal shares of the budget."""
        if budget is None or budget.epsilon is None:
            raise ValueError(f"budget must be of epsilon for quantiles, got {budget!r}")
        scale = 2.0 * facts.d / budget.epsilon
        return [
            NoisyQuantile(j, self.level, self.candidates, scale, self.side) for j in range(facts.d)
        ]

    def events(self, facts: PublicFacts, plan: list[NoisyQuantile]) -> list[Event]:
        """Return the event of every column."""
        return [event for query in plan if (event := query.event(facts, FULL)) is not None]

    def run(self, w: np.ndarray, oracle: PrivateOracle, plan: Any) -> Iterator[Step]:
        """Yield all quantiles at once."""
        yield Step(np.array([oracle.ask(query, FULL) for query in plan]))


def _noise_law(budget: Budget | None) -> str:
    """Return the law of the noise for a budget; Gaussian noise is never pure."""
    pure = budget is not None and budget.rho is None and budget.delta == 0.0
    return "spherical" if pure else "gaussian"


def smallest_scale(
    make: Callable[[float], Query], unit: float, facts: PublicFacts, budget: Budget, accountant: str
) -> float:
    """Return the smallest scale for which the query fits the budget, searched around ``unit``."""

    def events(scale: float) -> Event:
        event = make(scale).event(facts, FULL)
        assert event is not None
        return event

    return calibrate(events, budget, (1e-3 * unit, 1e12 * unit), accountant=accountant)
