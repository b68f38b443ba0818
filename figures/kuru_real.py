"""The six algorithms of Kuru et al. (2022) on real data."""

from __future__ import annotations

import os
from functools import cache as memoize
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dpanalysis as dpa
from dpanalysis.experiments.records import Table

from ._kuru import ALGORITHMS, Experiment

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Six private algorithms on real data"


@memoize
def experiment() -> Experiment:
    """Return the experiment on a9a if available, else on breast cancer."""
    name = "breast_cancer"
    if os.environ.get("DPANALYSIS_DATA"):
        try:
            dpa.datasets.load("a9a")
            name = "a9a"
        except FileNotFoundError:
            pass
    small = "With n = 569 the noise at epsilon = 1 dominates the problem."
    return Experiment(
        data=name,
        batch=1.0,
        start=0.0,
        tried=(2, 5, 10, 20, 50, 100, 200),  # noise dominates longer runs
        note="" if name == "a9a" else small,
    )


def settings(scale: str) -> dict[str, Any]:
    """Return the settings of the figure."""
    return experiment().settings(scale)


def compute(scale: str, *, jobs: int, cache: Path, progress: bool) -> dict[str, Table]:
    """Return the curves and a summary."""
    return experiment().compute(scale, jobs=jobs, cache=cache, progress=progress)


def draw(tables: dict[str, Table]) -> Figure:
    """Draw one panel for each algorithm and step-size constant."""
    return experiment().draw(tables)


def caption(tables: dict[str, Table], scale: str) -> str:
    """Return the caption."""
    summary = tables["summary"]
    accuracy = ", ".join(
        f"{algorithm} {summary['training_accuracy'][summary['algorithm'] == algorithm].max():.3f}"
        for algorithm in ALGORITHMS
    )
    return f"""
Best training accuracy, mean over the runs: {accuracy}. The paper uses only synthetic data.

{experiment().caption(tables, scale)}
"""
