"""Queries on a batch other than gradients: the laws of their answers, and their costs.

Statistical tests compare samples with an exact law by chi-square and fail where p < 1e-6: a
false alarm has probability 1e-6 for each, and seeds are fixed.
"""

import dataclasses
import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats

import dpanalysis as dpa
from dpanalysis import privacy
from dpanalysis.audit import (
    above_threshold_distribution,
    renyi_divergence,
    report_noisy_min_distribution,
)
from dpanalysis.privacy import mechanisms
from dpanalysis.privacy.events import (
    AboveThreshold,
    BoundedRange,
    Gaussian,
    Laplace,
    Pure,
    Sampled,
)
from dpanalysis.privacy.facts import PublicFacts, gradient_event
from dpanalysis.privacy.oracle import PrivateOracle
from dpanalysis.privacy.queries import FirstDecrease, NoisyMin, Ray, Records
from dpanalysis.privacy.queries import values as decrease
from dpanalysis.privacy.queries import values as select
from dpanalysis.problems.base import ColumnTable

RELATIONS = ("add_or_remove_one", "replace_one")
STEPS = np.arange(4.0)
ORDERS = np.array([1.5, 2.0, 8.0, 64.0])


class Table:
    """A problem of d = 1 whose losses at w = 0, -1, -2, ... are the columns of a table (n, K)."""

    def __init__(self, losses, regularizer=None):
        self.losses = np.asarray(losses, dtype=np.float64)
        self.n, self.regularizer = len(self.losses), regularizer

    def line_losses(self, w, direction, rows=None):
        chosen = self.losses if rows is None else self.losses[rows]
        return lambda t: chosen[:, round(float(t * direction[0] - w[0]))]


def facts(relation, n=10):
    return PublicFacts(n, 1, 0.0, 1.0, relation, (1.0, 1.0))


def ray(steps=STEPS):
    return Ray(np.zeros(1), np.ones(1), np.asarray(steps))


def records(losses, size=10.0, rows=None, **options):
    return Records(Table(losses, **options), rows, size)


def noisy_min(scale=0.1, noise="gumbel", clip=1.0, steps=STEPS):
    return NoisyMin(ray(steps), clip, scale, noise)


def first_decrease(noise="laplace", scales=(0.2, 0.4), query="loss_clip", clip=1.0, required=0.0):
    steps = STEPS[1:]
    return FirstDecrease(ray(steps), np.full(3, required), clip, noise, *scales, query)


def frequencies(query, data, count, outcomes, seed=0):
    """Count the answers by index; None counts as the last one."""
    random = np.random.default_rng(seed)
    answers = [query.answer(data, random)[0] for _ in range(count)]
    return np.bincount([outcomes - 1 if a is None else a for a in answers], minlength=outcomes)


def p_value(observed, law):
    # Outcomes with an expected count below 5 are pooled, so that the limit law is accurate.
    expected = law * observed.sum()
    order = np.argsort(expected)
    few = order[: max(int((np.cumsum(expected[order]) < 5.0).sum()) + 1, 1)]
    rest = np.setdiff1d(order, few)
    pooled = [np.append(each[rest], each[few].sum()) for each in (observed, expected)]
    return stats.chisquare(*pooled).pvalue


LOSSES = np.array([[0.2, 0.9, 3.0, 0.1], [0.5, -0.4, 0.3, 0.6], [0.9, np.inf, 0.1, np.nan]])
CLAMPED = np.array([[0.2, 0.9, 1.0, 0.1], [0.5, 0.0, 0.3, 0.6], [0.9, 1.0, 0.1, 0.0]])
PENALTY = dpa.regularizers.L2(0.02)  # .01 t^2 at the point -t


# --- report-noisy-min ---


