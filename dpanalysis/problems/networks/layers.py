r"""Dense layers: forward and backward passes, and norms of gradients that are never formed.

The gradient of one sample in a layer's weights is the outer product :math:`\delta a^\top` of the
backpropagated :math:`\delta` and the input a, so its Frobenius norm is :math:`\|\delta\|\|a\|`,
and a weighted sum over samples is ONE matrix product. Memory is that of the activations.

Arrays are of shape (R, B, width) for R replicates and B samples; the data are (B, features),
shared by the replicates, dense or CSR.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, pairwise
from typing import Any

import numpy as np
from array_api_compat import array_namespace, is_numpy_array

from ..._devices import on_host, to_host
from ...clipping import Clipping
from ...kernels import UNCLIPPED
from ...kernels.array_api import clip_limits, clip_to_bound, rule_weights
from ...kernels.products import row_product
from ...kernels.rounding import TINY

# Both have slope at most 1 and are 0 at 0, as theory.weak_growth_mlp assumes.
ACTIVATIONS = ("relu", "tanh")
_SMALL, _LARGE = 1e-280, 1e300  # sums of squares in this range are accurate
# Shorter gradients count as zero, since their norms may have lost digits: in double precision, and
# in single precision, where it is a square.
_SHORTEST, _SHORT_SQUARE = 1e-290, 1e-200


@dataclass(frozen=True)
class Layout:
    """Positions of the weights and biases in the flat parameter vector.

    Layer by layer from the input on: the weights, one row per output unit, then the bias, if any.
    ``widths`` are the numbers of features, of hidden units of each layer, and of classes.
    """

    widths: tuple[int, ...]
    bias: bool

    @property
    def size(self) -> int:
        """Number of parameters."""
        return sum((a + self.bias) * b for a, b in pairwise(self.widths))

    def slices(self) -> Iterator[tuple[slice, slice]]:
        """Yield the slices of each layer's weights and bias; the latter is empty without biases."""
        start = 0
        for inputs, outputs in pairwise(self.widths):
            middle = start + inputs * outputs
            end = middle + outputs * self.bias
            yield slice(start, middle), slice(middle, end)
            start = end

    def split(self, xp: Any, W: Any) -> list[tuple[Any, Any]]:
        """Return ``(weights (R, out, in), bias (R, 1, out) or None)`` of each layer of (R, p)."""
        layers = []
        for (inputs, outputs), (weights, bias) in zip(pairwise(self.widths), self.slices()):
            matrix = xp.reshape(W[:, weights], (W.shape[0], outputs, inputs))
            layers.append((matrix, W[:, None, bias] if self.bias else None))
        return layers


def zero(xp: Any, like: Any) -> Any:
    """Return 0 in the dtype and on the device of ``like``."""
    return xp.zeros((), dtype=like.dtype, device=like.device)


def _kept(xp: Any, mask: Any, array: Any) -> Any:
    """Return the array with 0 where ``mask`` is False.

    By bits on the host: ``where`` branches, and half of a relu's derivatives are 0 at random.
    """
    if is_numpy_array(array):
        bits = array.view(f"i{array.itemsize}")
        return (bits & -mask.astype(bits.dtype)).view(array.dtype)
    return xp.where(mask, array, zero(xp, array))


def _transposed(xp: Any, array: Any) -> Any:
    """Swap the last two axes."""
    return xp.permute_dims(array, (0, 2, 1))


