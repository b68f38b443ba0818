"""The losses that come with the package, each with its proved constants."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from array_api_compat import array_namespace

from .._validation import keep_numbers
from .base import Loss

__all__ = ["Hinge", "HuberizedHinge", "Logistic", "SquaredError"]

# sup over p in (0, 1) of (1 - p)^2 / (-ln p), attained at p = 0.28466813704083846.
_LOGISTIC_WEAK_GROWTH = 0.407264377589073750


class _Plain(Loss):
    """Equality and printing for losses without parameters."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    def __hash__(self) -> int:
        return hash(type(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class Logistic(_Plain):
    r"""Logistic loss :math:`\ln(1 + e^{-yz})` with labels in {-1, +1}.

    Its derivative is at most 1 in size, its second derivative at most 1/4, its third
    at most :math:`1/(6\sqrt3)`. It satisfies the weak growth condition of Fang et al. (2023),
    Definition 3.1, with :math:`\beta_1 = \kappa\|x\|^2`, where
    :math:`\kappa = \sup_p (1-p)^2/(-\ln p) = 0.40726437758907375`
    (the paper prints the looser :math:`\|x\|^2/2`), and :math:`\beta_2 = 0`.

    No margin overflows, and NaN stays NaN.

    References
    ----------
    Kuru et al. (2022), (5.1); Fang et al. (2023), Appendix D.

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

    __slots__ = ()
    classification = True
    convex = True
    lipschitz = 1.0
    smoothness = 0.25
    lowest = 0.0
    hessian_lipschitz = 1.0 / (6.0 * math.sqrt(3.0))
    flat_where_steep = True  # l'' = |l'| (1 - |l'|)
    growth = (_LOGISTIC_WEAK_GROWTH, 0.0)

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

    def _remainder(self, beta1: float) -> float:
        # The sup over p = e^-l of (1 - p)^2 + beta1 ln p is at the smaller root of
        # 2 p (1 - p) = beta1, unless it is the limit 0 at p = 1.
        p = beta1 / (1.0 + math.sqrt(1.0 - 2.0 * beta1))
        return max(0.0, (1.0 - p) ** 2 + beta1 * math.log(p)) if p > 0.0 else 1.0


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

    __slots__ = ()
    classification = False
    convex = True
    lipschitz = math.inf
    smoothness = 1.0
    hessian_lipschitz = 0.0
    lowest = 0.0
    growth = (2.0, 0.0)  # the square of the residual outgrows any smaller multiple of its half

    def value(self, z: Any, y: Any) -> Any:
        """Return the loss, the shape of ``z`` broadcast with ``y``."""
        return 0.5 * (z - y) * (z - y)

    def derivative(self, z: Any, y: Any) -> Any:
        """Return the derivative in ``z``, the residual."""
        return z - y

    def second_derivative(self, z: Any, y: Any) -> Any:
        """Return the second derivative in ``z``, 1 everywhere."""
        return 0.0 * (z - y) + 1.0


class Hinge(_Plain):
    r"""Hinge loss :math:`\max(0, 1 - yz)` with labels in {-1, +1}, that of the linear SVM.

    It is convex and 1-Lipschitz, and not smooth: the derivative jumps where the margin
    :math:`yz` is 1 (there the subgradient 0 is taken), so ``smoothness`` and
    ``hessian_lipschitz`` do not exist and are inf, and neither a step size nor an error
    bound can be had from them. :class:`HuberizedHinge` is its smooth twin.

    Weak growth (Fang et al. 2023, Definition 3.1) holds with :math:`\beta_1 = 0` and
    :math:`\beta_2 = \|x\|^2`: just below margin 1 the loss vanishes and the gradient does
    not, so no :math:`\beta_1` allows a smaller :math:`\beta_2`.

    References
    ----------
    Chen and Lee (2020), section 5.1.

    Examples
    --------
    >>> import numpy as np
    >>> loss = Hinge()
    >>> loss.value(np.array([-1.0, 0.5, 2.0]), np.array([1.0, 1.0, 1.0]))
    array([2. , 0.5, 0. ])
    >>> loss.derivative(np.array([-1.0, 0.5, 2.0]), np.array([1.0, 1.0, 1.0]))
    array([-1., -1.,  0.])
    >>> loss.smoothness, loss.weak_growth(2.0)
    (inf, (0.0, 4.0))
    """

    __slots__ = ()
    classification = True
    convex = True
    lipschitz = 1.0
    smoothness = math.inf
    hessian_lipschitz = math.inf
    lowest = 0.0
    growth = (0.0, 1.0)

    def value(self, z: Any, y: Any) -> Any:
        """Return the loss, the shape of ``z`` broadcast with ``y``."""
        margin = y * z
        xp = array_namespace(margin)
        return xp.where(margin >= 1.0, xp.zeros_like(margin), 1.0 - margin)

    def derivative(self, z: Any, y: Any) -> Any:
        """Return the subgradient in ``z``: ``-y`` below margin 1, 0 from there on."""
        margin = y * z
        xp = array_namespace(margin)
        below = xp.where(xp.isnan(margin), margin, -y * xp.ones_like(margin))
        return xp.where(margin >= 1.0, xp.zeros_like(margin), below)

    def second_derivative(self, z: Any, y: Any) -> Any:
        """Return 0 where the second derivative exists, NaN at margin 1 where it does not.

        It misses the jump of the derivative, so it is no curvature to take a step by.
        """
        margin = y * z
        xp = array_namespace(margin)
        undefined = xp.isnan(margin) | (margin == 1.0)
        return xp.where(undefined, xp.full_like(margin, math.nan), xp.zeros_like(margin))


@dataclass(frozen=True, slots=True)
class HuberizedHinge(Loss):
    r"""Hinge loss with its corner rounded to a parabola, labels in {-1, +1}.

    With the margin :math:`m = yz` and the width :math:`h`

    .. math:: \ell = 1 - m \;(m < 1 - h), \quad
              \frac{(1 + h - m)^2}{4h} \;(|1 - m| \le h), \quad 0 \;(m > 1 + h).

    Its derivative is at most 1 in size and :math:`1/(2h)`-Lipschitz; its second
    derivative jumps (at a jump, that of the parabola is taken), so ``hessian_lipschitz``
    is inf. It lies above the hinge loss by at most :math:`h/4`. Weak growth (Fang et al. 2023,
    Definition 3.1) holds with :math:`\beta_1 = \|x\|^2/h` and :math:`\beta_2 = 0`, with
    equality on the parabola.

    Parameters
    ----------
    width : float
        Half of the interval of margins that is rounded, positive and finite.

    Raises
    ------
    ValueError
        If ``width`` is outside its range.

    References
    ----------
    Chen and Lee (2020), section 5.3 (with ``width=0.5``).

    Examples
    --------
    >>> import numpy as np
    >>> loss = HuberizedHinge(width=0.5)
    >>> loss.value(np.array([0.0, 1.0, 2.0]), np.array([1.0, 1.0, 1.0]))
    array([1.   , 0.125, 0.   ])
    >>> loss.derivative(np.array([0.0, 1.0, 2.0]), np.array([1.0, 1.0, 1.0]))
    array([-1. , -0.5, -0. ])
    >>> loss.smoothness, loss.weak_growth(1.0)
    (1.0, (2.0, 0.0))
    """

    width: float = 0.5
    classification = True
    convex = True
    lipschitz = 1.0
    hessian_lipschitz = math.inf
    lowest = 0.0

    def __post_init__(self) -> None:
        keep_numbers(self, "width", low=0.0, low_open=True)

    @property
    def smoothness(self) -> float:  # type: ignore[override]
        """Second derivative of the parabola."""
        return 0.5 / self.width

    @property
    def growth(self) -> tuple[float, float]:
        """Weak growth for rows of norm 1, tight on the parabola."""
        return 1.0 / self.width, 0.0

    def _remainder(self, beta1: float) -> float:
        return 1.0 - beta1 * self.width  # where the parabola ends: l = width, l' = 1

    def _slope(self, gap: Any) -> Any:
        """Size of the derivative, in [0, 1], given 1 - margin."""
        xp = array_namespace(gap)
        edge = xp.full_like(gap, self.width)
        inside = xp.where(gap > edge, edge, gap)
        inside = xp.where(inside < -edge, -edge, inside)
        return 0.5 * (inside / self.width + 1.0)

    def value(self, z: Any, y: Any) -> Any:
        """Return the loss, the shape of ``z`` broadcast with ``y``."""
        gap = 1.0 - y * z
        xp = array_namespace(gap)
        slope = self._slope(gap)
        return xp.where(gap >= self.width, gap, self.width * slope * slope)

    def derivative(self, z: Any, y: Any) -> Any:
        """Return the derivative in ``z``."""
        return -y * self._slope(1.0 - y * z)

    def second_derivative(self, z: Any, y: Any) -> Any:
        """Return the second derivative in ``z``: 1/(2 width) on the parabola, else 0."""
        margin = y * z
        xp = array_namespace(margin)
        inside = xp.abs(1.0 - margin) <= self.width
        curvature = xp.where(inside, xp.full_like(margin, self.smoothness), xp.zeros_like(margin))
        return xp.where(xp.isnan(margin), margin, curvature)
