"""Run a method on a problem under a budget."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import numpy as np

from .._validation import check_choice, check_finite, check_int, check_reals, largest, warn_caller
from ..errors import IncompatibleAccounting
from ..methods.base import Method
from ..privacy import mechanisms
from ..privacy.accounting.accountant import ACCOUNTANTS
from ..privacy.accounting.relations import Budget
from ..privacy.accounting.sampling import PAIRS, Sampling
from ..privacy.budget import Filter
from ..privacy.facts import PublicFacts
from ..privacy.oracle import LARGEST_ITERATE
from ..problems.base import Problem
from .checkpoint import (
    Checkpoint,
    check_path,
    check_resumable,
    check_rng_again,
    fingerprint,
    fingerprint_problem,
    is_complete,
    kind_of_rng,
)
from .loop import Loop, Recorder, Recording, choose_recorders
from .result import Result
from .sweep import code_digest


def minimize(
    problem: Problem,
    method: Method,
    budget: Budget | Filter | None = None,
    *,
    w0: Any = None,
    replicates: int = 1,
    rng: Any = None,
    record: Iterable[str | Recorder] = ("objective",),
    every: int = 1,
    accountant: str = "tightest",
    progress: bool = False,
    callback: Callable[[int, np.ndarray], Any] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    resume: str | os.PathLike[str] | None = None,
    checkpoint_every: int = 1,
) -> Result:
    """Minimize ``problem`` by ``method`` under a privacy ``budget``.

    Arguments, accounting and noise calibration are checked before the data are accessed.

    Parameters
    ----------
    problem : Problem
        An :class:`~dpanalysis.ERM`, a network, a :class:`~dpanalysis.Quadratic`, or a
        user-defined :class:`~dpanalysis.Problem`.
    method : Method
        See :mod:`dpanalysis.methods`.
    budget : Budget, Filter or None
        None runs without noise, or with the method's explicit noise scales, see
        ``result.private``. A method that runs one replicate at a time also takes a
        :class:`dpanalysis.privacy.Filter` shared with other runs.
    w0 : array_like of shape (d,) or (R, d), optional
        Public start. By default a draw of ``problem.initial`` for each replicate, from a separate
        stream: zeros for most problems, random for :class:`~dpanalysis.problems.MLP`.
    replicates : int
        Number of independent runs; the ledger and the guarantee are those of one.
    rng : None, int, SeedSequence, Generator or "os"
        Source of randomness. Replicate r draws the same numbers whatever the method and
        ``replicates``. A seeded generator is for research: for a public release use ``"os"``, the
        entropy of the operating system.
    record : iterable of str or callable
        ``"objective"``, ``"gap"``, ``"gradient_norm"``, ``"accuracy"``, ``"iterate"``, or a
        function ``(problem, w) -> (R,)`` recorded under its name. Not private.
    every : int
        Number of iterations between records; the first and the last are always recorded.
    accountant : {"tightest", "pure", "zcdp", "rdp", "pld"}
        Accountant that calibrates the noise.
    progress : bool
        Show a progress bar.
    callback : callable, optional
        Called as ``callback(iteration, w)`` after each iteration; a true return value stops the
        run. The guarantee covers a decision based on ``w``, not one based on the data.
    checkpoint : path-like, optional
        A new file, in an existing folder, that records what the run has released and spent, to
        resume it. For methods that release their iterates: descent, SGD and Adam, line searches. It
        reveals no more than the iterates; with an integer ``rng`` it is as secret as the seed.
    resume : path-like, optional
        Resume from the last step in such a file, which is then updated. All charged events are in
        the ledger; an iteration whose batch was charged and lost leaves the iterate unchanged. The
        arguments must be those of the run. Noise and batches are drawn anew, with ``rng`` None or,
        if it was, ``"os"``; with the same integer the run resumes bit for bit, which user-defined
        problems, losses, rules and methods do not allow. The history starts there.
    checkpoint_every : int
        Number of batches between two writes of the file, which take some milliseconds each. A
        killed run loses at most so many batches; Ctrl-C or an exception loses the open one.

    Raises
    ------
    ValueError
        If no public bound makes a release private.
    IncompatibleAccounting
        If sampling, relation and accountant are incompatible.
    PrivacyBudgetExceeded
        If the guard refuses a release; the partial result is on the exception.
    FileExistsError
        If the file of ``checkpoint`` exists.
    FileNotFoundError
        If its folder, or the file of ``resume``, does not exist.
    RuntimeError
        If another run is using the file of ``resume``.

    Any other error of a step (a file that cannot be read any more) has the result of the previous
    steps as its attribute ``partial``, with all charged events in the ledger.

    Notes
    -----
    *Checkpoints.* An event is in the file before its batch is drawn, so that the file lists all
    that anybody has seen, whenever the run is killed. A copy of the file is a second budget: two
    runs from two copies both take the remaining steps, and each ledger lists them once. The proof
    is in the docstring of ``dpanalysis/experiments/checkpoint.py``.

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
    if not isinstance(problem, Problem):
        raise TypeError(
            "problem must be an ERM, a Quadratic or another dpanalysis.Problem, got "
            f"{_kind(problem)}"
        )
    check_int("every", every, low=1)
    check_int("checkpoint_every", checkpoint_every, low=1)
    check_choice("accountant", accountant, ACCOUNTANTS)
    if callback is not None and not callable(callback):
        raise TypeError(f"callback must be callable or None, got {callback!r}")
    if not isinstance(method, Method):
        raise TypeError(f"method must be one of dpanalysis.methods, got {method!r}")
    shared, run_budget = _shared(budget, method, replicates)
    path = check_path(checkpoint, resume)
    if path is not None:
        check_resumable(method, budget, replicates)
    if resume is not None:
        check_rng_again(rng)
    facts = problem.facts(_relation(method.sampling, run_budget))
    method.sampling.validate(facts.n)  # the public number: an error must not reveal the true one
    _check_budget(facts, run_budget)
    w = _start("w0", np.zeros(facts.d) if w0 is None else w0, facts.d, replicates)
    recorders = choose_recorders(record, problem)
    loop = Loop(method, facts, run_budget, shared, accountant)
    random = mechanisms.spawn(rng, len(w))
    oracles = loop.oracles(problem, random)
    oracles[0].check_clipping(method.clipping)
    for name in method.needs:  # before anything is charged
        problem.check_offers(name)
    if w0 is None and getattr(problem.initial, "__func__", None) is not Problem.initial:
        # Spawned after the oracle's streams, so that its noise and batches are those of w0=zeros.
        drawn = [problem.initial(mechanisms.spawn(source, 1)[0]) for source in random]
        w = _start("problem.initial(rng)", np.stack(drawn), facts.d, replicates)
    recording = Recording(problem, recorders, every, progress, callback)
    if path is None:
        return loop.run(w, oracles, random, recording)
    source = kind_of_rng(rng)
    settings = {
        "problem": fingerprint_problem(problem, facts, source == "seeded"),
        "method": fingerprint(method),
        "plan": fingerprint(loop.plan),
        "budget": fingerprint(run_budget),
        "accountant": accountant,
        "replicates": len(w),
        "w0": fingerprint(None if w0 is None else np.asarray(w0, dtype=np.float64)),
        "rng": source,
        "code": [code_digest("dpanalysis"), np.__version__] if source == "seeded" else None,
    }
    if source == "seeded" and not is_complete(settings):
        raise ValueError(
            "rng must be None or 'os' with a checkpoint of a problem, a loss, a rule or a method "
            f"of your own class, got {rng!r}: a file does not identify such an object, and a run "
            "resumed with another one would draw the same noise again"
        )
    file = Checkpoint(path, settings, oracles[0], checkpoint_every)
    if resume is None:
        file.begin(w)
    else:
        file.resume()
    with file:
        result = loop.run(w, oracles, random, recording, file)
    if file.unwritten is not None:
        with suppress(RuntimeWarning):  # turned into an error, it would lose the result
            warn_caller(f"{path} has not the last step: {file.unwritten}", RuntimeWarning)
    return result


