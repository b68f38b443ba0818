"""Tiny semidefinite programs in the form in which one writes linear matrix inequalities.

The programs here have half a dozen unknowns and matrices of order 3. :func:`modelled` states
one in cvxpy, for any of its solvers. The modelling layer costs tens of milliseconds for each,
the interior-point solver underneath (Clarabel, cvxpy's default) a tenth of one: so
:func:`maximise` calls that one directly. No status is reported, because nobody may rely on it:
callers verify the numbers.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import scipy.sparse as sp

from ._arguments import FloatArray

__all__ = ["maximise", "modelled"]


@lru_cache
def _triangle(size: int) -> tuple[np.ndarray, np.ndarray, FloatArray]:
    """Upper triangle, column by column, and the weights that make the map isometric."""
    j, i = np.tril_indices(size)
    return i, j, np.where(i == j, 1.0, np.sqrt(2.0))


def maximise(cost: Sequence[float], blocks: Sequence[FloatArray]) -> FloatArray:
    """Maximise ``cost @ y`` subject to ``F_0 + sum_i y_i F_i`` positive semidefinite per block.

    Parameters
    ----------
    cost : (k,) sequence of float
    blocks : sequence of (k + 1, s, s) ndarray
        ``F_0, F_1, ..., F_k``, symmetric; ``s = 1`` is a plain inequality.

    Returns
    -------
    (k,) ndarray
        The solver's last iterate, good or not: NaN or garbage is possible. Verify it.

    Examples
    --------
    >>> identity, flip = np.eye(2), np.array([[0.0, 1.0], [1.0, 0.0]])
    >>> maximise([1.0], [np.array([identity, flip])])
    array([1.])
    """
    import clarabel

    k = len(cost)
    rows, constants, cones = [], [], []
    for block in blocks:
        size = block.shape[-1]
        i, j, isometry = _triangle(size)
        vectors = block[:, i, j] * isometry
        rows.append(-vectors[1:].T)
        constants.append(vectors[0])
        cones.append(clarabel.NonnegativeConeT(1) if size == 1 else clarabel.PSDTriangleConeT(size))
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.presolve_enable = False
    settings.chordal_decomposition_enable = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-11
    matrix = np.vstack(rows)
    height = len(matrix)
    # Dense in sparse clothing: building the columns directly avoids a search for zeros.
    columns = (
        matrix.ravel("F"),
        np.tile(np.arange(height), k),
        np.arange(0, height * k + 1, height),
    )
    solver = clarabel.DefaultSolver(
        sp.csc_matrix((k, k)),
        -np.asarray(cost, dtype=float),
        sp.csc_matrix(columns, shape=(height, k)),
        np.concatenate(constants),
        cones,
        settings,
    )
    return np.asarray(solver.solve().x, dtype=float)


def modelled(cost: Sequence[float], blocks: Sequence[FloatArray], solver: str) -> FloatArray:
    """Do what :func:`maximise` does through cvxpy, with any solver that it has.

    Parameters
    ----------
    cost, blocks
        As for :func:`maximise`.
    solver : str
        A name of ``cvxpy.installed_solvers()`` for semidefinite programs, as ``"SCS"``.

    Returns
    -------
    (k,) ndarray
        NaN where the solver fails. Verify it.

    Raises
    ------
    ValueError
        If cvxpy does not have the solver.

    Examples
    --------
    >>> identity, flip = np.eye(2), np.array([[0.0, 1.0], [1.0, 0.0]])
    >>> modelled([1.0], [np.array([identity, flip])], "CLARABEL")
    array([1.])
    """
    import cvxpy as cp

    if solver not in cp.installed_solvers():
        known = ", ".join(cp.installed_solvers())
        raise ValueError(f"solver must be one that cvxpy has here ({known}), got {solver!r}")
    y = cp.Variable(len(cost))
    positive = []
    for block in blocks:
        combination = block[0] + sum(y[i] * form for i, form in enumerate(block[1:]))
        positive.append(combination >> 0 if block.shape[-1] > 1 else combination >= 0)
    program = cp.Problem(cp.Maximize(np.asarray(cost, dtype=float) @ y), positive)
    try:
        with warnings.catch_warnings():  # an inaccurate solution is found out by its margin
            warnings.simplefilter("ignore", UserWarning)
            program.solve(solver=solver)
    except cp.SolverError:
        return np.full(len(cost), np.nan)
    return np.full(len(cost), np.nan) if y.value is None else np.asarray(y.value, dtype=float)
