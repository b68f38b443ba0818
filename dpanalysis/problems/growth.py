"""Value clipping by the problem's own constants, which depend on the iterate."""

from __future__ import annotations

from typing import Any

import numpy as np
from array_api_compat import array_namespace

from ..clipping import Value

__all__ = ["evaluated", "goes_by_problem", "growth_of_rows"]


def goes_by_problem(clipping: Any) -> bool:
    """Whether it is value clipping that has no constants of its own."""
    return isinstance(clipping, Value) and clipping.beta1 is None


def growth_of_rows(loss: Any, radius: float) -> tuple[float, float]:
    """Return the constants of a loss of linear predictions, for rows of norm up to ``radius``.

    Raises
    ------
    ValueError
        If the radius is infinite, or the loss has no such constants.

    Examples
    --------
    >>> from dpanalysis import losses
    >>> growth_of_rows(losses.SquaredError(), 3.0)
    (18.0, 0.0)
    """
    Value(1.0).check(loss, radius)
    beta1, beta2 = loss.weak_growth(radius)
    return beta1, beta2


def evaluated(problem: Any, W: Any, rows: Any, clipping: Any, *rest: Any) -> tuple[Any, Any, Any]:
    """Return what ``problem._evaluate`` does, by a rule that has its constants.

    The iterates are public, and so are their constants. Where those of the replicates differ, each
    has a rule of its own.
    """
    if not goes_by_problem(clipping):
        return problem._evaluate(W, rows, clipping, *rest)
    beta1, beta2 = problem.weak_growth(W)
    if not np.ndim(beta1):
        return problem._evaluate(W, rows, clipping.at(beta1, beta2), *rest)
    parts = []
    for r, constant in enumerate(beta1):
        own = rows[r : r + 1] if isinstance(rows, list) else rows
        rule = clipping.at(float(constant), beta2)
        parts.append(problem._evaluate(W[r : r + 1, :], own, rule, *rest))
    if len(parts) == 1:  # putting one array together would copy it
        return parts[0]
    values, gradients, clipped = (array_namespace(W).concat(column) for column in zip(*parts))
    return values, gradients, clipped
