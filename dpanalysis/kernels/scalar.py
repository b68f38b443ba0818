"""Losses, derivatives and clipping weights of one sample, compiled by Numba.

A loss is a pair ``value, derivative`` of the prediction ``z = <x, w>`` and the label ``y``.
:mod:`dpanalysis.kernels.kernel_table` maps classes to formulas; :mod:`dpanalysis.kernels.user`
compiles users' losses and rules.

LLVM's ``exp`` and ``log1p`` are function calls, which prevent vectorization, so they are
polynomials here. They are compiled without reassociation: the reduction of the argument relies on
the order of its operations.

An unknown code gives NaN.
"""

from __future__ import annotations

import math
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types, uint64
from numba.extending import intrinsic

from .._numba import EXACT, FAST, njit
from . import AUTOMATIC, FLAT, PER_SAMPLE_ADAPTIVE, VALUE

BELOW_ONE = 1.0 - 2.0**-50

_LOG2_E = 1.4426950408889634
_LN2_HIGH = 6.93147180369123816490e-01  # 33 bits, so that k * _LN2_HIGH is exact
_LN2_LOW = 1.90821492927058770002e-10
_SHIFT = (1024 << 52) - 0x3FE6A09E667F3BCD  # less the bits of sqrt(1/2)


@intrinsic
def _float_of_bits(typingctx: Any, bits: Any) -> Any:
    """Reinterpret 64 bits as a double."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.DoubleType())

    return types.float64(types.int64), codegen


@intrinsic
def _bits_of_float(typingctx: Any, number: Any) -> Any:
    """Reinterpret a double as 64 bits."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.IntType(64))

    return types.int64(types.float64), codegen


@njit(**EXACT)
def _exp_reduced(a: float, k: float) -> float:
    """Return exp(-r) for r = a - k ln 2 of size at most ln(2)/2."""
    r = (a - k * _LN2_HIGH) - k * _LN2_LOW
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
    return 1.0 + r * (-1.0 + r * q)


@njit(**EXACT)
def exp_neg(a: float) -> float:
    """Return exp(-a) for a >= 0, relative error below 1e-15; 0 past a = 708."""
    bounded = 708.0 if a > 708.0 else a  # NaN passes
    k = int(bounded * _LOG2_E + 0.5)
    power: float = _float_of_bits((1023 - k) << 52)  # type: ignore[call-arg]
    result = _exp_reduced(bounded, k) * power
    return 0.0 if a > 708.0 else result


@njit(**EXACT)
def exp_any(x: float) -> float:
    """Return exp(x), relative error below 1e-15; 0 below x = -708, inf past 709.78."""
    bounded = 709.78 if x > 709.78 else x  # NaN passes
    bounded = -708.0 if bounded < -708.0 else bounded
    k = int(bounded * _LOG2_E + 1024.5) - 1024
    # Half of the power of two, which itself would overflow at the upper end.
    half: float = _float_of_bits((1022 + k) << 52)  # type: ignore[call-arg]
    result = 2.0 * (_exp_reduced(-bounded, -k) * half)
    result = math.inf if x > 709.78 else result
    return 0.0 if x < -708.0 else result


@njit(**EXACT)
def _log_ratio(s: float) -> float:
    """Return log((1 + s) / (1 - s)) for s of size at most 1/3."""
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


@njit(**EXACT)
def log1p_unit(e: float) -> float:
    """Return log(1 + e) for 0 <= e <= 1, relative error below 1e-15."""
    return _log_ratio(e / (2.0 + e))


@njit(**EXACT)
def log_any(x: float) -> float:
    """Return log(x), relative error below 1e-15; -inf at 0, NaN below."""
    tiny = x < 2.3e-308
    bits: int = _bits_of_float(x * 2.0**54 if tiny else x)  # type: ignore[call-arg]
    # x = 2^k m with m in [sqrt(1/2), sqrt(2)); an unsigned shift, which every processor vectorizes.
    k = int(uint64(bits + _SHIFT) >> uint64(52)) - 1024
    m: float = _float_of_bits(bits - (k << 52))
    k = k - 54 if tiny else k
    result = k * _LN2_HIGH + (k * _LN2_LOW + _log_ratio((m - 1.0) / (m + 1.0)))
    result = x if x == math.inf else result
    result = -math.inf if x == 0.0 else result
    return result if x >= 0.0 else math.nan


