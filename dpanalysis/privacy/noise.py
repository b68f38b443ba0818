r"""Floating-point noise with tails of full precision, and the sources of random numbers.

The set of possible outputs of floating-point noise depends on the answer that it is added to, so a
single output may reveal which of two data sets it came from (Mironov 2012). It is for research:
under ``rng="os"`` a release uses :mod:`dpanalysis.privacy.exact_noise`.

A uniform number of 53 bits is at least 2^-53 (or 0), so that :math:`-\ln v` ends at 36.7. All
noise of the library is computed from such exponential numbers: Laplace noise is one with a random
sign, and half the squared radius of the Box-Muller transform is one. If the tail of a law is
truncated, an output beyond it can only come from a neighbouring data set, and reveals the record.

The exponential law is memoryless: given that a number is at least :math:`c = 40 \ln 2`, its excess
over c is exponential again. So a number beyond c, which occurs with probability 2^-40, is replaced
by c plus a new exponential number, which may be beyond c again; each round takes the tail further
by 40 bits. It ends after 24 rounds, at 2^-960.

The new numbers come from a separate stream, so that all others are the same as without them.
"""

from __future__ import annotations

import copy
import math
import os
import threading
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from .._validation import check_int, check_rng, largest

# The point beyond which numbers of 53 bits get coarse, and its tail probability.
LIMIT = 40.0 * math.log(2.0)
SMALL = 2.0**-40
_ROUNDS = 24
# Far below the spacing of the numbers near the limit, 1e-4, and above the rounding of logarithms.
_ROUNDING = 1e-9


def far(exponential: Any) -> Any:
    """Return the mask of exponential numbers that reach the limit."""
    return exponential > LIMIT - _ROUNDING


def beyond(random: Any, count: int) -> np.ndarray:
    """Return ``count`` exponential numbers, conditioned on being beyond the limit."""
    return LIMIT + _exponential(spawn_without_advancing(random), count)


def small(random: Any, count: int) -> np.ndarray:
    """Return ``count`` exponential numbers below 2^-40: uniform up to a relative 2^-40."""
    return SMALL * np.exp(-_exponential(spawn_without_advancing(random), count))


def _exponential(source: Any, count: int) -> np.ndarray:
    total, left = np.zeros(count), np.arange(count)
    for _ in range(_ROUNDS):
        fresh = -np.log1p(-source.random(left.size))
        again = far(fresh)
        total[left] += np.minimum(fresh, LIMIT)
        left = left[again]
        if not left.size:
            break
    return total


def spawn_without_advancing(random: Any) -> Any:
    """Return a source seeded with the generator's next output; any other source as it is."""
    if not isinstance(random, np.random.Generator):
        return random
    return np.random.default_rng(copy.deepcopy(random).integers(2**32, size=8))


# Laws of noise


Size: TypeAlias = int | Sequence[int] | None


def laplace(random: Any, scale: ArrayLike, size: Size = None) -> Any:
    """Return zero-mean Laplace noise.

    Parameters
    ----------
    random : :func:`~dpanalysis.privacy.mechanisms.random_source`
    scale : float or array_like
        Scale b in [0, inf): the density is ``exp(-|x|/b)/(2b)``, the variance 2 b**2.
    size : int or tuple of int, optional
        Shape; by default that of ``scale``.

    Returns
    -------
    ndarray or float

    Examples
    --------
    >>> noise = laplace(np.random.default_rng(0), 2.0, 100_000)
    >>> round(float(abs(noise).mean()), 1)
    2.0
    """
    scale = check_scale("scale", scale)
    return _unit_laplace(random, shape_of(size, scale)) * scale


def _unit_laplace(random: Any, size: Size) -> Any:
    """Return Laplace noise of scale 1, with tails of full precision."""
    if hasattr(random, "_unit_laplace"):
        unit = np.asarray(random._unit_laplace(size))
    else:
        unit = np.asarray(random.laplace(0.0, 1.0, size))
    if unit.size and far(largest(unit)):
        places = far(abs(unit))
        unit[places] = np.copysign(beyond(random, int(places.sum())), unit[places])
    return float(unit) if unit.ndim == 0 else unit


def exponential(random: Any, scale: ArrayLike, size: Size = None) -> Any:
    """Return exponential noise of mean ``scale``: the magnitude of Laplace noise.

    The parameters are those of :func:`laplace`.

    Examples
    --------
    >>> noise = exponential(np.random.default_rng(0), 2.0, 100_000)
    >>> bool(noise.min() >= 0.0), round(float(noise.mean()), 1)
    (True, 2.0)
    """
    return abs(laplace(random, scale, size))


