"""Xia et al. (2023): what one step changes, and what remains of the gradient (Theorem 2)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ... import theory
from ..registry import Effort, Evidence, printed, register, used

Array = NDArray[np.float64]

# Nodes and weights for means over a standard normal number.
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(40)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()


def weights(norms: Array, r: float) -> Array:
    """Return the weights of DP-PSAC."""
    return np.asarray(1.0 / (norms + r / (norms + r)))


class Bent:
    """f(x) = x^2/2 + a (x^2 - ln(1 + x^2))/2: its curvature is least where the gradient is 0.

    f'(x) = x + a x^3/(1 + x^2), and f'' is between 1 and 1 + 9a/8, its limit at infinity is 1 + a.
    """

    def __init__(self, bend: float) -> None:
        self.bend = bend

    def value(self, x: Array) -> Array:
        """Return f."""
        return np.asarray(0.5 * x * x + 0.5 * self.bend * (x * x - np.log1p(x * x)))

    def slope(self, x: Array) -> Array:
        """Return f'."""
        return np.asarray(x + self.bend * x**3 / (1.0 + x * x))

    def growth(self, L0: float, x: float) -> float:
        """Return the least L1 with |f'(y) - f'(x)| <= (L0 + L1 |f'(x)|) |y - x|, for all y."""
        far = np.geomspace(1e-5, 1e5, 400)
        y = x + np.concatenate([-far, far])
        steepest = float((np.abs(self.slope(y) - self.slope(np.array(x))) / np.abs(y - x)).max())
        return max(0.0, steepest - L0) / max(abs(float(self.slope(np.array(x)))), 1e-12)


