"""The tape of one run: what is drawn, and what the mechanism gets for it."""

from __future__ import annotations

import contextlib
import math
import os
import pickle
import random
import sys
import threading
import time
import types
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import scipy

from .coins import OneSide, far_coin

_Generator = np.random.Generator  # the real one: names of this module are not replaced
_POSITIVE = ("exponential", "other", "uniform")  # laws of which numbers near 0 are extreme as well

# Method -> law, location and scale: positions among the arguments, with their defaults. The
# parameters of "uniform" are its ends.
NOISE: dict[str, tuple[str, tuple[tuple[str, float], ...]]] = {
    "normal": ("normal", (("loc", 0.0), ("scale", 1.0))),
    "laplace": ("laplace", (("loc", 0.0), ("scale", 1.0))),
    "logistic": ("logistic", (("loc", 0.0), ("scale", 1.0))),
    "gumbel": ("gumbel", (("loc", 0.0), ("scale", 1.0))),
    "uniform": ("uniform", (("low", 0.0), ("high", 1.0))),
    "exponential": ("exponential", (("scale", 1.0),)),
    "standard_normal": ("normal", ()),
    "randn": ("normal", ()),
    "standard_exponential": ("exponential", ()),
    "standard_cauchy": ("cauchy", ()),
}
# Methods that take no location and scale: noise of other laws, and coins.
OTHER_NOISE = frozenset(
    """
    beta chisquare f gamma geometric logseries lognormal noncentral_chisquare noncentral_f pareto
    poisson power rayleigh standard_gamma standard_t triangular vonmises wald weibull zipf
    multivariate_normal negative_binomial
    """.split()  # noqa: SIM905
)
COINS = frozenset(
    """
    random rand random_sample ranf sample integers randint random_integers choice permutation
    permuted shuffle bytes binomial multinomial hypergeometric multivariate_hypergeometric dirichlet
    """.split()  # noqa: SIM905
)
SET, COPIED, OUTSIDE = "set", "copied", "outside"
_HASHED = 16  # bytes of the shortest key
_names: Counter[str] = Counter()  # how many files of a name have drawn
_REFUSED = 8  # calls after the time: what catches everything and tries again would never end


@dataclass(eq=False)
class Draw:
    """One call of a random source."""

    key: tuple[str, int, str, int]
    law: str
    noise: bool
    quantity: Any = 0.0  # what the call itself adds the noise to
    scale: Any = np.nan  # unknown of the law "other"
    value: np.ndarray | None = None  # what the call returned, if numbers
    shape: tuple[int, ...] = ()
    outcome: Any = None  # of coins that the mechanism seeds itself

    @property
    def added(self) -> np.ndarray | None:
        """The noise alone."""
        return None if self.value is None else self.value - self.quantity


