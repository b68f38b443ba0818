"""The verifier: its time beside the bare draws, its power, and its rate of false alarms.

Power is measured in runs: the number of runs of each input that our verifier needs to refute a
broken mechanism in nine of ten seeds, divided by the number for an oracle that knows the best event
and tests its counts as we do. A ratio is the first of ``MULTIPLES`` with that power; the interval
is Clopper and Pearson's 95% interval of the power. A multiple is rejected as soon as more than a
tenth of all seeds have failed. Part of a ratio is the price of learning: a row gives the multiple
of the oracle's runs that any test needs that does not know which of several independent events
breaks the claim (:func:`price`). The verifier's constants were chosen on these mechanisms, at other
seeds. :mod:`benchmarks.drawn` generates random mechanisms, each of which is audited once, with
``DRAWN_AT`` times the oracle's runs. The peers get as many runs as we need. "Like StatDP" and
"like DP-Sniper" are our short versions, not their authors' code. jax-privacy's own auditor receives
scores: an outcome, its inner product with what the second input adds, or what that adds to the
choice; ours has to learn this. False alarms are measured on mechanisms whose claim is tight, one
verdict per seed; the interval is Clopper and Pearson's at 95%, and the target is the rate that the
confidence allows. For one run with canaries we show the largest mu that a number of right guesses
refutes at confidence .95: by the smaller of both bounds and by each alone (that of Steinke et al.
with the smaller term for delta of :mod:`dpanalysis.audit.canaries`).
"""

from __future__ import annotations

import math
import multiprocessing
import os
import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
from scipy import optimize, special, stats

from dpanalysis.audit import verify_privacy
from dpanalysis.audit.canaries import (
    chance_along_curve,
    chance_by_law,
    gaussian_guessing_probability,
    guessing_probability,
)
from dpanalysis.audit.counting import Counts, log_p_value
from dpanalysis.audit.events import ApproximateLimit
from dpanalysis.privacy import gaussian_epsilon

from .drawn import FAULTS, WIDEST, drawn
from .measure import Effort, compare, here, installed, unavailable
from .mechanisms import CLAIM, Broken, broken, scores
from .peers import verifier_forms
from .table import Row
from .worker import POOLS

SAMPLES = 1_000_000
DELTA = 0.05
POWER = 0.9
FRESH = 100_000  # the first seed: lower seeds were used to choose the verifier's constants
MULTIPLES = (1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0)
DRAWN_AT = 2.5
ONE_DELTA = 1e-5  # for bounds that use one delta of the Gaussian curve
RIVALS = {"like StatDP": verifier_forms.stat_dp, "like DP-Sniper": verifier_forms.dp_sniper}
AUDITORS = {"jax-privacy": verifier_forms.jax_privacy}  # of scores; packages may be missing
LIE = 1.0 / (1.0 + math.e)


DP_AUDITORIUM = (
    "dp_auditorium is on no package index (a folder of google/differential-privacy); its import "
    "needs google-vizier and TensorFlow"
)


def laplace(count: float, rng: Any, size: int) -> np.ndarray:
    return count + rng.laplace(0.0, 1.0, size)


def by_standard_deviation(count: float, rng: Any, size: int) -> np.ndarray:
    return count + rng.laplace(0.0, 1.0 / math.sqrt(2.0), size)


def gaussian(count: float, rng: Any, size: int) -> np.ndarray:
    return count + rng.normal(0.0, 1.0, size)


def vector(count: float, rng: Any, size: int) -> np.ndarray:
    return count / math.sqrt(20.0) + rng.normal(0.0, 1.0, (size, 20))


def randomized_response(bit: int, rng: Any, size: int) -> np.ndarray:
    return (rng.random(size) < LIE) != bool(bit)


def noise_beside(count: float, rng: Any, size: int) -> np.ndarray:
    values = rng.laplace(0.0, 1.0, (size, 3))
    values[:, 0] += count
    return values


# Mechanisms with a tight claim: name, mechanism, epsilon, delta, what the second input adds.
TIGHT = [
    ("Laplace", laplace, 1.0, 0.0, 1.0),
    ("Gaussian", gaussian, gaussian_epsilon(1.0, DELTA), DELTA, 1.0),
    ("randomized response", randomized_response, 1.0, 0.0, 1.0),
    ("vector of 3, one leaks", noise_beside, 1.0, 0.0, np.eye(3)[0]),
]
ALARM_SAMPLES = 2_000


def bare(mechanism: Callable[..., np.ndarray], samples: int) -> None:
    """Draw the samples of a verdict: all runs of both inputs."""
    random = np.random.default_rng(0)
    for data in (0, 1):
        mechanism(data, random, samples)


