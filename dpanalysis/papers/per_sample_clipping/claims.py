"""Xia et al. (2023): the weight of DP-PSAC, the bias of its fixed points, convergence, privacy."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
from scipy import optimize, special, stats

from ... import datasets, privacy, theory
from ...audit.attack import Range
from ..registry import Effort, Evidence, NotChecked, printed, register, used
from ..tools import (
    LONG_RUNS,
    Array,
    Mixture,
    epsilon_bounds,
    excess_at_share,
    excess_of_full_batches,
    search_max,
)

Weight = Callable[[Any, Any], Any]


def adaptive(norm: Any, r: Any) -> Any:
    """Return the weight of DP-PSAC, 1/(||g|| + r/(||g|| + r)), over C."""
    return 1 / (norm + r / (norm + r))


def automatic(norm: Any, r: Any) -> Any:
    """Return the weight of Auto-S and NSGD, 1/(||g|| + r), over C."""
    return 1 / (norm + r)


# --- 000-1 to 000-4: the weight ---


@register(
    "000-1",
    "Privacy guarantee; Theorem 1",
    "\\|\\|Clip(g)\\|\\| <= C for Clip(g) = C g/(\\|\\|g\\|\\| + r/(\\|\\|g\\|\\| + r)), r > 0",
    verdict="holds",
)
def sensitivity(effort: Effort) -> Iterator[Evidence]:
    """Search in floating point; exact fractions for the strict inequality."""
    space = {"norm": Range(1e-12, 1e12, log=True), "r": Range(1e-9, 10.0, log=True)}
    found = search_max(effort, lambda norm, r: norm * adaptive(norm, r), space)
    yield printed("\\|\\|Clip(g)\\|\\| / C", found, "<=", 1.0, tolerance=4e-16)
    yield printed("that is, approached", found.max(), ">=", 1.0 - 1e-9)
    random = effort.random()
    gaps = []
    for _ in range(effort.cases(200, 5000)):
        norm, r = (Fraction(float(10.0**e)) for e in random.uniform((-12.0, -9.0), (12.0, 1.0)))
        gaps.append(float(1 - norm * adaptive(norm, r)))
    yield printed("1 - \\|\\|Clip(g)\\|\\|/C in fractions", gaps, ">=", 1e-40)


def peak(r: float) -> tuple[float, float]:
    """Return where the weight of DP-PSAC is largest, and how large: a grid, then refined."""
    norms = np.concatenate([[0.0], np.geomspace(1e-14, 1e4, 2000)])
    best = int(np.argmax(adaptive(norms, r)))
    ends = norms[max(best - 1, 0)], norms[best + 1]
    found = optimize.minimize_scalar(
        lambda x: -adaptive(x, r), bounds=ends, method="bounded", options={"xatol": 1e-12 * ends[1]}
    )
    if adaptive(norms[best], r) >= -found.fun:
        return float(norms[best]), float(adaptive(norms[best], r))
    return float(found.x), -float(found.fun)


@register(
    "000-2",
    "Figure 2; Lemma 2",
    "the weight is largest at \\|\\|g\\|\\| = sqrt r - r, 1/(2 sqrt r - r), for r in (0, 1]",
    "and for r > 1 at 0, where it is 1",
    verdict="sharpened",
)
def largest_weight(effort: Effort) -> Iterator[Evidence]:
    """Maximize over the norm numerically."""
    random = effort.random()
    small = 10.0 ** random.uniform(-10.0, 0.0, size=effort.cases(40, 600))
    tops = [(r, *peak(r)) for r in small]
    far = [abs(at - (math.sqrt(r) - r)) / math.sqrt(r) for r, at, _ in tops]
    off = [abs(top * (2.0 * math.sqrt(r) - r) - 1.0) for r, _, top in tops]
    yield printed("largest |peak found - (sqrt r - r)| / sqrt r", far, "<=", 1e-6)
    yield printed("largest error of the weight there", off, "<=", 1e-12)
    above = [peak(r) for r in 10.0 ** random.uniform(0.0, 2.0, size=small.size)]
    at, top = zip(*above)
    yield used("largest ||g|| at the peak, r > 1", at, "==", 0.0, tolerance=1e-9)
    yield used("the weight there", top, "==", 1.0, tolerance=1e-12)


LEMMA = {
    "L0": Range(1e-3, 1e3, log=True),
    "L1": Range(1e-9, 1e3, log=True),
    "tau0": Range(1e-3, 1e3, log=True),
    "tau1": Range(0.0, 0.99),
    "r": Range(1e-8, 1.0, log=True),
    "gradient": Range(1e-9, 1e9, log=True),
    "place": Range(-1.0, 1.0),
}


def product(
    weight: Weight,
    L0: float,
    L1: float,
    tau0: float,
    tau1: float,
    r: float,
    gradient: float,
    place: float,
) -> float:
    """Return (L0 + L1 ||grad f||) w for a sample that Assumption 2 allows."""
    sample = gradient + place * (tau0 + tau1 * gradient)
    return (L0 + L1 * gradient) * float(weight(abs(sample), r))


def lemma_terms(L0: float, L1: float, tau0: float, tau1: float, r: float) -> tuple[float, float]:
    """Return the two terms of Lemma 2."""
    A, root = L0 * (1.0 - tau1) + L1 * tau0, math.sqrt(r)
    first = (A + L1 * (root - r)) / ((1.0 - tau1) * (2.0 * root - r))
    return first, (A + L1 * root) / (root * (1.0 - tau1))


def sharper(L0: float, L1: float, tau0: float, tau1: float, r: float) -> float:
    """Return the bound that is used in place of Lemma 2."""
    A = L0 * (1.0 - tau1) + L1 * tau0
    return (A / (2.0 * math.sqrt(r) - r) + L1) / (1.0 - tau1)


@register(
    "000-3",
    "Lemma 2",
    "(L0 + L1 \\|\\|grad f\\|\\|) w <= the larger of two terms, which is always the second, "
    "(A/sqrt r + L1)/(1 - tau1), A = L0 (1 - tau1) + L1 tau0",
    "(A/(2 sqrt r - r) + L1)/(1 - tau1)",
    verdict="sharpened",
)
def weighted_smoothness(effort: Effort) -> Iterator[Evidence]:
    """Search over the constants, the gradient and the sample's gradient."""

    def ratio(of: Callable[..., float], gradient: float, place: float, **given: float) -> float:
        return product(adaptive, **given, gradient=gradient, place=place) / of(**given)

    def lemma(**given: float) -> float:
        return max(lemma_terms(**given))

    def order(**given: float) -> float:
        first, second = lemma_terms(**given)
        return first / second

    def gain(**given: float) -> float:
        return sharper(**given) / lemma(**given)

    constants = {name: LEMMA[name] for name in ("L0", "L1", "tau0", "tau1", "r")}
    found = search_max(effort, lambda **at: ratio(lemma, **at), LEMMA)
    yield printed("largest left side / Lemma 2", found, "<=", 1.0, tolerance=1e-12)
    found = search_max(effort, order, constants)
    yield printed("largest first term / second term", found, "<=", 1.0, tolerance=1e-12)
    # At the peak of the weight, reached by a sample of a gradient that is nearly zero.
    guess = {"L0": 1.0, "L1": 1e-9, "tau0": 1.0, "tau1": 0.0, "r": 0.25, "gradient": 1e-9}
    guess["place"] = 0.25
    found = search_max(effort, lambda **at: ratio(sharper, **at), LEMMA, guesses=[guess])
    yield used("largest left side / bound used", found, "<=", 1.0, tolerance=1e-12)
    yield used("that is, attained", found.max(), ">=", 0.999)
    found = search_max(effort, gain, constants)
    yield used("bound used / Lemma 2, largest", found, "<=", 1.0, tolerance=1e-12)
    least = -search_max(effort, lambda **at: -gain(**at), constants)
    yield used("the same, smallest", least.min(), "<=", 0.51, cases=least.size)


