"""The ERM problem: every path through the kernels against a plain reference."""

import copy
import math
import pickle
import subprocess
import sys
from fractions import Fraction
from types import SimpleNamespace

import array_api_strict
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from dpanalysis import ERM, RowBound, clipping, losses, regularizers
from dpanalysis.kernels.products import WHOLE
from dpanalysis.privacy.facts import Block
from dpanalysis.problems import MLP, Softmax
from dpanalysis.problems.base import PerturbedObjective
from dpanalysis.problems.rows.checks import row_blocks, row_scale

LOSSES = [
    losses.Logistic(),
    losses.SquaredError(),
    losses.Hinge(),
    losses.HuberizedHinge(0.5),
    losses.Huber(0.5),
]
SMOOTH = [loss for loss in LOSSES if math.isfinite(loss.smoothness)]


def draw(n, d, R=None, seed=0, reach=1.0):
    """Random data with margins of size about ``reach``, labels, iterates."""
    random = np.random.default_rng(seed)
    X = random.standard_normal((n, d)) * (random.random((n, d)) < 0.6)
    y = np.where(random.random(n) < 0.5, 1.0, -1.0)
    w = random.standard_normal((d,) if R is None else (R, d)) * reach / math.sqrt(d)
    return X, y, w


def reference(X, y, w, loss, clip_norm=math.inf, multiplicity=None):
    """Sums of one iterate from the n x d matrix of gradients, added exactly."""
    z = np.array([math.fsum(row * w) for row in X])
    values = loss.value(z, y)
    gradients = loss.derivative(z, y)[:, None] * X
    norms = np.linalg.norm(gradients, axis=1)
    factor = np.minimum(1.0, clip_norm / np.maximum(norms, 1e-300))
    k = np.ones(len(y)) if multiplicity is None else multiplicity
    gradients = (factor * k)[:, None] * gradients
    total = np.array([math.fsum(column) for column in gradients.T])
    return math.fsum(k * values), total, int(((norms > clip_norm) & (k > 0)).sum())


def assert_sums(sums, expected, tolerance=1e-12):
    value, gradient, clipped = expected
    scale = 1.0 + abs(value)
    assert abs(sums.value - value) <= tolerance * scale
    assert np.abs(sums.gradient - gradient).max() <= tolerance * scale
    assert sums.clipped == clipped


FORMS = {
    "dense": lambda X: X,
    "fortran": np.asfortranarray,
    "strided": lambda X: np.repeat(X, 2, axis=1)[:, ::2],
    "float32": lambda X: X.astype(np.float32),
    "csr": sp.csr_array,
    "csc": sp.csc_matrix,
    "coo": sp.coo_array,
    "strict": array_api_strict.asarray,
}


@pytest.mark.parametrize("reach", [1.0, 1e3])
@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("form", FORMS)
def test_all_paths_agree(form, loss, reach):
    X, y, W = draw(301, 6, R=5, reach=reach)
    tolerance = 1e-5 if form == "float32" else 1e-12
    problem = ERM(FORMS[form](X), y, loss)
    rows = np.array([0, 300, 7, 7, 150])
    ragged = [rows, rows[:0], rows[:1], np.arange(301), rows[2:]]
    clip = clipping.Flat(0.7)
    shared, each = problem.sums(W, clipping=clip), problem.sums(W, ragged, clipping=clip)
    batch = problem.sums(W, rows)
    for r, w in enumerate(W):
        everything = reference(X, y, w, loss, 0.7)
        pick = ragged[r]
        assert_sums(problem.sums(w, clipping=clip), everything, tolerance)
        assert_sums(_replicate(shared, r), everything, tolerance)
        assert_sums(_replicate(each, r), reference(X[pick], y[pick], w, loss, 0.7), tolerance)
        assert_sums(_replicate(batch, r), reference(X[rows], y[rows], w, loss), tolerance)


def _replicate(sums, r):
    return type(sums)(sums.value[r], sums.gradient[r], sums.clipped[r])


@pytest.mark.parametrize("form", ["dense", "csr", "strict"])
@pytest.mark.parametrize("R", [None, 1, 2, 3, 4, 9])
def test_shapes_and_what_is_wanted(form, R):
    X, y, w = draw(40, 3, R)
    problem = ERM(FORMS[form](X), y, losses.Logistic(), regularizers.L2(0.3))
    both = problem.sums(w)
    only_value, only_gradient = problem.sums(w, gradient=False), problem.sums(w, value=False)
    assert only_value.gradient is None and only_gradient.value is None
    np.testing.assert_allclose(only_value.value, both.value, rtol=1e-15)
    np.testing.assert_allclose(only_gradient.gradient, both.gradient, rtol=1e-14)
    assert np.shape(both.value) == np.shape(both.clipped) == (() if R is None else (R,))
    assert both.gradient.shape == w.shape and both.gradient.dtype == np.float64
    penalty = problem.regularizer
    np.testing.assert_allclose(problem.value(w), both.value / 40 + penalty.value(w), rtol=1e-15)
    np.testing.assert_allclose(
        problem.gradient(w), both.gradient / 40 + penalty.gradient(w), rtol=1e-14
    )
    assert isinstance(problem.value(w), float) == (R is None)


