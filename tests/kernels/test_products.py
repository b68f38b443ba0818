"""Products in which the bits of a row do not depend on the other rows."""

import os
import platform
import subprocess
import sys

import array_api_strict
import numpy as np
import pytest
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from dpanalysis import clipping, losses
from dpanalysis.kernels import products
from dpanalysis.kernels.compiled import sparse_products
from dpanalysis.kernels.products import REFERENCE, row_product
from dpanalysis.problems import ERM, RowBound, Softmax

COUNTS = (1, 2, 7, 15, 16, 17, 64, 127, 129, 250, 257, 511, 1025)
SHAPES = [(784, 128), (784, 10), (128, 10), (10, 128), (5, 3), (3, 1), (900, 7)]


@pytest.fixture
def anew():
    """Clear the cached lengths before and after the test."""

    def clear():
        products._length.cache_clear()
        products._agrees.cache_clear()

    clear()
    yield
    clear()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("threads", [1, 2])
def test_a_row_has_the_same_bits_among_any_number_of_rows(shape, kind, threads, anew):
    random = np.random.default_rng(1)
    rows = random.normal(size=(1100, shape[0])).astype(kind)
    by_rows = random.normal(size=shape).astype(kind)
    with threadpool_limits(threads):
        for matrix in (by_rows, np.asfortranarray(by_rows)):
            whole = row_product(rows, matrix)
            np.testing.assert_allclose(whole, rows @ matrix, rtol=0, atol=2e-4 * shape[0] ** 0.5)
            for count in COUNTS:
                chosen = random.permutation(1100)[:count]
                np.testing.assert_array_equal(row_product(rows[chosen], matrix), whole[chosen])


@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_a_row_has_the_same_bits_in_batched_products(kind):
    random = np.random.default_rng(2)
    rows = random.normal(size=(600, 3, 30)).astype(kind).transpose(1, 0, 2)  # not contiguous
    matrix = random.normal(size=(3, 30, 10)).astype(kind)
    whole = row_product(rows, matrix)
    for count in COUNTS[:-2]:
        chosen = random.permutation(600)[:count]
        np.testing.assert_array_equal(row_product(rows[:, chosen, :], matrix), whole[:, chosen, :])


@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize("integers", ["int32", "int64"])
def test_products_of_sparse_rows_do_not_depend_on_the_batch(kind, integers):
    random = np.random.default_rng(3)
    dense = random.normal(size=(3000, 700)) * (random.random((3000, 700)) < 0.02)
    dense[7] = random.normal(size=700)  # longer than what is prefetched
    dense[8], dense[9, 0] = 0.0, 1e308
    with np.errstate(over="ignore"):
        X = sp.csr_array(dense.astype(kind))
    X.indices, X.indptr = X.indices.astype(integers), X.indptr.astype(integers)
    ray = random.normal(size=(700, 2))
    whole = sparse_products(X, np.arange(3000), ray)
    finite = np.delete(np.arange(3000), 9)
    np.testing.assert_allclose(whole[finite], X[finite] @ ray, rtol=1e-13, atol=1e-13)
    assert np.isinf(whole[9]).all() == (kind == "float32")
    for count in (0, 1, 2, 15, 16, 17, 18, 500):
        rows = np.sort(random.permutation(3000)[:count])
        np.testing.assert_array_equal(sparse_products(X, rows, ray), whole[rows])
        repeated = np.repeat(rows, 2)
        np.testing.assert_array_equal(sparse_products(X, repeated, ray), whole[repeated])


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("jump", ["slope", "curvature"])
def test_a_row_over_its_bound_does_not_change_how_others_are_rounded(form, jump):
    """Multipliers reordered sparse rows: all predictions passed the place where the loss jumps."""
    if jump == "slope":
        loss, last, lost = losses.Hinge(), 1.0 - 2.0**-53, 3.0 * 2.0**-56
    else:
        loss, last, lost = losses.HuberizedHinge(0.5), 1.5, 3.0 * 2.0**-55
    w = np.array([last, lost, lost])
    assert w[0] + w[1] + w[2] == last < w[2] + w[1] + w[0]
    rule = clipping.Custom(lambda norm, loss: 1.0 / max(1.0, norm), 1.0)
    found = []
    for size in (1.0, 100.0):
        X = np.ones((500, 3))
        X[7] = [size, 0.0, 0.0]
        problem = ERM(form(X), np.ones(500), loss, row_bound=RowBound(2, 2.0))
        others = np.delete(np.arange(500), 7)
        if jump == "slope":
            found.append(problem.gradient_sum(w[None], [others], rule))
        else:
            found.append([problem.hessian_sum(w, others), problem.hvp_sum(w, w, others)[None]])
    for before, after in zip(*found):
        np.testing.assert_array_equal(before, after)


