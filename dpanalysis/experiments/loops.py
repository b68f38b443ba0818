"""The only loops over iterations: of runs that are planned, and of runs that adapt."""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from .._validation import largest
from ..errors import PrivacyBudgetExceeded
from ..methods.adaptive import AdaptiveMethod, Step
from ..methods.base import Method
from ..methods.schedules import planned_events
from ..privacy import filters
from ..privacy.events import Event
from ..privacy.facts import PublicFacts
from ..privacy.oracle import LARGEST_ITERATE, Guard, PrivateOracle
from ..privacy.relations import Budget
from .outputs import Output
from .recording import Log, Recording
from .result import Result

__all__ = ["AdaptiveLoop", "PlannedLoop"]

# Iterates above this count as diverged, before the oracle refuses points beyond them.
DIVERGED = 1e-2 * LARGEST_ITERATE


class PlannedLoop:
    """A method whose events are fixed beforehand: all replicates at once, under a plan.

    Parameters
    ----------
    method : Method
    facts : PublicFacts
    budget : Budget or None
    accountant : str
    """

    def __init__(
        self, method: Method, facts: PublicFacts, budget: Budget | None, accountant: str
    ) -> None:
        self._start = time.perf_counter()
        self._method, self._facts, self._budget = method, facts, budget
        self._plan = plan = method.plan(facts, budget, accountant)
        # None where private gradients go out without noise.
        self._planned: tuple[Any, ...] | None = ()
        if facts.has_records:
            self._planned = None
            if plan.scales is not None and np.all(plan.scales > 0.0):
                sampling, mechanism = method.sampling, method.mechanism
                events = planned_events(facts, sampling, mechanism, plan.scales, method.clipping)
                self._planned = tuple(events)
        self._guard: filters.Plan | None = None
        if budget is not None:
            if self._planned is None:
                raise ValueError(
                    "with a budget every iteration needs noise; use budget=None without"
                )
            self._guard = filters.Plan(self._planned, budget, accountant)

    @property
    def guarantees(self) -> bool:
        """Whether the run will promise something about private records."""
        return bool(self._planned)

    def oracles(self, problem: Any, random: Sequence[Any]) -> list[PrivateOracle]:
        """Return the one oracle of all replicates."""
        return [PrivateOracle(problem, self._facts, self._guard, random)]

    def run(
        self,
        w: np.ndarray,
        oracles: Sequence[PrivateOracle],
        random: Sequence[Any],
        recording: Recording,
    ) -> Result:
        """Iterate from ``w`` of shape (R, d) as planned."""
        method, plan, oracle = self._method, self._plan, oracles[0]
        state = method.init(w, plan)
        log = recording.log()
        log.add(0, state.w)
        output = Output(method.output, plan.iterations, random)
        output.add(state)

        def result(status: str) -> Result:
            log.add(state.iteration, state.w, force=True)
            exact = self._facts.has_records and oracle.exact_releases
            return Result(
                w=output.w,
                history=log.arrays(),
                ledger=oracle.ledger,
                planned=self._planned or (),
                method=method,
                plan=plan,
                budget=self._budget,
                iterations=state.iteration,
                status=status,
                private=self._planned is not None and not exact,
                seconds=time.perf_counter() - self._start,
                released=output.released,
                drawn=output.drawn,
                evaluations=dict(oracle.evaluations),
            )

        with recording.bar(plan.iterations, type(method).__name__, "it") as bar:
            for _ in range(plan.iterations):
                try:
                    with np.errstate(over="ignore", invalid="ignore"):  # divergence is told below
                        following = method.step(state, oracle)
                except PrivacyBudgetExceeded as refusal:
                    refusal.partial = result("budget exceeded")
                    raise
                if _diverged(following.w, following.iteration):
                    return result("diverged")
                state = following
                log.add(state.iteration, state.w)
                output.add(state)
                bar.update()
                if recording.stops(state.iteration, state.w):
                    return result("stopped by callback")
        return result("finished")


