"""Base class of the private classifiers and regressors: checks, bounded rows, past fits, the card.

An estimator clips rows to public bounds, fits through the oracle and gives the guarantee on a card.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from .._validation import check_number, check_positive, refuse_mask, warn_caller
from ..preprocessing.columns import (
    LearnedRanges,
    all_or_nothing,
    columns_of,
    numbers_only,
    row_name,
)
from ..preprocessing.encoder import is_missing, number_of
from ..preprocessing.private_bounds import source_of
from ..privacy.accounting.relations import REPLACE_ONE, Budget, check_relation
from ..privacy.budget import seed_state
from ..privacy.facts import check_size
from ..privacy.noise import is_system
from ..problems.rows.checks import has_read_width, refuse_read_width
from . import fits
from .card import RESEARCH_ONLY, PrivacyCard
from .design import (
    LEARNT_BOUNDS,
    NO_BOUNDS,
    Upstream,
    columns_before,
    declared_classes,
    design_of,
    in_file,
    upstream_of,
)
from .ensembles import privacy_of
from .fits import Spent, sketch
from .runs import Run


class PrivacyWarning(UserWarning):
    """Warning about a loss of privacy, or of accuracy because of privacy."""


_IN_MEMORY = 1 << 24  # bytes of dense data up to which the bounded rows are kept in memory as well
_ENTRIES = 1 << 18  # of a block of rows that is written to a file

_SEARCHED = (
    "this fit is one of several on the same rows (GridSearchCV, cross_val_score, VotingClassifier "
    "and the like): each costs epsilon again, and scores on held-out rows, if any, are exact, so "
    "that neither the scores nor the parameters chosen by them are covered by privacy_; to choose "
    "parameters, take {}, or public data"
)
_AGAIN = (
    "the same rows again: with this one, {} fits of this process used them or some of them, at "
    "{} in sum, which is more than the card of each states; dpanalysis.linear_model.privacy_of "
    "adds the costs of several models"
)
_ONE_NOISE = (
    "; two of them had the same random_state, and so perhaps the same noise: it cancels in their "
    "difference, so that no sum is a bound; leave random_state None"
)
_STEPS = (
    "the steps {} before the estimator may learn from the private records, which privacy_ does not "
    "cover: declare what they learn on public data, by a PublicEncoder, or leave them out"
)
_CUT = (
    "no public bounds were declared, so every feature is clipped to the range from -1 to 1: put a "
    "PublicEncoder right before the estimator, or pass bounds=(low, high). Those of an encoder are "
    "lost in a ColumnTransformer, in slices and copies of sparse rows, and in a DataFrame made by "
    "hand or by pd.concat, join or merge, "
    "and so is what a PrivateBounds paid: pass bounds=encoder.columns_ of one for all columns"
)

_DTYPES = [np.float64, np.float32]


_NO_WEIGHTS = (
    "sample_weight is refused: a record of weight v moves the answer v times as far, so the noise "
    "would need a public bound on all weights, and weights computed from the records are not public"
)


class PrivateLinearModel(BaseEstimator, ABC):
    """Base class of the private linear estimators: all that does not depend on the kind of target.

    A subclass checks its parameters and targets (:meth:`_check_parameters`, :meth:`_targets`),
    runs the methods (:meth:`_solve`), stores their results (:meth:`_keep`), and describes them on
    the card (:meth:`_method_facts`, :meth:`_about_targets`).
    """

    _numeric = False  # whether targets are numbers
    _chosen_privately: str  # alternative to a search, for the warning
    _instead_of_weights = ""
    _privacy_of = staticmethod(privacy_of)  # for a choice among outputs that hold such models

    epsilon: float
    delta: float
    fit_intercept: bool
    bounds: Any
    relation: str
    size: int | None
    random_state: Any

    def fit(self, X: Any, y: Any, **unknown: Any) -> Self:
        """Fit the model, spending the whole budget.

        Parameters
        ----------
        X : array, CSR matrix or DataFrame of shape (n, d)
            Numbers, such as the output of :class:`~dpanalysis.preprocessing.PublicEncoder`.
        y : array_like of shape (n,)
            Numbers; for a classifier, labels, which may be strings.
        **unknown
            Rejected; for ``sample_weight`` see Notes.

        Raises
        ------
        ValueError, TypeError
            Before any budget is spent, if an argument is outside its range, an entry is NaN, X was
            read by ``load_libsvm`` without ``n_features``, bounds were learned under another
            relation, or ``sample_weight`` is given. For a classifier, also if there is only one
            class, a label is not in ``classes``, loss and method do not fit together, or
            ``class_weight`` is not a public weight.

        Warns
        -----
        PrivacyWarning
            If no bounds are declared, the fit is part of a search, earlier steps of a pipeline
            may learn from the records, this process has fitted the same rows before (the warning
            states the total cost of these fits, or that one random_state voids it), or there is
            little data for epsilon.

        Notes
        -----
        *What epsilon covers.* The proof of a run takes its rows and bounds as given. If they were
        computed from the records, that computation is a release too. Its cost is added if it is a
        :class:`~dpanalysis.preprocessing.PrivateBounds` that can be traced: through the pipelines
        in whose fit this one is called, through the rows, or through ``bounds``. The card lists
        anything else as not counted.

        *No sample_weight.* A record of weight v moves the answer v times as far, so the noise needs
        a public bound on all weights. Weights computed from the records, as most are, are no more
        public than the records, and a separate weight for each record has no bound of its own.
        ``class_weight`` of a classifier is a dict of public weights instead, one for each class.

        *Little data.* The number of rows, the columns, epsilon and the bounds determine, before the
        fit, the accuracy to expect on the easiest targets, those that follow a linear rule exactly;
        the card states it. A warning is issued if less than half of the possible gain over a
        constant prediction is left. Neither is done with a method object.

        *Repeated fits.* A process remembers keyed digests of the last 256 tables that it fitted.
        It recognizes the same rows in another order, with other targets, with some columns left
        out, or a part of them that is at least a fifth of the larger table (a tenth only at times,
        since samples of the rows are compared). It does not detect fits in other processes, rows
        that were changed in between, or, unless scikit-learn made the split, parts of a table whose
        rows repeat, such as rows of a few categories.
        """
        if unknown.pop("sample_weight", None) is not None:
            raise TypeError(_NO_WEIGHTS + self._instead_of_weights)
        if unknown:
            raise TypeError(f"fit() got an unexpected keyword argument {next(iter(unknown))!r}")
        if not isinstance(self.fit_intercept, (bool, np.bool_)):
            raise TypeError(f"fit_intercept must be True or False, got {self.fit_intercept!r}")
        with all_or_nothing(self):
            given, (X, y) = X, self._checked(X, y)
            n, d = X.shape
            budget, rng = self._budget(n), source_of(self.random_state)
            attached = columns_of(given) or columns_before(given)
            known, targets = self._targets(y, declared_classes(self.bounds, attached))
            sparse = not isinstance(X, np.ndarray)
            design, bounds_note = design_of(
                self.bounds, attached, d, bool(self.fit_intercept), sparse
            )
            upstream = upstream_of(
                given, self.bounds, design, budget.relation, self._learned_targets()
            )
            table = sketch(X)
            past = fits.PROCESS.on(table, upstream.repeated)
            seeds, learned = {seed_state(rng)} - {None}, set(upstream.learned)
            cost = Spent(table, 1, budget.limit, budget.delta, learned, seeds)
            past.add(cost)
            if upstream.repeated:
                text = _SEARCHED.format(self._chosen_privately)
                warn_caller(text, PrivacyWarning)
            if past.fits > 1:
                text = _AGAIN.format(past.fits, past) + _ONE_NOISE * past.same_seed
                warn_caller(text, PrivacyWarning)
            if upstream.steps:
                warn_caller(_STEPS.format(upstream.steps), PrivacyWarning)
            if bounds_note == NO_BOUNDS:
                warn_caller(_CUT, PrivacyWarning)
            if sparse or self._nominal(n) * d * X.itemsize <= _IN_MEMORY:
                self._fit_design(
                    design.rows(X), targets, known, design, budget, rng, bounds_note, upstream
                )
            else:
                step = max(1, _ENTRIES // d)
                parts = (X[lo : lo + step] for lo in range(0, n, step))
                with in_file(map(design.rows, parts)) as D:
                    self._fit_design(D, targets, known, design, budget, rng, bounds_note, upstream)
            fits.PROCESS.spend(cost)
        return self

    def _fit_design(
        self,
        D: Any,
        targets: np.ndarray,
        known: Any,
        design: Any,
        budget: Budget,
        rng: Any,
        bounds_note: str,
        upstream: Upstream,
    ) -> None:
        """Fit to the design rows; ``known`` holds the public facts about the targets."""
        runs = self._solve(D, targets, known, design.row_bound, budget, rng)
        w = np.concatenate([each.w.reshape(-1, D.shape[1]) for each in runs])
        coef, intercept = design.weights(w)
        self._keep(coef, intercept, known)
        self.privacy_ = self._card(runs, D.shape, budget, bounds_note, upstream)
        self._learned = upstream.learned

    # Hooks of the subclasses

    @abstractmethod
    def _check_parameters(self, budget: Budget) -> None:
        """Raise if a parameter of the subclass is invalid."""

    @abstractmethod
    def _targets(self, y: np.ndarray, classes: tuple[Any, ...] = ()) -> tuple[Any, np.ndarray]:
        """Return the public facts about the targets, and the targets encoded for the runs.

        ``classes`` are those declared beside the columns' ranges, if any.
        """

    @abstractmethod
    def _solve(
        self, D: Any, targets: np.ndarray, known: Any, row_bound: Any, budget: Budget, rng: Any
    ) -> list[Run]:
        """Return the runs; their weights, concatenated, are the rows of the coefficients."""

    @abstractmethod
    def _keep(self, coef: np.ndarray, intercept: np.ndarray, known: Any) -> None:
        """Set the fitted attributes from coefficients (k, d) and intercepts (k,)."""

    @abstractmethod
    def _method_facts(self, runs: list[Run], n: int, delta: float) -> dict[str, str]:
        """Return the entries of the card about loss, method and penalty."""

    @abstractmethod
    def _about_targets(self, runs: list[Run]) -> tuple[dict[str, str], list[str], list[str]]:
        """Return facts about the targets, and the first and last lines of "Not covered"."""

    def _learned_targets(self) -> tuple[LearnedRanges, ...]:
        """Return the private fits that learned the targets' range."""
        return ()

    # Checks

    def _checked(self, X: Any, y: Any) -> tuple[Any, np.ndarray]:
        refuse_mask("y", y)
        (_refuse_no_numbers if self._numeric else _refuse_missing)(y)
        if self._numeric and isinstance(y, (list, tuple)) and np.asarray(y).dtype.kind == "U":
            y = np.array(y, dtype=object)  # one text would make texts of all numbers
        if has_read_width(X):
            refuse_read_width()
        # The precision of a table's columns may be that of one record, such as a text among them.
        dtype = _DTYPES if isinstance(X, np.ndarray) or sp.issparse(X) else np.float64
        with numbers_only(X):
            return validate_data(
                self, X, y, accept_sparse="csr", dtype=dtype, y_numeric=self._numeric
            )

    def _nominal(self, n: int) -> int:
        """Return the public size by which averages are divided, checked against the n rows."""
        return n if self.size is None else check_size(self.size, n)

    def _budget(self, n: int) -> Budget:
        n = self._nominal(n)
        epsilon = check_positive("epsilon", self.epsilon)
        delta = check_number("delta", self.delta, low=0.0, high=1.0, high_open=True)
        if n > 1 and delta >= 1.0 / n:
            raise ValueError(
                f"delta must be below 1/n = {1.0 / n:.3g}, got {delta!r}: releasing one record in "
                "the clear would satisfy it"
            )
        budget = Budget(epsilon, delta, check_relation(self.relation))
        self._check_parameters(budget)
        return budget

    # After the fit

    def _scores(self, X: Any) -> np.ndarray:
        """Return the linear predictions, shape (n, k), or (n,) if the coefficients are (d,)."""
        check_is_fitted(self)
        with numbers_only(X):
            X = validate_data(self, X, accept_sparse="csr", dtype=_DTYPES, reset=False)
        return np.asarray(X @ self.coef_.T) + self.intercept_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.non_deterministic = self.random_state is None
        return tags

    def _card(
        self,
        runs: list[Run],
        shape: tuple[int, int],
        budget: Budget,
        bounds_note: str,
        upstream: Upstream,
    ) -> PrivacyCard:
        """Return the privacy card: the guarantee and its assumptions."""
        records = f"{shape[0]} records" if self.size is None else f"nominal size {self.size}"
        about, first, last = self._about_targets(runs)
        paid = [each.epsilon for each in upstream.learned]
        if paid and bounds_note != LEARNT_BOUNDS:
            bounds_note += " PrivateBounds has learned ranges before, and they were paid for."
        each = "" if self._numeric else " for each score"
        facts = {
            "Sizes": f"{records}, {shape[1]} weights{each}, intercept included",
            **self._method_facts(runs, shape[0], budget.delta),
            "Bounds": bounds_note,
            **about,
        }
        covered = ["coef_ and intercept_, and every prediction made from them"]
        not_covered = [
            f"{self._public_size(budget, upstream)} and the features' names",
            *first,
            f"{'other ' if paid else ''}domains, bounds, classes or settings chosen by looking at "
            "these records, and whatever was learned from them before they reached the model or "
            "its encoder",
            "scores on private rows, such as score(X, y)",
            "the time that the fit takes, errors about bad cells or labels, and the warning about "
            "earlier fits on the same rows",
            "other fits on the same records, of models or of bounds: their epsilons add up",
            "persons with several records: epsilon is that of one, k times as large for k of them",
            *last,
        ]
        own = self.random_state is not None and not is_system(self.random_state)
        if own or any(each.repeatable for each in upstream.learned):
            not_covered.insert(0, RESEARCH_ONLY)
        ledger = tuple(line for each in runs for line in each.ledger)
        ledger += tuple(f"bounds learned from the data: epsilon {each:g}" for each in paid)
        if paid:
            covered.append("the bounds that PrivateBounds learned")
        return PrivacyCard(
            epsilon=float(sum(each.epsilon for each in runs) + sum(paid)),
            delta=float(sum(each.delta for each in runs)),
            relation=budget.relation,
            ledger=ledger,
            model=repr(self),
            facts=facts,
            covered=tuple(covered),
            not_covered=tuple(not_covered),
            not_counted=upstream.not_counted,
        )

    def _public_size(self, budget: Budget, upstream: Upstream) -> str:
        """Return the card's phrase about what is public of the number of records."""
        if self.size is None:
            alone = "" if budget.relation == REPLACE_ONE else ", which is the nominal size,"
            return f"the number of records{alone}"
        if budget.relation == REPLACE_ONE:
            return "the number of records, the nominal size"
        if any(each.size is None for each in upstream.learned):
            return "the nominal size, the number of records, which the bounds were learned by,"
        return "the nominal size, but not the number of records,"


