"""Checks of a method, by running it again under other conditions, and of a mechanism's claim.

A method is post-processing of the oracle's answers. So a run must be reproducible from the same
seed, whatever is recorded beside it and however many replicates run, and also from the recorded
answers alone, without access to the records.
"""

from __future__ import annotations

import copy
import itertools
import math
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any, NamedTuple

import numpy as np

from ..audit.assertions import assert_private
from ..clipping import Clipping
from ..errors import PrivacyBudgetExceeded
from ..experiments.checkpoint import check_resumable, same_objects
from ..experiments.loop import Loop
from ..experiments.run import minimize
from ..losses import Logistic
from ..methods.base import AdaptiveMethod, Method, Step
from ..privacy import mechanisms
from ..privacy.accounting.accountant import epsilon
from ..privacy.accounting.events import Event, unrolled
from ..privacy.accounting.relations import Budget, part_of
from ..privacy.accounting.sampling import EpochSampling, Sampling
from ..privacy.budget import Filter
from ..privacy.facts import PublicFacts
from ..privacy.oracle import Batch, PrivateOracle
from ..problems.base import Problem
from ..problems.erm import ERM
from ..problems.row_bound import RowBound
from ..regularizers import L2
from ._tools import (
    check_pickle,
    contents,
    fail,
    global_random_untouched,
    quiet,
    require,
    shares_memory,
    unchanged,
)

_ROUNDING = 1e-9
_MOST_STEPS = 100_000


# Answers recorded in one run and replayed in another, without records


class _WithoutRecords:
    """The public part of a problem, without access to the records."""

    def __init__(self, problem: Problem) -> None:
        self.n, self.d, self.mu, self.L = problem.n, problem.d, problem.mu, problem.L
        self.regularizer, self.facts = problem.regularizer, problem.facts
        self.check_clipping, self.check_private = problem.check_clipping, problem.check_private
        self.initial = problem.initial

    def __getattr__(self, name: str) -> Any:
        fail(
            f"the method looks at the records: it uses the problem's {name} outside the "
            "oracle, whose noise and charge it so avoids; ask oracle.gradient or oracle.ask"
        )


class _RecordedBatch(Batch):
    """A batch that records its answers, or replays recorded ones."""

    _oracle: _RecordedOracle

    def _gradient(self, event: Event | None, *arguments: Any) -> np.ndarray:
        if self._oracle.replayed is None:
            return self._oracle.record(super()._gradient(event, *arguments))
        self._use(event)
        return self._oracle.repeat()

    def ask(self, query: Any) -> Any:
        """See :class:`Batch`."""
        if self._oracle.replayed is None:
            with unchanged(query, "query", _QUERY_CHANGED):
                return self._oracle.record(super().ask(query))
        self._oracle._check_query(query)
        self._use(query.event(self._oracle.facts, self._sampling))
        return self._oracle.repeat()


class _RecordedOracle(PrivateOracle):
    """An oracle that records its answers, or replays those of another run."""

    replayed: Iterator[Any] | None = None

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.answers: list[Any] = []

    @property
    def evaluations(self) -> Counter[str]:
        """The counts, which nothing but a method reads in a run that is replayed."""
        if self.replayed is not None:
            fail(
                "the method reads oracle.evaluations, which is not private: it reveals how large "
                "the batches were"
            )
        return self._evaluations

    @evaluations.setter
    def evaluations(self, counts: Counter[str]) -> None:
        self._evaluations = counts

    def record(self, answer: Any) -> Any:
        """Return an answer and store a copy of it."""
        self.answers.append(copy.deepcopy(answer))
        return answer

    def repeat(self) -> Any:
        """Return the next answer of the recorded run."""
        assert self.replayed is not None
        for answer in self.replayed:
            return answer
        fail(_NOT_REPEATED)

    def _draw(self, sampling: Any) -> list[np.ndarray] | None:
        rows = super()._draw(sampling)
        if rows is None or self.replayed is None:
            return rows
        return [each[:0] for each in rows]  # the number of rows drawn is not public

    @contextmanager
    def batch(self, sampling: Any, events: Any) -> Iterator[Batch]:
        """See :class:`PrivateOracle`."""
        with super().batch(sampling, events) as batch:
            batch.__class__ = _RecordedBatch
            yield batch

    def _open_in_turn(self, sampling: Any, drawn: Any, events: Any) -> Generator[Batch]:
        if self.replayed is not None:  # as in _draw
            drawn = [[rows[:0] for rows in each] for each in drawn]
        with closing(super()._open_in_turn(sampling, drawn, events)) as batches:
            for batch in batches:
                batch.__class__ = _RecordedBatch
                yield batch


