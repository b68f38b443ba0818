"""Private second-order points on Covertype and IJCNN: the tables of Gao and Wright (2023)."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dpanalysis import plotting
from dpanalysis.experiments import Record, sweep
from dpanalysis.experiments.records import Table

from . import _ledger
from . import _second_order as runs
from ._clipping import group, stack, where
from ._markdown import markdown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Private second-order points on real data (Gao and Wright 2023, tables)"

KEYS = ("data", "penalty", "tolerance", "start", "method", "epsilon")
FOUND = (*runs.FOUND, "cut")
SIZES = {"covertype": (79_222, 54), "ijcnn1": (49_990, 22), "clouds": (20_000, 10)}
NAMES = {"covertype": "Covertype", "ijcnn1": "IJCNN", "clouds": "two clouds"}


def settings(scale: str) -> dict[str, Any]:
    """Return the settings of the tables."""
    quick = scale == "quick"
    data = runs.data_names(scale)
    return {
        "data": data,
        "n": [SIZES[name][0] for name in data],
        "d": [SIZES[name][1] for name in data],
        "row_bound_L2": 1.0,
        "penalties": ["GemanMcClure"] if quick else list(runs.PENALTIES),
        "strength": 0.001,
        "tolerances": ["loose"] if quick else ["loose", "tight"],
        "epsilons": [0.2, 1.0] if quick else list(runs.EPSILONS),
        "delta": runs.DELTA,
        "relation": runs.RELATION,
        "starts": list(runs.STARTS),
        "batch": runs.BATCH,
        "seeds": 2 if quick else 5,
        "cut_after": 30 if quick else 100,
        **({"constants": list(runs.CONSTANTS)} if with_unit_constants(scale) else {}),
    }


def with_unit_constants(scale: str) -> bool:
    """Whether to add runs with G = M = 1: with $DPANALYSIS_UNIT_CONSTANTS, or if stored."""
    if scale == "quick" or os.environ.get("DPANALYSIS_UNIT_CONSTANTS"):
        return scale != "quick"
    about = _ledger.RESULTS / "second_order_tables" / "about.json"
    return about.is_file() and "constants" in json.loads(about.read_text("utf-8"))["settings"]


def cells(scale: str) -> list[dict[str, Any]]:
    """Return the parameters of every run, data after data."""
    chosen = settings(scale)
    return [
        {
            "data": data,
            "penalty": penalty,
            "tolerance": tolerance,
            "method": method,
            "epsilon": epsilon,
            "start": start,
            "seed": seed,
            "limit": chosen["cut_after"],
        }
        for data in chosen["data"]
        for penalty in chosen["penalties"]
        for tolerance in chosen["tolerances"]
        for start in chosen["starts"]
        for seed in range(chosen["seeds"])
        for method in runs.METHODS
        for epsilon in chosen["epsilons"]
    ]


def unit_cells(scale: str) -> list[dict[str, Any]]:
    """Return the parameters of the runs with G = M = 1, from 0."""
    return [{**cell, "constants": "unit"} for cell in cells(scale) if cell["start"] == "zero"]


def compute(scale: str, *, jobs: int, cache: Path, progress: bool) -> dict[str, Table]:
    """Return every run, means over the seeds, and the surviving rows of the paper's tables."""
    run = partial(sweep, runs.run_cell, folder=cache, jobs=jobs, progress=progress)
    chosen = settings(scale)
    every = tabulate(run(cells(scale), settings=chosen))
    tables = {"means": means_of(every), "runs": every}
    if "constants" in chosen:
        unit = tabulate(run(unit_cells(scale), settings=chosen))
        tables |= {"unit_means": means_of(unit), "unit_runs": unit}
    return {**tables, **published()}


def means_of(every: Table) -> Table:
    """Return means over the seeds."""
    return group(every, (*KEYS, "sensitivity"), (*FOUND, "found"))


def published() -> dict[str, Table]:
    """Return the surviving rows of the paper's tables."""
    return {"published": runs.published_table()}


def tabulate(records: list[Record]) -> Table:
    """Return one row per run and sensitivity."""
    return stack(
        [
            {
                **{key: record.parameters[key] for key in (*KEYS, "seed")},
                "sensitivity": sensitivity,
                **{name: float(record.result[name][k]) for name in FOUND},
                # The run stopped, at a point within the tolerances.
                "found": float(record.result["stopped"][k] * record.result["true_point"][k]),
            }
            for record in records
            for k, sensitivity in enumerate(runs.SENSITIVITIES)
        ]
    )


