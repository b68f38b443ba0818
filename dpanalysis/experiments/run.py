"""The only loop over iterations: run a method on a problem under a budget."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from .._validation import check_choice, check_finite, check_int, check_reals
from ..errors import IncompatibleAccounting, PrivacyBudgetExceeded
from ..methods.base import Method, Plan, State
from ..methods.schedules import planned_events
from ..privacy import accountant as accounting
from ..privacy import filters, mechanisms
from ..privacy.accountant import ACCOUNTANTS
from ..privacy.events import Event, Repeated
from ..privacy.ledger import Ledger
from ..privacy.oracle import LARGEST_ITERATE, PrivateOracle, PublicFacts
from ..privacy.relations import Budget
from ..privacy.sampling import PAIRS
from .outputs import Output

__all__ = ["Result", "minimize"]

# Iterates above this count as diverged, before the oracle refuses points beyond them.
DIVERGED = 1e-2 * LARGEST_ITERATE
PROBLEM = ("n", "d", "mu", "L", "value", "gradient")  # what minimize asks of a problem itself
Recorder = Callable[[Any, np.ndarray], np.ndarray]

RECORDERS: Mapping[str, Recorder] = {
    "objective": lambda problem, w: problem.value(w),
    "gradient_norm": lambda problem, w: np.linalg.norm(problem.gradient(w), axis=-1),
    "accuracy": lambda problem, w: problem.accuracy(w),
    "iterate": lambda problem, w: w.copy(),
}


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """What a run gave.

    Attributes
    ----------
    w : ndarray of shape (R, d)
        What the method puts out, one row a replicate: the last iterates, unless its
        ``output`` says otherwise.
    history : dict of str to ndarray of shape (records, R)
        What was recorded of the iterates, and ``"iteration"`` of shape (records,). Computed
        from the data without noise: for the researcher's eyes only, NOT covered by the
        guarantee.
    ledger : Ledger
        Events of ONE replicate that were released.
    planned : tuple of Event
        Events of ONE replicate as fixed beforehand: those of the ledger, and those that a
        run which stopped early did not come to.
    method : Method
    plan : Plan
        Coefficients and noise of every iteration as planned.
    budget : Budget or None
    iterations : int
        Iterations made.
    status : {"finished", "stopped by callback", "diverged", "budget exceeded"}
    private : bool
        False where gradients of private data are released without noise.
    seconds : float
        Wall time of the run.
    released : tuple of str
        What the guarantee covers.
    drawn : ndarray of int, shape (R,), or None
        For ``output="uniform"``: the iteration whose iterate ``w`` is.
    """

    w: np.ndarray
    history: dict[str, np.ndarray]
    ledger: Ledger
    planned: tuple[Event, ...]
    method: Method
    plan: Plan
    budget: Budget | None
    iterations: int
    status: str
    private: bool
    seconds: float
    released: tuple[str, ...] = ("iterates",)
    drawn: np.ndarray | None = None

    def __repr__(self) -> str:
        """Summarise the run in one line; the arrays are in the attributes."""
        budget = "no budget" if self.budget is None else repr(self.budget)
        return (
            f"Result({self.status} after {self.iterations} iterations of {self.method!r}, "
            f"{budget}, w of shape {self.w.shape}, history of {', '.join(self.history)}, "
            f"{self.seconds:.3g} s)"
        )

    def epsilon(
        self, delta: float | None = None, replicates: int = 1, accountant: str = "tightest"
    ) -> float:
        """Return the epsilon of the run at ``delta``: the tightest, or that of one accountant.

        That of a run which stopped early is the epsilon of all planned events: when to stop
        was decided by what had been released, so the events that happened were not fixed
        beforehand and their own cost is no guarantee.

        Parameters
        ----------
        delta : float, optional
            By default the delta of the budget, or 0.
        replicates : int
            How many replicates are released together; 1 is the guarantee of one run.
        accountant : {"tightest", "pure", "zcdp", "rdp", "pld"}
            See :func:`dpanalysis.privacy.epsilon`.

        Returns
        -------
        float
            Infinite where exact gradients of private data were released.
        """
        check_int("replicates", replicates, low=1)
        check_choice("accountant", accountant, ACCOUNTANTS)
        if not self.private:
            return math.inf
        if delta is None:
            delta = self.budget.delta if self.budget is not None else 0.0
        made = self.ledger.events if self.status == "finished" else self.planned
        events = [Repeated(event, replicates) for event in made]
        return accounting.epsilon(events, delta, self.ledger.relation, accountant)

    def to_frame(self) -> Any:
        """Return the scalar history as a pandas DataFrame, one row a record and replicate."""
        import pandas

        iteration = self.history["iteration"]
        replicates = len(self.w)
        columns: dict[str, np.ndarray] = {
            "iteration": np.repeat(iteration, replicates),
            "replicate": np.tile(np.arange(replicates), len(iteration)),
        }
        for name, values in self.history.items():
            if name != "iteration" and values.ndim == 2:
                columns[name] = values.ravel()
        return pandas.DataFrame(columns)


def minimize(
    problem: Any,
    method: Method,
    budget: Budget | None = None,
    *,
    w0: Any = None,
    replicates: int = 1,
    rng: Any = None,
    record: Iterable[str | Recorder] = ("objective",),
    every: int = 1,
    accountant: str = "tightest",
    progress: bool = False,
    callback: Callable[[int, np.ndarray], Any] | None = None,
) -> Result:
    """Minimise ``problem`` by ``method`` under a privacy ``budget``.

    Everything that can fail for a reason known beforehand fails before the data are
    touched: arguments, the accounting, and the noise that the budget asks for.

    Parameters
    ----------
    problem : ERM, Quadratic or alike
        It may state its public start, ``problem.initial(rng) -> (d,)``, as
        :class:`~dpanalysis.problems.MLP` does.
    method : Method
        See :mod:`dpanalysis.methods`.
    budget : Budget or None
        None runs without noise, or with the noise that the method gives in numbers; the
        result says so.
    w0 : array_like of shape (d,) or (R, d), optional
        Public start. By default a draw of ``problem.initial`` for each replicate, from a
        stream of its own, and zeros where the problem has none.
    replicates : int
        Independent runs, made together; the ledger and the guarantee are those of one.
    rng : None, int, SeedSequence, Generator or "os"
        Source of randomness. Replicate r draws the same numbers whatever the method and
        whatever ``replicates``. A seeded generator is for research: for a release to the
        world use ``"os"``, the entropy of the operating system.
    record : iterable of str or callable
        ``"objective"``, ``"gap"``, ``"gradient_norm"``, ``"accuracy"``, ``"iterate"``, or a
        function ``(problem, w) -> (R,)`` recorded under its name. Not private.
    every : int
        Record every so many iterations, and the first and the last.
    accountant : {"tightest", "pure", "zcdp", "rdp", "pld"}
        How a budget is turned into noise.
    progress : bool
        Show a progress bar.
    callback : callable, optional
        Called as ``callback(iteration, w)`` after each iteration; a true answer stops. The
        guarantee covers a decision made from ``w``, not one that looks at the data.

    Returns
    -------
    Result

    Raises
    ------
    ValueError
        If an argument is outside its range, or no public bound makes a release private.
    IncompatibleAccounting
        If sampling, relation and accountant do not belong together.
    PrivacyBudgetExceeded
        If the guard refuses a release; the partial result is on the exception.

    Examples
    --------
    >>> import numpy as np
    >>> import dpanalysis as dpa
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(2000, 3))
    >>> y = np.where(X @ [1.0, -2.0, 0.5] > 0, 1.0, -1.0)
    >>> problem = dpa.ERM(X, y, dpa.losses.Logistic(), dpa.regularizers.L2(0.1),
    ...                   row_bound=dpa.RowBound(order=1, radius=3.0))
    >>> method = dpa.methods.Nesterov(step_size=0.4, iterations=50, mu=0.1, noise="optimal")
    >>> result = dpa.minimize(problem, method, dpa.Budget(epsilon=1.0), rng=0)
    >>> result.epsilon()
    1.0
    >>> float(problem.value(result.w)[0]) < float(problem.value(np.zeros(3)))
    True
    """
    start = time.perf_counter()
    if isinstance(problem, type) or not all(hasattr(problem, name) for name in PROBLEM):
        raise TypeError(
            f"problem must be an ERM, a Quadratic or alike, got one of {type(problem).__name__}"
        )
    check_int("every", every, low=1)
    check_choice("accountant", accountant, ACCOUNTANTS)
    if callback is not None and not callable(callback):
        raise TypeError(f"callback must be callable or None, got {callback!r}")
    if not isinstance(method, Method):
        raise TypeError(f"method must be one of dpanalysis.methods, got {method!r}")
    if budget is not None and not isinstance(budget, Budget):
        raise TypeError(f"budget must be a Budget or None, got {budget!r}")
    method.sampling.validate(problem.n)
    facts = PublicFacts.of(problem, _relation(method, budget))
    _check_budget(facts, budget)
    w = _start("w0", np.zeros(facts.d) if w0 is None else w0, facts.d, replicates)
    recorders = _recorders(record, problem)
    plan = method.plan(facts, budget, accountant)
    planned = _planned(method, facts, plan)
    guard = _guard(budget, planned, accountant)
    random = mechanisms.spawn(rng, len(w))
    oracle = PrivateOracle(problem, facts, guard, random)
    oracle.check_clipping(method.clipping)
    if w0 is None and hasattr(problem, "initial"):
        # Children of the sources after the oracle's: its noise and batches stay what they are.
        drawn = [problem.initial(mechanisms.spawn(source, 1)[0]) for source in random]
        w = _start("problem.initial(rng)", np.stack(drawn), facts.d, replicates)

    state = method.init(w, plan)
    log = _Log(problem, recorders, every)
    log.add(state)
    output = Output(method.output, plan.iterations, random)
    output.add(state)

    def result(status: str) -> Result:
        log.add(state, force=True)
        return Result(
            w=output.w,
            history=log.arrays(),
            ledger=oracle.ledger,
            planned=planned or (),
            method=method,
            plan=plan,
            budget=budget,
            iterations=state.iteration,
            status=status,
            private=planned is not None and (not facts.has_records or not oracle.exact_releases),
            seconds=time.perf_counter() - start,
            released=output.released,
            drawn=output.drawn,
        )

    for _ in _progress(plan.iterations, type(method).__name__, progress):
        try:
            with np.errstate(over="ignore", invalid="ignore"):  # divergence is told below
                following = method.step(state, oracle)
        except PrivacyBudgetExceeded as refusal:
            refusal.partial = result("budget exceeded")
            raise
        if not (np.abs(following.w) < DIVERGED).all():
            warnings.warn(
                f"the iterates diverged at iteration {following.iteration}; the result holds the "
                "last finite ones, and what was spent stays spent",
                RuntimeWarning,
                stacklevel=2,
            )
            return result("diverged")
        state = following
        log.add(state)
        output.add(state)
        if callback is not None and callback(state.iteration, state.w):
            return result("stopped by callback")
    return result("finished")


def _recorders(record: Iterable[str | Recorder], problem: Any) -> dict[str, Recorder]:
    chosen: dict[str, Recorder] = {}
    for item in _each(record):
        if callable(item):
            name = getattr(item, "__name__", repr(item))
            if name in chosen:
                raise ValueError(f"record must have one function of a name, got two named {name!r}")
            chosen[name] = item
        elif item == "accuracy" and not hasattr(problem, item):
            raise ValueError(f"record 'accuracy' needs a classification problem, got {problem!r}")
        elif item in RECORDERS:
            chosen[item] = RECORDERS[item]
        elif item == "gap":
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
    @cache  # at the first record, when everything that could fail without data has been checked
    def optimum() -> float:
        return problem.value(problem.solve())

    return lambda problem, w: problem.value(w) - optimum()


def _relation(method: Method, budget: Budget | None) -> str:
    allowed = method.sampling.relations
    if budget is None:
        return allowed[0]
    if budget.relation not in allowed:
        raise IncompatibleAccounting(
            f"{method.sampling!r} is accounted under {' or '.join(allowed)}, but the budget's "
            f"relation is {budget.relation!r}: {PAIRS}"
        )
    return budget.relation


def _start(name: str, start: Any, d: int, replicates: int) -> np.ndarray:
    check_int("replicates", replicates, low=1)
    w = check_finite(name, check_reals(name, start))
    if w.shape not in ((d,), (replicates, d)):
        raise ValueError(f"{name} must have shape ({d},) or ({replicates}, {d}), got {w.shape}")
    return np.array(np.broadcast_to(w, (replicates, d)))


def _check_budget(facts: PublicFacts, budget: Budget | None) -> None:
    if budget is None:
        return
    if not facts.has_records:
        raise ValueError(
            "a budget needs private data: this problem has no sensitivity (give Quadratic a "
            "sensitivity, or pass budget=None)"
        )
    if budget.delta >= 1.0 / facts.n and facts.n > 1:
        warnings.warn(
            f"delta = {budget.delta:g} is not below 1/n = {1.0 / facts.n:g}: releasing one record "
            "in the clear would satisfy it",
            UserWarning,
            stacklevel=3,
        )


def _planned(method: Method, facts: PublicFacts, plan: Plan) -> tuple[Event, ...] | None:
    """Return the events of the whole run; None where private gradients go out without noise."""
    if not facts.has_records:
        return ()
    if plan.scales is None or not np.all(plan.scales > 0.0):
        return None
    sampling, mechanism = method.sampling, method.mechanism
    return tuple(planned_events(facts, sampling, mechanism, plan.scales, method.clipping))


def _guard(
    budget: Budget | None, planned: tuple[Event, ...] | None, accountant: str
) -> filters.Plan | None:
    if budget is None:
        return None
    if planned is None:
        raise ValueError("with a budget every iteration needs noise; use budget=None without")
    return filters.Plan(planned, budget, accountant)


def _progress(total: int, title: str, show: bool) -> Iterable[int]:
    if not show:
        return range(total)
    from tqdm.auto import tqdm

    return tqdm(range(total), desc=title, unit="it")


class _Log:
    """The record of a run: rows of (iteration, values of the R replicates)."""

    def __init__(self, problem: Any, recorders: dict[str, Recorder], every: int) -> None:
        self._problem, self._recorders, self._every = problem, recorders, every
        self._iterations: list[int] = []
        self._values: dict[str, list[np.ndarray]] = {name: [] for name in recorders}

    def add(self, state: State, force: bool = False) -> None:
        t = state.iteration
        if self._iterations and self._iterations[-1] == t:
            return
        if not force and t % self._every:
            return
        with np.errstate(over="ignore", invalid="ignore"):
            for name, recorder in self._recorders.items():
                value = np.asarray(recorder(self._problem, state.w))
                if value.shape[:1] != (len(state.w),):
                    raise ValueError(
                        f"record {name!r} must return one value a replicate, shape "
                        f"({len(state.w)},) or ({len(state.w)}, ...), got shape {value.shape}"
                    )
                self._values[name].append(value)
        self._iterations.append(t)

    def arrays(self) -> dict[str, np.ndarray]:
        arrays = {name: np.array(values) for name, values in self._values.items()}
        return {"iteration": np.array(self._iterations), **arrays}
