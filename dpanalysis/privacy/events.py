"""What is released: noise with explicit units, alone or on a subsampled batch.

An event carries its noise, the sensitivity of the released quantity (in that quantity's
units and under the budget's neighbouring relation) and the norm of that sensitivity. It
knows its cost in each notion of privacy; how costs add up is the accountant's business.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._validation import check_int, check_number
from ..errors import IncompatibleAccounting
from .pure import amplify
from .rdp import rdp_gaussian, rdp_laplace, rdp_pure
from .relations import RELATIONS
from .sampling import PAIRS, Poisson, Sampling, WithoutReplacement, WithReplacement
from .subsampled_rdp import (
    rdp_poisson,
    rdp_poisson_gaussian,
    rdp_pure_poisson,
    rdp_pure_without_replacement,
    rdp_without_replacement,
)
from .with_replacement import pure_with_replacement, rdp_with_replacement
from .zcdp import zcdp_pure

__all__ = [
    "Event",
    "Gaussian",
    "Laplace",
    "Pure",
    "Repeated",
    "Sampled",
    "check_event",
    "gaussian_mu",
    "innermost",
]


@dataclass(frozen=True, eq=False)
class Event:
    """One release, with its cost in every notion of privacy; the base of all events.

    A new kind of event overrides the costs it has; the others stay infinite. Equal events
    are charged alike, so an event is equal to itself only, unless it is a dataclass that
    compares its fields.
    """

    def _keep_float(self, name: str, *, positive: bool = False) -> None:
        """Check a field in [0, inf), or (0, inf), and keep it as a float of full precision."""
        value = check_number(name, getattr(self, name), low=0.0, low_open=positive)
        object.__setattr__(self, name, value)

    @property
    def relations(self) -> tuple[str, ...]:
        """The neighbouring relations under which this event may be accounted."""
        return RELATIONS

    @property
    def exact_pair(self) -> bool:
        """Whether the Renyi curve is that of a dominating pair that an involution swaps."""
        return False

    def pure_cost(self) -> float:
        """Return the pure loss, infinite where there is none."""
        return math.inf

    def zcdp_cost(self) -> float:
        """Return rho, infinite where there is none."""
        return zcdp_pure(self.pure_cost())

    def rdp_cost(self, orders: ArrayLike) -> NDArray[np.float64]:
        """Return the Renyi cost at real orders in (1, inf]."""
        return np.asarray(rdp_pure(orders, self.pure_cost()))


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
        Scale b in (0, inf): the density is exp(-|x|/b)/(2b).
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
        return np.asarray(rdp_poisson(orders, rate, self._batch_rdp, exact_pair=exact))

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
        if not isinstance(event, Gaussian):
            return None
        squares.append(count * event.mu**2)
    return math.sqrt(math.fsum(squares))


def check_event(event: Event, relation: str) -> None:
    """Raise unless ``event`` may be accounted under ``relation``.

    Raises
    ------
    TypeError
        If it is not an event.
    IncompatibleAccounting
        If its sampling scheme does not belong to the relation.

    Examples
    --------
    >>> check_event(Pure(1.0), "replace_one")
    """
    if not isinstance(event, Event):
        raise TypeError(f"an event is needed, got {event!r}")
    if relation not in event.relations:
        raise IncompatibleAccounting(f"{event!r} cannot be accounted under {relation!r}: {PAIRS}")
