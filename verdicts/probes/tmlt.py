"""Probe of Tumult Core and Analytics, whose own generator cannot be seeded."""

from __future__ import annotations

import os
import sys
from typing import Any

import numpy as np

ABSENT = -1000.0  # a group that is not released


def _noise(name: str, scale: float) -> Any:
    """Return a mechanism; ``scale`` is its alpha, its scale or its variance."""
    from tmlt.core.domains.numpy_domains import NumpyFloatDomain
    from tmlt.core.measurements import noise_mechanisms

    made = getattr(noise_mechanisms, name)
    if name in ("AddLaplaceNoise", "AddGaussianNoise"):
        return made(NumpyFloatDomain(), _exact(scale))
    return made(_exact(scale))


def _exact(value: float) -> Any:
    from tmlt.core.utils.exact_number import ExactNumber

    return ExactNumber.from_float(value, round_up=True)


def noise_map(name: str, scale: float) -> float:
    """Return the value of the privacy function at distance 1."""
    return float(_noise(name, scale).privacy_function(1).to_float(round_up=False))


def noise(name: str, scale: float, value: int, size: int) -> np.ndarray:
    """Return ``size`` releases of a number."""
    mechanism = _noise(name, scale)
    kind = float if name in ("AddLaplaceNoise", "AddGaussianNoise") else int
    return np.array([mechanism(kind(value)) for _ in range(size)], dtype=float)


def quantile(values: list[float], level: float, epsilon: float, size: int) -> np.ndarray:
    """Return ``size`` quantiles of values in [0, 1]."""
    import pandas as pd
    from tmlt.core.domains.numpy_domains import NumpyFloatDomain
    from tmlt.core.domains.pandas_domains import PandasSeriesDomain
    from tmlt.core.measurements.pandas_measurements.series import NoisyQuantile
    from tmlt.core.measures import PureDP

    made = NoisyQuantile(
        PandasSeriesDomain(NumpyFloatDomain()), PureDP(), level, 0.0, 1.0, _exact(epsilon)
    )
    series = pd.Series(values, dtype=float)
    return np.array([made(series) for _ in range(size)], dtype=float)


def _spark() -> Any:
    """Return a Spark session with one core, which stores tables in the worker's home."""
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


def grouped(kind: str, rows: list[float], epsilon: float, delta: float, size: int) -> np.ndarray:
    """Return a release of ``size`` groups that all have these rows, shape (size, columns).

    "variance" releases the sum of deviations, the sum of squares and the count of values in
    [-1, 1]; "selection" the noisy count of a group, if released; "bounds" the rank at which a
    prefix sum of the counts ``rows`` first exceeds half of the total.
    """
    import pandas as pd
    from tmlt.core.domains import spark_domains as domains
    from tmlt.core.measurements import aggregations, spark_measurements
    from tmlt.core.measures import PureDP
    from tmlt.core.metrics import SymmetricDifference
    from tmlt.core.transformations.spark_transformations.groupby import GroupBy

    spark = _spark()
    whole = domains.SparkIntegerColumnDescriptor()
    table: dict[str, Any] = {"group": np.repeat(np.arange(size), len(rows))}
    if kind == "variance":
        table["x"] = np.tile(np.array(rows, dtype=float), size)
        domain = domains.SparkDataFrameDomain(
            {"group": whole, "x": domains.SparkFloatColumnDescriptor()}
        )
        keys = spark.createDataFrame(pd.DataFrame({"group": np.arange(size)}))
        by_group = GroupBy(domain, SymmetricDifference(), use_l2=False, group_keys=keys)
        made: Any = aggregations.create_variance_measurement(
            input_domain=domain,
            input_metric=SymmetricDifference(),
            output_measure=PureDP(),
            d_out=_exact(epsilon),
            noise_mechanism=aggregations.NoiseMechanism.LAPLACE,
            measure_column="x",
            lower=-1,
            upper=1,
            groupby_transformation=by_group,
            keep_intermediates=True,
        )
        columns = ["sod(x)", "sos(x)", "count"]
    elif kind == "selection":
        domain = domains.SparkDataFrameDomain({"group": whole})
        made = aggregations.create_partition_selection_measurement(
            domain, _exact(epsilon), _exact(delta)
        )
        columns = ["count"]
    else:
        table["rank"] = np.tile(np.arange(len(rows)), size)
        table["n"] = np.tile(np.array(rows, dtype=int), size)
        domain = domains.SparkDataFrameDomain({"group": whole, "rank": whole, "n": whole})
        alpha = 4 / _exact(epsilon)
        made = spark_measurements.SparseVectorPrefixSums(domain, "n", "rank", alpha, ["group"], 0.5)
        columns = ["rank"]
    released = np.full((size, len(columns)), ABSENT)
    if rows:
        found = made(spark.createDataFrame(pd.DataFrame(table))).toPandas()
        released[found["group"].to_numpy()] = found[columns].to_numpy(dtype=float)
    return released


# Sessions of Tumult Analytics


def _table(spark: Any, rows: list[list[Any]], size: int) -> Any:
    """Return ``size`` groups that all have these rows: a value, a person and a part."""
    from pyspark.sql import types

    fields = [types.StructField("run", types.LongType(), False)]
    fields += [types.StructField("x", types.DoubleType(), True)]
    fields += [types.StructField(name, types.StringType(), False) for name in ("person", "part")]
    # A person is in one group, so that groups are independent runs.
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
    """Return the releases of a session with this budget for ``size`` groups, (size, columns).

    All groups have these ``rows``; ``beside`` are the rows of a second private table.
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
        # The value of a group, or that it was released at all; of two bounds, the second.
        released[table["run"].to_numpy(dtype=int)] = values[:, -1] if values.size else 1.0
        columns.append(released)
    return np.stack(columns, axis=1)


def _asked(query: str, t: Any, keys: Any) -> Any:
    """Return a query on the groups."""
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
        # Three rows, more than are kept; a lambda is sent to Spark's processes by value.
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
