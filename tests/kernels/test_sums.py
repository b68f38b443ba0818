"""Sums over records on every code path: rounding bounds, and zero for non-finite terms."""

import math
from fractions import Fraction
from types import SimpleNamespace

import array_api_strict
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from dpanalysis import ERM, RowBound, clipping, losses
from dpanalysis.kernels import array_api
from dpanalysis.kernels.rounding import BLOCK_ROWS, sum_rounding

CUSTOM = clipping.Custom(lambda norm, loss: 1.0 / max(norm, 1.0), 1.0)
# name -> (form of the data, clipping rule, replicates)
PATHS = {
    "dense": (lambda X: X, clipping.Flat(1.0), 1),
    "float32": (lambda X: X.astype(np.float32), clipping.Flat(1.0), 1),
    "csr": (sp.csr_array, clipping.Flat(1.0), 1),
    "replicates": (lambda X: X, clipping.Flat(1.0), 3),
    "csr replicates": (sp.csr_array, clipping.Flat(1.0), 3),
    "array": (lambda X: X, CUSTOM, 1),
    "csr array": (sp.csr_array, CUSTOM, 2),
    "strict": (array_api_strict.asarray, clipping.Flat(1.0), 1),
    "strict float32": (
        lambda X: array_api_strict.asarray(X.astype(np.float32)),
        clipping.Flat(1.0),
        2,
    ),
}


def labels_as_terms(form, rule, replicates, y, columns=1):
    """Return minus the sum of gradients, each of which is minus the label in all columns."""
    X = form(np.ones((len(y), columns)))
    labels = y if sp.issparse(X) or isinstance(X, np.ndarray) else array_api_strict.asarray(y)
    problem = ERM(X, labels, losses.SquaredError())
    w = np.zeros((replicates, columns))
    return -np.asarray(problem.sums(w, clipping=rule, value=False).gradient)


def worst(path, n):
    """Search labels whose sum always rounds in one direction; return the largest error."""
    form, rule, replicates = PATHS[path]
    found = 0.0
    for low in (0.5, 0.75, 1.0 - 2.0**-20):
        for bits in (36, 39, 41, 42, 43, 44, 46, 50):
            # Just over half a unit in the last place of partial sums of some size.
            y = np.full(n, low + 2.0**-bits * 1.0000001)
            if path == "strict float32":
                y = y.astype(np.float32).astype(np.float64)
            y[::2] -= 2.0**-52
            y = np.minimum(y, 1.0)
            if path == "strict float32":
                y = y.astype(np.float32).astype(np.float64)
            exact = math.fsum(y)
            total = labels_as_terms(form, rule, replicates, y)
            assert total.shape == (replicates, 1)
            found = max(found, float(np.abs(total - exact).max()))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("path", PATHS)
def test_the_worst_rounding_that_a_search_finds_is_within_the_bound(path):
    """The bound is not arbitrarily loose: sequential sums in single precision violate it."""
    n = 40_000
    bound, found = sum_rounding(n, 1), worst(path, n)
    assert found <= bound
    if path != "strict float32":  # its labels have too few bits for rounding errors
        assert found >= bound / 5000
    y = np.full(n, 0.75 + 2.0**-30 * 1.0000001)
    single = np.float32(0.0)
    for term in y.astype(np.float32):
        single += term
    assert abs(float(single) - math.fsum(y)) > 1000 * bound


def test_single_precision_sums_would_break_the_bound_on_the_array_path():
    """The sum over records of float32 data is computed in double, here with varying entries."""
    random = np.random.default_rng(0)
    n = 20_000
    X = random.random((n, 3)).astype(np.float32)
    y = array_api_strict.asarray(random.choice([-1.0, 1.0], n).astype(np.float32))
    problem = ERM(array_api_strict.asarray(X), y, losses.Logistic(), row_bound=RowBound(2, 2.0))
    found = np.asarray(problem.sums(np.zeros(3), value=False).gradient)
    terms = -0.5 * np.asarray(y, dtype=np.float64)[:, None] * X.astype(np.float64)
    exact = np.array([float(sum(map(Fraction, column))) for column in terms.T.tolist()])
    assert np.abs(found - exact).max() <= 2.0 * sum_rounding(n, 3)


