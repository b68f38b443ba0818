"""Renyi costs against quadrature, enumeration and dp-accounting; amplification, conversion."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpanalysis.privacy import (
    Poisson,
    Repeats,
    WithoutReplacement,
    epsilon,
    rdp_gaussian,
    rdp_laplace,
    rdp_poisson,
    rdp_poisson_gaussian,
    rdp_pure,
    rdp_to_epsilon,
    rdp_without_replacement,
)
from dpanalysis.privacy.accounting.pure import amplify
from dpanalysis.privacy.accounting.rdp import rdp_pure_poisson, rdp_pure_without_replacement
from dpanalysis.privacy.events import BestOf, Laplace, Repeated, Sampled

orders = st.floats(1.0001, 1e4)
epsilons = st.floats(1e-8, 500.0)


def laplace_digits(a, loss):
    with mpmath.workdps(60):
        a, loss = mpmath.mpf(a), mpmath.mpf(loss)
        moment = a * mpmath.exp((a - 1) * loss) + (a - 1) * mpmath.exp(-a * loss)
        return float(mpmath.log(moment / (2 * a - 1)) / (a - 1))


def pure_digits(a, loss):
    with mpmath.workdps(60):
        a, loss = mpmath.mpf(a), mpmath.mpf(loss)
        top = mpmath.exp(a * loss) + mpmath.exp((1 - a) * loss)
        return float(mpmath.log(top / (1 + mpmath.exp(loss))) / (a - 1))


@given(a=orders, loss=epsilons)
def test_closed_forms_agree_with_many_digits(a, loss):
    assert rdp_laplace(a, loss) == pytest.approx(laplace_digits(a, loss), rel=1e-10)
    assert rdp_pure(a, loss) == pytest.approx(pure_digits(a, loss), rel=1e-10)


@pytest.mark.parametrize("excess", [1e-12, 1e-6, 1e-4, 0.01])
@pytest.mark.parametrize("loss", [19.999, 20.0, 25.0, 100.0])
def test_closed_forms_at_orders_near_one(excess, loss):
    """At large losses the rare answer of randomized response still matters near order 1."""
    a = 1.0 + excess
    assert rdp_laplace(a, loss) == pytest.approx(laplace_digits(a, loss), rel=1e-13)
    assert rdp_pure(a, loss) == pytest.approx(pure_digits(a, loss), rel=1e-13)


@pytest.mark.parametrize("excess", [1e-10, 1e-6, 1e-3])
@pytest.mark.parametrize("loss", [0.05, 0.5, 25.0])
@pytest.mark.parametrize("q", [1e-3, 0.4])
def test_sampled_pure_costs_at_orders_near_one(excess, loss, q):
    a = 1.0 + excess
    with mpmath.workdps(60):
        a_, q_, e = mpmath.mpf(a), mpmath.mpf(q), mpmath.exp(mpmath.mpf(loss))
        p = 1 / (1 + e)
        moment = p * (1 + q_ * (e - 1)) ** a_ + (1 - p) * (1 - q_ * (1 - 1 / e)) ** a_
        exact = float(mpmath.log(moment) / (a_ - 1))
    assert rdp_pure_poisson(a, q, loss) == pytest.approx(exact, rel=1e-9)


@given(a=orders, loss=epsilons)
def test_closed_forms_are_ordered(a, loss):
    """Laplace is one of the pure mechanisms; all stay below epsilon, above the next order."""
    slack = 1 + 1e-9
    assert rdp_laplace(a, loss) <= rdp_pure(a, loss) * slack
    assert rdp_pure(a, loss) <= min(loss, 0.5 * a * loss**2) * slack
    for cost in (rdp_laplace, rdp_pure):
        assert cost(a, loss) <= cost(a * 1.1, loss) * slack
        assert cost(a, loss) <= cost(a, loss * 1.1) * slack


@given(a=st.floats(1.01, 100.0), loss=st.floats(0.0, 30.0))
def test_a_batch_of_everything_is_not_amplified(a, loss):
    base = rdp_pure(a, loss)
    assert rdp_pure_poisson(a, 1.0, loss) == base
    assert rdp_poisson(a, 1.0, lambda a: rdp_pure(a, loss)) == base
    assert rdp_without_replacement(a, 5, 5, lambda a: rdp_pure(a, loss)) == base
    assert rdp_poisson(a, 0.0, lambda a: rdp_pure(a, loss)) == 0.0  # a batch of nothing
    assert math.isinf(rdp_pure_poisson(a, 0.5, math.inf))


def test_order_infinity_is_the_pure_loss():
    assert rdp_laplace(np.inf, 0.7) == rdp_pure(np.inf, 0.7) == 0.7
    assert rdp_gaussian(np.inf, 2.0) == np.inf
    assert rdp_laplace([2.0, np.inf], 0.0).tolist() == [0.0, 0.0]
    assert rdp_pure(3.0, np.inf) == np.inf
    assert rdp_pure_poisson(np.inf, 0.1, 1.0) == amplify(1.0, 0.1)
    assert rdp_pure_without_replacement(np.inf, 10, 1, 1.0) == amplify(1.0, 0.1)


def test_laplace_against_quadrature():
    for a, loss in [(1.5, 0.3), (2.0, 1.0), (7.3, 2.0)]:
        value = mpmath.quad(
            lambda x, a=a, loss=loss: mpmath.exp(-a * abs(x) - (1 - a) * abs(x - loss)) / 2,
            [-mpmath.inf, 0, loss, mpmath.inf],
        )
        assert rdp_laplace(a, loss) == pytest.approx(float(mpmath.log(value)) / (a - 1), rel=1e-10)


def poisson_gaussian_digits(a, q, sigma):
    """Return the divergence of the mixture from N(0, sigma^2), and the other way round.

    By the trapezoidal rule, whose error is exp(-2 pi c/h) with steps h for a function that is
    analytic up to a distance c of the real line: here the first zero of the ratio, c = pi sigma^2.
    """
    with mpmath.workdps(30):
        a, q, s = mpmath.mpf(a), mpmath.mpf(q), mpmath.mpf(sigma)
        step = min(s / 4, s * s / 3)
        moments = [mpmath.mpf(0), mpmath.mpf(0)]
        for x in mpmath.arange(-12 * s, a + 12 * s, step):
            ratio = 1 - q + q * mpmath.exp((2 * x - 1) / (2 * s * s))
            power = ratio**a
            density = step * mpmath.npdf(x, 0, s)
            moments[0] += density * power
            moments[1] += density * ratio / power
        return [float(mpmath.log(moment) / (a - 1)) for moment in moments]


@pytest.mark.parametrize("sigma", [0.3, 1.0, 100.0])
@pytest.mark.parametrize("q", [1e-4, 0.01, 0.9])
@pytest.mark.parametrize("a", [1.01, 1.5, 2, 7.7])
def test_poisson_gaussian_against_quadrature(a, q, sigma):
    exact, swapped = poisson_gaussian_digits(a, q, sigma)
    assert rdp_poisson_gaussian(a, q, sigma) == pytest.approx(exact, rel=1e-9)
    # The other direction is never larger (Mironov, Talwar, Zhang, Theorem 5).
    assert swapped <= exact * (1 + 1e-9)


@given(
    a=st.integers(2, 1024),
    q=st.floats(1e-9, 0.999999),
    sigma=st.floats(0.3, 100.0),
)
def test_the_sum_and_the_integral_agree(a, q, sigma):
    from dpanalysis.privacy.accounting.rdp import _poisson_gaussian_integral

    integral = _poisson_gaussian_integral(float(a), q, 1.0 / sigma)
    assert rdp_poisson_gaussian(a, q, sigma) == pytest.approx(integral, rel=1e-8)


@given(
    a=st.floats(1.01, 300.0),
    q=st.floats(1e-6, 0.9),
    sigma=st.floats(0.3, 50.0),
    factor=st.floats(1.01, 3.0),
)
def test_poisson_gaussian_is_monotone_and_amplifies(a, q, sigma, factor):
    cost, slack = rdp_poisson_gaussian(a, q, sigma), 1 + 1e-9
    assert 0.0 < cost <= rdp_gaussian(a, sigma) * slack
    assert cost <= rdp_poisson_gaussian(a * factor, q, sigma) * slack
    assert cost <= rdp_poisson_gaussian(a, min(1.0, q * factor), sigma) * slack
    assert cost >= rdp_poisson_gaussian(a, q, sigma * factor) / slack


def test_gaussian_at_the_ends():
    assert np.array_equal(rdp_gaussian([2.0, np.inf], np.inf), [0.0, 0.0])
    assert np.isinf(rdp_gaussian(np.inf, 1.0))


def test_poisson_gaussian_at_the_ends():
    assert rdp_poisson_gaussian(5.5, 0.0, 1.0) == 0.0
    assert rdp_poisson_gaussian(5.5, 1.0, 2.0) == rdp_gaussian(5.5, 2.0)
    assert rdp_poisson_gaussian(5.5, 0.1, np.inf) == 0.0
    assert np.isinf(rdp_poisson_gaussian(np.inf, 0.1, 1.0))
    tiny = rdp_poisson_gaussian(2, 1e-12, 1.0)  # q^2 (e^{1/s^2} - 1), no cancellation
    assert tiny == pytest.approx(1e-24 * math.expm1(1.0), rel=1e-9)
    assert rdp_poisson_gaussian(1.5, 1e-9, 1.0) == pytest.approx(
        0.75 * 1e-18 * math.expm1(1), rel=1e-4
    )


def test_poisson_gaussian_agrees_with_dp_accounting():
    import dp_accounting
    from dp_accounting.rdp import RdpAccountant

    grid = [1.5, 2, 3.7, 8, 31, 64, 256]
    for q, sigma in [(0.01, 1.0), (0.1, 3.0), (0.5, 0.8)]:
        peer = RdpAccountant(grid)
        peer.compose(
            dp_accounting.PoissonSampledDpEvent(q, dp_accounting.GaussianDpEvent(sigma)), 1
        )
        ours, whole = rdp_poisson_gaussian(grid, q, sigma), np.equal(np.mod(grid, 1), 0)
        assert ours[whole] == pytest.approx(peer._rdp[whole], rel=1e-6)
        # Between integers the peer is above the true value, by 4 percent at order 1.5.
        assert (ours <= peer._rdp * (1 + 1e-6)).all()


# Amplification of general curves


@pytest.mark.slow
@pytest.mark.parametrize("q", [0.01, 0.3])
@pytest.mark.parametrize("a", [2, 5, 16])
def test_exact_pairs_reproduce_the_direct_divergence(a, q):
    """Gaussian, Laplace, randomized response and Gaussian x randomized response."""

    def gaussian(x):
        return rdp_gaussian(x, 1.5)

    assert rdp_poisson(a, q, gaussian, exact_pair=True) == pytest.approx(
        rdp_poisson_gaussian(a, q, 1.5), rel=1e-12
    )
    assert rdp_poisson(a, q, lambda x: rdp_pure(x, 2.0), exact_pair=True) == pytest.approx(
        rdp_pure_poisson(a, q, 2.0), rel=1e-12
    )
    loss = 1.2
    laplace = mpmath.quad(
        lambda x: mpmath.exp(-abs(x)) / 2 * (1 - q + q * mpmath.exp(abs(x) - abs(x - loss))) ** a,
        [-mpmath.inf, 0, loss, mpmath.inf],
    )
    assert rdp_poisson(a, q, lambda x: rdp_laplace(x, loss), exact_pair=True) == pytest.approx(
        float(mpmath.log(laplace)) / (a - 1), rel=1e-9
    )
    p = 1 / (1 + math.exp(-2.0))

    def both(x):
        density = mpmath.npdf(x, 0, 1.5)
        ratio = mpmath.exp((2 * x - 1) / (2 * 1.5**2))
        up = (1 - p) * (1 - q + q * ratio * math.exp(2.0)) ** a
        down = p * (1 - q + q * ratio * math.exp(-2.0)) ** a
        return density * (up + down)

    product = mpmath.quad(both, [-20, *range(-4, a + 5, 2), a + 20])
    joint = rdp_poisson(a, q, lambda x: gaussian(x) + rdp_pure(x, 2.0), exact_pair=True)
    assert joint == pytest.approx(float(mpmath.log(product)) / (a - 1), rel=1e-9)


@given(
    a=st.floats(1.05, 40.0),
    q=st.floats(1e-4, 0.99),
    loss=st.floats(0.01, 6.0),
)
def test_chords_between_integers_bound_the_true_curve(a, q, loss):
    chord = rdp_poisson(a, q, lambda x: rdp_pure(x, loss), exact_pair=True)
    exact = rdp_pure_poisson(a, q, loss)
    assert exact * (1 - 1e-9) <= chord
    above = rdp_pure_poisson(max(2.0, math.ceil(a)), q, loss)
    assert chord <= min(above, rdp_pure(a, loss)) * (1 + 1e-9)


@given(
    a=st.floats(1.05, 40.0),
    q=st.floats(1e-4, 0.99),
    loss=st.floats(0.01, 6.0),
)
def test_general_bounds_are_above_exact_and_below_the_base(a, q, loss):
    def base(x):
        return rdp_pure(x, loss)

    exact = rdp_poisson(a, q, base, exact_pair=True)
    general = rdp_poisson(a, q, base)
    assert exact <= general * (1 + 1e-12) and general <= base(a) * (1 + 1e-12)


@pytest.mark.parametrize(("n", "m"), [(4, 1), (5, 2), (6, 4)])
@pytest.mark.parametrize("loss", [0.2, 1.0, 3.0])
def test_without_replacement_bounds_cover_the_worst_case(n, m, loss):
    """Randomized response on one special record: a mixture with weight m/n, both directions."""
    p = 1 / (1 + math.exp(-loss))
    present, absent = np.array([p, 1 - p]), np.array([1 - p, p])
    mixed = m / n * present + (1 - m / n) * absent
    for a in (1.3, 2, 3.5, 8, 20):
        worst = max(
            math.log(np.sum(x**a * y ** (1 - a))) / (a - 1)
            for x, y in ((mixed, absent), (absent, mixed))
        )
        tight = rdp_pure_without_replacement(a, n, m, loss)
        general = rdp_without_replacement(a, n, m, lambda x: rdp_pure(x, loss), loss)
        assert worst <= tight * (1 + 1e-12) and worst <= general * (1 + 1e-12)
        assert tight <= rdp_pure(a, amplify(loss, m / n)) * (1 + 1e-12)


@pytest.mark.parametrize("a", [2, 3, 8, 40])
def test_without_replacement_is_the_printed_formula(a):
    """003, Theorem B.4, for Gaussian noise, term by term in multiprecision."""
    n, m, sigma = 1000, 30, 2.0
    with mpmath.workdps(50):
        s = mpmath.mpf(m) / n
        first = min(4 * mpmath.expm1(1 / mpmath.mpf(sigma) ** 2), 2 * mpmath.exp(1 / sigma**2))
        total = 1 + s**2 * mpmath.binomial(a, 2) * first
        for j in range(3, a + 1):
            total += 2 * s**j * mpmath.binomial(a, j) * mpmath.exp((j - 1) * j / (2 * sigma**2))
        printed = float(mpmath.log(total) / (a - 1))
    cost = rdp_without_replacement(a, n, m, lambda x: rdp_gaussian(x, sigma))
    assert cost == pytest.approx(min(printed, rdp_gaussian(a, sigma)), rel=1e-12)


@pytest.mark.parametrize("m", [1, 30, 500])
@pytest.mark.parametrize("loss", [1e-3, 0.5, 2.0])
def test_small_pure_releases_do_not_need_the_general_bound(loss, m):
    """Events skip Theorem B.4 for them, as it is never smaller."""
    grid = np.array([2.0, 3.0, 10.0, 64.0, 512.0])
    tight = rdp_pure_without_replacement(grid, 1000, m, loss)
    general = rdp_without_replacement(grid, 1000, m, lambda a: rdp_laplace(a, loss), loss)
    assert (tight <= general).all()


def test_without_replacement_agrees_with_dp_accounting():
    import dp_accounting
    from dp_accounting.rdp import RdpAccountant

    n, m = 1000, 10
    for sigma in (1.0, 4.0):
        peer = RdpAccountant([2, 8, 32], dp_accounting.NeighboringRelation.REPLACE_ONE)
        event = dp_accounting.SampledWithoutReplacementDpEvent(
            n, m, dp_accounting.GaussianDpEvent(sigma)
        )
        peer.compose(event, 1)
        # Trap: its noise multiplier under replace-one is std over the replace-one sensitivity.
        ours = rdp_without_replacement([2, 8, 32], n, m, lambda x, s=sigma: rdp_gaussian(x, s))
        assert np.all(peer._rdp <= ours * (1 + 1e-9))  # it has a tighter sum for Gaussian noise
        assert ours[0] == pytest.approx(peer._rdp[0], rel=1e-6)


def test_accesses_to_a_shared_batch_must_be_amplified_together():
    """Errata 002-4: each access amplified alone is less than the exact joint cost."""
    q, rho, loss, a = 0.01, 1.0, 2.0, 8

    def gradient(x):
        return rho * x

    def search(x):
        return rdp_pure(x, loss)

    joint = rdp_poisson(a, q, lambda x: gradient(x) + search(x), exact_pair=True)
    printed = rdp_poisson(a, q, gradient) + rdp_poisson(a, q, search)
    assert printed == pytest.approx(2.897, abs=5e-4)
    assert joint == pytest.approx(4.719, abs=5e-4)


# Conversion


@given(a=orders, cost=st.floats(0.0, 100.0), delta=st.floats(1e-15, 0.5))
def test_conversion_is_the_tight_formula(a, cost, delta):
    epsilon, order = rdp_to_epsilon([a], [cost], delta)
    expected = cost + math.log1p(-1 / a) - (math.log(delta) + math.log(a)) / (a - 1)
    assert epsilon == pytest.approx(max(0.0, expected), rel=1e-12, abs=1e-12) and order == a
    assert epsilon <= cost + math.log(1 / delta) / (a - 1)  # Mironov's conversion


def test_conversion_takes_the_best_order_and_knows_the_ends():
    grid = np.arange(2, 100)
    epsilon, order = rdp_to_epsilon(grid, rdp_gaussian(grid, 4.0), 1e-5)
    alone = [rdp_to_epsilon([a], [rdp_gaussian(a, 4.0)], 1e-5)[0] for a in grid]
    assert epsilon == min(alone) and alone[int(order) - 2] == epsilon
    assert rdp_to_epsilon([2, 3], [1.0, 1.0], 0.0)[0] == math.inf
    assert rdp_to_epsilon([2, np.inf], [1.0, 1.5], 0.0) == (1.5, math.inf)
    assert rdp_to_epsilon([2], [np.inf], 0.1)[0] == math.inf


@pytest.mark.parametrize(
    "call",
    [
        lambda: rdp_gaussian(1.0, 1.0),
        lambda: rdp_gaussian(2.0, 0.0),
        lambda: rdp_laplace(2.0, -1.0),
        lambda: rdp_pure(0.5, 1.0),
        lambda: rdp_poisson_gaussian(2.0, 1.5, 1.0),
        lambda: rdp_poisson_gaussian(2.0, 0.5, -1.0),
        lambda: rdp_poisson(1.0, 0.5, lambda a: a),
        lambda: rdp_without_replacement(2, 5, 6, lambda a: a),
        lambda: rdp_to_epsilon([2, 3], [1.0], 1e-5),
        lambda: rdp_to_epsilon([2], [-1.0], 1e-5),
        lambda: rdp_to_epsilon([2], [1.0], 1.0),
    ],
)
def test_bad_arguments_raise(call):
    with pytest.raises(ValueError, match="must"):
        call()


def test_a_cost_that_is_no_function_is_named():
    with pytest.raises(TypeError, match="base_rdp must be a function of the orders"):
        rdp_poisson(2.0, 0.5, 1.0)


@pytest.mark.parametrize("multiplier", [1e-5, 1e-3, 0.03])
def test_tiny_noise_at_real_orders_costs_no_memory(multiplier):
    """The integral would need order/multiplier**2 cells; sampling never increases the cost."""
    orders = np.array([1.001, 2.5, 1000.5, 5000.0])
    cost = rdp_poisson_gaussian(orders, 0.01, multiplier)
    plain = rdp_gaussian(orders, multiplier)
    assert (cost <= plain).all()
    # Sampling at rate .01 saves at most order ln(100)/(order - 1).
    assert (cost >= plain + orders * math.log(0.01) / (orders - 1.0) - 1e-9 * plain).all()


@pytest.mark.parametrize("amplified", [rdp_poisson, rdp_without_replacement])
def test_orders_asked_for_together_cost_what_they_cost_alone(amplified):
    """Also with order infinity among them."""
    size = (0.1,) if amplified is rdp_poisson else (1000, 100)
    orders = np.array([2.0, math.inf, 8.0])
    together = amplified(orders, *size, lambda a: rdp_pure(a, 0.5))
    alone = [float(amplified(order, *size, lambda a: rdp_pure(a, 0.5))) for order in orders]
    np.testing.assert_array_equal(together, alone)


def test_several_small_releases_on_a_batch_cost_less_than_their_sum():
    """Both curves hold; the general one is the smaller, and was tried for one release alone."""
    orders = np.array([2.0, 8.0, 32.0])
    for event, pure in (
        ([Laplace(5.0, 1.0)] * 4, 0.8),
        ([Repeated(Laplace(5.0, 1.0), 4)], 0.8),
    ):
        batch = Sampled(WithoutReplacement(10), event, n=100)
        costs = batch.rdp_cost(orders)
        plain = rdp_pure_without_replacement(orders, 100, 10, pure)
        assert (costs <= plain).all() and costs[0] < 0.8 * plain[0]


@pytest.mark.filterwarnings("error")
@given(
    last=st.integers(2, 40),
    rate=st.sampled_from([1, 3, 9]),
    slope=st.floats(0.01, 2.0),
    order=st.floats(1.1, 60.0) | st.integers(2, 60),
)
def test_an_infinite_cost_of_the_batch_leaves_the_orders_below_it_finite(last, rate, slope, order):
    """An infinite term times a binomial coefficient of 0 used to make the cost NaN."""

    def whole(orders):
        return slope * np.asarray(orders)

    def cut(orders):
        return np.where(np.asarray(orders) <= last, whole(orders), np.inf)

    orders = [order, 50.0, 60.0, math.inf]  # those above are summed together with it
    for sampled in (
        lambda base: rdp_poisson(orders, rate / 10, base),
        lambda base: rdp_without_replacement(orders, 10, rate, base),
    ):
        costs = sampled(cut)
        assert np.isinf(costs[1:]).all()
        if order <= last:
            assert costs[0] == pytest.approx(sampled(whole)[0], rel=1e-9, abs=1e-300)
        else:
            assert np.isinf(costs[0])


@pytest.mark.filterwarnings("ignore:invalid value")
def test_a_cost_of_the_batch_that_is_no_number_is_not_left_out():
    for sampled in (
        lambda base: rdp_poisson([5.0], 0.1, base),
        lambda base: rdp_without_replacement([5.0], 10, 3, base),
    ):
        assert np.isnan(sampled(lambda orders: np.where(orders == 3.0, math.nan, orders))).all()


def test_costs_at_very_many_orders_are_chords_just_above():
    base = lambda a: rdp_laplace(a, 0.5)  # noqa: E731
    whole = np.arange(2.0, 8000.0)
    for cost in (
        lambda a: rdp_poisson(a, 0.1, base),
        lambda a: rdp_without_replacement(a, 100, 10, base),
    ):
        exact = np.concatenate([cost(part) for part in np.array_split(whole, 16)])
        found = cost(whole)
        assert (found >= exact * (1.0 - 1e-12)).all() and (found <= exact * (1.0 + 1e-3)).all()


def test_repetitions_within_a_batch_cost_what_their_releases_do():
    """Those of an exact pair have one too: without it their cost would have the factor 3."""
    orders, once = np.array([2.0, 8.0, 64.0]), Laplace(3.0, 1.0)
    costs = [
        Sampled(Poisson(0.1), batch).rdp_cost(orders) for batch in ([Repeated(once, 3)], [once] * 3)
    ]
    np.testing.assert_allclose(*costs, rtol=1e-12)


def test_batches_of_batches_fit_in_memory():
    """Every order of the outer sum asked for one of the inner: a table of 131,072 squared."""
    inner = BestOf([Sampled(Poisson(0.1), [Laplace(5.0, 1.0)])], Repeats(5.0))
    run = Sampled(Poisson(0.1), [inner])
    found = epsilon(run, 1e-6, "add_or_remove_one", "rdp")
    assert 0.0 < found <= 1.001 * amplify(inner.pure_cost(), 0.1)
