"""Weak growth of a chain of layers: a bound on a sample's gradient in terms of its loss."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from ...theory.value_clipping import LayerSizes, growth_of_layers, spectral_bound
from ..networks.softmax import CrossEntropy
from .network import ModuleNetwork
from .per_sample import flattened_layers, is_modified


class _Link(NamedTuple):
    """A layer, with the shapes of one sample before and behind it."""

    layer: Any
    before: torch.Size
    behind: torch.Size


class Chain:
    r"""The layers of a Sequential, with the gradient bound that they imply.

    The constant is that of :func:`~dpanalysis.theory.value_clipping.growth_of_layers`, times that
    of the loss in the last layer's outputs: :math:`2\kappa` for cross-entropy
    (:func:`~dpanalysis.theory.weak_growth_softmax`), and 4/K for the mean of K squared errors,
    :math:`\|2e/K\|^2 = (4/K) f`. The layers contribute as follows.

    *Convolutions.* With the patches :math:`p_t` of the input, the outputs are :math:`K p_t`, where
    K is the kernel as a matrix (one for each group). On an axis with kernel k, stride s and
    dilation q, the entry at position x is in the patch that starts at :math:`s i` if
    :math:`x = s i + q j` for some j < k. These j are equal modulo s/gcd(s, q), so there are at most
    :math:`\lceil k \gcd(s, q)/s \rceil` of them. So an input entry is in at most m patches, the
    product over the axes, and :math:`\sum_t \|K p_t\|^2 \le \|K\|^2 \sum_t \|p_t\|^2 \le
    \|K\|^2 m \|x\|^2`. Zero padding does not change this, but it adds positions, and the bias is
    added at each; any other padding is refused.

    *Pooling.* Max pooling: the derivative has one 1 in each row and at most m in each column, so
    its norm is at most :math:`\sqrt m`. Average pooling over windows of k entries: rows sum to 1
    and columns to at most m/k, so the norm is at most :math:`\sqrt{m/k}`. Where windows at the
    border divide by fewer entries, a column may sum to up to m, and the bound is :math:`\sqrt m`;
    another divisor is refused.

    *ReLU and tanh* have slopes up to 1 and are 0 at 0. The outputs of tanh are at most 1 in size.

    Where two layers share a parameter its gradient is a sum, which is not bounded here: refused.
    """

    def __init__(self, network: ModuleNetwork, sample: Tensor, loss: Any) -> None:
        self._network = network
        self._links: list[_Link] = []
        x, met = torch.zeros_like(sample), set[int]()
        for path, layer in flattened_layers(network.module):
            name = f"{path} ({type(layer).__name__})" if path else type(layer).__name__
            why = _refusal(layer)
            parameters = {id(p) for p in layer.parameters() if network.trains(p)}
            if not why and parameters & met:
                why = "shares a parameter with another one"
            if why:
                raise ValueError(
                    f"value clipping needs a bound on the module's gradients, and its layer {name} "
                    f"{why}: clip by a rule that needs none, such as Flat(clip_norm)"
                )
            met |= parameters
            before = x.shape
            with torch.no_grad():
                x = layer(x)
            self._links.append(_Link(layer, before, x.shape))
        if loss == "cross_entropy":
            self._factor = CrossEntropy().weak_growth(1.0)[0]
        elif loss == "mse":
            self._factor = 4.0 / x.numel()
        else:
            raise ValueError(
                "value clipping needs loss='cross_entropy' or 'mse', for nothing is known of the "
                f"gradients of {loss!r}: clip by a rule that needs no losses, such as "
                "Flat(clip_norm)"
            )

    def beta1(self, radius: float) -> float:
        """Return the constant at the network's current parameters, for inputs of bounded norm."""
        with np.errstate(all="ignore"):
            return float(self._factor * growth_of_layers(radius, self.sizes()))

    def sizes(self) -> list[LayerSizes]:
        """Return the sizes of each layer at the current parameters."""
        return [_LAYERS[type(link.layer)](link, self._network) for link in self._links]


def _refusal(layer: Any) -> str:
    if type(layer) not in _LAYERS:
        known = ", ".join(kind.__name__ for kind in _LAYERS)
        return f"is none of {known} in a Sequential"
    if is_modified(layer):
        return "has hooks or a method of its own, which may do anything"
    if getattr(layer, "padding_mode", "zeros") != "zeros":
        return "pads by copies of entries"
    if getattr(layer, "return_indices", False):
        return "returns indices"
    if getattr(layer, "divisor_override", None) is not None:
        return "has a divisor of its own"
    return ""


def _as_array(parameter: Tensor) -> np.ndarray:
    return parameter.detach().to("cpu", torch.float64).numpy()


def _axes(value: Any, axes: int) -> tuple[int, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,) * axes


def _windows_per_entry(link: _Link) -> int:
    """Return the largest number of windows that contain one input entry."""
    layer, axes = link.layer, len(link.before) - 2
    most = 1
    for size, step, gap in zip(
        _axes(layer.kernel_size, axes),
        _axes(layer.stride, axes),
        _axes(getattr(layer, "dilation", 1), axes),
    ):
        most *= -(-size * math.gcd(step, gap) // step)
    return most


def _affine(link: _Link, network: ModuleNetwork, matrix: np.ndarray, reads: int) -> LayerSizes:
    """Return the sizes of a layer that multiplies its windows by a matrix or a stack of them."""
    layer = link.layer
    outputs = len(layer.weight)
    places = link.behind.numel() / outputs
    bias = layer.bias
    return LayerSizes(
        math.sqrt(reads) * float(np.max(spectral_bound(matrix))),
        float(reads) if network.trains(layer.weight) else 0.0,
        0.0 if bias is None else math.sqrt(places) * float(np.linalg.norm(_as_array(bias))),
        places if bias is not None and network.trains(bias) else 0.0,
    )


def _convolution(link: _Link, network: ModuleNetwork) -> LayerSizes:
    kernel, groups = _as_array(link.layer.weight), link.layer.groups
    matrix = kernel.reshape(groups, len(kernel) // groups, -1)
    return _affine(link, network, matrix, _windows_per_entry(link))


def _mean(link: _Link, network: ModuleNetwork) -> LayerSizes:
    layer, axes = link.layer, len(link.before) - 2
    entries = math.prod(_axes(layer.kernel_size, axes))
    padded = any(_axes(layer.padding, axes)) and not layer.count_include_pad
    fewer = padded or layer.ceil_mode
    return LayerSizes(math.sqrt(_windows_per_entry(link) / (1 if fewer else entries)))


_LAYERS: dict[type, Callable[[_Link, ModuleNetwork], LayerSizes]] = {
    nn.Linear: lambda link, network: _affine(link, network, _as_array(link.layer.weight), 1),
    nn.Conv1d: _convolution,
    nn.Conv2d: _convolution,
    **dict.fromkeys(
        (nn.MaxPool1d, nn.MaxPool2d),
        lambda link, _: LayerSizes(math.sqrt(_windows_per_entry(link))),
    ),
    nn.AvgPool1d: _mean,
    nn.AvgPool2d: _mean,
    nn.Tanh: lambda link, _: LayerSizes(1.0, most=math.sqrt(link.behind.numel())),
    **dict.fromkeys((nn.ReLU, nn.Flatten, nn.Identity), lambda link, _: LayerSizes(1.0)),
}
