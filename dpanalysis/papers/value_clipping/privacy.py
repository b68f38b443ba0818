"""Fang et al. (2023): value clipping, and the privacy cost of runs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import special, stats

from ... import privacy
from ...audit.attack import Range
from ...losses import Logistic
from ..claim import Effort, Evidence, premise, printed, used
from ..registry import register
from ..tools import (
    LONG_RUNS,
    Mixture,
    epsilon_bounds,
    excess_at_share,
    excess_of_long_runs,
    of_adversary,
    search_max,
)


def value_weight(gap: Any, beta1: float, clip_norm: float) -> Any:
    """Return 1/max(1, sqrt(beta1 (f - f_lb))/C), the scaling of Algorithm 3."""
    return 1.0 / np.maximum(1.0, np.sqrt(beta1 * np.asarray(gap)) / clip_norm)


# --- 004-1: the quantity that scales a gradient ---


def clipped_norm(one: float, others: float, n: int, ratio: float, mean: bool) -> float:
    """Return ||g_1||/C, logistic, rows of norm 1: margins of the first sample and the others."""
    margins = np.array([one, others])
    losses = np.logaddexp(0.0, -margins)
    norms = special.expit(-margins)
    gap = (losses[0] + (n - 1) * losses[1]) / n if mean else losses[0]
    return float(norms[0] * value_weight(gap, 0.5, 1.0 / ratio) * ratio)


def own_norm(margin: float, residual: float, row: float, clip_norm: float) -> float:
    """Return ||g||/C where each loss scales its own gradient: the largest of three."""
    kappa = Logistic().weak_growth(row)[0]
    loss, slope = float(np.logaddexp(0.0, -margin)), float(special.expit(-margin))
    logistic = [
        row * slope * float(value_weight(loss, beta1, clip_norm)) for beta1 in (0.5 * row**2, kappa)
    ]
    squared = row * abs(residual)
    squared *= float(value_weight(0.5 * residual**2, 2.0 * row**2, clip_norm))
    return max(*logistic, squared) / clip_norm


SCALING = {
    "one": Range(-30.0, 30.0),
    "others": Range(-30.0, 30.0),
    "n": Range(1, 1000, log=True, integer=True),
    "ratio": Range(0.1, 100.0, log=True),
}


def one_bad_sample(effort: Effort) -> Iterator[Evidence]:
    """Check weak growth of the samples and f_lb = 0; scale by the mean of the losses."""
    margins = np.linspace(-30.0, 30.0, 1001)
    losses = np.logaddexp(0.0, -margins)
    yield premise(
        "\\|\\|grad f_i\\|\\|^2 / (f_i/2)", 2.0 * special.expit(-margins) ** 2 / losses, "<=", 1.0
    )
    yield premise("smallest f_i - f_lb", losses, ">=", 0.0)
    found = search_max(effort, lambda **at: clipped_norm(**at, mean=True), SCALING)
    yield printed("norm / C, scaled by f", found, "<=", 1.0)


@register(
    "004-1",
    "Algorithm 3, line 4",
    "grad f_i / max{1, sqrt(beta1 (f - f_lb) + beta2)/C} has norm <= C",
    "with f_i in place of f",
    verdict="corrected",
    says='Line 4 divides by a maximum with f(w); "the norm of the clipped gradient is guaranteed '
    'to be bounded by C".',
    hypotheses="(1/2, 0)-weak growth of logistic losses of unit rows, f_lb = 0",
    changes="Section 5 prints f_i just above the algorithm: line 4 is a slip, and holds with f_i.",
    adversary=one_bad_sample,
)
def scaling(effort: Effort) -> Iterator[Evidence]:
    """Search over one sample far worse than the others, and over losses, rows and C."""
    yield from of_adversary(one_bad_sample, effort)
    found = search_max(effort, lambda **at: clipped_norm(**at, mean=False), SCALING)
    yield used("norm / C, scaled by f_i", found, "<=", 1.0, tolerance=1e-12)
    space = {
        "margin": Range(-50.0, 50.0),
        "residual": Range(-50.0, 50.0),
        "row": Range(0.01, 100.0, log=True),
        "clip_norm": Range(0.01, 100.0, log=True),
    }
    found = search_max(effort, own_norm, space)
    yield used("logistic (both constants) and squared losses", found, "<=", 1.0, tolerance=1e-12)
    yield used("bound attained", found.max(), ">=", 0.999)


# --- 004-2, 004-3: misprints in Proposition 4.4 ---


def one_release(epsilon: float, delta: float) -> float:
    """Return true delta / delta of one release on all data, sigma of Theorem 3.4, c2 = 2."""
    std = 2.0 * math.sqrt(math.log(1.0 / delta)) / epsilon
    return privacy.gaussian_delta(std, epsilon) / delta


def always_seen(c2: float, delta: float = 0.6) -> dict[str, float]:
    """Return a budget, and an upper bound of (1 - delta)/(1 - delta claimed) for w^(i), B = n.

    One record has a gradient of length C or more, the others have none (n is so large that the gap
    of f is small). In units of the distance that C moves in T steps, w^(i) is u = i/T with noise s
    sqrt(u), or 0 with that noise if the record is absent; beyond ``limit`` it is judged present.
    """
    log = math.log(1.0 / delta)
    epsilon = 100.0 * max(1.0, c2**2 * max(1.0, log))
    s = c2 * math.sqrt(log) / epsilon
    limit = s * math.sqrt(2.0 * (epsilon + 7.0))
    early = limit + 10.0 * s  # the share of iterates that are left out; a thousandth for rounding i
    caught = (1.0 - early - 1e-3) * special.ndtr((early - limit) / (s * math.sqrt(early)))
    missed = 1.0 - caught + math.exp(epsilon + special.log_ndtr(-limit / s))
    return {"epsilon": epsilon, "delta": delta, "missed": missed / (1.0 - delta)}


def delta_above_half(effort: Effort) -> Iterator[Evidence]:
    """Choose c1 and c2 in the paper's favor (T >= 1000); delta is in (.5, 1) as printed."""
    found = [always_seen(c2) for c2 in np.geomspace(1e-3, 1e6, effort.cases(19, 91))]
    deltas = [at["delta"] for at in found]
    yield premise("delta", deltas, ">=", 0.501)
    yield premise("the same, below 1", deltas, "<=", 0.999)
    what = "(1 - delta)/(1 - delta claimed) of one iterate, largest over c2 from .001 to 1e6"
    yield printed(what, max(at["missed"] for at in found), ">=", 1.0, cases=len(found))


