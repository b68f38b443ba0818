"""Softmax regression and MLPs, against explicit per-sample gradients."""

import copy
import math
import pickle
import warnings

import array_api_strict
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from network_reference import (
    FORMS,
    assert_sums,
    draw,
    expected_sums,
    iterate,
    kinds,
    written_out,
)

import dpanalysis as dpa
from dpanalysis import RowBound, clipping, regularizers, theory
from dpanalysis.kernels import array_api
from dpanalysis.losses import Logistic
from dpanalysis.problems import MLP, Softmax
from dpanalysis.problems.networks.layers import cross_entropy

HIDDEN = [(), (5,), (9, 7), (9, 8, 7)]


class Recorder(clipping.Flat):
    """Flat clipping that records its arguments."""

    def weight(self, norms, losses=None):
        self.__dict__["seen"] = norms, losses
        return super().weight(norms, losses)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("hidden", HIDDEN)
def test_norms_and_sums_are_those_of_written_out_gradients(hidden, activation, bias):
    X, y = draw()
    problem = MLP(X, y, hidden, activation=activation, bias=bias)
    w = iterate(problem)
    values, gradients = written_out(problem, w, X, y)
    norms = np.linalg.norm(gradients, axis=1)
    rule = Recorder(float(np.median(norms)))
    total = problem.sums(w, clipping=rule)
    np.testing.assert_allclose(rule.seen[0][0], norms, rtol=1e-10)
    np.testing.assert_allclose(rule.seen[1][0], values, rtol=1e-10)
    assert_sums(total, expected_sums(problem, w, X, y, rule.clip_norm))
    assert 0 < total.clipped < len(y)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("hidden", HIDDEN)
def test_gradient_matches_finite_differences(hidden, activation, bias):
    X, y = draw(seed=3)
    penalty = regularizers.L2(0.1)
    problem = MLP(X, y, hidden, activation=activation, bias=bias, regularizer=penalty)
    w, h = iterate(problem, seed=4), 1e-6
    step = h * np.eye(problem.d)
    slope = (problem.value(w + step) - problem.value(w - step)) / (2 * h)
    np.testing.assert_allclose(problem.gradient(w), slope, atol=2e-8)


