"""Modules that process samples independently, and the state restored before each call."""

from __future__ import annotations

import copy
import copyreg
import inspect
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial, reduce
from types import BuiltinFunctionType, CellType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from ...clipping import Clipping
from ...kernels.array_api import clip_to_bound
from .layers import Materialized, ParameterGradients


def is_modified(layer: nn.Module) -> bool:
    """Return whether an instance may compute something else than its class defines."""
    # By hooks (those of the backward pass change gradients), its own or those of all modules, by
    # methods set on the instance, or by parameters or buffers of another class.
    own: Any = layer
    hooks = own._forward_hooks, own._forward_pre_hooks, own._backward_hooks, own._backward_pre_hooks
    methods = (callable(getattr(type(layer), name, None)) for name in vars(layer))
    compiled = vars(layer).get("_compiled_call_impl") is not None
    parameters = (each for each in own._parameters.values() if each is not None)
    buffers = (each for each in own._buffers.values() if each is not None)
    plain = all(type(each) is nn.Parameter for each in parameters) and all(
        type(each) is Tensor for each in buffers
    )
    hooked = any(map(bool, hooks)) or nn.modules.module._has_any_global_hook()
    return hooked or any(methods) or compiled or not plain


def flattened_layers(module: nn.Module, path: str = "") -> Iterator[tuple[str, nn.Module]]:
    """Yield the layers of nested Sequentials in the order in which they are applied."""
    if type(module) is not nn.Sequential or is_modified(module):
        yield path, module
        return
    for name, layer in module._modules.items():
        yield from flattened_layers(layer, f"{path}.{name}" if path else name)


def is_samplewise(module: nn.Module, x: Tensor) -> bool:
    """Return whether the module is a Sequential of layers known to process samples independently.

    They are PyTorch's, by exact class and without hooks, in ``eval()`` mode, which do not operate
    along the sample axis. Others may also process samples independently; that is not known.
    """
    for _, layer in flattened_layers(module):
        axes = _AXES.get(type(layer))
        if axes is None or is_modified(layer) or layer.training or not axes(layer, x.ndim):
            return False
        with torch.no_grad():
            x = layer(x)
        if not isinstance(x, Tensor):
            return False
    return True


def _at_least(axes: int) -> Callable[[Any, int], bool]:
    return lambda layer, ndim: ndim >= axes


def _spatial(axes: int) -> Callable[[Any, int], bool]:
    """Layers over 1 to 3 axes also accept an array without sample axis, which has one axis less."""
    return lambda layer, ndim: ndim == axes + 2


def _one_axis(layer: Any, ndim: int) -> bool:
    """Without ``dim`` a softmax normalizes along the sample axis for arrays of 1 or 3 axes."""
    return layer.dim is not None and -ndim < layer.dim < ndim and layer.dim != 0


def has_statistics(layer: Any) -> bool:
    """Return whether a batch normalization has running statistics for ``eval()`` mode.

    Without them it normalizes over the batch in either mode.
    """
    return layer.running_mean is not None and layer.running_var is not None


def _channels(*axes: int) -> Callable[[Any, int], bool]:
    """Batch normalization with fixed statistics: an affine map of each channel, which is axis 1."""
    return lambda layer, ndim: has_statistics(layer) and ndim in axes


def _last_axes(layer: Any, ndim: int) -> bool:
    return len(layer.normalized_shape) < ndim


def _flatten(layer: Any, ndim: int) -> bool:
    return layer.start_dim >= 1 and (layer.end_dim >= 1 or layer.end_dim == -1) and ndim >= 2


