"""The verifier: its time beside the bare draws, its power, and its rate of false alarms.

Power is counted in runs: how many of each input our verifier needs to refute a broken mechanism in
nine of ten seeds, over how many an oracle needs that knows the best event and tests its counts as
we do. The multiples tried are those of ``MULTIPLES``, and a ratio is the first of them with that
power. The verifier's constants were chosen on nine of these mechanisms, at other seeds. The peers
are short forms of ours, not their authors' code, and run with as many runs as we need. The rates
are measured on mechanisms that satisfy their claim with nothing to spare, one verdict a seed; the
interval is Clopper and Pearson's at 95%, and the target is the rate that the confidence allows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from scipy import special

from dpanalysis.audit import verify_privacy
from dpanalysis.audit.empirical.joint import Counts, log_p_value
from dpanalysis.audit.empirical.limits import ApproximateLimit
from dpanalysis.privacy import gaussian_epsilon

from .measure import Effort, compare, here, unavailable
from .mechanisms import CLAIM, Broken, broken
from .peers import verifier_forms
from .table import Row

SAMPLES = 1_000_000
DELTA = 0.05
POWER = 0.9
FRESH = 100_000  # the first seed: those from 0 on were used to choose the verifier's constants
MULTIPLES = (1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0)
LIE = 1.0 / (1.0 + math.e)


# Auditors that are not measured: neither tests a claim from the outputs of a mechanism here.
WHY = {
    "jax-privacy": "jax-privacy's auditor takes scores of canaries and knows no mechanism; its "
    "import needs chex and optax, which are not installed",
    "dp-auditorium": "dp_auditorium is on no package index (a folder of google/differential-"
    "privacy)",
}


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


def oracle_samples(case: Broken, miss: float) -> int:
    """Return with how many runs of each input the best event refutes in nine of ten draws."""
    random, c = np.random.default_rng(0), math.exp(CLAIM)
    variance = case.p * (1.0 - case.p) + c**2 * case.q * (1.0 - case.q)
    z = special.ndtri(0.9) - special.ndtri(miss)
    runs = 0.9 * z**2 * variance / (case.p - c * case.q - case.delta) ** 2
    slope, limit = 0.5 * (c + (case.p - case.delta) / case.q), ApproximateLimit(case.delta)
    while True:
        n = int(runs)
        refuted = [
            log_p_value(Counts(x, y, n, slope), limit, CLAIM, miss)[0] <= math.log(miss)
            for x, y in zip(random.binomial(n, case.p, 200), random.binomial(n, case.q, 200))
        ]
        if np.mean(refuted) >= POWER:
            return n
        runs *= 1.04


def power_of(case: Broken, confidence: float, seeds: int) -> Iterator[Row]:
    """Yield our runs beside the oracle's, and the power of others with as many as we need."""
    oracle = oracle_samples(case, 1.0 - confidence)
    reached, n = 0.0, oracle
    for multiple in MULTIPLES:
        n = round(multiple * oracle)
        refuted = (
            verify_privacy(
                case.mechanism,
                0,
                1,
                CLAIM,
                delta=case.delta,
                samples=n,
                confidence=confidence,
                rng=s,
            ).refuted
            for s in range(FRESH, FRESH + seeds)
        )
        reached = sum(refuted) / seeds
        if reached >= POWER:
            break
    kind = "of numbers" if case.simple else "of selections and vectors"
    key = f"runs for power {POWER:g} at confidence {_shown(confidence)}, {kind}"
    text = f"{case.name}, power {reached:.2f} over {seeds} seeds"
    yield Row(key, text, (float(n),), unit="runs", peer="oracle", other=(float(oracle),))
    for name, peer in (
        ("like StatDP", verifier_forms.stat_dp),
        ("like DP-Sniper", verifier_forms.dp_sniper),
    ):
        count = sum(
            peer(
                case.mechanism,
                CLAIM,
                case.delta,
                n,
                1.0 - confidence,
                np.random.default_rng(FRESH + s),
            )
            for s in range(max(5, seeds // 2))
        ) / max(5, seeds // 2)
        yield Row(
            f"power with these runs at confidence {_shown(confidence)}",
            case.name,
            (reached,),
            unit="",
            peer=name,
            other=(count,),
        )


def _shown(confidence: float) -> str:
    return f"{confidence:g}" if confidence < 0.999 else f"1 - {1.0 - confidence:.0e}"


def run(quick: bool) -> Iterator[Row]:
    """Time three verdicts and count false alarms; the bounds found are in the text."""
    samples, turns, seeds = (200_000, 2, 100) if quick else (SAMPLES, 5, 2_000)
    short = by_standard_deviation
    yield from timed("verdict on a million runs", "Laplace", laplace, SAMPLES, turns)
    yield from timed("verdict", "Laplace, noise sqrt 2 too small", short, samples, turns)
    yield from timed("verdict", "Gaussian in 20 dimensions", vector, samples // 5, turns, DELTA)
    for confidence in (0.5, 0.9, 0.99):
        for tight in TIGHT:
            yield alarms(*tight, confidence, seeds)
    for package in ("jax-privacy", "dp-auditorium"):
        unavailable(package, WHY[package])
    for confidence in (1.0 - 1e-9, 0.9):
        for case in broken():
            yield from power_of(case, confidence, 10 if quick else 40)
