r"""Releases that floating point does not touch: what ``rng="os"`` runs.

Every bound of privacy is about a mechanism on real numbers, such as :math:`f(D) + \sigma Z`. A
computer that adds a rounded Z to f(D) runs another one, whose outputs may give a record away
(Mironov 2012). Here the mechanism on real numbers itself is run, and its answer rounded.

*The answer f(D)* is a vector of doubles, and these are real numbers. How far rounding lets a
record move them is part of the sensitivity that is charged (``PublicFacts.rounding``).

*The noise Z* is a vector of real numbers (:mod:`dpanalysis.privacy._reals`): never stored, but
known as well as one asks.

*The release* is :math:`F(f(D) + \sigma Z)`, with

.. math:: F(t) = \text{the double next to } g \lfloor t/g + 1/2 \rfloor

for the grid g, a power of two that depends on :math:`\sigma` and the law alone, between
:math:`2^{-21}` and :math:`2^{-20}` of it (of :math:`\sqrt d\,\sigma` for spherical noise). F looks
at nothing but the real number :math:`f(D) + \sigma Z`. So the release is that of the mechanism on
real numbers after a step that sees no record, and costs what that costs, no more: whatever the
bound, the amplification by sampling and the number of releases. No sensitivity grows by the grid,
and nothing is added to delta.

*In doubles.* :math:`f/g` is exact, since g is a power of two, and so are its floor m and the rest
:math:`p \in [0, 1)`; an f of more than :math:`2^{52} g` is a multiple of g. The integer
:math:`k = \lfloor p + 1/2 + (\sigma/g) Z \rfloor` is known from the first digits of Z but for one
number in some ten million; for that one the digits go on until it is known. Then f less its rest,
and g k, are doubles, and their sum is rounded once. (Where f is so small beside g that f/g has no
normal double, it counts as a number less than :math:`2^{-1074} g` away, which is far below the
slack in the bound on the rounding of f.)

*Decisions.* Whether a noisy number reaches another, and which of several is the least, is decided
in the same way, for the real numbers.

*Not covered.* The time that this takes. More digits are drawn where :math:`f(D) + \sigma Z` is
within some :math:`2^{-23} g` of the middle between two points of the grid: for one in some ten
million numbers, a millisecond or so. For spherical noise that is one in a million numbers, and
takes a millisecond for each of the d. The draw of a batch is exact, too, see
:mod:`dpanalysis.privacy.sampling`: amplification is proved for exact draws.

The usual way is a discrete law on the grid (Canonne, Kamath, Steinke 2020). It costs what Laplace
and Gaussian noise cost by themselves. But the answer has to be rounded to the grid first, which
adds up to :math:`\sqrt d\,g` to its L2 sensitivity; the theorems about batches and about the
sparse vector would have to be proved again; and each number takes many draws.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _reals
from ._reals import LAWS, Reals

__all__ = ["GRID", "grid", "nearly", "positive", "release", "smallest"]

GRID = -20  # binary exponent: the grid is at most 2^-20 of the scale
_WHOLE = 2.0**52  # doubles beyond are whole numbers
_ROUNDING = 2.0**-50
_NEAR = 2.0**-40
_DIGITS = 128
_RANGE = 2.0**-900, 2.0**900


def grid(scale: ArrayLike) -> NDArray[np.float64]:
    """Return the largest power of two that is at most 2^-20 of the scale."""
    return np.ldexp(1.0, np.frexp(scale)[1] - 1 + GRID)


def release(source: Any, values: ArrayLike, law: str, scale: ArrayLike) -> NDArray[np.float64]:
    """Return values with noise, on the grid.

    Parameters
    ----------
    source : SystemRandom
    values : array_like of shape (d,)
    law : str
        One of :data:`dpanalysis.privacy._reals.LAWS`, at scale 1.
    scale : float or array_like of shape (d,)
        What the noise is multiplied by; positive.

    Raises
    ------
    ValueError
        If a scale is below 2^-900 or above 2^900.
    """
    x = np.asarray(values, dtype=np.float64)
    spread = np.broadcast_to(np.asarray(scale, dtype=np.float64), x.shape)
    check_scale(spread)
    noise = LAWS[law](source, x.size)
    step = grid(spread * noise.spread)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        multiple = x / step
        whole = np.where(abs(multiple) < _WHOLE, np.floor(multiple), 0.0)
        part = np.where(abs(multiple) < _WHOLE, multiple - whole, 0.0)
        base = np.where(abs(multiple) < _WHOLE, whole * step, x)
    unit = spread / step
    place = part + 0.5 + unit * noise.middle
    error = unit * noise.radius + (abs(place) + 2.0) * _ROUNDING
    number = np.floor(place)
    for i in np.flatnonzero(~(abs(place - np.rint(place)) > error)):
        number[i] = _until(partial(_floor, noise, int(i), float(part[i]), float(unit[i])))
    return base + step * number + 0.0


def nearly(source: Any, law: str, scale: float, d: int) -> tuple[NDArray[np.float64], float]:
    """Return doubles near real noise, and how far from it they may be, in the L2 norm.

    For a computation that must have doubles. Whoever makes it accounts for the distance, which is
    some 2^-45 of the noise.
    """
    check_scale(scale)
    noise = LAWS[law](source, d)
    numbers, error = noise.middle.copy(), noise.radius.copy()
    for i in np.flatnonzero(error > _NEAR * (1.0 + abs(numbers))):
        low, high = _until(partial(_narrow, noise, int(i)))
        numbers[i], error[i] = 0.5 * (low + high), high - low
    error = error + _ROUNDING * abs(numbers)
    return scale * numbers, (1.0 + _ROUNDING) * scale * float(np.linalg.norm(error))


def positive(constants: Sequence[float], terms: Sequence[tuple[float, Reals, int]]) -> bool:
    """Return whether the sum of constants and of multiples of real random numbers is positive.

    Parameters
    ----------
    constants : sequence of float
    terms : sequence of (factor, numbers, place)
    """
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


def smallest(
    source: Any, values: ArrayLike, offsets: ArrayLike, law: str, scale: float, count: int
) -> NDArray[np.intp]:
    """Return the places of the ``count`` smallest of values + offsets - scale times noise."""
    x, more = np.asarray(values, dtype=np.float64), np.asarray(offsets, dtype=np.float64)
    check_scale(scale)
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


def check_scale(scale: ArrayLike) -> None:
    """Raise ValueError where the grid of a scale could leave the normal numbers."""
    low, high = _RANGE
    values = np.asarray(scale)
    if not ((values >= low) & (values <= high)).all():
        raise ValueError(
            f"exact noise wants scales from {low:.0e} to {high:.0e}, got {scale!r}: give the "
            "features, or the clip norm, another unit"
        )


def _order(low: Any, high: Any, count: int) -> NDArray[np.intp] | None:
    """Return the places of the ``count`` smallest, None where the intervals leave it open."""
    order = np.argsort(low, kind="stable")
    for k in range(min(count, len(order) - 1)):
        if not high[order[k]] < low[order[k + 1 :]].min():
            return None
    return order[:count]


def _until(decide: Callable[[int, Any], Any]) -> Any:
    """Return what is decided once there are digits enough; two real numbers differ in one."""
    digits = _DIGITS
    while (answer := decide(digits, _reals.arithmetic(digits))) is None:
        digits *= 2
    return answer


def _floor(
    noise: Reals, i: int, part: float, unit: float, digits: int, intervals: Any
) -> float | None:
    """Return the floor of part + 1/2 + unit times real number i, None where it is open."""
    from mpmath.libmp import finf, fninf, round_floor, to_int

    place = intervals.mpf(part) + 0.5 + unit * noise.enclosure(i, digits, intervals)
    if fninf == place._mpi_[0] or finf == place._mpi_[1]:  # no digit but zeros as yet
        return None
    low, high = (to_int(end, round_floor) for end in place._mpi_)
    return float(low) if low == high else None


def _narrow(noise: Reals, i: int, digits: int, intervals: Any) -> tuple[float, float] | None:
    """Return doubles around real number i that are near each other, None where none are."""
    from mpmath.libmp import round_ceiling, round_floor, to_float

    ends = noise.enclosure(i, digits, intervals)._mpi_
    low, high = to_float(ends[0], rnd=round_floor), to_float(ends[1], rnd=round_ceiling)
    return (low, high) if high - low <= _NEAR * (1.0 + min(abs(low), abs(high))) else None
