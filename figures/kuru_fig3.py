"""Kuru et al. (2022), Fig. 3: six algorithms, full batches."""

from __future__ import annotations

from ._kuru import Experiment

TITLE = "Six private algorithms, full batches (Kuru et al. 2022, Fig. 3)"

EXPERIMENT = Experiment(
    data="cube",
    batch=1.0,
    note="Where noise dominates, b_t as the scale, not the deviation, adds log10(2) = .30.",
)

settings = EXPERIMENT.settings
compute = EXPERIMENT.compute
draw = EXPERIMENT.draw
published = EXPERIMENT.published
caption = EXPERIMENT.caption
report = EXPERIMENT.report
