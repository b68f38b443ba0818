"""Exact privacy profiles to compare accountants with, and random settings for the comparison."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import integrate, optimize, special

from dpanalysis.privacy.accounting.zcdp import gaussian_delta, gaussian_epsilon


def sampled_delta(sigma: float, rate: float, epsilon: float) -> float:
    r"""Return delta(epsilon) of one Poisson-sampled Gaussian, both directions of add/remove.

    With M the mixture :math:`(1-q) N(0, \sigma^2) + q N(1, \sigma^2)`, the excess of M over
    :math:`e^\epsilon N(0, \sigma^2)` is q times that of N(1) over :math:`e^a N(0)` where
    :math:`e^a = 1 + (e^\epsilon - 1)/q`; that of N(0) over :math:`e^\epsilon M` is
    :math:`k = 1 - e^\epsilon (1-q)` times that of N(0) over :math:`e^b N(1)` where
    :math:`e^b = e^\epsilon q / k`, and 0 if k is not positive.

    Examples
    --------
    >>> from dpanalysis.audit import hockey_stick, subsampled_gaussian
    >>> p, q = subsampled_gaussian(2.0, 1.0, 0.1)
    >>> exact = max(hockey_stick(p, q, 0.3), hockey_stick(q, p, 0.3))
    >>> round(sampled_delta(2.0, 0.1, 0.3) / exact, 6)
    1.0
    """
    remove = rate * gaussian_delta(sigma, math.log1p(math.expm1(epsilon) / rate))
    # 1 - e^epsilon (1 - q), without cancellation.
    kept = rate * math.exp(epsilon) - math.expm1(epsilon)
    if kept <= 0.0:
        return float(remove)
    add = kept * gaussian_delta(sigma, epsilon + math.log(rate / kept))
    return float(max(remove, add))


def sampled_epsilon(sigma: float, rate: float, delta: float) -> float:
    """Return the exact epsilon of one Poisson-sampled Gaussian at delta."""
    if sampled_delta(sigma, rate, 0.0) <= delta:
        return 0.0
    high = gaussian_epsilon(sigma, delta)
    return float(
        optimize.brentq(lambda e: sampled_delta(sigma, rate, e) - delta, 0.0, high, xtol=1e-12)
    )


def allocated_delta(sigma: float, epsilon: float) -> float:
    r"""Return delta(epsilon) of two Gaussian steps, one of which, chosen uniformly, has the record.

    The ratio of densities is the mean of :math:`e^{(x_i - 1/2)/\sigma^2}`. At a given
    :math:`x_1` it exceeds a level where :math:`x_2` exceeds a threshold, which leaves one integral
    in each direction.

    Examples
    --------
    A step that certainly has the record costs more:

    >>> bool(0.0 < allocated_delta(1.0, 1.0) < 0.5 * gaussian_delta(1.0, 1.0))
    True
    """
    variance = sigma**2

    def excess(u: float, level: float, side: float) -> float:
        """Return the mixture minus e^epsilon times the other, or reversed, on one side."""
        rest = 2.0 * level - math.exp((u - 0.5) / variance)
        if rest > 0.0:
            threshold = 0.5 + variance * math.log(rest)
            none, one = (special.ndtr(side * (m - threshold) / sigma) for m in (0.0, 1.0))
        else:
            none = one = float(side > 0.0)
        here, there = (math.exp(-0.5 * ((u - m) / sigma) ** 2) for m in (1.0, 0.0))
        mixture, other = 0.5 * (here * none + there * one), there * none
        kept = (
            mixture - math.exp(epsilon) * other
            if side > 0.0
            else other - math.exp(epsilon) * mixture
        )
        return kept / (sigma * math.sqrt(2.0 * math.pi))

    found = []
    for level, side in ((math.exp(epsilon), 1.0), (math.exp(-epsilon), -1.0)):
        kink = 0.5 + variance * math.log(2.0 * level)
        ends = sorted({-15.0 * sigma, 0.0, 1.0, min(max(kink, -15.0 * sigma), 1.0 + 15.0 * sigma)})
        ends = [*ends, 1.0 + 15.0 * sigma]
        pieces = [
            integrate.quad(excess, a, b, (level, side), epsabs=1e-16, epsrel=1e-12, limit=400)[0]
            for a, b in itertools.pairwise(ends)
        ]
        found.append(math.fsum(pieces))
    return max(0.0, *found)


def replaced_losses(
    rate: float, sigma: float, moved: tuple[float, float]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the discretized privacy loss of a batch with one record replaced, or removed.

    The sum of the batch is N(0, sigma^2) without the record, and shifted by one of two numbers if
    the batch contains it; the second number is 0 for a record that is removed.
    """
    x = np.linspace(-2.0 - 9.0 * sigma, 2.0 + 9.0 * sigma, 100_001)

    def log_density(move: float) -> np.ndarray:
        mixed = (
            np.log1p(-rate) - x**2 / (2 * sigma**2),
            np.log(rate) - (x - move) ** 2 / (2 * sigma**2),
        )
        return np.logaddexp(*mixed)

    loss = log_density(moved[0]) - log_density(moved[1])
    below = (1.0 - rate) * special.ndtr(x / sigma) + rate * special.ndtr((x - moved[0]) / sigma)
    return np.minimum(loss[:-1], loss[1:]), np.diff(below)


