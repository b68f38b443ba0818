"""Gao and Wright (2023): sensitivities, and the cost of searches, batches and runs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from scipy import optimize, special, stats

from ... import privacy, theory
from ...audit.attack import Range
from ...audit.exact import Density, hockey_stick, renyi_divergence
from ...audit.laws import above_threshold_distribution, subsampled_gaussian
from ...losses import Logistic
from ...methods.second_order import batch_multipliers
from ...privacy import (
    Budget,
    WithoutReplacement,
    gaussian_delta,
    gaussian_epsilon,
    rdp_gaussian,
    rdp_without_replacement,
)
from ...privacy.accounting.pure import amplify
from ...privacy.accounting.relations import REPLACE_ONE
from ...privacy.events import Gaussian, Pure, Repeated, Sampled
from ...problems import ERM
from ..claim import Effort, Evidence, premise, printed, reading, used
from ..registry import register
from ..tools import (
    Array,
    gaussian_mixture,
    largest_delta,
    of_adversary,
    randomized_response,
    renyi,
    search_max,
    symmetric,
    unit,
)

RECORDS = 10_000

# Bounds on l'' of the logistic loss and on |l''| of the sigmoid loss 1/(1 + e^m).
LOGISTIC_CURVATURE = 0.25
SIGMOID_CURVATURE = 1.0 / (6.0 * math.sqrt(3.0))
# Signs are decided by a number, so that a search may choose them.
SIGN = Range(-1.0, 1.0)


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
    """Return the same change for the sigmoid loss 1/(1 + exp(y z)), which is not convex."""
    total = np.zeros((w.size, w.size))
    for x, y, sign in ((unit(old), y_old, 1.0), (unit(new), y_new, -1.0)):
        s = special.expit(label(y) * float(x @ w))
        total += sign * s * (1.0 - s) * (2.0 * s - 1.0) * np.outer(x, x)
    return float(np.linalg.norm(total)) / SIGMOID_CURVATURE


def any_change(old: Array, new: Array) -> float:
    """Return the same change for any two symmetric Hessians of norm B_H."""
    pair = [symmetric(entries, 3) for entries in (old, new)]
    shortened = [h / max(1.0, float(np.linalg.norm(h, 2))) for h in pair]
    return float(np.linalg.norm(shortened[0] - shortened[1]))


@register(
    "003-1",
    "(4), Delta_H",
    "replacing a row moves the Hessian by at most 2 B_H sqrt(d)/n in the Frobenius norm",
    "Hessians l'' x x' of a linear predictor: sqrt 2 B_H/n if l'' >= 0 (logistic), else 2 B_H/n; "
    "the printed value is attained only by Hessians of full rank",
    verdict="sharpened",
)
def hessian_sensitivity(effort: Effort) -> Iterator[Evidence]:
    """Search by brute force over neighbouring rows."""
    d = 4
    rows = {name: Range(-3.0, 3.0, size=d) for name in ("w", "old", "new")}
    space = {**rows, "y_old": SIGN, "y_new": SIGN}
    e = np.eye(d)
    across = {"w": 0.0 * e[0], "old": e[0], "new": e[1], "y_old": 1.0, "y_new": 1.0}
    convex = search_max(effort, logistic_change, space, guesses=[across])
    loose = convex / (2.0 * math.sqrt(d))
    yield printed("largest change / bound, logistic, d = 4", loose, "<=", 1.0)
    full = {name: Range(-1.5, 1.5, size=6) for name in ("old", "new")}
    corner = {"old": np.eye(3)[np.triu_indices(3)], "new": -np.eye(3)[np.triu_indices(3)]}
    found = search_max(effort, any_change, full, guesses=[corner]) / (2.0 * math.sqrt(3.0))
    what = "largest change / bound, any Hessians, d = 3"
    yield printed(what, found, "<=", 1.0, tolerance=1e-12)
    top = convex.max()
    yield used("largest n change / B_H, logistic", top, "<=", math.sqrt(2.0), tolerance=1e-12)
    yield used("bound attained", top, ">=", math.sqrt(2.0), tolerance=1e-9)
    bend = math.log(2.0 + math.sqrt(3.0))  # where the curvature of the sigmoid is largest
    along = {"w": bend * e[0], "old": e[0], "new": e[0], "y_old": 1.0, "y_new": -1.0}
    mixed = search_max(effort, sigmoid_change, space, guesses=[along])
    yield used("largest n change / B_H, sigmoid loss", mixed, "<=", 2.0, tolerance=1e-12)
    yield used("bound attained", mixed.max(), ">=", 2.0, tolerance=1e-9)
    wide = np.eye(54)
    most = logistic_change(0.0 * wide[0], wide[0], wide[1], 1.0, 1.0)
    yield used("noise saved at d = 54, factor", 2.0 * math.sqrt(54.0) / most, ">=", 10.39)


def worst_rho(d: int, off_diagonal: float, random: np.random.Generator) -> float:
    """Return the largest rho of symmetric Gaussian noise.

    The diagonal has standard deviation 1, and the sensitivity in the Frobenius norm is 1. The
    covariance is written in a random orthonormal basis of the symmetric matrices.
    """
    rows, columns = np.triu_indices(d)
    deviations = np.where(rows == columns, 1.0, off_diagonal)
    drawn = np.array([symmetric(e, d).ravel() for e in random.normal(size=(rows.size, rows.size))])
    basis = np.linalg.qr(drawn.T)[0]  # (d^2, d(d+1)/2), orthonormal in the Frobenius product
    units = np.array([symmetric(e, d).ravel() for e in np.eye(rows.size)])
    mixing = basis.T @ (units.T * deviations)
    return 0.5 * float(np.linalg.eigh(np.linalg.inv(mixing @ mixing.T))[0][-1])


@register(
    "003-2",
    "Algorithm 1; Theorem 1",
    "E_k with iid N(0, Delta_H^2 sigma^2) on and above the diagonal costs 1/(2 sigma^2)",
    "the same with entries Delta_H sigma / sqrt 2 off the diagonal",
    verdict="sharpened",
)
def hessian_noise(effort: Effort) -> Iterator[Evidence]:
    """Compute the cost of the worst change of norm Delta_H, and the size of the noise."""
    random = effort.random()
    dims = range(2, effort.cases(6, 13))
    half = math.sqrt(0.5)
    wide, narrow = ([2.0 * worst_rho(d, off, random) for d in dims] for off in (1.0, half))
    what = "largest true rho / claimed, changes of norm Delta_H"
    yield printed(what, wide, "<=", 1.0, tolerance=1e-9)
    yield used("the same with the smaller noise", narrow, "<=", 1.0, tolerance=1e-9)
    # The likelihood ratio depends on one Gaussian variable, with variance 2 rho and that mean.
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
    yield used("mean norm of the noise / as printed, d = 54", ratio, "<=", 0.75, cases=draws)


# --- 003-3 to 003-5: a run whose length depends on the data ---

# Gauss-Legendre nodes and weights of one panel.
NODES = np.polynomial.legendre.leggauss(12)


def stopping(shift: float, barriers: Array) -> Iterator[tuple[Array, Array, float]]:
    """Yield (losses so far, their probabilities under P, barrier) before each release."""
    # A run makes Gaussian releases, noise 1, whose mean is ``shift`` under P and 0 under Q, and
    # stops when its privacy loss reaches the barrier, or after the last; exact up to quadrature.
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


def stops_at_once() -> float:
    """Return P(S) - Q(S), S: Algorithm 1 returns w0 = 0, for an actual pair of data sets."""
    n = 10
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


def realized_delta(most: int) -> float:
    """Return the exact delta at the realized epsilon of a run that stops at a large loss."""
    delta, shift, counts = 1e-3, 0.1, np.arange(1, most + 1)
    epsilons = np.array([gaussian_epsilon(1.0 / (shift * math.sqrt(k)), delta) for k in counts])
    barriers = epsilons + 0.5 * shift * np.sqrt(counts)
    barriers[-1] = -math.inf
    return stopping_delta(shift, barriers, epsilons)


def drawn_bound_delta(delta: float) -> float:
    """Return the exact delta at epsilon of the rho of T, a T that f(w0) + z decides, by (6).

    Units of Delta_f, which MIN_DEC is; sigma_f = 4.7, 18/sigma_g^2 = .34, no Hessians.
    """
    T, sigma, square = np.arange(1, 101), 4.7, 18.0 / 0.34
    laws = [rounded_up(stats.norm(f, sigma), 1.0, T.size) for f in (18.0, 19.0)]
    total = 0.0
    for t, p, q in zip(T, *laws):
        epsilon = gaussian_epsilon(1.0 / math.sqrt(sigma**-2.0 + t / square), delta)
        total += p * gaussian_delta(math.sqrt(square / t), epsilon - math.log(p / q)) if p else 0.0
    return float(total)


def run_of_no_steps(effort: Effort) -> Iterator[Evidence]:
    """Let f(w0) have a cost, sigma_f = 10, and let the realized epsilon depend on the outcome."""
    rows = np.ones((10, 1))
    yield premise("row norms / B_g", np.linalg.norm(rows, axis=1), "<=", 1.0)
    # Without a step rho is 1/(2 sigma_f^2), and Pinsker's inequality bounds P(S) - Q(S) by this.
    yield premise("P(a curvature step at w0), eps_H = .1", special.ndtr(-0.35 / 0.05), "<=", 1e-11)
    what = "P(S) - Q(S), S: w0 = 0 is returned, k_g = k_H = 0, sigma_f = 10"
    yield printed(what, stops_at_once(), "<=", math.sqrt(0.5 * 0.5 / 100.0))
    what = "delta at the realized epsilon of each outcome, nominal 1e-3"
    yield printed(what, realized_delta(effort.cases(60, 400)), "<=", 1e-3)


@register(
    "003-3",
    "Theorems 1, 5",
    "a run that took k_g gradient and k_H curvature steps is rho-zCDP, rho computed from them",
    "no guarantee: neither what these numbers reveal nor the last evaluation is counted; the worst "
    "case T, which the theorems state too, is a guarantee if T is known, or with the noise of (8), "
    "as is a zCDP filter that stops the run",
    verdict="corrected",
    says="'Suppose a run of Algorithm 1 takes k_g gradient steps and k_H negative curvature steps. "
    "Then the run is rho-zCDP'; Theorem B.5, with the words 'data-dependent', is 003-19",
    hypotheses="logistic rows of norm 1, sigma_g = 1; f(w0) public or with sigma_f = 10",
    changes="a definition of privacy that depends on the run; with T the statement is true for a "
    "known T, and with the noise of (8), which makes rho the same for all T, but for the |z| of "
    "(6), 003-4",
    adversary=run_of_no_steps,
)
def realized_cost(effort: Effort) -> Iterator[Evidence]:
    """Return w0 at once; stop when the loss is large."""
    what = "P(S) - Q(S), S: w0 = 0 is returned at once (k_g = k_H = 0, sigma_f = inf: rho = 0)"
    yield printed(what, stops_at_once(), "<=", 0.0)
    most = effort.cases(60, 400)
    what = f"delta at the realized epsilon, all evaluations counted, N <= {most}, nominal 1e-3"
    yield printed(what, realized_delta(most), "<=", 1e-3)
    what = "delta at the epsilon of T, by (6) with z for \\|z\\|, sigma_g given, nominal 4e-6"
    yield printed(what, drawn_bound_delta(4e-6), "<=", 4e-6)
    random, deltas, costs = effort.random(), [], []
    for _ in range(effort.cases(12, 100)):
        steps = int(random.integers(2, 40))
        shift = math.exp(random.uniform(-3.0, 0.3))
        spread = shift * np.sqrt(np.arange(1, steps + 1))
        barriers = random.uniform(-1.0, 4.0) * spread + random.normal(size=steps) * 0.5 * shift
        barriers[-1] = -math.inf
        delta = math.exp(random.uniform(-14.0, -1.0))
        epsilon = gaussian_epsilon(1.0 / float(spread[-1]), delta)
        deltas.append(stopping_delta(shift, barriers, np.full(steps, epsilon)) / delta)
        order = 1.0 + math.exp(random.uniform(-3.0, 3.0))
        rho = 0.5 * float(spread[-1]) ** 2
        costs.append(stopping_divergence(shift, barriers, order) / (order * rho))
    what = "over stopping rules, at the worst case of a known T"
    yield used(f"delta / nominal {what}", deltas, "<=", 1.0, tolerance=1e-6)
    yield used(f"D_a / (a rho) {what}", costs, "<=", 1.0, tolerance=1e-6)


def budget_spent(excess: float, share: float, T: int, rho: float, search: bool) -> float:
    """Return D_a/(a rho) of T iterations with the noise of (8) or (14), rho_f = share rho.

    Gaussian releases are one with all their shifts; a search is any 1/lambda-private release.
    """
    rho_f, order = share * rho, 1.0 + excess
    square = (1.5 if search else 1.0) * T / (rho - rho_f)  # sigma_g^2 = sigma_H^2 = lambda^2
    shift = math.sqrt(2.0 * rho_f + 2.0 * T / square)
    cost = renyi_divergence(stats.norm(shift), stats.norm(), order) / order
    if search:
        cost += T * response_cost(excess, 1.0 / math.sqrt(square))
    return float(cost) / rho


@register(
    "003-35",
    "(8), (14); Theorems 1 and 5",
    "where T costs 1/(2 sigma_f^2) (003-4), it and T iterations with sigma_f^2 = 1/(2 rho_f), "
    "sigma_g^2 = sigma_H^2 = T/(rho - rho_f) are rho-zCDP, and with line searches for sigma_g^2 = "
    "sigma_H^2 = lambda^2 = 3 T/(2 (rho - rho_f))",
    verdict="holds",
    says="'for given rho > 0 and rho_f in (0, rho), we can choose' these 'to ensure that the "
    "algorithm is rho-zCDP'",
    hypotheses="a gradient, a Hessian and a search in each of T iterations, all moved by their "
    "sensitivities, and a T that costs rho_f, or is public, as from w0 = 0",
    changes="the T of (6) as printed, whose |z| costs more than rho_f: with it released, the "
    "algorithm is not rho-zCDP; that is judged in 003-4 alone",
)
def budget_of_iterations(effort: Effort) -> Iterator[Evidence]:
    """Compose exact divergences of all releases."""
    space = {
        "excess": Range(1e-3, 100.0, log=True),
        "share": Range(0.01, 0.99),
        "T": Range(1, 10_000, log=True, integer=True),
        "rho": Range(1e-4, 1.0, log=True),
    }
    guess = {"excess": 1e-3, "share": 0.01, "T": 10_000, "rho": 1e-4}
    for name, search in (("(8)", False), ("(14)", True)):
        spent_by = partial(budget_spent, search=search)
        found = search_max(effort, spent_by, space, cost=60, guesses=[guess])
        yield printed(f"D_a / (a rho), {name}", found, "<=", 1.0, tolerance=1e-9)
        yield printed("bound attained", found.max(), ">=", 1.0 - 1e-4)


def half_normal(start: float, std: float) -> Density:
    """Return the density of start + |z|."""
    constant = 0.5 * math.log(2.0 / math.pi) - math.log(std)
    return Density(lambda x: constant - 0.5 * ((x - start) / std) ** 2, (start,), (start, math.inf))


def rounded_up(law: Any, step: float, top: int) -> Array:
    """Return the law of max(1, ceil(X/step)); the last outcome includes all larger ones."""
    cdf = np.append(law.cdf(step * np.arange(1, top)), 1.0)
    return np.diff(cdf, prepend=0.0)


def margin_quotient(sigma: float, epsilon: float, step: float, start: float) -> float:
    """Return the exact delta of ceil((f + z + margin)/MIN_DEC) over that of Gaussian noise."""
    laws = [rounded_up(stats.norm(start + gap, sigma), step, 400) for gap in (0.0, 1.0)]
    claimed = gaussian_delta(sigma, epsilon)
    return largest_delta(laws, epsilon) / max(claimed, 1e-6)  # known to 1e-16 e^epsilon


def returned_delta(rho: float, last: bool) -> float:
    """Return a lower bound of delta at epsilon = 30 of the answer of Algorithm 1; T is secret.

    All losses are 0, but the replaced one is B at every w, so that only T differs; noise by (8),
    rho_f = rho/2. A run that does not end within T iterations answers nothing, or ``last`` its last
    iterate w0 + N(0, T^2 I), which is near w0 only if T is small.
    """
    T, std = np.arange(1, 40_001), 1.0 / math.sqrt(rho)
    # MIN_DEC is Delta_f/1000; eps_g is 1.6/sqrt(T) times the noise of a gradient, or almost 0.
    if last:
        chance = stats.chi2.cdf(60.0 / T**2, 54)
    else:
        chance = np.exp(T * special.log1p(-special.erf(1.6 / np.sqrt(2.0 * T))))
    folded = [rounded_up(stats.halfnorm(f, std), 1e-3, T.size) @ chance for f in (0.0, 1.0)]
    return float(folded[0] - math.exp(30.0) * folded[1])


def secret_bound(effort: Effort) -> Iterator[Evidence]:
    """Keep T secret, and use the f(w0) of two constant losses, 0 <= l <= B."""
    losses = np.array([[0.0, 0.0, 0.0], [0.0, 0.0, 1.0]])  # B = 1, n = 3
    yield premise("largest l / B", losses, "<=", 1.0)
    yield premise("change of f(w0) / Delta_f", 3.0 * np.ptp(losses.mean(axis=1)), "<=", 1.0)
    what = "delta at epsilon = 30, rho = .1, of the answer, T secret; without an end a run returns"
    for last, answer in ((False, "nothing"), (True, "its last iterate")):
        delta = returned_delta(0.1, last)
        yield printed(f"{what} {answer}", delta, "<=", gaussian_delta(math.sqrt(5.0), 30.0))


@register(
    "003-4",
    "(6); Algorithms 1 and 3",
    "T = (f(w0) + \\|z\\| - f_lb)/MIN_DEC costs 1/(2 sigma_f^2)",
    "w0 = 0 makes f(w0) = ln 2 public; otherwise f + z + a fixed margin, T rounded up",
    verdict="corrected",
    says="'the zCDP guarantee for the Gaussian mechanism'; (6) has |z|",
    hypotheses="0 <= l <= B; T rounded up or not; released, or kept secret: then the answer alone "
    "reveals it, whatever a run returns that does not end within T",
    changes="z in place of |z|",
    adversary=secret_bound,
)
def iteration_bound(effort: Effort) -> Iterator[Evidence]:
    """Half-normal noise changes the support: delta does not vanish at any epsilon."""
    for sigma in (1.0, 10.0):
        delta = hockey_stick(half_normal(0.0, sigma), half_normal(1.0, sigma), 30.0)
        claimed = gaussian_delta(sigma, 30.0)
        yield printed(f"delta at epsilon = 30, sigma_f = {sigma:g}", delta, "<=", claimed)
    yield from of_adversary(secret_bound, effort)
    random, gaps = effort.random(), []
    for _ in range(effort.cases(30, 300)):
        n, d = random.integers(1, 9, size=2)
        X = random.normal(size=(n, d))
        problem = ERM(X, np.where(random.random(n) < 0.5, 1.0, -1.0), Logistic())
        gaps.append(abs(problem.value(np.zeros(d)) - math.log(2.0)))
    yield used("largest \\|f(0) - ln 2\\|", gaps, "<=", 1e-15)
    space = {
        "sigma": Range(0.3, 10.0, log=True),
        "epsilon": Range(0.01, 5.0, log=True),
        "step": Range(0.1, 20.0, log=True),
        "start": Range(5.0, 20.0),
    }
    found = search_max(effort, margin_quotient, space, cost=6)
    yield used("delta of T with z and a margin / Gaussian delta", found, "<=", 1.0, tolerance=1e-7)


def value_change(w: Array, old: Array, new: Array, y_old: float, y_new: float) -> float:
    """Return n |f(D) - f(D')| / ||w|| for a replaced row of the logistic loss."""
    losses = [
        float(np.logaddexp(0.0, -label(y) * float(unit(x) @ w)))
        for x, y in ((old, y_old), (new, y_new))
    ]
    return abs(losses[0] - losses[1]) / max(float(np.linalg.norm(w)), 1e-12)


@register(
    "003-5",
    "Assumption 2; (4), Delta_f",
    "where 0 <= l(w, x) <= B a replaced row moves f by at most B/n",
    "B is needed at w0 only, where a replaced row moves n f by at most \\|\\|w0\\|\\|; the "
    "logistic loss of the experiments has no B for all w",
    verdict="sharpened",
    says="'there are constants B, B_g, and B_H such that for any w, x we have 0 <= l(w, x) <= B'",
    hypotheses="losses anywhere in [0, B]",
)
def bounded_loss(effort: Effort) -> Iterator[Evidence]:
    """Replace one of several losses; at w0, search over rows by brute force."""
    losses = effort.random().uniform(size=(200, 9)).round(1)  # B = 1; the last replaces the eighth
    moved = 8.0 * np.abs(
        losses[:, :8].mean(axis=1) - losses[:, [0, 1, 2, 3, 4, 5, 6, 8]].mean(axis=1)
    )
    yield printed("n \\|f(D) - f(D')\\| / B", moved, "<=", 1.0, tolerance=1e-12)
    margins = -2.0 * np.geomspace(1.0, 1e9, 50)
    least = (Logistic().value(margins, np.ones(50)) / -margins).min()
    yield used("logistic loss at the margin -m, over m", least, ">=", 1.0, cases=50)
    rows = {name: Range(-3.0, 3.0, size=3) for name in ("w", "old", "new")}
    space = {**rows, "y_old": SIGN, "y_new": SIGN}
    e = np.eye(3)[0]
    along = {"w": e, "old": e, "new": e, "y_old": 1.0, "y_new": -1.0}
    found = search_max(effort, value_change, space, guesses=[along])
    yield used("n \\|f(D) - f(D')\\| / \\|\\|w0\\|\\|", found, "<=", 1.0, tolerance=1e-12)
    yield used("bound attained", found.max(), ">=", 0.999)


# --- 003-6, 003-7: the line search ---


def search_loss(queries: Array, change: Array, scale: float) -> float:
    """Return the pure loss of Algorithm 2 at sensitivity 1, times lambda."""
    laws = [
        np.log(above_threshold_distribution(q, "laplace", 2.0 * scale, 4.0 * scale))
        for q in (queries, queries + change)
    ]
    return scale * float(np.abs(laws[0] - laws[1]).max())


def response_cost(excess: float, epsilon: float) -> float:
    """Return D_alpha/alpha of randomized response, which costs most of all epsilon-DP releases."""
    order = 1.0 + excess
    return renyi_divergence(*randomized_response(epsilon), order) / order


@register(
    "003-6",
    "Theorem 5, proof",
    "Algorithm 2 is 1/lambda-DP and so 1/(2 lambda^2)-zCDP",
    "eps tanh(eps/2) with eps = 1/lambda",
    verdict="sharpened",
)
def line_search_cost(effort: Effort) -> Iterator[Evidence]:
    """Use exact laws of the line search and exact divergences of randomized response."""
    queries = {
        "queries": Range(-8.0, 8.0, size=8),
        "change": Range(-1.0, 1.0, size=8),
        "scale": Range(0.2, 5.0, log=True),
    }
    # To halt only at the last query, although all others are high, takes a high threshold.
    guess = {"queries": [8.0] * 7 + [-8.0], "change": [-1.0] * 7 + [1.0], "scale": 0.2}
    found = search_max(effort, search_loss, queries, cost=16, guesses=[guess])
    yield printed("lambda loss of Algorithm 2", found, "<=", 1.0, tolerance=1e-9)
    yield printed("bound nearly attained", found.max(), ">=", 0.99)
    space = {"excess": Range(1e-4, 300.0, log=True), "epsilon": Range(1e-2, 20.0, log=True)}

    def against_printed(excess: float, epsilon: float) -> float:
        return response_cost(excess, epsilon) / (0.5 * epsilon**2)

    def against_used(excess: float, epsilon: float) -> float:
        return response_cost(excess, epsilon) / (epsilon * math.tanh(0.5 * epsilon))

    found = search_max(effort, against_printed, space)
    yield printed("D_a / (a rho)", found, "<=", 1.0, tolerance=1e-9)
    found = search_max(effort, against_used, space)
    yield used("D_a / (a rho)", found, "<=", 1.0, tolerance=1e-9)
    yield used("bound attained", found.max(), ">=", 0.999)
    ratio = 0.5 / response_cost(1e-6, 1.0)
    yield used("rho printed / rho attained, lambda = 1", ratio, ">=", 1.08)


def query_change(
    w: Array, g: Array, old: Array, new: Array, y_old: float, y_new: float, step: float
) -> float:
    """Return n |q(gamma; D) - q(gamma; D')| / (2 gamma B_g ||g||), logistic."""
    moved = w - step * g
    values = [
        np.logaddexp(0.0, -label(y) * float(unit(x) @ w))
        - np.logaddexp(0.0, -label(y) * float(unit(x) @ moved))
        for x, y in ((old, y_old), (new, y_new))
    ]
    return float(abs(values[0] - values[1])) / max(2.0 * step * float(np.linalg.norm(g)), 1e-12)


def wrong_step(noise: float, divide: bool) -> float:
    """Return the probability that Algorithm 2 accepts a step that raises the objective."""
    # The queries are gamma/8 - gamma^2 at gamma = 4, 2, ..., 1/16 (positive for the last two), and
    # ``noise`` is the sensitivity of q/gamma, lambda = 1.
    steps = 4.0 * 0.5 ** np.arange(7)
    queries = steps / 8.0 - steps**2
    scale = noise if divide else noise * steps[0]
    law = above_threshold_distribution(
        queries / steps if divide else queries, "laplace", 2.0 * scale, 4.0 * scale
    )
    return float(law[:-1][queries < 0.0].sum())


@register(
    "003-7",
    "Algorithm 3, Delta_q",
    "the queries q(gamma), gamma <= gamma_init, have sensitivity 2 gamma_init B_g \\|\\|g\\|\\|/n",
    "q(gamma)/gamma >= 0 is equivalent, with sensitivity 2 B_g \\|\\|g\\|\\|/n at every gamma",
    verdict="sharpened",
)
def query_sensitivity(effort: Effort) -> Iterator[Evidence]:
    """Search over rows, directions and steps; use exact laws of one line search."""
    rows = {name: Range(-2.0, 2.0, size=2) for name in ("g", "old", "new")}
    space = {"w": Range(-1e4, 1e4, size=2), **rows, "y_old": SIGN, "y_new": SIGN}
    space["step"] = Range(1e-3, 1.0, log=True)  # of gamma_init = 1
    # Both labels are badly misclassified, one row along g and one against it.
    guess: dict[str, Any] = {"w": [0.0, -1e4], "g": [1.0, 0.0], "y_old": 1.0, "y_new": 1.0}
    guess |= {"old": [1.0, 0.01], "new": [-1.0, 0.01], "step": 1.0}
    found = search_max(effort, query_change, space, guesses=[guess])
    whole = search_max(effort, lambda **at: query_change(**at) * at["step"], space, guesses=[guess])
    what = "n \\|q(D) - q(D')\\| / (2 gamma_init B_g \\|\\|g\\|\\|)"
    yield printed(what, whole, "<=", 1.0, tolerance=1e-9)
    yield used("the same with gamma for gamma_init", found, "<=", 1.0, tolerance=1e-9)
    yield used("bound attained", found.max(), ">=", 0.999)
    for noise in (0.002, 0.02):
        what = f"probability of an uphill step, printed - used, 2 B_g \\|\\|g\\|\\|/n = {noise:g}"
        yield used(what, wrong_step(noise, False) - wrong_step(noise, True), ">=", 0.05)


# --- 003-10: the mini-batch ---


def batch_quotient(order: int, noise: float, m: int) -> float:
    """Return the exact cost of records 0, 1 and -1 of a sum / Theorem B.4; m of RECORDS."""
    fraction = m / RECORDS
    p, q = subsampled_gaussian(noise, 1.0, fraction)
    left, right = (  # the record is 1/2 or -1/2, all the others are 0
        gaussian_mixture(np.array([0.0, value]), noise, [1.0 - fraction, fraction])
        for value in (0.5, -0.5)
    )
    exact = max(renyi((p, q), order), renyi_divergence(left, right, order))
    return exact / rdp_without_replacement(order, RECORDS, m, lambda a: rdp_gaussian(a, noise))


def approximation(order: float, noise: float, fraction: float) -> float:
    """Return (28)."""
    return 2.0 * fraction**2 * order / noise**2


@register(
    "003-10",
    "(28)",
    "for small s and large sigma, epsilon'_N(alpha; sigma, s) is about 2 s^2 alpha/sigma^2 (our "
    "text has another 2 after alpha; the product printed before it gives this)",
    "as a bound it holds there too, with a factor of nearly 4 to spare; it fails as the order or "
    "1/sigma grows. Costs here are those of Theorem B.4 or of loss distributions",
    verdict="sharpened",
    says="'When s is small and sigma is large, we can discard higher-order terms'",
    hypotheses="s alpha sigma^2 well below 1 for the approximation; s = .01, sigma of 5 to 20, "
    "orders of 2 to 64 for the bound",
)
def small_batches(effort: Effort) -> Iterator[Evidence]:
    """Integrate the exact divergence where one record is 1 and all others are 0."""
    n = 10**8
    ratios = [
        rdp_without_replacement(a, n, 10, lambda x: rdp_gaussian(x, 50.0))
        / approximation(a, 50.0, 10 / n)
        for a in (2, 4, 8, 16)
    ]
    what = "Theorem B.4 / (28), s = 1e-7, sigma = 50, orders 2 to 16"
    yield printed(what, ratios, "==", 1.0, tolerance=0.01)

    def exact(order: float, noise: float) -> float:
        pair = subsampled_gaussian(noise, 1.0, 0.01)
        return renyi_divergence(*pair, order) / approximation(order, noise, 0.01)

    shares = [exact(order, noise) for noise in (5.0, 20.0) for order in (2, 16, 64)]
    yield printed("exact / (28), s = .01, sigma = 5 and 20, orders 2 to 64", shares, "<=", 1.0)
    beyond = [exact(256, 5.0), exact(16, 1.0)]
    yield used(
        "exact / (28) at order 256, sigma = 5 and at order 16, sigma = 1", beyond, ">=", 100.0
    )
    space = {
        "order": Range(2, 64, log=True, integer=True),
        "noise": Range(0.3, 20.0, log=True),
        "m": Range(1, int(0.9 * RECORDS), log=True, integer=True),
    }
    found = search_max(effort, batch_quotient, space, cost=effort.cases(30, 60))
    yield used("exact / Theorem B.4", found, "<=", 1.0, tolerance=1e-7)


# --- 003-19, 003-20: the noise of a batch ---


def shared_quotient(order: int, noise: float, m: int, together: bool) -> float:
    """Return the exact cost of two releases of one batch / the bound; m of RECORDS.

    The record moves both by their sensitivity; the bound is Theorem B.4 for both, or twice for one.
    """
    exact = renyi(subsampled_gaussian(noise, math.sqrt(2.0), m / RECORDS), order)
    parts = 1 if together else 2
    single = noise * math.sqrt(0.5 * parts)
    bound = rdp_without_replacement(order, RECORDS, m, lambda a: rdp_gaussian(a, single))
    return exact / (parts * float(bound))


def shown_quotient(noise: float, m: int, far: float) -> float:
    """Return the exact cost, at order 2, of the next iterate in d = 1 / (29); m of RECORDS.

    It shows a gradient, ``far`` below -eps_g, or if that is within eps_g the curvature; the record
    moves both up by their sensitivity, 1.
    """
    apart, within, twice = special.ndtr((np.arange(3.0) - far) / noise)
    square = math.exp(noise**-2.0) * (1.0 - twice + within**2 / apart)
    bound = rdp_without_replacement(2, RECORDS, m, lambda a: rdp_gaussian(a, noise))
    return math.log1p((m / RECORDS) ** 2 * (square - 1.0)) / (2.0 * float(bound))


def full_moves(effort: Effort) -> Iterator[Evidence]:
    """Take gradients +-B_g v and Hessians +-B_H I: one record against all others of the batch."""
    d, m = 4, 100
    g, H = np.ones((m, 1)) @ np.eye(d)[:1], np.array([np.eye(d)] * m)
    moved = np.linalg.norm(2.0 * g[0]) / m, np.linalg.norm(2.0 * H[0]) / m
    yield premise("gradient norms / B_g", np.linalg.norm(g, axis=1), "<=", 1.0)
    yield premise("Hessian norms / B_H", np.linalg.norm(H, 2, axis=(1, 2)), "<=", 1.0)
    yield premise("changes of the two batch means / (4)", np.array(moved) * m / [2, 4], "==", 1.0)
    apart = shared_quotient(2, 0.5, 100, together=False)
    yield printed("exact / (29) by Theorem B.4, alpha = 2, sigma = .5, s = .01", apart, "<=", 1.0)
    shown = shown_quotient(0.5, 100, 1.7)
    yield printed("the same for what the next iterate shows, d = 1", shown, "<=", 1.0)


@register(
    "003-19",
    "Theorem B.5, (29)",
    "gradient and Hessian of a batch cost epsilon'_N(alpha; sigma_g, s) + "
    "epsilon'_N(alpha; sigma_H, s)",
    "one batch is amplified once: epsilon'_N at alpha/sigma_g^2 + alpha/sigma_H^2, or exactly, by "
    "loss distributions; or each uses a separate batch. At large noise and moderate orders (29) "
    "suffices, because Theorem B.4 is loose",
    verdict="corrected",
    says="(29) adds 'T epsilon'_N(alpha; sigma_g, s) + T epsilon'_N(alpha; sigma_H, s)'",
    hypotheses="one evaluation of both on one batch, released, or only the iterate that follows; "
    "sensitivities of (4), which a record attains",
    changes="a separate batch for the Hessian",
    adversary=full_moves,
)
def shared_batch(effort: Effort) -> Iterator[Evidence]:
    """Let one record move both; integrate exact divergences."""
    yield from of_adversary(full_moves, effort)
    space = {
        "order": Range(2, 64, log=True, integer=True),
        "noise": Range(0.4, 20.0, log=True),
        "m": Range(1, int(0.9 * RECORDS), log=True, integer=True),
    }
    both = partial(shared_quotient, together=True)
    wide = [shared_quotient(a, 10.0, 100, together=False) for a in (2, 16, 256)]
    yield used("exact / (29) at sigma = 10, s = .01, orders 2, 16, 256", wide, "<=", 1.0)
    found = search_max(effort, both, space, cost=effort.cases(30, 60))
    yield used("exact / amplified once", found, "<=", 1.0, tolerance=1e-7)
    delta = hockey_stick(*subsampled_gaussian(0.5, math.sqrt(2.0), 0.01), 1.0)
    pair = Sampled(WithoutReplacement(100), [Gaussian(0.5, 1.0)] * 2, RECORDS)
    by_losses = privacy.epsilon(pair, delta, REPLACE_ONE)
    yield used("loss distribution / exact epsilon = 1, sigma = .5, s = .01", by_losses, ">=", 1.0)
    yield used("bound attained", by_losses, "<=", 1.0001)


def advanced_step(epsilon: float, delta: float, T: int, s: float) -> float:
    """Return epsilon_0 of Theorem B.8, without budget for f(w0)."""
    return epsilon / (8.0 * s * math.sqrt(2.0 * T * math.log(2.0 / delta)))


def advanced_noise(epsilon: float, delta: float, T: int, s: float) -> float:
    """Return sigma of Theorem B.8."""
    return math.sqrt(2.0 * math.log(5.0 * s * T / delta)) / advanced_step(epsilon, delta, T, s)


def advanced_excess(epsilon: float, delta: float, s: float) -> float:
    """Return the exact delta of one iteration / the nominal one; 0 where the proof fails."""
    step = advanced_step(epsilon, delta, 1, s)
    if math.expm1(2.0 * min(step, 9.0)) > 4.0 * step or delta > 4.0 * s:
        return 0.0
    laws = subsampled_gaussian(advanced_noise(epsilon, delta, 1, s), math.sqrt(2.0), s)
    return largest_delta(laws, epsilon) / delta


def small_share(effort: Effort) -> Iterator[Evidence]:
    """Spend a part on f(w0), as the theorem requires; judge only a gradient, which a step shows."""
    epsilon, delta, eps_f, delta_f, s = 0.9, 1e-5, 0.1, 1e-6, 1e-3
    yield premise(
        "epsilon_f / epsilon, delta_f / delta", [eps_f / epsilon, delta_f / delta], "<=", 1
    )
    yield premise("epsilon, delta", [epsilon, delta], "<=", 1.0)
    noise = advanced_noise(epsilon - eps_f, delta - delta_f, 1, s)
    exact = hockey_stick(*subsampled_gaussian(noise, 1.0, s), epsilon)
    yield printed("delta of one gradient at epsilon = .9, s = .001", exact, "<=", delta)


@register(
    "003-20",
    "Theorem B.8",
    "epsilon_0 = epsilon/(8 s sqrt(2 T ln 2/delta)), delta_0 = delta/(4 s T) make T iterations "
    "(epsilon, delta)-private, at any s",
    "true if exp(2 epsilon_0) <= 1 + 4 epsilon_0 and delta_0 <= 1, which bound s from below; T and "
    "the noise are fixed beforehand, so loss distributions account for the run, with some 30 times "
    "less noise, and 10 times less than by Theorem B.4 where that does not amplify",
    verdict="corrected",
    says="'Given privacy parameters ... in (0, 1) ..., subsampling parameter s'",
    hypotheses="all of epsilon, delta, epsilon_f, delta_f in (0, 1), s = .001, T = 1",
    changes="a lower bound on s in the theorem: exp(2 epsilon_0) <= 1 + 4 epsilon_0 suffices",
    adversary=small_share,
)
def small_fraction(effort: Effort) -> Iterator[Evidence]:
    """Let one record move gradient and Hessian; integrate exact deltas."""
    yield from of_adversary(small_share, effort)
    space = {
        "epsilon": Range(0.05, 0.999),
        "delta": Range(1e-9, 0.1, log=True),
        "s": Range(1e-3, 1.0, log=True),
    }
    found = search_max(effort, advanced_excess, space, cost=effort.cases(4, 40))
    yield used("delta / nominal, T = 1", found, "<=", 1.0)
    noises = theory.batch_noise(0.5, 1e-6, 200, 100_000, 1000)
    less = noises.advanced / noises.pld
    yield used("noise saved, epsilon = .5, T = 200, s = .01, factor", less, ">=", 25.0)
    whole = WithoutReplacement(7922), 79_222, [(390, 1.0)], Budget(0.2, 1e-6)
    by = {name: batch_multipliers(*whole, name)[0][0] for name in ("rdp", "tightest")}
    what = (
        "sigma of 390 answers on .1 n, n = 79,222, epsilon = .2, delta = 1e-6: by Theorem B.4 / by "
        f"loss distributions ({by['tightest']:.1f})"
    )
    yield used(what, by["rdp"] / by["tightest"], ">=", 10.0)


# --- 003-34: the noise of a batch for a budget ---

TARGET = 1.0
BUDGET = Budget(TARGET, 1e-6)


def spent(noise: float, T: int, m: int) -> float:
    """Return epsilon of T iterations as in Appendix B.1, sigma_g = sigma_H, m of RECORDS.

    A batch costs the least of Theorem B.4 and what it costs without amplification.
    """
    orders = np.arange(2.0, 257.0)
    cost = rdp_without_replacement(orders, RECORDS, m, lambda a: rdp_gaussian(a, noise))
    return float((2.0 * T * cost + math.log(1.0 / BUDGET.delta) / (orders - 1.0)).min())


@register(
    "003-34",
    "Appendix B.1, after Theorem B.5",
    "noise that minimizes max(epsilon_DP - epsilon_DP(epsilon-bar), 0), where epsilon_DP is the "
    "target and the other term is what (29) gives, meets the target",
    "the least noise whose epsilon is at most the target",
    verdict="open",
    says="'we can optimize the parameters to meet the privacy guarantee ... such that the "
    "following objective is minimized: max(eps_DP - eps_DP(eps(.)), 0), where eps_DP is the target "
    "privacy budget'",
    hypotheses="epsilon = 1, delta = 1e-6, s = .1, T = 10; Theorem B.4 and the conversion of the "
    "paper",
    changes="Which minimizer is meant: the largest spends the target exactly; all smaller noise, "
    "which spends more, minimizes the objective, too. With the terms of the difference in the "
    "other order every minimizer meets the target.",
)
def noise_for_a_budget(effort: Effort) -> Iterator[Evidence]:
    """Compute the largest minimizer, and exact deltas of one step at a small one."""
    m = 1000
    largest = optimize.brentq(lambda noise: spent(noise, 10, m) - TARGET, 1.0, 1e3, xtol=1e-12)
    most = spent(largest, 10, m) / TARGET
    yield reading("epsilon / target at the largest noise that minimizes it", most, "<=", 1 + 1e-9)
    small = 0.2
    exact = largest_delta(subsampled_gaussian(small, 1.0, m / RECORDS), TARGET)
    if max(TARGET - spent(small, 10, m), 0.0) == 0.0:
        what = f"delta of one step at the target, sigma = {small:g}, which minimizes it, too"
        yield reading(what, exact, "<=", BUDGET.delta)
    sampling = WithoutReplacement(m)
    noise = batch_multipliers(sampling, RECORDS, [(1, 1.0)], BUDGET, "tightest")[0][0]
    exact = largest_delta(subsampled_gaussian(noise, 1.0, m / RECORDS), TARGET)
    yield used("delta of one answer at the noise used / delta", exact / BUDGET.delta, "<=", 1.0)
    yield used("bound nearly attained", exact / BUDGET.delta, ">=", 0.9)


# --- 003-31: Definition B.1 ---


def for_definition_b1(effort: Effort) -> Iterator[Evidence]:
    """Violate it in both ways: by a large epsilon, where the sensitivity, 1, makes no difference.

    And, for epsilon in (0, 1) as in the source, by a small sensitivity, as that of a mean is.
    """
    delta, epsilon = 1e-5, 20.0
    noise = math.sqrt(2.0 * math.log(1.25 / delta)) / epsilon
    yield premise(
        "1.25 exp(-(sigma epsilon)^2/2)",
        1.25 * math.exp(-0.5 * (noise * epsilon) ** 2),
        "<=",
        delta * (1.0 + 1e-9),
    )
    limit = 0.5 + epsilon * noise**2  # the loss exceeds epsilon beyond it
    above = stats.norm.sf((limit - 1.0) / noise)
    exact = above - math.exp(epsilon + stats.norm.logsf(limit / noise))
    yield printed("delta of Gaussian noise, epsilon = 20, sensitivity 1", exact, "<=", delta)
    sensitivity, epsilon = 0.1, 0.5
    deviation = sensitivity * math.sqrt(2.0 * math.log(1.25 / delta)) * sensitivity / epsilon
    exact = gaussian_delta(deviation / sensitivity, epsilon)
    yield printed("the same, epsilon = .5, sensitivity .1", exact, "<=", delta)


@register(
    "003-31",
    "Definition B.1 (Dwork and Roth 2014, Theorem A.1)",
    "h(D) + N(0, Delta^2 sigma^2 I) is (epsilon, delta)-DP for sigma >= sqrt(2 ln(1.25/delta)) "
    "Delta/epsilon, at any epsilon",
    "for epsilon < 1, and with the sensitivity once, as in the source; the exact delta is used "
    "(bounds-8, bounds-9)",
    verdict="corrected",
    says="'sigma >= sqrt(2 ln(1.25/delta)) Delta_2(f)/eps. Then, the Gaussian Mechanism G_sigma h "
    "satisfies (eps, delta)-differential privacy.'",
    hypotheses="delta = 1e-5; sensitivity 1 and epsilon = 20, sensitivity .1 and epsilon = .5",
    changes="Both of 'for any epsilon in (0, 1)', the words of the source, and a variance of "
    "sigma^2 alone. Theorem B.8, which uses it, has its epsilons below 1 and the sensitivity once.",
    adversary=for_definition_b1,
)
def gaussian_definition(effort: Effort) -> Iterator[Evidence]:
    """Compute exact deltas, below epsilon = 1 and above."""
    yield from of_adversary(for_definition_b1, effort)

    def excess(epsilon: float, delta: float) -> float:
        return gaussian_delta(math.sqrt(2.0 * math.log(1.25 / delta)) / epsilon, epsilon) / delta

    space = {"epsilon": Range(1e-3, 1.0, log=True), "delta": Range(1e-12, 0.5, log=True)}
    found = search_max(effort, excess, space)
    yield used("delta / delta claimed, epsilon up to 1", found, "<=", 1.0)


# --- 003-25: Theorem B.6 ---


def amplified(noise: float, s: float, epsilon: float) -> float:
    """Return the exact delta of Gaussian noise on a batch at epsilon', over s delta."""
    base = gaussian_delta(noise, epsilon)
    if base < 1e-200:
        return 0.0
    laws = subsampled_gaussian(noise, 1.0, s)
    return largest_delta(laws, float(amplify(epsilon, s))) / (s * base)


@register(
    "003-25",
    "Theorem B.6",
    "sampling without replacement turns (epsilon, delta) into (ln(1 + s(e^epsilon - 1)), s delta), "
    "and ln(1 + s(e^epsilon - 1)) <= s(e^epsilon - 1)",
    verdict="holds",
)
def amplification(effort: Effort) -> Iterator[Evidence]:
    """Integrate exact deltas of Gaussian noise."""
    space = {
        "noise": Range(0.3, 10.0, log=True),
        "s": Range(1e-3, 1.0, log=True),
        "epsilon": Range(1e-2, 5.0, log=True),
    }
    found = search_max(effort, amplified, space, cost=effort.cases(10, 40))
    yield printed("delta / s delta", found, "<=", 1.0, tolerance=1e-6)
    yield printed("bound attained", found.max(), ">=", 0.999)
    grid = np.linspace(0.0, 10.0, 101)
    worst = max((amplify(grid, s) - s * np.expm1(grid)).max() for s in (1e-6, 0.1, 1.0))
    yield printed("ln(1 + s(e^epsilon - 1)) - s(e^epsilon - 1)", worst, "<=", 0.0)


# --- 003-26: Theorem B.7 ---


def composed(epsilon: float, count: int, at: float) -> float:
    """Return the exact delta at ``at`` of randomized responses, which dominate all releases."""
    yes = np.arange(count + 1.0)
    log_p = special.gammaln(count + 1.0) - special.gammaln(yes + 1.0)
    log_p = log_p - special.gammaln(count - yes + 1.0)
    log_p = log_p + yes * special.log_expit(epsilon) + (count - yes) * special.log_expit(-epsilon)
    loss = (2.0 * yes - count) * epsilon
    return float((np.exp(log_p) * -np.expm1(np.minimum(at - loss, 0.0))).sum())


def corollary(epsilon: float, count: int, delta: float, over_log: bool = True) -> float:
    """Return the exact delta over delta' of ``count`` releases at the corollary's epsilon_0."""
    log = math.log(1.0 / delta)
    root = math.sqrt(2.0 * count * log) if over_log else math.sqrt(2.0 * count) * log
    return composed(epsilon / (2.0 * root), count, epsilon) / delta


def for_the_corollary(effort: Effort) -> Iterator[Evidence]:
    """Read the root, whose end is lost in our text, in the paper's favor."""
    yield premise("epsilon", 0.9, "<=", 1.0)
    least = min(corollary(0.9, 1000, 0.999, over_log) for over_log in (True, False))
    yield printed("smaller exact delta / delta', delta' = .999, k = 1000", least, "<=", 1.0)


@register(
    "003-26",
    "Theorem B.7 (Theorem 3.20 and Corollary 3.21 of Dwork and Roth 2014)",
    "k (epsilon_0, delta_0)-DP releases are (epsilon, k delta_0 + delta')-DP for epsilon = "
    "sqrt(2 k ln 1/delta') epsilon_0 + k epsilon_0 (e^epsilon_0 - 1); epsilon_0 = "
    "epsilon/(2 sqrt(2 k ln 1/delta')) suffices for epsilon < 1",
    "the corollary for delta' up to .99, as far as searched (the paper uses delta/2); costs are "
    "those of an accountant that composes exactly",
    verdict="corrected",
    says="'As a corollary, for 0 < eps < 1, it suffices to choose', for every delta'",
    hypotheses="epsilon = .9, delta' = .999, 1,000 releases",
    changes="a bound on delta' in the corollary; the theorem, and its use in the paper, hold",
    adversary=for_the_corollary,
)
def advanced_composition(effort: Effort) -> Iterator[Evidence]:
    """Compose randomized response exactly; no release of the same loss exceeds it."""

    def theorem(epsilon: float, count: int, delta: float) -> float:
        root = math.sqrt(2.0 * count * math.log(1.0 / delta)) * epsilon
        return composed(epsilon, count, root + count * epsilon * math.expm1(epsilon)) / delta

    space = {
        "epsilon": Range(1e-3, 3.0, log=True),
        "count": Range(1, 2000, log=True, integer=True),
        "delta": Range(1e-9, 0.99, log=True),
    }
    found = search_max(effort, theorem, space)
    yield printed("exact delta / delta', delta_0 = 0", found, "<=", 1.0, tolerance=1e-9)

    at = corollary(0.9, 1000, 0.999)
    yield printed("the same by the corollary, epsilon = .9, delta' = .999, k = 1000", at, "<=", 1.0)
    space["epsilon"] = Range(1e-3, 1.0, log=True)
    found = search_max(effort, corollary, space)
    yield used("the same for delta' up to .99", found, "<=", 1.0, tolerance=1e-9)
    single = 0.5 / (2.0 * math.sqrt(2.0 * 500 * math.log(1e6)))
    exact = privacy.epsilon(Repeated(Pure(single), 500), 1e-6, REPLACE_ONE)
    at = composed(single, 500, exact) / 1e-6
    yield used("exact delta / delta at the accountant's epsilon, k = 500", at, "<=", 1.0)
    yield used("epsilon saved against the corollary, factor", 0.5 / exact, ">=", 2.0)
