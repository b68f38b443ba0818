"""Test accuracy of the paper's CNN under three clipping rules: Table 2 of Xia et al. (2023)."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpanalysis import plotting
from dpanalysis.experiments import sweep
from dpanalysis.experiments.records import Table

from . import _clipping as runs
from . import _cnn
from ._data import made_of
from ._markdown import markdown
from .clipping_table import CLIP_NORM, DELTA, EPSILON, PUBLISHED, R

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "A CNN under three clipping rules at (3, 1e-5) (Xia et al. 2023, Table 2)"
NEEDS = "torch"

RULES = tuple(PUBLISHED)
MOMENTUM = 0.9
PUBLISHED_RUNS = 5
STEP_SIZES = {"quick": [0.5, 2.0], "paper": [0.25, 0.5, 1.0]}


def settings(scale: str) -> dict[str, Any]:
    """Return the settings of the table."""
    data = runs.data_name(scale)
    mnist = data == "mnist"
    return {
        "data": data,
        "n": 60_000 if mnist else 1438,
        "batch": 512 if mnist else 64,
        "epochs": 40 if mnist else 6,
        "clip_norm": CLIP_NORM,
        "r": R,
        "momentum": MOMENTUM,
        "step_sizes": STEP_SIZES[scale],
        "seeds": 5 if mnist else 2,
        "epsilon": EPSILON,
        "delta": DELTA,
        "relation": runs.RELATION,
    }


def noise_multiplier(chosen: dict[str, Any]) -> float:
    """Return the noise multiplier of a whole run, rounded up to four places.

    Rounding makes it equal on all machines, so that cells computed elsewhere are found.
    """
    steps = runs.steps_per_epoch(chosen["n"], chosen["batch"])
    least = runs.calibrate(1.0 / steps, chosen["epochs"] * steps, EPSILON, DELTA)
    return math.ceil(1e4 * least) / 1e4


def cells(chosen: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the parameters of every run, first all settings with the first seed."""
    noise = noise_multiplier(chosen)
    return [
        {
            **{key: chosen[key] for key in ("data", "clip_norm", "r", "momentum", "batch")},
            "epochs": chosen["epochs"],
            "rule": rule,
            "step_size": step_size,
            "noise_multiplier": noise,
            "seed": seed,
        }
        for seed in range(chosen["seeds"])
        for rule in RULES
        for step_size in chosen["step_sizes"]
    ]


def compute(scale: str, *, jobs: int, cache: Path, progress: bool) -> dict[str, Table]:
    """Return every run, the mean over seeds by step size, and the best of each rule."""
    chosen = settings(scale)
    run = partial(sweep, folder=cache, jobs=jobs, progress=progress, settings=chosen)
    records = run(_cnn.train_cell, cells(chosen))
    keys = ("rule", "step_size", "seed", "noise_multiplier")
    every = runs.stack(
        [
            {
                **{key: record.parameters[key] for key in keys},
                "test_accuracy": 100.0 * float(record.result["test_accuracy"][-1]),
                "training_accuracy": 100.0 * float(record.result["training_accuracy"][0]),
            }
            for record in records
        ]
    )
    means = runs.group(every, ("rule", "step_size"), ("test_accuracy", "training_accuracy"))
    best = []
    for rule in RULES:
        rows = runs.where(means, rule=rule)
        k = int(rows["test_accuracy"].argmax())
        best.append(
            {
                **{name: column[k].item() for name, column in rows.items()},
                "published": PUBLISHED[rule][0],
                "published_std": PUBLISHED[rule][1],
                "best_step_inside": 0 < k < len(rows["step_size"]) - 1,
            }
        )
    curves = [
        {"rule": p["rule"], "step_size": p["step_size"], "epoch": epoch, "test_accuracy": accuracy}
        for p, result in ((record.parameters, record.result) for record in records)
        for epoch, accuracy in zip(result["epoch"].tolist(), result["test_accuracy"].tolist())
    ]
    return {
        "best": runs.stack(best),
        "by_step_size": means,
        "runs": every,
        "curves": runs.group(
            runs.stack(curves), ("rule", "step_size", "epoch"), ("test_accuracy",)
        ),
    }