@register(
    "000-4",
    "Table 1; discussion of Lemma 2",
    "with the weight of Auto-S, (L0 + L1 \\|\\|grad f\\|\\|) w is bounded only if r > tau0",
    "max(A/r, L1)/(1 - tau1) for any r > 0",
    verdict="corrected",
)
def automatic_smoothness(effort: Effort) -> Iterator[Evidence]:
    """Search where r <= tau0, and for r far below and above."""
    gradients = np.geomspace(1e-9, 1e12, 400)
    values = [
        product(automatic, 1.0, 1.0, 1.0, 0.5, 0.1, g, place)
        for g in gradients
        for place in np.linspace(-1.0, 1.0, 41)
    ]
    what = (
        "largest left side at r = tau0/10 (1e6: unbounded), L0 = L1 = tau0 = 1, gradients to 1e12"
    )
    yield printed(what, max(values), ">=", 1e6, cases=len(values))

    def ratio(gradient: float, place: float, **given: float) -> float:
        L0, L1, tau0, tau1, r = (given[name] for name in ("L0", "L1", "tau0", "tau1", "r"))
        bound = max((L0 * (1.0 - tau1) + L1 * tau0) / r, L1) / (1.0 - tau1)
        return product(automatic, **given, gradient=gradient, place=place) / bound

    guess = {"L0": 1.0, "L1": 1.0, "tau0": 1.0, "tau1": 0.5, "r": 0.1, "gradient": 2.0}
    space = {**LEMMA, "r": Range(1e-8, 1e4, log=True)}
    found = search_max(effort, ratio, space, guesses=[{**guess, "place": -1.0}])
    yield used("largest left side / bound", found, "<=", 1.0, tolerance=1e-12)
    yield used("that is, attained", found.max(), ">=", 0.999)


