"""Gaussian bounds: the event, its composition and its epsilon."""

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import stats

from dpanalysis import audit, privacy
from dpanalysis.privacy import gaussian_delta, gaussian_epsilon
from dpanalysis.privacy.accounting.events import counted_gaussian_terms, unrolled
from dpanalysis.privacy.accounting.zcdp import gaussian_sum_epsilon
from dpanalysis.privacy.events import Gaussian, GaussianBound, Pure, Repeated, Sampled


def gaussian_terms(events):
    return counted_gaussian_terms(map(unrolled, events))


MIXED = GaussianBound(2.0, (0.5, 3.0), (0.75, 0.25))


def mixture(shifts, weights, std):
    """Density of noise plus a random shift with the given weights."""

    def logpdf(x):
        parts = [np.log(w) + stats.norm.logpdf(x, s, std) for s, w in zip(shifts, weights)]
        return np.logaddexp.reduce(parts, axis=0)

    return audit.Density(logpdf, tuple(shifts))


@pytest.mark.parametrize("order", [1.5, 2.0, 8.0])
def test_a_random_shift_costs_no_more_and_its_coin_makes_it_exact(order):
    """The divergences are below the bound; if the coin is also released, they attain it."""
    cost = float(MIXED.rdp_cost(order))
    shifted, still = mixture((0.5, 3.0), (0.75, 0.25), 2.0), mixture((0.0,), (1.0,), 2.0)
    for one, other in ((shifted, still), (still, shifted)):
        assert audit.renyi_divergence(one, other, order) < cost
    told = [
        w
        * math.exp(
            (order - 1.0) * audit.renyi_divergence(stats.norm(s, 2), stats.norm(0, 2), order)
        )
        for s, w in ((0.5, 0.75), (3.0, 0.25))
    ]
    assert cost == pytest.approx(math.log(sum(told)) / (order - 1.0), rel=1e-9)
    assert cost < float(Gaussian(2.0, 3.0).rdp_cost(order))


def test_the_profile_of_a_random_shift():
    shifted, still = mixture((0.5, 3.0), (0.75, 0.25), 2.0), mixture((0.0,), (1.0,), 2.0)
    for delta in (1e-2, 1e-6):
        epsilon = privacy.epsilon(MIXED, delta, "replace_one")
        told = 0.75 * gaussian_delta(4.0, epsilon) + 0.25 * gaussian_delta(2.0 / 3.0, epsilon)
        assert told == pytest.approx(delta, rel=1e-8)
        assert audit.hockey_stick(shifted, still, epsilon) < delta
        assert audit.hockey_stick(still, shifted, epsilon) < delta
        assert epsilon < privacy.epsilon(MIXED, delta, "replace_one", "rdp")


def test_one_term_is_gaussian_noise_shifted_and_weighted():
    event, delta = GaussianBound(2.0, (3.0,), (4.0,), 0.3), 1e-7
    epsilon = privacy.epsilon(event, delta, "add_or_remove_one")
    assert epsilon == pytest.approx(0.3 + gaussian_epsilon(2.0 / 3.0, delta / 4.0), rel=1e-12)
    order = 5.0
    expected = 0.3 + order * 1.5**2 / 2.0 + math.log(4.0) / 4.0
    assert float(event.rdp_cost(order)) == pytest.approx(expected, rel=1e-12)
    plain = GaussianBound(2.0, (3.0,), (1.0,))
    np.testing.assert_allclose(plain.rdp_cost([1.5, 9.0]), Gaussian(2.0, 3.0).rdp_cost([1.5, 9.0]))
    assert plain.zcdp_cost() == Gaussian(2.0, 3.0).zcdp_cost() and MIXED.zcdp_cost() == 1.125
    assert math.isinf(event.zcdp_cost()) and math.isinf(event.pure_cost())
    assert math.isinf(GaussianBound(2.0, (3.0,), (1.0,), 0.3).zcdp_cost())
    assert np.isinf(event.rdp_cost(math.inf))


def test_composition_multiplies_the_measures():
    """Two random shifts with released coins are four pairs of Gaussians; other noise adds to mu."""
    events = [Repeated(MIXED, 2), GaussianBound(1.0, (0.4,), (2.0,), 0.1), Gaussian(1.0, 0.3)]
    mus, weights, offset = gaussian_terms(events)
    small, large = 0.25**2, 1.5**2
    rest = 0.4**2 + 0.3**2
    expected = np.sqrt(np.array([2 * small, small + large, small + large, 2 * large]) + rest)
    np.testing.assert_allclose(np.sort(mus), np.sort(expected))
    np.testing.assert_allclose(np.sort(weights), 2 * np.array([1, 3, 3, 9]) / 16)
    assert offset == pytest.approx(0.1)
    epsilon = privacy.epsilon(events, 1e-5, "replace_one")
    delta = weights @ gaussian_delta(1.0 / mus, epsilon - 0.1)
    assert delta == pytest.approx(1e-5, rel=1e-8)
    batch = Sampled(privacy.Full(), events)
    assert privacy.epsilon(batch, 1e-5, "replace_one") == epsilon


