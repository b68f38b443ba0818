"""Tiles of samples: what is known of each, and the loops over losses, derivatives, clipping.

A tile is ``(index, table)``: the row numbers, and a table with one row for each of LABEL,
SCALE, NORM, WEIGHT (multiplicity), ONE and LOSS. One table, since every array that a
function is given costs two atomic operations.

The choice of the loss and of the rule stays outside the loops: inside, it keeps LLVM from
vectorising. Unsigned indices need no check for being negative. What :func:`tile_terms` uses is
forced to become part of it, so that its loops are compiled as a whole.

A sample whose prediction, loss, derivative, norm or weight is not a finite number adds exactly
zero to what is computed from it: NaN would pass from one record to the sum and tell that the
record is there. Nothing that a sample adds depends on what else is asked for.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
from numba import carray, cfunc, njit, types, uint64

from .._compiling import CACHE
from .codes import (
    AUTOMATIC,
    FLAT,
    HINGE,
    LOGISTIC,
    PER_SAMPLE_ADAPTIVE,
    SQUARED_ERROR,
    UNCLIPPED,
    VALUE,
)
from .rounding import TINY
from .scalar import (
    FAST,
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

# Compiled with codes.py, sha256 4f61b3dc35b098f6
# Compiled with rounding.py, sha256 878c181a2fb33e56
# Compiled with scalar.py, sha256 6943957e836d8dd8

__all__ = [
    "NORM",
    "SCALE",
    "TERMS",
    "built_in_terms",
    "fill_tile",
    "new_tile",
    "scale_terms",
    "split_rule",
    "tile_terms",
]

LABEL, SCALE, NORM, WEIGHT, ONE, LOSS = 0, 1, 2, 3, 4, 5
_TABLE_ROWS = 6


@njit(**FAST)
def new_tile(size: int) -> Any:
    """Allocate what :func:`fill_tile` fills; scales, norms and weights are 1 until then."""
    return np.empty(size, np.int64), np.ones((_TABLE_ROWS, size))


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
def split_rule(numbers: Any) -> Any:
    """Return the loss's number and parameter, the rule's number and parameters."""
    parameters = numbers[3], numbers[4], numbers[5], numbers[6]
    return int(numbers[0]), numbers[1], int(numbers[2]), parameters


@njit(forceinline=True, **FAST)
def _keep_loss(z: float, loss: float, table: Any, i: int) -> float:
    """Write the loss of sample ``i`` and return its share of the sum: 0 unless it is finite."""
    counts = (abs(z) < math.inf) & (abs(loss) < math.inf)
    table[LOSS, i] = loss if counts else math.inf
    return table[WEIGHT, i] * loss if counts else 0.0


@njit(forceinline=True, **FAST)
def _loss_values(code: int, parameter: Any, z: Any, table: Any, count: int) -> float:
    """Write the losses into the table and return their weighted sum."""
    total = 0.0
    if code == LOGISTIC:
        for i in range(uint64(count)):
            loss = logistic_value(z[i], table[LABEL, i])
            total += _keep_loss(z[i], loss, table, i)
    elif code == SQUARED_ERROR:
        for i in range(uint64(count)):
            loss = squared_value(z[i], table[LABEL, i])
            total += _keep_loss(z[i], loss, table, i)
    elif code == HINGE:
        for i in range(uint64(count)):
            loss = hinge_value(z[i], table[LABEL, i])
            total += _keep_loss(z[i], loss, table, i)
    else:
        for i in range(uint64(count)):
            loss = huberized_value(z[i], table[LABEL, i], parameter)
            total += _keep_loss(z[i], loss, table, i)
    return total


@njit(forceinline=True, **FAST)
def _keep_derivative(z: float, derivative: float, weight: float, lost: float) -> float:
    """Return the weighted derivative, ``lost`` where it or the prediction is not finite."""
    counts = (abs(z) < math.inf) & (abs(derivative) < math.inf)
    return weight * derivative if counts else lost


@njit(forceinline=True, **FAST)
def _loss_derivatives(
    code: int,
    parameter: Any,
    z: Any,
    table: Any,
    weight: int,
    lost: float,
    count: int,
    c: Any,
) -> None:
    """Fill ``c`` with the derivatives times the table's row ``weight``."""
    row = uint64(weight)
    if code == LOGISTIC:
        for i in range(uint64(count)):
            slope = logistic_derivative(z[i], table[LABEL, i])
            c[i] = _keep_derivative(z[i], slope, table[row, i], lost)
    elif code == SQUARED_ERROR:
        for i in range(uint64(count)):
            slope = squared_derivative(z[i], table[LABEL, i])
            c[i] = _keep_derivative(z[i], slope, table[row, i], lost)
    elif code == HINGE:
        for i in range(uint64(count)):
            slope = hinge_derivative(z[i], table[LABEL, i])
            c[i] = _keep_derivative(z[i], slope, table[row, i], lost)
    else:
        for i in range(uint64(count)):
            slope = huberized_derivative(z[i], table[LABEL, i], parameter)
            c[i] = _keep_derivative(z[i], slope, table[row, i], lost)


