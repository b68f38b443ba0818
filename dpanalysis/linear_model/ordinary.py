"""Fitted private models as ordinary estimators of scikit-learn."""

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
    """Return a fitted model as an ordinary estimator of scikit-learn, with the same predictions.

    For tools that know scikit-learn's classes. What is computed from a release costs nothing.

    Parameters
    ----------
    model : LogisticRegression, LinearSVC, PrivateClassifier, Ridge, LinearRegression, or a Pipeline
        that ends in one

    Returns
    -------
    sklearn.linear_model.LogisticRegression, Ridge or LinearRegression, or sklearn.svm.LinearSVC
        With the same ``coef_``, ``intercept_`` and ``classes_``: of a classifier the first for the
        logistic loss, whose probabilities it has, the last for any other. Of a pipeline, a Pipeline
        with the same fitted steps before it, such as
        :class:`~dpanalysis.preprocessing.PublicEncoder`.

    Notes
    -----
    It has no ``privacy_``: keep the card of the model. A second ``fit`` of it is not private.

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
