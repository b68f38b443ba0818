"""How a budget becomes noise: one scale an iteration, fixed before the data are touched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from .. import privacy
from ..privacy.events import Event, Repeated
from ..privacy.oracle import NORM_ORDER, PublicFacts, gradient_event, sampled_event
from ..privacy.relations import Budget
from ..privacy.sampling import Full, Sampling

__all__ = ["NoiseRequest", "choose_horizon", "noise_scales", "planned_events"]

Weights = Callable[[int], tuple[float, np.ndarray]]

# Horizons tried where each one costs a numerical calibration: a grid, ratio about 1.2.
CALIBRATED_HORIZONS = 40


@dataclass(frozen=True)
class NoiseRequest:
    """What decides the noise of a run besides the number of iterations."""

    facts: PublicFacts
    budget: Budget
    sampling: Sampling
    mechanism: str
    clipping: Any
    optimal: bool
    accountant: str

    @property
    def record_sensitivity(self) -> float:
        """How far one record moves the sum of gradients, in the mechanism's norm."""
        return self.facts.record_sensitivity(NORM_ORDER[self.mechanism], self.clipping)

    @property
    def pure(self) -> bool:
        """Whether the budget is pure epsilon, which has closed forms."""
        budget = self.budget
        return budget.epsilon is not None and budget.delta == 0.0 and self.mechanism == "laplace"


def planned_events(
    facts: PublicFacts,
    sampling: Sampling,
    mechanism: str,
    scales: np.ndarray,
    clipping: Any = None,
) -> list[Event]:
    """Return the events of a run with these ``scales`` (T,), equal neighbours merged."""
    events: list[Event] = []
    for scale, group in groupby(scales.tolist()):
        event = gradient_event(facts, sampling, mechanism, scale, clipping)
        count = sum(1 for _ in group)
        event = sampled_event(facts, sampling, [event])
        events.append(event if count == 1 else Repeated(event, count))
    return events


def noise_scales(request: NoiseRequest, weights: Weights, iterations: int) -> np.ndarray:
    """Divide the budget over ``iterations``: Laplace scales or Gaussian deviations, (T,).

    A pure budget is divided in closed form or by the exact dual search of
    :func:`dpanalysis.theory.allocate_epsilon`. Any other budget fixes the shape of the
    schedule (a_t^{-1/4}, which is optimal where the cost of a release is proportional to
    1/variance, as for zCDP) and calibrates its size with the accountant.
    """
    importance = weights(iterations)[1] if request.optimal else np.ones(iterations)
    if request.pure:
        return _pure_scales(request, importance)
    calibrated = _calibrated_scales(request, importance**-0.25)
    if request.mechanism == "gaussian" or request.budget.epsilon is None:
        return calibrated
    # Pure epsilon is valid at any delta and can win over a few iterations.
    pure = _pure_scales(request, importance)
    return min((pure, calibrated), key=lambda scales: float(importance @ scales**2))


def _pure_scales(request: NoiseRequest, importance: np.ndarray) -> np.ndarray:
    from ..theory import allocate_epsilon, laplace_scales

    n = request.facts.n
    m = n if isinstance(request.sampling, Full) else request.sampling.expected_size(n)
    assert request.budget.epsilon is not None
    if request.optimal:
        epsilons = allocate_epsilon(importance, request.budget.epsilon, n, m)
    else:
        epsilons = np.full(len(importance), request.budget.epsilon / len(importance))
    return laplace_scales(epsilons, request.record_sensitivity, n, m)


def _calibrated_scales(request: NoiseRequest, shape: np.ndarray) -> np.ndarray:
    facts, sampling = request.facts, request.sampling
    unit = request.record_sensitivity / sampling.expected_size(facts.n)
    shape = shape / shape.min()

    def make_events(multiplier: float) -> Sequence[Event]:
        scales = multiplier * unit * shape
        return planned_events(facts, sampling, request.mechanism, scales, request.clipping)

    multiplier = privacy.calibrate(
        make_events, request.budget, bracket=(1e-3, 1e7), accountant=request.accountant
    )
    return multiplier * unit * shape


def choose_horizon(
    request: NoiseRequest, weights: Weights, max_iterations: int, initial_gap: float
) -> int:
    """Return the T' <= ``max_iterations`` with the least error bound (Remark 4.1).

    Every T' is tried where the noise has a closed form; a grid of horizons otherwise.
    """
    if request.pure:
        horizons = range(1, max_iterations + 1)
    else:
        grid = np.geomspace(1, max_iterations, CALIBRATED_HORIZONS).round().astype(int)
        horizons = np.unique(grid).tolist()
    variance = subsampling_variance(request)

    def bound(iterations: int) -> float:
        a0, a = weights(iterations)
        scales = noise_scales(request, weights, iterations)
        per_coordinate = scales**2 * (2.0 if request.mechanism == "laplace" else 1.0)
        return a0 * initial_gap + 0.5 * float(a @ (request.facts.d * per_coordinate + variance))

    return min(horizons, key=bound)


def subsampling_variance(request: NoiseRequest) -> float:
    """Bound E||mean over a batch - mean over all||^2 from the bound G on one gradient.

    Without replacement it is (G^2/m) (n-m)/(n-1), (3.13) of Kuru et al. with S = 2G; a
    Poisson batch divided by its expected size q n has ((1-q)/q n) G^2.
    """
    facts, sampling = request.facts, request.sampling
    if isinstance(sampling, Full) or facts.n == 1:
        return 0.0
    factor = 2.0 if facts.relation == privacy.relations.REPLACE_ONE else 1.0
    bound = request.facts.record_sensitivity(2, request.clipping) / factor
    size = sampling.expected_size(facts.n)
    rate = size / facts.n
    shrink = (1.0 - rate) * (facts.n / (facts.n - 1) if sampling_is_exact(sampling) else 1.0)
    return bound**2 / size * shrink


def sampling_is_exact(sampling: Sampling) -> bool:
    """Whether the batch has the same size every time (without replacement)."""
    return isinstance(sampling, privacy.sampling.WithoutReplacement)