def _kind(argument: Any) -> str:
    name = argument.__name__ if isinstance(argument, type) else type(argument).__name__
    return f"the class {name} itself" if isinstance(argument, type) else f"one of {name}"


def _shared(budget: Any, method: Method, replicates: int) -> tuple[Filter | None, Budget | None]:
    """Return the filter if one was given in place of a budget, and the budget."""
    if budget is None or isinstance(budget, Budget):
        return None, budget
    if type(budget) is not Filter:  # a Plan, or a subclass, may grant anything
        raise TypeError(f"budget must be a Budget, a Filter or None, got {budget!r}")
    if method.together:
        raise TypeError(f"budget must be a Budget or None for {method!r}, got {budget!r}")
    if replicates != 1:
        raise ValueError(f"replicates must be 1 with a Filter, got {replicates!r}")
    return budget, budget.budget


def _relation(sampling: Sampling, budget: Budget | None) -> str:
    allowed = sampling.relations
    if budget is None:
        return allowed[0]
    if budget.relation not in allowed:
        raise IncompatibleAccounting(
            f"{sampling!r} is accounted under {' or '.join(allowed)}, but the budget's "
            f"relation is {budget.relation!r}: {PAIRS}"
        )
    return budget.relation


def _start(name: str, start: Any, d: int, replicates: int) -> np.ndarray:
    check_int("replicates", replicates, low=1)
    w = check_finite(name, check_reals(name, start))
    if w.shape not in ((d,), (replicates, d)):
        raise ValueError(f"{name} must have shape ({d},) or ({replicates}, {d}), got {w.shape}")
    if not largest(w) <= LARGEST_ITERATE:
        raise ValueError(f"{name} must be at most {LARGEST_ITERATE:g} in size, got {largest(w):g}")
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
        warn_caller(
            f"delta = {budget.delta:g} is not below 1/n = {1.0 / facts.n:g}: releasing one record "
            "in the clear would satisfy it"
        )
