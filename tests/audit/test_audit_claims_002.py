"""Helpers of the claims on Chen and Lee (2020), and faults that the claims must detect."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from dpanalysis import audit, privacy
from dpanalysis.papers.line_search import batch as line_search_batch
from dpanalysis.papers.line_search import search as line_search
from dpanalysis.privacy.accounting.rdp import rdp_pure_poisson
from dpanalysis.privacy.budget import Filter
from dpanalysis.privacy.events import Sampled


@given(order=st.integers(2, 40), rate=st.floats(1e-4, 0.99), rho=st.floats(1e-6, 0.3))
def test_lemma_4_term_by_term(order, rate, rho):
    total = (1 - rate) ** (order - 1) * (order * rate - rate + 1)
    for j in range(2, order + 1):
        term = math.comb(order, j) * rate**j * (1 - rate) ** (order - j)
        total += term * math.exp((j - 1) * j * rho) * (1 if j == 2 else 3)
    ours = line_search_batch.lemma_4(order, rate, lambda a: a * rho)
    assert ours == pytest.approx(math.log(total) / (order - 1), rel=1e-9, abs=1e-14)


@pytest.mark.parametrize("order", [2, 8, 32])
@pytest.mark.parametrize("rate", [0.01, 0.5])
def test_sampled_cost_at_its_ends(order, rate):
    """The cost is that of the Gaussian release without outcomes, or of the outcomes alone."""
    nothing = np.ones(1), np.ones(1)
    for std in (0.7, 5.0):
        cost = line_search_batch.sampled_cost(nothing, rate, std, order)
        assert cost == pytest.approx(privacy.rdp_poisson_gaussian(order, rate, std), rel=1e-10)
    coin = line_search_batch.randomized_response(1.5)
    cost = line_search_batch.sampled_cost(coin, rate, math.inf, order)
    assert cost == pytest.approx(rdp_pure_poisson(order, rate, 1.5), rel=1e-10)


def test_a_sum_over_a_poisson_sample_is_a_mixture():
    laws = line_search_batch.poisson_sums(np.zeros(2), 1.0, 0.3, 2.0)
    pair = audit.subsampled_gaussian(2.0, 1.0, 0.3)
    x = np.linspace(-9.0, 9.0, 50)
    for ours, theirs in zip(laws, pair):
        assert ours(x) == pytest.approx(theirs(x), rel=1e-12)
    moved = line_search_batch.poisson_sums(np.array([-1.0]), 2.0, 0.25, 1.0)[0]
    density = [0.5625, 0.1875, 0.1875, 0.0625] * stats.norm.pdf(x[:, None], [0.0, -1.0, 2.0, 1.0])
    assert np.exp(moved(x)) == pytest.approx(density.sum(axis=1), rel=1e-12)


def test_the_noise_of_a_mean_tells_the_size_of_its_batch():
    n, rate, d = 60, 0.2, 40
    grid = np.linspace(-3.0, 3.0, 401)
    law = line_search_batch.log_norm_law(n, rate, d, grid)
    assert law.sum() == pytest.approx(1.0, abs=1e-5)  # except for empty batches
    random = np.random.default_rng(1)
    sizes = random.binomial(n, rate, 200_000)
    drawn = np.log(np.sqrt(random.chisquare(d, 200_000)) / np.maximum(sizes, 1))
    assert grid @ law == pytest.approx(drawn.mean(), abs=6 * drawn.std() / 200_000**0.5 + 1e-4)


@pytest.mark.slow
@given(
    values=st.lists(st.integers(-5, 5), min_size=2, max_size=6), scale=st.sampled_from([0.5, 3.0])
)
def test_added_exponential_noise_by_quadrature(values, scale):
    v = np.array(values, dtype=float)
    law = line_search.added_exponential(v, scale)
    assert law.sum() == pytest.approx(1.0, abs=1e-12)
    t = np.linspace(v.min(), v.min() + 40 * scale, 40_001)
    survival = np.exp(-np.maximum(t[:, None] - v, 0.0) / scale)
    density = (t[:, None] >= v) * survival / scale
    for j in range(v.size):
        others = np.delete(survival, j, axis=1).prod(axis=1)
        assert law[j] == pytest.approx(integrate.trapezoid(density[:, j] * others, t), abs=2e-3)


def test_the_search_and_its_profile():
    levels, changes = line_search.profile(5, 0.0, 1.0, 0.5, 0.0, 2.0, 0.25, 3.0)
    assert changes.tolist() == [1.0, -1.0, 1.0, -1.0, 0.25]
    assert (np.diff(levels) > 0.0).all() and levels[-1] - levels[-2] > 3.0
    with_record, without = line_search.searches(levels, changes, "gaussian", 1.0, 2.0)
    expected = audit.above_threshold_distribution(levels + changes / 2, "gaussian", 1.0, 2.0)
    assert (with_record == expected).all() and without[0] < with_record[0]


def test_the_printed_bookkeeping_by_hand():
    # A gradient is charged .3, a search .25; the compared costs decide when the run stops.
    charged = 0.3, 0.25
    for compared, expected in (((0.5, 0.2), 0.45), ((0.4, 0.2), 0.45), ((0.4, 0.1), -0.1)):
        pairs = [tuple(np.array([each]) for each in pair) for pair in (compared, charged)]
        assert line_search_batch.algorithm_2(np.ones(1), *pairs) == pytest.approx(expected)
    # The run continues while one of two orders allows it, and charges both.
    pairs = [(np.array([0.4, 0.5]), np.array([0.2, 0.2])), (np.full(2, 0.3), np.full(2, 0.25))]
    both = line_search_batch.algorithm_2(np.array([1.0, 9.0]), *pairs)
    assert both[1] - both[0] == pytest.approx(8.0) and both[0] < -6.0


def test_what_the_factor_3_of_lemma_4_does_to_the_runs():
    """It covers the size of the batch (002-6), and causes the overspending (002-8)."""
    assert line_search_batch.adult_sizes(2) > 30.0
    assert line_search_batch.smallest_order(0.05) == 370
    assert line_search_batch.adult_sizes(370) < 0.02
    assert line_search_batch.overspent(0.05) > 1.0
    assert line_search_batch.overspent(0.05, amplified_too=True) < 0.7


def test_the_cost_of_hardly_any_loss_is_not_negative():
    """Nearly all searches halt at the first query: rounding made the moment less than 1."""
    levels = np.array([20.0, -12.90346118, -0.79710923, -14.74869555])
    after = np.array([0.30751671, 0.0, 0.69526692, 0.31685012])
    laws = line_search_batch.shared_search(levels, 0.6513202131274192, after, 4.0)
    joint = line_search_batch.product(laws, laws, laws)
    assert line_search_batch.sampled_cost(joint, 0.0010000000000000002, math.inf, 2) >= 0.0


def test_two_stages_and_the_adversary():
    first, then = line_search_batch.adversary((1.3, 1.9), (12.0, 128.0), 2.0, 1e-5)
    for law in line_search_batch.two_stages(first, then):
        assert law.size == 4 and law.sum() == pytest.approx(1.0, abs=1e-12)
    for order, after, budget in ((128.0, then[0], 1.9), (12.0, then[1], 1.3)):
        total = line_search_batch.cost(first, order) + line_search_batch.cost(after, order)
        assert total == pytest.approx(budget, abs=1e-9)


def half(function):
    return lambda *args, **kwargs: 0.5 * function(*args, **kwargs)


def separately(order, rate, events):
    """Amplify every access to a batch separately, as Algorithm 2 does."""
    batches = [Sampled(privacy.Poisson(rate), [event]) for event in events]
    return math.fsum(float(batch.rdp_cost(order)) for batch in batches)


class Generous(Filter):
    """A filter that allows 1.5 times its limit."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.spendable = 1.5 * self.limit

    def can_spend(self, event):
        return self.spent + self.cost(event) <= self.spendable

    def spend(self, event):
        self._spent += self.cost(event)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "module", "attribute", "fault"),
    [
        ("002-1", line_search, "loss_changes", lambda before, after: 1.1 * (before - after)),
        ("002-2", line_search, "rdp_above_threshold", half(half(line_search.rdp_above_threshold))),
        ("002-2", line_search, "printed_above_threshold", lambda *at: 2.0),
        ("002-3", line_search, "rdp_above_threshold", half(line_search.rdp_above_threshold)),
        ("002-4", line_search_batch, "amplified", separately),
        ("002-5", line_search_batch, "amplified", separately),
        (
            "002-6",
            line_search_batch,
            "rdp_poisson_gaussian",
            half(line_search_batch.rdp_poisson_gaussian),
        ),
        ("002-7", line_search_batch, "Filter", Generous),
        ("002-8", line_search_batch, "Filter", Generous),
        ("002-10", line_search_batch, "rdp_poisson", half(line_search_batch.rdp_poisson)),
        ("002-11", line_search, "report_noisy_min_distribution",
         lambda values, noise, scale: line_search.added_exponential(values, scale)),
    ],
)  # fmt: skip
def test_a_fault_in_the_code_is_found(name, module, attribute, fault, monkeypatch, fails):
    monkeypatch.setattr(module, attribute, fault)
    assert fails(name)


def test_a_query_of_sums_is_found(monkeypatch, fails):
    honest = line_search.armijo
    monkeypatch.setattr(line_search, "armijo", lambda x, w, alpha, size: honest(x, w, alpha, 1))
    assert fails("002-9")
