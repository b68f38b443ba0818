"""autodp: Renyi and exact accounting."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from dpanalysis.papers.claim import Effort, Evidence, printed

from ..protocol import Worker
from ..registry import Package, register
from ._exact import margins, settings
from ._tools import asked

PACKAGE = Package(
    name="autodp",
    version="0.2.3.1",
    probe=Path(__file__).parents[1] / "probes" / "autodp.py",
    setting="Neighbours are named by `neighboring` of a mechanism: add/remove here.",
)


@register(
    PACKAGE,
    1,
    "docstrings of `autodp_core.Mechanism.get_approxDP`, `transformer_zoo`",
    "`get_approxDP(delta)` of composed, sampled Gaussians is an upper bound",
    configuration="`GaussianMechanism`, `AmplificationBySampling(PoissonSampling=True)` with "
    "improved_bound_flag=True, `Composition`; one step that is sampled, or up to 200 that are not; "
    "random multipliers from 0.37 to 12, rates from 0.003 to 0.8, delta from 1e-9 to 0.01",
    untested="sampled and composed at once, analytical Fourier accounting, other mechanisms",
    verdict="holds",
)
def upper_bounds(worker: Worker, effort: Effort) -> Iterator[Evidence]:
    """Compare the reported epsilon with the exact one."""
    chosen = settings(effort.random(), effort.cases(20, 1000))
    reported = asked(worker, "epsilons", chosen)
    least, loose = margins(reported, chosen)
    what = f"least (reported - exact); median of reported/exact is {loose:.4f}"
    yield printed(what, least, ">=", 0.0, tolerance=1e-9, cases=len(chosen))


@register(
    PACKAGE,
    2,
    "docstrings of `mechanism_zoo.LaplaceMechanism` and `RandresponseMechanism`",
    "`get_approxDP(delta)` of Laplace noise and of randomized response is an upper bound",
    configuration="Laplace noise of scale 0.5, 1, 2 for sensitivity 1; responses that are true "
    "with probability 0.6, 0.75, 0.95; delta = 0, 1e-9, 1e-5, 0.01",
    untested="Renyi divergences of these mechanisms",
    verdict="holds",
)
def profiles(worker: Worker, effort: Effort) -> Iterator[Evidence]:
    """Compare with the closed forms of both privacy profiles."""
    deltas = [0.0, 1e-9, 1e-5, 0.01]

    def laplace(scale: float, delta: float) -> float:
        # delta(epsilon) = 1 - exp((epsilon - 1/scale)/2)
        return max(0.0, 1.0 / scale + 2.0 * math.log1p(-delta))

    def response(true: float, delta: float) -> float:
        # delta(epsilon) = p - e^epsilon (1 - p)
        return max(0.0, math.log((true - delta) / (1.0 - true)))

    for name, exact, parameters in (
        ("LaplaceMechanism", laplace, (0.5, 1.0, 2.0)),
        ("RandresponseMechanism", response, (0.6, 0.75, 0.95)),
    ):
        least = math.inf
        for parameter in parameters:
            reported = worker.call("profile", name=name, parameter=parameter, deltas=deltas)
            wanted = np.array([exact(parameter, delta) for delta in deltas])
            least = min(least, float(np.min(reported - wanted)))
        cases = len(parameters) * len(deltas)
        yield printed(
            f"{name}: least (reported - exact)", least, ">=", 0.0, tolerance=1e-9, cases=cases
        )
