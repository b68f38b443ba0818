"""One loop over blocks of rows in plain array-API calls, and sums of what the blocks give.

Used where no compiled kernel runs: other array libraries, rules and losses of one's own,
networks. What is added over records is added in double precision, by at most
:data:`~dpanalysis.kernels.rounding.BLOCK_ROWS` rows at a time, as in the compiled kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from array_api_compat import array_namespace

from .rounding import BLOCK_ROWS

__all__ = ["Total", "product_sum", "row_blocks"]


def row_blocks(count: int, step: int, rows: Any = None) -> Iterator[tuple[int, Callable[..., Any]]]:
    """Yield ``(size, pick)`` for each of the blocks, of at most ``step`` rows.

    Parameters
    ----------
    count : int
        Number of rows: all of them, or the length of ``rows``.
    step : int
        Most rows of a block, >= 1.
    rows : int array of shape (count,), optional
        Their numbers; by default all rows in order.

    Yields
    ------
    size : int
        Rows of the block.
    pick : callable
        ``pick(array)`` takes the block's entries out of an array with one entry for each row
        of the data (dense of any shape, or CSR). ``pick(array, whole)`` goes on, by rows that
        are there, to the next multiple of ``whole``, unless the data end before; for NumPy's
        arrays.

    Examples
    --------
    >>> import numpy as np
    >>> [pick(np.arange(5)).tolist() for _, pick in row_blocks(5, 2)]
    [[0], [1, 2], [3, 4]]
    """
    parts = -(-count // step)
    for part in range(parts):
        lo, hi = part * count // parts, (part + 1) * count // parts

        def pick(array: Any, whole: int = 1, lo: int = lo, hi: int = hi) -> Any:
            size = -(-(hi - lo) // whole) * whole
            if rows is None:
                chosen = slice(lo, lo + size)
                return array[chosen] if sp.issparse(array) else array[chosen, ...]
            part = rows[lo:hi] if whole == 1 else np.resize(rows[lo:hi], size)
            if sp.issparse(array):
                return array[part]
            return array_namespace(array).take(array, part, axis=0)

        yield hi - lo, pick


class Total:
    """A sum over records: terms are added to a block's sum, and that to the total.

    Parameters
    ----------
    zeros : array
        Where to begin: float64, zero everywhere; it becomes the total.

    Examples
    --------
    >>> import numpy as np
    >>> total = Total(np.zeros(2))
    >>> for k in range(3):
    ...     block = total.open(rows=3000)
    ...     block += k
    >>> total.close()
    array([3., 3.])
    """

    def __init__(self, zeros: Any) -> None:
        self._total, self._block = zeros, None
        self._filled = 0

    def open(self, rows: int) -> Any:
        """Return the array to which the terms of the next ``rows`` rows are to be added."""
        if self._block is None or self._filled + rows > BLOCK_ROWS:
            self.close()
            self._block = array_namespace(self._total).zeros_like(self._total)
            self._filled = 0
        self._filled += rows
        return self._block

    def close(self) -> Any:
        """Return the total of everything so far."""
        if self._block is not None:
            self._total += self._block
            self._block = None
        return self._total


def product_sum(c: Any, X: Any) -> Any:
    """Return ``c.T @ X`` in double precision, added up by blocks of rows.

    Parameters
    ----------
    c : array of shape (m, R)
        Float64.
    X : array of shape (m, d) or scipy.sparse.csr_array
        Of any float dtype; more rows than a block has are allowed on a device only, where one
        call for many blocks is faster than many calls.

    Returns
    -------
    array of shape (R, d)
        Float64.
    """
    xp = array_namespace(c)
    if sp.issparse(X):
        return c.T @ X.astype(c.dtype, copy=False)
    X = xp.astype(X, c.dtype, copy=False)
    rows, blocks = X.shape[0], X.shape[0] // BLOCK_ROWS
    if rows <= BLOCK_ROWS:
        return c.T @ X
    whole = blocks * BLOCK_ROWS
    left = xp.reshape(c[:whole, :], (blocks, BLOCK_ROWS, c.shape[1]))
    right = xp.reshape(X[:whole, :], (blocks, BLOCK_ROWS, X.shape[1]))
    total = xp.sum(xp.matmul(xp.permute_dims(left, (0, 2, 1)), right), axis=0)
    return total + c[whole:, :].T @ X[whole:, :]
