"""Objective perturbation: the assumptions of its proof about the event and the solver."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dpanalysis as dpa
from dpanalysis.privacy import mechanisms
from dpanalysis.privacy.events import GaussianBound
from dpanalysis.privacy.facts import Block
from dpanalysis.privacy.queries import PerturbedMinimum, Records
from dpanalysis.privacy.queries.base import Curvature, curvature_of
from dpanalysis.privacy.queries.solutions import rounding_of_gradient

FULL = dpa.Full()


def problem(n=60, d=4, loss=None):
    random = np.random.default_rng(5)
    X = random.normal(size=(n, d))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    y = np.sign(X[:, 0] + 0.3 * random.normal(size=n))
    bound = dpa.RowBound(2, 1.0)
    return dpa.ERM(X, y, loss or dpa.losses.Logistic(), dpa.regularizers.L2(0.05), bound)


@pytest.mark.parametrize(
    ("relation", "corners"), [("replace_one", 4.0), ("add_or_remove_one", 2.0)]
)
def test_a_replaced_record_has_four_corners(relation, corners):
    """The loss is largest at a corner of a segment or parallelogram; each has a Gaussian loss.

    Which of the four corners is the worst depends on the noise, so the bound adds all four.
    """
    facts = problem().facts(relation)
    event = PerturbedMinimum("gaussian", 5.0, 0.1, 1e-8, 0.01).event(facts, FULL).events[0]
    assert isinstance(event, GaussianBound)
    assert event.weights == (corners,)
    kappa = math.log1p(0.25 / (60 * 0.15))
    assert event.offset == pytest.approx(kappa, rel=1e-12)
    order = np.array([3.0])
    shift = event.sensitivities[0] / 5.0
    expected = kappa + (math.log(corners) + 3.0 * shift**2) / 2.0
    np.testing.assert_allclose(event.rdp_cost(order), expected, rtol=1e-12)


@pytest.mark.parametrize("loss", [dpa.losses.Logistic(), dpa.losses.HuberizedHinge(0.5)])
def test_the_solver_stops_at_the_tolerance_and_not_at_twice_it(loss):
    """Tolerances just below the norms along the iterations, which reveal any slack."""
    erm = problem(loss=loss)
    tilt, ridge = np.array([0.3, -0.2, 0.1, 0.0]), 0.02

    def norm(w):
        return float(np.linalg.norm(erm.gradient(w) + tilt + ridge * w))

    tolerance = 0.999 * norm(np.zeros(4))
    for _ in range(40):
        w, _ = erm.minimize_perturbed(tilt, ridge, tolerance, 60.0)
        assert norm(w) <= tolerance * (1.0 + 1e-9)
        tolerance = 0.999 * norm(w)
        if tolerance < 1e-13:
            break
    assert tolerance < 1e-3


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("ridge", [1e-4, 1e-6, 1e-8])
def test_a_loss_whose_curvature_jumps_takes_hundreds_of_gradients(seed, ridge):
    """Where the loss is flat, only the ridge has curvature, and Newton's step is far too long."""
    random = np.random.default_rng(seed)
    X = random.standard_normal((100, 3))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    y = np.where(X[:, 0] > 0.0, 1.0, -1.0)
    erm = dpa.ERM(X, y, dpa.losses.HuberizedHinge(0.5), row_bound=dpa.RowBound(2, 1.0))
    tilt = 4e-5 * random.standard_normal(3)
    w, evaluations = erm.minimize_perturbed(tilt, ridge, 1e-10, 100.0)
    assert np.linalg.norm(erm.gradient(w) + tilt + ridge * w) <= 1e-10 * (1.0 + 1e-9)
    assert evaluations < 1000


def test_the_error_that_the_tolerance_leaves_is_charged_whole():
    """Each of two neighbouring answers is off by up to tol/mu, so they differ by twice that."""
    facts = problem().facts("replace_one")
    for law in ("gaussian", "spherical"):
        query = PerturbedMinimum(law, 5.0, 0.1, 1e-4, 0.01)
        event = query.event(facts, FULL).events[1]
        cost = event.mu if law == "gaussian" else event.epsilon
        assert cost == pytest.approx(2.0 * 1e-4 / 0.15 / 0.01, rel=1e-12)


@given(st.floats(1e-4, 50.0), st.floats(1e-4, 1e4))
def test_the_joint_cost_of_slope_and_determinant_is_below_their_sum(pull, convexity):
    """The largest joint cost of slope and determinant, against all slopes on a grid."""
    curvature = Curvature(1, 0.25, 2, True)
    p = np.linspace(0.0, 1.0, 20_001)
    bend = np.log1p(p * (1.0 - p) / convexity)
    most = float((p * pull + bend).max()) - pull
    found = curvature.cost(convexity, pull)
    assert most - 1e-12 <= found <= most + 1e-4 * (1.0 + most)
    assert found <= curvature.cost(convexity) + 1e-12
    assert found == 0.0 or 1.0 / convexity > pull  # enough penalty: it costs nothing


def test_slope_and_determinant_cost_their_sum_if_the_rank_may_be_above_1():
    facts = problem().facts("replace_one")
    one, two = (curvature_of(dataclasses.replace(facts, hessian_rank=k)) for k in (1, 2))
    assert one.cost(9.0, pull=1.0) < one.cost(9.0)
    assert two.cost(9.0, pull=1.0) == two.cost(9.0)


def test_a_bound_on_the_norm_bounds_the_trace_by_the_rank():
    facts = dataclasses.replace(
        problem().facts("replace_one"), hessian_rank=3, hessian_bound=0.5, hessian_trace=math.inf
    )
    assert curvature_of(facts).trace == 1.5


