"""Whether compiled kernels can be kept on disk."""

from __future__ import annotations

import warnings

from numba import njit

__all__ = ["CACHE"]


def _probe() -> None:
    """Stand for any kernel: Numba looks for a folder when it is told to keep one."""


def _can_keep() -> bool:
    """Return whether Numba finds a folder for kernels; warn where it finds none.

    No folder of our own serves instead: kernels are loaded by unpickling, so that a folder which
    others may write to would let them run code here.
    """
    try:
        njit(cache=True)(_probe)
    except RuntimeError:  # the package and the home cannot be written, as in many containers
        warnings.warn(
            "compiled kernels cannot be kept: neither the package nor the home can be written. "
            "Every process compiles anew, for some seconds; set NUMBA_CACHE_DIR to a folder of "
            "your own to keep them",
            RuntimeWarning,
            stacklevel=2,
        )
        return False
    return True


CACHE = _can_keep()
