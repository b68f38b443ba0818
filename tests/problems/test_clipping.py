"""Clipping rules: bound, formulas, all backends, and effect on the privacy guarantee."""

import math
import pickle

import array_api_strict
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import assume, example, given
from hypothesis import strategies as st

import dpanalysis as dpa
from dpanalysis import ERM, RowBound, clipping, losses
from dpanalysis.kernels import kernel_table, scalar
from dpanalysis.privacy import mechanisms
from dpanalysis.privacy.oracle import PrivateOracle

LOSSES = [
    losses.Logistic(),
    losses.SquaredError(),
    losses.Hinge(),
    losses.HuberizedHinge(0.5),
    losses.Huber(0.5),
]
C, R = 0.7, 2.0


def _by_loss(norm, loss):
    """A custom rule that depends on both."""
    return C / (norm + loss + 0.1)


# name -> rule for a loss and rows up to R, and a second implementation of its formula.
RULES = {
    "flat": (
        lambda loss: clipping.Flat(C),
        lambda norm, value, loss: np.minimum(1.0, C / np.maximum(norm, 1e-300)),
    ),
    "automatic": (
        lambda loss: clipping.Automatic(0.1, C),
        lambda norm, value, loss: C / (norm + 0.1),
    ),
    "adaptive": (
        lambda loss: clipping.PerSampleAdaptive(0.2, C),
        lambda norm, value, loss: C / (norm + 0.2 / (norm + 0.2)),
    ),
    "adaptive, r > 1": (
        lambda loss: clipping.PerSampleAdaptive(3.0, C),
        lambda norm, value, loss: C / (norm + 3.0 / (norm + 3.0)),
    ),
    "value": (
        lambda loss: clipping.Value(C, *loss.weak_growth(R)),
        lambda norm, value, loss: np.minimum(
            1.0, C / np.sqrt(np.maximum(np.polyval([*loss.weak_growth(R)], value), 1e-300))
        ),
    ),
    "value, all parameters": (
        lambda loss: clipping.Value(C, loss.weak_growth(R)[0] + 1.0, R**2, -0.3),
        lambda norm, value, loss: np.minimum(
            1.0, C / np.sqrt((loss.weak_growth(R)[0] + 1.0) * (value + 0.3) + R**2)
        ),
    ),
    "custom": (
        lambda loss: clipping.Custom(_by_loss, C),
        lambda norm, value, loss: _by_loss(norm, value),
    ),
}
FORMS = {
    "dense": lambda X: X,
    "fortran": np.asfortranarray,
    "float32": lambda X: X.astype(np.float32),
    "csr": sp.csr_array,
    "strict": array_api_strict.asarray,
}
SIZES = st.one_of(
    st.floats(0.0, math.inf),
    st.sampled_from([0.0, 5e-324, 1e-310, 2.3e-308, 1e-300, C, 1.0, 1e300, 1.7e308, math.inf]),
)


def twin_weight(rule, norm, value):
    """Return the weight that the compiled kernels give."""
    _, _, code, *parameters = kernel_table.plan(
        losses.Logistic(), rule, sparse=False
    ).numbers.tolist()
    return scalar.clip_weight(int(code), tuple(parameters), norm, value)


def test_every_rule_is_listed():
    public = {getattr(clipping, name) for name in clipping.__all__}
    public -= {clipping.Clipping, clipping.check_clipping, clipping.compiled}
    assert {type(make(losses.Logistic())) for make, _ in RULES.values()} == public


# The bound


@given(st.sampled_from(list(RULES)), st.sampled_from(LOSSES), SIZES, SIZES)
@example("flat", LOSSES[0], 1.7e308, 0.0)
@example("value", LOSSES[2], math.inf, math.inf)
def test_the_weighted_norm_never_exceeds_the_clip_norm(name, loss, norm, value):
    """For any norm and loss, also pairs that no sample has."""
    rule = RULES[name][0](loss)
    weight = float(rule.weight(np.array([norm]), np.array([value]))[0])
    assert 0.0 <= weight <= rule.largest_weight * (1 + 1e-15)
    assert weight == 0.0 if norm == math.inf else weight * norm <= C
    if kernel_table.is_compiled_rule(rule):
        twin = twin_weight(rule, norm, value)
        assert twin == pytest.approx(weight, rel=1e-14, abs=0.0)


