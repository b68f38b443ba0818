"""One private run on bounded rows: its method, its penalty and its cost.

Unless the user gives method or penalty, both depend on public facts and the budget only.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np

from ..clipping import Flat
from ..experiments.loop import whole_runs
from ..experiments.result import Result
from ..experiments.run import minimize
from ..methods.base import Method
from ..methods.perturbation import SOLVER_SHARE, ObjectivePerturbation
from ..methods.sgd import SGD
from ..privacy.accounting.accountant import calibrate
from ..privacy.accounting.relations import Budget
from ..privacy.accounting.sampling import Full
from ..privacy.accounting.selection import Repeats
from ..privacy.events import Event, Gaussian, Repeated, Sampled
from ..privacy.facts import Block, PublicFacts
from ..privacy.ledger import Ledger
from ..privacy.queries import PerturbedMinimum, curvature_of
from ..problems.base import Problem
from ..tuning import PrivateLoss, repeat_and_select

#: Largest share of epsilon for the curvature of a record; the rest is spent on the noise.
CURVATURE_SHARE = 0.5

#: Largest epsilon for the curvature, which bounds the penalty from below: :func:`least_penalty`.
MOST_CURVATURE = 2.0

#: Tolerance of the solver; see :class:`~dpanalysis.methods.ObjectivePerturbation`.
TOLERANCE = 1e-11

#: The penalty rule; ``python -m benchmarks penalty`` fits it to Adult, Bank and ijcnn1, and
#: evaluates it on Covertype and a9a.
FACTOR, POWER = 0.85, 1.45

#: Length of the random term over n from which noisy descent is better; see :func:`descent`.
#: ``python -m benchmarks gaussian`` compares both.
LONG = 0.015

#: Candidates of ``C="private"``, as multiples of the default penalty.
TRIED = (0.25, 1.0, 4.0)
#: Number of trials: with the logarithmic law a run gets half of epsilon, the most of all laws.
REPEATS = Repeats(6.0, 0.0)
_CLIP = 2.0  # of the losses in the score
_CLIPPING = Flat(1.0)  # of descent


def perturbation() -> ObjectivePerturbation:
    """Return objective perturbation with the estimators' settings, but without a penalty."""
    return ObjectivePerturbation(CURVATURE_SHARE, tolerance=TOLERANCE)


def default_penalty(facts: PublicFacts, budget: Budget) -> float:
    r"""Return the strength of the L2 penalty for a budget.

    The random term divided by n has a mean length :math:`\tau` that follows from the public facts.
    A stronger penalty reduces the noise of the answer and shrinks it to 0: where the penalty
    outweighs the curvature of the data, the best strength is :math:`\tau` over the length of the
    exact weights, and less elsewhere. :math:`0.85\,\tau^{1.45}` was fitted for columns of size 1.
    The strength is at least :func:`least_penalty`.
    """
    return max(FACTOR * noise_length(facts, budget) ** POWER, least_penalty(facts, budget))


@lru_cache(maxsize=16)  # several rules, and the runs of all classes, use the same value
def noise_length(facts: PublicFacts, budget: Budget) -> float:
    """Return the mean length of the random term over n, with no budget spent on curvature."""
    stiff = replace(facts, mu=1e9 * curvature_of(facts).trace)
    term = perturbation().prepare(stiff, budget, "tightest")
    return math.sqrt(term.expected_square(facts.d)) / facts.n


def least_penalty(facts: PublicFacts, budget: Budget) -> float:
    r"""Return the penalty below which curvature, or hiding the solver's error, costs too much.

    The curvature gets half of epsilon, and the noise that hides the error has a length of 0.1.

    However large epsilon, the penalty is one that suits a fit without privacy as well. Under a
    normal prior on the weights for which the score of the longest row, of length R, has variance
    :math:`s^2`, the maximum a posteriori estimate has the penalty :math:`R^2/(s^2 n)`. If the
    curvature of a record costs kappa, the logistic loss has :math:`s^2 = 4 (e^\kappa - 1)`. Kappa
    is at most 2, which is a standard deviation s of 5, or a probability of .993; with many columns
    relative to the rows, weaker penalties overfit. So this floor never binds up to epsilon = 4, nor
    above where the noise requires a stronger penalty.
    """
    method, tilt = perturbation(), noise_length(facts, budget)

    def hidden(strength: float) -> float:
        error = 2.0 * method.least_tolerance(facts, strength, tilt) / strength
        return error * facts.d / (SOLVER_SHARE * budget.limit)

    # Doubling the strength at least halves it, so bisection finds the smallest power of 2.
    powers = range(-60, 1000)
    strength = 2.0 ** powers[bisect_left(powers, True, key=lambda k: not hidden(2.0**k) > 0.1)]
    most = min(CURVATURE_SHARE * budget.limit, MOST_CURVATURE)
    return max(curvature_of(facts).convexity(most) / facts.n, strength)


