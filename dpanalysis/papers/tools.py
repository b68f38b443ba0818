"""Tools for the claims: searches, pairs of laws, composed Gaussian mixtures."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import fft, optimize, special, stats

from .. import privacy
from ..audit.attack import Range, worst_case
from ..audit.exact import Density, hockey_stick, renyi_divergence
from .claim import Check, Effort, Evidence

Array: TypeAlias = NDArray[np.float64]
Laws: TypeAlias = tuple[Array, Array]


# Searches for the worst case


def search_min(
    effort: Effort,
    function: Callable[..., float],
    space: Mapping[str, Range],
    *,
    starts: tuple[int, int] = (40, 900),
    searches: tuple[int, int] = (2, 3),
    steps: tuple[int, int] = (20, 250),
    cost: int = 1,
    guesses: Iterable[Mapping[str, Any]] = (),
) -> Array:
    """Return the values at all points of a search for the minimum; sizes are (quick, full)."""
    values = []

    def recorded(**at: Any) -> float:
        values.append(float(function(**at)))
        return values[-1]

    worst_case(
        recorded,
        space,
        starts=max(effort.cases(*starts) // cost, 2),
        searches=effort.cases(*searches),
        steps=max(effort.cases(*steps) // cost, 2),
        guesses=guesses,
        rng=effort.random(),
    )
    return np.array(values)


def search_max(
    effort: Effort,
    function: Callable[..., float],
    space: Mapping[str, Range],
    *,
    cost: int = 1,
    guesses: Iterable[Mapping[str, Any]] = (),
) -> Array:
    """Return the values at all points of a search for the maximum."""
    sizes = {"starts": (130, 6000), "searches": (2, 5), "steps": (50, 1000)}
    opposite = search_min(
        effort, lambda **at: -function(**at), space, cost=cost, guesses=guesses, **sizes
    )
    return -opposite


def of_adversary(adversary: Check, effort: Effort) -> Iterator[Evidence]:
    """Yield the evidence of an adversary about the printed statement."""
    yield from (each for each in adversary(effort) if each.about == "printed")


def upper_limit(count: int, runs: int) -> float:
    """Return the upper confidence limit, at level 1 - 1e-6, of the probability of a hit."""
    return float(stats.beta.ppf(1.0 - 1e-6, count + 1, runs - count)) if count < runs else 1.0


# Vectors, matrices, and laws


def unit(vector: Array, norm: float = 2) -> Array:
    """Return the vector, scaled down to norm 1 if it is longer."""
    return np.asarray(vector / max(1.0, float(np.linalg.norm(vector, norm))))


def symmetric(entries: Array, d: int) -> Array:
    """Return the symmetric matrix with these entries on and above its diagonal."""
    matrix = np.zeros((d, d))
    matrix[np.triu_indices(d)] = entries
    return matrix + np.triu(matrix, 1).T


def batch_means(values: Array, m: int) -> Array:
    """Return the means of all m-of-n batches of ``values`` (n, d), shape (batches, d)."""
    batches = np.array(list(combinations(range(len(values)), m)))
    return np.asarray(values[batches].mean(1))


def product(*pairs: Laws) -> Laws:
    """Return the joint laws of independent outcomes."""
    laws = [np.ones(1), np.ones(1)]
    for pair in pairs:
        laws = [np.outer(law, part).ravel() for law, part in zip(laws, pair)]
    return laws[0], laws[1]


def randomized_response(loss: float) -> Laws:
    """Return the two laws of randomized response: true with odds e^loss."""
    law = np.array([special.expit(loss), special.expit(-loss)])
    return law, law[::-1]


def gaussian_mixture(centers: Array, std: float, weights: ArrayLike | None = None) -> Density:
    """Return the density of c + N(0, std^2), c drawn among the centers, evenly by default."""
    share = np.full(len(centers), 1.0 / len(centers)) if weights is None else np.asarray(weights)
    different, which = np.unique(centers, return_inverse=True)
    logs = np.log(np.bincount(which, share)) - math.log(std * math.sqrt(2.0 * math.pi))

    def logpdf(x: Array) -> Array:
        exponents = -0.5 * ((x[:, None] - different) / std) ** 2
        return np.asarray(np.logaddexp.reduce(logs + exponents, axis=1))

    return Density(logpdf, tuple(different))


def added_exponential(values: Array, scale: float) -> Array:
    """Return the law of argmin(values + exponential noise); a private minimum subtracts it."""
    # The minimum exceeds t with probability exp(-sum_i (t - v_i)_+ / scale); all candidates with
    # v_i < t attain it at t with equal probability.
    order = np.argsort(values, kind="stable")
    v = values[order]
    count = np.arange(1, v.size + 1)
    exceeds = np.append(np.exp((np.cumsum(v) - count * v) / scale), 0.0)
    shares = -np.diff(exceeds) / count
    law = np.empty(v.size)
    law[order] = np.cumsum(shares[::-1])[::-1]
    return law


def mixed(rate: float, laws: Laws) -> Laws:
    """Return the laws of a release from a Poisson sample, given the laws on the batch."""
    return (1.0 - rate) * laws[1] + rate * laws[0], laws[1]


def renyi(laws: Any, order: float) -> float:
    """Return the larger Renyi divergence of a pair of laws; at order inf, the pure loss."""
    return max(renyi_divergence(p, q, order) for p, q in (laws, laws[::-1]))


def largest_delta(laws: Any, epsilon: float) -> float:
    """Return the larger hockey-stick divergence of a pair of laws."""
    return float(max(hockey_stick(p, q, epsilon) for p, q in (laws, laws[::-1])))


# The noise of Abadi et al. (2016), which two papers state with the same constants


def excess_of_long_runs(rate: float, epsilon: float, delta: float, factor: float) -> float:
    """Return (bound on epsilon) / epsilon at T = factor epsilon/q^2, c1 = 1, c2 = 2."""
    steps = max(1, math.ceil(factor * epsilon / rate**2))
    std = 2.0 * rate * math.sqrt(steps * math.log(1.0 / delta)) / epsilon
    if std < 1.0:
        return 0.0
    far = np.rint(np.geomspace(64.0, 4096.0, 25))
    orders = np.concatenate([[1.1, 1.3, 1.6], np.arange(2.0, 64.0), far])
    curve = steps * privacy.rdp_poisson_gaussian(orders, rate, std)
    return float(privacy.rdp_to_epsilon(orders, curve, delta)[0]) / epsilon


def excess_at_share(rate: float, share: float, delta: float, factor: float) -> float:
    """Return :func:`excess_of_long_runs` at epsilon = share ln(1/delta)."""
    return excess_of_long_runs(rate, share * math.log(1.0 / delta), delta, factor)


LONG_RUNS = {
    "rate": Range(1e-3, 1.0, log=True),
    "share": Range(0.01, 1.0, log=True),
    "delta": Range(1e-10, 0.5, log=True),
    "factor": Range(1.0, 1000.0, log=True),
}


# Lower and upper bounds on the epsilon of many releases of a Gaussian mixture
#
# The outcome of a release is binned into cells. Binning is post-processing, so the loss of the
# cells, rounded down, gives a lower bound; the largest loss in each cell, rounded up, gives an
# upper bound. Composition is a power of a Fourier transform, and the probability beyond its window
# is bounded. No code is shared with ``privacy.pld``.

# Number of cells, and their extent in standard deviations.
_CELLS = 40_000
_REACH = 12.0
# Rounding of the loss of one release, times the number of releases.
_ROUNDING = 0.02
# Losses of one release from this value on count as infinite.
_LARGEST = 40.0


@dataclass(frozen=True)
class Mixture:
    """The releases sum_k w_k N(s_k, std^2), s_k >= 0, against N(0, std^2)."""

    weights: Array  # (m,), probabilities
    shifts: Array  # (m,), non-negative
    std: float

    def cells(self) -> tuple[Array, Array, Array]:
        """Return the probabilities of the cells under P and Q, and the loss at all inner edges."""
        top = float(self.shifts[self.weights > 1e-30].max())
        edges = np.linspace(-_REACH * self.std, top + _REACH * self.std, _CELLS)
        z = (edges[:, None] - self.shifts) / self.std
        # Differences of the smaller tails avoid cancellation on both sides.
        upper = edges > 0.5 * top
        tails = np.where(upper[:, None], special.ndtr(-z), special.ndtr(z))
        p = _masses(tails @ self.weights, upper)
        origin = edges / self.std
        q = _masses(np.where(upper, special.ndtr(-origin), special.ndtr(origin)), upper)
        logs = (edges[:, None] - 0.5 * self.shifts) * self.shifts / self.std**2
        return p, q, special.logsumexp(logs, b=self.weights, axis=1)


def _masses(tails: Array, upper: NDArray[np.bool_]) -> Array:
    """Return the masses between the edges, from lower tails and, past the middle, upper tails."""
    middle = int(np.argmax(upper))
    below, above = tails[:middle], tails[middle:]
    between = 1.0 - below[-1] - above[0]
    return np.concatenate([below[:1], np.diff(below), [between], -np.diff(above), above[-1:]])


def epsilon_bounds(
    release: Mixture, steps: int, delta: float, *, adding: bool = False
) -> tuple[float, float]:
    """Return a lower and an upper bound of the epsilon of ``steps`` releases at ``delta``."""
    p, q, edge_losses = release.cells()
    if adding:
        p, q, edge_losses = q[::-1], p[::-1], -edge_losses[::-1]
    width = _ROUNDING / steps
    held = (p > 0.0) & (q > 0.0)
    inside = np.log(p[held] / q[held])
    lower = _curve(np.floor(inside / width), p[held], width, steps, upper=False)
    # The loss grows with the outcome: largest at a right edge, unknown beyond the last edge.
    upper = _curve(np.ceil(edge_losses / width), p[:-1], width, steps, upper=True)
    return _root(lower, delta), _root(upper, delta)


@dataclass(frozen=True)
class _Curve:
    losses: Array
    masses: Array
    lost: float

    def delta(self, epsilon: float) -> float:
        above = self.losses > epsilon
        gains = -np.expm1(epsilon - self.losses[above])
        return self.lost + float(self.masses[above] @ gains)


def _curve(cells: Array, masses: Array, width: float, steps: int, *, upper: bool) -> _Curve:
    """Return the composed loss, modulo a window."""
    # Mass above the window wraps around to its low end, mass below it to its high end. The former
    # is bounded and added to an upper bound, the latter subtracted from a lower one (Chernoff).
    kept = np.abs(cells * width) < _LARGEST
    index, held = cells[kept], masses[kept]
    mean = float(index @ held)
    spread = math.sqrt(steps * float((index - mean) ** 2 @ held))
    low = math.floor(steps * mean - 12.0 * spread - 0.5 / width)
    size = fft.next_fast_len(math.ceil(26.0 * spread + 8.0 / width), real=True)
    folded = np.bincount(index.astype(np.int64) % size, held, size)
    total: Array = np.roll(fft.irfft(fft.rfft(folded) ** steps, size), -(low % size))
    losses: Array = width * np.arange(low, low + size, dtype=np.float64)
    sign, end = (1.0, losses[-1]) if upper else (-1.0, -losses[0])
    rates = np.geomspace(0.3, 60.0, 24)
    moments = [special.logsumexp(sign * rate * width * index, b=held) for rate in rates]
    beyond = math.exp(min(0.0, float((steps * np.array(moments) - rates * end).min())))
    lost = beyond + 1.0 - float(held.sum()) ** steps if upper else -beyond
    return _Curve(losses, np.maximum(total, 0.0), lost)


def _root(curve: _Curve, delta: float) -> float:
    top = float(curve.losses[-1]) * (1.0 - 1e-12)
    if curve.delta(0.0) <= delta:
        return 0.0
    if curve.delta(top) > delta:
        return math.inf if curve.lost > 0.0 else top
    return float(optimize.brentq(lambda epsilon: curve.delta(epsilon) - delta, 0.0, top))
