"""No record exceeds its bound: overflow, tiny multipliers, data changed after the check."""

import math
import pickle
import threading
import warnings
from fractions import Fraction
from unittest import mock

import array_api_strict
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import example, given, settings
from hypothesis import strategies as st

import dpanalysis as dpa
from dpanalysis import ERM, RowBound, clipping, losses
from dpanalysis.kernels import array_api, csr, dense
from dpanalysis.privacy.facts import Block
from dpanalysis.problems import MLP, Softmax
from dpanalysis.problems.rows import checks, memory
from dpanalysis.problems.rows.checks import check_unchanged, recheck_slack, row_norms, row_scale

LOGISTIC = losses.Logistic()
HUGE = 1.5e308


def mapped(array, path):
    array.tofile(path)
    return np.memmap(path, array.dtype, "r", shape=array.shape)


# Rows whose norm overflows


@pytest.mark.parametrize("kind", ["memory", "csr", "mapped", "blocks", "dask", "softmax", "mlp"])
def test_a_row_whose_norm_overflows_is_refused_by_name(kind, tmp_path, monkeypatch):
    X, y = np.ones((9, 3)), np.array([1.0, -1.0, 1.0] * 3)

    def build(X):
        if kind == "csr":
            return ERM(sp.csr_array(X), y, LOGISTIC)
        if kind == "dask":
            da = pytest.importorskip("dask.array", reason="no dask: dpanalysis-toolkit[dask]")
            return ERM(da.from_array(X, chunks=(4, 3)), y, LOGISTIC)
        if kind == "softmax":
            return Softmax(X, (y > 0).astype(int), 2)
        if kind == "mlp":
            return MLP(X, (y > 0).astype(int), (2,), 2)
        return ERM(X if kind == "memory" else mapped(X, tmp_path / "X"), y, LOGISTIC)

    if kind == "blocks":
        monkeypatch.setattr("dpanalysis.problems.rows.mapped._ROWS_KEPT", 0)
    for row in ([HUGE, 0.0, -HUGE], [HUGE / 2.0] * 3):
        X[4] = row
        with pytest.raises(ValueError, match=r"X must have rows whose norms.*1 rows.*\[4\]"):
            build(X)
    X[4] = HUGE / 4.0, HUGE / 4.0, 0.0  # large, but without overflow
    build(X)


def test_curvature_and_losses_of_a_record_that_overflows_add_exactly_zero():
    """A prediction of NaN must neither make the sums NaN nor raise a warning."""
    X, y = np.array([[0.5, 0.25], [1e200, -1e200]]), np.array([1.0, -1.0])
    w = np.array([1e150, 1e150])  # the products overflow, and their sum is NaN
    for data in (X, sp.csr_array(X)):
        problem = ERM(data, y, LOGISTIC)
        alone = ERM(X[:1], y[:1], LOGISTIC)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with np.errstate(all="raise"):
                np.testing.assert_array_equal(problem.hessian_sum(w), alone.hessian_sum(w))
                np.testing.assert_array_equal(problem.hvp_sum(w, w), alone.hvp_sum(w, w))
                losses_there = problem.line_losses(w, w)(0.5)
        assert np.isfinite(losses_there[0])


def test_a_network_that_overflows_gives_a_finite_sum_without_a_warning():
    X, y = np.array([[0.5, 0.25], [1e30, -1e30]], np.float32), np.array([0, 1])
    for problem in (Softmax(X, y, 2), MLP(X, y, (3,), 2)):
        w = np.full(problem.d, 1e20)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with np.errstate(all="raise"):
                total = problem.sums(w, clipping=clipping.Flat(1.0), value=False)
                problem.line_losses(w, w)(0.5)
        assert np.isfinite(total.gradient).all()


# Multipliers


def exact_norm_is_within(row, scale, order, radius):
    """Whether the real number ||scale row|| is at most radius, without any rounding."""
    entries = [abs(Fraction(float(x)) * Fraction(float(scale))) for x in row]
    if order == 1:
        return sum(entries) <= Fraction(radius)
    return sum(x * x for x in entries) <= Fraction(radius) ** 2


@given(
    row=st.lists(st.floats(-1e308, 1e308), min_size=1, max_size=6),
    dtype=st.sampled_from([np.float32, np.float64]),
    order=st.sampled_from([1, 2]),
    radius=st.floats(1e-12, 1e12),
)
@example([1e308], np.float64, 2, 1e-12)
@example([3e38, 3e38], np.float32, 2, 1.0)
@example([5e-324, 1e-310], np.float64, 1, 1e-12)
def test_a_multiplier_never_leaves_a_row_over_the_bound(row, dtype, order, radius):
    with np.errstate(over="ignore", under="ignore"):
        X = np.array([row], dtype)
    X = np.where(np.isfinite(X), X, 0.5 * np.finfo(dtype).max).astype(dtype) / len(row)
    scale = row_scale(X, [RowBound(order, radius)])
    scale = 1.0 if scale is None else scale[0]
    assert scale == 0.0 or scale >= np.finfo(dtype).tiny
    assert exact_norm_is_within(X[0], scale, order, radius)
    # What is computed in the dtype of the data stays within a few roundings of the bound.
    scaled = (X[0] * dtype(scale)).astype(np.float64)
    size = row_norms(scaled[None, :], order)[0]
    assert size <= radius * (1.0 + 8.0 * np.finfo(dtype).eps)


