"""SGD without active clipping (Fang et al. 2023): paths, thresholds, utility, frequencies."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.stats import binom, chi2, norm

from dpanalysis import theory
from dpanalysis.clipping import Flat, Value
from dpanalysis.papers.value_clipping.printed import printed_clipped_sgd, printed_objective_bound
from dpanalysis.theory.clipped_sgd import (
    ClippedSGDBound,
    path_bound,
    poisson_noise_scale,
    sgd_noise_scale,
    sgd_objective_bound,
)

seeds = st.integers(0, 2**32 - 1)


@pytest.mark.slow
@given(st.floats(-8, 8), seeds)
def test_the_exponential_moment_behind_every_constant(multiplier, seed):
    # E Y = 0 and E exp(Y^2) = e imply E exp(m Y) <= exp(3 m^2 / 4).
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(3, 0.4), 20)
    y = rng.standard_normal((20, 3))
    y -= (p * y).sum(1, keepdims=True)
    for probabilities, values in zip(p, y):
        if probabilities.min() < 1e-9:
            continue
        scaled = values / theory.light_tail_scale(np.abs(values), probabilities)
        assert probabilities @ np.exp(multiplier * scaled) <= np.exp(0.75 * multiplier**2) + 1e-12


@given(st.lists(st.floats(0, 1e308), min_size=1, max_size=20))
@example([0.0, 5e-324])
@example([1e-310, 5e-324])
@example([0.0] * 300 + [5e-324])
@example([1e308, 1.7e308])
def test_light_tail_scale_is_the_smallest(deviations):
    d = np.array(deviations)
    rho = theory.light_tail_scale(d)
    if rho == 0:
        assert not d.any()
        return

    def mean(scale):
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            return np.nanmean(np.exp((d / scale) ** 2))  # NaN is 0/0: no part of the mean

    assert mean(rho) <= math.e * (1 + 1e-8)
    # The next smaller number, or one closer to it than the bound's own accuracy, is too small.
    assert mean(min(rho * (1 - 1e-8), math.nextafter(rho, 0.0))) >= math.e
    assert (d / rho).max() <= np.sqrt(1 + np.log(d.size)) * (1 + 1e-12)


@given(st.integers(2, 4), st.integers(1, 3), seeds)
def test_noise_scale_covers_batches_drawn_either_way(n, batch, seed):
    rng = np.random.default_rng(seed)
    g = rng.standard_normal((n, 2)) ** 3
    g -= g.mean(0)
    rho = theory.light_tail_scale(np.linalg.norm(g, axis=1))
    scale = sgd_noise_scale(1.0, 0.0, batch, 2, rho)
    draws = [itertools.product(range(n), repeat=batch)]
    if batch <= n:
        draws.append(itertools.combinations(range(n), batch))
    for draw in draws:
        means = g[np.array(list(draw))].mean(axis=1)
        assert np.mean(np.exp((means**2).sum(1) / scale**2)) <= math.e * (1 + 1e-9)


@pytest.mark.parametrize("batch", [1, 7])
def test_noise_scale_of_a_batch_by_quadrature(batch):
    """exp(B l^2 rho^2) has mean e over the normal l for which E exp(l x) = exp(x^2/(B K)^2)."""
    rho, spread = 0.3, math.sqrt(2) / (batch * sgd_noise_scale(1.0, 0.0, batch, 1, 0.3))

    def density(z):
        return math.exp(batch * (spread * z * rho) ** 2 - z**2 / 2) / math.sqrt(2 * math.pi)

    assert quad(density, -np.inf, np.inf)[0] == pytest.approx(math.e, rel=1e-8)


@given(st.integers(1, 300), st.floats(0.1, 10), st.integers(1, 50))
def test_noise_scale_is_exact_for_gaussian_noise(d, sigma, batch):
    scale = sgd_noise_scale(2.0, sigma, batch, d)
    ratio = 2 * (2.0 * sigma / batch / scale) ** 2
    assert (1 - ratio) ** (-d / 2) == pytest.approx(math.e, rel=1e-6)  # E exp(s chi^2_d)
    assert scale > math.sqrt(d) * 2.0 * sigma / batch  # (12) with c5 = 1


def test_no_noise_scale_exists_for_poisson_batches_over_their_mean_size():
    # With equal gradients rho is 0, but (|B_t|/B - 1) grad f is not. The paper's proof of
    # Proposition 4.4 bounds it by rho^2/B times a constant.
    n, B = 100, 10
    sizes = np.arange(n + 1)
    second = binom.pmf(sizes, n, B / n) @ (sizes / B - 1.0) ** 2
    assert second == pytest.approx((1 - B / n) / B)
    assert theory.light_tail_scale(np.zeros(n)) == 0.0
    assert sgd_noise_scale(1.0, 0.0, B, 1, 0.0) == 0.0


def run_sgd(gradient, value, w, step_size, std, iterations, rng):
    """Return max_t f(w_t) of every run (a row of w) of SGD with Gaussian noise."""
    highest = value(w)
    for _ in range(iterations):
        w = w - step_size * (gradient(w) + std * rng.standard_normal(w.shape))
        highest = np.maximum(highest, value(w))
    return highest


@pytest.mark.parametrize("failure", [0.5, 0.05])
@pytest.mark.parametrize("step_size", [0.02, 0.5, 1.0])
@pytest.mark.parametrize("start", [0.0, 2.0])
def test_paths_stay_below_the_bound_as_often_as_promised(failure, step_size, start):
    # f(w) = sum log cosh(w), smooth with L = 1. 3000 runs; the bound is conservative, so that
    # "too many beyond" has a false-alarm rate far below the 1e-9 of the binomial quantile.
    rng, d, T, runs, std = np.random.default_rng(5), 2, 60, 3000, 0.7
    scale = std * np.sqrt(2 / -np.expm1(-2 / d))

    def value(w):
        return np.logaddexp(w, -w).sum(-1) - d * np.log(2)

    w = np.full((runs, d), start)
    bound = sgd_objective_bound(value(w)[0], 1.0, step_size, scale, T, failure)
    beyond = (run_sgd(np.tanh, value, w, step_size, std, T, rng) > bound).sum()
    assert beyond <= binom.isf(1e-9, runs, failure)


def test_the_bound_is_tight_within_a_factor_of_15():
    # Random walks away from the minimum: every run exceeds a fifteenth of the bound.
    d, T, std, eta, rng = 200, 50, 1.0, 1e-3, np.random.default_rng(6)
    scale = std * np.sqrt(2 / -np.expm1(-2 / d))
    bound = sgd_objective_bound(0.0, 1.0, eta, scale, T, 0.5)
    highest = run_sgd(
        lambda w: w, lambda w: (w**2).sum(-1) / 2, np.zeros((50, d)), eta, std, T, rng
    )
    assert bound / 15 < highest.min() and highest.max() < bound


@given(
    st.floats(1e-3, 100), st.floats(1e-3, 100), st.floats(1e-6, 1), st.floats(1e-6, 100),
    st.integers(1, 10**6), st.floats(1e-12, 0.5),
)  # fmt: skip
def test_the_path_bound_is_never_above_the_papers(gap, L, fraction, scale, T, failure):
    largest = min(0.5 / L, 1 / (scale * np.sqrt(T)))
    arguments = (gap, L, fraction * largest, scale, T, failure)
    sharp = sgd_objective_bound(*arguments)
    assert gap <= sharp <= printed_objective_bound(*arguments)
    # Any of these step sizes is covered by the clip norm, whatever the noise.
    norm = theory.no_clipping_norm(gap, L, 0.0, 1, T, failure)
    assert np.sqrt(2 * L * sharp) <= norm * (1 + 1e-9)


@given(
    st.floats(1e-3, 10), st.floats(1e-3, 10), st.floats(1e-4, 10), st.floats(0.7, 30),
    st.integers(1, 300),
)  # fmt: skip
@example(1e-3, 1.0, 10.0, 30.0, 1)  # the largest lambda_0 is the best
def test_the_path_bound_is_the_best_of_its_proof(gap, L, S, log_failure, T):
    """The least over lambda_0 <= T/(L S), and above what a lambda for every step allows."""
    rates = T / (L * S) / np.geomspace(1.0, 1e8, 4001)
    start, growth = gap + 0.5 * L * S, 3.0 * L * S / T
    bounds = (1.0 + T * growth * rates) * (start + log_failure / rates)
    found = path_bound(gap, L, S, log_failure, T)
    assert found == pytest.approx(bounds.min(), rel=1e-4)
    # lambda' (1 + growth lambda') = lambda: the noise in the direction of the gradient is paid.
    rate, paid = rates, 0.0
    for _ in range(T):
        rate = 2.0 * rate / (1.0 + np.sqrt(1.0 + 4.0 * growth * rate))
        paid = paid + 0.5 * rate * L * S / T
    assert ((rates * gap + paid + log_failure) / rate).min() <= found * (1 + 1e-4)


def test_small_steps_pay_for_the_noise_alone():
    """The largest lambda at which a step's decrease compensates its noise: a search."""
    eta, sigma, T, failure = 1e-4, 2.0, 1000, 0.01

    def exponent(rate):  # over |gradient|^2; Cauchy-Schwarz doubles the argument of the moment
        linear = 0.5 * 0.75 * (2 * rate * eta * (1 - eta) * sigma) ** 2
        return linear - rate * eta * (1 - eta / 2)

    rate = brentq(exponent, 1.0, 1e9)
    drift = 0.5 * (eta * sigma) ** 2 * T
    bound = sgd_objective_bound(100.0, 1.0, eta, sigma, T, failure)
    assert bound - 100.0 == pytest.approx(drift - math.log(failure) / rate, rel=1e-3)


