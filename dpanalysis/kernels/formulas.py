"""What the functions of NumPy mean in a formula of two numbers.

A loss of one's own is written for arrays. Compiled, each of its variables is one number, and
``np`` (or the namespace that ``array_namespace`` returns) is :data:`SCALARS`: NumPy, with the
functions here in place of those that make arrays or that keep a loop from being vectorised.
"""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any

import numpy as np
from numba import njit
from numba.extending import overload

from .scalar import EXACT, exp_any, log1p_any, log_any

__all__ = ["SCALARS", "namespace"]

_OPTIONS = {**EXACT, "cache": False}


@njit(**_OPTIONS)
def _where(condition: Any, first: Any, second: Any) -> Any:
    return first if condition else second


@njit(**_OPTIONS)
def _maximum(a: Any, b: Any) -> Any:
    return a if (a > b) | (a != a) else b  # NaN passes


@njit(**_OPTIONS)
def _minimum(a: Any, b: Any) -> Any:
    return a if (a < b) | (a != a) else b  # NaN passes


@njit(**_OPTIONS)
def _clip(x: Any, low: Any, high: Any) -> Any:
    return _minimum(_maximum(x, low), high)


@njit(**_OPTIONS)
def _zeros_like(x: Any) -> float:
    return 0.0


@njit(**_OPTIONS)
def _ones_like(x: Any) -> float:
    return 1.0


@njit(**_OPTIONS)
def _full_like(x: Any, value: Any) -> Any:
    return value


@njit(**_OPTIONS)
def _abs(x: Any) -> Any:
    return abs(x)


@njit(**_OPTIONS)
def _sqrt(x: Any) -> float:
    return math.sqrt(x)


@njit(**_OPTIONS)
def _square(x: Any) -> Any:
    return x * x


@njit(**_OPTIONS)
def _isnan(x: Any) -> bool:
    return x != x


@njit(**_OPTIONS)
def _isfinite(x: Any) -> bool:
    return abs(x) < math.inf


@njit(**_OPTIONS)
def _exp(x: Any) -> float:
    return exp_any(float(x))


@njit(**_OPTIONS)
def _log(x: Any) -> float:
    return log_any(float(x))


@njit(**_OPTIONS)
def _log1p(x: Any) -> float:
    return log1p_any(float(x))


SCALARS = ModuleType("dpanalysis.kernels.SCALARS")
vars(SCALARS).update({name: item for name, item in vars(np).items() if name[:2] != "__"})
vars(SCALARS).update(
    where=_where,
    maximum=_maximum,
    minimum=_minimum,
    clip=_clip,
    zeros_like=_zeros_like,
    ones_like=_ones_like,
    full_like=_full_like,
    abs=_abs,
    sqrt=_sqrt,
    square=_square,
    isnan=_isnan,
    isfinite=_isfinite,
    exp=_exp,
    log=_log,
    log1p=_log1p,
)


def namespace(*arrays: Any) -> Any:
    """Stand for ``array_namespace``: of numbers, it is :data:`SCALARS`."""
    return SCALARS


@overload(namespace)
def _namespace(*arrays: Any) -> Any:
    def implementation(*arrays: Any) -> Any:
        return SCALARS

    return implementation