#: For each class, a function of layer and ndim: whether the layer acts separately along axis 0.
_AXES: dict[type, Callable[[Any, int], bool]] = {
    nn.Linear: _at_least(2),
    nn.Embedding: _at_least(1),
    nn.GroupNorm: _at_least(2),
    nn.LayerNorm: _last_axes,
    nn.RMSNorm: _last_axes,
    nn.Flatten: _flatten,
    nn.Softmax: _one_axis,
    nn.LogSoftmax: _one_axis,
    nn.Softmin: _one_axis,
    nn.GLU: _one_axis,
    nn.Softmax2d: _spatial(2),
    nn.PReLU: _at_least(2),
    nn.BatchNorm1d: _channels(2, 3),
    nn.BatchNorm2d: _channels(4),
    nn.BatchNorm3d: _channels(5),
    **dict.fromkeys(
        (
            *(nn.Identity, nn.Dropout, nn.AlphaDropout, nn.FeatureAlphaDropout),
            *(nn.Dropout1d, nn.Dropout2d, nn.Dropout3d),
            *(nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.RReLU, nn.ELU, nn.CELU, nn.SELU, nn.GELU),
            *(nn.SiLU, nn.Mish, nn.Softplus, nn.Softsign, nn.Tanh, nn.Sigmoid, nn.LogSigmoid),
            *(nn.Hardtanh, nn.Hardsigmoid, nn.Hardswish, nn.Hardshrink, nn.Softshrink),
            *(nn.Tanhshrink, nn.Threshold),
        ),
        _at_least(1),
    ),
    **{
        getattr(nn, f"{kind}{axes}d"): _spatial(axes)
        for axes in (1, 2, 3)
        for kind in (
            *("Conv", "ConvTranspose", "InstanceNorm"),
            *("MaxPool", "AvgPool", "AdaptiveMaxPool", "AdaptiveAvgPool"),
            *("ZeroPad", "ConstantPad", "ReflectionPad", "ReplicationPad", "CircularPad"),
        )
    },
}


# State


_CONSTANT = (
    *(type(None), bool, int, float, complex, str, bytes, type),
    *(torch.dtype, torch.device, torch.Size),
)


def signature_error(function: Any, count: int) -> TypeError | None:
    """Return the error of calling a function with ``count`` arguments, or None."""
    try:
        inspect.signature(function).bind(*range(count))
    except ValueError:  # a compiled function has no signature
        return None
    except TypeError as error:
        return error
    return None


