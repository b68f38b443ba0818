"""What the private linear classifiers share: they bound, fit through the oracle, and report."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from .._validation import check_number, refuse_mask
from ..preprocessing.columns import columns_of
from ..privacy.facts import check_size
from ..privacy.queries import TiltedMinimum
from ..privacy.relations import REPLACE_ONE, Budget, check_relation
from ..problems.empirical import EmpiricalRisk
from ..problems.rows.width import has_read_width, refuse_read_width
from .card import PrivacyCard
from .design import design_of, in_file
from .runs import LONG, TRIED, Run, run
from .upstream import Upstream, upstream_of

__all__ = ["PrivacyWarning", "PrivateLinearClassifier"]


class PrivacyWarning(UserWarning):
    """Something that costs privacy, or accuracy for privacy's sake."""


_IN_MEMORY = 1 << 24  # bytes of dense data up to which their bounded rows are in memory, too
_ENTRIES = 1 << 18  # of a block of rows on its way to a file

_SEARCHED = (
    "this fit is one of several on the same rows (GridSearchCV, cross_val_score and the like): "
    "each costs epsilon again, and scores on held-out rows are exact, so that neither the scores "
    "nor the parameters chosen by them are covered by privacy_; take C='auto', which is chosen "
    "without looking, C='private', which pays for looking, or choose on public data"
)
_STEPS = (
    "the steps {} before the estimator may learn from the private records, which privacy_ does not "
    "cover: declare what they learn on public data, by a PublicEncoder, or leave them out"
)
_NO_BOUNDS = (
    "no public bounds were declared, so every feature is cut to the range from -1 to 1: put a "
    "PublicEncoder before the estimator, or pass bounds=(low, high)"
)


