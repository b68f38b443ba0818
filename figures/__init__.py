"""The papers' figures and tables: one module each, made by ``python -m figures``.

To add a figure, write one module and add one line to :data:`FIGURES`. A module has

``TITLE : str``
    One line.
``NEEDS : str``
    Optional: a package beside those of the extra ``figures``. Where it is missing the figure is
    left out, unless it is asked for by name.
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

A module may also have

``report(tables) -> dict of str``
    Markdown by name: what README and the pages in ``docs`` show between the markers
    ``<!-- results: FIGURE NAME -->`` and ``<!-- end of results -->``. A ``headline`` is
    a line of README; ``figures headlines`` are those of all papers, ``benchmarks speed`` is of the
    benchmarks.
``published() -> dict of tables``
    Numbers read off the paper's own pictures, by names that start with ``published``: they are
    not ours and are not stored with the results.
"""

from __future__ import annotations

import importlib
from types import ModuleType

__all__ = ["FIGURES", "SCALES", "load"]

#: Modules of this package, in the order of the index page, with the seconds that each takes at
#: quick scale on two cores: only how much time is left is told from these.
FIGURES: dict[str, float] = {
    "kuru_fig1": 6.0,
    "kuru_fig2": 1.0,
    "kuru_fig3": 15.0,
    "kuru_fig4": 6.0,
    "kuru_fig3_published": 3.0,
    "kuru_fig3_ball": 6.0,
    "kuru_fig4_ball": 3.0,
    "kuru_horizons": 1.0,
    "kuru_bounds": 5.0,
    "kuru_allocation": 4.0,
    "kuru_real": 8.0,
    "lmi_map": 8.0,
    "clipping_table": 14.0,
    "clipping_epochs": 15.0,
    "clipping_privacy": 12.0,
    "clipping_synthetic": 4.0,
    "clipping_gradients": 8.0,
    "clipping_heatmaps": 8.0,
    "clipping_lazy": 3.0,
    "clipping_seconds": 10.0,
    "cnn_table": 20.0,
    "cnn_gradients": 10.0,
    "cnn_heatmaps": 20.0,
    "cnn_clipping": 20.0,
    "search_accuracy": 30.0,
    "search_hyperparameters": 10.0,
    "search_evaluations": 4.0,
    "search_mlp": 8.0,
    "search_cnn": 10.0,
    "sampling_schemes": 20.0,
    "second_order_tables": 6.0,
    "second_order_saddle": 3.0,
    "second_order_complexity": 6.0,
}

#: ``"quick"``: all figures in a few minutes; ``"paper"``: the papers' sizes.
SCALES = ("quick", "paper")


def load(name: str) -> ModuleType:
    """Return the module of a figure."""
    return importlib.import_module(f"{__name__}.{name}")
