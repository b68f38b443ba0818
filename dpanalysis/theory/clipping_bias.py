r"""Bias of per-sample weights without noise, in one dimension, for any weight rule.

A method that follows the weighted mean gradient :math:`\sum_i p_i w(|g_i|) g_i` stops where that
sum vanishes, not where the mean gradient :math:`\sum_i p_i g_i` does. This module computes the
fixed points for a given mixture, and the worst case over all gradient distributions that
Assumption 2 of Xia et al. (2023) allows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq, minimize_scalar

from .._validation import as_scalar, check_int, check_number, check_positive
from ._arguments import FloatArray, check_array

# Sums of terms that cancel to this fraction of their size are zero up to rounding.
_ROUNDING = 64 * np.finfo(float).eps


@dataclass(frozen=True)
class FixedPoints:
    """Fixed points of a weighted method, ascending, shape (k,); see :func:`fixed_points`."""

    points: FloatArray  # midpoints of the intervals from ``lower`` to ``upper``
    lower: FloatArray  # from here to ``upper`` the weighted gradient vanishes:
    upper: FloatArray  # an interval of positive length is a lazy region
    gradients: FloatArray  # the unweighted mean gradient at the points
    stable: np.ndarray  # whether gradient steps from either side lead to the interval
    minimizer: float  # where the true mean gradient vanishes

    @property
    def bias(self) -> FloatArray:
        """Signed distance of every fixed point from the minimizer, shape ``(k,)``."""
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
    return a, p, c


def _terms(rule: Any, x: FloatArray, a: FloatArray, p: FloatArray, c: FloatArray) -> FloatArray:
    """Return ``p_i w(|g_i|) g_i`` at every x, shape ``(..., n)``."""
    gradients = c * (x[..., None] - a)
    norms = np.abs(gradients)
    # A zero gradient contributes 0 even where its weight is infinite.
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

    Xia et al. (2023), "Per-Sample Adaptive Clipping Training" and Appendix C.

    Parameters
    ----------
    weight_rule : object or callable
        A clipping rule with ``weight(norms, losses)``, which is given the :math:`f_i(x)` as
        losses, or a function of the norms.
    x : array_like
        Where to evaluate, any shape.
    points : (n,) array_like
        The samples' minimizers :math:`a_i`.
    probabilities : (n,) array_like, optional
        :math:`p_i > 0`, sum 1; equal by default.
    curvatures : (n,) array_like, optional
        :math:`c_i > 0`; 1 by default.

    Examples
    --------
    Inside its lazy region Auto-V does not move; Auto-S moves at a tenth of the speed there.

    >>> clipped_mean_gradient(lambda norms: 1 / norms, 0.5, [-1.0, 1.0])
    0.0
    >>> from dpanalysis.clipping import Automatic
    >>> clipped_mean_gradient(Automatic(0.1), 0.5, [-1.0, 1.0])
    0.05208
    """
    check_rule(weight_rule)
    a, p, c = _check_mixture(points, probabilities, curvatures)
    return as_scalar(_terms(weight_rule, check_array("x", x), a, p, c).sum(axis=-1))


def _bisect(inside: Callable[[float], bool], start: float, outside: float) -> float:
    """Return the end of the interval that contains ``start`` and ends before ``outside``."""
    for _ in range(80):
        middle = 0.5 * (start + outside)
        if inside(middle):
            start = middle
        else:
            outside = middle
    return start


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    """Return a root, with argument and values scaled by the bracket and its end values."""
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

    All lie between the smallest and the largest :math:`a_i`. If :math:`\rho w(\rho)` increases with
    the norm :math:`\rho` (Auto-S, PSAC) there is exactly one; constant parts (Auto-V, flat
    clipping) can cause a lazy region; faster decreasing weights can cause several. For fixed ``r``
    the mean gradient at the fixed point is not zero in general, contrary to the limit in the text
    before Theorem 2 of Xia et al. (2023). As r tends to 0 the fixed points of Auto-S and of PSAC
    both tend to the weighted median. Xia et al. (2023), Table 1, section "Convergence Guarantee of
    DP-PSAC" and Appendix C.

    Parameters
    ----------
    weight_rule, points, probabilities, curvatures
        As in :func:`clipped_mean_gradient`.
    grid : int
        Number of intervals that bracket the roots, at least 1; the points are added to the grid.
        Two roots inside one interval are missed.

    Examples
    --------
    Two thirds of the samples are at 0, a third at 1; the mean gradient vanishes at 1/3.

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
    # Adjacent signs that differ bracket a root; a run of zeros is an interval of roots.
    starts = np.flatnonzero(np.r_[True, signs[1:] != signs[:-1]])
    ends = np.r_[starts[1:], xs.size] - 1
    for first, last in zip(starts, ends):
        before = signs[first - 1] if first else -1.0
        after = signs[last + 1] if last + 1 < xs.size else 1.0
        if signs[first] == 0:
            left = _bisect(vanishes, xs[first], xs[first - 1]) if first else xs[0]
            right = _bisect(vanishes, xs[last], xs[last + 1]) if last + 1 < xs.size else xs[-1]
            if right - left <= 1e-9 * (high - low):
                left = right = 0.5 * (left + right)
            found.append((left, right, bool(before < 0 < after)))
        elif first and before != 0:
            root = _root(mean, float(xs[first - 1]), float(xs[first]))
            found.append((root, root, bool(before < 0)))
    lower, upper = np.array([f[0] for f in found]), np.array([f[1] for f in found])
    middle = 0.5 * (lower + upper)
    gradients = (p * c * (middle[:, None] - a)).sum(axis=-1)
    return FixedPoints(middle, lower, upper, gradients, np.array([f[2] for f in found]), minimizer)


