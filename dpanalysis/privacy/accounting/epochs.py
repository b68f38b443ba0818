r"""Epochs: batches that partition the records, as data loaders draw them.

Under Poisson sampling the batches are independent. Here every record is in exactly one batch of
an epoch (or in exactly k), so that the batches are dependent, and an epoch is one release.

**Balls in bins.** Every record is assigned to one of t batches, uniformly and independently. Let
the pair (X, Y) dominate the release of one batch with and without the record, and let U be its
likelihood ratio dX/dY at an outcome of Y, so that E U = 1. An epoch is dominated by the pair

.. math:: P = \frac1t \sum_i Y \otimes \dots \otimes X_i \otimes \dots \otimes Y, \qquad
          Q = Y \otimes \dots \otimes Y,

with one X in the i-th factor. *Proof.* Fix the batches of all other records, which have the same
law with and without the record. By Blackwell's theorem there is for each batch, given all earlier
answers of the epoch, a random map that takes X to the law of the answer with the record and Y to
that without it. Apply these maps in turn to a draw of P, or of Q: the result is the whole epoch
with the record, or without it. So adaptive answers within an epoch are covered, too; so are epochs
that depend on earlier ones, since the pair is the same for each. The proof requires that the event
of every batch is fixed before the epoch begins, and that the record is added or removed, which
leaves the batch of every other record unchanged. QED (For Gaussian noise: Choquette-Choo et al.
2024, Lemma 3.2; Chua et al. 2024.)

**The two divergences.** Under Q the ratio dP/dQ is W/t, :math:`W = U_1 + \dots + U_t`, independent.
So :math:`H_\epsilon(P, Q) = E(W/t - e^\epsilon)_+` and :math:`H_\epsilon(Q, P) = E(1 - e^\epsilon
W/t)_+`, which are both convex in W. A *mean-preserving spread* of U (a variable U' with E[U'|U] =
U) increases both, at every :math:`\epsilon`: spreads of independent terms spread their sum, and
Jensen's inequality applies. U is spread onto a grid, which keeps mass and mean of every cell. The
law of W' is a t-th power by Fourier transforms. Where the noise is so small that no linear grid can
hold U, it is computed by t - 1 sums, each spread onto a geometric grid again. Ratios above the grid
count as an infinite loss: their P-mass is at most :math:`X(U > b) + (t-1) Y(U > b)`.

**k of t batches.** Random disjoint blocks of m = floor(t/k) batches, and one batch of each block,
make a random set of k batches. Given the blocks, which are independent of the record, an epoch is k
interleaved epochs of balls in bins over m batches each; random maps as above take a draw of k
independent pairs to it. So it costs what they cost together: hockey-stick divergences are jointly
convex, and the bound is the same for all blocks (compare Feldman, Shenfeld 2026).

**Shuffling.** A permutation partitions a fixed number of records into batches. Given the
permutation, which is the same whether or not one record is replaced, that record is in one batch of
an epoch: the epoch costs one release without sampling, and by joint convexity so does the mixture
over permutations. No less can be guaranteed: see :func:`shuffle_lower_epsilon`. If records are
added or removed, the others change batches, and the argument fails.

*Floating point.* The transforms change each sum of cells by at most ``_ROUNDING`` for each of the t
terms. This is added to both divergences, and so are errors in the means of cells.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from ..._validation import check_fraction, check_int, check_positive
from .events import Event, Sampled, check_events, described, relations_of, unrolled
from .pairs import Array, Pair, cell_masses, product
from .pld import _power, drop_rounding_noise, lower_epsilon
from .sampling import BallsInBins, EpochSampling, RandomAllocation
from .zcdp import gaussian_lower_epsilon

# Rounding error in the mass of all cells together, for one term of a sum of likelihood ratios.
_ROUNDING = 1e-16
# Cell width of a linear grid over the standard deviation of a ratio: the spread adds at most a
# quarter of the squared width to the variance.
_FINE = 0.03
_MOST_CELLS = 2**21
_MOST_SUMS = 2**26  # cells of a sum of all batches
# The geometric grid: log-ratio of adjacent points, their largest number, and an upper bound on the
# first one, below which the only point is 0.
_STEP, _MOST_POINTS, _FIRST = 0.01, 2000, 1e-4
# Beyond these the noise is so small that sampling gains next to nothing: it is not amplified.
_LARGEST_MU, _LARGEST_LAPLACE = 12.0, 100.0


@dataclass(frozen=True)
class Epoch(Event):
    """One epoch as a single release, all its batches together, which partition the records.

    Parameters
    ----------
    sampling : BallsInBins, RandomAllocation or Shuffle
    events : sequence of Event
        What EACH batch releases (kept as a tuple): the same for all batches, fixed before the
        epoch begins. With BallsInBins or RandomAllocation, Gaussian noise or one Laplace release.

    Raises
    ------
    TypeError
        If an event or the sampling scheme has the wrong type.
    ValueError
        If there is no event, or an event is itself sampled.

    Notes
    -----
    The amplification by partitioning is in the loss distribution of an epoch (accountant "pld");
    for the proof and the computation see :mod:`dpanalysis.privacy.accounting.epochs`. In pure, zCDP
    and Renyi losses, which filters use, an epoch costs what one batch costs without sampling (or
    ``times`` of them): these losses are jointly quasi-convex, and given the batch that contains a
    record, no other batch does.

    References
    ----------
    Choquette-Choo, Ganesh, Haque, Steinke, Thakurta (2024), arXiv:2410.06266; Chua, Ghazi,
    Harrison, Kamath, Kumar, Leeman, Manurangsi, Sinha, Zhang (2024), arXiv:2412.16802; Feldman,
    Shenfeld (2026), arXiv:2602.17284.

    Examples
    --------
    >>> from dpanalysis import privacy
    >>> epoch = privacy.events.Epoch(privacy.BallsInBins(100), [privacy.events.Gaussian(1.0, 1.0)])
    >>> run = privacy.events.Repeated(epoch, 10)
    >>> round(privacy.epsilon(run, 1e-5, "add_or_remove_one"), 2)
    1.7

    Shuffled batches have public sizes: a record is replaced, and moves a clipped sum by twice C.

    >>> shuffled = privacy.events.Epoch(privacy.Shuffle(100), [privacy.events.Gaussian(1.0, 2.0)])
    >>> round(privacy.epsilon(shuffled, 1e-5, "replace_one"), 2)
    10.0
    """

    sampling: EpochSampling
    events: Sequence[Event]

    def __post_init__(self) -> None:
        if type(self.sampling) not in get_args(EpochSampling):
            raise TypeError(
                "sampling must be BallsInBins, RandomAllocation or Shuffle, got "
                f"{self.sampling!r}: batches of other schemes are Sampled events, one each"
            )
        object.__setattr__(self, "events", check_events(self.events, Sampled, Epoch))

    @property
    def relations(self) -> tuple[str, ...]:  # noqa: D102
        return relations_of(self.sampling, *self.events)

    @property
    def immutable(self) -> bool:  # type: ignore[override]  # noqa: D102
        return all(event.immutable for event in self.events)

    def describe(self) -> str:  # noqa: D102
        return described(self.events, self.sampling.describe())

    @property
    def times(self) -> int:
        """Number of batches of an epoch that contain a given record."""
        return self.sampling.times

    def parts(self) -> list[tuple[Event, int]] | None:  # noqa: D102
        amplified = type(self.sampling) in (BallsInBins, RandomAllocation)
        bins = self.sampling.batches // self.times
        if not amplified or bins == 1:
            return [(event, self.times) for event in self.events]
        if self.times > 1:
            return [(Epoch(BallsInBins(bins), self.events), self.times)]
        return None

    def pair(self) -> Pair | None:  # noqa: D102
        inner = product((event.pair(), count) for event, count in map(unrolled, self.events))
        if self.parts() is not None or inner is None or inner.responses:
            return None
        if not (inner.mu or inner.laplace):
            return Pair()
        t = self.sampling.batches
        if _too_fine(inner.mu, inner.laplace, t):
            return inner
        return Bins(inner.mu, inner.laplace, fraction=1.0 / t, poisson=True, batches=t)

    def no_worse(self, other: Epoch) -> bool:  # noqa: D102
        return (
            self.sampling == other.sampling
            and len(self.events) == len(other.events)
            and all(mine.dominates(its) for mine, its in zip(self.events, other.events))
        )

    def pure_cost(self) -> float:  # noqa: D102
        return self.times * math.fsum(event.pure_cost() for event in self.events)

    def zcdp_cost(self) -> float:  # noqa: D102
        return self.times * math.fsum(event.zcdp_cost() for event in self.events)

    def rdp_cost(self, orders: ArrayLike) -> NDArray[np.float64]:  # noqa: D102
        costs = np.array([each.rdp_cost(orders) for each in self.events], dtype=np.float64)
        return self.times * np.asarray(costs.sum(axis=0))


@dataclass(frozen=True)
class Bins(Pair):
    """Dominating pair of a balls-in-bins epoch: noise ``mu`` or one Laplace release per batch."""

    batches: int = 1  # t; ``fraction`` is 1/t
    tail: float = 1e-12  # P-mass that may count as an infinite loss

    @property
    def fallback(self) -> Pair:
        """The pair without amplification."""
        return Pair(self.mu, self.laplace)

    def remove(self, loss: Array) -> Array:
        """Return H(P, Q), where P has the record."""
        ratios, mass, _, infinite = self._laws()
        above = np.searchsorted(ratios, np.exp(np.minimum(loss, 709.0)), side="right")
        mean = _from_above(mass)[above]
        tilted = _from_above(np.divide(mass, ratios, out=np.zeros_like(mass), where=ratios > 0.0))
        inside = mean - np.exp(np.minimum(loss, 709.0)) * tilted[above]
        return np.minimum(np.maximum(inside, 0.0) + infinite, 1.0)

    def add(self, loss: Array) -> Array:
        """Return H(Q, P)."""
        ratios, _, mass, infinite = self._laws()
        below = np.searchsorted(ratios, np.exp(-np.maximum(loss, -700.0)), side="left")
        mean = np.concatenate([[0.0], np.cumsum(mass)])[below]
        part = np.concatenate([[0.0], np.cumsum(mass * ratios)])[below]
        inside = mean - np.exp(np.minimum(loss, 709.0)) * part
        return np.minimum(np.maximum(inside, 0.0) + infinite, 1.0)

    def reach(self, tail: float) -> tuple[float, float]:
        """Return losses of "remove" outside which P has a mass below ``tail`` on either side."""
        ratios, mass, *_ = self._laws()
        some = ratios > 0.0
        below, above = np.cumsum(mass), _from_above(mass)[:-1]
        low = ratios[some & (below >= tail)]
        high = ratios[some & (above >= tail)]
        return math.log(low[0]) if low.size else 0.0, math.log(high[-1]) if high.size else 0.0

    def distribution(self, width: float, tail: float, adding: bool) -> tuple[int, Array, float]:
        """Return the loss on a grid, as for any pair; mass of order ``tail`` is at infinity."""
        tail = 10.0 ** math.floor(math.log10(max(tail, 1e-17)))
        return Pair.distribution(replace(self, tail=tail), width, tail, adding)

    def _laws(self) -> tuple[Array, Array, Array, float]:
        return _epoch(self.mu, self.laplace, self.batches, self.tail)


def _too_fine(mu: float, laplace: float, batches: int) -> bool:
    """Return whether no grid can hold W: too little noise, or so much that W hardly varies."""
    if mu > _LARGEST_MU or laplace > _LARGEST_LAPLACE:
        return True
    return batches > _FINE * _Ratio(mu, laplace).std * _MOST_SUMS


def _from_above(mass: Array) -> Array:
    """Return the sums from each entry on, and 0 at the end; small entries are added first."""
    return np.concatenate([np.cumsum(mass[::-1])[::-1], [0.0]])


# The likelihood ratio of one batch


@dataclass(frozen=True)
class _Ratio:
    """The law of U = dX/dY for Gaussian noise, or one Laplace release."""

    mu: float
    laplace: float

    def end(self, tail: float) -> float:
        """Return b with X(U > b) at most ``tail``."""
        if self.mu:
            return math.exp(self.mu * (0.5 * self.mu - float(special.ndtri(tail))))
        return math.exp(self.laplace + 1e-12)  # never below the atom there, in spite of rounding

    def start(self, tail: float) -> float:
        """Return a > 0 with Y(U <= a) at most ``tail``."""
        if self.mu:
            return math.exp(self.mu * (float(special.ndtri(tail)) - 0.5 * self.mu))
        return 0.5 * math.exp(-self.laplace)

    @property
    def std(self) -> float:
        """The standard deviation of U under Y."""
        if self.mu:
            return math.sqrt(math.expm1(min(self.mu**2, 700.0)))
        return math.sqrt((2.0 * math.exp(self.laplace) + math.exp(-2.0 * self.laplace)) / 3.0 - 1.0)

    def below(self, ratio: Array) -> tuple[Array, Array]:
        """Return Y(U <= ratio) and X(U <= ratio)."""
        return self._tails(ratio, 1.0)

    def above(self, ratio: Array) -> tuple[Array, Array]:
        """Return Y(U > ratio) and X(U > ratio)."""
        return self._tails(ratio, -1.0)

    def _tails(self, ratio: Array, sign: float) -> tuple[Array, Array]:
        with np.errstate(divide="ignore"):
            loss = np.log(ratio)
        if self.mu:
            at, half = loss / self.mu, 0.5 * self.mu
            return special.ndtr(sign * (at + half)), special.ndtr(sign * (at - half))
        # The loss has an atom at each end: Y(-s) = 1/2 and X(s) = 1/2.
        s = self.laplace
        inner = np.clip(loss, -s, s)
        without, with_it = 0.5 * np.exp(-0.5 * (inner + s)), 0.5 * np.exp(0.5 * (inner - s))
        low, high = loss < -s, loss >= s
        above = np.where(low, 1.0, np.where(high, 0.0, without))
        below = np.where(low, 0.0, np.where(high, 1.0, with_it))
        return (1.0 - above, below) if sign > 0.0 else (above, 1.0 - below)


def _cells(ratio: _Ratio, grid: Array) -> list[Array]:
    """Return Y(a < U <= b) and X(a < U <= b) for adjacent points a, b of a grid."""
    return list(map(cell_masses, ratio.below(grid), ratio.above(grid)))


def _spread(ratio: _Ratio, grid: Array) -> Array:
    """Return the masses of U spread onto a grid that begins at 0, keeping cell masses and means."""
    mass, mean = _cells(ratio, grid)
    a, b = grid[:-1], grid[1:]
    up = np.clip((mean - mass * a) / (b - a), 0.0, mass)
    p = np.zeros(grid.size)
    p[1:] += up
    p[:-1] += mass - up
    return p


@lru_cache(maxsize=16)
def _epoch(
    mu: float, laplace: float, batches: int, tail: float
) -> tuple[Array, Array, Array, float]:
    """Return the ratios W'/t, their masses under P and Q, and the mass of infinite losses."""
    ratio = _Ratio(mu, laplace)
    end = ratio.end(tail)
    cells = math.ceil(end / (_FINE * ratio.std))
    width = end / cells
    # A sum spread to 0 has an infinite loss in the "add" direction.
    start = ratio.start(tail ** (1.0 / batches))
    if cells <= _MOST_CELLS and width <= start:
        values, mass, tilted, cut = _linear(ratio, cells, width, batches, tail)
    else:
        values, mass, tilted, cut = _geometric(ratio, min(start, _FIRST), end, batches)
    lost_without, lost_with = (float(each[0]) for each in ratio.above(np.array([end])))
    infinite = cut + lost_with + batches * lost_without + 4.0 * _ROUNDING * batches
    return values / batches, tilted, mass, infinite


