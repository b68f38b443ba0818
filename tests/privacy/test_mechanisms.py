"""Noise: the right scale is accepted, wrong ones are rejected; streams are independent.

Every Kolmogorov-Smirnov test rejects the right law with probability 1e-6, so the whole file
raises a false alarm with probability below 1e-4; seeded cases are fixed anyway.
"""

import math
import sys
import threading

import numpy as np
import pytest
from scipy import stats

from dpanalysis.privacy import exact_noise, mechanisms
from dpanalysis.privacy.mechanisms import (
    SystemRandom,
    gaussian,
    laplace,
    random_source,
    spawn,
)

LEVEL, SAMPLES = 1e-6, 20_000
KINDS = [(laplace, stats.laplace), (gaussian, stats.norm)]
SOURCES = [lambda: random_source(2024), SystemRandom]


def accepted(noise, law, scale):
    return stats.kstest(noise, law(scale=scale).cdf).pvalue > LEVEL


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize(("draw", "law"), KINDS)
@pytest.mark.parametrize("scale", [0.01, 1.0, 250.0])
def test_the_right_scale_is_accepted_and_wrong_ones_are_not(source, draw, law, scale):
    noise = draw(source(), scale, SAMPLES)
    assert accepted(noise, law, scale)
    for wrong in (math.sqrt(2), 1 / math.sqrt(2), 2.0, 0.5):
        assert not accepted(noise, law, wrong * scale)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize(("law", "order"), [("spherical", 2), ("cubic", np.inf)])
def test_vectors_have_a_gamma_length_and_a_uniform_direction(source, law, order):
    random = source()
    drawn = np.array([mechanisms.noisy(random, np.zeros(3), law, 2.0) for _ in range(1000)])
    lengths = np.linalg.norm(drawn, ord=order, axis=1)
    assert stats.kstest(lengths, stats.gamma(3, scale=2.0).cdf).pvalue > LEVEL
    for other in (2, 4):
        assert stats.kstest(lengths, stats.gamma(other, scale=2.0).cdf).pvalue < LEVEL
    # Each of three coordinates is uniform on a sphere, and on a cube except for the largest.
    parts = (drawn / lengths[:, None]).T
    for part in parts:
        inner = part[abs(part) < 1.0 - 1e-4]
        assert stats.kstest(inner, stats.uniform(-1.0, 2.0).cdf).pvalue > LEVEL


@pytest.mark.parametrize("source", SOURCES)
def test_kinds_are_told_apart(source):
    """Laplace noise of the same variance is not Gaussian, and the other way round."""
    assert not accepted(laplace(source(), 1.0, SAMPLES), stats.norm, math.sqrt(2))
    assert not accepted(gaussian(source(), math.sqrt(2), SAMPLES), stats.laplace, 1.0)


def test_a_scale_drawn_as_a_standard_deviation_is_rejected():
    """Errata 001-19: the published code has less noise by a factor sqrt 2."""
    mistaken = laplace(random_source(0), 1.0 / math.sqrt(2), SAMPLES)
    assert not accepted(mistaken, stats.laplace, 1.0)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize(("draw", "law"), KINDS)
def test_shapes_and_scales_broadcast(source, draw, law):
    assert draw(source(), 1.0, (3, 4)).shape == (3, 4)
    assert np.ndim(draw(source(), 1.0)) == 0
    spread = draw(source(), np.array([[0.0], [1.0]]), (2, 500))
    assert (spread[0] == 0.0).all() and spread[1].std() > 0.5
    assert draw(source(), np.array([1.0, 2.0])).shape == (2,)


def test_system_random_covers_the_unit_interval_and_integers():
    source = SystemRandom()
    uniforms = source.random(SAMPLES)
    assert uniforms.min() >= 0.0 and uniforms.max() < 1.0
    assert stats.kstest(uniforms, "uniform").pvalue > LEVEL
    dice = source.integers(1, 7, SAMPLES)
    assert stats.chisquare(np.bincount(dice, minlength=7)[1:]).pvalue > LEVEL
    assert isinstance(source.integers(5), int) and source.random((2, 2)).shape == (2, 2)
    assert 0.0 <= source.random() < 1.0
    assert stats.kstest(source.normal(2.0, 3.0, SAMPLES), stats.norm(2.0, 3.0).cdf).pvalue > LEVEL


@pytest.mark.parametrize("bits", [0, 1, 2**64 - 1, 2**64 - 2])
def test_system_noise_is_finite_at_the_ends(bits, monkeypatch):
    source = SystemRandom()
    monkeypatch.setattr(source, "_bits", lambda size: np.full(size or (), bits, dtype=np.uint64))
    for noise in (source.laplace(size=2), source.normal(size=2)):
        assert np.isfinite(noise).all()
    most = 1000 * math.log(2) * (1 + 1e-12)  # a constant source ends with the last refinement
    assert abs(source.laplace()) <= most and abs(source.normal()) <= math.sqrt(2 * most)


