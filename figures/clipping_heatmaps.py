"""Accuracy over step size and r or clip norm: Fig. 4 of Xia et al. (2023)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dpanalysis import plotting
from dpanalysis.experiments import Record, sweep
from dpanalysis.experiments.records import Table

from . import _clipping as runs
from . import clipping_table
from ._data import made_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "How much r and the clip norm matter (Xia et al. 2023, Fig. 4)"

RS = (1e-4, 1e-3, 1e-2, 0.1, 1.0)
CLIP_NORMS = (0.1, 0.2, 0.8, 4.0, 20.0)
STEP_SIZES = (0.2, 0.8, 2.0, 4.0, 8.0)
PANELS = ("PSAC", "Auto-S", "GC")


def settings(scale: str) -> dict[str, Any]:
    """Return what the figure is made with."""
    chosen = clipping_table.settings(scale)
    del chosen["r"]
    every = 2 if scale == "quick" else 1
    return {
        **chosen,
        "model": "linear" if scale == "quick" else "mlp",
        "step_sizes": list(STEP_SIZES[::every]),
        "rs": list(RS[::every]),
        "clip_norms": list(CLIP_NORMS[::every]),
        "seeds": 1,
    }


def compute(scale: str, *, jobs: int, cache: Path, progress: bool) -> dict[str, Table]:
    """Return the mean accuracy of each pair (step size, r or clip norm)."""
    chosen = settings(scale)
    rate = 1.0 / runs.steps_per_epoch(chosen["n"], chosen["batch"])
    noise = runs.calibrate(rate, chosen["iterations"], chosen["epsilon"], chosen["delta"])
    cells = [
        {
            "data": chosen["data"],
            "signed": False,
            "model": chosen["model"],
            "rule": rule,
            "clip_norm": value if rule == "GC" else chosen["clip_norm"],
            "r": 0.1 if rule == "GC" else value,
            "step_size": step_size,
            "batch": chosen["batch"],
            "epochs": chosen["epochs"],
            "noise_multiplier": noise,
            "seed": seed,
            "curves": False,
        }
        for rule in PANELS
        for value in chosen["clip_norms" if rule == "GC" else "rs"]
        for step_size in chosen["step_sizes"]
        for seed in range(chosen["seeds"])
    ]
    records = sweep(
        runs.train_cell, cells, folder=cache, jobs=jobs, progress=progress, settings=chosen
    )
    return {"accuracy": accuracies(records, noise)}


def accuracies(records: list[Record], noise: float) -> Table:
    """Return the mean accuracy of each cell of the maps, over the seeds."""
    rows = []
    for record in records:
        cell = record.parameters
        rows.append(
            {
                "rule": cell["rule"],
                "r_or_clip_norm": cell["clip_norm" if cell["rule"] == "GC" else "r"],
                "step_size": cell["step_size"],
                "noise_multiplier": noise,
                "test_accuracy": 100.0 * float(record.result["test_accuracy"][-1]),
            }
        )
    keys = ("rule", "r_or_clip_norm", "step_size", "noise_multiplier")
    return runs.group(runs.stack(rows), keys, ("test_accuracy",))


def draw(tables: dict[str, Table]) -> Figure:
    """Draw one map a rule, all with the same colours; the best cell of each is framed."""
    from matplotlib.patches import Rectangle

    table = tables["accuracy"]
    figure, axes = plotting.panels(1, 3, width=plotting.PAGE / 3, height=2.3)
    low, high = table["test_accuracy"].min(), table["test_accuracy"].max()
    for ax, rule in zip(axes[0], PANELS, strict=True):
        rows = runs.where(table, rule=rule)
        values = np.unique(rows["r_or_clip_norm"])
        steps = np.unique(rows["step_size"])[::-1]
        grid = np.empty((len(steps), len(values)))
        for i, step in enumerate(steps):
            for j, value in enumerate(values):
                cell = runs.where(rows, step_size=step, r_or_clip_norm=value)
                grid[i, j] = cell["test_accuracy"][0]
                std, many = cell["test_accuracy_std"][0], cell["runs"][0] > 1
                spread = f"\n±{std:.1f}" if many else ""
                dark = grid[i, j] < 0.5 * (low + high)
                ax.text(
                    j,
                    i,
                    f"{grid[i, j]:.1f}{spread}",
                    ha="center",
                    va="center",
                    fontsize=5.5,
                    color="white" if dark else "black",
                )
        image = ax.imshow(grid, vmin=low, vmax=high, cmap="viridis", aspect="auto")
        i, j = np.unravel_index(grid.argmax(), grid.shape)
        frame = {"fill": False, "edgecolor": "#D55E00", "linewidth": 1.8}
        ax.add_patch(Rectangle((j - 0.5, i - 0.5), 1.0, 1.0, **frame))
        ax.grid(False)
        ax.set_xticks(range(len(values)), [f"{value:g}" for value in values])
        ax.set_yticks(range(len(steps)), [f"{step:g}" for step in steps])
        ax.set(title=rule, xlabel="clip norm C" if rule == "GC" else "r", ylabel="step size")
    figure.colorbar(image, ax=list(axes[0]), label="test accuracy (%)", shrink=0.9)
    return figure


def spread(table: Table, rule: str) -> tuple[float, float, float, float]:
    """Return the range of accuracies over r or C: at the best step of each, and at one step.

    The one step is that of the best accuracy of all.
    """
    rows = runs.where(table, rule=rule)
    values = np.unique(rows["r_or_clip_norm"])
    best = [runs.where(rows, r_or_clip_norm=v)["test_accuracy"].max() for v in values]
    step = rows["step_size"][rows["test_accuracy"].argmax()]
    fixed = runs.where(rows, step_size=step)["test_accuracy"]
    return float(min(best)), float(max(best)), float(fixed.min()), float(fixed.max())


def caption(tables: dict[str, Table], scale: str) -> str:
    """Return the caption."""
    chosen, table = settings(scale), tables["accuracy"]
    noise = float(table["noise_multiplier"][0])
    rate = 1.0 / runs.steps_per_epoch(chosen["n"], chosen["batch"])
    rdp, pld = (
        runs.epsilon(rate, noise, chosen["iterations"], chosen["delta"], kind)
        for kind in ("rdp", "pld")
    )
    parts, at_end = [], []
    for rule in PANELS:
        rows = runs.where(table, rule=rule)
        if rows["step_size"][rows["test_accuracy"].argmax()] == max(chosen["step_sizes"]):
            at_end.append(rule)
        low, high, worst, top = spread(table, rule)
        name = "C" if rule == "GC" else "r"
        parts.append(
            f"{rule} {worst:.1f} to {top:.1f} over {name} at the overall best step size, "
            f"{low:.1f} to {high:.1f} at the best step size of each {name}"
        )
    small = (
        "scikit-learn's digits instead of Fashion-MNIST"
        if chosen["data"] == "digits"
        else ("MNIST instead of Fashion-MNIST")
    )
    return f"""
