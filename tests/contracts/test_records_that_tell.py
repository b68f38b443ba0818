"""Former leaks through one record or a user's error beyond the charged cost, all fixed."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
import scipy.sparse as sp

import dpanalysis as dpa
from dpanalysis import privacy
from dpanalysis.methods import Method, Step
from dpanalysis.privacy import Filter, Poisson, WithoutReplacement, epsilon, mechanisms, queries
from dpanalysis.privacy.events import Event, Gaussian, Pure, Repeated, Sampled
from dpanalysis.privacy.facts import gradient_event
from dpanalysis.privacy.oracle import PrivateOracle

ADD = "add_or_remove_one"
BOUND = dpa.RowBound(2, 1.0)


class OwnHinge(dpa.losses.Hinge):
    """A loss without compiled kernel, whose derivative jumps."""


def test_an_added_record_changes_no_other_term():
    """Rows whose margin is 1 or just below, depending on the order of additions."""
    rng = np.random.default_rng(0)
    tried = 0
    while tried < 8:
        x = rng.normal(size=20)
        x /= np.linalg.norm(x) * 1.000001
        w = rng.normal(size=20)
        w *= (1 + rng.integers(-3, 4) * 2.0**-53) / (x @ w)
        if len({bool(z >= 1) for z in (np.tile(x, (7, 1)) @ w[None].T).ravel()}) < 2:
            continue
        tried += 1
        for n in (3, 7, 4096 * 5):
            sums = [
                dpa.ERM(np.tile(x, (k, 1)), np.ones(k), OwnHinge(), row_bound=BOUND)
                for k in (n, n + 1)
            ]
            moved = np.linalg.norm(sums[1].gradient_sum(w[None]) - sums[0].gradient_sum(w[None]))
            assert moved <= sums[0].facts(ADD).record_sensitivity(2)


def labeled(ones):
    y = np.ones(1000)
    y[:ones] = -1.0
    return dpa.ERM(np.ones((1000, 1)), y, dpa.losses.HuberizedHinge(1.0), None, BOUND)


@pytest.mark.parametrize("far", [1e13, 2.0**53])
def test_a_descent_does_not_start_where_it_rounds(far):
    method = dpa.methods.OutputPerturbation("gradient_descent", passes=50, step_size=1.0)
    with pytest.raises(ValueError, match="start is too far away"):
        dpa.minimize(labeled(500), method, dpa.Budget(1.0), w0=np.array([far]), rng=0)
    assert dpa.minimize(labeled(500), method, dpa.Budget(1.0), w0=np.array([9.0]), rng=0).private


@pytest.mark.parametrize("kind", ["value", "min", "decrease"])
def test_the_noise_comes_before_a_large_penalty(kind):
    """Noise rounded by a penalty of 2^53 times its size would leave one answer per data set."""
    w = np.array([np.nextafter(2.0**26.5, math.inf)])
    points = np.array([w, w])
    query = {
        "value": queries.NoisyValue(w, 2.0, 0.5),
        "min": queries.NoisyMin(points, 2.0, 1.0),
        "decrease": queries.FirstDecrease(
            queries.Ray(w, np.zeros(1), np.ones(1)), np.zeros(1), 2.0, "laplace", 1.0, 1.0
        ),
    }[kind]
    seen = []
    for last in (0.5, 1.5):
        y = np.full(1000, math.sqrt(2.0))
        y[0] = math.sqrt(2.0 * last)
        penalty = dpa.regularizers.L2(2.0)
        problem = dpa.ERM(np.zeros((1000, 1)), y, dpa.losses.SquaredError(), penalty, BOUND)
        facts = problem.facts("replace_one")
        oracle = PrivateOracle(problem, facts, None, mechanisms.spawn(0, 1))
        seen.append({oracle.ask(query, dpa.Full()) for _ in range(60)})
    assert len(seen[0]) > 1 and seen[0] == seen[1]


@dataclass(frozen=True)
class Epochs(WithoutReplacement):
    """Returns the first rows, but is accounted as a random draw."""

    def draw(self, n, random):
        return np.arange(self.m)


def test_a_scheme_with_a_draw_of_its_own_is_refused():
    with pytest.raises(TypeError, match="sampling must be"):
        dpa.methods.SGD(1.0, 1, Epochs(10), None)
    problem = labeled(500)
    oracle = PrivateOracle(problem, problem.facts("replace_one"), None, mechanisms.spawn(0, 1))
    with pytest.raises(TypeError, match="sampling must be"), oracle.batch(Epochs(10), []):
        pass


def test_callbacks_and_records_cannot_change_iterates():
    def in_place(problem, w):
        w -= 1.0
        return w[:, 0]

    method = dpa.methods.GradientDescent(0.1, 3)
    for look in ({"record": [in_place]}, {"callback": lambda k, w: in_place(None, w)}):
        with pytest.raises(ValueError, match="read-only"):
            dpa.minimize(labeled(500), method, dpa.Budget(1.0), rng=0, **look)


def test_bounds_whose_sum_overflows_are_refused():
    X = np.full((1798, 1), 1e305)
    problem = dpa.ERM(X, np.ones(1798), dpa.losses.Hinge())
    method = dpa.methods.SGD(1e-200, 1, dpa.Full(), dpa.clipping.Flat(1.0005e305))
    with pytest.raises(ValueError, match="another unit"):
        dpa.minimize(problem, method, dpa.Budget(1.0, 1e-5), rng=0)


def test_a_subnormal_sparse_row_is_a_row_like_any():
    X = np.full((50, 2), 0.5)
    X[0] = 1e-310
    for bound, rule in ((BOUND, None), (None, dpa.clipping.Flat(1.0))):
        problem = dpa.ERM(sp.csr_array(X), np.ones(50), dpa.losses.Logistic(), None, bound)
        method = dpa.methods.SGD(1.0, 2, dpa.Full(), rule)
        assert dpa.minimize(problem, method, dpa.Budget(1.0, 1e-3), rng=0).status == "finished"


class Fourth(dpa.losses.Loss):
    """Fourth power of the margin by Python's math, which raises an error on overflow."""

    classification, lipschitz = True, math.inf

    def value(self, z, y):
        return np.vectorize(lambda z, y: math.pow(1.0 - y * z, 4), otypes=[float])(z, y)

    def derivative(self, z, y):
        return np.vectorize(lambda z, y: -4.0 * y * math.pow(1.0 - y * z, 3), otypes=[float])(z, y)


