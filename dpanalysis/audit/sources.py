"""Sources of random numbers that write down what is asked of them, and can be replayed.

Inside :func:`listen`, whatever Python code asks for random numbers asks a :class:`.Tape`: NumPy's
generators and its old global functions, ``random``, ``os.urandom`` (and so ``secrets``), PyTorch,
and the laws of :mod:`dpanalysis.privacy.mechanisms`, whatever source they draw from. A tape gives
each call numbers of its own, which depend on the tape's seed and on the call alone: on the line
that makes it, the law, and how often that line has asked before. So a second run, on other data,
gets the same numbers at the same places, even where it asks for more or fewer numbers before.

A source that the mechanism seeds itself keeps its own stream. Its numbers are therefore the same
under every tape where the seed is a constant, and count as what they are: no noise. Where the seed
was itself drawn, they are extreme in extreme runs.

Threads that were there before a run are not part of it, and get numbers from the real sources.
Code outside Python (C, Fortran, Numba) that has a generator of its own is not heard.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import hmac
import os
import pickle
import random
import sys
import threading
import types
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from ..privacy import mechanisms, noise
from .coins import far_below, far_bytes, far_uniform
from .tape import (
    COINS,
    COPIED,
    NOISE,
    OTHER_NOISE,
    OUTSIDE,
    SET,
    Draw,
    Tape,
    current,
    listening,
    played,
)
from .torch_sources import torch_default, torch_names

# The real ones: names of this module are not replaced.
_Generator = np.random.Generator
_RandomState = np.random.RandomState
_Random = random.Random
_REAL: dict[str, Any] = {
    "default_rng": np.random.default_rng,
    "urandom": os.urandom,
    "global": np.random.mtrand._rand,
    "start": threading.Thread.start,
    "system_below": random.SystemRandom._randbelow,  # type: ignore[attr-defined]
    **{name: getattr(mechanisms, name) for name in ("noisy", "nearly", "smallest")},
}

_REMEMBERED = 1 << 14  # states of a generator
_lock = threading.RLock()


def _start(thread: threading.Thread) -> None:
    """Stand for ``threading.Thread.start``: what a run starts is part of it."""
    tape, run = listening(), thread.run
    if tape is not None:

        def heard() -> None:
            mine = threading.get_ident()
            tape.threads.add(mine)
            try:
                run()
            finally:
                tape.threads.discard(mine)

        thread.run = heard  # type: ignore[method-assign]
    _REAL["start"](thread)


class _AsTheReal(type):
    """Classes whose instances are those of the class that they stand for."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, cls.__mro__[1])


def _method(name: str, real: Any) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **options: Any) -> Any:
        tape = listening()
        if tape is None:
            return getattr(real, name)(self, *args, **options)
        state = None if self._keyed or not self._drawn else self._state
        if self._keyed and type(self) is RecordingGenerator:
            self._watch(tape)
        return tape.call(name, self._source, self._keyed, args, options, state)

    return method


def _methods(real: Any) -> dict[str, Any]:
    names = (*NOISE, *sorted(OTHER_NOISE), *sorted(COINS))
    return {name: _method(name, real) for name in names if hasattr(real, name)}


class RecordingGenerator(_Generator, metaclass=_AsTheReal):
    """A Generator that asks the tape. ``keyed=False`` keeps the stream of its own seed."""

    locals().update(_methods(_Generator))

    def __init__(self, bit_generator: Any, keyed: bool = False) -> None:
        super().__init__(bit_generator)
        self._keyed, self._drawn = keyed, False
        tape = listening()
        if tape is not None and not keyed:
            renew = partial(_renew, bit_generator)
            self._drawn = tape.note_seed(_seed_of(bit_generator), renew)
        self._watched: Tape | None = None

    def _state(self) -> Any:
        return self.bit_generator.state

    @property
    def was_used(self) -> bool:
        """Whether it was asked for numbers in a run."""
        return self._watched is not None

    def _watch(self, tape: Tape) -> None:
        """Mark the tape where the state is not what the last draw left."""
        # Each number from the tape throws one of its own away: so the state tells when somebody
        # sets it, or draws where nobody listens.
        place = self.bit_generator.state["state"]["state"]  # of PCG64
        if self._watched is not tape:
            self._watched, self._last, self._seen = tape, place, set[int]()
        if place != self._last:
            tape.marks.add(SET if place in self._seen else OUTSIDE)
        if len(self._seen) < _REMEMBERED:
            self._seen.add(place)
        self.bit_generator.random_raw()
        self._last = self.bit_generator.state["state"]["state"]

    def _source(self, key: Any) -> Any:
        tape = current()
        if self._keyed and tape is not None:
            return tape.stream(key)
        return _Generator(self.bit_generator)

    def spawn(self, n_children: int) -> list[Any]:
        """Return children, which ask the tape if this one does."""
        children = self.bit_generator.spawn(n_children)
        tape = current()
        if self._keyed and tape is not None:
            tape.lent += [partial(_renew, child) for child in children]
        return [RecordingGenerator(child, self._keyed) for child in children]

    def __reduce__(self) -> Any:
        tape = listening()
        if tape is None:
            return _Generator(self.bit_generator).__reduce__()
        tape.marks.add(COPIED)
        return _copied, (self.bit_generator,)