def _linear(
    ratio: _Ratio, cells: int, width: float, batches: int, cut: float
) -> tuple[Array, Array, Array, float]:
    """Return values of W', their masses under Q and P, and the mass cut off, by FFT."""
    from scipy import fft

    grid = width * np.arange(cells + 1)
    p = _spread(ratio, grid)
    high = math.ceil(_highest_sum(grid, p, batches, cut) / width)
    size = fft.next_fast_len(max(high + 1, p.size), real=True)
    spectrum, with_it = fft.rfft(p, size), fft.rfft(p * grid, size)
    rest = _power(spectrum, batches - 1)
    laws = (np.maximum(fft.irfft(rest * each, size), 0.0) for each in (spectrum, with_it))
    return width * np.arange(size), *laws, cut


def _highest_sum(grid: Array, p: Array, batches: int, cut: float) -> float:
    """Return a bound that W' exceeds with a P-mass below ``cut``, by Chernoff's inequality."""
    # Under P one term has the law p times its value. Cells are merged as if all were at the highest
    # of them, which only increases the bound.
    starts = np.unique(np.concatenate([[0], np.geomspace(1, p.size - 1, 2000).astype(int)]))
    highest = grid[np.append(starts[1:], p.size) - 1]
    without, with_it = (np.add.reduceat(each, starts) for each in (p, p * grid))
    with np.errstate(divide="ignore"):
        log_without, log_with = np.log(without), np.log(with_it)
    rates = np.geomspace(1e-3, 300.0, 60) / highest[-1]
    rates = np.concatenate([rates, np.geomspace(0.1, 30.0, 40) / batches])
    ends = [
        special.logsumexp(rate * highest + log_with)
        + (batches - 1) * special.logsumexp(rate * highest + log_without)
        for rate in rates
    ]
    return float(np.min((np.array(ends) - math.log(cut)) / rates))


