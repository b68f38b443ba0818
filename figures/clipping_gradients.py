"""Directions of per-sample gradients and the effect of weights: Xia et al. (2023), Figs. 1-3."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import dpanalysis as dpa
from dpanalysis import plotting
from dpanalysis.experiments import Record, sweep
from dpanalysis.experiments.records import Table

from . import _clipping as runs
from ._data import made_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Small gradients, their weights and the weighted mean (Xia et al. 2023, Figs. 1-3)"

RS = (1e-3, 1e-2, 0.1, 1.0)
EPSILON, DELTA = 3.0, 1e-5
STEP_SIZE, CLIP_NORM, R = 8.0, 0.1, 0.1
TRAININGS = {"private": "private, epsilon = 3", "exact": "without noise"}
DASHES = ("-", "--", "-.", ":")
#: Styles of the histograms, which overlap.
HATCHES = {"PSAC": None, "Auto-S": "////"}


def settings(scale: str) -> dict[str, Any]:
    """Return the settings of the figure."""
    data = runs.data_name(scale)
    n, batch = runs.training_rows(data), runs.by_data(data, 512, 256, 64)
    return {
        "data": data,
        "n": n,
        "row_bound_L2": runs.row_radius(data, False),
        "hidden": runs.hidden_units(data),
        "batch": batch,
        "epochs": runs.by_data(data, 20, 15, 12),
        "epochs_without_noise": runs.by_data(data, 60, 30, 60),
        "measured_batches": runs.by_data(data, 60, 20, 60),
        "measured_batch_size": 128,
        "step_size": STEP_SIZE,
        "clip_norm": CLIP_NORM,
        "r": list(RS),
        "epsilon": EPSILON,
        "delta": DELTA,
        "seeds": 1 if scale == "quick" else 5,
        "relation": runs.RELATION,
    }


def run_cell(
    data: str,
    training: str,
    batch: int,
    epochs: int,
    noise_multiplier: float,
    batches: int,
    batch_size: int,
    seed: int,
) -> dict[str, np.ndarray]:
    """Train the MLP by GC and measure per-sample gradients along the way.

    Returns the norm of every sampled gradient and its cosine with the mean gradient of its batch,
    and for each batch and r the cosine between the weighted and the true mean gradient.
    """
    problem = runs.load_problem(data, False, "mlp")
    steps = runs.steps_per_epoch(problem.n, batch)
    iterations = epochs * steps
    method = runs.build_method(
        problem,
        runs.make_rule("GC", CLIP_NORM, R),
        STEP_SIZE,
        1.0 / steps,
        iterations,
        noise_multiplier,
    )
    return measured(problem, method, seed, batches, batch_size, runs.sample_gradients)


def measured(
    problem: Any,
    method: dpa.methods.SGD,
    seed: int,
    batches: int,
    batch_size: int,
    sample_gradients: Callable[..., np.ndarray],
    w0: np.ndarray | None = None,
) -> dict[str, np.ndarray]:
    """Run the method and measure per-sample gradients ``batches`` times along the way."""
    random, iterations = np.random.default_rng([seed, 1]), method.iterations
    norms, cosines, weighted = [], [], []

    def look(w: np.ndarray) -> None:
        rows = np.sort(random.choice(problem.n, batch_size, replace=False))
        gradients = sample_gradients(problem, w, rows)
        mean = gradients.mean(axis=0)
        size = np.linalg.norm(gradients, axis=1)
        norms.append(size)
        cosines.append(_cosine(gradients, mean))
        rules = (runs.make_rule(rule, 1.0, r) for rule in ("PSAC", "Auto-S") for r in RS)
        weighted.append([float(_cosine(rule.weight(size) @ gradients, mean)) for rule in rules])

    def follow(iteration: int, w: np.ndarray) -> None:
        if iteration * batches // iterations > (iteration - 1) * batches // iterations:
            look(w[0])

    dpa.minimize(problem, method, None, w0=w0, rng=seed, record=(), callback=follow)
    return {
        "norm": np.concatenate(norms),
        "cosine": np.concatenate(cosines),
        "weighted_cosine": np.array(weighted).reshape(-1, 2, len(RS)),
    }


def _cosine(vectors: np.ndarray, direction: np.ndarray) -> np.ndarray:
    """Return the cosines of vectors with a direction; 0 for zero vectors."""
    lengths = np.linalg.norm(vectors, axis=-1) * np.linalg.norm(direction)
    return (vectors @ direction) / np.where(lengths > 0.0, lengths, 1.0)


def compute(scale: str, *, jobs: int, cache: Path, progress: bool) -> dict[str, Table]:
    """Return the mean cosine by order of the norm, weights, and the weighted means' cosines."""
    chosen = settings(scale)
    rate = 1.0 / runs.steps_per_epoch(chosen["n"], chosen["batch"])
    iterations = round(chosen["epochs"] / rate)
    noise = runs.calibrate(rate, iterations, EPSILON, DELTA)
    cells = [
        {
            "data": chosen["data"],
            "training": training,
            "batch": chosen["batch"],
            "epochs": chosen["epochs" if training == "private" else "epochs_without_noise"],
            "noise_multiplier": noise if training == "private" else 0.0,
            "batches": chosen["measured_batches"],
            "batch_size": chosen["measured_batch_size"],
            "seed": seed,
        }
        for training in TRAININGS
        for seed in range(chosen["seeds"])
    ]
    records = sweep(run_cell, cells, folder=cache, jobs=jobs, progress=progress, settings=chosen)
    return tables(records, noise)


