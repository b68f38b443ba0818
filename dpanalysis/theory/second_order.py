r"""Steps to an approximate second-order point: by how much they decrease the objective.

Gao and Wright (2023).

A point is an (eps_g, eps_H)-2NS if :math:`\lVert\nabla f\rVert \le \epsilon_g` and
:math:`\lambda_{\min}(\nabla^2 f) \ge -\epsilon_H`. The methods make noisy gradient steps while
the noisy gradient is longer than eps_g, then steps along the most negative curvature, while
that is below -eps_H. Each step decreases f by at least ``min_decrease``, as long as the noise
is within :func:`tolerated_noise`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from .._validation import check_number

__all__ = [
    "SecondOrderConstants",
    "curvature_roots",
    "min_decrease_line_search",
    "min_decrease_short",
    "second_order_constants",
    "tolerated_noise",
]


class SecondOrderConstants(NamedTuple):
    """Constants of the logistic loss with the Geman-McClure penalty.

    Attributes
    ----------
    G, M : float
        Lipschitz constants of the gradient and of the Hessian of the objective.
    B_g, B_H : float
        Bounds on the norm of one record's gradient and Hessian, without the penalty.
    """

    G: float
    M: float
    B_g: float
    B_H: float


def second_order_constants(row_norm: float, strength: float) -> SecondOrderConstants:
    r"""Return G, M, B_g and B_H of the logistic loss with ``GemanMcClure(strength)``.

    .. math:: G = R^2/4 + 2\lambda,\quad M = R^3/(6\sqrt3) + 4.66856\lambda,\quad B_g = R,
              \quad B_H = R^2/4.

    Parameters
    ----------
    row_norm : float
        Bound R on the rows' L2 norm, finite, >= 0.
    strength : float
        lambda >= 0 of the penalty.

    Returns
    -------
    SecondOrderConstants

    Raises
    ------
    ValueError
        If an argument is outside its range.

    References
    ----------
    Gao and Wright (2023), Assumption 2 and Section 4; errata 003-15.

    Examples
    --------
    >>> second_order_constants(1.0, 0.001)
    SecondOrderConstants(G=0.252, M=0.1009, B_g=1.0, B_H=0.25)
    """
    R = check_number("row_norm", row_norm, low=0.0)
    strength = check_number("strength", strength, low=0.0)
    # The largest third derivative of w^2/(1 + w^2): at w^2 = 1 - 2/sqrt 5.
    square = 1.0 - math.sqrt(0.8)
    bend = 24.0 * math.sqrt(square) * (1.0 - square) / (1.0 + square) ** 4
    M = R**3 / (6.0 * math.sqrt(3.0)) + bend * strength
    return SecondOrderConstants(0.25 * R**2 + 2.0 * strength, M, R, 0.25 * R**2)


def min_decrease_short(
    eps_g: float, eps_H: float, G: float, M: float, c: float, c1: float, c2: float
) -> float:
    r"""Return the least decrease of a short step, MIN_DEC (10).

    .. math:: \min\Big\{\frac{1 - 2 c_1}{2G}\epsilon_g^2,\;
              2\Big(\frac13 - c_2 - c\Big)\frac{\epsilon_H^3}{M^2}\Big\}

    for the steps 1/G along the gradient and :math:`2|\lambda|/M` along the curvature.

    Parameters
    ----------
    eps_g, eps_H : float
        Tolerances, positive.
    G, M : float
        Lipschitz constants of gradient and Hessian, positive.
    c, c1, c2 : float
        Parts of the tolerances that noise may use, see :func:`tolerated_noise`: positive,
        c1 < 1/2, c + c2 < 1/3.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If an argument is outside its range.

    References
    ----------
    Gao and Wright (2023), Lemma 2.

    Examples
    --------
    >>> min_decrease_short(0.06, 0.245, 0.252, 0.1, c=0.1, c1=0.1, c2=0.1)
    0.005714
    """
    return min(short_decreases(eps_g, eps_H, G, M, c, c1, c2))


def short_decreases(
    eps_g: float, eps_H: float, G: float, M: float, c: float, c1: float, c2: float
) -> tuple[float, float]:
    """Return the least decrease of a short step along the gradient, and of one along curvature."""
    _check_tolerances(eps_g, eps_H, G, M)
    check_number("c1", c1, low=0.0, high=0.5, low_open=True, high_open=True)
    check_number("c", c, low=0.0, high=1.0 / 3.0, low_open=True, high_open=True)
    name = f"c2 with c = {c:g}"
    check_number(name, c2, low=0.0, high=1.0 / 3.0 - c, low_open=True, high_open=True)
    along_curvature = 2.0 * (1.0 / 3.0 - c2 - c) * eps_H**3 / M**2
    return (1.0 - 2.0 * c1) / (2.0 * G) * eps_g**2, along_curvature


def min_decrease_line_search(
    eps_g: float,
    eps_H: float,
    G: float,
    M: float,
    c: float,
    c1: float,
    c2: float,
    c_g: float,
    c_H: float,
) -> float:
    r"""Return the least decrease of a step that the private line search chooses, (17).

    .. math:: \min\Big\{\frac1G (1 - c_1 - c_g) c_g \epsilon_g^2,\;
              \frac14 c_H t_2^2 \frac{\epsilon_H^3}{M^2}\Big\}

    Parameters
    ----------
    eps_g, eps_H, G, M, c, c1, c2
        As in :func:`min_decrease_short`; here c1 < 1 and c + sqrt(8 c2/3) < 1.
    c_g : float
        Sufficient decrease along the gradient, in (0, 1 - c1).
    c_H : float
        Along the curvature, in (0, 1 - c - sqrt(8 c2/3)).

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If an argument is outside its range.

    References
    ----------
    Gao and Wright (2023), Lemma 7; the range of c_H in errata 003-8.

    Examples
    --------
    >>> min_decrease_line_search(0.06, 0.245, 0.252, 0.1, 0.1, 0.1, 0.1, c_g=0.4, c_H=0.2)
    0.002857
    """
    return min(line_search_decreases(eps_g, eps_H, G, M, c, c1, c2, c_g, c_H))


def line_search_decreases(
    eps_g: float,
    eps_H: float,
    G: float,
    M: float,
    c: float,
    c1: float,
    c2: float,
    c_g: float,
    c_H: float,
) -> tuple[float, float]:
    """Return the least decrease of a searched step along the gradient, and along curvature."""
    _check_tolerances(eps_g, eps_H, G, M)
    check_number("c1", c1, low=0.0, high=1.0, low_open=True, high_open=True)
    name = f"c_g with c1 = {c1:g}"
    check_number(name, c_g, low=0.0, high=1.0 - c1, low_open=True, high_open=True)
    _, t2 = curvature_roots(c, c2, c_H)
    along_curvature = 0.25 * c_H * t2**2 * eps_H**3 / M**2
    return (1.0 - c1 - c_g) * c_g * eps_g**2 / G, along_curvature


def curvature_roots(c: float, c2: float, c_H: float) -> tuple[float, float]:
    r"""Return t1 < t2: steps of :math:`t|\lambda|/M` in [t1, t2] decrease f enough.

    The roots of :math:`-t^2/6 + (1 - c - c_H) t/2 - c_2`, with b = 1 - c - c_H

    .. math:: t_{1,2} = \tfrac32 b \mp 3\sqrt{b^2/4 - 2 c_2/3}.

    Parameters
    ----------
    c, c2 : float
        Positive, c + sqrt(8 c2/3) < 1.
    c_H : float
        In (0, 1 - c - sqrt(8 c2/3)).

    Returns
    -------
    t1, t2 : float

    Raises
    ------
    ValueError
        If an argument is outside its range; the message gives the range of c_H.

    References
    ----------
    Gao and Wright (2023), (15); errata 003-8.

    Examples
    --------
    >>> curvature_roots(0.1, 0.05, 0.2)
    (0.1542, 1.9458)
    """
    check_number("c", c, low=0.0, high=1.0, low_open=True, high_open=True)
    check_number("c2", c2, low=0.0, low_open=True)
    root = math.sqrt(8.0 * c2 / 3.0)
    highest = 1.0 - c - root
    if highest <= 0.0:
        raise ValueError(
            f"c2 must be below 3 (1 - c)^2/8 = {0.375 * (1.0 - c) ** 2:g} for c = {c:g}, got {c2!r}"
        )
    name = f"c_H with c = {c:g} and c2 = {c2:g}"
    check_number(name, c_H, low=0.0, high=highest, low_open=True, high_open=True)
    # b - root and b + root: their product, b^2 - 8 c2/3, cannot become negative by rounding.
    gap = highest - c_H
    b, apart = gap + root, 1.5 * math.sqrt(gap * (gap + 2.0 * root))
    # t1 t2 = 6 c2: no cancellation in the small root.
    return 6.0 * c2 / (1.5 * b + apart), 1.5 * b + apart


def tolerated_noise(
    eps_g: float, eps_H: float, M: float, c: float, c1: float, c2: float
) -> tuple[float, float]:
    r"""Return how long the noise of a gradient and of a Hessian may be: condition (9).

    .. math:: \lVert\varepsilon\rVert \le \min\{c_1\epsilon_g, c_2\epsilon_H^2/M\},\quad
              \lVert E\rVert \le c\,\epsilon_H

    Parameters
    ----------
    eps_g, eps_H, M, c, c1, c2 : float
        As in :func:`min_decrease_short`, positive.

    Returns
    -------
    gradient, hessian : float

    Raises
    ------
    ValueError
        If an argument is not positive.

    Examples
    --------
    >>> tolerated_noise(0.06, 0.245, 0.1, c=0.1, c1=0.1, c2=0.1)
    (0.006, 0.0245)
    """
    _check_tolerances(eps_g, eps_H, 1.0, M)
    for name, share in (("c", c), ("c1", c1), ("c2", c2)):
        check_number(name, share, low=0.0, low_open=True)
    return min(c1 * eps_g, c2 * eps_H**2 / M), c * eps_H


def _check_tolerances(eps_g: float, eps_H: float, G: float, M: float) -> None:
    for name, value in (("eps_g", eps_g), ("eps_H", eps_H), ("G", G), ("M", M)):
        check_number(name, value, low=0.0, low_open=True)
