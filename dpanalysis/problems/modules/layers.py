r"""Per-sample gradients in the parameters of layers: their norms and weighted sums.

A part holds the per-sample gradients of one parameter for B samples, in the cheapest form:

- :class:`Materialized`: the B gradients themselves;
- :class:`OuterProducts`: :math:`\delta_i a_i^\top`, one outer product per sample, never formed;
- :class:`SummedOuterProducts`: :math:`\sum_t \delta_{it} a_{it}^\top`, one outer product for each
  of T positions of a sequence or an image. Its norm takes two matrices of T x T ("ghost norm").

All arithmetic here is in double precision, whatever the dtype of the module.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from functools import partial
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_flatten, tree_unflatten

from ...kernels.rounding import DOUBLE

Layers = Sequence[tuple[str, nn.Module]]


class LayerError(ValueError):
    """Per-sample gradients cannot be computed from a layer's calls; ``path`` identifies it."""

    def __init__(self, path: str, why: str = "is not called in the same way each time") -> None:
        super().__init__(f"layer {path or 'the module itself'} {why}")
        self.path = path


class LayerCall(NamedTuple):
    """One call of a layer: its flattened inputs and the form of its outputs.

    Tensors are those of B samples, (B, ...). ``shape`` is the tree structure of the inputs;
    ``outputs`` has the shape per sample, dtype and device of each floating-point output tensor.
    """

    path: str
    layer: nn.Module
    given: list[Any]
    shape: Any
    outputs: list[tuple[torch.Size, torch.dtype, torch.device]]

    @property
    def tensors(self) -> list[Tensor]:
        """The input tensors."""
        return [each for each in self.given if isinstance(each, Tensor)]


class CallSignature(NamedTuple):
    """Form of a call on random samples, which calls on other samples must match."""

    path: str
    tensors: int
    outputs: list[tuple[torch.Size, torch.dtype, torch.device]]

    def matches(self, call: LayerCall) -> bool:
        """Return whether a call has the same form, with any values."""
        return self == (call.path, len(call.tensors), call.outputs)


