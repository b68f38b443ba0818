"""mostlyai-engine: the statistics gathered before a model is trained."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dpanalysis.papers.claim import Effort, Evidence, printed, used

from ..protocol import Worker
from ..registry import Package, register
from ._tools import found, lower_bound, sampler

PACKAGE = Package(
    name="mostlyai-engine",
    version="2.7.3",
    probe=Path(__file__).parents[1] / "probes" / "mostlyai_engine.py",
    imported="mostlyai",  # the rest is imported by the probe
    requirements=("torch==2.13.0",),  # the default build takes gigabytes
    setting="The noise of counts is that for a record that is there or not. A model is not fitted: "
    "its training is Opacus' (`opacus`).",
)
COMMON = "docstring of `mostlyai.engine._common.{}`"


@register(
    PACKAGE,
    1,
    COMMON.format("dp_non_rare"),
    "'Provides ε-differential privacy via the Laplace mechanism with L1 sensitivity = 1', "
    "'(selected_categories, non_rare_ratio), both with ε-DP guarantees'",
    "all categories are known and counted, at 0 where no record has one: noise is added to those "
    "that a record has, so that no other one is ever selected",
    configuration="epsilon=0.5, threshold=5 (default); counts {a: 10, b: 10}, and c: 1 for one "
    "more record; read: whether c is selected; a delta of 1e-5, the default of the configuration, "
    "would change nothing",
    untested="`no_of_rare_categories`, which `analyze` writes beside them and which has no noise",
    verdict="corrected",
)
def rare_categories(worker: Worker, effort: Effort) -> Iterator[Evidence]:
    """Test a category that only one record has."""
    counts = {"a": 10, "b": 10}
    pair = {"counts": counts}, {"counts": {**counts, "c": 1}}
    for public, evidence in (([], printed), (["a", "b", "c"], used)):
        draws = sampler(worker, "non_rare", epsilon=0.5, public=public)
        verdict = lower_bound(draws, pair, 0.5, effort.cases(5_000, 50_000))
        yield evidence(**found(verdict, "categories that are " + ("known" if public else "there")))


@register(
    PACKAGE,
    2,
    "docstring of `DifferentialPrivacyConfig`, `value_protection_epsilon`",
    "'The DP epsilon of the privacy budget for determining the value ranges, which are gathered "
    "prior to the model training during the analysis step'; 'For numeric and datetime we calculate "
    "bounds based on noisy histograms'",
    "the binned encoding: the encoding by digits keeps the range of every digit as it is in the "
    "records",
    configuration="`analyze_numeric` and `analyze_reduce_numeric` with epsilon=1, encodings "
    "`TABULAR_NUMERIC_DIGIT` and `TABULAR_NUMERIC_BINNED`; 30 records of 3, and one more of 9; "
    "read: `min_digits` and `max_digits` of the ones, or the ends of the bins",
    untested="`has_nan`, `has_neg`, `min_decimal` and whether there are 20 values, which have no "
    "noise; the automatic choice of the encoding, which spends the budget of a column twice "
    "(Cebere et al. 2026, arXiv 2602.17454)",
    verdict="corrected",
)
def digit_ranges(worker: Worker, effort: Effort) -> Iterator[Evidence]:
    """Test a digit that only one record has."""
    pair = {"rows": [3.0] * 30}, {"rows": [*[3.0] * 30, 9.0]}
    for kind, evidence in (("TABULAR_NUMERIC_DIGIT", printed), ("TABULAR_NUMERIC_BINNED", used)):
        draws = sampler(worker, "ranges", epsilon=1.0, encoding=kind)
        verdict = lower_bound(draws, pair, 1.0, effort.cases(1_000, 10_000))
        yield evidence(**found(verdict, kind))


@register(
    PACKAGE,
    3,
    COMMON.format("dp_approx_bounds") + " and `dp_quantiles`",
    "'epsilon: The privacy budget to spend estimating the bounds'; 'epsilon: Total privacy budget "
    "to allocate'",
    configuration="epsilon=1 and 11 records at 1.5 (bounds), epsilon=3 and 12 (quantiles 0.05 and "
    "0.95); one more record at 1.5, and at 7",
    untested="other quantiles and values; one record replaced; the step of the quantiles alone, "
    "whose exponent is twice that of an exponential mechanism",
    verdict="holds",
)
def numeric_ranges(worker: Worker, effort: Effort) -> Iterator[Evidence]:
    """Test bounds and quantiles."""
    cases: tuple[tuple[str, int, float, dict[str, Any]], ...] = (
        ("bounds", 11, 1.0, {}),
        ("quantiles", 12, 3.0, {"at": [0.05, 0.95]}),
    )
    for name, records, epsilon, given in cases:
        rows = [1.5] * records
        draws = sampler(worker, name, epsilon=epsilon, **given)
        for further in (1.5, 7.0):
            pair = {"rows": rows}, {"rows": [*rows, further]}
            verdict = lower_bound(draws, pair, epsilon, effort.cases(5_000, 50_000))
            yield printed(**found(verdict, f"{name}, one more record at {further:g}"))
