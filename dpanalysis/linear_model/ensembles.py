"""Total privacy cost of an ensemble, a search or a list of models: the sum of its private parts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, clone, is_classifier
from sklearn.model_selection import check_cv

from ..preprocessing.columns import LearnedRanges, PublicColumns
from ..preprocessing.private_bounds import PrivateBounds
from ..privacy.accounting.relations import REPLACE_ONE
from ..privacy.noise import is_system
from .card import RESEARCH_ONLY, PrivacyCard
from .design import REPEATING, SEVERAL, estimators_in

# These learn from the records only through the private models in them.
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
# One record changes which other records a fit is given, so basic composition does not apply.
_DIVIDED = (
    "how {} divided the records among the fits: that depends on {}, so one record that changes "
    "moves others as well, and the sum is no bound; {}"
)
_BY_LABELS = "their labels", "under replace_one it is one with splits by place, cv=KFold(5)"
_BY_PAIRS = "their labels", "it is one under add_or_remove_one, with a public size"
_BY_NUMBER = "their number", "it is one under replace_one, with splits by place, cv=KFold(5)"
_BY_WEIGHTS = (
    "its sample_weight",
    "it is one if the weights were chosen without these records, as the draws are without weights",
)
_BY_LIST = (
    "the list of splits that {} was given: the sum is a bound if the list was made without these "
    "records, and no split has a record twice"
)
_ONE_NOISE = (
    "that several fits may have the same noise, of one random_state: the difference of two then "
    "has none, and no sum is a bound; leave it None"
)
_LABELS = "the set of labels: {} reads it off y, and it is taken as public"
_CONSTANT = (
    "which labels {} has fitted: none that no record has, or all have, so one record decides and "
    "no sum is a bound; MultiOutputClassifier fits them all, if the model's classes are declared"
)
# Splitters that use row positions only, and meta-estimators that fit their parts once.
_BY_PLACE = (
    *("KFold", "RepeatedKFold", "ShuffleSplit", "LeaveOneOut", "LeavePOut", "PredefinedSplit"),
    "TimeSeriesSplit",
)
_FIT_ONCE = (
    *("ColumnTransformer", "FeatureUnion", "FixedThresholdClassifier", "Pipeline"),
    *("VotingClassifier", "VotingRegressor"),
)
# Meta-estimators whose classes are those of the models in them.
_PER_TARGET = "ClassifierChain", "MultiOutputClassifier"


class _Cost(NamedTuple):
    epsilon: float
    delta: float

    def for_copies(self, k: int) -> _Cost:
        """Return the cost for a record that occurs k times in the fit (group privacy)."""
        if k == 0:  # times an infinite cost
            return _Cost(0.0, 0.0)
        if self.delta == 0.0:
            return _Cost(k * self.epsilon, 0.0)
        factor = 1.0 + math.fsum(math.exp(min(j * self.epsilon, 700.0)) for j in range(1, k))
        return _Cost(k * self.epsilon, min(1.0, factor * self.delta))


def privacy_of(fitted: Any) -> PrivacyCard:
    """Return the card of an ensemble, a search or several models, adding the costs of all parts.

    Parameters
    ----------
    fitted : estimator, or list of estimators
        A fitted meta-estimator of scikit-learn that contains private models, a pipeline, or models
        that were fitted to the same records.

    Returns
    -------
    PrivacyCard
        Its epsilon is for a record used by all parts. Ranges shared by several models count once.
        ``not_counted`` names what else may have been learned from the records.

    Raises
    ------
    ValueError
        If it contains no fitted private model, if an element of a list contains no estimator (such
        as a :class:`~dpanalysis.Result`), or if the relations differ.

    Notes
    -----
    Costs add up by basic composition. In a bootstrap
    (:class:`~sklearn.ensemble.BaggingClassifier`) a record is charged, in each fit of a part, for
    as many copies as were drawn, by group privacy: the draws do not depend on the data. The cost is
    infinite after a warm start, since scikit-learn keeps the last draws only. A search
    makes (candidates times splits) fits, and :class:`~sklearn.feature_selection.RFE` one for each
    elimination. The cost is infinite where a searched estimator makes an unknown number of fits.
    The parameters of meta-estimators, such as ``bootstrap``, must be those of the fit still.
    Fits that other estimators made and discarded are not counted; ``not_counted`` says so.

    The sum is a bound if changing one record changes one record of each fit. Splits that depend on
    the labels, scikit-learn's default for classifiers, move other records as well: ``not_counted``
    says so of each estimator that divides the records by their labels, by their number, or by a
    given list of splits, whose origin is unknown.

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
    for each in fitted if isinstance(fitted, (list, tuple)) else ():
        if not any(True for _ in estimators_in([each])):
            raise ValueError(f"fitted must be a list of estimators, got {each!r} in it")
    inside = list(estimators_in([fitted]))
    models = [each for each in inside if _has_card(each)]
    if not models:
        raise ValueError(
            f"there is no fitted private model in {fitted!r}: fit it first, and let a search keep "
            "its model (refit=True)"
        )
    relations = {each.privacy_.relation for each in models}
    relations |= {fit.relation for each in inside for fit in _ranges(each)}
    if len(relations) > 1:
        raise ValueError(
            f"epsilons add up under one relation alone, got {', '.join(sorted(relations))}"
        )
    costs, learned, more = _costs(inside)
    ledger = [*(line for m in models for line in m.privacy_.ledger), *more]
    names = {type(each).__name__ for each in inside if not _has_card(each) and _is_fitted(each)}
    scored = {type(each).__name__ for each in inside if hasattr(each, "oob_score_")}
    beside = sorted(n for n in (names - {*_ADD_NOTHING}) | scored if not n.startswith("_"))
    # The note on other fits of the same search is dropped where their costs are added here.
    several = [each for each in inside if type(each).__module__.startswith(REPEATING)]
    added = {id(m) for m in estimators_in(several) if max(len(costs), len(models)) > 1}
    notes = [
        note
        for each in models
        for note in each.privacy_.not_counted
        if note != SEVERAL or id(each) not in added
    ]
    notes += [_BESIDE.format(", ".join(beside))] if beside else []
    relation = relations.pop()
    notes += [note for each in inside if (note := _divided(each, relation))]
    learned_from_seeds = {fit for each in inside for fit in _ranges(each) if fit.repeatable}
    notes += [_ONE_NOISE] if _may_share_noise(models) or len(learned_from_seeds) > 1 else []
    notes += [_CONSTANT.format(type(m).__name__) for m in inside if _skips_constant_labels(m)]
    not_covered = [RESEARCH_ONLY] * bool(learned_from_seeds)
    not_covered += [line for m in models for line in m.privacy_.not_covered]
    not_covered += [_LABELS.format(type(each).__name__) for each in inside if _reads_labels(each)]
    return PrivacyCard(
        epsilon=math.fsum(cost.epsilon for cost in [*costs, *learned]),
        delta=min(1.0, math.fsum(cost.delta for cost in costs)),
        relation=relation,
        ledger=tuple(ledger),
        model=repr(fitted),
        facts={"Sum": f"of {len(models)} models and what the ledger lists beside them"},
        covered=tuple(dict.fromkeys(line for m in models for line in m.privacy_.covered)),
        not_covered=tuple(dict.fromkeys(not_covered)),
        not_counted=tuple(dict.fromkeys(notes)),
    )


