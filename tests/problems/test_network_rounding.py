"""Single-precision sums of networks: rounding differences between neighbouring data sets."""

import math
from fractions import Fraction
from types import SimpleNamespace

import array_api_strict
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import example, given
from hypothesis import strategies as st

import dpanalysis as dpa
from dpanalysis import RowBound, clipping
from dpanalysis.kernels.rounding import SINGLE
from dpanalysis.problems import MLP, Softmax
from dpanalysis.problems.networks import base as network_sums
from dpanalysis.problems.networks import layers
from dpanalysis.problems.networks.base import network_rounding

C = 1.0
RULE = clipping.Flat(C)


def sum_and_terms(problem, w, monkeypatch, rule=RULE):
    """Return the computed sum, and the sum of the same terms in double precision."""
    exact = np.zeros((1, problem.d))
    add = network_sums.add_gradients

    def twice(xp, totals, layout, X, scale, hidden, deltas, factors, most, dtype):
        copies = [delta.copy() for delta in deltas]
        add(xp, exact, layout, X, scale, hidden, copies, factors, 1 << 30, np.float64)
        add(xp, totals, layout, X, scale, hidden, deltas, factors, most, dtype)

    with monkeypatch.context() as patch:
        patch.setattr(network_sums, "add_gradients", twice)
        return problem.sums(w, clipping=rule, value=False).gradient, exact[0]


def drifting(n, seed):
    """Return rows whose terms are nearly equal: every partial sum rounds to the same side."""
    rng = np.random.default_rng(seed)
    row = np.abs(rng.normal(size=6)).astype(np.float32)
    X = np.repeat(row[None, :], n, axis=0)
    return np.asfortranarray(X), np.zeros(n, int)


@pytest.mark.parametrize("n", [300, 1280, 1281, 5000])
@pytest.mark.parametrize("network", [Softmax, MLP])
def test_the_worst_sums_that_a_search_finds_are_within_the_bound(n, network, monkeypatch):
    """The largest rounding error over many seeds is within the bound, and of its order."""
    worst = 0.0
    for seed in range(12):
        X, y = drifting(n, seed)
        options = {} if network is Softmax else {"hidden": (4,)}
        problem = network(X, y, n_classes=2, **options)
        w = np.random.default_rng(seed).normal(size=problem.d)
        found, exact = sum_and_terms(problem, w, monkeypatch)
        worst = max(worst, np.linalg.norm(found - exact) / C)
    bound = network_rounding(n, problem.d, single=True)
    assert worst <= bound <= 0.02
    if n <= 1280:
        # Blocks of 256 rows in single precision: hundreds of roundings of 2^-24 in a sum.
        assert worst > n * SINGLE / 2
    else:  # in double precision
        assert worst < 1e-9


@pytest.mark.parametrize("form", ["dense", "csr"])
def test_larger_batches_are_added_up_in_double(form, monkeypatch):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(3000, 8)).astype(np.float32)
    y = rng.integers(0, 3, 3000)
    problem = MLP(sp.csr_array(X) if form == "csr" else X, y, (5,), 3)
    w = problem.initial(0)
    found, exact = sum_and_terms(problem, w, monkeypatch)
    np.testing.assert_allclose(found, exact, rtol=0.0, atol=1e-9 * C)


@pytest.mark.parametrize(("rule", "bound"), [(clipping.Flat(0.3), None), (None, RowBound(2, 0.7))])
def test_no_term_in_single_precision_is_longer_than_its_bound(rule, bound, monkeypatch):
    """Weights and rows are so far inside that the roundings that follow do not lead out."""
    for seed in range(60):
        X = 9.0 * np.random.default_rng(seed).normal(size=(1, 5)).astype(np.float32)
        problem = Softmax(X, np.array([0]), 3, row_bound=bound)
        w = 100.0 * np.concatenate([-X[0], X[0], 0.0 * X[0]])  # the largest gradient
        _, term = sum_and_terms(problem, w, monkeypatch, rule)
        most = problem.gradient_bound(2) if rule is None else rule.clip_norm
        assert (1.0 - 1e-5) * most <= np.linalg.norm(term) <= most


