"""Kuru et al. (2022): the smoothed form, Lemma B.1, no certificate for DP-HB, and section 5's ends.

The runs are small: n records with epsilon = 1e5/n have the noise of the paper's full batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np

from ... import datasets, methods, theory
from ...errors import CertificateNotFound
from ...experiments import minimize
from ...losses import Logistic
from ...privacy import Budget
from ...problems import ERM
from ...regularizers import L2
from ..registry import Effort, Evidence, printed, register, used
from ._smooth import Array, Step, log_uniform, random_smooth

# The paper's problem: mu = 2 lambda, L of its data, alpha = c/L.
MU, SMOOTHNESS, CONSTANTS = 0.02, 5.1, (1.0, 0.1)


# --- 001-24: the smoothed form ---


@register(
    "001-24",
    "(3.6), (3.7)",
    "x_{t+1} = x_t - alpha/(1 - beta) u_t, u_t = beta u_{t-1} + (1 - beta) (gradient + noise), "
    "u_0 = (1 - beta) (the first one), is the heavy ball method from x_{-1} = x_0",
    verdict="holds",
)
def smoothed_form(effort: Effort) -> Iterator[Evidence]:
    """Both recursions, from the same gradients."""
    random, T = effort.random(), 60
    worst, weights, cases = 0.0, 0.0, effort.cases(100, 2000)
    for _ in range(cases):
        alpha, beta = log_uniform(random, 1e-3, 10.0), random.uniform(0.0, 0.999)
        gradients = random.standard_normal((T, 2)) * log_uniform(random, 1e-3, 1e3)
        x = before = smoothed = random.standard_normal(2)
        u = np.zeros(2)
        for g in gradients:
            x, before = x - alpha * g + beta * (x - before), x
            u = beta * u + (1.0 - beta) * g
            smoothed = smoothed - alpha / (1.0 - beta) * u
            worst = max(worst, float(np.abs(x - smoothed).max() / np.abs(x).max()))
        kept = (1.0 - beta) * beta ** np.arange(T)
        weights = max(weights, abs(kept.sum() - (1.0 - beta**T)))
    yield printed("largest difference / iterate", worst, "<=", 1e-9, cases=cases * T)
    yield printed("|sum of the weights - (1 - beta^t)|: no average at first", weights, "<=", 1e-12)


# --- 001-25: Lemma B.1 ---


def lemma_forms(mu: float, L: float, step: Step) -> tuple[Array, Array]:
    """Return X_1 and X_2 of Proposition 3.4."""
    a, b = step.step_size, step.momentum
    d = np.array([[-L * b * b, (L * a - 1.0) * b], [(L * a - 1.0) * b, a * (2.0 - L * a)]])
    moves = np.array([[1.0, -1.0, 0.0], [0.0, 0.0, 1.0]])
    convex = np.array([[mu, 0.0, -1.0], [0.0, 0.0, 0.0], [-1.0, 0.0, 0.0]])
    return 0.5 * moves.T @ d @ moves, 0.5 * convex


@register(
    "001-25",
    "Lemma B.1",
    "E of the form X_1 + (1 - rho^2) X_2 of (x_t - x*, x_{t-1} - x*, grad F) is at most "
    "rho^2 E[F(x_t) - F*] - E[F(x_{t+1}) - F*] + (L alpha^2/2) E\\|\\|w_t\\|\\|^2",
    verdict="holds",
)
def central_lemma(effort: Effort) -> Iterator[Evidence]:
    """One step with a two-valued noise, on functions of the class, from any state."""
    random, cases = effort.random(), effort.cases(400, 8000)
    worst, attained = -np.inf, np.inf
    for case in range(cases):
        equal = case % 4 == 0  # mu = L: a parabola
        mu, L, d = (1.0 if equal else log_uniform(random, 1e-3, 0.9)), 1.0, 2
        function = random_smooth(random, mu, L, d)
        step = Step(log_uniform(random, 1e-2, 3.0), random.uniform(0.0, 1.0), 0.0)
        rho = random.uniform(0.0, 1.0)
        now, before = random.standard_normal((2, d)) * log_uniform(random, 0.1, 10.0)
        noise = random.standard_normal(d) * log_uniform(random, 1e-2, 10.0)
        g = function.gradient(now)
        state = np.stack([now, before, g])
        first, second = lemma_forms(mu, L, step)
        form = float(np.einsum("ij,id,jd->", first + (1.0 - rho**2) * second, state, state))
        after = now + step.momentum * (now - before) - step.step_size * g
        kick = step.step_size * noise
        after_mean = 0.5 * float(function.value(after + kick) + function.value(after - kick))
        right = rho**2 * float(function.value(now)) - after_mean + 0.5 * L * float(kick @ kick)
        size = abs(form) + abs(right) + after_mean
        worst = max(worst, (form - right) / size)
        if equal:
            attained = min(attained, (form - right) / size)
    yield printed("largest left - right, relative", worst, "<=", 0.0, tolerance=1e-12, cases=cases)
    yield printed("attained at mu = L: the smallest", attained, ">=", -1e-12, cases=cases // 4)


# --- 001-26: no certificate for the algorithm of section 5 ---


def largest_certified(step_size: float, digits: int = 10) -> float:
    """Return the largest momentum for which a verified certificate is found, by bisection."""
    low, high = 0.0, 1.0
    for _ in range(digits):
        middle = 0.5 * (low + high)
        try:
            theory.heavy_ball_certificate(step_size, middle, MU, SMOOTHNESS)
            low = middle
        except CertificateNotFound:
            high = middle
    return low


@register(
    "001-26",
    "Prop. 3.4 for DP-HB, section 5",
    "Proposition 3.4 gives error bounds for any alpha and beta, so for DP-HB with "
    "beta = (1 - sqrt(alpha mu))/(1 + sqrt(alpha mu))",
    "no certificate is found for it, with c = 1 or .1; the largest momenta that have one are .50 "
    "and .95. On quadratics it converges, with the rate (3.18)",
    verdict="corrected",
)
def nothing_for_the_heavy_ball(effort: Effort) -> Iterator[Evidence]:
    """Bisect for the largest momentum with a certificate."""
    for c, certified in zip(CONSTANTS, (0.502, 0.950), strict=True):
        beta = float(theory.nesterov_momentum(c / SMOOTHNESS, MU))
        found = largest_certified(c / SMOOTHNESS)
        yield printed(f"largest certified momentum, c = {c:g}; DP-HB", found, ">=", beta)
        yield used(f"the same, c = {c:g}", found, "==", certified, tolerance=2e-3)
        rate = float(theory.heavy_ball_rate(c / SMOOTHNESS, beta, MU, SMOOTHNESS))
        yield used(f"rate of DP-HB on quadratics, c = {c:g}", rate, "<=", 0.999)


# --- 001-27 to 001-29: the conclusions of section 5 ---

ALGORITHMS = ("GD", "HB", "NAG", "MASG", "NAG-opt", "MASG-opt")


@lru_cache(maxsize=2)
def problem_of(n: int) -> ERM:
    """Return the paper's synthetic problem with n records."""
    data = datasets.kuru_synthetic(n, 20, scheme="cube", negative_rate=0.1, rng=0)
    return ERM(data.X, data.y, Logistic(), L2(MU), data.row_bound)


