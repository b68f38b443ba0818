"""The best of a random number of runs: its cost against enumerated laws."""

import math
import types

import dp_accounting as dp
import mpmath as mp
import numpy as np
import pytest
from dp_accounting.dp_event import RepeatAndSelectDpEvent
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats

from dpanalysis.privacy import Filter, Poisson, Repeats, epsilon
from dpanalysis.privacy.accounting.relations import Budget
from dpanalysis.privacy.accounting.selection import _ORDERS
from dpanalysis.privacy.events import BestOf, Event, Gaussian, Pure, Sampled

SHAPES = [0.0, 0.3, 1.0, 2.5, math.inf]
ORDERS = np.array([1.01, 1.5, 2.0, 3.0, 7.5, 20.0, 100.0])


def renyi(p, q, orders):
    """Renyi divergences of two laws with the same outcomes, at high precision."""
    with mp.workdps(60):
        sums = [
            mp.fsum(mp.mpf(x) ** a * mp.mpf(y) ** (1 - a) for x, y in zip(p, q)) for a in orders
        ]
        return np.array([float(mp.log(s) / (a - 1)) for s, a in zip(sums, orders)])


class Known(Event):
    """An event with two given laws: its costs are their exact divergences."""

    def __init__(self, p, q):
        self.p, self.q = p, q

    def pure_cost(self):
        return float(np.abs(np.log(self.p / self.q)).max())

    def rdp_cost(self, orders):
        a = np.asarray(orders, dtype=np.float64)
        logs = np.log(self.p / self.q)
        both = []
        for law, sign in ((self.q, 1.0), (self.p, -1.0)):
            with np.errstate(over="ignore"):
                excess = law @ np.expm1(np.multiply.outer(a, sign * logs)).T
            both.append(np.where(excess < 1e200, np.log1p(excess) / (a - 1.0), np.inf))
        return np.minimum(np.maximum(*both), self.pure_cost())


def test_a_mean_next_to_1_has_a_law():
    """No gamma below 1 in double precision gave that mean, and the search for one raised."""
    for mean, shape in ((1.0 + 1e-14, 1820.0), (math.nextafter(1.0, 2.0), 106.0)):
        repeats = Repeats(mean, shape)
        assert repeats.gamma == 1.0 and repeats.below(0.3) == 0.3
        assert BestOf([Pure(1.0)], repeats).rdp_cost([2.0])[0] >= Pure(1.0).rdp_cost([2.0])[0]


def law_of_the_best(law, repeats):
    """Probabilities of the best outcome, worst to best; the first entry is that of no run."""
    below = repeats.below(np.concatenate([[0.0], np.minimum(np.cumsum(law), 1.0)]))
    below[-1] = 1.0
    return np.concatenate([below[:1], np.diff(below)])


LAWS = st.lists(st.floats(-3.0, 3.0), min_size=2, max_size=5).flatmap(
    lambda logs: st.tuples(
        st.just(logs), st.lists(st.floats(-1.0, 1.0), min_size=len(logs), max_size=len(logs))
    )
)


@given(LAWS, st.sampled_from(SHAPES), st.floats(1.0, 60.0))
@settings(max_examples=60, deadline=None)
def test_no_law_of_the_best_costs_more_than_is_charged(logs, shape, mean):
    p = np.exp(logs[0]) / np.exp(logs[0]).sum()
    q = p * np.exp(logs[1])
    q /= q.sum()
    repeats = Repeats(mean, shape)
    first, second = (law_of_the_best(law, repeats) for law in (p, q))
    there = first > 0.0
    first, second = first[there], second[there]
    exact = np.maximum(renyi(first, second, ORDERS), renyi(second, first, ORDERS))
    for base in (Known(p, q), Pure(Known(p, q).pure_cost())):
        event = BestOf([base], repeats)
        assert (exact <= event.rdp_cost(ORDERS) * (1 + 1e-9) + 1e-10).all()
        loss = float(np.abs(np.log(first / second)).max())
        assert loss <= event.pure_cost() * (1 + 1e-9) + 1e-10


@pytest.mark.parametrize("shape", [0.0, 1.0, 2.5])
def test_the_pure_cost_is_nearly_attained(shape):
    """A rare outcome is more likely on one data set, and better outcomes are less likely."""
    loss, tail, rare = 0.5, 1e-3, 1e-7
    low = np.array([1.0 - tail - rare, rare, tail])
    high = np.array([0.0, rare * math.exp(loss), tail * math.exp(-loss)])
    high[0] = 1.0 - high.sum()
    repeats = Repeats(1e6, shape)
    first, second = (law_of_the_best(law, repeats)[2] for law in (high, low))
    assert math.log(first / second) > 0.97 * BestOf([Pure(loss)], repeats).pure_cost()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("mean", [1.0, 1.5, 40.0])