@pytest.mark.slow
@pytest.mark.parametrize("noise", ["gumbel", "exponential"])
@pytest.mark.parametrize("along", [True, False], ids=["ray", "points"])
def test_noisy_min_has_the_law_of_its_docstring(noise, along):
    """Losses clamped on both sides over the public size, plus the penalty, minus the noise."""
    points = ray() if along else -STEPS[:, None]
    query = NoisyMin(points, 1.0, 0.1, noise)
    values = CLAMPED.sum(axis=0) / 10.0 + 0.01 * STEPS**2
    law = report_noisy_min_distribution(values, noise, 0.1)
    seen = frequencies(query, records(LOSSES, regularizer=PENALTY), 5000, 4)
    assert p_value(seen, law) > 1e-6


@pytest.mark.parametrize("noise", ["gumbel", "exponential"])
def test_added_noise_has_another_law(noise, monkeypatch):
    """Errata 002-11: the test rejects the wrong sign."""
    drawn = getattr(mechanisms, noise)
    monkeypatch.setattr(mechanisms, noise, lambda *arguments: -drawn(*arguments))
    values = np.array([0.0, 0.1, 0.2, 0.4])
    law = report_noisy_min_distribution(values, noise, 0.1)
    seen = frequencies(noisy_min(noise=noise), records(10.0 * values[None, :], 10.0), 2000, 4)
    assert p_value(seen, law) < 1e-6


@pytest.mark.parametrize("noise", ["gumbel", "exponential"])
def test_added_noise_costs_more_than_the_event(noise):
    """If the noise is added instead, the stated loss is wrong (measured 2 for .1)."""
    values, moved, scale = np.zeros(21), np.zeros(21), 10.0
    moved[0] = 1.0
    claimed = charge(noise, "add_or_remove_one", scale=scale, clip=10.0).pure_cost()
    assert claimed == pytest.approx(0.1)
    random = np.random.default_rng(0)
    added = getattr(mechanisms, noise)(random, scale, (200_000, 21))
    first = [(np.argmin(v + added, axis=1) == 0).mean() for v in (values, moved)]
    assert math.log(first[0] / first[1]) > 1.5 * claimed


def charge(noise, relation, scale=0.1, clip=1.0, n=10):
    return noisy_min(scale, noise, clip).event(facts(relation, n), dpa.Full())


tables = st.lists(st.lists(st.floats(-1.0, 2.0), min_size=4, max_size=4), min_size=1, max_size=3)
rows_of_losses = st.lists(st.floats(-1.0, 2.0), min_size=4, max_size=4)
FAR = [[0.0, 0.0, 0.0, 2.0]]


@given(
    tables,
    rows_of_losses,
    rows_of_losses,
    st.sampled_from(RELATIONS),
    st.sampled_from(["gumbel", "exponential"]),
    st.floats(0.02, 1.0),
)
@example([[0.0, 2.0, 2.0, 2.0]] * 3, [2.0, 0, 0, 0], [0.0, 2, 2, 2], "replace_one", "gumbel", 0.1)
@example(
    [[0.0, 0.0, 0.0, 2.0]] * 3, [0.0, 0, 0, 2], [2.0, 2, 2, 0], "replace_one", "exponential", 0.1
)
def test_no_pair_of_neighbours_costs_more_than_is_charged(rest, record, other, relation, noise, b):
    """Pure loss, range of the losses and Renyi curve of exact laws, at public size 2."""
    laws = noisy_min_laws(rest, record, other, relation, noise, b)
    event = charge(noise, relation, b, n=2)
    assert worst(laws, math.inf) <= event.pure_cost() * (1 + 1e-9) + 1e-9
    if noise == "gumbel":
        assert np.ptp(np.log(laws[0] / laws[1])) <= event.epsilon * (1 + 1e-9) + 1e-9
    for order, cost in zip(ORDERS, event.rdp_cost(ORDERS)):
        assert worst(laws, order) <= cost * (1 + 1e-9) + 1e-9
        assert worst(laws, order) <= event.zcdp_cost() * order * (1 + 1e-9) + 1e-9


