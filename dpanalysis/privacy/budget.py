"""Guards, which grant or refuse what is to be released: ``Filter`` and ``Plan``.

A :class:`Filter` grants events that are chosen while a run goes on, a :class:`Plan` events that
were fixed beforehand. Both compare with a relative slack of 1e-9, which absorbs the rounding of
costs: a budget of 1 may be exceeded by 1e-9, and no more, since sums of costs are compensated.
Both charge under a lock: two threads that spend from one guard are never promised the same
remainder. A copy of a guard, in this process or another, would be a second budget: it can be
looked at, and refuses to spend. A fork copies without a call that could be caught, so a guard
remembers the process that it was made in.
"""

from __future__ import annotations

import copy
import math
import os
import threading
from collections.abc import Callable
from functools import partial
from operator import methodcaller
from typing import Any, Protocol

import numpy as np

from .._validation import check_int, check_number
from ..errors import IncompatibleAccounting, PrivacyBudgetExceeded
from .accounting.accountant import Events, spent
from .accounting.rdp import rdp_to_epsilon
from .accounting.relations import Budget, check_budget
from .accounting.zcdp import epsilon_to_zcdp, zcdp_to_epsilon
from .events import Event, check_event, unrolled

SLACK = 1e-9


class Guard(Protocol):
    """What the oracle buys a batch from: a filter, or a plan fixed beforehand."""

    def can_spend(self, event: Event) -> bool:
        """Say whether ``event`` may be released now; without side effects."""

    def spend(self, event: Event) -> None:
        """Charge ``event``, or raise and charge nothing; no other thread comes between."""


class NonCopyableGuard:
    """A guard that charges under a lock, whose copies refuse to spend and whose limit stays."""

    def __init__(self) -> None:
        self._lock: threading.RLock | None = threading.RLock()
        self._process = os.getpid()
        self._seeds: set[tuple[bytes, int]] = set()

    def _only_one(self) -> threading.RLock:
        """Return the lock of the original, or raise RuntimeError in a copy of it."""
        if self._lock is None or self._process != os.getpid():
            raise RuntimeError(
                f"this {type(self).__name__} is a copy, and two could grant the same budget twice: "
                "spend from the original, in the process that it was made in, or give every "
                "process a budget of its own"
            )
        return self._lock

    def claim_seed(self, seed: Any) -> None:
        """Remember a seed of noise that is paid from here; raise ValueError if it was used before.

        Two runs from one seed draw the same noise, and their difference has none: composition
        wants fresh noise for every release. Seeds are compared by the state that NumPy makes of
        them, so 9, ``SeedSequence([9])`` and ``default_rng(9)`` are one seed. A Generator or a
        SeedSequence has other children after some were spawned from it, and is another seed then.
        """
        with self._only_one():
            state = _state(seed)
            if state in self._seeds:
                shown = f" = {int(seed)}" if isinstance(seed, int | np.integer) else ""
                raise ValueError(
                    f"rng{shown} has been used under this {type(self).__name__.lower()}: two runs "
                    "would have the same noise, and their difference none; give another seed, or "
                    "one Generator to both"
                )
            if state is not None:
                self._seeds.add(state)

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("_") and name in self.__dict__:
            kind = type(self).__name__
            raise AttributeError(f"{name} cannot be changed: this {kind} was made with its limit")
        super().__setattr__(name, value)

    def __getstate__(self) -> dict[str, Any]:
        # A copy spends nothing, and may be shown: who has the seeds subtracts the noise.
        return {**self.__dict__, "_lock": None, "_seeds": set()}


def refuse_branch(guard: Any) -> None:
    """Raise TypeError for a branch of a filter, which grants what the filter grants as well."""
    if getattr(guard, "is_branch", False):
        raise TypeError(f"guard must be no branch of a filter, got {guard!r}")


def _state(seed: Any) -> tuple[bytes, int] | None:
    """Return what the streams spawned from ``seed`` depend on; None where they are fresh."""
    if isinstance(seed, int | np.integer):
        seed = np.random.SeedSequence(int(seed))
    if isinstance(seed, np.random.Generator):
        seed = seed.bit_generator.seed_seq
    if not hasattr(seed, "generate_state"):
        return None
    return seed.generate_state(4, np.uint64).tobytes(), getattr(seed, "n_children_spawned", 0)


# A filter: permission for events that are chosen on the way


