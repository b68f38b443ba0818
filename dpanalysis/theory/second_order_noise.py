"""How long Gaussian noise is, and how many Lanczos steps find a smallest eigenvalue.

Gao and Wright (2023), Appendices C and D, with explicit constants.
"""

from __future__ import annotations

import math

from .._validation import check_int, check_number

__all__ = ["gradient_noise_norm", "hessian_noise_norm", "lanczos_iterations"]


def gradient_noise_norm(d: int, std: float, failure: float) -> float:
    r"""Return a bound on the norm of d normal numbers that holds with probability 1 - ``failure``.

    .. math:: \sigma\big(\sqrt d + \sqrt{2\ln(1/\eta)}\big)

    Parameters
    ----------
    d : int
        At least 1.
    std : float
        sigma >= 0.
    failure : float
        eta in (0, 1].

    Returns
    -------
    float

    Raises
    ------
    TypeError, ValueError
        If an argument is outside its range.

    References
    ----------
    In place of Lemma D.6 of Gao and Wright (2023), which is false near eta = 1 (errata 003-9).

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
    r"""Return a bound on the norm of symmetric noise that holds with probability 1 - ``failure``.

    .. math:: \frac{\sigma}{\sqrt2}\big(2\sqrt d + \sqrt{4\ln(2/\eta)}\big)

    for the standard deviation sigma on the diagonal and :math:`\sigma/\sqrt2` off it.

    Parameters
    ----------
    d : int
        At least 1.
    std : float
        sigma >= 0.
    failure : float
        eta in (0, 1].

    Returns
    -------
    float

    Raises
    ------
    TypeError, ValueError
        If an argument is outside its range.

    References
    ----------
    Errata 003-9; the universal constants of Lemma D.7 made explicit.

    Examples
    --------
    >>> hessian_noise_norm(54, 1.0, 0.01)
    13.648
    """
    check_int("d", d, low=1)
    std = check_number("std", std, low=0.0)
    eta = check_number("failure", failure, low=0.0, high=1.0, low_open=True)
    return std * math.sqrt(0.5) * (2.0 * math.sqrt(d) + math.sqrt(4.0 * math.log(2.0 / eta)))


def lanczos_iterations(d: int, norm_bound: float, eps: float, failure: float) -> int:
    r"""Return how many Lanczos steps find the smallest eigenvalue to eps/2.

    .. math:: \min\Big\{d,\; 1 + \Big\lceil\frac12 \ln\frac{2.75\,d}{\delta^2}
              \sqrt{\frac{U}{\epsilon}}\Big\rceil\Big\}

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

    Returns
    -------
    int

    Raises
    ------
    TypeError, ValueError
        If an argument is outside its range.

    References
    ----------
    Gao and Wright (2023), Lemma C.1, after Carmon et al. (2018); errata 003-11.

    Examples
    --------
    >>> lanczos_iterations(300, 1.0, 0.05, 0.1)
    27
    """
    check_int("d", d, low=1)
    for name, value in (("norm_bound", norm_bound), ("eps", eps)):
        check_number(name, value, low=0.0, low_open=True)
    check_number("failure", failure, low=0.0, high=1.0, low_open=True)
    steps = 0.5 * math.log(2.75 * d / failure**2) * math.sqrt(norm_bound / eps)
    return min(d, 1 + math.ceil(steps))
