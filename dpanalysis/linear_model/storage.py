"""Fitted models as JSON files: nothing in them is executed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from ..preprocessing.encoder import PublicEncoder
from .base import PrivateLinearClassifier
from .card import PrivacyCard
from .classifiers import LinearSVC, LogisticRegression

__all__ = ["load", "save"]

_FORMAT, _VERSION = "dpanalysis.linear_model", 1
_KINDS: dict[str, type[PrivateLinearClassifier]] = {
    kind.__name__: kind for kind in (LinearSVC, LogisticRegression)
}


def save(model: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted model, alone or behind a :class:`PublicEncoder`, to a JSON file.

    Parameters
    ----------
    model : LogisticRegression, LinearSVC, or Pipeline of an encoder and one of these
    path : str or path-like

    Raises
    ------
    TypeError
        If it is another model, or its labels are neither numbers nor words.
    sklearn.exceptions.NotFittedError
        If it is not fitted.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import numpy as np
    >>> from dpanalysis.linear_model import LogisticRegression, load, save
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(500, 2))
    >>> model = LogisticRegression(bounds=(-1, 1), random_state=0).fit(X, X[:, 0] > 0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(model, pathlib.Path(folder, "model.json"))
    ...     again = load(pathlib.Path(folder, "model.json"))
    >>> bool((again.decision_function(X) == model.decision_function(X)).all())
    True
    """
    steps = [step for _, step in model.steps] if isinstance(model, Pipeline) else [model]
    *before, last = steps
    if type(last) not in _KINDS.values() or [type(s) for s in before] not in ([], [PublicEncoder]):
        raise TypeError(
            "model must be a LogisticRegression or LinearSVC of dpanalysis, or a Pipeline of a "
            f"PublicEncoder and one, got {model!r}"
        )
    check_is_fitted(last)
    kind = last.classes_.dtype.kind
    if kind not in "biufU" and not all(isinstance(c, str) for c in last.classes_):
        raise TypeError(f"classes must be numbers or words to be saved, got {last.classes_!r}")
    names = getattr(last, "feature_names_in_", None)
    content = {
        "format": _FORMAT,
        "version": _VERSION,
        "kind": type(last).__name__,
        "parameters": {
            name: getattr(last, name) for name in ("epsilon", "delta", "C", "fit_intercept")
        },
        "encoder": before[0].to_dict() if before else None,
        "feature_names": None if names is None else list(names),
        "classes": last.classes_.tolist(),
        "classes_dtype": "object" if kind == "O" else last.classes_.dtype.str,
        "coef": last.coef_.tolist(),
        "intercept": last.intercept_.tolist(),
        "privacy": json.loads(last.privacy_.to_json()),
    }
    Path(path).write_text(json.dumps(content, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def load(path: str | os.PathLike[str]) -> Any:
    """Return the model that :func:`save` wrote: an estimator, or a Pipeline with its encoder.

    Raises
    ------
    ValueError
        If the file is not such a model: the message says why.
    """
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
        if content["format"] != _FORMAT or content["version"] != _VERSION:
            raise ValueError(f"format {content['format']!r}, version {content['version']!r}")
        model = _KINDS[content["kind"]](**content["parameters"])
        model.coef_ = np.array(content["coef"], dtype=np.float64)
        model.intercept_ = np.array(content["intercept"], dtype=np.float64)
        kind = content["classes_dtype"]
        if np.dtype(kind).kind not in "biufUO":
            raise ValueError(f"labels of dtype {kind!r}")
        model.classes_ = np.array(content["classes"], dtype=kind)
        if model.coef_.ndim != 2 or model.intercept_.shape != (len(model.coef_),):
            raise ValueError("weights of the wrong shape")
        model.n_features_in_ = model.coef_.shape[1]
        if content["feature_names"] is not None:
            model.feature_names_in_ = np.array(content["feature_names"], dtype=object)
        model.privacy_ = PrivacyCard.from_json(json.dumps(content["privacy"]))
        encoder = content["encoder"] and PublicEncoder.from_dict(content["encoder"])
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: not a model that dpanalysis has saved ({error})") from error
    return Pipeline([("encoder", encoder), ("model", model)]) if encoder else model
