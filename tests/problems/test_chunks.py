"""Data processed in blocks of rows: memory maps against the same data in memory."""

import tempfile
import threading
from contextlib import ExitStack, contextmanager
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from threadpoolctl import threadpool_info, threadpool_limits

from dpanalysis import ERM, RowBound, clipping, losses, methods, minimize, regularizers
from dpanalysis._parallel import one_blas_thread
from dpanalysis.kernels import norms
from dpanalysis.privacy.accounting.sampling import Poisson, WithoutReplacement
from dpanalysis.problems.rows import mapped as blocks
from dpanalysis.problems.rows.checks import row_norms

LOSSES = [losses.Logistic(), losses.SquaredError(), losses.Hinge(), losses.HuberizedHinge(0.5)]
RULES = [
    None,
    clipping.Flat(0.4),
    clipping.Automatic(0.4),
    clipping.PerSampleAdaptive(0.4),
    clipping.Custom(lambda norm, loss: min(1.0, 0.4 / max(norm, 1e-300)), 0.4),
]
BOUNDS = [(), RowBound(2, 2.0), (RowBound(1, 3.0), RowBound(2, 1.5)), RowBound(1, 1e4, "check")]


@contextmanager
def small_blocks(size=500):
    """Force blocks of a few rows, even for small data."""
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(blocks, "BLOCK_BYTES", size))
        stack.enter_context(mock.patch.object(blocks, "_ROWS_KEPT", 0))
        yield


def mapped(array, name=None, order="C"):
    """The array in a file, mapped read-only; the file has no name unless one is given."""
    with open(name, "w+b") if name else tempfile.TemporaryFile() as file:
        file.write(np.asarray(array).tobytes(order))
        file.flush()
        return np.memmap(file, array.dtype, "r", shape=array.shape, order=order)


def draw(n, d, dtype="f8", seed=0):
    random = np.random.default_rng(seed)
    X = (3.0 * random.standard_normal((n, d))).astype(dtype)
    return X, np.where(random.random(n) < 0.5, 1, -1), random


