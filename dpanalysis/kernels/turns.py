"""Numbers that several threads count on together: which task is next, and how many are done.

A thread takes the next task when it is free, so that one that comes late, or shares its core with
another program, costs the others no more than the task that it is at.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from .scalar import FAST

# Compiled with scalar.py, sha256 6943957e836d8dd8

__all__ = ["FAILED", "LEADER", "RUNG", "SEEN", "begin", "go_on", "leave", "new_turns"]

# Places in the array of turns: a cache line each, for the threads write to them in turn.
NEXT, DONE, FAILED = 0, 8, 16
# Places in a helper's bell.
RUNG, SEEN = 0, 8
LEADER = -1
# Looks at its bell before a helper sleeps, about 0.2 ms: to wake it takes nearly as long.
_LOOKS = 200_000


def new_turns() -> np.ndarray:
    """Return what the threads of one sum count on."""
    return np.zeros(24, np.int64)


def _item(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    """Return where the number at a place of an array lies: its first two arguments."""
    kind = signature.args[0]
    view = context.make_array(kind)(context, builder, args[0])
    return cgutils.get_item_pointer(
        context, builder, kind, view, args[1:2], wraparound=False, boundscheck=False
    )


@intrinsic
def _add(typingctx: Any, numbers: Any, place: Any, amount: Any) -> Any:
    """Add to a number that other threads change too; return what it was."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        item = _item(context, builder, signature, args)
        return builder.atomic_rmw("add", item, args[2], "seq_cst")

    return types.int64(numbers, types.int64, types.int64), codegen


@intrinsic
def _look(typingctx: Any, numbers: Any, place: Any) -> Any:
    """Return a number that other threads change."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        item = _item(context, builder, signature, args)
        return builder.load_atomic(item, "acquire", 8)

    return types.int64(numbers, types.int64), codegen


@njit(**FAST)
def begin(turns: Any, bells: Any, helper: int) -> int:
    """Return the number of the first task; the thread that leads rings all bells before that.

    It rings here, where it holds no lock of the interpreter: a helper needs that to begin.
    """
    if helper == LEADER:
        for k in range(bells.shape[0]):
            _add(bells[k], RUNG, 1)  # type: ignore[call-arg]
    task: int = _add(turns, NEXT, 1)  # type: ignore[call-arg]
    return task


@njit(**FAST)
def go_on(turns: Any) -> int:
    """Note that a task is done; return the number of the next one."""
    _add(turns, DONE, 1)  # type: ignore[call-arg]
    task: int = _add(turns, NEXT, 1)
    return task


@njit(**FAST)
def leave(turns: Any, tasks: int, bells: Any, helper: int) -> None:
    """Wait until all tasks are done; a helper waits a moment for its bell instead."""
    if helper == LEADER:
        while _look(turns, DONE) < tasks and _look(turns, FAILED) == 0:  # type: ignore[call-arg]
            pass
    else:
        bell = bells[helper]
        looks = 0
        while looks < _LOOKS and _look(bell, RUNG) == bell[SEEN]:  # type: ignore[call-arg]
            looks += 1
