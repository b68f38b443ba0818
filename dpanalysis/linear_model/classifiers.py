"""The private linear classifiers."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._validation import check_number
from ..losses import HuberizedHinge, Logistic, Loss
from ..privacy import mechanisms
from ..privacy.relations import Budget
from ..problems import ERM, Softmax
from .base import PrivateLinearClassifier
from .runs import Run

__all__ = ["LinearSVC", "LogisticRegression"]


class LogisticRegression(PrivateLinearClassifier):
    r"""Private logistic regression: scikit-learn's with a guarantee, and nothing to tune.

    The penalised loss gets a random linear term and is minimised exactly (objective
    perturbation). More than two classes are one softmax regression, not one run a class.

    Parameters
    ----------
    epsilon : float
        Budget of the fit, in (0, inf).
    delta : float
        In [0, 1/n); 0 is the pure guarantee.
    C : float, "auto" or "private"
        Inverse strength of the L2 penalty, as in scikit-learn: the penalty is
        :math:`\|w\|^2/(2Cn)` beside the mean loss, with weights w in units in which features have
        size 1. ``"auto"``: by a rule that looks at public facts alone, which for two classes, delta
        > 0 and much noise takes noisy gradient descent instead. ``"private"``: the best of some
        penalties around the rule's, by a private score. It pays for the choice with more than
        half of epsilon, and that pays only where the rule is far off: on none of the data sets of
        ``python -m benchmarks accuracy``. It takes delta = 0.
    fit_intercept : bool
        The intercept is a weight of a constant column, penalised as all others.
    bounds : (low, high), PublicColumns, RowBound or sequence of RowBound, optional
        Public bounds on the features, numbers or arrays of shape (d,), or on the rows' norms.
        By default those that :class:`~dpanalysis.preprocessing.PublicEncoder` attached to X;
        without them the features are cut to [-1, 1], with a warning.
    classes : array_like, optional
        All labels that can occur. By default those of y, which are then taken as public.
    relation : {"replace_one", "add_or_remove_one"}
        Which data sets are neighbours.
    size : int, optional
        Public nominal size n that averages are divided by, in the place of the number of rows,
        which may be twice that at most. Without it that number is public, under add_or_remove_one
        too: see the notes of :class:`~dpanalysis.ERM`.
    random_state : None, int or RandomState
        None, for a release: the operating system's entropy. A number repeats the run, and is for
        research alone.

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
    in :class:`dpanalysis.privacy.queries.TiltedMinimum`.

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

    def _solve(
        self, D: Any, labels: np.ndarray, K: int, row_bound: Any, budget: Budget, rng: Any
    ) -> list[Run]:
        if K == 2:
            problem = ERM(D, 2.0 * labels - 1.0, Logistic(), row_bound=row_bound, size=self.size)
            return [self._run(problem, budget, rng, may_descend=True)]
        many = Softmax(D, labels, n_classes=K, row_bound=row_bound, dtype="float64", size=self.size)
        return [self._run(many, budget, rng)]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probabilities of the classes, shape (n, K).

        Raises
        ------
        ValueError
            As :meth:`decision_function`.
        """
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


class LinearSVC(PrivateLinearClassifier):
    """Private linear support vector machine, of a hinge loss that is rounded off to be smooth.

    More than two classes are one run each against the others, with an equal part of the budget:
    the parts cost the same, so equal ones are best.

    Parameters
    ----------
    width : float
        Of the rounding, in (0, inf): see :class:`~dpanalysis.losses.HuberizedHinge`.
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
        bounds: Any = None,
        classes: Any = None,
        relation: str = "replace_one",
        size: int | None = None,
        random_state: Any = None,
    ) -> None:
        super().__init__(
            epsilon,
            delta,
            C=C,
            fit_intercept=fit_intercept,
            bounds=bounds,
            classes=classes,
            relation=relation,
            size=size,
            random_state=random_state,
        )
        self.width = width

    def _budget(self, n: int) -> Budget:
        check_number("width", self.width, low=0.0, low_open=True)
        return super()._budget(n)

    def _solve(
        self, D: Any, labels: np.ndarray, K: int, row_bound: Any, budget: Budget, rng: Any
    ) -> list[Run]:
        loss: Loss = HuberizedHinge(self.width)
        scores = 1 if K == 2 else K
        assert budget.epsilon is not None
        part = Budget(budget.epsilon / scores, budget.delta / scores, budget.relation)
        runs = []
        for k, random in enumerate(mechanisms.spawn(rng, scores)):
            own = 1 if K == 2 else k
            signs = np.where(labels == own, 1.0, -1.0)
            problem = ERM(D, signs, loss, row_bound=row_bound, size=self.size)
            runs.append(self._run(problem, part, random))
        return runs
