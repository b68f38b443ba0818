"""PrivateClassifier: the rules that it shares with the other classifiers, and its own."""

import json
import math
from collections import Counter

import hypothesis
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import linear_model
from sklearn.base import clone

import dpanalysis as dpa
from dpanalysis import clipping, losses, methods, privacy, theory
from dpanalysis.linear_model import LinearSVC, LogisticRegression, PrivateClassifier, load, save
from dpanalysis.linear_model.runs import _counted, default_penalty, descent, perturbation

RANDOM = np.random.default_rng(3)
X = RANDOM.uniform(-1.0, 1.0, size=(600, 3))
Y = {K: np.digitize(X[:, 0], np.linspace(-1, 1, K + 1)[1:-1]) for K in (2, 3)}
FLAT = clipping.Flat(1.0)
SHARES = theory.Shares(0.1, 0.2, 0.1)


class Rounded(losses.Loss):
    """sqrt(1 + (1 - y z)^2) - 1."""

    classification, convex = True, True
    lipschitz, smoothness, hessian_lipschitz = 1.0, 1.0, 0.86

    def value(self, z, y):
        return np.sqrt(1.0 + (1.0 - y * z) ** 2) - 1.0

    def derivative(self, z, y):
        return -y * (1.0 - y * z) / np.sqrt(1.0 + (1.0 - y * z) ** 2)

    def second_derivative(self, z, y):
        return (1.0 + (1.0 - y * z) ** 2) ** -1.5


class MySGD(methods.SGD):
    """A user-defined method."""


def generic(loss=None, method="auto", **arguments):
    return PrivateClassifier(loss, method, **{"bounds": (-1, 1), "random_state": 0, **arguments})


def same(model, other):
    """Equal weights to the last bit, and equal cards except for the name of the model."""
    np.testing.assert_array_equal(model.coef_, other.coef_)
    np.testing.assert_array_equal(model.intercept_, other.intercept_)
    cards = [json.loads(each.privacy_.to_json()) for each in (model, other)]
    assert {**cards[0], "model": ""} == {**cards[1], "model": ""}


few = hypothesis.settings(max_examples=10)  # each fits two or three models
settings = st.fixed_dictionaries({
    "epsilon": st.sampled_from([0.02, 0.5, 3.0]),
    "delta": st.sampled_from([0.0, 1e-5]),
    "C": st.sampled_from(["auto", 0.1, 10.0, "private"]),
    "fit_intercept": st.booleans(),
    "relation": st.sampled_from(["replace_one", "add_or_remove_one"]),
    "size": st.sampled_from([None, 550]),
    "random_state": st.integers(0, 9),
}).filter(lambda each: each["C"] != "private" or each["delta"] == 0.0)  # fmt: skip


def test_classes_in_turn_share_epsilon_and_delta():
    method = methods.SGD(0.5, 3, dpa.Full(), FLAT)
    card = generic(losses.Hinge(), method, delta=1e-5).fit(X, Y[3]).privacy_
    assert card.epsilon == pytest.approx(1.0, rel=1e-3) and card.epsilon <= 1.0 + 1e-9
    assert card.delta == pytest.approx(1e-5)


@pytest.mark.slow
@few
@given(settings, st.sampled_from([2, 3]))
def test_with_the_logistic_loss_it_is_logistic_regression(chosen, K):
    expected = LogisticRegression(bounds=(-1, 1), **chosen).fit(X, Y[K])
    for loss in (None, losses.Logistic()):
        same(generic(loss, **chosen).fit(X, Y[K]), expected)


@pytest.mark.slow
@few
@given(settings, st.sampled_from([2, 3]), st.sampled_from([0.1, 0.5]))
def test_with_the_rounded_hinge_loss_it_is_the_support_vector_machine(chosen, K, width):
    expected = LinearSVC(bounds=(-1, 1), width=width, **chosen).fit(X, Y[K])
    for method in ("auto", "objective_perturbation"):
        same(generic(losses.HuberizedHinge(width), method, **chosen).fit(X, Y[K]), expected)


