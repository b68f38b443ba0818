"""The only access of a method to the private data.

A method declares the events that it may ask of a batch. The oracle bounds the sensitivity of each
query, charges their composition to the guard, records it in the ledger, and only then draws the
batch and answers. Before the first batch it checks the assumptions of the bounds. To audit what
a method releases, read this file.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from typing import Any

import numpy as np

from .._devices import to_host
from .._user_classes import overridden, package_method
from .._validation import check_reals, largest, plain_numbers, rounds_to_nearest
from ..clipping import BUILT_IN, check_per_sample
from ..errors import IncompatibleAccounting, PrivacyBudgetExceeded
from . import mechanisms
from .accounting.sampling import EpochSampling, Full, Sampling, check_sampling
from .budget import Guard, NonCopyableGuard, Plan, refuse_branch
from .events import Epoch, Event, check_event, unrolled
from .facts import (
    LARGEST_ITERATE,
    PublicFacts,
    check_drawn,
    check_facts,
    check_records,
    gradient_event,
    sampled_event,
)
from .ledger import Ledger
from .queries import Query, Records


class Batch:
    """A subsample drawn after its charge, for the declared events: :meth:`PrivateOracle.batch`."""

    def __init__(
        self,
        oracle: PrivateOracle,
        sampling: Sampling | EpochSampling,
        rows: Sequence[np.ndarray] | None,
        events: Sequence[Event | None],
    ) -> None:
        self._oracle, self._rows = oracle, rows
        self._sampling: Any = sampling
        self._left = list(map(_counted, events))
        self._lock = threading.Lock()
        self._closed = False
        oracle._current = self

    def __enter__(self) -> Batch:
        return self

    def __exit__(self, *error: object) -> None:
        """Close the batch: it answers no more queries."""
        with self._lock:
            self._closed = True
            self._left.clear()  # in copies of this batch, too, which share the list

    def gradient(
        self, w: np.ndarray, mechanism: str, scale: float, clipping: Any = None
    ) -> np.ndarray:
        """Return the noisy mean gradient at ``w`` plus the public regularizer's gradient."""
        iterates, scale = self._oracle._iterates(w), float(scale)  # an array could change
        event = self._oracle.gradient_event(self._sampling, mechanism, scale, clipping)
        answer = self._gradient(event, iterates, mechanism, scale, clipping)
        return answer if iterates is w else answer[0]

    def _gradient(
        self, event: Event | None, w: np.ndarray, mechanism: str, scale: float, clipping: Any
    ) -> np.ndarray:
        """Return the noisy mean gradient whose cost is ``event``."""
        oracle = self._oracle
        self._use(event)
        with np.errstate(all="ignore"):  # a warning would reveal a record
            gradient = oracle._problem.gradient_sum(w, self._rows, clipping)
            gradient = gradient / self._sampling.expected_size(oracle._facts.n)
        oracle.evaluations["gradient"] += (
            oracle._problem.n * len(w) if self._rows is None else sum(map(len, self._rows))
        )
        if scale > 0.0:
            gradient = mechanisms.add_noise(gradient, mechanism, scale, oracle._noise_sources)
        if oracle._is_exact:
            oracle._update_noise_kind()
        gradient = to_host(gradient)  # the only synchronization with a device in an iteration
        regularizer = oracle._problem.regularizer
        return gradient if regularizer is None else gradient + regularizer.gradient(w)

    def ask(self, query: Query) -> Any:
        """Return the answer to a query of :mod:`dpanalysis.privacy.queries`."""
        oracle = self._oracle
        oracle._check_query(query)
        self._use(query.event(oracle._facts, self._sampling))
        size = self._sampling.expected_size(oracle._facts.n)
        records = Records(oracle._problem, None if self._rows is None else self._rows[0], size)
        with np.errstate(all="ignore"):  # a warning would reveal a record
            answer, times = query.answer(records, oracle._noise_sources[0])
        oracle._update_noise_kind()
        oracle.evaluations[query.evaluates] += int(times) * records.count
        return answer

    def _use(self, asked: Event | None) -> None:
        """Use up the declared event that covers ``asked``, or raise."""
        self._oracle._check_process()
        with self._lock:
            if self._closed:
                raise RuntimeError("the batch is closed; open a new one to ask again")
            one, times = _counted(asked)
            for place, (named, count) in enumerate(self._left):
                if times <= count and (named is one or _covers(named, one)):
                    self._left[place] = (named, count - times)
                    if count == times:
                        del self._left[place]
                    break
            else:
                raise PrivacyBudgetExceeded(
                    f"{'an exact answer' if asked is None else repr(asked)} was not declared when "
                    "the batch was charged: declare all of them in oracle.batch(sampling, events)"
                )


