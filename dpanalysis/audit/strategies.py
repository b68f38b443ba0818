"""Hypothesis strategies for neighbouring data, problems and queries, worst cases first.

They are meant for tests of private code. Each strategy makes the worst cases likely, above all
rows on the boundary of the ball and at opposite ends of it. A failing test shrinks to a readable
counterexample. The strategies need Hypothesis: ``pip install "dpanalysis-toolkit[audit]"``.

Examples
--------
>>> import numpy as np
>>> from hypothesis import given
>>> @given(neighbouring_datasets(n=(1, 5), d=2))
... def test_a_sum_moves_by_a_diameter(pair):
...     (X, _), (X_other, _) = pair
...     assert np.linalg.norm(X.sum(axis=0) - X_other.sum(axis=0)) <= 2.0 + 1e-12
>>> test_a_sum_moves_by_a_diameter()
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp

try:
    from hypothesis import assume, note
    from hypothesis import strategies as st
except ImportError as error:
    raise ImportError(
        "dpanalysis.audit.strategies needs Hypothesis: pip install 'dpanalysis-toolkit[audit]'"
    ) from error

from .. import losses, regularizers
from .._validation import check_int, check_number
from ..privacy.accounting.relations import ADD_OR_REMOVE_ONE, REPLACE_ONE, check_relation
from ..problems.erm import ERM
from ..problems.quadratic import Quadratic
from ..problems.row_bound import Order, RowBound, as_bounds
from ..problems.rows.checks import read_only, row_norms

__all__ = [
    "FORMS",
    "erm_problems",
    "neighbouring_datasets",
    "neighbouring_problems",
    "quadratics",
    "query_sequences",
]

Draw: TypeAlias = Callable[[st.SearchStrategy[Any]], Any]
Size: TypeAlias = int | tuple[int, int]

SIGN = st.sampled_from([1.0, -1.0])
UNIT = st.floats(-1.0, 1.0, allow_subnormal=False)


def sizes(name: str, value: Size, low: int = 1) -> st.SearchStrategy[int]:
    """Return a strategy of integers: one number, or the range (smallest, largest)."""
    if isinstance(value, (tuple, list)):
        if len(value) != 2:
            raise ValueError(f"{name} must be an integer or (smallest, largest), got {value!r}")
        first = check_int(name, value[0], low=low)
        return st.integers(first, check_int(name, value[1], low=first))
    return st.just(check_int(name, value, low=low))


def choice(value: Any, default: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return ``value`` as a strategy: itself, the default for None, else the constant value."""
    if value is None:
        return default
    return value if isinstance(value, st.SearchStrategy) else st.just(value)


# Neighbouring data sets with rows in a ball


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
    """Return the bounds in ``row_bound``; raise unless there is at least one."""
    bounds = as_bounds(row_bound)
    if not bounds:
        raise ValueError("row_bound must bound the rows, such as RowBound(2, 1.0), got none")
    return bounds


def _norm(row: Any, order: Order) -> float:
    if order in (1, 2):
        return math.fsum(abs(row)) if order == 1 else math.hypot(*row)
    return float(row_norms(row[None, :], order)[0])


def into_ball(row: np.ndarray, bounds: Bounds) -> np.ndarray:
    """Scale a row into the ball; reduce it by ulps if rounding leaves it outside."""
    for bound in bounds:
        norm = _norm(row, bound.order)
        if norm > bound.radius:
            row = row * row.dtype.type(bound.radius / norm)
        while _norm(row, bound.order) > bound.radius:
            row = row * (1 - np.finfo(row.dtype).epsneg)
    return row


def _rows(d: int, bounds: Bounds, *, zero: bool = True) -> st.SearchStrategy[np.ndarray]:
    """Return a strategy of rows in the ball: 0, vertices, diagonals, any (often the boundary)."""
    reach = min(bound.radius for bound in bounds)
    axes = st.tuples(SIGN, st.integers(0, d - 1)).map(lambda end: end[0] * np.eye(d)[end[1]])
    diagonals = st.lists(SIGN, min_size=d, max_size=d).map(np.array)
    anything = st.lists(UNIT, min_size=d, max_size=d).map(np.array)
    kinds = [axes, diagonals, anything]
    rows = st.one_of([st.just(np.zeros(d)), *kinds] if zero else kinds)
    return rows.map(lambda row: into_ball(reach * row, bounds))


