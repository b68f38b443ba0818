"""Runs sessions of Tumult Analytics, whose noise takes no seed."""

from __future__ import annotations

import os
import sys
from typing import Any

import numpy as np

ABSENT = -1000.0  # a group that is not released


def _spark() -> Any:
    """Return a Spark session of one core, whose tables go to the worker's home."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.warehouse.dir": os.path.join(os.path.expanduser("~"), "tables"),
    }
    builder = SparkSession.builder.master("local[1]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _table(spark: Any, rows: list[list[Any]], size: int) -> Any:
    """Return ``size`` groups that all have these rows: a value, a person and a part."""
    from pyspark.sql import types

    fields = [types.StructField("run", types.LongType(), False)]
    fields += [types.StructField("x", types.DoubleType(), True)]
    fields += [types.StructField(name, types.StringType(), False) for name in ("person", "part")]
    # A person is in one group, so that each group is a run of its own.
    records = [
        (run, None if x is None else float(x), f"{person} of {run}", part)
        for run in range(size)
        for x, person, part in rows
    ]
    return spark.createDataFrame(records, types.StructType(fields))


def _budget(kind: str, *numbers: float) -> Any:
    from tmlt import analytics

    made = {
        "pure": analytics.PureDPBudget,
        "approximate": analytics.ApproxDPBudget,
        "rho": analytics.RhoZCDPBudget,
    }
    return made[kind](*numbers)


def session(
    query: str, budget: list[Any], rows: list[list[Any]], beside: list[list[Any]], size: int
) -> np.ndarray:
    """Return what a session of this budget releases of ``size`` groups, shape (size, columns).

    All groups have these ``rows``; ``beside`` are those of a second private table.
    """
    from tmlt import analytics

    spark = _spark()
    kind, *numbers = budget
    total, half = (_budget(kind, *(number / share for number in numbers)) for share in (1.0, 2.0))
    people = query.startswith("people")
    parted = query == "rows of a part"
    if people:
        change: Any = analytics.AddRowsWithID("person")
    elif parted:
        change = analytics.AddMaxRowsInMaxGroups("part", max_groups=1, max_rows_per_group=2)
    else:
        change = analytics.AddOneRow()
    builder = analytics.Session.Builder().with_privacy_budget(total)
    if people:
        builder = builder.with_id_space("default_id_space")
    builder = builder.with_private_dataframe("t", _table(spark, rows, size), change)
    if beside:
        builder = builder.with_private_dataframe("s", _table(spark, beside, size), change)
    running = builder.build()
    keys = analytics.KeySet.from_dict({"run": list(range(size))})
    t = analytics.QueryBuilder("t")
    parts = {"first": "a", "second": "b"}
    if query == "two queries":
        asked = [(running, t.groupby(keys).count(), half)]
        asked += [(running, t.groupby(keys).sum("x", -1.0, 1.0), half)]
    elif query == "two parts":
        ended = running.partition_and_create("t", total, "part", parts)
        asked = [
            (each, analytics.QueryBuilder(name).groupby(keys).count(), total)
            for name, each in ended.items()
        ]
    else:
        asked = [(running, _asked(query, t, keys), total)]
    columns = []
    for each, question, price in asked:
        table = each.evaluate(question, price).toPandas()
        released = np.full(size, ABSENT)
        values = table.drop(columns=["run", "part"], errors="ignore").to_numpy(dtype=float)
        # The number of a group, or that it is there at all; of both bounds the second.
        released[table["run"].to_numpy(dtype=int)] = values[:, -1] if values.size else 1.0
        columns.append(released)
    return np.stack(columns, axis=1)


def _asked(query: str, t: Any, keys: Any) -> Any:
    """Return a query of the groups."""
    from tmlt import analytics

    if query == "count":
        return t.groupby(keys).count()
    if query == "groups":
        return t.get_groups(["run"])
    if query == "sum":
        return t.groupby(keys).sum("x", -1.0, 1.0)
    if query in ("average", "variance", "stdev"):
        return getattr(t.groupby(keys), query)("x", -1.0, 1.0)
    if query == "median":
        return t.groupby(keys).median("x", 0.0, 1.0)
    if query == "bounds":
        return t.groupby(keys).get_bounds("x")
    if query == "distinct":
        return t.groupby(keys).count_distinct(["x"])
    if query == "flat map":
        # Three rows, more than may be kept; a lambda reaches Spark's processes by value.
        more = t.flat_map(
            lambda _: [{"y": k} for k in range(3)], {"y": "INTEGER"}, augment=True, max_rows=2
        )
        return more.groupby(keys).count()
    if query == "join":
        once = analytics.TruncationStrategy.DropExcess(1)
        s = analytics.QueryBuilder("s").select(["run"])
        joined = t.join_private(s, once, once, join_columns=["run"])
        return joined.groupby(keys).sum("x", -1.0, 1.0)
    if query == "rows of a part":
        return t.groupby(keys * analytics.KeySet.from_dict({"part": ["a"]})).count()
    if query == "people, rows each":
        return t.enforce(analytics.MaxRowsPerID(2)).groupby(keys).sum("x", -1.0, 1.0)
    if query == "people, rows each in a group":
        few = t.enforce(analytics.MaxGroupsPerID("run", 1))
        return few.enforce(analytics.MaxRowsPerGroupPerID("run", 2)).groupby(keys).count()
    raise ValueError(f"unknown query {query!r}")
