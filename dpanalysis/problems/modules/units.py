"""Calls of layers while a module runs, and gradients of samples where a layer has no rule."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_flatten, tree_unflatten

__all__ = ["Call", "LayerError", "batchable", "heard", "of_samples", "written_out"]


class LayerError(ValueError):
    """Gradients of samples cannot be put together from what a layer saw; ``path`` names it."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"layer {path or 'the module itself'} {why}")
        self.path = path


class Call(NamedTuple):
    """One call of a layer: what went in, and the tensors that came out.

    Attributes
    ----------
    path : str
    layer : Module
    given : list
        Everything that went in, tensors detached, in one row.
    shape : TreeSpec
        How it was nested; None for one tensor alone.
    outputs : list of Tensor
        Those of real numbers; each has a gradient.
    """

    path: str
    layer: nn.Module
    given: list[Any]
    shape: Any
    outputs: list[Tensor]

    @property
    def tensors(self) -> list[Tensor]:
        """The tensors that went in."""
        return [each for each in self.given if isinstance(each, Tensor)]


def heard(
    path: str, layer: nn.Module, arguments: Sequence[Any], named: Mapping[str, Any], outputs: Any
) -> tuple[Call, Any]:
    """Return a call, and what the layer gave with a gradient for every real tensor in it.

    Where nothing before the layer is trained, the graph begins behind it.
    """
    if type(outputs) is Tensor and _alone(arguments) and not named:  # nearly always: be quick
        if not outputs.requires_grad:
            outputs = outputs.detach().requires_grad_()
        return Call(path, layer, [arguments[0].detach()], None, [outputs]), outputs
    given, shape = tree_flatten((tuple(arguments), dict(named)))
    given = [each.detach() if isinstance(each, Tensor) else each for each in given]
    leaves, nested = tree_flatten(outputs)
    real = [isinstance(each, Tensor) and each.dtype.is_floating_point for each in leaves]
    several = sum(real) > 1
    for k, each in enumerate(leaves):
        if real[k] and not each.requires_grad:
            leaves[k] = each.detach().requires_grad_()
        elif real[k] and several:  # one may be computed from another, whose gradient is its own
            leaves[k] = each.view_as(each)
    found = [each for each, is_real in zip(leaves, real) if is_real]
    return Call(path, layer, given, shape, found), tree_unflatten(leaves, nested)


def _alone(arguments: Sequence[Any]) -> bool:
    return len(arguments) == 1 and isinstance(arguments[0], Tensor)


def of_samples(more: Call, fewer: Call, counts: tuple[int, int]) -> tuple[bool, ...]:
    """Return which tensors that went into a layer have the samples on their first axis.

    Parameters
    ----------
    more, fewer : Call
        The same call, for all and for the first of some samples.
    counts : tuple of int
        How many they were.

    Raises
    ------
    LayerError
        If a tensor neither has them there nor is the same in both calls.
    """
    first, second = more.tensors, fewer.tensors
    flags = []
    for a, b in zip(first, second):
        same = a.shape == b.shape and torch.equal(a, b)
        moves = a.ndim > 0 and b.ndim == a.ndim and a.shape[1:] == b.shape[1:]
        if not same and not (moves and (len(a), len(b)) == counts):
            raise LayerError(more.path, "does not keep the samples on its first axis")
        flags.append(not same)
    if len(first) != len(second):
        raise LayerError(more.path, "takes other tensors from one call to the next")
    return tuple(flags)


@contextmanager
def batchable() -> Iterator[None]:
    """Keep to what ``torch.func.vmap`` knows, and be quiet where it goes sample by sample."""
    with warnings.catch_warnings(), sdpa_kernel(SDPBackend.MATH):
        warnings.filterwarnings("ignore", "There is a performance drop", UserWarning)
        yield


def written_out(
    call: Call, batched: Sequence[bool], own: dict[str, Tensor], deltas: Sequence[Tensor | None]
) -> dict[str, Tensor]:
    r"""Return the gradients of B samples in some parameters of a layer, (B, ...) each.

    The layer runs again for each sample by itself, all at once by ``torch.func.vmap``; the
    gradients are the products of its Jacobian in these parameters with the gradients in what
    came out of it. Its other parameters are constants.

    Parameters
    ----------
    call : Call
    batched : sequence of bool
        Which of the tensors that went in have samples, see :func:`of_samples`.
    own : dict of str to Tensor
        The parameters, by their names in the layer.
    deltas : sequence of Tensor or None
        Gradients of the samples' losses in ``call.outputs``, None where there is none.
    """
    places = [k for k, each in enumerate(call.given) if isinstance(each, Tensor)]
    moving = [k for k, has_samples in zip(places, batched) if has_samples]
    counted = [k for k, delta in enumerate(deltas) if delta is not None]

    def outputs(parameters: dict[str, Tensor], rows: Sequence[Tensor]) -> list[Tensor]:
        given = list(call.given)
        for k, row in zip(moving, rows):
            given[k] = row[None]
        arguments, named = (
            (tuple(given), {}) if call.shape is None else tree_unflatten(given, call.shape)
        )
        # Each parameter by its own name, see Network._called.
        found = torch.func.functional_call(
            call.layer, parameters, arguments, named, tie_weights=False
        )
        real = [e for e in tree_flatten(found)[0] if isinstance(e, Tensor)]
        real = [each for each in real if each.dtype.is_floating_point]
        return [real[k][0] for k in counted]

    def gradients(delta: list[Tensor], *rows: Tensor) -> dict[str, Tensor]:
        back = torch.func.vjp(lambda parameters: outputs(parameters, rows), own)[1]
        return back(delta)[0]

    rows = [call.given[k] for k in moving]
    with batchable():
        return torch.func.vmap(gradients)([each for each in deltas if each is not None], *rows)
