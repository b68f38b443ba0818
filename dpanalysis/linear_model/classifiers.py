"""Private linear classifiers: one for any loss and method, and two with a fixed loss.

The code shared with the regressors is in :mod:`.estimator`.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets

from .._validation import check_number, check_positive, warn_caller
from ..losses import Hinge, HuberizedHinge, Logistic, Loss, check_loss
from ..methods.base import Method
from ..preprocessing.encoder import PublicEncoder, is_missing, number_of, text_of
from ..preprocessing.private_bounds import source_of
from ..privacy import mechanisms
from ..privacy.accounting.relations import Budget
from ..problems import ERM, Softmax
from ..problems.base import Problem
from ..regularizers import L2
from .design import Upstream, added_under, check_numbering, design_of, in_file
from .estimator import PrivacyWarning, PrivateLinearModel
from .runs import ExpectedAccuracy, Run, expected_accuracy, rule_facts, run
from .weights import ClassWeighted, weights_of

#: Losses of this package, whose bounds are proved rather than stated by a user.
OUR_LOSSES = (Hinge, HuberizedHinge, Logistic)
#: Methods selected by name; see :class:`PrivateClassifier`.
_METHODS = ("auto", "objective_perturbation")
_LEAST_C = 1e-300  # the penalty 1/C of a smaller one may be infinite


class PrivateClassifier(ClassifierMixin, PrivateLinearModel):
    r"""Private linear classifier with a loss and a method of choice.

    :class:`LogisticRegression` and :class:`LinearSVC` are this class with a fixed loss.

    Parameters
    ----------
    loss : Loss, optional
        A loss for labels -1 and +1, from :mod:`dpanalysis.losses` or an instance of a subclass of
        :class:`~dpanalysis.losses.Loss`; ``Logistic()`` by default.
    method : Method, "auto" or "objective_perturbation"
        A method from :mod:`dpanalysis.methods` or an instance of a subclass of
        :class:`~dpanalysis.methods.Method`; the cost of the fit is that of its ledger.
        ``"objective_perturbation"``, for convex smooth losses, uses the penalty given by ``C``.
        ``"auto"`` is the same, except that the logistic loss with two classes is fitted by noisy
        gradient descent where delta > 0 and the noise is large.
    epsilon, delta, fit_intercept, bounds, classes, relation, size, random_state
        As in :class:`LogisticRegression`.
    C : float, "auto" or "private"
        As in :class:`LogisticRegression`. With a method object, ``"auto"`` adds no penalty, a
        number adds :math:`\|w\|^2/(2Cn)` to the mean loss, and ``"private"`` is rejected.

    Attributes
    ----------
    classes_, coef_, intercept_, privacy_, n_features_in_, feature_names_in_
        As in :class:`LogisticRegression`.

    Notes
    -----
    The method starts at zero and runs on scaled rows; its step sizes and clip norms refer to these.
    Every column has size 1 (given bounds on norms, a row has length at most 4), and a constant
    column is added for the intercept.

    With more than two classes, the logistic loss gives one softmax regression. Any other loss gives
    one one-versus-rest run per class, each with an equal share of the budget.

    The method's assumptions are checked against public facts before any budget is spent, such as
    the smooth loss that objective perturbation needs and the relation that its sampling needs.

    Examples
    --------
    >>> import numpy as np
    >>> import dpanalysis as dpa
    >>> from dpanalysis.linear_model import PrivateClassifier
    >>> X = np.random.default_rng(0).uniform(0, 10, size=(5000, 3))
    >>> y = np.where(X[:, 0] > X[:, 1], "up", "down")
    >>> method = dpa.methods.SGD(0.5, 100, sampling=dpa.Full(), clipping=dpa.clipping.Flat(1.0))
    >>> model = PrivateClassifier(
    ...     dpa.losses.Hinge(), method, epsilon=1.0, delta=1e-6, bounds=(0, 10), random_state=0
    ... )
    >>> model.fit(X, y).predict([[9.0, 1.0, 5.0], [1.0, 9.0, 5.0]]).tolist()
    ['up', 'down']
    >>> model.privacy_.epsilon
    1.0
    """

    _chosen_privately = (
        "C='auto', which is chosen without looking, C='private', which pays for looking"
    )
    _instead_of_weights = "; class_weight={...} takes public weights of the classes"

    def __init__(
        self,
        loss: Loss | None = None,
        method: str | Method = "auto",
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
        self.loss = loss
        self.method = method
        self.epsilon = epsilon
        self.delta = delta
        self.C = C
        self.fit_intercept = fit_intercept
        self.bounds = bounds
        self.classes = classes
        self.relation = relation
        self.size = size
        self.random_state = random_state

    def _solve(
        self, D: Any, targets: np.ndarray, known: Any, row_bound: Any, budget: Budget, rng: Any
    ) -> list[Run]:
        """Return the runs; their weights, concatenated, are the rows of ``coef_``."""
        loss, method = self._loss_and_method()
        class_weights = self._weights(known)
        K = len(class_weights)
        logistic, scores = type(loss) is Logistic, 1 if K == 2 else K
        penalty = self._penalty(D.shape[0])
        ones = [1] if K == 2 else range(K)  # the classes that are +1
        parts = [_weighted(loss, class_weights, k) for k in ones]
        problems: Iterable[Problem]
        if logistic and K > 2:
            scores = 1
            problems = [Softmax(D, targets, K, penalty, row_bound, dtype="float64", size=self.size)]
        else:
            problems = (
                ERM(D, np.where(targets == k, 1.0, -1.0), each, penalty, row_bound, size=self.size)
                for k, (each, _) in zip(ones, parts)
            )
        part = Budget(budget.limit / scores, budget.delta / scores, budget.relation)
        # A single logistic run draws from the source itself, so that seeded fits stay reproducible.
        sources = [rng] if logistic else mechanisms.spawn(rng, scores)
        chosen = method if isinstance(method, Method) else None
        descends = method == "auto" and logistic and K == 2
        runs: list[Run] = []
        expected = None
        for problem, source, (each, most) in zip(problems, sources, parts):
            C = self.C if isinstance(self.C, str) else max(most * float(self.C), _LEAST_C)
            if not runs and chosen is None:
                ends = each.derivative(np.zeros(2), np.array([-1.0, 1.0]))
                slope = float(np.abs(ends).mean())
                facts = problem.facts(budget.relation)
                expected = expected_accuracy(facts, part, slope, C, descends)
                if expected and expected.noise > 1.0:
                    enough = budget.limit
                    now: ExpectedAccuracy | None = expected
                    # From below, since the noise falls at most like 1/epsilon.
                    while now and now.noise > 1.01 and enough < 1e6:
                        enough *= now.noise
                        more = Budget(enough / scores, part.delta, part.relation)
                        now = expected_accuracy(facts, more, slope, C, descends)
                    text = _little(expected, facts.n, D.shape[1], budget.limit, enough)
                    warn_caller(text, PrivacyWarning)
            one = run(problem, part, source, C, chosen, descends)
            runs.append(replace(one, expected=expected))
        return runs

    def _weights(self, classes: np.ndarray) -> list[float]:
        """Return the public weight of every class, or raise naming the parameter."""
        given = getattr(self, "class_weight", None)
        weights = weights_of(given, classes)
        if given is not None and len(classes) > 2 and type(self._loss_and_method()[0]) is Logistic:
            raise ValueError(
                f"class_weight is for two classes here, got {len(classes)}: the loss of all "
                "classes at once has no weights; LinearSVC takes them for more classes"
            )
        return weights

    def _penalty(self, n: int) -> L2 | None:
        """Return the L2 penalty that a numeric C adds when ``method`` is an object, else None."""
        if self.C == "auto" or not isinstance(self._loss_and_method()[1], Method):
            return None
        return L2(1.0 / (float(self.C) * self._nominal(n)))

    # Checks

    def _loss_and_method(self) -> tuple[Loss, str | Method]:
        """Return the validated loss and method of the fit."""
        loss = Logistic() if self.loss is None else self.loss
        check_loss(loss)
        if not loss.classification:
            raise ValueError(
                f"loss must be one of classification, for labels -1 and +1, got {loss!r}"
            )
        if not isinstance(self.method, Method) and self.method not in _METHODS:
            raise TypeError(
                f"method must be {' or '.join(map(repr, _METHODS))}, or an object of a class of "
                f"dpanalysis.methods, got {self.method!r}"
            )
        if isinstance(self.method, Method) and self.C == "private":
            raise ValueError(
                "C='private' chooses a penalty for objective perturbation, so method must be one "
                f"of {', '.join(map(repr, _METHODS))}, got {self.method!r}"
            )
        return loss, self.method

    def _check_parameters(self, budget: Budget) -> None:
        self._loss_and_method()
        if self.C == "private" and budget.delta > 0.0:
            raise ValueError(
                f"C='private' takes a pure budget, delta = 0, got {budget.delta!r}: the best of "
                "several runs with a delta of their own has no such guarantee here"
            )
        if isinstance(self.C, str) and self.C not in ("auto", "private"):
            raise ValueError(f"C must be 'auto', 'private' or a number above 0, got {self.C!r}")
        if not isinstance(self.C, str):
            check_positive("C", self.C)
            check_number("C", self.C, low=_LEAST_C)

    def _targets(
        self, y: np.ndarray, classes: tuple[Any, ...] = ()
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the sorted classes and the class index of each label."""
        given = classes or None if self.classes is None else self.classes
        self._declared = given is not None
        with warnings.catch_warnings():
            if self._declared:  # it would reveal how many of the classes occur
                warnings.filterwarnings("ignore", "The number of unique classes", UserWarning)
            try:
                check_classification_targets(y)
            except TypeError as error:
                raise TypeError(f"y must hold numbers alone, or words alone ({error})") from None
        if given is None:
            known, labels = np.unique(y, return_inverse=True)
        else:
            known, y = self._declared_classes(given, y)
            labels = np.minimum(np.searchsorted(known, y), len(known) - 1)
            unknown = np.flatnonzero(known[labels] != y)
            if unknown.size:
                i = int(unknown[0])
                raise ValueError(
                    f"y must hold labels in classes = {known.tolist()!r}, got "
                    f"{y[i : i + 1].tolist()[0]!r} in row {i}"
                )
        if len(known) < 2:
            raise ValueError(
                f"y must have at least two classes, got one class only, {known.tolist()!r}: "
                "declare classes=[...], here or in the domain file, where one may be absent"
            )
        self._weights(known)
        return known, labels

    def _declared_classes(self, given: Any, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the sorted declared classes, and the labels as the same kind of values."""
        try:
            listed = list(given) if np.ndim(given) == 1 else []
        except ValueError:  # of lists of different lengths
            listed = []
        if not listed or any(map(is_missing, listed)):
            raise ValueError(f"classes must be a list of labels, got {given!r}")
        try:
            known = np.unique(np.asarray(listed))
        except TypeError:
            raise ValueError(f"classes must be numbers alone, or texts, got {given!r}") from None
        if len(known) < len(listed):
            raise ValueError(f"classes must be different labels, got {given!r}")
        if known.dtype.kind in "iuf" and np.abs(known.astype(np.float64)).max() > 2.0**53:
            raise ValueError(  # one label that is a float would round all others
                f"classes must be at most 2**53 in size, or texts, got {given!r}"
            )
        check_numbering(len(known))
        kinds = known.dtype.kind + y.dtype.kind
        if kinds[0] == kinds[1] or not set(kinds) & set("UOM"):
            return known, y
        try:
            known = np.unique([_of_kind(each, kinds[1]) for each in listed])
        except (ValueError, KeyError):
            raise ValueError(
                f"classes must be labels of the kind of y, {y.dtype}, got {given!r}"
            ) from None
        # Not by the dtype of y or with blanks cut off, which are how one label is written: a reader
        # makes floats of "1.0" among integers, and texts of "1" beside a blank that is not ASCII.
        if kinds[1] in "UO":
            return known, np.asarray(y, dtype=str)
        same = known.astype({"b": "bool", "M": "datetime64[us]"}.get(kinds[1], "int64"))
        return same if (same == known).all() else known, y

    # After the fit

    def _keep(self, coef: np.ndarray, intercept: np.ndarray, known: Any) -> None:
        self.coef_, self.intercept_, self.classes_ = coef, intercept, known

    def decision_function(self, X: Any) -> np.ndarray:
        """Return the scores, shape (n,) for two classes and (n, K) for more."""
        scores = self._scores(X)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> np.ndarray:
        """Return the most likely class of every row, shape (n,)."""
        scores = self.decision_function(X)
        best = (scores > 0.0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        return self.classes_[best]

    def _method_facts(self, runs: list[Run], n: int, delta: float) -> dict[str, str]:
        loss, method = self._loss_and_method()
        if not isinstance(method, Method):
            return rule_facts(runs, self.C, delta)
        l2 = self._penalty(n)
        given = f"L2 of strength {l2.strength:.3g}, on the intercept too, as given" if l2 else ""
        return {
            "Loss": repr(loss),
            "Method": repr(method),
            "Penalty": given or "none but the method's own",
        }

    def _about_targets(self, runs: list[Run]) -> tuple[dict[str, str], list[str], list[str]]:
        loss, given = self._loss_and_method()[0], getattr(self, "class_weight", None)
        labels = "declared by the user" if self._declared else "read off y and taken as public"
        facts = {}
        if runs[0].expected:
            facts["Expected"] = f"{_of_100(runs[0].expected)}; by sizes and bounds alone"
        if given:
            facts["Class weights"] = f"{given!r}, as given"
        stated = (
            f"convexity, smoothness and Hessian constants that {loss!r} states: they are not "
            "checked, and the guarantees of some methods rest on them"
        )
        last = [] if type(loss) in OUR_LOSSES else [stated]
        return facts, [f"the set of labels: {labels}"], last


def _of_kind(label: Any, kind: str) -> Any:
    """Return a declared label as the kind of the labels y, or raise."""
    if kind in "UO":
        return text_of(label)
    if kind == "M":
        return np.datetime64(label)
    return {"true": True, "false": False}[str(label).lower()] if kind == "b" else number_of(label)


def _weighted(loss: Loss, class_weights: list[float], k: int) -> tuple[Loss, float]:
    """Return the loss of class k (+1) versus the rest over the largest weight, and that weight."""
    # As in scikit-learn, with more than two classes the others have weight 1. The penalty of a
    # numeric C is divided by the largest weight as well, so that the minimizer is the same.
    negative = class_weights[0] if len(class_weights) == 2 else 1.0
    positive, most = class_weights[k], max(class_weights[k], negative)
    if negative == positive == 1.0:
        return loss, 1.0
    return ClassWeighted(loss, negative / most, positive / most), most


def _little(expected: ExpectedAccuracy, n: int, d: int, epsilon: float, enough: float) -> str:
    """Return the warning that noise exceeds the mean gradient; see :class:`.ExpectedAccuracy`."""
    return (
        f"little data for this epsilon: by n = {n}, d = {d} weights for each score, epsilon = "
        f"{epsilon:g} and the bounds alone, the noise is {expected.noise:.2g} times as strong as "
        f"all records together can be. {_of_100(expected)}. What would help: fewer columns or "
        f"categories, n = {math.ceil(n * expected.noise)}, or epsilon = {enough:.2g}, from where "
        "it is 75"
    )


def _of_100(expected: ExpectedAccuracy) -> str:
    return (
        "In two equally frequent classes that a linear rule separates, about "
        f"{100.0 * expected.accuracy:.0f} of 100 rows are classified correctly (50 by a constant "
        "prediction), and fewer in real data"
    )


def fit_blocks(
    model: PrivateLinearModel, encoder: PublicEncoder, blocks: Iterable[tuple[Any, Any]]
) -> None:
    """Fit ``model`` to the rows of all blocks, stored in a temporary file in single precision."""
    columns = encoder.columns_
    design, bounds_note = design_of(None, columns, columns.d, bool(model.fit_intercept), False)
    upstream = Upstream(added_under(model.relation, columns.learned))
    labels = []

    def parts() -> Iterator[np.ndarray]:
        for table, part in blocks:
            rows = encoder.transform(table)
            rows = rows if isinstance(rows, np.ndarray) else rows.toarray()
            labels.append(np.asarray(part))
            yield design.rows(np.asarray(rows, dtype=np.float32))

    with in_file(parts()) as D:
        budget, rng = model._budget(len(D)), source_of(model.random_state)
        known, targets = model._targets(np.concatenate(labels))
        model.n_features_in_ = columns.d
        model._fit_design(D, targets, known, design, budget, rng, bounds_note, upstream)


class LogisticRegression(PrivateClassifier):
    r"""Private logistic regression with scikit-learn's interface and no tuning required.

    A random linear term is added to the penalized loss, which is then minimized exactly (objective
    perturbation). More than two classes give one softmax regression, not one run per class.

    Parameters
    ----------
    epsilon : float
        Budget of the fit, in (0, inf).
    delta : float
        In [0, 1/n); 0 gives pure differential privacy.
    C : float, "auto" or "private"
        Inverse strength of the L2 penalty, as in scikit-learn: the penalty is
        :math:`\|w\|^2/(2Cn)`, added to the mean loss, with weights w in units in which features
        have size 1. ``"auto"``: a rule that uses public facts only; for two classes, delta > 0 and
        large noise it selects noisy gradient descent instead, which classifies and ranks better,
        but whose clipped gradients bias probabilities. However large epsilon, the penalty is at
        least one that suits a fit without privacy, given n and the bounds; this floor binds only
        above epsilon = 4. ``"private"``: the best of several penalties around the rule's, by a
        private score. The choice costs more than half of epsilon and helps only where the rule is
        far off: on none of the data sets of ``python -m benchmarks accuracy``. It needs delta = 0.
    fit_intercept : bool
        The intercept is the weight of a constant column, penalized like all others.
    class_weight : dict, optional
        Public positive weights of the classes, 1 for those not named: a record's loss is
        multiplied by the weight of its class, as in scikit-learn. For two classes. ``"balanced"``
        is rejected, since it depends on the private labels. The noise grows with the largest
        weight, so less is learned from classes with small weights.
    bounds : (low, high), PublicColumns, RowBound or sequence of RowBound, optional
        Public bounds on the features, numbers or arrays of shape (d,), or on the rows' norms.
        By default those that :class:`~dpanalysis.preprocessing.PublicEncoder` attached to X;
        without them the features are clipped to [-1, 1], with a warning.
    classes : array_like, optional
        All labels that can occur. By default those of the domain file of a PublicEncoder before
        the estimator; without them those of y, which are then taken as public.
    relation : {"replace_one", "add_or_remove_one"}
        The neighbouring relation.
    size : int, optional
        Public nominal size n by which averages are divided, instead of the number of rows, which
        may be at most twice n. Without it the number of rows is public, under add_or_remove_one
        too: see the notes of :class:`~dpanalysis.ERM`.
    random_state : None, int, RandomState, Generator or "os"
        None or "os", for a release: the operating system's entropy. A seed makes the run
        repeatable, and is for research only.

    Attributes
    ----------
    classes_ : ndarray of shape (K,)
    coef_ : ndarray of shape (1, d), or (K, d) for K > 2 classes
    intercept_ : ndarray of shape (1,) or (K,)
    privacy_ : PrivacyCard
        The guarantee and what it covers, as text, ``to_json()`` and ``to_html()``.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Of data with names.

    References
    ----------
    Chaudhuri, Monteleoni, Sarwate (2011), Kifer, Smith, Thakurta (2012), Redberg, Koskela, Wang
    (2023) for objective perturbation; Hardt and Talwar (2010) for noise of any norm. The proofs are
    in :class:`dpanalysis.privacy.queries.PerturbedMinimum`.

    Examples
    --------
    >>> import numpy as np
    >>> from dpanalysis.linear_model import LogisticRegression
    >>> X = np.random.default_rng(0).uniform(0, 10, size=(5000, 3))
    >>> y = np.where(X[:, 0] > X[:, 1], "up", "down")
    >>> model = LogisticRegression(epsilon=1.0, bounds=(0, 10), random_state=0).fit(X, y)
    >>> model.predict([[9.0, 1.0, 5.0], [1.0, 9.0, 5.0]]).tolist(), model.score(X, y) > 0.95
    (['up', 'down'], True)
    >>> model.privacy_.epsilon
    1.0
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 0.0,
        *,
        C: float | str = "auto",
        fit_intercept: bool = True,
        class_weight: Any = None,
        bounds: Any = None,
        classes: Any = None,
        relation: str = "replace_one",
        size: int | None = None,
        random_state: Any = None,
    ) -> None:
        super().__init__(
            epsilon=epsilon,
            delta=delta,
            C=C,
            fit_intercept=fit_intercept,
            bounds=bounds,
            classes=classes,
            relation=relation,
            size=size,
            random_state=random_state,
        )
        self.class_weight = class_weight

    def _loss_and_method(self) -> tuple[Loss, str | Method]:
        return Logistic(), "auto"

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probabilities of the classes, shape (n, K)."""
        from scipy.special import expit, softmax

        scores = self.decision_function(X)
        if scores.ndim == 2:
            return np.asarray(softmax(scores, axis=1))
        return np.column_stack([expit(-scores), expit(scores)])

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Return the logarithms of the probabilities of the classes, shape (n, K)."""
        from scipy.special import log_expit, log_softmax

        scores = self.decision_function(X)
        if scores.ndim == 2:
            return np.asarray(log_softmax(scores, axis=1))
        return np.column_stack([log_expit(-scores), log_expit(scores)])


