"""Derivatives and constants of a loss, beside the differences of its formulas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..losses import Loss
from ._search import margins, quotients
from ._tools import fail, require

__all__ = ["ROUNDING", "check_growth", "check_slopes", "terms_of"]

ROUNDING = 1e-7  # of the constants, relative


def terms_of(loss: Loss) -> list[str]:
    """Return the names of the formulas that the loss has."""
    try:
        loss.second_derivative(np.zeros(1), np.ones(1))
    except NotImplementedError:
        return ["value", "derivative"]
    return ["value", "derivative", "second_derivative"]


def check_slopes(loss: Loss, y: float) -> None:
    """Compare each formula with the differences of the one before, and with its constant."""
    name, has = type(loss).__name__, terms_of(loss)
    orders = [("value", "derivative", "lipschitz", "the loss")]
    orders.append(("derivative", "second_derivative", "smoothness", "the derivative"))
    orders.append(("second_derivative", "", "hessian_lipschitz", "the second derivative"))
    for term, next_term, constant, what in orders:
        formula, finest = _along(loss, term, y), 1e-5
        if term not in has:  # the differences of the derivative stand for it
            formula, finest = _differences(_along(loss, "derivative", y)), 1e-3
        bound = float(getattr(loss, constant))
        slope, where = quotients(formula, bound, finest)
        require(
            slope <= bound * (1.0 + ROUNDING) + 1e-9,
            f"{name}.{constant} is {bound:g}, but {what} changes by {slope:.6g} a unit around z = "
            f"{where:.6g}, y = {y:g}{_any_label(loss)}",
        )
        if next_term in has:
            _check_derivative(loss, y, term, next_term, formula)
            z = margins()
            size = np.abs(getattr(loss, next_term)(z, np.full(z.shape, y)))
            k = int(np.nanargmax(np.where(np.isnan(size), 0.0, size)))
            require(
                size[k] <= bound * (1.0 + ROUNDING),
                f"{name}.{constant} is {bound:g}, but {next_term} is {size[k]:.6g} in size at z = "
                f"{z[k]:.6g}, y = {y:g}{_any_label(loss)}",
            )
    if loss.convex:
        z = margins()
        slopes = np.asarray(loss.derivative(z, np.full(z.shape, y)))
        falls = np.diff(slopes) < -1e-9 * (1.0 + np.abs(slopes[1:]))
        k = int(np.argmax(falls))
        require(
            not falls.any(),
            f"{name}.convex is True, but the derivative falls from {slopes[k]:.6g} at z = "
            f"{z[k]:.6g} to {slopes[min(k + 1, len(z) - 1)]:.6g} at z = "
            f"{z[min(k + 1, len(z) - 1)]:.6g}, y = {y:g}",
        )


def _along(loss: Loss, term: str, y: float) -> Callable[[Any], Any]:
    """Return a formula as a function of predictions alone."""
    return lambda z: np.asarray(getattr(loss, term)(z, np.full(z.shape, y)))


def _differences(formula: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda z: (formula(z + 1e-4) - formula(z - 1e-4)) / 2e-4


def _any_label(loss: Loss) -> str:
    if loss.classification:
        return ""
    return (
        " (with classification = False labels may be any real numbers; set it to True where they "
        "are -1 and +1)"
    )


def _check_derivative(loss: Loss, y: float, term: str, next_term: str, formula: Any) -> None:
    """Check that the derivative lies between the quotients to the left and to the right."""
    z = margins()
    h = 1e-5 * np.maximum(np.abs(z), 1.0)
    here, left, right = formula(z), formula(z - h), formula(z + h)
    sides = np.stack([(here - left) / h, (right - here) / h])
    found = np.asarray(getattr(loss, next_term)(z, np.full(z.shape, y)))
    rounding = 1e-14 * np.max(np.abs([here, left, right]), axis=0) / h
    spread = np.ptp(sides, axis=0)
    slack = 1e-5 + 1e-4 * np.abs(sides).max(axis=0) + 10.0 * rounding
    jumps = spread > 1e-2 * (1.0 + np.abs(sides).max(axis=0))  # undefined at a corner: NaN is fine
    good = (found >= sides.min(axis=0) - slack) & (found <= sides.max(axis=0) + slack)
    bad = np.flatnonzero(~good & ~(np.isnan(found) & jumps))
    for k in bad[:1]:
        fail(
            f"{type(loss).__name__}.{next_term} is {found[k]:.6g} at z = {z[k]:.6g}, y = {y:g}, "
            f"but differences of {term} give {sides[0, k]:.6g} to {sides[1, k]:.6g}"
        )


def check_growth(loss: Loss, y: float) -> None:
    """Search for a violation of the weak growth condition, for some rows and constants."""
    try:
        loss.weak_growth(1.0)
    except ValueError:
        return  # none is known, and the loss says so
    far = np.array([1e4, 1e6, 1e9, 1e12])
    z = np.concatenate([-far[::-1], margins(), far])
    values, slopes = (np.asarray(f(z, np.full(z.shape, y))) for f in (loss.value, loss.derivative))
    above, squares = values - np.nanmin(values), slopes**2
    for norm in (0.5, 1.0, 3.0):
        for asked in (None, 0.0, 0.1 * norm**2, 10.0 * norm**2):
            beta1, beta2 = loss.weak_growth(norm, asked)
            known = np.isfinite(above) & np.isfinite(squares)
            gap = norm**2 * squares - beta1 * above - beta2
            gap = np.where(known, gap - 1e-7 * (1.0 + norm**2 * squares), -1.0)
            k = int(np.argmax(gap))
            require(
                gap[k] <= 0.0,
                f"{type(loss).__name__}.weak_growth({norm:g}, {asked}) says ({beta1:g}, "
                f"{beta2:g}), but at z = {z[k]:.6g}, y = {y:g} the squared gradient is "
                f"{norm**2 * squares[k]:.6g} and the loss {above[k]:.6g} above its least",
            )
