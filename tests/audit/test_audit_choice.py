"""The event that the verifier chooses to count, and its power at few runs."""

import math
from functools import partial

import numpy as np
import pytest
from scipy import special, stats

from dpanalysis.audit import learning, verify_privacy
from dpanalysis.audit.counting import Counts, _first_share, best_slope, log_p_value
from dpanalysis.audit.events import ApproximateLimit, GaussianLimit
from dpanalysis.audit.joint import ranked
from dpanalysis.audit.learning import POWER, Choice, Goal, learn_event, worst
from dpanalysis.audit.outcomes import Outcomes, Reader


def sparse(bit, rng, size):
    """Sparse vector with half the noise: only halting at the last of ten queries is informative."""
    queries = np.r_[np.zeros(9), 1.0] if bit == 0 else np.r_[np.ones(9), 0.0]
    threshold = 1.0 + rng.laplace(0.0, 1.0, (size, 1))
    halts = queries + rng.laplace(0.0, 2.0, (size, 10)) >= threshold
    return np.where(halts.any(axis=1), halts.argmax(axis=1), 10)


@pytest.mark.slow
def test_an_event_that_may_refute_is_preferred_to_a_common_one_that_cannot():
    """At confidence .9 no event has an expected bound above 1, yet 47 of 80 audits refute.

    Without the chance to refute as a criterion, 24 do.
    """
    verdicts = [
        verify_privacy(sparse, 0, 1, 1.0, samples=6_000, confidence=0.9, rng=seed)
        for seed in range(80)
    ]
    assert sum(verdict.refuted for verdict in verdicts) >= 42
    assert sum(str(verdict.event) == "output == 9" for verdict in verdicts) >= 42


@pytest.mark.parametrize(("times", "chosen"), [(1, "common"), (20, "rare")])
def test_a_rare_event_is_chosen_only_with_many_runs(times, chosen):
    """Of 226 runs, 30 against 1 may be chance, 127 against 31 hardly; of 4,520, neither is."""
    counts = np.array([[30.0, 127.0], [1.0, 31.0]]) * times
    goal = Goal(ApproximateLimit(0.0), 1.0, 366 * times, float(special.ndtri(0.9)))
    size = 226 * times
    found = learning._distances(counts[0] / size, counts[1] / size, size, goal)
    assert ("rare", "common")[int(np.argmax(found))] == chosen


@pytest.mark.slow
def test_chance_differences_are_not_chosen_where_the_claim_holds():
    """Laplace noise with a tight claim: the best half-line is chosen, not a union of cells."""

    def laplace(count, rng, size):
        return count + rng.laplace(size=size)

    for seed in range(10):
        verdict = verify_privacy(laplace, 0, 1, 1.0, samples=100_000, rng=seed)
        assert 0.92 < verdict.epsilon <= 1.0, str(verdict)


@pytest.mark.slow
@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_a_sum_fitted_to_halves_gets_the_threshold_of_the_whole_fit(monkeypatch, offset):
    """The two halves fit different weights, so far from zero their thresholds do not agree."""
    fitted = learning.fitted_scores
    monkeypatch.setattr(learning, "fixed_scores", lambda *runs: [])
    monkeypatch.setattr(
        learning, "fitted_scores", lambda *runs: {"whitened": fitted(*runs)["whitened"]}
    )
    monkeypatch.setattr(learning, "_unions", lambda trial, reader: ())

    def vector(bit, rng, size):
        return offset + rng.normal(0.5 * bit, 1.0, (size, 12))

    random = np.random.default_rng(0)
    low, high = (vector(bit, random, 1_500) for bit in (0, 1))
    goal = Goal(ApproximateLimit(0.0), claim=1.0, runs=4_000, quantile=2.3)
    reader = Reader([low])
    event, likelier, *_ = learn_event(reader, reader.read(low), reader.read(high), goal)
    p, q = (event(vector(bit, random, 20_000)).mean() for bit in (likelier, 1 - likelier))
    assert 0.001 < q < 0.5 * p < 0.45
    # The best half-space of this size has a mu of sqrt 3.
    assert p > special.ndtr(special.ndtri(q) + math.sqrt(3.0)) - 0.05


def test_fewer_samples_than_a_bound_needs_still_choose_a_telling_event():
    low, high = np.zeros(4), np.ones(4)
    goal = Goal(ApproximateLimit(0.0), claim=3.0, runs=4, quantile=6.0)
    reader = Reader([low])
    event, likelier, *_ = learn_event(reader, reader.read(low), reader.read(high), goal)
    assert event([0.0, 1.0]).tolist() == [likelier == 0, likelier == 1]


@pytest.mark.parametrize("crossed", [5, 50])
def test_a_score_without_parameters_is_judged_by_all_runs(monkeypatch, crossed):
    monkeypatch.setattr(learning, "_CROSSED", crossed)
    sides = [Outcomes(x) for x in np.random.default_rng(0).normal(size=(2, 41, 1))]
    for counts, make, size in learning._lines(next(learning._trials(*sides))):
        assert size == 41
        for place in range(counts[0].size):
            found = [np.count_nonzero(make(place).contains(side)) for side in sides]
            assert found == [count[place] for count in counts]


