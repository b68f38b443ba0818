"""Data in Dask arrays: the same sums for any chunks, scheduler and number of workers."""

import pickle
import subprocess
import sys
import threading
from contextlib import contextmanager

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from test_chunks import BAD, BOUNDS, LOSSES, RULES, assert_same, assert_same_problem, draw

from dpanalysis import ERM, RowBound, clipping, losses, methods, minimize, regularizers
from dpanalysis.privacy.accounting.sampling import Poisson
from dpanalysis.problems import Softmax
from dpanalysis.problems.rows import mapped
from dpanalysis.problems.rows.mapped import Blocks

dask = pytest.importorskip("dask", reason="dask is not installed: dpanalysis-toolkit[dask]")
da = pytest.importorskip("dask.array", reason="dask is not installed: dpanalysis-toolkit[dask]")
chunked = pytest.importorskip("dpanalysis.problems.rows.dask")


@pytest.mark.slow
@given(
    sizes=st.lists(st.integers(0, 20), min_size=1, max_size=20).filter(any),
    d=st.integers(1, 6),
    dtype=st.sampled_from(["f2", "f4", "f8", "i1", "i4", "?"]),
    form=st.sampled_from([None, sp.csr_array, sp.csc_matrix]),
    labels=st.sampled_from(["array", "aligned", "other chunks"]),
    loss=st.sampled_from(LOSSES),
    rule=st.sampled_from(RULES),
    bounds=st.sampled_from(BOUNDS),
    seed=st.integers(0, 2**32 - 1),
)
def test_chunks_give_the_sums_of_the_data_in_memory(
    sizes, d, dtype, form, labels, loss, rule, bounds, seed
):
    n = sum(sizes)
    X, y, random = draw(n, d, "f8", seed)
    X = X.astype(dtype if form is None or dtype != "f2" else "f4")  # SciPy has no float16
    parts = da.from_array(X, chunks=(tuple(sizes), d))
    if form is not None:
        parts = parts.map_blocks(form)
    if labels != "array":
        y_parts = da.from_array(y, chunks=(tuple(sizes),) if labels == "aligned" else 7)
    arguments = (loss, regularizers.L2(0.1), bounds)
    reference = ERM(X.astype(np.float64), y, *arguments)
    with dask.config.set(scheduler="synchronous"):
        problem = ERM(parts, y if labels == "array" else y_parts, *arguments)
        random = np.random.default_rng(seed)
        W, weights = random.standard_normal((3, d)), random.random(n)
        batch = random.integers(0, n, 9)
        for w, rows in ((W, None), (W[0], batch), (W, [batch, batch[:0], np.arange(n)])):
            given = {"rows": rows, "clipping": rule, "weights": weights}
            assert_same(problem.sums(w, **given), reference.sums(w, **given))
        ours, other = (p.line_losses(W[0], W[1], batch)(0.3) for p in (problem, reference))
        assert_same([ours], [other])


def test_sums_have_at_most_the_parts_that_the_noise_covers(monkeypatch):
    called, part = [], mapped.Blocks._part
    monkeypatch.setattr(mapped.Blocks, "_part", lambda *given: called.append(1) or part(*given))
    for module in (mapped, chunked):
        monkeypatch.setattr(module, "BLOCK_BYTES", 10 * (3 * 8 + mapped.ROW_BYTES))
    with dask.config.set(scheduler="synchronous"):
        problem = ERM(da.zeros((95, 3), chunks=((50, 45), 3)), np.ones(95), losses.Logistic())
        problem.gradient_sum(np.zeros((1, 3)))
        assert len(called) == 10 <= problem._data.parts
        called.clear()
        problem.gradient_sum(np.zeros((1, 3)), [np.arange(96) % 95])
        assert len(called) <= problem._data.parts


@pytest.fixture(scope="module")
def data():
    X, y, random = draw(600, 5)
    return X, y, da.from_array(X, chunks=((100, 0, 250, 50, 200), 5)), random


def test_everything_that_is_offered(data):
    X, y, parts, random = data
    arguments = (losses.Logistic(), regularizers.L2(0.1), RowBound(2, 4.0))
    with dask.config.set(scheduler="synchronous"):
        problem, reference = ERM(parts, y, *arguments), ERM(X, y, *arguments)
        assert_same_problem(problem, reference, random, RULES[1])
        assert_same([problem.solve()], [reference.solve()])
        w = random.standard_normal(5)
        assert reference.accuracy(w, parts, da.from_array(y)) == reference.accuracy(w, X, y)
        again = pickle.loads(pickle.dumps(problem))
        np.testing.assert_array_equal(again.gradient(w), problem.gradient(w))


ENTRIES = np.array([100, 100, 3], np.int8)
TWICE = [
    sp.coo_array((ENTRIES, ([0, 0, 1], [1, 1, 0])), shape=(2, 2)),
    sp.csr_array((ENTRIES, [1, 1, 0], [0, 2, 3]), shape=(2, 2)),
    sp.csc_array((ENTRIES[::-1].copy(), [1, 0, 0], [0, 1, 3]), shape=(2, 2)),
]


