"""Gao and Wright (2023): Theorems 8, B.3, B.6, B.7 and B.9."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from scipy import special, stats

from ... import privacy, theory
from ...privacy.events import Pure, Repeated
from ...privacy.pure import amplify
from ...privacy.relations import REPLACE_ONE
from ...theory import SecondOrderTarget, Shares
from ..attack import Range
from ..exact import hockey_stick
from ..laws import subsampled_gaussian
from ..registry import Effort, Evidence, printed, register, used
from .second_order import largest
from .second_order_data import advanced_noise
from .second_order_printed import printed_target

CONSTANTS = theory.second_order_constants(1.0, 1e-3)
SHORT, SEARCH = Shares(0.1, 0.25, 0.1), Shares(0.1, 0.25, 0.1, 0.35, 0.2)


# --- 003-22: Theorem 8 ---


def exponent(target: SecondOrderTarget, shares: Shares, low: Any, high: Any) -> float:
    """Return the change of ln n_min between two targets."""
    sizes = [theory.sample_complexity(replace(target, **at), shares).n for at in (low, high)]
    return math.log(sizes[1] / sizes[0])


def fine(alpha: float) -> dict[str, float]:
    """Return the tolerances alpha and sqrt(M alpha)."""
    return {"eps_g": alpha, "eps_H": math.sqrt(CONSTANTS.M * alpha)}


@register(
    "003-22",
    "Theorem 8, (18), (19)",
    "with a line search n_min grows like d rho^-1/2 max(eps_g^-2, eps_g^-1 eps_H^-2, eps_H^-7/2), "
    "logarithms hidden",
    "the same with d^1/2 for linear predictors (003-1), all constants, and less slack of the "
    "search (003-16)",
    verdict="sharpened",
)
def searching_data(effort: Effort) -> Iterator[Evidence]:
    """Slopes far out, for targets with the paper's sensitivities and with ours."""
    ours = SecondOrderTarget(0.03, fine(0.03)["eps_H"], CONSTANTS, 54, 0.01)
    theirs = printed_target(ours)
    tiny = math.log(100.0)
    slope = exponent(theirs, SEARCH, fine(1e-12), fine(1e-14)) / tiny
    yield printed("exponent of 1/alpha, logarithms left in", slope, "<=", 2.05)
    slope = exponent(theirs, SEARCH, {"rho": 1e-6}, {"rho": 1e-8}) / tiny
    yield printed("exponent of 1/rho", slope, "<=", 0.5, tolerance=1e-6)
    slope = exponent(theirs, SEARCH, {"d": 10**6}, {"d": 10**8}) / tiny
    yield printed("exponent of d", slope, "<=", 1.0)
    coarse, sharp = {"eps_g": 1.0, "eps_H": 1e-12}, {"eps_g": 1.0, "eps_H": 1e-14}
    slope = exponent(theirs, SEARCH, coarse, sharp) / tiny
    yield printed("exponent of 1/eps_H, eps_g = 1", slope, "<=", 3.55)
    slope = exponent(ours, SEARCH, {"d": 10**6}, {"d": 10**8}) / tiny
    yield used("exponent of d", slope, "<=", 0.5, tolerance=1e-6)
    near: Any = {"eps_g": 0.06, "eps_H": 0.245}
    sizes = [theory.sample_complexity(replace(each, **near), SEARCH).n for each in (theirs, ours)]
    yield used("data saved, d = 54, factor", sizes[0] / sizes[1], ">=", 2.0)


# --- 003-23, 003-24: Theorems B.3 and B.9 ---


def printed_batch_data(eps_g: float, eps_H: float, s: float, sigma: float, T: int, d: int) -> float:
    """Return (25) without its Hessian's terms; zeta = eta = .05."""
    tolerance = min(SHORT.c1 * eps_g, SHORT.c2 / CONSTANTS.M * eps_H**2)
    noise = 2.0 * math.sqrt(2.0 * d * math.log(T / 0.05)) * sigma / tolerance
    log = math.log(2.0 * d * T / 0.05) + 0.25
    return max(noise, 64.0 * log / (s * tolerance**2))


