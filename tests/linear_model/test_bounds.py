"""Bounds by blocks: rows are brought within them, and the constant is penalized."""

import math

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import dpanalysis as dpa
from dpanalysis.linear_model import LogisticRegression
from dpanalysis.linear_model.design import design_of
from dpanalysis.preprocessing import PublicColumns
from dpanalysis.privacy.facts import Block
from dpanalysis.problems.row_bound import implied_radius, with_constant
from dpanalysis.problems.rows.checks import block_norms, row_norms

LOGISTIC = dpa.losses.Logistic()
ENTRIES = st.one_of(
    st.sampled_from([0.0, 1.0, -1.0, 5e-324, 1e-310, 1e154, -1e300]), st.floats(-1e9, 1e9)
)
BLOCKS = st.lists(
    st.builds(
        Block, st.integers(1, 3), st.sampled_from([1, math.inf]), st.sampled_from([1e-3, 1.0, 40.0])
    ),
    min_size=1,
    max_size=3,
)


def exact_norms(X, blocks):
    ends = np.cumsum([block.size for block in blocks])
    parts = [abs(X[:, hi - b.size : hi]) / b.radius for b, hi in zip(blocks, ends)]
    return np.max(
        [p.sum(axis=1) if b.order == 1 else p.max(axis=1) for b, p in zip(blocks, parts)], axis=0
    )


@given(st.data(), BLOCKS)
def test_rows_are_brought_within_their_blocks(data, blocks):
    """Dense, float32, Fortran and sparse rows, read-only, with huge and tiny entries."""
    d, n = sum(block.size for block in blocks), 3
    X = np.array(data.draw(st.lists(ENTRIES, min_size=n * d, max_size=n * d))).reshape(n, d)
    bound = dpa.RowBound(tuple(blocks), 1.0)
    small = np.clip(X, -1e30, 1e30).astype(np.float32)
    X.flags.writeable = False
    for rows in (X, np.asfortranarray(X), sp.csr_array(X), small, sp.csr_array(small)):
        dense = rows.toarray() if sp.issparse(rows) else np.asarray(rows)
        dense = dense.astype(np.float64)
        with np.errstate(over="ignore"):
            np.testing.assert_allclose(block_norms(rows, blocks), exact_norms(dense, blocks))
        problem = dpa.ERM(rows, np.ones(n), LOGISTIC, row_bound=bound)
        scale = problem._data.scale
        kept = dense if scale is None else dense * np.asarray(scale, dtype=float)[:, None]
        assert exact_norms(kept, blocks).max() <= 1.0 + 1e-6 * (rows.dtype == np.float32) + 1e-12
        problem.check_private()
        # Each single gradient is within the bound from which the noise is computed.
        facts = problem.facts("add_or_remove_one")
        for i in range(n):
            g = problem.sums(np.zeros(d), rows=np.array([i])).gradient
            assert abs(g).sum() <= facts.gradient_bounds[0] * (1 + 1e-6)
            assert np.linalg.norm(g) <= facts.gradient_bounds[1] * (1 + 1e-6)


def test_mapped_rows_and_chunks_obey_too(tmp_path):
    da = pytest.importorskip("dask.array")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 5)) * 3
    bound = dpa.RowBound((Block(2, math.inf, 1.0), Block(3, 1, 1.0)), 1.0)
    y = np.sign(X[:, 0])
    mapped = np.memmap(tmp_path / "X", X.dtype, "w+", shape=X.shape)
    mapped[:] = X
    reference = dpa.ERM(X, y, LOGISTIC, row_bound=bound).gradient(np.ones(5))
    for rows in (mapped, np.memmap(tmp_path / "X", X.dtype, "r", shape=X.shape, order="C"),
                 da.from_array(X, chunks=(64, 5))):  # fmt: skip
        found = dpa.ERM(rows, y, LOGISTIC, row_bound=bound).gradient(np.ones(5))
        np.testing.assert_allclose(found, reference, rtol=1e-12)


def test_rows_that_grow_are_seen():
    X = np.full((4, 3), 0.2)
    for bound in (dpa.RowBound((Block(1, math.inf, 1.0), Block(2, 1, 1.0)), 1.0),
                  dpa.RowBound(math.inf, 1.0)):  # fmt: skip
        X[:] = 0.2
        problem = dpa.ERM(X, np.ones(4), LOGISTIC, row_bound=bound)
        X[2] = [0.1, 0.9, 1.2]
        with pytest.raises(ValueError, match=r"row 2 had an? .*norm"):
            problem.check_private()


