"""Clipping frequency of a CNN's gradients, and seconds per epoch: Fang et al. (2023) with a CNN."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from threadpoolctl import threadpool_limits

import dpanalysis as dpa
from dpanalysis import plotting
from dpanalysis.experiments import Record, sweep
from dpanalysis.experiments.records import Table

from . import _clipping as runs
from . import _cnn
from .clipping_epochs import AXES, DELTA, QUANTITIES, tuned_curves
from .clipping_seconds import COLORS, WAYS, seconds_by_way, timed_method

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "A CNN under gradient and value clipping (Fang et al. 2023, Figs. 1-3 and Table 2)"
NEEDS = "torch"

RULES = ("GC", "VC")
CLIP_NORMS = (0.1, 1.0, 10.0, 100.0)
#: Step sizes times C: bounds on the length of an update.
REACHES = (0.125, 0.5, 2.0)
OPACUS = "Opacus"


def settings(scale: str) -> dict[str, Any]:
    """Return the settings of the figure."""
    data = runs.data_name(scale)
    mnist = data == "mnist"
    n, batch = runs.training_rows(data), runs.by_data(data, 128, 128, 32)
    return {
        "data": data,
        "n": n,
        "row_bound_L2": runs.row_radius(data, False),
        "batch": batch,
        "epochs": 4,
        "noise_multiplier": 1.0,
        "momentum": 0.0,
        "delta": DELTA,
        "clip_norms": list(CLIP_NORMS if scale == "paper" else CLIP_NORMS[1:]),
        "reaches": list(REACHES if scale == "paper" else REACHES[1:2]),
        "seeds": 5 if scale == "paper" else 1,
        "widenings": 5 if scale == "paper" else 0,
        "iterations_timed": 20 if mnist else 15,
        "repetitions": 5,
        "threads": 1,
        "relation": runs.RELATION,
    }


def _problem(data: str) -> dpa.problems.Module:
    bound = dpa.RowBound(2, runs.row_radius(data, False), "clip")
    return _cnn.load_problem(data, row_bound=bound)


@_cnn.threads(1)
def train_cell(**cell: Any) -> dict[str, np.ndarray]:
    """Train once and return accuracies and the clipping frequency by epoch."""
    problem = _problem(cell["data"])
    X_test, y_test = _cnn.test_images(cell["data"])
    method = _cnn.build_method(problem, {**cell, "r": 0.1})
    steps = runs.steps_per_epoch(problem.n, cell["batch"])

    def clipping_frequency(problem: Any, w: np.ndarray) -> np.ndarray:
        return problem.sums(w, clipping=method.clipping, value=False).clipped / problem.n

    def test_accuracy(problem: Any, w: np.ndarray) -> np.ndarray:
        return problem.accuracy(w, X_test, y_test)

    result = dpa.minimize(
        problem,
        method,
        None,  # the noise is given explicitly; its cost is in the ledger
        w0=_cnn.start(cell["data"], cell["seed"]),
        rng=cell["seed"],
        record=("accuracy", test_accuracy, clipping_frequency),
        every=steps,
    )
    history = result.history
    return {
        "epoch": history["iteration"] / steps,
        "training_accuracy": history["accuracy"][:, 0],
        "test_accuracy": history["test_accuracy"][:, 0],
        "clipping_frequency": history["clipping_frequency"][:, 0],
    }


def entries(chosen: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the parameters of the curves, except step size and seed."""
    kept = ("data", "batch", "epochs", "noise_multiplier", "momentum")
    return [
        {**{key: chosen[key] for key in kept}, "rule": rule, "clip_norm": clip_norm}
        for rule in RULES
        for clip_norm in chosen["clip_norms"]
    ]


def compute(scale: str, *, jobs: int, cache: Path, progress: bool) -> dict[str, Table]:
    """Return the curves at the best step size of each rule and clip norm, and the seconds.

    The first seed chooses the step size by training accuracy; the curves use the other seeds.
    """
    chosen = settings(scale)
    run = partial(sweep, folder=cache, jobs=jobs, progress=progress, settings=chosen)

    def by_reach(cells: list[dict[str, Any]]) -> list[Record]:
        """Run cells whose step sizes are in units of 1/C."""
        steps = [cell["step_size"] / cell["clip_norm"] for cell in cells]
        return run(
            train_cell,
            [{**cell, "step_size": step} for cell, step in zip(cells, steps, strict=True)],
        )

    by_step = {**chosen, "step_sizes": chosen["reaches"]}
    tables = tuned_curves(by_reach, entries(chosen), by_step, ("rule", "clip_norm"))
    return {**tables, "seconds": _seconds(chosen)}


# ------------------------------------------------------------------ seconds


