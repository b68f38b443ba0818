"""The joint test of two counts: its p-value by enumeration, its level and its power."""

import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, special, stats

from dpanalysis.audit import GaussianPrivacy, counting, verify_privacy
from dpanalysis.audit.counting import Counts, interval, log_p_value, lower_bound
from dpanalysis.audit.events import ApproximateLimit, GaussianLimit
from dpanalysis.privacy import gaussian_epsilon

LIMITS = st.one_of(
    st.builds(ApproximateLimit, st.sampled_from([0.0, 1e-6, 0.05, 0.3])), st.just(GaussianLimit())
)


@given(LIMITS, st.integers(0, 64), st.integers(1, 63))
def test_the_level_of_a_pair_is_the_smallest_that_allows_it(limit, p, q):
    p, q = p / 64, q / 64
    level = float(limit.level(p, q))
    if math.isfinite(level):
        assert limit.most(q, level - 1e-6) < p <= limit.most(q, level + 1e-6)
    else:
        assert limit.most(q, -40.0) >= p if level < 0.0 else p == 1.0


def enumerated(counts, limit, level, miss, points=400):
    """The p-value by its definition, on a grid of the curve: never above the supremum."""
    n = counts.runs
    share = 1e-3 * miss
    low, high = interval(counts.likelier, n, share / 2)
    q = np.linspace(*interval(counts.other, n, share / 2), points)
    p = np.minimum(limit.most(q, level), high)
    q, p = q[p >= low], p[p >= low]
    k = np.arange(n + 1)
    s = counts.likelier - counts.slope * counts.other
    region = k[:, None] - counts.slope * k[None, :] >= s - 1e-9
    x, y = (stats.binom.pmf(k[:, None], n, rates) for rates in (p, q))
    chances = np.einsum("xi,xy,yi->i", x, region, y)
    return share + chances.max(initial=0.0)


@pytest.mark.slow
@settings(max_examples=60)
@given(LIMITS, st.integers(4, 40), st.data())
def test_the_p_value_is_at_least_that_of_every_allowed_pair_and_hardly_more(limit, n, data):
    counts = Counts(
        data.draw(st.integers(0, n)), data.draw(st.integers(0, n)), n, data.draw(st.floats(0, 8))
    )
    level, miss = data.draw(st.floats(0.0, 3.0)), data.draw(st.sampled_from([0.5, 0.1, 1e-3]))
    found, _ = log_p_value(counts, limit, level, miss)
    exact = enumerated(counts, limit, level, miss)
    assert math.exp(found) >= exact * (1.0 - 1e-9)
    assert math.exp(min(found, 0.0)) <= 1.5 * exact  # the largest of 3,000 was 1.33


def test_both_intervals_together_miss_with_the_share_that_is_added(monkeypatch):
    missed = []

    def watched(count, runs, miss):
        missed.append(miss)
        return interval(count, runs, miss)

    monkeypatch.setattr(counting, "interval", watched)
    log_p_value(Counts(70, 10, 100, 1.5), ApproximateLimit(0.0), 1.0, 1e-3)
    assert len(missed) == 2 and sum(missed) == pytest.approx(1e-3 * counting._SHARE)
    monkeypatch.setattr(counting, "_supremum", lambda *given: (-math.inf, 0.1))
    alone, _ = log_p_value(Counts(70, 10, 100, 1.5), ApproximateLimit(0.0), 1.0, 1e-3)
    assert math.exp(alone) == pytest.approx(1e-3 * counting._SHARE)


def test_the_excess_of_the_p_value_comes_from_its_pieces_alone(monkeypatch):
    """15% too large by default at 4 runs; with finer pieces the supremum itself is found."""
    counts, limit = Counts(3, 0, 4, 2.0), ApproximateLimit(0.0)
    exact = enumerated(counts, limit, 0.5, 0.5, points=4_000)
    assert 1.1 < math.exp(log_p_value(counts, limit, 0.5, 0.5)[0]) / exact < 1.2
    monkeypatch.setattr(counting, "_REMAINDER", 1e-3)
    monkeypatch.setattr(counting, "_PLACES", 8_192)
    assert 1.0 <= math.exp(log_p_value(counts, limit, 0.5, 0.5)[0]) / exact < 1.002