@pytest.mark.parametrize("form", ["dense", "csr", "strict"])
@pytest.mark.parametrize("loss", SMOOTH, ids=repr)
def test_derivatives_match_finite_differences(form, loss):
    X, y, w = draw(50, 4)
    problem = ERM(FORMS[form](X), y, loss, regularizers.L2(0.2), RowBound(2, 1.5))
    h = 1e-5
    slope = [(problem.value(w + e) - problem.value(w - e)) / (2 * h) for e in h * np.eye(4)]
    np.testing.assert_allclose(problem.gradient(w), slope, atol=1e-8)
    curvature = [
        (problem.gradient(w + e) - problem.gradient(w - e)) / (2 * h) for e in h * np.eye(4)
    ]
    hessian = problem.hessian(w)
    np.testing.assert_allclose(hessian, curvature, atol=1e-8)
    v = np.arange(4.0)
    np.testing.assert_allclose(problem.hvp(w, v), hessian @ v, rtol=1e-12)
    W, V = np.stack([w, -w]), np.stack([v, 1 - v])
    assert problem.hessian(W).shape == (2, 4, 4)
    np.testing.assert_allclose(problem.hvp(W, V)[1], problem.hessian(W)[1] @ V[1], rtol=1e-12)


@pytest.mark.parametrize("form", ["dense", "csr"])
def test_many_features(form):
    X, y, W = draw(9, 2500, 3)
    sums = ERM(FORMS[form](X), y, losses.Logistic()).sums(W)
    for r, w in enumerate(W):
        assert_sums(_replicate(sums, r), reference(X, y, w, losses.Logistic()))


@given(st.integers(1, 70), st.integers(1, 9), st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_any_size(n, d, R, seed):
    X, y, W = draw(n, d, R, seed)
    problem = ERM(X, y, losses.Logistic())
    sums = problem.sums(W, clipping=clipping.Flat(0.3))
    for r, w in enumerate(W):
        assert_sums(_replicate(sums, r), reference(X, y, w, problem.loss, 0.3))


@pytest.mark.slow
@pytest.mark.parametrize("R", [None, 4])
@pytest.mark.parametrize("form", ["dense", "csr"])
def test_any_number_of_threads_gives_the_same_bits(form, R):
    numba = pytest.importorskip("numba")
    # Large enough to be cut into many tasks.
    X, y, w = draw(30_011, 12, R)
    problem = ERM(FORMS[form](X), y, losses.Logistic())
    assert len(problem._data.backend()._tasks([(0, problem.n)])) > 1
    threads = numba.get_num_threads()
    try:
        results = []
        for count in {1, threads}:
            numba.set_num_threads(count)
            results.append(problem.sums(w, clipping=clipping.Flat(0.5)))
    finally:
        numba.set_num_threads(threads)
    assert np.array_equal(results[0].gradient, results[-1].gradient)
    assert np.array_equal(results[0].value, results[-1].value)
    one = w if R is None else w[1]
    expected = reference(X, y, one, problem.loss, 0.5)
    assert_sums(results[0] if R is None else _replicate(results[0], 1), expected)


def _job(problem, w):
    return problem.sums(w).gradient


def test_worker_processes_and_threads_give_the_same_bits():
    joblib = pytest.importorskip("joblib")
    X, y, W = draw(20_000, 12, 4)
    problem = ERM(X, y, losses.Logistic())
    expected = problem.sums(W).gradient
    for backend in ("loky", "threading"):
        with joblib.parallel_config(backend=backend, n_jobs=2):
            found = joblib.Parallel()(joblib.delayed(_job)(problem, W) for _ in range(4))
        for gradient in found:
            assert np.array_equal(gradient, expected)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["dense", "csr", "strict"])
