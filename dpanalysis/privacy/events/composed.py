"""Events of events: repeated ones, and all that was asked of one subsampled batch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..._validation import check_int
from ...errors import IncompatibleAccounting
from ..pure import amplify
from ..sampling import Poisson, Sampling, WithoutReplacement, WithReplacement
from ..subsampled_rdp import (
    rdp_poisson,
    rdp_poisson_gaussian,
    rdp_pure_poisson,
    rdp_pure_without_replacement,
    rdp_without_replacement,
)
from ..with_replacement import pure_with_replacement, rdp_with_replacement
from .base import Event
from .releases import Gaussian, Pure

__all__ = ["Repeated", "Sampled", "gaussian_mu", "innermost"]


@dataclass(frozen=True)
class Repeated(Event):
    """The same event several times, each with fresh noise (and a fresh batch, if sampled).

    Parameters
    ----------
    event : Event
    count : int
        At least 1.

    Raises
    ------
    TypeError
        If ``event`` is not an event or ``count`` not an integer.
    ValueError
        If ``count`` is below 1.

    Examples
    --------
    >>> Repeated(Pure(0.5), 4).pure_cost()
    2.0
    """

    event: Event
    count: int

    def __post_init__(self) -> None:
        if not isinstance(self.event, Event):
            raise TypeError(f"event must be an event, got {self.event!r}")
        # A Python integer: products of NumPy's small ones wrap around.
        object.__setattr__(self, "count", check_int("count", self.count, low=1))

    @property
    def relations(self) -> tuple[str, ...]:  # noqa: D102
        return self.event.relations

    @property
    def exact_pair(self) -> bool:  # noqa: D102
        return self.event.exact_pair

    def pure_cost(self) -> float:  # noqa: D102
        return self.count * self.event.pure_cost()

    def zcdp_cost(self) -> float:  # noqa: D102
        return self.count * self.event.zcdp_cost()

    def rdp_cost(self, orders: ArrayLike) -> NDArray[np.float64]:  # noqa: D102
        return self.count * self.event.rdp_cost(orders)


@dataclass(frozen=True)
class Sampled(Event):
    """Everything that was asked of one subsampled batch: composed first, amplified once.

    Amplifying each access to a shared batch on its own is wrong (errata 002-4); fresh
    batches are separate ``Sampled`` events.

    Parameters
    ----------
    sampling : Full, WithoutReplacement, WithReplacement or Poisson
    events : sequence of Event
        What was released about the batch (kept as a tuple); their sensitivities are those
        of one record of the batch, also where it may be drawn several times. No batch
        within a batch.
    n : int, optional
        Number of records; needed for a batch of fixed size.

    Raises
    ------
    TypeError
        If something is not an event or not a sampling scheme.
    ValueError
        If there is no event, a batch in a batch, or n is missing or below m.
    IncompatibleAccounting
        If a batch drawn with replacement holds other events than Gaussian noise alone or pure
        releases alone.

    Examples
    --------
    >>> from dpanalysis.privacy.events import Laplace
    >>> step = Sampled(WithoutReplacement(1000), [Laplace(1.0, 1.0)], n=100_000)
    >>> step.pure_cost()
    0.0170369
    """

    sampling: Sampling
    events: Sequence[Event]
    n: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.sampling, Sampling):
            raise TypeError(f"sampling must be a sampling scheme, got {self.sampling!r}")
        if isinstance(self.events, Event) or not isinstance(self.events, Iterable):
            raise TypeError(f"events must be a sequence of events, got {self.events!r}")
        events = tuple(self.events)
        if not events:
            raise ValueError("events must hold at least one event, got none")
        for event in events:
            if not isinstance(event, Event):
                raise TypeError(f"events must be events, got {event!r}")
            if isinstance(innermost(event), Sampled):
                raise ValueError(f"events must not be sampled themselves, got {event!r}")
        object.__setattr__(self, "events", events)
        self.sampling.fraction(self.n)
        if self.n is not None:
            self.sampling.validate(self.n)
        with_replacement = isinstance(self.sampling, WithReplacement)
        if with_replacement and gaussian_mu(events) is None and math.isinf(self._batch_pure()):
            raise IncompatibleAccounting(
                "WithReplacement is accounted for Gaussian noise alone or for pure releases alone, "
                f"got {events!r}: ask them of separate batches, or use WithoutReplacement"
            )

    @property
    def relations(self) -> tuple[str, ...]:  # noqa: D102
        return self.sampling.relations

    @property
    def exact_pair(self) -> bool:  # noqa: D102
        return self.fraction == 1.0 and all(event.exact_pair for event in self.events)

    @property
    def fraction(self) -> float:
        """Probability that a given record is in the batch."""
        return self.sampling.fraction(self.n)

    def pure_cost(self) -> float:  # noqa: D102
        pure = self._batch_pure()
        if isinstance(self.sampling, WithReplacement) and self.n is not None:
            return pure_with_replacement(pure, self.n, self.sampling.m)
        return float(amplify(pure, self.fraction))

    def zcdp_cost(self) -> float:
        """Return rho; a batch with Gaussian noise has none (its curve bends upwards)."""
        if self.fraction == 1.0:
            return math.fsum(event.zcdp_cost() for event in self.events)
        return super().zcdp_cost()

    def rdp_cost(self, orders: ArrayLike) -> NDArray[np.float64]:
        """Return the Renyi cost: the batch's composed curve, amplified once."""
        if self.fraction == 1.0:
            return self._batch_rdp(np.asarray(orders, dtype=np.float64))
        pure = self._batch_pure()
        if isinstance(self.sampling, Poisson):
            return self._poisson(orders, pure)
        assert isinstance(self.sampling, (WithoutReplacement, WithReplacement))
        assert self.n is not None
        n, m = self.n, self.sampling.m
        if isinstance(self.sampling, WithReplacement):
            mu = gaussian_mu(self.events)
            if mu:
                return np.asarray(rdp_with_replacement(orders, n, m, 1.0 / mu))
            return super().rdp_cost(orders)  # of a pure loss, or infinite
        cost = np.full(np.shape(orders), math.inf)
        if math.isfinite(pure):
            cost = np.asarray(rdp_pure_without_replacement(orders, n, m, pure))
        # For one small pure release on a small batch the first curve is the smaller one.
        several = len(self.events) > 1 or isinstance(self.events[0], Repeated)
        if several or pure > 2.0 or self.fraction > 0.5:
            general = rdp_without_replacement(orders, n, m, self._batch_rdp, pure)
            cost = np.minimum(cost, general)
        return cost

    def _poisson(self, orders: ArrayLike, pure: float) -> NDArray[np.float64]:
        rate = self.fraction
        mu = gaussian_mu(self.events)
        if mu is not None:
            return np.asarray(rdp_poisson_gaussian(orders, rate, 1.0 / mu if mu else math.inf))
        if all(type(innermost(event)) is Pure for event in self.events):
            return np.asarray(rdp_pure_poisson(orders, rate, pure))
        exact = all(event.exact_pair for event in self.events)
        cost = np.asarray(rdp_poisson(orders, rate, self._batch_rdp, exact_pair=exact))
        if exact:
            return cost
        # Randomised response dominates a pure release, and spares it the lemma's factor 3.
        if any(not each.exact_pair and math.isinf(each.pure_cost()) for each in self.events):
            return cost
        pairs = [each if each.exact_pair else Pure(each.pure_cost()) for each in self.events]
        return np.minimum(cost, Sampled(self.sampling, pairs, self.n).rdp_cost(orders))

    def _batch_pure(self) -> float:
        return math.fsum(event.pure_cost() for event in self.events)

    def _batch_rdp(self, orders: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.sum([event.rdp_cost(orders) for event in self.events], axis=0)


def innermost(event: Event) -> Event:
    """Return the event that is repeated, or the event itself.

    Examples
    --------
    >>> innermost(Repeated(Pure(1.0), 3))
    Pure(epsilon=1.0)
    """
    while isinstance(event, Repeated):
        event = event.event
    return event


def gaussian_mu(events: Iterable[Event]) -> float | None:
    """Return the mu of the one Gaussian that Gaussian events compose to, None if others are there.

    Examples
    --------
    >>> gaussian_mu([Gaussian(1.0, 3.0), Repeated(Gaussian(1.0, 2.0), 4)])
    5.0
    >>> gaussian_mu([Pure(1.0)]) is None
    True
    """
    squares = []
    for event in events:
        count = 1
        while isinstance(event, Repeated):
            count, event = count * event.count, event.event
        if type(event) is not Gaussian:  # a class that extends it may cost more
            return None
        squares.append(count * event.mu**2)
    return math.sqrt(math.fsum(squares))