class Filter(NonCopyableGuard):
    """A privacy filter: events may depend on everything released before them.

    The number, kind and noise of the events may be chosen on the way, because the cost is
    summed in one notion of privacy fixed beforehand:

    - pure losses, when ``budget.delta`` is 0;
    - rho, for a zCDP budget, or for an (epsilon, delta) budget without ``order``: the
      largest rho that implies the budget;
    - Renyi costs at the single ``order``, whose limit the tight conversion gives.

    To go on while some order still has budget would not be private with this conversion (errata
    002-7).

    Parameters
    ----------
    budget : Budget
    order : float, optional
        Renyi order in (1, inf), fixed before any data are seen, for example by
        :func:`plan_order`. Needed where batches with Gaussian noise are subsampled; only for
        budgets with delta > 0, and large enough to leave some of the budget.

    Notes
    -----
    One filter may serve several runs and threads: :meth:`spend` compares and charges in one
    step. What a run has been charged stays charged, whatever becomes of the run. A filter spends
    in the process that it was made in: a fork, as ``multiprocessing`` makes them, would copy it
    with all of its budget, and the copies refuse to spend.

    References
    ----------
    Rogers, Roth, Ullman, Vadhan (2016); Feldman, Zrnic (2021), the Renyi filter.

    Examples
    --------
    >>> from dpanalysis.privacy.events import Pure
    >>> guard = Filter(Budget(epsilon=1.0))
    >>> guard.spend(Pure(0.75))
    >>> guard.can_spend(Pure(0.5)), guard.remaining
    (False, 0.25)
    """

    def __init__(self, budget: Budget, order: float | None = None) -> None:
        super().__init__()
        self.budget = check_budget(budget)
        self.order = order
        self._cost: Callable[[Event], float]
        if budget.rho is not None or (budget.delta == 0.0):
            if order is not None:
                raise ValueError(f"order is for budgets with delta > 0, got {order!r}")
            pure = budget.rho is None
            self._cost = methodcaller("pure_cost" if pure else "zcdp_cost")
            self.notion, self.limit = ("pure" if pure else "zcdp"), budget.limit
        elif order is None:
            self._cost = methodcaller("zcdp_cost")
            self.notion, self.limit = "zcdp", epsilon_to_zcdp(budget.limit, budget.delta)
        else:
            a = check_number("order", order, low=1.0, low_open=True)
            slack = math.log1p(-1.0 / a) - (math.log(budget.delta) + math.log(a)) / (a - 1.0)
            self.notion, self.limit = "rdp", budget.limit - slack
            if self.limit <= 0.0:
                raise ValueError(
                    f"order {a:g} leaves no budget: converting at delta = {budget.delta:g} "
                    f"alone costs {slack:g} of epsilon = {budget.limit:g}; take a larger order"
                )
            self._cost = partial(_renyi_cost, np.array([a]))
        self.is_branch = False
        self._spent = 0.0
        self._rest = 0.0  # what rounding has left of the sum ``spent``
        self._known: dict[Event, float] = {}

    def cost(self, event: Event) -> float:
        """Return what ``event`` would be charged, in the filter's notion of privacy.

        Raises IncompatibleAccounting if the event cannot be accounted under the relation, or has no
        finite cost.
        """
        check_event(event, self.budget.relation)
        known = self._known.get(event) if event.immutable else None
        if known is not None:
            return known
        value = self._cost(event)
        if not value >= 0.0:
            raise ValueError(
                f"an event must cost 0 or more, {event!r} says that it costs {value!r}"
            )
        if not math.isfinite(value):
            raise IncompatibleAccounting(
                f"{event!r} has no finite cost under a {self.notion} filter: "
                "give a budget with delta > 0 and a Renyi order fixed beforehand (order=...)"
            )
        if event.immutable:
            if len(self._known) >= 4096:  # schedules with ever new noise do not fill the memory
                self._known.clear()
            self._known[event] = value
        return value

    def can_spend(self, event: Event) -> bool:
        """Return whether ``event`` fits in what is left; nothing is charged."""
        return self.spent + self.cost(event) <= self.limit * (1.0 + SLACK)

    def spend(self, event: Event) -> None:
        """Charge ``event``, before its answer is released.

        Raises PrivacyBudgetExceeded, and charges nothing, if it does not fit;
        IncompatibleAccounting as :meth:`cost`; RuntimeError if this filter is a copy of another,
        by pickle or by a fork too.
        """
        cost = self.cost(event)
        with self._only_one():
            if self.spent + cost > self.limit * (1.0 + SLACK):
                raise PrivacyBudgetExceeded(
                    f"{event!r} costs {cost:.6g} ({self.notion}), "
                    f"but only {self.remaining:.6g} of {self.limit:.6g} is left"
                )
            whole = self._rest + cost
            total = self.spent + whole
            self._rest = whole - (total - self.spent)  # exact where the sum is the larger
            self._spent = total

    def branch(self) -> Filter:
        """Return a filter that has spent as much and spends for itself, for thought experiments.

        The analysis of a mechanism follows both outcomes of an answer; a run has one of them. A
        run on data refuses a branch, since what it grants would be granted a second time.
        """
        with self._only_one():
            branch = copy.copy(self)
            branch._lock, branch._known = threading.RLock(), dict(self._known)
            branch._seeds = set(self._seeds)
        branch.__dict__["is_branch"] = True
        return branch

    @property
    def spent(self) -> float:
        """What has been charged, in the filter's notion of privacy."""
        return self._spent

    @property
    def remaining(self) -> float:
        """What is left, in the filter's notion of privacy (epsilon, rho or a Renyi cost)."""
        return max(0.0, self.limit - self.spent)

    def epsilon(self, delta: float | None = None, copies: int = 1) -> float:
        """Return the epsilon at ``delta``, by default the budget's, of all that this may grant.

        That is the guarantee, whatever has been spent: how much that is was decided by what had
        been released. ``copies`` is how many independent runs under such a filter are released.

        Examples
        --------
        >>> guard = Filter(Budget(1.0, 1e-5))
        >>> guard.epsilon(), guard.epsilon(1e-7)
        (1.0, 1.2459)
        """
        delta = self.budget.delta if delta is None else delta
        check_number("delta", delta, low=0.0, high=1.0, high_open=True)
        limit = check_int("copies", copies, low=1) * self.limit
        if self.notion == "pure":
            return limit
        if self.order is None:
            return zcdp_to_epsilon(limit, delta)
        return float(rdp_to_epsilon([self.order], [limit], delta)[0])

    def __repr__(self) -> str:
        at = "" if self.order is None else f" at order {self.order:g}"
        return f"Filter({self.notion}{at}: {self.spent:.6g} of {self.limit:.6g} spent)"


