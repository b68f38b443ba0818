"""Compilation of a user's loss or rule, and comparison with its array formulas."""

from __future__ import annotations

import warnings

import numpy as np

from ..clipping import Clipping, check_clipping
from ..losses import Loss, check_loss, evaluated, grid
from . import kernel_table, user
from .array_api import clip_to_bound
from .kernel_table import CompiledLoss, CompiledRule

_NOT_COMPILED = "{!r} is not compiled and its sums run as arrays, which is slower: {}"


def compile_loss(loss: Loss) -> Loss:
    """Return the same loss, with sums over samples as fast as those of a built-in one.

    Numba compiles the class's ``value`` and ``derivative`` as functions of two numbers, once in a
    process (some seconds, at the first sum of each kind). In them

    - NumPy, or the module that ``array_api_compat.array_namespace(z)`` returns, has functions of
      numbers: ``exp``, ``log``, ``log1p``, ``where``, ``abs``, ``maximum`` and so on. ``exp``,
      ``log`` and ``log1p`` are replaced by vectorized polynomials with a relative error below
      1e-15;
    - ``self`` has only its numbers (fields, class attributes, properties), read at each sum;
    - helpers must be functions of the module, not methods;
    - no exceptions may be raised, since an error at one record would reveal it.

    A built-in loss is returned unchanged, and so is one that Numba cannot compile, with a
    UserWarning that says why. A compiled one can be pickled, and is compiled again where it is
    loaded.

    Raises
    ------
    TypeError, ValueError
        If ``loss`` is not a loss (see :func:`dpanalysis.losses.check_loss`), or its compiled
        formulas differ from those of the arrays on a grid of predictions and labels.

    Examples
    --------
    >>> import numpy as np
    >>> from dpanalysis import ERM, losses
    >>> class Soft(losses.Loss):
    ...     classification = True
    ...     lipschitz, smoothness = 0.5, 0.5
    ...     def value(self, z, y):
    ...         return 0.5 * (np.sqrt(1.0 + (1.0 - y * z) ** 2) - 1.0)
    ...     def derivative(self, z, y):
    ...         gap = 1.0 - y * z
    ...         return -0.5 * y * gap / np.sqrt(1.0 + gap**2)
    >>> problem = ERM(np.array([[1.0], [2.0]]), [1, -1], losses.compiled(Soft()))
    >>> problem.gradient(np.zeros(1))
    array([0.1768])
    """
    check_loss(loss)
    if kernel_table.is_compiled_loss(loss):
        return loss
    try:
        formulas = user.loss_formulas(loss)
    except user.CannotCompile as reason:
        warnings.warn(_NOT_COMPILED.format(loss, reason), stacklevel=2)
        return loss
    z, y = grid(loss)
    numbers = formulas.numbers(loss)
    for name, formula in (("value", formulas.value), ("derivative", formulas.derivative)):
        expected = evaluated(loss, name, z, y)
        if name == "derivative":
            expected = np.clip(expected, -loss.lipschitz, loss.lipschitz)
        found = np.array([formula(*pair, numbers) for pair in zip(z, y)])
        _check_equal(f"{type(loss).__name__}.{name} gives", found, expected, z=z, y=y)
    return CompiledLoss(loss)


def compile_rule(rule: Clipping) -> Clipping:
    """Return the same rule, with sums over samples as fast as those of a built-in one.

    Numba compiles the function of a :class:`Custom` rule, or the method ``wanted`` of a user's
    class, as a function of two numbers, on the conditions of :func:`dpanalysis.losses.compiled`,
    with the same errors and warnings. The weight is then limited to ``clip_norm / norm`` and to
    ``largest_weight``.

    Examples
    --------
    >>> import numpy as np
    >>> from dpanalysis import ERM, clipping, losses
    >>> rule = clipping.compiled(clipping.Custom(lambda norm, loss: 1.0 / (norm + 1.0), 1.0))
    >>> problem = ERM(np.array([[2.0], [1.0]]), [1, 1], losses.Logistic())
    >>> problem.sums(np.zeros(1), clipping=rule, value=False).gradient
    array([-0.8333])
    """
    check_clipping(rule)
    if rule is None or kernel_table.is_compiled_rule(rule):
        return rule
    try:
        formulas = user.rule_formulas(rule)
    except user.CannotCompile as reason:
        warnings.warn(_NOT_COMPILED.format(rule, reason), stacklevel=2)
        return rule
    sizes = rule.clip_norm * np.array([0.0, 1e-9, 1e-3, 0.1, 0.5, 0.9, 1.0, 1.1, 2.0, 10.0, 1e6])
    norms, losses = (
        part.reshape(-1) for part in np.meshgrid(sizes, [0.0, 1e-9, 1e-3, 0.1, 1.0, 10.0, 1e6])
    )
    expected = clip_to_bound(rule, norms, losses if rule.needs_losses else None)
    parameters = formulas.numbers(rule)
    found = np.array([formulas.weight(0, parameters, *pair) for pair in zip(norms, losses)])
    _check_equal(f"{rule!r} gives the weight", found, expected, norm=norms, loss=losses)
    return CompiledRule(rule)


def _check_equal(
    what: str, found: np.ndarray, expected: np.ndarray, **arguments: np.ndarray
) -> None:
    """Raise ValueError at the first argument where compiled and array formulas differ."""
    wrong = ~np.isclose(found, expected, rtol=1e-9, atol=1e-12, equal_nan=True)
    if wrong.any():
        k = int(np.argmax(wrong))
        at = " and ".join(f"{name} = {values[k]:g}" for name, values in arguments.items())
        raise ValueError(f"{what} {expected[k]!r} for arrays and {found[k]!r} compiled, at {at}")
