r"""Exact noise: real numbers drawn digit by digit, and releases without floating-point rounding.

A real number of a continuous law is a function of uniform ones, and a uniform number is a sequence
of random bits. The first 53 bits are drawn at once, for a whole vector, and determine each number
up to a known error: ``middle`` and ``radius``. Where more precision is needed, ``enclosure`` draws
further bits and returns an interval, by interval arithmetic (mpmath), that provably contains the
number. So the law is that of the real numbers: no tail is truncated, and no value is missing.

The errors in ``radius`` are those of the digits not drawn, plus :data:`ROUNDING` of the number for
the operations in double precision. These are at most a dozen, each within 4 units in the last
place, 2^-50, by the error bounds that NumPy states for its logarithm and the polynomials of
:mod:`dpanalysis.privacy._compiled`. Where a number has fewer than 40 significant digits, in the far
tail, its radius is infinite.

Releases under ``rng="os"`` use it. Every privacy bound is about a mechanism on real numbers, such
as :math:`f(D) + \sigma Z`. A computer that adds a rounded Z to f(D) runs a different mechanism,
whose outputs may reveal a record (Mironov 2012). Here the mechanism on real numbers itself is run,
and its output rounded.

*The answer f(D)* is a vector of doubles, which are real numbers. How far a record can move them
because of rounding is part of the sensitivity that is charged (``PublicFacts.rounding``).

*The release* is :math:`F(f(D) + \sigma Z)`, with

.. math:: F(t) = \text{the double next to } g \lfloor t/g + 1/2 \rfloor

for the grid g, a power of two that depends only on :math:`\sigma` and the law, between
:math:`2^{-21}` and :math:`2^{-20}` of it (of :math:`\sqrt d\,\sigma` for spherical noise). F is a
function of the real number :math:`f(D) + \sigma Z` alone. So the release is a post-processing of
the mechanism on real numbers, and costs no more, whatever the bound, the amplification by sampling
and the number of releases. No sensitivity grows by the grid, and nothing is added to delta.

*In doubles.* :math:`f/g` is exact, since g is a power of two, and so are its floor m and the
remainder :math:`p \in [0, 1)`; an f of more than :math:`2^{52} g` is a multiple of g. The integer
:math:`k = \lfloor p + 1/2 + (\sigma/g) Z \rfloor` is determined by the first digits of Z except for
one number in some ten million; then more digits are drawn until it is. The difference of f and its
remainder, and g k, are doubles, and their sum is rounded once. (If f is so small compared to g that
f/g has no normal double, it counts as a number less than :math:`2^{-1074} g` away, which is far
below the slack in the bound on the rounding of f.)

*Decisions.* Whether a noisy number reaches another, and which of several is the least, is decided
in the same way, for the real numbers.

*Not covered.* The running time. More digits are drawn where :math:`f(D) + \sigma Z` is within some
:math:`2^{-23} g` of the middle between two points of the grid: for one in some ten million numbers,
which takes about a millisecond. For spherical noise that is one in a million numbers, and takes a
millisecond for each of the d. Batches are drawn exactly, too, since amplification is proved for
exact draws: see :mod:`dpanalysis.privacy.accounting.sampling`.

The usual alternative is a discrete law on the grid (Canonne, Kamath, Steinke 2020), at the privacy
cost of plain Laplace and Gaussian noise. But the answer has to be rounded to the grid first, which
adds up to :math:`\sqrt d\,g` to its L2 sensitivity; the theorems about batches and about the
sparse vector would have to be proved again; and each number takes many draws.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

HEAD = 53  # binary digits drawn at once
ROUNDING = 2.0**-45
_FAR = 2.0**-40


def arithmetic(digits: int) -> Any:
    """Return a new mpmath context of interval arithmetic with ``digits`` binary digits."""
    from mpmath.ctx_iv import MPIntervalContext  # here, since it is rarely needed

    intervals = MPIntervalContext()
    intervals.prec = digits + 64
    return intervals


class UniformReals:
    """Uniform real numbers: the first digits of each, and more on request."""

    def __init__(self, source: Any, count: int) -> None:
        words = np.asarray(source._bits(count))
        self._source, self._head = source, words >> np.uint64(64 - HEAD)
        self._more: dict[int, tuple[int, int]] = {}
        self.low = self._head * 2.0**-HEAD  # each number is less than 2^-53 above it
        self.spare = words & np.uint64(2 ** (64 - HEAD) - 1)  # 11 bits that no digit depends on

    def enclosure(self, i: int, digits: int, intervals: Any) -> Any:
        """Return an interval that contains number i, of width at most 2^-digits."""
        value, known = self._more.get(i, (int(self._head[i]), HEAD))
        while known < digits:
            value, known = (value << 64) | int(self._source._bits(None)), known + 64
        self._more[i] = value, known
        return intervals.mpf([value, value + 1]) / intervals.mpf(2) ** known


class Reals(ABC):
    """Real random numbers of one law, each within ``radius`` of ``middle``, both (count,)."""

    def __init__(self, source: Any, count: int) -> None:
        self.magnitude = 1.0  # typical size of a number
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            middle, radius = self._draw(source, count)
            good = np.isfinite(middle) & np.isfinite(radius)
        self.middle: NDArray[np.float64] = np.where(good, middle, 0.0)
        self.radius: NDArray[np.float64] = np.where(good, radius, np.inf)

    @abstractmethod
    def _draw(self, source: Any, count: int) -> tuple[Any, Any]:
        """Draw the first digits; return the approximate numbers and bounds on their errors."""

    @abstractmethod
    def _evaluate(self, i: int, digits: int, intervals: Any) -> Any:
        """Return the interval of number i given by so many digits of its uniforms."""

    def enclosure(self, i: int, digits: int, intervals: Any) -> Any:
        """Return an interval that contains number i; its width tends to 0 with more digits."""
        # Widened a little, to cover errors of mpmath's functions.
        value = self._evaluate(i, digits, intervals)
        return value * (1 + intervals.mpf([-1, 1]) / intervals.mpf(2) ** digits)


class Exponential(Reals):
    """Minus the logarithm of a uniform number."""

    def _draw(self, source: Any, count: int) -> tuple[Any, Any]:
        self._uniforms = UniformReals(source, count)
        # The uniform number is less than 2^-53 below ``above``, so the logarithm is less than
        # 2^-53/(above - 2^-53) larger.
        above = self._uniforms.low + 2.0**-HEAD
        middle = -np.log(above)
        radius = np.where(above > _FAR, 2.0 ** (1 - HEAD) / above + ROUNDING * middle, np.inf)
        return middle, radius

    def _evaluate(self, i: int, digits: int, intervals: Any) -> Any:
        return -intervals.log(self._uniforms.enclosure(i, digits, intervals))


class LaplaceReals(Exponential):
    """Exponential numbers with random signs."""

    def _draw(self, source: Any, count: int) -> tuple[Any, Any]:
        middle, radius = super()._draw(source, count)
        self._negative = (self._uniforms.spare & np.uint64(1)) == 1
        return np.where(self._negative, -middle, middle), radius

    def _evaluate(self, i: int, digits: int, intervals: Any) -> Any:
        size = super()._evaluate(i, digits, intervals)
        return -size if self._negative[i] else size


class Gumbel(Exponential):
    """Minus the logarithm of exponential numbers."""

    def _draw(self, source: Any, count: int) -> tuple[Any, Any]:
        size, error = super()._draw(source, count)
        middle = -np.log(size)
        # An error below half of the number moves the logarithm by at most twice the relative error.
        radius = np.where(error < 0.5 * size, 2.0 * error / size, np.inf)
        return middle, radius + ROUNDING * abs(middle)

    def _evaluate(self, i: int, digits: int, intervals: Any) -> Any:
        return -intervals.log(super()._evaluate(i, digits, intervals))


class GaussianReals(Reals):
    """Pairs of normal numbers (Box-Muller): radius from 1 - u, angle 2 pi (v - 1/8)."""

    def _draw(self, source: Any, count: int) -> tuple[Any, Any]:
        from ._compiled import box_muller  # here, since importing Numba is slow

        self._pairs = UniformReals(source, count + count % 2)
        numbers = self._pairs.low.copy()
        above = 1.0 - numbers[::2]  # 1 - u is less than 2^-53 below
        box_muller(numbers)
        radius = np.sqrt((numbers.reshape(-1, 2) ** 2).sum(axis=1))
        # Half the squared radius has the error of an exponential number, the angle 2 pi 2^-53.
        error = 2.0 ** (2 - HEAD) / (above * radius) + ROUNDING * radius
        error = np.where(above > _FAR, error, np.inf)
        return numbers[:count], np.repeat(error, 2)[:count]

    def _evaluate(self, i: int, digits: int, intervals: Any) -> Any:
        first = i - i % 2
        rest = 1 - self._pairs.enclosure(first, digits, intervals)
        angle = self._pairs.enclosure(first + 1, digits, intervals) - intervals.mpf(1) / 8
        turn = intervals.cos if i == first else intervals.sin
        return intervals.sqrt(-2 * intervals.log(rest)) * turn(2 * intervals.pi * angle)


class Spherical(Reals):
    """A vector of density proportional to exp(-||x||_2): a gamma length, a uniform direction."""

    def _draw(self, source: Any, count: int) -> tuple[Any, Any]:
        self._count, self.magnitude = count, math.sqrt(count)
        self._known: Any = None  # digits, and the ratio of the length to that of the normals
        self._normals, self._sizes = GaussianReals(source, count), Exponential(source, count)
        direction, sizes = self._normals, self._sizes
        # Exact sums: rounding errors would grow with the number of coordinates.
        length, norm = math.fsum(sizes.middle), math.sqrt(math.fsum(direction.middle**2))
        length_off = sizes.radius.sum() / np.float64(length)
        norm_off = np.linalg.norm(direction.radius) / np.float64(norm)
        stretch = np.float64(length) / norm
        middle = direction.middle * stretch
        # Relative errors below 1/8 combine to at most twice their sum, products included.
        known = length_off < 0.125 and norm_off < 0.125
        off = 2.0 * (length_off + norm_off) + ROUNDING
        radius = abs(middle) * off + 2.0 * direction.radius * stretch
        return middle, np.where(known, radius, np.inf)

    def _evaluate(self, i: int, digits: int, intervals: Any) -> Any:
        if self._known is None or self._known[0] != digits:
            whole = range(self._count)
            length = sum(self._sizes.enclosure(j, digits, intervals) for j in whole)
            squares = sum(self._normals.enclosure(j, digits, intervals) ** 2 for j in whole)
            self._known = digits, length / intervals.sqrt(squares)
        stretch = intervals.make_mpf(self._known[1]._mpi_)
        return self._normals.enclosure(i, digits, intervals) * stretch


class Cubic(Reals):
    """A vector of density proportional to exp(-max |x_i|): a gamma length, a point in the cube."""

    def _draw(self, source: Any, count: int) -> tuple[Any, Any]:
        self._count, self.magnitude = count, float(count)
        self._known: Any = None  # digits, and the length
        self._points, self._sizes = UniformReals(source, count), Exponential(source, count + 1)
        length, off = math.fsum(self._sizes.middle), self._sizes.radius.sum()
        point = 2.0 * self._points.low - 1.0  # exact, and less than 2^(1-53) below the real one
        middle = length * point
        error = abs(point) * off + 2.0 ** (1 - HEAD) * (length + off) + ROUNDING * abs(middle)
        return middle, error

    def _evaluate(self, i: int, digits: int, intervals: Any) -> Any:
        if self._known is None or self._known[0] != digits:
            sizes = range(self._count + 1)
            length = sum(self._sizes.enclosure(j, digits, intervals) for j in sizes)
            self._known = digits, length
        length = intervals.make_mpf(self._known[1]._mpi_)
        return length * (2 * self._points.enclosure(i, digits, intervals) - 1)


LAWS: dict[str, type[Reals]] = {
    "cubic": Cubic,
    "exponential": Exponential,
    "gaussian": GaussianReals,
    "gumbel": Gumbel,
    "laplace": LaplaceReals,
    "spherical": Spherical,
}


# Releases


GRID = -20  # binary exponent: the grid is at most 2^-20 of the scale
_WHOLE = 2.0**52  # doubles beyond are integers
_ROUNDING = 2.0**-50
_NEAR = 2.0**-40
_DIGITS = 128
_RANGE = 2.0**-900, 2.0**900


def grid(scale: ArrayLike) -> NDArray[np.float64]:
    """Return the largest power of two that is at most 2^-20 of the scale."""
    return np.ldexp(1.0, np.frexp(scale)[1] - 1 + GRID)


def release(source: Any, values: ArrayLike, law: str, scale: ArrayLike) -> NDArray[np.float64]:
    """Return values with noise, rounded to the grid."""
    x = np.asarray(values, dtype=np.float64)
    scales = np.broadcast_to(np.asarray(scale, dtype=np.float64), x.shape)
    check_grid_range(scales)
    noise = LAWS[law](source, x.size)
    step = grid(scales * noise.magnitude)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        multiple = x / step
        whole = np.where(abs(multiple) < _WHOLE, np.floor(multiple), 0.0)
        part = np.where(abs(multiple) < _WHOLE, multiple - whole, 0.0)
        base = np.where(abs(multiple) < _WHOLE, whole * step, x)
    unit = scales / step
    place = part + 0.5 + unit * noise.middle
    error = unit * noise.radius + (abs(place) + 2.0) * _ROUNDING
    number = np.floor(place)
    for i in np.flatnonzero(~(abs(place - np.rint(place)) > error)):
        number[i] = _until(partial(_floor, noise, int(i), float(part[i]), float(unit[i])))
    return base + step * number + 0.0


def nearly(source: Any, law: str, scale: float, d: int) -> tuple[NDArray[np.float64], float]:
    """Return doubles near exact noise, and a bound on the L2 distance, some 2^-45 of its norm.

    A computation that needs doubles must account for that distance.
    """
    check_grid_range(scale)
    noise = LAWS[law](source, d)
    numbers, error = noise.middle.copy(), noise.radius.copy()
    for i in np.flatnonzero(error > _NEAR * (1.0 + abs(numbers))):
        low, high = _until(partial(_narrow, noise, int(i)))
        numbers[i], error[i] = 0.5 * (low + high), high - low
    error = error + _ROUNDING * abs(numbers)
    return scale * numbers, (1.0 + _ROUNDING) * scale * float(np.linalg.norm(error))


def positive(constants: Sequence[float], terms: Sequence[tuple[float, Reals, int]]) -> bool:
    """Return whether the sum of constants and of multiples of real random numbers is positive."""
    numbers = [(factor, noise, i) for factor, noise, i in terms if factor]
    if not numbers:
        return math.fsum(constants) >= 0.0
    middles = [*constants, *(factor * float(noise.middle[i]) for factor, noise, i in numbers)]
    error = sum(abs(factor) * float(noise.radius[i]) for factor, noise, i in numbers)
    error += _ROUNDING * sum(map(abs, middles))
    total = sum(middles)
    if abs(total) > error:
        return total > 0.0

    def sign(digits: int, intervals: Any) -> bool | None:
        exact = sum(intervals.mpf(constant) for constant in constants)
        for factor, noise, i in numbers:
            exact += intervals.mpf(factor) * noise.enclosure(i, digits, intervals)
        return None if exact.a <= 0 <= exact.b else bool(exact.a > 0)

    return _until(sign)


def not_below(
    values: NDArray[np.float64], wanted: float, *terms: tuple[float, Reals]
) -> NDArray[np.intp]:
    """Return the indices at which :func:`positive` may be true of values, noise and ``-wanted``.

    Noise is one real number for all values, or one for each.
    """
    middle, error = values - wanted, _ROUNDING * (abs(values) + abs(wanted))
    for factor, noise in (each for each in terms if each[0]):
        middle = middle + factor * noise.middle
        error = error + abs(factor) * noise.radius + _ROUNDING * abs(factor * noise.middle)
    return np.flatnonzero(middle >= -2.0 * error)


def smallest(
    source: Any, values: ArrayLike, offsets: ArrayLike, law: str, scale: float, count: int
) -> NDArray[np.intp]:
    """Return the indices of the ``count`` smallest of values + offsets - scale times noise."""
    x, more = np.asarray(values, dtype=np.float64), np.asarray(offsets, dtype=np.float64)
    check_grid_range(scale)
    noise = LAWS[law](source, x.size)
    middle = x - scale * noise.middle + more
    error = scale * noise.radius
    error = error + _ROUNDING * (abs(x) + abs(more) + abs(scale * noise.middle))
    order = _order(middle - error, middle + error, count)
    if order is not None:
        return order

    def exact(digits: int, intervals: Any) -> NDArray[np.intp] | None:
        sums = [
            intervals.mpf(value) + offset - scale * noise.enclosure(i, digits, intervals)
            for i, (value, offset) in enumerate(zip(x.tolist(), more.tolist()))
        ]
        low, high = (np.array(ends, dtype=object) for ends in zip(*((s.a, s.b) for s in sums)))
        return _order(low, high, count)

    return _until(exact)


def check_grid_range(scale: ArrayLike) -> None:
    """Raise ValueError if the grid of a scale could leave the normal numbers."""
    low, high = _RANGE
    values = np.asarray(scale)
    if not ((values >= low) & (values <= high)).all():
        raise ValueError(
            f"exact noise wants scales from {low:.0e} to {high:.0e}, got {scale!r}: give the "
            "features, or the clip norm, another unit"
        )


def _order(low: Any, high: Any, count: int) -> NDArray[np.intp] | None:
    """Return the indices of the ``count`` smallest, None if the intervals do not decide."""
    order = np.argsort(low, kind="stable")
    for k in range(min(count, len(order) - 1)):
        if not high[order[k]] < low[order[k + 1 :]].min():
            return None
    return order[:count]


def _until(decide: Callable[[int, Any], Any]) -> Any:
    """Return a decision, doubling the digits until there is one; distinct reals differ in some."""
    digits = _DIGITS
    while (answer := decide(digits, arithmetic(digits))) is None:
        digits *= 2
    return answer


def _floor(
    noise: Reals, i: int, part: float, unit: float, digits: int, intervals: Any
) -> float | None:
    """Return the floor of part + 1/2 + unit times real number i, None if it is undecided."""
    from mpmath.libmp import finf, fninf, round_floor, to_int

    place = intervals.mpf(part) + 0.5 + unit * noise.enclosure(i, digits, intervals)
    if fninf == place._mpi_[0] or finf == place._mpi_[1]:  # all digits are zeros so far
        return None
    low, high = (to_int(end, round_floor) for end in place._mpi_)
    return float(low) if low == high else None


def _narrow(noise: Reals, i: int, digits: int, intervals: Any) -> tuple[float, float] | None:
    """Return close doubles that enclose real number i, None if the interval is too wide."""
    from mpmath.libmp import round_ceiling, round_floor, to_float

    ends = noise.enclosure(i, digits, intervals)._mpi_
    low, high = to_float(ends[0], rnd=round_floor), to_float(ends[1], rnd=round_ceiling)
    return (low, high) if high - low <= _NEAR * (1.0 + min(abs(low), abs(high))) else None