def descent(facts: PublicFacts, budget: Budget, always: bool = False) -> SGD | None:
    r"""Return noisy descent if it is better than objective perturbation, by public facts.

    Descent clips gradients to a length of 1, which no proof of objective perturbation allows. That
    outweighs the cost of its many steps where the noise is long. Columns have size 1, so one
    choice suits all data sets: 100 full-batch steps, equivalent to 500 steps of size 1 without
    momentum, or shorter ones where the accumulated noise would be longer than 10.
    """
    if budget.delta == 0.0 or not (always or noise_length(facts, budget) >= LONG):
        return None
    return clipped_descent(facts, budget, _CLIPPING, 1.0, 10.0)


#: Number of steps without momentum equivalent to those of :func:`clipped_descent`.
PLAIN_STEPS = 500


def clipped_descent(
    facts: PublicFacts, budget: Budget, clipping: Flat, step: float, reach: float
) -> SGD:
    """Return 100 steps of size at most ``step``, whose noise adds up to at most ``reach``."""
    noise = PLAIN_STEPS * mean_noise(facts, budget, clipping) * math.sqrt(facts.d)
    size = min(step, reach / noise)
    return SGD(size, 100, sampling=Full(), clipping=clipping, momentum=0.8)


@lru_cache(maxsize=16)
def mean_noise(facts: PublicFacts, budget: Budget, clipping: Flat) -> float:
    """Return the standard deviation of the steps' mean noise: one release with the whole budget."""
    moved = facts.record_sensitivity(2, clipping) / facts.n
    return calibrate(lambda std: Gaussian(std, moved), budget, (1e-3 * moved, 1e12 * moved))


# What to expect


@dataclass(frozen=True)
class ExpectedAccuracy:
    r"""Accuracy to expect, despite the noise, on the easiest labels, from public facts only.

    The easiest labels follow a linear rule exactly, :math:`y = \mathrm{sign}\langle x,
    u\rangle`, with equally frequent classes. Let the columns of x be centered and uncorrelated with
    variance :math:`\sigma^2`, and :math:`\langle x, u\rangle` be close to normal. The mean gradient
    at w = 0 of a loss with slope s there is then :math:`-s\,\mathrm{E}[y x]`, which has the
    direction of u and the length

    .. math:: s \sigma \sqrt{2/\pi},

    whatever the number of columns. This is the whole signal. The noise has a random direction and a
    length :math:`\tau`: that of the random term over n for objective perturbation, that of the mean
    noise of all steps for descent. In high dimensions the two are orthogonal, and an isotropic
    penalty or curvature changes the length of w but not its direction. So w has an angle of
    :math:`\theta = \arctan(\tau / (s \sigma \sqrt{2/\pi}))` to u, and a share of
    :math:`1 - \theta/\pi` of spherically distributed x is on the same side of both.

    Real labels are harder and lose more. With unequal classes, the largest has a share above one
    half, which the intercept finds.

    *Variances.* Numbers are taken as uniform on their ranges, categories as equally frequent, and
    rows with a bounded norm as having that norm.

    *Clipping.* Where a gradient of typical length would exceed the clip norm of descent, the signal
    is shorter by the same factor.

    *Classes.* In softmax regression with K classes, two classes are separated by a difference of
    weights. A share of 2/K of the records contributes to it, with twice the slope, against a share
    of 2/K of the noise's square.
    """

    noise: float  # length of the noise relative to the mean gradient

    @property
    def accuracy(self) -> float:
        """Expected share of correct predictions of the easiest labels."""
        return 1.0 - math.atan(self.noise) / math.pi


def expected_accuracy(
    facts: PublicFacts, budget: Budget, slope: float, C: float | str, may_descend: bool
) -> ExpectedAccuracy | None:
    """Return the accuracy to expect of :func:`run` for this slope at 0; None for a slope of 0."""
    if not slope:
        return None
    if C == "private":
        budget = replace(budget, epsilon=0.5 * budget.limit)  # of each of the runs
    width = sum(block.size for block in facts.row_blocks[0])
    square = row_variance(facts)
    pull = slope * math.sqrt(2.0 / math.pi * square / width)
    if may_descend and C == "auto" and descent(facts, budget):
        noise = mean_noise(facts, budget, _CLIPPING) * math.sqrt(facts.d)
        pull *= min(1.0, _CLIPPING.clip_norm / (slope * math.sqrt(square)))
    else:
        noise = noise_length(facts, budget)
    K = facts.d // width
    if K > 1:
        noise, pull = math.sqrt(2.0 / K) * noise, 2.0 * (2.0 / K) * pull
    return ExpectedAccuracy(noise / pull)