@pytest.mark.parametrize("chunk", TWICE, ids=lambda chunk: chunk.format)
def test_entries_of_a_sparse_chunk_add_up(chunk):
    """Duplicates are added before the norm, beyond the range of int8: the row has norm 200."""
    parts = da.zeros((2, 2), chunks=2, dtype=np.int8).map_blocks(
        lambda _: chunk, meta=np.empty((0, 0), np.int8)
    )
    arguments = (np.ones(2), losses.Hinge(), None, RowBound(2, 150.0))
    with dask.config.set(scheduler="synchronous"):
        for problem in (ERM(parts, *arguments), ERM(chunk, *arguments)):
            for rows in (None, np.array([0, 1])):
                found = problem.sums(np.zeros(2), rows).gradient
                np.testing.assert_allclose(found, [-3.0, -150.0])
            assert problem.value(np.array([0.0, -1.0])) == pytest.approx((151.0 + 1.0) / 2)


def test_chunks_that_change_stay_within_their_bound(data):
    """A chunk with other values at each computation stays within the public bound."""
    X, y, _, _ = data
    change = {"by": 1e-3}
    parts = da.from_array(X, chunks=(200, 5)).map_blocks(lambda block: change["by"] * block)
    with dask.config.set(scheduler="synchronous"):
        problem = ERM(parts, y, losses.Hinge(), row_bound=RowBound(2, 1.0))
        change["by"] = 1e6
        for row in (3, 250, 599):
            found = problem.sums(np.zeros(5), np.array([row])).gradient
            assert np.linalg.norm(found) == pytest.approx(1.0)
        change["by"] = np.nan
        assert (problem.sums(np.zeros(5), value=False).gradient == 0.0).all()


# Schedulers


@contextmanager
def cluster():
    """A local cluster; while it runs, older versions warn about other schedulers."""
    distributed = pytest.importorskip("distributed", reason="dpanalysis-toolkit[dask]")
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    with distributed.LocalCluster(**options) as local, distributed.Client(local):
        yield


def run(problem):
    method = methods.SGD(
        step_size=0.5,
        iterations=3,
        noise=[0.1] * 3,
        sampling=Poisson(0.2),
        clipping=clipping.Custom(lambda norm, loss: 0.5 / (norm + 0.5), 0.5),
    )
    result = minimize(problem, method, rng=1, replicates=2, record=("objective", "gradient_norm"))
    full = methods.GradientDescent(step_size=0.4, iterations=2)
    descended = minimize(problem, full, rng=1, record=("gap", "accuracy"))
    return [result.w, *result.history.values(), descended.w, *descended.history.values()]


@pytest.mark.slow
def test_runs_give_the_same_bits_on_a_cluster(data):
    X, y, parts, _ = data
    arguments = (losses.Logistic(), regularizers.L2(0.1), RowBound(2, 4.0))
    with cluster():
        remote = run(ERM(parts.persist(), da.from_array(y, chunks=70).persist(), *arguments))
    for options in ({"scheduler": "synchronous"}, {"scheduler": "threads", "num_workers": 4}):
        with dask.config.set(**options):
            for one, other in zip(run(ERM(parts, y, *arguments)), remote, strict=True):
                np.testing.assert_array_equal(one, other)
    np.testing.assert_allclose(remote[0], run(ERM(X, y, *arguments))[0], rtol=1e-11)


@pytest.fixture
def counted():
    """The calls of the scheduler so far."""
    calls = []

    def get(graph, keys, **options):
        calls.append(keys)
        return dask.get(graph, keys, **options)

    with dask.config.set(scheduler=get):
        yield calls


def test_a_sum_is_one_call_and_reads_the_chunks_of_its_rows(data, counted):
    X, y, _, _ = data
    read = []

    def chunk(block):
        read.append(len(block))
        return block

    parts = da.from_array(X, chunks=((100, 0, 250, 50, 200), 5)).map_blocks(chunk, dtype=X.dtype)
    read.clear()
    problem = ERM(parts, y, losses.Logistic())
    assert sorted(read) == [50, 100, 200, 250]
    for rows, chunks in (
        (None, [50, 100, 200, 250]),
        (np.array([0, 120, 599]), [100, 200, 250]),
        (np.array([360]), [50]),
        (np.array([], dtype=int), []),
    ):
        counted.clear(), read.clear()
        problem.sums(np.zeros(5), rows, clipping=clipping.Flat(1.0))
        assert sorted(read) == chunks
        assert len(counted) == (1 if chunks else 0)


# Errors and warnings


def test_chunks_along_the_features_are_put_together(data):
    X, y, _, random = data
    with pytest.warns(UserWarning, match="2 chunks along the features and is rechunked") as found:
        problem = ERM(da.from_array(X, chunks=(200, 3)), y, losses.Logistic())
    assert found[0].filename == __file__
    w = random.standard_normal(5)
    assert_same(problem.sums(w), ERM(X, y, losses.Logistic()).sums(w))


