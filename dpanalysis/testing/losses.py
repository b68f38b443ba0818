"""The contract of a loss, tried out."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from numbers import Real
from typing import Any

import numpy as np

from ..losses import Loss
from . import _sums
from ._search import labels_of, margins, quotients
from ._state import check_pickle, snapshot, what_changed
from ._tools import fail, global_random_untouched, optional_namespace, quiet, require

__all__ = ["check_loss"]

_ROUNDING = 1e-7  # of the constants, relative
_TERMS = ("value", "derivative", "second_derivative")


def check_loss(loss: Loss, *, devices: bool = True, compiled: bool = True) -> None:
    """Raise AssertionError unless a loss keeps the contract of :class:`dpanalysis.losses.Loss`.

    Its constants are searched for violations on a wide grid of predictions and labels, finer and
    finer where they are closest to one; its derivatives are compared with differences; its
    formulas must be functions of one sample each, and the sums that the kernels compute from
    dense, sparse and other arrays, for one and several replicates, must be those of the formulas.

    Parameters
    ----------
    loss : Loss
    devices : bool
        Whether the formulas must run on arrays of other libraries than NumPy too (it is tried
        where ``array_api_strict`` is installed). False for formulas that are written in NumPy;
        they run on NumPy, SciPy and mapped data, compiled or not.
    compiled : bool
        Whether to try the formulas compiled by :func:`dpanalysis.losses.compiled` as well, which
        takes about 20 seconds for a loss that is not one of the package.

    Raises
    ------
    AssertionError
        Saying what is wrong, at the first thing that is.

    Notes
    -----
    A search is no proof. The noise rests on ``lipschitz`` (the sums cut what is larger), and the
    guarantees of some methods rest on ``smoothness``, ``hessian_lipschitz`` and ``convex``.

    Examples
    --------
    >>> from dpanalysis import losses, testing
    >>> class Steep(losses.Logistic):
    ...     smoothness = 0.2
    >>> testing.check_loss(losses.Logistic())
    >>> testing.check_loss(Steep())
    Traceback (most recent call last):
    AssertionError: Steep.smoothness is 0.2, but the derivative changes by 0.25 a unit...
    """
    require(
        isinstance(loss, Loss),
        f"a loss must be an object of a class that extends dpanalysis.losses.Loss, got {loss!r}",
    )
    remembered = snapshot(loss, type(loss).__name__)
    with quiet(), global_random_untouched("the loss"):
        _check_constants(loss)
        _check_elementwise(loss)
        for y in labels_of(loss):
            _check_slopes(loss, y)
            _check_growth(loss, y)
        _check_far_away(loss)
    _check_warnings(loss)
    if devices and (xp := optional_namespace()) is not None:
        _check_namespace(loss, xp)
    with quiet(), global_random_untouched("the loss"):
        _sums.check_sums(loss, devices, compiled)
    changed = what_changed(remembered, snapshot(loss, type(loss).__name__))
    require(changed is None, f"evaluating the loss changes what it remembers ({changed})")
    copied = check_pickle(loss, "the loss")
    z, ones = np.linspace(-3.0, 3.0, 13), np.ones(13)
    same = np.array_equal(copied.value(z, ones), loss.value(z, ones), equal_nan=True)
    require(same, "a pickled copy of the loss has other values")


def _check_constants(loss: Loss) -> None:
    name = type(loss).__name__
    for constant in ("lipschitz", "smoothness", "hessian_lipschitz"):
        value: Any = getattr(loss, constant)
        good = isinstance(value, Real) and type(value) is not bool and float(value) >= 0.0
        require(
            good, f"{name}.{constant} must be a number >= 0, inf where there is none: {value!r}"
        )
    for flag in ("classification", "convex"):
        value = getattr(loss, flag)
        require(isinstance(value, bool), f"{name}.{flag} must be True or False, got {value!r}")


def _terms(loss: Loss) -> list[str]:
    """Return the names of the formulas that the loss has."""
    try:
        loss.second_derivative(np.zeros(1), np.ones(1))
    except NotImplementedError:
        return ["value", "derivative"]
    return list(_TERMS)


def _check_elementwise(loss: Loss) -> None:
    """Check that a formula gives the same for a sample alone, in any array, and again."""
    rng, name = np.random.default_rng(0), type(loss).__name__
    z = rng.normal(scale=3.0, size=24)
    y = rng.choice(labels_of(loss), 24)
    for term in _terms(loss):
        formula = getattr(loss, term)
        whole = _tried(loss, term, z, y)
        alone = np.array([float(formula(z[k : k + 1], y[k : k + 1])[0]) for k in range(24)])
        shuffled = rng.permutation(24)
        forms = {
            "one sample at a time": alone,
            "in another order": formula(z[shuffled], y[shuffled])[np.argsort(shuffled)],
            "in a table": np.asarray(formula(z.reshape(4, 6), y.reshape(4, 6))).ravel(),
            "beside others": formula(np.append(z, 1e3), np.append(y, 1.0))[:24],
            "for a second time": formula(z, y),
        }
        for how, found in forms.items():
            same = np.shape(found) == (24,) and np.allclose(
                found, whole, rtol=1e-12, atol=1e-15, equal_nan=True
            )
            require(
                same,
                f"{name}.{term} gives other numbers {how}: a sample's loss must be a function of "
                "its own prediction and label",
            )
        empty = formula(z[:0], y[:0])
        require(np.shape(empty) == (0,), f"{name}.{term} of no samples must have shape (0,)")
        wide = np.shape(formula(z[:4, None], y[None, :3]))
        require(
            wide == (4, 3), f"{name}.{term} of (4, 1) and (1, 3) must have shape (4, 3): {wide}"
        )


def _tried(loss: Loss, term: str, z: np.ndarray, y: np.ndarray) -> np.ndarray:
    name = type(loss).__name__
    try:
        found = np.asarray(getattr(loss, term)(z, y))
    except Exception as error:
        fail(f"{name}.{term} fails for arrays of shape {z.shape}: {error!r}", error)
    require(
        found.shape == z.shape,
        f"{name}.{term} must return the shape of z and y, {z.shape}, got {found.shape}",
    )
    return found


def _check_far_away(loss: Loss) -> None:
    """Check that formulas have values, and derivatives their bound, at huge predictions."""
    name = type(loss).__name__
    z = np.array([-1e300, -1e200, -1e30, 1e30, 1e200, 1e300])
    for y in labels_of(loss):
        for term in _terms(loss):
            found = _tried(loss, term, z, np.full(6, y))
            bad = np.flatnonzero(np.isnan(found))
            if term == "derivative" and math.isfinite(loss.lipschitz):
                bad = np.flatnonzero(~(np.abs(found) <= loss.lipschitz * (1.0 + _ROUNDING)))
            for k in bad[:1]:
                fail(f"{name}.{term} is {found[k]} at z = {z[k]:g}, y = {y:g}")


def _check_warnings(loss: Loss) -> None:
    """Check that predictions up to 1e3 give finite numbers, without a warning."""
    name = type(loss).__name__
    for dtype in (np.float64, np.float32):
        z = np.array([-1e3, -30.0, -1e-3, 0.0, 1e-3, 30.0, 1e3], dtype=dtype)
        for y in labels_of(loss):
            for term in _terms(loss):
                try:
                    with warnings.catch_warnings(), np.errstate(all="warn", under="ignore"):
                        warnings.simplefilter("error")
                        found = getattr(loss, term)(z, np.full(7, y, dtype=dtype))
                except (Warning, ArithmeticError) as error:
                    fail(
                        f"{name}.{term} warns at predictions up to 1e3 in {z.dtype}: {error}", error
                    )
                finite = np.isfinite(found).all()
                require(
                    finite, f"{name}.{term} is not finite at predictions up to 1e3 in {z.dtype}"
                )


def _check_namespace(loss: Loss, xp: Any) -> None:
    name = type(loss).__name__
    z, y = np.linspace(-5.0, 5.0, 12).reshape(3, 4), np.ones((3, 4))
    for term in _terms(loss):
        expected = getattr(loss, term)(z, y)
        try:
            found = getattr(loss, term)(xp.asarray(z), xp.asarray(y))
            same = np.allclose(np.asarray(found), expected, rtol=1e-12, equal_nan=True)
        except Exception as error:
            fail(
                f"{name}.{term} fails on arrays of array_api_strict ({error!r}): write it in "
                "array_api_compat.array_namespace(z), or call check_loss(loss, devices=False) if "
                "it need not run on devices",
                error,
            )
        require(same, f"{name}.{term} gives other numbers on arrays of array_api_strict")


def _check_slopes(loss: Loss, y: float) -> None:
    """Compare each formula with the differences of the one before, and with its constant."""
    name, has = type(loss).__name__, _terms(loss)
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
            slope <= bound * (1.0 + _ROUNDING) + 1e-9,
            f"{name}.{constant} is {bound:g}, but {what} changes by {slope:.6g} a unit around z = "
            f"{where:.6g}, y = {y:g}{_any_label(loss)}",
        )
        if next_term in has:
            _check_derivative(loss, y, term, next_term, formula)
            z = margins()
            size = np.abs(getattr(loss, next_term)(z, np.full(z.shape, y)))
            k = int(np.nanargmax(np.where(np.isnan(size), 0.0, size)))
            require(
                size[k] <= bound * (1.0 + _ROUNDING),
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


def _check_growth(loss: Loss, y: float) -> None:
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
