"""The search finds worst cases, and a violation of every bound that is weakened."""

import math
from functools import partial

import numpy as np
import pytest
from hypothesis import given, target
from hypothesis import strategies as st
from scipy import special

from dpanalysis import audit, privacy
from dpanalysis.audit.attack import (
    Attack,
    Range,
    pair_quotient,
    quotient,
    worst_case,
)
from dpanalysis.audit.laws import (
    Subsampling,
    laws_of,
    poisson,
    presence,
    renyi_curve,
    without_replacement,
)
from dpanalysis.papers.accounting import DELTA, EXCESS, LOSS, STD, composition, releases, sampling
from dpanalysis.papers.tools import unit
from dpanalysis.privacy.accounting import pairs
from dpanalysis.privacy.accounting.epochs import Bins
from dpanalysis.privacy.accounting.pairs import Pair
from dpanalysis.privacy.accounting.rdp import rdp_pure_poisson, rdp_pure_without_replacement
from dpanalysis.privacy.accounting.relations import ADD_OR_REMOVE_ONE, REPLACE_ONE
from dpanalysis.privacy.budget import Filter
from dpanalysis.privacy.events import AboveThreshold, Event, Gaussian, Laplace, Sampled

# --- the search ---


@pytest.mark.slow
def test_minima_are_found_inside_and_on_the_edge_of_all_kinds_of_ranges():
    space = {
        "x": Range(-3.0, 5.0),
        "y": Range(1e-6, 1e3, log=True),
        "n": Range(1, 40, integer=True),
        "v": Range(-1.0, 2.0, size=2),
    }

    def valley(x, y, n, v):
        return (x - 1.2) ** 2 + (math.log(y) + 3.0) ** 2 + abs(n - 17) + (v[0] - 0.3) ** 2 + v[1]

    found = worst_case(valley, space, starts=400, searches=4, steps=600)
    assert found.ratio == pytest.approx(-1.0, abs=1e-3)
    assert found.at["n"] == 17 and isinstance(found.at["n"], int)
    assert found.at["x"] == pytest.approx(1.2, abs=0.05)
    assert found.at["v"][1] == pytest.approx(-1.0, abs=1e-3)
    assert valley(**found.at) == found.ratio


def test_one_search_descends_to_the_minimum():
    space = {"x": Range(-3.0, 5.0), "y": Range(-1.0, 1.0)}
    found = worst_case(lambda x, y: (x - 1.2) ** 2 + abs(y), space, starts=1, searches=1, steps=200)
    assert found.ratio < 1e-6


@pytest.mark.parametrize(("starts", "searches", "steps"), [(1, 0, 1), (7, 2, 5), (20, 3, 90)])
def test_a_search_repeats_and_its_effort_is_fixed(starts, searches, steps):
    space = {"x": Range(0.1, 10.0, log=True), "v": Range(-1.0, 1.0, size=3)}
    calls = []

    def function(x, v):
        calls.append(x)
        return x + float(np.abs(v).sum())

    kinds = {"starts": starts, "searches": searches, "steps": steps, "rng": 3}
    guesses = [{"x": 0.5, "v": [0.0, 0.0, 0.5]}]
    first = worst_case(function, space, guesses=guesses, **kinds)
    assert first.evaluations == len(calls) == 1 + starts + min(searches, starts + 1) * steps
    second = worst_case(function, space, guesses=guesses, **kinds)
    assert first.ratio == second.ratio and first.at["x"] == second.at["x"]
    np.testing.assert_array_equal(first.at["v"], second.at["v"])
    assert first.ratio <= 1.0


def test_a_flat_function_costs_the_same():
    found = worst_case(lambda x: 1.0, {"x": Range(0.0, 1.0)}, starts=5, searches=2, steps=77)
    assert found.ratio == 1.0 and found.evaluations == 5 + 2 * 77
    assert str(Attack(1.25, {"w": np.array([0.5, 2.0])}, 1)) == "1.25 at w = (0.5, 2)"


