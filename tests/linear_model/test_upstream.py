"""What was learned before a fit is on its card, or the card says that it is not the total."""

import copy
import gc
import json
import math
import pickle
import weakref

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from joblib import parallel_config
from sklearn.base import clone
from sklearn.compose import ColumnTransformer, make_column_selector, make_column_transformer
from sklearn.decomposition import PCA
from sklearn.ensemble import BaggingClassifier, VotingClassifier
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.feature_selection import SelectKBest
from sklearn.frozen import FrozenEstimator
from sklearn.impute import IterativeImputer, SimpleImputer
from sklearn.linear_model import RANSACRegressor
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import FunctionTransformer, MinMaxScaler, StandardScaler

import dpanalysis as dpa
from dpanalysis.linear_model import (
    LinearSVC,
    LogisticRegression,
    PrivacyCard,
    Ridge,
    load,
    privacy_of,
    save,
)
from dpanalysis.preprocessing import LearnedRanges, PrivateBounds, PublicColumns, PublicEncoder
from dpanalysis.preprocessing.columns import learned_by, traced
from dpanalysis.preprocessing.encoder import NumericDomain

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(50.0, 10.0, size=(2000, 3))
Y = X[:, 0] > 50.0
pytestmark = pytest.mark.filterwarnings("ignore::dpanalysis.linear_model.PrivacyWarning")
FEW = tuple(np.linspace(-64.0, 128.0, 49).tolist())
OFFICER = "for what the ledger lists, which may not be all"


