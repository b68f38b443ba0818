"""Epochs that distribute the records over batches: laws against quadrature, and charging."""

import itertools
import math
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, special, stats

import dpanalysis as dpa
from dpanalysis import privacy
from dpanalysis.errors import IncompatibleAccounting, PrivacyBudgetExceeded
from dpanalysis.privacy import BallsInBins, Budget, Filter, Plan, RandomAllocation, Shuffle
from dpanalysis.privacy.accounting import epochs as module
from dpanalysis.privacy.accounting.epochs import Bins
from dpanalysis.privacy.events import Epoch, Gaussian, Laplace, Pure, Repeated, Sampled, unrolled
from dpanalysis.privacy.noise import SystemRandom
from dpanalysis.privacy.oracle import PrivateOracle

ADD, REPLACE = "add_or_remove_one", "replace_one"


def bins(sigma, batches, epochs=1, times=1):
    scheme = RandomAllocation(batches, times) if times > 1 else BallsInBins(batches)
    return Repeated(Epoch(scheme, [Gaussian(sigma, 1.0)]), epochs)


# The law of an epoch


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sigma", "batches", "epochs", "delta", "value"),
    [
        (1.0, 100, 1, 1e-5, 0.6210),
        (1.0, 100, 10, 1e-5, 1.7016),
        (0.8, 100, 10, 1e-5, 2.9077),
        (2.0, 100, 50, 1e-5, 1.4568),
        (1.0, 1000, 1, 1e-6, 0.17176),
    ],
)
def test_values_of_another_program(sigma, batches, epochs, delta, value):
    upper = privacy.epsilon(bins(sigma, batches, epochs), delta, ADD)
    assert upper == pytest.approx(value, rel=1e-3)
    lower = privacy.bins_lower_epsilon(sigma, batches, delta, epochs)
    assert 0.985 * upper < lower <= upper


def exact_of_two(sigma, loss):
    """Return both divergences at t = 2 by one integral: E(U - k)_+ has a closed form."""

    def rest(k):  # E(U - k)_+ and E(k - U)_+ of the other batch
        if k <= 0.0:
            return 1.0 - k, 0.0
        at, half = sigma * math.log(k), 0.5 / sigma
        up = special.ndtr(half - at) - k * special.ndtr(-at - half)
        down = k * special.ndtr(at + half) - special.ndtr(at - half)
        return up, down

    def integrand(z, way):
        u = math.exp(z / sigma - 0.5 / sigma**2)
        density = math.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)
        if way:  # E(1 - e^loss W/2)_+ = e^loss/2 E(2 e^-loss - U_1 - U_2)_+
            return density * 0.5 * math.exp(loss) * rest(2.0 * math.exp(-loss) - u)[1]
        return density * 0.5 * rest(2.0 * math.exp(loss) - u)[0]

    ends = sorted(sigma * (math.log(2.0) + sign * loss) + 0.5 / sigma for sign in (1.0, -1.0))
    exactly = {"points": ends, "limit": 400, "epsabs": 0.0, "epsrel": 1e-10}
    return [
        integrate.quad(integrand, -12.0, 12.0 + 1.0 / sigma, (way,), **exactly)[0] for way in (0, 1)
    ]


@pytest.mark.slow
@settings(max_examples=25)
@given(st.floats(0.35, 5.0), st.floats(-1.0, 4.0))
def test_two_batches_against_quadrature(sigma, loss):
    pair = Bins(1.0 / sigma, fraction=0.5, poisson=True, batches=2)
    at = np.array([loss])
    for found, exact in zip((pair.remove(at)[0], pair.add(at)[0]), exact_of_two(sigma, loss)):
        assert found >= exact * (1.0 - 1e-7) - 1e-12
        # Not far above: rounding to a grid of .03 deviations affects the lower tail of W.
        assert found <= exact * 1.005 + 5e-5


