"""The penalty where none is given: from public facts alone."""

from __future__ import annotations

import math
from dataclasses import replace

from ..methods.perturbation import SOLVER_SHARE, ObjectivePerturbation
from ..privacy.facts import PublicFacts
from ..privacy.queries import curvature_of
from ..privacy.relations import Budget

__all__ = [
    "CURVATURE_SHARE",
    "FACTOR",
    "POWER",
    "TOLERANCE",
    "default_penalty",
    "least_penalty",
    "noise_length",
    "perturbation",
]

#: Most of epsilon that the curvature of a record may cost; what is left buys the noise.
CURVATURE_SHARE = 0.5

#: Of the solver; see :class:`~dpanalysis.methods.ObjectivePerturbation`.
TOLERANCE = 1e-11

#: The rule; ``python -m benchmarks penalty`` fits it to Adult, Bank and ijcnn1, and looks at the
#: outcome on Covertype and a9a.
FACTOR, POWER = 0.85, 1.45


def perturbation() -> ObjectivePerturbation:
    """Return the method of the estimators, yet without a penalty."""
    return ObjectivePerturbation(CURVATURE_SHARE, tolerance=TOLERANCE)


def default_penalty(facts: PublicFacts, budget: Budget) -> float:
    r"""Return the strength of the L2 penalty for a budget.

    The random term has, over n, a length :math:`\tau` in the mean, which the public facts tell. A
    stronger penalty makes the answer less noisy and pulls it to 0: where the penalty outweighs the
    curvature of the data, the best strength is :math:`\tau` over the length of the exact weights,
    and less elsewhere. :math:`0.85\,\tau^{1.45}` was fitted for columns of size 1. Nor is it less
    than :func:`least_penalty`.

    Parameters
    ----------
    facts : PublicFacts
        Of the problem; its penalty does not matter.
    budget : Budget

    Examples
    --------
    >>> import numpy as np
    >>> import dpanalysis as dpa
    >>> problem = dpa.ERM(np.ones((1000, 2)), np.ones(1000), dpa.losses.Logistic(),
    ...                   row_bound=dpa.RowBound(np.inf, 1.0))
    >>> facts = problem.facts("replace_one")
    >>> default_penalty(facts, dpa.Budget(1.0))
    0.00077
    """
    method = perturbation()
    length = noise_length(facts, budget, method)
    return max(FACTOR * length**POWER, least_penalty(facts, budget, method))


def noise_length(facts: PublicFacts, budget: Budget, method: ObjectivePerturbation) -> float:
    """Return the mean length of the random term over n, if the curvature of a record were free."""
    stiff = replace(facts, mu=1e9 * curvature_of(facts).trace)
    term = method.prepare(stiff, budget, "tightest")
    return math.sqrt(term.expected_square(facts.d)) / facts.n


def least_penalty(facts: PublicFacts, budget: Budget, method: ObjectivePerturbation) -> float:
    """Return the penalty below which curvature, or what hides the solver's error, costs too much.

    The first has half of epsilon, and the noise for the second has a length of a tenth.
    """
    curvature = curvature_of(facts)
    tilt = noise_length(facts, budget, method)

    def hidden(strength: float) -> float:
        error = 2.0 * method.least_tolerance(facts, strength, tilt) / strength
        return error * facts.d / (SOLVER_SHARE * budget.limit)

    # It falls with the strength, by at least as much; rounded up to a power of 2.
    strength = 2.0**-60
    while hidden(strength) > 0.1:
        strength *= 2.0
    most = min(CURVATURE_SHARE * budget.limit, 30.0)
    return max(curvature.convexity(most) / facts.n, strength)