# --- 000-5, 000-6: fixed points without noise ---


def resting(weight: Weight, slopes: Array, offsets: Array, r: float) -> float:
    """Return grad f where the weighted gradients add up to zero.

    In one dimension, samples' gradients are slopes * u + offsets with u = grad f: the slopes
    (positive) have mean 1, the offsets mean 0. Assumption 2 holds with tau0 = max |offset|,
    tau1 = max |slope - 1|.
    """

    def weighted(u: float) -> float:
        samples = slopes * u + offsets
        return float(np.sum(weight(np.abs(samples), r) * samples))

    zeros = -offsets / slopes
    return float(optimize.brentq(weighted, zeros.min() - 1.0, zeros.max() + 1.0, xtol=1e-15))


def samples(random: np.random.Generator, tau1: float = 0.0) -> tuple[Array, Array]:
    """Return slopes and offsets of an odd number of samples, tau0 = 1."""
    n = 2 * int(random.integers(1, 8)) + 1
    slopes, offsets = random.uniform(-1.0, 1.0, size=n), random.standard_t(2.0, size=n)
    if random.random() < 0.3:  # just more than half agree, and respond least
        most = np.arange(10 * n) <= 5 * n
        slopes, offsets = np.where(most, -1.0, 1.0), np.where(most, 1.0, 0.0)
    slopes, offsets = slopes - slopes.mean(), offsets - offsets.mean()
    return 1.0 + tau1 * slopes / np.abs(slopes).max(), offsets / np.abs(offsets).max()


@register(
    "000-5",
    "Table 1; Remark 2",
    "a lower non-vanishing bound than that of Auto-S, O(r^-1/2) against O(r^-1): read as less bias",
    "true of the bounds: both biases tend to the same limit as r -> 0, and at r = 1 that of "
    "DP-PSAC can be the larger",
    verdict="corrected",
)
def remaining_bias(effort: Effort) -> Iterator[Evidence]:
    """Compare the gradients at the fixed points, which are roots of one equation."""
    centres = np.array([0.0, 1.0, 5.0])  # of f_i = (x - c_i)^2/2
    ones, offsets = np.ones(3), centres.mean() - centres
    for r, bound in ((1.0, 1.0), (1e-6, 0.1)):
        biases = [abs(resting(weight, ones, offsets, r)) for weight in (adaptive, automatic)]
        what = f"bias / that of Auto-S, f_i = (x - c_i)^2/2, c = 0, 1, 5, r = {r:g}"
        yield printed(what, biases[0] / biases[1], "<=", bound)
    random, far, cases = effort.random(), [], effort.cases(50, 1000)
    for _ in range(cases):
        slopes, offsets = samples(random)
        limit = -float(np.median(offsets))  # where half of the gradients point either way
        for weight in (adaptive, automatic):
            far.append(abs(resting(weight, slopes, offsets, 1e-14) - limit))
    what = "distance of either from the common limit / tau0, r = 1e-14"
    yield used(what, far, "<=", 1e-4, cases=cases)
    # The weight itself: its least bound is its largest value, which both attain.
    small = np.geomspace(1e-8, 1e-2, 7)
    norms = np.concatenate([[0.0], np.geomspace(1e-9, 1.0, 4001)])
    for weight, order, name in ((adaptive, -0.5, "DP-PSAC"), (automatic, -1.0, "Auto-S")):
        largest_weights = np.array([float(weight(norms, r).max()) for r in small])
        slopes = np.diff(np.log(largest_weights)) / math.log(10.0)
        what = f"|exponent of r in the largest weight of {name} - ({order:g})|, r <= .01"
        yield used(what, np.abs(slopes - order), "<=", 0.03, cases=small.size)
    bounds = [
        lemma_terms(1.0, 1.0, tau0, tau1, r)[1] / (((1.0 - tau1) + tau0) / r / (1.0 - tau1))
        for r in (1e-6, 1e-4)
        for tau0 in (0.1, 1.0, 10.0)
        for tau1 in (0.0, 0.5)
    ]
    yield used("largest Lemma 2 / the same for Auto-S, r <= 1e-4", bounds, "<=", 0.1)