class PrivateOracle:
    """Answer a method's queries on private data; a method has no other access to them.

    Parameters
    ----------
    problem : Problem
        Only the oracle may access it.
    facts : PublicFacts
        Its public facts, exactly ``problem.facts(relation)``.
    guard : Guard or None
        Charged for every batch before it is drawn; None runs without a budget. The ledger then
        still records noisy answers; an exact answer has no finite cost, and no entry there.
    random : sequence of random sources
        One per replicate (see :func:`dpanalysis.privacy.mechanisms.spawn`); one with a filter.

    Attributes
    ----------
    evaluations : Counter of str
        Number of per-record gradients and losses evaluated. NOT private: it reveals batch sizes.

    Notes
    -----
    *The number of records.* Everything revealed before an answer, and every divisor, is computed
    from ``facts.n``, the nominal size. The true number of rows decides only which rows are drawn:
    Poisson sampling includes each independently, and for batches of a fixed size, under
    replace-one, it must be ``facts.n``. So two data sets that differ in a record, under one nominal
    size, have the same divisors, noise and events, and their sums differ by that record's term.

    *Why a batch is charged before it is drawn.* A theorem on filters (Rogers et al. 2016,
    Feldman and Zrnic 2021) lets the cost of a release depend on all earlier releases, but it
    must be fixed before the release is drawn. All queries on one drawn batch are one release:
    amplification by sampling holds for the composition as a whole, which is a function of the
    batch. If the second query, or its cost, depended on the first answer, the cost of the batch
    would depend on its own outcome, and no theorem covers that: at delta = 1e-5 such a batch can
    cost epsilon 8.25 where a Renyi filter of order 3 reports 5.28. So the events are declared
    first, the guard charges their composition, amplified once, and every query must be one of them
    or provably cheaper (:meth:`dpanalysis.privacy.events.Event.dominates`). Which of the declared
    events are asked, and in which order, may depend on answers: the mechanism that answers them
    all dominates, since omitting a query can be simulated by asking it and discarding the answer.

    *Epochs.* The batches of :meth:`epoch` partition the records, and so depend on each other: all
    of them are one release, charged before any record is assigned to a batch
    (:mod:`dpanalysis.privacy.accounting.epochs`).

    *Checks before the first charge.* The first charge inspects the data once
    (``problem.check_private()``), which refuses rows changed in place, sums overridden without
    bounds and a number of classes taken from the labels. A query whose class overrides the answer
    and inherits the event is refused too. The facts must be those that the problem states, with no
    more records than they allow, and the streams of noise and batches must be new to a filter or a
    plan, since the difference of two runs with the same noise is exact (a guard of another class
    that wraps one hides that from it). Constants of a penalty are compared again at every charge.

    *Exceptions, threads, callbacks, processes.* The guard and the ledger are charged before the
    draw: whatever happens afterwards, everything that may have been seen has been charged. One
    oracle has one open batch at a time, also across threads. A guard that is shared by several
    oracles charges atomically. An oracle and its batches answer only in the process that created
    them: a fork copies a batch that was charged once, and the state of its noise. Data that a
    callback or a thread changes have no more effect than one record may have: the sums of a problem
    compare each row with its bounds when they add it (:class:`~dpanalysis.ERM`; not covered are
    the index arrays of CSR rows, which are compared before the first charge alone).
    """

    def __init__(
        self, problem: Any, facts: PublicFacts, guard: Guard | None, random: Sequence[Any]
    ) -> None:
        budget = getattr(guard, "budget", None)
        if budget is not None and budget.relation != facts.relation:
            raise IncompatibleAccounting(
                f"the budget is about {budget.relation!r}, the sensitivities about "
                f"{facts.relation!r}"
            )
        refuse_branch(guard)
        if guard is not None and not isinstance(guard, Plan) and len(random) != 1:
            raise ValueError(
                f"random must be one source with a {type(guard).__name__}, which pays for one "
                f"answer, got {len(random)}: give each of several runs an oracle"
            )
        self._problem = problem
        self._guard = guard
        self._process = os.getpid()
        # Separate streams for batches and noise, so that the noise of a replicate is the same for
        # every sampling scheme: methods are compared with common random numbers.
        self._random = [mechanisms.random_source(source) for source in random]
        pairs = [mechanisms.spawn(source, 2) for source in self._random]
        self._noise_sources = [noise for noise, _ in pairs]
        self._batch_sources = [batch for _, batch in pairs]
        self._facts = facts
        self._check_problem = _CheckOnce(problem, facts)
        self._seeds_claimed = False
        self._ledger = Ledger(facts.relation)
        self._update_noise_kind()
        self._last_event: tuple[Any, ...] = ()
        self._write_ahead: Callable[[], None] | None = None
        self.evaluations: Counter[str] = Counter()
        self._open = threading.Lock()
        self._current: Batch | None = None

    @property
    def facts(self) -> PublicFacts:
        """The public facts of the problem, from which costs are computed."""
        return self._facts

    @property
    def ledger(self) -> Ledger:
        """The events of ONE replicate."""
        return self._ledger

    @property
    def guard(self) -> Guard | None:
        """The guard that is charged for batches; None for a run without a budget."""
        return self._guard

    @property
    def is_open(self) -> bool:
        """Whether a batch is open."""
        return self._current is not None and not self._current._closed

    @property
    def is_busy(self) -> bool:
        """Whether a batch is open, or an epoch is under way."""
        return self._open.locked()

    def write_ahead(self, note: Callable[[], None]) -> None:
        """Call ``note`` after every charge, before the draw; if it raises, nothing is drawn.

        So every charge can be on disk before anybody sees an answer.
        """
        self._write_ahead = note

    def charge_again(self, runs: Iterable[tuple[Event, int]], noise: str) -> None:
        """Charge and record the events of an earlier process, none of which can be asked again.

        ``runs`` has events and their counts, ``noise`` is that of the earlier ledger. Raises what
        the guard raises if it does not grant them.
        """
        for event, count in runs:
            check_event(event, self._facts.relation)
            if self._guard is not None:
                for _ in range(count):
                    self._guard.spend(event)
            self._ledger.record(event, count)
        if noise != "exact":
            for source in self._noise_sources:
                if isinstance(source, mechanisms.SystemRandom):
                    source.floating = True
            self._update_noise_kind()

    @property
    def streams(self) -> list[Any]:
        """The states of the seeded generators of noise and batches. As SECRET as the seed."""
        return [source.bit_generator.state for source in self._generators]

    @streams.setter
    def streams(self, states: Sequence[Any]) -> None:
        if len(self._ledger):
            raise ValueError("streams must be set before the first charge: noise would repeat")
        for source, state in zip(self._generators, states, strict=True):
            # The increment of PCG64 differs between the streams of two seeds.
            if source.bit_generator.state["state"]["inc"] != state["state"]["inc"]:
                raise ValueError("rng must be the seed of the run that is resumed")
            source.bit_generator.state = state

    @property
    def _generators(self) -> list[Any]:
        sources = self._noise_sources + self._batch_sources
        return [source for source in sources if isinstance(source, np.random.Generator)]

    @contextmanager
    def _exclusively(self) -> Iterator[None]:
        """Allow no other open batch of this oracle."""
        self._check_process()
        if not self._open.acquire(blocking=False):
            raise RuntimeError("a batch of this oracle is open already: ask it, or close it first")
        try:
            yield
        finally:
            self._open.release()

    @contextmanager
    def batch(self, sampling: Sampling, events: Sequence[Event | None]) -> Iterator[Batch]:
        """Charge the declared events, draw a batch, and answer them; see the notes of the class."""
        with self._exclusively():
            if type(sampling) is not Full:
                check_drawn(self._facts, check_sampling(sampling), self._problem.n)
            named = tuple(events)
            self._charge(named, partial(sampled_event, self._facts, sampling))
            batch = Batch(self, sampling, self._draw(sampling), named)
            with batch:
                yield batch

    @contextmanager
    def epoch(
        self, sampling: EpochSampling, events: Sequence[Event | None]
    ) -> Iterator[Iterator[Batch]]:
        """Charge all batches of an epoch, and open them one after another.

        ``events`` are those that each batch may be asked. The batches depend on each other, so the
        epoch is charged and recorded as one event before any record is assigned to a batch. An
        epoch that is left early stays charged, and the rest of it cannot be asked later. No other
        batch of this oracle can be opened before it ends. Close each batch (``with batch:``) before
        anything is shown to others.
        """
        with self._exclusively():
            check_drawn(self._facts, check_sampling(sampling, epochs=True), self._problem.n)
            sampling.validate(self._facts.n)
            named = tuple(events)
            self._charge(named, partial(Epoch, sampling))
            drawn = [sampling.draw_epoch(self._problem.n, source) for source in self._batch_sources]
            with closing(self._open_in_turn(sampling, drawn, named)) as batches:
                yield batches

    def _open_in_turn(
        self, sampling: EpochSampling, drawn: list[list[np.ndarray]], events: Sequence[Event | None]
    ) -> Generator[Batch]:
        """Yield the batches of an epoch; each is closed when the next is requested."""
        for place in range(sampling.batches):
            with Batch(self, sampling, [rows[place] for rows in drawn], events) as batch:
                yield batch

    def gradient(
        self, w: np.ndarray, sampling: Sampling, mechanism: str, scale: float, clipping: Any = None
    ) -> np.ndarray:
        """Return the noisy mean gradient of a new batch; see :meth:`Batch.gradient`."""
        iterates = self._iterates(w)  # raises before anything is spent
        scale = float(scale)  # an array could change before the noise is drawn
        event = self.gradient_event(sampling, mechanism, scale, clipping)
        with self.batch(sampling, [event]) as batch:
            answer = batch._gradient(event, iterates, mechanism, scale, clipping)
        return answer if iterates is w else answer[0]

    def ask(self, query: Query, sampling: Sampling) -> Any:
        """Return the answer to one query on a new batch; see :meth:`Batch.ask`."""
        self._check_query(query)
        with self.batch(sampling, [query.event(self._facts, sampling)]) as batch:
            return batch.ask(query)

    def can_ask(self, sampling: Sampling, *events: Event | None) -> bool:
        """Return whether a batch with these events fits the remaining budget; charges nothing.

        Another run that spends from the same filter may come first: then :meth:`batch` raises.
        The problem is checked as before the first charge.
        """
        asked = [event for event in events if event is not None]
        if self._guard is None or not asked:
            return True
        self._check_problem()
        return self._guard.can_spend(sampled_event(self._facts, sampling, asked))

    def public_random(self) -> Any:
        """Return a source for public draws of one replicate, separate from that of the noise."""
        return mechanisms.spawn(self._random[0], 1)[0]

    def check_clipping(self, clipping: Any) -> None:
        """Raise unless the rule keeps its bound for all records; the data are not accessed.

        Under a guard, a user-defined rule must also weight each sample independently of the others.
        """
        self._problem.check_clipping(clipping)
        if self._guard is not None:
            check_per_sample(clipping)

    def gradient_event(
        self, sampling: Sampling | EpochSampling, mechanism: str, scale: float, clipping: Any = None
    ) -> Event | None:
        """Return the event of one noisy gradient before amplification; None if it is exact."""
        # Cached by identity, not equality, which a user's class may define at will.
        last = self._last_event
        plain = type(mechanism) is str and type(scale) is float
        if plain and last[:2] == (mechanism, scale) and last[2] is sampling and last[3] is clipping:
            return last[4]
        self.check_clipping(clipping)
        if scale <= 0.0 or not self._facts.has_records:
            return None
        event = gradient_event(self._facts, sampling, mechanism, scale, clipping)
        if plain and (clipping is None or type(clipping) in BUILT_IN):  # a user's rule may change
            self._last_event = mechanism, scale, sampling, clipping, event
        return event

    def _charge(
        self, named: Sequence[Event | None], composed: Callable[[Sequence[Event]], Event]
    ) -> None:
        """Charge the declared events as one composed event, and record it in the ledger."""
        noisy: Any = named
        if None in named:
            if self._guard is not None:
                raise PrivacyBudgetExceeded("an answer without noise has no finite privacy cost")
            noisy = [each for each in named if each is not None]
        if not noisy:
            return
        if not rounds_to_nearest():
            raise RuntimeError(
                "this thread must round to nearest, the default that other code has changed "
                "(fesetround): where overflow gives a large number, not infinity, no record is "
                "bounded"
            )
        whole = composed(noisy)
        check_event(whole, self._facts.relation)
        self._check_problem()
        if not self._seeds_claimed:
            self._claim_seeds()
        if self._guard is not None:
            self._guard.spend(whole)
        self._ledger.record(whole)
        if self._write_ahead is not None:
            self._write_ahead()

    def _claim_seeds(self) -> None:
        """Raise if one of these seeds has been used under the guard before."""
        if isinstance(self._guard, NonCopyableGuard):
            for source in self._noise_sources + self._batch_sources:
                self._guard.claim_seed(source)
        self._seeds_claimed = True

    def _check_process(self) -> None:
        if self._process != os.getpid():
            raise RuntimeError(
                "this oracle was made in another process: a fork copies its noise and what it has "
                "paid for; make the guard and the oracle in the process that asks"
            )

    def _update_noise_kind(self) -> None:
        """Record in the ledger whether all noise has been exact so far."""
        self._is_exact = all(
            isinstance(source, mechanisms.SystemRandom) and not source.floating
            for source in self._noise_sources
        )
        self._ledger.noise = "exact" if self._is_exact else "floating point"

    def _draw(self, sampling: Sampling) -> list[np.ndarray] | None:
        """Return the rows of each replicate's batch; None for all rows."""
        if isinstance(sampling, Full):
            return None
        return [sampling.draw(self._problem.n, source) for source in self._batch_sources]

    def _iterates(self, w: np.ndarray) -> np.ndarray:
        """Return ``w`` with one row per replicate, unchanged if it has that shape, or raise."""
        shape = (len(self._noise_sources), self._facts.d)
        if np.shape(w) == shape[1:] and shape[0] == 1:
            w = np.asarray(w)[None, :]
        if np.shape(w) != shape:
            raise ValueError(f"w must have shape {shape}, got {np.shape(w)}")
        _check_points(w)
        return w

    def _check_query(self, query: Any) -> None:
        if not isinstance(query, Query):
            raise TypeError(f"query must be one of dpanalysis.privacy.queries, got {query!r}")
        plain_numbers(query)
        names = (
            "answer", "iterates", "off_diagonal", "sensitivities", "_losses", "_rounding", "_tilt",
        )  # fmt: skip
        found = overridden(type(query), names, "event", getattr(query, "__dict__", ()))
        if found is not None:
            kind, name, states = found
            raise TypeError(
                f"{kind} overrides {name}, but its event is that of {states}: the charge would be "
                "for another answer; override event too (return super().event(facts, sampling) "
                "where it holds)"
            )
        for name in query.needs:
            if not hasattr(self._problem, name):
                raise TypeError(
                    f"{type(query).__name__} needs a problem with {name}, got {self._problem!r}"
                )
        if len(self._noise_sources) != 1:
            raise ValueError(
                f"a query is for one replicate, this run has {len(self._noise_sources)}"
            )
        for points in query.iterates():
            shape = np.shape(points)
            if len(shape) not in (1, 2) or shape[-1] != self._facts.d:
                raise ValueError(
                    f"points of {type(query).__name__} must have {self._facts.d} coordinates, got "
                    f"shape {shape}"
                )
            _check_points(points)


