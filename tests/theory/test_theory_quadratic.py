"""Exact errors on quadratics against matrix powers, simulation and their own limits."""

import mpmath
import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from dpanalysis import theory
from dpanalysis.methods import HeavyBall
from dpanalysis.theory import heavy_ball
from dpanalysis.theory._arguments import check_array
from dpanalysis.theory.quadratic import (
    heavy_ball_recurrence,
    nesterov_recurrence,
    spectral_radius,
)

methods = st.tuples(
    st.floats(1e-3, 1.0),  # mu, with L = 1
    st.floats(1e-2, 1.9),  # step size
    st.floats(0.0, 0.95),  # momentum
)


def second_moments(p, q, alpha, variances, error):
    """Compute E e_t^2 from 2 x 2 matrices, by definition."""
    closed = np.array([[p, -q], [1.0, 0.0]])
    moment = error**2 * np.ones((2, 2))
    out = [moment[0, 0]]
    for variance in variances:
        moment = closed @ moment @ closed.T + np.diag([alpha**2 * variance, 0.0])
        out.append(moment[0, 0])
    return np.array(out)


@given(methods, st.lists(st.floats(0.0, 10.0), min_size=1, max_size=30), st.floats(-5, 5))
def test_gap_is_the_closed_loop_second_moment(method, variances, error):
    mu, alpha, beta = method
    eigenvalues = np.array([mu, 1.0])
    T = len(variances)
    by_hand = sum(
        0.5 * lam * second_moments(1 + beta - alpha * lam, beta, alpha, variances, error)
        for lam in eigenvalues
    )
    gap = theory.heavy_ball_gap(eigenvalues, alpha, beta, variances, error, T)
    np.testing.assert_allclose(gap, by_hand, rtol=1e-9, atol=1e-12)
    by_hand = sum(
        0.5
        * lam
        * second_moments(
            (1 + beta) * (1 - alpha * lam), beta * (1 - alpha * lam), alpha, variances, error
        )
        for lam in eigenvalues
    )
    gap = theory.nesterov_gap(eigenvalues, alpha, mu, variances, error, T, momentum=beta)
    np.testing.assert_allclose(gap, by_hand, rtol=1e-9, atol=1e-12)


def simulate(step, eigenvalues, stages, alphas, momenta, b, error, runs, rng):
    """Return the mean of F(w_T) over runs with Laplace noise, and its standard error."""
    w = before = np.full((runs, eigenvalues.size), error)
    for t, alpha in enumerate(alphas):
        if t and stages[t] != stages[t - 1]:
            before = w
        extrapolated = w + momenta[t] * (w - before)
        point = w if step == "heavy_ball" else extrapolated
        gradient = point * eigenvalues + rng.laplace(scale=b, size=w.shape)
        w, before = extrapolated - alpha * gradient, w
    values = 0.5 * (w * w) @ eigenvalues
    return values.mean(), values.std() / np.sqrt(runs)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["heavy_ball", "nesterov", "multistage"])
def test_gap_against_simulation(kind):
    # Three two-sided tests at 5 standard errors of an almost normal mean of 40 000 runs:
    # false-alarm probability 3 * 5.7e-7 < 2e-6 (the seed is fixed).
    eigenvalues, b, error, T = np.array([0.1, 0.4, 1.0]), 0.3, 2.0, 25
    alphas, stages = np.full(T, 0.8), np.ones(T, int)
    if kind == "multistage":
        alphas, stages = theory.multistage_schedule(T, 0.1, 1.0, first_stage=10)
    momenta = theory.nesterov_momentum(alphas, 0.1)
    if kind == "heavy_ball":
        gap = theory.heavy_ball_gap(eigenvalues, 0.8, momenta[0], 2 * b**2, error, T)
    elif kind == "nesterov":
        gap = theory.nesterov_gap(eigenvalues, 0.8, 0.1, 2 * b**2, error, T)
    else:
        gap = theory.multistage_gap(eigenvalues, alphas, stages, 0.1, 2 * b**2, error)
    rng = np.random.default_rng(20)
    mean, error_bar = simulate(kind, eigenvalues, stages, alphas, momenta, b, error, 40_000, rng)
    assert abs(mean - gap[-1]) < 5 * error_bar
    # The test has power: it rejects noise of standard deviation b instead of scale b.
    halved = gap[-1] - theory.multistage_gap(eigenvalues, alphas, stages, 0.1, b**2, 0.0)[-1]
    if kind == "multistage":
        assert abs(mean - halved) > 5 * error_bar


