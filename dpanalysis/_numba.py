"""Options and cache of compiled functions, and the work queue of the thread pool.

A thread claims the next task when it is free, so that a thread that starts late, or shares its core
with another program, delays the others by at most its current task.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
from numba import types
from numba.core import cgutils
from numba.core.ccallback import CFunc
from numba.core.sigutils import normalize_signature
from numba.extending import intrinsic

from ._parallel import DONE, FAILED, LEADER, NEXT, SEEN, WAKES


def _probe() -> None:
    """Do nothing; Numba looks for a cache folder when a function is decorated."""


def _can_cache() -> bool:
    """Return whether Numba finds a cache folder; warn if not."""
    # A folder that others can write to is no substitute: kernels are loaded by unpickling.
    try:
        numba.njit(cache=True)(_probe)
    except RuntimeError:  # neither the package nor the home is writable, as in many containers
        warnings.warn(
            "compiled kernels cannot be cached: neither the package nor the home is writable. "
            "Every process compiles them again, for some seconds; set NUMBA_CACHE_DIR to a "
            "private folder to cache them",
            RuntimeWarning,
            stacklevel=2,
        )
        return False
    return True


def sources_digest(package: Path) -> str:
    """Return a digest of all files with compiled code; Numba checks only the kernel's own file."""
    files = [*sorted((package / "kernels").glob("*.py")), package / "privacy" / "_compiled.py"]
    digest = hashlib.sha256()
    for path in [*files, package / "_numba.py", package / "_parallel.py"]:
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


# A cached kernel that was compiled from other sources is not loaded.
_STAMP = sources_digest(Path(__file__).parent)

# Without "nnan" and "ninf": NaN must propagate. With NumPy's error model division has no branch.
FAST: dict[str, Any] = {
    "cache": _can_cache(),
    "nogil": True,
    "error_model": "numpy",
    "no_cfunc_wrapper": True,  # compiling one takes as long as some of the functions
    "fastmath": {"reassoc", "contract", "arcp", "nsz"},
}
EXACT: dict[str, Any] = {**FAST, "fastmath": {"contract"}}
# For functions called by kernels only: calling one from Python, without a wrapper, would crash.
INNER: dict[str, Any] = {**FAST, "no_cpython_wrapper": True}


def njit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile like ``numba.njit``, with :func:`sources_digest` as the key of the cache."""

    def compiled(function: Callable[..., Any]) -> Any:
        dispatcher = numba.njit(**options)(function)
        if options.get("cache"):
            dispatcher._cache._cache_file._source_stamp = _STAMP
        return dispatcher

    return compiled


def cfunc(signature: Any, function: Callable[..., Any]) -> Any:
    """Compile like ``numba.cfunc``, with the same cache."""
    callback: Any = CFunc(function, normalize_signature(signature), locals={}, options={})
    if FAST["cache"]:
        callback.enable_caching()
        callback._cache._cache_file._source_stamp = _STAMP
    callback.compile()
    return callback


@intrinsic
def _borrowed(typingctx: Any, data: Any) -> Any:
    def not_counted(context: Any, builder: Any, kind: Any, value: Any) -> Any:
        if isinstance(kind, types.Array):
            array = context.make_array(kind)(context, builder, value)
            array.meminfo = cgutils.get_null_value(array.meminfo.type)
            array.parent = cgutils.get_null_value(array.parent.type)
            return array._getvalue()
        if isinstance(kind, types.Tuple | types.UniTuple):
            pairs = zip(kind.types, cgutils.unpack_tuple(builder, value))
            parts = [not_counted(context, builder, *pair) for pair in pairs]
            return context.make_tuple(builder, kind, parts)
        return value

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return not_counted(context, builder, signature.args[0], args[0])

    return data(data), codegen


#: ``borrowed(data)`` is the tuple with arrays that are not reference-counted: a kernel's caller
#: keeps them alive. Counting is an atomic operation, and a loop that unpacks a tuple does ten.
borrowed: Any = _borrowed


# A helper polls its flag for about 0.2 ms before it sleeps: waking it takes nearly as long.
_POLLS = 200_000


def _item(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    """Return the address of an array entry; the first two arguments are the array and the index."""
    kind = signature.args[0]
    view = context.make_array(kind)(context, builder, args[0])
    return cgutils.get_item_pointer(
        context, builder, kind, view, args[1:2], wraparound=False, boundscheck=False
    )


@intrinsic
def _atomic_add(typingctx: Any, numbers: Any, place: Any, amount: Any) -> Any:
    """Add to a number atomically and return its previous value."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        item = _item(context, builder, signature, args)
        return builder.atomic_rmw("add", item, args[2], "seq_cst")

    return types.int64(numbers, types.int64, types.int64), codegen


@intrinsic
def _load(typingctx: Any, numbers: Any, place: Any) -> Any:
    """Load, atomically, a number that other threads change."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        item = _item(context, builder, signature, args)
        return builder.load_atomic(item, "acquire", 8)

    return types.int64(numbers, types.int64), codegen


@njit(**FAST)
def first_task(queue: Any, wake_flags: Any, helper: int) -> int:
    """Claim the first task; the leader, which has released the GIL, first wakes the helpers."""
    if helper == LEADER:
        for k in range(wake_flags.shape[0]):
            _atomic_add(wake_flags[k], WAKES, 1)  # type: ignore[call-arg]
    task: int = _atomic_add(queue, NEXT, 1)  # type: ignore[call-arg]
    return task


@njit(**FAST)
def next_task(queue: Any) -> int:
    """Count a task as done and claim the next one."""
    _atomic_add(queue, DONE, 1)  # type: ignore[call-arg]
    task: int = _atomic_add(queue, NEXT, 1)
    return task


@njit(**FAST)
def finish(queue: Any, tasks: int, wake_flags: Any, helper: int) -> None:
    """Wait, as the leader, until all tasks are done; as a helper, poll the wake flag briefly."""
    if helper == LEADER:
        while _load(queue, DONE) < tasks and _load(queue, FAILED) == 0:  # type: ignore[call-arg]
            pass
    else:
        flag = wake_flags[helper]
        polls = 0
        while polls < _POLLS and _load(flag, WAKES) == flag[SEEN]:  # type: ignore[call-arg]
            polls += 1