def _geometric(
    ratio: _Ratio, start: float, end: float, batches: int
) -> tuple[Array, Array, Array, float]:
    """Return the same by repeated doubling on a geometric grid that contains ``end``."""
    cells = min(_MOST_POINTS, math.ceil(math.log(end / start) / _STEP))
    step = math.log(end / start) / cells
    more = math.ceil(math.log(batches) / step) + 1
    grid = np.append(0.0, end * np.exp(step * np.arange(-cells, more + 1)))
    law = _spread(ratio, grid[: cells + 2])
    law = np.pad(law, (0, grid.size - law.size))
    sums = grid[:, None] + grid
    low = np.clip(np.searchsorted(grid, sums.ravel(), side="right") - 1, 0, grid.size - 2)
    share = np.clip((sums.ravel() - grid[low]) / (grid[low + 1] - grid[low]), 0.0, 1.0)

    def added(one: Array, other: Array) -> Array:
        mass = np.multiply.outer(one, other).ravel()
        up = mass * share
        below, above = np.bincount(low, mass - up, grid.size), np.bincount(low + 1, up, grid.size)
        return np.asarray(below + above, dtype=np.float64)

    total, power, left = None, law, batches
    while left:
        if left % 2:
            total = power if total is None else added(total, power)
        left //= 2
        power = added(power, power) if left else power
    assert total is not None
    return np.asarray(grid), total, total * grid / batches, 0.0


