"""Guards, which grant or refuse releases: ``Filter`` and ``Plan``.

A :class:`Filter` grants events that are chosen adaptively during a run, a :class:`Plan` events
fixed in advance. Both charge under a lock, and compare with a relative slack of 1e-9 for the
rounding of costs; no more, since sums of costs are compensated. A copy of a guard would be a second
budget: it can be inspected, and refuses to spend. A fork copies without a call that could be
intercepted, so a guard records the process that created it.
"""

from __future__ import annotations

import copy
import math
import os
import threading
from itertools import groupby
from operator import itemgetter
from typing import Any, Protocol

import numpy as np

from .._validation import check_int, check_number
from ..errors import IncompatibleAccounting, PrivacyBudgetExceeded
from .accounting.accountant import Events, spent
from .accounting.events import first_runs
from .accounting.rdp import rdp_to_epsilon
from .accounting.relations import Budget, check_budget
from .accounting.zcdp import epsilon_to_zcdp, zcdp_to_epsilon
from .events import Event, check_event, unrolled

SLACK = 1e-9


class Guard(Protocol):
    """What the oracle charges for a batch: a filter, or a plan fixed in advance."""

    def can_spend(self, event: Event) -> bool:
        """Return whether ``event`` may be released now, without side effects."""

    def spend(self, event: Event) -> None:
        """Charge ``event``, or raise and charge nothing; atomic across threads."""


class NonCopyableGuard:
    """A guard that charges under a lock; its limit is immutable, and its copies cannot spend."""

    def __init__(self) -> None:
        self._lock: threading.RLock | None = threading.RLock()
        self._process = os.getpid()
        self._seeds: set[tuple[bytes, int]] = set()

    def _original_lock(self) -> threading.RLock:
        """Return the lock of the original guard, or raise RuntimeError in a copy."""
        if self._lock is None or self._process != os.getpid():
            raise RuntimeError(
                f"this {type(self).__name__} is a copy, and two could grant the same budget twice: "
                "spend from the original, in the process that it was made in, or give every "
                "process a budget of its own"
            )
        return self._lock

    def claim_seed(self, seed: Any) -> None:
        """Register a seed of noise charged to this guard; raise ValueError if it is in use already.

        Two runs from one seed draw the same noise, and their difference has none: composition
        requires fresh noise for every release. Seeds are compared by the state that NumPy derives
        from them, so 9, ``SeedSequence([9])`` and ``default_rng(9)`` are the same seed. A Generator
        or a SeedSequence is another seed after spawning children, since its next children differ.
        """
        with self._original_lock():
            state = seed_state(seed)
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
    """Raise TypeError for a branch of a filter, since both would grant the same budget."""
    if getattr(guard, "is_branch", False):
        raise TypeError(f"guard must be no branch of a filter, got {guard!r}")


def seed_state(seed: Any) -> tuple[bytes, int] | None:
    """Return the state that determines the streams of ``seed``; None if they are always fresh."""
    if isinstance(seed, int | np.integer):
        seed = np.random.SeedSequence(int(seed))
    if isinstance(seed, np.random.Generator):
        seed = seed.bit_generator.seed_seq
    if not hasattr(seed, "generate_state"):
        return None
    return seed.generate_state(4, np.uint64).tobytes(), getattr(seed, "n_children_spawned", 0)


# Filters: adaptively chosen events