def draw(tables: dict[str, Table]) -> Figure:
    """Draw accuracy by step size, and by epoch at the best one, with the published values."""
    figure, axes = plotting.panels(1, 2, width=4.4, height=2.8)
    for rule in RULES:
        look: dict[str, Any] = {"color": runs.COLORS[rule], "label": runs.RULES[rule]}
        look |= {"marker": runs.MARKERS[rule], "markersize": 4.0}
        rows = runs.where(tables["by_step_size"], rule=rule)
        spread = runs.error_bars(rows, "test_accuracy")
        axes[0, 0].errorbar(rows["step_size"], rows["test_accuracy"], spread, capsize=2.5, **look)
        best = runs.where(tables["best"], rule=rule)
        curve = runs.where(tables["curves"], rule=rule, step_size=best["step_size"][0])
        axes[0, 1].plot(curve["epoch"][1:], 100.0 * curve["test_accuracy"][1:], markevery=5, **look)
        if len(curve["epoch"]) > 10:  # the paper's network, not the small one
            axes[0, 1].axhline(best["published"][0], color=runs.COLORS[rule], linestyle=":")
            marked = {"color": runs.COLORS[rule], "marker": runs.MARKERS[rule], "markersize": 4.0}
            axes[0, 1].plot(curve["epoch"][-1:] + 1.0, best["published"], **marked)
            axes[0, 1].set_ylim(95.0, 98.5)
    axes[0, 0].set(xscale="log", xlabel="step size", ylabel="test accuracy (%)")
    axes[0, 0].set_xticks(sorted(set(tables["by_step_size"]["step_size"])))
    axes[0, 0].xaxis.set_major_formatter("{x:g}")
    axes[0, 0].minorticks_off()
    axes[0, 1].set(xlabel="epoch", title="best step size; dotted, marked at the right: published")
    plotting.shared_legend(figure, axes)
    return figure


def compared(
    tables: dict[str, Table], step_size: float | None = None, base: str = "GC"
) -> tuple[float, float]:
    """Return the paired difference of PSAC from another rule, at the best steps or a given one."""

    def mine(rule: str) -> Table:
        step = step_size or runs.where(tables["best"], rule=rule)["step_size"][0]
        return runs.where(tables["runs"], rule=rule, step_size=step)

    return runs.paired(mine("PSAC"), mine(base))


def published_gain() -> tuple[float, float]:
    """Return the published gain of PSAC over GC and the variance of this difference of means."""
    (mean, std), (base, base_std) = PUBLISHED["PSAC"], PUBLISHED["GC"]
    return mean - base, (std**2 + base_std**2) / PUBLISHED_RUNS


def published_in_words() -> str:
    """Return the published gain of PSAC over GC and its 95 % interval."""
    half = runs.welch_half(PUBLISHED["PSAC"][1], PUBLISHED["GC"][1], PUBLISHED_RUNS)
    return f"{published_gain()[0]:.2f} ± {half:.2f}"


def is_apart(gain: tuple[float, float], seeds: int) -> bool:
    """Return whether a paired gain differs significantly from the published one.

    By Welch and Satterthwaite, with two variances and the degrees of freedom of each (the published
    deviations of both rules are equal).
    """
    from scipy import stats

    mean, variance = published_gain()
    own = (gain[1] / float(stats.t.ppf(0.975, seeds - 1))) ** 2
    degrees = (own + variance) ** 2 / (
        own**2 / (seeds - 1) + variance**2 / (2.0 * (PUBLISHED_RUNS - 1.0))
    )
    half = float(stats.t.ppf(0.975, degrees)) * math.sqrt(own + variance)
    return abs(mean - gain[0]) > half


def gain_in_words(tables: dict[str, Table]) -> str:
    """Return the gain of PSAC over GC, compared with the published gain."""
    steps = sorted(set(tables["runs"]["step_size"].tolist()))
    seeds = len(set(tables["runs"]["seed"].tolist()))
    at_each = {step: compared(tables, step) for step in steps}
    best = {runs.where(tables["best"], rule=rule)["step_size"][0] for rule in ("PSAC", "GC")}
    listed = ", ".join(
        f"{runs.interval(*gain)} at {step:g}{' (best of both)' * (best == {step})}"
        for step, gain in at_each.items()
    )
    first = ""
    if len(best) > 1:
        first = f" {runs.interval(*compared(tables))} at the best of each,"
    apart, within = (
        ", ".join(f"{step:g}" for step, gain in at_each.items() if is_apart(gain, seeds) == which)
        for which in (True, False)
    )
    said = [f"at {apart}"] * bool(apart) + [f"not at {within}"] * bool(within)
    return (
        f"The gain of PSAC over GC by step size (points, 95 % interval over shared seeds) is"
        f"{first} {listed}; the published {published_in_words()} differs from it beyond chance "
        f"{', '.join(said)}"
    )


def variance_in_words(tables: dict[str, Table]) -> str:
    """Return the deviations of PSAC and Auto-S, compared with those of the paper."""
    ours, theirs = (runs.where(tables["best"], rule=rule) for rule in ("PSAC", "Auto-S"))
    printed = {rule: f"{std:.2f}" for rule, (_, std) in PUBLISHED.items()}
    return (
        f"Its lower variance is open: standard deviations over {ours['runs'][0]} seeds are "
        f"{ours['test_accuracy_std'][0]:.2f} against {theirs['test_accuracy_std'][0]:.2f} for "
        f"Auto-S; on MNIST the paper itself prints {printed['PSAC']} and {printed['Auto-S']}, and "
        "its claim is about all its data."
    )


