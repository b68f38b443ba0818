"""Products of the rows of a tile in vector registers, for every row length."""

import ctypes
import mmap

import numpy as np
import pytest
from numba import njit

from dpanalysis import ERM, losses
from dpanalysis.kernels.norms import count_grown
from dpanalysis.kernels.tile import NORM, SCALE
from dpanalysis.kernels.vectors import LANES, add_rows, predict


@njit
def _tile(X, index, w, c, z, total, squares, sizes, sized, far, ahead):
    predict(X, index, index.size, w, z, far, ahead, sized)
    add_rows(X, index, index.size, c, total, squares, sizes, sized, far, ahead)


@njit
def _grown(sizes, squares, c, table, limits, known):
    return count_grown(sizes, squares, c, table, limits, known, sizes.size)


def _padded(values):
    return np.concatenate([values, np.zeros(-len(values) % LANES)])


@pytest.mark.parametrize("kind", [np.float64, np.float32])
@pytest.mark.parametrize("d", [*range(1, 43), *range(63, 76)])  # longer rows go by eight
def test_a_tile_is_the_products_of_its_rows_alone(d, kind):
    """The rows between them are NaN, so any read beyond either end of a row is visible."""
    random = np.random.default_rng(d)
    X = np.full((25, d), np.nan, kind)
    X[1::2] = random.standard_normal((12, d))
    index = random.permutation(12) * 2 + 1
    rows = X[index].astype(float)
    w, c, start = random.standard_normal(d), random.standard_normal(12), random.standard_normal(d)
    sized = d % 3 > 0
    found = []
    for far in (False, True):
        total, z, squares, sizes = _padded(start), np.zeros(12), np.zeros(12), np.ones(12)
        _tile(X, index, _padded(w), c, z, total, squares, sizes, sized, far, index)
        found.append(np.concatenate([total, z, squares, sizes]))
    np.testing.assert_array_equal(*found)  # prefetching changes nothing
    np.testing.assert_allclose(z, rows @ w, rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(total[:d], start + c @ rows, rtol=1e-13, atol=1e-13)
    np.testing.assert_array_equal(total[d:], 0.0)
    np.testing.assert_allclose(squares, (rows**2).sum(axis=1), rtol=1e-14)
    expected = abs(rows).sum(axis=1) if sized else np.ones(12)
    np.testing.assert_allclose(sizes, expected, rtol=1e-14)


def test_no_read_beyond_the_last_row():
    """A page that cannot be read follows the matrix: a read beyond it would end the process."""
    page = 2 * mmap.PAGESIZE
    memory = mmap.mmap(-1, page + mmap.PAGESIZE)
    whole = np.frombuffer(memory, np.float64)
    protect = getattr(ctypes.CDLL(None), "mprotect", None)
    if protect is None:
        pytest.skip("this system has no mprotect")
    guard = ctypes.c_void_p(whole.ctypes.data + page)
    assert protect(guard, ctypes.c_size_t(mmap.PAGESIZE), 0) == 0
    try:
        for d in [*range(1, 41), *range(64, 74)]:
            X = whole[page // 8 - 12 * d : page // 8].reshape(12, d)
            X[:] = 1.0
            z, total, squares = np.zeros(12), _padded(np.zeros(d)), np.zeros(12)
            index, w = np.arange(12), _padded(np.ones(d))
            ahead = np.repeat([12, 10**12], 6)  # rows in the page, and at no address at all
            _tile(X, index, w, np.ones(12), z, total, squares, np.ones(12), True, True, ahead)
            assert (z == d).all()
            assert (total[:d] == 12.0).all()
    finally:
        assert protect(guard, ctypes.c_size_t(mmap.PAGESIZE), 3) == 0


def fill_freed_memory(libc):
    """Leave NaN in freed chunks, which the next allocations use again."""
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    libc.free.argtypes = [ctypes.c_void_p]
    chunks = [(size, libc.malloc(size)) for size in range(24, 1024, 16) for _ in range(7)]
    for size, chunk in chunks:
        ctypes.memset(chunk, 0xFF, size)
    for _, chunk in chunks:
        libc.free(chunk)


@pytest.mark.parametrize("d", range(1, 41))
def test_weights_and_sums_are_padded_by_memory_of_their_own(d):
    """Vectors of them are loaded whole: what lies behind an array that is too short is NaN here."""
    libc, rng = ctypes.CDLL(None), np.random.default_rng(d)
    if not hasattr(libc, "malloc"):
        pytest.skip("the C library is not at hand")
    X, w = rng.normal(size=(20, d)), rng.normal(size=d)
    problem = ERM(X, np.sign(X[:, 0]), losses.Logistic())
    expected = problem.sums(w)
    fill_freed_memory(libc)
    found = problem.sums(w)
    assert found.value == expected.value
    np.testing.assert_array_equal(found.gradient, expected.gradient)


@pytest.mark.parametrize(
    ("size", "square", "scale", "grown"),
    [
        (1.0, 0.8, 1.0, 0), (1.1, 0.8, 1.0, 1), (0.9, 1.1, 1.0, 1),  # L1 and L2 at most 1
        (1.1, 1.1, 0.5, 0), (1e9, 1e18, 1.0, 1), (1e9, 1e18, 1e-9, 0),
        (0.0, 0.0, 1.0, 0), (1e-150, 0.0, 1.0, 0), (1e-145, 1e-290, 1.0, 0),
        (1e200, np.inf, 1e-200, 1),  # the square overflows, so the norm is unknown
        (np.inf, np.inf, 1.0, 1), (np.nan, np.nan, 1.0, 1), (1.0, np.nan, 1.0, 1),
    ],
)  # fmt: skip
def test_a_row_has_grown_if_the_added_numbers_exceed_its_norm(size, square, scale, grown):
    """Reading the row again may give its old values, so the added values decide."""
    table = np.ones((6, 1))
    table[SCALE] = scale
    sums = np.array([size]), np.array([square])
    for c in (np.array([0.5]), np.array([-1e100])):
        tiny = square < 1e-280
        expected = grown or (tiny and c[0] < 0.0)  # a huge factor makes it matter
        assert (_grown(*sums, c, table, (1.0, 1.0, np.inf), False) > 0) == expected
        table[NORM] = 1.0
        assert (_grown(*sums, c, table, (1.0, np.inf, 1.0), True) > 0) == expected
        table[NORM] = 0.0  # a row of zeros: any nonzero row exceeds its norm
        expected = not tiny or c[0] < 0.0
        assert (_grown(*sums, c, table, (np.inf, np.inf, 1.0), True) > 0) == expected
        assert _grown(*sums, c, table, (np.inf, 1e-140, np.inf), False) > 0
