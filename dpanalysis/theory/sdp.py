"""Tiny semidefinite programs in the form in which one writes linear matrix inequalities.

The programs here have half a dozen unknowns and matrices of order 3. :func:`modelled` states
them in cvxpy, for any of its solvers: one program for each shape, compiled once, with all
numbers as parameters (DPP). The modelling layer still costs some milliseconds for each
solution, the interior-point solver underneath (Clarabel, cvxpy's default) less than half of
one: so :func:`maximise` calls that one directly. No status is reported, because nobody may
rely on it: callers verify the numbers.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

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


class _Program(NamedTuple):
    """A cvxpy problem and its parameters."""

    problem: Any
    unknowns: Any
    cost: Any
    constants: list[Any]
    matrices: list[Any]


@lru_cache
def _program(unknowns: int, sizes: tuple[int, ...]) -> _Program:
    """Return the compiled program of a shape."""
    import cvxpy as cp

    y, cost = cp.Variable(unknowns), cp.Parameter(unknowns)
    constants = [cp.Parameter(size * size) for size in sizes]
    matrices = [cp.Parameter((size * size, unknowns)) for size in sizes]
    positive = []
    for size, constant, matrix in zip(sizes, constants, matrices):
        form = constant + matrix @ y
        positive.append(cp.reshape(form, (size, size), order="C") >> 0 if size > 1 else form >= 0)
    return _Program(cp.Problem(cp.Maximize(cost @ y), positive), y, cost, constants, matrices)


_one_at_a_time = threading.Lock()  # a compiled program holds the numbers of one solution


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
    unknowns, sizes = len(cost), tuple(block.shape[-1] for block in blocks)
    with _one_at_a_time, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # inaccuracy is found out by the margin
        program = _program(unknowns, sizes)
        program.cost.value = np.asarray(cost, dtype=float)
        for block, constant, matrix in zip(blocks, program.constants, program.matrices):
            flat = block.reshape(unknowns + 1, -1)
            constant.value, matrix.value = flat[0], flat[1:].T
        try:
            program.problem.solve(solver=solver)
        except cp.SolverError:
            return np.full(unknowns, np.nan)
        y = program.unknowns.value
    return np.full(unknowns, np.nan) if y is None else np.asarray(y, dtype=float)