@pytest.mark.slow
@few
@given(settings, st.sampled_from([2, 3]))
def test_a_method_object_is_run_as_the_rules_run_it(chosen, K):
    """Objective perturbation with the penalty of C, and descent where it is chosen."""
    chosen["C"] = "auto" if chosen["C"] == "private" else chosen["C"]
    expected = LogisticRegression(bounds=(-1, 1), **chosen).fit(X, Y[K])
    n = chosen["size"] or len(X)
    d = 3 + chosen["fit_intercept"]
    box, options = dpa.RowBound(math.inf, 1.0), {"size": chosen["size"]}
    rows = np.zeros((len(X), d))
    if K == 2:
        problem = dpa.ERM(rows, np.ones(len(X)), losses.Logistic(), None, box, **options)
    else:
        problem = dpa.problems.Softmax(rows, Y[3], 3, None, box, **options)
    facts = problem.facts(chosen["relation"])
    budget = dpa.Budget(chosen["epsilon"], chosen["delta"], chosen["relation"])
    method = descent(facts, budget) if K == 2 and chosen["C"] == "auto" else None
    if method is None:
        strength = default_penalty(facts, budget)
        if chosen["C"] != "auto":
            strength = 1.0 / (chosen["C"] * n)
        method = methods.ObjectivePerturbation(
            perturbation().curvature_share, tolerance=perturbation().tolerance, ridge=strength
        )
    model = generic(method=method, **{**chosen, "C": "auto"}).fit(X, Y[K])
    np.testing.assert_array_equal(model.coef_, expected.coef_)
    assert model.privacy_.epsilon == expected.privacy_.epsilon
    assert model.privacy_.ledger == expected.privacy_.ledger


def test_the_other_two_have_no_loss_and_no_method_to_set():
    common = ["C", "bounds", "classes", "delta", "epsilon", "fit_intercept", "random_state",
              "relation", "size"]  # fmt: skip
    assert list(LogisticRegression().get_params()) == sorted([*common, "class_weight"])
    assert list(LinearSVC().get_params()) == sorted([*common, "class_weight", "width"])
    assert list(PrivateClassifier().get_params()) == sorted([*common, "loss", "method"])
    for kind in (LogisticRegression, LinearSVC):
        with pytest.raises(ValueError, match="Invalid parameter 'loss'"):
            kind().set_params(loss=losses.Hinge())


def test_by_name_objective_perturbation_never_descends():
    chosen = {"epsilon": 0.05, "delta": 1e-5}
    for method, descends in (("auto", True), ("objective_perturbation", False)):
        card = generic(method=method, **chosen).fit(X, Y[2]).privacy_
        assert ("gradient descent" in card.facts["Method"]) is descends


METHODS = {
    "accelerated": lambda: methods.Nesterov(0.2, 10, mu=0.1, noise="optimal"),
    "adaptive": lambda: methods.AdaptiveGD(iterations=5),
    "genetic": lambda: methods.GeneticSearch(population=20, parents=4),
    "output perturbation": lambda: methods.OutputPerturbation(passes=2),
    "second order": lambda: methods.TrustRegion(eps_g=0.8, eps_H=0.8),
    "sampled": lambda: methods.SGD(0.5, 10, dpa.Poisson(0.1), FLAT),
    "without replacement": lambda: methods.Adam(0.1, 10, dpa.WithoutReplacement(60), FLAT),
}
RELATION = {"sampled": "add_or_remove_one"}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:n = 600 is below n_min")
@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("name", METHODS)
def test_any_method_is_charged_by_its_own_ledger(name, K, monkeypatch):
    """Each run has its part of the budget, and the card states the sum of what runs report."""
    seen = []

    def watched(*arguments, **options):
        seen.append(plain(*arguments, **options))
        return seen[-1]

    from dpanalysis.linear_model import runs

    plain = runs.minimize
    monkeypatch.setattr(runs, "minimize", watched)
    loss = Rounded() if name == "second order" else losses.HuberizedHinge()
    model = generic(
        loss, METHODS[name](), epsilon=2.0, delta=1e-5, relation=RELATION.get(name, "replace_one")
    ).fit(X, Y[K])
    card, scores = model.privacy_, 1 if K == 2 else K
    assert len(seen) == scores == len(model.coef_)
    assert card.epsilon == math.fsum(result.epsilon() for result in seen) <= 2.0 * (1 + 1e-9)
    assert card.delta == pytest.approx(1e-5) and card.relation == model.relation
    assert all(result.budget == dpa.Budget(2.0 / scores, 1e-5 / scores, model.relation)
               for result in seen)  # fmt: skip
    assert card.facts["Method"] == repr(model.method) and "Penalty" in card.facts
    assert card.facts["Loss"] == repr(loss)
    events = [event for result in seen for event in _counted(result.ledger)]
    assert card.ledger == tuple(event.describe() for event in events)
    assert (clone(model).fit(X, Y[K]).coef_ == model.coef_).all()


