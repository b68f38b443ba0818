"""Reference networks, evaluated one sample and one layer at a time."""

import math

import array_api_strict
import numpy as np
import pytest
import scipy.sparse as sp

from dpanalysis.problems import MLP, Softmax

FORMS = {
    "dense": lambda X: X,
    "fortran": np.asfortranarray,
    "strided": lambda X: np.repeat(X, 2, axis=1)[:, ::2],
    "float32": lambda X: X.astype(np.float32),
    "csr": sp.csr_array,
    "csr float32": lambda X: sp.csr_array(X.astype(np.float32)),
    "coo": sp.coo_array,
    "strict": array_api_strict.asarray,
}


def draw(n=40, f=6, K=3, seed=0, zeros=0.4):
    random = np.random.default_rng(seed)
    X = random.standard_normal((n, f)) * (random.random((n, f)) >= zeros)
    return X, np.concatenate([np.arange(K), random.integers(0, K, n - K)])


def iterate(problem, seed=1, R=None, reach=1.0):
    """Random parameters with nonzero biases."""
    shape = (problem.d,) if R is None else (R, problem.d)
    return reach * np.random.default_rng(seed).standard_normal(shape) / math.sqrt(problem.features)


def written_out(problem, w, X, y):
    """Losses and the n x d matrix of gradients: one sample at a time, one layer at a time."""
    activation = getattr(problem, "activation", "relu")
    layers = problem.layers(w)
    values, gradients = [], []
    for x, label in zip(X, y):
        inputs, a = [], x
        for i, (weights, bias) in enumerate(layers):
            inputs.append(a)
            z = weights @ a + (0.0 if bias is None else bias)
            a = z if i == len(layers) - 1 else np.tanh(z) if activation == "tanh" else z * (z > 0)
        values.append(np.logaddexp.reduce(a) - a[label])
        back = np.exp(a - np.logaddexp.reduce(a)) - np.eye(len(a))[label]
        parts = []
        for i in reversed(range(len(layers))):
            weights, bias = layers[i]
            parts.append(back if bias is not None else [])
            parts.append(np.outer(back, inputs[i]).ravel())
            if i:
                slope = 1 - inputs[i] ** 2 if activation == "tanh" else inputs[i] > 0
                back = (weights.T @ back) * slope
        gradients.append(np.concatenate(parts[::-1]))
    return np.array(values), np.array(gradients)


def expected_sums(problem, w, X, y, clip_norm=math.inf, multiplicity=None):
    if not len(y):
        return 0.0, np.zeros(problem.d), 0
    values, gradients = written_out(problem, w, X, y)
    k = np.ones(len(y)) if multiplicity is None else multiplicity
    norms = np.linalg.norm(gradients, axis=1)
    factors = np.minimum(1.0, clip_norm / np.maximum(norms, 1e-300))
    return k @ values, (k * factors) @ gradients, int(((norms > clip_norm) & (k > 0)).sum())


def assert_sums(sums, expected, tolerance=1e-11):
    assert sums.value == pytest.approx(expected[0], rel=tolerance, abs=tolerance)
    np.testing.assert_allclose(sums.gradient, expected[1], atol=tolerance * (1 + expected[0]))
    assert sums.clipped == expected[2]


def kinds(X, y, **options):
    return [Softmax(X, y, **options), MLP(X, y, (5, 4), **options)]
