"""Data larger than the cache: prefetching the next tile leaves the sums unchanged."""

from __future__ import annotations

import numba
import numpy as np
import pytest

from dpanalysis import ERM, clipping, losses
from dpanalysis.kernels import dense


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("d", [1, 17, 2053])
def test_sums_of_large_data_are_those_of_its_parts(d, dtype):
    random = np.random.default_rng(d)
    n = 13 + dense._NEAR_BYTES // (d * np.dtype(dtype).itemsize)
    X = random.standard_normal((n, d)).astype(dtype)
    y = np.where(random.random(n) < 0.5, 1.0, -1.0)
    w = random.standard_normal(d) / d**0.5
    rule = clipping.Flat(0.3)
    problem = ERM(X, y, losses.Logistic())
    cuts = range(0, n + 1000, n // 7)
    near = [ERM(X[a : a + n // 7], y[a : a + n // 7], problem.loss) for a in cuts if a < n]
    parts = [part.sums(w, clipping=rule) for part in near]
    whole = problem.sums(w, clipping=rule)
    assert whole.value == pytest.approx(sum(part.value for part in parts), rel=1e-12)
    assert whole.clipped == sum(part.clipped for part in parts)
    total = sum(part.gradient for part in parts)
    np.testing.assert_allclose(whole.gradient, total, atol=1e-12 * n)

    rows = np.sort(random.integers(n, size=n // 5))
    chosen = ERM(X[rows], y[rows], losses.Logistic()).sums(w, clipping=rule)
    drawn = problem.sums(w, rows, clipping=rule)
    assert drawn.value == pytest.approx(chosen.value, rel=1e-12)
    np.testing.assert_allclose(drawn.gradient, chosen.gradient, atol=1e-12 * n)

    before = numba.get_num_threads()
    numba.set_num_threads(1)
    try:
        alone = problem.sums(w, clipping=rule)
    finally:
        numba.set_num_threads(before)
    np.testing.assert_array_equal(alone.gradient, whole.gradient)
