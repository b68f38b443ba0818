"""Sample complexity of private approximate second-order points (Gao and Wright 2023).

The noise of every answer must be within :func:`~dpanalysis.theory.tolerated_noise`. It is
proportional to the sensitivity, hence to 1/n: the least n follows, with all constants, and the
shares of the tolerances that minimize it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import optimize

from .._validation import (
    check_choice,
    check_fraction,
    check_int,
    check_number,
    check_positive,
    plain_numbers,
)
from ._arguments import check_kind
from .second_order import (
    SecondOrderConstants,
    curvature_roots,
    gradient_noise_norm,
    hessian_noise_norm,
    line_search_decreases,
    short_decreases,
)


class Shares(NamedTuple):
    """Fractions of the tolerances that noise may use, and a line search's sufficient decrease.

    Attributes
    ----------
    c, c1, c2 : float
        As in :func:`~dpanalysis.theory.tolerated_noise`.
    c_g, c_H : float or None
        As in :func:`~dpanalysis.theory.min_decrease_line_search`; None for short steps.
    """

    c: float
    c1: float
    c2: float
    c_g: float | None = None
    c_H: float | None = None


class SampleComplexity(NamedTuple):
    """Number of records needed: the largest number for gradients, Hessians and searches."""

    n: int  # n_min, rounded up
    iterations: int  # T: noisy evaluations, including the last one, which ends the run
    gradient: float
    hessian: float
    search: float


@dataclass(frozen=True)
class SecondOrderTarget:
    """Tolerances of a second-order point, with the objective and the privacy budget.

    Parameters
    ----------
    eps_g, eps_H : float
        Tolerances of the noisy gradient and curvature, positive.
    constants : SecondOrderConstants
        Constants of the objective and of one record's loss, for a linear predictor.
    d : int
        Dimension, at least 1.
    rho : float
        Replace-one zCDP budget, positive, divided equally among gradients, Hessians and searches;
        f(w0) is public for w0 = 0.
    gap : float
        f(w0) minus a lower bound of f, >= 0; ln 2 for the logistic loss at 0.
    failure : float
        Probability that some noise is too large, in (0, 1).
    guarantee : bool
        Whether eps_g and eps_H apply to the true gradient and curvature at the solution; the
        tolerances are then eps_g/(1 + c1) and eps_H/(1 + c).
    convex : bool
        Whether records' losses are convex. If not, one moves the Hessian by 2 B_H/n (errata 003-1).
    multiple, backtrack : float
        The search starts at b > 1 times its fallback step, and backtracks by beta in (0, 1).

    Examples
    --------
    >>> from dpanalysis import theory
    >>> target = SecondOrderTarget(
    ...     0.06, 0.245, theory.second_order_constants(1.0, 0.001), d=54, rho=0.01
    ... )
    >>> target.failure
    0.05
    """

    eps_g: float
    eps_H: float
    constants: SecondOrderConstants
    d: int
    rho: float
    gap: float = math.log(2.0)
    failure: float = 0.05
    guarantee: bool = False
    convex: bool = True
    multiple: float = 10.0
    backtrack: float = 0.5

    def __post_init__(self) -> None:
        plain_numbers(self)
        for name in ("eps_g", "eps_H", "rho"):
            check_positive(name, getattr(self, name))
        for name in ("failure", "backtrack"):
            check_fraction(name, getattr(self, name))
        check_kind("constants", self.constants, SecondOrderConstants)
        bounds = (check_positive(*each) for each in self.constants._asdict().items())
        object.__setattr__(self, "constants", SecondOrderConstants(*bounds))
        check_int("d", self.d, low=1)
        check_number("gap", self.gap, low=0.0)
        check_number("multiple", self.multiple, low=1.0, low_open=True)

    def tolerances(self, shares: Shares) -> tuple[float, float]:
        """Return the tolerances of the noisy gradient and the noisy curvature."""
        if not self.guarantee:
            return self.eps_g, self.eps_H
        return self.eps_g / (1.0 + shares.c1), self.eps_H / (1.0 + shares.c)

    def decreases(self, shares: Shares) -> tuple[float, float]:
        """Return the least decrease of a step along the gradient, and of one along curvature."""
        c, c1, c2, c_g, c_H = shares
        given = (*self.tolerances(shares), *self.constants[:2], c, c1, c2)
        if c_g is None or c_H is None:
            return short_decreases(*given)
        return line_search_decreases(*given, c_g, c_H)

    def hessian_change(self) -> float:
        """Return n times the Frobenius norm by which one record can move the mean Hessian."""
        return (math.sqrt(min(2, self.d)) if self.convex else 2.0) * self.constants.B_H

    def slack(self, queries: int, failure: float) -> float:
        """Return how far below 0 an accepted query can be, in units of its noise."""
        return search_slack(queries, failure)

    def sizes(self, shares: Shares, iterations: float) -> tuple[float, float, float, float, float]:
        """Return how many records each requirement needs.

        Two requirements are on gradients, one is on Hessians, two are on line searches.
        ``iterations`` need not be an integer: :func:`best_shares` optimizes it as a real number.
        """
        c, c1, c2, c_g, c_H = shares
        eps_g, eps_H = self.tolerances(shares)
        _, M, B_g, _ = self.constants
        kinds = 2.0 if c_g is None or c_H is None else 3.0
        sigma = math.sqrt(0.5 * kinds * iterations / self.rho)
        each = self.failure / (kinds * iterations)
        gradient = gradient_noise_norm(self.d, 2.0 * B_g * sigma, each)
        hessian = hessian_noise_norm(self.d, self.hessian_change() * sigma, each)
        needed = (gradient / (c1 * eps_g), gradient * M / (c2 * eps_H**2), hessian / (c * eps_H))
        if c_g is None or c_H is None:
            return (*needed, 0.0, 0.0)
        _, t2 = curvature_roots(c, c2, c_H)
        queries = math.floor(math.log(self.multiple) / -math.log(self.backtrack)) + 1
        slack = 4.0 * self.slack(queries, each) * sigma * B_g
        return (*needed, slack / (c_g * eps_g), 2.0 * slack * M / (t2 * c_H * eps_H**2))


def iteration_bound(gap: float, min_decrease: float) -> int:
    r"""Return the largest number of evaluations, :math:`\lfloor(f(w_0) - f_{lb})/D\rfloor + 1`.

    Every evaluation but the last, which finds a second-order point, precedes a step that decreases
    f by at least D. Gao and Wright (2023), (6) and Corollary 3, whose T is rounded up (003-17).

    Parameters
    ----------
    gap : float
        f(w0) minus a lower bound of f, >= 0.
    min_decrease : float
        D, positive.

    Returns
    -------
    int
        T >= 1; rounding errors only increase it.

    Examples
    --------
    >>> iteration_bound(0.3, 0.1), iteration_bound(0.0, 0.1)
    (4, 1)
    """
    gap = check_number("gap", gap, low=0.0)
    decrease = check_positive("min_decrease", min_decrease)
    steps = check_number("gap / min_decrease", gap / decrease, high=1e300)
    return math.floor(math.nextafter(steps, math.inf)) + 1


def search_slack(queries: int, failure: float) -> float:
    r"""Return how far below 0 an accepted query of a line search can be, in units of its noise.

    With Laplace noise of scales :math:`2\lambda\Delta` for the threshold and
    :math:`4\lambda\Delta` for the queries, the search halts at a query below -x times
    :math:`\lambda\Delta` with probability at most ``failure``, where

    .. math:: x = 4 \ln\frac{2 i}{3\eta}

    Parameters
    ----------
    queries : int
        i >= 1.
    failure : float
        :math:`\eta` in (0, 1).

    Notes
    -----
    *Proof.* The difference of the two noises exceeds x with probability
    :math:`\frac23 e^{-x/4} - \frac16 e^{-x/2}`; union bound over i of them.

    References
    ----------
    Gao and Wright (2023), Lemma 7, sharpened in errata 003-16: the paper's proof allows each
    noise half of x.

    Examples
    --------
    >>> search_slack(4, 1e-4)
    40.765
    """
    check_int("queries", queries, low=1)
    check_fraction("failure", failure)
    return max(4.0 * (math.log(queries / 1.5) - math.log(failure)), 0.0)


def sample_complexity(target: SecondOrderTarget, shares: Shares) -> SampleComplexity:
    r"""Return how many records are enough to find a second-order point with high probability.

    A run of T iterations with the noise (8) or (14), :math:`\sigma^2 = T/\rho` for short steps
    and :math:`\sigma^2 = \lambda^2 = 3T/(2\rho)` for the line search, finds an
    ((1 + c1) eps_g, (1 + c) eps_H)-2NS with probability ``1 - failure`` if n is at least

    .. math:: \frac{2 B_g \sigma (\sqrt d + \sqrt{2\ln 1/\eta})}
              {\min\{c_1\epsilon_g,\, c_2\epsilon_H^2/M\}},\quad
              \frac{\sqrt2 B_H \sigma(\sqrt{2d} + \sqrt{2\ln 2/\eta})}{c\,\epsilon_H},\quad
              2 x \lambda
              \max\Big\{\frac{2B_g}{c_g\epsilon_g},\, \frac{4B_gM}{t_2c_H\epsilon_H^2}\Big\}

    with :math:`\eta` = ``failure`` over the number of gradients, Hessians and searches. The third
    is for the line search, with x of :func:`search_slack`. Gao and Wright (2023), Theorems 4 and 8;
    errata 003-21.

    Parameters
    ----------
    target : SecondOrderTarget
    shares : Shares
        With ``c_g`` and ``c_H`` for the line search.

    Notes
    -----
    The norms are those of errata 003-9: Lemma D.6 is false near eta = 1, and the constants of Lemma
    D.7 are unspecified. Without the sqrt d of the printed sensitivity n grows like sqrt d, not like
    d.
    (16) prints :math:`\log_\beta b`, which is negative: a search has
    :math:`\lfloor\log_{1/\beta} b\rfloor + 1` queries.

    Examples
    --------
    >>> from dpanalysis import theory
    >>> constants = theory.second_order_constants(1.0, 0.001)
    >>> target = SecondOrderTarget(0.06, 0.245, constants, d=54, rho=0.01)
    >>> sample_complexity(target, Shares(0.1, 0.25, 0.1))
    SampleComplexity(n=215648, iterations=195, gradient=215647.2, hessian=29797.2, search=0.0)
    """
    check_kind("target", target, SecondOrderTarget)
    check_shares(shares)
    iterations = iteration_bound(target.gap, min(target.decreases(shares)))
    *noise, hessian, from_gradient, from_curvature = target.sizes(shares, iterations)
    gradient, search = max(noise), max(from_gradient, from_curvature)
    needed = check_number("n_min", max(gradient, hessian, search), high=1e300)
    return SampleComplexity(math.ceil(needed), iterations, gradient, hessian, search)


def check_shares(shares: Shares) -> None:
    """Raise unless both of ``c_g`` and ``c_H`` are given, or neither."""
    check_kind("shares", shares, Shares)
    if (shares.c_g is None) != (shares.c_H is None):
        raise ValueError(f"shares must have both of c_g and c_H, or neither, got {shares!r}")


# Exponents of 1/alpha in the number of samples, for an (alpha, sqrt(M alpha))-2NS.
_EXPONENTS = {"DP-GD": 2.0, "DP-TR": 1.75, "DP-TR, mini-batch": 2.0, "2NS": 2.0}


def sample_exponent(method: str) -> float:
    r"""Return p of the sample complexity :math:`\alpha^{-p}` that Gao and Wright (2023) state.

    For an (alpha, sqrt(M alpha))-2NS, up to logarithms. The paper gives no constants for the
    baselines, and for DP-TR no dependence on d and rho. Gao and Wright (2023), Sections 1 and 5,
    after Wang, Xu (2021) and Wang, Chen, Xu (2019).

    Parameters
    ----------
    method : {"DP-GD", "DP-TR", "DP-TR, mini-batch", "2NS"}
        "2NS" is the paper's method, with full batches or mini-batches.

    Examples
    --------
    >>> sample_exponent("DP-TR")
    1.75
    """
    return _EXPONENTS[check_choice("method", method, tuple(_EXPONENTS))]


_LARGEST_LOGIT = 15.0  # logarithm of a quotient of shares
_LARGEST_INTEGER_LOG = 7.0  # logarithm of T beyond which rounding T to an integer hardly matters


def best_shares(target: SecondOrderTarget, step: str = "short") -> Shares:
    r"""Return the shares that need the fewest records; the paper does not choose them.

    Larger shares allow more noise, but then each step decreases f by less and a run needs more
    steps. With ``target.guarantee`` larger shares also tighten the tolerances; without it they
    give a less accurate solution.

    Parameters
    ----------
    target : SecondOrderTarget
    step : {"short", "line_search"}

    Notes
    -----
    In logarithms every requirement compares a sum of monomials with 1, since

    .. math:: c + c_H + t/3 + 2 c_2/t \le 1

    says that t is at most :math:`t_2`. This is a geometric program, except for the logarithms of
    T within the norms, which hardly matter. So a local search (SLSQP over n, T and the shares)
    finds the global optimum. Shares that do not affect n keep their starting values.

    Examples
    --------
    >>> from dpanalysis import theory
    >>> constants = theory.second_order_constants(1.0, 0.001)
    >>> target = SecondOrderTarget(0.06, 0.245, constants, d=54, rho=0.01, guarantee=True)
    >>> best = best_shares(target)
    >>> given = Shares(0.1, 0.1, 0.1)
    >>> [theory.sample_complexity(target, shares).n for shares in (given, best)]
    [511904, 338521]
    """
    check_choice("step", step, ("short", "line_search"))
    check_kind("target", target, SecondOrderTarget)
    search = step == "line_search"
    shares = _searched_shares if search else _short_shares

    def log_n(point: np.ndarray) -> float:
        return float(point[-2])

    def margins(point: np.ndarray) -> np.ndarray:
        """Return the constraints, at least 0 if ln n and ln T (the last two) are large enough."""
        chosen = shares(point[:-2])
        sizes = target.sizes(chosen, math.exp(point[-1]))[: 5 if search else 3]
        steps = max(target.gap, 1e-300) * (1.0 + 1e-9) / np.array(target.decreases(chosen))
        return np.concatenate([point[-2] - np.log(sizes), point[-1] - np.log(steps)])

    def solve(start: np.ndarray, least: float, most: float) -> np.ndarray:
        # With T = 1 some shares do not affect n: bounds keep them away from 0 and 1.
        bounds = [(-_LARGEST_LOGIT, _LARGEST_LOGIT)] * (len(start) - 2)
        bounds += [(-np.inf, np.inf), (least, most)]
        enough = optimize.NonlinearConstraint(margins, 0.0, np.inf)
        start[-1] = min(max(start[-1] - min(margins(start)[-2:].min(), 0.0), least), most)
        start[-2] -= margins(start)[:-2].min()
        found = optimize.minimize(
            log_n, start, method="SLSQP", bounds=bounds, constraints=enough, tol=1e-10
        )
        return found.x

    point = solve(np.zeros(7 if search else 5), 0.0, 600.0)
    candidates = [point]
    if point[-1] < _LARGEST_INTEGER_LOG:  # one of the two adjacent integers is best
        for T in {math.floor(math.exp(point[-1])), math.ceil(math.exp(point[-1]))}:
            candidates.append(solve(point.copy(), math.log(T), math.log(T)))
    return min(
        (shares(point[:-2]) for point in candidates),
        key=lambda chosen: sample_complexity(target, chosen).n,
    )


def _parts(logits: np.ndarray) -> list[float]:
    """Return positive numbers that sum to 1, one more than there are logits."""
    weights = np.exp(np.append(logits, 0.0) - max(logits.max(), 0.0))
    return list(map(float, weights / weights.sum()))


def _short_shares(logits: np.ndarray) -> Shares:
    c1, _ = _parts(logits[:1])
    c, c2, _ = _parts(logits[1:])
    return Shares(c / 3.0, 0.5 * c1, c2 / 3.0)


def _searched_shares(logits: np.ndarray) -> Shares:
    c1, c_g, _ = _parts(logits[:2])
    c, c_H, root, _ = _parts(logits[2:])
    return Shares(c, c1, 0.375 * root**2, c_g, c_H)  # root = sqrt(8 c2/3)