def test_bounds_are_checked():
    with pytest.raises(ValueError, match="order of a block"):
        dpa.RowBound((Block(2, 2, 1.0),))
    with pytest.raises(TypeError, match="tuple of Block"):
        dpa.RowBound((1, 2))
    with pytest.raises(ValueError, match="order must be one of"):
        dpa.RowBound(3)
    three = dpa.RowBound((Block(3, 1, 1.0),), 1.0, "check")
    with pytest.raises(ValueError, match="blocks have 3 columns, and X has 2"):
        dpa.ERM(np.zeros((1, 2)), [1.0], LOGISTIC, row_bound=three)
    with pytest.raises(TypeError, match="bounds by blocks must be given as PublicColumns"):
        LogisticRegression(bounds=three).fit(np.zeros((2, 3)), [0, 1])
    with pytest.raises(ValueError, match="blocks have 3 columns, and rows have 2"):
        implied_radius((three,), 2, 2)
    with pytest.raises(ValueError, match="exceed the block bound"):
        dpa.ERM(np.ones((1, 3)), [1.0], LOGISTIC, row_bound=three)
    for size, order, radius in ((0, 1, 1.0), (1, 3, 1.0), (1, 1, 0.0), (1, 1, math.inf)):
        with pytest.raises((ValueError, TypeError)):
            Block(size, order, radius)


@pytest.mark.parametrize("radius", [1.0, 3.0])
@pytest.mark.parametrize("order", [1, 2])
def test_radii_that_bounds_imply_hold_at_the_corners(order, radius):
    """Every block of a row may have ``radius`` times the radius of the block."""
    blocks = (Block(3, math.inf, 0.5), Block(4, 1, 2.0), Block(2, math.inf, 1.0))
    corner = radius * np.concatenate([np.full(3, 0.5), [2.0, 0, 0, 0], np.ones(2)])[None, :]
    bound = dpa.RowBound(blocks, radius)
    problem = dpa.ERM(corner, [1.0], LOGISTIC, row_bound=bound)
    assert problem._data.scale is None
    assert problem.radius(order) == pytest.approx(np.linalg.norm(corner, ord=order, axis=1)[0])
    stated = problem.facts("replace_one").row_blocks
    assert [block.radius for block in stated[0]] == [radius * block.radius for block in blocks]


@pytest.mark.parametrize(
    ("order", "radius", "row"),
    [
        (1, 0.5, [0.5, 0.0]),
        (2, 0.5, [0.3, 0.4]),
        (math.inf, 0.5, [0.5, 0.5]),
        (math.inf, 4.0, [4.0, 4.0]),
        ((Block(1, 1, 1.0), Block(1, math.inf, 2.0)), 0.5, [0.5, 1.0]),
    ],
)
def test_the_bound_with_a_constant_holds_for_the_longest_row_and_the_constant(order, radius, row):
    bound = with_constant(dpa.RowBound(order, radius))
    assert row_norms(np.array([[*row, 1.0]]), bound.order)[0] == pytest.approx(bound.radius)


def test_the_constant_is_penalized_as_the_proof_needs_it():
    """All labels are equal: only the penalty bounds the weight of a constant column."""
    X = np.column_stack([np.linspace(-1, 1, 40), np.ones(40)])
    problem = dpa.ERM(X, np.ones(40), LOGISTIC, row_bound=dpa.RowBound(math.inf, 1.0))
    w, _ = problem.minimize_perturbed(np.array([0.0, -0.1]), 0.05, 1e-10, 40.0)
    gradient = problem.gradient(w) + np.array([0.0, -0.1])
    np.testing.assert_allclose(gradient, -0.05 * w, atol=1e-9)
    assert abs(w[1]) > 1.0


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("bounds", [(0, 1e-50), (-1e39, 1e39), dpa.RowBound(2, 1e-50)])
def test_bounds_that_single_precision_loses_are_refused_whatever_the_rows(bounds, kind, intercept):
    """A range that rounds to 0 used to turn 0 into NaN, and one row raised an error."""
    X = np.random.default_rng(0).uniform(0.1, 1, size=(200, 2)).astype(np.float32)
    y, model = X[:, 0] > 0.5, LogisticRegression(bounds=bounds, fit_intercept=intercept)
    for first in (1.0, 0.0):
        X[0] = first
        with pytest.raises(ValueError, match="bounds must be ranges and norms that float32"):
            model.fit(kind(X), y)
    assert np.isfinite(model.fit(X.astype(np.float64), y).coef_).all()


