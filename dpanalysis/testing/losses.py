"""The contract of a loss, tried out."""

from __future__ import annotations

import math
import warnings
from numbers import Real
from typing import Any

import numpy as np

from ..losses import Loss
from . import _sums
from ._search import labels_of
from ._slopes import ROUNDING, check_growth, check_slopes, terms_of
from ._state import check_pickle, snapshot, what_changed
from ._tools import fail, global_random_untouched, optional_namespace, quiet, require

__all__ = ["check_loss"]


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
            check_slopes(loss, y)
            check_growth(loss, y)
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


def _check_elementwise(loss: Loss) -> None:
    """Check that a formula gives the same for a sample alone, in any array, and again."""
    rng, name = np.random.default_rng(0), type(loss).__name__
    z = rng.normal(scale=3.0, size=24)
    y = rng.choice(labels_of(loss), 24)
    for term in terms_of(loss):
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
        for term in terms_of(loss):
            found = _tried(loss, term, z, np.full(6, y))
            bad = np.flatnonzero(np.isnan(found))
            if term == "derivative" and math.isfinite(loss.lipschitz):
                bad = np.flatnonzero(~(np.abs(found) <= loss.lipschitz * (1.0 + ROUNDING)))
            for k in bad[:1]:
                fail(f"{name}.{term} is {found[k]} at z = {z[k]:g}, y = {y:g}")


def _check_warnings(loss: Loss) -> None:
    """Check that predictions up to 1e3 give finite numbers, without a warning."""
    name = type(loss).__name__
    for dtype in (np.float64, np.float32):
        z = np.array([-1e3, -30.0, -1e-3, 0.0, 1e-3, 30.0, 1e3], dtype=dtype)
        for y in labels_of(loss):
            for term in terms_of(loss):
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
    for term in terms_of(loss):
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