def test_clipping_bounds_every_sample(form):
    X, y, w = draw(200, 5, reach=20.0)
    problem = ERM(FORMS[form](X), y, losses.SquaredError())
    for i in range(200):
        one = problem.sums(w, np.array([i]), clipping=clipping.Flat(0.9), value=False)
        assert np.linalg.norm(one.gradient) <= 0.9 * (1 + 1e-15)
    k = np.random.default_rng(3).integers(0, 4, 200).astype(float)
    total, loss_sum, clipped = problem.clipped_gradient_sum(w, clipping.Flat(0.9), weights=k)
    expected = reference(X, y, w, problem.loss, 0.9, k)
    np.testing.assert_allclose(total, expected[1], rtol=1e-12, atol=1e-12)
    assert loss_sum == pytest.approx(expected[0], rel=1e-13)
    assert clipped == expected[2] > 0
    W = np.stack([w, 2 * w, 3 * w])
    batched = problem.clipped_gradient_sum(W, clipping.Flat(0.9), weights=k)
    np.testing.assert_allclose(batched[0][0], total, rtol=1e-12, atol=1e-12)
    assert batched[2][0] == clipped


# Row bounds


@pytest.mark.slow
@pytest.mark.parametrize("form", ["dense", "float32", "csr", "strict"])
@pytest.mark.parametrize("order", [1, 2])
def test_rows_are_scaled_down_to_the_bound(form, order):
    X, y, w = draw(100, 5)
    X[::10] *= 1e6
    problem = ERM(FORMS[form](X), y, losses.Logistic(), row_bound=RowBound(order, 0.5))
    norms = np.linalg.norm(X, ord=order, axis=1)
    bounded = X * np.minimum(1.0, 0.5 / np.maximum(norms, 1e-300))[:, None]
    tolerance = 1e-6 if form == "float32" else 1e-12
    assert_sums(problem.sums(w), reference(bounded, y, w, problem.loss), tolerance)
    assert problem.gradient_bound(order) == 0.5
    # One row that escapes the bound would show here: its gradient is a million times larger.
    for i in range(100):
        gradient = problem.sums(w, np.array([i]), value=False).gradient
        assert np.linalg.norm(gradient, ord=order) <= 0.5 * (1 + 1e-15)
    hessian = bounded.T @ (problem.loss.second_derivative(bounded @ w, y)[:, None] * bounded)
    np.testing.assert_allclose(problem.hessian(w), hessian / 100, atol=tolerance)


def test_rows_inside_the_bound_are_untouched():
    X, y, w = draw(50, 4)
    radius = float(np.linalg.norm(X, axis=1).max())
    plain = ERM(X, y, losses.Logistic()).sums(w)
    for enforce in ("clip", "check"):
        bounded = ERM(X, y, losses.Logistic(), row_bound=RowBound(2, radius, enforce)).sums(w)
        assert bounded.value == plain.value
        np.testing.assert_array_equal(bounded.gradient, plain.gradient)


def test_rows_over_a_checked_bound_are_named():
    X, y, _ = draw(50, 4)
    X[[7, 31]] = 10.0
    with pytest.raises(ValueError, match=r"2 rows.*L2 bound 8.*\[7, 31\].*20"):
        ERM(X, y, losses.Logistic(), row_bound=RowBound(2, 8.0, "check"))
    # Over by rounding alone: accepted, and scaled down to the bound.
    X = np.full((1, 1), 1.0 + 1e-12)
    problem = ERM(X, np.ones(1), losses.SquaredError(), row_bound=RowBound(2, 1.0, "check"))
    assert problem.sums(np.array([1e9])).gradient[0] <= 1e9


def test_several_bounds_hold_at_once():
    X, y, _ = draw(200, 9)
    both = (RowBound(1, 1.0), RowBound(2, 0.6))
    problem = ERM(X, y, losses.Logistic(), regularizers.L2(0.1), both)
    for i in range(200):
        gradient = problem.sums(np.zeros(9), np.array([i]), value=False).gradient
        assert np.linalg.norm(gradient, 1) <= 0.5 * (1 + 1e-15)
        assert np.linalg.norm(gradient, 2) <= 0.3 * (1 + 1e-15)
    assert (problem.radius(1), problem.radius(2)) == (1.0, 0.6)
    assert pytest.approx(0.25 * 0.36 + 0.1) == problem.L
    assert problem.mu == 0.1


def test_implied_radii_and_public_constants():
    X, y, _ = draw(20, 4)
    for loss in LOSSES:
        free = ERM(X / 10, y, loss)
        assert free.radius(1) == free.radius(2) == free.L == free.gradient_bound(2) == math.inf
        assert free.mu == 0.0
        one = ERM(X, y, loss, row_bound=RowBound(1, 3.0))
        assert (one.radius(1), one.radius(2)) == (3.0, 3.0)
        two = ERM(X, y, loss, row_bound=[RowBound(2, 3.0)])
        assert (two.radius(1), two.radius(2)) == (6.0, 3.0)
        assert two.gradient_bound(1) == loss.lipschitz * 6.0
        assert loss.smoothness * 9.0 == two.L


