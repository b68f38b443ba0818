"""PipelineDP: aggregations of data with privacy ids, on its local backend."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from dpanalysis.papers.claim import Effort, Evidence, printed, used

from ..protocol import Worker
from ..registry import Package, register
from ._tools import found, lower_bound, sampler

PACKAGE = Package(
    name="pipeline-dp",
    version="0.3.1",
    probe=Path(__file__).parents[1] / "probes" / "pipeline_dp.py",
    setting="A privacy id and all its records are there or not. `NaiveBudgetAccountant`: "
    "'total_epsilon: epsilon for the entire pipeline'.",
)
SOURCE = "docstrings of `NaiveBudgetAccountant` and `AggregateParams`"
ONE: dict[str, Any] = {"max_partitions_contributed": 1, "max_contributions_per_partition": 1}
UNIT: dict[str, Any] = {"min_value": -1.0, "max_value": 1.0}


def _with_and_without(
    others: list[list[Any]], person: list[Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    return {"people": [*others, person]}, {"people": others}


@register(
    PACKAGE,
    1,
    SOURCE,
    "an aggregation spends total_epsilon and total_delta",
    configuration="two people with 0 each, and one with 1 who is there or not; values in [-1, 1], "
    "one partition and one contribution each; COUNT, SUM, PRIVACY_ID_COUNT, MEAN with COUNT, the "
    "median, epsilon = 1; Gaussian COUNT at delta = 0.01; COUNT of a partition that is selected "
    "(truncated geometric), one person or none, delta = 0.1",
    untested="Beam and Spark, PLD accounting (experimental), vector sums, other selections, "
    "post-aggregation thresholding, contributions to several partitions, custom combiners",
    verdict="holds",
)
def aggregations(worker: Worker, effort: Effort) -> Iterator[Evidence]:
    """Run black-box tests of one partition."""
    three = _with_and_without([[0.0], [0.0]], [1.0])
    cases: list[tuple[list[str], Any, dict[str, Any]]] = [
        (["COUNT"], three, {}),
        (["SUM"], three, UNIT),
        (["PRIVACY_ID_COUNT"], three, {}),
        (["MEAN", "COUNT"], three, UNIT),
        (["MEDIAN"], three, UNIT),
        (["COUNT"], three, {"noise": "GAUSSIAN", "delta": 0.01}),
        (["COUNT"], _with_and_without([], [1.0]), {"public": False, "delta": 0.1}),
    ]
    for metrics, pair, given in cases:
        fixed = {"metrics": metrics, "epsilon": 1.0, **ONE, **given}
        draw = sampler(worker, "aggregate", seeded=False, **fixed)
        delta = given.get("delta", 0.0)
        verdict = lower_bound(draw, pair, 1.0, effort.cases(5_000, 50_000), delta=delta)
        shown = " and ".join(metrics) + (f", delta = {delta:g}" if delta else "")
        yield printed(**found(verdict, shown))


def _moments(draw: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    """Recover count, sum and sum of squares from variance, mean and count."""

    def mechanism(data: dict[str, Any], rng: np.random.Generator, size: int) -> np.ndarray:
        variance, mean, count = draw(data, rng, size).T
        divisor = np.maximum(count, 1.0)
        return np.column_stack([count, mean * divisor, (variance + mean**2) * divisor])

    return mechanism


@register(
    PACKAGE,
    2,
    f"{SOURCE}; `Metrics.VARIANCE`",
    "an aggregation with VARIANCE spends total_epsilon",
    "the squares get the noise of ((max_value - min_value) / 2)^2, which one value adds at most "
    "after it is normalized",
    configuration="VARIANCE, MEAN and COUNT of values in [-1, 1], epsilon = 3; two people with 0 "
    "each, and one with 1 who is there or not; count, sum and sum of squares are computed from the "
    "release",
    untested="Gaussian noise; bounds other than these (from the source: too little noise if and "
    "only if min_value is negative and -min_value and max_value differ by less than a factor of "
    "1 + sqrt 2)",
    verdict="corrected",
)
def variance(worker: Worker, effort: Effort) -> Iterator[Evidence]:
    """Test the noise unchanged, and with the sensitivity of normalized squares."""
    pair = _with_and_without([[0.0], [0.0]], [1.0])
    given: dict[str, Any] = {"metrics": ["VARIANCE", "MEAN", "COUNT"], "epsilon": 3.0}
    for shown, repaired in ((printed, False), (used, True)):
        draw = sampler(worker, "aggregate", seeded=False, repaired=repaired, **given, **ONE, **UNIT)
        verdict = lower_bound(_moments(draw), pair, 3.0, effort.cases(30_000, 100_000))
        yield shown(**found(verdict, "count, sum and squares"))


@register(
    PACKAGE,
    3,
    f"{SOURCE}; 'contribution_bounds_already_enforced: assume that the input dataset complies with "
    "the bounds provided in max_partitions_contributed and max_contributions_per_partition'; "
    "'vector_max_norm: Bound on each value of a vector'",
    "VECTOR_SUM spends total_epsilon for data that comply with these bounds",
    "contribution_bounds_already_enforced is not set: the sum of a person's vectors is clipped",
    configuration="two entries, norm Linf, vector_max_norm = 1, one partition, "
    "max_contributions_per_partition = 4, epsilon = 4, delta = 0.01 (half of epsilon selects the "
    "partition); six people with (0, 0) four times each, and one with (1, 1) four times who is "
    "there or not",
    untested="other norms, Gaussian noise, SUM with min_sum_per_partition in this mode",
    verdict="corrected",
)
def vectors(worker: Worker, effort: Effort) -> Iterator[Evidence]:
    """Test one partition, with bounds enforced beforehand and by the engine."""
    pair = _with_and_without([[[0.0, 0.0]] * 4] * 6, [[1.0, 1.0]] * 4)
    given: dict[str, Any] = {"metrics": ["VECTOR_SUM"], "epsilon": 4.0, "delta": 0.01}
    given |= {"public": False, "norm": "Linf", "vector_size": 2, "vector_max_norm": 1.0}
    given |= {"max_partitions_contributed": 1, "max_contributions_per_partition": 4}
    for shown, enforced in ((printed, True), (used, False)):
        given["contribution_bounds_already_enforced"] = enforced
        draw = sampler(worker, "aggregate", seeded=False, **given)
        verdict = lower_bound(draw, pair, 4.0, effort.cases(5_000, 20_000), delta=0.01)
        yield shown(**found(verdict, "sum of vectors"))
