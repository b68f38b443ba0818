"""A rule of one's own at the speed of the built-in ones."""

from __future__ import annotations

import warnings

import numpy as np

from ..clipping import Clipping, check_clipping
from . import own, twins
from .array_api import kept_weights
from .wrapped import CompiledRule

__all__ = ["compiled"]


def compiled(rule: Clipping) -> Clipping:
    """Return the same rule, with sums over samples as fast as those of a built-in one.

    Compiled is the function of a :class:`Custom` rule, or the method ``wanted`` of a class of
    your own, as a function of two numbers; :func:`dpanalysis.losses.compiled` says what may
    stand in it. The cut to ``clip_norm / norm`` and to ``largest_weight`` follows it.

    Parameters
    ----------
    rule : Clipping

    Returns
    -------
    Clipping
        A built-in rule as it is; else the compiled one, or ``rule`` itself where Numba cannot
        compile it. It can be pickled, and is compiled again where it is loaded.

    Raises
    ------
    TypeError, ValueError
        If ``rule`` is not a rule, or its compiled formula differs from that of the arrays on a
        grid of norms and losses.

    Warns
    -----
    UserWarning
        If it cannot be compiled; the message says why.

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
    if rule is None or twins.is_compiled_rule(rule):
        return rule
    try:
        formulas = own.rule_formulas(rule)
    except own.CannotCompile as reason:
        warnings.warn(
            f"{rule!r} is not compiled and its sums run as arrays, which is slower: {reason}",
            stacklevel=2,
        )
        return rule
    sizes = rule.clip_norm * np.array([0.0, 1e-9, 1e-3, 0.1, 0.5, 0.9, 1.0, 1.1, 2.0, 10.0, 1e6])
    norms, losses = (
        part.reshape(-1) for part in np.meshgrid(sizes, [0.0, 1e-9, 1e-3, 0.1, 1.0, 10.0, 1e6])
    )
    expected = kept_weights(rule, norms, losses if rule.needs_losses else None)
    parameters = formulas.numbers(rule)
    found = np.array([formulas.weight(0, parameters, *pair) for pair in zip(norms, losses)])
    wrong = ~np.isclose(found, expected, rtol=1e-9, atol=1e-12, equal_nan=True)
    if wrong.any():
        k = int(np.argmax(wrong))
        raise ValueError(
            f"{rule!r} gives the weight {expected[k]!r} for arrays and {found[k]!r} compiled, at "
            f"norm = {norms[k]:g} and loss = {losses[k]:g}"
        )
    return CompiledRule(rule)
