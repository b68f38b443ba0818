"""Classes of private classifiers: declared, read off the labels, or stated in a domain file."""

import datetime
import io
import math
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import BaggingClassifier, VotingClassifier
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline

from dpanalysis import linear_model
from dpanalysis.linear_model import (
    LinearSVC,
    LogisticRegression,
    PrivacyWarning,
)
from dpanalysis.linear_model.classifiers import fit_blocks
from dpanalysis.preprocessing import PublicEncoder


@pytest.mark.parametrize(
    "classes",
    [[], "yes", {"no", "yes"}, [["no", "yes"]], [0.0, math.nan], ["no", math.nan], [["no"], []]],
)
def test_classes_that_are_no_list_are_named(classes):
    with pytest.raises(ValueError, match="classes must be a list of labels, got"):
        LogisticRegression(classes=classes).fit(np.eye(4), [0.0, 1.0, 0.0, 1.0])


@pytest.mark.parametrize("classes", [["high", "low", "low"], [0, 0.0, 1]])
def test_classes_that_are_equal_are_refused(classes):
    with pytest.raises(ValueError, match="classes must be different labels, got"):
        LogisticRegression(classes=classes).fit(np.eye(4), [0, 1, 0, 1])


@pytest.mark.parametrize(
    ("classes", "labels", "kept"),
    [
        (["0", "1"], pd.Series([0, 1] * 50), [0, 1]),
        (["0", "1"], pd.Series([0.0, 1.0] * 50), [0, 1]),
        (["0", "1"], pd.Series([0, 1] * 50, dtype="Int64"), [0, 1]),
        (["1", "2", "2.5"], pd.Series([1, 2] * 50), [1.0, 2.0, 2.5]),  # one that does not occur
        ([0.0, 1.0], pd.Series(["0", "1"] * 50), ["0", "1"]),
        (["true", "False"], np.array([False, True] * 50), [False, True]),
        ([datetime.date(2020, 1, 1), datetime.date(2021, 1, 1)], None, None),
    ],
)
def test_declared_classes_become_the_kind_of_the_labels(classes, labels, kept):
    """Texts for numbers gave predictions that equal no label."""
    if labels is None:
        labels = np.array(["2020-01-01", "2021-01-01"] * 50, dtype="datetime64[s]")
        kept = labels[:2].tolist()
    X = np.linspace(0.0, 1.0, 100)[:, None]
    model = LogisticRegression(classes=classes, bounds=(0.0, 1.0), random_state=0).fit(X, labels)
    assert model.classes_.tolist() == kept and isinstance(model.classes_.tolist()[0], type(kept[0]))
    assert set(model.predict(X).tolist()) <= set(kept)


@pytest.mark.parametrize("classes", [[0, 1], ["0", "1"]])
@pytest.mark.parametrize("written", ["1.0", "1e0", "1\xa0", "\x1f1"])
def test_how_one_label_is_written_does_not_change_declared_classes(classes, written):
    """A reader made floats of the integers, or texts, and so did predictions."""
    X = np.linspace(0.0, 1.0, 101)[:, None]
    model = LogisticRegression(classes=classes, bounds=(0.0, 1.0), random_state=0)
    file = io.StringIO("y\n" + "0\n1\n" * 50 + f"{written}\n")
    labels = pd.read_csv(file, skip_blank_lines=False)["y"]
    if labels.dtype.kind == "f":
        assert model.fit(X, labels).classes_.dtype.kind == "i"
    else:
        with pytest.raises(ValueError, match=r"y must hold labels in classes .* in row 100"):
            model.fit(X, labels)


@pytest.mark.parametrize("one", ["1", "True"])
def test_a_list_of_labels_that_are_texts_and_numbers_is_refused(one):
    """One text made texts of all classes, declared or not."""
    for classes in (None, [0, 1], [False, True]):
        with pytest.raises(TypeError, match=f"words alone, got '{one}' in row 3"):
            LogisticRegression(classes=classes).fit(np.eye(4), [0, 1, 0, one])
        with pytest.raises(TypeError, match="words alone, got 0 in row 1"):
            LogisticRegression(classes=classes).fit(np.eye(4), [one, 0, 1, 0])


def test_labels_and_classes_of_no_order_are_refused():
    with pytest.raises(TypeError, match=r"y must hold numbers alone, or words alone .*bytes"):
        LogisticRegression().fit(np.eye(4), np.array([b"a", b"b"] * 2))
    with pytest.raises(ValueError, match="classes must be numbers alone, or texts, got"):
        LogisticRegression(classes=[1, datetime.date(2020, 1, 1)]).fit(np.eye(4), [0, 1] * 2)


def test_no_blocks_are_no_data():
    encoder = PublicEncoder({"age": (17, 90)}).fit(pd.DataFrame({"age": [20.0]}))
    with pytest.raises(ValueError, match="there are no rows"):
        fit_blocks(LogisticRegression(), encoder, [])


