"""Private methods at a saddle, where steps along curvature matter: beyond Gao and Wright (2023)."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dpanalysis import plotting
from dpanalysis.experiments import sweep
from dpanalysis.experiments.records import Table

from . import _second_order as runs
from ._clipping import group, stack, where
from ._markdown import markdown
from .second_order_tables import row_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Leaving a saddle: where curvature steps matter (beyond Gao and Wright 2023)"

EPS_G, EPS_H = 0.05, 0.1
GRADIENT_ONLY = "gradient only"
NAMES = (GRADIENT_ONLY, "DP-TR", "OPT", "OPT-LS", "2OPT", "2OPT-LS")


def settings(scale: str) -> dict[str, Any]:
    """Return the settings of the figure."""
    quick = scale == "quick"
    return {
        "n": 30_000 if quick else 100_000,
        "d": 5 if quick else 20,
        "strength": runs.STRENGTH,
        "eps_g": EPS_G,
        "eps_H": EPS_H,
        "epsilons": [0.2, 1.0] if quick else list(runs.EPSILONS),
        "delta": runs.DELTA,
        "relation": runs.RELATION,
        "seeds": 2 if quick else 5,
        "cut_after": 40 if quick else 150,
    }


def build_method(name: str, n: int, printed: bool) -> Any:
    """Return a method; the one that uses gradients only accepts any curvature."""
    if name == GRADIENT_ONLY:
        return runs.second_order(EPS_G, 10.0, printed)
    return runs.METHODS[name](EPS_G, EPS_H, n, printed)


def run_cell(
    method: str, epsilon: float, printed: bool, seed: int, n: int, d: int, limit: int
) -> dict[str, Any]:
    """Run once from the saddle and return the columns of the table and the loss curve."""
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


LOOKS = dict(zip(NAMES, ("black", "green", "blue", "sky", "vermillion", "orange"), strict=True))


def draw(tables: dict[str, Table]) -> Figure:
    """Draw the loss by iteration at the largest epsilon, and the final loss by epsilon."""
    means = where(tables["means"], sensitivity="sharp")
    figure, axes = plotting.panels(1, 2, width=plotting.PAGE / 2, height=2.4)
    _draw_curves(axes[0, 0], tables["curves"])
    epsilons = sorted(set(means["epsilon"].tolist()))
    axes[0, 0].set_title(f"from the saddle, epsilon = {epsilons[-1]:g}", x=0.0, ha="left")
    ax, width = axes[0, 1], 0.8 / len(NAMES)
    top = 1.12 * float(tables["curves"]["loss"][0])
    said = 0
    for k, name in enumerate(NAMES):
        mine = where(means, method=name)
        place = np.searchsorted(epsilons, mine["epsilon"]) + (k + 0.5) * width - 0.4
        color = plotting.PALETTE[LOOKS[name]]
        inside = mine["loss"] < top
        ax.errorbar(
            place[inside],
            mine["loss"][inside],
            mine["loss_std"][inside],
            fmt=MARKERS[k],
            color=color,
        )
        for x, loss, std in zip(
            *(column[~inside] for column in (place, mine["loss"], mine["loss_std"])), strict=True
        ):  # a diverging method is cut off and annotated where it leaves the panel
            ax.plot(x, top, MARKERS[k], color=color, clip_on=False)
            by = (4, -3 - 8 * said)  # one below the other
            text = f"{loss:.2f} ± {std:.2f}"
            ax.annotate(text, (x, top), by, textcoords="offset points", va="top", fontsize=6)
            said += 1
    ax.set_ylim(None, top)
    ax.axhline(tables["curves"]["loss"][0], color="#777777", linestyle=":", linewidth=1.0)
    ax.text(
        0.99,
        tables["curves"]["loss"][0],
        "at the saddle",
        transform=ax.get_yaxis_transform(),
        ha="right",
        va="bottom",
        fontsize="small",
        color="#555555",
    )
    ax.set_xticks(range(len(epsilons)), [f"{e:g}" for e in epsilons])
    ax.set_xlim(-0.5, len(epsilons) - 0.5)
    ax.set(xlabel="epsilon", ylabel="final objective")
    ax.set_title("mean and standard deviation", x=0.0, ha="left")
    ax.grid(axis="x", visible=False)
    plotting.shared_legend(figure, axes, columns=6)
    return figure


MARKERS = ("X", "o", "s", "D", "^", "v")


def _draw_curves(ax: Any, curves: Table) -> None:
    """Draw every run; the gradient-only method stays at the saddle and is drawn on top."""
    for k, name in enumerate(NAMES):
        alone = name == GRADIENT_ONLY
        look: dict[str, Any] = {"color": plotting.PALETTE[LOOKS[name]], "zorder": 4 if alone else 3}
        for seed in dict.fromkeys(curves["seed"].tolist()):
            mine = where(curves, method=name, seed=seed)
            at, t = mine["along_curvature"], mine["iteration"] + 1
            ax.plot(t, mine["loss"], linewidth=1.8 if alone else 0.8, **look)
            ax.plot(t[at], mine["loss"][at], "o", markersize=2.5, **look)
            ax.plot(t[-1], mine["loss"][-1], MARKERS[k], markersize=6 if alone else 4, **look)
        ax.plot([], [], marker=MARKERS[k], label=name, **look)
    ax.set(xscale="log", xlabel="iteration + 1", ylabel="objective")


def report(tables: dict[str, Table]) -> dict[str, str]:
    """Return the final losses by epsilon."""
    means = where(tables["means"], sensitivity="sharp")
    epsilons = sorted(set(means["epsilon"].tolist()))
    start = f"{tables['curves']['loss'][0]:.3f}"
    rows = [["at the saddle", *(start for _ in epsilons)]]
    for name in NAMES:
        found = [row_of(means, method=name, epsilon=epsilon) for epsilon in epsilons]
        rows.append([name, *(f"{row['loss']:.3f} ± {row['loss_std']:.3f}" for row in found)])
    return {"losses": markdown(["epsilon", *(f"{e:g}" for e in epsilons)], rows)}


def caption(tables: dict[str, Table], scale: str) -> str:
    """Return the caption."""
    chosen, means = settings(scale), tables["means"]
    epsilon = chosen["epsilons"][-1]

    def at(name: str) -> dict[str, Any]:
        return row_of(means, method=name, epsilon=epsilon, sensitivity="sharp")

    saddle_value = tables["curves"]["loss"][0]
    losses = [where(means, sensitivity=name)["loss"] for name in runs.SENSITIVITIES]
    differences = np.abs(losses[0] - losses[1])
    apart, same = differences.max(), int((differences == 0.0).sum())
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
    return f"""
