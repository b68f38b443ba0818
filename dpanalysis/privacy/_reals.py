r"""Random real numbers, drawn digit by digit: no rounding, and as many digits as are asked for.

A real number of a continuous law is a function of uniform ones, and a uniform number is a sequence
of coin flips. The first 53 flips are drawn at once, for a whole vector, and give each number up to
a known error: ``middle`` and ``radius``. Whoever needs to know a number better asks for an
enclosure. Then the flips go on, and interval arithmetic (mpmath) gives an interval that
holds the number for sure. So the law is that of the real numbers: no tail ends, and no value is
missing.

The errors in ``radius`` are those of the digits not drawn, plus :data:`ROUNDING` of the number for
the operations in double precision. These are at most a dozen, each within 4 units in the last
place, 2^-50, by the error bounds that NumPy states for its logarithm and the polynomials of
:mod:`dpanalysis.privacy._normal`. Where a number has fewer than 40 digits that count, in the far
tail, its radius is infinite.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["LAWS", "Reals", "arithmetic"]

HEAD = 53  # binary digits drawn at once
ROUNDING = 2.0**-45
_FAR = 2.0**-40


def arithmetic(digits: int) -> Any:
    """Return mpmath's interval arithmetic for numbers of so many digits; one of one's own."""
    from mpmath.ctx_iv import MPIntervalContext  # here: it is rarely needed

    intervals = MPIntervalContext()
    intervals.prec = digits + 64
    return intervals


class Uniforms:
    """Uniform numbers in (0, 1), of which 53 binary digits are known, and more on demand.

    Parameters
    ----------
    source : SystemRandom
    count : int

    Attributes
    ----------
    low : float64 array of shape (count,)
        The number lies between this and this plus 2^-53.
    spare : uint64 array of shape (count,)
        11 random bits each, which no digit depends on.
    """

    def __init__(self, source: Any, count: int) -> None:
        words = np.asarray(source._bits(count))
        self._source, self._head = source, words >> np.uint64(64 - HEAD)
        self._more: dict[int, tuple[int, int]] = {}
        self.low = self._head * 2.0**-HEAD
        self.spare = words & np.uint64(2 ** (64 - HEAD) - 1)

    def enclosure(self, i: int, digits: int, intervals: Any) -> Any:
        """Return an interval that holds number i, of width at most 2^-digits."""
        value, known = self._more.get(i, (int(self._head[i]), HEAD))
        while known < digits:
            value, known = (value << 64) | int(self._source._bits(None)), known + 64
        self._more[i] = value, known
        return intervals.mpf([value, value + 1]) / intervals.mpf(2) ** known


class Reals(ABC):
    """Real random numbers of one law.

    Parameters
    ----------
    source : SystemRandom
    count : int

    Attributes
    ----------
    middle, radius : float64 array of shape (count,)
        Each number is within ``radius`` of ``middle``.
    spread : float
        About how large a number is.
    """

    def __init__(self, source: Any, count: int) -> None:
        self.spread = 1.0
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            middle, radius = self._draw(source, count)
            good = np.isfinite(middle) & np.isfinite(radius)
        self.middle: NDArray[np.float64] = np.where(good, middle, 0.0)
        self.radius: NDArray[np.float64] = np.where(good, radius, np.inf)

    @abstractmethod
    def _draw(self, source: Any, count: int) -> tuple[Any, Any]:
        """Draw the first digits; return what they give, and how far off that may be."""

    @abstractmethod
    def _evaluate(self, i: int, digits: int, intervals: Any) -> Any:
        """Return the interval of number i that so many digits of its uniforms give."""

    def enclosure(self, i: int, digits: int, intervals: Any) -> Any:
        """Return an interval that holds number i; its width falls to 0 with more digits.

        It is a little wider than interval arithmetic gives it, for the functions' own errors.
        """
        value = self._evaluate(i, digits, intervals)
        return value * (1 + intervals.mpf([-1, 1]) / intervals.mpf(2) ** digits)


class Exponential(Reals):
    """Minus the logarithm of a uniform number."""

    def _draw(self, source: Any, count: int) -> tuple[Any, Any]:
        self._uniforms = Uniforms(source, count)
        # The uniform number is less than 2^-53 below ``above``, so the logarithm is less than
        # 2^-53/(above - 2^-53) larger.
        above = self._uniforms.low + 2.0**-HEAD
        middle = -np.log(above)
        radius = np.where(above > _FAR, 2.0 ** (1 - HEAD) / above + ROUNDING * middle, np.inf)
        return middle, radius

    def _evaluate(self, i: int, digits: int, intervals: Any) -> Any:
        return -intervals.log(self._uniforms.enclosure(i, digits, intervals))


class Laplace(Exponential):
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
        # Below half of the number, its error moves the logarithm by at most twice as much.
        radius = np.where(error < 0.5 * size, 2.0 * error / size, np.inf)
        return middle, radius + ROUNDING * abs(middle)

    def _evaluate(self, i: int, digits: int, intervals: Any) -> Any:
        return -intervals.log(super()._evaluate(i, digits, intervals))


class Gaussian(Reals):
    """Pairs of normal numbers, by Box and Muller's transform.

    The radius is that of a uniform number 1 - u, and the angle 2 pi (v - 1/8).
    """

    def _draw(self, source: Any, count: int) -> tuple[Any, Any]:
        from ._normal import box_muller  # here: Numba takes its time

        self._pairs = Uniforms(source, count + count % 2)
        numbers = self._pairs.low.copy()
        above = 1.0 - numbers[::2]  # 1 - u is less than 2^-53 below
        box_muller(numbers)
        radius = np.sqrt((numbers.reshape(-1, 2) ** 2).sum(axis=1))
        # Half the squared radius is off as an exponential number is, the angle by 2 pi 2^-53.
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
        self._count, self.spread = count, math.sqrt(count)
        self._known: Any = None  # digits, and the length over that of the normal numbers
        self._normals, self._sizes = Gaussian(source, count), Exponential(source, count)
        direction, sizes = self._normals, self._sizes
        # Sums without rounding: their error would grow with the number of coordinates.
        length, norm = math.fsum(sizes.middle), math.sqrt(math.fsum(direction.middle**2))
        length_off = sizes.radius.sum() / np.float64(length)
        norm_off = np.linalg.norm(direction.radius) / np.float64(norm)
        stretch = np.float64(length) / norm
        middle = direction.middle * stretch
        # Relative errors below 1/8 add up to no more than twice their sum, products included.
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
    """A vector of density proportional to exp(-max |x_i|): a gamma length, a point of the cube."""

    def _draw(self, source: Any, count: int) -> tuple[Any, Any]:
        self._count, self.spread = count, float(count)
        self._known: Any = None  # digits, and the length
        self._points, self._sizes = Uniforms(source, count), Exponential(source, count + 1)
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
    "gaussian": Gaussian,
    "gumbel": Gumbel,
    "laplace": Laplace,
    "spherical": Spherical,
}
