"""Every visible answer has been charged, for any method, callback or copy."""

import copy
import math
import os
import pickle
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import pytest

import dpanalysis as dpa
from dpanalysis import methods as M
from dpanalysis.methods.base import Method, Step
from dpanalysis.privacy.budget import Filter, Plan
from dpanalysis.privacy.events import Pure
from dpanalysis.privacy.mechanisms import SystemRandom
from dpanalysis.privacy.oracle import PrivateOracle

BUDGET = dpa.Budget(1.0, 1e-5)
BOUND = dpa.RowBound(2, 3.0**0.5)


def logistic(n=200, d=3):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, size=(n, d))
    y = np.where(X @ np.arange(1.0, d + 1.0) > 0.0, 1.0, -1.0)
    return dpa.ERM(X, y, dpa.losses.Logistic(), dpa.regularizers.L2(0.1), BOUND)


ONE_SHOT = {
    "output": M.OutputPerturbation("gradient_descent", passes=3),
    "objective": M.ObjectivePerturbation(),
    "genetic": M.GeneticSearch(population=6, parents=2, generations=3),
}


@pytest.mark.parametrize("name", ONE_SHOT)
def test_a_callback_sees_only_what_has_been_charged(name):
    """A run inside the callback of another run finds the charge of that run in the filter."""
    problem, guard = logistic(), Filter(dpa.Budget(1.0))
    seen = []

    def nested(iteration, w):
        seen.append(guard.spent)
        with suppress(dpa.PrivacyBudgetExceeded):
            dpa.minimize(problem, ONE_SHOT[name], guard, rng=len(seen), callback=None)

    dpa.minimize(problem, ONE_SHOT[name], guard, rng=0, callback=nested)
    assert seen and seen[0] > 0.0
    assert guard.spent <= guard.limit * (1 + 1e-9)


@pytest.mark.parametrize("name", ONE_SHOT)
def test_a_callback_that_raises_has_seen_what_was_paid(name):
    """An answer kept through the traceback has been charged to the filter."""
    problem, guard = logistic(), Filter(dpa.Budget(1.0))

    class Stop(Exception):
        pass

    def raises(iteration, w):
        raise Stop

    with pytest.raises(Stop):
        dpa.minimize(problem, ONE_SHOT[name], guard, rng=0, callback=raises)
    assert guard.spent > 0.0


@pytest.mark.parametrize("size", [1e251, 1e308])
@pytest.mark.parametrize("name", [*ONE_SHOT, "descent", "search"])
def test_a_start_at_which_a_record_could_overflow_is_refused(name, size, monkeypatch):
    """Refused before any planning or data access: only one of two neighbours might diverge."""
    methods = {
        **ONE_SHOT,
        "descent": M.GradientDescent(0.1, 2, mechanism="gaussian"),
        "search": M.LineSearchGD(),
    }
    problem = logistic()
    monkeypatch.setattr(problem, "gradient_sum", lambda *a, **k: pytest.fail("looked"))
    with pytest.raises(ValueError, match="w0 must be at most 1e\\+250"):
        dpa.minimize(problem, methods[name], BUDGET, w0=np.full(3, size), rng=0)


def test_a_query_at_a_point_beyond_the_limit_is_refused_and_not_charged():
    problem = logistic()
    facts = problem.facts("replace_one")
    oracle = dpa.privacy.oracle.PrivateOracle(
        problem, facts, None, dpa.privacy.mechanisms.spawn(0, 1)
    )
    for w in (np.full(3, 1e251), np.full(3, np.nan)):
        with pytest.raises(ValueError):
            oracle.ask(dpa.privacy.queries.NoisyHessian(w, 1.0), dpa.Full())
    assert len(oracle.ledger) == 0


# --- a method that keeps its batch open ---


@dataclass(frozen=True, repr=False)
class Leaky(Method):
    """Yields inside its batch, so that user code runs while it is open."""

    def prepare(self, facts, budget, accountant):
        return 1.0

    def events(self, facts, plan):
        return [dpa.privacy.facts.gradient_event(facts, dpa.Full(), "gaussian", plan)]

    def run(self, w, oracle, plan):
        with oracle.batch(dpa.Full(), [oracle.gradient_event(dpa.Full(), "gaussian", 1.0)]) as b:
            yield Step(b.gradient(w, "gaussian", 1.0))


def test_no_user_code_runs_inside_a_batch():
    with pytest.raises(RuntimeError, match="yields a step while its batch is open"):
        dpa.minimize(logistic(), Leaky(), dpa.Budget(50.0, 1e-5), rng=0)


class PartlyExact(Leaky):
    """Plans a noisy answer, and also requests an exact one."""

    def run(self, w, oracle, plan):
        for scale in (plan, 0.0):
            w = oracle.gradient(w, dpa.Full(), "gaussian", scale)
            yield Step(w)


