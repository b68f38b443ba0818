"""Running methods (:func:`minimize`), grids of runs (:func:`sweep`), and their tables.

Examples
--------
>>> from dpanalysis import experiments
>>> sorted(experiments.__all__)[:3]
['Record', 'Result', 'SweepError']
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .records import load_table, save_table, tabulate
from .sweep import Record, SweepError, sweep  # the function: it hides the module of its name

if TYPE_CHECKING:
    from .run import Result, minimize

__all__ = [
    "Record",
    "Result",
    "SweepError",
    "load_table",
    "minimize",
    "save_table",
    "sweep",
    "tabulate",
]


def __getattr__(name: str) -> Any:
    if name in ("Result", "minimize"):  # they bring methods, privacy and kernels along
        return getattr(importlib.import_module(f"{__name__}.run"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
