"""Fitted models as ordinary estimators: the same predictions on any rows."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression as Plain
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.svm import LinearSVC as PlainSVC

import dpanalysis as dpa
from dpanalysis.linear_model import (
    LinearSVC,
    LogisticRegression,
    PrivateClassifier,
    Ridge,
    to_sklearn,
)
from dpanalysis.preprocessing import PublicEncoder

MODELS = [
    (LogisticRegression(bounds=(-1, 1), random_state=0), Plain),
    (LogisticRegression(bounds=(-1, 1), fit_intercept=False, random_state=0), Plain),
    (LinearSVC(bounds=(-1, 1), random_state=0), PlainSVC),
    (PrivateClassifier(bounds=(-1, 1), random_state=0), Plain),
    (PrivateClassifier(dpa.losses.HuberizedHinge(), bounds=(-1, 1), random_state=0), PlainSVC),
]


@pytest.mark.slow
@given(st.sampled_from(MODELS), st.sampled_from([2, 3, 5]), st.integers(0, 10**6))
def test_predictions_are_the_same_to_the_last_bit(case, K, seed):
    model, kind = case
    random = np.random.default_rng(seed)
    X = random.uniform(-1, 1, (200, 4))
    y = np.array(["ant", "bee", "cat", "dog", "elk"])[np.arange(200) % K]
    model = clone(model).fit(X, y)
    plain = to_sklearn(model)
    assert type(plain) is kind
    new = random.normal(size=(300, 4))
    np.testing.assert_array_equal(plain.predict(new), model.predict(new))
    np.testing.assert_array_equal(plain.decision_function(new), model.decision_function(new))
    if isinstance(model, LogisticRegression):
        np.testing.assert_allclose(
            plain.predict_proba(new), model.predict_proba(new), rtol=1e-12, atol=1e-300
        )
    plain.coef_[:] = 0.0
    assert model.coef_.any()  # a copy


def test_a_pipeline_keeps_its_encoder():
    random = np.random.default_rng(0)
    table = pd.DataFrame(
        {"age": random.integers(17, 90, 500), "job": random.choice(["a", "b"], 500)}
    )
    encoder = PublicEncoder({"age": (17, 90), "job": ["a", "b"]})
    fitted = make_pipeline(encoder, LogisticRegression(random_state=0))
    fitted.fit(table, table["age"] > 50)
    plain = to_sklearn(fitted)
    assert isinstance(plain, Pipeline) and type(plain[-1]) is Plain and plain[0] is fitted[0]
    np.testing.assert_array_equal(plain.predict(table), fitted.predict(table))
    np.testing.assert_allclose(plain.predict_proba(table), fitted.predict_proba(table), rtol=1e-12)
    assert not hasattr(plain[-1], "privacy_")


def test_names_of_features_are_kept():
    frame = pd.DataFrame(np.random.default_rng(0).uniform(-1, 1, (300, 2)), columns=["a", "b"])
    plain = to_sklearn(LinearSVC(bounds=(-1, 1), random_state=0).fit(frame, frame["a"] > 0))
    assert plain.feature_names_in_.tolist() == ["a", "b"] and plain.n_features_in_ == 2
    with pytest.raises(ValueError, match="feature names"):
        plain.predict(frame[["b", "a"]])


def test_what_is_no_fitted_private_model_is_refused():
    with pytest.raises(NotFittedError):
        to_sklearn(LinearSVC())
    with pytest.raises(TypeError, match="model must be a private classifier"):
        to_sklearn(Plain())
    with pytest.raises(TypeError, match="model must be a private classifier"):
        to_sklearn(make_pipeline(Plain()))


@pytest.mark.parametrize("kind", [LogisticRegression, LinearSVC, Ridge])
def test_onnx_says_the_same(kind):
    reason = "ONNX needs: pip install skl2onnx onnxruntime"
    skl2onnx = pytest.importorskip("skl2onnx", reason=reason)
    onnxruntime = pytest.importorskip("onnxruntime", reason=reason)
    X = np.random.default_rng(0).uniform(-1, 1, (500, 3)).astype(np.float32)
    ranged = {"target_bounds": (-1, 1)} if kind is Ridge else {}
    y = X[:, 0] if kind is Ridge else X[:, 0] > 0
    plain = to_sklearn(kind(bounds=(-1, 1), random_state=0, **ranged).fit(X, y))
    stored = skl2onnx.to_onnx(plain, X[:1]).SerializeToString()
    (found, *_) = onnxruntime.InferenceSession(stored).run(None, {"X": X})
    np.testing.assert_allclose(np.ravel(found), plain.predict(X), atol=1e-6)