def _has_card(estimator: Any) -> bool:
    # Its own card, not that of a wrapped model, to which FrozenEstimator forwards attributes.
    return isinstance(vars(estimator).get("privacy_"), PrivacyCard)


def _may_share_noise(models: Iterable[Any]) -> bool:
    """Return whether two models share a random_state, or use generators, which clones copy."""
    given = []
    for each in models:
        if each.random_state is not None and not is_system(each.random_state):
            given.append(each.random_state)
        elif RESEARCH_ONLY in each.privacy_.not_covered and not any(
            fit.repeatable for fit in _learned(each)
        ):  # random_state has been changed since the fit
            given.append(each)
    numbers = {each for each in given if isinstance(each, (int, np.integer))}
    return len(given) > max(len(numbers), 1)


def _learned(model: Any) -> tuple[Any, ...]:
    """Return the fits that learned the ranges of a model; a loaded model has lost them."""
    return getattr(model, "_learned", ())


def _ranges(estimator: Any) -> tuple[LearnedRanges, ...]:
    """Return the fits that learned the ranges of a fitted PrivateBounds."""
    known = isinstance(estimator, PrivateBounds)
    columns = getattr(estimator, "columns_", None) if known else None
    return columns.learned if isinstance(columns, PublicColumns) else ()


def _divided(meta: Any, relation: str) -> str | None:
    """Return a note if one record can change which others a fit of ``meta`` is given, else None."""
    name, replaced = type(meta).__name__, relation == REPLACE_ONE
    if not _is_fitted(meta) or not any(map(_is_private, estimators_in([meta]))):
        return None
    if name == "OneVsOneClassifier":  # without a size, each pair's number of records is public
        parts = filter(_is_private, estimators_in([meta]))
        known = not replaced and all(each.size is not None for each in parts)
        return None if known else _DIVIDED.format(name, *_BY_PAIRS)
    if getattr(meta, "_sample_weight", None) is not None:  # Bagging draws by weight
        return _DIVIDED.format(name, *_BY_WEIGHTS)
    if hasattr(meta, "estimators_samples_"):
        whole = not meta.bootstrap and meta.max_samples in (None, 1.0)
        return None if replaced or whole else _DIVIDED.format(name, *_BY_NUMBER)
    cv = getattr(meta, "cv", "prefit")
    if isinstance(cv, str) or (cv is None and name.endswith("Chain")) or _is_private(meta):
        return None
    share = isinstance(cv, float)  # of a threshold's stratified split
    splits = check_cv(2 if share else cv, np.array([0, 1]), classifier=is_classifier(meta))
    if type(splits).__name__ == "_CVIterableWrapper":
        return _BY_LIST.format(name)
    if type(splits).__name__ not in _BY_PLACE:
        return _DIVIDED.format(name, *_BY_LABELS)
    return None if replaced else _DIVIDED.format(name, *_BY_NUMBER)