def test_nan_is_an_error_that_names_the_point_and_infinity_is_not():
    space = {"x": Range(0.0, 1.0)}
    with pytest.raises(ArithmeticError, match=r"NaN at .'x'"):
        worst_case(lambda x: math.nan if x > 0.5 else 1.0, space)
    with pytest.raises(ArithmeticError, match=r"known only up to 0.5, at .'x'"):
        worst_case(lambda x: quotient(1.0, 2.0, 0.5), space)
    assert worst_case(lambda x: math.inf if x > 0.1 else x, space).ratio == 0.0
    assert worst_case(lambda x: math.inf, space).ratio == math.inf
    assert worst_case(lambda x: -math.inf if x < 0.5 else 1.0, space).ratio == -math.inf


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: worst_case(abs, {}), "space must"),
        (lambda: worst_case(abs, {"x": Range(0.0, 1.0)}, starts=0), "starts must"),
        (lambda: worst_case(abs, {"x": Range(0.0, 1.0)}, searches=-1), "searches must"),
        (lambda: worst_case(abs, {"x": Range(0.0, 1.0)}, steps=0), "steps must"),
        (lambda: worst_case(abs, {"x": Range(0.0, 1.0)}, guesses=[{"x": 2.0}]), "must be in Range"),
        (
            lambda: worst_case(abs, {"x": Range(0.0, 1.0, size=2)}, guesses=[{"x": 1.0}]),
            "must be in Range",
        ),
        (lambda: Range(0.0, 1.0, log=True), "low must"),
        (lambda: Range(2.0, 1.0), "high must"),
        (lambda: Range(0.0, 1.0, size=0), "size must"),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.slow
@given(
    low=st.floats(1e-6, 10.0),
    factor=st.floats(1.0, 1e6),
    unit=st.floats(0.0, 1.0),
    log=st.booleans(),
)
def test_coordinates_and_values_belong_together(low, factor, unit, log):
    part = Range(low, low * factor, log=log)
    value = part.value([unit])
    assert part.low <= value <= part.high
    assert part.value(part.unit(value)) == pytest.approx(value, rel=1e-9)


@given(low=st.integers(1, 50), more=st.integers(0, 50), log=st.booleans(), data=st.data())
def test_all_integers_are_reached(low, more, log, data):
    part = Range(low, low + more, log=log, integer=True)
    value = data.draw(st.integers(low, low + more))
    assert part.value(part.unit(value)) == value
    assert part.value([0.0]) == low and part.value([1.0]) == low + more


@pytest.mark.parametrize("low", [1, 10])
@pytest.mark.parametrize("log", [False, True])
def test_integers_have_equal_shares_of_the_box_or_of_its_logarithm(low, log):
    part = Range(low, low + 10, log=log, integer=True)
    values = np.array([part.value([unit]) for unit in np.linspace(0.0, 1.0, 10_001)])
    numbers = np.arange(low, low + 11)
    sizes = np.log((numbers + 0.5) / (numbers - 0.5)) if log else np.ones(11)
    shares = (values[:, None] == numbers).mean(axis=0)
    np.testing.assert_allclose(shares, sizes / sizes.sum(), rtol=0.02)


@pytest.mark.parametrize(
    ("bound", "exact", "expected"),
    [
        (2.0, 1.0, 2.0),
        (0.0, 0.0, 1.0),
        (math.inf, math.inf, 1.0),
        (1.0, 0.0, math.inf),
        (0.0, 1.0, 0.0),
        (5.0, math.inf, 0.0),
        (math.inf, 1.0, math.inf),
        (-1.0, 0.5, -2.0),
        (-1.0, 0.0, -math.inf),
        (1e-3, 1e-18, math.inf),
    ],
)
def test_quotients(bound, exact, expected):
    assert quotient(bound, exact) == expected


@pytest.mark.parametrize(
    "call",
    [
        (math.nan, 1.0),
        (1.0, math.nan),
        (1.0, -1.0),
        (1.0, 2.0, 0.1),
        (1.0, 1.0, math.nan),
        (1e-9, 1e-9, 1e-12),
    ],
)
def test_quotients_of_nonsense_are_errors(call):
    with pytest.raises(ArithmeticError):
        quotient(*call)


def test_bounds_are_compared_with_the_worse_direction():
    p, q, epsilon = [0.5, 0.5, 0.0], [0.45, 0.45, 0.1], 0.05
    delta = {audit.hockey_stick(p, q, epsilon), audit.hockey_stick(q, p, epsilon)}
    assert len(delta) == 2
    for laws in ((p, q), (q, p)):
        assert pair_quotient(max(delta), laws, epsilon=epsilon) == 1.0
        assert pair_quotient(5.0, laws, order=2.0) == 0.0
    p, q = [0.9, 0.1], [0.5, 0.5]
    cost = {audit.renyi_divergence(p, q, 2.0), audit.renyi_divergence(q, p, 2.0)}
    assert len(cost) == 2
    for laws in ((p, q), (q, p)):
        assert pair_quotient(max(cost), laws, order=2.0) == 1.0
    for both in ({}, {"order": 2.0, "epsilon": 0.0}):
        with pytest.raises(TypeError, match="give order or epsilon"):
            pair_quotient(1.0, laws, **both)


