"""The allocation of a budget: exact, optimal, and equal to closed forms where they exist."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.optimize import minimize

from dpanalysis import privacy, theory
from dpanalysis.theory import allocation
from dpanalysis.theory.allocation import solve_dual

budgets = st.sampled_from([1e-3, 0.1, 1.0, 8.0, 50.0])
sizes = st.sampled_from([(10, 1), (100, 99), (100_000, 1000), (10**9, 1), (7, 7)])
weight_lists = st.lists(st.floats(-60, 60), min_size=1, max_size=40).map(np.exp)


def cost(weights, epsilons, n, m):
    return float(weights @ theory.laplace_scales(epsilons, 1.0, n, m) ** 2)


@given(weight_lists, budgets, sizes)
def test_allocation_spends_the_budget_and_is_stationary(weights, epsilon, size):
    n, m = size
    shares = theory.allocate_epsilon(weights, epsilon, n, m)
    assert shares.shape == weights.shape and (shares > 0).all()
    assert math.fsum(shares) <= epsilon
    assert math.fsum(shares) == pytest.approx(epsilon, rel=1e-12)
    # Every iteration has the same marginal gain a h'(eps) / h(eps)^3 (KKT of a convex program).
    h = privacy.deamplify_without_replacement(shares, n, m)
    slope = 1.0 / (m / n - (1.0 - m / n) * np.expm1(-shares))
    marginal = np.log(weights) + np.log(slope) - 3.0 * np.log(h)
    assert np.ptp(marginal) <= 1e-9


def test_no_allocation_exceeds_the_budget_by_rounding():
    """One in eight would."""
    for iterations in range(2, 60):
        assert math.fsum(theory.allocate_epsilon(np.arange(1.0, iterations), 0.1)) <= 0.1


@given(weight_lists, budgets, sizes, st.integers(0, 2**32 - 1))
def test_no_other_division_is_better(weights, epsilon, size, seed):
    n, m = size
    best = cost(weights, theory.allocate_epsilon(weights, epsilon, n, m), n, m)
    rng = np.random.default_rng(seed)
    for other in (np.ones(weights.size), rng.random(weights.size) + 1e-3):
        assert best <= cost(weights, epsilon * other / other.sum(), n, m) * (1 + 1e-9)


@pytest.mark.filterwarnings("ignore:Values in x were outside bounds:RuntimeWarning")  # SciPy 1.13
@pytest.mark.parametrize("epsilon", [0.05, 1.0, 10.0])
@pytest.mark.parametrize("n, m", [(1000, 10), (100, 100), (20, 19)])
def test_against_slsqp(epsilon, n, m):
    weights = np.array([1.0, 0.3, 4.0, 0.01, 2.0])
    result = minimize(
        lambda e: np.log(cost(weights, np.maximum(e, 1e-9), n, m)),
        np.full(5, epsilon / 5),
        constraints={"type": "eq", "fun": lambda e: e.sum() - epsilon},
        bounds=[(1e-6 * epsilon, epsilon)] * 5,
        options={"ftol": 1e-14, "maxiter": 500},
    )
    ours = theory.allocate_epsilon(weights, epsilon, n, m)
    assert np.log(cost(weights, ours, n, m)) <= result.fun + 1e-9
    np.testing.assert_allclose(ours, result.x, rtol=2e-3)


@given(weight_lists, budgets)
def test_full_batch_is_the_limit_of_the_dual_search(weights, epsilon):
    closed = theory.allocate_epsilon(weights, epsilon)
    np.testing.assert_allclose(closed, theory.allocate_epsilon(weights, epsilon, 50, 50))
    search = solve_dual(np.log(weights), epsilon, 1.0 - 1e-14)
    np.testing.assert_allclose(search, closed, rtol=1e-9)
    # Uniform over optimal cost: T^2 sum a / (sum a^(1/3))^3.
    T = weights.size
    ratio = cost(weights, np.full(T, epsilon / T), 50, 50) / cost(weights, closed, 50, 50)
    expected = T**2 * weights.sum() / np.cbrt(weights).sum() ** 3
    assert ratio == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("factor", [0.2, 5.0])
def test_a_wrong_slope_only_costs_time(monkeypatch, factor):
    """A step of Newton's method that leaves its bracket is replaced by bisection."""
    weights, exact = np.exp([-20.0, 0.0, 3.0, 30.0]), allocation._log_slope
    right = theory.allocate_epsilon(weights, 2.0, 1000, 10)

    def wrong(epsilon, ratio):
        value, slope = exact(epsilon, ratio)
        return value, factor * slope

    monkeypatch.setattr(allocation, "_log_slope", wrong)
    found = theory.allocate_epsilon(weights, 2.0, 1000, 10)
    np.testing.assert_allclose(found, right, rtol=1e-9)