@given(rows=st.lists(st.tuples(*[st.floats(-9.0, 9.0)] * 3), min_size=1, max_size=5))
def test_rows_of_several_bounds_are_scaled_inside_each_in_any_order(rows):
    bounds = [RowBound(1, 2.0), RowBound(2, 1.5), RowBound(math.inf, 1.0)]
    X = np.array(rows)
    for ordered in (bounds, bounds[::-1]):
        scale = row_scale(X, ordered)
        scaled = X if scale is None else X * scale[:, None]
        for bound in ordered:
            assert (row_norms(scaled, bound.order) <= bound.radius * (1.0 + 1e-12)).all()


@pytest.mark.parametrize("huge", [3e38, 1e33, 1e25])
def test_a_huge_row_in_single_precision_keeps_the_bound(huge):
    """A multiplier of 3e-39 is subnormal there: rounded up it gave 1.95 times the bound."""
    X = np.array([[huge, 0.0], [0.5, 0.5]], np.float32)
    radius = 1e-6
    problem = Softmax(X, np.array([0, 1]), 2, row_bound=RowBound(2, radius))
    for label in (0, 1):
        w = np.zeros(4)
        gradient = problem.sums(w, np.array([0])).gradient
        assert np.linalg.norm(gradient) <= problem.gradient_bound(2), label


# Data that are changed after they were checked


def in_memory(X, bound, kind):
    y = np.where(np.arange(X.shape[0]) % 2, 1.0, -1.0)
    if kind == "network":
        return MLP(X, (y > 0).astype(int), (3,), 2, row_bound=bound)
    return ERM(X, y, LOGISTIC, dpa.regularizers.L2(0.1), row_bound=bound)


@pytest.mark.parametrize("kind", ["dense", "many", "csr", "mapped", "network"])
@pytest.mark.parametrize("bound", [RowBound(2, 1.0), RowBound(1, 1.0), None])
@pytest.mark.parametrize("change", [1e3, math.nan, math.inf])
def test_rows_that_have_grown_are_refused_before_anything_is_spent(
    kind, bound, change, tmp_path, monkeypatch
):
    if kind == "many":
        monkeypatch.setattr(checks, "_MANY", 1)  # by the kernel
    rng = np.random.default_rng(3)
    X = rng.uniform(-1.0, 1.0, (40, 3))
    data = sp.csr_array(X) if kind == "csr" else X
    if kind == "mapped":
        data = mapped(X, tmp_path / "X")
        edit = np.memmap(tmp_path / "X", X.dtype, "r+", shape=X.shape)
    problem = in_memory(data, bound, kind)
    rule = clipping.Flat(0.5)
    method = dpa.methods.GradientDescent(0.1, 2, mechanism="gaussian", clipping=rule)
    guard = dpa.Budget(1.0, 1e-5)
    dpa.minimize(problem, method, guard, rng=0)  # keeps the norms
    problem.check_private()
    if kind == "csr":
        data.data[3 * 7] = change
    else:
        (edit if kind == "mapped" else X)[7, 0] = change
    with pytest.raises(ValueError, match=r"X has been changed.*row 7 "):
        dpa.minimize(problem, method, guard, rng=0)
    dpa.minimize(in_memory(np.full((9, 3), 0.1), bound, "dense"), method, guard, rng=0)


@given(
    n=st.integers(1, 6),
    d=st.integers(1, 5),
    order=st.sampled_from([1, 2]),
    dtype=st.sampled_from([np.float32, np.float64]),
    kind=st.sampled_from(["dense", "many", "csr", "strict"]),
    exponent=st.integers(-320, 307),
    seed=st.integers(0, 2**20),
)
@example(6, 5, 1, np.float32, "dense", 9, 0)
@example(6, 5, 2, np.float64, "dense", -200, 0)
@example(6, 5, 1, np.float32, "strict", 0, 0)
def test_data_that_nobody_changed_pass_and_grown_ones_do_not(
    n, d, order, dtype, kind, exponent, seed
):
    """Rows of any size, within the bound, over it and at it."""
    rng = np.random.default_rng(seed)
    with np.errstate(all="ignore"):
        X = (
            rng.normal(size=(n, d)) * 10.0 ** min(exponent, 30 if dtype == np.float32 else 306)
        ).astype(dtype)
    bounds = [RowBound(order, float(rng.choice([1.0, 1e-3, 1e3])))]
    form = {"csr": sp.csr_array, "strict": array_api_strict.asarray}.get(kind, np.asarray)
    data = form(X.copy())
    scale = row_scale(data, bounds)
    kept = row_norms(data, 2) * (1.0 if scale is None else scale)
    with mock.patch.object(checks, "_MANY", 1 if kind == "many" else 1000):
        for norms in (None, kept):
            check_unchanged(data, scale, bounds, norms)
        i = int(rng.integers(n))
        if kept[i] > 0.0:
            X[i] *= 1.5
            with pytest.raises(ValueError, match=f"row {i} had"):
                check_unchanged(form(X), scale, bounds, kept)


def test_what_may_have_grown_unseen_is_public_and_small():
    assert recheck_slack(20) < 1e-12 and recheck_slack(100_000) < 1e-10


