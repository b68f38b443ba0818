"""Neighbouring data sets with rows in a ball."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

from ..._validation import check_number
from ...privacy.relations import ADD_OR_REMOVE_ONE, REPLACE_ONE, check_relation
from ...problems.row_bound import Order, RowBound, as_bounds
from ...problems.rows.checks import row_norms
from ._arguments import SIGN, UNIT, Draw, Size, sizes

__all__ = [
    "LABELS",
    "Bounds",
    "check_bounds",
    "dataset_pairs",
    "into_ball",
    "neighbouring_datasets",
]

Dataset: TypeAlias = tuple[np.ndarray, np.ndarray]
Bounds: TypeAlias = tuple[RowBound, ...]

LABELS = (-1.0, 1.0)


def _labels(labels: Any) -> st.SearchStrategy[float]:
    if isinstance(labels, st.SearchStrategy):
        return labels
    allowed = [check_number("labels", label) for label in labels]
    if not allowed:
        raise ValueError("labels must name at least one label, got none")
    return st.sampled_from(allowed)


def check_bounds(row_bound: Any) -> Bounds:
    """Return the bounds of ``row_bound``, at least one, or raise."""
    bounds = as_bounds(row_bound)
    if not bounds:
        raise ValueError("row_bound must bound the rows, such as RowBound(2, 1.0), got none")
    return bounds


def _norm(row: Any, order: Order) -> float:
    if order in (1, 2):
        return math.fsum(abs(row)) if order == 1 else math.hypot(*row)
    return float(row_norms(row[None, :], order)[0])


def into_ball(row: np.ndarray, bounds: Bounds) -> np.ndarray:
    """Scale a row into the ball; one that is over by rounding loses an ulp at a time."""
    for bound in bounds:
        norm = _norm(row, bound.order)
        if norm > bound.radius:
            row = row * row.dtype.type(bound.radius / norm)
        while _norm(row, bound.order) > bound.radius:
            row = row * (1 - np.finfo(row.dtype).epsneg)
    return row


def _rows(d: int, bounds: Bounds, *, zero: bool = True) -> st.SearchStrategy[np.ndarray]:
    """Rows of the ball: zero, its vertices, the diagonals, anything (often on the boundary)."""
    reach = min(bound.radius for bound in bounds)
    axes = st.tuples(SIGN, st.integers(0, d - 1)).map(lambda end: end[0] * np.eye(d)[end[1]])
    diagonals = st.lists(SIGN, min_size=d, max_size=d).map(np.array)
    anything = st.lists(UNIT, min_size=d, max_size=d).map(np.array)
    kinds = [axes, diagonals, anything]
    rows = st.one_of([st.just(np.zeros(d)), *kinds] if zero else kinds)
    return rows.map(lambda row: into_ball(reach * row, bounds))


def _data(draw: Draw, n: int, d: int, bounds: Bounds, labels: Any) -> tuple[np.ndarray, np.ndarray]:
    """Draw a data set: rows of their own, or one row n times (a lone record stands out best)."""
    rows = _rows(d, bounds)
    if draw(st.booleans()):
        table = [draw(rows) for _ in range(n)]
        return np.array(table), np.array([draw(labels) for _ in range(n)])
    return np.tile(draw(rows), (n, 1)), np.full(n, draw(labels))


@st.composite
def dataset_pairs(
    draw: Draw,
    relation: str,
    n: st.SearchStrategy[int],
    d: st.SearchStrategy[int],
    bounds: Bounds,
    labels: st.SearchStrategy[float],
) -> tuple[Dataset, Dataset]:
    """Draw two data sets that differ in one record."""
    size, width = draw(n), draw(d)
    X, y = _data(draw, size, width, bounds, labels)
    index = draw(st.integers(0, size - 1))
    X[index] = draw(_rows(width, bounds, zero=False))
    if relation == ADD_OR_REMOVE_ONE:
        pair = (X, y), (np.delete(X, index, axis=0), np.delete(y, index))
        return pair if draw(st.booleans()) else pair[::-1]
    X_other, y_other = X.copy(), y.copy()
    opposite = st.just(0.0 - X[index])
    X_other[index] = draw(st.one_of(opposite, _rows(width, bounds)))
    y_other[index] = draw(st.one_of(st.just(y[index]), labels))
    assume((X_other[index] != X[index]).any() or y_other[index] != y[index])
    return (X, y), (X_other, y_other)


def neighbouring_datasets(
    relation: str = REPLACE_ONE,
    *,
    n: Size = (1, 8),
    d: Size = (1, 4),
    row_bound: RowBound | Sequence[RowBound] = RowBound(2, 1.0),  # noqa: B008 (frozen)
    labels: Any = LABELS,
) -> st.SearchStrategy[tuple[Dataset, Dataset]]:
    """Return pairs of data sets that differ in one record.

    Parameters
    ----------
    relation : {"replace_one", "add_or_remove_one"}
        One record has another row or label; or one of the two data sets, either of them,
        lacks one record of the other: problems made of them need one nominal ``size=``.
    n : int or (int, int)
        Rows of the (larger) data set, or their smallest and largest number, at least 1.
        The neighbour of a single row may be an empty data set.
    d : int or (int, int)
        Features, at least 1.
    row_bound : RowBound or sequence of RowBound
        All rows obey it. To see whether a mechanism clips, give a larger one than it relies on.
    labels : sequence of float, or strategy of floats
        What labels are drawn from.

    Returns
    -------
    strategy of ((X, y), (X, y))
        ``X`` of shape (n, d), ``y`` of shape (n,), both float64.

    Raises
    ------
    ValueError, TypeError
        If an argument is outside its range.

    Examples
    --------
    >>> from hypothesis import find
    >>> (X, y), (X_other, _) = find(neighbouring_datasets(n=2, d=2), lambda pair: True)
    >>> X - X_other
    array([[2., 0.],
           [0., 0.]])
    """
    check_relation(relation)
    return dataset_pairs(
        relation, sizes("n", n), sizes("d", d), check_bounds(row_bound), _labels(labels)
    )
