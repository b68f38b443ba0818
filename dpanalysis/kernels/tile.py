"""Tiles of samples: what is known of each, and the loops over losses, derivatives, clipping.

A tile is ``(index, table)``: the row numbers, and a table with one row for each of LABEL,
SCALE, NORM, WEIGHT (multiplicity), ONE and LOSS. One table, since every array that a
function is given costs two atomic operations; for the same reason buffers come whole, with
the place where the tile starts.

The choice of the loss and of the rule stays outside the loops: inside, it keeps LLVM from
vectorising. Unsigned indices need no check for being negative. Inlining is forced: a call
with so many arguments costs as much as the loop over a tile.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit, uint64

from .scalar import (
    AUTOMATIC,
    FAST,
    FLAT,
    HINGE,
    HUBERIZED_HINGE,
    LOGISTIC,
    PER_SAMPLE_ADAPTIVE,
    SQUARED_ERROR,
    UNCLIPPED,
    VALUE,
    clip_weight,
    hinge_derivative,
    hinge_value,
    huberized_derivative,
    huberized_value,
    logistic_derivative,
    logistic_value,
    squared_derivative,
    squared_value,
)

# Compiled with scalar.py, sha256 625d18e2b3bf13bf

__all__ = ["SCALE", "fill_tile", "new_tile", "tile_terms"]

LABEL, SCALE, NORM, WEIGHT, ONE, LOSS = 0, 1, 2, 3, 4, 5


@njit(**FAST)
def new_tile(size: int) -> Any:
    """Allocate what :func:`fill_tile` fills; scales, norms and weights are 1 until then."""
    return np.empty(size, np.int64), np.ones((6, size))


@njit(**FAST)
def fill_tile(
    y: Any,
    scale: Any,
    norms: Any,
    weights: Any,
    rows: Any,
    indexed: bool,
    start: int,
    count: int,
    tile: Any,
) -> None:
    """Gather what is known of each sample: row number, label, scale, norm, weight."""
    index, table = tile
    for k in range(count):
        i = rows[start + k] if indexed else start + k
        index[k] = i
        table[LABEL, k] = y[i]
    if scale.shape[0] > 0:
        for k in range(count):
            table[SCALE, k] = scale[index[k]]
    if norms.shape[0] > 0:
        for k in range(count):
            table[NORM, k] = norms[index[k]]
    if weights.shape[0] > 0:
        for k in range(count):
            table[WEIGHT, k] = weights[index[k]]


@njit(forceinline=True, **FAST)
def _loss_values(code: int, parameter: float, z: Any, at: int, table: Any, count: int) -> float:
    """Write the losses into the table and return their weighted sum."""
    base = uint64(at)
    total = 0.0
    if code == LOGISTIC:
        for i in range(uint64(count)):
            loss = logistic_value(z[base + i], table[LABEL, i])
            table[LOSS, i] = loss
            total += table[WEIGHT, i] * loss
    elif code == SQUARED_ERROR:
        for i in range(uint64(count)):
            loss = squared_value(z[base + i], table[LABEL, i])
            table[LOSS, i] = loss
            total += table[WEIGHT, i] * loss
    elif code == HINGE:
        for i in range(uint64(count)):
            loss = hinge_value(z[base + i], table[LABEL, i])
            table[LOSS, i] = loss
            total += table[WEIGHT, i] * loss
    elif code == HUBERIZED_HINGE:
        for i in range(uint64(count)):
            loss = huberized_value(z[base + i], table[LABEL, i], parameter)
            table[LOSS, i] = loss
            total += table[WEIGHT, i] * loss
    else:
        total = math.nan
        table[LOSS, :] = math.nan
    return total


@njit(forceinline=True, **FAST)
def _loss_derivatives(
    code: int, parameter: float, z: Any, at: int, table: Any, weight: int, count: int, c: Any
) -> None:
    """Fill ``c`` with the derivatives times the table's row ``weight``."""
    base = uint64(at)
    row = uint64(weight)
    if code == LOGISTIC:
        for i in range(uint64(count)):
            c[base + i] = table[row, i] * logistic_derivative(z[base + i], table[LABEL, i])
    elif code == SQUARED_ERROR:
        for i in range(uint64(count)):
            c[base + i] = table[row, i] * squared_derivative(z[base + i], table[LABEL, i])
    elif code == HINGE:
        for i in range(uint64(count)):
            c[base + i] = table[row, i] * hinge_derivative(z[base + i], table[LABEL, i])
    elif code == HUBERIZED_HINGE:
        for i in range(uint64(count)):
            c[base + i] = table[row, i] * huberized_derivative(
                z[base + i], table[LABEL, i], parameter
            )
    else:
        c[:] = math.nan


@njit(forceinline=True, **FAST)
def _clip(code: int, parameters: Any, table: Any, c: Any, place: int, i: int) -> bool:
    """Weigh the derivative at ``place``, of sample ``i``; say whether it was scaled down."""
    derivative, multiplicity = c[place], table[WEIGHT, i]
    factor = clip_weight(code, parameters, table[NORM, i] * abs(derivative), table[LOSS, i])
    clipped = derivative * factor
    # A gradient that overflows counts as zero: inf * 0 would give every sample away.
    c[place] = multiplicity * clipped if abs(clipped) < math.inf else 0.0
    return (factor < 1.0) & (multiplicity > 0.0)


@njit(forceinline=True, **FAST)
def tile_terms(
    rule: Any,
    want_value: bool,
    want_gradient: bool,
    z: Any,
    at: int,
    table: Any,
    count: int,
    c: Any,
) -> Any:
    """Turn a tile's predictions into its loss sum and its gradients' coefficients.

    Reads the ``count`` predictions of ``z`` from ``at`` on and writes, at the same place
    of ``c``, the weighted (and clipped) derivatives.

    Returns
    -------
    value, clipped : float, int
        Weighted sum of the losses (unclipped; 0 unless wanted) and number of samples
        with a positive weight whose gradient was scaled down.
    """
    loss_code, parameter, clip_code, bound, r1, r2, r3 = rule
    parameters = bound, r1, r2, r3
    value = 0.0
    clipped = 0
    if want_value or (clip_code == VALUE and want_gradient):
        value = _loss_values(loss_code, parameter, z, at, table, count)
    if want_gradient:
        base = uint64(at)
        # Clipping sees the gradient of one sample, without its weight.
        row = WEIGHT if clip_code == UNCLIPPED else ONE
        _loss_derivatives(loss_code, parameter, z, at, table, row, count, c)
        if clip_code == FLAT:
            for i in range(uint64(count)):
                clipped += _clip(FLAT, parameters, table, c, base + i, i)
        elif clip_code == AUTOMATIC:
            for i in range(uint64(count)):
                clipped += _clip(AUTOMATIC, parameters, table, c, base + i, i)
        elif clip_code == PER_SAMPLE_ADAPTIVE:
            for i in range(uint64(count)):
                clipped += _clip(PER_SAMPLE_ADAPTIVE, parameters, table, c, base + i, i)
        elif clip_code == VALUE:
            for i in range(uint64(count)):
                clipped += _clip(VALUE, parameters, table, c, base + i, i)
        elif clip_code != UNCLIPPED:
            c[:] = math.nan
    return (value if want_value else 0.0), clipped
