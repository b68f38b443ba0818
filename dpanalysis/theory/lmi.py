"""Lyapunov functions of first-order methods by linear matrix inequalities.

Kuru et al. (2022), section 3.1. A method with two-step memory is a linear system in feedback with
a gradient,

    ``xi_{t+1} = A xi_t + B (g_t + noise_t)``,  ``z_t = C xi_t``,  ``g_t = grad F(z_t)``,

where ``xi_t = (w_t, w_{t-1})`` and the noise has mean zero given the past. The function
``V(xi) = (xi - xi*)' (P x I_d) (xi - xi*) + c (F(w_t) - F*)`` contracts,

    ``E V(xi_{t+1}) <= rate^2 V(xi_t) + noise_coefficient E||noise_t||^2``,

for every ``mu``-strongly convex ``F`` with ``L``-Lipschitz gradient in every dimension, if a
3 x 3 matrix linear in ``(P, c, c0)`` is positive semidefinite: the :meth:`LyapunovLMI.residual`.

:class:`CertificateSearch` solves the semidefinite programs. The solvers' statuses are ignored:
every certificate is verified in exact arithmetic.
"""

from __future__ import annotations

import itertools
import threading
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from scipy.optimize import brentq

from .._validation import as_scalar, check_number, check_positive
from ._arguments import FloatArray, check_array, check_constants, check_kind


@lru_cache
def _triangle(size: int) -> tuple[np.ndarray, np.ndarray, FloatArray]:
    """Return upper-triangle indices by columns, and the weights that make the map isometric."""
    j, i = np.tril_indices(size)
    return i, j, np.where(i == j, 1.0, np.sqrt(2.0))


def maximize(cost: Sequence[float], blocks: Sequence[FloatArray]) -> FloatArray:
    """Maximize ``cost @ y`` subject to ``F_0 + sum_i y_i F_i`` positive semidefinite per block."""
    # Clarabel is called directly: a program of half a dozen unknowns and 3 x 3 matrices takes less
    # than half a millisecond; through cvxpy's modeling layer it takes several.
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
    # The matrix is dense: building the sparse columns directly avoids a search for zeros.
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
    """Return the program of given sizes, compiled once, with all data as parameters (DPP)."""
    import cvxpy as cp

    y, cost = cp.Variable(unknowns), cp.Parameter(unknowns)
    constants = [cp.Parameter(size * size) for size in sizes]
    matrices = [cp.Parameter((size * size, unknowns)) for size in sizes]
    positive = []
    for size, constant, matrix in zip(sizes, constants, matrices):
        form = constant + matrix @ y
        positive.append(cp.reshape(form, (size, size), order="C") >> 0 if size > 1 else form >= 0)
    return _Program(cp.Problem(cp.Maximize(cost @ y), positive), y, cost, constants, matrices)


_program_lock = threading.Lock()  # a compiled program holds the parameters of one call


def maximize_with_cvxpy(
    cost: Sequence[float], blocks: Sequence[FloatArray], solver: str
) -> FloatArray:
    """Solve the program of :func:`maximize` through cvxpy, with any of its installed solvers."""
    import cvxpy as cp

    if solver not in cp.installed_solvers():
        known = ", ".join(cp.installed_solvers())
        raise ValueError(f"solver must be one that cvxpy has installed ({known}), got {solver!r}")
    unknowns, sizes = len(cost), tuple(block.shape[-1] for block in blocks)
    with _program_lock, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the margin reveals inaccurate solutions
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


class StateSpace(NamedTuple):
    """``xi_{t+1} = A xi_t + B (grad F(C xi_t) + noise_t)`` with ``xi_t = (w_t, w_{t-1})``.

    Attributes
    ----------
    A : (2, 2) ndarray
    B, C : (2,) ndarray
    """

    A: FloatArray
    B: FloatArray
    C: FloatArray