def composed_delta(
    losses: np.ndarray, masses: np.ndarray, steps: int, epsilon: float, width: float = 1e-3
) -> float:
    """Return a lower bound on delta(epsilon) of ``steps`` independent repetitions of a release.

    Every loss is rounded down to a grid and missing mass counts as zero, so that the discrete
    distribution is below the true one; a bound on the FFT's rounding is subtracted. ``losses`` and
    ``masses`` are the least privacy loss and the probability of each cell of outcomes.
    """
    cells = np.floor(losses / width).astype(np.int64)
    first = int(cells.min())
    pmf = np.bincount(cells - first, weights=masses)
    size = 1 << int(steps * (pmf.size - 1) + 1).bit_length()
    if size > 2**24:
        raise ValueError(f"width must be larger: the grid would have {size:,} cells")
    law = np.fft.irfft(np.fft.rfft(pmf, size) ** steps, size)[: steps * (pmf.size - 1) + 1]
    loss = (np.arange(law.size) + steps * first) * width
    above = loss > epsilon
    excess = float(law[above] @ -np.expm1(epsilon - loss[above]))
    rounding = 1e-15 * steps * math.log2(size) * float(np.count_nonzero(above)) ** 0.5
    return max(0.0, excess - rounding)


@dataclass(frozen=True)
class Setting:
    """Steps of a Poisson-sampled Gaussian, and the delta at which epsilon is requested."""

    sigma: float
    rate: float
    steps: int
    delta: float

    @property
    def exact(self) -> float:
        """The exact epsilon of one step, or of any number of unsampled steps."""
        if self.rate == 1.0:
            return gaussian_epsilon(self.sigma / math.sqrt(self.steps), self.delta)
        assert self.steps == 1
        return sampled_epsilon(self.sigma, self.rate, self.delta)


def settings(random: np.random.Generator, count: int) -> list[Setting]:
    """Return random settings whose epsilon has a formula: half sampled, half with many steps.

    Epsilons are between 0.01 and 20, the range in which accountants are used.
    """
    found: list[Setting] = []
    while len(found) < count:
        sigma, delta = math.exp(random.uniform(-1.0, 2.5)), 10.0 ** -random.uniform(2.0, 9.0)
        one = len(found) % 2 == 0
        rate = 10.0 ** -random.uniform(0.1, 2.5) if one else 1.0
        setting = Setting(sigma, rate, 1 if one else int(random.integers(1, 200)), delta)
        if 0.01 < setting.exact < 20.0:
            found.append(setting)
    return found


def margins(reported: Sequence[Any], chosen: Sequence[Setting]) -> tuple[float, float]:
    """Return the least (reported - exact), and the median of reported / exact."""
    exact = np.array([setting.exact for setting in chosen])
    values = np.array(reported, dtype=float)
    return float(np.min(values - exact)), float(np.median(values / exact))


@dataclass(frozen=True)
class Allocation:
    """Gaussian steps, one of which, chosen uniformly, has the record, and the requested delta."""

    sigma: float
    steps: int
    delta: float

    @property
    def exact(self) -> float:
        """The exact epsilon of one or two steps."""
        high = gaussian_epsilon(self.sigma, self.delta)
        if self.steps == 1:
            return high
        assert self.steps == 2
        return float(
            optimize.brentq(
                lambda e: allocated_delta(self.sigma, e) - self.delta, 0.0, high, xtol=1e-10
            )
        )


def allocations(random: np.random.Generator, count: int) -> list[Allocation]:
    """Return random settings of one or two steps whose epsilon is between 0.01 and 10."""
    found: list[Allocation] = []
    while len(found) < count:
        sigma, delta = math.exp(random.uniform(-0.7, 1.6)), 10.0 ** -random.uniform(2.0, 7.0)
        if allocated_delta(sigma, 0.01) > delta and gaussian_epsilon(sigma, delta) < 10.0:
            found.append(Allocation(sigma, 1 + len(found) % 2, delta))
    return found
