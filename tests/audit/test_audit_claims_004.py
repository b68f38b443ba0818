"""Helpers of the claims on Fang et al. (2023), and faults that the claims must detect."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from dpanalysis import losses
from dpanalysis.papers import registry
from dpanalysis.papers.claim import Effort
from dpanalysis.papers.value_clipping import convergence, potentials, privacy
from dpanalysis.theory.clipped_sgd import bernoulli_proxy, light_tail_scale, poisson_noise_scale


@pytest.mark.slow
@given(st.integers(0, 2**32 - 1))
def test_gradient_of_a_network_against_differences(seed):
    x, weights = list(convergence.networks(np.random.default_rng(seed), 1))[-1]
    weights = [W / max(1.0, float(np.linalg.norm(W, 2))) for W in weights]
    _, square = convergence.network(x, weights)
    total, h = 0.0, 1e-6
    for W in weights:
        for index in np.ndindex(W.shape):
            kept = W[index]
            values = []
            for moved in (kept + h, kept - h):
                W[index] = moved
                values.append(convergence.network(x, weights)[0])
            W[index] = kept
            total += ((values[0] - values[1]) / (2.0 * h)) ** 2
    assert total == pytest.approx(square, rel=1e-4, abs=1e-6)


def test_products_and_sums_of_three_layers():
    weights = [np.diag([2.0, 1.0]), np.diag([3.0, 0.5]), np.diag([5.0, 5.0])]
    assert convergence.products(weights) == pytest.approx(9 * 25 + 4 * 25 + 4 * 9)
    assert convergence.sums(weights) == pytest.approx((9 + 25) + (4 + 25) + (4 + 9))


@given(st.integers(0, 2**32 - 1))
def test_second_moment_of_a_poisson_batch(seed):
    """||grad f||^2 + (1 - q) mean ||g_i||^2/B; of equal gradients the quotient is 1 - q/2."""
    random = np.random.default_rng(seed)
    g, rate = random.normal(size=(6, 2)), random.uniform(1.0 / 6.0, 1.0)
    mean = g.mean(axis=0)
    square = mean @ mean + (1.0 - rate) / (6.0 * rate) * (g**2).sum() / 6.0
    most = 2.0 * mean @ mean + ((g - mean) ** 2).sum() / 6.0 / (6.0 * rate)
    assert convergence.batch_square(g.ravel(), rate) == pytest.approx(square / most)
    assert convergence.batch_square(np.ones(12), 1.0 / 6.0) == pytest.approx(11.0 / 12.0)


def test_no_run_of_small_batches_passes_the_proved_norm_too_often():
    """One of two Poisson batches of one sample is empty or larger; 1/2 is proved, .6 is asked."""
    random = np.random.default_rng(7)
    for n, T in ((4, 3), (16, 100), (256, 30)):
        share = convergence.clipped_share(1.0 / n, n, T, 4000, random, proved=True)
        assert 0.6 * share < 0.5


def test_the_order_of_proposition_4_2_vanishes_at_one_step_and_the_proof_does_not():
    """From the minimizer of w^2/2 with signs of size 2, eta = 1/2: f(w_1) = 1/2 always."""
    found = convergence.paths(1, 0.5, 2.0, 0.0, "signs", 100, np.random.default_rng(0))
    assert (found == 0.5).all()
    failure = 1.0 - 1e-9  # 1e-9 is promised
    assert 1e8 * math.log(1.0 / failure) < 0.5
    assert convergence.printed_objective_bound(0.0, 1.0, 0.5, 2.0, 1, 0.5) > 2.0 * 0.5


@pytest.mark.parametrize("c2", [0.1, 1.0, 30.0])
def test_an_iterate_shows_a_record_that_is_always_there(c2):
    """Sums over 1000 iterates the probability that iterate i is beyond the limit."""
    at = privacy.always_seen(c2)
    sigma = c2 * math.sqrt(1000 * math.log(1.0 / at["delta"])) / at["epsilon"]
    i = np.arange(1, 1001)
    limit = 1000 * sigma / math.sqrt(1000) * math.sqrt(2.0 * (at["epsilon"] + 7.0))
    with_it = special.ndtr((i - limit) / (sigma * np.sqrt(i))).sum() / 1001
    log_without = special.log_ndtr(-limit / (sigma * np.sqrt(i)))
    delta = with_it - np.exp(at["epsilon"] + special.logsumexp(log_without)) / 1001
    assert at["delta"] < 1.0 - at["missed"] * (1.0 - at["delta"]) <= delta


def test_an_iterate_shows_a_record_that_was_in_a_batch():
    """400,000 runs of 100 steps; probability near .8: five standard deviations are .003."""
    at, random = privacy.seen_ever(100.0, 1.0, 0.6, 2000.0, 6.0), np.random.default_rng(3)
    steps, size = round(at["T c1 / epsilon"] * 2000.0 / 100.0), 400_000
    assert steps == 100 and at["q"] == 0.06
    i = random.integers(0, steps + 1, size=size)
    sigma = at["q"] * math.sqrt(steps * math.log(1.0 / 0.6)) / 2000.0
    moved = random.binomial(i, at["q"]) + sigma * np.sqrt(i) * random.normal(size=size)
    assert at["excess"] * 0.6 == pytest.approx((moved > 0.5).mean(), abs=0.003)


def test_noise_of_one_size_by_simulation():
    """Of 40,000 runs a few percent pass a low limit, which is more than the claim allows."""
    at, c, T, random = convergence.of_one_size(0.05), 0.05, 10**6, np.random.default_rng(4)
    a = at["moment given S"]
    log_delta = -8.0 * (c + 1.0) - 2.0 * math.log(T)
    assert a**2 == pytest.approx(c * (math.log(T) - log_delta))
    chance = (math.e - 1.0) / math.expm1(a)
    assert chance * math.exp(a) + 1.0 - chance == pytest.approx(math.e)
    signs = 2.0 * random.binomial(T, 0.5, size=40_000) - T
    gaps = 0.5 * np.where(random.random(40_000) < chance, a, 0.0) * signs**2 / T
    assert (gaps > a**2).mean() > 0.01 and at["excess"] + log_delta < math.log((gaps > a**2).mean())


@pytest.mark.parametrize("c", [1.0, 30.0, 1000.0])
def test_noise_of_one_size_satisfies_what_is_printed(c):
    at = convergence.of_one_size(c)
    assert at["eta"] <= 0.5 and at["eta sigma sqrt T"] <= 1.0 + 1e-12
    assert at["moment"] == pytest.approx(1.0, abs=1e-9)


def test_sub_gaussian_noise_is_read_in_two_ways():
    """The title of Proposition 4.2 may mean noise given the past: then the statement is true."""
    (claim,) = (each for each in registry.load("004") if each.id == "004-18")
    found = claim.run(Effort(quick=True))
    assert [e.holds for e in found.evidence if e.about == "reading"] == [True, False]
    assert found.verdict == "open"


def test_noise_that_pushes_by_hand():
    """c = .01 is a hundred steps of size 1/100 with the noise -10."""
    w = 0.0
    for _ in range(100):
        w -= (w - 10.0) / 100
    assert convergence.pushed(0.01) == pytest.approx(0.5 * w**2 / (0.01 * math.log(1e4)))


def test_a_norm_that_is_independent_of_rho_clips_both_samples():
    at = convergence.far_centers(0.01, 1.0, 2.0)
    assert at == {"rho": pytest.approx(1.0), "excess": pytest.approx(0.5)}


def test_scaling_by_the_mean_and_by_the_own_loss():
    """Two samples with margins 0 and 40: losses ln 2 and 0, gradient norm 1/2 of the first."""
    by_mean = privacy.clipped_norm(0.0, 40.0, 2, 10.0, mean=True)
    own = privacy.clipped_norm(0.0, 40.0, 2, 10.0, mean=False)
    assert by_mean == pytest.approx(0.5 / math.sqrt(0.25 * math.log(2.0)))
    assert own == pytest.approx(0.5 / math.sqrt(0.5 * math.log(2.0)))


def test_moments_of_batches_by_simulation():
    """ln E exp(||zeta||^2/s^2) of two gradients, 2e6 batches: exp is below e^2, error < 1 %."""
    random = np.random.default_rng(5)
    gradients, rate, noise, size = np.array([1.0, 0.5, -0.3, 0.8]), 0.3, 0.2, 2_000_000
    inside = random.random((size, 2)) < rate
    errors = (inside - rate) @ gradients.reshape(2, 2)
    zeta = (errors + noise * random.normal(size=(size, 2))) / 0.6
    square = float(gradients @ gradients) / 2
    scale = poisson_noise_scale(1.0, noise, rate * 2, 2, 2, square) ** 2
    simulated = math.log(np.exp((zeta**2).sum(axis=1) / scale).mean())
    found = convergence.poisson_moment(gradients, rate, noise, 2)
    assert found == pytest.approx(simulated, abs=0.01)


def test_one_gradient_apart_is_light_tailed_and_sometimes_alone():
    """At c5 = 1: rho by its definition, and the batch of this one gradient by counting."""
    at = convergence.one_far(1.0)
    n, apart = math.exp(at["ln n"]), math.sqrt(at["square"])
    rho = light_tail_scale([apart, apart / (n - 1.0)], [1.0 / n, 1.0 - 1.0 / n])
    assert 0.99 < rho <= 1.0
    alone = special.xlog1py(n - 1.0, -100.0 / n) + math.log(100.0 / n)
    scale = 1.0 * (1.0 / 100.0 + 0.01 / 100.0)
    assert at["excess"] == pytest.approx(alone + apart**2 / scale, abs=0.1)
    assert at["excess"] <= alone + apart**2 / scale


def test_steps_of_poisson_batches_have_the_moments_of_the_proof():
    """Fourth moments of the largest noise alone are E||xi||^4 = 8 tau^4 in two coordinates."""
    g, rate = np.array([[3.0, 4.0], [0.3, 0.0], [0.0, -0.5]]), 0.5
    clipped = np.array([[0.6, 0.8], [0.3, 0.0], [0.0, -0.5]])
    steps, chances = potentials.steps_of(g, rate, 0.2)
    mean = chances @ steps
    assert mean == pytest.approx(clipped.mean(axis=0))
    assert chances.sum() == pytest.approx(1.0)
    second = 0.5 * (clipped**2).sum() / 3.0 / 1.5 + 2.0 * (0.2 / 1.5) ** 2
    assert chances @ ((steps - mean) ** 2).sum(axis=1) == pytest.approx(second)
    steps, chances = potentials.steps_of(np.zeros((1, 2)), 1.0, 0.2)
    assert chances @ (steps**2).sum(axis=1) ** 2 == pytest.approx(8.0 * 0.2**4)


@pytest.mark.parametrize("length", [0.5, 3.0])
def test_excess_of_a_full_batch_of_equal_gradients_by_hand(length):
    at = potentials.WORST | {"length": length, "spread": 0.0, "rate": 1.0, "noise": 0.0}
    at |= {"above": 2.0, "across": 1.0}
    g, Y = min(length, 1.0), 0.5 * length**2 + 2.0
    change, h = -0.5 * length * g + 0.125 * g**2, length * g
    away = (Y + 0.5 * length**2) / length
    moved = (away - 0.5 * g) ** 2 - away**2
    V, then = math.hypot(200.0, away, 1.0), math.hypot(200.0, away - 0.5 * g, 1.0)
    bounds = {
        "(a)": (change, -0.15 * h),
        "(b)": ((Y + 40.0 + change) ** 2 - (Y + 40.0) ** 2, -0.15 * (Y + 40.0) * h),
        "(c)": ((Y + change) * then - Y * V, -0.075 * h * V),
        "(d)": (moved, 0.5 if length > 1.0 else -Y),
    }
    for which, (left, right) in bounds.items():
        found = potentials.excess(which, **at)
        assert found == pytest.approx((left - right) / abs(right), rel=1e-4), which


@given(st.floats(1e-4, 1.0 - 1e-4), st.floats(-30.0, 30.0))
def test_bernoulli_variables_are_below_their_proxy(rate, t):
    """Equality at t = 2 ln((1-q)/q)."""
    for at, tight in ((t, False), (2.0 * math.log((1.0 - rate) / rate), True)):
        log_moment = np.logaddexp(math.log1p(-rate), math.log(rate) + at) - rate * at
        bound = 0.5 * bernoulli_proxy(rate) * at**2
        assert log_moment <= bound * (1.0 + 1e-9) + 1e-12
        assert not tight or log_moment == pytest.approx(bound, rel=1e-6, abs=1e-9)


def test_the_algorithm_by_hand():
    """Two steps: gradients clipped at 1, 0.4 kept; the batches are {0, 1} and {1}."""
    centers, batches = np.array([5.0, 0.6]), np.array([[1.0, 1.0], [0.0, 1.0]])
    gap = convergence.last_gap(1.0, centers, batches, np.array([0.0, 0.2]), 0.5, 2.0)
    first = 1.0 - 0.25 * (-1.0 + 0.4)
    second = first - 0.25 * (first - 0.6 + 0.2)
    assert gap == pytest.approx(0.5 * (second - 2.8) ** 2)


def test_the_tail_by_simulation():
    """400 000 steps, probability about 1e-3: five standard deviations are 2.5e-4."""
    random, c1, size = np.random.default_rng(2), 0.1, 400_000
    std = math.sqrt(0.3 * c1 * 16.0 / 20.0)
    centers = np.repeat([6.0, -10.0], [5, 3])
    inside = random.random((size, 8)) < 0.5
    end = (
        1.25 - (inside @ np.clip(1.25 - centers, -1.0, 1.0) + std * random.normal(size=size)) / 4.0
    )
    beyond = (0.5 * end**2 >= 1.25**2 + 1.0 + 0.3).mean() / 2.0
    chance = convergence.tail_quotient(c1) * 2.0 * math.exp(-20.0)
    assert chance == pytest.approx(beyond, abs=2.5e-4)
    assert chance > 5e-4


def test_everyone_drawn_by_hand():
    """The run that the setting describes: w is multiplied by -3 and passes C at the last step."""
    at = convergence.everyone_drawn(1.0, 2.0, 1.0, 1.0, 1.0)
    steps = round(at["T"])
    n, C = at["n"], 1.0 + math.sqrt(math.log(at["n"] * steps) - at["log_failure"])
    B = n / 8
    w = 1.0
    for _ in range(steps):
        assert abs(w) <= C
        w -= 0.5 / B * n * w
    assert abs(w) > C
    assert at["excess"] == pytest.approx(steps * (n * math.log(8.0) + math.log(2.0)))
    noise = C * at["sigma"]
    assert B / math.sqrt((B * 1e-18 + noise**2) * steps) >= 0.5


def test_clipped_runs_of_two_steps_by_hand():
    """All of 2 drawn, so that w_t are normal; 100,000 runs: five standard deviations are .008."""
    found = convergence.clipped_share(1.0, 2, 2, 100_000, np.random.default_rng(6)) * 0.6
    C = 1.0 + math.sqrt(math.log(4 / 0.6))
    noise = C * 4.0 * math.sqrt(math.log(1.0 / 0.6) / 2.0)
    eta = 2.0 / math.sqrt((2.0 + noise**2) * 2.0)
    assert eta < 0.5
    std, w = 0.5 * eta * noise, np.linspace(1.0 - C, C - 1.0, 20_001)  # w_1, nothing clipped
    inside = special.ndtr((C - 1.0 - (1.0 - eta) * w) / std)
    inside -= special.ndtr((1.0 - C - (1.0 - eta) * w) / std)
    density = np.exp(-0.5 * ((w - (1.0 - eta)) / std) ** 2) / (std * math.sqrt(2.0 * math.pi))
    assert found == pytest.approx(1.0 - np.trapezoid(density * inside, w), abs=0.008)


@pytest.mark.parametrize(("power", "violated"), [(0.5, True), (1.0, False)])
def test_the_violation_of_proposition_4_4_needs_the_root_in_C(power, violated):
    """All constants 1, but c2 = 2: growth of runs that draw all records, for many q, n, steps."""
    passed = []
    for q, size, steps in itertools.product((0.5, 0.125, 1e-2, 1e-4), range(4, 60, 5), (1, 9, 60)):
        n = 2.0**size
        log_chance = steps * (n * math.log(q) - math.log(2.0))
        C = 1.0 + (math.log(n * steps) - 2.0 * log_chance) ** power
        sigma = 4.0 * math.sqrt(math.log(10.0) / steps) / q
        eta = min(0.5, q * n / (C * sigma * math.sqrt(steps)))
        passed.append(q * n >= 1.0 and eta > q and steps * math.log(eta / q - 1.0) > math.log(C))
    assert any(passed) == violated


def test_the_run_of_algorithm_1_by_hand():
    """Without noise and with all samples: two steps of clipped gradients."""
    places, counts = np.array([[0.0], [4.0]]), np.array([3, 1])
    found = convergence.run(places, counts, 4, 2.0, 0.5, 0.0, 2, np.random.default_rng(0))
    w, gaps = 2.0, []
    for _ in range(3):
        gaps.append(0.5 * (w - 1.0) ** 2)
        w -= 0.5 / 4 * (3 * np.clip(w, -2.0, 2.0) + np.clip(w - 4.0, -2.0, 2.0))
    assert found == pytest.approx(np.mean(gaps))


def test_the_largest_mean_of_lemma_a9_by_its_tail():
    """The mean is the integral of the tail: 1 up to alpha, then failure or the printed tail."""
    alpha, beta, K, failure = 0.5, 2.0, 3.0, 0.1
    t = np.linspace(0.0, 300.0, 3_000_001)
    tail = np.minimum(failure, 2.0 * np.exp(-np.maximum(t - beta, 0.0) / K))
    whole = (1.0 - failure) * alpha + np.trapezoid(tail, t)
    assert convergence.whole_mean(alpha, beta, K, failure) == pytest.approx(whole, rel=1e-6)


CORRECTED = [claim for claim in registry.load("004") if claim.verdict in ("corrected", "refuted")]


@pytest.mark.parametrize("claim", CORRECTED, ids=lambda claim: claim.id)
def test_a_correction_stands_against_the_paper_s_side(claim):
    found = claim.argue(Effort(quick=True))
    assert found.verdict == "stands", found.error
    assert any(e.about == "premise" for e in found.evidence)


class TooTight(losses.Logistic):
    """The logistic loss with a constant of weak growth that is a little too small."""

    def weak_growth(self, row_norm):
        return 0.407 * row_norm**2, 0.0


def too_weak(gap, beta1, clip_norm):
    return 1.0 / np.maximum(1.0, np.sqrt(0.99 * beta1 * gap) / clip_norm)


products, pessimistic = convergence.products, convergence.pessimistic
everyone_drawn, always_seen = convergence.everyone_drawn, privacy.always_seen
seen_ever, of_one_size = privacy.seen_ever, convergence.of_one_size
far_centers = convergence.far_centers
WRONG = [
    ("004-1", "value_weight", too_weak),
    ("004-2", "one_release", lambda epsilon, delta: 1.01),
    ("004-3", "excess_of_long_runs", lambda **at: 1.01),
    ("004-4", "products", lambda weights: 0.99 * products(weights)),
    ("004-4", "Logistic", TooTight),
    ("004-5", "Logistic", TooTight),
    ("004-7", "renyi_epsilon", lambda rate, steps, delta: 1.0),
    ("004-7", "epsilon_bounds", lambda mixture, steps, delta: (0.74, 0.8)),
    ("004-8", "poisson_noise_scale", lambda *at: 0.98 * poisson_noise_scale(*at)),
    ("004-8", "everyone_drawn", lambda *constants: everyone_drawn(*constants) | {"excess": -1.0}),
    ("004-8", "clipped_share", lambda *at, **more: 1.01),
    ("004-8", "batch_square", lambda gradients, rate: 1.01),
    ("004-2", "always_seen", lambda c2: always_seen(c2) | {"missed": 1.01}),
    ("004-3", "seen_ever", lambda *at: seen_ever(*at) | {"excess": 0.99}),
    ("004-10", "sgd_objective_bound", lambda *at: 0.1 * at[0]),
    ("004-18", "of_one_size", lambda c: of_one_size(c) | {"excess": -0.01}),
    ("004-18", "pushed", lambda c: 0.99),
    ("004-20", "over_lemma_a12", lambda *at, **more: (0.51, 1.01)),
    ("004-20", "over_lemma_a12", lambda *at, **more: (0.5, 0.99)),
    ("004-19", "far_centers", lambda *at: far_centers(*at) | {"excess": 1.01}),
    ("004-12", "over_rate", lambda places, counts, *others: float(counts.sum())),
    ("004-15", "like_gradients", lambda c5: 0.99),
    ("004-15", "one_far", lambda c5: {"excess": 0.99}),
    ("004-15", "excess", lambda which, **at: 0.01),
    ("004-15", "over_rate", lambda places, counts, *others: float(counts.sum())),
    ("004-16", "whole_mean", lambda alpha, beta, K, failure: 1.01 * (alpha + 10.0 * (beta + K))),
    ("004-9", "pessimistic", lambda *at: 0.99 * pessimistic(*at)),
    ("004-9", "pessimistic", lambda *at: 1.01 * pessimistic(*at)),
]


@pytest.mark.parametrize(("name", "attribute", "wrong"), WRONG)
def test_a_claim_fails_where_it_is_wrong(monkeypatch, fails, name, attribute, wrong):
    for home in (privacy, convergence):
        if hasattr(home, attribute):
            monkeypatch.setattr(home, attribute, wrong)
    assert fails(name)
