"""Events, the epsilon of lists of them, ledgers and calibration."""

import math
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpanalysis as dpa
from dpanalysis import privacy
from dpanalysis.errors import IncompatibleAccounting
from dpanalysis.privacy import (
    Budget,
    Filter,
    Full,
    Ledger,
    Poisson,
    WithoutReplacement,
    calibrate,
    epsilon,
    fits,
    gaussian_epsilon,
    rdp_poisson,
    rdp_poisson_gaussian,
    rdp_pure,
    spent,
    zcdp_to_epsilon,
)
from dpanalysis.privacy.accounting.accountant import group, spent_without_grid
from dpanalysis.privacy.events import (
    BoundedRange,
    Event,
    Gaussian,
    Laplace,
    Pure,
    Repeated,
    Sampled,
    gaussian_mu,
)

ADD, REPLACE = "add_or_remove_one", "replace_one"
RELATIONS = (ADD, REPLACE)


# Samplings and their relations


@pytest.mark.parametrize(
    ("event", "relation"),
    [
        (Sampled(Poisson(0.1), [Pure(1.0)]), REPLACE),
        (Sampled(WithoutReplacement(2), [Pure(1.0)], n=10), ADD),
        (Repeated(Sampled(Poisson(0.1), [Gaussian(1.0, 1.0)]), 3), REPLACE),
    ],
)
def test_wrong_pairs_are_refused_everywhere_and_right_ones_named(event, relation):
    message = "Poisson, BallsInBins and RandomAllocation go with 'add_or_remove_one'"
    with pytest.raises(IncompatibleAccounting, match=message):
        epsilon(event, 1e-5, relation)
    with pytest.raises(IncompatibleAccounting, match=message):
        Ledger(relation).record(event)
    with pytest.raises(IncompatibleAccounting, match=message):
        privacy.Filter(Budget(1.0, relation=relation)).can_spend(event)
    with pytest.raises(IncompatibleAccounting, match=message):
        privacy.Plan(event, Budget(1.0, 1e-5, relation=relation))


