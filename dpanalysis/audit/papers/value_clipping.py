"""Fang et al. (2023): value clipping, the weak growth of its losses, the privacy of its runs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special, stats

from ... import privacy
from ...clipping import Flat
from ...losses import Logistic
from ..attack import Range
from ..registry import Effort, Evidence, Paper, printed, register, used
from ._composition import Mixture, epsilon_bounds
from .second_order import largest

PAPER = register(
    Paper(
        id="004",
        authors="Fang, Li, Fan, Li",
        year=2023,
        title="Improved convergence of differential private SGD with gradient clipping",
        venue="ICLR",
        setting="Add-or-remove-one neighbours, Poisson sampling.",
    )
)

Array = NDArray[np.float64]


def value_weight(gap: Any, beta1: float, clip_norm: float) -> Any:
    """Return 1/max(1, sqrt(beta1 (f - f_lb))/C), the scaling of Algorithm 3."""
    return 1.0 / np.maximum(1.0, np.sqrt(beta1 * np.asarray(gap)) / clip_norm)


# --- 004-1: what is scaled by what ---


def clipped_norm(one: float, others: float, n: int, ratio: float, mean: bool) -> float:
    """Return ||g_1||/C, logistic, rows of norm 1: margins of the first sample and the others."""
    margins = np.array([one, others])
    losses = np.logaddexp(0.0, -margins)
    norms = special.expit(-margins)
    gap = (losses[0] + (n - 1) * losses[1]) / n if mean else losses[0]
    return float(norms[0] * value_weight(gap, 0.5, 1.0 / ratio) * ratio)


def own_norm(margin: float, residual: float, row: float, clip_norm: float) -> float:
    """Return ||g||/C where each loss scales its own gradient: the largest of three."""
    kappa = Logistic().weak_growth(row)[0]
    loss, slope = float(np.logaddexp(0.0, -margin)), float(special.expit(-margin))
    logistic = [
        row * slope * float(value_weight(loss, beta1, clip_norm)) for beta1 in (0.5 * row**2, kappa)
    ]
    squared = row * abs(residual)
    squared *= float(value_weight(0.5 * residual**2, 2.0 * row**2, clip_norm))
    return max(*logistic, squared) / clip_norm


@register(
    "004-1",
    "Algorithm 3, line 4",
    "grad f_i / max{1, sqrt(beta1 (f - f_lb) + beta2)/C} has norm <= C",
    "with f_i in place of f",
    verdict="corrected",
)
def scaling(effort: Effort) -> Iterator[Evidence]:
    """Search over one sample that is far worse than the others; over losses, rows and C."""
    ends = Range(-30.0, 30.0)
    space = {
        "one": ends,
        "others": ends,
        "n": Range(1, 1000, log=True, integer=True),
        "ratio": Range(0.1, 100.0, log=True),
    }
    found, cases = largest(effort, lambda **at: clipped_norm(**at, mean=True), space)
    yield printed("norm / C, scaled by the mean, n <= 1000", found, "<=", 1.0, cases=cases)
    found, cases = largest(effort, lambda **at: clipped_norm(**at, mean=False), space)
    yield used("the same, scaled by f_i", found, "<=", 1.0, tolerance=1e-12, cases=cases)
    space = {
        "margin": Range(-50.0, 50.0),
        "residual": Range(-50.0, 50.0),
        "row": Range(0.01, 100.0, log=True),
        "clip_norm": Range(0.01, 100.0, log=True),
    }
    found, cases = largest(effort, lambda **at: own_norm(**at), space)
    what = "logistic (both constants) and squared losses"
    yield used(what, found, "<=", 1.0, tolerance=1e-12, cases=cases)
    yield used("that is, attained", found, ">=", 0.999)


# --- 004-2, 004-3: misprints in Proposition 4.4 ---


def missing_delta(std: float, epsilon: float) -> float:
    """Return 1 - delta(epsilon) of Gaussian noise at sensitivity 1."""
    near, far = 0.5 / std - epsilon * std, 0.5 / std + epsilon * std
    return float(special.ndtr(-near) + math.exp(epsilon) * special.ndtr(-far))


def one_release(epsilon: float, delta: float) -> float:
    """Return true delta / delta of one release on all data, sigma of Theorem 3.4, c2 = 2."""
    std = 2.0 * math.sqrt(math.log(1.0 / delta)) / epsilon
    return privacy.gaussian_delta(std, epsilon) / delta


def tail(dimension: int, eta: float) -> float:
    """Return P(||z||^2 > 6 d ln 1/eta) / eta, z ~ N(0, I_d)."""
    return float(stats.chi2.sf(6.0 * dimension * math.log(1.0 / eta), dimension)) / eta


@register(
    "004-2",
    "Proposition 4.4, Theorem 4.5",
    "delta, delta' in (.5, 1)",
    "in (0, .5)",
    verdict="corrected",
)
def range_of_delta(effort: Effort) -> Iterator[Evidence]:
    """Near 1, noise in proportion to sqrt(ln 1/delta) vanishes faster than 1 - delta."""
    std, epsilon = 0.08, 0.5
    ratios = []
    for c2 in np.geomspace(1.0, 100.0, 21):
        claimed = -math.expm1(-((std * epsilon / c2) ** 2))  # 1 - delta of that noise
        ratios.append(claimed / missing_delta(std, epsilon))
    what = "(1 - delta claimed)/(1 - delta), sigma = .08, smallest over c2 in [1, 100]"
    yield printed(what, min(ratios), "<=", 1.0, cases=len(ratios))
    below = Range(1e-12, 0.5, log=True)
    space = {"epsilon": Range(1e-3, 1.0, log=True), "delta": below}
    found, cases = largest(effort, one_release, space)
    yield used("delta / delta claimed, c2 = 2, one release", found, "<=", 1.0, cases=cases)
    yield printed("P(\\|\\|z\\|\\|^2 > 6 d ln 1/delta')/delta', .99", tail(50, 0.99), "<=", 1.0)
    dims = {"dimension": Range(1, 10_000, log=True, integer=True), "eta": below}
    found, cases = largest(effort, tail, dims)
    yield used("the same, delta' <= .5", found, "<=", 1.0, cases=cases)


def printed_length(c1: float, c2: float) -> float:
    """Return true delta / delta at T = 2 epsilon/c1 (at least 1), for a small enough q."""
    epsilon = 1.0
    steps = max(1, math.ceil(2.0 * epsilon / c1))
    rate = 1e-3
    while True:
        delta = 0.01 * rate
        std = c2 * rate * math.sqrt(steps * math.log(1.0 / delta)) / epsilon
        if std < 0.1:
            break
        rate *= 0.5
    # One of the releases: the batch has the record with probability q, and then shows it.
    inner = math.log1p(math.expm1(epsilon) / rate)
    return rate * privacy.gaussian_delta(std, inner) / delta


def used_length(rate: float, epsilon: float, delta: float, factor: float) -> float:
    """Return an upper bound of epsilon / epsilon at T = factor epsilon/q^2, c1 = 1, c2 = 2."""
    steps = max(1, math.ceil(factor * epsilon / rate**2))
    std = 2.0 * rate * math.sqrt(steps * math.log(1.0 / delta)) / epsilon
    if std < 1.0:
        return 0.0
    far = np.rint(np.geomspace(64.0, 4096.0, 25))
    orders = np.concatenate([[1.1, 1.3, 1.6], np.arange(2.0, 64.0), far])
    curve = steps * privacy.rdp_poisson_gaussian(orders, rate, std)
    return float(privacy.rdp_to_epsilon(orders, curve, delta)[0]) / epsilon


@register(
    "004-3",
    "Proposition 4.4, Theorem 4.5",
    "T > epsilon/c1; no clipping where \\|\\|f_i\\|\\| <= C",
    "T > epsilon/(c1 q^2); \\|\\|grad f_i\\|\\| <= C",
    verdict="corrected",
)
def run_length(effort: Effort) -> Iterator[Evidence]:
    """Small batches at the shortest run allowed; values and gradients of the squared error."""
    cases = [(c1, c2) for c1 in (0.1, 1.0, 10.0) for c2 in (1.0, 10.0, 100.0)]
    least = min(printed_length(*constants) for constants in cases)
    what = "delta / delta claimed, T = 2 epsilon/c1, smallest over c1, c2"
    yield printed(what, least, "<=", 1.0, cases=len(cases))
    space = {
        "rate": Range(1e-3, 0.5, log=True),
        "epsilon": Range(0.02, 1.0, log=True),
        "delta": Range(1e-8, 0.5, log=True),
        "factor": Range(1.0, 100.0, log=True),
    }
    found, tried = largest(effort, used_length, space, cost=4)
    what = "epsilon / epsilon claimed, c1 = 1, c2 = 2, sigma >= 1"
    yield used(what, found, "<=", 1.0, cases=tried)
    random = effort.random()
    n = effort.cases(1000, 20_000)
    rows, residuals = (np.exp(random.uniform(-3.0, 3.0, size=n)) for _ in range(2))
    values, norms = 0.5 * residuals**2, rows * residuals
    limit = 1.0
    quiet = norms[values <= limit].max()
    yield printed("\\|\\|grad f_i\\|\\|/C where \\|f_i\\| <= C", quiet, "<=", 1.0, cases=n)
    weights = Flat(limit).weight(norms)
    changed = np.abs(1.0 - weights)
    yield used(
        "largest change where \\|\\|grad f_i\\|\\| <= C", changed[norms <= limit].max(), "<=", 0.0
    )
    yield used("smallest change elsewhere", changed[norms > limit].min(), ">=", 1e-12)


# --- 004-4, 004-5: weak growth ---


def network(x: Array, weights: list[Array]) -> tuple[float, float]:
    """Return the cross-entropy of class 0 and the squared norm of its gradient.

    ``weights`` are those of a ReLU network without biases, first layer first.
    """
    inputs = [x]
    for W in weights[:-1]:
        inputs.append(np.maximum(W @ inputs[-1], 0.0))
    scores = weights[-1] @ inputs[-1]
    loss = float(special.logsumexp(scores - scores[0]))
    error = special.softmax(scores)
    error[0] = -float(error[1:].sum())  # p_0 - 1, with all its digits
    total = 0.0
    for W, entering in zip(weights[::-1], inputs[::-1]):
        total += float(error @ error) * float(entering @ entering)  # of an outer product
        error = (W.T @ error) * (entering > 0.0)
    return loss, total


def products(weights: list[Array]) -> float:
    """Return sum_i prod_{j != i} ||W_j||^2."""
    squares = [float(np.linalg.norm(W, 2)) ** 2 for W in weights]
    return sum(math.prod(squares[:i] + squares[i + 1 :]) for i in range(len(squares)))


def sums(weights: list[Array]) -> float:
    """Return sum_i sum_{j != i} ||W_j||^2."""
    squares = [float(np.linalg.norm(W, 2)) ** 2 for W in weights]
    return sum(sum(squares) - square for square in squares)


def networks(random: np.random.Generator, cases: int) -> Iterator[tuple[Array, list[Array]]]:
    """Yield inputs and weights: random networks, and those where all layers are aligned."""
    # The worst probability of the right class, and the scores that give it.
    p = optimize.brentq(lambda p: (1.0 - p) / p + 2.0 * math.log(p), 0.1, 0.5)
    for gain in (1.0, 30.0):
        layer = np.full((1, 1), gain)
        yield np.array([1.0]), [layer, layer, _scores(p) / gain**2]
    for _ in range(cases):
        depth, width, classes, d = random.integers((1, 1, 2, 1), (6, 6, 5, 6))
        sizes = [d, *[width] * (depth - 1), classes]
        scale = math.exp(random.uniform(-1.0, 1.0))
        weights = [scale * random.normal(size=(b, a)) for a, b in pairwise(sizes)]
        if random.random() < 0.5:
            weights[:-1] = [np.abs(W) for W in weights[:-1]]
        yield random.normal(size=d), weights


def _scores(p: float) -> Array:
    half = 0.5 * math.log(p / (1.0 - p))
    return np.array([[half], [-half]])


@register(
    "004-4",
    "Appendix D, feed-forward networks",
    "\\|\\|grad f\\|\\|^2 <= 4 \\|\\|x\\|\\|^2 min{1, 2 f} sum_i prod_{j != i} \\|\\|W_j\\|\\|^2 "
    "(the signs of sum and product are lost in our text)",
    "2 kappa f, kappa = .40726, in place of 4 min{1, 2 f}; a sum over j in place of the product "
    "would be false",
    verdict="sharpened",
)
def network_growth(effort: Effort) -> Iterator[Evidence]:
    """Search over random networks of up to five layers."""
    kappa = Logistic().weak_growth(1.0)[0]
    cases = effort.cases(1500, 25_000)
    worst = {"printed": 0.0, "used": 0.0, "sum": 0.0}
    for x, weights in networks(effort.random(), cases):
        loss, square = network(x, weights)
        if loss < 1e-300:  # it underflows, as its gradient does
            continue
        size = float(x @ x)
        bound = size * products(weights)
        worst["printed"] = max(worst["printed"], square / (4.0 * bound * min(1.0, 2.0 * loss)))
        worst["used"] = max(worst["used"], square / (2.0 * kappa * bound * loss))
        if len(weights) > 2:
            worst["sum"] = max(worst["sum"], square / (8.0 * size * sums(weights) * loss))
    what = "\\|\\|grad f\\|\\|^2 / bound"
    yield printed(what, worst["printed"], "<=", 1.0, tolerance=1e-9, cases=cases)
    yield used(what, worst["used"], "<=", 1.0, tolerance=1e-9, cases=cases)
    yield used("that is, attained", worst["used"], ">=", 0.999)
    yield used("with a sum over j, three layers or more", worst["sum"], ">=", 10.0, cases=cases)


def wave_growth(heights: Array, phases: Array, at: float) -> float:
    """Return h'^2 / (2 L (h - inf h)) of a sum of cosines of period 2 pi."""
    k = np.arange(1.0, heights.size + 1.0)
    grid = np.linspace(0.0, 2.0 * math.pi, 4001)[:, None]
    values = np.cos(k * grid + phases) @ heights
    L = float(np.abs(np.cos(k * grid + phases) @ (heights * k**2)).max())
    value = float(np.cos(k * at + phases) @ heights)
    slope = -float(np.sin(k * at + phases) @ (heights * k))
    # The grid misses the infimum and L by little; both are moved to the safe side.
    jolt = float(np.abs(heights) @ k**4) * (grid[1, 0]) ** 2
    return slope**2 / (2.0 * (L + jolt) * max(value - float(values.min()) + jolt, 1e-12))