@register(
    "000-6",
    "Convergence guarantee",
    "DP-PSAC converges to a stationary point, lim grad f(x_t) = 0",
    "not with a fixed r; without noise \\|\\|grad f\\|\\| <= tau0/(1 - tau1) at every fixed point, "
    "for any r and any positive weight",
    verdict="corrected",
)
def fixed_points(effort: Effort) -> Iterator[Evidence]:
    """Run the method without noise; search over samples for the largest gradient at rest."""
    centres = np.array([0.0, 0.0, 1.0])
    for r in (0.1, 1.0):
        x = 3.0
        for _ in range(2000):
            differences = x - centres
            x -= 0.05 * float(np.mean(adaptive(np.abs(differences), r) * differences))
        what = f"\\|grad f\\| after 2000 steps without noise, c = 0, 0, 1, r = {r:g}"
        yield printed(what, abs(x - centres.mean()), "<=", 0.0, tolerance=1e-6)
    random, rests, cases = effort.random(), [], effort.cases(100, 2000)
    for _ in range(cases):
        tau1 = random.uniform(0.0, 0.99)
        slopes, offsets = samples(random, tau1)
        r = math.exp(random.uniform(-14.0, 3.0))
        for weight in (adaptive, automatic):
            rests.append(abs(resting(weight, slopes, offsets, r)) * (1.0 - tau1))
    # One more sample on one side than on the other decides where all the weight rests.
    halves = np.repeat([0.0, 1.0], [501, 500])
    offsets = halves.mean() - halves
    edge = abs(resting(adaptive, np.ones(1001), offsets, 1e-12)) / np.abs(offsets).max()
    what = "\\|grad f\\| (1 - tau1)/tau0 at rest"
    yield used(what, [*rests, edge], "<=", 1.0, tolerance=1e-9, cases=cases)
    yield used("that is, approached", edge, ">=", 0.99)


# --- 000-7: the direction of the weighted gradient ---


def cosines(
    X: Array, y: Array, rs: tuple[float, ...], *, steps: int, batches: int, size: int
) -> Array:
    """Return cosines with a batch's mean gradient, shape (batches, 2, len(rs)): DP-PSAC, Auto-S.

    Softmax regression with intercepts, from 0, by gradient descent without noise. A sample's
    gradient is the product of its row and its error, so that a weighted sum needs no single one.
    """
    X = np.column_stack([X, np.ones(len(X))])
    targets = (y[:, None] == np.unique(y)).astype(np.float64)
    W = np.zeros((X.shape[1], targets.shape[1]))
    random = np.random.default_rng(0)
    found = []
    for step in range(1, steps + 1):
        errors = special.softmax(X @ W, axis=1) - targets
        if step * batches // steps > (step - 1) * batches // steps:
            rows = random.choice(len(X), size, replace=False)
            inputs, outputs = X[rows], errors[rows]
            norms = np.linalg.norm(inputs, axis=1) * np.linalg.norm(outputs, axis=1)
            mean = inputs.T @ outputs
            sums = [
                (weight(norms, r)[:, None] * inputs).T @ outputs
                for weight in (adaptive, automatic)
                for r in rs
            ]
            lengths = [np.linalg.norm(total) * np.linalg.norm(mean) for total in sums]
            found.append([np.vdot(total, mean) / length for total, length in zip(sums, lengths)])
        W -= 0.5 * X.T @ errors / len(X)
    return np.reshape(found, (batches, 2, len(rs)))


