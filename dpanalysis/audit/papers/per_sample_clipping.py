"""Xia et al. (2023): the weight of DP-PSAC, its effect on gradients, the bias of fixed points."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special

from ... import datasets
from ..attack import Range
from ..registry import Effort, Evidence, NotChecked, Paper, printed, register, used
from .second_order import largest

PAPER = register(
    Paper(
        id="000",
        authors="Xia, Shen, Yao, Fu, Xu, Xu, Fu",
        year=2023,
        title="Differentially private learning with per-sample adaptive clipping",
        venue="AAAI",
        setting="Add-or-remove-one neighbours, Poisson sampling.",
    )
)

Array = NDArray[np.float64]
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
    found, cases = largest(effort, lambda norm, r: norm * adaptive(norm, r), space)
    yield printed("\\|\\|Clip(g)\\|\\| / C", found, "<=", 1.0, tolerance=4e-16, cases=cases)
    yield printed("that is, approached", found, ">=", 1.0 - 1e-9)
    random = effort.random()
    gaps = []
    for _ in range(effort.cases(200, 5000)):
        norm, r = (Fraction(float(10.0**e)) for e in random.uniform((-12.0, -9.0), (12.0, 1.0)))
        gaps.append(1 - norm * adaptive(norm, r))
    strict = float(min(gaps))
    yield printed("1 - \\|\\|Clip(g)\\|\\|/C in fractions", strict, ">=", 1e-40, cases=len(gaps))


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
    """Maximise over the norm numerically."""
    random = effort.random()
    small = 10.0 ** random.uniform(-10.0, 0.0, size=effort.cases(40, 600))
    tops = [(r, *peak(r)) for r in small]
    far = max(abs(at - (math.sqrt(r) - r)) / math.sqrt(r) for r, at, _ in tops)
    off = max(abs(top * (2.0 * math.sqrt(r) - r) - 1.0) for r, _, top in tops)
    yield printed("largest |peak found - (sqrt r - r)| / sqrt r", far, "<=", 1e-6, cases=small.size)
    yield printed("largest error of the weight there", off, "<=", 1e-12, cases=small.size)
    above = [peak(r) for r in 10.0 ** random.uniform(0.0, 2.0, size=small.size)]
    at, top = (max(column) for column in zip(*above))
    yield used("largest ||g|| at the peak, r > 1", at, "==", 0.0, tolerance=1e-9, cases=small.size)
    yield used("the weight there", top, "==", 1.0, tolerance=1e-12, cases=small.size)


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

    found, cases = largest(
        effort, lambda **at: ratio(lambda **g: max(lemma_terms(**g)), **at), LEMMA
    )
    yield printed("largest left side / Lemma 2", found, "<=", 1.0, tolerance=1e-12, cases=cases)
    constants = {name: LEMMA[name] for name in ("L0", "L1", "tau0", "tau1", "r")}

    def order(**given: float) -> float:
        first, second = lemma_terms(**given)
        return first / second

    found, cases = largest(effort, order, constants)
    yield printed(
        "largest first term / second term", found, "<=", 1.0, tolerance=1e-12, cases=cases
    )
    # At the peak of the weight, reached by a sample of a gradient that is nearly zero.
    guess = {"L0": 1.0, "L1": 1e-9, "tau0": 1.0, "tau1": 0.0, "r": 0.25, "gradient": 1e-9}
    found, cases = largest(
        effort, lambda **at: ratio(sharper, **at), LEMMA, guesses=[{**guess, "place": 0.25}]
    )
    yield used("largest left side / bound used", found, "<=", 1.0, tolerance=1e-12, cases=cases)
    yield used("that is, attained", found, ">=", 0.999)

    def gain(**given: float) -> float:
        return sharper(**given) / max(lemma_terms(**given))

    found, cases = largest(effort, gain, constants)
    yield used("bound used / Lemma 2, largest", found, "<=", 1.0, tolerance=1e-12, cases=cases)
    found, cases = largest(effort, lambda **at: -gain(**at), constants)
    yield used("the same, smallest", -found, "<=", 0.51, cases=cases)


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
    found, cases = largest(effort, ratio, space, guesses=[{**guess, "place": -1.0}])
    yield used("largest left side / bound", found, "<=", 1.0, tolerance=1e-12, cases=cases)
    yield used("that is, attained", found, ">=", 0.999)


# --- 000-5, 000-6: where the method rests without noise ---


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
    random = effort.random()
    worst = 0.0
    cases = effort.cases(50, 1000)
    for _ in range(cases):
        slopes, offsets = samples(random)
        limit = -float(np.median(offsets))  # where half of the gradients point either way
        worst = max(
            worst,
            *(
                abs(resting(weight, slopes, offsets, 1e-14) - limit)
                for weight in (adaptive, automatic)
            ),
        )
    what = "distance of either from the common limit / tau0, r = 1e-14"
    yield used(what, worst, "<=", 1e-4, cases=cases)
    # The weight itself: its least bound is its largest value, which both attain.
    small = np.geomspace(1e-8, 1e-2, 7)
    norms = np.concatenate([[0.0], np.geomspace(1e-9, 1.0, 4001)])
    for weight, order, name in ((adaptive, -0.5, "DP-PSAC"), (automatic, -1.0, "Auto-S")):
        largest_weights = np.array([float(weight(norms, r).max()) for r in small])
        slopes = np.diff(np.log(largest_weights)) / math.log(10.0)
        off = float(np.abs(slopes - order).max())
        what = f"|exponent of r in the largest weight of {name} - ({order:g})|, r <= .01"
        yield used(what, off, "<=", 0.03, cases=small.size)
    bounds = [
        lemma_terms(1.0, 1.0, tau0, tau1, r)[1] / (((1.0 - tau1) + tau0) / r / (1.0 - tau1))
        for r in (1e-6, 1e-4)
        for tau0 in (0.1, 1.0, 10.0)
        for tau1 in (0.0, 0.5)
    ]
    yield used("largest Lemma 2 / the same for Auto-S, r <= 1e-4", max(bounds), "<=", 0.1, cases=12)


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
    random = effort.random()
    cases = effort.cases(100, 2000)
    worst = 0.0
    for _ in range(cases):
        tau1 = random.uniform(0.0, 0.99)
        slopes, offsets = samples(random, tau1)
        r = math.exp(random.uniform(-14.0, 3.0))
        for weight in (adaptive, automatic):
            worst = max(worst, abs(resting(weight, slopes, offsets, r)) * (1.0 - tau1))
    # One more sample on one side than on the other decides where all the weight rests.
    halves = np.repeat([0.0, 1.0], [501, 500])
    offsets = halves.mean() - halves
    edge = abs(resting(adaptive, np.ones(1001), offsets, 1e-12)) / np.abs(offsets).max()
    what = "\\|grad f\\| (1 - tau1)/tau0 at rest"
    yield used(what, max(worst, edge), "<=", 1.0, tolerance=1e-9, cases=cases)
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