def test_an_exact_answer_beside_noisy_ones_is_refused():
    """The plan contains noise, so exact answers are refused even without a budget."""
    with pytest.raises(dpa.PrivacyBudgetExceeded, match="without noise") as refusal:
        dpa.minimize(logistic(), PartlyExact(), None, rng=0)
    assert len(refusal.value.partial.ledger) == 1


class AsksTwice(Leaky):
    """Requests one answer more than planned."""

    def run(self, w, oracle, plan):
        for _ in range(2):
            w = oracle.gradient(w, dpa.Full(), "gaussian", plan)
            yield Step(w)


def test_a_run_refused_by_its_plan_raises_with_its_partial_result():
    with pytest.raises(dpa.PrivacyBudgetExceeded, match="nothing is left") as refused:
        dpa.minimize(logistic(), AsksTwice(), dpa.Budget(50.0, 1e-5), rng=0)
    partial = refused.value.partial
    assert partial.status == "budget exceeded" and partial.iterations == len(partial.ledger) == 1


class Unplanned(M.AdaptiveMethod):
    """Requests a noisy answer without a plan."""

    together = False

    def prepare(self, facts, budget, accountant):
        return 1.0

    def iteration(self, facts, plan):
        return [dpa.privacy.facts.gradient_event(facts, dpa.Full(), "gaussian", plan)]

    def run(self, w, oracle, plan):
        yield Step(oracle.gradient(w, dpa.Full(), "gaussian", plan))


def test_noise_without_a_plan_or_a_filter_promises_nothing():
    """The events depend on answers, so their finite cost is no guarantee."""
    result = dpa.minimize(logistic(), Unplanned(), None, rng=0)
    assert len(result.ledger) == 1 and not result.private and result.epsilon(1e-5) == math.inf
    assert dpa.minimize(logistic(), Unplanned(), dpa.Budget(50.0, 1e-5), rng=0).private


# --- copies ---


def pickled(guard):
    return pickle.loads(pickle.dumps(guard))


@pytest.mark.parametrize(
    "guard",
    [
        Filter(dpa.Budget(1.0)),
        Filter(dpa.Budget(1.0, 1e-5), order=32.0),
        Filter(dpa.Budget.zcdp(1.0)),
        Plan([Pure(0.5)], dpa.Budget(1.0)),
    ],
    ids=repr,
)
@pytest.mark.parametrize(
    "twin", [copy.copy, copy.deepcopy, lambda g: pickle.loads(pickle.dumps(g))]
)
def test_a_copy_of_a_guard_spends_nothing(guard, twin):
    """A copy, in the same or another process, could grant the same budget again."""
    made = twin(guard)
    assert repr(made) == repr(guard) and made.can_spend(Pure(0.5)) == guard.can_spend(Pure(0.5))
    with pytest.raises(RuntimeError, match="is a copy"):
        made.spend(Pure(0.5))
    assert made.budget == guard.budget


def test_a_copy_of_a_filter_does_not_tell_the_seeds_of_the_noise():
    """With the initial state of a generator its noise can be computed and subtracted."""
    result = dpa.minimize(logistic(), M.AdaptiveGD(rho=5e-3, selection_rho=5e-3), BUDGET, record=())
    states = [state for state, _ in result.guard._seeds]
    assert states and not any(state in pickle.dumps(result) for state in states)


def test_what_was_released_without_a_guard_stays_in_the_ledger():
    """Its noise stays exact if that of the earlier process was."""
    problem = logistic()
    for noise in ("exact", "floating point"):
        oracle = PrivateOracle(problem, problem.facts("replace_one"), None, [SystemRandom()])
        oracle.charge_again([(Pure(0.5), 3)], noise)
        assert oracle.ledger.runs == ((Pure(0.5), 3),) and oracle.ledger.noise == noise


