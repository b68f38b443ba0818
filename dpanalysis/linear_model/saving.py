"""Saving fitted models as JSON files; loading one executes no code."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, TextIO, get_args

import numpy as np
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from .. import clipping, methods
from ..experiments.checkpoint import decoded, encoded
from ..methods.base import Method
from ..preprocessing.columns import fits_in
from ..preprocessing.encoder import PublicEncoder
from ..privacy.accounting.sampling import EpochSampling, Sampling
from ..problems.row_bound import RowBound
from ..theory import Shares
from .card import PrivacyCard
from .classifiers import OUR_LOSSES, LinearSVC, LogisticRegression, PrivateClassifier
from .estimator import PrivateLinearModel
from .regressors import LinearRegression, Ridge

_PARAMETERS = "epsilon", "delta", "C", "alpha", "fit_intercept", "relation", "size", "width"
_FORMAT, _VERSION = "dpanalysis.linear_model", 1
_KINDS: dict[str, type[PrivateLinearModel]] = {
    kind.__name__: kind
    for kind in (LinearRegression, LinearSVC, LogisticRegression, PrivateClassifier, Ridge)
}
_METHODS = [each for each in vars(methods).values() if isinstance(each, type)]

#: Classes that a file may name as a loss, a method or a part of one; their fields are plain values.
_STORABLE: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        *OUR_LOSSES,
        *(clipping.Automatic, clipping.Flat, clipping.PerSampleAdaptive, clipping.Value),
        *(*get_args(Sampling), *get_args(EpochSampling), Shares),
        *(each for each in _METHODS if is_dataclass(each) and issubclass(each, Method)),
    )
}


def _plain(name: str, value: Any) -> Any:
    """Return a loss, a method or a number as JSON values, or raise naming the parameter."""
    try:
        return encoded(value, _STORABLE)
    except TypeError:
        raise TypeError(
            f"{name} must be of classes of dpanalysis alone to be saved, since a file holds no "
            f"code, got {value!r}; coef_ and intercept_ are all that predictions need"
        ) from None


def _public_range(bounds: Any) -> list[Any] | None:
    """Return bounds (low, high) as JSON values; None for others, and for what was paid for."""
    if not isinstance(bounds, (tuple, list, np.ndarray)) or list(fits_in(bounds)):
        return None
    if any(isinstance(each, RowBound) for each in bounds):
        return None
    return [np.asarray(end, dtype=np.float64).tolist() for end in bounds]


def save(model: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted model, optionally with its :class:`PublicEncoder`, to a JSON file.

    Its parameters are kept, except ``random_state`` and bounds, also of the target, that are not a
    public (low, high).

    Parameters
    ----------
    model : LogisticRegression, LinearSVC, PrivateClassifier, Ridge, LinearRegression, or Pipeline
        A Pipeline must consist of an encoder and one of the others.
    path : str or path-like

    Raises
    ------
    TypeError
        If it is another model, its labels are neither numbers nor strings, or its loss or method
        is user-defined or contains a function, as a schedule of step sizes and
        :class:`dpanalysis.clipping.Custom` do.
    sklearn.exceptions.NotFittedError
        If it is not fitted.
    FileNotFoundError
        If the folder of the file does not exist.

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
    text = model_json(model)
    with atomic_file(path) as file:
        file.write(text)


def model_json(model: Any) -> str:
    """Return the text of a fitted model's file; raises as :func:`save` does."""
    steps = [step for _, step in model.steps] if isinstance(model, Pipeline) else [model]
    *before, last = steps
    if type(last) not in _KINDS.values() or [type(s) for s in before] not in ([], [PublicEncoder]):
        raise TypeError(
            f"model must be a {', '.join(_KINDS)} of dpanalysis, or a Pipeline of a PublicEncoder "
            f"and one of these, got {model!r}"
        )
    check_is_fitted(last)
    own = last.get_params()
    parameters = {name: _plain(name, own[name]) for name in _PARAMETERS if name in own}
    classes: Any = getattr(last, "classes_", None)
    if isinstance(last, Ridge):
        parameters["target_bounds"] = _public_range(last.target_bounds)
    if type(last) is PrivateClassifier:
        parameters |= {name: _plain(name, getattr(last, name)) for name in ("loss", "method")}
    parameters["bounds"] = _public_range(last.bounds)
    if own.get("classes") is not None:
        parameters["classes"] = np.asarray(last.classes).tolist()
    elif getattr(last, "_declared", False):  # in a domain file, which the encoder no longer names
        parameters["classes"] = classes.tolist()
    if getattr(last, "class_weight", None):
        pairs = last.class_weight.items()
        parameters["class_weight"] = [[np.asarray(key).tolist(), float(v)] for key, v in pairs]
    features = getattr(last, "feature_names_in_", None)
    content = {
        "format": _FORMAT,
        "version": _VERSION,
        "kind": type(last).__name__,
        "parameters": parameters,
        "encoder": before[0].to_dict() if before else None,
        "feature_names": None if features is None else list(features),
        "classes": None if classes is None else classes.tolist(),
        "classes_dtype": _dtype_name(classes),
        "coef": last.coef_.tolist(),
        "intercept": np.asarray(last.intercept_).tolist(),
        "privacy": json.loads(last.privacy_.to_json()),
    }
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


