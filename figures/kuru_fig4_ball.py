"""Fig. 4 of Kuru et al. (2022) on data in the L1 ball."""

from __future__ import annotations

from ._kuru import Experiment

TITLE = "Fig. 4 of Kuru et al. 2022 on rows from the L1 ball"

EXPERIMENT = Experiment(
    data="ball",
    batch=0.01,
    note="The text of the paper allows every row in the L1 ball of radius 20; this is that law.",
)

settings = EXPERIMENT.settings
compute = EXPERIMENT.compute
draw = EXPERIMENT.draw
published = EXPERIMENT.published
caption = EXPERIMENT.caption
report = EXPERIMENT.report
