"""The papers' figures and tables: one module each, made by ``python -m figures``.

To add a figure, write one module and add one line to :data:`FIGURES`. A module has

``TITLE : str``
    One line.
``settings(scale) -> dict``
    What the figure is made with, at ``"quick"`` or ``"paper"`` scale.
``compute(scale, *, jobs, cache, progress) -> dict of tables``
    Tables by name, each a dict of equally long 1-d arrays. Long work goes through
    :func:`dpanalysis.experiments.sweep` with ``folder=cache``, so that it is resumable.
``draw(tables) -> matplotlib Figure``
    From the tables alone, so that a picture can always be made again from the files.
``caption(tables, scale) -> str``
    Paragraphs split by blank lines: the paper's item, the settings, what differs from the
    paper and why. A paragraph that starts with ``Privacy:`` states for each run which notion
    of privacy holds, with which parameters, or that none does.
"""

from __future__ import annotations

import importlib
from types import ModuleType

__all__ = ["FIGURES", "SCALES", "load"]

#: Modules of this package, in the order of the index page.
FIGURES: list[str] = [
    "kuru_fig1",
    "kuru_fig2",
    "kuru_fig3",
    "kuru_fig4",
    "kuru_fig3_published",
    "kuru_fig3_ball",
    "kuru_fig4_ball",
    "kuru_horizons",
    "kuru_bounds",
    "kuru_real",
    "lmi_map",
    "clipping_table",
    "clipping_epochs",
    "clipping_privacy",
    "clipping_synthetic",
    "clipping_gradients",
    "clipping_heatmaps",
    "clipping_lazy",
    "clipping_seconds",
    "search_accuracy",
    "search_hyperparameters",
    "search_evaluations",
    "search_mlp",
    "second_order_tables",
    "second_order_saddle",
    "second_order_complexity",
]

#: ``"quick"``: all figures in about two minutes; ``"paper"``: the papers' sizes.
SCALES = ("quick", "paper")


def load(name: str) -> ModuleType:
    """Return the module of a figure."""
    return importlib.import_module(f"{__name__}.{name}")
