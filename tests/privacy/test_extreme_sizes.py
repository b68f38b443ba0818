"""Bounds, clip norms and steps near overflow and underflow are charged in full or refused."""

import ctypes
import dataclasses
import math
import platform
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse

import dpanalysis as dpa
from dpanalysis import privacy
from dpanalysis.privacy.events import (
    BoundedRange,
    Event,
    Gaussian,
    GaussianBound,
    Laplace,
    Pure,
    Repeated,
    Sampled,
)
from dpanalysis.privacy.oracle import PrivateOracle
from dpanalysis.privacy.queries import (
    FirstDecrease,
    LastNoisyIterate,
    NoisyCurvature,
    NoisyDescent,
    NoisyHessian,
    NoisyMin,
    NoisyValue,
    PerturbedMinimum,
    Query,
    Ray,
)

FULL, TINY, ZERO = dpa.Full(), 5e-324, np.zeros(1)
LOGISTIC, SQUARES = dpa.losses.Logistic(), dpa.losses.SquaredError()


def problem_of(X, y, loss=LOGISTIC, radius=None, penalty=None):
    X = np.asarray(X, dtype=float).reshape(len(y), -1)
    bound = None if radius is None else dpa.RowBound(2, radius)
    return dpa.ERM(X, np.asarray(y, dtype=float), loss, penalty, row_bound=bound)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("radius", [1e-165, 2.7e-162, 1e-150, 1e-145, 1e150, 1e155])
def test_radii_neither_underflow_nor_overflow(radius, order):
    """With 1e-165 the sensitivity was 0, so a run that distinguished neighbours cost nothing."""
    problem = dpa.ERM(np.zeros((10, 1)), np.ones(10), LOGISTIC, row_bound=dpa.RowBound(1, radius))
    facts = problem.facts("replace_one")
    assert facts.gradient_bounds[order - 1] == pytest.approx(radius, rel=1e-15)
    assert facts.record_sensitivity(order) >= 2.0 * radius
    exact = float(np.longdouble(radius) ** 2 / 4)  # a quarter: the largest second derivative
    assert facts.hessian_bound == pytest.approx(max(exact, 1e-300), rel=1e-12, abs=0.0)


def test_a_bound_that_underflows_is_refused_and_not_free():
    problem = problem_of(np.ones(4), [1, 1, -1, 1], dpa.losses.Huber(1e-100), radius=1e-280)
    with pytest.raises(ValueError, match="gradient must be at least 1e-250"):
        problem.facts("replace_one").record_sensitivity(2)


RAY = Ray(ZERO, np.array([1.0]), np.array([0.5]))
TINY_RAY = Ray(ZERO, np.array([1.0]), np.array([TINY]))
LONG_RAY = Ray(ZERO, np.array([1.0]), np.array([1e170]))
SHORT_RAY = Ray(ZERO, np.array([1.0]), np.array([1e-100]))


@pytest.mark.parametrize(
    "query",
    [
        NoisyValue(ZERO, 1e307, 1e306),
        NoisyValue(ZERO, TINY, 10.0 * TINY),
        NoisyMin(np.zeros((2, 1)), 1e307, 1e306),
        FirstDecrease(RAY, np.array([1.0]), 1e305, "laplace", 1e305, 1e305),
        FirstDecrease(TINY_RAY, np.array([0.0]), 1.0, "laplace", 0.02, 0.04, query="slope_clip"),
        # The product of the clip and the step is infinite, or 0.
        FirstDecrease(LONG_RAY, np.array([0.0]), 1e150, "laplace", 1.0, 2.0, query="slope_clip"),
        FirstDecrease(SHORT_RAY, np.array([0.0]), 1e-240, "laplace", 1.0, 2.0, query="slope_clip"),
        NoisyHessian(ZERO, 1e305),
        NoisyCurvature(ZERO, 1e305, 1),
        NoisyDescent(ZERO, TINY, 1, 1, False, "gaussian", TINY),
        LastNoisyIterate(ZERO, TINY, 1, 1.0),
    ],
    ids=lambda query: type(query).__name__,
)
def test_what_would_overflow_or_vanish_is_refused_before_it_is_charged(query):
    radius = 1e153 if isinstance(query, (NoisyHessian, NoisyCurvature)) else 1.0
    smooth = isinstance(query, (NoisyDescent, LastNoisyIterate))
    penalty = dpa.regularizers.L2(0.1) if smooth else None
    y, loss = ([-1, 1, 1, 1], LOGISTIC) if smooth else ([0, 1, 0, 1], SQUARES)
    problem = problem_of(np.zeros(4), y, loss, radius, penalty)
    oracle = PrivateOracle(problem, problem.facts("replace_one"), None, [0])
    with pytest.raises(ValueError, match="must be at least 1e-250, and n times it at most 1e300"):
        oracle.ask(query, FULL)
    assert not oracle.ledger.events


