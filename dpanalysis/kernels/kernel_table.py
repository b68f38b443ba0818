"""Table from the EXACT class of a loss and a rule to compiled formulas and kernels.

Other classes run as arrays. A subclass of a built-in class is not in the table, for its formulas
may differ; :class:`CompiledLoss` and :class:`CompiledRule` wrap users' compiled formulas.
"""

from __future__ import annotations

from functools import cache
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from .. import clipping as rules
from .. import losses
from ..clipping import Clipping
from ..losses import Loss
from . import codes


class CompiledLoss(Loss):
    """What :func:`dpanalysis.losses.compiled` returns: the same loss, compiled."""

    __slots__ = ("_loss",)

    def __init__(self, loss: Loss) -> None:
        self._loss = loss

    @property
    def loss(self) -> Loss:
        """The loss as it was written."""
        return self._loss

    classification: Any = property(attrgetter("_loss.classification"))
    convex: Any = property(attrgetter("_loss.convex"))
    lipschitz: Any = property(attrgetter("_loss.lipschitz"))
    smoothness: Any = property(attrgetter("_loss.smoothness"))
    hessian_lipschitz: Any = property(attrgetter("_loss.hessian_lipschitz"))
    curvature_vanishes_at_max_slope: Any = property(
        attrgetter("_loss.curvature_vanishes_at_max_slope")
    )
    lowest: Any = property(attrgetter("_loss.lowest"))
    growth: Any = property(attrgetter("_loss.growth"))

    def value(self, z: Any, y: Any) -> Any:
        """Return the loss."""
        return self._loss.value(z, y)

    def derivative(self, z: Any, y: Any) -> Any:
        """Return the derivative in ``z``."""
        return self._loss.derivative(z, y)

    def second_derivative(self, z: Any, y: Any) -> Any:
        """Return the second derivative in ``z``."""
        return self._loss.second_derivative(z, y)

    def weak_growth(self, row_norm: float, beta1: float | None = None) -> tuple[float, float]:
        """Return ``(beta1, beta2)`` of weak growth."""
        return self._loss.weak_growth(row_norm, beta1)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CompiledLoss) and self._loss == other._loss

    def __hash__(self) -> int:
        return hash((CompiledLoss, self._loss))

    def __repr__(self) -> str:
        return f"compiled({self._loss!r})"


class CompiledRule(Clipping):
    """What :func:`dpanalysis.clipping.compiled` returns: the same rule, compiled."""

    def __init__(self, rule: Clipping) -> None:
        self._rule = rule

    @property
    def rule(self) -> Clipping:
        """The rule as it was written."""
        return self._rule

    clip_norm: Any = property(attrgetter("_rule.clip_norm"))
    needs_losses = property(attrgetter("_rule.needs_losses"))
    largest_weight: Any = property(attrgetter("_rule.largest_weight"))

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


# class -> code of its formulas, and the attribute that is their parameter
_LOSSES: dict[type, tuple[int, str | None]] = {
    losses.Logistic: (codes.LOGISTIC, None),
    losses.SquaredError: (codes.SQUARED_ERROR, None),
    losses.Hinge: (codes.HINGE, None),
    losses.HuberizedHinge: (codes.HUBERIZED_HINGE, "width"),
}
# class -> code of its formula, and its parameters after the clip norm
_RULES: dict[type, tuple[int, tuple[str, ...]]] = {
    rules.Flat: (codes.FLAT, ()),
    rules.Automatic: (codes.AUTOMATIC, ("r",)),
    rules.PerSampleAdaptive: (codes.PER_SAMPLE_ADAPTIVE, ("r",)),
    rules.Value: (codes.VALUE, ("beta1", "beta2", "lower_bound")),
}
_UNCLIPPED = (codes.UNCLIPPED, 1.0, 0.0, 0.0, 0.0)


class Kernels(NamedTuple):
    """Kernels for dense or CSR data: one pass per replicate, and one pass for all of them."""

    each: Any
    shared: Any


class KernelPlan(NamedTuple):
    """Address of the formulas, their numbers, and the kernels of a sum."""

    terms: int
    numbers: np.ndarray
    kernels: Kernels


def is_compiled_loss(loss: Any) -> bool:
    """Whether compiled kernels run the formulas of exactly this class."""
    return type(loss) in _LOSSES or type(loss) is CompiledLoss


def is_compiled_rule(rule: Any) -> bool:
    """Whether compiled kernels run the formula of exactly this class; true without a rule."""
    return rule is None or type(rule) in _RULES or type(rule) is CompiledRule


def is_compiled(loss: Any, rule: Any) -> bool:
    """Whether compiled kernels run both."""
    return is_compiled_loss(loss) and is_compiled_rule(rule)


def is_fixed(loss: Any, rule: Any) -> bool:
    """Whether both are built-in and thus frozen: their numbers cannot change."""
    return type(loss) in _LOSSES and (rule is None or type(rule) in _RULES)


def plan(loss: Any, rule: Any, sparse: bool) -> KernelPlan:
    """Return the plan of sums of a loss under a rule for which :func:`is_compiled` is true."""
    own_loss = own_rule = None
    if type(loss) is CompiledLoss:
        from .user import loss_formulas

        own_loss = loss_formulas(loss.loss)
        # The place of the formulas with a parameter.
        first: tuple[Any, ...] = (codes.HUBERIZED_HINGE, *own_loss.numbers(loss.loss))
    else:
        code, name = _LOSSES[type(loss)]
        first = (code, 0.0 if name is None else float(getattr(loss, name)))
    if type(rule) is CompiledRule:
        from .user import rule_formulas

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
        from .user import Formulas, terms_of

        address = terms_of(Formulas(first[0], second[0], own_loss, own_rule))
    return KernelPlan(address, np.array([*first, *second]), _kernels(sparse))


@cache
def _kernels(sparse: bool) -> Kernels:
    """Return the kernels for dense or CSR data, loaded on first use."""
    if sparse:
        from . import csr

        return Kernels(csr.csr_tasks, csr.csr_replicates_tasks)
    from . import dense, replicates

    return Kernels(dense.dense_tasks, replicates.replicates_tasks)