def tables(records: list[Record], noise: float) -> dict[str, Table]:
    """Return the mean cosine by order of the norm, weights, and the weighted means' cosines."""
    orders, cosines = [], []
    for training in TRAININGS:
        mine = [each.result for each in records if each.parameters["training"] == training]
        norm = np.concatenate([result["norm"] for result in mine])
        cosine = np.concatenate([result["cosine"] for result in mine])
        order = np.floor(np.log10(np.maximum(norm, 1e-12)))
        for value in np.unique(order):
            there = order == value
            orders.append(
                {
                    "training": training,
                    "order": int(value),
                    "mean_cosine": float(cosine[there].mean()),
                    "samples": int(there.sum()),
                    "share": float(there.mean()),
                    "noise_multiplier": noise if training == "private" else 0.0,
                }
            )
        values = np.concatenate([result["weighted_cosine"] for result in mine])
        for i, rule in enumerate(("PSAC", "Auto-S")):
            for j, r in enumerate(RS):
                cosines += [
                    {"training": training, "rule": rule, "r": r, "cosine": float(value)}
                    for value in values[:, i, j]
                ]
    norms = np.logspace(-4, 1, 201)
    weights = [
        {"rule": rule, "r": r, "norm": float(norm), "weight": float(weight)}
        for rule in ("PSAC", "Auto-S")
        for r in RS
        for norm, weight in zip(norms, runs.make_rule(rule, 1.0, r).weight(norms), strict=True)
    ]
    return {
        "by_order": runs.stack(orders),
        "weights": runs.stack(weights),
        "weighted_means": runs.stack(cosines),
    }


def draw(tables: dict[str, Table]) -> Figure:
    """Draw cosines by order, weights, and the histograms for every r and both trainings."""
    figure, axes = plotting.panels(3, len(RS), width=plotting.PAGE / len(RS), height=1.7)
    orders, colors = tables["by_order"], list(plotting.PALETTE.values())
    lowest, highest = orders["order"].min(), orders["order"].max()
    for ax, training in zip(axes[0, :2], TRAININGS, strict=True):
        rows = runs.where(orders, training=training)
        ax.bar(rows["order"], rows["mean_cosine"], color=colors[0], width=0.75)
        ax.set(
            title=TRAININGS[training],
            xlabel="log10 of the norm",
            xlim=(lowest - 0.6, highest + 0.6),
            ylim=(min(0.0, 1.2 * orders["mean_cosine"].min()), None),
        )
    axes[0, 0].set_ylabel("mean cosine with\nthe batch gradient")
    weights = tables["weights"]
    for ax, rule in zip(axes[0, 2:], ("PSAC", "Auto-S"), strict=True):
        for k, r in enumerate(RS):
            rows = runs.where(weights, rule=rule, r=r)
            look = {"color": colors[k], "label": f"r = {r:g}"}
            ax.plot(rows["norm"], rows["weight"], DASHES[k], **look)
        ax.set(title=f"{rule}: weight", xlabel="norm", xscale="log", yscale="log")
        ax.set_ylim(weights["weight"].min() / 1.5, weights["weight"].max() * 1.5)
    small = {"fontsize": "x-small", "handlelength": 1.0, "columnspacing": 0.8}
    axes[0, 2].legend(ncols=2, loc="upper right", **small)  # room there
    least = np.floor(10.0 * tables["weighted_means"]["cosine"].min()) / 10.0
    bins = np.linspace(least, 1.0, round((1.0 - least) / 0.05) + 1)  # cover all cosines
    for row, training in zip(axes[1:], TRAININGS, strict=True):
        for ax, r in zip(row, RS, strict=True):
            for rule in ("PSAC", "Auto-S"):
                values = runs.where(tables["weighted_means"], training=training, rule=rule, r=r)
                cosine = values["cosine"]
                ax.hist(
                    np.minimum(cosine, 1.0),  # rounding may exceed 1
                    bins,
                    weights=np.full(len(cosine), 1.0 / len(cosine)),
                    color=runs.COLORS[rule],
                    alpha=0.55,
                    hatch=HATCHES[rule],
                    edgecolor="#333333",
                    linewidth=0.3,
                    label=rule,
                )
            ax.set(title=f"r = {r:g}", xlabel="cosine")
        row[0].set_ylabel(f"share of batches,\n{TRAININGS[training].split(',')[0]}")
    plotting.shared_legend(figure, axes[1:])
    return figure


