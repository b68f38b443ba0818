"""The CNN of Chen and Lee (2020), section 5.7, trained with private line search: their Fig. 5."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from dpanalysis.experiments import Record
from dpanalysis.experiments.records import Table

from . import _search, _search_network, search_mlp
from ._clipping import stack, where
from .search_mlp import NAMES, RIVALS, draw

__all__ = ["NEEDS", "TITLE", "caption", "compute", "draw", "report", "settings"]

TITLE = "A CNN trained with private line search (Chen and Lee 2020, Fig. 5)"
NEEDS = "torch"

#: Step sizes tried besides the paper's own, .2 for SGD and Adam's .001.
TUNED = {
    "DP-SGD": ("sgd_step_size", (0.05, 0.1, 0.2, 0.4)),
    "DP-Adam": ("adam_step_size", (0.0005, 0.001, 0.002, 0.004)),
}
#: Number of seeds for the other step sizes.
TRIALS = 2
#: Settings that are not parameters of a cell.
NOT_OF_A_CELL = ("tuned", "channels", "widths")
NETWORK = "-".join(map(str, (*_search_network.CHANNELS, *_search_network.WIDTHS)))


def settings(scale: str) -> dict[str, Any]:
    """Return the settings of the figure."""
    chosen = search_mlp.settings(scale)
    mnist = chosen["data"] == "mnist"
    repeated = _search.repetitions("search_cnn", scale if mnist else "quick", seeds=5)
    return {
        **chosen,
        "hidden": "cnn",
        "channels": list(_search_network.CHANNELS),
        "widths": list(_search_network.WIDTHS),
        "iterations": chosen["iterations"] if mnist else 80,
        **repeated,
        "tuned": {name: list(steps if mnist else steps[1:3]) for name, (_, steps) in TUNED.items()},
    }


def compute(scale: str, *, jobs: int, cache: Path, progress: bool) -> dict[str, Table]:
    """Return the curves at the paper's step sizes, other step sizes, and the epsilons."""
    chosen = settings(scale)
    plain = {key: value for key, value in chosen.items() if key not in NOT_OF_A_CELL}
    plain["adam_step_size"] = 0.001
    planned: list[tuple[str, int, dict[str, Any]]] = []
    for seed in range(chosen["seeds"]):
        for name in NAMES:
            for changed in [{}, *(_tried(name, chosen) if seed < TRIALS else [])]:
                run = (name, seed, {**plain, **changed})
                if run not in planned:
                    planned.append(run)
    records = search_mlp.trained(planned, chosen, jobs=jobs, cache=cache, progress=progress)
    own = [record for record in records if _matches(record, plain, {})]
    tuning = [
        {
            "network": NETWORK,
            "method": name,
            "step_size": step,
            "test_accuracy": _end(records, name, plain, changed),
        }
        for name in TUNED
        for step, changed in zip(chosen["tuned"][name], _tried(name, chosen), strict=True)
    ]
    return {**search_mlp.tables(own, chosen), "tuning": stack(tuning)}


def _tried(name: str, chosen: dict[str, Any]) -> list[dict[str, float]]:
    """Return the changed settings for each step size that is tried."""
    if name not in TUNED:
        return []
    return [{TUNED[name][0]: step} for step in chosen["tuned"][name]]


def _matches(record: Record, plain: dict[str, Any], changed: dict[str, float]) -> bool:
    """Return whether a run has the step sizes of the settings, except for the changes."""
    used = {**plain, **changed}
    own = record.parameters["chosen"]
    return all(own[key] == used[key] for key, _ in TUNED.values())


def _end(
    records: list[Record], name: str, plain: dict[str, Any], changed: dict[str, float]
) -> float:
    """Return the final test accuracy, mean over the seeds of the trials."""
    ends = [
        record.result["test_accuracy"][-1]
        for record in records
        if record.parameters["name"] == name
        and record.parameters["seed"] < TRIALS
        and _matches(record, plain, changed)
    ]
    return float(np.mean(ends))


def report(tables: dict[str, Table]) -> dict[str, str]:
    """Return a sentence with the early and final accuracies."""
    curves, spent = tables["curves"], tables["epsilons"]
    early, last = search_mlp.early(curves), int(curves["iteration"].max())

    def at(name: str, iteration: int) -> str:
        row = where(curves, method=name, iteration=iteration)
        return f"{row['test_accuracy'][0]:.1%}"

    rivals = " and ".join(f"{at(name, early)} ({name})" for name in RIVALS)
    ends = " and ".join(at(name, last) for name in RIVALS)
    ours, *theirs = (
        f"{where(curves, method=name, iteration=last)['objective'][0]:.2f}"
        for name in ("DP-BLSGD", *RIVALS)
    )
    return {
        "headline": (
            "- **Line search** (Chen and Lee 2020), the paper's CNN on MNIST, "
            f"{int(curves['runs'][0])} seeds: after {early} iterations {at('DP-BLSGD', early)}, "
            f"without a step size to tune, against {rivals} at the paper's step sizes; "
            f"after {last:,}, at epsilon {spent['DP-BLSGD'][-1]:.2f}, "
            f"{at('DP-BLSGD', last)} against {ends}. {search_mlp.verdicts(tables, 'objective')} "
            f"({ours} against {' and '.join(theirs)})."
        )
    }


def caption(tables: dict[str, Table], scale: str) -> str:
    """Return the caption."""
    chosen, spent = settings(scale), tables["epsilons"]
    tuned = []
    for name in TUNED:
        rows = where(tables["tuning"], method=name)
        ends_of = ", ".join(
            f"{step:g}: {accuracy:.3f}"
            for step, accuracy in zip(rows["step_size"], rows["test_accuracy"], strict=True)
        )
        tuned.append(f"{name} {ends_of}")
    small = ""
    if chosen["data"] == "digits":
        small = (
            "The data are scikit-learn's digits and the network is a smaller one (MNIST with "
            "--scale paper and $DPANALYSIS_DATA). "
        )
    steps = f"eta = {chosen['sgd_step_size']:g} for DP-SGD, Adam by default"
    seeds = min(TRIALS, chosen["seeds"])
    network = (
        "The paper's CNN (section 5.7: convolutions of 6 and 16 channels, dense layers of 256 and "
        "128 units)"
    )
    unsaid = "max_it = 20, eta_0 = 1, nor the filters (5 x 5 here) and the activation (relu)"
    return f"""
{network} on {chosen["data"]}, pixels in [-1, 1], L2(.001), by iteration: accuracy on the test part,
objective on 5,000 training rows (or all), epsilon at delta = 1e-8, and the step size that the line
search chose. C_grad = C_obj = 3, alpha = .001, beta = .8; {steps}. Every iteration of the private
methods costs rho = 1/2 before amplification (sigma = 1), 10% of it for the line search.
{search_mlp.described(tables)} Final test accuracy at all step sizes that were tried, mean of
{seeds} seeds; choosing by it favors the rivals: {"; ".join(tuned)}.

Privacy: {search_mlp.cost(spent)} Test accuracies, objectives and the choice of an iteration
are not covered; the step sizes that the line search chooses are. Runs without noise are not
private, clipped or not.

Differences from the paper: {small}Its Fig. 5 is a picture without numbers, and its text states
neither the noise, the number of iterations, {unsaid}.
It says that the chosen steps decrease: here they {search_mlp.trend(tables["curves"])} (d).

Finding: {search_mlp.finding(tables, "objective")}
"""
