"""The verifier of Gaussian releases: an exact rate of false alarms, and refusal of other outputs.

All seeds are fixed. Tests whose result depends on them compute the bounds on their counts.
"""

import inspect
import math

import numpy as np
import pytest
from scipy import stats

from dpanalysis import Budget
from dpanalysis.audit import GaussianPrivacy, verify_gaussian, verify_privacy
from dpanalysis.privacy import gaussian_epsilon

MIXING = np.array([[1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [-1.0, 0.0, 0.5]])


def gaussian(std=1.0):
    return lambda count, rng, size: count + rng.normal(0.0, std, size)


def vector(count, rng, size):
    """Three numbers with correlated noise; the last one depends on the input."""
    return rng.normal(size=(size, 3)) @ MIXING.T + np.array([0.0, 0.0, 0.3]) * count


# Mechanism, its mu.
AT_MU = {
    "number": (gaussian(), 1.0),
    "vector": (vector, float(np.linalg.norm(np.linalg.solve(MIXING, [0.0, 0.0, 0.3])))),
}


def test_false_alarms_are_as_rare_by_default_as_without_the_assumption():
    one, other = (inspect.signature(each).parameters for each in (verify_gaussian, verify_privacy))
    assert one["confidence"].default == other["confidence"].default


@pytest.mark.slow
@pytest.mark.parametrize("name", AT_MU)
def test_the_bound_exceeds_mu_just_as_often_as_stated(name):
    """Of 600 seeds at confidence .9 and 20 runs 28 to 98 refute, but with probability 2e-6."""
    mechanism, mu = AT_MU[name]
    refuted = sum(
        verify_gaussian(
            mechanism, 0, 1, GaussianPrivacy(mu), samples=20, confidence=0.9, fit=0.0, rng=seed
        ).refuted
        for seed in range(600)
    )
    low, high = stats.binom.ppf([1e-6, 1.0 - 1e-6], 600, 0.1)
    assert low <= refuted <= high


def test_at_the_bound_hotelling_s_statistic_has_the_allowed_chance():
    """For vectors of few runs, where its factor of F is far from 1."""
    returned = {0: [], 1: []}

    def mechanism(b, rng, size):
        returned[b].append(vector(b, rng, size) + 2.0 * b)
        return returned[b][-1]

    found = verify_gaussian(
        mechanism, 0, 1, GaussianPrivacy(1.0), samples=10, confidence=0.95, fit=0.0, rng=0
    )
    runs = [np.concatenate(returned[b]) for b in (0, 1)]
    shift, pooled = (
        runs[0].mean(axis=0) - runs[1].mean(axis=0),
        np.mean([np.cov(x.T) for x in runs], 0),
    )
    squared = 5.0 * shift @ np.linalg.solve(pooled, shift)  # T^2, with n / 2 = 5
    tail = stats.ncf.sf(16 / (3 * 18) * squared, 3, 16, 5.0 * found.mu**2)
    assert found.mu > 0.5 and tail == pytest.approx(0.05, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", AT_MU)
def test_gaussian_releases_are_hardly_ever_refused(name):
    """The rate of refusals over 400 seeds is at most the stated one."""
    mechanism, mu = AT_MU[name]
    void = sum(
        verify_gaussian(mechanism, 0, 1, GaussianPrivacy(mu), samples=100, fit=0.1, rng=seed).void
        != ""
        for seed in range(400)
    )
    assert stats.binom.ppf(1e-6, 400, 0.05) <= void <= stats.binom.ppf(1.0 - 1e-6, 400, 0.1)


@pytest.mark.slow
def test_fewer_runs_refute_than_without_the_assumption():
    """Noise sqrt 2 too small for mu = .5, or for epsilon = 1 at delta = 1e-5."""

    curve = GaussianPrivacy(0.5)

    def power(verify, samples, claim=curve, **options):
        verdicts = [
            verify(gaussian(math.sqrt(2)), 0, 1, claim, samples=samples, rng=seed, **options)
            for seed in range(12)
        ]
        return np.mean([verdict.refuted for verdict in verdicts])

    assert power(verify_gaussian, 3_000) == 1.0
    assert power(verify_privacy, 3_000) < 0.7
    epsilon = gaussian_epsilon(2.0, 1e-5)
    assert power(verify_gaussian, 3_000, epsilon, delta=1e-5) == 1.0
    assert power(verify_privacy, 3_000, epsilon, delta=1e-5) == 0.0


def test_epsilon_follows_from_mu_at_every_delta():
    verdict = verify_gaussian(gaussian(), 0, 1, Budget(2.0, 1e-6), samples=20_000, rng=0)
    assert verdict.refuted and verdict.claim == 2.0 and verdict.delta == 1e-6
    assert 0.9 < verdict.mu < 1.0 < verdict.estimate + 0.05
    for delta in (1e-6, 1e-3):
        exact = gaussian_epsilon(1.0 / verdict.mu, delta)
        assert math.isclose(verdict.epsilon_at(delta), exact, rel_tol=1e-8)
        assert verdict.epsilon_at(delta) < exact
    assert verdict.epsilon == verdict.bound == verdict.epsilon_at(1e-6)
    assert "if it is not, this verdict is void" in str(verdict)
    by_curve = verify_gaussian(gaussian(), 0, 1, GaussianPrivacy(2.0), rng=0)
    assert not by_curve.refuted and by_curve.bound == by_curve.mu
    assert "Other inputs may still refute it" in str(by_curve)


def mixed(count, rng, size):
    """One run in ten has too little noise."""
    return count + rng.normal(size=size) * np.where(rng.random(size) < 0.1, 0.2, 1.0)


def hidden(count, rng, size):
    """Every coordinate is normal, but their most informative sum is not."""
    return count + np.sign(rng.normal(size=(size, 1))) * np.abs(rng.normal(size=(size, 2)))


# Mechanism, words of the verdict.
NOT_GAUSSIAN = {
    "laplace": (lambda b, rng, n: b + rng.laplace(size=n), "output is not normal on the"),
    "mixture": (mixed, "output is not normal"),
    "rounded": (lambda b, rng, n: np.round(b + rng.normal(size=n)), "output is not normal"),
    "spread": (lambda b, rng, n: rng.normal(0.0, 1.0 + 0.2 * b, n), "has another variance"),
    "sum": (hidden, "the most informative sum is not normal"),
    "one": (lambda b, rng, n: np.c_[rng.normal(size=n), rng.random(n)], r"output\[1\] is not"),
    "constant": (lambda b, rng, n: np.full(n, float(b)), "output does not vary"),
    "twice": (
        lambda b, rng, n: np.repeat(b + rng.normal(size=(n, 1)), 2, axis=1),
        "depend on each other linearly",
    ),
    "nan": (lambda b, rng, n: np.where(rng.random(n) < 0.1, np.nan, 1.0), "finite numbers"),
    "nan on one input": (lambda b, rng, n: rng.normal(size=n) + (np.nan if b else 0.0), "finite"),
    "text": (lambda b, rng, n: ["a"] * n, "finite numbers"),
}


@pytest.mark.parametrize("name", NOT_GAUSSIAN)
def test_what_is_not_gaussian_is_refused_and_never_refuted(name):
    mechanism, words = NOT_GAUSSIAN[name]
    verdict = verify_gaussian(mechanism, 0, 5, 0.1, delta=1e-3, samples=2_000, rng=0)
    assert words.replace("\\", "") in verdict.void
    assert not verdict.refuted and verdict.epsilon == verdict.mu == 0.0
    assert str(verdict).startswith("void: ")


def test_without_a_test_of_the_fit_the_assumption_may_mislead():
    """Why the fit is tested: the claim is true of this Laplace noise."""
    laplace = NOT_GAUSSIAN["laplace"][0]
    epsilon, delta = 1.0, 1e-9
    assert verify_gaussian(laplace, 0, 1, epsilon, delta=delta, fit=0.0, rng=0).refuted
    assert verify_gaussian(laplace, 0, 1, epsilon, delta=delta, rng=0).void


def test_runs_one_by_one_and_of_an_odd_number():
    def one(count, rng):
        return count + rng.normal()

    verdict = verify_gaussian(one, 0, 3, GaussianPrivacy(1.0), samples=601, rng=0, vectorized=False)
    assert verdict.refuted and verdict.samples == 601


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"claim": 1.0}, ValueError, "delta must lie in"),
        ({"samples": 7}, ValueError, "samples must"),
        ({"confidence": 1.0}, ValueError, "confidence must"),
        ({"fit": 1.0}, ValueError, "fit must"),
        ({"vectorized": 1}, TypeError, "vectorized must be True or False"),
        ({"relation": "any"}, ValueError, "relation must"),
        ({"neighbour": 0}, ValueError, "must differ"),
        ({"mechanism": 1}, TypeError, "mechanism must be callable"),
        ({"mechanism": lambda b, rng, n: rng.normal(size=(n, 9)), "samples": 10}, ValueError,
         "samples must be at least 11"),
        ({"mechanism": lambda b, rng, n: np.random.default_rng(b).normal(size=n)}, ValueError,
         "must return independent runs"),
    ],
)  # fmt: skip
def test_invalid_arguments_are_refused(change, error, message):
    arguments = {
        "mechanism": gaussian(),
        "dataset": 0,
        "neighbour": 1,
        "claim": GaussianPrivacy(1.0),
        "samples": 100,
        **change,
    }
    with pytest.raises(error, match=message):
        verify_gaussian(**arguments)