def _data(draw: Draw, n: int, d: int, bounds: Bounds, labels: Any) -> tuple[np.ndarray, np.ndarray]:
    """Draw a data set: independent rows, or one row n times, from which one record deviates."""
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
        lacks one record of the other: problems built from them need the same nominal ``size=``.
    n : int or (int, int)
        Number of rows of the (larger) data set, or its range, at least 1. The neighbour of a
        single row may be an empty data set.
    d : int or (int, int)
        Number of features, or its range, at least 1.
    row_bound : RowBound or sequence of RowBound
        All rows obey it. To test whether a mechanism clips, give a larger one than it relies on.
    labels : sequence of float, or strategy of floats
        The labels to draw from.

    Returns
    -------
    strategy of ((X, y), (X, y))
        ``X`` of shape (n, d), ``y`` of shape (n,), both float64.

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


# Problems on small, extreme data, and quadratics


FORMS: dict[str, Callable[[np.ndarray], Any]] = {
    "dense": np.ascontiguousarray,
    "csr": sp.csr_array,
    "float32": lambda X: X.astype(np.float32),
    "fortran": np.asfortranarray,
    "read_only": lambda X: read_only(X.copy()),
}
"""Storage formats of a problem's data: name -> conversion from a C-ordered float64 array."""

_ALL_FORMS = tuple(FORMS)


def _all_losses() -> list[losses.Loss]:
    kinds = (getattr(losses, name) for name in losses.__all__)
    built_in = (kind for kind in kinds if isinstance(kind, type) and kind is not losses.Loss)
    return [kind() for kind in built_in if issubclass(kind, losses.Loss)]


def _store(X: np.ndarray, form: str, bounds: Bounds) -> Any:
    stored = FORMS[form](X)
    if form == "float32":  # rounding may have moved rows out of the ball
        stored = np.array([into_ball(row, bounds) for row in stored], np.float32).reshape(X.shape)
    return stored


@st.composite
def _problems(
    draw: Draw,
    relation: str,
    n: st.SearchStrategy[int],
    d: st.SearchStrategy[int],
    loss: st.SearchStrategy[losses.Loss],
    regularizer: st.SearchStrategy[Any],
    bounds: Bounds,
    forms: tuple[str, ...],
) -> tuple[ERM, ERM]:
    fit, penalty, form = draw(loss), draw(regularizer), draw(st.sampled_from(forms))
    labels = st.sampled_from(LABELS) if fit.classification else st.one_of(SIGN, UNIT)
    pair = draw(dataset_pairs(relation, n, d, bounds, labels))
    # A problem does not print its data, but a counterexample should show them.
    note(f"{form} data (X, y): {pair[0]}; neighbour: {pair[1]}")
    # Even if the numbers of rows differ, the public size must be the same.
    size = None if relation == REPLACE_ONE else max(len(y) for _, y in pair)
    first, second = (
        ERM(_store(X, form, bounds), y, fit, penalty, bounds, size=size) for X, y in pair
    )
    return first, second