@given(methods)
def test_stationary_gap_is_the_limit(method):
    mu, alpha, beta = method
    rate = theory.heavy_ball_rate(alpha, beta, mu, 1.0)
    assume(rate < 0.97)
    limit = theory.heavy_ball_stationary_gap([mu, 1.0], alpha, beta, 0.3)
    T = int(np.ceil(30 / -np.log(max(rate, 0.1)))) + 10
    gap = theory.heavy_ball_gap([mu, 1.0], alpha, beta, 0.3, 1.0, T)
    assert gap[-1] == pytest.approx(limit, rel=1e-8)
    closed_form = 0.15 * sum(
        alpha * (1 + beta) / ((1 - beta) * (2 + 2 * beta - alpha * lam)) for lam in (mu, 1.0)
    )
    assert limit == pytest.approx(closed_form, rel=1e-10)


def test_nesterov_stationary_gap_is_the_limit():
    limit = theory.nesterov_stationary_gap([0.05, 1.0], 0.9, 0.05, 0.3)
    gap = theory.nesterov_gap([0.05, 1.0], 0.9, 0.05, 0.3, 1.0, 400)
    assert gap[-1] == pytest.approx(limit, rel=1e-9)


def test_the_bound_is_a_number_where_rounding_makes_the_square_of_a_root_negative():
    bound = theory.heavy_ball_bound([0.3], 2.0, 0.999 * 3.0 / 11.0, 0.0, 1.0, np.arange(400))
    assert np.isfinite(bound).all()


def test_divergence_is_reported_as_it_is():
    assert theory.heavy_ball_stationary_gap([1.0], 2.5, 0.1, 1.0) == np.inf
    assert theory.heavy_ball_stationary_gap([1.0], 2.5, 0.1, 0.0) == 0.0
    assert theory.heavy_ball_rate(2.5, 0.1, 1.0, 1.0) > 1.0
    assert theory.heavy_ball_bound([1.0], 2.5, 0.1, 1.0, 1.0, 3) == np.inf
    gap = theory.heavy_ball_gap([1.0], 2.5, 0.1, 0.0, 1.0, 40)
    assert gap[-1] > gap[0]


@given(methods)
def test_rate_is_the_spectral_radius_and_growth_rate(method):
    mu, alpha, beta = method
    spectrum = np.array([mu, 1.0])
    for recurrence, rate in [
        (heavy_ball_recurrence, theory.heavy_ball_rate(alpha, beta, mu, 1.0)),
        (nesterov_recurrence, theory.nesterov_rate(alpha, beta, mu, 1.0)),
    ]:
        p, q, *_ = recurrence(spectrum, alpha, beta)
        roots = [np.abs(np.roots([1.0, -a, b])).max() for a, b in zip(p, q)]
        assert rate == pytest.approx(max(roots), rel=1e-6, abs=1e-9)
        inside = recurrence(np.linspace(mu, 1.0, 50), alpha, beta)
        assert spectral_radius(inside).max() <= rate + 1e-12


@given(st.floats(1e-3, 1.0), st.floats(1e-2, 3.9))
def test_optimal_momentum_is_optimal(mu, alpha):
    best = theory.heavy_ball_optimal_momentum(alpha, mu, 1.0)
    rate = theory.heavy_ball_rate(alpha, best, mu, 1.0)
    # The rate has a square-root corner at the optimum: rounding of 1e-16 shows as 1e-8.
    assert rate == pytest.approx(np.sqrt(best), abs=2e-7)
    others = theory.heavy_ball_rate(alpha, np.linspace(0, 0.999, 2001), mu, 1.0)
    assert others.min() >= rate - 2e-7


@given(methods, st.floats(0.0, 1.0), st.floats(0.1, 3.0))
def test_corrected_bound_holds(method, noise, error):
    mu, alpha, beta = method
    eigenvalues = np.array([mu, 0.5 * (1 + mu), 1.0])
    assume(theory.heavy_ball_rate(alpha, beta, mu, 1.0) < 0.9999)
    gap = theory.heavy_ball_gap(eigenvalues, alpha, beta, noise, error, 60)
    bound = theory.heavy_ball_bound(eigenvalues, alpha, beta, noise, error, np.arange(61))
    assert (gap <= bound * (1 + 1e-9)).all()


