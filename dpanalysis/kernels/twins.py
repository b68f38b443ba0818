"""Which compiled kernel runs a loss and a rule: a table by the EXACT class of each.

What is not in the table runs its own formulas as arrays. A class that extends a built-in one
is not in it, for its formulas may be others.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from .. import clipping as rules
from .. import losses
from . import codes
from .wrapped import CompiledLoss, CompiledRule

__all__ = [
    "Kernels",
    "Plan",
    "is_compiled",
    "is_compiled_loss",
    "is_compiled_rule",
    "is_fixed",
    "plan",
]

# class -> number of its formulas, and the attribute that is their parameter
_LOSSES: dict[type, tuple[int, str | None]] = {
    losses.Logistic: (codes.LOGISTIC, None),
    losses.SquaredError: (codes.SQUARED_ERROR, None),
    losses.Hinge: (codes.HINGE, None),
    losses.HuberizedHinge: (codes.HUBERIZED_HINGE, "width"),
}
# class -> number of its formula, and the attributes that follow the clip norm
_RULES: dict[type, tuple[int, tuple[str, ...]]] = {
    rules.Flat: (codes.FLAT, ()),
    rules.Automatic: (codes.AUTOMATIC, ("r",)),
    rules.PerSampleAdaptive: (codes.PER_SAMPLE_ADAPTIVE, ("r",)),
    rules.Value: (codes.VALUE, ("beta1", "beta2", "lower_bound")),
}
_UNCLIPPED = (codes.UNCLIPPED, 1.0, 0.0, 0.0, 0.0)


class Kernels(NamedTuple):
    """Kernels of a form of the data: a pass for each replicate, and one pass for all of them."""

    each: Any
    shared: Any


class Plan(NamedTuple):
    """What a sum is computed by: the address of its formulas, their numbers, and the kernels."""

    terms: int
    numbers: np.ndarray
    kernels: Kernels


def is_compiled_loss(loss: Any) -> bool:
    """Whether compiled kernels run the formulas of exactly this class."""
    return type(loss) in _LOSSES or type(loss) is CompiledLoss


def is_compiled_rule(rule: Any) -> bool:
    """Whether compiled kernels run the formula of exactly this class; of no rule they do."""
    return rule is None or type(rule) in _RULES or type(rule) is CompiledRule


def is_compiled(loss: Any, rule: Any) -> bool:
    """Whether compiled kernels run both."""
    return is_compiled_loss(loss) and is_compiled_rule(rule)


def is_fixed(loss: Any, rule: Any) -> bool:
    """Whether both are built-in, so that their numbers cannot change: they are frozen."""
    return type(loss) in _LOSSES and (rule is None or type(rule) in _RULES)


def plan(loss: Any, rule: Any, sparse: bool) -> Plan:
    """Return what computes sums of this loss under this rule; :func:`is_compiled` is true."""
    own_loss = own_rule = None
    if type(loss) is CompiledLoss:
        from .own import loss_formulas

        own_loss = loss_formulas(loss.loss)
        # The place of the formulas with a parameter.
        first: tuple[Any, ...] = (codes.HUBERIZED_HINGE, *own_loss.numbers(loss.loss))
    else:
        code, name = _LOSSES[type(loss)]
        first = (code, 0.0 if name is None else float(getattr(loss, name)))
    if type(rule) is CompiledRule:
        from .own import rule_formulas

        own_rule = rule_formulas(rule.rule)
        code = codes.VALUE if rule.needs_losses else codes.FLAT
        second: tuple[Any, ...] = (code, *own_rule.numbers(rule.rule))
    elif rule is None:
        second = _UNCLIPPED
    else:
        code, names = _RULES[type(rule)]
        numbers = [float(getattr(rule, name)) for name in ("clip_norm", *names)]
        second = (code, *numbers, *[0.0] * (4 - len(numbers)))
    if own_loss is None and own_rule is None:
        from .tile import built_in_terms

        address = built_in_terms().address
    else:
        from .own import Formulas, terms_of

        address = terms_of(Formulas(first[0], second[0], own_loss, own_rule))
    return Plan(address, np.array([*first, *second]), _kernels(sparse))


@cache
def _kernels(sparse: bool) -> Kernels:
    """Return the kernels of a form of the data; they are loaded here, not before."""
    if sparse:
        from . import sparse as csr

        return Kernels(csr.csr_tasks, csr.csr_replicates_tasks)
    from . import dense, replicates

    return Kernels(dense.dense_tasks, replicates.replicates_tasks)