def test_a_mechanism_that_changes_its_input_is_caught():
    def changes(data, rng, size):
        data[0] += 1.0
        return data[0] + rng.normal(size=size)

    pair = np.zeros((1, 1)), np.ones((1, 1))
    with pytest.raises(ValueError, match="must not change its data set"):
        verify_gaussian(changes, *pair, GaussianPrivacy(1.0), samples=100, rng=0)


@pytest.mark.parametrize("shared", [0.1, 0.3])
def test_noise_that_the_runs_of_a_call_share_refutes_nothing(shared):
    """It is not normal noise of each run, which shows in another mean of another call."""

    def mechanism(count, rng, size):
        own = rng.normal(0.0, math.sqrt(1.0 - shared**2), size)
        return count + rng.normal(0.0, shared) + own

    verdicts = [verify_gaussian(mechanism, 0, 1, GaussianPrivacy(1.0), rng=s) for s in range(40)]
    assert sum("in another call on the" in v.void for v in verdicts) >= 30
    assert sum(v.refuted for v in verdicts) <= 2  # about 8 without the t test


@pytest.mark.parametrize("samples", [100, 100_000])
@pytest.mark.parametrize("std", [1e-3, 1e-5])
def test_a_bound_on_a_very_large_mu_is_conservative(std, samples):
    verdict = verify_gaussian(gaussian(std), 0, 1, GaussianPrivacy(1.0), samples=samples, rng=0)
    assert verdict.refuted and 100.0 < verdict.mu < 1.0 / std


@pytest.mark.parametrize("side", [0, 1])
def test_a_mechanism_that_repeats_its_runs_on_one_input_is_caught(side):
    def repeats(count, rng, size):
        source = np.random.default_rng(0) if count == side else rng
        return count + source.normal(size=size)

    with pytest.raises(ValueError, match="two calls gave the same ones"):
        verify_gaussian(repeats, 0, 1, GaussianPrivacy(1.0), samples=100, rng=0)


def test_the_test_of_equal_variances_is_two_sided():
    returned = {0: [], 1: []}

    def mechanism(b, rng, size):
        returned[b].append(rng.normal(0.0, 1.0 + 0.2 * b, size))
        return returned[b][-1]

    verdict = verify_gaussian(mechanism, 0, 1, GaussianPrivacy(1.0), samples=2_000, rng=0)
    variances = [np.var(np.concatenate(returned[b])) for b in (0, 1)]
    p_value = 2.0 * stats.f.cdf(variances[0] / variances[1], 1_999, 1_999)
    assert f"another variance on the neighbour (F test, p = {p_value:.2g}," in verdict.void
