"""The privacy cost of batches by sampling scheme, and the accuracy at equal epsilon."""

from __future__ import annotations

import math
import warnings
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import dpanalysis as dpa
from dpanalysis import plotting
from dpanalysis.experiments import Record, sweep, tabulate
from dpanalysis.experiments.records import Table

from . import _clipping as runs
from ._data import made_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Sampling schemes of batches: privacy cost, and accuracy at equal epsilon"

DELTA = 1e-5
NOISE_MULTIPLIER = 1.0
#: Label of each sampling scheme, and the neighbouring relation of its guarantee.
SCHEMES = {
    "poisson": ("Poisson", "add_or_remove_one"),
    "balls in bins": ("balls in bins", "add_or_remove_one"),
    "fixed size": ("fixed size", "replace_one"),
    "shuffle": ("shuffled", "replace_one"),
}
COLORS = dict(zip(SCHEMES, plotting.PALETTE.values(), strict=False))
MARKERS = dict(zip(SCHEMES, runs.SERIES, strict=False))


def settings(scale: str) -> dict[str, Any]:
    """Return the settings; digits see the clip norm and the steps of MNIST."""
    data = runs.data_name(scale)
    return {
        "data": data,
        "n": runs.training_rows(data),
        "row_bound_L2": runs.row_radius(data, False),
        "clip_norm": 1.0,
        "batches": runs.by_data(data, 100, 50, 20),
        "epochs": runs.by_data(data, 10, 5, 3),
        "epsilons": [1.0, 2.0, 4.0, 8.0] if scale == "paper" else [2.0, 8.0],
        "step_sizes": [0.25, 0.5, 1.0, 2.0] if scale == "paper" else [0.5, 2.0],
        "widenings": 5 if scale == "paper" else 0,
        "seeds": 5 if scale == "paper" else 1,
        "delta": DELTA,
        "noise_multiplier": NOISE_MULTIPLIER,
        "cost_batches": 100,
        "cost_n": 60_000,
        "cost_epochs": [1, 2, 3, 5, 7, 10, 14, 20, 30] if scale == "paper" else [1, 10],
    }


def _sampling(scheme: str, n: int, batches: int) -> Any:
    """Return the sampling of a scheme, with ``batches`` in an epoch."""
    if scheme == "poisson":
        return dpa.Poisson(1.0 / batches)
    if scheme == "fixed size":
        return dpa.WithoutReplacement(math.ceil(n / batches))
    return dpa.BallsInBins(batches) if scheme == "balls in bins" else dpa.Shuffle(batches)


def train_cell(
    data: str,
    scheme: str,
    epsilon: float,
    batches: int,
    epochs: int,
    clip_norm: float,
    step_size: float,
    seed: int,
) -> dict[str, np.ndarray]:
    """Train softmax regression once within the budget; return its accuracy and epsilon."""
    problem = runs.load_problem(data, False, "linear")
    _, _, X_test, y_test = runs.load_data(data, False)
    method = dpa.methods.SGD(
        step_size,
        epochs * batches,
        sampling=_sampling(scheme, problem.n, batches),
        clipping=dpa.clipping.Flat(clip_norm),
    )
    budget = dpa.Budget(epsilon, delta=DELTA, relation=SCHEMES[scheme][1])
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "step_size .* is above 2/L", UserWarning)
        result = dpa.minimize(problem, method, budget, rng=seed, record=[], every=method.iterations)
    return {
        "test_accuracy": np.array(problem.accuracy(result.w, X_test, y_test)[0]),
        "spent": np.array(result.epsilon()),
    }