def timed(
    key: str, law: str, mechanism: Any, samples: int, turns: int, delta: float = 0.0
) -> list[Row]:
    """Time a verdict against the bare draws."""
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


def interval(count: int, of: int) -> tuple[float, float]:
    """Return Clopper and Pearson's 95% interval of a rate."""
    low = special.betaincinv(count, of - count + 1, 0.025) if count else 0.0
    high = special.betaincinv(count + 1, of - count, 0.975) if count < of else 1.0
    return float(low), float(high)


def alarms(
    name: str,
    mechanism: Any,
    epsilon: float,
    delta: float,
    canary: Any,
    confidence: float,
    seeds: int,
) -> Iterator[Row]:
    """Count the seeds at which a correct mechanism is refuted, by us and by auditors of scores."""
    options = {"delta": delta, "samples": ALARM_SAMPLES, "confidence": confidence}
    count = sum(
        verify_privacy(mechanism, 0, 1, epsilon, rng=seed, **options).refuted
        for seed in range(seeds)
    )
    low, high = interval(count, seeds)
    key = f"false alarms at confidence {confidence:g}"
    shown = f"{count} of {seeds:,} seeds ({100 * low:.2f}% to {100 * high:.2f}%)"
    rate = (100.0 * count / seeds,)
    yield Row(key, f"{name}, {shown}", rate, unit="%")
    for peer, auditor in _auditors().items() if confidence > 0.5 else ():
        given = (partial(scores, mechanism, canary), epsilon, delta, ALARM_SAMPLES)
        rngs = map(np.random.default_rng, range(seeds))
        count = sum(auditor(*given, 1.0 - confidence, rng) for rng in rngs)
        low, high = interval(count, seeds)
        shown = f"{count} of {seeds:,} seeds ({100 * low:.2f}% to {100 * high:.2f}%)"
        other = (100.0 * count / seeds,)
        yield Row(key, f"{name}, the other {shown}", rate, "%", peer, other)


def _auditors() -> dict[str, Callable[..., bool]]:
    """Return the auditors of scores that are installed."""
    return {name: auditor for name, auditor in AUDITORS.items() if installed(name)}


def oracle_samples(case: Broken, miss: float) -> int:
    """Return the number of runs of each input with which the best event has power .9.

    The normal quantile of the power grows like the root of the number of runs.
    """
    c, z = math.exp(CLAIM), -float(special.ndtri(miss))
    aim = z + float(special.ndtri(POWER))
    variance = case.p * (1.0 - case.p) + c**2 * case.q * (1.0 - case.q)
    runs = aim**2 * variance / (case.p - c * case.q - case.delta) ** 2
    for _ in range(3):
        runs *= (aim / (float(special.ndtri(_oracle_power(case, int(runs), miss))) + z)) ** 2
    return math.ceil(runs)


def _oracle_power(case: Broken, runs: int, miss: float) -> float:
    """Return the probability that the counts of the best event refute the claim.

    The fewest counts x that refute with y are searched at three y, and nearly linear between them.
    The slope is midway between the ratios of the claim and of the mechanism; the slope of
    :func:`~dpanalysis.audit.counting.best_slope` would need fewer runs.
    """
    limit = ApproximateLimit(case.delta)
    slope = 0.5 * (math.exp(CLAIM) + (case.p - case.delta) / case.q)
    law = stats.binom(runs, case.q)
    places = law.ppf([1e-3, 0.5, 0.999])
    least = []
    for y in places:
        low, high = int(y), runs  # low does not refute, high does
        while high - low > 1:
            x = (low + high) // 2
            counts = Counts(x, int(y), runs, slope)
            refutes = log_p_value(counts, limit, CLAIM, miss)[0] <= math.log(miss)
            low, high = (low, x) if refutes else (x, high)
        least.append(high)
    y = np.arange(places[0], places[2] + 1)
    x = np.ceil(np.interp(y, places, least))
    return float(law.pmf(y) @ stats.binom.sf(x - 1, runs, case.p))


def power(case: Broken, samples: int, confidence: float, seeds: int) -> int:
    """Return how many seeds refute; stop as soon as too many have failed."""
    refuted = failed = 0
    for seed in range(FRESH, FRESH + seeds):
        verdict = verify_privacy(
            case.mechanism,
            0,
            1,
            CLAIM,
            delta=case.delta,
            samples=samples,
            confidence=confidence,
            rng=seed,
        )
        refuted, failed = refuted + verdict.refuted, failed + (not verdict.refuted)
        if failed > (1.0 - POWER) * seeds + 1e-9:
            break
    return refuted


