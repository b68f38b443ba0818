"""Checks of user-defined classes: elementwise formulas, and constants that match the formulas.

An array formula must compute each entry from one sample's numbers only; inherited constants hold
only for the formulas inherited with them.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from types import CellType, FunctionType, ModuleType
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

# Sizes of the parts into which shuffled rows are divided; the last part has the rest.
_PARTS = (1, 2, 3, 5, 8, 17, 64, 200)
_LONG = 1 << 14  # rows of the longest call

_stateful: WeakValueDictionary[int, Any] = WeakValueDictionary()  # rejected as stateful
_PACKAGE = __name__.partition(".")[0] + "."


def check_elementwise(owner: Any, name: str, a: np.ndarray, b: np.ndarray) -> None:
    """Raise unless a method returns the same bits for every entry however the rows are grouped.

    It may raise at some rows, if it does so every time. The values must be real. It must not change
    its arguments, nor any state in which it could store samples: see :func:`memory`.
    """
    what, formula = f"{type(owner).__name__}.{name}", getattr(owner, name)
    code = type(owner) if _is_user_defined(type(owner)) else getattr(owner, "function", owner)
    _tried(formula, a[:2], b[:2])  # the first call may cache constants
    before, given = memory(owner), (a.tobytes(), b.tobytes())
    if (_tried(lambda *both: np.iscomplexobj(formula(*both)), a, b) == 1.0).any():
        raise ValueError(
            f"{what} gives complex numbers for some samples: in a private run they must be real, "
            "else one record would change the type of all numbers"
        )
    whole = _tried(formula, a, b)
    if np.isnan(whole).all():
        try:
            formula(a[:1], b[:1])
        except NotImplementedError:  # an optional method
            return
        except Exception as error:
            raise ValueError(f"{what} fails for NumPy arrays: {error!r}") from error
    again = np.empty_like(whole)
    for part in np.split(np.random.default_rng(0).permutation(len(a)), np.cumsum(_PARTS)):
        again[part] = _tried(formula, a[part], b[part])
    pairs = [(a[:, k], b[:, k % b.shape[1]]) for k in range(a.shape[1])]
    tables = [_tried(formula, x[:, None], y[:, None])[:, 0] for x, y in pairs]
    vectors = [_tried(formula, x, y) for x, y in pairs]
    times = -(-_LONG // len(a))
    long = _tried(formula, np.tile(a, (times, 1)), np.tile(b, (times, 1)))
    others = again, np.stack(tables, axis=1), np.stack(vectors, axis=1), _tried(formula, a, b)
    copies = np.split(long, times)
    if not all(np.array_equal(whole, other, equal_nan=True) for other in (*others, *copies)):
        raise ValueError(
            f"{what} gives a sample other numbers beside other samples, or when it is called "
            "again: in a private run it must be a function of that sample's numbers alone, else "
            "one record would change the terms of all others"
        )
    if (a.tobytes(), b.tobytes()) != given:
        raise ValueError(f"{what} writes to its arguments, which others read after it")
    if _stateful.get(id(code)) is code or memory(owner) != before:
        with suppress(TypeError):  # a stored maximum, say, changes at the first trial only
            _stateful[id(code)] = code
        raise ValueError(
            f"{what} changes attributes of its object or class, enclosed or global variables: in a "
            "private run it must not store the samples that it is called with"
        )


def _tried(formula: Callable[[Any, Any], Any], a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the formula's values, NaN for rows at which it raises."""
    try:
        with np.errstate(all="ignore"):
            return np.array(np.broadcast_to(formula(a, b), a.shape), dtype=np.float64)
    except NotImplementedError:
        return np.full(a.shape, np.nan)
    except Exception:
        if len(a) <= 1:
            return np.full(a.shape, np.nan)
    half = len(a) // 2
    parts = slice(half), slice(half, None)
    return np.concatenate([_tried(formula, a[k], b[k]) for k in parts])


def memory(owner: Any) -> frozenset[Any]:
    """Return a snapshot of all state in which the formulas of an object could store samples.

    Attributes of the object and of its user-defined classes, and what their methods read.
    """
    spaces: list[Any] = [getattr(owner, "__dict__", {})]
    spaces += [vars(kind) for kind in type(owner).__mro__ if _is_user_defined(kind)]
    items = [(k, *item) for k, space in enumerate(spaces) for item in space.items()]
    own = frozenset((k, name, _value(value)) for k, name, value in items)
    return own | captured(value for *_, value in items)


