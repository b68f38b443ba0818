"""The only place where noise comes from.

A seeded generator makes runs repeatable and is for research: who knows the seed, or can
exploit the floating-point grid, can undo the noise. ``rng="os"`` draws every number from
the operating system's entropy instead. Rounding the noisy answers to a grid fixed
beforehand is a later hardening step that belongs here.

Two runs that are released together need different seeds. Runs with the same integer ``rng`` get
the same noise, so that the difference of their answers is that of the exact answers, whatever
the budget: no accountant and no filter can see this. ``rng=None`` seeds every run afresh.

The tails of all noises have full precision: see :mod:`dpanalysis.privacy._tails`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from .._validation import check_int, check_rng, largest
from . import _tails

__all__ = [
    "Random",
    "SystemRandom",
    "add_noise",
    "exponential",
    "gaussian",
    "gumbel",
    "laplace",
    "random_source",
    "spawn",
    "spherical",
]

Size: TypeAlias = int | Sequence[int] | None

# From so many numbers a replicate on, a device draws its noise itself. Its generator is about 70
# calls of some 5 microseconds, whatever the length; the host takes 2.6 ns a number.
DRAWN_ON_DEVICE = 100_000


class SystemRandom:
    """Random numbers from the operating system's entropy; never repeatable.

    It offers the part of :class:`numpy.random.Generator` that the library uses.

    Examples
    --------
    >>> source = SystemRandom()
    >>> bool((source.random(100) < 1.0).all())
    True
    """

    def __repr__(self) -> str:
        return "SystemRandom()"

    def _bits(self, size: Size) -> Any:
        """Return 64 independent bits an entry."""
        count = 1 if size is None else int(np.prod(size, dtype=np.int64))
        bits = np.frombuffer(os.urandom(8 * count), dtype=np.uint64)
        return bits[0] if size is None else bits.reshape(size)

    def random(self, size: Size = None) -> Any:
        """Return uniforms in [0, 1) with 53 random bits."""
        return (self._bits(size) >> np.uint64(11)) * 2.0**-53

    def laplace(self, loc: Any = 0.0, scale: Any = 1.0, size: Size = None) -> Any:
        """Return Laplace noise, as :func:`laplace` makes it."""
        return loc + laplace(self, scale, _shape(size, loc, scale))

    def _unit_laplace(self, size: Size) -> Any:
        """Return Laplace noise of scale 1 that ends at 36.7, by the inverse of its CDF.

        The uniform lies in (0, 1], so the logarithm is finite; the sign has its own bit.
        """
        bits = self._bits(size)
        magnitude = -np.log(((bits >> np.uint64(11)) + 1.0) * 2.0**-53)
        return np.where(bits & np.uint64(1), magnitude, -magnitude)

    def normal(self, loc: Any = 0.0, scale: Any = 1.0, size: Size = None) -> Any:
        """Return Gaussian noise, as :func:`gaussian` makes it."""
        return loc + gaussian(self, scale, _shape(size, loc, scale))

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


def _shape(size: Size, *parameters: ArrayLike) -> Size:
    """Return ``size``, or the broadcast shape of the parameters where that is None."""
    if size is not None:
        return size
    return np.broadcast_shapes(*(np.shape(parameter) for parameter in parameters)) or None


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


def laplace(random: Random, scale: ArrayLike, size: Size = None) -> Any:
    """Return zero-mean Laplace noise.

    Parameters
    ----------
    random : source from :func:`random_source`
    scale : float or array_like
        Scale b in [0, inf): the density is exp(-|x|/b)/(2b), the variance 2 b**2.
    size : int or tuple of int, optional
        Shape; by default that of ``scale``.

    Returns
    -------
    ndarray or float

    Raises
    ------
    ValueError
        If a scale is negative, infinite or NaN.

    Examples
    --------
    >>> noise = laplace(random_source(0), 2.0, 100_000)
    >>> round(float(abs(noise).mean()), 1)
    2.0
    """
    spread = _spread("scale", scale)
    return _unit_laplace(random, _shape(size, spread)) * spread


def _unit_laplace(random: Random, size: Size) -> Any:
    """Return Laplace noise of scale 1, with tails of full precision."""
    if isinstance(random, SystemRandom):
        unit = np.asarray(random._unit_laplace(size))
    else:
        unit = np.asarray(random.laplace(0.0, 1.0, size))
    if unit.size and _tails.far(largest(unit)):
        places = _tails.far(abs(unit))
        unit[places] = np.copysign(_tails.beyond(random, int(places.sum())), unit[places])
    return float(unit) if unit.ndim == 0 else unit


def exponential(random: Random, scale: ArrayLike, size: Size = None) -> Any:
    """Return exponential noise, positive and of mean ``scale``: the size of Laplace noise.

    Parameters
    ----------
    random : source from :func:`random_source`
    scale : float or array_like
        In [0, inf).
    size : int or tuple of int, optional
        Shape; by default that of ``scale``.

    Returns
    -------
    ndarray or float

    Raises
    ------
    ValueError
        If a scale is negative, infinite or NaN.

    Examples
    --------
    >>> noise = exponential(random_source(0), 2.0, 100_000)
    >>> bool(noise.min() >= 0.0), round(float(noise.mean()), 1)
    (True, 2.0)
    """
    return abs(laplace(random, scale, size))


def gumbel(random: Random, scale: ArrayLike, size: Size = None) -> Any:
    """Return Gumbel noise: minus ``scale`` times the logarithm of a unit exponential.

    Added to values, it gives the largest of them with the probabilities of the exponential
    mechanism, in proportion to exp(value/scale).

    Parameters
    ----------
    random : source from :func:`random_source`
    scale : float or array_like
        In [0, inf).
    size : int or tuple of int, optional
        Shape; by default that of ``scale``.

    Returns
    -------
    ndarray or float

    Raises
    ------
    ValueError
        If a scale is negative, infinite or NaN.

    Examples
    --------
    >>> noise = gumbel(random_source(0), 2.0, 100_000)     # the mean is 0.5772 scale
    >>> round(float(noise.mean()), 1), round(float(noise.std()), 1)
    (1.2, 2.6)
    """
    spread = _spread("scale", scale)
    unit = np.asarray(exponential(random, 1.0, _shape(size, spread)))
    if unit.size and unit.min() < _tails.SMALL:
        places = unit < _tails.SMALL  # also where it is 0
        unit[places] = _tails.small(random, int(places.sum()))
    return -spread * np.log(unit)


def gaussian(random: Random, std: ArrayLike, size: Size = None) -> Any:
    """Return zero-mean Gaussian noise.

    By Box and Muller's transform of the source's uniforms in double precision: two to four
    times as fast as a generator's own, and the same numbers on every machine.

    Parameters
    ----------
    random : source from :func:`random_source`
    std : float or array_like
        Standard deviation in [0, inf).
    size : int or tuple of int, optional
        Shape; by default that of ``std``.

    Returns
    -------
    ndarray or float

    Raises
    ------
    ValueError
        If a standard deviation is negative, infinite or NaN.

    Examples
    --------
    >>> noise = gaussian(random_source(0), 3.0, (100, 1000))
    >>> noise.shape, round(float(noise.std()), 1)
    ((100, 1000), 3.0)
    """
    from ._normal import box_muller  # here: Numba takes its time

    spread = _spread("std", std)
    shape = _shape(size, spread)
    count = 1 if shape is None else int(np.prod(shape, dtype=np.int64))
    noise = random.random(count + count % 2)
    if box_muller(noise):
        pairs = noise.reshape(-1, 2)
        half_square = 0.5 * (pairs**2).sum(axis=1)  # of the radius: an exponential number
        places = _tails.far(half_square)
        stretch = _tails.beyond(random, int(places.sum())) / half_square[places]
        pairs[places] *= np.sqrt(stretch)[:, None]
    if shape is None:
        return float(noise[0] * spread)
    noise = noise[:count].reshape(shape)
    noise *= spread
    return noise


def spherical(random: Random, scale: float, d: int) -> Any:
    """Return noise in d dimensions of density proportional to exp(-||x||_2/scale).

    Pure noise for what has an L2 sensitivity: its norm is the sum of d exponentials (a gamma
    variable), and its direction uniform.

    Parameters
    ----------
    random : source from :func:`random_source`
    scale : float
        In [0, inf).
    d : int
        At least 1.

    Returns
    -------
    ndarray of shape (d,)

    Raises
    ------
    ValueError
        If the scale is negative, infinite or NaN, or d below 1.

    References
    ----------
    Chaudhuri, Monteleoni, Sarwate (2011).

    Examples
    --------
    >>> source = random_source(0)
    >>> norms = [np.linalg.norm(spherical(source, 2.0, 5)) for _ in range(4000)]
    >>> round(np.mean(norms))
    10
    """
    check_int("d", d, low=1)
    direction = gaussian(random, 1.0, d)
    norm = exponential(random, scale, d).sum()
    while not (length := np.linalg.norm(direction)):  # once in 2^52 times, in one dimension
        direction = gaussian(random, 1.0, d)
    return direction * (norm / length)


def add_noise(array: Any, mechanism: str, scale: float, sources: Sequence[Random]) -> Any:
    """Return ``array`` (R, d) with noise added where it lives; row r takes that of source r.

    On the host in place. On a device what has 100,000 columns or more gets numbers of a
    counter-based generator that runs there, with key and counter from the row's source:
    other numbers than on the host. Shorter rows get the very numbers of the host, and so does
    every row where the source is the operating system's entropy, all bits of which are drawn.

    Parameters
    ----------
    array : array of shape (R, d)
    mechanism : {"laplace", "gaussian"}
    scale : float
        Laplace scale or Gaussian standard deviation, in [0, inf).
    sources : sequence of R random sources

    Returns
    -------
    array of shape (R, d)

    Raises
    ------
    ValueError
        If the scale is negative, infinite or NaN, or the sources are not as many as the rows.

    References
    ----------
    Salmon, Moraes, Dror, Shaw, *Parallel random numbers: as easy as 1, 2, 3*, SC 2011.

    Examples
    --------
    >>> add_noise(np.zeros((1, 2)), "laplace", 2.0, [random_source(0)]).tolist()
    [[0.6402, -1.234]]
    """
    draw = {"laplace": laplace, "gaussian": gaussian}[mechanism]
    count, size = array.shape
    if len(sources) != count:
        raise ValueError(f"sources must be {count}, one for each row, got {len(sources)}")
    if isinstance(array, np.ndarray):
        for row, source in zip(array, sources):
            row += draw(source, scale, size)
        return array
    from array_api_compat import array_namespace

    from . import _philox

    xp, device = array_namespace(array), array.device
    spread = _spread("scale", scale)
    if size < DRAWN_ON_DEVICE or any(isinstance(source, SystemRandom) for source in sources):
        noise = np.stack([draw(source, spread, size) for source in sources])
        return array + xp.asarray(noise, device=device)
    seeds = np.stack([source.integers(2**32, size=_philox.SEED_WORDS) for source in sources])
    return array + spread * _philox.LAWS[mechanism](xp, seeds, size, device)


def _spread(name: str, value: ArrayLike) -> Any:
    array = np.asarray(value, dtype=np.float64)
    if not (np.isfinite(array) & (array >= 0.0)).all():
        raise ValueError(f"{name} must lie in [0, inf), got {value!r}")
    return float(array) if array.ndim == 0 else array