def heavy_ball_system(step_size: float, momentum: float) -> StateSpace:
    """Return ``A = [[1 + beta, -beta], [1, 0]], B = [-alpha, 0], C = [1, 0]``.

    (3.10) of Kuru et al. (2022) prints ``B`` with the opposite sign, which is a different method.

    Parameters
    ----------
    step_size, momentum : float
        ``alpha`` and ``beta``.

    Examples
    --------
    >>> heavy_ball_system(0.5, 0.25).A.tolist()
    [[1.25, -0.25], [1.0, 0.0]]
    """
    step_size = check_positive("step_size", step_size)
    momentum = check_number("momentum", momentum)
    A = np.array([[1.0 + momentum, -momentum], [1.0, 0.0]])
    return StateSpace(A, np.array([-step_size, 0.0]), np.array([1.0, 0.0]))


def nesterov_system(step_size: float, momentum: float) -> StateSpace:
    """Return the ``A`` and ``B`` of the heavy ball method with ``C = [1 + beta, -beta]``."""
    A, B, _ = heavy_ball_system(step_size, momentum)
    return StateSpace(A, B, A[0].copy())


_LEAST_GAP = 2.0**-44  # of 1 - rate**2 in a search: a smaller one has too few digits


@dataclass(frozen=True)
class LyapunovLMI:
    """The blocks of ``c0 X0 + c [X1 + (1 - rate^2) X2] - Phi(A, B, P, rate) >= 0``.

    Kuru et al. (2022), (3.14). The quadratic forms in ``(w_t - w*, w_{t-1} - w*, g_t)`` are the
    sector condition (``X0 <= 0`` on every function of the class), and lower bounds of the
    decrease, ``X1 <= F(w_t) - F(w_{t+1})`` and ``X1 + X2 <= F* - F(w_{t+1})``, up to noise terms.
    """

    system: StateSpace
    mu: float
    L: float
    X0: FloatArray
    X1: FloatArray
    X2: FloatArray

    def phi(self, rate_squared: float, P: FloatArray) -> FloatArray:
        """Return ``[A B]' P [A B] - rate^2 diag(P, 0)``."""
        step = np.column_stack([self.system.A, self.system.B])
        form = step.T @ P @ step
        form[:2, :2] -= rate_squared * P
        return form

    def residual(self, rate: Any, P: Any, c: Any, c0: Any) -> Any:
        """Return the 3 x 3 matrix, of floats or fractions, that must be positive semidefinite."""
        P, square = np.asarray(P), rate * rate
        return c0 * self.X0 + c * (self.X1 + (1 - square) * self.X2) - self.phi(square, P)

    def holds(self, rate: float, P: ArrayLike, c: float, c0: float) -> bool:
        """Return whether these numbers are a certificate, in exact arithmetic.

        The numbers of the method are those of ``system``, but for ``1 + momentum``, which need not
        be a floating-point number. Blocks that are not those of ``system`` are taken as they are.
        """
        exact = np.vectorize(Fraction, otypes=[object])
        A, B, C = map(exact, self.system)
        for row, floats in ((A[0], self.system.A[0]), (C, self.system.C)):
            if floats[0] == 1.0 - floats[1]:
                row[0] = 1 - row[1]
        system, mu, L = StateSpace(A, B, C), Fraction(self.mu), Fraction(self.L)
        blocks, rounded = (self.X0, self.X1, self.X2), _blocks(self.system, self.mu, self.L)
        if all(map(np.array_equal, blocks, rounded)):
            blocks = _blocks(system, mu, L)
        lmi = LyapunovLMI(system, mu, L, *map(exact, blocks))  # type: ignore[arg-type]
        P = exact(P)
        residual = lmi.residual(Fraction(rate), P, Fraction(c), Fraction(c0))
        return min(rate, c, c0) >= 0.0 and _is_semidefinite(P) and _is_semidefinite(residual)


def _is_semidefinite(matrix: Any) -> bool:
    """Return whether all principal minors of a symmetric matrix of fractions are at least 0."""

    def determinant(rows: Any) -> Any:
        if not len(rows):
            return 1
        minors = (determinant(np.delete(rows[1:], j, axis=1)) for j in range(len(rows)))
        return sum((-1) ** j * rows[0, j] * minor for j, minor in enumerate(minors))

    chosen = itertools.product((False, True), repeat=len(matrix))
    return all(determinant(matrix[np.ix_(some, some)]) >= 0 for some in chosen)