def test_the_probability_of_clipping_is_paid_for():
    # Full batches without noise: C, which depends on the probability, does not matter unclipped.
    def bound(failure):
        return theory.clipped_sgd_bound(0.5, 1.0, 0.0, 10, 10, 1, 0.0, 100, failure, distance=1.0)

    # Given an event of probability 1/2 a mean is at most twice as large.
    utility = bound(1e-15).conditional
    assert bound(0.5).conditional == pytest.approx(2 * utility)
    # Clipped gradients that all point away from the minimum of w^2/2.
    farthest = 1.0 + 100 * bound(0.5).step_size * bound(0.5).clip_norm
    assert 0.5 * farthest**2 / 2 <= bound(0.5).expected - utility <= 5 * farthest**2


def private_sgd(centers, L, w, found, sigma, batch, iterations, rng):
    """Return iterates and clip count of Algorithm 1 on f_i(w) = (L/2)|w - a_i|^2, all runs."""
    n = len(centers)
    path, clipped, rule = [w], 0, Flat(found.clip_norm)
    for _ in range(iterations):
        drawn = np.argsort(rng.random((len(w), n)), axis=1)[:, :batch]
        g = L * (w[:, None] - centers[drawn])
        norms = np.linalg.norm(g, axis=2)
        clipped += np.count_nonzero(norms > found.clip_norm)
        noise = found.clip_norm * sigma * rng.standard_normal(w.shape)
        w = w - found.step_size / batch * ((rule.weight(norms)[..., None] * g).sum(1) + noise)
        path.append(w)
    return np.array(path), clipped


