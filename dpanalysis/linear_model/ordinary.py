"""Conversion of fitted private models to ordinary scikit-learn estimators."""

from __future__ import annotations

from copy import copy
from typing import Any

from sklearn import linear_model, svm
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from ..losses import Logistic
from .classifiers import PrivateClassifier
from .regressors import LinearRegression, Ridge


def to_sklearn(model: Any) -> Any:
    """Return an ordinary scikit-learn estimator with the same predictions as a fitted model.

    For tools that expect scikit-learn's classes. It is post-processing, at no privacy cost.

    Parameters
    ----------
    model : LogisticRegression, LinearSVC, PrivateClassifier, Ridge, LinearRegression, or a Pipeline
        that ends in one

    Returns
    -------
    sklearn.linear_model.LogisticRegression, Ridge or LinearRegression, or sklearn.svm.LinearSVC
        With the same ``coef_``, ``intercept_`` and ``classes_``. For a classifier, the first if the
        loss is logistic, with its probabilities, and the last for any other loss. For a pipeline, a
        Pipeline with the same fitted steps before the model, such as
        :class:`~dpanalysis.preprocessing.PublicEncoder`.

    Notes
    -----
    The result has no ``privacy_``: keep the model's card. Fitting it again is not private.

    Raises
    ------
    TypeError
        If it is another model.
    sklearn.exceptions.NotFittedError
        If it is not fitted.

    Examples
    --------
    >>> import numpy as np
    >>> from dpanalysis.linear_model import LogisticRegression, to_sklearn
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(500, 2))
    >>> model = LogisticRegression(bounds=(-1, 1), random_state=0).fit(X, X[:, 0] > 0)
    >>> plain = to_sklearn(model)
    >>> type(plain).__module__.startswith("sklearn.")
    True
    >>> bool((plain.predict(X) == model.predict(X)).all())
    True
    """
    if isinstance(model, Pipeline):
        *before, (name, last) = model.steps
        return Pipeline([*before, (name, to_sklearn(last))])
    kind: Any
    if isinstance(model, PrivateClassifier):
        logistic = type(model._loss_and_method()[0]) is Logistic
        kind = linear_model.LogisticRegression if logistic else svm.LinearSVC
    elif isinstance(model, Ridge):
        alone = isinstance(model, LinearRegression)
        kind = linear_model.LinearRegression if alone else linear_model.Ridge
    else:
        raise TypeError(
            "model must be a private classifier or regressor of dpanalysis.linear_model, or a "
            f"Pipeline that ends in one, got {model!r}"
        )
    check_is_fitted(model)
    plain = kind(fit_intercept=model.fit_intercept)
    for attribute in ("coef_", "intercept_", "classes_"):
        if hasattr(model, attribute):
            setattr(plain, attribute, copy(getattr(model, attribute)))
    plain.n_features_in_ = model.n_features_in_
    if hasattr(model, "feature_names_in_"):
        plain.feature_names_in_ = model.feature_names_in_.copy()
    return plain