@pytest.mark.parametrize("bounded", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_all_paths_agree(form, bounded):
    X, y = draw(n=90)
    X[::7] *= 50.0
    options = {"row_bound": RowBound(2, 2.0)} if bounded else {}
    inside = X * (np.minimum(1.0, 2.0 / np.linalg.norm(X, axis=1))[:, None] if bounded else 1.0)
    tolerance = 2e-5 if "float32" in form else 1e-11
    rows = np.array([0, 89, 7, 7, 40])
    ragged = [rows, rows[:0], rows[:1], np.arange(90)]
    rule, k = clipping.Flat(0.8), np.random.default_rng(5).integers(0, 3, 90).astype(float)
    labels = array_api_strict.asarray(y) if form == "strict" else y
    for problem in kinds(FORMS[form](X), labels, **options):
        W = iterate(problem, R=4)
        shared, each = problem.sums(W, rows, rule), problem.sums(W, ragged, rule)
        weighted = problem.sums(W, clipping=rule, weights=k)
        right = problem.accuracy(W)
        for r, w in enumerate(W):
            everything = expected_sums(problem, w, inside, y)
            assert_sums(problem.sums(w), everything, tolerance)
            at = rows, inside[rows], y[rows]
            assert_sums(_replicate(shared, r), expected_sums(problem, w, *at[1:], 0.8), tolerance)
            mine = expected_sums(problem, w, inside[ragged[r]], y[ragged[r]], 0.8)
            assert_sums(_replicate(each, r), mine, tolerance)
            several = expected_sums(problem, w, inside, y, 0.8, k)
            assert_sums(_replicate(weighted, r), several, tolerance)
            assert problem.accuracy(w) == right[r]
        sums = problem.clipped_gradient_sum(W, rule, weights=k)
        np.testing.assert_array_equal(sums[0], weighted.gradient)


def _replicate(sums, r):
    return type(sums)(sums.value[r], sums.gradient[r], sums.clipped[r])


@pytest.mark.parametrize("R", [None, 1, 3])
def test_shapes_and_what_is_wanted(R):
    X, y = draw()
    for problem in kinds(X, y, regularizer=regularizers.L2(0.3)):
        w = iterate(problem, R=R)
        both = problem.sums(w)
        only_value, only_gradient = problem.sums(w, gradient=False), problem.sums(w, value=False)
        assert only_value.gradient is None and only_gradient.value is None
        np.testing.assert_allclose(only_value.value, both.value, rtol=1e-14)
        np.testing.assert_allclose(only_gradient.gradient, both.gradient, rtol=1e-14)
        assert np.shape(both.value) == np.shape(both.clipped) == (() if R is None else (R,))
        assert both.gradient.shape == w.shape and both.gradient.dtype == np.float64
        penalty = problem.regularizer
        value = both.value / problem.n + penalty.value(w)
        np.testing.assert_allclose(problem.value(w), value, rtol=1e-14)
        gradient = both.gradient / problem.n + penalty.gradient(w)
        np.testing.assert_allclose(problem.gradient(w), gradient, rtol=1e-14)
        assert isinstance(problem.value(w), float) == (R is None)
        assert np.shape(problem.accuracy(w)) == (() if R is None else (R,))


@pytest.mark.slow
@given(st.integers(3, 30), st.integers(1, 6), st.integers(2, 3), st.integers(1, 4), st.data())
def test_any_size(n, f, K, R, data):
    hidden = data.draw(st.lists(st.integers(1, 5), max_size=3))
    X, y = draw(n, f, K, seed=data.draw(st.integers(0, 1000)))
    problem = MLP(X, y, hidden, bias=data.draw(st.booleans()))
    W = iterate(problem, R=R)
    sums = problem.sums(W, clipping=clipping.Flat(0.5))
    for r, w in enumerate(W):
        assert_sums(_replicate(sums, r), expected_sums(problem, w, X, y, 0.5))


def test_blocks_of_rows_add_up(monkeypatch):
    X, y = draw(n=60)
    for problem in kinds(X, y):
        w, rule = iterate(problem), clipping.Flat(0.5)
        whole, picked = problem.sums(w, clipping=rule), problem.sums(w, np.arange(50), rule)
        monkeypatch.setattr(problem._sums, "_step", lambda gathered, replicates, count: 7)
        assert len(list(problem._sums.blocks(None, 1))) == 9
        parts = problem.sums(w, clipping=rule), problem.sums(w, np.arange(50), rule)
        for a, b in zip(parts, (whole, picked)):
            np.testing.assert_allclose(a.gradient, b.gradient, rtol=1e-12, atol=1e-13)
            assert a.value == pytest.approx(b.value, rel=1e-14) and a.clipped == b.clipped


def test_memory_is_that_of_the_activations():
    """d = 62,000 and n = 2000: the gradients one by one would take 1 GB."""
    import tracemalloc

    X, y = draw(n=2000, f=300, K=10)
    problem = MLP(X, y, (200,))
    w = problem.initial(0)
    problem.sums(w, clipping=clipping.Flat(1.0))
    tracemalloc.start()
    problem.sums(w, clipping=clipping.Flat(1.0))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * (12 * 2000 * (200 + 10) + 6 * problem.d)


# The bound of a private run


RULES = [
    clipping.Flat(0.3),
    clipping.Automatic(0.01, 0.3),
    clipping.PerSampleAdaptive(0.1, 0.3),
    clipping.Value(0.3, beta1=1e-3),  # far too small a constant: the norms decide
    clipping.Custom(lambda norm, loss: min(1.0, 0.3 / (norm + loss)), 0.3),
]


@pytest.mark.parametrize("form", ["float32", "csr", "torch"])
def test_rows_that_grow_after_they_were_measured_stay_clipped(form, monkeypatch):
    """Their owner may write to them at any time: measured and added is one copy."""
    X, y = np.ones((6, 4), np.float32 if form == "float32" else np.float64), np.arange(6) % 2
    rows = sp.csr_array(X) if form == "csr" else X
    if form == "torch":
        rows = pytest.importorskip("torch", reason="PyTorch is not installed").from_numpy(X)
    entries, outside = rows.data if form == "csr" else X, array_api._rows_outside

    def growing(*arguments):
        found = outside(*arguments)
        entries[:] = 1e3
        return found

    monkeypatch.setattr(array_api, "_rows_outside", growing)
    for problem in (MLP(rows, y, (3,), n_classes=2), dpa.ERM(rows, 2.0 * y - 1.0, Logistic())):
        entries[:] = 1.0
        rule = clipping.Custom(lambda norm, loss: 0.1 / (norm + 0.1), 0.1)
        w = np.random.default_rng(0).normal(size=problem.d)
        total = problem.sums(w if form != "torch" else rows.new_tensor(w), clipping=rule).gradient
        assert np.linalg.norm(np.asarray(total)) <= 0.6 and entries.max() == 1e3


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
def test_no_sample_is_over_the_clip_norm(rule, dtype):
    X, y = draw(n=60)
    problem = MLP(X, y, (7, 5), dtype=dtype)
    for reach in (0.1, 1.0, 30.0):
        w = iterate(problem, reach=reach)
        for i in range(problem.n):
            one = problem.sums(w, np.array([i]), rule).gradient
            assert np.linalg.norm(one) <= 0.3 * (1 + 1e-15)


def test_value_clipping_with_a_valid_constant_is_left_alone():
    """At weights of known weak growth the cap changes nothing: Fang et al. (2023), Algorithm 3."""
    X, y = draw()
    problem = MLP(X, y, (5, 4))
    w = iterate(problem)
    biases = [np.linalg.norm(bias) for _, bias in problem.layers(w)]
    largest = np.linalg.norm(X, axis=1).max()
    beta1 = theory.weak_growth_mlp(largest, problem.spectral_norms(w), biases)
    rule = clipping.Value(2.0, beta1)
    problem.check_clipping(rule)
    values, gradients = written_out(problem, w, X, y)
    factors = np.minimum(1.0, 2.0 / np.sqrt(beta1 * values))
    assert factors.min() < 0.9
    sums = problem.sums(w, clipping=rule)
    np.testing.assert_allclose(sums.gradient, factors @ gradients, atol=1e-12)
    with pytest.raises(TypeError, match="clipping must be a rule"):
        problem.check_clipping(1.0)


@pytest.mark.parametrize("form", ["dense", "float32", "csr", "strict"])
@pytest.mark.parametrize("R", [None, 2])
def test_a_gradient_that_overflows_counts_as_zero(form, R):
    """The norm, the logits or a hidden layer overflows; the other samples count as before."""
    top = 1e30 if "float32" in form else 1e300
    X = np.array([[1.0, 0.5], [top, -top], [0.3, 0.2]])
    y = np.array([0, 1, 1])
    labels = array_api_strict.asarray(y) if form == "strict" else y
    for problem in [Softmax(FORMS[form](X), labels), MLP(FORMS[form](X), labels, (4,), bias=False)]:
        small = iterate(problem, R=R)
        with np.errstate(over="ignore"):
            found = problem.sums(small * 1e10, clipping=clipping.Flat(0.5), value=False)
            others = problem.sums(small * 1e10, np.array([0, 2]), clipping.Flat(0.5), value=False)
        np.testing.assert_allclose(found.gradient, others.gradient, rtol=1e-6)
        np.testing.assert_array_equal(found.clipped, others.clipped + 1)
        assert np.isfinite(others.gradient).all() and np.abs(others.gradient).max() > 0.01
    # A softmax gradient is bounded by the rows alone, so it may be released without clipping.
    free = Softmax(FORMS[form](X), labels, row_bound=RowBound(2, 1.0))
    huge = np.full((free.d,) if R is None else (R, free.d), 1e250)
    assert np.isfinite(free.sums(huge, value=False).gradient).all()


def test_a_device_adds_up_large_blocks_in_parts():
    """Of at most 4096 rows, whose hidden activations have another axis than the rows."""
    random = np.random.default_rng(0)
    X, y = random.normal(size=(4500, 3)), random.integers(0, 2, 4500)
    problem = MLP(X, y, (4,))
    w = problem.initial(rng=0)
    there = MLP(array_api_strict.asarray(X), array_api_strict.asarray(y), (4,))
    rule = clipping.Flat(0.1)
    found, expected = (each.sums(w, clipping=rule, value=False) for each in (there, problem))
    np.testing.assert_allclose(found.gradient, expected.gradient, rtol=1e-10, atol=1e-10)


# Numbers at their extremes


def test_logits_of_any_size():
    logits = np.array([[[1e4, 0.0, -1e4], [0.0, 40.0, 0.0], [1e308, 0.0, 1e307], [-745.0, 0, 0]]])
    labels = np.array([2, 1, 0, 0])
    values, delta = cross_entropy(np, logits, labels)
    np.testing.assert_allclose(values[0, [0, 3]], [2e4, 745 + math.log(2)], rtol=1e-15)
    # Small losses keep their digits: log1p, not the difference of two large numbers.
    assert values[0, 1] == pytest.approx(math.log1p(2 * math.exp(-40)), rel=1e-14)
    assert values[0, 2] == 0.0
    np.testing.assert_allclose(delta[0, 1], [math.exp(-40), -2 * math.exp(-40), math.exp(-40)])
    np.testing.assert_array_equal(delta[0, 0], [1.0, 0.0, -1.0])
    np.testing.assert_allclose(delta.sum(axis=-1), 0.0, atol=1e-16)


def test_single_precision_is_computed_in_single_precision():
    X, y = draw(n=200)
    for problem, single in zip(kinds(X, y), kinds(X, y, dtype=np.float32)):
        assert single._X.dtype == np.float32
        w = iterate(problem)
        a, b = problem.gradient(w), single.gradient(w)
        assert 1e-10 < np.abs(a - b).max() < 1e-6


def test_one_sample_one_feature_and_no_copy():
    problem = Softmax(np.array([[2.0]]), np.array([1]), n_classes=3)
    sums = problem.sums(np.zeros(3))
    assert sums.value == pytest.approx(math.log(3))
    np.testing.assert_allclose(sums.gradient, [2 / 3, -4 / 3, 2 / 3])
    X, y = draw()
    X.flags.writeable = y.flags.writeable = False
    for problem in kinds(X, y):
        assert np.shares_memory(problem._X, X)
        w = iterate(problem)
        w.flags.writeable = False
        assert_sums(problem.sums(w), expected_sums(problem, w, X, y))


def test_pickled_and_deep_copied_problems_are_the_same():
    X, y = draw()
    for problem in kinds(X, y, row_bound=RowBound(2, 1.0)):
        w = iterate(problem)
        for twin in (pickle.loads(pickle.dumps(problem)), copy.deepcopy(problem)):
            assert twin.value(w) == problem.value(w) and twin.d == problem.d


# Networks


def test_layers_and_their_norms():
    X, y = draw()
    problem = MLP(X, y, (5, 4))
    assert problem.d == 6 * 5 + 5 + 5 * 4 + 4 + 4 * 3 + 3
    W = iterate(problem, R=3)
    shapes = [(a.shape, b.shape) for a, b in problem.layers(W[0])]
    assert shapes == [((5, 6), (5,)), ((4, 5), (4,)), ((3, 4), (3,))]
    for r, w in enumerate(W):
        pieces = [part.ravel() for layer in problem.layers(w) for part in layer]
        np.testing.assert_array_equal(np.concatenate(pieces), w)
        expected = [np.linalg.norm(weights, 2) for weights, _ in problem.layers(w)]
        np.testing.assert_allclose(problem.spectral_norms(W)[r], expected, rtol=1e-12)
        for (weights, bias), (each, own) in zip(problem.layers(W), problem.layers(w)):
            np.testing.assert_array_equal(weights[r], each)
            np.testing.assert_array_equal(bias[r], own)


@pytest.mark.parametrize(("activation", "variance"), [("relu", 2 / 60), ("tanh", 2 / 140)])
def test_initial_weights(activation, variance):
    """Of 4800 normal entries the sample variance is within 10% (false alarm 1e-6)."""
    X, y = draw(f=60)
    problem = MLP(X, y, (80,), activation=activation)
    w = problem.initial(rng=3)
    (first, bias), (last, _) = problem.layers(w)
    assert first.var() == pytest.approx(variance, rel=0.1)
    assert last.var() == pytest.approx(2 / 83, rel=0.4)
    assert not bias.any()
    np.testing.assert_array_equal(w, problem.initial(rng=3))
    assert not np.array_equal(w, problem.initial(rng=4))


def test_accuracy():
    X, y = draw(n=200)
    X_test, y_test = draw(n=50, seed=9)
    for problem in kinds(X, y, row_bound=RowBound(2, 1.0)):
        w = iterate(problem)
        # Rows of a test set go through the same public scaling.
        for data, labels in ((X, y), (X_test, y_test)):
            inside = data / np.maximum(1.0, np.linalg.norm(data, axis=1))[:, None]
            logits = inside
            layers = problem.layers(w)
            for i, (weights, bias) in enumerate(layers):
                logits = logits @ weights.T + (0 if bias is None else bias)
                logits = logits if i == len(layers) - 1 else np.maximum(logits, 0)
            expected = (logits.argmax(axis=1) == labels).mean()
            assert problem.accuracy(w, data, labels) == expected
        with pytest.raises(ValueError, match="together"):
            problem.accuracy(w, X)
        with pytest.raises(ValueError, match="columns"):
            problem.accuracy(w, X[:, :2], y)
        with pytest.raises(ValueError, match="label 3"):
            problem.accuracy(w, X[:1], np.array([3]))


# Private runs


@pytest.fixture(scope="module")
def digits():
    return dpa.datasets.load("digits")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "method", "least"),
    [
        (Softmax, lambda **o: dpa.methods.HeavyBall(0.5, 0.5, 120, **o), 0.85),
        (MLP, lambda **o: dpa.methods.GradientDescent(1.0, 100, **o), 0.85),
    ],
)
def test_private_runs_learn_and_their_ledger_is_right(digits, kind, method, least):
    problem = kind(digits.X, digits.y, n_classes=10, dtype="float32")
    budget = dpa.Budget(8.0, 1e-5, "add_or_remove_one")
    rate, rule = 0.15, clipping.Flat(1.0)
    build = method(sampling=dpa.Poisson(rate), clipping=rule, mechanism="gaussian")
    result = dpa.minimize(
        problem, build, budget, replicates=2, rng=0, record=("accuracy",), every=50
    )
    assert result.private and result.status == "finished"
    assert (result.history["accuracy"][-1] > least).all()
    assert result.history["accuracy"][0].max() < 0.3
    # One record moves the mean by at most clip_norm over the expected batch, up to rounding.
    (run,) = result.ledger.events
    assert run.count == build.iterations
    (event,) = run.event.events
    rounded = 1.0 + 2.0 * problem.rounding
    assert event.sensitivity == pytest.approx(rounded / (rate * problem.n), rel=1e-12)
    multiplier = event.std / event.sensitivity
    steps = [
        dpa.privacy.events.Sampled(
            dpa.Poisson(rate), (dpa.privacy.events.Gaussian(multiplier, 1.0),)
        )
    ]
    spent = dpa.privacy.epsilon(
        [dpa.privacy.events.Repeated(steps[0], build.iterations)], 1e-5, "add_or_remove_one"
    )
    assert spent == pytest.approx(result.epsilon(), rel=1e-6)
    assert 0.99 * 8.0 < spent <= 8.0 * (1 + 1e-9)


