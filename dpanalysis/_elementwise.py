"""Whether a user's formula for arrays is a function of each sample's own numbers."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["check_elementwise"]

# Sizes of the parts that rows are shuffled into; the last part has what is left.
_PARTS = (1, 2, 3, 5, 8, 17, 64, 200)


def check_elementwise(owner: Any, name: str, a: np.ndarray, b: np.ndarray) -> None:
    """Raise unless a method gives every entry the same bits however the rows are grouped.

    It is called with all rows, with parts of them in another order, column by column, and again.
    It may fail at some rows, the same each time.

    Parameters
    ----------
    owner : object
    name : str
        Of a method of two arrays.
    a : ndarray of shape (m, k)
    b : ndarray of shape (m, k) or (m, 1)

    Raises
    ------
    ValueError
        If an entry depends on others or on earlier calls, an attribute of the owner changes, or
        all calls fail.

    Examples
    --------
    >>> class Rule:
    ...     def weight(self, norms, losses):
    ...         return 1.0 / (norms + np.median(norms))
    >>> check_elementwise(Rule(), "weight", *np.random.default_rng(0).random((2, 500, 3)))
    Traceback (most recent call last):
        ...
    ValueError: Rule.weight gives a sample other numbers beside other samples...
    """
    what, formula = f"{type(owner).__name__}.{name}", getattr(owner, name)
    _tried(formula, a[:2], b[:2])  # what is computed once and kept may be
    before = _attributes(owner)
    whole = _tried(formula, a, b)
    if np.isnan(whole).all():
        try:
            formula(a[:1], b[:1])
        except NotImplementedError:  # it is not there, and nothing asks for it
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
            "again: in a private run it must be a function of that sample's numbers alone, for "
            "one record would move the terms of all others"
        )
    if _attributes(owner) != before:
        raise ValueError(
            f"{what} changes attributes of its object: in a private run it must not remember the "
            "samples that it is called with"
        )


def _tried(formula: Callable[[Any, Any], Any], a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return what the formula gives, NaN for rows at which it fails."""
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
    """Return what tells whether an attribute of an object was changed."""
    attributes = getattr(owner, "__dict__", {})
    try:
        return pickle.dumps(attributes)
    except Exception:  # compared by identity then
        return {name: id(value) for name, value in attributes.items()}
