"""Kuru et al. (2022), Fig. 3: six algorithms, full batches."""

from __future__ import annotations

from ._kuru import Experiment

TITLE = "Six private algorithms, full batches (Kuru et al. 2022, Fig. 3)"

EXPERIMENT = Experiment(
    data="cube",
    batch=1.0,
    note="The thin dotted curves, in the colour of their T, are the authors' own, with their "
    "noise, on another draw of the labels: they are at hand for c = 1 and m = n alone.",
)

settings = EXPERIMENT.settings
compute = EXPERIMENT.compute
draw = EXPERIMENT.draw
published = EXPERIMENT.published
caption = EXPERIMENT.caption
report = EXPERIMENT.report
