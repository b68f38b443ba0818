r"""Steps, noise and batch sizes for an approximate second-order point (Gao and Wright 2023).

A point is an (eps_g, eps_H)-2NS if :math:`\lVert\nabla f\rVert \le \epsilon_g` and
:math:`\lambda_{\min}(\nabla^2 f) \ge -\epsilon_H`. The methods make noisy gradient steps while
the noisy gradient is longer than eps_g, then steps along the most negative curvature, while
that is below -eps_H. Each step decreases f by at least ``min_decrease``, as long as the noise
is within :func:`tolerated_noise`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from .._validation import check_fraction, check_int, check_number, check_positive


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

    Gao and Wright (2023), Assumption 2 and Section 4; errata 003-15.

    Parameters
    ----------
    row_norm : float
        Bound R on the rows' L2 norm, finite, >= 0.
    strength : float
        lambda >= 0 of the penalty.

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
    M = R * R * R / (6.0 * math.sqrt(3.0)) + bend * strength  # R**3 raises if it overflows
    return SecondOrderConstants(0.25 * R * R + 2.0 * strength, M, R, 0.25 * R * R)


def min_decrease_short(
    eps_g: float, eps_H: float, G: float, M: float, c: float, c1: float, c2: float
) -> float:
    r"""Return the least decrease of a short step, MIN_DEC (10).

    .. math:: \min\Big\{\frac{1 - 2 c_1}{2G}\epsilon_g^2,\;
              2\Big(\frac13 - c_2 - c\Big)\frac{\epsilon_H^3}{M^2}\Big\}

    for the steps 1/G along the gradient and :math:`2|\lambda|/M` along the curvature. Gao and
    Wright (2023), Lemma 2.

    Parameters
    ----------
    eps_g, eps_H : float
        Tolerances, positive.
    G, M : float
        Lipschitz constants of gradient and Hessian, positive.
    c, c1, c2 : float
        Parts of the tolerances that noise may use, see :func:`tolerated_noise`: positive,
        c1 < 1/2, c + c2 < 1/3.

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
    eps_g, eps_H, G, M = _check_tolerances(eps_g, eps_H, G, M)
    c1 = check_number("c1", c1, low=0.0, high=0.5, low_open=True, high_open=True)
    c = check_number("c", c, low=0.0, high=1.0 / 3.0, low_open=True, high_open=True)
    name = f"c2 with c = {c:g}"
    c2 = check_number(name, c2, low=0.0, high=1.0 / 3.0 - c, low_open=True, high_open=True)
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

    Gao and Wright (2023), Lemma 7; the range of c_H in errata 003-8.

    Parameters
    ----------
    eps_g, eps_H, G, M, c, c1, c2
        As in :func:`min_decrease_short`; here c1 < 1 and c + sqrt(8 c2/3) < 1.
    c_g : float
        Sufficient decrease along the gradient, in (0, 1 - c1).
    c_H : float
        Along the curvature, in (0, 1 - c - sqrt(8 c2/3)).

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
    eps_g, eps_H, G, M = _check_tolerances(eps_g, eps_H, G, M)
    c1, c_H = check_fraction("c1", c1), check_number("c_H", c_H)
    name = f"c_g with c1 = {c1:g}"
    c_g = check_number(name, c_g, low=0.0, high=1.0 - c1, low_open=True, high_open=True)
    _, t2 = curvature_roots(c, c2, c_H)
    along_curvature = 0.25 * c_H * t2**2 * eps_H**3 / M**2
    return (1.0 - c1 - c_g) * c_g * eps_g**2 / G, along_curvature


