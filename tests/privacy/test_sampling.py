"""Sampling: exact laws, sorted rows, any random source, time proportional to the batch."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dpanalysis.privacy import (
    Budget,
    Full,
    Poisson,
    WithoutReplacement,
    WithReplacement,
    noise,
)
from dpanalysis.privacy.mechanisms import SystemRandom, random_source

# Each statistical test below rejects a correct draw with this probability; seeds are fixed.
FALSE_ALARM = 1e-4


@given(n=st.integers(1, 300), part=st.floats(0.0, 1.0), seed=st.integers(0, 2**32))
def test_without_replacement_draws_m_different_sorted_rows(n, part, seed):
    m = max(1, round(part * n))
    rows = WithoutReplacement(m).draw(n, random_source(seed))
    assert rows.dtype == np.int64 and rows.shape == (m,)
    assert (np.diff(rows) > 0).all() and rows[0] >= 0 and rows[-1] < n


@given(
    n=st.integers(1, 300),
    rate=st.floats(2.0**-40, 1.0),
    seed=st.integers(0, 2**32),
)
def test_poisson_draws_different_sorted_rows(n, rate, seed):
    rows = Poisson(rate).draw(n, random_source(seed))
    assert rows.dtype == np.int64 and rows.size <= n
    assert (np.diff(rows) > 0).all() and ((rows >= 0) & (rows < n)).all()


def test_a_rate_finer_than_uniform_numbers_needs_the_source_of_the_system():
    with pytest.raises(ValueError, match=r"rate must be at least 2\^-40 for a seeded generator"):
        Poisson(1e-20).draw(10, random_source(0))
    assert Poisson(1e-20).draw(10, SystemRandom()).size == 0


@pytest.mark.parametrize(("n", "m"), [(5, 1), (5, 2), (6, 3), (5, 4), (6, 5), (4, 4)])
def test_every_subset_is_equally_likely(n, m):
    random = random_source(100 * n + m)
    subsets = list(itertools.combinations(range(n), m))
    counts = Counter(tuple(WithoutReplacement(m).draw(n, random)) for _ in range(6000))
    assert set(counts) <= set(subsets)
    if len(subsets) > 1:
        assert stats.chisquare([counts[s] for s in subsets]).pvalue > FALSE_ALARM


@pytest.mark.parametrize("limit", [noise.LIMIT, 1.0])
@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_poisson_is_a_product_of_bernoullis(rate, limit, monkeypatch):
    """With the limit 1 a third of the gaps are long, for which 53 bits would be too few."""
    monkeypatch.setattr(noise, "LIMIT", limit)
    monkeypatch.setattr(noise, "SMALL", math.exp(-limit))
    n, draws = 4, 8000
    random = random_source(17)
    counts = Counter(tuple(Poisson(rate).draw(n, random)) for _ in range(draws))
    subsets = [s for k in range(n + 1) for s in itertools.combinations(range(n), k)]
    expected = [draws * rate ** len(s) * (1 - rate) ** (n - len(s)) for s in subsets]
    # Rare subsets are pooled so that the chi-square approximation holds.
    big = [i for i, e in enumerate(expected) if e >= 5]
    observed = [counts[subsets[i]] for i in big]
    wanted = [expected[i] for i in big]
    if len(big) < len(subsets):
        observed.append(draws - sum(observed))
        wanted.append(draws - sum(wanted))
    if wanted[-1] < 1e-9:
        observed, wanted = observed[:-1], wanted[:-1]
    wanted = np.multiply(wanted, draws / sum(wanted))  # the mass cut off is below 1e-9
    assert stats.chisquare(observed, wanted).pvalue > FALSE_ALARM


def test_a_wrong_rate_is_rejected():
    """The chi-square test has power: it rejects a rate that is off by ten percent."""
    random, draws = random_source(5), 8000
    sizes = [Poisson(0.55).draw(4, random).size for _ in range(draws)]
    expected = draws * stats.binom.pmf(range(5), 4, 0.5)
    assert stats.chisquare(np.bincount(sizes, minlength=5), expected).pvalue < FALSE_ALARM


def test_large_draws_have_the_right_size_and_spread():
    n, rate = 495_141, 0.01
    rows = Poisson(rate).draw(n, random_source(1))
    assert abs(rows.size - rate * n) < 5 * np.sqrt(n * rate * (1 - rate))  # 6e-7
    assert stats.kstest(rows / n, "uniform").pvalue > FALSE_ALARM
    rows = WithoutReplacement(4951).draw(n, random_source(2))
    assert stats.kstest(rows / n, "uniform").pvalue > FALSE_ALARM


def test_draws_repeat_with_the_seed_and_take_the_systems_entropy():
    for sampling in (WithoutReplacement(20), Poisson(0.2)):
        one, two = (sampling.draw(100, random_source(3)) for _ in range(2))
        assert np.array_equal(one, two)
        rows = sampling.draw(100, SystemRandom())
        assert (np.diff(rows) > 0).all()


def test_the_whole_data():
    assert Full().draw(7, random_source(0)) is None
    assert np.array_equal(Poisson(1.0).draw(7, random_source(0)), np.arange(7))
    assert np.array_equal(WithoutReplacement(7).draw(7, random_source(0)), np.arange(7))


def test_expected_sizes_and_fractions():
    assert Full().expected_size(10) == 10.0 and Full().fraction(None) == 1.0
    assert WithoutReplacement(4).expected_size(10) == 4.0
    assert WithoutReplacement(4).fraction(10) == 0.4
    assert Poisson(0.3).expected_size(10) == 3.0 and Poisson(0.3).fraction(None) == 0.3


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: WithoutReplacement(0), ValueError, "m must be at least 1, got 0"),
        (lambda: WithoutReplacement(2.0), TypeError, "m must be an integer"),
        (lambda: WithoutReplacement(11).validate(10), ValueError, "m must be at most n = 10"),
        (lambda: WithoutReplacement(3).fraction(None), ValueError, "number of records n"),
        (lambda: Poisson(0.0), ValueError, "rate must lie in"),
        (lambda: Poisson(1.5), ValueError, "rate must lie in"),
        (lambda: Full().validate(0), ValueError, "n must be at least 1"),
        (lambda: Budget(0.0), ValueError, "epsilon must lie in"),
        (lambda: Budget(float("inf")), ValueError, "epsilon must lie in"),
        (lambda: Budget(float("nan")), ValueError, "epsilon must lie in"),
        (lambda: Budget(1.0, delta=1.0), ValueError, "delta must lie in"),
        (lambda: Budget(1.0, delta=-1e-9), ValueError, "delta must lie in"),
        (lambda: Budget(1.0, relation="swap"), ValueError, "relation must be one of"),
        (lambda: Budget(), ValueError, "exactly one of epsilon and rho"),
        (lambda: Budget(1.0, rho=1.0), ValueError, "exactly one of epsilon and rho"),
        (lambda: Budget.zcdp(-1.0), ValueError, "rho must lie in"),
        (lambda: Budget(rho=1.0, delta=0.1), ValueError, "delta must be 0"),
    ],
)
def test_bad_arguments_are_named(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_budgets_know_their_limit():
    assert Budget(2.0, 1e-5).limit == 2.0 and Budget.zcdp(0.3).limit == 0.3
    assert Budget(1) == Budget(1.0) and hash(Budget(1)) == hash(Budget(1.0))


class Zeros:
    """Uniform numbers that make every gap of a Poisson batch as short as possible."""

    def random(self, size):
        return np.zeros(size)


def test_every_refill_of_a_poisson_batch_goes_on_where_the_last_one_ended():
    """All records are drawn, which takes dozens of refills; none is drawn twice."""
    rows = Poisson(0.01).draw(2000, Zeros())
    np.testing.assert_array_equal(rows, np.arange(2000))


@given(high=st.integers(0, 255), low=st.integers(0, 255))
def test_trials_succeed_with_exactly_their_rate(high, low):
    """Over all values of two bytes, the fraction of successes is exactly the dyadic rate."""
    successes = 0
    for second in range(256):
        answers = [np.arange(256, dtype=np.uint8), np.array([second], dtype=np.uint8)]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                "dpanalysis.privacy.noise.os.urandom", lambda k, a=answers: a.pop(0).tobytes()
            )
            rows = SystemRandom().trials((256 * high + low) / 65536, 256)
        assert (np.diff(rows) > 0).all()
        successes += rows.size
    assert successes == 256 * high + low


@given(n=st.integers(1, 200), rate=st.floats(0.0, 1.0, exclude_min=True))
def test_batches_of_the_system_are_drawn_without_floating_point(n, rate):
    source, m = SystemRandom(), max(1, int(rate * n))
    for scheme in (Poisson(rate), WithoutReplacement(m)):
        rows = scheme.draw(n, source)
        assert rows.dtype == np.int64 and (np.diff(rows) > 0).all()
        assert ((rows >= 0) & (rows < n)).all()
        assert isinstance(scheme, Poisson) or rows.size == m
    assert WithReplacement(m).draw(n, source).shape == (m,)
    assert not source.floating


def test_batches_of_the_system_have_the_stated_mean_size():
    source = SystemRandom()
    counts = [Poisson(0.01).draw(100_000, source).size for _ in range(50)]
    # 50,000 in all, with a standard deviation of 222.
    assert abs(sum(counts) - 50_000) < 6 * 222
    rows = np.concatenate([WithoutReplacement(3).draw(7, source) for _ in range(7000)])
    assert abs(np.bincount(rows, minlength=7) - 3000).max() < 6 * 42


def test_midpoints_of_intervals_map_to_their_index():
    """The bitmap relies on floor(((k + 1/2)/n) n) = k in double precision."""
    for n in (3, 7, 10**6 + 3, 2**40 - 87):
        k = np.unique(np.concatenate([np.arange(min(n, 10**5)), n - 1 - np.arange(min(n, 10**5))]))
        assert (((k + 0.5) / n * n).astype(np.int64) == k).all()
