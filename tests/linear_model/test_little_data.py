"""Where the noise swamps the records, a warning and the card say so, from public facts alone."""

import math
import warnings
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.pipeline import make_pipeline

import dpanalysis as dpa
from dpanalysis.linear_model import (
    LinearSVC,
    LogisticRegression,
    PrivacyWarning,
    PrivateClassifier,
    runs,
)
from dpanalysis.linear_model.runs import ExpectedAccuracy
from dpanalysis.preprocessing import PublicColumns
from dpanalysis.privacy import mechanisms
from dpanalysis.privacy.facts import Block

LITTLE = "little data for this epsilon"


def drawn(random, n, numbers, groups):
    """Uniform numbers and equally frequent categories, as the rule assumes."""
    parts = [random.uniform(-1.0, 1.0, (n, numbers))]
    return np.hstack([*parts, *(np.eye(m)[random.integers(m, size=n)] for m in groups)])


def columns_of(numbers, groups):
    ends = np.cumsum([numbers, *groups])
    low = np.repeat([-1.0, 0.0], [numbers, ends[-1] - numbers])
    return PublicColumns(low, np.ones(ends[-1]), list(pairwise(ends)))


def measured(kind, n, numbers, groups, epsilon, delta, seeds=5):
    """Mean accuracy on labels that follow a linear rule exactly, and the models."""
    scores, models = [], []
    for seed in range(seeds):
        random = np.random.default_rng(seed)
        X, test = (drawn(random, m, numbers, groups) for m in (n, 2000))
        u = random.normal(size=X.shape[1])
        middle = np.median(test @ u)
        bounds = columns_of(numbers, groups)
        model = kind(epsilon, delta, bounds=bounds, random_state=seed)
        models.append(model.fit(X, X @ u > middle))
        scores.append(model.score(test, test @ u > middle))
    return float(np.mean(scores)), models


def stated(model):
    """The accuracy that the card states."""
    return float(model.privacy_.facts["Expected"].split("about ")[1].split(" of 100")[0]) / 100.0


CASES = [
    (LogisticRegression, 200, 10, (), 0.1, 0.0),
    (LogisticRegression, 200, 2, (), 1.0, 0.0),
    (LogisticRegression, 200, 10, (), 1.0, 0.0),
    (LogisticRegression, 200, 30, (), 1.0, 0.0),
    (LogisticRegression, 1000, 30, (), 1.0, 0.0),
    (LogisticRegression, 5000, 30, (), 1.0, 0.0),
    (LogisticRegression, 1000, 0, (10,) * 5, 1.0, 0.0),
    (LogisticRegression, 5000, 6, (9, 16, 7, 42), 1.0, 0.0),
    (LogisticRegression, 200, 30, (), 1.0, 1e-6),
    (LogisticRegression, 1000, 30, (), 0.1, 1e-6),
    (LogisticRegression, 1000, 10, (3, 40), 1.0, 1e-6),
    (LinearSVC, 200, 10, (), 1.0, 0.0),
    (LinearSVC, 1000, 10, (), 1.0, 0.0),
]


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_what_is_expected_is_what_is_measured(case):
    found, models = measured(*case)
    assert stated(models[0]) == pytest.approx(found, abs=0.1)


@pytest.mark.parametrize("n, warned", [(200, True), (2000, False)])
def test_the_warning_names_what_it_is_from_and_what_helps(n, warned, recwarn):
    X = np.random.default_rng(n).uniform(size=(n, 20))
    model = LogisticRegression(1.0, bounds=(0, 1), random_state=0)
    make_pipeline(model).fit(X, X[:, 0] > 0.5)
    texts = [str(each.message) for each in recwarn if LITTLE in str(each.message)]
    assert len(texts) == warned
    if warned:
        assert recwarn[-1].filename == __file__ and recwarn[-1].category is PrivacyWarning
        assert "n = 200, d = 21 weights" in texts[0] and "epsilon = 1 " in texts[0]
        needed = int(texts[0].split("categories, n = ")[1].split(",")[0])
        assert 200 < needed < 2000
        # With so many rows the noise is as strong as the records.
        more = np.random.default_rng(1).uniform(size=(needed, 20))
        model = LogisticRegression(1.0, bounds=(0, 1), random_state=0).fit(more, more[:, 0] > 0.5)
        assert stated(model) == 0.75
        few = needed * 2 // 3
        with pytest.warns(PrivacyWarning, match=LITTLE):
            model.fit(more[:few], more[:few, 0] > 0.5)


@pytest.mark.parametrize("epsilon", [1e-12, 0.01])
def test_the_epsilon_that_would_help_is_enough(epsilon, recwarn):
    X = np.random.default_rng(3).uniform(size=(300, 5))
    advised = {}
    for budget in (epsilon, None):
        given = budget or float(advised[epsilon])
        LogisticRegression(given, 1e-5, bounds=(0, 1), random_state=0).fit(X, X[:, 0] > 0.5)
        text = next((str(each.message) for each in recwarn if LITTLE in str(each.message)), "")
        advised[budget] = text.split(" or epsilon = ")[-1].split(",")[0]
        recwarn.clear()
    assert float(advised[epsilon]) > 0.1 and advised[None] in ("", advised[epsilon])


