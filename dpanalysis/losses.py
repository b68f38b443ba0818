"""Per-sample losses of a linear predictor.

Each loss is a function of the prediction ``z = <x, w>`` and the label ``y``. The
methods here work on whole arrays of any shape and namespace (NumPy, CuPy, anything
that follows the array API standard). The compiled kernels evaluate the same formulas
one sample at a time; ``code`` and ``parameter`` select them there.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, Protocol

from array_api_compat import array_namespace

from ._validation import check_number

__all__ = ["Logistic", "Loss", "SquaredError"]

# sup over p in (0, 1) of (1 - p)^2 / (-ln p), attained at p = 0.28466813704083846.
_LOGISTIC_WEAK_GROWTH = 0.407264377589073750


class Loss(Protocol):
    """What a problem needs of a loss: its terms, its constants, its kernel's code."""

    code: ClassVar[int]
    parameter: float
    classification: ClassVar[bool]
    lipschitz: float
    smoothness: float
    hessian_lipschitz: float

    def value(self, z: Any, y: Any) -> Any:
        """Loss, elementwise."""

    def derivative(self, z: Any, y: Any) -> Any:
        """First derivative in ``z``, elementwise."""

    def second_derivative(self, z: Any, y: Any) -> Any:
        """Second derivative in ``z``, elementwise."""

    def weak_growth(self, row_norm: float) -> tuple[float, float]:
        """Constants ``(beta1, beta2)`` of the weak growth condition."""


class _Plain:
    """Equality and printing for losses without parameters."""

    parameter = 0.0

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    def __hash__(self) -> int:
        return hash(type(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class Logistic(_Plain):
    r"""Logistic loss :math:`\ln(1 + e^{-yz})` with labels in {-1, +1}.

    Its derivative is at most 1 in size, its second derivative at most 1/4, its third
    at most :math:`1/(6\sqrt3)`. It satisfies the weak growth condition of paper 004,
    Definition 3.1, with :math:`\beta_1 = \kappa\|x\|^2`, where
    :math:`\kappa = \sup_p (1-p)^2/(-\ln p) = 0.40726437758907375`
    (the paper prints the looser :math:`\|x\|^2/2`), and :math:`\beta_2 = 0`.

    No margin overflows, and NaN stays NaN.

    References
    ----------
    Paper 001, (5.1); paper 004, Appendix D.

    Examples
    --------
    >>> import numpy as np
    >>> loss = Logistic()
    >>> loss.value(np.array([0.0, -1000.0]), np.array([1.0, 1.0]))
    array([6.93147181e-01, 1.00000000e+03])
    >>> loss.derivative(np.array([0.0, -1000.0]), np.array([1.0, 1.0]))
    array([-0.5, -1. ])
    >>> loss.smoothness
    0.25
    """

    code: ClassVar[int] = 0
    classification: ClassVar[bool] = True
    lipschitz = 1.0
    smoothness = 0.25
    hessian_lipschitz = 1.0 / (6.0 * math.sqrt(3.0))

    def value(self, z: Any, y: Any) -> Any:
        """Return the loss, the shape of ``z`` broadcast with ``y``."""
        margin = y * z
        xp = array_namespace(margin)
        size = xp.abs(margin)
        return xp.log1p(xp.exp(-size)) + 0.5 * (size - margin)

    def derivative(self, z: Any, y: Any) -> Any:
        """Return the derivative in ``z``: minus ``y`` times the sigmoid of ``-yz``."""
        margin = y * z
        xp = array_namespace(margin)
        e = xp.exp(-xp.abs(margin))
        return -y * xp.where(margin < 0, xp.ones_like(e), e) / (1.0 + e)

    def second_derivative(self, z: Any, y: Any) -> Any:
        """Return the second derivative in ``z``."""
        margin = y * z
        xp = array_namespace(margin)
        e = xp.exp(-xp.abs(margin))
        return e / ((1.0 + e) * (1.0 + e))

    def weak_growth(self, row_norm: float) -> tuple[float, float]:
        """Return the tight ``(beta1, beta2)`` for rows of L2 norm up to ``row_norm``.

        They are the constants of ``||grad f_i||^2 <= beta1 (f_i - inf f_i) + beta2``.

        Examples
        --------
        >>> Logistic().weak_growth(1.0)
        (0.40726, 0.0)
        """
        row_norm = check_number("row_norm", row_norm, low=0.0)
        return _LOGISTIC_WEAK_GROWTH * row_norm**2, 0.0


class SquaredError(_Plain):
    r"""Squared error :math:`(z - y)^2/2` with real targets.

    Its derivative is unbounded, so a private run needs a clipping rule.

    Examples
    --------
    >>> import numpy as np
    >>> loss = SquaredError()
    >>> loss.value(np.array([3.0]), np.array([1.0]))
    array([2.])
    >>> loss.lipschitz, loss.smoothness
    (inf, 1.0)
    """

    code: ClassVar[int] = 1
    classification: ClassVar[bool] = False
    lipschitz = math.inf
    smoothness = 1.0
    hessian_lipschitz = 0.0

    def value(self, z: Any, y: Any) -> Any:
        """Return the loss, the shape of ``z`` broadcast with ``y``."""
        return 0.5 * (z - y) * (z - y)

    def derivative(self, z: Any, y: Any) -> Any:
        """Return the derivative in ``z``, the residual."""
        return z - y

    def second_derivative(self, z: Any, y: Any) -> Any:
        """Return the second derivative in ``z``, 1 everywhere."""
        return 0.0 * (z - y) + 1.0

    def weak_growth(self, row_norm: float) -> tuple[float, float]:
        """Return the tight ``(beta1, beta2)`` for rows of L2 norm up to ``row_norm``.

        Examples
        --------
        >>> SquaredError().weak_growth(3.0)
        (18.0, 0.0)
        """
        row_norm = check_number("row_norm", row_norm, low=0.0)
        return 2.0 * row_norm**2, 0.0
