"""The contract of a problem, tried out."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..privacy.facts import PublicFacts
from ..privacy.relations import ADD_OR_REMOVE_ONE, REPLACE_ONE
from ..problems.base import Problem
from ._records import Records, close, host
from ._state import check_pickle, reachable
from ._tools import fail, global_random_untouched, quiet, require

__all__ = ["check_problem"]

_RELATIONS = (REPLACE_ONE, ADD_OR_REMOVE_ONE)


def check_problem(
    problem: Problem, neighbour: Problem | None = None, *, tolerance: float = 1e-6
) -> None:
    """Raise AssertionError unless a problem keeps the contract of :class:`dpanalysis.Problem`.

    Its sums must be sums over records that do not mix, each bounded by the public facts wherever
    the iterate is, also far away, and by a clipping rule that the problem accepts; gradients and
    curvatures must be those of its value; public facts must not depend on iterates or records.

    Parameters
    ----------
    problem : Problem
    neighbour : Problem, optional
        The same with ONE record replaced: its public facts must be the same, and its sums apart
        by no more than the sensitivity. Give one whenever you can, best with an extreme record:
        what depends on the data is not seen otherwise.
    tolerance : float
        Relative rounding error of a sum; 1e-3 for problems in single precision.

    Raises
    ------
    AssertionError
        Saying what is wrong, at the first thing that is.

    Notes
    -----
    Up to 40 records are looked at one by one, at some dozens of iterates, around which the
    longest gradient is searched. What passes is not proved.

    Examples
    --------
    >>> import numpy as np
    >>> import dpanalysis as dpa
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.uniform(-1, 1, (30, 2)), rng.choice([-1.0, 1.0], 30)
    >>> problem = dpa.ERM(X, y, dpa.losses.Logistic(), row_bound=dpa.RowBound(2, 1.5))
    >>> dpa.testing.check_problem(problem)
    """
    _check_declared(problem)
    with quiet(), global_random_untouched("the problem"):
        before = _facts(problem)
        _check_regularizer(problem)
        _check_start(problem)
        records = Records(problem, before[0], tolerance)
        records.check_sums()
        records.check_derivative()
        records.check_clipping()
        records.check_bounds()
        records.check_far_away()
        records.check_curvature()
        require(_facts(problem) == before, "facts() changes when the problem is used")
        try:
            problem.check_private()
        except Exception as error:
            fail(f"check_private() refuses data that nobody has touched: {error}", error)
        copied = check_pickle(problem, "the problem")
        same = np.array_equal(host(copied.gradient_sum(records.W)), records.total)
        require(same, "a pickled copy of the problem has another gradient_sum")
        if neighbour is not None:
            _check_neighbour(records, before, neighbour)


def _check_declared(problem: Any) -> None:
    require(
        isinstance(problem, Problem),
        f"a problem must be an object of a class that extends dpanalysis.Problem, got {problem!r}",
    )
    name = type(problem).__name__
    for attribute in ("n", "d"):
        value = getattr(problem, attribute, None)
        whole = isinstance(value, (int, np.integer)) and value >= 1
        require(whole, f"{name}.{attribute} must be a whole number >= 1, got {value!r}")
    mu: Any = getattr(problem, "mu", None)
    L: Any = getattr(problem, "L", None)
    for attribute, value in (("mu", mu), ("L", L)):
        real = isinstance(value, (int, float, np.number)) and not np.isnan(value)
        require(real, f"{name}.{attribute} must be a number, got {value!r}")
    require(mu <= L and L >= 0.0, f"{name} must have mu <= L and L >= 0, got mu = {mu}, L = {L}")


def _facts(problem: Problem) -> list[PublicFacts]:
    """Return the checked facts under both relations."""
    name, found = type(problem).__name__, []
    for relation in _RELATIONS:
        try:
            facts = problem.facts(relation)
        except Exception as error:
            fail(f"{name}.facts({relation!r}) fails: {error!r}", error)
        require(
            isinstance(facts, PublicFacts), f"{name}.facts must return a PublicFacts: {facts!r}"
        )
        for attribute in ("n", "d", "mu", "L"):
            stated, own = getattr(facts, attribute), getattr(problem, attribute)
            if attribute == "n" and facts.max_records is not None:
                most = facts.max_records  # of a nominal size
                require(own <= most, f"facts({relation!r}).max_records is {most}, and n is {own}")
                continue
            require(
                stated == own,
                f"facts({relation!r}).{attribute} is {stated!r} and the problem's {own!r}",
            )
        require(
            facts.relation == relation,
            f"facts({relation!r}) speaks of the relation {facts.relation!r}",
        )
        bounds = (*facts.gradient_bounds, facts.hessian_bound, facts.hessian_lipschitz)
        good = len(facts.gradient_bounds) == 2 and all(bound >= 0.0 for bound in bounds)
        require(good, f"facts({relation!r}) must have bounds >= 0, got {bounds}")
        require(
            0.0 <= facts.rounding < 1.0, f"facts().rounding must lie in [0, 1): {facts.rounding}"
        )
        found.append(facts)
    return found


def _check_regularizer(problem: Problem) -> None:
    penalty = problem.regularizer
    if penalty is None:
        return
    for member in ("mu", "L", "value", "gradient"):
        require(hasattr(penalty, member), f"regularizer must have {member}, got {penalty!r}")
    rest = {key: part for key, part in vars(problem).items() if part is not penalty}
    outside = [each for _, each in reachable(rest) if isinstance(each, np.ndarray) and each.size]
    for path, item in reachable(penalty, "regularizer"):
        shared = isinstance(item, np.ndarray) and any(np.shares_memory(item, x) for x in outside)
        require(
            not isinstance(item, Problem) and not shared,
            f"the regularizer holds data of the problem ({path}), but it is public: no noise "
            "is added to it",
        )
    rng = np.random.default_rng(3)
    w, v = rng.normal(size=(2, problem.d))
    h = 1e-6
    slope = (penalty.value(w + h * v) - penalty.value(w - h * v)) / (2.0 * h)
    close(
        penalty.gradient(w) @ v,
        slope,
        1e-5,
        "regularizer.gradient is not that of regularizer.value",
    )


def _check_start(problem: Problem) -> None:
    starts = [np.asarray(problem.initial(np.random.default_rng(4))) for _ in range(2)]
    require(
        starts[0].shape == (problem.d,) and np.isfinite(starts[0]).all(),
        f"initial() must return finite numbers of shape ({problem.d},), got {starts[0].shape}",
    )
    same = np.array_equal(starts[0], starts[1])
    require(same, "initial(rng) gives other numbers from the same source: draw from rng alone")


def _check_neighbour(records: Records, before: list[PublicFacts], neighbour: Problem) -> None:
    """Compare what is public, and the sums, with those of a data set that differs in a record."""
    for own, other in zip(before, (neighbour.facts(relation) for relation in _RELATIONS)):
        differ = [each for each in vars(own) if getattr(own, each) != getattr(other, each)]
        require(
            not differ,
            f"facts() depends on the records: {', '.join(differ)} differs for the neighbour; "
            "public facts must be stated bounds, never read off the data",
        )
    start = [
        np.asarray(each.initial(np.random.default_rng(4))) for each in (records.problem, neighbour)
    ]
    require(np.array_equal(start[0], start[1]), "initial() depends on the records")
    for rule in (None, *records.rules()):
        for w in records.iterates():
            W = w[None]
            sums = [host(p.gradient_sum(W, None, rule))[0] for p in (records.problem, neighbour)]
            for order in (1, 2):
                try:
                    bound = before[0].record_sensitivity(order, rule)
                except ValueError:
                    continue  # nothing bounds it, and the facts say so
                apart = float(np.linalg.norm(sums[0] - sums[1], order))
                slack = records.tolerance * float(np.linalg.norm(sums[0], order))
                require(
                    apart <= bound * (1.0 + 1e-9) + slack,
                    f"a replaced record moves the sum of gradients by {apart:.6g} in the L{order} "
                    f"norm, and the noise is computed for {bound:.6g} (clipping: {rule!r})",
                )