_NOT_REPEATED = (
    "given the oracle's answers of an earlier run again, without the records, the method takes "
    "other steps: it may use the answers, the public facts, the guard and the ledger, and nothing "
    "else"
)


_QUERY_CHANGED = (
    "the answer of a query changes {}, which a later answer could use: its event covers one "
    "answer, so its noise must be fresh, and nothing may be kept beside what it returns"
)


class _Recorded(NamedTuple):
    """The answers of one oracle in a run, and the steps that the method computed from them."""

    answers: list[Any]
    steps: list[Step]


class _PlannedRun(Loop):
    """A planned run whose oracles record their answers."""

    def check_cost(self) -> None:
        """Raise PrivacyBudgetExceeded if the plan costs more than the budget."""
        self._guard()

    def oracles(self, problem: Any, random: Sequence[Any]) -> list[Any]:
        """Return one oracle for all replicates, or one for each."""
        groups = [list(random)] if self._method.together else [[each] for each in random]
        return [_RecordedOracle(problem, self._facts, self._guard(), each) for each in groups]

    @property
    def planned(self) -> tuple[Event, ...] | None:
        """The events that the method plans; None if they depend on answers."""
        return None if self._adapts else self._planned


def _unrolled(events: Any) -> Iterator[Event]:
    """Yield events one by one, expanding repeated events."""
    for single, count in map(unrolled, events):
        yield from itertools.repeat(single, count)


# Runs that must give the same results


