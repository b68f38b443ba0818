"""Effects of the private line search's parameters: Fig. 1 of Chen and Lee (2020)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats

from dpanalysis import plotting
from dpanalysis.experiments import sweep
from dpanalysis.experiments.records import Table

from . import _search as runs
from ._clipping import stack, where

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Effects of the private line search's parameters (Chen and Lee 2020, Fig. 1)"

#: Parameter of the method (or q), label, and values, in the order of the panels.
PANELS: dict[str, tuple[str, list[Any]]] = {
    "sufficient_decrease": ("alpha", [0.1, 0.3, 0.5, 0.7, 0.9]),
    "backtrack": ("beta", [0.5, 0.6, 0.7, 0.8, 0.9]),
    "noise": ("noise of the search", ["laplace", "gaussian"]),
    "q": ("q", [0.01, 0.05, 0.1, 0.2, 0.5, 1.0]),
    "adapt": ("budget grows", ["never", "always", "angle"]),
    "clip_decay": ("zeta", [0.0, 0.02, 0.05, 0.1, 0.2]),
}
DEFAULTS = {
    "sufficient_decrease": 0.5,
    "backtrack": 0.8,
    "noise": "laplace",
    "q": 0.1,
    "adapt": "angle",
    "clip_decay": 0.0,
}
COLORS = (plotting.PALETTE["vermillion"], plotting.PALETTE["blue"])


def settings(scale: str) -> dict[str, Any]:
    """Return the settings; at quick scale the ends and the paper's value."""
    quick = scale == "quick"
    values = {name: listed for name, (_, listed) in PANELS.items()}
    if quick:
        values = {
            name: [v for v in listed if len(listed) < 4 or v in (*listed[::4], DEFAULTS[name])]
            for name, listed in values.items()
        }
        values["q"] = [0.05, 0.1, 0.5]
    return {
        "data": runs.data_names(scale)[0],
        "loss": "logistic",
        "epsilons": [0.2, 1.6] if quick else [0.05, 0.2],
        "delta": runs.DELTA,
        "relation": runs.RELATION,
        **runs.SEARCH,
        "share": 10 if quick else 100,
        "accountings": list(runs.ACCOUNTINGS)[: 2 if quick else None],
        **runs.repetitions("search_hyperparameters", scale, folds=10, seeds=5),
        **values,
    }


def cells(scale: str) -> list[dict[str, Any]]:
    """Return the parameters of every run; the paper's values, shared by all panels, come once."""
    chosen = settings(scale)
    listed = []
    for fold in range(chosen["folds"]):
        for accounting in chosen["accountings"]:
            for epsilon in chosen["epsilons"]:
                for name in PANELS:
                    for value in chosen[name]:
                        cell = runs.search_cell(
                            chosen["data"],
                            accounting,
                            epsilon,
                            fold,
                            chosen["share"],
                            **{**DEFAULTS, name: value},
                        )
                        if cell not in listed:
                            listed += runs.seeds_of(cell, chosen)
    return listed


def compute(scale: str, *, jobs: int, cache: Path, progress: bool) -> dict[str, Table]:
    """Return the accuracy by parameter, value, epsilon and accounting, mean over the folds."""
    chosen = settings(scale)
    records = sweep(
        runs.run_cell, cells(scale), folder=cache, jobs=jobs, progress=progress, settings=chosen
    )
    rows, found = [], ("accuracy", "objective", "iterations", "epsilon_spent")
    for record in records:
        used = {**record.parameters["options"], "q": record.parameters["rate"]}
        for name in PANELS:
            if all(used[other] == DEFAULTS[other] for other in PANELS if other != name):
                row = {
                    "fold": record.parameters["fold"],
                    "parameter": name,
                    "value": str(used[name]),
                    "epsilon": record.parameters["epsilon"],
                    "accounting": runs.accounting_of(record.parameters["method"]),
                }
                row.update((key, float(record.result[key])) for key in found)
                rows.append(row)
    keys = ("parameter", "value", "epsilon", "accounting")
    every, key = stack(rows), ("parameter", "epsilon", "accounting")
    leads = [
        {**dict(zip(row_keys, row, strict=True)), "parameter": name}
        for name in PANELS
        for table in [runs.paired(where(every, parameter=name), key, "value", str(DEFAULTS[name]))]
        for row_keys in [list(table)]
        for row in zip(*(column.tolist() for column in table.values()), strict=True)
    ]
    return {"accuracy": runs.over_folds(every, keys, found), "leads": stack(leads)}


#: Panels with categorical values: their points are not joined.
CATEGORIES = ("noise", "adapt")
#: Markers of the larger and the smaller epsilon, by accounting.
MARKERS = ("^v", "^v", "Ds")