def test_indices_that_are_changed_are_refused():
    """Kernels do not check them; duplicate entries would add up to more than the stored norm."""
    X = sp.csr_array(np.array([[0.6, 0.0, 0.8], [0.0, 1.0, 0.0]]))
    problem = ERM(X, [1.0, -1.0], LOGISTIC, row_bound=RowBound(2, 1.0))
    problem.check_private()
    kept = X.indices.copy()
    for place, column in [(1, 0), (1, 7), (0, 2)]:
        X.indices[place] = column
        with pytest.raises(ValueError, match=r"X has been changed.*indices"):
            problem.check_private()
        X.indices[:] = kept
    problem.check_private()


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_norms_of_blocks_leave_a_sparse_matrix_as_it_is(dtype):
    X = sp.csr_array(np.array([[0.6, 0.3, 0.8], [0.2, 1.0, 0.0]]))
    X.indices, X.indptr = X.indices.astype(dtype), X.indptr.astype(dtype)
    before = X.copy()
    np.testing.assert_allclose(row_norms(X, (Block(2, 1, 1.0), Block(1, np.inf, 1.0))), [0.9, 1.2])
    for name in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(X, name), getattr(before, name))


def test_labels_are_copies():
    X, y = np.ones((3, 1)), np.array([1.0, -1.0, 1.0])
    for problem in (ERM(X, y, LOGISTIC), Softmax(X, (y > 0).astype(int), 2)):
        before = problem.value(np.ones(problem.d))
        y[:] = 1e9
        assert problem.value(np.ones(problem.d)) == before
        y[:] = [1.0, -1.0, 1.0]


@pytest.mark.filterwarnings("ignore:.*shape:DeprecationWarning")
@pytest.mark.parametrize("kind", [ERM, Softmax])
@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_rows_keep_the_shape_that_was_checked(library, kind):
    """As ten rows of one number, a record would have ten terms, with labels beyond the last one."""
    draws = np.random.default_rng(0).uniform(-0.1, 0.1, (300, 10))
    y = np.where(draws[:, 0] > 0.0, 1.0, -1.0)

    def build(X):
        return ERM(X, y, LOGISTIC, None, RowBound()) if kind is ERM else Softmax(X, y > 0.0, 2)

    X = np.array(draws) if library == "numpy" else pytest.importorskip("torch").tensor(draws)
    problem, before = build(X), build(draws)
    if library == "numpy":
        X.shape = (3000, 1)
    else:
        X.t_()
    problem.check_private()
    w, rule = np.linspace(-1.0, 1.0, before.d)[None, :], clipping.Flat(0.01)
    found, expected = (np.asarray(p.gradient_sum(w, None, rule)) for p in (problem, before))
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-14)


def test_what_the_data_were_prepared_for_cannot_be_changed():
    """A smaller bound, stated afterwards, would mean less noise for the same rows."""
    X, y = np.full((3, 2), 0.5), np.array([1.0, -1.0, 1.0])
    bound = RowBound(2, 1.0)
    erm = ERM(X, y, LOGISTIC, dpa.regularizers.L2(0.1), bound)
    network = MLP(X, (y > 0).astype(int), (2,), row_bound=bound)
    softmax = Softmax(X, (y > 0).astype(int), 2, row_bound=bound)
    for problem, names in [
        (erm, ("n", "d", "loss", "regularizer", "row_bounds", "_size")),
        (softmax, ("n", "d", "loss", "regularizer", "row_bounds", "_size", "n_classes")),
        (
            network,
            ("n", "d", "regularizer", "row_bounds", "_size", "n_classes", "activation", "bias"),
        ),
    ]:
        before = problem.facts("replace_one")
        for name in names:
            with pytest.raises(AttributeError, match=f"{name} cannot be changed"):
                setattr(problem, name, getattr(problem, name))
        assert pickle.loads(pickle.dumps(problem)).facts("replace_one") == before


@pytest.mark.parametrize("name", ["lipschitz", "smoothness", "weak_growth"])
def test_the_constants_of_cross_entropy_cannot_be_changed(name):
    """The noise of a softmax regression is computed from them."""
    problem = Softmax(np.eye(2), [0, 1], 2, row_bound=RowBound(2, 1.0))
    with pytest.raises(AttributeError):
        setattr(problem.loss, name, 0.01)
    assert problem.gradient_bound(2) == pytest.approx(2.0**0.5)


# Defaults that would be taken from private data


@pytest.mark.slow
@pytest.mark.parametrize("network", [Softmax, MLP])
def test_classes_counted_in_the_private_labels_are_refused_in_a_private_run(network):
    X, y = np.eye(4), np.array([0, 1, 2, 1])
    method = dpa.methods.SGD(0.1, 2, dpa.Poisson(0.5), clipping.Flat(1.0))
    budget = dpa.Budget(1.0, 1e-5, "add_or_remove_one")
    problem, told = network(X, y), network(X, y, n_classes=3)
    with pytest.raises(ValueError, match="n_classes must be given for a private run"):
        dpa.minimize(problem, method, budget, rng=0)
    guard = dpa.privacy.Filter(budget)
    search = dpa.methods.LineSearchSGD(
        dpa.Poisson(0.5), step_size=1.0, iterations=1, clip_norm=1.0, clip_loss=1.0
    )
    with pytest.raises(ValueError, match="n_classes"):
        dpa.minimize(problem, search, guard, rng=0)
    assert guard.spent == 0.0
    dpa.minimize(problem, method, rng=0)  # without a guarantee
    assert dpa.minimize(told, method, budget, rng=0).private