def curvature_roots(c: float, c2: float, c_H: float) -> tuple[float, float]:
    r"""Return t1 < t2: steps of :math:`t|\lambda|/M` in [t1, t2] decrease f enough.

    These are the roots of :math:`-t^2/6 + (1 - c - c_H) t/2 - c_2`; with b = 1 - c - c_H

    .. math:: t_{1,2} = \tfrac32 b \mp 3\sqrt{b^2/4 - 2 c_2/3}.

    Gao and Wright (2023), (15); errata 003-8.

    Parameters
    ----------
    c, c2 : float
        Positive, c + sqrt(8 c2/3) < 1.
    c_H : float
        In (0, 1 - c - sqrt(8 c2/3)).

    Examples
    --------
    >>> curvature_roots(0.1, 0.05, 0.2)
    (0.1542, 1.9458)
    """
    c, c2 = check_fraction("c", c), check_positive("c2", c2)
    root = math.sqrt(8.0 * c2 / 3.0)
    highest = 1.0 - c - root
    if highest <= 0.0:
        raise ValueError(
            f"c2 must be below 3 (1 - c)^2/8 = {0.375 * (1.0 - c) ** 2:g} for c = {c:g}, got {c2!r}"
        )
    name = f"c_H with c = {c:g} and c2 = {c2:g}"
    c_H = check_number(name, c_H, low=0.0, high=highest, low_open=True, high_open=True)
    # b - root and b + root: their product, b^2 - 8 c2/3, cannot become negative by rounding.
    gap = highest - c_H
    b, apart = gap + root, 1.5 * math.sqrt(gap * (gap + 2.0 * root))
    # t1 t2 = 6 c2: no cancellation in the small root.
    return 6.0 * c2 / (1.5 * b + apart), 1.5 * b + apart


def tolerated_noise(
    eps_g: float, eps_H: float, M: float, c: float, c1: float, c2: float
) -> tuple[float, float]:
    r"""Return the largest norms of the noise in a gradient and in a Hessian: condition (9).

    .. math:: \lVert\varepsilon\rVert \le \min\{c_1\epsilon_g, c_2\epsilon_H^2/M\},\quad
              \lVert E\rVert \le c\,\epsilon_H

    Parameters
    ----------
    eps_g, eps_H, M, c, c1, c2 : float
        As in :func:`min_decrease_short`, positive.

    Examples
    --------
    >>> tolerated_noise(0.06, 0.245, 0.1, c=0.1, c1=0.1, c2=0.1)
    (0.006, 0.0245)
    """
    eps_g, eps_H, _, M = _check_tolerances(eps_g, eps_H, 1.0, M)
    c, c1, c2 = check_positive("c", c), check_positive("c1", c1), check_positive("c2", c2)
    return min(c1 * eps_g, c2 * eps_H**2 / M), c * eps_H


def _check_tolerances(eps_g: float, eps_H: float, G: float, M: float) -> list[float]:
    named = {"eps_g": eps_g, "eps_H": eps_H, "G": G, "M": M}
    return [check_positive(*each) for each in named.items()]


# Norms of Gaussian noise, and the Lanczos method (Appendices C and D, with explicit constants)


def gradient_noise_norm(d: int, std: float, failure: float) -> float:
    r"""Return a bound on the norm of a Gaussian vector, with probability 1 - ``failure``.

    .. math:: \sigma\big(\sqrt d + \sqrt{2\ln(1/\eta)}\big)

    In place of Lemma D.6 of Gao and Wright (2023), which is false near eta = 1 (errata 003-9).

    Parameters
    ----------
    d : int
        At least 1.
    std : float
        sigma >= 0.
    failure : float
        eta in (0, 1].

    Examples
    --------
    >>> gradient_noise_norm(54, 1.0, 0.01)
    10.383
    """
    check_int("d", d, low=1)
    std = check_number("std", std, low=0.0)
    eta = check_number("failure", failure, low=0.0, high=1.0, low_open=True)
    return std * (math.sqrt(d) + math.sqrt(-2.0 * math.log(eta)))


