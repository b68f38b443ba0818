"""The shares of the tolerances with which a second-order point needs the fewest records."""

from __future__ import annotations

import math

import numpy as np

from .._validation import check_choice
from .second_order_data import SecondOrderTarget, Shares, sample_complexity

__all__ = ["best_shares"]

_FURTHEST = 15.0  # logarithm of a quotient of shares
_LONG = 7.0  # logarithm of a T that may as well be a real number


def best_shares(target: SecondOrderTarget, step: str = "short") -> Shares:
    r"""Return the shares that need the fewest records; the paper leaves them open.

    Larger shares allow more noise, but each step then decreases f by less, so that a run needs
    more steps. With ``target.guarantee`` larger shares also make the tolerances smaller. Without
    it they do not, and the price of large shares is a worse answer.

    Parameters
    ----------
    target : SecondOrderTarget
    step : {"short", "line_search"}

    Returns
    -------
    Shares

    Raises
    ------
    ValueError
        If ``step`` is neither.

    Notes
    -----
    In logarithms every requirement compares a sum of monomials with 1, since

    .. math:: c + c_H + t/3 + 2 c_2/t \le 1

    says that t is at most :math:`t_2`. This is a geometric program, except for the logarithms of
    T within the norms, which hardly matter. So a local search (SLSQP over n, T and the shares)
    finds the global optimum. Shares that do not change n stay where the search starts.

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
    from scipy import optimize  # here: it takes its time

    search = step == "line_search"
    shares = _searched_shares if search else _short_shares

    def log_n(point: np.ndarray) -> float:
        return float(point[-2])

    def margins(point: np.ndarray) -> np.ndarray:
        """Return numbers that are at least 0 where ln n and ln T, the last two, are enough."""
        chosen = shares(point[:-2])
        sizes = target.sizes(chosen, math.exp(point[-1]))[: 5 if search else 3]
        steps = max(target.gap, 1e-300) * (1.0 + 1e-9) / np.array(target.decreases(chosen))
        return np.concatenate([point[-2] - np.log(sizes), point[-1] - np.log(steps)])

    def solve(start: np.ndarray, least: float, most: float) -> np.ndarray:
        # With T = 1 some shares do not change n: bounds keep them away from 0 and 1.
        bounds = [(-_FURTHEST, _FURTHEST)] * (len(start) - 2) + [(-np.inf, np.inf), (least, most)]
        enough = optimize.NonlinearConstraint(margins, 0.0, np.inf)
        start[-1] = min(max(start[-1] - min(margins(start)[-2:].min(), 0.0), least), most)
        start[-2] -= margins(start)[:-2].min()
        found = optimize.minimize(
            log_n, start, method="SLSQP", bounds=bounds, constraints=enough, tol=1e-10
        )
        return found.x

    point = solve(np.zeros(7 if search else 5), 0.0, 600.0)
    candidates = [point]
    if point[-1] < _LONG:  # T must be whole: one of the next two is best
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
