"""Composition: batches with several releases, loss distributions, filters, the sparse vector.

Everything is enumerated: releases with real answers are cut into cells, which is post-processing
and can only lower the exact value; an adaptive adversary is a tree of coins.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from ... import privacy
from ...audit.attack import Range, pair_quotient, quotient
from ...audit.laws import (
    Subsampling,
    above_threshold_distribution,
    laws_of,
    presence,
    renyi_curve,
    subsampled_gaussian,
    subsampled_laplace,
)
from ...privacy.accounting.pld import pld_epsilon
from ...privacy.accounting.relations import ADD_OR_REMOVE_ONE, REPLACE_ONE, Budget
from ...privacy.accounting.sampling import Poisson, WithoutReplacement
from ...privacy.accounting.sparse_vector import rdp_above_threshold
from ...privacy.budget import Filter, Plan
from ...privacy.events import AboveThreshold, Event, Gaussian, Laplace, Pure, Repeated, Sampled
from ..claim import Effort, Evidence
from ..tools import Array, Laws, batch_means, gaussian_mixture, mixed, product, randomized_response
from . import DELTA, EXCESS, STD, attack, holds
from .sampling import NO, RATE, YES, attack_tables, pure_loss


@dataclass(frozen=True)
class TableEvent(Event):
    """A release given by its laws on all batches, with its exact costs there."""

    rows: tuple[tuple[float, ...], ...]
    neighbours: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, table: Array, sampling: Subsampling) -> TableEvent:
        """Return the event of a mechanism on the batches of ``sampling``."""
        return cls(
            tuple(map(tuple, table.tolist())), tuple(map(tuple, sampling.neighbours.tolist()))
        )

    def _batch(self) -> tuple[Subsampling, Array]:
        rows = np.array(self.rows)
        nothing = np.zeros(len(rows))
        return Subsampling(nothing, nothing, np.array(self.neighbours)), rows

    def pure_cost(self) -> float:
        """Return the largest log ratio of two neighbouring batches."""
        batch, rows = self._batch()
        return batch.loss(rows)

    def rdp_cost(self, orders: ArrayLike) -> Array:
        """Return the largest divergence of two neighbouring batches."""
        batch, rows = self._batch()
        return batch.curve(rows)(orders)


def batch(fraction: float, relation: str, events: Sequence[Event]) -> tuple[Subsampling, Sampled]:
    """Return a subsampling of one record and the event of such a batch."""
    if relation == ADD_OR_REMOVE_ONE:
        return presence(fraction, relation), Sampled(Poisson(fraction), events)
    m = max(1, round(fraction * 10_000))
    return presence(m / 10_000, relation), Sampled(WithoutReplacement(m), events, n=10_000)


def shared_batch_ratio(
    relation: str,
    kind: str,
    fraction: float,
    first: Array,
    second: Array,
    spread: float,
    excess: float,
    cost: Callable[[Sampled], Any] | None = None,
) -> float:
    """Attack two releases from one batch, given their losses ("loss", "pure") or curves."""
    order = 1.0 + excess
    tables = [laws_of(logits, 2, spread) for logits in (first, second)]
    sampling = presence(fraction, relation)
    if kind == "curve":
        events: list[Event] = [TableEvent.of(table, sampling) for table in tables]
    else:
        events = [Pure(sampling.loss(table)) for table in tables]
    sampling, event = batch(fraction, relation, events)
    joint = np.einsum("bi,bj->bij", *tables).reshape(len(tables[0]), -1)
    p, q = sampling.laws(joint)
    charged = event if cost is None else cost(event)
    if kind == "loss":
        return quotient(charged.pure_cost(), pure_loss(p, q))
    value = float(charged.rdp_cost(np.array([order]))[0])
    return pair_quotient(value, (p, q), order=order, tolerance=1e-5)


@holds(
    "bounds-20",
    "`Sampled`; errata 002-4, 002-5",
    "several releases from one batch are composed first and amplified once",
)
def shared_batches(effort: Effort) -> Iterator[Evidence]:
    """Compute joint laws of two mechanisms on one batch, for both samplings."""
    for relation, rows in ((ADD_OR_REMOVE_ONE, 2), (REPLACE_ONE, 3)):
        logits = Range(-1.0, 1.0, size=2 * rows)
        space = {
            "fraction": RATE,
            "first": logits,
            "second": logits,
            "spread": Range(1e-3, 12.0, log=True),
            "excess": EXCESS,
        }
        response = [1.0, -1.0, *[-1.0, 1.0] * (rows - 1)]
        guess = {"fraction": 0.05, "first": response, "second": response}
        guess |= {"spread": 1.0, "excess": 1.0}
        for kind in ("loss", "pure", "curve"):
            what, ratio = f"{kind}, {relation}", partial(shared_batch_ratio, relation, kind)
            yield from attack(effort, what, ratio, space, cost=3, guesses=[guess], tolerance=1e-5)


# --- privacy loss distributions ---


def pld_table_ratio(
    sampling: Subsampling,
    table: Array,
    fraction: float,
    n: int,
    m: int,
    delta: float,
    *,
    relation: str,
) -> float:
    """Attack the epsilon of one batch with any pure release."""
    pure = Pure(sampling.loss(table))
    scheme = Poisson(fraction) if relation == ADD_OR_REMOVE_ONE else WithoutReplacement(m)
    event = Sampled(scheme, [pure], n=n)
    epsilon = pld_epsilon({event: 1}, delta)
    return pair_quotient(delta, sampling.laws(table), epsilon=epsilon, tolerance=1e-5)


def pld_noise_ratio(
    law: Callable[[float, float, float], Any],
    noise: Callable[[float, float], Event],
    rate: float,
    scale: float,
    delta: float,
) -> float:
    """Attack the epsilon of noise on a Poisson batch, in both directions."""
    epsilon = pld_epsilon({Sampled(Poisson(rate), [noise(scale, 1.0)]): 1}, delta)
    return pair_quotient(delta, law(scale, 1.0, rate), epsilon=epsilon, tolerance=1e-5)


def pld_gaussian_without_ratio(std: float, m: int, data: Array, delta: float) -> float:
    """Attack the epsilon of a noisy sum over m of n records in [-1/2, 1/2]."""
    n = len(data) - 1
    first, second = (m * batch_means(side[:, None], m)[:, 0] for side in (data[:-1], data[1:]))
    laws = gaussian_mixture(first, std), gaussian_mixture(second, std)
    event = Sampled(WithoutReplacement(m), [Gaussian(std, 1.0)], n=n)
    return pair_quotient(delta, laws, epsilon=pld_epsilon({event: 1}, delta), tolerance=1e-5)


@holds(
    "bounds-21",
    "`pld_epsilon`, one batch; Zhu, Dong, Wang (2022); Balle, Barthe, Gaboardi (2018)",
    "the privacy profile of the dominating pair, in both directions, rounded up on a grid",
)
def loss_distributions(effort: Effort) -> Iterator[Evidence]:
    """Compare delta at the returned epsilon: pure releases by tables, noise by quadrature."""
    for relation in (ADD_OR_REMOVE_ONE, REPLACE_ONE):
        yield from attack_tables(
            effort,
            partial(pld_table_ratio, relation=relation),
            relation,
            {"delta": DELTA, "spread": Range(1e-3, 5.0, log=True)},
            {"delta": 0.01, "spread": 5.0},
            few=1,
            cost=16,
            tolerance=1e-5,
        )
    space = {"rate": RATE, "scale": Range(0.3, 100.0, log=True), "delta": DELTA}
    for name, law, noise in (
        ("Laplace noise, Poisson", subsampled_laplace, Laplace),
        ("Gaussian noise, Poisson", subsampled_gaussian, Gaussian),
    ):
        ratio = partial(pld_noise_ratio, law, noise)
        yield from attack(effort, name, ratio, space, cost=60, tolerance=1e-5)
    few = {"std": STD, "m": Range(1, 2, integer=True), "delta": DELTA}
    few["data"] = Range(-0.5, 0.5, size=4)
    guess = {"std": 1.0, "m": 1, "delta": 0.01, "data": [0.5, -0.5, -0.5, -0.5]}
    options: dict[str, Any] = {"cost": 60, "guesses": [guess], "tolerance": 1e-5}
    what = "Gaussian noise, 1 or 2 of 3"
    yield from attack(effort, what, pld_gaussian_without_ratio, few, **options)


def cells(noise: str, scale: float, count: int = 80) -> Laws:
    """Return noise around 1 and around 0, cut into cells."""
    reach = 7.0 * scale if noise == "gaussian" else 0.0
    ends = np.linspace(-reach, 1.0 + reach, count)

    def law(center: float) -> Array:
        z = (ends - center) / scale
        if noise == "gaussian":
            below, above = special.ndtr(z), special.ndtr(-z)
        else:
            half = 0.5 * np.exp(-np.abs(z))
            below, above = np.where(z < 0, half, 1 - half), np.where(z < 0, 1 - half, half)
        # Differences of the smaller tails avoid cancellation.
        inner = np.where(z[1:] < 0, below[1:] - below[:-1], above[:-1] - above[1:])
        return np.concatenate([below[:1], inner, above[-1:]])

    return law(1.0), law(0.0)


def pld_composed_ratio(
    rate: float, other_rate: float, std: float, scale: float, response: float, delta: float
) -> float:
    """Attack two different batches: Gaussian noise with a response, and Laplace noise."""
    groups: dict[Event, int] = {
        Sampled(Poisson(rate), [Gaussian(std, 1.0), Pure(response)]): 1,
        Sampled(Poisson(other_rate), [Laplace(scale, 1.0)]): 1,
    }
    laws = product(
        mixed(rate, product(cells("gaussian", std), randomized_response(response))),
        mixed(other_rate, cells("laplace", scale, 40)),
    )
    return pair_quotient(delta, laws, epsilon=pld_epsilon(groups, delta), tolerance=1e-5)


def pld_two_tables_ratio(
    fraction: float, first: Array, second: Array, spread: float, delta: float
) -> float:
    """Attack two batches without replacement, with releases in either direction."""
    groups: dict[Event, int] = {}
    pairs = []
    for logits in (first, second):
        table = laws_of(logits, 3, spread)
        sampling = presence(1.0, REPLACE_ONE)
        sampling, event = batch(fraction, REPLACE_ONE, [Pure(sampling.loss(table))])
        groups[event] = groups.get(event, 0) + 1
        pairs.append(sampling.laws(table))
    epsilon = pld_epsilon(groups, delta)
    return pair_quotient(delta, product(*pairs), epsilon=epsilon, tolerance=1e-5)


def pld_repeated_ratio(rate: float, loss: float, count: int, inside: int, delta: float) -> float:
    """Attack several batches, each with several randomized responses."""
    event = Sampled(Poisson(rate), [Repeated(Pure(loss), inside)])
    k = np.arange(inside + 1)
    choose = special.binom(inside, k)
    yes, no = special.expit(loss), special.expit(-loss)
    pair = choose * yes**k * no ** (inside - k), choose * no**k * yes ** (inside - k)
    laws = product(*[mixed(rate, pair)] * count)
    return pair_quotient(delta, laws, epsilon=pld_epsilon({event: count}, delta), tolerance=1e-5)


@holds(
    "bounds-22",
    "`pld_epsilon`, several batches; Koskela et al. (2020); Doroshenko et al. (2022)",
    "loss distributions of different batches compose by convolution, separately in each direction",
)
def composed_loss_distributions(effort: Effort) -> Iterator[Evidence]:
    """Compute joint laws of all answers, cut into cells."""
    losses = Range(1e-3, 10.0, log=True)
    noise = Range(0.2, 30.0, log=True)
    space = {"rate": RATE, "other_rate": RATE, "std": noise, "scale": noise}
    space |= {"response": losses, "delta": DELTA}
    what = "Gaussian and response, then Laplace"
    yield from attack(effort, what, pld_composed_ratio, space, cost=32, tolerance=1e-5)
    logits = Range(-1.0, 1.0, size=9)
    two = {"fraction": RATE, "first": logits, "second": logits, "delta": DELTA}
    two["spread"] = Range(1e-3, 5.0, log=True)
    guess = {"fraction": 0.02, "first": [*YES, *NO, *NO], "second": [*NO, *YES, *YES]}
    guess |= {"spread": 2.0, "delta": 0.02}
    options: dict[str, Any] = {"cost": 16, "guesses": [guess], "tolerance": 1e-5}
    yield from attack(effort, "two, without replacement", pld_two_tables_ratio, two, **options)
    many = {"rate": RATE, "loss": losses, "count": Range(1, 5, integer=True)}
    many |= {"inside": Range(1, 3, integer=True), "delta": DELTA}
    yield from attack(effort, "up to 5 times 3", pld_repeated_ratio, many, cost=24, tolerance=1e-5)


def accountant_ratio(accountant: str, rates: Array | None, losses: Array, delta: float) -> float:
    """Attack an accountant by a list of different randomized responses."""
    events: list[Event] = [Pure(float(loss)) for loss in losses]
    pairs = [randomized_response(float(loss)) for loss in losses]
    if rates is not None:
        events = [Sampled(Poisson(float(q)), [event]) for q, event in zip(rates, events)]
        pairs = [mixed(float(q), pair) for q, pair in zip(rates, pairs)]
    epsilon = privacy.epsilon(events, delta, ADD_OR_REMOVE_ONE, accountant)
    return pair_quotient(delta, product(*pairs), epsilon=epsilon, tolerance=1e-5)


@holds(
    "bounds-23",
    '`epsilon` by "zcdp", "rdp", "pld" and "tightest"',
    "the epsilon of a list of different events at delta",
)
def accountants(effort: Effort) -> Iterator[Evidence]:
    """Compute joint laws of four randomized responses, on separate batches or all records."""
    space = {"losses": Range(1e-3, 12.0, log=True, size=4), "delta": DELTA}
    for accountant, cost in (("zcdp", 2), ("rdp", 2), ("pld", 16), ("tightest", 24)):
        ratio = partial(accountant_ratio, accountant, None)
        yield from attack(
            effort, f"{accountant}, all records", ratio, space, cost=cost, tolerance=1e-5
        )
    space["rates"] = Range(1e-3, 1.0, log=True, size=4)
    for accountant, cost in (("rdp", 4), ("pld", 24)):
        ratio = partial(accountant_ratio, accountant)
        yield from attack(effort, f"{accountant}, batches", ratio, space, cost=cost, tolerance=1e-5)


# --- filters and plans ---
#
# An adaptive adversary is a tree of coins: after every answer it chooses the next coin, as biased
# as the filter allows. The law of all answers is enumerated on both data sets.

# Answers that the adversary sees; the tree has 2^DEPTH leaves and one node less.
DEPTH = 4
NODES = 2**DEPTH - 1


@dataclass(frozen=True)
class Coin(Event):
    """A release of one bit, given by the logits of its probabilities, so that none is 0 or 1."""

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


def transcript(guard: Any, coins: Array, weaken: bool = True) -> Array:
    """Return the laws of all answers that ``guard`` allows an adversary, shape (2, leaves)."""
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
            next_guard = guard.branch() if isinstance(guard, Filter) else copy.copy(guard)
            visit(2 * node + 1 + answer, next_guard, reached * law)

    visit(0, guard, np.ones(2))
    return np.array(leaves).T


COINS = {"coins": Range(-1.0, 1.0, size=2 * NODES), "spread": Range(0.01, 10.0, log=True)}
# The same response after every history: the remaining budget goes to ever fairer coins.
RESPONSES = {"coins": [1.0, -1.0] * NODES, "spread": 0.2}


def answers(guard: Any, coins: Array, spread: float) -> Array:
    """Return the laws of the answers for the coins of a search point."""
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


@holds(
    "bounds-24",
    "`Filter`; Rogers, Roth, Ullman, Vadhan (2016); Feldman, Zrnic (2021); errata 002-7",
    "adaptively chosen events stay within the budget: pure, zCDP, one Renyi order",
)
def filters(effort: Effort) -> Iterator[Evidence]:
    """Enumerate the answers of adaptive adversaries, 4 coins deep."""
    loss = Range(1e-2, 10.0, log=True)
    options: dict[str, Any] = {"cost": 8, "tolerance": 1e-5}
    pure = {"epsilon": loss, **COINS}
    guess: dict[str, Any] = {"epsilon": 1.0, **RESPONSES}
    yield from attack(effort, "pure", pure_filter_ratio, pure, guesses=[guess], **options)
    zcdp = {"rho": Range(1e-3, 5.0, log=True), "excess": EXCESS, **COINS}
    guess = {"rho": 0.05, "excess": 1e-3, **RESPONSES}
    yield from attack(effort, "zCDP", zcdp_filter_ratio, zcdp, guesses=[guess], **options)
    approximate = {"epsilon": loss, "delta": Range(1e-6, 0.3, log=True), **COINS}
    ratio = partial(delta_filter_ratio, excess=None)
    yield from attack(effort, "zCDP, delta", ratio, approximate, **options)
    renyi = {**approximate, "excess": Range(0.5, 100.0, log=True)}
    guess = {"epsilon": 1.0, "delta": 1e-3, "excess": 9.0, **RESPONSES}
    yield from attack(
        effort, "Renyi, delta and divergence", delta_filter_ratio, renyi, guesses=[guess], **options
    )


def plan_ratio(losses: Array, delta: float, shares: Array, flips: Array) -> float:
    """Attack a plan: losses fixed beforehand, the direction of each chosen adaptively."""
    events = [Pure(float(loss)) for loss in losses]
    epsilon = privacy.epsilon(events, delta, ADD_OR_REMOVE_ONE)
    plan = Plan(events, Budget(max(epsilon, 1e-9), delta, ADD_OR_REMOVE_ONE))
    coins = np.empty((NODES, 2))
    for node in range(NODES):
        loss = float(losses[(node + 1).bit_length() - 1])
        # One outcome is e^loss times more likely, and it alone has that loss.
        yes = float(shares[node]) * special.expit(loss)
        pair = special.logit([yes, yes * math.exp(-loss)])
        coins[node] = pair if flips[node] > 0.0 else pair[::-1]
    for event in events:
        plan.spend(event)
    anything = SimpleNamespace(can_spend=lambda event: True, spend=lambda event: None)  # a guard
    return pair_quotient(delta, transcript(anything, coins), epsilon=epsilon, tolerance=1e-5)


@holds(
    "bounds-25",
    "`Plan`",
    "events fixed beforehand may be answered adaptively: the tightest accountant is valid",
)
def plans(effort: Effort) -> Iterator[Evidence]:
    """Enumerate the answers of adaptive adversaries with four given losses."""
    space = {
        "losses": Range(1e-2, 5.0, log=True, size=DEPTH),
        "delta": DELTA,
        "shares": Range(0.01, 1.0, size=NODES),
        "flips": Range(-1.0, 1.0, size=NODES),
    }
    guess = {"losses": [1.0] * DEPTH, "delta": 1e-3, "shares": [1.0] * NODES}
    guess["flips"] = [1.0] * NODES
    yield from attack(
        effort, "delta", plan_ratio, space, guesses=[guess], cost=6, tight=0.01, tolerance=1e-5
    )


# --- the sparse vector: bounds of AboveThreshold against exact laws of its halting ---
#
# Queries either share nothing, so that one record moves each by anything in [-1, 1]; or they are
# decreases of a sum of clamped losses, to which a record adds one at the start and at every step.

SCALES = {
    "excess": Range(1e-3, 100.0, log=True),
    "threshold_scale": Range(0.1, 30.0, log=True),
    "query_scale": Range(0.1, 30.0, log=True),
}


# Levels of the queries, in units of their noise: no probability underflows.
LEVELS = (-12.0, 12.0)


def moved(before: float | None, after: Array) -> Array:
    """Return the change of the queries by one record: of its losses, or any without ``before``."""
    return 2.0 * after - 1.0 if before is None else before - after


def above_threshold_ratio(
    noise: str,
    excess: float,
    threshold_scale: float,
    query_scale: float,
    levels: Array,
    after: Array,
    before: float | None = None,
    bound: Callable[..., Any] = rdp_above_threshold,
) -> float:
    """Attack the curve: queries and losses of one record, in [0, 1]."""
    order, queries = 1.0 + excess, query_scale * levels
    value = bound(order, noise, threshold_scale, query_scale, len(queries))
    laws = [
        above_threshold_distribution(values, noise, threshold_scale, query_scale)
        for values in (queries, queries + moved(before, after))
    ]
    return pair_quotient(float(value), laws, order=order, tolerance=1e-6)


def space(count: int, shared: bool) -> dict[str, Range]:
    """Return the ranges of all free parameters of the bounds."""
    losses = {"after": Range(0.0, 1.0, size=count)}
    if shared:
        losses["before"] = Range(0.0, 1.0)
    return {**SCALES, "levels": Range(*LEVELS, size=count), **losses}


def guesses(count: int, shared: bool) -> Iterator[Mapping[str, Any]]:
    """Yield settings in which all queries move together, or the last one against the others."""
    last = np.arange(count) == count - 1
    far = np.where(last, -2.0, 8.0)
    for excess, first, second, levels in (
        (1.0, 0.85, 4.0, np.full(count, -1.25)),
        (0.01, 0.1, 20.0, np.zeros(count)),
        (100.0, 2.0, 4.0, far),
    ):
        at = {"excess": excess, "threshold_scale": first, "query_scale": second}
        for up in (1.0, 0.0):
            start = {"before": 1.0 - up} if shared else {}
            after = np.where(last & (levels is far), 1.0 - up, up)
            yield {**at, **start, "levels": levels, "after": after}


def _above_threshold(effort: Effort, noise: str, shared: bool = False) -> Iterator[Evidence]:
    """Attack the bounds by the classical coupling of thresholds, and by the best one."""
    classical = partial(rdp_above_threshold, shared=shared)
    best = partial(classical, coupling="best")
    for count, name, bound in (
        (1, "best coupling", best),
        (3, "", classical),
        (3, "best coupling", best),
        (8, "best coupling", best),
    ):
        yield from attack(
            effort,
            ", ".join(filter(None, (noise, f"K = {count}", name))),
            partial(above_threshold_ratio, noise, bound=bound),
            space(count, shared),
            cost=45,
            guesses=guesses(count, shared),
            tolerance=1e-6,
        )


@holds(
    "bounds-26",
    "`rdp_above_threshold`, Laplace noise; errata 002-2",
    "the smallest of the proven bounds covers every sequence of queries",
)
def above_threshold_laplace(effort: Effort) -> Iterator[Evidence]:
    """Compute exact laws of the halting index, in both directions."""
    yield from _above_threshold(effort, "laplace")


@holds(
    "bounds-27",
    "`rdp_above_threshold`, Gaussian noise; errata 002-3",
    "the smallest of the proven bounds covers every sequence of queries",
)
def above_threshold_gaussian(effort: Effort) -> Iterator[Evidence]:
    """Compute exact laws of the halting index, in both directions."""
    yield from _above_threshold(effort, "gaussian")


@holds(
    "bounds-29",
    "`rdp_above_threshold(shared=True)`; errata 002-1 to 002-3",
    "queries that share a value, like those of a line search on clamped losses, cost less",
)
def shared_queries(effort: Effort) -> Iterator[Evidence]:
    """Compute exact laws of the halting index, in both directions."""
    for noise in ("laplace", "gaussian"):
        yield from _above_threshold(effort, noise, shared=True)


def event_ratio(
    noise: str,
    excess: float | None,
    threshold_scale: float,
    query_scale: float,
    levels: Array,
    after: Array,
    before: float | None = None,
    rate: float = 1.0,
    std: float = math.inf,
    make: Callable[..., Event] = AboveThreshold,
    cost: Callable[[Sampled], Event] = lambda event: event,
) -> float:
    """Attack the event: its pure loss, or its curve, alone or with a gradient on a batch.

    ``make`` and ``cost`` construct the event and that of the batch.
    """
    shared, queries = before is not None, query_scale * levels
    event = make(noise, threshold_scale, query_scale, 1.0, len(queries), shared)
    there, absent = (
        above_threshold_distribution(values, noise, threshold_scale, query_scale)
        for values in (queries + moved(before, after), queries)
    )
    if excess is None:
        return quotient(event.pure_cost(), pure_loss(there, absent))
    if math.isfinite(std):
        event = cost(Sampled(Poisson(rate), [Gaussian(std, 1.0), event]))
        present, missing = cells("gaussian", std)
        there, absent = np.outer(there, present).ravel(), np.outer(absent, missing).ravel()
        there = rate * there + (1.0 - rate) * absent
    value = float(event.rdp_cost(1.0 + excess))
    return pair_quotient(value, (there, absent), order=1.0 + excess, tolerance=1e-6)


@holds(
    "bounds-30",
    "`AboveThreshold`, alone and in `Sampled`; errata 002-4",
    "the pure loss, the curve between the orders at which it is computed, and the cost of a batch "
    "with a noisy gradient",
)
def above_threshold_event(effort: Effort) -> Iterator[Evidence]:
    """Compute exact laws of five queries, and of a gradient cut into cells."""
    count, highest = 5, 5.0
    options: dict[str, Any] = {"cost": 45, "tolerance": 1e-6}
    for shared, which in ((True, "shared"), (False, "not shared")):
        losses = space(count, shared)
        del losses["excess"]
        known = [{**at, "excess": min(at["excess"], highest)} for at in guesses(count, shared)]
        curve = {**losses, "excess": Range(1e-3, highest, log=True)}
        batch = {**curve, "rate": RATE, "std": Range(0.3, 10.0, log=True)}
        drawn = [{**at, "rate": 0.1, "std": 1.0} for at in known]
        for noise in ("laplace", "gaussian") if shared else ("laplace",):
            ratio, setting = partial(event_ratio, noise), f"{noise}, {which}"
            yield from attack(effort, f"curve, {setting}", ratio, curve, guesses=known, **options)
            yield from attack(effort, f"batch, {setting}", ratio, batch, guesses=drawn, **options)
        ratio, what = partial(event_ratio, "laplace", None), f"pure loss, laplace, {which}"
        starts = [{key: at[key] for key in losses} for at in known]
        yield from attack(effort, what, ratio, losses, cost=8, tight=1e-3, guesses=starts)
