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
    "kuru_fig1": 10.0,
    "kuru_fig2": 1.0,
    "kuru_fig3": 16.0,
    "kuru_fig4": 6.0,
    "kuru_fig3_published": 7.0,
    "kuru_fig3_ball": 13.0,
    "kuru_fig4_ball": 5.0,
    "kuru_horizons": 1.0,
    "kuru_bounds": 13.0,
    "kuru_allocation": 2.0,
    "kuru_real": 2.0,
    "lmi_map": 6.0,
    "clipping_table": 16.0,
    "clipping_epochs": 14.0,
    "clipping_privacy": 14.0,
    "clipping_synthetic": 6.0,
    "clipping_gradients": 8.0,
    "clipping_heatmaps": 9.0,
    "clipping_lazy": 2.0,
    "clipping_seconds": 12.0,
    "cnn_table": 20.0,
    "cnn_gradients": 10.0,
    "cnn_heatmaps": 20.0,
    "cnn_clipping": 20.0,
    "search_accuracy": 17.0,
    "search_hyperparameters": 11.0,
    "search_evaluations": 4.0,
    "search_mlp": 6.0,
    "search_cnn": 10.0,
    "sampling_schemes": 12.0,
    "second_order_tables": 7.0,
    "second_order_saddle": 6.0,
    "second_order_complexity": 2.0,
}

#: ``"quick"``: all figures in a few minutes; ``"paper"``: the papers' sizes.
SCALES = ("quick", "paper")


def load(name: str) -> ModuleType:
    """Return the module of a figure."""
    return importlib.import_module(f"{__name__}.{name}")