def test_an_uncertain_value_far_below_the_bound_does_not_matter():
    assert quotient(1.0, 1e-12, error=1e-12) == 1e12


# --- mechanisms as tables ---


@pytest.mark.parametrize(("n", "m"), [(2, 1), (3, 2), (4, 2), (4, 4)])
def test_batches_without_replacement_are_uniform(n, m):
    sampling = without_replacement(n, m)
    for law in (sampling.first, sampling.second):
        assert law.sum() == pytest.approx(1.0)
        assert np.count_nonzero(law) == math.comb(n, m)
    # The batch contains the record with probability m/n.
    both = (sampling.first > 0.0) & (sampling.second > 0.0)
    assert sampling.first[~both].sum() == pytest.approx(m / n)


@pytest.mark.parametrize("rate", [0.0, 0.2, 1.0])
def test_poisson_batches_are_independent_coins(rate):
    sampling = poisson(3, rate)
    size = np.array([0, 1, 1, 1, 2, 2, 2, 3])
    np.testing.assert_allclose(sampling.first, rate**size * (1.0 - rate) ** (3 - size))
    assert sampling.second.sum() == pytest.approx(1.0)
    assert np.count_nonzero(sampling.second) == {0.0: 1, 0.2: 4, 1.0: 1}[rate]
    assert len(sampling.neighbours) == 12  # edges of a cube


@pytest.mark.parametrize("relation", [ADD_OR_REMOVE_ONE, REPLACE_ONE])
def test_looking_at_one_record_is_the_enumeration_of_all_batches(relation):
    """Randomized response on the presence of one record: lumped batches have the full law."""
    n, m, q = 4, 1, 0.25
    yes, no = [0.8, 0.2], [0.3, 0.7]
    if relation == REPLACE_ONE:
        lumped, rows = presence(m / n, relation), [yes, no, [0.5, 0.5]]
        full = without_replacement(n, m)
        table = [yes, [0.5, 0.5], [0.5, 0.5], [0.5, 0.5], no]
    else:
        lumped, rows = presence(q, relation), [yes, no]
        full = poisson(2, q)
        table = [no, no, yes, yes]
    for a, b in zip(lumped.laws(rows), full.laws(table)):
        np.testing.assert_allclose(a, b, rtol=1e-14)
    assert lumped.loss(rows) == full.loss(table) == pytest.approx(math.log(7 / 2))


@given(
    logits=st.lists(st.floats(-1.0, 1.0), min_size=6, max_size=6),
    spread=st.floats(1e-2, 20.0),
    excess=st.floats(1e-6, 400.0),
)
def test_curves_of_tables_are_exact(logits, spread, excess):
    table = laws_of(logits, 3, spread)
    sampling = Subsampling(np.zeros(2), np.zeros(2), np.array([[0, 1]]))
    exact = max(audit.renyi_divergence(*pair, 1.0 + excess) for pair in (table, table[::-1]))
    assert sampling.curve(table)([1.0 + excess])[0] == pytest.approx(exact, rel=1e-7, abs=1e-15)
    assert sampling.curve(table)([np.inf])[0] == pytest.approx(sampling.loss(table), rel=1e-12)


# --- helpers of the claims ---


@pytest.mark.parametrize("order", [1.001, 2.0, 7.5])
@pytest.mark.parametrize("spread", [0.8, 3.0])
def test_finite_laws_have_the_divergences_of_the_noise(order, spread):
    laplace, gaussian = sampling.laplace_law(spread), sampling.gaussian_law(spread, order)
    for pair, cost in (
        (laplace, privacy.rdp_laplace(order, spread)),
        (gaussian, privacy.rdp_gaussian(order, spread)),
    ):
        assert pair[0].sum() == pytest.approx(1.0, abs=1e-12)
        for laws in (pair, pair[::-1]):
            assert audit.renyi_divergence(*laws, order) == pytest.approx(cost, rel=1e-9)


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_cells_have_slightly_less_divergence_and_never_more(noise):
    pair = composition.cells(noise, 1.3)
    center = releases.gaussian if noise == "gaussian" else releases.laplace
    for epsilon in (0.0, 0.3):
        exact = audit.hockey_stick(center(1.0, 1.3), center(0.0, 1.3), epsilon)
        cut = audit.hockey_stick(*pair, epsilon)
        assert exact * 0.995 < cut <= exact * (1.0 + 1e-9)