def _copied(bit_generator: Any) -> Any:
    """Return a generator that was copied: it goes on by itself."""
    tape = listening()
    if tape is None:
        return _Generator(bit_generator)
    tape.lent.append(partial(_renew, bit_generator))
    return RecordingGenerator(bit_generator)


def _renew(bit_generator: Any) -> None:
    """Seed a bit generator from the operating system."""
    bit_generator.state = type(bit_generator)().state


def _seed_of(bit_generator: Any) -> Any:
    """Return what a bit generator was seeded with."""
    sequence: Any = getattr(bit_generator, "seed_seq", None)
    seed, state = getattr(sequence, "entropy", None), pickle.dumps(bit_generator.state)
    # A state that was set, or jumped to, is no longer that of the seed.
    if seed is None or pickle.dumps(type(bit_generator)(sequence).state) != state:
        return zlib.crc32(state)
    seed = seed.tolist() if isinstance(seed, np.ndarray) else seed
    parts = seed if isinstance(seed, (list, tuple)) else [seed]
    return (*parts, *sequence.spawn_key) if sequence.spawn_key else seed


class _RecordingState(_RandomState, metaclass=_AsTheReal):
    """A RandomState that asks the tape unless it was seeded."""

    was_used = False
    locals().update(_methods(_RandomState))

    def __init__(self, seed: Any = None) -> None:
        tape = listening()
        with tape.mute() if tape else contextlib.nullcontext():
            super().__init__(seed)
        self._note(seed)

    def _note(self, seed: Any) -> None:
        tape = listening()
        self._keyed, self._drawn = seed is None, False
        if tape is not None and isinstance(seed, np.random.BitGenerator):
            self._drawn = tape.note_seed(_seed_of(seed), partial(_renew, seed))
        elif tape is not None and seed is not None:
            self._drawn = tape.note_seed(seed, partial(_RandomState.seed, self))

    def seed(self, seed: Any = None) -> None:
        super().seed(seed)
        self._note(seed)

    def _state(self) -> Any:
        return self.get_state()

    def set_state(self, state: Any) -> None:
        _mark_set(self._keyed)
        super().set_state(state)

    def _source(self, key: Any) -> Any:
        tape = current()
        self.was_used = True
        if self._keyed and tape is not None:
            return _RandomState(tape.stream(key).bit_generator)
        return _Through(self, _RandomState)


class _Through:
    """The real methods of an object."""

    def __init__(self, instance: Any, real: Any) -> None:
        self._instance, self._real = instance, real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name).__get__(self._instance)


def _default_rng(seed: Any = None) -> Any:
    """Stand for ``numpy.random.default_rng``."""
    tape = listening()
    if tape is None:
        return _REAL["default_rng"](seed)
    if isinstance(seed, RecordingGenerator.__mro__[1]):
        return seed
    if seed is None:
        with tape.mute():  # its own numbers, once nobody listens, are the operating system's
            return RecordingGenerator(np.random.PCG64(), keyed=True)
    return RecordingGenerator(_REAL["default_rng"](seed).bit_generator)


