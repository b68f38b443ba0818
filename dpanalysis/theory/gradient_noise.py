"""How large the noise of a private gradient is: that of the mechanism and that of sampling.

Kuru et al. (2022), section 3.1.
"""

from __future__ import annotations

from numpy.typing import ArrayLike

from .._validation import check_int, check_number
from ._arguments import FloatArray, check_array

__all__ = ["noise_second_moment", "subsampling_variance"]


def subsampling_variance(sensitivity: float, n: int, m: int, in_ball: bool = True) -> float:
    """Return a bound on ``E||v||^2`` for the error ``v`` of the mean of ``m`` of ``n`` gradients.

    Kuru et al. (2022), (3.13).

    Parameters
    ----------
    sensitivity : float
        ``S_1``: largest L1 distance between two samples' gradients.
    n, m : int
        Data and batch size, ``1 <= m <= n``; sampling is without replacement.
    in_ball : bool
        True when every gradient lies in an L1 ball of radius ``S_1 / 2`` (logistic loss with
        bounded rows does), for which (3.13) is proved. Otherwise ``S_1^2 / 4`` becomes
        ``S_1^2 / 2``: one step of the paper's proof is false in general.

    Returns
    -------
    float
        ``S_1^2/4 (n - m) / (m (n - 1))``; 0 for the full batch.

    Raises
    ------
    ValueError
        If an argument is out of its range.

    Examples
    --------
    >>> subsampling_variance(sensitivity=40.0, n=100_000, m=1000)
    0.396003
    >>> subsampling_variance(sensitivity=40.0, n=100_000, m=1000, in_ball=False)
    0.792007
    """
    sensitivity = check_number("sensitivity", sensitivity, low=0.0)
    n = check_int("n", n, low=1)
    m = check_int("m", m, low=1, high=n)
    if m == n:
        return 0.0
    return sensitivity * sensitivity / (4.0 if in_ball else 2.0) * (n - m) / (m * (n - 1.0))


def noise_second_moment(
    laplace_scales: ArrayLike, dimension: int, subsampling_variance: float = 0.0
) -> FloatArray | float:
    """Return ``E||w||^2`` of the whole gradient noise (Kuru et al. 2022, (3.12), corrected).

    Parameters
    ----------
    laplace_scales : array_like
        Laplace scale(s) ``b >= 0``; the variance of a coordinate is ``2 b^2``.
    dimension : int
        ``d >= 1``.
    subsampling_variance : float
        ``sigma_s^2``, see :func:`subsampling_variance`.

    Returns
    -------
    float or ndarray
        ``sigma_s^2 + 2 d b^2``: a bound on the trace of the covariance. What the paper calls
        the norm of the covariance is this trace; the spectral norm is ``sigma_s^2 + 2 b^2``.

    Raises
    ------
    ValueError
        If an argument is out of its range.

    Examples
    --------
    >>> noise_second_moment(0.1, dimension=20)
    0.4
    """
    scales = check_array("laplace_scales", laplace_scales, low=0.0)
    dimension = check_int("dimension", dimension, low=1)
    variance = check_number("subsampling_variance", subsampling_variance, low=0.0)
    moment = variance + 2.0 * dimension * scales**2
    return moment if scales.ndim else float(moment)
