"""Repeated fits on the same rows are detected, and the costs of an ensemble's parts are added."""

import math
import threading
import time
import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import BaggingClassifier, VotingClassifier
from sklearn.feature_selection import RFE
from sklearn.linear_model import LogisticRegression as Exact
from sklearn.model_selection import (
    FixedThresholdClassifier,
    GridSearchCV,
    KFold,
    StratifiedKFold,
    TunedThresholdClassifierCV,
)
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier
from sklearn.multioutput import ClassifierChain, MultiOutputClassifier
from sklearn.pipeline import Pipeline, make_pipeline

from dpanalysis.linear_model import (
    LinearSVC,
    LogisticRegression,
    PrivacyWarning,
    load,
    privacy_of,
    save,
)
from dpanalysis.linear_model import fits as fits_module
from dpanalysis.linear_model.ensembles import _Cost
from dpanalysis.linear_model.fits import Fits, Spent, _common, _least, sketch
from dpanalysis.preprocessing import PrivateBounds, PublicEncoder
from dpanalysis.preprocessing.columns import LearnedRanges

RANDOM = np.random.default_rng(0)
X = RANDOM.uniform(-1, 1, size=(400, 4))
Y = np.digitize(X[:, 0], [-0.3, 0.3])


@pytest.fixture(autouse=True)
def new_process(monkeypatch):
    monkeypatch.setattr(fits_module, "PROCESS", Fits())


def model(epsilon=1.0, **arguments):
    return LogisticRegression(epsilon, bounds=(-1, 1), **arguments)


