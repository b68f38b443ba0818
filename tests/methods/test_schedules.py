"""How a budget becomes noise: fast contractions, calibrated levels, horizons."""

import dataclasses
import itertools
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_runs import unrolled

import dpanalysis as dpa
from dpanalysis.methods import planned
from dpanalysis.privacy import mechanisms


def data_of(n=200):
    X = np.random.default_rng(2).uniform(-1.0, 1.0, size=(n, 2))
    return X, np.where(X[:, 0] > 0, 1.0, -1.0)


def problem_of(n=200, strength=1.0):
    bounds = (dpa.RowBound(1, 2.0), dpa.RowBound(2, 2.0**0.5))
    return dpa.ERM(*data_of(n), dpa.losses.Logistic(), dpa.regularizers.L2(strength), bounds)


@pytest.mark.slow
def test_a_fast_contraction_does_not_underflow():
    """At mu alpha = .6 the first of 2000 weights is 1e-1300: its noise is large, not infinite."""
    problem = problem_of()
    method = dpa.methods.Nesterov(0.6, 2000, problem.mu, noise="optimal")
    result = dpa.minimize(problem, method, dpa.Budget(1.0), rng=0, every=2000)
    assert np.isfinite(result.w).all()
    assert result.epsilon() == pytest.approx(1.0)


@pytest.mark.slow
@pytest.mark.parametrize("sampling", [dpa.Full(), dpa.WithoutReplacement(20)])
def test_calibrated_schedules_have_few_levels_and_lose_little(sampling):
    """Against the schedule of all levels, calibrated by the same accountant."""
    problem, budget = problem_of(), dpa.Budget(1.0, 1e-4)
    facts = problem.facts("replace_one")
    method = dpa.methods.Nesterov(
        0.1, 100, problem.mu, noise="optimal", mechanism="gaussian", sampling=sampling
    )
    weights = method.error_recursion(facts).weights()[1]
    scales = method.prepare(facts, budget, "rdp").scales
    assert len(np.unique(scales)) <= planned.NOISE_LEVELS

    def events(factor):
        return planned.planned_events(facts, sampling, "gaussian", factor * weights**-0.25)

    exact = dpa.privacy.calibrate(events, budget, (1e-6, 1e3), accountant="rdp") * weights**-0.25
    assert weights @ scales**2 <= 1.01 * (weights @ exact**2)


def test_levels_of_noise_are_few_and_at_most_a_hundredfold():
    shape = np.geomspace(3.0, 3e4, 500)
    levels = planned._levels(shape)
    assert len(np.unique(levels)) <= 64 and levels.max() <= 100.0 * levels.min() * (1.0 + 1e-12)
    near = shape <= 300.0
    np.testing.assert_allclose(levels[near], shape[near], rtol=0.04)  # half of 100^(1/63)


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
def test_horizons_with_a_delta_beat_the_longest_run(mechanism):
    """A budget too small for 500 iterations is spent on fewer, which gives a smaller gap."""
    problem, budget = problem_of(), dpa.Budget(0.5, 1e-4)
    run = {"w0": [3.0, -3.0], "replicates": 200, "rng": 0, "record": ("gap",), "every": 500}
    gaps = []
    for choose in (10.0, None):
        method = dpa.methods.GradientDescent(
            0.5, 500, mechanism=mechanism, choose_iterations=choose
        )
        result = dpa.minimize(problem, method, budget, **run)
        gaps.append(result.history["gap"][-1].mean())
        assert result.epsilon() <= budget.epsilon * (1 + 1e-9)
    assert gaps[0] < gaps[1]


def test_a_zcdp_budget_chooses_a_horizon_too():
    problem = problem_of()
    method = dpa.methods.GradientDescent(0.5, 500, mechanism="gaussian", choose_iterations=10.0)
    result = dpa.minimize(problem, method, dpa.Budget.zcdp(0.01), rng=0, every=500)
    assert 1 <= result.iterations < 500


@pytest.mark.parametrize("noise", ["uniform", "optimal"])
def test_under_zcdp_no_horizon_has_a_smaller_bound_than_the_chosen_one(noise):
    """The noise of every horizon is known in closed form."""
    facts, rho = problem_of().facts("replace_one"), 0.01
    method = dpa.methods.GradientDescent(
        0.5, 40, mechanism="gaussian", noise=noise, choose_iterations=5.0
    )
    recursion, bounds = method.error_recursion(facts), []
    for T in range(1, 41):
        a0, a = recursion.prefix(T).weights()
        shape = a if noise == "optimal" else np.ones(T)
        std = dpa.theory.allocate_gaussian(shape, rho, facts.record_sensitivity(2) / facts.n)
        bounds.append(a0 * 5.0 + 0.5 * facts.d * float(a @ std**2))
    chosen = method.prepare(facts, dpa.Budget.zcdp(rho), "tightest").iterations
    assert 2 < chosen < 39 and bounds[chosen - 1] <= min(bounds) * (1.0 + 1e-9)
    # The noise of T iterations has a variance in proportion to T: if it is all, one is best.
    assert method.prepare(facts, dpa.Budget.zcdp(1e-9), "tightest").iterations == 1


