"""Private methods at a saddle, where steps along curvature count: beyond Gao and Wright (2023)."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dpanalysis import methods, plotting
from dpanalysis.audit.papers.second_order_printed import PrintedSecondOrder
from dpanalysis.experiments import sweep
from dpanalysis.experiments.records import Table

from . import _second_order as runs
from ._clipping import group, stack, where
from .second_order_tables import draw_table, row_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Leaving a saddle: where curvature steps count (beyond Gao and Wright 2023)"

EPS_G, EPS_H = 0.05, 0.1
GRADIENT_ONLY = "gradient only"
NAMES = (GRADIENT_ONLY, "DP-TR", "OPT", "OPT-LS", "2OPT", "2OPT-LS")


def settings(scale: str) -> dict[str, Any]:
    """Return what the figure is made with."""
    quick = scale == "quick"
    return {
        "n": 30_000 if quick else 100_000,
        "d": 5 if quick else 20,
        "strength": runs.STRENGTH,
        "eps_g": EPS_G,
        "eps_H": EPS_H,
        "epsilons": [1.0] if quick else list(runs.EPSILONS),
        "delta": runs.DELTA,
        "relation": runs.RELATION,
        "seeds": 2 if quick else 5,
        "cut_after": 40 if quick else 150,
    }


def build_method(name: str, n: int, printed: bool) -> Any:
    """Return a method; one that looks at gradients only accepts any curvature."""
    if name == GRADIENT_ONLY:
        return (PrintedSecondOrder if printed else methods.SecondOrder)(EPS_G, 10.0)
    return runs.METHODS[name](EPS_G, EPS_H, n, printed)


def run_cell(
    method: str, epsilon: float, printed: bool, seed: int, n: int, d: int, limit: int
) -> dict[str, Any]:
    """Run once from the saddle, and return what the table says and the curve of the loss."""
    problem = runs.saddle_problem(n, d)
    made = build_method(method, n, printed)
    start = runs.saddle(d)
    result, found = runs.run_once(problem, made, epsilon, seed, limit, start, ("objective",))
    history = result.history
    return {
        **found,
        "objective": history["objective"][:, 0],
        "along_curvature": history["smallest_eigenvalue"][:, 0] < -made.eps_H,
    }


def cells(scale: str) -> list[dict[str, Any]]:
    """Return the parameters of every run."""
    chosen = settings(scale)
    return [
        {
            "method": method,
            "epsilon": epsilon,
            "printed": printed,
            "seed": seed,
            "n": chosen["n"],
            "d": chosen["d"],
            "limit": chosen["cut_after"],
        }
        for seed in range(chosen["seeds"])
        for method in NAMES
        for epsilon in chosen["epsilons"]
        for printed in (False, True)
    ]


def compute(scale: str, *, jobs: int, cache: Path, progress: bool) -> dict[str, Table]:
    """Return every run, means over the seeds, and the loss by iteration at the largest epsilon."""
    chosen = settings(scale)
    run = partial(sweep, run_cell, folder=cache, jobs=jobs, progress=progress, settings=chosen)
    rows, curves = [], []
    for record in run(cells(scale)):
        given, found = record.parameters, record.result
        key = {
            "method": given["method"],
            "epsilon": given["epsilon"],
            "sensitivity": runs.SENSITIVITIES[int(given["printed"])],
        }
        rows.append(
            {**key, "seed": given["seed"], **{name: float(found[name]) for name in runs.FOUND}}
        )
        if given["epsilon"] == chosen["epsilons"][-1] and not given["printed"]:
            curves += [
                {"method": given["method"], "seed": given["seed"], "iteration": k, **point}
                for k, point in enumerate(_points(found))
            ]
    every = stack(rows)
    return {
        "means": group(every, ("method", "epsilon", "sensitivity"), runs.FOUND),
        "curves": stack(curves),
        "runs": every,
    }


def _points(found: dict[str, np.ndarray]) -> list[dict[str, Any]]:
    """Return loss by iteration, and whether the step from there is along curvature."""
    leaving = np.append(found["along_curvature"][1:], False)
    return [
        {"loss": loss, "along_curvature": along}
        for loss, along in zip(found["objective"].tolist(), leaving.tolist(), strict=True)
    ]


LOOKS = dict(zip(NAMES, plotting.PALETTE.values(), strict=False)) | {GRADIENT_ONLY: "#777777"}


def draw(tables: dict[str, Table]) -> Figure:
    """Draw the loss by iteration, steps along curvature as circles, and the table."""
    means, curves = tables["means"], tables["curves"]
    epsilons = len(set(means["epsilon"].tolist()))
    figure, axes = plotting.panels(2, 1, width=max(7.0, 0.6 + 3.1 * epsilons), height=3.0)
    ax = axes[0, 0]
    for name in NAMES:
        for seed in dict.fromkeys(curves["seed"].tolist()):
            mine = where(curves, method=name, seed=seed)
            look: dict[str, Any] = {"color": LOOKS[name], "linewidth": 1.0}
            label = name if seed == 0 else None
            ax.plot(mine["iteration"] + 1, mine["loss"], label=label, **look)
            at = mine["along_curvature"]
            ax.plot(
                mine["iteration"][at] + 1, mine["loss"][at], "o", color=LOOKS[name], markersize=4
            )
            ax.plot(mine["iteration"][-1] + 1, mine["loss"][-1], "s", color=LOOKS[name], ms=4)
    epsilon = means["epsilon"].max()
    ax.set(
        xscale="log",
        xlabel="iteration + 1",
        ylabel="objective",
        title=f"from the saddle, epsilon = {epsilon:g}",
    )
    ax.legend(ncols=2)
    draw_table(axes[1, 0], means, list(NAMES), f"(eps_g, eps_H) = ({EPS_G:g}, {EPS_H:g})")
    return figure


def caption(tables: dict[str, Table], scale: str) -> str:
    """Return the caption."""
    chosen, means = settings(scale), tables["means"]
    epsilon = chosen["epsilons"][-1]

    def at(name: str, sensitivity: str = "sharp") -> dict[str, Any]:
        return row_of(means, method=name, epsilon=epsilon, sensitivity=sensitivity)

    saddle_value = tables["curves"]["loss"][0]
    OPT, printed = at("OPT"), at("OPT", "printed")
    alone = where(means, method=GRADIENT_ONLY, sensitivity="sharp")
    stays = ", ".join(
        f"{loss:.3f} (epsilon = {each:g}, smallest eigenvalue {least:.3f})"
        for each, loss, least in zip(
            alone["epsilon"], alone["loss"], alone["smallest_eigenvalue"], strict=True
        )
    )
    listed = "; ".join(
        f"{name} {at(name)['loss']:.3f} ± {at(name)['loss_std']:.3f} after "
        f"{at(name)['curvature_steps']:.2g} steps along curvature, "
        f"{at(name)['stopped']:.0%} of the runs stopped"
        for name in NAMES[1:]
    )
    noise = printed["hessian_noise"] / OPT["hessian_noise"]
    return f"""
