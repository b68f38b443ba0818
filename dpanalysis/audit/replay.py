"""Run a mechanism with recorded noise, and compare runs."""

from __future__ import annotations

import inspect
import math
import time
import warnings
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from .entries import form, hashable, plain, words_and_numbers
from .outcomes import CHANGED, Raised, fingerprint
from .sources import play
from .tape import Draw, OutOfTime, Tape

__tracebackhide__ = True  # pytest shows the line that calls this package

MESSAGE = (0, "message", 1)  # the place of an error's text in the form of a run
FARTHEST, MILD = 9.0, 2.0  # decimal exponents of the largest factors of extreme noise
SAME = 1e-9  # relative: parameters that differ by less are equal
_ROUNDING = 1e-12  # rounding error, relative to the largest noise in a run
_LEAST = 4  # runs on each input that are made however long they take
_OFTEN, _SOME = 10, 100  # at most _OFTEN * (calls of a usual run) + _SOME calls are extreme
_BETWEEN, _TRIED = (3.0, 4.5, 6.0, 7.5), 4  # exponents between MILD and FARTHEST, runs with each
_GROWN, _SHORT = 20, 0.01  # a run of _GROWN times the usual size or seconds (>= _SHORT) has grown
_RISING = 12  # fewest runs whose seeds are compared
_DIGITS = 9  # a number with at most this many digits counts as rounded


@dataclass
class RecordedRun:
    """One run: its draws, and its output as numbers and other parts."""

    tape: Tape
    structure: Any
    numbers: np.ndarray
    others: tuple[Any, ...]
    # By the place of each part, how it is stored or written; and the warnings.
    form: dict[tuple[int, str, int], Any]

    @property
    def noise(self) -> dict[Any, Draw]:
        """The draws of noise, by key."""
        return {draw.key: draw for draw in self.tape.draws if draw.noise}


class Replayer:
    """Runs a mechanism on the two inputs."""

    def __init__(
        self, function: Any, inputs: tuple[Any, Any], seed: int, vectorized: bool, seconds: float
    ) -> None:
        self.function, self.inputs, self.seed, self.vectorized = function, inputs, seed, vectorized
        self.end = time.monotonic() + seconds
        self.late = False
        self.constant: frozenset[Any] = frozenset()
        self.most, self.usual = math.inf, 0.0
        self.error: Exception | None = None
        self.before = tuple(map(fingerprint, inputs))

    def run(
        self, side: int, number: int, extreme: float = 0.0, forced: dict[Any, Any] | None = None
    ) -> RecordedRun:
        """Return one run; runs of the same number have the same noise on both inputs."""
        end = self.end if extreme or number >= _LEAST else math.inf
        seed, most = self.seed + (number << 32), self.most if extreme else math.inf
        coins = {0: False, 1: True}.get(number % 6) if extreme else None
        tape = Tape(seed, extreme, forced, self.constant, most, end, coins, self.usual)
        data = self.inputs[side]

        def call(random: Any) -> Any:
            return self.function(data, random, *([1] if self.vectorized else []))

        start = time.monotonic()
        with np.errstate(all="ignore"), warnings.catch_warnings(record=True) as issued:
            warnings.simplefilter("always")
            try:
                output = play(tape, call)
            except Exception as error:
                output, self.error = Raised(type(error).__name__), error
        if not extreme:
            self.seconds = max(_SHORT, time.monotonic() - start)  # of the last usual run
        if fingerprint(data) != self.before[side]:
            raise ValueError(CHANGED)
        numbers: list[np.ndarray] = []
        others: list[Any] = []
        texts = sorted({f"{each.category.__name__}: {each.message}" for each in issued})
        forms: list[Any] = [[("warning", texts)]]
        if isinstance(output, Raised):
            forms[0].append(("message", str(self.error)))
        structure = _flatten(output, numbers, others, forms)
        places = {
            (k, name, j): value
            for k, parts in enumerate(forms)
            for j, (name, value) in enumerate(parts)
        }
        joined = np.concatenate(numbers or [np.zeros(0)])
        return RecordedRun(tape, structure, joined, tuple(others), places)

    def pairs(self, first: int, count: int, extreme: float = 0.0) -> list[list[RecordedRun]] | None:
        """Return runs on both inputs: when time runs out, fewer usual or no extreme ones (None)."""
        pairs = []
        for number in range(first, first + count):
            late = time.monotonic() > self.end and (extreme or number >= _LEAST)
            try:
                if not late:
                    pairs.append([self.run(side, number, extreme) for side in (0, 1)])
            except OutOfTime:
                late = True
            if late:
                self.late = True
                if extreme:
                    return None
                break
        return [list(side) for side in zip(*pairs)]

    def farthest(self, first: int) -> float:
        """Return the largest exponent of noise at which runs do not grow in size or time."""
        top = MILD
        for exponent in (MILD, *_BETWEEN, FARTHEST):
            start = time.monotonic()
            try:
                runs = []
                for k in range(_TRIED):
                    if start > self.end or time.monotonic() > self.end:
                        raise OutOfTime
                    runs.append(self.run(k % 2, first + int(100 * exponent) + k, exponent))
            except OutOfTime:
                self.late = True
                return FARTHEST
            seconds = (time.monotonic() - start) / _TRIED
            if max(map(_size, runs)) > _GROWN * self.size or seconds > _GROWN * self.seconds:
                break
            top = exponent
        return top

    def learn(self, runs: list[list[RecordedRun]]) -> None:
        """Store what extreme runs need: constant seeds, usual number of calls, usual size."""
        self.constant = frozenset[Any]().union(*map(constant_seeds, runs))
        self.usual = max(run.tape.calls for side in runs for run in side)
        self.size = max(_size(run) for side in runs for run in side)
        self.most = _OFTEN * self.usual + _SOME