@register(
    "004-2",
    "Proposition 4.4, Theorem 4.5",
    "Algorithm 1 is (epsilon, delta)-DP for any epsilon > 0 and delta in (.5, 1)",
    "an epsilon as in 000-9, and a delta below .5, as delta'; no violation found is due to a delta "
    "in (.5, 1) alone",
    verdict="corrected",
    says='"Given any epsilon > 0 and delta, delta\' in (0.5, 1)"; "Return: w^(i)", i uniform.',
    hypotheses="delta = .6, B = n, any T >= 1000, sigma of (2), one iterate released, for any c2",
    changes="A bound on epsilon, such as that of 000-9: the epsilon of the violations is 100 or "
    "more; at 1/2, with one iterate released, none is known. The range of delta is a misprint, as "
    "no budget has such a delta; the rate of Theorem 4.5 stands. Its proof (B.3) bounds "
    "E(X | A) by 2 E(X), where P(A) >= 1 - delta' must be a half or more.",
    adversary=delta_above_half,
)
def range_of_delta(effort: Effort) -> Iterator[Evidence]:
    """Compute exact deltas of Gaussian noise, near 1 and below a half."""
    yield from of_adversary(delta_above_half, effort)
    space = {"epsilon": Range(1e-3, 1.0, log=True), "delta": Range(1e-12, 0.5, log=True)}
    found = search_max(effort, one_release, space)
    yield used("delta / delta claimed, c2 = 2, one release", found, "<=", 1.0)