@given(
    st.floats(1e-300, 1e300), st.floats(0.0, 1.7e308), st.floats(1e-100, 1e100), st.floats(0, 1e300)
)
@example(9.54717550233982e-11, 7.284111812827354e307, 1.0, 0.0)  # a quotient that rounds up
def test_no_parameter_breaks_the_bound(clip_norm, norm, r, value):
    rules = [clipping.Flat(clip_norm), clipping.Value(clip_norm, r, r)]
    if clip_norm < 1e200:
        rules += [clipping.Automatic(r, clip_norm), clipping.PerSampleAdaptive(r, clip_norm)]
    for rule in rules:
        weight = float(rule.weight(np.array([norm]), np.array([value]))[0])
        assert weight * norm <= clip_norm
        twin = twin_weight(rule, norm, value)
        assert twin * norm <= clip_norm
        assert twin == pytest.approx(weight, rel=1e-14, abs=1e-300)


@given(st.floats(0.0, 1e200), st.floats(1e-100, 1e100))
@example(5.5, 0.1)  # the quotient rounds up, as one in 25 does
def test_flat_clipping_keeps_gradients_within_the_clip_norm(norm, bound):
    weight = float(clipping.Flat(bound).weight(np.array([norm]))[0])
    assert weight == 1.0 if norm <= bound else weight * norm >= bound * (1 - 1e-14)


@pytest.mark.parametrize("xp", [np, array_api_strict])
@pytest.mark.parametrize("name", RULES)
def test_nan_and_any_namespace(name, xp):
    rule, formula = RULES[name][0](LOSSES[0]), RULES[name][1]
    norms = np.array([[0.0, 0.3, 5.0], [np.nan, np.inf, 0.1]])
    values = np.array([[0.0, 0.2, 9.0], [1.0, 1.0, np.inf]])
    found = np.asarray(rule.weight(xp.asarray(norms), xp.asarray(values)))
    assert found.shape == norms.shape and found.dtype == np.float64
    expected = formula(norms[0], values[0], LOSSES[0])
    expected = np.minimum(expected, C / np.maximum(norms[0], 1e-300))
    np.testing.assert_allclose(found[0], expected, rtol=1e-13)
    assert np.isnan(found[1, 0]) and found[1, 1] == 0.0
    if kernel_table.is_compiled_rule(rule):
        assert math.isnan(twin_weight(rule, math.nan, 1.0))


def test_an_unknown_code_gives_nan():
    """A kernel compiled before the rule existed must not return the gradient unclipped."""
    assert math.isnan(scalar.clip_weight(99, (1.0, 0.0, 0.0, 0.0), 0.5, 0.0))


# The formulas


@given(st.floats(1e-6, 1.0), st.floats(1e-3, 1e3))
def test_the_peak_of_adaptive_clipping(r, clip_norm):
    rule = clipping.PerSampleAdaptive(r, clip_norm)
    place, peak = math.sqrt(r) - r, clip_norm / (2 * math.sqrt(r) - r)
    assert rule.largest_weight == pytest.approx(peak, rel=1e-14)
    assert rule.weight(np.array([place]))[0] == pytest.approx(peak, rel=1e-12)
    grid = np.concatenate([np.linspace(0.0, 2.0, 2001), place * np.linspace(0.9, 1.1, 201)])
    weights = rule.weight(np.sort(grid))
    assert weights.max() <= peak * (1 + 1e-14)
    top = int(weights.argmax())
    assert (np.diff(weights[: top + 1]) >= -1e-14 * peak).all()
    assert (np.diff(weights[top:]) <= 1e-14 * peak).all()


@given(st.floats(1.0, 1e6), st.floats(1e-3, 1e3))
def test_adaptive_clipping_with_a_large_r_peaks_at_zero(r, clip_norm):
    """The paper's formula 1/(2 sqrt r - r) fails there: it exceeds 1 or is negative."""
    rule = clipping.PerSampleAdaptive(r, clip_norm)
    weights = rule.weight(np.concatenate([[0.0], np.logspace(-9, 9, 400)]))
    assert weights[0] == pytest.approx(clip_norm, rel=1e-14)
    assert weights[0] == pytest.approx(rule.largest_weight)
    assert (np.diff(weights) <= 1e-14 * clip_norm).all()