@register(
    "000-10",
    "Lemma 1",
    "E f(x_{t+1}) <= f(x_t) - eta E <grad f, mean of w_i g_i> + (L0 + L1 \\|\\|grad f\\|\\|)/2 "
    "eta^2 (E\\|\\|mean of w_i g_i\\|\\|^2 + d sigma^2/B^2)",
    verdict="holds",
)
def one_step(effort: Effort) -> Iterator[Evidence]:
    """Means over all Poisson batches of six samples and over the noise, by quadrature."""
    random, n, cases = effort.random(), 6, effort.cases(150, 3000)
    drawn = np.array(np.meshgrid(*[[0.0, 1.0]] * n)).reshape(n, -1).T
    worst = attained = -np.inf
    for case in range(cases):
        f = Bent(0.0 if case % 3 == 0 else float(random.exponential()))
        x, r = float(random.normal() * 2.0), float(random.uniform(0.01, 1.0))
        rate, step = float(random.uniform(0.05, 1.0)), float(random.exponential())
        noise = float(random.exponential())
        gradients = f.slope(np.array(x)) + random.standard_t(3, size=n)
        clipped = gradients * weights(np.abs(gradients), r)
        mass = np.prod(np.where(drawn == 1.0, rate, 1.0 - rate), axis=1)
        means = drawn @ clipped / (rate * n)
        after = x - step * (means[:, None] + noise * _NODES)
        expected = float(mass @ f.value(after) @ _WEIGHTS)
        slope = float(f.slope(np.array(x)))
        L0 = 1.0  # the curvature at the minimum
        curvature = L0 + f.growth(L0, x) * abs(slope)
        square = float(mass @ means**2) + noise**2
        bound = float(f.value(np.array(x))) - step * slope * float(mass @ means)
        bound += 0.5 * curvature * step**2 * square
        excess = (expected - bound) / (abs(bound) + expected)
        worst = max(worst, excess)
        if f.bend == 0.0:
            attained = max(attained, abs(excess))
    yield printed("largest E f - bound, relative", worst, "<=", 0.0, tolerance=1e-12, cases=cases)
    yield printed("attained on parabolas: |E f - bound|", attained, "<=", 1e-12, cases=cases // 3)


def smallest_gradients(
    r: float, tau0: float, step: float, T: int, noise: float, random: np.random.Generator
) -> float:
    """Return E min_t |f'(x_t)| on x^2/2 from x = 1; each of 8 samples pulls by up to tau0."""
    runs, n = 200, 8
    pulls = tau0 * np.where(np.arange(n) < 5, 0.6, -1.0)  # most pull one way; their mean is 0
    pulls = pulls - pulls.mean()
    pulls *= tau0 / max(float(np.abs(pulls).max()), 1e-300)
    x, least = np.ones(runs), np.full(runs, np.inf)
    for _ in range(T):
        least = np.minimum(least, np.abs(x))
        gradients = x[:, None] + pulls
        clipped = gradients * weights(np.abs(gradients), r)
        taken = random.random((runs, n)) < 0.5
        x = x - step * ((clipped * taken).sum(1) / (0.5 * n) + noise * random.standard_normal(runs))
    return float(least.mean())


@register(
    "000-11",
    "Theorem 2; Remark 2",
    "with a constant step of order 1/sqrt(d sigma^2 T (L0 + L1 (tau0 + 1))) and T large, "
    "E min_t \\|\\|grad f(x_t)\\|\\| <= O(T^-1/4) + O(r^-1/2), constants lost in our text",
    "`theory.psac_theorem2`, with all constants; what does not vanish is also at most "
    "tau0/(1 - tau1), whatever r",
    verdict="sharpened",
)
def convergence(effort: Effort) -> Iterator[Evidence]:
    """Slopes of the bound, and runs under it."""

    def at(T: float, r: float = 0.1, tau1: float = 0.0) -> Any:
        return theory.psac_theorem2(
            0.5, int(T), 1.0, 0.0, 0.3, tau1, r, dimension=1, noise_multiplier=1.0, batch_size=4
        )

    slope = math.log(at(1e12).vanishing / at(1e8).vanishing) / math.log(1e4)
    yield printed("exponent of T in what vanishes", slope, "<=", -0.249)
    biases = [at(1e8, r).bias for r in np.geomspace(1e-8, 1.0, 9)]
    orders = np.diff(np.log(biases)) / math.log(10.0)
    yield printed("smallest exponent of r in what does not", float(orders.min()), ">=", -0.5)
    yield used("the largest of it / tau0", max(biases) / 0.3, "<=", 1.0, tolerance=1e-12)
    random, worst, cases = effort.random(), 0.0, 0
    for T in (10, 100, effort.cases(1000, 10_000)):
        for r in (0.01, 0.1, 1.0):
            for tau0 in (0.0, 0.1, 0.5):
                bound = theory.psac_theorem2(
                    0.5, T, 1.0, 0.0, tau0, 0.0, r, dimension=1, noise_multiplier=2.0, batch_size=4
                )
                found = smallest_gradients(r, tau0, bound.step_size, T, 0.5, random)
                worst, cases = max(worst, found / bound.bound), cases + 1
    yield used("largest E min \\|f'\\| / bound, 200 runs each", worst, "<=", 1.0, cases=cases)


@register(
    "000-12",
    "Corollary 1",
    "with the sigma of Theorem 1 and T large, what vanishes is of order "
    "(d ln 1/delta)^1/4 (n epsilon)^-1/2, n records (lost in our text; it follows from the two "
    "theorems)",
    verdict="holds",
)
def utility(effort: Effort) -> Iterator[Evidence]:
    """Full batches, T = 1e20; slopes of the bound of Theorem 2 with the noise of Theorem 1."""

    def vanishing(n: float, epsilon: float, d: int, delta: float) -> float:
        T = 10**20  # the batch is everything: q = 1
        sigma = 2.0 * math.sqrt(T * math.log(1.0 / delta)) / epsilon
        given: dict[str, Any] = {"dimension": d, "noise_multiplier": sigma, "batch_size": n}
        return theory.psac_theorem2(0.5, T, 1.0, 0.0, 0.0, 0.0, 0.1, **given).vanishing

    at: dict[str, Any] = {"n": 1e8, "epsilon": 0.1, "d": 100, "delta": 1e-5}
    base, powers = vanishing(**at), {"n": -0.5, "epsilon": -0.5, "d": 0.25}
    for name, exponent in powers.items():
        found = math.log(vanishing(**{**at, name: 100 * at[name]}) / base) / math.log(100.0)
        yield printed(f"exponent of {name}", found, "==", exponent, tolerance=0.01)
    found = math.log(vanishing(**{**at, "delta": 1e-20}) / base) / math.log(4.0)
    yield printed("exponent of ln 1/delta", found, "==", 0.25, tolerance=0.01)
