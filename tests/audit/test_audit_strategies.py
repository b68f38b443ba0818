"""The strategies draw data as documented, and worst cases often."""

import math
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, find, given, settings
from hypothesis import strategies as st

from dpanalysis import ERM, RowBound, losses, regularizers
from dpanalysis.audit import strategies

RELATIONS = ["replace_one", "add_or_remove_one"]
BALLS = [RowBound(2, 1.0), RowBound(1, 0.3), (RowBound(1, 2.0), RowBound(2, 1.5))]


def inside(X, bounds):
    for bound in bounds if isinstance(bounds, tuple) else (bounds,):
        for row in X.astype(np.float64):
            norm = math.fsum(abs(row)) if bound.order == 1 else math.hypot(*row)
            assert norm <= bound.radius


@pytest.mark.slow
@pytest.mark.parametrize("relation", RELATIONS)
@given(st.data(), st.sampled_from(BALLS), st.integers(1, 6), st.integers(1, 4))
def test_datasets_are_neighbours_in_the_ball(relation, data, bounds, n, d):
    strategy = strategies.neighbouring_datasets(relation, n=n, d=d, row_bound=bounds)
    pair = data.draw(strategy)
    for X, y in pair:
        assert X.shape[1:] == (d,) and y.shape == X.shape[:1]
        assert X.dtype == y.dtype == np.float64
        assert np.isin(y, (-1.0, 1.0)).all()
        inside(X, bounds)
    records = [[(*row, label) for row, label in zip(X, y, strict=True)] for X, y in pair]
    if relation == "replace_one":
        assert len(records[0]) == len(records[1]) == n
        assert sum(a != b for a, b in zip(*records, strict=True)) == 1
    else:
        short, long = sorted(records, key=len)
        assert len(long) == n and len(short) == n - 1
        assert any(long[:i] + long[i + 1 :] == short for i in range(n))


def share(strategy, *conditions, examples=200):
    """The share of deterministic draws in which each condition holds."""
    count = np.zeros(len(conditions))
    drawn = 0

    @settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def draw(value):
        nonlocal drawn
        count[:] += [bool(condition(value)) for condition in conditions]
        drawn += 1

    draw()
    return tuple(count / drawn) if len(conditions) > 1 else count[0] / drawn


@pytest.mark.parametrize("order", [1, 2, math.inf])
def test_a_row_outside_the_ball_moves_to_its_boundary(order):
    row, bounds = np.array([3.0, -4.0]), strategies.check_bounds(RowBound(order, 1.5))
    boundary = row * 1.5 / np.linalg.norm(row, order)
    np.testing.assert_allclose(strategies.into_ball(row, bounds), boundary, rtol=1e-14)
    np.testing.assert_array_equal(strategies.into_ball(0.5 * boundary, bounds), 0.5 * boundary)


@pytest.mark.slow
def test_worst_cases_are_likely():
    """In the default ball of radius 1 two rows are at most 2 apart."""

    def apart(pair):
        return np.linalg.norm(pair[0][0] - pair[1][0]) > 1.99

    assert share(strategies.neighbouring_datasets(), apart) > 0.2

    def lonely(pair):  # only the record that differs is nonzero
        return any(np.count_nonzero(X.any(axis=1)) == 1 for X, _ in pair)

    assert share(strategies.neighbouring_datasets(n=5), lonely) > 0.05
    removed = strategies.neighbouring_datasets("add_or_remove_one")
    first_longer, empty = share(
        removed,
        lambda pair: len(pair[0][1]) > len(pair[1][1]),
        lambda pair: min(len(y) for _, y in pair) == 0,
    )
    assert 0.1 < first_longer < 0.9 and empty > 0.02
    by_one, both_ways = share(
        strategies.query_sequences((2, 10)),
        lambda pair: (abs(pair[1] - pair[0]) == 1.0).all(),
        lambda pair: (pair[1] - pair[0]).min() < 0 < (pair[1] - pair[0]).max(),
    )
    assert by_one > 0.1 and both_ways > 0.1


@pytest.mark.slow
def test_labels_of_regression_are_numbers():
    strategy = strategies.neighbouring_datasets(labels=st.floats(-2.0, 2.0))
    assert share(strategy, lambda pair: set(pair[0][1]) - {-1.0, 1.0}, examples=60) > 0.3
    fixed = strategies.neighbouring_datasets(labels=(0.0,))
    labeled = share(fixed, lambda pair: pair[0][1].any() or pair[1][1].any(), examples=60)
    assert labeled == 0.0


