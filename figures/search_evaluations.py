"""Evaluations of the private line search: Fig. 2 of Chen and Lee (2020)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dpanalysis import plotting
from dpanalysis.experiments import sweep
from dpanalysis.experiments.records import Table

from . import _search as runs
from ._clipping import stack, welch_half, where
from ._markdown import markdown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Evaluations of the private line search (Chen and Lee 2020, Fig. 2)"

COUNTS = {
    "gradients": "gradients\nevaluated / n",
    "losses": "losses\nevaluated / n",
    "iterations": "iterations",
    "accuracy": "accuracy",
}
KEPT = (*COUNTS, "epsilon_spent")
COLOR = plotting.PALETTE["blue"]


def settings(scale: str) -> dict[str, Any]:
    """Return the settings of the figure."""
    quick = scale == "quick"
    return {
        "data": runs.data_names(scale)[0],
        "loss": "logistic",
        "epsilon": 0.4,
        "delta": runs.DELTA,
        "relation": runs.RELATION,
        **runs.SEARCH,
        "share": 10 if quick else 100,
        "q": [0.05, 0.1, 0.5, 1.0] if quick else [0.02, 0.05, 0.1, 0.2, 0.5, 1.0],
        "accountings": list(runs.ACCOUNTINGS),
        **runs.repetitions("search_evaluations", scale, folds=10, seeds=5),
    }


def compute(scale: str, *, jobs: int, cache: Path, progress: bool) -> dict[str, Table]:
    """Return counts, in passes over the data, by q and accounting: means over the folds."""
    chosen = settings(scale)
    cells = [
        cell
        for fold in range(chosen["folds"])
        for accounting in chosen["accountings"]
        for rate in chosen["q"]
        for cell in runs.seeds_of(
            runs.search_cell(
                chosen["data"], accounting, chosen["epsilon"], fold, chosen["share"], q=rate
            ),
            chosen,
        )
    ]
    records = sweep(
        runs.run_cell, cells, folder=cache, jobs=jobs, progress=progress, settings=chosen
    )
    rows = []
    for record in records:
        n = runs.load_folds(chosen["data"])[record.parameters["fold"]].n
        row = {
            "fold": record.parameters["fold"],
            "q": record.parameters["rate"],
            "accounting": runs.accounting_of(record.parameters["method"]),
        }
        for name in KEPT:
            passes = n if name in ("gradients", "losses") else 1
            row[name] = float(record.result[name]) / passes
        rows.append(row)
    return {"evaluations": runs.over_folds(stack(rows), ("q", "accounting"), KEPT)}


def draw(tables: dict[str, Table]) -> Figure:
    """Draw counts and accuracy against q, by accounting."""
    table = tables["evaluations"]
    figure, axes = plotting.panels(2, 2, width=plotting.PAGE / 2, height=1.8, sharex=True)
    for ax, (name, label) in zip(axes.flat, COUNTS.items(), strict=True):
        for (accounting, (_, dashes)), marker in zip(runs.ACCOUNTINGS.items(), "osD", strict=True):
            rows = where(table, accounting=accounting)
            ax.errorbar(
                rows["q"],
                rows[name],
                rows[f"{name}_std"] / rows["runs"] ** 0.5,
                color=COLOR,
                linestyle=dashes,
                marker=marker,
                markersize=3.5,
                markerfacecolor="white",
                capsize=2,
                label=runs.called(accounting),
            )
        ax.set(xscale="log", ylabel=label)
        if name != "accuracy":
            ax.set_yscale("log")
        ax.set_xticks(sorted(set(table["q"].tolist())))
        ax.xaxis.set_major_formatter("{x:g}")
        ax.minorticks_off()
    for ax in axes[-1]:
        ax.set_xlabel("q")
    plotting.shared_legend(figure, axes, columns=3)
    return figure


def report(tables: dict[str, Table]) -> dict[str, str]:
    """Return the evaluations at the smallest and the largest q, by accounting."""
    table = tables["evaluations"]
    rates = sorted(set(table["q"].tolist()))
    rows = []
    for accounting in dict.fromkeys(table["accounting"].tolist()):
        mine = where(table, accounting=accounting)
        by_rate = np.argsort(mine["q"])
        cells = [
            f"{mine['gradients'][k]:,.0f} and {mine['losses'][k]:,.0f} ({mine['accuracy'][k]:.3f})"
            for k in by_rate
        ]
        rows.append([runs.called(accounting), *cells])
    head = ["gradients and losses evaluated / n (accuracy)", *(f"q = {rate:g}" for rate in rates)]
    return {"saved": markdown(head, rows)}


def caption(tables: dict[str, Table], scale: str) -> str:
    """Return the caption."""
    chosen, table = settings(scale), tables["evaluations"]

    def listed(accounting: str, name: str, digits: str) -> str:
        rows = where(table, accounting=accounting)
        return ", ".join(
            f"{value:{digits}} at q = {rate:g}"
            for rate, value in zip(rows["q"], rows[name], strict=True)
        )

    text = ". ".join(
        f"{runs.called(accounting).capitalize()}: gradients "
        f"{listed(accounting, 'gradients', '.1f')}; losses {listed(accounting, 'losses', '.1f')}; "
        f"accuracy {listed(accounting, 'accuracy', '.3f')}"
        for accounting in chosen["accountings"]
    )
    small = ""
    if scale == "quick":
        small = "First costs are a tenth of epsilon, and one fold is run. "
    return f"""