def _reads_labels(meta: Any) -> bool:
    """Return whether a meta-classifier of private models has encoded the labels that it saw."""
    if _is_private(meta) or not is_classifier(meta) or type(meta).__name__ in _PER_TARGET:
        return False
    return bool({"classes_", "label_binarizer_"} & set(vars(meta)))


def _skips_constant_labels(meta: Any) -> bool:
    """Return whether a multilabel fit skips the labels that are the same in all records."""
    return type(meta).__name__ == "OneVsRestClassifier" and bool(getattr(meta, "multilabel_", 0))


def _is_fitted(estimator: BaseEstimator) -> bool:
    return any(name.endswith("_") and not name.startswith("_") for name in vars(estimator))


def _costs(inside: list[BaseEstimator]) -> tuple[list[_Cost], list[_Cost], list[str]]:
    """Return the cost of each fit and learned range for a record used by all, and ledger lines."""
    costs: list[_Cost] = []
    ledger: list[str] = []
    bagged: set[int] = set()
    for each in inside:  # a meta-estimator comes before its parts
        if id(each) in bagged:
            continue
        # scikit-learn takes a NumPy bool as well, which is not True itself.
        if getattr(each, "bootstrap", False) and hasattr(each, "estimators_samples_"):
            costs.append(_bootstrap(each))
            bagged |= {id(part) for part in estimators_in(each.estimators_)}
            ledger.append("bootstrap: a record pays for as many copies of it as were drawn")
        lost = _costs_of_discarded(each)
        if lost:
            costs += lost
            ledger.append(f"{len(lost)} more fits of {type(each).__name__}, whose models were lost")
    alone = [each for each in inside if id(each) not in bagged]
    learned: set[LearnedRanges] = set()
    for each in alone:
        learned |= {*_learned(each), *_ranges(each)}
        if _has_card(each):
            own = each.privacy_.epsilon - math.fsum(fit.epsilon for fit in _learned(each))
            costs.append(_Cost(own, each.privacy_.delta))
    return costs, [_Cost(fit.epsilon, 0.0) for fit in learned], ledger