def test_a_run_without_a_bound_is_refused(digits):
    budget = dpa.Budget(1.0, 1e-5)
    method = dpa.methods.GradientDescent(0.1, 3, mechanism="gaussian")
    with pytest.raises(ValueError, match=r"row_bound.*clipping"):
        dpa.minimize(MLP(digits.X, digits.y, row_bound=RowBound(2, 1.0)), method, budget)
    bounded = Softmax(digits.X, digits.y, 10, row_bound=RowBound(2, 1.0))
    assert dpa.minimize(bounded, method, budget, rng=0).private


# Bad input


def bad_arguments():
    X, y = draw(n=10)
    half = y.astype(float)
    half[3] = 0.5
    return {
        "fractional label": (X, half, {}, "labels 0 to n_classes - 1, got 0.5"),
        "negative label": (X, y - 1, {}, "labels 0 to n_classes - 1, got -1.0"),
        "labels -1 and 1": (X, np.where(y > 0, 1, -1), {}, r"pass \(y \+ 1\) / 2"),
        "one class": (X, np.full(10, 2), {}, "at least two classes, got only the label 2"),
        "too few classes": (X, y, {"n_classes": 2}, "n_classes must be at least 3.*got 2"),
        "one class asked for": (X, 0 * y, {"n_classes": 1}, "n_classes must be at least 2"),
        "dtype": (X, y, {"dtype": np.int64}, "dtype must be"),
        "nan": (X * np.nan, y, {}, "X must be finite"),
        "shape of y": (X, y[:-1], {}, "y must have shape"),
        "no samples": (X[:0], y[:0], {}, "n, d >= 1"),
        "row over the bound": (X, y, {"row_bound": RowBound(2, 0.1, "check")}, "exceed"),
    }  # fmt: skip


