"""Random sources that record every draw on a tape and can be replayed.

Inside :func:`intercept`, every request of Python code for random numbers goes to a :class:`.Tape`:
NumPy's generators and its legacy global functions, ``random``, ``os.urandom`` (hence ``secrets``),
PyTorch, and the laws of :mod:`dpanalysis.privacy.mechanisms` with any source. Each call gets its
own stream of numbers, determined by the tape's seed and by the call's key: the calling line, the
law, and how many times that line has drawn before. So a run on other data gets the same numbers at
the same places, even where it has drawn more or fewer numbers before.

A source that the mechanism seeds itself keeps its own stream. With a constant seed its numbers are
therefore the same under every tape, and do not count as noise. With a seed that was itself drawn,
they are extreme in extreme runs.

Threads started before a run are not part of it and draw from the real sources. Compiled code
(C, Fortran, Numba) with its own generator is not recorded.
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
from .coins import extreme_below, extreme_bytes, extreme_uniform
from .tape import (
    COINS,
    COPIED,
    NOISE,
    OTHER_NOISE,
    OUTSIDE,
    SET,
    Draw,
    Tape,
    active_tape,
    current,
    mark_set,
    played,
)
from .torch_sources import torch_default, torch_names

# The originals: names of this module are not replaced.
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

_REMEMBERED = 1 << 14  # most states of a generator that are stored
_lock = threading.RLock()


def _start(thread: threading.Thread) -> None:
    """Replace ``threading.Thread.start``: threads started by a run are part of it."""
    tape, run = active_tape(), thread.run
    if tape is not None:

        def run_recorded() -> None:
            mine = threading.get_ident()
            tape.threads.add(mine)
            try:
                run()
            finally:
                tape.threads.discard(mine)

        thread.run = run_recorded  # type: ignore[method-assign]
    _REAL["start"](thread)


class _SubstituteMeta(type):
    """Metaclass of substitutes: ``isinstance`` also accepts instances of the replaced class."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, cls.__mro__[1])


def _method(name: str, real: Any) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **options: Any) -> Any:
        tape = active_tape()
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


class RecordingGenerator(_Generator, metaclass=_SubstituteMeta):
    """A Generator that draws from the tape; with ``keyed=False``, from its own seeded stream."""

    locals().update(_methods(_Generator))

    def __init__(self, bit_generator: Any, keyed: bool = False) -> None:
        super().__init__(bit_generator)
        self._keyed, self._drawn = keyed, False
        tape = active_tape()
        if tape is not None and not keyed:
            reseed = partial(_reseed, bit_generator)
            self._drawn = tape.note_seed(_seed_of(bit_generator), reseed)
        self._watched: Tape | None = None

    def _state(self) -> Any:
        return self.bit_generator.state

    @property
    def was_used(self) -> bool:
        """Whether a run drew from this generator."""
        return self._watched is not None

    def _watch(self, tape: Tape) -> None:
        """Mark the tape if the state has changed since the last recorded draw."""
        # Each draw from the tape also discards one number of this generator. So an unexpected
        # state shows that somebody set it (SET) or drew without being recorded (OUTSIDE).
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
        """Return children, which draw from the tape if this generator does."""
        children = self.bit_generator.spawn(n_children)
        tape = current()
        if self._keyed and tape is not None:
            tape.reseeders += [partial(_reseed, child) for child in children]
        return [RecordingGenerator(child, self._keyed) for child in children]

    def __reduce__(self) -> Any:
        tape = active_tape()
        if tape is None:
            return _Generator(self.bit_generator).__reduce__()
        tape.marks.add(COPIED)
        return _copied, (self.bit_generator,)


def _copied(bit_generator: Any) -> Any:
    """Return the copy of a generator, which continues with its own stream."""
    tape = active_tape()
    if tape is None:
        return _Generator(bit_generator)
    tape.reseeders.append(partial(_reseed, bit_generator))
    return RecordingGenerator(bit_generator)


def _reseed(bit_generator: Any) -> None:
    """Seed a bit generator from the operating system."""
    bit_generator.state = type(bit_generator)().state


def _seed_of(bit_generator: Any) -> Any:
    """Return the seed of a bit generator, or a checksum of its state if that was set."""
    sequence: Any = getattr(bit_generator, "seed_seq", None)
    seed, state = getattr(sequence, "entropy", None), pickle.dumps(bit_generator.state)
    # After setting the state, or a jump, the seed no longer identifies the stream.
    if seed is None or pickle.dumps(type(bit_generator)(sequence).state) != state:
        return zlib.crc32(state)
    spawned = sequence.spawn_key
    return (*np.array(seed, dtype=object).ravel(), *spawned) if spawned else seed


