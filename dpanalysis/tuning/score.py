"""Private scores of what a run gave."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._validation import check_number, largest
from ..privacy import mechanisms
from ..privacy.oracle import LARGEST_ITERATE, PrivateOracle
from ..privacy.plans import Plan
from ..privacy.queries import NoisyValue
from ..privacy.relations import Budget
from ..privacy.sampling import Full
from ..problems.base import Problem

__all__ = ["PrivateLoss"]


@dataclass(frozen=True)
class PrivateLoss:
    """Score of weights: minus their mean loss on the records, clamped and with noise.

    Parameters
    ----------
    problem : Problem
        Its records and its loss; its penalty does not count, so that candidates with different
        penalties can be compared.
    clip : float
        In (0, inf): a loss counts as that at most. 1 is near the loss of a coin, for logistic
        losses.

    Raises
    ------
    ValueError
        If ``clip`` is outside its range.

    Examples
    --------
    >>> import dpanalysis as dpa
    >>> problem = dpa.ERM(np.eye(2), [1, -1], dpa.losses.Logistic(),
    ...                   row_bound=dpa.RowBound(2, 1.0))
    >>> PrivateLoss(problem, clip=2.0)(np.zeros(2), dpa.Budget(1e9), 0)
    -0.6931
    """

    problem: Problem
    clip: float

    def __post_init__(self) -> None:
        check_number("clip", self.clip, low=0.0, low_open=True)

    def __call__(self, output: Any, budget: Budget, rng: Any) -> float:
        """Return the score of weights (d,), or of a Result with one replicate.

        Parameters
        ----------
        output : Result or array_like of shape (d,)
        budget : Budget
            Of this score: pure, for Laplace noise, or zCDP, for Gaussian noise.
        rng : None, int, SeedSequence, Generator, SystemRandom or "os"

        Returns
        -------
        float
            Minus infinity for weights that are not finite, or huge.
        """
        w = np.asarray(getattr(output, "w", output), dtype=np.float64).reshape(-1)
        if not largest(w) <= LARGEST_ITERATE:
            return -math.inf
        facts, law = self.problem.facts(budget.relation), "laplace"
        if budget.rho is not None:
            law = "gaussian"
        elif budget.delta > 0.0:
            raise ValueError(f"budget must be pure or of zCDP, got {budget!r}")
        # At scale 1 the event costs what the sensitivity makes of it.
        unit = NoisyValue(w, self.clip, 1.0, law).event(facts, Full())
        assert unit is not None
        scale = (
            unit.pure_cost() / budget.limit
            if budget.rho is None
            else math.sqrt(unit.zcdp_cost() / budget.rho)
        )
        query = NoisyValue(w, self.clip, scale, law)
        event = query.event(facts, Full())
        assert event is not None
        oracle = PrivateOracle(
            self.problem, facts, Plan(event, budget), [mechanisms.random_source(rng)]
        )
        penalty = self.problem.regularizer
        public = 0.0 if penalty is None else float(penalty.value(w))
        return public - float(oracle.ask(query, Full()))
