r"""Gradients of single samples in the parameters of layers: their norms and weighted sums.

A part holds what one chunk of B samples gives one parameter. It is kept in the form that costs
least:

- :class:`Materialized`: the B gradients themselves;
- :class:`OuterProducts`: :math:`\delta_i a_i^\top`, an outer product a sample, never formed;
- :class:`SummedOuterProducts`: :math:`\sum_t \delta_{it} a_{it}^\top`, one outer product for each
  of T places of a sequence or an image. Its norm takes two matrices of T x T ("ghost norm").

All arithmetic here is double, whatever the module computes in.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_flatten, tree_unflatten

from ...kernels.rounding import DOUBLE

Layers = Sequence[tuple[str, nn.Module]]


class LayerError(ValueError):
    """Gradients of samples cannot be put together from what a layer saw; ``path`` names it."""

    def __init__(self, path: str, why: str = "is not called in the same way each time") -> None:
        super().__init__(f"layer {path or 'the module itself'} {why}")
        self.path = path


class LayerCall(NamedTuple):
    """One call of a layer: everything that went in, in one row, and what came out.

    Tensors are those of B samples, (B, ...). ``shape`` is how the row was nested; ``outputs`` has
    the shape for one sample, dtype and device of each real tensor that came out.
    """

    path: str
    layer: nn.Module
    given: list[Any]
    shape: Any
    outputs: list[tuple[torch.Size, torch.dtype, torch.device]]

    @property
    def tensors(self) -> list[Tensor]:
        """The tensors that went in."""
        return [each for each in self.given if isinstance(each, Tensor)]


class CallSignature(NamedTuple):
    """A call as it was on random samples, and must be on others.

    ``batched`` is, of the tensors that went in, whether they depend on the sample.
    """

    path: str
    batched: tuple[bool, ...]
    outputs: list[tuple[torch.Size, torch.dtype, torch.device]]

    def matches(self, call: LayerCall) -> bool:
        """Return whether a call is the same but for its numbers."""
        alike = (self.path, self.outputs) == (call.path, call.outputs)
        return alike and len(call.tensors) == len(self.batched)


@contextmanager
def forward_hooks(layers: Layers, listen: Callable[..., Any]) -> Iterator[None]:
    """Call ``listen(path, layer, arguments, named, outputs)`` behind each layer."""
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
    """Keep to what ``torch.func.vmap`` knows, and be quiet where it goes sample by sample."""
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
    """Return the value of a function of one sample for each of them, by ``torch.func.vmap``."""
    # No sample can reach another: ``vmap`` raises where the function branches on numbers, draws
    # random ones, or writes a sample's into a tensor of them all.

    def one(*sample: Tensor) -> Tensor:
        # Below a derivative recurrent layers fall into parts, and these vmap knows.
        return torch.func.vjp(lambda _: function(*sample), torch.zeros(()))[0]

    with vmap_settings():
        return torch.func.vmap(one)(*samples)


def output_gradients(
    loss: Callable[..., Tensor],
    layers: Layers,
    samples: Sequence[Tensor],
    signatures: Sequence[CallSignature] | None,
) -> tuple[Tensor, list[LayerCall], list[list[Tensor]]]:
    """Return the losses of B samples, the calls, and the gradients in what came out of them.

    Every sample by itself, as in :func:`map_samples`. Zeros are added to what comes out of a layer,
    and the gradients in these are those wanted.
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

    zeros = [[torch.zeros(())]]  # the first for a module whose layers are not called
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
    """Return the calls that samples bring about, two of them or more."""
    calls = output_gradients(loss, layers, samples, None)[1]
    # vmap repeats, without a copy, what does not depend on the sample.
    return [
        CallSignature(call.path, tuple(each.stride(0) != 0 for each in call.tensors), call.outputs)
        for call in calls
    ]


def _is_floating(each: Any) -> bool:
    return isinstance(each, Tensor) and each.dtype.is_floating_point


def materialized_gradients(
    call: LayerCall, batched: Sequence[bool], own: dict[str, Tensor], deltas: Sequence[Tensor]
) -> dict[str, Tensor]:
    r"""Return the gradients of B samples in some parameters of a layer, (B, ...) each.

    The layer runs again for each sample by itself, all at once by ``torch.func.vmap``; the
    gradients are the products of its Jacobian in these parameters with the gradients in what
    came out of it. Its other parameters are constants.
    """
    places = [k for k, each in enumerate(call.given) if isinstance(each, Tensor)]
    moving = [k for k, has_samples in zip(places, batched) if has_samples]
    fixed = {k: call.given[k][0] for k in places if k not in moving}

    def outputs(parameters: dict[str, Tensor], rows: Sequence[Tensor]) -> list[Tensor]:
        given = list(call.given)
        for k, each in (*fixed.items(), *zip(moving, rows)):
            given[k] = each
        arguments, named = tree_unflatten(given, call.shape)
        # Each parameter by its own name, see Network._called.
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


