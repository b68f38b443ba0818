"""prv-accountant: privacy random variables on a grid."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from dpanalysis.papers.claim import Effort, Evidence

from ..protocol import Worker
from ..registry import Package, register
from ._exact import settings
from ._tools import asked, both_bounds

PACKAGE = Package(
    name="prv-accountant",
    version="0.2.0",
    probe=Path(__file__).parents[1] / "probes" / "prv_accountant.py",
    setting="Neighbours differ in one record that is there or not; batches are Poisson samples.",
)
ERROR = 0.05


@register(
    PACKAGE,
    1,
    "docstring of `PRVAccountant.compute_epsilon`",
    "'Return lower bound for epsilon, estimate for epsilon and upper bound for epsilon'",
    configuration="`PoissonSubsampledGaussianMechanism`, eps_error = 0.05, delta_error = delta/1000"
    "; one step that is sampled, or up to 200 that are not; random multipliers from 0.37 to 12, "
    "rates from 0.003 to 0.8, delta from 1e-9 to 0.01",
    untested="sampled and composed at once, other mechanisms",
    verdict="holds",
)
def bounds(worker: Worker, effort: Effort) -> Iterator[Evidence]:
    """Compare both bounds with the exact epsilon."""
    chosen = settings(effort.random(), effort.cases(12, 200))
    lower, _, upper = asked(worker, "ranges", chosen, error=ERROR).T
    yield from both_bounds(lower, upper, np.array([each.exact for each in chosen]))
