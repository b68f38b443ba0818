"""PLD_accounting: Gaussian noise with random allocation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from dpanalysis.papers.claim import Effort, Evidence

from ..protocol import Worker
from ..registry import Package, register
from ._exact import allocations
from ._tools import asked, both_bounds

PACKAGE = Package(
    name="PLD_accounting",
    version="2.0",
    probe=Path(__file__).parents[1] / "probes" / "PLD_accounting.py",
    setting="Neighbours differ in one record that is there or not; it takes part in one of the "
    "steps of an epoch, drawn evenly.",
)


@register(
    PACKAGE,
    1,
    "docstring of `gaussian_allocation_epsilon_range`",
    "'Returns: a tuple (upper_bound, lower_bound)' of epsilon",
    configuration="one step or two, num_selected = num_epochs = 1, multipliers from 0.5 to 5, "
    "delta from 1e-7 to 0.01, epsilon_accuracy as by default",
    untested="more steps, several epochs, several selections, other noise",
    verdict="holds",
)
def bounds(worker: Worker, effort: Effort) -> Iterator[Evidence]:
    """Compare both bounds with the exact epsilon, an integral for two steps."""
    chosen = allocations(effort.random(), effort.cases(8, 100))
    upper, lower = asked(worker, "ranges", chosen).T
    yield from both_bounds(lower, upper, np.array([each.exact for each in chosen]))
