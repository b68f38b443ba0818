"""The rows that a private linear model is fitted to: bounded, with a constant 1."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..preprocessing.columns import PublicColumns, learned_by
from ..privacy.blocks import Block
from ..problems.row_bound import RowBound, as_bounds, implied_radius, with_constant

__all__ = ["ColumnDesign", "RowDesign", "design_of", "in_file"]

# Columns of a sparse matrix that may become dense: so many, or this share of them.
_MOST_CENTRED, _SHARE_CENTRED = 32, 0.25
_LENGTH = 4.0  # of rows of which nothing but a norm is known, once they are scaled


@dataclass(frozen=True, eq=False)
class ColumnDesign:
    r"""Numbers in [-1, 1] and the constant 1, then the groups of indicators.

    A number x in [low, high] becomes :math:`(2x - low - high)/(high - low)`, which changes
    nothing but the intercept and the unit of its weight. So the numbers and the constant lie in
    one cube, an :math:`L_\infty` ball, and each group of indicators in an :math:`L_1` ball.

    Parameters
    ----------
    columns : PublicColumns
    intercept : bool
        Whether there is a constant. Without one nothing is moved, and numbers are divided by the
        largest size of theirs.
    sparse : bool
        Of the rows. Sparse rows of many numbers are not moved either: they would become dense.
    """

    columns: PublicColumns
    intercept: bool
    sparse: bool

    @property
    def _lit(self) -> np.ndarray:
        groups = [np.arange(start, stop) for start, stop in self.columns.groups]
        return np.concatenate([np.arange(0), *groups]).astype(int)

    @property
    def _scales(self) -> tuple[np.ndarray, np.ndarray]:
        """Return centre and half width of the numbers."""
        numbers = self.columns.numbers
        low, high = self.columns.low[numbers], self.columns.high[numbers]
        most = max(_MOST_CENTRED, _SHARE_CENTRED * self.columns.d)
        many = self.sparse and len(numbers) > most
        if not self.intercept or many:
            return np.zeros(len(numbers)), np.maximum(abs(low), abs(high))
        return 0.5 * low + 0.5 * high, 0.5 * high - 0.5 * low

    @property
    def row_bound(self) -> RowBound:
        """Bound on the rows of :meth:`rows`, by blocks."""
        cube = len(self.columns.numbers) + self.intercept
        blocks = [Block(cube, math.inf, 1.0)] if cube else []
        blocks += [Block(stop - start, 1, 1.0) for start, stop in self.columns.groups]
        return RowBound(tuple(blocks), 1.0)

    def rows(self, X: Any) -> Any:
        """Return the rows of the design, each from the same row of X."""
        numbers, lit = self.columns.numbers, self._lit
        centre, half = (part.astype(X.dtype) for part in self._scales)
        if sp.issparse(X):
            part = X[:, numbers]
            if centre.any():
                part = sp.csr_array((part.toarray() - centre) / half)
            else:
                part = part @ sp.diags_array(1.0 / half)
            one = [sp.csr_array(np.ones((X.shape[0], 1), dtype=X.dtype))] * self.intercept
            return sp.hstack([part, *one, X[:, lit]], format="csr")
        m = len(numbers)
        D = np.empty((X.shape[0], m + self.intercept + len(lit)), dtype=X.dtype)
        np.subtract(X[:, numbers], centre, out=D[:, :m])
        D[:, :m] /= half
        np.clip(D[:, :m], -1.0, 1.0, out=D[:, :m])
        if self.intercept:
            D[:, m] = 1.0
        D[:, m + self.intercept :] = X[:, lit]
        return D

    def weights(self, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return coefficients (k, d) and intercepts (k,) for X, of weights (k, D) of the design."""
        numbers, (centre, half) = self.columns.numbers, self._scales
        m = len(numbers)
        coef = np.empty((len(w), self.columns.d))
        coef[:, numbers] = w[:, :m] / half
        coef[:, self._lit] = w[:, m + self.intercept :]
        constant = w[:, m] if self.intercept else np.zeros(len(w))
        return coef, constant - coef[:, numbers] @ centre