def test_the_noise_of_a_curvature_comes_before_the_penalty():
    """Noise added after a penalty of 2^59 was rounded: neighbours shared 1 of 1000 answers."""
    found = []
    for first in (66.0, 63.9):
        rows = np.sqrt(np.r_[first, np.full(9, 63.9)])
        problem = problem_of(rows, np.ones(10), SQUARES, 9.0, dpa.regularizers.L2(2.0**59))
        facts = problem.facts("replace_one")
        answers = [
            PrivateOracle(problem, facts, None, [seed]).ask(NoisyCurvature(ZERO, 16.0, 1), FULL)[0]
            for seed in range(200)
        ]
        found.append(np.unique(np.array(answers) - 2.0**59, return_counts=True))
    assert set(found[0][0]) & set(found[1][0])
    shares = [dict(zip(*each)) for each in found]
    most = max(found[0][0], key=shares[0].get)
    assert shares[1].get(most, 0) >= 0.5 * shares[0][most]


def test_a_query_that_changes_the_shape_of_its_noise_states_its_cost():
    class Quiet(NoisyHessian):
        off_diagonal = 0.0

    problem = problem_of(np.full((3, 3), 0.5), np.ones(3), LOGISTIC, 1.0)
    oracle = PrivateOracle(problem, problem.facts("replace_one"), None, [0])
    with pytest.raises(TypeError, match="Quiet overrides off_diagonal, but its event is that of"):
        oracle.ask(Quiet(np.zeros(3), 10.0), FULL)


def test_a_clip_norm_below_what_a_tiny_row_may_add_is_refused():
    facts = problem_of(np.ones(4), [1, 1, -1, 1]).facts("replace_one")
    with pytest.raises(ValueError, match="clip_norm must be at least 1e-70"):
        facts.record_sensitivity(2, dpa.clipping.Flat(0.99e-70))
    assert facts.record_sensitivity(2, dpa.clipping.Flat(1e-70)) > 0.0


@pytest.mark.parametrize("number", [np.float16, np.float32, np.longdouble, np.asarray])
def test_numbers_of_numpy_are_charged_like_python_s(number):
    """NoisyValue with a float16 clip of 1e-7 had the sensitivity 0, and so no charge."""
    w, C, s = np.zeros(1), number(6e-8), number(0.5)
    pairs = [
        (make(C, s), make(float(C), float(s)))
        for make in (
            lambda C, s: NoisyValue(w, C, s),
            lambda C, s: NoisyMin(np.zeros((2, 1)), C, s),
            lambda C, s: FirstDecrease(RAY, np.zeros(1), C, "laplace", s, s),
            lambda C, s: NoisyHessian(w, s),
            lambda C, s: NoisyDescent(w, s, 1, 2, False, "gaussian", C),
            lambda C, s: PerturbedMinimum("gaussian", s, s, C, s),
        )
    ]
    for count in (4, 50_000_000):
        y = np.ones(4)
        problem = dpa.ERM(
            np.ones((4, 1)), y, LOGISTIC, row_bound=dpa.RowBound(2, 1.0), size=max(4, count)
        )
        facts = problem.facts("replace_one")
        for query, plain in pairs:
            assert query.event(facts, FULL) == plain.event(facts, FULL)


