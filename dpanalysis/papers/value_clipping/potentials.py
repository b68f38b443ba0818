"""A proof of Theorem 4.5 of Fang et al. (2023) for Poisson batches of any mean size B = q n >= 1.

Gradients may be clipped, and the noise of the batches need not be sub-Gaussian. Let every f_i be
L-smooth, r = rho sqrt(1 + ln n), which bounds ||grad f_i - grad f|| by Assumption 4.1, C >= 8 r,
eta <= 1/(2L) and v = rho^2/B + C^2 d sigma^2/B^2. At an iterate let Y = f(w) - f*, x the norm of
grad f(w), and h = C x if some gradient is longer than C, else x^2. In the first case x >= 7C/8 >=
7r, and clipped gradients have lengths of 3C/4 or more and a cosine of .989 or more to grad f. For
the next iterate

(a) E Y' <= Y - .3 eta h + L eta^2 v/2,
(b) E (Y' + c)^2 <= (Y + c)^2 - .3 eta (Y + c) h + eta^2 v (5 L Y + 41 C^2) + 24 L^2 eta^4 v^2,
    c = 40 C^2/L,

and, for convex f, with M = ||w - w*|| and V^2 = M^2 + (200 C/L)^2,

(c) E Y'V' <= Y V - .15 eta h V + eta^2 v (7 L V + L Y/(200 C)) if eta sqrt v <= C/L,
(d) E M'^2 <= M^2 - 2 eta Y + eta^2 v if no gradient is longer than C, else
    E M'^2 <= M^2 + eta r M + eta^2 (2 C^2 + v).

For the step s, Y' <= Y - eta <grad f, s> + L eta^2 ||s||^2/2. Its mean is that of the clipped
gradients g_i; E||s - E s||^2 <= mean ||g_i||^2/B + C^2 d sigma^2/B^2 = u, and E||s - E s||^4 is at
most 3 u^2 + mean ||g_i||^4/B^3. The covariance in (c) is at most the product of the standard
deviations, that of V' at most eta sqrt u. In (d) <grad f, w - w*> >= Y + x^2/(2L); with weights a_i
of clipping, the mean of (a_i - mean a) grad f_i, beside (mean a) grad f, is at most r/2 long.

Sum over the iterates, where (T + 1) eta^2 v <= 2 c5^2 by (2). By (a) all E Y are bounded, and so is
the sum of eta h: that of eta x^2 where nothing is clipped, that of eta C^2 where something is. For
the latter (b) bounds the sum of eta x^2, as Y >= x^2/(2L). If f is convex, E V is bounded by (d);
as Y <= x M, (c) bounds the sum of eta (Y + C M) where something is clipped, and so (d) that of
eta Y elsewhere. The bounds depend on L, D_f, ||w_0 - w*||, c5 and 1/C alone: the mean of
||grad f(w_priv)||^2, or of f(w_priv) - f*, is at most a constant over (T + 1) eta, which is the
printed rate. C = c3 + c4 sqrt(ln(nT)) is large enough for c3 = max(8 rho, L c5) and c4 = 8 rho.
"""

from __future__ import annotations

import itertools
import math

import numpy as np

from ...audit.attack import Range
from ..tools import Array

SPACE = {
    "length": Range(1e-2, 1e2, log=True),
    "offsets": Range(-1.0, 1.0, size=8),
    "spread": Range(0.0, 1.0),
    "rate": Range(0.25, 1.0),
    "noise": Range(1e-4, 1e2, log=True),
    "eta": Range(1e-4, 0.5, log=True),
    **dict.fromkeys(("above", "along", "across"), Range(1e-6, 1e4, log=True)),
}
WORST = {
    "length": 0.9, "offsets": np.linspace(-1.0, 1.0, 8), "spread": 1.0, "rate": 0.25,
    "noise": 1e-4, "eta": 0.5, "above": 1e-6, "along": 1e-6, "across": 1e-6,
}  # fmt: skip

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(8)
_NORMAL = np.array(list(itertools.product(_NODES, repeat=2)))
_CHANCES = np.outer(_WEIGHTS, _WEIGHTS).ravel() / _WEIGHTS.sum() ** 2


def steps_of(gradients: Array, rate: float, noise: float) -> tuple[Array, Array]:
    """Return all steps s in two coordinates, C = 1, noise of 64 values; and probabilities."""
    n = len(gradients)
    inside = np.array(list(itertools.product((0.0, 1.0), repeat=n)))
    chances = np.prod(np.where(inside > 0.0, rate, 1.0 - rate), axis=1)
    lengths = np.maximum(np.linalg.norm(gradients, axis=1, keepdims=True), 1.0)
    steps = ((inside @ (gradients / lengths))[:, None] + noise * _NORMAL) / (rate * n)
    return steps.reshape(-1, 2), np.outer(chances, _CHANCES).ravel()


def excess(
    which: str, length: float, offsets: Array, spread: float, rate: float, noise: float,
    eta: float, above: float, along: float, across: float,
) -> float:  # fmt: skip
    """Return (left - right side)/(first term in eta) of one of (a) to (d), L = C = 1, r = spread/8.

    grad f = (length, 0), Y is ``above`` its least value, and w - w* is ``along`` the gradient
    beyond its least length, and ``across``.
    """
    apart = offsets.reshape(-1, 2) - offsets.reshape(-1, 2).mean(axis=0)
    r = 0.125 * spread
    apart *= r / max(float(np.linalg.norm(apart, axis=1).max()), 1e-300)
    gradients = apart + np.array([length, 0.0])
    n, x, Y = len(apart), length, 0.5 * length**2 + above
    clipped = bool(np.linalg.norm(gradients, axis=1).max() > 1.0)
    h = x if clipped else x**2
    v = float((apart**2).sum()) / n / (rate * n) + 2.0 * (noise / (rate * n)) ** 2
    s, chances = steps_of(gradients, rate, noise)
    squares, rise = eta**2 * (s**2).sum(axis=1), eta**2 * v
    change = -eta * x * s[:, 0] + 0.5 * squares
    if which == "(a)":
        first, more, left = -0.3 * eta * h, 0.5 * rise, change
    elif which == "(b)":
        first = -0.3 * eta * (Y + 40.0) * h
        more = rise * (5.0 * Y + 41.0) + 24.0 * rise**2
        left = change * (2.0 * (Y + 40.0) + change)
    else:
        away = np.array([(Y + 0.5 * x**2) / x + along, across])
        M, V = math.hypot(*away), math.hypot(200.0, *away)
        left = squares - 2.0 * eta * (s @ away)
        first, more = eta * r * M + 2.0 * eta**2 if clipped else -2.0 * eta * Y, rise
        if which == "(c)":
            first, more = -0.15 * eta * h * V, rise * (7.0 * V + Y / 200.0)
            left = (Y + change) * np.sqrt(V**2 + left) - Y * V
            if rise > 1.0:
                return -math.inf
    return (float(chances @ left) - more - first) / abs(first)