def _dtype_name(classes: np.ndarray | None) -> str | None:
    if classes is None:
        return None
    return "object" if classes.dtype.kind == "O" else classes.dtype.str


def check_writable(path: str | os.PathLike[str]) -> None:
    """Raise OSError if :func:`atomic_file` could not write a file; leave nothing behind."""
    path = Path(path).resolve()
    if not path.exists() or path.is_file():
        part = _part(path)
        try:
            part.open("x").close()
        except OSError as error:
            error.filename = str(path)
            raise
        part.unlink()


def _part(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.part")


@contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[TextIO]:
    """Open a text file for an atomic write: it appears, or is replaced, once complete."""
    path = Path(path).resolve()
    if path.exists() and not path.is_file():  # a device or a pipe cannot be replaced by renaming
        with open(path, "w", newline="", encoding="utf-8") as file:
            yield file
        return
    if not path.parent.is_dir():
        raise FileNotFoundError(f"path must lie in an existing folder, got {path}")
    part = _part(path)
    try:
        with open(part, "x", newline="", encoding="utf-8") as file:
            yield file
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def load(path: str | os.PathLike[str]) -> Any:
    """Return the model written by :func:`save`, an estimator or a Pipeline; ValueError if none."""
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
        kind = content.get("format"), content.get("version")
        if kind != (_FORMAT, _VERSION):
            raise ValueError(f"format {kind[0]!r}, version {kind[1]!r}")
        parameters = {
            name: decoded(each, _STORABLE) for name, each in content["parameters"].items()
        }
        if "class_weight" in parameters:
            parameters["class_weight"] = dict(parameters["class_weight"])
        model = _KINDS[content["kind"]](**parameters)
        model.coef_ = np.array(content["coef"], dtype=np.float64)
        model.intercept_ = np.array(content["intercept"], dtype=np.float64)
        if isinstance(model, Ridge):
            shapes = model.coef_.shape[:1], ()
        else:
            kind = content["classes_dtype"]
            if np.dtype(kind).kind not in "biufUO":
                raise ValueError(f"labels of dtype {kind!r}")
            model.classes_ = np.array(content["classes"], dtype=kind)
            shapes = model.coef_.shape[:2], model.coef_.shape[:1]
            if len(model.coef_) != (len(model.classes_) if len(model.classes_) != 2 else 1):
                raise ValueError("weights for another number of classes")
        if (model.coef_.shape, model.intercept_.shape) != shapes or not model.coef_.ndim:
            raise ValueError("weights of the wrong shape")
        if isinstance(model, Ridge):
            model.intercept_ = float(model.intercept_)
        model.n_features_in_ = model.coef_.shape[-1]
        if content["feature_names"] is not None:
            model.feature_names_in_ = np.array(content["feature_names"], dtype=object)
        model.privacy_ = PrivacyCard.from_json(json.dumps(content["privacy"]))
        encoder = content["encoder"] and PublicEncoder.from_dict(content["encoder"])
        if encoder and content["feature_names"] is not None:  # the model has seen tables
            encoder.set_output(transform="pandas")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: not a model that dpanalysis has saved ({error})") from error
    return Pipeline([("encoder", encoder), ("model", model)]) if encoder else model