@pytest.mark.parametrize("whole", [np.int8, np.int16, np.asarray])
def test_counts_of_numpy_neither_wrap_nor_depend_on_the_number_of_records(whole):
    """127 passes in int8 wrapped the bound on rounding; 3 passes of 128 records overflowed."""
    query = NoisyDescent(np.zeros(1), 0.05, whole(1), whole(127), False, "gaussian", 0.7)
    assert (type(query.batches), type(query.passes), query.passes) == (int, int, 127)
    costs = []
    for n in (127, 128):
        problem = dpa.ERM(
            np.ones((n, 1)), np.ones(n), LOGISTIC, row_bound=dpa.RowBound(2, 1.0), size=127
        )
        method = dpa.methods.OutputPerturbation("gradient_descent", passes=whole(3))
        budget = dpa.Budget(1.0, 1e-6, "add_or_remove_one")
        costs.append(dpa.minimize(problem, method, budget, rng=0, record=()).epsilon())
    assert costs[0] == costs[1]


def test_facts_and_rules_with_numbers_of_numpy_are_python_s():
    """A product with a float16 is a float16: the bound on a gradient was rounded down."""

    class Loss(dpa.losses.Logistic):
        lipschitz = np.float16(1.0)

    problem = dpa.ERM(np.ones((4, 1)), np.ones(4), Loss(), row_bound=dpa.RowBound(2, 1.0004))
    facts = problem.facts("replace_one")
    assert facts.gradient_bounds == (1.0004, 1.0004)
    problem.loss.__class__.smoothness = np.float32(0.25)
    assert float(problem.hessian_bound) == 0.25 * (1.0004 * 1.0004)
    rule = SimpleNamespace(clip_norm=np.float16(0.3), largest_weight=1.0)
    found = facts.record_sensitivity(2, rule)
    assert (type(found), found) == (float, facts.sum_sensitivity(float(np.float16(0.3))))
    moved = dataclasses.replace(
        facts, gradient_bounds=(np.float16(1.0), np.asarray(1.0)), n=np.int8(4), L=np.float16(0.5)
    )
    assert [type(each) for each in (*moved.gradient_bounds, moved.n, moved.L)] == [
        float, float, int, float,
    ]  # fmt: skip


class Own(Query):
    """A query of a user that keeps what it is given."""

    def __init__(self, clip, times):
        self.clip, self.times = clip, times

    def event(self, facts, sampling):
        return dpa.privacy.events.Gaussian(1.0, 2.0 * self.clip / facts.n)

    def answer(self, records, random):
        return random.normal(), np.int8(self.times)


def test_a_query_of_a_user_is_charged_by_python_s_numbers():
    problem = problem_of(np.ones(100), np.ones(100), radius=1.0)
    spent = []
    for clip in (np.float16(0.3), float(np.float16(0.3))):
        guard = dpa.privacy.Filter(dpa.Budget(1.0, 1e-6))
        oracle = PrivateOracle(problem, problem.facts("replace_one"), guard, [0])
        oracle.ask(Own(clip, 3), FULL)
        assert oracle.evaluations["loss"] == 300
        spent.append(guard.spent)
    assert spent[0] == spent[1]


def test_a_scale_that_changes_after_its_check_changes_nothing():
    scale = np.array(100.0)
    query = NoisyMin(np.zeros((2, 1)), 1.0, scale)
    scale[...] = 0.0
    assert query.scale == 100.0


@pytest.mark.parametrize(
    ("points", "words"),
    [
        (np.ma.masked_array([[1e300]], [[True]]), "masked"),
        (np.array([[1.0 + 2.0j]]), "complex"),
        (np.array([[1.0]], dtype=object), "object"),
        (scipy.sparse.csr_array([[1.0]]), "real numbers"),
    ],
    ids=["masked", "complex", "object", "sparse"],
)
def test_points_that_are_no_real_numbers_are_refused_before_anything_is_spent(points, words):
    problem = problem_of([1.0], [1.0], radius=1.0)
    oracle = PrivateOracle(problem, problem.facts("replace_one"), None, [0])
    with pytest.raises(TypeError, match=f"w must .*{words}"):
        oracle.gradient(points, FULL, "gaussian", 1.0, dpa.clipping.Flat(1.0))
    if words in ("masked", "complex"):  # the constructor of the query refuses the others
        with pytest.raises(TypeError, match=f"w must .*{words}"):
            oracle.ask(NoisyValue(points[0], 1.0, 1.0), FULL)
    assert not oracle.ledger


MODES = {"x86_64": (0x400, 0x800, 0xC00), "aarch64": (0x400000, 0x800000, 0xC00000)}