def _problem_pairs(
    relation: str, n: Size, d: Size, loss: Any, regularizer: Any, row_bound: Any, forms: Any
) -> st.SearchStrategy[tuple[ERM, ERM]]:
    forms = (forms,) if isinstance(forms, str) else tuple(forms)
    if not forms or set(forms) - set(FORMS):
        raise ValueError(f"forms must be among {_ALL_FORMS}, at least one, got {forms}")
    penalty = regularizer is None or hasattr(regularizer, "mu")
    for name, value, known in (
        ("loss", loss, loss is None or isinstance(loss, losses.Loss)),
        ("regularizer", regularizer, penalty and not isinstance(regularizer, type)),
    ):
        if not (known or isinstance(value, st.SearchStrategy)):
            home = "dpanalysis.losses" if name == "loss" else "dpanalysis.regularizers"
            raise TypeError(f"{name} must be an object of {home} or a strategy, got {value!r}")
    penalties = st.one_of(st.none(), st.floats(0.0, 1.0).map(regularizers.L2))
    return _problems(
        check_relation(relation),
        # A problem cannot be empty, so neither can the smaller of two neighbours.
        sizes("n", n, low=2 if relation == ADD_OR_REMOVE_ONE else 1),
        sizes("d", d),
        choice(loss, st.sampled_from(_all_losses())),
        choice(regularizer, penalties),
        check_bounds(row_bound),
        forms,
    )


def erm_problems(
    *,
    n: Size = (1, 8),
    d: Size = (1, 4),
    loss: Any = None,
    regularizer: Any = None,
    row_bound: RowBound | Sequence[RowBound] = RowBound(2, 1.0),  # noqa: B008 (frozen)
    forms: str | Sequence[str] = _ALL_FORMS,
) -> st.SearchStrategy[ERM]:
    """Return problems of empirical risk minimization on small, extreme data.

    Parameters
    ----------
    n, d : int or (int, int)
        Numbers of samples and features, or their ranges, at least 1.
    loss : Loss, or strategy of them, optional
        By default any loss of :mod:`dpanalysis.losses`.
    regularizer : Regularizer, or strategy of them, optional
        By default none or ``L2`` of a strength in [0, 1]; ``st.none()`` for none.
    row_bound
        As for :func:`neighbouring_datasets`: the problem's public bound.
    forms : str or sequence of str
        Storage formats of the data, from :data:`FORMS`.

    Examples
    --------
    >>> from hypothesis import find
    >>> find(erm_problems(n=3, loss=losses.Logistic(), forms="csr"), lambda problem: problem.d > 1)
    ERM(n=3, d=2, loss=Logistic(), regularizer=None,
        row_bound=(RowBound(order=2, radius=1.0, enforce='clip'),))
    """
    pairs = _problem_pairs(REPLACE_ONE, n, d, loss, regularizer, row_bound, forms)
    return pairs.map(lambda pair: pair[0])


def neighbouring_problems(
    relation: str = REPLACE_ONE,
    *,
    n: Size = (2, 8),
    d: Size = (1, 4),
    loss: Any = None,
    regularizer: Any = None,
    row_bound: RowBound | Sequence[RowBound] = RowBound(2, 1.0),  # noqa: B008 (frozen)
    forms: str | Sequence[str] = _ALL_FORMS,
) -> st.SearchStrategy[tuple[ERM, ERM]]:
    """Return pairs of problems that differ in exactly one record.

    If a record is removed, both have the same nominal size, that of the larger one.

    Parameters
    ----------
    relation : {"replace_one", "add_or_remove_one"}
    n : int or (int, int)
        Number of samples of the (larger) problem; at least 2 if a record is removed.
    d, loss, regularizer, row_bound, forms
        As for :func:`erm_problems`.

    Examples
    --------
    The gradients of a logistic loss at zero are half the rows, so they move by one radius.

    >>> from hypothesis import find
    >>> pairs = neighbouring_problems(n=2, d=1, loss=losses.Logistic(), forms="dense")
    >>> def far(pair):
    ...     one, other = (problem.sums(np.zeros(1)).gradient for problem in pair)
    ...     return abs(one - other) >= 1.0
    >>> [problem.n for problem in find(pairs, far)]
    [2, 2]
    """
    return _problem_pairs(relation, n, d, loss, regularizer, row_bound, forms)


@st.composite
def _quadratics(
    draw: Draw,
    d: st.SearchStrategy[int],
    mu: float,
    L: float,
    radius: float,
    sensitivity: float | None,
) -> Quadratic:
    size = draw(d)
    inner = st.one_of(st.sampled_from([mu, L]), st.floats(mu, L))
    eigenvalues = [mu, L] + [draw(inner) for _ in range(size - 2)]
    if size == 1:
        eigenvalues = [draw(inner)]
    center = radius * np.array([draw(st.one_of(st.just(0.0), SIGN, UNIT)) for _ in range(size)])
    return Quadratic(draw(st.permutations(eigenvalues)), center, sensitivity)