@pytest.mark.slow
@given(st.lists(st.sampled_from([privacy.events.Pure(0.1), privacy.events.Gaussian(9.0, 1.0)])))
def test_a_card_lists_each_event_once_with_its_count(events):
    ledger = privacy.Ledger("replace_one")
    for event in events:
        ledger.record(event)
    counted = _counted(ledger)
    assert len(counted) == len(set(events))
    assert [event for each in counted for event in [getattr(each, "event", each)]] == list(
        dict.fromkeys(events)
    )
    assert [getattr(each, "count", 1) for each in counted] == list(Counter(events).values())
    assert privacy.epsilon(counted, 1e-6, "replace_one") == pytest.approx(ledger.epsilon(1e-6))


def test_a_number_c_of_a_method_is_that_of_scikit_learn():
    method = methods.GradientDescent(0.5, 40, mechanism="gaussian")
    options = {"C": 0.002, "fit_intercept": False}
    model = generic(None, method, epsilon=1e9, delta=1e-5, **options).fit(X, Y[2])
    exact = linear_model.LogisticRegression(**options).fit(X, Y[2])
    np.testing.assert_allclose(model.coef_, exact.coef_, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("size", [None, 500])
@pytest.mark.parametrize("K", [2, 3])
def test_a_number_c_adds_the_penalty_to_the_problem_of_a_method(K, size):
    """Nearly no noise and enough steps give the minimizer with that penalty."""
    method = methods.GradientDescent(0.5, 400, mechanism="gaussian")
    model = generic(None, method, epsilon=1e9, delta=1e-5, C=0.02, size=size).fit(X, Y[K])
    D, penalty = np.column_stack([X, np.ones(600)]), dpa.regularizers.L2(1 / (0.02 * (size or 600)))
    if K == 2:
        w = dpa.ERM(D, 2.0 * Y[2] - 1.0, losses.Logistic(), penalty, size=size).solve()
    else:
        problem = dpa.problems.Softmax(D, Y[3], 3, penalty, size=size)
        result = dpa.minimize(problem, method, w0=np.zeros(12), record=())
        w = result.w[0]
    found = np.column_stack([model.coef_, model.intercept_])
    np.testing.assert_allclose(found.ravel(), w, atol=2e-3)
    assert model.privacy_.facts["Penalty"].startswith(f"L2 of strength {penalty.strength:.3g},")
    plain = generic(None, method, epsilon=1e9, delta=1e-5, size=size).fit(X, Y[K])
    assert np.linalg.norm(plain.coef_) > 1.5 * np.linalg.norm(model.coef_)
    assert plain.privacy_.facts["Penalty"] == "none but the method's own"
    assert not any("Class weights" in each.privacy_.facts for each in (model, plain))


@pytest.mark.parametrize(
    ("loss", "method", "arguments", "error", "match"),
    [
        ("logistic", "auto", {}, TypeError, "loss must be an object of dpanalysis.losses"),
        (losses.Logistic, "auto", {}, TypeError, "loss must be an object of dpanalysis.losses"),
        (losses.SquaredError(), "auto", {}, ValueError, "loss must be one of classification"),
        (losses.Hinge(), "auto", {}, ValueError, "the loss must be smooth"),
        (losses.Hinge(), methods.OutputPerturbation(), {}, ValueError, "the loss must be smooth"),
        (None, "sgd", {}, TypeError, "method must be 'auto' or 'objective_perturbation', or"),
        (None, methods.SGD, {}, TypeError, "method must be 'auto' or"),
        (None, methods.ObjectivePerturbation(), {"C": "private"}, ValueError, "C='private' choo"),
        (None, METHODS["sampled"](), {}, dpa.errors.IncompatibleAccounting, "accounted under"),
        (None, METHODS["without replacement"](), {"size": 500}, ValueError, "size must be the nu"),
        (None, methods.AdaptiveGD(), {"delta": 0.0}, ValueError, "delta > 0|mechanism|pure"),
    ],
)  # fmt: skip
def test_what_does_not_fit_together_is_refused_before_anything_is_spent(
    loss, method, arguments, error, match, monkeypatch
):
    def drawn(*_):
        raise AssertionError("noise was drawn")

    for name in ("noisy", "nearly"):
        monkeypatch.setattr(f"dpanalysis.privacy.mechanisms.{name}", drawn)
    with pytest.raises(error, match=match):
        generic(loss, method, **{"delta": 1e-5, **arguments}).fit(X, Y[2])


@pytest.mark.slow
@pytest.mark.parametrize("K", [2, 3])
def test_a_loss_of_the_user_s_is_fitted_and_what_it_states_is_on_the_card(K):
    method = methods.SGD(0.5, 60, dpa.Full(), FLAT, momentum=0.8)
    for model in (
        generic(Rounded(), epsilon=9.0),
        generic(Rounded(), method, epsilon=9.0, delta=1e-5),
    ):
        card = model.fit(X, Y[K]).privacy_
        assert model.score(X, Y[K]) > 0.6
        assert "Rounded()" in card.not_covered[-1] and "convexity" in card.not_covered[-1]
    ours = generic(losses.Hinge(), method, delta=1e-5).fit(X, Y[K]).privacy_
    assert not any("convexity" in line for line in ours.not_covered)


STORED = {
    **METHODS,
    "auto": lambda: "auto",
    "by name": lambda: "objective_perturbation",
    "schedule": lambda: methods.GradientDescent(0.1, 3, noise=(1.0, 2.0, 3.0)),
    "clipping": lambda: methods.SGD(0.1, 3, dpa.Full(), clipping.Value(1.0, 0.4, 2.0)),
    "search": lambda: methods.LineSearchSGD(sampling=dpa.WithoutReplacement(9)),
    "bins": lambda: methods.SGD(0.1, 30, dpa.BallsInBins(9), FLAT),
    "allocation": lambda: methods.SGD(0.1, 30, dpa.RandomAllocation(9, 3), FLAT),
    "shuffle": lambda: methods.Adam(0.1, 30, dpa.Shuffle(9), FLAT),
    "shares": lambda: methods.SecondOrder(0.5, 0.5, shares=SHARES),
}


@pytest.mark.parametrize("loss", [None, losses.Hinge(), losses.HuberizedHinge(0.2)])
@pytest.mark.parametrize("name", STORED)
def test_saved_and_loaded_it_has_its_loss_and_its_method(name, loss, tmp_path):
    model = generic().fit(X, Y[2]).set_params(loss=loss, method=STORED[name](), C=0.5)
    save(model, tmp_path / "m.json")
    again = load(tmp_path / "m.json")
    assert type(again) is PrivateClassifier and again.privacy_ == model.privacy_
    assert (again.loss, again.method, again.C) == (loss, STORED[name](), 0.5)
    assert (again.decision_function(X) == model.decision_function(X)).all()


def test_code_of_the_user_is_neither_saved_nor_loaded(tmp_path):
    path, model = tmp_path / "m.json", generic().fit(X, Y[2])
    mine = MySGD(0.5, 60, dpa.Full(), FLAT)
    rule = methods.SGD(0.5, 60, dpa.Full(), clipping.Custom(lambda norm, loss: 0.0, 1.0))
    steps = methods.SGD(lambda k: 0.5, 60, dpa.Full(), FLAT)
    for name, part in (("loss", Rounded()), *(("method", each) for each in (mine, rule, steps))):
        model.set_params(**{"loss": None, "method": "auto", name: part})
        with pytest.raises(TypeError, match=f"{name} must be of classes of dpanalysis alone"):
            save(model, path)
        assert not path.exists()
    model.set_params(method="auto")
    save(model, path)
    content = json.loads(path.read_text())
    for part in ({"class": "Rounded"}, {"class": "Popen", "args": ["x"]}, {"width": 1.0},
                 {"class": "HuberizedHinge", "width": -1.0}):  # fmt: skip
        content["parameters"]["loss"] = part
        path.write_text(json.dumps(content))
        with pytest.raises(ValueError, match="not a model that dpanalysis has saved"):
            load(path)


def test_a_missing_label_is_no_class():
    import pandas as pd

    X = np.linspace(0.0, 1.0, 60)[:, None]
    words = ["no"] * 30 + ["yes"] * 30
    model = LogisticRegression(5.0, bounds=(0.0, 1.0), random_state=0)
    for gap in (None, np.nan, pd.NA):
        labels = [*words[:-1], gap]
        for y in (labels, np.array(labels, dtype=object), pd.Series(labels, dtype="string")):
            with pytest.raises(
                ValueError, match=r"y must hold a label in every row, got .* in row 59"
            ):
                model.fit(X, y)
    assert model.fit(X, pd.Series(words, dtype="category")).classes_.tolist() == ["no", "yes"]


@pytest.mark.parametrize("kind", ["date", "datetime64[s]", "Int64", "boolean"])
def test_a_missing_date_or_number_of_pandas_is_no_class(kind):
    """NaT used to be a class."""
    import pandas as pd

    days = pd.Series(pd.to_datetime(["2020-01-01", None, "2021-01-01"] * 20))
    gaps = {"date": days, "datetime64[s]": days.to_numpy("datetime64[s]")}
    y = gaps[kind] if kind in gaps else pd.Series([True, None, False] * 20, dtype=kind)
    model = LogisticRegression(5.0, bounds=(0.0, 1.0), random_state=0)
    with pytest.raises(ValueError, match=r"y must hold a label in every row, got .* in row 1"):
        model.fit(np.linspace(0.0, 1.0, 60)[:, None], y)
