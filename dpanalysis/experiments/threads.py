"""One thread for each cell: sums then round alike wherever the cell runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .._threads import one_blas_thread

__all__ = ["one_thread"]


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit BLAS, OpenMP and Numba to one thread, in as many threads at once as you like.

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

    # Numba and OpenMP count threads for each calling thread, BLAS libraries for the process.
    before = numba.get_num_threads()
    numba.set_num_threads(1)
    try:
        # Selected, for a limit of some pools would set back all of them in the end.
        openmp = ThreadpoolController().select(user_api="openmp")
        with openmp.limit(limits=1), one_blas_thread(look=True):
            yield
    finally:
        numba.set_num_threads(before)