Beyond Gao and Wright (2023), whose experiments never meet a saddle (errata 003-12): two copies of
one feature share its weight at (1, 1, 0, ..., 0), where the logistic loss with GemanMcClure
({chosen["strength"]:.4f}) has gradient 0 and curvature -{0.5 * chosen["strength"]:.4f} along
(1, -1, 0, ...): the penalty prefers one weight to two. This is nearly the maximum possible: where
the gradient is 0, strength times the sum of 2 w^2/(1 + w^2)^2 equals the mean of m/(1 + e^m) over
the margins m, at most .2785. n = {chosen["n"]}, d = {chosen["d"]}, rows of norm 1, w0 at the
saddle, where the objective is {saddle_value:.3f}; eps_g = {EPS_G:g}, eps_H = {EPS_H:g},
{chosen["seeds"]} runs. Small circles: steps along curvature; markers: ends. At epsilon =
{epsilon:g},
with the noise of the Hessian at its true sensitivity: {listed}. A method that uses gradients only
ends at {stays} (it leaves the saddle if the noise of a gradient, longer than eps_g, moves it
away). The panel on the right and means.csv have all epsilons.

Sharp against printed noise of the Hessian, with the same random numbers: the mean final losses
differ by at most {apart:.3f}, and in {same} of {len(differences)} pairs not at all. The weights at
0 have the curvature {2 * chosen["strength"]:.2f} of the penalty, which neither noise overcomes, so
that only the direction of a step differs.

Privacy: every run is (epsilon, {runs.DELTA:g})-differentially private under replace-one with n
public, by a zCDP filter; the start is a fact about the population, not about the data. T follows
from a noisy value at w0 with a fixed margin (errata 003-4), for {0.05:.0%} of the budget. Losses
and eigenvalues shown are not covered.

Differences from the paper: it has no such instance. A run is cut after {chosen["cut_after"]}
iterations. Methods with batches are left out: their gradients are too noisy here. "gradient only"
is OPT with eps_H = 10.

Finding: {finding(means, float(saddle_value))}
"""


def finding(means: Table, saddle_value: float) -> str:
    """Return the epsilons at which only steps along curvature leave the saddle."""
    sharp, left, other = where(means, sensitivity="sharp"), [], []
    for epsilon in sorted(set(sharp["epsilon"].tolist())):
        mine = where(sharp, epsilon=epsilon)
        alone = mine["method"] == GRADIENT_ONLY
        stays = bool((mine["smallest_eigenvalue"][alone] < -EPS_H).all())
        lower = bool((mine["loss"][~alone] < saddle_value).all())
        (left if stays and lower else other).append(f"{epsilon:g}")
    verdict = f"confirmed at epsilon {' and '.join(left)}" if left else "not confirmed"
    small = ""
    if other:
        least = where(sharp, epsilon=float(other[0]))
        worst = int(least["loss"].argmax())
        small = (
            f"; at {' and '.join(other)} the noise of a gradient is enough to leave it, and "
            f"{least['method'][worst]} ends at {least['loss'][worst]:.2f}, compared with "
            f"{saddle_value:.2f} at the saddle"
        )
    return f"that steps along curvature leave a saddle where gradients do not is {verdict}{small}."