class AdaptiveLoop:
    """A method that decides on the way: one replicate after the other, each under a filter.

    Parameters
    ----------
    method : AdaptiveMethod
    facts : PublicFacts
    budget : Budget or None
    shared : Guard or None
        The filter to spend from, instead of one of its own.
    """

    def __init__(
        self,
        method: AdaptiveMethod,
        facts: PublicFacts,
        budget: Budget | None,
        shared: Guard | None,
    ) -> None:
        self._start = time.perf_counter()
        self._method, self._facts, self._budget, self._shared = method, facts, budget, shared
        self._settings = method.prepare(facts, budget)
        self._order: float | None = None
        self._planned: tuple[Event, ...] = ()
        if budget is None or shared is not None:
            return
        if method.one_shot:
            self._planned = tuple(method.iteration(facts, self._settings))
            return
        if budget.delta > 0.0:
            self._order = method.order(facts, self._settings, budget)
        else:  # raises where not even one iteration fits
            filters.Plan(method.iteration(facts, self._settings), budget)

    @property
    def guarantees(self) -> bool:
        """Whether the run will promise something about private records."""
        return self._facts.has_records and self._budget is not None

    def oracles(self, problem: Any, random: Sequence[Any]) -> list[PrivateOracle]:
        """Return one oracle a replicate, each with a filter of its own."""
        return [PrivateOracle(problem, self._facts, self._guard(), [each]) for each in random]

    def _guard(self) -> Guard | None:
        if self._shared is not None or self._budget is None:
            return self._shared
        if self._planned:
            return filters.Plan(self._planned, self._budget)
        return filters.Filter(self._budget, order=self._order)

    def run(
        self,
        w: np.ndarray,
        oracles: Sequence[PrivateOracle],
        random: Sequence[Any],
        recording: Recording,
    ) -> Result:
        """Run every replicate from its row of ``w`` (R, d) until it stops."""
        logs, ends, counts, status = [], [], [], "finished"
        with recording.bar(len(oracles), type(self._method).__name__, "run") as bar:
            for start, oracle in zip(w, oracles):
                log = recording.log()
                iterate, count, ended = self._replicate(start, oracle, log, recording)
                log.add(count, iterate[None, :], force=True)
                status = ended if ended != "finished" else status
                logs.append(log)
                ends.append(iterate)
                counts.append(count)
                bar.update()
        guard = oracles[0]._guard
        return Result(
            w=np.stack(ends),
            history=Log.merge(logs),
            ledger=oracles[0].ledger,
            ledgers=tuple(oracle.ledger for oracle in oracles),
            planned=self._planned,
            method=self._method,
            plan=self._settings,
            budget=self._budget,
            iterations=max(counts),
            made=np.array(counts),
            status=status,
            private=isinstance(guard, filters.Filter | filters.Plan) or not self._facts.has_records,
            seconds=time.perf_counter() - self._start,
            released=self._method.released,
            guard=guard if isinstance(guard, filters.Filter) else None,
            evaluations=dict(sum((oracle.evaluations for oracle in oracles), Counter())),
        )

    def _replicate(
        self, w: np.ndarray, oracle: PrivateOracle, log: Log, recording: Recording
    ) -> tuple[np.ndarray, int, str]:
        """Return the last iterate (d,), the number of iterations and how the run ended."""
        count = 0
        log.add(0, w[None, :])
        steps = self._method.run(w, oracle, self._settings)
        while True:
            try:
                with np.errstate(over="ignore", invalid="ignore"):
                    step: Step | None = next(steps, None)
            except PrivacyBudgetExceeded:  # the end of a run that takes what the filter gives
                step = None
            if step is None:
                return w, count, "finished"
            if _diverged(step.w, count + 1):
                return w, count, "diverged"
            w, count = step.w, count + 1
            log.add(count, w[None, :], released=step.released)
            if recording.stops(count, w[None, :]):
                return w, count, "stopped by callback"


def _diverged(w: np.ndarray, iteration: int) -> bool:
    if largest(w) < DIVERGED:
        return False
    warnings.warn(
        f"the iterates diverged at iteration {iteration}; the result holds the last finite ones, "
        "and what was spent stays spent",
        RuntimeWarning,
        stacklevel=4,
    )
    return True
