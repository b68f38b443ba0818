"""Public class weights: sensitivity, effect on a fit, refused values."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression as Exact
from sklearn.metrics import recall_score

import dpanalysis as dpa
from dpanalysis.linear_model import LinearSVC, LogisticRegression, PrivateClassifier, load, save
from dpanalysis.linear_model.weights import ClassWeighted
from dpanalysis.losses import Huber, HuberizedHinge, Logistic, check_loss
from dpanalysis.privacy.facts import Block

KINDS = [LogisticRegression, LinearSVC]
WEIGHTS = st.floats(1e-3, 1e3)
LOSSES = st.sampled_from([Logistic(), HuberizedHinge(0.5), HuberizedHinge(0.01)])
RANDOM = np.random.default_rng(7)
X = RANDOM.uniform(-1.0, 1.0, (3000, 3))
RARE = X[:, 0] + 0.3 * RANDOM.normal(size=3000) > 0.8
BOUND = dpa.RowBound((Block(2, math.inf, 1.0), Block(3, 1, 1.0)), 1.0)


def test_the_objective_at_zero_has_a_bound_for_any_labels_of_two_classes():
    def at_zero(loss):
        return dpa.ERM(X, np.sign(X[:, 0]), loss, row_bound=dpa.RowBound(2, 2.0)).value_at_zero

    assert at_zero(Logistic()) == pytest.approx(math.log(2.0), rel=1e-15)
    assert at_zero(ClassWeighted(Logistic(), 0.5, 0.5)) == pytest.approx(0.5 * math.log(2.0))
    for weights in ((0.5, 1.0), (1.0, 0.5)):
        assert at_zero(ClassWeighted(Logistic(), *weights)) == pytest.approx(math.log(2.0))
    assert at_zero(Huber()) is None  # equal at -1 and 1, but targets may be any numbers


@given(LOSSES, WEIGHTS, WEIGHTS, st.integers(0, 10**6), st.floats(0.0, 30.0))
def test_the_sensitivity_covers_any_two_weighted_gradients(loss, negative, positive, seed, size):
    """In every norm of the noise, for a sum in which any record replaces any other."""
    random = np.random.default_rng(seed)
    weighted = ClassWeighted(loss, negative, positive)
    check_loss(weighted)
    groups = np.eye(3)[random.integers(3, size=8)]
    D = np.hstack([random.choice([-1.0, 1.0], (8, 2)), groups])
    y = random.choice([-1.0, 1.0], 8)
    w = size * random.normal(size=5)
    problem = dpa.ERM(D, y, weighted, row_bound=BOUND)
    facts = problem.facts("replace_one")
    each = problem.gradient_sum(np.tile(w, (8, 1)), [np.array([i]) for i in range(8)])
    # Against the formula.
    slopes = loss.derivative(D @ w, y) * np.where(y > 0, positive, negative)
    np.testing.assert_allclose(each, slopes[:, None] * D, rtol=1e-9, atol=1e-12 * positive)
    slack = 1.0 + 1e-12
    moved = each[:, None, :] - each[None, :, :]
    for order in (1, 2):
        assert np.linalg.norm(each, order, axis=1).max() <= facts.gradient_bounds[order - 1] * slack
        most = np.linalg.norm(moved, order, axis=2).max()
        assert most <= facts.record_sensitivity(order) * slack
    ((cube, group),) = facts.block_sensitivities(1)
    assert np.abs(moved[..., :2]).max() <= cube.radius * slack
    assert np.abs(moved[..., 2:]).sum(axis=2).max() <= group.radius * slack
    # The curvature of a record, alone and together with its slope.
    bend = weighted.second_derivative(D @ w, y)
    trace = bend * np.square(D).sum(axis=1)
    assert (trace <= facts.hessian_trace * slack).all()
    if weighted.curvature_vanishes_at_max_slope:
        share = np.abs(slopes) / weighted.lipschitz
        most = 4.0 * share * (1.0 - share) * facts.hessian_trace
        rounding = 1e-15 * facts.hessian_trace  # of 1 - share, where that is tiny
        assert (trace <= most * slack + rounding).all()


@pytest.mark.slow
@given(st.floats(0.1, 5.0), st.dictionaries(st.sampled_from([False, True]), WEIGHTS))
def test_a_fit_with_weights_costs_what_one_without_costs(epsilon, weights):
    few, y = X[:300], X[:300, 1] > 0
    for kind in KINDS:
        fitted = kind(epsilon, bounds=(-1, 1), class_weight=weights, random_state=0).fit(few, y)
        assert fitted.privacy_.epsilon == pytest.approx(epsilon)
        assert fitted.privacy_.epsilon <= epsilon * (1.0 + 1e-8)


@pytest.mark.parametrize("kind", KINDS)
def test_a_common_factor_of_all_weights_changes_nothing(kind):
    found = [
        kind(bounds=(-1, 1), class_weight=weights, random_state=0).fit(X, RARE).coef_
        for weights in (None, {}, {False: 1.0, True: 1.0}, {False: 4.0, True: 4.0})
    ]
    for other in found[1:3]:
        np.testing.assert_array_equal(other, found[0])
    np.testing.assert_allclose(found[3], found[0], rtol=1e-6)


def test_with_next_to_no_noise_it_is_the_weighted_minimizer_of_scikit_learn():
    weights = {False: 0.5, True: 6.0}
    private = LogisticRegression(
        1e9, C=0.1, bounds=(-1, 1), class_weight=weights, fit_intercept=False, random_state=0
    ).fit(X, RARE)
    exact = Exact(C=0.1, class_weight=weights, fit_intercept=False, tol=1e-10).fit(X, RARE)
    np.testing.assert_allclose(private.coef_, exact.coef_, atol=3e-3)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_a_heavy_class_is_found_more_often(kind, delta):
    recalls = [
        recall_score(
            RARE,
            kind(0.5, delta, bounds=(-1, 1), class_weight=weights, random_state=0)
            .fit(X, RARE)
            .predict(X),
        )
        for weights in (None, {True: 10.0})
    ]
    assert recalls[1] > recalls[0] + 0.2


def test_more_classes_are_weighted_one_against_the_others():
    y = np.digitize(X[:, 0], [-0.5, 0.8])
    plain, heavy = (
        LinearSVC(90.0, C=1.0, bounds=(-1, 1), class_weight=weights, random_state=0).fit(X, y)
        for weights in (None, {2: 10.0})
    )
    np.testing.assert_array_equal(heavy.coef_[:2], plain.coef_[:2])  # their runs are the same
    assert (heavy.predict(X) == 2).sum() > (plain.predict(X) == 2).sum()
    with pytest.raises(ValueError, match="class_weight is for two classes here, got 3"):
        LogisticRegression(bounds=(-1, 1), class_weight={2: 10.0}).fit(X, y)


@pytest.mark.parametrize("kind", KINDS)
def test_weights_that_are_not_public_numbers_are_refused_before_anything_is_spent(kind):
    wrong = {
        "balanced": (ValueError, "no epsilon pays for it"),
        "heavy": (TypeError, "a dict of public weights"),
        2.0: (TypeError, "a dict of public weights"),
    }
    for weights, (error, match) in wrong.items():
        with pytest.raises(error, match=match):
            kind(bounds=(-1, 1), class_weight=weights).fit(X, RARE)
    for value in (0.0, -1.0, math.inf, math.nan, "1"):
        with pytest.raises((ValueError, TypeError), match=r"class_weight\[True\]"):
            kind(bounds=(-1, 1), class_weight={True: value}).fit(X, RARE)
    with pytest.raises(ValueError, match="names 'yes', which is not among"):
        kind(bounds=(-1, 1), class_weight={"yes": 2.0}).fit(X, RARE)


@pytest.mark.parametrize("kind", [*KINDS, PrivateClassifier])
def test_sample_weight_is_refused_with_the_reason(kind):
    with pytest.raises(TypeError, match="public bound on all weights"):
        kind(bounds=(-1, 1)).fit(X, RARE, sample_weight=np.ones(len(X)))
    with pytest.raises(TypeError, match="unexpected keyword argument 'weights'"):
        kind(bounds=(-1, 1)).fit(X, RARE, weights=1)


@pytest.mark.parametrize("kind", KINDS)
def test_weights_are_on_the_card_and_in_the_file(kind, tmp_path):
    y = np.where(RARE, "yes", "no")
    model = kind(bounds=(-1, 1), class_weight={"yes": 3}, random_state=0).fit(X, y)
    assert model.privacy_.facts["Class weights"] == "{'yes': 3}, as given"
    save(model, tmp_path / "model.json")
    json.loads((tmp_path / "model.json").read_text())
    again = load(tmp_path / "model.json")
    assert again.class_weight == {"yes": 3.0}
    assert again.n_features_in_ == X.shape[1]
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


@pytest.mark.parametrize(("lowest", "least"), [(-1.0, -3.0), (1.0, 0.5)])
def test_the_lowest_loss_is_that_of_the_label_for_which_it_is_lower(lowest, least):
    loss = type("Shifted", (Logistic,), {"lowest": lowest})()
    assert ClassWeighted(loss, 0.5, 3.0).lowest == ClassWeighted(loss, 3.0, 0.5).lowest == least


def test_weights_do_not_change_the_penalty_of_many_rows():
    """A loss at 0 that differs by class bounds the minimizer as well as one that does not."""
    penalties = set()
    for class_weight in (None, {True: 5.0}):
        model = LogisticRegression(epsilon=2.0, bounds=(-1, 1), class_weight=class_weight)
        rows = np.random.default_rng(0).uniform(-1.0, 1.0, (20_000, 6))
        penalties.add(model.fit(rows, rows[:, 0] > 0.8).privacy_.facts["Penalty"])
    assert len(penalties) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_tiny_weight_times_a_tiny_c_is_the_strongest_penalty(kind):
    """Their product used to be 0, by which the penalty was divided."""
    weights = {False: 1e-200, True: 1e-200}
    model = kind(class_weight=weights, C=1e-200, bounds=(-1, 1), random_state=0).fit(X, RARE)
    assert abs(model.coef_).max() < 1e-200
