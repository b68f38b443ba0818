r"""Weak growth: how large one sample's gradient can be, given its loss (Fang et al. 2023).

A function h satisfies the weak growth condition of Fang et al. (2023), Definition 3.1, when

.. math:: \|\nabla h(w)\|^2 \le \beta_1 (h(w) - \inf h) + \beta_2 \quad \text{for all } w.

Value clipping (Algorithm 3) bounds a gradient by the loss through these constants, and Theorem
4.5 sizes the clip norm with them. Here :math:`\beta_2 = 0` throughout, the functions return
:math:`\beta_1`, and the constants are the least ones. All rest on one number,

.. math:: \kappa = \sup_{0 < q < 1} \frac{(1-q)^2}{-\ln q} = 0.40726437758907375,

where q is the probability that the model gives to the right label. Setting the derivative to
zero gives :math:`2 \ln q = 1 - 1/q`, so that :math:`1/q = -2 W_{-1}(-e^{-1/2}/2)` by Lambert's
function, and there the quotient is :math:`\kappa = 2q(1-q)`, at q = 0.28466813704083846.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import lambertw

from .._validation import check_number
from ._arguments import FloatArray, check_array, plain

__all__ = [
    "LayerSizes",
    "check_layers",
    "growth_of_layers",
    "weak_growth_logistic",
    "weak_growth_mlp",
    "weak_growth_softmax",
]

_WORST_PROBABILITY = float(-0.5 / lambertw(-0.5 * math.exp(-0.5), -1).real)
_KAPPA = 2.0 * _WORST_PROBABILITY * (1.0 - _WORST_PROBABILITY)


def weak_growth_logistic(row_norm: float) -> float:
    r"""Return the least beta1 of the logistic loss, :math:`\kappa\|x\|^2`.

    The loss of a sample is :math:`-\ln q` and its gradient :math:`-(1-q) y x`, so the quotient
    of the condition is :math:`\|x\|^2 (1-q)^2/(-\ln q)`; q takes every value in (0, 1).

    Parameters
    ----------
    row_norm : float
        Bound on the L2 norm of a row, non-negative.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If ``row_norm`` is negative or not finite.

    References
    ----------
    Fang et al. (2023), Definition 3.1 and Lemma 3.2.

    Examples
    --------
    >>> weak_growth_logistic(1.0)
    0.40726
    """
    return _KAPPA * check_number("row_norm", row_norm, low=0.0) ** 2


def weak_growth_softmax(row_norm: float) -> float:
    r"""Return the least beta1 of softmax regression, :math:`2\kappa\|x\|^2`.

    With class probabilities p and label y the loss is :math:`-\ln p_y` and the gradient
    :math:`(p - e_y) x^\top`. Given :math:`q = p_y`, the other classes share :math:`1 - q`, so

    .. math:: \|p - e_y\|^2 = (1-q)^2 + \sum_{j \ne y} p_j^2 \le 2 (1-q)^2,

    with equality when one of them has it all. Dividing by :math:`-\ln q` and taking the
    supremum over q gives :math:`2\kappa = 0.81452875517814750`: attained for two classes, and
    approached, for more, as all logits but two go to minus infinity.

    Parameters
    ----------
    row_norm : float
        Bound on the L2 norm of a row, non-negative.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If ``row_norm`` is negative or not finite.

    References
    ----------
    Fang et al. (2023), Definition 3.1, Lemma 3.2 and Appendix D.

    Examples
    --------
    >>> weak_growth_softmax(1.0)
    0.81453
    """
    row_norm = check_number("row_norm", row_norm, low=0.0)
    # As the loss itself computes it, to the last bit: a clipping rule refuses anything less.
    return weak_growth_logistic(math.sqrt(2.0) * row_norm)


def check_layers(row_norm: float, spectral_norms: ArrayLike) -> tuple[float, FloatArray]:
    """Return the row norm and the layers' spectral norms, ``(H,)`` or ``(R, H)``, or raise."""
    norms = check_array("spectral_norms", spectral_norms, low=0.0)
    if norms.ndim not in (1, 2) or not norms.size:
        raise ValueError(f"spectral_norms must have shape (H,) or (R, H), got {norms.shape}")
    return check_number("row_norm", row_norm, low=0.0), norms


