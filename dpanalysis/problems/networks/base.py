"""What networks for several classes share: labels, bounds, flat parameters, accuracy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from array_api_compat import array_namespace, is_numpy_array

from ..._validation import check_int
from ...kernels.array_api import below_one
from ...privacy.facts import LARGEST_ITERATE
from ...regularizers import Regularizer
from ..empirical import EmpiricalRisk, check_regularizer
from ..row_bound import RowBound, as_bounds, implied_radius
from ..rows.changed import check_unchanged, growth, row_limits
from ..rows.checks import is_sparse, prepare, read_only, row_norms, row_scale
from ..rows.width import has_read_width
from .layers import Layout
from .sums import NetworkSums, network_rounding

__all__ = ["Network"]


class Network(EmpiricalRisk):
    """Mean cross-entropy of a network of dense layers plus a public penalty.

    See :class:`~dpanalysis.problems.Softmax` and :class:`~dpanalysis.problems.MLP`.

    Attributes
    ----------
    n, d : int
        Samples and parameters.
    features, n_classes : int
        Columns of the data and number of classes.
    """

    def __init__(
        self,
        X: Any,
        y: Any,
        n_classes: int | None,
        regularizer: Regularizer | None,
        row_bound: RowBound | Sequence[RowBound] | None,
        dtype: Any,
        hidden: tuple[int, ...],
        activation: str,
        bias: bool,
        size: int | None,
    ) -> None:
        check_regularizer(regularizer)
        self.regularizer = regularizer
        self.row_bounds = as_bounds(row_bound)
        self._X, labels = prepare(X, y, False)
        if dtype is not None:
            self._X = _as_dtype(self._X, _dtype(array_namespace(labels), dtype))
        labels, self.n_classes = check_labels(labels, n_classes)
        self._y = read_only(labels)
        self._told_classes = n_classes is not None
        self.n, self.features = self._X.shape
        self._set_size(size)
        self._width_read = has_read_width(X)
        self._layout = Layout((self.features, *hidden, self.n_classes), bias)
        self.d = self._layout.size
        self._activation = activation
        self._on_host = is_sparse(self._X) or is_numpy_array(self._X)
        row_scale(self._X, [bound for bound in self.row_bounds if bound.enforce == "check"])
        self._scale = read_only(self._inside_bounds(self._X))
        self._row_norms: Any = None
        limits = row_limits(self._inner_bounds(self._X.dtype), self.features)
        self._sums = NetworkSums(self._X, self._y, self._layout, activation, self._scale, limits)

    def _inside_bounds(self, X: Any) -> Any:
        """Return the multipliers that bring the rows of ``X`` inside the bounds, or None.

        In single precision a hair further inside, for the roundings to come.
        """
        return row_scale(X, self._inner_bounds(X.dtype))

    def _inner_bounds(self, dtype: Any) -> list[RowBound]:
        below = below_one(self._xp, dtype) if dtype == self._xp.float32 else 1.0
        return [RowBound(b.order, below * b.radius) for b in self.row_bounds]

    # Public constants

    def radius(self, order: int) -> float:
        """Public bound on every ``||x_i||_order``, order 1 or 2; inf when there is none."""
        return implied_radius(self.row_bounds, order, self.features)

    @property
    def rounding(self) -> float:  # type: ignore[override]
        """Public bound on the rounding of a sum over samples, in units of the bound on one.

        That of :func:`network_rounding` for n + 1 terms, since one may be added, or for the 2N
        terms that may be there under a nominal size N; and what a row may have grown without being
        seen.
        """
        single = self._sums.single and self._on_host
        return network_rounding(self.max_records, self.d, single) + growth(self.features)

    @property
    def largest_iterate(self) -> float:  # type: ignore[override]
        """Size from which on weights count as diverged: their product may overflow."""
        most = float(self._xp.finfo(self._X.dtype).max)
        return min(LARGEST_ITERATE, float((1e-20 * most) ** (1.0 / (len(self._layout.widths) - 1))))

    # Sums and predictions

    def _evaluate(
        self, W: Any, rows: Any, clipping: Any, weights: Any, value: bool, gradient: bool
    ) -> tuple[Any, Any, Any]:
        norms = None if clipping is None else self._norms()
        # A warning would tell that a record is there.
        with np.errstate(all="ignore"):
            return self._sums.sums(W, rows, clipping, norms, weights, value, gradient)

    def along(
        self, w: np.ndarray, direction: np.ndarray, rows: Any = None
    ) -> Callable[[float], np.ndarray]:
        """Return the function t -> losses (m,) of the samples ``rows`` at ``w - t direction``.

        Examples
        --------
        >>> import numpy as np
        >>> from dpanalysis.problems import Softmax
        >>> problem = Softmax(np.array([[1.0], [-1.0]]), np.array([0, 1]))
        >>> problem.along(np.zeros(2), np.array([-1.0, 0.0]))(1.0)
        array([0.3133, 0.3133])
        """
        start, step = self._iterate("w", w), self._iterate("direction", direction)
        chosen = None if rows is None else self._rows(rows, 1)

        def losses(t: float) -> Any:
            with np.errstate(all="ignore"):
                return self._back(self._sums.losses((start - t * step)[None, :], chosen), w)

        return losses

    def check_private(self) -> None:
        """Look at the data once more: they must still be what was bounded.

        As :meth:`ERM.check_private <dpanalysis.ERM.check_private>`; and the number of classes
        must have been given, since one taken from the private labels tells about them: the
        shape of the answer would.

        Raises
        ------
        ValueError
            If ``n_classes`` was not given, or a row of X is larger than it was, or not finite.
        """
        super().check_private()
        if not self._told_classes:
            raise ValueError(
                "n_classes must be given for a private run: without it the number of classes, "
                f"{self.n_classes}, was read off the private labels, and the shape of the answer "
                "would tell it"
            )
        self._check_unchanged()

    def _check_unchanged(self) -> None:
        """Raise ValueError where a row has grown since it was checked; one read of X."""
        bounds = self._inner_bounds(self._X.dtype)
        check_unchanged(self._X, self._scale, bounds, self._row_norms)

    def _norms(self) -> Any:
        """L2 norms of the (scaled) rows, computed once."""
        if self._row_norms is None:
            norms = row_norms(self._X, 2)
            self._row_norms = read_only(norms if self._scale is None else norms * self._scale)
        return self._row_norms

    def layers(self, w: Any) -> list[tuple[Any, Any]]:
        """Return ``(weights, bias)`` of each layer from the input on, views into ``w``.

        Parameters
        ----------
        w : array of shape (d,) or (R, d)

        Returns
        -------
        list of tuple
            ``weights`` of shape (out, in) or (R, out, in); ``bias`` of shape (out,) or
            (R, out), None in a network without biases.

        Examples
        --------
        >>> import numpy as np
        >>> from dpanalysis.problems import MLP
        >>> problem = MLP(np.eye(3), np.array([0, 1, 1]), hidden=(4,))
        >>> [(weights.shape, bias.shape) for weights, bias in problem.layers(np.zeros(problem.d))]
        [((4, 3), (4,)), ((2, 4), (2,))]
        """
        iterate = self._iterate("w", w)
        batched = iterate.ndim == 2
        layers = self._layout.split(self._xp, iterate if batched else iterate[None, :])
        pick: Any = slice(None) if batched else 0
        return [
            (
                self._back(weights[pick, ...], w),
                None if bias is None else self._back(bias[pick, 0, :], w),
            )
            for weights, bias in layers
        ]

    def accuracy(self, w: Any, X: Any = None, y: Any = None) -> Any:
        """Fraction of labels that the largest logit gets right (of equal ones, the first).

        Parameters
        ----------
        w : array of shape (d,) or (R, d)
        X, y : arrays of shape (k, features) and (k,), optional
            Other data, a test set for example; both or neither. Its rows are brought inside
            the row bounds as those of the problem were.

        Returns
        -------
        float or array of shape (R,)

        Raises
        ------
        ValueError
            If the shapes disagree or a label is not one of 0..n_classes-1.

        Examples
        --------
        >>> import numpy as np
        >>> from dpanalysis.problems import Softmax
        >>> problem = Softmax(np.array([[1.0], [-1.0]]), np.array([0, 1]))
        >>> problem.accuracy(np.array([[1.0, 0.0], [0.0, 0.0]]))
        array([1. , 0.5])
        """
        if (X is None) != (y is None):
            raise ValueError("X and y must be given together")
        sums = self._sums
        if X is not None:
            data, labels = prepare(self._test_rows(X), y, False)
            data = _as_dtype(data, self._X.dtype)
            labels, _ = check_labels(labels, self.n_classes)
            if data.shape[1] != self.features:
                raise ValueError(f"X must have {self.features} columns, got {data.shape[1]}")
            scale = self._inside_bounds(data)
            sums = NetworkSums(data, labels, self._layout, self._activation, scale)
        iterate = self._iterate("w", w)
        W = iterate if iterate.ndim == 2 else iterate[None, :]
        with np.errstate(over="ignore", invalid="ignore"):
            fraction = self._back(sums.accuracy(W), w)
        return fraction if iterate.ndim == 2 else float(fraction[0])


def _as_dtype(X: Any, dtype: Any) -> Any:
    """Return ``X`` in ``dtype``, itself where it has it."""
    if is_sparse(X):
        return X.astype(dtype, copy=False)
    return array_namespace(X).astype(X, dtype, copy=False)


def _dtype(xp: Any, dtype: Any) -> Any:
    """Return the namespace's dtype named by the argument, checked."""
    for name in ("float32", "float64"):
        if dtype in (name, getattr(np, name), np.dtype(name), getattr(xp, name)):
            return getattr(xp, name)
    raise ValueError(f"dtype must be 'float32', 'float64' or None, got {dtype!r}")


def check_labels(y: Any, n_classes: int | None) -> tuple[Any, int]:
    """Return ``y`` as int64 labels 0..K-1 and K, or raise naming what is wrong."""
    xp = array_namespace(y)
    labels = xp.astype(y, xp.int64)
    wrong = (xp.astype(labels, y.dtype) != y) | (y < 0)
    if bool(xp.any(wrong)):
        hint = ""
        if bool(xp.all((y == 1) | (y == -1))):
            hint = "; for labels -1 and +1 pass (y + 1) / 2"
        raise ValueError(
            f"y must hold the labels 0 to n_classes - 1, got {float(y[wrong][0])!r}{hint}"
        )
    largest = int(xp.max(labels))
    if n_classes is None:
        if int(xp.min(labels)) == largest:
            raise ValueError(
                f"y must hold at least two classes, got only the label {largest}; with "
                "n_classes given, one class will do"
            )
        return labels, largest + 1
    check_int("n_classes", n_classes, low=2)
    if largest >= n_classes:
        raise ValueError(
            f"n_classes must be at least {largest + 1}, for y holds the label {largest}, got "
            f"{n_classes!r}"
        )
    return labels, int(n_classes)