def noisy_min_laws(rest, record, other, relation, noise, b):
    """Exact laws with and without the record, or with another in its place; clip 1, size 2."""
    with_it = np.array([*rest, record])
    neighbour = np.array([*rest, other]) if relation == "replace_one" else np.array(rest)
    values = (np.clip(each, 0.0, 1.0).sum(axis=0) / 2.0 for each in (with_it, neighbour))
    return [report_noisy_min_distribution(each, noise, b) for each in values]


def worst(laws, order):
    return max(renyi_divergence(*laws, order), renyi_divergence(*laws[::-1], order))


# The worst record and its neighbour: losses move from one end to the other.
EXTREME = {
    "add_or_remove_one": ([0.0, 1.0, 1.0, 1.0], None),
    "replace_one": ([0.0, 1.0, 1.0, 1.0], [1.0, 0.0, 0.0, 0.0]),
}


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("noise", ["gumbel", "exponential"])
def test_the_charge_is_attained(noise, relation):
    """Far from a tie the pure loss equals the cost, so no smaller scale suffices."""
    rest = [[1.0, 0.0, 0.0, 0.0]] * 40
    laws = noisy_min_laws(rest, *EXTREME[relation], relation, noise, 0.5)
    assert worst(laws, math.inf) == pytest.approx(charge(noise, relation, 0.5, n=2).pure_cost())


@pytest.mark.parametrize("noise", ["gumbel", "exponential"])
def test_without_the_factor_2_replacing_is_undercharged(noise, monkeypatch):
    monkeypatch.setattr(
        select, "decrease_sensitivity", lambda f, s, clip: clip / s.expected_size(f.n)
    )
    rest = [[1.0, 0.0, 0.0, 0.0]] * 40
    laws = noisy_min_laws(rest, *EXTREME["replace_one"], "replace_one", noise, 0.5)
    assert worst(laws, math.inf) > 1.9 * charge(noise, "replace_one", 0.5, n=2).pure_cost()


@pytest.mark.slow
def test_unclamped_losses_cost_more_than_is_charged(monkeypatch):
    """Without clipping, a loss of 30 changes the answer by more than the clip allows."""
    data = [[0.0] * 4], [[0.0] * 4, [0.0, 30.0, 30.0, 30.0]]

    def odds():
        rates = [frequencies(noisy_min(1.0), records(d), 2000, 4)[0] / 2000 for d in data]
        return math.log(rates[1] / rates[0])

    claimed = charge("gumbel", "add_or_remove_one", 1.0).pure_cost()
    noise = 4.0 * math.sqrt(2.0 / 500.0)  # four standard deviations of the logarithms
    assert odds() < claimed + noise
    monkeypatch.setattr(select, "clip_losses", lambda losses, clip: losses)
    assert odds() > claimed + 2.0 * noise


def test_noisy_min_charges_what_it_says():
    assert charge("gumbel", "add_or_remove_one") == BoundedRange(1.0)
    assert charge("gumbel", "replace_one") == BoundedRange(2.0)
    assert charge("exponential", "replace_one") == Pure(2.0)
    public = noisy_min().event(facts("add_or_remove_one"), dpa.Poisson(0.5))
    assert public == BoundedRange(2.0)  # divided by 5
    no_records = PublicFacts(10, 1, 0.0, 1.0, RELATIONS[0], (1.0, 1.0), has_records=False)
    assert noisy_min().event(no_records, dpa.Full()) is None


