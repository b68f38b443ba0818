"""Private linear classifiers and regressors with scikit-learn's interface.

It needs scikit-learn: ``pip install 'dpanalysis-toolkit[sklearn]'``.

Examples
--------
>>> import pandas as pd
>>> from sklearn.pipeline import make_pipeline
>>> from dpanalysis.linear_model import LogisticRegression
>>> from dpanalysis.preprocessing import PublicEncoder
>>> table = pd.DataFrame({"age": [30, 50] * 2000, "job": ["a", "b"] * 2000})
>>> encoder = PublicEncoder({"age": (17, 90), "job": ["a", "b"]})
>>> model = make_pipeline(encoder, LogisticRegression(epsilon=1.0, random_state=0))
>>> model.fit(table, ["poor", "rich"] * 2000).predict(table[:2]).tolist()
['poor', 'rich']
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import on_first_use

if TYPE_CHECKING:
    from .card import PrivacyCard
    from .classifiers import LinearSVC, LogisticRegression, PrivateClassifier
    from .ensembles import privacy_of
    from .estimator import PrivacyWarning
    from .ordinary import to_sklearn
    from .regressors import LinearRegression, Ridge
    from .saving import load, save

__all__ = [
    "LinearRegression",
    "LinearSVC",
    "LogisticRegression",
    "PrivacyCard",
    "PrivacyWarning",
    "PrivateClassifier",
    "Ridge",
    "load",
    "privacy_of",
    "save",
    "to_sklearn",
]

__getattr__, __dir__ = on_first_use(
    __name__,
    {
        "card": "PrivacyCard",
        "classifiers": "LinearSVC LogisticRegression PrivateClassifier",
        "ensembles": "privacy_of",
        "estimator": "PrivacyWarning",
        "ordinary": "to_sklearn",
        "regressors": "LinearRegression Ridge",
        "saving": "load save",
    },
)