@given(st.floats(1e-3, 1e3), st.floats(1e-3, 1e3))
def test_limits_at_zero_and_infinity(r, clip_norm):
    norms = np.array([0.0, 1e-12, 1e12])
    automatic = clipping.Automatic(r, clip_norm)
    zero, small, far = automatic.weight(norms)
    assert zero == pytest.approx(clip_norm / r) == pytest.approx(small) == automatic.largest_weight
    assert far * 1e12 == pytest.approx(clip_norm, rel=1e-8)
    zero, small, far = clipping.PerSampleAdaptive(r, clip_norm).weight(norms)
    assert zero == pytest.approx(clip_norm) == pytest.approx(small)
    assert far * 1e12 == pytest.approx(clip_norm, rel=1e-8)


@pytest.mark.parametrize("r", [1e-3, 0.2, 1.0, 5.0])
@pytest.mark.parametrize("rule", [clipping.Automatic, clipping.PerSampleAdaptive])
def test_weighted_norms_increase_and_stay_below(rule, r):
    """So a larger gradient never moves a sum by less; Automatic's weights decrease."""
    norms = np.logspace(-6, 6, 2000)
    weights = rule(r, C).weight(norms)
    sizes = weights * norms
    assert (np.diff(sizes) >= -1e-15).all() and sizes.max() <= C
    assert sizes[0] < 1e-2 * C and sizes[-1] > (1 - 1e-5) * C
    assert rule is clipping.PerSampleAdaptive or (np.diff(weights) < 0.0).all()


def test_a_rule_that_forgets_r_is_another_rule():
    """Without r the weight of a vanishing gradient is C / norm, which is unbounded."""
    norms = np.array([1e-9, 1e-3, 0.05])
    forgotten = C / norms
    for r in (0.1, 1.0):
        for rule in (clipping.Automatic, clipping.PerSampleAdaptive):
            weights = rule(r, C).weight(norms)
            assert (weights < 0.7 * forgotten).all()
            assert (weights <= rule(r, C).largest_weight * (1 + 1e-15)).all()


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_value_clipping_is_within_the_bound_by_its_loss_alone(loss):
    """The norms are not used, and the bound is attained: no smaller constant suffices."""
    z = np.concatenate([np.linspace(-50.0, 50.0, 20_001), 1.0 - np.logspace(-12, 0, 50)])
    sizes = np.abs(loss.derivative(z, 1.0)) * R
    for clip_norm in (0.01, C):
        rule = clipping.Value(clip_norm, *loss.weak_growth(R))
        weighted = rule.weight(None, loss.value(z, 1.0)) * sizes
        assert weighted.max() <= clip_norm * (1 + 1e-12)
        assert weighted.max() >= clip_norm * (1 - 1e-4)
    smaller = clipping.Value(C, *(0.9 * k for k in loss.weak_growth(R)))
    assert (smaller.weight(None, loss.value(z, 1.0)) * sizes).max() > C * 1.01
    cut = smaller.weight(sizes, loss.value(z, 1.0))  # where the norms are known
    assert (cut * sizes).max() <= C


def test_a_loss_below_the_lower_bound_counts_as_at_it():
    rule = clipping.Value(C, 1.0, 0.25, lower_bound=10.0)
    for value in (0.0, 10.0):
        assert rule.weight(np.array([0.5]), np.array([value])) == 1.0
        assert twin_weight(rule, 0.5, value) == 1.0


def test_value_clipping_by_the_mean_loss_breaks_the_bound():
    """Line 4 as Fang et al. (2023) print it: one bad sample among good ones keeps its gradient."""
    loss, n = losses.SquaredError(), 100
    z = np.zeros(n)
    z[0] = 100.0
    values, sizes = loss.value(z, 0.0), np.abs(loss.derivative(z, 0.0))
    rule = clipping.Value(1.0, *loss.weak_growth(1.0))
    printed = rule.weight(None, np.full(n, values.mean()))
    assert (printed * sizes).max() == pytest.approx(10.0)
    assert (rule.weight(None, values) * sizes).max() <= 1.0


# Every rule with every loss on every path