def test_bounded_range_is_below_any_pure_release_and_above_the_worst_pair():
    """Two outcomes with losses t and t - epsilon are the worst; no t exceeds the bound."""
    for eps in (0.01, 0.5, 3.0):
        event = BoundedRange(eps)
        assert event.pure_cost() == eps and event.zcdp_cost() == 0.125 * eps**2
        np.testing.assert_array_less(event.rdp_cost(ORDERS), Pure(eps).rdp_cost(ORDERS) * 1.000001)
        largest = np.zeros(len(ORDERS))
        for t in np.linspace(0.001, 0.999, 101) * eps:
            q = -math.expm1(t - eps) / (math.exp(t) - math.exp(t - eps))
            laws = np.array([q * math.exp(t), (1 - q) * math.exp(t - eps)]), np.array([q, 1 - q])
            exact = [renyi_divergence(*laws, order) for order in ORDERS]
            largest = np.maximum(largest, exact)
        assert (largest <= event.rdp_cost(ORDERS) * (1 + 1e-9)).all()
        if eps < 0.1:  # and nearly attained where losses are small
            assert (largest[:3] > 0.99 * event.rdp_cost(ORDERS)[:3]).all()
    assert np.isfinite(Sampled(dpa.Poisson(0.1), [BoundedRange(1.0)]).rdp_cost(4.0))
    assert privacy.epsilon([BoundedRange(0.1)] * 3, 0.0, "replace_one") == pytest.approx(0.3)
    with pytest.raises(ValueError, match="epsilon"):
        BoundedRange(-1.0)


# --- the first decrease ---


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("query", ["loss_clip", "difference_clip"])
def test_first_decrease_has_the_law_of_its_docstring(noise, query):
    asked = first_decrease(noise, (0.05, 0.1), query, required=0.03)
    if query == "loss_clip":
        decreases = CLAMPED[:, :1] - CLAMPED[:, 1:]
    else:
        # NaN counts as no change, and an infinite loss as the clip.
        change = LOSSES[:, :1] - np.where(np.isnan(LOSSES), LOSSES[:, :1], LOSSES)[:, 1:]
        decreases = np.clip(change, -1.0, 1.0)
    values = decreases.sum(axis=0) / 10.0 - 0.01 * STEPS[1:] ** 2 - 0.03
    law = above_threshold_distribution(values, noise, 0.05, 0.1)
    seen = frequencies(asked, records(LOSSES, regularizer=PENALTY), 5000, 4)
    assert p_value(seen, law) > 1e-6


@pytest.mark.slow
@settings(max_examples=20)
@given(
    tables,
    rows_of_losses,
    rows_of_losses,
    st.sampled_from(RELATIONS),
    st.sampled_from(["loss_clip", "difference_clip"]),
    st.sampled_from(["laplace", "gaussian"]),
)
@example(FAR * 3, [1.0, 1, 1, 0], [0.0, 0, 0, 1], "replace_one", "loss_clip", "laplace")
@example(FAR * 3, [1.0, 0, 0, 0], [0.0, 1, 1, 1], "replace_one", "difference_clip", "laplace")
def test_no_search_costs_more_than_is_charged(rest, record, other, relation, query, noise):
    data = [np.array([*rest, record])]
    data.append(np.array([*rest, other]) if relation == "replace_one" else np.array(rest))
    scales = (0.7, 1.1)
    laws = [above_threshold_distribution(mean_decrease(d, query), noise, *scales) for d in data]
    event = first_decrease(noise, scales, query).event(facts(relation, 2), dpa.Full())
    if noise == "laplace":
        assert worst(laws, math.inf) <= event.pure_cost() * (1 + 1e-9) + 1e-9
    assert worst(laws, 2.0) <= event.rdp_cost(2.0) * (1 + 1e-9) + 1e-9


def mean_decrease(losses, query, clip=1.0, size=2.0):
    if query == "loss_clip":
        clamped = np.clip(losses, 0.0, clip)
        return (clamped[:, :1] - clamped[:, 1:]).sum(axis=0) / size
    return np.clip(losses[:, :1] - losses[:, 1:], -clip, clip).sum(axis=0) / size


