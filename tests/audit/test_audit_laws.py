"""Exact output distributions against many digits, closed forms and samples."""

import math
from itertools import combinations

import mpmath as mp
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import stats

from dpanalysis.audit import (
    above_threshold_distribution,
    hockey_stick,
    renyi_divergence,
    report_noisy_min_distribution,
    subsampled_gaussian,
    subsampled_laplace,
)
from dpanalysis.privacy import amplify_poisson, rdp_poisson_gaussian

NOISES = ("laplace", "gaussian")


def cdf(noise, z):
    if noise == "gaussian":
        return mp.ncdf(z)
    return mp.exp(z) / 2 if z < 0 else 1 - mp.exp(-z) / 2


def pdf(noise, z):
    return mp.npdf(z) if noise == "gaussian" else mp.exp(-abs(z)) / 2


def slow_law(queries, noise, first, second, guess):
    """Each outcome's integral relative to a guess, in 20 digits, cut at all kinks and centers."""
    q = [mp.mpf(float(x)) for x in queries]
    scales = (mp.mpf(first), mp.mpf(second))
    steps = [-300, -60, -20, -6, -2, 0, 2, 6, 20, 60, 300]
    cuts = sorted({c + s * t for c in (mp.mpf(0), *q) for s in scales for t in steps})

    def outcome(k):
        def integrand(r):
            # mpmath's accuracy is absolute, so the integral is scaled to about 1.
            value = pdf(noise, r / scales[0]) / scales[0] / mp.mpf(float(guess[k]))
            for x in q[: min(k, len(q))]:
                value *= cdf(noise, (r - x) / scales[1])
            return value * cdf(noise, (q[k] - r) / scales[1]) if k < len(q) else value

        return mp.quad(integrand, cuts, method="gauss-legendre")

    return [outcome(k) for k in range(len(q) + 1)]


SETTINGS = [
    ("ordinary", [0.3, -1.0, 2.0], 2.0, 4.0),
    ("rare", [-60.0, -90.0, 40.0, -30.0], 1.0, 1.0),
    ("a sharp threshold", [0.0, 0.5, -0.2], 1e-3, 1.0),
    ("sharp queries", [0.0, 0.5, -0.2], 1.0, 1e-2),
    ("far away", [150.0, -150.0], 1.0, 3.0),
    ("close together", [1.0, 1.0 + 1e-9, 1.0 - 1e-9], 0.5, 0.7),
]


@pytest.mark.slow
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize(("queries", "first", "second"), [s[1:] for s in SETTINGS],
                         ids=[s[0] for s in SETTINGS])  # fmt: skip
def test_above_threshold_in_many_digits(noise, queries, first, second):
    if noise == "gaussian":
        queries = [q / 5 for q in queries]  # as rare, without underflow
    law, error = above_threshold_distribution(queries, noise, first, second, full_output=True)
    with mp.workdps(20):
        ratios = slow_law(queries, noise, first, second, law)
        for e, ratio in zip(error, ratios, strict=True):
            assert abs(1 - ratio) <= e * ratio
    assert (error < 1e-11).all()


@pytest.mark.parametrize("noise", NOISES)
def test_rare_outcomes_really_are_rare(noise):
    """Rare outcomes dominate high orders; without them the test above would show little."""
    queries = np.array([-60.0, -90.0, 40.0, -30.0]) / (1 if noise == "laplace" else 5)
    law = above_threshold_distribution(queries, noise, 1.0, 1.0)
    assert law.min() < 1e-25


@pytest.mark.slow
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("size", [1, 7, 500, 4000])
def test_equal_queries_at_equal_scales_have_a_closed_form(noise, size):
    """Then all noise is exchangeable: halting at k means that nu_k, then rho, are the largest."""
    law, error = above_threshold_distribution(np.full(size, 7.0), noise, 3.0, 3.0, threshold=7.0,
                                              full_output=True)  # fmt: skip
    k = np.arange(1, size + 1)
    truth = np.append(1 / (k * (k + 1)), 1 / (size + 1))
    np.testing.assert_allclose(law, truth, rtol=1e-11)
    assert (np.abs(law - truth) <= error * truth + 1e-16).all()


