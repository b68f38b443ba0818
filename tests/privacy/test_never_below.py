"""Costs against exact values: amplification and Gaussian noise never below, others to 1e-12.

Every formula is implemented again and evaluated with 60 to 120 digits.
"""

import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import dpanalysis as dpa
from dpanalysis.privacy import (
    amplify_poisson,
    amplify_without_replacement,
    deamplify_without_replacement,
    epsilon_to_zcdp,
    gaussian_delta,
    gaussian_epsilon,
    laplace_epsilon,
    privacy_curve,
    rdp_gaussian,
    rdp_laplace,
    rdp_poisson_gaussian,
    rdp_pure,
    zcdp_pure,
    zcdp_to_epsilon,
)
from dpanalysis.privacy.accounting.pure import amplify, deamplify
from dpanalysis.privacy.accounting.rdp import (
    _log_power_excess,
    rdp_pure_poisson,
    rdp_pure_without_replacement,
)
from dpanalysis.privacy.accounting.sampling import Poisson, WithoutReplacement
from dpanalysis.privacy.accounting.with_replacement import (
    pure_with_replacement,
    rdp_with_replacement,
)
from dpanalysis.privacy.accounting.zcdp import (
    gaussian_divergence,
    gaussian_lower_epsilon,
    gaussian_sum_epsilon,
)
from dpanalysis.privacy.events import BoundedRange, Gaussian, GaussianBound, Laplace, Pure, Sampled


@pytest.fixture(autouse=True)
def digits():
    with mp.workdps(120):
        yield


def powers(low, high):
    return st.floats(low, high).map(lambda x: 10.0**x)


losses = powers(-12.0, 3.0)
rates = powers(-9.0, -1e-3) | powers(-12.0, -0.3).map(lambda gap: 1.0 - gap)
orders = powers(-10.0, 6.0).map(lambda more: 1.0 + more)
sizes = st.tuples(st.integers(1, 10**9), st.floats(0.0, 1.0)).map(
    lambda pair: (pair[0], max(1, int(pair[0] ** pair[1])))
)


def exact_amplified(e, q):
    return mp.log1p(mp.mpf(q) * mp.expm1(mp.mpf(e)))


def check(found, exact, below=1e-80, above=1e-12):  # 1e-80 covers the rounding of mpmath
    assert exact * (1 - mp.mpf(below)) <= mp.mpf(float(found)) <= exact * (1 + mp.mpf(above))


@given(losses, rates, sizes)
def test_amplified_losses_are_never_below(e, q, size):
    n, m = size
    check(amplify(e, q), exact_amplified(e, q))
    check(amplify_poisson(e, q), exact_amplified(e, q))
    fraction = mp.mpf(m) / n
    check(amplify_without_replacement(e, n, m), exact_amplified(e, fraction))
    check(pure_with_replacement(e, n, m), m * exact_amplified(e, mp.mpf(1) / n), below=1e-15)
    exact = exact_amplified(mp.mpf(e) / (m * mp.mpf(0.37)), fraction)
    check(laplace_epsilon(e, 0.37, n, m), exact, below=1e-15)


@given(losses, rates, sizes)
def test_losses_that_are_allowed_on_the_batch_are_never_above(e, q, size):
    exact = mp.log1p(mp.expm1(mp.mpf(e)) / mp.mpf(q))
    check(deamplify(e, q), exact, below=1e-12, above=0.0)
    n, m = size
    exact = mp.log1p(mp.expm1(mp.mpf(e)) * n / m)
    check(deamplify_without_replacement(e, n, m), exact, below=1e-12, above=1e-15 * (m == n))


@pytest.mark.parametrize("e", [649.9, 650.1, 709.0, 710.0, 5000.0, 1e6])
@pytest.mark.parametrize("q", [1e-300, 1e-9, 0.5, 1.0 - 1e-15])
def test_amplification_where_exponentials_overflow(e, q):
    check(amplify(e, q), exact_amplified(e, q))
    assert amplify(math.inf, q) == math.inf and amplify(0.0, q) == 0.0


