"""Softmax regression: public bounds, curvature, minimizer, and equivalent models."""

import math

import array_api_strict
import numpy as np
import pytest
from network_reference import FORMS, draw, iterate, written_out

from dpanalysis import RowBound, clipping, losses, regularizers, theory
from dpanalysis.problems import ERM, MLP, Softmax


@pytest.mark.slow
@pytest.mark.parametrize("form", ["dense", "float32", "csr float32"])
def test_softmax_without_clipping_is_within_its_bound(form):
    X, y = draw(n=60)
    X *= np.random.default_rng(2).lognormal(0, 2, (60, 1))
    bounds = (RowBound(2, 0.7), RowBound(1, 1.1))
    problem = Softmax(FORMS[form](X), y, row_bound=bounds)
    assert problem.gradient_bound(2) == pytest.approx(math.sqrt(2) * 0.7)
    assert problem.gradient_bound(1) == pytest.approx(2 * 1.1)
    largest = 0.0
    for reach in (1.0, 1e3, 1e6):
        w = iterate(problem, reach=reach)
        for i in range(60):
            one = problem.sums(w, np.array([i]), value=False).gradient
            largest = max(largest, np.linalg.norm(one))
            assert np.linalg.norm(one, 1) <= problem.gradient_bound(1) * (1 + 1e-15)
            assert np.linalg.norm(one) <= problem.gradient_bound(2) * (1 + 1e-15)
    assert largest > 0.999 * problem.gradient_bound(2)  # tight


def test_huge_rows_are_clipped_not_lost():
    problem = Softmax(np.array([[1e200, 1e200]]), np.array([0]), n_classes=2)
    gradient = problem.sums(np.zeros(4), clipping=clipping.Flat(1.0)).gradient
    np.testing.assert_allclose(gradient, [-0.5, -0.5, 0.5, 0.5], rtol=1e-12)


def test_value_clipping_needs_the_weak_growth_of_softmax():
    X, y = draw()
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    problem = Softmax(2.0 * X, y, row_bound=RowBound(2, 2.0))
    least = theory.weak_growth_softmax(2.0)
    assert problem.loss.weak_growth(2.0) == (pytest.approx(least, rel=1e-14), 0.0)
    good, bad = clipping.Value(0.9, least * (1 + 1e-12)), clipping.Value(0.9, least * 0.999)
    w = iterate(problem)
    values, gradients = written_out(problem, w, 2.0 * X, y)
    factors = np.minimum(1.0, 0.9 / np.sqrt(good.beta1 * values))
    assert (factors * np.linalg.norm(gradients, axis=1)).max() <= 0.9
    sums = problem.sums(w, clipping=good)
    np.testing.assert_allclose(sums.gradient, factors @ gradients, atol=1e-12)
    assert 0 < sums.clipped == (factors < 1.0).sum()
    for call in (problem.check_clipping, lambda rule: problem.sums(w, clipping=rule)):
        with pytest.raises(ValueError, match="beta1"):
            call(bad)
    with pytest.raises(ValueError, match="row_bound"):
        Softmax(X, y).check_clipping(good)
    with pytest.raises(TypeError, match="clipping must be a rule"):
        problem.check_clipping(1.0)


def test_two_classes_are_logistic_regression():
    X, y = draw(K=2)
    softmax, logistic = Softmax(X, y), ERM(X, 2 * y - 1, losses.Logistic())
    w = iterate(softmax)
    difference = w[6:] - w[:6]
    assert softmax.value(w) == pytest.approx(logistic.value(difference), rel=1e-14)
    np.testing.assert_allclose(softmax.gradient(w)[6:], logistic.gradient(difference), atol=1e-15)
    assert softmax.accuracy(w) == logistic.accuracy(difference)


def test_softmax_is_the_mlp_without_hidden_layers():
    X, y = draw()
    softmax, linear = Softmax(X, y), MLP(X, y, (), bias=False)
    w = iterate(softmax)
    assert softmax.value(w) == linear.value(w)
    for convex in ("hessian", "hvp", "solve"):
        assert not hasattr(linear, convex)


