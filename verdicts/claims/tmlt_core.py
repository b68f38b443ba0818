"""Tumult Core: noise mechanisms, quantiles, and aggregations of groups in Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dpanalysis.papers.claim import Effort, Evidence, printed
from dpanalysis.privacy.accounting.zcdp import zcdp_to_epsilon

from ..protocol import Worker
from ..registry import Package, register
from ._tools import check_java, found, lower_bound, sampler

PACKAGE = Package(
    name="tmlt-core",
    version="0.20.0",
    probe=Path(__file__).parents[1] / "probes" / "tmlt.py",
    imported="tmlt.core",
    setting="A measurement's privacy function says what is spent at a distance of its input "
    "metric; `SymmetricDifference` counts rows that are added or removed.",
)


@register(
    PACKAGE,
    1,
    "docstrings of `AddGeometricNoise`, `AddLaplaceNoise`, `AddDiscreteGaussianNoise` and "
    "`AddGaussianNoise`",
    "'the smallest d_out satisfied by the measurement' is d_in/alpha, d_in/b, d_in^2/(2 sigma^2)",
    configuration="alpha, b and sigma^2 of 1, values 0 and 1; Gaussian noise: the epsilon that "
    "its rho implies at delta = 0.01",
    untested="other scales (geometric noise from 10 on is drawn otherwise), the lowest bits",
    verdict="holds",
)
def noise(worker: Worker, effort: Effort) -> Iterator[Evidence]:
    """Run black-box tests at distance 1."""
    for name in (
        *("AddGeometricNoise", "AddLaplaceNoise"),
        *("AddDiscreteGaussianNoise", "AddGaussianNoise"),
    ):
        reported = worker.call("noise_map", name=name, scale=1.0)
        delta = 0.01 if "Gaussian" in name else 0.0
        epsilon = float(zcdp_to_epsilon(reported, delta)) if delta else reported
        draw = sampler(worker, "noise", seeded=False, name=name, scale=1.0)
        pair = {"value": 0}, {"value": 1}
        verdict = lower_bound(draw, pair, epsilon, effort.cases(5_000, 20_000), delta=delta)
        yield printed(**found(verdict, name))


@register(
    PACKAGE,
    2,
    "docstring of `NoisyQuantile`",
    "spends epsilon d_in (pure)",
    configuration="median of values in [0, 1], epsilon = 1 and 3; the values are (0.9) and "
    "(0.1, 0.9)",
    untested="zCDP, other levels, many values",
    verdict="holds",
)
def quantile(worker: Worker, effort: Effort) -> Iterator[Evidence]:
    """Run black-box tests with one more row."""
    pair = {"values": [0.9]}, {"values": [0.1, 0.9]}
    for epsilon in (1.0, 3.0):
        draw = sampler(worker, "quantile", seeded=False, level=0.5, epsilon=epsilon)
        verdict = lower_bound(draw, pair, epsilon, effort.cases(5_000, 20_000))
        yield printed(**found(verdict, f"epsilon = {epsilon:g}"))


@register(
    PACKAGE,
    3,
    "docstrings of `create_variance_measurement`, `create_partition_selection_measurement` and "
    "`SparseVectorPrefixSums`",
    "'a privacy guarantee such that measurement.privacy_function(d_in) = d_out'; prefix sums: "
    "(4/alpha) d_in",
    configuration="in Spark, every group one run. Variance: Laplace noise, values in [-1, 1], "
    "epsilon = 3, the noisy sums and the count; two rows of 0, and a row of 1 more. Selection: "
    "epsilon = 1, delta = 0.1, a group of no row or one. Prefix sums: epsilon = 2, counts of 2 at "
    "five ranks, half of the total, the first count is one more",
    untested="other aggregations and mechanisms, joins and truncation, d_in above 1",
    verdict="holds",
)
def groups(worker: Worker, effort: Effort) -> Iterator[Evidence]:
    """Run black-box tests of aggregations that need Spark, and hence Java."""
    check_java()
    counts = [2.0] * 5
    for kind, epsilon, delta, pair in (
        ("variance", 3.0, 0.0, ([0.0, 0.0, 1.0], [0.0, 0.0])),
        ("selection", 1.0, 0.1, ([0.0], [])),
        ("bounds", 2.0, 0.0, ([3.0, *counts[1:]], counts)),
    ):
        given: dict[str, Any] = {"kind": kind, "epsilon": epsilon, "delta": delta}
        draw = sampler(worker, "grouped", seeded=False, **given)
        more, fewer = ({"rows": rows} for rows in pair)
        samples = effort.cases(4_000, 20_000)
        verdict = lower_bound(draw, (more, fewer), epsilon, samples, delta=delta)
        yield printed(**found(verdict, kind))
