"""A filter: permission for events that are chosen on the way."""

from __future__ import annotations

import copy
import math
import threading
from collections.abc import Callable
from functools import partial

import numpy as np

from .._validation import check_int, check_number
from ..errors import IncompatibleAccounting, PrivacyBudgetExceeded
from .events import Event, check_event
from .guards import SLACK, Original
from .rdp import rdp_to_epsilon
from .relations import Budget, check_budget
from .zcdp import epsilon_to_zcdp, zcdp_to_epsilon

__all__ = ["Filter"]


class Filter(Original):
    """A privacy filter: events may depend on everything released before them.

    The number, kind and noise of the events may be chosen on the way, because the cost is
    summed in one notion of privacy fixed beforehand:

    - pure losses, when ``budget.delta`` is 0;
    - rho, for a zCDP budget, or for an (epsilon, delta) budget without ``order``: the
      largest rho that implies the budget;
    - Renyi costs at the single ``order``, whose limit the tight conversion gives.

    "Some order still has budget" would not be a rule (errata 002-7).

    Parameters
    ----------
    budget : Budget
    order : float, optional
        Renyi order in (1, inf), fixed before any data are seen, for example by
        :func:`plan_order`. Needed where batches with Gaussian noise are subsampled.

    Raises
    ------
    ValueError
        If ``order`` is given with a budget that has no use for it, or the budget is too
        small for that order.

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
            self._cost = _pure_cost if pure else _zcdp_cost
            self.notion, self.limit = ("pure" if pure else "zcdp"), budget.limit
        elif order is None:
            self._cost = _zcdp_cost
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

        Raises
        ------
        IncompatibleAccounting
            If the event cannot be accounted under the relation, or has no finite cost.
        """
        try:
            return self._known[event]
        except KeyError:
            pass
        check_event(event, self.budget.relation)
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
        if len(self._known) >= 4096:  # schedules with ever new noise do not fill the memory
            self._known.clear()
        self._known[event] = value
        return value

    def can_spend(self, event: Event) -> bool:
        """Return whether ``event`` fits in what is left; nothing is charged.

        Raises
        ------
        IncompatibleAccounting
            As :meth:`cost`.
        """
        return self.spent + self.cost(event) <= self.limit * (1.0 + SLACK)

    def spend(self, event: Event) -> None:
        """Charge ``event``, before its answer is released.

        Raises
        ------
        PrivacyBudgetExceeded
            If it does not fit; nothing is charged then.
        IncompatibleAccounting
            As :meth:`cost`.
        RuntimeError
            If this filter is a copy of another, by pickle or by a fork too.
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
        """Return a filter that has spent as much, for thought experiments: it spends for itself.

        The analysis of a mechanism follows both outcomes of an answer; a run has one of them. A
        run on data refuses a branch, since what it grants would be granted a second time.
        """
        with self._only_one():
            twin = copy.copy(self)
            twin._lock, twin._known = threading.RLock(), dict(self._known)
            twin._seeds = set(self._seeds)
        twin.__dict__["is_branch"] = True
        return twin

    @property
    def spent(self) -> float:
        """What has been charged, in the filter's notion of privacy."""
        return self._spent

    @property
    def remaining(self) -> float:
        """What is left, in the filter's notion of privacy (epsilon, rho or a Renyi cost)."""
        return max(0.0, self.limit - self.spent)

    def epsilon(self, delta: float | None = None, copies: int = 1) -> float:
        """Return the epsilon at ``delta`` of all that this filter may grant.

        That is the guarantee, whatever has been spent: how much that is was decided by what
        had been released.

        Parameters
        ----------
        delta : float, optional
            That of the budget by default.
        copies : int
            So many independent runs under such a filter are released together.

        Returns
        -------
        float

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


def _pure_cost(event: Event) -> float:
    return event.pure_cost()


def _zcdp_cost(event: Event) -> float:
    return event.zcdp_cost()


def _renyi_cost(order: np.ndarray, event: Event) -> float:
    return float(event.rdp_cost(order)[0])
