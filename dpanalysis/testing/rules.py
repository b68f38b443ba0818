"""The contract of a clipping rule, tried out."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np

from .. import losses
from ..clipping import Clipping
from . import _sums
from ._state import check_pickle, snapshot, what_changed
from ._tools import fail, global_random_untouched, optional_namespace, quiet, require

__all__ = ["check_clipping"]

_TINY = 5e-324  # the smallest positive number


def check_clipping(rule: Clipping, *, devices: bool = True, compiled: bool = True) -> None:
    """Raise AssertionError unless a rule keeps the contract of a clipping rule.

    A weight times its norm must be at most ``clip_norm`` for norms from 0 to the largest number
    there is, every weight finite, >= 0 and at most ``largest_weight``, and a function of its own
    sample's norm and loss. The sums that the kernels compute must be those of ``weight``.

    Parameters
    ----------
    rule : Clipping
    devices : bool
        Whether the rule must run on arrays of other libraries than NumPy too (it is tried where
        ``array_api_strict`` is installed).
    compiled : bool
        Whether to try the rule compiled by :func:`dpanalysis.clipping.compiled` as well, which
        takes about 20 seconds for a rule that is not one of the package.

    Raises
    ------
    AssertionError
        Saying what is wrong, at the first thing that is.

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
    remembered = snapshot(rule, type(rule).__name__)
    with quiet(), global_random_untouched("the rule"):
        _check_numbers(rule)
        _check_bound(rule)
        _check_elementwise(rule)
        if devices and (xp := optional_namespace()) is not None:
            _check_namespace(rule, xp)
        _check_kernels(rule, devices, compiled)
    changed = what_changed(remembered, snapshot(rule, type(rule).__name__))
    require(changed is None, f"using the rule changes what it remembers ({changed})")
    copied = check_pickle(rule, "the rule")
    norms = np.linspace(0.0, 5.0, 11)
    same = np.array_equal(copied.weight(norms, norms), rule.weight(norms, norms))
    require(same, "a pickled copy of the rule has other weights")


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _check_numbers(rule: Clipping) -> None:
    name = type(rule).__name__
    for attribute in ("clip_norm", "largest_weight"):
        value: Any = getattr(rule, attribute, None)
        require(
            _is_number(value) and value > 0.0,
            f"{name}.{attribute} must be a number > 0, got {value!r}",
        )
    require(np.isfinite(rule.clip_norm), f"{name}.clip_norm must be finite, got {rule.clip_norm}")
    needs = rule.needs_losses
    require(isinstance(needs, bool), f"{name}.needs_losses must be True or False, got {needs!r}")


def _grid(rule: Clipping) -> tuple[np.ndarray, np.ndarray]:
    """Return norms and losses (k,): all pairs where the rule needs losses."""
    near = rule.clip_norm * np.array([1e-3, 0.5, 1 - 1e-9, 1 - 1e-16, 1.0, 1 + 1e-15, 1.5, 1e3])
    powers = 10.0 ** np.arange(-323.0, 309.0, 2.0)
    norms = np.concatenate([[0.0, _TINY, 1e-310, 1e308], powers, near, np.linspace(0.0, 10.0, 101)])
    sizes = np.array([0.0])
    if rule.needs_losses:
        sizes = np.concatenate([sizes, 10.0 ** np.arange(-12.0, 13.0, 3.0), [1e300]])
    pairs = np.meshgrid(norms, sizes)
    return pairs[0].ravel(), pairs[1].ravel()


def _weights(rule: Clipping, norms: Any, sizes: Any) -> Any:
    try:
        return rule.weight(norms, sizes)
    except Exception as error:
        fail(f"{type(rule).__name__}.weight fails: {type(error).__name__}: {error}", error)


def _check_bound(rule: Clipping) -> None:
    name = type(rule).__name__
    norms, sizes = _grid(rule)
    weights = np.asarray(_weights(rule, norms, sizes))
    require(
        weights.shape == norms.shape,
        f"{name}.weight must return the shape of norms, {norms.shape}, got {weights.shape}",
    )
    over = weights * norms > rule.clip_norm
    wrong = {
        "the weight at {} is {}, which is not a finite number >= 0": ~(
            np.isfinite(weights) & (weights >= 0.0)
        ),
        f"{name}.clip_norm is {rule.clip_norm:g}, but the weighted norm at {{}} is over it "
        "(weight {})": over,
        f"{name}.largest_weight is {rule.largest_weight:g}, but the weight at {{}} is {{}}": (
            weights > rule.largest_weight * (1.0 + 1e-12)
        ),
    }
    for sentence, where in wrong.items():
        for k in np.flatnonzero(where)[:1]:
            at = f"norm = {norms[k]:g}"
            at += f" and loss = {sizes[k]:g}" if rule.needs_losses else ""
            fail(sentence.format(at, f"{weights[k]:.6g}"))


def _check_elementwise(rule: Clipping) -> None:
    """Check that a weight is the same for a sample alone, in any array, and again."""
    rng = np.random.default_rng(0)
    norms = rule.clip_norm * rng.uniform(0.0, 4.0, 24)
    sizes = rng.uniform(0.0, 4.0, 24)
    whole = _weights(rule, norms, sizes)
    shuffled = rng.permutation(24)
    one = slice(0, 1)
    forms = {
        "one sample at a time": np.concatenate(
            [_weights(rule, norms[k:][one], sizes[k:][one]) for k in range(24)]
        ),
        "in another order": _weights(rule, norms[shuffled], sizes[shuffled])[np.argsort(shuffled)],
        "in a table": _weights(rule, norms.reshape(4, 6), sizes.reshape(4, 6)).ravel(),
        "beside others": _weights(rule, np.append(norms, 1e3), np.append(sizes, 1e3))[:24],
        "for a second time": _weights(rule, norms, sizes),
    }
    if not rule.needs_losses:
        forms["for other losses (needs_losses is False)"] = _weights(rule, norms, 2.0 * sizes)
    for how, found in forms.items():
        same = np.shape(found) == (24,) and np.allclose(found, whole, rtol=1e-12, atol=0.0)
        require(
            same,
            f"{type(rule).__name__}.weight gives other weights {how}: the weight must be a "
            "function of one sample's norm and loss, or records move each other's gradients",
        )


def _check_namespace(rule: Clipping, xp: Any) -> None:
    norms = np.linspace(0.0, 5.0, 12).reshape(3, 4)
    expected = _weights(rule, norms, norms)
    try:
        found = np.asarray(rule.weight(xp.asarray(norms), xp.asarray(norms)))
    except Exception as error:
        fail(
            f"{type(rule).__name__}.weight fails on arrays of array_api_strict ({error!r}): write "
            "it in array_api_compat.array_namespace(norms), or call "
            "check_clipping(rule, devices=False) if it need not run on devices",
            error,
        )
    require(
        np.allclose(found, expected, rtol=1e-12),
        f"{type(rule).__name__}.weight gives other weights on arrays of array_api_strict",
    )


def _check_kernels(rule: Clipping, devices: bool, compiled: bool) -> None:
    """Compare the sums of clipped gradients with those of ``weight``, for losses it goes with."""
    for loss in (losses.Logistic(), losses.SquaredError()):
        try:
            rule.check(loss, _sums.RADIUS)
        except ValueError:
            continue  # the rule says itself that it does not bound this loss
        _sums.check_sums(loss, devices, compiled, rule)
        compiled = False  # once is enough