class _RecordingState(_RandomState, metaclass=_SubstituteMeta):
    """A RandomState that draws from the tape unless it was seeded."""

    was_used = False
    locals().update(_methods(_RandomState))

    def __init__(self, seed: Any = None) -> None:
        tape = active_tape()
        with tape.paused() if tape else contextlib.nullcontext():
            super().__init__(seed)
        self._note(seed)

    def _note(self, seed: Any) -> None:
        tape = active_tape()
        self._keyed, self._drawn = seed is None, False
        if tape is not None and isinstance(seed, np.random.BitGenerator):
            self._drawn = tape.note_seed(_seed_of(seed), partial(_reseed, seed))
        elif tape is not None and seed is not None:
            self._drawn = tape.note_seed(seed, partial(_RandomState.seed, self))

    def seed(self, seed: Any = None) -> None:
        super().seed(seed)
        self._note(seed)

    def _state(self) -> Any:
        return self.get_state()

    def set_state(self, state: Any) -> None:
        mark_set(self._keyed)
        super().set_state(state)

    def _source(self, key: Any) -> Any:
        tape = current()
        self.was_used = True
        if self._keyed and tape is not None:
            return _RandomState(tape.stream(key).bit_generator)
        return _RealMethods(self, _RandomState)


class _RealMethods:
    """An object's methods as defined by the original class, bypassing the substitute."""

    def __init__(self, instance: Any, real: Any) -> None:
        self._instance, self._real = instance, real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name).__get__(self._instance)


def _default_rng(seed: Any = None) -> Any:
    """Replace ``numpy.random.default_rng``."""
    tape = active_tape()
    if tape is None:
        return _REAL["default_rng"](seed)
    if isinstance(seed, RecordingGenerator.__mro__[1]):
        return seed
    if seed is None:
        with tape.paused():  # outside a recording, it draws as seeded by the operating system
            return RecordingGenerator(np.random.PCG64(), keyed=True)
    return RecordingGenerator(_REAL["default_rng"](seed).bit_generator)


def _legacy(name: str, real: Any, global_source: _Global) -> Callable[..., Any]:
    """Return the substitute for one of NumPy's global functions."""

    def function(*args: Any, **options: Any) -> Any:
        tape = active_tape()
        if tape is None:
            return real(*args, **options)

        def source(key: Any) -> Any:
            return tape.legacy or _RandomState(tape.stream(key).bit_generator)

        old, global_source.was_used = tape.legacy, True
        state = old.get_state if old is not None and tape.legacy_is_drawn else None
        return tape.call(name, source, old is None, args, options, state)

    return function


def _legacy_seed(seed: Any = None) -> None:
    tape = active_tape()
    if tape is None:
        _REAL["global"].seed(seed)
    elif seed is not None:
        with tape.paused():
            tape.legacy = _RandomState(seed)
        tape.legacy_is_drawn = tape.note_seed(seed, lambda: None)


def _legacy_set_state(state: Any) -> None:
    mark_set()
    _REAL["global"].set_state(state)


class _Global:
    """Substitute for NumPy's global RandomState, SciPy's default source."""

    was_used = False

    def __getattr__(self, name: str) -> Any:
        return getattr(_REAL["global"], name)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return _RandomState


def _scipy_places(global_source: _Global) -> list[tuple[Any, str, Any]]:
    """Return the patch by which SciPy's distributions draw from the substitute by default."""
    module = sys.modules.get("scipy.stats._distn_infrastructure")
    if module is None:
        return []
    real = module.rv_generic.rvs

    def rvs(self: Any, *args: Any, **options: Any) -> Any:
        held = getattr(self, "_random_state", None) is _REAL["global"]
        if active_tape() is not None and held and options.get("random_state") is None:
            options["random_state"] = global_source
        return real(self, *args, **options)

    return [(module.rv_generic, "rvs", rvs)]


def _urandom(size: int) -> bytes:
    """Replace ``os.urandom``."""
    tape = active_tape()
    if tape is None:
        return bytes(_REAL["urandom"](size))
    key = tape.key("os.urandom")
    value = tape.stream(key).bytes(size)
    coin, extreme = Draw(key, "os.urandom", noise=False), tape.extreme_stream(key, True, None)
    value = tape.coin(coin, extreme, value, lambda rng: extreme_bytes(rng, value))
    tape.keep(int.from_bytes(value, "big"))
    return bytes(value)