def _costs(chosen: dict[str, Any]) -> Table:
    """Return upper and lower bounds on epsilon by scheme and number of epochs."""
    n, batches = chosen["cost_n"], chosen["cost_batches"]
    rows = []
    for scheme in SCHEMES:
        sizes = {"poisson": {"rate": 1.0 / batches}, "fixed size": {"batch_size": n // batches}}
        given = sizes.get(scheme, {"batches": batches})
        for epochs in chosen["cost_epochs"]:
            length = {} if scheme in ("shuffle", "balls in bins") else {"steps": batches * epochs}
            found = dpa.accounting(
                chosen["noise_multiplier"],
                sampling=scheme,
                n=n,
                **given,
                **(length or {"epochs": epochs}),
                delta=chosen["delta"],
            )
            rows.append(
                {
                    "scheme": scheme,
                    "epochs": epochs,
                    "epsilon": found.epsilon,
                    "at_least": found.lower,
                    "by_poisson": found.poisson,
                }
            )
    return runs.stack(rows)


def compute(scale: str, *, jobs: int, cache: Path, progress: bool) -> dict[str, Table]:
    """Return the cost of each scheme and its accuracies at its own best step size.

    The first seed chooses the step size, on a grid that is extended until the best is inside; the
    accuracies use the other seeds.
    """
    chosen = settings(scale)
    kept = ("data", "batches", "epochs", "clip_norm")
    entries = [
        {"scheme": scheme, "epsilon": epsilon, **{key: chosen[key] for key in kept}}
        for scheme in SCHEMES
        for epsilon in chosen["epsilons"]
    ]
    run = partial(sweep, train_cell, folder=cache, jobs=jobs, progress=progress, settings=chosen)
    records, inside = runs.tuned_runs(run, entries, chosen, _accuracy)
    keys = ("scheme", "epsilon", "step_size")
    means = runs.group(tabulate(records), keys, ("test_accuracy", "spent"))
    return {
        "costs": _costs(chosen),
        "accuracy": {**means, "best_step_inside": np.array(inside)},
    }


def _accuracy(record: Record) -> float:
    return float(record.result["test_accuracy"])


def draw(tables: dict[str, Table]) -> Figure:
    """Draw epsilon by epochs, with dashed lower bounds, and accuracy by epsilon."""
    figure, axes = plotting.panels(1, 2, width=plotting.PAGE / 2, height=2.4)
    cost, accuracy = axes[0]
    for scheme, (label, _) in SCHEMES.items():
        look = {"color": COLORS[scheme], "marker": MARKERS[scheme], "markersize": 3.5}
        rows = runs.where(tables["costs"], scheme=scheme)
        cost.plot(rows["epochs"], rows["epsilon"], "-", label=label, **look)
        cost.plot(rows["epochs"], rows["at_least"], "--", **look)
        rows = runs.where(tables["accuracy"], scheme=scheme)
        spread = runs.error_bars(rows, "test_accuracy")
        accuracy.errorbar(rows["epsilon"], rows["test_accuracy"], spread, capsize=2.5, **look)
    cost.set(xscale="log", yscale="log", xlabel="epochs", ylabel="epsilon")
    accuracy.set(xscale="log", xlabel="epsilon", ylabel="test accuracy")
    budgets = np.unique(tables["accuracy"]["epsilon"])
    accuracy.set_xticks(budgets, [f"{epsilon:g}" for epsilon in budgets])
    accuracy.set_xticks([], minor=True)
    plotting.shared_legend(figure, axes, columns=4)
    return figure


def caption(tables: dict[str, Table], scale: str) -> str:
    """Return the caption."""
    chosen, table = settings(scale), tables["accuracy"]
    grid = runs.grid_sentence(table["best_step_inside"].tolist())
    listed = "; ".join(
        f"{label} "
        + ", ".join(
            runs.with_spread(100.0 * mean, 100.0 * std, count, 1)
            for mean, std, count in zip(
                *(
                    runs.where(table, scheme=scheme)[name].tolist()
                    for name in ("test_accuracy", "test_accuracy_std", "runs")
                ),
                strict=True,
            )
        )
        for scheme, (label, _) in SCHEMES.items()
    )
    return f"""
(a) Epsilon at delta = {chosen["delta"]:g} of DP-SGD with noise multiplier
{chosen["noise_multiplier"]:g} and {chosen["cost_batches"]} batches an epoch of n =
{chosen["cost_n"]:,} records, by sampling scheme: proved upper bounds, and (dashed) proved lower
bounds for particular data. (b) Test accuracy of softmax regression on
{made_of(chosen)}, gradients clipped to {chosen["clip_norm"]:g}, {chosen["batches"]} batches an
epoch, {chosen["epochs"]} epochs, {runs.runs_in_words(chosen["seeds"])}, with noise calibrated to
the same epsilon for each scheme. {grid} In percent, at epsilon
{", ".join(f"{epsilon:g}" for epsilon in chosen["epsilons"])}: {listed}.

Privacy: every run of (b) satisfies the epsilon at which it is plotted, at delta =
{chosen["delta"]:g}, with n public: by its own ledger {table["spent"].min():.4g} to
{table["spent"].max():.4g}. Poisson batches and balls in bins are for neighbours of which one has
one record more; a fixed size and shuffling for a record that is replaced by any other, which
changes a clipped sum by up to twice as much. In (a) the shuffled record is replaced by a null
record. The choice of the step size on the test part is not covered.

Differences from the paper: none of the five papers has such a picture.

Finding: {_finding(tables)}
"""


def _finding(tables: dict[str, Table]) -> str:
    """Return a Poisson accountant's epsilon for shuffled batches, and the true bounds."""
    shuffled = runs.where(tables["costs"], scheme="shuffle")
    k = int(np.abs(shuffled["epochs"] - 10).argmin())
    poisson, least, most = (
        float(shuffled[name][k]) for name in ("by_poisson", "at_least", "epsilon")
    )
    wrong = int((shuffled["at_least"] > shuffled["by_poisson"]).sum())
    table = tables["accuracy"]
    best = float(table["epsilon"].max())
    at = {
        scheme: 100.0 * float(runs.where(table, scheme=scheme, epsilon=best)["test_accuracy"][0])
        for scheme in SCHEMES
    }
    return (
        f"for {int(shuffled['epochs'][k])} shuffled epochs an accountant for Poisson batches says "
        f"{poisson:.2f}, where some data lose {least:.2f} and all at most {most:.2f}; at {wrong} "
        f"of {len(shuffled['epochs'])} lengths it says less than some data lose. At epsilon "
        f"{best:g} the accuracy is {at['balls in bins']:.1f} % with balls in bins, "
        f"{at['poisson']:.1f} % with Poisson batches, {at['shuffle']:.1f} % with shuffled ones."
    )
