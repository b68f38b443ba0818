"""Table that maps the EXACT classes of a loss and a rule to compiled formulas and kernels.

Other classes run as arrays. A subclass of a built-in class is not in the table, since its formulas
may differ; :class:`CompiledLoss` and :class:`CompiledRule` wrap users' compiled formulas.
"""

from __future__ import annotations

import warnings
from functools import cache
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from .. import clipping as rules
from .. import losses
from ..clipping import Clipping, check_clipping
from ..losses import Loss, check_loss, evaluated, grid
from . import (
    AUTOMATIC,
    FLAT,
    HINGE,
    HUBER,
    HUBERIZED_HINGE,
    LOGISTIC,
    PER_SAMPLE_ADAPTIVE,
    SQUARED_ERROR,
    UNCLIPPED,
    VALUE,
)
from .array_api import clip_to_bound


class _Compiled:
    """A loss or a rule with compiled formulas, and the original one that it wraps."""

    def __init__(self, original: Any) -> None:
        self._original = original

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and self._original == other._original

    def __hash__(self) -> int:
        return hash((type(self), self._original))

    def __repr__(self) -> str:
        return f"compiled({self._original!r})"


class CompiledLoss(_Compiled, Loss):
    """A loss with compiled formulas, as returned by :func:`dpanalysis.losses.compiled`."""

    loss: Any = property(attrgetter("_original"))
    classification: Any = property(attrgetter("_original.classification"))
    convex: Any = property(attrgetter("_original.convex"))
    lipschitz: Any = property(attrgetter("_original.lipschitz"))
    smoothness: Any = property(attrgetter("_original.smoothness"))
    hessian_lipschitz: Any = property(attrgetter("_original.hessian_lipschitz"))
    curvature_vanishes_at_max_slope: Any = property(
        attrgetter("_original.curvature_vanishes_at_max_slope")
    )
    lowest: Any = property(attrgetter("_original.lowest"))
    growth: Any = property(attrgetter("_original.growth"))
    value: Any = property(attrgetter("_original.value"))
    derivative: Any = property(attrgetter("_original.derivative"))
    second_derivative: Any = property(attrgetter("_original.second_derivative"))
    weak_growth: Any = property(attrgetter("_original.weak_growth"))


class CompiledRule(_Compiled, Clipping):
    """A rule with a compiled formula, as returned by :func:`dpanalysis.clipping.compiled`."""

    rule: Any = property(attrgetter("_original"))
    clip_norm: Any = property(attrgetter("_original.clip_norm"))
    needs_losses = property(attrgetter("_original.needs_losses"))
    largest_weight: Any = property(attrgetter("_original.largest_weight"))
    wanted: Any = property(attrgetter("_original.wanted"))
    weight: Any = property(attrgetter("_original.weight"))
    check: Any = property(attrgetter("_original.check"))


# class -> code of its formulas, and the attribute that is their parameter
_LOSSES: dict[type, tuple[int, str | None]] = {
    losses.Logistic: (LOGISTIC, None),
    losses.SquaredError: (SQUARED_ERROR, None),
    losses.Hinge: (HINGE, None),
    losses.HuberizedHinge: (HUBERIZED_HINGE, "width"),
    losses.Huber: (HUBER, "width"),
}
# class -> code of its formula, and its parameters after the clip norm
_RULES: dict[type, tuple[int, tuple[str, ...]]] = {
    rules.Flat: (FLAT, ()),
    rules.Automatic: (AUTOMATIC, ("r",)),
    rules.PerSampleAdaptive: (PER_SAMPLE_ADAPTIVE, ("r",)),
    rules.Value: (VALUE, ("beta1", "beta2", "lower_bound")),
}


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
    """Return whether compiled kernels run the formulas of exactly this class."""
    return type(loss) in _LOSSES or type(loss) is CompiledLoss


def is_compiled_rule(rule: Any) -> bool:
    """Return whether compiled kernels run the formula of exactly this class; True for None."""
    return rule is None or type(rule) in _RULES or type(rule) is CompiledRule


def is_compiled(loss: Any, rule: Any) -> bool:
    """Return whether compiled kernels run both the loss and the rule."""
    return is_compiled_loss(loss) and is_compiled_rule(rule)