def lyapunov_lmi(system: StateSpace, mu: float, L: float) -> LyapunovLMI:
    """Return the inequality of a method from its state space.

    With ``g`` the gradient at ``z``, smoothness between ``z`` and ``w_{t+1}`` and strong
    convexity between ``z`` and ``w_t``, or ``z`` and ``w*``, bound the two decreases.
    For the heavy ball method (``z = w_t``) this gives exactly the ``X1`` and ``X2`` printed in
    Proposition 3.4, with the scalar 2 in the corner of ``X0``.

    Parameters
    ----------
    system : StateSpace
        See :func:`heavy_ball_system` and :func:`nesterov_system`.
    mu, L : float
        ``0 < mu <= L``.

    Examples
    --------
    >>> lmi = lyapunov_lmi(heavy_ball_system(1.0, 0.5), mu=0.5, L=1.0)
    >>> lmi.X0.tolist()
    [[1.0, 0.0, -1.5], [0.0, 0.0, 0.0], [-1.5, 0.0, 2.0]]
    """
    check_kind("system", system, StateSpace)
    mu, L = check_constants(mu, L)
    return LyapunovLMI(system, mu, L, *_blocks(system, mu, L))


def _blocks(system: StateSpace, mu: Any, L: Any) -> tuple[Any, Any, Any]:
    """Return ``X0, X1, X2``, for floats or fractions."""
    half = type(mu)(1) / 2  # that of integers would be a float

    def product(a: Any, b: Any) -> Any:
        return half * (np.outer(a, b) + np.outer(b, a))

    # Linear forms in (w_t - w*, w_{t-1} - w*, g).
    now, _, gradient = np.eye(3, dtype=system.A.dtype)
    point = np.append(system.C, 0)
    after = np.append(system.A[0], system.B[0])
    sector = (
        2 * mu * L * product(point, point)
        - 2 * (mu + L) * product(point, gradient)
        + 2 * product(gradient, gradient)
    )
    smooth = product(gradient, point - after) - half * L * product(after - point, after - point)
    to_now = product(gradient, now - point) + half * mu * product(now - point, now - point)
    to_optimum = -product(gradient, point) + half * mu * product(point, point)
    return sector, smooth + to_now, to_optimum - to_now


