"""Privacy loss distributions: composition without the slack of a moment bound.

Every event here is dominated by a pair of distributions whose privacy profile (delta at each
epsilon) has a closed form: Gaussian, Laplace, randomized response (which dominates any pure
release), and products of these. Subsampling changes the profile in closed form. Profiles are
discretized to distributions on a grid, rounded up (:func:`connect_dots`), and epsilon is read
off their composition, a product of Fourier transforms.

References
----------
Koskela, Jalko, Honkela (2020); Doroshenko et al. (2022); Zhu, Dong, Wang (2022); Balle,
Barthe, Gaboardi (2018).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import IncompatibleAccounting
from .events import Event
from .pairs import Array, Pair

# Number of distinct pairs above which parameters are rounded up to a geometric grid.
_MOST_PAIRS = 4000


def pairs_of(groups: Mapping[Event, int]) -> dict[Pair, int]:
    """Return the pairs of counted events; Gaussian noise without sampling becomes one pair."""
    pairs: dict[Pair, int] = {}
    mu_squared = 0.0
    for event, count in groups.items():
        pair = event.pair()
        if pair is None:
            raise IncompatibleAccounting(
                f"{event!r} has no privacy loss distribution in closed form; account it by 'rdp'"
            )
        if pair.fraction == 1.0 and not (pair.laplace or pair.responses):
            mu_squared += count * pair.mu**2
        else:
            pairs[pair] = pairs.get(pair, 0) + count
    if mu_squared:
        pairs[Pair(math.sqrt(mu_squared))] = 1
    step = 0.01
    while len(pairs) > _MOST_PAIRS and step < 1.0:
        pairs, step = coarser(pairs, step), 2.0 * step
    return pairs


def coarser(pairs: dict[Pair, int], step: float) -> dict[Pair, int]:
    """Round parameters up by at most the ratio e^step: a larger loss dominates a smaller one."""

    def up(value: float) -> float:
        return math.exp(step * math.ceil(math.log(value) / step)) if value else 0.0

    merged: dict[Pair, int] = {}
    for pair, count in pairs.items():
        responses = tuple((up(loss), times) for loss, times in pair.responses)
        rounded = replace(pair, mu=up(pair.mu), laplace=up(pair.laplace), responses=responses)
        merged[rounded] = merged.get(rounded, 0) + count
    return merged


# Largest grid for the composed distribution. Rare large losses would need more cells than memory
# holds, and gain little: for those, finer grids are tried while the gain is above _MIN_GAIN.
_MOST_CELLS = 2**20
_CELLS = (2**14, 2**16, 2**18)
_MIN_GAIN = 2e-4
# Number of cells searched for epsilon at once.
_BLOCK = 2**16
# Losses that need wider cells are so large that their plain sum is as good a bound.
_WIDEST_CELL = 100.0
# For an epsilon above this, rounding on an epoch's grid may cost more than partitioning gains.
_LARGE = 5.0
# Rounding may change a tail probability by this much in each composed step, which is added to the
# mass at infinity. The error observed against the exact Gaussian is 2e-18.
_ROUNDING = 1e-16
# Number of composed steps beyond which what rounding adds to the masses of one may overflow.
_MOST_STEPS = 1e9


def has_profiles(events: Iterable[Event]) -> bool:
    """Return whether every event has a profile in closed form."""
    return all(event.pair() is not None for event in events)


def pld_epsilon(groups: Mapping[Event, int], delta: float) -> float:
    """Return the epsilon at ``delta`` of counted events, rounded up by the discretization."""
    pairs = pairs_of(groups)
    if not pairs:
        return 0.0
    found = _pairs_epsilon(pairs, delta)
    fallbacks: dict[Pair, int] = {}
    for pair, count in pairs.items():
        fallbacks[pair.fallback] = fallbacks.get(pair.fallback, 0) + count
    if found > _LARGE and fallbacks != pairs:
        found = min(found, _pairs_epsilon(fallbacks, delta))
    return found


def _pairs_epsilon(pairs: Mapping[Pair, int], delta: float) -> float:
    tail = max(1e-6 * delta / sum(pairs.values()), 1e-290)
    wanted, span = _cell_width(pairs, tail)
    widths = [span / cells for cells in _CELLS]
    if span <= 16 * _MOST_CELLS * wanted:
        widths = [max(wanted, span / _MOST_CELLS)]
    best = math.inf
    for width in widths:
        if width > _WIDEST_CELL:
            continue
        before, best = best, min(best, _epsilon_on_grid(pairs, width, tail, delta))
        # Every grid gives a valid bound. The finest grid need not give the smallest: the Fourier
        # transform rounds in each cell.
        if before - best <= _MIN_GAIN * best < math.inf:
            break
    return best


def _epsilon_on_grid(pairs: Mapping[Pair, int], width: float, tail: float, delta: float) -> float:
    both = any(pair.poisson and pair.fraction < 1.0 for pair in pairs)
    largest = 0.0
    for adding in (False, True) if both else (False,):
        cut = max(1e-6 * delta, 5e-324)  # the product may underflow
        first, probabilities, infinite = _compose(pairs, width, tail, adding, cut)
        largest = max(largest, _epsilon_at(delta, width, first, probabilities, infinite))
    return largest


def lower_epsilon(
    cells: NDArray[np.int64], mass: Array, width: float, delta: float, count: int, rounding: float
) -> float:
    """Return a lower bound on the epsilon of ``count`` losses, each ``width`` times a cell."""
    # ``mass`` holds the P-mass of each cell; a remainder to 1 is left out. A mass of at most
    # ``rounding`` of the composed law is misplaced, hence epsilon is evaluated at a larger delta.
    from scipy import fft

    first = int(cells.min())
    p = np.bincount(cells - first, mass)
    cut = max(1e-6 * delta, 5e-324)  # the product may underflow
    low, high = _window([(first, p / p.sum(), 0.0, count)], cut)
    size = fft.next_fast_len(max(high - low + 1, p.size), real=True)
    composed, off = drop_rounding_noise(fft.irfft(_power(fft.rfft(p, size), count), size), count)
    # Sums below the window wrap around to large ones: ``cut`` accounts for their mass.
    composed = np.roll(composed, (first * count - low) % size)
    spare = delta + cut + rounding + off
    return _epsilon_at(spare, width, low, composed, 0.0) if spare < 1.0 else 0.0


def drop_rounding_noise(mass: Array, count: int) -> tuple[Array, float]:
    """Return a ``count``-fold convolution from an FFT without rounding noise, and its error.

    The error of a transform of N numbers has a norm below eps log2(N) times theirs, and so has each
    factor of a power. It spreads over all cells alike, also those without mass. Cells hardly above
    that level are set to 0; the errors of the k others sum to at most sqrt(k) times the norm.
    """
    norm = 2.0 * 2.0**-52 * (math.log2(mass.size) + count) * float(np.linalg.norm(mass))
    kept = mass > norm / math.sqrt(mass.size)
    return np.where(kept, mass, 0.0), math.sqrt(np.count_nonzero(kept)) * norm


def _epsilon_at(
    delta: float, width: float, first: int, probabilities: Array, infinite: float
) -> float:
    """Return the epsilon >= 0 at which the hockey-stick divergence of a loss falls to ``delta``.

    The losses are ``width`` times first, first + 1 and so on. The divergence at epsilon is the mean
    of (1 - e^(epsilon - loss))_+. Between two losses it is A - e^epsilon B, where A is the mass and
    B the mean of e^-loss, both over all losses above. The search goes from the largest loss down,
    and no further than necessary.
    """
    if infinite > delta:
        return math.inf
    mass = 0.0
    for low, high in _from_above(probabilities.size):
        sums = _sums(probabilities[low:high], mass)
        if infinite + sums[0] > delta:
            last = low + int(np.flatnonzero(infinite + sums > delta)[-1])
            break
        mass = float(sums[0])
    else:
        return 0.0
    top = width * (first + last)
    if top <= 0.0:
        return 0.0
    # Epsilon is at most this loss. Far below it the divergence is certainly larger than delta, so
    # that e^(top - loss) is not needed where it would overflow.
    bottom = math.ceil(max(0.0, top - 700.0) / width) - first
    mass = tilted = 0.0
    best = top
    for low, high in _from_above(probabilities.size):
        losses = width * (first + np.arange(low, high))
        part = probabilities[low:high]
        above = _sums(part, mass)
        tilts = _sums(part * np.exp(np.minimum(top - losses, 700.0)), tilted)
        near = slice(max(bottom - low, 0), max(last + 1 - low, 0))
        divergence = infinite + above[near] - np.exp(losses[near] - top) * tilts[near]
        if low <= last < high:
            divergence[-1] = min(divergence[-1], delta)  # but for rounding
        fits = np.flatnonzero(divergence <= delta)
        if fits.size:
            at = near.start + int(fits[0])
            best = top + math.log((infinite + float(above[at]) - delta) / float(tilts[at]))
        if low <= bottom or (divergence.size and divergence[0] > delta):
            break
        mass, tilted = float(above[0]), float(tilts[0])
    return max(0.0, best)


def _from_above(size: int) -> Iterator[tuple[int, int]]:
    """Yield the ends of blocks of cells, the last block first."""
    return ((max(0, end - _BLOCK), end) for end in range(size, 0, -_BLOCK))


def _sums(numbers: Array, above: float) -> Array:
    """Return each number plus all numbers after it, plus ``above``."""
    reverse = numbers[::-1].copy()
    reverse[0] += above
    return np.cumsum(reverse)[::-1]


def _cell_width(pairs: Mapping[Pair, int], tail: float) -> tuple[float, float]:
    """Return a cell width that costs at most about 1e-4 of the composed epsilon, and the range."""
    # Connecting the dots adds at most width**2/4 to the variance of each step; with few steps the
    # rounding of the loss itself matters instead. The cells must cover the range.
    total = sum(pairs.values())
    variance = math.fsum(count * _variance(pair) for pair, count in pairs.items())
    span = max(high - low for low, high in (pair.reach(tail) for pair in pairs))
    few = min(1.0, math.sqrt(0.02 * total))
    wanted = max(few * min(0.02 * math.sqrt(variance / total), 1e-3), 1e-12)
    return wanted, 4.0 * span + 2.0 * variance + 20.0 * math.sqrt(variance)


def _variance(pair: Pair) -> float:
    """Return twice the Kullback-Leibler divergence: the variance of the loss where that is small.

    KL(P, Q) is the integral over t >= 0 of H(P, Q)(t) + e^-t H(Q, P)(t).
    """
    t = pair.reach(1e-15)[1] * np.linspace(0.0, 1.0, 401) ** 3
    return 2.0 * float(np.trapezoid(pair.remove(t) + np.exp(-t) * pair.add(t), t))


def _compose(
    pairs: Mapping[Pair, int], width: float, tail: float, adding: bool, cut: float
) -> tuple[int, Array, float]:
    """Return the composed loss distribution (first cell, probabilities, mass at infinity)."""
    from scipy import fft

    parts = [(*pair.distribution(width, tail, adding), n) for pair, n in pairs.items()]
    steps = sum(pairs.values())
    if steps > _MOST_STEPS or not all(probabilities.any() for _, probabilities, _, _ in parts):
        return 0, np.zeros(1), 1.0  # every loss counts as beyond the grid
    low, high = _window(parts, cut)
    size = fft.next_fast_len(high - low + 1, real=True)
    spectrum: Any = None
    start, log_finite = 0, 0.0
    for first, probabilities, infinite, count in parts:
        # Cells are counted modulo the window. Mass from below wraps around to larger losses,
        # which is pessimistic; mass from above is lost there and added at infinity.
        folded = probabilities[:size]
        for place in range(size, probabilities.size, size):
            part = probabilities[place : place + size]
            folded = folded + np.pad(part, (0, size - part.size))
        power = _power(fft.rfft(folded, size), count)
        spectrum = power if spectrum is None else spectrum * power
        start += first * count
        log_finite += count * math.log1p(-infinite)
    turned, cells = fft.irfft(spectrum, size), np.empty(size)
    shift = (start - low) % size
    np.maximum(turned[size - shift :], 0.0, out=cells[:shift])
    np.maximum(turned[: size - shift], 0.0, out=cells[shift:])
    rounding = _ROUNDING * (10 + steps)
    return low, cells, cut + rounding - math.expm1(log_finite)


def _power(numbers: Any, count: int) -> Any:
    """Return complex numbers to a power; powers that underflow are set to 0, not computed."""
    powers = np.zeros_like(numbers)
    squares = numbers.view(np.float64) ** 2
    some = squares[::2] + squares[1::2] > math.exp(-1400.0 / count)
    powers[some] = numbers[some] ** count
    return powers


def _window(parts: list[tuple[int, Array, float, int]], cut: float) -> tuple[int, int]:
    """Return cells outside which the composed mass is below ``cut`` on either side (Chernoff)."""
    low = sum(first * count for first, _, _, count in parts)
    high = sum((first + p.size - 1) * count for first, p, _, count in parts)
    known = []
    variance = 1.0
    for first, p, _, count in parts:
        held = np.flatnonzero(p)
        cell = (first + held).astype(np.float64)
        p = p if held.size == p.size else p[held]
        # Not by BLAS, which wakes its threads for vectors of this length: that takes far longer.
        centered = cell - float((p * cell).sum())
        variance += count * float((p * centered**2).sum())
        known.append((cell, np.log(p), count))
    # Tails are nearly normal for many small losses; rare large losses set their own scale.
    size = max(p.size for _, p, _, _ in parts)
    rates = np.geomspace(0.03, 48.0, 14) / math.sqrt(variance)
    rates = np.sort(np.concatenate([rates, np.geomspace(4.0, 256.0, 7) / size]))

    def end(sign: float, k: int) -> float:
        rate = float(rates[k])
        moments = (count * _log_moment(sign * rate, cell, log_p) for cell, log_p, count in known)
        return (math.fsum(moments) - math.log(cut)) / rate

    def nearest(sign: float) -> int:
        # The bound first falls and then rises with the rate, as the log moment is convex in it. For
        # a normal law it is least at the first rate tried.
        usual = math.sqrt(-2.0 * math.log(cut) / variance)
        k = min(int(np.searchsorted(rates, usual)), rates.size - 1)
        best = end(sign, k)
        for step in (1, -1):
            while 0 <= k + step < rates.size and (other := end(sign, k + step)) < best:
                k, best = k + step, other
        return math.ceil(best)

    high, low = min(high, nearest(1.0)), max(low, -nearest(-1.0))
    return low, max(low, high)


def _log_moment(rate: float, cell: Array, log_p: Array) -> float:
    exponent = rate * cell
    exponent += log_p
    top = float(exponent.max())
    exponent -= top
    return top + math.log(float(np.exp(exponent, out=exponent).sum()))