def test_without_the_factor_2_a_search_is_undercharged(monkeypatch):
    """Replacing a record raises 200 decreases by 1 and leaves a last one, far below."""
    levels = np.append(np.zeros(200), -30.0)
    kept, rises = np.zeros(201), np.append(np.ones(200), 0.0)
    laws = [above_threshold_distribution(levels + d, "laplace", 1.0, 1.0) for d in (kept, rises)]
    asked = FirstDecrease(ray(np.arange(1.0, 202.0)), -levels, 1.0, "laplace", 1.0, 1.0)
    # One record has losses 0 at w, then 1, at last 0; the other has 1, 0 and 1.
    right = asked.event(facts("replace_one", 2), dpa.Full()).pure_cost()
    assert 0.9 * right < worst(laws, math.inf) <= right
    whole = decrease.decrease_sensitivity
    monkeypatch.setattr(decrease, "decrease_sensitivity", lambda *a: 0.5 * whole(*a))
    wrong = asked.event(facts("replace_one", 2), dpa.Full()).pure_cost()
    assert worst(laws, math.inf) > 1.8 * wrong


def test_a_gaussian_search_has_a_cap():
    """The event contains the number of tries: more tries cost more."""
    few = first_decrease("gaussian").event(facts("replace_one"), dpa.Full())
    assert few.max_queries == 3
    longer = FirstDecrease(ray(np.arange(1.0, 31.0)), np.zeros(30), 1.0, "gaussian", 0.2, 0.4)
    many = longer.event(facts("replace_one"), dpa.Full())
    assert many.rdp_cost(2.0) > few.rdp_cost(2.0)


# --- both queries ---


@pytest.mark.parametrize("query", [noisy_min(0.0), first_decrease(scales=(0.0, 0.0))])
def test_without_noise_the_answer_is_exact_and_costs_everything(query):
    assert query.event(facts("replace_one"), dpa.Full()) is None
    losses = np.array([[0.5, 0.6, 0.3, 0.1]])
    best, times = query.answer(records(losses), None)
    if isinstance(query, NoisyMin):
        assert (best, times) == (3, 4)
    else:  # the second of the steps 1, 2, 3 decreases; three points were looked at
        assert (best, times) == (1, 3)
        assert query.answer(records(1.0 - losses), None) == (0, 2)
        assert query.answer(records([[0.0, 1.0, 1.0, 1.0]]), None) == (None, 4)


@pytest.mark.parametrize("query", [noisy_min(), first_decrease()])
def test_an_empty_batch_answers(query):
    answer, _ = query.answer(
        records(LOSSES, rows=np.array([], dtype=int)), np.random.default_rng(0)
    )
    assert answer is None or 0 <= answer < 4


@pytest.mark.parametrize("noise", ["gumbel", "exponential"])
def test_system_entropy_serves(noise):
    answer, _ = noisy_min(noise=noise).answer(records(LOSSES), mechanisms.SystemRandom())
    assert 0 <= answer < 4


def test_gumbel_noise_is_finite_even_at_the_end_of_the_uniforms():
    source = SimpleNamespace(
        laplace=lambda loc, scale, size: np.zeros(size), random=lambda size: np.full(size, 0.5)
    )
    assert np.isfinite(mechanisms.gumbel(source, 1.0, 3)).all()


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: noisy_min(-1.0), "scale"),
        (lambda: noisy_min(math.nan), "scale"),
        (lambda: noisy_min(clip=0.0), "clip"),
        (lambda: noisy_min(noise="laplace"), "noise"),
        (lambda: noisy_min(steps=[0.0, np.nan]), "points"),
        (lambda: noisy_min(steps=[]), "points"),
        (lambda: NoisyMin(ray(), 1.0, 0.1, "exponential", 2), "count"),
        (lambda: NoisyMin(np.full((2, 1), np.inf), 1.0, 0.1), "points"),
        (lambda: first_decrease("cauchy"), "noise"),
        (lambda: first_decrease(scales=(1.0, 0.0)), "query_scale"),
        (lambda: first_decrease(scales=(-1.0, 1.0)), "threshold_scale"),
        (lambda: first_decrease(query="no_clip"), "query"),
        (lambda: first_decrease(clip=0.0), "clip"),
        (lambda: first_decrease(required=np.inf), "required"),
        (lambda: FirstDecrease(ray(), np.zeros(3), 1.0, "laplace", 1.0, 1.0), "required"),
        (
            lambda: FirstDecrease(ray([0.0]), [0.0], 1.0, "laplace", 1.0, 1.0, "slope_clip"),
            "step_sizes must be positive",
        ),
        (lambda: NoisyMin(Ray(*np.ones((3, 2, 2))), 1.0, 0.1), r"points\.w .*one-dimensional"),
        (lambda: NoisyMin(Ray(np.ones(1), np.ones(2), np.ones(1)), 1.0, 0.1), r"points\.direction"),
        (lambda: NoisyMin(np.ones(2), 1.0, 0.1), r"points must have shape \(K, d\)"),
        (
            lambda: privacy.queries.NoisyValue(np.ones((4, 2)), 1.0, 1.0),
            "w must be one-dimensional",
        ),
        (lambda: privacy.queries.NoisyHessian(np.ones((2, 2)), 1.0), "w must be one-dimensional"),
        (lambda: privacy.queries.NoisyQuantile(0, 0.5, [0.0, 1.0, 1.0], 1.0), "increasing"),
    ],
)
def test_refuses_bad_arguments(make, match):
    with pytest.raises(ValueError, match=match):
        make()


