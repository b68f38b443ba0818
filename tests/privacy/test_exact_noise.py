"""Exact noise: error radii cover all undrawn digits, and decisions equal those of real numbers.

Decisions are compared with those of the same real numbers at 400 digits and more, in rational
arithmetic; laws by counting cells, which is exact, or by chi-square. A chi-square test rejects the
right law with probability 1e-6. There are 12, so the file raises a false alarm with probability
below 2e-5; seeds are fixed.
"""

import math
import types
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dpanalysis.audit.laws import report_noisy_min_distribution
from dpanalysis.privacy import exact_noise, mechanisms
from dpanalysis.privacy.mechanisms import SystemRandom

LEVEL = 1e-6
WORD = st.one_of(
    st.integers(0, 2**64 - 1),
    st.integers(0, 63).map(lambda k: 1 << k),
    st.integers(0, 63).map(lambda k: 2**64 - (1 << k)),
    st.sampled_from([0, 1, 2**64 - 1, 2**63, 2**63 - 1, 2**61, 3 << 61]),
)


class Replayed(SystemRandom):
    """Words from a list, then from a seeded generator."""

    def __init__(self, words=(), seed=0):
        self.words, self.rest = list(words), np.random.default_rng(seed)

    def _bits(self, size):
        count = 1 if size is None else int(np.prod(size))
        first, self.words = self.words[:count], self.words[count:]
        more = self.rest.integers(2**64, size=count - len(first), dtype=np.uint64)
        bits = np.concatenate([np.array(first, dtype=np.uint64), more])
        return bits[0] if size is None else bits.reshape(size)


def known(noise, i, digits=400):
    """Return the ends of the enclosure of number i as fractions."""
    ends = noise.enclosure(i, digits, exact_noise.arithmetic(digits))._mpi_
    return [Fraction(*mp.libmp.to_rational(end)) for end in ends]


def coarse(monkeypatch, digits):
    """Draw so few digits at once that they decide almost nothing."""
    monkeypatch.setattr(exact_noise, "HEAD", digits)
    monkeypatch.setattr(exact_noise, "_FAR", 2.0 ** (1 - digits))