def test_the_record_that_is_removed_is_seldom_null():
    """A record of zeros has no effect on most releases."""
    pairs = strategies.neighbouring_datasets("add_or_remove_one", n=2, d=3)

    def null(pair):
        first, second = ((X == 0.0).all(axis=1).sum() for X, _ in pair)
        return first != second

    assert share(pairs, null, examples=40) < 0.15


def test_a_record_is_added_or_removed():
    pairs = strategies.neighbouring_datasets("add_or_remove_one")
    added = share(pairs, lambda pair: len(pair[0][1]) < len(pair[1][1]), examples=40)
    assert 0.1 < added < 0.9


@pytest.mark.parametrize("label", [-1.0, 1.0])
def test_each_label_is_drawn(label):
    find(strategies.neighbouring_datasets(n=2), lambda pair: label in pair[0][1])
    find(strategies.erm_problems(n=2, loss=losses.Hinge()), lambda problem: label in problem._y)


def test_a_counterexample_shrinks_to_one_that_can_be_read():
    """One row suffices to show that a mean has the sensitivity 2, not 1."""
    pair = find(
        strategies.neighbouring_datasets(),
        lambda pair: np.linalg.norm(pair[0][0].mean(axis=0) - pair[1][0].mean(axis=0)) > 1.5,
    )
    (X, y), (X_other, y_other) = pair
    assert X.tolist() == [[1.0]] and X_other.tolist() == [[-1.0]]
    assert y.tolist() == y_other.tolist()


@pytest.mark.slow
@given(strategies.erm_problems(n=(1, 4), d=(1, 3)), st.integers(0, 2**32 - 1))
def test_problems_can_be_evaluated(problem, seed):
    assert isinstance(problem, ERM)
    w = np.random.default_rng(seed).standard_normal(problem.d)
    assert np.isfinite(problem.value(w)) and np.isfinite(problem.gradient(w)).all()


@pytest.mark.slow
def test_every_form_and_loss_is_drawn():
    drawn = strategies.erm_problems
    kinds = {
        "csr": lambda X: sp.issparse(X),
        "float32": lambda X: not sp.issparse(X) and X.dtype == np.float32,
        "read_only": lambda X: not sp.issparse(X) and not X.flags.writeable,
    }
    assert set(strategies.FORMS) == {*kinds, "dense", "fortran"}
    for form, check in kinds.items():
        always = share(
            drawn(forms=form), lambda problem, check=check: check(problem._X), examples=20
        )
        assert always == 1.0, form
    assert strategies.FORMS["fortran"](np.eye(3)).flags.f_contiguous
    kinds = losses.Logistic(), losses.SquaredError()
    often = share(
        drawn(),
        lambda problem: problem.loss == kinds[0],
        lambda problem: problem.loss == kinds[1],
        lambda problem: problem.regularizer is None,
    )
    assert min(often) > 0.02  # Hypothesis repeats what it drew, so shares vary widely
    for loss in kinds:
        fixed = drawn(loss=loss)
        assert share(fixed, lambda problem, loss=loss: problem.loss == loss, examples=20) == 1.0
    for penalty, mu in ((regularizers.L2(0.5), 0.5), (st.none(), 0.0)):
        fixed = drawn(regularizer=penalty)
        assert share(fixed, lambda problem, mu=mu: problem.mu == mu, examples=20) == 1.0


@pytest.mark.slow
@given(strategies.erm_problems(forms="float32", row_bound=RowBound(2, 0.1, enforce="check")))
def test_rounding_to_float32_stays_in_the_ball(problem):
    inside(problem._X, RowBound(2, 0.1))


@pytest.mark.slow
@pytest.mark.parametrize("relation", RELATIONS)
@given(st.data())
def test_problems_are_neighbours(relation, data):
    """The sums of the gradients differ by at most the bound."""
    one, other = data.draw(strategies.neighbouring_problems(relation, loss=losses.Logistic()))
    assert (one.loss, one.regularizer, one.row_bounds, one.d) == (
        other.loss,
        other.regularizer,
        other.row_bounds,
        other.d,
    )
    assert type(one._X) is type(other._X) and one._X.dtype == other._X.dtype
    assert abs(one.n - other.n) == (relation == "add_or_remove_one")
    w = np.full(one.d, -3.0)
    moved = np.linalg.norm(one.sums(w).gradient - other.sums(w).gradient)
    bound = one.gradient_bound(2) * (2 if relation == "replace_one" else 1)
    assert moved <= bound * (1 + 1e-6)


