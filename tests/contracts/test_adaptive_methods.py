"""Tests for every adaptive method listed here."""

import dataclasses
import math
from collections import Counter

import numpy as np
import pytest
from scipy import sparse

import dpanalysis as dpa
from dpanalysis.experiments import loop
from dpanalysis.privacy.budget import Filter, Plan
from dpanalysis.privacy.events import (
    AboveThreshold,
    BoundedRange,
    Gaussian,
    Pure,
    Repeated,
    Sampled,
)

M = dpa.methods
ADD, REPLACE = "add_or_remove_one", "replace_one"
DELTA = 1e-4

# Relation, epsilon, method, with noise for some iterations of the small problem below.
# All searches start with the same noise, so that their Renyi curves are computed once.
METHODS = {
    "sgd": (ADD, 3.0, M.LineSearchSGD(dpa.Poisson(0.3), rho=0.02, epsilon=0.2)),
    "sgd, fresh batch": (
        ADD,
        3.0,
        M.LineSearchSGD(dpa.Poisson(0.3), rho=0.02, epsilon=0.2, fresh_batch=True),
    ),
    "sgd, fixed size": (
        REPLACE,
        8.0,
        M.LineSearchSGD(dpa.WithoutReplacement(60), rho=0.02, epsilon=0.2, clip_decay=0.05),
    ),
    "sgd, always": (
        ADD,
        8.0,
        M.LineSearchSGD(dpa.Full(), rho=0.02, epsilon=0.2, adapt="always", clip_decay=0.1),
    ),
    "sgd, gaussian": (
        ADD,
        8.0,
        M.LineSearchSGD(
            dpa.Full(), rho=0.02, epsilon=0.2, noise="gaussian", max_queries=4, growth=0.0
        ),
    ),
    "line search": (REPLACE, 8.0, M.LineSearchGD(rho=0.02, epsilon=0.2)),
    "line search, differences": (
        ADD,
        8.0,
        M.LineSearchGD(rho=0.02, epsilon=0.2, query="difference_clip"),
    ),
    "agd": (ADD, 8.0, M.AdaptiveGD(rho=0.02, selection_rho=0.02)),
    "agd, exponential": (
        REPLACE,
        8.0,
        M.AdaptiveGD(rho=0.02, selection_rho=0.02, noise="exponential"),
    ),
}
ZCDP = ("line search", "agd", "agd, exponential")  # full batches, without Gaussian searches


@pytest.fixture(params=METHODS)
def name(request):
    return request.param


def logistic(n=200, d=3, seed=0, convert=np.asarray, y=None, penalty=0.01):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, size=(n, d))
    labels = np.where(X @ np.arange(1.0, d + 1.0) > 0.0, 1.0, -1.0) if y is None else y
    return dpa.ERM(convert(X), labels, dpa.losses.Logistic(), dpa.regularizers.L2(penalty))


def run(name, problem=None, **options):
    relation, epsilon, method = METHODS[name]
    budget = dpa.Budget(epsilon, DELTA, relation)
    problem = logistic() if problem is None else problem
    return dpa.minimize(problem, method, budget, **{"rng": 0, **options})


def spent_by_hand(result):
    """Return the total cost of the batches of a run, in the notion and order of its filter."""
    order = result.guard.order
    counts = Counter(unrolled(result.ledger))
    return math.fsum(count * by_hand(event, order) for event, count in counts.items())


def unrolled(ledger):
    for event in ledger:
        repeated = isinstance(event, Repeated)
        yield from [event.event] * event.count if repeated else [event]


def unsampled(event):
    return event.events if isinstance(event, Sampled) else (event,)


# --- the budget ---


NOTIONS = [*((name, "rdp") for name in METHODS), *((name, "zcdp") for name in ZCDP)]


@pytest.mark.parametrize(("name", "notion"), NOTIONS)
def test_the_filter_has_spent_what_the_events_cost(name, notion):
    """The filter has spent the sum of the costs of the ledger, at its order."""
    relation, epsilon, method = METHODS[name]
    budget = dpa.Budget.zcdp(0.5, relation)
    if notion == "rdp":
        budget = dpa.Budget(epsilon, DELTA, relation)
    result = dpa.minimize(logistic(), method, budget, rng=0)
    guard = result.guard
    assert result.private and guard.notion == notion and result.iterations > 0
    assert guard.spent == pytest.approx(spent_by_hand(result), rel=1e-7)
    assert 0.7 * guard.limit < guard.spent <= guard.limit * (1 + 1e-9)
    if notion == "rdp":
        assert result.epsilon() == pytest.approx(epsilon, rel=1e-9)
    else:
        assert guard.limit == 0.5


