"""A copy of a module whose parameters are one vector, and gradients of its samples."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from .layers import KNOWN, gradients
from .parts import Part, Whole

__all__ = ["LOSSES", "Loss", "Network", "Placed", "same_kernels"]

Loss = Callable[[Tensor, Tensor], Tensor]


class Placed(NamedTuple):
    """Gradients in one parameter, and where it lies in the vector."""

    where: slice
    part: Part


class _Call(NamedTuple):
    """One call of a layer: what went in, what came out."""

    name: str
    layer: nn.Module
    inputs: Tensor
    outputs: Tensor


@contextmanager
def same_kernels() -> Iterator[None]:
    """Keep the libraries from choosing how to compute by what is computed.

    No search for the quickest convolution, deterministic ones, and no TF32 in them.
    """
    backend = torch.backends.cudnn
    with backend.flags(
        enabled=bool(backend.enabled), benchmark=False, deterministic=True, allow_tf32=False
    ):
        yield


class Network:
    """A private copy of a module: what is done to the user's own afterwards changes nothing.

    Parameters
    ----------
    module : Module
    loss : callable
        ``loss(outputs, y) -> (B,)``.
    dtype, device
        Of the parameters.

    Attributes
    ----------
    size : int
        Number of parameters that are trained.
    slices : dict of str to slice
        Where each of them lies in the vector.
    way : {"layers", "vmap", "loop"}
        How gradients of single samples are computed, see :meth:`sample_gradients`.
    """

    def __init__(self, module: nn.Module, loss: Loss, dtype: Any, device: Any) -> None:
        self.module = copy.deepcopy(module).to(dtype=dtype, device=device).eval()
        # What a layer gave must still be there when its gradient is asked for.
        each: Any
        for each in self.module.modules():
            if getattr(each, "inplace", False) is True:
                each.inplace = False
        self.loss, self.way = loss, "layers"
        named = self.module.named_parameters()
        trained: dict[str, Tensor] = {n: p for n, p in named if p.requires_grad}
        for parameter in self.module.parameters():
            parameter.requires_grad_(False)
        ends = torch.tensor([0, *(p.numel() for p in trained.values())]).cumsum(0).tolist()
        self.slices = {n: slice(a, b) for n, a, b in zip(trained, ends, ends[1:])}
        self.size = ends[-1]
        self._trained = trained
        self._join()

    def _join(self) -> None:
        """Make the parameters views of one vector."""
        first = next(iter(self._trained.values()))
        self._vector = torch.empty(self.size, dtype=first.dtype, device=first.device)
        for name, parameter in self._trained.items():
            piece = self._vector[self.slices[name]].view(parameter.shape)
            parameter.data = piece.copy_(parameter.data)
        self._names = {id(p): name for name, p in self._trained.items()}
        self._slots = {
            f"{path}.{name}" if path else name: self._names[id(parameter)]
            for path, layer in self.module.named_modules()
            for name, parameter in layer.named_parameters(recurse=False)
            if id(parameter) in self._names
        }
        self._layers = [
            (path, layer)
            for path, layer in self.module.named_modules()
            if type(layer) in KNOWN and any(id(p) in self._names for p in layer.parameters())
        ]

    def __getstate__(self) -> dict[str, Any]:
        own = ("_vector", "_names", "_slots", "_layers")
        return {key: value for key, value in vars(self).items() if key not in own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._join()

    @contextmanager
    def _listening(self) -> Iterator[list[_Call]]:
        """Yield the list of the calls of layers that are made meanwhile."""
        calls: list[_Call] = []

        def listen(path: str, layer: nn.Module, inputs: tuple[Any, ...], outputs: Tensor) -> Tensor:
            if not outputs.requires_grad:  # nothing before it is trained: the graph begins here
                outputs = outputs.detach().requires_grad_()
            calls.append(_Call(path, layer, inputs[0].detach(), outputs))
            return outputs

        hooks = [layer.register_forward_hook(partial(listen, path)) for path, layer in self._layers]
        try:
            yield calls
        finally:
            for hook in hooks:
                hook.remove()

    @property
    def vector(self) -> Tensor:
        """The parameters, in the dtype that is computed in."""
        return self._vector

    def trains(self, parameter: Tensor) -> bool:
        """Whether the parameter is part of the vector."""
        return id(parameter) in self._names

    def load(self, w: Tensor) -> None:
        """Take the parameters ``w`` (d,)."""
        self._vector.copy_(w)

    def outputs(self, x: Tensor) -> Tensor:
        """Return the outputs of the samples, without a graph."""
        with torch.no_grad():
            return self.module(x)

    def losses(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the losses of the samples, (B,), float64."""
        with torch.no_grad():
            return self.loss(self.module(x), y).to(torch.float64)

    def sample_gradients(self, x: Tensor, y: Tensor) -> tuple[Tensor, list[Placed]]:
        """Return the losses (B,), float64, and the gradients of the single samples.

        By ``way``: ``"layers"`` goes forth and back once for all samples and puts the gradients
        together layer by layer; ``"vmap"`` has PyTorch write them all out; ``"loop"`` goes forth
        and back for one sample after the other.
        """
        if self.way == "layers":
            return self._by_layers(x, y)
        if self.way == "vmap":
            found, values = self._written_out(x, y)
        else:
            each = [self._alone(x[i : i + 1], y[i : i + 1]) for i in range(len(x))]
            found = {n: torch.stack([grads[n] for grads, _ in each]) for n in self.slices}
            values = torch.cat([value for _, value in each])
        placed = [Placed(self.slices[name], Whole(found[name])) for name in self.slices]
        return values.detach().to(torch.float64), placed

    def _written_out(self, x: Tensor, y: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        def loss(parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
            return self.loss(self._called(parameters, x[None]), y[None])[0]

        each = torch.func.vmap(torch.func.grad_and_value(loss), in_dims=(None, 0, 0))
        with warnings.catch_warnings(), sdpa_kernel(SDPBackend.MATH):  # vmap knows no other
            # What has no rule for batches goes sample by sample: slower, and right.
            warnings.filterwarnings("ignore", "There is a performance drop", UserWarning)
            return each(self._trained, x, y)

    def _called(self, parameters: dict[str, Tensor], x: Tensor) -> Tensor:
        """Return the outputs for other parameters.

        Each layer is told by one of its names. Told by two, as PyTorch ties weights by itself, a
        layer that stands twice would keep these parameters for good.
        """
        placed = {slot: parameters[name] for slot, name in self._slots.items()}
        return torch.func.functional_call(self.module, placed, (x,), tie_weights=False)

    def _alone(self, x: Tensor, y: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        with torch.enable_grad():
            own = {n: p.detach().clone().requires_grad_() for n, p in self._trained.items()}
            value = self.loss(self._called(own, x), y)
            found = torch.autograd.grad(value.sum(), list(own.values()), allow_unused=True)
        filled = (torch.zeros_like(p) if g is None else g for p, g in zip(own.values(), found))
        return dict(zip(own, filled)), value.detach()

    def _by_layers(self, x: Tensor, y: Tensor) -> tuple[Tensor, list[Placed]]:
        with self._listening() as calls, torch.enable_grad():
            losses = self.loss(self.module(x), y)
        outputs = [call.outputs for call in calls]
        deltas = torch.autograd.grad(losses.sum(), outputs, allow_unused=True)
        found: dict[str, list[Part]] = {}
        for call, delta in zip(calls, deltas):
            if delta is None:
                continue
            if len(call.inputs) != len(x) or len(delta) != len(x):
                raise ValueError(f"layer {call.name} does not keep the samples on its first axis")
            parts = gradients(call.layer, call.inputs, delta)
            for name, parameter in call.layer.named_parameters():
                if id(parameter) in self._names:
                    found.setdefault(self._names[id(parameter)], []).append(parts[name])
        placed = [Placed(self.slices[name], _joined(parts)) for name, parts in found.items()]
        return losses.detach().to(torch.float64), placed


def _joined(parts: Sequence[Part]) -> Part:
    """Return one part for a parameter that several calls use: only their sum has a norm."""
    if len(parts) == 1:
        return parts[0]
    return Whole(torch.stack([part.whole() for part in parts]).sum(dim=0))


def _cross_entropy(outputs: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(outputs.to(torch.float64), y, reduction="none")


def _squared_error(outputs: Tensor, y: Tensor) -> Tensor:
    errors = outputs.to(torch.float64) - y.view_as(outputs)
    return errors.square().flatten(1).mean(dim=1)


#: Losses by name: of one sample each, in double precision.
LOSSES: dict[str, Loss] = {"cross_entropy": _cross_entropy, "mse": _squared_error}
