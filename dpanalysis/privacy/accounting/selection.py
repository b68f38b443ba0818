"""Private selection: the best of a random number of runs, and the law of that number.

Selecting the best of a fixed number of runs can cost as much as releasing all of them. With a
random number, the best run does not reveal how many others it has beaten.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..._validation import keep_numbers
from ..mechanisms import Random
from .events import Event, check_events, described, relations_of
from .rdp import _MOST_ORDERS, rdp_pure

_BITS = 192  # of the uniform number from which a count is drawn


@dataclass(frozen=True)
class Repeats:
    r"""Law of the number of runs: truncated negative binomial, or Poisson.

    The probability of k is proportional to :math:`(1-\gamma)^k \prod_{l<k} (l+\eta)/(l+1)`, for
    :math:`k \ge 1`, where :math:`\gamma` is determined by the mean.

    Parameters
    ----------
    mean : float
        At least 1.
    shape : float
        :math:`\eta \ge 0`: 0 is the logarithmic law, 1 the geometric law, infinity the Poisson
        law, under which there may be no run at all. A small shape costs less privacy; with a large
        one the count is less often far below the mean.

    References
    ----------
    Papernot, Steinke (2022), Definition 1.

    Examples
    --------
    >>> Repeats(10.0).gamma                       # the geometric law
    0.1
    >>> Repeats(10.0).below([0.5, 1.0])
    array([0.09090909, 1.        ])
    """

    mean: float
    shape: float = 1.0

    def __post_init__(self) -> None:
        keep_numbers(self, "mean", low=1.0)
        if self.shape != math.inf:
            keep_numbers(self, "shape", low=0.0)

    @cached_property
    def gamma(self) -> float:
        r""":math:`\gamma` in (0, 1] that gives the mean; 1 for the Poisson law."""
        if self.mean == 1.0 or self.shape == math.inf:
            return 1.0
        from scipy import optimize  # heavy, hence not at the top

        def excess(log_gamma: float) -> float:
            return math.log(_mean(log_gamma, self.shape) / self.mean)

        if excess(-1e-16) >= 0.0:  # it rounds to 1
            return 1.0
        low = -1.0
        while excess(low) < 0.0:
            low *= 2.0
        return math.exp(optimize.brentq(excess, low, -1e-16, xtol=1e-15, rtol=1e-14))

    def below(self, x: ArrayLike) -> NDArray[np.float64]:
        """Return the probability generating function of the count at x in [0, 1].

        It is the probability that an event of probability x occurs in all runs, independently.
        """
        x, g, shape = np.asarray(x, dtype=np.float64), self.gamma, self.shape
        if shape == math.inf:
            return np.exp(self.mean * (x - 1.0))
        if g == 1.0:
            return x
        logs = np.log1p(-(1.0 - g) * x)
        if shape == 0.0:
            return logs / math.log(g)
        return np.expm1(-shape * logs) / math.expm1(-shape * math.log(g))

    def draw(self, random: Random) -> int:
        """Draw a count, at least 1, or 0 for the Poisson law; the law is exact up to 2^-190."""
        from mpmath import MPContext  # slow to import, hence not at the top

        words = np.asarray(random.integers(0, 2**32, size=_BITS // 32))
        uniform = sum(int(word) << (32 * k) for k, word in enumerate(words))
        mp = MPContext()  # of its own: another thread may change the precision of the common one
        mp.prec = _BITS + 64
        left = (mp.mpf(uniform) + 0.5) / mp.mpf(2) ** _BITS
        k, chance = self._first(mp)
        while left > chance and chance > 0:
            left -= chance
            chance *= self._ratio(mp, k)
            k += 1
        return k

    def _first(self, mp: Any) -> tuple[int, Any]:
        """Return the smallest count and its probability, in the context ``mp``."""
        if self.shape == math.inf:
            return 0, mp.exp(-mp.mpf(self.mean))
        g, shape = mp.mpf(self.gamma), mp.mpf(self.shape)
        if g == 1:
            return 1, mp.mpf(1)
        if shape == 0:
            return 1, (1 - g) / -mp.log(g)
        return 1, (1 - g) * shape / mp.expm1(-shape * mp.log(g))

    def _ratio(self, mp: Any, k: int) -> Any:
        """Return the probability of k + 1 over that of k."""
        if self.shape == math.inf:
            return mp.mpf(self.mean) / (k + 1)
        return (1 - mp.mpf(self.gamma)) * (k + mp.mpf(self.shape)) / (k + 1)


def _mean(log_gamma: float, shape: float) -> float:
    """Return the mean of the truncated negative binomial law."""
    odds = math.expm1(-log_gamma)  # (1 - gamma) / gamma
    if shape == 0.0:
        return odds / -log_gamma
    return shape * odds / -math.expm1(shape * log_gamma)


# The event


# Orders at which the curve of one run is computed; other orders use a bound from these.
_ORDERS = np.concatenate(
    [1.0 + np.geomspace(1e-3, 0.9, 12), np.arange(2.0, 65.0), np.round(np.geomspace(70, 2**20, 60))]
)


@dataclass(frozen=True)
class BestOf(Event):
    r"""The best of a random number of independent runs; nothing else is released.

    A run's release includes the score by which runs are compared; their number is not released.

    Parameters
    ----------
    events : sequence of Event
        All releases of ONE run, including its score, at least one; kept as a tuple.
    repeats : Repeats

    Notes
    -----
    Let R be the Renyi curve of one run, m the mean count, and :math:`\eta, \gamma` as in
    :class:`Repeats`. For the truncated negative binomial laws the cost at order a is at most

    .. math:: R(a) + \frac{\ln m}{a - 1} + (1 + \eta) \min_b
              \Big[(1 - 1/b) R(b) + \frac{\ln(1/\gamma)}{b}\Big],

    hence at most :math:`(2 + \eta)\epsilon` for a pure loss (3 epsilon for the geometric law: Liu
    and Talwar 2019). For the Poisson law it is :math:`R(a) + m\hat\delta + \ln m/(a - 1)`, where a
    run is :math:`(\hat\epsilon, \hat\delta)`-private for :math:`e^{\hat\epsilon} = 1 + 1/(a-1)`;
    its pure loss is infinite. A divergence does not decrease with its order, so the bound at a
    higher order is valid at each lower one.

    References
    ----------
    Papernot, Steinke (2022), Theorems 2 and 6; Liu, Talwar (2019).

    Examples
    --------
    >>> from dpanalysis.privacy.events import Pure
    >>> BestOf([Pure(0.2), Pure(0.1)], Repeats(10.0)).pure_cost()
    0.9
    """

    events: Sequence[Event]
    repeats: Repeats

    def __post_init__(self) -> None:
        events = check_events(self.events)
        if type(self.repeats) is not Repeats:  # a subclass may draw differently
            raise TypeError(f"repeats must be Repeats(mean, shape), got {self.repeats!r}")
        object.__setattr__(self, "events", events)

    @property
    def relations(self) -> tuple[str, ...]:  # noqa: D102
        return relations_of(*self.events)

    @property
    def immutable(self) -> bool:  # type: ignore[override]  # noqa: D102
        return all(event.immutable for event in self.events)

    def describe(self) -> str:  # noqa: D102
        runs = f"{self.repeats.mean:.4g} on average"
        return f"the best of a random number of runs, {runs}, each of: {described(self.events)}"

    def pure_cost(self) -> float:  # noqa: D102
        pure = math.fsum(event.pure_cost() for event in self.events)
        if self.repeats == Repeats(1.0, self.repeats.shape) and self.repeats.shape != math.inf:
            return pure
        return (2.0 + self.repeats.shape) * pure if pure else 0.0

    def rdp_cost(self, orders: ArrayLike) -> NDArray[np.float64]:  # noqa: D102
        requested = np.asarray(orders, dtype=np.float64)
        a = np.unique(np.concatenate([requested.ravel(), _ORDERS]))
        a = a[np.isfinite(a)]
        run = np.array([event.rdp_cost(a) for event in self.events], dtype=np.float64).sum(axis=0)
        if self.repeats.mean == 1.0 and self.repeats.shape != math.inf:
            cost = run
        else:
            cost = run + math.log(self.repeats.mean) / (a - 1.0) + self._extra_cost(a, run)
        cost = np.minimum.accumulate(cost[::-1])[::-1]
        pure = self.pure_cost()
        found = np.full(requested.shape, math.inf)
        finite = np.isfinite(requested)
        found[finite] = cost[np.searchsorted(a, requested[finite])]
        return np.minimum(found, rdp_pure(requested, pure)) if math.isfinite(pure) else found

    def _extra_cost(self, a: NDArray[np.float64], run: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the additional cost of the selection at each order, without ln m/(a - 1)."""
        if self.repeats.shape == math.inf:
            loss, excess = np.log1p(1.0 / (a - 1.0)), np.zeros(a.shape)
            # The tight conversion of Renyi costs; a batch asks for up to 2^17 orders.
            some = np.geomspace(1.0, a.size, _MOST_ORDERS).round().astype(np.intp) - 1
            for k in np.unique(some) if a.size > _MOST_ORDERS else range(a.size):
                at_order = (a[k] - 1.0) * (run[k] + np.log1p(-1.0 / a[k]) - loss) - np.log(a[k])
                excess = np.minimum(excess, at_order)
            return self.repeats.mean * np.exp(excess)
        bound = (1.0 - 1.0 / a) * run - math.log(self.repeats.gamma) / a
        return np.full(a.shape, (1.0 + self.repeats.shape) * float(bound.min()))
