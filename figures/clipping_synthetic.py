"""GC against VC on linear regression with light-tailed noise: Fig. 4 of Fang et al. (2023)."""

from __future__ import annotations

import math
import warnings
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import dpanalysis as dpa
from dpanalysis import plotting
from dpanalysis.experiments import Record, sweep, tabulate
from dpanalysis.experiments.records import Table

from . import _clipping as runs

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Clipping on synthetic linear regression (Fang et al. 2023, Fig. 4)"

N, D, BATCH, EPOCHS = 10_000, 256, 128, 10
DELTA = 1e-5
ROW_BOUND = 19.0  # a normal row of 256 entries has the norm 16 +- .7
CLIP_NORMS = (5.0, 20.0, 80.0, 320.0)
RULES = ("GC", "VC")


def settings(scale: str) -> dict[str, Any]:
    """Return the settings of the figure."""
    return {
        "n": N,
        "d": D,
        "batch": BATCH,
        "epochs": EPOCHS,
        "iterations": EPOCHS * runs.steps_per_epoch(N, BATCH),
        "label_noise_std": 1.0,
        "row_bound_L2": ROW_BOUND,
        "noise_multiplier": 1.0,
        "delta": DELTA,
        "clip_norms": list(CLIP_NORMS[1:] if scale == "quick" else CLIP_NORMS),
        "step_sizes": [0.01, 0.05] if scale == "quick" else [0.005, 0.01, 0.02, 0.05, 0.1],
        "seeds": 1 if scale == "quick" else 5,
        "widenings": 0 if scale == "quick" else 8,
        "relation": runs.RELATION,
    }


@lru_cache(maxsize=5)
def load_problem(seed: int) -> dpa.ERM:
    """Return a regression problem with normal rows, true model and label noise."""
    random = np.random.default_rng(seed)
    X, truth = random.normal(size=(N, D)), random.normal(size=D)
    y = X @ truth + random.normal(size=N)
    bound = dpa.RowBound(2, ROW_BOUND, "clip")
    return dpa.ERM(X, y, dpa.losses.SquaredError(), row_bound=bound)


def run_cell(rule: str, clip_norm: float, step_size: float, seed: int) -> dict[str, np.ndarray]:
    """Run once, on the seed's own data, and return gap and clipping frequency by epoch."""
    problem = load_problem(seed)
    steps = runs.steps_per_epoch(N, BATCH)
    clipping = runs.make_rule(rule, clip_norm, 0.1)
    method = dpa.methods.SGD(
        step_size,
        EPOCHS * steps,
        dpa.Poisson(1.0 / steps),
        clipping,
        noise=np.full(EPOCHS * steps, clip_norm * steps / N),
        mechanism="gaussian",
    )

    def clipping_frequency(problem: Any, w: np.ndarray) -> np.ndarray:
        return problem.sums(w, clipping=clipping, value=False).clipped / problem.n

    with warnings.catch_warnings():
        # L = 361 follows from the bound on the rows; the data's own value is about 1.
        warnings.filterwarnings("ignore", "step_size .* is above 2/L", UserWarning)
        result = dpa.minimize(
            problem, method, None, rng=seed, record=("gap", clipping_frequency), every=steps
        )
    return {
        "epoch": result.history["iteration"] / steps,
        "gap": result.history["gap"][:, 0],
        "clipping_frequency": result.history["clipping_frequency"][:, 0],
    }


def compute(scale: str, *, jobs: int, cache: Path, progress: bool) -> dict[str, Table]:
    """Return the curves at the best step size of each rule and clip norm, and their ends.

    The first seed chooses the step size, on a grid that is extended until the best is inside; the
    curves use the other seeds, each with its own data.
    """
    chosen = settings(scale)
    run = partial(sweep, run_cell, folder=cache, jobs=jobs, progress=progress, settings=chosen)
    wanted = [
        {"rule": rule, "clip_norm": clip_norm}
        for rule in RULES
        for clip_norm in chosen["clip_norms"]
    ]
    records, inside = runs.tuned_runs(run, wanted, chosen, _closeness)
    every = tabulate(records)
    keys, names = ("rule", "clip_norm", "step_size", "epoch"), ("gap", "clipping_frequency")
    curves = runs.group(every, keys, names)
    return {
        "curves": curves,
        "ends": {
            **runs.where(curves, epoch=float(EPOCHS)),
            "best_step_inside": np.array(inside),
        },
        "runs": runs.where(every, epoch=float(EPOCHS)),
    }


def _closeness(record: Record) -> float:
    """Return the score of a step size; diverging runs score worst."""
    gap = float(record.result["gap"][-1])
    return -gap if math.isfinite(gap) else -math.inf


