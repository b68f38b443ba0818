"""Checks of a loss and of a clipping rule: bounds, derivatives, and sums by every kernel.

Violations of bounds are searched for on a grid that is refined where a function is steepest;
derivatives are compared with differences; sums are compared with the formulas, sample by sample.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from numbers import Real
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp

from .. import clipping as rules
from .. import losses
from ..clipping import Clipping
from ..losses import Loss
from ..problems.erm import ERM
from ..problems.row_bound import RowBound
from ._tools import (
    check_pickle,
    fail,
    global_random_untouched,
    optional_namespace,
    quiet,
    require,
    unchanged,
)

# Maps (z, y) or (norms, losses), of any equal shape, to an array of that shape.
Formula: TypeAlias = Callable[[Any, Any], Any]

_ROUNDING = 1e-7  # relative tolerance of the constants
_TINY = 5e-324  # the smallest positive number
_RADIUS, _SAMPLES, _FEATURES = 2.0, 60, 4  # of the data on which sums are compared


# Where a function of one prediction is steepest


def _labels_of(loss: Any) -> list[float]:
    """Return labels to try."""
    return [-1.0, 1.0] if loss.classification else [-1e4, -30.0, -1.0, 0.0, 0.7, 1.0, 30.0, 1e4]


def _grid_of_margins() -> np.ndarray:
    """Return sorted predictions to try, of all sizes, and closely spaced up to 60."""
    sizes = np.concatenate([np.logspace(-9, 3, 241), np.linspace(0.0, 12.0, 4801)[1:]])
    sizes = np.concatenate([sizes, np.linspace(12.0, 60.0, 961), 1.0 + np.logspace(-6, -1, 21)])
    return np.unique(np.concatenate([-sizes, [0.0], sizes]))


_FAR = np.array([1e4, 1e6, 1e9, 1e12])
_MARGINS = _grid_of_margins()
_MARGINS.flags.writeable = False


def _steepest(formula: Callable[[Any], Any], bound: float, finest: float) -> tuple[float, float]:
    """Return the largest difference quotient of a function that a search finds, and its location.

    The steepest intervals of a grid are halved, down to ``finest`` relative to their location,
    where rounding dominates: at a jump the quotient exceeds every finite bound.
    """
    if not np.isfinite(bound):
        return 0.0, 0.0
    wide = np.diff(_MARGINS) > finest
    low, high = _MARGINS[:-1][wide], _MARGINS[1:][wide]
    best, place = 0.0, 0.0
    for _ in range(14):
        first, last = np.asarray(formula(low)), np.asarray(formula(high))
        width = high - low
        rounding = 4e-16 * np.maximum(np.abs(first), np.abs(last))
        slopes = (np.abs(last - first) - 4.0 * rounding) / width
        slopes = np.where(np.isfinite(slopes), slopes, 0.0)
        k = int(np.argmax(slopes))
        if slopes[k] > best:
            best, place = float(slopes[k]), float(0.5 * (low[k] + high[k]))
        steepest = np.argsort(slopes)[-40:]
        steepest = steepest[width[steepest] > 2.0 * finest * np.maximum(1.0, np.abs(low[steepest]))]
        if not len(steepest):
            break
        middle = 0.5 * (low[steepest] + high[steepest])
        low = np.concatenate([low[steepest], middle])
        high = np.concatenate([middle, high[steepest]])
    return best, place


# Derivatives and constants of a loss


def _terms_of(loss: Loss) -> list[str]:
    """Return the names of the formulas that the loss defines."""
    try:
        loss.second_derivative(np.zeros(1), np.ones(1))
    except NotImplementedError:
        return ["value", "derivative"]
    return ["value", "derivative", "second_derivative"]


def _along(loss: Loss, term: str, y: float) -> Callable[[Any], Any]:
    """Return a formula as a function of the predictions, for a fixed label."""
    return lambda z: np.asarray(getattr(loss, term)(z, np.full(z.shape, y)))


def _differences(formula: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda z: (formula(z + 1e-4) - formula(z - 1e-4)) / 2e-4


def _check_slopes(loss: Loss, y: float) -> None:
    """Compare each formula with differences of the preceding one, and with its constant."""
    name, has = type(loss).__name__, _terms_of(loss)
    label = f"y = {y:g}"
    if not loss.classification:
        label += (
            " (with classification = False labels may be any real numbers; set it to True where "
            "they are -1 and +1)"
        )
    for term, next_term, constant, what in (
        ("value", "derivative", "lipschitz", "the loss"),
        ("derivative", "second_derivative", "smoothness", "the derivative"),
        ("second_derivative", "", "hessian_lipschitz", "the second derivative"),
    ):
        formula, finest = _along(loss, term, y), 1e-5
        if term not in has:  # use differences of the derivative instead
            formula, finest = _differences(_along(loss, "derivative", y)), 1e-3
        bound = float(getattr(loss, constant))
        slope, where = _steepest(formula, bound, finest)
        require(
            slope <= bound * (1.0 + _ROUNDING) + 1e-9,
            f"{name}.{constant} is {bound:g}, but {what} changes by {slope:.6g} a unit around z = "
            f"{where:.6g}, {label}",
        )
        if next_term in has:
            _check_derivative(loss, y, term, next_term, formula)
            size = np.abs(_along(loss, next_term, y)(_MARGINS))
            k = int(np.nanargmax(np.where(np.isnan(size), 0.0, size)))
            require(
                size[k] <= bound * (1.0 + _ROUNDING),
                f"{name}.{constant} is {bound:g}, but {next_term} is {size[k]:.6g} in size at z = "
                f"{_MARGINS[k]:.6g}, {label}",
            )
    if loss.convex:
        z = np.concatenate([-_FAR[::-1], _MARGINS, _FAR])
        slopes = _along(loss, "derivative", y)(z)
        falls = np.diff(slopes) < -1e-9 * (1.0 + np.abs(slopes[1:]))
        for k in np.flatnonzero(falls)[:1]:
            fail(
                f"{name}.convex is True, but the derivative falls from {slopes[k]:.6g} at z = "
                f"{z[k]:.6g} to {slopes[k + 1]:.6g} at z = {z[k + 1]:.6g}, y = {y:g}"
            )


def _check_derivative(loss: Loss, y: float, term: str, next_term: str, formula: Any) -> None:
    """Check that the derivative lies between the left and right difference quotients."""
    z = _MARGINS
    h = 1e-5 * np.maximum(np.abs(z), 1.0)
    here, left, right = formula(z), formula(z - h), formula(z + h)
    sides = np.stack([(here - left) / h, (right - here) / h])
    found = _along(loss, next_term, y)(z)
    rounding = 1e-14 * np.max(np.abs([here, left, right]), axis=0) / h
    spread = np.ptp(sides, axis=0)
    slack = 1e-5 + 1e-4 * np.abs(sides).max(axis=0) + 10.0 * rounding
    jumps = spread > 1e-2 * (1.0 + np.abs(sides).max(axis=0))  # undefined at a corner: NaN is fine
    good = (found >= sides.min(axis=0) - slack) & (found <= sides.max(axis=0) + slack)
    for k in np.flatnonzero(~good & ~(np.isnan(found) & jumps))[:1]:
        why = "" if np.isfinite(here[k]) else f": {term} is {here[k]:.6g} there"
        fail(
            f"{type(loss).__name__}.{next_term} is {found[k]:.6g} at z = {z[k]:.6g}, y = {y:g}, "
            f"but differences of {term} give {sides[0, k]:.6g} to {sides[1, k]:.6g}{why}"
        )


def _check_growth(loss: Loss, y: float) -> None:
    """Search for a violation of the weak growth condition, for some rows and constants."""
    try:
        loss.weak_growth(1.0)
    except ValueError:
        return  # the loss declares none
    z = np.concatenate([-_FAR, _MARGINS, _FAR])
    values, squares = _along(loss, "value", y)(z), _along(loss, "derivative", y)(z) ** 2
    above = values - np.nanmin(values)
    known = np.isfinite(above) & np.isfinite(squares)
    for norm in (0.5, 1.0, 3.0):
        for asked in (None, 0.0, 0.1 * norm**2, 10.0 * norm**2):
            beta1, beta2 = loss.weak_growth(norm, asked)
            gap = norm**2 * squares - beta1 * above - beta2
            gap = np.where(known, gap - 1e-7 * (1.0 + norm**2 * squares), -1.0)
            k = int(np.argmax(gap))
            require(
                gap[k] <= 0.0,
                f"{type(loss).__name__}.weak_growth({norm:g}, {asked}) says ({beta1:g}, "
                f"{beta2:g}), but at z = {z[k]:.6g}, y = {y:g} the squared gradient is "
                f"{norm**2 * squares[k]:.6g} and the loss {above[k]:.6g} above its least",
            )


# Sums over samples by every kernel


def _data(loss: Loss) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return rows (n, d) of norm at most 2, labels (n,) and iterates (3, d) of several sizes."""
    rng = np.random.default_rng(2)
    X = rng.uniform(-1.0, 1.0, (_SAMPLES, _FEATURES)) * (rng.random((_SAMPLES, _FEATURES)) < 0.8)
    X[0] = 0.0
    y = rng.choice([-1.0, 1.0], _SAMPLES)
    if not loss.classification:
        y = y * rng.uniform(0.0, 3.0, _SAMPLES)
    return X, y, rng.normal(size=(3, _FEATURES)) * np.array([[0.1], [3.0], [100.0]])