# A sample whose steps cancel by more than this counts by the size of its steps.
MOST_CANCELLED = 1024.0


def module_rounding(n: int, d: int, chunk: int, steps: int) -> float:
    r"""Return a bound on the error of a computed sum of modules' clipped gradients.

    *Proof.* The term of record i is :math:`t_i = c_i g_i`, where :math:`g_i` is the vector that
    the parts hold: numbers, or exact products and sums of products of such numbers, which the
    module computed. Numbers in single precision are converted to double exactly.

    *One term.* Of :class:`Materialized` and :class:`OuterProducts` the squared norm takes at most
    d squares and d - 1 additions in double, and the norm and the weight at most 16 operations more;
    all terms are positive. A gradient whose norm is below 1e-70 counts as zero; of a longer one
    squares lose less than one rounding where they underflow, for no factor of a product is longer
    than 1e60 (:data:`_LARGEST_NORM`). Of :class:`SummedOuterProducts` and
    :class:`EmbeddingGradients` it is never below the exact one. The weight leaves the computed norm
    at most B, so :math:`\|t_i\| \le (1 + \gamma_{d+16}) B`.

    *The sum.* An entry passes through at most k roundings: one for each product of its chunk
    (``chunk``, times ``steps`` where the products of a sample are not added up before), one for
    each chunk, and a few for the weight. So it is :math:`\sum_i \sum_s t_{isj} (1 + \theta)`,
    :math:`|\theta| \le \gamma_k`, in whatever order it is added (Higham, *Accuracy and stability
    of numerical algorithms*, 2002, Lemma 3.1), and the error of the sum has a norm of at most
    :math:`\gamma_k \sum_i \sum_s \|t_{is}\|`. Without steps the inner sum is :math:`\|t_i\|`.
    With steps it is at most 1024 B, for the weight is computed from no less than a 1024th of it
    (:data:`MOST_CANCELLED`).

    *Needed.* Double precision as IEEE 754 has it: cuBLAS must not be told to emulate it
    (``CUBLAS_EMULATE_DOUBLE_PRECISION``). B must be far above the smallest numbers, as
    :class:`~dpanalysis.privacy.facts.PublicFacts` demands.
    """
    own = (d + 16) * DOUBLE / (1.0 - (d + 16) * DOUBLE)
    additions = chunk * max(1, steps) + n // chunk + 8
    share = additions * DOUBLE / (1.0 - additions * DOUBLE)
    return n * share * (MOST_CANCELLED if steps else 1.0) * (1.0 + own) + own


class ParameterGradients(ABC):
    """Gradients of B samples in one parameter of p entries.

    ``steps`` is the number of outer products that are added up for a sample together with those of
    the others; 0 where the gradient of a sample is one product, or materialized.
    """

    steps: int = 0

    @abstractmethod
    def squared_norms(self) -> Tensor:
        """Return upper bounds on the squared norms, (B,), float64, but for a few roundings."""

    @abstractmethod
    def write_weighted_sum(self, out: Tensor, weights: Tensor) -> None:
        """Write the sum of ``weights``, float64, times as many gradients into ``out`` (p,)."""

    @abstractmethod
    def without(self, lost: Tensor) -> ParameterGradients:
        """Return the part with zeros for the samples that are ``lost`` (B,)."""

    @abstractmethod
    def materialize(self) -> Tensor:
        """Return the gradients themselves, (B, p), float64."""

    @property
    def entries(self) -> int:
        """Numbers that are held."""
        return sum(each.numel() for each in vars(self).values() if isinstance(each, Tensor))


def _double(array: Tensor) -> Tensor:
    return array.to(torch.float64)


# A gradient with a factor longer than this counts as infinite. Squares of tiny entries in the other
# factor, or in other steps, may then underflow: the norm loses less than 1e-93.
_LARGEST_NORM = 1e60


def _norms_of(factors: Tensor) -> Tensor:
    """Return the norms of factors of outer products, inf for those that are too long."""
    norms = torch.linalg.vector_norm(factors, dim=-1)
    return torch.where(norms > _LARGEST_NORM, torch.inf, norms)


def _zeroed(array: Tensor, lost: Tensor) -> Tensor:
    """Return the array with zeros for the lost samples of the first axis."""
    return torch.where(lost.view(-1, *[1] * (array.ndim - 1)), 0.0, array)


# Of a product and of materialized gradients, so many rows and numbers at a time: of more, what is
# converted to double leaves the host's cache.
_ROWS, _NUMBERS = 128, 1 << 19