class _MethodChecks:
    """Checks of a method on two neighbouring problems with a budget."""

    def __init__(
        self, method: Method, problem: Problem, other: Problem, facts: PublicFacts, budget: Budget
    ) -> None:
        self.method, self.problem, self.other = method, problem, other
        self.facts, self.budget = facts, budget

    def run(self, *, seed: Any = 0, replicates: int = 2, on: Problem | None = None, **options: Any):  # type: ignore[no-untyped-def]
        """Run the method as a user would."""
        return minimize(
            on or self.problem,
            options.pop("method", self.method),
            options.pop("budget", self.budget),
            rng=seed,
            replicates=replicates,
            **{"record": (), **options},
        )

    def prepare(self) -> _PlannedRun:
        """Plan a run; fail with the reason if that is impossible."""
        try:
            planned = _PlannedRun(self.method, self.facts, self.budget, None, "tightest")
            planned.check_cost()
            return planned
        except PrivacyBudgetExceeded as error:
            fail(f"the method plans more than its budget {self.budget!r}: {error}", error)
        except Exception as error:
            fail(f"the method cannot be planned under {self.budget!r}: {error}", error)

    def check_plan(self) -> _PlannedRun:
        """Plan twice: the same facts and budget must give the same events."""
        plan = self.prepare()
        require(
            plan.planned == self.prepare().planned,
            "the method plans other events the second time, from the same facts and budget: "
            "prepare() and events() may depend on their arguments only",
        )
        return plan

    def check_steps(self, plan: _PlannedRun) -> list[_Recorded]:
        """Check a run of two replicates step by step; return its records, one per oracle."""
        recorded = []
        with unchanged(plan.plan, "plan", "run() changes its plan ({}), which all replicates use"):
            for oracle, start in zip(*self._oracles(plan, self.problem)):
                guard = oracle.guard
                steps, ended = self._follow(plan, oracle, start)
                if ended:
                    spent = list(_unrolled(oracle.ledger.events))
                    self._check_spent(plan, guard, spent, len(steps))
                recorded.append(_Recorded(oracle.answers, steps))
        return recorded

    def check_repeated(self, plan: _PlannedRun, recorded: list[_Recorded]) -> None:
        """Replay the run from the recorded answers, without the records."""
        public = _WithoutRecords(self.problem)
        for (oracle, start), before in zip(zip(*self._oracles(plan, public)), recorded):
            oracle.replayed = iter(before.answers)
            steps, _ = self._follow(plan, oracle, start)
            same = len(steps) == len(before.steps) and all(map(_same_step, steps, before.steps))
            require(same, _NOT_REPEATED)

    def _oracles(self, plan: _PlannedRun, problem: Any) -> tuple[list[Any], list[np.ndarray]]:
        """Return the oracles and the initial points of two replicates, from a fixed seed."""
        random = mechanisms.spawn(3, 2)
        starts = [self.problem.initial(mechanisms.spawn(each, 1)[0]) for each in random]
        starts = [np.stack(starts)] if self.method.together else starts
        return plan.oracles(problem, random), starts

    def _follow(
        self, plan: _PlannedRun, oracle: PrivateOracle, start: np.ndarray
    ) -> tuple[list[Step], bool]:
        """Return copies of the steps of one oracle's replicates, and whether the run ended."""
        steps: list[Step] = []
        held: list[tuple[Any, np.ndarray]] = []
        try:
            for step in self.method.run(start.copy(), oracle, plan.plan):
                given = type(step).__name__
                require(isinstance(step, Step), f"run() must yield a Step(w), got {given}")
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
                state = copy.deepcopy(dict(step.state))
                steps.append(Step(np.array(step.w), dict(step.released), state))
                held = [*held[-4:], (step.w, steps[-1].w)]
                for given, copied in held:
                    same = np.array_equal(given, copied, equal_nan=True)
                    require(same, "run() changes an array that it has yielded: yield a copy")
                if len(steps) > _MOST_STEPS or not np.isfinite(step.w).all():
                    return steps, False
        except PrivacyBudgetExceeded as error:
            if plan.planned is not None or "was not declared" in str(error):
                fail(
                    f"the method asks what it has not planned: {error} (events() must list, in the "
                    "order of run(), sampled_event(facts, sampling, [...]) of each batch)",
                    error,
                )
        except AssertionError:
            raise
        except Exception as error:
            fail(f"run() fails: {type(error).__name__}: {error}", error)
        return steps, True

    def _check_spent(self, plan: _PlannedRun, guard: Any, spent: list[Event], made: int) -> None:
        require(spent, "the method asks nothing of the oracle, so it cannot depend on the data")
        if plan.planned is None:
            cost = math.fsum(Filter(self.budget, guard.order).cost(event) for event in spent)
            within = cost <= guard.limit * (1.0 + _ROUNDING)
            require(within, f"the method spends {cost:g} where its filter allows {guard.limit:g}")
            return
        if isinstance(self.method, AdaptiveMethod):
            return  # its guard refuses anything beyond the plan
        planned = list(_unrolled(plan.planned))
        require(
            spent == planned,
            f"the method asks other than it plans: {len(spent)} events were charged where "
            f"events() lists {len(planned)}; events() must list what run() asks, in its order",
        )
        length = self.method.length(plan.plan)
        require(
            length in (None, made), f"length() says {length} iterations, and run() makes {made}"
        )

    def check_seed(self) -> Any:
        """Run twice from the same seed, and once on the neighbour; return the first run."""
        with global_random_untouched("the method", seed=1):
            first = self.run()
        other = self.run(seed=9, on=self.other)
        require(
            first.planned == other.planned,
            "the method plans other events for a data set that differs in one record: a plan may "
            "depend on public facts only",
        )
        with global_random_untouched("the method", seed=2):
            again = self.run()
        require(
            _same_run(first, again),
            "the same seed gives other numbers the second time: the method keeps something from "
            "an earlier run, or draws from another source of random numbers",
        )
        return first

    def check_conditions(self, first: Any) -> None:
        """Compare a run with recorded runs and with runs of more replicates."""
        watched = self.run(
            record=("objective", "iterate"), every=2, callback=lambda iteration, w: None
        )
        require(
            _same_run(first, watched),
            "the run depends on what is recorded beside it: the method reads the history or the "
            "callback, which see the data without noise",
        )
        many = self.run(replicates=4)
        more = many.w[:2]
        require(
            np.allclose(more, first.w, rtol=_ROUNDING, atol=1e-12),
            "replicate r of 2 and replicate r of 4 differ: replicates must not share anything, "
            f"they are off by {np.abs(more - first.w).max():g}",
        )
        paid = [list(_unrolled(ledger.events)) for ledger in many.ledgers[:2]]
        require(
            _spent(first)[1:] == paid, "replicate r of 2 and replicate r of 4 pay for other events"
        )
        self._check_independent(many)

    def _check_independent(self, run: Any) -> None:
        """Fail if two replicates are equal in every run, also with much noise."""
        pairs, w = list(itertools.combinations(range(4), 2)), run.w
        for seed in range(1, 9):
            pairs = [(i, j) for i, j in pairs if np.array_equal(w[i], w[j])]
            if not pairs:
                return
            w = self.run(seed=seed, replicates=4).w
        (i, j), *_ = pairs  # the noise may be too small to change anything
        noisy = self.run(replicates=4, budget=part_of(self.budget, 1e-3)).w
        require(
            not np.array_equal(noisy[i], noisy[j]),
            "replicates give the same numbers: each must have independent noise, from the oracle",
        )

    def check_resumed(self) -> None:
        """Stop a run halfway and resume it from its checkpoint, and again with a batch lost."""
        try:
            check_resumable(self.method, self.budget, 1)
        except ValueError:
            return
        whole = self.run(replicates=1)
        half = 1 + whole.iterations // 2
        with tempfile.TemporaryDirectory() as folder, same_objects():
            file, other, killed = (os.path.join(folder, name) for name in "abc")

            def kill(made: int, w: np.ndarray) -> bool:
                """Keep the file as it is in the middle of a run: its last batch is lost."""
                return made == half and bool(shutil.copyfile(other, killed))

            try:
                self.run(replicates=1, checkpoint=file, callback=lambda made, w: made == half)
                again = self.run(replicates=1, resume=file)
                self.run(seed=None, replicates=1, checkpoint=other, callback=kill)
                if os.path.exists(killed):  # else an adaptive run was shorter
                    self.run(seed=None, replicates=1, resume=killed)
            except Exception as error:
                text = f"{type(error).__name__}: {error}"
                fail(f"resume() fails: {text} (see Method.resume on empty states and lost)", error)
        require(
            _same_run(whole, again),
            "a run resumed from a checkpoint gives other numbers than an uninterrupted one: "
            "Step(w, state=...) must have all that resume() needs beside w",
        )

    def check_budget(self, result: Any) -> None:
        """Check that a run is private and within its budget."""
        budget = self.budget
        require(result.private, "a run with a budget must be private")
        if budget.epsilon is not None and result.guard is None:
            spent = epsilon(result.ledger.events, budget.delta, budget.relation, "tightest")
            within = spent <= budget.epsilon * (1.0 + _ROUNDING)
            require(within, f"the method spends epsilon {spent:g} of a budget of {budget!r}")