# --- the public points that a query evaluates ---


def test_every_query_names_the_public_points_that_it_evaluates():
    """The oracle refuses huge points, where overflow of a loss depends on the record."""
    w, far = np.zeros(2), np.array([3.0, -1e300])
    ray = Ray(w, far, np.array([0.5, 2.0, 1.0]))
    ends = [w, -0.5 * far, -2.0 * far]
    decrease = FirstDecrease(ray, np.zeros(3), 1.0, "laplace", 1.0, 1.0)
    for query in (decrease, NoisyMin(ray, 1.0, 0.1)):
        np.testing.assert_array_equal(query.iterates(), ends)
    points = np.eye(2)
    np.testing.assert_array_equal(NoisyMin(points, 1.0, 0.1).iterates(), [points])
    singles = (
        privacy.queries.NoisyValue(far, 1.0, 0.1),
        privacy.queries.NoisyHessian(far, 0.1),
        privacy.queries.NoisyCurvature(far, 0.1, 3),
        privacy.queries.NoisyDescent(far, 0.1, 1, 1, False, "gaussian", 0.1),
    )
    for query in singles:
        np.testing.assert_array_equal(query.iterates(), [far])
    assert privacy.queries.PerturbedMinimum("gaussian", 1.0, 0.1, 1e-6, 0.1).iterates() == ()
    huge = NoisyMin(Ray(w, np.full(2, 1e308), np.array([1e3])), 1.0, 0.1)
    assert np.isneginf(huge.iterates()[-1]).all()


# --- the influence of one record ---


def test_a_clipped_slope_is_clipped_by_its_step():
    """At step .5 a decrease counts at most .5 C: one record of .9 against two of -.3."""
    after = np.array([[1.0, 0.1], [1.0, 1.3], [1.0, 1.3]])

    class Short(Table):
        def line_losses(self, w, direction, rows=None):
            return lambda t: self.losses[:, int(t > 0.0)]

    data = Records(Short(after), None, 3.0)
    for step, expected in ((0.5, None), (1.0, 0)):
        query = FirstDecrease(
            ray([step]), np.zeros(1), 1.0, "laplace", 0.0, 0.0, query="slope_clip"
        )
        assert query.answer(data, np.random.default_rng(0))[0] == expected
    # A record moves the slope, to which noise is added, by at most C over the batch size.
    for loss in (-50.0, 50.0):
        one = Records(Short([[loss, 0.0]]), None, 1.0)
        required = np.array([0.4999 * np.sign(loss)])
        query = FirstDecrease(ray([0.5]), required, 1.0, "laplace", 0.0, 0.0, query="slope_clip")
        assert (query.answer(one, np.random.default_rng(0))[0] == 0) == (loss > 0.0)
        query = FirstDecrease(
            ray([0.5]), 1.001 * required, 1.0, "laplace", 0.0, 0.0, query="slope_clip"
        )
        assert (query.answer(one, np.random.default_rng(0))[0] == 0) == (loss < 0.0)