# Data that change in the middle of a run

FORMS = ["dense", "float32", "csr", "in place", "strict", "own loss", "own rule", "softmax", "mlp"]


class Same(losses.Logistic):
    """A user-defined loss, evaluated by array operations."""


class Half(clipping.Clipping):
    clip_norm = 0.5

    def wanted(self, norms, losses):
        return 1.0 / (1.0 + norms)


def changeable(form, n, d, bound, rng, path):
    """Return a problem, and a function that puts numbers into a row of its data."""
    X, y = rng.uniform(-1.0, 1.0, (n, d)), rng.choice([-1.0, 1.0], n)
    X[rng.random(n) < 0.2] = 0.0
    if form == "float32":
        X = X.astype(np.float32)
    data = held = X
    if form == "csr":
        X[X == 0.0] = 1e-3
        data = sp.csr_array(X)
        held = data.data.reshape(n, d)
    elif form == "in place":
        data = mapped(X, path)
        held = np.memmap(path, X.dtype, "r+", shape=X.shape)
    elif form == "strict":
        data = held = array_api_strict.asarray(X)
        y = array_api_strict.asarray(y)
    if form in ("softmax", "mlp"):
        labels = (y > 0).astype(int)
        network = MLP if form == "mlp" else Softmax
        problem = network(X, labels, *([(3,)] if form == "mlp" else []), 2, row_bound=bound)
    else:
        problem = ERM(data, y, Same() if form == "own loss" else LOGISTIC, row_bound=bound)

    def change(row, number):
        with np.errstate(over="ignore"):
            held[row, :] = number

    return problem, change


@pytest.mark.parametrize("replicates", [1, 3])
@pytest.mark.parametrize("form", ["dense", "float32", "csr"])
@pytest.mark.parametrize("bound", [RowBound(2, 1.0), RowBound(1, 1.0)])
def test_rows_that_grow_add_nothing_to_the_sum_of_any_kernel(form, replicates, bound, tmp_path):
    rng = np.random.default_rng(0)
    problem, change = changeable(form, 300, 3, bound, rng, tmp_path / "X")
    w = rng.normal(size=(replicates, 3))
    others = problem.gradient_sum(w, [np.delete(np.arange(300), [7, 290])] * replicates)
    for number in (0.8, 5.0, np.nan):  # norms from just beyond the bound on
        for row in (7, 290):
            change(row, number)
        np.testing.assert_allclose(problem.gradient_sum(w), others, rtol=1e-6, atol=1e-6)


def test_losses_and_clipped_samples_count_once_where_a_row_has_grown(tmp_path):
    """A task is repeated with care then; its first sums are thrown away."""
    rng = np.random.default_rng(0)
    problem, change = changeable("csr", 300, 3, RowBound(2, 1.0), rng, tmp_path)
    W, rule = rng.normal(size=(3, 3)), clipping.Flat(0.3)
    problem.sums(W, clipping=rule)  # norms are kept from here on
    change(7, 5.0)
    for w in (W, W[:1]):
        found = problem.sums(w, None, rule)
        others = problem.sums(w, np.delete(np.arange(300), 7), rule).clipped
        assert others.all() and np.isin(found.clipped - others, [0, 1]).all()
        value = problem.sums(w, None, rule, gradient=False).value
        np.testing.assert_allclose(found.value, value, rtol=1e-12)