def _legacy(name: str, real: Any, whole: _Global) -> Callable[..., Any]:
    """Return what stands for one of NumPy's global functions."""

    def function(*args: Any, **options: Any) -> Any:
        tape = listening()
        if tape is None:
            return real(*args, **options)

        def source(key: Any) -> Any:
            return tape.legacy or _RandomState(tape.stream(key).bit_generator)

        old, whole.was_used = tape.legacy, True
        state = old.get_state if old is not None and tape.legacy_is_drawn else None
        return tape.call(name, source, old is None, args, options, state)

    return function


def _legacy_seed(seed: Any = None) -> None:
    tape = listening()
    if tape is None:
        _REAL["global"].seed(seed)
    elif seed is not None:
        with tape.mute():
            tape.legacy = _RandomState(seed)
        tape.legacy_is_drawn = tape.note_seed(seed, lambda: None)


def _legacy_set_state(state: Any) -> None:
    _mark_set(True)
    _REAL["global"].set_state(state)


def _mark_set(keyed: bool) -> None:
    """Mark the tape: its numbers do not come again, as those of the source would."""
    tape = listening()
    if tape is not None and keyed:
        tape.marks.add(SET)


class _Global:
    """NumPy's global source, which SciPy takes by default."""

    was_used = False

    def __getattr__(self, name: str) -> Any:
        return getattr(_REAL["global"], name)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return _RandomState


def _scipy_places(whole: _Global) -> list[tuple[Any, str, Any]]:
    """Let the distributions of SciPy that hold the global source ask what stands for it."""
    module = sys.modules.get("scipy.stats._distn_infrastructure")
    if module is None:
        return []
    real = module.rv_generic.rvs

    def rvs(self: Any, *args: Any, **options: Any) -> Any:
        held = getattr(self, "_random_state", None) is _REAL["global"]
        if listening() is not None and held and options.get("random_state") is None:
            options["random_state"] = whole
        return real(self, *args, **options)

    return [(module.rv_generic, "rvs", rvs)]


def _urandom(size: int) -> bytes:
    """Stand for ``os.urandom``."""
    tape = listening()
    if tape is None:
        return bytes(_REAL["urandom"](size))
    key = tape.key("os.urandom")
    value = tape.stream(key).bytes(size)
    coin = Draw(key, "os.urandom", noise=False)
    value = tape.coin(coin, tape.far(key, True, None), value, lambda far: far_bytes(far, value))
    tape.keep(int.from_bytes(value, "big"))
    return bytes(value)


