"""Softmax regression: a network without hidden layers, which is convex."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..._validation import check_number
from ...losses import Logistic
from ...privacy.facts import Block
from ...regularizers import Regularizer
from ..base import find_minimizer, separated_below
from ..empirical import SmoothRisk
from ..row_bound import RowBound, as_blocks
from ..rows.checks import as_float64, is_sparse
from .base import Network
from .layers import cross_entropy


class CrossEntropy:
    r"""Constants of :math:`-\ln p_y` for rows of L2 norm 1; the proofs are in :class:`Softmax`."""

    __slots__ = ()  # the constants cannot be changed
    lipschitz = math.sqrt(2.0)
    smoothness = 0.5

    def __repr__(self) -> str:
        return "CrossEntropy()"

    def weak_growth(self, row_norm: float, beta1: float | None = None) -> tuple[float, float]:
        r"""Return tight ``(beta1, beta2)`` for rows of L2 norm up to ``row_norm``.

        They are those of the logistic loss for rows :math:`\sqrt2` times longer: with
        :math:`q = p_y` both losses are :math:`-\ln q`, and the squared gradients are at most
        :math:`2 (1-q)^2 \|x\|^2` and :math:`(1-q)^2 \|x\|^2`.
        """
        row_norm = check_number("row_norm", row_norm, low=0.0)
        return Logistic().weak_growth(self.lipschitz * row_norm, beta1)


class Softmax(Network, SmoothRisk):
    r"""Softmax regression: cross-entropy of K linear scores, plus a public penalty.

    .. math:: F(w) = \frac1n \sum_{i=1}^n -\ln p_{y_i}(x_i) + r(w), \qquad
              p_k(x) = \frac{e^{\langle w_k, x\rangle}}{\sum_j e^{\langle w_j, x\rangle}}.

    The parameters are the rows :math:`w_1, \dots, w_K`, concatenated in one vector of
    :math:`d = K \times` features entries. There is no intercept; append a constant column for
    one (and include it in the row bound).

    A sample's gradient is :math:`(p - e_y) x^\top`. With a row bound, all constants for privacy
    and rates are public:

    - ``gradient_bound(2)`` is :math:`\sqrt2` times the L2 radius, since
      :math:`\|p - e_y\|_2^2 = (1-p_y)^2 + \sum_{j \ne y} p_j^2 \le 2 (1 - p_y)^2 \le 2`,
    - ``gradient_bound(1)`` is 2 times the L1 radius, since
      :math:`\|p - e_y\|_1 = 2 (1 - p_y) \le 2`; both are approached as all probability
      goes to one wrong class, so neither can be smaller,
    - ``L`` is half the squared L2 radius plus the penalty's: the Hessian of the loss in the
      scores is :math:`\mathrm{diag}(p) - p p^\top`, whose rows have absolute sums
      :math:`2 p_k (1 - p_k) \le 1/2`, and :math:`p = (1/2, 1/2, 0, \dots)` has the eigenvalue 1/2.

    Without a penalty, :meth:`solve` returns the minimizer whose class weights sum to zero: adding
    one vector to the weights of all classes changes no probability.

    Parameters
    ----------
    X, regularizer, row_bound, size
        As for :class:`~dpanalysis.ERM`. float32 data are processed in single precision (rows are
        then scaled to a millionth inside the bounds); losses, gradient norms and sums over blocks
        of rows are in double. ``n x d`` arrays are never formed.
    y : array of shape (n,)
        Labels 0..K-1.
    n_classes : int, optional
        K >= 2, public. By default the largest label plus 1, which is not public: a private
        run then fails before it spends anything.
    dtype : {None, "float32", "float64"}
        Precision of the computation; None uses the dtype of ``X``.

    Attributes
    ----------
    n, d, size, mu, L
        As of :class:`~dpanalysis.ERM`.
    features, n_classes : int
        Columns of ``X`` and K.
    loss : CrossEntropy
        Its constants.

    References
    ----------
    Fang et al. (2023), section 6 (the linear classifier).

    Examples
    --------
    >>> import numpy as np
    >>> from dpanalysis import RowBound, problems
    >>> X, y = np.array([[0.6, 0.8], [1.0, 0.0], [0.0, 1.0]]), np.array([0, 1, 2])
    >>> problem = problems.Softmax(X, y, row_bound=RowBound(2, 1.0))
    >>> problem.d, problem.value(np.zeros(6))
    (6, 1.0986)
    >>> problem.gradient_bound(2), problem.L
    (1.4142, 0.5)
    """

    def __init__(
        self,
        X: Any,
        y: Any,
        n_classes: int | None = None,
        regularizer: Regularizer | None = None,
        row_bound: RowBound | Sequence[RowBound] | None = None,
        *,
        dtype: Any = None,
        size: int | None = None,
    ) -> None:
        self.loss = CrossEntropy()  # of the instance, so that it cannot be changed
        super().__init__(X, y, n_classes, regularizer, row_bound, dtype, (), "relu", False, size)

    def __repr__(self) -> str:
        count = f"n={self.n}" if self._size is None else f"size={self._size}"  # n is not public
        return (
            f"Softmax({count}, features={self.features}, n_classes={self.n_classes}, "
            f"regularizer={self.regularizer!r}, row_bound={self.row_bounds!r})"
        )

    @property
    def L(self) -> float:  # type: ignore[override]
        """Smoothness that the row bound and the penalty guarantee; inf if none."""
        data = float(self.loss.smoothness) * self.radius(2) ** 2
        return data + (0.0 if self.regularizer is None else self.regularizer.L)

    def gradient_bound(self, order: int) -> float:
        """Public bound on the norm of one sample's data gradient; inf if there is none."""
        return (2.0 if order == 1 else float(self.loss.lipschitz)) * self.radius(order)

    convex_records = True

    @property
    def hessian_rank(self) -> int:  # type: ignore[override]
        """Rank of one sample's Hessian, the Kronecker product of diag(p) - p p' and x x'."""
        return int(self.n_classes) - 1

    @property
    def hessian_trace(self) -> float:  # type: ignore[override]
        """Public bound on the Hessian's trace, (1 - ||p||^2) ||x||^2; inf without a row bound."""
        return (1.0 - 1.0 / self.n_classes) * self.radius(2) ** 2

    derivative_bounds = (2.0, math.sqrt(2.0))  # of p - e_y

    @property
    def derivative_corners(self) -> int:  # type: ignore[override]
        """Number of corners of the simplex of all p - e_y."""
        return int(self.n_classes)

    @property
    def row_blocks(self) -> tuple[tuple[Block, ...], ...]:  # type: ignore[override]
        """Every public bound on the rows, as blocks of columns."""
        return as_blocks(self.row_bounds, self.features)

    # Curvature and the minimizer

    def _blocks(self, w: Any, rows: Any = None) -> Iterator[tuple[Any, Any]]:
        """Yield each block of (scaled) rows in float64 with its class probabilities (B, K)."""
        xp = self._xp
        scores = xp.reshape(w, (self.n_classes, self.features)).T
        classes = xp.arange(self.n_classes, dtype=self._y.dtype, device=self._y.device)
        for _, labels, _, pick in self._sums.blocks(rows, self.n_classes):
            X = as_float64(pick(self._X))
            if self._scale is not None:
                scale = pick(self._scale)[:, None]
                X = X.multiply(scale).tocsr() if is_sparse(X) else X * scale
            delta = cross_entropy(xp, (X @ scores)[None, ...], labels)[1][0, ...]
            yield X, delta + xp.astype(labels[:, None] == classes, xp.float64)

    def _hessian_sum(self, w: Any, rows: Any = None) -> Any:
        K, f, xp = self.n_classes, self.features, self._xp
        total = xp.zeros((K, f, K, f), dtype=xp.float64, device=w.device)
        for X, p in self._blocks(w, rows):
            for k in range(K):
                for j in range(k + 1):
                    curvature = p[:, k] * (float(j == k) - p[:, j])
                    weighted = (
                        X.multiply(curvature[:, None]) if is_sparse(X) else X * curvature[:, None]
                    )
                    part = X.T @ weighted
                    total[k, :, j, :] += part.toarray() if is_sparse(part) else part
        for k in range(K):
            for j in range(k):
                total[j, :, k, :] = total[k, :, j, :].T
        return xp.reshape(total, (self.d, self.d))

    def _hvp_sum(self, w: Any, v: Any) -> Any:
        xp = self._xp
        directions = xp.reshape(v, (self.n_classes, self.features)).T
        total = xp.zeros((self.n_classes, self.features), dtype=xp.float64, device=w.device)
        for X, p in self._blocks(w):
            change = p * (X @ directions)
            total += (change - p * xp.sum(change, axis=1, keepdims=True)).T @ X
        return xp.reshape(total, (self.d,))

    def _find_minimizer(self) -> np.ndarray:
        """Return the minimizer; without a penalty, the one whose class weights sum to zero."""
        unattained = separated_below(self)
        if not unattained:
            return find_minimizer(self)
        partial = find_minimizer(_LastClassAtZero(self), unattained)
        w = np.concatenate([partial, np.zeros(self.features)])
        weights = w.reshape(self.n_classes, self.features)
        return (weights - weights.mean(axis=0)).reshape(-1)


class _LastClassAtZero:
    """The problem with the last class's weights fixed at zero, so that its Hessian is regular."""

    def __init__(self, problem: Softmax) -> None:
        self._problem = problem
        self.d = problem.d - problem.features

    def _full(self, w: np.ndarray) -> np.ndarray:
        return np.concatenate([w, np.zeros(self._problem.features)])

    def value(self, w: np.ndarray) -> float:
        return self._problem.value(self._full(w))

    def gradient(self, w: np.ndarray) -> np.ndarray:
        return self._problem.gradient(self._full(w))[: self.d]

    def hessian(self, w: np.ndarray) -> np.ndarray:
        return self._problem.hessian(self._full(w))[: self.d, : self.d]

    def hvp(self, w: np.ndarray, v: np.ndarray) -> np.ndarray:
        return self._problem.hvp(self._full(w), self._full(v))[: self.d]