@pytest.mark.slow
@pytest.mark.parametrize("batch", [8, 40])
@pytest.mark.parametrize("sigma", [0.1, 1.0])
def test_private_sgd_is_not_clipped_and_keeps_its_utility(batch, sigma):
    rng, n, d, T, L = np.random.default_rng(11), 40, 3, 300, 2.0
    centers = rng.standard_normal((n, d))
    mean = centers.mean(0)
    start = mean + np.array([1.0, -1.0, 0.5])
    distance = np.linalg.norm(start - mean)
    gap = L / 2 * distance**2
    rho = theory.light_tail_scale(L * np.linalg.norm(centers - mean, axis=1))
    arguments = (gap, L, rho, n, batch, d, sigma, T, 1e-12)
    convex = theory.clipped_sgd_bound(*arguments, distance=distance, spread=distance)
    general = theory.clipped_sgd_bound(*arguments, spread=distance)
    assert convex.clip_norm <= theory.no_clipping_norm(gap, L, rho, n, T, 1e-12, spread=distance)
    assert convex.conditional <= convex.expected * (1 + 1e-9)
    w = np.tile(start, (100, 1))
    path, clipped = private_sgd(centers, L, w, convex, sigma, batch, T, rng)
    assert clipped == 0  # fails with probability 1e-10 at most
    # On a quadratic the second bound is nearly attained: 6 standard errors, 1e-9.
    excess = (L / 2 * ((path - mean) ** 2).sum(-1)).mean(0)
    slack = 6 * excess.std() / np.sqrt(excess.size)
    assert excess.mean() <= convex.expected + slack
    assert 2 * L * excess.mean() <= general.expected + 2 * L * slack
    assert 2 * L * excess.mean() >= 0.3 * general.expected
    # Half the clip norm of a start far away clips: the count can be above 0.
    tight = ClippedSGDBound(1.0, convex.step_size, convex.noise_scale, 0.0, 0.0)
    assert private_sgd(centers, L, w, tight, sigma, batch, 3, rng)[1] > 0


def test_one_sample_far_from_all_others_is_not_clipped():
    """Parabolas with one minimum elsewhere, at the minimum of their mean."""
    for n in (3, 50, 10_000):
        a = np.zeros(n)
        a[0] = 1.0
        largest = np.abs(a - a.mean()).max()
        rho = theory.light_tail_scale(np.abs(a - a.mean()))
        norm = theory.no_clipping_norm(0.0, 1.0, rho, n, 1, 0.5, spread=0.0)
        assert largest <= norm <= 1.4 * largest
        below = largest * (1 - 1e-9)  # it alone is longer
        assert theory.clipping_frequency_light_tail(below, 0.0, rho) >= 1 / n