@pytest.mark.slow
@pytest.mark.parametrize("path", PATHS)
@settings(max_examples=15)
@given(data=st.data())
def test_sums_are_within_the_bound_of_the_exact_ones(path, data):
    """Random numbers of rows near block boundaries, terms of many sizes, several columns."""
    form, rule, replicates = PATHS[path]
    n = data.draw(st.sampled_from([1, 3, 255, 257, 4095, 4096, 4097, 8193, 12_289]))
    random = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    y = random.uniform(-1.0, 1.0, n) * 2.0 ** random.integers(-30, 1, n)
    if path == "strict float32":
        y = y.astype(np.float32).astype(np.float64)
    y *= 0.5  # three columns, so that no label is clipped
    total = labels_as_terms(form, rule, replicates, y, columns=3)
    error = np.abs(total - math.fsum(y)).sum(axis=1).max()
    assert error <= sum_rounding(n, 3)


@pytest.mark.parametrize("path", ["dense", "float32", "csr", "replicates", "csr replicates"])
def test_a_sum_over_several_blocks_has_every_row_once(path):
    """One task has three blocks of 4,096 rows, the last of them partial."""
    form, _, replicates = PATHS[path]
    y = np.random.default_rng(0).uniform(-1.0, 1.0, 3 * BLOCK_ROWS - 100)
    found = labels_as_terms(form, None, replicates, y)
    np.testing.assert_allclose(found, np.full((replicates, 1), y.sum()), rtol=1e-12)
    problem = ERM(form(np.ones((len(y), 1))), y, losses.SquaredError())
    values = problem.sums(np.zeros((replicates, 1)), gradient=False).value
    np.testing.assert_allclose(values, np.full(replicates, 0.5 * (y @ y)), rtol=1e-12)


@pytest.mark.parametrize("path", ["dense", "float32", "csr", "replicates", "csr replicates"])
def test_a_block_has_at_most_so_many_rows_in_every_kernel(path):
    """Small terms are lost beside 2^53 a tile at a time, but not as the sum of a block of rows."""
    form, _, replicates = PATHS[path]
    y = np.full(3 * BLOCK_ROWS - 100, 2.0**-10)
    y[0] = 2.0**53
    assert (labels_as_terms(form, None, replicates, y) >= 2.0**53 + 4.0).all()
    problem = ERM(form(np.ones((len(y), 1))), np.sqrt(2.0 * y), losses.SquaredError())
    values = problem.sums(np.zeros((replicates, 1)), gradient=False).value
    assert (values >= 2.0**53 + 4.0).all()


@pytest.mark.parametrize("d", [1, 4, 5, 20, 32, 33, 130])
@pytest.mark.parametrize("path", ["dense", "float32", "csr", "replicates", "csr replicates"])
def test_a_record_adds_the_same_wherever_it_stands(path, d):
    """Otherwise an added record would change, by rounding, the terms of all later records.

    Predictions nearly cancel, so that another order of additions changes their sign.
    """
    form, rule, replicates = PATHS[path]
    random = np.random.default_rng(3)
    row = random.standard_normal(d) * 10.0 ** random.integers(-3, 4, d)
    w = random.standard_normal((replicates, d))
    if d > 1:
        w[:, 0] -= (w @ row) / row[0]
    n = 603
    problem = ERM(form(np.tile(row, (n, 1))), np.ones(n), losses.Hinge())
    terms = set()
    for place in [*range(12), 255, 256, 257, 299, 300, 301, 511, 512, *range(590, n)]:
        alone = np.zeros(n)
        alone[place] = 1.0
        terms.add(problem.sums(w * 1e17, clipping=rule, weights=alone).gradient.tobytes())
        one = problem.sums(w * 1e17, np.array([place]), clipping=rule).gradient
        terms.add(one.tobytes())
    assert len(terms) == 1


