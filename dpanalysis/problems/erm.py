"""Empirical risk minimization of a linear predictor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..kernels.array_api import formula_values
from ..kernels.rounding import sum_rounding
from ..losses import Logistic, Loss, check_loss, check_per_sample, constants_of
from ..regularizers import Regularizer
from .base import find_minimizer, separated_below
from .empirical import LinearRisk, check_regularizer
from .row_bound import RowBound, as_bounds
from .rows import open_rows
from .rows.checks import has_read_width, recheck_slack


class ERM(LinearRisk):
    r"""Mean loss of a linear predictor plus a public penalty.

    .. math:: F(w) = \frac1N \sum_{i=1}^n \ell(\langle x_i, w\rangle, y_i) + r(w),

    with the public nominal size N, which is n unless ``size`` is given.

    Sums over the samples are accumulated in float64, also for float32 data; iterates are
    float64 of shape ``(d,)``, or ``(R, d)`` for R replicates, which are evaluated
    together. Values and gradients are bitwise independent of the number of threads.

    Parameters
    ----------
    X : array of shape (n, d)
        NumPy (C-ordered float32 or float64 is used in place, read-only or not; anything
        else is converted once), SciPy sparse (CSR in place), or an array of another
        array-API namespace such as CuPy (then the sums run there). ``numpy.memmap`` and Dask
        arrays are read by blocks of rows: see Notes.
    y : array of shape (n,)
        Labels in {-1, +1}; any real numbers for :class:`~dpanalysis.losses.SquaredError`.
        May be memory-mapped if X is, and a Dask array if X is one.
    loss : Loss
        From :mod:`dpanalysis.losses`.
    regularizer : Regularizer, optional
        From :mod:`dpanalysis.regularizers`.
    row_bound : RowBound or sequence of RowBound, optional
        Public bounds on the rows; without one, a sample's gradient is unbounded.
    size : int, optional
        Public nominal size N, by which sums are divided; at least n/2. By default the number of
        rows n, which is then declared to be public. See Notes.

    Attributes
    ----------
    n, d : int
        Samples and features.
    size : int
        N.
    mu, L : float
        Public strong convexity and smoothness, from the penalty and the row bound, never from the
        data. ``L`` is inf without a bound and for a nonsmooth loss; it is that of N rows.

    Raises
    ------
    ValueError
        If ``X`` or ``y`` is empty, not finite or of the wrong shape, or a row exceeds a bound
        with ``enforce="check"``.
    OSError
        Also later, if a mapped file has changed its size.

    Notes
    -----
    A mapped file of any real dtype is read in blocks of about 32 MB, each converted separately, so
    that memory does not grow with n; up to 4 million rows of C-ordered float32 or float64 are used
    in place, as an array. A Dask array (``dpanalysis-toolkit[dask]``) is summed chunk by chunk by
    the current scheduler, with one call per sum. Either way the data are checked once when the
    problem is built; rows of blocks and chunks are scaled to the row bound each time they are read.
    The remaining memory is 8 bytes for each row of a batch, whose indices are drawn for all n
    together (so the batch follows the sampling scheme exactly, as in memory), and some numbers for
    each row in :meth:`line_losses`, whose result has that length.

    *The nominal size.* Under ``"replace_one"`` the number of rows is public. Under
    ``"add_or_remove_one"`` it is not, and no output of a private run may depend on it: averages
    are divided by N, noise, batch sizes and warnings are computed from N, and the rounding errors
    of sums are bounded for 2N rows, which is why there may not be more. So the guarantee is for two
    data sets that differ in one record **under the same N**. Give a number that was known before
    the data, such as a planned or a published size. Without one, N is the actual number of rows,
    and releasing the answer also publishes that number: two data sets of different length then
    have different noise, and no epsilon covers that.

    X must not change during a run. Rows used in place are not copied, so a callback or a thread may
    still write to them, and the guarantee then still holds: whenever a row is added to a sum of
    gradients or of Hessians, its norm is computed from the numbers read at that moment, and a row
    that exceeds its bound, or the norm that was cached for clipping, adds exactly zero. This covers
    changes that treat every row separately; a value computed from several rows, such as a centered
    column, depends on all of their records. Labels are copied. Not covered are the index arrays of
    a CSR matrix, and rows on a device that change in the milliseconds between norm and product.

    Examples
    --------
    >>> import numpy as np
    >>> from dpanalysis import ERM, RowBound, losses, regularizers
    >>> X, y = np.array([[0.6, 0.8], [1.0, 0.0]]), np.array([1, -1])
    >>> problem = ERM(X, y, losses.Logistic(), regularizers.L2(0.1), RowBound(2, 1.0))
    >>> problem.value(np.zeros(2))
    0.6931
    >>> problem.gradient(np.zeros(2))
    array([ 0.1, -0.2])
    >>> problem.L, problem.gradient_bound(1)
    (0.35, 1.4142)
    """

    def __init__(
        self,
        X: Any,
        y: Any,
        loss: Loss,
        regularizer: Regularizer | None = None,
        row_bound: RowBound | Sequence[RowBound] | None = None,
        *,
        size: int | None = None,
    ) -> None:
        check_loss(loss)
        check_regularizer(regularizer)
        self.row_bounds = as_bounds(row_bound)
        self.loss, self.regularizer = loss, regularizer
        self._constants = constants_of(loss)
        self._data = data = open_rows(X, y, loss, self.row_bounds)
        self._X, self._y = data.X, data.y
        self.n, self.d, self._on_host = data.n, data.d, data.on_host
        self._set_size(size)
        if size is not None:
            data.most_parts(self.max_records)  # raises if there are too many
        self._width_read = has_read_width(X)

    def __repr__(self) -> str:
        count = f"n={self.n}" if self._size is None else f"size={self._size}"  # n is not public
        return (
            f"ERM({count}, d={self.d}, loss={self.loss!r}, regularizer={self.regularizer!r}, "
            f"row_bound={self.row_bounds!r})"
        )

    @property
    def rounding(self) -> float:  # type: ignore[override]
        """Public bound on the rounding error of a sum, in units of the bound on one sample.

        :func:`dpanalysis.kernels.rounding.sum_rounding` for the maximal number of samples, plus
        the relative growth of a row that goes undetected.
        """
        most, data = self.max_records, self._data
        parts = data.parts if self._size is None else data.most_parts(most)
        return sum_rounding(most, self.d, parts) + recheck_slack(self.d)

    @property
    def double_precision(self) -> bool:  # type: ignore[override]
        """Whether predictions are computed in float64, as always on the host."""
        return bool(self._data.on_host or self._data.X.dtype == self._xp.float64)

    # Sums over samples

    def _evaluate(
        self, W: Any, rows: Any, clipping: Any, weights: Any, value: bool, gradient: bool
    ) -> tuple[Any, Any, Any]:
        self._check_constants()
        return self._data.sums(W, rows, clipping, weights, value, gradient)

    def _check_constants(self) -> None:
        """Raise if the loss's constants differ from those that the noise is calibrated to."""
        if constants_of(self.loss) != self._constants:
            raise ValueError(
                f"loss: the constants of {self.loss!r} have been changed since the problem was "
                "built, and the noise is computed from them; build a new problem"
            )

    def line_losses(
        self, w: np.ndarray, direction: np.ndarray, rows: Any = None
    ) -> Callable[[float], np.ndarray]:
        """As :meth:`Problem.line_losses`; predictions are linear in t, so the data are read once.

        Examples
        --------
        >>> import numpy as np
        >>> from dpanalysis import ERM, losses
        >>> problem = ERM(np.array([[2.0], [1.0]]), np.array([3.0, 0.0]), losses.SquaredError())
        >>> problem.line_losses(np.zeros(1), np.array([-1.0]))(1.0)
        array([0.5, 0.5])
        """
        ray = self._xp.stack([self._point("w", w), self._point("direction", direction)], axis=1)
        z, labels = self._data.predictions(ray, self._rows(rows, 1))

        def losses(t: float) -> Any:
            with np.errstate(all="ignore"):  # a warning would reveal a record
                at = z[:, 0] - t * z[:, 1]
                return self._to_caller(formula_values(self.loss.value, at, labels), w)

        return losses

    def check_private(self) -> None:
        """Check user-defined formulas, and check the rows against their bounds again.

        The formulas of a user-defined loss must treat each sample separately. Rows used in place
        are read once: the owner of X may have changed it since the problem was built. Later
        changes are bounded in each sum, see the class notes. A ValueError names the row that has
        grown or is not finite, or the formula.

        Examples
        --------
        >>> import numpy as np
        >>> from dpanalysis import ERM, RowBound, losses
        >>> X = np.array([[0.5], [1.0]])
        >>> problem = ERM(X, [1, -1], losses.Logistic(), row_bound=RowBound(2, 1.0))
        >>> X[1] = 2.0
        >>> problem.check_private()
        Traceback (most recent call last):
            ...
        ValueError: X has been changed since the problem was built: row 1 had an L2 norm...
        """
        super().check_private()
        self._check_constants()
        check_per_sample(self.loss)
        self._check_unchanged()

    def hessian_sum(self, w: Any, rows: Any = None) -> Any:
        """As :meth:`Problem.hessian_sum`; ValueError if the loss is not smooth.

        Examples
        --------
        >>> import numpy as np
        >>> from dpanalysis import ERM, losses
        >>> problem = ERM(np.array([[2.0], [1.0]]), np.array([1.0, 1.0]), losses.Logistic())
        >>> problem.hessian_sum(np.zeros(1)), problem.hessian_sum(np.zeros(1), np.array([1]))
        (array([[1.25]]), array([[0.25]]))
        """
        self._check_smooth("hessian_sum")
        return self._to_caller(self._hessian_sum(self._point("w", w), self._rows(rows, 1)), w)

    def hvp_sum(self, w: Any, v: Any, rows: Any = None) -> Any:
        """As :meth:`Problem.hvp_sum`; ValueError if the loss is not smooth."""
        self._check_smooth("hvp_sum")
        at, vector = self._point("w", w), self._point("v", v)
        return self._to_caller(self._data.hvp_sum(at, vector, self._rows(rows, 1)), w)

    # Curvature and minimizers

    def _check_smooth(self, what: str) -> None:
        self._check_constants()
        if not np.isfinite(self.loss.smoothness):
            raise ValueError(
                f"{what} needs a loss with a continuous derivative, got {self.loss!r}: its "
                "curvature is all in jumps; HuberizedHinge(width) is a smooth hinge loss"
            )

    def _hessian_sum(self, w: Any, rows: Any = None) -> Any:
        return self._data.hessian_sum(w, rows)

    def _hvp_sum(self, w: Any, v: Any) -> Any:
        return self._data.hvp_sum(w, v, None)

    def _check_unchanged(self) -> None:
        self._data.check_unchanged()

    def _find_minimizer(self) -> np.ndarray:
        logistic = type(self.loss) is Logistic  # other losses reach zero at finite margins
        return find_minimizer(self, separated_below(self) if logistic else 0.0)

    def accuracy(self, w: Any, X: Any = None, y: Any = None) -> Any:
        """Fraction of labels predicted correctly by the sign of ``<x, w>`` (zero counts as -1).

        Parameters
        ----------
        w : array of shape (d,) or (R, d)
        X, y : arrays of shape (k, d) and (k,), optional
            Other data, such as a test set; both or neither.

        Returns
        -------
        float or array of shape (R,)

        Examples
        --------
        >>> import numpy as np
        >>> from dpanalysis import ERM, losses
        >>> problem = ERM(np.array([[2.0], [1.0]]), np.array([1, -1]), losses.Logistic())
        >>> problem.accuracy(np.ones(1))
        0.5
        """
        if not self.loss.classification:
            raise ValueError(f"accuracy needs a loss of classification, got {self.loss!r}")
        if (X is None) != (y is None):
            raise ValueError("X and y must be given together")
        data = self._data if X is None else open_rows(self._test_rows(X), y, self.loss, ())
        if data.d != self.d:
            raise ValueError(f"X must have {self.d} columns, got {data.d}")
        iterate = self._iterate("w", w)
        xp = self._xp
        right = data.correct(iterate if iterate.ndim == 2 else iterate[None, :])
        fraction = self._to_caller(xp.astype(right, xp.float64) / data.n, w)
        return fraction if iterate.ndim == 2 else float(fraction[0])