Beyond Gao and Wright (2023), whose experiments never meet a saddle (errata 003-12): two copies of
one feature share its weight at (1, 1, 0, ..., 0), where the logistic loss with GemanMcClure
({chosen["strength"]:.4f}) has gradient 0 and curvature -{0.5 * chosen["strength"]:.4f} along
(1, -1, 0, ...): the penalty prefers one weight to two. That is nearly as much as there can be:
where the gradient is 0, strength times the sum of 2 w^2/(1 + w^2)^2 is the mean of m/(1 + e^m) over
the margins m, at most .2785. n = {chosen["n"]}, d = {chosen["d"]}, rows of norm 1, w0 at the
saddle, where the objective is {saddle_value:.3f}; eps_g = {EPS_G:g}, eps_H = {EPS_H:g},
{chosen["seeds"]} runs. Circles: steps along curvature; squares: ends. At epsilon = {epsilon:g},
with the noise of the Hessian at its true sensitivity: {listed}. A method that looks at gradients
only ends at {stays} (the saddle is left where the noise of a gradient, longer than eps_g, moves it
away). Table as in second_order_tables.

Sharp against printed: the norm of the noise of the Hessian is {noise:.1f} times smaller,
{OPT["hessian_noise"]:.3f} instead of {printed["hessian_noise"]:.3f} of eps_H for OPT from w0 = 0.
Its n_min is {OPT["n_min"]:.3g} and {printed["n_min"]:.3g}: here the gradient decides. The losses
differ little: the weights at 0 have the curvature {2 * chosen["strength"]:.2f} of the penalty,
which neither noise overcomes, so that what differs is the direction of a step.

Privacy: every run is (epsilon, {runs.DELTA:g})-differentially private under replace-one with n
public, by a zCDP filter; the start is a fact about the population, not about the data. T follows
from a noisy value at w0 with a fixed margin (errata 003-4), for {0.05:.0%} of the budget. Losses
and eigenvalues shown are not covered.

Differences from the paper: it has no such instance. A run is cut after {chosen["cut_after"]}
iterations. Methods with batches are left out: their gradients are too noisy here. "gradient only"
is OPT with eps_H = 10.
"""
