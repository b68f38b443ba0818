"""One private run on bounded rows: its method, its penalty and its cost.

Where the user gives neither, both are chosen from public facts and the budget alone.
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

#: Most of epsilon that the curvature of a record may cost; the rest buys the noise.
CURVATURE_SHARE = 0.5

#: Most epsilon that the curvature may cost, which is a floor of the penalty: :func:`least_penalty`.
MOST_CURVATURE = 2.0

#: Of the solver; see :class:`~dpanalysis.methods.ObjectivePerturbation`.
TOLERANCE = 1e-11

#: The rule; ``python -m benchmarks penalty`` fits it to Adult, Bank and ijcnn1, and looks at the
#: outcome on Covertype and a9a.
FACTOR, POWER = 0.85, 1.45

#: Length of the random term over n from which noisy descent is the better of the two; see
#: :func:`descent`. ``python -m benchmarks gaussian`` shows both.
LONG = 0.015

#: Candidates of ``C="private"``: times the default penalty.
TRIED = (0.25, 1.0, 4.0)
#: How often they are tried: by the logarithmic law a run gets half of epsilon, and by no law more.
REPEATS = Repeats(6.0, 0.0)
_CLIP = 2.0  # of a loss in the score
_CLIPPING = Flat(1.0)  # of descent


def perturbation() -> ObjectivePerturbation:
    """Return the estimators' objective perturbation, still without a penalty."""
    return ObjectivePerturbation(CURVATURE_SHARE, tolerance=TOLERANCE)


def default_penalty(facts: PublicFacts, budget: Budget) -> float:
    r"""Return the strength of the L2 penalty for a budget.

    The random term has, over n, a mean length :math:`\tau` that follows from the public facts. A
    stronger penalty makes the answer less noisy and pulls it to 0: where the penalty outweighs the
    curvature of the data, the best strength is :math:`\tau` over the length of the exact weights,
    and less elsewhere. :math:`0.85\,\tau^{1.45}` was fitted for columns of size 1. The strength is
    not below :func:`least_penalty`.
    """
    return max(FACTOR * noise_length(facts, budget) ** POWER, least_penalty(facts, budget))


@lru_cache(maxsize=16)  # the rules below ask for the same one, and so does each class of several
def noise_length(facts: PublicFacts, budget: Budget) -> float:
    """Return the mean length of the random term over n, if the curvature of a record were free."""
    stiff = replace(facts, mu=1e9 * curvature_of(facts).trace)
    term = perturbation().prepare(stiff, budget, "tightest")
    return math.sqrt(term.expected_square(facts.d)) / facts.n


def least_penalty(facts: PublicFacts, budget: Budget) -> float:
    r"""Return the penalty below which curvature, or hiding the solver's error, costs too much.

    The curvature has half of epsilon, and the noise that hides the error has a length of a tenth.

    However large epsilon, the penalty is one that a fit without privacy wants as well. Weights with
    a normal prior under which the score of the longest row, of length R, has variance
    :math:`s^2` have the penalty :math:`R^2/(s^2 n)` at the maximum of the posterior. Where the
    curvature of a record costs kappa, the logistic loss has :math:`s^2 = 4 (e^\kappa - 1)`. Kappa
    is at most 2, that is a standard deviation s of 5, or a probability of .993; with many columns
    for the rows, weaker penalties overfit. So this floor never binds up to epsilon = 4, and later
    where the noise asks for more.
    """
    method, tilt = perturbation(), noise_length(facts, budget)

    def hidden(strength: float) -> float:
        error = 2.0 * method.least_tolerance(facts, strength, tilt) / strength
        return error * facts.d / (SOLVER_SHARE * budget.limit)

    # A doubled strength halves it at least, so the smallest power of 2 is found by bisection.
    powers = range(-60, 1000)
    strength = 2.0 ** powers[bisect_left(powers, True, key=lambda k: not hidden(2.0**k) > 0.1)]
    most = min(CURVATURE_SHARE * budget.limit, MOST_CURVATURE)
    return max(curvature_of(facts).convexity(most) / facts.n, strength)


def descent(facts: PublicFacts, budget: Budget, always: bool = False) -> SGD | None:
    r"""Return noisy descent where it is better than objective perturbation, by public facts.

    Descent clips gradients to a length of 1, which no proof of objective perturbation can, and
    that outweighs the cost of its many steps where the noise is long. Columns have size 1, so one
    choice suits all data sets: 100 steps on all records, which lead as far as 500 plain
    steps of size 1, or less far where the noise that they add up would be longer than 10.
    """
    if budget.delta == 0.0 or not (always or noise_length(facts, budget) >= LONG):
        return None
    return clipped_descent(facts, budget, _CLIPPING, 1.0, 10.0)


#: So many plain steps lead as far as those of :func:`clipped_descent`.
PLAIN_STEPS = 500


def clipped_descent(
    facts: PublicFacts, budget: Budget, clipping: Flat, step: float, reach: float
) -> SGD:
    """Return 100 steps of size ``step`` at most, whose noise adds up to a length of ``reach``."""
    noise = PLAIN_STEPS * mean_noise(facts, budget, clipping) * math.sqrt(facts.d)
    size = min(step, reach / noise)
    return SGD(size, 100, sampling=Full(), clipping=clipping, momentum=0.8)


