"""Fang et al. (2023): value clipping, weak growth, the privacy of runs, and their error bounds."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import optimize, special, stats

from ... import privacy, theory
from ...audit.attack import Range
from ...clipping import Flat
from ...losses import Logistic
from ...theory.clipped_sgd import sgd_objective_bound
from ..registry import Effort, Evidence, printed, register, used
from ..tools import (
    LONG_RUNS,
    Array,
    Mixture,
    epsilon_bounds,
    excess_at_share,
    excess_of_full_batches,
    excess_of_long_runs,
    search_max,
    upper_limit,
)
from .printed import printed_objective_bound


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
    found = search_max(effort, lambda **at: clipped_norm(**at, mean=True), space)
    yield printed("norm / C, scaled by the mean, n <= 1000", found, "<=", 1.0)
    found = search_max(effort, lambda **at: clipped_norm(**at, mean=False), space)
    yield used("the same, scaled by f_i", found, "<=", 1.0, tolerance=1e-12)
    space = {
        "margin": Range(-50.0, 50.0),
        "residual": Range(-50.0, 50.0),
        "row": Range(0.01, 100.0, log=True),
        "clip_norm": Range(0.01, 100.0, log=True),
    }
    found = search_max(effort, own_norm, space)
    yield used("logistic (both constants) and squared losses", found, "<=", 1.0, tolerance=1e-12)
    yield used("that is, attained", found.max(), ">=", 0.999)


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
    found = search_max(effort, one_release, space)
    yield used("delta / delta claimed, c2 = 2, one release", found, "<=", 1.0)
    yield printed("P(\\|\\|z\\|\\|^2 > 6 d ln 1/delta')/delta', .99", tail(50, 0.99), "<=", 1.0)
    dims = {"dimension": Range(1, 10_000, log=True, integer=True), "eta": below}
    yield used("the same, delta' <= .5", search_max(effort, tail, dims), "<=", 1.0)


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
    found = search_max(effort, excess_of_long_runs, space, cost=4)
    yield used("epsilon / epsilon claimed, c1 = 1, c2 = 2, sigma >= 1", found, "<=", 1.0)
    random = effort.random()
    n = effort.cases(1000, 20_000)
    rows, residuals = (np.exp(random.uniform(-3.0, 3.0, size=n)) for _ in range(2))
    values, norms = 0.5 * residuals**2, rows * residuals
    limit = 1.0
    quiet = norms[values <= limit].max()
    yield printed("\\|\\|grad f_i\\|\\|/C where \\|f_i\\| <= C", quiet, "<=", 1.0, cases=n)
    weights = Flat(limit).weight(norms)
    changed = np.abs(1.0 - weights)
    largest = changed[norms <= limit].max()
    yield used("largest change where \\|\\|grad f_i\\|\\| <= C", largest, "<=", 0.0)
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
    by_printed, by_used, by_sums = [], [], []
    for x, weights in networks(effort.random(), cases):
        loss, square = network(x, weights)
        if loss < 1e-300:  # it underflows, as its gradient does
            continue
        size = float(x @ x)
        bound = size * products(weights)
        by_printed.append(square / (4.0 * bound * min(1.0, 2.0 * loss)))
        by_used.append(square / (2.0 * kappa * bound * loss))
        if len(weights) > 2:
            by_sums.append(square / (8.0 * size * sums(weights) * loss))
    what = "\\|\\|grad f\\|\\|^2 / bound"
    yield printed(what, by_printed, "<=", 1.0, tolerance=1e-9, cases=cases)
    yield used(what, by_used, "<=", 1.0, tolerance=1e-9, cases=cases)
    yield used("that is, attained", max(by_used), ">=", 0.999)
    what = "with a sum over j, three layers or more"
    yield used(what, max(by_sums), ">=", 10.0, cases=cases)


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
    found = search_max(effort, wave_growth, waves, cost=2, guesses=[guess])
    yield printed("h'^2 / (2 L (h - inf h)), sums of cosines", found, "<=", 1.0, tolerance=1e-9)
    yield printed("that is, nearly attained", found.max(), ">=", 0.99)
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


# --- 004-8: the noise of a Poisson batch ---


def log_moment(
    squares: Array, log_weights: Array, variance: float, dimension: int, scale: float
) -> float:
    """Return ln E exp(||a + xi||^2/scale) for ||a||^2 of a finite law and Gaussian xi.

    ``variance`` is that of each of the ``dimension`` coordinates of xi.
    """
    if scale <= 2.0 * variance:
        return math.inf
    found = float(special.logsumexp(log_weights + squares / (scale - 2.0 * variance)))
    return found - 0.5 * dimension * math.log1p(-2.0 * variance / scale)


def like_gradients(c5: float, own_size: bool) -> float:
    """Return a lower bound of ln E exp(||zeta||^2/scale) where all gradients have norm C.

    The scale is the paper's at sigma = d = 1, rho = C/1000; n = 100 B, B = 100 c5. The sum is
    divided by B, or by the size of the batch, an empty one counting as 0.
    """
    B, rate = 100.0 * c5, 0.01
    n = round(B / rate)
    scale, variance = c5 * (1e-6 / B + 1.0 / B**2), 1.0 / B**2
    # The empty batch alone, whose error is that of size 0; or all sizes near B.
    reach = math.ceil(20.0 * math.sqrt(B))
    sizes = np.zeros(1) if own_size else np.arange(max(0, int(B) - reach), int(B) + reach)
    errors = (sizes / B - 1.0) ** 2
    return log_moment(errors, stats.binom.logpmf(sizes, n, rate), variance, 1, scale)


def bernoulli_proxy(rate: float) -> float:
    """Return K with E exp(t (b - q)) <= exp(K t^2/2) for all t, b one with probability q."""
    odds = math.log1p(-rate) - math.log(rate)
    return 0.25 if abs(odds) < 1e-6 else (0.5 - rate) / odds


def used_scale(rate: float, n: int, mean_square: float, total_variance: float) -> float:
    """Return the s^2 that is used: mean_square of the gradients, total_variance of the noise."""
    sampled = bernoulli_proxy(rate) / (rate**2 * n) * mean_square
    return 2.0 / -math.expm1(-2.0) * (sampled + total_variance)


def poisson_moment(gradients: Array, rate: float, noise: float, dimension: int) -> float:
    """Return ln E exp(||zeta||^2/s^2): all batches of the gradients, shape (2 n,), listed.

    The sums are divided by B = q n and have noise of standard deviation noise/B.
    """
    vectors = gradients.reshape(-1, 2)[:, :dimension]
    n = len(vectors)
    inside = np.array(list(itertools.product((0.0, 1.0), repeat=n)))
    chosen = inside.sum(axis=1)
    log_weights = special.xlogy(chosen, rate) + special.xlog1py(n - chosen, -rate)
    errors = (inside - rate) @ vectors / (rate * n)
    variance = (noise / (rate * n)) ** 2
    scale = used_scale(rate, n, float((vectors**2).sum()) / n, dimension * variance)
    if scale < 1e-300:
        return 0.0
    return log_moment((errors**2).sum(axis=1), log_weights, variance, dimension, scale)


def half_batches(n: int) -> float:
    """Return that of n equal gradients in one dimension, q = 1/2, no noise."""
    sizes = np.arange(n + 1.0)
    errors = (2.0 * sizes / n - 1.0) ** 2
    return log_moment(
        errors, stats.binom.logpmf(sizes, n, 0.5), 0.0, 1, used_scale(0.5, n, 1.0, 0.0)
    )


@register(
    "004-8",
    "Proof of Proposition 4.4, above (12)",
    "E exp(\\|\\|zeta\\|\\|^2/s^2) <= e with s^2 = c5 (rho^2/B + C^2 d sigma^2/B^2) for the noise "
    "zeta of Poisson batches, c5 absolute",
    "s^2 = 2/(1 - e^-2) (K (\\|\\|grad f\\|\\|^2 + rho^2)/(q B) + C^2 d sigma^2/B^2), "
    "K = (1/2 - q)/ln((1-q)/q); no c5 does for batches divided by B (Algorithm 1) or by "
    "their size (the proof)",
    verdict="corrected",
)
def batch_noise(effort: Effort) -> Iterator[Evidence]:
    """Equal gradients, for which any rho does; all batches of a few gradients."""
    constants = np.geomspace(3.0, 3e4, effort.cases(9, 41))
    setting = "ln E exp, equal gradients of norm C, B = 100 c5, smallest over c5"
    for name, own_size in (("by B", False), ("by the batch's size", True)):
        least = min(like_gradients(c5, own_size) for c5 in constants)
        yield printed(f"{setting}, divided {name}", least, "<=", 1.0, cases=constants.size)
    space = {
        "gradients": Range(-1.0, 1.0, size=14),
        "rate": Range(1e-4, 1.0 - 1e-4),
        "noise": Range(1e-3, 10.0, log=True),
        "dimension": Range(1, 2, integer=True),
    }
    guess = {"gradients": np.zeros(14), "rate": 0.5, "noise": 1.0, "dimension": 1}
    found = search_max(effort, poisson_moment, space, guesses=[guess])
    yield used("ln E exp, all batches of 7 gradients", found, "<=", 1.0, tolerance=1e-12)
    yield used("that is, attained by the noise alone", found.max(), ">=", 1.0 - 1e-9)
    yield used("and approached by sampling alone, n = 20000", half_batches(20_000), ">=", 0.999)


# --- 004-9: the pessimistic bound ---


def last_gap(
    start: float, centers: Array, batches: Array, noises: Array, eta: float, B: float
) -> float:
    """Return f(w_T) - f* of Algorithm 1, C = 1, on f_i = (w - c_i)^2/2.

    ``batches`` (T, n) says who is in which batch, ``noises`` (T,) is that of the sums.
    """
    w = start
    for inside, noise in zip(batches, noises):
        w -= eta / B * (float(inside @ np.clip(w - centers, -1.0, 1.0)) + noise)
    return 0.5 * (w - float(centers.mean())) ** 2


def pessimistic(
    start: float, centers: Array, batches: Array, noises: Array, B: float, corrected: bool
) -> float:
    """Return the bound on that for any eta <= 1."""
    T = len(noises)
    sampled = float((batches.sum(axis=1) ** 2).sum()) / B**2
    noise = float(noises @ noises) / B**2
    clipped = 2.0 * T * (sampled + noise) if corrected else T**2 + T * noise
    return (start - float(centers.mean())) ** 2 + clipped


def quotient(
    start: float,
    centers: Array,
    inside: Array,
    noises: Array,
    eta: float,
    B: float,
    steps: int,
    corrected: bool,
) -> float:
    """Return the gap over its bound after the first ``steps`` steps."""
    batches = (inside.reshape(len(noises), -1) > 0.5).astype(np.float64)[:steps]
    bound = pessimistic(start, centers, batches, noises[:steps], B, corrected)
    return last_gap(start, centers, batches, noises[:steps], eta, B) / max(bound, 1e-12)


def tail_quotient(c1: float) -> float:
    """Return P(f(w_priv) - f* >= 2 gap + T^2 C^2/L + t) / its bound (14), t = .3.

    One step from 1.25 with B = 4 on eight records, all batches of them listed. The noise is so
    small that the bound is 2 exp(-20).
    """
    start, t, B, n = 1.25, 0.3, 4.0, 8
    std = math.sqrt(t * c1 * B**2 / 20.0)
    centers = np.repeat([6.0, -10.0], [5, 3])
    limit = math.sqrt(2.0 * (start**2 + 1.0 + t))
    chance = 0.0
    for inside in itertools.product((0.0, 1.0), repeat=n):
        end = start - np.dot(inside, np.clip(start - centers, -1.0, 1.0)) / B
        beyond = special.ndtr((np.array([end, -end]) - limit) * B / std)
        chance += float(beyond.sum())
    return 0.5 * chance / 2.0**n / (2.0 * math.exp(-20.0))  # w_priv is the end or the start


@register(
    "004-9",
    "Lemma B.1, (14), and (iii) in its proof",
    "f(w_t) - f* <= 2 (f(w_0) - f*) + T^2 C^2/L + (T/(L B^2)) sum_t \\|\\|xi_t\\|\\|^2 for "
    "eta <= 1/L, and (14), the tail that follows",
    "2 (f(w_0) - f*) + (2 T/(L B^2)) sum_t (C^2 \\|B_t\\|^2 + \\|\\|xi_t\\|\\|^2): a square of a "
    "sum costs a factor 2, and a Poisson batch can be larger than B",
    verdict="corrected",
)
def pessimistic_bound(effort: Effort) -> Iterator[Evidence]:
    """Run the algorithm on quadratics, one parameter; (14) by listing all batches."""
    worst: dict[str, Any] = {
        "start": 2.0,
        "centers": np.array([10.0, 10.0, -10.0, -10.0]),
        "inside": np.array([1.0, 1.0] + [0.0] * 10),
        "noises": np.array([-2.0, 0.0, 0.0]),
        "eta": 1.0,
        "B": 2.0,
        "steps": 1,
    }
    as_printed = quotient(**worst, corrected=False)
    yield printed("gap / bound, one step, \\|B_t\\| = B", as_printed, "<=", 1.0)
    constants = np.geomspace(1e-4, 1e4, 17)
    least = min(tail_quotient(c1) for c1 in constants)
    what = "probability / (14), one step, n = 8, q = 1/2, smallest over c1"
    yield printed(what, least, "<=", 1.0, cases=constants.size)
    space = {
        "start": Range(-10.0, 10.0),
        "centers": Range(-20.0, 20.0, size=4),
        "inside": Range(0.0, 1.0, size=12),
        "noises": Range(-10.0, 10.0, size=3),
        "eta": Range(0.01, 1.0),
        "B": Range(0.1, 4.0, log=True),
        "steps": Range(1, 3, integer=True),
    }
    found = search_max(effort, partial(quotient, corrected=True), space, guesses=[worst])
    yield used("gap / bound used, up to 3 steps", found, "<=", 1.0, tolerance=1e-12)
    yield used("that is, attained", found.max(), ">=", 1.0 - 1e-9)


# --- 004-10, 004-11: paths ---

FAILURE = 0.01


def paths(
    T: int,
    step: float,
    scale: float,
    start: float,
    law: str,
    runs: int,
    random: np.random.Generator,
) -> Array:
    """Return the largest f(w_t), f = w^2/2, of runs from ``start`` with noise of that scale.

    E exp(noise^2/scale^2) is at most e: signs, or uniform or Gaussian numbers.
    """
    w = np.full(runs, start)
    most = 0.5 * w * w
    for _ in range(T):
        if law == "signs":
            noise = scale * np.where(random.random(runs) < 0.5, -1.0, 1.0)
        elif law == "uniform":
            noise = scale * random.uniform(-1.0, 1.0, runs)
        else:
            noise = scale * math.sqrt(0.5 * -math.expm1(-2.0)) * random.standard_normal(runs)
        w = w - step * (w + noise)
        most = np.maximum(most, 0.5 * w * w)
    return most


def exceeded(effort: Effort) -> Iterator[tuple[float, int]]:
    """Yield (upper confidence limit of the share of runs above the bound)/failure, and runs."""
    random, runs = effort.random(), effort.cases(4000, 40_000)
    for law in ("signs", "uniform", "gaussian"):
        for T, scale, start in ((100, 1.0, 0.0), (300, 10.0, 1.0), (30, 0.1, 3.0)):
            step = min(0.5, 1.0 / (scale * math.sqrt(T)))
            most = paths(T, step, scale, start, law, runs, random)
            bound = sgd_objective_bound(0.5 * start**2, 1.0, step, scale, T, FAILURE)
            yield upper_limit(int((most > bound).sum()), runs) / FAILURE, runs


@register(
    "004-10",
    "Proposition 4.2",
    "max_t f(w_t) - f* <= 2 (f(w_0) - f*) + O(ln T/delta) with probability 1 - delta if "
    "E exp(\\|\\|zeta_t\\|\\|^2/sigma^2) <= e and eta <= min{1/(2L), 1/(sigma sqrt T)}",
    "the noise must be centred, E[zeta_t \\| w_t] = 0; then `theory.sgd_objective_bound`, without "
    "the factor ln T",
    verdict="corrected",
)
def objective_of_paths(effort: Effort) -> Iterator[Evidence]:
    """Push all the time in one direction; follow many paths with centered noise."""
    T, push = 100_000, 1e3
    step = 1.0 / (push * math.sqrt(T))
    reached = 0.5 * (push * -math.expm1(T * math.log1p(-step))) ** 2  # w_T = push (1 - (1-eta)^T)
    bound = printed_objective_bound(0.0, 1.0, step, push, T, FAILURE)
    what = "f(w_T), f = w^2/2, zeta = -1000, T = 1e5; the proof's bound"
    yield printed(what, reached, "<=", bound)
    shares, runs = zip(*exceeded(effort))
    what = "share of paths above the bound / delta, upper 1e-6 confidence limit"
    yield used(what, shares, "<=", 1.0, cases=sum(runs))
    ours = sgd_objective_bound(1.0, 1.0, 1e-3, 1.0, 10**6, 1e-6)
    theirs = printed_objective_bound(1.0, 1.0, 1e-3, 1.0, 10**6, 1e-6)
    yield used("the proof's bound / the one used, T = 1e6, delta = 1e-6", theirs / ours, ">=", 5.0)


def largest_gradients(T: int, scale: float, runs: int, random: np.random.Generator) -> Array:
    """Return the largest gradients of runs on f_i = (w - c_i)^2/2, eight c_i, centered noise."""
    centres = np.linspace(-1.0, 1.0, 8)
    w, most = np.zeros(runs), np.zeros(runs)
    step = min(0.5, 1.0 / (scale * math.sqrt(T)))
    for t in range(T + 1):
        most = np.maximum(most, np.abs(w[:, None] - centres).max(axis=1))
        if t < T:
            w = w - step * (w + scale * np.where(random.random(runs) < 0.5, -1.0, 1.0))
    return most


@register(
    "004-11",
    "Proposition 4.3, (1)",
    "max_{i,t} \\|\\|grad f_i(w_t)\\|\\| <= sqrt(2 beta1 (f(w_0) - f*)) + "
    "O(sqrt(ln 1/delta + ln T + ln n)) with probability 1 - delta (roots lost in our text)",
    "for centred noise, with all constants and without ln T: `theory.no_clipping_norm`",
    verdict="corrected",
)
def gradients_of_paths(effort: Effort) -> Iterator[Evidence]:
    """Push in one direction again; follow paths with centered noise."""
    push, T = 1e3, 100_000
    step = 1.0 / (push * math.sqrt(T))
    reached = push * -math.expm1(T * math.log1p(-step))
    bound = math.sqrt(2.0 * printed_objective_bound(0.0, 1.0, step, push, T, FAILURE))
    yield printed("\\|f'(w_T)\\|, f = w^2/2, zeta = -1000, T = 1e5", reached, "<=", bound)
    random, runs, shares = effort.random(), effort.cases(4000, 40_000), []
    rho = theory.light_tail_scale(np.abs(np.linspace(-1.0, 1.0, 8)))
    for T, scale in ((50, 1.0), (200, 10.0), (400, 0.3)):
        allowed = theory.no_clipping_norm(0.0, 1.0, rho, 8, T, FAILURE)
        bad = int((largest_gradients(T, scale, runs, random) > allowed).sum())
        shares.append(upper_limit(bad, runs) / FAILURE)
    what = "share of paths with a longer gradient / delta, upper 1e-6 confidence limit"
    yield used(what, shares, "<=", 1.0, cases=3 * runs)
    slow = theory.no_clipping_norm(1.0, 1.0, 1.0, 1000, 10**9, 1e-6)
    fast = theory.no_clipping_norm(1.0, 1.0, 1.0, 1000, 10**3, 1e-6)
    yield used("bound at T = 1e9 / at T = 1e3", slow / fast, "<=", 1.0 + 1e-3)


def steepest(values: Array, curvatures: Array) -> float:
    """Return max f_i'^2/(2 L n (f - mean of the least f_i)) for f_i = a_i (w - c_i)^2/2 at w = 0.

    L is the largest a_i.
    """
    slopes = curvatures * values
    gaps = 0.5 * curvatures * values**2
    return float((slopes**2).max() / (2.0 * curvatures.max() * gaps.sum()))


@register(
    "004-12",
    "Remark 4.2",
    "without Assumption 4.1 the bound on \\|\\|grad f_i\\|\\| for full batches, and so C, is "
    "sqrt n times larger",
    verdict="holds",
)
def without_light_tails(effort: Effort) -> Iterator[Evidence]:
    """One steep sample among flat ones; random parabolas."""
    random, found = effort.random(), []
    for _ in range(effort.cases(500, 20_000)):
        n = int(random.integers(1, 30))
        found.append(steepest(random.standard_t(1, n), np.exp(random.normal(size=n))))
    what = "largest \\|f_i'\\|^2 / (2 L n (f - mean of the least f_i))"
    yield printed(what, found, "<=", 1.0, tolerance=1e-12)
    alone = steepest(np.eye(20)[0], np.ones(20))
    yield printed("attained, one of 20 samples not at its minimum", alone, ">=", 1.0 - 1e-12)
    norms = [
        theory.no_clipping_norm(1.0, 1.0, None, n, 100, 1e-6, interpolation_gap=0.0)
        for n in (100, 10_000)
    ]
    yield printed("C at n = 1e4 / at n = 100", norms[1] / norms[0], "==", 10.0, tolerance=1e-9)


@register(
    "004-13",
    "Corollary 5.1",
    "value clipping is (epsilon, delta)-DP for some c1, c2 if sigma >= c2 q sqrt(T ln 1/delta)/"
    "epsilon, for any epsilon < c1 q^2 T",
    "per-sample values (004-1), and epsilon <= min{q^2 T, ln 1/delta} with c2 = 2, as for gradient "
    "clipping (000-9); noise is calibrated by an accountant",
    verdict="corrected",
)
def value_clipping_privacy(effort: Effort) -> Iterator[Evidence]:
    """Compose Gaussian noise on clipped sums, which does not know how they were clipped."""
    constants = np.geomspace(1e-2, 1e2, effort.cases(7, 31))
    least = min(excess_of_full_batches(c1, c2, 1e-5) for c1 in constants for c2 in constants)
    what = "delta / delta claimed, q = 1, epsilon = c1 T, T large, smallest over c1, c2"
    yield printed(what, least, "<=", 1.0, cases=constants.size**2)
    found = search_max(effort, excess_at_share, LONG_RUNS, cost=8)
    yield used("epsilon / epsilon claimed", found, "<=", 1.0)


# Points of accuracy that value clipping loses, at epsilon about .01 and 10, as printed.
GAPS = {"linear model": (5.0, 2.0), "two layers": (9.0, 3.0)}


@register(
    "004-14",
    "Figure 5, C.2",
    "the gap between gradient and value clipping grows as epsilon becomes larger",
    "as epsilon becomes smaller: so say the numbers of the same paragraph, and its reason, that "
    "there is more noise",
    verdict="corrected",
)
def direction_of_the_gap(effort: Effort) -> Iterator[Evidence]:
    """Compare the printed gaps at epsilon .01 and 10."""
    for model, (small, large) in GAPS.items():
        what = f"printed gap at epsilon = 10 - at .01, points, {model}"
        yield printed(what, large - small, ">=", 0.0)
        yield used(f"at .01 - at 10, {model}", small - large, ">=", 0.0)