@pytest.mark.parametrize("case", bad_arguments())
@pytest.mark.parametrize("kind", [Softmax, MLP])
def test_bad_arguments_are_refused(kind, case):
    X, y, options, message = bad_arguments()[case]
    with pytest.raises(ValueError, match=message):
        kind(X, y, **options)


def test_bad_kinds_are_refused():
    X, y = draw(n=10)
    for options, error, message in [
        ({"hidden": 5}, TypeError, "hidden"),
        ({"hidden": "ab"}, TypeError, "hidden"),
        ({"hidden": (5, 0)}, ValueError, "hidden"),
        ({"hidden": (2.5,)}, TypeError, "hidden"),
        ({"activation": "gelu"}, ValueError, "activation"),
        ({"bias": 1}, TypeError, "bias"),
        ({"regularizer": regularizers.L2}, TypeError, "regularizer"),
        ({"row_bound": 1.0}, TypeError, "row_bound"),
        ({"n_classes": 3.0}, TypeError, "n_classes"),
    ]:
        with pytest.raises(error, match=message):
            MLP(X, y, **options)
    assert Softmax(X, 0 * y, n_classes=2).n_classes == 2  # the caller says so


def test_bad_iterates_rows_and_weights_are_refused():
    X, y = draw(n=10)
    for problem in kinds(X, y):
        w = iterate(problem)
        for wrong in (w[:-1], w[None, None], np.zeros((0, problem.d))):
            with pytest.raises(ValueError, match="w must have shape"):
                problem.value(wrong)
        with pytest.raises(ValueError, match="w must be finite"):
            problem.gradient(w * np.inf)
        with pytest.raises(ValueError, match="rows must lie in"):
            problem.sums(w, np.array([-1]))
        with pytest.raises(TypeError, match="rows must be"):
            problem.sums(w, np.array([0.5]))
        with pytest.raises(ValueError, match="rows must list 1"):
            problem.sums(w, [np.arange(2)] * 2)
        for weights in (np.ones(9), -np.ones(10), np.full(10, np.inf)):
            with pytest.raises(ValueError, match="weights"):
                problem.sums(w, weights=weights)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_step_that_overflows_is_reported_as_divergence(dtype):
    """Weights of 1e199 are finite, but the outputs of two layers are not."""
    rng = np.random.default_rng(0)
    problem = dpa.problems.MLP(
        rng.normal(size=(40, 3)), rng.integers(0, 2, 40), hidden=(4,), n_classes=2, dtype=dtype
    )
    method = dpa.methods.SGD(1e200, 5, dpa.Full(), dpa.clipping.Flat(1.0), noise=np.ones(5))
    with pytest.warns(RuntimeWarning, match="diverged at iteration 1"):
        result = dpa.minimize(problem, method, rng=0)
    assert result.status == "diverged"
    assert np.isfinite(result.history["objective"]).all()
    assert problem.facts("replace_one").largest_iterate < 1e200


