"""The papers' figures and tables: one module each, made by ``python -m figures``.

To add a figure, write one module and add one line to :data:`FIGURES`. A module has

``TITLE : str``
    One line.
``NEEDS : str``
    Optional: a package that the extra ``figures`` does not install. Where it is missing, the
    figure is skipped unless it is requested by name.
``settings(scale) -> dict``
    The settings of the figure at ``"quick"`` or ``"paper"`` scale.
``compute(scale, *, jobs, cache, progress) -> dict of tables``
    Tables by name, each a dict of 1-d arrays of equal length. Long computations use
    :func:`dpanalysis.experiments.sweep` with ``folder=cache``, so that they can be resumed.
``draw(tables) -> matplotlib Figure``
    Uses the tables alone, so that a picture can always be redrawn from the files.
``caption(tables, scale) -> str``
    Paragraphs separated by blank lines: the item of the paper, the settings, the differences
    from the paper and their reasons. A paragraph that starts with ``Privacy:`` states for each
    run which notion of privacy holds, with which parameters, or that none holds.

A module may also have

``report(tables) -> dict of str``
    Markdown by name, shown by README and the pages in ``docs`` between the markers
    ``<!-- results: FIGURE NAME -->`` and ``<!-- end of results -->``. A ``headline`` is one line
    of README; ``figures headlines`` are those of all papers, ``benchmarks speed`` comes from the
    benchmarks.
``published() -> dict of tables``
    Numbers read off the paper's own pictures, under names that start with ``published``. They
    are not ours and are not stored with the results.
"""

from __future__ import annotations

import importlib
from types import ModuleType

__all__ = ["FIGURES", "SCALES", "load"]

#: Modules of this package in the order of the index page, with the seconds that each takes at
#: quick scale on two cores, which serve only to estimate the remaining time.
FIGURES: dict[str, float] = {
    "kuru_fig1": 2.3,
    "kuru_fig2": 0.5,
    "kuru_fig3": 14.2,
    "kuru_fig4": 1.4,
    "kuru_fig3_published": 2.2,
    "kuru_fig3_ball": 2.7,
    "kuru_fig4_ball": 0.9,
    "kuru_horizons": 0.5,
    "kuru_bounds": 4.2,
    "kuru_allocation": 1.3,
    "kuru_real": 0.5,
    "lmi_map": 2.9,
    "clipping_table": 4.9,
    "clipping_epochs": 1.9,
    "clipping_privacy": 3.9,
    "clipping_synthetic": 2.5,
    "clipping_gradients": 2.8,
    "clipping_heatmaps": 3.1,
    "clipping_lazy": 0.7,
    "clipping_seconds": 3.0,
    "cnn_table": 20.0,
    "cnn_gradients": 10.0,
    "cnn_heatmaps": 20.0,
    "cnn_clipping": 20.0,
    "search_accuracy": 5.3,
    "search_hyperparameters": 4.3,
    "search_evaluations": 1.5,
    "search_mlp": 1.6,
    "search_cnn": 10.0,
    "sampling_schemes": 5.2,
    "second_order_tables": 2.8,
    "second_order_saddle": 1.8,
    "second_order_complexity": 1.1,
}

#: ``"quick"``: all figures in a few minutes; ``"paper"``: the papers' sizes.
SCALES = ("quick", "paper")


def load(name: str) -> ModuleType:
    """Return the module of a figure."""
    return importlib.import_module(f"{__name__}.{name}")