def test_a_transcript_is_a_law_and_stops_where_the_filter_refuses():
    coins = np.array([[0.8, -0.8]] * composition.NODES)  # each of loss .8
    laws = composition.transcript(Filter(privacy.Budget(1.7)), coins, weaken=False)
    assert laws.shape == (2, 4)  # two flips, four outcomes
    np.testing.assert_allclose(laws.sum(axis=1), 1.0)
    assert np.abs(np.log(laws[0] / laws[1])).max() == pytest.approx(1.6)
    weakened = composition.transcript(Filter(privacy.Budget(1.7)), coins)
    assert weakened.shape[1] > 4
    assert 1.65 < np.abs(np.log(weakened[0] / weakened[1])).max() <= 1.7


def test_subsampled_densities_keep_their_tails_at_rate_one():
    """At rate 1 both directions agree, if no part of the far tail is lost."""
    for law in (audit.subsampled_gaussian, audit.subsampled_laplace):
        pair = law(0.3, 1.0, 1.0)
        there = audit.renyi_divergence(*pair, 2.0)
        assert audit.renyi_divergence(*pair[::-1], 2.0) == pytest.approx(there, rel=1e-9)


# --- weakened bounds ---

RATE, SPREAD = sampling.RATE, sampling.SPREAD
PAIR = releases.PAIR
NOISY = {"std": STD, "delta": DELTA}
BUDGET = {"epsilon": LOSS, "delta": DELTA}


class Costs(Event):
    """An event with given costs."""

    def __init__(self, rdp, pure=math.inf):
        self._rdp, self._pure = rdp, pure

    def pure_cost(self):
        return self._pure

    def rdp_cost(self, orders):
        return np.asarray(self._rdp(np.asarray(orders)))


def euclidean_laplace(excess, scale, shift):
    """The Laplace ratio with the L2 norm in place of the L1 norm."""
    moved = unit(shift, 1)
    return releases.laplace_ratio(
        excess, scale, shift, event=lambda b, s: Laplace(b, float(np.linalg.norm(moved)))
    )


def rare_answer_misplaced(order, loss):
    """A former error that this search found: e^(-order loss) for e^(-(order - 1) loss)."""
    if order * loss < 20.0:
        return privacy.rdp_pure(order, loss)
    weight = special.expit(loss)
    rest = special.expit(-loss) * math.exp(-(2.0 * order - 1.0) * loss)
    return loss + math.log(weight + rest) / (order - 1.0)


def on_tables(ratio, bound, outcomes=2, *, sampling=None):
    """Return a ratio of tables of mechanisms that look at one record of 1000."""

    def function(fraction, logits, spread, **others):
        relation = ADD_OR_REMOVE_ONE if sampling == "poisson" else REPLACE_ONE
        m = max(1, round(1000 * fraction))
        fraction = fraction if sampling == "poisson" else m / 1000
        table = laws_of(logits, outcomes, spread)
        return ratio(presence(fraction, relation), table, fraction, 1000, m, **others, bound=bound)

    return function


def tables(logits, **more):
    return {
        "fraction": Range(1e-3, 0.9, log=True),
        "logits": Range(-1.0, 1.0, size=logits),
        "spread": Range(1e-2, 12.0, log=True),
        **more,
    }


def swapped_only(order, curve, loss, fraction, n, m):
    """Divergence of randomized response on a Poisson batch, in one direction only."""
    yes, no = sampling.randomized_response(loss)
    return float(renyi_curve([no], [fraction * yes + (1.0 - fraction) * no], [order])[0, 0])


def one_way(fraction, logits, spread, excess):
    """The exact-pair formula for any pair, with its curve in one direction only."""
    order = 1.0 + excess
    p, q = laws_of(logits, 3, spread)
    bound = privacy.rdp_poisson(
        order, fraction, lambda a: renyi_curve([p], [q], np.ravel(a))[0].reshape(np.shape(a)), True
    )
    return pair_quotient(
        bound, (fraction * p + (1.0 - fraction) * q, q), order=order, tolerance=1e-5
    )


pure, renyi = sampling.pure_ratio, sampling.renyi_ratio
on_poisson = partial(on_tables, sampling="poisson")


def pure_bound(function):
    return lambda loss, fraction, n, m: function(loss, fraction, n, m)


def renyi_bound(function):
    return lambda order, curve, loss, fraction, n, m: float(
        function(order, curve, loss, fraction, n, m)
    )


