"""The loop over iterations of a run, with its records and its output."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from .._validation import largest, warn_caller
from ..errors import PrivacyBudgetExceeded
from ..methods.base import AdaptiveMethod, Method, Step
from ..privacy.accounting.relations import Budget
from ..privacy.budget import Filter, Plan
from ..privacy.events import Event
from ..privacy.facts import PublicFacts
from ..privacy.oracle import Guard, PrivateOracle, one_oracle_each
from .checkpoint import Checkpoint
from .result import Result

_WHOLE_RUNS = ContextVar("_WHOLE_RUNS", default=False)


@contextmanager
def whole_runs() -> Iterator[None]:
    """Let Ctrl-C propagate out of a run, where a partial result is useless."""
    before = _WHOLE_RUNS.set(True)
    try:
        yield
    finally:
        _WHOLE_RUNS.reset(before)


class Output:
    """The last iterate, one drawn uniformly from all of them, or their mean: ``w`` (R, d)."""

    # If a run stops before the drawn iteration, its output is its last iterate.
    # ``random`` has one source per replicate, independent of those of noise and batches.

    def __init__(self, kind: str, iterations: int, random: Sequence[Any]) -> None:
        self._kind = kind
        self._made = 0
        if kind == "uniform":
            uniform = np.concatenate([source.random(1) for source in random])
            self._wanted = (uniform * (iterations + 1)).astype(np.int64)
        also = {"uniform": ("iteration drawn",), "average": ("mean of the iterates",)}
        self.released = also.get(kind, ())

    def add(self, iteration: int, w: np.ndarray) -> None:
        """Update the output with the iterates (R, d) of the next iteration."""
        self._made = iteration
        if self._kind == "last" or iteration == 0:
            self.w = w
        elif self._kind == "average":
            self.w = self.w + (w - self.w) / (iteration + 1.0)
        else:
            self.w = np.where((self._wanted >= iteration)[:, None], w, self.w)

    def state(self) -> dict[str, np.ndarray]:
        """Return what :meth:`restore` needs besides the last iterates."""
        if self._kind == "last":
            return {}
        return {"w": self.w, **({"wanted": self._wanted} if self._kind == "uniform" else {})}

    def restore(self, iteration: int, w: np.ndarray, state: Mapping[str, np.ndarray]) -> None:
        """Continue from iterates (R, d) and the :meth:`state` there."""
        self._made, self.w = iteration, state.get("w", w)
        if "wanted" in state:
            self._wanted = state["wanted"]

    @property
    def drawn(self) -> np.ndarray | None:
        """The drawn iteration of each row of ``w``, (R,); None unless ``"uniform"``."""
        return np.minimum(self._wanted, self._made) if self._kind == "uniform" else None


# Records, computed from the data without noise

Recorder = Callable[[Any, np.ndarray], np.ndarray]

RECORDERS: Mapping[str, Recorder] = {
    "objective": lambda problem, w: problem.value(w),
    "gradient_norm": lambda problem, w: np.linalg.norm(problem.gradient(w), axis=-1),
    "accuracy": lambda problem, w: problem.accuracy(w),
    "iterate": lambda problem, w: w.copy(),
}


def choose_recorders(record: Iterable[str | Recorder], problem: Any) -> dict[str, Recorder]:
    """Return a dict of recorders, from names and functions, or raise."""
    chosen: dict[str, Recorder] = {}
    for item in _each(record):
        if callable(item):
            name = getattr(item, "__name__", repr(item))
            if name == "iteration":
                raise ValueError("record must have no function named 'iteration': history has one")
            if name in chosen:
                raise ValueError(f"record must have one function of a name, got two named {name!r}")
            chosen[name] = item
        elif item == "accuracy" and not hasattr(problem, item):
            raise ValueError(f"record 'accuracy' needs a classification problem, got {problem!r}")
        elif item == "gap" and not hasattr(problem, "solve"):
            raise ValueError(
                f"record 'gap' needs a problem that can be solved, got {problem!r}: record "
                "'objective' instead"
            )
        elif item in RECORDERS:
            chosen[item] = RECORDERS[item]
        elif item == "gap":
            if getattr(problem, "mu", 0.0) < 0.0 or not getattr(problem, "convex_records", True):
                warn_caller(
                    "record 'gap' is the distance to the value at a stationary point, which need "
                    "not be the least one of an objective that is not convex"
                )
            chosen[item] = _gap(problem)
        else:
            known = ", ".join(map(repr, ("gap", *RECORDERS)))
            raise ValueError(f"record must name {known} or be callable, got {item!r}")
    return chosen


def _each(record: Any) -> Iterable[Any]:
    if isinstance(record, str) or callable(record):
        return (record,)
    if not isinstance(record, Iterable):
        raise TypeError(f"record must list names and functions, () for none, got {record!r}")
    return record


def _gap(problem: Any) -> Recorder:
    @cache  # computed at the first record, after all checks that need no data
    def optimum() -> float:
        return problem.value(problem.solve())

    return lambda problem, w: problem.value(w) - optimum()


@dataclass(frozen=True)
class Recording:
    """Records, progress bar and callback of a run."""

    problem: Any
    recorders: Mapping[str, Recorder]
    every: int
    progress: bool
    callback: Callable[[int, np.ndarray], Any] | None

    def log(self, ledger: Sized) -> Log:
        """Return an empty record of a run that writes to a ledger."""
        return Log(self.problem, self.recorders, self.every, ledger)

    def stops(self, iteration: int, w: np.ndarray) -> bool:
        """Return whether the callback stops the run."""
        return self.callback is not None and bool(self.callback(iteration, _read_only(w)))

    def bar(self, total: int, title: str, unit: str) -> Any:
        """Return a progress bar, as a context; a dummy without ``progress``."""
        if not self.progress:
            return _NoBar()
        from tqdm.auto import tqdm

        return tqdm(total=total, desc=title, unit=unit)


def _read_only(w: np.ndarray) -> np.ndarray:
    """Return a read-only view, so that recorders and callbacks cannot change the iterates."""
    view = w.view()
    view.flags.writeable = False
    return view


class _NoBar(nullcontext[Any]):
    def __enter__(self) -> _NoBar:
        return self

    def update(self) -> None:
        """Do nothing."""


class Log:
    """The history of a run: rows of (iteration, values of the R replicates)."""

    def __init__(
        self, problem: Any, recorders: Mapping[str, Recorder], every: int, ledger: Sized = ()
    ) -> None:
        self._problem, self._recorders, self._every = problem, recorders, every
        self._ledger = ledger
        self.charged: list[int] = []  # events in the ledger, by record
        self._iterations: list[int] = []
        self._values: dict[str, list[np.ndarray]] = {name: [] for name in recorders}
        self._released: Mapping[str, float] = {}

    def add(
        self,
        iteration: int,
        w: np.ndarray,
        released: Mapping[str, float] | None = None,
        force: bool = False,
    ) -> None:
        """Record the iterates ``w`` (R, d), if this iteration is recorded, and released numbers."""
        self._released = self._released if released is None else released
        if self._iterations and self._iterations[-1] == iteration:
            return
        if not force and iteration % self._every:
            return
        absent, found = np.full(len(w), np.nan), dict[str, np.ndarray]()
        with np.errstate(over="ignore", invalid="ignore"):
            for name, recorder in self._recorders.items():
                value = np.asarray(recorder(self._problem, _read_only(w)))
                if value.shape[:1] != (len(w),):
                    raise ValueError(
                        f"record {name!r} must return one value per replicate, shape "
                        f"({len(w)},) or ({len(w)}, ...), got shape {value.shape}"
                    )
                found[name] = value
        for name in dict.fromkeys((*self._released, *self._values)):
            if name not in self._recorders:
                self._values.setdefault(name, [absent] * len(self._iterations))
                found[name] = np.full(len(w), self._released.get(name, np.nan))
        for name, value in found.items():  # here, so that a failing recorder leaves no partial row
            self._values[name].append(value)
        self._iterations.append(iteration)
        self.charged.append(len(self._ledger))

    @staticmethod
    def merge(logs: Sequence[Log]) -> dict[str, np.ndarray]:
        """Return the records of several runs on common iterations; ended runs repeat their last."""
        iterations = np.unique(np.concatenate([log._iterations for log in logs]))
        merged = {"iteration": iterations}
        names = dict.fromkeys(name for log in logs for name in log._values)
        for name in names:
            columns = []
            rows = [log._values[name][0] for log in logs if log._values.get(name)]
            absent = np.full(rows[0].shape if rows else 1, np.nan)
            for log in logs:
                # A run that ended at iteration 0 has no released numbers, or no record at all.
                values = log._values.get(name) or [absent] * max(1, len(log._iterations))
                held = np.searchsorted(log._iterations, iterations, side="right") - 1
                columns.append(np.array(values)[held])
            merged[name] = np.concatenate(columns, axis=1)
        return merged


# The loop


# Iterates above this fraction of the oracle's largest iterate count as diverged.
_DIVERGED = 1e-2


@dataclass(frozen=True)
class Ended:
    """The ended run of one oracle: output (R, d), number of iterations, status."""

    output: Output
    log: Log
    made: int
    status: str
    error: Exception | None = None


class Loop:
    """A method with its guard, or one ``shared`` by several runs: planned first, and then run."""

    def __init__(
        self,
        method: Method,
        facts: PublicFacts,
        budget: Budget | None,
        shared: Filter | None,
        accountant: str,
    ) -> None:
        self._start = time.perf_counter()
        self._method, self._facts, self._budget, self._shared = method, facts, budget, shared
        self._accountant = accountant
        if isinstance(shared, Filter):
            accountant = shared.notion  # noise calibrated by another would cost more here
        self.plan = method.prepare(facts, budget, accountant)
        planned = method.events(facts, self.plan)
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
        """Choose the order of the filter; raise if not even one iteration fits."""
        method = self._method
        if not isinstance(method, AdaptiveMethod):
            raise TypeError(
                f"{method!r} plans no events, so it must be an AdaptiveMethod to have a filter"
            )
        if self._shared is None and budget.delta > 0.0:
            self._order = method.order(self._facts, self.plan, budget)
        elif self._shared is None:
            Plan(method.iteration(self._facts, self.plan), budget)

    def oracles(self, problem: Any, random: Sequence[Any]) -> list[PrivateOracle]:
        """Return one oracle for all replicates, or one each, with separate guards."""
        together = [list(random)] if self._method.together else [[each] for each in random]
        guards = [self._guard() for _ in together]
        return one_oracle_each(problem, self._facts, guards, together)

    def _guard(self) -> Guard | None:
        if self._shared is not None:
            return self._shared
        if self._budget is None and not self._planned:
            return None
        if self._budget is not None and self._adapts:
            return Filter(self._budget, order=self._order)
        exact = not isinstance(self._method, AdaptiveMethod)
        return Plan(self._planned, self._budget, self._accountant, exact=exact)

    def run(
        self,
        w: np.ndarray,
        oracles: Sequence[PrivateOracle],
        random: Sequence[Any],
        recording: Recording,
        file: Checkpoint | None = None,
    ) -> Result:
        """Run from ``w`` (R, d), or from the step in ``file``: replicates together, or in turn."""
        length = self._method.length(self.plan) if self._method.together else None
        share = len(w) // len(oracles)
        ended: list[Ended] = []
        title, unit = type(self._method).__name__, "run" if length is None else "it"
        with recording.bar(length or len(oracles), title, unit) as bar:
            for k, oracle in enumerate(oracles):
                rows = slice(k * share, (k + 1) * share)
                output = Output(self._method.output, length or 0, random[rows])
                ended.append(self._follow(w[rows], oracle, output, recording, bar, file))
                if ended[-1].status == "interrupted":
                    break
                error: Any = ended[-1].error
                if error is not None:
                    if not _WHOLE_RUNS.get():
                        error.partial = self._result(ended, oracles)
                    raise error
                if length is None:
                    bar.update()
        return self._result(ended, oracles)

    def _follow(
        self,
        w: np.ndarray,
        oracle: PrivateOracle,
        output: Output,
        recording: Recording,
        bar: Any,
        file: Checkpoint | None,
    ) -> Ended:
        """Run one oracle's replicates from ``w``, or from the last step of the file."""
        together = self._method.together
        log, made, status = recording.log(oracle.ledger), 0, "finished"
        failure: Exception | None = None
        output.add(0, w)
        if file is None:
            steps = iter(self._method.run(w if together else w[0], oracle, self.plan))
        else:
            made, w = file.made, file.w
            output.restore(made, w, file.output)
            start = Step(w if together else w[0], state=file.state)
            steps = self._method.resume(start, made, file.lost, oracle, self.plan)
        try:
            log.add(made, w)
            while True:
                try:
                    step = self._next(steps, oracle)
                except PrivacyBudgetExceeded as error:
                    if not self._adapts:
                        status = "budget exceeded"
                    # A filter's refusal just ends an adaptive run; others must have made a step.
                    if isinstance(oracle.guard, Plan) or not (self._adapts or made):
                        failure = error
                    break
                if step is None:
                    break
                after = step.w if together else step.w[None, :]
                if _diverged(after, made + 1, self._facts.largest_iterate):
                    status = "diverged"
                    break
                w, made = after, made + 1
                output.add(made, w)
                if file is not None:
                    file.step(made, w, step.state, output.state())
                log.add(made, w, released=step.released)
                if together:
                    bar.update()
                if recording.stops(made, w):
                    status = "stopped by callback"
                    break
        except KeyboardInterrupt:
            status = self._interrupted(made)
        except Exception as error:
            if made and not _WHOLE_RUNS.get():
                error.add_note(f"In iteration {made + 1}; what was released is in its .partial.")
            return Ended(output, log, made, "failed", error)
        try:
            log.add(made, w, force=True)
        except KeyboardInterrupt:
            status = self._interrupted(made)  # without this record
        except Exception as error:
            status, failure = "failed", failure or error
        return Ended(output, log, made, status, failure)

    def _next(self, steps: Iterator[Step], oracle: PrivateOracle) -> Step | None:
        """Return the next step of the method, None at its end, or raise if it yields no step."""
        with np.errstate(over="ignore", invalid="ignore"):  # divergence: see _diverged
            step = next(steps, None)
        if step is None:
            return None
        if not isinstance(step, Step):
            given = type(step).__name__
            raise TypeError(f"{self._method!r}: run() must yield a Step(w), got {given}")
        if oracle.is_open:
            raise RuntimeError(f"{self._method!r} yields a step while its batch is open")
        return step

    @staticmethod
    def _interrupted(made: int) -> str:
        """Return the status after Ctrl-C, or raise it again where a partial result is useless."""
        if _WHOLE_RUNS.get():
            raise
        with suppress(RuntimeWarning):  # turned into an error, it would lose the result
            warn_caller(
                f"interrupted at iteration {made}: the result holds what has been released, and "
                "its ledger what was paid for that",
                RuntimeWarning,
            )
        return "interrupted"

    def _result(self, ended: Sequence[Ended], oracles: Sequence[PrivateOracle]) -> Result:
        method, guard = self._method, oracles[0].guard
        outputs, made = [each.output for each in ended], [each.made for each in ended]
        # Only Filter and Plan certify the run: every answer was charged and had noise.
        certified = isinstance(guard, Filter | Plan)
        drawn = [output.drawn for output in outputs if output.drawn is not None]
        return Result(
            w=np.concatenate([output.w for output in outputs]),
            history=Log.merge([each.log for each in ended]),
            ledger=oracles[0].ledger,
            ledgers=() if method.together else tuple(oracle.ledger for oracle in oracles),
            planned=self._planned,
            method=method,
            plan=self.plan,
            budget=self._budget,
            iterations=max(made),
            made=None if method.together else np.array(made),
            status=next((e.status for e in reversed(ended) if e.status != "finished"), "finished"),
            private=certified or not self._facts.has_records,
            seconds=time.perf_counter() - self._start,
            released=(*method.released, *outputs[0].released),
            drawn=np.concatenate(drawn) if drawn else None,
            guard=guard if isinstance(guard, Filter) else None,
            evaluations=dict(sum((oracle.evaluations for oracle in oracles), Counter())),
            charged=np.array(ended[0].log.charged) if method.together else None,
        )


def _diverged(w: np.ndarray, iteration: int, most: float) -> bool:
    if largest(w) < _DIVERGED * most:
        return False
    warn_caller(
        f"the iterates diverged at iteration {iteration}; the result holds the last finite ones, "
        "and the budget they used stays spent",
        RuntimeWarning,
    )
    return True