def forward(
    xp: Any, layers: Sequence[tuple[Any, Any]], activation: str, X: Any, scale: Any = None
) -> tuple[list[Any], Any]:
    """Return the hidden activations and the logits of the rows ``scale * X``.

    ``scale`` (shape (B,), in the dtype of X) multiplies the products, not the data.
    """
    hidden: list[Any] = []
    for i, (weights, bias) in enumerate(layers):
        if i == 0:
            # One product for all replicates; its memory layout (B, R, width) is viewed as
            # (R, B, width) without a copy.
            replicates, width, features = weights.shape
            z = row_product(X, xp.reshape(weights, (replicates * width, features)).T)
            if scale is not None:
                z *= scale[:, None]
            z = xp.permute_dims(xp.reshape(z, (-1, replicates, width)), (1, 0, 2))
        else:
            z = row_product(hidden[-1], _transposed(xp, weights))
        if bias is not None:
            z += bias
        if i == len(layers) - 1:
            break
        hidden.append(xp.tanh(z) if activation == "tanh" else xp.maximum(z, zero(xp, z)))
    return hidden, z


def cross_entropy(xp: Any, logits: Any, labels: Any) -> tuple[Any, Any]:
    r"""Return the losses (R, B) and their gradients in the logits (R, B, K), in float64.

    With margins :math:`m_j = z_j - z_y` and :math:`M = \max_j m_j \ge 0`, the loss is :math:`M +
    \ln \sum_j e^{m_j - M}`. Nothing overflows unless the margins do (then the loss is NaN), small
    losses keep their digits, and the gradient's norm is at most :math:`\sqrt2 (1 - p_y)`.

    ``labels`` are integers of shape (B,).
    """
    classes = logits.shape[-1]
    logits = xp.astype(logits, xp.float64)
    right = labels[:, None] == xp.arange(classes, dtype=labels.dtype, device=labels.device)
    none = zero(xp, logits)
    margins = logits - xp.sum(xp.where(right, logits, none), axis=-1, keepdims=True)
    largest = xp.max(margins, axis=-1, keepdims=True)
    others = xp.where(right, none, xp.exp(margins - largest))
    wrong = xp.sum(others, axis=-1, keepdims=True)
    losses = largest + xp.log1p(wrong + xp.expm1(-largest))
    return losses[..., 0], xp.where(right, -wrong, others) / (wrong + xp.exp(-largest))


def backward(
    xp: Any, layers: Sequence[tuple[Any, Any]], activation: str, hidden: Sequence[Any], delta: Any
) -> list[Any]:
    """Return the gradients of the losses in the outputs of every layer, from the input on."""
    deltas = [delta]
    for (weights, _), a in zip(reversed(layers[1:]), reversed(hidden)):
        delta = row_product(delta, weights)
        if activation == "tanh":
            delta *= 1.0 - a * a
        else:
            delta = _kept(xp, a > 0.0, delta)
        deltas.append(delta)
    return deltas[::-1]


def _squares(xp: Any, array: Any) -> Any:
    """Return the sums of squares along the last axis, in float64."""
    double = xp.astype(array, xp.float64, copy=False)
    return xp.vecdot(double, double)


def _norm(xp: Any, array: Any) -> tuple[Any, Any]:
    """Return the L2 norms of float64 along the last axis, divided by units, and the units.

    A unit is 1 unless squares would underflow or overflow; then it is the largest entry. The units
    are None if all are 1.
    """
    squares = _squares(xp, array)
    normal = (squares > _SMALL) & (squares < _LARGE)
    if is_numpy_array(array) and bool(xp.all(normal)):  # do not synchronize with a device
        return xp.sqrt(squares), None
    largest, one = xp.max(xp.abs(array), axis=-1), xp.ones_like(squares)
    unit = xp.where(~normal & (largest > 0.0) & xp.isfinite(largest), largest, one)
    shares = array / unit[..., None]
    return xp.sqrt(xp.where(normal, squares, xp.vecdot(shares, shares))), unit


def _hypot(xp: Any, a: Any, b: Any) -> Any:
    """Return sqrt(a^2 + b^2), computed by NumPy on the host.

    PyTorch rounds the last entries of an array differently, and a record changes which are last.
    """
    if on_host(a) and not is_numpy_array(a):
        return xp.asarray(np.hypot(to_host(a), to_host(b)), device=a.device)
    return xp.hypot(a, b)


def _least_usable(xp: Any, dtype: Any) -> float:
    return TINY if dtype == xp.float64 else float(xp.finfo(dtype).smallest_normal)