def test_other_rows_are_brought_within_the_bounds_as_those_of_the_problem_were():
    """A bias decides more for shorter rows."""
    rng = np.random.default_rng(0)
    X, y = 10.0 * rng.normal(size=(200, 5)), rng.integers(3, size=200)
    problem = MLP(X, y, hidden=(4,), row_bound=dpa.RowBound(2, 1.0))
    w = rng.normal(size=problem.d)
    assert problem.accuracy(w, X, y) == problem.accuracy(w)
    assert problem.accuracy(w) != MLP(X, y, hidden=(4,)).accuracy(w)


@pytest.mark.parametrize(("activation", "first"), [("relu", 2 / 6), ("tanh", 2 / 10)])
def test_weights_before_a_relu_are_drawn_larger_than_others(activation, first):
    """He before the relu of the hidden layer, Glorot elsewhere, as before the logits."""
    problem = MLP(np.eye(6), np.arange(6) % 3, hidden=(4,), activation=activation)
    stds = []

    class Noted:
        def normal(self, mean, std, size):
            stds.append(std)
            return np.full(size, mean)

    problem.initial(Noted())
    assert stds == pytest.approx([math.sqrt(first), math.sqrt(2 / 7)])


@pytest.mark.parametrize("form", [np.array, sp.csr_array])
def test_a_row_too_large_for_single_precision_is_named(form):
    """It became infinite with a warning, and a private run said that X had been changed."""
    X = np.full((9, 3), 0.5)
    X[3, 1] = 1e300
    for made in (Softmax, MLP):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(ValueError, match=r"1 rows whose norms overflow \(first rows \[3\]"):
                made(form(X), [0, 1, 2] * 3, n_classes=3, dtype="float32")
            small = np.where(X > 1.0, 1e-300, X)
            with np.errstate(all="raise"):
                made(form(small), [0, 1, 2] * 3, n_classes=3, dtype="float32")