@pytest.mark.parametrize("sampling", [dpa.Full(), dpa.WithoutReplacement(20)])
def test_under_a_positive_delta_no_horizon_has_a_smaller_bound_than_the_chosen_one(sampling):
    """On batches, too, of which no cost in zCDP is known."""
    facts, budget = problem_of().facts("replace_one"), dpa.Budget(1.0, 1e-5)
    method = dpa.methods.GradientDescent(
        0.5, 30, mechanism="gaussian", sampling=sampling, choose_iterations=5.0
    )
    recursion, bounds = method.error_recursion(facts), []
    size = sampling.expected_size(facts.n)
    spread = dpa.theory.subsampling_variance(facts.record_sensitivity(2), facts.n, int(size))
    for T in range(1, 31):
        fixed = dataclasses.replace(method, iterations=T, choose_iterations=None)
        std, (a0, a) = fixed.prepare(facts, budget, "rdp").scales, recursion.prefix(T).weights()
        bounds.append(a0 * 5.0 + 0.5 * float(a @ (facts.d * std**2 + spread)))
    chosen = method.prepare(facts, budget, "rdp").iterations
    assert 2 < chosen < 29 and bounds[chosen - 1] <= min(bounds) * (1.0 + 1e-6)


def test_a_run_is_its_recursion_also_where_it_restarts():
    problem = dpa.Quadratic([1.0, 4.0])
    method = dpa.methods.MultistageNesterov(40, 1.0, 4.0)
    assert method.coefficients().restart.sum() > 1
    result = dpa.minimize(problem, method, w0=[1.0, -1.0], record=("iterate",))
    x = before = np.array([1.0, -1.0])
    for t, found in enumerate(result.history["iterate"][1:, 0]):
        A, B, C = method.state_space(t)
        state = np.stack([x, before])
        x, before = A @ state + B @ problem.gradient(C @ state)
        np.testing.assert_allclose(found, x, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("sampling", [dpa.Full(), dpa.WithoutReplacement(20)])
@pytest.mark.parametrize("name", ["GD", "HB", "NAG", "MASG"])
def test_a_run_is_the_printed_loop(name, sampling):
    """Kuru et al. (2.4), (3.1), (4.1), (4.7), with the noise of (3.4) and (3.5)."""
    problem, T, mu, L = problem_of(strength=0.1), 40, 0.1, 0.6
    method = {
        "GD": partial(dpa.methods.GradientDescent, 1.2, T),
        "HB": partial(dpa.methods.HeavyBall, 1.2, 0.4, T),
        "NAG": partial(dpa.methods.Nesterov, 1.2, T, mu),
        "MASG": partial(dpa.methods.MultistageNesterov, T, mu, L, first_stage=3),
    }[name](sampling=sampling)
    start = [3.0, -2.0]
    result = dpa.minimize(problem, method, dpa.Budget(2.0), w0=start, rng=5, record=("iterate",))

    noise, draws = mechanisms.spawn(mechanisms.spawn(5, 1)[0], 2)
    n, m = 200, int(sampling.expected_size(200))
    scale = 4.0 / (m * np.log1p(np.expm1(2.0 / T) * n / m))  # S_1 = 4, as rows have L1 norms to 2
    lengths = [3, *(2**k * int(np.ceil(np.sqrt(L / mu) * np.log(8.0))) for k in (2, 3))]
    stages = np.repeat([1, 2, 3], lengths)[:T]
    assert stages[-1] == 3
    x = before = np.array(start)
    for t, stage in enumerate(stages):
        alpha, beta = 1.2, {"GD": 0.0, "HB": 0.4}.get(name)
        if name == "MASG":
            alpha = 1.0 / L if stage == 1 else 1.0 / (4.0**stage * L)
            if t and stage > stages[t - 1]:
                before = x
        if beta is None:
            beta = (1.0 - np.sqrt(mu * alpha)) / (1.0 + np.sqrt(mu * alpha))
        ahead = x + beta * (x - before)
        z = x if name in ("GD", "HB") else ahead
        rows, (X, y) = sampling.draw(n, draws), data_of()
        if rows is not None:
            X, y = X[rows], y[rows]
        gradient = -(y / (1.0 + np.exp(y * (X @ z)))) @ X / m + 0.1 * z
        gradient += mechanisms.laplace(noise, scale, 2)
        before, x = x, ahead - alpha * gradient
        np.testing.assert_allclose(result.history["iterate"][t + 1, 0], x, rtol=1e-7, atol=1e-9)


@given(st.lists(st.sampled_from([1.0, 2.0, 3.0]), min_size=1, max_size=9))
def test_planned_events_are_those_of_each_iteration(scales):
    facts = problem_of().facts("replace_one")
    planned_events = planned.planned_events(facts, dpa.Full(), "gaussian", np.array(scales))
    assert [event.std for event in unrolled(planned_events)] == scales


@pytest.mark.parametrize(
    "method",
    [
        partial(dpa.methods.GradientDescent, 0.1, 4),
        partial(dpa.methods.HeavyBall, 0.1, 0.5, 4),
        partial(dpa.methods.Nesterov, 0.1, 4, 0.1),
        partial(dpa.methods.MultistageNesterov, 4, 0.1, 1.0),
    ],
)
def test_epochs_are_not_for_methods_with_a_bound(method):
    with pytest.raises(TypeError, match=r"SGD and Adam take epochs, got BallsInBins"):
        method(sampling=dpa.BallsInBins(4))


def test_the_chosen_horizon_has_the_least_bound():
    facts = problem_of().facts("replace_one")
    method = dpa.methods.GradientDescent(0.2, 60, choose_iterations=5.0)
    chosen = method.prepare(facts, dpa.Budget(2.0), "tightest").iterations
    recursion = method.error_recursion(facts)
    bounds = dpa.theory.horizon_bounds(
        recursion, 5.0, facts.d, facts.record_sensitivity(1), facts.n, 2.0, noise="uniform"
    )
    assert (
        1 < chosen < 60 and bounds[chosen - 1] == bounds.min() < np.delete(bounds, chosen - 1).min()
    )


@pytest.mark.parametrize("least", [1e-5, 0.3, 1.0, 70.0, 1e7, 1e11])
def test_a_bracket_is_found_around_any_multiplier(least):
    low, high = planned._bracket(lambda factor: factor >= least)
    assert low < least <= high <= 16.0 * low


@pytest.mark.slow
@pytest.mark.parametrize("batch", [1, 2, 5, 6])
def test_subsampling_variance_is_attained(batch):
    """Against all subsets: half of the gradients at +G and half at -G, and all of them at G."""
    n, G = 6, 2.0**0.5
    problem = problem_of(n=n)

    def variance(sampling, relation, epsilon=1.0):
        facts = problem.facts(relation)
        return planned.batch_variance(
            planned.NoiseRequest(
                facts,
                dpa.Budget(epsilon, relation=relation),
                sampling,
                "laplace",
                None,
                False,
                "pure",
            )
        )

    gradients = np.repeat([G, -G], n // 2)
    means = [gradients[list(rows)].mean() for rows in itertools.combinations(range(n), batch)]
    exact = variance(dpa.WithoutReplacement(batch), "replace_one")
    assert exact == pytest.approx(np.mean(np.square(means)), abs=1e-12)
    means = [gradients[list(rows)].mean() for rows in itertools.product(range(n), repeat=batch)]
    exact = variance(dpa.WithReplacement(batch), "replace_one")
    assert exact == pytest.approx(np.mean(np.square(means)), abs=1e-12)
    rate = batch / n
    drawn = [
        (rate ** sum(kept) * (1 - rate) ** (n - sum(kept)), G * sum(kept) / batch - G)
        for kept in itertools.product((0, 1), repeat=n)
    ]
    exact = variance(dpa.Poisson(rate), "add_or_remove_one")
    assert exact == pytest.approx(sum(p * error**2 for p, error in drawn), abs=1e-12)
    assert variance(dpa.Full(), "replace_one") == 0.0


def test_bounds_use_the_problems_own_smoothness():
    """A schedule made for a smaller L than the problem's has a bound only if its steps fit."""
    problem = problem_of(strength=0.1)
    facts = problem.facts("replace_one")
    too_small = {"iterations": 20, "mu": problem.mu, "L": 0.6 * facts.L}
    with pytest.raises(ValueError, match="step"):
        dpa.methods.MultistageNesterov(**too_small).error_recursion(facts)
    method = dpa.methods.MultistageNesterov(**too_small, scale=0.25)
    alphas = method.coefficients().step_size
    recursion = method.error_recursion(facts)
    assert recursion.gains == pytest.approx(alphas * (1.0 + alphas * facts.L))


def test_a_bound_may_use_a_larger_mu_than_the_problem_states():
    """A loss without a regularizer states mu = 0; the user's mu gives Nesterov's method a bound."""
    facts = problem_of(strength=0.0).facts("replace_one")
    weights = dpa.methods.Nesterov(0.1, 20, 0.05).error_recursion(facts).weights()[1]
    assert (weights > 0.0).all()
    with pytest.raises(ValueError, match="strong convexity"):
        dpa.methods.GradientDescent(0.1, 20).error_recursion(facts)


@pytest.mark.parametrize(
    "method",
    [
        dpa.methods.Nesterov(0.1, 20, 0.5, noise="optimal"),
        dpa.methods.MultistageNesterov(20, 0.5, 10.0, noise="uniform", choose_iterations=0.7),
    ],
)
def test_a_mu_above_a_positive_one_of_the_problem_warns(method):
    """Optimal noise for too large a mu is far from the best: the first answers are nearly lost."""
    problem, budget = problem_of(strength=0.1), dpa.Budget(1.0)
    with pytest.warns(UserWarning, match=r"mu 0\.5 is above .* public mu = 0\.1"):
        dpa.minimize(problem, method, budget, rng=0)
    even = dataclasses.replace(method, noise="uniform", choose_iterations=None)
    dpa.minimize(problem, even, budget, rng=0)  # the momentum alone takes any mu
    dpa.minimize(problem, dataclasses.replace(method, mu=problem.mu), budget, rng=0)
    with pytest.raises(ValueError, match=r"mu must be at most .* L = 0\.6, got 0\.9"):
        dpa.minimize(problem, dataclasses.replace(method, mu=0.9), budget, rng=0)


def test_heavy_balls_bound_has_the_lowest_noise_floor():
    """Of the certificates by rate and by noise, the bound takes the one that adds less noise."""
    problem = problem_of()
    facts = problem.facts("replace_one")
    recursion = dpa.methods.HeavyBall(0.3, 0.2, 200).error_recursion(facts)
    fastest = dpa.theory.heavy_ball_certificate(0.3, 0.2, facts.mu, facts.L, objective="rate")
    other = dpa.theory.heavy_ball_recursion(200, fastest)
    assert recursion.weights()[1].sum() < 0.99 * other.weights()[1].sum()


@pytest.mark.parametrize(("step_size", "momentum"), [(0.3, 0.2), (0.2, 0.6)])
def test_heavy_balls_bound_holds_on_a_quadratic(step_size, momentum):
    """Against the exact gap, with noise or without, of the method with the same coefficients."""
    facts = dpa.Quadratic([0.5, 1.0], sensitivity=0.1).facts("replace_one")
    start = np.array([1.0, -1.0])
    recursion = dpa.methods.HeavyBall(step_size, momentum, 60).error_recursion(facts)
    for variance in (0.0, 1.0):
        gaps = dpa.theory.heavy_ball_gap([0.5, 1.0], step_size, momentum, variance, start, 60)
        for t in (1, 10, 60):
            a0, a = recursion.prefix(t).weights()
            assert gaps[t] <= a0 * gaps[0] + 0.5 * a.sum() * 2 * variance


def test_noise_for_pure_privacy_is_taken_only_where_it_is_counted_so():
    """For one step it is less, but costs more in zCDP."""
    method, budget = dpa.methods.GradientDescent(0.5, 1), dpa.Budget(1.0, 1e-6)
    scales = [
        dpa.minimize(problem_of(50), method, budget, accountant=name, rng=0).plan.scales[0]
        for name in ("tightest", "zcdp")
    ]
    assert scales[0] < 0.9 * scales[1]


def test_the_horizon_counts_both_halves_of_the_variance_of_laplace_noise():
    """The variance at scale b is 2 b^2; half of it chose 13 iterations, where 9 are best."""
    facts, gap = problem_of(strength=0.1).facts("replace_one"), 1.0
    recursion = dpa.methods.GradientDescent(1.0, 40).error_recursion(facts)
    budget = dpa.Budget.zcdp(0.05)
    request = planned.NoiseRequest(facts, budget, dpa.Full(), "laplace", None, False, "tightest")

    def bound(iterations):
        a0, a = recursion.prefix(iterations).weights()
        scales = planned._calibrated_scales(request, np.ones(iterations))
        return a0 * gap + 0.5 * a @ (facts.d * 2.0 * scales**2)

    found = planned.choose_horizon(request, recursion, gap)
    assert bound(found) <= 1.02 * min(map(bound, range(1, 41)))
