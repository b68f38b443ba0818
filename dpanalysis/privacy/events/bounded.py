"""Releases that are at most as bad as several Gaussian ones together."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from ..._validation import check_finite, check_reals
from .base import Event
from .composed import Repeated
from .releases import Gaussian

__all__ = ["GaussianBound", "gaussian_terms"]

# Terms of a composition; of more the accountants take the Renyi curve.
_MOST_TERMS = 4096
# Weights that are 1 together but for this are a law, up to rounding.
_LAW = 1e-12


@dataclass(frozen=True)
class GaussianBound(Event):
    r"""A release that a weighted sum of Gaussian ones bounds.

    For neighbours with laws P, Q of the release, either way round, and every real
    :math:`\epsilon`, the hockey-stick divergence satisfies

    .. math:: H_\epsilon(P, Q) \le \sum_j w_j H_{\epsilon - \kappa}(N(S_j, \sigma^2),
              N(0, \sigma^2)).

    Two kinds of release are bounded so. The first is Gaussian noise on an answer whose sensitivity
    is :math:`S_j` with probability :math:`w_j`, where the mechanism tosses the coin: the divergence
    is jointly convex, and :math:`\kappa = 0`. The second has a privacy loss of at most
    :math:`\kappa` plus the largest of some Gaussian losses: each of these has :math:`w_j = 1`.

    Parameters
    ----------
    std : float
        :math:`\sigma` in (0, inf).
    sensitivities : sequence of float
        :math:`S_j` in [0, inf), L2, in the units of ``std``; kept as a tuple.
    weights : sequence of float
        :math:`w_j > 0`, together at least 1. Those that add up to 1 but for 1e-12 are the
        rounded probabilities of a law, and are divided by their sum.
    offset : float
        :math:`\kappa \ge 0`, in nats.

    Raises
    ------
    ValueError
        If a number is outside its range, or the lengths differ.

    Notes
    -----
    The right side is the divergence of two measures, :math:`w_j N(S_j, \sigma^2)` and
    :math:`w_j e^{-\kappa} N(0, \sigma^2)` side by side over all j, from which what is needed
    follows as it does for a dominating pair of laws:

    *Renyi.* :math:`r^\alpha = \alpha (\alpha-1) \int_0^\infty t^{\alpha-2} (r - t)_+ dt` for
    r = P/Q gives :math:`E_Q r^\alpha` as an integral of :math:`H_{\ln t}`, hence

    .. math:: D_\alpha \le \kappa + \frac{1}{\alpha-1} \ln \sum_j w_j
              e^{\alpha (\alpha-1) S_j^2/(2\sigma^2)}.

    *Composition*, also with releases that depend on this one. Let l(x) be the loss of the first
    release at its outcome x. There :math:`\int (p p' - e^\epsilon q q')_+ = p(x)
    H_{\epsilon - l(x)}(P'_x, Q'_x)`, which the measures of the second release bound. Then fix a
    point of these measures, and bound the integral over x by the measures of the first release in
    the same way. So the measures multiply: the weights multiply, and the squares of
    :math:`S_j/\sigma` and the :math:`\kappa` add.

    References
    ----------
    Zhu, Dong, Wang (2022), for dominating pairs.

    Examples
    --------
    >>> event = GaussianBound(2.0, (0.0, 2.0), (0.5, 0.5))
    >>> event.rdp_cost([2.0])
    array([0.6201])
    >>> GaussianBound(2.0, (2.0,), (1.0,)).rdp_cost([2.0]), Gaussian(2.0, 2.0).rdp_cost([2.0])
    (array([1.]), array([1.]))
    """

    std: float
    sensitivities: Sequence[float]
    weights: Sequence[float]
    offset: float = 0.0

    def __post_init__(self) -> None:
        self._keep_float("std", positive=True)
        self._keep_float("offset")
        for name in ("sensitivities", "weights"):
            values = check_finite(name, check_reals(name, getattr(self, name)))
            if values.ndim != 1 or not values.size or values.min() < 0.0:
                raise ValueError(f"{name} must be numbers >= 0, got {getattr(self, name)!r}")
            object.__setattr__(self, name, tuple(values.tolist()))
        if len(self.weights) != len(self.sensitivities):
            raise ValueError(
                f"weights must be {len(self.sensitivities)} numbers, one a sensitivity, got "
                f"{len(self.weights)}"
            )
        total = math.fsum(self.weights)
        if total < 1.0 - _LAW or min(self.weights) == 0.0:
            raise ValueError(
                f"weights must be positive and at least 1 together, got {self.weights!r}"
            )
        if total <= 1.0 + _LAW:
            object.__setattr__(self, "weights", tuple(w / total for w in self.weights))

    def __repr__(self) -> str:
        """Show the range of the sensitivities."""
        return (
            f"GaussianBound(std={self.std:g}, sensitivities=<{len(self.sensitivities)} from "
            f"{min(self.sensitivities):g} to {max(self.sensitivities):g}>, weights=<together "
            f"{math.fsum(self.weights):g}>, offset={self.offset:g})"
        )

    @property
    def mus(self) -> NDArray[np.float64]:
        """Sensitivities over the standard deviation, shape (k,)."""
        return np.array(self.sensitivities) / self.std

    def zcdp_cost(self) -> float:
        """Return rho; a bound with an offset, or of weights above 1, has none."""
        if self.offset or not self._is_law:
            return math.inf
        return 0.5 * float(self.mus.max()) ** 2

    @property
    def _is_law(self) -> bool:
        return math.fsum(self.weights) <= 1.0 + _LAW

    def rdp_cost(self, orders: ArrayLike) -> NDArray[np.float64]:  # noqa: D102
        a = np.asarray(orders, dtype=np.float64)[..., None]
        moments = 0.5 * a * (a - 1.0) * self.mus**2
        more = 0.0 if self._is_law else math.fsum(self.weights) - 1.0
        with np.errstate(invalid="ignore"):  # infinite orders
            far = special.logsumexp(np.log(self.weights) + moments, axis=-1)
            near = np.log1p(more + np.expm1(np.minimum(moments, 30.0)) @ np.array(self.weights))
            cost = np.where(moments.max(axis=-1) < 30.0, near, far) / (a[..., 0] - 1.0)
        return self.offset + np.where(np.isfinite(cost), np.maximum(cost, 0.0), np.inf)


def gaussian_terms(
    events: Iterable[Event],
) -> tuple[NDArray[np.float64], NDArray[np.float64], float] | None:
    """Return (mus, weights, offset) of what Gaussian events and bounds compose to.

    None if there are other events, or too many terms.

    Examples
    --------
    >>> gaussian_terms([GaussianBound(1.0, (3.0,), (2.0,), 0.5), Gaussian(1.0, 4.0)])
    (array([5.]), array([2.]), 0.5)
    """
    squares, weights, offset = np.zeros(1), np.ones(1), 0.0
    for event in events:
        count = 1
        while isinstance(event, Repeated):
            count, event = count * event.count, event.event
        if type(event) is Gaussian:  # a class that extends it may cost more
            squares = squares + count * event.mu**2
        elif type(event) is not GaussianBound:
            return None
        elif len(event.weights) == 1:
            squares = squares + count * event.mus**2
            weights = weights * event.weights[0] ** count
            offset += count * event.offset
        else:
            for _ in range(count):
                if squares.size * len(event.weights) > _MOST_TERMS:
                    return None
                squares = np.add.outer(squares, event.mus**2).ravel()
                weights = np.multiply.outer(weights, event.weights).ravel()
                offset += event.offset
    return np.sqrt(squares), weights, offset