def seen_ever(c1: float, c2: float, delta: float, epsilon: float, draws: float) -> dict[str, float]:
    """Return a setting with T >= 2 epsilon/c1, and a lower bound of delta/delta claimed, w^(i).

    The records are those of :func:`always_seen`, and q = draws/T. The record that differs is in one
    of the first i batches with probability 1 - (1 - q)^i, and has then moved w^(i) by C or more.
    """
    steps = max(100, math.ceil(2.0 * epsilon / c1))
    rate = draws / steps
    std = c2 * rate * steps * math.sqrt(math.log(1.0 / delta)) / epsilon  # of T steps, over C
    share = 1.0 + math.expm1((steps + 1) * math.log1p(-rate)) / ((steps + 1) * rate)
    found = share * special.ndtr(0.5 / std) - math.exp(epsilon + special.log_ndtr(-0.5 / std))
    return {"T c1 / epsilon": steps * c1 / epsilon, "q": rate, "excess": found / delta}


def shortest_runs(effort: Effort) -> Iterator[Evidence]:
    """Choose c1 and c2 in the paper's favor; delta as printed, and as intended."""
    constants = np.geomspace(1e-3, 1e3, effort.cases(7, 25))
    for where, small in (("delta = .6", False), ("epsilon = 1, delta = 1e-8/max(1, c2)", True)):
        found = []
        for c1, c2 in itertools.product(constants, constants):
            delta = 1e-8 / max(1.0, c2) if small else 0.6
            epsilon, draws = (1.0, 4.0 * delta) if small else (2000.0 * max(1.0, c2**2), 6.0)
            found.append(seen_ever(c1, c2, delta, epsilon, draws))
        yield premise("T / (epsilon/c1)", [at["T c1 / epsilon"] for at in found], ">=", 1.001)
        yield premise("q", [at["q"] for at in found], "<=", 1.0)
        what = f"delta / delta claimed, one iterate, smallest over c1, c2, {where}"
        yield printed(what, min(at["excess"] for at in found), "<=", 1.0, cases=len(found))


@register(
    "004-3",
    "Proposition 4.4, Theorem 4.5",
    "Algorithm 1 is (epsilon, delta)-DP if T > epsilon/c1",
    "T > epsilon/(c1 q^2), at an epsilon as in 000-9",
    verdict="corrected",
    says='"set T > epsilon/c1", with sigma = c2 B sqrt(T log(1/delta))/(n epsilon).',
    hypotheses="T > epsilon/c1, sigma of (2), delta as printed and as intended (004-2), one "
    "iterate released, for any c1 and c2; epsilon, which is free, is 2000 or more at delta = .6, "
    "and 1, below ln(1/delta), at the intended ones: there 000-9 is not the reason",
    changes="It is a misprint in a premise: Theorem 3.4 has q^2. The rate of Theorem 4.5 stands; "
    "its T = Theta(n^2 epsilon^2/d) then needs B^2 >= d/(c1 epsilon). The event of no clipping, "
    "\\|\\|f_i\\|\\| <= C, lacks a gradient in the same way; the words beside it show what is "
    "meant.",
    adversary=shortest_runs,
)
def run_length(effort: Effort) -> Iterator[Evidence]:
    """Use small batches and the shortest run allowed."""
    yield from of_adversary(shortest_runs, effort)
    space = {
        "rate": Range(1e-3, 0.5, log=True),
        "epsilon": Range(0.02, 1.0, log=True),
        "delta": Range(1e-8, 0.5, log=True),
        "factor": Range(1.0, 100.0, log=True),
    }
    longer = search_max(effort, excess_of_long_runs, space, cost=6)
    yield used("epsilon / epsilon claimed, c1 = 1, c2 = 2, sigma >= 1", longer, "<=", 1.0)


# --- 004-7: the runs of Figure 1 ---


def renyi_epsilon(rate: float, steps: int, delta: float) -> float:
    """Return epsilon by RDP at Opacus' orders, divergences by quadrature; sigma = 1."""
    orders = np.concatenate([1.0 + np.arange(1, 100) / 10.0, np.arange(12.0, 64.0)])
    x = np.arange(-15.0, 80.0, 0.01)
    ratio = np.logaddexp(math.log1p(-rate), math.log(rate) + x - 0.5)
    log_q = stats.norm.logpdf(x) + math.log(0.01)
    moments = np.array([special.logsumexp(a * ratio + log_q) for a in orders])
    costs = steps * moments / (orders - 1.0)
    return float(privacy.rdp_to_epsilon(orders, costs, delta)[0])