@pytest.mark.skipif(sys.platform != "linux" or platform.machine() not in MODES, reason="modes")
@pytest.mark.parametrize("mode", range(3))
def test_another_rounding_mode_is_refused_before_anything_is_spent(mode):
    """Rounded down, the product of two factors of 1e300 is finite, and its record was not cut."""
    problem = problem_of([1e300, 1.0], [1.0, 1.0], SQUARES)
    oracle = PrivateOracle(problem, problem.facts("replace_one"), None, [0])
    rounding = ctypes.CDLL("libm.so.6").fesetround
    rounding(MODES[platform.machine()][mode])
    try:
        with pytest.raises(RuntimeError, match="must round to nearest"):
            oracle.gradient(np.ones(1), FULL, "gaussian", 1.0, dpa.clipping.Flat(1.0))
    finally:
        rounding(0)
    assert not oracle.ledger
    oracle.gradient(np.ones(1), FULL, "gaussian", 1.0, dpa.clipping.Flat(1.0))
    assert oracle.ledger


@pytest.mark.parametrize("name", ["sensitivities", "_rounding"])
def test_a_query_that_changes_what_its_event_is_computed_from_is_refused(name):
    kind = type("Less", (NoisyDescent,), {name: lambda self, *facts: 0.0})
    problem = problem_of([1.0], [1.0], radius=1.0)
    oracle = PrivateOracle(problem, problem.facts("replace_one"), None, [0])
    with pytest.raises(TypeError, match=f"Less overrides {name}"):
        oracle.ask(kind(ZERO, 0.1, 1, 1, False, "gaussian", 1.0), FULL)


@dataclasses.dataclass(frozen=True)
class Costly(Event):
    """An event of a user with a cost of its own."""

    cost: float
    immutable = True

    def pure_cost(self):
        return self.cost

    def zcdp_cost(self):
        return 0.5 * (self.cost / 5000.0) ** 2

    def rdp_cost(self, orders):
        return np.full(np.shape(orders), self.cost)


class Small(Costly):
    """Its costs are numbers of NumPy, whatever it keeps."""

    def pure_cost(self):
        return np.int8(self.cost)

    def rdp_cost(self, orders):
        return np.full(np.shape(orders), np.int8(self.cost))


@pytest.mark.parametrize("kind", [Costly, Small])
@pytest.mark.parametrize("number", [np.int8, np.float16, float])
def test_costs_of_a_user_s_event_neither_wrap_nor_underflow(kind, number):
    """Five times 52 in int8 was an epsilon of 4, and 1e3 events in float16 cost nothing."""
    repeated = dpa.privacy.events.Repeated(kind(number(52)), 5)
    assert dpa.privacy.epsilon(repeated, 0.0, "replace_one") == 260.0
    by_rdp = dpa.privacy.epsilon(repeated, 1e-5, "replace_one", "rdp")
    assert by_rdp == dpa.privacy.epsilon(
        dpa.privacy.events.Repeated(Costly(52.0), 5), 1e-5, "replace_one", "rdp"
    )
    guard = dpa.privacy.Filter(dpa.Budget(1e6))
    for _ in range(3):
        guard.spend(kind(number(100)))
    guard.spend(repeated)
    assert type(guard.spent) is float and guard.spent == 560.0
    tiny = dpa.privacy.events.Repeated(Costly(number(1)), 1000)
    for event, count in ((tiny, 1000), (Costly(number(1)), 1)):
        guard = dpa.privacy.Filter(dpa.Budget.zcdp(1.0))
        guard.spend(event)
        assert guard.spent == pytest.approx(count * 0.5 / 5000.0**2)


def test_the_order_of_a_filter_does_not_change():
    order = np.array(20.0)
    guard = dpa.privacy.Filter(dpa.Budget(2.0, 1e-5, "add_or_remove_one"), order=order)
    order[...] = 2000.0
    assert guard.order == 20.0 and guard.epsilon() == pytest.approx(2.0)