# Full batches without light tails (Remark 4.2)


@given(st.integers(1, 30), st.integers(1, 4), seeds)
def test_all_samples_together_bound_each_gradient(n, d, seed):
    """f_i(w) = (c_i/2)|w - a_i|^2 + b_i: no rho exists, for curvatures differ."""
    rng = np.random.default_rng(seed)
    c, a = 10.0 ** rng.uniform(-3, 1, n), rng.standard_normal((n, d)) ** 3
    best = c @ a / c.sum()
    interpolation_gap = (c * ((best - a) ** 2).sum(1)).mean() / 2
    w = best + 10.0 ** rng.uniform(-3, 3) * rng.standard_normal(d)
    gap = c.mean() / 2 * ((w - best) ** 2).sum()
    largest = (c * np.linalg.norm(w - a, axis=1)).max()
    # No noise: the iterates never lie higher than the start.
    norm = theory.no_clipping_norm(
        gap, c.max(), None, n, 1, 0.5, spread=0.0, interpolation_gap=interpolation_gap
    )
    assert largest <= norm * (1 + 1e-9)


def test_one_sample_with_all_the_loss_attains_the_bound():
    # f_1(w) = L w^2 / 2, and n - 1 samples without loss.
    n, L, w = 50, 3.0, 2.0
    norm = theory.no_clipping_norm(
        L * w**2 / (2 * n), L, None, n, 1, 0.5, spread=0.0, interpolation_gap=0.0
    )
    assert norm == pytest.approx(L * w, rel=1e-12)
    # At the minimizer of two parabolas at 1 and -1 the excess loss is 0, and gradients are 1.
    options = {"spread": 0.0, "interpolation_gap": 0.5}
    assert theory.no_clipping_norm(0.0, 1.0, None, 2, 1, 0.5, **options) >= 1.0


@pytest.mark.parametrize("sigma", [0.1, 1.0])
def test_private_gradient_descent_is_not_clipped_without_light_tails(sigma):
    """Least squares, curvatures from .01 to 2: gradient differences are unbounded in w."""
    rng, n, d, T = np.random.default_rng(17), 40, 3, 200
    c, a = np.geomspace(0.01, 2.0, n), rng.standard_normal((n, d))
    best = c @ a / c.sum()
    w = np.tile(best + np.array([3.0, -2.0, 1.0]), (100, 1))
    distance = np.linalg.norm(w[0] - best)
    gap, interpolation_gap = (
        c.mean() / 2 * distance**2,
        (c * ((best - a) ** 2).sum(1)).mean() / 2,
    )
    found = theory.clipped_sgd_bound(
        gap, c.max(), None, n, n, d, sigma, T, 1e-12, distance=distance, spread=distance,
        interpolation_gap=interpolation_gap,
    )  # fmt: skip
    rule, excess, highest = Flat(found.clip_norm), [], 0.0
    for _ in range(T + 1):
        excess.append(c.mean() / 2 * ((w - best) ** 2).sum(1))
        g = c[:, None] * (w[:, None] - a)
        norms = np.linalg.norm(g, axis=2)
        highest = max(highest, norms.max())
        noise = found.clip_norm * sigma * rng.standard_normal(w.shape)
        w = w - found.step_size / n * ((rule.weight(norms)[..., None] * g).sum(1) + noise)
    # The clip norm is exceeded with probability at most 1e-10 in 100 runs, and is not loose.
    assert highest <= found.clip_norm <= 10 * highest
    mean = np.mean(excess, axis=0)  # of each run; 6 standard errors, 1e-9
    assert mean.mean() <= found.expected + 6 * mean.std() / np.sqrt(len(mean))