def by_hand(event, order):
    """Return the cost of the events of a batch, rho or Renyi at the order, by plain formulas."""
    if order is None:
        return math.fsum(plain(each, None) for each in unsampled(event))
    whole = [math.fsum(plain(e, a) for e in unsampled(event)) for a in range(2, int(order) + 1)]
    if not isinstance(event, Sampled) or event.fraction == 1.0:
        return whole[-1]
    if isinstance(event.sampling, dpa.Poisson):
        return poisson(event, int(order), whole)
    # Without replacement: the smaller of the two proven bounds has its own tests.
    return float(event.rdp_cost(order))


def plain(event, order):
    if isinstance(event, Gaussian):
        rho = 0.5 * (event.sensitivity / event.std) ** 2
        return rho if order is None else order * rho
    if isinstance(event, BoundedRange):
        rho = event.epsilon**2 / 8.0
        return rho if order is None else min(order * rho, pure(order, event.epsilon))
    if isinstance(event, Pure):
        return (
            event.epsilon * math.tanh(event.epsilon / 2)
            if order is None
            else pure(order, event.epsilon)
        )
    assert isinstance(event, AboveThreshold)
    return event.zcdp_cost() if order is None else float(event.rdp_cost(float(order)))


def pure(order, eps):
    """Renyi divergence of randomized response."""
    p = 1.0 / (1.0 + math.exp(-eps))
    return math.log(p**order * (1 - p) ** (1 - order) + (1 - p) ** order * p ** (1 - order)) / (
        order - 1
    )


def poisson(event, order, whole):
    """Gaussian x pure pair, or one of them alone, amplified once: the binomial sum, factor 1."""
    q = event.fraction
    others = [e for e in event.events if not isinstance(e, Gaussian)]
    total = math.fsum(e.pure_cost() for e in others)
    rho = math.fsum(plain(e, None) for e in event.events if isinstance(e, Gaussian))

    def amplified(base, factor):
        terms = [(1 - q) ** (order - 1) * (order * q - q + 1)]
        for k in range(2, order + 1):
            heavy = factor if k > 2 else 1.0
            ways = math.comb(order, k) * q**k * (1 - q) ** (order - k)
            terms.append(heavy * ways * math.exp((k - 1) * base(k)))
        return math.log(math.fsum(terms)) / (order - 1)

    one = amplified(lambda k: k * rho + (pure(k, total) if total else 0.0), 1.0)
    if not others:
        return one
    curve = amplified(lambda k: whole[k - 2], 3.0)  # Zhu, Wang, with the curve of the search
    return min(one, curve, whole[-1])


def test_nothing_is_released_that_the_filter_refuses(name, monkeypatch):
    """A guard that refuses the k-th batch ends the run with the events charged before."""
    relation, _, method = METHODS[name]
    method = dataclasses.replace(method, iterations=50)

    class Stingy(Filter):
        grants, paid = 0, []

        def can_spend(self, event):
            return len(self.paid) < self.grants

        def spend(self, event):
            if not self.can_spend(event):
                raise dpa.PrivacyBudgetExceeded("no more")
            self.paid.append(event)

    monkeypatch.setattr(loop, "Filter", Stingy)
    for grants in (0, 1, 2, 5):
        Stingy.grants, Stingy.paid = grants, []
        result = dpa.minimize(logistic(), method, dpa.Budget(20.0, DELTA, relation), rng=0)
        assert len(Stingy.paid) == grants
        assert list(unrolled(result.ledger)) == Stingy.paid
        if grants == 0:
            assert result.iterations == 0 and (result.w == 0.0).all()


def test_only_a_budget_or_a_filter_is_a_budget(name):
    """A plan or a user-defined class could grant any event, or report 0."""
    relation, _, method = METHODS[name]
    budget = dpa.Budget(2.0, DELTA, relation)

    class Generous(Filter):
        def spend(self, event):
            pass

    for guard in (Plan([], budget), Generous(budget, order=8.0)):
        with pytest.raises(TypeError, match="budget must be a Budget, a Filter or None"):
            dpa.minimize(logistic(), method, guard, rng=0)


def test_two_runs_from_one_seed_do_not_share_a_filter(name):
    """Their noise would be equal, and the difference of their answers would have none."""
    relation, epsilon, method = METHODS[name]
    guard = Filter(dpa.Budget(epsilon, DELTA, relation), order=32.0)
    method = dataclasses.replace(method, iterations=1)
    dpa.minimize(logistic(), method, guard, rng=7)
    spent = guard.spent
    for same in (7, np.random.SeedSequence(7), np.random.default_rng(7)):
        with pytest.raises(ValueError, match="has been used under this filter"):
            dpa.minimize(logistic(), method, guard, rng=same)
    assert guard.spent == spent