def test_printed_bound_is_violated():
    # The printed first term has the wrong units: it lacks the factor L / 2.
    setting = ([50.0, 100.0], 0.005, 0.25, 0.0, 1.0)
    gap = theory.heavy_ball_gap(*setting, 30)
    printed = theory.heavy_ball_bound(*setting, np.arange(31), printed=True)
    assert (gap > printed)[[1, 2, 5]].all()
    # C_t is not t: C_10 = 25.04 at lambda in {.5, 1}, alpha = .5, beta = .25.
    first = theory.heavy_ball_bound([0.5, 1.0], 0.5, 0.25, 0.0, 1.0, 10) / (0.5 * 4.0)
    growth = np.sqrt(first) / theory.heavy_ball_rate(0.5, 0.25, 0.5, 1.0) ** 10
    assert growth == pytest.approx(25.04, abs=0.005)
    # Its noise term is loose by a factor of 2 or more.
    noise = theory.heavy_ball_bound([0.5, 1.0], 0.5, 0.25, 1.0, 0.0, 10_000, printed=True)
    assert noise >= 2 * theory.heavy_ball_stationary_gap([0.5, 1.0], 0.5, 0.25, 1.0)


def test_shapes_and_broadcasting():
    gap = theory.heavy_ball_gap([0.1, 1.0], np.full((3, 1), 0.5), [0.1, 0.2], 0.1, [1.0, 2.0], 7)
    assert gap.shape == (3, 2, 8)
    one = theory.heavy_ball_gap([0.1, 1.0], 0.5, 0.2, 0.1, [1.0, 2.0], 7)
    np.testing.assert_allclose(gap[1, 1], one, rtol=1e-14)
    assert theory.heavy_ball_gap([1.0], 0.5, 0.2, 0.1, 1.0, 0).tolist() == [0.5]
    assert isinstance(theory.heavy_ball_rate(0.5, 0.1, 0.1, 1.0), float)


@pytest.mark.parametrize(
    "call, match",
    [
        (lambda: theory.heavy_ball_rate(0.0, 0.1, 0.1, 1.0), "step_size"),
        (lambda: theory.heavy_ball_rate(0.1, 1.0, 0.1, 1.0), "momentum"),
        (lambda: theory.heavy_ball_rate(0.1, -0.1, 0.1, 1.0), "momentum"),
        (
            lambda: theory.heavy_ball_rate(0.1, 0.1, 2.0, 1.0),
            "L must be at least mu = 2.0, got 1.0",
        ),
        (lambda: theory.heavy_ball_rate(0.1, 0.1, 0.0, 1.0), "mu must"),
        (lambda: theory.heavy_ball_optimal_momentum(4.0, 0.1, 1.0), "step_size must be below 4/L"),
        (lambda: theory.heavy_ball_gap([-1.0], 0.1, 0.1, 0.1, 1.0, 5), "eigenvalues"),
        (lambda: theory.heavy_ball_gap([1.0], 0.1, 0.1, [0.1], 1.0, 5), "noise_variance"),
        (lambda: theory.heavy_ball_gap([1.0], 0.1, 0.1, -0.1, 1.0, 5), "noise_variance"),
        (lambda: theory.heavy_ball_gap([1.0], 0.1, 0.1, 0.1, [1.0, 2.0], 5), "initial_error"),
        (lambda: theory.heavy_ball_gap([1.0], 0.1, 0.1, 0.1, np.nan, 5), "initial_error"),
        (lambda: theory.heavy_ball_gap([1.0], 0.1, 0.1, 0.1, 1.0, -1), "iterations"),
        (lambda: theory.heavy_ball_bound([1.0], 0.1, 0.1, 0.1, 1.0, 1.5), "t must"),
        (lambda: theory.heavy_ball_bound([1.0], [0.1], 0.1, 0.1, 1.0, 1), "step_size and momentum"),
        (lambda: theory.nesterov_momentum(2.0, 1.0), "step_size must be at most 1/mu"),
        (lambda: theory.heavy_ball_stationary_gap([1.0], 0.1, 0.1, [0.1, 0.2]), "noise_variance"),
    ],
)
def test_bad_arguments(call, match):
    with pytest.raises(ValueError, match=match):
        call()


@pytest.mark.parametrize("low_open", [False, True])
@pytest.mark.parametrize("high_open", [False, True])
def test_the_ends_of_an_interval_belong_to_it_unless_it_is_open(low_open, high_open):
    for value in ([-2.0, 1.0], -1.0, [0.0], 3.0, [2.0, 3.5], np.nan, np.inf):
        given = np.asarray(value)
        above = given > -1.0 if low_open else given >= -1.0
        below = given < 3.0 if high_open else given <= 3.0
        ends = {"low": -1.0, "high": 3.0, "low_open": low_open, "high_open": high_open}
        if (above & below).all():
            np.testing.assert_array_equal(check_array("x", value, **ends), given)
        else:
            with pytest.raises(ValueError, match="x must lie in"):
                check_array("x", value, **ends)