@pytest.mark.slow
@pytest.mark.parametrize("convex", [True, False])
def test_private_sgd_on_poisson_batches_is_not_clipped(convex):
    """Parabolas with eight centers, 50 samples each; batches at rate 1/4, sums divided by B."""
    rng, each, T, q, sigma = np.random.default_rng(18), 50, 300, 0.25, 2.0
    n, B = 8 * each, 2 * each
    a = rng.standard_normal((8, 2))
    a -= a.mean(axis=0)
    rho = theory.light_tail_scale(np.linalg.norm(a, axis=1))
    start = np.array([3.0, 4.0])
    found = theory.clipped_sgd_bound(
        12.5, 1.0, rho, n, B, 2, sigma, T, 1e-12, spread=5.0, sampling="poisson",
        distance=5.0 if convex else None,
    )  # fmt: skip
    rule, w, utility, highest = Flat(found.clip_norm), np.tile(start, (200, 1)), [], 0.0
    for _ in range(T + 1):
        utility.append((w**2).sum(axis=1) * (0.5 if convex else 1.0))
        g = w[:, None] - a
        norms = np.linalg.norm(g, axis=2)
        highest = max(highest, norms.max())
        drawn = rng.binomial(each, q, norms.shape) * rule.weight(norms)
        noise = found.clip_norm * sigma * rng.standard_normal(w.shape)
        w = w - found.step_size / B * ((drawn[..., None] * g).sum(axis=1) + noise)
    assert highest <= found.clip_norm <= 10 * highest
    mean = np.mean(utility, axis=0)
    assert mean.mean() <= found.expected + 6 * mean.std() / np.sqrt(len(mean))


def test_poisson_batches_cost_more_and_full_ones_the_same():
    def bound(B, sampling):
        return theory.clipped_sgd_bound(
            1.0, 1.0, 1.0, 10_000, B, 20, 1.0, 1000, 1e-12, distance=1.0, sampling=sampling
        )

    assert bound(10_000, "poisson") == bound(10_000, "fixed")
    for B in (10, 1000):
        assert bound(B, "poisson").noise_scale > bound(B, "fixed").noise_scale
        assert bound(B, "poisson").expected > bound(B, "fixed").expected


@given(seeds, st.floats(0.01, 0.99), st.floats(0.0, 2.0))
def test_the_scale_of_poisson_batches_holds_for_all_batches(seed, rate, noise):
    """E exp(|zeta|^2/s^2) over all batches of five gradients, the noise integrated."""
    g = np.random.default_rng(seed).standard_normal((5, 2)) ** 3
    inside = np.array(list(itertools.product((0.0, 1.0), repeat=5)))
    chances = np.prod(np.where(inside == 1.0, rate, 1.0 - rate), axis=1)
    errors = (inside - rate) @ g / (5 * rate)
    square = float((g**2).sum(axis=1).mean())
    scale = poisson_noise_scale(1.0, noise, 5 * rate, 5, 2, square) ** 2
    variance = (noise / (5 * rate)) ** 2
    left = chances @ np.exp((errors**2).sum(axis=1) / (scale - 2 * variance))
    assert left / (1 - 2 * variance / scale) <= math.e * (1 + 1e-9)


@given(st.integers(1, 20), st.floats(0.01, 1.0), st.floats(0.0, 5.0), st.floats(0.0, 5.0))
def test_batches_and_noise_are_independent(d, rate, noise, square):
    """Traces of variances add up, and noise in d coordinates has d times that of one; else scales
    add up. For one coordinate the traces are exact."""

    def scale(noise, square, d=d):
        return poisson_noise_scale(1.5, noise, 50 * rate, 50, d, square)

    batch = scale(0.0, square)
    traces = math.sqrt(batch**2 + d * scale(noise, 0.0, 1) ** 2)
    assert scale(noise, square) == pytest.approx(min(traces, batch + scale(noise, 0.0)))
    assert scale(noise, square, 1) == pytest.approx(math.hypot(batch, scale(noise, 0.0, 1)))


def test_without_light_tails_the_utility_is_worse_by_root_n():
    # T so large that noise dominates, sigma = sqrt(T) as for a budget: four times the samples
    # divide the bound by 4 with light tails, and by 2 without.
    T, n = 10**12, 10**9

    def expected(n, rho, **more):
        sigma = math.sqrt(T)
        return theory.clipped_sgd_bound(
            1.0, 1.0, rho, n, n, 10, sigma, T, 1e-40, distance=1.0, **more
        ).expected

    light = expected(n, 0.0)
    heavy = expected(n, None, interpolation_gap=0.0)
    assert light / expected(4 * n, 0.0) == pytest.approx(4.0, rel=0.01)
    assert heavy / expected(4 * n, None, interpolation_gap=0.0) == pytest.approx(2.0, rel=0.01)
    assert heavy / light == pytest.approx(math.sqrt(n), rel=0.01)
    # With both assumptions the smaller bound is used.
    assert expected(n, 0.0, interpolation_gap=0.0) == light
    assert expected(n, 1e9, interpolation_gap=0.0) == heavy