class Tape:
    """The draws of one run; where ``extreme`` > 0, noise is up to 10^extreme times as large."""

    # Coins then fall on what is least likely: what chance can change at all changes.

    def __init__(
        self,
        seed: int,
        extreme: float = 0.0,
        forced: dict[Any, Any] | None = None,  # noisy answers in the place of new ones, by key
        constant: frozenset[Any] = frozenset(),  # seeds, with places: such sources stay as drawn
        most: float = math.inf,  # extreme calls: a loop may wait for a usual number
        end: float = math.inf,  # later calls raise OutOfTime
        side: bool | None = None,  # the largest or the least, of coins in an extreme run
        usual: float = 0.0,  # calls of which that holds: a loop may wait for another side
    ) -> None:
        self.seed, self.extreme, self.forced = seed, extreme, forced or {}
        self.constant, self.most, self.end = constant, most, end
        self.side, self.usual = side, usual
        self.missed: set[tuple[str, int, str]] = set()  # coins with no extreme outcome
        self.keys: set[tuple[str, int, str]] = set()  # calls that gave long words
        self.hashes = False  # whether anything was hashed, a word perhaps
        self.marks: set[str] = set()  # SET, COPIED, OUTSIDE: what happened to generators
        self.draws: list[Draw] = []
        self.seeds: list[tuple[str, int, str]] = []
        self.muted = False
        self.threads = {threading.get_ident()}  # those of the run; others have their own numbers
        self.legacy: Any = None  # a seeded stream of NumPy's global functions
        self.torch_is_seeded = False
        self.legacy_is_drawn = self.torch_is_drawn = False
        self.words: set[Any] = set()  # integers and bytes that seeds may be made of
        self.lent: list[Callable[[], None]] = []  # new seeds for what may be kept after the run
        self.calls = self.refused = 0
        self._calls: Counter[tuple[str, int, str]] = Counter()

    def key(self, law: str) -> tuple[str, int, str, int]:
        """Return the name of a call: file, line, law, and how many came before it."""
        if time.monotonic() > self.end and self.refused < _REFUSED:
            self.refused += 1
            raise OutOfTime
        site = (*_caller(), law)
        self._calls[site] += 1
        self.calls += 1
        return *site, self._calls[site]

    def stream(self, key: tuple[str, int, str, int]) -> np.random.Generator:
        """Return the generator of one call, the same under every tape of this seed."""
        name = zlib.crc32(repr((*_file(key[0]), *key[1:])).encode())
        return _Generator(np.random.PCG64(np.random.SeedSequence([self.seed, name])))

    @contextlib.contextmanager
    def mute(self) -> Iterator[None]:
        """Write nothing down: the numbers that a law is made of are no draws of their own."""
        before, self.muted = self.muted, True
        try:
            yield
        finally:
            self.muted = before

    def far(
        self, key: tuple[str, int, str, int], keyed: bool, state: Callable[[], Any] | None
    ) -> np.random.Generator | None:
        """Return what makes a call extreme, None where it stays as drawn."""
        # A source with a drawn seed is no tape's: two of one ``state`` give the same numbers, and
        # must do so in extreme runs as well.
        if not self.extreme:
            return None
        if self.calls > self.most:
            self.missed.add(key[:3])
            return None
        if keyed:
            far = self.stream((*key[:2], f"far {key[2]}", key[3]))
        elif state is None:
            return None
        else:
            seed = np.random.SeedSequence([self.seed, zlib.crc32(pickle.dumps(state()))])
            far = _Generator(np.random.PCG64(seed))
        if self.side is None or self.calls > self.usual:
            return far
        return OneSide(far, self.side)  # type: ignore[return-value]

    def note_seed(self, seed: Any, renew: Callable[[], None]) -> bool:
        """Write down a seed, and how to ``renew`` one from here; return whether chance made it."""
        site = (*_caller(), repr(seed))
        self.seeds.append(site)
        parts = seed if isinstance(seed, (list, tuple)) else [seed]
        if any(isinstance(part, (int, np.integer, bytes)) and part in self.words for part in parts):
            self.lent.append(renew)
        return site not in self.constant

    @property
    def undecided(self) -> set[tuple[str, int, str]]:
        """The coins of which rare outcomes are not made likely: what is hashed has others."""
        return self.missed | (self.keys if self.hashes else set())

    def coin(self, draw: Draw, far: np.random.Generator | None, value: Any, other: Any) -> Any:
        """Write a coin down; return what the mechanism gets, ``other(far)`` if that is known."""
        self.draws.append(draw)
        self.keep(value)
        if far is None:
            return value
        extreme = other(far)
        if extreme is None:
            self.missed.add(draw.key[:3])
            return value
        self.keep(extreme)
        if isinstance(extreme, bytes) and len(extreme) >= _HASHED:
            self.keys.add(draw.key[:3])
        return extreme

    def keep(self, value: Any) -> None:
        """Keep what a seed may be made of."""
        if isinstance(value, bytes) or (isinstance(value, (int, np.integer)) and value >= 1 << 16):
            self.words.add(value)

    def record(self, draw: Draw, far: np.random.Generator | None) -> Any:
        """Write a draw of noise down; return what the mechanism gets for it."""
        if draw.value is not None:
            if far is not None:
                near = 0.375 if draw.law in _POSITIVE else 0.125
                chances, top = [near, 0.625 - near, 0.375], self.extreme
                low = far.choice([-9.0, 0.0, top - 1.0], draw.value.shape, p=chances)
                factor = 10.0 ** far.uniform(low, np.where(low < 0.0, -1.0, top))
                draw.value = draw.quantity + (draw.value - draw.quantity) * factor
            forced = self.forced.get(draw.key)
            if forced is not None and forced.shape == draw.value.shape:
                draw.value = forced.copy()
            draw.shape = draw.value.shape
            draw.value = np.array(draw.value, dtype=np.float64)
        self.draws.append(draw)
        return draw.value

    def call(
        self,
        name: str,
        source: Any,
        keyed: bool,
        args: Any,
        options: Any,
        state: Callable[[], Any] | None = None,
    ) -> Any:
        """Answer one call of a method of NumPy's generators."""
        law, parameters = NOISE.get(name, (name if name in COINS else "other", ()))
        key = self.key(name)
        far = self.far(key, keyed, state)
        with self.mute():
            value = getattr(source(key), name)(*args, **options)
        if name in COINS:
            outcome = None if keyed else np.asarray(value).tobytes()
            coin = Draw(key, law, noise=False, shape=np.shape(value), outcome=outcome)
            return self.coin(
                coin, far, value, lambda far: far_coin(far, name, value, args, options)
            )
        given = dict(zip((each for each, _ in parameters), args))
        first, *rest = [options.get(n, given.get(n, d)) for n, d in parameters] or [1.0]
        place, scale = (first, rest[0]) if rest else (0.0, first)
        if law == "uniform":
            place, scale = np.asarray(place), np.subtract(scale, place)
        if law == "other":
            scale = np.nan
        array = np.array(value, dtype=np.float64)
        if far is not None and np.asarray(value).dtype.kind in "iu":  # 0 stays 0 by any factor
            array += far.integers(0, 2, array.shape)
        result = self.record(Draw(key, law, True, np.asarray(place), scale, array), far)
        if isinstance(value, np.ndarray):
            value[...] = result
            return value
        return type(value)(result)