def _seconds(chosen: dict[str, Any]) -> Table:
    """Return the seconds per epoch: median, best and worst of interleaved repetitions."""
    ways = {way: _way(chosen, way) for way in WAYS}
    if find_spec("opacus"):
        ways[OPACUS] = _by_opacus(chosen)
    epoch = runs.steps_per_epoch(chosen["n"], chosen["batch"]) / chosen["iterations_timed"]
    with threadpool_limits(chosen["threads"]), _cnn.threads(chosen["threads"]):
        return runs.stack(seconds_by_way(ways, chosen["repetitions"], epoch))


def _way(chosen: dict[str, Any], way: str) -> Callable[[], float]:
    """Return a function that trains for the timed iterations and returns the seconds."""
    problem, w0 = _problem(chosen["data"]), _cnn.start(chosen["data"], 0)
    if way == "micro-batching":
        problem = _cnn.load_problem(chosen["data"], row_bound=problem.row_bounds[0], chunk=1)
    method = timed_method(problem, way, chosen, clip_norm=1.0)
    return lambda: dpa.minimize(problem, method, w0=w0, rng=1, record=()).seconds


def _by_opacus(chosen: dict[str, Any]) -> Callable[[], float]:
    """Return the same for Opacus: per-sample gradients by its hooks, flat clipping."""
    import torch
    from opacus import GradSampleModule
    from opacus.optimizers import DPOptimizer

    data = chosen["data"]
    X, y = (torch.as_tensor(each) for each in _cnn.training_images(data))
    rate = 1.0 / runs.steps_per_epoch(chosen["n"], chosen["batch"])
    model = GradSampleModule(_cnn.network(data, 0))
    optimizer = DPOptimizer(
        torch.optim.SGD(model.parameters(), lr=1e-3),
        noise_multiplier=chosen["noise_multiplier"],
        max_grad_norm=1.0,
        expected_batch_size=chosen["batch"],
    )

    def call() -> float:
        generator = torch.Generator().manual_seed(1)
        start = time.perf_counter()
        for _ in range(chosen["iterations_timed"]):
            rows = (torch.rand(len(y), generator=generator) < rate).nonzero()[:, 0]
            optimizer.zero_grad()
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "Full backward hook is firing", UserWarning)
                torch.nn.functional.cross_entropy(model(X[rows]), y[rows]).backward()
            optimizer.step()
        return time.perf_counter() - start

    return call


# ------------------------------------------------------------------ drawing


def draw(tables: dict[str, Table]) -> Figure:
    """Draw the curves (markers: clip norms; dashes: value clipping) and the seconds."""
    curves = tables["curves"]
    figure, axes = plotting.panels(2, 2, width=plotting.PAGE / 2, height=2.0)
    colors = list(plotting.PALETTE.values())
    for ax, (name, label) in zip(axes.flat, QUANTITIES.items(), strict=False):
        for k, clip_norm in enumerate(sorted(set(curves["clip_norm"].tolist()))):
            for rule, dashes in zip(RULES, ("-", "--"), strict=True):
                mine = runs.where(curves, rule=rule, clip_norm=clip_norm)
                look: dict[str, Any] = {"color": colors[k], "label": f"{rule}, C = {clip_norm:g}"}
                look |= {"marker": runs.SERIES[k], "markersize": 3.0}
                spread = runs.error_bars(mine, name)
                ax.errorbar(mine["epoch"], mine[name], spread, linestyle=dashes, **look)
        ax.set(xlabel="epoch", ylabel=AXES[name])
        ax.set_title(label, x=0.0, ha="left")
    plotting.shared_legend(figure, axes, columns=4)
    _draw_seconds(axes[1, 1], tables["seconds"])
    return figure


def _draw_seconds(ax: Any, table: Table) -> None:
    ways = table["way"].tolist()
    for place, way in enumerate(ways):
        seconds = table["seconds"][place]
        spread = [
            [seconds - table["seconds_best"][place]],
            [table["seconds_worst"][place] - seconds],
        ]
        color = COLORS.get(way, "#CC79A7")
        ax.errorbar(seconds, place, xerr=spread, color=color, capsize=3, fmt="o")
        ratio = f"{table['seconds_over_sgd'][place]:.3g} x"
        place_of = (table["seconds_worst"][place], place)
        ax.annotate(ratio, place_of, xytext=(6, -3), textcoords="offset points")
    most = 1.25 * float(table["seconds_worst"].max())
    ax.set(xlabel="seconds an epoch", xlim=(0.0, most), ylim=(len(ways) - 0.5, -0.5))
    ax.set_yticks(range(len(ways)), [WAYS.get(way, way) for way in ways])