@register(
    "004-5",
    "Lemma 3.2; logistic loss",
    "an L-smooth function is (2L, 0)-WGC: beta1 = \\|\\|x\\|\\|^2/2 for the logistic loss",
    "beta1 = kappa \\|\\|x\\|\\|^2, kappa = sup (1-p)^2/(-ln p) = .40726",
    verdict="sharpened",
)
def weak_growth(effort: Effort) -> Iterator[Evidence]:
    """Search over functions and margins; the supremum from a grid and from its equation."""
    waves = {
        "heights": Range(-1.0, 1.0, size=3),
        "phases": Range(0.0, 2.0 * math.pi, size=3),
        "at": Range(0.0, 2.0 * math.pi),
    }
    guess = {"heights": [1.0, 0.0, 0.0], "phases": [0.0] * 3, "at": math.pi + 0.1}
    found, cases = largest(effort, wave_growth, waves, cost=2, guesses=[guess])
    what = "h'^2 / (2 L (h - inf h)), sums of cosines"
    yield printed(what, found, "<=", 1.0, tolerance=1e-9, cases=cases)
    yield printed("that is, nearly attained", found, ">=", 0.99)
    margins = np.linspace(-60.0, 60.0, effort.cases(100_001, 2_000_001))
    loss = Logistic()
    ones = np.ones_like(margins)
    quotients = loss.derivative(margins, ones) ** 2 / loss.value(margins, ones)
    top, n = float(quotients.max()), margins.size
    yield printed("l'^2 / (l/2)", 2.0 * top, "<=", 1.0, cases=n)
    kappa = loss.weak_growth(1.0)[0]
    yield used("l'^2 / (kappa l)", top / kappa, "<=", 1.0, tolerance=1e-12, cases=n)
    yield used("that is, attained", top / kappa, ">=", 1.0 - 1e-6)
    p = optimize.brentq(lambda p: (1.0 - p) / p + 2.0 * math.log(p), 0.1, 0.5, xtol=1e-15)
    exact = (1.0 - p) ** 2 / -math.log(p)
    yield used("kappa from its equation", exact, "==", kappa, tolerance=1e-12)


