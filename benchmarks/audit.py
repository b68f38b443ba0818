"""The verifier: its time beside the bare draws, its power, and its rate of false alarms.

The rates are measured on mechanisms that satisfy
their claim with nothing to spare, one verdict a seed; the interval is Clopper and Pearson's at
95%, and the target is the rate that the confidence allows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from scipy import special

from dpanalysis.audit import verify_privacy
from dpanalysis.privacy import gaussian_epsilon

from .measure import Effort, compare, here
from .table import Row

SAMPLES = 1_000_000
DELTA = 0.05
LIE = 1.0 / (1.0 + math.e)


def laplace(count: float, rng: Any, size: int) -> np.ndarray:
    return count + rng.laplace(0.0, 1.0, size)


def by_standard_deviation(count: float, rng: Any, size: int) -> np.ndarray:
    return count + rng.laplace(0.0, 1.0 / math.sqrt(2.0), size)


def gaussian(count: float, rng: Any, size: int) -> np.ndarray:
    return count + rng.normal(0.0, 1.0, size)


def vector(count: float, rng: Any, size: int) -> np.ndarray:
    return count / math.sqrt(20.0) + rng.normal(0.0, 1.0, (size, 20))


def randomised_response(bit: int, rng: Any, size: int) -> np.ndarray:
    return (rng.random(size) < LIE) != bool(bit)


# Mechanisms at their claim: name, mechanism, epsilon, delta.
TIGHT = [
    ("Laplace", laplace, 1.0, 0.0),
    ("Gaussian", gaussian, gaussian_epsilon(1.0, DELTA), DELTA),
    ("randomised response", randomised_response, 1.0, 0.0),
]


def bare(mechanism: Callable[..., np.ndarray], samples: int) -> None:
    """Draw what a verdict draws: all runs of both inputs."""
    random = np.random.default_rng(0)
    for data in (0, 1):
        mechanism(data, random, samples)


def timed(
    key: str, law: str, mechanism: Any, samples: int, turns: int, delta: float = 0.0
) -> list[Row]:
    """Time a verdict beside the bare draws."""
    epsilon = gaussian_epsilon(1.0, delta) if delta else 1.0
    verify = partial(
        verify_privacy, mechanism, 0, 1, epsilon, delta=delta, samples=samples, rng=turns
    )
    verdict = verify()
    found = "refuted" if verdict.refuted else "not refuted"
    return compare(
        key,
        f"{law}, {samples:,} runs of each input: epsilon >= {verdict.epsilon:.3f} of {epsilon:.3g} "
        f"claimed, {found}",
        here(verify),
        {"bare draws": here(partial(bare, mechanism, samples))},
        Effort(turns, 0.0, 1),
    )


def alarms(
    name: str, mechanism: Any, epsilon: float, delta: float, confidence: float, seeds: int
) -> Row:
    """Count the seeds at which a correct mechanism is refuted."""
    count = sum(
        verify_privacy(
            mechanism, 0, 1, epsilon, delta=delta, samples=2_000, confidence=confidence, rng=seed
        ).refuted
        for seed in range(seeds)
    )
    low = special.betaincinv(count, seeds - count + 1, 0.025) if count else 0.0
    high = special.betaincinv(count + 1, seeds - count, 0.975) if count < seeds else 1.0
    case = f"{name}, {count} of {seeds:,} seeds ({100 * low:.2f}% to {100 * high:.2f}%)"
    rate = 100.0 * count / seeds
    return Row(f"false alarms at confidence {confidence:g}", case, (rate,), unit="%")


def run(quick: bool) -> Iterator[Row]:
    """Time three verdicts and count false alarms; the bounds found are in the text."""
    samples, turns, seeds = (200_000, 2, 100) if quick else (SAMPLES, 5, 1_000)
    short = by_standard_deviation
    yield from timed("verdict on a million runs", "Laplace", laplace, SAMPLES, turns)
    yield from timed("verdict", "Laplace, noise sqrt 2 too small", short, samples, turns)
    yield from timed("verdict", "Gaussian in 20 dimensions", vector, samples // 5, turns, DELTA)
    for confidence in (0.5, 0.9, 0.99):
        for tight in TIGHT:
            yield alarms(*tight, confidence, seeds)