def draw(tables: dict[str, Table]) -> Figure:
    """Draw a panel per parameter; colors are epsilons, line styles and markers accountings.

    The axis covers the correct accountings; points below it are drawn at its lower end.
    """
    table = tables["accuracy"]
    figure, axes = plotting.panels(2, 3, width=plotting.PAGE / 3, height=1.9, sharey=True)
    proved = table["accuracy"][table["accounting"] != "as printed, not private"]
    bottom = foot(table)
    for ax, (name, (label, order)) in zip(axes.flat, PANELS.items(), strict=True):
        values = [str(v) for v in order if str(v) in set(where(table, parameter=name)["value"])]
        for k, epsilon in enumerate(sorted(set(table["epsilon"].tolist()))):
            for j, accounting in enumerate(dict.fromkeys(table["accounting"].tolist())):
                rows = where(table, parameter=name, epsilon=epsilon, accounting=accounting)
                place = np.array([values.index(value) for value in rows["value"]])
                by_place = np.argsort(place)
                spread = rows["accuracy_std"] / np.sqrt(rows["runs"])
                called = runs.called(accounting)
                spread[rows["accuracy"] < bottom] = 0.0  # a bar there would cross the panel
                shift = 0.09 * (3 * k + j - 2.5) if name in CATEGORIES else 0.0
                ax.errorbar(
                    place[by_place] + shift,
                    np.maximum(rows["accuracy"][by_place], bottom),
                    spread[by_place],
                    color=COLORS[k],
                    linestyle="none" if name in CATEGORIES else runs.ACCOUNTINGS[accounting][1],
                    marker=MARKERS[j][1 - k],
                    markersize=3.5,
                    markerfacecolor=(COLORS[k], "white", "white")[j],
                    capsize=2,
                    label="_" if name in CATEGORIES else f"epsilon = {epsilon:g}, {called}",
                )
        ax.set_xticks(range(len(values)), values)
        ax.set_xlabel(label)
        ax.axhline(bottom, color="#999999", linewidth=0.6, linestyle=(0, (1, 3)))
    axes[0, 0].set_ylim(
        bottom - 0.05 * float(np.ptp(proved)),
        float(table["accuracy"].max()) + 0.1 * float(np.ptp(proved)),
    )
    for ax in axes[:, 0]:
        ax.set_ylabel("accuracy")
    plotting.shared_legend(figure, axes, columns=2)
    return figure


def foot(table: Table) -> float:
    """Return the lower limit of the axis, from the accuracies of the correct accountings."""
    proved = table["accuracy"][table["accounting"] != "as printed, not private"]
    return float(proved.min()) - 0.15 * float(np.ptp(proved))


def caption(tables: dict[str, Table], scale: str) -> str:
    """Return the caption."""
    chosen, table = settings(scale), tables["accuracy"]

    def found(name: str, epsilon: float, quantity: str, digits: str) -> str:
        rows = where(table, parameter=name, epsilon=epsilon, accounting="correct")
        return ", ".join(
            f"{value} {number:{digits}}"
            for value, number in zip(rows["value"], rows[quantity], strict=True)
        )

    lines = ". ".join(
        f"{label}: "
        + "; ".join(
            f"at epsilon {epsilon:g} {found(name, epsilon, 'accuracy', '.3f')}"
            for epsilon in chosen["epsilons"]
        )
        for name, (label, _) in PANELS.items()
    )
    iterations = "; ".join(
        f"at epsilon {epsilon:g} {found('noise', epsilon, 'iterations', ',.0f')}"
        for epsilon in chosen["epsilons"]
    )
    proved = table["accounting"] != "as printed, not private"
    least = float((table["epsilon_spent"] / table["epsilon"])[proved].min())
    low = int((table["accuracy"] < foot(table)).sum())
    few = " (one has none)" if chosen["folds"] == 1 else ""
    small = ""
    if scale == "quick":
        small = (
            "Epsilon is larger, first costs are a tenth of it, one fold is run, and the fresh "
            "batch is left out. "
        )
    return f"""
Accuracy of DP-BLSGD for logistic regression on {runs.DATA[chosen["data"]]}, one parameter at a
time; the others are the paper's (alpha = .5, beta = .8, Laplace noise, q = .1, adaptive budget,
zeta = 0). Colors are epsilons, line styles and markers accountings: solid is correct. {low} points
of the printed accounting, down to {table["accuracy"].min():.2f}, are drawn at the lower end of the
axis, without bars. Mean over {runs.repeated(chosen)}, bars: standard error over the folds{few}.
With the correct accounting: {lines}. Iterations by noise:
{iterations}. A search with Gaussian noise has no pure cost, and its Renyi curve is amplified with
the factor 3 of Lemma 4, which leaves little of the amplification: the budget allows few iterations.
With the printed accounting, which allows both distributions about as many, they are close.

Privacy: runs with the correct accounting satisfy (epsilon, 1e-8)-differential privacy under
add-or-remove-one with n public; "as printed" is the paper's accounting, which is unproved.
Choosing a parameter by these accuracies is not covered, nor are the accuracies.

Differences from the paper: {small}Its Fig. 1 is a picture without numbers; its text says that at
epsilon = .2 alpha and beta matter little, that at .05 alpha = .5 and beta = .8 are best, that
Laplace noise is slightly better, that q must not be too small at .05, that the adaptive budget
helps, and that zeta helps at .05 and not at .2. It does not state max_it, {chosen["max_queries"]}
here: the budget grows after that many failed steps. Runs continue until their budget is spent, the
least share with the correct accounting being {least:.0%}: settings are compared at equal spending,
even where the budget does not grow, which takes the most iterations. Intervals are 95% intervals
over folds; "best" is confirmed by a lead over every other value, and refuted if another leads by a
wider interval that holds at 95% for all comparisons of the sentence.

Finding: {finding(tables)}
"""


