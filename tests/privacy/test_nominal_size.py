"""The public nominal size: data sets of different length share facts, events and noise."""

import dataclasses
import math
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import dpanalysis as dpa
from dpanalysis import clipping, methods
from dpanalysis.audit import strategies
from dpanalysis.privacy import Filter, mechanisms
from dpanalysis.privacy.facts import PublicFacts, check_size
from dpanalysis.privacy.oracle import PrivateOracle
from dpanalysis.privacy.queries import (
    FirstDecrease,
    NoisyDescent,
    NoisyHessian,
    NoisyValue,
    Ray,
    hessian_sensitivity,
    largest_step,
)
from dpanalysis.problems.base import ColumnTable
from dpanalysis.problems.rows import mapped as blocks
from dpanalysis.testing import check_problem
from dpanalysis.tuning import PrivateLoss

ADD, REPLACE = "add_or_remove_one", "replace_one"
FULL, LOGISTIC = dpa.Full(), dpa.losses.Logistic()
BOUND = dpa.RowBound(2, 1.0)


def erm(X, y, size, loss=LOGISTIC):
    return dpa.ERM(X, y, loss, dpa.regularizers.L2(0.05), BOUND, size=size)


def mapped(X, y, size, folder):
    """Write the rows to a file in column order, so that they are read by blocks."""
    file = np.memmap(folder / f"{len(X)}", np.float64, "w+", shape=X.shape, order="F")
    file[:] = X
    return erm(file, y, size)


def chunks(X, y, size):
    da = pytest.importorskip("dask.array", reason="needs Dask")
    return erm(da.from_array(X, chunks=(8, -1)), y, size)


def module(X, y, size):
    torch = pytest.importorskip("torch", reason="needs PyTorch")
    net = torch.nn.Linear(X.shape[1], 2).double()
    with torch.no_grad():
        net.weight.zero_()
        net.bias.zero_()
    return dpa.problems.Module(net, X, y > 0, size=size)


BUILD = {
    "dense": erm,
    "csr": lambda X, y, size: erm(sp.csr_array(X), y, size),
    "float32": lambda X, y, size: erm(X.astype(np.float32), y, size),
    "dask": chunks,
    "softmax": lambda X, y, size: dpa.problems.Softmax(
        X, y > 0, 2, dpa.regularizers.L2(0.05), BOUND, size=size
    ),
    "mlp": lambda X, y, size: dpa.problems.MLP(X, y > 0, (3,), 2, size=size, dtype="float32"),
    "module": module,
    "table": lambda X, y, size: ColumnTable(X, size),
}


def lengths(n=40, d=3, seed=0):
    """Return a data set, one with an additional record, and one with an additional zero row."""
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(n + 1, d)), rng.choice([-1.0, 1.0], n + 1)
    empty = X.copy()
    empty[n] = 0.0
    return (X[:n], y[:n]), (X, y), (empty, y)


def oracle_of(problem, relation=ADD):
    return PrivateOracle(problem, problem.facts(relation), None, mechanisms.spawn(0, 1))


# --- public facts ---


@pytest.mark.parametrize("kind", BUILD)
@pytest.mark.parametrize("size", [21, 40, 1000])
def test_facts_are_those_of_the_size(kind, size):
    first, *others = (BUILD[kind](X, y, size) for X, y in lengths())
    for relation in (ADD, REPLACE):
        facts = first.facts(relation)
        assert (facts.n, facts.record_limit) == (size, 2 * size)
        assert all(facts == other.facts(relation) for other in others)
    assert kind == "table" or {repr(first)} == {*map(repr, others)}


def test_facts_of_a_mapped_file_are_those_of_the_size(tmp_path, monkeypatch):
    """40 rows in 4 blocks, and 41 rows in 5 blocks."""
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 10 * (3 * 8 + blocks.ROW_BYTES))
    first, other = (mapped(X, y, 30, tmp_path) for X, y in lengths()[:2])
    assert first._data.parts < other._data.parts <= first._data.most_parts(60)
    assert first.facts(ADD) == other.facts(ADD)


