"""Bounds on one release, conversions between notions of privacy, objective perturbation."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from scipy import optimize, stats

from ... import privacy
from ...audit.attack import Range, pair_quotient, quotient
from ...audit.exact import Density, renyi_divergence
from ...audit.laws import laws_of, renyi_curve
from ...losses import Logistic
from ...privacy.accounting import zcdp
from ...privacy.accounting.relations import ADD_OR_REMOVE_ONE, REPLACE_ONE
from ...privacy.accounting.sampling import Full
from ...privacy.events import Gaussian, Laplace
from ...privacy.facts import Block
from ...privacy.k_norm import norm_shape
from ...privacy.queries import PerturbedMinimum
from ...problems import ERM, Softmax
from ...problems.row_bound import RowBound
from ...regularizers import L2
from ..claim import Effort, Evidence
from ..tools import Array, gaussian_mixture, unit
from . import DELTA, EXCESS, LOSS, STD, attack, holds


def gaussian(center: float, std: float) -> Density:
    """Return a Gaussian density."""
    return gaussian_mixture(np.array([center]), std)


def laplace(center: float, scale: float) -> Density:
    """Return a Laplace density."""
    return Density(lambda x: -np.abs(x - center) / scale - math.log(2.0 * scale), (center,))


def _noise_ratio(
    event: Any, noise: Any, norm: int, excess: float, scale: float, shift: Array
) -> float:
    """Attack the Renyi cost of independent noise in every coordinate; sensitivity in a norm."""
    moved, order = unit(shift, norm), 1.0 + excess
    cost = event(scale, float(np.linalg.norm(moved, norm))).rdp_cost([order])[0]
    still = noise(0.0, scale)
    parts = [
        renyi_divergence(noise(float(s), scale), still, order, full_output=True)
        for s in moved
        if s != 0.0
    ]
    value, error = (math.fsum(column) for column in zip(*parts)) if parts else (0.0, 0.0)
    return quotient(float(cost), value, error, tolerance=1e-5)


def gaussian_ratio(
    excess: float, std: float, shift: Array, event: Callable[[float, float], Any] = Gaussian
) -> float:
    """Attack the Renyi cost of a Gaussian release in several dimensions."""
    return _noise_ratio(event, gaussian, 2, excess, std, shift)


@holds(
    "bounds-1",
    "`rdp_gaussian`, `Gaussian`; Mironov (2017), Corollary 3",
    "a shift of L2 norm S costs alpha S^2/(2 sigma^2) at order alpha, in any dimension",
)
def rdp_gaussian(effort: Effort) -> Iterator[Evidence]:
    """Integrate coordinate by coordinate."""
    space = {"excess": EXCESS, "std": STD, "shift": Range(-1.0, 1.0, size=2)}
    yield from attack(effort, "d = 2", gaussian_ratio, space, cost=10, exact=1e-7, tolerance=1e-5)


def laplace_ratio(
    excess: float, scale: float, shift: Array, event: Callable[[float, float], Any] = Laplace
) -> float:
    """Attack the Renyi cost of a Laplace release in several dimensions."""
    return _noise_ratio(event, laplace, 1, excess, scale, shift)


@holds(
    "bounds-2",
    "`rdp_laplace`, `Laplace`; Mironov (2017), Proposition 6",
    "a shift of L1 norm S costs no more than one coordinate moved by S, in any dimension",
)
def rdp_laplace(effort: Effort) -> Iterator[Evidence]:
    """Integrate coordinate by coordinate."""
    space = {"excess": EXCESS, "scale": Range(0.02, 1e3, log=True)}
    one = {**space, "shift": Range(1.0, 1.0, size=1)}
    two = {**space, "shift": Range(-1.0, 1.0, size=2)}
    yield from attack(effort, "d = 1", laplace_ratio, one, cost=16, exact=1e-7, tolerance=1e-5)
    yield from attack(effort, "d = 2", laplace_ratio, two, cost=16, tolerance=1e-5)


def pair_loss(table: Array) -> float:
    """Return the pure loss of the two rows."""
    return float(np.abs(np.log(table[0] / table[1])).max())


def pure_ratio(
    excess: float, logits: Array, spread: float, bound: Callable[..., float] = privacy.rdp_pure
) -> float:
    """Attack the Renyi cost of any two laws of three outcomes, from their pure loss."""
    table = laws_of(logits, 3, spread)
    order = 1.0 + excess
    return pair_quotient(bound(order, pair_loss(table)), table, order=order, tolerance=1e-6)


PAIR = {"logits": Range(-1.0, 1.0, size=6), "spread": Range(1e-3, 25.0, log=True)}
# Randomized response with a rare third outcome that reveals nothing.
RESPONSE = [1.0, -1.0, -1.0, -1.0, 1.0, -1.0]


@holds(
    "bounds-3",
    "`rdp_pure`; tight form of Bun, Steinke (2016), Proposition 3.3",
    "no epsilon-private release costs more than randomized response at any order",
)
def rdp_pure(effort: Effort) -> Iterator[Evidence]:
    """Search over any two laws of three outcomes."""
    space = {"excess": EXCESS, **PAIR}
    guess = {"excess": 1.0, "logits": RESPONSE, "spread": 20.0}
    yield from attack(
        effort, "three outcomes", pure_ratio, space, guesses=[guess], tight=1e-6, tolerance=1e-6
    )


def zcdp_ratio(
    excess: float, logits: Array, spread: float, bound: Callable[..., float] = privacy.zcdp_pure
) -> float:
    """Attack the bound on rho of any two laws of three outcomes, from their pure loss."""
    table = laws_of(logits, 3, spread)
    order = 1.0 + excess
    return pair_quotient(order * bound(pair_loss(table)), table, order=order, tolerance=1e-6)


@holds(
    "bounds-4",
    "`zcdp_pure`; errata 003-6",
    "an epsilon-private release is rho-zCDP with rho = epsilon tanh(epsilon/2)",
)
def zcdp_pure(effort: Effort) -> Iterator[Evidence]:
    """Search over two laws of three outcomes; attained as the order tends to 1."""
    space = {"excess": EXCESS, **PAIR}
    guess = {"excess": 1e-4, "logits": RESPONSE, "spread": 0.5}
    yield from attack(
        effort, "three outcomes", zcdp_ratio, space, guesses=[guess], tight=1e-3, tolerance=1e-6
    )


def rdp_to_epsilon_ratio(
    excess: float,
    delta: float,
    logits: Array,
    spread: float,
    bound: Callable[..., tuple[float, float]] = privacy.rdp_to_epsilon,
) -> float:
    """Return delta / exact delta at the epsilon that the divergences at one order imply."""
    table = laws_of(logits, 3, spread)
    order = 1.0 + excess
    divergence = float(renyi_curve(table, table[::-1], [order]).max())
    epsilon = bound([order], [divergence], delta)[0]
    return pair_quotient(delta, table, epsilon=epsilon, tolerance=1e-5)


@holds(
    "bounds-5",
    "`rdp_to_epsilon`; Canonne, Kamath, Steinke (2020), Proposition 12",
    "epsilon = R + ln(1 - 1/alpha) - (ln delta + ln alpha)/(alpha - 1), at any one order",
)
def rdp_to_epsilon(effort: Effort) -> Iterator[Evidence]:
    """Search over two laws of three outcomes: delta at the returned epsilon."""
    space = {"excess": EXCESS, "delta": DELTA, **PAIR}
    # P is nearly all on an outcome of probability e^-z under Q: tight at delta = 1/alpha.
    guess = {"excess": 9.0, "delta": 0.1, "logits": [1, -1, -1, 0.4, 1, -1], "spread": 15.0}
    options: dict[str, Any] = {"guesses": [guess], "tight": 0.01, "tolerance": 1e-5}
    yield from attack(effort, "delta of three outcomes", rdp_to_epsilon_ratio, space, **options)


def smallest_rho(table: Array) -> float:
    """Return the smallest rho of two laws, to a relative 1e-10: the largest D_alpha/alpha."""

    def slope(log_excess: Any) -> Any:
        orders = 1.0 + np.exp(np.atleast_1d(log_excess))
        return (renyi_curve(table, table[::-1], orders) / orders).max(axis=0)

    grid = np.linspace(-14.0, 14.0, 281)
    best = int(np.argmax(slope(grid)))
    ends = grid[max(best - 1, 0)], grid[min(best + 1, grid.size - 1)]
    inside = optimize.minimize_scalar(
        lambda x: -float(slope(x)[0]), bounds=ends, method="bounded", options={"xatol": 1e-7}
    )
    kullback_leibler = float(np.abs((table * np.log(table / table[::-1])).sum(axis=1)).max())
    return max(-float(inside.fun), float(slope(grid).max()), kullback_leibler)


def zcdp_to_epsilon_ratio(
    delta: float,
    logits: Array,
    spread: float,
    bound: Callable[[float, float], float] = privacy.zcdp_to_epsilon,
) -> float:
    """Return delta / exact delta at the epsilon that the smallest rho of two laws implies."""
    table = laws_of(logits, 3, spread)
    epsilon = bound(smallest_rho(table), delta) * (1.0 + 1e-9)  # as exact as rho is
    return pair_quotient(delta, table, epsilon=epsilon, tolerance=1e-5)


def gaussian_quotient(delta: float, std: float, epsilon: float) -> float:
    """Return delta / exact at epsilon of Gaussian noise of sensitivity 1, by quadrature."""
    laws = gaussian(1.0, std), gaussian(0.0, std)
    return pair_quotient(delta, laws, epsilon=epsilon, tolerance=1e-6)


def gaussian_zcdp_ratio(std: float, delta: float) -> float:
    """Return delta over that of Gaussian noise at the epsilon of its rho."""
    return gaussian_quotient(delta, std, privacy.zcdp_to_epsilon(zcdp.zcdp_gaussian(std), delta))


@holds(
    "bounds-6",
    "`zcdp_to_epsilon`, `zcdp_gaussian`; Canonne, Kamath, Steinke (2020)",
    "rho-zCDP implies the smallest epsilon that any order gives",
)
def zcdp_to_epsilon(effort: Effort) -> Iterator[Evidence]:
    """Search over two laws of three outcomes, and Gaussian noise by quadrature."""
    space = {"delta": DELTA, **PAIR}
    yield from attack(
        effort, "delta of three outcomes", zcdp_to_epsilon_ratio, space, cost=4, tolerance=1e-5
    )
    noise = {"std": STD, "delta": DELTA}
    yield from attack(
        effort, "delta of Gaussian noise", gaussian_zcdp_ratio, noise, cost=16, tolerance=1e-6
    )


def epsilon_to_zcdp_ratio(
    epsilon: float, delta: float, bound: Callable[[float, float], float] = privacy.epsilon_to_zcdp
) -> float:
    """Return delta over that of the Gaussian noise that the rho of a budget allows."""
    std = math.sqrt(0.5 / bound(epsilon, delta))
    return gaussian_quotient(delta, std, epsilon)


@holds("bounds-7", "`epsilon_to_zcdp`", "the rho of an (epsilon, delta) budget implies that budget")
def epsilon_to_zcdp(effort: Effort) -> Iterator[Evidence]:
    """Integrate Gaussian noise of that rho."""
    space = {"epsilon": LOSS, "delta": DELTA}
    yield from attack(
        effort, "delta of Gaussian noise", epsilon_to_zcdp_ratio, space, cost=16, tolerance=1e-6
    )


def gaussian_delta_ratio(std: float, epsilon: float) -> float:
    """Attack the delta of Gaussian noise at epsilon."""
    claimed = float(privacy.gaussian_delta(std, epsilon))
    if claimed < 1e-12:  # rounding, not privacy
        return 1.0
    return gaussian_quotient(claimed, std, epsilon)


def two_gaussians_ratio(
    first: float,
    second: float,
    epsilon: float,
    bound: Callable[..., float] = privacy.gaussian_delta,
) -> float:
    """Attack the delta of two Gaussian releases, integrated over the first answer."""
    claimed = bound(1.0 / math.hypot(1.0 / first, 1.0 / second), epsilon)
    x = np.linspace(-12.0, 12.0, 4001)
    left = epsilon - (x + 0.5 / first) / first  # the remaining loss after the first answer, under P
    # The second answer y ~ N(0, s^2) under Q, N(1, s^2) under P; its loss is (y - 1/2)/s^2.
    reached = second**2 * left + 0.5
    surplus = stats.norm.sf(reached, 1.0, second) - np.exp(left) * stats.norm.sf(
        reached, 0.0, second
    )
    exact = float(np.trapezoid(stats.norm.pdf(x) * surplus, x))
    if claimed < 1e-12:  # rounding, not privacy
        return 1.0
    return quotient(claimed, exact)


@holds(
    "bounds-8",
    "`gaussian_delta`; Balle, Wang (2018), Theorem 8",
    "the exact delta of Gaussian noise; several releases equal one whose mu^2 is the sum",
)
def gaussian_delta(effort: Effort) -> Iterator[Evidence]:
    """Integrate the definition, and two releases in turn."""
    space = {"std": STD, "epsilon": Range(0.0, 50.0)}
    yield from attack(
        effort, "one release", gaussian_delta_ratio, space, cost=8, exact=1e-6, tolerance=1e-6
    )
    wide = Range(0.3, 10.0, log=True)
    pair = {"first": wide, "second": wide, "epsilon": Range(0.0, 2.0)}
    yield from attack(effort, "two releases", two_gaussians_ratio, pair, exact=1e-6, tolerance=1e-6)


def gaussian_epsilon_ratio(
    std: float, delta: float, bound: Callable[..., float] = privacy.gaussian_epsilon
) -> float:
    """Return delta over that of Gaussian noise at the claimed epsilon."""
    epsilon = bound(std, delta)
    found = gaussian_quotient(delta, std, epsilon)
    return found if epsilon > 0.0 else min(found, 1.0)  # at 0 there is no smaller epsilon


@holds(
    "bounds-9",
    "`gaussian_epsilon`; Balle, Wang (2018)",
    "the smallest epsilon of Gaussian noise at delta",
)
def gaussian_epsilon(effort: Effort) -> Iterator[Evidence]:
    """Integrate delta at the returned epsilon."""
    space = {"std": STD, "delta": DELTA}
    yield from attack(
        effort, "delta", gaussian_epsilon_ratio, space, cost=12, exact=1e-6, tolerance=1e-6
    )


# --- objective perturbation with noise in blocks: densities of minimizers at points ---

BLOCKS = (Block(2, math.inf, 1.0), Block(2, 1, 1.0))  # a cube and a group of indicators
CLASSES = 3


def row(x: Array) -> Array:
    """Return a row within the blocks: the second block is shortened if it is too long."""
    return np.append(x[:2], x[2:] / max(1.0, float(abs(x[2:]).sum())))


def log_density(
    query: PerturbedMinimum, w: Array, X: Array, labels: list[int], n: int, convexity: float
) -> float:
    """Return the logarithm of the minimizer's density at ``w``, one row a prediction."""
    loss, K = Logistic(), len(w)
    b, M = -n * convexity * w, n * convexity * np.eye(w.size)
    for x, label in zip(X, labels):
        z = w @ x
        if K == 1:
            sign = 2.0 * label - 1.0
            theta = loss.derivative(z, np.array([sign]))
            curvature = loss.second_derivative(z, np.array([sign]))[:, None]
        else:
            p = np.exp(z - z.max())
            p /= p.sum()
            theta, curvature = p - np.eye(K)[label], np.diag(p) - np.outer(p, p)
        b = b - np.outer(theta, x)
        M = M + np.kron(curvature, np.outer(x, x))
    cube, group = query.shape
    norms = abs(b[:, :2]).max(axis=1) / cube.radius + abs(b[:, 2:]).sum(axis=1) / group.radius
    return float(np.linalg.slogdet(M)[1] - norms.sum() / query.scale)


