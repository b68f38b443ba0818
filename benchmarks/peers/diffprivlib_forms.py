"""diffprivlib's logistic regression, which needs scikit-learn before 1.6."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from diffprivlib.models import LogisticRegression

from . import data


def fit(n: int, d: int, model: str) -> dict[str, Callable[[], Any]]:
    """Return a fit for epsilon = 1, which returns its accuracy."""
    if model != "LogisticRegression":
        return {}
    X, y, _, _ = data.planted(n, d)
    one = LogisticRegression(epsilon=1.0, data_norm=d**0.5, max_iter=1000)
    return {"diffprivlib": lambda: one.fit(X, y).score(X, y)}