@dataclass(frozen=True, eq=False)
class Certificate:
    """A verified Lyapunov function of a method on all of ``S_{mu,L}``.

    Attributes
    ----------
    rate : float
        Contraction per iteration, not squared: ``V`` shrinks by ``rate^2``.
    P : (2, 2) ndarray
        Positive semidefinite; ``trace(P) + c = 1``.
    c, c0 : float
        Non-negative multipliers of ``F(w_t) - F*`` and of the sector condition.
    margin : float
        Smallest eigenvalue of the residual, recomputed from the numbers above; at least 0.
    lmi : LyapunovLMI
        The inequality they satisfy.

    Examples
    --------
    >>> from dpanalysis import theory
    >>> certificate = theory.heavy_ball_certificate(0.2, 0.5, mu=0.5, L=1.0)
    >>> certificate.rate
    0.7915
    >>> start = certificate.lyapunov(distance=1.0, gap=0.4)
    >>> bool(certificate.bound(30, start, noise_second_moment=0.0) < 2e-6)
    True
    """

    rate: float
    P: FloatArray
    c: float
    c0: float
    margin: float
    lmi: LyapunovLMI = field(repr=False)

    @property
    def noise_coefficient(self) -> float:
        """Increase of ``V`` per iteration per unit of ``E||w||^2``: ``B'PB + c L alpha^2/2``."""
        B = self.lmi.system.B
        return float(B @ self.P @ B + 0.5 * self.c * self.lmi.L * B[0] ** 2)

    @property
    def value_coefficient(self) -> float:
        """The largest known ``k`` with ``V >= k (F(w_t) - F*)``: ``c + 2 det P / (L P22)``.

        ``det P / P22`` is the minimum of the quadratic part over ``w_{t-1}`` per unit of ``||w_t -
        w*||^2``; if ``P22 = 0`` it is ``P11``.
        """
        (p11, p12), (_, p22) = self.P
        least = p11 - p12 * p12 / p22 if p22 > 0.0 else p11
        return float(self.c + 2.0 * max(least, 0.0) / self.lmi.L)

    @property
    def noise_gain(self) -> float:
        """Limit of the noise term of :meth:`bound` per unit of ``E||w||^2``."""
        return self.noise_coefficient / (self.value_coefficient * (1.0 - self.rate**2))

    def lyapunov(self, distance: float | None = None, gap: float | None = None) -> float:
        """Return ``V = (P11 + 2 P12 + P22) distance^2 + c gap`` at a start with ``w_{-1} = w_0``.

        A missing ``distance = ||w_0 - w*||`` is bounded by ``sqrt(2 gap / mu)``, and a missing
        ``gap = F(w_0) - F*`` by ``L distance^2 / 2``.
        """
        square, gap = initial_bounds(self.lmi.mu, self.lmi.L, distance, gap)
        return float(self.P.sum()) * square + self.c * gap

    def bound(
        self, t: ArrayLike, initial_lyapunov: float, noise_second_moment: ArrayLike
    ) -> FloatArray | float:
        """Return the bound on ``E[F(w_t) - F*]`` (Kuru et al. 2022, (3.15), sharpened).

        It is ``(rate^{2t} V_0 + (1 - rate^{2t}) / (1 - rate^2) noise_coefficient E||w||^2) /
        value_coefficient`` with ``V_0`` of :meth:`lyapunov`, if the gradient noise of every
        iteration has a second moment of at most ``E||w||^2``, which broadcasts with ``t``: a budget
        spread over more iterations means more noise in each.
        """
        times = check_array("t", t, low=0.0)
        start = check_number("initial_lyapunov", initial_lyapunov, low=0.0)
        moment = check_array("noise_second_moment", noise_second_moment, low=0.0)
        decay = self.rate ** (2.0 * times)
        transient = decay * (start / self.value_coefficient)
        return as_scalar(transient + (1.0 - decay) * (self.noise_gain * moment))


Start = float | tuple[float | None, float | None]


def start_bounds(mu: float, L: float, initial: Start) -> tuple[float, float]:
    """Return squared distance and gap of ``(distance, gap)``; a number is the distance."""
    if not isinstance(initial, tuple):
        initial = (initial, None)
    if len(initial) != 2 or all(each is None for each in initial):
        raise ValueError(f"initial must be a distance or (distance, gap), got {initial!r}")
    return initial_bounds(mu, L, *initial, within="initial: ")


def initial_bounds(
    mu: float, L: float, distance: float | None, gap: float | None, within: str = ""
) -> tuple[float, float]:
    """Return squared distance and gap of the start; a missing one is bounded by the other."""
    if distance is None and gap is None:
        raise ValueError("give distance = ||w_0 - w*||, gap = F(w_0) - F*, or both")
    if distance is not None:
        distance = check_number(f"{within}distance", distance, low=0.0)
    if gap is not None:
        gap = check_number(f"{within}gap", gap, low=0.0)
    square = 2.0 * gap / mu if distance is None else distance * distance  # type: ignore[operator]
    return square, 0.5 * L * square if gap is None else gap


# Basis of the symmetric 2 x 2 matrices by their entries p11, p12, p22.
_BASIS = np.array([[[1.0, 0.0], [0.0, 0.0]], [[0.0, 1.0], [1.0, 0.0]], [[0.0, 0.0], [0.0, 1.0]]])


