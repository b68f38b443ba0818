"""The event of a choice: the best of a random number of runs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..rdp import rdp_pure
from ..repeats import Repeats
from .base import Event

__all__ = ["BestOf"]

# Orders at which the curve of one run is looked up, and from which others take theirs.
_ORDERS = np.concatenate(
    [1.0 + np.geomspace(1e-3, 0.9, 12), np.arange(2.0, 65.0), np.round(np.geomspace(70, 2**20, 60))]
)


@dataclass(frozen=True)
class BestOf(Event):
    r"""The best of a random number of independent runs, and nothing of the others.

    What a run releases holds the score that it is compared by; how many runs there were is not
    released.

    Parameters
    ----------
    events : sequence of Event
        All that ONE run releases, its score included; kept as a tuple.
    repeats : Repeats

    Raises
    ------
    TypeError
        If something is not an event, or not a law of counts.
    ValueError
        If there is no event.

    Notes
    -----
    Let R be the Renyi curve of one run, m the mean count, and :math:`\eta, \gamma` as in
    :class:`~dpanalysis.privacy.repeats.Repeats`. For the truncated negative binomial laws the
    cost at order a is at most

    .. math:: R(a) + \frac{\ln m}{a - 1} + (1 + \eta) \min_b
              \Big[(1 - 1/b) R(b) + \frac{\ln(1/\gamma)}{b}\Big],

    so :math:`(2 + \eta)\epsilon` for a pure loss (3 epsilon for the geometric law: Liu and Talwar
    2019). For Poisson's law it is :math:`R(a) + m\hat\delta + \ln m/(a - 1)`, where a run is
    :math:`(\hat\epsilon, \hat\delta)`-private for :math:`e^{\hat\epsilon} = 1 + 1/(a-1)`; it has
    no pure loss. A divergence does not fall with its order, so each order may take the
    bound of a higher one.

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
        if isinstance(self.events, Event) or not isinstance(self.events, Iterable):
            raise TypeError(f"events must be a sequence of events, got {self.events!r}")
        events = tuple(self.events)
        if not events:
            raise ValueError("events must hold at least one event, got none")
        for event in events:
            if not isinstance(event, Event):
                raise TypeError(f"events must be events, got {event!r}")
        if type(self.repeats) is not Repeats:  # a class that extends it may draw otherwise
            raise TypeError(f"repeats must be Repeats(mean, shape), got {self.repeats!r}")
        object.__setattr__(self, "events", events)

    @property
    def relations(self) -> tuple[str, ...]:  # noqa: D102
        each = [event.relations for event in self.events]
        return tuple(name for name in each[0] if all(name in names for names in each))

    def pure_cost(self) -> float:  # noqa: D102
        pure = math.fsum(event.pure_cost() for event in self.events)
        if self.repeats == Repeats(1.0, self.repeats.shape) and self.repeats.shape != math.inf:
            return pure
        return (2.0 + self.repeats.shape) * pure if pure else 0.0

    def rdp_cost(self, orders: ArrayLike) -> NDArray[np.float64]:  # noqa: D102
        asked = np.asarray(orders, dtype=np.float64)
        a = np.unique(np.concatenate([asked.ravel(), _ORDERS]))
        a = a[np.isfinite(a)]
        run = np.sum([event.rdp_cost(a) for event in self.events], axis=0)
        if self.repeats.mean == 1.0 and self.repeats.shape != math.inf:
            cost = run
        else:
            cost = run + math.log(self.repeats.mean) / (a - 1.0) + self._more(a, run)
        cost = np.minimum.accumulate(cost[::-1])[::-1]
        pure = self.pure_cost()
        found = np.full(asked.shape, math.inf)
        finite = np.isfinite(asked)
        found[finite] = cost[np.searchsorted(a, asked[finite])]
        return np.minimum(found, rdp_pure(asked, pure)) if math.isfinite(pure) else found

    def _more(self, a: NDArray[np.float64], run: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return what the choice adds at each order, ln m/(a - 1) aside."""
        if self.repeats.shape == math.inf:
            loss = np.log1p(1.0 / (a - 1.0))
            # The tight conversion of Renyi costs, for all pairs of orders.
            excess = (a - 1.0) * (run + np.log1p(-1.0 / a) - loss[:, None]) - np.log(a)
            return self.repeats.mean * np.exp(np.minimum(excess.min(axis=1), 0.0))
        bound = (1.0 - 1.0 / a) * run - math.log(self.repeats.gamma) / a
        return np.full(a.shape, (1.0 + self.repeats.shape) * float(bound.min()))
