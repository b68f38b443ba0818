"""Views of samples: the results of a public augmentation, applied to each sample separately."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .network import Inputs, rows_of
from .per_sample import ModuleState, UserFunction, signature_error

_TRIED = 8  # records


class Augmentation:
    """A function of (sample, generator), called so that no sample affects another one's view.

    It gets a copy of one sample and a generator on the host, seeded by the bits of that sample and
    of the parameters. Before each call everything reachable from the function is restored to its
    state when the problem was built.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        wrong = signature_error(function, 2) if callable(function) else f"got {function!r}"
        if wrong is not None:
            raise TypeError(f"augment must be a function of (sample, generator): {wrong}")
        self._function = UserFunction(function)
        self._state = ModuleState([self._function])
        self.name = getattr(function, "__name__", type(function).__name__)

    def __getstate__(self) -> dict[str, Any]:
        self._state.restore()
        return {"_function": self._function, "name": self.name}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._state = ModuleState([self._function])

    def views(self, x: Inputs, count: int, w: Tensor) -> Inputs:
        """Return a view of each of the first ``count`` samples, at the parameters ``w`` (d,)."""
        made = tuple(each.clone() for each in x)
        bits = _mixed_bits(_hashed((w[None],)) + _hashed(rows_of(x, slice(count))))
        for i, seed in enumerate(bits.tolist()):
            view = self._view(tuple(each[i].clone() for each in x), seed)
            for each, own in zip(made, view):
                each[i] = own
        return made

    def _view(self, sample: Inputs, seed: int) -> Inputs:
        like = tuple(torch.empty_like(each, device="meta") for each in sample)
        generator = torch.Generator().manual_seed(seed)
        self._state.restore()
        with torch.no_grad():
            view = self._function(sample[0] if len(sample) == 1 else sample, generator)
        found = (view,) if len(sample) == 1 else view
        forms = [_shape_and_dtype(each) for each in like]
        if not isinstance(found, tuple) or [_shape_and_dtype(each) for each in found] != forms:
            raise ValueError(
                f"augment must keep the form of a sample, {_described(like)}, but gives "
                f"{_described(found)}"
            )
        return found

    def check(self, x: Inputs, w: Tensor) -> None:
        """Raise ValueError if views of some records are invalid or depend on other records."""
        x = rows_of(x, slice(_TRIED))
        count = len(x[0])
        views = self.views(x, count, w)
        for each in views:
            if each.dtype.is_floating_point and not bool(torch.isfinite(each).all()):
                wrong = int((~torch.isfinite(each).reshape(count, -1).all(dim=1)).nonzero()[0])
                raise ValueError(
                    f"augment must give finite numbers, but does not for record {wrong}"
                )
        back = torch.arange(count - 1, -1, -1, device=x[0].device)
        again = rows_of(self.views(rows_of(x, back), count, w), back)
        if not all(map(torch.equal, views, again)):
            raise ValueError(
                "augment must give a sample the same view each time that its generator is in the "
                "same state: draw from that generator alone, as in torch.rand(1, "
                "generator=generator), and keep nothing from call to call"
            )


def _shape_and_dtype(each: Any) -> Any:
    return (tuple(each.shape), each.dtype) if isinstance(each, Tensor) else type(each)


def _described(tree: Any) -> str:
    if not isinstance(tree, tuple):
        return type(tree).__name__
    parts = (
        f"{each.dtype} of shape {tuple(each.shape)}"
        if isinstance(each, Tensor)
        else type(each).__name__
        for each in tree
    )
    return " and ".join(parts)


# Hashes that depend on every bit: the same on all devices, for any order of additions


_INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


def _hashed(arrays: Inputs) -> Tensor:
    """Return a hash of the bits of each sample, (B,), int64."""
    total = torch.zeros((), dtype=torch.int64, device=arrays[0].device)
    for each in arrays:
        bits = each.reshape(len(each), -1)
        if bits.dtype.is_floating_point:
            bits = bits.view(_INTEGERS[bits.element_size()])
        places = torch.arange(1, bits.shape[1] + 1, device=bits.device)
        # Odd factors: an even one would lose the sign bit of a number in double precision.
        total = _mixed_bits(total + (bits * (_mixed_bits(places) | 1)).sum(dim=1))
    return total


def _mixed_bits(numbers: Tensor) -> Tensor:
    """Return int64 numbers mixed bijectively, by the finalizer of MurmurHash3."""
    for factor in (-49064778989728563, -4265267296055464877):
        numbers = (numbers ^ ((numbers >> 33) & 0x7FFFFFFF)) * factor
    return numbers ^ ((numbers >> 33) & 0x7FFFFFFF)