def test_the_logistic_score_of_two_normal_laws_is_their_log_ratio():
    """Which has products of the coordinates, since only one of the laws has a correlation."""
    random, mixing = np.random.default_rng(0), np.array([[1.0, 0.5], [0.0, 1.0]])
    first, second = random.normal(size=(2, 4_000, 2))
    first, second = first @ mixing, second + np.array([0.5, 0.0])
    fitted = learning.fitted_scores(Outcomes(first), Outcomes(second), ranked(first, second))
    x = np.concatenate([first, second])
    laws = [
        stats.multivariate_normal([0.0, 0.0], mixing.T @ mixing),
        stats.multivariate_normal([0.5, 0.0], np.eye(2)),
    ]
    ratio = laws[0].logpdf(x) - laws[1].logpdf(x)
    assert np.std(fitted["logistic"](x) - ratio) < 0.4 * np.std(ratio)


@pytest.mark.parametrize("miss", [0.1, 0.01, 1e-9])
@pytest.mark.parametrize(
    ("p", "q", "limit", "level"),
    [
        (0.56, 0.14, ApproximateLimit(0.0), 1.0),
        (0.02, 0.005, ApproximateLimit(0.0), 1.0),
        (0.3, 0.037, ApproximateLimit(0.0), 1.0),
        (0.1, 0.007, ApproximateLimit(1e-5), 1.0),
        (0.7, 0.2, GaussianLimit(), 1.0),
    ],
)
def test_no_slope_has_a_much_smaller_p_value_at_counts_of_nine_in_ten(p, q, limit, level, miss):
    z = -float(special.ndtri(miss)) + POWER
    rise = float(limit.slope(limit.most(q, level), q))
    variance = p * (1.0 - p) + rise**2 * q * (1.0 - q)
    runs = math.ceil(1.2 * z**2 * variance / (p - float(limit.most(q, level))) ** 2)
    low, high = worst(np.array(p), np.array(q), limit, POWER**2 / runs)

    def chance(slope):
        counts = Counts(round(runs * float(low)), round(runs * float(high)), runs, slope)
        return log_p_value(counts, limit, level, miss)[0]

    chosen = chance(best_slope((p, q), level, runs, limit, miss))
    least = min(chance(rise * factor) for factor in np.geomspace(0.7, 5.0, 60))
    assert chosen < least + 0.05 * abs(least) + 0.1


def test_events_that_always_or_never_happen_say_nothing_of_mu():
    assert (GaussianLimit().level([0.0, 1.0], [0.0, 1.0]) == -math.inf).all()


@pytest.mark.parametrize(
    ("p", "q", "limit", "level"),
    [(0.5, 0.1, ApproximateLimit(0.0), math.log(3.0)), (0.7, 0.2, GaussianLimit(), 1.0)],
)
def test_the_first_stage_has_the_share_of_its_squared_expected_quantile(p, q, limit, level):
    """Where the second is expected to refute as nine of ten do; by the law of the counts."""
    runs, later, quantile = 2_000, 100, 6.0
    counted = np.arange(runs + 1)
    weights, allowed = stats.binom.pmf(counted, runs, q), limit.most(counted / runs, level)
    excess = p - weights @ allowed
    variance = p * (1.0 - p) / runs + weights @ allowed**2 - (weights @ allowed) ** 2
    first, second = excess**2 / variance, (quantile + POWER) ** 2
    share = _first_share(
        Choice(None, 0, (p, q), level), runs, later, Goal(limit, level, later, quantile)
    )
    assert share == pytest.approx(first / (first + second), rel=0.01)


@pytest.mark.parametrize("width", [1, 4, 30])
def test_noise_whose_scale_differs_is_detected_by_the_distance_from_the_median(width):
    """A square makes one event of both tails; two bins learned separately take more runs."""

    def mechanism(bit, rng, size):
        noise = rng.laplace(0.0, 1.0, (size, width))
        noise[:, width // 2] *= 3.0 if bit else 1.0
        return 7.0 + (noise if width > 1 else noise[:, 0])

    audit = partial(verify_privacy, mechanism, 0, 1, 1.0, samples=1_200, confidence=1 - 1e-9)
    verdicts = [audit(rng=seed) for seed in range(5)]
    assert sum(verdict.refuted for verdict in verdicts) >= 4
    name = f"output[{width // 2}]" if width > 1 else "output"
    assert all(str(each.event).startswith(f"({name} - ") for each in verdicts if each.refuted)


def test_thresholds_are_dense_in_both_tails():
    thresholds = learning._thresholds(np.arange(100_000.0))
    assert {1.0, 2.0, 3.0, 99_996.0, 99_997.0, 99_998.0} <= set(thresholds)