@pytest.mark.slow
@settings(max_examples=20)
@given(st.floats(0.35, 3.0), st.floats(-6.0, -1.5), st.floats(-0.5, 2.0))
def test_what_is_above_the_grid_is_an_infinite_loss(sigma, log_tail, beyond):
    """At losses near the end of the grid this mass alone covers the exact divergence."""
    tail = 10.0**log_tail
    pair = Bins(1.0 / sigma, fraction=0.5, poisson=True, batches=2, tail=tail)
    loss = math.log(0.5 * module._Ratio(1.0 / sigma, 0.0).end(tail)) + beyond
    forward, back = exact_of_two(sigma, loss)
    at = np.array([loss])
    assert pair.remove(at)[0] >= forward * (1.0 - 1e-7) - 1e-12
    assert pair.add(at)[0] >= back * (1.0 - 1e-7) - 1e-12


@pytest.mark.parametrize("mu", [0.3, 1.0])
@pytest.mark.parametrize("batches", [2, 10])
def test_no_mass_is_lost(mu, batches, tail=1e-2):
    """Mass above the grid of the terms, or of their sums, counts as an infinite loss."""
    ratio = module._Ratio(mu, 0.0)
    end = ratio.end(tail)
    cells = math.ceil(end / (module._FINE * ratio.std))
    grid = end / cells * np.arange(cells + 1)
    p = module._spread(ratio, grid)
    law = p * grid
    for _ in range(batches - 1):
        law = np.convolve(law, p)
    ratios, _, _, infinite = module._epoch(mu, 0.0, batches, tail)
    assert ratios[1] == pytest.approx(grid[1] / batches)
    assert infinite >= 1.0 - law[: ratios.size].sum() - 1e-12
    pair = Bins(mu, fraction=1.0 / batches, poisson=True, batches=batches, tail=tail)
    for found in (pair.remove(np.array([-30.0])), pair.add(np.array([-30.0]))):
        assert found[0] >= 1.0 - math.exp(-30.0)
    assert pair.remove(np.array([700.0]))[0] >= infinite


@pytest.mark.parametrize("sigma", [0.7, 2.0])
def test_a_lower_bound_of_two_batches_against_quadrature(sigma):
    lower = privacy.bins_lower_epsilon(sigma, 2, 1e-4)
    assert 1e-4 * (1.0 - 1e-7) <= exact_of_two(sigma, lower)[0] <= 1.01e-4