def usable(xp: Any, array: Any) -> Any:
    """Return the array with entries that are not finite or not accurate replaced by 0.

    A number below the smallest normal one, or near it in double, has lost digits. Its products with
    large inputs could then exceed the computed norm of the gradient.
    """
    size = xp.abs(array)
    return _kept(xp, (size >= _least_usable(xp, array.dtype)) & xp.isfinite(size), array)


def usable_product(xp: Any, array: Any, factors: Any) -> Any:
    """Return ``array`` (R, B, width) times ``factors`` (R, B) or (B,), where it is usable.

    On the host ``array`` may be overwritten.
    """
    if is_numpy_array(array):
        from ...kernels.network import multiply_rows

        array, least = np.ascontiguousarray(array), _least_usable(xp, array.dtype)
        for rows, each in zip(array, cycle(np.ascontiguousarray(np.atleast_2d(factors)))):
            multiply_rows(rows, each, least)
        return array
    return usable(xp, array * factors[..., None])


def gradient_norms(
    xp: Any, input_norms: Any, hidden: Sequence[Any], deltas: Sequence[Any], bias: bool
) -> Any:
    """Return the L2 norms (R, B) of the samples' gradients, all layers together, in float64.

    ``input_norms`` (shape (B,)) are the rows' norms. A bias is a weight of the constant input 1.
    """
    if deltas[0].dtype != xp.float64:
        return _single_norms(xp, input_norms, hidden, deltas, float(bias))
    total: Any = None
    norms = [(input_norms, None), *(_norm(xp, a) for a in hidden)]
    for (size, unit), delta in zip(norms, deltas):
        if bias:
            size = size if unit is None else size * unit
            size, unit = _hypot(xp, size, xp.ones_like(size)), None
        part, small = _norm(xp, delta)
        part = part * size
        units = [each for each in (small, unit) if each is not None]
        if units:  # multiply them first: either may be tiny alone
            part = part * (units[0] * units[1] if len(units) > 1 else units[0])
        total = part if total is None else _hypot(xp, total, part)
    return xp.where(total < _SHORTEST, zero(xp, total), total)


def _single_norms(xp: Any, input_norms: Any, hidden: Any, deltas: Any, bias: float) -> Any:
    """Return :func:`gradient_norms` in single precision, from sums of products of squares.

    Products of usable numbers exceed 1e-83, their squares are normal doubles. Rows of length below
    1e-150 have a multiplier of 0 in single precision.
    """
    total = xp.zeros(deltas[0].shape[:2], dtype=xp.float64, device=deltas[0].device)
    inputs = xp.asarray(input_norms, copy=True)[None, :, None]  # writable, as the others are
    for layer, delta in zip([inputs, *hidden], deltas):
        if is_numpy_array(delta):
            from ...kernels.network import add_squared_norms  # Numba is slow to import

            for row, *arrays in zip(total, cycle(layer), delta):
                add_squared_norms(row, *map(np.ascontiguousarray, arrays), bias)
        else:
            total += (_squares(xp, layer) + bias) * _squares(xp, delta)
    return xp.sqrt(xp.where(total < _SHORT_SQUARE, zero(xp, total), total))


