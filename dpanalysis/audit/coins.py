"""Extreme outcomes of coins: what is least likely comes up as often as anything else.

Some calls stay as drawn, and so do some entries of the others: a loop that waits for one outcome
ends, and an outcome in the middle is not left out.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_KEPT = 0.25  # share of the calls that stay as drawn


class OneSide:
    """Stand for a generator where all coins of a run fall on their least or their largest side.

    What several of them decide together, as the bits of one number do, is rare otherwise.
    """

    def __init__(self, generator: np.random.Generator, largest: bool) -> None:
        self._generator, self._place = generator, 0.6 if largest else 0.3

    def random(self, shape: Any = None) -> Any:
        """Return numbers for which the functions of this module choose that side."""
        return self._place if shape is None else np.full(shape, self._place)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._generator, name)


def far_coin(stream: np.random.Generator, name: str, value: Any, args: Any, options: Any) -> Any:
    """Return an extreme outcome of a method of NumPy's generators, None where none is known."""
    kept = stream.random() < _KEPT
    if name in ("random", "rand", "random_sample", "ranf", "sample"):
        far = far_uniform(stream, value)
    elif name in ("integers", "randint", "random_integers"):
        far = far_integers(stream, value, *_range(name, args, options))
    elif name == "binomial":
        far = far_integers(stream, value, 0, options.get("n", args[0] if args else 0))
    elif name == "multinomial":
        p = np.asarray(options.get("pvals", args[1] if len(args) > 1 else [1.0]))
        n = options.get("n", args[0] if args else 0)
        far = np.asarray(stream.multinomial(n, _even(p), np.shape(value)[:-1] or None))
    elif name == "choice":
        other = _far_choice(stream, value, args, options)
        return value if kept and other is not None else other
    elif name == "bytes":
        return value if kept else far_bytes(stream, value)
    else:
        return None
    return value if kept else _in_place_of(value, far)


def _in_place_of(value: Any, far: np.ndarray) -> Any:
    """Return numbers as those drawn came, in their array if they are one."""
    if not isinstance(value, np.ndarray):
        return type(value)(far)
    value[...] = far
    return value


def far_uniform(stream: np.random.Generator, value: Any) -> np.ndarray:
    """Return numbers near 0, near 1, or one half, in the place of most of those drawn."""
    small = 2.0**-24 if np.asarray(value).dtype == np.float32 else 2.0**-53
    where = stream.random(np.shape(value))
    cases = [where < 0.375, where < 0.75, where < 0.875]
    return np.select(cases, [small, 1.0 - small, 0.5], value)


def far_integers(stream: np.random.Generator, value: Any, low: Any, high: Any) -> np.ndarray:
    """Return the least and the largest number in the place of most of those drawn."""
    where = stream.random(np.shape(value))
    drawn = np.asarray(value)
    least, largest = (np.asarray(each).astype(drawn.dtype) for each in (low, high))
    return np.select([where < 0.375, where < 0.75], [least, largest], drawn)


def far_below(stream: np.random.Generator, value: int, count: int) -> int:
    """Return 0 or ``count - 1``, of any size, in the place of half of the numbers drawn."""
    where = stream.random()
    return value if not 0.25 <= where < 0.75 else 0 if where < 0.5 else count - 1


def far_bytes(stream: np.random.Generator, value: bytes) -> bytes:
    """Return words near the ends of their range in the place of half of those drawn."""
    words = np.repeat(stream.random(-(-len(value) // 8)), 8)[: len(value)]
    drawn = np.frombuffer(value, np.uint8)
    cases = [words < _KEPT, words < 0.5, words < 0.75]
    return np.select(cases, [drawn, np.uint8(0), np.uint8(255)], drawn).tobytes()


def _range(name: str, args: Any, options: Any) -> tuple[Any, Any]:
    """Return the least and the largest integer that a call can give."""
    low, top = (*args[:2], None, None)[:2]
    low, top = options.get("low", low), options.get("high", top)
    if top is None:
        low, top = int(name == "random_integers"), low
    closed = options.get("endpoint", len(args) > 4 and args[4]) or name == "random_integers"
    return low, np.asarray(top) - (not closed)


def _even(p: np.ndarray) -> np.ndarray:
    """Return equal chances for all that has any."""
    return (p > 0) / np.count_nonzero(p > 0, axis=-1, keepdims=True)


def _far_choice(stream: np.random.Generator, value: Any, args: Any, options: Any) -> Any:
    """Choose with equal chances among all different things that can be chosen."""
    given = {**dict(zip(("a", "size", "replace", "p"), args)), **options}
    items, p = given["a"], given.pop("p", None)
    if p is None:
        if np.ndim(items) > 1 or not given.get("replace", True):
            return None
        if np.ndim(items) == 0:
            return _in_place_of(value, far_integers(stream, np.copy(value), 0, int(items) - 1))
        if np.asarray(items).dtype.hasobject:
            return None
        _, first = np.unique(np.asarray(items), return_index=True)
        p = np.isin(np.arange(len(items)), first)
    return stream.choice(**given, p=_even(np.asarray(p)))
