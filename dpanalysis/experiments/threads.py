"""One thread for each cell: sums then round alike wherever the cell runs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

__all__ = ["one_thread"]

# Numba and OpenMP count threads for each calling thread, BLAS libraries for the process. Cells
# that share a process (threads of joblib or of a Dask worker) share one limit of BLAS: the
# first of them sets it, the last one lifts it.
_lock = threading.Lock()
_inside = 0
_blas = ExitStack()


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit BLAS, OpenMP and Numba to one thread, in as many threads at once as you like.

    Raises
    ------
    RuntimeError
        If another thread is inside already and Numba's threading layer cannot bear that.

    Examples
    --------
    >>> import numba
    >>> with one_thread():
    ...     numba.get_num_threads()
    1
    """
    import numba
    import scipy.linalg  # noqa: F401  # has a BLAS of its own, not to be loaded later unlimited
    from threadpoolctl import ThreadpoolController

    before = numba.get_num_threads()  # the first call in a process chooses the layer
    numba.set_num_threads(1)
    try:
        # Selected, for a limit of some pools would set back all of them in the end.
        openmp = ThreadpoolController().select(user_api="openmp")
        with openmp.limit(limits=1), _one_blas_thread():
            if _inside > 1 and numba.threading_layer() == "workqueue":
                raise RuntimeError(
                    "Numba's threading layer here is 'workqueue', which cannot be used from "
                    "several threads: install tbb or OpenMP, or use backend='loky'"
                )
            yield
    finally:
        numba.set_num_threads(before)


@contextmanager
def _one_blas_thread() -> Iterator[None]:
    from threadpoolctl import ThreadpoolController

    global _inside
    with _lock:
        _inside += 1
        # Looked up each time: a cell may load another library.
        pools = ThreadpoolController().select(user_api="blas")
        if any(pool["num_threads"] != 1 for pool in pools.info()):
            _take_control(pools)
            _blas.enter_context(pools.limit(limits=1))
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside:
                _take_control(pools)
                _blas.close()


def _take_control(pools: Any) -> None:
    """Make limits of this thread count: else threadpoolctl may leave OpenBLAS to another one."""
    for library in pools.lib_controllers:
        if hasattr(library, "clear_controlling_thread"):  # newer versions
            library.clear_controlling_thread(force=True)