def normal(x):
    return mp.erfc(-x / mp.sqrt(2)) / 2


def exact_delta(mu, e):
    return normal(mu / 2 - e / mu) - mp.exp(e) * normal(-mu / 2 - e / mu)


@given(powers(-12.0, 2.0), st.floats(-3.0, 30.0) | powers(-12.0, 0.0))
def test_the_divergence_of_gaussian_noise(mu, place):
    loss = mu * place
    check(gaussian_divergence(mu, loss), exact_delta(mp.mpf(mu), mp.mpf(loss)), 1e-12, 1e-12)


def test_the_divergence_at_the_ends():
    assert gaussian_divergence(0.0, [-1.0, 0.0, 1.0]).tolist() == [-math.expm1(-1.0), 0.0, 0.0]
    assert gaussian_divergence(1.0, [-math.inf, math.inf]).tolist() == [1.0, 0.0]
    assert gaussian_divergence(math.inf, 5.0) == 1.0
    assert gaussian_divergence([0.3, 3.0], 1e5).tolist() == [0.0, 0.0]
    assert gaussian_delta(1e12, 0.0) == pytest.approx(1e-12 / math.sqrt(2 * math.pi), rel=1e-13)


@given(powers(-3.0, 12.0), st.floats(0.0, 200.0) | powers(-14.0, 0.0))
def test_the_epsilon_of_gaussian_noise_is_never_below(multiplier, place):
    mu = 1 / mp.mpf(multiplier)
    delta = float(min(mp.mpf(0.5), exact_delta(mu, mp.mpf(0))) * mp.exp(-place))
    found = gaussian_epsilon(multiplier, delta)
    if exact_delta(mu, mp.mpf(0)) <= delta:
        assert found == 0.0 or found <= 1e-13 * mu
        return
    assert exact_delta(mu, mp.mpf(found)) <= delta
    less = mp.mpf(found) * (1 - mp.mpf(1e-12)) - mp.mpf(1e-13) * mu
    assert less <= 0 or exact_delta(mu, less) > delta


@given(powers(-3.0, 4.0), st.floats(0.0, 200.0) | powers(-14.0, 0.0))
@example(0.05, None)
def test_the_lower_epsilon_of_gaussian_noise_is_never_above(multiplier, place):
    mu = 1 / mp.mpf(multiplier)
    top = exact_delta(mu, mp.mpf(0))
    delta = 1.0 - 1e-10 if place is None else float(top * mp.exp(-place))
    found = gaussian_lower_epsilon(multiplier, delta)
    if top <= delta:
        assert found == 0.0
        return
    assert exact_delta(mu, mp.mpf(found)) >= delta
    more = mp.mpf(found) * (1 + mp.mpf(1e-10)) + mp.mpf(1e-12) * mu
    assert delta > 0.5 or exact_delta(mu, more) < delta
    batch = dpa.accounting(multiplier, sampling="full", steps=1, delta=delta)
    assert batch.lower == found and batch.epsilon == gaussian_epsilon(multiplier, delta)


@given(
    st.lists(st.tuples(powers(-6.0, 1.5), powers(-3.0, 0.0)), min_size=2, max_size=4),
    powers(-12.0, -2.0),
)
@example([(1.0, 1.0), (10.0, 0.01)], 0.01)  # the sum hardly changes with epsilon
def test_the_epsilon_of_a_sum_is_never_below(terms, delta):
    mus, weights = zip(*terms)
    found = gaussian_sum_epsilon(mus, weights, delta)

    def total(e):
        return mp.fsum(mp.mpf(w) * exact_delta(mp.mpf(mu), e) for mu, w in terms)

    assert total(mp.mpf(found)) <= delta
    less = mp.mpf(found) * (1 - mp.mpf(1e-11)) - mp.mpf(1e-12) * max(mus)
    rounding = mp.mpf(2e-14) * (1 + (mp.mpf(found) / max(mus)) ** 2)  # of the computed sum
    assert less <= 0 or total(less) > delta * (1 - rounding)