def test_a_count_has_the_mean_and_the_law_stated(shape, mean):
    """Chi-square at p = 1e-6, seeds fixed; 15 cases."""
    repeats = Repeats(mean, shape)
    random = np.random.default_rng(3)
    counts = np.array([repeats.draw(random) for _ in range(200)])
    with mp.workdps(50):
        k, chance = repeats._first(mp)
        chances = [0.0] * k
        while len(chances) < 60 or 1 - sum(chances) > 1e-12:
            chances.append(float(chance))
            chance *= repeats._ratio(mp, len(chances) - 1)
    chances = np.array(chances)
    assert chances.sum() == pytest.approx(1.0, abs=1e-11)
    assert chances @ np.arange(len(chances)) == pytest.approx(mean, rel=1e-7)
    for x in (0.0, 0.3, 0.9, 1.0):
        powers = x ** np.arange(len(chances))
        assert repeats.below(x) == pytest.approx(chances @ powers, abs=1e-11)
    edges = np.unique(np.searchsorted(np.cumsum(chances), np.linspace(0.1, 0.9, 9)))
    seen = np.bincount(np.searchsorted(edges, counts), minlength=len(edges) + 1)
    expected = np.diff(np.concatenate([[0.0], np.cumsum(chances)[edges], [chances.sum()]]))
    if len(edges) > 1:
        assert stats.chisquare(seen, 200 * expected / expected.sum()).pvalue > 1e-6
    else:
        assert seen[0] >= 100


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("mean", [1.5, 20.0])
def test_the_curve_is_that_of_dp_accounting(shape, mean):
    orders = _ORDERS[_ORDERS < 2000.0]
    accountant = RdpAccountant(orders.tolist())
    run = dp.GaussianDpEvent(4.0)
    accountant.compose(RepeatAndSelectDpEvent(run, mean, shape))
    ours = BestOf([Gaussian(4.0, 1.0)], Repeats(mean, shape)).rdp_cost(orders)
    theirs = np.array(accountant._rdp)
    if shape == math.inf:
        # dp-accounting does not use that divergences never decrease with the order.
        theirs = np.minimum.accumulate(theirs[::-1])[::-1]
    assert (ours <= theirs * (1 + 1e-9)).all()
    assert ours == pytest.approx(theirs, rel=1e-2)


def test_one_run_costs_one_run():
    run = Gaussian(3.0, 1.0)
    event = BestOf([run], Repeats(1.0))
    assert event.rdp_cost(ORDERS) == pytest.approx(run.rdp_cost(ORDERS))
    assert BestOf([Pure(0.4)], Repeats(1.0)).pure_cost() == 0.4
    # Under the Poisson law there are 0 or several runs, if 1 on average.
    assert BestOf([Pure(0.4)], Repeats(1.0, math.inf)).pure_cost() == math.inf


def test_the_cost_of_a_score_is_part_of_a_run():
    both = BestOf([Pure(0.2), Pure(0.3)], Repeats(5.0))
    one = BestOf([Pure(0.5)], Repeats(5.0))
    assert both.pure_cost() == pytest.approx(1.5) == one.pure_cost()
    assert (both.rdp_cost(ORDERS) <= one.rdp_cost(ORDERS) * 1.0001 + 1e-12).all()


def test_events_are_accounted_as_others_are():
    step = Sampled(Poisson(0.01), [Gaussian(1.0, 1.0)])
    for events in ([step], [Pure(1.0), step], [step, Pure(1.0)]):
        assert BestOf(events, Repeats(5.0)).relations == ("add_or_remove_one",)
    known = Known(np.array([0.4, 0.6]), np.array([0.6, 0.4]))
    assert not known.immutable and not BestOf([step, known], Repeats(5.0)).immutable
    assert BestOf([step, Pure(1.0)], Repeats(5.0)).immutable
    pair = [BestOf([Pure(0.1)], Repeats(5.0)), Pure(0.5)]
    assert epsilon(pair, 0.0, "replace_one") == pytest.approx(0.8)
    guard = Filter(Budget(1.0))
    guard.spend(pair[0])
    assert guard.remaining == pytest.approx(0.7)
    assert math.isinf(BestOf([Pure(0.1)], Repeats(5.0, math.inf)).pure_cost())
    assert math.isfinite(epsilon(BestOf([Gaussian(5.0, 1.0)], Repeats(9.0)), 1e-6, "replace_one"))


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        (lambda: Repeats(0.5), ValueError, "mean"),
        (lambda: Repeats(math.inf), ValueError, "mean"),
        (lambda: Repeats(2.0, -1.0), ValueError, "shape"),
        (lambda: Repeats(2.0, math.nan), ValueError, "shape"),
        (lambda: BestOf([], Repeats(2.0)), ValueError, "at least one"),
        (lambda: BestOf(Pure(1.0), Repeats(2.0)), TypeError, "sequence"),
        (lambda: BestOf([1.0], Repeats(2.0)), TypeError, "must be events"),
        (lambda: BestOf([Pure(1.0)], 3), TypeError, "repeats"),
    ],
)
def test_what_is_outside_its_range_raises(wrong, error, message):
    with pytest.raises(error, match=message):
        wrong()


