"""What methods share whose queries depend on the answers so far."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from ..privacy import orders
from ..privacy.events import Event
from ..privacy.facts import PublicFacts
from ..privacy.relations import Budget
from .base import Method, Shown

__all__ = ["AdaptiveMethod"]


class AdaptiveMethod(Shown, Method):
    """A method that decides on the way how often, how and how accurately it asks.

    Nothing of that is fixed beforehand, so each run goes under a filter, at one Renyi order
    that is (see :class:`dpanalysis.privacy.Filter`), and replicates run one after the other.
    A method fixes the noise that it starts with in :meth:`prepare`; :meth:`run` is the algorithm
    as the paper prints it. It ends when the filter refuses a batch.

    Where it can say beforehand what it asks at most, :meth:`events` lists that, and the run goes
    under a :class:`dpanalysis.privacy.Plan` with ``exact=False``.
    """

    released: ClassVar[tuple[str, ...]] = ("iterates", "number of iterations")

    def events(self, facts: PublicFacts, plan: Any) -> Sequence[Event] | None:
        """Return None: what is asked depends on answers."""
        return None

    @abstractmethod
    def iteration(self, facts: PublicFacts, plan: Any) -> list[Event]:
        """Return what one iteration costs at the start, to choose the filter's order by."""

    def order(self, facts: PublicFacts, plan: Any, budget: Budget) -> float | None:
        """Return the Renyi order of the filter; None for one that sums rho.

        By default that at which the budget affords the most iterations; ``budget.delta`` > 0.
        """
        return orders.order_of_most(self.iteration(facts, plan), budget)