@pytest.mark.parametrize("replicates", [1, 3])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("order", [1, 2])
def test_a_row_that_grows_in_any_one_entry_adds_nothing(order, sparse, replicates):
    """Kernels add up the entries of a row in several sums, each of which must count."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0.1, 0.2, (40, 11))  # norms below .67 and 2.2
    w = rng.normal(size=(replicates, 11))
    data = sp.csr_array(X) if sparse else X
    problem = ERM(data, np.sign(X[:, 0] - 0.15), LOGISTIC, row_bound=RowBound(order, 2.5))
    others = problem.gradient_sum(w, [np.delete(np.arange(40), 7)] * replicates)
    held = data.data.reshape(40, 11) if sparse else X
    for j in range(11):
        held[7, j] += 2.6
        np.testing.assert_allclose(problem.gradient_sum(w), others, rtol=1e-12)
        held[7, j] -= 2.6


@pytest.mark.parametrize("form", ["dense", "csr", "own loss"])
@pytest.mark.parametrize(
    ("order", "number"), [(np.inf, 1.1), ((Block(2, 1, 1.0), Block(1, np.inf, 1.0)), 0.8)]
)
def test_a_row_that_grows_beyond_a_bound_on_columns_adds_nothing(form, order, number, tmp_path):
    """Beyond what the bound implies in L2, or in L1 alone."""
    rng = np.random.default_rng(0)
    problem, change = changeable(form, 40, 3, RowBound(order, 1.0), rng, tmp_path / "X")
    w = rng.normal(size=(1, 3))
    others = problem.gradient_sum(w, [np.delete(np.arange(40), 7)])
    scale = problem._data.scale
    change(7, number if scale is None else number / scale[7])
    np.testing.assert_allclose(problem.gradient_sum(w), others, rtol=1e-9)


@pytest.mark.parametrize("replicates", [1, 3])
@pytest.mark.parametrize("form", [form for form in FORMS if form != "mlp"])
def test_a_row_that_grows_before_the_first_clipped_sum_adds_nothing(form, replicates, tmp_path):
    """Its norm was taken for clipping after it had grown: it moved a sum by 12 times the charge."""
    rule = Half() if form == "own rule" else clipping.Flat(100.0)
    for number in (0.8, 50.0):
        problem, change = changeable(
            form, 40, 3, RowBound(2, 1.0), np.random.default_rng(0), tmp_path / "X"
        )
        w = np.random.default_rng(1).normal(size=(replicates, problem.d))
        change(7, number)
        found = problem.gradient_sum(w, None, rule)
        others = problem.gradient_sum(w, [np.delete(np.arange(40), 7)] * replicates, rule)
        np.testing.assert_allclose(found, others, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("tiny", [5e-324, 1e-323, 3e-310])
def test_a_subnormal_row_is_clipped_by_a_norm_that_is_not_too_small(tiny, sparse):
    """Rounded down, the norm let a gradient of 1.41 times the clip norm pass."""
    X, rule = np.array([[tiny, tiny], [0.0, 0.0]]), clipping.Flat(1e308 * tiny / 2.0)
    problem = ERM(sp.csr_array(X) if sparse else X, [1e308, 0.0], losses.SquaredError(), size=2)
    for replicates in (1, 3):
        gradients = problem.gradient_sum(np.zeros((replicates, 2)), None, rule) / rule.clip_norm
        assert (np.linalg.norm(gradients, axis=1) <= 1.0 + 1e-9).all()
        assert (np.abs(gradients) > 0.3).all()


@pytest.mark.parametrize(
    ("order", "radius"),
    [
        *((order, radius) for order in (1, 2, np.inf) for radius in (5e-324, 1e-300)),
        ((Block(2, 1, 1.0), Block(1, np.inf, 1e-300)), 1.0),
    ],
)
def test_a_bound_too_small_for_accurate_norms_is_refused(order, radius):
    with pytest.raises(ValueError, match=r"radius.*1\.02613e-289"):
        RowBound(order, radius)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(
    ("size", "radius", "times"), [(1e-200, 1e-200, 1e59), (1e-50, 1e-250, 1e5)]
)
def test_a_row_of_a_tiny_bound_that_grows_adds_nothing_to_a_clipped_sum(
    size, radius, times, sparse
):
    """Its square, or that of its multiple, is 0 before and after; its term is not."""
    X = size * np.eye(2)
    data = sp.csr_array(X) if sparse else X
    problem = ERM(data, [1.0, 1.0], LOGISTIC, row_bound=RowBound(2, radius))
    w, rule = np.zeros((1, 2)), clipping.Flat(1.0)
    problem.gradient_sum(w, None, rule)
    held = data.data if sparse else X
    held *= times
    np.testing.assert_array_equal(problem.gradient_sum(w, None, rule), np.zeros((1, 2)))


@pytest.mark.parametrize("sparse", [False, True])
def test_a_multiplier_times_a_prediction_that_overflows_raises_no_warning(sparse):
    X = np.array([[0.5, 0.0], [1e100, 0.0]])
    data = sp.csr_array(X) if sparse else X
    problem = ERM(data, [1.0, 1.0], LOGISTIC, row_bound=RowBound(2, 1e-280))
    w = np.array([1e250, 0.0])
    with np.errstate(all="raise"):
        problem.line_losses(w, w)(0.5)


@pytest.mark.parametrize("replicates", [1, 3])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("row", [2, 3])  # of either label
def test_a_tiny_row_that_grows_adds_nothing_however_large_its_residual(row, sparse, replicates):
    """The square of its norm is 0 before and after, but its term is not."""
    X, y = np.full((9, 1), 1e-200), 1e170 * np.array([1.0, -1.0, 1.0] * 3)
    data = sp.csr_array(X) if sparse else X
    problem = ERM(data, y, losses.SquaredError())
    held = data.data if sparse else X[:, 0]
    w, rule = np.zeros((replicates, 1)), clipping.Flat(1.0)
    problem.gradient_sum(w, None, rule)  # keeps the norms
    held[row] = 1e-163
    others = -1e-200 * (np.sum(y) - y[row])
    np.testing.assert_allclose(problem.gradient_sum(w, None, rule), others, rtol=1e-9)


@pytest.mark.parametrize("sparse", [False, True])
def test_a_tiny_row_that_grows_adds_nothing_to_a_sum_beside_one_where_it_fits(sparse):
    """At the last iterate its residual is 0, at the first it is 1e107."""
    X, w = np.full((9, 1), 1e-200), np.array([[0.0], [0.0], [1e250]])
    y = np.where(np.arange(9) == 2, 1e-143 * 1e250, 0.0)
    data = sp.csr_array(X) if sparse else X
    problem, rule = ERM(data, y, losses.SquaredError()), clipping.Flat(1e-60)
    problem.gradient_sum(w, None, rule)  # keeps the norms
    (data.data if sparse else X[:, 0])[2] = 1e-143
    assert np.abs(problem.gradient_sum(w, None, rule)).max() <= 9e-60


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=30)
@given(data=st.data())
def test_a_row_that_grows_in_the_middle_of_a_run_adds_nothing(form, data, tmp_path_factory):
    """A callback that wrote to X used to move a sum by 73 times the bound."""
    seed, n = data.draw(st.integers(0, 2**32)), data.draw(st.sampled_from([1, 9, 260, 600]))
    bound = data.draw(st.sampled_from([RowBound(2, 1.0), RowBound(1, 1.0), RowBound(np.inf, 0.5)]))
    rule = data.draw(st.sampled_from([None, clipping.Flat(0.3), clipping.Automatic(0.1)]))
    replicates, number = data.draw(st.sampled_from([1, 3])), data.draw(st.floats(2.0))
    if form == "own rule" or (form == "mlp" and rule is None):
        rule = Half()
    if rule is not None and data.draw(st.booleans()):
        bound = None
    rng = np.random.default_rng(seed)
    problem, change = changeable(form, n, 3, bound, rng, tmp_path_factory.mktemp("rows") / "X")
    w = rng.normal(size=(replicates, problem.d))
    rows = np.arange(n)
    sums = {
        "all": lambda: problem.gradient_sum(w, None, rule),
        "batches": lambda: problem.gradient_sum(w, [rows] * replicates, rule),
    }
    if isinstance(problem, ERM) and bound is not None:
        sums["hessian"] = lambda: problem.hessian_sum(w[0])
        sums["products"] = lambda: problem.hvp_sum(w[0], w[0])
    before = {name: np.asarray(each()) for name, each in sums.items()}
    grown = rng.choice(n, min(n, 3), replace=False)
    others = np.delete(rows, grown)
    expected = {
        "all": problem.gradient_sum(w, [others] * replicates, rule),
        "batches": problem.gradient_sum(w, [others] * replicates, rule),
    }
    if "hessian" in sums:
        expected["hessian"] = problem.hessian_sum(w[0], others)
        expected["products"] = problem.hvp_sum(w[0], w[0], others)
    for row in grown:
        change(row, number)
    for name, each in sums.items():
        found, limit = np.asarray(each()), np.asarray(expected[name])
        if form == "mlp":  # a row of zeros still has gradients in the biases
            most = replicates * rule.clip_norm * (len(grown) + 2.0 * problem.rounding)
            assert np.linalg.norm(found - limit) <= most
        else:
            np.testing.assert_allclose(
                found,
                limit,
                rtol=1e-6 if form == "float32" else 1e-9,
                atol=1e-7 * (1.0 + np.abs(before[name]).max()),
            )


@pytest.mark.slow
@pytest.mark.parametrize("form", ["dense", "float32", "csr"])
@settings(max_examples=30)
@given(data=st.data())
def test_sums_of_rows_that_nobody_changed_keep_their_bits(form, data):
    """Also rows of zeros, and tiny or huge rows whose squares underflow or overflow."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    n, d = data.draw(st.sampled_from([1, 7, 300, 4100])), data.draw(st.sampled_from([1, 5, 21]))
    X = rng.uniform(-1.0, 1.0, (n, d))
    X[rng.random(n) < 0.3] *= data.draw(st.sampled_from([0.0, 1e-30, 1e-200, 1e30, 1e-310]))
    X = X.astype(np.float32) if form == "float32" else X
    y, w = rng.choice([-1.0, 1.0], n), rng.normal(size=(data.draw(st.sampled_from([1, 4])), d))
    table = sp.csr_array(X) if form == "csr" else X
    free = ERM(table, y, LOGISTIC)
    for bound in (RowBound(2, 1e40), [RowBound(1, 1e40), RowBound(2, 1e39)]):
        held = ERM(table, y, LOGISTIC, row_bound=bound)
        for rows in (None, [rng.integers(0, n, 2 * n) for _ in w]):
            one, other = (problem.sums(w, rows) for problem in (free, held))
            assert one.gradient.tobytes() == other.gradient.tobytes()
            assert one.value.tobytes() == other.value.tobytes()
    rule = clipping.Flat(0.7)
    with mock.patch.object(memory, "row_limits", lambda bounds, d: (math.inf,) * 3):
        free = ERM(table, y, LOGISTIC)
    one, other = (problem.sums(w, None, rule) for problem in (free, ERM(table, y, LOGISTIC)))
    assert one.gradient.tobytes() == other.gradient.tobytes()