def _write_product(out: Tensor, deltas: Tensor, inputs: Tensor) -> None:
    """Write the sum of the outer products of rows, (out, in), into ``out``.

    An entry passes through one addition for each row, in whatever parts they are taken.
    """
    rows = _ROWS if out.device.type == "cpu" else max(1, len(deltas))
    table = out.view(deltas.shape[1], -1)
    torch.mm(deltas[:rows].T, inputs[:rows], out=table)
    for lo in range(rows, len(deltas), rows):
        table.addmm_(deltas[lo : lo + rows].T, inputs[lo : lo + rows])


class Materialized(ParameterGradients):
    """Gradients (B, ...) in memory."""

    def __init__(self, gradients: Tensor) -> None:
        self.gradients = gradients

    def squared_norms(self) -> Tensor:
        """Return the squared norms."""
        norms = [torch.linalg.vector_norm(_double(block), dim=1) for block in self._blocks()]
        return torch.cat(norms).square()

    def write_weighted_sum(self, out: Tensor, weights: Tensor) -> None:
        """Write the weighted sum, products of a vector and a matrix."""
        out.zero_()
        lo = 0
        for block in self._blocks(len(weights)):
            out.addmv_(_double(block).T, weights[lo : lo + len(block)])
            lo += len(block)

    def _blocks(self, count: int | None = None) -> Sequence[Tensor]:
        """Return the first ``count`` gradients, (., p) each."""
        rows = self.rows()[:count]
        on_host = rows.device.type == "cpu"
        most = max(1, _NUMBERS // max(1, rows.shape[1])) if on_host else max(1, len(rows))
        return rows.split(most)

    def without(self, lost: Tensor) -> Materialized:
        """Return the part without the lost samples."""
        return Materialized(_zeroed(self.gradients, lost))

    def rows(self) -> Tensor:
        """Return the gradients as they were computed, (B, p)."""
        return self.gradients[..., None].flatten(1)  # a parameter may have no axis

    def materialize(self) -> Tensor:
        """Return the gradients."""
        return _double(self.rows())


class OuterProducts(ParameterGradients):
    """Gradients that are outer products of ``deltas`` (B, out) and ``inputs`` (B, in)."""

    def __init__(self, deltas: Tensor, inputs: Tensor) -> None:
        self._deltas, self._inputs = _double(deltas), _double(inputs)

    def squared_norms(self) -> Tensor:
        """Return the squared norms: an outer product's is the product of the norms."""
        return (_norms_of(self._deltas) * _norms_of(self._inputs)).square()

    def write_weighted_sum(self, out: Tensor, weights: Tensor) -> None:
        """Write the weighted sum, one product of two matrices."""
        count = len(weights)
        _write_product(out, weights[:, None] * self._deltas[:count], self._inputs[:count])

    def without(self, lost: Tensor) -> OuterProducts:
        """Return the part without the lost samples."""
        return OuterProducts(_zeroed(self._deltas, lost), _zeroed(self._inputs, lost))

    def materialize(self) -> Tensor:
        """Return the outer products."""
        return (self._deltas[:, :, None] * self._inputs[:, None, :]).flatten(1)


class SummedOuterProducts(ParameterGradients):
    r"""Gradients that are sums of T outer products: ``deltas`` (B, T, out), ``inputs`` (B, T, in).

    The squared norm is :math:`\sum_{ts} \langle\delta_t, \delta_s\rangle \langle a_t, a_s\rangle`
    (Li et al., *Large language models can be strong differentially private learners*, 2022).
    With :math:`S = \sum_t \|\delta_t\| \|a_t\|` the terms' sizes add up to at most :math:`S^2`,
    and each passes through at most k = T^2 + in + out + 4 roundings, so the computed sum is off
    by at most :math:`\gamma_k S^2` (in double). That is added, so that what :meth:`squared_norms`
    returns is never below the squared norm, however much the steps cancel.

    In the same way the weighted sum is off by :math:`\gamma` times the sum of the weighted S,
    where a bound by the weighted norms is wanted. So the squares are never less than
    :math:`(S / 1024)^2`: only a gradient whose steps cancel to a thousandth counts for more
    than it is.
    """

    def __init__(self, deltas: Tensor, inputs: Tensor) -> None:
        self._deltas, self._inputs = _double(deltas), _double(inputs)
        self.steps = deltas.shape[1]

    def squared_norms(self) -> Tensor:
        """Return upper bounds on the squared norms, by two matrices of T x T a sample."""
        deltas, inputs = self._deltas, self._inputs
        products = (deltas @ deltas.mT) * (inputs @ inputs.mT)
        sizes = (_norms_of(deltas) * _norms_of(inputs)).sum(dim=1).square()
        count = deltas.shape[1] ** 2 + deltas.shape[2] + inputs.shape[2]
        return _never_below(products.sum(dim=(1, 2)), sizes, count)

    def write_weighted_sum(self, out: Tensor, weights: Tensor) -> None:
        """Write the weighted sum, one product of two matrices over samples and places."""
        count = len(weights)
        deltas = weights[:, None, None] * self._deltas[:count]
        _write_product(out, deltas.flatten(0, 1), self._inputs[:count].flatten(0, 1))

    def without(self, lost: Tensor) -> SummedOuterProducts:
        """Return the part without the lost samples."""
        return SummedOuterProducts(_zeroed(self._deltas, lost), _zeroed(self._inputs, lost))

    def materialize(self) -> Tensor:
        """Return the sums of outer products."""
        return (self._deltas.mT @ self._inputs).flatten(1)


class EmbeddingGradients(ParameterGradients):
    """Gradients in a table of ``rows`` rows: ``deltas`` (B, T, width) fall to ``places`` (B, T).

    It is :class:`SummedOuterProducts` with rows of the identity for inputs.
    """

    def __init__(self, deltas: Tensor, places: Tensor, rows: int) -> None:
        self._deltas, self._places, self._rows = _double(deltas), places, rows
        self.steps = deltas.shape[1]

    def squared_norms(self) -> Tensor:
        """Return upper bounds on the squared norms: only equal places meet."""
        deltas = self._deltas
        same = self._places[:, :, None] == self._places[:, None, :]
        sizes = torch.linalg.vector_norm(deltas, dim=2).sum(dim=1).square()
        found = (deltas @ deltas.mT).masked_fill(~same, 0.0).sum(dim=(1, 2))
        return _never_below(found, sizes, deltas.shape[1] ** 2 + deltas.shape[2])

    def write_weighted_sum(self, out: Tensor, weights: Tensor) -> None:
        """Write the table with each weighted delta in the row of its place."""
        count = len(weights)
        deltas = (weights[:, None, None] * self._deltas[:count]).flatten(0, 1)
        places = self._places[:count].flatten()
        out.zero_().view(self._rows, -1).index_add_(0, places, deltas)

    def without(self, lost: Tensor) -> EmbeddingGradients:
        """Return the part without the lost samples."""
        return EmbeddingGradients(_zeroed(self._deltas, lost), self._places, self._rows)

    def materialize(self) -> Tensor:
        """Return the tables of the samples."""
        count, _, width = self._deltas.shape
        tables = self._deltas.new_zeros(count, self._rows, width)
        index = self._places[:, :, None].expand(-1, -1, width)
        return tables.scatter_add_(1, index, self._deltas).flatten(1)


def _never_below(found: Tensor, sizes: Tensor, count: int) -> Tensor:
    """Return squared norms that rounding has not made too small, see :class:`SummedOuterProducts`.

    ``sizes`` are the squares of the sums of the steps' norms.
    """
    found = found.clamp(min=0.0) + (count + 64) * DOUBLE * sizes
    return torch.maximum(found, sizes / MOST_CANCELLED**2)


# Layers with a rule


def gradients(layer: nn.Module, inputs: Tensor, deltas: Tensor) -> dict[str, ParameterGradients]:
    """Return the gradients of B samples in a layer's parameters, by their names."""
    return RULES[type(layer)](layer, inputs, deltas)


def summed_outer_products(deltas: Tensor, inputs: Tensor) -> ParameterGradients:
    """Return the sum of T outer products a sample, of (B, T, out) and (B, T, in)."""
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
    # (B, groups, places, channels, kernel): a place's window is one row.
    windows = windows.unflatten(axes + 1, (groups, -1)).movedim(axes + 1, 1)
    deltas = deltas.reshape(count, groups, layer.out_channels // groups, -1)
    bias, steps = Materialized(deltas.sum(dim=3)), deltas.shape[3]
    width = windows[0, 0].numel() // steps
    if groups == 1 and (steps == 1 or factors_are_smaller(steps, layer.out_channels, width)):
        weight = summed_outer_products(deltas[:, 0].mT, windows.reshape(count, steps, width))
        return {"weight": weight, "bias": bias}
    # The channels of a place lie side by side, and are copied so.
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
    # Over all places, of which there is one where there are no axes for them.
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


#: Layers that need no second pass. By exact class: a subclass may compute something else.
RULES: dict[type, Callable[[Any, Tensor, Tensor], dict[str, ParameterGradients]]] = {
    nn.Linear: _linear,
    nn.Conv1d: _convolution,
    nn.Conv2d: _convolution,
    nn.Conv3d: _convolution,
    nn.Embedding: _embedding,
    nn.GroupNorm: _group_norm,
    nn.LayerNorm: _layer_norm,
}