def _hashing(real: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function of hashlib or hmac to record on the tape that something was hashed."""

    def function(*args: Any, **options: Any) -> Any:
        tape = active_tape()
        if tape is not None:
            tape.hashes = True
        return real(*args, **options)

    return function


def _system_below(self: Any, count: int) -> int:
    """Replace ``SystemRandom._randbelow``, used by ``secrets.randbelow``, ``choice`` and others."""
    tape = active_tape()
    if tape is None:
        return int(_REAL["system_below"](self, count))
    key = tape.key("randbelow")
    value = int(_Random(int(tape.stream(key).integers(2**62)))._randbelow(count))  # type: ignore[attr-defined]
    coin, extreme = Draw(key, "randbelow", noise=False), tape.extreme_stream(key, True, None)
    return int(tape.coin(coin, extreme, value, lambda rng: extreme_below(rng, value, count)))


# The module ``random``


_PLAIN_NOISE = {  # method -> law, and its parameters with their defaults
    "gauss": ("normal", {"mu": 0.0, "sigma": 1.0}),
    "normalvariate": ("normal", {"mu": 0.0, "sigma": 1.0}),
    "expovariate": ("exponential", {"lambd": 1.0}),
    "uniform": ("uniform", {"a": 0.0, "b": 1.0}),
}
_PLAIN_OTHER = (
    *("triangular", "betavariate", "gammavariate", "lognormvariate", "vonmisesvariate"),
    *("paretovariate", "weibullvariate"),
)
_PLAIN_COINS = ("random", "getrandbits", "_randbelow")


def _plain_method(name: str) -> Callable[..., Any]:
    return lambda self, *args, **options: self._draw(name, args, options)


class _RecordingRandom(_Random, metaclass=_SubstituteMeta):
    """A ``random.Random`` that draws from the tape unless it was seeded."""

    _keyed, _drawn, was_used = True, False, False
    locals().update(
        {name: _plain_method(name) for name in (*_PLAIN_COINS, *_PLAIN_NOISE, *_PLAIN_OTHER)}
    )

    def setstate(self, state: Any) -> None:
        mark_set(self._keyed)
        super().setstate(state)

    def seed(self, a: Any = None, version: int = 2) -> None:
        super().seed(a, version)
        self._keyed = a is None
        tape = active_tape()
        if tape is not None and a is not None:
            self._drawn = tape.note_seed(a, partial(_Random.seed, self))

    def _draw(self, name: str, args: Any, options: Any) -> Any:
        tape, real = active_tape(), getattr(_Random, name)
        if tape is None:
            return real(self, *args, **options)
        self.was_used = True
        key = tape.key(name)
        extreme = tape.extreme_stream(key, self._keyed, self.getstate if self._drawn else None)
        with tape.paused():
            stream = tape.stream(key)
            source = _Random(int(stream.integers(2**62))) if self._keyed else self
            value = real(source, *args, **options)
        if name in _PLAIN_OTHER:
            draw = Draw(key, "other", True, value=np.array(value, dtype=np.float64))
            return float(tape.record(draw, extreme))
        if name not in _PLAIN_NOISE:
            outcome = None if self._keyed else repr(value)
            coin = Draw(key, name, noise=False, outcome=outcome)
            return tape.coin(
                coin, extreme, value, lambda rng: _extreme_plain(rng, name, value, args)
            )
        law, defaults = _PLAIN_NOISE[name]
        given = {**defaults, **dict(zip(defaults, args)), **options}
        place, scale = ([0.0, *given.values()])[-2:]
        scale = 1.0 / scale if law == "exponential" else scale - (place if law == "uniform" else 0)
        return float(tape.record(Draw(key, law, True, place, scale, np.array(value)), extreme))

    def choices(
        self, population: Any, weights: Any = None, *, cum_weights: Any = None, k: int = 1
    ) -> list[Any]:
        if weights is None and cum_weights is not None:
            weights = np.diff(cum_weights, prepend=0.0)
        tape = active_tape()
        if tape is not None and weights is not None:
            extreme = tape.extreme_stream(
                tape.key("choices"), self._keyed, self.getstate if self._drawn else None
            )
            if extreme is not None and extreme.random() < 0.75:  # equal chances of all possible
                weights = (np.asarray(weights) > 0).astype(float).tolist()
        return super().choices(population, weights, k=k)


def _extreme_plain(rng: np.random.Generator, name: str, value: Any, args: Any) -> Any:
    """Return an extreme outcome of a coin from the module ``random``."""
    if name == "random":
        return float(extreme_uniform(rng, value))
    return extreme_below(rng, value, args[0] if name == "_randbelow" else 1 << args[0])


# The laws of this package


_NAMES = {"gaussian": "normal"}  # our name of a law -> the tape's, where they differ


def _call_parts(tape: Tape, name: str, source: Any) -> tuple[Any, Any, np.random.Generator | None]:
    """Return the key, the source and the extreme stream (or None) of a call of one of our laws."""
    key = tape.key(name)
    if isinstance(source, mechanisms.SystemRandom):
        return key, tape.stream(key), tape.extreme_stream(key, True, None)
    if type(source) is RecordingGenerator:
        state = source._state if source._drawn and not source._keyed else None
        return key, source._source(key), tape.extreme_stream(key, source._keyed, state)
    return key, source, None


def _law(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
    def function(random: Any, scale: Any = 1.0, size: Any = None, **options: Any) -> Any:
        tape = active_tape()
        options = {**options, **({} if size is None else {_SIZES.get(name, "size"): size})}
        scale = options.pop("std", scale)
        if tape is None:
            return real(random, scale, **options)
        key, source, extreme = _call_parts(tape, name, random)
        with tape.paused():
            value = real(source, scale, **options)
        draw = Draw(key, _NAMES.get(name, name), True, 0.0, scale, np.array(value))
        result = tape.record(draw, extreme)
        return float(result) if np.ndim(value) == 0 else result

    return function


_SIZES = {"spherical": "d", "cubic": "d"}


def _noisy(random: Any, values: Any, law: str, scale: float, shares: Any = 1.0) -> Any:
    tape = active_tape()
    if tape is None or scale == 0.0:
        return _REAL["noisy"](random, values, law, scale, shares)
    key, source, extreme = _call_parts(tape, law, random)
    with tape.paused():
        value = _REAL["noisy"](source, values, law, scale, shares)
    quantity = np.array(values, dtype=np.float64)
    spread = scale * np.asarray(shares)
    draw = Draw(key, _NAMES.get(law, law), True, quantity, spread, np.array(value))
    return tape.record(draw, extreme)


def _nearly(random: Any, law: str, scale: float, d: int) -> tuple[Any, float]:
    tape = active_tape()
    if tape is None or scale == 0.0:
        return _REAL["nearly"](random, law, scale, d)
    key, source, extreme = _call_parts(tape, law, random)
    with tape.paused():
        value, distance = _REAL["nearly"](source, law, scale, d)
    draw = Draw(key, _NAMES.get(law, law), True, 0.0, scale, np.array(value))
    return tape.record(draw, extreme), distance


def _smallest(
    random: Any, values: Any, offsets: Any, law: str, scale: float, count: int = 1
) -> Any:
    tape = active_tape()
    if tape is None or scale == 0.0:
        return _REAL["smallest"](random, values, offsets, law, scale, count)
    key, source, extreme = _call_parts(tape, law, random)
    with tape.paused():
        chosen = _REAL["smallest"](source, values, offsets, law, scale, count)
    if extreme is not None:
        chosen = extreme.permutation(np.size(values))[:count]
    tape.draws.append(Draw(key, law, True, np.array(values), scale, None, np.shape(values)))
    return chosen


def _threshold_class(real: Any) -> Any:
    class Threshold(real):
        def __init__(self, random: Any, *args: Any) -> None:
            tape = active_tape()
            if tape is not None and isinstance(random, mechanisms.SystemRandom):
                with tape.paused():
                    random = RecordingGenerator(np.random.PCG64(), keyed=True)
            super().__init__(random, *args)

    Threshold.__name__ = Threshold.__qualname__ = "Threshold"
    return Threshold


# Replacing the originals


def _replacements() -> list[tuple[Any, str, Any]]:
    """Return (owner, name, substitute) for every random source that is replaced."""
    ours = [(noise, name, _law(name, getattr(noise, name))) for name in _OUR_LAWS]
    global_source, plain = _Global(), _RecordingRandom()
    legacy = [
        (np.random, name, _legacy(name, getattr(np.random, name), global_source))
        for name in (*NOISE, *sorted(OTHER_NOISE), *sorted(COINS))
        if hasattr(np.random, name) and name != "Generator"
    ]
    legacy += [(np.random, "seed", _legacy_seed), (np.random, "set_state", _legacy_set_state)]
    vars(global_source).update({name: new for _, name, new in legacy})
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
        (np.random.mtrand, "_rand", global_source),
        *_scipy_places(global_source),
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
_SEEDS = 10_000  # seeds tried for older sources, which do not store theirs as a Generator does
_OUR_LAWS = ("laplace", "exponential", "gumbel", "gaussian", "spherical", "cubic")


@contextlib.contextmanager
def intercept(function: Callable[..., Any]) -> Iterator[dict[str, tuple[Any, Any]]]:
    """Replace random sources by recording ones; yield name -> (substitute, seed or its getter)."""
    # In every module, so that ``from random import gauss`` is recorded as ``random.gauss`` is, and
    # generators held by ``function``. Yields those seeded with a number, and the default sources.
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
    substitutes = {id(getattr(owner, name)): new for owner, name, new in places}
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
        found = [item for item in list(names.items()) if id(item[1]) in substitutes]
        for name, value in found:
            names[name] = substitutes[id(value)]
            undo.append(partial(names.__setitem__, name, value))
    return defaults


def _namespaces(function: Any) -> tuple[list[dict[str, Any]], dict[str, types.CellType]]:
    """Return the namespaces in which a mechanism may hold generators, and its closure's cells."""
    held = getattr(function, "__self__", None)
    code = getattr(function, "__func__", function)
    if not isinstance(code, types.FunctionType):
        held, code = code, getattr(type(code), "__call__", None)  # noqa: B004
    spaces = [getattr(code, "__globals__", {}), getattr(held, "__dict__", {})]
    if not isinstance(code, types.FunctionType):
        return spaces, {}
    cells = dict(zip(code.__code__.co_freevars, code.__closure__ or ()))
    # The objects that it names: it may be a wrapper of a method of one of them.
    named = [code.__globals__.get(name) for name in code.__code__.co_names]
    for cell in cells.values():
        with contextlib.suppress(ValueError):  # a variable that has no value yet
            named.append(cell.cell_contents)
    for each in named:
        owner = each.__self__ if type(each) is types.MethodType else each
        if not issubclass(type(owner), (type, types.ModuleType, types.FunctionType)):
            with contextlib.suppress(Exception):  # of a __getattr__
                spaces.append(object.__getattribute__(owner, "__dict__"))
    return spaces, cells


def _replace_generators(
    function: Any, undo: list[Callable[[], None]]
) -> dict[str, tuple[Any, Any]]:
    spaces, cells = _namespaces(function)
    seeded: dict[str, tuple[Any, Any]] = {}

    def substitute(name: str, value: Any) -> Any:
        generator = _KEYED[type(value)]()
        seed = _entropy(value) if type(value) is _Generator else _small_seed(value)
        if seed is not None:
            seeded[name] = generator, seed
        return generator

    for space in spaces:
        for name, value in list(space.items()):
            if type(value) in _KEYED:
                space[name] = substitute(name, value)
                undo.append(partial(space.__setitem__, name, value))
    for name, cell in cells.items():
        with contextlib.suppress(ValueError):  # an empty cell
            value = cell.cell_contents
            if type(value) in _KEYED:
                cell.cell_contents = substitute(name, value)
                undo.append(partial(setattr, cell, "cell_contents", value))
    return seeded


def _entropy(generator: Any) -> Any:
    """Return the seed of a generator, None where the operating system may have chosen it."""
    seed = getattr(getattr(generator.bit_generator, "seed_seq", None), "entropy", None)
    return None if isinstance(seed, int) and seed >= 1 << 64 else seed


def _seed_of_global() -> Any:
    """Return the small number with which NumPy's global source was just seeded, or None."""
    if getattr(_REAL["global"]._bit_generator, "_seed_seq", 0) is not None:
        return None
    return _small_seed(_REAL["global"])


def _small_seed(source: Any) -> int | None:
    """Return the small seed that reproduces the next number of an older source, or None."""
    following, probe = copy.deepcopy(source).random(), type(source)()
    for seed in range(_SEEDS):
        probe.seed(seed)
        if probe.random() == following:
            return seed
    return None


_KEYED: dict[type, Callable[[], Any]] = {  # class of a generator -> its substitute on the tape
    _Generator: lambda: RecordingGenerator(np.random.PCG64(), keyed=True),
    _RandomState: _RecordingState,
    _Random: _RecordingRandom,
}


def play(tape: Tape, run: Callable[[Any], Any]) -> Any:
    """Return ``run(generator)`` with every draw on the tape; then reseed retained generators."""
    bit_generator = np.random.PCG64(tape.seed)
    tape.reseeders.append(partial(_reseed, bit_generator))
    handed = RecordingGenerator(bit_generator, keyed=True)
    handed._watch(tape)
    try:
        with played(tape):
            return run(handed)
    finally:
        handed._watch(tape)
        for reseed in tape.reseeders:
            reseed()
