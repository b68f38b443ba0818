"""One private run on the rows of a design: which method, with which penalty, and what it cost."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ..clipping import Flat
from ..experiments.result import Result
from ..experiments.run import minimize
from ..methods.base import Method
from ..methods.perturbation import ObjectivePerturbation
from ..methods.sgd import SGD
from ..privacy.calibration import calibrate
from ..privacy.events import Event, Gaussian
from ..privacy.facts import PublicFacts
from ..privacy.relations import Budget
from ..privacy.repeats import Repeats
from ..privacy.sampling import Full
from ..problems.empirical import EmpiricalRisk
from ..tuning import PrivateLoss, repeat_and_select
from .penalty import default_penalty, noise_length, perturbation

__all__ = ["Run", "descent", "run"]

#: Length of the random term over n from which noisy descent is the better of the two; see
#: :func:`descent`. ``python -m benchmarks gaussian`` shows both.
LONG = 0.015

#: Candidates of ``C="private"``: times the default penalty.
TRIED = (0.25, 1.0, 4.0)
#: How often they are tried: by the logarithmic law a run gets half of epsilon, and by no law more.
REPEATS = Repeats(6.0, 0.0)
_CLIP = 2.0  # of a loss in the score


@dataclass(frozen=True)
class Run:
    """What a run gave, and what it cost.

    Attributes
    ----------
    w : ndarray of shape (d,)
    plan : object
        Of the method.
    events : tuple of Event
    epsilon, delta : float
    """

    w: np.ndarray
    plan: Any
    events: tuple[Event, ...]
    epsilon: float
    delta: float


def descent(facts: PublicFacts, budget: Budget, always: bool = False) -> SGD | None:
    r"""Return noisy descent where it is better than objective perturbation, by public facts.

    Descent clips gradients to a length of 1, which no proof of objective perturbation can, and
    that outweighs what its many steps cost where the noise is long. Columns have size 1, so what
    is good for one data set is for others: 100 steps on all records, which lead as far as 500 plain
    steps of size 1, or less far where the noise that they add up would be longer than 10.

    Parameters
    ----------
    facts : PublicFacts
        Of a problem with the logistic loss.
    budget : Budget
        With a delta of 0 there is no cheap composition, and the answer is None.
    always : bool
        Whether it is wanted where it is not the better one, too.
    """
    short = not always and noise_length(facts, budget, perturbation()) < LONG
    if budget.delta == 0.0 or short:
        return None
    clipping = Flat(1.0)
    moved = facts.record_sensitivity(2, clipping) / facts.n
    std = calibrate(lambda std: Gaussian(std, moved), budget, (1e-3 * moved, 1e12 * moved))
    size = min(1.0, 10.0 / (500.0 * std * math.sqrt(facts.d)))
    return SGD(size, 100, sampling=Full(), clipping=clipping, momentum=0.8)


def run(problem: EmpiricalRisk, budget: Budget, rng: Any, C: float | str, may_descend: bool) -> Run:
    """Return one run on a problem without a penalty.

    Parameters
    ----------
    problem : EmpiricalRisk
    budget : Budget
        All of it is spent.
    rng : None, int, SeedSequence, Generator or "os"
    C : float, "auto" or "private"
        As of :class:`LogisticRegression`.
    may_descend : bool
        Whether "auto" may take :func:`descent`.
    """
    facts = problem.facts(budget.relation)
    if C == "private":
        return _selected(problem, facts, budget, rng)
    method: Method | None = descent(facts, budget) if may_descend and C == "auto" else None
    if method is None:
        ridge = default_penalty(facts, budget) if C == "auto" else 1.0 / (float(C) * facts.n)
        method = replace(perturbation(), ridge=ridge)
    result = minimize(problem, method, budget, rng=rng, record=())
    return Run(
        result.w[0], result.plan, tuple(result.ledger.events), result.epsilon(), budget.delta
    )


def _selected(problem: EmpiricalRisk, facts: PublicFacts, budget: Budget, rng: Any) -> Run:
    """Return the best of a random number of runs with penalties around the default."""

    def candidate(budget: Budget, rng: Any, times: float) -> Result:
        ridge = times * default_penalty(facts, budget)
        method: ObjectivePerturbation = replace(perturbation(), ridge=ridge)
        return minimize(problem, method, budget, rng=rng, record=())

    chosen = repeat_and_select(
        [partial(candidate, times=times) for times in TRIED],
        budget,
        score=PrivateLoss(problem, _CLIP),
        repeats=REPEATS,
        rng=rng,
    )
    best = chosen.output
    return Run(best.w[0], best.plan, tuple(chosen.ledger.events), chosen.epsilon(), 0.0)
