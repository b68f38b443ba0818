"""Curves against exact trade-offs, the accountant, each other, and riskcal if installed."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import spatial, special

import dpanalysis as dpa
from dpanalysis import privacy
from dpanalysis.errors import IncompatibleAccounting
from dpanalysis.privacy import PrivacyCurve, privacy_curve
from dpanalysis.privacy.accounting.curves import curve_of_epsilons
from dpanalysis.privacy.events import (
    AboveThreshold,
    BoundedRange,
    Epoch,
    Gaussian,
    Laplace,
    Pure,
    Repeated,
    Sampled,
)

ADD, REPLACE = "add_or_remove_one", "replace_one"
ALPHAS = np.concatenate([[0.0], np.geomspace(1e-5, 0.5, 60), np.linspace(0.5, 1.0, 30)[1:]])
STEP = Sampled(privacy.Poisson(0.05), [Gaussian(1.0, 1.0)])
RUNS = {
    "gaussian": (Repeated(Gaussian(2.0, 1.0), 3), REPLACE),
    "poisson": (Repeated(STEP, 100), ADD),
    "bins": (Repeated(Epoch(privacy.BallsInBins(20), [Gaussian(1.0, 1.0)]), 5), ADD),
    "fixed size": (
        Repeated(Sampled(privacy.WithoutReplacement(10), [Gaussian(2.0, 1.0)], n=200), 50),
        REPLACE,
    ),
    "laplace": (Repeated(Laplace(4.0, 1.0), 5), REPLACE),
    "pure": (Repeated(Pure(0.3), 4), REPLACE),
    "sparse vector": (AboveThreshold("laplace", 8.0, 16.0, 1.0, None), REPLACE),
    "range": (Repeated(BoundedRange(0.5), 3), REPLACE),
    "nothing": ([], REPLACE),
}
CURVES = {name: privacy_curve(*run) for name, run in RUNS.items()}
by_name = pytest.mark.parametrize("name", RUNS)


@by_name
def test_it_is_a_trade_off_curve(name):
    """Convex, decreasing, symmetric, below guessing; end points are right."""
    curve = CURVES[name]
    at = np.linspace(0.0, 1.0, 301)
    beta = curve.tradeoff(at)
    assert np.all(np.diff(beta) <= 1e-12) and np.all(beta <= 1.0 - at + 1e-12)
    assert np.all(beta[2:] - 2.0 * beta[1:-1] + beta[:-2] >= -1e-9)
    assert beta[-1] == 0.0 and beta[0] > 0.99
    # It is its own inverse where it is above 0: no test is better in the other direction.
    inside = (beta > 1e-4) & (at > 1e-4)
    np.testing.assert_allclose(curve.tradeoff(beta[inside]), at[inside], rtol=2e-4, atol=2e-6)


@by_name
def test_it_agrees_with_the_accountant(name):
    events, relation = RUNS[name]
    for delta in (1e-3, 1e-5, 1e-8):
        told, found = privacy.epsilon(events, delta, relation), CURVES[name].epsilon(delta)
        assert found <= 1.002 * told + 1e-6
        # Points that are not on the curve of one pair may lie above their envelope.
        assert found >= (0.97 if name in ("sparse vector", "range") else 0.998) * told - 1e-6


@by_name
def test_every_point_bounds_every_test(name):
    """Epsilon, delta and the other quantities agree with one curve."""
    curve = CURVES[name]
    loss = np.linspace(0.0, 3.0, 13)
    delta = curve.delta(loss)
    for a, d in zip(loss, delta):
        lines = np.maximum(1.0 - d - math.exp(a) * ALPHAS, math.exp(-a) * (1.0 - d - ALPHAS))
        assert np.all(curve.tradeoff(ALPHAS) >= lines - 1e-9)
        if d > 1e-10 and curve.advantage() > 0.0:
            assert curve.epsilon(d) == pytest.approx(a, abs=1e-4)
    at = np.linspace(0.0, 1.0, 2001)
    step = at[1]  # the best test lies within one step; both rates change by less there
    beta = curve.tradeoff(at)
    gap = curve.advantage() - (1.0 - at - beta).max()
    assert -1e-9 <= gap <= step
    np.testing.assert_allclose(curve.true_positive_rate(ALPHAS), 1.0 - curve.tradeoff(ALPHAS))
    for prior in (0.05, 0.3, 0.5, 0.8):
        errors = (1.0 - prior) * at + prior * beta
        assert -1e-9 <= errors.min() - curve.bayes_risk(prior) <= step
    below = curve.delta(-loss)  # H(x) = 1 - x + x H(1/x)
    np.testing.assert_allclose(below, 1.0 - np.exp(-loss) * (1.0 - delta), atol=1e-12)


@pytest.mark.parametrize("noise", [Gaussian, Laplace])
def test_what_no_record_changes_loses_nothing(noise):
    curve = privacy_curve(noise(1.0, 0.0), REPLACE)
    assert curve.epsilon(0.0) == curve.delta(0.0) == curve.advantage() == 0.0


@settings(max_examples=20)
@given(st.floats(0.05, 4.0))
def test_points_of_a_gaussian_against_its_closed_form(mu):
    exact = PrivacyCurve(mu=mu)
    assert exact.epsilon(0.0) == math.inf
    normal = special.ndtr(special.ndtri(1.0 - ALPHAS) - mu)
    np.testing.assert_allclose(exact.tradeoff(ALPHAS), normal, rtol=1e-9, atol=1e-300)
    assert exact.advantage() == pytest.approx(2.0 * special.ndtr(0.5 * mu) - 1.0, rel=1e-12)
    loss = np.linspace(0.0, mu * (0.5 * mu + 6.0), 2000)
    points = PrivacyCurve(loss, exact.delta(loss))
    found = points.tradeoff(ALPHAS)
    assert np.all(found <= normal + 1e-12)
    np.testing.assert_allclose(found, normal, atol=1e-4)


@pytest.mark.parametrize("count", [1, 20])
def test_loss_distributions_of_a_gaussian_against_its_closed_form(count):
    """A rate of 1 - 1e-9 uses the grid; bounds stay on the right side of the closed form."""
    step = Sampled(privacy.Poisson(1.0 - 1e-9), [Gaussian(3.0, 1.0)])
    curve = privacy_curve(Repeated(step, count), ADD)
    assert curve.mu is None
    exact = PrivacyCurve(mu=math.sqrt(count) / 3.0)
    assert np.all(curve.tradeoff(ALPHAS) <= exact.tradeoff(ALPHAS) + 1e-7)
    np.testing.assert_allclose(curve.tradeoff(ALPHAS), exact.tradeoff(ALPHAS), atol=2e-5)


@pytest.mark.slow
@settings(max_examples=30)
@given(st.floats(0.01, 8.0), st.floats(0.01, 0.99))
def test_randomized_response(loss, prior):
    curve = privacy_curve(Pure(loss), REPLACE)
    no = special.expit(-loss)
    exact = np.maximum(np.maximum(1 - np.exp(loss) * ALPHAS, np.exp(-loss) * (1 - ALPHAS)), 0.0)
    found = curve.tradeoff(ALPHAS)
    assert np.all(found <= exact + 1e-12)
    np.testing.assert_allclose(found, exact, atol=2e-5)
    assert curve.advantage() == pytest.approx(math.tanh(0.5 * loss), abs=1e-5)
    risk = min(prior, 1.0 - prior, no)  # guess by the prior, or by the answer
    assert curve.bayes_risk(prior) == pytest.approx(risk, abs=2e-5)
    assert curve.epsilon(0.0) == pytest.approx(loss)


def test_both_directions_count():
    """One Poisson step by quadrature of the mixture: the better of the two tests at each alpha."""
    q, sigma = 0.2, 0.7
    curve = privacy_curve(Sampled(privacy.Poisson(q), [Gaussian(sigma, 1.0)]), ADD)
    x = np.linspace(-8.0, 9.0, 40_001)
    without = special.ndtr(-x / sigma)
    with_it = (1.0 - q) * without + q * special.ndtr((1.0 - x) / sigma)
    remove = np.interp(ALPHAS, without[::-1], 1.0 - with_it[::-1])
    add = np.interp(ALPHAS, 1.0 - with_it, without)
    found = curve.tradeoff(ALPHAS)
    assert np.all(found <= np.minimum(remove, add) + 1e-6)
    # Their lower convex hull: all vertices except that of the worst test.
    tests = np.vstack(
        [np.column_stack([without, 1.0 - with_it]), np.column_stack([1.0 - with_it, without])]
    )
    corners = spatial.ConvexHull(np.vstack([tests, [[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]]))
    lower = corners.points[corners.vertices]
    lower = lower[lower.sum(axis=1) < 1.5]
    lower = lower[np.argsort(lower[:, 0])]
    np.testing.assert_allclose(found, np.interp(ALPHAS, *lower.T), atol=2e-5)


def test_a_sampled_release_keeps_its_pure_loss():
    """The loss distribution alone has mass at infinity, by rounding."""
    curve = privacy_curve(Sampled(privacy.Poisson(0.1), [Laplace(1.0, 1.0)]), ADD)
    assert curve.epsilon(0.0) == pytest.approx(privacy.amplify_poisson(1.0, 0.1), rel=1e-12)


def test_it_may_cost_more_to_add_a_record_than_to_remove_one():
    """Two batches of randomized response, enumerated: .80 against .74."""
    rate, loss, at = 0.95, 2.3, 0.33
    base = special.expit(np.array([-loss, loss]))
    mixed = (1.0 - rate) * base + rate * base[::-1]
    p, q = (np.multiply.outer(law, law).ravel() for law in (mixed, base))
    removed, added = (np.maximum(a - np.exp(at) * b, 0.0).sum() for a, b in ((p, q), (q, p)))
    assert added > 1.05 * removed
    curve = privacy_curve(Repeated(Sampled(privacy.Poisson(rate), [Pure(loss)]), 2), ADD)
    assert added <= curve.delta(at) <= added + 1e-4


def test_beyond_the_largest_loss_of_the_grid_delta_is_not_0():
    assert CURVES["poisson"].delta(600.0) > 0.0 and CURVES["poisson"].epsilon(0.0) == math.inf


def test_a_curve_of_points_is_the_envelope_of_their_lines():
    curve = PrivacyCurve([1.0, 2.0], [0.05, 0.001])
    lines = [0.0 * ALPHAS, 1.0 - ALPHAS - 1.0]
    for loss, delta in ((1.0, 0.05), (2.0, 0.001)):
        lines += [1.0 - delta - math.exp(loss) * ALPHAS, math.exp(-loss) * (1 - delta - ALPHAS)]
    np.testing.assert_allclose(curve.tradeoff(ALPHAS), np.max(lines, axis=0), atol=1e-12)
    assert curve.epsilon(1e-4) == math.inf and curve.epsilon(0.05) == pytest.approx(1.0)


def test_a_moment_bound_is_an_envelope():
    curve = curve_of_epsilons(lambda delta: privacy.zcdp_to_epsilon(0.5, delta))
    exact = PrivacyCurve(mu=1.0)  # has zCDP 1/2
    assert np.all(curve.tradeoff(ALPHAS) <= exact.tradeoff(ALPHAS) + 1e-12)
    assert 0.0 < curve.tradeoff(0.1) < exact.tradeoff(0.1)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:delta")
def test_curves_of_results():
    X = np.random.default_rng(0).uniform(-1.0, 1.0, (200, 3)) / 2.0
    y = np.where(X[:, 0] > 0.0, 1, -1)
    problem = dpa.ERM(X, y, dpa.losses.Logistic(), dpa.regularizers.L2(0.1), dpa.RowBound(2, 1.0))
    planned = dpa.methods.GradientDescent(0.5, 5)
    result = dpa.minimize(problem, planned, dpa.Budget(1.0, 1e-4), rng=0)
    assert result.privacy_curve().epsilon(1e-4) == pytest.approx(result.epsilon(), rel=1e-3)
    twice = result.privacy_curve(replicates=2).advantage()
    assert twice > result.privacy_curve().advantage()
    search = dpa.methods.LineSearchGD(rho=1e-2, epsilon=0.05)
    adaptive = dpa.minimize(problem, search, dpa.Budget(1.0, 1e-4), rng=0)
    assert adaptive.guard is not None
    assert adaptive.privacy_curve().epsilon(1e-4) == pytest.approx(adaptive.epsilon(), rel=0.05)
    exact = dpa.minimize(problem, planned, rng=0)
    with pytest.raises(ValueError, match="there is no curve"):
        exact.privacy_curve()


@by_name
def test_pictures(name):
    ax = CURVES[name].plot(delta=1e-4)
    labels = [line.get_label() for line in ax.lines]
    assert labels[:2] == ["this release", "guessing"]
    if len(labels) == 4:
        assert labels[2].startswith("Gaussian, mu") and "delta = 0.0001" in labels[3]
        (alpha,), (beta,) = ax.lines[3].get_data()
        loss = CURVES[name].epsilon(1e-4)  # the line of the point touches the curve there
        assert math.exp(loss) * alpha + beta == pytest.approx(1.0 - 1e-4, abs=2e-4)


def test_wrong_arguments():
    curve = PrivacyCurve(mu=1.0)
    for call, match in (
        (lambda: curve.tradeoff(1.5), r"alpha must lie in \[0, 1\]"),
        (lambda: curve.epsilon(-0.1), r"delta must lie in \[0, 1\]"),
        (lambda: curve.bayes_risk(0.0), r"prior must lie in \(0, 1\)"),
        (lambda: curve.plot(delta=0.0), r"delta must lie in \(0, 1\)"),
        (lambda: PrivacyCurve([1.0], [2.0]), "deltas in"),
        (lambda: PrivacyCurve([-1.0], [0.0]), "epsilons must be at least 0"),
        (lambda: PrivacyCurve([1.0, 2.0], [0.1]), "one shape"),
        (lambda: PrivacyCurve(mu=-1.0), "mu must lie in"),
    ):
        with pytest.raises(ValueError, match=match):
            call()
    with pytest.raises(IncompatibleAccounting):
        privacy_curve(STEP, REPLACE)


def test_against_riskcal():
    """Curves of (epsilon, delta), and of Gaussian noise."""
    analysis = pytest.importorskip("riskcal.analysis", reason="needs riskcal")
    for loss, delta in ((1.0, 1e-5), (0.3, 0.05), (4.0, 1e-3)):
        curve = PrivacyCurve([loss], [delta])
        theirs = [analysis.get_beta_for_epsilon_delta(loss, delta, float(a)) for a in ALPHAS]
        np.testing.assert_allclose(curve.tradeoff(ALPHAS), theirs, atol=1e-9)
        advantage = analysis.get_advantage_for_epsilon_delta(loss, delta)
        assert curve.advantage() == pytest.approx(advantage, rel=1e-9)
    for mu in (0.3, 1.0, 3.0):
        curve = PrivacyCurve(mu=mu)
        theirs = [analysis.get_beta_for_mu(mu, float(a)) for a in ALPHAS]
        np.testing.assert_allclose(curve.tradeoff(ALPHAS), theirs, atol=1e-9)
        assert curve.advantage() == pytest.approx(analysis.get_advantage_for_mu(mu), rel=1e-9)
        for prior in (0.1, 0.5, 0.7):
            theirs = analysis.get_bayes_risk_for_mu(mu, prior)
            assert curve.bayes_risk(prior) == pytest.approx(theirs, abs=1e-6)
