"""The comparison as tables and a picture."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from figures._markdown import markdown

from .cells import ADDED, EPSILONS, GRID, TUNED

FIELDS = ("data", "method", "epsilon", "delta", "seed", "accuracy", "auc", "seconds")
BEST = "diffprivlib, best of a grid"  # by its test accuracy, which nothing pays for
SUMMARY = (
    "data", "method", "epsilon", "delta", "seeds", "accuracy", "accuracy_std", "auc", "auc_std",
    "seconds",
)  # fmt: skip


def write(path: Path, fields: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Write a CSV file, numbers with six digits."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fields, extrasaction="ignore")
        writer.writeheader()
        for row in rows:
            writer.writerow({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()})


def summary(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return means and standard deviations over the seeds, and the best of the rival's grid."""
    found: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        key = row["data"], row["method"], row["epsilon"], row["delta"]
        found.setdefault(key, []).append(row)
    table = [_mean(key, group) for key, group in found.items()]
    grid = {"diffprivlib", *(f"diffprivlib C={C:g}" for C in GRID)}
    for data in dict.fromkeys(row["data"] for row in rows):
        for epsilon in EPSILONS:
            tried = [
                row
                for row in table
                if (row["data"], row["epsilon"]) == (data, epsilon) and row["method"] in grid
            ]
            if len(tried) == len(grid):
                best = max(tried, key=lambda row: row["accuracy"])
                table.append({**best, "method": BEST})
    return [row for row in table if "C=" not in row["method"]]


def _mean(key: tuple[Any, ...], group: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    row: dict[str, Any] = dict(zip(("data", "method", "epsilon", "delta"), key))
    row["seeds"] = len(group)
    for name in ("accuracy", "auc"):
        values = [each[name] for each in group]
        row[name], row[f"{name}_std"] = float(np.mean(values)), float(np.std(values))
    row["seconds"] = float(np.median([each["seconds"] for each in group]))
    return row


def by_epsilon(
    table: Iterable[Mapping[str, Any]],
    epsilons: Sequence[float],
    shown: Callable[[Mapping[str, Any]], str],
) -> str:
    """Return a Markdown table of what is ``shown`` of each row, a column for each epsilon."""
    rows: dict[tuple[str, str, str], dict[float, str]] = {}
    for row in table:
        cells = rows.setdefault((row["data"], row["method"], row["delta"]), {})
        cells[row["epsilon"]] = shown(row)
    lines = []
    for key, cells in rows.items():
        if np.inf in cells:  # without privacy
            cells = dict.fromkeys(epsilons, cells[np.inf])
        lines.append([*key, *(cells.get(epsilon, "") for epsilon in epsilons)])
    return markdown(["data", "method", "delta", *(f"epsilon {e:g}" for e in epsilons)], lines)


def score(row: Mapping[str, Any]) -> str:
    """Return the accuracy of a row, and the area under the curve."""
    return f"{row['accuracy']:.3f} ± {row['accuracy_std']:.3f} ({row['auc']:.3f})"


def losses(table: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a line for every place where a rival beats the default, by accuracy."""
    ours = {
        (row["data"], row["epsilon"], row["delta"]): row["accuracy"]
        for row in table
        if row["method"] == "dpanalysis"
    }
    found = []
    for row in table:
        mine = ours.get((row["data"], row["epsilon"], row["delta"]))
        if row["method"] in (ADDED, TUNED):
            continue
        if mine is not None and row["accuracy"] > mine:
            found.append(
                f"{row['data']}, epsilon {row['epsilon']:g}, {row['delta']}: {row['method']} wins "
                f"by {row['accuracy'] - mine:.4f}"
            )
    return found


def picture(table: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw accuracy over epsilon, one panel a data set."""
    from dpanalysis import plotting

    names = list(dict.fromkeys(row["data"] for row in table))
    looks = dict(zip(
        ("dpanalysis", ADDED, TUNED, "diffprivlib", BEST, "Opacus DP-SGD"),
        ("blue", "sky", "green", "vermillion", "orange", "purple"),
    ))  # fmt: skip
    with plotting.style():
        columns = min(len(names), 3)
        rows = -(-len(names) // columns)
        figure, axes = plotting.panels(rows, columns, width=plotting.PAGE / columns)
        for spare in axes.flat[len(names) :]:
            spare.remove()
        for axis, name in zip(axes.flat, names):
            for method, color in looks.items():
                for delta, dashes in (("pure", "-"), ("approximate", "--")):
                    part = sorted(
                        (row["epsilon"], row["accuracy"], row["accuracy_std"])
                        for row in table
                        if (row["data"], row["method"], row["delta"]) == (name, method, delta)
                    )
                    if part:
                        x, y, spread = zip(*part)
                        axis.errorbar(
                            x, y, spread, color=plotting.PALETTE[color], linestyle=dashes,
                            label=f"{method}, {delta}", capsize=2,
                        )  # fmt: skip
            for row in table:
                if (row["data"], row["delta"]) == (name, "none"):
                    axis.axhline(
                        row["accuracy"], color=plotting.PALETTE["black"], linestyle=":",
                        label="scikit-learn, not private",
                    )  # fmt: skip
            axis.set_xscale("log")
            axis.set_title(name)
            axis.set_xlabel("epsilon")
        for first in axes[:, 0]:
            first.set_ylabel("test accuracy")
        plotting.shared_legend(figure, axes, columns=2)
        figure.savefig(path)
