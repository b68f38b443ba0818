"""Noise drawn on a device: the published bits, the right law, the right sources.

Seeds are fixed. Before they were, every Kolmogorov-Smirnov test rejected the right law with
probability 1e-6 and every other statistic lay beyond 5.3 standard deviations with probability
1.2e-7, so that the whole file raised a false alarm with probability below 1e-4.
"""

import math

import array_api_strict
import numpy as np
import pytest
from scipy import stats

import dpanalysis as dpa
from dpanalysis.privacy import _philox, mechanisms
from dpanalysis.privacy.mechanisms import SystemRandom, add_noise, random_source

LEVEL, SAMPLES = 1e-6, 20_000
LAWS = {"laplace": stats.laplace, "gaussian": stats.norm}
SPACES = [np, array_api_strict]

# Counter, key and output of ten rounds: the known answers that Random123 is distributed with.
KNOWN = [
    ("00000000 " * 4, "00000000 " * 2, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff " * 4, "ffffffff " * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    (
        "243f6a88 85a308d3 13198a2e 03707344",
        "a4093822 299f31d0",
        "d16cfe09 94fdcceb 5001e420 24126ea1",
    ),
]


def words(text):
    return np.array([int(word, 16) for word in text.split()], dtype=np.uint64)


def noise(mechanism, scale, size, rows=1):
    sources = mechanisms.spawn(0, rows)
    zeros = array_api_strict.zeros((rows, size), dtype=array_api_strict.float64)
    return np.asarray(add_noise(zeros, mechanism, scale, sources))


@pytest.fixture
def drawn_there(monkeypatch):
    """Make even short rows get noise drawn on the device."""
    monkeypatch.setattr(mechanisms, "DRAWN_ON_DEVICE", 1)


@pytest.mark.parametrize("xp", SPACES)
@pytest.mark.parametrize(("counter", "key", "output"), KNOWN)
def test_the_published_bits(xp, counter, key, output):
    counter, key, output = words(counter), words(key), words(output)
    even, odd = (xp.asarray(part[:, None, None]) for part in (counter[::2], counter[1::2]))
    even, odd = _philox.philox(xp, even, odd, key[:, None])
    found = np.stack([np.asarray(even), np.asarray(odd)], axis=1).ravel()
    np.testing.assert_array_equal(found, output)


def reference(counter, key):
    """Compute one Philox block in integers, from the definition."""
    a, b, c, d = map(int, counter)
    k, m = map(int, key)
    for _ in range(10):
        p, q = 0xD2511F53 * a, 0xCD9E8D57 * c
        a, b, c, d = (q >> 32) ^ b ^ k, q % 2**32, (p >> 32) ^ d ^ m, p % 2**32
        k, m = (k + 0x9E3779B9) % 2**32, (m + 0xBB67AE85) % 2**32
    return a * 2**32 + b, c * 2**32 + d


def test_every_entry_has_a_counter_of_its_own():
    """Key and upper half hold the seed, the lower half the index; all namespaces agree."""
    seeds = np.random.default_rng(0).integers(2**32, size=(3, _philox.SEED_WORDS))
    bits = _philox.random_bits(np, seeds, 50, "cpu")
    for r, seed in enumerate(seeds):
        for i in (0, 1, 49):
            counter = (i, 0, seed[2], seed[3])
            assert tuple(map(int, bits[:, r, i])) == reference(counter, seed[:2])
    assert np.unique(bits).size == bits.size
    device = array_api_strict.asarray(0.0).device
    other = _philox.random_bits(array_api_strict, seeds, 50, device)
    np.testing.assert_array_equal(np.asarray(other), bits)


@pytest.mark.parametrize("mechanism", LAWS)
@pytest.mark.parametrize("scale", [0.01, 1.0, 250.0])
def test_the_right_scale_is_accepted_and_wrong_ones_are_not(mechanism, scale, drawn_there):
    """The test rejects a variance, or a factor sqrt 2, in place of the scale."""
    drawn = noise(mechanism, scale, SAMPLES)[0]
    law = LAWS[mechanism]
    assert stats.kstest(drawn, law(scale=scale).cdf).pvalue > LEVEL
    wrong = [scale * factor for factor in (math.sqrt(2), 1 / math.sqrt(2), 2.0, 0.5)]
    for other in [*wrong, *([scale**2] if scale != 1.0 else [])]:
        assert stats.kstest(drawn, law(scale=other).cdf).pvalue < LEVEL
    alike = scale * math.sqrt(2) if mechanism == "laplace" else scale / math.sqrt(2)
    other = LAWS["gaussian" if mechanism == "laplace" else "laplace"]  # of the same variance
    assert stats.kstest(drawn, other(scale=alike).cdf).pvalue < LEVEL


@pytest.mark.parametrize("mechanism", LAWS)
def test_tails_and_independence(mechanism, drawn_there):
    drawn = noise(mechanism, 1.0, 400_000, rows=2)
    for limit in (0.5, 2.0, 3.0, 4.0):
        p = 2.0 * LAWS[mechanism].sf(limit)
        count = np.count_nonzero(np.abs(drawn) > limit)
        assert abs(count - drawn.size * p) < 5.3 * math.sqrt(drawn.size * p * (1.0 - p)) + 1.0
    x, y = drawn
    half = x.size // 2
    pairs = [(x, y), (x[1:], x[:-1]), (x[:half], x[half:]), (x**2 - np.mean(x**2), y**2 - 1.0)]
    for left, right in [*pairs, (x[:half] ** 2 - np.mean(x**2), x[half:] ** 2 - np.mean(x**2))]:
        score = np.sum(left * right) / math.sqrt(np.sum(left**2 * right**2))
        assert abs(score) < 5.3


