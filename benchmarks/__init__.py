"""Speed and memory compared with peers, as ratios of medians of one run: ``python -m benchmarks``.

Each module has ``run(quick)``, which yields :class:`benchmarks.table.Row`; the targets of the rows
are in :mod:`benchmarks.targets`. Never part of the tests.
"""

import os

ENVIRONMENT = dict(os.environ)
"""The value when the benchmarks started, which peers use."""

BENCHMARKS = [
    "kernels",
    "narrow",
    "choices",
    "between",
    "noise",
    "networks",
    "whole",
    "lmi",
    "allocation",
    "accounting",
    "audit",
    "calls",
    "startup",
    "footprint",
    "memory",
    "scale",
    "growth",
    "figures",
    "gpu",
]