@pytest.mark.parametrize("columns", [3, 60])
@pytest.mark.parametrize("intercept", [False, True])
def test_sparse_features_are_cut_to_their_ranges_as_dense_ones_are(columns, intercept):
    X = np.random.default_rng(0).normal(size=(50, columns)) * 3.0
    for bounds in ((-1.0, 1.0), (-1.0, 2.0)):
        dense, sparse = (
            design_of(bounds, None, columns, intercept, kind)[0] for kind in (False, True)
        )
        if columns == 3 or bounds == (-1.0, 1.0):  # else sparse rows are not centered
            found = sparse.rows(sp.csr_array(X)).toarray()
            np.testing.assert_allclose(found, dense.rows(X), rtol=1e-12)
        assert abs(sparse.rows(sp.csr_array(X))).max() <= 1.0


@pytest.mark.parametrize("bounds", [(0.0, 1e-3), dpa.RowBound(2, 1e-3, "clip")], ids=str)
@pytest.mark.parametrize("store", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("intercept", [True, False])
def test_a_huge_number_is_cut_without_a_sign(bounds, store, intercept):
    """Its scaling overflows: a warning or an error would reveal that such a record exists."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0.0, 1e-3, size=(300, 2))
    y = X[:, 0] > X[:, 1]
    fits = []
    for huge in (1.0, 1e308):  # both beyond the bounds
        X[3] = [0.0, huge]
        model = LogisticRegression(bounds=bounds, fit_intercept=intercept, random_state=0)
        fits.append(model.fit(store(X), y).coef_)
    np.testing.assert_allclose(*fits, rtol=1e-12)
    X[3] = 1.7e308
    model.fit(store(X), y)


def test_duplicates_in_the_rows_of_the_caller_are_added_in_a_copy():
    X = sp.csr_array((np.full(100, 0.5), np.zeros(100, dtype=int), np.arange(0, 101, 2)), (50, 2))
    before = X.copy()
    LogisticRegression(bounds=dpa.RowBound(2, 2.0), random_state=0).fit(X, np.arange(50) % 2)
    for name in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(X, name), getattr(before, name))


@pytest.mark.parametrize("store", [np.asarray, sp.csr_array])
def test_a_huge_indicator_is_cut_without_an_error(store):
    """The norm of a row with three of them overflows: the error revealed that it was there."""
    columns = PublicColumns([-1.0, 0, 0, 0], [1.0, 1, 1, 1], [(1, 4)])
    X = np.eye(4)[np.arange(60) % 4]
    fits = []
    for huge in (1.0, 1.7e308):
        X[3] = [0.0, huge, huge, huge]
        model = LogisticRegression(bounds=columns, random_state=0)
        fits.append(model.fit(store(X), np.arange(60) % 2).coef_)
    np.testing.assert_array_equal(*fits)


@pytest.mark.parametrize("columns", [3, 60])
@pytest.mark.parametrize("bounds", [(10.0, 50.0), (-5.0, 50.0), (-9.0, -2.0)], ids=str)
def test_without_an_intercept_features_are_cut_to_both_ends(columns, bounds):
    """They used to be cut at the end of largest magnitude alone, and at its negative."""
    X = np.random.default_rng(0).uniform(-80, 80, size=(50, columns))
    dense, sparse = (design_of(bounds, None, columns, False, kind)[0] for kind in (False, True))
    unit = max(map(abs, bounds))
    np.testing.assert_allclose(unit * dense.rows(X), np.clip(X, *bounds), atol=1e-12)
    # A range that sparse rows can have holds 0.
    extended = min(*bounds, 0.0), max(*bounds, 0.0)
    found = unit * sparse.rows(sp.csr_array(X)).toarray()
    np.testing.assert_allclose(found, np.clip(X, *extended), atol=1e-12)


@pytest.mark.parametrize("order", [1, 2, math.inf])
@pytest.mark.parametrize("store", [np.asarray, sp.csr_array])
def test_a_row_over_its_bound_is_scaled_down_and_the_intercept_is_not(order, store):
    """The constant used to shrink with the row: probabilities were .76 where .70 is right."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 3)) * rng.uniform(0.5, 8.0, size=(500, 1))
    within = X * np.minimum(1.0, 2.0 / np.linalg.norm(X, order, axis=1))[:, None]
    y = X[:, 0] > -1.0
    model = LogisticRegression(100.0, bounds=dpa.RowBound(order, 2.0), random_state=0)
    coef, intercept = (getattr(model.fit(store(X), y), each) for each in ("coef_", "intercept_"))
    model.fit(store(within), y)
    np.testing.assert_allclose(coef, model.coef_, rtol=1e-9)
    np.testing.assert_allclose(intercept, model.intercept_, rtol=1e-9)