@pytest.mark.slow
@given(st.data(), st.floats(0.0, 1.0), st.floats(0.0, 5.0), st.integers(1, 6))
def test_quadratics_span_their_spectrum(data, mu, width, d):
    problem = data.draw(strategies.quadratics(d, mu, mu + width, radius=0.5, sensitivity=2.0))
    assert problem.d == d and problem.sensitivity == 2.0
    assert mu <= problem.mu and mu + width >= problem.L
    if d > 1:
        assert (problem.mu, problem.L) == (mu, mu + width)
    assert abs(problem.center).max() <= 0.5


@pytest.mark.slow
@given(st.data(), st.floats(1e-6, 10.0), st.integers(1, 12), st.booleans())
def test_queries_move_by_no_more_than_the_sensitivity(data, sensitivity, length, one_sided):
    strategy = strategies.query_sequences(
        length, sensitivity=sensitivity, reach=5.0, one_sided=one_sided
    )
    q, other = data.draw(strategy)
    assert q.shape == other.shape == (length,)
    assert abs(q).max() <= 5.0 * (1 + 1e-15)
    assert abs(q - other).max() <= sensitivity
    if one_sided:
        assert (q <= other).all() or (q >= other).all()


@pytest.mark.parametrize(
    ("build", "arguments", "error", "message"),
    [
        (strategies.neighbouring_datasets, {"relation": "swap"}, ValueError, "relation"),
        (strategies.neighbouring_datasets, {"n": 0}, ValueError, "n must be at least 1"),
        (strategies.neighbouring_datasets, {"n": (3, 2)}, ValueError, "n must be at least 3"),
        (strategies.neighbouring_datasets, {"n": (1, 2, 3)}, ValueError, "n must be an integer or"),
        (strategies.neighbouring_datasets, {"n": 2.5}, TypeError, "n must be an integer"),
        (strategies.neighbouring_datasets, {"d": 0}, ValueError, "d must be"),
        (strategies.neighbouring_datasets, {"row_bound": None}, ValueError, "row_bound"),
        (strategies.neighbouring_datasets, {"row_bound": 1.0}, TypeError, "row_bound"),
        (strategies.erm_problems, {"loss": "logistic"}, TypeError, "loss must be .*'logistic'"),
        (strategies.erm_problems, {"regularizer": 0.1}, TypeError, "regularizer must be .*0.1"),
        (strategies.neighbouring_datasets, {"labels": ()}, ValueError, "labels"),
        (strategies.neighbouring_datasets, {"labels": ("a",)}, TypeError, "labels"),
        (strategies.erm_problems, {"forms": "coo"}, ValueError, "forms"),
        (strategies.erm_problems, {"forms": ()}, ValueError, "forms"),
        (
            strategies.neighbouring_problems,
            {"relation": "add_or_remove_one", "n": 1},
            ValueError,
            "n must be at least 2",
        ),
        (strategies.quadratics, {"mu": -1.0}, ValueError, "mu"),
        (strategies.quadratics, {"mu": 2.0, "L": 1.0}, ValueError, "L must"),
        (strategies.quadratics, {"radius": -1.0}, ValueError, "radius"),
        (strategies.query_sequences, {"sensitivity": -1.0}, ValueError, "sensitivity"),
        (strategies.query_sequences, {"reach": math.inf}, ValueError, "reach"),
        (strategies.query_sequences, {"length": 0}, ValueError, "length"),
    ],
)
def test_arguments_are_checked_before_anything_is_drawn(build, arguments, error, message):
    with pytest.raises(error, match=message):
        build(**arguments)


@pytest.mark.slow
def test_the_extra_is_named_where_hypothesis_is_missing():
    code = "import sys; sys.modules['hypothesis'] = None; import dpanalysis.audit.strategies"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert out.returncode == 1
    assert "pip install 'dpanalysis-toolkit[audit]'" in out.stderr.splitlines()[-1]