@pytest.mark.parametrize("relation", RELATIONS)
def test_the_full_batch_goes_with_both(relation):
    event = Sampled(Full(), [Laplace(10.0, 1.0), Pure(0.2)])
    assert epsilon(event, 0.0, relation) == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Laplace(0.0, 1.0), ValueError, "scale must lie in"),
        (lambda: Laplace(1.0, math.inf), ValueError, "sensitivity must lie in"),
        (lambda: Laplace(1.0, 1.0, order=2), ValueError, r"order must be 1 .* sqrt\(d\)"),
        (lambda: Gaussian(1.0, 1.0, order=1), ValueError, r"order must be 2 .* sqrt\(d\)"),
        (lambda: Gaussian(-1.0, 1.0), ValueError, "std must lie in"),
        (lambda: Pure(-0.1), ValueError, "epsilon must lie in"),
        (lambda: Repeated(Pure(1.0), 0), ValueError, "count must be at least 1"),
        (lambda: Repeated("event", 1), TypeError, "must be an event"),
        (lambda: Sampled(Poisson(0.1), []), ValueError, "at least one event"),
        (lambda: Sampled(Poisson(0.1), Pure(1.0)), TypeError, "a sequence of events"),
        (lambda: Sampled(Poisson(0.1), [1.0]), TypeError, "must be events"),
        (lambda: Sampled(0.1, [Pure(1.0)]), TypeError, r"sampling must be Full"),
        (lambda: Sampled(WithoutReplacement(5), [Pure(1.0)]), ValueError, "number of records"),
        (lambda: Sampled(WithoutReplacement(5), [Pure(1.0)], n=4), ValueError, "at most n = 4"),
        (
            lambda: Sampled(Poisson(0.1), [Repeated(Sampled(Full(), [Pure(1.0)]), 2)]),
            ValueError,
            "sampled themselves",
        ),
        (lambda: epsilon([1.0], 1e-5, ADD), TypeError, "an event is needed"),
        (lambda: epsilon(Pure(1.0), 1.0, ADD), ValueError, "delta must lie in"),
        (lambda: epsilon(Pure(1.0), 0.0, "swap"), ValueError, "relation must be one of"),
        (lambda: epsilon(Pure(1.0), 0.0, ADD, "moments"), ValueError, "accountant must be one"),
    ],
)
def test_bad_arguments_are_named(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_events_are_values():
    one = Sampled(Poisson(0.1), [Gaussian(1.0, 1.0), Pure(0.5)])
    two = Sampled(Poisson(0.1), (Gaussian(1.0, 1.0), Pure(0.5)))
    assert one == two and hash(one) == hash(two) and isinstance(one.events, tuple)
    assert gaussian_mu([Gaussian(2.0, 1.0)] * 4) == 1.0
    assert gaussian_mu([Gaussian(2.0, 1.0), Pure(1.0)]) is None
    zero = Gaussian(1.0, 0.0)
    assert zero.pure_cost() == zero.zcdp_cost() == 0.0 and zero.rdp_cost([2.0]) == [0.0]


def test_events_keep_plain_numbers():
    """NumPy's short floats would round a cost, and its short integers wrap around."""
    half = np.float16(0.1)
    assert Laplace(half, 1.0).pure_cost() == 1.0 / float(half)
    assert type(Laplace(half, 1.0).pure_cost()) is type(Gaussian(half, half).mu) is float
    assert Gaussian(np.float32(0.1), np.float32(3.0)).mu == 3.0 / float(np.float32(0.1))
    assert Pure(np.float32(0.1)).pure_cost() == float(np.float32(0.1))
    often = Repeated(Repeated(Pure(1.0), np.int8(100)), np.int8(100))
    assert often.pure_cost() == epsilon(often, 0.0, ADD) == 1e4


def test_events_of_a_new_kind_are_different_unless_they_say_otherwise():
    """Costs are cached by equality, so a cheap event must not equal an expensive one."""

    class Known(Event):
        def __init__(self, loss):
            self.loss = loss

        def pure_cost(self):
            return self.loss

    cheap, dear = Known(0.0), Known(5.0)
    assert cheap != dear and epsilon([cheap, dear, dear], 0.0, ADD) == 10.0
    ledger = Ledger(ADD)
    for event in (cheap, dear):
        ledger.record(event)
    assert ledger.epsilon() == 5.0
    guard = Filter(Budget(1.0))
    guard.spend(cheap)
    assert not guard.can_spend(dear)


def test_only_costs_that_cannot_change_are_kept():
    """The cost of a user's event may change between calls, alone or in a batch."""

    class Moody(Event):
        loss = 1.0

        def pure_cost(self):
            return self.loss

    moody = Moody()
    events = [moody, Repeated(moody, 1), Sampled(Poisson(1.0), [moody])]
    events.append(Sampled(Poisson(0.5), [Pure(1.0), moody]))
    before = [epsilon(event, 0.0, ADD) for event in events]
    Moody.loss = 2.0
    after = [epsilon(event, 0.0, ADD) for event in events]
    assert all(a < b for a, b in zip(before, after)) and after[:3] == [2.0] * 3


def test_grouping_unrolls_everything():
    inner = Sampled(WithoutReplacement(10), [Repeated(Pure(1.0), 2), Gaussian(1.0, 1.0)], n=10)
    counts = group([Repeated(inner, 3), Pure(1.0), Repeated(Repeated(Pure(2.0), 2), 5)], REPLACE)
    assert counts == {Pure(1.0): 7, Gaussian(1.0, 1.0): 3, Pure(2.0): 10}


# Costs


@pytest.mark.parametrize("rate", [0.01, 0.4])
def test_a_batch_of_gaussians_is_one_gaussian(rate):
    orders = np.array([1.5, 2.0, 8.0, 33.3])
    batch = Sampled(Poisson(rate), [Gaussian(2.0, 1.0), Repeated(Gaussian(4.0, 1.0), 3)])
    mu = math.sqrt(1 / 4 + 3 / 16)
    expected = rdp_poisson_gaussian(orders, rate, 1 / mu)
    assert batch.rdp_cost(orders) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("sampling", [Poisson(0.1), WithoutReplacement(10)])
def test_pure_losses_of_a_batch_add_before_they_are_amplified_once(sampling):
    """Two queries of loss 1 and one of .5 on a tenth of the data: ln(1 + (e^2.5 - 1)/10)."""
    asked = [Repeated(Pure(1.0), 2), Laplace(2.0, 1.0)]
    together = math.log1p(0.1 * math.expm1(2.5))
    assert Sampled(sampling, asked, n=100).pure_cost() == pytest.approx(together, rel=1e-12)
    apart = sum(Sampled(sampling, [event], n=100).pure_cost() for event in asked)
    assert apart < 0.9 * together


def test_a_shared_batch_costs_more_than_its_accesses_apart():
    """Errata 002-4 on events: all accesses to a batch are amplified together, once."""
    gradient, search = Gaussian(1.0, math.sqrt(2.0)), Pure(2.0)  # rho = 1, epsilon = 2
    joint = Sampled(Poisson(0.01), [gradient, search]).rdp_cost([8.0])
    apart = sum(Sampled(Poisson(0.01), [event]).rdp_cost([8.0]) for event in (gradient, search))
    assert joint == pytest.approx(
        rdp_poisson([8.0], 0.01, lambda a: a + rdp_pure(a, 2.0), exact_pair=True)
    )
    assert joint > 1.5 * apart
    for delta in (1e-3, 1e-6):
        together = epsilon(Sampled(Poisson(0.01), [gradient, search]), delta, ADD)
        assert together > epsilon(
            [Sampled(Poisson(0.01), [e]) for e in (gradient, search)], delta, ADD
        )


class CurveOnly(Event):
    """Has only a bound on its Renyi curve: no dominating pair, no pure loss."""

    def rdp_cost(self, orders):
        return 0.1 * np.asarray(orders, dtype=float)


def test_a_batch_with_a_mere_curve_pays_the_factor_3():
    orders, event = np.array([3.0, 8.0]), CurveOnly()
    general = rdp_poisson(orders, 0.1, lambda a: 0.1 * a)
    assert Sampled(Poisson(0.1), [event]).rdp_cost(orders) == pytest.approx(general)
    assert (general > rdp_poisson(orders, 0.1, lambda a: 0.1 * a, exact_pair=True)).all()
    run = Repeated(Sampled(Poisson(0.1), [event, Gaussian(10.0, 1.0)]), 10)
    assert math.isfinite(epsilon(run, 1e-5, ADD))
    with pytest.raises(IncompatibleAccounting, match="'rdp'"):
        epsilon(run, 1e-5, ADD, "pld")


simple = st.one_of(
    st.floats(0.01, 3.0).map(Pure),
    st.floats(0.3, 50.0).map(lambda b: Laplace(b, 1.0)),
    st.floats(0.5, 50.0).map(lambda s: Gaussian(s, 1.0)),
)


@pytest.mark.slow
@settings(max_examples=30)
@given(events=st.lists(simple, min_size=1, max_size=4), delta=st.sampled_from([1e-9, 1e-5, 0.01]))
def test_tightest_is_the_smallest_and_all_are_ordered(events, delta):
    values = {}
    for name in ("pure", "zcdp", "rdp", "pld"):
        try:
            values[name] = epsilon(events, delta, ADD, name)
        except IncompatibleAccounting:
            assert name == "pure" and any(isinstance(e, Gaussian) for e in events)
    assert epsilon(events, delta, ADD) == min(values.values())
    assert values["rdp"] <= values["zcdp"] * (1 + 1e-5) + 1e-9  # two searches
    assert epsilon(events, delta, REPLACE) == epsilon(events, delta, ADD)


@pytest.mark.slow
@settings(max_examples=20)
@given(
    base=simple,
    rate=st.floats(0.001, 0.5),
    count=st.integers(1, 500),
    accountant=st.sampled_from(["rdp", "tightest"]),
)
def test_more_events_higher_rates_and_smaller_delta_cost_more(base, rate, count, accountant):
    def cost(rate=rate, count=count, delta=1e-6):
        return epsilon(Repeated(Sampled(Poisson(rate), [base]), count), delta, ADD, accountant)

    slack = 1.002  # rounding of the grid
    assert cost() <= cost(count=2 * count) * slack + 1e-6
    assert cost() <= cost(rate=1.5 * rate) * slack + 1e-6
    assert cost() <= cost(delta=1e-7) * slack + 1e-6
    assert cost() <= epsilon(Repeated(base, count), 1e-6, ADD, accountant) * slack + 1e-6


def test_delta_zero_is_pure():
    assert epsilon([Pure(0.5), Laplace(2.0, 1.0)], 0.0, ADD) == 1.0
    for name in ("rdp", "pld", "pure"):
        assert epsilon([Pure(0.5), Laplace(2.0, 1.0)], 0.0, ADD, name) == pytest.approx(1.0)
    assert epsilon(Gaussian(1.0, 1.0), 0.0, ADD) == math.inf
    assert epsilon(Gaussian(1.0, 1.0), 0.0, ADD, "zcdp") == math.inf
    assert epsilon([Pure(0.1), Sampled(Poisson(0.1), [Gaussian(1.0, 1.0)])], 0.0, ADD) == math.inf
    with pytest.raises(ValueError, match="no finite pure cost"):
        epsilon(Gaussian(1.0, 1.0), 0.0, ADD, "pure")


def test_accountants_that_do_not_apply_say_what_does():
    sampled = Sampled(Poisson(0.1), [Gaussian(1.0, 1.0)])
    with pytest.raises(IncompatibleAccounting, match="'rdp' or 'pld', with epsilon and delta"):
        epsilon(sampled, 1e-5, ADD, "zcdp")
    with pytest.raises(IncompatibleAccounting, match="zCDP budget is accounted by 'zcdp'"):
        spent(Gaussian(1.0, 1.0), Budget.zcdp(1.0), "rdp")


@pytest.mark.parametrize("accountant", ["tightest", "pure", "zcdp", "rdp", "pld"])
def test_what_fits_is_what_costs_no_more(accountant):
    """Budgets are compared to 1e-9, with the requested accountant and not a tighter one."""
    run = [Pure(0.1)] * 10 if accountant == "pure" else [Gaussian(4.0, 1.0)] * 3
    cost = epsilon(run, 1e-6, ADD, accountant)
    assert fits(run, Budget(cost * (1 + 1e-9), 1e-6, ADD), accountant)
    assert not fits(run, Budget(cost * (1 - 1e-9), 1e-6, ADD), accountant)


def test_known_sums():
    events = [Gaussian(2.0, 1.0)] * 8 + [Pure(1.0)]
    rho = 8 / 8 + math.tanh(0.5)
    assert epsilon(events, 1e-5, ADD, "zcdp") == zcdp_to_epsilon(rho, 1e-5)
    assert spent(events, Budget.zcdp(5.0)) == pytest.approx(rho)
    assert epsilon([], 1e-5, ADD) == 0.0 and epsilon([], 0.0, ADD) == 0.0
    assert epsilon([Pure(0.3)] * 10, 1e-5, ADD, "pure") == pytest.approx(3.0)


def test_best_real_order_beats_a_grid_of_orders():
    """The search between grid points reaches the zCDP optimum, which is over all real orders."""
    for sigma in (0.5, 3.0, 1000.0):
        by_rdp = epsilon(Gaussian(sigma, 1.0), 1e-6, ADD, "rdp")
        by_zcdp = epsilon(Gaussian(sigma, 1.0), 1e-6, ADD, "zcdp")
        assert by_rdp == pytest.approx(by_zcdp, rel=1e-3)


@pytest.mark.parametrize("target", [1e-3, 50.0])
def test_extreme_losses_and_delta(target):
    delta = 1e-12
    exact = epsilon(
        Gaussian(calibrate(lambda s: Gaussian(s, 1.0), Budget(target, delta), (1e-3, 1e6)), 1.0),
        delta,
        ADD,
    )
    assert exact == pytest.approx(target, rel=1e-5)

    def run(sigma):
        return Repeated(Sampled(Poisson(0.01), [Gaussian(sigma, 1.0)]), 10)

    sigma = calibrate(run, Budget(target, delta, ADD), (0.05, 1e4), accountant="rdp")
    assert epsilon(run(sigma), delta, ADD) <= target * (1 + 1e-9)


@pytest.mark.parametrize("delta", [5e-324, 1e-300, 1e-5])
def test_a_range_of_0_and_a_subnormal_delta_have_an_epsilon(delta):
    assert epsilon(BoundedRange(0.0), delta, REPLACE) == 0.0
    laplace = Repeated(Laplace(1.0, 0.3), 100)
    assert epsilon([BoundedRange(0.0), laplace], delta, REPLACE) <= 30.0 * (1.0 + 1e-12)


@pytest.mark.slow
def test_a_thousand_different_scales_are_composed():
    events = [Laplace(scale, 1.0) for scale in np.geomspace(100.0, 1000.0, 1000)]
    tightest = epsilon(events, 1e-5, REPLACE)
    assert tightest < epsilon(events, 1e-5, REPLACE, "rdp") < epsilon(events, 0.0, REPLACE)


# Ledger


@pytest.mark.slow
def test_a_ledger_reports_at_many_deltas_and_back():
    ledger = Ledger(REPLACE)
    for event in (Laplace(20.0, 1.0), Gaussian(8.0, 1.0)):
        ledger.record(event)
    deltas = np.array([[1e-3, 1e-5], [1e-8, 1e-2]])
    found = ledger.epsilon(deltas)
    assert found.shape == deltas.shape
    for one, delta in zip(found.ravel(), deltas.ravel()):
        assert one == ledger.epsilon(float(delta))
        back = ledger.delta(float(one))
        assert isinstance(back, float) and back == pytest.approx(delta, rel=0.02)
    np.testing.assert_array_equal(ledger.delta(found), np.vectorize(ledger.delta)(found))
    assert Ledger(REPLACE).delta(0.0) == 0.0
    with pytest.raises(ValueError, match="delta"):
        ledger.epsilon([0.1, 1.5])


def test_a_ledger_merges_runs_and_reports():
    ledger, event = Ledger(REPLACE), Laplace(100.0, 1.0)
    for _ in range(5):
        ledger.record(event)
    ledger.record(Laplace(50.0, 1.0))
    ledger.record(Laplace(50.0, 1.0))
    ledger.record(Pure(0.5))
    assert len(ledger) == 8
    assert ledger.events == (Repeated(event, 5), Repeated(Laplace(50.0, 1.0), 2), Pure(0.5))
    assert list(ledger) == list(ledger.events)
    assert ledger.epsilon() == pytest.approx(0.05 + 0.04 + 0.5)
    assert ledger.epsilon(1e-5, "zcdp") == epsilon(ledger.events, 1e-5, REPLACE, "zcdp")
    assert "5 x Laplace" in repr(ledger) and "8 events" in repr(ledger)
    assert Ledger(ADD).epsilon(1e-5) == 0.0
    with pytest.raises(TypeError, match="an event is needed"):
        ledger.record(0.5)


@given(
    kept=st.integers(1, 10),
    count=st.integers(max_value=0) | st.floats(allow_nan=True) | st.booleans() | st.none(),
    again=st.booleans(),
)
def test_no_count_takes_events_out_of_a_ledger(kept, count, again):
    """A negative count used to cancel events that had been recorded."""
    ledger = Ledger(REPLACE)
    ledger.record(Pure(0.5), kept)
    with pytest.raises((TypeError, ValueError), match="count must be"):
        ledger.record(Pure(0.5) if again else Pure(0.25), count)
    assert len(ledger) == kept and ledger.epsilon() == pytest.approx(0.5 * kept)


@pytest.mark.slow
def test_a_hundred_thousand_records_are_all_counted():
    ledger = Ledger(ADD)
    steps = [Sampled(Poisson(0.01), [Gaussian(s, 1.0)]) for s in (1.0, 2.0)]
    for i in range(100_000):
        ledger.record(steps[i % 2])
    assert len(ledger) == 100_000
    both = [Repeated(step, 50_000) for step in steps]
    assert ledger.epsilon(1e-5, "rdp") == pytest.approx(epsilon(both, 1e-5, ADD, "rdp"))


# Calibration


@pytest.mark.parametrize(
    ("budget", "accountant"),
    [
        (Budget(1.0, 1e-6), "tightest"),
        (Budget(1.0, 1e-6), "zcdp"),
        (Budget(0.01, 1e-9), "rdp"),
        (Budget.zcdp(0.2), "tightest"),
    ],
)
def test_calibrated_noise_fits_and_less_does_not(budget, accountant):
    def run(sigma):
        return Repeated(Gaussian(sigma, 1.0), 50)

    sigma = calibrate(run, budget, (1e-2, 1e5), accountant=accountant)
    assert spent(run(sigma), budget, accountant) <= budget.limit
    assert fits(run(sigma), budget, accountant)
    assert spent(run(sigma * (1 - 2e-6)), budget, accountant) > budget.limit
    if accountant == "tightest" and budget.rho is None:
        assert gaussian_epsilon(sigma / math.sqrt(50), budget.delta) == pytest.approx(1.0, rel=1e-5)


def test_calibration_of_batches_of_laplace_noise():
    def run(scale):
        return Repeated(Sampled(WithoutReplacement(100), [Laplace(scale, 0.01)], n=1000), 20)

    scale = calibrate(run, Budget(1.0), (1e-4, 10.0))
    batch = privacy.deamplify_without_replacement(1.0 / 20, 1000, 100)
    assert scale == pytest.approx(0.01 / batch, rel=1e-5)


def test_calibration_at_the_ends_of_the_bracket():
    def run(sigma):
        return Gaussian(sigma, 1.0)

    assert calibrate(run, Budget(1.0, 1e-5), (100.0, 200.0)) == 100.0  # the lower end fits
    with pytest.raises(ValueError, match=r"bracket = \(0.1, 0.2\) does not fit"):
        calibrate(run, Budget(1.0, 1e-5), (0.1, 0.2))
    with pytest.raises(ValueError, match=r"bracket\[1\] must lie in"):
        calibrate(run, Budget(1.0, 1e-5), (2.0, 1.0))
    with pytest.raises(ValueError, match="tol must lie in"):
        calibrate(run, Budget(1.0, 1e-5), (1.0, 2.0), tol=0.0)
    with pytest.raises(TypeError, match=r"bracket must be \(low, high\), got 1.0"):
        calibrate(run, Budget(1.0, 1e-5), 1.0)
    with pytest.raises(TypeError, match="make_events must be a function of a number"):
        calibrate(1.0, Budget(1.0, 1e-5), (1.0, 2.0))


@pytest.mark.parametrize("part", [0.5, 0.8, 0.95, 0.9999])
def test_calibration_stays_within_its_bracket(part):
    """Wherever its lower end is: there may be no events for less noise."""
    asked = []

    def run(sigma):
        asked.append(sigma)
        return Gaussian(sigma, 1.0)

    best = calibrate(run, Budget(1.0, 1e-5), (0.1, 100.0))
    asked.clear()
    assert calibrate(run, Budget(1.0, 1e-5), (part * best, 100.0)) == pytest.approx(best, rel=1e-6)
    assert part * best * (1.0 - 1e-15) <= min(asked) and max(asked) <= 100.0 * (1.0 + 1e-15)


@pytest.mark.slow
def test_importing_is_light():
    import subprocess

    heavy = ("numba", "cvxpy", "matplotlib", "sklearn", "scipy.optimize")
    code = f"import sys, dpanalysis.privacy; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


class Gossip(Event):
    """A release with a Renyi curve but no dominating pair."""

    def rdp_cost(self, orders):
        return 0.5 * np.asarray(orders, dtype=float)


def test_a_batch_is_a_known_pair_only_if_all_its_events_are():
    """One event without a dominating pair brings the factor 3 of the lemma into the sum."""
    orders = np.array([3.0, 8.0])
    events = [Gaussian(2.0, 1.0), Gossip()]

    def curve(a):
        return events[0].rdp_cost(a) + events[1].rdp_cost(a)

    for listed in (events, events[::-1]):
        found = Sampled(Poisson(0.1), listed).rdp_cost(orders)
        np.testing.assert_allclose(found, rdp_poisson(orders, 0.1, curve), rtol=1e-12)
        assert (found > rdp_poisson(orders, 0.1, curve, exact_pair=True)).all()
        assert not Sampled(Full(), listed).exact_pair
    assert Sampled(Full(), events[:1]).exact_pair
    assert not Sampled(Poisson(0.1), events[:1]).exact_pair


@given(std=st.floats(0.3, 30.0), count=st.integers(1, 50), rate=st.sampled_from([None, 0.1]))
def test_costs_without_a_grid_are_never_below_and_exact_for_gaussians(std, count, rate):
    event = Gaussian(std, 1.0)
    event = event if rate is None else Sampled(Poisson(rate), [event])
    budget = Budget(1.0, 1e-6, ADD)
    quick, tight = (f(Repeated(event, count), budget) for f in (spent_without_grid, spent))
    assert quick >= tight * (1.0 - 1e-12)
    assert rate or quick == tight


def test_the_relations_of_nested_events_are_checked():
    noise = privacy.events.Gaussian(1.0, 1.0)
    best = privacy.events.BestOf(
        [privacy.events.Sampled(privacy.Poisson(0.01), [noise])], dpa.tuning.Repeats(5.0)
    )

    class Odd(privacy.events.Event):
        relations = ("add_or_remove_one",)

        def pure_cost(self):
            return 0.1

    shuffled = privacy.events.Epoch(privacy.Shuffle(10), [noise])
    guard = privacy.Filter(privacy.Budget(5.0, 1e-5, "replace_one"), order=8.0)
    for event, relation in (
        (privacy.events.Sampled(privacy.Full(), [best]), "replace_one"),
        (privacy.events.Epoch(privacy.Shuffle(10), [best]), "replace_one"),
        (privacy.events.Sampled(privacy.WithoutReplacement(50), [best], 100), "replace_one"),
        (privacy.events.Sampled(privacy.WithoutReplacement(5), [Odd()], 10), "replace_one"),
        (privacy.events.Sampled(privacy.Poisson(0.5), [shuffled]), "add_or_remove_one"),
        (privacy.events.Repeated(privacy.events.Sampled(privacy.Full(), [best]), 3), "replace_one"),
    ):
        assert relation not in event.relations
        with pytest.raises(IncompatibleAccounting, match="cannot be accounted under"):
            privacy.epsilon(event, 1e-5, relation)
        if relation == "replace_one":
            with pytest.raises(IncompatibleAccounting, match="cannot be accounted under"):
                guard.cost(event)
    assert privacy.events.Sampled(privacy.Full(), [noise]).relations == (
        "replace_one",
        "add_or_remove_one",
    )


def test_arguments_that_are_no_events_and_no_budget_are_named():
    with pytest.raises(TypeError, match="events must be an event or a sequence of events, got 5"):
        privacy.fits(5, privacy.Budget(1.0))
    for events in (5, None, "gaussian"):
        with pytest.raises(TypeError, match=f"events must be an event .*, got {events!r}"):
            privacy.privacy_curve(events, "replace_one")
    with pytest.raises(TypeError, match="budget must be a Budget"):
        privacy.fits(privacy.events.Pure(0.5), 1.0)
    noisy = lambda scale: privacy.events.Gaussian(scale, 1.0)  # noqa: E731
    with pytest.raises(ValueError, match=r"is too small: .* at delta = 0 only pure releases do"):
        privacy.calibrate(noisy, privacy.Budget(1.0), (0.1, 10.0))


@pytest.mark.parametrize("accountant", ["tightest", "zcdp", "rdp", "pld"])
def test_events_may_come_from_an_iterator(accountant):
    """An iterator that was read once is empty, and no events fit every budget."""
    step = Gaussian(0.5, 1.0)
    budgets = [Budget(1.0, 1e-6, ADD)]
    if accountant in ("tightest", "zcdp"):
        budgets.append(Budget.zcdp(0.1, ADD))
    for budget in budgets:
        assert not fits(iter([step] * 9), budget, accountant)
        cost = privacy.spent([step] * 9, budget, accountant)
        assert privacy.spent((step for _ in range(9)), budget, accountant) == cost


@pytest.mark.parametrize("ask", [privacy.spent, privacy.fits, privacy.plan_order])
def test_what_is_not_a_budget_is_named(ask):
    with pytest.raises(TypeError, match="budget must be"):
        ask(privacy.events.Pure(0.5), 1.0)


def test_huge_orders_cost_as_if_without_sampling():
    """No sum of so many terms is formed: it would take all memory."""
    orders = np.array([1.5, 1e9, math.inf])
    base = privacy.rdp_laplace(orders, 1.0)
    for found in (
        privacy.rdp_poisson(orders, 0.1, lambda a: privacy.rdp_laplace(a, 1.0)),
        privacy.rdp_without_replacement(orders, 100, 10, lambda a: privacy.rdp_laplace(a, 1.0)),
    ):
        assert found[0] < base[0] and found[1] == base[1] and found[2] < base[2]
    most = privacy.rdp_poisson(2.0**14, 0.1, lambda a: privacy.rdp_gaussian(a, 200.0), True)
    assert most < 0.9 * privacy.rdp_gaussian(2.0**14, 200.0)
    assert privacy.rdp_with_replacement([1e9], 100, 5, 2.0) == pytest.approx(12.5 * 1e9 / 4.0)


@pytest.mark.parametrize("epsilon", [math.nan, [0.5, math.nan]])
def test_delta_at_no_number_is_refused(epsilon):
    curve = privacy.privacy_curve(privacy.events.Pure(0.5), ADD)
    for ask in (curve.delta, lambda loss: privacy.gaussian_delta(1.0, loss)):
        with pytest.raises(ValueError, match="epsilon must not be NaN"):
            ask(epsilon)
    for wrong in ("a", math.nan):
        with pytest.raises(ValueError, match="exact_pair must be"):
            privacy.rdp_poisson(2.0, 0.1, lambda a: a, exact_pair=wrong)
