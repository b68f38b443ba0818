"""What Kuru et al. (2022) and their code compute with, where it is not what is proved.

For comparison with their figures only: none of these bounds holds. What is proved stands in
:mod:`dpanalysis.theory`.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from ... import theory
from ._smooth import Array

__all__ = ["printed_recursion", "published_horizon_bounds", "published_multistage_weights"]


def printed_recursion(recursion: theory.ErrorRecursion) -> theory.ErrorRecursion:
    """Return the recursion of (4.3) or (4.8) as printed: without the factor 2 on the first error.

    Parameters
    ----------
    recursion : ErrorRecursion
        Of :func:`~dpanalysis.theory.nesterov_recursion` or
        :func:`~dpanalysis.theory.multistage_recursion`.

    Returns
    -------
    ErrorRecursion
        A false bound: Theorem 4.1 does not hold for ``F(w_t) - F*`` itself.

    References
    ----------
    Kuru et al. (2022), Theorems 4.1 and 4.3; errata 001-9, 001-10.

    Examples
    --------
    >>> a0, _ = theory.nesterov_recursion(3, 1.0, 0.01, 1.0).weights()
    >>> a0, printed_recursion(theory.nesterov_recursion(3, 1.0, 0.01, 1.0)).weights()[0]
    (1.458, 0.729)
    """
    return recursion._replace(start=0.5 * recursion.start)


def published_multistage_weights(
    step_sizes: ArrayLike, stages: ArrayLike, mu: float, L: float
) -> tuple[float, Array]:
    """Return the weights behind the published Fig. 2.

    The authors' code counts the factor 2 of a change of stage one iteration early.

    Parameters
    ----------
    step_sizes, stages, mu, L
        As for :func:`~dpanalysis.theory.multistage_weights`.

    Returns
    -------
    a0 : float
    a : (T,) ndarray

    Raises
    ------
    ValueError
        If an argument is out of its range.

    References
    ----------
    Kuru et al. (2022), Fig. 2; errata 001-22.

    Examples
    --------
    >>> step_sizes, stages = theory.multistage_schedule(3, mu=1.0, L=4.0, first_stage=2)
    >>> published_multistage_weights(step_sizes, stages, 1.0, 4.0)[1].tolist()
    [0.4375, 0.4375, 0.0166]
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

    The authors' code draws Laplace noise of standard deviation ``b_t`` where ``b_t`` is the
    scale. Its variance is half of what privacy needs: such a run is not private.

    Parameters
    ----------
    recursion, initial_gap, dimension, sensitivity, n, epsilon
        As for :func:`~dpanalysis.theory.horizon_bounds`.

    Returns
    -------
    (T,) ndarray
        Entry ``t - 1`` is the bound after ``t`` iterations.

    Raises
    ------
    ValueError
        If an argument is out of its range.

    References
    ----------
    Kuru et al. (2022), section 5, Figs 3 and 4; errata 001-19, 001-23.

    Examples
    --------
    >>> recursion = theory.nesterov_recursion(1000, 1 / 5.1, 0.02, 5.1)
    >>> bounds = published_horizon_bounds(recursion, 10.0, 20, 40.0, 100_000, 1.0)
    >>> int(bounds.argmin()) + 1
    136
    """
    half = sensitivity / math.sqrt(2.0)
    return theory.horizon_bounds(recursion, initial_gap, dimension, half, n, epsilon)
