"""Fig. 3 of Kuru et al. (2022) with the noise of the authors' code, which is not private."""

from __future__ import annotations

import numpy as np

from dpanalysis.experiments.records import Table

from ._kuru import Experiment

TITLE = "NOT PRIVATE: Fig. 3 with the published noise"

EXPERIMENT = Experiment(
    data="cube", batch=1.0, step_constants=(1.0,), published_noise=True, quick_horizons=(100,)
)

settings = EXPERIMENT.settings
compute = EXPERIMENT.compute
draw = EXPERIMENT.draw
published = EXPERIMENT.published


def compared(tables: dict[str, Table]) -> str:
    """Return how far our final gaps lie from the published ones, in log10."""
    if "published" not in tables:
        return ""
    ours, theirs = tables["summary"], tables["published"]
    parts = []
    for algorithm, T, gap in zip(
        ours["algorithm"], ours["iterations"], ours["log10_final_gap"], strict=True
    ):
        rows = (theirs["algorithm"] == algorithm) & (theirs["iterations"] == T)
        last = theirs["log10_gap"][rows][np.argmax(theirs["t"][rows])]
        parts.append(f"{algorithm} {gap - last:+.2f} (T = {T})")
    return "Ours minus published, log10 of the final gap: " + ", ".join(parts) + "."


def caption(tables: dict[str, Table], scale: str) -> str:
    """Return the caption."""
    return f"""
{EXPERIMENT.caption(tables, scale)}

A check of the reproduction: with the noise that the authors' code draws, a standard deviation b_t
where the scale is meant, our curves should end where theirs (thin) end. {compared(tables)}
"""