def row_variance(facts: PublicFacts) -> float:
    """Return the sum of the variances of the columns; see :class:`ExpectedAccuracy`."""
    return min(sum(map(_variance, blocks)) for blocks in facts.row_blocks)


def _variance(block: Block) -> float:
    """Return the total variance of the columns of a block; see :class:`ExpectedAccuracy`."""
    square = block.radius**2
    if block.order == 1 and block.size > 1:
        return square * (1.0 - 1.0 / block.size)
    return square if block.order == 2 else square * block.size / 3.0


@dataclass(frozen=True)
class Run:
    """Weights of a run, shape (d,), its plan and cost, and whether it raised the penalty."""

    w: np.ndarray
    plan: Any
    events: tuple[Event, ...]
    epsilon: float
    delta: float
    expected: Any = None
    raised: bool = False

    @property
    def ledger(self) -> list[str]:
        """One line describing each release."""
        if isinstance(self.plan, PerturbedMinimum) and type(self.events[0]) is Sampled:
            minimizer, hidden = (each.describe() for each in self.events[0].events)
            return [
                f"the exact minimizer with its random term: {minimizer}; "
                f"and noise on it, which hides the solver's error: {hidden}"
            ]
        return [each.describe() for each in self.events]


def run(
    problem: Problem,
    budget: Budget,
    rng: Any,
    C: float | str,
    method: Method | None = None,
    may_descend: bool = False,
) -> Run:
    """Run ``method``, or, if None, the method and penalty that the rules choose for ``C``."""
    if method is None:
        facts = problem.facts(budget.relation)
        if C == "private":
            return _selected(problem, facts, budget, rng)
        method = descent(facts, budget) if may_descend and C == "auto" else None
        if method is None:
            ridge = default_penalty(facts, budget) if C == "auto" else 1.0 / (float(C) * facts.n)
            method = replace(perturbation(), ridge=ridge)
    with whole_runs():
        result = minimize(problem, method, budget, rng=rng, record=())
    events = _counted(result.ledger)
    raised = bool(getattr(result.plan, "ridge", 0.0) > getattr(method, "ridge", 0.0))
    return Run(result.w[0], result.plan, events, result.epsilon(), budget.delta, raised=raised)


def rule_facts(
    runs: Sequence[Run], given: float | str, delta: float, clip: float = 1.0
) -> dict[str, str]:
    """Return the card's entries about method and penalty; ``given`` is C or alpha."""
    plan = runs[0].plan
    if not isinstance(plan, PerturbedMinimum):
        return {
            "Method": "full-batch gradient descent with momentum, gradients clipped to length "
            f"{clip:g}",
            "Noise": "Gaussian noise on every gradient",
            "Why gradients": "by the public sizes and bounds, the noise of objective perturbation "
            f"would have a length of {LONG:g} or more, from where clipped gradients are better",
        }
    noise = {
        "blocks": "Laplace noise in each group of columns, and noise in the maximum norm for the "
        "numbers",
        "spherical": "noise of density exp(-||b||/s) in the L2 norm",
        "gaussian": "Gaussian noise",
    }[plan.law]
    source = {
        "auto": ", by the default rule",
        "private": f", the best of {len(TRIED)} by a private score of some runs, all charged",
    }.get(str(given), ", as given")
    if not isinstance(given, str) and any(each.raised for each in runs):
        source = ", more than was given, since privacy needs it"
    strengths = [f"{each.plan.ridge:.3g}" for each in runs]
    each = strengths[0] if len(set(strengths)) == 1 else f"{', '.join(strengths)} by class"
    facts = {
        "Method": "objective perturbation: the exact minimizer of the penalized loss with a "
        "random linear term",
        "Noise": f"{noise}; of the laws that the bounds allow, the one of the least expected "
        "square",
        "Penalty": f"L2 of strength {each}, on the intercept too{source}",
    }
    if delta > 0.0:
        facts["Why not gradients"] = (
            "full-batch descent and DP-SGD pay for every step; one noisy objective pays once, and "
            "by the public sizes and bounds its noise costs less than steps and clipping would"
        )
    return facts


def _counted(ledger: Ledger) -> tuple[Event, ...]:
    """Return each event once with its count: some methods alternate two events many times."""
    counts: dict[Event, int] = {}
    for event in ledger:
        one, count = (event.event, event.count) if isinstance(event, Repeated) else (event, 1)
        counts[one] = counts.get(one, 0) + count
    return tuple(one if count == 1 else Repeated(one, count) for one, count in counts.items())


def _selected(problem: Problem, facts: PublicFacts, budget: Budget, rng: Any) -> Run:
    """Return the privately selected best of several runs with penalties around the default."""

    def candidate(budget: Budget, rng: Any, times: float) -> Result:
        method = replace(perturbation(), ridge=times * default_penalty(facts, budget))
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