@pytest.mark.slow
def test_a_formula_that_fails_at_one_record_raises_nothing():
    X = np.random.default_rng(0).uniform(-1, 1, (200, 1))
    X[0] = 1e100
    problem = dpa.ERM(X, np.where(X[:, 0] > 0, 1.0, -1.0), Fourth())
    search = dpa.methods.LineSearchGD(iterations=2)
    assert dpa.minimize(problem, search, dpa.Budget(1.0, 1e-6), rng=0).status == "finished"
    method = dpa.methods.GeneticSearch(generations=2)
    assert dpa.minimize(problem, method, dpa.Budget(1.0), rng=0).status == "finished"


@pytest.mark.parametrize("store", [np.asarray, sp.csr_array])
def test_empty_batches_are_accepted(store):
    problem = dpa.ERM(store(np.ones((3, 1))), np.ones(3), dpa.losses.Logistic(), row_bound=BOUND)
    method = dpa.methods.LineSearchSGD(Poisson(0.05), rho=0.02, epsilon=0.2, iterations=3)
    for seed in range(5):
        dpa.minimize(problem, method, dpa.Budget(2.0, 0.1, ADD), rng=seed)


class Early(Method):
    """Plans a hundred answers, and stops at the first negative one."""

    def prepare(self, facts, budget, accountant):
        return 100.0 * facts.gradient_sensitivity(self.sampling, 1) / budget.limit

    def events(self, facts, plan):
        return [gradient_event(facts, self.sampling, "laplace", plan)] * 100

    def run(self, w, oracle, plan):
        for _ in range(100):
            gradient = oracle.gradient(w, self.sampling, "laplace", plan)
            yield Step(w)
            if gradient[0] < 0.0:
                return


def test_a_run_that_ends_itself_costs_what_was_planned():
    results = [dpa.minimize(labeled(500), Early(), dpa.Budget(1.0), rng=s) for s in range(5)]
    assert min(result.iterations for result in results) < 50
    assert all(result.epsilon() == pytest.approx(1.0) for result in results)


class Greedy(Early):
    """Without a budget: plans noise of 1000, but requests answers with noise .001."""

    def prepare(self, facts, budget, accountant):
        return 1e3

    def run(self, w, oracle, plan):
        yield Step(w - oracle.gradient(w, self.sampling, "laplace", 1e-3))