def _renyi_cost(order: np.ndarray, event: Event) -> float:
    return float(event.rdp_cost(order)[0])


# A plan: permission for events that are fixed beforehand


class Plan(NonCopyableGuard):
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
        False: at most these events. Each may be left out, or be replaced by one that it dominates
        (:meth:`dpanalysis.privacy.events.Event.dominates`); what is passed over is lost.

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
    k-th planned event dominates. Whatever the earlier answers were, it costs no more than that
    event in every notion: its pure, zCDP and Renyi losses add up as if it were fixed, and the
    pair of distributions that dominates the event dominates the mechanism. Products of such pairs
    dominate adaptive composition (Zhu, Dong, Wang 2022, Theorem 10), which asks for a dominating
    pair after every outcome and not for one and the same mechanism.

    Examples
    --------
    >>> from dpanalysis.privacy.events import Pure, Repeated
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
        self._left = [unrolled(event) for event in listed]
        self._exact, self._at = exact, 0

    @property
    def next(self) -> Event | None:
        """The next planned event; None when the plan is used up."""
        return self._left[self._at][0] if self._at < len(self._left) else None

    def upcoming(self, most: int) -> list[tuple[Event, int]]:
        """Return the next ``most`` single events, or all that are left, equal ones together.

        None are known beforehand where events may be passed over.
        """
        found: list[tuple[Event, int]] = []
        for event, count in self._left[self._at :] if self._exact else ():
            if most > 0:
                found.append((event, min(count, most)))
            most -= count
        return found

    @property
    def remaining(self) -> int:
        """How many single events are left."""
        return sum(count for _, count in self._left[self._at :])

    def can_spend(self, event: Event) -> bool:
        """Return whether ``event`` would be granted now; nothing is charged."""
        return self._place(event) is not None

    def spend(self, event: Event) -> None:
        """Use up the planned event that pays for ``event``.

        Raises PrivacyBudgetExceeded, and charges nothing, if none does; RuntimeError as
        :meth:`Filter.spend`.
        """
        with self._only_one():
            place = self._place(event)
            if place is None:
                planned = "nothing is left" if self.next is None else f"next comes {self.next!r}"
                raise PrivacyBudgetExceeded(f"{event!r} was not planned here: {planned}")
            paying, count = self._left[place]
            left = count - unrolled(event)[1]
            self._left[place] = paying, left
            self._at = place if left else place + 1

    def _place(self, event: Event) -> int | None:
        """Return the place of the first planned event that pays for ``event``."""
        asked, times = unrolled(event)
        end = self._at + 1 if self._exact else len(self._left)
        for place in range(self._at, min(end, len(self._left))):
            planned, count = self._left[place]
            same = planned is asked or planned == asked
            if times <= count and (same or (not self._exact and planned.dominates(asked))):
                return place
        return None

    def __repr__(self) -> str:
        limit = "no limit" if self.budget is None else f"{self.cost:.6g} of {self.budget.limit:.6g}"
        return f"Plan({self.remaining} events left, {limit})"