def reference(X, y, w, loss, formula, k):
    """Clipped sums from the n x d matrix of gradients."""
    z = X @ w
    values, gradients = loss.value(z, y), loss.derivative(z, y)[:, None] * X
    norms = np.linalg.norm(gradients, axis=1)
    factor = formula(norms, values, loss)
    factor = np.minimum(factor, C / np.maximum(norms, 1e-300))
    return k @ values, (k * factor) @ gradients, int(((factor < 1.0) & (k > 0.0)).sum())


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("form", FORMS)
def test_all_paths_agree(form, name, loss):
    """All rows, shared rows, ragged rows, multiplicities; one iterate and several."""
    make, formula = RULES[name]
    rule, random = make(loss), np.random.default_rng(1)
    X = random.standard_normal((83, 6)) * (random.random((83, 6)) < 0.7)
    X /= np.maximum(np.linalg.norm(X, axis=1, keepdims=True) / R, 1.0) * (1 + 1e-6)
    X = FORMS[form](X)
    table = X.toarray() if sp.issparse(X) else np.asarray(X, dtype=np.float64)
    y = np.where(random.random(83) < 0.5, 1.0, -1.0)
    W = 2.0 * random.standard_normal((5, 6))
    problem = ERM(X, y, loss, row_bound=RowBound(2, R))
    rows = np.array([0, 82, 7, 7, 40])
    ragged = [rows, rows[:0], rows[:1], np.arange(83), rows[2:]]
    k = random.integers(0, 4, 83).astype(float)
    ones, everything = np.ones(83), np.arange(83)
    runs = [
        (problem.sums(W, clipping=rule), [everything] * 5, ones),
        (problem.sums(W, rows, clipping=rule), [rows] * 5, ones),
        (problem.sums(W, ragged, clipping=rule), ragged, ones),
        (problem.sums(W, clipping=rule, weights=k), [everything] * 5, k),
        (problem.sums(W, rows, clipping=rule, weights=k), [rows] * 5, k),
    ]
    for sums, chosen, counts in runs:
        for r, (w, pick) in enumerate(zip(W, chosen)):
            value, gradient, clipped = reference(
                table[pick], y[pick], w, loss, formula, counts[pick]
            )
            np.testing.assert_allclose(sums.gradient[r], gradient, rtol=1e-12, atol=1e-12)
            assert sums.value[r] == pytest.approx(value, rel=1e-12, abs=1e-12)
            assert sums.clipped[r] == clipped
    one = problem.sums(W[0], rows, clipping=rule, value=False)
    np.testing.assert_allclose(one.gradient, runs[1][0].gradient[0], rtol=1e-12, atol=1e-13)
    for i in range(0, 83, 9):
        alone = problem.sums(W[1], np.array([i]), clipping=rule, value=False)
        assert np.linalg.norm(alone.gradient) <= C * (1 + 1e-15)


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("form", ["dense", "csr", "strict"])
def test_what_overflows_counts_as_zero(form, name, loss):
    """Predictions, gradients or losses that overflow float64, beside one finite sample."""
    X = np.array([[0.5], [1e300], [-1e300], [1.7e308]])
    rule = RULES[name][0](loss)
    if isinstance(rule, clipping.Value):  # value clipping asks for a row bound
        problem = ERM(FORMS[form](X), np.ones(4), loss, row_bound=RowBound(2, R))
        w = np.array([[1e200], [-1e200]])
    else:
        problem = ERM(FORMS[form](X), np.ones(4), loss)
        w = np.array([[1e10], [-1e10]])
    with np.errstate(all="ignore"):
        gradient = problem.sums(w, clipping=rule, value=False).gradient
    assert np.isfinite(gradient).all() and (np.abs(gradient) <= 4 * C).all()


@pytest.mark.parametrize("name", RULES)
def test_rules_are_values(name):
    make, _ = RULES[name]
    rule, twin = make(LOSSES[0]), make(LOSSES[0])
    assert rule == twin == pickle.loads(pickle.dumps(rule)) and hash(rule) == hash(twin)
    assert repr(rule).startswith(type(rule).__name__ + "(") and "clip_norm=0.7" in repr(rule)
    with pytest.raises(AttributeError):
        rule.clip_norm = 2.0
    assert clipping.Flat(1) == clipping.Flat(1.0) != clipping.Automatic(1.0)
    assert clipping.Automatic(0.5) != clipping.PerSampleAdaptive(0.5)