@pytest.mark.parametrize(("name", "notion"), NOTIONS)
def test_a_budget_too_small_for_one_iteration_says_which_would_do(name, notion, monkeypatch):
    relation, _, method = METHODS[name]
    problem = logistic()

    def unread(*arguments, **options):
        raise AssertionError("the data were touched")

    monkeypatch.setattr(dpa.ERM, "sums", unread)
    if notion == "zcdp":
        with pytest.raises(dpa.PrivacyBudgetExceeded, match="the planned events cost") as error:
            dpa.minimize(problem, method, dpa.Budget.zcdp(DELTA, relation), rng=0)
        least = float(str(error.value).split("cost ")[1].split(" ")[0])
        enough = dpa.Budget.zcdp(least * 1.001, relation)
    else:
        with pytest.raises(ValueError, match="smallest epsilon that does is") as error:
            dpa.minimize(problem, method, dpa.Budget(0.05, DELTA, relation), rng=0)
        least = float(str(error.value).split()[-1])
        enough = dpa.Budget(least * 1.001, DELTA, relation)
    monkeypatch.undo()
    result = dpa.minimize(problem, method, enough, rng=0)
    assert len(result.ledger.events) >= 1


def test_a_pure_budget_is_refused_before_the_data_are_touched(name):
    relation, _, method = METHODS[name]
    with pytest.raises(ValueError, match=r"budget must have delta > 0 or be zCDP for Gaussian"):
        dpa.minimize(logistic(), method, dpa.Budget(1.0, 0.0, relation), rng=0)


@pytest.mark.parametrize(
    "problem", [dpa.Quadratic([1.0, 2.0]), dpa.Quadratic([1.0], sensitivity=1.0)]
)
def test_a_problem_without_records_is_refused(name, problem):
    method = METHODS[name][-1]
    if isinstance(method.sampling, dpa.WithoutReplacement):
        method = dataclasses.replace(method, sampling=dpa.WithoutReplacement(1))
    with pytest.raises(ValueError, match="problem must consist of records"):
        dpa.minimize(problem, method, None, rng=0)


# --- recorded quantities ---


@pytest.mark.slow
def test_history_holds_what_is_released(name):
    result = run(name)
    steps = result.history["step_size"][1:, 0]
    assert (steps > 0.0).all() and len(steps) == result.iterations
    assert "step sizes" in result.released
    assert np.isfinite(result.history["objective"]).all()


# --- without a budget ---


def test_an_exact_run_is_not_private_and_descends(name):
    method = METHODS[name][-1]
    method = dataclasses.replace(method, iterations=30, clip_loss=5.0)
    result = dpa.minimize(logistic(), method, None, rng=0)
    assert not result.private and result.epsilon() == math.inf and not result.ledger.events
    objective = result.history["objective"][:, 0]
    assert objective[-1] < 0.7 * objective[0]
    if method.sampling == dpa.Full():  # the run is deterministic
        again = dpa.minimize(logistic(), method, None, rng=1)
        np.testing.assert_array_equal(again.w, result.w)


# --- unusual data ---

ODD = {
    "n = 1": lambda: logistic(n=1),
    "d = 1": lambda: logistic(d=1),
    "one class": lambda: logistic(y=np.ones(200)),
    "no penalty": lambda: dpa.ERM(np.ones((5, 2)), np.ones(5), dpa.losses.Hinge()),
    "rows of zeros": lambda: dpa.ERM(np.zeros((50, 2)), np.ones(50), dpa.losses.Logistic()),
    "softmax": lambda: dpa.problems.Softmax(np.eye(3)[[0, 1, 2] * 5], np.array([0, 1, 2] * 5), 3),
}


@pytest.mark.parametrize("odd", ODD)
def test_odd_data_are_fine(name, odd):
    relation, _, method = METHODS[name]
    problem = ODD[odd]()
    if isinstance(method.sampling, dpa.WithoutReplacement):
        m = min(problem.n, method.sampling.m)
        method = dataclasses.replace(method, sampling=dpa.WithoutReplacement(m))
    method = dataclasses.replace(method, iterations=5)
    result = dpa.minimize(problem, method, dpa.Budget(50.0, DELTA, relation), rng=0)
    assert np.isfinite(result.w).all() and result.w.shape == (1, problem.d)


