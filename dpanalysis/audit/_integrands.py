"""What is summed over outcomes, or integrated over the line: pointwise, in logarithms."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["EPS", "IMPOSSIBLE", "Array", "Integrand", "excess", "first", "moment", "rounding"]

Array: TypeAlias = NDArray[np.float64]
# ln p, ln q, u = ln p/q -> logarithm of the integrand, and how it reacts to the rounding of u.
Integrand: TypeAlias = Callable[[Array, Array, Array], tuple[Array, Array]]

EPS = float(np.finfo(np.float64).eps)
# Below this log density a point is as good as impossible.
IMPOSSIBLE = -700.0


def first(lp: Array, lq: Array, u: Array) -> tuple[Array, Array]:
    """Integrate p alone."""
    return lp, np.ones_like(lp)


def moment(order: float) -> Integrand:
    """Return the integrand of the formula in ``exact``."""
    beta = order - 1.0

    def integrand(lp: Array, lq: Array, u: Array) -> tuple[Array, Array]:
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            value = _log_kappa(-u)
            if beta > 0.0:
                # Far below, kappa is linear: kept from -inf, whose logarithm would outweigh p.
                power = np.maximum(beta * u, -1e300)
                value = np.logaddexp(value, _log_kappa(power) - math.log(beta))
            value = lp + value
            # Where p vanishes, p kappa(-u) tends to q; where both do, nothing is left.
            value = np.where(np.isneginf(lp), lq, value)
            escaped = np.isneginf(lq) & ~np.isneginf(lp)
            value = np.where(escaped, np.where(lp > IMPOSSIBLE, np.inf, -np.inf), value)
            sensitivity = order + 2.0 / np.abs(u)
        return value, sensitivity

    return integrand


def excess(epsilon: float) -> Integrand:
    """Return the integrand (p - e**epsilon q)_+."""

    def integrand(lp: Array, lq: Array, u: Array) -> tuple[Array, Array]:
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            above = np.isposinf(u) if math.isinf(epsilon) else u > epsilon
            over = np.where(above & ~np.isposinf(u), u - epsilon, np.inf)
            value = np.where(above, lp + np.log(-np.expm1(-over)), -np.inf)
            return value, 1.0 + 1.0 / over

    return integrand


def _log_kappa(x: Array) -> Array:
    """Return ln(e**x - 1 - x)."""
    t = np.where(np.abs(x) < 0.2, x, 0.0)
    series = np.ones_like(t)
    for k in range(14, 2, -1):
        series = 1.0 + t / k * series
    small = 2.0 * np.log(np.abs(t)) - math.log(2.0) + np.log(series)
    tame = np.clip(x, -np.inf, 30.0)
    middle = np.log(np.expm1(tame) - tame)
    large = x + np.log1p(-(1.0 + x) * np.exp(-x))
    return np.where(np.abs(x) < 0.2, small, np.where(x > 30.0, large, middle))


def rounding(lp: Array, lq: Array, sensitivity: Array) -> Array:
    """Return the absolute error of the logarithm of an integrand; 1 is as bad as it gets."""
    with np.errstate(invalid="ignore", over="ignore"):
        size = np.where(np.isfinite(lp), np.abs(lp), 0.0)
        size += np.where(np.isfinite(lq), np.abs(lq), 0.0)
        error = 2.0 * EPS * (1.0 + size) * sensitivity
    return np.where(error < 1.0, error, 1.0)
