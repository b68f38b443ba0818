"""Extreme outcomes of coins, where the least likely outcome is as frequent as any other.

Some calls, and some entries of the other calls, stay as drawn, so that a loop that waits for one
outcome ends and intermediate outcomes occur, too.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_KEPT = 0.25  # share of the calls that stay as drawn


class OneSide:
    """Generator for a run in which every coin takes its least, or every one its largest, outcome.

    Otherwise joint outcomes of several coins, such as the bits of one number, would be rare.
    """

    def __init__(self, generator: np.random.Generator, largest: bool) -> None:
        self._generator, self._place = generator, 0.6 if largest else 0.3

    def random(self, shape: Any = None) -> Any:
        """Return numbers for which the functions of this module choose that outcome."""
        return self._place if shape is None else np.full(shape, self._place)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._generator, name)


def extreme_coin(rng: np.random.Generator, name: str, value: Any, args: Any, options: Any) -> Any:
    """Return an extreme outcome of a method of NumPy's generators, None if none is known."""
    kept = rng.random() < _KEPT
    if name in ("random", "rand", "random_sample", "ranf", "sample"):
        extreme = extreme_uniform(rng, value)
    elif name in ("integers", "randint", "random_integers"):
        extreme = extreme_integers(rng, value, *_range(name, args, options))
    elif name == "binomial":
        extreme = extreme_integers(rng, value, 0, options.get("n", args[0] if args else 0))
    elif name == "multinomial":
        p = np.asarray(options.get("pvals", args[1] if len(args) > 1 else [1.0]))
        n = options.get("n", args[0] if args else 0)
        extreme = np.asarray(rng.multinomial(n, _even(p), np.shape(value)[:-1] or None))
    elif name == "choice":
        other = _extreme_choice(rng, value, args, options)
        return value if kept and other is not None else other
    elif name == "bytes":
        return value if kept else extreme_bytes(rng, value)
    else:
        return None
    return value if kept else _in_place_of(value, extreme)


def _in_place_of(value: Any, extreme: np.ndarray) -> Any:
    """Return ``extreme`` in the type of the drawn ``value``, written into it if it is an array."""
    if not isinstance(value, np.ndarray):
        return type(value)(extreme)
    value[...] = extreme
    return value


def extreme_uniform(rng: np.random.Generator, value: Any) -> np.ndarray:
    """Return the numbers drawn, most of them replaced by 1/2 or numbers near 0 or 1."""
    small = 2.0**-24 if np.asarray(value).dtype == np.float32 else 2.0**-53
    where = rng.random(np.shape(value))
    cases = [where < 0.375, where < 0.75, where < 0.875]
    return np.select(cases, [small, 1.0 - small, 0.5], value)


def extreme_integers(rng: np.random.Generator, value: Any, low: Any, high: Any) -> np.ndarray:
    """Return the numbers drawn, most of them replaced by the least or the largest number."""
    where = rng.random(np.shape(value))
    drawn = np.asarray(value)
    least, largest = (np.asarray(each).astype(drawn.dtype) for each in (low, high))
    return np.select([where < 0.375, where < 0.75], [least, largest], drawn)


def extreme_below(rng: np.random.Generator, value: int, count: int) -> int:
    """Return the number drawn or, half of the time, 0 or ``count - 1``; of any size."""
    where = rng.random()
    return value if not 0.25 <= where < 0.75 else 0 if where < 0.5 else count - 1


def extreme_bytes(rng: np.random.Generator, value: bytes) -> bytes:
    """Return the bytes drawn, half of their 8-byte words replaced by all 0 or all 255."""
    words = np.repeat(rng.random(-(-len(value) // 8)), 8)[: len(value)]
    drawn = np.frombuffer(value, np.uint8)
    cases = [words < _KEPT, words < 0.5, words < 0.75]
    return np.select(cases, [drawn, np.uint8(0), np.uint8(255)], drawn).tobytes()


def _range(name: str, args: Any, options: Any) -> tuple[Any, Any]:
    """Return the least and the largest integer that a call can return."""
    low, top = (*args[:2], None, None)[:2]
    low, top = options.get("low", low), options.get("high", top)
    if top is None:
        low, top = int(name == "random_integers"), low
    closed = options.get("endpoint", len(args) > 4 and args[4]) or name == "random_integers"
    return low, np.asarray(top) - (not closed)


def _even(p: np.ndarray) -> np.ndarray:
    """Return equal probabilities for all outcomes of positive probability."""
    return (p > 0) / np.count_nonzero(p > 0, axis=-1, keepdims=True)


def _extreme_choice(rng: np.random.Generator, value: Any, args: Any, options: Any) -> Any:
    """Choose uniformly among all distinct items that can be chosen; None if not known."""
    given = {**dict(zip(("a", "size", "replace", "p"), args)), **options}
    items, p = given["a"], given.pop("p", None)
    if p is None:
        if np.ndim(items) > 1 or not given.get("replace", True):
            return None
        if np.ndim(items) == 0:
            return _in_place_of(value, extreme_integers(rng, np.copy(value), 0, int(items) - 1))
        if np.asarray(items).dtype.hasobject:
            return None
        _, first = np.unique(np.asarray(items), return_index=True)
        p = np.isin(np.arange(len(items)), first)
    return rng.choice(**given, p=_even(np.asarray(p)))