def gumbel(random: Any, scale: ArrayLike, size: Size = None) -> Any:
    """Return Gumbel noise: minus ``scale`` times the logarithm of a unit exponential.

    The largest of values with this noise has the law of the exponential mechanism, with
    probabilities proportional to exp(value/scale). The parameters are those of :func:`laplace`.

    Examples
    --------
    >>> noise = gumbel(np.random.default_rng(0), 2.0, 100_000)     # the mean is 0.5772 scale
    >>> round(float(noise.mean()), 1), round(float(noise.std()), 1)
    (1.2, 2.6)
    """
    scale = check_scale("scale", scale)
    unit = np.asarray(exponential(random, 1.0, shape_of(size, scale)))
    if unit.size and unit.min() < SMALL:
        places = unit < SMALL  # also where it is 0
        unit[places] = small(random, int(places.sum()))
    return scale * -np.log(unit)


def gaussian(random: Any, std: ArrayLike, size: Size = None) -> Any:
    """Return zero-mean Gaussian noise of standard deviation ``std`` in [0, inf).

    By the Box-Muller transform of the source's uniforms in double precision: two to four times as
    fast as ``Generator.normal``, and the same numbers on every machine. The other parameters are
    those of :func:`laplace`.

    Examples
    --------
    >>> noise = gaussian(np.random.default_rng(0), 3.0, (100, 1000))
    >>> noise.shape, round(float(noise.std()), 1)
    ((100, 1000), 3.0)
    """
    from ._compiled import standard_normals  # here, since importing Numba is slow

    std = check_scale("std", std)
    shape = shape_of(size, std)
    count = 1 if shape is None else shape
    if type(count) is not int:
        count = int(np.prod(count, dtype=np.int64))
    noise, tail = standard_normals(random, count + count % 2)
    if tail:
        pairs = noise.reshape(-1, 2)
        half_square = 0.5 * (pairs**2).sum(axis=1)  # of the radius: an exponential number
        places = far(half_square)
        stretch = beyond(random, int(places.sum())) / half_square[places]
        pairs[places] *= np.sqrt(stretch)[:, None]
    if shape is None:
        return float(noise[0] * std)
    noise = noise[:count].reshape(shape)
    noise *= std
    return noise


def spherical(random: Any, scale: float, d: int) -> Any:
    """Return noise in d dimensions of density proportional to exp(-||x||_2/scale).

    It gives pure differential privacy for an L2 sensitivity. Its norm is the sum of d exponentials
    (a gamma variable), and its direction is uniform.

    Parameters
    ----------
    random : :func:`~dpanalysis.privacy.mechanisms.random_source`
    scale : float
        In [0, inf).
    d : int
        At least 1.

    Returns
    -------
    ndarray of shape (d,)

    References
    ----------
    Chaudhuri, Monteleoni, Sarwate (2011).

    Examples
    --------
    >>> source = np.random.default_rng(0)
    >>> norms = [np.linalg.norm(spherical(source, 2.0, 5)) for _ in range(4000)]
    >>> round(np.mean(norms))
    10
    """
    check_int("d", d, low=1)
    direction = gaussian(random, 1.0, d)
    norm = exponential(random, scale, d).sum()
    while not (length := np.linalg.norm(direction)):  # probability 2^-52 in one dimension
        direction = gaussian(random, 1.0, d)
    return direction * (norm / length)


def cubic(random: Any, scale: float, d: int) -> Any:
    """Return noise in d dimensions of density proportional to ``exp(-max |x_i|/scale)``.

    It gives pure privacy for a sensitivity in the maximum norm. The norm has a density proportional
    to :math:`r^{d-1} e^{-r/s}` at radius r: the noise is a gamma variable of shape d times a
    uniform point on the surface of the cube. Equivalently, a gamma variable of shape d + 1 times a
    uniform point in the cube, whose radius has density :math:`d r^{d-1}` (the two radii are a gamma
    variable times an independent beta variable). Parameters are those of :func:`spherical`.

    References
    ----------
    Hardt and Talwar (2010), On the geometry of differential privacy.

    Examples
    --------
    >>> source = np.random.default_rng(0)
    >>> norms = [np.abs(cubic(source, 2.0, 5)).max() for _ in range(4000)]
    >>> round(np.mean(norms))
    10
    """
    check_int("d", d, low=1)
    radius = exponential(random, scale, d + 1).sum()
    return radius * (2.0 * random.random(d) - 1.0)


def shape_of(size: Size, *parameters: ArrayLike) -> Size:
    """Return ``size``, or the broadcast shape of the parameters if it is None."""
    if size is not None:
        return size
    return np.broadcast_shapes(*(np.shape(parameter) for parameter in parameters)) or None


