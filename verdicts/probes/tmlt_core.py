"""Runs Tumult Core, which draws from a generator of its own: no seed reaches it."""

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
    """Return what the privacy function says for distance 1."""
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


def grouped(kind: str, rows: list[float], epsilon: float, delta: float, size: int) -> np.ndarray:
    """Return a release of ``size`` groups that all have these rows, shape (size, columns).

    "variance" has the sum of deviations, that of squares and the count, of values in [-1, 1];
    "selection" the noisy count of a group, if it is released; "bounds" the rank at which a prefix
    sum of the counts ``rows`` first passes half of the total.
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
