"""The sparse vector under attack: the bounds of AboveThreshold against exact laws of its halting.

Queries either share nothing, so that one record moves each by anything in [-1, 1]; or they are
decreases of a sum of clamped losses, of which one record has one at the start and one at every
step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from ...privacy.events import AboveThreshold, Event, Gaussian, Sampled
from ...privacy.sampling import Poisson
from ...privacy.sparse_vector import rdp_above_threshold
from ..attack import Range, pair_quotient, quotient
from ..laws import above_threshold_distribution
from ..registry import Effort, Evidence, register
from ._search import Array, search
from .bounds_amplification import RATE, pure_loss
from .bounds_composed import cells

SCALES = {
    "excess": Range(1e-3, 100.0, log=True),
    "threshold_scale": Range(0.1, 30.0, log=True),
    "query_scale": Range(0.1, 30.0, log=True),
}


# Of all queries, in units of their noise: nothing is rarer than a float can say.
LEVELS = (-12.0, 12.0)


def moved(before: float | None, after: Array) -> Array:
    """Return how far one record moves the queries: its losses; without ``before``, anything."""
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
    """Return the ranges of all that the bounds leave free."""
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
    """Attack the classical coupling of thresholds, and the best one."""
    classical = partial(rdp_above_threshold, shared=shared)
    best = partial(classical, coupling="best")
    for count, name, bound in (
        (1, "best coupling", best),
        (3, "", classical),
        (3, "best coupling", best),
        (8, "best coupling", best),
    ):
        yield from search(
            effort,
            ", ".join(filter(None, (noise, f"K = {count}", name))),
            partial(above_threshold_ratio, noise, bound=bound),
            space(count, shared),
            cost=45,
            guesses=guesses(count, shared),
            tolerance=1e-6,
        )


@register(
    "bounds-26",
    "`rdp_above_threshold`, Laplace noise; errata 002-2",
    "the smallest of the proven bounds covers every sequence of queries",
    verdict="holds",
)
def above_threshold_laplace(effort: Effort) -> Iterator[Evidence]:
    """Exact laws of the halting place, both ways."""
    yield from _above_threshold(effort, "laplace")


@register(
    "bounds-27",
    "`rdp_above_threshold`, Gaussian noise; errata 002-3",
    "the smallest of the proven bounds covers every sequence of queries",
    verdict="holds",
)
def above_threshold_gaussian(effort: Effort) -> Iterator[Evidence]:
    """Exact laws of the halting place, both ways."""
    yield from _above_threshold(effort, "gaussian")


@register(
    "bounds-29",
    "`rdp_above_threshold(shared=True)`; errata 002-1 to 002-3",
    "queries that share a value, as those of a line search on clamped losses, cost less",
    verdict="holds",
)
def shared_queries(effort: Effort) -> Iterator[Evidence]:
    """Exact laws of the halting place, both ways."""
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

    ``make`` and ``cost`` stand for the event and for that of the batch.
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


@register(
    "bounds-30",
    "`AboveThreshold`, alone and in `Sampled`; errata 002-4",
    "its pure loss, its curve between the orders at which it is computed, and the cost of a "
    "batch with a noisy gradient",
    verdict="holds",
)
def above_threshold_event(effort: Effort) -> Iterator[Evidence]:
    """Exact laws of five queries, and a gradient cut into cells."""
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
            yield from search(effort, f"curve, {setting}", ratio, curve, guesses=known, **options)
            yield from search(effort, f"batch, {setting}", ratio, batch, guesses=drawn, **options)
        yield from search(
            effort,
            f"pure loss, laplace, {which}",
            partial(event_ratio, "laplace", None),
            losses,
            cost=8,
            tight=1e-3,
            guesses=[{key: at[key] for key in losses} for at in known],
        )