class LinearSVC(PrivateClassifier):
    """Private linear support vector machine with a smooth hinge loss, whose corner is rounded.

    More than two classes are fitted one versus rest, with an equal share of the budget for each:
    the runs cost the same, so equal shares are best.

    Parameters
    ----------
    width : float
        Width of the rounding, in [1e-100, 1e100]: see :class:`~dpanalysis.losses.HuberizedHinge`.
    class_weight : dict, optional
        As in :class:`LogisticRegression`, but for more than two classes too: the weight of class k
        applies to its records in the run of k against the others, which have weight 1.
    epsilon, delta, C, fit_intercept, bounds, classes, relation, size, random_state
        As in :class:`LogisticRegression`.

    Attributes
    ----------
    classes_, coef_, intercept_, privacy_, n_features_in_, feature_names_in_
        As in :class:`LogisticRegression`.

    Examples
    --------
    >>> import numpy as np
    >>> from dpanalysis.linear_model import LinearSVC
    >>> X = np.random.default_rng(0).uniform(0, 10, size=(5000, 3))
    >>> model = LinearSVC(bounds=(0, 10), random_state=0).fit(X, X[:, 0] > X[:, 1])
    >>> model.predict([[9.0, 1.0, 5.0]]).tolist()
    [True]
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 0.0,
        *,
        C: float | str = "auto",
        width: float = 0.5,
        fit_intercept: bool = True,
        class_weight: Any = None,
        bounds: Any = None,
        classes: Any = None,
        relation: str = "replace_one",
        size: int | None = None,
        random_state: Any = None,
    ) -> None:
        super().__init__(
            epsilon=epsilon,
            delta=delta,
            C=C,
            fit_intercept=fit_intercept,
            bounds=bounds,
            classes=classes,
            relation=relation,
            size=size,
            random_state=random_state,
        )
        self.class_weight = class_weight
        self.width = width

    def _loss_and_method(self) -> tuple[Loss, str | Method]:
        width = check_number("width", self.width, low=1e-100, high=1e100)  # squared in a run
        return HuberizedHinge(width), "auto"
