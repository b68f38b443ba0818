"""Kuru et al. (2022), Fig. 3: six algorithms, full batches."""

from __future__ import annotations

from ._kuru import Experiment

TITLE = "Six private algorithms, full batches (Kuru et al. 2022, Fig. 3)"

EXPERIMENT = Experiment(
    data="cube",
    batch=1.0,
    note="The thin curves are the authors' own, with their noise, on another draw of the labels.",
)

settings = EXPERIMENT.settings
compute = EXPERIMENT.compute
draw = EXPERIMENT.draw
caption = EXPERIMENT.caption
