"""What an ensemble, a search or a list of models has cost: the sum of its private parts."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, clone

from ..preprocessing.private_bounds import PrivateBounds
from .card import PrivacyCard
from .design import SEVERAL, estimators_in

# These learn nothing from records but by the private models in them.
_ADD_NOTHING = (
    *("BaggingClassifier", "BaggingRegressor", "FixedThresholdClassifier", "FrozenEstimator"),
    *("LabelBinarizer", "LabelEncoder", "MultiOutputClassifier", "MultiOutputRegressor"),
    *("OneVsOneClassifier", "OneVsRestClassifier", "Pipeline", "PrivateBounds", "PublicEncoder"),
    *("RFE", "VotingClassifier", "VotingRegressor"),
)
_BESIDE = (
    "what {} learned from the same records beside the private models, such as scores, weights or "
    "a calibration, and fits that were not kept"
)


class _Cost(NamedTuple):
    epsilon: float
    delta: float

    def for_copies(self, k: int) -> _Cost:
        """Return the cost for a record of which the fit was given k copies (group privacy)."""
        if k <= 1 or self.delta == 0.0:
            return _Cost(k * self.epsilon, k * self.delta)
        factor = math.fsum(math.exp(min(j * self.epsilon, 700.0)) for j in range(k))
        return _Cost(k * self.epsilon, min(1.0, factor * self.delta))


def privacy_of(fitted: Any) -> PrivacyCard:
    """Return the card of an ensemble, a search or several models: the costs of all parts added.

    Parameters
    ----------
    fitted : estimator, or list of estimators
        A fitted meta-estimator of scikit-learn with private models in it, a pipeline, or models
        that were fitted to the same records.

    Returns
    -------
    PrivacyCard
        Its epsilon is for a record that all parts have used. Ranges that several models share
        count once. ``not_counted`` names what else may have been learned from the records.

    Raises
    ------
    ValueError
        If there is no fitted private model in it, or the relations differ.

    Notes
    -----
    Costs add up by basic composition. Of a bootstrap (:class:`~sklearn.ensemble.BaggingClassifier`)
    a record pays for as many copies as were drawn, by group privacy: the draws do not depend on
    the data. The fits of a search are its candidates times its splits, those of
    :class:`~sklearn.feature_selection.RFE` one for each elimination. What others have fitted and
    thrown away is not counted, as ``not_counted`` says.

    Examples
    --------
    >>> import warnings
    >>> import numpy as np
    >>> from sklearn.ensemble import VotingClassifier
    >>> from dpanalysis.linear_model import LinearSVC, LogisticRegression, privacy_of
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(500, 2))
    >>> parts = [("a", LogisticRegression(0.5, bounds=(-1, 1))), ("b", LinearSVC(bounds=(-1, 1)))]
    >>> with warnings.catch_warnings(action="ignore"):  # about the second fit
    ...     voting = VotingClassifier(parts).fit(X, X[:, 0] > 0)
    >>> round(privacy_of(voting).epsilon, 6)
    1.5
    """
    inside = list(estimators_in([fitted]))
    models = [each for each in inside if _has_card(each)]
    if not models:
        raise ValueError(f"there is no fitted private model in {fitted!r}: fit it first")
    relations = {each.privacy_.relation for each in models}
    if len(relations) > 1:
        raise ValueError(
            f"epsilons add up under one relation alone, got {', '.join(sorted(relations))}"
        )
    costs, ledger, bagged = [], [line for m in models for line in m.privacy_.ledger], set()
    for each in inside:
        if getattr(each, "bootstrap", False) is True and hasattr(each, "estimators_samples_"):
            cost, members = _bootstrap(each)
            costs.append(cost)
            bagged |= members
            ledger.append("bootstrap: a record pays for as many copies of it as were drawn")
        lost = _not_kept(each)
        if lost:
            costs += lost
            ledger.append(f"{len(lost)} more fits of {type(each).__name__}, whose models were lost")
    alone = [each for each in models if id(each) not in bagged]
    learned = {fit for each in alone for fit in _learned(each)}
    for each in alone:
        own = each.privacy_.epsilon - math.fsum(fit.epsilon for fit in _learned(each))
        costs.append(_Cost(own, each.privacy_.delta))
    names = {type(each).__name__ for each in inside if not _has_card(each) and _is_fitted(each)}
    beside = sorted(name for name in names - {*_ADD_NOTHING} if not name.startswith("_"))
    several = len(costs) > 1
    # That other fits of the same search cost too is what is added here.
    notes = [n for m in models for n in m.privacy_.not_counted if not (several and n == SEVERAL)]
    notes += [_BESIDE.format(", ".join(beside))] if beside else []
    return PrivacyCard(
        epsilon=math.fsum([*(cost.epsilon for cost in costs), *(f.epsilon for f in learned)]),
        delta=math.fsum(cost.delta for cost in costs),
        relation=relations.pop(),
        ledger=tuple(ledger),
        model=repr(fitted),
        facts={"Sum": f"of {len(models)} models and what the ledger lists beside them"},
        covered=tuple(dict.fromkeys(line for m in models for line in m.privacy_.covered)),
        not_covered=tuple(dict.fromkeys(line for m in models for line in m.privacy_.not_covered)),
        not_counted=tuple(dict.fromkeys(notes)),
    )


def _has_card(estimator: Any) -> bool:
    return isinstance(getattr(estimator, "privacy_", None), PrivacyCard)


def _learned(model: Any) -> tuple[Any, ...]:
    """Return the fits that learned the ranges of a model; a loaded one no longer tells them."""
    return getattr(model, "_learned", ())


def _is_fitted(estimator: BaseEstimator) -> bool:
    return any(name.endswith("_") and not name.startswith("_") for name in vars(estimator))


def _bootstrap(bag: Any) -> tuple[_Cost, set[int]]:
    """Return the cost of the record that was drawn most, and the models that were bagged."""
    paid: list[tuple[np.ndarray, list[_Cost]]] = []
    members: set[int] = set()
    for drawn, part in zip(bag.estimators_samples_, bag.estimators_):
        models = [each for each in estimators_in([part]) if _has_card(each)]
        members |= {id(each) for each in models}
        paid.append(
            (np.bincount(drawn), [_Cost(m.privacy_.epsilon, m.privacy_.delta) for m in models])
        )
    epsilon, delta = np.zeros((2, max(len(copies) for copies, _ in paid)))
    for copies, costs in paid:
        for cost in costs:
            prices = np.array([cost.for_copies(k) for k in range(copies.max() + 1)])
            epsilon[: len(copies)] += prices[copies, 0]
            delta[: len(copies)] += prices[copies, 1]
    return _Cost(float(epsilon.max()), float(delta.max())), members


def _not_kept(meta: Any) -> list[_Cost]:
    """Return the costs of fits whose models a search or an elimination has thrown away."""
    if hasattr(meta, "cv_results_") and hasattr(meta, "n_splits_"):
        tried = (clone(meta.estimator).set_params(**p) for p in meta.cv_results_["params"])
        return [_asked(each) for each in tried for _ in range(meta.n_splits_)]
    if hasattr(meta, "ranking_") and hasattr(meta, "estimator_"):
        return [_asked(meta.estimator_)] * (int(np.max(meta.ranking_)) - 1)
    return []


def _asked(estimator: Any) -> _Cost:
    """Return what a fit of an estimator costs, by its parameters."""
    inside: Iterable[Any] = list(estimators_in([estimator]))
    inside = [each for each in inside if isinstance(each, PrivateBounds) or _is_private(each)]
    return _Cost(
        math.fsum(each.epsilon for each in inside),
        math.fsum(getattr(each, "delta", 0.0) for each in inside),
    )


def _is_private(estimator: Any) -> bool:
    from .estimator import PrivateLinearModel

    return isinstance(estimator, PrivateLinearModel)
