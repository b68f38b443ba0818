"""Amplification by sampling: pure losses, and Renyi costs of releases from a batch.

The adversary tabulates the mechanism on every batch of a few records or, on data of any size, lets
it depend on one record only. Noise on a sum is integrated over the mixture of all batches, and
several releases from one batch are multiplied and then mixed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from scipy import special

from ... import privacy
from ...audit.attack import Range, pair_quotient, quotient
from ...audit.laws import Subsampling, laws_of, poisson, presence, without_replacement
from ...privacy.accounting.epochs import Bins
from ...privacy.accounting.pld import pld_epsilon
from ...privacy.accounting.pure import amplify_poisson, deamplify
from ...privacy.accounting.rdp import rdp_pure_poisson, rdp_pure_without_replacement
from ...privacy.accounting.relations import ADD_OR_REMOVE_ONE, REPLACE_ONE
from ...privacy.accounting.sampling import Poisson, WithReplacement
from ...privacy.accounting.with_replacement import pure_with_replacement, rdp_with_replacement
from ...privacy.events import Event, Gaussian, Laplace, Pure, Sampled
from ..claim import Effort, Evidence
from ..tools import Array, Laws, batch_means, gaussian_mixture, mixed, product, randomized_response
from . import DELTA, EXCESS, LOSS, STD, attack, holds

RATE = Range(1e-4, 1.0, log=True)
SPREAD = Range(1e-3, 25.0, log=True)

# Randomized response on whether the record is in the batch, with a rare third outcome.
YES, NO = [1.0, -1.0, -1.0], [-1.0, 1.0, -1.0]


def batches(n: int) -> Range:
    """Return the range of batch sizes m of n records."""
    return Range(1, n, integer=True)


def laplace_mean_ratio(
    epsilon: float,
    m: int,
    data: Array,
    dimension: int,
    bound: Callable[..., float] = privacy.laplace_epsilon,
) -> float:
    """Attack the pure loss of a Laplace release of an m-of-n mean; records within L1 distance 1.

    Between the kinks the likelihood ratio is monotone in each coordinate (a quotient of
    mixtures of e^x and e^-x), and beyond them constant: the kinks suffice.
    """
    values = np.reshape(data, (-1, dimension))
    values = 0.5 * values / np.maximum(np.abs(values).sum(axis=1, keepdims=True), 1.0)
    n = len(values) - 1
    m = min(m, n)
    scale = 1.0 / (m * epsilon)
    first, second = batch_means(values[:-1], m), batch_means(values[1:], m)
    kinks = [np.unique(axis) for axis in np.concatenate([first, second]).T]
    grid = np.stack(np.meshgrid(*kinks), axis=-1).reshape(-1, 1, dimension)
    logs = [
        special.logsumexp(-np.abs(grid - c).sum(axis=-1) / scale, axis=1) for c in (first, second)
    ]
    return quotient(bound(1.0, scale, n, m), float(np.abs(logs[0] - logs[1]).max()))


@holds(
    "bounds-10",
    "`laplace_epsilon`, `Laplace`; Kuru et al. (2022), (3.3) and Proposition 3.1",
    "a Laplace release of an m-of-n mean loses ln(1 + (m/n)(e^{S1/(m b)} - 1)), replace-one",
)
def laplace_epsilon(effort: Effort) -> Iterator[Evidence]:
    """Search over records within L1 distance 1, with all batches."""
    for n, d in ((2, 1), (3, 1), (4, 1), (2, 2)):
        space = {"epsilon": LOSS, "m": batches(n), "data": Range(-1.0, 1.0, size=(n + 1) * d)}
        rest = [0.0] * (d - 1)
        guess = {"epsilon": 1.0, "m": 1, "data": [1.0, *rest, *[-1.0, *rest] * n]}
        ratio = partial(laplace_mean_ratio, dimension=d)
        what = f"n = {n}, d = {d}"
        yield from attack(effort, what, ratio, space, cost=2, guesses=[guess], tight=1e-9)


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
    """Return the pure loss of two laws; below 1e-9 it is mostly rounding error."""
    loss = float(np.abs(np.log(first / second)).max())
    return loss if loss > 1e-9 else 0.0


def pure_ratio(
    sampling: Subsampling, table: Array, fraction: float, n: int, m: int, *, bound: Any
) -> float:
    """Attack an amplified pure loss."""
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
    """Attack an amplified Renyi cost, given the curve and the loss on a batch."""
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
    """Search mechanisms that depend on one record of many, and all on ``few`` tiny data sets."""
    # The ``usual`` box avoids the extremes where any bound is tight: everything is drawn, or the
    # loss is so large that sampling does not help.
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
    yield from attack(effort, f"{scheme}, one record", one_record, one, guesses=[known], **options)
    options.pop("tight", None)
    if usual is not None:
        what = f"{scheme}, one record, epsilon < 2, q < 0.1"
        yield from attack(effort, what, one_record, {**one, **usual}, **options)

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
        # Randomized response on whether the record is in the batch.
        logits = np.full(size, -1.0)
        without = subsampling(n, 0.6)[0].second
        logits[: without.size][without == 0.0] = 1.0
        known |= {"n": n, "fraction": 0.6, "logits": logits}
        what = f"{scheme}, n = {n}, any mechanism of two outcomes"
        yield from attack(effort, what, few_records, tiny, guesses=[known], **options)


@holds(
    "bounds-11",
    "`amplify_without_replacement`; Balle, Barthe, Gaboardi (2018), Theorem 9; "
    "Kuru et al. (2022), (3.5)",
    "m of n records: ln(1 + (m/n)(e^epsilon - 1)), replace-one",
)
def amplify_without_replacement(effort: Effort) -> Iterator[Evidence]:
    """Enumerate the batches; search over any mechanism."""
    ratio = partial(
        pure_ratio, bound=lambda loss, q, n, m: privacy.amplify_without_replacement(loss, n, m)
    )
    yield from attack_tables(effort, ratio, REPLACE_ONE, {}, tight=1e-9, tolerance=1e-6)


@holds(
    "bounds-12",
    "`amplify_poisson`; Balle, Barthe, Gaboardi (2018), Theorem 8",
    "a Poisson batch: ln(1 + q (e^epsilon - 1)), add-or-remove-one",
)
def amplify_by_poisson(effort: Effort) -> Iterator[Evidence]:
    """Enumerate the batches; search over any mechanism."""
    ratio = partial(pure_ratio, bound=lambda loss, q, n, m: amplify_poisson(loss, q))
    yield from attack_tables(effort, ratio, ADD_OR_REMOVE_ONE, {}, tight=1e-9, tolerance=1e-6)


def deamplify_ratio(
    epsilon: float, fraction: float, share: float, bound: Callable[..., float] = deamplify
) -> float:
    """Compare the target loss with that of a mechanism with the loss allowed on a batch."""
    allowed = bound(epsilon, fraction)
    yes = share * special.expit(allowed)  # an outcome e^allowed times rarer without the record
    with_record = np.array([yes, 1.0 - yes])
    without = np.array([yes * np.exp(-allowed), 1.0 - yes * np.exp(-allowed)])
    tables = {
        ADD_OR_REMOVE_ONE: [with_record, without],
        REPLACE_ONE: [with_record, without, without],
    }
    losses = [pure_loss(*presence(fraction, each).laws(table)) for each, table in tables.items()]
    return quotient(epsilon, max(losses))


@holds(
    "bounds-13",
    "`deamplify`, `deamplify_without_replacement`; Kuru et al. (2022), (3.5) inverted",
    "ln(1 + (e^epsilon - 1)/q) on the batch is epsilon after sampling, and not less",
)
def deamplified(effort: Effort) -> Iterator[Evidence]:
    """Search mechanisms of that loss on the batch, for both samplings."""
    space = {
        "epsilon": LOSS,
        "fraction": Range(1e-4, 1.0, log=True),
        "share": Range(1e-3, 0.999, log=True),
    }
    yield from attack(effort, "any share", deamplify_ratio, space, exact=1e-8, tolerance=1e-8)


# --- Renyi costs of releases from a batch ---


def poisson_gaussian_ratio(
    excess: float,
    rate: float,
    std: float,
    others: Array,
    bound: Callable[..., float] = privacy.rdp_poisson_gaussian,
) -> float:
    """Attack the Renyi cost of a noisy Poisson sum: one record is 1, the others arbitrary."""
    centers, weights = np.zeros(1), np.ones(1)
    for other in others:
        centers = np.concatenate([centers, centers + other])
        weights = np.concatenate([(1.0 - rate) * weights, rate * weights])
    without = gaussian_mixture(centers[weights > 0.0], std, weights[weights > 0.0])
    centers = np.concatenate([centers, centers + 1.0])
    weights = np.concatenate([(1.0 - rate) * weights, rate * weights])
    with_record = gaussian_mixture(centers[weights > 0.0], std, weights[weights > 0.0])
    order = 1.0 + excess
    return pair_quotient(
        bound(order, rate, std), (with_record, without), order=order, tolerance=1e-6
    )


@holds(
    "bounds-14",
    "`rdp_poisson_gaussian`; Mironov, Talwar, Zhang (2019), Theorems 4 and 5",
    "the pair N(0, s^2), (1-q) N(0, s^2) + q N(1, s^2), in one direction, bounds both directions "
    "for any data",
)
def rdp_poisson_gaussian(effort: Effort) -> Iterator[Evidence]:
    """Integrate the mixtures over all batches, in both directions."""
    space = {"excess": EXCESS, "rate": RATE, "std": STD}
    alone = {**space, "others": Range(0.0, 0.0, size=1)}
    options = {"cost": 36, "tolerance": 1e-6}
    ratio = poisson_gaussian_ratio
    yield from attack(effort, "no other record", ratio, alone, exact=1e-6, **options)
    others = {**space, "others": Range(-1.0, 1.0, size=2)}
    yield from attack(effort, "two others", ratio, others, **options)


@holds(
    "bounds-15",
    "`rdp_poisson`; Chen and Lee (2020), Lemma 4, after Zhu, Wang (2019), Theorem 6",
    "a bound from the curve on the batch alone, with a factor 3; the chord between integer orders",
)
def rdp_poisson(effort: Effort) -> Iterator[Evidence]:
    """All batches, any mechanism, its own exact curve."""
    ratio = partial(
        renyi_ratio, bound=lambda order, curve, loss, q, n, m: privacy.rdp_poisson(order, q, curve)
    )
    yield from attack_tables(
        effort, ratio, ADD_OR_REMOVE_ONE, RENYI, usual=USUAL, cost=4, tolerance=1e-5
    )


def laplace_law(loss: float) -> Laws:
    """Return the pair Lap(0), Lap(loss) as finite laws with the same Renyi divergences."""
    # The tails are two outcomes; between the centers the weights are those of Gauss's rule, on
    # panels that are finer near both centers.
    nodes, weights = np.polynomial.legendre.leggauss(12)
    ends = 0.5 * loss * np.concatenate([[0.0], np.geomspace(1e-7, 1.0, 48)])
    ends = np.concatenate([ends, loss - ends[-2::-1]])
    half = 0.5 * np.diff(ends)[:, None]
    x = (ends[:-1, None] + half * (1.0 + nodes)).ravel()
    mass = 0.5 * (half * weights).ravel()
    p = np.concatenate([[0.5], mass * np.exp(-x), [0.5 * np.exp(-loss)]])
    q = np.concatenate([[0.5 * np.exp(-loss)], mass * np.exp(x - loss), [0.5]])
    return p, q


def gaussian_law(std: float, order: float) -> Laws:
    """Return the pair N(1, std^2), N(0, std^2) on a grid: see `rdp_poisson_gaussian`."""
    step = min(0.3, 0.3 * std)
    z = np.arange(-(order - 1.0) / std - 11.0, order / std + 11.0, step)
    mass = step / np.sqrt(2.0 * np.pi)
    return mass * np.exp(-0.5 * (z - 1.0 / std) ** 2), mass * np.exp(-0.5 * z * z)


def batch_ratio(order: float, rate: float, response: float, event: Event, laws: Laws) -> float:
    """Attack the Renyi cost of a release and randomized response on one Poisson batch."""
    both = Sampled(Poisson(rate), [event, Pure(response)]).rdp_cost(np.array([order]))[0]
    joint = mixed(rate, product(laws, randomized_response(response)))
    return pair_quotient(float(both), joint, order=order, tolerance=1e-6)


def laplace_and_response(excess: float, rate: float, loss: float, response: float) -> float:
    """Attack a Laplace release and randomized response on one batch."""
    return batch_ratio(1.0 + excess, rate, response, Laplace(1.0, loss), laplace_law(loss))


def gaussian_and_response(excess: float, rate: float, std: float, response: float) -> float:
    """Attack a Gaussian release and randomized response on one batch."""
    order = 1.0 + excess
    return batch_ratio(order, rate, response, Gaussian(std, 1.0), gaussian_law(std, order))


@holds(
    "bounds-16",
    "`rdp_poisson(exact_pair=True)`, `Sampled`; errata 002-4, 002-10",
    "factor 1 for a batch of Gaussian, Laplace and pure releases: composed first, amplified once",
)
def rdp_poisson_of_pairs(effort: Effort) -> Iterator[Evidence]:
    """Mix products of pairs, in both directions."""
    responses = {"rate": RATE, "response": LOSS}
    # The orders at which the Gaussian densities on the grid do not underflow.
    noise = {**responses, "std": Range(0.8, 100.0, log=True)}
    for what, ratio, space, most in (
        ("Laplace and response", laplace_and_response, {**responses, "loss": LOSS}, 499),
        ("Gaussian and response", gaussian_and_response, noise, 19),
    ):
        integers = {**space, "excess": Range(1, most, log=True, integer=True)}
        reals = {**space, "excess": Range(1e-4, most, log=True)}
        name = f"{what}, integer orders"
        yield from attack(effort, name, ratio, integers, cost=6, exact=1e-6, tolerance=1e-6)
        name = f"{what}, real orders"
        yield from attack(effort, name, ratio, reals, cost=6, tolerance=1e-6)


@holds(
    "bounds-17",
    "`rdp_pure_poisson`",
    "the mixed pair of randomized response bounds any epsilon-private release, in both directions",
)
def rdp_of_pure_poisson(effort: Effort) -> Iterator[Evidence]:
    """Enumerate the batches; search over any mechanism."""
    ratio = partial(
        renyi_ratio, bound=lambda order, curve, loss, q, n, m: rdp_pure_poisson(order, q, loss)
    )
    guess = {"excess": 1.0, "spread": 12.0}
    yield from attack_tables(
        effort, ratio, ADD_OR_REMOVE_ONE, RENYI, guess, cost=2, tight=1e-6, tolerance=1e-5
    )


def without_replacement_gaussian_ratio(excess: float, std: float, m: int, data: Array) -> float:
    """Attack the Renyi cost of a noisy sum over m of n records in [-1/2, 1/2]."""
    order, n = 1.0 + excess, len(data) - 1
    first, second = (m * batch_means(side[:, None], m)[:, 0] for side in (data[:-1], data[1:]))
    laws = gaussian_mixture(first, std), gaussian_mixture(second, std)
    cost = privacy.rdp_without_replacement(order, n, m, lambda a: privacy.rdp_gaussian(a, std))
    return pair_quotient(float(cost), laws, order=order, tolerance=1e-5)


@holds(
    "bounds-18",
    "`rdp_without_replacement`; Gao and Wright (2023), Theorem B.4; Wang, Balle, "
    "Kasiviswanathan (2019), Theorem 9",
    "a bound from the curve and the pure loss on a batch of m of n records, replace-one",
)
def rdp_without(effort: Effort) -> Iterator[Evidence]:
    """Enumerate the batches: any mechanism with its own curve, and Gaussian noise."""
    ratio = partial(
        renyi_ratio,
        bound=lambda order, curve, loss, q, n, m: privacy.rdp_without_replacement(
            order, n, m, curve, loss
        ),
    )
    yield from attack_tables(effort, ratio, REPLACE_ONE, RENYI, usual=USUAL, cost=3, tolerance=1e-5)
    space = {"excess": EXCESS, "std": STD, "m": Range(1, 2, integer=True)}
    space["data"] = Range(-0.5, 0.5, size=4)
    guess = {"excess": 1.0, "std": 1.0, "m": 1, "data": [0.5, -0.5, -0.5, -0.5]}
    options: dict[str, Any] = {"cost": 32, "guesses": [guess], "tolerance": 1e-5}
    yield from attack(
        effort, "Gaussian noise, n = 3", without_replacement_gaussian_ratio, space, **options
    )


@holds(
    "bounds-19",
    "`rdp_pure_without_replacement`; Balle, Barthe, Gaboardi (2018); Zhu, Dong, Wang (2022)",
    "randomized response at the amplified loss x, made with probability (1 + e^x)/(1 + e^epsilon)",
)
def rdp_of_pure_without(effort: Effort) -> Iterator[Evidence]:
    """Enumerate the batches; search over any mechanism."""
    ratio = partial(
        renyi_ratio,
        bound=lambda order, curve, loss, q, n, m: rdp_pure_without_replacement(order, n, m, loss),
    )
    yield from attack_tables(effort, ratio, REPLACE_ONE, RENYI, usual=USUAL, cost=3, tolerance=1e-5)


# --- batches drawn with replacement: all draws of a few records ---


def draws(data: Array, m: int) -> Laws:
    """Return the sums of all m draws from the records 0..n-1, and from the records 1..n."""
    n = len(data) - 1
    rows = np.array(list(itertools.product(range(n), repeat=m)))
    return data[rows].sum(axis=1), data[1:][rows].sum(axis=1)


def drawn_loss_ratio(
    epsilon: float, m: int, data: Array, bound: Callable[..., float] = pure_with_replacement
) -> float:
    """Attack the pure loss of a Laplace release of a sum; the kinks suffice."""
    sums = draws(data, m)
    grid = np.unique(np.concatenate(sums))[:, None]
    logs = [special.logsumexp(-np.abs(grid - c) * epsilon, axis=1) for c in sums]
    exact = float(np.abs(logs[0] - logs[1]).max())
    return quotient(bound(epsilon, len(data) - 1, m), exact)


def noisy(data: Array, m: int, std: float) -> list[Any]:
    """Return the laws of a sum with Gaussian noise."""
    return [gaussian_mixture(np.round(sums, 12), std) for sums in draws(data, m)]


def drawn_renyi_ratio(
    excess: float, std: float, m: int, data: Array, bound: Callable[..., Any] = rdp_with_replacement
) -> float:
    """Attack the Renyi cost of Gaussian noise on a sum."""
    order = 1.0 + excess
    value = float(bound(order, len(data) - 1, m, std))
    return pair_quotient(value, noisy(data, m, std), order=order, tolerance=1e-5)


def drawn_delta_ratio(std: float, m: int, data: Array, delta: float) -> float:
    """Attack the epsilon by loss distributions."""
    event = Sampled(WithReplacement(m), [Gaussian(std, 1.0)], n=len(data) - 1)
    epsilon = pld_epsilon({event: 1}, delta)
    return pair_quotient(delta, noisy(data, m, std), epsilon=epsilon, tolerance=1e-5)


@holds(
    "bounds-28",
    "`pure_with_replacement`, `rdp_with_replacement`, `pld_epsilon`; "
    "Balle, Barthe, Gaboardi (2018), Theorem 10",
    "m draws of n records: a record drawn k times moves k slots, replace-one",
)
def with_replacement(effort: Effort) -> Iterator[Evidence]:
    """Enumerate draws of records in [-1/2, 1/2]: Laplace noise at its kinks, Gaussian noise."""
    n = 3
    std = Range(0.5, 30.0, log=True)
    # All other records are opposite to the replaced one.
    opposite = {"m": n, "data": [0.5, *[-0.5] * n]}
    few = {"m": batches(n), "data": Range(-0.5, 0.5, size=n + 1)}
    guess: dict[str, Any] = {"epsilon": 1.0, **opposite}
    space = {"epsilon": LOSS, **few}
    yield from attack(
        effort, "loss", drawn_loss_ratio, space, guesses=[guess], tight=1e-9, tolerance=1e-8
    )
    guess = {"excess": 78.0, "std": 0.5, **opposite}
    space = {"excess": EXCESS, "std": std, **few}
    yield from attack(
        effort, "Renyi", drawn_renyi_ratio, space, cost=32, guesses=[guess], tolerance=1e-5
    )
    guess = {"delta": 1e-3, "std": 2.0, **opposite, "m": 2}
    space = {"delta": DELTA, "std": std, **few}
    yield from attack(
        effort, "delta", drawn_delta_ratio, space, cost=120, guesses=[guess], tolerance=1e-5
    )


def two_bins_ratio(
    std: float, loss: float, record: float, other: float, bound: Callable[..., Any] = Bins
) -> float:
    """Attack both divergences of two batches, into which two records fall independently."""
    # Midpoints on the plane of the noisy sums, which a finer grid moves by 1e-4 at most.
    sums = (0.0, record, other, record + other)
    low, high = min(sums) - 7.0 * std, max(sums) + 7.0 * std
    width = (high - low) / 400
    at = low + width * (np.arange(400) + 0.5)
    law = {c: np.exp(-0.5 * ((at - c) / std) ** 2) / (std * np.sqrt(2.0 * np.pi)) for c in sums}
    without = 0.5 * (np.outer(law[other], law[0.0]) + np.outer(law[0.0], law[other]))
    both, apart = np.outer(law[record + other], law[0.0]), np.outer(law[record], law[other])
    with_it = 0.25 * (both + both.T + apart + apart.T)
    pair = bound(1.0 / std, 0.0, fraction=0.5, poisson=True, batches=2)
    ratios = []
    for mine, its, found in ((with_it, without, pair.remove), (without, with_it, pair.add)):
        exact = width**2 * np.maximum(mine - np.exp(loss) * its, 0.0).sum()
        if exact > 1e-6:  # below, the grid is too coarse
            ratios.append(quotient(float(found(np.array([loss]))[0]), exact, tolerance=1e-4))
    return min(ratios, default=1.0)


@holds(
    "bounds-32",
    "`Epoch` of `BallsInBins`; Choquette-Choo et al. (2024), Lemma 3.2",
    "an epoch in which every record falls into one independently chosen batch loses no more than "
    "the pair of one record alone, spread onto a grid, in both directions",
)
def balls_in_bins(effort: Effort) -> Iterator[Evidence]:
    """Search two batches, a record that is removed or added, and another of any value."""
    space = {
        "std": Range(0.3, 10.0, log=True),
        "loss": Range(-1.0, 3.0),
        "record": Range(-1.0, 1.0),
        "other": Range(-1.0, 1.0),
    }
    alone = {"std": 1.0, "loss": 0.0, "record": 1.0, "other": 0.0}
    yield from attack(
        effort, "two batches", two_bins_ratio, space, cost=60, guesses=[alone], tight=1e-3,
        tolerance=2e-4,
    )  # fmt: skip
