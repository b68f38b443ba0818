"""Memory-mapped files that are truncated, edited or reopened, or exceed the memory limit."""

import mmap
import os
import pickle
import subprocess
import sys
from contextlib import ExitStack

import numpy as np
import pytest
import scipy.sparse as sp
from test_chunks import assert_same_problem, draw, mapped, small_blocks

from dpanalysis import ERM, RowBound, clipping, losses
from dpanalysis.kernels import array_api
from dpanalysis.problems.rows import memory
from dpanalysis.problems.rows.mapped import Blocks


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("change", ["shorter", "longer"])
@pytest.mark.parametrize("which", ["X", "y"])
def test_a_file_that_changes_its_size_is_named(tmp_path, in_place, change, which):
    X, y, _ = draw(400, 5)
    with ExitStack() as stack:
        if not in_place:
            stack.enter_context(small_blocks())
        problem = ERM(mapped(X, tmp_path / "X"), mapped(y, tmp_path / "y"), losses.Logistic())
        problem.value(np.zeros(5))
        copy = pickle.dumps(problem)
        os.truncate(tmp_path / which, 80 if change == "shorter" else 10**6)
        for call in (problem.value, problem.hessian, problem.accuracy):
            with pytest.raises(OSError, match=rf"{tmp_path / which} has changed its size .* then"):
                call(np.zeros(5))
        with pytest.raises((OSError, ValueError), match=r"size|length"):
            pickle.loads(copy)


def test_a_file_cut_before_it_is_used_is_named(tmp_path):
    X, y, _ = draw(2000, 5)
    file = mapped(X, tmp_path / "X")
    os.truncate(tmp_path / "X", 8000)
    with pytest.raises(OSError, match="X has changed its size"):
        ERM(file, y, losses.Logistic())


def test_a_file_cut_in_the_middle_of_a_sum_is_named(tmp_path):
    X, y, _ = draw(5000, 5, "i4")  # integers: a block is a copy, and later ones are cut
    begun = []

    def cut(norm, loss):
        if begun:
            os.truncate(tmp_path / "X", 8000)
        return 1.0 / (1.0 + norm)

    rule = clipping.Custom(cut, 1.0)  # whose check calls the function
    with small_blocks(50_000):
        problem = ERM(mapped(X, tmp_path / "X"), y, losses.Logistic())
        begun.append(True)
        with pytest.raises(OSError, match="X has changed its size"):
            problem.sums(np.zeros(5), clipping=rule)


def test_rows_that_change_stay_within_their_bound(tmp_path):
    """The noise was computed from public bounds, which must hold for the file's current rows."""
    X, y, random = draw(300, 4)
    X, y = 0.1 * X, y.astype(float)
    file = mapped(X, tmp_path / "X")
    edit = np.memmap(tmp_path / "X", X.dtype, "r+", shape=X.shape)
    labels = mapped(y, tmp_path / "y")
    edit_label = np.memmap(tmp_path / "y", y.dtype, "r+", shape=y.shape)
    w, row = random.standard_normal(4), np.array([277])
    with small_blocks():
        problem = ERM(file, labels, losses.Hinge(), row_bound=RowBound(2, 2.0))
        edit[277] = [0.0, 1e9, 0.0, 0.0]
        assert abs(problem.sums(0.0 * w, row).gradient[1]) == pytest.approx(2.0)
        flat = problem.sums(0.0 * w, row, clipping=clipping.Flat(3.0))
        assert abs(flat.gradient[1]) == pytest.approx(2.0) and not flat.clipped
        for value in (np.nan, np.inf):
            edit[277, 1] = value
            assert (problem.sums(w, row, value=False).gradient == 0.0).all()
            others = problem.sums(w, np.delete(np.arange(300), 277)).gradient
            np.testing.assert_allclose(problem.sums(w).gradient, others, rtol=1e-12)
        edit[277] = 1.0
        for label in (1e9, 0.5):
            edit_label[277] = label
            assert (problem.sums(w, row, value=False).gradient == 0.0).all()
            assert problem.line_losses(w, w, row)(0.0) == 1.0  # the hinge loss of a row of zeros


class Own(losses.Logistic):
    """A user-defined loss, evaluated by array operations."""

    lipschitz, smoothness = 1.0, 0.25

    def value(self, z, y):
        return super().value(z, y)


