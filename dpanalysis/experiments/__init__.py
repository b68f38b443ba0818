"""Run methods (:func:`minimize`) and grids of runs (:func:`sweep`), and tabulate the results."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import on_first_use
from .records import load_table, save_table, tabulate
from .sweep import (  # the function, which hides the module
    Record,
    SweepError,
    SweepStopped,
    sweep,
    sweeping,
)

if TYPE_CHECKING:
    from .result import Result
    from .run import minimize

__all__ = [
    "Record",
    "Result",
    "SweepError",
    "SweepStopped",
    "load_table",
    "minimize",
    "save_table",
    "sweep",
    "sweeping",
    "tabulate",
]

# Lazily: they import methods, privacy and kernels.
__getattr__, __dir__ = on_first_use(__name__, {"result": "Result", "run": "minimize"})