def test_many_iterations_and_long_tails():
    _, weights = theory.nesterov_weights(10_000, 1.0, 1e-4, 1.0)
    shares = theory.allocate_epsilon(weights, 1.0, 100_000, 1000)
    assert shares.sum() == pytest.approx(1.0, rel=1e-12)
    assert (np.diff(shares) > 0).all()


def test_scales_of_the_full_batch_break_the_budget_of_batches():
    # (4.5) without changes at the paper's settings, c = 1: claimed epsilon 1, spent as listed.
    for T, spent in [(100, 2.27), (1000, 1.92)]:
        _, weights = theory.nesterov_weights(T, 1 / 5.10008, 0.02, 5.10008)
        scales = theory.laplace_scales(theory.allocate_epsilon(weights, 1.0), 40.0, 100_000)
        true = privacy.laplace_epsilon(40.0, scales, 100_000, 1000).sum()
        assert true == pytest.approx(spent, abs=0.01)
        ours = theory.allocate_epsilon(weights, 1.0, 100_000, 1000)
        scales = theory.laplace_scales(ours, 40.0, 100_000, 1000)
        true = privacy.laplace_epsilon(40.0, scales, 100_000, 1000).sum()
        assert true == pytest.approx(1.0, rel=1e-9)


@given(weight_lists, st.sampled_from([1e-3, 0.5, 20.0]), st.floats(0.01, 100.0))
def test_gaussian_allocation(weights, rho, sensitivity):
    std = theory.allocate_gaussian(weights, rho, sensitivity)
    assert (sensitivity**2 / (2 * std**2)).sum() == pytest.approx(rho, rel=1e-12)
    minimum = sensitivity**2 / (2 * rho) * np.sqrt(weights).sum() ** 2
    assert weights @ std**2 == pytest.approx(minimum, rel=1e-9)
    uniform = sensitivity**2 * weights.size / (2 * rho)
    assert weights @ std**2 <= weights.sum() * uniform * (1 + 1e-9)


def test_subsampling_variance_against_enumeration():
    # The error of every 2-of-5 mean, for gradients at the corners of an L1 ball of radius S/2.
    S = 3.0
    corners = S / 2 * np.array([[1, 0], [-1, 0], [1, 0], [-1, 0], [-1, 0]])
    means = np.array([corners[list(pair)].mean(0) for pair in itertools.combinations(range(5), 2)])
    error = ((means - corners.mean(0)) ** 2).sum(1).mean()
    bound = theory.subsampling_variance(S, 5, 2)
    assert 0.9 * bound < error <= bound
    # The corners of a simplex are as far apart, and in no such ball.
    vertices = S / 2 * np.eye(20)
    error = ((vertices - vertices.mean(0)) ** 2).sum(1).mean()  # m = 1
    bound = theory.subsampling_variance(S, 20, 1)
    assert 0.9 * bound < error <= bound
    assert theory.subsampling_variance(S, 5, 5) == 0.0
    assert theory.subsampling_variance(0.1 * S, 20, 1) == pytest.approx(0.01 * bound)