@pytest.mark.parametrize("order", [2, 1])
def test_a_run_whose_callback_changes_the_data_keeps_to_its_bound(order):
    rng = np.random.default_rng(1)
    X, y = rng.uniform(-0.5, 0.5, (50, 2)), rng.choice([-1.0, 1.0], 50)
    problem = ERM(X, y, LOGISTIC, dpa.regularizers.L2(0.1), RowBound(order, 1.0))
    iterates = []

    def callback(iteration, w):
        iterates.append(w.copy())
        X[:25] *= 1e3

    mechanism = "gaussian" if order == 2 else "laplace"
    method = dpa.methods.GradientDescent(1.0, 6, mechanism=mechanism)
    dpa.minimize(
        problem, method, dpa.Budget(1e6, 1e-3 if order == 2 else 0.0), rng=0, callback=callback
    )
    steps = np.diff(iterates, axis=0)[:, 0]
    pull = np.array([0.1 * np.linalg.norm(w) for w in iterates[:-1]])
    # Half of the rows are left: at most half of the bound, and little noise.
    assert (np.linalg.norm(steps, axis=1) <= 0.5 + pull[:, None].max() + 0.05).all()


def test_a_thread_that_writes_all_the_time_moves_no_sum_beyond_its_bounds():
    rng = np.random.default_rng(1)
    X = rng.uniform(-0.5, 0.5, (4000, 2))
    problem = ERM(X, rng.choice([-1.0, 1.0], 4000), LOGISTIC, row_bound=RowBound(2, 1.0))
    kept, stop = X.copy(), threading.Event()

    def write():
        while not stop.is_set():
            X[::7] = 1e9
            X[:] = kept

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(200):
            total = problem.gradient_sum(np.zeros((1, 2)))
            assert np.linalg.norm(total) <= 4000.0
    finally:
        stop.set()
        writer.join()