def blocks_ratio(
    w: Array, first: Array, second: Array, scale: float, convexity: float, relation: str
) -> float:
    """Attack the pure cost: a second record is added, or replaces the first."""
    w = w.reshape(-1, 4)
    K, X = len(w), np.array([row(first), row(second)])
    bound = RowBound(BLOCKS, 1.0)
    one: Any = X[:1]
    problem: Any = (
        ERM(one, [1.0], Logistic(), L2(convexity), bound)
        if K == 1
        else Softmax(one, [0], K, L2(convexity), bound)
    )
    facts = problem.facts(relation)
    shape = norm_shape(facts.block_sensitivities(1)[0])
    query = PerturbedMinimum("blocks", scale, 0.0, 1e-9, 1.0, shape)
    event: Any = query.event(facts, Full())
    kept = [0, 1] if relation == ADD_OR_REMOVE_ONE else [1]
    labels = [min(1, K), 0] if K == 1 else [0, 1]
    logs = [
        log_density(query, w, X[rows], [labels[i] for i in rows], 1, convexity)
        for rows in ([0], kept)
    ]
    return quotient(event.events[0].epsilon, abs(logs[0] - logs[1]))


@holds(
    "bounds-31",
    "`PerturbedMinimum`, `norm_shape`; Chaudhuri, Monteleoni, Sarwate (2011); Hardt, Talwar (2010)",
    "objective perturbation with noise in blocks costs the sum of the blocks' shifts over their "
    "scales plus k ln(1 + trace/(kc)); for logistic regression the latter is replaced by max_p (p "
    "a + ln(1 + 4 p (1 - p) trace/c)) - a, where a is the shift of one record",
)
def blocks_cost(effort: Effort) -> Iterator[Evidence]:
    """Search for the largest log ratio of the densities of two minimizers."""
    corner = np.array([1.0, 1.0, 1.0, 0.0])
    for K, what in ((1, "logistic"), (CLASSES, "softmax")):
        for relation in (ADD_OR_REMOVE_ONE, REPLACE_ONE):
            space = {
                "w": Range(-10.0, 10.0, size=4 * K),
                "first": Range(-1.0, 1.0, size=4),
                "second": Range(-1.0, 1.0, size=4),
                "scale": Range(0.01, 30.0, log=True),
                "convexity": Range(0.01, 1e3, log=True),
            }
            attained = K == 1 and relation == ADD_OR_REMOVE_ONE
            far = {
                "w": 10.0 * np.tile(corner, K), "first": np.zeros(4), "second": corner,
                "scale": 0.01, "convexity": 1e3,
            }  # fmt: skip
            ratio = partial(blocks_ratio, relation=relation)
            yield from attack(
                effort, f"{what}, {relation}", ratio, space, cost=4, guesses=[far],
                tight=1e-3 if attained else None, tolerance=1e-8,
            )  # fmt: skip
