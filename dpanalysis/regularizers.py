"""Public penalties of the parameters: they touch no data and enter no sensitivity.

A regulariser works on ``w`` of shape ``(d,)`` or ``(R, d)`` in any array namespace.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from array_api_compat import array_namespace

from ._validation import keep_numbers

__all__ = ["L2", "Regularizer"]


class Regularizer(Protocol):
    """What a problem needs of a penalty: its terms and its curvature bounds."""

    @property
    def mu(self) -> float:
        """Strong convexity added (negative for a non-convex penalty)."""

    @property
    def L(self) -> float:
        """Smoothness added."""

    def value(self, w: Any) -> Any:
        """Penalty, scalar or ``(R,)``."""

    def gradient(self, w: Any) -> Any:
        """Gradient, the shape of ``w``."""

    def hessian_diagonal(self, w: Any) -> Any:
        """Diagonal of the (diagonal) Hessian, the shape of ``w``."""


@dataclass(frozen=True)
class L2:
    r"""Ridge penalty :math:`\frac{\text{strength}}{2}\|w\|_2^2`.

    The penalty written :math:`\lambda\|x\|^2` by Kuru et al. (paper 001, (5.1)) is
    ``L2(2 * lambda)``.

    Parameters
    ----------
    strength : float
        Non-negative; what the penalty adds to the strong convexity and to the
        smoothness.

    Raises
    ------
    ValueError
        If ``strength`` is negative or not finite.

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

    def value(self, w: Any) -> Any:
        """Penalty of ``w`` of shape ``(d,)`` (a scalar) or ``(R, d)`` (shape ``(R,)``)."""
        return 0.5 * self.strength * array_namespace(w).sum(w * w, axis=-1)

    def gradient(self, w: Any) -> Any:
        """Gradient, the shape of ``w``."""
        return self.strength * w

    def hessian_diagonal(self, w: Any) -> Any:
        """Diagonal of the Hessian, the shape of ``w``."""
        return 0.0 * w + self.strength
