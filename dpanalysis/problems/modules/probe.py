"""What is asked of a module before it sees a private record, on public samples made up for it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.utils._pytree import tree_flatten

from .network import Network, same_kernels
from .together import Together
from .units import LayerError

__all__ = ["choose_way", "made_up", "refuse_by_name", "same_gradients"]

_TRIED = 3  # samples; a first axis of another length is not that of the samples


def refuse_by_name(module: nn.Module) -> None:
    """Raise ValueError where a layer is known to mix samples, or to draw random numbers."""
    for path, layer in module.named_modules():
        why = _why_not(layer)
        if why:
            name = f"{path} ({type(layer).__name__})" if path else type(layer).__name__
            raise ValueError(f"module must keep its samples apart, but its layer {name} {why}")


def _why_not(layer: Any) -> str:
    if isinstance(layer, _BatchNorm):
        return "normalises over the batch: take GroupNorm or LayerNorm"
    if isinstance(layer, _InstanceNorm) and layer.track_running_stats:
        return "keeps statistics of the samples: set track_running_stats=False"
    random = isinstance(layer, (_DropoutNd, nn.RNNBase, nn.MultiheadAttention))
    if random and (layer.p if isinstance(layer, _DropoutNd) else layer.dropout) > 0.0:
        return "draws a mask that depends on the batch: set its dropout to 0"
    if isinstance(layer, (nn.Embedding, nn.EmbeddingBag)):
        if layer.max_norm is not None:
            return "changes its weights by the samples it sees: set max_norm=None"
        if layer.scale_grad_by_freq:
            return "scales gradients by the batch: set scale_grad_by_freq=False"
    if any(nn.parameter.is_lazy(each) for each in layer.parameters(recurse=False)):
        return "has no shape yet: call the module once on one sample"
    return ""


def made_up(network: Network, X: Tensor, y: Tensor, count: int, seed: int = 0) -> Any:
    """Return ``count`` samples and labels that could be records, from nothing private.

    Numbers are normal, tokens below the least number of embeddings, labels below the number of
    outputs.
    """
    generator = torch.Generator().manual_seed(seed)

    def like(array: Tensor, end: int) -> Tensor:
        shape = (count, *array.shape[1:])
        if array.dtype.is_floating_point:
            drawn = torch.randn(shape, generator=generator)
        else:
            drawn = torch.randint(0, end, shape, generator=generator)
        return drawn.to(dtype=array.dtype, device=array.device)

    tables = [e.num_embeddings for e in network.module.modules() if isinstance(e, nn.Embedding)]
    x = like(X, min(tables, default=2))
    classes = 1
    if not y.dtype.is_floating_point and y.ndim == 1:
        classes = int(network.outputs(x[:1]).shape[-1])
    return x, like(y, classes)


def choose_way(network: Network, X: Tensor, y: Tensor) -> tuple[int, int]:
    """Set how the network computes gradients of samples; return what that takes.

    Namely the numbers that are held for a sample, and the most outer products that a gradient
    is the sum of without being written out (0 for none).

    The gradients of a few samples in one go must be those of each sample alone. Layer by layer
    where that gives them, else by ``vmap``, else one by one. A parameter whose gradients a
    layer's calls do not give is left to the layer around it, and so on up to the module.

    Raises
    ------
    ValueError
        If the module fails on a sample, gives no loss a sample, or mixes samples.
    """
    with same_kernels():
        x, labels = made_up(network, X, y, _TRIED)
        before = [each.clone() for each in network.module.buffers()]
        alone = [network.losses(x[i : i + 1], labels[i : i + 1]) for i in range(_TRIED)]
        together = network.losses(x, labels)
        if together.shape != (_TRIED,) or any(each.shape != (1,) for each in alone):
            raise ValueError(
                f"loss must give one number a sample, ({_TRIED},) for {_TRIED} of them, got shape "
                f"{tuple(together.shape)}"
            )
        kept = all(map(torch.equal, before, network.module.buffers()))
        if not kept or not _close(network, together, torch.cat(alone)):
            raise ValueError(
                "module must keep its samples apart: the loss of a sample changes with the samples "
                f"beside it, or from one call to the next{_culprit(network, x)}"
            )
        network.way = "loop"
        expected = _each(network, x, labels)[0]
        for way, try_it in (("layers", _by_layers), ("vmap", _each)):
            network.way = way
            try:
                found, costs = try_it(network, x, labels, expected)
            except Exception:  # whatever a layer or PyTorch says, another way may do
                continue
            if _close(network, found, expected):
                return costs
        network.way = "loop"
        return network.size, 0


def _by_layers(network: Network, x: Tensor, y: Tensor, expected: Tensor) -> Any:
    """Return what :func:`_each` does, once each parameter is left to a layer that knows it.

    Raises
    ------
    LayerError
        If only the module as a whole is left: then there is no need of layers.
    """
    while True:
        try:
            network.look(x)
            result = _each(network, x, y)
        except LayerError as error:
            wrong, why = network.at_home(error.path), error
        else:
            wrong = [
                name
                for name, where in network.slices.items()
                if not _close(network, result[0][:, where], expected[:, where], expected)
            ]
            why = LayerError("", "has gradients that its layers do not give")
            if not wrong:
                return result
        if not network.move_up(wrong):
            raise why


def _culprit(network: Network, x: Tensor) -> str:
    """Return the layer that changes a sample by the others, for a message."""
    paths = {layer: path for path, layer in network.module.named_modules() if path}
    calls: list[tuple[nn.Module, list[Tensor], list[Tensor]]] = []

    def listen(layer: nn.Module, inputs: Any, outputs: Any) -> None:
        calls.append((layer, _first(inputs), _first(outputs)))

    hooks = [layer.register_forward_hook(listen) for layer in paths]
    try:
        for samples in (x, x[:1]):
            network.outputs(samples)
    finally:
        for hook in hooks:
            hook.remove()
    half = len(calls) // 2
    for (layer, given, gave), (other, as_given, as_gave) in zip(calls[:half], calls[half:]):
        if layer is other and _alike(given, as_given) and not _alike(gave, as_gave):
            return f"; its layer {paths[layer]} ({type(layer).__name__}) does it"
    return ""


def _first(tree: Any) -> list[Tensor]:
    """Return what belongs to the first sample."""
    return [e[0] for e in tree_flatten(tree)[0] if isinstance(e, Tensor) and e.ndim]


def _alike(ones: list[Tensor], others: list[Tensor]) -> bool:
    return len(ones) == len(others) and all(
        a.shape == b.shape and torch.allclose(a.double(), b.double(), rtol=1e-3, atol=1e-6)
        for a, b in zip(ones, others)
    )


def _each(network: Network, x: Tensor, y: Tensor, *more: Any) -> tuple[Tensor, tuple[int, int]]:
    """Return the gradients of the samples, (B, d), and what :func:`choose_way` returns."""
    _, placed = network.sample_gradients(x, y)
    together = Together(placed, network.vector)
    found = torch.stack([together.sum(unit) for unit in _units(x)])
    entries = sum(part.entries for _, part in placed) // len(x)
    return found, (entries, max((part.steps for _, part in placed), default=0))


def _units(x: Tensor) -> Tensor:
    """Return weights that choose one of the samples, (B, B)."""
    return torch.eye(len(x), dtype=torch.float64, device=x.device)


def _close(network: Network, found: Tensor, expected: Tensor, beside: Any = None) -> bool:
    """Whether two are equal but for rounding, in the size of what is expected, or is ``beside``."""
    tolerance = 1e-8 if network.vector.dtype == torch.float64 else 1e-3
    scale = (expected if beside is None else beside).abs().amax().clamp(min=1e-30)
    return bool(((found - expected).abs() <= tolerance * scale).all())


def same_gradients(network: Network, X: Tensor, y: Tensor, chunk: int, moved: bool) -> bool:
    """Return whether a sample's gradient keeps every bit when the others of its chunk change.

    Parameters
    ----------
    moved : bool
        Whether the sample moves to another place of the chunk, too.
    """
    x, labels = made_up(network, X, y, chunk, seed=1)
    others, other_labels = made_up(network, X, y, chunk, seed=2)
    place = chunk - 1 if moved else 0
    others[place], other_labels[place] = x[0], labels[0]
    found = []
    with same_kernels():
        for samples, marks, at in ((x, labels, 0), (others, other_labels, place)):
            _, placed = network.sample_gradients(samples, marks)
            together = Together(placed, network.vector)
            squares = together.squares(chunk)[at]
            found.append(torch.cat([together.sum(_units(samples)[at]), squares[None]]))
    return torch.equal(*found)