def apart(event):
    """Amplify every release from a batch separately, and add the costs."""
    parts = [Sampled(event.sampling, [part], n=event.n) for part in event.events]
    return Costs(
        lambda orders: sum(part.rdp_cost(orders) for part in parts),
        sum(part.pure_cost() for part in parts),
    )


class Careless(Filter):
    """Grants every event while any budget is left."""

    def can_spend(self, event):
        return self.spent < self.limit

    def spend(self, event):
        self._spent += self.cost(event)


class HalfPrice(Filter):
    """Charges half of every cost."""

    def cost(self, event):
        return 0.5 * super().cost(event)


shared_bound = partial(privacy.rdp_above_threshold, shared=True)


def searches_of(count, shared):
    """Return the space of a few queries in which the weakened bounds below break."""
    return {
        **composition.space(count, shared),
        "excess": Range(0.01, 50.0, log=True),
        "threshold_scale": Range(0.1, 10.0, log=True),
        "query_scale": Range(0.1, 10.0, log=True),
        "levels": Range(-3.0, 3.0, size=count),
    }


# One query, little threshold noise: a nearly tight bound. Fixed scales: it is computed once.
ONE_QUERY = {
    **searches_of(1, shared=False),
    "levels": Range(-6.0, 3.0, size=1),
    "threshold_scale": Range(0.1, 0.1),
    "query_scale": Range(0.7, 0.7),
}


class OneWay(Bins):
    def remove(self, loss):
        return self.add(loss)


class RoundedDown(Bins):
    def _laws(self):
        ratios, mass, other, infinite = super()._laws()
        return 0.98 * ratios, mass, other, infinite


class OneBatch(Pair):
    def __init__(self, mu, laplace, *, fraction, poisson, batches):
        super().__init__(mu, laplace, fraction=fraction, poisson=poisson)


class FreeThreshold(AboveThreshold):
    """Charges for the queries only."""

    def pure_cost(self):
        return self.sensitivity / self.query_scale


class HalfTheOrder(AboveThreshold):
    """Evaluates the curve at half the order."""

    def rdp_cost(self, orders):
        return super().rdp_cost(np.maximum(np.asarray(orders) / 2.0, 1.001))


