"""A verifier for anybody's mechanism: a lower bound on epsilon from its outputs alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..._validation import check_int, check_number
from ...privacy.mechanisms import Random, spawn
from ...privacy.relations import Budget, check_relation
from .event import Event, epsilon_lower_bound, learn_event, probability_bounds
from .neighbours import check_neighbours, fingerprint
from .outcomes import Batch, Outcomes, Raised, Reader, as_batch
from .verdict import Verdict, claimed

__all__ = ["Mechanism", "verify_privacy"]

Mechanism = Callable[..., Any]

_PILOT = 1 << 13  # runs of the first call: how wide outcomes are is not known yet
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


def verify_privacy(
    mechanism: Mechanism,
    dataset: Any,
    neighbour: Any,
    claim: float | Budget,
    *,
    delta: float = 0.0,
    samples: int = 1_000_000,
    confidence: float = 1 - 1e-9,
    rng: Any = None,
    relation: str | None = None,
    vectorized: bool = True,
) -> Verdict:
    r"""Test whether a mechanism can be as private as claimed, from its outputs alone.

    Under :math:`(\epsilon, \delta)`-differential privacy every event :math:`S` has
    :math:`P(M(D) \in S) \le e^\epsilon P(M(D') \in S) + \delta`, so one event bounds epsilon
    from below by :math:`\ln((p - \delta)/q)`. The mechanism runs ``samples`` times on each of
    the two inputs. From at most half of the runs an event is learned: likelihood-ratio sets
    of the output, of its coordinates, projections and norms, and of classifiers trained on it.
    In the other runs this one event is counted, in the direction chosen before, and p and q
    are bounded by Clopper and Pearson's one-sided intervals, each at half of the error allowed.
    So whatever was learned, a correct mechanism is refuted with probability at most
    1 - ``confidence``.

    Outcomes may be numbers, vectors, integers, truth values, texts or other objects that can be
    compared. NaN, each infinity, an output of another shape and an exception (by its type) are
    outcomes as well. Outputs are compared as numbers in double precision; which of several
    floating-point neighbours was returned (Mironov, 2012) is not looked at.

    Parameters
    ----------
    mechanism : callable
        ``mechanism(dataset, rng, size)`` returns ``size`` independent runs: shape (size,) or
        (size, k), or a sequence of ``size`` objects. With ``vectorized=False``,
        ``mechanism(dataset, rng)`` is one run and may return anything.
    dataset, neighbour : object
        The two inputs, passed as they are. Arrays of two axes, sparse matrices, tuples
        ``(X, y)``, problems and data sets are compared row by row and must be neighbours;
        anything else is up to the caller.
    claim : float or Budget
        Epsilon in [0, inf), or a budget; a zCDP budget is converted at ``delta``.
    delta : float, default=0
        In [0, 1).
    samples : int, default=1_000_000
        Runs of each input.
    confidence : float, default=1 - 1e-9
        In (0, 1): one minus the rate of false alarms that is allowed.
    rng : None, int, SeedSequence, Generator, SystemRandom or "os"
        The two inputs get independent children of it.
    relation : {"replace_one", "add_or_remove_one"}, optional
        Under which relation the inputs are neighbours. If it is given, the entries of arrays
        with one axis count as records, too. By default that of the budget, or else any of the
        two.
    vectorized : bool, default=True
        How the mechanism is called. If a call on many runs raises, the exception cannot be
        attributed to one of them; 20,000 runs of each input are then made by calls with
        ``size=1``, and the verdict says so.

    Returns
    -------
    Verdict

    Raises
    ------
    ValueError
        If a number is outside its range, ``samples`` are too few to refute the claim whatever
        they show, the inputs are not neighbours, or the mechanism returns the wrong number of
        rows, raises in every run, repeats its samples or changes its input.
    TypeError
        If an argument is of the wrong kind, or outputs cannot be compared.

    References
    ----------
    Ding, Wang, Wang, Zhang, Kifer (2018); Bichsel, Steffen, Bogunovic, Vechev (2021); Clopper,
    Pearson (1934).

    Examples
    --------
    Laplace noise whose standard deviation, not its scale, is 1/epsilon:

    >>> def mechanism(count, rng, size):
    ...     return count + rng.laplace(0.0, 1.0 / np.sqrt(2.0), size)
    >>> verdict = verify_privacy(mechanism, 0, 1, claim=1.0, samples=100_000, rng=0)
    >>> verdict.refuted, round(verdict.epsilon, 1)
    (True, 1.3)
    >>> outputs = mechanism(0, np.random.default_rng(1), 100_000)
    >>> round(float(verdict.event(outputs).mean()), 1), verdict.likelier
    (0.5, 'dataset')
    >>> def correct(count, rng, size):
    ...     return count + rng.laplace(0.0, 1.0, size)
    >>> print(verify_privacy(correct, 0, 1, claim=1.0, samples=100_000, rng=0))
    not refuted: epsilon >= 0.9... where 1 is claimed (delta = 0, confidence 1 - 1e-09). ...
    """
    if not callable(mechanism):
        raise TypeError(f"mechanism must be callable, got {mechanism!r}")
    epsilon, delta, default, notes = claimed(claim, delta)
    samples = check_int("samples", samples, low=1)
    confidence = check_number(
        "confidence", confidence, low=0.0, high=1.0, low_open=True, high_open=True
    )
    if not isinstance(vectorized, (bool, np.bool_)):
        raise TypeError(f"vectorized must be True or False, got {vectorized!r}")
    if relation is not None:
        check_relation(relation)
    miss = 1.0 - confidence
    needed = _samples_needed(epsilon, delta, miss)
    if samples < needed:
        raise ValueError(
            f"samples={samples:,} cannot refute epsilon = {epsilon:g} at delta = {delta:g} and "
            f"confidence {confidence!r}, whatever they show: at least {needed:,} are needed"
        )
    check_neighbours(dataset, neighbour, relation, default)
    before = fingerprint(dataset), fingerprint(neighbour)

    def measure(mode: str, samples: int) -> tuple[Event, int, tuple[int, int], int]:
        sources = [
            _Source(mechanism, data, random, mode)
            for data, random in zip((dataset, neighbour), randoms)
        ]
        return _measure(sources, samples, delta, miss)

    randoms = spawn(rng, 2)
    try:
        event, side, counts, runs = measure("batch" if vectorized else "each", samples)
    except _CallFailed as failure:
        samples = min(samples, max(_FALLBACK, needed))
        notes = (
            *notes,
            f"A call on many runs raised {failure}, so {samples:,} runs of each input were made "
            "one by one, and an exception is an outcome",
        )
        event, side, counts, runs = measure("single", samples)
    if (fingerprint(dataset), fingerprint(neighbour)) != before:
        raise ValueError("mechanism must not change its data set: runs were of different inputs")
    bounds = probability_bounds((counts[side], counts[1 - side]), runs, miss)
    found = epsilon_lower_bound(bounds, delta)
    return Verdict(
        refuted=found > epsilon,
        epsilon=found,
        claim=epsilon,
        delta=delta,
        confidence=confidence,
        event=event,
        likelier=("dataset", "neighbour")[side],
        counts=counts,
        runs=runs,
        samples=samples,
        bounds=bounds,
        notes=notes,
    )


def _samples_needed(epsilon: float, delta: float, miss: float) -> int:
    """Return how many runs of each input the clearest outcome needs to refute the claim.

    In an event that always happens on the one input and never on the other, n runs bound p
    from below by x = (miss/2)**(1/n) and q from above by 1 - x.
    """
    # ln((x - delta)/(1 - x)) > epsilon; the logarithm of odds in a form without overflow.
    gap = (1.0 - delta) * math.exp(-epsilon) / (1.0 + math.exp(-epsilon))
    if gap == 0.0:
        raise ValueError(f"claim must be smaller: no test can refute epsilon = {epsilon:g}")
    counted = math.floor(math.log(miss / 2.0) / math.log1p(-gap)) + 1
    return max(_FEWEST, counted + min(counted - 1, _LEARN))


def _measure(
    sources: list[_Source], samples: int, delta: float, miss: float
) -> tuple[Event, int, tuple[int, int], int]:
    """Learn an event and count it: event, likelier input, counts and in how many runs."""
    pilot = min(samples // 2, _PILOT)
    batches = [source.draw(pilot) for source in sources]
    reader = Reader(batches)
    width = max(1, reader.width)
    learn = min(_LEARN if width == 1 else _LEARN_WIDE, _LEARN_ENTRIES // width)
    learn = min(samples // 2, max(pilot, learn))
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
    event, side = learn_event(reader, known[0], known[1], runs=runs, delta=delta, miss=miss)
    counts = []
    for source, learned in zip(sources, known):
        count = 0
        for place, size in enumerate(_chunks(runs, chunk)):
            outcomes = reader.read(source.draw(size))
            if place == 0 and source.mode == "batch":
                _check_fresh(learned[:pilot], outcomes)
            count += event.count(outcomes)
        counts.append(count)
    return event, side, (counts[0], counts[1]), runs


def _chunks(total: int, most: int) -> Iterator[int]:
    while total > 0:
        yield min(total, most)
        total -= most


def _check_fresh(earlier: Outcomes, later: Outcomes) -> None:
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