def captured(values: Iterable[Any]) -> frozenset[Any]:
    """Return attributes, defaults, closures and globals of the functions among ``values``.

    And of the functions that these call in the same module.
    """
    found: set[Any] = set()
    for function in _functions(values):
        enclosed = zip(function.__code__.co_freevars, function.__closure__ or ())
        names = function.__code__.co_names
        variables = {
            **{name: function.__globals__[name] for name in names if name in function.__globals__},
            **{f"{name} enclosed": cell for name, cell in enclosed},
            "defaults": (function.__defaults__, function.__kwdefaults__),
            "attributes": function.__dict__,
        }
        found |= {(function, name, _value(value)) for name, value in variables.items()}
    return frozenset(found)


def _functions(values: Iterable[Any]) -> Iterator[FunctionType]:
    """Yield, once each, the functions among ``values`` and those they name in their modules."""
    waiting = [getattr(value, "__func__", getattr(value, "fget", value)) for value in values]
    seen: set[int] = set()
    while waiting:
        function = waiting.pop()
        if not isinstance(function, FunctionType) or id(function) in seen:
            continue
        if (function.__module__ or "").startswith(_PACKAGE):
            continue
        seen.add(id(function))
        yield function
        space = function.__globals__
        named = (space.get(name) for name in function.__code__.co_names)
        waiting += [each for each in named if getattr(each, "__globals__", None) is space]


def _value(value: Any) -> Any:
    """Return a value's pickle; its identity if it is code or cannot be pickled."""
    if isinstance(value, CellType):
        try:
            value = value.cell_contents
        except ValueError:  # an empty cell
            return None
    if isinstance(value, FunctionType | ModuleType | type) or hasattr(value, "py_func"):
        return id(value)
    try:
        return pickle.dumps(value)
    except Exception:
        return id(value)


def _is_user_defined(kind: type) -> bool:
    return kind is not object and not kind.__module__.startswith(_PACKAGE)


def overridden(
    cls: type, names: Iterable[str], stated: str, own: Collection[str] = ()
) -> tuple[str, str, str] | None:
    """Return a user's class, the name it overrides, and the class whose ``stated`` it inherits.

    None if ``stated`` is defined by the class that overrides one of ``names``, or by a subclass.
    If this package defines it, none of ``names`` may be an ``own`` attribute of the object either.
    """
    order = cls.__mro__

    def place(name: str) -> int:
        return next((k for k, kind in enumerate(order) if name in vars(kind)), len(order))

    states = place(stated)
    for name in names:
        answers = place(name)
        if answers < states and _is_user_defined(order[answers]):
            return order[answers].__name__, name, order[states].__name__
        if name in own and not _is_user_defined(order[states]):
            return cls.__name__, name, order[states].__name__
    return None


def package_method(owner: Any, name: str) -> Any:
    """Return this package's method of that name if a user's class overrides it, else None."""
    kinds = [kind for kind in type(owner).__mro__ if name in vars(kind)]
    ours = next((kind for kind in kinds if not _is_user_defined(kind)), None)
    if ours is None or (ours is kinds[0] and name not in getattr(owner, "__dict__", {})):
        return None
    return vars(ours)[name].__get__(owner)


def outdated(
    cls: type, constants: Collection[str], base: type | None = None
) -> dict[str, tuple[str, str, str]]:
    """Return the inherited constants that refer to formulas overridden by ``cls``.

    A constant refers to the formulas of the class that states it. So it is outdated if a class
    earlier in the method resolution order, mixins included, overrides an attribute of that class:
    a formula, a helper or a number that the formulas read. Special methods, such as ``__init__``
    and ``__repr__``, do not count.
    """
    order = cls.__mro__
    found: dict[str, tuple[str, str, str]] = {}
    for constant in constants:
        stated = next((k for k, kind in enumerate(order) if constant in vars(kind)), 0)
        if order[stated] is base:
            continue
        known = {name for kind in order[stated:] for name in vars(kind)}
        for kind in order[:stated]:
            for name in vars(kind):
                special = name.startswith(("__", "_abc_", "_is_"))  # "_abc_": abc; "_is_": typing
                if name in known and name not in constants and not special:
                    found.setdefault(constant, (kind.__name__, name, order[stated].__name__))
    return found


def with_attributes(owner: Any) -> str:
    """Return a repr of an object by its class and its public attributes, for a model's card."""
    given = (f"{name}={value!r}" for name, value in getattr(owner, "__dict__", {}).items())
    return f"{type(owner).__name__}({', '.join(each for each in given if each[0] != '_')})"
