"""Products of a tile's rows in vector registers, for every width of a row."""

import ctypes
import mmap

import numpy as np
import pytest
from numba import njit

from dpanalysis.kernels.vectors import LANES, add_rows, predict


@njit
def _tile(X, index, w, c, z, total, squares):
    predict(X, index, index.size, w, z)
    add_rows(X, index, index.size, c, total, squares)


def _padded(values):
    return np.concatenate([values, np.zeros(-len(values) % LANES)])


@pytest.mark.parametrize("kind", [np.float64, np.float32])
@pytest.mark.parametrize("d", range(1, 43))
def test_a_tile_is_the_products_of_its_rows_alone(d, kind):
    """Rows between them are NaN: none of their entries may enter, at either end of a row."""
    random = np.random.default_rng(d)
    X = np.full((25, d), np.nan, kind)
    X[1::2] = random.standard_normal((12, d))
    index = random.permutation(12) * 2 + 1
    rows = X[index].astype(float)
    w, c, start = random.standard_normal(d), random.standard_normal(12), random.standard_normal(d)
    total, z, squares = _padded(start), np.zeros(12), np.zeros(12)
    _tile(X, index, _padded(w), c, z, total, squares)
    np.testing.assert_allclose(z, rows @ w, rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(total[:d], start + c @ rows, rtol=1e-13, atol=1e-13)
    np.testing.assert_array_equal(total[d:], 0.0)
    np.testing.assert_allclose(squares, (rows**2).sum(axis=1), rtol=1e-14)


def test_the_last_row_ends_where_the_memory_may_end():
    """A page that cannot be read follows the matrix: a read beyond it would end the process."""
    page = mmap.PAGESIZE
    memory = mmap.mmap(-1, 2 * page)
    whole = np.frombuffer(memory, np.float64)
    protect = getattr(ctypes.CDLL(None), "mprotect", None)
    if protect is None:
        pytest.skip("this system has no mprotect")
    guard = ctypes.c_void_p(whole.ctypes.data + page)
    assert protect(guard, ctypes.c_size_t(page), 0) == 0
    try:
        for d in range(1, 41):
            X = whole[page // 8 - 4 * d : page // 8].reshape(4, d)
            X[:] = 1.0
            z, total, squares = np.zeros(4), _padded(np.zeros(d)), np.zeros(4)
            _tile(X, np.arange(4), _padded(np.ones(d)), np.ones(4), z, total, squares)
            assert (z == d).all()
            assert (total[:d] == 4.0).all()
    finally:
        assert protect(guard, ctypes.c_size_t(page), 3) == 0
