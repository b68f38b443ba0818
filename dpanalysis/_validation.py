"""Argument checks with uniform messages: name, allowed values, given value."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

__tracebackhide__ = True  # pytest shows the line that calls this package

_CALLERS = ("dpanalysis", "sklearn", "joblib")  # a warning points at the code outside them


def check_number(
    name: str,
    value: Any,
    *,
    low: float = -math.inf,
    high: float = math.inf,
    low_open: bool = False,
    high_open: bool = False,
    finite: bool = True,
) -> float:
    """Return ``value``, which must not be text or a boolean, as a float in the interval."""
    try:
        if isinstance(value, (str, bytes, bool, np.bool_)) or np.ndim(value) > 0:
            raise TypeError("not a number")
        number = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a number, got {value!r}") from None
    too_low = number <= low if low_open else number < low
    too_high = number >= high if high_open else number > high
    if math.isnan(number) or too_low or too_high or (finite and math.isinf(number)):
        closed = not high_open and not (finite and math.isinf(high))
        interval = describe_interval(low, high, low_open, not closed)
        raise ValueError(f"{name} must lie in {interval}, got {value!r}")
    return number


def check_positive(name: str, value: Any) -> float:
    """Return ``value`` as a float in (0, inf), or raise naming the argument."""
    return check_number(name, value, low=0.0, low_open=True)


def check_fraction(name: str, value: Any) -> float:
    """Return ``value`` as a float in (0, 1), or raise naming the argument."""
    return check_number(name, value, low=0.0, high=1.0, low_open=True, high_open=True)


def keep_numbers(owner: Any, *names: str, **interval: Any) -> None:
    """Check fields of a frozen dataclass by :func:`check_number` and store them as floats."""
    for name in names:
        object.__setattr__(owner, name, check_number(name, getattr(owner, name), **interval))


def plain_numbers(owner: Any) -> None:
    """Replace NumPy numbers among the attributes by Python's, and fractions by floats.

    NumPy computes products with them in their precision: in float16 a sensitivity becomes 0, in
    int8 a count wraps. And an array without dimensions could change after it was checked.
    """
    for name, value in list(getattr(owner, "__dict__", {}).items()):
        kind = value.dtype.kind if isinstance(value, (np.generic, np.ndarray)) else ""
        if isinstance(value, (Fraction, Decimal)):
            object.__setattr__(owner, name, float(value))
        if kind and kind in "iufb" and value.ndim == 0:
            plain = {"b": bool, "f": float}.get(kind, int)(value)
            object.__setattr__(owner, name, plain)


def describe_interval(low: float, high: float, low_open: bool, high_open: bool) -> str:
    """Return an interval in the usual notation."""
    left, right = "(" if low_open or low == -math.inf else "[", ")" if high_open else "]"
    return f"{left}{low:g}, {high:g}{right}"


def check_int(name: str, value: Any, *, low: int = 0, high: int | None = None) -> int:
    """Return ``value`` as an int in ``[low, high]``, or raise naming the argument."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    if value < low or (high is not None and value > high):
        allowed = f"at least {low}" if high is None else f"between {low} and {high}"
        raise ValueError(f"{name} must be {allowed}, got {value!r}")
    return int(value)


def check_choice(name: str, value: Any, choices: Sequence[Any]) -> Any:
    """Return ``value`` if it is one of ``choices``, or raise listing them."""
    if value not in choices:
        listed = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"{name} must be one of {listed}, got {value!r}")
    return value


def check_reals(name: str, value: Any, data: Any = None) -> np.ndarray:
    """Return ``value`` as a float64 array (without a copy if it is one), or raise naming it.

    The message names the library of ``data`` as an alternative to NumPy.
    """
    refuse_mask(name, value)
    try:
        array = np.asarray(value)
    except ValueError as error:  # rows of different lengths
        raise TypeError(f"{name} must be an array of real numbers: {error}") from error
    except (TypeError, RuntimeError):  # an array on a device
        from ._devices import readable

        array = readable(name, value, data)
    if array.dtype.kind not in "fiub":
        shown = repr(value) if array.ndim == 0 else f"dtype {array.dtype}"
        raise TypeError(f"{name} must be an array of real numbers, got {shown}")
    return array.astype(np.float64, copy=False)


def refuse_mask(name: str, array: Any) -> None:
    """Raise TypeError for a masked array: NumPy would use the masked entries as data."""
    if isinstance(array, np.ma.MaskedArray):
        raise TypeError(
            f"{name} must not be a masked array, whose mask would be lost: pass "
            f"{name}.filled(value), or the rows without a masked entry"
        )


def warn_caller(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn with the first line of the call stack outside this package and those that call it."""
    level, frame = 1, sys._getframe()
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in _CALLERS:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


_SMALL = 2.0**-60  # rounding to nearest loses it beside 1, and every other mode on one side


def rounds_to_nearest() -> bool:
    """Return whether this thread rounds to nearest, the default that other code may change."""
    return 1.0 + _SMALL == 1.0 - _SMALL


def check_rng(rng: Any) -> np.random.Generator:
    """Return ``numpy.random.default_rng(rng)``, or raise naming the argument."""
    if isinstance(rng, (int, np.integer)):
        check_int("rng", rng)
    try:
        return np.random.default_rng(rng)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"rng must be None, an int, a SeedSequence or a Generator, got {rng!r}"
        ) from error


def as_scalar(value: Any) -> Any:
    """Return a 0-dimensional array as a float, any other as an array."""
    return float(value) if np.ndim(value) == 0 else np.asarray(value)


def largest(array: np.ndarray) -> float:
    """Return the largest absolute entry, NaN if any is NaN, without a temporary array."""
    if array.size == 1:  # the sparse vector technique draws its noise one by one
        return abs(float(array.item()))
    return max(float(array.max()), -float(array.min()))


def check_finite(name: str, array: np.ndarray) -> np.ndarray:
    """Return ``array`` if it has no NaN and no infinity, or raise counting them."""
    bad = array.size - int(np.count_nonzero(np.isfinite(array)))
    if bad:
        raise ValueError(f"{name} must be finite, got {bad} NaN or infinite entries")
    return array


def check_vector(name: str, value: Any) -> None:
    """Raise ValueError unless ``value`` is one-dimensional and finite."""
    array = check_finite(name, np.asarray(value))
    if array.ndim != 1:
        raise ValueError(f"{name} must be one-dimensional, got shape {array.shape}")