class Filter(NonCopyableGuard):
    """A privacy filter: events may depend on everything released before them.

    The number, kind and noise of the events may be chosen adaptively, because the cost is
    summed in one notion of privacy fixed in advance:

    - pure losses, when ``budget.delta`` is 0;
    - rho, for a zCDP budget, or for an (epsilon, delta) budget without ``order``: the
      largest rho that implies the budget;
    - Renyi costs at the single ``order``, with the limit given by the tight conversion.

    Continuing while some order has budget would not be private with this conversion (errata 002-7).

    Parameters
    ----------
    budget : Budget
    order : float, optional
        Renyi order in (1, inf), fixed before any data are seen, for example by
        :func:`plan_order`. Needed for subsampled batches with Gaussian noise; only for budgets
        with delta > 0, and large enough that the conversion leaves some budget.

    Notes
    -----
    One filter may serve several runs and threads: :meth:`spend` compares and charges atomically.
    Charges are never refunded, whatever becomes of the run. A filter spends only in the process
    that created it: a fork, as of ``multiprocessing``, would copy it with all of its budget, and
    the copies refuse to spend. Rounding does not refuse the last event of a schedule that fits: the
    sum may exceed the limit by a part in 10^9, in a :class:`Plan` too.

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
        self.order = None if order is None else check_number("order", order, low=1, low_open=True)
        if budget.rho is not None or budget.delta == 0.0:
            if order is not None:
                raise ValueError(f"order is for budgets with delta > 0, got {order!r}")
            self.notion, self.limit = "pure" if budget.rho is None else "zcdp", budget.limit
        elif self.order is None:
            self.notion, self.limit = "zcdp", epsilon_to_zcdp(budget.limit, budget.delta)
        else:
            a = self.order
            slack = math.log1p(-1.0 / a) - (math.log(budget.delta) + math.log(a)) / (a - 1.0)
            self.notion, self.limit = "rdp", budget.limit - slack
            if self.limit <= 0.0:
                raise ValueError(
                    f"order {a:g} leaves no budget: converting at delta = {budget.delta:g} "
                    f"alone costs {slack:g} of epsilon = {budget.limit:g}; take a larger order"
                )
        self.is_branch = False
        self._spent = 0.0
        self._compensation = 0.0  # rounding error of ``spent``, as in Kahan summation
        self._known: dict[Event, float] = {}

    def cost(self, event: Event) -> float:
        """Return the cost of ``event`` in the filter's notion of privacy.

        Raises IncompatibleAccounting if the event cannot be accounted under the relation, or has no
        finite cost.
        """
        check_event(event, self.budget.relation)
        known = self._known.get(event) if event.immutable else None
        if known is not None:
            return known
        if self.order is None:
            value = float(event.pure_cost() if self.notion == "pure" else event.zcdp_cost())
        else:
            value = float(event.rdp_cost(np.array([self.order]))[0])
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
            if len(self._known) >= 4096:  # noise schedules would fill the memory
                self._known.clear()
            self._known[event] = value
        return value

    def can_spend(self, event: Event) -> bool:
        """Return whether ``event`` fits the remaining budget; nothing is charged."""
        return self.spent + self.cost(event) <= self.limit * (1.0 + SLACK)

    def spend(self, event: Event) -> None:
        """Charge ``event``, before its answer is released.

        Raises PrivacyBudgetExceeded, and charges nothing, if it does not fit;
        IncompatibleAccounting as :meth:`cost`; RuntimeError if this filter is a copy of another,
        also one made by pickle or by a fork.
        """
        cost = self.cost(event)
        with self._original_lock():
            if self.spent + cost > self.limit * (1.0 + SLACK):
                raise PrivacyBudgetExceeded(
                    f"{event!r} costs {cost:.6g} ({self.notion}), "
                    f"but only {self.remaining:.6g} of {self.limit:.6g} is left"
                )
            whole = self._compensation + cost
            total = self.spent + whole
            self._compensation = whole - (total - self.spent)  # exact if spent >= whole
            self._spent = total

    def branch(self) -> Filter:
        """Return an independent filter in the same state, to analyze what a run could do.

        The analysis of a mechanism follows both outcomes of an answer; a run has one of them. A
        run on data refuses a branch, which would grant the same budget a second time.
        """
        with self._original_lock():
            branch = copy.copy(self)
            branch._lock, branch._known = threading.RLock(), dict(self._known)
            branch._seeds = set(self._seeds)
        branch.__dict__["is_branch"] = True
        return branch

    @property
    def spent(self) -> float:
        """Total charge so far, in the filter's notion of privacy."""
        return self._spent

    @property
    def remaining(self) -> float:
        """Remaining budget, in the filter's notion of privacy (epsilon, rho or a Renyi cost)."""
        return max(0.0, self.limit - self.spent)

    def epsilon(self, delta: float | None = None, copies: int = 1) -> float:
        """Return the epsilon at ``delta``, by default the budget's, of all that this may grant.

        That is the guarantee, however much has been spent, since that amount depends on released
        values. ``copies`` is the number of independent runs released, each under such a filter.

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


# Plans: events fixed in advance


class Plan(NonCopyableGuard):
    """A plan of events fixed in advance, verified once as a whole.

    So the tightest accountant may be used. Answers may depend on earlier answers; the planned
    events may not, so only they are granted, in order.

    Parameters
    ----------
    events : Event or iterable of Event
        ``Repeated`` stands for that many single events, here and in :meth:`spend`.
    budget : Budget or None
        None sets no limit: then only these events are granted, whatever they cost.
    accountant : {"tightest", "pure", "zcdp", "rdp", "pld"}
    exact : bool
        False: at most these events. Each may be left out, or be replaced by one that it dominates
        (:meth:`dpanalysis.privacy.events.Event.dominates`); skipped events are lost.

    Raises
    ------
    PrivacyBudgetExceeded
        If the events do not fit the budget.
    IncompatibleAccounting
        As :func:`dpanalysis.privacy.epsilon`.

    Notes
    -----
    *Why at most these events cost no more.* Let answers decide which event is asked next, if any.
    A run that leaves events out is equivalent to one that asks them too and discards the answers.
    So let the k-th answer be that of a mechanism which the earlier answers choose and the k-th
    planned event dominates. Whatever the earlier answers were, it costs no more than that event in
    every notion: its pure, zCDP and Renyi losses add up as if it were fixed, and the pair of
    distributions that dominates the event dominates the mechanism. Products of such pairs dominate
    adaptive composition (Zhu, Dong, Wang 2022, Theorem 10), which requires a dominating pair after
    every outcome, not the same mechanism.

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
        runs = groupby(map(unrolled, listed), key=itemgetter(0))
        self._left = [(event, sum(count for _, count in run)) for event, run in runs]
        self._exact, self._at = exact, 0

    @property
    def next(self) -> Event | None:
        """The next planned event; None at the end of the plan."""
        return self._left[self._at][0] if self._at < len(self._left) else None

    def upcoming(self, most: int) -> list[tuple[Event, int]]:
        """Return the next ``most`` single events, or all that are left, as (event, count) runs.

        Empty if events may be skipped, since the next ones are then unknown.
        """
        return list(first_runs(self._left[self._at :] if self._exact else (), most))

    @property
    def remaining(self) -> int:
        """Number of single events left."""
        return sum(count for _, count in self._left[self._at :])

    def can_spend(self, event: Event) -> bool:
        """Return whether ``event`` would be granted now; nothing is charged."""
        return self._place(event) is not None

    def spend(self, event: Event) -> None:
        """Use up the planned event that covers ``event``.

        Raises PrivacyBudgetExceeded, and charges nothing, if none does; RuntimeError as
        :meth:`Filter.spend`.
        """
        with self._original_lock():
            place = self._place(event)
            if place is None:
                planned = "nothing is left" if self.next is None else f"next comes {self.next!r}"
                raise PrivacyBudgetExceeded(f"{event!r} was not planned here: {planned}")
            paying, count = self._left[place]
            left = count - unrolled(event)[1]
            self._left[place] = paying, left
            self._at = place if left else place + 1

    def _place(self, event: Event) -> int | None:
        """Return the index of the first planned event that covers ``event``."""
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
