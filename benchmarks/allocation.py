"""A budget divided over the iterations with m < n, beside SciPy's general solver.

The paper calls the problem intractable and no library offers it; SLSQP manages 50 iterations. At
the target's size we compare with one evaluation of the objective, which every method needs.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
from scipy.optimize import minimize

from dpanalysis import theory

from .measure import Effort, compare, effort, here
from .table import Row

N, M, EPSILON = 100_000, 1000, 1.0


def cost(weights: np.ndarray, shares: np.ndarray) -> float:
    return float(weights @ theory.laplace_scales(shares, 1.0, N, M) ** 2)


def slsqp(weights: np.ndarray) -> np.ndarray:
    T = weights.size
    result = minimize(
        lambda e: np.log(cost(weights, np.maximum(e, 1e-9))),
        np.full(T, EPSILON / T),
        constraints={"type": "eq", "fun": lambda e: e.sum() - EPSILON},
        bounds=[(1e-6 * EPSILON / T, EPSILON)] * T,
        options={"ftol": 1e-10, "maxiter": 500},
    )
    return np.asarray(result.x)


def run(quick: bool) -> Iterator[Row]:
    """Compare at 50, 10,000 and 100,000 iterations."""
    for T in (50, 10_000, 100_000):
        _, weights = theory.nesterov_weights(T, 1.0, 0.01 * (100 / T) ** 2, 1.0)
        shares = theory.allocate_epsilon(weights, EPSILON, N, M)
        if T == 50:
            assert cost(weights, shares) <= cost(weights, slsqp(weights)) * (1 + 1e-6)
            beside = {"SciPy SLSQP": here(partial(slsqp, weights))}
        else:
            beside = {"one evaluation of the objective": here(partial(cost, weights, shares))}
        ours = here(partial(theory.allocate_epsilon, weights, EPSILON, N, M))
        key = f"budget over {T:,} iterations"
        spent = Effort(1 if quick else 5, 0.0, 1) if T == 50 else effort(quick)
        yield from compare(key, f"m = {M} of n = {N:,}", ours, beside, spent)