def _check_sums(loss: Loss, devices: bool, fast: bool, rule: Clipping | None = None) -> None:
    """Compare the kernels' sums with the formulas; ``fast``: those of compiled kernels too."""
    X, y, W = _data(loss)
    rows = np.array([3, 0, 3, 17, 41])
    subject = repr(loss if rule is None else rule)
    formulas = "derivative, value" if rule is None else "weight"
    asked = [(1, None), (1, [rows]), (3, None), (3, [rows, rows[:2], rows[:0]])]
    fewer = {"NumPy arrays, compiled": asked[:3], "sparse rows, compiled": asked[:2]}
    for how, problem, used in _problems(loss, rule, X, y, devices, fast):
        for count, batch in fewer.get(how, asked):
            try:
                found = problem.sums(W[:count], batch, used)
            except Exception as error:
                fail(f"{subject}: sums over {how} fail: {error!r}", error)
            values, gradients = _expected(loss, rule, X, y, W[:count], batch)
            for part, sums, expected in (
                ("losses", np.asarray(found.value), values),
                ("gradients", np.asarray(found.gradient), gradients),
            ):
                require(
                    np.allclose(sums, expected, rtol=1e-9, atol=1e-9),
                    f"{subject}: the sums of {part} over {how} are not those of its formulas "
                    f"({formulas}), for {count} replicates{' and batches' if batch else ''}: off "
                    f"by {np.abs(sums - expected).max():.3g}",
                )


