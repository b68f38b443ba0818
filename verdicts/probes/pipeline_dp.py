"""Probe of PipelineDP, which draws from the operating system's entropy and cannot be seeded."""

from __future__ import annotations

import contextlib
import logging
from typing import Any
from unittest import mock

import numpy as np

ABSENT = -1000.0  # a partition that is not released


def _widest_squares(low: float, high: float) -> tuple[float, float]:
    """Return an interval with half-width equal to the largest square of a normalized value."""
    most = ((high - low) / 2.0) ** 2
    return -most, most


def aggregate(
    metrics: list[str],
    people: list[list[Any]],
    size: int,
    epsilon: float,
    delta: float = 0.0,
    noise: str = "LAPLACE",
    public: bool = True,
    norm: str = "",
    repaired: bool = False,
    **bounds: Any,
) -> np.ndarray:
    """Return the metrics of ``size`` partitions with the same values, shape (size, columns).

    Each partition has its own people, each with a list of values. ``repaired`` gives the squares
    of VARIANCE the required noise.
    """
    import pipeline_dp as dp
    from pipeline_dp import aggregate_params, dp_computations

    logging.disable(logging.WARNING)
    named = [
        dp.Metrics.PERCENTILE(50) if name == "MEDIAN" else getattr(dp.Metrics, name)
        for name in metrics
    ]
    if norm:
        bounds["vector_norm_kind"] = getattr(aggregate_params.NormKind, norm)
    params = dp.AggregateParams(metrics=named, noise_kind=getattr(dp.NoiseKind, noise), **bounds)
    rows = [
        ((place, person), place, np.array(value) if norm else value)
        for place in range(size)
        for person, values in enumerate(people)
        for value in values
    ]
    accountant = dp.NaiveBudgetAccountant(total_epsilon=epsilon, total_delta=delta)
    engine = dp.DPEngine(accountant, dp.LocalBackend())
    fields = dp.DataExtractors(
        privacy_id_extractor=lambda row: row[0],
        partition_extractor=lambda row: row[1],
        value_extractor=lambda row: row[2],
    )
    # The engine needs at least one row: a person in a partition that is not queried.
    rows.append(((size, 0), size, rows[0][2] if rows else 0.0))
    partitions = list(range(size)) if public else None
    released = engine.aggregate(rows, params, fields, public_partitions=partitions)
    accountant.compute_budgets()
    patch = mock.patch.object(dp_computations, "compute_squares_interval", _widest_squares)
    with patch if repaired else contextlib.nullcontext():
        found = dict(released)
    names = ["percentile_50" if name == "MEDIAN" else name.lower() for name in metrics]
    shown = {k: np.hstack([getattr(row, name) for name in names]) for k, row in found.items()}
    absent = np.full(len(next(iter(shown.values()), names)), ABSENT)
    return np.array([shown.get(k, absent) for k in range(size)], dtype=float)
