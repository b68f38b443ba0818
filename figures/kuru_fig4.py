"""Kuru et al. (2022), Fig. 4: six algorithms, batches of a hundredth of the data."""

from __future__ import annotations

from ._kuru import Experiment

TITLE = "Six private algorithms, m = n/100 (Kuru et al. 2022, Fig. 4)"

EXPERIMENT = Experiment(
    data="cube",
    batch=0.01,
    note="Where noise dominates, b_t as the scale, not the deviation, adds log10(2) = .30.",
)

settings = EXPERIMENT.settings
compute = EXPERIMENT.compute
draw = EXPERIMENT.draw
published = EXPERIMENT.published
caption = EXPERIMENT.caption
report = EXPERIMENT.report