@pytest.mark.parametrize(("relation", "records"), [*zip(RELATIONS, (1.0, 2.0))])
def test_every_event_includes_the_rounding_of_two_sums(relation, records):
    """Each of two sums is off by 1/8 of the bound on a record, divided by n = 10."""
    rounding = dataclasses.replace(facts(relation), rounding=0.125, hessian_bound=1.0)
    moved, w, full = (records + 0.25) / 10.0, np.zeros(1), dpa.Full()
    for query in ("loss_clip", "difference_clip", "slope_clip"):
        law = "laplace", 0.2, 0.4, moved, 3
        priced = AboveThreshold(*law, shared=query == "loss_clip")  # the others share no loss
        assert first_decrease(query=query).event(rounding, full) == priced
    for query, priced in (
        (noisy_min(), BoundedRange(moved / 0.1)),
        (noisy_min(noise="exponential"), Pure(moved / 0.1)),
        (privacy.queries.NoisyValue(w, 1.0, 0.5), Gaussian(0.5, 0.125)),
        (privacy.queries.NoisyValue(w, 1.0, 0.5, "laplace"), Laplace(0.5, 0.125)),
        (privacy.queries.NoisyHessian(w, 0.5), Gaussian(0.5, moved)),
        (privacy.queries.NoisyCurvature(w, 0.5, 1), Gaussian(0.5, moved)),
    ):
        assert query.event(rounding, full) == priced
    assert gradient_event(rounding, full, "gaussian", 0.5) == Gaussian(0.5, moved)
    assert gradient_event(rounding, full, "laplace", 0.5) == Laplace(0.5, moved)


WHOLE = [
    privacy.queries.NoisyQuantile(0, 0.5, (0.0, 1.0), 1.0),
    privacy.queries.NoisyDescent(np.zeros(1), 0.1, 1, 1, False, "gaussian", 1.0),
    privacy.queries.PerturbedMinimum("gaussian", 1.0, 0.1, 1e-3, 1.0),
    privacy.queries.LastNoisyIterate(np.zeros(1), 0.1, 1, 1.0),
]


@pytest.mark.parametrize("sampling", [dpa.Poisson(0.5), dpa.WithoutReplacement(5)])
@pytest.mark.parametrize("query", WHOLE, ids=lambda query: type(query).__name__)
def test_queries_on_all_records_refuse_sampling(query, sampling):
    with pytest.raises(ValueError, match=r"sampling must be Full\(\) for a whole solution"):
        query.event(facts(sampling.relations[0]), sampling)


ANY = [-math.inf, -50.0, 0.0, 0.3, 1.0, 50.0, math.inf, math.nan]


@pytest.mark.parametrize("query", ["loss_clip", "difference_clip", "slope_clip"])
def test_one_record_moves_no_decrease_by_more_than_the_clip(query):
    """For all losses before and after, and short and long steps."""
    random = np.random.default_rng(0)
    for before, after, step in itertools.product(ANY, ANY, [1.0, 2.0]):
        one = records([[before, after, after]], 1.0)
        most = 1.001 * (step if query == "slope_clip" else 1.0)
        for required, found in ((most, None), (-most, 0)):
            asked = FirstDecrease(ray([step]), np.array([required]), 1.0, "laplace", 0, 0, query)
            with np.errstate(invalid="ignore"):  # NaN minus NaN
                assert asked.answer(one, random)[0] == found, (before, after, step)


