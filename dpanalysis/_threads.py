"""How many threads a BLAS library may use, where several threads of this process ask.

Most libraries have one number for the whole process. The first thread that wants one thread
sets the limit, the last one lifts it: otherwise the second of two that overlap would find the
limit of the first, and leave it behind for good.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any

__all__ = ["one_blas_thread"]


@cache
def _pools() -> Any:
    """Find the thread pools of the BLAS libraries loaded."""
    from threadpoolctl import ThreadpoolController

    # Selected: a limit of some of a controller's pools sets back all of them in the end.
    return ThreadpoolController().select(user_api="blas")


def _take_control() -> None:
    """Let this thread set the number, whichever thread of ours did so last."""
    import threadpoolctl

    # From version 3.8 on, what a second thread sets is ignored without a word.
    clear = getattr(threadpoolctl.OpenBLASController, "clear_controlling_thread", None)
    if clear is not None:
        clear(force=True)


_lock = threading.Lock()
_limits = ExitStack()
_inside = 0


@contextmanager
def one_blas_thread(look: bool = False) -> Iterator[int]:
    """Limit matrix products to one thread; the context's value is how many are in it.

    Blocks are small, and a pool that fights with another one for the cores is hundreds of
    times slower; besides, the result then does not depend on the number of threads.

    Parameters
    ----------
    look : bool
        Look for libraries anew: some may have been loaded since.

    Examples
    --------
    >>> with one_blas_thread() as inside:
    ...     inside
    1
    """
    global _inside
    with _lock:
        if look:
            _pools.cache_clear()
        if look or not _inside:
            pools = _pools()
            if any(library.num_threads != 1 for library in pools.lib_controllers):
                _take_control()
                _limits.enter_context(pools.limit(limits=1))
        _inside += 1
        inside = _inside
    try:
        yield inside
    finally:
        with _lock:
            _inside -= 1
            if not _inside:
                _take_control()
                _limits.close()
