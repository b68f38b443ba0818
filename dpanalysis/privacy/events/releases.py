"""Single releases: noise of a given law, or anything whose privacy loss has a known bound."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..rdp import rdp_gaussian, rdp_laplace, rdp_pure
from .base import Event

__all__ = ["BoundedRange", "Gaussian", "Laplace", "Pure"]


def _check_norm(kind: str, order: Any, needed: int) -> None:
    if order != needed:
        raise ValueError(
            f"order must be {needed} for {kind} noise, which is calibrated to the "
            f"L{needed} norm, got {order!r}; in d dimensions ||x||_1 <= sqrt(d) ||x||_2 and "
            "||x||_2 <= ||x||_1, so convert the sensitivity and give that"
        )


@dataclass(frozen=True)
class Laplace(Event):
    """A release with independent Laplace noise in every coordinate.

    Parameters
    ----------
    scale : float
        Scale b in (0, inf): the density is ``exp(-|x|/b)/(2b)``.
    sensitivity : float
        L1 sensitivity S of the released quantity, in [0, inf).
    order : int, default=1
        Norm of the sensitivity; must be 1.

    Raises
    ------
    ValueError
        If a number is outside its range.

    Notes
    -----
    In any dimension the release is dominated by the scalar pair Lap(0, b), Lap(S, b).
    For density p and shift s, 1 - H(s) = int min(p(x), e^epsilon p(x - s)) dx, where H is
    the hockey-stick divergence. Both arguments of the minimum are log-concave in (x, s)
    jointly, so is the minimum, and by Prekopa's theorem its integral over x is
    log-concave in s. Hence H is quasi-convex in s and its maximum over the ball
    ||s||_1 <= S lies at a vertex, where a single coordinate moves. The hockey-stick
    divergences at all epsilon determine the Renyi divergences, so these are dominated
    as well.

    Examples
    --------
    >>> Laplace(scale=2.0, sensitivity=1.0).pure_cost()
    0.5
    """

    scale: float
    sensitivity: float
    order: int = 1

    def __post_init__(self) -> None:
        _check_norm("Laplace", self.order, 1)
        self._keep_float("scale", positive=True)
        self._keep_float("sensitivity")

    @property
    def exact_pair(self) -> bool:  # noqa: D102
        return True

    def pure_cost(self) -> float:  # noqa: D102
        return self.sensitivity / self.scale

    def rdp_cost(self, orders: ArrayLike) -> NDArray[np.float64]:  # noqa: D102
        return np.asarray(rdp_laplace(orders, self.pure_cost()))


@dataclass(frozen=True)
class Gaussian(Event):
    """A release with independent Gaussian noise in every coordinate.

    Parameters
    ----------
    std : float
        Standard deviation in (0, inf).
    sensitivity : float
        L2 sensitivity of the released quantity, in [0, inf).
    order : int, default=2
        Norm of the sensitivity; must be 2.

    Raises
    ------
    ValueError
        If a number is outside its range.

    Examples
    --------
    >>> Gaussian(std=2.0, sensitivity=1.0).zcdp_cost()
    0.125
    """

    std: float
    sensitivity: float
    order: int = 2

    def __post_init__(self) -> None:
        _check_norm("Gaussian", self.order, 2)
        self._keep_float("std", positive=True)
        self._keep_float("sensitivity")

    @property
    def mu(self) -> float:
        """Sensitivity over standard deviation: the inverse of the noise multiplier."""
        return self.sensitivity / self.std

    @property
    def exact_pair(self) -> bool:  # noqa: D102
        return True

    def pure_cost(self) -> float:  # noqa: D102
        return math.inf if self.sensitivity else 0.0

    def zcdp_cost(self) -> float:  # noqa: D102
        return 0.5 * self.mu**2

    def rdp_cost(self, orders: ArrayLike) -> NDArray[np.float64]:  # noqa: D102
        if self.sensitivity == 0.0:
            return np.zeros(np.shape(orders))
        return np.asarray(rdp_gaussian(orders, 1.0 / self.mu))


@dataclass(frozen=True)
class Pure(Event):
    """Any release whose pure loss is known.

    Parameters
    ----------
    epsilon : float
        Pure loss in [0, inf).

    Raises
    ------
    ValueError
        If ``epsilon`` is outside its range.

    Examples
    --------
    >>> Pure(1.0).zcdp_cost()
    0.4621172
    """

    epsilon: float

    def __post_init__(self) -> None:
        self._keep_float("epsilon")

    @property
    def exact_pair(self) -> bool:  # noqa: D102
        return True

    def pure_cost(self) -> float:  # noqa: D102
        return self.epsilon


@dataclass(frozen=True)
class BoundedRange(Event):
    r"""Any release whose privacy losses lie in an interval of known length.

    The log-ratio of its two laws differs by at most ``epsilon`` from one outcome to another.
    That is more than to be ``epsilon``-private, and costs a quarter of the zCDP.

    Parameters
    ----------
    epsilon : float
        Length of the interval, in [0, inf).

    Raises
    ------
    ValueError
        If ``epsilon`` is outside its range.

    Notes
    -----
    As both laws have mass 1, the interval holds 0: the release is ``epsilon``-private. Let L be
    the log-ratio of P to Q and :math:`K(\alpha) = \ln E_Q e^{\alpha L}`, so that the Renyi
    divergence is :math:`K(\alpha)/(\alpha - 1)`. K'' is the variance of L under a tilted law, at
    most :math:`\epsilon^2/4`, hence :math:`K - \alpha(\alpha - 1) \epsilon^2/8` is concave. It
    vanishes at 0 and 1, and so is at most 0 beyond: :math:`D_\alpha \le \alpha \epsilon^2/8`.

    References
    ----------
    Dong, Durfee, Rogers (2020); Cesar, Rogers (2021), who name the bound for the exponential
    mechanism.

    Examples
    --------
    >>> BoundedRange(1.0).zcdp_cost(), BoundedRange(1.0).pure_cost()
    (0.125, 1.0)
    """

    epsilon: float

    def __post_init__(self) -> None:
        self._keep_float("epsilon")

    def pure_cost(self) -> float:  # noqa: D102
        return self.epsilon

    def zcdp_cost(self) -> float:  # noqa: D102
        return 0.125 * self.epsilon**2

    def rdp_cost(self, orders: ArrayLike) -> NDArray[np.float64]:  # noqa: D102
        a = np.asarray(orders, dtype=np.float64)
        return np.minimum(rdp_pure(a, self.epsilon), self.zcdp_cost() * a)