def power_of(case: Broken, confidence: float, seeds: int, rivals: int) -> Iterator[Row]:
    """Yield our runs against the oracle's, and the power of peers with as many runs as ours."""
    oracle = oracle_samples(case, 1.0 - confidence)
    for multiple in MULTIPLES:
        n = round(multiple * oracle)
        refuted = power(case, n, confidence, seeds)
        if refuted >= POWER * seeds - 1e-9:
            break
    else:
        raise RuntimeError(f"{case.name}: power {POWER} is not reached at {MULTIPLES[-1]} x")
    low, high = interval(refuted, seeds)
    kind = "of numbers" if case.simple else "of selections and vectors"
    key = f"runs for power {POWER:g} at confidence {_shown(confidence)}, {kind}"
    text = f"{case.name}, {refuted} of {seeds} seeds ({low:.2f} to {high:.2f})"
    yield Row(key, text, (float(n),), unit="runs", peer="oracle", other=(float(oracle),))
    if not rivals:
        return
    others = [(name, peer, case.mechanism) for name, peer in RIVALS.items()]
    others += [(name, peer, case.score) for name, peer in _auditors().items()]
    for name, peer, mechanism in others:
        rngs = [np.random.default_rng(FRESH + s) for s in range(rivals)]
        given = (mechanism, CLAIM, case.delta, n, 1.0 - confidence)
        count = sum(peer(*given, rng) for rng in rngs)
        low, high = interval(count, rivals)
        yield Row(
            f"power with these runs at confidence {_shown(confidence)}",
            f"{case.name}, the other {count} of {rivals} seeds ({low:.2f} to {high:.2f})",
            (refuted / seeds,),
            unit="",
            peer=name,
            other=(count / rivals,),
        )


def price(events: int, miss: float, repeats: int = 40_000) -> float:
    """Return the multiple of the oracle's runs that any test needs without knowing the event.

    One of ``events`` independent events lies d standard errors above the claim, the others at it.
    Averaged over the choice of that event, no test has more power than the mixture's likelihood
    ratio test (Neyman and Pearson), based on the sum of exp(d z); find d with power .9.
    """
    z = np.random.default_rng(0).normal(size=(repeats, events))

    def chance(d: float) -> float:
        moved = z.copy()
        moved[:, 0] += d
        bound = np.quantile(special.logsumexp(d * z, axis=1), 1.0 - miss)
        return float(np.mean(special.logsumexp(d * moved, axis=1) > bound))

    aim = float(special.ndtri(1.0 - miss) + special.ndtri(POWER))
    d = optimize.brentq(lambda d: chance(d) - POWER, 0.5 * aim, 4.0 * aim, xtol=1e-3)
    return float(d / aim) ** 2


def missed(fault: str, confidence: float, count: int) -> Row:
    """Count the drawn mechanisms with a fault that are not refuted by one audit each."""
    failed = 0
    for seed in range(FRESH, FRESH + count):
        case = drawn(fault, seed).broken
        samples = round(DRAWN_AT * oracle_samples(case, 1.0 - confidence))
        options = {"delta": case.delta, "samples": samples, "confidence": confidence, "rng": seed}
        failed += not verify_privacy(case.mechanism, 0, 1, CLAIM, **options).refuted
    low, high = interval(failed, count)
    key = f"drawn mechanisms missed at {DRAWN_AT:g} times the oracle's runs, confidence "
    text = f"{fault}, {failed} of {count} ({100 * low:.0f}% to {100 * high:.0f}%)"
    return Row(key + _shown(confidence), text, (100.0 * failed / count,), unit="%")


def one_run(canaries: int, guesses: int, correct: int) -> Iterator[Row]:
    """Yield the bound on mu from a number of right guesses, against each bound alone."""

    def least(chance: Callable[[int, int, int, float], float]) -> float:
        """Return the mu at which the probability of so many right guesses is .05."""
        return float(
            optimize.brentq(
                lambda mu: chance(correct, guesses, canaries, mu) - 0.05, 1e-3, 12.0, xtol=1e-4
            )
        )

    def one_delta(correct: int, guesses: int, canaries: int, mu: float) -> float:
        epsilon = float(gaussian_epsilon(1.0 / mu, ONE_DELTA))
        return guessing_probability(correct, guesses, canaries, epsilon, ONE_DELTA)

    ours = least(gaussian_guessing_probability)
    others = {
        "Mahloujifar et al. (2024)": chance_by_law,
        "Steinke et al. (2023), all deltas": chance_along_curve,
        f"Steinke et al. (2023), delta = {ONE_DELTA:g}": one_delta,
    }
    case = f"{correct:,} of {guesses:,} right, {canaries:,} canaries"
    for peer, chance in others.items():
        yield Row("mu refuted by one run", case, (ours,), "", peer, (least(chance),))


def _shown(confidence: float) -> str:
    return f"{confidence:g}" if confidence < 0.999 else f"1 - {1.0 - confidence:.0e}"


