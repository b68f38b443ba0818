"""Mechanisms: noise of each law, added on the host or a device, from a seeded or secure source.

There are two kinds of noise. A *seeded generator* makes runs repeatable and is for research: its
noise is floating point (:mod:`dpanalysis.privacy.noise`), and whoever knows the seed, or can
exploit which doubles it takes, can undo it. ``rng="os"`` takes its bits from the operating system,
and every release is that of the mechanism on real numbers, rounded to a public grid: see
:mod:`dpanalysis.privacy.exact_noise` for what that means and why it costs no privacy. Releases use
:func:`noisy`, :func:`add_noise`, :class:`Threshold`, :func:`smallest` and :func:`nearly`, which
implement this. Noise drawn alone, as by :func:`laplace`, is floating point from every source.

Two runs that are released together need different seeds. Runs with the same integer ``rng`` get
the same noise, so that the difference of their answers is that of the exact answers, whatever
the budget. A filter or a plan refuses a seed that was used under it, in whatever form it is given;
this cannot be detected under two budgets, or after a fork or a pickle has copied a generator to
several processes. ``rng=None`` seeds every run afresh.

A number outside the range that a docstring states raises ValueError.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .._devices import on_host, to_host
from .._validation import check_choice, check_finite, check_int
from . import exact_noise
from .noise import (
    Random,
    SystemRandom,
    check_scale,
    cubic,
    exponential,
    gaussian,
    gumbel,
    laplace,
    random_source,
    spawn,
    spherical,
)

__all__ = [
    "Random",
    "SystemRandom",
    "Threshold",
    "add_noise",
    "cubic",
    "exponential",
    "gaussian",
    "gumbel",
    "laplace",
    "nearly",
    "noisy",
    "random_source",
    "smallest",
    "spawn",
    "spherical",
]

# Least number of columns for which a device draws its noise itself. Its generator makes about 80
# calls, whatever the length: at this length an H100 and 16 cores of its host take the same time.
DRAWN_ON_DEVICE = 300_000
_COMPARED = 1024  # values that Threshold.first compares at a time


def noisy(
    random: Random, values: ArrayLike, law: str, scale: float, shares: ArrayLike = 1.0
) -> Any:
    """Return a vector with added noise of one law.

    Parameters
    ----------
    random : source from :func:`random_source`
        The operating system's entropy gives exact noise and a rounded sum.
    values : array_like of shape (d,)
    law : {"laplace", "gaussian", "spherical", "cubic"}
    scale : float
        Laplace scale, standard deviation, or scale of :func:`spherical` or :func:`cubic`, in
        [0, inf), with a grid in normal numbers; 0 adds nothing.
    shares : float or array_like of shape (d,)
        Positive factors of the noise, one per coordinate.

    Returns
    -------
    ndarray of shape (d,)

    Examples
    --------
    >>> answer = noisy(random_source("os"), [0.5, 1.5], "laplace", 1.0)
    >>> bool((answer % 2.0**-20 == 0.0).all())
    True
    """
    x, scale = np.asarray(values, dtype=np.float64), check_scale("scale", scale)
    if scale == 0.0:
        return x
    if isinstance(random, SystemRandom):
        return exact_noise.release(random, x, law, scale * np.asarray(shares))
    noise = _drawn(random, law, scale, x.size)
    if not (type(shares) is float and shares == 1.0):
        noise = noise * np.asarray(shares)
    noise += x
    return noise


def _drawn(random: Random, law: str, scale: float, size: int) -> Any:
    """Return floating-point noise."""
    laws: dict[str, Any] = {
        "cubic": cubic,
        "gaussian": gaussian,
        "laplace": laplace,
        "spherical": spherical,
    }
    return laws[law](random, scale, size)


def nearly(random: Random, law: str, scale: float, d: int) -> tuple[Any, float]:
    """Return noise in doubles, for further computation, and its L2 distance from exact noise.

    The distance is 0 for a seeded generator. The operating system's entropy gives exact noise,
    which no double equals; the caller must mask what the difference reveals in a release.

    Parameters
    ----------
    random, law, scale : as for :func:`noisy`
    d : int
        At least 1.

    Returns
    -------
    ndarray of shape (d,), float

    Examples
    --------
    >>> noise, distance = nearly(random_source("os"), "gaussian", 1.0, 5)
    >>> noise.shape, 0.0 < distance < 1e-10
    ((5,), True)
    """
    scale = check_scale("scale", scale)
    if scale == 0.0:
        return np.zeros(d), 0.0
    if isinstance(random, SystemRandom):
        return exact_noise.nearly(random, law, scale, d)
    return _drawn(random, law, scale, d), 0.0


class Threshold:
    """A noisy threshold at 0 to compare noisy queries with, as in the sparse vector technique.

    Parameters
    ----------
    random : source from :func:`random_source`
        With the operating system's entropy, real numbers are compared.
    law : {"laplace", "gaussian"}
    scale, query_scale : float
        Scales of the noise of the threshold and of every query, in [0, inf).

    Examples
    --------
    >>> threshold = Threshold(random_source(0), "laplace", 1.0, 2.0)
    >>> [threshold.reached(value, 0.0) for value in (-100.0, 100.0)]
    [False, True]
    """

    def __init__(self, random: Random, law: str, scale: float, query_scale: float) -> None:
        self._random, self._law = random, law
        self._scale = check_scale("scale", scale)
        self._query_scale = check_scale("scale", query_scale)
        if isinstance(random, SystemRandom):
            exact_noise.check_grid_range([each for each in (scale, query_scale) if each])
            self._noise = exact_noise.LAWS[law](random, 1)
        else:
            self._height = float(noisy(random, [0.0], law, scale)[0])

    def reached(self, value: float, wanted: float) -> bool:
        """Return whether ``value`` with fresh noise exceeds the threshold by at least ``wanted``.

        ``wanted`` is public and enters last: a large one would otherwise round away the noise.
        """
        return next(self._reaching(np.array([value]), wanted), None) is not None

    def first(self, values: ArrayLike, wanted: float) -> int | None:
        """Return the index of the first of values (K,) that is :meth:`reached`, None without one.

        The noise is drawn by blocks, and that of values after the first one is not used.
        """
        values = np.asarray(values, dtype=np.float64)
        for lo in range(0, values.size, _COMPARED):
            for i in self._reaching(values[lo : lo + _COMPARED], wanted):
                return lo + i
        return None

    def _reaching(self, values: np.ndarray, wanted: float) -> Iterator[int]:
        """Yield the indices of the values that, each with fresh noise, are reached."""
        if not isinstance(self._random, SystemRandom):
            noisy_values = noisy(self._random, values, self._law, self._query_scale)
            yield from np.flatnonzero(noisy_values - self._height >= wanted).tolist()
            return
        noise = exact_noise.LAWS[self._law](self._random, values.size)
        terms = (self._query_scale, noise), (-self._scale, self._noise)
        # None for NaN, of a penalty that overflows: no number of digits would decide it.
        for i in exact_noise.not_below(values, wanted, *terms):
            each = [(self._query_scale, noise, i), (-self._scale, self._noise, 0)]
            if exact_noise.positive([float(values[i]), -wanted], each):
                yield int(i)


def smallest(
    random: Random, values: ArrayLike, offsets: ArrayLike, law: str, scale: float, count: int = 1
) -> Any:
    """Return the indices of the smallest of values - noise + offsets, in ascending order.

    Parameters
    ----------
    random : source from :func:`random_source`
        With the operating system's entropy, real numbers are compared.
    values, offsets : array_like of shape (K,)
        The offsets are public.
    law : {"gumbel", "exponential"}
    scale : float
        In [0, inf).
    count : int
        Number of indices, from 1 to K.

    Returns
    -------
    int array of shape (count,)

    Examples
    --------
    >>> smallest(random_source("os"), [3.0, 1.0, 2.0], [0.0, 0.0, 9.0], "gumbel", 0.001).tolist()
    [1]
    """
    laws: dict[str, Any] = {"gumbel": gumbel, "exponential": exponential}
    check_choice("law", law, [*laws])
    x, more = (np.asarray(each, dtype=np.float64) for each in (values, offsets))
    check_finite("values", x)
    check_finite("offsets", more)
    scale = check_scale("scale", scale)
    if x.ndim != 1 or more.shape != x.shape:
        raise ValueError(f"values and offsets must be (K,), got shapes {x.shape} and {more.shape}")
    check_int("count", count, low=1, high=x.size)
    if scale and isinstance(random, SystemRandom):
        return exact_noise.smallest(random, x, more, law, scale, count)
    if scale:
        x = x - laws[law](random, scale, x.size)
    # Offsets after the noise: a large public offset would round away the noise.
    return np.argsort(x + more, kind="stable")[:count]


def add_noise(array: Any, mechanism: str, scale: float, sources: Sequence[Random]) -> Any:
    """Return ``array`` (R, d) with noise added on its device; row r takes that of source r.

    On the host, in place if there are several rows. On a device, rows of 300,000 columns or more
    get numbers of a counter-based generator that runs there, with key and counter from the row's
    source, which differ from those on the host. Shorter rows get the numbers of the host, and so
    does every row of PyTorch, which does not compute with unsigned integers of 64 bits. If a source
    is the operating system's entropy, the array moves to the host for its noise and stays there.

    Parameters
    ----------
    array : array of shape (R, d)
    mechanism : {"laplace", "gaussian"}
    scale : float
        Laplace scale or Gaussian standard deviation, in [0, inf).
    sources : sequence of R random sources

    References
    ----------
    Salmon, Moraes, Dror, Shaw, *Parallel random numbers: as easy as 1, 2, 3*, SC 2011.

    Examples
    --------
    >>> add_noise(np.zeros((1, 2)), "laplace", 2.0, [random_source(0)]).tolist()
    [[0.6402, -1.234]]
    """
    count, size = array.shape
    if len(sources) != count:
        raise ValueError(f"sources must be {count}, one for each row, got {len(sources)}")
    if any(isinstance(source, SystemRandom) for source in sources):
        array = np.array(to_host(array), dtype=np.float64)
    if on_host(array):
        if count == 1 and isinstance(array, np.ndarray):  # no second copy
            return noisy(sources[0], array[0], mechanism, scale)[None]
        for row, source in zip(to_host(array), sources):
            row[...] = noisy(source, row, mechanism, scale)
        return array
    from array_api_compat import array_namespace, is_torch_array

    from . import _philox

    xp, device = array_namespace(array), array.device
    scale = check_scale("scale", scale)
    if size < DRAWN_ON_DEVICE or is_torch_array(array):
        noise = np.stack([_drawn(source, mechanism, scale, size) for source in sources])
        return array + xp.asarray(noise, device=device)
    seeds = np.stack([source.integers(2**32, size=_philox.SEED_WORDS) for source in sources])
    return array + scale * _philox.LAWS[mechanism](xp, seeds, size, device)
