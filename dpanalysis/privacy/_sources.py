"""Where random numbers come from: a seeded generator, or the operating system's entropy."""

from __future__ import annotations

import os
from typing import Any, TypeAlias

import numpy as np

from .._validation import check_int, check_rng
from . import _noise
from ._noise import Size, shape_of

__all__ = ["Random", "SystemRandom", "random_source", "spawn"]


class SystemRandom:
    """Random numbers from the operating system's entropy; never repeatable.

    It offers the part of :class:`numpy.random.Generator` that the library uses.

    Attributes
    ----------
    floating : bool
        Whether it has given numbers in floating point: uniforms, or noise made of them. Exact
        noise and integers take the bits themselves.

    Examples
    --------
    >>> source = SystemRandom()
    >>> bool((source.random(100) < 1.0).all())
    True
    """

    floating = False

    def __repr__(self) -> str:
        return "SystemRandom()"

    def _bits(self, size: Size) -> Any:
        """Return 64 independent bits an entry."""
        count = 1 if size is None else int(np.prod(size, dtype=np.int64))
        bits = np.frombuffer(os.urandom(8 * count), dtype=np.uint64)
        return bits[0] if size is None else bits.reshape(size)

    def random(self, size: Size = None) -> Any:
        """Return uniforms in [0, 1) with 53 random bits."""
        self.floating = True
        return (self._bits(size) >> np.uint64(11)) * 2.0**-53

    def laplace(self, loc: Any = 0.0, scale: Any = 1.0, size: Size = None) -> Any:
        """Return Laplace noise, as :func:`laplace` makes it."""
        return loc + _noise.laplace(self, scale, shape_of(size, loc, scale))

    def _unit_laplace(self, size: Size) -> Any:
        """Return Laplace noise of scale 1 that ends at 36.7, by the inverse of its CDF.

        The uniform lies in (0, 1], so the logarithm is finite; the sign has its own bit.
        """
        self.floating = True
        bits = self._bits(size)
        magnitude = -np.log(((bits >> np.uint64(11)) + 1.0) * 2.0**-53)
        return np.where(bits & np.uint64(1), magnitude, -magnitude)

    def normal(self, loc: Any = 0.0, scale: Any = 1.0, size: Size = None) -> Any:
        """Return Gaussian noise, as :func:`gaussian` makes it."""
        return loc + _noise.gaussian(self, scale, shape_of(size, loc, scale))

    def trials(self, rate: float, count: int) -> Any:
        """Return the sorted numbers, below ``count``, of the trials that succeed.

        Each does with a chance of exactly ``rate``, in [0, 1): where a uniform real number is
        below it. Digits of both to the base 256 are compared until they differ; those of a rate
        in floating point are exact, and end. It takes a byte a trial, and one more for 1 in 256.
        """
        undecided, found = np.arange(count), []
        while undecided.size and rate > 0.0:
            digit, rate = divmod(256.0 * rate, 1.0)
            drawn = np.frombuffer(os.urandom(undecided.size), dtype=np.uint8)
            found.append(undecided[drawn < digit])
            undecided = undecided[drawn == digit]
        return np.sort(np.concatenate(found)) if found else undecided[:0]

    def integers(self, low: int, high: int | None = None, size: Size = None) -> Any:
        """Return integers uniform on [low, high), or on [0, low), without bias."""
        if high is None:
            low, high = 0, low
        span = check_int("high - low", high - low, low=1, high=2**63 - 1)
        # Bits above the largest multiple of the span are drawn again.
        limit = np.uint64(2**64 - 1 - 2**64 % span)
        bits = np.array(self._bits(size))
        while (redraw := bits > limit).any():
            bits[redraw] = self._bits(int(redraw.sum()))
        result = (bits % np.uint64(span)).astype(np.int64) + low
        return int(result) if size is None else result


Random: TypeAlias = np.random.Generator | SystemRandom


def random_source(rng: Any = None) -> Random:
    """Return the random source that ``rng`` names.

    Parameters
    ----------
    rng : None, int, SeedSequence, Generator, SystemRandom or "os"
        None seeds a generator afresh; "os" is the operating system's entropy.

    Returns
    -------
    numpy.random.Generator or SystemRandom

    Raises
    ------
    TypeError
        If ``rng`` is none of these (SPEC 7).
    ValueError
        If it is a negative number.

    Examples
    --------
    >>> bool(random_source(7).integers(100) == random_source(7).integers(100))
    True
    >>> random_source("os")
    SystemRandom()
    """
    if isinstance(rng, (np.random.Generator, SystemRandom)):
        return rng
    if isinstance(rng, str) and rng == "os":
        return SystemRandom()
    seeds = (int, np.integer, np.random.SeedSequence)
    if rng is None or (isinstance(rng, seeds) and not isinstance(rng, bool)):
        return check_rng(rng)
    raise TypeError(
        'rng must be None, an int, a SeedSequence, a Generator, a SystemRandom or "os", '
        f"got {rng!r}"
    )


def spawn(rng: Any, count: int) -> list[Random]:
    """Return ``count`` independent sources; child i does not depend on ``count``.

    Parameters
    ----------
    rng : as for :func:`random_source`
        A generator or seed sequence is advanced, so that a second call gives new
        children; an int gives the same children every time.
    count : int
        At least 0.

    Returns
    -------
    list of numpy.random.Generator or SystemRandom

    Raises
    ------
    TypeError
        If ``rng`` is none of the allowed kinds.

    Examples
    --------
    >>> few, many = spawn(3, 2), spawn(3, 9)
    >>> few[1].random() == many[1].random()
    True
    """
    count = check_int("count", count)
    if isinstance(rng, np.random.SeedSequence):
        return [np.random.default_rng(child) for child in rng.spawn(count)]
    source = random_source(rng)
    if isinstance(source, SystemRandom):
        return [SystemRandom() for _ in range(count)]
    return list(source.spawn(count))