def test_without_a_size_it_is_the_number_of_rows():
    (X, y), (X_more, y_more), _ = lengths()
    plain, more = erm(X, y, None), erm(X_more, y_more, None)
    assert (plain.size, more.size) == (40, 41)
    assert plain.facts(ADD).record_limit == 41 and plain.facts(ADD).n == 40
    assert plain.facts(ADD) != more.facts(ADD)
    assert "size" not in repr(plain) and repr(erm(X, y, 50)).startswith("ERM(size=50, d=3, ")
    # A given size allows twice as many rows, so more rounding is covered.
    given = erm(X, y, 40)
    w = np.ones(3)
    assert given.value(w) == plain.value(w) and given.rounding > plain.rounding


@pytest.mark.parametrize("kind", [kind for kind in BUILD if kind != "table"])
def test_everything_is_divided_by_the_size(kind):
    (X, y), *_ = lengths()
    plain, half = BUILD[kind](X, y, None), BUILD[kind](X, y, 80)
    w = np.linspace(-1.0, 1.0, plain.d)
    penalty = plain.regularizer
    value, gradient = (0.0, 0.0) if penalty is None else (penalty.value(w), penalty.gradient(w))
    assert half.value(w) - value == pytest.approx((plain.value(w) - value) / 2, rel=1e-12)
    np.testing.assert_allclose(half.gradient(w) - gradient, (plain.gradient(w) - gradient) / 2)
    if hasattr(plain, "hessian"):
        bent = 0.0 if penalty is None else np.diag(penalty.hessian_diagonal(w))
        np.testing.assert_allclose(half.hessian(w) - bent, (plain.hessian(w) - bent) / 2)
        v = w[::-1].copy()
        np.testing.assert_allclose(half.hvp(w, v), half.hessian(w) @ v)
        assert np.linalg.norm(half.gradient(half.solve())) < 1e-9