@pytest.mark.slow
@pytest.mark.parametrize("replicates", [1, 3])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
@settings(max_examples=10)
@given(width=st.floats(1e-3, 1e3), seed=st.integers(0, 2**32))
def test_a_coefficient_is_the_same_in_a_vector_register_and_beside_it(
    form, replicates, width, seed
):
    """The last rows of a tile are computed one by one, where a reciprocal rounds differently."""
    random = np.random.default_rng(seed)
    n = 263
    row = random.standard_normal(5)
    w = random.standard_normal((replicates, 5))
    for loss, near in [
        (losses.HuberizedHinge(width), 1.0 + random.uniform(-width, width, replicates)),
        (losses.Logistic(), random.uniform(-3.0, 3.0, replicates)),
        (losses.SquaredError(), random.uniform(-3.0, 3.0, replicates)),
        (losses.Huber(width), 1.0 + random.uniform(-width, width, replicates)),
    ]:
        problem = ERM(form(np.tile(row, (n, 1))), np.ones(n), loss)
        w *= (near / (w @ row))[:, None]
        for rule in (None, clipping.Automatic(0.3), clipping.PerSampleAdaptive(0.3)):
            terms = set()
            for place in [*range(4), *range(252, n)]:
                alone = np.zeros(n)
                alone[place] = 1.0
                total = problem.sums(w, clipping=rule, weights=alone)
                terms.add(total.gradient.tobytes() + total.value.tobytes())
            assert len(terms) == 1


# Non-finite terms

FAULTS = {
    "prediction inf": ([1e300, 0.0], 1.0),
    "prediction -inf": ([-1e300, 0.0], 1.0),
    "prediction nan": ([1e300, -1e300], 1.0),
}
RULES = {
    "none": None,
    "flat": clipping.Flat(0.5),
    "automatic": clipping.Automatic(2.0, 0.5),
    "adaptive": clipping.PerSampleAdaptive(0.5, 0.5),
    "custom": clipping.Custom(lambda norm, loss: 0.1 / (norm + loss + 1.0), 0.5),
}
FORMS = {"dense": lambda X: X, "csr": sp.csr_array, "strict": array_api_strict.asarray}
LOSSES = [
    losses.Logistic(),
    losses.SquaredError(),
    losses.Hinge(),
    losses.HuberizedHinge(),
    losses.Huber(0.5),
]


@pytest.mark.parametrize("replicates", [1, 5])
@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("form", FORMS)
def test_what_is_not_finite_adds_exactly_zero(form, rule, loss, replicates):
    """Value, gradient and count equal, to the last bit, those without the record."""
    random = np.random.default_rng(5)
    X, w = random.standard_normal((9, 2)), np.full((replicates, 2), 1e10)
    w[1:] = random.standard_normal((replicates - 1, 2)) * 1e10
    w[:, 1] = w[:, 0]
    y = np.where(random.random(9) < 0.5, -1.0, 1.0)
    for fault, label in FAULTS.values():
        table, labels = np.vstack([X[:4], [fault], X[4:]]), np.insert(y, 4, label)
        bad, none = np.zeros(10), np.zeros(10)
        bad[4] = 1.0
        problem = ERM(FORMS[form](table), labels, loss)
        with np.errstate(all="ignore"):
            if not (np.isfinite(table[4] @ w.T)).any():
                alone = problem.sums(w, np.array([4]), clipping=RULES[rule])
                assert not np.asarray(alone.gradient).any() and not np.asarray(alone.value).any()
                assert not np.asarray(alone.clipped).any()
            both = [problem.sums(w, clipping=RULES[rule], weights=1.0 - k) for k in (bad, none)]
        for name in ("value", "gradient", "clipped"):
            without, with_it = (np.asarray(getattr(sums, name)) for sums in both)
            assert np.isfinite(with_it).all()
            np.testing.assert_array_equal(with_it, without)


@pytest.mark.parametrize("form", FORMS)
def test_a_loss_that_overflows_is_left_out_of_the_value_alone(form):
    """Squares overflow where the residual does not; the gradient never needs the loss."""
    X = FORMS[form](np.array([[1.0], [1e-160]]))
    problem = ERM(X, np.zeros(2), losses.SquaredError())
    rule, w = clipping.Flat(1.0), [1e160]
    both, gradient = problem.sums(w, clipping=rule), problem.sums(w, None, rule, False)
    assert both.value == 0.5
    assert both.gradient == gradient.gradient == pytest.approx(1.0, rel=1e-14)
    assert both.clipped == gradient.clipped == 1
    by_loss = clipping.Custom(lambda norm, loss: 0.5 / (norm + 1.0), 1.0)
    total = problem.sums(w, clipping=by_loss)
    assert total.gradient == pytest.approx(0.5e-160) and total.clipped == 1


