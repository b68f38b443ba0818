"""A rule of one's own at the speed of the built-in ones."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from .base import Clipping, check_clipping

__all__ = ["CompiledRule", "compiled"]


class CompiledRule(Clipping):
    """What :func:`compiled` returns: the same rule, its weights computed in own kernels."""

    def __init__(self, rule: Clipping) -> None:
        self._rule = rule

    @property
    def rule(self) -> Clipping:
        """The rule as it was written."""
        return self._rule

    @property
    def clip_norm(self) -> float:  # type: ignore[override]
        """The bound on the norm of one sample's weighted gradient."""
        return self._rule.clip_norm

    @property
    def needs_losses(self) -> bool:  # type: ignore[override]
        """Whether the weights depend on the samples' losses."""
        return self._rule.needs_losses

    @property
    def largest_weight(self) -> float:
        """Largest weight of any sample."""
        return self._rule.largest_weight

    def wanted(self, norms: Any, losses: Any) -> Any:
        """Return the weights by the rule's formula."""
        return self._rule.wanted(norms, losses)

    def weight(self, norms: Any, losses: Any = None) -> Any:
        """Return the rule's weights."""
        return self._rule.weight(norms, losses)

    def check(self, loss: Any, radius: float) -> None:
        """Raise ValueError where the rule does."""
        self._rule.check(loss, radius)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CompiledRule) and self._rule == other._rule

    def __hash__(self) -> int:
        return hash((CompiledRule, self._rule))

    def __repr__(self) -> str:
        return f"compiled({self._rule!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return compiled, (self._rule,)  # compiled again where it is loaded


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
    from ..kernels import own, twins
    from ..kernels.array_api import kept_weights

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
