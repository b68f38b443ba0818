"""Checks of users' classes: elementwise formulas, and constants that match the formulas.

Array formulas must be functions of each sample's numbers; inherited constants hold only for the
formulas that are inherited with them.
"""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

# Sizes of the parts that rows are shuffled into; the last part has what is left.
_PARTS = (1, 2, 3, 5, 8, 17, 64, 200)


def check_elementwise(owner: Any, name: str, a: np.ndarray, b: np.ndarray) -> None:
    """Raise unless a method gives every entry the same bits however the rows are grouped.

    It is called with all rows, with parts of them in another order, column by column, and again.
    It may raise at some rows, the same each time.
    """
    what, formula = f"{type(owner).__name__}.{name}", getattr(owner, name)
    _tried(formula, a[:2], b[:2])  # the first call may cache constants
    before = _attributes(owner)
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
    columns = [_tried(formula, a[:, [k]], b[:, [k % b.shape[1]]]) for k in range(a.shape[1])]
    others = again, np.concatenate(columns, axis=1), _tried(formula, a, b)
    if not all(np.array_equal(whole, other, equal_nan=True) for other in others):
        raise ValueError(
            f"{what} gives a sample other numbers beside other samples, or when it is called "
            "again: in a private run it must be a function of that sample's numbers alone, else "
            "one record would change the terms of all others"
        )
    if _attributes(owner) != before:
        raise ValueError(
            f"{what} changes attributes of its object: in a private run it must not store the "
            "samples that it is called with"
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


def _attributes(owner: Any) -> Any:
    """Return a value to compare for changes of an object's attributes."""
    attributes = getattr(owner, "__dict__", {})
    try:
        return pickle.dumps(attributes)
    except Exception:  # compared by identity then
        return {name: id(value) for name, value in attributes.items()}


def outdated(
    cls: type, constants: Collection[str], base: type | None = None
) -> dict[str, tuple[str, str, str]]:
    """Return the inherited constants that were stated for formulas that ``cls`` overrides.

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
                if name in known and name not in constants and not _is_special(name):
                    found.setdefault(constant, (kind.__name__, name, order[stated].__name__))
    return found


def _is_special(name: Any) -> bool:
    """Whether the name is used by Python or its modules abc and typing."""
    return name.startswith(("__", "_abc_", "_is_"))


def rename_former(cls: type, former: Mapping[str, str]) -> None:
    """Rename attributes that a class defines by a former name, with a warning."""
    for old in former.keys() & vars(cls).keys():
        what = f"{cls.__name__}.{old} is now {former[old]}"
        warnings.warn(what, DeprecationWarning, stacklevel=4)
        if former[old] not in vars(cls):
            setattr(cls, former[old], vars(cls)[old])
