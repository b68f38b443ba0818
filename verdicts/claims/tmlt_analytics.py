"""Tumult Analytics: sessions that answer queries of private tables within a budget."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

from dpanalysis.papers.claim import Effort, Evidence, printed
from dpanalysis.privacy.accounting.zcdp import zcdp_to_epsilon

from ..protocol import Worker
from ..registry import Package, register
from ._tools import check_java, found, lower_bound, sampler

PACKAGE = Package(
    name="tmlt-analytics",
    version="0.21.0",
    probe=Path(__file__).parents[1] / "probes" / "tmlt.py",
    imported="tmlt.analytics",
    setting="A table's protected change is 'the largest change that can be made to that table "
    "while still being indistinguishable'; a session's budget is spent on all that it answers.",
)
# A value, a person and a part; many groups have the same rows, and each group is a run.
_Row: TypeAlias = list[Any]
_ONE, _TWO = [0.0, "u", "a"], [1.0, "v", "a"]
_PURE, _RHO, _APPROXIMATE = ["pure", 1.0], ["rho", 0.5], ["approximate", 1.0, 0.1]
_DELTA = 0.01  # at which the epsilon of a rho is tested


def _tested(
    worker: Worker,
    effort: Effort,
    query: str,
    budget: list[Any],
    fewer: list[_Row],
    more: list[_Row],
    beside: list[_Row] | None = None,
    name: str = "",
) -> Evidence:
    """Test a query on the rows of every group in a session with this budget."""
    check_java()
    kind, *numbers = budget
    epsilon, delta = numbers[0], numbers[1] if kind == "approximate" else 0.0
    if kind == "rho":
        epsilon, delta = float(zcdp_to_epsilon(numbers[0], _DELTA)), _DELTA
    draw = sampler(worker, "session", seeded=False, query=query, budget=budget, beside=beside or [])
    verdict = lower_bound(
        draw, ({"rows": more}, {"rows": fewer}), epsilon, effort.cases(4_000, 10_000), delta=delta
    )
    return printed(**found(verdict, f"{name or query} ({kind})"))


@register(
    PACKAGE,
    1,
    "docstrings of `AddOneRow`, `PureDPBudget`, `RhoZCDPBudget`, `ApproxDPBudget` and "
    "`Session.evaluate`",
    "'Answers a query within the given privacy budget': epsilon, rho, or (epsilon, delta), for a "
    "row more or less",
    configuration="in Spark, every group one run. Count, sum, average, variance, standard "
    "deviation, median, bounds and distinct values of numbers, clamped to [-1, 1] or [0, 1]; "
    "epsilon = 1, rho = 0.5, (1, 0.1). The row more is 0, 0.1 or 1, infinite or not a "
    "number",
    untested="other budgets, changes of several rows, bins, nulls that are replaced",
    verdict="holds",
)
def aggregations(worker: Worker, effort: Effort) -> Iterator[Evidence]:
    """Run black-box tests with one more row, and of a group with a row or none."""
    for budget in (_PURE, _RHO, _APPROXIMATE):
        yield _tested(worker, effort, "count", budget, [], [_ONE])
    for query in ("average", "variance", "stdev", "bounds", "distinct"):
        yield _tested(worker, effort, query, _PURE, [_ONE], [_ONE, _TWO])
    high, low = [0.9, "u", "a"], [0.1, "v", "a"]
    yield _tested(worker, effort, "median", _PURE, [high], [low, high])
    for value in (1.0, float("inf"), float("nan")):
        row = [value, "v", "a"]
        yield _tested(worker, effort, "sum", _PURE, [_ONE], [_ONE, row], name=f"sum, {value}")


@register(
    PACKAGE,
    2,
    "docstrings of `AddRowsWithID`, `MaxRowsPerID`, `MaxGroupsPerID` and `MaxRowsPerGroupPerID`",
    "'hides the addition or removal of *all rows* with the same value in the specified column'",
    configuration="in Spark, every group one run, epsilon = 1. A person with five rows more, of "
    "which two are kept: the sum of values in [-1, 1], a count",
    untested="several identifiers, flat maps of a person's rows, joins on identifiers",
    verdict="holds",
)
def people(worker: Worker, effort: Effort) -> Iterator[Evidence]:
    """Run black-box tests of a person with more rows than are kept."""
    for query in ("people, rows each", "people, rows each in a group"):
        yield _tested(worker, effort, query, _PURE, [_ONE], [_ONE, *[_TWO] * 5])


@register(
    PACKAGE,
    3,
    "docstrings of `QueryBuilder.flat_map`, `QueryBuilder.join_private` and `DropExcess`",
    "max_rows is 'required (and enforced)'; a join's rows are truncated to a number per key",
    configuration="in Spark, every group one run, epsilon = 1. A function that makes three rows "
    "of one, of which two are kept; a join with one row per key: a row more, of value 1 beside "
    "one of -1, may replace it",
    untested="DropNonUnique, several joins, grouping maps",
    verdict="holds",
)
def transformations(worker: Worker, effort: Effort) -> Iterator[Evidence]:
    """Run black-box tests of the rows derived from one row."""
    yield _tested(worker, effort, "flat map", _PURE, [], [_ONE])
    low = [-1.0, "u", "a"]
    yield _tested(worker, effort, "join", _PURE, [low], [low, _TWO], beside=[_ONE])


@register(
    PACKAGE,
    4,
    "docstrings of `QueryBuilder.get_groups` and `AddMaxRowsInMaxGroups`",
    "'Because this uses differential privacy, it won't include all of the values'; the limits on "
    "rows and groups are the change",
    configuration="in Spark, every group one run. Groups of (1, 0.1) with a row or none; two rows "
    "more of one part, counted by parts, with rho = 0.5",
    untested="several columns of groups, several parts at once",
    verdict="holds",
)
def groups(worker: Worker, effort: Effort) -> Iterator[Evidence]:
    """Run black-box tests of the released groups, and of the rows of a part."""
    yield _tested(worker, effort, "groups", _APPROXIMATE, [], [_ONE])
    yield _tested(worker, effort, "rows of a part", _RHO, [], [_ONE, _TWO])


@register(
    PACKAGE,
    5,
    "docstrings of `Session.evaluate` and `Session.partition_and_create`",
    "the remaining budget falls by what a query is given; parts 'are given the same budget, while "
    "only one count of that budget is deducted'",
    configuration="in Spark, every group one run, epsilon = 1. A count and a sum with half of it "
    "each, tested together; counts of two parts with all of it each, tested together, with a row "
    "more in one of them",
    untested="views, parts of people, sessions at once",
    verdict="holds",
)
def budgets(worker: Worker, effort: Effort) -> Iterator[Evidence]:
    """Run black-box tests of all releases of a session."""
    yield _tested(worker, effort, "two queries", _PURE, [], [_TWO])
    yield _tested(worker, effort, "two parts", _PURE, [], [_ONE])
