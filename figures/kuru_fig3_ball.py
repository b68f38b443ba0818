"""Fig. 3 of Kuru et al. (2022) on data in the L1 ball."""

from __future__ import annotations

from ._kuru import Experiment

TITLE = "Fig. 3 of Kuru et al. 2022 on rows from the L1 ball"

EXPERIMENT = Experiment(
    data="ball",
    batch=1.0,
    note="The paper's text allows any row in the L1 ball of radius 20; ours are uniform in it.",
)

settings = EXPERIMENT.settings
compute = EXPERIMENT.compute
draw = EXPERIMENT.draw
published = EXPERIMENT.published
caption = EXPERIMENT.caption
report = EXPERIMENT.report
