"""What was learned from the same records before a fit, as far as the fit can tell."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import MethodType
from typing import Any

from sklearn.base import BaseEstimator
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import FeatureUnion, Pipeline

from ..preprocessing.columns import LearnedRanges, PublicColumns, columns_of, learned_by
from ..preprocessing.encoder import PublicEncoder
from ..preprocessing.private_bounds import PrivateBounds

__all__ = ["Upstream", "upstream_of"]

# Parts of scikit-learn that fit an estimator several times to the same records.
_REPEATING = tuple(
    f"sklearn.{part}"
    for part in (
        *("calibration", "ensemble", "feature_selection", "model_selection", "multiclass"),
        *("multioutput", "semi_supervised"),
    )
)
_SEVERAL = (
    "other fits of the same search, cross-validation or ensemble: each costs epsilon again, and "
    "more for a record that an ensemble has drawn several times"
)
_UNSEEN = (
    "whatever was learned from these records before this fit and is not in the ledger, such as "
    "bounds, a scale or a choice of columns: the fit does not see where its features and its "
    "bounds come from"
)
_STEPS = "steps before the model, which may have learned from these records: {}"


@dataclass(frozen=True)
class Upstream:
    """What a fit knows of what came before it.

    Attributes
    ----------
    learned : tuple of LearnedRanges
        Private fits whose ranges the estimator is given, each once.
    not_counted : tuple of str
        What may have been learned beside them, in sentences for the card.
    steps : str
        Names of the steps of pipelines that may have learned from the records.
    repeated : bool
        Whether scikit-learn fits the estimator several times.
    """

    learned: tuple[LearnedRanges, ...] = ()
    not_counted: tuple[str, ...] = ()
    steps: str = ""
    repeated: bool = False


def upstream_of(X: Any, bounds: Any, design: Any, relation: str) -> Upstream:
    """Return what came before the ``fit`` that calls.

    Parameters
    ----------
    X : array, CSR matrix or DataFrame
        What the fit was given.
    bounds : object
        What the estimator was given, or None.
    design : ColumnDesign or RowDesign
        What they made.
    relation : str
        Of the fit.

    Raises
    ------
    ValueError
        If ranges were learned under another relation: their epsilons cannot be added.
    """
    frames = list(_frames())
    steps = [step for pipeline in _pipelines(frames) for _, step in pipeline.steps[:-1]]
    transformers = [leaf for step in steps for leaf in _leaves(step)]
    others = [
        type(step).__name__
        for step in transformers
        if type(step) not in (PublicEncoder, PrivateBounds)
    ]
    columns = [getattr(part, "columns_", None) for part in _parts(steps)]
    columns += [getattr(design, "columns", None)]
    fits = [fit for each in columns if isinstance(each, PublicColumns) for fit in each.learned]
    learned = tuple(dict.fromkeys([*learned_by(X), *fits]))
    for fit in learned:
        if fit.relation != relation:
            raise ValueError(
                f"relation must be that under which bounds were learned, {fit.relation!r}, since "
                f"their epsilon is added to the fit's, got {relation!r}: give PrivateBounds and "
                "the estimator the same"
            )
    names = ", ".join(dict.fromkeys(others))
    repeated = any(str(f.f_globals.get("__name__")).startswith(_REPEATING) for f in frames)
    unseen = bounds is not None or (columns_of(X) is None and not transformers)
    said = [(_UNSEEN, unseen), (_STEPS.format(names), names), (_SEVERAL, repeated)]
    return Upstream(learned, tuple(text for text, so in said if so), names, repeated)


def _frames() -> Iterator[Any]:
    """Yield the frames above the caller: its own, in a list of its own, would be a circle."""
    frame: Any = sys._getframe(2)
    while frame is not None:
        yield frame
        frame = frame.f_back


def _pipelines(frames: Iterable[Any]) -> list[Pipeline]:
    """Return the pipelines one of whose methods is under way."""
    methods = [frame for frame in frames if frame.f_code.co_varnames[:1] == ("self",)]
    owners = [frame.f_locals.get("self") for frame in methods]
    return list({id(each): each for each in owners if isinstance(each, Pipeline)}.values())


def _leaves(step: Any) -> list[Any]:
    """Return the transformers that a step is made of, but for those that do nothing."""
    if step is None or isinstance(step, str):
        return []
    if isinstance(step, ColumnTransformer):
        parts = [*(each[1] for each in step.transformers), step.remainder]
    elif isinstance(step, (Pipeline, FeatureUnion)):
        parts = [each[1] for each in getattr(step, "steps", None) or step.transformer_list]
    else:
        return [step]
    return [leaf for part in parts for leaf in _leaves(part)]


def _parts(values: Iterable[Any], seen: set[int] | None = None) -> Iterator[BaseEstimator]:
    """Yield the estimators among ``values``, and all that these hold, each once."""
    seen = set() if seen is None else seen
    for value in values:
        value = value.__self__ if isinstance(value, MethodType) else value
        if id(value) in seen:
            continue
        if isinstance(value, BaseEstimator):
            seen.add(id(value))
            yield value
            yield from _parts(vars(value).values(), seen)
        elif isinstance(value, (list, tuple, dict)):
            seen.add(id(value))
            yield from _parts(value.values() if isinstance(value, dict) else value, seen)