def said(estimator, X=X, y=Y > 0):
    """The sums that the warnings of a fit state."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        estimator.fit(X, y)
    texts = [str(each.message) for each in caught if "the same rows again" in str(each.message)]
    assert all(issubclass(each.category, PrivacyWarning) for each in caught)
    return [float(text.split("epsilon = ")[1].split(" in sum")[0]) for text in texts]


ENSEMBLES = {
    "calibrated": (lambda: CalibratedClassifierCV(model(), cv=3), [2, 3]),
    "bagging": (lambda: BaggingClassifier(model(), 3, random_state=0), [2, 3]),
    "voting": (lambda: VotingClassifier([("a", model()), ("b", model(0.5))]), [1.5]),
    "columns": (lambda: RFE(model(), n_features_to_select=2), [2, 3]),
    "grid": (lambda: GridSearchCV(model(), {"C": [0.1, 1.0]}, cv=3), [2, 3, 4, 5, 6, 7]),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ENSEMBLES)
def test_the_second_fit_of_an_ensemble_states_the_sum(name):
    make, sums = ENSEMBLES[name]
    assert said(make()) == sums


def test_one_model_a_class_is_one_fit_a_class():
    assert said(OneVsRestClassifier(model()), y=Y) == [2, 3]


def test_a_loop_is_seen_and_one_fit_is_not():
    for sums in ([], [2.0], [3.0]):
        assert said(model()) == sums
    assert said(FixedThresholdClassifier(model()), X=X + 0.1) == []
    assert said(LinearSVC(0.5, bounds=(-1, 1)), X=X[::-1]) == [3.5]
    assert said(model(), X[:100], Y[:100] > 0) == [4.5] and said(model(), X=X[:, 1:]) != []


def test_one_threshold_without_a_search_warns_of_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted = FixedThresholdClassifier(model(), threshold=0.6).fit(X, Y > 0)
        model().fit(sp.csr_array(np.eye(500, 4)), [0, 1] * 250)
    assert fitted.estimator_.privacy_.not_counted == model().fit(X, Y > 0).privacy_.not_counted
    assert privacy_of(fitted).epsilon == pytest.approx(1.0)


def test_other_rows_are_another_table_though_categories_repeat():
    encoder = PublicEncoder({"job": ["a", "b"], "sex": ["f", "m"]})
    for seed in range(3):
        random = np.random.default_rng(seed)
        table = pd.DataFrame(
            {"job": random.choice(["a", "b"], 500), "sex": random.choice(["f", "m"], 500)}
        )
        assert (
            said(make_pipeline(encoder, LogisticRegression()), table, random.random(500) > 0.5)
            == []
        )
    assert said(make_pipeline(encoder, LogisticRegression()), table, table["job"]) == [2]


@pytest.mark.slow
def test_ranges_that_fits_share_count_once():
    bounds = PrivateBounds(2.0, random_state=1).fit(X[:, :2])
    rows = bounds.transform(X[:, :2])
    assert said(LogisticRegression(), rows) == [] and said(LogisticRegression(), rows) == [4.0]


def test_a_fit_that_fails_before_it_spends_is_not_counted():
    with pytest.raises(ValueError, match="one class only"):
        model().fit(X, np.zeros(400))
    assert said(model()) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [("class_weight", "balanced"), ("class_weight", {2: 5}), ("random_state", "a")],
)
def test_a_fit_that_is_refused_for_an_argument_states_no_sum(name, value):
    model().fit(X, Y > 0)
    with (
        warnings.catch_warnings(action="error"),
        pytest.raises((TypeError, ValueError), match=name),
    ):
        model(**{name: value}).fit(X, Y > 0)


@given(st.integers(1, 60), st.integers(1, 5), st.randoms())
def test_the_order_of_rows_and_the_columns_left_out_do_not_matter(n, d, random):
    rows = np.random.default_rng(random.randint(0, 99)).normal(size=(n, d))
    order = random.sample(range(n), n)
    for table in (rows, sp.csr_array(rows)):
        assert sketch(table).shares(sketch(table[order]), False)
        assert not sketch(table).shares(sketch(table + table), False)
    if n > 1:
        assert sketch(rows).shares(sketch(rows[:, random.sample(range(d), 1)]), False)


@given(seed=st.integers(0, 10**6), n=st.integers(5, 6000))
def test_a_fifth_of_the_rows_is_recognized(seed, n):
    table = np.random.default_rng(seed).normal(size=(n, 2))
    assert sketch(table[: -(-n // 5)]).shares(sketch(table[::-1]), within=False)


def test_a_share_is_estimated_from_the_least_digests():
    digests = np.random.default_rng(1).integers(2**64, size=60_000, dtype=np.uint64)
    for size, start in ((10_000, 9_000), (1_000, 9_500), (10_000, 10_000), (300, 9_900)):
        first, second = np.unique(digests[:10_000]), np.unique(digests[start : start + size])
        for larger in (False, True):
            part = 10_000 if larger else min(size, 10_000)
            truth = max(0, min(10_000, start + size) - start) / part
            found = _common(_least(first), _least(second), larger)
            drawn = 512 * part / 10_000  # of that set, in effect at random
            assert abs(found - truth) <= 4.0 * math.sqrt(truth * (1.0 - truth) / drawn)
    assert _common(_least(first), _least(first[:0]), True) == 0.0


def test_the_warning_does_not_say_whether_a_table_has_the_row_of_another_one():
    guess = np.full((1, 3), 0.123)
    binary = LogisticRegression(1.0, bounds=(-1, 1), classes=[False, True])
    assert said(binary, guess, [True]) == []
    for row in (guess, guess + 0.1):
        rows = np.vstack([np.random.default_rng(7).uniform(-1, 1, (300, 3)), row])
        assert said(binary, rows + (row[0, 0] > 0.2) * 1e-9, rows[:, 0] > 0) == []


def test_old_tables_are_forgotten():
    kept = Fits()
    table = [sketch(X + k) for k in range(300)]
    for each in table:
        kept.spend(fits_module.Spent(each, 1, 1.0))
    assert [kept.on(each, False).fits for each in (table[0], table[43], table[44], table[299])] == [
        0,
        0,
        1,
        1,
    ]


def test_where_rows_repeat_only_parts_of_one_search_share_them():
    rows = np.repeat(RANDOM.uniform(size=(60, 4)), 5, axis=0)
    parts = sketch(rows[:250]), sketch(rows[50:])
    assert parts[0].shares(parts[1], within=True) and not parts[0].shares(parts[1], within=False)
    parts = sketch(X[:300]), sketch(X[50:])
    assert all(parts[0].shares(parts[1], within) for within in (True, False))


def test_what_was_spent_on_a_table_is_added():
    ranges = [LearnedRanges(0.25), LearnedRanges(0.5)]
    spent = fits_module.Spent(sketch(X), 1, 1.0, 1e-6, {ranges[0]})
    spent.add(fits_module.Spent(sketch(X), 2, 0.5, 2e-6, set(ranges)))
    assert (spent.fits, spent.learned) == (3, set(ranges))
    assert str(spent) == "epsilon = 2.25, delta = 3e-06"


# --- sums ---


@pytest.mark.filterwarnings("ignore::dpanalysis.linear_model.PrivacyWarning")
def test_other_fits_of_a_search_are_noted_on_its_model_only():
    search = GridSearchCV(model(), {"fit_intercept": [True, False]}, cv=KFold(2)).fit(X, Y > 0)
    said = "other fits of the same search"
    assert said in str(search.best_estimator_.privacy_) and said not in str(privacy_of(search))


@pytest.mark.filterwarnings("ignore::dpanalysis.linear_model.PrivacyWarning")
def test_the_costs_of_the_parts_add_up():
    voting = VotingClassifier([("a", model()), ("b", LinearSVC(0.5, 1e-5, bounds=(-1, 1)))]).fit(
        X, Y > 0
    )
    card = privacy_of(voting)
    assert card.epsilon == pytest.approx(1.5) and card.delta == pytest.approx(1e-5)
    assert len(card.ledger) == 2 and "other fits of the same search" not in str(card)
    assert privacy_of(OneVsRestClassifier(model()).fit(X, Y)).epsilon == pytest.approx(3.0)
    assert privacy_of([model().fit(X, Y), model(2.0).fit(X, Y)]).epsilon == pytest.approx(3.0)
    one = model().fit(X, Y)
    assert not any("learned from the same records" in line for line in privacy_of(one).not_counted)
    assert privacy_of(one).epsilon == one.privacy_.epsilon == privacy_of([one, one]).epsilon
    calibrated = privacy_of(CalibratedClassifierCV(model(), cv=3).fit(X, Y > 0))
    assert calibrated.epsilon == pytest.approx(3.0)
    assert any("CalibratedClassifierCV" in line for line in calibrated.not_counted)
    mixed = privacy_of(VotingClassifier([("a", model()), ("b", Exact())]).fit(X, Y > 0))
    assert any(line.startswith("what LogisticRegression learned") for line in mixed.not_counted)


@pytest.mark.filterwarnings("ignore::dpanalysis.linear_model.PrivacyWarning")
def test_models_that_were_not_kept_cost_as_well():
    search = GridSearchCV(model(), {"epsilon": [0.5, 2.0]}, cv=3).fit(X, Y > 0)
    own = search.best_estimator_.epsilon
    assert privacy_of(search).epsilon == pytest.approx(3 * 2.5 + own)
    assert privacy_of(search).not_counted
    assert privacy_of(RFE(model(), n_features_to_select=1).fit(X, Y > 0)).epsilon == pytest.approx(
        4
    )
    assert privacy_of(RFE(model(), n_features_to_select=4).fit(X, Y > 0)).epsilon == pytest.approx(
        1
    )


@pytest.mark.filterwarnings("ignore::dpanalysis.linear_model.PrivacyWarning")
@pytest.mark.parametrize("bootstrap", [True, np.True_])
def test_a_record_that_was_drawn_often_pays_for_every_copy(bootstrap):
    bag = BaggingClassifier(model(0.5), 4, bootstrap=bootstrap, random_state=0).fit(X, Y > 0)
    most = sum(np.bincount(drawn, minlength=400) for drawn in bag.estimators_samples_).max()
    assert most > 4 and privacy_of(bag).epsilon == pytest.approx(0.5 * most)
    plain = BaggingClassifier(model(0.5), 4, bootstrap=False, random_state=0).fit(X, Y > 0)
    assert privacy_of(plain).epsilon == pytest.approx(2.0)
    assert not any("drawn several times" in line for line in privacy_of(bag).not_counted)
    alone = privacy_of(bag.estimators_)  # these do not show how often
    assert alone.epsilon == pytest.approx(2.0)
    assert any("drawn several times" in line for line in alone.not_counted)


@pytest.mark.filterwarnings("ignore::dpanalysis.linear_model.PrivacyWarning")
def test_the_delta_of_a_bootstrap_is_that_of_the_record_that_was_drawn_most():
    bag = BaggingClassifier(model(0.5, delta=1e-6), 3, random_state=0).fit(X, Y > 0)
    drawn = [np.bincount(each, minlength=400) for each in bag.estimators_samples_]
    of_copies = np.array([_Cost(0.5, 1e-6).for_copies(k).delta for k in range(20)])
    assert privacy_of(bag).delta == pytest.approx(sum(of_copies[k] for k in drawn).max(), rel=1e-9)


@pytest.mark.filterwarnings("ignore::dpanalysis.linear_model.PrivacyWarning")
def test_copies_are_charged_for_every_fit_within_a_bootstrap():
    def most(bag):
        return sum(np.bincount(d, minlength=400) for d in bag.estimators_samples_).max()

    tries = GridSearchCV(model(0.5), {"C": [0.1, 1.0]}, cv=KFold(2))  # 4, and one of the best
    for part, fits in ((tries, 5), (RFE(model(0.5), n_features_to_select=1), 4)):
        bag = BaggingClassifier(part, 2, random_state=0).fit(X, Y > 0)
        assert privacy_of(bag).epsilon == pytest.approx(0.5 * fits * most(bag))
    inner = BaggingClassifier(model(0.5), 2, random_state=1)
    bag = BaggingClassifier(inner, 1, random_state=0).fit(X, Y > 0)
    (first,), (part,) = bag.estimators_samples_, bag.estimators_
    copies = sum(np.bincount(first[d], minlength=400) for d in part.estimators_samples_)
    assert privacy_of(bag).epsilon >= 0.5 * copies.max()
    assert privacy_of(bag).epsilon == pytest.approx(0.5 * most(bag) * most(part))


@pytest.mark.filterwarnings("ignore::dpanalysis.linear_model.PrivacyWarning")
@pytest.mark.parametrize("bootstrap", [True, False])
def test_a_warm_start_pays_for_the_models_that_were_there(bootstrap):
    """Of a bootstrap, scikit-learn keeps the draws of the new models: a sum of 4 for 11 models."""
    bag = BaggingClassifier(model(0.5), 3, bootstrap=bootstrap, warm_start=True).fit(X, Y > 0)
    assert 1.5 <= privacy_of(bag).epsilon * (1.0 + 1e-9) < math.inf
    card = privacy_of(bag.set_params(n_estimators=4).fit(X, Y > 0))
    assert card.epsilon == (math.inf if bootstrap else pytest.approx(2.0))


@pytest.mark.filterwarnings("ignore::dpanalysis.linear_model.PrivacyWarning")
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_an_infinite_sum_within_a_bootstrap_is_infinite(delta):
    """0 copies times infinity made it NaN, which no comparison with a limit refuses."""
    search = GridSearchCV(OneVsRestClassifier(model(delta=delta)), {}, cv=KFold(2))
    card = privacy_of(BaggingClassifier(search, 2, random_state=0).fit(X, Y > 0))
    assert card.epsilon == math.inf and card.delta == bool(delta)
    assert "finds at most 100 of 100" in str(card)


@pytest.mark.filterwarnings("ignore::dpanalysis.linear_model.PrivacyWarning")
def test_epsilons_of_a_grid_are_numbers_of_python():
    """100 times 4 is -112 in eight bits."""

    def total(kind):
        search = GridSearchCV(model(), {"epsilon": np.array([100], dtype=kind)}, cv=KFold(2))
        return privacy_of(BaggingClassifier(search, 2, random_state=0).fit(X, Y > 0)).epsilon

    assert total(np.int8) == pytest.approx(total(float))


@pytest.mark.filterwarnings("ignore::dpanalysis.linear_model.PrivacyWarning")
def test_fits_of_what_is_searched_are_counted_or_the_sum_is_infinite():
    several = BaggingClassifier(model(delta=1e-6), 3, bootstrap=False, random_state=0)
    both = VotingClassifier([("a", model()), ("b", model(0.5))])
    for tried, fits in ((several, 3.0), (both, 1.5), (Pipeline([("only", model())]), 1.0)):
        search = GridSearchCV(tried, {}, cv=KFold(2)).fit(X, Y > 0)
        card = privacy_of(search)
        assert card.epsilon == pytest.approx(3 * fits)
        assert card.delta == pytest.approx(9e-6 if tried is several else 0.0)
    copies = BaggingClassifier(model(), 3, random_state=0)  # how many a record has was not kept
    for tried in (RFE(model()), copies):
        card = privacy_of(GridSearchCV(tried, {}, cv=KFold(2)).fit(X, Y > 0))
        assert card.epsilon == math.inf and "finds at most 100 of 100" in str(card)


@pytest.mark.filterwarnings("ignore::dpanalysis.linear_model.PrivacyWarning")
@pytest.mark.parametrize("deep", [False, True])
def test_fits_of_a_search_cost_what_they_did_whatever_is_set_for_the_next(deep):
    """Cheaper candidates of the next search would make those of this one cheaper."""
    tried = Pipeline([("only", model(delta=1e-6))]) if deep else model(delta=1e-6)
    name = "only__" * deep
    grid = [{f"{name}epsilon": [3.0, 2.0]}, {f"{name}C": [0.1]}]
    search = GridSearchCV(tried, grid, cv=KFold(2)).fit(X, Y > 0)
    before = privacy_of(search)
    best = search.best_params_.get(f"{name}epsilon", 1.0)
    assert before.epsilon == pytest.approx(2 * (3.0 + 2.0 + 1.0) + best)
    search.set_params(**{f"estimator__{name}epsilon": 0.01, f"estimator__{name}delta": 0.0})
    after = privacy_of(search)
    assert after.epsilon >= before.epsilon and after.delta == pytest.approx(before.delta)


@pytest.mark.filterwarnings("ignore::dpanalysis.linear_model.PrivacyWarning")
@pytest.mark.parametrize(
    ("meta", "told"),
    [
        (lambda m: GridSearchCV(m, {}, cv=2), {"replace_one": "labels", "other": "labels"}),
        (lambda m: GridSearchCV(m, {}, cv=KFold(2)), {"other": "number"}),
        (lambda m: CalibratedClassifierCV(m, cv=2), {"replace_one": "labels", "other": "labels"}),
        (
            lambda m: TunedThresholdClassifierCV(m, cv=0.5, refit=False),
            {"replace_one": "labels", "other": "labels"},
        ),
        (lambda m: OneVsOneClassifier(m), {"replace_one": "labels"}),
        (lambda m: BaggingClassifier(m, 2, random_state=0), {"other": "number"}),
        (lambda m: BaggingClassifier(m, 2, bootstrap=False), {}),
        (lambda m: BaggingClassifier(m, 2, max_samples=0.5, bootstrap=False), {"other": "number"}),
        (lambda m: VotingClassifier([("a", m)]), {}),
        (lambda m: OneVsRestClassifier(m), {}),
    ],
)
def test_divisions_that_a_record_changes_are_noted(meta, told):
    """One changed label moves some 140 of 900 records between shuffled stratified folds."""
    for relation in ("replace_one", "add_or_remove_one"):
        size = None if relation == "replace_one" else len(X)
        fitted = meta(model(relation=relation, size=size)).fit(X, Y > 0)
        why = told.get(relation, told.get("other") if size else None)
        notes = [note for note in privacy_of(fitted).not_counted if "divided the records" in note]
        assert len(notes) == (why is not None) and all(f"their {why}" in each for each in notes)


@pytest.mark.filterwarnings("ignore::dpanalysis.linear_model.PrivacyWarning")
@pytest.mark.parametrize("size", [None, len(X)])
def test_pairs_of_classes_have_public_numbers_of_records_without_a_size(size):
    """The averages of a fit of two classes are then divided by the number of their records."""
    part = model(relation="add_or_remove_one", size=size)
    notes = privacy_of(OneVsOneClassifier(part).fit(X, Y)).not_counted
    assert any("divided the records" in note for note in notes) == (size is None)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(("cv", "divided"), [(None, False), (2, True)])
def test_a_chain_divides_the_records_only_if_it_predicts_by_folds(cv, divided):
    fitted = ClassifierChain(model(), cv=cv).fit(X, np.column_stack([Y > 0, Y > 1]).astype(int))
    notes = privacy_of(fitted).not_counted
    assert any("divided the records" in note for note in notes) == divided


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_labels_that_a_meta_estimator_reads_off_the_records_are_noted():
    """A single record with a unique label decides whether there is a fit for it."""
    declared, rare = model(classes=[0, 1]), np.zeros(400, dtype=int)
    rare[0] = 1
    one, two = (np.column_stack([Y > 0, each]).astype(int) for each in (0 * rare, rare))
    for meta, several in ((OneVsRestClassifier, True), (MultiOutputClassifier, False)):
        cards = [privacy_of(meta(declared).fit(X, each)) for each in (one, two)]
        assert (cards[0].epsilon != cards[1].epsilon) == several
        for card in cards:
            assert several == any("which labels OneVsRest" in line for line in card.not_counted)
            assert several == any("reads it off y" in line for line in card.not_covered)
    for meta, reads in (
        (OneVsRestClassifier(declared), "OneVsRestClassifier"),
        (BaggingClassifier(declared, 1), "BaggingClassifier"),
        (VotingClassifier([("only", declared)]), "VotingClassifier"),
        (GridSearchCV(declared, {}, cv=KFold(2)), None),
    ):
        lines = [line for line in privacy_of(meta.fit(X, Y > 0)).not_covered if "off y" in line]
        told = f"the set of labels: {reads} reads it off y, and it is taken as public"
        assert lines == ([told] if reads else [])


@pytest.mark.filterwarnings("ignore::dpanalysis.linear_model.PrivacyWarning")
def test_a_list_of_splits_may_have_been_made_by_the_labels_or_copy_a_record():
    """Fifty copies of a record are fifty records, but the sum counts one of them."""
    by_labels = list(StratifiedKFold(2).split(X, Y > 0))
    copies = [(np.repeat(np.arange(100), [50, *[1] * 99]), np.arange(100, 200))]
    for splits in (by_labels, copies):
        search = GridSearchCV(model(), {}, cv=splits).fit(X, Y > 0)
        notes = privacy_of(search).not_counted
        assert any("the list of splits that GridSearchCV was given" in note for note in notes)


@pytest.mark.filterwarnings("ignore::dpanalysis.linear_model.PrivacyWarning")
@pytest.mark.parametrize(
    ("state", "shared"),
    [(0, True), (np.random.RandomState(1), True), (np.random.default_rng(2), True), (None, False)],
)
def test_models_that_may_have_the_same_noise_are_noted(state, shared):
    """Clones copy the state: two models are then equal where their labels are."""
    labels = np.column_stack([Y > 0, Y > 0]).astype(int)
    both = MultiOutputClassifier(model(random_state=state)).fit(X, labels)
    first, second = both.estimators_
    assert (first.coef_ == second.coef_).all() == shared
    told = [line for line in privacy_of(both).not_counted if "the same noise" in line]
    assert len(told) == shared
    assert not any("the same noise" in line for line in privacy_of(first).not_counted)
    apart = [model(random_state=k).fit(X, Y > 0) for k in (0, 1)]
    assert not any("the same noise" in line for line in privacy_of(apart).not_counted)


@pytest.mark.filterwarnings("ignore::dpanalysis.linear_model.PrivacyWarning")
@pytest.mark.parametrize(("state", "shared"), [(0, True), (None, False)])
def test_bounds_that_may_have_the_same_noise_are_noted(state, shared):
    """They were not: the card of two pipelines stated the sum as if it were a bound."""
    table = np.random.default_rng(0).uniform(size=(3000, 1))
    pair = [
        make_pipeline(PrivateBounds(10.0, random_state=state), LogisticRegression()).fit(
            table[first:], table[first:, 0] > 0.5
        )
        for first in (0, 1)
    ]
    for fitted, told in ((pair, shared), (pair[0], False)):
        assert any("the same noise" in line for line in privacy_of(fitted).not_counted) == told


@settings(max_examples=8, deadline=None)
@given(
    seeds=st.lists(st.sampled_from([0, 1, None, "os"]), min_size=2, max_size=3),
    as_generator=st.booleans(),
    parts=st.booleans(),
)
@example(seeds=[0, 0, 1], as_generator=False, parts=False)  # by two earlier fits of one table
def test_the_warning_says_where_fits_may_have_the_same_noise(seeds, as_generator, parts):
    """The difference of two fits of neighbouring tables is exact then, whatever the sum says."""
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings(record=True) as caught:
        patch.setattr(fits_module, "PROCESS", Fits())
        warnings.simplefilter("always")
        for k, seed in enumerate(seeds):
            given = np.random.default_rng(seed) if as_generator and type(seed) is int else seed
            first = k if parts else 0
            model(random_state=given).fit(X[first:], Y[first:] > 0)
    texts = [str(each.message) for each in caught if "same rows again" in str(each.message)]
    numbers = [seed for seed in seeds if type(seed) is int]
    assert len(texts) == len(seeds) - 1
    assert ("no sum is a bound" in texts[-1]) == (len(set(numbers)) < len(numbers))


def test_one_generator_gives_every_fit_its_own_noise():
    both, told = model(random_state=np.random.default_rng(0)), []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        told += [both.fit(X, Y > 0).coef_ for _ in range(2)]
    assert (told[0] != told[1]).all()
    assert not any("no sum is a bound" in str(each.message) for each in caught)


def test_rows_with_zeros_of_the_other_sign_are_the_same_rows():
    signed = np.round(2.0 * X)
    unsigned = signed + 0.0
    assert (np.signbit(signed) != np.signbit(unsigned)).any()
    assert sketch(signed).total == sketch(unsigned).total


def test_some_columns_of_a_table_are_recognized_in_each_order_that_was_fitted():
    process = Fits()
    for rows in (X, X[::-1]):
        process.spend(Spent(sketch(rows), 1))
    for rows in (X, X[::-1]):
        assert process.on(sketch(rows[:, :2]), within=False).fits >= 1


def test_threads_never_lose_the_cost_of_a_fit():
    """Each thread reads the fits of the table, waits, and writes; only a lock prevents a race."""

    class Slow(Spent):
        def add(self, other):
            before = self.fits
            time.sleep(0.005)
            self.fits = before + other.fits

    process, table = Fits(), sketch(X)
    process.spend(Slow(table))
    threads = [threading.Thread(target=process.spend, args=(Spent(table, 1),)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert process.on(table, within=False).fits == 8


def test_group_privacy_of_copies():
    assert _Cost(0.5, 0.0).for_copies(3) == (1.5, 0.0) and _Cost(0.5, 1e-6).for_copies(0) == (0, 0)
    epsilon, delta = _Cost(0.5, 1e-6).for_copies(3)
    assert epsilon == 1.5 and delta == pytest.approx(1e-6 * math.expm1(1.5) / math.expm1(0.5))
    assert _Cost(1e3, 1e-6).for_copies(3).delta == 1.0
    assert _Cost(math.inf, 1.0).for_copies(0) == (0, 0)
    assert _Cost(math.inf, 1.0).for_copies(2) == (math.inf, 1.0)


@pytest.mark.filterwarnings("ignore::dpanalysis.linear_model.PrivacyWarning")
def test_ranges_that_models_share_are_added_once():
    bounds = PrivateBounds(2.0, random_state=1).fit(X[:, :2])
    rows = bounds.transform(X[:, :2])
    models = [LogisticRegression().fit(rows, Y > 0) for _ in range(2)]
    assert privacy_of(models).epsilon == privacy_of([bounds, *models]).epsilon == 4.0
    untraced = LogisticRegression(bounds=(-1, 1)).fit(np.asarray(rows), Y > 0)
    assert privacy_of([bounds, untraced]).epsilon == 3.0
    other = PrivateBounds(2.0, relation="add_or_remove_one", random_state=1).fit(X[:, :2])
    with pytest.raises(ValueError, match="one relation alone"):
        privacy_of([other, untraced])


def test_what_has_no_sum_is_refused():
    one = model().fit(X, Y)
    for other in (SimpleNamespace(inside=one), one.coef_, None):  # its cost would not be counted
        with pytest.raises(ValueError, match="fitted must be a list of estimators, got"):
            privacy_of([one, other])
    with pytest.raises(ValueError, match="no fitted private model"):
        privacy_of(VotingClassifier([("a", model())]))
    other = model(relation="add_or_remove_one").fit(X, Y)
    with pytest.raises(ValueError, match="one relation alone"):
        privacy_of([model().fit(X, Y), other])


@pytest.mark.filterwarnings("ignore::dpanalysis.linear_model.PrivacyWarning")
def test_draws_by_sample_weight_are_noted():
    """From scikit-learn 1.8 on weights decide which records a part is given; 1.6 refuses them."""
    bag = BaggingClassifier(model(0.5), 2, random_state=0)
    assert not any("its sample_weight" in n for n in privacy_of(bag.fit(X, Y > 0)).not_counted)
    try:
        bag.fit(X, Y > 0, sample_weight=np.arange(1.0, len(X) + 1.0))
    except ValueError:
        pytest.skip("this scikit-learn refuses the weights")
    assert any("its sample_weight" in note for note in privacy_of(bag).not_counted)


@pytest.mark.filterwarnings("ignore")
def test_scores_of_a_bag_are_named():
    bag = BaggingClassifier(model(), n_estimators=4, oob_score=True).fit(X, Y > 0)
    assert any("BaggingClassifier learned" in note for note in privacy_of(bag).not_counted)
    bag = BaggingClassifier(model(), n_estimators=4).fit(X, Y > 0)
    assert not any("BaggingClassifier learned" in note for note in privacy_of(bag).not_counted)


@pytest.mark.filterwarnings("ignore::dpanalysis.linear_model.PrivacyWarning")
def test_models_whose_seed_is_forgotten_may_have_the_same_noise(tmp_path):
    models = [model(random_state=0).fit(X, labels) for labels in (Y > 0, Y > 1)]
    again = []
    for k, each in enumerate(models):
        save(each, tmp_path / f"{k}.json")
        again.append(load(tmp_path / f"{k}.json"))
    models[0].set_params(random_state=None)
    for several in (again, models):
        assert any("the same noise" in line for line in privacy_of(several).not_counted)
    rows = PrivateBounds(3.0, random_state=1).fit_transform(X)
    shared = [LogisticRegression().fit(rows, Y > 0) for _ in range(2)]
    assert not any("the same noise" in line for line in privacy_of(shared).not_counted)
    secret = [model(random_state=None).fit(X, Y > 0) for _ in range(2)]
    assert not any("the same noise" in line for line in privacy_of(secret).not_counted)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", [BaggingClassifier, VotingClassifier])
def test_classes_that_an_ensemble_does_not_see_are_refused_before_any_charge(kind):
    def around(classes):
        each = LogisticRegression(bounds=(-1, 1), classes=classes)
        return kind(each, 2) if kind is BaggingClassifier else kind([("a", each)], voting="soft")

    with pytest.raises(ValueError, match=r"classes must be those of y in a .*the 2 that it sees"):
        around([0, 1, 2]).fit(X, (Y > 0).astype(int))
    assert around([0, 1]).fit(X, (Y > 0).astype(int)).predict_proba(X).shape == (len(X), 2)


@pytest.mark.filterwarnings("ignore::dpanalysis.linear_model.PrivacyWarning")
def test_copies_pay_for_the_bounds_that_each_part_learned(monkeypatch):
    few = tuple(np.linspace(-2.0, 2.0, 9).tolist())
    monkeypatch.setattr("dpanalysis.preprocessing.private_bounds._CANDIDATES", few)
    part = make_pipeline(PrivateBounds(2.0, random_state=0), LogisticRegression(0.5))
    bag = BaggingClassifier(part, 3, random_state=0).fit(X, Y > 0)
    most = sum(np.bincount(drawn, minlength=400) for drawn in bag.estimators_samples_).max()
    assert privacy_of(bag).epsilon == pytest.approx(2.5 * most)