def test_norms_of_huge_rows_do_not_overflow():
    X = np.array([[1e200, 1e200], [1e-200, 0.0]])
    problem = ERM(X, np.array([1, 1]), losses.Logistic(), row_bound=RowBound(2, 1.0))
    first = problem.sums(np.zeros(2), np.array([0]), value=False).gradient
    np.testing.assert_allclose(first, [-math.sqrt(0.125)] * 2, rtol=1e-12)


@pytest.mark.parametrize("rule", [None, clipping.Flat(0.3)])
@pytest.mark.parametrize("form", ["dense", "csr", "strict"])
def test_a_row_bound_is_the_same_as_rows_scaled_beforehand(form, rule):
    """For one iterate, and for several on all rows, on shared rows and on separate batches."""
    X, y, W = draw(300, 5, R=3, seed=8)
    X *= np.random.default_rng(8).lognormal(0.0, 2.0, size=(300, 1))
    scale = np.minimum(1.0, 1.0 / np.maximum(np.linalg.norm(X, axis=1), 1e-300))
    bounded = ERM(FORMS[form](X), y, losses.Logistic(), row_bound=RowBound(2, 1.0))
    scaled = ERM(X * scale[:, None], y, losses.Logistic())
    own = [np.arange(7), np.arange(5, 290, 3), np.empty(0, np.int64)]
    for w, rows in [(W[0], None), (W, None), (W, np.arange(1, 250, 2)), (W, own)]:
        found, right = (problem.sums(w, rows, clipping=rule) for problem in (bounded, scaled))
        np.testing.assert_allclose(found.gradient, right.gradient, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(found.value, right.value, rtol=1e-9)
        np.testing.assert_array_equal(found.clipped, right.clipped)


@pytest.mark.parametrize("order", [1, 2])
def test_rounding_leaves_no_row_over_the_bound(order):
    X = np.random.default_rng(9).standard_normal((2000, 7)) * 50.0
    scale = row_scale(X, [RowBound(order, 1.0 / 3.0)])
    for row in X * scale[:, None]:
        exact = sum(Fraction(abs(x)) ** order for x in row.tolist())
        assert exact <= Fraction(1.0 / 3.0) ** order


@pytest.mark.parametrize("form", ["dense", "csr", "strict"])
def test_a_clipped_gradient_that_overflows_counts_as_zero(form):
    """Otherwise the whole sum would be NaN."""
    X = np.array([[1.0, 0.0], [1e300, 0.0], [8e307, 8e307]])
    problem = ERM(FORMS[form](X), np.array([-1.0, 1.0, 1.0]), losses.SquaredError())
    rule = clipping.Flat(0.5)
    for w in (np.array([1e10, 0.0]), np.array([[1e10, 0.0], [1e10, 0.0]])):
        with np.errstate(over="ignore", invalid="ignore"):
            gradient = problem.sums(w, clipping=rule, value=False).gradient
        # The first sample gives .5, the others overflow.
        np.testing.assert_allclose(gradient, np.broadcast_to([0.5, 0.0], w.shape))


# Kinds of input data


def test_read_only_integer_and_one_class_data():
    X = np.array([[1, 2], [3, -4], [0, 0]])
    y = np.array([1, 1, 1])
    for array in (X, y):
        array.flags.writeable = False
    problem = ERM(X, y, losses.Logistic())
    w = np.array([0.1, 0.2])
    w.flags.writeable = False
    assert_sums(problem.sums(w), reference(X.astype(float), y.astype(float), w, problem.loss))
    assert problem.accuracy(w) == pytest.approx(1 / 3)


def test_iterates_and_weights_in_any_layout():
    X, y, W = draw(60, 5, R=5)
    problem = ERM(X, y, losses.Logistic())
    from dpanalysis.kernels.dense import dense_tasks

    lists = [np.arange(7)] * 5
    expected = problem.sums(W, lists), problem.sums(W[0])
    compiled = len(dense_tasks.signatures)
    strided = np.asfortranarray(W)
    k = np.ones(120)[::2]
    found = problem.sums(strided, lists, weights=k), problem.sums(strided[0], weights=k)
    for a, b in zip(expected, found):
        np.testing.assert_array_equal(a.gradient, b.gradient)
    # No kernel is compiled anew for another layout.
    assert len(dense_tasks.signatures) == compiled


def test_data_is_neither_copied_nor_changed():
    X, y, w = draw(100, 5)
    before = X.copy()
    problem = ERM(X, y, losses.Logistic(), row_bound=RowBound(2, 0.1))
    problem.sums(w)
    assert np.shares_memory(problem._X, X)
    np.testing.assert_array_equal(X, before)
    assert X.flags.writeable
    csr = sp.csr_array(X)
    assert np.shares_memory(ERM(csr, y, losses.Logistic())._X.data, csr.data)


def test_one_sample_one_feature():
    problem = ERM([[2.0]], [1.0], losses.SquaredError())
    sums = problem.sums(np.array([3.0]))
    assert (sums.value, sums.gradient[0], sums.clipped) == (12.5, 10.0, 0)


def test_csr_with_duplicates_unsorted_and_empty_rows():
    X = sp.coo_array(([1.0, 2.0, 5.0], ([0, 0, 2], [1, 1, 0])), shape=(3, 2))
    raw = sp.csr_array((np.array([1.0, 2.0, 5.0]), np.array([1, 1, 0]), np.array([0, 2, 2, 3])))
    y, w = np.array([1.0, -1.0, 1.0]), np.array([0.3, -0.2])
    expected = reference(X.toarray(), y, w, losses.Logistic(), 0.4)
    for form in (X, raw):
        problem = ERM(form, y, losses.Logistic())
        assert_sums(problem.sums(w, clipping=clipping.Flat(0.4)), expected)
    assert raw.data.tolist() == [1.0, 2.0, 5.0] and raw.indptr.tolist() == [0, 2, 2, 3]


@pytest.mark.parametrize("form", ["dense", "csr"])
def test_losses_along_a_ray_are_those_of_the_scaled_rows(form):
    """A line search uses them: an unscaled row would exceed their sensitivity."""
    X, y, W = draw(200, 4, R=2)
    norms = np.linalg.norm(X, axis=1)
    inside = X / np.maximum(1.0, norms / np.median(norms))[:, None]
    problem = ERM(FORMS[form](X), y, losses.Logistic(), None, RowBound(2, np.median(norms)))
    expected = losses.Logistic().value(inside @ (W[0] - 0.7 * W[1]), y)
    np.testing.assert_allclose(problem.line_losses(W[0], W[1])(0.7), expected, rtol=1e-12)
    rows = np.array([5, 199, 5, 0])
    np.testing.assert_allclose(
        problem.line_losses(W[0], W[1], rows)(0.7), expected[rows], rtol=1e-12
    )


def test_accuracy():
    X, y, W = draw(500, 6, R=3)
    problem = ERM(X, y, losses.Logistic())
    expected = ((X @ W.T > 0) == (y[:, None] > 0)).mean(axis=0)
    np.testing.assert_allclose(problem.accuracy(W), expected)
    for form in ("csr", "strict"):
        np.testing.assert_allclose(ERM(FORMS[form](X), y, problem.loss).accuracy(W), expected)
    assert problem.accuracy(W[0], X[:10], y[:10]) == ((X[:10] @ W[0] > 0) == (y[:10] > 0)).mean()
    with pytest.raises(ValueError, match="classification"):
        ERM(X, y, losses.SquaredError()).accuracy(W)
    with pytest.raises(ValueError, match="together"):
        problem.accuracy(W, X)
    with pytest.raises(ValueError, match="columns"):
        problem.accuracy(W, X[:, :2], y)


# The minimizer


@pytest.mark.parametrize("form", ["dense", "csr", "strict"])
@pytest.mark.parametrize("loss", SMOOTH, ids=repr)
def test_solve_reaches_machine_precision(form, loss):
    X, y, _ = draw(400, 8)
    problem = ERM(FORMS[form](X), y, loss, regularizers.L2(1e-3))
    w = problem.solve()
    assert w.shape == (8,)
    assert np.linalg.norm(problem.gradient(w)) <= 1e-10
    random = np.random.default_rng(1)
    around = w + 1e-3 * random.standard_normal((20, 8))
    assert (problem.value(around) > problem.value(w)).all()
    w[:] = 0  # a copy
    assert problem.solve().any()


def test_solve_least_squares_with_more_features_than_samples():
    X, y, _ = draw(5, 12)
    w = ERM(X, y, losses.SquaredError()).solve()
    np.testing.assert_allclose(X @ w, y, atol=1e-9)


def test_solve_reaches_a_minimizer_far_from_zero_without_a_warning():
    X, w = draw(50, 3)[0], 1e12 * np.array([3.0, -1.0, 0.5])
    np.testing.assert_allclose(ERM(X, X @ w, losses.SquaredError()).solve(), w, rtol=1e-9)


def test_solve_warns_where_there_is_no_minimizer():
    X = np.array([[1.0, 0.3], [2.0, -0.1], [-1.0, 0.5]])
    with pytest.warns(RuntimeWarning, match="no minimizer reached: the gradient's norm is"):
        ERM(X, np.array([1, 1, -1]), losses.Logistic()).solve()


UNBOUNDED = {
    "separable": ([[1.0, 0.3], [2.0, -0.1], [-1.0, 0.5]], [1, 1, -1]),
    "separable, found exactly": ([[1e3], [-1e3]], [1, -1]),  # the gradient is 0 after one step
    "separable, hardly": ([[1e-3], [-1e-3]], [1, -1]),
    "one class": ([[1.0], [2.0], [0.5]], [1, 1, 1]),
    "one sample": ([[1.0, 2.0]], [-1]),
    "more features than samples": (np.eye(3, 5) + 0.1, [1, -1, 1]),
    "separable in one direction": (
        [[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 30.0]],
        [1, 1, -1, 1],
    ),
}


@pytest.mark.parametrize("name", UNBOUNDED)
@pytest.mark.parametrize("penalty", [None, regularizers.L2(0.0)], ids=repr)
def test_solve_warns_once_where_the_infimum_is_not_attained(name, penalty):
    X, y = map(np.array, UNBOUNDED[name])
    for problem in (
        ERM(X, y, losses.Logistic(), penalty),
        Softmax(X, (y + 1) // 2, n_classes=2, regularizer=penalty),
    ):
        with pytest.warns(RuntimeWarning, match="no minimizer reached") as caught:
            problem.solve()
        assert len(caught) == 1 and caught[0].filename == __file__
    # A minimizer exists with a penalty, and for a loss that vanishes at a finite margin.
    ERM(X, y, losses.Logistic(), regularizers.L2(1e-3)).solve()
    rounded = ERM(X, y, losses.HuberizedHinge())
    assert np.linalg.norm(rounded.gradient(rounded.solve())) < 1e-10


@pytest.mark.parametrize(
    ("X", "y"),
    [
        ([[1.0], [-2.0]], [1, 1]),  # one class, not all on one side of zero
        ([[0.0, 0.0]], [-1]),  # one sample without features: any w will do
        ([[1.0, 0.0], [1.0, 0.0], [0.5, 0.0]], [1, -1, 1]),  # a feature that is always 0
    ],
)
def test_solve_does_not_warn_where_the_infimum_is_attained(X, y):
    problem = ERM(np.array(X), np.array(y), losses.Logistic())
    assert np.linalg.norm(problem.gradient(problem.solve())) < 1e-10


@pytest.mark.parametrize("form", ["dense", "csr", "strict"])
def test_losses_that_are_not_smooth_have_no_curvature(form):
    """They have no smoothness constant, Hessian or Newton step; all else works."""
    X, y, w = draw(60, 4)
    problem = ERM(FORMS[form](X), y, losses.Hinge(), regularizers.L2(0.1), RowBound(2, 1.0))
    assert (problem.L, problem.mu, problem.gradient_bound(2)) == (math.inf, 0.1, 1.0)
    for call in (problem.hessian, lambda w: problem.hvp(w, w), lambda w: problem.solve()):
        with pytest.raises(ValueError, match=r"(hessian|hvp|solve) needs.*Hinge\(\).*Huberized"):
            call(w)
    h = 1e-6
    slope = [(problem.value(w + e) - problem.value(w - e)) / (2 * h) for e in h * np.eye(4)]
    np.testing.assert_allclose(problem.gradient(w), slope, atol=1e-8)
    assert 0.0 <= problem.accuracy(w) <= 1.0


@pytest.mark.parametrize("loss", [losses.Hinge(), losses.HuberizedHinge(0.5)], ids=repr)
@pytest.mark.parametrize("form", ["dense", "float32", "csr", "fortran", "strict"])
def test_hinge_losses_at_extremes(form, loss):
    """Margins of 1e3 and beyond, one class, one sample, one feature, read-only arrays."""
    X = np.array([[-1e3], [1e3], [0.0], [1e30], [-1e30]])
    for y in (np.ones(5), -np.ones(5)):
        X.flags.writeable = y.flags.writeable = False
        problem = ERM(FORMS[form](X), y, loss)
        for w in (np.ones(1), np.zeros(1), -np.ones(1)):
            expected = reference(X, y, w, loss)
            assert_sums(problem.sums(w), expected, 1e-6 if form == "float32" else 1e-12)
    one = ERM(FORMS[form](X[:1]), y[:1], loss).sums(np.array([-2.0]))
    assert (one.value, one.gradient[0], one.clipped) == (2001.0, -1e3, 0)


# Bad input


def bad_data():
    X, y, _ = draw(10, 3)
    nan, inf = X.copy(), X.copy()
    nan[4, 1], inf[2, 0] = np.nan, -np.inf
    bad_y = y.copy()
    bad_y[3] = np.nan
    infinite_y = y.copy()
    infinite_y[3] = np.inf
    return {
        "nan in X": (nan, y, "X must be finite"),
        "inf in X": (inf, y, "X must be finite"),
        "nan in sparse X": (sp.csr_array(nan), y, "X must be finite"),
        "nan in strict X": (array_api_strict.asarray(nan), y, "X must be finite"),
        "nan in y": (X, bad_y, "y must be finite"),
        "inf in y": (X, infinite_y, "y must be finite"),
        "labels 0 and 1": (X, (y + 1) / 2, r"labels -1 and \+1 only, got 0.0.*2 \* y - 1"),
        "label 2": (X, 2 * y, "labels"),
        "no samples": (X[:0], y[:0], "n, d >= 1"),
        "no features": (X[:, :0], y, "n, d >= 1"),
        "one-dimensional X": (X[0], y[:3], r"X must have shape \(n, d\)"),
        "scalar X": (1.0, y, r"X must have shape \(n, d\)"),
        "fewer labels": (X, y[:-1], r"y must have shape \(10,\)"),
        "labels in a column": (X, y[:, None], r"y must have shape \(10,\)"),
    }


@pytest.mark.parametrize("case", bad_data())
def test_bad_data_is_refused(case):
    X, y, message = bad_data()[case]
    with pytest.raises(ValueError, match=message):
        ERM(X, y, losses.Logistic())


def test_sparse_data_with_indices_out_of_range_is_refused():
    X = sp.csr_array(np.eye(3))
    X.indices[1] = 5
    with pytest.raises(ValueError, match=r"ind(ices|ex)"):
        ERM(X, np.ones(3), losses.Logistic())


@pytest.mark.parametrize("X", [np.array([["a"]]), np.array([[1j]]), np.array([[None]])])
def test_data_that_is_not_real_is_refused(X):
    with pytest.raises(TypeError, match="X must hold real numbers"):
        ERM(X, np.ones(1), losses.Logistic())
    with pytest.raises(TypeError, match="y must hold real numbers"):
        ERM(np.ones((1, 1)), X[0], losses.Logistic())


@pytest.mark.parametrize("X", [[[1.0, 2.0], [3.0]], sp.csr_array(np.array([[1j], [0.0]]))])
def test_ragged_or_complex_tables_are_refused(X):
    with pytest.raises(TypeError, match="X must"):
        ERM(X, np.ones(2), losses.Logistic())


@pytest.mark.parametrize("form", ["dense", "csr"])
def test_pickled_and_deep_copied_problems_are_the_same(form):
    X, y, w = draw(10, 3)
    problem = ERM(FORMS[form](X), y, losses.Logistic(), regularizers.L2(0.1), RowBound(2, 1.0))
    value = problem.value(w)  # the kernels exist now, and are not copied
    for twin in (pickle.loads(pickle.dumps(problem)), copy.deepcopy(problem)):
        assert twin.value(w) == value
        assert (twin.L, twin.mu) == (problem.L, problem.mu)


@pytest.mark.parametrize("form", ["dense", "csr", "strict"])
def test_bad_iterates_are_refused(form):
    X, y, w = draw(10, 3)
    problem = ERM(FORMS[form](X), y, losses.Logistic())
    wrong = [np.zeros(2), np.zeros((2, 4)), np.zeros((1, 2, 3)), np.float64(1.0), np.zeros((0, 3))]
    for call in (problem.sums, problem.value, problem.gradient, problem.hessian, problem.accuracy):
        for shape in wrong:
            with pytest.raises(ValueError, match="w must have shape"):
                call(shape)
        for value in (np.nan, np.inf):
            with pytest.raises(ValueError, match="w must be finite"):
                call(np.array([0.0, value, 0.0]))
        for value in ("zero", None, [*w.tolist(), "a"]):
            with pytest.raises(TypeError, match="w must be an array of real numbers"):
                call(value)
    with pytest.raises(ValueError, match="v must have the shape of w"):
        problem.hvp(w, np.zeros((2, 3)))
    for rule in (1.0, clipping.Flat):
        with pytest.raises(TypeError, match="clipping must be a rule"):
            problem.clipped_gradient_sum(w, rule)


@pytest.mark.parametrize("form", ["dense", "csr", "strict"])
def test_bad_rows_and_weights_are_refused(form):
    X, y, w = draw(10, 3)
    problem = ERM(FORMS[form](X), y, losses.Logistic())
    for rows in (np.array([0, 10]), np.array([-1]), np.array([2**62])):
        with pytest.raises(ValueError, match=r"rows must lie in \[0, 9\]"):
            problem.sums(w, rows)
    for rows in (np.array([0.5]), np.zeros((2, 2), int), np.ones(10, bool)):
        with pytest.raises(TypeError, match="rows must be"):
            problem.sums(w, rows)
    with pytest.raises(ValueError, match="rows must list 2"):
        problem.sums(np.stack([w, w]), [np.array([0])])
    for weights in (np.ones(9), -np.ones(10), np.full(10, np.nan)):
        with pytest.raises(ValueError, match="weights must"):
            problem.sums(w, weights=weights)


def test_bad_parts_are_refused():
    X, y, _ = draw(10, 3)
    for loss in (None, "logistic", losses.Logistic):
        with pytest.raises(TypeError, match="loss must be"):
            ERM(X, y, loss)
    for regularizer in (0.1, regularizers.L2):
        with pytest.raises(TypeError, match="regularizer must be"):
            ERM(X, y, losses.Logistic(), regularizer)
    with pytest.raises(TypeError, match=r"without L, gradient$"):  # a user's penalty, unfinished
        ERM(X, y, losses.Logistic(), SimpleNamespace(mu=0.0, value=np.sum))
    for row_bound in (1.0, [1.0], "L2"):
        with pytest.raises(TypeError, match="row_bound must be"):
            ERM(X, y, losses.Logistic(), row_bound=row_bound)
    for arguments in ((3, 1.0), (2, 0.0), (2, math.inf), (2, math.nan), (1, 1.0, "drop")):
        with pytest.raises(ValueError, match=r"order|radius|enforce"):
            RowBound(*arguments)


@pytest.mark.slow
def test_problems_import_no_numba_until_used():
    code = (
        "import sys, numpy as np; from dpanalysis import ERM, losses;"
        "p = ERM(np.eye(2), [1, -1], losses.Logistic()); assert 'numba' not in sys.modules;"
        "p.value(np.zeros(2)); assert 'numba' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(("d", "most"), [(124, 1 << 18), (7, 700), (7, 50)])
def test_blocks_of_rows_are_whole_portions_of_a_product_and_no_row_is_left_out(d, most):
    X = np.arange(5_000.0 * d).reshape(5_000, d)
    blocks = list(row_blocks(X, most))
    np.testing.assert_array_equal(np.concatenate([block for *_, block in blocks]), X)
    sizes = [hi - lo for lo, hi, _ in blocks]
    assert max(sizes) <= max(1, most // d)
    assert all(size % WHOLE == 0 for size in sizes[:-1]) or most // d < WHOLE


def test_the_type_of_one_record_does_not_change_the_others():
    """A list of single-precision rows with one row of floats used to be double precision."""
    rows = [list(row) for row in np.eye(3, dtype=np.float32)]
    arrays = [*np.eye(3, dtype=np.float32)]
    for listed in (rows, [[1.0, 0.0, 0.0], *rows[1:]], arrays):
        assert ERM(listed, [1, -1, 1], losses.Logistic())._X.dtype == np.float64
        assert MLP(listed, [0, 1, 1], (2,), n_classes=2)._X.dtype == np.float64
    assert ERM(np.eye(3, dtype=np.float32), [1, -1, 1], losses.Logistic())._X.itemsize == 4


def test_rows_of_jax_are_refused():
    """Its arrays cannot be assigned to: every sum over their records used to be 0."""
    jnp = pytest.importorskip("jax.numpy", reason="JAX is not installed")
    with pytest.raises(TypeError, match=r"X must be an array whose entries .* numpy.asarray"):
        ERM(jnp.ones((3, 2)), [1, -1, 1], losses.Logistic())


def test_a_data_frame_of_single_precision_keeps_it():
    table = pytest.importorskip("pandas").DataFrame(np.eye(3, dtype=np.float32))
    assert ERM(table, [1, -1, 1], losses.Logistic())._X.dtype == np.float32
    assert ERM(table.astype(float), [1, -1, 1], losses.Logistic())._X.dtype == np.float64


@pytest.mark.parametrize("form", [np.array, sp.csr_array])
@pytest.mark.parametrize("order", [1, 2, math.inf, (Block(1, 1, 1.0), Block(2, math.inf, 1.0))])
def test_no_setting_of_numpy_tells_of_a_small_or_a_large_entry(form, order):
    """Under np.seterr(all="raise") a row within its bound, or cut to it, ended the construction."""
    for entries in ([1.0, 1e-200, 0.0], [1e-310, 1e-320, 1e-200], [1e307, 1.0, -1e-310]):
        X = np.full((9, 3), 0.1)
        X[4] = entries
        with np.errstate(all="raise"):
            problem = ERM(form(X), np.ones(9), losses.Logistic(), row_bound=RowBound(order, 1.0))
            problem.check_private()
            problem.gradient_sum(np.ones((1, 3)), None, clipping.Flat(1.0))


def test_more_rows_than_the_nominal_size_bend_a_perturbed_objective_more():
    problem = ERM(np.ones((8, 1)), np.ones(8), losses.SquaredError(), row_bound=RowBound(2, 1.0))
    for size, smoothness in ((4.0, 2.5), (8.0, 1.5), (16.0, 1.5)):
        assert PerturbedObjective(problem, np.zeros(1), 0.5, size).smoothness == smoothness
