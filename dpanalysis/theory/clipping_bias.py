r"""The bias that per-sample weights leave when all noise is gone, in one dimension.

A method that follows the weighted mean gradient :math:`\sum_i p_i w(|g_i|) g_i` stops where that
sum vanishes, not where the mean gradient :math:`\sum_i p_i g_i` does. Both are computed here for
any weight rule; :mod:`dpanalysis.theory.largest_bias` has the worst case.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .._validation import check_int
from ._arguments import FloatArray, check_array

__all__ = ["FixedPoints", "check_rule", "clipped_mean_gradient", "fixed_points", "rule_weights"]

# Sums of terms that cancel to this fraction of their size are zero up to rounding.
_ROUNDING = 64 * np.finfo(float).eps


@dataclass(frozen=True)
class FixedPoints:
    """Where a weighted method stops, in ascending order; see :func:`fixed_points`.

    Attributes
    ----------
    points : (k,) ndarray
        Fixed points; the middle of a stretch of them.
    lower, upper : (k,) ndarray
        Ends of the stretch on which the weighted gradient vanishes; equal for a single point.
        A stretch of positive length is a lazy region.
    gradients : (k,) ndarray
        The true mean gradient at ``points``: what the method leaves undone.
    stable : (k,) bool ndarray
        Whether gradient steps from either side lead to the stretch.
    minimizer : float
        Where the true mean gradient vanishes.
    """

    points: FloatArray
    lower: FloatArray
    upper: FloatArray
    gradients: FloatArray
    stable: np.ndarray
    minimizer: float

    @property
    def bias(self) -> FloatArray:
        """Distance of every fixed point from the minimiser, with its sign, shape ``(k,)``."""
        return self.points - self.minimizer


def rule_weights(rule: Any, norms: FloatArray, losses: FloatArray | None = None) -> FloatArray:
    """Return the weight that a rule, or a function of the norms, gives to each gradient."""
    weight = getattr(rule, "weight", None)
    values = rule(norms) if weight is None else weight(norms, losses)
    values = check_array("weight_rule's weights", values, low=0.0)
    if values.shape != norms.shape:
        raise ValueError(
            f"weight_rule must return one weight for each norm, got shape {values.shape} "
            f"for {norms.shape}"
        )
    return values


def check_rule(rule: Any) -> None:
    """Raise unless ``rule`` has a method ``weight`` or can be called."""
    if isinstance(rule, type) or not (callable(rule) or hasattr(rule, "weight")):
        raise TypeError(
            f"weight_rule must have a method weight(norms, losses) or be a function of the norms, "
            f"got {rule!r}"
        )


def _check_mixture(
    points: ArrayLike, probabilities: ArrayLike | None, curvatures: ArrayLike | None
) -> tuple[FloatArray, FloatArray, FloatArray]:
    a = check_array("points", points)
    if a.ndim != 1 or a.size == 0:
        raise ValueError(f"points must have shape (n,) with n at least 1, got {a.shape}")
    p = np.full(a.size, 1.0 / a.size)
    if probabilities is not None:
        p = check_array("probabilities", probabilities, low=0.0, low_open=True)
    c = np.ones(a.size)
    if curvatures is not None:
        c = check_array("curvatures", curvatures, low=0.0, low_open=True)
    for name, array in (("probabilities", p), ("curvatures", c)):
        if array.shape != a.shape:
            raise ValueError(f"{name} must have shape {a.shape}, got {array.shape}")
    if abs(p.sum() - 1.0) > 1e-9:
        raise ValueError(f"probabilities must sum to 1, got {p.sum()}")
    return a, p / p.sum(), c


def _terms(rule: Any, x: FloatArray, a: FloatArray, p: FloatArray, c: FloatArray) -> FloatArray:
    """Return the summands ``p_i w(|g_i|) g_i`` at every x, shape ``(..., n)``."""
    gradients = c * (x[..., None] - a)
    norms = np.abs(gradients)
    # A zero gradient adds nothing whatever its weight, which may be infinite there.
    safe = np.where(norms > 0, norms, 1.0)
    weights = rule_weights(rule, safe, safe**2 / (2.0 * c))
    return np.where(norms > 0, p * weights * gradients, 0.0)


def clipped_mean_gradient(
    weight_rule: Any,
    x: ArrayLike,
    points: ArrayLike,
    probabilities: ArrayLike | None = None,
    curvatures: ArrayLike | None = None,
) -> FloatArray | float:
    r"""Return the mean weighted gradient of a one-dimensional mixture of quadratics.

    .. math:: \sum_i p_i\, w(|g_i|)\, g_i, \qquad g_i = c_i (x - a_i),
              \qquad f_i(x) = c_i (x - a_i)^2 / 2 .

    Parameters
    ----------
    weight_rule : object or callable
        A clipping rule with ``weight(norms, losses)``, which is given the :math:`f_i(x)` as
        losses, or a function of the norms.
    x : array_like
        Where to evaluate, any shape.
    points : (n,) array_like
        The samples' minimisers :math:`a_i`.
    probabilities : (n,) array_like, optional
        :math:`p_i > 0`, sum 1; equal by default.
    curvatures : (n,) array_like, optional
        :math:`c_i > 0`; 1 by default.

    Returns
    -------
    float or ndarray
        The shape of ``x``; the mean gradient itself when all weights are 1.

    Raises
    ------
    ValueError
        If an argument is out of its range, or shapes do not fit.
    TypeError
        If ``weight_rule`` is neither a rule nor a function.

    References
    ----------
    Xia et al. (2023), "Per-Sample Adaptive Clipping Training" and Appendix C.

    Examples
    --------
    Inside the lazy region of Auto-V nothing moves; Auto-S moves at a tenth of the speed there.

    >>> clipped_mean_gradient(lambda norms: 1 / norms, 0.5, [-1.0, 1.0])
    0.0
    >>> from dpanalysis.clipping import Automatic
    >>> clipped_mean_gradient(Automatic(0.1), 0.5, [-1.0, 1.0])
    0.05208
    """
    check_rule(weight_rule)
    a, p, c = _check_mixture(points, probabilities, curvatures)
    total = _terms(weight_rule, check_array("x", x), a, p, c).sum(axis=-1)
    return total if total.ndim else float(total)


def _bisect(inside: Callable[[float], bool], start: float, outside: float) -> float:
    """Return the end of a stretch that holds ``start`` and ends before ``outside``."""
    for _ in range(80):
        middle = 0.5 * (start + outside)
        if inside(middle):
            start = middle
        else:
            outside = middle
    return start


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    """Return where a function changes its sign, in units of the bracket and of its values."""
    from scipy.optimize import brentq

    size, width = max(abs(function(low)), abs(function(high))), high - low
    return low + width * float(
        brentq(lambda t: function(low + t * width) / size, 0.0, 1.0, xtol=1e-15)
    )


def fixed_points(
    weight_rule: Any,
    points: ArrayLike,
    probabilities: ArrayLike | None = None,
    curvatures: ArrayLike | None = None,
    *,
    grid: int = 2048,
) -> FixedPoints:
    r"""Return all points at which the mean weighted gradient of a mixture vanishes.

    All lie between the smallest and the largest :math:`a_i`. If :math:`\rho w(\rho)` increases
    with the norm :math:`\rho` (Auto-S, PSAC) there is exactly one; constant stretches (Auto-V,
    flat clipping) can make a lazy region; rules that decrease to zero faster can have several.
    With a fixed ``r`` the mean gradient at the fixed point is not zero in general, so that the
    limit in the text before Theorem 2 of Xia et al. (2023) does not hold. As r tends to 0 the
    fixed points of Auto-S and of PSAC tend to the same one, the weighted median.

    Parameters
    ----------
    weight_rule, points, probabilities, curvatures
        As in :func:`clipped_mean_gradient`.
    grid : int
        Intervals into which the range is divided to bracket the roots, at least 1; the points
        themselves are added. Two roots inside one interval are missed.

    Returns
    -------
    FixedPoints

    Raises
    ------
    ValueError, TypeError
        As in :func:`clipped_mean_gradient`.

    References
    ----------
    Xia et al. (2023), Table 1, section "Convergence Guarantee of DP-PSAC" and Appendix C.

    Examples
    --------
    Two thirds of the samples sit at 0, a third at 1; the mean gradient vanishes at 1/3.

    >>> from dpanalysis.clipping import Automatic
    >>> found = fixed_points(Automatic(0.1), [0.0, 0.0, 1.0])
    >>> found.points, found.gradients, found.minimizer
    (array([0.0821]), array([-0.2512]), 0.3333)

    The lazy region of Auto-V between two points of equal weight:

    >>> lazy = fixed_points(lambda norms: 1 / norms, [-1.0, 1.0])
    >>> lazy.lower, lazy.upper
    (array([-1.]), array([1.]))
    """
    check_rule(weight_rule)
    a, p, c = _check_mixture(points, probabilities, curvatures)
    grid = check_int("grid", grid, low=1)
    low, high = float(a.min()), float(a.max())
    minimizer = float(p @ (c * a) / (p @ c))

    def sign(x: FloatArray) -> FloatArray:
        terms = _terms(weight_rule, x, a, p, c)
        total = terms.sum(axis=-1)
        return np.where(np.abs(total) <= _ROUNDING * np.abs(terms).sum(axis=-1), 0, np.sign(total))

    def mean(x: float) -> float:
        return float(_terms(weight_rule, np.asarray(x), a, p, c).sum())

    def vanishes(x: float) -> bool:
        return bool(sign(np.asarray(x)) == 0)

    xs = np.unique(np.concatenate([a, np.linspace(low, high, grid + 1)]))
    signs = sign(xs)
    found: list[tuple[float, float, bool]] = []
    # Neighbouring signs that differ bracket a root, runs of zeros are a stretch of them.
    starts = np.flatnonzero(np.r_[True, signs[1:] != signs[:-1]])
    ends = np.r_[starts[1:], xs.size] - 1
    for run, (first, last) in enumerate(zip(starts, ends)):
        before = signs[first - 1] if first else -1.0
        after = signs[last + 1] if last + 1 < xs.size else 1.0
        if signs[first] == 0:
            left = _bisect(vanishes, xs[first], xs[first - 1]) if first else xs[0]
            right = _bisect(vanishes, xs[last], xs[last + 1]) if last + 1 < xs.size else xs[-1]
            if right - left <= 1e-9 * (high - low):
                left = right = 0.5 * (left + right)
            found.append((left, right, bool(before < 0 < after)))
        elif run and before != 0:
            root = _root(mean, float(xs[first - 1]), float(xs[first]))
            found.append((root, root, bool(before < 0)))
    lower, upper = np.array([f[0] for f in found]), np.array([f[1] for f in found])
    middle = 0.5 * (lower + upper)
    gradients = (p * c * (middle[:, None] - a)).sum(axis=-1)
    return FixedPoints(middle, lower, upper, gradients, np.array([f[2] for f in found]), minimizer)