def final_gap(algorithm: str, n: int, c: float, T: int, replicates: int) -> float:
    """Return the mean final error of an algorithm of section 5, full batches."""
    problem = problem_of(n)
    mu, L, step_size = problem.mu, problem.L, c / problem.L
    optimal: dict[str, Any] = {"noise": "optimal", "choose_iterations": 10.0}
    options = optimal if algorithm.endswith("opt") else {}
    method: methods.Method
    if algorithm == "GD":
        method = methods.GradientDescent(step_size, T)
    elif algorithm == "HB":
        method = methods.HeavyBall(step_size, float(theory.nesterov_momentum(step_size, mu)), T)
    elif algorithm.startswith("NAG"):
        method = methods.Nesterov(step_size, T, mu, **options)
    else:
        method = methods.MultistageNesterov(T, mu, L, scale=c, **options)
    result = minimize(
        problem,
        method,
        Budget(1e5 / n),
        w0=np.full(problem.d, 10.0),
        replicates=replicates,
        rng=0,
        record=("gap",),
        every=T,
    )
    return float(result.history["gap"][-1].mean())


@lru_cache(maxsize=2)
def final_gaps(quick: bool) -> tuple[tuple[int, ...], dict[tuple[str, float], Array]]:
    """Return the numbers of iterations tried, and the final errors of all algorithms."""
    times = (100, 500) if quick else (100, 200, 500, 1000)
    n, replicates = (500, 3) if quick else (2000, 20)
    return times, {
        (name, c): np.array([final_gap(name, n, c, T, replicates) for T in times])
        for name in ALGORITHMS
        for c in CONSTANTS
    }