def test_no_warning_tells_how_many_declared_classes_occur():
    X = np.zeros((24, 1))
    model = LinearSVC(9.0, classes=list(range(30)), bounds=(0, 1), random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.simplefilter("ignore", PrivacyWarning)
        for count in (12, 13):  # above half of the rows scikit-learn warns
            model.fit(X, np.arange(24) % count)
    with pytest.warns(UserWarning, match="unique classes"):  # public, if read off the labels
        LinearSVC(9.0, bounds=(0, 1), random_state=0).fit(X, np.arange(24) % 13)


def test_declared_classes_of_no_kind_of_the_labels_are_refused():
    for labels in ([0, 1] * 2, [True, False] * 2):
        with pytest.raises(ValueError, match=r"classes must be labels of the kind of y, .*'no'"):
            LogisticRegression(classes=["no", "yes"]).fit(np.eye(4), labels)


@pytest.mark.parametrize("kind", ["str", "object"])
def test_classes_of_another_kind_than_the_labels_are_named(kind):
    labels = pd.Series(["high", "low"] * 2, dtype=kind)
    with pytest.raises(
        ValueError, match=r"y must hold labels in classes = \['0', '1'\], got 'high'"
    ):
        LogisticRegression(classes=[0, 1]).fit(np.eye(4), labels)


@pytest.mark.parametrize("labels", [["no", "yes"], [0, 1]])
@pytest.mark.parametrize("by", ["rows", "bounds"])
def test_classes_of_the_domain_file_are_those_of_the_model(tmp_path, labels, by):
    (tmp_path / "d.toml").write_text(f"classes = {labels}\n[columns]\na = [0, 1]\n")
    encoder = PublicEncoder(tmp_path / "d.toml")
    table = pd.DataFrame({"a": [0.0, 1.0] * 50})
    X, bounds = encoder.fit_transform(table), None
    if by == "bounds":
        X, bounds = np.array(X), encoder.columns_
    model = LogisticRegression(bounds=bounds, random_state=0).fit(X, [labels[0]] * 100)
    assert model.classes_.tolist() == labels
    assert "the set of labels: declared by the user" in model.privacy_.not_covered
    with pytest.raises(
        ValueError, match=r"y must hold labels in classes = .*, got 'high' in row 0"
    ):
        LogisticRegression(bounds=bounds).fit(X, ["high", "low"] * 50)
    with pytest.raises(ValueError, match=r"classes .*'a', 'b'"):  # the argument comes first
        LogisticRegression(bounds=bounds, classes=["a", "b"]).fit(X, [labels[0]] * 100)


def test_a_loaded_pipeline_keeps_the_classes_of_the_domain_file(tmp_path):
    (tmp_path / "d.toml").write_text('classes = ["no", "yes"]\n[columns]\na = [0, 1]\n')
    X, y = pd.DataFrame({"a": [0.0, 1.0] * 50}), ["no", "yes"] * 50
    fitted = make_pipeline(PublicEncoder(tmp_path / "d.toml"), LogisticRegression(random_state=0))
    linear_model.save(fitted.fit(X, y), tmp_path / "m.json")
    again = linear_model.load(tmp_path / "m.json")
    assert again.predict(X).tolist() == fitted.predict(X).tolist()
    with pytest.raises(ValueError, match=r"y must hold labels in classes = \['no', 'yes'\]"):
        again.fit(X, ["wrong", "no"] * 50)


def test_classes_of_a_domain_file_are_not_those_of_other_labels(tmp_path):
    """A meta-estimator numbers the labels, or fits several targets."""
    (tmp_path / "d.toml").write_text('classes = ["a", "b", "c"]\n[columns]\na = [0, 1]\n')
    X = pd.DataFrame({"a": np.linspace(0.0, 1.0, 99)})
    y, model = np.array(["a", "b", "c"] * 33), LogisticRegression(random_state=0)
    several = (
        OneVsRestClassifier(model),
        OneVsRestClassifier(model, n_jobs=2),
        BaggingClassifier(model, n_estimators=2, bootstrap=False),
        VotingClassifier([("a", model)]),
        CalibratedClassifierCV(model, cv=2),
    )
    for each in several:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = make_pipeline(PublicEncoder(tmp_path / "d.toml"), each).fit(X, y)
        assert found.classes_.tolist() == ["a", "b", "c"]
    calibrated = make_pipeline(PublicEncoder(tmp_path / "d.toml"), several[-1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert calibrated.fit(X, np.where(y == "c", "a", y)).classes_.tolist() == ["a", "b"]


def test_classes_given_with_the_bounds_come_first(tmp_path):
    (tmp_path / "d.toml").write_text('classes = ["no", "yes"]\n[columns]\na = [0, 1]\n')
    table = pd.DataFrame({"a": [0.0, 1.0] * 2})
    bounds = PublicEncoder(tmp_path / "d.toml").fit(table).columns_
    X = PublicEncoder({"a": (0, 1)}).fit_transform(table)
    with pytest.raises(ValueError, match="y must hold labels in classes"):
        LogisticRegression(bounds=bounds).fit(X, ["wrong", "no"] * 2)


def test_what_is_fitted_as_words_is_predicted_as_words():
    X = np.array([["0.5", "1"], ["1", "0.25"]] * 30)
    model = LogisticRegression(bounds=(0, 1), random_state=0).fit(X, np.tile([0, 1], 30))
    np.testing.assert_array_equal(model.predict(X), model.predict(X.astype(float)))
    with pytest.raises(ValueError, match="X must hold numbers"):
        model.predict(np.array([[10**400, 1]], dtype=object))


def test_integer_classes_that_a_float_would_round_are_refused():
    """One label 0.0 instead of 0 made 300 labels 2**53 + 1 into 2**53."""
    X, big = np.linspace(-1.0, 1.0, 40)[:, None], 2**53
    Y = X[:, 0] > 0.0
    for kind in (int, float, np.int64):
        with pytest.raises(ValueError, match=r"classes must be at most 2\*\*53"):
            LogisticRegression(1.0, bounds=(-1, 1), classes=[0, kind(big + 2)]).fit(X, Y)
    assert LogisticRegression(1.0, bounds=(-1, 1), classes=[-big, 0, big]).fit(X, Y * big)
