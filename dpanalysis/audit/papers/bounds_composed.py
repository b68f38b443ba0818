"""Composition under attack: batches with several releases, loss distributions, filters, plans.

Everything is enumerated: releases with real answers are cut into cells, which is
post-processing and can only lower the exact value; an adaptive adversary is a tree of coins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from ... import privacy
from ...privacy.events import Event, Gaussian, Laplace, Pure, Repeated, Sampled
from ...privacy.pld import pld_epsilon
from ...privacy.relations import ADD_OR_REMOVE_ONE, REPLACE_ONE
from ...privacy.sampling import Poisson, WithoutReplacement
from ..attack import Range, pair_quotient, quotient
from ..enumeration import Subsampling, laws_of, presence
from ..laws import subsampled_gaussian, subsampled_laplace
from ..registry import Effort, Evidence, register
from ._search import DELTA, EXCESS, STD, Array, search
from .bounds_amplification import NO, RATE, YES, attack_tables, mean_laws, pure_loss
from .bounds_sampled import mixture, product, response_law

Pair = tuple[Array, Array]


@dataclass(frozen=True)
class Table(Event):
    """A release given by its laws on all batches, with its exact costs there."""

    rows: tuple[tuple[float, ...], ...]
    neighbours: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, table: Array, sampling: Subsampling) -> Table:
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
    """Attack two releases from one batch: their joint law against the cost of the event.

    ``kind``: "loss" for the pure losses, "pure" and "curve" for the Renyi cost where the pure
    losses or the curves of the releases are known. ``cost(event)`` stands for the event.
    """
    order = 1.0 + excess
    tables = [laws_of(logits, 2, spread) for logits in (first, second)]
    sampling = presence(fraction, relation)
    if kind == "curve":
        events: list[Event] = [Table.of(table, sampling) for table in tables]
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


@register(
    "bounds-20",
    "`Sampled`; errata 002-4, 002-5",
    "several releases from one batch are composed first and amplified once",
    verdict="holds",
)
def shared_batches(effort: Effort) -> Iterator[Evidence]:
    """Joint laws of two mechanisms on one batch, both samplings."""
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
            yield from search(
                effort,
                f"{kind}, {relation}",
                partial(shared_batch_ratio, relation, kind),
                space,
                cost=3,
                guesses=[guess],
                tolerance=1e-5,
            )


# --- privacy loss distributions ---


def claimed_epsilon(groups: dict[Event, int], delta: float) -> float:
    """Return the epsilon of the loss distributions."""
    return pld_epsilon(groups, delta)


def pld_table_ratio(
    sampling: Subsampling,
    table: Array,
    fraction: float,
    n: int,
    m: int,
    delta: float,
    *,
    relation: str,
    bound: Any = claimed_epsilon,
) -> float:
    """Attack the epsilon of one batch with any pure release."""
    pure = Pure(sampling.loss(table))
    scheme = Poisson(fraction) if relation == ADD_OR_REMOVE_ONE else WithoutReplacement(m)
    event = Sampled(scheme, [pure], n=n)
    return pair_quotient(
        delta, sampling.laws(table), epsilon=bound({event: 1}, delta), tolerance=1e-5
    )


def pld_noise_ratio(
    law: Callable[[float, float, float], Any],
    noise: Callable[[float, float], Event],
    rate: float,
    scale: float,
    delta: float,
    bound: Any = claimed_epsilon,
) -> float:
    """Attack the epsilon of noise on a Poisson batch, both ways."""
    event = Sampled(Poisson(rate), [noise(scale, 1.0)])
    return pair_quotient(
        delta, law(scale, 1.0, rate), epsilon=bound({event: 1}, delta), tolerance=1e-5
    )


def pld_gaussian_without_ratio(
    std: float, m: int, data: Array, delta: float, bound: Any = claimed_epsilon
) -> float:
    """Attack the epsilon of a noisy sum over m of n records in [-1/2, 1/2]."""
    n = len(data) - 1
    first, second = (m * means[:, 0] for means in mean_laws(data[:, None], n, m))
    laws = [mixture(c, np.full(c.size, 1.0 / c.size), std) for c in (first, second)]
    event = Sampled(WithoutReplacement(m), [Gaussian(std, 1.0)], n=n)
    return pair_quotient(delta, laws, epsilon=bound({event: 1}, delta), tolerance=1e-5)


@register(
    "bounds-21",
    "`pld_epsilon`, one batch; Zhu, Dong, Wang (2022); Balle, Barthe, Gaboardi (2018)",
    "the profile of the dominating pair, both ways, rounded up on a grid",
    verdict="holds",
)
def loss_distributions(effort: Effort) -> Iterator[Evidence]:
    """Delta at the epsilon returned: any pure release by tables, noise by quadrature."""
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
        yield from search(effort, name, ratio, space, cost=60, tolerance=1e-5)
    few = {"std": STD, "m": Range(1, 2, integer=True), "delta": DELTA}
    few["data"] = Range(-0.5, 0.5, size=4)
    guess = {"std": 1.0, "m": 1, "delta": 0.01, "data": [0.5, -0.5, -0.5, -0.5]}
    yield from search(
        effort,
        "Gaussian noise, 1 or 2 of 3",
        pld_gaussian_without_ratio,
        few,
        cost=60,
        guesses=[guess],
        tolerance=1e-5,
    )


def cells(noise: str, scale: float, count: int = 80) -> Pair:
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
        # Differences of the smaller tails keep their digits.
        inner = np.where(z[1:] < 0, below[1:] - below[:-1], above[:-1] - above[1:])
        return np.concatenate([below[:1], inner, above[-1:]])

    return law(1.0), law(0.0)


def mixed(rate: float, pair: Pair) -> Pair:
    """Return the pair of a Poisson batch."""
    return (1.0 - rate) * pair[1] + rate * pair[0], pair[1]


def pld_composed_ratio(
    rate: float,
    other_rate: float,
    std: float,
    scale: float,
    response: float,
    delta: float,
    bound: Any = claimed_epsilon,
) -> float:
    """Attack two different batches: Gaussian noise with a response, and Laplace noise."""
    groups = {
        Sampled(Poisson(rate), [Gaussian(std, 1.0), Pure(response)]): 1,
        Sampled(Poisson(other_rate), [Laplace(scale, 1.0)]): 1,
    }
    laws = product(
        mixed(rate, product(cells("gaussian", std), response_law(response))),
        mixed(other_rate, cells("laplace", scale, 40)),
    )
    return pair_quotient(delta, laws, epsilon=bound(groups, delta), tolerance=1e-5)


def pld_two_tables_ratio(
    fraction: float,
    first: Array,
    second: Array,
    spread: float,
    delta: float,
    bound: Any = claimed_epsilon,
) -> float:
    """Attack two batches without replacement, whose releases may lean either way."""
    groups: dict[Event, int] = {}
    pairs = []
    for logits in (first, second):
        table = laws_of(logits, 3, spread)
        sampling = presence(1.0, REPLACE_ONE)
        sampling, event = batch(fraction, REPLACE_ONE, [Pure(sampling.loss(table))])
        groups[event] = groups.get(event, 0) + 1
        pairs.append(sampling.laws(table))
    return pair_quotient(delta, product(*pairs), epsilon=bound(groups, delta), tolerance=1e-5)


def pld_repeated_ratio(
    rate: float, loss: float, count: int, inside: int, delta: float, bound: Any = claimed_epsilon
) -> float:
    """Attack several batches, each asked several times for randomised response."""
    event = Sampled(Poisson(rate), [Repeated(Pure(loss), inside)])
    k = np.arange(inside + 1)
    choose = special.binom(inside, k)
    yes, no = special.expit(loss), special.expit(-loss)
    pair = choose * yes**k * no ** (inside - k), choose * no**k * yes ** (inside - k)
    laws = product(*[mixed(rate, pair)] * count)
    return pair_quotient(delta, laws, epsilon=bound({event: count}, delta), tolerance=1e-5)


@register(
    "bounds-22",
    "`pld_epsilon`, several batches; Koskela et al. (2020); Doroshenko et al. (2022)",
    "loss distributions of different batches add up, each direction by itself",
    verdict="holds",
)
def composed_loss_distributions(effort: Effort) -> Iterator[Evidence]:
    """Joint laws of all answers, cut into cells."""
    losses = Range(1e-3, 10.0, log=True)
    noise = Range(0.2, 30.0, log=True)
    space = {"rate": RATE, "other_rate": RATE, "std": noise, "scale": noise}
    space |= {"response": losses, "delta": DELTA}
    what = "Gaussian and response, then Laplace"
    yield from search(effort, what, pld_composed_ratio, space, cost=32, tolerance=1e-5)
    logits = Range(-1.0, 1.0, size=9)
    two = {"fraction": RATE, "first": logits, "second": logits, "delta": DELTA}
    two["spread"] = Range(1e-3, 5.0, log=True)
    guess = {"fraction": 0.02, "first": [*YES, *NO, *NO], "second": [*NO, *YES, *YES]}
    guess |= {"spread": 2.0, "delta": 0.02}
    yield from search(
        effort,
        "two, without replacement",
        pld_two_tables_ratio,
        two,
        cost=16,
        guesses=[guess],
        tolerance=1e-5,
    )
    many = {"rate": RATE, "loss": losses, "count": Range(1, 5, integer=True)}
    many |= {"inside": Range(1, 3, integer=True), "delta": DELTA}
    yield from search(effort, "up to 5 times 3", pld_repeated_ratio, many, cost=24, tolerance=1e-5)


def accountant_ratio(
    accountant: str, rates: Array | None, losses: Array, delta: float, bound: Any = privacy.epsilon
) -> float:
    """Attack an accountant by a list of different randomised responses."""
    relation = ADD_OR_REMOVE_ONE
    events: list[Event] = [Pure(float(loss)) for loss in losses]
    pairs = [response_law(float(loss)) for loss in losses]
    if rates is not None:
        events = [Sampled(Poisson(float(q)), [event]) for q, event in zip(rates, events)]
        pairs = [mixed(float(q), pair) for q, pair in zip(rates, pairs)]
    epsilon = bound(events, delta, relation, accountant)
    return pair_quotient(delta, product(*pairs), epsilon=epsilon, tolerance=1e-5)


@register(
    "bounds-23",
    '`epsilon` by "zcdp", "rdp", "pld" and "tightest"',
    "the epsilon of a list of different events at delta",
    verdict="holds",
)
def accountants(effort: Effort) -> Iterator[Evidence]:
    """Joint laws of four randomised responses, each with a batch of its own or all records."""
    space = {"losses": Range(1e-3, 12.0, log=True, size=4), "delta": DELTA}
    for accountant, cost in (("zcdp", 2), ("rdp", 2), ("pld", 16), ("tightest", 24)):
        ratio = partial(accountant_ratio, accountant, None)
        yield from search(
            effort, f"{accountant}, all records", ratio, space, cost=cost, tolerance=1e-5
        )
    space["rates"] = Range(1e-3, 1.0, log=True, size=4)
    for accountant, cost in (("rdp", 4), ("pld", 24)):
        ratio = partial(accountant_ratio, accountant)
        yield from search(effort, f"{accountant}, batches", ratio, space, cost=cost, tolerance=1e-5)
