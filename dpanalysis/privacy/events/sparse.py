"""The event of one run of the sparse vector technique."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..._validation import check_choice, check_int
from ..sparse_vector import rdp_above_threshold
from .base import Event

__all__ = ["AboveThreshold"]

# Orders at which the curve is computed; from one to the next it grows by a quarter or less.
_RUNGS = np.unique(
    np.concatenate(
        [[1.0, 1.25, 1.5], np.round(np.geomspace(2.0, 1024.0, 29)), 2.0 ** np.arange(11, 28)]
    )
)


@dataclass(frozen=True)
class AboveThreshold(Event):
    """The index of the first noisy query that reaches a noisy threshold, if any does.

    Parameters
    ----------
    noise : {"laplace", "gaussian"}
        Of the threshold and of the queries.
    threshold_scale, query_scale : float
        Laplace scales or standard deviations, in the units of the queries, positive.
    sensitivity : float
        How far one record moves one query, in [0, inf).
    max_queries : int or None
        Cap on the number of queries; None for no cap, with Laplace noise only.
    shared : bool
        Every query is a value common to all less one of its own, and one record moves each
        of these within an interval of length ``sensitivity``: a decrease of clamped losses.

    Raises
    ------
    ValueError
        If an argument is outside its range, or Gaussian noise comes without a cap.

    Notes
    -----
    The Renyi curve is that of :func:`dpanalysis.privacy.rdp_above_threshold` with the best
    coupling, computed at some orders. (order - 1) times a Renyi divergence is convex in the
    order, so its chord between bounds is a bound.

    References
    ----------
    Chen and Lee (2020), Algorithm 1; errata 002-1 to 002-3.

    Examples
    --------
    The budget of the paper, with queries that share nothing and with those of a line search:

    >>> AboveThreshold("laplace", 2.0, 4.0, 1.0, 20).pure_cost()
    1.0
    >>> AboveThreshold("laplace", 2.0, 4.0, 1.0, 20, shared=True).pure_cost()
    0.75
    """

    noise: str
    threshold_scale: float
    query_scale: float
    sensitivity: float
    max_queries: int | None
    shared: bool = False

    def __post_init__(self) -> None:
        check_choice("noise", self.noise, ("laplace", "gaussian"))
        self._keep_float("threshold_scale", positive=True)
        self._keep_float("query_scale", positive=True)
        self._keep_float("sensitivity")
        if self.max_queries is not None:
            object.__setattr__(
                self, "max_queries", check_int("max_queries", self.max_queries, low=1)
            )
        elif self.noise == "gaussian":
            raise ValueError(
                "max_queries must be finite with Gaussian noise, got None: without a cap the cost "
                "has no bound"
            )

    def pure_cost(self) -> float:  # noqa: D102
        if self.sensitivity == 0.0:
            return 0.0
        if self.noise == "gaussian":
            return math.inf
        several = 1.0 if self.shared else 2.0
        together = several * self.sensitivity / self.query_scale
        together += self.sensitivity / self.threshold_scale
        if self.max_queries is None:
            return together
        return min(together, self.max_queries * self.sensitivity / self.query_scale)

    def rdp_cost(self, orders: ArrayLike) -> NDArray[np.float64]:  # noqa: D102
        a = np.asarray(orders, dtype=np.float64)
        if self.sensitivity == 0.0:
            return np.zeros(a.shape)
        cost = np.full(a.shape, self.pure_cost())
        inside = a <= _RUNGS[-1]
        if inside.any():
            last = int(np.searchsorted(_RUNGS, a[inside].max()))
            heights = [0.0] + [self._moment(float(rung)) for rung in _RUNGS[1 : last + 1]]
            chord = np.interp(a[inside], _RUNGS[: last + 1], heights)
            cost[inside] = np.minimum(cost[inside], chord / (a[inside] - 1.0))
        return cost

    def _moment(self, order: float) -> float:
        first, second = self.threshold_scale, self.query_scale
        return _moment(
            order,
            self.noise,
            first / self.sensitivity,
            second / self.sensitivity,
            self.max_queries,
            self.shared,
        )


@lru_cache(maxsize=65536)
def _moment(
    order: float, noise: str, first: float, second: float, cap: int | None, shared: bool
) -> float:
    """Return (order - 1) times the Renyi cost at sensitivity 1."""
    cost = rdp_above_threshold(order, noise, first, second, cap, coupling="best", shared=shared)
    return (order - 1.0) * float(cost)
