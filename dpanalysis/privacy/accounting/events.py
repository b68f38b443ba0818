"""Events: releases with explicit units, and their cost in each notion of privacy.

Single releases (:class:`Laplace`, :class:`Gaussian`, :class:`Pure`, :class:`BoundedRange`), bounds
by Gaussian mixtures (:class:`GaussianBound`), repetitions (:class:`Repeated`) and all queries on
one subsampled batch (:class:`Sampled`). Each class defines its rules for accountants and guards.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from decimal import ROUND_FLOOR
from functools import cache, partial
from operator import attrgetter
from typing import Any, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from ..._validation import check_finite, check_int, check_reals, keep_numbers, plain_numbers
from ...errors import IncompatibleAccounting
from .pairs import Draws, Pair, product
from .pure import amplify
from .rdp import (
    rdp_gaussian,
    rdp_laplace,
    rdp_poisson,
    rdp_poisson_gaussian,
    rdp_pure,
    rdp_pure_poisson,
    rdp_pure_without_replacement,
    rdp_without_replacement,
)
from .relations import RELATIONS, directed
from .sampling import PAIRS, Poisson, Sampling, WithoutReplacement, WithReplacement
from .with_replacement import pure_with_replacement, rdp_with_replacement
from .zcdp import zcdp_pure


@cache
def _key_getter(kind: Any) -> Callable[[Any], Any] | None:
    """Return a getter of the class and compared fields of an event, None for identity equality."""
    params = vars(kind).get("__dataclass_params__")
    if params is None or not (params.eq and params.frozen):
        return None
    return attrgetter("__class__", *(each.name for each in fields(kind) if each.compare))


def _key(event: Any) -> Any:
    kind: Any = type(event)
    getter = _key_getter(kind)
    return getter and getter(event)


@dataclass(frozen=True, eq=False)
class Event:
    """One release, with its cost in every notion of privacy; the base class of all events.

    A new kind of event overrides the costs it has; the others stay infinite. Equal events
    are charged alike, so an event equals only itself, unless its class is a frozen dataclass
    with field-wise equality.

    Besides its costs an event defines rules: :attr:`exact_pair`, :meth:`pair`, :meth:`no_worse`,
    :meth:`parts` and :attr:`immutable`. A subclass inherits the costs of its base class, but not
    its rules, description (:meth:`describe`) or equality, which are valid for that class only.
    """

    #: Whether the event and its costs can never change, so that the costs may be cached.
    immutable = False

    def __init_subclass__(cls, **options: Any) -> None:
        """Reset each rule that the subclass does not define itself."""
        super().__init_subclass__(**options)
        names = ["exact_pair", "pair", "no_worse", "parts", "immutable", "describe"]
        if "__eq__" not in vars(cls):  # that of a base dataclass would ignore added fields
            names += ["__eq__", "__hash__"]
        for name in names:
            if name not in vars(cls):
                setattr(cls, name, vars(Event)[name])

    def __eq__(self, other: object) -> bool:
        key = None if self is other else _key(self)
        return self is other or (key is not None and bool(key == _key(other)))

    def __hash__(self) -> int:
        key = _key(self)
        return object.__hash__(self) if key is None else hash(key)

    def _keep_float(self, name: str, *, positive: bool = False) -> None:
        """Check a field in [0, inf), or (0, inf), and store it as a double."""
        value = getattr(self, name)
        if type(value) is float and (0.0 < value < math.inf or (value == 0.0 and not positive)):
            return
        keep_numbers(self, name, low=0.0, low_open=positive)

    @property
    def relations(self) -> tuple[str, ...]:
        """The neighbouring relations under which this event may be accounted."""
        return RELATIONS

    @property
    def exact_pair(self) -> bool:
        """Whether the Renyi curve is that of a dominating pair swapped by an involution."""
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

    def pair(self) -> Pair | None:
        """Return a dominating pair with a profile in closed form; None if there is none.

        The default is randomized response, which dominates every release with a pure loss.
        """
        loss = self.pure_cost()
        return None if math.isinf(loss) else Pair(responses=((loss, 1),) if loss > 0.0 else ())

    def no_worse(self, other: Any) -> bool:
        """Return whether no parameter of ``other``, of the same class, makes it cost more."""
        return False

    def parts(self) -> list[tuple[Event, int]] | None:
        """Return the events that this one is made of, with counts; None if it is elementary."""
        return None

    def describe(self) -> str:
        """Return a one-line description of the release, for readers who do not program.

        Examples
        --------
        >>> step = Sampled(Poisson(0.01), [Gaussian(std=2.6, sensitivity=2.0)])
        >>> print(Repeated(step, 1000).describe())
        Gaussian noise, noise multiplier 1.3, on batches drawn by Poisson sampling with rate 0.01,
        1,000 times
        """
        loss, kind = self.pure_cost(), type(self).__name__
        stated = "" if math.isinf(loss) else f", epsilon {_up(loss)}"
        return f"a release of its own kind, named {kind}{stated}"

    def dominates(self, other: Event) -> bool:
        """Return whether ``other`` costs no more than this event in every notion of privacy.

        After this event has been charged, ``other`` may be released instead. Both must have
        exactly the same class, and no parameter of ``other`` may be worse:

        - Laplace, Gaussian: the sensitivity over the scale is not larger.
        - Pure, BoundedRange: epsilon is not larger.
        - AboveThreshold: the law of the noise and ``shared`` are the same, no scale over the
          sensitivity is smaller, and there are not more queries; None stands for no limit.
        - Repeated: the count is not larger, and the event is dominated. An event by itself has
          count 1.
        - Sampled: the sampling, n and the number of events are the same, and each event is
          dominated by the one at the same position.

        Events of every other class dominate equal events only, unless they define
        :meth:`no_worse`; ValueError if it holds for an event that states a larger cost. False
        where nothing is known, even if ``other`` happens to cost less.

        Notes
        -----
        *Why the parameters suffice.* Laplace and Gaussian noise of a larger scale is noise of the
        smaller scale plus independent noise. So more noise is random post-processing of less noise,
        which reads no record and cannot cost more; and so is randomized response of a smaller
        loss. BoundedRange stands for a set of releases, which for a smaller epsilon is a subset of
        that for a larger one. For AboveThreshold measure everything in units of the sensitivity:
        the additional noise moves the public threshold and the queries by amounts that no record
        changes, and a run with fewer queries is one with more of which the last never halt. So
        every bound for this event is one for ``other``. Composition and sampling preserve this.

        Examples
        --------
        >>> Gaussian(std=1.0, sensitivity=1.0).dominates(Gaussian(std=4.0, sensitivity=2.0))
        True
        >>> Pure(1.0).dominates(Pure(1.1)), Pure(1.0).dominates(BoundedRange(0.5))
        (False, False)
        >>> Repeated(Pure(1.0), 3).dominates(Pure(0.5))
        True
        """
        if not isinstance(other, Event):
            raise TypeError(f"an event is needed, got {other!r}")
        (mine, most), (its, count) = unrolled(self), unrolled(other)
        if count > most:
            return False
        if mine is its or mine == its:
            return True
        if type(mine) is not type(its) or not mine.no_worse(its):
            return False
        _check_no_worse(mine, its)
        return True


def unrolled(event: Event) -> tuple[Event, int]:
    """Return the repeated event and its count, which is 1 for an event by itself."""
    count = 1
    while type(event) is Repeated:  # a subclass may cost more
        count, event = count * event.count, event.event
    return event, count


def first_runs(runs: Iterable[tuple[Event, int]], most: int) -> Iterator[tuple[Event, int]]:
    """Yield the first ``most`` single events, or all, as (event, count) runs."""
    for event, count in runs:
        if most > 0:
            yield event, min(count, most)
        most -= count


_up = partial(directed, digits=4)  # of numbers that are bounds


def described(events: Sequence[Event], on: str = "") -> str:
    """Return a one-line description of several events, and of the data they are released on."""
    words = "; and ".join(event.describe() for event in events)
    return f"{words}{'; all' if len(events) > 1 else ','} on {on}" if on else words


_ORDERS = 1.0 + np.geomspace(1e-3, 1e3, 7)  # at which costs of user-defined events are checked


def _check_costs(event: Event) -> None:
    """Refuse an event that says it costs less than nothing: it would pay for others."""
    plain_numbers(event)
    if type(event).__module__.startswith("dpanalysis."):
        return
    for cost in _stated_costs(event):
        if not (cost >= 0.0).all():
            lowest = float(cost.min())
            raise ValueError(
                f"an event must cost 0 or more, {event!r} says that it costs {lowest!r}"
            )


def _check_no_worse(event: Event, other: Event) -> None:
    """Refuse a ``no_worse`` of others that lets ``other`` pass, though it states a larger cost."""
    if type(event).__module__.startswith("dpanalysis."):
        return
    for mine, its in zip(_stated_costs(event), _stated_costs(other)):
        if not (its <= mine * (1.0 + 1e-9)).all():
            raise ValueError(
                f"no_worse of {type(event).__name__} must hold for cheaper events only, but "
                f"{other!r}, which it lets replace {event!r}, states a larger cost"
            )


def _stated_costs(event: Event) -> Iterator[NDArray[np.float64]]:
    """Yield the pure cost, the zCDP cost and some Renyi costs of an event."""
    for stated in (event.pure_cost, event.zcdp_cost, partial(event.rdp_cost, _ORDERS)):
        yield np.asarray(stated(), dtype=np.float64)


def check_event(event: Event, relation: str) -> None:
    """Raise TypeError if this is not an event, IncompatibleAccounting for a wrong relation."""
    if not isinstance(event, Event):
        raise TypeError(f"an event is needed, got {event!r}")
    _check_costs(event)
    if relation not in event.relations:
        raise IncompatibleAccounting(f"{event!r} cannot be accounted under {relation!r}: {PAIRS}")


def relations_of(*each: Any) -> tuple[str, ...]:
    """Return the neighbouring relations under which all given events and samplings are valid."""
    return tuple(name for name in RELATIONS if all(name in one.relations for one in each))


def check_events(events: Any, *sampled: type[Event]) -> tuple[Event, ...]:
    """Return a tuple of at least one event, none of a class in ``sampled``; raise otherwise."""
    if isinstance(events, Event) or not isinstance(events, Iterable):
        raise TypeError(f"events must be a sequence of events, got {events!r}")
    listed = tuple(events)
    if not listed:
        raise ValueError("events must hold at least one event, got none")
    for event in listed:
        if not isinstance(event, Event):
            raise TypeError(f"events must be events, got {event!r}")
        _check_costs(event)
        if isinstance(innermost(event), sampled):
            raise ValueError(f"events must not be sampled themselves, got {event!r}")
    return listed


# Single releases


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

    Notes
    -----
    In any dimension the release is dominated by the scalar pair Lap(0, b), Lap(S, b).
    For density p and shift s, 1 - H(s) = int min(p(x), e^epsilon p(x - s)) dx, where H is
    the hockey-stick divergence. Both arguments of the minimum are log-concave in (x, s)
    jointly, hence so is the minimum, and by Prekopa's theorem its integral over x is
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

    exact_pair = immutable = True

    def describe(self) -> str:  # noqa: D102
        if not self.sensitivity:
            return "Laplace noise on what no record changes"
        return f"Laplace noise, scale {self.scale / self.sensitivity:.4g} times the sensitivity"

    def pair(self) -> Pair:  # noqa: D102
        return Pair(laplace=self.pure_cost())

    def no_worse(self, other: Laplace) -> bool:  # noqa: D102
        return other.pure_cost() <= self.pure_cost()

    def pure_cost(self) -> float:  # noqa: D102
        return self.sensitivity / self.scale or (5e-324 if self.sensitivity else 0.0)

    def rdp_cost(self, orders: ArrayLike) -> NDArray[np.float64]:  # noqa: D102
        return np.asarray(rdp_laplace(orders, self.pure_cost()))


_LEAST_RATIO = 1e-150  # of a sensitivity to Gaussian noise: the square of a smaller one underflows


def _check_noise(std: float, sensitivity: float) -> None:
    """Raise unless the square of the ratio is far from overflowing."""
    if not sensitivity / std <= 1e100:
        raise ValueError(
            f"std must be at least 1e-100 times the sensitivity, got {std!r} and {sensitivity!r}"
        )


@dataclass(frozen=True)
class Gaussian(Event):
    """A release with independent Gaussian noise in every coordinate.

    Parameters
    ----------
    std : float
        Standard deviation in (0, inf), at least 1e-100 times the sensitivity.
    sensitivity : float
        L2 sensitivity of the released quantity under the relation it is accounted by, in [0, inf):
        of a sum of gradients clipped to C it is C under add-or-remove-one, 2 C under replace-one.
    order : int, default=2
        Norm of the sensitivity; must be 2.

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
        _check_noise(self.std, self.sensitivity)

    @property
    def mu(self) -> float:
        """Sensitivity over standard deviation: the inverse of the noise multiplier."""
        return max(self.sensitivity / self.std, _LEAST_RATIO) if self.sensitivity else 0.0

    exact_pair = immutable = True

    def describe(self) -> str:  # noqa: D102
        if not self.sensitivity:
            return "Gaussian noise on what no record changes"
        return f"Gaussian noise, noise multiplier {self.std / self.sensitivity:.4g}"

    def pair(self) -> Pair:  # noqa: D102
        return Pair(mu=self.mu)

    def no_worse(self, other: Gaussian) -> bool:  # noqa: D102
        return other.mu <= self.mu

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

    Examples
    --------
    >>> Pure(1.0).zcdp_cost()
    0.4621172
    """

    epsilon: float

    def __post_init__(self) -> None:
        self._keep_float("epsilon")

    exact_pair = immutable = True

    def describe(self) -> str:  # noqa: D102
        return f"a release with epsilon {_up(self.epsilon)} and delta 0"

    def no_worse(self, other: Pure) -> bool:  # noqa: D102
        return other.epsilon <= self.epsilon

    def pure_cost(self) -> float:  # noqa: D102
        return self.epsilon


@dataclass(frozen=True)
class BoundedRange(Event):
    r"""Any release whose privacy losses lie in an interval of known length.

    The log-ratio of its two laws differs by at most ``epsilon`` from one outcome to another.
    This is stronger than ``epsilon``-privacy, and costs a quarter of the zCDP.

    Parameters
    ----------
    epsilon : float
        Length of the interval, in [0, inf).

    Notes
    -----
    As both laws have mass 1, the interval contains 0: the release is ``epsilon``-private. Let L be
    the log-ratio of P to Q and :math:`K(\alpha) = \ln E_Q e^{\alpha L}`, so that the Renyi
    divergence is :math:`K(\alpha)/(\alpha - 1)`. K'' is the variance of L under a tilted law, at
    most :math:`\epsilon^2/4`, hence :math:`K - \alpha(\alpha - 1) \epsilon^2/8` is concave. It
    vanishes at 0 and 1, so it is at most 0 beyond 1: :math:`D_\alpha \le \alpha \epsilon^2/8`.

    References
    ----------
    Dong, Durfee, Rogers (2020); Cesar, Rogers (2021), who state the bound for the exponential
    mechanism.

    Examples
    --------
    >>> BoundedRange(1.0).zcdp_cost(), BoundedRange(1.0).pure_cost()
    (0.125, 1.0)
    """

    epsilon: float

    def __post_init__(self) -> None:
        self._keep_float("epsilon")

    immutable = True

    def describe(self) -> str:  # noqa: D102
        return (
            f"a release whose privacy losses span at most {_up(self.epsilon)}, as of the "
            "exponential mechanism"
        )

    def no_worse(self, other: BoundedRange) -> bool:  # noqa: D102
        return other.epsilon <= self.epsilon

    def pure_cost(self) -> float:  # noqa: D102
        return self.epsilon

    def zcdp_cost(self) -> float:  # noqa: D102
        return 0.125 * self.epsilon * self.epsilon  # infinite where a power would raise

    def rdp_cost(self, orders: ArrayLike) -> NDArray[np.float64]:  # noqa: D102
        a = np.asarray(orders, dtype=np.float64)
        with np.errstate(invalid="ignore"):  # infinite orders
            return np.fmin(rdp_pure(a, self.epsilon), self.zcdp_cost() * a)


# Compound events


@dataclass(frozen=True)
class Repeated(Event):
    """The same event several times, each with fresh noise (and a fresh batch, if sampled).

    Parameters
    ----------
    event : Event
    count : int
        At least 1.

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
        plain_numbers(self.event)
        # A Python integer: products of NumPy's small integers wrap around.
        object.__setattr__(self, "count", check_int("count", self.count, low=1))

    @property
    def relations(self) -> tuple[str, ...]:  # noqa: D102
        return self.event.relations

    @property
    def exact_pair(self) -> bool:  # noqa: D102
        return self.event.exact_pair

    @property
    def immutable(self) -> bool:  # type: ignore[override]  # noqa: D102
        return self.event.immutable

    def describe(self) -> str:  # noqa: D102
        event, count = unrolled(self)
        several = type(event) is Sampled and count > 1
        what = event._on("batches") if several else event.describe()  # type: ignore[attr-defined]
        return f"{what}, {count:,} times" if count > 1 else what

    def pair(self) -> Pair | None:  # noqa: D102
        return product([(self.event.pair(), self.count)])

    def parts(self) -> list[tuple[Event, int]]:  # noqa: D102
        return [(self.event, self.count)]

    def pure_cost(self) -> float:  # noqa: D102
        return self.count * float(self.event.pure_cost())

    def zcdp_cost(self) -> float:  # noqa: D102
        return self.count * float(self.event.zcdp_cost())

    def rdp_cost(self, orders: ArrayLike) -> NDArray[np.float64]:  # noqa: D102
        return self.count * np.asarray(self.event.rdp_cost(orders), dtype=np.float64)