# name -> ratio of the bound, ratio of the weakened bound, space
HOLES = {
    "gaussian: variance doubled": (
        releases.gaussian_ratio,
        partial(releases.gaussian_ratio, event=lambda std, s: Gaussian(math.sqrt(2.0) * std, s)),
        {"excess": EXCESS, "std": STD, "shift": Range(-1.0, 1.0, size=2)},
    ),
    "laplace: L2 norm": (
        releases.laplace_ratio,
        euclidean_laplace,
        {"excess": EXCESS, "scale": Range(0.1, 10.0), "shift": Range(-1.0, 1.0, size=2)},
    ),
    "pure: the curve of Laplace noise": (
        releases.pure_ratio,
        partial(releases.pure_ratio, bound=privacy.rdp_laplace),
        {"excess": EXCESS, **PAIR},
    ),
    "pure: the rare answer misplaced": (
        releases.pure_ratio,
        partial(releases.pure_ratio, bound=rare_answer_misplaced),
        {"excess": Range(1e-11, 1e-3, log=True), **PAIR, "spread": Range(1.0, 20.0)},
    ),
    "zcdp of pure: epsilon^2/8": (
        releases.zcdp_ratio,
        partial(releases.zcdp_ratio, bound=lambda epsilon: epsilon**2 / 8.0),
        {"excess": EXCESS, **PAIR},
    ),
    "rdp_to_epsilon: order instead of order - 1": (
        releases.rdp_to_epsilon_ratio,
        partial(
            releases.rdp_to_epsilon_ratio,
            bound=lambda a, r, d: (
                max(0.0, r[0] + math.log1p(-1 / a[0]) - math.log(d * a[0]) / a[0]),
                a[0],
            ),
        ),
        {"excess": EXCESS, "delta": DELTA, **PAIR},
    ),
    "zcdp_to_epsilon: rho forgotten": (
        releases.zcdp_to_epsilon_ratio,
        partial(
            releases.zcdp_to_epsilon_ratio, bound=lambda rho, d: math.sqrt(2.0 * rho * -math.log(d))
        ),
        {"delta": DELTA, **PAIR},
    ),
    "epsilon_to_zcdp: the classical Gaussian calibration": (
        releases.epsilon_to_zcdp_ratio,
        partial(
            releases.epsilon_to_zcdp_ratio, bound=lambda eps, d: eps**2 / (4 * math.log(1.25 / d))
        ),
        BUDGET,
    ),
    "gaussian_delta: only the noisier of two releases": (
        releases.two_gaussians_ratio,
        lambda first, second, epsilon: releases.two_gaussians_ratio(
            first, second, epsilon, bound=lambda s, e: privacy.gaussian_delta(min(first, second), e)
        ),
        {"first": Range(0.5, 5.0), "second": Range(0.5, 5.0), "epsilon": Range(0.0, 2.0)},
    ),
    "gaussian_epsilon: the classical formula": (
        releases.gaussian_epsilon_ratio,
        partial(
            releases.gaussian_epsilon_ratio,
            bound=lambda std, d: math.sqrt(2.0 * math.log(1.25 / d)) / std,
        ),
        NOISY,
    ),
    "laplace_epsilon: noise for the full batch": (
        partial(sampling.laplace_mean_ratio, dimension=1),
        partial(
            sampling.laplace_mean_ratio,
            dimension=1,
            bound=lambda s, b, n, m: s / (n * b),
        ),
        {"epsilon": LOSS, "m": Range(1, 3, integer=True), "data": Range(-1.0, 1.0, size=4)},
    ),
    "amplification: q epsilon": (
        on_tables(pure, pure_bound(lambda e, q, n, m: sampling.amplify_poisson(e, q))),
        on_tables(pure, pure_bound(lambda e, q, n, m: q * e)),
        tables(6),
    ),
    "amplification by Poisson: q epsilon": (
        on_poisson(pure, pure_bound(lambda e, q, n, m: sampling.amplify_poisson(e, q))),
        on_poisson(pure, pure_bound(lambda e, q, n, m: q * e)),
        tables(4),
    ),
    "deamplification: epsilon/q": (
        sampling.deamplify_ratio,
        partial(sampling.deamplify_ratio, bound=lambda e, q: e / q),
        {"epsilon": Range(0.01, 5.0), "fraction": Range(0.1, 1.0), "share": Range(0.01, 0.9)},
    ),
    "poisson gaussian: the small-noise formula": (
        sampling.poisson_gaussian_ratio,
        partial(sampling.poisson_gaussian_ratio, bound=lambda a, q, s: q**2 * a / (2.0 * s**2)),
        {
            "excess": Range(0.1, 30.0, log=True),
            "rate": RATE,
            "std": Range(0.5, 10.0),
            "others": Range(0.0, 0.0, size=1),
        },
    ),
    "poisson: order rounded down": (
        on_poisson(renyi, renyi_bound(lambda a, c, e, q, n, m: privacy.rdp_poisson(a, q, c))),
        on_poisson(
            renyi,
            renyi_bound(lambda a, c, e, q, n, m: privacy.rdp_poisson(max(2, math.floor(a)), q, c)),
        ),
        tables(4, excess=Range(0.5, 9.0)),
    ),
    "poisson: q times the base": (
        on_poisson(renyi, renyi_bound(lambda a, c, e, q, n, m: privacy.rdp_poisson(a, q, c))),
        on_poisson(renyi, renyi_bound(lambda a, c, e, q, n, m: q * c([a])[0])),
        tables(4, excess=EXCESS),
    ),
    "poisson: the curve of one direction, factor 1": (
        on_poisson(renyi, renyi_bound(lambda a, c, e, q, n, m: privacy.rdp_poisson(a, q, c)), 3),
        one_way,
        {**tables(6), "excess": Range(1.0, 20.0)},
    ),
    "pure poisson: only the other direction": (
        on_poisson(renyi, renyi_bound(lambda a, c, e, q, n, m: rdp_pure_poisson(a, q, e))),
        on_poisson(renyi, swapped_only),
        tables(4, excess=EXCESS),
    ),
    "without replacement: half the rate": (
        on_tables(
            renyi,
            renyi_bound(lambda a, c, e, q, n, m: privacy.rdp_without_replacement(a, n, m, c, e)),
        ),
        on_tables(
            renyi,
            renyi_bound(
                lambda a, c, e, q, n, m: privacy.rdp_without_replacement(a, 2 * n, m, c, e)
            ),
        ),
        tables(6, excess=EXCESS),
    ),
    "pure without replacement: the loss q epsilon": (
        on_tables(
            renyi,
            renyi_bound(lambda a, c, e, q, n, m: rdp_pure_without_replacement(a, n, m, e)),
        ),
        on_tables(renyi, renyi_bound(lambda a, c, e, q, n, m: privacy.rdp_pure(a, q * e))),
        tables(6, excess=EXCESS),
    ),
    "with replacement: a record counts once": (
        sampling.drawn_loss_ratio,
        partial(
            sampling.drawn_loss_ratio,
            bound=lambda e, n, m: sampling.amplify_poisson(e, 1 - (1 - 1 / n) ** m),
        ),
        {"epsilon": LOSS, "m": Range(2, 3, integer=True), "data": Range(-0.5, 0.5, size=4)},
    ),
    "gaussian noise with replacement: a record counts once": (
        sampling.drawn_renyi_ratio,
        partial(
            sampling.drawn_renyi_ratio,
            bound=lambda a, n, m, s: privacy.rdp_without_replacement(
                a, n, m, lambda orders: privacy.rdp_gaussian(orders, s)
            ),
        ),
        {
            "excess": Range(1.0, 10.0),
            "std": Range(1.0, 5.0),
            "m": Range(2, 2, integer=True),
            "data": Range(-0.5, 0.5, size=3),
        },
    ),
    **{
        f"balls in bins: {what}": (
            sampling.two_bins_ratio,
            partial(sampling.two_bins_ratio, bound=pair),
            {
                "std": Range(0.5, 3.0),
                "loss": Range(-1.0, 1.0),
                "record": Range(0.5, 1.0),
                "other": Range(-1.0, 1.0),
            },
        )
        for what, pair in (
            ("one direction only", OneWay),
            ("likelihood ratios rounded down", RoundedDown),
            ("one batch of the epoch", OneBatch),
        )
    },
    **{
        f"a shared batch amplified apart: {kind}, {relation}": (
            partial(composition.shared_batch_ratio, relation, kind),
            partial(composition.shared_batch_ratio, relation, kind, cost=apart),
            {
                "fraction": Range(1e-3, 0.9, log=True),
                "first": Range(-1.0, 1.0, size=2 * rows),
                "second": Range(-1.0, 1.0, size=2 * rows),
                "spread": Range(0.1, 5.0),
                "excess": EXCESS,
            },
        )
        for relation, rows in ((ADD_OR_REMOVE_ONE, 2), (REPLACE_ONE, 3))
        for kind in ("loss", "pure")
    },
    "filter of pure losses: careless at the end": (
        composition.pure_filter_ratio,
        partial(composition.pure_filter_ratio, make=Careless),
        {"epsilon": Range(0.1, 5.0), **composition.COINS},
    ),
    "filter of zCDP: half price": (
        composition.zcdp_filter_ratio,
        partial(composition.zcdp_filter_ratio, make=HalfPrice),
        {"rho": Range(0.01, 1.0), "excess": EXCESS, **composition.COINS},
    ),
    "filter at one order: careless at the end": (
        composition.delta_filter_ratio,
        partial(composition.delta_filter_ratio, make=Careless),
        {
            "epsilon": Range(0.5, 5.0),
            "delta": Range(1e-3, 0.3, log=True),
            "excess": Range(0.5, 20.0, log=True),
            **composition.COINS,
        },
    ),
    **{
        f"above threshold, {noise}: the threshold's noise alone": (
            partial(composition.above_threshold_ratio, noise),
            partial(
                composition.above_threshold_ratio,
                noise,
                bound=lambda a, noise, first, second, k: (
                    privacy.rdp_laplace(a, 1.0 / first)
                    if noise == "laplace"
                    else privacy.rdp_gaussian(a, first)
                ),
            ),
            searches_of(3, shared=False),
        )
        for noise in ("laplace", "gaussian")
    },
    **{
        f"above threshold of shared queries, {noise}: half the sensitivity": (
            partial(
                composition.above_threshold_ratio,
                noise,
                bound=partial(shared_bound, coupling=coupling),
            ),
            partial(
                composition.above_threshold_ratio,
                noise,
                bound=lambda a, noise, first, second, k, coupling=coupling: shared_bound(
                    a, noise, 2.0 * first, 2.0 * second, k, coupling=coupling
                ),
            ),
            searches_of(3, shared=True),
        )
        for noise, coupling in (("laplace", 1.0), ("gaussian", "best"))
    },
    "event of above threshold: the threshold costs nothing": (
        partial(composition.event_ratio, "laplace", None),
        partial(composition.event_ratio, "laplace", None, make=FreeThreshold),
        {key: part for key, part in searches_of(3, shared=True).items() if key != "excess"},
    ),
    "event of above threshold: the curve at half the order": (
        partial(composition.event_ratio, "laplace"),
        partial(composition.event_ratio, "laplace", make=HalfTheOrder),
        {**ONE_QUERY, "excess": Range(1.0, 4.0, log=True)},
    ),
    "event of above threshold: amplified apart from the gradient": (
        partial(composition.event_ratio, "laplace"),
        partial(composition.event_ratio, "laplace", cost=apart),
        {
            **ONE_QUERY,
            "excess": Range(4.0, 6.0),
            "rate": Range(1e-2, 0.1, log=True),
            "std": Range(0.5, 1.0),
        },
    ),
}


