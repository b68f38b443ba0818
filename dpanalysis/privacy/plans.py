"""A plan: permission for events that are fixed beforehand."""

from __future__ import annotations

import math

from ..errors import PrivacyBudgetExceeded
from .accountant import Events, spent
from .events import Event, Repeated, covers
from .guards import SLACK, Original
from .relations import Budget, check_budget

__all__ = ["Plan"]


class Plan(Original):
    """Permission for events that are fixed beforehand, verified once as a whole.

    The tightest accountant may then be used. Answers may depend on earlier answers; the
    planned events may not, so only they are granted, in their order.

    Parameters
    ----------
    events : Event or iterable of Event
        ``Repeated`` stands for that many single events, here and in what is asked for.
    budget : Budget or None
        None sets no limit: then only these events are granted, whatever they cost.
    accountant : {"tightest", "pure", "zcdp", "rdp", "pld"}
    exact : bool
        False: at most these events. Each may be left out, or be replaced by one that it covers
        (:func:`dpanalysis.privacy.events.covers`); what is passed over is lost.

    Raises
    ------
    PrivacyBudgetExceeded
        If the events do not fit the budget.
    IncompatibleAccounting
        As :func:`dpanalysis.privacy.epsilon`.

    Notes
    -----
    *Why at most these events cost no more.* Let answers decide which event is asked next, and
    whether any is. A run that leaves events out is one that asks them too and throws the answers
    away. So let the k-th answer be that of a mechanism which the earlier answers choose and the
    k-th planned event covers. Whatever the earlier answers were, it costs no more than that event
    in every notion: its pure, zCDP and Renyi losses add up as if it were fixed, and the pair of
    distributions that dominates the event dominates the mechanism. Products of such pairs dominate
    adaptive composition (Zhu, Dong, Wang 2022, Theorem 10), which asks for a dominating pair after
    every outcome and not for one and the same mechanism.

    Examples
    --------
    >>> from dpanalysis.privacy.events import Pure
    >>> plan = Plan([Repeated(Pure(0.5), 2)], Budget(1.0))
    >>> plan.spend(Pure(0.5))
    >>> plan.remaining, plan.can_spend(Pure(0.4)), plan.can_spend(plan.next)
    (1, False, True)
    >>> Plan(Pure(0.5), Budget(1.0), exact=False).can_spend(Pure(0.4))
    True
    """

    def __init__(
        self,
        events: Events,
        budget: Budget | None,
        accountant: str = "tightest",
        *,
        exact: bool = True,
    ) -> None:
        super().__init__()
        listed = [events] if isinstance(events, Event) else list(events)
        cost = math.nan
        if budget is not None:
            cost = spent(listed, check_budget(budget), accountant)
            if not cost <= budget.limit * (1.0 + SLACK):
                raise PrivacyBudgetExceeded(
                    f"the planned events cost {cost:.6g} by {accountant!r}, "
                    f"the budget is {budget.limit:.6g}"
                )
        self.budget, self.cost = budget, cost
        self._left = [_unrolled(event) for event in listed]
        self._exact, self._at = exact, 0

    @property
    def next(self) -> Event | None:
        """The next planned event; None when the plan is used up."""
        return self._left[self._at][0] if self._at < len(self._left) else None

    @property
    def remaining(self) -> int:
        """How many single events are left."""
        return sum(count for _, count in self._left[self._at :])

    def can_spend(self, event: Event) -> bool:
        """Return whether ``event`` would be granted now; nothing is charged."""
        return self._place(event) is not None

    def spend(self, event: Event) -> None:
        """Use up the planned event that pays for ``event``.

        Raises
        ------
        PrivacyBudgetExceeded
            If none does; nothing is charged then.
        RuntimeError
            If this plan is a copy of another, by pickle or by a fork too.
        """
        with self._only_one():
            place = self._place(event)
            if place is None:
                planned = "nothing is left" if self.next is None else f"next comes {self.next!r}"
                raise PrivacyBudgetExceeded(f"{event!r} was not planned here: {planned}")
            paying, count = self._left[place]
            left = count - _unrolled(event)[1]
            self._left[place] = paying, left
            self._at = place if left else place + 1

    def _place(self, event: Event) -> int | None:
        """Return the place of the first planned event that pays for ``event``."""
        asked, times = _unrolled(event)
        end = self._at + 1 if self._exact else len(self._left)
        for place in range(self._at, min(end, len(self._left))):
            planned, count = self._left[place]
            same = planned is asked or planned == asked
            if times <= count and (same or (not self._exact and covers(planned, asked))):
                return place
        return None

    def __repr__(self) -> str:
        limit = "no limit" if self.budget is None else f"{self.cost:.6g} of {self.budget.limit:.6g}"
        return f"Plan({self.remaining} events left, {limit})"


def _unrolled(event: Event) -> tuple[Event, int]:
    """Return the event that is repeated, and how often."""
    count = 1
    while isinstance(event, Repeated):
        count, event = count * event.count, event.event
    return event, count
