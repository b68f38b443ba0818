"""Formulas of one sample, written once and compiled by Numba.

A loss is a pair ``value, derivative`` of the prediction ``z = <x, w>`` and the label
``y``, chosen by an integer code. A new loss adds one pair here, one loop to each of
``_loss_sum`` and ``_loss_derivatives``, and one class in :mod:`dpanalysis.losses`.
Clipping rules are chosen the same way.

LLVM's own ``exp`` and ``log1p`` are function calls that stop a loop from being
vectorised, so the two that the logistic loss needs are polynomials here. They are
compiled without reassociation: the reduction of the argument relies on the order
of its operations.

Numba's cache on disk watches the file of the kernel that is called, not the files that
the kernel calls: after an edit here, touch the other files of this folder too. (A code
that a stale kernel does not know gives NaN.)
"""

from __future__ import annotations

import math
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types, uint64
from numba.extending import intrinsic

__all__ = ["FAST", "clip_weight", "exp_neg", "log1p_unit", "tile_terms"]

# "nnan" and "ninf" stay out: NaN must survive. Division is not a branch.
FAST: dict[str, Any] = {
    "cache": True,
    "nogil": True,
    "error_model": "numpy",
    "fastmath": {"reassoc", "contract", "arcp", "nsz"},
}
EXACT: dict[str, Any] = {**FAST, "fastmath": {"contract"}}

LOGISTIC, SQUARED_ERROR = 0, 1
UNCLIPPED, FLAT = 0, 1

_LOG2_E = 1.4426950408889634
_LN2_HIGH = 6.93147180369123816490e-01  # 33 bits, so that k * _LN2_HIGH is exact
_LN2_LOW = 1.90821492927058770002e-10


@intrinsic
def _float_of_bits(typingctx: Any, bits: Any) -> Any:
    """Read 64 bits as a double (a constant-time power of two)."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.DoubleType())

    return types.float64(types.int64), codegen


@njit(**EXACT)
def exp_neg(a: float) -> float:
    """Return exp(-a) for a >= 0, relative error below 1e-15; 0 past a = 708."""
    bounded = 708.0 if a > 708.0 else a  # NaN passes
    k = int(bounded * _LOG2_E + 0.5)
    r = (bounded - k * _LN2_HIGH) - k * _LN2_LOW
    # (exp(-r) - 1 + r) / r^2, Chebyshev fit on |r| <= ln(2)/2 with error 1.3e-17.
    q = 2.762007600563138e-07 + r * -2.5100375929185925e-08
    q = -2.7557268480106926e-06 + r * q
    q = 2.480152132210459e-05 + r * q
    q = -0.00019841269863040675 + r * q
    q = 0.001388888891719689 + r * q
    q = -0.008333333333330065 + r * q
    q = 0.041666666666624164 + r * q
    q = -0.16666666666666669 + r * q
    q = 0.5000000000000001 + r * q
    power: float = _float_of_bits((1023 - k) << 52)  # type: ignore[call-arg]
    result = (1.0 + r * (-1.0 + r * q)) * power
    return 0.0 if a > 708.0 else result


@njit(**EXACT)
def log1p_unit(e: float) -> float:
    """Return log(1 + e) for 0 <= e <= 1, relative error below 1e-15."""
    s = e / (2.0 + e)  # log(1 + e) = 2 atanh(s)
    t = s * s
    # (atanh(s)/s - 1) / s^2, Chebyshev fit on t <= 1/9 with error 5.0e-18.
    q = 0.04400367139066766 + t * 0.08082027268617653
    q = 0.06000536816607911 + t * q
    q = 0.0665707206154139 + t * q
    q = 0.07692785035118474 + t * q
    q = 0.09090894717972423 + t * q
    q = 0.111111113587158 + t * q
    q = 0.1428571428355436 + t * q
    q = 0.20000000000007292 + t * q
    q = 0.3333333333333333 + t * q
    return 2.0 * (s + s * (t * q))


@njit(**FAST)
def _logistic_value(z: float, y: float) -> float:
    margin = y * z
    size = abs(margin)
    return log1p_unit(exp_neg(size)) + 0.5 * (size - margin)


@njit(**FAST)
def _logistic_derivative(z: float, y: float) -> float:
    margin = y * z
    e = exp_neg(abs(margin))
    # sigmoid(-margin), from the exponential that cannot overflow.
    return -y * (1.0 if margin < 0.0 else e) / (1.0 + e)


@njit(**FAST)
def _squared_value(z: float, y: float) -> float:
    return 0.5 * (z - y) * (z - y)


@njit(**FAST)
def _squared_derivative(z: float, y: float) -> float:
    return z - y


# The choice of the loss stays outside the loops: inside, it keeps LLVM from vectorising.
# Buffers come whole, with the place where the tile starts: a slice costs two atomic
# operations. Unsigned indices need no check for being negative. Inlining is forced: a call
# with so many arguments costs as much as the loop over a tile.


@njit(forceinline=True, **FAST)
def _loss_sum(
    code: int, parameter: float, z: Any, at: int, y: Any, weights: Any, count: int
) -> float:
    """Return the weighted sum of the losses."""
    total = 0.0
    base = uint64(at)
    if code == LOGISTIC:
        for i in range(uint64(count)):
            total += weights[i] * _logistic_value(z[base + i], y[i])
    elif code == SQUARED_ERROR:
        for i in range(uint64(count)):
            total += weights[i] * _squared_value(z[base + i], y[i])
    else:
        total = math.nan
    return total


@njit(forceinline=True, **FAST)
def _loss_derivatives(
    code: int, parameter: float, z: Any, at: int, y: Any, weights: Any, count: int, c: Any
) -> None:
    """Fill ``c`` with the weighted derivatives with respect to the predictions."""
    base = uint64(at)
    if code == LOGISTIC:
        for i in range(uint64(count)):
            c[base + i] = weights[i] * _logistic_derivative(z[base + i], y[i])
    elif code == SQUARED_ERROR:
        for i in range(uint64(count)):
            c[base + i] = weights[i] * _squared_derivative(z[base + i], y[i])
    else:
        c[:] = math.nan


@njit(**FAST)
def clip_weight(code: int, bound: float, norm: float) -> float:
    """Return the multiplier of one sample's gradient, given its norm."""
    if code == FLAT:
        # A hair below bound/norm, so that rounding cannot push the product over the bound.
        return (1.0 - 2.0**-50) * bound / norm if norm > bound else 1.0
    return 1.0


@njit(forceinline=True, **FAST)
def tile_terms(
    rule: Any,
    want_value: bool,
    want_gradient: bool,
    z: Any,
    at: int,
    tile: Any,
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
        with a positive weight whose gradient was clipped.
    """
    loss_code, parameter, clip_code, clip_bound = rule
    _, y, _, norms, weights = tile
    value = 0.0
    clipped = 0
    if want_value:
        value = _loss_sum(loss_code, parameter, z, at, y, weights, count)
    if want_gradient:
        _loss_derivatives(loss_code, parameter, z, at, y, weights, count, c)
        if clip_code != UNCLIPPED:
            base = uint64(at)
            for i in range(uint64(count)):
                # Clipping sees the gradient of one sample, without its weight.
                norm = norms[i] * abs(c[base + i])
                multiplicity = weights[i]
                norm = norm / multiplicity if multiplicity > 0.0 else 0.0
                factor = clip_weight(clip_code, clip_bound, norm)
                clipped += factor < 1.0
                # A gradient that overflows counts as zero: inf * 0 would give every sample away.
                c[base + i] = c[base + i] * factor if norm < math.inf else 0.0
    return value, clipped
