"""NumPy and SciPy in closed form: two products, no n x d temporary."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from . import data


def clipped(X: Any, y: np.ndarray, w: np.ndarray, norms: np.ndarray, loss: str) -> np.ndarray:
    """Return the clipped gradient sum; ``w`` may be one iterate or a column each."""
    if w.ndim == 2:
        y, norms = y[:, None], norms[:, None]
    margin = y * (X @ w)
    if loss == "huberised hinge":
        c = -y * np.clip(1.5 - margin, 0.0, 1.0)  # width .5
    else:
        e = np.exp(-np.abs(margin))
        c = -y * np.where(margin < 0, 1.0, e) / (1.0 + e)
    c *= np.minimum(1.0, data.CLIP / np.maximum(np.abs(c) * norms, 1e-300))
    total = X.T @ c
    if loss == "non-convex penalty":
        total = total + 2e-3 * len(y) * w / (1.0 + w * w) ** 2
    return total


def dense(n: int, d: int, dtype: str, loss: str) -> dict[str, Callable[[], Any]]:
    X, y, w, norms = data.dense(n, d, dtype)
    y, w, norms = y.astype(dtype), w.astype(dtype), norms.astype(dtype)
    return {"NumPy closed form": lambda: clipped(X, y, w, norms, loss)}


def descent(
    n: int, d: int, iterations: int, step: float, noise: float
) -> dict[str, Callable[[], Any]]:
    """Return gradient descent from zero: plain, and clipped with Gaussian noise on the mean."""
    X, y, _, norms = data.planted(n, d)

    def plain(w: np.ndarray) -> np.ndarray:
        margin = y * (X @ w)
        e = np.exp(-np.abs(margin))
        return (-y * np.where(margin < 0, 1.0, e) / (1.0 + e)) @ X

    def run(private: bool) -> np.ndarray:
        w, random = np.zeros(d), np.random.default_rng(0)
        for _ in range(iterations):
            total = clipped(X, y, w, norms, "logistic") if private else plain(w)
            w = w - step * total / n
            if private:
                w -= step * noise * random.standard_normal(d)
        return w

    return {
        "NumPy loop, not private": lambda: run(False),
        "NumPy loop, clipped and noisy": lambda: run(True),
    }


def sparse(n: int, d: int, entries: int) -> dict[str, Callable[[], Any]]:
    X, y, w, norms = data.csr(n, d, entries)
    return {"SciPy closed form": lambda: clipped(X, y, w, norms, "logistic")}


def minibatch(
    n: int, d: int, rate: float, poisson: bool, entries: int = 0
) -> dict[str, Callable[[], Any]]:
    """Return the gradient of gathered rows, sparse ones if they have a number of ``entries``."""
    X, y, w, norms = data.csr(n, d, entries) if entries else data.dense(n, d)
    rows = itertools.cycle(data.batches(n, rate, poisson))

    def gathered() -> np.ndarray:
        chosen = next(rows)
        return clipped(X[chosen], y[chosen], w, norms[chosen], "logistic")

    return {f"{'SciPy' if entries else 'NumPy'} on X[idx]": gathered}


def replicates(n: int, d: int, R: int) -> dict[str, Callable[[], Any]]:
    X, y, _, norms = data.dense(n, d)
    W = data.iterates(R, d)
    columns = np.ascontiguousarray(W.T)
    return {
        "NumPy, one matrix product": lambda: clipped(X, y, columns, norms, "logistic").T,
        "NumPy, one by one": lambda: [clipped(X, y, w, norms, "logistic") for w in W],
    }
