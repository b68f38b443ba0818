"""Gao and Wright (2023): sensitivity and noise of the Hessian.

What a run costs is in ``second_order_runs``, the steps are in ``second_order_steps``, bounds and
the objective in ``second_order_bounds``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from ...losses import Logistic
from ...problems import ERM
from ..attack import Range, worst_case
from ..exact import renyi_divergence
from ..registry import Effort, Evidence, Paper, printed, register, used

PAPER = register(
    Paper(
        id="003",
        authors="Gao, Wright",
        year=2023,
        title="Differentially private optimization for smooth non-convex ERM",
        setting="Replace-one neighbours; zCDP of full batches, Renyi without replacement.",
    )
)

Array = NDArray[np.float64]

# Bound on l'' of the logistic loss, and on the size of that of the sigmoid loss 1/(1 + e^m).
LOGISTIC_CURVATURE = 0.25
SIGMOID_CURVATURE = 1.0 / (6.0 * math.sqrt(3.0))
# Signs are decided by a number, so that a search may choose them.
SIGN = Range(-1.0, 1.0)


def largest(
    effort: Effort,
    function: Callable[..., float],
    space: Mapping[str, Range],
    *,
    cost: int = 1,
    guesses: Iterable[Mapping[str, Any]] = (),
) -> tuple[float, int]:
    """Return the largest value that a search finds, and how many points it tried.

    ``cost`` divides the number of points, for functions that take long.
    """
    found = worst_case(
        lambda **at: -function(**at),
        space,
        rng=effort.random(),
        starts=effort.cases(400, 6000) // cost,
        searches=effort.cases(2, 5),
        steps=effort.cases(150, 1000) // cost,
        guesses=guesses,
    )
    return -found.ratio, found.evaluations


def unit(vector: Array) -> Array:
    """Return the vector, scaled down to norm 1 where it is longer."""
    return np.asarray(vector / max(1.0, float(np.linalg.norm(vector))))


def label(number: float) -> float:
    """Return -1 or 1."""
    return math.copysign(1.0, number)


# --- 003-1, 003-2: the Hessian ---


def logistic_change(w: Array, old: Array, new: Array, y_old: float, y_new: float) -> float:
    """Return ||H(D) - H(D')||_F n / B_H for a replaced row of the logistic loss."""
    rest = np.full(w.size, 0.5 / w.size)
    hessians = [
        ERM(np.array([unit(x), rest]), np.array([label(y), 1.0]), Logistic()).hessian(w)
        for x, y in ((old, y_old), (new, y_new))
    ]
    return float(np.linalg.norm(hessians[0] - hessians[1])) * 2 / LOGISTIC_CURVATURE


def sigmoid_change(w: Array, old: Array, new: Array, y_old: float, y_new: float) -> float:
    """Return the same for the sigmoid loss 1/(1 + exp(y z)), which is not convex."""
    total = np.zeros((w.size, w.size))
    for x, y, sign in ((unit(old), y_old, 1.0), (unit(new), y_new, -1.0)):
        s = special.expit(label(y) * float(x @ w))
        total += sign * s * (1.0 - s) * (2.0 * s - 1.0) * np.outer(x, x)
    return float(np.linalg.norm(total)) / SIGMOID_CURVATURE


def any_change(old: Array, new: Array, d: int = 3) -> float:
    """Return the same for any two symmetric Hessians of norm B_H."""
    pair = [symmetric(entries, d) for entries in (old, new)]
    shortened = [h / max(1.0, float(np.linalg.norm(h, 2))) for h in pair]
    return float(np.linalg.norm(shortened[0] - shortened[1]))


def symmetric(entries: Array, d: int) -> Array:
    """Return the symmetric matrix with these entries on and above its diagonal."""
    matrix = np.zeros((d, d))
    matrix[np.triu_indices(d)] = entries
    return matrix + np.triu(matrix, 1).T


@register(
    "003-1",
    "(4), Delta_H",
    "replacing a row moves the Hessian by at most 2 B_H sqrt(d)/n in the Frobenius norm",
    "Hessians l'' x x' of a linear predictor: sqrt 2 B_H/n if l'' >= 0 (logistic), else 2 B_H/n; "
    "the printed value is attained by Hessians of full rank only",
    verdict="sharpened",
)
def hessian_sensitivity(effort: Effort) -> Iterator[Evidence]:
    """Brute force over neighbouring rows."""
    d = 4
    rows = {name: Range(-3.0, 3.0, size=d) for name in ("w", "old", "new")}
    space = {**rows, "y_old": SIGN, "y_new": SIGN}
    e = np.eye(d)
    across = {"w": 0.0 * e[0], "old": e[0], "new": e[1], "y_old": 1.0, "y_new": 1.0}
    convex, cases = largest(effort, logistic_change, space, guesses=[across])
    loose = convex / (2.0 * math.sqrt(d))
    yield printed("largest change / bound, logistic, d = 4", loose, "<=", 1.0, cases=cases)
    full = {name: Range(-1.5, 1.5, size=6) for name in ("old", "new")}
    corner = {"old": np.eye(3)[np.triu_indices(3)], "new": -np.eye(3)[np.triu_indices(3)]}
    found, cases = largest(effort, any_change, full, guesses=[corner])
    found /= 2.0 * math.sqrt(3.0)
    yield printed(
        "largest change / bound, any Hessians, d = 3",
        found,
        "<=",
        1.0,
        tolerance=1e-12,
        cases=cases,
    )
    yield used("largest n change / B_H, logistic", convex, "<=", math.sqrt(2.0), tolerance=1e-12)
    yield used("that is, attained", convex, ">=", math.sqrt(2.0), tolerance=1e-9)
    bend = math.log(2.0 + math.sqrt(3.0))  # where the sigmoid bends most
    along = {"w": bend * e[0], "old": e[0], "new": e[0], "y_old": 1.0, "y_new": -1.0}
    mixed, cases = largest(effort, sigmoid_change, space, guesses=[along])
    yield used(
        "largest n change / B_H, sigmoid loss", mixed, "<=", 2.0, tolerance=1e-12, cases=cases
    )
    yield used("that is, attained", mixed, ">=", 2.0, tolerance=1e-9)
    wide = np.eye(54)
    most = logistic_change(0.0 * wide[0], wide[0], wide[1], 1.0, 1.0)
    yield used("noise saved at d = 54, factor", 2.0 * math.sqrt(54.0) / most, ">=", 10.39)


def worst_rho(d: int, off_diagonal: float, random: np.random.Generator) -> tuple[float, Array]:
    """Return the largest rho of symmetric Gaussian noise, and the change that costs it.

    The diagonal has standard deviation 1, as has the sensitivity in the Frobenius norm. The
    covariance is written in an orthonormal basis of the symmetric matrices, a random one.
    """
    rows, columns = np.triu_indices(d)
    deviations = np.where(rows == columns, 1.0, off_diagonal)
    drawn = np.array([symmetric(e, d).ravel() for e in random.normal(size=(rows.size, rows.size))])
    basis = np.linalg.qr(drawn.T)[0]  # (d^2, d(d+1)/2), orthonormal in the Frobenius product
    units = np.array([symmetric(e, d).ravel() for e in np.eye(rows.size)])
    mixing = basis.T @ (units.T * deviations)
    precision, directions = np.linalg.eigh(np.linalg.inv(mixing @ mixing.T))
    return 0.5 * float(precision[-1]), (basis @ directions[:, -1]).reshape(d, d)


@register(
    "003-2",
    "Algorithm 1; Theorem 1",
    "E_k with iid N(0, Delta_H^2 sigma^2) on and above the diagonal costs 1/(2 sigma^2)",
    "the same with entries Delta_H sigma / sqrt 2 off the diagonal",
    verdict="sharpened",
)
def hessian_noise(effort: Effort) -> Iterator[Evidence]:
    """Cost of the worst change of norm Delta_H, and the size of the noise."""
    random = effort.random()
    dims = range(2, effort.cases(6, 13))
    half = math.sqrt(0.5)
    wide, narrow = ([worst_rho(d, off, random)[0] for d in dims] for off in (1.0, half))
    n = len(dims)
    yield printed(
        "largest true rho / claimed, changes of norm Delta_H",
        2.0 * max(wide),
        "<=",
        1.0,
        tolerance=1e-9,
        cases=n,
    )
    yield used(
        "the same with the smaller noise", 2.0 * max(narrow), "<=", 1.0, tolerance=1e-9, cases=n
    )
    # The likelihood ratio depends on one Gaussian number, with variance 2 rho and that mean.
    change = random.normal(size=(4, 4))
    change += change.T
    change /= np.linalg.norm(change)
    rows, columns = np.triu_indices(4)
    deviations = np.where(rows == columns, 1.0, half)
    scale = float(np.sum((change[rows, columns] / deviations) ** 2))
    pair = [stats.norm(mean, math.sqrt(scale)) for mean in (scale, 0.0)]
    cost = 2.0 * renyi_divergence(pair[0], pair[1], 8.0) / 8.0
    yield used("2 sigma^2 D_8/8 of a random change, quadrature", cost, "==", 1.0, tolerance=1e-9)
    draws = effort.cases(20, 300)
    norms = np.zeros(2)
    for _ in range(draws):
        noise = symmetric(random.normal(size=54 * 55 // 2), 54)
        thinner = half * noise
        thinner[np.diag_indices(54)] *= math.sqrt(2.0)
        norms += np.linalg.norm(noise, 2), np.linalg.norm(thinner, 2)
    ratio = float(norms[1] / norms[0])
    yield used("mean norm of the noise, of that printed, d = 54", ratio, "<=", 0.75, cases=draws)
