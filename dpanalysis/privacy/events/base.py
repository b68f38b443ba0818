"""What every event has: its cost in each notion of privacy."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..._validation import keep_numbers
from ...errors import IncompatibleAccounting
from ..rdp import rdp_pure
from ..relations import RELATIONS
from ..sampling import PAIRS
from ..zcdp import zcdp_pure

__all__ = ["Event", "check_event"]


@dataclass(frozen=True, eq=False)
class Event:
    """One release, with its cost in every notion of privacy; the base of all events.

    A new kind of event overrides the costs it has; the others stay infinite. Equal events
    are charged alike, so an event is equal to itself only, unless it is a dataclass that
    compares its fields.
    """

    def _keep_float(self, name: str, *, positive: bool = False) -> None:
        """Check a field in [0, inf), or (0, inf), and keep it as a float of full precision."""
        keep_numbers(self, name, low=0.0, low_open=positive)

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
    >>> from dpanalysis.privacy.events import Pure
    >>> check_event(Pure(1.0), "replace_one")
    """
    if not isinstance(event, Event):
        raise TypeError(f"an event is needed, got {event!r}")
    if relation not in event.relations:
        raise IncompatibleAccounting(f"{event!r} cannot be accounted under {relation!r}: {PAIRS}")