@pytest.mark.slow
@given(
    st.lists(st.floats(-100, 100), min_size=1, max_size=12),
    st.sampled_from(NOISES),
    st.floats(-2, 2),
    st.floats(-2, 2),
    st.floats(-50, 50),
)
@example([5e-324], "laplace", 0.0, 0.0, 0.0)
def test_laws_of_above_threshold(queries, noise, log_first, log_second, threshold):
    """Sums to one, moves with the threshold, and starts like the law of the first query alone."""
    scales = 10.0**log_first, 10.0**log_second
    law, error = above_threshold_distribution(queries, noise, *scales, full_output=True)
    assert math.fsum(law) == pytest.approx(1.0, abs=1e-12)
    assert (error < 1e-10).all()
    moved = above_threshold_distribution(
        np.array(queries) + threshold, noise, *scales, threshold=threshold
    )
    common = law > 1e-290
    rounding = 1e-10 * (1 + abs(threshold) / min(scales))
    np.testing.assert_allclose(moved[common], law[common], rtol=rounding)
    first = above_threshold_distribution(queries[:1], noise, *scales)
    assert law[0] == pytest.approx(first[0], rel=1e-10)


@pytest.mark.parametrize("noise", NOISES)
def test_above_threshold_against_its_own_definition(noise):
    """Chi-square test of samples, false alarms below 1e-6; it rejects queries that are 5% off."""
    rng = np.random.default_rng(5)
    queries, n = np.array([-1.0, 2.0, 0.5, -3.0, 1.0, 1.0]), 400_000
    draw = rng.laplace if noise == "laplace" else rng.normal
    noisy = queries + draw(0, 4.0, (n, queries.size))
    above = noisy >= draw(0, 2.0, (n, 1))
    index = np.where(above.any(axis=1), above.argmax(axis=1), queries.size)
    counts = np.bincount(index, minlength=queries.size + 1)
    law = above_threshold_distribution(queries, noise, 2.0, 4.0)
    assert stats.chisquare(counts, n * law).pvalue > 1e-6
    wrong = above_threshold_distribution(1.05 * queries, noise, 2.0, 4.0)
    assert stats.chisquare(counts, n * wrong).pvalue < 1e-6


def test_underflow_is_no_difference():
    """Outcomes of both laws underflow, and the divergence stays finite."""
    queries = np.append(np.full(50, 800.0), np.zeros(200))
    laws = [above_threshold_distribution(queries + d, "laplace", 1.0, 1.0) for d in (0.0, 1.0)]
    assert min(law.min() for law in laws) == 1e-300
    for order in (2, 100, 500):
        assert renyi_divergence(*laws, order) <= 1.0 + 1e-9


# --- report noisy min ---


def permute_and_flip(values, scale):
    """P(i) = w_i int_0^1 prod_{j != i} (1 - w_j t) dt with w = e**(-(v - min)/scale)."""
    w = [mp.exp(-(mp.mpf(v) - min(values)) / scale) for v in values]
    law = []
    for i in range(len(w)):
        rest = w[:i] + w[i + 1 :]
        terms = [
            (-1) ** k * mp.fsum(mp.fprod(c) for c in combinations(rest, k)) / (k + 1)
            for k in range(len(rest) + 1)
        ]
        law.append(w[i] * mp.fsum(terms))
    return law


@pytest.mark.parametrize("noise", ["gaussian", "laplace", "exponential"])
def test_an_outcome_below_the_least_probability_has_it_without_error(noise):
    law, error = report_noisy_min_distribution([0.0, 1e6], noise, 1.0, full_output=True)
    assert law.tolist() == [pytest.approx(1.0), 1e-300] and error[1] == 0.0 <= error[0] < 1e-12


@pytest.mark.slow
@given(st.lists(st.floats(-30, 30), min_size=2, max_size=7), st.floats(-1, 1))
def test_exponential_noise_is_permute_and_flip(values, log_scale):
    scale = 10.0**log_scale
    law, error = report_noisy_min_distribution(values, "exponential", scale, full_output=True)
    with mp.workdps(80):
        for p, e, truth in zip(law, error, permute_and_flip(values, scale), strict=True):
            assert abs(p - truth) <= (e + 1e-14) * truth + 1e-300
    assert (error < 1e-10).all()


