r"""LSTM, GRU and RNN under ``vmap``: all samples at once, and gradients step by step.

``torch.func.vmap`` decomposes these layers, into some hundred operations per step of a sample.
Since their exact class is known to process samples independently, they compute a chunk at once
instead. With :math:`i_t = W x_t + b` and :math:`h_t = V s_{t-1} + c` for the state s, the gradients
in W and V are :math:`\sum_t \delta^i_t x_t^\top` and :math:`\sum_t \delta^h_t s_{t-1}^\top`: see
:class:`~dpanalysis.problems.modules.layers.SummedOuterProducts`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from .layers import LayerError, Layers, Materialized, ParameterGradients, summed_outer_products

State = tuple[Tensor, ...]


def _lstm(from_input: Tensor, from_state: Tensor, state: State) -> State:
    i, f, g, o = (from_input + from_state).chunk(4, dim=1)
    memory = f.sigmoid() * state[1] + i.sigmoid() * g.tanh()
    return o.sigmoid() * memory.tanh(), memory


def _gru(from_input: Tensor, from_state: Tensor, state: State) -> State:
    (r, z, n), (s, u, m) = from_input.chunk(3, dim=1), from_state.chunk(3, dim=1)
    keep = (z + u).sigmoid()
    return ((1.0 - keep) * (n + (r + s).sigmoid() * m).tanh() + keep * state[0],)


def _rnn(activation: Any, from_input: Tensor, from_state: Tensor, state: State) -> State:
    return (activation(from_input + from_state),)


_CELLS: dict[type, Callable[[Any], tuple[Callable[..., State], int]]] = {
    nn.LSTM: lambda layer: (_lstm, 2),
    nn.GRU: lambda layer: (_gru, 1),
    nn.RNN: lambda layer: (partial(_rnn, getattr(torch, layer.nonlinearity)), 1),
}


def is_recurrent(layer: Any) -> bool:
    """Whether there is a rule for the layer: LSTM, GRU or RNN, by exact class."""
    return type(layer) in _CELLS and not layer.proj_size


class _Unrolled:
    """Autograd graph of a layer on samples (B, T, in), with its matrices' inputs and outputs."""

    def __init__(self, layer: Any, x: Tensor) -> None:
        cell, states = _CELLS[type(layer)](layer)
        self.outputs_of: dict[str, Tensor] = {}
        self.inputs_of: dict[str, Tensor] = {}
        ends: list[State] = []
        with torch.enable_grad():
            self.x = x = x.detach().requires_grad_()
            for depth in range(layer.num_layers):
                both = []
                for direction in ("", "_reverse")[: 1 + layer.bidirectional]:
                    steps, last = self._one_direction(
                        layer, f"_l{depth}{direction}", x, cell, states
                    )
                    both.append(steps)
                    ends.append(last)
                x = torch.cat(both, dim=2)
            self.outputs = x, *(torch.stack(each, dim=1) for each in zip(*ends))

    def _one_direction(
        self, layer: Any, name: str, x: Tensor, cell: Callable[..., State], states: int
    ) -> tuple[Tensor, State]:
        """Return the outputs of one direction, (B, T, hidden), and the last state."""
        weight, matrix = getattr(layer, f"weight_ih{name}"), getattr(layer, f"weight_hh{name}")
        given, shift = (getattr(layer, f"bias_{kind}{name}", None) for kind in ("ih", "hh"))
        from_input = nn.functional.linear(x, weight, given)
        zeros = torch.zeros_like(from_input).requires_grad_()
        state: State = (x.new_zeros(len(x), layer.hidden_size),) * states
        steps = list(zip(from_input.unbind(1), zeros.unbind(1)))
        back = name.endswith("_reverse")
        before, after = [], []
        for one, zero in reversed(steps) if back else steps:
            before.append(state[0])
            state = cell(one, nn.functional.linear(state[0], matrix, shift) + zero, state)
            after.append(state[0])
        if back:
            before.reverse()
            after.reverse()
        self.outputs_of[f"ih{name}"], self.outputs_of[f"hh{name}"] = from_input, zeros
        self.inputs_of[f"ih{name}"], self.inputs_of[f"hh{name}"] = x, torch.stack(before, dim=1)
        return torch.stack(after, dim=1), state

    def back(self, wanted: Sequence[Tensor], deltas: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return the gradients in some arrays of the graph, given those in the outputs."""
        return torch.autograd.grad(self.outputs, wanted, deltas)


def recurrent_gradients(
    layer: Any, path: str, given: Sequence[Tensor], deltas: Sequence[Tensor]
) -> dict[str, ParameterGradients]:
    """Return the gradients of B samples in a layer's parameters, by parameter name."""
    x = _without_batch_axis(layer, given[0], 1) if len(given) == 1 else None
    if x is None:
        raise LayerError(path, "gets more than one sequence for a sample, or a state")
    outputs, *ends = deltas
    if given[0].ndim == 4:
        outputs, ends = _without_batch_axis(layer, outputs, 1), [each[:, :, 0] for each in ends]
    unrolled = _Unrolled(layer, x)
    found: dict[str, ParameterGradients] = {}
    gradients = unrolled.back(list(unrolled.outputs_of.values()), [outputs, *ends])
    for name, delta in zip(unrolled.outputs_of, gradients):
        found[f"weight_{name}"] = summed_outer_products(delta, unrolled.inputs_of[name].detach())
        found[f"bias_{name}"] = Materialized(delta.sum(dim=1))
    return found


def _without_batch_axis(layer: Any, x: Tensor, lead: int) -> Any:
    """Return sequences without the axis of a batch of one, after ``lead`` others, or None."""
    if x.ndim == lead + 2:
        return x
    axis = lead if layer.batch_first else lead + 1
    return x.squeeze(axis) if x.shape[axis] == 1 else None


class _BatchedRecurrence(torch.autograd.Function):
    """Outputs of a layer for a sequence (T, in); under ``vmap``, for all samples in one call."""

    @staticmethod
    def forward(layer: Any, x: Tensor) -> tuple[Tensor, ...]:
        return tuple(each[0] for each in _BatchedRecurrence._run(layer, x[None]))

    @staticmethod
    def _run(layer: Any, x: Tensor) -> tuple[Tensor, ...]:
        if x.device.type != "cpu":  # cuDNN's layers may give different bits each time
            return tuple(each.detach() for each in _Unrolled(layer, x).outputs)
        first = layer.batch_first
        outputs, ends = type(layer).forward(layer, x if first else x.transpose(0, 1))
        ends = ends if isinstance(ends, tuple) else (ends,)
        outputs = outputs if first else outputs.transpose(0, 1)
        return outputs, *(each.transpose(0, 1) for each in ends)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.layer, x = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx: Any, *deltas: Tensor) -> Any:
        return None, _BatchedBackward.apply(ctx.layer, *ctx.saved_tensors, *deltas)

    @staticmethod
    def vmap(info: Any, in_dims: Any, layer: Any, x: Tensor) -> Any:
        found = _BatchedRecurrence._run(layer, x.movedim(in_dims[1], 0))
        return found, (0,) * len(found)


