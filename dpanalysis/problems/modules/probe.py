"""Checks of a module on random public samples, before it sees a private record."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.utils._pytree import tree_flatten

from ..._validation import check_choice
from .layers import LayerError, forward_hooks
from .network import LOSSES, Inputs, ModuleNetwork, naming_shapes, rows_of, same_kernels
from .per_sample import ChunkGradients, PlacedGradients, has_statistics, signature_error

_TRIED = 3  # random samples; a first axis of another length is not the sample axis
_SHORTEST = 16  # fewest samples of a shortened chunk
_COMPARED = 1024  # random samples that are computed at other places of their chunk
_MIXED = (
    "module must keep its samples apart: the loss of a sample changes with the samples beside it"
)


def refuse_by_name(module: nn.Module) -> None:
    """Raise ValueError if a layer is known to mix samples or to draw random numbers."""
    # In the mode set by the user. The problem computes in ``eval()`` mode, and must not silently
    # turn one layer into another.
    for path, layer in module.named_modules():
        why = _refusal(layer)
        if why:
            name = f"{path} ({type(layer).__name__})" if path else type(layer).__name__
            raise ValueError(f"module must keep its samples apart, but its layer {name} {why}")


def check_inputs(module: nn.Module, count: int) -> None:
    """Raise TypeError if ``forward`` does not take ``count`` inputs."""
    error = signature_error(module.forward, count)
    if error is not None:
        raise TypeError(
            "X must be what the module takes, one array or a tuple with an array for each input in "
            f"the order of forward{inspect.signature(module.forward)}, got {count}: {error}"
        )


def refuse_inference() -> None:
    """Raise ValueError in PyTorch's inference mode, which has no gradients."""
    if torch.is_inference_mode_enabled():
        raise ValueError(
            "a Module needs gradients: make it and train it outside of torch.inference_mode()"
        )


def check_loss(loss: Any) -> None:
    """Raise unless a loss is a known name or takes (outputs, y) without reducing the batch."""
    if not callable(loss):
        check_choice("loss", loss, tuple(LOSSES))
    elif (wrong := signature_error(loss, 2)) is not None:
        raise TypeError(f"loss must be a name or a function of (outputs, y): {wrong}")
    reduction = getattr(loss, "reduction", "none")
    if reduction in ("mean", "sum"):
        kind = type(loss).__name__
        names = {nn.CrossEntropyLoss: "'cross_entropy'", nn.MSELoss: "'mse'"}
        named = f", or loss={names[type(loss)]}" if type(loss) in names else ""
        raise ValueError(
            f"loss must give one number a sample, but {kind} has reduction={reduction!r} and gives "
            f"one for the batch: take {kind}(reduction='none'){named}"
        )