@pytest.mark.parametrize("points", [ray(STEPS[:2]), -STEPS[:2, None]])
def test_one_record_moves_no_value_by_more_than_the_clip(points):
    random, penalty = np.random.default_rng(0), dpa.regularizers.L2(2.002)  # 1.001 at the second
    for losses in itertools.product(ANY, ANY):
        one = records([losses], 1.0, regularizer=penalty)
        assert NoisyMin(points, 1.0, 0.0).answer(one, random)[0] == 0, losses
        for k, extra in enumerate([0.0, 1.001]):
            value = privacy.queries.NoisyValue(-STEPS[k : k + 1], 1.0, 0.0)
            assert extra <= value.answer(one, random)[0] <= 1.0 + extra, losses


def test_a_large_penalty_does_not_round_the_noise_away():
    """At both points it is the same, so that the noise decides."""
    points, random = np.array([[-1.0], [1.0]]), np.random.default_rng(0)
    one = records(np.zeros((1, 3)), 1.0, regularizer=dpa.regularizers.L2(1e20))
    found = {NoisyMin(points, 1.0, 1.0).answer(one, random)[0] for _ in range(30)}
    assert found == {0, 1}


@pytest.mark.parametrize("relation", RELATIONS)
def test_a_clipped_slope_whose_product_with_a_step_underflows_is_refused(relation):
    required = np.zeros(2)
    for clip, steps in ((1e-200, [1.0, 1e-100]), (1e200, [1.0, 1e150])):
        query = FirstDecrease(ray(steps), required, clip, "laplace", 1.0, 1.0, "slope_clip")
        with pytest.raises(ValueError, match="clip times a step size must be at least"):
            query.event(facts(relation), dpa.Full())


def test_a_loss_that_is_not_a_number_counts_as_0():
    losses = np.array([np.nan, np.inf, -np.inf, 0.25, 2.0])
    assert decrease.clip_losses(losses, 0.5).tolist() == [0.0, 0.5, 0.0, 0.25, 0.5]


def test_a_value_has_a_law_that_is_known():
    with pytest.raises(ValueError, match="law must be"):
        privacy.queries.NoisyValue(np.zeros(2), 1.0, 0.1, law="cauchy")


def test_points_of_another_size_are_refused_before_anything_is_spent():
    problem = dpa.ERM(
        np.ones((4, 2)), np.ones(4), dpa.losses.Logistic(), row_bound=dpa.RowBound(2, 2.0)
    )
    guard = privacy.Filter(dpa.Budget(1.0, 1e-6))
    oracle = PrivateOracle(problem, problem.facts("replace_one"), guard, [0])
    for query in (
        privacy.queries.NoisyValue(np.ones(3), 1.0, 9.0),
        privacy.queries.NoisyHessian(np.ones(1), 9.0),
        NoisyMin(np.ones((2, 4)), 1.0, 9.0),
        privacy.queries.NoisyDescent(np.ones(3), 0.1, 1, 1, False, "gaussian", 9.0),
    ):
        with pytest.raises(ValueError, match="2 coordinates"):
            oracle.ask(query, dpa.Full())
    assert guard.spent == 0.0
    for shape in ((4, 2), (1, 2)):
        with pytest.raises(ValueError, match=r"w must have shape \(2,\)"):
            problem.line_losses(np.ones(shape), np.ones(shape))
        with pytest.raises(ValueError, match=r"w must have shape \(2,\)"):
            problem.hessian_sum(np.ones(shape))


@pytest.mark.parametrize("column", [0, 2])
def test_a_quantile_of_no_column_is_refused_before_anything_is_spent(column):
    problem = (
        ColumnTable(np.zeros((5, 2))) if column else dpa.Quadratic([1.0, 2.0], sensitivity=0.1)
    )
    guard = privacy.Filter(dpa.Budget(5.0))
    oracle = PrivateOracle(problem, problem.facts("replace_one"), guard, [0])
    query = privacy.queries.NoisyQuantile(column, 0.5, (0.0, 1.0), 1.0)
    with pytest.raises((TypeError, ValueError), match=r"needs a problem with X|column must be"):
        oracle.ask(query, dpa.Full())
    assert guard.spent == 0.0
