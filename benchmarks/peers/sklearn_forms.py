"""scikit-learn's NON-private gradient of the logistic loss, as its solvers call it."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from sklearn._loss import HalfBinomialLoss
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.linear_model._linear_loss import LinearModelLoss
from sklearn.svm import LinearSVC

from . import data


def _mean(X: Any, y: Any, w: Any) -> dict[str, Callable[[], Any]]:
    loss = LinearModelLoss(HalfBinomialLoss(), fit_intercept=False)
    threads = int(os.environ["OMP_NUM_THREADS"])
    y, w = (0.5 * (y + 1.0)).astype(X.dtype), w.astype(X.dtype)
    return {"scikit-learn, not private": lambda: loss.gradient(w, X, y, n_threads=threads)}


def dense(n: int, d: int, dtype: str, loss: str) -> dict[str, Callable[[], Any]]:
    X, y, w, _ = data.dense(n, d, dtype)
    return _mean(X, y, w) if loss == "logistic" else {}


def sparse(n: int, d: int, entries: int) -> dict[str, Callable[[], Any]]:
    X, y, w, _ = data.csr(n, d, entries)
    return _mean(X, y, w)


def fit(n: int, d: int, model: str) -> dict[str, Callable[[], Any]]:
    """Return fits that are not private, which return their accuracy."""
    X, y, _, _ = data.planted(n, d)
    models = {
        "LogisticRegression": {
            "scikit-learn, lbfgs": LogisticRegression(max_iter=1000),
            "scikit-learn, SGDClassifier": SGDClassifier(loss="log_loss", random_state=0),
        },
        "LinearSVC": {"scikit-learn, LinearSVC": LinearSVC(random_state=0)},
    }[model]
    return {name: lambda one=one: one.fit(X, y).score(X, y) for name, one in models.items()}