def test_sizes_that_are_unknown_are_computed(data):
    X, y, parts, random = data
    kept = da.from_array(y, chunks=90)
    keep = parts[:, 0] > 0
    X_some, y_some = parts[keep], kept[keep.rechunk(90)]
    with pytest.warns(UserWarning, match="chunks of unknown sizes") as found:
        problem = ERM(X_some, y_some, losses.Logistic())
    assert {str(each.message)[0] for each in found} == {"X", "y"}
    assert {each.filename for each in found} == {__file__}
    assert np.isnan(X_some.shape[0])  # the caller's array is as it was
    w, inside = random.standard_normal(5), X[:, 0] > 0
    assert_same(problem.sums(w), ERM(X[inside], y[inside], losses.Logistic()).sums(w))


@pytest.mark.parametrize("case", BAD)
def test_bad_data_are_refused_in_the_same_words(case):
    X, y, arguments = BAD[case]
    with pytest.raises((ValueError, TypeError)) as expected:
        ERM(X, y, **arguments)
    with pytest.raises(expected.type) as found:
        ERM(da.from_array(X, chunks=40 if X.ndim == 1 else (40, 9)), y, **arguments)
    assert str(found.value) == str(expected.value)


@pytest.mark.parametrize(
    ("chunk", "error", "message"),
    [
        (
            lambda block: block[1:],
            ValueError,
            r"of X of shape \((.*), 5\) .* \(\1,\), as",
        ),
        (lambda block: block[:, 1:], ValueError, r"as the arrays' metadata say, got \(\d+, 4\)"),
        (lambda block: 1j * block, TypeError, "X must hold real numbers, got dtype complex128"),
        (list, TypeError, "chunks of X must be NumPy arrays or SciPy CSR matrices, got .*list"),
    ],
)
def test_chunks_that_are_not_what_the_metadata_say(data, chunk, error, message):
    parts = data[2].map_blocks(chunk, dtype=float, meta=np.empty((0, 0)))
    with dask.config.set(scheduler="synchronous"), pytest.raises(error, match=message):
        ERM(parts, data[1], losses.Logistic())


def test_other_collections_are_refused():
    with pytest.raises(TypeError, match=r"X must be a dask.array.Array, .*X.to_dask_array"):
        ERM(dask.delayed(np.ones)((3, 2)), np.ones(3), losses.Logistic())


def test_networks_refuse_dask_arrays(data):
    with pytest.raises(TypeError, match="got a Dask array, which ERM alone takes"):
        Softmax(data[2], np.zeros(600, int))


@pytest.mark.slow
def test_dask_is_not_imported_for_other_data():
    code = (
        "import sys, numpy as np, dpanalysis as dpa\n"
        "dpa.ERM(np.ones((2, 1)), np.ones(2), dpa.losses.Hinge()).value(np.zeros(1))\n"
        "print('dask' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_sums_of_chunks_have_at_most_the_parts_that_the_noise_covers(monkeypatch):
    called, part = [], Blocks._part
    monkeypatch.setattr(Blocks, "_part", lambda *given: called.append(1) or part(*given))
    problem = ERM(da.ones((30, 2), chunks=(7, 2)), np.ones(30), losses.Logistic())
    with dask.config.set(scheduler="synchronous"):
        problem.gradient_sum(np.ones((1, 2)))
    assert len(called) == 5 <= problem._data.parts


def here(value):
    """Return a property with another value outside the main thread, which stands for a worker."""
    inside = threading.main_thread()
    return property(lambda self: value if threading.current_thread() is inside else 10.0 * value)


def test_constants_that_are_others_in_a_worker_are_refused():
    """Its module may be older, or a global variable may have been changed in this process alone."""

    class Elsewhere(losses.Logistic):
        lipschitz = here(1.0)

    class Rule(clipping.Clipping):
        clip_norm = here(0.1)

        def wanted(self, norms, losses):
            return 1.0 / (1.0 + norms)

    X, bound = da.from_array(np.eye(4), chunks=(2, 4)), RowBound(2, 1.0)
    y = np.array([1.0, -1.0, 1.0, 1.0])
    with dask.config.set(scheduler="threads", num_workers=2):
        with pytest.raises(ValueError, match=r"loss: .* has the constants .*10\.0.* in a worker"):
            ERM(X, y, Elsewhere(), row_bound=bound)
        problem = ERM(X, y, losses.Logistic(), row_bound=bound)
        with pytest.raises(
            ValueError, match=r"clipping: .* \(1\.0, 1\.0\) in a worker, and \(0\.1"
        ):
            problem.sums(np.zeros(4), clipping=Rule())
    with dask.config.set(scheduler="synchronous"):
        problem = ERM(X, y, Elsewhere(), row_bound=bound)
        assert problem.sums(np.zeros(4), clipping=Rule()).clipped == 4