@given(st.floats(1e-300, 1e300), st.floats(1e-30, 1.9), st.floats(0.0, 0.99))
@example(1.0, 1e-17, 0.5)  # 1 + beta - alpha lambda is 1 + beta
def test_the_stationary_gap_is_that_of_its_formula(eigenvalue, product, momentum):
    step_size = product / eigenvalue
    assume(1e-300 < step_size < 1e300)
    found = theory.heavy_ball_stationary_gap([eigenvalue], step_size, momentum, 2.0)
    below = (1 - momentum) * (2 + 2 * momentum - step_size * eigenvalue)
    assert found == pytest.approx(step_size * (1 + momentum) / below, rel=1e-12)


def test_a_method_that_diverges_ends_at_infinity():
    gap = theory.heavy_ball_gap([1.0, 0.1], 4.0, 0.5, 1.0, 1.0, 700)
    assert gap[-1] == np.inf and (np.diff(gap[np.isfinite(gap)]) > 0.0).all()
    assert not np.isnan(gap).any()


def test_the_best_momentum_of_a_tiny_step_is_below_1():
    momentum = theory.heavy_ball_optimal_momentum(1e-40, 1.0, 1.0)
    assert momentum < 1.0
    assert theory.heavy_ball_gap([1.0], 1e-40, momentum, 0.0, 1.0, 2)[-1] == pytest.approx(0.5)


@pytest.mark.parametrize("rate", [theory.heavy_ball_rate, theory.nesterov_rate])
@pytest.mark.parametrize(
    ("alpha", "beta", "mu", "L"), [(1e-7, 0.999999, 1e-6, 1e6), (0.1, 0.999999, 1e-15, 1.0)]
)
def test_rates_near_a_double_root_keep_their_digits(rate, alpha, beta, mu, L):
    with mpmath.workdps(60):
        roots = []
        for lam in (mu, L):
            x, b = mpmath.mpf(alpha) * mpmath.mpf(lam), mpmath.mpf(beta)
            shrink = 1 if rate is theory.heavy_ball_rate else 1 - x
            p = 1 + b - x if rate is theory.heavy_ball_rate else (1 + b) * shrink
            root = mpmath.sqrt(mpmath.mpc(p * p - 4 * b * shrink))
            roots += [abs(p + root) / 2, abs(p - root) / 2]
        exact = float(1 - max(roots))
    assert 1.0 - rate(alpha, beta, mu, L) == pytest.approx(exact, rel=1e-9, abs=4e-16)


@pytest.mark.parametrize("together", [6, 1 << 14])  # 6: two powers of three matrices
@pytest.mark.parametrize("times", [np.array([1, 2, 7, 30]), np.array([0, 1]), np.array(0)])
def test_the_bound_has_the_largest_norm_of_the_powers(times, together, monkeypatch):
    monkeypatch.setattr(heavy_ball, "_CHUNK", together)
    spectrum, alpha, beta = np.array([0.1, 0.4, 1.0]), 1.2, 0.6
    steps = [np.array([[1 + beta - alpha * x, -beta], [1.0, 0.0]]) for x in spectrum]
    norms = [
        max(np.linalg.norm(np.linalg.matrix_power(step, t), 2) for step in steps)
        for t in times.flat
    ]
    found = theory.heavy_ball_bound(spectrum, alpha, beta, 0.0, [1.0, 0.0, 0.0], times)
    np.testing.assert_allclose(np.ravel(found), 0.5 * np.square(norms) * 2.0, rtol=1e-12)


TARGET = theory.SecondOrderTarget(0.1, 0.3, theory.second_order_constants(1.0, 0.1), 20, 0.5)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda x: theory.noise_floor(x, 1.0, 0.1), "spectrum"),
        (lambda x: theory.allocation_certificate(HeavyBall(0.2, 0.5, 3), x), "spectrum"),
        (lambda x: theory.nesterov_stationary_gap(x, 0.5, 0.1, 0.1), "eigenvalues"),
        (lambda x: theory.heavy_ball_recursion(5, x), "certificate"),
        (lambda x: theory.horizon_bounds(x, 0.7, 5, 1.0, 100, 1.0), "recursion"),
        (theory.best_shares, "target"),
        (lambda x: theory.sample_complexity(x, theory.Shares(0.1, 0.1, 0.1)), "target"),
        (lambda x: theory.sample_complexity(TARGET, x), "shares"),
        (theory.spectral_bound, "matrix"),
        (
            lambda x: theory.min_decrease_line_search(0.1, 0.1, 1, 1, 0.1, 0.1, 0.1, 0.5, x),
            "c_H",
        ),
    ],
)
@pytest.mark.parametrize("value", ["0.5", None, []])
def test_an_argument_of_a_wrong_type_is_named(call, name, value):
    with pytest.raises((TypeError, ValueError), match=rf"\b{name} must "):
        call(value)