def test_random_source_accepts_seeds_generators_and_the_system():
    generator = np.random.default_rng(1)
    assert random_source(generator) is generator
    assert isinstance(random_source(), np.random.Generator)
    assert isinstance(random_source("os"), SystemRandom)
    seed = np.random.SeedSequence(5)
    assert random_source(seed).random() == random_source(5).random()
    assert random_source(np.int64(5)).random() == random_source(5).random()


@pytest.mark.parametrize("wrong", ["system", 1.5, True, [1]])
def test_other_sources_raise(wrong):
    with pytest.raises(TypeError, match="rng must be"):
        random_source(wrong)


@pytest.mark.parametrize("law", sorted(exact_noise.LAWS))
def test_a_source_remembers_that_its_noise_was_floating_point(law):
    source = SystemRandom()
    source.integers(5, size=3), source.trials(0.5, 3)
    mechanisms.noisy(source, [0.0], "laplace", 1.0)
    assert not source.floating
    getattr(mechanisms, law)(source, 1.0, 2)
    assert source.floating


def test_integers_have_no_remainder():
    """Bits above the largest multiple of the span are drawn again: 2^62 of 2^64 here."""

    bits = [2**64 - 1, 3 * 2**62, 3 * 2**62 - 1]

    class Listed(SystemRandom):
        def _bits(self, size):
            return np.array([bits.pop(0)], dtype=np.uint64)

    span = 3 * 2**61
    assert Listed().integers(span, size=1) == (3 * 2**62 - 1) % span


def test_children_do_not_depend_on_their_number_and_differ():
    few, many = spawn(7, 3), spawn(7, 10)
    firsts = [child.random() for child in many]
    assert [child.random() for child in few] == firsts[:3]
    assert len(set(firsts)) == 10
    assert firsts[0] != random_source(7).random()
    seed = np.random.SeedSequence(7)
    assert spawn(seed, 2)[1].random() == firsts[1]
    assert spawn(seed, 1)[0].random() == firsts[2]  # a seed sequence counts its children
    generator = np.random.default_rng(7)
    assert [child.random() for child in spawn(generator, 3)] == firsts[:3]
    assert all(isinstance(child, SystemRandom) for child in spawn("os", 2))
    assert spawn(7, 0) == []


@pytest.mark.parametrize("make", [np.random.default_rng, np.random.SeedSequence])
def test_threads_that_share_a_source_get_different_children(make):
    before, found = sys.getswitchinterval(), []
    source = make(0)

    def draw():
        for _ in range(100):
            found.extend(child.bit_generator.state["state"]["inc"] for child in spawn(source, 2))

    threads = [threading.Thread(target=draw) for _ in range(4)]
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert len(set(found)) == len(found) == 800


def test_children_are_uncorrelated():
    streams = np.array([child.random(4000) for child in spawn(11, 20)])
    correlations = np.corrcoef(streams)[np.triu_indices(20, 1)]
    assert np.abs(correlations).max() < 5.5 / math.sqrt(4000)  # 190 pairs: below 1e-5


@pytest.mark.parametrize("draw", [laplace, gaussian])
@pytest.mark.parametrize("wrong", [-1.0, math.inf, math.nan, [1.0, -1.0]])
def test_bad_scales_raise(draw, wrong):
    with pytest.raises(ValueError, match="must lie in"):
        draw(random_source(0), wrong, 2)


@pytest.mark.parametrize("source", ["os", 0])
def test_without_noise_equal_numbers_stay_in_order(source):
    values = [k % 3 for k in range(60)]
    found = mechanisms.smallest(
        mechanisms.random_source(source), values, np.zeros(60), "gumbel", 0.0, 60
    )
    assert found.tolist() == sorted(range(60), key=values.__getitem__)


@pytest.mark.parametrize("source", ["os", 0])
@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"values": [3.0, np.nan]}, "values must be finite"),
        ({"offsets": [0.0, -np.inf]}, "offsets must be finite"),
        ({"offsets": [0.0]}, r"must be \(K,\), got shapes \(2,\) and \(1,\)"),
        ({"values": [[3.0, 1.0]], "offsets": [[0.0, 0.0]]}, r"must be \(K,\)"),
        ({"law": "laplace"}, "law must be one of 'gumbel', 'exponential'"),
        ({"count": 3}, "count must be between 1 and 2"),
        ({"count": 0}, "count must be between 1 and 2"),
    ],
)
def test_what_smallest_cannot_rank_is_refused(source, change, match):
    given = {"values": [3.0, 1.0], "offsets": [0.0, 0.0], "law": "gumbel", "scale": 0.1}
    with pytest.raises(ValueError, match=match):
        mechanisms.smallest(mechanisms.random_source(source), **{**given, **change})
