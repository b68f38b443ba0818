"""random-allocation: bounds of several kinds for Gaussian noise with random allocation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from dpanalysis.papers.claim import Effort, Evidence, printed

from ..protocol import Worker
from ..registry import Package, register
from ._exact import allocations
from ._tools import asked

PACKAGE = Package(
    name="random-allocation",
    version="1.0.5",
    probe=Path(__file__).parents[1] / "probes" / "random_allocation.py",
    requirements=("pandas",),  # imported, but not declared as a requirement
    setting="Neighbours differ in one record that is there or not (`Direction.BOTH`); it takes "
    "part in one of the steps of an epoch, drawn evenly.",
)


@register(
    PACKAGE,
    1,
    "docstrings of `allocation_epsilon_direct`, `_decomposition` and `_combined`",
    "'Compute epsilon for the ... allocation scheme'; combined: 'the minimum of the various "
    "allocation methods', so that the scheme is private for each of them",
    configuration="direct, decomposition and combined bounds; two steps, "
    "num_selected = num_epochs = 1, multipliers from 0.5 to 5, delta from 1e-7 to 0.01, "
    "`SchemeConfig(allocation_direct_alpha_orders=[2, ..., 60])`",
    untested="more steps, several epochs, analytic and recursive bounds (infinite here), RDP-DCO, "
    "Monte Carlo",
    verdict="holds",
)
def upper_bounds(worker: Worker, effort: Effort) -> Iterator[Evidence]:
    """Compare the bounds with the exact epsilon, an integral for two steps."""
    drawn = allocations(effort.random(), 2 * effort.cases(8, 60))
    chosen = [each for each in drawn if each.steps == 2]
    exact = np.array([each.exact for each in chosen])
    for bound in ("direct", "decomposition", "combined"):
        reported = asked(worker, "epsilons", chosen, bound=bound)
        loose = f"median of reported/exact is {np.median(reported / exact):.3f}"
        what, least = f"{bound}: least (reported - exact); {loose}", float(np.min(reported - exact))
        yield printed(what, least, ">=", 0.0, tolerance=1e-7, cases=len(chosen))


@register(
    PACKAGE,
    2,
    "docstring of `allocation_epsilon_lower_bound`",
    "'a lower bound on epsilon for the allocation scheme'",
    configuration="as for the upper bounds; to twice `SchemeConfig.epsilon_tolerance`, 1e-3, the "
    "precision of its search, which may round up: by that much the answer may exceed the exact one",
    untested="more steps, several epochs",
    verdict="holds",
)
def lower_bound(worker: Worker, effort: Effort) -> Iterator[Evidence]:
    """Compare the lower bound with the exact epsilon."""
    drawn = allocations(effort.random(), 2 * effort.cases(8, 60))
    chosen = [each for each in drawn if each.steps == 2]
    reported = asked(worker, "epsilons", chosen, bound="lower_bound")
    exact = np.array([each.exact for each in chosen])
    what = (
        f"least (exact - reported); median of reported/exact is {np.median(reported / exact):.3f}"
    )
    yield printed(
        what, float(np.min(exact - reported)), ">=", 0.0, tolerance=2e-3, cases=len(chosen)
    )