def test_rules_losses_and_blocks_with_numbers_of_numpy():
    class Rule(dpa.clipping.Flat):
        def __init__(self):
            pass

        clip_norm = np.float16(1e-6)

    sgd = dpa.methods.SGD(0.1, 3, sampling=dpa.Poisson(0.1), clipping=Rule())
    exact = 1.5 * float(np.float16(1e-6)) / 20.0
    np.testing.assert_allclose(sgd.with_noise_multiplier(1.5, 200).noise, exact, rtol=1e-12)

    class Loss(dpa.losses.Logistic):
        growth = dpa.losses.Loss.growth
        lipschitz = np.int8(100)

    assert Loss().growth == (0.0, 10_000.0)
    assert dpa.privacy.facts.Block(np.int8(100), np.inf, 1.0).size * 3 == 300
    assert type(dpa.RowBound(np.float16(2), 300.0).order) is float


@pytest.mark.parametrize("event", [Laplace(1e-10, 1.0), Pure(1e10), Repeated(Pure(1e100), 10)])
def test_a_curve_of_a_huge_loss_grants_nothing(event):
    """The exponential of a grid's width used to overflow, from a loss of 1e8 on."""
    curve = privacy.privacy_curve(event, "replace_one")
    assert curve.delta(0.0) == curve.delta(100.0) == 1.0
    assert curve.epsilon(0.5) == math.inf


@pytest.mark.parametrize("make", [lambda s: Gaussian(s, 2.0), lambda s: GaussianBound(s, [2], [1])])
def test_gaussian_noise_whose_ratio_has_no_square_is_refused(make):
    """Its costs used to raise OverflowError, after the event had been made."""
    for std in (5e-324, 1e-200, 1.9e-100):
        with pytest.raises(ValueError, match="std must be at least 1e-100 times"):
            make(std)
    assert make(2.1e-100).rdp_cost([2.0])[0] == pytest.approx(4.0 / 2.1e-100**2)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("std", [1e170, 1e300])
def test_noise_so_large_that_its_ratio_underflows_is_not_free(std):
    """The ratio, or its square, was 0: free, or a division by zero."""
    event, bound = Gaussian(std, 1e-30), GaussianBound(std, [0.0, 1e-30], [0.5, 0.5])
    draws = Sampled(dpa.WithReplacement(3), [event], n=9)
    for each in (event, bound, draws):
        assert 0.0 < each.rdp_cost([2.0])[0] < 1e-250
        assert 0.0 <= privacy.epsilon(each, 1e-9, "replace_one") < 1e-9
    assert event.zcdp_cost() > 0.0 < bound.zcdp_cost()
    assert 0.0 < Laplace(std, 1e-30).pure_cost() < 1e-150
    assert Gaussian(std, 0.0).zcdp_cost() == Laplace(std, 0.0).pure_cost() == 0.0


def test_a_bound_is_refused_for_the_largest_of_its_ratios():
    with pytest.raises(ValueError, match="std must be at least 1e-100 times"):
        GaussianBound(1.0, (1e-3, 1e101), (0.5, 0.5))


@pytest.mark.parametrize("exponent", [-99, -50, -20, -10, -5, 0])
def test_the_epsilon_of_mixed_gaussian_noise_at_any_scale(exponent):
    """For tiny noise the divergence at the upper end used to round to 0, which has no logarithm."""
    bound = GaussianBound(10.0**exponent, [0.0, 1.0], [0.5, 0.5], 1.0)
    found = privacy.epsilon(bound, 1e-5, "replace_one")
    alone = privacy.gaussian_epsilon(10.0**exponent, 2e-5)
    assert 1.0 + alone == pytest.approx(found, rel=1e-9)


@pytest.mark.filterwarnings("error")
def test_costs_at_the_ends_of_their_ranges_are_numbers():
    orders = [1.1, 2.0, 5.5, math.inf]
    for noise in (TINY, 1e-300, 1e-101, 1e101, 1e300, math.inf):
        whole = privacy.rdp_gaussian(orders, noise)
        for costs in (
            privacy.rdp_poisson_gaussian(orders, 0.1, noise),
            privacy.rdp_with_replacement(orders, 10, 3, noise),
        ):
            assert np.all((costs >= 0.0) & (costs <= 9.0 * whole + TINY))
    assert BoundedRange(1e300).zcdp_cost() == math.inf
    for noise, delta in ((1e300, 1e-5), (1.0, TINY), (1e-300, 0.5)):
        assert privacy.bins_lower_epsilon(noise, 10, delta) >= 0.0