@pytest.mark.parametrize("form", ["dense", "csr", "strict"])
def test_curvature(form):
    X, y = draw(n=70, K=4)
    labels = array_api_strict.asarray(y) if form == "strict" else y
    options = {"regularizer": regularizers.L2(0.2), "row_bound": RowBound(2, 1.5)}
    problem = Softmax(FORMS[form](X), labels, **options)
    w, h = iterate(problem), 1e-5
    hessian = problem.hessian(w)
    step = h * np.eye(problem.d)
    slope = (problem.gradient(w + step) - problem.gradient(w - step)) / (2 * h)
    np.testing.assert_allclose(hessian, slope, atol=1e-8)
    v = np.arange(float(problem.d))
    np.testing.assert_allclose(problem.hvp(w, v), hessian @ v, rtol=1e-11)
    W, V = np.stack([w, -w]), np.stack([v, 1 - v])
    assert problem.hessian(W).shape == (2, problem.d, problem.d)
    np.testing.assert_allclose(problem.hvp(W, V)[1], problem.hessian(W)[1] @ V[1], rtol=1e-11)
    with pytest.raises(ValueError, match="v must have the shape of w"):
        problem.hvp(w, V)


def test_smoothness_is_tight():
    """Rows all alike, and two classes equally likely: the Hessian's eigenvalue is radius^2/2."""
    X, y = np.tile([[0.0, 3.0]], (4, 1)), np.array([0, 1, 2, 0])
    problem = Softmax(X, y, regularizer=regularizers.L2(0.1), row_bound=RowBound(2, 3.0))
    assert pytest.approx(4.5 + 0.1) == problem.L
    assert problem.mu == 0.1
    w = np.array([0.0, 0.0, 0.0, 0.0, 0.0, -100.0])
    assert np.linalg.eigvalsh(problem.hessian(w)).max() == pytest.approx(problem.L)
    assert Softmax(X, y).L == Softmax(X, y).gradient_bound(2) == math.inf
    mlp = MLP(X, y, regularizer=regularizers.L2(0.1), row_bound=RowBound(2, 3.0))
    assert (mlp.L, mlp.mu, mlp.gradient_bound(1), mlp.radius(1)) == (
        math.inf, 0.0, math.inf, math.sqrt(2) * 3.0,
    )  # fmt: skip


def test_the_bounds_on_the_hessian_of_a_record_are_attained():
    """At w = 0, where all classes are equally likely."""
    problem = Softmax(np.array([[0.0, 3.0]]), [0], 5, row_bound=RowBound(2, 3.0))
    hessian = problem.hessian(np.zeros(10))
    assert np.trace(hessian) == pytest.approx(problem.hessian_trace)
    assert np.linalg.matrix_rank(hessian) == problem.hessian_rank == 4


@pytest.mark.parametrize("most", [2000, 0])
@pytest.mark.parametrize("strength", [1e-3, None])
@pytest.mark.parametrize("form", ["dense", "csr"])
def test_solve(form, strength, most, monkeypatch):
    """By the Hessian and, where that has too many rows, by its products."""
    monkeypatch.setattr("dpanalysis.problems.base._DENSE_HESSIAN", most)
    X, y = draw(n=300, K=3, seed=7)
    penalty = None if strength is None else regularizers.L2(strength)
    problem = Softmax(FORMS[form](X), y, regularizer=penalty)
    w = problem.solve()
    assert np.linalg.norm(problem.gradient(w)) <= 1e-10
    around = w + 1e-3 * np.random.default_rng(1).standard_normal((10, problem.d))
    assert (problem.value(around) > problem.value(w)).all()
    np.testing.assert_allclose(w.reshape(3, 6).sum(axis=0), 0.0, atol=1e-8)


def test_solve_warns_where_there_is_no_minimizer():
    with pytest.warns(RuntimeWarning, match="no minimizer reached"):
        Softmax(np.array([[1.0, 0.3], [-1.0, 0.5]]), np.array([0, 1])).solve()


def test_a_curvature_needs_no_penalty():
    X, y = np.array([[2.0, 1.0], [0.5, -1.0]]), np.array([0, 1])
    w, v = np.linspace(-1.0, 1.0, 4), np.array([1.0, 0.0, -2.0, 0.5])
    plain, penalized = Softmax(X, y), Softmax(X, y, regularizer=regularizers.L2(0.5))
    np.testing.assert_allclose(penalized.hvp(w, v), plain.hvp(w, v) + 0.5 * v, rtol=1e-12)


def test_a_record_moves_predictions_by_the_bound_and_by_nothing_larger():
    """The gradient in the predictions, p - e_y, where another class has probability 1."""
    sure = np.array([1.0, 0.0, 0.0]) - np.array([0.0, 1.0, 0.0])
    for order, bound in zip((1, 2), Softmax.derivative_bounds):
        assert np.linalg.norm(sure, order) == pytest.approx(bound, rel=1e-15)
