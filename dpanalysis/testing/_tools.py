"""Helpers of the checks: failing with a sentence, global random numbers, the state of objects.

State is read by pickling. State that pickle does not see (in closures or global variables) is
detected only if it changes a second run.
"""

from __future__ import annotations

import hashlib
import io
import pickle
import random
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np

from ..privacy.budget import Filter
from ..privacy.oracle import PrivateOracle
from ..problems.base import Problem


def fail(sentence: str, cause: BaseException | None = None) -> NoReturn:
    """Raise AssertionError with a sentence."""
    raise AssertionError(sentence) from cause


def require(holds: Any, sentence: str) -> None:
    """Raise AssertionError with a sentence unless ``holds``."""
    if not holds:
        raise AssertionError(sentence)


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress warnings and floating-point errors: the checks examine the numbers themselves."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


@contextmanager
def global_random_untouched(what: str, seed: int = 0) -> Iterator[None]:
    """Seed the global random generators, fail if ``what`` draws from them, restore their state."""
    before = np.random.get_state(), random.getstate()  # noqa: NPY002
    np.random.seed(seed)  # noqa: NPY002
    random.seed(seed)
    seeded = _global_state()
    try:
        yield
        require(
            _global_state() == seeded,
            f"{what} draws from the random numbers that the whole process shares (numpy.random or "
            "random), which a seed of the run does not repeat and an observer may know: draw from "
            "the source that is given",
        )
    finally:
        np.random.set_state(before[0])  # noqa: NPY002
        random.setstate(before[1])


def _global_state() -> bytes:
    return pickle.dumps((np.random.get_state(), random.getstate()))  # noqa: NPY002


def optional_namespace() -> Any:
    """Return array_api_strict if it is installed, else None."""
    try:
        import array_api_strict
    except ImportError:
        return None
    return array_api_strict


class _Reader(pickle.Pickler):
    """Pickler of an object that also lists the arrays, problems and oracles inside it."""

    def __init__(self) -> None:
        self.file, self.found = io.BytesIO(), list[Any]()
        super().__init__(self.file)

    def persistent_id(self, item: Any) -> Any:
        """Replace arrays by their hash, and a filter by the budget it has spent."""
        if isinstance(item, (np.ndarray, Problem, PrivateOracle)):
            self.found.append(item)
        if isinstance(item, np.ndarray) and not item.dtype.hasobject:
            digest = hashlib.sha256(np.ascontiguousarray(item).data).hexdigest()
            return "array", item.dtype.str, item.shape, digest
        if isinstance(item, Filter):
            return "filter", item.spent  # its cache of costs does not count
        return None


def _read(thing: Any) -> tuple[Any, list[Any]]:
    """Return a value that represents the state, and the objects that :class:`_Reader` found."""
    reader = _Reader()
    try:
        reader.dump(thing)
    except Exception:  # its type cannot be pickled
        return repr(thing), reader.found
    return reader.file.getvalue(), reader.found


def _attributes(thing: Any, name: str) -> dict[str, Any]:
    """Return the attributes of an object and of its user-defined classes, by name."""
    found = {name: thing}
    if hasattr(thing, "__dict__"):
        found = {f"{name}.{key}": part for key, part in vars(thing).items()}
    for cls in type(thing).__mro__:
        if cls.__module__.split(".")[0] not in ("builtins", "abc", "typing", "dpanalysis"):
            parts = ((key, part) for key, part in vars(cls).items() if not key.startswith("__"))
            found |= {f"{cls.__name__}.{key}": part for key, part in parts}
    return found


def contents(thing: Any, name: str = "") -> list[tuple[str, Any]]:
    """Return (attribute, object) for the arrays, problems and oracles inside an object."""
    attributes = _attributes(thing, name)
    return [(at, item) for at, part in attributes.items() for item in _read(part)[1]]


@contextmanager
def unchanged(thing: Any, name: str, sentence: str) -> Iterator[None]:
    """Fail if the block changes an attribute; ``sentence`` has a placeholder for its name."""
    before = {at: _read(part)[0] for at, part in _attributes(thing, name).items()}
    yield
    after = {at: _read(part)[0] for at, part in _attributes(thing, name).items()}
    for at in dict.fromkeys((*before, *after)):
        require(before.get(at) == after.get(at), sentence.format(at))


def shares_memory(item: Any, arrays: list[np.ndarray]) -> bool:
    """Return whether an object is an array that shares memory with one of ``arrays``."""
    return isinstance(item, np.ndarray) and any(np.shares_memory(item, each) for each in arrays)


def check_pickle(thing: Any, what: str) -> Any:
    """Return a pickled copy of ``thing``, or raise AssertionError.

    If the class is defined inside a function or a script, so that no other process could import
    it, the object is copied by its attributes.
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
