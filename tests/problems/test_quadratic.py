"""The quadratic and the synthetic data."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpanalysis import ERM, Quadratic, losses
from dpanalysis.datasets import kuru_synthetic


@given(st.lists(st.floats(0, 1e3), min_size=1, max_size=6), st.integers(0, 2**32 - 1))
def test_quadratic_terms(eigenvalues, seed):
    random = np.random.default_rng(seed)
    d = len(eigenvalues)
    center, W = random.standard_normal(d), random.standard_normal((3, d))
    problem = Quadratic(eigenvalues, center)
    H = np.diag(eigenvalues)
    for r, w in enumerate(W):
        expected = 0.5 * (w - center) @ H @ (w - center)
        assert problem.value(w) == pytest.approx(expected, rel=1e-12)
        assert problem.value(W)[r] == pytest.approx(expected, rel=1e-12)
        np.testing.assert_allclose(problem.gradient(W)[r], H @ (w - center))
        np.testing.assert_allclose(problem.hvp(w, W[0]), H @ W[0])
    assert (problem.mu, problem.L) == (min(eigenvalues), max(eigenvalues))
    np.testing.assert_array_equal(problem.hessian(), H)
    assert problem.hessian(W).shape == (3, d, d)
    np.testing.assert_array_equal(problem.gradient(problem.solve()), np.zeros(d))


def test_a_quadratic_keeps_copies_of_its_arrays():
    eigenvalues, center = np.array([1.0, 2.0]), np.array([3.0, 4.0])
    problem = Quadratic(eigenvalues, center)
    eigenvalues[:], center[:] = 9.0, 9.0
    problem.solve()[:] = 9.0
    assert problem.solve().tolist() == [3.0, 4.0] and problem.hessian().tolist() == [[1, 0], [0, 2]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([-1.0],), "eigenvalues"),
        (([np.nan],), "eigenvalues"),
        (([],), "eigenvalues"),
        (([[1.0]],), "eigenvalues"),
        (([1.0], [1.0, 2.0]), "center"),
        (([1.0], [np.inf]), "center"),
        (([1.0], None, -1.0), "sensitivity"),
    ],
)
def test_quadratic_rejects(arguments, message):
    with pytest.raises(ValueError, match=message):
        Quadratic(*arguments)


def test_quadratic_rejects_iterates():
    problem = Quadratic([1.0, 2.0])
    for w in (np.zeros(3), np.zeros((2, 2, 2)), 1.0):
        with pytest.raises(ValueError, match="w must have shape"):
            problem.gradient(w)
    with pytest.raises(ValueError, match="w must be finite"):
        problem.value([np.nan, 0.0])
    assert problem.sensitivity is None and problem.n == 1
    assert Quadratic([1.0], sensitivity=2).sensitivity == 2.0


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.37, 1.0])
def test_cube_labels_are_a_halfspace_with_the_rate_asked_for(rate):
    data = kuru_synthetic(n=1000, d=4, scheme="cube", negative_rate=rate, rng=1)
    assert (data.y == -1).mean() == pytest.approx(rate)
    assert data.X.min() >= 0 and data.X.max() <= 1
    problem = ERM(data.X, data.y, losses.Logistic(), row_bound=data.row_bound)
    assert (problem.radius(1), problem.radius(2)) == (4.0, 2.0)
    if rate == 0.37:  # separable: some w gets every label right
        with pytest.warns(RuntimeWarning, match="no minimizer"):
            assert problem.accuracy(problem.solve()) == 1.0


def test_ball_is_uniform_and_its_labels_follow_the_model():
    d, n = 3, 20_000
    data = kuru_synthetic(n=n, d=d, scheme="ball", rng=2)
    norms = np.abs(data.X).sum(axis=1) / 20
    # norm^d is uniform on [0, 1]: the mean of n uniforms lies within 6/sqrt(12 n) of 1/2,
    # and by the Dvoretzky-Kiefer-Wolfowitz bound the distribution within sqrt(ln(2/a)/(2n)),
    # except for false alarms of probability a < 1e-8.
    u = np.sort(norms**d)
    gap = np.abs(u - (np.arange(n) + 0.5) / n).max()
    assert gap <= math.sqrt(math.log(2 / 1e-8) / (2 * n)) + 1 / n
    assert norms.max() <= 1
    # Half the entries are negative (Hoeffding, the same probability).
    assert abs((data.X < 0).mean() - 0.5) <= math.sqrt(math.log(2 / 1e-8) / (2 * n * d))
    problem = ERM(data.X, data.y, losses.Logistic(), row_bound=data.row_bound)
    w = problem.solve()
    # At the maximum likelihood the model is calibrated: the weighted residuals vanish, and
    # in every fifth of the predicted probabilities the labels' mean agrees (Hoeffding).
    p = 1 / (1 + np.exp(-data.X @ w))
    for part in np.array_split(np.argsort(p), 5):
        gap = abs((data.y[part] == 1).mean() - p[part].mean())
        assert gap <= math.sqrt(math.log(2 / 1e-9) / (2 * len(part)))
    assert (problem.radius(1), problem.radius(2)) == (20.0, 20.0)


def test_synthetic_is_reproducible_and_checked():
    a, b = (kuru_synthetic(n=50, d=3, rng=np.random.default_rng(4)) for _ in range(2))
    np.testing.assert_array_equal(a.X, b.X)
    np.testing.assert_array_equal(a.y, b.y)
    assert a.X_test is None and a.y_test is None
    for arguments in (
        {"scheme": "sphere"},
        {"negative_rate": 1.5},
        {"scheme": "ball", "negative_rate": 0.5},
        {"n": 0},
        {"d": 0},
    ):
        with pytest.raises(ValueError, match=next(iter(arguments))):
            kuru_synthetic(**{"n": 10, "d": 2, **arguments})