def used_batch_data(eps_g: float, eps_H: float, s: float, sigma: float, T: int, d: int) -> float:
    """Return the number of records for the same, s^-1 in every term, and 128 (errata 003-18)."""
    tolerance = min(SHORT.c1 * eps_g, SHORT.c2 / CONSTANTS.M * eps_H**2)
    noise = 2.0 * theory.gradient_noise_norm(d, 2.0 * sigma, 0.05 / T) / tolerance
    m = theory.second_order_batch(
        eps_g, eps_H, CONSTANTS.M, 1.0, CONSTANTS.B_H, d, T, 0.05, SHORT.c, SHORT.c1, SHORT.c2
    )
    return max(noise, float(m)) / s


@register(
    "003-23",
    "Theorem B.3, (25), (26)",
    "with batches of s n, n_min is max(2 sqrt(2d) B_g sigma_g sqrt(ln T/zeta)/min(c1 eps_g, "
    "c2 eps_H^2/M), ..., s^-1 64 B_g^2 ...), of order max(eps_g^-2, eps_g^-1 eps_H^-2, eps_H^-7/2) "
    "(roots lost in our text)",
    "noise of a batch has the sensitivity 2 B_g/(s n), so s^-1 stands in every term; and the "
    "batch itself takes eps_H^-4, as in Theorem B.9",
    verdict="corrected",
)
def batch_data(effort: Effort) -> Iterator[Evidence]:
    """Put n_min into the norm of the noise; slopes far out."""
    at: Any = {"eps_g": 0.06, "eps_H": 0.245, "s": 0.01, "sigma": 1e4, "T": 200, "d": 54}
    for size, about in ((printed_batch_data, printed), (used_batch_data, used)):
        n = size(**at)
        tolerance = min(SHORT.c1 * 0.06, SHORT.c2 / CONSTANTS.M * 0.245**2)
        # The norm that a share zeta/T of all noise vectors exceeds, exactly.
        far = math.sqrt(stats.chi2.isf(0.05 / 200, 54)) * 1e4 * 2.0 / (0.01 * n)
        yield about(
            "norm of the noise at n_min / half of its tolerance, s = .01",
            far,
            "<=",
            0.5 * tolerance,
        )
        small = {**at, "eps_g": 1.0, "sigma": 1.0, "eps_H": 1e-4}
        slope = math.log(size(**{**small, "eps_H": 1e-6}) / size(**small)) / math.log(100.0)
        most = 3.5 if about is printed else 4.0
        yield about("exponent of 1/eps_H", slope, "<=", most, tolerance=1e-6)


@register(
    "003-24",
    "Theorem B.9, (33)",
    "with the noise of Theorem B.8, n_min of batches is of order d sqrt(ln 1/delta)/epsilon "
    "max(eps_g^-2, eps_g^-1 eps_H^-2, eps_H^-4): alpha^-2, as with full batches, whatever s",
    "the same, of order sqrt d for the gradients' noise; the noise by loss distributions is less "
    "(003-20)",
    verdict="sharpened",
)
def batch_orders(effort: Effort) -> Iterator[Evidence]:
    """Slopes of n_min with s^-1 in every term, far out."""

    def size(alpha: float, epsilon: float = 0.5, d: int = 54, s: float = 0.1) -> float:
        eps_g, eps_H = fine(alpha).values()
        G, M, _, _ = CONSTANTS
        T = math.ceil(math.log(2.0) / theory.min_decrease_short(eps_g, eps_H, G, M, *SHORT[:3]))
        sigma = advanced_noise(epsilon, 1e-6, T, s)
        return used_batch_data(eps_g, eps_H, s, sigma, T, d)

    slope = math.log(size(1e-8) / size(1e-6)) / math.log(100.0)
    yield printed("exponent of 1/alpha, logarithms left in", slope, "<=", 2.1)
    slope = math.log(size(1e-6, 5e-7) / size(1e-6, 5e-5)) / math.log(100.0)
    yield printed("exponent of 1/epsilon", slope, "<=", 1.0, tolerance=1e-6)
    spread = size(1e-6, 1e-4, s=1e-3) / size(1e-6, 1e-4, s=0.5)
    yield printed(
        "n_min at s = .001 / at s = .5, epsilon = 1e-4, logarithms left in", spread, "<=", 2.0
    )
    slope = math.log(size(1e-6, 1e-5, 10**8) / size(1e-6, 1e-5, 10**6)) / math.log(100.0)
    yield used("exponent of d", slope, "<=", 0.51)


# --- 003-25: Theorem B.6 ---