def _size(run: RecordedRun) -> int:
    """Return how many numbers a run draws and returns in all."""
    return run.numbers.size + sum(int(np.prod(draw.shape)) for draw in run.tape.draws)


def constant_seeds(runs: list[RecordedRun]) -> Counter[tuple[str, int, str]]:
    """Return the (file, line, seed) that all runs have in common, with their multiplicities."""
    common = Counter(runs[0].tape.seeds)
    for run in runs[1:]:
        common &= Counter(run.tape.seeds)
    return common


def rising_seeds(runs: list[RecordedRun]) -> list[tuple[str, int, str, str]]:
    """Return (file, line, first, last) of seeds that rise from run to run; two have one tape."""
    # A seed from the operating system does so by chance in one of 12! cases.
    if len(runs) < _RISING:
        return []
    found = []
    for place, (file, line, first) in enumerate(runs[0].tape.seeds):
        same = [run.tape.seeds[place] for run in runs if len(run.tape.seeds) > place]
        with suppress(ValueError):  # no numbers
            values = [float(seed) for *where, seed in same if where == [file, line]]
            if len(values) == len(runs) and all(a < b for a, b in pairwise(values)):
                found.append((file, line, first, same[-1][2]))
    return found


def _flatten(value: Any, numbers: list[np.ndarray], others: list[Any], forms: list[Any]) -> Any:
    """Collect the numbers, the other parts and the forms of an output; return its structure."""
    forms.append(tuple(form(value)))
    name, value = type(value).__name__, plain(value)
    if isinstance(value, str):
        words = words_and_numbers(value)
        others.append(tuple(words[::2]))
        numbers.append(np.array(words[1::2], dtype=np.float64))
        return "text", len(words)
    if isinstance(value, (bool, int, float, complex, np.number, np.bool_, np.ndarray)):
        try:
            array = np.asarray(value)
            if array.dtype.kind == "c":
                array = np.stack([array.real, array.imag], axis=-1)
            if array.dtype.kind in "biuf":
                numbers.append(array.astype(np.float64).ravel())
                return array.shape
        except OverflowError:  # integers beyond doubles
            pass
        if isinstance(value, np.ndarray):
            return _flatten(value.tolist(), numbers, others, forms)
    if isinstance(value, (list, tuple)):
        return type(value).__name__, tuple(_flatten(each, numbers, others, forms) for each in value)
    if isinstance(value, dict):
        return name, tuple(
            (hashable(key), _flatten(each, numbers, others, forms)) for key, each in value.items()
        )
    others.append(hashable(value))
    return "other"