@pytest.mark.parametrize("terms", [[(1.0, 1e20), (2.0, 1e20)], [(1.0, 3.5e23)]])
def test_the_epsilon_of_a_sum_is_never_below_among_subnormal_deltas(terms):
    mus, weights = zip(*terms)
    found = mp.mpf(gaussian_sum_epsilon(mus, weights, 1e-300))
    assert mp.fsum(mp.mpf(w) * exact_delta(mp.mpf(mu), found) for mu, w in terms) <= 1e-300


def test_a_curve_of_losses_on_a_grid_keeps_its_mass():
    """At loss 0 every one of 1e5 masses counts, so rounding any down would reduce delta."""
    event = Sampled(Poisson(0.5), [Gaussian(0.3, 1.0)])
    found = privacy_curve(event, "add_or_remove_one").delta(0.0)
    exact = exact_delta(1 / mp.mpf(0.3), mp.mpf(0)) / 2
    assert exact <= found <= exact * (1 + mp.mpf(1e-12))


def test_second_order_terms_are_kept_near_order_1_at_tiny_rates():
    """ln(1 + C(a, 2) q^2 (e^(mu^2) - 1) + ...)/(a - 1); the next term is smaller by 1e-11."""
    exact = mp.mpf(1.001) / 2 * mp.mpf(1e-25) ** 2 * mp.expm1(16)
    assert abs(rdp_poisson_gaussian(1.001, 1e-25, 0.25) / exact - 1) < 1e-10


def test_numbers_that_underflow_are_rounded_up():
    assert amplify(1e-300, 1e-24) > 0.0
    with mp.workdps(60):
        small = mp.log1p(mp.mpf(8.6e-14) * mp.expm1(mp.mpf(2.9e-299)))
        assert small <= amplify(2.9e-299, 8.6e-14) <= small * (1 + mp.mpf(1e-10))
    assert (
        gaussian_epsilon(1e-170, 1e-5) == math.inf and gaussian_lower_epsilon(1e-170, 1e-5) == 0.0
    )
    assert gaussian_sum_epsilon([math.inf], [1.0], 1e-5) == math.inf
    assert rdp_gaussian([2.0, math.inf], 1e170).tolist() == [1e-323, math.inf]


@pytest.mark.slow
@given(powers(-12.0, 5.0), powers(-30.0, -0.1))
def test_converted_rho_is_above_the_formula_at_its_best_order(rho, delta):
    """The minimum over orders is found by ternary search around the best of a grid."""
    found = zcdp_to_epsilon(rho, delta)
    r, d = mp.mpf(rho), mp.mpf(delta)

    def bound(t):
        a = 1 + mp.exp(t)
        return a * r + mp.log1p(-1 / a) - (mp.log(d) + mp.log(a)) / (a - 1)

    grid = [mp.mpf(t) / 4 for t in range(-120, 240)]
    at = min(grid, key=bound)
    low, high = at - mp.mpf(0.25), at + mp.mpf(0.25)
    for _ in range(100):
        left, right = (2 * low + high) / 3, (low + 2 * high) / 3
        low, high = (low, right) if bound(left) < bound(right) else (left, high)
    exact = max(bound(low), mp.mpf(0))
    assert exact <= found <= exact * (1 + mp.mpf(1e-11)) + mp.mpf(1e-14)
    if 1e-9 < found < 1e5:
        assert zcdp_to_epsilon(epsilon_to_zcdp(found, delta), delta) <= found


def exact_response(a, e):
    """ln E_Q (P/Q)^a for randomized response."""
    p = 1 / (1 + mp.exp(e))
    return mp.log((1 - p) ** a * p ** (1 - a) + p**a * (1 - p) ** (1 - a))


