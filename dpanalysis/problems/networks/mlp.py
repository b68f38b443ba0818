"""Multilayer perceptrons."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from ..._devices import to_host
from ..._validation import check_choice, check_int, check_rng
from ...regularizers import Regularizer
from ..empirical import NonconvexRisk, growth_of_rows
from ..row_bound import RowBound
from .base import Network
from .layers import ACTIVATIONS
from .softmax import CrossEntropy


class MLP(Network, NonconvexRisk):
    r"""Cross-entropy of a multilayer perceptron, plus a public penalty.

    The layers are :math:`a_i = \sigma(W_i a_{i-1} + b_i)`, where :math:`a_0` is the row; the last
    one has softmax instead of the activation. The parameters are the layers' weights (one row per
    output unit) and biases, layer after layer, in one vector of d entries; :meth:`layers` splits
    it. The derivative of relu at 0 is 0.

    The gradient of a sample in a layer is an outer product, so its norm is almost free after
    the backward pass (:math:`\|g_i\|^2 = \sum_l \|\delta_{il}\|^2 (\|a_{il}\|^2 + 1)`, the 1
    only with biases), and clipped sums take one matrix product per layer. Memory is that of the
    activations of a block of rows, never samples times parameters.

    Nothing public bounds a gradient at all weights: ``gradient_bound`` and ``L`` are inf, and a
    private run needs a clipping rule, of any kind: the sums enforce its bound. The objective is not
    convex: ``mu`` is 0, without Hessian or ``solve``. At w = 0 all hidden units are equal and stay
    so; hence :func:`~dpanalysis.minimize` starts each replicate from a draw of :meth:`initial`.

    Parameters
    ----------
    X, y, n_classes, dtype, size
        As for :class:`Softmax`.
    hidden : sequence of int
        Units of each hidden layer; () gives a linear classifier.
    activation : {"relu", "tanh"}
    bias : bool
        Whether the layers have biases.
    regularizer : Regularizer, optional
        From :mod:`dpanalysis.regularizers`; applies to all parameters, including biases.
    row_bound : RowBound or sequence of RowBound, optional
        Public bounds on the rows; by themselves they do not bound gradients.

    Attributes
    ----------
    n, d, size, features, n_classes
        As of :class:`Softmax`.
    hidden, activation, bias
        As given.

    References
    ----------
    Fang et al. (2023), section 6 (784-128-10). Norms: I. Goodfellow, Efficient per-example gradient
    computations, arXiv:1510.01799.

    Examples
    --------
    >>> import numpy as np
    >>> from dpanalysis import clipping, problems
    >>> X, y = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]), np.array([0, 1, 1, 0])
    >>> problem = problems.MLP(X, y, hidden=(8,))
    >>> problem.d
    42
    >>> w = problem.initial(rng=0)
    >>> total = problem.sums(w, clipping=clipping.Flat(0.1))
    >>> bool(np.linalg.norm(total.gradient) <= 4 * 0.1), total.clipped
    (True, 4)
    """

    def __init__(
        self,
        X: Any,
        y: Any,
        hidden: Sequence[int] = (128,),
        n_classes: int | None = None,
        activation: str = "relu",
        bias: bool = True,
        regularizer: Regularizer | None = None,
        row_bound: RowBound | Sequence[RowBound] | None = None,
        *,
        dtype: Any = None,
        size: int | None = None,
    ) -> None:
        if isinstance(hidden, str) or not isinstance(hidden, (Sequence, np.ndarray)):
            raise TypeError(f"hidden must be a sequence of integers, got {hidden!r}")
        self.hidden = tuple(check_int("hidden", units, low=1) for units in hidden)
        self.activation = check_choice("activation", activation, ACTIVATIONS)
        if not isinstance(bias, (bool, np.bool_)):
            raise TypeError(f"bias must be True or False, got {bias!r}")
        self.bias = bool(bias)
        super().__init__(
            X, y, n_classes, regularizer, row_bound, dtype, self.hidden, activation, self.bias, size
        )

    def __repr__(self) -> str:
        count = f"n={self.n}" if self._size is None else f"size={self._size}"  # n is not public
        return (
            f"MLP({count}, features={self.features}, hidden={self.hidden}, "
            f"n_classes={self.n_classes}, activation={self.activation!r}, bias={self.bias}, "
            f"regularizer={self.regularizer!r}, row_bound={self.row_bounds!r})"
        )

    def initial(self, rng: Any = None) -> np.ndarray:
        """Return random initial weights, shape ``(d,)``; biases are zero.

        Normal entries with variance 2/in before a relu (He) and 2/(in + out) elsewhere (Glorot).
        They do not depend on the data, so they cost no privacy. ``rng`` is None, an int, a
        SeedSequence, a Generator, or any object with a Generator's ``normal``, such as a
        :class:`~dpanalysis.privacy.mechanisms.SystemRandom`.

        Examples
        --------
        >>> import numpy as np
        >>> from dpanalysis.problems import MLP
        >>> w = MLP(np.eye(3), np.array([0, 1, 1]), hidden=(4,)).initial(rng=1)
        >>> w.shape, bool((w[12:16] == 0).all())
        ((26,), True)
        """
        random = rng if hasattr(rng, "normal") else check_rng(rng)
        w = np.zeros(self.d)
        shapes = list(pairwise(self._layout.widths))
        for i, ((inputs, outputs), (weights, _)) in enumerate(zip(shapes, self._layout.slices())):
            he = self.activation == "relu" and i < len(self.hidden)
            variance = 2.0 / inputs if he else 2.0 / (inputs + outputs)
            w[weights] = random.normal(0.0, math.sqrt(variance), inputs * outputs)
        return w

    def spectral_norms(self, w: Any) -> np.ndarray:
        """Return the largest singular value of each layer's weights, shape (H,) or (R, H).

        See :func:`dpanalysis.theory.weak_growth_mlp`.

        Examples
        --------
        >>> import numpy as np
        >>> from dpanalysis.problems import MLP
        >>> problem = MLP(np.eye(2), np.array([0, 1]), hidden=(2,), bias=False)
        >>> problem.spectral_norms(np.array([3.0, 0.0, 0.0, 2.0, 1.0, 0.0, 0.0, 1.0]))
        array([3., 1.])
        """
        return np.stack(
            [
                np.linalg.svd(np.asarray(weights), compute_uv=False)[..., 0]
                for weights, _ in self.layers(w)
            ],
            axis=-1,
        )

    def weak_growth(self, w: Any) -> tuple[Any, float]:
        """Return ``(beta1, beta2)`` of the weak growth condition at these weights; beta2 is 0.

        :func:`~dpanalysis.theory.weak_growth_mlp` of the public row bound, with upper bounds on
        the layers' spectral norms (:func:`~dpanalysis.theory.spectral_bound`), without an SVD.

        Examples
        --------
        >>> import numpy as np
        >>> from dpanalysis import RowBound
        >>> from dpanalysis.problems import MLP
        >>> X, bound = np.eye(2), RowBound(2, 1.0)
        >>> problem = MLP(X, np.array([0, 1]), hidden=(2,), bias=False, row_bound=bound)
        >>> problem.weak_growth(np.array([3.0, 0.0, 0.0, 2.0, 1.0, 0.0, 0.0, 1.0]))
        (8.1478, 0.0)
        """
        from ...theory.value_clipping import (
            LayerSizes,
            growth_of_layers,
            spectral_bound,  # lazily: the theory is slow to import
        )

        growth_of_rows(CrossEntropy(), self.radius(2))
        layers = []
        with np.errstate(all="ignore"):
            for weights, bias in self.layers(w):
                offset = 0.0 if bias is None else np.linalg.norm(to_host(bias), axis=-1)
                norm = spectral_bound(to_host(weights))
                layers.append(LayerSizes(norm, 1.0, offset, float(self.bias)))
            beta1 = growth_of_layers(self.radius(2), layers)
        beta1 = CrossEntropy().weak_growth(1.0)[0] * beta1
        return beta1 if np.ndim(beta1) else float(beta1), 0.0