@njit(**EXACT)
def log1p_any(x: float) -> float:
    """Return log(1 + x), relative error below 1e-15; -inf at -1, NaN below."""
    total = 1.0 + x
    lost = x - (total - 1.0) if x < 1.0 else 1.0 - (total - x)  # rounding error of the sum
    ordinary = (x > -1.0) & (x < math.inf)
    return log_any(total) + (lost / total if ordinary else 0.0)


@njit(**FAST)
def logistic_value(z: float, y: float) -> float:
    """Return ln(1 + exp(-yz))."""
    margin = y * z
    size = abs(margin)
    return log1p_unit(exp_neg(size)) + 0.5 * (size - margin)


@njit(**FAST)
def logistic_derivative(z: float, y: float) -> float:
    """Return the derivative of :func:`logistic_value`."""
    margin = y * z
    e = exp_neg(abs(margin))
    # sigmoid(-margin), from the exponential that cannot overflow.
    return -y * (1.0 if margin < 0.0 else e) / (1.0 + e)


@njit(**FAST)
def squared_value(z: float, y: float) -> float:
    """Return (z - y)^2 / 2."""
    return 0.5 * (z - y) * (z - y)


@njit(**FAST)
def squared_derivative(z: float, y: float) -> float:
    """Return the residual."""
    return z - y


@njit(**FAST)
def huber_derivative(z: float, y: float, width: float) -> float:
    """Return the residual, clipped at ``width``."""
    residual = z - y
    inside = width if residual > width else residual  # NaN passes
    return -width if inside < -width else inside


@njit(**FAST)
def huber_value(z: float, y: float, width: float) -> float:
    """Return (z - y)^2 / 2 up to residuals of size ``width``, and its tangent beyond."""
    inside = huber_derivative(z, y, width)
    return inside * ((z - y) - 0.5 * inside)


@njit(**FAST)
def hinge_value(z: float, y: float) -> float:
    """Return max(0, 1 - yz)."""
    margin = y * z
    return 0.0 if margin >= 1.0 else 1.0 - margin  # NaN passes


@njit(**FAST)
def hinge_derivative(z: float, y: float) -> float:
    """Return the subgradient of the hinge loss, 0 at its corner."""
    margin = y * z
    below = -y if margin < 1.0 else margin  # NaN passes
    return 0.0 if margin >= 1.0 else below


@njit(**EXACT)  # a vectorized loop would multiply by the reciprocal, which rounds differently
def _quotient(a: float, b: float) -> float:
    return a / b


@njit(**FAST)
def _huberized_slope(gap: float, width: float) -> float:
    inside = width if gap > width else gap
    inside = -width if inside < -width else inside
    return 0.5 * (_quotient(inside, width) + 1.0)


@njit(**FAST)
def huberized_value(z: float, y: float, width: float) -> float:
    """Return the hinge loss with its corner replaced by a parabola."""
    gap = 1.0 - y * z
    slope = _huberized_slope(gap, width)
    return gap if gap >= width else width * slope * slope


@njit(**FAST)
def huberized_derivative(z: float, y: float, width: float) -> float:
    """Return the derivative of :func:`huberized_value`."""
    return -y * _huberized_slope(1.0 - y * z, width)


@njit(**EXACT)
def cut_weight(weight: float, norm: float, bound: float) -> float:
    """Return the weight, reduced where its product with the norm exceeds the bound."""
    # Slightly below bound/norm, so that rounding cannot push the product over the bound.
    weight = BELOW_ONE * bound / norm if weight * norm > bound else weight
    weight = 0.0 if weight * norm > bound else weight  # the quotient was subnormal
    return weight if norm == norm else norm


# Exact: with reassociation the product compared with the bound need not be the one used.
@njit(**EXACT)
def clip_weight(code: int, parameters: Any, norm: float, loss: float) -> float:
    """Return the multiplier of one sample's gradient, given its norm and its loss."""
    bound, a, b, c = parameters
    weight = math.nan
    if code == FLAT:
        weight = 1.0
    elif code == AUTOMATIC:
        weight = bound / (norm + a)
    elif code == PER_SAMPLE_ADAPTIVE:
        weight = bound / (norm + a / (norm + a))
    elif code == VALUE:
        excess = loss - c
        size = math.sqrt(a * (0.0 if excess < 0.0 else excess) + b)
        weight = 1.0 if size <= bound else bound / size
        weight = 0.0 if loss == math.inf else weight
    return cut_weight(weight, norm, bound)
