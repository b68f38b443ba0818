"""Gao and Wright (2023): the objective of the experiments, and their results."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
from scipy import special, stats

from ... import theory
from ...audit.attack import Range
from ...experiments import minimize
from ...losses import Logistic
from ...methods import SecondOrder, TrustRegion
from ...privacy import Budget
from ...privacy.accounting.relations import REPLACE_ONE
from ...privacy.facts import PublicFacts
from ...problems import ERM, RowBound
from ...regularizers import GemanMcClure
from ...theory import SecondOrderTarget
from ..claim import Effort, Evidence, premise, printed, reading, used
from ..registry import register
from ..tools import Array, search_max, unit
from .convergence import CONSTANTS, SEARCH, SHORT, gradient_exceeds

# --- 003-12, 003-13, 003-15: the objective of the experiments ---


def penalty_curvature(w: Any) -> Any:
    """Return the second derivative of w^2/(1 + w^2)."""
    return (2.0 - 6.0 * w**2) / (1.0 + w**2) ** 3


def smallest_curvature(w: Array, rows: Array, strength: float = 1e-3) -> float:
    """Return -lambda_min of the Hessian of Section 4 over the strength, for three rows."""
    X = np.array([unit(x) for x in rows.reshape(3, w.size)])
    data = ERM(X, np.array([1.0, -1.0, 1.0]), Logistic()).hessian(w)
    whole = data + np.diag(strength * penalty_curvature(w))
    return -float(np.linalg.eigvalsh(whole)[0]) / strength


@register(
    "003-12",
    "Section 4, E.2, E.3",
    "the points found have lambda_min >= -eps_H, eps_H = .141 to .245, at lambda = 1e-3",
    "lambda_min >= -lambda/2 everywhere, so every point passes: the test is informative only if "
    "lambda > 2 eps_H",
    verdict="sharpened",
    says="'if any of the five runs failed to find a solution ...'; the exponent of lambda is lost "
    "in section 4 of our text, E.3 has 1e-3",
    hypotheses="any rows of norm at most 1, any weights",
)
def vacuous_test(effort: Effort) -> Iterator[Evidence]:
    """Search for the smallest eigenvalue that rows and weights can have."""
    d = 3
    space = {"w": Range(-10.0, 10.0, size=d), "rows": Range(-1.0, 1.0, size=3 * d)}
    valley = {"w": np.ones(d), "rows": np.zeros(3 * d)}
    found = search_max(effort, smallest_curvature, space, cost=2, guesses=[valley])
    yield printed("smallest eigenvalue, lambda = 1e-3", -1e-3 * found, ">=", -0.141)
    yield used("-lambda_min / (lambda/2)", 2.0 * found, "<=", 1.0, tolerance=1e-12)
    yield used("bound attained", 2.0 * found.max(), ">=", 0.999)
    # At least one row of norm 1 in every direction: data do not remove all negative curvature.
    low = -smallest_curvature(np.ones(d), np.eye(d).ravel(), strength=1.0)
    yield used("smallest eigenvalue, lambda = 1, rows e_1, e_2, e_3, w = 1", low, "<=", -0.245)


def printed_curvature(sign: float) -> float:
    """Return the least second derivative of 1/(1 + exp(-sign m)) + .0005 m^2 in the margin m."""
    p = special.expit(sign * np.linspace(-10.0, 10.0, 2001))
    return float((p * (1.0 - p) * (1.0 - 2.0 * p)).min()) + 1e-3


def either_label(effort: Effort) -> Iterator[Evidence]:
    """Flip the sign of the labels, so that the printed loss decreases with the margin."""
    p = special.expit(np.linspace(-10.0, 10.0, 2001))
    yield premise("largest difference of the two: 1 - 2 x", np.ptp(p + p[::-1]), "<=", 1e-12)
    best = max(printed_curvature(sign) for sign in (1.0, -1.0))
    yield printed("least curvature of the loss, better sign", best, ">=", 0.0)


@register(
    "003-13",
    "E.3",
    "the logistic loss is 1/(1 + exp(-m)) of the margin m",
    "ln(1 + exp(-m)), which is convex; the printed one is the sigmoid loss, and rises with m",
    verdict="corrected",
    says="'the logistic loss nabla l(w) = 1/n sum 1/(1 + exp(-y <x, w>)) + lambda/2 ||w||^2': a "
    "misprint",
    hypotheses="the formula as printed, lambda = 1e-3, a row of norm 1, labels of either sign",
    changes="runs of the authors that minimize the sigmoid loss: then the name is wrong",
    adversary=either_label,
)
def logistic_loss(effort: Effort) -> Iterator[Evidence]:
    """Test whether the loss is convex in the margin."""
    yield printed("least curvature of the loss", printed_curvature(1.0), ">=", 0.0)
    margins = np.linspace(-10.0, 10.0, 2001)
    convex = Logistic().second_derivative(margins, np.ones(2001))
    yield used("least curvature of the loss", convex, ">=", 0.0)


def change_quotients(w: Array, far: Array, x: Array, strength: float) -> tuple[float, float]:
    """Return ||grad f - grad f'||/(G ||w - w'||) and the same of the Hessians with M; one row."""
    x = unit(x)
    size = max(float(np.linalg.norm(w - far)), 1e-6)
    data, ends = ERM(x[None, :], np.ones(1), Logistic()), (w, far)
    gradients = [data.gradient(at) + 2.0 * strength * at / (1.0 + at**2) ** 2 for at in ends]
    hessians = [data.hessian(at) + np.diag(strength * penalty_curvature(at)) for at in ends]
    G, M, _, _ = theory.second_order_constants(1.0, strength)
    first = float(np.linalg.norm(gradients[0] - gradients[1])) / (G * size)
    return first, float(np.linalg.norm(hessians[0] - hessians[1], 2)) / (M * size)


@register(
    "003-15",
    "Section 4, footnote; E.3",
    "with bounded rows the losses have Lipschitz gradients and Hessians",
    "\\|\\|x\\|\\| <= 1: G = 1/4 + 2 lambda, M = 1/(6 sqrt 3) + 4.66856 lambda, B_g = 1, B_H = "
    "1/4; the penalty's second derivative is in [-lambda/2, 2 lambda]. The tolerances of the "
    "experiments, eps_H = sqrt(M eps_g), imply M = 1, the sharp constant for rows of norm 2.18; "
    "rows here are scaled to norm 1, for which it is .10 (003-27)",
    verdict="sharpened",
    says="'the two chosen losses have Lipschitz gradients and Hessians as long as the feature "
    "vector x_i's are bounded'; 'eps_H = sqrt(M alpha)'",
    hypotheses="rows of norm at most 1, any lambda",
)
def constants(effort: Effort) -> Iterator[Evidence]:
    """Use quotients at pairs of points, and maxima of the derivatives on a fine grid."""
    wide = {"w": Range(-1e3, 1e3, size=2), "far": Range(-1e3, 1e3, size=2)}
    rows = {"x": Range(-1.0, 1.0, size=2), "strength": Range(1e-4, 1e2, log=True)}
    found = search_max(effort, lambda **at: max(change_quotients(**at)), {**wide, **rows}, cost=3)
    yield printed("largest difference quotient / constant, w in [-1000, 1000]^2", found, "<=", 1.0)
    pairs = ((0.06, 0.245), (0.03, 0.173), (0.04, 0.2), (0.02, 0.141))
    implied = [eps_H**2 / eps_g for eps_g, eps_H in pairs]
    yield printed("M that eps_H and eps_g of the tables imply", implied, "==", 1.0, tolerance=0.01)
    sharp = theory.second_order_constants(1.0, 1e-3)[1]
    yield used("sharp M, lambda = .001 / that", sharp, "<=", 0.11)
    near = {"w": Range(-3.0, 3.0, size=2), "far": Range(-3.0, 3.0, size=2), **rows}
    # Next to 0, where both curvatures are largest, and to the largest third derivative.
    least = math.sqrt(1.0 - 2.0 / math.sqrt(5.0))
    flat: dict[str, Any] = {"w": [0.0, 0.0], "far": [1e-3, 0.0], "x": [1.0, 0.0], "strength": 1.0}
    bent = {**flat, "w": [least, 0.0], "far": [least + 1e-3, 0.0], "strength": 100.0}
    for i, (name, guess) in enumerate((("G", flat), ("M", bent))):
        found = search_max(
            effort, lambda i=i, **at: change_quotients(**at)[i], near, cost=3, guesses=[guess]
        )
        yield used(f"largest difference quotient / {name}", found, "<=", 1.0, tolerance=1e-9)
        yield used("bound attained", found.max(), ">=", 0.998)
    w = np.linspace(-10.0, 10.0, 2_000_001)
    second = penalty_curvature(w)
    yield used("largest second derivative of the penalty", second.max(), "<=", 2.0)
    yield used("smallest", second.min(), ">=", -0.5)
    bend = np.abs(24.0 * w * (w**2 - 1.0) / (1.0 + w**2) ** 4).max()
    known = theory.second_order_constants(0.0, 1.0).M
    yield used("largest third derivative of the penalty", bend, "==", known, tolerance=1e-5)
    slopes = Logistic().derivative(w, np.ones(w.size)), Logistic().second_derivative(w, 1.0)
    yield used("largest slope of the loss", np.abs(slopes[0]).max(), "<=", 1.0)
    yield used("largest curvature of the loss", slopes[1].max(), "==", 0.25, tolerance=1e-9)


# --- 003-36: two phases ---


@register(
    "003-36",
    "Introduction; section 3.4",
    "the two-phase heuristic retains the guarantees of the analysis",
    "with n_min for the part of rho that the second phase has: twice as many records at a quarter. "
    "The n_min of Theorem 4 for rho has this in reserve at the d of the experiments, unless "
    "T/zeta is small; the one used here has no reserve. The privacy is that of rho, which the two "
    "parts add up to",
    verdict="open",
    says="'we propose a heuristic that can obtain much more rapid convergence while retaining the "
    "guarantees provided by the analysis'; 'use a fraction (say 3/4) of the privacy budget to try "
    "out a smaller T'; 'fall back to the original algorithm with the remaining privacy budget'",
    hypotheses="d = 54, n_min with the sensitivities of (4) (003-29), the noise of the gradients "
    "alone; the first phase has found nothing, which its T allows",
    changes="whether n_min of Theorem 4 is meant for rho, or for what the second phase has of it; "
    "its order, (12), is the same",
)
def second_phase(effort: Effort) -> Iterator[Evidence]:
    """Use exact tails of the noise of the second phase, which a quarter of rho doubles."""
    what = "P(gradient's noise beyond (9)) T/zeta, second phase, a quarter of rho, n_min of"
    own = [gradient_exceeds(54, odds, 1, 1.0) for odds in (4.0, 4000.0)]
    yield reading(f"{what} a quarter, T/zeta = 4 and 4000", own, "<=", 1.0)
    yield reading(f"{what} rho, 4000", gradient_exceeds(54, 4000.0, 1, 0.5), "<=", 1.0)
    few = min(gradient_exceeds(54, 4.0, power, 0.5) for power in (1, 2))
    yield reading(f"{what} rho, 4, with or without a root in n_min", few, "<=", 1.0)
    limit = 0.5 * theory.gradient_noise_norm(54, 1.0, 1.0 / 4000.0)
    sharp = 4000.0 * float(stats.chi2.sf(limit**2, 54))
    yield used(f"{what} rho as used here, 4000", sharp, ">=", 1.0)
    target = SecondOrderTarget(0.06, 0.245, CONSTANTS, 54, 0.01)
    sizes = [
        theory.sample_complexity(each, SHORT).n for each in (replace(target, rho=0.0025), target)
    ]
    yield used("n_min of a quarter / of rho", sizes[0] / sizes[1], "==", 2.0, tolerance=1e-3)


# --- 003-37: the sample size of the experiments ---


def over_required(R: float, eps_g: float, eps_H: float, epsilon: float) -> float:
    """Return n of Covertype / n_min of short steps with the best shares, for rows of norm R."""
    constants = theory.second_order_constants(R, 1e-3)
    log = math.log(1e5)  # delta = 1e-5, by Proposition A.6
    rho = (math.sqrt(epsilon + log) - math.sqrt(log)) ** 2
    target = SecondOrderTarget(eps_g, eps_H, constants, 54, rho)
    shares = theory.best_shares(target, "short")
    return 495_141 / theory.sample_complexity(target, shares).n


@register(
    "003-37",
    "Section 4",
    "for a loose solution the n of Covertype is large compared with the required sample "
    "complexity, for a tight one it is small",
    "for the tight one it is below n_min at every budget; for the loose one it is above with the "
    "sharp constants of rows of norm 1 at epsilon = .6 and 1, and below at .2, and at every budget "
    "with M = 1, which the paper's eps_H implies (003-15): a run that stops does so without a "
    "guarantee",
    verdict="open",
    says="'our requirement for the 2NS is loose. This translates to a large sample size n compared "
    "to the required sample complexity'; budgets of .2, .6 and 1",
    hypotheses="n = 495,141, d = 54, delta = 1e-5, Proposition A.6, w0 = 0; short steps, the best "
    "c, c1 and c2, the noise used here, which needs fewer records than that of the paper; failure "
    ".05",
    changes="G, M and the norm of the rows, which the paper does not state: it scales ten columns, "
    "and the two one-hot blocks that it leaves give every row a norm of sqrt 2 at least",
)
def sizes(effort: Effort) -> Iterator[Evidence]:
    """Compute n_min with the constants most favorable to the paper, and with M = 1."""
    loose, tight = (0.06, 0.245), (0.03, 0.173)
    what = "n / n_min, loose solution, rows of norm"
    large = [over_required(1.0, *loose, epsilon) for epsilon in (0.6, 1.0)]
    yield reading(f"{what} 1, epsilon = .6 and 1", large, ">=", 2.0)
    yield reading(f"{what} 1, epsilon = .2", over_required(1.0, *loose, 0.2), ">=", 1.0)
    largest = over_required(2.18, *loose, 1.0)
    yield reading(f"{what} 2.18, for which M = 1, epsilon = 1", largest, ">=", 1.0)
    small = over_required(1.0, *tight, 1.0)
    yield printed("n / n_min, tight solution, rows of norm 1, epsilon = 1", small, "<=", 1.0)


# --- 003-27, 003-28: the experiments ---


class WithConstants(ERM):
    """A problem that declares constants G and M other than its sharp ones."""

    constants: tuple[float, float]

    def facts(self, *relation: Any, **options: Any) -> PublicFacts:
        """Return the facts, with these constants."""
        G, M = self.constants
        return replace(super().facts(*relation, **options), L=G, hessian_lipschitz=M)


@lru_cache(maxsize=16)
def runs_at(
    G: float, M: float, name: str, runs: int, epsilon: float, n: int
) -> tuple[float, float]:
    """Return mean iterations and final loss of runs from 0 to a loose solution."""
    # Two Gaussian clouds, rows of norm 1, lambda = .001.
    random, d = np.random.default_rng(0), 22
    y = np.where(random.random(n) < 0.2, 1.0, -1.0)
    X = y[:, None] * np.linspace(1.0, 0.0, d) + random.normal(size=(n, d))
    problem = WithConstants(
        X, y, Logistic(), GemanMcClure(1e-3), row_bound=RowBound(2, 1.0, "clip")
    )
    problem.constants = G, M
    eps: Any = (0.04, 0.2)
    method = {
        "DP-TR": TrustRegion(*eps),
        "OPT": SecondOrder(*eps, shares=SHORT),
        "2OPT-LS": SecondOrder(*eps, shares=SEARCH, step="line_search", two_phase=True),
    }[name]
    found = []
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "n = .* is below n_min", UserWarning)
        for seed in range(runs):
            budget = Budget(epsilon, 1e-6, REPLACE_ONE)
            run = minimize(problem, method, budget, rng=seed, record=())
            found.append((run.iterations, float(problem.value(run.w[0]))))
    iterations, loss = np.mean(found, axis=0)
    return float(iterations), float(loss)


def beside_trust_region(
    name: str, G: float, M: float, runs: int, epsilon: float = 1.0, n: int = 49_990
) -> tuple[float, float]:
    """Return iterations and final loss, relative to DP-TR; IJCNN has 49,990 rows in LIBSVM."""
    ours, theirs = (runs_at(G, M, each, runs, epsilon, n) for each in (name, "DP-TR"))
    return ours[0] / theirs[0], ours[1] / theirs[1]


@register(
    "003-27",
    "Introduction; Section 4",
    "OPT takes fewer iterations than DP-TR, and its final loss is lower, at high budgets",
    "each half is true, with different constants: at M = 1, which the paper's eps_H implies, OPT "
    "takes fewer iterations with the sharp G = .25, to nearly the same loss, and more with G = 1, "
    "to a lower loss. With M = .10, sharp for the rows of norm 1 here, fewer iterations are not "
    "found in any setting of Covertype and IJCNN (`figures second_order_tables`)",
    verdict="open",
    says="'our algorithm requires fewer iterations than DP-TR'; 'OPT outperforms TR, with much "
    "less runtime and lower final loss'",
    hypotheses="a loose solution, epsilon = 1; synthetic rows, 49,990 of 22 numbers as IJCNN has "
    "in LIBSVM (the paper prints 4999); runtime, which depends on the machine, is not judged here",
    changes="G, M, the start and the steps of the experiments, which the paper does not state",
)
def short_steps(effort: Effort) -> Iterator[Evidence]:
    """Run both with the constants most favorable to the paper, and with the sharp ones."""
    runs = effort.cases(1, 5)
    few, same = beside_trust_region("OPT", CONSTANTS.G, 1.0, runs)
    yield reading("iterations, OPT / DP-TR, G = .25, M = 1", few, "<=", 1.0, cases=runs)
    yield used("final loss, OPT / DP-TR, G = .25, M = 1", same, "<=", 1.05, cases=runs)
    many, low = beside_trust_region("OPT", 1.0, 1.0, runs)
    yield reading("final loss, OPT / DP-TR, G = M = 1", low, "<=", 1.0, cases=runs)
    sharp, _ = beside_trust_region("OPT", CONSTANTS.G, CONSTANTS.M, runs)
    what = "iterations, OPT / DP-TR, sharp G and M, and G = M = 1"
    yield reading(what, [sharp, many], "<=", 1.0)


@register(
    "003-28",
    "Section 5",
    "2OPT-LS consistently outperforms DP-TR in numerical experiments (the measure is left open: "
    "here iterations and loss)",
    "true for loose solutions of 49,990 rows at epsilon = 1, not at .2, nor at the printed n. Not "
    "found with the sharp constants in most settings of Covertype and IJCNN from 0, where it also "
    "stops in fewer, tight ones included; from a random start it takes fewer iterations in most "
    "(`python -m figures second_order_tables`)",
    verdict="open",
    says="'2OPT-LS ... consistently outperform DP-TR in numerical experiments'; in its tables, as "
    "far as our text has them, 2OPT-LS failed in 4 of 15 cells, and those of DP-TR are lost",
    hypotheses="a loose solution; synthetic rows, 49,990 of 22 numbers as IJCNN has in LIBSVM, and "
    "4,999 as the paper prints",
    changes="G, M, the start and the steps of the experiments, which the paper does not state",
)
def two_phases(effort: Effort) -> Iterator[Evidence]:
    """Run both with G = M = 1, and with the sharp constants."""
    runs = effort.cases(1, 5)
    what = "iterations and loss, 2OPT-LS / DP-TR, G = M = 1, epsilon = "
    yield reading(f"{what}1", beside_trust_region("2OPT-LS", 1.0, 1.0, runs), "<=", 1.0)
    yield reading(f"{what}.2", beside_trust_region("2OPT-LS", 1.0, 1.0, runs, 0.2), "<=", 1.0)
    as_printed = beside_trust_region("2OPT-LS", 1.0, 1.0, runs, n=4_999)
    yield reading(f"{what}1, n = 4,999", as_printed, "<=", 1.0)
    few, _ = beside_trust_region("2OPT-LS", CONSTANTS.G, CONSTANTS.M, runs)
    yield used("iterations, 2OPT-LS / DP-TR, sharp G and M", few, "<=", 1.0, cases=runs)
