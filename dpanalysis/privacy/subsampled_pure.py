"""Renyi costs of a release on a random part of the data, when only its pure loss is known.

Each is the largest cost that any release of this pure loss can have, so no smaller bound is true.

References
----------
Balle, Barthe, Gaboardi (2018); Zhu, Dong, Wang (2022).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .._validation import check_int, check_number
from .pure import _scalar, amplify
from .rdp import _log_power_excess, _orders, rdp_pure

__all__ = ["rdp_pure_poisson", "rdp_pure_without_replacement"]


def rdp_pure_poisson(orders: ArrayLike, rate: float, epsilon: float) -> Any:
    r"""Return the largest Renyi cost of an epsilon-private release on a Poisson batch.

    The pair of randomised response, its first member mixed: with p = 1/(1 + e^epsilon),

    .. math:: \frac{1}{\alpha-1} \ln\big(p (1 + q (e^\epsilon - 1))^\alpha
              + (1 - p)(1 - q (1 - e^{-\epsilon}))^\alpha\big).

    Parameters
    ----------
    orders : array_like
        Renyi orders in (1, inf].
    rate : float
        Sampling rate q in (0, 1], add-or-remove-one.
    epsilon : float
        Pure loss on the batch, in [0, inf].

    Returns
    -------
    float or ndarray

    Raises
    ------
    ValueError
        If an argument is outside its range.

    Examples
    --------
    >>> bool(rdp_pure_poisson(4, 0.1, 1.0) < rdp_pure(4, amplify(1.0, 0.1)))
    True
    """
    a = _orders(orders)
    q = check_number("rate", rate, low=0.0, high=1.0, low_open=True)
    loss = check_number("epsilon", epsilon, low=0.0, finite=False)
    top = amplify(loss, q)
    if q == 1.0 or math.isinf(loss):
        return rdp_pure(a, loss)
    bottom = math.log1p(q * math.expm1(-loss))
    log_low, log_high = -float(np.logaddexp(0.0, loss)), -float(np.logaddexp(0.0, -loss))
    tame = np.where(np.isfinite(a), a, 2.0)
    # E s^a = 1 + E (s^a - 1 - a (s - 1)) for a density s, whose mean is 1.
    excess = np.logaddexp(
        log_low + _log_power_excess(top, tame), log_high + _log_power_excess(bottom, tame)
    )
    value = np.logaddexp(0.0, excess) / (tame - 1.0)
    return _scalar(np.where(np.isinf(a), top, value))


def rdp_pure_without_replacement(orders: ArrayLike, n: int, m: int, epsilon: float) -> Any:
    r"""Return the largest Renyi cost of an epsilon-private release on m of n records.

    With x = ln(1 + (m/n)(e^epsilon - 1)), the amplified loss, the release is dominated by
    randomised response at x that is made with probability (1 + e^x)/(1 + e^epsilon) only,
    and is silent otherwise: its privacy profile is exactly the amplified one.

    Parameters
    ----------
    orders : array_like
        Renyi orders in (1, inf].
    n, m : int
        Numbers of records and of those drawn, 1 <= m <= n; replace-one.
    epsilon : float
        Pure loss on the batch, in [0, inf].

    Returns
    -------
    float or ndarray

    Raises
    ------
    ValueError
        If an argument is outside its range.

    References
    ----------
    Balle, Barthe, Gaboardi (2018), Theorem 9, gives delta(x(t)) <= (m/n) delta(t) for
    every t; with randomised response's delta(t) = (e^epsilon - e^t)/(1 + e^epsilon) the
    bound is (e^x - e^t')/(1 + e^epsilon), the profile above. Zhu, Dong, Wang (2022): a
    profile above another implies a Renyi curve above it, and the bounds compose.

    Examples
    --------
    >>> bool(rdp_pure_without_replacement(4, 10, 1, 1.0) < rdp_pure(4, amplify(1.0, 0.1)))
    True
    """
    a = _orders(orders)
    n = check_int("n", n, low=1)
    fraction = check_int("m", m, low=1, high=n) / n
    loss = check_number("epsilon", epsilon, low=0.0, finite=False)
    if fraction == 1.0 or math.isinf(loss):
        return rdp_pure(a, loss)
    top = amplify(loss, fraction)
    log_speak = float(np.logaddexp(0.0, top) - np.logaddexp(0.0, loss))
    speak = math.exp(log_speak)
    with np.errstate(invalid="ignore"):
        moment = np.where(np.isinf(a), 0.0, a - 1.0) * rdp_pure(a, top)
        near = np.log1p(speak * np.expm1(np.minimum(moment, 30.0)))
        far = np.logaddexp(math.log1p(-speak) if speak < 1.0 else -np.inf, log_speak + moment)
        value = np.where(moment < 30.0, near, far) / (a - 1.0)
    return _scalar(np.where(np.isinf(a), top, value))