def test_the_rounding_is_public_and_enters_the_sensitivity():
    X, y = np.ones((60, 3)), np.arange(60) % 2
    for dtype, least, most in [("float32", 1e-4, 2e-3), ("float64", 0.0, 1e-9)]:
        problem = Softmax(X, y, 2, row_bound=RowBound(2, 1.0), dtype=dtype)
        for relation, times in [("replace_one", 2.0), ("add_or_remove_one", 1.0)]:
            facts = problem.facts(relation)
            assert least < facts.rounding < most
            expected = (times + 2.0 * facts.rounding) * C
            assert facts.record_sensitivity(2, RULE) == pytest.approx(expected, rel=1e-15)
            assert facts.record_sensitivity(2, RULE) > times * C
    erm = dpa.ERM(X, 2.0 * y - 1.0, dpa.losses.Logistic(), row_bound=RowBound(2, 1.0))
    assert 0.0 < erm.rounding < 1e-9


@pytest.mark.parametrize("rows", [1, 100, 256, 700])
def test_no_block_in_single_precision_is_longer_than_proved(rows, monkeypatch):
    lengths = []
    add = network_sums.add_gradients

    def record(xp, totals, layout, X, scale, hidden, deltas, factors, most, dtype):
        lengths.append((min(X.shape[0], most), np.dtype(dtype).itemsize))
        add(xp, totals, layout, X, scale, hidden, deltas, factors, most, dtype)

    monkeypatch.setattr(network_sums, "add_gradients", record)
    X = np.ones((5000, 2), np.float32)
    problem = Softmax(X, np.arange(5000) % 2, 2)
    problem.sums(np.zeros(4), np.arange(rows), RULE)
    assert {size for _, size in lengths} == {4} and max(lengths)[0] <= 256
    lengths.clear()
    problem.sums(np.zeros(4), clipping=RULE)
    assert {size for _, size in lengths} == {8} and max(lengths)[0] <= 4096


@pytest.mark.parametrize("bias", [False, True])
def test_one_block_is_added_up_in_the_portions_of_several(bias, monkeypatch):
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(300, 20)).astype(np.float32), rng.integers(0, 3, 300)
    problem = MLP(X, y, (16,), 3, "relu", bias, row_bound=RowBound(2, 3.0))
    w = rng.normal(size=(2, problem.d))
    whole = problem.sums(w, clipping=RULE, value=False).gradient
    assert len(list(problem._sums.blocks(None, 2))) == 1
    monkeypatch.setattr(problem._sums, "_step", lambda gathered, replicates, count: 256)
    assert len(list(problem._sums.blocks(None, 2))) == 2
    np.testing.assert_array_equal(problem.sums(w, clipping=RULE, value=False).gradient, whole)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_numbers_are_kept_to_the_last_bit_or_zero(dtype):
    numbers = np.array([1.5, -1.5, -0.0, np.inf, -np.inf, np.nan, 5e-324, 1e-45], dtype)
    for mask in (np.ones(8, bool), np.arange(8) % 2 == 0, np.zeros(8, bool)):
        kept = layers._kept(np, mask, numbers)
        assert kept.tobytes() == np.where(mask, numbers, np.zeros((), dtype)).tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize(("bias", "replicates"), [(True, 1), (False, 3)])
def test_the_terms_of_a_record_keep_their_bits_in_batches_of_any_size(
    dtype, activation, bias, replicates, monkeypatch
):
    """Activations, backpropagated terms and factors are equal to the last bit at any place."""
    rng = np.random.default_rng(7)
    X, y = rng.normal(size=(1500, 40)), rng.integers(0, 4, 1500)
    problem = MLP(X, y, (16, 8), 4, activation, bias, row_bound=RowBound(2, 6.0), dtype=dtype)
    w = rng.normal(size=(replicates, problem.d))
    parts = []

    def keep(xp, totals, layout, X, scale, hidden, deltas, factors, *rest):
        parts.append([array.copy() for array in (X[None], *hidden, *deltas, factors)])

    monkeypatch.setattr(network_sums, "add_gradients", keep)

    def terms(rows):
        parts.clear()
        problem.sums(w, rows, RULE, value=False)
        return [np.concatenate(arrays, axis=1) for arrays in zip(*parts)]

    whole = terms(None)
    for count in (1, 2, 15, 16, 17, 100, 127, 128, 129, 255, 257, 300, 900, 1499):
        rows = rng.permutation(1500)[:count]
        for found, expected in zip(terms(rows), whole):
            np.testing.assert_array_equal(found, expected[:, rows])


