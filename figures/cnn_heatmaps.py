"""Accuracy of the CNN over step size and r or clip norm: Fig. 4 of Xia et al. (2023)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dpanalysis.experiments import sweep
from dpanalysis.experiments.records import Table

from . import _clipping as runs
from . import _cnn, clipping_heatmaps, cnn_table
from ._data import made_of
from .clipping_heatmaps import (
    CLIP_NORMS,
    PANELS,
    RS,
    alike_in_words,
    draw,
    finding,
    grid_in_words,
    ranges_in_words,
)

__all__ = ["NEEDS", "TITLE", "caption", "compute", "draw", "settings"]

TITLE = "How much r and the clip norm matter to a CNN (Xia et al. 2023, Fig. 4)"
NEEDS = "torch"


def settings(scale: str) -> dict[str, Any]:
    """Return the settings of the figure."""
    chosen = cnn_table.settings(scale)
    del chosen["r"]
    mnist = chosen["data"] == "mnist"
    return {
        **chosen,
        "epochs": 3 if mnist else 2,
        "step_sizes": [0.2, 2.0, 8.0, 32.0],  # every second one of clipping_heatmaps, like r and C
        "rs": list(RS[::2]),
        "clip_norms": list(CLIP_NORMS[::2]),
        "seeds": 1 if scale == "quick" else 3,
    }


def compute(scale: str, *, jobs: int, cache: Path, progress: bool) -> dict[str, Table]:
    """Return the mean accuracy of each pair (step size, r or clip norm)."""
    chosen = settings(scale)
    noise = cnn_table.noise_multiplier(chosen)
    cells = [
        {
            **{key: chosen[key] for key in ("data", "momentum", "batch", "epochs")},
            "rule": rule,
            "clip_norm": value if rule == "GC" else chosen["clip_norm"],
            "r": 0.1 if rule == "GC" else value,
            "step_size": step_size,
            "noise_multiplier": noise,
            "seed": seed,
        }
        for seed in range(chosen["seeds"])
        for rule in PANELS
        for value in chosen["clip_norms" if rule == "GC" else "rs"]
        for step_size in chosen["step_sizes"]
    ]
    records = sweep(
        _cnn.train_cell, cells, folder=cache, jobs=jobs, progress=progress, settings=chosen
    )
    return {"accuracy": clipping_heatmaps.accuracies(records, noise)}


def caption(tables: dict[str, Table], scale: str) -> str:
    """Return the caption."""
    chosen, table = settings(scale), tables["accuracy"]
    noise = float(table["noise_multiplier"][0])
    rate = 1.0 / runs.steps_per_epoch(chosen["n"], chosen["batch"])
    iterations = round(chosen["epochs"] / rate)
    rdp, pld = runs.epsilons(rate, noise, iterations, chosen["delta"])
    small = "and a smaller network " if chosen["data"] == "digits" else ""
    return f"""
Test accuracy on {made_of(chosen)} in percent, the CNN of Xia et al.'s Table 2,
{runs.runs_in_words(chosen["seeds"])}; {ranges_in_words(table)}. {alike_in_words(table)}.
{grid_in_words(table)} PSAC and Auto-S have C = {chosen["clip_norm"]:g}. Momentum
{chosen["momentum"]:g}, Poisson batches of {chosen["batch"]} on average, {chosen["epochs"]} epochs.

Privacy: each run is ({chosen["epsilon"]:g}, {chosen["delta"]:g})-differentially private under
add-or-remove-one with n public, at sigma = {noise:.4f}: epsilon {pld:.4f} by PLD, {rdp:.4f} by
RDP. A map as a whole is not covered, and neither are the accuracies.

Differences from the paper: {made_of(chosen)} {small}instead of Fashion-MNIST, every second step
size, r and C of its grids, and {chosen["epochs"]} epochs, since the whole maps at the table's
number of epochs take a day; batch, momentum and epochs are not in its text.

Finding: {finding(table, "the CNN")}
"""