class CertificateSearch:
    """Semidefinite programs in the unknowns ``y = (p11, p12, p22, c, c0)``, in scaled units.

    Functions are divided by ``L``, states measured as ``(sqrt(mu) w_t, (w_t - w_{t-1}) /
    sqrt(alpha))`` and gradients as ``sqrt(alpha) g``: then the classical Lyapunov functions
    have entries near 1 for any condition number. A congruence preserves all signs.

    ``solver`` is the name of a solver of cvxpy; None calls Clarabel directly.
    """

    def __init__(self, lmi: LyapunovLMI, solver: str | None = None) -> None:
        self.lmi = lmi
        self.solver = solver
        self.ratio = lmi.mu / lmi.L
        step = abs(float(lmi.system.B[0])) * lmi.L
        across, back = 1.0 / np.sqrt(self.ratio), np.sqrt(step)
        self.states = np.array([[across, 0.0], [across, -back]])
        self.frame = np.zeros((3, 3))
        self.frame[:2, :2], self.frame[2, 2] = self.states, lmi.L / back
        inverse = np.array([[1.0 / across, 0.0], [1.0 / back, -1.0 / back]])
        self.shapes = lmi.L * (inverse.T @ _BASIS @ inverse)
        at = [
            np.array(
                [
                    *(-lmi.phi(square, P) for P in self.shapes),
                    lmi.X1 + (1.0 - square) * lmi.X2,
                    lmi.X0 / lmi.L,
                ]
            )
            for square in (0.0, 1.0)
        ]
        self._still, one = (self.frame.T @ forms @ self.frame / lmi.L for forms in at)
        self._moving = one - self._still

    def _solve(self, cost: Sequence[float], blocks: Sequence[FloatArray]) -> FloatArray:
        if self.solver is None:
            return maximize(cost, blocks)
        return maximize_with_cvxpy(cost, blocks, self.solver)

    def _forms(self, square: float) -> FloatArray:
        return self._still + square * self._moving

    def coefficients(self, distance_squared: float, gap: float, moment: float) -> FloatArray:
        """Return ``V_0 + moment * noise_coefficient`` as a linear form in ``p11, p12, p22, c``."""
        B, L = self.lmi.system.B, self.lmi.L
        quadratic = [distance_squared * P.sum() + moment * (B @ P @ B) for P in self.shapes]
        return np.array([*quadratic, gap + 0.5 * moment * L * B[0] ** 2])

    def margin(self, square: float, y: FloatArray) -> float:
        """Smallest eigenvalue of residual and ``P`` at trace one; ``-inf`` for invalid unknowns."""
        size = y[0] + y[2] + y[3]
        if not np.isfinite(y).all() or size <= 0.0 or y[3] < 0.0 or y[4] < 0.0:
            return -np.inf
        residual = np.tensordot(y, self._forms(square), axes=1)
        P = np.array([[y[0], y[1]], [y[1], y[2]]])
        return float(min(np.linalg.eigvalsh(residual)[0], np.linalg.eigvalsh(P)[0]) / size)

    def center(self, square: float) -> FloatArray:
        """Return the unknowns with the largest margin ``t`` at a squared rate."""
        # c = 1 - p11 - p22 excludes the trivial solution; the unknowns are p11, p12, p22, c0, t.
        f = self._forms(square)
        blocks = [
            np.array([f[3], f[0] - f[3], f[1], f[2] - f[3], f[4], -np.eye(3)]),
            np.array([np.zeros((2, 2)), *_BASIS, np.zeros((2, 2)), -np.eye(2)]),
            np.array([1.0, -1.0, 0.0, -1.0, 0.0, 0.0]).reshape(6, 1, 1),
            np.array([0.0, 0.0, 0.0, 0.0, 1.0, 0.0]).reshape(6, 1, 1),
        ]
        p11, p12, p22, c0, _ = self._solve([0.0, 0.0, 0.0, 0.0, 1.0], blocks)
        return np.array([p11, p12, p22, max(1.0 - p11 - p22, 0.0), max(c0, 0.0)])

    def best_margin(self, square: float) -> float:
        """Return the largest margin at a squared rate; its sign decides feasibility."""
        return self.margin(square, self.center(square))

    def best_square(self, exact_rate: float) -> float | None:
        """Return the smallest feasible squared rate, or None; feasibility is monotone in it."""
        low = exact_rate**2
        if 1.0 - low < _LEAST_GAP:
            return None
        if self.best_margin(1.0) <= 0.0:
            return None
        if self.best_margin(low) >= 0.0:
            return low
        return float(brentq(self.best_margin, low, 1.0, xtol=1e-10 * (1.0 - low), rtol=1e-15))

    def verified_above(self, square: float) -> Certificate | None:
        """Return a verified certificate slightly above the boundary of feasibility."""
        # The rate is increased by 1e-6 of its distance to 1, then ten times as much, and so on
        # until the solver's accuracy suffices.
        rate = float(np.sqrt(square))
        for shift in 1e-6 * 10.0 ** np.arange(6):
            certificate = self.verified_near(float((rate + shift * (1.0 - rate)) ** 2))
            if certificate is not None:
                return certificate
        return None

    def least_cost(self, square: float, cost: FloatArray) -> tuple[float, FloatArray]:
        """Minimize a linear form in ``p11, p12, p22, c`` where ``V >= F(w_t) - F*``.

        ``V >= (c + q)(F - F*)`` if ``P - q / (2 mu/L) e1 e1'`` is positive semidefinite in the
        scaled units; ``c = 1 - q``. The unknowns of the program are ``p11, p12, p22, c0, q``.
        """
        f = self._forms(square)
        nothing = np.zeros((2, 2))
        blocks = [
            np.array([f[3], f[0], f[1], f[2], f[4], -f[3]]),
            np.array([nothing, *_BASIS, nothing, -_BASIS[0] / (2.0 * self.ratio)]),
            np.array([1.0, 0.0, 0.0, 0.0, 0.0, -1.0]).reshape(6, 1, 1),
            np.array([0.0, 0.0, 0.0, 0.0, 1.0, 0.0]).reshape(6, 1, 1),
            np.array([0.0, 0.0, 0.0, 0.0, 0.0, 1.0]).reshape(6, 1, 1),
        ]
        unit = float(np.abs(cost).max()) or 1.0
        objective = [-each / unit for each in (*cost[:3], 0.0, -cost[3])]
        p11, p12, p22, c0, q = self._solve(objective, blocks)
        y = np.array([p11, p12, p22, max(1.0 - q, 0.0), max(c0, 0.0)])
        return float(cost @ y[:4]), y

    def verified(self, square: float, y: FloatArray) -> Certificate | None:
        """Return the certificate if its floating-point numbers satisfy the inequality, or None."""
        lmi = self.lmi
        rate = float(np.sqrt(square))
        if not (rate < 1.0 and self.margin(square, y) >= 0.0):
            return None
        P = np.tensordot(y[:3], self.shapes, axes=1)
        P, c, c0 = 0.5 * (P + P.T), float(y[3]), float(y[4] / lmi.L)
        total = float(P[0, 0] + P[1, 1]) + c
        P, c, c0 = P / total, c / total, c0 / total
        residual = lmi.residual(rate, P, c, c0)
        if not lmi.holds(rate, P, c, c0):
            return None
        margin = max(float(np.linalg.eigvalsh(residual)[0]), 0.0)
        return Certificate(rate, P, c, c0, margin, lmi)

    def verified_near(self, square: float, y: FloatArray | None = None) -> Certificate | None:
        """Return the verified certificate closest to ``y`` on the segment to the center.

        Optimal solutions lie on the boundary, and solvers stop on either side of it. The set
        of certificates at a fixed rate is convex, so a small step towards the one with the
        largest margin enters it.
        """
        middle = self.center(square)
        if y is None or not np.isfinite(y).all() or y[0] + y[2] + y[3] <= 0.0:
            return self.verified(square, middle)
        y = y / (y[0] + y[2] + y[3])
        for step in (0.0, *np.logspace(-9, 0, 28)):
            certificate = self.verified(square, (1.0 - step) * y + step * middle)
            if certificate is not None:
                return certificate
        return None