@pytest.mark.parametrize(("sigma", "value"), [(1.0, 3.697385), (2.0, 1.461945)])
def test_epsilon_of_two_batches(sigma, value):
    assert privacy.epsilon(bins(sigma, 2), 1e-5, ADD) == pytest.approx(value, rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("sigma", [0.4, 0.8, 2.0])  # the first by the geometric grid
def test_many_batches_against_sampling(sigma):
    """Both divergences at t = 100, sampled under P and Q; false alarms 6e-5 a comparison."""
    t, runs, random = 100, 200_000, np.random.default_rng(0)
    pair = Bins(1.0 / sigma, fraction=1.0 / t, poisson=True, batches=t)
    sums = np.zeros(runs)
    for _ in range(t - 1):
        sums += np.exp(random.standard_normal(runs) / sigma - 0.5 / sigma**2)
    last = random.standard_normal(runs)
    under = [sums + np.exp((last + shift) / sigma - 0.5 / sigma**2) for shift in (1 / sigma, 0.0)]
    for loss in (-0.2, 0.0, 0.1, 0.5):
        there = np.maximum(1.0 - math.exp(loss) * t / under[0], 0.0)
        back = np.maximum(1.0 - math.exp(loss) * under[1] / t, 0.0)
        at = np.array([loss])
        for found, values in ((pair.remove(at)[0], there), (pair.add(at)[0], back)):
            error = 4.0 * values.std() / math.sqrt(runs)
            assert values.mean() - error <= found <= values.mean() * 1.01 + error + 1e-6


@settings(max_examples=30)
@given(st.floats(0.3, 4.0), st.integers(2, 40), st.floats(0.0, 1.0))
def test_a_spread_keeps_mass_and_mean_and_is_never_smaller(sigma, size, place):
    ratio = module._Ratio(1.0 / sigma, 0.0)
    end = ratio.end(1e-10)
    grid = np.append(0.0, np.geomspace(1e-3, end, size))
    p = module._spread(ratio, grid)
    below, tilted = (float(each) for each in ratio.below(np.array(end)))
    assert p.min() >= 0.0
    assert math.fsum(p) == pytest.approx(below, abs=1e-12)
    assert math.fsum(p * grid) == pytest.approx(tilted, rel=1e-9)
    k = np.exp((1.0 - place) * math.log(1e-3) + place * math.log(end))
    without, with_it = (float(each) for each in ratio.above(np.array(k)))
    beyond, beyond_tilted = (float(each) for each in ratio.above(np.array(end)))
    exact = (with_it - beyond_tilted) - k * (without - beyond)  # E(U - k)_+ up to the end
    assert p @ np.maximum(grid - k, 0.0) >= exact - 1e-12 * (1.0 + k)


@settings(max_examples=20)
@given(st.floats(0.05, 3.0), st.floats(-0.5, 1.5))
def test_two_batches_with_laplace_noise(shift, loss):
    pair = Bins(0.0, shift, fraction=0.5, poisson=True, batches=2)
    x = np.concatenate([[-40.0], np.linspace(0.0, shift, 2001), [40.0 + shift]])
    middle = 0.5 * (x[1:] + x[:-1])
    mass = np.diff(np.where(x < 0, 0.5 * np.exp(x), 1.0 - 0.5 * np.exp(-x)))
    ratio = np.exp(np.abs(middle) - np.abs(middle - shift))
    sums = 0.5 * np.add.outer(ratio, ratio)
    both = np.multiply.outer(mass, mass)
    forward = (both * np.maximum(sums - math.exp(loss), 0.0)).sum()
    back = (both * np.maximum(1.0 - math.exp(loss) * sums, 0.0)).sum()
    at = np.array([loss])
    # Midpoints of x are off by less than 1e-6. Rounding to the grid moves a ratio by at most half
    # a cell in the mean, and the divergences by that times their slopes.
    most = 0.5 * module._FINE * module._Ratio(0.0, shift).std
    for found, exact, slope in (
        (pair.remove(at)[0], forward, 1.0),
        (pair.add(at)[0], back, math.exp(loss)),
    ):
        assert exact - 1e-6 <= found <= exact + slope * most + 1e-6


def test_one_batch_is_the_gaussian_and_a_small_noise_is_not_amplified():
    assert privacy.epsilon(bins(1.5, 1, 4), 1e-6, ADD) == pytest.approx(
        privacy.gaussian_epsilon(0.75, 1e-6), rel=1e-9
    )
    tiny = privacy.epsilon(bins(0.05, 10), 1e-6, ADD)
    assert tiny == pytest.approx(privacy.gaussian_epsilon(0.05, 1e-6), rel=1e-5)


@pytest.mark.slow
@settings(max_examples=3)  # five loss distributions each
@given(
    st.floats(0.5, 4.0), st.integers(2, 60), st.integers(1, 6), st.sampled_from([1e-3, 1e-5, 1e-8])
)
def test_epsilon_is_monotone_and_between_its_bounds(sigma, batches, epochs, delta):
    def upper(sigma=sigma, batches=batches, epochs=epochs):
        return privacy.epsilon(bins(sigma, batches, epochs), delta, ADD)

    value, slack = upper(), 1.0 + 2e-3
    assert privacy.bins_lower_epsilon(sigma, batches, delta, epochs) <= value
    assert upper(sigma=1.1 * sigma) <= value * slack
    assert upper(batches=2 * batches) <= value * slack
    assert value <= upper(epochs=epochs + 1) * slack
    assert value <= privacy.gaussian_epsilon(sigma / math.sqrt(epochs), delta) * (1.0 + 1e-9)


def test_both_directions_count():
    epoch = bins(2.0, 2).event.pair()
    losses = np.linspace(0.0, 1.5, 31)
    assert (epoch.remove(losses) > epoch.add(losses)).any()
    # At losses below 0, adding a record may cost more.
    assert (epoch.add(losses - 1.5) > epoch.remove(losses - 1.5)).any()


def test_several_batches_per_record_cost_that_many_epochs():
    twice = privacy.epsilon(bins(1.0, 100, 10, times=2), 1e-5, ADD)
    assert twice == privacy.epsilon(bins(1.0, 50, 20), 1e-5, ADD)
    odd = privacy.epsilon(bins(1.0, 101, 10, times=2), 1e-5, ADD)
    assert odd == twice
    full = privacy.epsilon(bins(1.0, 3, 1, times=3), 1e-5, ADD)
    assert full == pytest.approx(privacy.gaussian_epsilon(1.0 / math.sqrt(3.0), 1e-5), rel=1e-9)


def test_costs_in_filters_are_not_amplified():
    epoch = bins(2.0, 10).event
    alone = Gaussian(2.0, 1.0)
    assert epoch.zcdp_cost() == alone.zcdp_cost()
    np.testing.assert_array_equal(epoch.rdp_cost([2.0, 8.0]), alone.rdp_cost([2.0, 8.0]))
    thrice = Epoch(RandomAllocation(9, 3), [alone])
    assert thrice.zcdp_cost() == pytest.approx(3.0 * alone.zcdp_cost())
    np.testing.assert_allclose(thrice.rdp_cost([2.0, 8.0]), 3.0 * alone.rdp_cost([2.0, 8.0]))
    assert Epoch(RandomAllocation(9, 3), [Pure(0.2)]).pure_cost() == pytest.approx(0.6)


@pytest.mark.parametrize(
    ("sigma", "batches", "epochs", "delta", "value"),
    [
        (1.0, 100, 1, 1e-5, 4.06),
        (1.0, 100, 10, 1e-5, 9.36),
        (0.8, 100, 10, 1e-5, 17.56),
        (1.0, 1000, 1, 1e-6, 3.72),
    ],
)
def test_shuffling_costs_far_more_than_poisson_sampling(sigma, batches, epochs, delta, value):
    lower = privacy.shuffle_lower_epsilon(sigma, batches, delta, epochs)
    assert lower == pytest.approx(value, abs=0.01)
    step = Sampled(privacy.Poisson(1.0 / batches), [Gaussian(sigma, 1.0)])
    assert lower > 2.0 * privacy.epsilon(Repeated(step, batches * epochs), delta, ADD)
    assert lower <= privacy.gaussian_epsilon(sigma / math.sqrt(epochs), delta)


@pytest.mark.parametrize(
    ("sampling", "batches", "epochs", "delta"),
    [
        ("balls in bins", 325, 100, 1e-198),
        ("balls in bins", 2, 1, 1e-280),
        ("shuffle", 15, 2, 6.3e-320),
    ],
)
def test_a_delta_too_small_for_a_lower_bound_has_one_of_0(sampling, batches, epochs, delta):
    found = dpa.accounting(0.2, sampling=sampling, batches=batches, epochs=epochs, delta=delta)
    assert 0.0 <= found.lower < found.epsilon < np.inf


def test_losses_beyond_every_grid_are_bounded_by_those_of_a_full_batch():
    """With so little noise no finite loss is on the grid: all of its mass was at infinity."""
    costs = [
        privacy.epsilon(Epoch(BallsInBins(2), [Gaussian(std, 1.0)]), 0.1, ADD)
        for std in (0.02, 0.05, 0.09, 0.2)
    ]
    full = [privacy.epsilon(Gaussian(std, 1.0), 0.1, ADD) for std in (0.02, 0.05, 0.09, 0.2)]
    assert costs == sorted(costs, reverse=True)
    assert all(0.95 * whole < cost < 1.0001 * whole for cost, whole in zip(costs, full))


def test_a_shuffled_epoch_is_one_release_under_replace_one():
    epoch = Repeated(Epoch(Shuffle(100), [Gaussian(1.0, 2.0)]), 9)
    assert privacy.epsilon(epoch, 1e-5, REPLACE) == pytest.approx(
        privacy.gaussian_epsilon(1.0 / 6.0, 1e-5), rel=1e-9
    )
    with pytest.raises(IncompatibleAccounting, match="Shuffle with 'replace_one'"):
        privacy.epsilon(epoch, 1e-5, ADD)
    with pytest.raises(IncompatibleAccounting, match="BallsInBins"):
        privacy.epsilon(bins(1.0, 100), 1e-5, REPLACE)


def test_no_profile_for_other_releases():
    mixed = Epoch(BallsInBins(10), [Gaussian(1.0, 1.0), Pure(0.1)])
    assert mixed.pair() is None
    alone = privacy.epsilon([Gaussian(1.0, 1.0), Pure(0.1)], 1e-5, ADD, "rdp")
    assert privacy.epsilon(mixed, 1e-5, ADD) == pytest.approx(alone)
    assert privacy.epsilon(Epoch(BallsInBins(10), [Pure(0.1)]), 0.0, ADD) == 0.1


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Epoch(privacy.Poisson(0.1), [Pure(1.0)]), TypeError, "Sampled events, one each"),
        (lambda: Epoch(BallsInBins(2), []), ValueError, "at least one"),
        (lambda: Epoch(BallsInBins(2), Pure(1.0)), TypeError, "a sequence"),
        (lambda: Epoch(BallsInBins(2), [1.0]), TypeError, "must be events"),
        (lambda: Epoch(BallsInBins(2), [bins(1.0, 3)]), ValueError, "sampled themselves"),
        (lambda: BallsInBins(0), ValueError, "batches"),
        (lambda: RandomAllocation(3, 4), ValueError, "times must be at most batches = 3"),
        (lambda: privacy.bins_lower_epsilon(0.0, 2, 1e-5), ValueError, "noise_multiplier"),
        (lambda: privacy.shuffle_lower_epsilon(1.0, 2, 0.0), ValueError, "delta"),
    ],
)
def test_bad_epochs_are_named(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_an_epoch_dominates_one_with_more_noise():
    one, other = bins(1.0, 5).event, bins(1.5, 5).event
    assert one.dominates(other)
    assert not other.dominates(one)
    assert not one.dominates(bins(1.5, 6).event)
    assert not one.dominates(Epoch(one.sampling, [*other.events, *other.events]))


# Draws


@pytest.mark.parametrize("source", [np.random.default_rng(0), SystemRandom()])
@given(data=st.data())
@settings(max_examples=15)
def test_records_are_divided(source, data):
    n = data.draw(st.integers(1, 60))
    batches = data.draw(st.integers(1, n))
    times = data.draw(st.integers(1, batches))
    for scheme, each in ((BallsInBins(batches), 1), (RandomAllocation(batches, times), times)):
        epoch = scheme.draw_epoch(n, source)
        assert len(epoch) == batches
        assert all((np.diff(rows) > 0).all() for rows in epoch)
        assert (np.bincount(np.concatenate(epoch), minlength=n) == each).all()
        assert scheme.expected_size(n) == pytest.approx(n * each / batches)
    shuffled = Shuffle(batches).draw_epoch(n, source)
    assert sorted(np.concatenate(shuffled).tolist()) == list(range(n))
    assert {rows.size for rows in shuffled} <= {n // batches, -(-n // batches)}


def test_every_set_of_batches_is_as_likely():
    """Chi-squared tests with fixed seeds at level 1e-6."""
    random, runs = np.random.default_rng(1), 60_000
    epoch = BallsInBins(5).draw_epoch(runs, random)
    assert stats.chisquare([rows.size for rows in epoch]).pvalue > 1e-6
    chosen = np.zeros((runs, 5), dtype=bool)
    for place, rows in enumerate(RandomAllocation(5, 3).draw_epoch(runs, random)):
        chosen[rows, place] = True
    codes = np.bincount(chosen @ (1 << np.arange(5)))
    assert np.count_nonzero(codes) == 10
    assert stats.chisquare(codes[codes > 0]).pvalue > 1e-6
    places = np.zeros((6, 3))
    for _ in range(3000):
        for place, rows in enumerate(Shuffle(3).draw_epoch(6, random)):
            places[rows, place] += 1
    assert stats.chisquare(places.ravel()).pvalue > 1e-6


@pytest.mark.slow
def test_more_batches_than_records_are_refused_by_the_public_number_alone():
    """An error at fewer rows than batches would reveal the private number of rows."""
    random = np.random.default_rng(0)
    for scheme in (BallsInBins(4), RandomAllocation(4, 2), Shuffle(4)):
        with pytest.raises(ValueError, match="batches must be at most n = 3"):
            scheme.validate(3)
    with pytest.raises(ValueError, match="batches must be at most n = 3"):
        Shuffle(4).draw_epoch(3, random)
    assert len(RandomAllocation(4, 2).draw_epoch(3, random)) == 4
    X = np.array([[0.5, 0.1], [-0.5, 0.2]])
    few = dpa.ERM(X, [1.0, -1.0], dpa.losses.Logistic(), size=40)
    method = dpa.methods.SGD(0.1, 20, BallsInBins(20), CLIP)
    result = dpa.minimize(few, method, Budget(1.0, 1e-5, relation=ADD), rng=0)
    assert result.iterations == 20
    over = dpa.methods.SGD(0.1, 20, BallsInBins(41), CLIP)
    with pytest.raises(ValueError, match="batches must be at most n = 40"):
        dpa.minimize(few, over, Budget(1.0, 1e-5, relation=ADD), rng=0)


# Epochs are charged as a whole


def problem(n=40):
    X = np.random.default_rng(0).normal(size=(n, 2))
    return dpa.ERM(X, np.sign(X[:, 0]), dpa.losses.Logistic())


CLIP = dpa.clipping.Flat(1.0)


def oracle_of(guard=None, relation=ADD):
    made = problem()
    return PrivateOracle(made, made.facts(relation), guard, [np.random.default_rng(0)])


def gradient_of(oracle, scheme, std=0.5):
    return oracle.gradient_event(scheme, "gaussian", std, CLIP)


def test_an_epoch_is_charged_before_it_is_drawn_and_stays_paid():
    scheme = BallsInBins(4)
    guard = Filter(Budget(20.0, 1e-5, relation=ADD))
    oracle = oracle_of(guard)
    event = gradient_of(oracle, scheme)
    answers = []
    with pytest.raises(KeyError), oracle.epoch(scheme, [event]) as epoch:
        paid = guard.spent
        assert paid == pytest.approx(Epoch(scheme, [event]).zcdp_cost())
        for batch in epoch:
            answers.append(batch.gradient(np.zeros(2), "gaussian", 0.5, CLIP))
            raise KeyError
    assert (guard.spent, len(answers)) == (paid, 1)
    assert len(oracle.ledger) == 1
    with pytest.raises(RuntimeError, match="closed"):
        batch.gradient(np.zeros(2), "gaussian", 0.5, CLIP)
    assert list(epoch) == []  # the remaining batches are lost


def test_what_was_not_named_is_refused_in_every_batch():
    scheme = BallsInBins(3)
    oracle = oracle_of(Filter(Budget(50.0, 1e-5, relation=ADD)))
    with oracle.epoch(scheme, [gradient_of(oracle, scheme)]) as epoch:
        for batch in epoch:
            with pytest.raises(PrivacyBudgetExceeded, match="was not declared"):
                batch.gradient(np.zeros(2), "gaussian", 0.4, CLIP)
            batch.gradient(np.zeros(2), "gaussian", 0.5, CLIP)
            with pytest.raises(PrivacyBudgetExceeded, match="was not declared"):
                batch.gradient(np.zeros(2), "gaussian", 0.5, CLIP)
            with pytest.raises(RuntimeError, match="open already"):
                oracle.gradient(np.zeros(2), privacy.Poisson(0.1), "gaussian", 0.5, CLIP)
        with pytest.raises(RuntimeError, match="closed"):
            batch.gradient(np.zeros(2), "gaussian", 0.5, CLIP)


def test_an_exact_epoch_and_one_beyond_the_budget_are_refused_and_cost_nothing():
    scheme = BallsInBins(3)
    guard = Filter(Budget(0.1, 1e-5, relation=ADD))
    oracle = oracle_of(guard)
    for events in ([None], [gradient_of(oracle, scheme, 1e-3)]):
        with pytest.raises(PrivacyBudgetExceeded), oracle.epoch(scheme, events):
            raise AssertionError
    assert guard.spent == 0.0
    assert not oracle.is_open
    for wrong in (privacy.Poisson(0.1), BallsInBins(41)):
        with pytest.raises((TypeError, ValueError)), oracle.epoch(wrong, [Pure(0.01)]):
            raise AssertionError


def test_a_second_thread_has_to_wait_for_the_end_of_an_epoch():
    oracle, refused = oracle_of(), []

    def ask():
        try:
            with oracle.epoch(BallsInBins(2), [None]):
                pass
        except RuntimeError as error:
            refused.append(error)

    with oracle.epoch(BallsInBins(2), [None]):
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
    assert len(refused) == 1
    with oracle.epoch(BallsInBins(2), [None]) as epoch:
        assert len(list(epoch)) == 2


def test_every_record_is_used_once_an_epoch():
    oracle = oracle_of()
    with oracle.epoch(BallsInBins(7), [None]) as epoch:
        total = sum(batch.gradient(np.ones(2), "gaussian", 0.0) for batch in epoch)
    mean = problem().gradient(np.ones((1, 2)))[0]
    np.testing.assert_allclose(total[0] / 7 if total.ndim > 1 else total / 7, mean, rtol=1e-9)
    assert oracle.evaluations["gradient"] == 40


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scheme", "relation"),
    [(BallsInBins(4), ADD), (RandomAllocation(5, 2), ADD), (Shuffle(4), REPLACE)],
)
@pytest.mark.parametrize("method", [dpa.methods.SGD, dpa.methods.Adam])
def test_methods_run_by_epochs(scheme, relation, method):
    iterations = 3 * scheme.batches - 1
    budget = Budget(2.0, 1e-5, relation=relation)
    run = method(0.5, iterations, scheme, CLIP)
    result = dpa.minimize(problem(), run, budget, rng=0, replicates=2)
    assert result.iterations == iterations
    assert 1.99 <= result.epsilon() <= 2.0 + 1e-9
    ((event, count),) = map(unrolled, run.events(problem().facts(relation), result.plan))
    assert (type(event), event.sampling, count) == (Epoch, scheme, 3)
    assert len(result.ledger) == 3
    again = dpa.minimize(problem(), run, budget, rng=0, replicates=2)
    np.testing.assert_array_equal(result.w, again.w)


def test_noise_is_the_same_in_all_batches_of_an_epoch():
    noise = [0.5] * 4 + [0.6] * 4
    method = dpa.methods.SGD(0.5, 8, BallsInBins(4), CLIP, noise=noise)
    events = method.events(problem().facts(ADD), method.prepare(problem().facts(ADD), None, "pld"))
    assert [event.events[0].std for event in events] == [0.5, 0.6]
    wrong = dpa.methods.SGD(0.5, 8, BallsInBins(4), CLIP, noise=[0.5] * 3 + [0.6] * 5)
    with pytest.raises(ValueError, match="the same in all 4 batches of an epoch"):
        dpa.minimize(problem(), wrong)


def test_a_partly_used_epoch_is_charged_in_full():
    facts = problem().facts(ADD)
    method = dpa.methods.SGD(0.5, 7, BallsInBins(4), CLIP, noise=[0.5] * 7)
    plan = method.prepare(facts, None, "pld")
    ((event, count),) = map(unrolled, method.events(facts, plan))
    assert (type(event), count) == (Epoch, 2)
    assert dpa.minimize(problem(), method, rng=0, record=()).iterations == 7
    # After a restart the rest of a charged epoch is lost: the iterate stays constant.
    start = dpa.methods.Step(np.ones((1, 2)), state={"previous": np.zeros((1, 2))})
    for made, stays in ((2, 2), (5, 2)):
        lost = list(itertools.islice(method.resume(start, made, 0, None, plan), stays))
        assert [(each.w == 1.0).all() for each in lost] == [True] * stays
    assert len(list(method.resume(start, 5, 0, None, plan))) == 2


def test_methods_that_charge_single_batches_refuse_epochs():
    for make in (
        lambda: dpa.methods.GradientDescent(0.1, 5, sampling=BallsInBins(2)),
        lambda: dpa.methods.LineSearchSGD(sampling=BallsInBins(2)),
    ):
        with pytest.raises(TypeError, match=r"SGD and Adam take epochs|unexpected|missing"):
            make()


def test_a_plan_grants_whole_epochs():
    event = bins(1.0, 4).event
    plan = Plan([Repeated(event, 2)], Budget(50.0, 1e-5, relation=ADD))
    plan.spend(event)
    assert plan.remaining == 1
    with pytest.raises(PrivacyBudgetExceeded):
        plan.spend(event.events[0])


def test_laplace_epochs_are_not_amplified_in_a_pure_budget():
    method = dpa.methods.SGD(0.5, 8, BallsInBins(4), CLIP, mechanism="laplace")
    result = dpa.minimize(problem(), method, Budget(1.0, relation=ADD), rng=0)
    ((event, count),) = map(unrolled, result.ledger.events)
    assert count == 2
    assert isinstance(event.events[0], Laplace)
    assert event.events[0].pure_cost() == pytest.approx(0.5, rel=1e-5)


@pytest.mark.parametrize("delta", [1e-15, 1e-13, 1e-10, 1e-5])
def test_no_lower_bound_is_above_the_upper_one(delta):
    """Rounding errors of a transform must not count as mass of large losses."""
    rare = dpa.accounting(0.18, sampling="poisson", rate=1.2e-4, steps=109, delta=delta)
    assert rare.lower <= rare.epsilon
    bins = Epoch(BallsInBins(100), [Gaussian(0.5, 1.0)])
    lower = privacy.bins_lower_epsilon(0.5, 100, delta)
    assert lower <= privacy.epsilon(bins, delta, ADD)
    if delta == 1e-10:  # the bounds are close
        assert rare.lower > 0.99 * rare.epsilon and lower > 9.66


@pytest.mark.parametrize("batches", [2, 100])
@pytest.mark.parametrize("noise", [0.084, 0.1, 0.3])
def test_batches_never_cost_more_than_all_records_at_once(batches, noise):
    event = Gaussian(noise, 1.0)
    whole = privacy.epsilon(event, 1e-5, ADD)
    found = privacy.epsilon(Epoch(BallsInBins(batches), [event]), 1e-5, ADD)
    assert found <= whole * (1.0 + 1e-6)


def test_an_epoch_of_what_no_record_changes_costs_nothing():
    epoch = Epoch(BallsInBins(5), [Gaussian(1.0, 0.0)])
    assert privacy.epsilon(epoch, 1e-5, ADD, "pld") == 0.0


def test_a_lower_bound_of_one_batch_is_that_of_the_gaussian():
    exact = privacy.gaussian_epsilon(2.0, 1e-5)
    assert exact * (1.0 - 1e-9) < module.bins_lower_epsilon(2.0, 1, 1e-5) <= exact


def test_an_epoch_that_no_grid_holds_costs_what_it_does_without_batches():
    event = Gaussian(1e4, 1.0)
    found = privacy.epsilon(Epoch(BallsInBins(10_000), [event]), 1e-5, ADD)
    assert found == pytest.approx(privacy.epsilon(event, 1e-5, ADD), rel=1e-5)


def test_a_lower_bound_is_never_below_0():
    """The losses of a Gaussian minus ln t are, at a delta that large."""
    assert privacy.bins_lower_epsilon(0.08, 100, 1.0 - 1e-12) == 0.0