@njit(forceinline=True, **FAST)
def _clip(code: int, parameters: Any, table: Any, c: Any, i: int) -> bool:
    """Weigh the derivative of sample ``i``; say whether it was scaled down.

    A sample whose derivative, norm, loss or weight is not finite counts as zero: inf * 0
    would give it away.
    """
    derivative, multiplicity, loss = c[i], table[WEIGHT, i], table[LOSS, i]
    size = table[NORM, i] * abs(derivative)
    factor = clip_weight(code, parameters, size, loss)
    term = derivative * factor
    counts = (size < math.inf) & (abs(term) < math.inf)
    if code == VALUE:
        counts &= abs(loss) < math.inf
    c[i] = multiplicity * term if counts & (abs(term) >= TINY) else 0.0
    return counts & (factor < 1.0) & (multiplicity > 0.0)


@njit(forceinline=True, **FAST)
def scale_terms(table: Any, c: Any, count: int) -> None:
    """Multiply the coefficients by the multipliers of their rows."""
    for k in range(count):
        term = c[k] * table[SCALE, k]
        c[k] = term if abs(term) >= TINY else 0.0


# Of tile_terms; arrays come as pointers to the first entry of a tile.
_REALS, _WHOLE = types.CPointer(types.float64), types.int64
TERMS = types.float64(
    _REALS, _WHOLE, _WHOLE, _REALS, _REALS, _WHOLE, _WHOLE, _REALS, types.CPointer(_WHOLE)
)


def tile_terms(
    numbers: Any,
    want_value: int,
    want_gradient: int,
    predictions: Any,
    known: Any,
    columns: int,
    count: int,
    coefficients: Any,
    clipped: Any,
) -> float:
    """Turn a tile's predictions into its loss sum and its gradients' coefficients.

    Reads ``count`` predictions and the table, which has so many columns, and writes the weighted
    (and clipped) derivatives. The kernels call it by its address: :mod:`~dpanalysis.kernels.terms`.

    Returns
    -------
    float
        Weighted sum of the losses (unclipped; 0 unless wanted). ``clipped[0]`` becomes the number
        of samples with a positive weight whose gradient was scaled down.
    """
    z, c = carray(predictions, count), carray(coefficients, count)
    table = carray(known, (_TABLE_ROWS, columns))
    loss_code, parameter, clip_code, parameters = split_rule(numbers)
    value = 0.0
    cut = 0
    if want_value or (clip_code == VALUE and want_gradient):
        value = _loss_values(loss_code, parameter, z, table, count)
    if want_gradient:
        # Clipping sees the gradient of one sample, without its weight.
        row, lost = (WEIGHT, 0.0) if clip_code == UNCLIPPED else (ONE, math.nan)
        _loss_derivatives(loss_code, parameter, z, table, row, lost, count, c)
        if clip_code == FLAT:
            for i in range(uint64(count)):
                cut += _clip(FLAT, parameters, table, c, i)
        elif clip_code == AUTOMATIC:
            for i in range(uint64(count)):
                cut += _clip(AUTOMATIC, parameters, table, c, i)
        elif clip_code == PER_SAMPLE_ADAPTIVE:
            for i in range(uint64(count)):
                cut += _clip(PER_SAMPLE_ADAPTIVE, parameters, table, c, i)
        elif clip_code == VALUE:
            for i in range(uint64(count)):
                cut += _clip(VALUE, parameters, table, c, i)
    clipped[0] = cut
    return value if want_value else 0.0


@cache
def built_in_terms() -> Any:
    """Return :func:`tile_terms` with an ``address``, compiled for the built-in formulas."""
    return cfunc(TERMS, cache=CACHE)(tile_terms)