def amplified(noise: float, s: float, epsilon: float) -> float:
    """Return the exact delta of Gaussian noise on a batch, at epsilon', / s delta."""
    base = privacy.gaussian_delta(noise, epsilon)
    if base < 1e-200:
        return 0.0
    p, q = subsampled_gaussian(noise, 1.0, s)
    at = float(amplify(epsilon, s))
    return max(hockey_stick(p, q, at), hockey_stick(q, p, at)) / (s * base)


@register(
    "003-25",
    "Theorem B.6",
    "sampling without replacement makes (epsilon, delta) into (ln(1 + s(e^epsilon - 1)), s delta), "
    "and ln(1 + s(e^epsilon - 1)) <= s(e^epsilon - 1)",
    verdict="holds",
)
def amplification(effort: Effort) -> Iterator[Evidence]:
    """Exact deltas of Gaussian noise, by quadrature."""
    space = {
        "noise": Range(0.3, 10.0, log=True),
        "s": Range(1e-3, 1.0, log=True),
        "epsilon": Range(1e-2, 5.0, log=True),
    }
    found, cases = largest(effort, amplified, space, cost=effort.cases(10, 40))
    yield printed("delta / s delta", found, "<=", 1.0, tolerance=1e-6, cases=cases)
    yield printed("that is, attained", found, ">=", 0.999)
    grid = np.linspace(0.0, 10.0, 101)
    worst = max(float((amplify(grid, s) - s * np.expm1(grid)).max()) for s in (1e-6, 0.1, 1.0))
    yield printed("ln(1 + s(e^epsilon - 1)) - s(e^epsilon - 1)", worst, "<=", 0.0)


# --- 003-26: Theorem B.7 ---


def composed(epsilon: float, count: int, at: float) -> float:
    """Return the exact delta at ``at`` of randomised responses, which dominate all such."""
    yes = np.arange(count + 1.0)
    log_p = special.gammaln(count + 1.0) - special.gammaln(yes + 1.0)
    log_p = log_p - special.gammaln(count - yes + 1.0)
    log_p = log_p + yes * special.log_expit(epsilon) + (count - yes) * special.log_expit(-epsilon)
    loss = (2.0 * yes - count) * epsilon
    return float((np.exp(log_p) * -np.expm1(np.minimum(at - loss, 0.0))).sum())


@register(
    "003-26",
    "Theorem B.7",
    "k (epsilon_0, delta_0)-DP releases are (epsilon, k delta_0 + delta')-DP for epsilon = "
    "sqrt(2 k ln 1/delta') epsilon_0 + k epsilon_0 (e^epsilon_0 - 1); epsilon_0 = "
    "epsilon/(2 sqrt(2 k ln 1/delta')) suffices for epsilon < 1",
    "an accountant that composes exactly",
    verdict="sharpened",
)
def advanced_composition(effort: Effort) -> Iterator[Evidence]:
    """Exact composition of randomised response, which no release of that loss exceeds."""

    def theorem(epsilon: float, count: int, delta: float) -> float:
        root = math.sqrt(2.0 * count * math.log(1.0 / delta)) * epsilon
        return composed(epsilon, count, root + count * epsilon * math.expm1(epsilon)) / delta

    space = {
        "epsilon": Range(1e-3, 3.0, log=True),
        "count": Range(1, 2000, log=True, integer=True),
        "delta": Range(1e-9, 0.99, log=True),
    }
    found, cases = largest(effort, theorem, space)
    yield printed(
        "exact delta / delta', delta_0 = 0", found, "<=", 1.0, tolerance=1e-9, cases=cases
    )

    def corollary(epsilon: float, count: int, delta: float) -> float:
        single = epsilon / (2.0 * math.sqrt(2.0 * count * math.log(1.0 / delta)))
        return composed(single, count, epsilon) / delta

    space["epsilon"] = Range(1e-3, 1.0, log=True)
    found, cases = largest(effort, corollary, space)
    yield printed("the same by the corollary", found, "<=", 1.0, tolerance=1e-9, cases=cases)
    single = 0.5 / (2.0 * math.sqrt(2.0 * 500 * math.log(1e6)))
    exact = privacy.epsilon(Repeated(Pure(single), 500), 1e-6, REPLACE_ONE)
    at = composed(single, 500, exact) / 1e-6
    yield used("exact delta / delta at the accountant's epsilon, k = 500", at, "<=", 1.0)
    yield used("epsilon saved against the corollary, factor", 0.5 / exact, ">=", 2.0)
