"""Seconds per epoch without clipping, by micro-batching, GC and VC (Fang et al. 2023)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from threadpoolctl import threadpool_limits

import dpanalysis as dpa
from dpanalysis import plotting
from dpanalysis.experiments.records import Table

from . import _clipping as runs
from ._data import made_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "The running time of private training (Fang et al. 2023, Table 2)"

SIGNED = True
#: Names of the training methods, in the tables and in the picture.
WAYS = {
    "SGD": "SGD, not private",
    "GC": "GC",
    "VC": "VC",
    "micro-batching": "micro-batching",
}
COLORS = {"SGD": "#999999", "micro-batching": "#000000", **runs.COLORS}


def settings(scale: str) -> dict[str, Any]:
    """Return the settings of the table."""
    data = runs.data_name(scale)
    n, batch = runs.training_rows(data), runs.by_data(data, 128, 128, 32)
    epoch = runs.steps_per_epoch(n, batch)
    return {
        "data": data,
        "n": n,
        "hidden": runs.hidden_units(data),
        "batch": batch,
        "iterations_per_epoch": epoch,
        "iterations_timed": min(epoch, 20 if scale == "quick" else 100),
        "repetitions": 3 if scale == "quick" else 9,
        "clip_norm": 1.0,
        "noise_multiplier": 1.0,
        "threads": 1,
        "relation": runs.RELATION,
    }


class OneByOne(dpa.Problem):
    """A problem that computes clipped sums one sample at a time."""

    def __init__(self, problem: dpa.problems.Softmax | dpa.problems.MLP) -> None:
        self._problem = problem
        self.n, self.d, self.regularizer = problem.n, problem.d, problem.regularizer
        self.mu, self.L = problem.mu, problem.L

    def facts(self, relation: str) -> Any:
        """Return the public facts of the problem."""
        return self._problem.facts(relation)

    def check_clipping(self, clipping: Any) -> None:
        """Accept the rules that the problem accepts; they are applied sample by sample."""
        self._problem.check_clipping(clipping)

    def value(self, w: np.ndarray) -> Any:
        """Return the value of the problem."""
        return self._problem.value(w)

    def gradient(self, w: np.ndarray) -> Any:
        """Return the gradient of the problem."""
        return self._problem.gradient(w)

    def gradient_sum(self, w: np.ndarray, rows: Any = None, clipping: Any = None) -> np.ndarray:
        """Return the sum for one replicate."""
        total = np.zeros_like(w)
        for i in rows[0]:
            gradient = self._problem.sums(w, rows=np.array([i]), value=False).gradient
            total += clipping.weight(np.linalg.norm(gradient, axis=1))[:, None] * gradient
        return total


def compute(scale: str, *, jobs: int, cache: Path, progress: bool) -> dict[str, Table]:
    """Return the seconds per epoch: median, best and worst of interleaved repetitions."""
    chosen = settings(scale)
    rows = []
    epoch = chosen["iterations_per_epoch"] / chosen["iterations_timed"]
    with threadpool_limits(chosen["threads"]):
        for model in runs.MODELS:
            calls = {way: _run(chosen, model, way) for way in WAYS}
            times = seconds_by_way(calls, chosen["repetitions"], epoch)
            rows += [{"model": model, **row} for row in times]
    return {"seconds": runs.stack(rows)}


def seconds_by_way(
    calls: dict[str, Callable[[], float]], repetitions: int, epoch: float
) -> list[dict[str, Any]]:
    """Return the seconds per epoch: median, best and worst of interleaved repetitions.

    ``calls`` return the seconds of a run, of which an epoch has ``epoch``.
    """
    times: dict[str, list[float]] = {way: [] for way in calls}
    for repetition in range(repetitions + 1):
        for way, call in calls.items():
            seconds = epoch * call()
            if repetition:  # the first one includes compilation and cached values
                times[way].append(seconds)
    return [
        {
            "way": way,
            "seconds": float(np.median(series)),
            "seconds_best": min(series),
            "seconds_worst": max(series),
            "seconds_over_sgd": float(np.median(series) / np.median(times["SGD"])),
        }
        for way, series in times.items()
    ]


def _run(chosen: dict[str, Any], model: str, way: str) -> Callable[[], float]:
    """Return a function that trains for the timed iterations and returns the seconds."""
    problem = runs.load_problem(chosen["data"], SIGNED, model)
    w0 = np.zeros(problem.d) if model == "linear" else problem.initial(rng=0)
    method = timed_method(problem, way, chosen, chosen["clip_norm"])
    if way == "micro-batching":
        problem = OneByOne(problem)
    return lambda: dpa.minimize(problem, method, w0=w0, rng=1, record=()).seconds


def timed_method(
    problem: Any, way: str, chosen: dict[str, Any], clip_norm: float
) -> dpa.methods.SGD:
    """Return SGD for the timed iterations, without privacy or with a rule and its noise."""
    iterations = chosen["iterations_timed"]
    rate = 1.0 / runs.steps_per_epoch(chosen["n"], chosen["batch"])
    if way == "SGD":
        return dpa.methods.SGD(1e-3, iterations, dpa.Poisson(rate), None)
    clipping = runs.make_rule("VC" if way == "VC" else "GC", clip_norm, 0.0)
    noise = chosen["noise_multiplier"]
    return runs.build_method(problem, clipping, 1e-3, rate, iterations, noise)


def draw(tables: dict[str, Table]) -> Figure:
    """Draw the seconds per epoch and their ratio to those of SGD."""
    figure, axes = plotting.panels(1, 2, width=plotting.PAGE / 2, height=1.8, sharey=True)
    for ax, model in zip(axes[0], runs.MODELS, strict=True):
        rows = runs.where(tables["seconds"], model=model)
        for place, way in enumerate(WAYS):
            row = {name: column[0] for name, column in runs.where(rows, way=way).items()}
            seconds = row["seconds"]
            spread = [[seconds - row["seconds_best"]], [row["seconds_worst"] - seconds]]
            ax.errorbar(seconds, place, xerr=spread, color=COLORS[way], capsize=3, fmt="o")
            ax.annotate(
                f"{_three_digits(seconds)} s, {_three_digits(row['seconds_over_sgd'])} x",
                (row["seconds_worst"], place),
                xytext=(6, 6),
                textcoords="offset points",
            )
        low, high = rows["seconds_best"].min(), rows["seconds_worst"].max()
        ax.set(
            title=runs.MODELS[model],
            xlabel="seconds an epoch",
            xscale="log",
            xlim=(low / 2.0, high * 20.0),
        )
    axes[0, 0].set_yticks(range(len(WAYS)), list(WAYS.values()))
    axes[0, 0].set_ylim(len(WAYS) - 0.5, -0.6)
    return figure


def _three_digits(number: float) -> str:
    """Return a number to two digits, or all before the point.

    >>> [_three_digits(number) for number in (0.481, 3.25, 45.8, 123.8)]
    ['0.48', '3.3', '46', '124']
    """
    return f"{number:.2g}" if number < 99.5 else f"{number:.0f}"


def caption(tables: dict[str, Table], scale: str) -> str:
    """Return the caption."""
    chosen, table = settings(scale), tables["seconds"]

    def listed(model: str) -> str:
        rows = runs.where(table, model=model)
        return ", ".join(
            f"{way} {ratio:.2f}"
            for way, ratio in zip(rows["way"], rows["seconds_over_sgd"])
            if way != "SGD"
        )

    quick = ""
    if chosen["data"] == "digits":
        quick = (
            "The data are scikit-learn's 1,797 digits, so few that the Python code between the "
            "sums takes most of the time; MNIST with --scale paper and $DPANALYSIS_DATA. "
        )
    return f"""