NETWORKS = {
    "relu": lambda *data, **kind: MLP(*data, (4,), 2, "relu", False, **kind),
    "tanh": lambda *data, **kind: MLP(*data, (4,), 2, "tanh", False, **kind),
    "softmax": lambda *data, **kind: Softmax(*data, 10, **kind),
}


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("network", NETWORKS)
def test_a_record_added_moves_a_sum_by_its_own_term_alone(network, dtype):
    """Rows are orthogonal to the weights up to rounding, and the result depends on the rounding.

    It switches relus; for the others the weights magnify it. With products of any length one record
    moved these sums by up to 9 clip norms (relu), 28 (tanh) and 7 (softmax).
    """
    large = {"float32": 1e8, "float64": 1e16}[dtype] if network != "relu" else 1.0
    worst = 0.0
    for seed in range(5):
        rng = np.random.default_rng(seed)
        v = rng.normal(size=784 if network == "softmax" else 60)
        X = rng.normal(size=(320, len(v)))
        X -= np.outer(X @ v / (v @ v), v)
        problem = NETWORKS[network](X, np.zeros(320, int), dtype=dtype)
        first = [v, *[0.0 * v] * 9] if network == "softmax" else [v] * 4
        last = np.repeat([1.0, -1.0], 4)
        w = np.concatenate([large * np.concatenate(first), last])[: problem.d]
        for counts in (range(1, 40), range(110, 131), range(254, 259), range(298, 304)):
            rows = [np.arange(count) for count in counts]
            sums = [problem.sums(w, part, RULE, value=False).gradient for part in rows]
            worst = max(worst, np.linalg.norm(np.diff(sums, axis=0), axis=1).max())
    rounding = problem.facts("add_or_remove_one").rounding
    assert 0.5 * C < worst <= (1.0 + 2.0 * rounding) * C


# Numbers at the ends of the range of a type


def share(network, X, y, w, rule, **options):
    """Return how far the last record moves the sum, relative to the sensitivity charged."""
    options = {"n_classes": 2, "size": len(X) - 1, **options}
    fewer, all_ = (network(X[:k], y[:k], **options) for k in (len(X) - 1, len(X)))
    moved = all_.gradient_sum(w, None, rule) - fewer.gradient_sum(w, None, rule)
    return np.linalg.norm(moved) / all_.facts("add_or_remove_one").record_sensitivity(2, rule)


LIFTS = clipping.Custom(lambda norm, loss: np.where(norm > 0.0, 1.0 / norm, 0.0), C)


@pytest.mark.parametrize("rule", [RULE, LIFTS, clipping.Flat(1e-60), clipping.Automatic(C)])
@pytest.mark.parametrize("large", [1e120, 1e165, 1e200, 1e300])
def test_no_square_of_a_double_underflows(rule, large):
    """Norms of 1e-165 used to be 0, and their gradients of 1e135 were not clipped."""
    rng, worst = np.random.default_rng(0), 0.0
    for margin in (50.0, 300.0, 370.0, 375.0, 380.0, 400.0, 600.0, 740.0):
        X = np.vstack([rng.normal(size=(3, 2)), [[margin, large]]])
        y = np.array([0, 1, 1, 0])
        worst = max(worst, share(Softmax, X, y, np.array([[1.0, 0.0, 0.0, 0.0]]), rule))
        w = np.zeros((1, 12))
        w[0, [0, 6, 8]] = 1.0, 1.0, -1.0
        worst = max(worst, share(MLP, X, y, w, rule, hidden=(2,)))
    assert worst <= 1.0
    assert worst > 0.5 or rule.clip_norm < C or not 1e120 < large < 1e300


@pytest.mark.parametrize("low", [1e-165, 1e130])
def test_norms_whose_squares_leave_the_normal_numbers_keep_their_digits(low):
    for size in low * np.geomspace(1.0, 1e30, 300):
        row = size * np.array([1.0, -0.7, 0.3])
        with np.errstate(over="ignore"):
            norm, unit = layers._norm(np, row[None])
        found = norm if unit is None else norm * unit
        np.testing.assert_allclose(found, math.hypot(*row), rtol=1e-14)


def test_a_gradient_whose_norm_has_lost_digits_counts_as_zero():
    """A norm of 1e-320 is wrong by a part in 10,000, and a rule may lift it to the clip norm."""
    worst = 0.0
    lifts = clipping.Custom(lambda norm, loss: np.where(norm > 0.0, 1e-70 / norm, 0.0), 1e-70)
    for x in np.geomspace(1e-157, 1e-153, 60):
        X, w = np.array([[1e-50], [x]]), np.array([[375.0 / x, 0.0]])
        worst = max(worst, share(Softmax, X, np.array([1, 0]), w, lifts))
    assert worst <= 1.0