def _problems(
    loss: Loss, rule: Clipping | None, X: np.ndarray, y: np.ndarray, devices: bool, fast: bool
) -> Iterator[tuple[str, ERM, Clipping | None]]:
    """Yield problems with the same sums: a name, the problem, and the rule to use."""
    bound = RowBound(2, _RADIUS)
    yield "NumPy arrays", ERM(X, y, loss, None, bound), rule
    yield "sparse rows", ERM(sp.csr_array(X), y, loss, None, bound), rule
    if devices and (xp := optional_namespace()) is not None:
        yield "another library's arrays", ERM(xp.asarray(X), xp.asarray(y), loss, None, bound), rule
    if not fast:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # formulas that do not compile run as arrays
        try:
            quick = losses.compiled(loss)
            quick_rule = None if rule is None else rules.compiled(rule)
        except Exception as error:
            fail(f"{loss if rule is None else rule!r} cannot be compiled: {error}", error)
    if quick is not loss or quick_rule is not rule:
        yield "NumPy arrays, compiled", ERM(X, y, quick, None, bound), quick_rule
        yield "sparse rows, compiled", ERM(sp.csr_array(X), y, quick, None, bound), quick_rule


def _expected(
    loss: Loss, rule: Clipping | None, X: np.ndarray, y: np.ndarray, W: np.ndarray, batch: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Return the sums computed from the formulas: losses (R,) and gradients (R, d)."""
    totals, gradients = [], []
    for r, w in enumerate(W):
        chosen = slice(None) if batch is None else batch[r]
        x, labels = X[chosen], y[chosen]
        z = x @ w
        values = np.asarray(loss.value(z, labels))
        slopes = np.clip(np.asarray(loss.derivative(z, labels)), -loss.lipschitz, loss.lipschitz)
        if rule is not None:
            norms = np.abs(slopes) * np.linalg.norm(x, axis=1)
            slopes = slopes * rule.weight(norms, values)
        counts = np.isfinite(values) & np.isfinite(slopes)
        totals.append(values[counts].sum())
        gradients.append((slopes[counts, None] * x[counts]).sum(axis=0))
    return np.array(totals), np.array(gradients)


# Formulas of one sample each


def _checked(formula: Formula, subject: str) -> Formula:
    """Wrap a formula so that it fails with a sentence if it raises or returns another shape."""

    def checked(first: Any, second: Any) -> Any:
        try:
            found = np.asarray(formula(first, second))
        except Exception as error:
            fail(f"{subject} fails for arrays of shape {first.shape}: {error!r}", error)
        require(
            found.shape == first.shape,
            f"{subject} must return the shape of its arguments, {first.shape}, got {found.shape}",
        )
        return found

    return checked


def _check_per_sample(check: Callable[[Any], None], thing: Any) -> None:
    """Fail where the check before a private run finds that a formula mixes or keeps samples."""
    try:
        check(thing)
    except ValueError as error:
        fail(str(error), error)


def _check_namespace(
    formula: Formula, first: np.ndarray, second: np.ndarray, subject: str, check: str
) -> None:
    """Check that a formula gives the same on arrays of another library, if one is installed."""
    if (xp := optional_namespace()) is None:
        return
    expected = formula(first, second)
    try:
        found = np.asarray(formula(xp.asarray(first), xp.asarray(second)))
    except Exception as error:
        fail(
            f"{subject} fails on arrays of array_api_strict ({error!r}): write it in "
            f"array_api_compat.array_namespace(...), or call {check} if it need not run on devices",
            error,
        )
    require(
        np.allclose(found, expected, rtol=1e-12, equal_nan=True),
        f"{subject} gives other numbers on arrays of array_api_strict",
    )


# The contract of a loss


def check_loss(loss: Loss, *, devices: bool = True, compiled: bool = True) -> None:
    """Raise AssertionError unless a loss keeps the contract of :class:`dpanalysis.losses.Loss`.

    Violations of its constants are searched for on a wide grid of predictions and labels, refined
    where they are closest to a violation; its derivatives are compared with differences; its
    formulas must be functions of one sample each, and the sums that the kernels compute from
    dense, sparse and other arrays, for one and several replicates, must be those of the formulas.

    Parameters
    ----------
    loss : Loss
    devices : bool
        Whether the formulas must also run on arrays of libraries other than NumPy (tested if
        ``array_api_strict`` is installed). False for formulas that are written in NumPy;
        they run on NumPy, SciPy and mapped data, compiled or not.
    compiled : bool
        Whether to test the formulas compiled by :func:`dpanalysis.losses.compiled` as well, which
        takes about 20 seconds for a loss that is not part of the package.

    Notes
    -----
    A search is no proof. The noise depends on ``lipschitz`` (sums clip larger derivatives), and
    the guarantees of some methods on ``smoothness``, ``hessian_lipschitz`` and ``convex``.

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
    name = type(loss).__name__
    with unchanged(loss, name, "using the loss changes what it remembers ({})"):
        with quiet(), global_random_untouched("the loss"):
            _check_constants(loss)
            _check_shapes(loss)
            _check_per_sample(losses.check_per_sample, loss)
            for y in _labels_of(loss):
                _check_slopes(loss, y)
                _check_growth(loss, y)
            _check_far_away(loss)
        _check_warnings(loss)
        if devices:
            z, labels = np.linspace(-5.0, 5.0, 12).reshape(3, 4), np.ones((3, 4))
            for term in _terms_of(loss):
                call = "check_loss(loss, devices=False)"
                _check_namespace(getattr(loss, term), z, labels, f"{name}.{term}", call)
        with quiet(), global_random_untouched("the loss"):
            _check_sums(loss, devices, compiled)
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


def _check_shapes(loss: Loss) -> None:
    z, y = np.linspace(-3.0, 3.0, 4), np.array([_labels_of(loss)[-1]] * 3)
    for term in _terms_of(loss):
        formula, subject = getattr(loss, term), f"{type(loss).__name__}.{term}"
        checked = _checked(formula, subject)
        checked(z[:0], y[:0])
        checked(*np.broadcast_arrays(z[:, None], y))
        wide = np.shape(formula(z[:, None], y[None, :]))
        require(wide == (4, 3), f"{subject} of (4, 1) and (1, 3) must have shape (4, 3): {wide}")


def _check_far_away(loss: Loss) -> None:
    """Check that at huge predictions no formula is NaN and derivatives keep their bound."""
    name = type(loss).__name__
    z = np.array([-1e300, -1e200, -1e30, 1e30, 1e200, 1e300])
    for y in _labels_of(loss):
        for term in _terms_of(loss):
            found = _checked(getattr(loss, term), f"{name}.{term}")(z, np.full(6, y))
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
        for y in _labels_of(loss):
            for term in _terms_of(loss):
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


# The contract of a clipping rule


def check_clipping(rule: Clipping, *, devices: bool = True, compiled: bool = True) -> None:
    """Raise AssertionError unless a rule keeps the contract of a clipping rule.

    A weight times its norm must be at most ``clip_norm`` for norms from 0 to the largest float.
    Every weight must be finite, >= 0, at most ``largest_weight``, and a function of one sample's
    norm and loss. The sums that the kernels compute must be those of ``weight``.

    Parameters
    ----------
    rule : Clipping
    devices : bool
        Whether the rule must also run on arrays of libraries other than NumPy (tested if
        ``array_api_strict`` is installed).
    compiled : bool
        Whether to test the rule compiled by :func:`dpanalysis.clipping.compiled` as well, which
        takes about 20 seconds for a rule that is not part of the package.

    Examples
    --------
    >>> from dpanalysis import clipping, testing
    >>> class Lifting(clipping.Clipping):
    ...     clip_norm = 1.0
    ...     def wanted(self, norms, losses):
    ...         return 1.0 / (norms + 0.1)
    >>> testing.check_clipping(clipping.Flat(1.0))
    >>> testing.check_clipping(Lifting())
    Traceback (most recent call last):
    AssertionError: Lifting.largest_weight is 1, but the weight at norm = 0 is 10...
    """
    require(
        isinstance(rule, Clipping),
        f"a rule must be an object of a class that extends dpanalysis.clipping.Clipping: {rule!r}",
    )
    name = type(rule).__name__
    kept = "using the rule changes what it remembers ({})"
    with quiet(), global_random_untouched("the rule"), unchanged(rule, name, kept):
        _check_numbers(rule)
        _check_bound(rule)
        _check_per_sample(rules.check_per_sample, rule)
        _check_needs(rule)
        if devices:
            norms = np.linspace(0.0, 5.0, 12).reshape(3, 4)
            call = "check_clipping(rule, devices=False)"
            _check_namespace(rule.weight, norms, norms, f"{name}.weight", call)
        _check_rule_sums(rule, devices, compiled)
    copied = check_pickle(rule, "the rule")
    norms = np.linspace(0.0, 5.0, 11)
    same = np.array_equal(copied.weight(norms, norms), rule.weight(norms, norms))
    require(same, "a pickled copy of the rule has other weights")


def _check_numbers(rule: Clipping) -> None:
    name = type(rule).__name__
    for attribute in ("clip_norm", "largest_weight"):
        value: Any = getattr(rule, attribute, None)
        good = isinstance(value, Real) and not isinstance(value, bool) and float(value) > 0.0
        require(good, f"{name}.{attribute} must be a number > 0, got {value!r}")
    require(np.isfinite(rule.clip_norm), f"{name}.clip_norm must be finite, got {rule.clip_norm}")
    needs = rule.needs_losses
    require(isinstance(needs, bool), f"{name}.needs_losses must be True or False, got {needs!r}")


def _grid(rule: Clipping) -> tuple[np.ndarray, np.ndarray]:
    """Return norms and losses (k,): all pairs if the rule needs losses."""
    near = rule.clip_norm * np.array([1e-3, 0.5, 1 - 1e-9, 1 - 1e-16, 1.0, 1 + 1e-15, 1.5, 1e3])
    powers = 10.0 ** np.arange(-323.0, 309.0, 2.0)
    norms = np.concatenate([[0.0, _TINY, 1e-310, 1e308], powers, near, np.linspace(0.0, 10.0, 101)])
    sizes = np.array([0.0])
    if rule.needs_losses:
        sizes = np.concatenate([sizes, 10.0 ** np.arange(-12.0, 13.0, 3.0), [1e300]])
    pairs = np.meshgrid(norms, sizes)
    return pairs[0].ravel(), pairs[1].ravel()


def _check_bound(rule: Clipping) -> None:
    name = type(rule).__name__
    norms, sizes = _grid(rule)
    weights = _checked(rule.weight, f"{name}.weight")(norms, sizes)
    for wrong, sentence in (
        (
            ~(np.isfinite(weights) & (weights >= 0.0)),
            "the weight at {} is {:.6g}, which is not a finite number >= 0",
        ),
        (
            weights * norms > rule.clip_norm,
            f"{name}.clip_norm is {rule.clip_norm:g}, but the weighted norm at {{}} is over it "
            "(weight {:.6g})",
        ),
        (
            weights > rule.largest_weight * (1.0 + 1e-12),
            f"{name}.largest_weight is {rule.largest_weight:g}, but the weight at {{}} is {{:.6g}}",
        ),
    ):
        for k in np.flatnonzero(wrong)[:1]:
            at = f"norm = {norms[k]:g}"
            at += f" and loss = {sizes[k]:g}" if rule.needs_losses else ""
            fail(sentence.format(at, weights[k]))


def _check_needs(rule: Clipping) -> None:
    norms = rule.clip_norm * np.linspace(0.0, 4.0, 24)
    if not rule.needs_losses:
        same = np.allclose(rule.weight(norms, norms), rule.weight(norms, 1.0 + norms), rtol=1e-12)
        name = type(rule).__name__
        require(same, f"{name}.weight gives other numbers for other losses (needs_losses is False)")


def _check_rule_sums(rule: Clipping, devices: bool, compiled: bool) -> None:
    """Compare sums of clipped gradients with those of ``weight``, for losses the rule bounds."""
    for loss in (losses.Logistic(), losses.SquaredError()):
        try:
            rule.check(loss, _RADIUS)
        except ValueError:
            continue  # the rule does not bound this loss
        _check_sums(loss, devices, compiled, rule)
        compiled = False  # once is enough
