"""OpenDP: privacy maps of measurements."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dpanalysis.papers.claim import Effort, Evidence, printed, used
from dpanalysis.privacy.accounting.zcdp import gaussian_delta, gaussian_epsilon

from ..protocol import Worker
from ..registry import Package, register
from ._exact import margins, settings
from ._tools import asked, found, lower_bound, sampler

PACKAGE = Package(
    name="opendp",
    version="0.16.0",
    probe=Path(__file__).parents[1] / "probes" / "opendp.py",
    setting="A measurement's privacy map says what is spent at a distance of its input metric. The "
    "constructors need the feature `contrib`: 'proofs for correctness have not completed the "
    "vetting process'.",
)


@register(
    PACKAGE,
    1,
    "https://docs.rs/opendp/0.16.0/opendp/measurements/fn.make_laplace.html and "
    "fn.make_gaussian.html",
    "`make_laplace(scale)` spends what its map says, `make_gaussian(scale)` too",
    configuration="vectors of int and of float (L1 and L2 distance), scale 1, values 0 and 1; "
    "Laplace: epsilon = map(1); Gaussian: epsilon of Gaussian noise at delta = 0.01",
    untested="granularities other than the default, big integers, thresholds, the "
    "lowest bits of a float",
    verdict="holds",
)
def noise(worker: Worker, effort: Effort) -> Iterator[Evidence]:
    """Run black-box tests at distance 1."""
    samples = effort.cases(10_000, 100_000)
    for name, delta in (("make_laplace", 0.0), ("make_gaussian", 0.01)):
        for kind in ("int", "float"):
            reported = worker.call("privacy_map", name=name, scale=1.0, kind=kind, distance=1)
            epsilon = reported if delta == 0.0 else gaussian_epsilon(1.0, delta)
            mechanism = sampler(worker, "release", seeded=False, name=name, scale=1.0, kind=kind)
            verdict = lower_bound(
                mechanism, ({"value": 0.0}, {"value": 1.0}), epsilon, samples, delta=delta
            )
            yield printed(**found(verdict, f"{name}, {kind}"))
            exact = 1.0 if delta == 0.0 else 0.5
            yield printed(f"{name}, {kind}: map(1)", reported, ">=", exact)


@register(
    PACKAGE,
    2,
    "https://docs.rs/opendp/0.16.0/opendp/combinators/fn.make_zCDP_to_approxDP.html",
    "`make_zCDP_to_approxDP` gives an upper bound of epsilon at delta",
    configuration="`make_gaussian` of a float, distance 1; random scales from 0.37 to 12, delta "
    "from 1e-9 to 0.01",
    untested="measurements other than Gaussian noise",
    verdict="holds",
)
def conversion(worker: Worker, effort: Effort) -> Iterator[Evidence]:
    """Compare the reported epsilon with the exact one of one Gaussian."""
    drawn = settings(effort.random(), effort.cases(100, 1000))
    chosen = [replace(setting, rate=1.0, steps=1) for setting in drawn]
    reported = asked(worker, "gaussian_epsilons", chosen)
    useful = np.array([setting.exact > 0.0 for setting in chosen])
    chosen = [setting for setting, keep in zip(chosen, useful) if keep]
    least, loose = margins(reported[useful], chosen)
    what = f"least (reported - exact); median of reported/exact is {loose:.4f}"
    yield printed(what, least, ">=", 0.0, cases=len(chosen))


@register(
    PACKAGE,
    3,
    "https://docs.rs/opendp/0.16.0/opendp/measurements/fn.make_randomized_response.html and "
    "fn.make_noisy_max.html",
    "randomized response and the noisy maximum spend what their maps say",
    configuration="responses of 2, 3 and 10 categories, true with probability 0.2 to 0.99; noisy "
    "maximum of the scores (0, 0, 0) and (1, -1, -1), scale 2, pure privacy",
    untested="`make_noisy_top_k`, zCDP, more scores",
    verdict="holds",
)
def choices(worker: Worker, effort: Effort) -> Iterator[Evidence]:
    """Compare exactly for responses; run a black-box test for the maximum."""
    least, cases = math.inf, 0
    for categories in (2, 3, 10):
        for true in (0.2, 0.5, 0.6, 0.75, 0.99):
            if true < 1.0 / categories:
                continue
            reported = worker.call("response_map", prob=true, categories=categories)
            exact = math.log(true * (categories - 1) / (1.0 - true))
            least, cases = min(least, reported - exact), cases + 1
    yield printed(
        "responses: least (reported - exact)", least, ">=", 0.0, tolerance=1e-12, cases=cases
    )
    draw = sampler(worker, "noisy_max", seeded=False, scale=2.0)
    reported = worker.call("noisy_max_map", scale=2.0)
    pair = {"scores": [0.0, 0.0, 0.0]}, {"scores": [1.0, -1.0, -1.0]}
    verdict = lower_bound(draw, pair, reported, effort.cases(10_000, 100_000))
    yield printed(**found(verdict, "noisy maximum"))


AMPLIFICATION = "https://docs.rs/opendp/0.16.0/opendp/combinators/fn.make_population_amplification"
PREMISE = (
    "'The privacy guarantees are only valid if the input dataset is a simple sample from a "
    "population with `population_size` records' (feature `honest-but-curious`; drawn without "
    "replacement: its issue 2932)"
)
SAMPLE, POPULATION = 2, 20
ONE_RECORD = ({"value": 0.0, "everybody": False}, {"value": 1.0, "everybody": False})


def _sizes(kind: str, scale: float) -> dict[str, Any]:
    """Return the probe's arguments for a measurement of a sample."""
    return {"kind": kind, "scale": scale, "sample": SAMPLE, "population": POPULATION}