@dataclass(frozen=True, eq=False)
class RowDesign:
    """Rows of which norms are bounded, scaled, and the constant 1.

    Parameters
    ----------
    bounds : sequence of RowBound
        Of the rows as they come.
    d : int
        Columns.
    intercept : bool
    """

    bounds: Sequence[RowBound]
    d: int
    intercept: bool

    @property
    def _scale(self) -> float:
        return min(math.sqrt(self.d), _LENGTH) / implied_radius(self.bounds, 2, self.d)

    @property
    def row_bound(self) -> list[RowBound]:
        """Bounds on the rows of :meth:`rows`."""
        scaled = [replace(b, radius=self._scale * b.radius) for b in self.bounds]
        return [with_constant(b) for b in scaled] if self.intercept else scaled

    def rows(self, X: Any) -> Any:
        """Return the rows of the design, each from the same row of X."""
        if not self.intercept:
            return X * np.asarray(self._scale, dtype=X.dtype)
        if sp.issparse(X):
            one = sp.csr_array(np.ones((X.shape[0], 1), dtype=X.dtype))
            return sp.hstack([X * X.dtype.type(self._scale), one], format="csr")
        D = np.empty((X.shape[0], self.d + 1), dtype=X.dtype)
        np.multiply(X, self._scale, out=D[:, :-1])
        D[:, -1] = 1.0
        return D

    def weights(self, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return coefficients (k, d) and intercepts (k,) for X, of weights (k, D) of the design."""
        constant = w[:, self.d] if self.intercept else np.zeros(len(w))
        return self._scale * w[:, : self.d], constant


@contextmanager
def in_file(parts: Iterable[np.ndarray]) -> Iterator[np.memmap]:
    """Write rows to a temporary file, and give them back mapped, so that no memory holds them all.

    Raises
    ------
    ValueError
        If there are none.
    OSError
        If the disk is full.
    """
    with tempfile.TemporaryDirectory() as folder:
        path, shape, dtype = Path(folder, "rows"), (0, 0), np.dtype(np.float64)
        with open(path, "wb") as file:
            for rows in parts:
                file.write(rows.tobytes())
                shape, dtype = (shape[0] + len(rows), rows.shape[1]), rows.dtype
        if not shape[0]:
            raise ValueError("there are no rows")
        yield np.memmap(path, dtype, "r", shape=shape)


def design_of(
    bounds: Any, attached: PublicColumns | None, d: int, intercept: bool, sparse: bool
) -> tuple[ColumnDesign | RowDesign, str]:
    """Return the design for the bounds that are given or attached, and a sentence about them.

    Raises
    ------
    ValueError, TypeError
        If ``bounds`` are none.
    """
    said = "Every feature is cut to a range that was given as public."
    if bounds is None and attached is not None:
        bounds = attached
        said = "Every feature lies in a public range; what does not is cut to it."
    if bounds is None:
        said = "No bounds were declared: every feature was cut to the range from -1 to 1."
        columns = PublicColumns(np.full(d, -1.0), np.ones(d))
    elif isinstance(bounds, PublicColumns):
        columns = bounds
    elif isinstance(bounds, RowBound) or (
        isinstance(bounds, Sequence) and any(isinstance(b, RowBound) for b in bounds)
    ):
        rows = as_bounds(bounds)
        if any(isinstance(bound.order, tuple) for bound in rows):
            raise TypeError("bounds by blocks must be given as PublicColumns")
        return RowDesign(rows, d, intercept), f"Rows are cut to public norms: {rows!r}."
    else:
        columns = _ranges(bounds, d)
    if columns.d != d:
        raise ValueError(f"bounds are for {columns.d} features, and X has {d}")
    if columns.learned:
        said = "Every feature is cut to a range that was learned from the data and paid for."
    return ColumnDesign(columns, intercept, sparse), said


def _ranges(bounds: Any, d: int) -> PublicColumns:
    """Return columns in the range(s) ``(low, high)``, numbers or arrays of shape (d,)."""
    try:
        fits = [fit for end in bounds for fit in learned_by(end)]
        low, high = (np.broadcast_to(np.asarray(end, dtype=np.float64), (d,)) for end in bounds)
    except (TypeError, ValueError):
        raise ValueError(
            f"bounds must be (low, high) for all features or for each of the {d}, PublicColumns, "
            f"or RowBound, got {bounds!r}"
        ) from None
    return PublicColumns(low, high, learned=tuple(fits))
