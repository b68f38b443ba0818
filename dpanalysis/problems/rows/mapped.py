"""Arrays mapped from files: whether the file is still what was mapped, and pickling."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np

__all__ = ["Mapped", "mapping"]


def mapping(array: Any) -> Any:
    """Return the mapping of a file that ``array`` lies in, or None."""
    return getattr(array, "_mmap", None) if isinstance(array, np.memmap) else None


class Mapped:
    """A memmap that knows its file's size, and is opened again where it is unpickled.

    Parameters
    ----------
    array : numpy.memmap
    """

    def __init__(self, array: Any) -> None:
        self.array = array
        self._bytes = mapping(array).size()
        self.check()

    def check(self) -> None:
        """Raise OSError if the file's size has changed: past its end a read kills the process."""
        now = mapping(self.array).size()  # that of the file, by fstat
        if now != self._bytes or now < self._start() + len(mapping(self.array)):
            raise OSError(
                f"{self.array.filename or 'a file without a name'} has changed its size while it "
                f"was mapped: {self._bytes} bytes then, {now} now"
            )

    def _start(self) -> int:
        """Return where the mapping starts in the file."""
        offset: int = self.array.offset
        return offset - offset % mmap.ALLOCATIONGRANULARITY

    def __reduce__(self) -> Any:
        array = self.array
        order = "C" if array.flags.c_contiguous else "F"
        if array.filename is None or not (array.flags.c_contiguous or array.flags.f_contiguous):
            raise TypeError(f"cannot pickle rows that are no whole part of a named file: {array!r}")
        # Of a slice of a memmap, ``offset`` is that of the memmap.
        first = np.frombuffer(mapping(array), np.uint8).__array_interface__["data"][0]
        offset = self._start() + array.__array_interface__["data"][0] - first
        return _reopen, (array.filename, array.dtype, offset, array.shape, order, self._bytes)


def _reopen(
    name: Any, dtype: Any, offset: int, shape: tuple[int, ...], order: Any, size: int
) -> Mapped:
    mapped = Mapped(np.memmap(name, dtype, "r", offset, shape, order))
    mapped._bytes = size
    mapped.check()
    return mapped