def _refuse_no_numbers(y: Any) -> None:
    """Raise ValueError for a target that is not a number, such as a date.

    scikit-learn converts some of these to floats, and its errors do not name the argument.
    """
    kind = np.asarray(y).dtype.kind
    if kind in "biufc" or not isinstance(y, Iterable):
        _refuse_nan(y)
        return
    for i, value in enumerate(y):
        try:
            if kind in "OU" and math.isfinite(number_of(value)):
                continue
        except (TypeError, ValueError, OverflowError):
            pass
        raise ValueError(f"y must hold a number in every row, got {value!r} in {row_name(y, i)}")


def _refuse_nan(y: Any) -> None:
    """Raise ValueError naming the first number that is not finite."""
    array = np.asarray(y)
    if array.dtype.kind == "f" and not (kept := np.isfinite(array)).all():
        i = tuple(np.argwhere(~kept)[0])
        where = row_name(y, i[0])
        raise ValueError(f"y must hold a number in every row, got {array[i]} in {where}")


def _refuse_missing(y: Any) -> None:
    """Raise for a missing label, which would become a class of its own, and for mixed labels."""
    dtype = getattr(y, "dtype", np.dtype(object))
    numbers = isinstance(dtype, np.dtype) and dtype.kind not in "OMm"  # checked by scikit-learn
    if numbers or not isinstance(y, Iterable):
        _refuse_nan(y)
        return
    texts = set()
    for i, label in enumerate(y):
        texts.add(isinstance(label, str))
        if not isinstance(label, str) and np.ndim(label) == 0 and is_missing(label):
            raise ValueError(f"y must hold a label in every row, got {label!r} in {row_name(y, i)}")
        if len(texts) > 1:  # one text would make texts of all classes
            raise TypeError(
                f"y must hold numbers alone, or words alone, got {label!r} in {row_name(y, i)}"
            )