def test_other_company_is_accounted_by_renyi_costs():
    assert gaussian_terms([MIXED, Pure(0.1)]) is None
    assert gaussian_terms([Repeated(MIXED, 100)]) is None  # 2**100 terms
    for events in ([MIXED, Pure(0.1)], [Repeated(MIXED, 100)]):
        tight = privacy.epsilon(events, 1e-5, "replace_one")
        assert tight == privacy.epsilon(events, 1e-5, "replace_one", "rdp") < math.inf


@pytest.mark.parametrize(("weights", "count"), [((4.0,), 600), ((100.0,), 160), ((1e40, 1e40), 9)])
def test_weights_that_overflow_are_accounted_by_renyi_costs(weights, count):
    event = Repeated(GaussianBound(1000.0, (1.0,) * len(weights), weights), count)
    assert gaussian_terms([event]) is None
    by_rdp = privacy.epsilon(event, 1e-5, "replace_one", "rdp")
    assert privacy.epsilon(event, 1e-5, "replace_one") == by_rdp < 1.1
    assert privacy.privacy_curve(event, "replace_one").epsilon(1e-5) >= by_rdp


def test_the_epsilon_of_sums():
    for delta in (0.2, 1e-3, 1e-12):
        assert gaussian_sum_epsilon([0.7], [1.0], delta) == gaussian_epsilon(1 / 0.7, delta)
        alike = gaussian_sum_epsilon([0.7, 0.7], [0.5, 0.5], delta)
        assert alike == pytest.approx(gaussian_epsilon(1 / 0.7, delta), rel=1e-9)
    assert gaussian_sum_epsilon([0.0, 0.0], [0.5, 0.5], 0.1) == 0.0
    assert gaussian_sum_epsilon([0.01, 0.0], [0.5, 0.5], 0.1) == 0.0
    total = float(gaussian_delta(0.5, 0.0) + gaussian_delta(10.0, 0.0))  # shifts of 2 and .1
    epsilons = [gaussian_sum_epsilon([0.1, 2.0], [1.0, 1.0], t * total) for t in (0.99, 1.01)]
    assert epsilons[0] > 0.0 == epsilons[1]
    assert math.isinf(gaussian_sum_epsilon([1.0, 0.0], [0.5, 0.5], 0.0))
    assert privacy.epsilon([], 0.0, "replace_one") == 0.0


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ((0.0, (1.0,), (1.0,)), "std"),
        ((1.0, (), ()), "sensitivities"),
        ((1.0, (-1.0,), (1.0,)), "sensitivities"),
        ((1.0, (1.0,), (1.0, 2.0)), "weights"),
        ((1.0, (1.0,), (0.9,)), "weights"),
        ((1.0, (1.0, 2.0), (1.0, 0.0)), "weights"),
        ((1.0, (1.0,), (1.0,), -0.1), "offset"),
        ((1.0, (math.nan,), (1.0,)), "sensitivities"),
    ],
)
def test_refuses(arguments, match):
    with pytest.raises(ValueError, match=match):
        GaussianBound(*arguments)


@given(
    count=st.integers(1, 4),
    weights=st.lists(st.floats(1.0, 3.0), min_size=1, max_size=2),
    offset=st.floats(0.0, 1.0),
)
def test_a_repeated_bound_is_the_bound_so_many_times(count, weights, offset):
    one = GaussianBound(1.5, tuple(np.arange(1.0, len(weights) + 1.0)), tuple(weights), offset)
    once = gaussian_terms([Repeated(one, count), Gaussian(1.0, 2.0)])
    listed = gaussian_terms([*[one] * count, Gaussian(1.0, 2.0)])
    for found, expected in zip(once, listed, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-13)


@example(mu=0.07186608327665808, delta=0.028252082167074782)  # above zero by rounding there
@given(mu=st.floats(1e-3, 20.0), delta=st.floats(1e-12, 0.1))
def test_terms_that_are_alike_are_one_term(mu, delta):
    """Then the bracket of the root search has no sign change, except by rounding."""
    one = gaussian_epsilon(1.0 / mu, delta)
    assert gaussian_sum_epsilon([mu] * 4, [0.25] * 4, delta) == pytest.approx(one, rel=1e-9)
