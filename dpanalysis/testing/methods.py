"""The contract of a method, tried out."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..clipping import Clipping
from ..errors import PrivacyBudgetExceeded
from ..losses import Logistic
from ..methods.base import Method
from ..privacy.facts import PublicFacts
from ..privacy.oracle import PrivateOracle
from ..privacy.relations import Budget
from ..privacy.sampling import Sampling
from ..problems.base import Problem
from ..problems.erm import ERM
from ..problems.row_bound import RowBound
from ..regularizers import L2
from ._runs import Runs, same
from ._sealed import WatchingLoop
from ._state import check_pickle, reachable, snapshot, what_changed
from ._tools import fail, quiet, require

__all__ = ["check_method"]


def check_method(
    method: Method,
    problem: Problem | None = None,
    *,
    budget: Budget | None = None,
    neighbour: Problem | None = None,
) -> None:
    """Raise AssertionError unless a method keeps the contract of :class:`Method`.

    It is run about ten times. It must keep nothing from one run to the next, hold no data, look
    at nothing but the oracle's answers and public facts, ask what it has planned, yield no step
    while a batch is open, stay within its budget, draw from no global random numbers, and give
    the same numbers from the same seed, whatever is recorded and however many replicates run.

    Parameters
    ----------
    method : Method
    problem : Problem, optional
        What to run it on. By default a logistic regression of 200 records in 3 dimensions with a
        row bound and an L2 penalty, which nearly every method takes.
    budget : Budget, optional
        By default the first of several that the method accepts.
    neighbour : Problem, optional
        ``problem`` with one record replaced, on which the method must plan the same. By default
        that of the default problem; none where only ``problem`` is given.

    Raises
    ------
    AssertionError
        Saying what is wrong, at the first thing that is.

    Notes
    -----
    A method is run beside an oracle that watches who asks: private attributes of the oracle and
    of its batches, and the records of the problem, may be used inside the oracle only. State is
    looked for in the method's attributes, its class, and the closures, defaults and global names
    of its functions.

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
    remembered = snapshot(method, type(method).__name__)
    _check_holds_no_data(method, problem)
    relation = method.sampling.relations[0] if budget is None else budget.relation
    facts = problem.facts(relation)
    if neighbour is not None and neighbour.facts(relation) != facts:
        fail("neighbour must have the public facts of problem: check_problem says which differ")
    budget = _budget(method, facts) if budget is None else budget
    case = Runs(method, problem, neighbour or problem, facts, budget)
    with quiet():
        loop = case.check_plan()
        case.check_door(loop)
        first = case.check_runs()
    _check_unchanged(method, remembered)
    with quiet():
        copied = case.run(method=check_pickle(method, "the method"))
    require(same(copied, first), "a pickled copy of the method gives another run")


def _check_declared(method: Any) -> None:
    require(
        isinstance(method, Method),
        f"a method must be an object of a class that extends dpanalysis.methods.Method, got "
        f"{method!r}",
    )
    name = type(method).__name__
    for attribute, kind in (("sampling", Sampling), ("together", bool), ("output", str)):
        value = getattr(method, attribute)
        require(isinstance(value, kind), f"{name}.{attribute} is of the wrong kind: {value!r}")
    rule, released = method.clipping, method.released
    require(rule is None or isinstance(rule, Clipping), f"{name}.clipping must be a rule: {rule!r}")
    require(
        isinstance(released, tuple) and all(isinstance(each, str) for each in released),
        f"{name}.released must be a tuple of strings, got {released!r}",
    )


def _check_holds_no_data(method: Method, problem: Problem) -> None:
    data = [each for _, each in reachable(problem) if isinstance(each, np.ndarray) and each.size]
    for path, item in reachable(method, type(method).__name__):
        require(
            not isinstance(item, (Problem, PrivateOracle)),
            f"the method holds a {type(item).__name__} ({path}): what it plans and decides could "
            "come from the records; it may see public facts and the oracle's answers only",
        )
        shared = isinstance(item, np.ndarray) and any(np.shares_memory(item, x) for x in data)
        require(not shared, f"the method holds an array of the problem's data ({path})")


def _check_unchanged(method: Method, before: dict[str, Any]) -> None:
    changed = what_changed(before, snapshot(method, type(method).__name__))
    require(
        changed is None,
        f"a run changes what the method remembers ({changed}): data or answers of one run would "
        "reach the next, or another run at the same time; keep what a run needs in its plan and "
        "in local variables of run()",
    )


def _logistic(sampling: Sampling, changed: bool = False) -> ERM:
    """Return the default problem, or the same with its last record replaced."""
    n = max(200, 2 * int(getattr(sampling, "m", 0)))
    rng = np.random.default_rng(5)
    X = rng.uniform(-1.0, 1.0, (n, 3))
    y = np.where(X @ [1.0, -2.0, 0.5] > 0.0, 1.0, -1.0)
    if changed:
        X[-1], y[-1] = -X[-1], y[-1]
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
                WatchingLoop(method, facts, budget, None, "tightest").check_cost()
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
