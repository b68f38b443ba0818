"""Renyi costs of a release from a random part of the data, under attack.

Besides the tables of ``bounds_amplification``: noise on a sum is integrated over the mixture of
all batches, and several releases from one batch are multiplied and then mixed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from scipy import special

from ... import privacy
from ...privacy.events import Event, Gaussian, Laplace, Pure, Sampled
from ...privacy.relations import ADD_OR_REMOVE_ONE, REPLACE_ONE
from ...privacy.sampling import Poisson
from ...privacy.subsampled_rdp import rdp_pure_poisson, rdp_pure_without_replacement
from ..attack import Range, pair_quotient
from ..exact import Density
from ..registry import Effort, Evidence, register
from ._search import EXCESS, LOSS, STD, Array, search
from .bounds_amplification import RATE, RENYI, USUAL, attack_tables, mean_laws, renyi_ratio


def mixture(centers: Array, weights: Array, std: float) -> Density:
    """Return a mixture of Gaussians."""
    logs = np.log(weights) - np.log(std) - 0.5 * np.log(2.0 * np.pi)
    return Density(
        lambda x: np.logaddexp.reduce(logs - 0.5 * ((x[:, None] - centers) / std) ** 2, axis=1),
        tuple(np.unique(centers)),
    )


def poisson_gaussian_ratio(
    excess: float,
    rate: float,
    std: float,
    others: Array,
    bound: Callable[..., float] = privacy.rdp_poisson_gaussian,
) -> float:
    """Renyi cost of a noisy sum over a Poisson batch: one record is 1, the others anything."""
    centers, weights = np.zeros(1), np.ones(1)
    for other in others:
        centers = np.concatenate([centers, centers + other])
        weights = np.concatenate([(1.0 - rate) * weights, rate * weights])
    without = mixture(centers[weights > 0.0], weights[weights > 0.0], std)
    centers = np.concatenate([centers, centers + 1.0])
    weights = np.concatenate([(1.0 - rate) * weights, rate * weights])
    with_record = mixture(centers[weights > 0.0], weights[weights > 0.0], std)
    order = 1.0 + excess
    return pair_quotient(
        bound(order, rate, std), (with_record, without), order=order, tolerance=1e-6
    )


@register(
    "bounds-14",
    "`rdp_poisson_gaussian`; Mironov, Talwar, Zhang (2019), Theorems 4 and 5",
    "the pair N(0, s^2), (1-q) N(0, s^2) + q N(1, s^2), one way, bounds both for any data",
    verdict="holds",
)
def rdp_poisson_gaussian(effort: Effort) -> Iterator[Evidence]:
    """Quadrature of the mixtures over all batches, both ways."""
    space = {"excess": EXCESS, "rate": RATE, "std": STD}
    alone = {**space, "others": Range(0.0, 0.0, size=1)}
    options = {"cost": 36, "tolerance": 1e-6}
    ratio = poisson_gaussian_ratio
    yield from search(effort, "no other record", ratio, alone, exact=1e-6, **options)  # type: ignore[arg-type]
    others = {**space, "others": Range(-1.0, 1.0, size=2)}
    yield from search(effort, "two others", ratio, others, **options)  # type: ignore[arg-type]


@register(
    "bounds-15",
    "`rdp_poisson`; Chen and Lee (2020), Lemma 4, after Zhu, Wang (2019), Theorem 6",
    "from the curve on the batch alone, with a factor 3; the chord between integer orders",
    verdict="holds",
)
def rdp_poisson(effort: Effort) -> Iterator[Evidence]:
    """All batches, any mechanism, its own exact curve."""

    def bound(order: float, curve: Any, loss: float, fraction: float, n: int, m: int) -> float:
        return float(privacy.rdp_poisson(order, fraction, curve))

    ratio = partial(renyi_ratio, bound=bound)
    yield from attack_tables(
        effort, ratio, ADD_OR_REMOVE_ONE, RENYI, usual=USUAL, cost=4, tolerance=1e-5
    )


def laplace_law(loss: float) -> tuple[Array, Array]:
    """Return the pair Lap(0), Lap(loss) as finite laws with the same Renyi divergences.

    The tails are two outcomes; between the centres the weights are those of Gauss's rule, on
    panels that get finer towards both centres.
    """
    nodes, weights = np.polynomial.legendre.leggauss(12)
    ends = 0.5 * loss * np.concatenate([[0.0], np.geomspace(1e-7, 1.0, 48)])
    ends = np.concatenate([ends, loss - ends[-2::-1]])
    half = 0.5 * np.diff(ends)[:, None]
    x = (ends[:-1, None] + half * (1.0 + nodes)).ravel()
    mass = 0.5 * (half * weights).ravel()
    p = np.concatenate([[0.5], mass * np.exp(-x), [0.5 * np.exp(-loss)]])
    q = np.concatenate([[0.5 * np.exp(-loss)], mass * np.exp(x - loss), [0.5]])
    return p, q


def gaussian_law(std: float, order: float) -> tuple[Array, Array]:
    """Return the pair N(1, std^2), N(0, std^2) on a grid, with the same Renyi divergences.

    The trapezoidal rule is spectrally accurate: see the notes of ``rdp_poisson_gaussian``.
    """
    step = min(0.3, 0.3 * std)
    z = np.arange(-(order - 1.0) / std - 11.0, order / std + 11.0, step)
    mass = step / np.sqrt(2.0 * np.pi)
    return mass * np.exp(-0.5 * (z - 1.0 / std) ** 2), mass * np.exp(-0.5 * z * z)


def response_law(loss: float) -> tuple[Array, Array]:
    """Return the pair of randomised response."""
    law = np.array([special.expit(loss), special.expit(-loss)])
    return law, law[::-1]


def product(*pairs: tuple[Array, Array]) -> tuple[Array, Array]:
    """Return the laws of independent parts together."""
    laws = [np.ones(1), np.ones(1)]
    for pair in pairs:
        laws = [np.outer(law, part).ravel() for law, part in zip(laws, pair)]
    return laws[0], laws[1]


def batch_ratio(
    excess: float,
    rate: float,
    parts: Callable[[float], list[tuple[Event, tuple[Array, Array]]]],
    cost: Callable[[Sampled, float], float],
) -> float:
    """Renyi cost of one Poisson batch with several releases whose pairs are known."""
    order = 1.0 + excess
    events, laws = zip(*parts(order))
    p, q = product(*laws)
    mixed = (1.0 - rate) * q + rate * p
    bound = cost(Sampled(Poisson(rate), list(events)), order)
    return pair_quotient(bound, (mixed, q), order=order, tolerance=1e-6)


def sampled_cost(event: Sampled, order: float) -> float:
    """Return the Renyi cost of the event."""
    return float(event.rdp_cost(np.array([order]))[0])


def laplace_and_response(
    excess: float, rate: float, loss: float, response: float, cost: Any = sampled_cost
) -> float:
    """Attack a Laplace release and randomised response on one batch."""
    parts = [
        (Laplace(1.0, loss), laplace_law(loss)),
        (Pure(response), response_law(response)),
    ]
    return batch_ratio(excess, rate, lambda order: parts, cost)


def gaussian_and_response(
    excess: float, rate: float, std: float, response: float, cost: Any = sampled_cost
) -> float:
    """Attack a Gaussian release and randomised response on one batch."""
    return batch_ratio(
        excess,
        rate,
        lambda order: [
            (Gaussian(std, 1.0), gaussian_law(std, order)),
            (Pure(response), response_law(response)),
        ],
        cost,
    )


@register(
    "bounds-16",
    "`rdp_poisson(exact_pair=True)`, `Sampled`; errata 002-4, 002-10",
    "factor 1 for a batch of Gaussian, Laplace and pure releases: composed first, amplified once",
    verdict="holds",
)
def rdp_poisson_of_pairs(effort: Effort) -> Iterator[Evidence]:
    """Products of pairs, mixed; both ways."""
    responses = {"rate": RATE, "response": LOSS}
    # The orders that a grid of Gaussian densities without underflow can hold.
    noise = {**responses, "std": Range(0.8, 100.0, log=True)}
    for what, ratio, space, most in (
        ("Laplace and response", laplace_and_response, {**responses, "loss": LOSS}, 499),
        ("Gaussian and response", gaussian_and_response, noise, 19),
    ):
        integers = {**space, "excess": Range(1, most, log=True, integer=True)}
        reals = {**space, "excess": Range(1e-4, most, log=True)}
        name = f"{what}, integer orders"
        yield from search(effort, name, ratio, integers, cost=6, exact=1e-6, tolerance=1e-6)
        name = f"{what}, real orders"
        yield from search(effort, name, ratio, reals, cost=6, tolerance=1e-6)


@register(
    "bounds-17",
    "`rdp_pure_poisson`",
    "the mixed pair of randomised response bounds any epsilon-private release, both ways",
    verdict="holds",
)
def rdp_of_pure_poisson(effort: Effort) -> Iterator[Evidence]:
    """All batches, any mechanism."""

    def bound(order: float, curve: Any, loss: float, fraction: float, n: int, m: int) -> float:
        return float(rdp_pure_poisson(order, fraction, loss))

    ratio = partial(renyi_ratio, bound=bound)
    guess = {"excess": 1.0, "spread": 12.0}
    yield from attack_tables(
        effort, ratio, ADD_OR_REMOVE_ONE, RENYI, guess, cost=2, tight=1e-6, tolerance=1e-5
    )


def without_replacement_gaussian_ratio(
    excess: float, std: float, m: int, data: Array, bound: Any = privacy.rdp_without_replacement
) -> float:
    """Renyi cost of a noisy sum over m of n records in [-1/2, 1/2]."""
    order, n = 1.0 + excess, len(data) - 1
    first, second = (m * means[:, 0] for means in mean_laws(data[:, None], n, m))
    laws = tuple(mixture(c, np.full(c.size, 1.0 / c.size), std) for c in (first, second))
    cost = bound(order, n, m, lambda a: privacy.rdp_gaussian(a, std))
    return pair_quotient(float(cost), laws, order=order, tolerance=1e-5)


@register(
    "bounds-18",
    "`rdp_without_replacement`; Gao and Wright (2023), Theorem B.4; Wang, Balle, "
    "Kasiviswanathan (2019), Theorem 9",
    "from the curve and the pure loss on a batch of m of n records, replace-one",
    verdict="holds",
)
def rdp_without(effort: Effort) -> Iterator[Evidence]:
    """All batches: any mechanism with its own curve, and Gaussian noise by quadrature."""

    def bound(order: float, curve: Any, loss: float, fraction: float, n: int, m: int) -> float:
        return float(privacy.rdp_without_replacement(order, n, m, curve, loss))

    ratio = partial(renyi_ratio, bound=bound)
    yield from attack_tables(effort, ratio, REPLACE_ONE, RENYI, usual=USUAL, cost=3, tolerance=1e-5)
    space = {
        "excess": EXCESS,
        "std": STD,
        "m": Range(1, 2, integer=True),
        "data": Range(-0.5, 0.5, size=4),
    }
    guess = {"excess": 1.0, "std": 1.0, "m": 1, "data": [0.5, -0.5, -0.5, -0.5]}
    yield from search(
        effort,
        "Gaussian noise, n = 3",
        without_replacement_gaussian_ratio,
        space,
        cost=32,
        tolerance=1e-5,
        guesses=[guess],
    )


@register(
    "bounds-19",
    "`rdp_pure_without_replacement`; Balle, Barthe, Gaboardi (2018); Zhu, Dong, Wang (2022)",
    "response at the amplified loss, made with probability (1 + e^x)/(1 + e^epsilon)",
    verdict="holds",
)
def rdp_of_pure_without(effort: Effort) -> Iterator[Evidence]:
    """All batches, any mechanism."""

    def bound(order: float, curve: Any, loss: float, fraction: float, n: int, m: int) -> float:
        return float(rdp_pure_without_replacement(order, n, m, loss))

    ratio = partial(renyi_ratio, bound=bound)
    yield from attack_tables(effort, ratio, REPLACE_ONE, RENYI, usual=USUAL, cost=3, tolerance=1e-5)