def _refusal(layer: Any) -> str:
    if isinstance(layer, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
        return "spreads each batch over devices: give the module that it holds, its .module"
    if isinstance(layer, _BatchNorm):
        if not has_statistics(layer):
            return (
                "normalizes over the batch, in eval() too, since it has no running statistics: "
                "take GroupNorm or LayerNorm"
            )
        if layer.training:
            return (
                f"normalizes over the batch{_though_frozen(layer)}: take GroupNorm or LayerNorm, "
                "or call eval() on it if its running statistics are public, as those of a "
                "pretrained network are"
            )
    if isinstance(layer, _InstanceNorm) and layer.track_running_stats and layer.training:
        return (
            f"keeps statistics of the samples{_though_frozen(layer)}: set "
            "track_running_stats=False, or call eval() on it if those that it has are public"
        )
    random = isinstance(layer, (_DropoutNd, nn.RNNBase, nn.MultiheadAttention))
    share = layer.p if isinstance(layer, _DropoutNd) else layer.dropout if random else 0.0
    if random and layer.training and share > 0.0:
        return (
            "draws a mask that depends on the batch: set its dropout to 0, or call eval() on it, "
            "which trains without dropout"
        )
    if isinstance(layer, nn.RReLU) and layer.training and layer.lower != layer.upper:
        return (
            "draws a slope for every entry: take LeakyReLU, or call eval() on it, which takes the "
            "mean slope"
        )
    if isinstance(layer, (nn.Embedding, nn.EmbeddingBag)):
        if layer.max_norm is not None:
            return "changes its weights by the samples it sees: set max_norm=None"
        if layer.scale_grad_by_freq:
            return "scales gradients by the batch: set scale_grad_by_freq=False"
        if layer.sparse:
            return "has sparse gradients: set sparse=False"
    trains = any(each.requires_grad for each in layer.parameters())
    if trains and isinstance(layer, torch.jit.ScriptModule):
        return "is TorchScript: give the torch.nn.Module that was scripted, or freeze it"
    sampled = any(hasattr(each, "grad_sample") for each in layer.parameters(recurse=False))
    if sampled and layer._forward_hooks:
        return "has hooks of Opacus: give what to_standard_module() of the wrapped module returns"
    if any(nn.parameter.is_lazy(each) for each in layer.parameters(recurse=False)):
        return "has no shape yet: call the module once on one sample"
    return ""


def _though_frozen(layer: nn.Module) -> str:
    parameters = list(layer.parameters())
    frozen = bool(parameters) and not any(each.requires_grad for each in parameters)
    return ", also with frozen parameters, while it is in train() mode" if frozen else ""


def random_samples(network: ModuleNetwork, X: Inputs, y: Tensor, count: int, seed: int = 0) -> Any:
    """Return ``count`` random samples and labels of the form of records, from public information.

    Real numbers are normal, tokens below the smallest number of embeddings, labels below the number
    of outputs; a mask of two or more entries has both values.
    """
    generator = torch.Generator().manual_seed(seed)

    def like(array: Tensor, end: int) -> Tensor:
        shape = (count, *array.shape[1:])
        if array.dtype.is_floating_point:
            drawn = torch.randn(shape, generator=generator)
        elif array.dtype == torch.bool:
            drawn = torch.randint(0, 2, shape, generator=generator)
            drawn.view(count, -1)[:, :2] = torch.tensor([1, 0])[: drawn[0].numel()]
        else:
            drawn = torch.randint(0, end, shape, generator=generator)
        return drawn.to(dtype=array.dtype, device=array.device)

    tables = [e.num_embeddings for e in network.module.modules() if isinstance(e, nn.Embedding)]
    x = tuple(like(each, min(tables, default=2)) for each in X)
    classes = 1
    if not y.dtype.is_floating_point and y.ndim == 1:
        network.restore()
        with naming_shapes(x):
            outputs = tree_flatten(network.outputs_together(rows_of(x, slice(1))))[0]
        sizes = (e.shape[-1] for e in outputs if isinstance(e, Tensor) and e.ndim)
        classes = min(sizes, default=1)
    return x, like(y, classes)


def random_parameters(start: Any, slices: Iterable[slice]) -> Tensor:
    """Return random parameters (d,), float64, near an array ``start``, and none of them zero.

    Where weights are zero, products and gradients have the same bits at every place. Private
    training adds noise to all of them.
    """
    drawn = torch.randn(len(start), generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    found = torch.as_tensor(start) * (1.0 + 0.1 * drawn)
    for where in slices:
        found[where] += (found[where] == 0.0) * drawn[where] / (where.stop - where.start) ** 0.5
    return found


def choose_gradient_mode(network: ModuleNetwork, X: Inputs, y: Tensor) -> tuple[int, int]:
    """Set how the network computes per-sample losses and gradients; return the costs.

    The costs are the entries stored per sample, and the largest number of outer products whose sum
    is a gradient that is not materialized (0 for none).

    The gradients of a few samples computed together must equal those of each sample alone. They are
    computed layer by layer if that is right, else by ``vmap``, else one by one. If a layer's calls
    do not give the gradients of a parameter, the enclosing layer is tried, and so on up to the
    module. No way lets samples mix; the comparisons are for correctness, not for privacy.
    """
    with same_kernels(network):
        x, labels = random_samples(network, X, y, _TRIED)
        alone = _losses_alone(network, x, labels)
        network.choose_forward(x)
        if network.forward != "direct":
            network.forward = "vmap"
            try:
                right = _close(network, network.losses(x, labels), alone)
            except Exception:  # whatever a layer or PyTorch raises, another way may work
                right = False
            network.forward = "vmap" if right else "loop"
        network.gradient_mode = "loop"
        expected, costs = _gradients_and_costs(network, x, labels)[0], (network.size, 0)
        for mode, try_it in (("layers", _by_layers), ("vmap", _gradients_and_costs)):
            network.gradient_mode = mode
            try:
                found, costs = try_it(network, x, labels, expected)
            except Exception:  # whatever a layer or PyTorch raises, another way may work
                continue
            if _close(network, found, expected):
                break
        else:
            network.gradient_mode, costs = "loop", (network.size, 0)
        if not _close(network, network.losses(x, labels), alone):
            raise ValueError(f"{_MIXED}, or from one call to the next")
        return costs


def _losses_alone(network: ModuleNetwork, x: Inputs, labels: Tensor) -> Tensor:
    """Return the losses of samples, each computed alone; raise if the samples mix."""
    network.restore()
    count = len(labels)
    before = [each.clone() for each in network.module.buffers()]
    parts = [[i] for i in range(count)]
    with naming_shapes(x):
        each = [network.losses_together(rows_of(x, part), labels[part]) for part in parts]
    together = network.losses_together(x, labels)
    if together.shape != (count,) or any(one.shape != (1,) for one in each):
        one = "" if together.ndim else ": losses of PyTorch need reduction='none'"
        raise ValueError(
            f"loss must give one number a sample, ({count},) for {count} of them, got shape "
            f"{tuple(together.shape)}{one}"
        )
    alone = torch.cat(each)
    kept = all(map(torch.equal, before, network.module.buffers()))
    if not network.weights_unchanged():
        raise ValueError("module must leave its trained parameters what they are, but changes them")
    network.restore()
    if not kept or not _close(network, together, alone):
        raise ValueError(f"{_MIXED}, or from one call to the next{_mixing_layer(network, x)}")
    return alone


def check_batch(network: ModuleNetwork, X: Inputs, y: Tensor, chunk: int) -> None:
    """Raise ValueError if a batch of a chunk's size changes the loss of a sample."""
    # Training would not notice, since it isolates samples, but the trained module would differ.
    with same_kernels(network):
        x, labels = random_samples(network, X, y, chunk)
        if not _close(network, _losses_together(network, x, labels), network.losses(x, labels)):
            raise ValueError(f"{_MIXED}{_mixing_layer(network, x)}")


def _by_layers(network: ModuleNetwork, x: Inputs, y: Tensor, expected: Tensor) -> Any:
    """Return gradients and costs, with each parameter assigned to a layer that gives them right."""
    while True:
        try:
            network.learn_calls(x, y)
            result = _gradients_and_costs(network, x, y)
        except LayerError as error:
            wrong, why = network.parameters_at(error.path), error
        else:
            wrong = [
                name
                for name, where in network.slices.items()
                if not _close(network, result[0][:, where], expected[:, where], expected)
            ]
            why = LayerError("", "has gradients that its layers do not give")
            if not wrong:
                return result
        if not network.use_parents(wrong):
            raise why


def _mixing_layer(network: ModuleNetwork, x: Inputs) -> str:
    """Return a description of the layer that mixes samples, for a message."""
    layers = [(path, layer) for path, layer in network.module.named_modules() if path]
    calls: list[tuple[str, nn.Module, Any, Any]] = []

    def listen(path: str, layer: nn.Module, inputs: Any, named: Any, outputs: Any) -> None:
        calls.append((path, layer, inputs, outputs))

    def calls_for(samples: Inputs) -> list[tuple[str, nn.Module, Any, Any]]:
        calls.clear()
        network.restore()
        with forward_hooks(layers, listen):
            network.outputs_together(samples)
        return [*calls]

    together = calls_for(x)
    for i in range(len(x[0])):
        for one, alone in zip(together, calls_for(rows_of(x, slice(i, i + 1)))):
            (path, layer, inputs, outputs), (_, other, own_inputs, own_outputs) = one, alone
            same = layer is other and _agree(inputs, own_inputs, i, len(x[0]))
            if same and not _agree(outputs, own_outputs, i, len(x[0])):
                return f"; its layer {path} ({type(layer).__name__}) does it"
    return ""


def _agree(together: Any, alone: Any, place: int, count: int) -> bool:
    """Return whether a sample has nearly the same tensors among ``count`` samples and alone.

    Compares those that have the samples on their first axis, unlike the states of an LSTM.
    """
    tensors = (
        [e for e in tree_flatten(tree)[0] if isinstance(e, Tensor) and e.ndim]
        for tree in (together, alone)
    )
    return all(
        a[place].shape == b[0].shape
        and torch.allclose(a[place].double(), b[0].double(), rtol=1e-3, atol=1e-6)
        for a, b in zip(*tensors)
        if len(a) == count and len(b) == 1
    )


def _gradients_and_costs(
    network: ModuleNetwork, x: Inputs, y: Tensor, *more: Any
) -> tuple[Tensor, tuple[int, int]]:
    """Return the gradients, (B, d), and the costs as in :func:`choose_gradient_mode`."""
    _, placed = network.sample_gradients(x, y)
    together = ChunkGradients(placed, network.vector)
    found = torch.stack([together.sum(unit) for unit in _units(y)])
    entries = sum(part.entries for _, part in placed) // len(y)
    return found, (entries, max((part.steps for _, part in placed), default=0))


def _units(y: Tensor) -> Tensor:
    """Return weights that each select one sample, (B, B)."""
    return torch.eye(len(y), dtype=torch.float64, device=y.device)


def _close(network: ModuleNetwork, found: Tensor, expected: Tensor, beside: Any = None) -> bool:
    """Whether two are equal up to rounding, relative to the size of ``expected`` or ``beside``."""
    tolerance = 1e-8 if network.vector.dtype == torch.float64 else 1e-3
    scale = (expected if beside is None else beside).abs().amax().clamp(min=1e-30)
    return bool(((found - expected).abs() <= tolerance * scale).all())


def same_gradients(network: ModuleNetwork, X: Inputs, y: Tensor, chunk: int) -> bool:
    """Return whether per-sample gradients keep every bit when the rest of the chunk changes."""
    # Every position of the chunk is both kept and changed, with numbers of several sizes. The
    # losses of one batched call must keep their bits too, and repeating a chunk must reproduce it.
    x, labels = random_samples(network, X, y, chunk, seed=1)
    generator = torch.Generator().manual_seed(2)
    first = (torch.rand(chunk, generator=generator) < 0.5).to(labels.device)
    every = torch.ones_like(first)
    with same_kernels(network):
        expected = network.sample_gradients(x, labels)[1]
        losses = _losses_together(network, x, labels)
        patterns = [(first, 1), (~first, 1000), (first, 0), (every, 1)]
        for kept, scale in patterns:
            others, marks = random_samples(network, X, y, chunk, seed=2)
            others = tuple(_scaled(each, scale) for each in others)
            for each, own in zip((*others, marks), (*x, labels)):
                each[kept] = own[kept]
            at = kept.nonzero().flatten()
            if network.gradient_mode != "loop" or bool(kept.all()):
                found = network.sample_gradients(others, marks)[1]
                if not _same_bits(network, (expected, at, chunk), (found, at, chunk)):
                    return False
            if not _equal(losses[at], _losses_together(network, others, marks)[at]):
                return False
    return True


def same_at_other_places(network: ModuleNetwork, X: Inputs, y: Tensor, chunk: int) -> bool:
    """Return whether losses and gradients keep every bit in other orders of their chunk."""
    # A record that is added moves the others by one; of few samples some agree by chance.
    generator = torch.Generator().manual_seed(3)
    for seed in range(max(1, _COMPARED // chunk)):
        x, labels = random_samples(network, X, y, chunk, seed=1 + seed)
        drawn = torch.randperm(chunk, generator=generator)
        places = torch.arange(chunk)
        with same_kernels(network):
            losses, expected = network.sample_gradients(x, labels)
            for order in (places.roll(1), places.flip(0), drawn):
                order, here = order.to(labels.device), places.to(labels.device)
                values, found = network.sample_gradients(rows_of(x, order), labels[order])
                same = _same_bits(network, (expected, order, chunk), (found, here, chunk))
                if not same or not _equal(values, losses[order]):
                    return False
    return True


def chunk_lengths(network: ModuleNetwork, X: Inputs, y: Tensor, chunk: int) -> tuple[int, ...]:
    """Return the allowed lengths of a chunk, in ascending order up to ``chunk``."""
    # In a shorter chunk random samples must have the same losses and gradients to the last bit.
    # If they do not (libraries divide small products differently), no shorter one is tried.
    found = [chunk]
    parts = (chunk * sixteenths // 16 for sixteenths in (8, 6, 5, 4, 2))
    shorter = [part for part in parts if part >= _SHORTEST]
    if not shorter or network.gradient_mode == "loop":
        return (chunk,)
    x, labels = random_samples(network, X, y, chunk, seed=1)
    with same_kernels(network):
        losses, whole = network.sample_gradients(x, labels)
        for length in shorter:
            values, gradients = network.sample_gradients(rows_of(x, slice(length)), labels[:length])
            first = torch.arange(length, device=labels.device)
            same = _same_bits(network, (whole, first, chunk), (gradients, first, length))
            if not same or not _equal(values, losses[:length]):
                break
            found.append(length)
    return tuple(reversed(found))


def _scaled(array: Tensor, scale: int) -> Tensor:
    """Return an input times ``scale``; tokens and masks, which are bounded, unchanged or zeros."""
    if array.dtype.is_floating_point:
        return array * scale
    return array if scale else torch.zeros_like(array)


def _losses_together(network: ModuleNetwork, x: Inputs, y: Tensor) -> Tensor:
    network.restore()
    return network.losses_together(x, y)


def _same_bits(
    network: ModuleNetwork, *gradients: tuple[list[PlacedGradients], Tensor, int]
) -> bool:
    """Return whether gradients at some positions agree: all norms, and the entries of some four."""
    found = []
    for placed, places, count in gradients:
        units = _units(places.new_empty(count))
        together = ChunkGradients(placed, network.vector)
        together.zero_out(units[places].sum(dim=0) == 0.0)
        few = units[places[:: max(1, len(places) // 4)]]
        sums = [together.sum(unit) for unit in few]
        found.append(torch.cat([together.squared_norms()[places], *sums]))
    return _equal(*found)


def _equal(first: Tensor, second: Tensor) -> bool:
    """Whether numbers are equal, with NaN equal to NaN."""
    return bool(((first == second) | (first.isnan() & second.isnan())).all())