def hessian_noise_norm(d: int, std: float, failure: float) -> float:
    r"""Return a bound on the norm of symmetric Gaussian noise, with probability 1 - ``failure``.

    .. math:: \frac{\sigma}{\sqrt2}\big(2\sqrt d + \sqrt{4\ln(2/\eta)}\big)

    for the standard deviation sigma on the diagonal and :math:`\sigma/\sqrt2` off it. Gao and
    Wright (2023), Lemma D.7, with explicit constants; errata 003-9.

    Parameters
    ----------
    d, std, failure
        As in :func:`gradient_noise_norm`.

    Examples
    --------
    >>> hessian_noise_norm(54, 1.0, 0.01)
    13.648
    """
    check_int("d", d, low=1)
    std = check_number("std", std, low=0.0)
    eta = check_number("failure", failure, low=0.0, high=1.0, low_open=True)
    tail = math.sqrt(math.log(2.0) - math.log(eta))
    return std * math.sqrt(2.0) * (math.sqrt(d) + tail)


def lanczos_iterations(d: int, norm_bound: float, eps: float, failure: float) -> int:
    r"""Return the number of Lanczos steps that find the smallest eigenvalue to eps/2.

    .. math:: \min\Big\{d,\; 1 + \Big\lceil\frac12 \ln\frac{2.75\,d}{\delta^2}
              \sqrt{\frac{U}{\epsilon}}\Big\rceil\Big\}

    Gao and Wright (2023), Lemma C.1, after Carmon et al. (2018); errata 003-11.

    Parameters
    ----------
    d : int
        Dimension, at least 1.
    norm_bound : float
        U >= ||H||, positive.
    eps : float
        Twice the absolute accuracy, positive.
    failure : float
        delta in (0, 1], over the random start.

    Examples
    --------
    >>> lanczos_iterations(300, 1.0, 0.05, 0.1)
    27
    """
    check_int("d", d, low=1)
    check_positive("norm_bound", norm_bound)
    check_positive("eps", eps)
    check_number("failure", failure, low=0.0, high=1.0, low_open=True)
    width = 0.5 * math.log(2.75 * d) - math.log(failure)
    steps = width * math.sqrt(norm_bound) / math.sqrt(eps)
    return min(d, 1 + math.ceil(min(steps, d)))


# Batches: size and noise (Appendix B)


# The nonzero root of e^x = 1 + 2x.
_LARGEST_STEP = 1.2564312086261697


class BatchNoise(NamedTuple):
    """Noise multipliers of gradients and Hessians by three ways of accounting."""

    # A batch's two releases equal one of sqrt 2 times the shift, whose amplified pair is exact.
    pld: float  # T such pairs, composed
    renyi: float  # Theorem B.4: composed, then amplified, then composed at the best real order
    advanced: float  # Theorem B.8: advanced composition of (epsilon, delta)


def second_order_batch(
    eps_g: float,
    eps_H: float,
    M: float,
    B_g: float,
    B_H: float,
    d: int,
    iterations: int,
    failure: float,
    c: float,
    c1: float,
    c2: float,
) -> int:
    r"""Return the batch size whose derivatives approximate those of all records.

    .. math:: \max\Big\{\frac{128 B_g^2(\ln(2dT/\eta) + \frac14)}
              {\min\{c_1\epsilon_g, c_2\epsilon_H^2/M\}^2},\;
              \frac{64 B_H^2 \ln(2dT/\eta)}{(c\,\epsilon_H)^2}\Big\}

    Then the gradients and Hessians of all T batches are within half of the tolerated noise of those
    of all records, except with probability :math:`2\eta`. Gao and Wright (2023), (23), after
    Kohler, Lucchi (2017). The paper's (24) is half of this; it does not follow from (23), but by
    another proof: errata 003-18.

    Parameters
    ----------
    eps_g, eps_H, M, c, c1, c2 : float
        As in :func:`~dpanalysis.theory.tolerated_noise`.
    B_g, B_H : float
        Bounds on the norms of one record's gradient and Hessian, positive.
    d, iterations : int
        Dimension and T, at least 1.
    failure : float
        :math:`\eta` in (0, 1).

    Examples
    --------
    >>> second_order_batch(0.06, 0.245, 0.1, 1.0, 0.25, 54, 195, 0.05, c=0.1, c1=0.25, c2=0.1)
    7509825
    """
    gradient, hessian = tolerated_noise(eps_g, eps_H, M, c, c1, c2)
    B_g = check_positive("B_g", B_g)
    B_H = check_positive("B_H", B_H)
    eta = check_fraction("failure", failure)
    log = math.log(2.0 * check_int("d", d, low=1) * check_int("iterations", iterations, low=1))
    log -= math.log(eta)
    return math.ceil(
        max(128.0 * (log + 0.25) * (B_g / gradient) ** 2, 64.0 * log * (B_H / hessian) ** 2)
    )