Test accuracy on {made_of(chosen)} in percent, {runs.MODELS[chosen["model"]]}, mean and
standard deviation of {chosen["seeds"]} run(s), the best cell framed; {"; ".join(parts)}. PSAC and
Auto-S have C = {chosen["clip_norm"]:g}. As in the paper,
r matters little beside a clip norm, which must be tuned together with the step size: C
rescales the noise and, below most gradients' norms, the step. The map of GC reaches larger
products of C and step size than the others, which have C = {chosen["clip_norm"]:g}; its best need
not be compared with theirs. Maps are on the paper's grids, where the best step size is the largest
for {" and ".join(at_end) or "none"}. The paper's best are 86.56 (PSAC, step
4, r = .1), 86.29 (Auto-S, step 4, r = .01) and 86.23 (DP-SGD, step 4, C = .1).

Privacy: each run is ({chosen["epsilon"]:g}, {chosen["delta"]:g})-differentially private under
add-or-remove-one with n public, at sigma = {noise:.4f}: epsilon {pld:.4f} by PLD, {rdp:.4f} by
RDP. A map as a whole is not covered, and neither are the accuracies.

Differences from the paper: {small}, a linear or small model instead of a CNN of four layers, no
momentum, Poisson batches of {chosen["batch"]} on average for {chosen["epochs"]} epochs.
"""