@pytest.mark.parametrize("relation", ["replace_one", "add_or_remove_one"])
@pytest.mark.parametrize("kind", ["logistic", "hinge"])
def test_the_pull_is_that_of_one_record(relation, kind):
    loss = dpa.losses.Logistic() if kind == "logistic" else dpa.losses.HuberizedHinge(1.0)
    facts = problem(loss=loss).facts(relation)
    query = PerturbedMinimum("spherical", 20.0, 0.0, 1e-8, 0.01)
    c, one = 60 * 0.05, 1.0 / 20.0
    p = np.linspace(0.0, 1.0, 100_001)
    bend = p * (1.0 - p) if kind == "logistic" else np.full_like(p, 0.5)
    own = float((p * one + np.log1p(bend / c)).max())
    other = one if relation == "replace_one" else 0.0
    assert query.event(facts, FULL).events[0].epsilon == pytest.approx(own + other, rel=1e-6)


@given(st.data())
def test_no_log_ratio_of_densities_is_above_the_event(data):
    """A few records and a neighbour, at any point: Laplace noise in one dimension."""
    number = st.floats(-1.0, 1.0)
    x = np.array(data.draw(st.lists(number, min_size=1, max_size=5)))
    y = np.where(np.array(data.draw(st.lists(number, min_size=len(x), max_size=len(x)))) > 0, 1, -1)
    c, scale = data.draw(st.floats(0.01, 20.0)), data.draw(st.floats(0.05, 20.0))
    w, own = data.draw(st.floats(-30.0, 30.0)), data.draw(number)
    replaced = data.draw(st.booleans())
    loss, bound = dpa.losses.Logistic(), dpa.RowBound(2, 1.0)
    erm = dpa.ERM(x[:, None], y, loss, dpa.regularizers.L2(c / len(x)), bound)
    facts = erm.facts("replace_one" if replaced else "add_or_remove_one")
    query = PerturbedMinimum("spherical", scale, 0.0, 1e-9, 1.0)

    def log_density(x, y):
        b = -float((loss.derivative(w * x, y) * x).sum()) - c * w
        return -abs(b) / scale + math.log(
            c + float((loss.second_derivative(w * x, y) * x**2).sum())
        )

    kept = slice(int(replaced), None)
    first = log_density(x, y)
    second = log_density(np.append(x[kept], own), np.append(y[kept], 1))
    limit = query.event(facts, FULL).events[0].epsilon
    assert abs(first - second) <= limit + 1e-9


@pytest.mark.parametrize(
    ("law", "radii"), [("gaussian", ()), ("spherical", ()), ("gaussian", (0.2, 3.0))]
)
@given(share=st.floats(0.0, 0.9), n=st.sampled_from([10.0, 60.0]))
def test_the_solver_tolerance_is_reduced_by_the_rounding_of_the_noise(law, radii, share, n):
    """Rounding the noise to doubles shifts the gradient by its error over n."""
    erm, tolerance, asked = problem(), 1e-6, []
    shape = [Block(2, 2, radius) for radius in radii]
    query = PerturbedMinimum(law, 5.0, 0.1, tolerance, 0.01, shape)
    off = share * tolerance * n / max(radii, default=1.0)

    def minimize(tilt, ridge, tolerance, n):
        asked.append(tolerance)
        return np.zeros(4), 1

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mechanisms, "nearly", lambda random, law, scale, d: (np.zeros(d), off))
        patch.setattr(erm, "minimize_perturbed", minimize)
        query.answer(Records(erm, None, n), mechanisms.random_source(0))
    assert asked == [pytest.approx(tolerance * (1.0 - share), rel=1e-9)]


def test_the_solver_gets_what_rounding_leaves_of_the_tolerance(monkeypatch):
    """The gradient that it computes is off: the exact one must be below the tolerance."""
    erm, asked = problem(), []
    length = 5.0 * math.sqrt(erm.d) / erm.n  # of the random term over n
    rounded = rounding_of_gradient(erm.facts("replace_one"), length, 0.05 + 0.1)
    query = PerturbedMinimum("gaussian", 5.0, 0.1, 4.0 * rounded, 0.01)

    def minimize(tilt, ridge, tolerance, n):
        asked.append(tolerance)
        return np.zeros(4), 1

    monkeypatch.setattr(mechanisms, "nearly", lambda random, law, scale, d: (np.zeros(d), 0.0))
    monkeypatch.setattr(erm, "minimize_perturbed", minimize)
    query.answer(Records(erm, None, float(erm.n)), mechanisms.random_source(0))
    assert asked == [pytest.approx(3.0 * rounded, rel=1e-6, abs=0.0)]


@pytest.mark.slow
@given(
    st.floats(0.01, 50.0),
    st.sampled_from([0.0, 1e-6]),
    st.floats(1e-6, 10.0),
    st.sampled_from(["replace_one", "add_or_remove_one"]),
)
def test_hiding_the_solver_error_costs_a_hundredth_of_the_minimizer(epsilon, delta, mu, relation):
    """A hundredth of the pure loss of the shift, or of the square of its Gaussian mu."""
    bound = dpa.RowBound(2, 1.0)
    penalty = dpa.regularizers.L2(mu)
    X, y = np.zeros((500, 3)), np.ones(500)
    facts = dpa.ERM(X, y, dpa.losses.Logistic(), penalty, bound).facts(relation)
    method = dpa.methods.ObjectivePerturbation()
    plan = method.prepare(facts, dpa.Budget(epsilon, delta, relation), "tightest")
    minimizer, error = plan.event(facts, FULL).events
    if plan.law == "gaussian":
        assert (error.mu / minimizer.mus[0]) ** 2 == pytest.approx(0.01, rel=1e-6)
    else:
        assert error.epsilon / (plan.shift(facts) / plan.scale) == pytest.approx(0.01, rel=1e-6)