def is_fixed(loss: Any, rule: Any) -> bool:
    """Return whether both are built-in, hence frozen: their numbers cannot change."""
    return type(loss) in _LOSSES and (rule is None or type(rule) in _RULES)


def built_in_rule(rule: Any) -> tuple[int, tuple[float, ...]]:
    """Return the code and the numbers of a built-in rule; of no clipping for any other."""
    if type(rule) not in _RULES:
        return UNCLIPPED, (1.0, 0.0, 0.0, 0.0)
    code, names = _RULES[type(rule)]
    numbers = [float(getattr(rule, name)) for name in ("clip_norm", *names)]
    return code, (*numbers, *[0.0] * (4 - len(numbers)))


def plan(loss: Any, rule: Any, sparse: bool) -> KernelPlan:
    """Return the plan of sums of a loss under a rule for which :func:`is_compiled` is true."""
    own_loss = own_rule = None
    if type(loss) is CompiledLoss:
        from .user import loss_formulas

        own_loss = loss_formulas(loss.loss)
        # It takes the place of the built-in formulas with a parameter.
        first: tuple[Any, ...] = (HUBERIZED_HINGE, *own_loss.numbers(loss.loss))
    else:
        code, name = _LOSSES[type(loss)]
        first = (code, 0.0 if name is None else float(getattr(loss, name)))
    if type(rule) is CompiledRule:
        from .user import rule_formulas

        own_rule = rule_formulas(rule.rule)
        code = VALUE if rule.needs_losses else FLAT
        second: tuple[Any, ...] = (code, *own_rule.numbers(rule.rule))
    else:
        code, numbers = built_in_rule(rule)
        second = (code, *numbers)
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
    from . import dense

    return Kernels(dense.dense_tasks, dense.replicates_tasks)


# Compilation of a user's loss or rule, and comparison with its array formulas


_NOT_COMPILED = "{!r} is not compiled and its sums run as arrays, which is slower: {}"


def compile_loss(loss: Loss) -> Loss:
    """Return the same loss, with sums over samples as fast as those of a built-in loss.

    Numba compiles the class's ``value`` and ``derivative`` as functions of two numbers, once per
    process (some seconds, at the first sum of each kind). In them

    - NumPy, or the module that ``array_api_compat.array_namespace(z)`` returns, has functions of
      numbers: ``exp``, ``log``, ``log1p``, ``where``, ``abs``, ``maximum`` and so on. ``exp``,
      ``log`` and ``log1p`` become vectorized polynomials with a relative error below 1e-15;
    - ``self`` has only its numbers (fields, class attributes, properties), read at each sum;
    - helpers must be functions of the module, not methods;
    - global and enclosed variables are constants: if one changes, all is compiled again;
    - no exceptions may be raised, since an error at one record would reveal it.

    A built-in loss is returned unchanged, as is one that Numba cannot compile, with the reason in a
    UserWarning. A compiled loss can be pickled, and is compiled again where it is loaded.

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
    if is_compiled_loss(loss):
        return loss
    from . import user

    try:
        formulas = user.loss_formulas(loss)
    except user.CannotCompile as reason:
        warnings.warn(_NOT_COMPILED.format(loss, reason), stacklevel=2)
        return loss
    z, y = grid(loss)
    numbers = formulas.numbers(loss)
    for name, formula in (("value", formulas.value), ("derivative", formulas.derivative)):
        expected = evaluated(loss, name, z, y)
        found = np.array([formula(*pair, numbers) for pair in zip(z, y)])
        _check_equal(f"{type(loss).__name__}.{name} gives", found, expected, z=z, y=y)
    return CompiledLoss(loss)


def compile_rule(rule: Clipping) -> Clipping:
    """Return the same rule, with sums over samples as fast as those of a built-in rule.

    Numba compiles the function of a :class:`Custom` rule, or the method ``wanted`` of a user's
    class, as a function of two numbers, under the conditions of :func:`dpanalysis.losses.compiled`
    and with the same errors and warnings. The weight is then limited to ``clip_norm / norm`` and to
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
    if is_compiled_rule(rule):
        return rule
    from . import user

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
