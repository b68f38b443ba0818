"""Validation of arguments shared by the theory functions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._validation import check_number, check_positive, check_reals, describe_interval

FloatArray = NDArray[np.float64]


def check_failure(failure: Any) -> float:
    """Return a failure probability in ``(0, 0.5]``, or raise."""
    return check_number("failure", failure, low=0.0, low_open=True, high=0.5)


def check_array(
    name: str,
    value: ArrayLike,
    *,
    low: float = -np.inf,
    high: float = np.inf,
    low_open: bool = False,
    high_open: bool = False,
) -> FloatArray:
    """Return ``value`` as a finite float64 array inside the interval, or raise naming it."""
    array = check_reals(name, value)
    inside = np.isfinite(array)
    inside &= array > low if low_open else array >= low
    inside &= array < high if high_open else array <= high
    if not inside.all():
        interval = describe_interval(low, high, low_open, high_open or high == np.inf)
        raise ValueError(f"{name} must lie in {interval}, got {array[~inside].flat[0]}")
    return array


def check_kind(name: str, value: Any, kind: type) -> None:
    """Raise TypeError, naming it, unless ``value`` is an object of this class."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be {kind.__name__}, got {value!r}")


def check_constants(mu: Any, L: Any) -> tuple[float, float]:
    """Return the strong convexity and smoothness constants, ``0 < mu <= L``, as floats."""
    mu, L = check_positive("mu", mu), check_positive("L", L)
    if mu > L:
        raise ValueError(f"L must be at least mu = {mu!r}, got {L!r}")
    return mu, L


def check_step(
    name: str, value: ArrayLike, limit: float, formula: str, *, below: bool = False
) -> FloatArray:
    """Return positive step sizes up to (or below) a limit, or raise with the limit's formula."""
    array = check_array(name, value, low=0.0, low_open=True)
    outside = array >= limit if below else array > limit
    if outside.any():
        words = "below" if below else "at most"
        raise ValueError(
            f"{name} must be {words} {formula} = {limit:g}, got {array[outside].flat[0]:g}"
        )
    return array


def check_method(step_size: ArrayLike, momentum: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Return positive step sizes and momenta in ``[0, 1)`` as arrays."""
    alpha = check_array("step_size", step_size, low=0.0, low_open=True)
    beta = check_array("momentum", momentum, low=0.0, high=1.0, high_open=True)
    try:
        np.broadcast_shapes(alpha.shape, beta.shape)
    except ValueError:
        raise ValueError(
            f"step_size and momentum must broadcast, got shapes {alpha.shape} and {beta.shape}"
        ) from None
    return alpha, beta


def check_noise_variance(value: ArrayLike, iterations: int) -> FloatArray:
    """Return the per-coordinate noise variance of every iteration, shape ``(iterations,)``."""
    variance = check_array("noise_variance", value, low=0.0)
    if variance.ndim == 0:
        return np.full(iterations, float(variance))
    if variance.shape != (iterations,):
        raise ValueError(
            f"noise_variance must be a number or of shape ({iterations},), got {variance.shape}"
        )
    return variance