def _same_step(first: Step, second: Step) -> bool:
    """Return whether two steps released the same; numbers may be NaN."""
    same = np.array_equal(first.w, second.w, equal_nan=True)
    if not same or repr(first.released) != repr(second.released):
        return False
    return first.state.keys() == second.state.keys() and all(
        np.array_equal(each, second.state[name], equal_nan=True)
        for name, each in first.state.items()
    )


def _same_run(first: Any, second: Any) -> bool:
    """Return whether two runs released the same and were charged for the same events."""
    same = first.w.shape == second.w.shape and np.array_equal(first.w, second.w, equal_nan=True)
    return same and _spent(first) == _spent(second)


def _spent(result: Any) -> list[Any]:
    return [list(_unrolled(ledger.events)) for ledger in (result.ledger, *result.ledgers)]


# The contract of a method


def check_method(
    method: Method,
    problem: Problem | None = None,
    *,
    budget: Budget | None = None,
    neighbour: Problem | None = None,
) -> None:
    """Raise AssertionError unless a method keeps the contract of :class:`Method`.

    The method is run about ten times. It must keep no state between runs, hold no data, use only
    the oracle's answers and public facts, make the queries that it planned, yield no step while a
    batch is open, stay within its budget, not draw from global random generators, and give the
    same numbers from the same seed, whatever is recorded and however many replicates run.

    Parameters
    ----------
    method : Method
    problem : Problem, optional
        By default a logistic regression of 200 records in 3 dimensions with a row bound and an
        L2 penalty, which nearly every method accepts.
    budget : Budget, optional
        By default the first of several that the method accepts.
    neighbour : Problem, optional
        ``problem`` with one record replaced, on which the method must plan the same. By default
        that of the default problem; none if only ``problem`` is given.

    Notes
    -----
    One run is replayed from the oracle's recorded answers, without the records: a method that uses
    more than answers and public facts then takes other steps. State is searched for in the
    attributes of the method and of its class; state elsewhere (global variables, closures) is
    detected only if it changes a second run.

    Examples
    --------
    >>> import dpanalysis as dpa
    >>> from dpanalysis import testing
    >>> testing.check_method(dpa.methods.Nesterov(step_size=0.4, iterations=5, mu=0.1))
    """
    _check_declared(method)
    if problem is None:
        problem = _logistic(method.sampling)
        neighbour = neighbour or _logistic(method.sampling, changed=True)
    _check_holds_no_data(method, problem)
    relation = method.sampling.relations[0] if budget is None else budget.relation
    facts = problem.facts(relation)
    if neighbour is not None and neighbour.facts(relation) != facts:
        fail("neighbour must have the public facts of problem: check_problem says which differ")
    budget = _budget(method, facts) if budget is None else budget
    checks = _MethodChecks(method, problem, neighbour or problem, facts, budget)
    kept = (
        "a run changes what the method remembers ({}): data or answers of one run would reach the "
        "next, or another run at the same time; keep what a run needs in its plan and in local "
        "variables of run()"
    )
    with quiet(), unchanged(method, type(method).__name__, kept):
        plan = checks.check_plan()
        recorded = checks.check_steps(plan)
        first = checks.check_seed()
        checks.check_repeated(plan, recorded)
        checks.check_conditions(first)
        checks.check_budget(first)
        checks.check_resumed()
    with quiet():
        copied = checks.run(method=check_pickle(method, "the method"))
    require(_same_run(copied, first), "a pickled copy of the method gives another run")


