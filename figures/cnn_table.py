"""Test accuracy of the paper's CNN under three clipping rules: Table 2 of Xia et al. (2023)."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpanalysis import plotting
from dpanalysis.experiments import sweep
from dpanalysis.experiments.records import Table

from . import _clipping as runs
from . import _cnn
from .clipping_table import CLIP_NORM, DELTA, EPSILON, PUBLISHED, R

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "A CNN under three clipping rules at (3, 1e-5) (Xia et al. 2023, Table 2)"
NEEDS = "torch"

RULES = tuple(PUBLISHED)
MOMENTUM = 0.9
STEP_SIZES = {"quick": [0.5, 2.0], "paper": [0.25, 0.5, 1.0, 2.0]}


def settings(scale: str) -> dict[str, Any]:
    """Return what the table is made with."""
    data = runs.data_name(scale)
    mnist = data == "mnist"
    return {
        "data": data,
        "n": 60_000 if mnist else 1438,
        "batch": 512 if mnist else 64,
        "epochs": 40 if mnist else 6,
        "clip_norm": CLIP_NORM,
        "r": R,
        "momentum": MOMENTUM,
        "step_sizes": STEP_SIZES[scale],
        "seeds": 5 if mnist else 2,
        "epsilon": EPSILON,
        "delta": DELTA,
        "relation": runs.RELATION,
    }


def noise_multiplier(chosen: dict[str, Any]) -> float:
    """Return the noise multiplier of a whole run, rounded up to four places.

    So that every machine gives the same, and a cell that another one computed is found.
    """
    steps = runs.steps_per_epoch(chosen["n"], chosen["batch"])
    least = runs.calibrate(1.0 / steps, chosen["epochs"] * steps, EPSILON, DELTA)
    return math.ceil(1e4 * least) / 1e4


def cells(chosen: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the parameters of every run: all settings with the first seed come first."""
    noise = noise_multiplier(chosen)
    return [
        {
            **{key: chosen[key] for key in ("data", "clip_norm", "r", "momentum", "batch")},
            "epochs": chosen["epochs"],
            "rule": rule,
            "step_size": step_size,
            "noise_multiplier": noise,
            "seed": seed,
        }
        for seed in range(chosen["seeds"])
        for rule in RULES
        for step_size in chosen["step_sizes"]
    ]


def compute(scale: str, *, jobs: int, cache: Path, progress: bool) -> dict[str, Table]:
    """Return every run, the mean over seeds by step size, and the best of each rule."""
    chosen = settings(scale)
    run = partial(sweep, folder=cache, jobs=jobs, progress=progress, settings=chosen)
    records = run(_cnn.train_cell, cells(chosen))
    keys = ("rule", "step_size", "seed", "noise_multiplier")
    every = runs.stack(
        [
            {
                **{key: record.parameters[key] for key in keys},
                "test_accuracy": 100.0 * float(record.result["test_accuracy"][-1]),
                "training_accuracy": 100.0 * float(record.result["training_accuracy"][0]),
            }
            for record in records
        ]
    )
    means = runs.group(every, ("rule", "step_size"), ("test_accuracy", "training_accuracy"))
    best = []
    for rule in RULES:
        rows = runs.where(means, rule=rule)
        k = int(rows["test_accuracy"].argmax())
        best.append(
            {
                **{name: column[k].item() for name, column in rows.items()},
                "published": PUBLISHED[rule][0],
                "published_std": PUBLISHED[rule][1],
                "best_step_inside": 0 < k < len(rows["step_size"]) - 1,
            }
        )
    curves = [
        {"rule": p["rule"], "step_size": p["step_size"], "epoch": epoch, "test_accuracy": accuracy}
        for p, result in ((record.parameters, record.result) for record in records)
        for epoch, accuracy in zip(result["epoch"].tolist(), result["test_accuracy"].tolist())
    ]
    return {
        "best": runs.stack(best),
        "by_step_size": means,
        "runs": every,
        "curves": runs.group(
            runs.stack(curves), ("rule", "step_size", "epoch"), ("test_accuracy",)
        ),
    }