# Bad arguments


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf, "1", None])
def test_bad_parameters_are_refused(bad):
    cases = [
        (lambda: clipping.Flat(bad), "clip_norm"),
        (lambda: clipping.Automatic(bad), "r must"),
        (lambda: clipping.Automatic(1.0, bad), "clip_norm"),
        (lambda: clipping.PerSampleAdaptive(bad), "r must"),
        (lambda: clipping.PerSampleAdaptive(1.0, bad), "clip_norm"),
        (lambda: clipping.Value(bad, 1.0), "clip_norm"),
        (lambda: clipping.Custom(_by_loss, bad), "clip_norm"),
    ]
    if bad != 0.0:
        if bad is not None:  # None selects the problem's constants
            cases.append((lambda: clipping.Value(1.0, bad), "beta1"))
        cases.append((lambda: clipping.Value(1.0, 1.0, bad), "beta2"))
    if bad not in (0.0, -1.0):
        cases.append((lambda: clipping.Value(1.0, 1.0, lower_bound=bad), "lower_bound"))
    for make, name in cases:
        with pytest.raises((ValueError, TypeError), match=name):
            make()


def test_bad_combinations_are_refused():
    with pytest.raises(ValueError, match="beta1 and beta2"):
        clipping.Value(1.0, 0.0)
    for rule in (clipping.Automatic, clipping.PerSampleAdaptive):
        with pytest.raises(ValueError, match="clip_norm / r"):
            rule(1e-300, 1e300)
    for rule in (clipping.Value(1.0, 1.0), clipping.Custom(_by_loss, 1.0)):
        with pytest.raises(ValueError, match="losses must be given"):
            rule.weight(np.ones(3))
    with pytest.raises(ValueError, match="losses must be given"):
        clipping.Value(1.0, 1.0).weight(None)


# Value clipping on a problem


def problem_of(loss, radius=R, order=2, n=40):
    random = np.random.default_rng(4)
    X, y = random.standard_normal((n, 3)), np.where(random.random(n) < 0.5, 1.0, -1.0)
    return ERM(X, y, loss, row_bound=None if radius is None else RowBound(order, radius))


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_value_clipping_needs_constants_that_hold_for_every_record(loss):
    """The public bounds decide, though these data would need smaller constants."""
    problem, (beta1, beta2) = problem_of(loss), loss.weak_growth(R)
    good = [
        clipping.Value(C, beta1, beta2),
        clipping.Value(C, beta1 + 1.0, beta2),
        clipping.Value(C, beta1, beta2, lower_bound=-5.0),
    ]
    if math.isfinite(loss.lipschitz):  # then a constant bound suffices
        good.append(clipping.Value(C, 0.0, R**2))
        good.append(clipping.Value(C, *loss.weak_growth(R, beta1=0.3 * beta1)))
    for rule in good:
        problem.check_clipping(rule)
        assert np.linalg.norm(problem.sums(np.ones(3), clipping=rule).gradient) <= 40 * C
    bad = [clipping.Value(C, 0.99 * beta1 or 1.0, 0.99 * beta2)]
    if beta1 > 0.0:
        bad.append(clipping.Value(C, beta1, beta2, lower_bound=0.1))
    for rule in bad:
        for call in (
            lambda rule=rule: problem.check_clipping(rule),
            lambda rule=rule: problem.sums(np.ones(3), clipping=rule),
            lambda rule=rule: problem.clipped_gradient_sum(np.ones(3), rule),
        ):
            with pytest.raises(ValueError, match=r"beta1 = .*beta1 must be at least") as caught:
                call()
            assert repr(rule.beta1) in str(caught.value) and repr(beta1) in str(caught.value)


def test_value_clipping_needs_a_row_bound():
    problem = problem_of(losses.Logistic(), radius=None)
    for call in (problem.check_clipping, lambda rule: problem.sums(np.ones(3), clipping=rule)):
        with pytest.raises(ValueError, match=r"beta1 = 1000000000.*row_bound.*Flat"):
            call(clipping.Value(C, 1e9))
    implied = problem_of(losses.Logistic(), radius=R, order=1)  # the L1 bound bounds the L2 norm
    implied.check_clipping(clipping.Value(C, *losses.Logistic().weak_growth(R)))


def untouched(problem):
    """Return the problem, failing at any access to its data."""

    def refuse(*args, **options):
        raise AssertionError("the data were touched")

    problem.sums = problem.gradient_sum = problem.value = problem.gradient = refuse
    return problem


