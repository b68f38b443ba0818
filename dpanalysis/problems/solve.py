"""The minimiser, to machine precision, and that of a tilted objective, to a certain gradient."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve, lstsq
from scipy.optimize import minimize
from scipy.sparse.linalg import LinearOperator, cg

from .._validation import warn_caller

__all__ = ["Tilted", "minimise", "minimise_tilted", "separated_below"]

_DENSE_HESSIAN = 2000  # features up to which the Hessian is formed
_NEWTON_STEPS = 50
_FEW_HALVINGS, _HALVINGS = 12, 50  # of a step, for the norm of the gradient and for the objective
_RISES = 50  # steps in a row at whose end the norm was not less than ever before


def _newton_step(problem: Any, w: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    """Solve Hessian times step = gradient, by least squares where it is singular."""
    if problem.d > _DENSE_HESSIAN:
        operator = LinearOperator((problem.d, problem.d), matvec=lambda v: problem.hvp(w, v))
        return cg(operator, gradient, rtol=1e-6, maxiter=10 * problem.d)[0]
    hessian = problem.hessian(w)
    try:
        return cho_solve(cho_factor(hessian), gradient)
    except np.linalg.LinAlgError:
        return lstsq(hessian, gradient)[0]


def separated_below(problem: Any) -> float:
    """Return the value below which logistic losses or cross-entropies have no minimiser.

    A sample that is not on the right side of every boundary loses ln 2 or more. Where all are,
    longer weights are better still, unless there is a penalty.
    """
    penalty = problem.regularizer
    return math.log(2.0) / problem.size if penalty is None or penalty.L == 0.0 else 0.0


def minimise(problem: Any, unattained: float = 0.0) -> np.ndarray:
    """Minimise ``problem`` from zero; warn where the end is not a minimiser.

    A value below ``unattained`` proves that there is none.
    """

    def both(w: np.ndarray) -> tuple[float, np.ndarray]:
        return problem.value(w), problem.gradient(w)

    w = np.zeros(problem.d)
    tolerance = 1e-10 * max(1.0, float(np.linalg.norm(problem.gradient(w))))
    options: Any = {"maxiter": 2000, "ftol": 1e-14, "gtol": 1e-7}
    w = minimize(both, w, jac=True, method="L-BFGS-B", options=options).x
    gradient = problem.gradient(w)
    norm = float(np.linalg.norm(gradient))
    settled = False
    for _ in range(_NEWTON_STEPS):
        step = _newton_step(problem, w, gradient)
        # On the way to infinity the gradient vanishes but the steps do not.
        settled = float(np.linalg.norm(step)) <= 1e-6 * (1.0 + float(np.linalg.norm(w)))
        if norm <= tolerance and settled:
            break
        trial_gradient = problem.gradient(w - step)
        trial_norm = float(np.linalg.norm(trial_gradient))
        if not trial_norm < norm:
            break
        w, gradient, norm = w - step, trial_gradient, trial_norm
    # Where the gradient is zero to machine precision the steps tell nothing.
    if norm > tolerance or not settled or problem.value(w) < unattained:
        warn_caller(
            f"no minimiser reached: the gradient's norm is {norm:.3g} at ||w|| = "
            f"{np.linalg.norm(w):.3g} (separable classes without a penalty have none)",
            RuntimeWarning,
        )
    return w


@dataclass(frozen=True)
class Tilted:
    """A problem plus ``<linear, w>`` and ``ridge/2 ||w||^2``, with its sum divided by ``size``."""

    problem: Any
    linear: np.ndarray
    ridge: float
    size: float

    @property
    def d(self) -> int:
        """Number of parameters."""
        return len(self.linear)

    @property
    def smoothness(self) -> float:
        """Of this objective, from public bounds."""
        return self.ridge + self.problem.L * max(1.0, self.problem.n / self.size)

    def gradient(self, w: np.ndarray) -> np.ndarray:
        """Gradient at ``w``."""
        gradient = self.problem.sums(w, value=False).gradient / self.size + self.linear
        penalty = self.problem.regularizer
        return gradient + self.ridge * w + (0.0 if penalty is None else penalty.gradient(w))

    # The steps are Newton's where the problem's nominal size is the size.

    def hessian(self, w: np.ndarray) -> np.ndarray:
        """Hessian at ``w``, for steps."""
        return self.problem.hessian(w) + self.ridge * np.eye(self.d)

    def hvp(self, w: np.ndarray, v: np.ndarray) -> np.ndarray:
        """Hessian at ``w`` times ``v``, for steps."""
        return self.problem.hvp(w, v) + self.ridge * v


def minimise_tilted(problem: Tilted, tolerance: float) -> tuple[np.ndarray, int]:
    """Return a point where the gradient's norm is at most ``tolerance``, and evaluations made.

    Newton steps, halved until the norm falls below all before it. Where that fails, as it may for a
    loss whose curvature jumps, the longest of these steps at whose end the objective still falls:
    by convexity it has fallen by the length of the step times the slope there. Should there be
    none, or too many in a row, a gradient step of the inverse smoothness, which shrinks the norm of
    a strongly convex objective for sure; so there is an end, whatever the data.

    Raises
    ------
    FloatingPointError
        If ``tolerance`` is below the rounding errors.
    """
    w = np.zeros(problem.d)
    gradient, count = problem.gradient(w), 1
    norm = least = float(np.linalg.norm(gradient))
    rises = 0
    while norm > tolerance:
        found, evaluations = _newton_line(problem, w, gradient, least)
        count += evaluations
        if found is None or (rises >= _RISES and float(np.linalg.norm(found[1])) >= least):
            step = w - gradient / problem.smoothness
            found, count = (step, problem.gradient(step)), count + 1
            if not float(np.linalg.norm(found[1])) < norm:
                raise FloatingPointError(
                    f"the gradient's norm {norm:.3g} does not fall to tolerance = {tolerance:g}"
                )
        w, gradient = found
        norm = float(np.linalg.norm(gradient))
        rises = 0 if norm < least else rises + 1
        least = min(least, norm)
    return w, count


def _newton_line(
    problem: Tilted, w: np.ndarray, gradient: np.ndarray, least: float
) -> tuple[tuple[np.ndarray, np.ndarray] | None, int]:
    """Return a point along a Newton step with its gradient, if there is one, and evaluations."""
    direction = _newton_step(problem, w, gradient)
    slope, falls = float(gradient @ direction), None
    for k in range(_HALVINGS):
        t = 0.5**k
        step = w - t * direction
        following = problem.gradient(step)
        if k < _FEW_HALVINGS and np.linalg.norm(following) <= (1.0 - 0.1 * t) * least:
            return (step, following), k + 1
        if falls is None and following @ direction >= 0.1 * slope:
            falls = step, following
        if falls is not None and k + 1 >= _FEW_HALVINGS:
            return falls, k + 1
    return None, _HALVINGS