@pytest.mark.parametrize("bits", [0, 1, 2**64 - 1, 2**64 - 2])
def test_noise_is_finite_at_the_ends(bits, monkeypatch, drawn_there):
    """Also from a generator that repeats one value; the last bit ends the tail at 2^-192."""
    monkeypatch.setattr(
        _philox,
        "random_bits",
        lambda xp, seeds, count, device: xp.full((2, len(seeds), count), bits, dtype=xp.uint64),
    )
    most = 192 * math.log(2) * (1 + 1e-12)
    assert np.abs(noise("laplace", 1.0, 3)).max() <= most
    assert np.abs(noise("gaussian", 1.0, 3)).max() <= math.sqrt(2.0 * most)


@pytest.mark.parametrize("mechanism", LAWS)
def test_a_row_depends_on_its_source_alone_and_every_call_is_new(mechanism, drawn_there):
    many, few = noise(mechanism, 1.0, 7, rows=5), noise(mechanism, 1.0, 7, rows=2)
    np.testing.assert_array_equal(many[:2], few)
    assert np.unique(many).size == many.size
    source = [random_source(0)]
    zeros = array_api_strict.zeros((1, 7), dtype=array_api_strict.float64)
    first, second = (np.asarray(add_noise(zeros, mechanism, 1.0, source)) for _ in range(2))
    assert not np.intersect1d(first, second).size


@pytest.mark.parametrize("mechanism", LAWS)
def test_short_rows_get_the_noise_of_the_host(mechanism):
    sources = mechanisms.spawn(4, 3)
    start = np.arange(30.0).reshape(3, 10)
    expected = add_noise(start.copy(), mechanism, 0.5, sources)
    found = add_noise(array_api_strict.asarray(start), mechanism, 0.5, mechanisms.spawn(4, 3))
    np.testing.assert_array_equal(np.asarray(found), expected)


@pytest.mark.parametrize("mechanism", LAWS)
def test_long_rows_get_the_numbers_of_the_device(mechanism, monkeypatch):
    monkeypatch.setattr(mechanisms, "DRAWN_ON_DEVICE", 10)
    seeds = mechanisms.spawn(0, 1)[0].integers(2**32, size=(1, _philox.SEED_WORDS))
    there = 0.5 * _philox.LAWS[mechanism](np, seeds, 10, "cpu")
    np.testing.assert_array_equal(noise(mechanism, 0.5, 10), there)
    here = mechanisms.noisy(mechanisms.spawn(0, 1)[0], np.zeros(9), mechanism, 0.5)
    np.testing.assert_array_equal(noise(mechanism, 0.5, 9)[0], here)


@pytest.mark.parametrize("mechanism", LAWS)
def test_system_entropy_is_never_expanded_by_a_generator(mechanism, drawn_there, monkeypatch):
    """All bits come from the operating system, also for rows that a device would draw."""
    monkeypatch.setattr(_philox, "LAWS", {})
    zeros = array_api_strict.zeros((2, SAMPLES), dtype=array_api_strict.float64)
    drawn = np.asarray(add_noise(zeros, mechanism, 3.0, [SystemRandom(), random_source(0)]))
    for row in drawn:
        assert stats.kstest(row, LAWS[mechanism](scale=3.0).cdf).pvalue > LEVEL


@pytest.mark.parametrize("mechanism", LAWS)
def test_a_run_gets_the_noise_that_its_ledger_states(mechanism, drawn_there):
    """For a constant objective one step from 0 is minus the noise."""
    d, scale = 5000, 0.7
    X = array_api_strict.asarray(np.zeros((3, d)))
    problem = dpa.ERM(X, [1, 1, -1], dpa.losses.Logistic(), row_bound=dpa.RowBound(1, 1.0))
    method = dpa.methods.GradientDescent(1.0, 1, noise=[scale], mechanism=mechanism)
    result = dpa.minimize(problem, method, rng=5, replicates=3, record=())
    event = result.ledger.events[0]
    assert getattr(event, "std" if mechanism == "gaussian" else "scale") == scale
    for row in result.w:
        assert stats.kstest(row, LAWS[mechanism](scale=scale).cdf).pvalue > LEVEL
        assert stats.kstest(row, LAWS[mechanism](scale=scale**2).cdf).pvalue < LEVEL
    exact = dpa.minimize(problem, dpa.methods.GradientDescent(1.0, 1), rng=5, record=())
    assert not exact.w.any()


@pytest.mark.parametrize("make", [np.zeros, array_api_strict.zeros])
def test_bad_scales_and_sources_raise(make):
    for scale in (-1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="must lie in"):
            add_noise(make((1, 2)), "laplace", scale, [random_source(0)])
    with pytest.raises(ValueError, match="sources must be 2, one for each row, got 1"):
        add_noise(make((2, 2)), "gaussian", 1.0, [random_source(0)])


@pytest.mark.parametrize("law", ["laplace", "gaussian"])
def test_one_row_has_the_noise_of_the_first_of_two(law):
    start = np.arange(12.0).reshape(2, 6)
    one = add_noise(start[:1].copy(), law, 0.7, [np.random.default_rng(4)])
    both = add_noise(start.copy(), law, 0.7, [np.random.default_rng(seed) for seed in (4, 5)])
    np.testing.assert_array_equal(one, both[:1])
