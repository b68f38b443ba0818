"""zCDP conversions and the exact Gaussian, against multiprecision values and each other."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dpanalysis.privacy import (
    epsilon_to_zcdp,
    gaussian_delta,
    gaussian_epsilon,
    rdp_pure,
    zcdp_pure,
    zcdp_to_epsilon,
)
from dpanalysis.privacy.accounting.zcdp import gaussian_divergence, zcdp_gaussian

rhos = st.floats(1e-10, 50.0)
deltas = st.floats(1e-12, 0.3)


@given(rho=rhos, delta=deltas, order=st.floats(1.0001, 1e6))
def test_no_order_beats_the_conversion(rho, delta, order):
    bound = order * rho + math.log1p(-1 / order)
    bound -= (math.log(delta) + math.log(order)) / (order - 1)
    assert zcdp_to_epsilon(rho, delta) <= max(0.0, bound) + 1e-9


@given(rho=rhos, delta=deltas)
def test_conversion_is_below_the_classical_one_and_above_the_exact_gaussian(rho, delta):
    epsilon = zcdp_to_epsilon(rho, delta)
    assert epsilon <= rho + 2 * math.sqrt(rho * math.log(1 / delta)) + 1e-12
    assert epsilon >= gaussian_epsilon(math.sqrt(0.5 / rho), delta) - 1e-9


@given(rho=rhos, delta=deltas)
def test_conversion_is_monotone(rho, delta):
    epsilon = zcdp_to_epsilon(rho, delta)
    assert epsilon <= zcdp_to_epsilon(1.1 * rho, delta) + 1e-12
    assert epsilon >= zcdp_to_epsilon(rho, 1.1 * delta) - 1e-12


@given(epsilon=st.floats(1e-3, 50.0), delta=deltas)
def test_largest_rho_of_a_budget(epsilon, delta):
    rho = epsilon_to_zcdp(epsilon, delta)
    assert zcdp_to_epsilon(rho, delta) <= epsilon
    assert zcdp_to_epsilon(rho * (1 + 1e-6), delta) > epsilon


def test_conversion_at_the_ends():
    assert zcdp_to_epsilon(0.0, 1e-5) == 0.0 == zcdp_to_epsilon(0.0, 0.0)
    assert zcdp_to_epsilon(0.1, 0.0) == math.inf == zcdp_to_epsilon(math.inf, 0.1)


@given(epsilon=st.floats(1e-6, 100.0), order=st.floats(1.0001, 1e4))
def test_pure_privacy_has_this_rho(epsilon, order):
    """rdp_pure(order) <= order rho, with equality in the limit of order 1."""
    rho = zcdp_pure(epsilon)
    assert rdp_pure(order, epsilon) <= order * rho * (1 + 1e-9)
    assert rho <= min(0.5 * epsilon**2, epsilon)


def test_pure_rho_is_the_smallest():
    for epsilon in (0.1, 1.0, 5.0):
        assert rdp_pure(1 + 1e-7, epsilon) == pytest.approx(zcdp_pure(epsilon), rel=1e-6)
    assert zcdp_gaussian(2.0) == 0.125


@given(sigma=st.floats(0.05, 1e4), epsilon=st.floats(-5.0, 30.0))
def test_gaussian_delta_agrees_with_many_digits(sigma, epsilon):
    with mpmath.workdps(60):
        mu, loss = 1 / mpmath.mpf(sigma), mpmath.mpf(epsilon)
        exact = mpmath.ncdf(mu / 2 - loss / mu) - mpmath.exp(loss) * mpmath.ncdf(
            -mu / 2 - loss / mu
        )
        exact = float(exact)
    assert gaussian_delta(sigma, epsilon) == pytest.approx(exact, rel=1e-6, abs=1e-300)


@given(sigma=st.floats(0.1, 1e4), delta=deltas)
def test_gaussian_epsilon_inverts_delta(sigma, delta):
    epsilon = gaussian_epsilon(sigma, delta)
    achieved = gaussian_delta(sigma, epsilon)
    assert achieved <= delta * (1 + 1e-9)
    assert epsilon == 0.0 or achieved == pytest.approx(delta, rel=1e-5)


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(1e-3, 1e-12), (50.0, 1e-12), (1e-3, 0.1), (50, 0.1)]
)
def test_gaussian_extremes(epsilon, delta):
    """Find the noise for extreme targets and check it in multiprecision."""
    from scipy.optimize import brentq

    log_sigma = brentq(lambda t: gaussian_epsilon(math.exp(t), delta) - epsilon, -3.0, 12.0)
    with mpmath.workdps(50):
        mu, loss = mpmath.exp(-mpmath.mpf(log_sigma)), mpmath.mpf(epsilon)
        exact = mpmath.ncdf(mu / 2 - loss / mu) - mpmath.exp(loss) * mpmath.ncdf(
            -mu / 2 - loss / mu
        )
    assert float(exact) == pytest.approx(delta, rel=1e-5)


def test_gaussian_at_the_ends():
    assert gaussian_epsilon(math.inf, 1e-5) == 0.0 and gaussian_epsilon(1.0, 0.0) == math.inf
    assert gaussian_delta(1.0, -np.inf) == 1.0 and gaussian_delta(1.0, np.inf) == 0.0
    assert gaussian_epsilon(1.0, 0.9) == 0.0
    total_variation = 2 * stats.norm.cdf(0.5) - 1
    assert gaussian_delta(1.0, 0.0) == pytest.approx(total_variation, rel=1e-14)
    assert gaussian_delta([1.0, 2.0], 0.5).shape == (2,)


@pytest.mark.parametrize(
    "call",
    [
        lambda: zcdp_pure(-1.0),
        lambda: zcdp_to_epsilon(-1.0, 0.1),
        lambda: zcdp_to_epsilon(1.0, 1.0),
        lambda: epsilon_to_zcdp(0.0, 0.1),
        lambda: epsilon_to_zcdp(1.0, 0.0),
        lambda: gaussian_delta(0.0, 1.0),
        lambda: gaussian_epsilon(-1.0, 0.1),
    ],
)
def test_bad_arguments_raise(call):
    with pytest.raises(ValueError, match="must lie in"):
        call()


def test_the_divergence_at_many_losses_is_that_at_each_of_them_to_the_last_bit():
    random = np.random.default_rng(0)
    mu, loss = np.exp(random.uniform(-15.0, 4.0, (2, 1_000)))
    each = [float(gaussian_divergence(*pair)) for pair in zip(mu, loss)]
    np.testing.assert_array_equal(gaussian_divergence(mu, loss), each)


@given(mu=st.floats(1e-3, 0.49), far=st.floats(20.0, 35.0))
def test_far_tails_of_small_shifts_have_all_their_digits(mu, far):
    """There Mills' ratio is a series; a wrong term would cause a relative error of 1e-2."""
    epsilon = mu * (far + mu / 2.0)
    with mpmath.workdps(450):
        shift, loss = mpmath.mpf(mu), mpmath.mpf(epsilon)
        exact = mpmath.ncdf(shift / 2 - loss / shift) - mpmath.exp(loss) * mpmath.ncdf(
            -shift / 2 - loss / shift
        )
        found = mpmath.mpf(float(gaussian_divergence(np.array([mu]), epsilon)[0]))
        assert abs(found / exact - 1) < 1e-9


@given(epsilon=st.floats(1e-3, 1e6), delta=deltas)
def test_the_largest_rho_of_a_budget_never_exceeds_it(epsilon, delta):
    assert zcdp_to_epsilon(epsilon_to_zcdp(epsilon, delta), delta) <= epsilon
