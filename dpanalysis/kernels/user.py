"""Compilation of the formulas of user-defined losses and rules, for use by the built-in kernels.

A formula is a method of a class, written for arrays. It is compiled as a function of numbers:
``self`` becomes a tuple of the object's numbers, and ``np`` (or the namespace that
``array_namespace`` returns) becomes :data:`SCALARS`: NumPy with replacements for the functions that
create arrays or prevent vectorization. The kernels call a copy of the built-in
:func:`~dpanalysis.kernels.tile.tile_terms` in which it replaces the built-in formula. Its
parameters are arguments, so each class is compiled once per process, whatever parameters and data,
and again only if its global or enclosed variables or helpers have changed.
"""

from __future__ import annotations

import dis
import math
import threading
from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from numbers import Real
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

import array_api_compat
import numpy as np
from numba import carray, cfunc, types
from numba.core.dispatcher import Dispatcher
from numba.core.errors import NumbaError
from numba.extending import intrinsic, overload
from numba.np.unsafe.ndarray import to_fixed_tuple

from .._numba import EXACT, njit
from .._user_classes import captured
from ..clipping import Clipping, Custom
from .scalar import (
    clip_weight,
    cut_weight,
    exp_any,
    huber_derivative,
    huber_value,
    huberized_derivative,
    huberized_value,
    log1p_any,
    log_any,
)
from .tile import TERMS, split_rule, tile_terms

# The built-in formulas with parameters, which users' formulas replace.
_VALUES, _DERIVATIVES = (huberized_value, huber_value), (huberized_derivative, huber_derivative)

_OPTIONS = {**EXACT, "cache": False}  # Numba's cache identifies functions by file and line


def _compiled(function: Callable[..., Any]) -> Any:
    return njit(**_OPTIONS)(function)


SCALARS = ModuleType("dpanalysis.kernels.SCALARS")
vars(SCALARS).update({name: item for name, item in vars(np).items() if name[:2] != "__"})
vars(SCALARS).update(
    where=_compiled(lambda condition, first, second: first if condition else second),
    clip=_compiled(lambda x, low, high: np.minimum(np.maximum(x, low), high)),
    zeros_like=_compiled(lambda x: 0.0),
    ones_like=_compiled(lambda x: 1.0),
    full_like=_compiled(lambda x, value: value),
    abs=_compiled(lambda x: abs(x)),
    sqrt=_compiled(lambda x: math.sqrt(x)),
    square=_compiled(lambda x: x * x),
    isnan=_compiled(lambda x: x != x),
    isfinite=_compiled(lambda x: abs(x) < math.inf),
    exp=_compiled(lambda x: exp_any(float(x))),
    log=_compiled(lambda x: log_any(float(x))),
    log1p=_compiled(lambda x: log1p_any(float(x))),
)


def namespace(*arrays: Any) -> Any:
    """Stand in for ``array_namespace``: return :data:`SCALARS`."""
    return SCALARS


@overload(namespace)
def _namespace(*arrays: Any) -> Any:
    def implementation(*arrays: Any) -> Any:
        return SCALARS

    return implementation


# Users' formulas


_SET_BY_NUMBA = ("nopython", "boundscheck")
_lock = threading.RLock()
_losses: dict[Any, LossFormulas] = {}
_rules: dict[Any, RuleFormulas] = {}


class CannotCompile(Exception):
    """The reason why a formula cannot be compiled."""


class LossFormulas(NamedTuple):
    """Compiled ``value(z, y, parameter)`` and ``derivative(z, y, parameter)`` of a class."""

    value: Any
    derivative: Any
    fields: tuple[str, ...]

    def numbers(self, loss: Any) -> tuple[float, ...]:
        """Return the Lipschitz constant and the numbers of ``self`` that the formulas read."""
        return float(loss.lipschitz), *_numbers(loss, self.fields)


class RuleFormulas(NamedTuple):
    """Compiled ``weight(code, parameters, norm, loss)`` of a class, limited to its bounds."""

    weight: Any
    fields: tuple[str, ...]

    def numbers(self, rule: Any) -> tuple[float, ...]:
        """Return the clip norm, the largest weight and the numbers of ``self`` it reads."""
        return float(rule.clip_norm), float(rule.largest_weight), *_numbers(rule, self.fields)


