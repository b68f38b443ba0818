"""Amplification of pure losses, under attack; the mechanisms that attack other amplification.

The adversary writes the mechanism on every batch of a few records into a table (see
``enumeration``) or, on data of any size, lets it look at one record only.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from scipy import special

from ... import privacy
from ...privacy.pure import amplify_poisson, deamplify
from ...privacy.relations import ADD_OR_REMOVE_ONE, REPLACE_ONE
from ..attack import Range, pair_quotient, quotient
from ..enumeration import Subsampling, laws_of, poisson, presence, without_replacement
from ..registry import Effort, Evidence, register
from ._search import EXCESS, LOSS, Array, search

RATE = Range(1e-4, 1.0, log=True)
SPREAD = Range(1e-3, 25.0, log=True)

# Randomised response on whether the record is in the batch, with a rare third outcome.
YES, NO = [1.0, -1.0, -1.0], [-1.0, 1.0, -1.0]


def batches(n: int) -> Range:
    """Return the numbers m of n records that a batch may have."""
    return Range(1, n, integer=True)


def mean_laws(values: Array, n: int, m: int) -> tuple[Array, Array]:
    """Return the means of all batches of m of n records, for two data sets.

    Parameters
    ----------
    values : ndarray, shape (n + 1, d)
        The first data set has the records 0..n-1, the second 1..n.
    """
    sides = (values[:-1], values[1:])
    return tuple(  # type: ignore[return-value]
        np.array([side[list(rows)].mean(axis=0) for rows in itertools.combinations(range(n), m)])
        for side in sides
    )


def laplace_mean_ratio(
    epsilon: float,
    m: int,
    data: Array,
    dimension: int,
    bound: Callable[..., float] = privacy.laplace_epsilon,
) -> float:
    """Pure loss of a Laplace release of an m-of-n mean; records within L1 distance 1.

    Between the kinks the likelihood ratio is monotone in each coordinate (a quotient of
    mixtures of e^x and e^-x), and beyond them constant: the kinks are enough.
    """
    values = np.reshape(data, (-1, dimension))
    values = 0.5 * values / np.maximum(np.abs(values).sum(axis=1, keepdims=True), 1.0)
    n = len(values) - 1
    m = min(m, n)
    scale = 1.0 / (m * epsilon)
    first, second = mean_laws(values, n, m)
    kinks = [np.unique(axis) for axis in np.concatenate([first, second]).T]
    grid = np.stack(np.meshgrid(*kinks), axis=-1).reshape(-1, 1, dimension)
    logs = [
        special.logsumexp(-np.abs(grid - c).sum(axis=-1) / scale, axis=1) for c in (first, second)
    ]
    return quotient(bound(1.0, scale, n, m), float(np.abs(logs[0] - logs[1]).max()))


@register(
    "bounds-10",
    "`laplace_epsilon`, `Laplace`; Kuru et al. (2022), (3.3) and Proposition 3.1",
    "a Laplace release of an m-of-n mean loses ln(1 + (m/n)(e^{S1/(m b)} - 1)), replace-one",
    verdict="holds",
)
def laplace_epsilon(effort: Effort) -> Iterator[Evidence]:
    """Any records within L1 distance 1, all batches."""
    for n, d in ((2, 1), (3, 1), (4, 1), (2, 2)):
        space = {"epsilon": LOSS, "m": batches(n), "data": Range(-1.0, 1.0, size=(n + 1) * d)}
        guess = {
            "epsilon": 1.0,
            "m": 1,
            "data": [1.0, *[0.0] * (d - 1), *[-1.0, *[0.0] * (d - 1)] * n],
        }
        yield from search(
            effort,
            f"n = {n}, d = {d}",
            lambda epsilon, m, data, d=d: laplace_mean_ratio(epsilon, m, data, d),
            space,
            cost=2,
            guesses=[guess],
            tight=1e-9,
        )


# --- mechanisms as tables ---

RENYI = {"excess": EXCESS}
USUAL = {
    "fraction": Range(1e-4, 0.1, log=True),
    "spread": Range(1e-3, 1.0, log=True),
    "excess": Range(1e-4, 63.0, log=True),
}

# (sampling, table, fraction, n, m, **others) -> bound / exact
TableRatio = Callable[..., float]


def pure_loss(first: Array, second: Array) -> float:
    """Return the pure loss of two laws; below 1e-9 too much of it is rounding."""
    loss = float(np.abs(np.log(first / second)).max())
    return loss if loss > 1e-9 else 0.0


def pure_ratio(
    sampling: Subsampling, table: Array, fraction: float, n: int, m: int, *, bound: Any
) -> float:
    """Amplified pure loss."""
    first, second = sampling.laws(table)
    return quotient(bound(sampling.loss(table), fraction, n, m), pure_loss(first, second))


def renyi_ratio(
    sampling: Subsampling,
    table: Array,
    fraction: float,
    n: int,
    m: int,
    excess: float,
    *,
    bound: Any,
) -> float:
    """Amplified Renyi cost, from the curve and the loss of the mechanism on a batch."""
    order = 1.0 + excess
    value = bound(order, sampling.curve(table), sampling.loss(table), fraction, n, m)
    return pair_quotient(float(value), sampling.laws(table), order=order, tolerance=1e-5)


def attack_tables(
    effort: Effort,
    ratio: TableRatio,
    relation: str,
    space: dict[str, Range],
    guess: dict[str, Any] | None = None,
    *,
    usual: dict[str, Range] | None = None,
    few: int = 2,
    **options: Any,
) -> Iterator[Evidence]:
    """Search the mechanisms that look at one record of many, and all those on tiny data.

    ``few`` is how many sizes of tiny data are tried. ``usual`` is a smaller box that is searched
    too, away from the extremes where any bound is tight: everything is drawn, or the loss is so
    large that sampling is no help.
    """
    replacing = relation == REPLACE_ONE
    spaces = {"fraction": Range(1e-4, 1.0, log=True), "spread": SPREAD, **space}

    def one_record(fraction: float, logits: Array, spread: float, **others: Any) -> float:
        m = max(1, round(fraction * 10_000))
        fraction = m / 10_000 if replacing else fraction
        table = laws_of(logits, 3, spread)
        return ratio(presence(fraction, relation), table, fraction, 10_000, m, **others)

    rows = [*YES, *NO, *NO] if replacing else [*YES, *NO]
    known: dict[str, Any] = {"fraction": 0.05, "logits": rows, "spread": 1.0}
    known |= dict.fromkeys(space, 1.0) | (guess or {})
    one = {**spaces, "logits": Range(-1.0, 1.0, size=len(rows))}
    scheme = "m of n" if replacing else "Poisson"
    yield from search(effort, f"{scheme}, one record", one_record, one, guesses=[known], **options)
    options.pop("tight", None)
    if usual is not None:
        what = f"{scheme}, one record, epsilon < 2, q < 0.1"
        yield from search(effort, what, one_record, {**one, **usual}, **options)

    def subsampling(n: int, fraction: float) -> tuple[Subsampling, float, int]:
        m = min(max(1, round(fraction * n)), n - 1)
        if replacing:
            return without_replacement(n, m), m / n, m
        return poisson(n, fraction), fraction, m

    def few_records(n: int, fraction: float, logits: Array, spread: float, **others: Any) -> float:
        sampling, fraction, m = subsampling(n, fraction)
        signs = logits[: sampling.first.size, None] * np.array([1.0, -1.0])
        return ratio(sampling, laws_of(signs, 2, spread), fraction, n, m, **others)

    sizes = ((3, 5), (4, 9)) if replacing else ((2, 4), (3, 8))  # n, batches
    for n, size in sizes[:few]:
        tiny = {**spaces, "n": Range(n, n, integer=True), "logits": Range(-1.0, 1.0, size=size)}
        # Randomised response on whether the record is in the batch.
        logits = np.full(size, -1.0)
        without = subsampling(n, 0.6)[0].second
        logits[: without.size][without == 0.0] = 1.0
        known |= {"n": n, "fraction": 0.6, "logits": logits}
        what = f"{scheme}, n = {n}, any mechanism of two outcomes"
        yield from search(effort, what, few_records, tiny, guesses=[known], **options)


@register(
    "bounds-11",
    "`amplify_without_replacement`; Balle, Barthe, Gaboardi (2018), Theorem 9; "
    "Kuru et al. (2022), (3.5)",
    "m of n records: ln(1 + (m/n)(e^epsilon - 1)), replace-one",
    verdict="holds",
)
def amplify_without_replacement(effort: Effort) -> Iterator[Evidence]:
    """All batches, any mechanism."""

    def bound(loss: float, fraction: float, n: int, m: int) -> float:
        return float(privacy.amplify_without_replacement(loss, n, m))

    ratio = partial(pure_ratio, bound=bound)
    yield from attack_tables(effort, ratio, REPLACE_ONE, {}, tight=1e-9, tolerance=1e-6)


@register(
    "bounds-12",
    "`amplify_poisson`; Balle, Barthe, Gaboardi (2018), Theorem 8",
    "a Poisson batch: ln(1 + q (e^epsilon - 1)), add-or-remove-one",
    verdict="holds",
)
def amplify_by_poisson(effort: Effort) -> Iterator[Evidence]:
    """All batches, any mechanism."""

    def bound(loss: float, fraction: float, n: int, m: int) -> float:
        return float(amplify_poisson(loss, fraction))

    ratio = partial(pure_ratio, bound=bound)
    yield from attack_tables(effort, ratio, ADD_OR_REMOVE_ONE, {}, tight=1e-9, tolerance=1e-6)


def deamplify_ratio(
    epsilon: float, fraction: float, share: float, bound: Callable[..., float] = deamplify
) -> float:
    """Compare the loss aimed at with that of a mechanism of the loss allowed on a batch."""
    allowed = bound(epsilon, fraction)
    yes = share * special.expit(allowed)  # an outcome e^allowed times rarer without the record
    with_record = np.array([yes, 1.0 - yes])
    without = np.array([yes * np.exp(-allowed), 1.0 - yes * np.exp(-allowed)])
    worst = 0.0
    for relation in (ADD_OR_REMOVE_ONE, REPLACE_ONE):
        sampling = presence(fraction, relation)
        table = (
            [with_record, without]
            if relation == ADD_OR_REMOVE_ONE
            else [with_record, without, without]
        )
        first, second = sampling.laws(table)
        worst = max(worst, pure_loss(first, second))
    return quotient(epsilon, worst)


@register(
    "bounds-13",
    "`deamplify`, `deamplify_without_replacement`; Kuru et al. (2022), (3.5) inverted",
    "ln(1 + (e^epsilon - 1)/q) on the batch is epsilon after sampling, and no less",
    verdict="holds",
)
def deamplified(effort: Effort) -> Iterator[Evidence]:
    """Mechanisms of that loss on the batch, both samplings."""
    space = {
        "epsilon": LOSS,
        "fraction": Range(1e-4, 1.0, log=True),
        "share": Range(1e-3, 0.999, log=True),
    }
    yield from search(effort, "any share", deamplify_ratio, space, exact=1e-8, tolerance=1e-8)