Seconds per epoch on {made_of(chosen)} ({chosen["n"]:,} samples, batches of {chosen["batch"]} on
average, double precision, one thread): SGD without clipping and noise, gradient clipping (GC),
value clipping (VC), and GC with one sample at a time (micro-batching). Multiples of SGD's time,
linear softmax: {listed("linear")}; MLP with {chosen["hidden"]} relu units and no biases:
{listed("mlp")}. Medians of {chosen["repetitions"]} interleaved repetitions of
{chosen["iterations_timed"]} iterations, scaled to the {chosen["iterations_per_epoch"]} of an epoch;
whiskers extend from the best to the worst. The ratios carry over to other machines, the seconds do
not.

Privacy: the private runs add Gaussian noise of {chosen["noise_multiplier"]:g} times the clip norm
to the sums, as in the paper; the cost of a whole run is in the figure on clipping and privacy. SGD
is not private.

Differences from the paper: {quick}Its Table 2 was measured on a GPU. According to its text SGD is
the fastest, VC slightly slower, GC in Opacus slower than that and micro-batching far behind; the
table's numbers were not available. Here the backward pass yields the norms of all gradients of a
batch (Goodfellow 2015), so that GC is cheap: VC takes at least as long, and for the MLP it also
needs the layers' spectral norms at every iterate. The remaining cost of a private step is the
noise, one normal number per parameter. `python -m benchmarks networks` compares with Opacus if it
is installed.

Finding: {_finding(table)}
"""


def _finding(table: Table) -> str:
    """Return a sentence with the verdict on the paper's order of the methods."""
    said = "; ".join(
        f"for the {name} {runs.time_in_words(runs.where(table, model=model))}"
        for model, name in runs.MODELS.items()
    )
    return (
        f"that VC is faster than micro-batching, as the paper says, is, {said}. GC here takes its "
        "norms from the backward pass, on one thread, which the paper does not time."
    )
