"""Pure losses and their amplification, against enumeration of every subsample."""

import itertools

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpanalysis.privacy import (
    amplify_poisson,
    amplify_without_replacement,
    deamplify_without_replacement,
    laplace_epsilon,
)
from dpanalysis.privacy.accounting.pure import amplify, deamplify

epsilons = st.floats(1e-12, 1e4)
fractions = st.floats(1e-6, 1.0)


@given(epsilon=epsilons, q=fractions)
def test_amplification_agrees_with_many_digits(epsilon, q):
    with mpmath.workdps(60):
        exact = mpmath.log1p(mpmath.mpf(q) * mpmath.expm1(mpmath.mpf(epsilon)))
        inverse = mpmath.log1p(mpmath.expm1(mpmath.mpf(epsilon)) / mpmath.mpf(q))
    assert amplify(epsilon, q) == pytest.approx(float(exact), rel=1e-13)
    assert deamplify(epsilon, q) == pytest.approx(float(inverse), rel=1e-13)


@given(epsilon=epsilons, q=fractions)
def test_amplification_only_helps_and_is_inverted(epsilon, q):
    amplified = amplify(epsilon, q)
    assert 0.0 < amplified <= epsilon * (1 + 1e-15)
    assert deamplify(amplified, q) == pytest.approx(epsilon, rel=1e-9)


@given(epsilon=epsilons, q=fractions, factor=st.floats(1.001, 10.0))
def test_amplification_increases_in_both_arguments(epsilon, q, factor):
    assert amplify(min(epsilon * factor, 1e5), q) > amplify(epsilon, q)
    assert amplify(epsilon, min(q * factor, 1.0)) >= amplify(epsilon, q)


def test_extremes_and_shapes():
    assert amplify(0.0, 0.5) == 0.0 and amplify(np.inf, 0.5) == np.inf
    assert deamplify(0.0, 0.5) == 0.0 and deamplify(np.inf, 0.5) == np.inf
    assert amplify(3.0, 1.0) == 3.0 and deamplify(3.0, 1.0) == 3.0
    assert amplify(1e-300, 0.5) == pytest.approx(5e-301)
    assert amplify(np.ones((2, 3)), 0.1).shape == (2, 3)
    assert isinstance(amplify(1.0, 0.1), float)


def _worst_ratio(law, data, neighbour, m):
    """Return the largest log-likelihood ratio of a mechanism on a uniform m-subset."""

    def mixture(values):
        return np.mean([law(batch) for batch in itertools.combinations(values, m)], axis=0)

    return np.abs(np.log(mixture(data) / mixture(neighbour))).max()


@pytest.mark.parametrize(("n", "m"), [(2, 1), (4, 1), (4, 3), (5, 2), (6, 6)])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_randomized_response_on_all_subsamples(n, m, epsilon):
    """The formula is attained: one special record, randomized response on its presence."""

    def law(batch):
        p = np.exp(epsilon) / (1 + np.exp(epsilon))
        return np.array([p, 1 - p]) if max(batch) else np.array([1 - p, p])

    worst = _worst_ratio(law, (1, *[0] * (n - 1)), (0,) * n, m)
    assert worst == pytest.approx(amplify_without_replacement(epsilon, n, m), rel=1e-12)


@pytest.mark.parametrize(("n", "m"), [(3, 1), (5, 2), (5, 4)])
@pytest.mark.parametrize("scale", [0.05, 0.3, 2.0])
def test_laplace_mean_on_all_subsamples(n, m, scale):
    """(3.3) of Kuru et al. (2022) bounds, and far out attains, the loss of an m-of-n mean."""
    grid = np.linspace(-6.0, 7.0, 1301)

    def law(batch):
        return np.exp(-np.abs(grid - np.mean(batch)) / scale)

    bound = laplace_epsilon(1.0, scale, n, m)
    worst = _worst_ratio(law, (1, *[0] * (n - 1)), (0,) * n, m)
    assert worst <= bound * (1 + 1e-12)
    assert worst == pytest.approx(bound, rel=1e-6)
    mixed = _worst_ratio(law, (1.0, *np.linspace(0, 1, n - 1)), (0.0, *np.linspace(0, 1, n - 1)), m)
    assert mixed <= bound * (1 + 1e-12)


@pytest.mark.parametrize("rate", [0.05, 0.5])
def test_poisson_on_all_subsamples(rate):
    epsilon, others = 1.5, 3
    p = np.exp(epsilon) / (1 + np.exp(epsilon))

    def law(size):
        total = np.zeros(2)
        for present in itertools.product([0, 1], repeat=size):
            weight = np.prod([rate if b else 1 - rate for b in present])
            special = size > others and present[-1]
            total += weight * (np.array([p, 1 - p]) if special else np.array([1 - p, p]))
        return total

    worst = np.abs(np.log(law(others + 1) / law(others))).max()
    assert worst == pytest.approx(amplify_poisson(epsilon, rate), rel=1e-12)


def test_laplace_epsilon_of_the_full_batch_is_the_plain_quotient():
    assert laplace_epsilon(40.0, 0.4, 1000) == pytest.approx(0.1, rel=1e-15)
    assert laplace_epsilon(40.0, 0.4, 1000, 1000) == laplace_epsilon(40.0, 0.4, 1000)
    assert laplace_epsilon([1.0, 2.0], 0.5, 10).shape == (2,)
    assert laplace_epsilon(0.0, 0.5, 10) == 0.0


@pytest.mark.parametrize(("T", "true"), [(100, 2.17), (1000, 1.81)])
def test_noise_for_the_full_batch_is_not_private_on_a_batch(T, true):
    """The optimal full-batch scales violate epsilon = 1 on batches (001-13)."""
    n, m, sensitivity = 100_000, 1000, 1.0
    # (4.5): b_t in proportion to a_t^(-1/3), with a_t that grows by the rate of mu alpha = 1/300.
    a = (1.0 - np.sqrt(1.0 / 300.0)) ** np.arange(T - 1, -1, -1)
    epsilons = a ** (1 / 3) / np.sum(a ** (1 / 3))
    scales = sensitivity / (n * epsilons)
    assert laplace_epsilon(sensitivity, scales, n).sum() == pytest.approx(1.0)
    assert laplace_epsilon(sensitivity, scales, n, m).sum() == pytest.approx(true, abs=0.005)
    # Allocating first and inverting (3.5) afterwards meets epsilon = 1.
    scales = sensitivity / (m * deamplify_without_replacement(epsilons, n, m))
    assert laplace_epsilon(sensitivity, scales, n, m).sum() == pytest.approx(1.0)


@pytest.mark.parametrize(
    "call",
    [
        lambda: amplify(-1.0, 0.5),
        lambda: amplify(float("nan"), 0.5),
        lambda: amplify(1.0, 0.0),
        lambda: amplify_without_replacement(1.0, 10, 11),
        lambda: amplify_poisson(1.0, 1.1),
        lambda: laplace_epsilon(1.0, 0.0, 10),
        lambda: laplace_epsilon(-1.0, 1.0, 10),
    ],
)
def test_bad_arguments_raise(call):
    with pytest.raises(ValueError, match=r"must|between"):
        call()
