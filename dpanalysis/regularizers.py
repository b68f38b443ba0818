"""Regularizers: public penalties of the parameters, which do not depend on the data.

A regularizer takes ``w`` of shape ``(d,)`` or ``(R, d)`` in any array namespace. A number outside
the range that a docstring states raises ValueError.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

from array_api_compat import array_namespace

from ._validation import keep_numbers

__all__ = ["L2", "GemanMcClure", "Regularizer"]

# Constants that hold only for the formulas of the class that states them.
PENALTY_CONSTANTS = ("mu", "L", "hessian_lipschitz")


class Regularizer(Protocol):
    """Interface of a penalty: its value, derivatives and curvature bounds.

    Privacy can depend on ``mu``, which must hold in every direction: a penalty that excludes the
    intercept has ``mu = 0``. A class that extends a built-in penalty and overrides a formula must
    state all three constants, or a problem raises.
    """

    @property
    def mu(self) -> float:
        """Strong convexity added (negative for a non-convex penalty)."""

    @property
    def L(self) -> float:
        """Smoothness added."""

    @property
    def hessian_lipschitz(self) -> float:
        """Lipschitz constant of the Hessian, in the spectral norm."""

    def value(self, w: Any) -> Any:
        """Penalty, scalar or ``(R,)``."""

    def gradient(self, w: Any) -> Any:
        """Gradient, the shape of ``w``."""

    def hessian_diagonal(self, w: Any) -> Any:
        """Diagonal of the (diagonal) Hessian, the shape of ``w``."""


@dataclass(frozen=True)
class L2:
    r"""Ridge penalty :math:`\frac{\text{strength}}{2}\|w\|_2^2`.

    The penalty written :math:`\lambda\|x\|^2` by Kuru et al. (2022, (5.1)) is ``L2(2 * lambda)``.

    Parameters
    ----------
    strength : float
        Non-negative; added to the strong convexity and to the smoothness.

    Examples
    --------
    >>> import numpy as np
    >>> penalty = L2(0.02)
    >>> float(penalty.value(np.full(20, 10.0)))
    20.0
    >>> penalty.gradient(np.array([1.0, -2.0]))
    array([ 0.02, -0.04])
    """

    strength: float

    def __post_init__(self) -> None:
        keep_numbers(self, "strength", low=0.0)

    @property
    def mu(self) -> float:
        """Strong convexity, ``strength``."""
        return self.strength

    @property
    def L(self) -> float:
        """Smoothness, ``strength``."""
        return self.strength

    @property
    def hessian_lipschitz(self) -> float:
        """Zero: the Hessian is constant."""
        return 0.0

    def value(self, w: Any) -> Any:
        """Penalty of ``w`` of shape ``(d,)`` (a scalar) or ``(R, d)`` (shape ``(R,)``)."""
        return 0.5 * self.strength * array_namespace(w).sum(w * w, axis=-1)

    def gradient(self, w: Any) -> Any:
        """Gradient, the shape of ``w``."""
        return self.strength * w

    def hessian_diagonal(self, w: Any) -> Any:
        """Diagonal of the Hessian, the shape of ``w``."""
        return 0.0 * w + self.strength


@dataclass(frozen=True)
class GemanMcClure:
    r"""Non-convex penalty :math:`\text{strength} \sum_j w_j^2/(1 + w_j^2)` (Gao and Wright 2023).

    Its second derivative, strength times :math:`2(1 - 3 w^2)/(1 + w^2)^3`, has its maximum 2
    strength at 0 and its minimum -strength/2 at :math:`w = \pm 1`.

    Parameters
    ----------
    strength : float
        Non-negative; the penalty's supremum for one parameter.

    References
    ----------
    Gao and Wright (2023), Section 4; errata 003-15.

    Examples
    --------
    >>> import numpy as np
    >>> penalty = GemanMcClure(0.5)
    >>> penalty.mu, penalty.L, penalty.hessian_lipschitz
    (-0.25, 1.0, 2.334)
    >>> float(penalty.value(np.array([1.0, -1.0])))
    0.5
    >>> penalty.gradient(np.array([1.0, -1.0]))
    array([ 0.25, -0.25])
    """

    strength: float

    def __post_init__(self) -> None:
        keep_numbers(self, "strength", low=0.0)

    @property
    def mu(self) -> float:
        """Least curvature, ``-strength / 2``: the penalty is not convex."""
        return -0.5 * self.strength

    @property
    def L(self) -> float:
        """Smoothness, ``2 * strength``."""
        return 2.0 * self.strength

    @property
    def hessian_lipschitz(self) -> float:
        r"""Largest third derivative, 4.66856 times the strength.

        It is :math:`24 |w| (1 - w^2)/(1 + w^2)^4`, stationary where :math:`5w^4 - 10w^2 + 1 = 0`.
        """
        square = 1.0 - math.sqrt(0.8)
        return self.strength * 24.0 * math.sqrt(square) * (1.0 - square) / (1.0 + square) ** 4

    def value(self, w: Any) -> Any:
        """Penalty of ``w`` of shape ``(d,)`` (a scalar) or ``(R, d)`` (shape ``(R,)``)."""
        xp = array_namespace(w)
        small = 1.0 / (1.0 + w * w)
        # One form loses accuracy for tiny parameters, the other overflows for huge ones.
        return self.strength * xp.sum(xp.where(small > 0.5, w * w * small, 1.0 - small), axis=-1)

    def gradient(self, w: Any) -> Any:
        """Gradient, the shape of ``w``."""
        small = 1.0 / (1.0 + w * w)
        return 2.0 * self.strength * (w * small) * small

    def hessian_diagonal(self, w: Any) -> Any:
        """Diagonal of the Hessian, the shape of ``w``."""
        small = 1.0 / (1.0 + w * w)
        return 2.0 * self.strength * small * small * (4.0 * small - 3.0)