def draw(tables: dict[str, Table]) -> Figure:
    """Draw frequency and gap by epoch; markers show clip norms, dashes value clipping."""
    curves = tables["curves"]
    figure, axes = plotting.panels(1, 2, width=plotting.PAGE / 2, height=2.2)
    colors = list(plotting.PALETTE.values())
    for k, clip_norm in enumerate(sorted(set(curves["clip_norm"].tolist()))):
        for rule, dashes in zip(RULES, ("-", "--"), strict=True):
            mine = runs.where(curves, rule=rule, clip_norm=clip_norm)
            for ax, name in zip(axes[0], ("clipping_frequency", "gap"), strict=True):
                label = f"{rule}, C = {clip_norm:g}"
                look = {"color": colors[k], "marker": runs.SERIES[k], "markersize": 3.0}
                spread = runs.error_bars(mine, name)
                ax.errorbar(
                    mine["epoch"], mine[name], spread, linestyle=dashes, label=label, **look
                )
    axes[0, 0].set(xlabel="epoch", ylabel="share of samples", title="clipping frequency")
    axes[0, 1].set(xlabel="epoch", ylabel="F(w) - F*", yscale="log", title="optimality gap")
    plotting.shared_legend(figure, axes, columns=4)
    return figure


def caption(tables: dict[str, Table], scale: str) -> str:
    """Return the caption."""
    chosen = settings(scale)
    rate = 1.0 / runs.steps_per_epoch(N, BATCH)
    rdp, pld = runs.epsilons(rate, 1.0, chosen["iterations"], DELTA)
    ends = tables["ends"]
    grid = runs.grid_sentence(
        ends["best_step_inside"].tolist(),
        [f"{rule} at {C:g}" for rule, C in zip(ends["rule"], ends["clip_norm"], strict=True)],
    )

    def listed(name: str) -> str:
        return "; ".join(
            f"{rule} " + ", ".join(f"{v:.3g}" for v in runs.where(ends, rule=rule)[name])
            for rule in RULES
        )

    return f"""
Linear regression on {N} standard normal rows of {D} entries: clipping frequency and optimality gap
by epoch, {runs.runs_in_words(chosen["seeds"])}, each on its own data set, for C =
{", ".join(f"{C:g}" for C in chosen["clip_norms"])}, at the best step size of
{", ".join(f"{s:g}" for s in chosen["step_sizes"])}, tuned on another data set on a grid that is
extended where its end is best. {grid}
Poisson batches of {BATCH} on average, sigma =
1. At the end, by C: gap {listed("gap")}; clipping frequency {listed("clipping_frequency")}. As in
the paper, clipping fades as the gap closes if C is large enough, and VC, which uses an upper bound
on the norm, clips more and is slower at the same C.

Privacy: every run is (epsilon, {DELTA:g})-differentially private under add-or-remove-one with n
public, epsilon = {rdp:.4f} by RDP and {pld:.4f} by PLD. The curves and the choice of the step size
are not covered.

Differences from the paper: it adds standard normal noise to the true gradient, so that samples have
no losses for value clipping to use; here the noise is in the labels (standard deviation 1), which
makes each sample's gradient light-tailed around the true one. Its clip norms and step sizes are not
in the text. Rows are clipped to the public bound {ROW_BOUND:g}, which hardly any of them reach, and
VC uses beta_1 = 2 x {ROW_BOUND:g}^2 = {2 * ROW_BOUND**2:g}.

Finding: {_finding(tables)}
"""


def _finding(tables: dict[str, Table]) -> str:
    """Return a sentence with the verdicts on the paper's Fig. 4."""
    curves, ends = tables["curves"], tables["ends"]
    first = runs.where(curves, epoch=0.0)
    fades = bool((ends["clipping_frequency"] <= first["clipping_frequency"]).all())
    said = f"that clipping fades as training goes on is {'confirmed' if fades else 'refuted'}; that"
    if ends["runs"].min() < 2:
        return f"{said} VC ends at the larger gap is open, since one run cannot decide it."
    found = []
    for C in dict.fromkeys(ends["clip_norm"].tolist()):
        GC, VC = (runs.where(tables["runs"], rule=rule, clip_norm=C) for rule in RULES)
        mean, half = runs.paired(VC, GC, "gap")
        verdict = "confirmed" if mean > half else "refuted" if mean < -half else "open"
        found.append(f"{verdict} at C = {C:g} (larger by {runs.interval(mean, half, 4)})")
    return (
        f"{said} VC ends at the larger gap is {', '.join(found)}, by 95 % intervals over shared "
        "data sets."
    )
