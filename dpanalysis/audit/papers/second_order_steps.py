"""Gao and Wright (2023): the private line search, and the decrease that the steps promise."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from ... import theory
from ...theory.second_order import short_decreases
from ..attack import Range
from ..exact import renyi_divergence
from ..laws import above_threshold_distribution
from ..registry import Effort, Evidence, printed, register, used
from .second_order import SIGN, label, largest, symmetric, unit
from .second_order_printed import printed_search_slack

Array = NDArray[np.float64]


# --- 003-6, 003-7: the line search ---


def search_loss(queries: Array, change: Array, scale: float) -> float:
    """Return the pure loss of Algorithm 2 at sensitivity 1, times lambda."""
    laws = [
        np.log(above_threshold_distribution(q, "laplace", 2.0 * scale, 4.0 * scale))
        for q in (queries, queries + change)
    ]
    return scale * float(np.abs(laws[0] - laws[1]).max())


def response_cost(excess: float, epsilon: float) -> float:
    """Return D_alpha/alpha of randomised response, which costs most of all epsilon-DP releases."""
    yes = special.expit(epsilon)
    order = 1.0 + excess
    return renyi_divergence([yes, 1.0 - yes], [1.0 - yes, yes], order) / order


@register(
    "003-6",
    "Theorem 5, proof",
    "Algorithm 2 is 1/lambda-DP and so 1/(2 lambda^2)-zCDP",
    "eps tanh(eps/2) with eps = 1/lambda",
    verdict="sharpened",
)
def line_search_cost(effort: Effort) -> Iterator[Evidence]:
    """Exact laws of the line search; exact divergences of randomised response."""
    queries = {
        "queries": Range(-8.0, 8.0, size=8),
        "change": Range(-1.0, 1.0, size=8),
        "scale": Range(0.2, 5.0, log=True),
    }
    # Halting at the last query although all before it are high takes a high threshold.
    guess = {"queries": [8.0] * 7 + [-8.0], "change": [-1.0] * 7 + [1.0], "scale": 0.2}
    found, cases = largest(effort, search_loss, queries, cost=16, guesses=[guess])
    yield printed("lambda loss of Algorithm 2", found, "<=", 1.0, tolerance=1e-9, cases=cases)
    yield printed("that is, nearly attained", found, ">=", 0.99)
    space = {"excess": Range(1e-4, 300.0, log=True), "epsilon": Range(1e-2, 20.0, log=True)}

    def against_printed(excess: float, epsilon: float) -> float:
        return response_cost(excess, epsilon) / (0.5 * epsilon**2)

    def against_used(excess: float, epsilon: float) -> float:
        return response_cost(excess, epsilon) / (epsilon * math.tanh(0.5 * epsilon))

    found, cases = largest(effort, against_printed, space)
    yield printed("D_a / (a rho)", found, "<=", 1.0, tolerance=1e-9, cases=cases)
    found, cases = largest(effort, against_used, space)
    yield used("D_a / (a rho)", found, "<=", 1.0, tolerance=1e-9, cases=cases)
    yield used("that is, attained", found, ">=", 0.999)
    ratio = 0.5 / response_cost(1e-6, 1.0)
    yield used("rho printed / rho attained, lambda = 1", ratio, ">=", 1.08)


def query_change(
    w: Array,
    g: Array,
    old: Array,
    new: Array,
    y_old: float,
    y_new: float,
    step: float,
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
    """Return the chance that Algorithm 2 accepts a step that raises the objective.

    The queries are gamma/8 - gamma^2 at gamma = 4, 2, ..., 1/16 (positive for the last two),
    and ``noise`` is the sensitivity of q/gamma, lambda = 1.
    """
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
    "q(gamma)/gamma >= 0 says the same, with sensitivity 2 B_g \\|\\|g\\|\\|/n at every gamma",
    verdict="sharpened",
)
def query_sensitivity(effort: Effort) -> Iterator[Evidence]:
    """Brute force over rows, directions and steps; exact laws of one line search."""
    rows = {name: Range(-2.0, 2.0, size=2) for name in ("g", "old", "new")}
    space = {"w": Range(-1e4, 1e4, size=2), **rows, "y_old": SIGN, "y_new": SIGN}
    space["step"] = Range(1e-3, 1.0, log=True)  # of gamma_init = 1
    # Both labels far wrong, one row along g and one against it.
    guess: dict[str, Any] = {"w": [0.0, -1e4], "g": [1.0, 0.0], "y_old": 1.0, "y_new": 1.0}
    guess |= {"old": [1.0, 0.01], "new": [-1.0, 0.01], "step": 1.0}
    found, cases = largest(effort, query_change, space, guesses=[guess])

    def of_the_longest(step: float, **at: Any) -> float:
        return query_change(step=step, **at) * step

    whole, tried = largest(effort, of_the_longest, space, guesses=[guess])
    what = "n \\|q(D) - q(D')\\| / (2 gamma_init B_g \\|\\|g\\|\\|)"
    yield printed(what, whole, "<=", 1.0, tolerance=1e-9, cases=tried)
    yield used("the same with gamma for gamma_init", found, "<=", 1.0, tolerance=1e-9, cases=cases)
    yield used("that is, attained", found, ">=", 0.999)
    for noise in (0.002, 0.02):
        what = f"chance of a step uphill, printed - used, 2 B_g \\|\\|g\\|\\|/n = {noise:g}"
        yield used(what, wrong_step(noise, False) - wrong_step(noise, True), ">=", 0.05)


# --- 003-8: the steps of Algorithms 1 and 3 on functions that G and M allow ---


class Landscape(NamedTuple):
    """A smooth function with bounds on its curvature (G) and on how fast that changes (M)."""

    value: Callable[[Array], float]
    gradient: Callable[[Array], Array]
    hessian: Callable[[Array], Array]
    G: float
    M: float


class Tolerances(NamedTuple):
    """What Lemmas 2 and 6 are told: shares of noise, tolerances, where in their ranges to look."""

    c1: float
    c2: float
    c: float
    eps_g: float
    eps_H: float
    slack: float  # c_g and c_H over their largest values
    place: float  # gamma in its interval, from 0 to 1


def waves(random: np.random.Generator, d: int, cubic: bool) -> Landscape:
    """Return a random sum of two plane waves and a quadratic, or a cubic with unbounded G."""
    slopes, linear = random.normal(size=(2, d)), random.normal(size=d)
    heights, phases = random.normal(size=2), random.uniform(0.0, 2.0 * math.pi, size=2)
    A = symmetric(random.normal(size=d * (d + 1) // 2), d)
    bend = random.uniform(-3.0, 3.0) if cubic else 0.0
    sizes = np.linalg.norm(slopes, axis=1)

    def value(w: Array) -> float:
        quadratic = linear @ w + 0.5 * w @ A @ w + bend / 6.0 * np.sum(np.abs(w) ** 3)
        return float(quadratic + heights @ np.cos(slopes @ w + phases))

    def gradient(w: Array) -> Array:
        wave = slopes.T @ (heights * np.sin(slopes @ w + phases))
        return np.asarray(linear + A @ w + 0.5 * bend * w * np.abs(w) - wave)

    def hessian(w: Array) -> Array:
        wave = (slopes.T * (heights * np.cos(slopes @ w + phases))) @ slopes
        return np.asarray(A + np.diag(bend * np.abs(w)) - wave)

    G = float(np.linalg.norm(A, 2) + np.abs(heights) @ sizes**2)
    M = float(np.abs(heights) @ sizes**3 + abs(bend))
    return Landscape(value, gradient, hessian, math.inf if cubic else G, M)


def line(slope: float, curvature: float, G: float, M: float, cubic: bool) -> Landscape:
    """Return a function of one variable, as steep as its constants allow."""
    bend = M if cubic else 0.0
    return Landscape(
        lambda w: float(slope * w[0] + 0.5 * curvature * w[0] ** 2 + bend / 6.0 * abs(w[0]) ** 3),
        lambda w: slope + curvature * w + 0.5 * bend * w * np.abs(w),
        lambda w: np.array([[curvature + bend * abs(w[0])]]),
        G,
        M,
    )


def shortfalls(
    f: Landscape, w: Array, noise: Array, error: Array, given: Tolerances
) -> tuple[str, float, float]:
    """Return one iteration's kind, 1 - decrease/(10) and -q(gamma), scaled.

    ``noise`` and ``error``, of norm at most 1, are scaled to what (9) allows.
    """
    c1, c2, c, eps_g, eps_H, slack, place = given
    long, wide = theory.tolerated_noise(eps_g, eps_H, f.M, c, c1, c2)
    noisy = f.gradient(w) + long * noise
    values, vectors = np.linalg.eigh(f.hessian(w) + wide * error)
    length, low = float(np.linalg.norm(noisy)), float(values[0])
    G = f.G if math.isfinite(f.G) else 1.0  # does not matter for curvature
    along_gradient, along_curvature = short_decreases(eps_g, eps_H, G, f.M, c, c1, c2)
    if length > eps_g and math.isfinite(f.G):
        short = f.value(w) - f.value(w - noisy / f.G)
        c_g = slack * (1.0 - c1)
        step = max(place, 1e-3) * 2.0 * (1.0 - c1 - c_g) / f.G
        gained = f.value(w) - f.value(w - step * noisy)
        return "gradient", 1.0 - short / along_gradient, c_g - gained / (step * length**2)
    if length <= eps_g and low < -eps_H:
        p = vectors[:, 0] * (-1.0 if vectors[:, 0] @ noisy > 0.0 else 1.0)
        short = f.value(w) - f.value(w - 2.0 * low / f.M * p)
        c_H = slack * (1.0 - c - math.sqrt(8.0 * c2 / 3.0))
        t1, t2 = theory.curvature_roots(c, c2, c_H)
        step = -(t1 + place * (t2 - t1)) * low / f.M
        gained = f.value(w) - f.value(w + step * p)
        scaled = (-0.5 * c_H * step**2 * low - gained) * f.M**2 / abs(low) ** 3
        return "curvature", 1.0 - short / along_curvature, scaled
    return "none", -math.inf, -math.inf


def searched(random: np.random.Generator) -> tuple[str, float, float]:
    """Return the shortfalls of one random iteration, with noise as large as allowed."""
    d, cubic = int(random.integers(1, 4)), random.random() < 0.6
    f = waves(random, d, cubic)
    w = random.normal(size=d) * math.exp(random.uniform(-4.0, 0.5))
    g, H = f.gradient(w), f.hessian(w)
    noise = g if random.random() < 0.5 else random.normal(size=d)
    noise *= math.copysign(1.0, random.normal()) / float(np.linalg.norm(noise))
    error = symmetric(random.normal(size=d * (d + 1) // 2), d)
    error = np.outer(w, w) if random.random() < 0.5 else error
    error *= math.copysign(1.0, random.normal()) / float(np.linalg.norm(error, 2))
    c1, c2, c, slack, place = random.random(5)
    total = 3.001 * max(c2 + c, 1.0)
    eps_g = float(np.linalg.norm(g)) * math.exp(random.uniform(-1.0, 3.0 if cubic else 0.2))
    eps_H = float(np.linalg.norm(H, 2)) * math.exp(random.uniform(-2.0, 0.2))
    given = Tolerances(0.499 * c1, c2 / total, c / total, eps_g, eps_H, 0.999 * slack, place)
    return shortfalls(f, w, noise, error, given)


def extremes() -> Iterator[tuple[str, float, float]]:
    """Yield the shortfalls of functions that are chosen against the lemmas."""
    near, one = 1.0 - 1e-9, np.ones((1, 1))
    for place in (0.0, 1.0):
        given = Tolerances(0.25, 0.1, 0.2, 1.0, 1.0, 0.5, place)
        # The curvature is G, and the noise makes the gradient look longer.
        steep = line(1.0 / near - given.c1, 1.0, 1.0, 1e-3, False)
        yield shortfalls(steep, np.zeros(1), np.ones(1), one, given)
        # The noise hides that p~ goes uphill, and makes the curvature look stronger.
        hill = line(near * given.c2, -(1.0 / near - given.c), math.inf, 1.0, True)
        yield shortfalls(hill, np.zeros(1), -np.ones(1), -one, given)


def root_error(c: float, c2: float, c_s: float) -> float:
    """Return how far r(t1), r(t2) are from 0 and t1, t2 from (0, inf), real and in order."""
    c_H = 0.999999 * c_s * (1.0 - c - math.sqrt(8.0 * c2 / 3.0))
    exact = np.sort_complex(np.roots([-1.0 / 6.0, 0.5 * (1.0 - c - c_H), -c2]))
    if (exact.imag != 0.0).any() or exact[0].real < 0.0:
        return math.inf
    return float(np.abs(exact.real - np.array(theory.curvature_roots(c, c2, c_H))).max())


def search_failure(tries: int, odds: float) -> float:
    """Return P(a step that decreases f by less than (17) is accepted) / (xi/T).

    All queries are as far below zero as the decrease allows with the n of (16).
    """
    slack = printed_search_slack(tries, 1.0 / odds)
    law = above_threshold_distribution(np.full(tries, -slack), "laplace", 2.0, 4.0)
    return odds * float(law[:-1].sum())


@register(
    "003-8",
    "Lemmas 2, 6, 7: (10), (15), (17)",
    "MIN_DEC of the short step and of the line search; c_H in (0, 1 - c - sqrt(8 c2/3)), "
    "t1, t2 = 1.5 b -+ 3 sqrt(b^2/4 - 2 c2/3), b = 1 - c - c_H",
    verdict="holds",
)
def decrease(effort: Effort) -> Iterator[Evidence]:
    """Take steps with the largest noise on functions of all kinds; exact laws of the search."""
    random = effort.random()
    tried = [searched(random) for _ in range(effort.cases(4000, 30_000))]
    edges = list(extremes())
    for kind, query in (("gradient", "q_g"), ("curvature", "q_H")):
        found = np.array([falls for name, *falls in tried if name == kind]).max(axis=0)
        edge = np.array([falls for name, *falls in edges if name == kind]).max(axis=0)
        worst = np.maximum(found, edge)
        n = sum(name == kind for name, *_ in tried)
        what = f"1 - decrease / (10), {kind} steps"
        yield printed(what, worst[0], "<=", 0.0, tolerance=1e-9, cases=n)
        yield printed("that is, attained", worst[0], ">=", -1e-6)
        what = f"-{query} of Lemma 6, scaled"
        yield printed(what, worst[1], "<=", 0.0, tolerance=1e-9, cases=n)
        yield printed("that is, attained", worst[1], ">=", -1e-6)
    space = {"c": Range(1e-6, 0.3), "c2": Range(1e-3, 0.15), "c_s": Range(0.01, 1.0)}
    found, cases = largest(effort, root_error, space)
    yield printed("error of t1, t2, real and positive", found, "<=", 1e-5, cases=cases)
    tries = {"tries": Range(1, 60, log=True, integer=True), "odds": Range(1.01, 1e6, log=True)}
    found, cases = largest(effort, search_failure, tries, cost=8)
    yield printed("P(decrease < (17)) / (xi/T)", found, "<=", 1.0, tolerance=1e-9, cases=cases)
