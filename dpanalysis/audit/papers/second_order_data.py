"""Gao and Wright (2023): how many evaluations, how much data, how large and how noisy a batch."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from scipy import stats

from ... import theory
from ...methods.curvature_noise import batch_multipliers
from ...privacy import Budget, WithoutReplacement, epsilon, rdp_gaussian, rdp_without_replacement
from ...privacy.events import Gaussian, Sampled
from ...privacy.relations import REPLACE_ONE
from ...theory import SecondOrderTarget, Shares
from ..attack import Range
from ..exact import hockey_stick, renyi_divergence
from ..laws import above_threshold_distribution, subsampled_gaussian
from ..registry import Effort, Evidence, printed, register, used
from .second_order import largest, symmetric
from .second_order_printed import printed_batch, printed_search_slack, printed_target

RECORDS = 10_000


# --- 003-16: the noise of a search ---


def search_failure(tries: int, odds: float) -> float:
    """Return P(a query is accepted that is as far below 0 as the bound says) times the odds."""
    low = np.full(tries, -theory.search_slack(tries, 1.0 / odds))
    return odds * float(above_threshold_distribution(low, "laplace", 2.0, 4.0)[:-1].sum())


def queries(multiple: float, backtrack: float) -> int:
    """Return how many step sizes Algorithm 2 tries that are not below its fallback."""
    count, step = 0, multiple
    while step >= 1.0:
        count, step = count + 1, step * backtrack
    return count


@register(
    "003-16",
    "Lemma 7, (16), (18)",
    "a search of i_max = floor(log_beta b) + 1 queries, 1/lambda-private, accepts none below "
    "-8 lambda Delta (ln i_max + ln T/xi), with probability 1 - xi/T",
    "-4 lambda Delta ln(2 i T/(3 xi)) and i = floor(log_{1/beta} b) + 1",
    verdict="corrected",
)
def search_slack(effort: Effort) -> Iterator[Evidence]:
    """Count the queries; exact laws of the search."""
    claimed = math.floor(math.log(10.0) / math.log(0.5)) + 1
    tried = queries(10.0, 0.5)
    yield printed("i_max at b = 10, beta = .5; queries: 4", claimed, ">=", tried)
    space = {"tries": Range(1, 60, log=True, integer=True), "odds": Range(1.01, 1e6, log=True)}
    found, cases = largest(
        effort, search_failure, space, cost=8, guesses=[{"tries": 1, "odds": 1e4}]
    )
    yield used("P(accepted) T/xi", found, "<=", 1.0, tolerance=1e-9, cases=cases)
    yield used("that is, attained", found, ">=", 0.99)
    slack = [search(4, 1e-4) for search in (printed_search_slack, theory.search_slack)]
    yield used("data saved, four queries, xi/T = 1e-4, factor", slack[0] / slack[1], ">=", 2.0)


# --- 003-17: how many evaluations ---


def evaluations(
    start: float,
    height: float,
    wave: float,
    curvature: float,
    shares: Shares,
    eps: tuple[float, float],
    rng: Any,
) -> tuple[int, float]:
    """Return how often Algorithm 1 evaluates, and (f(w0) - f_lb)/MIN_DEC.

    On height (1 - cos(wave w)) + curvature w^2/2, whose minimum is 0, with the largest noise
    allowed, of random sign.
    """
    G, M = height * wave**2 + curvature, max(height * wave**3, 1e-9)
    c, c1, c2, _, _ = shares
    long, wide = theory.tolerated_noise(*eps, M, c, c1, c2)
    gap = height * (1.0 - math.cos(wave * start)) + 0.5 * curvature * start**2
    w, count = start, 0
    while True:
        count += 1
        signs = rng.choice([-1.0, 1.0], size=3)
        g = height * wave * math.sin(wave * w) + curvature * w + signs[0] * long
        low = height * wave**2 * math.cos(wave * w) + curvature + signs[1] * wide
        if abs(g) > eps[0]:
            w -= g / G
        elif low < -eps[1]:
            w += 2.0 * low / M * (math.copysign(1.0, g) if g else signs[2])
        else:
            return count, gap / theory.min_decrease_short(*eps, G, M, c, c1, c2)


@register(
    "003-17",
    "(6), Corollary 3",
    "the run ends within T = (f(w0) - f_lb)/MIN_DEC iterations",
    "floor(T) + 1: the last one finds a point and makes no step",
    verdict="corrected",
)
def last_evaluation(effort: Effort) -> Iterator[Evidence]:
    """Start a parabola just above eps_g; run on waves with the largest noise allowed."""
    random = effort.random()
    close = Shares(0.1, 1e-3, 0.1)
    count, T = evaluations(0.101, 0.0, 1.0, 1.0, close, (0.1, 1.0), random)
    yield printed(f"evaluations, w^2/2 from w = .101, eps_g = .1, T = {T:.3f}", count, "<=", T)
    quotients = [count / (math.floor(T) + 1)]
    cases = effort.cases(400, 4000)
    for _ in range(cases):
        c, c2, _ = random.dirichlet(np.ones(3)) * 0.333
        shares = Shares(c, 0.49 * random.random(), c2)
        height, wave = np.exp(random.uniform(-1.0, 1.0, size=2))
        curvature = height * wave**2 * random.uniform(0.0, 0.5) * (random.random() < 0.5)
        start = random.uniform(-1.0, 1.0) * (math.pi if random.random() < 0.5 else 0.1) / wave
        eps = height * np.array([wave, wave**2]) * np.exp(random.uniform(-3.0, 0.0, size=2))
        tolerances = float(eps[0]), float(eps[1])
        count, T = evaluations(start, height, wave, curvature, shares, tolerances, random)
        quotients.append(count / theory.iteration_bound(T, 1.0))
    yield used("evaluations / (floor(T) + 1)", max(quotients), "<=", 1.0, cases=cases + 1)
    yield used("that is, attained", max(quotients), ">=", 1.0)


# --- 003-18: how large a batch ---


def deviations(m: int, log: float, B_g: float, B_H: float) -> tuple[float, float]:
    """Return the bounds of Lemmas B.1 and B.2 for a batch of m; log = ln(2 d T/eta)."""
    gradient = 4.0 * math.sqrt(2.0 * (log + 0.25) / m) * B_g
    return gradient, 4.0 * math.sqrt(log / m) * B_H


def beyond(tolerance: float, eta: float, share: float, n: float) -> float:
    """Return P(a batch's mean is off by more than half the tolerance)/eta, exactly.

    One number a record, -1 or 1, and the share of 1 among all; gradients and Hessians, T = 1.
    """
    m = theory.second_order_batch(1.0, 1.0, 1.0, 1.0, 1.0, 1, 1, eta, tolerance, tolerance, 9.0)
    total = math.ceil(n * m)
    ones = round(share * total)
    far = 0.25 * tolerance * m  # in ones
    middle = m * ones / total
    law = stats.hypergeom(total, ones, m)
    return float(law.sf(math.floor(middle + far)) + law.cdf(math.ceil(middle - far) - 1)) / eta


@register(
    "003-18",
    "(24), (25)",
    "with \\|S\\| >= max(64 B_g^2 (ln(2dT/eta) + 1/4) max(c1^-2 eps_g^-2, M^2 c2^-2 eps_H^-4), "
    "32 B_H^2 ln(2dT/eta) c^-2 eps_H^-2) the bounds of (23) are at most half of those of (9)",
    "128 and 64; the bounds, of Lemmas B.1 and B.2, are far from tight",
    verdict="corrected",
)
def batch_size(effort: Effort) -> Iterator[Evidence]:
    """Put (24) into (23); exact hypergeometric tails."""
    for size, about in ((printed_batch, printed), (theory.second_order_batch, used)):
        worst = 0.0
        for c, c1 in ((0.1, 0.01), (0.01, 0.1)):  # the gradient decides, the Hessian does
            m = size(0.1, 0.3, 0.1, 1.0, 0.25, 54, 200, 0.05, c, c1, 0.1)
            allowed = theory.tolerated_noise(0.1, 0.3, 0.1, c, c1, 0.1)
            bounds = deviations(m, math.log(2 * 54 * 200 / 0.05), 1.0, 0.25)
            worst = max(worst, *(2.0 * a / b for a, b in zip(bounds, allowed)))
        yield about("largest bound of (23) / half of (9)", worst, "<=", 1.0)
    space = {
        "tolerance": Range(0.05, 8.0, log=True),
        "eta": Range(1e-6, 0.9, log=True),
        "share": Range(0.0, 1.0),
        "n": Range(1.0, 100.0, log=True),
    }
    found, cases = largest(effort, beyond, space, cost=effort.cases(1, 4))
    yield used("P(a batch is off by more) / eta, d = 1", found, "<=", 1.0, cases=cases)


# --- 003-19, 003-20: the noise of a batch ---


def pair_quotient(order: int, noise: float, m: int, together: bool) -> float:
    """Return the exact cost of two releases of one batch / the bound; m of RECORDS.

    The record moves both by their sensitivity; the bound is Theorem B.4, of both together or
    of one, twice.
    """
    p, q = subsampled_gaussian(noise, math.sqrt(2.0), m / RECORDS)
    exact = max(renyi_divergence(p, q, order), renyi_divergence(q, p, order))
    parts = 1 if together else 2
    single = noise * math.sqrt(0.5 * parts)
    bound = rdp_without_replacement(order, RECORDS, m, lambda a: rdp_gaussian(a, single))
    return exact / (parts * float(bound))


@register(
    "003-19",
    "Theorem B.5, (29)",
    "gradient and Hessian of a batch cost epsilon'_N(alpha; sigma_g, s) + "
    "epsilon'_N(alpha; sigma_H, s)",
    "one batch is amplified once: epsilon'_N at alpha/sigma_g^2 + alpha/sigma_H^2, or exactly, by "
    "loss distributions; or each has a batch of its own",
    verdict="corrected",
)
def shared_batch(effort: Effort) -> Iterator[Evidence]:
    """One record moves both: exact divergences by quadrature."""
    apart = pair_quotient(2, 0.5, 100, together=False)
    yield printed("exact / (29), alpha = 2, sigma = .5, s = .01", apart, "<=", 1.0)
    space = {
        "order": Range(2, 64, log=True, integer=True),
        "noise": Range(0.4, 20.0, log=True),
        "m": Range(1, int(0.9 * RECORDS), log=True, integer=True),
    }

    def both(**at: Any) -> float:
        return pair_quotient(together=True, **at)

    found, cases = largest(effort, both, space, cost=effort.cases(16, 60))
    yield used("exact / amplified once", found, "<=", 1.0, tolerance=1e-7, cases=cases)
    delta = hockey_stick(*subsampled_gaussian(0.5, math.sqrt(2.0), 0.01), 1.0)
    pair = Sampled(WithoutReplacement(100), [Gaussian(0.5, 1.0)] * 2, RECORDS)
    by_losses = epsilon(pair, delta, REPLACE_ONE)
    yield used("loss distribution / exact epsilon = 1, sigma = .5, s = .01", by_losses, ">=", 1.0)
    yield used("that is, attained", by_losses, "<=", 1.0001)


def advanced_step(epsilon: float, delta: float, T: int, s: float) -> float:
    """Return epsilon_0 of Theorem B.8, nothing spent on f(w0)."""
    return epsilon / (8.0 * s * math.sqrt(2.0 * T * math.log(2.0 / delta)))


def advanced_noise(epsilon: float, delta: float, T: int, s: float) -> float:
    """Return sigma of Theorem B.8."""
    return math.sqrt(2.0 * math.log(5.0 * s * T / delta)) / advanced_step(epsilon, delta, T, s)


def advanced_excess(epsilon: float, delta: float, s: float) -> float:
    """Return the exact delta of one iteration / the nominal one; 0 where the proof fails."""
    step = advanced_step(epsilon, delta, 1, s)
    if math.expm1(2.0 * min(step, 9.0)) > 4.0 * step or delta > 4.0 * s:
        return 0.0
    p, q = subsampled_gaussian(advanced_noise(epsilon, delta, 1, s), math.sqrt(2.0), s)
    return max(hockey_stick(p, q, epsilon), hockey_stick(q, p, epsilon)) / delta


@register(
    "003-20",
    "Theorem B.8",
    "epsilon_0 = epsilon/(8 s sqrt(2 T ln 2/delta)), delta_0 = delta/(4 s T) make T iterations "
    "(epsilon, delta)-private, at any s",
    "where exp(2 epsilon_0) <= 1 + 4 epsilon_0 and delta_0 <= 1, which bound s from below; T and "
    "the noise are fixed beforehand, so loss distributions account for the run: some 30 times less "
    "noise, and 10 times less than by Theorem B.4 where that does not amplify",
    verdict="corrected",
)
def small_fraction(effort: Effort) -> Iterator[Evidence]:
    """One record moves gradient and Hessian; exact deltas by quadrature."""
    pair = subsampled_gaussian(advanced_noise(0.9, 1e-5, 1, 1e-3), math.sqrt(2.0), 1e-3)
    what = "delta at epsilon = .9, s = .001, T = 1, nominal 1e-5"
    yield printed(what, hockey_stick(*pair, 0.9), "<=", 1e-5)
    space = {
        "epsilon": Range(0.05, 0.999),
        "delta": Range(1e-9, 0.1, log=True),
        "s": Range(1e-3, 1.0, log=True),
    }
    found, cases = largest(effort, advanced_excess, space, cost=effort.cases(4, 40))
    yield used("delta / nominal, T = 1", found, "<=", 1.0, cases=cases)
    noises = theory.batch_noise(0.5, 1e-6, 200, 100_000, 1000)
    less = noises.advanced / noises.pld
    yield used("noise saved, epsilon = .5, T = 200, s = .01, factor", less, ">=", 25.0)
    whole = WithoutReplacement(7922), 79_222, [(390, 1.0)], Budget(0.2, 1e-6)
    by = {name: batch_multipliers(*whole, name)[0][0] for name in ("rdp", "tightest")}
    yield used(
        "sigma of 390 answers on .1 n, n = 79,222, epsilon = .2, delta = 1e-6: by Theorem B.4 / by "
        f"loss distributions ({by['tightest']:.1f})",
        by["rdp"] / by["tightest"],
        ">=",
        10.0,
    )


# --- 003-21: how much data ---


def exponent(target: SecondOrderTarget, low: dict[str, Any], high: dict[str, Any]) -> float:
    """Return the change of ln n_min between two targets, for the best shares."""
    sizes = []
    for each in (low, high):
        at = replace(target, **each)
        sizes.append(theory.sample_complexity(at, theory.best_shares(at)).n)
    return math.log(sizes[1] / sizes[0])


def bad_runs(target: SecondOrderTarget, shares: Shares, runs: int, rng: Any) -> int:
    """Return how many of the runs have noise beyond its tolerance, with n_min records."""
    n, T, *_ = theory.sample_complexity(target, shares)
    _, M, B_g, B_H = target.constants
    long, wide = theory.tolerated_noise(target.eps_g, target.eps_H, M, *shares[:3])
    sigma, d, bad = math.sqrt(T / target.rho), target.d, 0
    for _ in range(runs):
        noise = rng.normal(size=(T, d)) * sigma * 2.0 * B_g / n
        entries = rng.normal(size=(T, d * (d + 1) // 2))
        E = np.array([symmetric(row, d) for row in entries])
        E *= np.where(np.eye(d, dtype=bool), 1.0, math.sqrt(0.5))
        E *= sigma * math.sqrt(2.0) * B_H / n
        lengths, widths = np.linalg.norm(noise, axis=1), np.linalg.norm(E, 2, axis=(1, 2))
        bad += bool(lengths.max() > long or widths.max() > wide)
    return bad


@register(
    "003-21",
    "Theorem 4, (12)",
    "n_min grows like d rho^-1/2 alpha^-2, eps_g = alpha, eps_H = sqrt(M alpha), with constants "
    "that nobody knows (Lemma D.7)",
    "like d^1/2 for linear predictors (003-1), with all constants: `theory.sample_complexity`",
    verdict="sharpened",
)
def data_needed(effort: Effort) -> Iterator[Evidence]:
    """Slopes far out; noise of whole runs simulated at n_min."""
    constants = theory.second_order_constants(1.0, 1e-3)
    target = SecondOrderTarget(0.03, math.sqrt(0.03 * constants.M), constants, 54, 0.01)
    wide = [{"d": 10**6}, {"d": 10**8}]
    fine = [{"eps_g": a, "eps_H": math.sqrt(constants.M * a)} for a in (1e-6, 1e-8)]
    theirs = printed_target(target)
    yield printed("exponent of d", exponent(theirs, *wide) / math.log(100.0), "<=", 1.0)
    slope = exponent(theirs, *fine) / math.log(100.0)
    yield printed("exponent of 1/alpha, logarithms left in", slope, "<=", 2.05)
    poor = [{"rho": 1e-6}, {"rho": 1e-8}]
    slope = exponent(theirs, *poor) / math.log(100.0)
    yield printed("exponent of 1/rho", slope, "<=", 0.5, tolerance=1e-6)
    yield used("exponent of d", exponent(target, *wide) / math.log(100.0), "<=", 0.5)
    slope = exponent(target, *poor) / math.log(100.0)
    yield used("exponent of 1/rho", slope, "<=", 0.5, tolerance=1e-6)
    random = effort.random()
    runs = effort.cases(300, 3000)
    near = SecondOrderTarget(0.5, 0.8, constants, 6, 0.1, failure=0.3)
    bad = bad_runs(near, Shares(0.25, 0.2, 0.05), runs, random)
    upper = float(stats.beta.ppf(1.0 - 1e-6, bad + 1, runs - bad))
    what = "P(noise beyond its tolerance, n = n_min) / failure, upper 1e-6 confidence limit"
    yield used(what, upper / near.failure, "<=", 1.0, cases=runs)
    most = replace(target, eps_g=0.06, eps_H=0.245)
    sizes = [
        theory.sample_complexity(asked, Shares(0.1, 0.25, 0.1)).n
        for asked in (printed_target(most), most)
    ]
    yield used("data saved, d = 54, c = c2 = .1, c1 = .25, factor", sizes[0] / sizes[1], ">=", 2.0)
