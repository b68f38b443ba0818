"""Which modules compute every sample by itself: known from their classes, not from trying."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["altered", "in_order", "keeps_apart"]


def altered(layer: nn.Module) -> bool:
    """Return whether an object computes something else than its class says.

    By hooks (the hooks of the backward pass change gradients), by methods that were set on the
    object, or by parameters that are not plain ones.
    """
    own: Any = layer
    hooks = own._forward_hooks, own._forward_pre_hooks, own._backward_hooks, own._backward_pre_hooks
    methods = (callable(getattr(type(layer), name, None)) for name in vars(layer))
    compiled = vars(layer).get("_compiled_call_impl") is not None
    parameters = (each for each in own._parameters.values() if each is not None)
    plain = all(type(each) is nn.Parameter for each in parameters)
    return any(map(bool, hooks)) or any(methods) or compiled or not plain


def in_order(module: nn.Module, path: str = "") -> Iterator[tuple[str, nn.Module]]:
    """Yield the layers of nested Sequentials in the order in which a sample meets them."""
    if type(module) is not nn.Sequential or altered(module):
        yield path, module
        return
    for name, layer in module._modules.items():
        if layer is not None:
            yield from in_order(layer, f"{path}.{name}" if path else name)


def keeps_apart(module: nn.Module, x: Tensor) -> bool:
    """Return whether the module is a Sequential of layers that look at one sample at a time.

    The layers are those of PyTorch, by exact class and without hooks, in ``eval()`` mode, where
    the axis of the samples is not among those that they work on. Other modules may well keep
    samples apart; this is not known of them.

    Parameters
    ----------
    module : Module
    x : Tensor of shape (B, ...)
        Samples; their number of axes counts.
    """
    for _, layer in in_order(module):
        axes = _AXES.get(type(layer))
        if axes is None or altered(layer) or layer.training or not axes(layer, x.ndim):
            return False
        with torch.no_grad():
            x = layer(x)
        if not isinstance(x, Tensor):
            return False
    return True


def _any(layer: Any, ndim: int) -> bool:
    return ndim >= 1


def _behind(layer: Any, ndim: int) -> bool:
    return ndim >= 2


def _spatial(axes: int) -> Callable[[Any, int], bool]:
    """Layers over 1 to 3 axes take an array without samples, too, which has an axis less."""
    return lambda layer, ndim: ndim == axes + 2


def _one_axis(layer: Any, ndim: int) -> bool:
    """Without ``dim`` a softmax takes the axis of the samples for arrays of 1 or 3 axes."""
    return layer.dim is not None and -ndim < layer.dim < ndim and layer.dim != 0


def _last_axes(layer: Any, ndim: int) -> bool:
    return len(layer.normalized_shape) < ndim


def _flatten(layer: Any, ndim: int) -> bool:
    return layer.start_dim >= 1 and (layer.end_dim >= 1 or layer.end_dim == -1) and ndim >= 2


#: For each class: whether a layer leaves the first of so many axes alone.
_AXES: dict[type, Callable[[Any, int], bool]] = {
    nn.Linear: _behind,
    nn.Embedding: _any,
    nn.GroupNorm: _behind,
    nn.LayerNorm: _last_axes,
    nn.RMSNorm: _last_axes,
    nn.Flatten: _flatten,
    nn.Softmax: _one_axis,
    nn.LogSoftmax: _one_axis,
    nn.Softmin: _one_axis,
    nn.GLU: _one_axis,
    nn.Softmax2d: _spatial(2),
    nn.PReLU: _behind,
    **dict.fromkeys(
        (
            *(nn.Identity, nn.Dropout, nn.AlphaDropout, nn.FeatureAlphaDropout),
            *(nn.Dropout1d, nn.Dropout2d, nn.Dropout3d),
            *(nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.RReLU, nn.ELU, nn.CELU, nn.SELU, nn.GELU),
            *(nn.SiLU, nn.Mish, nn.Softplus, nn.Softsign, nn.Tanh, nn.Sigmoid, nn.LogSigmoid),
            *(nn.Hardtanh, nn.Hardsigmoid, nn.Hardswish, nn.Hardshrink, nn.Softshrink),
            *(nn.Tanhshrink, nn.Threshold),
        ),
        _any,
    ),
    **{
        getattr(nn, f"{kind}{axes}d"): _spatial(axes)
        for axes in (1, 2, 3)
        for kind in (
            *("Conv", "ConvTranspose", "InstanceNorm"),
            *("MaxPool", "AvgPool", "AdaptiveMaxPool", "AdaptiveAvgPool"),
            *("ZeroPad", "ConstantPad", "ReflectionPad", "ReplicationPad", "CircularPad"),
        )
    },
}