def _check_declared(method: Any) -> None:
    require(
        isinstance(method, Method),
        f"a method must be an object of a class that extends dpanalysis.methods.Method, got "
        f"{method!r}",
    )
    name = type(method).__name__
    schemes = Sampling | EpochSampling
    for attribute, kind in (("sampling", schemes), ("together", bool), ("output", str)):
        value = getattr(method, attribute)
        require(isinstance(value, kind), f"{name}.{attribute} is of the wrong kind: {value!r}")
    rule, released = method.clipping, method.released
    require(rule is None or isinstance(rule, Clipping), f"{name}.clipping must be a rule: {rule!r}")
    require(
        isinstance(released, tuple) and all(isinstance(each, str) for each in released),
        f"{name}.released must be a tuple of strings, got {released!r}",
    )


def _check_holds_no_data(method: Method, problem: Problem) -> None:
    data = [item for _, item in contents(problem) if isinstance(item, np.ndarray) and item.size]
    for place, item in contents(method, type(method).__name__):
        require(
            not isinstance(item, (Problem, PrivateOracle)),
            f"the method holds a {type(item).__name__} ({place}): what it plans and decides could "
            "come from the records; it may see public facts and the oracle's answers only",
        )
        shared = shares_memory(item, data)
        require(not shared, f"the method holds an array of the problem's data ({place})")