@cache
def _file(path: str) -> tuple[Any, ...]:
    """Return the name of a file, numbered where others have it: folders differ by machine."""
    name = Path(path).name
    _names[name] += 1
    return (name,) if _names[name] == 1 else (name, _names[name])


class OutOfTime(BaseException):
    """The time for a recording is over, in the middle of a run."""


_current: Tape | None = None


def current() -> Tape | None:
    """Return the tape of the run."""
    return _current


@contextlib.contextmanager
def played(tape: Tape) -> Iterator[None]:
    """Let sources ask a tape."""
    global _current
    _current = tape
    try:
        yield
    finally:
        _current = None


def listening() -> Tape | None:
    """Return the tape of a run that this thread is part of."""
    tape = _current
    if tape is None or tape.muted or threading.get_ident() not in tape.threads:
        return None
    return tape


_PACKAGE = Path(__file__).parents[1]
_INSIDE = (
    *(
        str(Path(__file__).with_name(name))
        for name in ("tape.py", "sources.py", "torch_sources.py")
    ),
    *(str(Path(str(library.__file__)).parent) for library in (np, scipy)),
    str(_PACKAGE / "privacy"),
    *(str(module.__file__) for module in (random, contextlib)),
    str(Path(os.__file__).with_name("secrets.py")),
    *([str(Path(spec.origin).parent)] if (spec := find_spec("torch")) and spec.origin else []),
)


def _caller() -> tuple[str, int]:
    """Return file and line of who asks, outside of NumPy, PyTorch and our mechanisms."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith(_INSIDE):
            return name, frame.f_lineno
        frame = frame.f_back
    return "?", 0