def test_the_unconditional_bound_pays_for_a_large_failure_probability():
    def expected(failure):
        return theory.clipped_sgd_bound(
            1.0, 1.0, 1.0, 10_000, 100, 20, 1.0, 1000, failure, distance=1.0
        ).expected

    assert expected(1e-3) > 10 * expected(1e-12)
    assert expected(1e-12) == pytest.approx(expected(1e-14), rel=0.1)


@pytest.mark.slow
def test_clipping_frequency_of_gaussian_gradients_is_what_is_measured():
    # The paper's synthetic regression: least squares with standard Gaussian gradient noise.
    # 20 z-tests with a two-sided false-alarm rate of 1e-9 together.
    rng, d, samples = np.random.default_rng(13), 64, 20_000
    H = np.diag(rng.uniform(0.2, 1.0, d))
    w = rng.standard_normal(d)
    frequencies = []
    for _ in range(20):
        gradient = H @ w
        measured = np.linalg.norm(gradient + rng.standard_normal((samples, d)), axis=1) > 8.6
        predicted = theory.clipping_frequency_gaussian(8.6, np.linalg.norm(gradient), 1.0, d)
        error = np.sqrt(predicted * (1 - predicted) / samples)
        assert abs(measured.mean() - predicted) <= 6.7 * error
        frequencies.append(predicted)
        w = w - 0.2 * gradient
    assert np.all(np.diff(frequencies) < 0)  # less is clipped as the method converges
    # It is a tail probability: central without a gradient, and continuous there.
    near = theory.clipping_frequency_gaussian([7.0, 8.0], [0.0, 1e-6], 1.0, d)
    np.testing.assert_allclose(near, chi2.sf([49, 64], d), rtol=1e-9)


@given(st.integers(2, 40), st.floats(0.05, 5), seeds)
def test_frequency_bounds_hold_for_any_samples(n, clip_norm, seed):
    rng = np.random.default_rng(seed)
    g = rng.standard_normal((n, 3)) ** 3
    norms, gradient = np.linalg.norm(g, axis=1), np.linalg.norm(g.mean(0))
    rho = theory.light_tail_scale(np.linalg.norm(g - g.mean(0), axis=1))
    bound = theory.clipping_frequency_light_tail(clip_norm, gradient, rho)
    assert np.mean(norms > clip_norm) <= bound * (1 + 1e-9)
    assert (
        theory.clipping_frequency_light_tail(
            gradient + rho * np.sqrt(1 + np.log(n)) * (1 + 1e-9), gradient, rho
        )
        <= 1 / n
    )


@given(st.floats(0.01, 3), st.floats(0.1, 10), seeds)
def test_losses_bound_how_often_either_rule_clips(clip_norm, growth, seed):
    # Logistic regression at a random point, rows of norm up to 2.
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((200, 3))
    X *= (2 * rng.random(200) / np.linalg.norm(X, axis=1))[:, None]
    margins = X @ (growth * rng.standard_normal(3))
    losses = np.logaddexp(0, -margins)
    norms = np.linalg.norm(X, axis=1) / (1 + np.exp(margins))
    beta1 = theory.weak_growth_logistic(2.0)
    by_value = np.mean(Value(clip_norm, beta1).weight(norms, losses) < 1)
    by_norm = np.mean(Flat(clip_norm).weight(norms) < 1)
    assert by_norm <= by_value
    assert by_value <= theory.clipping_frequency_weak_growth(clip_norm, losses.mean(), beta1) + 1e-9


CONSTANTS = {"c1": 1.0, "c2": 2.0, "c3": 0.5, "c4": 0.7, "c5": 1.5}


def test_published_parameters_by_their_definition():
    n, B, d, T, epsilon, delta, L, rho = 1000, 100, 7, 500, 0.8, 1e-5, 2.0, 0.3
    found = printed_clipped_sgd(n, B, d, T, epsilon, delta, L, rho, failure=0.01, **CONSTANTS)
    q = B / n
    sigma = 2.0 * q * math.sqrt(T * math.log(1 / delta)) / epsilon
    C = 0.5 + 0.7 * math.sqrt(math.log(n * T / 0.01))
    eta = min(1 / (2 * L), 1.5 * B / math.sqrt((B * rho**2 + C**2 * d * sigma**2) * T))
    assert found[:3] == pytest.approx((sigma, C, eta))
    privacy = math.sqrt(d * math.log(1 / delta) * math.log(n * T / 0.01)) / (n * epsilon)
    assert found.rate == pytest.approx(1 / T + 1 / math.sqrt(B * T) + privacy)
    # Theorem 4.5 has no delta', and is within a factor 3 of its limit from n^2 eps^2/d on.
    horizon = int(n**2 * epsilon**2 / d)
    rate = printed_clipped_sgd(n, B, d, horizon, epsilon, delta, L, rho, **CONSTANTS).rate
    assert 1 < rate / (math.sqrt(d) / (n * epsilon)) < 3


