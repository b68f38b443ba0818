"""Speed and memory beside peers, as ratios of medians within one run: ``python -m benchmarks``.

Each module has ``run(quick)``, which yields :class:`benchmarks.table.Row`; what is asked of a row
is in :mod:`benchmarks.targets`. Never part of the tests.
"""

import os

ENVIRONMENT = dict(os.environ)
"""As it was when the benchmarks began: the peers' own."""

BENCHMARKS = [
    "kernels",
    "narrow",
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