@contextmanager
def forward_hooks(layers: Layers, listen: Callable[..., Any]) -> Iterator[None]:
    """Call ``listen(path, layer, arguments, named, outputs)`` after each layer."""
    hooks = [
        layer.register_forward_hook(partial(listen, path), with_kwargs=True)
        for path, layer in layers
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def vmap_settings() -> Iterator[None]:
    """Use only kernels that ``torch.func.vmap`` supports, and silence its performance warnings."""
    attention = torch.backends.mha
    before = attention.get_fastpath_enabled()
    attention.set_fastpath_enabled(False)
    try:
        with warnings.catch_warnings(), sdpa_kernel(SDPBackend.MATH):
            warnings.filterwarnings("ignore", "There is a performance drop", UserWarning)
            yield
    finally:
        attention.set_fastpath_enabled(before)


def map_samples(function: Callable[..., Tensor], samples: Sequence[Tensor]) -> Tensor:
    """Return the values of a function of one sample for all samples, by ``torch.func.vmap``."""
    # No sample can affect another: ``vmap`` raises if the function branches on values, draws random
    # numbers, or writes a sample's values into a tensor shared by all.

    def one(*sample: Tensor) -> Tensor:
        # Under a derivative, recurrent layers are decomposed into operations that vmap supports.
        return torch.func.vjp(lambda _: function(*sample), torch.zeros(()))[0]

    with vmap_settings():
        return torch.func.vmap(one)(*samples)


def output_gradients(
    loss: Callable[..., Tensor],
    layers: Layers,
    samples: Sequence[Tensor],
    signatures: Sequence[CallSignature] | None,
) -> tuple[Tensor, list[LayerCall], list[list[Tensor]]]:
    """Return the losses of B samples, the layer calls, and the gradients in the layers' outputs.

    Each sample is processed separately, as in :func:`map_samples`. Zeros are added to the outputs
    of each layer; the loss is differentiated in these zeros.
    """
    calls: list[LayerCall] = []
    rows: list[list[Tensor]] = []

    def listen(
        zeros: Any, path: str, layer: nn.Module, arguments: Any, named: Any, outputs: Any
    ) -> Any:
        given, shape = tree_flatten((tuple(arguments), dict(named)))
        leaves, nested = tree_flatten(outputs)
        real = [k for k, each in enumerate(leaves) if _is_floating(each)]
        found = [(leaves[k].shape, leaves[k].dtype, leaves[k].device) for k in real]
        call = LayerCall(path, layer, given, shape, found)
        if signatures is not None:
            if len(calls) == len(signatures) or not signatures[len(calls)].matches(call):
                raise LayerError(path)
            for k, zero in zip(real, zeros[len(calls)]):
                leaves[k] = leaves[k] + zero
        calls.append(call)
        rows.append([each.detach() for each in call.tensors])
        return tree_unflatten(leaves, nested)

    def with_zeros(zeros: Any, *sample: Tensor) -> tuple[Tensor, Any]:
        calls.clear()
        rows.clear()
        with forward_hooks(layers, partial(listen, zeros[1:])):
            value = loss(*sample)
        if signatures is not None and len(calls) < len(signatures):
            raise LayerError(signatures[len(calls)].path)
        return value, (value.detach(), [*rows])

    zeros = [[torch.zeros(())]]  # the first in case that no layer is called
    for each in signatures or ():
        outs = each.outputs
        zeros.append([torch.zeros((), dtype=d, device=at).expand(size) for size, d, at in outs])
    both = torch.func.grad(with_zeros, has_aux=True)
    with vmap_settings():
        deltas, (losses, given) = torch.func.vmap(partial(both, zeros))(*samples)
    for call, tensors in zip(calls, given):
        places = [k for k, each in enumerate(call.given) if isinstance(each, Tensor)]
        for k, tensor in zip(places, tensors):
            call.given[k] = tensor
    return losses, calls, deltas[1:]


def call_signatures(
    loss: Callable[..., Tensor], layers: Layers, samples: Sequence[Tensor]
) -> list[CallSignature]:
    """Return the signatures of the layer calls for the given samples, at least two of them."""
    calls = output_gradients(loss, layers, samples, None)[1]
    return [CallSignature(call.path, len(call.tensors), call.outputs) for call in calls]


def _is_floating(each: Any) -> bool:
    return isinstance(each, Tensor) and each.dtype.is_floating_point


def materialized_gradients(
    call: LayerCall, own: dict[str, Tensor], deltas: Sequence[Tensor]
) -> dict[str, Tensor]:
    r"""Return the gradients of B samples in some parameters of a layer, (B, ...) each.

    The layer runs again for each sample separately, for all at once by ``torch.func.vmap``; the
    gradients are vector-Jacobian products of the gradients in the layer's outputs with its Jacobian
    in these parameters. Its other parameters are constants.
    """
    places = [k for k, each in enumerate(call.given) if isinstance(each, Tensor)]
    # vmap repeats tensors that do not depend on the sample without a copy, by a stride of 0. Which
    # ones do may change with the parameters.
    moving = [k for k in places if call.given[k].stride(0) != 0]
    fixed = {k: call.given[k][0] for k in places if k not in moving}

    def outputs(parameters: dict[str, Tensor], rows: Sequence[Tensor]) -> list[Tensor]:
        given = list(call.given)
        for k, each in (*fixed.items(), *zip(moving, rows)):
            given[k] = each
        arguments, named = tree_unflatten(given, call.shape)
        # Each parameter by its own name, see ModuleNetwork._by_vmap.
        found = torch.func.functional_call(
            call.layer, parameters, arguments, named, tie_weights=False
        )
        return [each for each in tree_flatten(found)[0] if _is_floating(each)]

    def gradients(delta: list[Tensor], *rows: Tensor) -> dict[str, Tensor]:
        back = torch.func.vjp(lambda parameters: outputs(parameters, rows), own)[1]
        return back(delta)[0]

    rows = [call.given[k] for k in moving]
    with vmap_settings():
        return torch.func.vmap(gradients)(list(deltas), *rows)


# Gradients in one parameter


# If the steps of a sample cancel by more than this factor, the size of its steps sets its norm.
MOST_CANCELLED = 1024.0


def module_rounding(n: int, d: int, chunk: int, steps: int) -> float:
    r"""Return a bound on the rounding error of a module's sum of clipped gradients.

    *Proof.* The term of record i is :math:`t_i = c_i g_i`, where :math:`g_i` is the vector that
    the parts represent: numbers computed by the module, or exact products and sums of products of
    them. Numbers in single precision are converted to double exactly.

    *One term.* For :class:`Materialized` and :class:`OuterProducts` the squared norm takes at most
    d squares and d - 1 additions in double, and the norm and the weight at most 16 more operations;
    all terms are positive. A gradient whose norm is below 1e-70 counts as zero; for a longer one,
    squares that underflow lose less than one rounding, since no factor of a product is longer than
    1e60 (:data:`_LARGEST_NORM`). For :class:`SummedOuterProducts` and :class:`EmbeddingGradients`
    the computed norm is never below the exact one. The weight makes the computed norm at most B, so
    :math:`\|t_i\| \le (1 + \gamma_{d+16}) B`.

    *The sum.* An entry passes through at most k roundings: one for each product of its chunk
    (``chunk``, times ``steps`` where the products of a sample are not added up before), one for
    each chunk, and a few for the weight. So it is :math:`\sum_i \sum_s t_{isj} (1 + \theta)`,
    :math:`|\theta| \le \gamma_k`, in whatever order it is added (Higham, *Accuracy and stability
    of numerical algorithms*, 2002, Lemma 3.1), and the error of the sum has a norm of at most
    :math:`\gamma_k \sum_i \sum_s \|t_{is}\|`. Without steps the inner sum is :math:`\|t_i\|`.
    With steps it is at most 1024 B, since the weight is computed from no less than a 1024th of it
    (:data:`MOST_CANCELLED`).

    *Requirements.* Double precision must follow IEEE 754: cuBLAS must not be set to emulate it
    (``CUBLAS_EMULATE_DOUBLE_PRECISION``). B must be far above the smallest numbers, as
    :class:`~dpanalysis.privacy.facts.PublicFacts` requires.
    """
    own = (d + 16) * DOUBLE / (1.0 - (d + 16) * DOUBLE)
    additions = chunk * max(1, steps) + n // chunk + 8
    share = additions * DOUBLE / (1.0 - additions * DOUBLE)
    return n * share * (MOST_CANCELLED if steps else 1.0) * (1.0 + own) + own


class ParameterGradients(ABC):
    """Gradients of B samples in one parameter of p entries.

    ``steps`` is the number of outer products per sample that enter one sum together with those of
    the other samples; 0 if the gradient of a sample is a single product or materialized.
    """

    steps: int = 0

    @abstractmethod
    def squared_norms(self) -> Tensor:
        """Return upper bounds on the squared norms, (B,), float64, up to a few roundings."""

    @abstractmethod
    def write_weighted_sum(self, out: Tensor, weights: Tensor) -> None:
        """Write the sum of the first gradients times ``weights`` (float64) into ``out`` (p,)."""

    @abstractmethod
    def materialize(self) -> Tensor:
        """Return the gradients themselves, (B, p), float64."""

    def without(self, lost: Tensor) -> Self:
        """Return the part with zeros for the ``lost`` samples, a mask (B,)."""
        kept = copy(self)
        for name, each in vars(self).items():
            if _is_floating(each):  # in an array of integers there is nothing to hide
                setattr(kept, name, _zeroed(each, lost))
        return kept

    @property
    def entries(self) -> int:
        """Number of stored entries."""
        return sum(each.numel() for each in vars(self).values() if isinstance(each, Tensor))


def _double(array: Tensor) -> Tensor:
    return array.to(torch.float64)


# A gradient with a factor longer than this counts as infinite. Squares of tiny entries in the other
# factor, or in other steps, may then underflow: the norm loses less than 1e-93.
_LARGEST_NORM = 1e60


def _norms_of(factors: Tensor) -> Tensor:
    """Return the norms of factors of outer products, inf for those above the limit."""
    norms = torch.linalg.vector_norm(factors, dim=-1)
    return torch.where(norms > _LARGEST_NORM, torch.inf, norms)


def _zeroed(array: Tensor, lost: Tensor) -> Tensor:
    """Return the array with zeros for the lost samples of the first axis."""
    return torch.where(lost.view(-1, *[1] * (array.ndim - 1)), 0.0, array)


# Rows of a product and numbers of materialized gradients to process at a time: with more, the
# arrays converted to double would leave the host's cache.
_ROWS, _NUMBERS = 128, 1 << 19


def _row_blocks(array: Tensor) -> Sequence[Tensor]:
    return array.split(_ROWS) if array.device.type == "cpu" else (array,)


def _write_product(out: Tensor, deltas: Tensor, inputs: Tensor) -> None:
    """Write the sum of the outer products of rows, (out, in), into ``out``.

    An entry passes through one addition per row, however the rows are divided.
    """
    table = out.view(deltas.shape[1], -1)
    blocks = zip(_row_blocks(deltas), _row_blocks(inputs))
    weighted, rows = next(blocks)
    torch.mm(weighted.T, _double(rows), out=table)
    for weighted, rows in blocks:
        table.addmm_(weighted.T, _double(rows))


class Materialized(ParameterGradients):
    """Gradients (B, ...) in memory."""

    def __init__(self, gradients: Tensor) -> None:
        self.gradients = gradients

    def squared_norms(self) -> Tensor:
        """Return the squared norms."""
        norms = [torch.linalg.vector_norm(_double(block), dim=1) for block in self._blocks()]
        return torch.cat(norms).square()

    def write_weighted_sum(self, out: Tensor, weights: Tensor) -> None:
        """Write the weighted sum, by matrix-vector products."""
        out.zero_()
        lo = 0
        for block in self._blocks(len(weights)):
            out.addmv_(_double(block).T, weights[lo : lo + len(block)])
            lo += len(block)

    def _blocks(self, count: int | None = None) -> Sequence[Tensor]:
        """Return the first ``count`` gradients in blocks of shape (., p)."""
        rows = self.rows()[:count]
        on_host = rows.device.type == "cpu"
        most = max(1, _NUMBERS // max(1, rows.shape[1])) if on_host else max(1, len(rows))
        return rows.split(most)

    def rows(self) -> Tensor:
        """Return the gradients in their original dtype, (B, p)."""
        return self.gradients[..., None].flatten(1)  # a parameter may be a scalar

    def materialize(self) -> Tensor:
        """Return the gradients."""
        return _double(self.rows())


class OuterProducts(ParameterGradients):
    """Gradients that are outer products of ``deltas`` (B, out) and ``inputs`` (B, in)."""

    def __init__(self, deltas: Tensor, inputs: Tensor) -> None:
        self._deltas, self._inputs = _double(deltas), inputs  # converted by blocks of rows

    def squared_norms(self) -> Tensor:
        """Return the squared norms, the squared products of the factors' norms."""
        inputs = torch.cat([_norms_of(_double(block)) for block in _row_blocks(self._inputs)])
        return (_norms_of(self._deltas) * inputs).square()

    def write_weighted_sum(self, out: Tensor, weights: Tensor) -> None:
        """Write the weighted sum, one product of two matrices."""
        count = len(weights)
        _write_product(out, weights[:, None] * self._deltas[:count], self._inputs[:count])

    def materialize(self) -> Tensor:
        """Return the outer products."""
        return (self._deltas[:, :, None] * _double(self._inputs)[:, None, :]).flatten(1)


class SummedOuterProducts(ParameterGradients):
    r"""Gradients that are sums of T outer products: ``deltas`` (B, T, out), ``inputs`` (B, T, in).

    The squared norm is :math:`\sum_{ts} \langle\delta_t, \delta_s\rangle \langle a_t, a_s\rangle`
    (Li et al., *Large language models can be strong differentially private learners*, 2022).
    With :math:`S = \sum_t \|\delta_t\| \|a_t\|` the absolute terms add up to at most :math:`S^2`,
    and each passes through at most k = T^2 + in + out + 4 roundings, so the computed sum errs
    by at most :math:`\gamma_k S^2` (in double). This bound is added, so that the result of
    :meth:`squared_norms` is never below the squared norm, however much the steps cancel.

    Likewise the error of the weighted sum is at most :math:`\gamma` times the sum of the weighted
    S, whereas a bound by the weighted norms is needed. So the squares are never less than
    :math:`(S / 1024)^2`: only a gradient whose steps cancel to a thousandth is overestimated.
    """

    def __init__(self, deltas: Tensor, inputs: Tensor) -> None:
        self._deltas, self._inputs = _double(deltas), _double(inputs)
        self.steps = deltas.shape[1]

    def squared_norms(self) -> Tensor:
        """Return upper bounds on the squared norms, by two matrices of T x T per sample."""
        deltas, inputs = self._deltas, self._inputs
        products = (deltas @ deltas.mT) * (inputs @ inputs.mT)
        sizes = (_norms_of(deltas) * _norms_of(inputs)).sum(dim=1).square()
        count = deltas.shape[1] ** 2 + deltas.shape[2] + inputs.shape[2]
        return _never_below(products.sum(dim=(1, 2)), sizes, count)

    def write_weighted_sum(self, out: Tensor, weights: Tensor) -> None:
        """Write the weighted sum, one product of two matrices over samples and positions."""
        count = len(weights)
        deltas = weights[:, None, None] * self._deltas[:count]
        _write_product(out, deltas.flatten(0, 1), self._inputs[:count].flatten(0, 1))

    def materialize(self) -> Tensor:
        """Return the sums of outer products."""
        return (self._deltas.mT @ self._inputs).flatten(1)


class EmbeddingGradients(ParameterGradients):
    """Gradients in a table of ``rows`` rows: ``deltas`` (B, T, width) at rows ``places`` (B, T).

    They are :class:`SummedOuterProducts` whose inputs are rows of the identity.
    """

    def __init__(self, deltas: Tensor, places: Tensor, rows: int) -> None:
        self._deltas, self._places, self._rows = _double(deltas), places, rows
        self.steps = deltas.shape[1]

    def squared_norms(self) -> Tensor:
        """Return upper bounds on the squared norms: only equal row indices interact."""
        deltas = self._deltas
        same = self._places[:, :, None] == self._places[:, None, :]
        sizes = torch.linalg.vector_norm(deltas, dim=2).sum(dim=1).square()
        found = (deltas @ deltas.mT).masked_fill(~same, 0.0).sum(dim=(1, 2))
        return _never_below(found, sizes, deltas.shape[1] ** 2 + deltas.shape[2])

    def write_weighted_sum(self, out: Tensor, weights: Tensor) -> None:
        """Write the table, with each weighted delta added to its row."""
        count = len(weights)
        deltas = (weights[:, None, None] * self._deltas[:count]).flatten(0, 1)
        places = self._places[:count].flatten()
        out.zero_().view(self._rows, -1).index_add_(0, places, deltas)

    def materialize(self) -> Tensor:
        """Return the tables of the samples."""
        count, _, width = self._deltas.shape
        tables = self._deltas.new_zeros(count, self._rows, width)
        index = self._places[:, :, None].expand(-1, -1, width)
        return tables.scatter_add_(1, index, self._deltas).flatten(1)


def _never_below(found: Tensor, sizes: Tensor, count: int) -> Tensor:
    """Return upper bounds on squared norms despite rounding, see :class:`SummedOuterProducts`.

    ``sizes`` are the squares of the sums of the steps' norms.
    """
    found = found.clamp(min=0.0) + (count + 64) * DOUBLE * sizes
    return torch.maximum(found, sizes / MOST_CANCELLED**2)


# Layers with a rule


def gradients(layer: nn.Module, inputs: Tensor, deltas: Tensor) -> dict[str, ParameterGradients]:
    """Return the gradients of B samples in a layer's parameters, by parameter name."""
    return RULES[type(layer)](layer, inputs, deltas)


def summed_outer_products(deltas: Tensor, inputs: Tensor) -> ParameterGradients:
    """Return the sum of T outer products per sample, of (B, T, out) and (B, T, in)."""
    steps, outputs, width = deltas.shape[1], deltas.shape[2], inputs.shape[2]
    if steps == 1:
        return OuterProducts(deltas[:, 0], inputs[:, 0])
    if factors_are_smaller(steps, outputs, width):
        return SummedOuterProducts(deltas, inputs)
    return Materialized(deltas.mT @ inputs)


def factors_are_smaller(steps: int, outputs: int, width: int) -> bool:
    """Return whether a materialized sum takes more than twice the memory of its factors."""
    return outputs * width > 2 * steps * (outputs + width)


def _linear(layer: Any, inputs: Tensor, deltas: Tensor) -> dict[str, ParameterGradients]:
    count = len(deltas)
    deltas = deltas.reshape(count, -1, layer.out_features)
    inputs = inputs.reshape(count, -1, layer.in_features)
    bias = deltas[:, 0] if deltas.shape[1] == 1 else deltas.sum(dim=1)
    return {"weight": summed_outer_products(deltas, inputs), "bias": Materialized(bias)}


def _convolution(layer: Any, inputs: Tensor, deltas: Tensor) -> dict[str, ParameterGradients]:
    count, groups, kernel = len(deltas), layer.groups, layer.kernel_size
    padding, axes = layer._reversed_padding_repeated_twice, len(layer.kernel_size)
    if any(padding):
        mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
        inputs = F.pad(inputs, padding, mode=mode)
    windows = inputs.movedim(1, -1).contiguous()
    for axis, (size, step, gap) in enumerate(zip(kernel, layer.stride, layer.dilation), start=1):
        windows = windows.unfold(axis, (size - 1) * gap + 1, step)[..., ::gap]
    # (B, groups, positions, channels, kernel): the window at a position is one row.
    windows = windows.unflatten(axes + 1, (groups, -1)).movedim(axes + 1, 1)
    deltas = deltas.reshape(count, groups, layer.out_channels // groups, -1)
    bias, steps = Materialized(deltas.sum(dim=3)), deltas.shape[3]
    width = windows[0, 0].numel() // steps
    if groups == 1 and (steps == 1 or factors_are_smaller(steps, layer.out_channels, width)):
        weight = summed_outer_products(deltas[:, 0].mT, windows.reshape(count, steps, width))
        return {"weight": weight, "bias": bias}
    # The channels of a position are adjacent in memory, and are copied together.
    rows = windows.movedim(axes + 2, -1)
    sums = deltas @ rows.reshape(count, groups, steps, width)
    return {
        "weight": Materialized(sums.unflatten(3, rows.shape[-axes - 1 :]).movedim(-1, 3)),
        "bias": bias,
    }


def _embedding(layer: Any, inputs: Tensor, deltas: Tensor) -> dict[str, ParameterGradients]:
    count = len(deltas)
    places = inputs.reshape(count, -1)
    deltas = deltas.reshape(count, places.shape[1], layer.embedding_dim)
    if layer.padding_idx is not None:
        deltas = deltas.masked_fill((places == layer.padding_idx)[:, :, None], 0.0)
    return {"weight": EmbeddingGradients(deltas, places, layer.num_embeddings)}


def _group_norm(layer: Any, inputs: Tensor, deltas: Tensor) -> dict[str, ParameterGradients]:
    normal = F.group_norm(inputs, layer.num_groups, eps=layer.eps)
    # Summed over all positions; without spatial axes there is one.
    weight, bias = (each[..., None].flatten(2).sum(dim=2) for each in (deltas * normal, deltas))
    return {"weight": Materialized(weight), "bias": Materialized(bias)}


def _layer_norm(layer: Any, inputs: Tensor, deltas: Tensor) -> dict[str, ParameterGradients]:
    shape = layer.normalized_shape
    normal = F.layer_norm(inputs, shape, eps=layer.eps)
    flat = (len(deltas), -1, *shape)
    return {
        "weight": Materialized((deltas * normal).reshape(flat).sum(dim=1)),
        "bias": Materialized(deltas.reshape(flat).sum(dim=1)),
    }


#: Rules of layers that need no second pass, by exact class: a subclass may compute something else.
RULES: dict[type, Callable[[Any, Tensor, Tensor], dict[str, ParameterGradients]]] = {
    nn.Linear: _linear,
    nn.Conv1d: _convolution,
    nn.Conv2d: _convolution,
    nn.Conv3d: _convolution,
    nn.Embedding: _embedding,
    nn.GroupNorm: _group_norm,
    nn.LayerNorm: _layer_norm,
}
