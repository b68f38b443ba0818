"""Ranges of columns learned from the private data, at a cost in epsilon."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from .._validation import check_number, check_positive
from ..experiments.loop import whole_runs
from ..experiments.run import minimize
from ..methods.perturbation import Quantiles
from ..privacy import mechanisms
from ..privacy.accounting.relations import Budget
from ..privacy.noise import is_system, random_source
from ..problems.base import ColumnTable
from ..problems.rows.checks import has_read_width, refuse_read_width
from .columns import (
    LearnedRanges,
    PublicColumns,
    all_or_nothing,
    learned_by,
    numbers_only,
    tables_traced,
    traced,
    with_columns,
)

# 0 and +-2^-20 to +-2^40, in relative steps of a thousandth, which a column of years needs.
_POWERS = 2.0 ** (np.arange(-20 * 700, 40 * 700 + 1) / 700)
_CANDIDATES = tuple(np.concatenate([-_POWERS[::-1], [0.0], _POWERS]).tolist())
_FARTHEST = 2.0 * _CANDIDATES[0], 2.0 * _CANDIDATES[-1]


def source_of(random_state: Any) -> Any:
    """Return the source of noise that an estimator's ``random_state`` stands for, or raise."""
    if random_state is None:
        return "os"
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    try:
        random_source(random_state)
    except (TypeError, ValueError) as error:
        said = str(error).replace("rng", "random_state", 1)
        raise type(error)(said.replace("a Generator", "a Generator, a RandomState")) from None
    return random_state


class PrivateBounds(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Learn the ranges of numeric columns by noisy quantiles, and scale the columns to [0, 1].

    For data whose ranges cannot be declared. The sparse vector technique finds each end among
    numbers of both signs from 2^-20 to 2^40, such that all but a few values lie in the range; the
    others are clipped to the nearest end.

    Parameters
    ----------
    epsilon : float
        Budget, divided equally among the two ends of all columns. An estimator adds it to its own
        if it can trace it: see Notes.
    trimmed : float
        Share of the values that each end may leave out, in (0, 1/4); more where n, epsilon and
        the number of columns require it: about a sixth at the least epsilon that is not refused.
    relation : {"replace_one", "add_or_remove_one"}
    size : int, optional
        Public nominal size, as in :class:`~dpanalysis.linear_model.LogisticRegression`; shares
        refer to it.
    random_state : None, int, RandomState, Generator or "os"
        As in :class:`~dpanalysis.linear_model.LogisticRegression`.

    Attributes
    ----------
    columns_ : PublicColumns
        Ranges of the scaled rows, with the epsilon spent.
    bounds_ : PublicColumns
        Ranges of the rows before scaling, with the epsilon spent: the ``bounds`` of an estimator
        for rows that are not scaled.
    low_, high_ : ndarray of shape (d,)
        The ends of ``bounds_``.

    Notes
    -----
    *What an estimator counts.* Every fit is a separate release and costs what its runs have spent.
    An estimator of :mod:`dpanalysis.linear_model` counts it once if it is a step, however nested,
    of the pipeline that fits the estimator, if the estimator receives the array or table that
    :meth:`transform` returned, or if its ``bounds`` are ``bounds_``, ``low_`` or ``high_``. It
    cannot count a fit that reaches it otherwise, such as through a DataFrame built by hand: its
    card then says that epsilon is not the total.

    Examples
    --------
    >>> import numpy as np
    >>> from dpanalysis.preprocessing import PrivateBounds
    >>> X = np.random.default_rng(0).uniform(3, 60, size=(5000, 2))
    >>> bounds = PrivateBounds(epsilon=0.5, random_state=0).fit(X)
    >>> bounds.low_.round(), bounds.high_.round(), bounds.columns_.epsilon
    (array([4., 4.]), array([60., 60.]), 0.5)
    """

    def __init__(
        self,
        epsilon: float = 0.1,
        *,
        trimmed: float = 0.01,
        relation: str = "replace_one",
        size: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.epsilon = epsilon
        self.trimmed = trimmed
        self.relation = relation
        self.size = size
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> PrivateBounds:
        """Learn the ranges, spending epsilon.

        Raises
        ------
        ValueError
            If there are too few rows for this number of columns and epsilon, or X was read by
            ``load_libsvm`` without ``n_features``.
        """
        if has_read_width(X):
            refuse_read_width()
        before = learned_by(X)
        with all_or_nothing(self):
            X = self._numbers(X)
            epsilon = check_positive("epsilon", self.epsilon)
            share = check_number(
                "trimmed", self.trimmed, low=0.0, high=0.25, low_open=True, high_open=True
            )
            # Beyond all candidates nothing is counted otherwise, and the norm of a row of such
            # numbers may overflow, which would be an error that reveals the record.
            table = ColumnTable(np.clip(X, *_FARTHEST), self.size)
            n, d = table.facts(self.relation).n, table.d
            noise = 4.0 * d / epsilon  # scale of the threshold, in records; a count's is twice that
            # A search passes candidates beyond all records, and must not stop there in one of 40
            # fits, nor far within them, where it needs less noise. A count's noise exceeds the
            # threshold's by t with probability at most 2/3 e^(-t/2s).
            early = 2.0 * noise * math.log(40.0 * 2.0 * d * len(_CANDIDATES) * 2.0 / 3.0)
            if early >= 0.5 * n:
                enough = 1.05 * epsilon * early / (0.5 * n)  # and what two digits may round off
                raise ValueError(
                    f"epsilon = {epsilon:g} is too little for the ranges of {d} columns of {n} "
                    f"rows: {enough:.2g} is enough, or declare the ranges"
                )
            # In one of 20 searches a count's noise exceeds the threshold's by this share of n.
            share = max(share, noise * (math.log(40.0) + 2.0 * math.log(2.0)) / n)
            state, half = self.random_state, Budget(0.5 * epsilon, 0.0, self.relation)
            seeds = mechanisms.spawn(source_of(state), 2)
            runs = []
            for side, seed in zip(("above", "below"), seeds):
                method = Quantiles(1.0 - share, _CANDIDATES, side=side)
                with whole_runs():
                    runs.append(minimize(table, method, half, rng=seed, record=()))
            ends = [result.w[0] for result in runs]
            low, high = np.minimum(*ends), np.maximum(*ends)
            wide = np.where(high > low, 0.02 * (high - low), np.maximum(0.02 * abs(low), 1e-6))
            low, high = low - wide, high + wide
            spent = LearnedRanges(
                math.fsum(result.epsilon() for result in runs),
                half.relation,
                size=self.size,
                repeatable=state is not None and not is_system(state),
            )
            learned = (spent, *before)
            self.columns_ = PublicColumns(np.zeros(d), np.ones(d), learned=learned)
            self.bounds_ = PublicColumns(low, high, learned=learned)
            self.low_, self.high_ = traced(low, learned), traced(high, learned)
        return self

    def _numbers(self, X: Any, **options: Any) -> Any:
        with numbers_only(X):
            return validate_data(self, X, dtype=np.float64, **options)

    def transform(self, X: Any) -> Any:
        """Return the scaled rows, clipped to [0, 1]."""
        check_is_fitted(self)
        X = self._numbers(X, reset=False)
        low, high = np.asarray(self.low_), np.asarray(self.high_)
        with np.errstate(all="ignore"):  # a warning would reveal a record
            scaled = np.clip((X - low) / (high - low), 0.0, 1.0)
        return with_columns(scaled, self.columns_)


# Wraps scikit-learn's own wrapper: its ``set_output`` loses what is attached to an array.
PrivateBounds.transform = tables_traced(PrivateBounds.transform)  # type: ignore
