"""Runs of a mechanism on two inputs: an event is learned from some and counted in the others."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from scipy import special

from ...privacy.mechanisms import Random, spawn
from .choice import POWER, Choice, Goal, learn_event
from .event import Event
from .joint import Counts, log_p_value, lower_bound
from .limits import Limit
from .neighbours import fingerprint
from .outcomes import Batch, Outcomes, Raised, Reader, as_batch

__all__ = ["Counted", "Mechanism", "check_fresh", "counted", "samples_for"]

Mechanism = Callable[..., Any]

_PILOT = 1 << 13  # runs of the first call: how wide outcomes are is not known yet
_LEARNING = 1.25  # standard errors of what is learned, beside those of the bound; and
_LEARN = 1 << 18  # numbers are learned from at most that many runs of each input,
_LEARN_WIDE = 1 << 16  # vectors from that many,
_LEARN_ENTRIES = 1 << 25  # and never from more entries than this
_CALL_ENTRIES = 1 << 21  # entries of one call's output
_CALLS = 1 << 14  # runs held at once where every run is a call
_FALLBACK = 20_000  # runs of each input where a call on many runs raised
_FEWEST = 8
_SIGNATURES = {
    "each": "mechanism(dataset, rng)",
    "single": "mechanism(dataset, rng, size), or mechanism(dataset, rng) with vectorized=False",
}


class _CallFailed(Exception):
    """A call on many runs raised, which cannot be attributed to one of them."""


class _Source:
    """Runs of the mechanism on one input."""

    def __init__(self, mechanism: Mechanism, data: Any, rng: Random, mode: str) -> None:
        self.mechanism, self.data, self.rng, self.mode = mechanism, data, rng, mode
        self.error: Exception | None = None
        self.runs = self.raised = 0

    def draw(self, size: int) -> Batch:
        """Return the outcomes of ``size`` fresh runs."""
        self.runs += size
        # NaN and infinity are outcomes, so the mechanism need not apologise for them.
        with np.errstate(all="ignore"):
            if self.mode != "batch":
                return [self._one() for _ in range(size)]
            try:
                returned = self.mechanism(self.data, self.rng, size)
            except Exception as error:
                raise _CallFailed(type(error).__name__) from error
        return as_batch(returned, size)

    def _one(self) -> Any:
        try:
            if self.mode == "each":
                return self.mechanism(self.data, self.rng)
            returned = self.mechanism(self.data, self.rng, 1)
        except Exception as error:
            self.error, self.raised = error, self.raised + 1
            return Raised(type(error).__name__)
        return as_batch(returned, 1)[0]


@dataclass(frozen=True, eq=False)
class Counted:
    """An event's counts on both inputs, and what they say about the level of a limit.

    Attributes
    ----------
    level : float
        Lower bound.
    pair : (float, float)
        The probabilities that stand in the way of a larger one (:func:`.joint.lower_bound`).
    event : Event
    likelier : {"dataset", "neighbour"}
    counts : (int, int)
        On the dataset and on the neighbour.
    runs, samples : int
        Of each input: counted, and in all.
    notes : tuple of str
    """

    level: float
    pair: tuple[float, float]
    event: Event
    likelier: str
    counts: tuple[int, int]
    runs: int
    samples: int
    notes: tuple[str, ...]


def counted(
    mechanism: Mechanism,
    inputs: tuple[Any, Any],
    limit: Limit,
    claim: float,
    *,
    samples: int,
    confidence: float,
    rng: Any,
    vectorized: bool,
) -> Counted:
    """Learn an event, count it in other runs and bound the level from below.

    Raises
    ------
    ValueError
        If ``samples`` cannot refute the claim, or the mechanism is none (see
        :func:`.verify.verify_privacy`).
    """
    miss = 1.0 - confidence
    needed = samples_for(limit, claim, miss)
    if samples < needed:
        raise ValueError(
            f"samples={samples:,} cannot refute {limit.describe(claim)} at confidence "
            f"{confidence!r}, whatever they show: at least {needed:,} are needed"
        )
    before = tuple(map(fingerprint, inputs))
    randoms = spawn(rng, 2)
    notes: tuple[str, ...] = ()

    def measure(mode: str, samples: int) -> tuple[Choice, tuple[int, int], int]:
        sources = [_Source(mechanism, data, r, mode) for data, r in zip(inputs, randoms)]
        return _measure(sources, samples, limit, claim, miss)

    try:
        choice, counts, runs = measure("batch" if vectorized else "each", samples)
    except _CallFailed as failure:
        samples = min(samples, max(_FALLBACK, needed))
        notes = (
            f"A call on many runs raised {failure}, so {samples:,} runs of each input were made "
            "one by one, and an exception is an outcome",
        )
        choice, counts, runs = measure("single", samples)
    if tuple(map(fingerprint, inputs)) != before:
        raise ValueError("mechanism must not change its data set: runs were of different inputs")
    side = choice.likelier
    found = Counts(counts[side], counts[1 - side], runs, choice.slope)
    level, pair = lower_bound(found, limit, miss, start=claim)
    name = ("dataset", "neighbour")[side]
    return Counted(level, pair, choice.event, name, counts, runs, samples, notes)


def _learned(samples: int, miss: float) -> int:
    """Return how many runs are learned from: what makes the sum of both errors smallest.

    a/sqrt(l) + b/sqrt(n - l) is smallest where l/(n - l) = (a/b)**(2/3).
    """
    errors = max(-float(special.ndtri(miss)), 0.0) + POWER
    ratio = (_LEARNING / errors) ** (2.0 / 3.0)
    return max(1, min(int(samples * ratio / (1.0 + ratio)), _LEARN))


@lru_cache(maxsize=256)
def samples_for(limit: Limit, claim: float, miss: float) -> int:
    """Return how many runs of each input the clearest outcome needs to refute the claim.

    An event that always happens on the one input and never on the other has that p-value at
    least which the best allowed pair gives it: sup (p (1 - q))**runs.
    """
    q = special.expit(np.linspace(-40.0, 40.0, 8001))
    best = float(np.max(limit.most(q, claim) * (1.0 - q)))
    if best >= 1.0 - 1e-15:
        raise ValueError(f"claim must be smaller: no test can refute {limit.describe(claim)}")
    runs = max(1, math.ceil(math.log(miss) / math.log(best)))
    counts = Counts(runs, 0, runs, 1.0)
    while runs < _LEARN and log_p_value(counts, limit, claim, miss)[0] > math.log(miss):
        runs += 1 + runs // 1_000
        counts = Counts(runs, 0, runs, 1.0)
    samples = max(_FEWEST, runs + max(0, min(_learned(runs, miss), _LEARN) - 1))
    while samples - _learned(samples, miss) < runs:
        samples += max(1, (runs - samples + _learned(samples, miss)) // 2)
    return samples


def _measure(
    sources: list[_Source], samples: int, limit: Limit, claim: float, miss: float
) -> tuple[Choice, tuple[int, int], int]:
    """Learn an event and count it: the event, its counts and in how many runs."""
    share = _learned(samples, miss)
    pilot = min(share, _PILOT)
    batches = [source.draw(pilot) for source in sources]
    reader = Reader(batches)
    width = max(1, reader.width)
    learn = min(_LEARN if width == 1 else _LEARN_WIDE, _LEARN_ENTRIES // width)
    learn = min(share, max(pilot, learn))
    chunk = max(1, _CALL_ENTRIES // width)
    if sources[0].mode != "batch":
        chunk = min(chunk, _CALLS)
    known = []
    for source, batch in zip(sources, batches):
        parts = [reader.read(batch)]
        parts += [reader.read(source.draw(size)) for size in _chunks(learn - pilot, chunk)]
        known.append(Outcomes.join(parts))
    if all(source.raised == source.runs for source in sources):
        error = sources[0].error
        raise ValueError(
            f"mechanism raised in each of {learn:,} runs on both inputs "
            f"({type(error).__name__}: {error}), so nothing was tested; it is called as "
            f"{_SIGNATURES[sources[0].mode]}"
        ) from error
    reader.check_comparable()
    runs = samples - learn
    goal = Goal(limit, claim, runs, -float(special.ndtri(miss)))
    choice = learn_event(reader, known[0], known[1], goal)
    counts = []
    for source, learned in zip(sources, known):
        count = 0
        for place, size in enumerate(_chunks(runs, chunk)):
            outcomes = reader.read(source.draw(size))
            if place == 0 and source.mode == "batch":
                check_fresh(learned[:pilot], outcomes)
            count += choice.event.count(outcomes)
        counts.append(count)
    return choice, (counts[0], counts[1]), runs


def _chunks(total: int, most: int) -> Iterator[int]:
    while total > 0:
        yield min(total, most)
        total -= most


def check_fresh(earlier: Outcomes, later: Outcomes) -> None:
    """Raise where a second call shows that runs are not independent.

    By chance, 16 runs or more that all agree in each of two calls but not between them, or
    two calls that agree run by run although most runs differ, practically never happen.
    """
    size = min(len(earlier), len(later))
    a, b = earlier.values[:size], later.values[:size]
    if size < 16 or not a.shape[1]:
        return
    same = [np.array_equal(part, part[[0] * size], equal_nan=True) for part in (a, b)]
    if all(same) and not np.array_equal(a[0], b[0], equal_nan=True):
        raise ValueError(
            "mechanism must return independent runs: all runs of a call are equal, "
            "but two calls differ; draw noise of shape (size, ...)"
        )
    if np.array_equal(a, b, equal_nan=True) and np.unique(a[:, 0]).size > size // 2:
        raise ValueError(
            "mechanism must return independent runs: two calls gave the same ones; "
            "draw from the rng that it is given, and do not seed another one"
        )
