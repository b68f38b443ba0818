"""How a budget becomes noise: one scale an iteration, fixed before the data are touched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import privacy
from ..privacy.accountant import spent_without_grid
from ..privacy.events import Event, Repeated
from ..privacy.facts import NORM_ORDER, PublicFacts, gradient_event, sampled_event
from ..privacy.relations import Budget
from ..privacy.sampling import Full, Sampling, WithoutReplacement, WithReplacement

if TYPE_CHECKING:
    from ..theory import ErrorRecursion

__all__ = ["NoiseRequest", "choose_horizon", "noise_scales", "planned_events"]

# Horizons tried where each one costs a numerical calibration: a grid, ratio about 1.2.
CALIBRATED_HORIZONS = 40
# A calibrated schedule is rounded to 64 levels of noise, the largest at most 100 times the least.
# An accountant's time grows with the number of distinct events, and rounding the levels makes the
# noise term of the error bound less than 1% larger.
NOISE_LEVELS, NOISE_RANGE = 64, 100.0
# No iteration counts for less than this part of the most important one. Its exact weight may
# underflow to 0, and would then ask for infinite noise.
LEAST_IMPORTANCE = 2.0**-52


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
    def closed(self) -> bool:
        """Whether a pure loss of the run is divided over it in closed form."""
        return self.mechanism == "laplace" and not isinstance(self.sampling, WithReplacement)

    @property
    def pure(self) -> bool:
        """Whether the budget is pure epsilon, which has closed forms."""
        budget = self.budget
        return budget.epsilon is not None and budget.delta == 0.0 and self.closed


def planned_events(
    facts: PublicFacts,
    sampling: Sampling,
    mechanism: str,
    scales: np.ndarray,
    clipping: Any = None,
) -> list[Event]:
    """Return the events of a run with these ``scales`` (T,), equal neighbours merged."""
    return _events(facts, sampling, mechanism, *_merged(scales), clipping)


def _merged(scales: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the scales of runs of equal neighbours, and the lengths of the runs."""
    starts = np.flatnonzero(np.append(True, scales[1:] != scales[:-1]))
    return scales[starts], np.diff(starts, append=scales.size)


def _events(
    facts: PublicFacts,
    sampling: Sampling,
    mechanism: str,
    scales: np.ndarray,
    counts: np.ndarray,
    clipping: Any,
) -> list[Event]:
    """Return one event for each scale, repeated as often as its count says."""
    events: list[Event] = []
    for scale, count in zip(scales.tolist(), counts.tolist()):
        event = gradient_event(facts, sampling, mechanism, scale, clipping)
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
    budget = request.budget
    if request.mechanism == "gaussian" and budget.epsilon is not None and budget.delta == 0.0:
        raise ValueError(f"mechanism='gaussian' needs a budget with delta > 0, got {budget!r}")
    importance = _importance(request, recursion, iterations)
    if request.pure:
        return _pure_scales(request, importance)
    return _better(request, importance, _calibrated_scales(request, importance))


def _importance(
    request: NoiseRequest, recursion: ErrorRecursion | None, iterations: int
) -> np.ndarray:
    """Return the weight of each iteration's noise variance in the error bound, (T,)."""
    if not request.optimal or recursion is None:
        return np.broadcast_to(1.0, (iterations,))  # kept once
    weights = recursion.prefix(iterations).weights()[1]
    return np.maximum(weights, LEAST_IMPORTANCE * weights.max())


def _better(request: NoiseRequest, importance: np.ndarray, calibrated: np.ndarray) -> np.ndarray:
    """Return the better of the calibrated schedule and, where it is valid, the pure one.

    Pure epsilon holds at any delta, and can win over a few iterations.
    """
    if not request.closed or request.budget.epsilon is None:
        return calibrated
    if request.accountant not in ("tightest", "pure"):
        return calibrated
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


def _calibrated_scales(request: NoiseRequest, importance: np.ndarray) -> np.ndarray:
    if importance.min() == importance.max():  # ten million even steps would take their time
        shape = np.broadcast_to(importance[0] ** -0.25, importance.shape)
    else:
        shape = _levels(importance**-0.25)
    return _multiplier(request, shape, request.accountant) * shape


def _levels(shape: np.ndarray) -> np.ndarray:
    """Round to NOISE_LEVELS values, evenly spaced in the logarithm, NOISE_RANGE times the least."""
    logs = np.log(shape)
    low = logs.min()
    high = min(logs.max(), low + np.log(NOISE_RANGE))
    logs = np.minimum(logs, high)
    steps = np.round((logs - low) / max(high - low, 1e-300) * (NOISE_LEVELS - 1))
    return np.exp(low + (high - low) * steps / (NOISE_LEVELS - 1))


def _multiplier(request: NoiseRequest, shape: np.ndarray, accountant: str) -> float:
    """Return the smallest factor of ``shape`` that fits the budget."""
    facts, sampling, budget = request.facts, request.sampling, request.budget
    # A noise of one sensitivity is the natural place to start looking from.
    unit = request.record_sensitivity / sampling.expected_size(facts.n) / shape.min()
    levels, counts = _merged(shape)

    def make_events(factor: float) -> Sequence[Event]:
        scales = factor * unit * levels
        return _events(facts, sampling, request.mechanism, scales, counts, request.clipping)

    def fit(factor: float) -> bool:
        return spent_without_grid(make_events(factor), budget, accountant) <= budget.limit

    low, high = _bracket(fit)
    bracket = low / 64.0, high  # a loss distribution may do with much less
    return unit * privacy.calibrate(make_events, budget, bracket, accountant=accountant)


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

    Every T' is tried where the budget is pure. Otherwise a grid of horizons is compared, with
    the noise that has the same sum of 1/variance as a uniform schedule which fits the budget:
    the choice is a heuristic, made before the data are touched; the noise of the chosen
    horizon is then calibrated exactly.
    """
    facts, variance = request.facts, batch_variance(request)
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
    accountant = "zcdp" if request.budget.rho is not None else "rdp"

    def bound(iterations: int) -> float:
        a0, a = recursion.prefix(iterations).weights()
        importance = _importance(request, recursion, iterations)
        shape = importance**-0.25
        uniform = _multiplier(request, np.ones(iterations), accountant)
        calibrated = uniform * np.sqrt(np.mean(shape**-2.0)) * shape
        scales = _better(request, importance, calibrated)
        per_coordinate = scales**2 * (2.0 if request.mechanism == "laplace" else 1.0)
        return a0 * initial_gap + 0.5 * float(a @ (facts.d * per_coordinate + variance))

    return min(np.unique(grid).tolist(), key=bound)


def batch_variance(request: NoiseRequest) -> float:
    """Bound E||mean over a batch - mean over all||^2 from the bound G on one gradient.

    Without replacement it is (G^2/m) (n-m)/(n-1), (3.13) of Kuru et al. with S = 2G; m
    independent draws have G^2/m, and a Poisson batch divided by its expected size q n has
    ((1-q)/q n) G^2.
    """
    facts, sampling = request.facts, request.sampling
    if isinstance(sampling, Full) or facts.n == 1:
        return 0.0
    bound = facts.record_sensitivity(2, request.clipping) / facts.moved(1.0)
    size = sampling.expected_size(facts.n)
    if isinstance(sampling, WithReplacement):
        return bound**2 / size
    rate = size / facts.n
    exact = isinstance(sampling, WithoutReplacement)
    return bound**2 / size * (1.0 - rate) * (facts.n / (facts.n - 1) if exact else 1.0)