@dataclass(frozen=True)
class Sampled(Event):
    """All releases on one subsampled batch: composed first, then amplified once.

    Amplifying each access to a shared batch on its own is wrong (errata 002-4); fresh
    batches are separate ``Sampled`` events.

    Parameters
    ----------
    sampling : Full, WithoutReplacement, WithReplacement or Poisson
    events : sequence of Event
        At least one, none of them sampled; kept as a tuple. Sensitivities refer to one entry of
        the batch, even where a record may be drawn several times.
    n : int, optional
        Number of records; needed for a batch of fixed size, which is at most n.

    Raises
    ------
    IncompatibleAccounting
        If the events on a batch drawn with replacement are neither all Gaussian nor all pure.

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
        if type(self.sampling) not in get_args(Sampling):  # a subclass may draw differently
            raise TypeError(
                "sampling must be Full(), WithoutReplacement(m), WithReplacement(m) or "
                f"Poisson(rate), got {self.sampling!r}: schemes that divide the records among the "
                "batches of an epoch go with Epoch(sampling, events)"
            )
        events = check_events(self.events, Sampled)
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
        return relations_of(self.sampling, *self.events)

    @property
    def exact_pair(self) -> bool:  # noqa: D102
        return self.fraction == 1.0 and all(event.exact_pair for event in self.events)

    @property
    def fraction(self) -> float:
        """Probability that a given record is in the batch."""
        return self.sampling.fraction(self.n)

    @property
    def immutable(self) -> bool:  # type: ignore[override]  # noqa: D102
        return all(event.immutable for event in self.events)

    def describe(self) -> str:  # noqa: D102
        return self._on("a batch")

    def _on(self, batches: str) -> str:
        return described(self.events, self.sampling.describe(batches, self.n))

    def pair(self) -> Pair | None:  # noqa: D102
        inner = product((event.pair(), count) for event, count in map(unrolled, self.events))
        if inner is None:
            return None
        if isinstance(self.sampling, WithReplacement) and self.n is not None and self.n > 1:
            if inner.mu:
                return Draws(inner.mu, fraction=self.fraction, n=self.n, m=self.sampling.m)
            return Pair(responses=((self.pure_cost(), 1),))
        return replace(inner, fraction=self.fraction, poisson=isinstance(self.sampling, Poisson))

    def no_worse(self, other: Sampled) -> bool:  # noqa: D102
        return (
            (self.sampling, self.n) == (other.sampling, other.n)
            and len(self.events) == len(other.events)
            and all(mine.dominates(its) for mine, its in zip(self.events, other.events))
        )

    def parts(self) -> list[tuple[Event, int]] | None:  # noqa: D102
        return [(event, 1) for event in self.events] if self.fraction == 1.0 else None

    def pure_cost(self) -> float:  # noqa: D102
        pure = self._batch_pure()
        if isinstance(self.sampling, WithReplacement) and self.n is not None:
            return pure_with_replacement(pure, self.n, self.sampling.m)
        return float(amplify(pure, self.fraction))

    def zcdp_cost(self) -> float:
        """Return rho, infinite for a batch with Gaussian noise (its Renyi curve bends upwards)."""
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
            return super().rdp_cost(orders)  # from the pure loss, or infinite
        cost = np.full(np.shape(orders), math.inf)
        if math.isfinite(pure):
            cost = np.asarray(rdp_pure_without_replacement(orders, n, m, pure))
        # For a single small pure release on a small batch the first curve is the smaller.
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
        # A pure release is dominated by randomized response, which avoids the lemma's factor 3.
        if any(not each.exact_pair and math.isinf(each.pure_cost()) for each in self.events):
            return cost
        pairs = [each if each.exact_pair else Pure(each.pure_cost()) for each in self.events]
        return np.minimum(cost, Sampled(self.sampling, pairs, self.n).rdp_cost(orders))

    def _batch_pure(self) -> float:
        return math.fsum(event.pure_cost() for event in self.events)

    def _batch_rdp(self, orders: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.sum([each.rdp_cost(orders) for each in self.events], axis=0, dtype=np.float64)


def innermost(event: Event) -> Event:
    """Return the innermost repeated event, or the event itself if it is not repeated.

    Examples
    --------
    >>> innermost(Repeated(Pure(1.0), 3))
    Pure(epsilon=1.0)
    """
    while isinstance(event, Repeated):
        event = event.event
    return event


def gaussian_mu(events: Iterable[Event]) -> float | None:
    """Return the mu of the composition of Gaussian events, None if any event is not Gaussian.

    Examples
    --------
    >>> gaussian_mu([Gaussian(1.0, 3.0), Repeated(Gaussian(1.0, 2.0), 4)])
    5.0
    >>> gaussian_mu([Pure(1.0)]) is None
    True
    """
    squares = []
    for event, count in map(unrolled, events):
        if type(event) is not Gaussian:  # a subclass may cost more
            return None
        squares.append(count * event.mu**2)
    return math.sqrt(math.fsum(squares))


# Releases dominated by Gaussian mixtures


# Most terms of a composition; beyond, and where weights overflow, accountants use the Renyi curve.
_MOST_TERMS = 4096
# Weights whose sum is 1 up to this are a rounded probability law.
_LAW = 1e-12


@dataclass(frozen=True)
class GaussianBound(Event):
    r"""A release whose divergence is bounded by a weighted sum of Gaussian divergences.

    Let P, Q be the laws of the release on two neighbours, in either order. For every real
    :math:`\epsilon`, the hockey-stick divergence satisfies

    .. math:: H_\epsilon(P, Q) \le \sum_j w_j H_{\epsilon - \kappa}(N(S_j, \sigma^2),
              N(0, \sigma^2)).

    Two kinds of release satisfy this. The first is Gaussian noise on an answer whose sensitivity
    is :math:`S_j` with probability :math:`w_j`, where the mechanism tosses the coin: the divergence
    is jointly convex, and :math:`\kappa = 0`. The second has a privacy loss of at most
    :math:`\kappa` plus the largest of some Gaussian losses, each of which has :math:`w_j = 1`.

    Parameters
    ----------
    std : float
        :math:`\sigma` in (0, inf), at least 1e-100 times each sensitivity.
    sensitivities : sequence of float
        :math:`S_j` in [0, inf), L2, in the units of ``std``; kept as a tuple.
    weights : sequence of float
        :math:`w_j > 0`, with a sum of at least 1. If the sum is 1 up to 1e-12, they are rounded
        probabilities, and are divided by their sum.
    offset : float
        :math:`\kappa \ge 0`, in nats.

    Notes
    -----
    The right side is the divergence of two measures on disjoint copies of the line, one for each j:
    :math:`w_j N(S_j, \sigma^2)` and :math:`w_j e^{-\kappa} N(0, \sigma^2)`. The costs follow from
    it as for a dominating pair of laws:

    *Renyi.* :math:`r^\alpha = \alpha (\alpha-1) \int_0^\infty t^{\alpha-2} (r - t)_+ dt` for
    r = P/Q gives :math:`E_Q r^\alpha` as an integral of :math:`H_{\ln t}`, hence

    .. math:: D_\alpha \le \kappa + \frac{1}{\alpha-1} \ln \sum_j w_j
              e^{\alpha (\alpha-1) S_j^2/(2\sigma^2)}.

    *Composition*, also with releases that depend on this one. Let l(x) be the loss of the first
    release at its outcome x. There :math:`\int (p p' - e^\epsilon q q')_+ = p(x)
    H_{\epsilon - l(x)}(P'_x, Q'_x)`, which the measures of the second release bound. Then fix a
    point of these measures, and bound the integral over x by the measures of the first release in
    the same way. So the measures multiply: the weights multiply, and the squares of
    :math:`S_j/\sigma` and the offsets :math:`\kappa` add.

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
        _check_noise(self.std, max(self.sensitivities))
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

    def describe(self) -> str:  # noqa: D102
        if not any(self.sensitivities):
            noise = "Gaussian noise on what no record changes"
        else:
            least = directed(self.std / max(self.sensitivities), 4, ROUND_FLOOR)
            noise = f"mixed Gaussian noise, noise multiplier {least} or more"
        more = f", and a privacy loss of {_up(self.offset)} beside it" if self.offset else ""
        return f"a release that costs no more than {noise}{more}"

    @property
    def mus(self) -> NDArray[np.float64]:
        """Sensitivities over the standard deviation, shape (k,)."""
        moved = np.array(self.sensitivities)
        return np.where(moved > 0.0, np.maximum(moved / self.std, _LEAST_RATIO), 0.0)

    def zcdp_cost(self) -> float:
        """Return rho, infinite if there is an offset or the weights sum to more than 1."""
        if self.offset or not self._is_law:
            return math.inf
        return 0.5 * float(self.mus.max()) ** 2

    @property
    def _is_law(self) -> bool:
        return math.fsum(self.weights) <= 1.0 + _LAW

    def rdp_cost(self, orders: ArrayLike) -> NDArray[np.float64]:  # noqa: D102
        a = np.asarray(orders, dtype=np.float64)[..., None]
        more = 0.0 if self._is_law else math.fsum(self.weights) - 1.0
        with np.errstate(invalid="ignore"):  # infinite orders
            moments = 0.5 * a * (a - 1.0) * self.mus**2
            far = special.logsumexp(np.log(self.weights) + moments, axis=-1)
            near = np.log1p(more + np.expm1(np.minimum(moments, 30.0)) @ np.array(self.weights))
            cost = np.where(moments.max(axis=-1) < 30.0, near, far) / (a[..., 0] - 1.0)
        return self.offset + np.where(np.isfinite(cost), np.maximum(cost, 0.0), np.inf)


@np.errstate(over="ignore")
def counted_gaussian_terms(
    events: Iterable[tuple[Event, int]],
) -> tuple[NDArray[np.float64], NDArray[np.float64], float] | None:
    """Return (mus, weights, offset) of composed counted Gaussian events and bounds, or None."""
    squares, weights, offset = np.zeros(1), np.ones(1), 0.0
    for event, count in events:
        if type(event) is Gaussian:  # a subclass may cost more
            squares = squares + count * event.mu**2
        elif type(event) is not GaussianBound:
            return None
        elif len(event.weights) == 1:
            squares = squares + count * event.mus**2
            weights = weights * np.float64(event.weights[0]) ** count
            offset += count * event.offset
        else:
            for _ in range(count):
                if squares.size * len(event.weights) > _MOST_TERMS:
                    return None
                squares = np.add.outer(squares, event.mus**2).ravel()
                weights = np.multiply.outer(weights, event.weights).ravel()
                offset += event.offset
    if not math.isfinite(weights.sum()):
        return None
    return np.sqrt(squares), weights, offset
