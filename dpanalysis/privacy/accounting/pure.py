"""Pure differential privacy: the Laplace release and amplification by subsampling.

All functions broadcast over arrays and are accurate from epsilon = 1e-300 to 1e4.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..._validation import as_scalar, check_int, check_number, check_reals

# Bound on the relative error of an expression with a few function calls.
_ROUNDING = 2e-15


def _positive(name: str, value: ArrayLike, allow_zero: bool = False) -> Any:
    """Return ``value`` as floats if every entry is positive (or zero) and not NaN."""
    array = check_reals(name, value)
    bad = ~(array >= 0.0) if allow_zero else ~(array > 0.0)
    if bad.any():
        allowed = "[0, inf]" if allow_zero else "(0, inf]"
        raise ValueError(f"{name} must lie in {allowed}, got {array[bad].flat[0]:g}")
    return array


def amplify(epsilon: ArrayLike, fraction: float) -> Any:
    r"""Return the pure loss of an epsilon-private query on a random subsample of the data.

    .. math:: \ln(1 + q (e^\epsilon - 1))

    holds for Poisson sampling under add-or-remove-one and for sampling without replacement under
    replace-one, and is attained in both cases: Balle, Barthe, Gaboardi (2018), Theorems 8 and 9;
    Kuru et al. (2022), (3.5) and Theorem A.3.
    """
    base = _positive("epsilon", epsilon, allow_zero=True)
    q = check_number("fraction", fraction, low=0.0, high=1.0, low_open=True)
    if q == 1.0:
        return as_scalar(base + 0.0)
    # q e^base is computed by halves: the power alone may overflow where the product does not.
    with np.errstate(over="ignore"):
        half = np.exp(0.5 * base)
        added = np.where(base <= 1.0, q * np.expm1(np.minimum(base, 1.0)), (q * half) * half - q)
    large = base * (1.0 + _ROUNDING) + math.log(q)
    value = np.where(added < 1e290, np.log1p(np.minimum(added, 1e290)), large)
    # 1e-323 covers the absolute rounding error of subnormal numbers; it changes no larger number.
    return as_scalar(np.minimum((1.0 + _ROUNDING) * value + 1e-323 * (base > 0.0), base))


@np.errstate(divide="ignore")  # of the branch that is not taken
def deamplify(epsilon: ArrayLike, fraction: float) -> Any:
    """Return the loss on the batch whose amplified loss is ``epsilon``; inverts :func:`amplify`."""
    amplified = _positive("epsilon", epsilon, allow_zero=True)
    q = check_number("fraction", fraction, low=0.0, high=1.0, low_open=True)
    if q == 1.0:
        return as_scalar(amplified + 0.0)
    small = np.log1p(np.expm1(np.minimum(amplified, 1.0)) / q)
    # 1 + (e^x - 1)/q = (e^x/q) (1 - (1 - q) e^-x)
    large = amplified - math.log(q) + np.log1p((q - 1.0) * np.exp(-amplified))
    return as_scalar((1.0 - _ROUNDING) * np.where(amplified <= 1.0, small, large))


def _fraction(n: int, m: int) -> float:
    n = check_int("n", n, low=1)
    return check_int("m", m, low=1, high=n) / n


def amplify_without_replacement(epsilon: ArrayLike, n: int, m: int) -> Any:
    """Return the pure loss of an epsilon-private query on m of n records (replace-one).

    Parameters
    ----------
    epsilon : array_like
        Pure loss on the batch, in [0, inf].
    n, m : int
        Numbers of records and of drawn records, 1 <= m <= n.

    Returns
    -------
    float or ndarray
        ln(1 + (m/n)(e^epsilon - 1)); tight (Kuru et al. (2022), (3.5)).

    Examples
    --------
    >>> amplify_without_replacement(1.0, n=100_000, m=1000)
    0.0170369
    """
    return amplify(epsilon, _fraction(n, m))


def deamplify_without_replacement(epsilon: ArrayLike, n: int, m: int) -> Any:
    """Return the pure loss on the batch that is amplified to ``epsilon``.

    The inverse of :func:`amplify_without_replacement`, with the same arguments.

    Examples
    --------
    >>> deamplify_without_replacement(0.01, n=1000, m=100)
    0.0957661
    """
    return deamplify(epsilon, _fraction(n, m))


def amplify_poisson(epsilon: ArrayLike, rate: float) -> Any:
    """Return the pure loss of an epsilon-private query on a Poisson batch (add-or-remove-one).

    ln(1 + rate (e^epsilon - 1)) for a ``rate`` in (0, 1], which is tight. ``epsilon`` is as in
    :func:`amplify_without_replacement`.

    Examples
    --------
    >>> amplify_poisson(1.0, 0.01)
    0.0170369
    """
    return amplify(epsilon, check_number("rate", rate, low=0.0, high=1.0, low_open=True))


def laplace_epsilon(sensitivity: ArrayLike, scale: ArrayLike, n: int, m: int | None = None) -> Any:
    """Return the pure loss of one Laplace release of an m-of-n mean.

    Parameters
    ----------
    sensitivity : array_like
        S1, the L1 sensitivity of the SUM under replace-one, in [0, inf].
    scale : array_like
        Scale b of the Laplace noise added to every coordinate of the MEAN, in (0, inf].
    n : int
        Number of records.
    m : int, optional
        Size of a batch drawn without replacement; None is the full batch, m = n.

    Returns
    -------
    float or ndarray
        ln(1 + (m/n)(e^{S1/(m b)} - 1)); S1/(n b) when m = n.

    References
    ----------
    Kuru et al. (2022), (3.3) and Proposition 3.1 (errata 001-1: holds and is tight).

    Examples
    --------
    >>> laplace_epsilon(sensitivity=40.0, scale=0.4, n=1000)
    0.1
    >>> laplace_epsilon(sensitivity=40.0, scale=0.4, n=1000, m=100)
    0.1585651
    """
    fraction = _fraction(n, n if m is None else m)
    bound = _positive("sensitivity", sensitivity, allow_zero=True)
    noise = _positive("scale", scale)
    return amplify(bound / ((n if m is None else m) * noise), fraction)
