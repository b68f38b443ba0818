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
STEP_SIZES = (0.2, 0.8, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)  # the paper's end at 8
#: Points within which a single run counts as equal to the best, about two deviations over seeds.
ALIKE = 0.5
PANELS = ("PSAC", "Auto-S", "GC")


def settings(scale: str) -> dict[str, Any]:
    """Return the settings of the figure."""
    chosen = clipping_table.settings(scale)
    del chosen["r"]
    every = 2 if scale == "quick" else 1
    return {
        **chosen,
        "model": "linear" if scale == "quick" else "mlp",
        "step_sizes": list(STEP_SIZES[::every]),
        "rs": list(RS[::every]),
        "clip_norms": list(CLIP_NORMS[::every]),
        "seeds": 1 if scale == "quick" else 5,
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
    """Draw a map per rule; colors are points below its best, and cells equal to it are framed."""
    from matplotlib.colors import LogNorm
    from matplotlib.patches import Rectangle

    table = tables["accuracy"]
    figure, axes = plotting.panels(1, 3, width=plotting.PAGE / 3, height=2.3)
    norm = LogNorm(0.1, 100.0)  # resolves small differences near the best
    for ax, rule in zip(axes[0], PANELS, strict=True):
        rows = runs.where(table, rule=rule)
        values = np.unique(rows["r_or_clip_norm"])
        steps = np.unique(rows["step_size"])[::-1]
        below, alike = np.empty((len(steps), len(values))), like_the_best(rows)
        for i, step in enumerate(steps):
            for j, value in enumerate(values):
                here = (rows["step_size"] == step) & (rows["r_or_clip_norm"] == value)
                cell = {name: column[here][0] for name, column in rows.items()}
                below[i, j] = rows["test_accuracy"].max() - cell["test_accuracy"]
                spread = f"\n±{cell['test_accuracy_std']:.1f}" if cell["runs"] > 1 else ""
                color = "white" if below[i, j] > 3.0 else "black"
                look = {"ha": "center", "va": "center", "fontsize": 5.5, "color": color}
                ax.text(j, i, f"{cell['test_accuracy']:.1f}{spread}", **look)
                if alike[here][0]:
                    frame: dict[str, Any] = {"fill": False, "edgecolor": "#D55E00"}
                    ax.add_patch(
                        Rectangle((j - 0.47, i - 0.47), 0.94, 0.94, linewidth=1.4, **frame)
                    )
        image = ax.imshow(np.maximum(below, 0.1), norm=norm, cmap="cividis_r", aspect="auto")
        ax.grid(False)
        ax.set_xticks(range(len(values)), [f"{value:g}" for value in values])
        ax.set_yticks(range(len(steps)), [f"{step:g}" for step in steps])
        ax.tick_params(labelsize="x-small")
        ax.set(title=rule, xlabel="clip norm C" if rule == "GC" else "r", ylabel="step size")
    figure.colorbar(image, ax=list(axes[0]), label="points below the map's best", shrink=0.9)
    return figure


def like_the_best(rows: Table) -> np.ndarray:
    """Return which cells of a map are indistinguishable from the best.

    Those within two standard deviations over the best's seeds, or ``ALIKE`` points of single runs.
    """
    best = rows["test_accuracy"].argmax()
    many = rows["runs"][best] > 1
    margin = 2.0 * rows["test_accuracy_std"][best] if many else ALIKE
    return np.asarray(rows["test_accuracy"] >= rows["test_accuracy"][best] - margin)


def alike_in_words(table: Table) -> str:
    """Return a sentence on the framed cells."""
    single = table["runs"].max() == 1
    margin = f"{ALIKE:g} points (single runs)" if single else "two standard deviations (seeds)"
    counts = ", ".join(
        f"{like_the_best(runs.where(table, rule=rule)).sum()} of "
        f"{len(runs.where(table, rule=rule)['rule'])} ({rule})"
        for rule in PANELS
    )
    return f"Framed cells lie within {margin} of the map's best, {counts}"


def grid_in_words(table: Table) -> str:
    """Return a sentence on the maps whose best step size is an end of the grid."""
    inside = []
    for rule in PANELS:
        rows = runs.where(table, rule=rule)
        best = rows["step_size"][rows["test_accuracy"].argmax()]
        inside += runs.is_inside([best], rows["step_size"].tolist())
    return runs.grid_sentence(inside, PANELS)


def finding(table: Table, kind: str) -> str:
    """Return a sentence with the verdict on "r matters little compared with a clip norm"."""
    ranges = {rule: spread(table, rule) for rule in PANELS}
    widths = {rule: top - worst for rule, (_, _, worst, top) in ranges.items()}
    tuned = {rule: high - low for rule, (low, high, _, _) in ranges.items()}
    little = max(widths["PSAC"], widths["Auto-S"]) < widths["GC"]
    listed = ", ".join(
        f"{rule} {widths[rule]:.1f} ({tuned[rule]:.1f} with the step size tuned for each)"
        for rule in PANELS
    )
    return (
        f"that r matters less than a clip norm is {'confirmed' if little else 'refuted'} for "
        f"{kind}; range in points over r or C at the best step size: {listed}."
    )


def spread(table: Table, rule: str) -> tuple[float, float, float, float]:
    """Return the range of accuracies over r or C: at each one's best step size, and at one for all.

    The one step size is that of the overall best accuracy.
    """
    rows = runs.where(table, rule=rule)
    values = np.unique(rows["r_or_clip_norm"])
    best = [runs.where(rows, r_or_clip_norm=v)["test_accuracy"].max() for v in values]
    step = rows["step_size"][rows["test_accuracy"].argmax()]
    fixed = runs.where(rows, step_size=step)["test_accuracy"]
    return float(min(best)), float(max(best)), float(fixed.min()), float(fixed.max())


def ranges_in_words(table: Table) -> str:
    """Return the ranges of accuracies over r or C, of every rule."""
    parts = []
    for rule in PANELS:
        low, high, worst, top = spread(table, rule)
        name = "C" if rule == "GC" else "r"
        parts.append(
            f"{rule} {worst:.1f} to {top:.1f} over {name} at the overall best step size, "
            f"{low:.1f} to {high:.1f} at the best step size of each {name}"
        )
    return "; ".join(parts)


def caption(tables: dict[str, Table], scale: str) -> str:
    """Return the caption."""
    chosen, table = settings(scale), tables["accuracy"]
    noise = float(table["noise_multiplier"][0])
    rate = 1.0 / runs.steps_per_epoch(chosen["n"], chosen["batch"])
    rdp, pld = runs.epsilons(rate, noise, chosen["iterations"], chosen["delta"])
    small = (
        "scikit-learn's digits instead of Fashion-MNIST"
        if chosen["data"] == "digits"
        else ("MNIST instead of Fashion-MNIST")
    )
    return f"""
Test accuracy on {made_of(chosen)} in percent, {runs.MODELS[chosen["model"]]},
{runs.runs_in_words(chosen["seeds"])}; {ranges_in_words(table)}. {alike_in_words(table)}. PSAC and
Auto-S have C = {chosen["clip_norm"]:g}. As in the paper,
r matters little compared with a clip norm, which must be tuned together with the step size: C
scales the noise and, below most gradients' norms, the step. The map of GC reaches larger
products of C and step size than the others, which have C = {chosen["clip_norm"]:g}, so that its
best is not comparable with theirs. {grid_in_words(table)} The paper's best are 86.56 (PSAC, step
4, r = .1), 86.29 (Auto-S, step 4, r = .01) and 86.23 (DP-SGD, step 4, C = .1).

Privacy: each run is ({chosen["epsilon"]:g}, {chosen["delta"]:g})-differentially private under
add-or-remove-one with n public, at sigma = {noise:.4f}: epsilon {pld:.4f} by PLD, {rdp:.4f} by
RDP. A map as a whole is not covered, and neither are the accuracies.

Differences from the paper: {small}, {runs.MODELS[chosen["model"]]} instead of a four-layer CNN, no
momentum, Poisson batches of {chosen["batch"]} on average for {chosen["epochs"]} epochs.

Finding: {finding(table, "the " + runs.MODELS[chosen["model"]])}
"""
