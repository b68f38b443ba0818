"""The tape of one run: it records every draw and decides what value the mechanism gets."""

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

from .coins import OneSide, extreme_coin

_Generator = np.random.Generator  # the original: names of this module are not replaced
_POSITIVE = ("exponential", "other", "uniform")  # laws for which numbers near 0 are extreme as well

# Method -> law, and its parameters (location, scale) in the order of the arguments, with their
# defaults. The parameters of "uniform" are its ends.
NOISE: dict[str, tuple[str, dict[str, float]]] = {
    "normal": ("normal", {"loc": 0.0, "scale": 1.0}),
    "laplace": ("laplace", {"loc": 0.0, "scale": 1.0}),
    "logistic": ("logistic", {"loc": 0.0, "scale": 1.0}),
    "gumbel": ("gumbel", {"loc": 0.0, "scale": 1.0}),
    "uniform": ("uniform", {"low": 0.0, "high": 1.0}),
    "exponential": ("exponential", {"scale": 1.0}),
    "standard_normal": ("normal", {}),
    "randn": ("normal", {}),
    "standard_exponential": ("exponential", {}),
    "standard_cauchy": ("cauchy", {}),
}
# Methods without location and scale: noise of other laws, and coins (all discrete randomness).
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
_HASHED = 16  # bytes of the shortest cryptographic key
_WRITTEN = 9  # a seed of more characters counts as drawn: few people write such
_names: Counter[str] = Counter()  # file name -> number of files of that name that have drawn
_REFUSED = 8  # calls that raise OutOfTime; unlimited, a catch-all retry loop would never end


@dataclass(eq=False)
class Draw:
    """One call of a random source."""

    key: tuple[str, int, str, int]
    law: str
    noise: bool
    quantity: Any = 0.0  # to which the call itself adds the noise
    scale: Any = np.nan  # unknown for the law "other"
    value: np.ndarray | None = None  # what the call returned, if numbers
    shape: tuple[int, ...] = ()
    outcome: Any = None  # of coins from a source that the mechanism seeds itself

    @property
    def added(self) -> np.ndarray | None:
        """The noise alone."""
        return None if self.value is None else self.value - self.quantity


