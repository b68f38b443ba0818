"""The worst case of the bias that per-sample weights leave, over all laws of the gradients.

The laws are those that Assumption 2 of Xia et al. (2023) allows, in one dimension.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._validation import check_number
from ._arguments import FloatArray
from .clipping_bias import check_rule, rule_weights

__all__ = ["WorstBias", "worst_bias"]


@dataclass(frozen=True)
class WorstBias:
    r"""The largest mean gradient at which a weighted method can stop; see :func:`worst_bias`.

    Attributes
    ----------
    gradient_norm : float
        The largest :math:`|\nabla f|` at a fixed point.
    gradients : (2,) ndarray
        Per-sample gradients that attain it: their mean is ``gradient_norm``, their weighted
        mean is zero.
    probabilities : (2,) ndarray
        Their probabilities.
    """

    gradient_norm: float
    gradients: FloatArray
    probabilities: FloatArray


# Fractions of an interval: geometric towards 0, where the rules change fastest, then even.
_FRACTIONS = np.unique(np.r_[np.geomspace(1e-9, 1.0, 200), np.linspace(0.0, 1.0, 201)[1:]])


def _maximum(function: Callable[[FloatArray], FloatArray], high: float) -> tuple[float, float]:
    """Return where a function of (0, high] is largest, and its value there."""
    from scipy.optimize import minimize_scalar

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

    The largest :math:`G` for which gradients :math:`g` exist with mean :math:`G`,
    :math:`|g - G| \le \tau_0 + \tau_1 G` and weighted mean :math:`E[w(|g|) g] = 0`. It is at most
    :math:`\tau_0/(1-\tau_1)` for every positive weight: beyond, no gradient changes its sign.
    Two values of g suffice (a chord of the convex envelope). This is what the non-vanishing
    bounds of Table 1 bound; :func:`psac_table1` gives those.

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

    Raises
    ------
    ValueError, TypeError
        If an argument is out of its range; as in :func:`clipped_mean_gradient`.

    References
    ----------
    Xia et al. (2023), Assumption 2 and Table 1. The worst case is derived here, not read there.

    Examples
    --------
    With r = 0.1 Auto-S can stop at a gradient of 0.51, PSAC at 0.30, when gradients deviate by
    at most 1 from their mean.

    >>> from dpanalysis.clipping import Automatic, PerSampleAdaptive
    >>> [worst_bias(rule(0.1), 1.0).gradient_norm for rule in (Automatic, PerSampleAdaptive)]
    [0.5130, 0.3034]
    """
    from scipy.optimize import brentq

    check_rule(weight_rule)
    tau0 = check_number("tau0", tau0, low=0.0, low_open=True)
    tau1 = check_number("tau1", tau1, low=0.0, high=1.0, high_open=True)

    def size(norms: FloatArray) -> FloatArray:
        return norms * rule_weights(weight_rule, norms)

    def pull(gradient: Any, below: FloatArray) -> FloatArray:
        """Slope of the chord from the gradient -below, of opposite sign, to the mean."""
        return size(below) / (gradient + below)

    def push(gradient: Any, above: FloatArray) -> FloatArray:
        """Minus the slope of the chord from the mean to the gradient beyond it by above."""
        return -size(gradient + above) / above

    def law(gradient: float) -> tuple[float, float, float]:
        """Return the best two values, and whether (>= 0) they cancel."""
        spread = tau0 + tau1 * gradient
        below, steepest = _maximum(lambda s: pull(gradient, s), spread - gradient)
        above, flattest = _maximum(lambda t: push(gradient, t), spread)
        return below, above, steepest + flattest

    # From above, so that the largest one is found should there be several; first on a grid.
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
        gradient = float(
            brentq(
                lambda g: law(g)[2],
                gradient,
                trials[k - 1],
                xtol=max(1e-13 * tau0, 5e-324),
                rtol=1e-14,
            )
        )
    below, above, _ = law(gradient)
    values = np.array([-below, gradient + above])
    lever = np.array([above, gradient + below])
    return WorstBias(gradient, values, lever / lever.sum())