@register(
    PACKAGE,
    4,
    f"docstring of `make_population_amplification`; {AMPLIFICATION}.html",
    f"an amplified measurement spends what its map says: {PREMISE}",
    configuration="sum of 2 records in [0, 1] of 20, Laplace noise of scale 1 and 0.5, one record "
    "of the population replaced (symmetric distance 2); every run draws a sample",
    untested="other measurements, larger samples, several records replaced, approximate privacy, "
    "samples with replacement",
    verdict="holds",
)
def amplification(worker: Worker, effort: Effort) -> Iterator[Evidence]:
    """Test one release, including the drawing of the sample."""
    for scale in (1.0, 0.5):
        sizes = _sizes("one", scale)
        (reported,) = worker.call("amplified_map", distance=2, **sizes)
        run = sampler(worker, "amplified", **sizes)
        verdict = lower_bound(run, ONE_RECORD, float(reported), effort.cases(10_000, 40_000))
        yield printed(**found(verdict, f"scale {scale:g}"))
        exact = math.log1p(0.1 * math.expm1(1.0 / scale))
        yield printed(f"scale {scale:g}: map(2)", float(reported), ">=", exact, tolerance=1e-12)


@register(
    PACKAGE,
    5,
    f"docstrings of `make_population_amplification` and `make_composition`; {AMPLIFICATION}.html; "
    "reported in its issue 2933",
    f"a composition of amplified measurements spends 'the linear sum': {PREMISE}",
    "the composition is amplified: all of its parts read the same sample",
    configuration="four sums of 2 records in [0, 1] of 20, Laplace noise of scale 1/2 each, one "
    "record of the population replaced (symmetric distance 2); every run draws a sample",
    untested="adaptive composition, filters, approximate privacy",
    verdict="corrected",
)
def amplified_composition(worker: Worker, effort: Effort) -> Iterator[Evidence]:
    """Compare one set of runs with the maps of the sum and of the amplified composition."""
    reported = {
        kind: float(worker.call("amplified_map", distance=2, **_sizes(kind, 0.5))[0])
        for kind in ("parts", "whole")
    }
    run = sampler(worker, "amplified", **_sizes("parts", 0.5))
    verdict = lower_bound(run, ONE_RECORD, reported["parts"], effort.cases(10_000, 40_000))
    evidence = found(verdict, "four releases of one sample")
    yield printed(**evidence)
    yield used(**{**evidence, "bound": reported["whole"]})


@register(
    PACKAGE,
    6,
    f"docstring of `make_population_amplification`; {AMPLIFICATION}.html",
    f"accepts measurements of vectors under `L2Distance`, and returns a map for them: {PREMISE}",
    "the map of the measurement without amplification",
    configuration="Gaussian noise of scale 2 for each of 2 of 20 numbers, delta = 0.1 by "
    "`make_fix_delta`; populations at L2 distance 1: all numbers 0, or all 1/sqrt(20), so that "
    "every sample moves by sqrt(1/10)",
    untested="L-infinity distance, which is accepted too; L1 distance, where the amplified map "
    "holds for Laplace noise; the documentation speaks of 'records', so that its authors may have "
    "meant data sets alone",
    verdict="corrected",
)
def amplified_numbers(worker: Worker, effort: Effort) -> Iterator[Evidence]:
    """Compare delta with that of a Gaussian with the sample's sensitivity, and test runs."""
    sizes = _sizes("numbers", 2.0)
    epsilon, delta = worker.call("amplified_map", distance=1.0, **sizes)
    own = worker.call("amplified_map", distance=1.0, **{**sizes, "population": SAMPLE})
    moved = math.sqrt(SAMPLE / POPULATION)
    for shown, (e, d) in ((printed, (epsilon, delta)), (used, own)):
        yield shown("delta of the map - exact", d - gaussian_delta(2.0 / moved, e), ">=", 0.0)
    pair = {"value": 0.0}, {"value": 1.0 / math.sqrt(POPULATION)}
    run = sampler(worker, "amplified", everybody=True, **sizes)
    samples = effort.cases(10_000, 100_000)
    verdict = lower_bound(run, pair, float(epsilon), samples, delta=float(delta))
    yield printed(**found(verdict, f"delta = {delta:g}"))
