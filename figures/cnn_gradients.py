"""Per-sample gradients of a CNN and their weighted mean: Xia et al. (2023), Figs. 1-3."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from dpanalysis.experiments import sweep
from dpanalysis.experiments.records import Table

from . import _clipping as runs
from . import _cnn, clipping_gradients, cnn_table
from .clipping_gradients import DELTA, EPSILON, RS, TRAININGS, cosines_in_words, draw, finding

__all__ = ["NEEDS", "TITLE", "caption", "compute", "draw", "settings"]

TITLE = "Small gradients of a CNN and the weighted mean (Xia et al. 2023, Figs. 1-3)"
NEEDS = "torch"
# Over 40 epochs rounding changes per-sample gradients; means of thousands are stable.
ELSEWHERE = {"last": math.inf, "mean": 0.01}


def settings(scale: str) -> dict[str, Any]:
    """Return the settings of the figure."""
    chosen = cnn_table.settings(scale)
    mnist = chosen["data"] == "mnist"
    for name in ("r", "step_sizes"):
        del chosen[name]
    return {
        **chosen,
        "step_size": 1.0,
        "rs": list(RS),
        "measured_batches": 60,
        "measured_batch_size": 128,
        "seeds": 5 if mnist else 1,
    }


@_cnn.threads(1)
def run_cell(
    training: str, measured_batches: int, measured_batch_size: int, **cell: Any
) -> dict[str, np.ndarray]:
    """Train the CNN by GC and measure per-sample gradients along the way."""
    problem = _cnn.load_problem(cell["data"])
    return clipping_gradients.measured(
        problem,
        _cnn.build_method(problem, cell),
        cell["seed"],
        measured_batches,
        measured_batch_size,
        lambda problem, w, rows: problem.sample_gradients(w, rows),
        _cnn.start(cell["data"], cell["seed"]),
    )


def compute(scale: str, *, jobs: int, cache: Path, progress: bool) -> dict[str, Table]:
    """Return the mean cosine by order of the norm, weights, and the weighted means' cosines."""
    chosen = settings(scale)
    noise = cnn_table.noise_multiplier(chosen)
    kept = ("data", "batch", "epochs", "clip_norm", "momentum", "step_size")
    cells = [
        {
            **{key: chosen[key] for key in (*kept, "measured_batches", "measured_batch_size")},
            "training": training,
            "rule": "GC",
            "r": 0.1,
            "noise_multiplier": noise if training == "private" else 0.0,
            "seed": seed,
        }
        for seed in range(chosen["seeds"])
        for training in TRAININGS
    ]
    records = sweep(run_cell, cells, folder=cache, jobs=jobs, progress=progress, settings=chosen)
    return clipping_gradients.tables(records, noise)


def caption(tables: dict[str, Table], scale: str) -> str:
    """Return the caption."""
    chosen, means = settings(scale), tables["weighted_means"]
    noise = float(runs.where(tables["by_order"], training="private")["noise_multiplier"][0])
    rate = 1.0 / runs.steps_per_epoch(chosen["n"], chosen["batch"])
    iterations = round(chosen["epochs"] / rate)
    rdp, pld = runs.epsilons(rate, noise, iterations, DELTA)
    private, exact = (cosines_in_words(means, training) for training in TRAININGS)
    small = "A smaller network on scikit-learn's digits. " if chosen["data"] == "digits" else ""
    return f"""
Per-sample gradients of the CNN of Xia et al.'s Table 2 on {chosen["data"]}, trained by gradient
clipping, with and without noise. (a), (b): mean cosine between a sample's gradient and the mean
gradient of its batch, by the order of magnitude of its norm. (c), (d): weights at C = 1. (e) to
(l): cosine between the weighted and the true mean gradient of a batch, for every r. Mean cosine,
PSAC against Auto-S, private training: {private}; without noise: {exact}. Step
size {chosen["step_size"]:g}, C = {chosen["clip_norm"]:g}, momentum {chosen["momentum"]:g},
{chosen["epochs"]} epochs with and without noise, seeds: {chosen["seeds"]}, and
{chosen["measured_batches"]} batches of {chosen["measured_batch_size"]} measured in each run.

Privacy: the private training is ({EPSILON:g}, {DELTA:g})-differentially private under
add-or-remove-one with n public, epsilon = {pld:.4f} by PLD and {rdp:.4f} by RDP at sigma =
{noise:.4f}. The other training has no noise and no guarantee, and neither do the measured
gradients.

Differences from the paper: {small}Its Fig. 3 is on Fashion-MNIST at an unstated r, each rule along
its own path. Here both rules weight the same gradients, so that only the weights differ.

Finding: {finding(tables)}
"""