def test_a_run_without_a_budget_keeps_to_what_it_planned():
    with pytest.raises(dpa.PrivacyBudgetExceeded, match="was not planned here"):
        dpa.minimize(labeled(500), Greedy(), None, rng=0)


class Twice(Gaussian):
    """An event that costs twice a Gaussian release."""

    def zcdp_cost(self):
        return 2.0 * super().zcdp_cost()

    def rdp_cost(self, orders):
        return 2.0 * super().rdp_cost(orders)


class Refund(Event):
    """An event with a negative cost."""

    def pure_cost(self):
        return -5.0


def test_user_defined_events_are_accounted_by_their_own_costs():
    one, two = Twice(1.0, 1.0), Repeated(Gaussian(1.0, 1.0), 2)
    least = epsilon([two], 1e-5, "replace_one", "pld")
    assert epsilon([one], 1e-5, "replace_one", "rdp") >= least
    sampled = [Sampled(Poisson(0.1), [event]) for event in (one, two)]
    assert epsilon([sampled[0]], 1e-5, ADD, "rdp") >= epsilon([sampled[1]], 1e-5, ADD, "pld")
    with pytest.raises(ValueError, match="an event must cost 0 or more"):
        Filter(dpa.Budget(1.0)).spend(Refund())


class RenyiRefund(Event):
    """An event with a negative cost in one notion alone, at large orders."""

    def rdp_cost(self, orders):
        return np.where(np.asarray(orders) > 10.0, -1.0, 1.0)


@pytest.mark.parametrize("refund", [Refund(), RenyiRefund()])
@pytest.mark.parametrize(
    "ask",
    [
        lambda refund: epsilon([refund, Pure(1.5)], 0.0, ADD),
        lambda refund: privacy.fits([refund, Pure(1.5)], dpa.Budget(1.0)),
        lambda refund: privacy.Plan([refund, Pure(1.5)], dpa.Budget(1.0)),
        lambda refund: Sampled(Poisson(0.1), [refund, Pure(1.5)]),
        lambda refund: privacy.Ledger(ADD).record(refund),
    ],
)
def test_no_event_pays_for_another(refund, ask):
    with pytest.raises(ValueError, match="an event must cost 0 or more"):
        ask(refund)


def test_no_event_pays_for_another_at_the_order_of_a_filter_alone():
    class AtFour(Event):
        def rdp_cost(self, orders):
            return np.where(np.asarray(orders) == 4.0, -1.0, 1.0)

    guard = Filter(dpa.Budget(9.0, 1e-5), order=4.0)
    with pytest.raises(ValueError, match=r"an event must cost 0 or more, .* it costs -1.0"):
        guard.spend(AtFour())
    assert guard.spent == 0.0


@pytest.mark.parametrize("store", [np.asarray, sp.csr_array])
def test_no_setting_of_numpy_tells_of_a_tiny_mean(store):
    """The only record with a feature made a sum of 1e-310, which underflows when divided by n."""
    X = np.zeros((9, 2))
    X[4, 1] = 1e-310
    problem = dpa.ERM(store(X), np.ones(9), dpa.losses.Logistic(), row_bound=BOUND)
    oracle = PrivateOracle(problem, problem.facts("replace_one"), None, [0])
    with np.errstate(all="raise"):
        oracle.gradient(np.zeros((1, 2)), dpa.Full(), "gaussian", 1.0)


@pytest.mark.parametrize("kind", ["decrease", "min", "gradient"])
def test_overflow_outside_of_runs_causes_no_warning(kind):
    """A record has infinite loss or prediction; in ``minimize`` warnings are silenced."""
    X, w = np.array([[1.0], [1e200]]), np.array([1e200])
    bound = dpa.RowBound(2, 1.0, "clip")
    problem = dpa.ERM(X, [1.0, -1.0], dpa.losses.SquaredError(), row_bound=bound)
    oracle = PrivateOracle(problem, problem.facts(ADD), None, [mechanisms.random_source(0)])
    ray = queries.Ray(w, np.ones(1), np.array([2.0, 1.0]))
    if kind == "gradient":
        answer = oracle.gradient(w, dpa.Full(), "gaussian", 1.0, dpa.clipping.Flat(1.0))
        assert np.isfinite(answer).all()
        return
    query = queries.NoisyMin(ray, 1.0, 1.0)
    if kind == "decrease":
        query = queries.FirstDecrease(
            ray, np.zeros(2), 1.0, "laplace", 1.0, 2.0, query="difference_clip"
        )
    assert oracle.ask(query, dpa.Full()) in (0, 1, None)