@given(st.lists(st.floats(-20, 20), min_size=2, max_size=9), st.floats(-1, 1))
def test_gumbel_noise_is_the_exponential_mechanism(values, log_scale):
    scale = 10.0**log_scale
    law, error = report_noisy_min_distribution(values, "gumbel", scale, full_output=True)
    with mp.workdps(40):
        weights = [mp.exp(-mp.mpf(v) / scale) for v in values]
        for p, e, w in zip(law, error, weights, strict=True):
            truth = w / mp.fsum(weights)
            assert abs(p - truth) <= e * truth + 1e-300


@pytest.mark.parametrize("gap", [0.0, 0.7, 12.0, 35.0])
@pytest.mark.parametrize("scale", [0.3, 1.0, 1e6])
def test_two_noisy_values_have_closed_forms(gap, scale):
    """P(Laplace - Laplace > g) = (2 + g) e**-g/4, P(Gauss - Gauss > g) = Q(g/sqrt 2)."""
    with mp.workdps(40):
        laplace = (2 + mp.mpf(gap)) * mp.exp(-mp.mpf(gap)) / 4
        gauss = mp.ncdf(-mp.mpf(gap) / mp.sqrt(2))
    for noise, truth in (("laplace", laplace), ("gaussian", gauss)):
        law, error = report_noisy_min_distribution(
            [5 * scale, (5 + gap) * scale], noise, scale, full_output=True
        )
        assert law[1] == pytest.approx(float(truth), rel=1e-11)
        assert law[0] == pytest.approx(float(1 - truth), rel=1e-13)
        assert (error < 1e-11).all()


@pytest.mark.parametrize("noise", ["laplace", "gaussian", "exponential"])
def test_equal_values_are_equally_likely(noise):
    for size in (1, 2, 30, 1000):
        law = report_noisy_min_distribution(np.full(size, -3.0), noise, 0.1)
        np.testing.assert_allclose(law, 1 / size, rtol=1e-11)


@pytest.mark.parametrize("noise", ["laplace", "gaussian", "exponential", "gumbel"])
def test_report_noisy_min_against_its_own_definition(noise):
    """Samples with the documented sign of the noise; the other sign has another law."""
    rng = np.random.default_rng(11)
    values, n = np.array([0.0, 1.0, -0.5, 2.0]), 400_000
    draw = {
        "laplace": rng.laplace, "gaussian": rng.normal, "gumbel": rng.gumbel,
        "exponential": lambda _, scale, size: rng.exponential(scale, size),
    }[noise]  # fmt: skip
    drawn = draw(0.0, 1.5, (n, 4))
    law = report_noisy_min_distribution(values, noise, 1.5)
    counts = np.bincount((values - drawn).argmin(axis=1), minlength=4)
    assert stats.chisquare(counts, n * law).pvalue > 1e-6
    if noise in ("exponential", "gumbel"):
        counts = np.bincount((values + drawn).argmin(axis=1), minlength=4)
        assert stats.chisquare(counts, n * law).pvalue < 1e-6


@pytest.mark.slow
def test_exponential_noise_is_private_only_when_subtracted():
    """Scale 2/epsilon: the divergence is at most epsilon over all neighbours, and nearly so."""
    epsilon, worst = 0.5, 0.0
    rng = np.random.default_rng(3)
    for _ in range(100):
        values = rng.normal(0, 10.0 ** rng.uniform(-1, 2), 4)
        moved = values + rng.choice([-1.0, 1.0], 4)
        laws = [
            report_noisy_min_distribution(v, "exponential", 2 / epsilon) for v in (values, moved)
        ]
        worst = max(worst, renyi_divergence(*laws, math.inf))
    assert 0.9 * epsilon < worst <= epsilon + 1e-9


# --- subsampled pairs ---


@pytest.mark.parametrize("rate", [1e-6, 1e-3, 0.3, 1 - 1e-9, 1.0])
@pytest.mark.parametrize("scale", [0.05, 1.0, 30.0])
def test_subsampled_laplace_has_the_amplified_pure_loss(rate, scale):
    pair = subsampled_laplace(scale, 1.0, rate)
    amplified = amplify_poisson(1 / scale, rate)
    assert renyi_divergence(*pair, math.inf) == pytest.approx(amplified, rel=1e-9)
    # Delta in the direction from the mixture, by the formula of amplification.
    level = 0.5 * amplified
    inner = math.log1p(math.expm1(level) / rate)
    truth = rate * max(0.0, -math.expm1((inner - 1 / scale) / 2))
    assert hockey_stick(*pair, level) == pytest.approx(truth, rel=1e-9)