@pytest.mark.parametrize("form", FORMS)
def test_a_sample_whose_loss_overflows_adds_nothing_and_is_not_counted_as_clipped(form):
    X = FORMS[form](np.ones((3, 1)))
    problem = ERM(X, np.zeros(3), losses.SquaredError(), row_bound=RowBound(2, 1.0))
    total = problem.sums(np.full((2, 1), 1e200), clipping=clipping.Value(1.0, 2.0))
    assert not np.asarray(total.gradient).any() and not np.asarray(total.clipped).any()


@pytest.mark.parametrize("form", FORMS)
def test_a_sample_whose_gradient_overflows_adds_nothing_and_is_not_counted_as_clipped(form):
    """Its row and its residual are finite numbers."""
    problem = ERM(FORMS[form](np.array([[1e200], [1.0]])), np.full(2, 1e200), losses.SquaredError())
    for replicates in (1, 2):
        with np.errstate(over="ignore"):
            total = problem.sums(np.zeros((replicates, 1)), None, clipping.Flat(1.0), False)
        np.testing.assert_allclose(total.gradient, -1.0)
        np.testing.assert_array_equal(total.clipped, 1)


def test_a_weight_that_rounds_up_to_a_subnormal_number_is_zero():
    ones = {"largest_weight": 1.0, "weight": lambda norms, losses: norms**0.0}
    rule = SimpleNamespace(clip_norm=1e-15, **ones)
    norms = np.geomspace(1e307, 1.7e308, 100)
    weights = array_api.clip_to_bound(rule, norms, None)
    assert (weights * norms <= 1e-15).all() and weights.any()


@given(
    norms=st.lists(st.floats(1e-3, 1e30), min_size=1, max_size=20),
    clip_norm=st.floats(1e-3, 1e3),
    over=st.floats(0.5, 2.0),
)
def test_weights_rounded_to_single_precision_keep_the_bound(norms, clip_norm, over):
    """By exact products; the rule itself may exceed its bound."""
    norms = np.array([*norms, clip_norm, clip_norm / over])
    rule = SimpleNamespace(
        clip_norm=clip_norm, largest_weight=2.0, weight=lambda norms, losses: 0.0 * norms + over
    )
    for dtype in (np.float32, np.float64):
        weights = array_api.clip_to_bound(rule, norms, None, np.dtype(dtype)).astype(dtype)
        assert (weights > 0.0).all()
        for weight, norm in zip(weights.tolist(), norms.tolist(), strict=True):
            assert Fraction(weight) * Fraction(norm) <= Fraction(clip_norm)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("clip_norm", [1.0, 1e-12, 1e-15])
@pytest.mark.parametrize("rows", [1, 3])
def test_a_coefficient_near_the_end_of_the_numbers_is_not_rounded_up(form, clip_norm, rows):
    """1e-15/1.7e308 rounds to a multiple of the smallest subnormal, up to half too large."""
    for size in (1.7e308, 1.3e308, 0.9e308, 3e307):
        X = FORMS[form](np.full((rows, 1), size))
        problem = ERM(X, np.full(rows, -1.0), losses.Logistic())
        w = np.zeros((4 if form == "csr" else 1, 1))
        total = problem.sums(w, clipping=clipping.Flat(clip_norm), value=False).gradient
        assert (np.abs(np.asarray(total)) <= rows * clip_norm * (1 + 1e-13)).all()


def test_scaled_sparse_rows_keep_their_shape_and_the_order_of_their_entries():
    X = sp.csr_array(
        (np.array([2.0, 3.0, 5.0]), np.array([2, 0, 1]), np.array([0, 2, 3, 3])), (3, 5)
    )
    scaled = array_api.scaled_rows(X, np.array([0.5, 2.0, 7.0]))
    np.testing.assert_array_equal(scaled.toarray(), np.diag([0.5, 2.0, 7.0]) @ X.toarray())
    assert scaled.indices.tolist() == [2, 0, 1]
