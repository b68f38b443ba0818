"""Helpers shared by the checks of several packages."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from dpanalysis.audit.verify import Verdict, verify_privacy
from dpanalysis.papers.claim import Evidence, NotChecked, printed

from ..protocol import Worker
from ._exact import Allocation, Setting

# Of every black-box test: a correct package is refuted by at most one test in a million.
CONFIDENCE = 1 - 1e-6
# Limits per call, so that a call ends long before its time limit:
_CHUNK = 5000  # runs
_SETTINGS = 50  # settings of an accountant


def check_java() -> None:
    """Raise NotChecked if there is no Java for Spark."""
    if shutil.which("java") is None:
        raise NotChecked("Spark needs Java, and there is no command java here")


def sampler(
    worker: Worker, function: str, chunk: int = _CHUNK, seeded: bool = True, **arguments: Any
) -> Callable[[dict[str, Any], np.random.Generator, int], np.ndarray]:
    """Return a mechanism that runs a function of the probe.

    Its data set is a dictionary of arguments; ``size`` is added, and ``seed`` if the package
    accepts one.
    """

    def mechanism(data: dict[str, Any], rng: np.random.Generator, size: int) -> np.ndarray:
        parts = []
        for start in range(0, size, chunk):
            seed = {"seed": int(rng.integers(2**32))} if seeded else {}
            given = {**arguments, **data, **seed}
            parts.append(worker.call(function, size=min(chunk, size - start), **given))
        return np.concatenate(parts)

    return mechanism


def lower_bound(
    mechanism: Callable[..., Any],
    pair: tuple[Any, Any],
    claim: float,
    samples: int,
    *,
    delta: float = 0.0,
    seed: int = 0,
) -> Verdict:
    """Return the verdict of a black-box test of a pair of neighbours."""
    return verify_privacy(
        mechanism, *pair, claim, delta=delta, samples=samples, confidence=CONFIDENCE, rng=seed
    )


def found(verdict: Verdict, what: str) -> dict[str, Any]:
    """Return a verdict as the arguments of evidence: its bound must not exceed the claim."""
    counts = " and ".join(f"{count:,}" for count in verdict.counts)
    shown = (
        f"{what}: epsilon at least (event '{verdict.event}' in {counts} of {verdict.runs:,} runs)"
    )
    return {
        "what": shown,
        "value": verdict.epsilon,
        "sense": "<=",
        "bound": verdict.claim,
        "cases": 2 * verdict.samples,
    }


def both_bounds(lower: np.ndarray, upper: np.ndarray, exact: np.ndarray) -> Iterator[Evidence]:
    """Yield evidence on whether exact values lie between the bounds reported by a package."""
    width, cases = float(np.median((upper - lower) / exact)), len(exact)
    what = f"least (upper bound - exact); median width of the range is {width:.2%} of epsilon"
    for text, room in ((what, upper - exact), ("least (exact - lower bound)", exact - lower)):
        yield printed(text, float(np.min(room)), ">=", 0.0, tolerance=1e-7, cases=cases)


def asked(
    worker: Worker, function: str, settings: Sequence[Setting | Allocation], **arguments: Any
) -> Any:
    """Return the array of a probe's answers for all settings, requested in chunks."""
    parts = [settings[start : start + _SETTINGS] for start in range(0, len(settings), _SETTINGS)]
    return np.concatenate(
        [
            worker.call(function, settings=[asdict(setting) for setting in part], **arguments)
            for part in parts
        ]
    )