@pytest.mark.slow
@given(st.floats(-5, 0), st.floats(-1, 2), st.floats(0.01, 60))
def test_subsampled_gaussian_against_the_accountant(log_rate, log_std, excess):
    rate, std, order = 10.0**log_rate, 10.0**log_std, 1 + excess
    value, error = renyi_divergence(*subsampled_gaussian(std, 1.0, rate), order, full_output=True)
    ours = float(rdp_poisson_gaussian(order, rate, std))
    assert abs(value - ours) <= error + 1e-10 * ours
    assert error <= 1e-4 * value


@pytest.mark.parametrize("rate", [0.0, 1e-9, 0.3, 1.0])
@pytest.mark.parametrize("pair, noise", [
    (subsampled_laplace, stats.laplace), (subsampled_gaussian, stats.norm),
])  # fmt: skip
def test_subsampled_densities_are_the_mixtures_that_they_claim_to_be(pair, noise, rate):
    x = np.linspace(-6.0, 9.0, 101)
    mixture, without = pair(1.5, 2.0, rate)
    there, here = noise.pdf(x, 2.0, 1.5), noise.pdf(x, 0.0, 1.5)
    np.testing.assert_allclose(np.exp(mixture(x)), (1 - rate) * here + rate * there, rtol=1e-12)
    np.testing.assert_allclose(np.exp(without(x)), here, rtol=1e-12)


def test_a_sample_of_all_records_has_the_density_with_the_record_in_its_tails_too():
    x = np.array([-60.0, 0.0, 60.0])
    whole, _ = subsampled_gaussian(1.0, 1.0, 1.0)
    np.testing.assert_allclose(whole(x), stats.norm.logpdf(x, 1.0), rtol=1e-12)


def test_scale_and_distance_count_only_together():
    one = renyi_divergence(*subsampled_gaussian(2.0, 1.0, 0.1), 6)
    assert renyi_divergence(*subsampled_gaussian(2e9, 1e9, 0.1), 6) == pytest.approx(one, rel=1e-12)
    pair = subsampled_gaussian(2.0, 1.0, 0.0)
    assert renyi_divergence(*pair, 6) == 0.0


def test_a_sum_of_fractions_for_the_docstring():
    """Two equal queries, scales 2 and 4: 1/2, 5/24 and 7/24."""
    law = above_threshold_distribution([0.0, 0.0], "laplace", 2.0, 4.0)
    np.testing.assert_allclose(law, [1 / 2, 5 / 24, 7 / 24], rtol=1e-14)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: above_threshold_distribution([], "laplace", 1, 1), "queries must have shape"),
        (lambda: above_threshold_distribution([math.nan], "laplace", 1, 1), "must be finite"),
        (lambda: above_threshold_distribution([0.0], "cauchy", 1, 1), "noise must be one of"),
        (lambda: above_threshold_distribution([0.0], "laplace", 0, 1), "threshold_scale .* got 0"),
        (lambda: above_threshold_distribution([0.0], "laplace", 1, -1), "query_scale .* got -1"),
        (lambda: report_noisy_min_distribution([[0.0]], "laplace", 1), r"values must have shape"),
        (lambda: report_noisy_min_distribution([0.0], "student", 1), "noise must be one of"),
        (lambda: report_noisy_min_distribution([0.0], "gumbel", math.inf), "scale must lie in"),
        (lambda: subsampled_laplace(1.0, 1.0, 1.5), r"rate must lie in \[0, 1\], got 1.5"),
        (lambda: subsampled_gaussian(1.0, 0.0, 0.5), "sensitivity must lie in"),
        (lambda: subsampled_gaussian(0.0, 1.0, 0.5), "std must lie in"),
    ],
)  # fmt: skip
def test_bad_arguments_are_named(call, words):
    with pytest.raises(ValueError, match=words):
        call()