def test_caps_on_p_values_are_paid_for_by_all_stages(monkeypatch):
    """Two quantiles that just reach the error do not reach what two caps of 10% leave of it."""
    miss, reached = 0.05, -special.ndtri(0.05 * 0.85)
    monkeypatch.setattr(counting, "_CERTAIN", 0.1)
    log_p = float(special.log_ndtr(-reached * math.sqrt(0.5)))  # of each of two equal stages
    monkeypatch.setattr(counting, "log_p_value", lambda *given: (log_p, 0.2))
    stages = [Counts(70, 20, 100, 1.0, 0.5)] * 2
    assert lower_bound(stages, ApproximateLimit(0.0), miss)[0] == 0.0
    assert lower_bound(stages, ApproximateLimit(0.0), miss / 0.9)[0] > 0.0


def rejection_rate(limit, level, q, n, slope, miss):
    """The exact probability that the level is rejected at the largest p that it allows."""
    p = float(limit.most(q, level))
    k = np.arange(n + 1)
    rejected = np.array(
        [
            [
                log_p_value(Counts(x, y, n, slope), limit, level, miss)[0] <= math.log(miss)
                for y in k
            ]
            for x in k
        ]
    )
    return stats.binom.pmf(k, n, p) @ rejected @ stats.binom.pmf(k, n, q)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limit", "level"), [(ApproximateLimit(0.0), 1.0), (ApproximateLimit(0.1), 0.5)]
)
@pytest.mark.parametrize("q", [0.02, 0.2, 0.33])
def test_a_true_level_is_rejected_at_most_at_the_stated_rate_and_not_much_less(limit, level, q):
    """All outcomes of 16 runs are enumerated, so the rate is exact."""
    rate = rejection_rate(limit, level, q, 16, 2.5, 0.2)
    assert rate <= 0.2
    assert q < 0.1 or rate > 0.05


