"""How a budget becomes noise: one scale an iteration, fixed before the data are touched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import privacy
from ..privacy.accountant import fits
from ..privacy.events import Event, Repeated
from ..privacy.oracle import NORM_ORDER, PublicFacts, gradient_event, sampled_event
from ..privacy.relations import REPLACE_ONE, Budget
from ..privacy.sampling import Full, Sampling, WithoutReplacement

if TYPE_CHECKING:
    from ..theory import ErrorRecursion

__all__ = ["NoiseRequest", "choose_horizon", "noise_scales", "planned_events"]

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


def noise_scales(
    request: NoiseRequest, recursion: ErrorRecursion | None, iterations: int
) -> np.ndarray:
    """Divide the budget over ``iterations``: Laplace scales or Gaussian deviations, (T,).

    A pure budget is divided in closed form or by the exact dual search of
    :func:`dpanalysis.theory.allocate_epsilon`. Any other budget fixes the shape of the
    schedule (a_t^{-1/4}, which is optimal where the cost of a release is proportional to
    1/variance, as for zCDP) and calibrates its size with the accountant.
    """
    importance = np.ones(iterations)
    if request.optimal and recursion is not None:
        importance = recursion.prefix(iterations).weights()[1]
    if request.pure:
        return _pure_scales(request, importance)
    budget = request.budget
    if request.mechanism == "gaussian" and budget.epsilon is not None and budget.delta == 0.0:
        raise ValueError(f"mechanism='gaussian' needs a budget with delta > 0, got {budget!r}")
    calibrated = _calibrated_scales(request, importance**-0.25)
    if request.mechanism == "gaussian" or request.budget.epsilon is None:
        return calibrated
    # Pure epsilon is valid at any delta and can win over a few iterations.
    pure = _pure_scales(request, importance)
    return min((pure, calibrated), key=lambda scales: float(importance @ scales**2))


def _pure_scales(request: NoiseRequest, importance: np.ndarray) -> np.ndarray:
    from ..theory import allocate_epsilon, laplace_scales

    n = request.facts.n
    m = request.sampling.expected_size(n)
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

    # A noise of one sensitivity is the natural place to start looking from.
    bracket = _bracket(lambda c: fits(make_events(c), request.budget, request.accountant))
    multiplier = privacy.calibrate(
        make_events, request.budget, bracket, accountant=request.accountant
    )
    return multiplier * unit * shape


def _bracket(fit: Callable[[float], bool], ratio: float = 4.0) -> tuple[float, float]:
    """Return (low, high) around the smallest multiplier that fits; a tiny low may fit too."""
    high = 1.0
    if fit(high):
        while high > 1e-6 and fit(high / ratio):
            high /= ratio
    else:
        while high < 1e12 and not fit(high):
            high *= ratio
    return high / ratio, high


def choose_horizon(request: NoiseRequest, recursion: ErrorRecursion, initial_gap: float) -> int:
    """Return the T' with the least error bound (Remark 4.1), at most that of ``recursion``.

    Every T' is tried where the budget is pure; a grid of horizons where each one costs a
    numerical calibration.
    """
    facts, variance = request.facts, subsampling_variance(request)
    if request.pure:
        from ..theory import horizon_bounds

        assert request.budget.epsilon is not None
        bounds = horizon_bounds(
            recursion,
            initial_gap,
            facts.d,
            request.record_sensitivity,
            facts.n,
            request.budget.epsilon,
            m=request.sampling.expected_size(facts.n),
            noise="optimal" if request.optimal else "uniform",
            variance=variance,
        )
        return int(bounds.argmin()) + 1
    grid = np.geomspace(1, len(recursion.factors), CALIBRATED_HORIZONS).round().astype(int)

    def bound(iterations: int) -> float:
        a0, a = recursion.prefix(iterations).weights()
        scales = noise_scales(request, recursion, iterations)
        per_coordinate = scales**2 * (2.0 if request.mechanism == "laplace" else 1.0)
        return a0 * initial_gap + 0.5 * float(a @ (facts.d * per_coordinate + variance))

    return min(np.unique(grid).tolist(), key=bound)


def subsampling_variance(request: NoiseRequest) -> float:
    """Bound E||mean over a batch - mean over all||^2 from the bound G on one gradient.

    Without replacement it is (G^2/m) (n-m)/(n-1), (3.13) of Kuru et al. with S = 2G; a
    Poisson batch divided by its expected size q n has ((1-q)/q n) G^2.
    """
    facts, sampling = request.facts, request.sampling
    if isinstance(sampling, Full) or facts.n == 1:
        return 0.0
    factor = 2.0 if facts.relation == REPLACE_ONE else 1.0
    bound = request.facts.record_sensitivity(2, request.clipping) / factor
    size = sampling.expected_size(facts.n)
    rate = size / facts.n
    exact = isinstance(sampling, WithoutReplacement)
    return bound**2 / size * (1.0 - rate) * (facts.n / (facts.n - 1) if exact else 1.0)