def check_scale(name: str, value: ArrayLike) -> Any:
    """Return a scale, or an array of scales, or raise unless they lie in [0, inf)."""
    if type(value) is float and 0.0 <= value < math.inf:
        return value
    array = np.asarray(value, dtype=np.float64)
    if not (np.isfinite(array) & (array >= 0.0)).all():
        raise ValueError(f"{name} must lie in [0, inf), got {value!r}")
    return float(array) if array.ndim == 0 else array


# Sources: a seeded generator, or the operating system's entropy


class SystemRandom:
    """Random numbers from the operating system's entropy; never repeatable.

    It has the methods of :class:`numpy.random.Generator` that the library uses.

    Attributes
    ----------
    floating : bool
        Whether it has returned floating-point numbers: uniforms, or noise computed from them.
        Exact noise and integers use the bits directly.

    Examples
    --------
    >>> bool((SystemRandom().random(100) < 1.0).all())
    True
    """

    floating = False

    def __repr__(self) -> str:
        return "SystemRandom()"

    def _bits(self, size: Size) -> Any:
        """Return 64 independent bits per entry."""
        count = 1 if size is None else int(np.prod(size, dtype=np.int64))
        bits = np.frombuffer(os.urandom(8 * count), dtype=np.uint64)
        return bits[0] if size is None else bits.reshape(size)

    def random(self, size: Size = None) -> Any:
        """Return uniforms in [0, 1) with 53 random bits."""
        self.floating = True
        return (self._bits(size) >> np.uint64(11)) * 2.0**-53

    def laplace(self, loc: Any = 0.0, scale: Any = 1.0, size: Size = None) -> Any:
        """Return Laplace noise, by :func:`laplace`."""
        return loc + laplace(self, scale, shape_of(size, loc, scale))

    def _unit_laplace(self, size: Size) -> Any:
        """Return Laplace noise of scale 1 that ends at 36.7, by the inverse of its CDF."""
        # The uniform lies in (0, 1], so the logarithm is finite; the sign is a separate bit.
        self.floating = True
        bits = self._bits(size)
        magnitude = -np.log(((bits >> np.uint64(11)) + 1.0) * 2.0**-53)
        return np.where(bits & np.uint64(1), magnitude, -magnitude)

    def normal(self, loc: Any = 0.0, scale: Any = 1.0, size: Size = None) -> Any:
        """Return Gaussian noise, by :func:`gaussian`."""
        return loc + gaussian(self, scale, shape_of(size, loc, scale))

    def trials(self, rate: float, count: int) -> Any:
        """Return the sorted indices of the successes among ``count`` independent trials.

        The probability of success is exactly ``rate``, in [0, 1): a uniform real number is below
        it. Base-256 digits of both are compared until they differ; those of a floating-point rate
        are exact and finite. Each trial takes one byte, and 1 in 256 trials another.
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
        # Rejection: words above the largest multiple of the span are redrawn.
        limit = np.uint64(2**64 - 1 - 2**64 % span)
        bits = np.array(self._bits(size))
        while (redraw := bits > limit).any():
            bits[redraw] = self._bits(int(redraw.sum()))
        result = (bits % np.uint64(span)).astype(np.int64) + low
        return int(result) if size is None else result


Random: TypeAlias = np.random.Generator | SystemRandom


def random_source(rng: Any = None) -> Random:
    """Return the random source specified by ``rng``.

    Parameters
    ----------
    rng : None, int, SeedSequence, Generator, SystemRandom or "os"
        None seeds a generator afresh; "os" is the operating system's entropy.

    Raises
    ------
    TypeError
        If ``rng`` is none of these.
    ValueError
        If it is a negative number.

    Examples
    --------
    >>> bool(random_source(7).integers(100) == random_source(7).integers(100))
    True
    >>> random_source("os")
    SystemRandom()
    """
    __tracebackhide__ = True
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


def is_system(rng: Any) -> bool:
    """Return whether a source is the operating system's entropy, which cannot be repeated."""
    return isinstance(rng, SystemRandom) or (isinstance(rng, str) and rng == "os")


_SPAWNING = threading.Lock()
if hasattr(os, "register_at_fork"):  # a child is not born with the lock of a thread it lacks
    os.register_at_fork(
        before=_SPAWNING.acquire,
        after_in_parent=_SPAWNING.release,
        after_in_child=_SPAWNING.release,
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

    Examples
    --------
    >>> few, many = spawn(3, 2), spawn(3, 9)
    >>> few[1].random() == many[1].random()
    True
    """
    __tracebackhide__ = True
    count = check_int("count", count)
    if isinstance(rng, np.random.SeedSequence):
        source: Any = rng
    else:
        source = random_source(rng)
    if isinstance(source, SystemRandom):
        return [SystemRandom() for _ in range(count)]
    with _SPAWNING:  # NumPy alone may give two threads the same children, and so the same noise
        children = source.spawn(count)
    return list(map(np.random.default_rng, children))