def caption(tables: dict[str, Table], scale: str) -> str:
    """Return the caption."""
    chosen, ends, seconds = settings(scale), tables["ends"], tables["seconds"]
    steps = runs.steps_per_epoch(chosen["n"], chosen["batch"])
    iterations = chosen["epochs"] * steps
    rdp, pld = runs.epsilons(1.0 / steps, chosen["noise_multiplier"], iterations, DELTA)

    def listed(name: str) -> str:
        return "; ".join(
            f"{rule} " + ", ".join(f"{v:.3f}" for v in runs.where(ends, rule=rule)[name])
            for rule in RULES
        )

    ratios = ", ".join(
        f"{way} {ratio:.2f}"
        for way, ratio in zip(seconds["way"].tolist(), seconds["seconds_over_sgd"], strict=True)
        if way != "SGD"
    )
    small, network = "", "the CNN of Papernot et al. (2021)"
    if chosen["data"] == "digits":
        network = "a CNN smaller than the paper's"
        small = (
            "The data are scikit-learn's digits, with a smaller network (MNIST: --scale paper with "
            "$DPANALYSIS_DATA). "
        )
    tried, wider = chosen["reaches"], ""
    inside, stuck = runs.is_inside(ends["step_size"] * ends["clip_norm"], tried), _stuck(tables)
    if "widenings" in chosen:
        wider = ", tuned by another run on a grid that is extended where its end is best"
        inside = ends["best_step_inside"].tolist()
    if len(tried) == 1:
        way = f"the one step size {tried[0]:g}/C, which is not tuned"
        grid = "The loss of VC is therefore that at this step size: at a smaller one it may learn"
    else:
        listed_steps = ", ".join(f"{reach:g}/C" for reach in tried)
        way = f"the best step size of {listed_steps} by training accuracy{wider}"
        but = "these learn at no step size and end at their initial accuracy"
        but *= _settled(inside, stuck)
        grid = runs.grid_sentence(inside, but=but).rstrip(".")
    return f"""
Gradient clipping (GC, solid) and value clipping (VC, dashed) by epoch,
{runs.runs_in_words(chosen["seeds"])} on {chosen["data"]}, with {network}. Pixels in
[0, 1], public bound {chosen["row_bound_L2"]:g} on the norm of an image, Poisson batches of
{chosen["batch"]} on average, sigma = {chosen["noise_multiplier"]:g}, {iterations} steps; for each
curve {way}. {grid}. At the end, for C =
{", ".join(f"{C:g}" for C in chosen["clip_norms"])}: test accuracy
{listed("test_accuracy")}; clipping frequency {listed("clipping_frequency")}. VC uses the product
of the layers' norms, which is far above the gradients of a CNN, so that it clips where GC does not
and leaves most of C unused: noise counts correspondingly more.

Seconds of an epoch over those of SGD without clipping and noise, on one thread: {ratios}. Medians
of {chosen["repetitions"]} interleaved repetitions of {chosen["iterations_timed"]} iterations.
Micro-batching is GC with one sample at a time.

Privacy: every private run is (epsilon, {DELTA:g})-differentially private under add-or-remove-one
with n public, epsilon = {rdp:.4f} by RDP and {pld:.4f} by PLD. The curves are
computed from the data and are not private, nor is the choice of the step size.

Differences from the paper: {small}It has a linear model and an MLP, shown in another figure here;
clip norms and step sizes are ours. VC clips by each sample's loss and by a constant proved for
convolutions, at each iterate. The clipping frequency is that of all training samples at the end of
an epoch. Its Table 2 was measured on a GPU.

Finding: {_finding(ends, seconds, len(tried) > 1 and _settled(inside, stuck))}
"""


def _stuck(tables: dict[str, Table]) -> list[bool]:
    """Return for each entry whether it learns nothing, even at its best step size.

    The best has the highest training accuracy, so that no other step size learned more.
    """
    start, name = runs.where(tables["curves"], epoch=0.0), "training_accuracy"
    gain = tables["ends"][name] - start[name]
    return (gain <= 0.1 * start[name]).tolist()


def _settled(inside: list[bool], stuck: list[bool]) -> bool:
    """Return whether no wider grid of step sizes would help any entry."""
    return all(one or other for one, other in zip(inside, stuck, strict=True))


def _finding(ends: Table, seconds: Table, tuned: bool) -> str:
    """Return the verdicts on the paper's claims about accuracy and time."""
    GC, VC = (runs.where(ends, rule=rule)["test_accuracy"].max() for rule in RULES)
    loss = (
        f"the loss of VC, here {100.0 * (GC - VC):.1f} points at the best C, is open, since its "
        "step size is not fully tuned"
        if not tuned
        else f"that VC loses is confirmed: {100.0 * (GC - VC):.1f} points at the best C"
        if GC > VC
        else "that VC loses accuracy is refuted"
    )
    return (
        f"{loss}; that VC is faster than the private methods that the paper times is "
        f"{runs.time_in_words(seconds)}; GC here takes its norms from the backward pass, which the "
        "paper does not time."
    )