# --- 004-7: the runs of Figure 1 ---


def renyi_epsilon(rate: float, steps: int, delta: float) -> float:
    """Return epsilon by RDP at Opacus' orders, divergences by quadrature; sigma = 1."""
    orders = np.concatenate([1.0 + np.arange(1, 100) / 10.0, np.arange(12.0, 64.0)])
    x = np.arange(-15.0, 80.0, 0.01)
    ratio = np.logaddexp(math.log1p(-rate), math.log(rate) + x - 0.5)
    log_q = stats.norm.logpdf(x) + math.log(0.01)
    moments = np.array([special.logsumexp(a * ratio + log_q) for a in orders])
    costs = steps * moments / (orders - 1.0)
    return float(privacy.rdp_to_epsilon(orders, costs, delta)[0])


@register(
    "004-7",
    "Figure 1",
    "the runs on MNIST and CIFAR are (1.0379, 1e-5)- and (.9580, 1e-5)-DP",
    "so they are by RDP: 10 epochs at q = 1/469, 5 at q = 1/390; .734 and .576 by PLD",
    verdict="sharpened",
)
def figure_one(effort: Effort) -> Iterator[Evidence]:
    """Quadrature at every order; composition with bounds from both sides."""
    delta = 1e-5
    for name, inverse, epochs, claimed in (("MNIST", 469, 10, 1.0379), ("CIFAR", 390, 5, 0.958)):
        rate, steps = 1.0 / inverse, epochs * inverse
        by_rdp = renyi_epsilon(rate, steps, delta)
        what = f"epsilon by RDP, {name}, q = 1/{inverse}, T = {steps}"
        yield printed(what, by_rdp, "==", claimed, tolerance=5e-5)
        step = privacy.events.Sampled(
            privacy.Poisson(rate), [privacy.events.Gaussian(std=1.0, sensitivity=1.0)]
        )
        by_pld = privacy.epsilon(
            privacy.events.Repeated(step, steps), delta, privacy.ADD_OR_REMOVE_ONE, "pld"
        )
        mixture = Mixture(np.array([1.0 - rate, rate]), np.array([0.0, 1.0]), 1.0)
        low, high = epsilon_bounds(mixture, steps, delta)
        yield used("by PLD", by_pld, "<=", 0.75 * claimed)
        yield used("bound from below", low, "<=", by_pld)
        yield used("and from above", high, ">=", by_pld)