def quadratics(
    d: Size = (1, 6),
    mu: float = 0.1,
    L: float = 1.0,
    *,
    radius: float = 1.0,
    sensitivity: float | None = None,
) -> st.SearchStrategy[Quadratic]:
    """Return quadratics with a given range of eigenvalues.

    Parameters
    ----------
    d : int or (int, int)
        Dimension, or its smallest and largest value.
    mu, L : float
        ``0 <= mu <= L``. Both are eigenvalues when d >= 2; at d = 1 the only one lies in [mu, L].
    radius : float
        The minimizer's entries lie in [-radius, radius].
    sensitivity : float, optional
        As for :class:`~dpanalysis.Quadratic`.

    Examples
    --------
    >>> from hypothesis import find
    >>> find(quadratics(d=3, mu=0.5), lambda problem: True).eigenvalues
    array([0.5, 1. , 0.5])
    """
    mu = check_number("mu", mu, low=0.0)
    L = check_number("L", L, low=mu)
    return _quadratics(sizes("d", d), mu, L, check_number("radius", radius, low=0.0), sensitivity)


# Answers to queries on neighbouring data


def _shapes(length: int) -> st.SearchStrategy[np.ndarray]:
    """Return a strategy of sequences in [-1, 1]: constant, spike, step, ramp, alternating, any."""
    index = np.arange(length)
    positions = st.integers(0, length - 1)
    return st.one_of(
        st.just(np.ones(length)),
        positions.map(lambda at: (index == at).astype(np.float64)),
        positions.map(lambda at: np.where(index < at, -1.0, 1.0)),
        st.just(np.linspace(-1.0, 1.0, length)),
        st.just(np.where(index % 2, -1.0, 1.0)),
        st.lists(UNIT, min_size=length, max_size=length).map(np.array),
    )


@st.composite
def _queries(
    draw: Draw, length: st.SearchStrategy[int], sensitivity: float, reach: float, one_sided: bool
) -> tuple[np.ndarray, np.ndarray]:
    size = draw(length)
    level = draw(st.one_of(st.just(0.0), st.floats(-reach, reach)))
    spread = draw(st.one_of(st.just(0.0), st.floats(0.0, reach - abs(level))))
    queries = level + spread * draw(_shapes(size))
    shift = draw(_shapes(size))
    shift = draw(SIGN) * (abs(shift) if one_sided else shift)
    neighbour = queries + sensitivity * shift
    while (over := abs(neighbour - queries) > sensitivity).any():  # by rounding
        neighbour[over] = np.nextafter(neighbour[over], queries[over])
    return queries, neighbour


def query_sequences(
    length: Size = (1, 20),
    *,
    sensitivity: float = 1.0,
    reach: float = 10.0,
    one_sided: bool = False,
) -> st.SearchStrategy[tuple[np.ndarray, np.ndarray]]:
    """Return answers to the same queries on neighbouring data, for sparse vector and selection.

    Parameters
    ----------
    length : int or (int, int)
        Number of queries, or its smallest and largest value, at least 1.
    sensitivity : float
        The largest difference between two answers to one query. Likely patterns: all answers shift
        by it, or by a ramp, a single one shifts, the first answers fall, the others rise.
    reach : float
        The first sequence lies in [-reach, reach], for a threshold of 0.
    one_sided : bool
        Whether all answers shift in the same direction, as counts do when a record is added.

    Examples
    --------
    >>> from hypothesis import find
    >>> find(query_sequences(3), lambda pair: True)
    (array([0., 0., 0.]), array([1., 1., 1.]))
    """
    sensitivity = check_number("sensitivity", sensitivity, low=0.0)
    reach = check_number("reach", reach, low=0.0)
    return _queries(sizes("length", length), sensitivity, reach, bool(one_sided))