@given(orders, losses, rates, sizes, powers(-3.0, 6.0))
def test_renyi_costs(order, loss, rate, size, multiplier):
    a, e, q, s = map(mp.mpf, (order, loss, rate, multiplier))
    n, m = size

    def near(found, exact):
        check(found, exact, 1e-12, 1e-11)

    near(zcdp_pure(loss), e * mp.tanh(e / 2))
    near(rdp_gaussian(order, multiplier), a / (2 * s * s))
    near(rdp_pure(order, loss), exact_response(a, e) / (a - 1))
    weights = a / (2 * a - 1), (a - 1) / (2 * a - 1)
    moment = weights[0] * mp.exp((a - 1) * e) + weights[1] * mp.exp(-a * e)
    near(rdp_laplace(order, loss), mp.log(moment) / (a - 1))
    p = 1 / (1 + mp.exp(e))
    moment = p * (1 + q * mp.expm1(e)) ** a + (1 - p) * (1 + q * mp.expm1(-e)) ** a
    near(rdp_pure_poisson(order, rate, loss), mp.log(moment) / (a - 1))
    x = mp.log1p(mp.mpf(m) / n * mp.expm1(e))
    speak = (1 + mp.exp(x)) / (1 + mp.exp(e))
    moment = 1 + speak * mp.expm1(exact_response(a, x))
    near(rdp_pure_without_replacement(order, n, m, loss), mp.log(moment) / (a - 1))


@pytest.mark.slow
@given(st.integers(2, 300), rates, powers(-1.0, 4.0))
def test_the_binomial_sum(order, rate, multiplier):
    q, s = mp.mpf(rate), mp.mpf(multiplier)
    terms = (
        mp.binomial(order, j) * q**j * (1 - q) ** (order - j) * mp.exp(j * (j - 1) / (2 * s * s))
        for j in range(order + 1)
    )
    exact = mp.log(mp.fsum(terms)) / (order - 1)
    check(rdp_poisson_gaussian(float(order), rate, multiplier), exact, 2e-12, 2e-12)


@given(orders, powers(-6.0, 1.0), st.floats(0.01, 0.99), st.booleans())
def test_a_mixture_of_gaussians(order, mu, share, law):
    """Also where the weights sum to 1 up to rounding, which matters near order 1."""
    weights = (share, 1.0 - share) if law else (1.0, 1.0 + share)
    event = GaussianBound(1.0, (mu, 0.1 * mu), weights)
    a, w = mp.mpf(order), [mp.mpf(weight) for weight in event.weights]
    total = mp.mpf(1) if law else mp.fsum(w)
    shifts = mp.mpf(mu), mp.mpf(float(np.float64(0.1) * mu))
    moment = total + mp.fsum(x * mp.expm1(a * (a - 1) * s * s / 2) for x, s in zip(w, shifts))
    check(event.rdp_cost([order])[0], mp.log(moment) / (a - 1), 1e-12, 1e-11)


@given(powers(-10.0, 0.0), powers(-10.0, 1.0), st.integers(2, 60), st.floats(0.0, 1.0))
def test_draws_with_replacement(more, mu, n, part):
    """Near order 1 and with much noise, cancellation once made costs negative."""
    order, m = 1.0 + more, 1 + int(part * (n - 1))
    law = [mp.binomial(m, k) * mp.mpf(n - 1) ** (m - k) / mp.mpf(n) ** m for k in range(m + 1)]
    rate, s = 1 - law[0], mp.mpf(1) / (1.0 / mu)

    def excess(a):
        moments = (p * mp.expm1(a * (a - 1) * (k * s) ** 2 / 2) for k, p in enumerate(law))
        return mp.fsum(moments) / rate

    a, second = mp.mpf(order), excess(mp.mpf(2))
    chord = mp.log1p(rate**2 * min(4 * second, 2 * (1 + second)))
    exact = min(chord, mp.log1p(excess(a)) / (a - 1))
    check(rdp_with_replacement(order, n, m, 1.0 / mu), exact, 1e-12, 1e-11)


def test_weights_that_miss_1_by_rounding_lose_nothing_near_order_1():
    """A missing weight of 1e-13 once took 1e-8, nearly all, from the cost at order 1 + 1e-5."""
    event = GaussianBound(1.0, (1e-4, 2e-4), (0.5, 0.5 - 1e-13))
    assert math.fsum(event.weights) == pytest.approx(1.0, abs=1e-16)
    assert event.rdp_cost([1.00001])[0] == pytest.approx(0.5 * 2.5e-8, rel=1e-4)


