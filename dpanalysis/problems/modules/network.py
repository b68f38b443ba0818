"""A copy of a module whose parameters are one vector, with its per-sample gradients."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .layers import (
    RULES,
    CallSignature,
    LayerCall,
    LayerError,
    Materialized,
    ParameterGradients,
    call_signatures,
    forward_hooks,
    gradients,
    map_samples,
    materialized_gradients,
    output_gradients,
    vmap_settings,
)
from .per_sample import ModuleState, PlacedGradients, UserFunction, is_modified, is_samplewise
from .recurrent import batched_recurrence, is_recurrent, recurrent_gradients

Loss = Callable[[Any, Tensor], Tensor]
Inputs = tuple[Tensor, ...]  #: inputs of the module, (B, ...) each


def rows_of(x: Inputs, chosen: Any) -> Inputs:
    """Return the chosen samples."""
    return tuple(each[chosen] for each in x)


@contextmanager
def same_kernels(network: ModuleNetwork) -> Iterator[None]:
    """Prevent the libraries from choosing algorithms that depend on the data."""
    # No benchmarking of convolutions, only deterministic ones, without TF32. cuDNN's recurrent
    # layers have gradients only in training mode, and no ``vmap`` rule.
    # What was found about kernels does not hold under ``torch.autocast``, which also keeps weights
    # of former iterates. Detecting anomalies would raise where the gradient of a record is NaN.
    backend, kind = torch.backends.cudnn, network.vector.device.type
    enabled = bool(backend.enabled) and not network.recurrent
    flags = backend.flags(enabled=enabled, benchmark=False, deterministic=True, allow_tf32=False)
    precision = torch.autocast(kind, enabled=False, cache_enabled=False)
    with flags, precision, torch.autograd.set_detect_anomaly(False):
        yield


def kernel_settings() -> tuple[Any, ...]:
    """Return the settings of the process by which PyTorch chooses kernels."""
    own = torch.backends
    of: Any = (own.mkldnn.matmul, own.mkldnn.conv, own.mkldnn.rnn, own.cuda.matmul)
    return (
        *(torch.get_num_threads(), torch.get_default_dtype(), own.mkldnn.enabled),
        *(own.cudnn.enabled, torch.are_deterministic_algorithms_enabled()),
        *(each.fp32_precision for each in of),
    )


@contextmanager
def naming_shapes(x: Inputs) -> Iterator[None]:
    """Add the shapes of the samples to an error that the module raises."""
    try:
        yield
    except RuntimeError as error:
        shapes = " and ".join(str(tuple(each.shape[1:])) for each in x)
        raise ValueError(
            f"module must take a sample of X, of shape {shapes}, but fails: {error}"
        ) from error


class ModuleNetwork:
    """A private copy of a module, independent of later changes to the user's module.

    ``slices`` maps each trained parameter to its slice of the vector, which has ``size`` entries.
    ``forward`` is how outputs and losses of samples are computed: ``"direct"``, a chunk at once,
    where the module is known to process each sample independently, else ``"vmap"`` or ``"loop"``,
    each sample as a batch of one and with the state restored first. ``gradient_mode`` is how
    gradients are, see :meth:`sample_gradients`. ``gradient_layers`` maps each occurrence of a
    trained parameter to the path of the layer whose calls give its gradients: at first the layer
    that holds it, see :meth:`use_parents`.
    """

    # One for all, since :func:`same_kernels` and ``vmap_settings`` change settings of the process.
    lock = threading.RLock()

    def __init__(self, module: nn.Module, loss: Loss, dtype: Any, device: Any) -> None:
        def moved(each: Tensor) -> Tensor:  # ``Module.to`` would make complex numbers real
            return each.to(device, dtype if each.is_floating_point() else None)

        self.module = copy.deepcopy(module)._apply(moved)
        self.module.eval()  # returns nothing where a class overrides train() without a return
        # A layer's output must not be overwritten before its gradient is computed.
        each: Any
        for each in self.module.modules():
            if getattr(each, "inplace", False) is True:
                each.inplace = False
        self.recurrent = any(isinstance(each, nn.RNNBase) for each in self.module.modules())
        convolves = any(isinstance(each, nn.Conv2d) for each in self.module.modules())
        self._images = convolves and torch.device(device).type == "cpu"
        self.loss, self.gradient_mode, self.forward = UserFunction(loss), "layers", "loop"
        named = self.module.named_parameters()
        trained: dict[str, Tensor] = {n: p for n, p in named if p.requires_grad}
        for parameter in self.module.parameters():
            parameter.requires_grad_(False)
        ends = torch.tensor([0, *(p.numel() for p in trained.values())]).cumsum(0).tolist()
        self.slices = {n: slice(a, b) for n, a, b in zip(trained, ends, ends[1:])}
        self.size = ends[-1]
        self._trained = trained
        self._signatures: list[CallSignature] = []
        self._make_vector()
        self.gradient_layers = {slot: slot.rpartition(".")[0] for slot in self._slots}
        self._find_layers()

    def _make_vector(self) -> None:
        """Make the parameters views of one vector, in the dtype of the computation."""
        first = next(iter(self._trained.values()))
        self.vector = torch.empty(self.size, dtype=first.dtype, device=first.device)
        for name, parameter in self._trained.items():
            piece = self.vector[self.slices[name]].view(parameter.shape)
            parameter.data = piece.copy_(parameter.data)
        self._loaded = self.vector.clone()
        self._state = ModuleState([*self.module.modules(), self.loss], self._trained.values())
        self._names = {id(p): name for name, p in self._trained.items()}
        self._slots = {
            f"{path}.{name}" if path else name: self._names[id(parameter)]
            for path, layer in self.module.named_modules()
            for name, parameter in layer.named_parameters(recurse=False, remove_duplicate=False)
            if id(parameter) in self._names
        }

    def _find_layers(self) -> None:
        """Set the hooked layers and their parameters, each by name in the layer and global name."""
        self._parameters_of: dict[str, list[tuple[str, str]]] = {}
        for slot, home in self.gradient_layers.items():
            place = slot[len(home) + 1 :] if home else slot
            self._parameters_of.setdefault(home, []).append((place, self._slots[slot]))
        layers = dict(self.module.named_modules())
        self._layers = [(path, layers[path]) for path in self._parameters_of]
        self._with_rule = {
            path
            for path, places in self._parameters_of.items()
            if (type(layers[path]) in RULES or is_recurrent(layers[path]))
            and not is_modified(layers[path])
            and all("." not in place for place, _ in places)
        }
        self._layers_with_rule = [(path, layers[path]) for path in self._with_rule]

    def __getstate__(self) -> dict[str, Any]:
        self.restore()
        own = (
            "vector",
            "_loaded",
            "_state",
            "_names",
            "_slots",
            "_parameters_of",
            "_layers",
            "_with_rule",
            "_layers_with_rule",
        )
        return {key: value for key, value in vars(self).items() if key not in own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._make_vector()
        self._find_layers()

    def use_parents(self, names: Sequence[str]) -> bool:
        """Take the gradients of these parameters from the enclosing layers; False if impossible."""
        before = dict(self.gradient_layers)
        for slot, home in before.items():
            if self._slots[slot] in names:
                self.gradient_layers[slot] = home.rpartition(".")[0]
        self._find_layers()
        return self.gradient_layers != before and any(self.gradient_layers.values())

    def parameters_at(self, path: str) -> list[str]:
        """Return the parameters whose gradients come from the calls of one layer."""
        return [name for _, name in self._parameters_of.get(path, [])]

    def learn_calls(self, x: Inputs, y: Tensor) -> None:
        """Record from a few samples which layers are called, and in which form."""
        if not self._is_batched:
            self.restore()
            with batched_recurrence(self._layers_with_rule):
                self._signatures = call_signatures(self._loss, self._layers, (*x, y))

    @property
    def _is_batched(self) -> bool:
        """Whether layers process a chunk at once and every gradient has a rule."""
        return self.forward == "direct" and self._with_rule == set(self._parameters_of)

    def weights_unchanged(self) -> bool:
        """Return whether calls have left the trained parameters unchanged."""
        first, ends = self.vector.data_ptr(), self.vector.element_size()
        places = (first + ends * self.slices[name].start for name in self._trained)
        pairs = zip(self._trained.values(), places)
        kept = all(p.data_ptr() == at for p, at in pairs if p.numel())
        return kept and torch.equal(self.vector, self._loaded)

    def choose_forward(self, x: Inputs) -> None:
        """Compute directly if module and loss are known to treat samples like ``x`` separately."""
        named = any(self.loss.function is each for each in LOSSES.values())
        known = named and len(x) == 1 and is_samplewise(self.module, x[0])
        self.forward = "direct" if known else "loop"

    def restore(self) -> None:
        """Restore everything that calls may have changed, unless they cannot change anything."""
        if self.forward == "direct":
            return
        self._state.restore()
        self.vector.copy_(self._loaded)

    def trains(self, parameter: Tensor) -> bool:
        """Whether the parameter is part of the vector."""
        return id(parameter) in self._names

    @contextmanager
    def at(self, w: Tensor) -> Iterator[None]:
        """Set the parameters to ``w`` (d,) and keep other threads from changing them."""
        with self.lock:
            known = self.forward == "direct" or self._with_rule
            if known and nn.modules.module._has_any_global_hook():
                raise ValueError(
                    "module must run without hooks of all modules that were registered after the "
                    "problem was built, since they may mix samples: remove them, or build it again"
                )
            self.load(w)
            yield

    def load(self, w: Tensor) -> None:
        """Set the parameters to ``w`` (d,)."""
        self.vector.copy_(w)
        if self.forward != "direct":
            self._loaded.copy_(self.vector)

    def outputs(self, x: Inputs) -> Tensor:
        """Return the outputs of the samples, without an autograd graph."""
        with same_kernels(self), naming_shapes(x):
            if self.forward == "direct":
                return self.outputs_together(x)
            return self._for_each(lambda *sample: self._single_output(sample)[0], *x)

    def losses(self, x: Inputs, y: Tensor) -> Tensor:
        """Return the losses of the samples, (B,), float64."""
        if self.forward == "direct":
            return self.losses_together(x, y)
        return self._for_each(self._loss, *x, y).to(torch.float64)

    def outputs_together(self, x: Inputs) -> Any:
        """Return the outputs of one call on the batch, which may mix samples if the module does."""
        with torch.no_grad():
            return self.module(*map(self._channels_last, x))

    def losses_together(self, x: Inputs, y: Tensor) -> Tensor:
        """Return the losses (B,), float64, of one call on the batch."""
        with torch.no_grad():
            return self.loss(self.module(*map(self._channels_last, x)), y).to(torch.float64)

    def _channels_last(self, x: Tensor) -> Tensor:
        """Return images (B, C, H, W) in the channels-last memory format."""
        # Convolutions are faster so on the host. For one channel PyTorch's own conversion leaves
        # the strides unchanged, from which layers cannot recognize the format.
        if not self._images or x.ndim != 4:
            return x
        channels, rows, columns = x.shape[1:]
        strides = (channels * rows * columns, 1, channels * columns, channels)
        return x.contiguous(memory_format=torch.channels_last).as_strided(x.shape, strides)

    def _single_output(self, sample: Inputs) -> Any:
        """Return the outputs for one sample, as a batch of one."""
        return self.module(*rows_of(sample, None))

    def _loss(self, *sample: Tensor) -> Tensor:
        """Return the loss of one sample, whose label comes last."""
        return self.loss(self._single_output(sample[:-1]), sample[-1][None])[0]

    def _for_each(self, function: Callable[..., Tensor], *samples: Tensor) -> Tensor:
        with torch.no_grad():
            if self.forward == "vmap":
                self.restore()
                with batched_recurrence(self._layers_with_rule):
                    return map_samples(function, samples)
            found = []
            for sample in zip(*samples):
                self.restore()
                found.append(function(*(each.clone() for each in sample)))  # views have neighbours
            return torch.stack(found)

    def sample_gradients(self, x: Inputs, y: Tensor) -> tuple[Tensor, list[PlacedGradients]]:
        """Return the losses (B,), float64, and the per-sample gradients.

        By ``gradient_mode``: ``"layers"`` takes one forward and backward pass for all samples,
        directly or by ``vmap``, and assembles the gradients layer by layer, where a layer without
        a rule runs once more; ``"vmap"`` materializes them all by ``torch.func``; ``"loop"`` takes
        a forward and backward pass for each sample.
        """
        if self.gradient_mode == "layers":
            return self._by_layers(x, y)
        if self.gradient_mode == "vmap":
            found, values = self._by_vmap(x, y)
        else:
            parts = (slice(i, i + 1) for i in range(len(y)))
            each = [self._single_gradients(rows_of(x, part), y[part]) for part in parts]
            found = {n: torch.stack([grads[n] for grads, _ in each]) for n in self.slices}
            values = torch.cat([value for _, value in each])
        placed = [
            PlacedGradients(self.slices[name], Materialized(found[name])) for name in self.slices
        ]
        return values.detach().to(torch.float64), placed

    def _by_vmap(self, x: Inputs, y: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        self.restore()

        def loss(parameters: dict[str, Tensor], x: Inputs, y: Tensor) -> Tensor:
            # Each layer is addressed by one of its names. Addressed by two, as PyTorch's own weight
            # tying does, a layer that occurs twice would keep these parameters permanently.
            placed = {slot: parameters[name] for slot, name in self._slots.items()}
            outputs = torch.func.functional_call(
                self.module, placed, rows_of(x, None), tie_weights=False
            )
            return self.loss(outputs, y[None])[0]

        each = torch.func.vmap(torch.func.grad_and_value(loss), in_dims=(None, 0, 0))
        with vmap_settings():
            return each(self._trained, x, y)

    def _single_gradients(self, x: Inputs, y: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        self.restore()
        x, y = tuple(each.clone() for each in x), y.clone()  # in memory without other samples
        own = self._trained
        try:  # their own gradients: a checkpoint runs its layers again, behind this call
            for each in own.values():
                each.requires_grad_()
            with torch.enable_grad():
                value = self.loss(self.module(*x), y)
                found = torch.autograd.grad(value.sum(), list(own.values()), allow_unused=True)
        finally:
            for each in own.values():
                each.requires_grad_(False)
        filled = (torch.zeros_like(p) if g is None else g for p, g in zip(own.values(), found))
        return dict(zip(own, filled)), value.detach()

    def _by_layers(self, x: Inputs, y: Tensor) -> tuple[Tensor, list[PlacedGradients]]:
        if self._is_batched:
            losses, found = self._directly(x, y)
        else:
            self.restore()
            with batched_recurrence(self._layers_with_rule):
                losses, calls, deltas = output_gradients(
                    self._loss, self._layers, (*x, y), self._signatures
                )
            found = [self._parts(*each) for each in zip(calls, deltas)]
        of_names: dict[str, list[ParameterGradients]] = {}
        for path, parts in found:
            for place, name in self._parameters_of[path]:
                of_names.setdefault(name, []).append(parts[place])
        placed = [
            PlacedGradients(self.slices[name], _joined(parts)) for name, parts in of_names.items()
        ]
        return losses.detach().to(torch.float64), placed

    def _directly(self, x: Inputs, y: Tensor) -> tuple[Tensor, list[tuple[str, Any]]]:
        """Return the losses, and each layer's path with the gradients in its parameters."""
        # If nothing before a layer is trained, the graph starts at its output.
        calls: list[tuple[str, nn.Module, Tensor]] = []
        outputs: list[Tensor] = []

        def listen(path: str, layer: nn.Module, given: Any, named: Any, output: Tensor) -> Tensor:
            if not output.requires_grad:
                output = output.detach().requires_grad_()
            calls.append((path, layer, given[0].detach()))
            outputs.append(output)
            return output

        alone = torch.autograd.graph.disable_saved_tensors_hooks(
            "module must run without hooks of saved tensors, since they may mix samples"
        )
        with forward_hooks(self._layers, listen), torch.enable_grad(), alone:
            losses = self.loss(self.module(*map(self._channels_last, x)), y)
        deltas = torch.autograd.grad(losses, outputs, torch.ones_like(losses))
        found = [
            (path, gradients(layer, inputs, delta))
            for (path, layer, inputs), delta in zip(calls, deltas)
        ]
        return losses, found

    def _parts(
        self, call: LayerCall, deltas: Sequence[Tensor]
    ) -> tuple[str, Mapping[str, ParameterGradients]]:
        """Return a layer's path and the per-sample gradients in its parameters."""
        if call.path in self._with_rule and is_recurrent(call.layer):
            return call.path, recurrent_gradients(call.layer, call.path, call.tensors, deltas)
        if call.path in self._with_rule:
            # One sample each: (B, 1, ...).
            inputs, delta = call.tensors[0], deltas[0]
            if inputs.ndim < 2 or delta.ndim < 2 or inputs.shape[1] != 1 or delta.shape[1] != 1:
                raise LayerError(call.path, "does not keep the samples on its first axis")
            return call.path, gradients(call.layer, inputs[:, 0], delta[:, 0])
        own = {place: self._trained[name] for place, name in self._parameters_of[call.path]}
        try:
            found = materialized_gradients(call, own, deltas)
        except Exception as error:  # whatever a layer or PyTorch raises, another way may work
            raise LayerError(call.path, f"fails on one sample at a time: {error}") from error
        return call.path, {place: Materialized(each) for place, each in found.items()}


def _joined(parts: Sequence[ParameterGradients]) -> ParameterGradients:
    """Return one part for a parameter used in several calls: the norm is that of their sum."""
    if len(parts) == 1:
        return parts[0]
    return Materialized(torch.stack([part.materialize() for part in parts]).sum(dim=0))


def _predictions(outputs: Any) -> Tensor:
    """Return a module's outputs in double precision."""
    if not isinstance(outputs, Tensor):
        raise TypeError(
            f"module must return one tensor for a loss by name, got a {type(outputs).__name__}: "
            "return the part that the loss takes, or give a loss of your own"
        )
    return outputs.to(torch.float64)


def _cross_entropy(outputs: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(_predictions(outputs), y, reduction="none")


def _squared_error(outputs: Tensor, y: Tensor) -> Tensor:
    errors = _predictions(outputs) - y.view_as(outputs)
    return errors.square().reshape(len(errors), -1).mean(dim=1)


#: Losses by name: one value per sample, in double precision.
LOSSES: dict[str, Loss] = {"cross_entropy": _cross_entropy, "mse": _squared_error}