def test_empty_and_sparse_rows():
    matrix = np.ones((4, 2))
    assert row_product(np.ones((0, 4)), matrix).shape == (0, 2)
    assert row_product(np.ones((3, 0, 4)), np.ones((3, 4, 2))).shape == (3, 0, 2)
    np.testing.assert_array_equal(row_product(sp.csr_array(np.eye(4)), matrix), matrix)


def reversed_where(wrong):
    """Return a product that adds in reverse order at the positions ``wrong(count)``."""

    def multiply(rows, matrix):
        found = rows @ matrix
        places = wrong(rows.shape[-2])
        backwards = rows[..., ::-1] @ matrix[..., ::-1, :]
        found[..., places, :] = backwards[..., places, :]
        return found

    return multiply


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wrong", "lengths"),
    [
        (lambda count: slice(0, 0), (16, 32, 112, 128, 160)),
        # Few rows are summed in another order: longer portions are used.
        (lambda count: slice(0, None if count < 100 else 0), (112, 112, 112, 128, 160)),
        # A partial tile: the rows after the last multiple of 64.
        (lambda count: slice(count // 64 * 64, None), (64, 64, 128, 128, 128)),
        # One position in long portions.
        (lambda count: slice(140, 141), (16, 32, 112, 128, 128)),
        # A position in every portion: no length is possible.
        (lambda count: slice(count // 2, count // 2 + (count > 1)), (0,) * 5),
    ],
)
@pytest.mark.parametrize("shape", [(9, 3), (50, 1), (30, 40)])
def test_a_library_that_rounds_by_place_or_by_length_is_seen(
    wrong, lengths, shape, anew, monkeypatch
):
    monkeypatch.setattr(products, "_multiply", reversed_where(wrong))
    found = [products._length("d", shape, False, whole) for whole in (16, 32, 112, 128, 160)]
    assert tuple(found) == lengths
    random = np.random.default_rng(3)
    rows, matrix = random.normal(size=(300, shape[0])), random.normal(size=shape)
    whole = row_product(rows, matrix)
    np.testing.assert_allclose(whole, rows @ matrix, rtol=0, atol=1e-12)
    for count in (1, 16, 30, 100, 140, 150, 257):
        np.testing.assert_array_equal(row_product(rows[-count:], matrix), whole[-count:])
        both = row_product(np.stack([rows[:count], rows[-count:]]), np.stack([matrix, matrix]))
        np.testing.assert_array_equal(both[1], row_product(rows[-count:], matrix))


@pytest.mark.parametrize("wrong_columns", [False, True])
def test_rows_become_columns_where_a_library_rounds_by_place(wrong_columns, anew, monkeypatch):
    """If the columns are rounded by their place, too, each row is summed alone."""
    by_place, lengths = reversed_where(lambda count: slice(count // 2, count // 2 + 1)), []

    def multiply(rows, matrix):
        lengths.append(matrix.shape[-1])
        found = by_place(rows, matrix)
        if wrong_columns:
            found[..., 5] = (rows[..., ::-1] @ matrix[..., ::-1, :])[..., 5]
        return found

    monkeypatch.setattr(products, "_multiply", multiply)
    random = np.random.default_rng(3)
    rows, matrix = random.normal(size=(300, 40)), random.normal(size=(40, 6))
    whole = row_product(rows, matrix)
    np.testing.assert_allclose(whole, rows @ matrix, rtol=0, atol=1e-12)
    for count in (1, 15, 16, 17, 100, 257):
        both = row_product(np.stack([rows[:count], rows[-count:]]), np.stack([matrix, matrix]))
        np.testing.assert_array_equal(both[1], whole[-count:])
        for shared in row_product(rows[-count:], np.stack([matrix, matrix])):
            np.testing.assert_array_equal(shared, whole[-count:])
        lengths.clear()  # the shape has been checked
        np.testing.assert_array_equal(row_product(rows[-count:], matrix), whole[-count:])
    assert set(lengths) == (set() if wrong_columns else {16})


@pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64"), reason="the core is one of these processors"
)
@pytest.mark.parametrize("threads", ["1", "2"])
def test_float32_products_where_openblas_rounds_by_place(threads):
    """OpenBLAS chooses this core on processors without AVX-512, and on some that have it."""
    names = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    chosen = {"OPENBLAS_CORETYPE": "Haswell", **dict.fromkeys(names, threads)}
    code = (
        "import numpy as np; from dpanalysis.kernels import products\n"
        "random = np.random.default_rng(0)\n"
        "for inner, outer in ((784, 128), (30, 10), (10, 300)):\n"
        "    rows = random.normal(size=(300, inner)).astype('f')\n"
        "    matrix = random.normal(size=(outer, inner)).astype('f').T\n"
        "    length = products._length('f', matrix.shape, True, 304, products.blas_threads())\n"
        "    numbers = ('f', matrix.shape, True, 128, products.blas_threads())\n"
        "    assert length or products._agrees(*numbers, transposed=True)\n"
        "    whole = products.row_product(rows, matrix)\n"
        "    for count in (1, 17, 200, 299):\n"
        "        few = products.row_product(rows[-count:], matrix)\n"
        "        assert np.array_equal(few, whole[-count:])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | chosen, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_the_reference_is_checked_before_anything_else(anew, monkeypatch):
    monkeypatch.setattr(products, "_agrees", lambda *arguments: arguments[3] != REFERENCE)
    assert products._length.__wrapped__("d", (9, 3), False, 64) == 0


def test_a_length_is_checked_again_under_another_number_of_threads(anew, monkeypatch):
    """For float32 rows of 2000 numbers, lengths valid with one thread fail with three."""
    random = np.random.default_rng(3)
    rows, matrix = random.normal(size=(300, 9)), random.normal(size=(9, 3))
    row_product(rows, matrix)
    place = reversed_where(lambda count: slice(count // 2, count // 2 + (count > 1)))
    monkeypatch.setattr(products, "_multiply", place)
    monkeypatch.setattr(products, "blas_threads", lambda: (3,))
    whole = row_product(rows, matrix)
    for count in (16, 100, 257):
        np.testing.assert_array_equal(row_product(rows[-count:], matrix), whole[-count:])


PROBLEMS = {
    "erm": lambda X, y: ERM(X, y, losses.Huber(1.0)),
    "softmax": lambda X, y: Softmax(X, y, n_classes=2),
}


@pytest.mark.parametrize("kind", PROBLEMS)
@pytest.mark.parametrize("kept", [None, np.arange(0, 40, 2)])
def test_on_a_device_products_have_one_length_whatever_the_number_of_rows(kind, kept, monkeypatch):
    """The library of a device may choose its algorithm by that length."""
    multiply, lengths = products._multiply, []

    def spy(rows, matrix):
        lengths.append((rows.shape[-2], rows.shape[-1]))
        return multiply(rows, matrix)

    monkeypatch.setattr(products, "_multiply", spy)
    random = np.random.default_rng(5)
    X = random.normal(size=(41, 6))
    for n in (40, 41):
        problem = PROBLEMS[kind](array_api_strict.asarray(X[:n]), np.arange(n) % 2)
        w = random.normal(size=(1, problem.d))
        problem.gradient_sum(w, None if kept is None else [kept])
    assert len(lengths) >= 2 and len(set(lengths)) == 1
