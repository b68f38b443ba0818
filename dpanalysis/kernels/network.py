"""Passes over a block of a network's samples between its matrix products.

A block is small, so that its arrays stay in cache, and a pass by NumPy's functions takes longer to
start than to compute. No number depends on the other samples of the block.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .._numba import EXACT, FAST, njit
from . import UNCLIPPED
from .scalar import clip_weight


@njit(**FAST)
def add_squared_norms(total: Any, inputs: Any, deltas: Any, bias: float) -> None:
    """Add the squared norms of one layer's gradients, in double precision."""
    for i in range(total.shape[0]):
        row, square = inputs[i], bias
        for j in range(row.shape[0]):
            entry = np.float64(row[j])
            square += entry * entry
        row, part = deltas[i], 0.0
        for j in range(row.shape[0]):
            entry = np.float64(row[j])
            part += entry * entry
        total[i] += square * part


@njit(**EXACT)
def multiply_rows(rows: Any, factors: Any, least: float) -> None:
    """Multiply each row by its factor; products below ``least`` or not finite become 0."""
    zero = rows.dtype.type(0)
    for i in range(rows.shape[0]):
        row, factor = rows[i], factors[i]
        for j in range(row.shape[0]):
            product = factor * row[j]
            size = abs(product)
            row[j] = product if (size >= least) & (size < math.inf) else zero


@njit(**FAST)
def add_rounded(total: Any, terms: Any) -> None:
    """Add numbers in single precision to a total in double precision."""
    for j in range(total.shape[0]):
        total[j] += np.float64(terms[j])


# Exact: the product that is compared with the bound is the one that is used.
@njit(**EXACT)
def clip_factors(
    rule: Any,
    weights: Any,
    norms: Any,
    losses: Any,
    counts: Any,
    limits: Any,
    least: float,
    factors: Any,
    lost: Any,
) -> int:
    """Write the factors of one replicate's gradients, and which are lost; return how many are cut.

    ``rule`` is a built-in formula and its numbers; ``weights`` are read if there is none. The steps
    are those of :func:`~dpanalysis.kernels.array_api.clip_to_bound`. A factor below ``least`` is 0.
    """
    (code, numbers), (largest, limit, most, bound) = rule, limits
    zero, total = factors.dtype.type(0), 0
    for i in range(norms.shape[0]):
        norm = norms[i]
        weight = weights[i] if code == UNCLIPPED else clip_weight(code, numbers, norm, losses[i])
        weight = 0.0 if weight < 0.0 else weight
        weight = largest if weight > largest else weight
        weight = limit / norm if weight * norm > most else weight
        weight = 0.0 if weight * norm > bound else weight
        finite = (losses[i] == losses[i]) & (norm < math.inf) & (weight < math.inf)
        lost[i] = not finite
        total += 1 if (counts[i] > 0.0) & ((weight < 1.0) | (not finite)) else 0
        factors[i] = (0.0 if norm == 0.0 else weight) * counts[i]
        size = abs(factors[i])
        factors[i] = factors[i] if finite & (size >= least) & (size < math.inf) else zero
    return total
