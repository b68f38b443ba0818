"""A copy of a module whose parameters are one vector, and gradients of its samples."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .layers import KNOWN, gradients
from .parts import Part, Whole
from .together import Placed
from .units import Call, LayerError, batchable, heard, of_samples, written_out

__all__ = ["LOSSES", "Loss", "Network", "same_kernels"]

Loss = Callable[[Tensor, Tensor], Tensor]
_OTHERWISE = "is not called in the same way each time"


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
    homes : dict of str to str
        Of each place of a trained parameter, the path of the layer whose calls give its
        gradients: at first the layer that holds it, see :meth:`move_up`.
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
        self._of_samples: dict[str, tuple[bool, ...]] = {}
        self._join()
        self.homes = {slot: slot.rpartition(".")[0] for slot in self._slots}
        self._watch()

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
            for name, parameter in layer.named_parameters(recurse=False, remove_duplicate=False)
            if id(parameter) in self._names
        }

    def _watch(self) -> None:
        """Note which layers are listened to, and for which parameters: place there, name."""
        self._watched: dict[str, list[tuple[str, str]]] = {}
        for slot, home in self.homes.items():
            place = slot[len(home) + 1 :] if home else slot
            self._watched.setdefault(home, []).append((place, self._slots[slot]))
        layers = dict(self.module.named_modules())
        self._layers = [(path, layers[path]) for path in self._watched]
        self._ruled = {
            path
            for path, places in self._watched.items()
            if type(layers[path]) in KNOWN and all("." not in place for place, _ in places)
        }

    def __getstate__(self) -> dict[str, Any]:
        own = ("_vector", "_names", "_slots", "_watched", "_layers", "_ruled")
        return {key: value for key, value in vars(self).items() if key not in own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._join()
        self._watch()

    def move_up(self, names: Sequence[str]) -> bool:
        """Let the next larger layers give the gradients of these parameters.

        Returns
        -------
        bool
            Whether any could, and some are not given by the module as a whole.
        """
        before = dict(self.homes)
        for slot, home in before.items():
            if self._slots[slot] in names:
                self.homes[slot] = home.rpartition(".")[0]
        self._watch()
        return self.homes != before and any(self.homes.values())

    def at_home(self, path: str) -> list[str]:
        """Return the parameters whose gradients come from the calls of a layer."""
        return [name for _, name in self._watched.get(path, [])]

    def look(self, x: Tensor) -> None:
        """Learn from a few samples which inputs of layers without a rule have samples.

        Raises
        ------
        LayerError
            If a layer takes anything else.
        """
        counts = len(x), len(x) - 1
        more, fewer = (self._without_rule(x[:count]) for count in counts)
        self._of_samples = {}
        for one, other in zip(more, fewer):
            if len(more) != len(fewer) or one.path != other.path:
                raise LayerError(one.path, _OTHERWISE)
            found = of_samples(one, other, counts)
            if self._of_samples.setdefault(one.path, found) != found:
                raise LayerError(one.path, _OTHERWISE)

    def _without_rule(self, x: Tensor) -> list[Call]:
        """Return the calls of layers without a rule that the samples bring about."""
        with self._listening() as calls, torch.enable_grad():
            self.module(x)
        return [call for call in calls if call.path not in self._ruled]

    @contextmanager
    def _listening(self) -> Iterator[list[Call]]:
        """Yield the list of the calls of layers that are made meanwhile."""
        calls: list[Call] = []

        def listen(path: str, layer: nn.Module, inputs: Any, named: Any, outputs: Any) -> Any:
            call, outputs = heard(path, layer, inputs, named, outputs)
            calls.append(call)
            return outputs

        hooks = [
            layer.register_forward_hook(partial(listen, path), with_kwargs=True)
            for path, layer in self._layers
        ]
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
        together layer by layer, where a layer without a rule runs once more; ``"vmap"`` has
        PyTorch write them all out; ``"loop"`` goes forth and back for one sample after the other.
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
        with batchable():
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
        outputs = [each for call in calls for each in call.outputs]
        deltas = iter(self._deltas(losses, outputs))
        found: dict[str, list[Part]] = {}
        for call in calls:
            parts = self._parts(call, [next(deltas) for _ in call.outputs], len(x))
            for place, name in self._watched[call.path] if parts else ():
                found.setdefault(name, []).append(parts[place])
        placed = [Placed(self.slices[name], _joined(parts)) for name, parts in found.items()]
        return losses.detach().to(torch.float64), placed

    def _deltas(self, losses: Tensor, outputs: list[Tensor]) -> Sequence[Tensor | None]:
        """Return the gradients of the samples' losses in what the layers gave."""
        return torch.autograd.grad(losses, outputs, torch.ones_like(losses), allow_unused=True)

    def _parts(self, call: Call, deltas: list[Tensor | None], count: int) -> Mapping[str, Part]:
        """Return the gradients of the samples in a layer's parameters; nothing for a lost call."""
        known = [delta for delta in deltas if delta is not None]
        ruled = call.path in self._ruled
        inputs = call.tensors[:1] if ruled else self._rows(call)
        if any(len(each) != count for each in (*inputs, *known)):
            raise LayerError(call.path, "does not keep the samples on its first axis")
        if not known:
            return {}
        if ruled:
            return gradients(call.layer, *inputs, *known)
        own = {place: self._trained[name] for place, name in self._watched[call.path]}
        try:
            found = written_out(call, self._of_samples[call.path], own, deltas)
        except Exception as error:  # whatever a layer or PyTorch says, another way may do
            raise LayerError(call.path, f"fails on one sample at a time: {error}") from error
        return {place: Whole(each) for place, each in found.items()}

    def _rows(self, call: Call) -> list[Tensor]:
        """Return the inputs of a layer without a rule that have samples."""
        flags, tensors = self._of_samples.get(call.path, ()), call.tensors
        if len(flags) != len(tensors):
            raise LayerError(call.path, _OTHERWISE)
        return [each for each, has_samples in zip(tensors, flags) if has_samples]


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
