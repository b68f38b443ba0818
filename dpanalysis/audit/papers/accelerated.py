"""Kuru et al. (2022), sections 4 and 5: Nesterov's methods, their error bounds, and what follows.

The division of a budget and the horizons are in ``accelerated_budget``.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy import optimize, stats

from ... import theory
from ...losses import Logistic
from ...regularizers import L2
from ..registry import Effort, Evidence, Paper, printed, register, used
from ._smooth import (
    Array,
    Step,
    expected_gaps,
    log_uniform,
    nesterov_steps,
    quadratic_gaps,
    random_smooth,
)

PAPER = register(
    Paper(
        id="001",
        authors="Kuru, Birbil, Gürbüzbalaban, Yıldırım",
        year=2022,
        title="Differentially private accelerated optimization algorithms",
        venue="SIAM J. Optim. 32",
        setting="Replace-one neighbours, sampling m of n without replacement, pure epsilon.",
    )
)


def growth_on_parabolas(root: float, slopes: Array, T: int) -> Array:
    """Return E_t / ((1 - root)^t E_0), t = 1..T, of Nesterov's method without noise, (T, count).

    ``root`` is sqrt(mu alpha), and ``slopes`` are alpha lambda, from root^2 to 1.
    """
    momentum = (1.0 - root) / (1.0 + root)
    now = before = np.ones_like(slopes)
    gaps = []
    for _ in range(T):
        now, before = (1.0 - slopes) * (now + momentum * (now - before)), now
        gaps.append(now**2)
    return np.array(gaps) / (1.0 - root) ** np.arange(1, T + 1)[:, None]


@register(
    "001-9",
    "Theorem 4.1, (4.2)",
    "E_t = E F(x_t) - F* contracts by 1 - sqrt(mu alpha) in every iteration",
    "V_t = F(x_t) - F* + 1/2 ||(x_t - x*)/sqrt(alpha) + (sqrt(mu) - 1/sqrt(alpha))(x_{t-1} - "
    "x*)||^2 contracts so, from any two points; V_0 <= 2 E_0; noise adds (alpha/2)(1 + alpha L) "
    "E||w||^2",
    verdict="corrected",
)
def nesterov_contraction(effort: Effort) -> Iterator[Evidence]:
    """One step from arbitrary pairs of points, on functions of the class."""
    steps = nesterov_steps([1.0], 0.01)
    gaps = quadratic_gaps([0.01], steps, 1.0)
    yield printed("E_1 / E_0 at alpha mu = .01, no noise", gaps[1] / gaps[0], "<=", 0.9)
    random = effort.random(9)
    count, n = effort.cases(300, 4000), 300
    contraction = start = noisy = 0.0
    for _ in range(count):
        mu, alpha = log_uniform(random, 1e-4, 0.99), log_uniform(random, 1e-2, 1.0)
        d = int(random.integers(1, 4))
        function = random_smooth(random, mu, 1.0, d)
        (step,) = nesterov_steps([alpha], mu)
        now, before = random.standard_normal((2, n, d)) * np.exp(random.uniform(-3, 3, (2, n, 1)))
        rate = 1.0 - np.sqrt(mu * alpha)
        # Near the pairs at which the quadratic part vanishes nothing but F can fall.
        near = random.random(n) < 0.5
        now[near] = rate * before[near] + 0.1 * now[near]
        old = lyapunov(function.value(now), now, before, alpha, mu)
        point = now + step.momentum * (now - before)
        after = point - alpha * function.gradient(point)
        new = lyapunov(function.value(after), after, now, alpha, mu)
        contraction = max(contraction, float((new / (rate * old)).max()))
        still = lyapunov(function.value(now), now, now, alpha, mu)
        start = max(start, float((still / (2.0 * function.value(now))).max()))
        w = random.standard_normal((n, d)) * np.exp(random.uniform(-3, 3, (n, 1)))
        both = [after + sign * alpha * w for sign in (1.0, -1.0)]
        mean = sum(lyapunov(function.value(x), x, now, alpha, mu) for x in both) / 2.0
        limit = rate * old + 0.5 * alpha * (1.0 + alpha) * (w * w).sum(1)
        noisy = max(noisy, float((mean / limit).max()))
    cases, exact = count * n, {"tolerance": 1e-9}
    yield used("largest V_{t+1} / ((1 - sqrt(mu alpha)) V_t), no noise", contraction, "<=", 1.0,
               cases=cases, **exact)  # fmt: skip
    yield used("largest E V_{t+1} / bound, noise of two values", noisy, "<=", 1.0,
               cases=cases, **exact)  # fmt: skip
    yield used("largest V_0 / (2 E_0)", start, "<=", 1.0, cases=cases, **exact)


def lyapunov(gap: Array, now: Array, before: Array, alpha: float, mu: float) -> Array:
    """Return V of Theorem 4.1, corrected, with the optimum at 0."""
    root = 1.0 / np.sqrt(alpha)
    state = root * now + (np.sqrt(mu) - root) * before
    return np.asarray(gap + 0.5 * (state * state).sum(-1))


@register(
    "001-10",
    "(4.3)",
    "a_{T,0} = (1 - sqrt(mu alpha))^T",
    "twice that",
    verdict="corrected",
)
def weight_of_the_start(effort: Effort) -> Iterator[Evidence]:
    """Run without noise, on parabolas and on functions of the class."""
    random = effort.random(10)
    count, T = effort.cases(100, 2000), 100
    roots = np.linspace(0.01, 0.9, count)
    worst = max(
        float(growth_on_parabolas(root, np.geomspace(root**2, 1.0, 17), T).max()) for root in roots
    )
    cases = 17 * T * count
    what = "largest E_T / (a_{T,0} E_0), parabolas, T <= 100"
    yield printed(what, worst, "<=", 1.0, cases=cases)
    yield used("with twice a_{T,0}", worst / 2.0, "<=", 1.0, tolerance=1e-9, cases=cases)
    count, worst = effort.cases(200, 2500), 0.0
    for _ in range(count):
        mu, alpha = log_uniform(random, 1e-4, 0.9), log_uniform(random, 1e-2, 1.0)
        T, d = int(random.integers(1, 60)), int(random.integers(1, 4))
        a0, _ = theory.nesterov_weights(T, alpha, mu, 1.0)
        if a0 < 1e-12:  # what is left of the gap are rounding errors
            continue
        function, start = random_smooth(random, mu, 1.0, d), 3.0 * random.standard_normal(d)
        gaps = expected_gaps(function, nesterov_steps(np.full(T, alpha), mu), start)
        worst = max(worst, gaps[-1] / (a0 * gaps[0]))
    what = "the same by `nesterov_weights`, functions of the class"
    yield used(what, worst, "<=", 1.0, tolerance=1e-9, cases=count)


@register(
    "001-15",
    "Theorem 4.3, (4.8)",
    "E_T = 2^(s_T - s_0) prod_i (1 - sqrt(mu alpha_i)) E_0 + ...",
    '"<=" and s_0 = 0; the momentum is reset (x_{t-1} := x_t) when a stage starts',
    verdict="corrected",
)
def multistage_bound(effort: Effort) -> Iterator[Evidence]:
    """Exact gaps with and without the reset, on quadratics and on functions of the class."""
    random = effort.random(15)
    steps, starts = stages_of(1e-4, 15, 120)
    forgetful = quadratic_gaps([0.011], steps, 1.0)
    memory = quadratic_gaps([0.011], [step._replace(restart=False) for step in steps], 1.0)
    share = forgetful[-1] / (starts[-1] * forgetful[0])
    yield printed("E_T / right side, no noise", share, "==", 1.0)
    growth = growth_on_parabolas(0.02, np.array([0.02**2]), 100).max()
    yield printed("largest E_T / right side with s_0 = 1, first stage", growth, "<=", 1.0)
    what = "largest E_T / right side with s_0 = 0, "
    yield printed(
        what + "no reset, kappa 1e4, n_1 = 15", (memory / (starts * memory[0])).max(), "<=", 1.0
    )
    count, worst = effort.cases(150, 2500), 0.0
    for _ in range(count):
        mu, first = log_uniform(random, 1e-3, 0.9), int(random.integers(1, 40))
        T = first + int(random.integers(0, 60))
        steps, _ = stages_of(mu, first, T)
        a0, a = weights_of(mu, first, T)
        spectrum = np.array([mu, log_uniform(random, mu, 1.0), 1.0])
        variance = random.exponential(size=T) * random.choice([0.0, 0.01, 1.0])
        gaps = quadratic_gaps(spectrum, steps, random.exponential(size=3), variance)
        bound = a0 * gaps[0] + 0.5 * 3.0 * float(a @ variance)
        worst = max(worst, gaps[-1] / bound)
    yield used(what + "reset, quadratics", worst, "<=", 1.0, tolerance=1e-9, cases=count)
    count, worst = effort.cases(60, 1000), 0.0
    for _ in range(count):
        mu, first = log_uniform(random, 0.05, 0.9), int(random.integers(1, 8))
        T, d = first + int(random.integers(0, 30)), int(random.integers(1, 4))
        steps, _ = stages_of(mu, first, T)
        a0, a = weights_of(mu, first, T)
        function, start = random_smooth(random, mu, 1.0, d), random.standard_normal(d)
        noises = np.zeros((T, d))
        noisy = random.choice(T, min(T, 6), replace=False)
        noises[noisy] = random.standard_normal((noisy.size, d)) * log_uniform(random, 0.01, 3.0)
        gaps = expected_gaps(function, steps, start, noises)
        bound = a0 * gaps[0] + 0.5 * float(a @ (noises * noises).sum(1))
        worst = max(worst, gaps[-1] / bound)
    yield used(
        what + "reset, functions of the class", worst, "<=", 1.0, tolerance=1e-9, cases=count
    )


def stages_of(mu: float, first: int, T: int) -> tuple[list[Step], Array]:
    """Return iterations by (4.7) with L = 1, p = 1, and the weights of E_0 at t = 0..T, s_0 = 0."""
    unit = int(np.ceil(np.sqrt(1.0 / mu) * np.log(8.0)))
    lengths = [first]
    while sum(lengths) < T:
        lengths.append(2 ** (len(lengths) + 1) * unit)
    stages = np.repeat(np.arange(1, len(lengths) + 1), lengths)[:T]
    sizes = np.where(stages == 1, 1.0, 0.25**stages)
    kept = np.cumprod(1.0 - np.sqrt(mu * sizes))
    starts = np.diff(stages, prepend=1) == 1
    return nesterov_steps(sizes, mu, starts), np.append(1.0, 2.0**stages * kept)


def weights_of(mu: float, first: int, T: int) -> tuple[float, Array]:
    """Return the weights that the package uses for the same schedule."""
    sizes, stages = theory.multistage_schedule(T, mu, 1.0, first_stage=first)
    return theory.multistage_weights(sizes, stages, mu, 1.0)


@register(
    "001-16",
    "(5.1)",
    "x* = arg max of the mean of ln p + lambda ||x||^2",
    "x* = arg min of the mean of -ln p + lambda ||x||^2, that is `Logistic` with "
    "`L2(2 lambda)`: mu = 2 lambda",
    verdict="corrected",
)
def sign_of_the_penalty(effort: Effort) -> Iterator[Evidence]:
    """Compare with SciPy's logistic law, with differences, and with other points."""
    random = effort.random(16)
    n, d, lam = 200, 4, 0.01
    X, y = random.uniform(-1.0, 1.0, (n, d)), random.choice([-1.0, 1.0], n)
    loss, penalty = Logistic(), L2(2.0 * lam)

    def log_likelihood(x: Array) -> float:
        return float(stats.logistic.logcdf(y * (X @ x)).mean())

    def value(x: Array) -> float:
        return float(np.mean(loss.value(X @ x, y))) + float(penalty.value(x))

    def gradient(x: Array) -> Array:
        return np.asarray(X.T @ loss.derivative(X @ x, y) / n + penalty.gradient(x))

    found = optimize.minimize(value, np.zeros(d), jac=gradient, options={"gtol": 1e-10})
    best = np.asarray(found.x)
    best_printed = log_likelihood(best) + lam * float(best @ best)
    far = 1000.0 * best
    yield printed(
        "gain of (5.1) from the regularised optimum x to 1000 x",
        log_likelihood(far) + lam * float(far @ far) - best_printed,
        "<=",
        0.0,
    )
    count = effort.cases(300, 5000)
    wrong = slope = 0.0
    least = curvature = np.inf
    for _ in range(count):
        x, v = random.standard_normal((2, d)) * log_uniform(random, 0.01, 30.0)
        written = lam * float(x @ x) - log_likelihood(x)
        wrong = max(wrong, abs(value(x) / written - 1.0))
        h = 1e-6 * v / np.linalg.norm(v)
        difference = (value(x + h) - value(x - h)) / 2e-6
        slope = max(slope, abs(difference - float(gradient(x) @ h) * 1e6))
        least = min(least, value(best + x) - value(best))
        # mu ||v||^2 <= <g(x + v) - g(x), v>
        curvature = min(curvature, float((gradient(x + v) - gradient(x)) @ v) / float(v @ v))
    yield used("largest relative error of the loss", wrong, "<=", 1e-12, cases=count)
    yield used("largest error of its gradient, by differences", slope, "<=", 1e-6, cases=count)
    yield used("smallest F(x) - F(x*)", least, ">=", 0.0, cases=count)
    yield used("smallest curvature / (2 lambda)", curvature / (2.0 * lam), ">=", 1.0, cases=count)
