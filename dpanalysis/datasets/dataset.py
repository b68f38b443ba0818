"""Data sets: features, labels, and public bounds on the rows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from .._validation import check_fraction, check_int, check_rng

if TYPE_CHECKING:
    from ..problems import ERM
    from ..problems.row_bound import RowBound


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Features, labels, and public bounds on the rows.

    Attributes
    ----------
    X : ndarray or scipy.sparse.csr_array, shape (n, d)
        Training features.
    y : ndarray, shape (n,)
        Labels: -1.0 / +1.0 for two classes, integers 0..K-1 for more.
    X_test, y_test
        The published test part, or ``None``.
    name : str
        Name of the data set.
    row_bound : tuple of RowBound
        Public bounds on the rows' norms (L1 and L2), implied by the encoding.
    n_classes : int, default=2
        Public number of classes, not counted from the private labels.

    Examples
    --------
    >>> from dpanalysis import datasets
    >>> cancer = datasets.load("breast_cancer")
    >>> cancer.n, cancer.d, cancer.n_classes
    (569, 30, 2)
    >>> train, held_out = cancer.split(0.2, rng=0).X.shape, cancer.split(0.2, rng=0).X_test.shape
    >>> train, held_out
    ((456, 30), (113, 30))
    """

    X: Any
    y: np.ndarray
    X_test: Any
    y_test: np.ndarray | None
    name: str
    row_bound: tuple[RowBound, ...]
    n_classes: int = 2

    def __post_init__(self) -> None:
        check_int("n_classes", self.n_classes, low=2)
        for name, labels in (("y", self.y), ("y_test", self.y_test)):
            if labels is None or labels.dtype.kind == "f" or not labels.size:
                continue
            if labels.min() < 0 or labels.max() >= self.n_classes:
                raise ValueError(
                    f"{name} must hold labels from 0 to n_classes - 1, got {labels.min()} to "
                    f"{labels.max()} for n_classes = {self.n_classes}"
                )

    def __repr__(self) -> str:
        test = "no test part" if self.X_test is None else f"{self.X_test.shape[0]} test rows"
        kind = "dense" if isinstance(self.X, np.ndarray) else "CSR"
        return (
            f"Dataset({self.name!r}, n={self.n}, d={self.d}, {self.n_classes} classes, {kind}, "
            f"{test}, row_bound={self.row_bound!r})"
        )

    @property
    def n(self) -> int:
        """Number of training rows; if it is private, give :meth:`problem` a nominal size."""
        return int(self.X.shape[0])

    @property
    def d(self) -> int:
        """Number of features."""
        return int(self.X.shape[1])

    def problem(self, loss: Any = None, regularizer: Any = None, *, size: int | None = None) -> ERM:
        """Return the training part of a two-class data set as a problem with its row bounds.

        Parameters
        ----------
        loss : loss, optional
            A loss of :mod:`dpanalysis.losses` (default: logistic).
        regularizer : regularizer, optional
            Public penalty.
        size : int, optional
            Public nominal size, see :class:`~dpanalysis.ERM`; by default :attr:`n`, then public.
        """
        from ..losses import Logistic
        from ..problems import ERM

        if self.n_classes > 2:
            raise ValueError(
                f"data set {self.name!r} must have two classes for a linear predictor, "
                f"got {self.n_classes}"
            )
        chosen = Logistic() if loss is None else loss
        return ERM(self.X, self.y, chosen, regularizer, row_bound=self.row_bound, size=size)

    def subset(self, rows: np.ndarray, test_rows: np.ndarray | None = None) -> Dataset:
        """Return some training rows (indices or mask), with ``test_rows`` as the test part."""
        part = replace(self, X=self.X[rows], y=self.y[rows])
        if test_rows is None:
            return part
        return replace(part, X_test=self.X[test_rows], y_test=self.y[test_rows])

    def split(self, test_fraction: float, rng: Any = None) -> Dataset:
        """Shuffle the training rows and split a fraction of them off as the test part.

        Any published test part is replaced. The split depends on the number of rows. So under
        ``"add_or_remove_one"`` the guarantee of a run on the training part is for that part only; a
        guarantee for all rows requires an independent choice for each row.

        Parameters
        ----------
        test_fraction : float
            In (0, 1); ``floor(test_fraction * n)`` rows become the test part.
        rng : None, int, SeedSequence or Generator
            Source of the shuffle.
        """
        fraction = check_fraction("test_fraction", test_fraction)
        order = check_rng(rng).permutation(self.n)
        held_out = int(fraction * self.n)
        return self.subset(order[held_out:], order[:held_out])

    def folds(self, k: int, rng: Any = None) -> Iterator[Dataset]:
        """Shuffle the training rows and yield the data sets of a k-fold cross-validation.

        Each row is in the test part once; a published test part is replaced, see :meth:`pooled`.
        The parts' sizes differ by at most one and reveal the number of rows: guarantees under
        ``"add_or_remove_one"`` are as in :meth:`split`.

        Parameters
        ----------
        k : int
            In [2, n].
        rng : None, int, SeedSequence or Generator
            Source of the shuffle: the same one gives the same folds.

        Examples
        --------
        >>> from dpanalysis import datasets
        >>> [fold.X_test.shape[0] for fold in datasets.load("breast_cancer").folds(10, rng=0)]
        [57, 57, 57, 57, 57, 57, 57, 57, 57, 56]
        """
        check_int("k", k, low=2, high=self.n)
        parts = np.array_split(check_rng(rng).permutation(self.n), k)
        for i, held_out in enumerate(parts):
            yield self.subset(np.concatenate(parts[:i] + parts[i + 1 :]), held_out)

    def pooled(self) -> Dataset:
        """Return the training and the published test rows as one training part."""
        import scipy.sparse

        if self.X_test is None or self.y_test is None:
            raise ValueError(f"data set {self.name!r} must have a test part to pool, got none")
        if scipy.sparse.issparse(self.X):
            blocks: Any = (self.X, self.X_test)
            X = scipy.sparse.vstack(blocks, format="csr")
        else:
            X = np.concatenate((self.X, self.X_test))
        y = np.concatenate((self.y, self.y_test))
        return replace(self, X=_marked(X, self.X, self.X_test), y=y, X_test=None, y_test=None)

    def with_intercept(self) -> Dataset:
        """Append a column of ones, and adjust the row bounds."""
        import scipy.sparse

        def extend(X: Any) -> Any:
            if X is None:
                return None
            ones = np.ones((X.shape[0], 1), dtype=X.dtype)
            if not scipy.sparse.issparse(X):
                return np.hstack((X, ones))
            blocks: Any = (X, ones)
            return _marked(scipy.sparse.hstack(blocks, format="csr"), X)

        from ..problems.row_bound import with_constant

        bounds = tuple(with_constant(bound) for bound in self.row_bound)
        return replace(self, X=extend(self.X), X_test=extend(self.X_test), row_bound=bounds)


def _marked(X: Any, *sources: Any) -> Any:
    """Return the rows, marked if the width of any of their sources was read from the data."""
    from ..problems.rows.checks import has_read_width, with_read_width

    return with_read_width(X) if any(map(has_read_width, sources)) else X


def row_bounds(attributes: int) -> tuple[RowBound, ...]:
    """Return the bounds of rows with at most ``attributes`` nonzero entries, all in [-1, 1]."""
    from ..problems.row_bound import RowBound

    return (
        RowBound(order=1, radius=float(attributes)),
        RowBound(order=2, radius=math.sqrt(attributes)),
    )