@pytest.mark.parametrize("what", ["hessian_sum", "hvp_sum", "gradient_sum"])
def test_a_row_that_grows_after_it_was_measured_adds_what_was_measured(tmp_path, monkeypatch, what):
    X, y, random = draw(300, 4)
    X = 0.1 * X
    w, v = random.standard_normal((2, 4))
    arguments = {"hessian_sum": (w,), "hvp_sum": (w, v), "gradient_sum": (w[None],)}[what]
    loss = Own() if what == "gradient_sum" else losses.Logistic()
    problem = ERM(mapped(X, tmp_path / "X"), y, loss, row_bound=RowBound(2, 2.0))
    expected = getattr(problem, what)(*arguments)
    edit = np.memmap(tmp_path / "X", X.dtype, "r+", shape=X.shape)
    measure = array_api.bounded_rows

    def grow(*arguments):
        rows = measure(*arguments)
        edit[277] = 1e6
        return rows

    for module in (array_api, memory):
        monkeypatch.setattr(module, "bounded_rows", grow)
    found = getattr(problem, what)(*arguments)
    assert edit[277, 0] == 1e6
    np.testing.assert_array_equal(found, expected)


def test_sums_of_a_file_have_at_most_the_parts_that_the_noise_covers(tmp_path, monkeypatch):
    X, y, _ = draw(30, 2)
    called, part = [], Blocks._part
    monkeypatch.setattr(Blocks, "_part", lambda *given: called.append(1) or part(*given))
    with small_blocks():
        problem = ERM(mapped(X, tmp_path / "X"), y, losses.Logistic())
        problem.gradient_sum(np.ones((1, 2)), [np.arange(31) % 30])
        assert 1 < len(called) <= problem._data.parts


def test_integers_beyond_the_digits_of_single_precision_are_exact(tmp_path):
    X = np.array([[2**24 + 1], [1]], np.int32)
    problem = ERM(mapped(X, tmp_path / "X"), [1.0, 1.0], losses.SquaredError())
    assert problem.gradient_sum(np.zeros((1, 1))) == -(2.0**24 + 2.0)


def test_labels_that_change_after_they_were_checked_count_as_they_were(tmp_path, monkeypatch):
    X, y, _ = draw(30, 2)
    y = y.astype(np.float64)
    with small_blocks():
        problem = ERM(mapped(X, tmp_path / "X"), mapped(y, tmp_path / "y"), losses.Logistic())
        edit = np.memmap(tmp_path / "y", y.dtype, "r+", shape=y.shape)
        expected, check = problem.gradient_sum(np.ones((1, 2))), Blocks._invalid_rows

        def change(*given):
            found = check(*given)
            edit[7] = 1e6
            return found

        monkeypatch.setattr(Blocks, "_invalid_rows", change)
        np.testing.assert_array_equal(problem.gradient_sum(np.ones((1, 2))), expected)
    assert edit[7] == 1e6


def test_a_sparse_row_that_has_become_invalid_counts_as_a_row_of_zeros():
    made = [(np.diag([0.3, 0.6]), [-1.0, 1.0]), (np.diag([0.0, 0.6]), [1.0, 1.0])]
    found, expected = (
        Blocks(sp.csr_array(X), np.array(y), losses.Logistic(), (RowBound(2, 1.0),))
        for X, y in made
    )
    found._rows.data[0] = np.nan
    given = np.ones((1, 2)), None, clipping.Flat(0.1), None, True, True
    for one, other in zip(found.sums(*given), expected.sums(*given)):
        np.testing.assert_array_equal(one, other)


def test_a_problem_in_place_is_checked_again_where_it_is_unpickled(tmp_path):
    X, y, _ = draw(300, 4)
    problem = ERM(mapped(X, tmp_path / "X"), y, losses.Hinge(), row_bound=RowBound(2, 2.0))
    edit = np.memmap(tmp_path / "X", X.dtype, "r+", shape=X.shape)
    edit[7] = [0.0, 1e9, 0.0, 0.0]
    data = pickle.dumps(problem)
    again = pickle.loads(data).sums(np.zeros(4), np.array([7]))
    assert abs(again.gradient[1]) == pytest.approx(2.0)
    edit[7] = np.nan
    with pytest.raises(ValueError, match="X must be finite"):
        pickle.loads(data)


@pytest.mark.parametrize(("dtype", "header"), [("f4", 3), ("f8", 100_003)])
def test_rows_behind_a_header_of_any_length(tmp_path, dtype, header):
    """Then the numbers are unaligned, and the map starts at a later page."""
    X, y, random = draw(100, 3, dtype)
    (tmp_path / "X").write_bytes(b"x" * header + X.tobytes())
    file = np.memmap(tmp_path / "X", dtype, "r", header, X.shape)
    assert not file.flags.aligned
    problem, reference = (
        ERM(data, y, losses.Logistic(), None, RowBound(2, 2.0)) for data in (file, X)
    )
    assert_same_problem(problem, reference, random, clipping.Flat(0.3))
    assert_same_problem(pickle.loads(pickle.dumps(problem)), reference, random)