@pytest.mark.parametrize(("size", "n"), [(1, 3), (20, 41), (0, 1), (-5, 4), (10**400, 4)])
def test_a_size_below_half_of_the_rows_or_beyond_doubles_is_refused(size, n):
    X, y = np.zeros((n, 2)), np.ones(n)
    for build in (erm, BUILD["softmax"], BUILD["mlp"], BUILD["table"]):
        with pytest.raises(ValueError, match=r"size must be (at least half|between 1 and 9007)"):
            build(X, y, size)
    assert check_size(n, n) == n and check_size((n + 1) // 2, n) == (n + 1) // 2
    for wrong in (2.5, "40", True):
        with pytest.raises(TypeError, match="size must be an integer"):
            erm(X, y, wrong)
    with pytest.raises(AttributeError):
        erm(X, y, n).size = 3


@pytest.mark.slow
def test_too_many_chunks_for_the_size_are_refused():
    da = pytest.importorskip("dask.array", reason="needs Dask")
    X, y = np.zeros((1025, 1)), np.ones(1025)
    many = da.from_array(X, chunks=(1, -1))
    with pytest.raises(
        ValueError, match=r"at most 1024 chunks of rows where size is given, got 10"
    ):
        dpa.ERM(many, y, LOGISTIC, None, BOUND, size=1025)
    few = dpa.ERM(many.rechunk((200, -1)), y, LOGISTIC, None, BOUND, size=1025)
    assert few._data.parts <= few._data.most_parts(2050)


# --- runs ---

RULE = clipping.Flat(0.5)
RUNS = {
    "descent": (methods.GradientDescent(0.5, 4), (1.0, 0.0)),
    "momentum": (methods.Nesterov(0.5, 4, 0.05, noise="optimal"), (1.0, 0.0)),
    "gaussian": (methods.GradientDescent(0.5, 4, mechanism="gaussian"), (1.0, 1e-5)),
    "poisson": (methods.SGD(0.5, 4, sampling=dpa.Poisson(0.3), clipping=RULE), (1.0, 1e-5)),
    "pure objective": (methods.ObjectivePerturbation(), (1.0, 0.0)),
    "gaussian objective": (methods.ObjectivePerturbation(), (1.0, 1e-5)),
    "output": (methods.OutputPerturbation(passes=2, batches=4), (1.0, 1e-5)),
    "output of descent": (methods.OutputPerturbation("gradient_descent", passes=3), (1.0, 0.0)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_events_and_noise_are_the_same_for_any_number_of_rows(name):
    method, budget = RUNS[name]
    results = [
        dpa.minimize(erm(X, y, 37), method, dpa.Budget(*budget, ADD), rng=0, record=())
        for X, y in lengths()
    ]
    first, *others = results
    assert first.ledger.events
    for other in others:
        assert other.ledger.events == first.ledger.events and other.planned == first.planned
        assert repr(other.plan) == repr(first.plan)
        assert other.epsilon() == first.epsilon() <= budget[0]


@pytest.mark.parametrize("delta", [0.047, 0.02])
def test_the_warning_about_delta_depends_on_the_size(delta):
    """At delta = 0.047, 22 rows would cause a warning and 20 rows none, without a size."""
    method = methods.GradientDescent(0.5, 1, mechanism="gaussian")

    def warned(n, size):
        problem = erm(np.zeros((n, 2)), np.ones(n), size)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            dpa.minimize(problem, method, dpa.Budget(1.0, delta, ADD), rng=0, record=())
        return len(caught)

    assert {warned(n, 21) for n in (20, 21, 22)} == {0}
    assert {warned(n, 30) for n in (20, 21, 22)} == {int(delta > 1 / 30)}
    assert (warned(20, None), warned(22, None)) == (0, int(delta > 1 / 22))


def test_batches_are_drawn_from_the_rows_that_are_there():
    """At the given rate, from all rows including the last."""
    n, size, rate = 90, 50, 0.25
    problem = erm(np.zeros((n, 1)), np.ones(n), size)
    oracle = oracle_of(problem)
    oracle.gradient(np.zeros((1, 1)), dpa.Poisson(1.0), "gaussian", 0.0)
    assert oracle.evaluations["gradient"] == n
    oracle.evaluations.clear()
    oracle.gradient(np.zeros((1, 1)), FULL, "gaussian", 0.0)
    assert oracle.evaluations["gradient"] == n
    oracle.evaluations.clear()
    for _ in range(400):
        oracle.gradient(np.zeros((1, 1)), dpa.Poisson(rate), "gaussian", 0.0)
    # Six standard deviations: a false alarm below 1e-8.
    drawn = oracle.evaluations["gradient"]
    assert abs(drawn - 400 * n * rate) < 6 * math.sqrt(400 * n * rate * (1 - rate))


@pytest.mark.parametrize("n", [9, 10, 11])
def test_the_size_decides_how_many_batches_an_epoch_may_have(n):
    problem = erm(np.zeros((n, 2)), np.ones(n), 10)
    for batches, allowed in ((10, True), (11, False)):
        method = methods.SGD(0.5, batches, sampling=dpa.BallsInBins(batches), clipping=RULE)
        if allowed:
            dpa.minimize(problem, method, dpa.Budget(1.0, 1e-5, ADD), rng=0, record=())
        else:
            with pytest.raises(ValueError, match="batches must be at most n = 10, got 11"):
                dpa.minimize(problem, method, dpa.Budget(1.0, 1e-5, ADD), rng=0, record=())


@pytest.mark.slow
@pytest.mark.parametrize("sampling", [dpa.WithoutReplacement(5), dpa.WithReplacement(5)])
def test_a_batch_of_fixed_size_needs_the_number_of_rows(sampling):
    (X, y), *_ = lengths()
    method = methods.SGD(0.5, 2, sampling=sampling, clipping=RULE)
    guard = Filter(dpa.Budget(1.0, 1e-5))
    problem = erm(X, y, 41)
    oracle = PrivateOracle(problem, problem.facts(REPLACE), guard, mechanisms.spawn(0, 1))
    with pytest.raises(ValueError, match=r"size must be the number of rows, 40, for With"):
        oracle.gradient(np.zeros(3), sampling, "gaussian", 1e3)
    assert guard.spent == 0.0 and not oracle.is_open
    with pytest.raises(ValueError, match=r"size must be the number of rows"):
        dpa.minimize(problem, method, dpa.Budget(1.0, 1e-5), rng=0)
    assert dpa.minimize(erm(X, y, 40), method, dpa.Budget(1.0, 1e-5), rng=0).private


class Mean(dpa.Problem):
    """A problem of a user who states a nominal size."""

    d, mu, L = 1, 0.0, 0.0

    def __init__(self, x, size, most=None):
        self.x, self.n, self.nominal, self.most = np.asarray(x), len(x), size, most

    def facts(self, relation):
        return PublicFacts(self.nominal, 1, 0.0, 0.0, relation, (1.0, 1.0), max_records=self.most)

    def value(self, w):
        return np.asarray(w)[..., 0] * self.x.sum() / self.nominal

    def gradient(self, w):
        return np.full(np.shape(w), self.x.sum() / self.nominal)

    def gradient_sum(self, w, rows=None, clipping=None):
        rows = [slice(None)] * len(w) if rows is None else rows
        return np.array([[self.x[batch].sum()] for batch in rows])


def test_a_users_problem_states_its_size_and_how_many_records_there_may_be():
    oracle = oracle_of(Mean(np.ones(9), 10, most=12))
    assert oracle.gradient(np.zeros(1), FULL, "gaussian", 0.0) == 0.9
    assert oracle.gradient(np.zeros(1), dpa.Poisson(1.0), "gaussian", 0.0) == 0.9
    for n, most in ((13, 12), (12, None)):
        with pytest.raises(ValueError, match=rf"at most {most or 11} records by its facts, got 1"):
            oracle_of(Mean(np.ones(n), 10, most)).gradient(np.zeros(1), FULL, "gaussian", 1.0)


# --- answers ---


@given(
    kind=st.sampled_from(["dense", "csr", "softmax"]),
    n=st.integers(1, 12),
    extra=st.integers(-4, 6),
    spread=st.floats(0.1, 1e3),
    seed=st.integers(0, 2**20),
)
def test_a_record_more_moves_answers_by_at_most_their_sensitivity(kind, n, extra, spread, seed):
    """Rows far over the bound, any allowed size; the sensitivity is that in the ledger."""
    rng = np.random.default_rng(seed)
    size = max((n + 2) // 2, n + extra)
    pairs = lengths(n, 2, seed)
    problems = [BUILD[kind](spread * X, y, size) for X, y in pairs]
    w = rng.normal(scale=spread, size=problems[0].d)
    facts = problems[0].facts(ADD)
    for other in problems[1:]:
        one, two = oracle_of(problems[0]), oracle_of(other)
        moved = one.gradient(w, FULL, "gaussian", 0.0) - two.gradient(w, FULL, "gaussian", 0.0)
        for order in (1, 2):
            limit = facts.gradient_sensitivity(FULL, order)
            assert np.linalg.norm(moved, order) <= limit * (1 + 1e-9)
        query = NoisyValue(w, 1.5, 0.0)
        limit = NoisyValue(w, 1.5, 1.0).event(facts, FULL).sensitivity
        assert abs(one.ask(query, FULL) - two.ask(query, FULL)) <= limit * (1 + 1e-9)
        if kind != "softmax":
            bent = one.ask(NoisyHessian(w, 0.0), FULL) - two.ask(NoisyHessian(w, 0.0), FULL)
            limit = hessian_sensitivity(facts, FULL)
            assert np.linalg.norm(bent) <= limit * (1 + 1e-9)
        budget = dpa.Budget(1e12, relation=ADD)
        scores = [PrivateLoss(p, 1.5)(w, budget, 0) for p in (problems[0], other)]
        assert abs(scores[0] - scores[1]) <= 1.5 / size * (1 + 1e-6)


def test_an_empty_record_moves_nothing():
    (X, y), _, (empty, y_more) = lengths()
    w = np.ones(3)
    answers = [oracle_of(erm(*data, 40)) for data in ((X, y), (empty, y_more))]
    one, two = (oracle.gradient(w, FULL, "gaussian", 0.0) for oracle in answers)
    np.testing.assert_allclose(one, two, rtol=1e-14)


def test_the_search_divides_by_the_size():
    """Each of two records decreases by 0.05, divided by the size; the threshold is 0.04."""
    points = Ray(np.zeros(1), np.array([-0.1]), np.array([1.0]))
    for size, found in ((2, 0), (3, None)):
        problem = dpa.ERM(np.ones((2, 1)), np.ones(2), LOGISTIC, None, BOUND, size=size)
        query = FirstDecrease(points, np.array([0.04]), 1.0, "laplace", 0.0, 0.0, "difference_clip")
        assert oracle_of(problem).ask(query, FULL) == found


@given(n=st.integers(2, 8), seed=st.integers(0, 2**20), passes=st.integers(1, 4))
def test_descent_contracts_with_twice_as_many_rows_as_the_size(n, seed, passes):
    """At the largest step, with rows of the largest curvature."""
    rng = np.random.default_rng(seed)
    X, y = np.ones((2 * n, 1)), rng.choice([-1.0, 1.0], 2 * n)
    loss = dpa.losses.HuberizedHinge(0.1)
    here, there = (
        dpa.ERM(X[:k], y[:k], loss, dpa.regularizers.L2(1e-3), BOUND, size=n)
        for k in (2 * n, 2 * n - 1)
    )
    facts = here.facts(ADD)
    step, start = largest_step(facts), rng.normal(size=1)
    query = NoisyDescent(start, step, 1, passes, False, "gaussian", 0.0)
    one, two = (oracle_of(problem).ask(query, FULL) for problem in (here, there))
    assert abs(one - two).max() <= query.sensitivities(facts)[0].max() * (1 + 1e-9)
    # From two starts within the smooth part of the hinge, no step increases the distance.
    starts = np.array([0.95, 0.99])
    ends = [
        oracle_of(dpa.ERM(X, X[:, 0], loss, dpa.regularizers.L2(1e-3), BOUND, size=n)).ask(
            NoisyDescent(np.array([w]), step, 1, 1, False, "gaussian", 0.0), FULL
        )
        for w in starts
    ]
    assert abs(ends[0] - ends[1]).max() <= np.ptp(starts) * (1 + 1e-9)


def test_crowded_batches_are_those_of_as_many_rows_as_there_may_be():
    (X, y), *_ = lengths()
    size = 40
    facts = erm(X, y, size).facts(ADD)
    for m in (2, 4):
        query = NoisyDescent(np.zeros(3), 0.5, m, 1, False, "gaussian", 1.0)
        values, weights = query.sensitivities(facts)
        crowded = stats.binom.sf(2 * size / m - 1, 2 * size - 1, 1 / m)
        assert weights[len(values) // 2 :].sum() == pytest.approx(crowded)
        assert 0.4 < crowded < 0.6
        # One record more moves the mean of a crowded batch by twice as much.
        assert (values[len(values) // 2 :] == 2.0 * values[: len(values) // 2]).all()


def test_the_rounding_of_a_descent_reaches_as_far_as_twice_the_gradient():
    """With 2N rows the mean over N may have norm 2; the message states the largest distance."""
    (X, y), *_ = lengths()
    query = NoisyDescent(np.zeros(3), 0.5, 1, 7, False, "gaussian", 1.0)
    for size, reach in ((None, 4.0 * (1 + 1 / 40)), (40, 8.0)):
        facts = dataclasses.replace(erm(X, y, size).facts(ADD), rounding=1.0)
        with pytest.raises(ValueError, match=f"8 steps at up to {reach:g} from 0"):
            query.sensitivities(facts)


def test_the_size_decides_whether_a_minimizer_exists():
    """A misclassified sample has loss at least ln 2 over the size, twice the number of rows."""
    problem = dpa.ERM([[10.0], [1.0]], [1, -1], LOGISTIC, size=4)
    w = problem.solve()  # without the warning that there is no minimizer
    assert math.log(2) / 4 < problem.value(w) < math.log(2) / 2
    assert abs(problem.gradient(w)) < 1e-10


@pytest.mark.parametrize("size", [30, 40, 80])
def test_objective_perturbation_minimizes_the_mean_over_the_size(size):
    (X, y), *_ = lengths()
    problem = erm(X, y, size)
    tilt = np.array([0.1, -0.2, 0.05])
    w, count = problem.minimize_perturbed(tilt, 0.1, 1e-12, float(size))
    total = problem.sums(w, value=False).gradient / size + 0.05 * w + tilt + 0.1 * w
    assert np.linalg.norm(total) < 1e-11
    assert count < 15  # Newton steps


# --- the exact guarantee ---


def delta_of(problems, budget):
    """Return the exact delta at the budget's epsilon of one descent step on two data sets.

    The answer is Gaussian: its mean is the exact step, its standard deviation that in the
    ledger, in each coordinate. Either means or deviations may differ, not both.
    """
    method = methods.GradientDescent(1.0, 1, mechanism="gaussian")
    laws = []
    for problem in problems:
        event = dpa.minimize(problem, method, budget, rng=0, record=()).ledger.events[0]
        mean = dpa.minimize(problem, methods.GradientDescent(1.0, 1), rng=0, record=()).w[0]
        laws.append((mean, event.std))
    (mean, std), (other, less) = laws
    far, epsilon, d = np.linalg.norm(mean - other), budget.epsilon, len(mean)
    if std == less:
        mu = far / std
        if mu == 0.0:
            return 0.0
        law = stats.norm
        return law.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * law.cdf(-mu / 2 - epsilon / mu)
    assert far == 0.0 and std > less
    least = 2 * (epsilon + d * math.log(std / less)) / (less**-2 - std**-2)
    law = stats.chi2(d)
    return law.sf(least / std**2) - math.exp(epsilon) * law.sf(least / less**2)


def test_the_noise_does_not_tell_how_many_rows_there_are():
    """Without a size the noise depends on the number of rows, and delta is above .4."""
    budget = dpa.Budget(1.0, 1e-6, ADD)

    def pair(size, n=10, d=200):
        return [erm(np.zeros((k, d)), np.ones(k), size) for k in (n, n + 1)]

    assert delta_of(pair(10), budget) == delta_of(pair(15), budget) == 0.0
    assert delta_of(pair(None), budget) > 0.4


@pytest.mark.parametrize("size", [6, 10, 11, 25])
def test_the_answer_keeps_delta_where_a_record_moves_it_most(size):
    X, y = np.eye(1, 3).repeat(11, axis=0), np.ones(11)
    problems = [dpa.ERM(X[:k], y[:k], LOGISTIC, None, BOUND, size=size) for k in (10, 11)]
    budget = dpa.Budget(1.0, 1e-6, ADD)
    found = delta_of(problems, budget)
    assert 0.0 < found <= budget.delta * (1 + 1e-9)


# --- other places that set a size ---


@given(st.data())
def test_drawn_neighbours_have_one_size(data):
    one, other = data.draw(strategies.neighbouring_problems(ADD, loss=LOGISTIC))
    assert one.n != other.n and one.facts(ADD) == other.facts(ADD)


def test_the_check_of_problems_knows_nominal_sizes():
    """With a neighbour to compare, it finds facts that depend on the number of rows."""
    (X, y), (X_more, y_more), _ = lengths()
    check_problem(erm(X, y, 50), neighbour=erm(X_more, y_more, 50))
    with pytest.raises(AssertionError, match=r"facts\(\) depends on the records: n, rounding"):
        check_problem(erm(X, y, None), neighbour=erm(X_more, y_more, None))
    with pytest.raises(AssertionError, match="max_records is 8, and n is 9"):
        check_problem(Mean(np.ones(9), 8, most=8))
    with pytest.raises(AssertionError, match="n is 8 and the problem's 9"):
        check_problem(Mean(np.ones(9), 8))


def test_a_dataset_passes_the_size_on():
    data = dpa.datasets.load("breast_cancer")
    assert (data.problem().size, data.problem(size=600).size) == (569, 600)