@pytest.mark.parametrize("radius", [R, None])
def test_a_rule_without_a_bound_is_refused_before_the_data_and_the_budget_are_touched(radius):
    problem = untouched(problem_of(losses.SquaredError(), radius))
    rule = clipping.Value(C, 0.5)
    method = dpa.methods.GradientDescent(0.1, 3, mechanism="gaussian", clipping=rule)
    for budget in (dpa.Budget(1.0, 1e-5), None):
        with pytest.raises(ValueError, match=r"beta1 = 0\.5"):
            dpa.minimize(problem, method, budget, rng=0)
    facts = problem.facts("replace_one")
    guard = dpa.privacy.Filter(dpa.Budget(1.0, 1e-5))
    oracle = PrivateOracle(problem, facts, guard, mechanisms.spawn(0, 1))
    with pytest.raises(ValueError, match=r"beta1 = 0\.5"):
        oracle.gradient(np.zeros((1, 3)), dpa.Full(), "gaussian", 10.0, rule)
    assert len(oracle.ledger) == 0 and guard.spent == 0.0


# What a rule does to the sensitivity


@pytest.mark.parametrize("relation", ["replace_one", "add_or_remove_one"])
@pytest.mark.parametrize("name", RULES)
def test_runs_are_private_with_every_rule(name, relation):
    problem = problem_of(losses.Logistic())
    rule = RULES[name][0](problem.loss)
    method = dpa.methods.GradientDescent(0.1, 3, mechanism="gaussian", clipping=rule)
    budget = dpa.Budget(1.0, 1e-5, relation=relation)
    result = dpa.minimize(problem, method, budget, rng=0)
    assert 0.99 < result.epsilon() <= 1.0 + 1e-9
    facts = problem.facts(relation)
    records = 2 if relation == "replace_one" else 1
    assert 0.0 < facts.rounding < 1e-9
    assert facts.record_sensitivity(2, rule) == (records + 2.0 * facts.rounding) * C


@given(
    st.sampled_from(list(RULES)),
    st.sampled_from(LOSSES),
    st.floats(1e-3, 10.0),
    st.sampled_from([1, 2]),
    st.integers(0, 2**20),
)
def test_no_record_moves_a_sum_by_more_than_its_sensitivity(name, loss, radius, order, seed):
    """Also where a rule scales small gradients above the bound of the rows."""
    assume(not (name.startswith("value") and radius > R))
    random = np.random.default_rng(seed)
    X = random.standard_normal((1, 4)) * 10.0 ** random.uniform(-3, 3)
    w = random.standard_normal(4) * 10.0 ** random.uniform(-2, 2)
    problem = ERM(X, [random.choice([-1.0, 1.0])], loss, row_bound=RowBound(2, radius))
    rule = RULES[name][0](loss)
    gradient = problem.sums(w, clipping=rule, value=False).gradient
    facts = problem.facts("add_or_remove_one")
    assert np.linalg.norm(gradient, ord=order) <= facts.record_sensitivity(order, rule) * (1 + 1e-9)


def test_the_row_bound_alone_is_no_bound_on_a_lifted_gradient():
    """Rows of norm 1e-3 and r = 1e-4: the weighted gradient is 500 times the gradient's bound."""
    problem = ERM(np.array([[1e-3]]), [1.0], losses.Logistic(), row_bound=RowBound(2, 1e-3))
    facts = problem.facts("add_or_remove_one")
    for rule in (clipping.Automatic(1e-4), clipping.Custom(lambda g, f: 1 / (g + 1e-4), 1.0)):
        moved = abs(problem.sums(np.zeros(1), clipping=rule).gradient[0])
        assert moved == pytest.approx(5e-4 / 6e-4) and moved > 500 * facts.record_sensitivity(2)
        assert moved <= facts.record_sensitivity(2, rule) == 1.0 + 2.0 * facts.rounding
    assert facts.record_sensitivity(2, clipping.Flat(1.0)) == pytest.approx(1e-3, rel=1e-9)
    # Where the row bound times the largest weight is below the clip norm, it is charged.
    assert facts.record_sensitivity(2, clipping.Automatic(0.01)) == pytest.approx(0.1)


