"""Adaptive composition under attack: filters and plans.

An adversary is a tree of coins: after every answer it chooses the next coin, as unfair as it
likes and the filter allows. The law of all answers is enumerated on both data sets.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from ... import privacy
from ...privacy.events import Event, Pure
from ...privacy.filters import Filter
from ...privacy.plans import Plan
from ...privacy.relations import ADD_OR_REMOVE_ONE, Budget
from ..attack import Range, pair_quotient, quotient
from ..enumeration import renyi_curve
from ..registry import Effort, Evidence, register
from ._search import DELTA, EXCESS, Array, search

# Answers that the adversary sees; the tree has 2^DEPTH leaves and one node less.
DEPTH = 4
NODES = 2**DEPTH - 1


@dataclass(frozen=True)
class Coin(Event):
    """A release of one bit: its probability under either data set.

    The probabilities are those of logits, so that nothing is rounded to 0 or 1.
    """

    first: float
    second: float

    @property
    def laws(self) -> Array:
        """The laws on the two data sets, shape (2, 2)."""
        logits = np.array([[self.first, -self.first], [self.second, -self.second]])
        return np.asarray(special.expit(logits))

    def pure_cost(self) -> float:
        """Return the largest log ratio."""
        logs = special.log_expit(np.array([[self.first, -self.first], [self.second, -self.second]]))
        return float(np.abs(logs[0] - logs[1]).max())

    def rdp_cost(self, orders: ArrayLike) -> Array:
        """Return the larger of both divergences."""
        laws = self.laws
        return renyi_curve(laws, laws[::-1], np.ravel(orders)).max(axis=0)


def _branch(guard: Any) -> Any:
    return guard.branch() if isinstance(guard, Filter) else copy.copy(guard)


def transcript(guard: Any, coins: Array, weaken: bool = True) -> Array:
    """Return the laws of all answers that ``guard`` lets an adversary see, shape (2, leaves).

    Parameters
    ----------
    guard : Filter or alike
        ``can_spend`` and ``spend``.
    coins : ndarray, shape (NODES, 2)
        Logits of the coin wanted after each history, in the order of a heap.
    weaken : bool
        Whether a coin that is refused is made fairer until it is granted.
    """
    leaves: list[Array] = []

    def visit(node: int, guard: Any, reached: Array) -> None:
        if node >= len(coins):
            leaves.append(reached)
            return
        first, second = coins[node]
        for _ in range(12 if weaken else 1):
            coin = Coin(float(first), float(second))
            if guard.can_spend(coin):
                break
            second = first + 0.75 * (second - first)
        else:  # nothing is released any more
            leaves.append(reached)
            return
        guard.spend(coin)
        for answer, law in enumerate(coin.laws.T):
            visit(2 * node + 1 + answer, _branch(guard), reached * law)

    visit(0, guard, np.ones(2))
    return np.array(leaves).T


COINS = {"coins": Range(-1.0, 1.0, size=2 * NODES), "spread": Range(0.01, 10.0, log=True)}
# The same response after every history: what is left goes to ever fairer coins.
RESPONSES = {"coins": [1.0, -1.0] * NODES, "spread": 0.2}


def answers(guard: Any, coins: Array, spread: float) -> Array:
    """Return the laws of the answers to the coins of a point of the search."""
    return transcript(guard, spread * coins.reshape(NODES, 2))


def pure_filter_ratio(
    epsilon: float, coins: Array, spread: float, make: Callable[..., Any] = Filter
) -> float:
    """Attack a filter of pure losses."""
    laws = answers(make(Budget(epsilon)), coins, spread)
    return quotient(epsilon, float(np.abs(np.log(laws[0] / laws[1])).max()))


def zcdp_filter_ratio(
    rho: float, coins: Array, spread: float, excess: float, make: Callable[..., Any] = Filter
) -> float:
    """Attack a filter of a zCDP budget at one order."""
    laws = answers(make(Budget.zcdp(rho)), coins, spread)
    order = 1.0 + excess
    return pair_quotient(order * rho, laws, order=order, tolerance=1e-6)


def delta_filter_ratio(
    epsilon: float,
    delta: float,
    excess: float | None,
    coins: Array,
    spread: float,
    make: Callable[..., Any] = Filter,
) -> float:
    """Attack delta under a filter of a budget with delta: by zCDP, or at one Renyi order."""
    order = math.inf if excess is None else 1.0 + excess
    try:
        guard = make(Budget(epsilon, delta), order=None if excess is None else order)
    except ValueError:  # the order leaves no budget: nothing will be released
        return math.inf
    laws = answers(guard, coins, spread)
    found = pair_quotient(delta, laws, epsilon=epsilon, tolerance=1e-5)
    if excess is not None:
        found = min(found, pair_quotient(guard.limit, laws, order=order, tolerance=1e-6))
    return found


@register(
    "bounds-24",
    "`Filter`; Rogers, Roth, Ullman, Vadhan (2016); Feldman, Zrnic (2021); errata 002-7",
    "adaptively chosen events stay within the budget: pure, zCDP, one Renyi order",
    verdict="holds",
)
def filters(effort: Effort) -> Iterator[Evidence]:
    """All answers of adaptive adversaries, 4 coins deep."""
    loss = Range(1e-2, 10.0, log=True)
    options: dict[str, Any] = {"cost": 8, "tolerance": 1e-5}
    pure = {"epsilon": loss, **COINS}
    guess: dict[str, Any] = {"epsilon": 1.0, **RESPONSES}
    yield from search(effort, "pure", pure_filter_ratio, pure, guesses=[guess], **options)
    zcdp = {"rho": Range(1e-3, 5.0, log=True), "excess": EXCESS, **COINS}
    guess = {"rho": 0.05, "excess": 1e-3, **RESPONSES}
    yield from search(effort, "zCDP", zcdp_filter_ratio, zcdp, guesses=[guess], **options)
    approximate = {"epsilon": loss, "delta": Range(1e-6, 0.3, log=True), **COINS}
    ratio = partial(delta_filter_ratio, excess=None)
    yield from search(effort, "zCDP, delta", ratio, approximate, **options)
    renyi = {**approximate, "excess": Range(0.5, 100.0, log=True)}
    guess = {"epsilon": 1.0, "delta": 1e-3, "excess": 9.0, **RESPONSES}
    yield from search(
        effort, "Renyi, delta and divergence", delta_filter_ratio, renyi, guesses=[guess], **options
    )


class _Anything:
    """A guard that grants everything."""

    def can_spend(self, event: Event) -> bool:
        return True

    def spend(self, event: Event) -> None:
        pass


def plan_ratio(
    losses: Array, delta: float, shares: Array, flips: Array, accountant: str = "tightest"
) -> float:
    """Attack a plan: losses fixed beforehand, which bit leans where chosen on the way."""
    events = [Pure(float(loss)) for loss in losses]
    epsilon = privacy.epsilon(events, delta, ADD_OR_REMOVE_ONE, accountant)
    budget = Budget(max(epsilon, 1e-9), delta, ADD_OR_REMOVE_ONE)
    plan = Plan(events, budget, accountant)
    coins = np.empty((NODES, 2))
    for node in range(NODES):
        loss = float(losses[(node + 1).bit_length() - 1])
        # One outcome is e^loss times more likely, and it alone has that loss.
        yes = float(shares[node]) * special.expit(loss)
        pair = special.logit([yes, yes * math.exp(-loss)])
        coins[node] = pair if flips[node] > 0.0 else pair[::-1]
    for event in events:
        plan.spend(event)
    return pair_quotient(delta, transcript(_Anything(), coins), epsilon=epsilon, tolerance=1e-5)


@register(
    "bounds-25",
    "`Plan`",
    "events fixed beforehand may be answered adaptively: the tightest accountant is valid",
    verdict="holds",
)
def plans(effort: Effort) -> Iterator[Evidence]:
    """All answers of adaptive adversaries with four given losses."""
    space = {
        "losses": Range(1e-2, 5.0, log=True, size=DEPTH),
        "delta": DELTA,
        "shares": Range(0.01, 1.0, size=NODES),
        "flips": Range(-1.0, 1.0, size=NODES),
    }
    guess = {"losses": [1.0] * DEPTH, "delta": 1e-3, "shares": [1.0] * NODES}
    guess["flips"] = [1.0] * NODES
    yield from search(
        effort, "delta", plan_ratio, space, guesses=[guess], cost=6, tight=0.01, tolerance=1e-5
    )
