"""Runs of a method that should be the same, and one beside an oracle that watches."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..errors import PrivacyBudgetExceeded
from ..experiments.run import minimize
from ..methods.adaptive import AdaptiveMethod
from ..methods.base import Method
from ..privacy import mechanisms
from ..privacy.accountant import epsilon
from ..privacy.events import Repeated
from ..privacy.facts import PublicFacts
from ..privacy.filters import Filter
from ..privacy.oracle import PrivateOracle
from ..privacy.relations import Budget
from ..problems.base import Problem
from ._sealed import Complaints, WatchingLoop
from ._state import snapshot, what_changed
from ._tools import fail, global_random_untouched, require

__all__ = ["Runs", "same", "unrolled"]

_ROUNDING = 1e-9
_MOST_STEPS = 100_000


def unrolled(events: Any) -> Iterator[Any]:
    """Yield events one by one where they are repeated."""
    for event in events:
        if isinstance(event, Repeated):
            for _ in range(event.count):
                yield from unrolled([event.event])
        else:
            yield event


class Runs:
    """A method on a problem with a budget, and what is tried."""

    def __init__(
        self, method: Method, problem: Problem, other: Problem, facts: PublicFacts, budget: Budget
    ) -> None:
        self.method, self.problem, self.other = method, problem, other
        self.facts, self.budget = facts, budget

    def run(self, *, seed: int = 0, replicates: int = 2, on: Problem | None = None, **options: Any):  # type: ignore[no-untyped-def]
        """Run the method as a user does."""
        return minimize(
            on or self.problem,
            options.pop("method", self.method),
            self.budget,
            rng=seed,
            replicates=replicates,
            **{"record": (), **options},
        )

    def loop(self) -> WatchingLoop:
        """Plan a run, or say why it cannot be planned."""
        try:
            loop = WatchingLoop(self.method, self.facts, self.budget, None, "tightest")
            loop.check_cost()
            return loop
        except PrivacyBudgetExceeded as error:
            fail(f"the method plans more than its budget {self.budget!r}: {error}", error)
        except Exception as error:
            fail(f"the method cannot be planned under {self.budget!r}: {error}", error)

    def check_plan(self) -> WatchingLoop:
        """Plan twice: the same facts and budget give the same events."""
        loop = self.loop()
        require(
            loop.planned == self.loop().planned,
            "the method plans other events the second time, from the same facts and budget: "
            "prepare() and events() may depend on their arguments only",
        )
        if loop.planned is None:
            require(
                isinstance(self.method, AdaptiveMethod),
                "events() is None, so the method must extend dpanalysis.methods.AdaptiveMethod",
            )
        return loop

    def check_door(self, loop: WatchingLoop) -> None:
        """Run beside an oracle that watches, step by step."""
        loop.complaints = Complaints()
        plan = snapshot(loop.plan, "plan")
        random = mechanisms.spawn(3, 2)
        starts = np.stack([self.problem.initial(mechanisms.spawn(each, 1)[0]) for each in random])
        oracles = loop.oracles(self.problem, random)
        share = 2 // len(oracles)
        for k, oracle in enumerate(oracles):
            self._follow(loop, oracle, starts[k * share : (k + 1) * share])
            require(loop.complaints.first is None, str(loop.complaints.first))
        changed = what_changed(plan, snapshot(loop.plan, "plan"))
        require(changed is None, f"run() changes its plan ({changed}), which other replicates use")

    def _follow(self, loop: WatchingLoop, oracle: PrivateOracle, w: np.ndarray) -> None:
        """Take the steps of one oracle's replicates and look at each."""
        method, made = self.method, 0
        held: list[tuple[Any, np.ndarray]] = []
        start = w if method.together else w[0]
        try:
            for step in method.run(start.copy(), oracle, loop.plan):
                made += 1
                require(
                    not oracle.is_open,
                    "run() yields a step while its batch is open: code of the caller would run "
                    "beside answers that are still to come; end the with block first",
                )
                require(
                    np.shape(step.w) == start.shape,
                    f"run() must yield iterates of shape {start.shape}, got {np.shape(step.w)}",
                )
                for key, number in step.released.items():
                    real = isinstance(number, (int, float, np.number))
                    require(real, f"released[{key!r}] must be a number, got {number!r}")
                held = [*held[-4:], (step.w, np.array(step.w))]
                for given, copied in held:
                    same = np.array_equal(given, copied, equal_nan=True)
                    require(same, "run() changes an array that it has yielded: yield a copy")
                if made > _MOST_STEPS or not np.isfinite(step.w).all():
                    return
        except PrivacyBudgetExceeded as error:
            if loop.planned is not None or "was not named" in str(error):
                fail(
                    f"the method asks what it has not planned: {error} (events() must list, in the "
                    "order of run(), sampled_event(facts, sampling, [...]) of each batch)",
                    error,
                )
        except AssertionError:
            raise
        except Exception as error:
            fail(f"run() fails: {type(error).__name__}: {error}", error)
        self._check_spent(loop, oracle, made)

    def _check_spent(self, loop: WatchingLoop, oracle: PrivateOracle, made: int) -> None:
        method, spent = self.method, list(unrolled(oracle.ledger.events))
        require(spent, "the method asks nothing of the oracle, so it cannot depend on the data")
        if loop.planned is None:
            guard = oracle.guard
            assert isinstance(guard, Filter)
            cost = math.fsum(Filter(self.budget, guard.order).cost(event) for event in spent)
            within = cost <= guard.limit * (1.0 + _ROUNDING)
            require(within, f"the method spends {cost:g} where its filter allows {guard.limit:g}")
            return
        if isinstance(method, AdaptiveMethod):
            return  # at most what is planned: its guard has refused everything else
        planned = list(unrolled(loop.planned))
        require(
            spent == planned,
            f"the method asks other than it plans: {len(spent)} events were charged where "
            f"events() lists {len(planned)}; events() must list what run() asks, in its order",
        )
        length = method.length(loop.plan)
        require(
            length in (None, made),
            f"length() says {length} iterations, and run() makes {made}",
        )

    def check_runs(self) -> Any:
        """Compare runs from the same seed that should be the same; return the first."""
        with global_random_untouched("the method", seed=1):
            first = self.run()
        other = self.run(seed=9, on=self.other)
        require(
            first.planned == other.planned,
            "the method plans other events for a data set that differs in one record: what is "
            "planned may depend on public facts only",
        )
        with global_random_untouched("the method", seed=2):
            again = self.run()
        require(
            same(first, again),
            "the same seed gives other numbers the second time: the method keeps something from "
            "an earlier run, or draws from a source of its own",
        )
        watched = self.run(
            record=("objective", "iterate"), every=2, callback=lambda iteration, w: None
        )
        require(
            same(first, watched),
            "the run depends on what is recorded beside it: the method reads the history or the "
            "callback, which see the data without noise",
        )
        many = self.run(replicates=4)
        more = many.w[:2]
        require(
            np.allclose(more, first.w, rtol=_ROUNDING, atol=1e-12, equal_nan=True),
            "replicate r of 2 and replicate r of 4 differ: replicates must not share anything, "
            f"they are off by {np.abs(more - first.w).max():g}",
        )
        paid = [list(unrolled(ledger.events)) for ledger in many.ledgers[:2]]
        require(
            _spent(first)[1:] == paid, "replicate r of 2 and replicate r of 4 pay for other events"
        )
        require(
            len(np.unique(many.w, axis=0)) == 4,
            "replicates give the same numbers: each must have noise of its own, from the oracle",
        )
        self._check_budget(first)
        return first

    def _check_budget(self, result: Any) -> None:
        budget = self.budget
        require(result.private, "a run with a budget must be private")
        if budget.epsilon is not None and result.guard is None:
            spent = epsilon(result.ledger.events, budget.delta, budget.relation, "tightest")
            within = spent <= budget.epsilon * (1.0 + _ROUNDING)
            require(within, f"the method spends epsilon {spent:g} of a budget of {budget!r}")


def same(first: Any, second: Any) -> bool:
    """Whether two runs released the same, and paid for the same."""
    same = first.w.shape == second.w.shape and np.array_equal(first.w, second.w, equal_nan=True)
    return same and _spent(first) == _spent(second)


def _spent(result: Any) -> list[Any]:
    return [list(unrolled(ledger.events)) for ledger in (result.ledger, *result.ledgers)]