def loss_formulas(loss: Any) -> LossFormulas:
    """Return the compiled formulas of the loss's class, or raise CannotCompile."""
    methods = [_method(loss, name) for name in ("value", "derivative")]
    fields = _fields(loss, methods)
    key = (*methods, fields, captured(methods))  # what they read is fixed where they are compiled
    with _lock:
        if key not in _losses:
            value, derivative = (_scalar(method, fields) for method in methods)
            numbers = _part(1, 2 + len(fields), _tuple(fields))

            @njit(**_OPTIONS)
            def own_value(z: float, y: float, parameter: Any) -> float:
                return float(value(numbers(parameter), z, y))

            @njit(**_OPTIONS)
            def own_derivative(z: float, y: float, parameter: Any) -> float:
                limit = parameter[0]
                slope = float(derivative(numbers(parameter), z, y))
                slope = limit if slope > limit else slope
                return -limit if slope < -limit else slope

            found = LossFormulas(own_value, own_derivative, fields)
            for name, formula in (("value", own_value), ("derivative", own_derivative)):
                _try(f"{type(loss).__name__}.{name}", formula, 0.5, 1.0, found.numbers(loss))
            _losses[key] = found
        return _losses[key]


def rule_formulas(rule: Any) -> RuleFormulas:
    """Return the compiled formula of the rule's class, or raise CannotCompile."""
    if type(rule) is Custom:
        method, takes_self = rule.function, False
        if not isinstance(method, FunctionType):
            raise CannotCompile(f"its function {method!r} is not a plain Python function")
        fields: tuple[str, ...] = ()
    else:
        own_weight_method = next(c for c in type(rule).__mro__ if "weight" in vars(c))
        if own_weight_method.__module__ != Clipping.__module__:
            raise CannotCompile(
                f"{type(rule).__name__} has a method weight of its own; write its formula as wanted"
            )
        method, takes_self = _method(rule, "wanted"), True
        fields = _fields(rule, [method])
    key = (method, fields, captured([method]))
    with _lock:
        if key not in _rules:
            wanted = _scalar(method, fields)
            numbers = _part(2, 3 + len(fields), _tuple(fields))

            @njit(**_OPTIONS)
            def own_weight(code: int, parameters: Any, norm: float, loss: float) -> float:
                bound, largest = parameters[0], parameters[1]
                if takes_self:
                    weight = float(wanted(numbers(parameters), norm, loss))
                else:
                    weight = float(wanted(norm, loss))
                weight = 0.0 if weight < 0.0 else weight
                weight = largest if weight > largest else weight
                return cut_weight(weight, norm, bound)

            found = RuleFormulas(own_weight, fields)
            _try(f"the formula of {rule!r}", own_weight, 0, found.numbers(rule), 0.5, 1.0)
            _rules[key] = found
        return _rules[key]


@dataclass(frozen=True)
class Formulas:
    """Loss and rule for which ``tile_terms`` is compiled; None for a built-in formula."""

    loss_code: int
    clip_code: int
    loss: LossFormulas | None
    rule: RuleFormulas | None

    @property
    def loss_end(self) -> int:
        """Number of leading entries of the numbers that are the loss's code and parameters."""
        return 2 if self.loss is None else len(self.loss.fields) + 3

    @property
    def end(self) -> int:
        """Number of all entries."""
        return self.loss_end + (5 if self.rule is None else len(self.rule.fields) + 4)


def terms_of(formulas: Formulas) -> int:
    """Return the address of ``tile_terms`` for these formulas, valid while the process lives."""
    with _lock:
        address: int = _terms_of(formulas).address
        return address


@cache
def _terms_of(formulas: Formulas) -> Any:
    return cfunc(TERMS)(_function(tile_terms, _changes(tile_terms, formulas)))


@cache
def _rebuilt(kernel: Any, formulas: Formulas) -> Any:
    """Return a compiled function with its formulas replaced, or itself if it uses none."""
    loss, rule = formulas.loss, formulas.rule
    if loss is not None and kernel in _VALUES:
        return loss.value
    if loss is not None and kernel in _DERIVATIVES:
        return loss.derivative
    if rule is not None and kernel is clip_weight:
        return rule.weight
    if kernel is split_rule:
        return _split(formulas)
    changed = _changes(kernel.py_func, formulas)
    if not changed:
        return kernel
    options = {k: v for k, v in kernel.targetoptions.items() if k not in _SET_BY_NUMBA}
    return njit(**options)(_function(kernel.py_func, changed))


def _changes(function: Any, formulas: Formulas) -> dict[str, Any]:
    """Return replacements for the compiled functions among a function's globals."""
    changed = {}
    for name in function.__code__.co_names:
        used = function.__globals__.get(name)
        if isinstance(used, Dispatcher):
            copy = _rebuilt(used, formulas)
            if copy is not used:
                changed[name] = copy
    return changed