# Agreement


def close(a: Any, b: Any) -> bool:
    """Return whether numbers are equal up to rounding."""
    return bool(np.allclose(a, b, rtol=SAME, atol=0.0, equal_nan=True))


def entry_of(draw: Draw, index: int) -> float:
    """Return the scale of one number of noise."""
    return float(np.broadcast_to(draw.scale, draw.shape).flat[index])


def agree(a: Any, b: Any) -> bool:
    """Return whether two structures, lists or arrays are equal; arrays up to rounding."""
    if a is None or b is None:
        return a is b
    if isinstance(a, (np.ndarray, float, np.number)) or isinstance(b, (np.ndarray, np.number)):
        return np.shape(a) == np.shape(b) and close(a, b)
    return bool(a == b)


def same(a: Any, b: Any) -> Any:
    """Return where numbers are equal, or both NaN."""
    return (a == b) | (np.isnan(a) & np.isnan(b))


def is_rounded(column: np.ndarray) -> bool:
    """Return whether numbers have few digits, so that they may agree by chance."""
    return all(float(f"{value:.{_DIGITS}g}") == value for value in column.tolist())


def common_step(sizes: np.ndarray, least: np.ndarray) -> np.ndarray:
    """Return the greatest common divisor of each column, by Euclid; below ``least`` is 0."""
    step, top = np.zeros((2, *least.shape))
    for row in sizes:
        rest = np.where(row > least, row, 0.0)
        top = np.maximum(top, rest)
        while rest.any():
            left = np.where(rest > 0.0, np.fmod(step, rest), 0.0)
            left = np.where((left > least) & (rest - left > least), left, 0.0)
            step, rest = np.where(rest > 0.0, rest, step), left
        # The largest number holds many steps, so the step's relative error becomes smaller.
        step = np.where(step > 0.0, top / np.maximum(1.0, np.round(top / step)), 0.0)
    return step


def off_grid(numbers: Any, step: Any) -> Any:
    """Return the distance of numbers from the nearest multiple of a step."""
    return abs(numbers - step * np.round(numbers / step))


def spread(values: np.ndarray) -> np.ndarray:
    """Return the range of each column, 0 if all its numbers are the same, NaN included."""
    with np.errstate(invalid="ignore"):
        found = values.max(axis=0) - values.min(axis=0)
    found = np.where(np.isnan(found), np.inf, found)
    return np.where(same(values, values[0]).all(axis=0), 0.0, found)


def equal(a: RecordedRun, b: RecordedRun) -> bool:
    """Return whether the outputs of two runs are the same."""
    return (
        a.structure == b.structure
        and a.others == b.others
        and np.array_equal(a.numbers, b.numbers, equal_nan=True)
    )


def drawn_alike(a: RecordedRun, b: RecordedRun) -> bool:
    """Return whether two runs draw noise of the same laws, scales and shapes in the same order."""
    one, two = ([d for d in run.tape.draws if d.noise] for run in (a, b))
    return len(one) == len(two) and all(
        d.law == e.law and d.shape == e.shape and agree(np.asarray(d.scale), np.asarray(e.scale))
        for d, e in zip(one, two)
    )


def slack(run: RecordedRun) -> float:
    """Return how much numbers may differ by rounding alone."""
    sizes = [
        float(np.max(abs(draw.added), initial=0.0))
        for draw in run.noise.values()
        if draw.added is not None
    ]
    return _ROUNDING * max(sizes, default=0.0)


def home_of(function: Any) -> tuple[str, int]:
    """Return the file and line where a mechanism is defined."""
    function = inspect.unwrap(getattr(function, "func", function))
    for each in (function, getattr(type(function), "__call__", None)):  # noqa: B004
        code = getattr(each, "__code__", None)
        if code is not None:
            return code.co_filename, code.co_firstlineno
    return "?", 0


def in_words(run: RecordedRun) -> str:
    """Return the shape of an output in words."""
    raised = run.structure == "other" and isinstance(run.others[0], Raised)
    return str(run.others[0] if raised else run.structure)