class _BatchedBackward(torch.autograd.Function):
    """Gradient in a sequence, given those in the outputs for it."""

    @staticmethod
    def forward(layer: Any, x: Tensor, *deltas: Tensor) -> Tensor:
        return _BatchedBackward._run(layer, x[None], [each[None] for each in deltas])[0]

    @staticmethod
    def _run(layer: Any, x: Tensor, deltas: Sequence[Tensor]) -> Tensor:
        unrolled = _Unrolled(layer, x)
        return unrolled.back([unrolled.x], deltas)[0]

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def vmap(info: Any, in_dims: Any, layer: Any, *arrays: Tensor) -> Any:
        x, *deltas = (
            each.expand(info.batch_size, *each.shape) if dim is None else each.movedim(dim, 0)
            for each, dim in zip(arrays, in_dims[1:])
        )
        return _BatchedBackward._run(layer, x, deltas), 0


def _batched_forward(layer: Any, x: Any, hx: Any = None) -> Any:
    """Replace the layer's ``forward``, batched for sequences without an initial state."""
    single, drops = None, layer.training and layer.dropout > 0.0  # which vmap refuses
    if hx is None and not drops and isinstance(x, Tensor) and x.ndim in (2, 3):
        single = _without_batch_axis(layer, x, 0)
    if single is None:
        return type(layer).forward(layer, x, hx)
    outputs, *ends = _BatchedRecurrence.apply(layer, single)
    if x.ndim == 3:
        outputs, ends = outputs.unsqueeze(0 if layer.batch_first else 1), [e[:, None] for e in ends]
    return outputs, tuple(ends) if len(ends) > 1 else ends[0]


@contextmanager
def batched_recurrence(layers: Layers) -> Iterator[None]:
    """Make the recurrent layers among these compute all samples at once under ``vmap``."""
    # Only for use without gradients in the layers' own parameters: these are not computed.
    with ExitStack() as stack:
        for _, layer in layers:
            if is_recurrent(layer):
                layer.forward = partial(_batched_forward, layer)
                stack.callback(vars(layer).pop, "forward", None)
        yield