@pytest.mark.slow
@pytest.mark.parametrize("law", sorted(exact_noise.LAWS))
@given(words=st.lists(WORD, min_size=0, max_size=12), count=st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_no_digit_leads_out_of_the_radius(law, words, count):
    """The enclosure from the first 53 digits contains the number for all further digits."""
    noise = exact_noise.LAWS[law](Replayed(words), count)
    for i in range(count):
        if not math.isinf(noise.radius[i]):
            middle, radius = Fraction(noise.middle[i]), Fraction(noise.radius[i])
            low, high = known(noise, i, exact_noise.HEAD)
            assert middle - radius <= low <= high <= middle + radius
            between, narrow = known(noise, i, 120), known(noise, i)
            assert low <= between[0] <= narrow[0] <= narrow[1] <= between[1] <= high
            assert narrow[1] - narrow[0] <= Fraction(2) ** -300 * (1 + abs(narrow[1]))


@pytest.mark.parametrize("law", sorted(exact_noise.LAWS))
@pytest.mark.parametrize("words", [[2**30] * 3, [2**64 - 2**30] * 3, [2**64 - 2**30, 3, 2**30]])
def test_radii_cover_numbers_far_in_the_tail(law, words):
    for last in (0, 2**64 - 1):
        digits = [*words, *[last] * 8]
        test_no_digit_leads_out_of_the_radius.hypothesis.inner_test(law, digits, 2)


@pytest.mark.parametrize("law", ["cubic", "exponential", "gumbel", "laplace", "spherical"])
@pytest.mark.parametrize("digits", [5, 8, 11])
def test_radii_cover_few_digits_drawn_at_once(law, digits, monkeypatch):
    """Then every part of a radius is large; further digits are all 0, all 1, or random."""
    coarse(monkeypatch, digits)
    for seed in range(6):
        words = np.random.default_rng(seed).integers(2**64, size=9, dtype=np.uint64).tolist()
        for rest in ([], [0] * 30, [2**64 - 1] * 30):
            noise = exact_noise.LAWS[law](Replayed([*words, *rest], seed), 3)
            for i in np.flatnonzero(np.isfinite(noise.radius)).tolist():
                middle, radius = Fraction(noise.middle[i]), Fraction(noise.radius[i])
                low, high = known(noise, i, 120)
                assert middle - radius <= low <= high <= middle + radius


@given(word=WORD, digits=st.sampled_from([53, 120]))
def test_the_last_bit_is_a_sign_and_no_digit(word, digits):
    """Words that differ only in their last bit give numbers of opposite sign."""
    one, other = (
        exact_noise.LaplaceReals(Replayed([w, 7]), 1).enclosure(
            0, digits, exact_noise.arithmetic(digits)
        )
        for w in (word, word ^ 1)
    )
    assert one == -other and one != other


@pytest.mark.parametrize("law", sorted(exact_noise.LAWS))
@pytest.mark.parametrize("count", [1, 2, 400])
def test_the_first_digits_are_nearly_all_of_the_number(law, count):
    """A radius that is too large would require further digits too often."""
    noise = exact_noise.LAWS[law](SystemRandom(), count)
    size = np.abs(noise.middle) + np.abs(noise.middle).max()
    known = np.isfinite(noise.radius)
    assert known.mean() > 0.9 or count < 400
    assert (noise.radius[known] <= 1e-12 * size[known]).mean() > 0.9 or count < 400
    if law == "spherical" and count == 400:  # the relative errors of length and direction
        normals, sizes = noise._normals, noise._sizes
        off = sizes.radius.sum() / sizes.middle.sum()
        off += np.linalg.norm(normals.radius) / np.linalg.norm(normals.middle)
        own = 2.0 * normals.radius * sizes.middle.sum() / np.linalg.norm(normals.middle)
        rest = (noise.radius - own) / np.abs(noise.middle) - exact_noise.ROUNDING
        assert np.median(rest) == pytest.approx(2.0 * off, rel=0.1)


@pytest.mark.parametrize(("law", "cdf"), [("exponential", stats.expon), ("gumbel", stats.gumbel_r)])
def test_first_digits_give_the_law(law, cdf):
    noise = exact_noise.LAWS[law](Replayed(seed=1), 20_000)
    assert stats.kstest(noise.middle, cdf.cdf).pvalue > LEVEL


@pytest.mark.slow
@pytest.mark.parametrize("law", ["laplace", "gaussian", "spherical", "cubic"])
@given(
    x=st.one_of(
        st.floats(-1e300, 1e300),
        st.floats(-100.0, 100.0),
        st.sampled_from([0.0, -0.0, 5e-324, 1e300, -1e300, 2.0**52, 2.0**31 + 0.3]),
    ),
    scale=st.one_of(st.floats(1e-3, 1e3), st.floats(1e-250, 1e250)),
    words=st.lists(WORD, max_size=8),
)
@settings(max_examples=80, deadline=None)
def test_a_release_is_the_rounded_real_number(law, x, scale, words):
    """F(x + scale Z) in rational arithmetic, with Z at 400 digits."""
    drawn = []

    class Kept(exact_noise.LAWS[law]):
        def __init__(self, source, count):
            super().__init__(source, count)
            drawn.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(exact_noise.LAWS, law, Kept)
        released = mechanisms.noisy(Replayed(words), [x], law, scale)
    step = Fraction(float(exact_noise.grid(scale)))
    assert step <= Fraction(scale) / 2**20 < 2 * step
    places = {
        math.floor((Fraction(x) + Fraction(scale) * end) / step + Fraction(1, 2))
        for end in known(drawn[0], 0, 4000 if abs(x) > 2**60 * scale else 400)
    }
    assert released[0] in [float(step * place) for place in places]
    assert math.copysign(1.0, released[0]) == 1.0 or released[0] != 0.0


@pytest.mark.parametrize("law", ["laplace", "gaussian", "spherical", "cubic"])
@pytest.mark.parametrize("x", [-2.3, 2.0**33, 2.0**33 + 0.25, -1e300])
def test_a_release_of_a_large_answer_is_the_rounded_real_number(law, x):
    test_a_release_is_the_rounded_real_number.hypothesis.inner_test(law, x, 1.0, [])


@pytest.mark.parametrize("radius", [0.0, 1e-20, 1e-16, 1e-12])
@pytest.mark.parametrize("x", [0.0, 0.3, -7.7])
def test_a_place_that_the_first_digits_leave_open_is_not_guessed(x, radius, monkeypatch):
    """Numbers next to the middle between two places: elsewhere both ends have the same floor."""

    def place(noise):
        return Fraction(x) * 2**19 + Fraction(1, 2) + 3 * 2**19 * noise

    edges = np.array([0, 1, 2, 7, 1000, 2**21] * 8) + np.repeat(np.arange(8), 6)
    middle = np.array([float((k - place(0)) / (3 * 2**19)) for k in edges.tolist()])
    middle = np.concatenate([
        middle + far for far in (0.0, 0.999 * radius, -0.999 * radius, 1e-9, -1e-9)
    ])  # fmt: skip
    middle = np.concatenate([middle, np.nextafter(middle, 9.0), np.nextafter(middle, -9.0)])
    noise = types.SimpleNamespace(magnitude=1.0, middle=middle, radius=np.full(middle.size, radius))
    monkeypatch.setitem(exact_noise.LAWS, "known", lambda source, count: noise)
    asked = []
    monkeypatch.setattr(exact_noise, "_until", lambda floor: asked.append(floor.args[1]) or 0.0)
    places = exact_noise.release(None, np.full(middle.size, x), "known", 3.0) * 2.0**19
    decided = np.delete(np.arange(middle.size), asked)
    assert asked and decided.size
    for i in decided:
        ends = [Fraction(middle[i]) + sign * Fraction(radius) for sign in (-1, 1)]
        assert {math.floor(place(end)) for end in ends} == {places[i]}


@pytest.mark.parametrize("law", ["laplace", "gaussian", "spherical", "cubic"])
@pytest.mark.parametrize("digits", [4, 9])
def test_undecided_releases_draw_further_digits(law, digits, monkeypatch):
    coarse(monkeypatch, digits)
    asked = []
    floor = exact_noise._floor
    monkeypatch.setattr(exact_noise, "_floor", lambda *given: asked.append(1) or floor(*given))
    test_a_release_is_the_rounded_real_number.hypothesis.inner_test(law, 0.3, 1.0, [])
    for seed in range(10):
        words = np.random.default_rng(seed).integers(2**64, size=8, dtype=np.uint64).tolist()
        test_a_release_is_the_rounded_real_number.hypothesis.inner_test(law, 2.7, 3.0, words)
    assert len(asked) == 11


@pytest.mark.parametrize("x", [0.0, 0.3, -1.75])
def test_counts_of_laplace_cells_have_their_probabilities(x, monkeypatch):
    """Over all 2^9 first digits and signs, each place has its probability up to a cell per end."""
    coarse(monkeypatch, 8)
    monkeypatch.setattr(exact_noise, "GRID", -1)
    words = [(head << 56) | sign for head in range(256) for sign in (0, 1)]
    middle = [1 << 63] * len(words)  # the next digits: the middle of the cell
    released = [
        mechanisms.noisy(Replayed([word, more]), [x], "laplace", 1.0)[0]
        for word, more in zip(words, middle)
    ]
    places, counts = np.unique(np.array(released) * 2.0, return_counts=True)
    assert counts.sum() == 512 and len(places) > 10
    ends = stats.laplace.cdf([(places - 0.5) / 2.0 - x, (places + 0.5) / 2.0 - x])
    # Both signs have their own cells, and each of them two ends.
    assert (abs(counts / 512.0 - (ends[1] - ends[0])) <= 4.0 / 512.0).all()
    assert abs(counts / 512.0 - (ends[1] - ends[0])).mean() < 1.0 / 512.0


@pytest.mark.parametrize(
    ("law", "cdf"), [("laplace", stats.laplace.cdf), ("gaussian", stats.norm.cdf)]
)
@pytest.mark.parametrize("x", [0.0, 0.2])
@pytest.mark.parametrize("digits", [53, 8])
def test_the_law_on_a_coarse_grid(law, cdf, x, digits, monkeypatch):
    """Chi-square accepts the right law and rejects that of a neighbour."""
    coarse(monkeypatch, digits) if digits < 53 else None
    monkeypatch.setattr(exact_noise, "GRID", -2)
    count = 40_000 if digits == 53 else 1500
    released = mechanisms.noisy(Replayed(seed=3), np.full(count, x), law, 1.0)
    places = np.clip(np.rint(released * 4.0), -8, 8)
    seen = np.bincount(places.astype(int) + 8, minlength=17)

    def expected(center):
        inner = cdf((np.arange(-8, 8) + 0.5) / 4.0 - center)
        return np.diff(np.concatenate([[0.0], inner, [1.0]]))

    assert stats.chisquare(seen, count * expected(x)).pvalue > LEVEL
    if digits == 53:
        assert stats.chisquare(seen, count * expected(x + 0.2)).pvalue < LEVEL


VALUES, OFFSETS = np.array([0.0, 0.1, 0.25, 0.3]), np.array([0.1, 0.0, 0.0, 0.05])


@pytest.mark.slow
@pytest.mark.parametrize("noise", ["gumbel", "exponential"])
def test_choices_have_their_law(noise):
    law = report_noisy_min_distribution(VALUES + OFFSETS, noise, 0.2)
    source = Replayed(seed=5)
    picked = [int(mechanisms.smallest(source, VALUES, OFFSETS, noise, 0.2)[0]) for _ in range(4000)]
    assert stats.chisquare(np.bincount(picked, minlength=4), 4000 * law).pvalue > LEVEL


@pytest.mark.parametrize("noise", ["gumbel", "exponential"])
def test_choices_are_decided_by_real_numbers(noise, monkeypatch):
    source = Replayed(seed=5)
    coarse(monkeypatch, 6)
    drawn = []
    plain = exact_noise.LAWS[noise]
    monkeypatch.setitem(
        exact_noise.LAWS, noise, lambda *given: drawn.append(plain(*given)) or drawn[-1]
    )
    for count in (1, 4):
        for _ in range(10):
            order = mechanisms.smallest(source, VALUES, OFFSETS, noise, 0.2, count)
            exact = [
                Fraction(v) + Fraction(o) - Fraction(0.2) * known(drawn[-1], i)[0]
                for i, (v, o) in enumerate(zip(VALUES, OFFSETS))
            ]
            assert order.tolist() == np.argsort(exact, kind="stable")[:count].tolist()


@pytest.mark.parametrize("law", ["laplace", "gaussian"])
@pytest.mark.parametrize("digits", [53, 6])
def test_a_threshold_is_reached_as_real_numbers_are(law, digits, monkeypatch):
    if digits < 53:
        coarse(monkeypatch, digits)
    drawn = []
    plain = exact_noise.LAWS[law]
    monkeypatch.setitem(
        exact_noise.LAWS, law, lambda *given: drawn.append(plain(*given)) or drawn[-1]
    )
    for seed in range(12):
        drawn.clear()
        threshold = mechanisms.Threshold(Replayed(seed=seed), law, 2.0, 3.0)
        for value in (-1.0, 0.0, 0.5, 4.0):
            reached = threshold.reached(value, 0.25)
            exact = Fraction(value) + 3 * known(drawn[-1], 0)[0] - 2 * known(drawn[0], 0)[0]
            assert reached == (exact >= Fraction(0.25))
        assert len(drawn) == 5  # one threshold, and fresh noise each time
        values = np.array([-9.0, -1.0, 0.0, 0.5, 4.0, 9.0])
        first, fresh = threshold.first(values, 0.25), drawn[-1]
        exact = [
            Fraction(value) + 3 * known(fresh, i)[0] - 2 * known(drawn[0], 0)[0]
            for i, value in enumerate(values)
        ]
        above = [i for i, each in enumerate(exact) if each >= Fraction(0.25)]
        assert len(drawn) == 6 and first == (above[0] if above else None)


def test_a_sign_does_not_depend_on_what_the_sum_of_doubles_rounds():
    for seed in range(30):
        z = exact_noise.LaplaceReals(Replayed(seed=seed), 1)
        low, high = known(z, 0)
        assert (1 + low > 0) == (1 + high > 0)
        assert exact_noise.positive([1e16, 1.0, -1e16], [(1.0, z, 0)]) == (1 + low > 0)


def test_the_first_of_many_values_has_noise_of_its_own():
    """By blocks of 1,024, here with a generator: as one value after the other, with this noise."""
    for seed in range(20):
        random, again = np.random.default_rng(seed), np.random.default_rng(seed)
        values = np.linspace(-40.0, 10.0, 3000)
        found = mechanisms.Threshold(random, "laplace", 1.0, 2.0).first(values, 0.0)
        height = mechanisms.noisy(again, [0.0], "laplace", 1.0)[0]
        blocks = (values[:1024], values[1024:2048], values[2048:])
        noise = np.concatenate([mechanisms.noisy(again, each, "laplace", 2.0) for each in blocks])
        assert found == np.flatnonzero(noise >= height)[0]
    assert mechanisms.Threshold(random, "laplace", 0.1, 0.1).first(values, 99.0) is None


def test_a_threshold_without_noise_compares_the_numbers():
    threshold = mechanisms.Threshold(SystemRandom(), "laplace", 0.0, 0.0)
    assert threshold.reached(0.25, 0.25) and not threshold.reached(0.2, 0.25)
    many = np.append(np.zeros(3000), [2.0, 3.0])
    assert [threshold.first(many, wanted) for wanted in (2.0, 0.0)] == [3000, 0]
    assert threshold.first(many, 3.5) is None and threshold.first(many, np.nan) is None


@pytest.mark.parametrize("law", ["laplace", "gaussian"])
@pytest.mark.parametrize("source", [SystemRandom(), np.random.default_rng(0)], ids=["os", "seed"])
def test_required_values_may_be_infinite_or_nan(source, law):
    """This happens where a penalty overflows at both ends of a ray."""
    threshold = mechanisms.Threshold(source, law, 1.0, 1.0)
    found = [threshold.reached(0.0, wanted) for wanted in (np.nan, np.inf, -np.inf)]
    assert found == [False, False, True]


@pytest.mark.parametrize("law", ["gaussian", "spherical", "cubic"])
def test_noise_for_a_computation_is_as_near_as_it_says(law):
    # The first word gives a normal number in the far tail, the last a length in the cube.
    source = Replayed([2**64 - 1, 0, 1 << 63, 0, 2**61, 0], seed=2)
    drawn = []
    plain = exact_noise.LAWS[law]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(
            exact_noise.LAWS, law, lambda *given: drawn.append(plain(*given)) or drawn[-1]
        )
        noise, distance = mechanisms.nearly(source, law, 3.0, 5)
    assert math.isinf(drawn[0].radius.max()) and distance < 1e-10
    off = sum((Fraction(noise[i]) - 3 * known(drawn[0], i)[0]) ** 2 for i in range(5))
    assert off <= Fraction(distance) ** 2


def attainable(outputs, center, scale):
    """Whether each output is center + scale times the Laplace noise of some uniform of 53 bits."""
    found = np.zeros(len(outputs), dtype=bool)
    for sign in (1.0, -1.0):
        near = np.rint(np.exp(-sign * (outputs - center) / scale) * 2.0**53)
        for shift in range(-3, 4):
            uniform = near + shift
            inside = (uniform >= 1.0) & (uniform <= 2.0**53)
            noise = -np.log(np.where(inside, uniform, 1.0) * 2.0**-53) * sign
            found |= inside & (center + noise * scale == outputs)
    return found


def told_apart(release, scale, count=4000):
    """Return the rate at which attainable outputs identify a data set, and its accuracy."""
    named = right = 0
    for center in (0.0, 1.0):
        outputs = release(center, count)
        mine, other = (attainable(outputs, c, scale) for c in (center, 1.0 - center))
        named += int((mine ^ other).sum())
        right += int((mine & ~other).sum())
    return named / (2 * count), right / max(named, 1)


def test_floating_point_gives_records_away_and_exact_noise_does_not():
    """Mironov (2012): at epsilon .001 most outputs of floating-point noise identify the data."""
    scale, seeded = 1000.0, Replayed(seed=7)
    floating = told_apart(lambda c, k: c + mechanisms.laplace(seeded, scale, k), scale)
    assert floating[0] > 0.5 and floating[1] == 1.0
    named, right = told_apart(
        lambda c, k: mechanisms.noisy(seeded, np.full(k, c), "laplace", scale), scale
    )
    # The attack is then right by chance only, half the time: 5 standard deviations.
    assert abs(right - 0.5) <= 0.5 * 5.0 / math.sqrt(max(8000 * named, 1.0))


def test_every_release_lies_on_one_grid_whatever_the_answer():
    source = Replayed(seed=8)
    # The largest power of two below 2^-20 of 3, of 3 sqrt(2000) and of 3 * 2000.
    for law, exponent in {"laplace": 19, "gaussian": 19, "spherical": 13, "cubic": 8}.items():
        for center in (0.0, 1.0, 1e-9, math.pi):
            places = mechanisms.noisy(source, np.full(2000, center), law, 3.0) * 2.0**exponent
            assert (places == np.rint(places)).all()
            low = np.bincount(places.astype(np.int64) % 8, minlength=8)
            assert stats.chisquare(low).pvalue > LEVEL
    floating = (1.0 + mechanisms.laplace(source, 3.0, 2000)) * 2.0**19
    assert (floating != np.rint(floating)).mean() > 0.9


@pytest.mark.parametrize("scale", [1e-300, 1e300])
def test_scales_without_a_grid_are_refused(scale):
    for call in (
        lambda: mechanisms.noisy(SystemRandom(), [0.0], "laplace", scale),
        lambda: mechanisms.nearly(SystemRandom(), "gaussian", scale, 2),
        lambda: mechanisms.smallest(SystemRandom(), [0.0], [0.0], "gumbel", scale),
        lambda: mechanisms.Threshold(SystemRandom(), "laplace", scale, 1.0),
    ):
        with pytest.raises(ValueError, match="exact noise wants scales"):
            call()


def test_every_law_of_floating_noise_has_an_exact_one():
    for law in exact_noise.LAWS:
        assert hasattr(mechanisms, law)


@pytest.mark.parametrize("law", ["laplace", "gaussian", "spherical", "cubic"])
@pytest.mark.parametrize("word", [0, 2**64 - 1])
def test_digits_that_are_all_alike_are_drawn_on(law, word):
    """After seven words of zeros, or of ones, the number may still be infinite or zero."""
    for decide in (
        lambda source: mechanisms.noisy(source, [0.3], law, 1.0),
        lambda source: mechanisms.nearly(source, law, 1.0, 1)[0],
    ):
        assert np.isfinite(decide(Replayed([word] * 7))).all()
    if law in ("laplace", "gaussian"):
        threshold = mechanisms.Threshold(Replayed([word] * 9), law, 1.0, 1.0)
        assert threshold.reached(0.0, 0.1) in (True, False)
    for noise in ("gumbel", "exponential"):
        source = Replayed([word] * 9)
        assert len(mechanisms.smallest(source, [0.0, 0.1], [0.0, 0.0], noise, 1.0, 2)) == 2


@pytest.mark.parametrize("law", sorted(exact_noise.LAWS))
@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=20)
def test_the_error_of_a_number_covers_its_own_rounding(law, seed):
    """A dozen operations change the last bits of a number, so the radius is at least as large."""
    noise = exact_noise.LAWS[law](Replayed(seed=seed), 16)
    assert (noise.radius >= 12 * 2.0**-50 * abs(noise.middle)).all()


