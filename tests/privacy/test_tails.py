"""Tails of full precision: their range, their exact law, and unchanged numbers outside them.

Uniform numbers of 53 bits below 2^-40 are forced in two ways: by a source with scripted bits,
and by a NumPy generator that is set to the state before that number.

The tests of a law are exact: the right law fails one with a computed probability below 1e-6.
There are 16, so the file raises a false alarm with probability below 2e-5; seeds are fixed.
"""

import math

import array_api_strict
import mpmath as mp
import numpy as np
import pytest
from scipy import stats

from dpanalysis.privacy import Poisson, _philox
from dpanalysis.privacy.mechanisms import (
    SystemRandom,
    exponential,
    gaussian,
    gumbel,
    laplace,
    spherical,
)

LEVEL = 1e-6
T = 40.0 * math.log(2.0)


class Scripted(SystemRandom):
    """64-bit words with the listed 53 upper bits, then words from a generator."""

    def __init__(self, *heads, low_bits=1):
        self.heads, self.low_bits = list(heads), low_bits
        self.rest = np.random.default_rng(8)
        self.drawn = 0

    def _bits(self, size):
        count = 1 if size is None else int(np.prod(size))
        self.drawn += count
        first = [(head << 11) | self.low_bits for head in self.heads[:count]]
        del self.heads[:count]
        more = self.rest.integers(2**64, size=count - len(first), dtype=np.uint64)
        bits = np.concatenate([np.array(first, dtype=np.uint64), more])
        return bits[0] if size is None else bits.reshape(size)


def before(word, increment=0x5851F42D4C957F2D14057B7EF767814F):
    """Return a NumPy generator whose next 64 bits are ``word`` (PCG64: state = a state + c)."""
    generator = np.random.Generator(np.random.PCG64(0))
    state = generator.bit_generator.state
    multiplier = 0x2360ED051FC65DA44385DF649FCCF645
    modulus, increment = 2**128, increment | 1
    # With an upper half of 0 the output is the lower half, turned by 0 bits.
    inverse = pow(multiplier, -1, modulus)
    state["state"] = {"state": (word - increment) * inverse % modulus, "inc": increment}
    generator.bit_generator.state = state
    return generator


def head(k):
    """Return a generator whose next uniform number is k 2^-53."""
    generator = before(k << 11)
    twin = before(k << 11)
    assert twin.random() == k * 2.0**-53
    return generator


def test_scripted_tails_are_the_logarithms_of_all_their_bits():
    """Two refinements, against 40 digits: v = 2^-40 2^-40 w for the third number w."""
    w = 3 << 50
    # Laplace noise: an exponential -ln(v), v = (head + 1) 2^-53, then terms -ln(1 - u).
    tiny = 2**53 - 1
    source = Scripted(0, tiny, 2**53 - w)
    with mp.workdps(40):
        expected = -mp.log(mp.mpf(2) ** -80 * mp.mpf(w) / 2**53)
        assert abs(laplace(source, 1.0) - expected) < 1e-13 * expected
        assert source.drawn == 3
        source = Scripted(tiny, 0, tiny, 2**53 - w)
        radius = mp.sqrt(2 * expected)
        pair = gaussian(source, 1.0, 2)
        assert abs(np.hypot(*pair) - radius) < 1e-14 * radius
        assert abs(pair[0] - pair[0] / abs(pair[0]) * radius * mp.sqrt(0.5)) < 1e-13
    assert np.sign(laplace(Scripted(0, low_bits=0), 1.0)) == -1.0
    assert np.sign(laplace(Scripted(0, low_bits=1), 1.0)) == 1.0


def test_tails_reach_beyond_the_ends_of_53_bits():
    for generator in (head(2**53 - 1), Scripted(2**53 - 1)):
        numbers = np.hypot(*gaussian(generator, 1.0, 2))
        assert numbers > math.sqrt(2.0 * T)
    beyond = [np.hypot(*gaussian(Scripted(2**53 - 1, 0, 2**53 - k), 1.0, 2)) for k in (1, 2**20)]
    assert beyond[0] > 10.4 and beyond[1] > 9.9  # 8.58 was the end
    assert laplace(Scripted(0, 2**53 - 2**20), 1.0) > 50.0  # 36.7
    assert exponential(Scripted(0, 2**53 - 2**20), 2.0) > 100.0
    assert gumbel(Scripted(2**53 - 1, 2**53 - 2**20), 1.0) > 50.0
    assert gumbel(Scripted(0, 2**53 - 2**20), 1.0) < -3.9  # -ln(36.7) = -3.6
    assert np.linalg.norm(spherical(Scripted(5, 5, 0, 2**53 - 2**20), 1.0, 1)) > 50.0


LEFT, RIGHT = 1, 2**53 - 1  # NumPy uses U < 1/2 for the left tail, 2 - 2 U for the right one