def test_published_parameters_without_light_tails():
    """Remark 4.2: sqrt(n) times in the clip norm and in the utility, for full batches."""
    full = {"batch_size": 100, "failure": 0.01}
    light, heavy = published(rho=0.0, **full), published(rho=None, **full)
    assert heavy.noise_multiplier == light.noise_multiplier
    assert heavy.clip_norm == pytest.approx(10 * light.clip_norm)
    assert heavy.step_size == pytest.approx(light.step_size / 10)
    sampling = 1 / math.sqrt(100 * 1000)
    assert heavy.rate - 1e-3 == pytest.approx(10 * (light.rate - 1e-3 - sampling))


def published(**change):
    values = {
        "n": 100, "batch_size": 10, "dimension": 2, "iterations": 1000, "epsilon": 1.0,
        "delta": 1e-3, "L": 1.0, "rho": 1.0, **CONSTANTS, **change,
    }  # fmt: skip
    return printed_clipped_sgd(**values)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: published(delta=0.7), "delta"),  # 004-2
        (lambda: published(failure=0.7), "failure"),
        (lambda: published(iterations=99), "epsilon/\\(c1 q\\^2\\) = 100"),  # 004-3
        (lambda: published(batch_size=101), "batch_size"),
        (lambda: published(c5=0.0), "c5"),
        (lambda: sgd_objective_bound(1, 1, 1.5, 1, 10, 0.1), "step_size"),
        (lambda: printed_objective_bound(1, 1, 0.4, 1, 10, 0.1), "step_size"),
        (lambda: sgd_objective_bound(1, 1, 0.1, 1, 10, 0.6), "failure"),
        (lambda: sgd_noise_scale(0, 1, 1, 1), "clip_norm"),
        (lambda: theory.light_tail_scale([[1.0]]), "deviations"),
        (lambda: theory.light_tail_scale([1.0, 2.0], [0.5, 0.6]), "probabilities"),
        (lambda: theory.light_tail_scale([1.0, 2.0], [1.5, -0.5]), "probabilities must lie in"),
        (lambda: theory.no_clipping_norm(1, 1, -1, 1, 1, 0.1), "rho"),
        (lambda: theory.clipped_sgd_bound(1, 1, 1, 10, 11, 1, 1, 1, 0.1), "batch_size"),
        (lambda: theory.clipped_sgd_bound(1, 1, 1, 9, 9, 1, 1, 1, 0.1, distance=-1), "distance"),
        (lambda: theory.no_clipping_norm(1, 1, None, 1, 1, 0.1), "rho and interpolation_gap"),
        (
            lambda: theory.clipped_sgd_bound(1, 1, None, 10, 9, 1, 1, 1, 0.1, interpolation_gap=0),
            "rho must be given for batches of 9 of 10",
        ),
        (
            lambda: theory.no_clipping_norm(1, 1, 1, 1, 1, 0.1, interpolation_gap=-1),
            "interpolation_gap",
        ),
        (lambda: published(rho=None), "rho must be given for batches of 10 of 100"),
        (lambda: theory.clipped_sgd_bound(1, 1, 1, 10, 5, 1, 1, 1, 0.1, spread=0), "spread"),
        (lambda: theory.clipping_frequency_gaussian(1, 1, 0, 1), "std"),
        (lambda: theory.clipping_frequency_light_tail(1, -1, 1), "gradient_norm"),
        (lambda: theory.clipping_frequency_weak_growth(1, 1, 1, lower_bound=2), "mean_loss"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_no_room_below_beta2():
    assert theory.clipping_frequency_weak_growth(1.0, 0.1, 1.0, beta2=1.0) == 1.0


@given(
    st.floats(5e-324, 1e308), st.floats(0, 1e308), st.floats(5e-324, 1e308), st.integers(1, 1000)
)
@example(1.0, 1e6, 1.0, 2)  # SciPy gives 0.43
@example(1.0, 1e200, 1.0, 3)  # and NaN
@example(1e200, 1.0, 1e-200, 3)
@example(1009157.0, 1009121.0, 1.0, 1)  # a tail strictly between 0 and 1, beyond the series
@example(1.0, 4e15, 1e14, 1)  # SciPy's law raises OverflowError
def test_gaussian_frequencies_of_any_size(clip_norm, gradient_norm, std, d):
    try:
        found = theory.clipping_frequency_gaussian(clip_norm, gradient_norm, std, d)
    except ValueError as error:
        assert "SciPy cannot compute the tail" in str(error)
        assert not abs(clip_norm / std - gradient_norm / std) > math.sqrt(d) + 40
        return
    assert 0.0 <= found <= 1.0
    if clip_norm / std > gradient_norm / std + math.sqrt(d) + 40:
        assert found == 0.0
    if gradient_norm / std > clip_norm / std + math.sqrt(d) + 40:
        assert found == 1.0


@pytest.mark.parametrize("d", [2, 3, 30, 1000, 10**5, 10**8])
def test_the_gaussian_frequency_is_that_of_two_parts(d):
    """A normal one along the mean gradient, a central chi-squared one across: by quadrature."""
    g = np.array([0.0, 0.1, 1.0, 5.0, 30.0])[:, None]
    c = np.maximum(np.sqrt(d + g * g) + np.linspace(-8.0, 8.0, 17), 0.1)
    ends = np.arcsin(np.clip([(g - 10.0) / c, (g + 10.0) / c], -1.0, 1.0))
    nodes, weights = np.polynomial.legendre.leggauss(100)
    middle, half = ends.mean(axis=0), 0.5 * np.diff(ends, axis=0)[0]
    angle = middle[..., None] + half[..., None] * nodes
    along, across = c[..., None] * np.sin(angle), c[..., None] * np.cos(angle)
    density = across * norm.pdf(along - g[..., None])
    tail = (
        norm.sf(c - g) + norm.cdf(-c - g) + half * ((chi2.sf(across**2, d - 1) * density) @ weights)
    )
    found = theory.clipping_frequency_gaussian(1.7 * c, 1.7 * g, 1.7, d)
    np.testing.assert_allclose(found, tail, rtol=1e-6, atol=1e-9)


def test_the_gaussian_frequency_where_the_series_ends():
    found = theory.clipping_frequency_gaussian(1e4, 1e4, 1.0, 2)
    assert found == pytest.approx(0.5 + 1 / (2e4 * math.sqrt(2 * math.pi)), abs=1e-8)
    with pytest.raises(ValueError, match="at most 10000 and dimension"):
        theory.clipping_frequency_gaussian(1e6, 1e6, 1.0, 2)


@given(
    st.floats(0, 1e308), st.floats(5e-324, 1e308), st.floats(0, 1), st.floats(0, 1e308),
    st.integers(1, 10**6), st.floats(5e-324, 0.5),
)  # fmt: skip
@example(0.0, 1e308, 1.0, 1e308, 1, 5e-324)
@example(0.0, 1.0, 0.5, 0.0, 10, 5e-324)
def test_paths_of_any_size_have_a_bound(gap, L, fraction, scale, T, failure):
    step_size = min(fraction / L, 1.7e308)
    assume(0 < step_size <= 1 / L)
    assert sgd_objective_bound(gap, L, step_size, scale, T, failure) >= gap
    assert theory.no_clipping_norm(gap, L, scale, T, T, failure, spread=scale) >= 0.0


@pytest.mark.parametrize("sampling", ["fixed", "poisson"])
@pytest.mark.parametrize("distance", [2.0, None])
def test_the_utility_is_that_of_the_formula(sampling, distance):
    """The two lines of the docstring, from the C and the step size that are returned."""
    D, L, rho, n, B, d, sigma, T, failure = 1.0, 2.0, 0.3, 100, 20, 5, 0.7, 50, 0.1
    found = theory.clipped_sgd_bound(
        D, L, rho, n, B, d, sigma, T, failure, distance=distance, sampling=sampling
    )
    C, eta, q = found.clip_norm, found.step_size, B / n
    missed = 1.0 - q if sampling == "poisson" else 1.0
    v = missed * rho**2 / B + d * (C * sigma / B) ** 2
    if distance is None:
        above = 1.0 + (1.0 - q) / B if sampling == "poisson" else 1.0
        U = (D / ((T + 1) * eta) + 0.5 * L * v * eta) / (1.0 - 0.5 * L * eta * above)
    else:
        U = distance**2 / (2.0 * (T + 1) * eta) + 0.5 * v * eta
    K = 2.0 * (C * sigma) ** 2 / -math.expm1(-2.0 / d)
    most = C / q if sampling == "poisson" else C
    beta = 2.0 * D + 2.0 * L * (eta * T) ** 2 * (most**2 + K / B**2)
    gamma = 2.0 * L * eta**2 * T * K / B**2
    rare = failure * (beta + gamma * (1.0 - math.log(failure)))
    assert found.conditional == pytest.approx(U / (1.0 - failure))
    assert found.expected == pytest.approx(U + (1.0 if distance else 2.0 * L) * rare)