@pytest.mark.slow
def test_sparse_and_single_precision_data_give_the_same_run(name):
    dense = logistic(convert=lambda X: X.round(1).astype(np.float32))
    same = [
        logistic(convert=lambda X: sparse.csr_array(X.round(1).astype(np.float32))),
        logistic(convert=lambda X: X.round(1).astype(np.float32).astype(np.float64)),
    ]
    reference = run(name, dense)
    for problem in same:
        result = run(name, problem)
        assert result.iterations == reference.iterations
        np.testing.assert_allclose(result.w, reference.w, rtol=1e-9, atol=1e-12)


def test_records_that_are_not_numbers_are_refused(name):
    X = np.ones((20, 2))
    X[3, 1] = np.nan
    with pytest.raises(ValueError, match="finite"):
        run(name, dpa.ERM(X, np.ones(20), dpa.losses.Logistic()))


@pytest.mark.parametrize("epsilon", [1e-3, 50.0])
def test_extreme_budgets_with_the_default_costs(name, epsilon):
    """The default costs scale with the budget."""
    relation, _, method = METHODS[name]
    changes = {"rho": None, "iterations": 1}
    changes["selection_rho" if name.startswith("agd") else "epsilon"] = None
    method = dataclasses.replace(method, **changes)
    result = dpa.minimize(logistic(), method, dpa.Budget(epsilon, 1e-8, relation), rng=0)
    assert result.private and result.epsilon() <= epsilon * (1 + 1e-9)
    assert len(result.ledger.events) >= 1
    assert np.isfinite(result.w).all()


def test_empty_poisson_batches_are_charged_and_make_steps():
    problem = logistic(n=3)
    method = M.LineSearchSGD(dpa.Poisson(0.01), rho=0.02, epsilon=0.2, iterations=20)
    with pytest.warns(UserWarning, match="delta"):
        result = dpa.minimize(problem, method, dpa.Budget(5.0, 0.5, ADD), rng=0)
    assert result.evaluations.get("gradient", 0) < result.iterations == 20
    assert len(result.ledger) >= 20
    assert np.isfinite(result.w).all()


# --- errors that these tests detect ---


@pytest.mark.slow
def test_amplifying_a_shared_batch_access_by_access_is_seen(monkeypatch):
    """Errata 002-4: gradient and search of one batch charged as if on separate batches."""

    class Separate(Filter):
        def cost(self, event):
            if isinstance(event, Sampled) and event.fraction < 1.0:
                parts = [Sampled(event.sampling, [e], event.n) for e in event.events]
                return sum(super(Separate, self).cost(part) for part in parts)
            return super().cost(event)

    monkeypatch.setattr(loop, "Filter", Separate)
    relation, _, method = METHODS["sgd"]
    method = dataclasses.replace(method, rho=0.5, epsilon=2.0)
    result = dpa.minimize(logistic(), method, dpa.Budget(20.0, DELTA, relation), rng=0)
    assert spent_by_hand(result) > 1.001 * result.guard.spent


def test_going_on_while_some_order_has_budget_is_seen(monkeypatch):
    """Errata 002-7: the run then exceeds the limit at the order of its filter."""

    single = Filter

    class Several(single):
        def __init__(self, budget, order=None):
            super().__init__(budget, 2.0 * order)
            self.each = [single(budget, k * order) for k in (1.0, 2.0)]

        def can_spend(self, event):
            return any(each.can_spend(event) for each in self.each)

        def spend(self, event):
            self._spent += self.cost(event)
            for each in self.each:
                each._spent += each.cost(event)

    monkeypatch.setattr(loop, "Filter", Several)
    result = run("sgd")
    assert isinstance(result.guard, Several)
    assert spent_by_hand(result) > 1.001 * result.guard.limit


@pytest.mark.slow
def test_division_by_the_size_of_the_batch_is_seen(monkeypatch):
    """Errata 002-6: the first step of an empty or small batch would depend on its size."""
    problem = dpa.ERM(np.ones((4, 1)), np.ones(4), dpa.losses.Logistic())
    method = M.LineSearchSGD(dpa.Poisson(0.5), rho=1e4, epsilon=20.0, iterations=1)

    def gradients():
        budget = dpa.Budget(1e6, 0.1, ADD)
        result = dpa.minimize(problem, method, budget, rng=0, replicates=30, record=())
        return set(np.round(result.w[:, 0] / result.history["step_size"][-1] / 0.25).astype(int))

    # Each of the records drawn has the gradient -1/2; the noise is negligible.
    assert {1, 2, 3} <= gradients() <= {0, 1, 2, 3, 4}

    def divided(self, w, rows, clipping):  # 2 is the expected size
        return 2.0 * self.sums(w, rows=rows, clipping=clipping).gradient / max(len(rows[0]), 1)

    monkeypatch.setattr(dpa.ERM, "gradient_sum", divided)
    assert gradients() <= {0, 2}