@given(
    st.integers(1, 5).flatmap(
        lambda d: st.lists(st.lists(st.integers(-4, 4), min_size=d, max_size=d), min_size=2)
    ),
    st.integers(0, 2**32 - 1),
)
def test_the_variance_is_at_most_a_quarter_of_the_squared_l1_diameter(points, seed):
    """Of one record of n, with the weights that maximize it, by steps to the farthest point."""
    X = np.array(points, dtype=float)
    weights = np.random.default_rng(seed).dirichlet(np.full(len(X), 0.3))
    diameter = np.abs(X[:, None] - X).sum(2).max()
    for step in 2.0 / np.arange(2, 60):
        squares = ((X - weights @ X) ** 2).sum(1)
        assert weights @ squares <= diameter**2 / 4 * (1 + 1e-12) + 1e-24
        weights *= 1 - step
        weights[squares.argmax()] += step


def test_the_identity_behind_the_variance_of_a_mean():
    """Both sides have degree 2 in each variable, so 3 x 3 points prove it."""
    for y, z in itertools.product(range(3), repeat=2):
        terms = y * (1 - y) * (1 + z) + z * (1 - z) * (1 + y) - (z - y) * (1 - z) * (1 + y)
        assert terms == 2 * y * (1 - y * z)


def test_noise_second_moment_is_a_trace():
    rng = np.random.default_rng(0)
    noise = rng.laplace(scale=0.7, size=(200_000, 3))
    # Mean of ||w||^2: standard error sqrt(3 * 20) b^2 / sqrt(200 000) = .0085; 5 of them,
    # false-alarm probability 6e-7.
    assert (noise**2).sum(1).mean() == pytest.approx(
        theory.noise_second_moment(0.7, 3), abs=5 * 0.0085
    )
    assert theory.noise_second_moment([0.0, 1.0], 2, 0.5).tolist() == [0.5, 4.5]


def test_error_bound_is_linear_in_its_parts():
    bound = theory.error_bound(0.5, [1.0, 2.0], 4.0, [0.1, 0.2], 3, 0.02)
    assert bound == pytest.approx(2.0 + 1.0 * (0.03 + 0.01) + 2.0 * (0.12 + 0.01))


def test_weights_that_underflow_get_a_share_too():
    """Those of many steps do, and theirs is that of the smallest weight that counts."""
    weights = theory.nesterov_weights(2000, 1.0, 0.5, 1.0)[1]
    assert weights.min() == 0.0
    shares = theory.allocate_epsilon(weights, 1.0)
    assert (shares > 0.0).all() and shares.sum() == pytest.approx(1.0)
    assert shares.max() / shares.min() == pytest.approx(2.0 ** (52 / 3))
    assert np.isfinite(theory.allocate_gaussian(weights, 0.5, 1.0)).all()


@pytest.mark.parametrize(
    "call, match",
    [
        (lambda: theory.allocate_epsilon([1.0], 0.0), "epsilon"),
        (lambda: theory.allocate_epsilon([1.0], -1.0), "epsilon"),
        (lambda: theory.allocate_epsilon([1.0], np.nan), "epsilon"),
        (lambda: theory.allocate_epsilon([1.0, -1.0], 1.0), "weights"),
        (lambda: theory.allocate_epsilon([0.0, 0.0], 1.0), "weights must not all be 0"),
        (lambda: theory.allocate_epsilon([], 1.0), "weights"),
        (lambda: theory.allocate_epsilon([[1.0]], 1.0), "weights"),
        (lambda: theory.allocate_epsilon([1.0], 1.0, n=10, m=11), "m must"),
        (lambda: theory.allocate_epsilon([1.0], 1.0, n=10, m=0), "m must"),
        (lambda: theory.allocate_epsilon([1.0], 1.0, m=3), "m needs n"),
        (lambda: theory.allocate_gaussian([1.0], 0.0, 1.0), "rho"),
        (lambda: theory.laplace_scales([0.0], 1.0, 10), "epsilons"),
        (lambda: theory.laplace_scales([1.0], 1.0, 10, 20), "m must"),
        (lambda: theory.subsampling_variance(-1.0, 10, 5), "sensitivity"),
        (
            lambda: theory.error_bound(0.5, [1.0, 2.0], 4.0, [0.1], 3),
            r"laplace_scales must be a number or of shape \(2,\), got \(1,\)",
        ),
    ],
)
def test_bad_budget_arguments(call, match):
    with pytest.raises(ValueError, match=match):
        call()