@pytest.mark.parametrize("in_place", [False, True])
def test_pickled_problems_open_their_file_again(tmp_path, in_place):
    """Slices too, although a slice does not record its offset in the file."""
    X, y, random = draw(5000, 20)
    whole = mapped(X, tmp_path / "X")
    with ExitStack() as stack:
        if not in_place:
            stack.enter_context(small_blocks(10_000))
        problem = ERM(whole[1000:4000], y[1000:4000], losses.Logistic(), None, RowBound(2, 5.0))
        w = random.standard_normal(20)
        expected = problem.sums(w, clipping=clipping.Flat(0.1))
        data = pickle.dumps(problem)
        assert len(data) < 100_000 < X.nbytes
        found = pickle.loads(data).sums(w, clipping=clipping.Flat(0.1))
        np.testing.assert_array_equal(found.gradient, expected.gradient)


def test_maps_in_the_order_of_columns_are_pickled(tmp_path):
    X, y, random = draw(100, 3)
    problem = ERM(mapped(X, tmp_path / "X", order="F"), y, losses.Logistic())
    w = random.standard_normal(3)
    assert pickle.loads(pickle.dumps(problem)).value(w) == problem.value(w)


def test_maps_without_a_name_are_not_pickled():
    X, y, _ = draw(100, 2)
    with pytest.raises(TypeError, match="named file"):
        pickle.dumps(ERM(mapped(X), y, losses.Logistic()))


def test_the_size_of_a_file_is_known_by_its_map(tmp_path):
    """The check relies on it: ``size()`` is that of the file, not of the map."""
    (tmp_path / "file").write_bytes(b"x" * (2 * mmap.PAGESIZE))
    with open(tmp_path / "file", "rb") as file:
        view = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    os.truncate(tmp_path / "file", 10)
    assert (view.size(), len(view)) == (10, 2 * mmap.PAGESIZE)


# Memory

_LIMITED = """
import resource, sys
import numpy as np
from dpanalysis import ERM, RowBound, clipping, losses, methods, minimize
from dpanalysis.privacy.accounting.sampling import Poisson
from dpanalysis.problems.rows import mapped

folder, limit = sys.argv[1], int(sys.argv[2])

def use(n, dtype):
    X = np.memmap(f"{folder}/{dtype}", dtype, "r", shape=(n, 8))
    y = np.memmap(f"{folder}/y", "i1", "r", shape=(n,))
    problem = ERM(X, y, losses.Logistic(), row_bound=RowBound(2, 2.0))
    flat = clipping.Flat(0.1)
    sgd = methods.SGD(
        step_size=1.0, iterations=1, noise=[1e-3], sampling=Poisson(1e-3), clipping=flat
    )
    w = minimize(problem, sgd, rng=0, record=("objective", "gradient_norm")).w
    problem.sums(np.concatenate([w, w]), clipping=flat)
    problem.hessian(w[0])
    return problem

mapped._ROWS_KEPT = 0
use(300_000, "f4"), use(300_000, "u1")  # loads every kernel, those of several tasks too
if limit:
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    use(limit // 32 + 1_000_000, "f4"), use(limit // 8 // 4, "u1")
    try:
        np.ones(limit // 8)
    except MemoryError:
        print("limited")
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="RLIMIT_DATA counts on Linux")
def test_memory_does_not_grow_with_the_file(tmp_path):
    """The file exceeds the memory limit of the whole process, code and kernels included."""
    limit = 256 << 20
    n = limit // 32 + 1_000_000
    for name, size in (("f4", 32 * n), ("u1", 8 * n)):
        with open(tmp_path / name, "wb") as file:
            file.truncate(size)  # zeros that occupy no disk space
    np.ones(n, np.int8).tofile(tmp_path / "y")
    assert (tmp_path / "f4").stat().st_size > limit
    environment = {**os.environ, "NUMBA_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    for each in (0, limit):  # the first run compiles what is not in the cache
        done = subprocess.run(
            [sys.executable, "-c", _LIMITED, str(tmp_path), str(each)],
            capture_output=True,
            text=True,
            env=environment,
        )
        assert done.returncode == 0, done.stderr
    assert done.stdout == "limited\n"


@pytest.mark.parametrize("in_place", [False, True])
def test_a_file_that_was_cut_is_refused_before_anything_is_spent(tmp_path, in_place):
    X, y, _ = draw(400, 5)
    with ExitStack() as stack:
        if not in_place:
            stack.enter_context(small_blocks())
        bound = RowBound(2, 10.0, enforce="clip")
        problem = ERM(mapped(X, tmp_path / "X"), y, losses.Logistic(), row_bound=bound)
        os.truncate(tmp_path / "X", 80)
        with pytest.raises(OSError, match="has changed its size"):
            problem.check_private()