@lru_cache(maxsize=16)
def mean_noise(facts: PublicFacts, budget: Budget, clipping: Flat) -> float:
    """Return the deviation of all steps' mean noise, that of one step at the cost of the budget."""
    moved = facts.record_sensitivity(2, clipping) / facts.n
    return calibrate(lambda std: Gaussian(std, moved), budget, (1e-3 * moved, 1e12 * moved))


# What to expect


@dataclass(frozen=True)
class Outlook:
    r"""What the noise leaves of the clearest labels, from public facts alone.

    Labels are clearest if they follow a linear rule exactly, :math:`y = \mathrm{sign}\langle x,
    u\rangle`, with equally frequent classes. Let the columns of x be centered and uncorrelated with
    a variance of :math:`\sigma^2`, and :math:`\langle x, u\rangle` be close to normal. At w = 0
    the mean gradient of a loss of slope s there is then :math:`-s\,\mathrm{E}[y x]`, which has the
    direction of u and the length

    .. math:: s \sigma \sqrt{2/\pi},

    whatever the number of columns: that is all with which the records pull. The noise pulls into a
    random direction with a length :math:`\tau`: of objective perturbation the random term over n,
    of descent the mean noise of all steps. In many dimensions the two are orthogonal, and a penalty
    or a curvature that is the same in all directions changes the length of w and not its direction.
    So w has an angle of :math:`\theta = \arctan(\tau / (s \sigma \sqrt{2/\pi}))` to u, and of
    spherical x a share of :math:`1 - \theta/\pi` is on the same side of both.

    Real labels are less clear and lose more. The largest class of unequal ones has a larger share
    than a half, which the intercept finds.

    Notes
    -----
    *Variances.* Numbers are taken as uniform in their ranges, categories as equally frequent, and
    of a row of which a norm is bounded, as that long.

    *Clipping.* Where a gradient of typical length would be longer than the clip norm of descent,
    the records' pull is shorter by as much.

    *Classes.* Of softmax regression with K classes two are told apart by a difference of weights,
    in which a share of 2/K of the records pulls, with twice the slope, against a share of 2/K of
    the noise's square.
    """

    noise: float  # its length, in units of the pull of all records

    @property
    def right(self) -> float:
        """Share of the clearest labels that are expected to be predicted."""
        return 1.0 - math.atan(self.noise) / math.pi


def outlook(
    facts: PublicFacts, budget: Budget, slope: float, C: float | str, may_descend: bool
) -> Outlook | None:
    """Return what to expect of :func:`run` with this slope at 0; None for a slope of 0."""
    if not slope:
        return None
    if C == "private":
        budget = replace(budget, epsilon=0.5 * budget.limit)  # of each of several runs
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
    return Outlook(noise / pull)


def row_variance(facts: PublicFacts) -> float:
    """Return the sum of the variances of the columns; see :class:`Outlook`."""
    return min(sum(map(_variance, blocks)) for blocks in facts.row_blocks)


def _variance(block: Block) -> float:
    """Return the variance of all columns of a block of a typical row; see :class:`Outlook`."""
    square = block.radius**2
    if block.order == 1 and block.size > 1:
        return square * (1.0 - 1.0 / block.size)
    return square if block.order == 2 else square * block.size / 3.0


@dataclass(frozen=True)
class Run:
    """The weights of a run, shape (d,), its plan and cost, and whether it raised the penalty."""

    w: np.ndarray
    plan: Any
    events: tuple[Event, ...]
    epsilon: float
    delta: float
    outlook: Any = None
    raised: bool = False

    @property
    def ledger(self) -> list[str]:
        """Each release in a line of plain words."""
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
    """Run ``method``, or without one the method and the penalty of the rules for ``C``."""
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
    found = Run(result.w[0], result.plan, events, result.epsilon(), budget.delta)
    return replace(found, raised=_ridge(result.plan) > _ridge(method))


def _ridge(of: Any) -> float:
    return float(getattr(of, "ridge", 0.0))


def rule_facts(
    runs: Sequence[Run], given: float | str, delta: float, clip: float = 1.0
) -> dict[str, str]:
    """Return a card's part about method and penalty, of which a number or a rule was ``given``.

    ``clip`` is the clip norm of a descent.
    """
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
            "its noise is short by the public sizes and bounds"
        )
    return facts


def _counted(ledger: Ledger) -> tuple[Event, ...]:
    """Return each event once with its count: some methods alternate two of them for long."""
    counts: dict[Event, int] = {}
    for event in ledger:
        one, count = (event.event, event.count) if isinstance(event, Repeated) else (event, 1)
        counts[one] = counts.get(one, 0) + count
    return tuple(one if count == 1 else Repeated(one, count) for one, count in counts.items())


def _selected(problem: Problem, facts: PublicFacts, budget: Budget, rng: Any) -> Run:
    """Return the best of a random number of runs with penalties around the default."""

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