@register(
    "004-7",
    "Figure 1",
    "the runs on MNIST and CIFAR are (1.0379, 1e-5)- and (.9580, 1e-5)-DP",
    "true by RDP at Opacus's orders, for 10 epochs at q = 1/469 and 5 at q = 1/390; .734 and .576 "
    "by PLD",
    verdict="sharpened",
)
def figure_one(effort: Effort) -> Iterator[Evidence]:
    """Use quadrature at every order, and composition with bounds from both sides."""
    delta = 1e-5
    for name, inverse, epochs, claimed in (("MNIST", 469, 10, 1.0379), ("CIFAR", 390, 5, 0.958)):
        rate, steps = 1.0 / inverse, epochs * inverse
        by_rdp = renyi_epsilon(rate, steps, delta)
        what = f"epsilon by RDP, {name}, q = 1/{inverse}, T = {steps}"
        yield printed(what, by_rdp, "==", claimed, tolerance=5e-5)
        step = privacy.events.Sampled(
            privacy.Poisson(rate), [privacy.events.Gaussian(std=1.0, sensitivity=1.0)]
        )
        by_pld = privacy.epsilon(
            privacy.events.Repeated(step, steps), delta, privacy.ADD_OR_REMOVE_ONE, "pld"
        )
        yield used("by PLD", by_pld, "<=", 0.75 * claimed)
        if effort.quick and name == "MNIST":
            continue
        mixture = Mixture(np.array([1.0 - rate, rate]), np.array([0.0, 1.0]), 1.0)
        low, high = epsilon_bounds(mixture, steps, delta)
        yield used(f"lower bound, {name}", low, "<=", by_pld)
        yield used("upper bound", high, ">=", by_pld)


# --- 004-13: the privacy of value clipping ---


def returned_iterate(effort: Effort) -> Iterator[Evidence]:
    """Choose c1 and c2 in the paper's favor (T >= 1000)."""
    factors = np.geomspace(1e-3, 1e6, effort.cases(19, 91))
    found = [always_seen(c2, delta) for c2 in factors for delta in (1e-8, 1e-5, 0.1)]
    shares = [
        at["epsilon"] / (c1 * max(1000, math.ceil(2.0 * at["epsilon"] / c1)))
        for at in found
        for c1 in (1e-3, 1.0, 1e3)
    ]
    yield premise("epsilon / (c1 q^2 T) at T = 1000 or 2 epsilon/c1, B = n", shares, "<=", 0.501)
    exact = [(1.0 - at["missed"] * (1.0 - at["delta"])) / at["delta"] for at in found]
    what = "delta of w^(i) / delta claimed, smallest over c2 from .001 to 1e6, delta 1e-8 to .1"
    yield printed(what, min(exact), "<=", 1.0, cases=len(exact))


@register(
    "004-13",
    "Corollary 5.1 (of Theorem 3.4: Abadi et al. 2016, Theorem 1, quoted)",
    "value clipping is (epsilon, delta)-DP for some c1, c2 if sigma >= c2 q sqrt(T ln 1/delta)/"
    "epsilon, for any epsilon < c1 q^2 T and delta > 0",
    "per-sample values (004-1), and epsilon <= min{q^2 T, ln 1/delta} with c2 = 2, as for gradient "
    "clipping (000-9); noise is calibrated by an accountant",
    verdict="corrected",
    says='"There exist constants c1 and c2, such that for any epsilon < c1 q^2 T, Algorithm 3 is '
    '(epsilon, delta)-DP for any delta > 0"; "Return: w^(i)", i uniform.',
    hypotheses="B = n, epsilon < c1 q^2 T, the least sigma allowed, for any c1 and c2, which are "
    "chosen first; one iterate released",
    changes="A bound on epsilon, such as epsilon <= ln(1/delta), which all usual budgets satisfy.",
    adversary=returned_iterate,
)
def value_clipping_privacy(effort: Effort) -> Iterator[Evidence]:
    """Compose Gaussian noise on clipped sums; the clipping rule makes no difference."""
    yield from of_adversary(returned_iterate, effort)
    found = search_max(effort, excess_at_share, LONG_RUNS, cost=10)
    yield used("epsilon / epsilon claimed", found, "<=", 1.0)
