"""Tiles of samples: loops over losses, derivatives and clipping weights, shared by all kernels.

A kernel passes over the data by tiles of up to 256 samples. It computes a tile's predictions and
calls :func:`tile_terms`, compiled for the built-in formulas or for users' formulas
(:mod:`dpanalysis.kernels.user`), by its address: a kernel is compiled once for each form of the
data, whatever the formulas.

A tile is ``(index, table)``: the row numbers, and a table with one row for each of LABEL,
SCALE, NORM, WEIGHT (multiplicity), ONE and LOSS. It is a single table because every array
argument costs two atomic operations.

The branches on the loss and the rule are outside the loops, where they do not prevent
vectorization. Unsigned indices need no check for negative values. The functions that
:func:`tile_terms` calls are inlined, so that its loops are compiled as a whole.

A sample whose prediction, loss, derivative, norm or weight is not a finite number adds exactly
zero to the sums computed from it: NaN would propagate from one record to the sum and reveal the
record's presence. The term of a sample does not depend on which other results are requested.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import carray, types, uint64
from numba.core import cgutils
from numba.extending import intrinsic

from .._numba import INNER, cfunc, njit
from . import (
    AUTOMATIC,
    FLAT,
    HINGE,
    HUBER,
    LOGISTIC,
    PER_SAMPLE_ADAPTIVE,
    SQUARED_ERROR,
    UNCLIPPED,
    VALUE,
)
from .rounding import TINY
from .scalar import (
    clip_weight,
    hinge_derivative,
    hinge_value,
    huber_derivative,
    huber_value,
    huberized_derivative,
    huberized_value,
    logistic_derivative,
    logistic_value,
    squared_derivative,
    squared_value,
)


@intrinsic
def _terms_at(
    typingctx: Any,
    address: Any,
    numbers: Any,
    want_value: Any,
    want_gradient: Any,
    z: Any,
    at: Any,
    table: Any,
    count: Any,
    c: Any,
) -> Any:
    """Call the function at an address for a tile; return its value and how many were clipped."""
    whole = types.int64
    result = types.Tuple((types.float64, whole))

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        def array(k: int) -> Any:
            return context.make_array(signature.args[k])(context, builder, args[k])

        address, _, want_value, want_gradient, _, at, _, count, _ = args
        numbers, z, table, c = (array(k) for k in (1, 4, 6, 8))
        clipped = cgutils.alloca_once_value(builder, context.get_constant(whole, 0))
        given = [
            numbers.data,
            want_value,
            want_gradient,
            builder.gep(z.data, [at]),
            table.data,
            cgutils.unpack_tuple(builder, table.shape)[1],
            count,
            builder.gep(c.data, [at]),
            clipped,
        ]
        kind = ir.FunctionType(ir.DoubleType(), [each.type for each in given])
        value = builder.call(builder.inttoptr(address, kind.as_pointer()), given)
        return context.make_tuple(builder, result, [value, builder.load(clipped)])

    return result(whole, numbers, whole, whole, z, whole, table, whole, c), codegen


#: Typed as Any: the signature of an intrinsic is not that of its calls.
terms_at: Any = _terms_at


LABEL, SCALE, NORM, WEIGHT, ONE, LOSS = 0, 1, 2, 3, 4, 5
_TABLE_ROWS = 6


@njit(**INNER)
def new_tile(size: int) -> Any:
    """Allocate a tile for :func:`fill_tile`, with scales, norms and weights 1."""
    return np.empty(size, np.int64), np.ones((_TABLE_ROWS, size))


@njit(**INNER)
def fill_tile(samples: Any, rows: Any, indexed: bool, start: int, count: int, tile: Any) -> None:
    """Gather row number, label, scale, norm and weight of each sample."""
    y, scale, norms, weights, _ = samples
    index, table = tile
    if indexed:
        for k in range(uint64(count)):
            index[k] = rows[uint64(start) + k]
    else:
        for k in range(uint64(count)):
            index[k] = start + k
    _gather(y, index, indexed, start, table, uint64(LABEL), count)
    if scale.shape[0] > 0:
        _gather(scale, index, indexed, start, table, uint64(SCALE), count)
    if norms.shape[0] > 0:
        _gather(norms, index, indexed, start, table, uint64(NORM), count)
    if weights.shape[0] > 0:
        _gather(weights, index, indexed, start, table, uint64(WEIGHT), count)


@njit(forceinline=True, **INNER)
def _gather(
    source: Any, index: Any, indexed: bool, start: int, table: Any, row: int, count: int
) -> None:
    """Write the entries of the samples into a row of the table."""
    if indexed:
        for k in range(uint64(count)):
            table[row, k] = source[uint64(index[k])]
    else:
        for k in range(uint64(count)):
            table[row, k] = source[uint64(start) + k]


@njit(forceinline=True, **INNER)
def split_rule(numbers: Any) -> Any:
    """Return the loss's code and parameter, and the rule's code and parameters."""
    parameters = numbers[3], numbers[4], numbers[5], numbers[6]
    return int(numbers[0]), numbers[1], int(numbers[2]), parameters


@njit(forceinline=True, **INNER)
def _keep_loss(z: float, loss: float, table: Any, i: int) -> float:
    """Write the loss of sample ``i`` and return its term of the sum, 0 unless it is finite."""
    counts = (abs(z) < math.inf) & (abs(loss) < math.inf)
    table[LOSS, i] = loss
    return table[WEIGHT, i] * loss if counts else 0.0


@njit(forceinline=True, **INNER)
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
    elif code == HUBER:
        for i in range(uint64(count)):
            loss = huber_value(z[i], table[LABEL, i], parameter)
            total += _keep_loss(z[i], loss, table, i)
    else:
        for i in range(uint64(count)):
            loss = huberized_value(z[i], table[LABEL, i], parameter)
            total += _keep_loss(z[i], loss, table, i)
    return total


@njit(forceinline=True, **INNER)
def _keep_derivative(z: float, derivative: float, weight: float, lost: float) -> float:
    """Return the weighted derivative, ``lost`` where it or the prediction is not finite."""
    counts = (abs(z) < math.inf) & (abs(derivative) < math.inf)
    return weight * derivative if counts else lost


@njit(forceinline=True, **INNER)
def _loss_derivatives(
    code: int, parameter: Any, z: Any, table: Any, weight: int, lost: float, count: int, c: Any
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
    elif code == HUBER:
        for i in range(uint64(count)):
            slope = huber_derivative(z[i], table[LABEL, i], parameter)
            c[i] = _keep_derivative(z[i], slope, table[row, i], lost)
    else:
        for i in range(uint64(count)):
            slope = huberized_derivative(z[i], table[LABEL, i], parameter)
            c[i] = _keep_derivative(z[i], slope, table[row, i], lost)


@njit(forceinline=True, **INNER)
def _clip(code: int, parameters: Any, table: Any, c: Any, i: int) -> bool:
    """Weight the derivative of sample ``i``; return whether it was scaled down."""
    # A sample with any nonfinite number counts as zero: inf * 0 would reveal it.
    derivative, multiplicity, loss = c[i], table[WEIGHT, i], table[LOSS, i]
    size = table[NORM, i] * abs(derivative)
    factor = clip_weight(code, parameters, size, loss)
    term = derivative * factor
    counts = (size < math.inf) & (abs(term) < math.inf)
    if code == VALUE:
        counts &= abs(loss) < math.inf
    c[i] = multiplicity * term if counts & (abs(term) >= TINY) else 0.0
    return counts & (factor < 1.0) & (multiplicity > 0.0)


@njit(forceinline=True, **INNER)
def scale_terms(table: Any, c: Any, count: int) -> None:
    """Multiply the coefficients by the multipliers of their rows."""
    for k in range(count):
        term = c[k] * table[SCALE, k]
        c[k] = term if abs(term) >= TINY else 0.0


@njit(**INNER)
def close_block(block: Any, total: Any) -> None:
    """Add the sum of a block of rows to the sum of all earlier blocks, and begin a new one."""
    for j in range(total.shape[0]):
        total[j] += block[j]
        block[j] = 0.0


# The signature of tile_terms; arrays are pointers to the first entry of a tile.
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
    """Compute a tile's loss sum and the weighted (clipped) derivatives, from its predictions."""
    z, c = carray(predictions, count), carray(coefficients, count)
    table = carray(known, (_TABLE_ROWS, columns))
    loss_code, parameter, clip_code, parameters = split_rule(numbers)
    value = 0.0
    cut = 0
    if want_value or (clip_code == VALUE and want_gradient):
        value = _loss_values(loss_code, parameter, z, table, count)
    if want_gradient:
        # Clipping applies to the gradient of one sample, without its multiplicity.
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
    return cfunc(TERMS, tile_terms)
