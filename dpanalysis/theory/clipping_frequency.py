"""How often gradients are clipped: predictions that can be held against measurements.

Fang et al. (2023), sections 4 and 6.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from .._validation import check_int
from ._arguments import FloatArray, check_array, plain

__all__ = [
    "clipping_frequency_gaussian",
    "clipping_frequency_light_tail",
    "clipping_frequency_weak_growth",
]

# Beyond, the series of the noncentral law is wrong (0.43 for 0.5 at 1e6), NaN or endless.
_LARGEST_SHIFT = 1e4


def clipping_frequency_gaussian(
    clip_norm: ArrayLike, gradient_norm: ArrayLike, std: ArrayLike, dimension: int
) -> FloatArray | float:
    r"""Return the fraction of gradients clipped when they are Gaussian around the mean gradient.

    :math:`P(\|\nabla f + s z\| > C)` with z standard normal in d dimensions: the tail of a
    noncentral chi-squared law. Exact; the law of the paper's synthetic data.

    Parameters
    ----------
    clip_norm : array_like
        C > 0.
    gradient_norm : array_like
        :math:`\|\nabla f\| \ge 0`.
    std : array_like
        Standard deviation s > 0 of each coordinate. All three broadcast.
    dimension : int
        d >= 1.

    Returns
    -------
    float or ndarray
        In [0, 1].

    Raises
    ------
    ValueError
        If an argument is out of its range, or the tail cannot be computed: where the clip norm
        is within the reach of the noise, SciPy's series fails for a gradient longer than 1e4
        standard deviations, or for more than 1e8 dimensions.

    References
    ----------
    Fang et al. (2023), section 6.1 and Appendix C.1 (Fig. 4).

    Examples
    --------
    >>> clipping_frequency_gaussian([15.0, 16.0, 17.0], 0.0, 1.0, 256)
    array([0.9192, 0.4882, 0.0764])
    """
    from scipy.stats import chi2, ncx2

    C = check_array("clip_norm", clip_norm, low=0.0, low_open=True)
    G = check_array("gradient_norm", gradient_norm, low=0.0)
    s = check_array("std", std, low=0.0, low_open=True)
    d = check_int("dimension", dimension, low=1)
    with np.errstate(over="ignore"):
        c, g = np.broadcast_arrays(C / s, G / s)
    # |g + z| is within |z| of g, and |z| beyond sqrt(d) + 39 has a probability below exp(-760).
    reach = np.sqrt(d) + 39.0
    never, always = c > g + reach, g > c + reach
    undecided = ~(never | always)
    if (undecided & (g > 0) & ((g > _LARGEST_SHIFT) | (d > _LARGEST_SHIFT**2))).any():
        raise ValueError(
            f"gradient_norm / std must be at most {_LARGEST_SHIFT:g} and dimension at most "
            f"{_LARGEST_SHIFT**2:g} where clip_norm is that near: the law is not computable beyond"
        )
    x, shift = np.where(undecided, c, 1.0) ** 2, np.where(undecided & (g > 1e-30), g, 0.0) ** 2
    # The noncentral law is not defined at 0 in every version of SciPy.
    tail = np.where(shift > 0, ncx2.sf(x, d, np.where(shift > 0, shift, 1.0)), chi2.sf(x, d))
    return plain(np.clip(np.where(undecided, tail, always), 0.0, 1.0))


def clipping_frequency_light_tail(
    clip_norm: ArrayLike, gradient_norm: ArrayLike, rho: ArrayLike
) -> FloatArray | float:
    r"""Return a bound on the fraction clipped under the light-tail assumption.

    :math:`\min\{1, \exp(1 - (C - \|\nabla f\|)_+^2/\rho^2)\}` by Markov's inequality. Below 1/n
    it says that none of the n samples is clipped: at :math:`C \ge \|\nabla f\| + \rho
    \sqrt{1 + \ln n}`, the rule of :func:`no_clipping_norm`.

    Parameters
    ----------
    clip_norm, gradient_norm
        As in :func:`clipping_frequency_gaussian`.
    rho : array_like
        The constant of Assumption 4.1, positive: see :func:`light_tail_scale`.

    Returns
    -------
    float or ndarray
        In [0, 1].

    Raises
    ------
    ValueError
        If an argument is out of its range.

    References
    ----------
    Fang et al. (2023), Assumption 4.1 and Proposition 4.3.

    Examples
    --------
    >>> clipping_frequency_light_tail([1.0, 3.0, 5.0], 1.0, 1.0)
    array([1.0, 0.0498, 3.06e-07])
    """
    C = check_array("clip_norm", clip_norm, low=0.0, low_open=True)
    G = check_array("gradient_norm", gradient_norm, low=0.0)
    rho = check_array("rho", rho, low=0.0, low_open=True)
    with np.errstate(over="ignore"):  # the exponential of minus infinity is the 0 that it should be
        exponent = 1.0 - (np.maximum(C - G, 0.0) / rho) ** 2
    return plain(np.exp(np.minimum(exponent, 0.0)))


def clipping_frequency_weak_growth(
    clip_norm: ArrayLike,
    mean_loss: ArrayLike,
    beta1: ArrayLike,
    beta2: ArrayLike = 0.0,
    lower_bound: ArrayLike = 0.0,
) -> FloatArray | float:
    r"""Return a bound on the fraction that value or gradient clipping clips, from the mean loss.

    Value clipping rescales a sample when :math:`\beta_1 (f_i - f_{lb}) + \beta_2 > C^2`; so does
    gradient clipping, of these samples only. Markov's inequality gives :math:`\min\{1, \beta_1
    (f - f_{lb})/(C^2 - \beta_2)\}`: the less the loss, the less is clipped.

    Parameters
    ----------
    clip_norm : array_like
        C > 0.
    mean_loss : array_like
        f, not below ``lower_bound``.
    beta1, beta2 : array_like
        Weak growth constants, ``beta1 > 0``, ``beta2 >= 0``: see :func:`weak_growth_logistic`.
    lower_bound : array_like
        :math:`f_{lb} \le f_i` for all i. All arguments broadcast.

    Returns
    -------
    float or ndarray
        In [0, 1]; 1 where :math:`C^2 \le \beta_2`.

    Raises
    ------
    ValueError
        If an argument is out of its range.

    References
    ----------
    Fang et al. (2023), Definition 3.1, Algorithm 3 and section 6.1.

    Examples
    --------
    >>> clipping_frequency_weak_growth([0.5, 1.0, 2.0], 0.3, 0.40726)
    array([0.4887 , 0.1221 , 0.0305])
    """
    C = check_array("clip_norm", clip_norm, low=0.0, low_open=True)
    beta1 = check_array("beta1", beta1, low=0.0, low_open=True)
    beta2 = check_array("beta2", beta2, low=0.0)
    excess = check_array("mean_loss", mean_loss) - check_array("lower_bound", lower_bound)
    excess = check_array("mean_loss - lower_bound", excess, low=0.0)
    room = C**2 - beta2
    bound = beta1 * excess / np.where(room > 0, room, 1.0)
    return plain(np.where(room > 0, np.minimum(bound, 1.0), 1.0))
