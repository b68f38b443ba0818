"""What a module and a loss keep from one call to the next, and how it is put back."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from types import BuiltinFunctionType, CellType, FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["State", "UserLoss"]

_CONSTANT = (
    *(type(None), bool, int, float, complex, str, bytes, type, BuiltinFunctionType),
    *(torch.dtype, torch.device, torch.Size),
)


class UserLoss:
    """A loss, held so that a copy can take its place."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def __call__(self, outputs: Any, y: Tensor) -> Tensor:
        """Return what the loss does."""
        return self.function(outputs, y)


class State:
    """Everything reachable from a module and a loss but the trained parameters.

    Attributes of all layers, buffers, frozen parameters, hooks, the attributes of a loss that is
    an object, and the variables and defaults of functions, with all that they hold. Not what
    belongs to the process (globals, attributes of classes, files), nor what cannot be copied.

    Parameters
    ----------
    module : Module
    loss : UserLoss
    trained : iterable of Tensor
        Kept as they are.
    """

    def __init__(self, module: nn.Module, loss: UserLoss, trained: Iterable[Tensor]) -> None:
        self._holders = [*module.modules(), loss]
        self._kept = {id(each): each for each in (*self._holders, *trained)}
        self._saved = self._copies([vars(each) for each in self._holders])

    def restore(self) -> None:
        """Put back what was there when this was made."""
        for holder, fresh in zip(self._holders, self._copies(self._saved)):
            own = vars(holder)
            own.clear()
            own.update(fresh)

    def _copies(self, saved: list[dict[str, Any]]) -> list[dict[str, Any]]:
        memo: dict[int, Any] = dict(self._kept)
        return [_copied(each, memo) for each in saved]


def _copied(value: Any, memo: dict[int, Any]) -> Any:
    """Do as ``copy.deepcopy`` does, quicker, and copy what functions enclose."""
    kind = type(value)
    if kind in _CONSTANT:
        return value
    if id(value) in memo:
        return memo[id(value)]
    made: Any
    if kind in (dict, OrderedDict):
        made = memo[id(value)] = kind()
        for key, each in value.items():
            made[key] = _copied(each, memo)
        return made
    if kind is list:
        made = memo[id(value)] = []
        made.extend(_copied(each, memo) for each in value)
        return made
    if kind in (tuple, set):
        return kind(_copied(each, memo) for each in value)
    if kind is FunctionType:
        return _function(value, memo)
    if kind is MethodType:
        return MethodType(value.__func__, _copied(value.__self__, memo))
    if kind is partial:
        named = _copied(value.keywords, memo)
        return partial(_copied(value.func, memo), *_copied(value.args, memo), **named)
    try:
        return copy.deepcopy(value, memo)
    except Exception:  # whatever a class says, as a lock does
        return value


def _function(function: FunctionType, memo: dict[int, Any]) -> Any:
    """Return a function with the same code, and variables of its own."""
    cells, defaults = function.__closure__, (function.__defaults__, function.__kwdefaults__)
    if not cells and not any(defaults) and not vars(function):
        return function
    own = None if cells is None else tuple(CellType() for _ in cells)
    made = FunctionType(function.__code__, function.__globals__, function.__name__, None, own)
    memo[id(function)] = made
    for cell, fresh in zip(cells or (), own or ()):
        with suppress(ValueError):  # nothing may be in it yet
            fresh.cell_contents = _copied(cell.cell_contents, memo)
    made.__defaults__, made.__kwdefaults__ = (_copied(each, memo) for each in defaults)
    vars(made).update(_copied(vars(function), memo))
    return made