# Lower bounds


def bins_lower_epsilon(
    noise_multiplier: float, batches: int, delta: float, epochs: int = 1
) -> float:
    """Return a lower bound on the epsilon of epochs of balls in bins with Gaussian noise.

    It bounds the epsilon of the pair P, Q, which is attained if no other record has a gradient. The
    terms of W are rounded down to a grid under P, and so are the losses ln(W/t): each decreases.
    Sums beyond the size of the transform wrap around to small ones. Where the noise is too small
    for a grid, W is at least its term from X: the losses are those of Gaussian noise minus ln t.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation of the noise over a record's effect on a batch's sum, in (0, inf).
    batches : int
        Batches per epoch.
    delta : float
        In (0, 1).
    epochs : int, default=1

    Examples
    --------
    >>> round(bins_lower_epsilon(1.0, 100, 1e-5), 3)
    0.621
    """
    sigma, t, delta, epochs = _checked(noise_multiplier, batches, delta, epochs)
    from scipy import fft

    gaussian = gaussian_lower_epsilon(sigma / math.sqrt(epochs), delta)
    alone = gaussian - epochs * math.log(t) * (1.0 + 1e-15)
    if 1.0 / sigma > _LARGEST_MU:
        return max(0.0, alone)
    ratio = _Ratio(1.0 / sigma, 0.0)
    end = ratio.end(1e-3 * delta / epochs)
    if not (ratio.std > 0.0 and math.isfinite(end)):  # at the ends of the floating-point numbers
        return max(0.0, alone)
    cells = min(_MOST_CELLS // 2, math.ceil(end / (0.001 * ratio.std)))
    grid = end / cells * np.arange(cells + 1)
    # Ratios above the grid are rounded down to its end.
    beyond = ratio.above(grid[-1:])
    y, x = (np.append(mass, above) for mass, above in zip(_cells(ratio, grid), beyond))
    most = _highest_sum(grid, y, t, 1e-3 * delta / epochs) / grid[1]
    if not math.isfinite(most):  # the ratios at a tiny delta overflow
        return max(0.0, alone)
    size = math.ceil(most)
    size = fft.next_fast_len(max(min(size, 2 * _MOST_CELLS), y.size), real=True)
    law = fft.rfft(x, size)
    if t > 1:
        law = law * _power(fft.rfft(y, size), t - 1)
    mass, off = drop_rounding_noise(fft.irfft(law, size), t)
    with np.errstate(divide="ignore"):
        losses = np.log(grid[1] / t * np.arange(size))
    return max(alone, _composed_lower(losses, mass, delta, epochs, off))


def shuffle_lower_epsilon(
    noise_multiplier: float, batches: int, delta: float, epochs: int = 1
) -> float:
    r"""Return a lower bound on the epsilon of shuffled batches with Gaussian noise.

    All records but one have the gradient -C in some direction, and that one C or 0. In units of C
    and up to constants, the law of the released batches is the mean over i of
    :math:`N(2 e_i, \sigma^2)`, or of :math:`N(e_i, \sigma^2)`. The largest coordinate, on a grid,
    is a function of the release.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation of the noise over the bound C on a record's gradient, in (0, inf).
    batches, delta, epochs
        As in :func:`bins_lower_epsilon`.

    References
    ----------
    Chua, Ghazi, Kamath, Kumar, Manurangsi, Sinha, Zhang (2024), How private are DP-SGD
    implementations?, arXiv:2403.17673.

    Examples
    --------
    >>> round(shuffle_lower_epsilon(1.0, 100, 1e-5, epochs=10), 2)
    9.36
    """
    sigma, t, delta, epochs = _checked(noise_multiplier, batches, delta, epochs)
    at = np.linspace(-40.0 * sigma, 2.0 + 40.0 * sigma, 40_001)
    rest = (t - 1) * special.log_ndtr(at / sigma)
    laws = []
    for shift in (2.0, 1.0):
        log_below = special.log_ndtr((at - shift) / sigma) + rest
        laws.append(cell_masses(np.exp(log_below), -np.expm1(log_below)))
    with_it, without = laws
    some = with_it > 1e-280
    mass, without = with_it[some], np.maximum(without[some], 1e-280)  # more Q-mass means less loss
    losses = np.log(mass) - np.log(without) - 1e-9  # rounding of the two laws
    return _composed_lower(losses, mass, delta, epochs, 1e-15)


def _checked(
    noise_multiplier: float, batches: int, delta: float, epochs: int
) -> tuple[float, int, float, int]:
    sigma = check_positive("noise_multiplier", noise_multiplier)
    delta = check_fraction("delta", delta)
    return sigma, check_int("batches", batches, low=1), delta, check_int("epochs", epochs, low=1)


def _composed_lower(
    losses: Array, mass: Array, delta: float, epochs: int, rounding: float
) -> float:
    """Return a lower bound on the epsilon of ``epochs`` losses with the given masses."""
    # Losses are rounded down to a grid, rare small ones are dropped, and rare large ones reduced.
    top = losses[np.flatnonzero(_from_above(mass)[:-1] >= 1e-4 * delta / epochs)[-1:]]
    if not top.size or top[0] <= 0.0:  # or -inf, where the grid is too coarse
        return 0.0
    kept = losses > min(-1.0, -2.0 * float(top[0])) - 20.0
    losses, mass = np.minimum(losses[kept], float(top[0])), mass[kept]
    width = max(1e-4, float(top[0] - losses.min()) * epochs / _MOST_CELLS) / math.sqrt(epochs)
    cells = np.floor(losses / width).astype(np.int64)
    return lower_epsilon(cells, mass, width, delta, epochs, epochs * rounding)