def caption(tables: dict[str, Table], scale: str) -> str:
    """Return the caption."""
    chosen, means = settings(scale), tables["weighted_means"]
    noise = float(runs.where(tables["by_order"], training="private")["noise_multiplier"][0])
    rate = 1.0 / runs.steps_per_epoch(chosen["n"], chosen["batch"])
    iterations = round(chosen["epochs"] / rate)
    rdp, pld = runs.epsilons(rate, noise, iterations, DELTA)
    private, exact = (cosines_in_words(means, training) for training in TRAININGS)
    small = "The data are scikit-learn's digits. " if chosen["data"] == "digits" else ""
    longer = f"lasts {chosen['epochs_without_noise']} epochs instead of {chosen['epochs']}"
    return f"""
Per-sample gradients of an MLP with {chosen["hidden"]} hidden units on {made_of(chosen)}, trained by
gradient clipping. (a), (b): mean cosine between a sample's gradient and the mean gradient of its
batch, by the order of magnitude of its norm. (c), (d): weights at C = 1. (e) to (l): cosine between
the weighted and the true mean gradient of a batch, for every r. Mean cosine, PSAC against Auto-S,
private training: {private}; without noise: {exact}. PSAC is closer to the true
gradient where r is well below most norms, far closer once many gradients are small; at r = 1 the
order can reverse, so that a histogram is meaningless without its r.

Privacy: the private training is ({EPSILON:g}, {DELTA:g})-differentially private under
add-or-remove-one with n public, epsilon = {pld:.4f} by PLD and {rdp:.4f} by RDP at sigma =
{noise:.4f}. The other training has no noise and no guarantee, and neither do the measured
gradients.

Differences from the paper: {small}Its Fig. 1 is made with DP-SGD under the same budget, its Fig. 3
on Fashion-MNIST with a CNN at an unstated r, each rule along its own path. Here both rules weight
the same gradients, so that only the weights differ, on {chosen["measured_batches"]} batches of
{chosen["measured_batch_size"]} per run. The second training has no noise and {longer}, until many
gradients are small, which private training at this budget does not achieve.

Finding: {finding(tables)}
"""


def mean_cosines(means: Table, training: str, r: float) -> tuple[float, float]:
    """Return the mean cosines of PSAC and of Auto-S."""
    psac, auto = (
        float(runs.where(means, training=training, rule=rule, r=r)["cosine"].mean())
        for rule in ("PSAC", "Auto-S")
    )
    return psac, auto


def cosines_in_words(means: Table, training: str) -> str:
    """Return the mean cosines of PSAC against those of Auto-S, for every r."""
    pairs = [(r, *mean_cosines(means, training, r)) for r in RS]
    return ", ".join(f"r = {r:g}: {psac:.3f} against {auto:.3f}" for r, psac, auto in pairs)


def finding(tables: dict[str, Table]) -> str:
    """Return a sentence with the verdicts on the paper's Figs. 1 and 3."""
    orders, means = tables["by_order"], tables["weighted_means"]
    small = runs.where(orders, training="private")
    low = small["mean_cosine"][small["order"] < 0]
    orthogonal = bool(len(low)) and float(np.abs(low).max()) < 0.1

    def closer(r: float) -> bool:
        psac, auto = mean_cosines(means, "private", r)
        return psac > auto

    better = [f"{r:g}" for r in RS if closer(r)]
    worse = [f"{r:g}" for r in RS if not closer(r)]
    alike = "confirmed" if orthogonal else "refuted"
    other = f", and the reverse holds at r = {', '.join(worse)}" if worse else ""
    return (
        f"that small gradients are nearly orthogonal to the mean is {alike}; that the mean of PSAC "
        f"is closer to the true one than that of Auto-S is confirmed for r = "
        f"{', '.join(better) or 'none'}{other}; the paper does not state the r of its Fig. 3."
    )