@pytest.mark.parametrize(("margin", "large"), [(375.0, 1e165), (400.0, 1e180), (600.0, 1e270)])
def test_a_gradient_of_tiny_and_large_numbers_is_clipped_to_its_bound_and_no_further(margin, large):
    X, y = np.array([[1.0, 0.0], [margin, large]]), np.array([0, 0])
    assert 0.99 < share(Softmax, X, y, np.array([[1.0, 0.0, 0.0, 0.0]]), RULE) <= 1.0


@pytest.mark.parametrize("rule", [LIFTS, clipping.Automatic(1e-20), *map(clipping.Flat, (C, 1e-7))])
def test_weights_of_single_precision_neither_overflow_nor_lose_digits(rule):
    """A weight above 1e38 used to be infinite, one below 1e-38 rounded up by a third."""
    worst, w = 0.0, np.array([[1.0, 0.0]])
    for margin in (50.0, 88.0, 94.0, 98.0, 100.0, 103.0):
        X = np.array([[1.0], [margin]], np.float32)
        worst = max(worst, share(Softmax, X, np.array([1, 0]), w, rule))
    for large in np.geomspace(1e30, 3.3e38, 40):
        X, y = np.array([[0.0, 1.0], [large, 0.0]], np.float32), np.array([0, 0])
        worst = max(worst, share(Softmax, X, y, np.zeros((1, 4)), rule))
        w = np.array([[1e-45, 0.0, 1e6, -1e6]])
        worst = max(worst, share(MLP, X, y, w, rule, hidden=(1,), bias=False))
    assert 0.0 < worst <= 1.0


def test_rows_near_the_largest_number_are_within_their_bound_after_their_multiplier():
    X, y = np.array([[0.0, 1.0], [3.3e38, 1.0]], np.float32), np.array([0, 1])
    for radius in (1.0, 1e-3, 1e-5):
        problem = Softmax(X, y, 2, row_bound=RowBound(2, radius))
        moved = problem.gradient_sum(np.zeros((1, 4))) - problem.gradient_sum(
            np.zeros((1, 4)), np.array([0])
        )
        assert np.linalg.norm(moved) <= problem.facts("replace_one").gradient_bounds[1]
    with pytest.raises(ValueError, match="clip_norm must be at least 1e-30"):
        problem.check_clipping(clipping.Flat(1e-35))


# Passes of the host, compiled, and the same by array-API calls


def number(low, high):
    """A positive number, uniform in its logarithm."""
    return st.floats(math.log10(low), math.log10(high)).map(lambda power: 10.0**power)


@given(st.data(), st.integers(1, 3), st.booleans(), st.booleans())
def test_norms_in_single_precision_are_exact_up_to_rounding(data, replicates, bias, strict):
    """Entries from the smallest subnormal number to the largest, by exact sums of squares."""
    entry = st.one_of(st.just(0.0), number(1e-45, 3.4e38))
    numbers = st.lists(entry, min_size=6 * replicates, max_size=6 * replicates)
    inputs = np.array([data.draw(number(1e-320, 1e39)) for _ in range(3)])
    layers_of = [
        np.array(data.draw(numbers)).astype(np.float32).reshape(replicates, 3, 2) for _ in range(3)
    ]
    xp = array_api_strict if strict else np
    hidden, *deltas = (xp.asarray(each) for each in layers_of)
    found = np.asarray(layers.gradient_norms(xp, xp.asarray(inputs), [hidden], deltas, bias))
    for k in range(replicates):
        for i in range(3):
            squares = [
                sum(Fraction(float(entry)) ** 2 for entry in each[k, i]) for each in layers_of
            ]
            exact = (Fraction(inputs[i]) ** 2 + bias) * squares[1]
            exact += (squares[0] + bias) * squares[2]
            if found[k, i] == 0.0:  # too short for accurate squares
                assert exact < 1e-199
            else:
                assert abs(Fraction(found[k, i]) ** 2 - exact) <= Fraction(1e-14) * exact


def test_a_small_multiplier_of_a_small_derivative_rounds_no_term_beyond_its_bound():
    """Their product is subnormal in single precision: rounded up, it gave 1.95 times the bound."""
    X, bound = np.array([[3e38]], np.float32), RowBound(2, 3e8)
    problem = Softmax(X, [0], 2, row_bound=bound)
    for clip_norm in np.geomspace(1e-7, 1e-4, 100):
        total = problem.sums(np.zeros(2), clipping=clipping.Flat(clip_norm), value=False)
        assert np.linalg.norm(total.gradient) <= clip_norm * (1.0 + 1e-15)