class Found(Exception):
    """A search has reached a point where the ratio is below .97."""


def hole(ratio, space, **effort):
    """Return the first point of a search with a ratio below .97, and fail if there is none."""

    def tried(**at):
        found = ratio(**at)
        if found < 0.97:
            raise Found(at)
        return found

    with pytest.raises(Found) as caught:
        worst_case(tried, space, **effort)
    return caught.value.args[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", HOLES)
def test_the_attack_finds_the_hole(name):
    """The unweakened bound holds at that point; its claim searches for its own worst case."""
    ratio, weakened, space = HOLES[name]
    assert ratio(**hole(weakened, space, starts=30, searches=2, steps=25)) > 1.0 - 1e-5


def test_the_attack_finds_loss_distributions_of_one_direction(monkeypatch):
    space = {
        "rate": Range(0.01, 0.9),
        "scale": Range(0.3, 3.0),
        "delta": Range(1e-6, 0.1, log=True),
    }
    ratio = partial(composition.pld_noise_ratio, audit.subsampled_laplace, Laplace)
    with monkeypatch.context() as patched:
        patched.setattr(pairs.Pair, "remove", pairs.Pair.add)
        at = hole(ratio, space, starts=20, searches=1, steps=10)
    assert ratio(**at) > 1.0


# --- targeted searches by Hypothesis ---

SEARCHES = {
    "pure": (releases.pure_ratio, {"excess": EXCESS, **PAIR}),
    "zcdp of pure": (releases.zcdp_ratio, {"excess": EXCESS, **PAIR}),
    "rdp_to_epsilon": (releases.rdp_to_epsilon_ratio, {"excess": EXCESS, "delta": DELTA, **PAIR}),
    "zcdp_to_epsilon": (releases.zcdp_to_epsilon_ratio, {"delta": DELTA, **PAIR}),
    "laplace_epsilon": (
        partial(sampling.laplace_mean_ratio, dimension=2),
        {"epsilon": LOSS, "m": Range(1, 3, integer=True), "data": Range(-1.0, 1.0, size=8)},
    ),
    **{
        name: (HOLES[name][0], {**HOLES[name][2], "fraction": RATE, "spread": SPREAD})
        for name in (
            "amplification: q epsilon",
            "amplification by Poisson: q epsilon",
            "poisson: order rounded down",
            "pure poisson: only the other direction",
            "without replacement: half the rate",
            "pure without replacement: the loss q epsilon",
        )
    },
    "Laplace and response": (
        sampling.laplace_and_response,
        {"excess": EXCESS, "rate": RATE, "loss": LOSS, "response": LOSS},
    ),
    "loss distributions": (
        composition.pld_repeated_ratio,
        {
            "rate": RATE,
            "loss": Range(1e-2, 8.0, log=True),
            "count": Range(1, 4, integer=True),
            "inside": Range(1, 3, integer=True),
            "delta": DELTA,
        },
    ),
    "plan": (
        composition.plan_ratio,
        {
            "losses": Range(0.05, 3.0, size=4),
            "delta": DELTA,
            "shares": Range(0.01, 1.0, size=composition.NODES),
            "flips": Range(-1.0, 1.0, size=composition.NODES),
        },
    ),
    "filter": (
        composition.pure_filter_ratio,
        {"epsilon": Range(0.05, 5.0), **composition.COINS},
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SEARCHES)
@given(data=st.data())
def test_no_bound_is_below_the_exact_value(name, data):
    ratio, space = SEARCHES[name]
    unit = st.floats(0.0, 1.0)
    at = {
        key: part.value(data.draw(st.lists(unit, min_size=size, max_size=size), label=key))
        for key, part in space.items()
        if (size := part.dimension)
    }
    found = ratio(**at)
    if 0.0 < found < math.inf:
        target(-math.log(found))
    assert found >= 1.0 - 1e-5
