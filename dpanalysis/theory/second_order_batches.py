"""Second-order points from small batches: how large and how noisy a batch must be.

Gao and Wright (2023), Appendix B.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from .._validation import check_int, check_number
from .second_order import tolerated_noise

__all__ = ["BatchNoise", "batch_noise", "second_order_batch"]

# The root of e^x = 1 + 2x that is not 0.
_LARGEST_STEP = 1.2564312086261697


class BatchNoise(NamedTuple):
    """Noise multipliers of gradients and Hessians, for one run, by three ways of accounting.

    Attributes
    ----------
    pld : float
        By loss distributions: a batch's two releases are one Gaussian release with sqrt 2 times
        the shift, whose amplified pair is exact; T such pairs are composed.
    renyi : float
        By Theorem B.4: a batch's two releases are composed, then amplified; T such pairs are
        composed at the best real order.
    advanced : float
        By Theorem B.8: advanced composition of (epsilon, delta).

    Examples
    --------
    >>> BatchNoise(pld=1.5, renyi=2.0, advanced=20.0).pld
    1.5
    """

    pld: float
    renyi: float
    advanced: float


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
    r"""Return how many records a batch must have so that its derivatives resemble those of all.

    .. math:: \max\Big\{\frac{128 B_g^2(\ln(2dT/\eta) + \frac14)}
              {\min\{c_1\epsilon_g, c_2\epsilon_H^2/M\}^2},\;
              \frac{64 B_H^2 \ln(2dT/\eta)}{(c\,\epsilon_H)^2}\Big\}

    Then the gradient and the Hessian of each of T batches are as near to those of all records
    as half of the tolerated noise, but for the probability :math:`2\eta`.

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

    Returns
    -------
    int

    Raises
    ------
    TypeError, ValueError
        If an argument is outside its range.

    References
    ----------
    Gao and Wright (2023), (23) and (24), after Kohler, Lucchi (2017); errata 003-18.

    Examples
    --------
    >>> second_order_batch(0.06, 0.245, 0.1, 1.0, 0.25, 54, 195, 0.05, c=0.1, c1=0.25, c2=0.1)
    7509825
    """
    gradient, hessian = tolerated_noise(eps_g, eps_H, M, c, c1, c2)
    B_g = check_number("B_g", B_g, low=0.0, low_open=True)
    B_H = check_number("B_H", B_H, low=0.0, low_open=True)
    eta = check_number("failure", failure, low=0.0, high=1.0, low_open=True, high_open=True)
    log = math.log(2.0 * check_int("d", d, low=1) * check_int("iterations", iterations, low=1))
    log -= math.log(eta)
    return math.ceil(
        max(128.0 * (log + 0.25) * (B_g / gradient) ** 2, 64.0 * log * (B_H / hessian) ** 2)
    )


def batch_noise(epsilon: float, delta: float, iterations: int, n: int, m: int) -> BatchNoise:
    r"""Return the noise that T gradients and T Hessians need, by three ways of accounting.

    A gradient and a Hessian share each batch. Which of them a run asks for may depend on answers:
    both have the same multiplier, and a batch is paid for both.

    Theorem B.8 takes :math:`\sqrt{2\ln(1.25/\delta_0)}/\epsilon_0` with

    .. math:: \epsilon_0 = \frac{\epsilon}{8s\sqrt{2T\ln(2/\delta)}},\quad
              \delta_0 = \frac{\delta}{4sT},\quad s = \frac mn.

    Parameters
    ----------
    epsilon, delta : float
        In (0, 1); replace-one. The whole budget pays for these releases: f(w0) is public for
        w0 = 0.
    iterations : int
        T, at least 1.
    n, m : int
        Numbers of records and of those drawn without replacement, 1 <= m <= n.

    Returns
    -------
    BatchNoise
        Standard deviations divided by the sensitivities; that of a gradient is 2 B_g/m.

    Raises
    ------
    TypeError, ValueError
        If an argument is outside its range; if m is so small that Theorem B.8 is false.

    Notes
    -----
    The proof of Theorem B.8 bounds the amplified :math:`\ln(1 + s(e^{2\epsilon_0} - 1))` by
    :math:`4s\epsilon_0`. That takes :math:`\epsilon_0 \le 0.628`, and so a batch that is not too
    small: at :math:`m \ll n` the noise it prescribes is far too little. (It takes
    :math:`\delta_0 \le 1`, too.)

    Of the three, Theorem B.4 is the one that a method uses which decides on the way how noisy the
    rest will be; where T and the noise are fixed beforehand nothing speaks against the first.

    References
    ----------
    Gao and Wright (2023), Theorems B.4 and B.8; errata 003-19, 003-20.

    Examples
    --------
    >>> batch_noise(0.5, 1e-6, iterations=200, n=100_000, m=1000)
    BatchNoise(pld=2.23..., renyi=4.8893, advanced=69.2047)
    """
    epsilon = check_number("epsilon", epsilon, low=0.0, high=1.0, low_open=True, high_open=True)
    delta = check_number("delta", delta, low=0.0, high=1.0, low_open=True, high_open=True)
    T = check_int("iterations", iterations, low=1)
    n = check_int("n", n, low=1)
    s = check_int("m", m, low=1, high=n) / n
    whole = epsilon / (8.0 * math.sqrt(2.0 * T * math.log(2.0 / delta)))
    least = math.ceil(n * max(2.0 * whole / _LARGEST_STEP, delta / (4.0 * T)))
    if m < least:
        raise ValueError(f"m must be at least {least} for Theorem B.8 to hold, got {m!r}")
    advanced = math.sqrt(2.0 * math.log(1.25 * 4.0 * s * T / delta)) * s / whole
    from .. import privacy
    from ..privacy.events import Gaussian, Repeated, Sampled
    from ..privacy.sampling import WithoutReplacement

    def run(multiplier: float) -> Repeated:
        pair = [Gaussian(multiplier, 1.0), Gaussian(multiplier, 1.0)]
        return Repeated(Sampled(WithoutReplacement(m), pair, n), T)

    budget = privacy.Budget(epsilon, delta=delta)
    full = 3.0 * math.sqrt(T * (1.0 - math.log(delta))) / epsilon  # enough without sampling
    bracket = 1e-3 * min(advanced, full), full
    renyi = privacy.calibrate(run, budget, bracket, accountant="rdp")
    # The tightest is never above the Renyi bound; its steps of the grid allow no more digits.
    bracket = 1e-3 * renyi, renyi
    pld = privacy.calibrate(run, budget, bracket, tol=1e-3)
    return BatchNoise(pld, renyi, advanced)
