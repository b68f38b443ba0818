"""Networks for several classes: labels, bounds, parameters, and sums over blocks of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from array_api_compat import array_namespace, is_numpy_array

from ..._validation import check_int
from ...clipping import Clipping
from ...kernels.array_api import (
    DEVICE_BLOCK_BYTES,
    bounded_rows,
    each_replicate,
    rounding_margin,
    row_blocks,
    snapshot,
)
from ...kernels.products import WHOLE
from ...kernels.rounding import BLOCK_ROWS, NO_LIMITS, SINGLE, sum_rounding
from ...privacy.facts import LARGEST_ITERATE
from ...regularizers import Regularizer
from ..empirical import EmpiricalRisk, check_regularizer
from ..row_bound import RowBound, as_bounds, implied_radius
from ..rows.checks import (
    check_unchanged,
    has_read_width,
    is_sparse,
    norm_limits,
    overflowing,
    prepare,
    read_only,
    recheck_slack,
    refuse_overflow,
    row_limits,
    row_scale,
)
from .layers import (
    Layout,
    add_gradients,
    backward,
    clip_factors,
    cross_entropy,
    forward,
    gradient_norms,
    zero,
)

# Memory of a block's arrays. On the host they stay in cache, and below the size that the C library
# returns to the system after every call: faulting the pages in again costs more than clipping.
_BLOCK_BYTES = 3 << 19
_FEWEST_ROWS = 128  # below, adding up the blocks' gradients costs as much as computing them
_SINGLE_ROWS = 256  # rows added up in single precision at a time
_SINGLE_BATCH = 1280  # largest batch added up that way; larger ones are added up in double


def network_rounding(n: int, d: int, single: bool) -> float:
    r"""Return a bound on the rounding error of a network's sum of clipped gradients.

    *Proof.* The term :math:`t_i` of a record is :math:`\delta_i a_i^\top`, layer by layer, from the
    numbers computed for it. Its exact norm is at most the bound B in single precision, where
    weights and row bounds are set 16 roundings inside and at most 4 follow; in double it is at most
    :math:`(1 + \gamma_{d+16})B`, which :func:`~dpanalysis.kernels.rounding.sum_rounding` includes.
    Norms are computed without underflow, and weights and entries of :math:`\delta_i` that are not
    finite, or so small that they have lost digits, count as zero, which makes no term larger.

    A matrix product adds the terms of at most b rows, in whatever order and with or without
    fused operations. Each entry passes through at most b roundings of relative error u, so the
    computed entry is :math:`\sum_i t_{ij} (1 + \theta_{ij})`, :math:`|\theta_{ij}| \le \gamma_b
    = bu/(1 - bu)` (Higham, *Accuracy and stability of numerical algorithms*, 2002, Lemma 3.1),
    and its error is at most :math:`\gamma_b \sum_i |t_{ij}|`. In L1 and L2, which are monotone in
    the absolute entries, the error of a block is at most :math:`\gamma_b \sum_i \|t_i\|`, and that
    of blocks with m rows in total at most :math:`m \gamma_b B`, whichever row is in which block, so
    that removing a record, which shifts all others, is covered. With :math:`u = 2^{-24}`, b = 256
    and m at most 1280 (larger batches are added up in double) that is .0195 B.

    The blocks' sums are added in double. A block has at most 4096 rows and, unless it is the
    last one, at least 128. So an entry passes through at most 4096 + n/64 + 1 further roundings,
    which :func:`~dpanalysis.kernels.rounding.sum_rounding` for as many parts covers.

    *The other records' terms do not change.* The numbers computed for a record are a function of
    this record and the weights, to the last bit: products of rows come from
    :func:`~dpanalysis.kernels.products.row_product`, whatever the length of the block, and
    everything else is computed entry by entry or along one row. So when a record is added, removed
    or replaced, no other term changes. Every activation needs this: a rounding switches the
    derivative of a relu at 0, and where weights are as large as the reciprocal of the rounding
    unit, it moves a logit or the input of a tanh by 1. With products of arbitrary length, adding
    one record moved sums by 9 clip norms (relu), 28 (tanh) and 7 (softmax), for weights and records
    constructed for that: ``tests/problems/test_network_rounding.py``.
    """
    total = sum_rounding(n, d, parts=n // 64 + 2)
    if single:
        count = _SINGLE_ROWS * SINGLE
        total += min(n, _SINGLE_BATCH) * count / (1.0 - count)
    return total


class NetworkSums:
    """Sums over samples for a network of dense layers with cross-entropy loss.

    The products have the dtype of ``X`` (n, features), dense or CSR; losses, norms and sums over
    blocks are float64. ``scale`` (n,) multiplies the rows. Sums of gradients compare each row with
    ``limits`` when they use it (:func:`~dpanalysis.kernels.array_api.bounded_rows`).
    """

    def __init__(
        self,
        X: Any,
        labels: Any,
        layout: Layout,
        activation: str,
        scale: Any,
        limits: Sequence[float] = NO_LIMITS,
    ) -> None:
        self._X, self._labels, self._scale, self._limits = X, labels, scale, limits
        self._layout, self._activation = layout, activation
        self._on_host = is_sparse(X) or is_numpy_array(X)
        self._bytes = _BLOCK_BYTES if self._on_host else DEVICE_BLOCK_BYTES

    def blocks(self, rows: Any, replicates: int) -> Iterator[tuple[Any, Any, Any, Any]]:
        """Yield blocks of ``rows`` as ``(X, labels, scale, pick)``.

        ``scale`` is in the dtype of X; ``pick`` selects the block from an array of n entries.
        X and ``scale`` may contain a few more rows, so that no product has to pad them.
        """
        xp = array_namespace(self._labels)
        count = self._X.shape[0] if rows is None else rows.shape[0]
        step = self._step(rows is not None, replicates, count)
        whole = WHOLE if self._on_host and not is_sparse(self._X) else 1
        for _, pick in row_blocks(count, step, rows):
            scale = None
            if self._scale is not None:
                scale = self._cast(xp, pick(self._scale, whole))
            yield pick(self._X, whole), pick(self._labels), scale, pick

    @property
    def single(self) -> bool:
        """Whether the products are computed in single precision."""
        return bool(self._X.dtype == array_namespace(self._labels).float32)

    def _summed(self, xp: Any, count: int) -> tuple[int, Any]:
        """Return how many of ``count`` rows to add up at a time, and in which dtype."""
        if self.single and self._on_host and count <= _SINGLE_BATCH:
            return _SINGLE_ROWS, xp.float32
        return BLOCK_ROWS, xp.float64

    def _step(self, gathered: bool, replicates: int, count: int) -> int:
        """Return the number of rows of a block."""
        inputs, *outputs = self._layout.widths
        entries = 2 * replicates * sum(outputs) + gathered * inputs
        single = self.single
        # The cross-entropy uses about six arrays of logits, in float64.
        size = entries * (4 if single else 8) + 48 * replicates * outputs[-1]
        step = max(_FEWEST_ROWS, self._bytes // size)
        most, _ = self._summed(array_namespace(self._labels), count)
        if not self._on_host:
            return step
        step = min(step, BLOCK_ROWS)
        return step if count <= step else min(step, most)  # one block is added up in portions

    def sums(
        self,
        W: Any,
        rows: Any | Sequence[Any] | None,
        clipping: Clipping | None,
        norms: Any,
        weights: Any,
        want_value: bool,
        want_gradient: bool,
    ) -> tuple[Any, Any, Any]:
        """Return ``values (R,), gradients (R, p), clipped (R,)``, for checked arguments.

        ``norms`` are those of the scaled rows, needed only with ``clipping``.
        """
        xp = array_namespace(W)
        if isinstance(rows, Sequence):  # one index array per replicate
            return each_replicate(
                self.sums, W, rows, clipping, norms, weights, want_value, want_gradient
            )
        replicates = W.shape[0]
        values = xp.zeros(replicates, dtype=W.dtype, device=W.device)
        shape = (replicates, W.shape[1] if want_gradient else 0)
        gradients = xp.zeros(shape, dtype=W.dtype, device=W.device)
        clipped = xp.zeros(replicates, dtype=xp.int64, device=W.device)
        layers = self._layout.split(xp, self._cast(xp, W))
        most, dtype = self._summed(xp, self._X.shape[0] if rows is None else rows.shape[0])
        for X, labels, scale, pick in self.blocks(rows, replicates):
            if rows is None and want_gradient:
                X = snapshot(X)
            hidden, logits = self._forward(xp, layers, X, scale, labels.shape[0])
            losses, delta = cross_entropy(xp, logits, labels)
            counts = None if weights is None else pick(weights)
            if want_value:
                values += xp.sum(losses if counts is None else losses * counts, axis=1)
            if not want_gradient:
                continue
            deltas = backward(xp, layers, self._activation, hidden, self._cast(xp, delta))
            if clipping is None:
                lost, factors = xp.isnan(losses), xp.ones_like(losses)
                factors = self._cast(xp, factors if counts is None else factors * counts)
            else:
                # Weak growth constants may be invalid at these weights: the norms, which are
                # known, limit the rule's factors.
                sizes = gradient_norms(xp, pick(norms), hidden, deltas, self._layout.bias)
                arrays = clipping, sizes, losses, counts, self._X.dtype
                factors, lost, cut = clip_factors(xp, *arrays)
                clipped += cut
            if not self._on_host or bool(xp.any(lost)):  # do not synchronize with a device
                # A gradient that overflows counts as zero, and so must every factor of its
                # product: inf * 0 would make the whole sum NaN, which reveals the record.
                hidden, deltas = _without(xp, lost, hidden), _without(xp, lost, deltas)
                factors = xp.where(lost, zero(xp, factors), factors)
            if X.shape[0] > labels.shape[0]:
                X = X[: labels.shape[0], :]
                scale = None if scale is None else scale[: labels.shape[0]]
            multipliers, kept = (None if a is None else pick(a) for a in (self._scale, norms))
            X = bounded_rows(X, multipliers, self._limits, kept)
            arrays = X, scale, hidden, deltas, factors
            add_gradients(xp, gradients, self._layout, *arrays, most, dtype)
        return values, gradients, clipped

    def losses(self, W: Any, rows: Any = None) -> Any:
        """Return the loss of each sample, (m,), for one iterate ``W`` of shape (1, p)."""
        xp = array_namespace(W)
        layers = self._layout.split(xp, self._cast(xp, W))
        parts = [xp.zeros(0, dtype=W.dtype, device=W.device)]
        for X, labels, scale, _ in self.blocks(rows, 1):
            _, logits = self._forward(xp, layers, X, scale, labels.shape[0])
            parts.append(cross_entropy(xp, logits, labels)[0][0, :])
        return xp.concat(parts)

    def accuracy(self, W: Any) -> Any:
        """Return the fraction of samples (R,) whose label has the largest logit."""
        xp = array_namespace(W)
        layers = self._layout.split(xp, self._cast(xp, W))
        right = xp.zeros(W.shape[0], dtype=xp.int64, device=W.device)
        for X, labels, scale, _ in self.blocks(None, W.shape[0]):
            logits = self._forward(xp, layers, X, scale, labels.shape[0])[1]
            match = xp.argmax(logits, axis=-1) == labels
            right += xp.sum(xp.astype(match, xp.int64), axis=1)
        return xp.astype(right, xp.float64) / self._X.shape[0]

    def _forward(
        self, xp: Any, layers: Any, X: Any, scale: Any, count: int
    ) -> tuple[list[Any], Any]:
        """Return the hidden activations and the logits of the first ``count`` rows."""
        hidden, logits = forward(xp, layers, self._activation, X, scale)
        return [array[:, :count, :] for array in hidden], logits[:, :count, :]

    def _cast(self, xp: Any, array: Any) -> Any:
        """Return ``array`` in the dtype of the computation."""
        return xp.astype(array, self._X.dtype, copy=False)


def _without(xp: Any, lost: Any, arrays: Sequence[Any]) -> list[Any]:
    """Return the arrays (R, B, width) with zeros for the lost samples (R, B)."""
    return [xp.where(lost[..., None], zero(xp, array), array) for array in arrays]


# Networks


class Network(EmpiricalRisk):
    """Mean cross-entropy of a network of dense layers plus a public penalty."""

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
            with np.errstate(all="ignore"):  # a warning would reveal a record
                self._X = _as_dtype(self._X, _dtype(array_namespace(labels), dtype))
            refuse_overflow(*overflowing(self._X))
        labels, self.n_classes = check_labels(labels, n_classes)
        self._y = read_only(labels)
        self._classes_given = n_classes is not None
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
        """Return the multipliers that bring the rows of ``X`` inside the bounds, or None."""
        # In single precision slightly further inside, to allow for later roundings.
        return row_scale(X, self._inner_bounds(X.dtype))

    def _inner_bounds(self, dtype: Any) -> list[RowBound]:
        below = rounding_margin(self._xp, dtype) if dtype == self._xp.float32 else 1.0
        return [RowBound(b.order, below * b.radius) for b in self.row_bounds]

    # Public constants

    def radius(self, order: int) -> float:
        """Public bound on every ``||x_i||_order``, order 1 or 2; inf if there is none."""
        return implied_radius(self.row_bounds, order, self.features)

    @property
    def rounding(self) -> float:  # type: ignore[override]
        """Public bound on the rounding error of a sum over samples, as :attr:`ERM.rounding`."""
        single = self._sums.single and self._on_host
        return network_rounding(self.max_records, self.d, single) + recheck_slack(self.features)

    @property
    def double_precision(self) -> bool:  # type: ignore[override]
        """Whether products are computed in float64, the dtype of the data."""
        return not self._sums.single

    @property
    def largest_iterate(self) -> float:  # type: ignore[override]
        """Size above which weights count as diverged, since their product may overflow."""
        most = float(self._xp.finfo(self._X.dtype).max)
        return min(LARGEST_ITERATE, float((1e-20 * most) ** (1.0 / (len(self._layout.widths) - 1))))

    def check_clipping(self, clipping: Clipping | None) -> None:
        """As :meth:`ERM.check_clipping <dpanalysis.ERM.check_clipping>`.

        Also raises ValueError if the clip norm is too small for products in single precision.
        """
        super().check_clipping(clipping)
        if clipping is not None and self._sums.single and clipping.clip_norm < 1e-30:
            raise ValueError(
                f"clip_norm must be at least 1e-30 in single precision, got {clipping.clip_norm!r}"
            )

    # Sums and predictions

    def _evaluate(
        self, W: Any, rows: Any, clipping: Any, weights: Any, value: bool, gradient: bool
    ) -> tuple[Any, Any, Any]:
        norms = None if clipping is None else self._norms()
        # A warning would reveal a record.
        with np.errstate(all="ignore"):
            return self._sums.sums(W, rows, clipping, norms, weights, value, gradient)

    def line_losses(
        self, w: np.ndarray, direction: np.ndarray, rows: Any = None
    ) -> Callable[[float], np.ndarray]:
        """As :meth:`Problem.line_losses`."""
        start, step = self._point("w", w), self._point("direction", direction)
        chosen = None if rows is None else self._rows(rows, 1)

        def losses(t: float) -> Any:
            with np.errstate(all="ignore"):
                return self._to_caller(self._sums.losses((start - t * step)[None, :], chosen), w)

        return losses

    def check_private(self) -> None:
        """As :meth:`ERM.check_private <dpanalysis.ERM.check_private>`; ``n_classes`` must be given.

        The shape of the answer would reveal a number of classes that was inferred from the labels.
        """
        super().check_private()
        if not self._classes_given:
            raise ValueError(
                "n_classes must be given for a private run: without it the number of classes, "
                f"{self.n_classes}, was read off the private labels, and the shape of the answer "
                "would reveal it"
            )
        self._check_unchanged()

    def _check_unchanged(self) -> None:
        """Raise ValueError if a row has grown since it was checked; one pass over X."""
        bounds = self._inner_bounds(self._X.dtype)
        check_unchanged(self._X, self._scale, bounds, self._row_norms)

    def _norms(self) -> Any:
        """Bounds on the L2 norms of the (scaled) rows, computed once."""
        if self._row_norms is None:
            limits = row_limits(self._inner_bounds(self._X.dtype), self.features)
            self._row_norms = norm_limits(self._X, self._scale, limits[1])
        return self._row_norms

    def layers(self, w: Any) -> list[tuple[Any, Any]]:
        """Return ``(weights, bias)`` of each layer, from the input on, as views of ``w``.

        Their shapes are (out, in) and (out,), preceded by R if ``w`` is (R, d); ``bias`` is None
        in a network without biases.

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
                self._to_caller(weights[pick, ...], w),
                None if bias is None else self._to_caller(bias[pick, 0, :], w),
            )
            for weights, bias in layers
        ]

    def accuracy(self, w: Any, X: Any = None, y: Any = None) -> Any:
        """Fraction of labels predicted correctly by the largest logit (the first if tied).

        The arguments are those of :meth:`ERM.accuracy <dpanalysis.ERM.accuracy>`. Other rows are
        scaled to the row bounds as those of the problem were.

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
            fraction = self._to_caller(sums.accuracy(W), w)
        return fraction if iterate.ndim == 2 else float(fraction[0])


def _as_dtype(X: Any, dtype: Any) -> Any:
    """Return ``X`` in ``dtype``, without a copy if it has it."""
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
    """Return ``y`` as int64 labels 0..K-1, and K; raise ValueError if they are not valid."""
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
