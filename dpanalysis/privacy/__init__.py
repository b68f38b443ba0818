"""Privacy: events with explicit units, their costs, filters, and sources of noise.

A number outside the range that a docstring states raises ValueError.

Examples
--------
>>> from dpanalysis import privacy
>>> step = privacy.events.Sampled(
...     privacy.Poisson(0.01), [privacy.events.Gaussian(std=2.0, sensitivity=1.0)]
... )
>>> run = privacy.events.Repeated(step, 1000)
>>> round(privacy.epsilon(run, 1e-5, "add_or_remove_one"), 2)
0.62
"""

from __future__ import annotations

from . import events, mechanisms
from .accounting.accountant import calibrate, epsilon, fits, plan_order, spent
from .accounting.curves import PrivacyCurve, privacy_curve
from .accounting.epochs import bins_lower_epsilon, shuffle_lower_epsilon
from .accounting.last_iterate import last_iterate_gdp, last_iterate_gdp_cyclic
from .accounting.pure import (
    amplify_poisson,
    amplify_without_replacement,
    deamplify_without_replacement,
    laplace_epsilon,
)
from .accounting.rdp import (
    rdp_gaussian,
    rdp_laplace,
    rdp_poisson,
    rdp_poisson_gaussian,
    rdp_pure,
    rdp_to_epsilon,
    rdp_without_replacement,
)
from .accounting.relations import ADD_OR_REMOVE_ONE, REPLACE_ONE, Budget
from .accounting.sampling import (
    BallsInBins,
    Full,
    Poisson,
    RandomAllocation,
    Shuffle,
    WithoutReplacement,
    WithReplacement,
)
from .accounting.selection import Repeats
from .accounting.sparse_vector import rdp_above_threshold
from .accounting.with_replacement import pure_with_replacement, rdp_with_replacement
from .accounting.zcdp import (
    epsilon_to_zcdp,
    gaussian_delta,
    gaussian_epsilon,
    zcdp_pure,
    zcdp_to_epsilon,
)
from .budget import Filter, Plan
from .ledger import Ledger

__all__ = [
    "ADD_OR_REMOVE_ONE",
    "REPLACE_ONE",
    "BallsInBins",
    "Budget",
    "Filter",
    "Full",
    "Ledger",
    "Plan",
    "Poisson",
    "PrivacyCurve",
    "RandomAllocation",
    "Repeats",
    "Shuffle",
    "WithReplacement",
    "WithoutReplacement",
    "amplify_poisson",
    "amplify_without_replacement",
    "bins_lower_epsilon",
    "calibrate",
    "deamplify_without_replacement",
    "epsilon",
    "epsilon_to_zcdp",
    "events",
    "fits",
    "gaussian_delta",
    "gaussian_epsilon",
    "laplace_epsilon",
    "last_iterate_gdp",
    "last_iterate_gdp_cyclic",
    "mechanisms",
    "plan_order",
    "privacy_curve",
    "pure_with_replacement",
    "rdp_above_threshold",
    "rdp_gaussian",
    "rdp_laplace",
    "rdp_poisson",
    "rdp_poisson_gaussian",
    "rdp_pure",
    "rdp_to_epsilon",
    "rdp_with_replacement",
    "rdp_without_replacement",
    "shuffle_lower_epsilon",
    "spent",
    "zcdp_pure",
    "zcdp_to_epsilon",
]