@pytest.mark.parametrize("more", [1e-10, 1e-6, 0.5, 1.0])
def test_weights_above_1_have_no_rho(more):
    """The Renyi cost of such a bound does not vanish at order 1, so no rho bounds it."""
    event = GaussianBound(1.0, (1.0, 2.0), (0.5, 0.5 + more))
    assert event.zcdp_cost() == math.inf
    assert event.rdp_cost([1.0 + 1e-9])[0] > 0.05
    assert GaussianBound(1.0, (1.0, 2.0), (0.5, 0.5)).zcdp_cost() == 2.0


@given(losses, rates, st.integers(1, 4), powers(-6.0, 4.0))
def test_rho_of_a_sampled_pure_release_holds_at_every_order(loss, rate, count, more):
    """The cost in a zCDP filter covers both directions of the worst pair, at real orders."""
    a, e, q = 1 + mp.mpf(more), count * mp.mpf(loss), mp.mpf(rate)
    event = Sampled(Poisson(rate), [Pure(loss)] * count)
    p = 1 / (1 + mp.exp(e))
    laws = [(p, 1 - p), (p * (1 + q * mp.expm1(e)), (1 - p) * (1 + q * mp.expm1(-e)))]
    for P, Q in (laws, laws[::-1]):
        moment = mp.fsum(x**a * y ** (1 - a) for x, y in zip(P, Q))
        assert mp.log(moment) / (a - 1) <= a * event.zcdp_cost() * (1 + mp.mpf(1e-12))
    n = 1000
    m = min(max(1, round(rate * n)), n - 1)  # with m = n the releases are charged one by one
    event = Sampled(WithoutReplacement(m), [Pure(loss)] * count, n)
    x = mp.log1p(mp.mpf(m) / n * mp.expm1(e))
    speak = (1 + mp.exp(x)) / (1 + mp.exp(e))
    moment = 1 + speak * mp.expm1(exact_response(a, x))
    assert mp.log(moment) / (a - 1) <= a * event.zcdp_cost() * (1 + mp.mpf(1e-12))


@given(losses, powers(-6.0, 4.0))
def test_rho_of_single_releases_holds_at_every_order(loss, more):
    a, e = 1 + mp.mpf(more), mp.mpf(loss)
    rho = a * (1 + mp.mpf(1e-12))
    assert exact_response(a, e) / (a - 1) <= rho * Pure(loss).zcdp_cost()
    moment = (a * mp.exp((a - 1) * e) + (a - 1) * mp.exp(-a * e)) / (2 * a - 1)
    assert mp.log(moment) / (a - 1) <= rho * Laplace(1.0, loss).zcdp_cost()
    assert a * e * e / 2 <= rho * Gaussian(1.0, loss).zcdp_cost()
    # Bounded range: two outcomes whose losses differ by e, at several offsets.
    for place in (0.1, 0.5, 0.9):
        low = -place * e
        p = -mp.expm1(low) / (mp.exp(low + e) - mp.exp(low))
        moment = p * mp.exp(a * (low + e)) + (1 - p) * mp.exp(a * low)
        assert mp.log(moment) / (a - 1) <= rho * BoundedRange(loss).zcdp_cost()


@pytest.mark.parametrize("u", [1e-9, 0.0305, 0.3, 29.0, 31.0, 400.0, 1e5])
@pytest.mark.parametrize("more", [1e-10, 1e-6, 0.3, 1.0, 50.0, 1e3])
def test_the_excess_of_a_power(u, more):
    """Near order 1 all terms cancel except a part of u (order - 1)."""
    for x in (u, -u):
        a = mp.mpf(1.0 + more)
        s = mp.exp(mp.mpf(x))
        exact = mp.log(s**a - 1 - a * (s - 1))
        found = float(_log_power_excess(np.float64(x), 1.0 + more))
        assert abs(found - exact) <= mp.mpf(1e-14) * (1 + abs(exact)) + mp.mpf(3e-13) * (x < 0)