@register(
    "001-27",
    "Section 5, acceleration",
    "at its best T every one of DP-HB, DP-NAG and DP-NAG-opt beats DP-GD at its best T, with "
    "fewer iterations; at the largest T DP-GD can have the smaller error (c = 1)",
    verdict="holds",
)
def acceleration(effort: Effort) -> Iterator[Evidence]:
    """Small private runs with the noise of the paper's."""
    times, gaps = final_gaps(effort.quick)
    best = max(
        gaps[name, c].min() / gaps["GD", c].min()
        for name in ("HB", "NAG", "NAG-opt")
        for c in CONSTANTS
    )
    yield printed("largest best error / that of DP-GD, c = 1 and .1", best, "<=", 1.0)
    at = [times[int(gaps[name, 1.0].argmin())] for name in ("HB", "NAG", "GD")]
    yield printed("best T of DP-HB and DP-NAG, c = 1; of DP-GD", max(at[:2]), "<=", at[2] - 1)
    last = min(gaps[name, 1.0][-1] for name in ("HB", "NAG")) / gaps["GD", 1.0][-1]
    yield printed("error / that of DP-GD at the largest T, c = 1", last, ">=", 1.0)


@register(
    "001-28",
    "Section 5, divided noise",
    "DP-NAG-opt and DP-MASG-opt are best and alike at c = 1; at c = .1 DP-NAG-opt is, and "
    "DP-MASG-opt suffers",
    verdict="holds",
)
def divided_noise(effort: Effort) -> Iterator[Evidence]:
    """Small private runs with the noise of the paper's."""
    _, gaps = final_gaps(effort.quick)
    both = [gaps[name, 1.0].min() for name in ("NAG-opt", "MASG-opt")]
    rest = [gaps[name, 1.0].min() for name in ALGORITHMS[:4]]
    yield printed(
        "the worse of both / the best of the others, c = 1", max(both) / min(rest), "<=", 1.0
    )
    yield printed("the worse of both / the better, c = 1", max(both) / min(both), "<=", 2.0)
    rest = [gaps[name, 0.1].min() for name in ALGORITHMS if name != "NAG-opt"]
    best = gaps["NAG-opt", 0.1].min()
    yield printed("DP-NAG-opt / the best of the others, c = .1", best / min(rest), "<=", 1.0)
    suffers = gaps["MASG-opt", 0.1].min() / best
    yield printed("DP-MASG-opt / DP-NAG-opt, c = .1", suffers, ">=", 10.0)


@register(
    "001-29",
    "Section 5, batches; section 6",
    "full data give the smaller error bound: the noise of batches is larger, and their own error "
    "is added",
    verdict="holds",
)
def full_data(effort: Effort) -> Iterator[Evidence]:
    """Compare the Laplace scales for one budget at any n, m and T."""
    random, least, cases = effort.random(), np.inf, effort.cases(2000, 50_000)
    for _ in range(cases):
        n = int(log_uniform(random, 2.0, 1e6))
        m, T = int(random.integers(1, n + 1)), int(log_uniform(random, 1.0, 1e4))
        share = np.array([log_uniform(random, 1e-3, 10.0) / T])
        small, full = theory.laplace_scales(share, 1.0, n, m), theory.laplace_scales(share, 1.0, n)
        least = min(least, float(small[0] / full[0]))
    yield printed(
        "smallest noise of a batch / of all", least, ">=", 1.0, tolerance=1e-9, cases=cases
    )
    shares = np.full(100, 0.01)
    ratio = theory.laplace_scales(shares, 40.0, 100_000, 1000)[0]
    ratio /= theory.laplace_scales(shares, 40.0, 100_000)[0]
    yield printed("the same at the paper's m = 1000, T = 100", ratio, ">=", 1.4)
