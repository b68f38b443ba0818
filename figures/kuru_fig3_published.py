"""Fig. 3 of Kuru et al. (2022) with the noise of the authors' code, which is not private."""

from __future__ import annotations

from dpanalysis.experiments.records import Table

from ._kuru import Experiment

TITLE = "NOT PRIVATE: Fig. 3 with the published noise"

EXPERIMENT = Experiment(data="cube", batch=1.0, step_constants=(1.0,), published_noise=True)

settings = EXPERIMENT.settings
compute = EXPERIMENT.compute
draw = EXPERIMENT.draw
published = EXPERIMENT.published


def caption(tables: dict[str, Table], scale: str) -> str:
    """Return the caption."""
    return f"""
{EXPERIMENT.caption(tables, scale)}

A check of the reproduction: with the noise of the authors' code, which uses b_t as the standard
deviation instead of the scale, our curves should end where theirs do.

Finding: {finding(tables)}
"""


def finding(tables: dict[str, Table]) -> str:
    """Return whether our curves end where theirs do."""
    differences = EXPERIMENT.ends(tables)
    most, runs = abs(differences).max(), len(differences)
    verdict = "confirmed" if most < 0.2 else "refuted"
    return (
        f"the published errors, though not their privacy, are {verdict}: log10 of the {runs} final "
        f"gaps differs by {differences.mean():+.3f} on average and by {most:.3f} at most, while "
        "two means over 20 runs differ by some .1."
    )