@pytest.mark.slow
def test_two_intervals_at_half_the_error_need_far_more_runs():
    """At epsilon = ln(.5/.15), claimed as 1: runs at which the expected counts refute."""
    limit, claim, miss = ApproximateLimit(0.0), 1.0, 1e-9

    def by_intervals(n):
        p = special.betaincinv(0.5 * n, 0.5 * n + 1.0, miss / 2)
        return math.log(p / special.betainccinv(0.15 * n + 1.0, 0.85 * n, miss / 2)) > claim

    def jointly(n):
        counts = Counts(n // 2, 15 * n // 100, n, 3.0)
        return log_p_value(counts, limit, claim, miss)[0] <= math.log(miss)

    runs = [20 * round(1.02**i) for i in range(150, 350)]
    ours, theirs = (next(n for n in runs if test(n)) for test in (jointly, by_intervals))
    assert 1.7 < theirs / ours < 2.2


@pytest.mark.slow
@given(LIMITS, st.integers(30, 3_000), st.data())
@settings(max_examples=40)
def test_the_lower_bound_is_rejected_and_a_little_more_is_not(limit, n, data):
    x = data.draw(st.integers(n // 2, n))
    y = data.draw(st.integers(0, n // 3))
    start, miss = data.draw(st.floats(0.0, 4.0)), data.draw(st.sampled_from([0.6, 0.1, 1e-9]))
    counts = Counts(x, y, n, data.draw(st.floats(0.5, 6.0)))
    level, pair = lower_bound([counts], limit, miss, start)
    if level > 0.0:
        assert log_p_value(counts, limit, level, miss)[0] <= math.log(miss)
    assert math.isclose(limit.most(pair[1], level), pair[0]) or math.isnan(pair[1])
    # Whether the start is rejected is decided without a search.
    assert (level >= start) == (log_p_value(counts, limit, start, miss)[0] <= math.log(miss)) or (
        level == start == 0.0
    )


def test_a_claim_that_alone_is_rejected_is_refuted(monkeypatch):
    """The bound must exceed it, though no level above it is rejected."""
    monkeypatch.setattr(
        counting,
        "log_p_value",
        lambda c, limit, level, miss: (-30.0 if level <= 1.0 else -1.0, 0.2),
    )
    found, _ = lower_bound([Counts(70, 10, 100, 1.5)], ApproximateLimit(0.0), 1e-3, 1.0)
    assert 1.0 < found < 1.0 + 1e-6


@pytest.mark.parametrize("below", [1e-3, 1e-5, 1e-7])
def test_a_claim_just_below_the_bound_is_exceeded_by_part_of_the_way(below):
    counts, limit, miss = Counts(70, 10, 100, 1.5), ApproximateLimit(0.0), 1e-3

    def excess(level):
        return log_p_value(counts, limit, level, miss)[0] - math.log(miss)

    largest = optimize.brentq(excess, 0.0, 3.0, xtol=1e-12)
    found, _ = lower_bound([counts], limit, miss, largest - below)
    assert largest - 0.9 * below < found <= largest + 1e-11


# --- two stages -------------------------------------------------------------------------------


def quantile(counts, limit, level, miss):
    """The p-value of one stage as a quantile of the normal law."""
    log_p = min(log_p_value(counts, limit, level, miss)[0], -1e-12 * miss)
    return -special.ndtri_exp(log_p)


@pytest.mark.slow
@settings(max_examples=25)
@given(LIMITS, st.integers(2, 7), st.integers(2, 9), st.data())
def test_two_stages_err_no_more_often_than_is_allowed_whatever_the_second_event(limit, n, m, data):
    """By enumeration: each outcome of the first stage is followed by the worst second pair."""
    level, miss = data.draw(st.floats(0.0, 2.0)), data.draw(st.sampled_from([0.4, 0.1, 0.02]))
    share = data.draw(st.floats(0.05, 0.95))
    q = np.concatenate([[0.0, 1e-3, 0.999, 1.0], np.linspace(0.01, 0.99, 50)])
    p = np.minimum(1.0, limit.most(q, level))
    z, chances = [], []
    for runs in (n, m):
        slope = data.draw(st.floats(0.5, 4.0))
        pairs = [(x, y) for x in range(runs + 1) for y in range(runs + 1)]
        z.append([quantile(Counts(x, y, runs, slope), limit, level, miss) for x, y in pairs])
        x, y = np.array(pairs).T
        chances.append(stats.binom.pmf(x, runs, p[:, None]) * stats.binom.pmf(y, runs, q[:, None]))
    first, second = (math.sqrt(w) * np.array(each) for w, each in zip((share, 1.0 - share), z))
    target = stats.norm.isf(miss)
    rejected = [(chances[1] @ (second >= target - part)).max() for part in first]
    assert (chances[0] @ np.array(rejected)).max() <= miss * (1.0 + 1e-9)


@pytest.mark.slow
@given(LIMITS, st.data())
@settings(max_examples=25)
def test_the_bound_of_two_stages_is_where_their_quantiles_meet_the_level(limit, data):
    start, miss = data.draw(st.floats(0.0, 3.0)), data.draw(st.sampled_from([0.6, 0.1, 1e-9]))
    share, stages = data.draw(st.floats(0.05, 0.95)), []
    for part in (share, 1.0 - share):
        n = data.draw(st.integers(30, 2_000))
        x, y = data.draw(st.integers(n // 2, n)), data.draw(st.integers(0, n // 3))
        stages.append(Counts(x, y, n, data.draw(st.floats(0.5, 6.0)), part))

    def excess(level):
        z = sum(math.sqrt(each.share) * quantile(each, limit, level, miss) for each in stages)
        return z - stats.norm.isf(miss * (1.0 - 2e-12))

    level, _ = lower_bound(stages, limit, miss, start)
    assert level == 0.0 or excess(level) >= 0.0
    assert excess(level + 1e-8) < 0.01
    assert (level >= start) == (excess(start) >= 0.0) or level == start == 0.0


def test_the_bound_of_stages_that_disagree_is_found():
    """All counts of one event, a third of the other: the quantile is far from linear."""
    stages = [Counts(88_057, 50_532, 153_768, 5.1, 0.3), Counts(126_219, 4_173, 126_219, 1.64, 0.7)]
    limit, miss = ApproximateLimit(1e-6), 0.1
    level, _ = lower_bound(stages, limit, miss, 2.0)
    z = sum(math.sqrt(each.share) * quantile(each, limit, level, miss) for each in stages)
    assert 0.0 <= z - stats.norm.isf(miss) < 0.01


def identity(bit, rng, size):
    return np.full(size, bit)


@pytest.mark.parametrize("confidence", [0.5, 0.9, 1 - 1e-9, 1 - 1e-15])
@pytest.mark.parametrize("claim", [0.0, 1.0, 4.0])
def test_the_clearest_outcome_refutes_from_the_fewest_runs_on(claim, confidence):
    fewest = counting.samples_for(ApproximateLimit(0.0), claim, 1.0 - confidence)
    for times in (1, 2, 4, 5, 40):
        options = {"samples": times * fewest, "confidence": confidence, "rng": 0}
        verdict = verify_privacy(identity, 0, 1, claim, **options)
        assert verdict.refuted
        learned = counting._learned(times * fewest, 1.0 - confidence)
        two = times >= 4 and learned - learned // 3 >= 64
        assert ("Before" in str(verdict)) == two, str(verdict)


@pytest.mark.parametrize("confidence", [0.5, 0.9, 1 - 1e-9])
@pytest.mark.parametrize("mu", [0.0, 1.0, 4.0, 8.0])
@pytest.mark.parametrize("times", [1, 5, 50])
def test_one_outcome_for_every_input_refutes_no_gaussian_claim(mu, confidence, times):
    """Its event has probability 1, where the curve has no slope."""
    fewest = counting.samples_for(GaussianLimit(), mu, 1.0 - confidence)
    for outcome in (0.0, np.nan):
        noise = lambda bit, rng, size: np.full(size, outcome)  # noqa: B023, E731
        options = {"samples": times * fewest, "confidence": confidence, "rng": 0}
        verdict = verify_privacy(noise, 0, 1, GaussianPrivacy(mu), **options)
        assert not verdict.refuted and verdict.mu == 0.0


@pytest.mark.parametrize("limit", [ApproximateLimit(0.1), GaussianLimit()])
def test_slopes_are_finite_at_any_rates(limit):
    rates = (0.0, 1e-300, 1e-9, 0.5, 1.0 - 1e-16, 1.0)
    for p in rates:
        for q in rates:
            for level in (0.0, 1.0, 8.0):
                slope = counting.best_slope((p, q), level, 50, limit, 0.1)
                assert 0.0 <= slope < math.inf


def test_a_slope_that_is_no_number_rejects_nothing():
    assert log_p_value(Counts(9, 9, 9, math.nan), GaussianLimit(), 0.0, 0.1)[0] >= math.log(0.1)


def test_runs_that_repeat_in_calls_of_one_size_are_refused():
    """The first call and that of the first stage are equally large, the last one is not."""

    def mechanism(bit, rng, size):
        return bit + np.random.default_rng([bit, size]).laplace(0.0, 0.5, size)

    with pytest.raises(ValueError, match="two calls gave the same ones"):
        verify_privacy(mechanism, 0, 1, 1.0, samples=3_000, confidence=0.9, rng=0)


def laplace(scale):
    return lambda count, rng, size: count + rng.laplace(0.0, scale, size)


def test_words_are_read_by_their_entries_however_few_are_learned_from():
    def words(bit, rng, size):
        drawn = [rng.integers(0, 5, size=3 + rng.integers(3)) for _ in range(size)]
        return [["xyzuv"[i] for i in row] + ["w"] * bit for row in drawn]

    for samples, confidence in ((60, 0.9), (90, 1 - 1e-9), (150, 1 - 1e-9)):
        options = {"samples": samples, "confidence": confidence, "rng": 0}
        assert verify_privacy(words, 0, 1, 0.3, **options).refuted


def test_a_rare_event_is_counted_in_one_stage():
    def leak(bit, rng, size):
        return (1 - bit) * (rng.random(size) < 0.02)

    verdict = verify_privacy(leak, 0, 1, 1.0, samples=1_600, confidence=0.99, rng=0)
    assert "Before" not in str(verdict)
    assert verdict.runs == 1_600 - counting._learned(1_600, 0.01)


def test_a_first_event_without_prospects_is_not_counted():
    """Then the event is learned from as many runs as in one stage."""
    options = {"samples": 5_000, "confidence": 0.9, "rng": 0}
    verdict = verify_privacy(laplace(1.0), 0, 1, 2.0, **options)
    assert not verdict.refuted and "Before" not in str(verdict)
    assert verdict.runs == 5_000 - counting._learned(5_000, 0.1)


def test_a_verdict_reports_both_stages():
    verdict = verify_privacy(laplace(0.5), 0, 1, 1.0, samples=5_000, confidence=0.9, rng=0)
    (note,) = verdict.notes
    counts = re.search(r"happened in ([\d,]+) and ([\d,]+) of ([\d,]+) other runs", note)
    first = [int(text.replace(",", "")) for text in counts.groups()]
    assert verdict.refuted and max(first[:2]) <= first[2]
    assert verdict.runs + 2 * first[2] == verdict.samples  # the first event: learned from as many


def test_no_event_is_counted_where_it_was_learned(monkeypatch):
    """No run is counted twice, and the shares of both stages sum to 1."""
    learn, bound, seen, events = counting.learn_event, counting.lower_bound, [], []

    def learned(reader, first, second, goal):
        choice = learn(reader, first, second, goal)
        known = {*first.values[:, 0], *second.values[:, 0]}
        assert all(known >= earlier for earlier in seen)  # including the runs counted before
        seen.append(known)
        count = choice.event.count

        def counted(outcomes):
            assert known.isdisjoint(outcomes.values[:, 0])
            seen.append(set(outcomes.values[:, 0]))
            return count(outcomes)

        choice.event.count = counted
        return choice

    def bounded(stages, *rest, **options):
        events.append([stage.share for stage in stages])
        return bound(stages, *rest, **options)

    monkeypatch.setattr(counting, "learn_event", learned)
    monkeypatch.setattr(counting, "lower_bound", bounded)
    verify_privacy(laplace(0.5), 0, 1, 1.0, samples=5_000, confidence=0.9, rng=0)
    ((first, second),) = events
    assert 0.1 < first < 0.5 and first + second == 1.0
    assert len(set.union(*seen)) == 2 * 5_000


@pytest.mark.parametrize(("most", "two"), [(2_040, True), (2_039, False), (700, False)])
def test_no_more_runs_are_kept_than_may_be_learned_from(monkeypatch, most, two):
    learn, sizes = counting.learn_event, []
    monkeypatch.setattr(counting, "_LEARN", most)
    monkeypatch.setattr(counting, "_PILOT", 100)
    monkeypatch.setattr(
        counting, "learn_event", lambda *given: (sizes.append(len(given[1])), learn(*given))[1]
    )
    verify_privacy(laplace(0.5), 0, 1, 1.0, samples=4_000, confidence=0.9, rng=0)
    assert len(sizes) == 1 + two and max(sizes) <= most


@pytest.mark.slow
def test_two_stages_refute_more_often_than_one(monkeypatch):
    def refuted():
        options = {"delta": 0.01, "samples": 3_000, "confidence": 0.9}
        noise, claim = gaussian(0.7), gaussian_epsilon(1.0, 0.01)
        return sum(
            verify_privacy(noise, 0, 1, claim, rng=seed, **options).refuted for seed in range(150)
        )

    two = refuted()
    monkeypatch.setattr(counting, "_TWO_STAGES", math.inf)
    assert two > refuted() + 3


def gaussian(std):
    return lambda count, rng, size: count + rng.normal(0.0, std, size)


@pytest.mark.slow
def test_too_small_gaussian_noise_is_refuted_by_its_curve_and_not_at_a_small_delta():
    """True epsilon 1.47 at delta 1e-5 where 1 is claimed."""
    stds = {}
    for epsilon in (1.0, 1.47):
        low, high = 0.5, 20.0
        for _ in range(60):
            middle = 0.5 * (low + high)
            low, high = (
                (middle, high) if gaussian_epsilon(middle, 1e-5) > epsilon else (low, middle)
            )
        stds[epsilon] = high
    claim = GaussianPrivacy(1.0 / stds[1.0])
    wrong = verify_privacy(gaussian(stds[1.47]), 0, 1, claim, samples=100_000, rng=0)
    right = verify_privacy(gaussian(stds[1.0]), 0, 1, claim, samples=100_000, rng=0)
    assert wrong.refuted and claim.mu < wrong.mu <= 1.0 / stds[1.47]
    assert not right.refuted and right.mu > 0.8 * claim.mu
    rare = verify_privacy(gaussian(stds[1.47]), 0, 1, 1.0, delta=1e-5, samples=100_000, rng=0)
    assert not rare.refuted
    with pytest.raises(AttributeError, match="so there is no bound on epsilon"):
        _ = wrong.epsilon


@pytest.mark.slow
def test_a_confidence_that_is_lower_does_not_lose_power():
    """Laplace noise sqrt 2 too small, beside a coordinate that is independent of the data."""

    def broken(count, rng, size):
        return np.array([count, 0.0]) + rng.laplace(0.0, 1 / math.sqrt(2), (size, 2))

    bounds = []
    for confidence in (1 - 1e-9, 0.99, 0.9):
        verdicts = [
            verify_privacy(broken, 0, 1, 1.0, samples=12_000, confidence=confidence, rng=seed)
            for seed in range(4)
        ]
        assert all(verdict.refuted for verdict in verdicts)
        bounds.append(np.mean([verdict.epsilon for verdict in verdicts]))
    assert bounds[0] < bounds[1] < bounds[2] < math.sqrt(2)


@pytest.mark.parametrize(
    ("mu", "delta", "message"),
    [
        (-1.0, 0.0, "mu must lie in"),
        (math.nan, 0.0, "mu must lie in"),
        (1.0, 0.1, "delta must be 0"),
    ],
)
def test_claims_of_mu_are_checked(mu, delta, message):
    with pytest.raises(ValueError, match=message):
        verify_privacy(gaussian(1.0), 0, 1, GaussianPrivacy(mu), delta=delta, samples=100)