class PrivateLinearClassifier(ClassifierMixin, BaseEstimator):
    """A linear classifier by objective perturbation; see its subclasses.

    Parameters are those of :class:`LogisticRegression`.
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 0.0,
        *,
        C: float | str = "auto",
        fit_intercept: bool = True,
        bounds: Any = None,
        classes: Any = None,
        relation: str = "replace_one",
        size: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.C = C
        self.fit_intercept = fit_intercept
        self.bounds = bounds
        self.classes = classes
        self.relation = relation
        self.size = size
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> PrivateLinearClassifier:
        """Fit the model; this spends the whole budget.

        Parameters
        ----------
        X : array, CSR matrix or DataFrame of shape (n, d)
            Numbers, such as :class:`~dpanalysis.preprocessing.PublicEncoder` makes.
        y : array_like of shape (n,)
            Labels: numbers or words.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            Before anything is spent, if an argument is outside its range, an entry is NaN, there
            is one class only, a label is not one of ``classes``, X is what ``load_libsvm`` gave
            without ``n_features``, or bounds were learned under another relation.

        Warns
        -----
        PrivacyWarning
            If no bounds are declared, the fit is one of a search, or steps of a pipeline before
            it may learn from the records.

        Notes
        -----
        *What epsilon is of.* The proof of a run takes its rows and bounds as given. What made them
        of the records is a release of its own, whose cost is added if it is a
        :class:`~dpanalysis.preprocessing.PrivateBounds` that can be traced: by the pipelines in
        whose fit this one is called, by the rows, or by ``bounds``. Of anything else the card says
        that it is not counted.
        """
        given, (X, y) = X, self._checked(X, y)
        n, d = X.shape
        budget = self._budget(n)
        classes, labels = self._classes(y)
        sparse = not isinstance(X, np.ndarray)
        design, said = design_of(
            self.bounds, columns_of(given), d, bool(self.fit_intercept), sparse
        )
        upstream = upstream_of(given, self.bounds, design, budget.relation)
        if upstream.repeated:
            warnings.warn(_SEARCHED, PrivacyWarning, stacklevel=2)
        if upstream.steps:
            warnings.warn(_STEPS.format(upstream.steps), PrivacyWarning, stacklevel=2)
        if said.startswith("No bounds"):
            warnings.warn(_NO_BOUNDS, PrivacyWarning, stacklevel=2)
        if sparse or self._nominal(n) * d * X.itemsize <= _IN_MEMORY:
            self._fit_design(design.rows(X), labels, classes, design, budget, said, upstream)
        else:
            step = max(1, _ENTRIES // d)
            parts = (X[lo : lo + step] for lo in range(0, n, step))
            with in_file(map(design.rows, parts)) as D:
                self._fit_design(D, labels, classes, design, budget, said, upstream)
        return self

    def _fit_design(
        self,
        D: Any,
        labels: np.ndarray,
        classes: np.ndarray,
        design: Any,
        budget: Budget,
        said: str,
        upstream: Upstream,
    ) -> None:
        """Fit to the rows of the design, whose labels are 0..K-1."""
        rng = self._rng()
        results = self._solve(D, labels, len(classes), design.row_bound, budget, rng)
        width = D.shape[1]
        w = np.concatenate([result.w.reshape(-1, width) for result in results])
        self.coef_, self.intercept_ = design.weights(w)
        self.classes_ = classes
        self.privacy_ = self._card(results, D.shape, budget, said, upstream)

    # What subclasses say

    @abstractmethod
    def _solve(
        self, D: Any, labels: np.ndarray, K: int, row_bound: Any, budget: Budget, rng: Any
    ) -> list[Run]:
        """Return the runs, whose weights, one after the other, are the rows of ``coef_``."""

    # Checks

    def _checked(self, X: Any, y: Any) -> tuple[Any, np.ndarray]:
        refuse_mask("X", X)
        refuse_mask("y", y)
        if has_read_width(X):
            refuse_read_width()
        try:
            X, y = validate_data(self, X, y, accept_sparse="csr", dtype=[np.float64, np.float32])
        except ValueError as error:
            if "could not convert string to float" not in str(error):
                raise
            raise ValueError(
                f"X must hold numbers ({error}): put a PublicEncoder with the columns' domains "
                "before the estimator"
            ) from None
        check_classification_targets(y)
        return X, y

    def _nominal(self, n: int) -> int:
        """Return the public size that averages are divided by, checked against the n rows."""
        return n if self.size is None else check_size(self.size, n)

    def _budget(self, n: int) -> Budget:
        n = self._nominal(n)
        epsilon = check_number("epsilon", self.epsilon, low=0.0, low_open=True)
        delta = check_number("delta", self.delta, low=0.0, high=1.0, high_open=True)
        if n > 1 and delta >= 1.0 / n:
            raise ValueError(
                f"delta must be below 1/n = {1.0 / n:.3g}, got {delta!r}: releasing one record in "
                "the clear would satisfy it"
            )
        if self.C == "private" and delta > 0.0:
            raise ValueError(
                f"C='private' takes a pure budget, delta = 0, got {delta!r}: the best of several "
                "runs with a delta of their own has no such guarantee here"
            )
        if self.C not in ("auto", "private"):
            check_number("C", self.C, low=0.0, low_open=True)
        return Budget(epsilon, delta, check_relation(self.relation))

    def _classes(self, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the classes, sorted, and the number of each label's class."""
        if self.classes is None:
            classes, labels = np.unique(y, return_inverse=True)
        else:
            classes = np.unique(np.asarray(self.classes))
            if classes.dtype.kind != y.dtype.kind and "U" in (classes.dtype.kind, y.dtype.kind):
                y, classes = y.astype(str), classes.astype(str)
            labels = np.minimum(np.searchsorted(classes, y), len(classes) - 1)
            unknown = np.flatnonzero(classes[labels] != y)
            if unknown.size:
                i = int(unknown[0])
                raise ValueError(
                    f"y must hold labels in classes = {classes.tolist()!r}, got "
                    f"{y[i : i + 1].tolist()[0]!r} in row {i}"
                )
        if len(classes) < 2:
            raise ValueError(
                f"y must have at least two classes, got one class only, {classes.tolist()!r}: "
                "declare classes=[...] where one of them may be absent"
            )
        return classes, labels

    def _rng(self) -> Any:
        state = self.random_state
        if state is None:
            return "os"
        if isinstance(state, np.random.RandomState):
            return int(state.randint(2**31 - 1))
        return state

    # Runs

    def _run(
        self, problem: EmpiricalRisk, budget: Budget, rng: Any, may_descend: bool = False
    ) -> Run:
        """Return one run on a problem without a penalty."""
        return run(problem, budget, rng, self.C, may_descend)

    # After the fit

    def decision_function(self, X: Any) -> np.ndarray:
        """Return the scores, (n,) for two classes and (n, K) for more.

        Raises
        ------
        ValueError
            If the columns are not those of the fit, or an entry is not finite.
        """
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", reset=False)
        scores = np.asarray(X @ self.coef_.T) + self.intercept_
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> np.ndarray:
        """Return the likeliest class of every row, shape (n,)."""
        scores = self.decision_function(X)
        best = (scores > 0.0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        return self.classes_[best]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.non_deterministic = self.random_state is None
        return tags

    def _card(
        self,
        results: list[Run],
        shape: tuple[int, int],
        budget: Budget,
        said: str,
        upstream: Upstream,
    ) -> PrivacyCard:
        """Return what was promised and what it rests on."""
        records = f"{shape[0]} records" if self.size is None else f"nominal size {self.size}"
        facts = {
            "Sizes": f"{records}, {shape[1]} weights for each score, intercept included",
            **_said_of(results[0].plan, self.C, budget.delta),
            "Bounds": said,
        }
        covered = ["coef_ and intercept_, and every prediction made from them"]
        exposed = [
            f"{self._said_of_size(budget)} and the features' names",
            "the set of labels: "
            + (
                "read off y and taken as public" if self.classes is None else "declared by the user"
            ),
            "domains, bounds, classes or settings chosen by looking at these records, and whatever "
            "was learned from them before they reached the model or its encoder",
            "scores on private rows, such as score(X, y)",
            "the time that the fit takes, and errors about bad cells or labels",
            "other fits on the same records, of models or of bounds: their epsilons add up",
        ]
        if self.random_state is not None:
            exposed.insert(
                0,
                "RESEARCH ONLY: random_state was given, and who knows it can undo the noise; leave "
                "it None for a release",
            )
        ledger = tuple(repr(event) for result in results for event in result.events)
        paid = [each.epsilon for each in upstream.learned]
        ledger += tuple(f"bounds learnt from the data: epsilon {each:g}" for each in paid)
        if paid:
            covered.append("the bounds that PrivateBounds learned")
        epsilon = sum(result.epsilon for result in results) + sum(paid)
        delta = sum(result.delta for result in results)
        return PrivacyCard(
            epsilon=float(epsilon),
            delta=float(delta),
            relation=budget.relation,
            ledger=ledger,
            model=repr(self),
            facts=facts,
            covered=tuple(covered),
            not_covered=tuple(exposed),
            not_counted=upstream.not_counted,
        )

    def _said_of_size(self, budget: Budget) -> str:
        """Return what of the number of records is public."""
        if self.size is None:
            alone = "" if budget.relation == REPLACE_ONE else ", which is the nominal size,"
            return f"the number of records{alone}"
        if budget.relation == REPLACE_ONE:
            return "the number of records, the nominal size"
        return "the nominal size, but not the number of records,"


def _said_of(plan: Any, C: float | str, delta: float) -> dict[str, str]:
    """Return the part of the card about a method."""
    if not isinstance(plan, TiltedMinimum):
        return {
            "Method": "full-batch gradient descent with momentum, gradients clipped to length 1",
            "Noise": "Gaussian noise on every gradient",
            "Why gradients": "by the public sizes and bounds, the noise of objective perturbation "
            f"would have a length of {LONG:g} or more, from where clipped gradients are better",
        }
    noise = {
        "blocks": "Laplace noise in each group of columns, and noise in the maximum norm for the "
        "numbers",
        "spherical": "noise of density exp(-||b||/s) in the L2 norm",
        "gaussian": "Gaussian noise",
    }[plan.law]
    by = {
        "auto": ", by the default rule",
        "private": f", the best of {len(TRIED)} by a private score of some runs, all charged",
    }.get(str(C), ", as given")
    facts = {
        "Method": "objective perturbation: the exact minimiser of the penalised loss with a "
        "random linear term",
        "Noise": f"{noise}; of the laws that the bounds allow, the one of the least expected "
        "square",
        "Penalty": f"L2 of strength {plan.ridge:.3g}, on the intercept too{by}",
    }
    if delta > 0.0:
        facts["Why not gradients"] = (
            "full-batch descent and DP-SGD pay for every step; one noisy objective pays once, and "
            "its noise is short by the public sizes and bounds"
        )
    return facts