def test_blocks_that_grow_while_a_tilted_minimum_is_solved_are_refused_at_its_end(monkeypatch):
    """A bound on the norm of the whole row does not bound a single block of it."""
    blocks = (Block(1, 1, 0.1), Block(1, 1, 2.0))
    X, y = np.full((30, 2), 0.05), np.where(np.arange(30) % 2, 1.0, -1.0)
    problem = ERM(X, y, LOGISTIC, dpa.regularizers.L2(0.1), RowBound(blocks))
    network = Softmax(X, (y > 0).astype(int), 2, dpa.regularizers.L2(0.1), RowBound(blocks))
    from dpanalysis.problems import empirical

    real = empirical.minimize_perturbed

    def disturbed(tilted, tolerance):
        found = real(tilted, tolerance)
        X[3] = [0.2, 0.0]
        return found

    monkeypatch.setattr(empirical, "minimize_perturbed", disturbed)
    for each in (problem, network):
        X[:] = 0.05
        with pytest.raises(ValueError, match=r"X has been changed.*row 3"):
            each.minimize_perturbed(np.zeros(each.d), 0.1, 1e-8, 30.0)


def test_labels_of_mapped_rows_are_copies_and_nothing_that_is_kept_can_be_written(
    tmp_path, monkeypatch
):
    X, y = np.full((6, 2), 0.3), np.array([1.0, -1.0] * 3)
    erm, network = ERM(X, y, LOGISTIC, row_bound=RowBound(2, 0.1)), Softmax(X, (y > 0) * 1, 2)
    for problem in (erm, network):
        problem.sums(np.zeros(problem.d), clipping=clipping.Flat(1.0))
    for array in (erm._y, erm._data.scale, erm._data.norms(), network._y, network._norms()):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 5
    monkeypatch.setattr("dpanalysis.problems.rows.mapped._ROWS_KEPT", 0)
    problem = ERM(mapped(X, tmp_path / "X"), y, losses.SquaredError())
    before = problem.value(np.ones(2))
    y[:] = 7.0
    assert problem.value(np.ones(2)) == before


class Annealed(losses.Loss):
    """Its constant depends on an attribute that a callback may change."""

    convex, classification, size = True, True, 1.0

    @property
    def lipschitz(self):
        return self.size

    def value(self, z, y):
        return self.size * np.logaddexp(0.0, -y * z)

    def derivative(self, z, y):
        return -self.size * y / (1.0 + np.exp(y * z))


@pytest.mark.slow
@pytest.mark.parametrize("compiled", [False, True])
def test_a_loss_whose_constants_change_in_the_middle_of_a_run_is_refused(compiled):
    loss = Annealed()
    used = losses.compiled(loss) if compiled else loss
    problem = ERM(np.eye(2), [1, -1], used, dpa.regularizers.L2(0.1), RowBound(2, 1.0))

    def callback(iteration, w):
        loss.size = 50.0

    method = dpa.methods.GradientDescent(0.1, 5)
    with pytest.raises(ValueError, match=r"loss: the constants of .* have been changed"):
        dpa.minimize(problem, method, dpa.Budget(1.0), rng=0, callback=callback)
    with pytest.raises(ValueError, match=r"loss: the constants of .* have been changed"):
        dpa.minimize(problem, method, dpa.Budget(1.0), rng=0)


@pytest.mark.parametrize("kernel", [dense.dense_range, csr.csr_range, csr.csr_replicates_range])
def test_kernels_add_the_copy_of_a_row_that_they_measured(kernel, monkeypatch):
    """As Python code, since no thread can be made to write just between the two."""
    module = dense if kernel is dense.dense_range else csr
    X, w, gradient = np.ones((1, 2)), np.zeros(2), np.zeros(2)
    fakes = {
        "borrowed": lambda data: data,
        "fill_tile": lambda *given: given[-1][0].fill(0),
        "predict": lambda X, index, count, v, z, *_: z.fill(0.0),
        "_product": lambda *_: 0.0,
        "terms_at": lambda *given: given[-1].fill(1.0) or (0.0, 0),
        "is_inside": lambda *_: X.fill(9.0) or True,  # it was 1 when it was copied
    }
    for name in ("_copy", "new_tile", "scale_terms", "close_block"):
        fakes[name] = getattr(getattr(module, name, None), "py_func", None)
    for name, fake in fakes.items():
        monkeypatch.setattr(module, name, fake, raising=False)
    samples = (np.ones(1), *[np.empty(0)] * 3, np.array([math.inf, 2.0, math.inf]))
    matrix = X if module is dense else (X.reshape(-1), np.arange(2), np.array([0, 2]))
    data, wanted = (matrix, samples, np.empty(0, int), False), (0, (), 0, 1)
    if kernel is csr.csr_replicates_range:
        found = np.zeros(1), gradient[None], np.zeros(1, int)
        kernel.py_func(data, 0, 1, w[None], wanted, *found, True)
    else:
        kernel.py_func(data, 0, 1, w, wanted, gradient, True)
    assert X.min() == 9.0
    np.testing.assert_array_equal(gradient, 1.0)