@pytest.fixture(autouse=True, scope="module")
def few_candidates():
    """The sparse vector tries 49 candidates instead of 56,001, at the same cost."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dpanalysis.preprocessing.private_bounds._CANDIDATES", FEW)
        yield


def bounds(epsilon=0.5, **arguments):
    return PrivateBounds(epsilon, random_state=1, **arguments)


def model(**arguments):
    return LogisticRegression(1.0, random_state=0, **arguments)


def card_of(fitted):
    return fitted.privacy_ if hasattr(fitted, "privacy_") else fitted[-1].privacy_


def total_of(card):
    """The epsilon of the fit itself, and those of learned bounds in the ledger."""
    covered = any("PrivateBounds" in line for line in card.covered)
    assert covered == any("bounds learned" in line for line in card.ledger)
    paid = [float(line.split("epsilon ")[1]) for line in card.ledger if "bounds learned" in line]
    return card.epsilon - math.fsum(paid), paid


PIPELINES = {
    "plain": (lambda: [bounds()], [0.5]),
    "two in a row": (lambda: [bounds(), bounds(0.25)], [0.25, 0.5]),
    "pandas": (lambda: [bounds().set_output(transform="pandas")], [0.5]),
    "columns": (lambda: [make_column_transformer((bounds(), [0, 1]), (bounds(), [2]))], [0.5, 0.5]),
    "remainder": (
        lambda: [make_column_transformer((bounds(), [0]), remainder="passthrough")],
        [0.5],
    ),
    "learned remainder": (
        lambda: [ColumnTransformer([("a", bounds(0.25), [0])], remainder=bounds())],
        [0.25, 0.5],
    ),
    "union": (lambda: [make_union(bounds(), bounds())], [0.5, 0.5]),
    "deep": (
        lambda: [make_pipeline(make_union(make_pipeline(bounds(), "passthrough"), bounds(0.25)))],
        [0.25, 0.5],
    ),
    "an encoder after": (lambda: [bounds(), PublicEncoder(dict.fromkeys("abc", (0, 1)))], [0.5]),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PIPELINES)
def test_bounds_learned_in_a_pipeline_are_counted_wherever_they_are(name):
    make, paid = PIPELINES[name]
    pipeline = make_pipeline(*make(), model())
    for fitted in (pipeline.fit(X, Y), pipeline.fit(X, Y), clone(pipeline).fit(X, Y)):
        card = card_of(fitted)
        own, found = total_of(card)
        assert sorted(found) == paid and own == pytest.approx(1.0)
        assert card.not_counted == () and OFFICER not in str(card)
        assert "learned" in card.facts["Bounds"] and "paid for" in card.facts["Bounds"]
        assert any("chosen by looking at these records" in line for line in card.not_covered)


BETWEEN = {
    "a scale": lambda: [bounds(), StandardScaler()],
    "a function": lambda: [bounds(), FunctionTransformer()],
    "a scale before": lambda: [StandardScaler(), bounds()],
    "a scale beside": lambda: [make_column_transformer((bounds(), [0]), (StandardScaler(), [1]))],
    "a scale for the rest": lambda: [
        ColumnTransformer([("a", bounds(), [0])], remainder=StandardScaler())
    ],
    "frozen": lambda: [FrozenEstimator(bounds().fit(X))],
    "by a method": lambda: [FunctionTransformer(bounds().fit(X).transform)],
}


@pytest.mark.parametrize("name", BETWEEN)
def test_steps_that_may_learn_are_named_beside_the_bounds(name):
    fitted = make_pipeline(*BETWEEN[name](), model())
    with pytest.warns(UserWarning, match="may learn from the private records"):
        fitted.fit(X, Y)
    card = card_of(fitted)
    assert total_of(card) == (pytest.approx(1.0), [0.5])
    assert OFFICER in str(card)
    steps = ("StandardScaler", "FunctionTransformer", "FrozenEstimator")
    assert any(step in line for step in steps for line in card.not_counted)


LEARNS = (MinMaxScaler(), PCA(2), SelectKBest(k=2), SimpleImputer())


@pytest.mark.parametrize("step", LEARNS, ids=lambda step: type(step).__name__)
@pytest.mark.parametrize("around", [lambda step: step, lambda step: make_union(step, bounds())])
def test_a_step_that_learns_is_named_by_the_warning_the_card_and_the_sum(step, around):
    name = type(step).__name__
    fitted = make_pipeline(around(clone(step)), model(bounds=(-100, 100)))
    with pytest.warns(UserWarning, match=f"the steps {name} before"):
        fitted.fit(X, Y)
    for card in (card_of(fitted), privacy_of(fitted), privacy_of(fitted[-1])):
        assert OFFICER in str(card)
        assert any(f"may have learned from these records: {name}" in n for n in card.not_counted)


def given_by_hand():
    fitted = bounds().fit(X)
    rows = fitted.transform(X)
    yield model(), rows
    yield model(), pickle.loads(pickle.dumps(rows))
    yield model(), rows[:, :1]  # other columns: no ranges, yet the same fit
    yield model(), rows[:, [0, 2]].copy()
    yield model(bounds=(0, 1)), rows
    yield model(bounds=dpa.RowBound(2, 2.0)), rows
    yield model(bounds=fitted.bounds_), X
    yield clone(model(bounds=fitted.bounds_)), X
    yield model(bounds=pickle.loads(pickle.dumps(fitted)).bounds_), pd.DataFrame(X)
    ends = fitted.low_, fitted.high_
    yield model(bounds=ends), X
    yield clone(model(bounds=ends)), X
    yield model(bounds=pickle.loads(pickle.dumps(ends))), X
    yield model(bounds=copy.deepcopy(fitted).columns_), rows
    yield model(bounds=(ends[0].min(), 100.0)), X
    yield model(bounds=(ends[0] - 1.0, ends[1] + 1.0)), X
    yield model(bounds=PublicColumns(*ends)), X
    yield model(bounds=PublicColumns(ends[0], [99.0] * 3, (), 0.5)), X
    yield model(), pickle.loads(pickle.dumps(rows[:, :1]))
    yield model(), copy.deepcopy(rows[:, :1])


@pytest.mark.parametrize("number", range(19))
def test_bounds_passed_on_by_hand_are_counted_once(number):
    estimator, rows = list(given_by_hand())[number]
    assert total_of(estimator.fit(rows, Y).privacy_) == (pytest.approx(1.0), [0.5])
    # A pipeline in which other bounds are learned adds their cost.
    if rows is X:
        both = make_pipeline(bounds(0.25), estimator).fit(X, Y)
        assert sorted(total_of(card_of(both))[1]) == [0.25, 0.5]


def through_an_encoder():
    fitted = bounds().fit(X)
    rows, unit = fitted.transform(X), dict.fromkeys("abc", (0, 1))
    yield PublicEncoder(unit), rows
    yield PublicEncoder(unit).fit(X), rows  # fitted to other rows
    yield PublicEncoder(unit), rows[:, [2, 1, 0]]
    ends = dict(zip("abc", zip(fitted.low_, fitted.high_)))
    yield PublicEncoder(ends), X
    yield pickle.loads(pickle.dumps(PublicEncoder(ends))), X
    yield PublicEncoder({**unit, "c": {"range": (fitted.low_[0], 99.0)}}), X
    yield PublicEncoder({**unit, "c": (-99.0, fitted.high_.max())}), X
    yield PublicEncoder({**unit, "c": [fitted.low_[-1] - 1.0, 2.0 * fitted.high_[-1]]}), X
    yield PublicEncoder({**unit, "c": fitted.high_[:2] * [-1.0, 1.0]}), X
    yield PublicEncoder({**unit, "c": NumericDomain(-99.0, fitted.high_[2])}), X


@pytest.mark.parametrize("number", range(10))
def test_an_encoder_passes_on_what_its_rows_and_ranges_were_learned_by(number):
    encoder, rows = list(through_an_encoder())[number]
    alone = model().fit(encoder.fit_transform(rows), Y)
    with_encoder = make_pipeline(encoder, model()).fit(rows, Y)
    for card in (alone.privacy_, card_of(with_encoder)):
        assert total_of(card) == (pytest.approx(1.0), [0.5])


def test_an_encoder_traces_bounds_of_the_rows_of_its_fit_and_of_others():
    unit, table = dict.fromkeys("abc", (0, 1)), pd.DataFrame(X, columns=list("abc"))
    rows = bounds().fit_transform(table)
    assert PublicEncoder(unit).fit(rows).columns_.epsilon == pytest.approx(0.5)
    assert PublicEncoder(unit).fit(X).transform(rows).public_columns.epsilon == pytest.approx(0.5)
    learned = bounds().set_output(transform="pandas").fit_transform(table)
    encoder = PublicEncoder(unit).set_output(transform="pandas").fit(table)
    assert [fit.epsilon for fit in learned_by(encoder.transform(learned))] == [0.5]


@given(
    epsilons=st.lists(st.floats(0.01, 9.0), min_size=1, max_size=3),
    missing=st.booleans(),
    size=st.sampled_from([None, np.int64(2000)]),
    times=st.integers(1, 2),
)
def test_an_encoder_of_a_file_passes_on_what_its_ranges_were_learned_by(
    epsilons, missing, size, times
):
    """Made by from_dict(), it used to declare learned ranges, and load() returns such encoders."""
    fits = [LearnedRanges(epsilon, size=size, repeatable=np.bool_(True)) for epsilon in epsilons]
    highs = [traced(np.array([99.0]), (fit,))[0] for fit in fits]
    domain = {
        name: {"range": (-99.0, high), "missing": high} if missing else (-99.0, high)
        for name, high in zip("abc", highs)
    }
    encoder = PublicEncoder({**domain, "job": ["x", "y"]}).fit([[1.0] * len(fits) + ["x"]])
    for _ in range(times):
        encoder = PublicEncoder.from_dict(json.loads(json.dumps(encoder.to_dict())))
    assert encoder.columns_.learned == tuple(fits)
    assert clone(encoder).fit([[1.0] * len(fits) + ["x"]]).columns_.learned == tuple(fits)


def test_a_loaded_pipeline_counts_learned_ranges_when_it_is_fitted_again(tmp_path):
    fitted = bounds().fit(X)
    encoder = PublicEncoder({"a": (fitted.low_[0], 99.0), "b": (0, 99), "c": (0, 99)})
    save(make_pipeline(encoder, model()).fit(X, Y), tmp_path / "model.json")
    again = load(tmp_path / "model.json").fit(X, Y)
    assert total_of(card_of(again)) == (pytest.approx(1.0), [0.5])


@pytest.mark.parametrize("listed", [False, True])
def test_a_saved_model_holds_no_learned_range_as_a_public_one(listed, tmp_path):
    """Fitted again, a loaded model counted nothing for the range of its target."""
    fitted = bounds().fit(X)
    low, high = fitted.low_[0], fitted.high_[0]
    ends = ([low], [high]) if listed else (low, high)
    save(Ridge(bounds=ends, target_bounds=(low, 99.0)).fit(X[:, :1], X[:, 0]), tmp_path / "m.json")
    again = load(tmp_path / "m.json")
    assert again.bounds is None and again.target_bounds is None
    with pytest.raises(ValueError, match="target_bounds must be"):
        again.fit(X[:, :1], X[:, 0])


@given(key=st.sampled_from([0, -1, slice(1, 3), [0, 2], Ellipsis, None]), scale=st.floats(0.1, 9))
def test_an_entry_of_a_learned_end_is_its_number_and_keeps_its_fit(key, scale):
    numbers, fit = np.array([1.0, -2.0, 3.0]), LearnedRanges(0.5)
    part = traced(numbers, (fit,))[key]
    np.testing.assert_array_equal(part, numbers[key])
    assert learned_by(part) == learned_by(scale * part) == learned_by(copy.copy(part)) == (fit,)
    if key in (0, -1):
        assert float(part) == numbers[key] and f"{float(part):g}" == f"{numbers[key]:g}"


def lost():
    fitted = bounds().fit(X)
    rows = fitted.transform(X)
    yield model(), np.asarray(rows)
    yield model(), pd.DataFrame(rows)
    yield model(), sp.csr_array(rows)
    yield model(), rows.tolist()
    yield model(), np.hstack([rows, X])
    yield model(), 2.0 * rows
    yield model(), StandardScaler().fit_transform(rows)
    yield model(), make_column_transformer((bounds(), [0, 1])).fit_transform(X)
    yield model(bounds=(fitted.low_.tolist(), fitted.high_.tolist())), X
    yield model(bounds=(np.asarray(fitted.low_), np.asarray(fitted.high_))), X
    yield model(bounds=(0.0, 1.0)), np.asarray(rows)
    yield model(bounds=dpa.RowBound(math.inf, float(fitted.high_.max()))), X
    yield make_pipeline(model()), np.asarray(rows)
    yield make_pipeline("passthrough", model()), np.asarray(rows)
    yield LinearSVC(1.0, random_state=0), np.asarray(rows)
    encoder = PublicEncoder(dict.fromkeys("abc", (0, 100)))
    yield make_pipeline(encoder, model(bounds=(0, 1))), X
    yield model(bounds=dpa.RowBound(2, 2.0)), encoder.fit_transform(X)


@pytest.mark.parametrize("number", range(17))
def test_what_cannot_be_traced_is_said_in_plain_words(number):
    estimator, rows = list(lost())[number]
    card = card_of(estimator.fit(rows, Y))
    assert card.epsilon == pytest.approx(1.0)
    assert "learned from these records before this fit" in card.not_counted[0]
    for text in (str(card), card.to_html()):
        assert OFFICER in text and "Not counted in epsilon" in text and "bounds" in text
    assert PrivacyCard.from_json(card.to_json()) == card


def test_a_saved_card_still_says_what_it_does_not_count(tmp_path):
    save(model(bounds=(0, 100)).fit(X, Y), tmp_path / "m.json")
    assert OFFICER in str(load(tmp_path / "m.json").privacy_)


@pytest.mark.slow
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_fit_of_several_says_that_the_others_cost_too(n_jobs):
    pipeline = make_pipeline(bounds(), model())
    search = GridSearchCV(pipeline, {"logisticregression__C": [0.1, 1.0]}, cv=2, n_jobs=n_jobs)
    with parallel_config(backend="threading"):
        search.fit(X, Y)
        split = cross_validate(pipeline, X, Y, cv=2, n_jobs=n_jobs, return_estimator=True)
    for fitted in (search.best_estimator_, *split["estimator"]):
        card = card_of(fitted)
        assert total_of(card) == (pytest.approx(1.0), [0.5])
        assert OFFICER in str(card) and "each costs epsilon again" in card.not_counted[-1]
    bag = make_pipeline(bounds(), BaggingClassifier(model(), 2, random_state=0)).fit(X, Y)
    for fitted in bag[-1].estimators_:
        assert total_of(fitted.privacy_) == (pytest.approx(1.0), [0.5])
        assert "drawn several times" in fitted.privacy_.not_counted[-1]


@pytest.mark.parametrize("inner", [make_pipeline(PublicEncoder({"a": (0, 1)}), model()), model()])
def test_a_fit_in_a_worker_does_not_see_the_steps_before_and_says_so(inner):
    whole = make_pipeline(
        MinMaxScaler(), PublicEncoder({"a": (0, 1)}), VotingClassifier([("m", inner)])
    )
    seen = whole.fit(X[:, :1], Y)[-1].estimators_[0]
    with parallel_config(backend="threading", n_jobs=2):
        unseen = whole.fit(X[:, :1], Y)[-1].estimators_[0]
    assert "MinMaxScaler" in card_of(seen).not_counted[0]
    assert "does not see where its features" in card_of(unseen).not_counted[0]
    assert "does not see" not in str(card_of(seen).not_counted)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_ransac_and_iterative_imputers_say_that_other_fits_cost_too():
    rows = np.random.default_rng(0).uniform(-1, 1, size=(300, 2))
    ridge = Ridge(bounds=(-1, 1), target_bounds=(-1, 1))
    found = RANSACRegressor(ridge, min_samples=100, max_trials=2).fit(rows, rows[:, 0])
    gaps = np.where(rows > 0.9, np.nan, rows)
    filled = IterativeImputer(ridge, max_iter=1).fit(gaps).imputation_sequence_[0]
    for fitted in (found.estimator_, filled.estimator):
        assert "each costs epsilon again" in fitted.privacy_.not_counted[-1]


def test_bounds_under_another_relation_are_refused_before_the_fit_spends():
    spent = []
    estimator = model(relation="add_or_remove_one")
    estimator._solve = lambda *_: spent.append(1)
    rows = bounds().fit_transform(X)
    with pytest.raises(ValueError, match="relation must be that under which bounds were learned"):
        estimator.fit(rows, Y)
    with pytest.raises(ValueError, match="relation must be that"):
        make_pipeline(make_union(bounds()), estimator).fit(X, Y)
    assert not spent
    both = make_pipeline(bounds(relation="add_or_remove_one"), model(relation="add_or_remove_one"))
    assert card_of(both.fit(X, Y)).epsilon == pytest.approx(1.5)


KINDS = st.sampled_from(["after", "beside", "by hand"])


@pytest.mark.slow
@given(st.lists(st.tuples(st.floats(0.4, 2.0), KINDS), max_size=4))
def test_the_card_is_the_sum_of_everything_that_was_spent(parts):
    """For any combination of private bounds, each fit is counted exactly once."""
    small, y = X[:400, :1], Y[:400]
    before = [bounds(epsilon) for epsilon, how in parts if how == "after"]
    beside = [bounds(epsilon) for epsilon, how in parts if how == "beside"]
    if beside:
        before.append(make_union(*beside))
    width = max(len(beside), 1)
    by_hand = [bounds(epsilon).fit(small) for epsilon, how in parts if how == "by hand"]
    learned = tuple(fit for each in by_hand for fit in each.bounds_.learned)
    columns = PublicColumns(np.zeros(width), np.ones(width), learned=learned)
    fitted = make_pipeline(*before, model(bounds=columns)).fit(small, y)
    card = card_of(fitted)
    assert card.epsilon == pytest.approx(1.0 + math.fsum(epsilon for epsilon, _ in parts))
    assert len(card.ledger) == 1 + len(parts)


@pytest.mark.parametrize("relation", ["replace_one", "add_or_remove_one"])
def test_ranges_and_fits_have_one_relation(relation):
    other = {"replace_one": "add_or_remove_one"}.get(relation, "replace_one")
    ends = PublicColumns([0.0], [1.0], learned=(LearnedRanges(0.5, other),))
    model = LogisticRegression(bounds=ends, relation=relation, size=40)
    with pytest.raises(ValueError, match="relation must be that under which bounds were learned"):
        model.fit(np.full((40, 1), 0.5), np.arange(40) % 2)


def test_what_ranges_cost_is_checked_and_added():
    first, second = LearnedRanges(0.5), LearnedRanges(0.5)
    assert first != second and first == pickle.loads(pickle.dumps(first))
    columns = PublicColumns([0.0], [1.0], learned=(first, second, first))
    assert columns.epsilon == 1.0 and columns.learned == (first, second)
    assert PublicColumns([0.0], [1.0], (), 0.7).epsilon == 0.7
    for ends in (([0.0], traced(np.ones(1), (first,))), (traced(np.zeros(1), (first,)), [1.0])):
        assert PublicColumns(*ends).learned == PublicColumns(*map(list, ends)).learned == (first,)
    assert repr(PublicColumns([0.0], [1.0], (), 0.7)) == (
        "<ranges of 1 columns, learned for epsilon 0.7>"
    )
    assert repr(PublicColumns([0.0], [1.0])) == "<public ranges of 1 columns>"
    assert PublicColumns([0.0], [1.0], (), 0.7, (first,)).epsilon == 0.7
    for wrong in (-0.1, math.nan, math.inf):
        with pytest.raises(ValueError, match="epsilon must lie"):
            PublicColumns([0.0], [1.0], (), wrong)
        with pytest.raises(ValueError, match="epsilon must lie"):
            LearnedRanges(wrong)
    with pytest.raises(ValueError, match="relation must be one of"):
        LearnedRanges(1.0, "neighbours")


@pytest.mark.slow
def test_looking_for_pipelines_keeps_no_data_alive():
    rows = X.copy()
    alive = weakref.ref(rows)
    gc.collect()
    gc.disable()
    try:
        fitted = make_pipeline(bounds(), model()).fit(rows, Y)
        del rows
        assert alive() is None and card_of(fitted).epsilon == pytest.approx(1.5)
    finally:
        gc.enable()


RESEARCH = "RESEARCH ONLY"


@pytest.mark.parametrize("state", [1, np.random.default_rng(1), np.random.RandomState(1)])
def test_a_model_of_bounds_learned_from_a_seed_is_for_research(state):
    """Its card used to cover ranges whose noise anybody could reproduce."""
    fitted = PrivateBounds(0.5, random_state=state).fit(X)
    by_hand = LogisticRegression(1.0, bounds=fitted.bounds_).fit(X, Y)
    piped = make_pipeline(clone(fitted), LogisticRegression(1.0)).fit(X, Y)
    for each in (by_hand, piped):
        assert card_of(each).not_covered[0].startswith(RESEARCH)
    assert privacy_of([by_hand, fitted]).not_covered[0].startswith(RESEARCH)
    plain = LogisticRegression(1.0, bounds=(0, 100)).fit(X, Y)
    assert privacy_of([plain, fitted]).not_covered[0].startswith(RESEARCH)


@pytest.mark.parametrize("state", [None, "os", dpa.privacy.mechanisms.random_source("os")])
def test_a_model_of_the_systems_entropy_is_not_for_research_only(state):
    """The candidates of a private choice used to say RESEARCH ONLY, too."""
    fitted = PrivateBounds(0.5, random_state=state).fit(X)
    found = LogisticRegression(1.0, bounds=fitted.bounds_, random_state=state).fit(X, Y)
    card = privacy_of([found, clone(found).fit(X, Y), fitted])
    assert RESEARCH not in f"{found.privacy_} {card}" and "the same noise" not in str(card)


def test_the_number_of_records_is_public_where_bounds_were_learned_by_it():
    """The card of a nominal size used to list this number as covered."""
    relation, size = "add_or_remove_one", 2100
    by_number = "the nominal size, the number of records, which"
    by_size = "the nominal size, but not the number of records"
    for sizes, said in [([None], by_number), ([2050], by_size), ([2050, None], by_number)]:
        before = [bounds(relation=relation, size=each) for each in sizes]
        piped = make_pipeline(*before, model(relation=relation, size=size)).fit(X, Y)
        assert said in str(card_of(piped))


@pytest.mark.parametrize("choose", [lambda table: [0, 2], make_column_selector(pattern="a")])
def test_a_function_that_chooses_columns_may_look_at_the_records(choose):
    """For example by their variance: the card used to state epsilon without a note."""
    table = pd.DataFrame(X, columns=list("abc"))
    fitted = make_pipeline(ColumnTransformer([("x", bounds(), choose)]), model()).fit(table, Y)
    assert OFFICER in str(card_of(fitted)) and "ColumnTransformer" in card_of(fitted).not_counted[0]
    assert total_of(card_of(fitted)) == (pytest.approx(1.0), [0.5])


def in_tables():
    first, table = bounds().set_output(transform="pandas"), pd.DataFrame(X, columns=list("abc"))
    rows = first.fit_transform(table)
    encoder = PublicEncoder(dict.fromkeys("abc", (0, 1)))
    yield model(), rows
    yield model(), rows.iloc[::-1].copy()
    yield model(), encoder.fit_transform(rows)
    yield model(), encoder.fit_transform(pickle.loads(pickle.dumps(rows[["c", "b", "a"]])))
    yield model(), clone(encoder).set_output(transform="pandas").fit_transform(rows)
    wide = {"a": (0, 1), "b": list(range(40)), "c": list(range(9))}
    sparse = PublicEncoder(wide).fit_transform(rows.assign(b=0, c=1))
    assert sp.issparse(sparse)
    yield model(bounds=(0, 1)), sparse
    yield model(), PublicEncoder({str(j): (0, 1) for j in range(50)}).fit_transform(sparse)


@pytest.mark.parametrize("number", range(7))
def test_bounds_are_traced_through_tables_and_sparse_rows(number):
    """With set_output(transform="pandas") before an encoder the card used to state 1.0."""
    estimator, rows = list(in_tables())[number]
    fitted = estimator.fit(rows, Y)
    assert total_of(card_of(fitted)) == (pytest.approx(1.0), [0.5])


def test_the_attributes_of_a_table_can_be_written_to_a_file():
    rows = bounds(size=2000).set_output(transform="pandas").fit_transform(X)
    rows.attrs = json.loads(json.dumps(rows.attrs))
    [fit] = learned_by(rows)
    assert fit == LearnedRanges(0.5, "replace_one", fit.fit, 2000, True)


def test_bounds_of_some_columns_are_traced_by_the_next_bounds():
    second = bounds(0.25).fit(bounds().fit_transform(X)[:, :2])
    assert second.bounds_.epsilon == pytest.approx(0.75)


ENDS = {
    "entries": lambda low, high: (low[0], high[0]),
    "round": lambda low, high: (np.round(low[0], 1), np.round(high[0], 1)),
    "builtin": lambda low, high: (round(low[0], 1), round(high[0])),
    "around": lambda low, high: np.around(np.concatenate([low, high]), 1),
    "stacked": lambda low, high: np.column_stack([low, high])[0],
    "chosen": lambda low, high: np.where([True, False], low, high),
    "named": lambda low, high: [np.insert([0.0], 1, values=end)[1] for end in (low, high)],
    "listed": lambda low, high: [*low, *high],
    "filled": lambda low, high: (np.insert([0.0], 1, low)[1], np.block([[high, high]])[0, 0]),
}


@pytest.mark.parametrize("ends", ENDS)
@pytest.mark.parametrize("where", ["low_", "bounds_"])
def test_learned_ends_keep_their_cost_however_they_are_written(ends, where):
    target = PrivateBounds(0.5, random_state=1).fit(X[:, :1])
    low, high = target.low_, target.high_
    if where == "bounds_":
        low, high = target.bounds_.low, target.bounds_.high
    found = ENDS[ends](low, high)
    assert float(found[0]) == pytest.approx(float(low[0]), abs=0.05)
    ridge = Ridge(1.0, target_bounds=found, bounds=(0, 100), random_state=0)
    assert ridge.fit(X, X[:, 0]).privacy_.epsilon == pytest.approx(1.5)
    assert type(ridge.coef_) is np.ndarray and type(ridge.intercept_) is float


def learned_ends(epsilon, values):
    return PublicColumns([0.0] * len(values), values, learned=[LearnedRanges(epsilon)]).high


@pytest.mark.parametrize("learned", ["low", "high", "missing"])
def test_every_number_of_a_domain_that_was_learned_keeps_its_cost(learned):
    numbers = {"low": 0.0, "high": 100.0, "missing": 40.0}
    numbers[learned] = learned_ends(0.5, [1.0 + numbers[learned]])[0]
    declared = {"range": (numbers["low"], numbers["high"]), "missing": numbers["missing"]}
    for domain in (declared, NumericDomain(**numbers)):
        encoder = PublicEncoder({"age": domain}).fit([[30.0]])
        assert [fit.epsilon for fit in encoder.columns_.learned] == [0.5]


@pytest.mark.parametrize("write", [np.add, np.copyto])
def test_learned_ends_that_are_overwritten_in_part_keep_their_cost(write):
    ends = learned_ends(0.5, [1.0, 2.0])
    if write is np.add:
        np.add(3.0, 4.0, out=ends, where=[True, False])
    else:
        np.copyto(ends, 7.0, where=[True, False])
    assert ends.tolist() == [7.0, 2.0] and [fit.epsilon for fit in learned_by(ends)] == [0.5]


@pytest.mark.parametrize(
    "write",
    [
        lambda into, ends: np.copyto(into, ends),
        lambda into, ends: np.copyto(dst=into, src=ends),
        lambda into, ends: np.put(a=into, ind=[0, 1], v=ends),
        lambda into, ends: np.place(arr=into, mask=np.ones(2, bool), vals=ends),
        lambda into, ends: np.take(ends, [0, 1], 0, into),
        lambda into, ends: np.take(ends, [0, 1], out=into),
        lambda into, ends: np.concatenate((ends[:1], ends[1:]), 0, into),
        lambda into, ends: np.clip(ends, 0.0, 100.0, into),
        lambda into, ends: into.fill(ends[0]),
    ],
)
def test_ends_written_into_others_add_their_cost_however_they_are_written(write):
    """By the name of an argument, and as the last one, only the earlier cost was kept."""
    into = learned_ends(0.5, [1.0, 2.0])
    write(into, learned_ends(0.25, [7.0, 8.0]))
    assert into[0] == 7.0 and {fit.epsilon for fit in learned_by(into)} == {0.5, 0.25}


def test_learned_ends_in_lists_keep_their_cost():
    learned = bounds().fit(X)
    for ends in ((learned.low_, learned.high_), ([*learned.low_], [*learned.high_])):
        assert model(bounds=ends).fit(X, Y).privacy_.epsilon == pytest.approx(1.5)


def test_a_frozen_model_is_the_model_in_it():
    fitted = model(bounds=(0, 100)).fit(X, Y)
    assert privacy_of(FrozenEstimator(fitted)).epsilon == fitted.privacy_.epsilon


@pytest.mark.parametrize(
    "joined",
    [
        lambda a, b: np.minimum(a, b),
        lambda a, b: (a + b) / 2,
        lambda a, b: np.where(np.asarray(a) < b, a, b),
        lambda a, b: np.minimum.reduce(np.stack([a, b])),
        lambda a, b: np.divmod(a + 100.0 * b, 7.0)[1],
        lambda a, b: np.add(a, 0.0, out=np.add(a, b)) + 0.0 * b,
    ],
)
def test_ranges_joined_by_arithmetic_count_every_fit(joined):
    """The fits of one operand used to be lost."""
    first, second = bounds(epsilon=0.5).fit(X), bounds(epsilon=0.75, trimmed=0.05).fit(X)
    low = joined(first.low_, second.low_)
    assert PublicColumns(low, np.asarray(low) + 1.0).epsilon == 1.25

    def added(total):
        total += second.low_

    def entry(total):
        total[1] = second.low_[1]

    written = (
        added,
        entry,
        lambda total: np.copyto(total, second.low_),
        lambda total: np.put(total, 1, second.low_[1]),
        lambda total: np.add.at(total, 1, second.low_[1]),
        lambda total: np.add(second.low_, 1.0, out=total),
        lambda total: np.mean([second.low_, second.low_], axis=0, out=total),
    )
    for write in written:
        total = first.low_ + 0.0
        write(total)
        found = PublicColumns(np.asarray(total), np.asarray(total) + 1.0).epsilon
        assert found == 0.0 and PublicColumns(total, np.asarray(total) + 1.0).epsilon >= 0.75
    for write in written[:5]:
        total = first.low_ + 0.0
        write(total)
        assert PublicColumns(total, np.asarray(total) + 1.0).epsilon == 1.25
    assert PublicColumns(first.low_, np.asarray(first.low_) + 1.0).epsilon == 0.5

    total = first.low_ + 0.0
    total += second.low_
    assert PublicColumns(total, np.asarray(total) + 1.0).epsilon == 1.25


def test_an_array_that_is_written_to_counts_the_fits_of_what_is_written():
    low, first, second = np.zeros(2), LearnedRanges(0.5), LearnedRanges(0.75)
    out = traced(low, (first,))
    np.add(traced(low, (first,)), traced(low, (second,)), out=out)
    assert learned_by(out) == (first, second)


def centered(rows):
    rows -= rows.mean(axis=0)


def ranked(rows):
    rows[:, 0] = rows[:, 0].argsort().argsort() / len(rows)


WRITES = {
    "operator": centered,
    "entries": ranked,
    "out of a ufunc": lambda rows: np.multiply(rows, rows.mean(), out=rows),
    "out of a function": lambda rows: np.clip(rows, 0.0, rows.mean(axis=0), out=rows),
    "method at": lambda rows: np.add.at(rows, (slice(None), 0), -rows.mean()),
    "copyto": lambda rows: np.copyto(rows, rows - rows.mean(axis=0)),
}


@settings(max_examples=12, deadline=None)
@given(write=st.sampled_from(sorted(WRITES)), learned=st.booleans(), part=st.booleans())
def test_encoded_rows_that_are_written_to_are_no_rows_of_public_ranges(write, learned, part):
    """A function that centers its argument leaves the caller an array of the same name."""
    encoder = bounds() if learned else PublicEncoder(dict.fromkeys("abc", (0, 100)))
    rows = encoder.fit_transform(X)
    rows = rows[np.arange(1500)] if part else rows
    spent = model().fit(rows, Y[: len(rows)]).privacy_
    assert not spent.not_counted and spent.epsilon == pytest.approx(1.0 + 0.5 * learned)
    WRITES[write](rows)
    card = model().fit(rows, Y[: len(rows)]).privacy_
    assert "learned from these records before this fit" in card.not_counted[0]
    assert card.epsilon == pytest.approx(spent.epsilon)


def test_sparse_encoded_rows_that_are_written_to_are_no_rows_of_public_ranges():
    letters = list("abcdefgh")
    encoder = PublicEncoder({"x": (0, 100), "letter": letters})
    table = pd.DataFrame({"x": X[:, 0], "letter": np.tile(letters, 250)})
    for write in (None, lambda rows: rows.data.__imul__(2.0 / rows.data.sum())):
        rows = encoder.fit_transform(table)
        assert sp.issparse(rows)
        rows = pickle.loads(pickle.dumps(rows))
        if write is not None:
            write(rows)
        card = model().fit(rows, Y).privacy_
        assert bool(card.not_counted) == (write is not None)