TINY = st.floats(5e-324, 1e300, allow_subnormal=True)


@given(st.lists(TINY, min_size=1, max_size=5), TINY, st.sampled_from([None, 1, 50, 100]))
@example([1.0, 1.0], 1.5e-323, None)  # once an infinite loop: scaling left a subnormal unchanged
@example([1.0, 1.0, 1.0], 4e-323, 50)
@example([1.0], 5e-324, 1)
@example([1.0, 1.0], 5e-324, 1)
def test_the_smallest_budgets_are_divided_or_refused(weights, epsilon, m):
    try:
        shares = theory.allocate_epsilon(weights, epsilon, 100, m)
    except ValueError as error:
        assert epsilon < 1e-100 and "epsilon must be large enough" in str(error)
        return
    assert shares.all() and epsilon * (1 - 1e-9) - 5e-324 * len(weights) <= math.fsum(shares)
    assert math.fsum(shares) <= epsilon


@given(st.lists(st.floats(1e-100, 1e100), min_size=1, max_size=5), TINY)
@example([1.0], 1e-200)  # the square underflows, and once the noise was 0
@example([1.0], 1e200)
def test_no_sensitivity_is_too_small_for_noise(weights, sensitivity):
    unit = theory.allocate_gaussian(weights, 0.5, 1.0)
    scales = theory.laplace_scales([1.0], 1.0, 1)
    for levels, call in (
        (unit, lambda: theory.allocate_gaussian(weights, 0.5, sensitivity)),
        (scales, lambda: theory.laplace_scales([1.0], sensitivity, 1)),
    ):
        with np.errstate(over="ignore"):
            expected = levels * sensitivity
            try:
                found = call()
            except ValueError as error:
                assert "sensitivity must be larger" in str(error) and not expected.all()
                continue
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-323)
        assert found.all()


def test_what_no_record_changes_needs_no_noise():
    assert theory.laplace_scales([0.1, 1.0], 0.0, 100, 7).tolist() == [0.0, 0.0]
    assert theory.allocate_gaussian([1.0, 4.0], 0.5, 0.0).tolist() == [0.0, 0.0]


def test_no_single_iteration_is_left_without_noise():
    """Of two noise levels the smaller is rounded to 0, the other is not."""
    for call in (
        lambda: theory.allocate_gaussian([1.0, 1e100], 1e10, 5e-324),
        lambda: theory.laplace_scales([1e-3, 1e3], 5e-324, 1),
    ):
        with pytest.raises(ValueError, match="sensitivity must be larger"):
            call()


@pytest.mark.parametrize(
    ("weights", "rho", "sensitivity", "expected"),
    [
        ([1.0, 1e-300], 1e-300, 1.0, [7.0710678e149, 7.0710678e224]),
        ([1.0, 1.0], 1e-309, 1e-100, [3.1622777e54, 3.1622777e54]),
    ],
)
def test_noise_whose_square_overflows(weights, rho, sensitivity, expected):
    np.testing.assert_allclose(theory.allocate_gaussian(weights, rho, sensitivity), expected, 1e-7)


def test_scales_need_the_number_of_samples():
    with pytest.raises(TypeError, match="n must be an integer, got None"):
        theory.laplace_scales([0.1], 1.0, None)
