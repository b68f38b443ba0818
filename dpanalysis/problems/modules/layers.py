"""What a layer's inputs, and the loss's gradients in its outputs, say of its parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from .parts import Lookup, Outer, Part, Steps, Whole

__all__ = ["KNOWN", "gradients"]


def gradients(layer: nn.Module, inputs: Tensor, deltas: Tensor) -> dict[str, Part]:
    """Return the gradients of B samples in a layer's parameters, by their names.

    Parameters
    ----------
    layer : Module
        Of a class in :data:`KNOWN`.
    inputs : Tensor of shape (B, ...)
        What went into the layer.
    deltas : Tensor of shape (B, ...)
        Gradients of the samples' losses in what came out of it.
    """
    return KNOWN[type(layer)](layer, inputs, deltas)


def _product(deltas: Tensor, inputs: Tensor) -> Part:
    """Return the sum of T outer products a sample, of (B, T, out) and (B, T, in).

    Written out, unless that takes more than twice the memory of the products' factors.
    """
    steps, outputs, width = deltas.shape[1], deltas.shape[2], inputs.shape[2]
    if steps == 1:
        return Outer(deltas[:, 0], inputs[:, 0])
    if outputs * width > 2 * steps * (outputs + width):
        return Steps(deltas, inputs)
    return Whole(deltas.mT @ inputs)


def _linear(layer: Any, inputs: Tensor, deltas: Tensor) -> dict[str, Part]:
    count = len(deltas)
    deltas = deltas.reshape(count, -1, layer.out_features)
    inputs = inputs.reshape(count, -1, layer.in_features)
    bias = deltas[:, 0] if deltas.shape[1] == 1 else deltas.sum(dim=1)
    return {"weight": _product(deltas, inputs), "bias": Whole(bias)}


def _convolution(layer: Any, inputs: Tensor, deltas: Tensor) -> dict[str, Part]:
    count, groups = len(deltas), layer.groups
    kernel = layer.kernel_size
    windows, padding = inputs, layer._reversed_padding_repeated_twice
    if any(padding):
        mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
        windows = F.pad(inputs, padding, mode=mode)
    for axis, (size, step, gap) in enumerate(zip(kernel, layer.stride, layer.dilation), start=2):
        windows = windows.unfold(axis, (size - 1) * gap + 1, step)[..., ::gap]
    # (B, channels, places, kernel): a place's window is one row.
    windows = windows.unflatten(1, (groups, -1)).flatten(3, 2 + len(kernel)).flatten(4)
    windows = windows.permute(0, 1, 3, 2, 4).flatten(3)
    deltas = deltas.reshape(count, groups, layer.out_channels // groups, -1)
    one = groups == 1
    weight = _product(deltas[:, 0].mT, windows[:, 0]) if one else Whole(deltas @ windows)
    return {"weight": weight, "bias": Whole(deltas.sum(dim=3))}


def _embedding(layer: Any, inputs: Tensor, deltas: Tensor) -> dict[str, Part]:
    count = len(deltas)
    places = inputs.reshape(count, -1)
    deltas = deltas.reshape(count, places.shape[1], layer.embedding_dim)
    if layer.padding_idx is not None:
        deltas = deltas.masked_fill((places == layer.padding_idx)[:, :, None], 0.0)
    return {"weight": Lookup(deltas, places, layer.num_embeddings)}


def _group_norm(layer: Any, inputs: Tensor, deltas: Tensor) -> dict[str, Part]:
    normal = F.group_norm(inputs, layer.num_groups, eps=layer.eps)
    products = (deltas * normal).flatten(2) if deltas.ndim > 2 else (deltas * normal)[..., None]
    sums = deltas.flatten(2) if deltas.ndim > 2 else deltas[..., None]
    return {"weight": Whole(products.sum(dim=2)), "bias": Whole(sums.sum(dim=2))}


def _layer_norm(layer: Any, inputs: Tensor, deltas: Tensor) -> dict[str, Part]:
    shape = layer.normalized_shape
    normal = F.layer_norm(inputs, shape, eps=layer.eps)
    flat = (len(deltas), -1, *shape)
    return {
        "weight": Whole((deltas * normal).reshape(flat).sum(dim=1)),
        "bias": Whole(deltas.reshape(flat).sum(dim=1)),
    }


#: Layers that need no second pass. By exact class: a subclass may compute something else.
KNOWN: dict[type, Callable[[Any, Tensor, Tensor], dict[str, Part]]] = {
    nn.Linear: _linear,
    nn.Conv1d: _convolution,
    nn.Conv2d: _convolution,
    nn.Conv3d: _convolution,
    nn.Embedding: _embedding,
    nn.GroupNorm: _group_norm,
    nn.LayerNorm: _layer_norm,
}