def _bootstrap(bag: Any) -> _Cost:
    """Return the largest cost of a record over all parts, given its number of copies in each."""
    if len(bag.estimators_samples_) < len(bag.estimators_):
        return _Cost(math.inf, 0.0)  # a warm start has forgotten the draws of the earlier parts
    paid: list[tuple[np.ndarray, list[_Cost]]] = []
    for drawn, part in zip(bag.estimators_samples_, bag.estimators_):
        costs, learned, _ = _costs(list(estimators_in([part])))
        paid.append((np.bincount(drawn), [*costs, *learned]))
    epsilon, delta = np.zeros((2, max(len(copies) for copies, _ in paid)))
    for copies, costs in paid:
        for cost in costs:
            prices = np.array([cost.for_copies(k) for k in range(copies.max() + 1)])
            epsilon[: len(copies)] += prices[copies, 0]
            delta[: len(copies)] += prices[copies, 1]
    return _Cost(float(epsilon.max()), float(delta.max()))


def _costs_of_discarded(meta: Any) -> list[_Cost]:
    """Return the costs of fits whose models a search or an elimination has discarded."""
    if hasattr(meta, "cv_results_") and hasattr(meta, "n_splits_"):

        def tried(estimator: Any, parameters: dict[str, Any]) -> _Cost:
            return _cost_of_fit(clone(estimator).set_params(**parameters))

        bases, best = [meta.estimator], getattr(meta, "best_estimator_", None)
        if best is not None and tried(meta.estimator, meta.best_params_) != _cost_of_fit(best):
            bases.append(best)  # the parameters of the other have been changed since the fit
        fits = ([tried(base, p) for base in bases] for p in meta.cv_results_["params"])
        return [_Cost(*map(max, zip(*costs))) for costs in fits for _ in range(meta.n_splits_)]
    if hasattr(meta, "ranking_") and hasattr(meta, "estimator_"):
        return [_cost_of_fit(meta.estimator_)] * (int(np.max(meta.ranking_)) - 1)
    return []


def _cost_of_fit(estimator: Any) -> _Cost:
    """Return the cost of a fit from its parameters; infinite if the number of fits is unknown."""
    if isinstance(estimator, PrivateBounds) or _is_private(estimator):
        return _Cost(float(estimator.epsilon), float(getattr(estimator, "delta", 0.0)))
    parts = [_cost_of_fit(each) for each in _parts(estimator.get_params(deep=False).values())]
    epsilon, delta = (math.fsum(numbers) for numbers in zip(_Cost(0.0, 0.0), *parts))
    name = type(estimator).__name__
    if epsilon == 0.0 or name == "FrozenEstimator":
        return _Cost(0.0, 0.0)
    times: float = 1 if name in _FIT_ONCE else math.inf
    if name.startswith("Bagging") and not estimator.bootstrap:
        times = estimator.n_estimators
    return _Cost(times * epsilon, min(1.0, times * delta) if delta else 0.0)


def _parts(values: Iterable[Any]) -> Iterator[BaseEstimator]:
    """Yield the estimators among parameter values and in lists of them."""
    for value in values:
        if isinstance(value, BaseEstimator):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _parts(value)


def _is_private(estimator: Any) -> bool:
    return hasattr(type(estimator), "_privacy_of")