# Custom rules


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda norm, loss: 1.0, r"weight \* norm <= clip_norm = 0.7: at norm = 1e\+300"),
        (lambda norm, loss: C / (norm + 0.1) if loss < 1e3 else 2.0, "loss = 1e"),
        (lambda norm, loss: -0.1, r"weight >= 0, got -0.1 at norm = 0 and loss = 0"),
        (lambda norm, loss: math.nan if norm > 1e50 else 0.0, r"got nan at norm = 1e\+60"),
        (lambda norm, loss: C / norm, "got inf at norm = 0"),
        (lambda norm, loss: C / float(norm), "function failed at norm = 0.*ZeroDivisionError"),
        (lambda norm: 0.0, "function failed at norm = 0 and loss = 0"),
        (lambda norm, loss: "a", "function failed"),
        (lambda norm, loss: [0.0, 1.0], "function failed"),
    ],
)
def test_a_custom_rule_that_shows_its_fault_is_refused(function, message):
    with pytest.raises(ValueError, match=message):
        clipping.Custom(function, C)


def test_a_custom_rule_must_be_a_function():
    for function in (0.5, None, "flat"):
        with pytest.raises(TypeError, match="function must be callable"):
            clipping.Custom(function, 1.0)
    with pytest.raises(TypeError, match=r"clipping must be a rule.*Custom"):
        problem_of(losses.Logistic()).sums(np.zeros(3), clipping=_by_loss)


FAULT = 0.123456789


@pytest.mark.parametrize("fault", [100.0, -5.0, math.nan, math.inf, 1e308, "raise"])
def test_the_bound_of_a_custom_rule_does_not_rest_on_its_check(fault):
    """A fault between the grid points of the check: the weight is cut to the bound, or 0."""

    def function(norm, loss):
        if loss == FAULT:
            if fault == "raise":
                raise RuntimeError("a record that should not show")
            return fault
        return C / (norm + 0.1)

    rule = clipping.Custom(function, C)
    norms = np.array([0.5, 3.0, 1e200, 1e-200])
    weights = rule.weight(norms, np.full(4, FAULT))
    expected = np.minimum(fault, C / norms) if fault in (100.0, 1e308) else np.zeros(4)
    np.testing.assert_allclose(weights, expected, rtol=1e-14)
    assert (weights * norms <= C).all()


def test_a_custom_rule_sees_one_sample_at_a_time():
    """It is called with two scalars, so no weight can depend on another sample."""
    seen = []

    def function(norm, loss):
        seen.append((np.ndim(norm), np.ndim(loss)))
        return 0.0

    rule = clipping.Custom(function, 1.0)
    problem = problem_of(losses.Logistic())
    problem.sums(np.zeros((2, 3)), clipping=rule)
    assert set(seen) == {(0, 0)} and len(seen) > 80


def test_a_custom_rule_is_applied_block_by_block(monkeypatch):
    """Many small blocks give the sums of one block, without an n x d array."""
    from dpanalysis.kernels import array_api

    random = np.random.default_rng(0)
    X = random.standard_normal((500, 7))
    y, W = np.sign(random.standard_normal(500)), random.standard_normal((3, 7))
    rule = clipping.Custom(_by_loss, C)
    for form in (np.asarray, sp.csr_array):
        problem = ERM(form(X), y, losses.Logistic(), row_bound=RowBound(1, 1.0))
        whole = problem.sums(W, clipping=rule)
        monkeypatch.setattr(array_api, "_HOST_ENTRIES", 50)
        parts = problem.sums(W, clipping=rule)
        monkeypatch.undo()
        np.testing.assert_allclose(parts.gradient, whole.gradient, rtol=1e-12, atol=1e-13)
        np.testing.assert_array_equal(parts.clipped, whole.clipped)


# Methods with a loss that is not smooth


def test_methods_with_the_hinge_loss():
    """Private gradient descent runs; methods that need a smoothness constant refuse."""
    problem = problem_of(losses.Hinge())
    method = dpa.methods.GradientDescent(0.05, 5)
    result = dpa.minimize(problem, method, dpa.Budget(1e3), rng=0)
    assert result.epsilon() == pytest.approx(1e3)
    assert problem.value(result.w)[0] < problem.value(np.zeros(3))
    for method in (
        dpa.methods.Nesterov(0.05, 5, mu=0.1, noise="optimal"),
        dpa.methods.GradientDescent(0.05, 5, choose_iterations=1.0),
    ):
        with pytest.raises(ValueError, match=r"needs a finite L, got inf.*smooth loss"):
            dpa.minimize(problem, method, dpa.Budget(1.0), rng=0)
    with pytest.raises(ValueError, match=r"solve needs.*Hinge\(\)"):
        dpa.minimize(problem, dpa.methods.GradientDescent(0.05, 5), record="gap")