@pytest.mark.parametrize(("above", "count"), [(2**40, 2), (-(2**40), 1)])
def test_a_count_is_drawn_with_the_digits_that_its_law_promises(above, count):
    """A geometric law has mass gamma at 1; uniform numbers 2^-152 off gamma must decide."""
    repeats = Repeats(2.0, 1.0)
    uniform = int(math.ldexp(repeats.gamma, 60)) * 2**132 + above
    words = [(uniform >> (32 * k)) & 0xFFFFFFFF for k in range(6)]
    source = types.SimpleNamespace(integers=lambda low, high, size: np.array(words[:size]))
    assert repeats.draw(source) == count


def test_other_threads_do_not_change_the_precision_of_a_draw(monkeypatch):
    """The precision of mpmath's functions is that of the process; a draw leaves it alone, too."""
    first = Repeats._first

    def interrupted(self, *arguments):
        mp.mp.prec = 20  # as the end of another thread's draw, or a user, may set it here
        return first(self, *arguments)

    monkeypatch.setattr(Repeats, "_first", interrupted)
    with mp.workprec(53):
        test_a_count_is_drawn_with_the_digits_that_its_law_promises(2**40, 2)
        test_a_count_is_drawn_with_the_digits_that_its_law_promises(-(2**40), 1)
        assert mp.mp.prec == 20


@given(mean=st.floats(1.0, 50.0), cost=st.floats(0.0, 1e6))
def test_a_poisson_choice_adds_at_most_its_mean_count(mean, cost):
    """The mean is multiplied by a probability, whatever the cost of a run."""
    event = BestOf((Pure(1.0),), Repeats(mean, math.inf))
    more = event._extra_cost(ORDERS, np.full(ORDERS.size, cost))
    assert (more <= mean).all()
    assert cost < 1e4 or (more == mean).all()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("sigma", [1.0, 4.0])
def test_a_choice_adds_the_least_of_the_theorems_over_all_orders(shape, sigma):
    """Papernot and Steinke, Theorems 2 and 6, minimized by SciPy; the orders here are a grid."""
    a = 1.0 + np.geomspace(1e-2, 1e4, 1000)
    repeats, run = Repeats(20.0, shape), Gaussian(sigma, 1.0)
    more = BestOf([run], repeats)._extra_cost(a, run.rdp_cost(a))

    def least(value):
        found = optimize.minimize_scalar(lambda t: value(1.0 + math.exp(t)), bounds=(-4.6, 9.2))
        return found.fun

    for k in range(300, 1000, 99):
        if shape == math.inf:
            loss = math.log(1.0 + 1.0 / (a[k] - 1.0))

            def log_delta(b, loss=loss):
                rest = (b - 1.0) * math.log1p(-1.0 / b) - math.log(b)
                return (b - 1.0) * (0.5 * b / sigma**2 - loss) + rest

            exact = 20.0 * math.exp(min(0.0, least(log_delta)))
        else:
            part = least(lambda b: 0.5 * (b - 1.0) / sigma**2 - math.log(repeats.gamma) / b)
            exact = (1.0 + shape) * part
        assert exact * (1.0 - 1e-9) <= more[k] <= exact * (1.0 + 5e-3)


def test_a_poisson_choice_at_very_many_orders_fits_in_memory():
    """All pairs of the 131,072 orders of a batch took 128 GiB; some of them bound it as well."""
    choice = BestOf([Gaussian(50.0, 1.0)], Repeats(3.0, math.inf))
    whole = epsilon(choice, 1e-5, "add_or_remove_one")
    batch = Sampled(Poisson(0.001), [choice])
    assert 0.0 < epsilon(batch, 1e-5, "add_or_remove_one") < 0.01 * whole
    many, few = choice.rdp_cost(np.arange(2.0, 2.0**17)), choice.rdp_cost([2.0, 10.0, 1000.0])
    assert many[[0, 8, 998]] == pytest.approx(few, rel=1e-2)


def test_user_defined_laws_of_repeats_are_refused():
    """It may draw other counts than those accounted for."""

    class Always(Repeats):
        def draw(self, random):
            return 10

    with pytest.raises(TypeError, match="repeats must be Repeats"):
        BestOf([Pure(0.1)], Always(2.0))