@pytest.mark.parametrize("form", [np.array, sp.csr_array])
def test_rows_that_grow_after_they_were_measured_add_no_larger_term(form, monkeypatch):
    """Their owner may write to them at any time: measured and added is one copy."""
    X = form(np.ones((6, 4)))
    entries, outside = X.data if sp.issparse(X) else X, array_api._rows_outside

    def growing(*arguments):
        found = outside(*arguments)
        entries[:] = 1e3
        return found

    problem = ERM(X, np.ones(6), LOGISTIC, row_bound=RowBound(2, 2.0))
    monkeypatch.setattr(array_api, "_rows_outside", growing)
    H = problem.hessian_sum(np.zeros(4))
    assert np.trace(H) == pytest.approx(6.0) and entries.max() == 1e3
    entries[:] = 1.0
    own = ERM(X, np.ones(6), Same(), row_bound=RowBound(2, 2.0))
    np.testing.assert_allclose(own.gradient_sum(np.zeros((1, 4))), np.full((1, 4), -3.0))
    entries[:] = 1.0
    np.testing.assert_allclose(problem.hvp_sum(np.zeros(4), np.eye(4)[0]), H[0], rtol=1e-12)


@pytest.mark.parametrize("columns", [2, 1 << 15])  # by NumPy, and by the compiled kernel
@pytest.mark.parametrize("limits", [(1.0, np.inf, 1.0), (np.inf, 1.0, 1.0)])
def test_rows_that_have_become_nan_are_outside_their_limits(limits, columns):
    X = np.zeros((3, columns))
    X[0, 0], X[1, 1], X[2, 1] = 0.5, np.nan, np.inf
    np.testing.assert_array_equal(array_api.bounded_rows(X, None, limits)[1:], 0.0)


# Files that change in the middle of a run


@pytest.mark.parametrize("enforce", ["clip", "check"])
@pytest.mark.parametrize("value", [1e9, HUGE, math.nan, math.inf])
def test_a_file_that_changes_raises_nothing_and_keeps_the_bound(
    enforce, value, tmp_path, monkeypatch
):
    """An error in the middle of a run would reveal that such a record exists."""
    monkeypatch.setattr("dpanalysis.problems.rows.mapped._ROWS_KEPT", 0)
    rng = np.random.default_rng(2)
    X, y = rng.uniform(-0.5, 0.5, (30, 3)), rng.choice([-1.0, 1.0], 30)
    problem = ERM(mapped(X, tmp_path / "X"), y, LOGISTIC, row_bound=RowBound(2, 1.0, enforce))
    w, row = np.full(3, 0.1), np.array([4])
    others = problem.sums(w, np.delete(np.arange(30), 4)).gradient
    np.memmap(tmp_path / "X", X.dtype, "r+", shape=X.shape)[4] = value
    problem.check_private()
    for clip in (None, clipping.Flat(0.3)):
        assert np.linalg.norm(problem.sums(w, row, clip).gradient) <= 1.0
    if value != 1e9:
        np.testing.assert_allclose(problem.sums(w).gradient, others, rtol=1e-12)
        assert not problem.hessian_sum(w, row).any() and not problem.hvp_sum(w, w, row).any()
    assert np.isfinite(problem.line_losses(w, w, row)(1.0)).all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_rows_of_half_precision_are_computed_in_double(dtype):
    torch = pytest.importorskip("torch")
    for size in (1.0, 1e-3):
        X = torch.full((7, 3), size, dtype=getattr(torch, dtype))
        problem = dpa.ERM(X, torch.ones(7), dpa.losses.Logistic(), row_bound=dpa.RowBound(2, 1.0))
        gradient = problem.gradient_sum(np.zeros((1, 3)), clipping=dpa.clipping.Flat(0.1))
        assert np.linalg.norm(np.asarray(gradient)) <= 0.7 * (1.0 + 1e-9)


def test_nullable_columns_of_numbers_are_numbers():
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame({"a": [0.5, 0.25], "b": [True, False]}).astype({"a": "Float64"})
    y, bound = np.array([1.0, -1.0]), RowBound(2, 2.0)
    problem = ERM(table, y, losses.Logistic(), row_bound=bound)
    plain = ERM(np.array([[0.5, 1.0], [0.25, 0.0]]), y, losses.Logistic(), row_bound=bound)
    assert (problem.gradient(np.ones(2)) == plain.gradient(np.ones(2))).all()
    table.loc[1, "a"] = pd.NA
    with pytest.raises(TypeError, match="X must hold a real number in every cell"):
        ERM(table, y, losses.Logistic(), row_bound=bound)