class Tape:
    """The draws of one run; with ``extreme`` > 0, noise is up to 10^extreme times as large."""

    # Coins then take unlikely outcomes, so that everything that depends on chance changes.

    def __init__(
        self,
        seed: int,
        extreme: float = 0.0,
        forced: dict[Any, Any] | None = None,  # key of a draw -> the value to return
        constant: frozenset[Any] = frozenset(),  # (file, line, seed) of sources never made extreme
        most: float = math.inf,  # calls made extreme: a loop may wait for a usual number
        end: float = math.inf,  # later calls raise OutOfTime
        side: bool | None = None,  # all coins take their largest (True) or least (False) outcome
        usual: float = 0.0,  # ... for this many calls: a loop may wait for the other side
    ) -> None:
        self.seed, self.extreme, self.forced = seed, extreme, forced or {}
        self.constant, self.most, self.end = constant, most, end
        self.side, self.usual = side, usual
        self.missed: set[tuple[str, int, str]] = set()  # coins without a known extreme outcome
        self.keys: set[tuple[str, int, str]] = set()  # calls that returned long random bytes
        self.hashes = False  # whether anything was hashed, such as those bytes
        self.marks: set[str] = set()  # SET, COPIED, OUTSIDE: what happened to generators
        self.draws: list[Draw] = []
        self.seeds: list[tuple[str, int, str]] = []
        self.pauses: Counter[int] = Counter()  # by thread: others of this run draw on
        self.threads = {threading.get_ident()}  # of this run; others draw from the real sources
        self.legacy: Any = None  # the seeded stream of NumPy's global functions, if any
        self.torch_is_seeded = False
        self.legacy_is_drawn = self.torch_is_drawn = False
        self.words: set[Any] = set()  # drawn integers and bytes that may become seeds
        self.reseeders: list[Callable[[], None]] = []  # for generators kept after the run
        self.calls = self.refused = 0
        self._calls: Counter[tuple[str, int, str]] = Counter()

    def key(self, law: str) -> tuple[str, int, str, int]:
        """Return the key of a call: file, line, law, and the number of the call there, from 1."""
        if time.monotonic() > self.end and self.refused < _REFUSED:
            self.refused += 1
            raise OutOfTime
        site = (*_caller(), law)
        self._calls[site] += 1
        self.calls += 1
        return *site, self._calls[site]

    def stream(self, key: tuple[str, int, str, int]) -> np.random.Generator:
        """Return the generator of one call, the same for every tape with this seed."""
        name = zlib.crc32(repr((*_file(key[0]), *key[1:])).encode())
        return _Generator(np.random.PCG64(np.random.SeedSequence([self.seed, name])))

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Suspend recording: numbers drawn inside a sampler are not draws of the mechanism."""
        thread = threading.get_ident()
        self.pauses[thread] += 1
        try:
            yield
        finally:
            self.pauses[thread] -= 1

    def extreme_stream(
        self, key: tuple[str, int, str, int], keyed: bool, state: Callable[[], Any] | None
    ) -> np.random.Generator | None:
        """Return the generator that makes a call extreme, None if the call stays as drawn."""
        # A source with a drawn seed has its own stream: two sources in the same ``state`` return
        # the same numbers, and must do so in extreme runs, too.
        if not self.extreme:
            return None
        if self.calls > self.most:
            self.missed.add(key[:3])
            return None
        if keyed:
            extreme = self.stream((*key[:2], f"far {key[2]}", key[3]))
        elif state is None:
            return None
        else:
            seed = np.random.SeedSequence([self.seed, zlib.crc32(pickle.dumps(state()))])
            extreme = _Generator(np.random.PCG64(seed))
        if self.side is None or self.calls > self.usual:
            return extreme
        return OneSide(extreme, self.side)  # type: ignore[return-value]

    def note_seed(self, seed: Any, reseed: Callable[[], None]) -> bool:
        """Record a seed; keep ``reseed`` if a run drew it; return whether it is not constant."""
        seed = seed.tolist() if isinstance(seed, np.ndarray) else seed
        site = (*_caller(), repr(seed))
        self.seeds.append(site)
        parts = seed if isinstance(seed, (list, tuple)) else [seed]
        drawn = any(
            len(str(part)) > _WRITTEN
            or (isinstance(part, (int, np.integer, bytes)) and part in self.words)
            for part in parts
        )
        if drawn:
            self.reseeders.append(reseed)
        return site not in self.constant

    @property
    def undecided(self) -> set[tuple[str, int, str]]:
        """Coins whose rare outcomes were not made likely, such as bytes that may be hashed."""
        return self.missed | (self.keys if self.hashes else set())

    def coin(self, draw: Draw, extreme: np.random.Generator | None, value: Any, other: Any) -> Any:
        """Record a coin and return its value: ``other(extreme)`` where an extreme one is known."""
        self.draws.append(draw)
        self.keep(value)
        if extreme is None:
            return value
        outcome = other(extreme)
        if outcome is None:
            self.missed.add(draw.key[:3])
            return value
        self.keep(outcome)
        if isinstance(outcome, bytes) and len(outcome) >= _HASHED:
            self.keys.add(draw.key[:3])
        return outcome

    def keep(self, value: Any) -> None:
        """Store a drawn value, or the first ones of an array, that may become a seed."""
        for each in value.ravel()[:16].tolist() if isinstance(value, np.ndarray) else [value]:
            if isinstance(each, bytes) or (isinstance(each, (int, np.integer)) and each >= 1 << 16):
                self.words.add(each)

    def record(self, draw: Draw, extreme: np.random.Generator | None) -> Any:
        """Record a draw of noise and return the value that the mechanism gets."""
        if draw.value is not None:
            if extreme is not None:
                near = 0.375 if draw.law in _POSITIVE else 0.125
                chances, top = [near, 0.625 - near, 0.375], self.extreme
                low = extreme.choice([-9.0, 0.0, top - 1.0], draw.value.shape, p=chances)
                factor = 10.0 ** extreme.uniform(low, np.where(low < 0.0, -1.0, top))
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
        """Record one call of a method of NumPy's generators and return its value."""
        law, parameters = NOISE.get(name, (name if name in COINS else "other", {}))
        key = self.key(name)
        extreme = self.extreme_stream(key, keyed, state)
        with self.paused():
            value = getattr(source(key), name)(*args, **options)
        if name in COINS:
            outcome = None if keyed else np.asarray(value).tobytes()
            coin = Draw(key, law, noise=False, shape=np.shape(value), outcome=outcome)
            return self.coin(
                coin, extreme, value, lambda rng: extreme_coin(rng, name, value, args, options)
            )
        given = {**parameters, **dict(zip(parameters, args)), **options}
        first, *rest = [given[each] for each in parameters] or [1.0]
        place, scale = (first, rest[0]) if rest else (0.0, first)
        if law == "uniform":
            place, scale = np.asarray(place), np.subtract(scale, place)
        if law == "other":
            scale = np.nan
        array = np.array(value, dtype=np.float64)
        if extreme is not None and np.asarray(value).dtype.kind in "iu":  # any factor leaves 0 at 0
            array += extreme.integers(0, 2, array.shape)
        result = self.record(Draw(key, law, True, np.asarray(place), scale, array), extreme)
        if isinstance(value, np.ndarray):
            value[...] = result
            return value
        return type(value)(result)


@cache
def _file(path: str) -> tuple[Any, ...]:
    """Return a file's name, numbered if shared with others; folders depend on the machine."""
    name = Path(path).name
    _names[name] += 1
    return (name,) if _names[name] == 1 else (name, _names[name])


class OutOfTime(BaseException):
    """Raised in the middle of a run when the time of the recording is over."""


_current: Tape | None = None


def current() -> Tape | None:
    """Return the tape of the current run, whatever the thread, or None."""
    return _current


@contextlib.contextmanager
def played(tape: Tape) -> Iterator[None]:
    """Let sources draw from ``tape``."""
    global _current
    _current = tape
    try:
        yield
    finally:
        _current = None


def active_tape() -> Tape | None:
    """Return the tape if it is recording and this thread is part of its run, else None."""
    tape, thread = _current, threading.get_ident()
    if tape is None or tape.pauses[thread] or thread not in tape.threads:
        return None
    return tape


def mark_set(keyed: bool = True) -> None:
    """Mark the tape: unlike the real source, a tape does not repeat numbers of a restored state."""
    tape = active_tape()
    if tape is not None and keyed:
        tape.marks.add(SET)


_INSIDE = (
    *(
        str(Path(__file__).with_name(name))
        for name in ("tape.py", "sources.py", "torch_sources.py")
    ),
    *(str(Path(str(library.__file__)).parent) for library in (np, scipy)),
    str(Path(__file__).parents[1] / "privacy"),
    *(str(module.__file__) for module in (random, contextlib)),
    str(Path(os.__file__).with_name("secrets.py")),
    *([str(Path(spec.origin).parent)] if (spec := find_spec("torch")) and spec.origin else []),
)


def _caller() -> tuple[str, int]:
    """Return file and line of the calling code outside NumPy, SciPy, PyTorch and our mechanisms."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith(_INSIDE):
            return name, frame.f_lineno
        frame = frame.f_back
    return "?", 0