def test_multiplicities_that_overflow_in_single_precision_count_as_zero():
    X, y = np.array([[1.0], [2.0]], np.float32), [0, 1]
    found = Softmax(X, y, 2).sums(np.zeros(2), weights=np.array([1e300, 1.0])).gradient
    np.testing.assert_array_equal(found, [1.0, -1.0])


def test_a_norm_in_single_precision_whose_squares_underflow_is_zero():
    for size, slope, expected in [(1e-90, 1.0, 1e-90), (1e-105, 1.0, 0.0), (1e-160, 3e38, 0.0)]:
        delta = np.full((1, 1, 1), slope, np.float32)
        found = layers.gradient_norms(np, np.array([size]), [], [delta], False)
        assert found == pytest.approx(expected, rel=1e-14, abs=0.0)


RULES = [
    clipping.Flat(0.3),
    clipping.Automatic(2.0, 0.1),
    clipping.Automatic(1e-60, 0.1),
    clipping.PerSampleAdaptive(1e-3, 0.1),
    clipping.Value(0.5, 3.0, 1e-2),
    clipping.Custom(lambda norm, loss: 0.7 / (1.0 + norm + loss), 0.7),
    *(
        # Weights that break all promises: negative, above the largest, infinite, NaN.
        SimpleNamespace(clip_norm=bound, largest_weight=1.5, weight=lambda _, losses: losses - 1.0)
        for bound in (0.7, 1e-15)
    ),
]
SPECIAL = st.sampled_from([0.0, math.inf, math.nan, 5e-324, 0.3, 0.7, 1.3e308, 1.7e308])


@example([(5e-324, 1.0, 1)], RULES[2], "float32", False, 1)  # a weight above the largest float32
@example([(1.3e308, 2.0, 2**200)], RULES[7], "float64", True, 1)  # a quotient that rounds up
@given(
    pairs=st.lists(
        st.tuples(*[st.one_of(number(1e-9, 1e9), SPECIAL)] * 2, st.integers(0, 2)), min_size=1
    ),
    rule=st.sampled_from(RULES),
    dtype=st.sampled_from(["float32", "float64"]),
    counted=st.booleans(),
    replicates=st.integers(1, 2),
)
def test_factors_are_those_of_array_calls_and_keep_the_bound(
    pairs, rule, dtype, counted, replicates
):
    *numbers, counts = (np.array(each, float) for each in zip(*pairs))
    norms, losses = (np.stack([each, each[::-1]][:replicates]) for each in numbers)
    counts = counts if counted else None

    def factors(xp):
        arrays = (None if each is None else xp.asarray(each) for each in (norms, losses, counts))
        with np.errstate(over="ignore"):
            found = layers.clip_factors(xp, rule, *arrays, getattr(xp, dtype))
        return [np.asarray(each) for each in found]

    found, lost, clipped = factors(np)
    others = factors(array_api_strict)
    np.testing.assert_allclose(found, others[0], rtol=2.0 * np.finfo(dtype).eps)
    np.testing.assert_array_equal(lost, others[1])
    np.testing.assert_array_equal(clipped, others[2])
    assert found.dtype == dtype and not found[lost].any() and not found[norms == 0.0].any()
    times = np.broadcast_to(1.0 if counts is None else counts, norms.shape)
    for factor, norm, count in zip(found[~lost], norms[~lost], times[~lost]):
        bound = Fraction(rule.clip_norm) * Fraction(float(count))
        assert Fraction(float(factor)) * Fraction(float(norm)) <= bound
        if rule.largest_weight < math.inf:
            most = rule.largest_weight * count
            assert 0.0 <= factor <= most * (1.0 + np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_products_are_those_of_array_calls_to_the_last_bit(dtype):
    rng = np.random.default_rng(5)
    most = np.finfo(dtype)
    powers = rng.uniform(math.log10(most.smallest_subnormal), math.log10(most.max), (2, 2, 50, 7))
    rows = (rng.choice([-1.0, 1.0], (2, 50, 7)) * 10.0 ** powers[0]).astype(dtype)
    rows[0, 0, :3] = np.inf, np.nan, 0.0
    for factors in (10.0 ** powers[1, :, :, 0], 10.0 ** powers[1, 0, :, 0]):
        factors = factors.astype(dtype)
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            expected = layers.usable(np, rows * factors[..., None])
        found = layers.usable_product(np, rows.copy(), factors)
        assert found.tobytes() == (expected + 0.0).tobytes() and expected.any()