def report(tables: dict[str, Table]) -> dict[str, str]:
    """Return the accuracies with the published ones, and their paired differences."""
    best = tables["best"]
    columns = ("rule", "test_accuracy", "test_accuracy_std", "runs", "step_size")
    rows = list(zip(*(best[name].tolist() for name in columns), strict=True))
    ours = [f"{runs.with_spread(mean, std, n)} ({step:g})" for _, mean, std, n, step in rows]
    printed = [f"{mean:.2f} ± {std:.2f}" for mean, std in PUBLISHED.values()]
    called = {"GC": "by the norm (GC)", "Auto-S": "Auto-S", "PSAC": "the paper's PSAC"}
    means = ", ".join(f"{called[rule]} {mean:.2f}" for rule, mean, *_ in rows)
    tried = len(set(tables["by_step_size"]["step_size"].tolist()))
    return {
        "accuracy": markdown(
            ["CNN", *(runs.RULES[rule] for rule in RULES)],
            [["ours, percent (best step)", *ours], ["published", *printed]],
        ),
        "differences": f"{gain_in_words(tables)}.",
        "variance": variance_in_words(tables),
        "headline": (
            "- **Clipping sample by sample** (Xia et al. 2023), a CNN on MNIST at epsilon "
            f"{EPSILON:g}, {rows[0][3]} seeds, percent: {means}, each at the best of {tried} step "
            "sizes by test accuracy, a choice not covered by the budget. The gain of PSAC over GC: "
            f"{runs.interval(*compared(tables))} points (published: {published_in_words()})."
        ),
    }


def caption(tables: dict[str, Table], scale: str) -> str:
    """Return the caption."""
    chosen, best = settings(scale), tables["best"]
    data = made_of(chosen)
    noise = noise_multiplier(chosen)
    steps = runs.steps_per_epoch(chosen["n"], chosen["batch"])
    rdp, pld = runs.epsilons(1.0 / steps, noise, chosen["epochs"] * steps, DELTA)
    listed = ", ".join(
        f"{rule} {runs.with_spread(mean, std, count)} at {step:g} "
        f"(published {printed:.2f} ± {around:.2f})"
        for rule, mean, std, count, step, printed, around in zip(
            *(
                best[name].tolist()
                for name in (
                    "rule",
                    "test_accuracy",
                    "test_accuracy_std",
                    "runs",
                    "step_size",
                    "published",
                    "published_std",
                )
            ),
            strict=True,
        )
    )
    grid = runs.grid_sentence(best["best_step_inside"].tolist(), best["rule"].tolist())
    small = ""
    if chosen["data"] == "digits":
        small = (
            "The data are scikit-learn's 1,797 digits of 8 x 8 pixels and the network is a smaller "
            "one (MNIST with --scale paper and $DPANALYSIS_DATA). "
        )
    return f"""
Test accuracy on {data} in percent at the best step size by test accuracy,
{runs.runs_in_words(chosen["seeds"])}: {listed}. C = r = {CLIP_NORM:g}, momentum {MOMENTUM:g},
Poisson batches of
{chosen["batch"]} on average, {chosen["epochs"]} epochs, pixels in [0, 1], no augmentation; step
sizes {", ".join(f"{step:g}" for step in chosen["step_sizes"])}. {grid}

Privacy: every run is ({EPSILON:g}, {DELTA:g})-differentially private under add-or-remove-one with
n public, at sigma = {noise:.4f}: epsilon {pld:.4f} by PLD, {rdp:.4f} by RDP. The
guarantee holds for one run: choosing the best step size on the test part, as here and, since its
Table 2 has the best cells of its Fig. 4, in the paper, is not covered, and neither are the
accuracies.

Differences from the paper: {small}Batch size, epochs, momentum and step sizes are not in its text;
they follow Tramer and Boneh (2021), whom it cites. Batches are drawn by Poisson sampling, which its
Theorem 1 accounts for; its Algorithm 1 samples with replacement.

Finding: {_finding(tables)}
"""


def _finding(tables: dict[str, Table]) -> str:
    """Return the verdict on "outperforms or matches", from paired differences."""
    if tables["best"]["runs"].min() < 2 or len(set(tables["runs"]["step_size"].tolist())) < 3:
        return "open, since a few runs of a small network cannot decide it for the paper's."
    gain, half = compared(tables)
    if gain > half:
        said = "that PSAC outperforms clipping by the norm is confirmed"
    elif gain < -half:
        said = "that PSAC outperforms or matches clipping by the norm is refuted"
    else:
        said = (
            "that PSAC matches clipping by the norm is confirmed; that it outperforms it is not "
            "(open for training other than ours)"
        )
    (best, std), (base, base_std) = PUBLISHED["PSAC"], PUBLISHED["Auto-S"]
    over = runs.interval(*compared(tables, base="Auto-S"))
    return (
        f"{said}. {gain_in_words(tables)}. Over Auto-S it gains {over} at the best of each "
        f"(published: {best - base:.2f} ± {runs.welch_half(std, base_std, PUBLISHED_RUNS):.2f})."
    )