def test_no_rule_and_built_in_rules_look_at_one_sample():
    for rule in (None, clipping.Flat(1.0), clipping.Automatic(0.1), clipping.Value(1.0, None)):
        clipping.check_per_sample(rule)


def test_every_rule_is_asked_whether_its_bound_holds():
    class Never(clipping.Flat):
        def check(self, loss, radius):
            raise ValueError(f"not for rows up to {radius:g}")

    X, bound = np.eye(2), RowBound(2, 3.0)
    binary = ERM(X, [1, -1], losses.Logistic(), row_bound=bound)
    for problem in (binary, dpa.problems.Softmax(X, [0, 1], row_bound=bound)):
        with pytest.raises(ValueError, match="up to 3"):
            problem.check_clipping(Never(1.0))


class Median(clipping.Clipping):
    """The weight of a sample depends on the others."""

    clip_norm = 1.0

    def wanted(self, norms, losses):
        return 1.0 / (1.0 + np.median(norms)) + 0.0 * norms


def test_a_rule_that_mixes_samples_is_refused_where_privacy_is_claimed():
    problem = problem_of(losses.Logistic())
    method = dpa.methods.GradientDescent(0.05, 3, clipping=Median())
    with pytest.raises(ValueError, match=r"Median\.weight gives a sample other numbers"):
        dpa.minimize(problem, method, dpa.Budget(1.0), rng=0)
    assert not dpa.minimize(problem, method, rng=0).private


def test_a_rule_that_has_changed_is_checked_again():
    """A rule that passed in an earlier run, or earlier in this one, may mix samples by now."""

    class Sometimes(Median):
        mixes = False

        def wanted(self, norms, losses):
            return super().wanted(norms, losses) if self.mixes else 1.0 / (1.0 + norms)

    problem, rule = problem_of(losses.Logistic()), Sometimes()
    method = dpa.methods.GradientDescent(0.05, 3, clipping=rule)
    assert dpa.minimize(problem, method, dpa.Budget(1.0), rng=0).private
    with pytest.raises(ValueError, match=r"Sometimes\.weight gives a sample other numbers"):
        dpa.minimize(
            problem,
            method,
            dpa.Budget(1.0),
            rng=0,
            callback=lambda iteration, w: setattr(rule, "mixes", True),
        )
    with pytest.raises(ValueError, match=r"Sometimes\.weight gives a sample other numbers"):
        dpa.minimize(problem, method, dpa.Budget(1.0), rng=0)
    rule.mixes = False
    assert dpa.minimize(problem, method, dpa.Budget(1.0), rng=0).private


class Writing(clipping.Clipping):
    """Writes to the norms and losses that it gets, after which no weight seems too large."""

    clip_norm = 0.1

    def wanted(self, norms, losses=None):
        norms *= 1e-3
        if losses is not None:
            losses *= 0.0
        return self.clip_norm / norms


@pytest.mark.parametrize("kind", ["erm", "softmax", "single", "module"])
def test_a_rule_that_writes_to_its_arguments_keeps_its_bound(kind):
    rng = np.random.default_rng(0)
    X, y = 100.0 * rng.normal(size=(9, 4)), np.arange(9) % 2
    if kind == "erm":
        problem = ERM(X, 2.0 * y - 1.0, losses.SquaredError())
    elif kind == "module":
        torch = pytest.importorskip("torch", reason="PyTorch is not installed")
        problem = dpa.problems.Module(torch.nn.Linear(4, 2), X, y)
    else:
        dtype = "float32" if kind == "single" else None
        problem = dpa.problems.Softmax(X, y, dtype=dtype)
    w = np.zeros((1, problem.d))
    for i in range(9):
        term = problem.gradient_sum(w, [np.array([i])], Writing())
        assert 0.0 < np.linalg.norm(term) <= 0.1 * (1.0 + 1e-12)
