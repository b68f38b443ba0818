"""Formulas of Kuru et al. (2022) and of their code that differ from the proved ones.

For comparison with their figures only: none of these bounds is proved. The proved bounds are in
:mod:`dpanalysis.theory`.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from ... import theory
from ..tools import Array


def printed_recursion(recursion: theory.ErrorRecursion) -> theory.ErrorRecursion:
    """Return (4.3) or (4.8) as printed, without the factor 2 on the first error: 001-9, 001-10."""
    return recursion._replace(start=0.5 * recursion.start)


def published_multistage_weights(
    step_sizes: ArrayLike, stages: ArrayLike, mu: float, L: float
) -> tuple[float, Array]:
    """Return the weights behind Fig. 2 of the authors' repository.

    The authors' code applies the factor 2 of a stage change one iteration early. Kuru et al.
    (2022), Fig. 2; errata 001-22.
    """
    recursion = theory.multistage_recursion(step_sizes, stages, mu, L)
    factors, entered = recursion.factors.copy(), np.flatnonzero(np.diff(stages)) + 1
    factors[entered] *= 0.5
    factors[entered - 1] *= 2.0
    return recursion._replace(factors=factors).weights()


def published_horizon_bounds(
    recursion: theory.ErrorRecursion,
    initial_gap: float,
    dimension: int,
    sensitivity: float,
    n: int,
    epsilon: float,
) -> Array:
    """Return the bounds behind the published horizons, full batch and optimal noise.

    The authors' code draws Laplace noise of standard deviation ``b_t``, although ``b_t`` is the
    scale. Its variance is half of what privacy needs: the run is not private. Kuru et al. (2022),
    section 5, Figs 3 and 4; errata 001-19, 001-23.
    """
    half = sensitivity / math.sqrt(2.0)
    return theory.horizon_bounds(recursion, initial_gap, dimension, half, n, epsilon)
