"""The non-private minimiser, to machine precision."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve, lstsq
from scipy.optimize import minimize
from scipy.sparse.linalg import LinearOperator, cg

__all__ = ["minimise", "separated_below"]

_DENSE_HESSIAN = 2000  # features up to which the Hessian is formed
_NEWTON_STEPS = 50


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
    return math.log(2.0) / problem.n if penalty is None or penalty.L == 0.0 else 0.0


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
        warnings.warn(
            f"no minimiser reached: the gradient's norm is {norm:.3g} at ||w|| = "
            f"{np.linalg.norm(w):.3g} (separable classes without a penalty have none)",
            RuntimeWarning,
            stacklevel=3,
        )
    return w
