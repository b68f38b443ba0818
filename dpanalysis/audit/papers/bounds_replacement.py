"""Bounds on a batch drawn with replacement, under attack: all draws of a few records."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy import special

from ...privacy.events import Gaussian, Sampled
from ...privacy.sampling import WithReplacement
from ...privacy.with_replacement import pure_with_replacement, rdp_with_replacement
from ..attack import Range, pair_quotient, quotient
from ..registry import Effort, Evidence, register
from ._search import DELTA, EXCESS, LOSS, Array, search
from .bounds_amplification import batches
from .bounds_composed import claimed_epsilon
from .bounds_sampled import mixture


def draws(data: Array, m: int) -> tuple[Array, Array]:
    """Return the sums of all m draws from the records 0..n-1, and from the records 1..n."""
    n = len(data) - 1
    rows = np.array(list(itertools.product(range(n), repeat=m)))
    return data[rows].sum(axis=1), data[1:][rows].sum(axis=1)


def pure_ratio(
    epsilon: float, m: int, data: Array, bound: Callable[..., float] = pure_with_replacement
) -> float:
    """Attack the pure loss of a Laplace release of a sum; the kinks are enough."""
    sums = draws(data, m)
    grid = np.unique(np.concatenate(sums))[:, None]
    logs = [special.logsumexp(-np.abs(grid - c) * epsilon, axis=1) for c in sums]
    exact = float(np.abs(logs[0] - logs[1]).max())
    return quotient(bound(epsilon, len(data) - 1, m), exact)


def noisy(data: Array, m: int, std: float) -> list[Any]:
    """Return the laws of a sum with Gaussian noise."""
    laws = []
    for sums in draws(data, m):
        centers, counts = np.unique(np.round(sums, 12), return_counts=True)
        laws.append(mixture(centers, counts / counts.sum(), std))
    return laws


def renyi_ratio(
    excess: float,
    std: float,
    m: int,
    data: Array,
    bound: Callable[..., Any] = rdp_with_replacement,
) -> float:
    """Attack the Renyi cost of Gaussian noise on a sum."""
    order = 1.0 + excess
    value = float(bound(order, len(data) - 1, m, std))
    return pair_quotient(value, noisy(data, m, std), order=order, tolerance=1e-5)


def delta_ratio(
    std: float, m: int, data: Array, delta: float, bound: Any = claimed_epsilon
) -> float:
    """Attack the epsilon by loss distributions."""
    event = Sampled(WithReplacement(m), [Gaussian(std, 1.0)], n=len(data) - 1)
    epsilon = bound({event: 1}, delta)
    return pair_quotient(delta, noisy(data, m, std), epsilon=epsilon, tolerance=1e-5)


@register(
    "bounds-28",
    "`pure_with_replacement`, `rdp_with_replacement`, `pld_epsilon`; "
    "Balle, Barthe, Gaboardi (2018), Theorem 10",
    "m draws of n records: a record drawn k times moves k slots, replace-one",
    verdict="holds",
)
def with_replacement(effort: Effort) -> Iterator[Evidence]:
    """All draws of records in [-1/2, 1/2]: Laplace noise by its kinks, Gaussian by quadrature."""
    n = 3
    std = Range(0.5, 30.0, log=True)
    # All other records are opposite to the one replaced.
    opposite = {"m": n, "data": [0.5, *[-0.5] * n]}
    few = {"m": batches(n), "data": Range(-0.5, 0.5, size=n + 1)}
    guess: dict[str, Any] = {"epsilon": 1.0, **opposite}
    space = {"epsilon": LOSS, **few}
    yield from search(
        effort, "loss", pure_ratio, space, guesses=[guess], tight=1e-9, tolerance=1e-8
    )
    guess = {"excess": 78.0, "std": 0.5, **opposite}
    space = {"excess": EXCESS, "std": std, **few}
    yield from search(effort, "Renyi", renyi_ratio, space, cost=32, guesses=[guess], tolerance=1e-5)
    guess = {"delta": 1e-3, "std": 2.0, **opposite, "m": 2}
    space = {"delta": DELTA, "std": std, **few}
    yield from search(
        effort, "delta", delta_ratio, space, cost=120, guesses=[guess], tolerance=1e-5
    )
