"""Rows whose number of columns was read off the data: they say so, and private runs refuse them."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
import scipy.sparse as sp

__all__ = ["has_read_width", "refuse_read_width", "with_read_width"]


class _ReadWidthArray(np.ndarray):
    """Dense rows; slices, and what arithmetic and stacking make of them, are of this class, too."""

    __array_priority__ = 1.0


class _ReadWidthCSR(sp.csr_array):
    """Sparse rows; slices, copies and dense rows made of them are marked, too."""

    def toarray(self, *arguments: Any, **options: Any) -> np.ndarray:
        """See :meth:`scipy.sparse.csr_array.toarray`."""
        return super().toarray(*arguments, **options).view(_ReadWidthArray)


def with_read_width(X: Any) -> Any:
    """Return rows, sparse or dense, marked: the same numbers in a class that says so."""
    return _ReadWidthCSR(X) if sp.issparse(X) else np.asarray(X).view(_ReadWidthArray)


def has_read_width(X: Any) -> bool:
    """Whether the rows are marked."""
    return isinstance(X, _ReadWidthArray | _ReadWidthCSR)


def refuse_read_width() -> NoReturn:
    """Raise ValueError: a private run must not have rows that are marked."""
    raise ValueError(
        "n_features must be given to load_libsvm for a private run: without it the number of "
        "columns of X is the largest index in the private file, and the shape of the answer would "
        "tell it; give the number of columns that was public before, load_libsvm(path, "
        "n_features=...)"
    )
