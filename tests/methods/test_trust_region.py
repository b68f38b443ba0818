"""Baselines of Gao and Wright (2023): the trust-region subproblem, and the two methods."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_runs import problem_of, quiet, saddle

import dpanalysis as dpa
from dpanalysis.methods import NoisyGradientDescent2NS, TrustRegion
from dpanalysis.methods.trust_region import trust_region_step
from dpanalysis.privacy import events

BUDGET = dpa.Budget(1.0, delta=1e-6)


def model(g, H, h):
    return h @ g + 0.5 * np.einsum("...i,ij,...j->...", h, H, h)


@given(
    d=st.integers(1, 5),
    radius=st.floats(1e-3, 1e3),
    size=st.sampled_from([0.0, 1e-12, 1e-3, 1.0, 1e3]),
    shift=st.floats(-3.0, 3.0),
    hard=st.sampled_from(["no", "exactly", "nearly"]),
    seed=st.integers(0, 2**20),
)
def test_the_step_is_the_minimiser(d, radius, size, shift, hard, seed):
    """The optimality conditions hold, and no sampled point of the ball has a lower value."""
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(d, d))
    values, vectors = np.linalg.eigh(A + A.T + shift * np.eye(d))
    H = (vectors * values) @ vectors.T
    g = size * rng.normal(size=d)
    if hard != "no":
        g = g - (g @ vectors[:, 0]) * vectors[:, 0] * (1.0 if hard == "exactly" else 1.0 - 1e-10)
    h, nu = trust_region_step(g, H, radius)
    scale = float(np.abs(values).max()) + np.linalg.norm(g) / radius
    length = float(np.linalg.norm(h))
    assert length <= radius * (1 + 1e-7)
    assert nu >= 0.0 and values[0] + nu >= -1e-9 * scale
    residual = np.linalg.norm(H @ h + nu * h + g)
    assert residual <= 1e-6 * scale * radius
    assert nu * (radius - length) <= 1e-6 * scale * radius
    tried = rng.normal(size=(2000, d))
    tried *= radius * rng.random((2000, 1)) ** (1 / d) / np.linalg.norm(tried, axis=1)[:, None]
    edge = radius * tried / np.linalg.norm(tried, axis=1)[:, None]
    best = min(model(g, H, tried).min(), model(g, H, edge).min(), 0.0)
    assert model(g, H, h) <= best + 1e-7 * scale * radius**2


def test_the_hard_case_by_hand():
    h, nu = trust_region_step(np.array([0.0, 1.0]), np.diag([-2.0, 1.0]), 3.0)
    assert nu == pytest.approx(2.0)
    np.testing.assert_allclose(np.abs(h), [math.sqrt(9.0 - 1.0 / 9.0), 1.0 / 3.0], rtol=1e-9)
    h, nu = trust_region_step(np.zeros(2), np.diag([-1.0, 1.0]), 2.0)
    assert nu == pytest.approx(1.0) and np.abs(h) == pytest.approx([2.0, 0.0])
    h, nu = trust_region_step(np.zeros(2), np.diag([0.0, 1.0]), 2.0)
    assert nu == 0.0 and np.linalg.norm(h) < 1e-9
    with pytest.raises(ValueError, match="radius"):
        trust_region_step(np.zeros(2), np.eye(2), 0.0)


@pytest.mark.slow
@given(strength=st.floats(0.1, 4.0), spread=st.floats(0.1, 3.0), seed=st.integers(0, 2**20))
def test_steps_with_a_large_multiplier_descend_as_promised(strength, spread, seed):
    """After a step with a small multiplier the point is a 2NS up to the constants in Notes."""
    problem = problem_of(strength=strength, seed=seed)
    method = TrustRegion(0.02, 0.1)
    facts = problem.facts("replace_one")
    plan = method.prepare(facts, None, "tightest")
    M, r = facts.hessian_lipschitz, method._radius(facts)
    w0 = np.random.default_rng(seed).normal(scale=spread, size=problem.d)
    count = []
    result = dpa.minimize(
        problem,
        method,
        None,
        w0=w0,
        record=("objective", "iterate"),
        callback=lambda *_: count.append(1) or len(count) == 15,
    )
    values, ws = result.history["objective"][:, 0], result.history["iterate"][:, 0]
    for k, nu in enumerate(result.history["multiplier"][1:, 0]):
        if nu > M * r:
            assert values[k] - values[k + 1] >= plan.min_decrease * (1 - 1e-9)
        elif np.isfinite(nu):
            assert np.linalg.norm(problem.gradient(ws[k + 1])) <= 1.5 * M * r**2 * (1 + 1e-9)
            assert np.linalg.eigvalsh(problem.hessian(ws[k + 1]))[0] >= -2.0 * M * r * (1 + 1e-9)


def test_the_default_radius_is_that_of_the_tolerances():
    facts = problem_of().facts("replace_one")
    M = facts.hessian_lipschitz
    alpha = 0.01
    both = TrustRegion(alpha, math.sqrt(M * alpha))
    assert both._radius(facts) == pytest.approx(math.sqrt(alpha / M))
    assert TrustRegion(alpha, 0.1 * math.sqrt(M * alpha))._radius(facts) == pytest.approx(
        0.1 * math.sqrt(alpha / M)
    )
    assert TrustRegion(alpha, 0.1, radius=0.2)._radius(facts) == 0.2


@pytest.mark.parametrize("method", [TrustRegion, NoisyGradientDescent2NS])
@pytest.mark.parametrize("w0", [None, np.array([0.2, -0.5, 1.0])])
def test_the_budget_is_kept(method, w0):
    problem = problem_of(n=3000)
    result = quiet(problem, method(0.15, 0.4), BUDGET, rng=2, w0=w0)
    spent = sum(map(result.guard.cost, result.ledger.events))
    assert spent == pytest.approx(result.guard.spent, rel=1e-9)
    assert spent <= result.guard.limit * (1 + 1e-9) and result.private
    asked = result.history["gradients"][-1, 0] + result.history["hessians"][-1, 0]
    assert len(result.ledger) == asked + (w0 is not None)


@pytest.mark.slow
@pytest.mark.parametrize("method", [TrustRegion, NoisyGradientDescent2NS])
@pytest.mark.parametrize("w0", [None, np.array([0.2, -0.5, 1.0])])
def test_batches_are_fixed_beforehand_wherever_a_run_starts(method, w0):
    problem = problem_of(n=3000)
    method = method(0.15, 0.4, sampling=dpa.WithoutReplacement(300))
    result = quiet(problem, method, BUDGET, rng=2, w0=w0)
    assert result.guard is None and result.private and 0.98 <= result.epsilon() <= 1.0
    asked = result.history["gradients"][-1, 0] + result.history["hessians"][-1, 0]
    assert len(result.ledger) == asked <= sum(event.count for event in result.planned)
    assert result.planned == quiet(problem, method, BUDGET, rng=3).planned


@pytest.mark.slow
def test_both_methods_find_a_point_with_enough_data():
    problem = problem_of(n=100_000)
    for method in (TrustRegion(0.3, 0.5), NoisyGradientDescent2NS(0.2, 0.5, iterations=12)):
        result = quiet(problem, method, dpa.Budget(4.0, 1e-6), rng=0, replicates=5)
        assert (result.history["second_order_point"][-1] == 1.0).all()
        assert (np.linalg.norm(problem.gradient(result.w), axis=1) <= 0.4).all()


def test_gradient_descent_returns_a_second_order_point_or_the_last_iterate():
    problem = problem_of()
    method = NoisyGradientDescent2NS(0.05, 0.4, iterations=30, checks=2)
    result = dpa.minimize(problem, method, None, record=("iterate",))
    points = result.history["iterate"][:, 0]
    assert result.iterations == 31 and result.history["second_order_point"][-1, 0] == 1.0
    steps = -problem.gradient(points[:30]) / problem.L
    np.testing.assert_allclose(np.diff(points[:31], axis=0), steps, rtol=1e-6, atol=1e-9)
    assert any((result.w[0] == point).all() for point in points[:30])
    assert np.linalg.norm(problem.gradient(result.w[0])) <= 0.05
    nowhere = NoisyGradientDescent2NS(1e-6, 0.4, iterations=5)
    result = dpa.minimize(problem, nowhere, None, record=("iterate",))
    assert result.iterations == 5 and "hessian" not in result.evaluations
    assert result.history["second_order_point"][-1, 0] == 0.0


def test_a_saddle_is_a_second_order_point_if_it_curves_down_by_less_than_eps_h():
    problem, w = saddle()
    depth = -np.linalg.eigvalsh(problem.hessian(w))[0]
    for share, found in ((0.95, 0.0), (1.05, 1.0)):
        first = TrustRegion(0.003, share * depth)
        result = dpa.minimize(problem, first, None, w0=w, callback=lambda number, w: True)
        assert result.history["second_order_point"][1, 0] == found
        one = NoisyGradientDescent2NS(0.003, share * depth, iterations=1)
        result = dpa.minimize(problem, one, None, w0=w)
        assert result.history["second_order_point"][2, 0] == found


def test_half_of_the_budget_is_for_the_checks():
    problem = problem_of(n=3000)
    facts = problem.facts("replace_one")
    method = NoisyGradientDescent2NS(0.15, 0.4, iterations=40, checks=5)
    with pytest.warns(UserWarning, match="n_min"):
        plan = method.prepare(facts, dpa.Budget.zcdp(0.1), "tightest")
    gradient, hessian = method.iteration(facts, plan)
    assert isinstance(gradient, events.Gaussian)
    assert 40 * gradient.zcdp_cost() == pytest.approx(0.05)
    assert 5 * hessian.zcdp_cost() == pytest.approx(0.05)
    every = NoisyGradientDescent2NS(0.15, 0.4, iterations=40)
    with pytest.warns(UserWarning, match="n_min"):
        _, hessian = every.iteration(facts, every.prepare(facts, dpa.Budget.zcdp(0.1), "tightest"))
    assert 40 * hessian.zcdp_cost() == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("build", "match"),
    [
        (lambda: TrustRegion(0.0, 0.1), "eps_g"),
        (lambda: TrustRegion(0.1, 0.1, radius=0.0), "radius"),
        (lambda: TrustRegion(0.1, 0.1, c=0.3, c2=0.2), r"c2 with c = 0.3 must lie in"),
        (lambda: NoisyGradientDescent2NS(0.1, 0.0), "eps_H"),
        (lambda: NoisyGradientDescent2NS(0.1, 0.1, c1=0.5), "c1"),
        (lambda: NoisyGradientDescent2NS(0.1, 0.1, checks=0), "checks"),
        (lambda: NoisyGradientDescent2NS(0.1, 0.1, iterations=0), "iterations"),
    ],
)
def test_arguments_outside_their_ranges(build, match):
    with pytest.raises(ValueError, match=match):
        build()


@pytest.mark.parametrize("method", [TrustRegion(0.3, 0.5), NoisyGradientDescent2NS(0.2, 0.5)])
def test_how_many_records_are_enough_does_not_depend_on_how_many_there_are(method):
    facts, budget = problem_of().facts("replace_one"), dpa.Budget.zcdp(1e3)
    enough = [
        method.prepare(dataclasses.replace(facts, n=n), budget, "tightest").n_min
        for n in (10**6, 10**7)
    ]
    assert enough[0] == pytest.approx(enough[1]) and enough[0] < 10**6


def test_the_point_with_the_smallest_gradient_is_checked_first():
    method = NoisyGradientDescent2NS(0.1, 0.4, iterations=30)
    result = dpa.minimize(problem_of(), method, None)
    lengths = result.history["gradient_norm_noisy"][1:, 0]
    assert result.iterations == 31 and np.sum(lengths[:30] <= 0.1) > 1
    assert lengths[30] == lengths[:30].min()


def test_the_tolerated_noise_is_that_of_the_least_decrease():
    """c2 M r^2 for a gradient, c M r for a Hessian: then it is (1/3 - c2 - c/2) M r^3."""
    X = np.ones((4, 2)) / 2.0
    problem = dpa.ERM(X, [1, 1, -1, -1], dpa.losses.Logistic(), row_bound=dpa.RowBound(2, 1.0))
    facts = problem.facts("replace_one")
    method, M = TrustRegion(0.1, 0.3, radius=0.5, c=0.2, c2=0.05), facts.hessian_lipschitz
    assert method._tolerated(facts) == pytest.approx((0.05 * M * 0.25, 0.2 * M * 0.5))
    assert method._least_decrease(facts) == pytest.approx((1 / 3 - 0.05 - 0.1) * M * 0.125)
