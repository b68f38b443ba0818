"""Helpers of the claims on Chen and Lee (2020), and faults that the claims must detect."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, special, stats

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


@pytest.mark.parametrize("level", [-4.0, 0.0, 4.0])
def test_the_last_line_of_the_proof_of_theorem_2_by_quadrature(level):
    z, y = np.linspace(-60.0, 60.0, 6001), np.linspace(-200.0, 200.0, 80_001)

    def shifted(x, scale, move):
        density = stats.laplace(scale=scale).pdf
        return density(x - move) ** 2 / density(x)

    threshold, query = shifted(z, 2.0, 1.0), shifted(y, 4.0, 2.0)
    beyond = integrate.cumulative_trapezoid(query[::-1], -y[::-1], initial=0.0)[::-1]
    above = np.interp(z - level, y, beyond)
    stays = stats.laplace.cdf(z - level, scale=4.0)
    indices = sum(stays**k * above for k in range(20)) + stays**20
    total = integrate.trapezoid(threshold * indices, z)
    last_line = integrate.trapezoid(threshold, z) * integrate.trapezoid(query, y)
    ours = line_search.proof_of_theorem_2(2.0, level, 20)
    assert ours == pytest.approx(total / last_line, rel=1e-3)


@pytest.mark.parametrize("depth", [1.0, 2.5])
def test_many_tries_is_a_function_of_the_index(depth):
    changes = np.tile([0.25, -0.25], 20)
    laws = [
        audit.above_threshold_distribution(
            sign * changes - depth * line_search.SCALES[1], "gaussian", *line_search.SCALES
        )
        for sign in (1.0, -1.0)
    ]
    coarse = [np.array([p[:-1:2].sum(), p[1:-1:2].sum(), p[-1]]) for p in laws]
    exact = max(audit.renyi_divergence(*pair, 2.0) for pair in (coarse, coarse[::-1]))
    assert line_search.many_tries(depth, 40) == pytest.approx(exact, rel=1e-6)


def test_one_iteration_by_quadrature():
    """Both releases, from one batch: q = .01, order 8, Gaussian noise of standard deviation .7."""
    x = np.linspace(-12.0, 20.0, 20_001)
    moment = 0.0
    for p, q in zip(*line_search_batch.one_search(20, 2.0)):
        without = q * stats.norm.pdf(x, 0.0, 0.5**0.5)
        mixture = 0.99 * without + 0.01 * p * stats.norm.pdf(x, 1.0, 0.5**0.5)
        moment += integrate.trapezoid(np.exp(8 * np.log(mixture) - 7 * np.log(without)), x)
    exact, charged = line_search_batch.one_iteration()
    assert exact == pytest.approx(math.log(moment) / 7, rel=1e-9) and charged < exact


def test_an_unlimited_search_of_no_decrease_by_simulation():
    """It takes 4 ln 2 = 2.8 queries on average: 002-19."""
    random = np.random.default_rng(3)
    threshold, count = random.laplace(0.0, 2.0, 20_000), np.zeros(20_000)
    runs = np.arange(20_000)
    while runs.size:
        count[runs] += 1
        runs = runs[random.laplace(0.0, 4.0, runs.size) < threshold[runs]]
    assert (count > 20).mean() == pytest.approx(0.008658, abs=0.003)
    assert np.minimum(count, 100).mean() == pytest.approx(4 * math.log(2), abs=0.15)


@pytest.mark.parametrize("epsilon", [0.2, 0.4, 1.6])
def test_the_sum_of_deltas_by_the_worst_loss(epsilon):
    """Budget r at order a, loss x: delta is at most (1 - e^(epsilon - x)) e^((a - 1)(r - x))."""
    orders = np.arange(line_search_batch.smallest_order(epsilon), 501)[:, None]
    budget = epsilon + math.log(1e-8) / (orders - 1)
    x = epsilon + np.geomspace(1e-5, 5.0, 20_001)
    deltas = -np.expm1(epsilon - x) * np.exp((orders - 1) * (budget - x))
    ours = line_search_batch.sum_of_deltas(epsilon)
    assert ours == pytest.approx(deltas.max(axis=1).sum() / 1e-8, rel=1e-3)


def test_the_size_of_a_batch_and_its_sum():
    """To second order the costs of both add up, and they are more than that of the scale."""
    for order in (370, 500):
        cost = 0.5 * order * 0.1**2 * (1.0 / (48_842 * 0.09) + 0.0005**2)
        charge = line_search_batch.lemma_4(order, 0.1, lambda a: 0.5 * a * 0.0005**2)
        both = line_search_batch.size_and_sum(order, 0.05)
        assert both == pytest.approx(cost / charge, rel=0.02)
        assert both > line_search_batch.adult_sizes(order)


def test_the_cost_of_a_search_is_the_printed_one():
    for order in (2.0, 50.0):
        printed = line_search.printed_above_threshold(order, "laplace", 2.0 / 0.3, 4.0 / 0.3)
        assert line_search_batch.search_curve(0.3, order) == pytest.approx(printed, rel=1e-12)


@pytest.mark.parametrize(("epsilon", "printed"), [(0.05, 2.97), (0.2, 36.9), (0.4, 81.3)])
def test_what_a_budget_covers_by_hand(epsilon, printed):
    """To 500, the order 500 is the best one by Lemma 4, and one of many without sampling."""
    part, q = epsilon / 100, 0.1
    left = epsilon - math.log(1e8) / 499
    growth = [0.5 * 500 * part**2, 2 * float(privacy.rdp_laplace(500, 0.5 * part))]
    below = stats.binom.cdf(2, 500, q)  # at so small costs, only the factor 3 counts
    amplified = math.log(below + 3 * (1 - below)) / 499
    ours = line_search_batch.affordable_as_printed(q, epsilon)
    assert ours == pytest.approx(printed, rel=2e-3)
    assert left / (2 * amplified + sum(growth)) < ours < left / (2 * amplified)
    plain = line_search_batch.affordable_as_printed(1.0, epsilon)
    assert plain >= left / sum(growth) and plain > ours


@pytest.mark.parametrize("epsilon", [0.05, 0.2, 0.4, 1.6])
def test_larger_orders_make_lemma_4_save(epsilon):
    """002-17 with all binomial terms at once; orders to 500 are an example in 4.3."""

    def covered(order, q):
        charge = 0.0
        for curve in (lambda a: a * rho, lambda a: 2 * privacy.rdp_laplace(a, 0.5 * part)):
            j = np.arange(2.0, order + 1)
            terms = stats.binom.logpmf(j, order, q) + (j - 1) * curve(j) + np.log(3) * (j > 2)
            start = stats.binom.logcdf(1, order, q)
            total = special.logsumexp([start, *terms]) / (order - 1)
            charge += total if q < 1 else curve(order)
        return (epsilon - math.log(1e8) / (order - 1)) / charge

    part = epsilon / 100
    rho = part**2 / 2
    high = round(1800 / epsilon)
    assert line_search_batch.affordable_as_printed(0.1, epsilon, [high]) == pytest.approx(
        covered(high, 0.1), rel=1e-6
    )
    best = max(covered(order, 1.0) for order in range(24 if epsilon > 1 else 100, 1500))
    assert 2.1 < covered(high, 0.1) / best < 2.3


@pytest.mark.parametrize("order", [2, 500, 10_000])
def test_the_scale_reveals_the_size_of_the_batch(order):
    """002-6 by quadrature over the length of the noise/|B|, not over its logarithm."""
    n, q, d = 48_842, 0.1, 124
    sizes, length = np.arange(4000, 5800), np.linspace(0.0006, 0.0048, 1501)
    chi = stats.chi.pdf(length[:, None] * sizes, d) * sizes
    p, p_without = (chi @ stats.binom.pmf(sizes, n + k, q) for k in (1, 0))
    cost = max(
        np.log(integrate.trapezoid(np.exp(order * np.log(a / b)) * b, length)) / (order - 1)
        for a, b in ((p, p_without), (p_without, p))
    )
    charge = line_search_batch.lemma_4(order, q, lambda a: a * 0.5 * 0.0005**2)
    assert line_search_batch.adult_sizes(order) == pytest.approx(cost / charge, rel=1e-3)


def half(function):
    return lambda *args, **kwargs: 0.5 * function(*args, **kwargs)


def less_noise(levels, noise, first, second):
    """Return the law of a search whose queries have half of the noise."""
    return audit.above_threshold_distribution(levels, noise, first, 0.5 * second)


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
        ("002-12", line_search, "rdp_pure", half(line_search.rdp_pure)),
        ("002-13", line_search, "rdp_above_threshold", lambda order, *at: 2.0 * order),
        ("002-14", line_search_batch, "affordable", line_search_batch.affordable_as_printed),
        ("002-15", line_search, "search_slack", half(line_search.search_slack)),
        ("002-16", line_search, "above_threshold_distribution", less_noise),
        ("002-17", line_search_batch, "lemma_4", lambda order, rate, cost: rate**2 * cost(order)),
        ("002-17", line_search_batch, "affordable", line_search_batch.affordable_as_printed),
        ("002-18", line_search, "loss_of_failure", half(line_search.loss_of_failure)),
        ("002-19", line_search, "above_threshold_distribution", less_noise),
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