# The worst case over all distributions of the gradients


@dataclass(frozen=True)
class WorstBias:
    """The largest mean gradient at which a weighted method can stop; see :func:`worst_bias`."""

    gradient_norm: float
    gradients: FloatArray  # two values that attain it as their mean, with weighted mean 0
    probabilities: FloatArray


# Fractions of an interval: geometric near 0, where the rules change fastest, then even.
_FRACTIONS = np.unique(np.r_[np.geomspace(1e-9, 1.0, 200), np.linspace(0.0, 1.0, 201)[1:]])


def _maximum(function: Callable[[FloatArray], FloatArray], high: float) -> tuple[float, float]:
    """Return the maximizer of a function on (0, high], and the maximum."""
    xs = high * _FRACTIONS
    values = function(xs)
    k = int(np.argmax(values))
    bounds = (xs[max(k - 1, 0)], xs[min(k + 1, xs.size - 1)])
    best = minimize_scalar(
        lambda x: -float(function(np.array([x]))[0]),
        bounds=bounds,
        method="bounded",
        options={"xatol": 1e-8 * bounds[1]},
    )
    return (float(best.x), -float(best.fun)) if -best.fun > values[k] else (xs[k], values[k])


def worst_bias(weight_rule: Any, tau0: float, tau1: float = 0.0) -> WorstBias:
    r"""Return the largest mean gradient at which a weighted method can stop, in one dimension.

    The largest :math:`G` for which a distribution of gradients :math:`g` exists with mean
    :math:`G`, :math:`|g - G| \le \tau_0 + \tau_1 G` and weighted mean :math:`E[w(|g|) g] = 0`. It
    is at most :math:`\tau_0/(1-\tau_1)` for every positive weight: beyond that, all gradients have
    the same sign. Two values of g suffice (a chord of the convex envelope). :func:`psac_table1`
    gives the non-vanishing bounds on it in Table 1. Xia et al. (2023), Assumption 2 and Table 1;
    the worst case is derived here.

    Parameters
    ----------
    weight_rule : object or callable
        As in :func:`clipped_mean_gradient`; a positive function of the norms alone.
    tau0, tau1 : float
        The constants of Assumption 2, ``tau0 > 0`` and ``0 <= tau1 < 1``.

    Returns
    -------
    WorstBias
        For ``tau1 = 0``, the quadratics :math:`(x + g_i)^2/2` with the probabilities returned
        have their fixed point at 0, with that gradient.

    Examples
    --------
    With r = 0.1 Auto-S can stop at a gradient of 0.51, PSAC at 0.30, when gradients deviate by
    at most 1 from their mean.

    >>> from dpanalysis.clipping import Automatic, PerSampleAdaptive
    >>> [worst_bias(rule(0.1), 1.0).gradient_norm for rule in (Automatic, PerSampleAdaptive)]
    [0.5130, 0.3034]
    """
    check_rule(weight_rule)
    tau0 = check_positive("tau0", tau0)
    tau1 = check_number("tau1", tau1, low=0.0, high=1.0, high_open=True)

    def size(norms: FloatArray) -> FloatArray:
        return norms * rule_weights(weight_rule, norms)

    def pull(gradient: Any, below: FloatArray) -> FloatArray:
        """Slope of the chord from the gradient -below, of the opposite sign, to the mean."""
        return size(below) / (gradient + below)

    def push(gradient: Any, above: FloatArray) -> FloatArray:
        """Minus the slope of the chord from the mean to the gradient larger by ``above``."""
        return -size(gradient + above) / above

    def law(gradient: float) -> tuple[float, float, float]:
        """Return the two values with the most opposite pulls; they can cancel if the sum >= 0."""
        spread = tau0 + tau1 * gradient
        below, steepest = _maximum(lambda s: pull(gradient, s), spread - gradient)
        above, flattest = _maximum(lambda t: push(gradient, t), spread)
        return below, above, steepest + flattest

    # Search from above, first on a grid: the largest solution if there are several.
    trials = np.linspace(1.0, 0.0, 129) * tau0 / (1.0 - tau1)
    trials[0] *= 1.0 - 1e-12
    column, spreads = trials[:-1, None], tau0 + tau1 * trials[:-1, None]
    excess = pull(column, (spreads - column) * _FRACTIONS).max(axis=1)
    excess += push(column, spreads * _FRACTIONS).max(axis=1)
    k = int(np.argmax(np.r_[excess >= 0, True]))
    while k and law(trials[k - 1])[2] >= 0:
        k -= 1
    gradient = float(trials[k])
    if k > 0 and law(gradient)[2] > 0:
        near = max(1e-13 * tau0, 5e-324)
        gradient = float(
            brentq(lambda g: law(g)[2], gradient, trials[k - 1], xtol=near, rtol=1e-14)
        )
    below, above, _ = law(gradient)
    values = np.array([-below, gradient + above])
    lever = np.array([above, gradient + below])
    return WorstBias(gradient, values, lever / lever.sum())
