"""The shares of the tolerances with which a second-order point takes the least data."""

from __future__ import annotations

import math

import numpy as np

from .._validation import check_choice
from .second_order_data import SecondOrderTarget, Shares

__all__ = ["best_shares"]


def best_shares(target: SecondOrderTarget, step: str = "short") -> Shares:
    r"""Return the shares that take the least data; the paper leaves them open.

    Larger shares let in more noise, and make each step decrease f by less, so that there are
    more of them. With ``target.guarantee`` they make the tolerances smaller, too: otherwise
    large shares pay with an answer that is worse.

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
        If ``step`` is neither, or a number is out of reach.

    Notes
    -----
    In logarithms every requirement is a sum of monomials against 1, a geometric program, as

    .. math:: c + c_H + t/3 + 2 c_2/t \le 1

    says that t is at most :math:`t_2`; but for the logarithms of T within the norms, which
    hardly matter. So a local search (SLSQP over n, T and the shares) finds the global optimum.
    T is a real number in it: where it is small, its being whole may make some percent of
    difference. Shares that do not matter for n stay where the search starts.

    Examples
    --------
    >>> from dpanalysis import theory
    >>> constants = theory.second_order_constants(1.0, 0.001)
    >>> target = SecondOrderTarget(0.06, 0.245, constants, d=54, rho=0.01, guarantee=True)
    >>> best = best_shares(target)
    >>> given = Shares(0.1, 0.1, 0.1)
    >>> [theory.sample_complexity(target, shares).n for shares in (given, best)]
    [511904, 338551]
    """
    check_choice("step", step, ("short", "line_search"))
    from scipy import optimize  # here: it takes its time

    search = step == "line_search"
    shares = _searched_shares if search else _short_shares

    def log_n(point: np.ndarray) -> float:
        return float(point[-2])

    def margins(point: np.ndarray) -> np.ndarray:
        """Return what is at least 0 where ln n and ln T, the last two numbers, are enough."""
        chosen = shares(point[:-2])
        iterations = math.exp(min(max(point[-1], 0.0), 600.0))
        sizes = target.sizes(chosen, iterations)[: 5 if search else 3]
        steps = target.gap / np.array(target.decreases(chosen))
        return np.concatenate([point[-2] - np.log(sizes), point[-1] - np.log1p(steps)])

    start = np.zeros(7 if search else 5)
    start[-1] = -margins(start)[-2:].min()
    start[-2] = -margins(start)[:-2].min()
    enough = optimize.NonlinearConstraint(margins, 0.0, np.inf)
    found = optimize.minimize(log_n, start, method="SLSQP", constraints=enough, tol=1e-10)
    if not found.success:
        raise ValueError(f"target must be within reach, got {target!r}: {found.message}")
    return shares(found.x[:-2])


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