def draw(tables: dict[str, Table]) -> Figure:
    """Draw accuracy against step size, and by epoch at the best step size, with the published."""
    figure, axes = plotting.panels(1, 2, width=4.4, height=2.8)
    for rule in RULES:
        look: dict[str, Any] = {"color": runs.COLORS[rule], "label": runs.RULES[rule]}
        rows = runs.where(tables["by_step_size"], rule=rule)
        axes[0, 0].errorbar(
            rows["step_size"], rows["test_accuracy"], rows["test_accuracy_std"], capsize=2.5, **look
        )
        best = runs.where(tables["best"], rule=rule)
        curve = runs.where(tables["curves"], rule=rule, step_size=best["step_size"][0])
        axes[0, 1].plot(curve["epoch"][1:], 100.0 * curve["test_accuracy"][1:], **look)
        if len(curve["epoch"]) > 10:  # the network of the paper, not the small one
            axes[0, 1].axhline(best["published"][0], color=runs.COLORS[rule], linestyle=":")
            axes[0, 1].set_ylim(95.0, 99.0)
    axes[0, 0].set(xscale="log", xlabel="step size", ylabel="test accuracy (%)")
    axes[0, 0].set_xticks(sorted(set(tables["by_step_size"]["step_size"])))
    axes[0, 0].xaxis.set_major_formatter("{x:g}")
    axes[0, 0].minorticks_off()
    axes[0, 1].set(xlabel="epoch", title="at the best step size; dotted: published")
    plotting.shared_legend(figure, axes)
    return figure


def report(tables: dict[str, Table]) -> dict[str, str]:
    """Return the accuracies beside the published ones, in a sentence."""
    best = tables["best"]
    parts = [
        f"{rule} {mean:.2f} ± {std:.2f} (published {PUBLISHED[rule][0]:.2f})"
        for rule, mean, std in zip(
            best["rule"].tolist(), best["test_accuracy"], best["test_accuracy_std"], strict=True
        )
    ]
    return {
        "headline": (
            "- **Clipping sample by sample** (Xia et al. 2023), a CNN on MNIST at epsilon "
            f"{EPSILON:g}, percent: {', '.join(parts)}. Ours differ by less than their spread."
        )
        if float(best["test_accuracy"].max() - best["test_accuracy"].min())
        < float(best["test_accuracy_std"].min())
        else f"- **Clipping sample by sample** (Xia et al. 2023): {', '.join(parts)}."
    }


def caption(tables: dict[str, Table], scale: str) -> str:
    """Return the caption."""
    chosen, best = settings(scale), tables["best"]
    noise = noise_multiplier(chosen)
    steps = runs.steps_per_epoch(chosen["n"], chosen["batch"])
    spent = {
        kind: runs.epsilon(1.0 / steps, noise, chosen["epochs"] * steps, DELTA, kind)
        for kind in ("pld", "rdp")
    }
    listed = ", ".join(
        f"{rule} {mean:.2f} ± {std:.2f} at {step:g} (published {printed:.2f} ± {around:.2f})"
        for rule, mean, std, step, printed, around in zip(
            *(
                best[name].tolist()
                for name in (
                    "rule",
                    "test_accuracy",
                    "test_accuracy_std",
                    "step_size",
                    "published",
                    "published_std",
                )
            ),
            strict=True,
        )
    )
    at_end = [
        str(rule) for rule, inside in zip(best["rule"], best["best_step_inside"]) if not inside
    ]
    small = ""
    if chosen["data"] == "digits":
        small = (
            "The data are scikit-learn's 1,797 digits of 8 x 8 pixels and the network is a smaller "
            "one (MNIST with --scale paper and $DPANALYSIS_DATA). "
        )
    return f"""
Test accuracy on {chosen["data"]} in percent at the best step size, mean and standard deviation over
{chosen["seeds"]} runs: {listed}. C = r = {CLIP_NORM:g}, momentum {MOMENTUM:g}, Poisson batches of
{chosen["batch"]} on average, {chosen["epochs"]} epochs, pixels in [0, 1], no augmentation; step
sizes {", ".join(f"{step:g}" for step in chosen["step_sizes"])}. The best step size is at the end of
the grid for: {", ".join(at_end) or "none"}.

Privacy: every run is ({EPSILON:g}, {DELTA:g})-differentially private under add-or-remove-one with
n public, at sigma = {noise:.4f}: epsilon {spent["pld"]:.4f} by PLD, {spent["rdp"]:.4f} by RDP. The
guarantee is that of one run: choosing the best step size by the test part, as here and in the
paper, is not covered, and neither are the accuracies.

Differences from the paper: {small}Batch size, epochs, momentum and step sizes are not in its text;
they follow Tramer and Boneh (2021), whom it names. Batches are drawn by Poisson sampling, which its
Theorem 1 accounts for; its Algorithm 1 samples with replacement.
"""