@register(
    "000-7",
    "Figure 3",
    "the weighted batch gradient is closer to the true one than that of Auto-S, in cosine "
    "(the r of the figure is not named)",
    "at r <= .1, on average over a long training; early in it, and at r = 1, the order can turn "
    "round",
    verdict="corrected",
)
def directions(effort: Effort) -> Iterator[Evidence]:
    """Train on bundled data; both rules weigh the same gradients of the same batches."""
    every = (1e-3, 0.01, 0.1, 1.0)
    trainings = (
        ("digits", effort.cases(500, 2000), every),
        ("breast_cancer", 5000, every),
        ("breast_cancer", 200, every[:1]),
    )
    for name, steps, rs in trainings:
        try:
            data = datasets.load(name)
        except ImportError as error:
            raise NotChecked(str(error)) from error
        means = cosines(data.X, data.y, rs, steps=steps, batches=100, size=64).mean(axis=0)
        for r, ours, theirs in zip(rs, *means):
            about = used if r <= 0.1 and steps > 200 else printed
            what = f"mean cosine against that of Auto-S, {name}, {steps} steps, r = {r:g}"
            yield about(what, ours, ">=", theirs)


# --- 000-10 to 000-12: one step, and what remains of the gradient (Theorem 2) ---

# Nodes and weights for means over a standard normal number.
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(40)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()


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
    excesses, on_parabolas = [], []
    for case in range(cases):
        f = Bent(0.0 if case % 3 == 0 else float(random.exponential()))
        x, r = float(random.normal() * 2.0), float(random.uniform(0.01, 1.0))
        rate, step = float(random.uniform(0.05, 1.0)), float(random.exponential())
        noise = float(random.exponential())
        gradients = f.slope(np.array(x)) + random.standard_t(3, size=n)
        clipped = gradients * adaptive(np.abs(gradients), r)
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
        excesses.append((expected - bound) / (abs(bound) + expected))
        if f.bend == 0.0:
            on_parabolas.append(abs(excesses[-1]))
    yield printed("largest E f - bound, relative", excesses, "<=", 0.0, tolerance=1e-12)
    yield printed("attained on parabolas: |E f - bound|", on_parabolas, "<=", 1e-12)


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
        clipped = gradients * adaptive(np.abs(gradients), r)
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
    yield printed("smallest exponent of r in what does not", orders.min(), ">=", -0.5)
    yield used("the largest of it / tau0", max(biases) / 0.3, "<=", 1.0, tolerance=1e-12)
    random, shares = effort.random(), []
    for T in (10, 100, effort.cases(1000, 10_000)):
        for r in (0.01, 0.1, 1.0):
            for tau0 in (0.0, 0.1, 0.5):
                bound = theory.psac_theorem2(
                    0.5, T, 1.0, 0.0, tau0, 0.0, r, dimension=1, noise_multiplier=2.0, batch_size=4
                )
                found = smallest_gradients(r, tau0, bound.step_size, T, 0.5, random)
                shares.append(found / bound.bound)
    yield used("largest E min \\|f'\\| / bound, 200 runs each", shares, "<=", 1.0)


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


# --- 000-8: sampling with replacement ---


def multiplicities(draws: int, n: int, most: int = 12) -> tuple[Array, Array]:
    """Return the law of how often a record is drawn: probabilities and counts."""
    counts = np.arange(min(draws, most) + 1)
    return stats.binom.pmf(counts, draws, 1.0 / n), counts.astype(np.float64)


def deltas(
    first: tuple[Array, Array], second: tuple[Array, Array], std: float, epsilon: float
) -> Array:
    """Return both hockey-stick divergences of two Gaussian mixtures (weights, means)."""
    means = np.concatenate([first[1], second[1]])
    x = np.arange(means.min() - 10.0 * std, means.max() + 10.0 * std, std / 400.0)
    p, q = (
        stats.norm.pdf(x[:, None], centres, std) @ weights for weights, centres in (first, second)
    )
    rise = math.exp(epsilon)
    gains = np.maximum(p - rise * q, 0.0), np.maximum(q - rise * p, 0.0)
    return np.sum(gains, axis=1) * (std / 400.0)