class UserFunction:
    """A loss or an augmentation, held so that a copy can take its place."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def __call__(self, *arguments: Any) -> Any:
        """Call the function."""
        return self.function(*arguments)


class ModuleState:
    """Snapshot of everything reachable from layers and functions except the trained values.

    It includes attributes of all layers and parameters, buffers, frozen parameters, hooks,
    attributes of a loss object, and attributes, enclosed variables and defaults of functions,
    with everything they contain. It excludes process-wide state (globals, class attributes and
    what methods of a class enclose, files) and anything that cannot be copied.
    """

    def __init__(self, holders: Iterable[Any], trained: Iterable[Tensor] = ()) -> None:
        self._trained = [(each, each.data, each.requires_grad) for each in trained]
        self._holders = [*holders, *(each for each, _, _ in self._trained)]
        self._kept = {id(each): each for each in self._holders}
        self._kinds = [type(each) for each in self._holders]
        self._plain: list[FunctionType] = []
        self._saved = self._copies([vars(each) for each in self._holders], self._plain)

    def restore(self) -> None:
        """Restore the state at construction, but for the values of trained parameters."""
        for function in self._plain:
            vars(function).clear()
        for holder, kind, fresh in zip(self._holders, self._kinds, self._copies(self._saved)):
            if type(holder) is not kind:
                holder.__class__ = kind
            own = vars(holder)
            own.clear()
            own.update(fresh)
        for parameter, data, requires_grad in self._trained:
            parameter.grad = None
            parameter.data = data
            parameter.requires_grad_(requires_grad)

    def _copies(
        self, saved: list[dict[str, Any]], plain: list[FunctionType] | None = None
    ) -> list[dict[str, Any]]:
        memo: dict[Any, Any] = {**self._kept, _PLAIN: plain}
        return [_copied(each, memo) for each in saved]


_PLAIN = "functions without attributes"  # a key of a memo, whose other keys are addresses


def _copied(value: Any, memo: dict[Any, Any]) -> Any:
    """Return a deep copy, faster than ``copy.deepcopy``, and copy closures of functions too."""
    kind = type(value)
    if kind in _CONSTANT:
        return value
    if id(value) in memo:
        return memo[id(value)]
    made: Any
    if kind in (dict, OrderedDict):
        made = memo[id(value)] = kind()
        for key, each in value.items():
            made[key if type(key) is str else _copied(key, memo)] = _copied(each, memo)
        return made
    if kind is list:
        made = memo[id(value)] = []
        made.extend(_copied(each, memo) for each in value)
        return made
    if kind is np.ndarray and value.dtype == object:
        made = memo[id(value)] = value.copy()
        for k, each in enumerate(value.flat):
            made.flat[k] = _copied(each, memo)
        return made
    if kind in (tuple, set):
        return kind(_copied(each, memo) for each in value)
    if kind is FunctionType:
        return _function(value, memo)
    if kind is MethodType:
        return MethodType(_copied(value.__func__, memo), _copied(value.__self__, memo))
    if kind is BuiltinFunctionType:
        of = value.__self__  # None, a module or a class, but a list for ``[].append``
        if isinstance(of, (ModuleType, type, type(None))):
            return value
        return getattr(_copied(of, memo), value.__name__)
    if kind is partial:
        named = _copied(value.keywords, memo)
        return partial(_copied(value.func, memo), *_copied(value.args, memo), **named)
    try:
        return _rebuilt(value, memo)
    except Exception:  # some objects, such as locks, cannot be copied
        memo[id(value)] = value
        return value


def _rebuilt(value: Any, memo: dict[Any, Any]) -> Any:
    """Copy any other object like ``copy.deepcopy``, with copies of the functions it contains."""
    reduce = copyreg.dispatch_table.get(type(value))
    if hasattr(value, "__deepcopy__"):
        return copy.deepcopy(value, memo)
    reduced = value.__reduce_ex__(4) if reduce is None else reduce(value)
    if isinstance(reduced, str):
        return value
    memo.setdefault(id(memo), []).append(reduced)  # keeps it alive, so that its ids are not reused
    make, arguments, state, items, pairs = tuple(reduced) + (None,) * (5 - len(reduced))
    made = memo[id(value)] = make(*(_copied(each, memo) for each in arguments))
    state = _copied(state, memo)
    if hasattr(made, "__setstate__") and state is not None:
        made.__setstate__(state)
    elif state is not None:
        own, slots = state if isinstance(state, tuple) and len(state) == 2 else (state, None)
        if own:
            vars(made).update(own)
        for name, each in (slots or {}).items():
            setattr(made, name, each)
    for each in items or ():
        made.append(_copied(each, memo))
    for key, each in pairs or ():
        made[_copied(key, memo)] = _copied(each, memo)
    return made


def _function(function: FunctionType, memo: dict[Any, Any]) -> Any:
    """Return a function with the same code and copies of its closure, defaults and attributes."""
    cells, defaults = function.__closure__, (function.__defaults__, function.__kwdefaults__)
    if not cells and not any(defaults) and not vars(function):
        if memo.get(_PLAIN) is not None:  # without attributes now, but it may be given some
            memo[_PLAIN].append(function)
        return function
    own = None if cells is None else tuple(CellType() for _ in cells)
    made = FunctionType(function.__code__, function.__globals__, function.__name__, None, own)
    memo[id(function)] = made
    for cell, fresh in zip(cells or (), own or ()):
        with suppress(ValueError):  # the cell may be empty
            fresh.cell_contents = _copied(cell.cell_contents, memo)
    made.__defaults__, made.__kwdefaults__ = (_copied(each, memo) for each in defaults)
    vars(made).update(_copied(vars(function), memo))
    return made


# Gradients of a chunk in all parameters, with few operations, since each costs a kernel launch


_SHORTEST = 1e-70  # shorter gradients count as zero: their squares may have lost digits


class PlacedGradients(NamedTuple):
    """Gradients in one parameter, and its slice of the vector."""

    where: slice
    part: ParameterGradients


class ChunkGradients:
    """Gradients of B samples in all d parameters; materialized ones are merged into one array.

    Parameters missing in ``placed`` have gradient 0; ``like`` (d,) are the parameters.
    """

    def __init__(self, placed: Sequence[PlacedGradients], like: Tensor) -> None:
        placed = sorted(placed, key=lambda each: each.where.start)
        self._like = like
        ends = [0, *(each.where.stop for each in placed)]
        starts = [*(each.where.start for each in placed), len(like)]
        self._gaps = [slice(a, b) for a, b in zip(ends, starts) if a < b]
        self._others = [each for each in placed if not isinstance(each.part, Materialized)]
        written = [
            (each.where, each.part) for each in placed if isinstance(each.part, Materialized)
        ]
        self._places = [where for where, _ in written]
        self._written = self._concatenated([part for _, part in written]) if written else None

    def _concatenated(self, parts: Sequence[Materialized]) -> Materialized:
        widths = [where.stop - where.start for where in self._places]
        dtype = reduce(torch.promote_types, (part.gradients.dtype for part in parts))
        rows = self._like.new_empty((len(parts[0].gradients), sum(widths)), dtype=dtype)
        for part, piece in zip(parts, rows.split(widths, dim=1)):
            piece.view(part.gradients[..., None].shape).copy_(part.gradients[..., None])
        return Materialized(rows)

    @property
    def parts(self) -> list[ParameterGradients]:
        """All parts, with the materialized ones merged."""
        others = [each.part for each in self._others]
        return others if self._written is None else [self._written, *others]

    def squared_norms(self) -> Tensor:
        """Return upper bounds on the squared norms (B,), float64."""
        found = [part.squared_norms() for part in self.parts]
        return found[0] if len(found) == 1 else torch.stack(found).sum(dim=0)

    def zero_out(self, lost: Tensor) -> None:
        """Replace the gradients of the ``lost`` samples, a mask (B,), by zeros."""
        if self._written is not None:
            self._written = self._written.without(lost)
        self._others = [PlacedGradients(where, part.without(lost)) for where, part in self._others]

    def sum(self, weights: Tensor) -> Tensor:
        """Return the sum (d,) of the first gradients times ``weights`` (float64)."""
        out = weights.new_empty(len(self._like))
        self._write_weighted_sum(out, weights)
        return out

    def _write_weighted_sum(self, out: Tensor, weights: Tensor) -> None:
        for where, part in self._others:
            part.write_weighted_sum(out[where], weights)
        if self._written is not None:
            widths = [where.stop - where.start for where in self._places]
            sums = weights.new_empty(sum(widths))
            self._written.write_weighted_sum(sums, weights)
            for where, piece in zip(self._places, sums.split(widths)):
                out[where] = piece
        for gap in self._gaps:
            out[gap] = 0.0

    def write_clipped(
        self,
        out: Tensor,
        losses: Tensor,
        count: int,
        clipping: Clipping | None,
        times: Tensor | None,
    ) -> Tensor:
        """Write the sum of the (clipped) gradients into ``out`` (d,); return how many were clipped.

        Sums the first ``count`` samples with multiplicities ``times`` (count,). Norms are computed
        for all, so that a sample's norm does not depend on ``count``. The products do not add to
        the sums of other chunks, since their order of additions is unknown.
        """
        norms = self.squared_norms().sqrt()
        factors = torch.ones_like(losses)
        looked_at = [losses, norms]
        if clipping is not None:
            factors = clip_to_bound(clipping, norms, losses)
            looked_at.append(factors)
        # 0 times a number that is not finite is NaN, and so is the sum.
        lost = (torch.stack(looked_at) * 0.0).sum(dim=0) != 0.0
        factors = torch.where(lost, 0.0, factors)[:count]
        cut = factors < 1.0
        if clipping is not None:  # a rule may scale up gradients whose squares underflow
            factors = torch.where(norms[:count] < _SHORTEST, 0.0, factors)
        if times is not None:
            cut = cut & (times > 0.0)
            factors = factors * times
        if losses.device.type != "cpu" or bool(lost.any()):  # do not synchronize with a device
            self.zero_out(lost)
        self._write_weighted_sum(out, factors)
        return cut.sum()
