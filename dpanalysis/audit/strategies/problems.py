"""Problems on small, extreme data, and quadratics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from hypothesis import note
from hypothesis import strategies as st

from ... import losses, regularizers
from ..._validation import check_number
from ...privacy.relations import ADD_OR_REMOVE_ONE, REPLACE_ONE, check_relation
from ...problems.erm import ERM
from ...problems.quadratic import Quadratic
from ...problems.row_bound import RowBound
from ._arguments import SIGN, UNIT, Draw, Size, choice, sizes
from .data import LABELS, Bounds, check_bounds, dataset_pairs, into_ball

__all__ = ["FORMS", "erm_problems", "neighbouring_problems", "quadratics"]


def _read_only(X: np.ndarray) -> np.ndarray:
    X = X.copy()
    X.flags.writeable = False
    return X


FORMS: dict[str, Callable[[np.ndarray], Any]] = {
    "dense": np.ascontiguousarray,
    "csr": sp.csr_array,
    "float32": lambda X: X.astype(np.float32),
    "fortran": np.asfortranarray,
    "read_only": _read_only,
}
"""How a problem's data may be stored; name -> conversion of a C-ordered float64 array."""

_ALL_FORMS = tuple(FORMS)


def _all_losses() -> list[losses.Loss]:
    kinds = (getattr(losses, name) for name in losses.__all__)
    built_in = (kind for kind in kinds if isinstance(kind, type) and kind is not losses.Loss)
    return [kind() for kind in built_in if issubclass(kind, losses.Loss)]


def _store(X: np.ndarray, form: str, bounds: Bounds) -> Any:
    stored = FORMS[form](X)
    if form == "float32":  # rounding may have left the ball
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
    # A problem does not print its data, so a counterexample would not show them.
    note(f"{form} data (X, y): {pair[0]}; neighbour: {pair[1]}")
    # Where the numbers of rows differ, what is public must not.
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
        # A problem is not empty, so neither is the smaller of two neighbours.
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
    """Return problems of empirical risk minimisation on small, extreme data.

    Parameters
    ----------
    n, d : int or (int, int)
        Samples and features, or their smallest and largest number, at least 1.
    loss : Loss, or strategy of them, optional
        By default any loss of :mod:`dpanalysis.losses`.
    regularizer : Regularizer, or strategy of them, optional
        By default none or ``L2`` of a strength in [0, 1]; ``st.none()`` for none.
    row_bound : RowBound or sequence of RowBound
        The problem's public bound; all rows obey it.
    forms : str or sequence of str
        How the data are stored, from :data:`FORMS`.

    Returns
    -------
    strategy of ERM

    Raises
    ------
    ValueError, TypeError
        If an argument is outside its range.

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
    """Return pairs of problems that differ in one record, and in nothing else.

    Where a record is removed both have the same nominal size, that of the larger one.

    Parameters
    ----------
    relation : {"replace_one", "add_or_remove_one"}
    n : int or (int, int)
        Samples of the (larger) problem; at least 2 where a record is removed.
    d, loss, regularizer, row_bound, forms
        As for :func:`erm_problems`.

    Returns
    -------
    strategy of (ERM, ERM)

    Raises
    ------
    ValueError, TypeError
        If an argument is outside its range.

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
        ``0 <= mu <= L``. Both are eigenvalues when d >= 2; at d = 1 the only eigenvalue lies
        in [mu, L].
    radius : float
        The minimiser's entries lie in [-radius, radius].
    sensitivity : float, optional
        As for :class:`~dpanalysis.Quadratic`.

    Returns
    -------
    strategy of Quadratic

    Raises
    ------
    ValueError, TypeError
        If an argument is outside its range.

    Examples
    --------
    >>> from hypothesis import find
    >>> find(quadratics(d=3, mu=0.5), lambda problem: True).eigenvalues
    array([0.5, 1. , 0.5])
    """
    mu = check_number("mu", mu, low=0.0)
    L = check_number("L", L, low=mu)
    return _quadratics(sizes("d", d), mu, L, check_number("radius", radius, low=0.0), sensitivity)