class LayerSizes(NamedTuple):
    """What weak growth needs to know of a layer, as numbers or arrays of one shape.

    Attributes
    ----------
    norm : float or array
        Bound on the norm of the layer's linear part, and of its derivative.
    reads : float
        How often an entry of the input stands, at most, in what the weights are multiplied with;
        0 where the weights are not parameters.
    offset : float or array
        Bound on the norm of what is added, at all places together.
    places : float
        How often the bias is added; 0 where it is no parameter.
    most : float
        Bound on the norm of what comes out, whatever comes in.
    """

    norm: Any
    reads: float = 0.0
    offset: Any = 0.0
    places: float = 0.0
    most: float = math.inf


def growth_of_layers(input_norm: float, layers: Iterable[LayerSizes]) -> Any:
    r"""Return c with :math:`\|\nabla f\|^2 \le c \|\delta\|^2` for layers one after the other.

    With :math:`\delta` the loss's gradient in the last layer's outputs, and :math:`A_i` bounds on
    what comes out of layer i,

    .. math:: c = \sum_i \bigl(\text{reads}_i A_{i-1}^2 + \text{places}_i\bigr)
              \prod_{j > i} \text{norm}_j^2, \qquad
              A_i = \min(\text{norm}_i A_{i-1} + \text{offset}_i,\; \text{most}_i).

    Proof: going back through a layer multiplies the norm of the gradient by at most
    :math:`\text{norm}_j`. The weights' gradient is a sum of products
    :math:`\sum_t \delta_{it} p_t^\top` over places t, where :math:`p_t` is what the weights are
    multiplied with there. So its norm is at most
    :math:`\|\delta_i\| (\sum_t \|p_t\|^2)^{1/2} \le \|\delta_i\| \sqrt{\text{reads}_i} A_{i-1}`,
    and that of the bias, :math:`\sum_t \delta_{it}`, at most
    :math:`\sqrt{\text{places}_i} \|\delta_i\|`.

    Examples
    --------
    >>> float(growth_of_layers(1.0, [LayerSizes(2.0, reads=1.0), LayerSizes(3.0, reads=1.0)]))
    13.0
    """
    total, reach = 0.0, input_norm
    for layer in layers:
        # Each layer multiplies what the later layers see of the earlier ones' gradients.
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
    :func:`weak_growth_softmax`), and :func:`growth_of_layers` has the rest.

    The constant holds at THESE weights: it grows with them without bound, so it must be
    evaluated anew at every iterate (which is public in a private run). It is the least one in
    terms of the norms alone: rank-one layers that are aligned, with all hidden units active,
    attain it when they separate two logits by 0.92142.

    Parameters
    ----------
    row_norm : float
        Bound on the L2 norm of a row, non-negative.
    spectral_norms : array_like of shape (H,) or (R, H)
        Largest singular value of each layer's weights, from the input on.
    bias_norms : array_like of the shape of ``spectral_norms``, optional
        L2 norm of each layer's bias; None where the layers have no biases.

    Returns
    -------
    float or ndarray of shape (R,)

    Raises
    ------
    ValueError
        If a norm is negative or not finite, or the shapes disagree.

    References
    ----------
    Fang et al. (2023), Appendix D, corrected.

    Examples
    --------
    >>> weak_growth_mlp(1.0, [1.0])  # one layer: softmax regression
    0.81453
    >>> weak_growth_mlp(1.0, [2.0, 2.0, 2.0])
    39.097
    """
    row_norm, norms = check_layers(row_norm, spectral_norms)
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
    return plain(2.0 * _KAPPA * growth_of_layers(row_norm, layers))