def one_oracle_each(
    problem: Any,
    facts: PublicFacts,
    guards: Sequence[Guard | None],
    random: Sequence[Sequence[Any]],
) -> list[PrivateOracle]:
    """Return an oracle for each guard; only the first charge of any of them checks the data."""
    made = [PrivateOracle(problem, facts, *each) for each in zip(guards, random, strict=True)]
    for oracle in made[1:]:
        oracle._check_problem = made[0]._check_problem
    return made


class _CheckOnce:
    """Check that a problem satisfies what costs are computed from, until it has passed once."""

    def __init__(self, problem: Any, facts: PublicFacts) -> None:
        self._problem, self._facts, self._passed = problem, facts, False
        self._penalty = _penalty_constants(problem)

    def __call__(self) -> None:
        if _penalty_constants(self._problem) != self._penalty:
            raise ValueError(
                "problem.regularizer must keep the mu and L that costs are computed from, "
                f"{self._penalty}, got {_penalty_constants(self._problem)}"
            )
        if not self._passed:
            self._problem.check_private()
            ours = package_method(self._problem, "check_private")
            if ours is not None:  # a user's class may have forgotten super()
                ours()
            check_facts(self._facts, self._problem.facts(self._facts.relation))
            check_records(self._facts, self._problem.n)
            self._passed = True


def _penalty_constants(problem: Any) -> tuple[float, float] | None:
    """Return mu and L of the penalty, which a user's class may change; None without a penalty."""
    penalty = getattr(problem, "regularizer", None)
    return None if penalty is None else (float(penalty.mu), float(penalty.L))


def _counted(event: Event | None) -> tuple[Event | None, int]:
    """Return a declared event and how often it may be asked."""
    return (None, 1) if event is None else unrolled(event)


def _covers(named: Event | None, asked: Event | None) -> bool:
    """Return whether the charge for a declared event covers an event that is asked."""
    if named is None or asked is None:
        return named is asked
    return named is asked or named == asked or named.dominates(asked)


def _check_points(points: Any) -> None:
    if not largest(check_reals("w", points)) <= LARGEST_ITERATE:
        raise ValueError(f"w must be finite and at most {LARGEST_ITERATE:g} in size")
