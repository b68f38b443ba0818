"""The only door between a method and the data.

A method asks; the oracle bounds the sensitivity of the query, asks the guard for
permission, draws the noise, and writes the event in the ledger. An audit of what a
method releases reads this file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np

from .._devices import to_host
from .._validation import largest
from ..errors import IncompatibleAccounting, PrivacyBudgetExceeded
from . import mechanisms
from .events import Event, check_event
from .facts import PublicFacts, gradient_event, sampled_event
from .ledger import Ledger
from .queries import Query, Records
from .sampling import Full, Sampling

__all__ = ["Batch", "Guard", "PrivateOracle"]

# Iterates beyond this are refused: whether a prediction overflows there depends on the record.
LARGEST_ITERATE = 1e250


class Guard(Protocol):
    """What the oracle asks before it answers: a filter, or a plan fixed beforehand."""

    def can_spend(self, event: Event) -> bool:
        """Say whether ``event`` may be released now; without side effects."""

    def spend(self, event: Event) -> None:
        """Charge ``event``."""


class Batch:
    """One drawn subsample; what is asked of it composes first and is amplified once."""

    def __init__(self, oracle: PrivateOracle, sampling: Sampling) -> None:
        self._oracle = oracle
        self._sampling = sampling
        self._spent: list[Event] = []
        self._rows: Any = None
        self._drawn = self._closed = False

    def gradient(
        self, w: np.ndarray, mechanism: str, scale: float, clipping: Any = None
    ) -> np.ndarray:
        """Return the noisy mean gradient at ``w`` plus the public regulariser's gradient.

        Parameters
        ----------
        w : ndarray of shape (R, d)
            Iterates, exactly one row a replicate: each row gets noise of its own source.
        mechanism : {"laplace", "gaussian"}
            Law of the noise.
        scale : float
            Laplace scale or Gaussian standard deviation of each coordinate; 0 releases
            the exact gradient, which is not private and allowed only without a guard.
        clipping : object, optional
            Per-sample rule of :mod:`dpanalysis.clipping`.

        Returns
        -------
        ndarray of shape (R, d)

        Raises
        ------
        PrivacyBudgetExceeded
            If the guard refuses; nothing is released then.
        IncompatibleAccounting
            If the sampling scheme does not belong to the relation.
        ValueError
            If ``w`` has another shape, or entries that are not finite or beyond 1e250, or the
            rule does not keep its bound for every record that may occur.
        RuntimeError
            If the batch is closed: what it cost has been charged.
        """
        oracle = self._oracle
        shape = (len(oracle._noise_sources), oracle.facts.d)
        if np.shape(w) != shape:
            raise ValueError(f"w must have shape {shape}, got {np.shape(w)}")
        if not largest(w) <= LARGEST_ITERATE:
            raise ValueError(f"w must be finite and at most {LARGEST_ITERATE:g} in size")
        oracle.check_clipping(clipping)
        self._pay(oracle.gradient_event(self._sampling, mechanism, scale, clipping))
        rows = self._draw(len(w))
        gradient = oracle._mean_gradient(w, rows, self._sampling, clipping)
        oracle.evaluations["gradient"] += (
            oracle.facts.n * len(w) if rows is None else sum(map(len, rows))
        )
        if scale > 0.0:
            gradient = mechanisms.add_noise(gradient, mechanism, scale, oracle._noise_sources)
        gradient = to_host(gradient)  # the one time in an iteration that the host waits
        regularizer = oracle._problem.regularizer
        return gradient if regularizer is None else gradient + regularizer.gradient(w)

    def ask(self, query: Query) -> Any:
        """Return the answer to a query of :mod:`dpanalysis.privacy.queries`.

        Parameters
        ----------
        query : Query
            Of a problem with records, in a run of one replicate.

        Raises
        ------
        TypeError
            If it is not a query.
        ValueError
            If the run has several replicates, or no bound makes the answer private.
        PrivacyBudgetExceeded, IncompatibleAccounting, RuntimeError
            As :meth:`gradient`.
        """
        oracle = self._oracle
        if not isinstance(query, Query):
            raise TypeError(f"query must be one of dpanalysis.privacy.queries, got {query!r}")
        if len(oracle._noise_sources) != 1:
            raise ValueError(
                f"a query is for one replicate, this run has {len(oracle._noise_sources)}"
            )
        self._pay(query.event(oracle.facts, self._sampling))
        rows = self._draw(1)
        size = self._sampling.expected_size(oracle.facts.n)
        records = Records(oracle._problem, None if rows is None else rows[0], size)
        answer, times = query.answer(records, oracle._noise_sources[0])
        oracle.evaluations[query.evaluates] += times * records.count
        return answer

    def _pay(self, event: Event | None) -> None:
        if self._closed:
            raise RuntimeError("the batch is closed and charged; open a new one to ask again")
        guard = self._oracle._guard
        if event is None:
            if guard is not None:
                raise PrivacyBudgetExceeded("a release without noise has no finite privacy cost")
            self._oracle.exact_releases += 1
            return
        whole = self._oracle._sampled(self._sampling, [*self._spent, event])
        check_event(whole, self._oracle.facts.relation)
        if guard is not None and not guard.can_spend(whole):
            raise PrivacyBudgetExceeded(f"the guard refused {whole!r}; nothing was released by it")
        self._spent.append(event)

    def _draw(self, replicates: int) -> Any:
        if not self._drawn:
            oracle = self._oracle
            if not isinstance(self._sampling, Full):
                self._rows = [
                    self._sampling.draw(oracle.facts.n, source)
                    for source in oracle._batch_sources[:replicates]
                ]
            self._drawn = True
        return self._rows

    def _close(self) -> None:
        self._closed = True
        if self._spent:
            event = self._oracle._sampled(self._sampling, self._spent)
            self._oracle.ledger.record(event)  # first: what was answered was answered
            if self._oracle._guard is not None:
                self._oracle._guard.spend(event)


class PrivateOracle:
    """Answer a method's questions about private data, and nothing else.

    Parameters
    ----------
    problem : object
        The problem; the oracle alone touches it.
    facts : PublicFacts
        Its public side.
    guard : Guard or None
        Asked before every release; None runs without a budget (the ledger still says
        what the run cost).
    random : sequence of random sources
        One a replicate (see :func:`dpanalysis.privacy.mechanisms.spawn`).

    Raises
    ------
    IncompatibleAccounting
        If the guard's budget is about another relation than the facts.

    Attributes
    ----------
    ledger : Ledger
        The events of ONE replicate.
    exact_releases : int
        Number of releases without noise; the run is not private unless it is 0.
    evaluations : Counter of str
        Gradients and losses of single records evaluated. NOT private: it tells how large
        the batches were.
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
        self._problem = problem
        self._guard = guard
        # Batches and noise draw from separate streams, so that the noise of a replicate is
        # the same whatever the sampling scheme: methods meet common random numbers.
        pairs = [mechanisms.spawn(source, 2) for source in random]
        self._noise_sources = [noise for noise, _ in pairs]
        self._batch_sources = [batch for _, batch in pairs]
        self._random = random
        self.facts = facts
        self.ledger = Ledger(facts.relation)
        self.exact_releases = 0
        self.evaluations: Counter[str] = Counter()
        self._open = False

    @contextmanager
    def batch(self, sampling: Sampling) -> Iterator[Batch]:
        """Draw one subsample; it is charged once, when the context closes."""
        if self._open:
            raise RuntimeError(
                "a batch is open already; two open batches could both be promised "
                "the same remaining budget"
            )
        batch, self._open = Batch(self, sampling), True
        try:
            yield batch
        finally:
            self._open = False
            batch._close()

    def can_ask(self, sampling: Sampling, *events: Event | None) -> bool:
        """Return whether all these fit what is left, asked of one batch; charges nothing."""
        asked = [event for event in events if event is not None]
        if self._guard is None or not asked:
            return True
        return self._guard.can_spend(self._sampled(sampling, asked))

    def public_random(self) -> Any:
        """Return a source of its own for what a method draws in public, in a run of one replicate.

        Never the source of the noise: that must stay secret.
        """
        return mechanisms.spawn(self._random[0], 1)[0]

    def check_clipping(self, clipping: Any) -> None:
        """Raise unless the rule keeps its bound whatever the records; looks at none of them."""
        self._problem.check_clipping(clipping)

    def gradient_event(
        self, sampling: Sampling, mechanism: str, scale: float, clipping: Any = None
    ) -> Event | None:
        """Return what one noisy gradient costs before amplification; None where it is exact."""
        if scale <= 0.0 or not self.facts.has_records:
            return None
        return gradient_event(self.facts, sampling, mechanism, scale, clipping)

    def _sampled(self, sampling: Sampling, events: Sequence[Event]) -> Event:
        return sampled_event(self.facts, sampling, events)

    def _mean_gradient(self, w: np.ndarray, rows: Any, sampling: Sampling, clipping: Any) -> Any:
        """Return the mean gradient (R, d) where the data live."""
        total = self._problem.gradient_sum(w, rows, clipping)
        return total / sampling.expected_size(self.facts.n)
