"""What an object remembers: everything that can be reached from it, as names and values."""

from __future__ import annotations

import hashlib
import pickle
import random
import sys
from collections.abc import Iterator, Mapping
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from ..privacy.filters import Filter

__all__ = ["check_pickle", "reachable", "snapshot", "what_changed"]

_PLAIN = (type(None), bool, int, float, complex, str, bytes, type, ModuleType, np.generic)
_DEEPEST = 12


def reachable(root: Any, name: str = "self") -> Iterator[tuple[str, Any]]:
    """Yield (path, object) for what ``root`` refers to, itself first.

    Attributes, items of containers, what its class (outside this package) and the functions
    there hold: defaults, closures, and the global names that they use.
    """
    seen: set[int] = set()
    kept: list[Any] = []  # so that no id is used twice

    def visit(path: str, item: Any, depth: int) -> Iterator[tuple[str, Any]]:
        yield path, item
        if isinstance(item, _PLAIN) or id(item) in seen or depth > _DEEPEST:
            return
        seen.add(id(item))
        kept.append(item)
        for step, part in _parts(item):
            yield from visit(f"{path}{step}", part, depth + 1)

    yield from visit(name, root, 0)
    for cls in type(root).__mro__:
        if cls.__module__.split(".")[0] in ("builtins", "abc", "typing", "dpanalysis"):
            continue
        for key, part in list(vars(cls).items()):
            if not key.startswith("__") and key != "_abc_impl":
                yield from visit(f"{cls.__name__}.{key}", part, 1)


def _parts(item: Any) -> list[tuple[str, Any]]:
    """Return what an object refers to directly, each with the step that leads there."""
    if isinstance(item, np.ndarray):
        return (
            [(f"[{k}]", each) for k, each in enumerate(item.flat)] if item.dtype == object else []
        )
    if isinstance(item, Mapping):
        return [(f"[{key!r}]", part) for key, part in list(item.items())]
    if isinstance(item, (list, tuple, set, frozenset)) or type(item).__name__ == "deque":
        return [(f"[{k}]", part) for k, part in enumerate(list(item))]
    if isinstance(item, Filter):
        return [(".spent", item.spent)]  # beside it, prices that it has computed before
    if isinstance(item, np.random.Generator):
        return [(".state", item.bit_generator.state)]
    if isinstance(item, random.Random):
        return [(".state", item.getstate())]
    if isinstance(item, (property, staticmethod, classmethod)):
        inner = item.fget if isinstance(item, property) else item.__func__
        return [("", inner)]
    if isinstance(item, FunctionType):
        return _parts_of_function(item)
    found = list(getattr(item, "__dict__", {}).items())
    for cls in type(item).__mro__:
        slots = vars(cls).get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            if not slot.startswith("__") and hasattr(item, slot):
                found.append((slot, getattr(item, slot)))
    return [(f".{key}", part) for key, part in found]


def _parts_of_function(function: FunctionType) -> list[tuple[str, Any]]:
    if function.__module__ and function.__module__.split(".")[0] == "dpanalysis":
        return []
    found: list[tuple[str, Any]] = [(f".{key}", part) for key, part in vars(function).items()]
    found += [(" default", part) for part in (function.__defaults__ or ())]
    found += [(f" default {k}", part) for k, part in (function.__kwdefaults__ or {}).items()]
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        try:
            found.append((f" closure {name}", cell.cell_contents))
        except ValueError:
            continue  # an empty cell
    for name in sorted(_names(function.__code__)):
        part = function.__globals__.get(name)
        if part is not None and not isinstance(part, (type, ModuleType, FunctionType)):
            home = type(part).__module__.split(".")[0]
            if home in ("builtins", "numpy", "collections") or home == function.__module__:
                found.append((f" global {name}", part))
    return found


def _names(code: CodeType) -> set[str]:
    inner = [each for each in code.co_consts if isinstance(each, CodeType)]
    return {*code.co_names, *(name for each in inner for name in _names(each))}


def snapshot(root: Any, name: str = "self") -> dict[str, Any]:
    """Return what ``root`` remembers now: path -> value, for :func:`what_changed`."""
    found: dict[str, Any] = {}
    for path, item in reachable(root, name):
        if isinstance(item, np.ndarray):
            data = repr(item.tolist()) if item.dtype == object else item.tobytes()
            data = data.encode() if isinstance(data, str) else data
            found[path] = (str(item.dtype), item.shape, hashlib.sha256(data).hexdigest())
        elif isinstance(item, _PLAIN):
            found[path] = (type(item).__name__, repr(item))
        else:
            found[path] = type(item).__name__
    return found


def what_changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> str | None:
    """Return the name of something that is new, gone or other than before; None for nothing."""
    paths = dict.fromkeys((*before, *after))
    return next((path for path in paths if before.get(path) != after.get(path)), None)


def check_pickle(thing: Any, what: str) -> Any:
    """Return a pickled copy of ``thing``, or raise AssertionError.

    An object of a class that is defined inside a function or a script, which no other process
    could import, is copied by its attributes.
    """
    cls = type(thing)
    home = sys.modules.get(cls.__module__)
    importable = getattr(home, cls.__qualname__, None) is cls
    try:
        if importable:
            return pickle.loads(pickle.dumps(thing))
        copied = object.__new__(cls)
        for key, part in pickle.loads(pickle.dumps(dict(vars(thing)))).items():
            object.__setattr__(copied, key, part)
        return copied
    except Exception as error:
        raise AssertionError(
            f"{what} cannot be pickled, so no other process can run it: {error!r}; keep functions "
            "at the top of a module, not lambdas, in its attributes"
        ) from error
