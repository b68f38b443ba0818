"""Private selection of the best of several private runs, charged as a whole."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import FunctionType, MethodType, ModuleType
from typing import Any, TypeAlias

import numpy as np

from ._validation import check_fraction, check_positive, largest
from .experiments.loop import whole_runs
from .experiments.result import Result
from .preprocessing.columns import learned_by
from .privacy import mechanisms
from .privacy.accounting.accountant import calibrate
from .privacy.accounting.relations import Budget, check_budget, part_of
from .privacy.accounting.sampling import Full
from .privacy.accounting.selection import Repeats
from .privacy.accounting.zcdp import zcdp_pure
from .privacy.budget import SLACK, Filter, Plan, refuse_branch
from .privacy.events import BestOf, Event, Gaussian, Pure
from .privacy.ledger import Ledger
from .privacy.noise import is_system
from .privacy.oracle import LARGEST_ITERATE, PrivateOracle
from .privacy.queries import NoisyValue
from .problems.base import Problem

__all__ = ["PrivateLoss", "Repeats", "Selection", "affordable", "repeat_and_select"]


@dataclass(frozen=True)
class PrivateLoss:
    """Score of weights: their negative mean clipped loss on the records, plus noise.

    Parameters
    ----------
    problem : Problem
        Provides the records and the loss. Its penalty is left out, so that candidates with
        different penalties can be compared.
    clip : float
        In (0, inf): losses are clipped to this. The logistic loss of a coin toss is 0.69.

    Examples
    --------
    >>> import dpanalysis as dpa
    >>> problem = dpa.ERM(np.eye(2), [1, -1], dpa.losses.Logistic(),
    ...                   row_bound=dpa.RowBound(2, 1.0))
    >>> PrivateLoss(problem, clip=2.0)(np.zeros(2), dpa.Budget(1e9), 0)
    -0.6931
    """

    problem: Problem
    clip: float

    def __post_init__(self) -> None:
        if not callable(getattr(self.problem, "facts", None)):
            raise TypeError(f"problem must be a problem such as ERM, got {self.problem!r}")
        check_positive("clip", self.clip)

    def __call__(self, output: Any, budget: Budget, rng: Any) -> float:
        """Return the score of weights (d,), or of a Result with one replicate."""
        try:
            w = np.asarray(getattr(output, "w", output), dtype=np.float64).reshape(-1)
        except (TypeError, ValueError):
            w = np.empty(0)
        if w.size != self.problem.d or output is None:
            raise TypeError(
                f"PrivateLoss scores weights of {self.problem.d} numbers, or a Result with one "
                f"replicate, got {output!r}: for other candidates, such as estimators, write a "
                "score(output, budget, rng)"
            )
        if not largest(w) <= LARGEST_ITERATE:
            return -math.inf
        facts, law = self.problem.facts(budget.relation), "laplace"
        if budget.rho is not None:
            law = "gaussian"
        elif budget.delta > 0.0:
            raise ValueError(f"budget must be pure or of zCDP, got {budget!r}")
        # The cost is inversely proportional to the scale (for Gaussian noise, to its square).
        unit = NoisyValue(w, self.clip, 1.0, law).event(facts, Full())
        assert unit is not None
        scale = (
            unit.pure_cost() / budget.limit
            if budget.rho is None
            else math.sqrt(unit.zcdp_cost() / budget.rho)
        )
        query = NoisyValue(w, self.clip, scale, law)
        event = query.event(facts, Full())
        assert event is not None
        oracle = PrivateOracle(
            self.problem, facts, Plan(event, budget), [mechanisms.random_source(rng)]
        )
        penalty = self.problem.regularizer
        public = 0.0 if penalty is None else float(penalty.value(w))
        return public - float(oracle.ask(query, Full()))


Candidate: TypeAlias = Callable[[Budget, Any], Any]
Score: TypeAlias = Callable[[Any, Budget, Any], float]


@dataclass(frozen=True)
class Selection:
    """The best run and its score. All of it may be released; the number of runs is not included.

    Attributes
    ----------
    index : int or None
        The selected candidate; None if there was no run, as the Poisson law allows.
    output : object
        The output of that run; of a :class:`~dpanalysis.Result` only what ``released`` names may
        be released. A Result, a Selection, learned ranges of :mod:`dpanalysis.preprocessing` in
        arrays and attributes, and an estimator of :mod:`dpanalysis.linear_model` state
        the cost of the whole selection and not that of their run, wherever the output holds them:
        in collections, attributes, other estimators, owners of methods. Text, files and the
        closures of functions are left unchanged.
    score : float
        The private score of that run; NaN if there was no run.
    run, scoring : Budget
        The budgets of each run and of each score.
    ledger : Ledger
        Holds one event for the whole selection.
    delta : float
        That of the budget of the whole selection.
    """

    index: int | None
    output: Any
    score: float
    run: Budget
    scoring: Budget
    ledger: Ledger
    delta: float = 0.0

    def epsilon(self, delta: float | None = None) -> float:
        """Return the epsilon of the whole selection at ``delta``, in [0, 1), or at its own."""
        return self.ledger.epsilon(self.delta if delta is None else delta)


def affordable(budget: Budget, repeats: Repeats) -> Budget:
    """Return the budget of one run and its score such that selecting the best fits ``budget``.

    Parameters
    ----------
    budget : Budget
        With epsilon and delta: selection does not preserve zCDP.
    repeats : Repeats
        With a finite shape for a pure budget: the Poisson law has no pure guarantee.

    Returns
    -------
    Budget
        Pure for a pure budget, else zCDP.

    Examples
    --------
    >>> affordable(Budget(3.0), Repeats(10.0)).epsilon
    1.0
    >>> affordable(Budget(3.0, delta=1e-6), Repeats(10.0)).rho
    0.05435
    """
    check_budget(budget)
    if not isinstance(repeats, Repeats):
        raise TypeError(f"repeats must be a law such as Repeats(10.0), got {repeats!r}")
    if budget.rho is not None:
        raise ValueError(
            f"budget must be of (epsilon, delta), got {budget!r}: the best of several runs of zCDP "
            "is not of zCDP"
        )
    if budget.delta == 0.0:
        if repeats.shape == math.inf:
            raise ValueError(
                "repeats must have a finite shape for a pure budget, got Poisson's law: the best "
                "of so many runs has no pure loss"
            )
        return Budget(
            budget.limit / BestOf([Pure(1.0)], repeats).pure_cost(), relation=budget.relation
        )
    # The Renyi curve rho a at order a is that of Gaussian noise, and a bound for every zCDP run.
    std = calibrate(lambda std: BestOf([Gaussian(std, 1.0)], repeats), budget, (1e-2, 1e6))
    return Budget.zcdp(Gaussian(std, 1.0).zcdp_cost(), budget.relation)


def repeat_and_select(
    candidates: Sequence[Candidate],
    budget: Budget,
    *,
    score: Score,
    repeats: Repeats | None = None,
    score_share: float = 0.2,
    guard: Filter | None = None,
    rng: Any = None,
) -> Selection:
    r"""Run random candidates, a random number of times, and return the best run.

    The whole costs a little more than a single run, however many candidates there are, and not the
    sum of the runs.

    Parameters
    ----------
    candidates : sequence of callable
        ``candidate(budget, rng)`` runs on the private data, satisfies the given budget, and
        draws from ``rng`` only.
    budget : Budget
        Of the whole selection: epsilon only, where runs get pure budgets, or epsilon and delta,
        where runs get zCDP budgets, which estimators of :mod:`dpanalysis.linear_model` refuse.
    score : callable
        ``score(output, budget, rng)`` returns a number, the larger the better, and satisfies its
        budget if it depends on the private data, as :class:`PrivateLoss` does. NaN is worst.
    repeats : Repeats, optional
        Law of the number of runs, by default ``Repeats(10.0)``, the geometric law. Finding the
        best of k candidates with some certainty takes a mean of a few times k.
    score_share : float
        In (0, 1): share of a run's budget for its score.
    guard : Filter, optional
        Filter that is charged for the whole selection, shared with other releases.
    rng : None, int, SeedSequence, Generator or "os"
        See :func:`dpanalysis.minimize`.

    Raises
    ------
    ValueError
        If ``rng`` has been used under the guard, or a candidate returns a
        :class:`~dpanalysis.Result`, a Selection or an estimator that ran under another budget than
        the one given.
    TypeError
        If the guard is a branch of a filter, or the output of a candidate cannot be copied.
    PrivacyBudgetExceeded
        If the guard refuses the charge; nothing has run then.

    Notes
    -----
    *Proof.* One run picks a candidate, runs it, and scores its output. The pick does not depend on
    the data, and the run and the score together cost their two budgets, whichever was picked. So
    the output together with its score is private, and
    :class:`~dpanalysis.privacy.events.BestOf` bounds the best of a random number of such runs.
    The released run was selected by comparison with the others, so the cost of that run alone is
    not a guarantee: the output states the cost of the whole, in every object that a copy of it
    reaches. A candidate may itself be a selection, within the budget of its run: a pure one, since
    selection does not preserve zCDP.

    *When it is worth it.* With a pure budget each run gets a third of epsilon (by the geometric
    law; see :func:`affordable`), and a fifth of that goes to the score. So the best candidate must
    be better at about a quarter of the budget than a fixed one at all of it. That is not so where
    accuracy hardly depends on the parameter, where a public rule is near the best, where epsilon n
    is so small that noise decides, or where all candidates are similar. Trying candidates on a
    public data set of the same kind costs nothing.

    *Not covered.* The running time reveals the number of runs, and so do the warnings that a run
    emits. An exception in a candidate is raised and may reveal a run that would not have been
    selected: candidates must not raise for reasons that depend on the data. The whole is charged
    beforehand, also where a score then fails on a candidate's output.

    References
    ----------
    Papernot, Steinke (2022); Liu, Talwar (2019).

    Examples
    --------
    >>> import numpy as np
    >>> import dpanalysis as dpa
    >>> random = np.random.default_rng(0)
    >>> X = random.uniform(-1, 1, size=(5000, 3))
    >>> y = np.sign(X @ [1.0, -2.0, 0.5])
    >>> bound = dpa.RowBound(2, 3.0**0.5)
    >>> def problem(strength):
    ...     penalty = dpa.regularizers.L2(strength)
    ...     return dpa.ERM(X, y, dpa.losses.Logistic(), penalty, bound)
    >>> method = dpa.methods.ObjectivePerturbation()
    >>> candidates = [
    ...     lambda budget, rng, s=strength: dpa.minimize(problem(s), method, budget, rng=rng)
    ...     for strength in (10.0, 0.01)
    ... ]
    >>> score = dpa.tuning.PrivateLoss(problem(0.01), clip=2.0)
    >>> chosen = dpa.tuning.repeat_and_select(candidates, dpa.Budget(3.0), score=score, rng=1)
    >>> chosen.index, chosen.epsilon(), chosen.run.epsilon
    (1, 3.0, 0.8)
    """
    if callable(candidates) or not isinstance(candidates, Iterable):
        raise TypeError(f"candidates must be a sequence of functions, got {candidates!r}")
    listed = list(candidates)
    if not listed:
        raise ValueError("candidates must hold at least one candidate, got none")
    for name, each in [("candidates", each) for each in listed] + [("score", score)]:
        if not callable(each):
            raise TypeError(f"{name} must be callable, got {each!r}")
    share = check_fraction("score_share", score_share)
    law = Repeats(10.0) if repeats is None else repeats
    whole = affordable(budget, law)
    run, scoring = part_of(whole, 1.0 - share), part_of(whole, share)
    event = BestOf([_event(run), _event(scoring)], law)
    refuse_branch(guard)
    if guard is not None and guard.budget.relation != budget.relation:
        raise ValueError(
            f"guard must have the budget's relation, {budget.relation!r}, got "
            f"{guard.budget.relation!r}"
        )
    counting, running, judging = mechanisms.spawn(rng, 3)
    ledger = Ledger(budget.relation)
    ledger.record(event)
    if guard is not None:
        if not guard.can_spend(event):
            guard.spend(event)  # raises, before the seed counts as used
        # A run of minimize from the same seed would draw its noise from the first two.
        for source in (*mechanisms.spawn(counting, 2), running, judging):
            guard.claim_seed(source)
        guard.spend(event)
    best = Selection(None, None, math.nan, run, scoring, ledger, budget.delta)
    for _ in range(law.draw(counting)):
        index = int(counting.integers(0, len(listed)))
        with whole_runs():
            output = listed[index](run, mechanisms.spawn(running, 1)[0])
        _check_output(output, run)
        value = float(score(output, scoring, mechanisms.spawn(judging, 1)[0]))
        value = -math.inf if math.isnan(value) else value
        if best.index is None or value > best.score:
            chosen = _of_choice(output, ledger, budget, rng)
            best = Selection(index, chosen, value, run, scoring, ledger, budget.delta)
    return best


def _event(budget: Budget) -> Event:
    """Return an event that costs the whole budget."""
    if budget.rho is not None:
        return Gaussian(math.sqrt(0.5 / budget.rho), 1.0)
    return Pure(budget.limit)


def _check_output(output: Any, budget: Budget) -> None:
    """Raise unless the reported cost of a run is within its budget; uses public reports only."""
    estimators: list[Any] = []
    reports = _reports(output, estimators)
    counted = {id(report.ledger) for report in reports if isinstance(report, (Result, Selection))}
    costs: dict[str, list[float]] = {"cards": [], "ranges": [], "others": []}
    for report in reports:
        if id(report) not in counted:
            kind = "cards" if hasattr(report, "ledger") else "ranges"
            costs[kind if _is_card(report) else "others"].append(_claimed(report, budget))
    cards, ranges, others = map(math.fsum, costs.values())
    models = [m for m in estimators if hasattr(type(m), "_privacy_of") and hasattr(m, "privacy_")]
    # With discarded fits, copies of records, and ranges of other models.
    whole = _claimed(models[0]._privacy_of(estimators), budget) if models else 0.0
    # A card includes the ranges that its model was fitted with.
    cost = others + max(cards, ranges, whole)
    if not cost <= budget.limit * (1.0 + SLACK):
        raise ValueError(
            f"candidates must run under the budget that they are given, {budget!r}, once, as "
            "minimize(..., budget, rng=rng) does; a choice inside a candidate costs its whole "
            f"budget; got a {type(output).__name__}"
        )


_LEAVES = (type, ModuleType, FunctionType, str, bytes, int, float, complex, np.generic, type(None))


def _reports(output: Any, estimators: list[Any] | None = None) -> list[Any]:
    """Return all results, selections, cards and ledgers in an output, each once.

    Estimators of scikit-learn are appended to the list, each before its parts.
    """
    found: list[Any] = []
    waiting, seen = [output], {}
    while waiting:
        part = waiting.pop()
        if isinstance(part, _LEAVES) or id(part) in seen:
            continue
        seen[id(part)] = part  # keeps it alive, so that its id is not reused
        if isinstance(part, (Result, Selection, Ledger)) or _is_card(part):
            found.append(part)
            continue
        if estimators is not None and hasattr(type(part), "__sklearn_tags__"):
            estimators.append(part)
        if isinstance(part, (list, tuple, set, frozenset)):
            waiting += part
        elif isinstance(part, dict):
            waiting += [*part, *part.values()]
        elif isinstance(part, np.ndarray):
            waiting += part.ravel().tolist() if part.dtype.hasobject else []
        elif isinstance(part, MethodType):
            waiting.append(part.__self__)
        elif isinstance(part, partial):
            waiting += [part.func, part.args, part.keywords]
        else:
            waiting += [*learned_by(part), *_pickled_parts(part)]  # a table has them as lists
        slots = [vars(kind).get("__slots__", ()) for kind in type(part).__mro__]
        names = [n for each in slots for n in ([each] if isinstance(each, str) else each)]
        waiting += [getattr(part, name, None) for name in names]
        waiting += getattr(part, "__dict__", {}).values()
    return found


def _pickled_parts(value: Any) -> list[Any]:
    """Return what a copy of an object would be made from; nothing if it cannot be copied."""
    try:
        _, *parts = value.__reduce_ex__(4)
        arguments, state, items, pairs = (*parts, *[None] * 3)[:4]
        return [*arguments, state, *(items or ()), *(pairs or ())]
    except Exception:
        return []


def _is_card(value: Any) -> bool:
    """Return whether a value is a card, or the cost of ranges that a run has learned."""
    return hasattr(value, "of_choice")


def _claimed(report: Any, budget: Budget) -> float:
    """Return the cost that a report states, in the notion of ``budget``; infinite in another."""
    if isinstance(report, Result):
        given, once = report.budget, report.private and len(report.w) == 1
        if given is None or not once or given.delta > 0.0:
            return math.inf
        relation, epsilon = given.relation, math.inf if given.epsilon is None else given.epsilon
        if given.rho is not None and budget.rho is not None and relation == budget.relation:
            return given.rho
    elif isinstance(report, (Selection, Ledger)):
        ledger = report if isinstance(report, Ledger) else report.ledger
        relation, epsilon = ledger.relation, ledger.epsilon(0.0)
        if isinstance(report, Ledger) and budget.rho is not None and relation == budget.relation:
            return math.fsum(event.zcdp_cost() for event in report)
    else:
        pure = getattr(report, "delta", 0.0) == 0.0  # learned ranges are
        relation, epsilon = report.relation, report.epsilon if pure else math.inf
    if relation != budget.relation:
        return math.inf
    return epsilon if budget.rho is None else float(zcdp_pure(epsilon))


def _of_choice(output: Any, ledger: Ledger, budget: Budget, rng: Any = "os") -> Any:
    """Return a copy of the output in which every report states the cost of the whole selection."""
    # The noise of the scores comes from the selection's own source, which limits the whole.
    exact = is_system(rng)

    # A copy, since a later run may write into the same object, and must not be released.

    def restated(report: Any) -> Any:
        if isinstance(report, Selection):
            inner = _of_choice(report.output, ledger, budget, rng)
            return replace(report, output=inner, ledger=ledger, delta=budget.delta)
        if _is_card(report):
            return report.of_choice(ledger, budget.delta, rng is not None and not exact)
        whole = Ledger(ledger.relation)
        for event in ledger:
            whole.record(event)
        if isinstance(report, Ledger):
            whole.noise = "exact" if report.noise == "exact" and exact else whole.noise
            return whole
        whole.noise = "exact" if report.hardened and exact else whole.noise
        released = ("w", "history", "drawn", "made", "evaluations", "charged")
        copies = {name: copy.deepcopy(getattr(report, name)) for name in released}
        stated = {"ledger": whole, "ledgers": (), "planned": (), "guard": None, "budget": budget}
        return replace(report, **stated, **copies)

    # deepcopy replaces each report by its entry in the memo.
    memo = {id(report): restated(report) for report in _reports(output)}
    whole = {id(each) for each in memo.values()}
    try:
        made = copy.deepcopy(output, memo)
    except (TypeError, copy.Error) as error:
        raise TypeError(f"candidates must return what can be copied ({error})") from error
    for report in _reports(made):
        if id(report) not in whole:  # such as an entry of a table of pandas
            raise TypeError(
                "candidates must return results in lists, dicts or attributes: copying a "
                f"{type(output).__name__} does not copy the report in it, which would state the "
                "cost of one run"
            )
    return made