def run(quick: bool) -> Iterator[Row]:
    """Time three verdicts, count false alarms, and search for the runs needed for power."""
    samples, turns, seeds = (200_000, 2, 100) if quick else (SAMPLES, 5, 2_000)
    short = by_standard_deviation
    yield from timed("verdict on a million runs", "Laplace", laplace, SAMPLES, turns)
    yield from timed("verdict", "Laplace, noise sqrt 2 too small", short, samples, turns)
    yield from timed("verdict", "Gaussian in 20 dimensions", vector, samples // 5, turns, DELTA)
    unavailable("dp-auditorium", DP_AUDITORIUM)
    _auditors()  # record missing packages here: the processes below record them for themselves
    for share in (0.7, 0.9, 0.99):
        for guesses in (200, 1_000):
            yield from one_run(1_000, guesses, round(share * guesses))
    for events in (2, 10, 100):
        key, text = "every test's runs over the oracle's, at least", f"one of {events} events"
        yield Row(f"{key}, confidence 0.9", f"{text} breaks the claim", (price(events, 0.1),), "")
    jobs: list[tuple[Any, ...]] = [
        (_alarms, place, confidence, seeds)
        for confidence in (0.5, 0.9, 0.99)
        for place in range(len(TIGHT) if confidence == 0.9 else len(TIGHT) - 1)
    ]
    repeats = (10, 10) if quick else (40, 10)
    jobs += [
        (_power, place, confidence, *repeats)
        for confidence in ((0.9,) if quick else (1.0 - 1e-9, 0.9))
        for place in range(len(list(broken())))
    ]
    jobs += [(_missed, fault, 1.0 - 1e-9, 3 if quick else 40) for fault in FAULTS]
    # Nothing is timed here, so the cores run different cases.
    with (
        mock.patch.dict(os.environ, dict.fromkeys(POOLS, "1")),
        ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as pool,
    ):
        for rows in pool.map(_done, jobs):
            yield from rows


def _alarms(place: int, confidence: float, seeds: int) -> list[Row]:
    return list(alarms(*TIGHT[place], confidence, seeds))


def _power(place: int, confidence: float, seeds: int, rivals: int) -> list[Row]:
    return list(power_of(list(broken())[place], confidence, seeds, rivals))


def _missed(fault: str, confidence: float, count: int) -> list[Row]:
    return [missed(fault, confidence, count)]


def _done(job: tuple[Any, ...]) -> list[Row]:
    return job[0](*job[1:])


def summary(rows: Iterable[Row]) -> str:
    """Return sentences on the worst rows: the most runs and the most false alarms.

    For drawn mechanisms, return the share that was refuted.
    """
    runs: dict[str, dict[str, float]] = {}
    lost: dict[str, list[tuple[str, int, int]]] = {}
    false: dict[str, tuple[float, str]] = {}
    for row in rows:
        confidence, _, kind = row.key.partition(" at confidence ")[2].partition(", ")
        if row.key.startswith("runs for power"):
            kinds = runs.setdefault(confidence, {})
            kinds[kind] = max(kinds.get(kind, 0.0), row.ours[0] / row.other[0])
        elif row.key.startswith("drawn mechanisms missed"):
            fault, _, found = row.case.rpartition(", ")
            failed, count = map(int, re.findall(r"\d+", found)[:2])
            lost.setdefault(row.key.partition(" missed at ")[2], []).append((fault, failed, count))
        elif row.key.startswith("false alarms") and not row.peer:
            found = row.case.rpartition(", ")[2].partition(" (")[0].replace(" seeds", " audits")
            false[confidence] = max(false.get(confidence, (-1.0, "")), (row.ours[0], found))
    sentences = []
    for confidence, kinds in runs.items():
        times = " or ".join(f"{ratio:.3g} times (releases {kind})" for kind, ratio in kinds.items())
        sentences.append(
            f"At confidence {confidence} nine of ten audits refute a broken mechanism with at most "
            f"{times} the runs of an oracle that knows the best event."
        )
    for effort, found_of in lost.items():
        faults, failures, drawings = zip(*found_of)
        failed, total = sum(failures), sum(drawings)
        ends = [f"{100.0 * end:.1f}" for end in interval(total - failed, total)]
        sentences.append(
            f"Of {total} mechanisms drawn by a generator ({', '.join(faults)}; up to {WIDEST} "
            "numbers, in arrays, dictionaries and sequences of words) "
            f"{100.0 - 100.0 * failed / total:.1f} % are refuted by one audit at {effort} "
            f"(95 % interval: {' to '.join(ends)})."
        )
    if false:
        counts = ", ".join(f"{count} at confidence {level}" for level, (_, count) in false.items())
        sentences.append(f"A mechanism that keeps its claim was refuted in at most {counts}.")
    return " ".join(sentences)