@pytest.mark.parametrize("k", [LEFT, RIGHT, 2**12, 2**53 - 2**12])
def test_a_generator_s_laplace_noise_is_drawn_further(k):
    noise = laplace(head(k), 1.0)
    plain = head(k).laplace()
    assert np.sign(noise) == np.sign(plain) and abs(plain) >= T - 1e-9
    assert abs(noise) > T and noise != plain
    repeated = laplace(head(k), 1.0)
    assert noise == repeated


@pytest.mark.parametrize("k", [2**12 + 1, 2**53 - 2**12 - 1, 2**30, 2**52 + 1])
def test_other_laplace_noise_of_a_generator_is_unchanged(k):
    assert laplace(head(k), 1.0) == head(k).laplace()
    assert laplace(head(k), 3.0) == head(k).laplace(0.0, 3.0)


@pytest.mark.parametrize("k", [LEFT, RIGHT])
def test_the_stream_of_all_other_numbers_does_not_move(k):
    """One number is refined; the next ones are those of the generator."""
    for draw, width in ((laplace, 1), (gumbel, 1), (exponential, 1), (gaussian, 2)):
        generator, twin = head(k), head(k)
        drawn = draw(generator, 1.0, 8)
        twin.random(width)
        np.testing.assert_array_equal(drawn[width:], draw(twin, 1.0, 8 - width))
        assert generator.random() == twin.random()


COUNT = 40_000


def check_tail(numbers, seen=()):
    """Check exponential numbers above T by binomial counts beyond several thresholds."""
    assert (numbers >= T).all()
    excess = numbers - T
    for place in (0.1, math.log(2.0), 3.0, 6.0, 9.0, *seen):
        found = int(np.count_nonzero(excess > place))
        assert stats.binomtest(found, numbers.size, math.exp(-place)).pvalue > LEVEL / 5


def test_the_law_of_the_tail_from_the_system_s_entropy():
    """53 bits end at 9.010913 = 13 ln 2 above T; a share 2^-13 of the tail lies beyond."""
    end = 13.0 * math.log(2.0)
    check_tail(np.abs(laplace(Scripted(*[0] * COUNT), 1.0, COUNT)), [end])
    check_tail(exponential(Scripted(*[0] * COUNT), 2.0, COUNT) / 2.0, [end])
    heads = [2**53 - 1, 1 << 50] * COUNT
    pairs = gaussian(Scripted(*heads), 3.0, (COUNT, 2)) / 3.0
    check_tail(0.5 * (pairs**2).sum(axis=1), [end])
    share = np.exp(-gumbel(Scripted(*[2**53 - 1] * COUNT), 1.0, COUNT)) * 2.0**40
    for place in (0.9, 0.5, 0.05, 2.0**-11):
        found = int(np.count_nonzero(share < place))
        assert stats.binomtest(found, COUNT, place).pvalue > LEVEL


@pytest.mark.slow
def test_the_law_of_the_tail_from_generators_and_what_comes_next():
    """The refining numbers are independent of the next numbers of the generator."""
    count, found, after = 4000, [], []
    random = np.random.default_rng(3)
    for k in random.integers(1, 2**12, count).tolist():
        generator = before(k << 11, int(random.integers(2**62)) << 60)
        found.append(-laplace(generator, 1.0))
        after.append(generator.random())
    check_tail(np.array(found))
    alike = np.count_nonzero((np.array(found) > T + math.log(2.0)) == (np.array(after) > 0.5))
    assert stats.binomtest(int(alike), count, 0.5).pvalue > LEVEL
    assert np.unique(found).size == count


@pytest.fixture
def words(monkeypatch):
    """Return a function that sets the blocks drawn on a device: arrays (2, R, B)."""

    def put(*blocks):
        blocks = [np.array(block, dtype=np.uint64) for block in blocks]
        monkeypatch.setattr(
            _philox, "random_bits", lambda xp, seeds, count, device: xp.asarray(blocks.pop(0))
        )

    return put


def device(law, xp=array_api_strict, rows=1, size=2):
    return np.asarray(_philox.LAWS[law](xp, np.zeros((rows, 4)), size, xp.asarray(0.0).device))


FULL = 2**64 - 1