def _logistic(sampling: Sampling, changed: bool = False) -> ERM:
    """Return the default problem, or its neighbour with the last record replaced."""
    n = max(200, 2 * int(getattr(sampling, "m", 0)))
    rng = np.random.default_rng(5)
    X = rng.uniform(-1.0, 1.0, (n, 3))
    y = np.where(X @ [1.0, -2.0, 0.5] > 0.0, 1.0, -1.0)
    if changed:
        X[-1] = -X[-1]
    bounds = RowBound(1, 3.0), RowBound(2, 3.0**0.5)
    return ERM(X, y, Logistic(), L2(0.1), bounds)


def _budget(method: Method, facts: PublicFacts) -> Budget:
    """Return the first of several budgets that the method accepts."""
    delta = min(1e-4, 0.1 / facts.n)
    relation = facts.relation
    tried = [Budget(e, delta, relation) for e in (3.0, 20.0, 1e3)]
    tried += [Budget(e, 0.0, relation) for e in (3.0, 1e3)]
    tried.append(Budget.zcdp(1.0, relation))
    errors: list[Exception] = []
    for budget in tried:
        try:
            with quiet():
                _PlannedRun(method, facts, budget, None, "tightest").check_cost()
            return budget
        except Exception as error:
            errors.append(error)
    for budget, refusal in zip(tried, errors):
        if isinstance(refusal, PrivacyBudgetExceeded):
            fail(f"the method plans more than its budget {budget!r}: {refusal}", refusal)
    fail(
        f"the method takes none of six budgets on this problem (give check_method a problem or a "
        f"budget that suits it): {tried[0]!r}: {type(errors[0]).__name__}: {errors[0]}",
        errors[0],
    )


# The claim of any mechanism


def check_mechanism(
    mechanism: Any,
    dataset: Any,
    neighbour: Any,
    claim: float | Budget,
    *,
    delta: float = 0.0,
    samples: int = 100_000,
    confidence: float = 1 - 1e-9,
    rng: Any = 0,
    vectorized: bool = True,
) -> None:
    """Raise AssertionError if a mechanism is found to be less private than claimed.

    This is :func:`dpanalysis.audit.assert_private`, with its parameters, for one pair of data
    sets; that function can also draw pairs.

    Examples
    --------
    >>> from dpanalysis import testing
    >>> def noisy(total, rng, size):
    ...     return total + rng.laplace(0.0, 2.0, size)
    >>> testing.check_mechanism(noisy, 0.0, 1.0, 0.5)
    >>> testing.check_mechanism(noisy, 0.0, 1.0, 0.25)
    Traceback (most recent call last):
    AssertionError: refuted: epsilon >= 0.4... where 0.25 is claimed ...
    """
    __tracebackhide__ = True
    assert_private(
        mechanism,
        claim,
        dataset=dataset,
        neighbour=neighbour,
        delta=delta,
        samples=samples,
        confidence=confidence,
        rng=rng,
        vectorized=vectorized,
    )