@pytest.mark.parametrize("radius", [0.0, 1e-13])
def test_what_scaling_rounds_is_part_of_the_error(radius, monkeypatch):
    """Exact numbers have only the error of rounding the product with the scale."""

    class Known:
        def __init__(self, source, count):
            self.middle, self.radius = np.linspace(1.0, 2.0, count), np.full(count, radius)

    monkeypatch.setitem(exact_noise.LAWS, "known", Known)
    noise, off = exact_noise.nearly(Replayed(), "known", 0.3, 9)
    own = 0.3 * radius * 3.0  # of nine numbers, in L2
    assert own + 2.0**-53 * np.linalg.norm(noise) <= off
    assert off <= own + 2.0**-49 * np.linalg.norm(noise)


def test_decisions_do_not_depend_on_the_digits_tried_first(monkeypatch):
    """The place on the grid and the sign do not depend on the number of digits tried first."""
    coarse(monkeypatch, 4)
    found = []
    for digits in (2, 128):
        monkeypatch.setattr(exact_noise, "_DIGITS", digits)
        source = [Replayed(seed=seed) for seed in range(100)]
        released = [mechanisms.noisy(each, [0.3], "laplace", 1.0)[0] for each in source[:20]]
        real = [exact_noise.LaplaceReals(each, 1) for each in source[20:]]
        found.append((released, [exact_noise.positive([-0.3], [(1.0, z, 0)]) for z in real]))
    assert found[0] == found[1]
