"""Noise in floating point: laws with tails of full precision, for any source of uniforms.

Which doubles such noise can take depends on the answer that it is added to, so that a single
output may tell which of two data sets it came from (Mironov 2012). It is for research: under
``rng="os"`` a release goes through :mod:`dpanalysis.privacy._exact`.

The tails have full precision: see :mod:`dpanalysis.privacy._tails`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from .._validation import check_int, largest
from . import _tails

__all__ = [
    "Size",
    "cubic",
    "exponential",
    "gaussian",
    "gumbel",
    "laplace",
    "shape_of",
    "spherical",
    "spread_of",
]

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

    Raises
    ------
    ValueError
        If a scale is negative, infinite or NaN.

    Examples
    --------
    >>> noise = laplace(np.random.default_rng(0), 2.0, 100_000)
    >>> round(float(abs(noise).mean()), 1)
    2.0
    """
    spread = spread_of("scale", scale)
    return _unit_laplace(random, shape_of(size, spread)) * spread


def _unit_laplace(random: Any, size: Size) -> Any:
    """Return Laplace noise of scale 1, with tails of full precision."""
    if hasattr(random, "_unit_laplace"):
        unit = np.asarray(random._unit_laplace(size))
    else:
        unit = np.asarray(random.laplace(0.0, 1.0, size))
    if unit.size and _tails.far(largest(unit)):
        places = _tails.far(abs(unit))
        unit[places] = np.copysign(_tails.beyond(random, int(places.sum())), unit[places])
    return float(unit) if unit.ndim == 0 else unit


def exponential(random: Any, scale: ArrayLike, size: Size = None) -> Any:
    """Return exponential noise, positive and of mean ``scale``: the size of Laplace noise.

    Parameters
    ----------
    random : :func:`~dpanalysis.privacy.mechanisms.random_source`
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
    >>> noise = exponential(np.random.default_rng(0), 2.0, 100_000)
    >>> bool(noise.min() >= 0.0), round(float(noise.mean()), 1)
    (True, 2.0)
    """
    return abs(laplace(random, scale, size))


def gumbel(random: Any, scale: ArrayLike, size: Size = None) -> Any:
    """Return Gumbel noise: minus ``scale`` times the logarithm of a unit exponential.

    Added to values, it gives the largest of them with the probabilities of the exponential
    mechanism, in proportion to exp(value/scale).

    Parameters
    ----------
    random : :func:`~dpanalysis.privacy.mechanisms.random_source`
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
    >>> noise = gumbel(np.random.default_rng(0), 2.0, 100_000)     # the mean is 0.5772 scale
    >>> round(float(noise.mean()), 1), round(float(noise.std()), 1)
    (1.2, 2.6)
    """
    spread = spread_of("scale", scale)
    unit = np.asarray(exponential(random, 1.0, shape_of(size, spread)))
    if unit.size and unit.min() < _tails.SMALL:
        places = unit < _tails.SMALL  # also where it is 0
        unit[places] = _tails.small(random, int(places.sum()))
    return -spread * np.log(unit)


def gaussian(random: Any, std: ArrayLike, size: Size = None) -> Any:
    """Return zero-mean Gaussian noise.

    By Box and Muller's transform of the source's uniforms in double precision: two to four
    times as fast as a generator's own, and the same numbers on every machine.

    Parameters
    ----------
    random : :func:`~dpanalysis.privacy.mechanisms.random_source`
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
    >>> noise = gaussian(np.random.default_rng(0), 3.0, (100, 1000))
    >>> noise.shape, round(float(noise.std()), 1)
    ((100, 1000), 3.0)
    """
    from ._normal import box_muller  # here: Numba takes its time

    spread = spread_of("std", std)
    shape = shape_of(size, spread)
    count = 1 if shape is None else shape
    if type(count) is not int:
        count = int(np.prod(count, dtype=np.int64))
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


def spherical(random: Any, scale: float, d: int) -> Any:
    """Return noise in d dimensions of density proportional to exp(-||x||_2/scale).

    Pure noise for what has an L2 sensitivity: its norm is the sum of d exponentials (a gamma
    variable), and its direction uniform.

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

    Raises
    ------
    ValueError
        If the scale is negative, infinite or NaN, or d below 1.

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
    while not (length := np.linalg.norm(direction)):  # once in 2^52 times, in one dimension
        direction = gaussian(random, 1.0, d)
    return direction * (norm / length)


def cubic(random: Any, scale: float, d: int) -> Any:
    r"""Return noise in d dimensions of density proportional to ``exp(-max |x_i|/scale)``.

    Pure noise for what is bounded in the maximum norm. At radius r the norm has a density
    proportional to :math:`r^{d-1} e^{-r/s}`: a gamma variable of shape d times a point that is
    uniform on the surface of the cube. That is a gamma variable of shape d + 1 times a point
    that is uniform in the cube, whose radius has the density :math:`d r^{d-1}` (the two radii
    are a gamma variable times an independent beta variable).

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

    Raises
    ------
    ValueError
        If the scale is negative, infinite or NaN, or d below 1.

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
    """Return ``size``, or the broadcast shape of the parameters where that is None."""
    if size is not None:
        return size
    return np.broadcast_shapes(*(np.shape(parameter) for parameter in parameters)) or None


def spread_of(name: str, value: ArrayLike) -> Any:
    """Return a scale, or an array of them, that is neither negative nor infinite."""
    if type(value) is float and 0.0 <= value < math.inf:
        return value
    array = np.asarray(value, dtype=np.float64)
    if not (np.isfinite(array) & (array >= 0.0)).all():
        raise ValueError(f"{name} must lie in [0, inf), got {value!r}")
    return float(array) if array.ndim == 0 else array
