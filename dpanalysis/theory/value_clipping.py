r"""Constants of value clipping: weak growth, spectral norms and clipping frequencies.

A function h satisfies the weak growth condition of Fang et al. (2023), Definition 3.1, when

.. math:: \|\nabla h(w)\|^2 \le \beta_1 (h(w) - \inf h) + \beta_2 \quad \text{for all } w.

Value clipping (Algorithm 3) bounds one sample's gradient by its loss through these constants, and
Theorem 4.5 chooses the clip norm by them. Here :math:`\beta_2 = 0` throughout, and the functions
return the least :math:`\beta_1`. All of them follow from

.. math:: \kappa = \sup_{0 < q < 1} \frac{(1-q)^2}{-\ln q} = 0.40726437758907375,

where q is the model's probability of the correct label. Setting the derivative to zero gives
:math:`2 \ln q = 1 - 1/q`, so that :math:`1/q = -2 W_{-1}(-e^{-1/2}/2)` by Lambert's function, and
there the quotient is :math:`\kappa = 2q(1-q)`, at q = 0.28466813704083846.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import lambertw

from .._validation import as_scalar, check_int, check_number, check_reals
from ._arguments import FloatArray, check_array

_UNIT = 2.0**-53


def spectral_bound(matrix: ArrayLike, excess: float = 1e-3) -> float | FloatArray:
    r"""Return an upper bound on the largest singular value of a matrix, by repeated squaring.

    The bound is never below the norm, rounding errors included, and needs a few products of the
    smaller Gram matrix with itself. (Power iteration gives a lower bound, which would be unsafe.)

    Parameters
    ----------
    matrix : array_like of shape (..., m, n)
        One matrix, or a stack of them.
    excess : float
        From 1e-15 to 1: the bound is at most ``1 + excess`` times the norm, up to rounding.

    Returns
    -------
    float or ndarray of shape (...)
        inf where an entry is not finite.

    Notes
    -----
    *Proof.* For every matrix :math:`\|B\|^2 = \|B B^\top\|` in the spectral norm, and
    :math:`\|B\| \le \|B\|_F`. Let :math:`B_0` be the matrix, or its transpose where that is
    wider, and :math:`B_{j+1} = B_j B_j^\top / t_j` for numbers :math:`t_j > 0`. So
    :math:`\|B_j\| = \sqrt{t_j \|B_{j+1}\|}`, and applying this from :math:`\|B_M\| \le \|B_M\|_F`
    back to :math:`B_0` gives the bound. It is :math:`\operatorname{tr}(G^{2^M})^{1/2^{M+1}}` for
    the Gram matrix G of :math:`B_0`, whatever the :math:`t_j` are: here
    :math:`\operatorname{tr} B_j B_j^\top = \|B_j\|_F^2`, so that nothing overflows.

    *Accuracy.* :math:`\|B_M\|` is at least :math:`\ell = \|B_M v\|/\|v\|` for any v, and the bound
    is at most :math:`(\|B_M\|_F / \ell)^{1/2^M}` times the norm: the stopping criterion.
    For a good v, here a column of :math:`B_M`, it is at most :math:`k^{1/2^{M+1}}` for k rows, so
    that M hardly grows with k.

    *Rounding.* Let :math:`u = 2^{-53}`, N the number of entries, and :math:`t_j` the computed
    number, which both divides and multiplies and is at least :math:`.9\|B_j\|_F^2`. An entry of the
    product passes through at most n roundings, so the error of :math:`B_j B_j^\top` is at most
    :math:`\gamma_n \|B_j\|_F^2 \le 2 n u t_j` in the Frobenius norm (Higham, *Accuracy and
    stability of numerical algorithms*, 2002, section 3.5). With the division and underflows,
    :math:`\|B_j\|^2 \le t_j (1 + \varepsilon)(\|B_{j+1}\| + \varepsilon)` for :math:`\varepsilon =
    4(N + 64) u`. The same factor covers the summation of :math:`\|B_M\|_F` and the scaling of
    entries beyond :math:`10^{\pm 100}`. The computed matrices need not be symmetric in any step.

    Examples
    --------
    >>> import numpy as np
    >>> float(spectral_bound(np.diag([3.0, 2.9, -1.0])) / 3.0)
    1.0001
    >>> spectral_bound(np.ones((2, 4, 9)))
    array([6., 6.])
    """
    check_number("excess", excess, low=1e-15, high=1.0)
    B = check_reals("matrix", matrix)
    if B.ndim < 2 or not B.size:
        raise ValueError(f"matrix must have shape (..., m, n), got {B.shape}")
    found = [_bound(each, excess) for each in B.reshape(-1, *B.shape[-2:])]
    return as_scalar(np.reshape(found, B.shape[:-2]))


def _bound(B: FloatArray, excess: float) -> float:
    if len(B) > B.shape[1]:
        B = B.T
    error = 4.0 * (B.size + 64) * _UNIT
    largest, scale = max(float(B.max()), -float(B.min())), 1.0
    if not math.isfinite(largest):
        return math.inf
    if not 1e-100 < largest < 1e100:
        if not largest:
            return 0.0
        scale = largest
        B = B / scale
    squares: list[float] = []
    size = least = 1.0
    while not squares or size > least * (1.0 + excess) ** 2.0 ** len(squares):
        B = B @ B.T
        squares.append(float(B.trace()))
        B /= squares[-1]
        size = float(np.linalg.norm(B))
        column = B[:, B.diagonal().argmax()]
        least = float(np.linalg.norm(B @ column) / np.linalg.norm(column))
    bound = size * (1.0 + error)
    for square in reversed(squares):
        bound = math.sqrt(square * (1.0 + error) * (bound + error))
    return scale * bound * (1.0 + error)


# Weak growth (Fang et al. 2023)


_WORST_PROBABILITY = float(-0.5 / lambertw(-0.5 * math.exp(-0.5), -1).real)
_KAPPA = 2.0 * _WORST_PROBABILITY * (1.0 - _WORST_PROBABILITY)


def weak_growth_logistic(row_norm: float) -> float:
    r"""Return the least beta1 of the logistic loss, :math:`\kappa\|x\|^2`.

    The loss of a sample is :math:`-\ln q` and its gradient :math:`-(1-q) y x`, so the quotient of
    the condition is :math:`\|x\|^2 (1-q)^2/(-\ln q)`; q takes every value in (0, 1). Fang et al.
    (2023), Definition 3.1 and Lemma 3.2.

    Parameters
    ----------
    row_norm : float
        Bound on the L2 norm of a row, non-negative.

    Examples
    --------
    >>> weak_growth_logistic(1.0)
    0.40726
    """
    row_norm = check_number("row_norm", row_norm, low=0.0)
    # Bit for bit as the loss computes it: a clipping rule rejects any smaller constant.
    return _KAPPA * (row_norm * row_norm)


def weak_growth_softmax(row_norm: float) -> float:
    r"""Return the least beta1 of softmax regression, :math:`2\kappa\|x\|^2`.

    With class probabilities p and label y the loss is :math:`-\ln p_y` and the gradient
    :math:`(p - e_y) x^\top`. Given :math:`q = p_y`, the other classes share :math:`1 - q`, so

    .. math:: \|p - e_y\|^2 = (1-q)^2 + \sum_{j \ne y} p_j^2 \le 2 (1-q)^2,

    with equality when one of them has all of it. Dividing by :math:`-\ln q` and taking the supremum
    over q gives :math:`2\kappa = 0.81452875517814750`: attained for two classes, and approached,
    for more, as all logits but two go to minus infinity. Fang et al. (2023), Definition 3.1, Lemma
    3.2 and Appendix D.

    Parameters
    ----------
    row_norm : float
        As in :func:`weak_growth_logistic`.

    Examples
    --------
    >>> weak_growth_softmax(1.0)
    0.81453
    """
    row_norm = check_number("row_norm", row_norm, low=0.0)
    return weak_growth_logistic(math.sqrt(2.0) * row_norm)


class LayerSizes(NamedTuple):
    """Constants of a layer for weak growth, as numbers or arrays of one shape."""

    norm: Any  # bound on the norm of the linear part, and of its derivative
    reads: float = 0.0  # most patches containing one input entry; 0 if the weights are fixed
    offset: Any = 0.0  # bound on the norm of the added bias, over all positions together
    places: float = 0.0  # number of positions where the bias is added; 0 if it is fixed
    most: float = math.inf  # bound on the norm of the output for every input


def growth_of_layers(input_norm: float, layers: Iterable[LayerSizes]) -> Any:
    r"""Return c with :math:`\|\nabla f\|^2 \le c \|\delta\|^2` for a sequence of layers.

    With :math:`\delta` the gradient of the loss in the last layer's outputs, and :math:`A_i` a
    bound on the norm of the output of layer i,

    .. math:: c = \sum_i \bigl(\text{reads}_i A_{i-1}^2 + \text{places}_i\bigr)
              \prod_{j > i} \text{norm}_j^2, \qquad
              A_i = \min(\text{norm}_i A_{i-1} + \text{offset}_i,\; \text{most}_i).

    Proof: backpropagation through a layer multiplies the norm of the gradient by at most
    :math:`\text{norm}_j`. The weights' gradient is a sum of products :math:`\sum_t \delta_{it}
    p_t^\top` over positions t, where :math:`p_t` is the part of the input that the weights multiply
    there. So its norm is at most :math:`\|\delta_i\| (\sum_t \|p_t\|^2)^{1/2} \le \|\delta_i\|
    \sqrt{\text{reads}_i} A_{i-1}`, and that of the bias, :math:`\sum_t \delta_{it}`, at most
    :math:`\sqrt{\text{places}_i} \|\delta_i\|`.
    """
    total, reach = 0.0, input_norm
    for layer in layers:
        total = total * layer.norm**2 + layer.reads * reach**2 + layer.places
        reach = np.minimum(layer.norm * reach + layer.offset, layer.most)
    return total


def weak_growth_mlp(
    row_norm: float, spectral_norms: ArrayLike, bias_norms: ArrayLike | None = None
) -> float | FloatArray:
    r"""Return beta1 of a feed-forward network with cross-entropy loss, at given weights.

    For layers :math:`a_i = \sigma(W_i a_{i-1} + b_i)`, i = 1..H (the last without activation),
    and an activation with :math:`\sigma(0) = 0` and slope at most 1 (relu, tanh),

    .. math:: \beta_1 = 2\kappa \sum_{i=1}^{H} \bigl(A_{i-1}^2 + [\text{bias}]\bigr)
              \prod_{j > i} \|W_j\|^2, \qquad
              A_0 = \|x\|, \quad A_i = \|W_i\| A_{i-1} + \|b_i\|.

    Without biases this is :math:`2\kappa\|x\|^2 \sum_i \prod_{j \ne i} \|W_j\|^2`. Proof: the
    logits' gradient satisfies :math:`\|\delta_H\|^2 \le 2\kappa f` (see
    :func:`weak_growth_softmax`), and :func:`growth_of_layers` proves the rest.

    The constant holds at THESE weights: it grows with them without bound, so it must be evaluated
    anew at every iterate (which is public in a private run). It is the least one in terms of the
    norms alone: aligned rank-one layers with all hidden units active attain it when they separate
    two logits by 0.92142. Fang et al. (2023), Appendix D, corrected.

    Parameters
    ----------
    row_norm : float
        Bound on the L2 norm of a row, non-negative.
    spectral_norms : array_like of shape (H,) or (R, H)
        Largest singular value of each layer's weights, from the input on.
    bias_norms : array_like of the shape of ``spectral_norms``, optional
        L2 norm of each layer's bias; None where the layers have no biases.

    Examples
    --------
    >>> weak_growth_mlp(1.0, [1.0])  # one layer: softmax regression
    0.81453
    >>> weak_growth_mlp(1.0, [2.0, 2.0, 2.0])
    39.097
    """
    norms = check_array("spectral_norms", spectral_norms, low=0.0)
    if norms.ndim not in (1, 2) or not norms.size:
        raise ValueError(f"spectral_norms must have shape (H,) or (R, H), got {norms.shape}")
    row_norm = check_number("row_norm", row_norm, low=0.0)
    biases = np.zeros_like(norms)
    if bias_norms is not None:
        biases = check_array("bias_norms", bias_norms, low=0.0)
        if biases.shape != norms.shape:
            raise ValueError(
                f"bias_norms must have the shape of spectral_norms, {norms.shape}, got "
                f"{biases.shape}"
            )
    layers = [
        LayerSizes(norms[..., i], 1.0, biases[..., i], float(bias_norms is not None))
        for i in range(norms.shape[-1])
    ]
    return as_scalar(2.0 * _KAPPA * growth_of_layers(row_norm, layers))


# Clipping frequencies (Fang et al. 2023, sections 4 and 6)


# Beyond it SciPy's noncentral chi-squared series is wrong (0.43 for 0.5 at 1e6), NaN or endless.
_LARGEST_SHIFT = 1e4


def clipping_frequency_gaussian(
    clip_norm: ArrayLike, gradient_norm: ArrayLike, std: ArrayLike, dimension: int
) -> FloatArray | float:
    r"""Return the fraction of gradients clipped when they are Gaussian around the mean gradient.

    :math:`P(\|\nabla f + s z\| > C)` with z standard normal in d dimensions: the tail of a
    noncentral chi-squared distribution. Exact for the paper's synthetic data. Fang et al. (2023),
    section 6.1 and Appendix C.1 (Fig. 4).

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

    Raises
    ------
    ValueError
        If the tail is neither 0 nor 1 to working precision and SciPy's series fails: for a gradient
        norm above 1e4 standard deviations, or more than 1e8 dimensions.

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
    # It is below c only if z goes back along g by g - c, a normal tail: 1e-19 from 9 on, where
    # SciPy's series overflows for small c.
    never, always = c > g + np.sqrt(d) + 39.0, g > c + 9.0
    undecided = ~(never | always)
    if (undecided & (g > 0) & ((g > _LARGEST_SHIFT) | (d > _LARGEST_SHIFT**2))).any():
        raise ValueError(
            f"gradient_norm / std must be at most {_LARGEST_SHIFT:g} and dimension at most "
            f"{_LARGEST_SHIFT**2:g} for a clip_norm this near to gradient_norm: SciPy cannot "
            "compute the tail beyond"
        )
    x, shift = np.where(undecided, c, 1.0) ** 2, np.where(undecided & (g > 1e-30), g, 0.0) ** 2
    # Some versions of SciPy do not define the noncentral distribution at 0.
    tail = np.where(shift > 0, ncx2.sf(x, d, np.where(shift > 0, shift, 1.0)), chi2.sf(x, d))
    return as_scalar(np.clip(np.where(undecided, tail, always), 0.0, 1.0))


def clipping_frequency_light_tail(
    clip_norm: ArrayLike, gradient_norm: ArrayLike, rho: ArrayLike
) -> FloatArray | float:
    r"""Return a bound on the fraction clipped under the light-tail assumption.

    :math:`\min\{1, \exp(1 - (C - \|\nabla f\|)_+^2/\rho^2)\}` by Markov's inequality. Below 1/n
    none of the n samples is clipped: :math:`C \ge \|\nabla f\| + \rho \sqrt{1 + \ln n}`, the rule
    of :func:`no_clipping_norm`. Fang et al. (2023), Assumption 4.1 and Proposition 4.3.

    Parameters
    ----------
    clip_norm, gradient_norm
        As in :func:`clipping_frequency_gaussian`.
    rho : array_like
        The constant of Assumption 4.1, positive: see :func:`light_tail_scale`.

    Examples
    --------
    >>> clipping_frequency_light_tail([1.0, 3.0, 5.0], 1.0, 1.0)
    array([1.0, 0.0498, 3.06e-07])
    """
    C = check_array("clip_norm", clip_norm, low=0.0, low_open=True)
    G = check_array("gradient_norm", gradient_norm, low=0.0)
    rho = check_array("rho", rho, low=0.0, low_open=True)
    with np.errstate(over="ignore"):  # exp(-inf) = 0 is the correct limit
        exponent = 1.0 - (np.maximum(C - G, 0.0) / rho) ** 2
    return as_scalar(np.exp(np.minimum(exponent, 0.0)))


def clipping_frequency_weak_growth(
    clip_norm: ArrayLike,
    mean_loss: ArrayLike,
    beta1: ArrayLike,
    beta2: ArrayLike = 0.0,
    lower_bound: ArrayLike = 0.0,
) -> FloatArray | float:
    r"""Return a bound on the fraction that value or gradient clipping clips, from the mean loss.

    Value clipping rescales a sample when :math:`\beta_1 (f_i - f_{lb}) + \beta_2 > C^2`; gradient
    clipping rescales some of these samples only. Markov's inequality gives :math:`\min\{1, \beta_1
    (f - f_{lb})/(C^2 - \beta_2)\}`, and 1 where :math:`C^2 \le \beta_2`: the smaller the loss, the
    fewer are clipped. Fang et al. (2023), Definition 3.1, Algorithm 3 and section 6.1.

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
    return as_scalar(np.where(room > 0, np.minimum(bound, 1.0), 1.0))