def _hashing(real: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of hashlib or hmac that says that something is hashed."""

    def function(*args: Any, **options: Any) -> Any:
        tape = listening()
        if tape is not None:
            tape.hashes = True
        return real(*args, **options)

    return function


def _system_below(self: Any, count: int) -> int:
    """Stand for what ``secrets.randbelow``, ``secrets.choice`` and others choose integers by."""
    tape = listening()
    if tape is None:
        return int(_REAL["system_below"](self, count))
    key = tape.key("randbelow")
    value = int(_Random(int(tape.stream(key).integers(2**62)))._randbelow(count))  # type: ignore[attr-defined]
    coin, far = Draw(key, "randbelow", noise=False), tape.far(key, True, None)
    return int(tape.coin(coin, far, value, lambda far: far_below(far, value, count)))


# The module ``random``


_PLAIN_NOISE = {
    "gauss": ("normal", ("mu", "sigma"), (0.0, 1.0)),
    "normalvariate": ("normal", ("mu", "sigma"), (0.0, 1.0)),
    "expovariate": ("exponential", ("lambd",), (1.0,)),
    "uniform": ("uniform", ("a", "b"), (0.0, 1.0)),
}


_PLAIN_OTHER = (
    *("triangular", "betavariate", "gammavariate", "lognormvariate", "vonmisesvariate"),
    *("paretovariate", "weibullvariate"),
)
_PLAIN_COINS = ("random", "getrandbits", "_randbelow")


def _plain_method(name: str) -> Callable[..., Any]:
    return lambda self, *args, **options: self._draw(name, args, options)


class _RecordingRandom(_Random, metaclass=_AsTheReal):
    """A ``random.Random`` that asks the tape unless it was seeded."""

    _keyed, _drawn, was_used = True, False, False
    locals().update(
        {name: _plain_method(name) for name in (*_PLAIN_COINS, *_PLAIN_NOISE, *_PLAIN_OTHER)}
    )

    def setstate(self, state: Any) -> None:
        _mark_set(self._keyed)
        super().setstate(state)

    def seed(self, a: Any = None, version: int = 2) -> None:
        super().seed(a, version)
        self._keyed = a is None
        tape = listening()
        if tape is not None and a is not None:
            self._drawn = tape.note_seed(a, partial(_Random.seed, self))

    def _draw(self, name: str, args: Any, options: Any) -> Any:
        tape, real = listening(), getattr(_Random, name)
        if tape is None:
            return real(self, *args, **options)
        self.was_used = True
        key = tape.key(name)
        far = tape.far(key, self._keyed, self.getstate if self._drawn else None)
        with tape.mute():
            stream = tape.stream(key)
            source = _Random(int(stream.integers(2**62))) if self._keyed else self
            value = real(source, *args, **options)
        if name in _PLAIN_OTHER:
            draw = Draw(key, "other", True, value=np.array(value, dtype=np.float64))
            return float(tape.record(draw, far))
        if name not in _PLAIN_NOISE:
            outcome = None if self._keyed else repr(value)
            coin = Draw(key, name, noise=False, outcome=outcome)
            return tape.coin(coin, far, value, lambda far: _far_plain(far, name, value, args))
        law, names, defaults = _PLAIN_NOISE[name]
        given = {**dict(zip(names, defaults)), **dict(zip(names, args)), **options}
        place, scale = ([0.0, *given.values()])[-2:]
        scale = 1.0 / scale if law == "exponential" else scale - (place if law == "uniform" else 0)
        return float(tape.record(Draw(key, law, True, place, scale, np.array(value)), far))

    def choices(
        self, population: Any, weights: Any = None, *, cum_weights: Any = None, k: int = 1
    ) -> list[Any]:
        if weights is None and cum_weights is not None:
            weights = np.diff(cum_weights, prepend=0.0)
        tape = listening()
        if tape is not None and weights is not None:
            far = tape.far(tape.key("choices"), self._keyed, self.getstate if self._drawn else None)
            if far is not None and far.random() < 0.75:  # all that has any chance, with equal ones
                weights = (np.asarray(weights) > 0).astype(float).tolist()
        return super().choices(population, weights, k=k)


def _far_plain(far: np.random.Generator, name: str, value: Any, args: Any) -> Any:
    """Return an extreme outcome of a coin of the module ``random``."""
    if name == "random":
        return float(far_uniform(far, value))
    return far_below(far, value, args[0] if name == "_randbelow" else 1 << args[0])


# Our own laws


_NAMES = {"gaussian": "normal"}  # of our laws on the tape, where it has others


def _asked(tape: Tape, name: str, source: Any) -> tuple[Any, Any, np.random.Generator | None]:
    """Return the key of one call of our laws, its source, and what makes the call extreme."""
    key = tape.key(name)
    if isinstance(source, mechanisms.SystemRandom):
        return key, tape.stream(key), tape.far(key, True, None)
    if type(source) is RecordingGenerator:
        state = source._state if source._drawn and not source._keyed else None
        return key, source._source(key), tape.far(key, source._keyed, state)
    return key, source, None


def _law(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
    def function(random: Any, scale: Any = 1.0, size: Any = None, **options: Any) -> Any:
        tape = listening()
        options = {**options, **({} if size is None else {_SIZES.get(name, "size"): size})}
        scale = options.pop("std", scale)
        if tape is None:
            return real(random, scale, **options)
        key, source, far = _asked(tape, name, random)
        with tape.mute():
            value = real(source, scale, **options)
        draw = Draw(key, _NAMES.get(name, name), True, 0.0, scale, np.array(value))
        result = tape.record(draw, far)
        return float(result) if np.ndim(value) == 0 else result

    return function


_SIZES = {"spherical": "d", "cubic": "d"}


def _noisy(random: Any, values: Any, law: str, scale: float, shares: Any = 1.0) -> Any:
    tape = listening()
    if tape is None or scale == 0.0:
        return _REAL["noisy"](random, values, law, scale, shares)
    key, source, far = _asked(tape, law, random)
    with tape.mute():
        value = _REAL["noisy"](source, values, law, scale, shares)
    quantity = np.array(values, dtype=np.float64)
    spread = scale * np.asarray(shares)
    draw = Draw(key, _NAMES.get(law, law), True, quantity, spread, np.array(value))
    return tape.record(draw, far)


def _nearly(random: Any, law: str, scale: float, d: int) -> tuple[Any, float]:
    tape = listening()
    if tape is None or scale == 0.0:
        return _REAL["nearly"](random, law, scale, d)
    key, source, far = _asked(tape, law, random)
    with tape.mute():
        value, distance = _REAL["nearly"](source, law, scale, d)
    draw = Draw(key, _NAMES.get(law, law), True, 0.0, scale, np.array(value))
    return tape.record(draw, far), distance


def _smallest(
    random: Any, values: Any, offsets: Any, law: str, scale: float, count: int = 1
) -> Any:
    tape = listening()
    if tape is None or scale == 0.0:
        return _REAL["smallest"](random, values, offsets, law, scale, count)
    key, source, far = _asked(tape, law, random)
    with tape.mute():
        chosen = _REAL["smallest"](source, values, offsets, law, scale, count)
    if far is not None:
        chosen = far.permutation(np.size(values))[:count]
    tape.draws.append(Draw(key, law, True, np.array(values), scale, None, np.shape(values)))
    return chosen


def _threshold_class(real: Any) -> Any:
    class Threshold(real):
        def __init__(self, random: Any, *args: Any) -> None:
            tape = listening()
            if tape is not None and isinstance(random, mechanisms.SystemRandom):
                with tape.mute():
                    random = RecordingGenerator(np.random.PCG64(), keyed=True)
            super().__init__(random, *args)

    Threshold.__name__ = Threshold.__qualname__ = "Threshold"
    return Threshold


# Putting them in the place of the real ones


def _replacements() -> list[tuple[Any, str, Any]]:
    """Return the places of the real functions, with what stands for them."""
    ours = [(noise, name, _law(name, getattr(noise, name))) for name in _OUR_LAWS]
    whole, plain = _Global(), _RecordingRandom()
    legacy = [
        (np.random, name, _legacy(name, getattr(np.random, name), whole))
        for name in (*NOISE, *sorted(OTHER_NOISE), *sorted(COINS))
        if hasattr(np.random, name) and name != "Generator"
    ]
    legacy += [(np.random, "seed", _legacy_seed), (np.random, "set_state", _legacy_set_state)]
    vars(whole).update({name: new for _, name, new in legacy})
    names = (
        *("random", "getrandbits", *_PLAIN_NOISE, *_PLAIN_OTHER, "binomialvariate", "randbytes"),
        *("randrange", "randint", "choice", "choices", "shuffle", "sample", "seed", "setstate"),
    )
    return [
        *ours,
        (mechanisms, "noisy", _noisy),
        (mechanisms, "nearly", _nearly),
        (mechanisms, "smallest", _smallest),
        (mechanisms, "Threshold", _threshold_class(mechanisms.Threshold)),
        (np.random, "default_rng", _default_rng),
        (np.random, "Generator", RecordingGenerator),
        (np.random, "RandomState", _RecordingState),
        (np.random.mtrand, "_rand", whole),
        *_scipy_places(whole),
        *legacy,
        *((random, name, getattr(plain, name)) for name in names if hasattr(plain, name)),
        (random, "Random", _RecordingRandom),
        (os, "urandom", _urandom),
        (threading.Thread, "start", _start),
        (random.SystemRandom, "_randbelow", _system_below),
        *(
            (module, name, _hashing(getattr(module, name)))
            for module, names in ((hashlib, ("new", *_HASHES)), (hmac, ("new", "digest")))
            for name in names
            if not isinstance(getattr(module, name), type)
        ),
        *torch_names(),
    ]


_HASHES = sorted(hashlib.algorithms_guaranteed)
_SEEDS = 10_000  # that are tried: sources other than Generator do not keep theirs
_OUR_LAWS = ("laplace", "exponential", "gumbel", "gaussian", "spherical", "cubic")


@contextlib.contextmanager
def listen(function: Callable[..., Any]) -> Iterator[dict[str, tuple[Any, Any]]]:
    """Let every name of a random source, in every module, stand for one that asks the tape."""
    # So that ``from random import gauss`` is heard as ``random.gauss`` is; generators that the
    # function holds ask, too. Those seeded with a number are given: name, substitute, number.
    with _lock:
        undo: list[Callable[[], None]] = []
        try:
            defaults = _replace_names(undo)
            yield _replace_generators(function, undo) | defaults
        finally:
            for each in reversed(undo):
                each()


def _replace_names(undo: list[Callable[[], None]]) -> dict[str, tuple[Any, Any]]:
    places = _replacements()
    by_name = {(owner, name): new for owner, name, new in places}
    plain, real = by_name[random, "random"].__self__, random._inst
    defaults: dict[str, tuple[Any, Any]] = {
        "NumPy's global source": (by_name[np.random.mtrand, "_rand"], _seed_of_global),
        "the source of the module random": (plain, lambda: _small_seed(real)),
        **torch_default(),
    }
    stands = {id(getattr(owner, name)): new for owner, name, new in places}
    for owner, name, new in places:
        if isinstance(owner, type) or owner is np.random.mtrand:
            own = name in vars(owner)
            old = vars(owner).get(name)
            setattr(owner, name, new)
            undo.append(
                partial(setattr, owner, name, old) if own else partial(delattr, owner, name)
            )
    for title, module in list(sys.modules.items()):
        if title in (__name__, Tape.__module__) or title.startswith("numpy.random."):
            continue
        names = getattr(module, "__dict__", None)
        if type(names) is not dict:
            continue
        found = [item for item in list(names.items()) if id(item[1]) in stands]
        for name, value in found:
            names[name] = stands[id(value)]
            undo.append(partial(names.__setitem__, name, value))
    return defaults


def _replace_generators(
    function: Any, undo: list[Callable[[], None]]
) -> dict[str, tuple[Any, Any]]:
    held = getattr(function, "__self__", None)
    code = getattr(function, "__func__", function)
    if not isinstance(code, types.FunctionType):
        held, code = code, getattr(type(code), "__call__", None)  # noqa: B004
    spaces = [getattr(code, "__globals__", {}), getattr(held, "__dict__", {})]
    seeded: dict[str, tuple[Any, Any]] = {}

    def stand_for(name: str, value: Any) -> Any:
        stand = _keyed_generator(value)
        seed = _entropy(value) if type(value) is _Generator else _small_seed(value)
        if seed is not None:
            seeded[name] = stand, seed
        return stand

    for space in spaces:
        for name, value in list(space.items()):
            if _is_generator(value):
                space[name] = stand_for(name, value)
                undo.append(partial(space.__setitem__, name, value))
    names = getattr(getattr(code, "__code__", None), "co_freevars", ())
    for name, cell in zip(names, getattr(code, "__closure__", None) or ()):
        with contextlib.suppress(ValueError):  # an empty cell
            value = cell.cell_contents
            if _is_generator(value):
                cell.cell_contents = stand_for(name, value)
                undo.append(partial(setattr, cell, "cell_contents", value))
    return seeded


def _entropy(generator: Any) -> Any:
    """Return what a generator was seeded with, None where it may be the operating system's."""
    seed = getattr(getattr(generator.bit_generator, "seed_seq", None), "entropy", None)
    return None if isinstance(seed, int) and seed >= 1 << 64 else seed


def _seed_of_global() -> Any:
    """Return the small number that NumPy's global source was just seeded with, if it was."""
    if getattr(_REAL["global"]._bit_generator, "_seed_seq", 0) is not None:
        return None
    return _small_seed(_REAL["global"])


def _small_seed(source: Any) -> int | None:
    """Return a small seed with which an older source would give what it will give next."""
    following, probe = copy.deepcopy(source).random(), type(source)()
    for seed in range(_SEEDS):
        probe.seed(seed)
        if probe.random() == following:
            return seed
    return None


def _is_generator(value: Any) -> bool:
    return type(value) in (_Generator, _RandomState, _Random)


def _keyed_generator(value: Any) -> Any:
    if type(value) is _Generator:
        return RecordingGenerator(np.random.PCG64(), keyed=True)
    return _RecordingState() if type(value) is _RandomState else _RecordingRandom()


def play(tape: Tape, run: Callable[[Any], Any]) -> Any:
    """Return run(generator), every draw on the tape; what the mechanism keeps is seeded anew."""
    bit_generator = np.random.PCG64(tape.seed)
    tape.lent.append(partial(_renew, bit_generator))
    handed = RecordingGenerator(bit_generator, keyed=True)
    handed._watch(tape)
    try:
        with played(tape):
            return run(handed)
    finally:
        handed._watch(tape)
        for renew in tape.lent:
            renew()