Gradients and losses of single records that DP-BLSGD evaluates for logistic regression on
{runs.DATA[chosen["data"]]} until epsilon = {chosen["epsilon"]:g} is spent, in passes over the data,
against the sampling rate q, with iterations and accuracy. Mean over
{runs.repeated(chosen)}; bars are standard errors over the folds. {text}. With subsampling the
budget allows far more iterations, so that each pass counts for less: the savings of subsampling
depend on the accounting.

Privacy: runs with the correct accountings satisfy ({chosen["epsilon"]:g}, 1e-8)-differential
privacy under add-or-remove-one with n public; "as printed" is the paper's accounting, which is
unproved. The numbers of evaluations reveal the batch sizes and are not private, nor are the
accuracies.

Differences from the paper: {small}Its Fig. 2 is a picture without numbers; its text says that
subsampling can greatly reduce both numbers at a similar accuracy. The losses of a batch at w are
counted once per search. Runs continue until the budget is spent: the least share spent is
{(table["epsilon_spent"] / chosen["epsilon"]).min():.0%}.

Finding: {finding(tables)}
"""


def finding(tables: dict[str, Table]) -> str:
    """Return whether subsampling saves evaluations at some q, by each accounting.

    The paper says that it can. A q confirms this if both counts are less than half of those at
    q = 1 and the accuracy is not significantly lower, by Welch's interval over the folds.
    """
    table, said = tables["evaluations"], []
    for accounting in dict.fromkeys(table["accounting"].tolist()):
        mine, shown, cheap, similar = where(table, accounting=accounting), [], [], []
        full = where(mine, q=1.0)
        for rate in sorted(set(mine["q"].tolist()) - {1.0}):
            part = where(mine, q=rate)
            fewer = [float(full[name][0] / part[name][0]) for name in ("gradients", "losses")]
            lead = float(part["accuracy"][0] - full["accuracy"][0])
            one, other = (float(each["accuracy_std"][0]) for each in (part, full))
            half = welch_half(one, other, int(part["runs"][0]))
            if min(fewer) > 2.0:
                cheap.append(f"{rate:g}")
                similar += [f"{rate:g}"] * (lead + half >= 0.0)
            interval = f" ± {half:.3f}" if np.isfinite(half) else ""
            shown.append(f"{rate:g}: {fewer[0]:.3g}, {fewer[1]:.3g}, {lead:+.3f}{interval}")
        verdict = "refuted"
        if similar:
            verdict = f"confirmed at q = {', '.join(similar)}"
        elif cheap:
            verdict = f"confirmed at q = {', '.join(cheap)}, but the accuracy falls as well,"
        named = f'"{runs.called(accounting)}"'
        said.append(f"{verdict} with the accounting {named} ({'; '.join(shown)})")
    return (
        "that subsampling can greatly reduce evaluations, to less than half of both counts, is "
        f"{', '.join(said)}. In brackets by q: gradients and losses at q = 1 divided by those at "
        "q, and accuracy minus that at q = 1."
    )