# ------------------------------------------------------------------ drawing


def row_of(table: Table, **values: Any) -> dict[str, Any]:
    """Return the only row with these values."""
    found = where(table, **values)
    return {name: column.item() for name, column in found.items()}


def items_of(means: Table) -> list[tuple[str, str, str]]:
    """Return the pairs of data, penalty and tolerance."""
    keys = ("data", "penalty", "tolerance")
    return list(dict.fromkeys(zip(*(means[key].tolist() for key in keys), strict=True)))


def draw(tables: dict[str, Table]) -> Figure:
    """Draw the number of runs that found a point: methods by starts and epsilons."""
    means = where(tables["means"], sensitivity="sharp")
    items = items_of(means)
    columns = min(4, len(items))
    rows = -(-len(items) // columns)
    figure, axes = plotting.panels(
        rows, columns, width=plotting.PAGE / max(2, columns), height=2.0, sharey=True
    )
    for place, (ax, item) in enumerate(zip(axes.flat, items, strict=False)):
        mine = where(means, **dict(zip(("data", "penalty", "tolerance"), item, strict=True)))
        image = _draw_found(ax, mine, place >= (rows - 1) * columns)
        penalty = item[1].replace("GemanMcClure", "Geman-McClure")
        ax.set_title(f"{NAMES[item[0]]}, {item[2]}\n{penalty}", x=0.0, ha="left")
    count = int(means["runs"].max())
    bar = figure.colorbar(image, ax=axes, shrink=0.6, aspect=30)
    bar.set_ticks(np.linspace(0.0, 1.0, count + 1), labels=[str(k) for k in range(count + 1)])
    bar.set_label(f"runs of {count} that found a point")
    return figure


def _draw_found(ax: Any, mine: Table, labeled: bool) -> Any:
    """Draw one panel; each cell has the number of runs that found a point."""
    epsilons = list(dict.fromkeys(mine["epsilon"].tolist()))
    starts = list(dict.fromkeys(mine["start"].tolist()))
    names = list(runs.METHODS)
    grid = np.array(
        [
            [
                row_of(mine, method=name, start=start, epsilon=epsilon)["found"]
                for start in starts
                for epsilon in epsilons
            ]
            for name in names
        ]
    )
    image = ax.imshow(grid, vmin=0.0, vmax=1.0, cmap="Blues", aspect="auto")
    for (i, j), share in np.ndenumerate(grid):
        count = round(share * mine["runs"][0])
        color = "white" if share > 0.5 else "black"
        ax.text(j, i, str(count), ha="center", va="center", color=color, fontsize="x-small")
    ax.grid(False)
    ax.set_yticks(range(len(names)), names)
    ax.set_xticks(range(grid.shape[1]), [f"{e:g}" for _ in starts for e in epsilons], fontsize=6)
    ax.axvline(len(epsilons) - 0.5, color="black", linewidth=0.8)
    for k, start in enumerate(starts):
        place = (k + 0.5) * len(epsilons) - 0.5
        text = {"zero": "from 0", "random": "random start"}[start]
        if labeled:
            ax.annotate(
                text,
                (place, 0.0),
                xycoords=("data", "axes fraction"),
                xytext=(0, -14),
                textcoords="offset points",
                ha="center",
                va="top",
                fontsize="x-small",
            )
    if labeled:
        ax.set_xlabel("epsilon", labelpad=11)
    return image


def report(tables: dict[str, Table]) -> dict[str, str]:
    """Return the numbers of settings in which all runs stop or end at a point, and the cost."""
    means = where(tables["means"], sensitivity="sharp")
    starts = list(dict.fromkeys(means["start"].tolist()))
    rows = []
    for name in runs.METHODS:
        cells = [name]
        for start in starts:
            mine = where(means, method=name, start=start)
            spent = np.median(mine["epsilon_spent"] / mine["epsilon"])
            total = len(mine["found"])
            cells += [f"{int((mine['found'] == 1.0).sum())} of {total}"]
            cells += [f"{int((mine['true_point'] == 1.0).sum())} of {total}", f"{spent:.0%}"]
        rows.append(cells)
    names = {"zero": "from 0", "random": "random start"}
    head = [""]
    for start in starts:
        head += [f"{names[start]}: settings in which all runs stop at a point"]
        head += ["all end at a point, stopped or not", "share of epsilon spent"]
    zero = where(means, start="zero")
    stop, end = (counts(zero, name) for name in ("found", "true_point"))
    most = max(stop, key=stop.__getitem__)
    total = len(where(zero, method=most)["found"])
    both, higher = pairs(zero, most, "DP-TR", "loss")
    cost = ("iterations", "seconds")
    beside = "; ".join(
        f"{name}: " + ", ".join(f"{LESS[each]} {less_often(means, name, each)[1]}" for each in cost)
        for name in ("OPT", "2OPT-LS")
    )
    headline = (
        f"- **Second-order points** (Gao and Wright 2023), Covertype and IJCNN, {total} settings. "
        f"From 0 all runs stop at such a point in {stop[most]} for the paper's {most}, in "
        f"{stop['DP-TR']} for the trust region DP-TR and in {stop['OPT']} for OPT; the last "
        f"iterate is one in {end[most]}, {end['DP-TR']} and {end['OPT']}. Where both stop, {most} "
        f"ends at a higher loss than DP-TR in {higher} of {both}. Beside DP-TR, {beside}"
        f"{'' if 'unit_means' in tables else ' (open for M = 1)'}."
    )
    return {"found": markdown(head, rows), "noise": gain(tables) + ".", "headline": headline}


def counts(means: Table, quantity: str) -> dict[str, int]:
    """Return in how many settings all runs of a method have a property."""
    return {name: int((where(means, method=name)[quantity] == 1.0).sum()) for name in runs.METHODS}


def at_start(means: Table) -> int:
    """Return in how many settings from 0 the start is a point within the tolerances."""
    mine = where(means, method="DP-TR", start="zero")
    keys = zip(*(mine[key].tolist() for key in ("data", "penalty", "tolerance")), strict=True)
    return sum(runs.starts_at_a_point(*key) for key in keys)


def pairs(means: Table, one: str, other: str, quantity: str) -> tuple[int, int]:
    """Return in how many settings all runs of both stop, and in how many ``one`` has more."""
    ours, theirs = (where(means, method=name) for name in (one, other))
    both = (ours["stopped"] == 1.0) & (theirs["stopped"] == 1.0)
    return int(both.sum()), int((ours[quantity][both] > theirs[quantity][both]).sum())


#: Starts in words.
STARTS = {"zero": "0", "random": "a random start"}
#: Quantities that the paper says are smaller than for DP-TR.
LESS = {"iterations": "fewer iterations", "seconds": "less time", "loss": "ends at a lower loss"}


def less_often(means: Table, method: str, quantity: str) -> tuple[str, str]:
    """Return how often a quantity is smaller than for DP-TR, and from which starts this is found.

    It is found if this holds in most settings in which all runs of both stop.
    """
    counted, most = [], {}
    for start in dict.fromkeys(means["start"].tolist()):
        both, less = pairs(where(means, start=start), "DP-TR", method, quantity)
        counted.append(f"{less} of {both}")
        most[start] = less > both / 2
    word = "found" if all(most.values()) else "not found"
    if any(most.values()) and not all(most.values()):
        word = f"found from {' and '.join(STARTS[start] for start in most if most[start])} alone"
    return " and ".join(counted), word


def beside_trust_region(means: Table, method: str) -> str:
    """Return what is smaller than for DP-TR, how often, and whether this is found."""
    counted = {quantity: less_often(means, method, quantity) for quantity in LESS}
    return ", ".join(f"{LESS[each]} in {often} ({word})" for each, (often, word) in counted.items())


def verdicts(tables: dict[str, Table]) -> str:
    """Return the verdicts on the paper's two comparisons with the trust region."""
    said = []
    for table, constants in (("means", "G and M of the data"), ("unit_means", "G = M = 1")):
        if table not in tables:
            continue
        sharp = where(tables[table], sensitivity="sharp")
        starts = list(dict.fromkeys(sharp["start"].tolist()))
        short, search = (beside_trust_region(sharp, name) for name in ("OPT", "2OPT-LS"))
        stop = [counts(where(sharp, start=start), "stopped") for start in starts]
        stops = " and ".join(f"{each['2OPT-LS']} against {each['DP-TR']}" for each in stop)
        said.append(
            f"with {constants}, against DP-TR in the settings where both stop, from "
            f"{' and from '.join(STARTS[start] for start in starts)}: OPT takes {short}; "
            f"2OPT-LS {search}, and it stops in {stops} settings"
        )
    if len(said) == 1:
        said.append("with M = 1, which the paper's tolerances imply, all of this is open")
    return ". ".join(each[0].upper() + each[1:] for each in said)


# ------------------------------------------------------------------ caption


def stopped(means: Table, sensitivity: str) -> str:
    """Return the number of configurations in which all runs of each method stopped."""
    parts = []
    for method in runs.METHODS:
        shares = where(means, method=method, sensitivity=sensitivity)["stopped"]
        parts.append(f"{method} {int((shares == 1.0).sum())}")
    return ", ".join(parts)


def gain(tables: dict[str, Table]) -> str:
    """Return the gains from the sharp sensitivity of the Hessian."""
    means = tables["means"]
    sharp, printed = (where(means, sensitivity=s) for s in runs.SENSITIVITIES)
    parts = []
    for data in dict.fromkeys(means["data"].tolist()):
        mine = sharp["data"] == data
        noise = (printed["hessian_noise"] / sharp["hessian_noise"])[mine]
        parts.append(
            f"{np.nanmax(noise):.1f} times shorter on {NAMES[data]} (d = {SIZES[data][1]})"
        )
    full = (np.char.find(sharp["method"], "-B") < 0) & (sharp["start"] == "zero")
    plain = full & (np.char.find(sharp["method"], "-LS") < 0)
    saved = (printed["n_min"] / sharp["n_min"])[plain]
    changed = int((sharp["loss"] != printed["loss"]).sum())
    return (
        f"The sharp noise of the Hessian is {' and '.join(parts)}; the guaranteed n_min of DP-TR, "
        f"OPT and 2OPT is {saved.min():.2f} to {saved.max():.2f} times smaller; "
        f"{changed} of {len(sharp['loss'])} configurations end at another loss, and "
        f"{int((sharp['stopped'] == 1.0).sum())} stop in all runs instead of "
        f"{int((printed['stopped'] == 1.0).sum())}"
    )


def caption(tables: dict[str, Table], scale: str) -> str:
    """Return the caption."""
    chosen, means = settings(scale), tables["means"]
    sharp = where(means, sensitivity="sharp")
    every = where(tables["runs"], sensitivity="sharp")
    done = every["stopped"] == 1.0
    right, valid = (int((every["true_point"][rows] == 1.0).sum()) for rows in (done, ~done))
    ends = counts(where(sharp, start="zero"), "true_point")
    ended = ", ".join(f"{name} {count}" for name, count in ends.items())
    sizes = ", ".join(
        f"{NAMES[name]} n = {n}, d = {d}"
        for name, n, d in zip(chosen["data"], chosen["n"], chosen["d"], strict=True)
    )
    curvature = {
        name: where(tables["runs"], sensitivity=name)["curvature_steps"].sum()
        for name in runs.SENSITIVITIES
    }
    sizes_of = np.array([SIZES[name][0] for name in sharp["data"].tolist()])
    least_n_min = np.nanmin(sharp["n_min"] / sizes_of)
    batches = (np.char.find(sharp["method"], "OPT-B") >= 0) & (sharp["start"] == "zero")
    batch_noise = sharp["gradient_noise"][batches]
    whole = np.isin(sharp["method"], ("OPT", "2OPT")) & (sharp["start"] == "zero")
    ratio = float(np.median(batch_noise / sharp["gradient_noise"][whole]))
    spent = (
        float(np.median((every["epsilon_spent"] / every["epsilon"])[done])) if done.any() else 0.0
    )
    in_vain = int((every["cut"] * (every["iterations"] > chosen["cut_after"])).sum())
    unit = "runs with G = M = 1 are in unit_means.csv"
    if "unit_means" not in tables:
        unit = "no runs with G = M = 1 are stored"
    loose, tight = (runs.TOLERANCES[None][name] for name in ("loose", "tight"))
    covertype = runs.TOLERANCES["covertype", "GemanMcClure"]
    asked = (
        f"loose {loose}, tight {tight}, on Covertype with GemanMcClure {covertype['loose']} and "
        f"{covertype['tight']}"
    )
    quick = (
        "The data are two synthetic clouds; Covertype and IJCNN with --scale paper and "
        "$DPANALYSIS_DATA. "
        if chosen["data"] == ["clouds"]
        else ""
    )
    return f"""
Gao and Wright (2023), its tables on Covertype and IJCNN: in how many of {chosen["seeds"]} runs each
method stopped at a point within (1 + c1) eps_g and (1 + c) eps_H, by start and epsilon, with the
noise of the Hessian at its true sensitivity ("sharp"). Losses, seconds, iterations, passes and
Hessians, also with the noise as printed, are in means.csv. {sizes}. Loss: logistic, with
GemanMcClure(.001) or L2(.001). Tolerances (eps_g, eps_H): {asked}.
Starts: w0 = 0, where f = ln 2 is public, and a standard normal point for each run: at 0 Covertype's
gradient is .064, hardly longer than the loose eps_g of .06, so that a run there has almost nothing
to do. A run itself decides whether it "stops at a point"; that
it "ends at a point" is only known from the true gradient and curvature of its last iterate.
{len(sharp["loss"]) // len(runs.METHODS)} settings; number of them in which all runs stop:
{stopped(means, "sharp")} with sharp noise, {stopped(means, "printed")}
with printed noise. From 0 the last iterate of all runs is a point in {ended}; w0 itself is one in
{at_start(sharp)} of {len(where(sharp, method="DP-TR", start="zero")["loss"])} settings. Of
{int((~done).sum())} sharp runs that did not stop, {valid} ended at a point, and of
{int(done.sum())} that stopped, {right} did, as Corollary 3 promises for OPT
from n_min on, although every n_min is {least_n_min:.2g} n or more. A run that stops early has spent
less than its budget: the median share spent by a run that stopped is {spent:.0%}.

{gain(tables)}. A Hessian is queried where the noisy gradient is short, and then it mostly passes
the test with either noise: the gradient's noise is what keeps methods from stopping. Passing the
test of curvature means little: at strength .001 the least curvature is above -.0005 everywhere, far
above -eps_H (errata 003-12). So a step along curvature is an error caused by noise: sharp runs made
{int(curvature["sharp"])}, those with printed noise {int(curvature["printed"])} (DP-TR queries a
Hessian in every iteration); second_order_saddle has an instance where curvature matters.

A run is cut after {chosen["cut_after"]} iterations if the noise alone exceeds eps_g in 2T gradients
except with probability {runs.HOPELESS:g}: then it cannot stop later either, whatever the
gradient (Anderson 1955); all others from 0 after at most {4 * chosen["cut_after"]}, those from a
random start, whose T only the run knows, after {chosen["cut_after"]}. This cut
{int(every["cut"].sum())} of {len(every["cut"])} sharp runs, {in_vain} of which might have stopped
later, before T; their loss is that at the cut. Seconds are those of one thread of a machine with
other work, so that they are noisy; passes are exact.

Privacy: every run is (epsilon, {runs.DELTA:g})-differentially private under replace-one with n
public, for the worst case of T iterations that query everything: full batches by a filter under
zCDP, batches of {chosen["batch"]:g} n without replacement by loss distributions, since T and the
noise are fixed beforehand (errata 003-20). Both noises of the Hessian are private; the printed one
is larger than needed. Losses, the true gradients and curvatures and the choice among rows are not
covered.

Differences from the paper: {quick}It has 495,141 rows of Covertype and prints n = 4999 for IJCNN;
here are a 16% sample of Covertype and all 49,990 rows. "Normalize" is read as scaling by public
ranges and then every row to norm at most 1, which enforces B_g = 1 and B_H = 1/4. The runs use the
resulting constants, G = .252 and M = .101 with GemanMcClure; the paper's eps_H is the root of
eps_g, which is the root of M eps_g for M = 1 ({unit}). The paper does not state its start (losses
above ln 2 suggest a random one), delta, c, c1, c2, the search's parameters, the batch or the
smaller T of two phases (here T/10 at 3/4 of the budget). Its Theorem 1 has the cost of the steps
that a run made, which is no guarantee (errata 003-3), and it draws T from a half-normal number,
which is not private (003-4). For batches it takes the cost from autodp; its (28) is a side remark
for s small and sigma large, and nothing here rests on it. The gradient of a batch of
{chosen["batch"]:g} n has {ratio:.2f} times the noise of the full one (median of OPT-B and 2OPT-B),
at a tenth of the work; by Theorem B.4 alone it would have some ten times as much. Most of these
tables are lost in the paper's text: the surviving rows are in published.csv,
which `python -m figures second_order_tables` writes.

Finding: {verdicts(tables)}.
"""