def clip_factors(
    xp: Any, clipping: Clipping, norms: Any, losses: Any, counts: Any, dtype: Any
) -> tuple[Any, Any, Any]:
    """Return the factors of gradients, in ``dtype``, which are lost, and how many are clipped (R,).

    The factors (R, B) are weights times ``counts`` (B,). A gradient is lost if its norm or its
    weight is not finite; its factor is 0. The weight of a gradient without length is 0: the rule
    may lift it, and its norm may have lost all digits.
    """
    counts = xp.ones_like(norms[0, :]) if counts is None else xp.asarray(counts, copy=True)
    if is_numpy_array(norms):
        from ...kernels.kernel_table import built_in_rule
        from ...kernels.network import clip_factors as clip

        norms, losses = np.ascontiguousarray(norms), np.ascontiguousarray(losses)
        rule, weights = built_in_rule(clipping), np.empty(norms.shape)
        if rule[0] == UNCLIPPED:
            weights[...] = rule_weights(clipping, norms, losses)
        factors, lost = np.empty(norms.shape, dtype), np.empty(norms.shape, bool)
        public = clip_limits(np, clipping, dtype), _least_usable(np, dtype)
        clipped = [
            clip(rule, weights[k], norms[k], losses[k], counts, *public, factors[k], lost[k])
            for k in range(norms.shape[0])
        ]
        return factors, lost, np.array(clipped)
    weights = clip_to_bound(clipping, norms, losses, dtype)
    lost = ~(xp.isfinite(norms) & xp.isfinite(weights)) | xp.isnan(losses)
    clipped = xp.astype(((weights < 1.0) | lost) & (counts > 0.0), xp.int64)
    factors = usable(xp, xp.astype(xp.where(norms == 0.0, norms, weights) * counts, dtype))
    return xp.where(lost, zero(xp, factors), factors), lost, xp.sum(clipped, axis=1)


def add_gradients(
    xp: Any,
    totals: Any,
    layout: Layout,
    X: Any,
    scale: Any,
    hidden: Sequence[Any],
    deltas: Sequence[Any],
    factors: Any,
    rows: int = 1 << 30,
    dtype: Any = None,
) -> None:
    """Add the sum over samples of ``factors`` (R, B) times the gradient to ``totals`` (R, p).

    ``deltas`` may be overwritten. At most ``rows`` samples are added up in ``dtype``, by default
    that of the arrays, before their sum is added to ``totals``.
    """
    for i, (delta, (weights, bias)) in enumerate(zip(deltas, layout.slices())):
        delta = usable_product(xp, delta, factors)
        count = delta.shape[1]
        parts = -(-count // rows)  # as of row_blocks: several blocks or one have the same sums
        portions = list(pairwise(part * count // parts for part in range(parts + 1)))
        for lo, hi in portions if layout.bias else ():
            totals[:, bias] += xp.sum(_slice(delta, lo, hi), axis=1, dtype=totals.dtype)
        if i == 0 and scale is not None:
            delta = usable_product(xp, delta, scale)
        inputs = X if i == 0 else hidden[i - 1]
        for lo, hi in portions:
            part = _slice(delta, lo, hi, dtype)
            _add(totals[:, weights], _product_sum(xp, part, _slice(inputs, lo, hi, dtype)))


def _add(totals: Any, terms: Any) -> None:
    """Add ``terms`` (R, p) to ``totals``, float64."""
    if is_numpy_array(terms) and terms.dtype == np.float32:
        from ...kernels.network import add_rounded

        for total, term in zip(totals, terms):
            add_rounded(total, term)
    else:
        totals += terms


def _slice(array: Any, lo: int, hi: int, dtype: Any = None) -> Any:
    """Return samples ``lo`` to ``hi`` of (R, B, width) or (B, width) in ``dtype``."""
    if lo or hi < array.shape[-2]:
        if array.ndim == 3:
            array = array[:, lo:hi, :]
        else:
            array = array[lo:hi] if hasattr(array, "tocsr") else array[lo:hi, :]
    if dtype is None or array.dtype == dtype:
        return array
    if hasattr(array, "tocsr"):
        return array.astype(dtype)
    return array_namespace(array).astype(array, dtype)


def _product_sum(xp: Any, delta: Any, inputs: Any) -> Any:
    """Return the sum over samples of the outer products of delta and inputs, (R, out * in)."""
    replicates = delta.shape[0]
    if inputs.ndim == 3:
        product = xp.matmul(_transposed(xp, delta), inputs)
    else:
        flat = xp.reshape(xp.permute_dims(delta, (1, 0, 2)), (delta.shape[1], -1))
        product = flat.T @ inputs
    return xp.reshape(product, (replicates, -1))