def test_the_noise_of_a_private_choice_and_the_variance_of_blocks():
    bound = dpa.RowBound(2, 1.0)
    facts = dpa.ERM(np.eye(2), [1, -1], dpa.losses.Logistic(), row_bound=bound).facts("replace_one")
    noise = {
        C: runs.expected_accuracy(facts, dpa.Budget(1.0), 0.5, C, False).noise
        for C in ("auto", "private")
    }
    assert noise["private"] > 1.5 * noise["auto"]
    variance = {order: runs._variance(Block(1, order, 3.0)) for order in (1, 2, math.inf)}
    assert variance == {1: pytest.approx(3.0), 2: 9.0, math.inf: pytest.approx(3.0)}


def test_the_warning_is_there_before_anything_is_spent(monkeypatch):
    spent = []
    monkeypatch.setattr(mechanisms, "nearly", lambda *_: spent.append(1))
    X = np.random.default_rng(5).uniform(size=(100, 20))
    with warnings.catch_warnings(), pytest.raises(PrivacyWarning, match=LITTLE):
        warnings.simplefilter("error")
        LogisticRegression(1.0, bounds=(0, 1)).fit(X, X[:, 0] > 0.5)
    assert not spent


@pytest.mark.slow
@settings(max_examples=10)
@given(
    st.integers(0, 10**6), st.sampled_from([2, 3]), st.sampled_from([LogisticRegression, LinearSVC])
)
def test_what_is_expected_does_not_depend_on_the_records(seed, K, kind):
    texts = set()
    for source in (seed, seed + 1):
        random = np.random.default_rng(source)
        X, y = random.uniform(size=(60, 4)), random.integers(K, size=60)
        model = kind(1.0, bounds=(0, 1), classes=range(K), random_state=0).fit(X, y)
        texts.add(model.privacy_.facts["Expected"])
    assert len(texts) == 1


def test_more_classes_need_more_rows():
    random = np.random.default_rng(0)
    X = random.uniform(size=(2000, 5))
    found = [
        stated(LogisticRegression(1.0, bounds=(0, 1), random_state=0).fit(X, np.arange(2000) % K))
        for K in (2, 3, 6)
    ]
    assert found == sorted(found, reverse=True) and found[0] > found[-1]


def test_a_method_object_states_no_expectation():
    X = np.random.default_rng(1).uniform(size=(50, 3))
    model = PrivateClassifier(
        None, dpa.methods.GradientDescent(0.5, 5), bounds=(0, 1), random_state=0
    )
    assert "Expected" not in model.fit(X, X[:, 0] > 0.5).privacy_.facts


def test_the_share_is_a_half_at_much_noise_and_three_quarters_where_both_are_equal():
    shares = [ExpectedAccuracy(noise).accuracy for noise in (0.0, 1.0, math.inf)]
    assert shares == pytest.approx([1.0, 0.75, 0.5])


@pytest.mark.parametrize(("radius", "kept"), [(1.0, 1.0), (8.0, 0.25)])
def test_only_gradients_longer_than_the_clip_norm_lose_signal(radius, kept):
    """Typical gradients at 0 have half the length of a row, and descent clips them to 1."""
    bound = dpa.RowBound((Block(3, math.inf, radius),), 1.0)
    problem = dpa.ERM(np.ones((50, 3)), np.ones(50), dpa.losses.Logistic(), row_bound=bound)
    facts, budget = problem.facts("replace_one"), dpa.Budget(0.1, 1e-6)
    noise = runs.mean_noise(facts, budget, runs._CLIPPING) * math.sqrt(3.0)
    pull = kept * 0.5 * radius * math.sqrt(2.0 / math.pi / 3.0)
    found = runs.expected_accuracy(facts, budget, 0.5, "auto", may_descend=True)
    assert runs.expected_accuracy(facts, budget, 0.0, "auto", may_descend=True) is None
    assert found.noise == pytest.approx(noise / pull)


@pytest.mark.parametrize(
    "kind, classes, epsilon", [(LogisticRegression, 2, 0.01), (LinearSVC, 3, 1e-12)]
)
def test_at_the_epsilon_that_would_help_it_is_75(kind, classes, epsilon):
    """The noise falls more slowly than 1/epsilon; the scores of three classes share epsilon."""
    X, y = np.random.default_rng(3).uniform(size=(100, 2)), np.arange(100) % classes
    with pytest.warns(PrivacyWarning, match=LITTLE) as caught:
        kind(epsilon, 1e-6, bounds=(0, 1), random_state=0).fit(X, y)
    text = next(str(each.message) for each in caught if LITTLE in str(each.message))
    enough = float(text.split(" or epsilon = ")[1].split(",")[0])
    model = kind(enough, 1e-6, bounds=(0, 1), random_state=0).fit(X, y)
    assert stated(model) == pytest.approx(0.75, abs=0.01)