def _function(function: Any, changed: dict[str, Any]) -> FunctionType:
    """Return a copy of a function with some globals replaced."""
    names = {**function.__globals__, **changed}
    return FunctionType(
        function.__code__, names, function.__name__, function.__defaults__, function.__closure__
    )


def _method(owner: Any, name: str) -> FunctionType:
    """Return a method of the object's class as a plain function."""
    method = getattr(type(owner), name)
    if name in getattr(owner, "__dict__", {}) or not isinstance(method, FunctionType):
        raise CannotCompile(f"{type(owner).__name__}.{name} is not a plain method of its class")
    return method


def _fields(owner: Any, methods: list[FunctionType]) -> tuple[str, ...]:
    """Return the names of the numeric attributes that the methods read."""
    names = sorted({name for method in methods for name in method.__code__.co_names})
    found = []
    for name in names:
        try:
            item = getattr(owner, name)
        except Exception:
            continue  # not an attribute of the object
        if isinstance(item, (Real, np.bool_)):
            found.append(name)
        elif callable(item) and hasattr(type(owner), name) and not hasattr(SCALARS, name):
            raise CannotCompile(
                f"it calls self.{name}, and only numbers of self can be compiled; write the helper "
                "as a function of the module"
            )
    return tuple(found)


@cache
def _tuple(fields: tuple[str, ...]) -> Callable[..., Any]:
    return namedtuple("Numbers", [*map(_public, fields), "last"])  # never empty


def _public(name: str) -> str:
    """Return a valid name for a field of a named tuple, which must not begin with "_"."""
    return f"own{name}" if name.startswith("_") else name


def _numbers(owner: Any, fields: tuple[str, ...]) -> tuple[float, ...]:
    return (*(float(getattr(owner, name)) for name in fields), 0.0)


def _part(lo: int, hi: int, kind: Any) -> Any:
    """Return a compiled function that returns the entries ``lo:hi`` of a tuple as a ``kind``."""

    @intrinsic
    def part(typingctx: Any, numbers: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            items = [builder.extract_value(args[0], i) for i in range(lo, hi)]
            return context.make_tuple(builder, signature.return_type, items)

        return types.BaseTuple.from_types(numbers.types[lo:hi], kind)(numbers), codegen

    return part


def _split(formulas: Formulas) -> Any:
    """Return ``split_rule`` with constant codes, so that unused formulas are not compiled."""
    loss_code, clip_code = formulas.loss_code, formulas.clip_code
    one = formulas.loss is None  # a built-in loss has one number
    split_at, end = formulas.loss_end, formulas.end
    parameter, parameters = _part(1, split_at, None), _part(split_at + 1, end, None)

    @njit(forceinline=True, **_OPTIONS)
    def split(numbers: Any) -> Any:
        each: Any = to_fixed_tuple(carray(numbers, end), end)  # type: ignore[call-arg]
        if one:
            return loss_code, parameter(each)[0], clip_code, parameters(each)
        return loss_code, parameter(each), clip_code, parameters(each)

    return split


def _scalar(function: FunctionType, fields: tuple[str, ...] = ()) -> Any:
    """Return a function of arrays, and its helpers, compiled as functions of numbers."""
    if any(step.opname == "RAISE_VARARGS" for step in dis.get_instructions(function)):
        raise CannotCompile(f"{function.__name__} raises exceptions")
    code = function.__code__
    code = code.replace(
        co_names=tuple(_public(name) if name in fields else name for name in code.co_names)
    )
    changed: dict[str, Any] = {}
    for name in code.co_names:
        item = function.__globals__.get(name)
        if item is np:
            changed[name] = SCALARS
        elif item is array_api_compat.array_namespace:
            changed[name] = namespace
        elif isinstance(item, FunctionType) and item is not function:
            changed[name] = _scalar(item)
    copy = _function(function, changed)
    return njit(**_OPTIONS)(
        FunctionType(code, copy.__globals__, code.co_name, copy.__defaults__, copy.__closure__)
    )


def _try(what: str, formula: Any, *arguments: Any) -> None:
    """Compile a formula for its arguments, or raise CannotCompile with the reason."""
    try:
        formula(*arguments)
    except NumbaError as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        telling = [line for line in lines if not line.startswith(("Failed in", "During", "File"))]
        reason = (telling or lines or ["no reason given"])[0]
        raise CannotCompile(f"Numba cannot compile {what}: {reason[:200]}") from error
    except Exception as error:
        raise CannotCompile(f"Numba cannot compile {what}: {error!r}") from error
