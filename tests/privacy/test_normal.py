"""The kernel of Gaussian noise: its formulas, its law, and equal numbers on all machines."""

import time
from concurrent.futures import ThreadPoolExecutor

import mpmath as mp
import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dpanalysis.privacy import _compiled
from dpanalysis.privacy._compiled import box_muller, standard_normals
from dpanalysis.privacy.mechanisms import gaussian, random_source

ENDS = [0.0, 2.0**-53, 0.5, 1.0 - np.sqrt(0.5), 1.0 - 2.0**-26, 1.0 - 2.0**-52, 1.0 - 2.0**-53]


def transformed(numbers):
    numbers = np.array(numbers)
    box_muller(numbers)
    return numbers


def test_the_transform_is_that_of_box_and_muller():
    """Against 40 digits: small and large radii, all angles."""
    random = np.random.default_rng(0)
    first = np.concatenate([ENDS, 2.0 ** -random.uniform(0, 53, 300), random.random(300)])
    first = np.concatenate([first, 1.0 - first[len(ENDS) :]])
    first = np.round(first * 2.0**53) / 2.0**53  # the grid of a generator
    first = np.minimum(first, 1.0 - 2.0**-53)
    second = random.random(first.size)
    second[:9] = np.append(np.arange(8) / 8.0, 1.0 - 2.0**-53)
    noise = transformed(np.stack([first, second], axis=1).reshape(-1)).reshape(-1, 2)
    with mp.workdps(40):
        for (x, y), u, v in zip(noise, first, second, strict=True):
            radius = mp.sqrt(-2 * mp.log(1 - mp.mpf(float(u))))
            angle = 2 * mp.pi * (mp.mpf(float(v)) - mp.mpf(1) / 8)
            point = radius * mp.cos(angle), radius * mp.sin(angle)
            assert abs(x - point[0]) <= 2e-15 * radius and abs(y - point[1]) <= 2e-15 * radius


def test_the_law_is_normal_far_out_and_coordinates_are_independent():
    """Nine statistics beyond 5.3 standard deviations each: a false alarm in 1e6."""
    noise = gaussian(random_source(5), 1.0, 2_000_000)
    for limit in (0.5, 1.0, 2.0, 3.0, 4.0):
        p = 2.0 * stats.norm.sf(limit)
        count = np.count_nonzero(np.abs(noise) > limit)
        assert abs(count - noise.size * p) <= 5.3 * np.sqrt(noise.size * p * (1.0 - p)) + 1.0
    x, y = noise[::2], noise[1::2]
    for left, right in ((x, y), (x**2 - 1.0, y**2 - 1.0), (x[1:], y[:-1]), (x[1:], x[:-1])):
        score = np.sum(left * right) / np.sqrt(np.sum(left**2 * right**2))
        assert abs(score) < 5.3
    assert stats.kstest(noise[:200_000], "norm").pvalue > 1e-6


def test_the_numbers_are_the_same_on_every_machine_and_for_every_width():
    """Bit for bit, independent of instruction set and C library."""
    noise = gaussian(random_source(0), 1.0, 5)
    assert [value.hex() for value in noise.tolist()] == [
        "0x1.bf7e467934e66p-1",
        "0x1.1fa7d54dd266ep+0",
        "0x1.cc106092e8165p-3",
        "-0x1.7537e6c9a589bp-3",
        "0x1.b8dcba3d7705ep-2",
    ]
    long = gaussian(random_source(0), 1.0, 1001)
    np.testing.assert_array_equal(long[:5], noise)
    np.testing.assert_array_equal(gaussian(random_source(0), 2.0, (7, 143)).ravel(), 2.0 * long)
    assert gaussian(random_source(0), 3.0) == 3.0 * noise[0]


def test_many_numbers_are_shared_by_the_threads_and_stay_the_same():
    """Every part counts its far radii; here every fourth radius is far."""
    numbers = np.random.default_rng(0).random(5 * _compiled._TASK + 6)
    numbers[::8] = 1.0 - 2.0**-53
    alone = numbers.copy()
    assert _compiled._box_muller(alone) == -(-numbers.size // 8)
    assert box_muller(numbers) == -(-numbers.size // 8)
    np.testing.assert_array_equal(numbers, alone)


@given(
    seed=st.integers(0, 2**128 - 1),
    count=st.integers(2 * _compiled._TASK, 5 * _compiled._TASK).map(lambda n: n + n % 2),
    words=st.integers(0, 3),
    threads=st.sampled_from([1, numba.config.NUMBA_NUM_THREADS]),
)
def test_the_uniforms_that_the_threads_compute_are_those_of_numpy(seed, count, words, threads):
    """And the generator ends where NumPy leaves it, with its half of a word of 64 bits."""
    source, numpy = np.random.default_rng(seed), np.random.default_rng(seed)
    for random in (source, numpy):
        random.integers(2**32, size=words, dtype=np.uint32)
    before = numba.get_num_threads()
    numba.set_num_threads(threads)
    try:
        numbers, far = standard_normals(source, count)
    finally:
        numba.set_num_threads(before)
    uniforms = numpy.random(count)
    assert far == np.count_nonzero(1.0 - uniforms[::2] <= 2.0**-40)
    np.testing.assert_array_equal(numbers, transformed(uniforms))
    assert source.bit_generator.state == numpy.bit_generator.state


class Reversed(np.random.Generator):
    def random(self, *args):
        return super().random(*args)[::-1].copy()


@pytest.mark.parametrize(
    "make",
    [
        lambda: np.random.Generator(np.random.PCG64DXSM(3)),
        lambda: np.random.Generator(np.random.Philox(3)),
        lambda: Reversed(np.random.PCG64(3)),
    ],
)
def test_other_sources_give_their_own_uniforms(make):
    count = 2 * _compiled._TASK + 2
    numbers, _ = standard_normals(make(), count)
    np.testing.assert_array_equal(numbers, transformed(make().random(count)))


def test_numbers_of_an_interrupted_call_are_not_used_again(monkeypatch):
    """The generator has passed them before they are computed."""
    source, numpy = np.random.default_rng(1), np.random.default_rng(1)
    count = 2 * _compiled._TASK + 2

    def stopped(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(_compiled, "run_tasks", stopped)
        standard_normals(source, count)
    numpy.random(count)
    assert source.random() == numpy.random()


def test_threads_that_share_a_generator_get_different_numbers(monkeypatch):
    """Two equal noises would cancel in the difference of two answers."""
    count, after = 2 * _compiled._TASK + 2, _compiled._state_after

    def slow(*arguments):
        time.sleep(0.01)
        return after(*arguments)

    monkeypatch.setattr(_compiled, "_state_after", slow)
    source, numpy = np.random.default_rng(2), np.random.default_rng(2)
    with ThreadPoolExecutor(4) as pool:
        drawn = [pool.submit(standard_normals, source, count) for _ in range(4)]
    found = sorted(each.result()[0][0] for each in drawn)
    assert found == sorted(standard_normals(numpy, count)[0][0] for _ in range(4))
