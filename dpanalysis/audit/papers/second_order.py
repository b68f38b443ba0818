"""Gao and Wright (2023): sensitivity and noise of the Hessian, and what a run costs.

The steps are in ``second_order_steps``, bounds and the objective in ``second_order_bounds``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from ...losses import Logistic
from ...privacy import gaussian_delta, gaussian_epsilon
from ...problems import ERM
from ..attack import Range, worst_case
from ..exact import Density, hockey_stick, renyi_divergence
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
# Gauss-Legendre nodes and weights of one panel.
NODES = np.polynomial.legendre.leggauss(12)
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


# --- 003-3 to 003-5: what a run costs ---


def stopping(shift: float, barriers: Array) -> Iterator[tuple[Array, Array, float]]:
    """Yield (losses so far, their probabilities under P, barrier) before each release.

    A run makes Gaussian releases, noise 1, whose mean is ``shift`` under P and 0 under Q, and
    stops as soon as its privacy loss reaches the barrier; exact up to Gauss-Legendre
    quadrature. The last barrier is where it stops anyway: -inf.
    """
    losses, masses = np.zeros(1), np.ones(1)
    drift = 0.5 * shift * shift
    for count, barrier in enumerate(barriers, start=1):
        yield losses, masses, barrier
        if math.isinf(barrier):
            return
        low = min(count * drift, barrier) - 9.0 * shift * math.sqrt(count)
        edges = np.linspace(low, barrier, 2 + math.ceil((barrier - low) / (4.0 * shift)))
        half = 0.5 * (edges[1] - edges[0])
        ahead = (edges[:-1, None] + half * (NODES[0] + 1.0)).ravel()
        gap = (ahead[:, None] - losses - drift) / shift
        density = np.exp(-0.5 * gap * gap) @ masses / (shift * math.sqrt(2.0 * math.pi))
        losses, masses = ahead, half * np.tile(NODES[1], edges.size - 1) * density


def stopping_delta(shift: float, barriers: Array, epsilons: Array) -> float:
    """Return the largest P(S) - E_Q[e^epsilon(N); S], with N releases in a run."""
    drift = 0.5 * shift * shift
    total = 0.0
    for (losses, masses, barrier), epsilon in zip(stopping(shift, barriers), epsilons):
        gap = max(barrier, epsilon) - losses
        under_p = special.ndtr((drift - gap) / shift)
        under_q = np.exp(epsilon - losses) * special.ndtr((-drift - gap) / shift)
        total += float(masses @ (under_p - under_q))
    return total


def stopping_divergence(shift: float, barriers: Array, order: float) -> float:
    """Return the Renyi divergence of P from Q of the whole run."""
    rate = order - 1.0
    drift = 0.5 * shift * shift
    moment = 0.0
    for losses, masses, barrier in stopping(shift, barriers):
        gap = barrier - losses - drift - rate * shift * shift
        grown = np.exp(rate * (losses + drift) + 0.5 * (rate * shift) ** 2)
        moment += float(masses @ (grown * special.ndtr(-gap / shift)))
    return math.log(moment) / rate


def stops_at_once(n: int = 10) -> float:
    """Return P(S) - Q(S), S: Algorithm 1 returns w0 = 0, for an actual pair of data sets."""
    X = np.ones((n, 1))
    y = np.where(np.arange(n) % 2, 1.0, -1.0)
    other = y.copy()
    other[0] = -other[0]
    std = 2.0 / n  # Delta_g with B_g = 1, times sigma_g = 1
    chances = []
    for labels in (y, other):
        g = float(ERM(X, labels, Logistic()).gradient(np.zeros(1))[0])
        chances.append(special.ndtr((std - g) / std) - special.ndtr((-std - g) / std))
    return float(chances[0] - chances[1])


@register(
    "003-3",
    "Theorems 1, 5, B.5",
    "a run that took k_g gradient and k_H curvature steps is rho-zCDP with rho of these numbers",
    "no guarantee: what is read off the run is not counted, nor its last evaluation; the worst "
    "case T is one, as is a zCDP filter that stops the run",
    verdict="corrected",
)
def realised_cost(effort: Effort) -> Iterator[Evidence]:
    """Return w0 at once; stop when much has been revealed."""
    yield printed(
        "P(S) - Q(S), S: w0 = 0 is returned at once (k_g = k_H = 0, sigma_f = inf: rho = 0)",
        stops_at_once(),
        "<=",
        0.0,
    )
    delta, shift, most = 1e-3, 0.1, effort.cases(100, 400)
    counts = np.arange(1, most + 1)
    epsilons = np.array([gaussian_epsilon(1.0 / (shift * math.sqrt(k)), delta) for k in counts])
    barriers = epsilons + 0.5 * shift * np.sqrt(counts)
    barriers[-1] = -math.inf
    yield printed(
        f"delta at the realised epsilon, all evaluations counted, N <= {most}, nominal 1e-3",
        stopping_delta(shift, barriers, epsilons),
        "<=",
        delta,
    )
    worst_delta, worst_renyi = 0.0, 0.0
    random = effort.random()
    cases = effort.cases(12, 100)
    for _ in range(cases):
        steps = int(random.integers(2, 40))
        shift = math.exp(random.uniform(-3.0, 0.3))
        spread = shift * np.sqrt(np.arange(1, steps + 1))
        barriers = random.uniform(-1.0, 4.0) * spread + random.normal(size=steps) * 0.5 * shift
        barriers[-1] = -math.inf
        delta = math.exp(random.uniform(-14.0, -1.0))
        epsilon = gaussian_epsilon(1.0 / float(spread[-1]), delta)
        found = stopping_delta(shift, barriers, np.full(steps, epsilon))
        worst_delta = max(worst_delta, found / delta)
        order = 1.0 + math.exp(random.uniform(-3.0, 3.0))
        rho = 0.5 * float(spread[-1]) ** 2
        worst_renyi = max(worst_renyi, stopping_divergence(shift, barriers, order) / (order * rho))
    what = "over stopping rules, at the worst case T"
    yield used(f"delta / nominal {what}", worst_delta, "<=", 1.0, tolerance=1e-6, cases=cases)
    yield used(f"D_a / (a rho) {what}", worst_renyi, "<=", 1.0, tolerance=1e-6, cases=cases)


def half_normal(start: float, std: float) -> Density:
    """Return the density of start + |z|."""
    constant = 0.5 * math.log(2.0 / math.pi) - math.log(std)
    return Density(lambda x: constant - 0.5 * ((x - start) / std) ** 2, (start,), (start, math.inf))


def rounded_up(law: Any, step: float, top: int) -> Array:
    """Return the law of max(1, ceil(X/step)), the last outcome standing for all beyond."""
    cdf = np.append(law.cdf(step * np.arange(1, top)), 1.0)
    return np.diff(cdf, prepend=0.0)


def margin_quotient(sigma: float, epsilon: float, step: float, start: float) -> float:
    """Return the exact delta of ceil((f + z + margin)/MIN_DEC) over that of Gaussian noise."""
    laws = [rounded_up(stats.norm(start + gap, sigma), step, 400) for gap in (0.0, 1.0)]
    claimed = gaussian_delta(sigma, epsilon)
    delta = max(hockey_stick(p, q, epsilon) for p, q in (laws, laws[::-1]))
    return delta / max(claimed, 1e-6)  # delta is known to 1e-16 e^epsilon


@register(
    "003-4",
    "(6); Algorithms 1 and 3",
    "T = (f(w0) + \\|z\\| - f_lb)/MIN_DEC costs 1/(2 sigma_f^2)",
    "w0 = 0 makes f(w0) = ln 2 public; otherwise f + z + a fixed margin, T rounded up",
    verdict="corrected",
)
def iteration_bound(effort: Effort) -> Iterator[Evidence]:
    """Half-normal noise moves the support: delta does not vanish at any epsilon."""
    for sigma in (1.0, 10.0):
        delta = hockey_stick(half_normal(0.0, sigma), half_normal(1.0, sigma), 30.0)
        claimed = gaussian_delta(sigma, 30.0)
        yield printed(f"delta at epsilon = 30, sigma_f = {sigma:g}", delta, "<=", claimed)
        anyway = 2.0 * special.ndtr(1.0 / sigma) - 1.0
        yield printed("that is 2 Phi(1/sigma_f) - 1", delta, "==", anyway, tolerance=1e-9)
    folded = [rounded_up(stats.halfnorm(start), 2.0, 40) for start in (1.0, 2.0)]
    delta = hockey_stick(folded[0], folded[1], 30.0)
    yield printed("the same, T rounded up, MIN_DEC = 2 Delta_f", delta, "<=", 1e-9)
    random = effort.random()
    gaps = [0.0]
    for _ in range(effort.cases(30, 300)):
        n, d = random.integers(1, 9, size=2)
        X = random.normal(size=(n, d))
        problem = ERM(X, np.where(random.random(n) < 0.5, 1.0, -1.0), Logistic())
        gaps.append(abs(problem.value(np.zeros(d)) - math.log(2.0)))
    yield used("largest \\|f(0) - ln 2\\|", max(gaps), "<=", 1e-15, cases=len(gaps) - 1)
    space = {
        "sigma": Range(0.3, 10.0, log=True),
        "epsilon": Range(0.01, 5.0, log=True),
        "step": Range(0.1, 20.0, log=True),
        "start": Range(5.0, 20.0),
    }
    found, cases = largest(effort, margin_quotient, space, cost=6)
    what = "delta of T with z and a margin / Gaussian delta"
    yield used(what, found, "<=", 1.0, tolerance=1e-7, cases=cases)


def value_change(w: Array, old: Array, new: Array, y_old: float, y_new: float) -> float:
    """Return n |f(D) - f(D')| / ||w|| for a replaced row of the logistic loss."""
    losses = [
        float(np.logaddexp(0.0, -label(y) * float(unit(x) @ w)))
        for x, y in ((old, y_old), (new, y_new))
    ]
    return abs(losses[0] - losses[1]) / max(float(np.linalg.norm(w)), 1e-12)


@register(
    "003-5",
    "Assumption 2",
    "there is a B with 0 <= l(w, x) <= B for all w",
    "needed at w0 only, where a replaced row moves n f by at most \\|\\|w0\\|\\|",
    verdict="corrected",
)
def bounded_loss(effort: Effort) -> Iterator[Evidence]:
    """For any B there is a w; at w0, brute force over rows."""
    loss = Logistic()
    bounds = np.geomspace(1.0, 1e9, 50)
    least = float((loss.value(-2.0 * bounds, np.ones(50)) / bounds).min())
    yield printed("l at the margin -2 B / B, smallest for B <= 1e9", least, "<=", 1.0, cases=50)
    rows = {name: Range(-3.0, 3.0, size=3) for name in ("w", "old", "new")}
    space = {**rows, "y_old": SIGN, "y_new": SIGN}
    found, cases = largest(effort, value_change, space)
    what = "n \\|f(D) - f(D')\\| / \\|\\|w0\\|\\|"
    yield used(what, found, "<=", 1.0, tolerance=1e-12, cases=cases)
    yield used("that is, attained", found, ">=", 0.999)