def assert_same(ours, reference):
    """Equal to 1e-12 of the largest entry, and None where the reference is None."""
    for one, other in zip(ours, reference, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            assert np.shape(one) == np.shape(other)
            scale = np.max(np.abs(other), initial=1.0)
            np.testing.assert_allclose(one, other, rtol=0, atol=1e-12 * scale)


def assert_same_problem(problem, reference, random, rule=None):
    """Every sum that an ERM offers, of all rows, of some, and of none."""
    n, d = reference.n, reference.d
    assert (problem.n, problem.d, problem.L) == (n, d, reference.L)
    W, v, weights = random.standard_normal((3, d)), random.standard_normal(d), random.random(n)
    batch = np.sort(random.choice(n, n // 3, replace=False))
    some = [batch, random.integers(0, n, 9), batch[:0]]
    for w, rows in [(w, rows) for w in (W[0], W) for rows in (None, *some)] + [(W, some)]:
        for wanted in ({"weights": weights}, {"value": False}, {"gradient": False}):
            arguments = {"rows": rows, "clipping": rule, **wanted}
            assert_same(problem.sums(w, **arguments), reference.sums(w, **arguments))
    ours, other = (
        [p.value(W), p.gradient(W), *(p.line_losses(W[0], v, rows)(0.3) for rows in (None, *some))]
        for p in (problem, reference)
    )
    assert_same(ours, other)
    if np.isfinite(reference.loss.smoothness):
        ours, other = (
            [p.hessian(W), p.hvp(W[0], v)]
            + [p.hessian_sum(W[0], rows) for rows in some]
            + [p.hvp_sum(W[0], v, rows) for rows in some]
            for p in (problem, reference)
        )
        assert_same(ours, other)
    if reference.loss.classification:
        assert problem.accuracy(W[0]) == reference.accuracy(W[0])


@pytest.mark.slow
@given(
    n=st.integers(1, 150),
    d=st.integers(1, 9),
    dtype=st.sampled_from(["f2", "f4", "f8", ">f8", "i1", "u1", "i4", "?"]),
    order=st.sampled_from("CF"),
    labels=st.sampled_from(["i1", "f4", "f8"]),
    loss=st.sampled_from(LOSSES),
    rule=st.sampled_from(RULES),
    bounds=st.sampled_from(BOUNDS),
    size=st.integers(1, 20_000),
    seed=st.integers(0, 2**32 - 1),
)
def test_blocks_give_the_sums_of_the_data_in_memory(
    n, d, dtype, order, labels, loss, rule, bounds, size, seed
):
    X, y, random = draw(n, d, "f8", seed)
    X, y = np.abs(X).astype(dtype) if dtype == "u1" else X.astype(dtype), y.astype(labels)
    arguments = (loss, regularizers.L2(0.1), bounds)
    # One NumPy path scales a float32 matrix in float32, which is not tested here.
    reference = ERM(X.astype(np.float64), y, *arguments)
    with small_blocks(size):
        problem = ERM(mapped(X, order=order), mapped(y) if seed % 2 else y, *arguments)
        assert_same_problem(problem, reference, random, rule)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_few_rows_are_used_in_place(tmp_path, dtype):
    """The same bits as without a map, and the data are not copied."""
    X, y, random = draw(3000, 50, dtype)
    arguments = (losses.Logistic(), None, RowBound(2, 20.0))
    file = mapped(X, tmp_path / "X")
    problem, reference = ERM(file, y, *arguments), ERM(X, y, *arguments)
    assert np.shares_memory(problem._data._whole.X, file)
    W = random.standard_normal((3, 50))
    for rows in (None, np.arange(0, 3000, 7), [np.arange(r + 1) for r in range(3)]):
        ours, other = (p.sums(W, rows, clipping.Flat(0.3)) for p in (problem, reference))
        for one, another in zip(ours, other):
            np.testing.assert_array_equal(one, another)


def test_an_array_of_type_memmap_in_memory_is_used_as_an_array():
    """Results that NumPy computes from a map may keep its type, but lie in memory."""
    X, y, _ = draw(20, 3)
    taken = X.view(np.memmap)
    assert np.shares_memory(ERM(taken, y, losses.Logistic())._X, taken)


def bad(**changes):
    X, y, _ = draw(100, 2)
    X[[70, 80]], y = 1e3, y.astype(float)
    arguments = {"loss": losses.Logistic(), "row_bound": None}
    for name, change in changes.items():
        if name in arguments:
            arguments[name] = change
        else:
            X, y = change(X, y)
    return X, y, arguments


def put(array, index, value):
    array = array.copy()
    array[index] = value
    return array


BAD = {
    "nan": bad(data=lambda X, y: (put(X, (71, 1), np.nan), y)),
    "two": bad(data=lambda X, y: (put(put(X, (71, 1), np.nan), (30, 0), np.inf), y)),
    "infinite label": bad(data=lambda X, y: (X, put(y, 99, np.inf)), loss=losses.SquaredError()),
    "label": bad(data=lambda X, y: (X, put(y, 88, 0.5))),
    "zero and one": bad(data=lambda X, y: (X, (y > 0).astype(np.int8))),
    "rows over": bad(row_bound=RowBound(2, 100.0, "check")),
    "one dimension": bad(data=lambda X, y: (X[:, 0], y)),
    "no columns": bad(data=lambda X, y: (np.ones((3, 1)), y)),
    "short": bad(data=lambda X, y: (X, y[1:])),
    "complex": bad(data=lambda X, y: (X.astype(complex), y)),
    "text": bad(data=lambda X, y: (X, y.astype("U4"))),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_data_are_refused_in_the_same_words(case):
    X, y, arguments = BAD[case]
    with pytest.raises((ValueError, TypeError)) as expected:
        ERM(X, y, **arguments)
    with small_blocks(), pytest.raises(expected.type) as found:
        ERM(mapped(X), y, **arguments)
    assert str(found.value) == str(expected.value)


def test_rows_over_a_bound_by_rounding_are_scaled():
    X, y, _ = draw(100, 3)
    X /= np.linalg.norm(X, axis=1)[:, None] * (1 - 1e-12)
    with small_blocks():
        problem = ERM(mapped(X), y, losses.Hinge(), row_bound=RowBound(2, 1.0, "check"))
        largest = problem.sums(np.zeros(3), rows=np.array([5]), value=False).gradient
        assert np.linalg.norm(largest) <= 1.0


@pytest.mark.slow
@pytest.mark.parametrize("sampling", [Poisson(0.2), WithoutReplacement(40)], ids=repr)
def test_runs_draw_the_batches_of_the_data_in_memory(sampling):
    """The same seed draws the same rows, so the runs agree to rounding."""
    X, y, _ = draw(300, 4)
    arguments = (losses.Logistic(), regularizers.L2(0.1), RowBound(2, 5.0))
    method = methods.SGD(
        step_size=0.5, iterations=6, noise=[0.1] * 6, sampling=sampling, clipping=clipping.Flat(0.5)
    )
    record = ("objective", "gradient_norm", "accuracy", "gap")
    with small_blocks():
        runs = [
            minimize(problem, method, rng=3, replicates=2, record=record)
            for problem in (ERM(mapped(X), y, *arguments), ERM(X, y, *arguments))
        ]
    np.testing.assert_allclose(runs[0].w, runs[1].w, rtol=1e-11)
    for name in record:
        np.testing.assert_allclose(runs[0].history[name], runs[1].history[name], atol=1e-11)


def test_accuracy_on_other_data():
    X, y, random = draw(200, 3)
    problem, w = ERM(X, y, losses.Logistic()), random.standard_normal(3)
    with small_blocks():
        assert problem.accuracy(w, mapped(X[:90]), y[:90]) == problem.accuracy(w, X[:90], y[:90])


# Parts


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("order", [1, 2])
def test_norms_of_rows_of_any_size(order, dtype):
    random = np.random.default_rng(0)
    top = np.finfo(dtype).maxexp - 8
    sizes = 2.0 ** random.integers(-top - 60, top, size=(40_000, 1)).astype(float)
    X = (random.standard_normal((40_000, 5)) * sizes).astype(dtype)
    X[:2] = [[0.0] * 5, [np.finfo(dtype).smallest_subnormal] * 5]
    found = norms.norms(X, order)
    np.testing.assert_array_equal(norms.norms(X[:100], order), found[:100])  # one thread
    np.testing.assert_allclose(found, row_norms(X, order), rtol=1e-14, atol=5e-324)


def test_threads_that_overlap_leave_blas_as_it_was():
    def threads():
        return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]

    inside, leave = threading.Event(), threading.Event()

    def other():
        with one_blas_thread():
            inside.set()
            leave.wait(10)

    with threadpool_limits(2, user_api="blas"):
        before = threads()
        with one_blas_thread():
            thread = threading.Thread(target=other)
            thread.start()
            assert inside.wait(10)
        assert set(threads()) <= {1}  # the other is still inside
        leave.set()
        thread.join()
        assert threads() == before
