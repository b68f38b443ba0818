"""Calls of layers while a module runs, and gradients of samples where a layer has no rule."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_flatten, tree_unflatten

__all__ = ["Call", "LayerError", "Seen", "batchable", "for_each", "heard", "listening", "look"]
__all__ += ["written_out"]

Layers = Sequence[tuple[str, nn.Module]]


class LayerError(ValueError):
    """Gradients of samples cannot be put together from what a layer saw; ``path`` names it."""

    def __init__(self, path: str, why: str = "is not called in the same way each time") -> None:
        super().__init__(f"layer {path or 'the module itself'} {why}")
        self.path = path


class Call(NamedTuple):
    """One call of a layer.

    Attributes
    ----------
    path : str
    layer : Module
    given : list
        Everything that went in, in one row; tensors are those of B samples, (B, ...).
    shape : TreeSpec
        How it was nested.
    outputs : list of tuple
        Shape for one sample, dtype and device of the real tensors that came out.
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


class Seen(NamedTuple):
    """A call as it was on made-up samples, and must be on others.

    Attributes
    ----------
    path : str
    batched : tuple of bool
        Of the tensors that went in, whether they depend on the sample.
    outputs : list of tuple
        See :class:`Call`.
    """

    path: str
    batched: tuple[bool, ...]
    outputs: list[tuple[torch.Size, torch.dtype, torch.device]]

    def is_like(self, call: Call) -> bool:
        """Return whether a call is the same but for its numbers."""
        alike = (self.path, self.outputs) == (call.path, call.outputs)
        return alike and len(call.tensors) == len(self.batched)


@contextmanager
def listening(layers: Layers, listen: Callable[..., Any]) -> Iterator[None]:
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
def batchable() -> Iterator[None]:
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


def for_each(function: Callable[..., Tensor], samples: Sequence[Tensor]) -> Tensor:
    """Return what a function of one sample gives for each of them, by ``torch.func.vmap``.

    No sample can reach another: ``vmap`` raises where the function branches on numbers, draws
    random ones, or writes a sample's into a tensor of them all.
    """

    def one(*sample: Tensor) -> Tensor:
        # Below a derivative recurrent layers fall into parts, and these vmap knows.
        return torch.func.vjp(lambda _: function(*sample), torch.zeros(()))[0]

    with batchable():
        return torch.func.vmap(one)(*samples)


def heard(
    loss: Callable[..., Tensor],
    layers: Layers,
    samples: Sequence[Tensor],
    seen: Sequence[Seen] | None,
) -> tuple[Tensor, list[Call], list[list[Tensor]]]:
    """Return the losses of B samples, the calls, and the gradients in what came out of them.

    Every sample by itself, as in :func:`for_each`. Zeros are added to what comes out of a layer,
    and the gradients in these are those wanted.

    Parameters
    ----------
    loss : callable
        Of one sample, a number.
    layers : sequence of (str, Module)
    samples : sequence of Tensor of shape (B, ...)
    seen : sequence of Seen or None
        The calls to come; None if they are not known, which gives no gradients.

    Raises
    ------
    LayerError
        If the calls are others than ``seen``.
    """
    calls: list[Call] = []
    rows: list[list[Tensor]] = []

    def listen(
        zeros: Any, path: str, layer: nn.Module, arguments: Any, named: Any, outputs: Any
    ) -> Any:
        given, shape = tree_flatten((tuple(arguments), dict(named)))
        leaves, nested = tree_flatten(outputs)
        real = [k for k, each in enumerate(leaves) if _is_real(each)]
        found = [(leaves[k].shape, leaves[k].dtype, leaves[k].device) for k in real]
        call = Call(path, layer, given, shape, found)
        if seen is not None:
            if len(calls) == len(seen) or not seen[len(calls)].is_like(call):
                raise LayerError(path)
            for k, zero in zip(real, zeros[len(calls)]):
                leaves[k] = leaves[k] + zero
        calls.append(call)
        rows.append([each.detach() for each in call.tensors])
        return tree_unflatten(leaves, nested)

    def with_zeros(zeros: Any, *sample: Tensor) -> tuple[Tensor, Any]:
        calls.clear()
        rows.clear()
        with listening(layers, partial(listen, zeros[1:])):
            value = loss(*sample)
        if seen is not None and len(calls) < len(seen):
            raise LayerError(seen[len(calls)].path)
        return value, (value.detach(), [*rows])

    zeros = [[torch.zeros(())]]  # the first for a module whose layers are not called
    for each in seen or ():
        outs = each.outputs
        zeros.append([torch.zeros((), dtype=d, device=at).expand(size) for size, d, at in outs])
    both = torch.func.grad(with_zeros, has_aux=True)
    with batchable():
        deltas, (losses, given) = torch.func.vmap(partial(both, zeros))(*samples)
    for call, tensors in zip(calls, given):
        places = [k for k, each in enumerate(call.given) if isinstance(each, Tensor)]
        for k, tensor in zip(places, tensors):
            call.given[k] = tensor
    return losses, calls, deltas[1:]


def look(loss: Callable[..., Tensor], layers: Layers, samples: Sequence[Tensor]) -> list[Seen]:
    """Return the calls that samples bring about, two of them or more."""
    calls = heard(loss, layers, samples, None)[1]
    # vmap repeats, without a copy, what does not depend on the sample.
    return [
        Seen(call.path, tuple(each.stride(0) != 0 for each in call.tensors), call.outputs)
        for call in calls
    ]


def _is_real(each: Any) -> bool:
    return isinstance(each, Tensor) and each.dtype.is_floating_point


def written_out(
    call: Call, batched: Sequence[bool], own: dict[str, Tensor], deltas: Sequence[Tensor]
) -> dict[str, Tensor]:
    r"""Return the gradients of B samples in some parameters of a layer, (B, ...) each.

    The layer runs again for each sample by itself, all at once by ``torch.func.vmap``; the
    gradients are the products of its Jacobian in these parameters with the gradients in what
    came out of it. Its other parameters are constants.

    Parameters
    ----------
    call : Call
    batched : sequence of bool
        Which of the tensors that went in depend on the sample.
    own : dict of str to Tensor
        The parameters, by their names in the layer.
    deltas : sequence of Tensor of shape (B, ...)
        Gradients of the samples' losses in what came out.
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
        return [each for each in tree_flatten(found)[0] if _is_real(each)]

    def gradients(delta: list[Tensor], *rows: Tensor) -> dict[str, Tensor]:
        back = torch.func.vjp(lambda parameters: outputs(parameters, rows), own)[1]
        return back(delta)[0]

    rows = [call.given[k] for k in moving]
    with batchable():
        return torch.func.vmap(gradients)(list(deltas), *rows)