def batch_noise(epsilon: float, delta: float, iterations: int, n: int, m: int) -> BatchNoise:
    r"""Return the noise that T gradients and T Hessians need, by three ways of accounting.

    A gradient and a Hessian share each batch and have the same multiplier. A batch is charged for
    both, since a run may decide adaptively which of them to query.

    Theorem B.8 takes :math:`\sqrt{2\ln(1.25/\delta_0)}/\epsilon_0` with

    .. math:: \epsilon_0 = \frac{\epsilon}{8s\sqrt{2T\ln(2/\delta)}},\quad
              \delta_0 = \frac{\delta}{4sT},\quad s = \frac mn.

    Gao and Wright (2023), Theorems B.4 and B.8; errata 003-19, 003-20.

    Parameters
    ----------
    epsilon, delta : float
        Replace-one budget for these releases alone, in (0, 1); f(w0) is public for w0 = 0.
    iterations : int
        T, at least 1.
    n, m : int
        Number of records, and batch size without replacement, 1 <= m <= n.

    Returns
    -------
    BatchNoise
        Standard deviations over the sensitivities; a gradient's is 2 B_g/m.

    Raises
    ------
    ValueError
        If m is so small that Theorem B.8 is false.

    Notes
    -----
    The proof of Theorem B.8 bounds the amplified :math:`\ln(1 + s(e^{2\epsilon_0} - 1))` by
    :math:`4s\epsilon_0`. This requires :math:`\epsilon_0 \le 0.628` (and :math:`\delta_0 \le 1`),
    hence a batch that is not too small: for :math:`m \ll n` the theorem's noise is far too small.

    A method that sets its noise adaptively needs the bound by Theorem B.4; if T and the noise are
    fixed in advance, use ``pld``.

    Examples
    --------
    >>> batch_noise(0.5, 1e-6, iterations=200, n=100_000, m=1000)
    BatchNoise(pld=2.23..., renyi=4.8893, advanced=69.2047)
    """
    epsilon = check_fraction("epsilon", epsilon)
    delta = check_fraction("delta", delta)
    T = check_int("iterations", iterations, low=1)
    n = check_int("n", n, low=1)
    s = check_int("m", m, low=1, high=n) / n
    whole = epsilon / (8.0 * math.sqrt(2.0 * T * math.log(2.0 / delta)))
    least = math.ceil(n * max(2.0 * whole / _LARGEST_STEP, delta / (4.0 * T)))
    if m < least:
        raise ValueError(f"m must be at least {least} for Theorem B.8 to hold, got {m!r}")
    advanced = math.sqrt(2.0 * math.log(1.25 * 4.0 * s * T / delta)) * s / whole
    from .. import privacy
    from ..privacy.accounting.sampling import WithoutReplacement
    from ..privacy.events import Gaussian, Repeated, Sampled

    def run(multiplier: float) -> Repeated:
        pair = [Gaussian(multiplier, 1.0), Gaussian(multiplier, 1.0)]
        return Repeated(Sampled(WithoutReplacement(m), pair, n), T)

    budget = privacy.Budget(epsilon, delta=delta)
    full = 3.0 * math.sqrt(T * (1.0 - math.log(delta))) / epsilon  # enough without sampling
    bracket = 1e-3 * min(advanced, full), full
    renyi = privacy.calibrate(run, budget, bracket, accountant="rdp")
    # The PLD result is never above the Renyi bound; its discretization limits its accuracy.
    pld = privacy.calibrate(run, budget, (1e-3 * renyi, renyi), tol=1e-3)
    return BatchNoise(pld, renyi, advanced)
