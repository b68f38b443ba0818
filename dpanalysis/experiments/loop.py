"""The only loop over iterations."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._validation import largest, warn_caller
from ..errors import PrivacyBudgetExceeded
from ..methods.adaptive import AdaptiveMethod
from ..methods.base import Method, Step
from ..privacy import filters, plans
from ..privacy.events import Event
from ..privacy.facts import PublicFacts
from ..privacy.oracle import Guard, PrivateOracle, one_oracle_each
from ..privacy.relations import Budget
from .outputs import Output
from .recording import Log, Recording
from .result import Result

__all__ = ["Loop"]

# Iterates above this share of the largest count as diverged, before the oracle refuses them.
_DIVERGED = 1e-2


@dataclass(frozen=True)
class Ended:
    """How the run of one oracle ended: what it puts out (R, d), iterations made, status."""

    output: Output
    log: Log
    made: int
    status: str
    refusal: PrivacyBudgetExceeded | None = None


class Loop:
    """A method under its guard: planned here, before the data are touched, and then run.

    Parameters
    ----------
    method : Method
    facts : PublicFacts
    budget : Budget or None
    shared : Filter or None
        The filter to spend from, instead of one of its own.
    accountant : str

    Raises
    ------
    ValueError
        If the method cannot be run on these facts with this budget.
    PrivacyBudgetExceeded
        If the budget does not allow what is planned, or one iteration.
    """

    def __init__(
        self,
        method: Method,
        facts: PublicFacts,
        budget: Budget | None,
        shared: filters.Filter | None,
        accountant: str,
    ) -> None:
        self._start = time.perf_counter()
        self._method, self._facts, self._budget, self._shared = method, facts, budget, shared
        self._accountant = accountant
        if isinstance(shared, filters.Filter) and isinstance(method, AdaptiveMethod):
            accountant = shared.notion  # noise for another one would be too dear for this filter
        self._plan = method.prepare(facts, budget, accountant)
        planned = method.events(facts, self._plan)
        self._adapts = planned is None
        self._planned: tuple[Event, ...] = tuple(planned or ())
        self._order: float | None = None
        if budget is not None and self._adapts:
            self._prepare_filter(budget)
        elif budget is not None and not self._planned:
            raise ValueError(
                "with a budget every iteration needs noise, and the method's events() lists none; "
                "use budget=None without"
            )

    def _prepare_filter(self, budget: Budget) -> None:
        """Choose the order of the filter; raise where not even one iteration fits."""
        method = self._method
        if not isinstance(method, AdaptiveMethod):
            raise TypeError(
                f"{method!r} plans no events, so it must be an AdaptiveMethod to have a filter"
            )
        if self._shared is None and budget.delta > 0.0:
            self._order = method.order(self._facts, self._plan, budget)
        elif self._shared is None:
            plans.Plan(method.iteration(self._facts, self._plan), budget)

    def oracles(self, problem: Any, random: Sequence[Any]) -> list[PrivateOracle]:
        """Return one oracle for all replicates, or one each, with guards of their own."""
        together = [list(random)] if self._method.together else [[each] for each in random]
        guards = [self._guard() for _ in together]
        return one_oracle_each(problem, self._facts, guards, together)

    def _guard(self) -> Guard | None:
        if self._shared is not None:
            return self._shared
        if self._budget is None and not self._planned:
            return None
        if self._budget is not None and self._adapts:
            return filters.Filter(self._budget, order=self._order)
        exact = not isinstance(self._method, AdaptiveMethod)
        return plans.Plan(self._planned, self._budget, self._accountant, exact=exact)

    def run(
        self,
        w: np.ndarray,
        oracles: Sequence[PrivateOracle],
        random: Sequence[Any],
        recording: Recording,
    ) -> Result:
        """Run from ``w`` of shape (R, d): all replicates together, or one after the other."""
        length = self._method.length(self._plan) if self._method.together else None
        share = len(w) // len(oracles)
        ended: list[Ended] = []
        title, unit = type(self._method).__name__, "run" if length is None else "it"
        with recording.bar(length or len(oracles), title, unit) as bar:
            for k, oracle in enumerate(oracles):
                rows = slice(k * share, (k + 1) * share)
                output = Output(self._method.output, length or 0, random[rows])
                ended.append(self._follow(w[rows], oracle, output, recording, bar))
                refusal = ended[-1].refusal
                if refusal is not None:
                    refusal.partial = self._result(ended, oracles)
                    raise refusal
                if length is None:
                    bar.update()
        return self._result(ended, oracles)

    def _follow(
        self, w: np.ndarray, oracle: PrivateOracle, output: Output, recording: Recording, bar: Any
    ) -> Ended:
        """Follow the steps of one oracle's replicates from ``w`` to their end."""
        together = self._method.together
        log, made, status, refusal = recording.log(), 0, "finished", None
        log.add(0, w)
        output.add(0, w)
        steps = self._method.run(w if together else w[0], oracle, self._plan)
        while True:
            try:
                with np.errstate(over="ignore", invalid="ignore"):  # divergence is told below
                    step: Step | None = next(steps, None)
            except PrivacyBudgetExceeded as error:
                if isinstance(oracle.guard, plans.Plan):
                    status, refusal = "budget exceeded", error
                break  # under a filter a run takes what it gets, and ends there
            if step is None:
                break
            if oracle.is_open:
                raise RuntimeError(f"{self._method!r} yields a step while its batch is open")
            after = step.w if together else step.w[None, :]
            if _diverged(after, made + 1, self._facts.largest_iterate):
                status = "diverged"
                break
            w, made = after, made + 1
            log.add(made, w, released=step.released)
            output.add(made, w)
            if together:
                bar.update()
            if recording.stops(made, w):
                status = "stopped by callback"
                break
        log.add(made, w, force=True)
        return Ended(output, log, made, status, refusal)

    def _result(self, ended: Sequence[Ended], oracles: Sequence[PrivateOracle]) -> Result:
        method, guard = self._method, oracles[0].guard
        outputs, made = [each.output for each in ended], [each.made for each in ended]
        # A guard of ours has paid for every answer, and has let none through without noise.
        paid = isinstance(guard, filters.Filter | plans.Plan)
        drawn = [output.drawn for output in outputs if output.drawn is not None]
        return Result(
            w=np.concatenate([output.w for output in outputs]),
            history=Log.merge([each.log for each in ended]),
            ledger=oracles[0].ledger,
            ledgers=() if method.together else tuple(oracle.ledger for oracle in oracles),
            planned=self._planned,
            method=method,
            plan=self._plan,
            budget=self._budget,
            iterations=max(made),
            made=None if method.together else np.array(made),
            status=next((e.status for e in reversed(ended) if e.status != "finished"), "finished"),
            private=paid or not self._facts.has_records,
            seconds=time.perf_counter() - self._start,
            released=(*method.released, *outputs[0].released),
            drawn=np.concatenate(drawn) if drawn else None,
            guard=guard if isinstance(guard, filters.Filter) else None,
            evaluations=dict(sum((oracle.evaluations for oracle in oracles), Counter())),
        )


def _diverged(w: np.ndarray, iteration: int, most: float) -> bool:
    if largest(w) < _DIVERGED * most:
        return False
    warn_caller(
        f"the iterates diverged at iteration {iteration}; the result holds the last finite ones, "
        "and what was spent stays spent",
        RuntimeWarning,
    )
    return True
