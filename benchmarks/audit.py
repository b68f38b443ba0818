"""The verifier: its time beside the bare draws, its power, and its rate of false alarms.

Run it alone with ``python -m benchmarks audit``. The rates are measured on mechanisms that satisfy
their claim with nothing to spare, one verdict a seed; the interval is Clopper and Pearson's at
95%, and the target is the rate that the confidence allows.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import special

from dpanalysis.audit import verify_privacy
from dpanalysis.privacy import gaussian_epsilon

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


def timed(work: str, mechanism: Any, samples: int, repetitions: int, target: str) -> dict[str, Any]:
    """Time a verdict beside the bare draws, by turns."""
    epsilon = gaussian_epsilon(1.0, DELTA) if mechanism is vector else 1.0
    delta = DELTA if mechanism is vector else 0.0
    times: tuple[list[float], list[float]] = ([], [])
    for seed in range(repetitions + 1):
        start = time.perf_counter()
        verdict = verify_privacy(mechanism, 0, 1, epsilon, delta=delta, samples=samples, rng=seed)
        middle = time.perf_counter()
        bare(mechanism, samples)
        times[0].append(1e3 * (middle - start))
        times[1].append(1e3 * (time.perf_counter() - middle))
    ours, peer = (statistics.median(kept[1:]) for kept in times)
    found = "refuted" if verdict.refuted else "not refuted"
    return {
        "work": f"{work}: epsilon >= {verdict.epsilon:.3f} of {epsilon:.3g} claimed, {found}",
        "ours_ms": ours,
        "peer": "bare draws",
        "peer_ms": peer,
        "ratio": peer / ours,
        "target": target,
    }


def alarms(
    name: str, mechanism: Any, epsilon: float, delta: float, confidence: float, seeds: int
) -> dict[str, Any]:
    """Count the seeds at which a correct mechanism is refuted."""
    start = time.perf_counter()
    count = sum(
        verify_privacy(
            mechanism, 0, 1, epsilon, delta=delta, samples=2_000, confidence=confidence, rng=seed
        ).refuted
        for seed in range(seeds)
    )
    seconds = time.perf_counter() - start
    low = special.betaincinv(count, seeds - count + 1, 0.025) if count else 0.0
    high = special.betaincinv(count + 1, seeds - count, 0.975) if count < seeds else 1.0
    return {
        "work": f"false alarms, {name} at confidence {confidence:g}: {count} of {seeds:,} seeds "
        f"({100 * low:.2f}% to {100 * high:.2f}%)",
        "ours_ms": 1e3 * seconds / seeds,
        "peer": None,
        "peer_ms": None,
        "ratio": None,
        "target": f"at most {100 * (1 - confidence):g}%",
    }


def run(quick: bool = False) -> list[dict[str, Any]]:
    """Return one row a measurement; rates and bounds are in the text of ``work``."""
    samples, repetitions, seeds = (200_000, 2, 100) if quick else (SAMPLES, 5, 1_000)
    rows = [
        timed(f"verdict, Laplace, {samples:,} runs", laplace, samples, repetitions, "1 s"),
        timed("the same, noise sqrt 2 too small", by_standard_deviation, samples, repetitions, ""),
        timed("verdict, Gaussian in 20 dimensions", vector, samples // 5, repetitions, ""),
    ]
    for confidence in (0.5, 0.9, 0.99):
        rows += [alarms(*tight, confidence, seeds) for tight in TIGHT]
    return rows


if __name__ == "__main__":
    for row in run():
        print(f"{row['ours_ms']:10.2f} ms  {row['work']}  target {row['target']}")