LAPLACE = "Laplace noise is better"

#: The paper's claims: in words, parameter, epsilons, the better value, and the values it is better
#: than (None: all others).
CLAIMS = (
    ("alpha = .5 is best", "sufficient_decrease", (0.05,), "0.5", None),
    ("beta = .8 is best", "backtrack", (0.05,), "0.8", None),
    (LAPLACE, "noise", (0.05, 0.2), "laplace", None),
    ("q = .01 is too small", "q", (0.05,), "0.1", ("0.01",)),
    ("growing by the angle is better than never and always", "adapt", (0.05, 0.2), "angle", None),
    ("zeta = .05 helps", "clip_decay", (0.05,), "0.05", ("0.0",)),
    ("zeta = .05 does not help", "clip_decay", (0.2,), "0.0", ("0.05",)),
)


def finding(tables: dict[str, Table]) -> str:
    """Return which of the paper's claims on Fig. 1 hold with the correct accounting."""
    said = []
    for words, parameter, epsilons, better, others in CLAIMS:
        leads = [
            lead
            for epsilon in epsilons
            for lead in _leads(tables["leads"], parameter, epsilon, better, others)
        ]
        if leads:
            at = " and ".join(f"{epsilon:g}" for epsilon in epsilons)
            bound = _fresh_batch(tables["leads"], epsilons) if words == LAPLACE else ""
            said.append(f"{words} at {at}: {_verdict(leads)}{bound}")
    ours = "on our runs with the correct accounting (the paper used the printed one)"
    return f"claims of the paper, {ours}: {'; '.join(said) or 'not run at this scale'}."


def _fresh_batch(table: Table, epsilons: Sequence[float]) -> str:
    """Return the comparison of the noise distributions with a fresh batch for each search."""
    fresh = "correct, fresh batch"
    leads = [
        lead
        for epsilon in epsilons
        for lead in _leads(table, "noise", epsilon, "laplace", None, fresh)
    ]
    if not leads:
        return ""
    intervals = ", ".join(f"{lead:+.4f} ± {half:.4f}" for lead, half, _, _ in leads)
    return (
        ", with the accounting for one batch, whose bound for Gaussian noise is loose by the factor"
        f" 3; with a fresh batch, which is amplified alone: {_verdict(leads)}, {intervals}"
    )


def _leads(
    table: Table,
    parameter: str,
    epsilon: float,
    better: str,
    others: Sequence[str] | None,
    accounting: str = "correct",
) -> list[tuple[float, float, int, str]]:
    """Return lead, half-width of its interval, folds, and the other value, for each other value."""
    rows = where(table, parameter=parameter, epsilon=epsilon, accounting=accounting)
    found = []
    default = str(DEFAULTS[parameter])
    columns = (rows[key].tolist() for key in ("value", "lead", "high", "folds"))
    for value, lead, high, folds in zip(*columns, strict=True):
        if better == default and (others is None or value in others):
            found.append((lead, high - lead, folds, value))
        elif better == value and others == (default,):
            found.append((-lead, high - lead, folds, default))
    return found


def _verdict(leads: Sequence[tuple[float, float, int, str]]) -> str:
    """Return the verdict from the leads over all other values, with the least lead.

    Confirmed: each 95% interval lies above 0. Refuted: an interval widened to hold at 95% for all
    leads together (Bonferroni) lies below 0. Open without intervals, with fewer than three folds.
    """
    least, _, _, other = min(leads)
    verdict = "confirmed" if all(lead > half for lead, half, _, _ in leads) else "open"
    for lead, half, folds, _ in leads:
        wide, usual = stats.t.ppf([1.0 - 0.025 / len(leads), 0.975], folds - 1)
        if lead + half * (wide / usual) < 0.0:
            verdict = "refuted"
    return f"{verdict} (least lead {least:+.3f}, over {other})"