@pytest.mark.parametrize("xp", [np, array_api_strict])
def test_tails_on_a_device_are_the_logarithms_of_all_their_bits(xp, words):
    """Against 40 digits: r 2^-64, refined by the bits of the next block."""
    more = (123456789 << 30, 987654321 << 30)
    for r in (0, 1, 77, 2**24 - 2):
        with mp.workdps(40):
            share = (mp.mpf(more[0]) + (mp.mpf(more[1]) + 1) / 2**64) / 2**64
            radius = mp.sqrt(-2 * mp.log((r + share) / mp.mpf(2) ** 64))
            size = -mp.log((r // 2 + share) / mp.mpf(2) ** 63)
            words([[[FULL - r, more[0]]], [[1 << 60, more[1]]]])
            pair = device("gaussian", xp)
            assert abs(np.hypot(*pair[0]) - radius) < 1e-14 * radius
            words([[[r, more[0]]], [[5 << 40, more[1]]]])
            found = device("laplace", xp)[0]
            assert abs(abs(found[0]) - size) < 1e-14 * size
            assert np.sign(found[0]) == (1.0 if r % 2 else -1.0)
            assert abs(found[1]) == pytest.approx(-math.log((5 << 40) * 2.0**-64), rel=1e-8)


def test_the_law_of_the_tail_on_a_device(words):
    """Each row has one number in the tail, of 24 random bits and those of the next block."""
    random = np.random.default_rng(1)
    own = random.integers(2**24, size=COUNT, dtype=np.uint64)
    own[: COUNT // 4] >>= np.uint64(23)  # the last bit is a sign
    more = random.integers(2**64, size=(2, COUNT), dtype=np.uint64)
    angle = random.integers(2**64, size=COUNT, dtype=np.uint64)
    end = 13.0 * math.log(2.0)
    rest = slice(COUNT // 4, None)
    words(np.stack([np.stack([own, more[0]], axis=1), np.stack([angle, more[1]], axis=1)]))
    numbers = np.abs(device("laplace", np, COUNT, 1)[:, 0])
    check_tail(numbers[rest], [end])
    check_tail(numbers[: COUNT // 4] - 23.0 * math.log(2.0))
    own = ~own
    words(np.stack([np.stack([own, more[0]], axis=1), np.stack([angle, more[1]], axis=1)]))
    numbers = 0.5 * (device("gaussian", np, COUNT) ** 2).sum(axis=1)
    check_tail(numbers[rest], [end])


def test_all_other_numbers_of_a_device_are_those_of_53_bits():
    """They equal the formulas on bits >> 11 where no number is in the tail."""
    seeds = np.random.default_rng(0).integers(2**32, size=(3, _philox.SEED_WORDS))
    bits = _philox.random_bits(np, seeds, 500, "cpu")
    u = (bits >> np.uint64(11)) * 2.0**-53
    radius, angle = np.sqrt(-2.0 * np.log(1.0 - u[0])), 2.0 * math.pi * u[1]
    expected = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    np.testing.assert_array_equal(_philox.gaussian(np, seeds, 1000, "cpu"), expected)
    words = np.concatenate([bits[0], bits[1]], axis=1)
    size = -np.log(((words >> np.uint64(11)) + np.uint64(1)) * 2.0**-53)
    expected = np.where(words & np.uint64(1), size, -size)
    np.testing.assert_array_equal(_philox.laplace(np, seeds, 1000, "cpu"), expected)


@pytest.mark.slow
def test_long_gaps_of_a_poisson_batch():
    """The first gap is floor(E/|ln(1 - q)|) for an exponential E, also beyond 36.7."""
    rate, n, count = 1e-3, 200_000, 4000
    keep = math.log1p(-rate)
    gaps = np.array([_first(Poisson(rate), n, seed) for seed in range(count)])
    assert gaps.min() >= math.floor(-T / keep)
    for place in (0.1, math.log(2.0), 3.0, 7.0):
        gap = math.floor((T + place) / -keep)
        chance = math.exp(gap * keep + T)
        found = int(np.count_nonzero(gaps >= gap))
        assert stats.binomtest(found, count, chance).pvalue > LEVEL
    assert _first(Poisson(rate), n, 0, 2**53 - 2**13 - 1) == math.floor(
        math.log((2**13 + 1) * 2.0**-53) / keep
    )


def _first(sampling, n, seed, start=2**53 - 1):
    stream = int(np.random.default_rng(seed).integers(2**63))
    return int(sampling.draw(n, before(start << 11, 2 * stream + 1))[0])


@pytest.mark.parametrize("word", [0, 2**64 - 1])
def test_a_source_that_is_stuck_ends_with_the_last_round(word):
    stuck = Scripted()
    stuck._bits = lambda size: np.full(size or (), word, dtype=np.uint64)
    most = 1000 * math.log(2.0) * (1 + 1e-12)
    assert abs(laplace(stuck, 1.0)) <= most
    assert np.hypot(*gaussian(stuck, 1.0, 2)) <= math.sqrt(2.0 * most)
    assert np.isfinite(gumbel(stuck, 1.0, 3)).all()


def test_a_direction_of_length_zero_is_drawn_again():
    """u = 0 would give radius 0 and NaN as noise, once in 2^53 draws in one dimension."""
    noise = spherical(Scripted(0, 0, 1 << 52), 1.0, 1)
    assert np.isfinite(noise).all() and noise[0] != 0.0


def test_gumbel_noise_has_its_law():
    noise = gumbel(np.random.default_rng(1), 2.0, 20_000)
    assert stats.kstest(noise, stats.gumbel_r(scale=2.0).cdf).pvalue > LEVEL