def drawn(records: Array, draws: int) -> tuple[Array, Array]:
    """Return the law of the sum of ``draws`` records, drawn with replacement."""
    sums = np.array([sum(batch) for batch in itertools.product(records, repeat=draws)])
    return np.full(sums.size, 1.0 / sums.size), sums


def removal_quotient(records: Array, std: float, epsilon: float) -> float:
    """Return delta of removing the first of three records, two draws, over the mixture's.

    The mixture has shifts 2k: a record of norm 1 takes the place of another one.
    """
    exact = deltas(drawn(records, 2), drawn(records[1:], 2), std, epsilon)
    weights, counts = multiplicities(2, records.size)
    claimed = deltas((weights, 2.0 * counts), (np.ones(1), np.zeros(1)), std, epsilon)
    return float((exact / np.maximum(claimed, 1e-6)).max())


@register(
    "000-8",
    "Algorithm 1; Theorem 1",
    "a batch drawn with replacement costs what Poisson sampling at q = B/N costs",
    "Poisson sampling; with replacement a record that is drawn k times moves the sum by up to "
    "2 k C: the Binomial mixture with shifts 2 k C",
    verdict="corrected",
)
def with_replacement(effort: Effort) -> Iterator[Evidence]:
    """Compose both on a grid with error bounds; enumerate all batches of three records."""
    n, size, steps, noise, delta = 60_000, 512, 500, 0.8, 1e-5
    rate = size / n
    step = privacy.events.Sampled(
        privacy.Poisson(rate), [privacy.events.Gaussian(std=noise, sensitivity=1.0)]
    )
    claimed = privacy.epsilon(
        privacy.events.Repeated(step, steps), delta, privacy.ADD_OR_REMOVE_ONE, "pld"
    )
    weights, counts = multiplicities(size, n)
    setting = "N = 60000, B = 512, T = 500, sigma = .8, delta = 1e-5"
    for others, factor in (("0", 1.0), ("opposite", 2.0)):
        low, _ = epsilon_bounds(Mixture(weights, factor * counts, noise), steps, delta)
        what = f"epsilon at least, other gradients {others} ({setting})"
        yield printed(what, low, "<=", claimed)
    alone = Mixture(np.array([1.0 - rate, rate]), np.array([0.0, 1.0]), noise)
    low, high = epsilon_bounds(alone, steps, delta)
    yield used("epsilon of Poisson sampling, lower bound", low, "<=", claimed)
    yield used("epsilon of Poisson sampling, upper bound", high, ">=", claimed)
    space = {
        "records": Range(-1.0, 1.0, size=3),
        "std": Range(0.4, 5.0, log=True),
        "epsilon": Range(0.01, 4.0, log=True),
    }
    guess = {"records": [1.0, -1.0, -1.0], "std": 1.0, "epsilon": 0.5}
    found = search_max(effort, removal_quotient, space, cost=4, guesses=[guess])
    what = "delta / that of the mixture, N = 3, B = 2"
    yield used(what, found, "<=", 1.0, tolerance=1e-4)
    yield used("that is, attained", found.max(), ">=", 0.999)


# --- 000-9: the constants of Theorem 1 ---


@register(
    "000-9",
    "Theorem 1",
    "for some c1, c2, (epsilon, delta)-DP if sigma >= c2 q sqrt(T ln(1/delta))/epsilon, for any "
    "epsilon <= c1 q^2 T (sigma is lost in our text; as Theorem 3.4 of Fang et al. 2023)",
    "for any epsilon <= min{q^2 T, ln(1/delta)} with c2 = 2; noise is calibrated by an accountant",
    verdict="corrected",
)
def large_budgets(effort: Effort) -> Iterator[Evidence]:
    """Exact composition of full batches, for all constants; Renyi divergences of the others."""
    constants, failures = np.geomspace(1e-3, 1e3, effort.cases(13, 61)), (1e-8, 1e-5, 0.1)
    grid = list(itertools.product(constants, constants, failures))
    least = min(excess_of_full_batches(*each) for each in grid)
    what = "delta / delta claimed, q = 1, epsilon = c1 T, T large, smallest over c1, c2, delta"
    yield printed(what, least, "<=", 1.0, cases=len(grid))
    found = search_max(effort, excess_at_share, LONG_RUNS, cost=4)
    yield used("epsilon / epsilon claimed", found, "<=", 1.0)