FORKS = """
import os, signal, tempfile, threading
import numpy as np
import dpanalysis as dpa
from dpanalysis.privacy import Filter, Plan, mechanisms
from dpanalysis.privacy.events import Pure
from dpanalysis.privacy.oracle import PrivateOracle

X = np.eye(3)[[0, 1, 2, 0]]
problem = dpa.ERM(X, [1, -1, 1, 1], dpa.losses.Logistic(), row_bound=dpa.RowBound(1, 1.0))
facts, w = problem.facts("replace_one"), np.zeros(3)


def in_a_fork(ask):
    out, into = os.pipe()
    child = os.fork()
    if not child:
        signal.alarm(10)  # a child that waits for a lock ends
        try:
            said = f"answered: {ask()}"
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(into, said.encode())
        os._exit(0)
    os.close(into)
    said = os.read(out, 1 << 16).decode()
    os.close(out), os.waitpid(child, 0)
    return said


def refuses(what, ask):
    said = in_a_fork(ask)
    assert said.startswith("RuntimeError") and what in said, said


for guard in (Filter(dpa.Budget(1.0)), Plan(Pure(1.0), dpa.Budget(1.0))):
    held = threading.Event()

    def hold():
        with guard._lock:
            held.set()
            release.wait()

    release, thread = threading.Event(), threading.Thread(target=hold, daemon=True)
    thread.start()
    held.wait()  # a lock that another thread holds is never released in the child
    for _ in range(2):
        refuses("is a copy", lambda: guard.spend(Pure(1.0)))
    refuses("is a copy", lambda: guard.claim_seed(3))
    assert in_a_fork(lambda: guard.can_spend(Pure(1.0))) == "answered: True"
    release.set()
    thread.join()
    guard.spend(Pure(1.0))
    guard.claim_seed(3)
refuses("is a copy", Filter(dpa.Budget(1.0)).branch)

for rng in (0, "os"):
    oracle = PrivateOracle(problem, facts, Filter(dpa.Budget(9.0)), mechanisms.spawn(rng, 1))
    event = oracle.gradient_event(dpa.Full(), "laplace", 1.0)
    with oracle.batch(dpa.Full(), [event, event]) as batch:
        refuses("in another process", lambda: batch.gradient(w, "laplace", 1.0))
        query = dpa.privacy.queries.NoisyValue(w, 1.0, 1.0)
        refuses("in another process", lambda: batch.ask(query))
        batch.gradient(w, "laplace", 1.0)
for guard in (None, Plan(event, None)):
    oracle = PrivateOracle(problem, facts, guard, mechanisms.spawn(0, 1))
    refuses("in another process", lambda: oracle.gradient(w, dpa.Full(), "laplace", 1.0))
    oracle.gradient(w, dpa.Full(), "laplace", 1.0)

# A run that a callback forks goes on in one process only.
method, runs = dpa.methods.GradientDescent(0.1, 3), []
def fork(iteration, w):
    if iteration == 1 and not runs:
        runs.append(os.fork())
try:
    result = dpa.minimize(problem, method, dpa.Budget(1.0), rng=0, callback=fork)
except RuntimeError as error:
    os._exit(7 if "another process" in str(error) and runs == [0] else 8)
assert result.iterations == 3 and os.waitstatus_to_exitcode(os.waitpid(runs[0], 0)[1]) == 7

# One that leaves a run later than its parent does not write what it knows over the file.
folder = tempfile.TemporaryDirectory()
kept = os.path.join(folder.name, "run")
def leave(iteration, w):
    if iteration == 1:
        out, into = os.pipe()
        runs[:] = os.fork(), into
        if not runs[0]:
            os.close(into), os.read(out, 1)
            raise SystemExit
try:
    dpa.minimize(problem, method, dpa.Budget(1.0), rng="os", callback=leave, checkpoint=kept)
except SystemExit:
    os._exit(0)
os.close(runs[1]), os.waitpid(runs[0], 0)
more = []
again = lambda iteration, w: more.append(iteration)
dpa.minimize(problem, method, dpa.Budget(1.0), rng="os", callback=again, resume=kept)
assert not more

# With a budget of its own a child runs as ever, whatever other threads did at its birth.
busy = threading.Event()
def spawn():
    source = np.random.default_rng(0)
    while not busy.is_set():
        mechanisms.spawn(source, 20)
thread = threading.Thread(target=spawn)
thread.start()
for _ in range(10):
    assert in_a_fork(lambda: len(mechanisms.spawn(0, 1))) == "answered: 1"
busy.set()
thread.join()
said = in_a_fork(lambda: dpa.minimize(problem, method, dpa.Budget(1.0), rng=0).epsilon())
assert said == "answered: 1.0", said
print("all refused")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_fork_spends_nothing_and_answers_nothing():
    """Otherwise every worker would have the whole budget and the same noise."""
    options = ["-W", "ignore:This process:DeprecationWarning"]  # forks beside threads on purpose
    done = subprocess.run(
        [sys.executable, *options, "-c", FORKS], capture_output=True, text=True, timeout=120
    )
    assert done.stdout == "all refused\n", done.stdout + done.stderr


def test_a_branch_of_a_filter_cannot_be_used_for_runs():
    guard = Filter(dpa.Budget(1.0))
    guard.spend(Pure(0.25))
    branch = guard.branch()
    branch.spend(Pure(0.5))
    assert (guard.spent, branch.spent) == (0.25, 0.75)
    with pytest.raises(TypeError, match="branch of a filter"):
        dpa.minimize(logistic(), ONE_SHOT["output"], branch, rng=0)


def test_a_filter_adds_costs_without_drift():
    """A plain sum would lose all small costs after a large one."""
    guard = Filter(dpa.Budget(2.0))
    guard.spend(Pure(1.0))
    small = Pure(2.0**-54)  # each is lost when added to 1
    for _ in range(1 << 12):
        guard.spend(small)
    assert guard.spent + guard._compensation == 1.0 + 2.0**-42
