"""The same random data for both sides, from seeds."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

CLIP = 0.5  # bound on the norm of a sample's gradient
SHRINK = 4  # quick runs use a quarter of the rows


def _around(X: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray]:
    """Return ``X``, labels -1 and 1, an iterate and the norms of the rows."""
    random = np.random.default_rng(0)
    n, d = X.shape
    y = np.where(random.random(n) < 0.5, 1.0, -1.0)
    w = random.standard_normal(d) / d**0.5
    if sp.issparse(X):
        norms = np.sqrt(X.multiply(X).sum(axis=1)).ravel()
    else:
        norms = np.sqrt(np.einsum("ij,ij->i", X, X, dtype=np.float64))
    return X, y, w, norms


def dense(n: int, d: int, dtype: str = "float64") -> tuple[Any, ...]:
    """Return ``X, y, w, norms`` with entries of X uniform on [0, 1)."""
    return _around(np.random.default_rng(1).random((n, d), dtype=np.dtype(dtype).type))


def planted(n: int, d: int) -> tuple[Any, ...]:
    """Return the same as :func:`dense` with labels that can be learnt, one in ten of them wrong."""
    X, _, w, norms = dense(n, d)
    random = np.random.default_rng(5)
    score = (X - 0.5) @ random.standard_normal(d)
    y = np.where((score > 0.0) != (random.random(n) < 0.1), 1.0, -1.0)
    return X, y, w, norms


def csr(n: int, d: int, entries: int) -> tuple[Any, ...]:
    """Return the same with ``entries`` ones in every row."""
    random = np.random.default_rng(2)
    columns = np.sort(random.random((n, d)).argpartition(entries, axis=1)[:, :entries], axis=1)
    indptr = np.arange(0, n * entries + 1, entries, dtype=np.int32)
    X = sp.csr_array((np.ones(n * entries), columns.ravel().astype(np.int32), indptr), (n, d))
    return _around(X)


def batches(n: int, rate: float, poisson: bool) -> list[np.ndarray]:
    """Return sorted batches, so many that none is in cache when it comes again."""
    random = np.random.default_rng(4)
    if poisson:
        return [np.flatnonzero(random.random(n) < rate) for _ in range(101)]
    size = round(rate * n)
    return [np.sort(random.choice(n, size, replace=False, shuffle=False)) for _ in range(101)]


def iterates(R: int, d: int) -> np.ndarray:
    """Return iterates of shape ``(R, d)``."""
    return np.random.default_rng(6).standard_normal((R, d)) / d**0.5


def images(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return random images of MNIST's shape in single precision, and their labels."""
    random = np.random.default_rng(0)
    return random.random((n, 784), dtype=np.float32), random.integers(0, 10, n)


def sentences(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return random sentences of 32 words out of 1,000, and one of two labels for each."""
    random = np.random.default_rng(0)
    return random.integers(0, 1000, (n, 32)), random.integers(0, 2, n)


def network() -> list[tuple[np.ndarray, np.ndarray]]:
    """Return weights and biases of 784-128-10 in single precision."""
    random = np.random.default_rng(3)
    return [
        (
            (random.standard_normal((out, into)) / into**0.5).astype(np.float32),
            np.zeros(out, np.float32),
        )
        for into, out in ((784, 128), (128, 10))
    ]
