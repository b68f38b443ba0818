r"""Exponential numbers of full precision, for the tails of every noise.

A uniform number of 53 bits is at least 2^-53 (or 0), so that :math:`-\ln v` ends at 36.7. Every
noise of the library is made from such an exponential number: Laplace noise is one with a random
sign, and half the squared radius of Box and Muller's transform is one. A law that ends where the
law of a neighbouring data set goes on gives the record away.

The exponential law has no memory: given that a number is at least :math:`c = 40 \ln 2`, what it
has beyond c is exponential again. So a number beyond c, which one of 2^40 is, is replaced by c and
a new exponential number, which may be beyond c again: one exponent after the other by the flips of
40 coins. It ends after 24 rounds, at 2^-960.

The new numbers come from a stream of their own. All others are what they are without it.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np

__all__ = ["LIMIT", "SMALL", "beyond", "far", "small"]

# Where numbers of 53 bits get coarse, and the chance of that.
LIMIT = 40.0 * math.log(2.0)
SMALL = 2.0**-40
_ROUNDS = 24
# Far below the distance of the numbers near the limit, 1e-4, and above the rounding of logarithms.
_ROUNDING = 1e-9


def far(exponential: Any) -> Any:
    """Return where exponential numbers reach the limit."""
    return exponential > LIMIT - _ROUNDING


def beyond(random: Any, count: int) -> np.ndarray:
    """Return ``count`` exponential numbers that are known to be beyond the limit."""
    return LIMIT + _exponential(_aside(random), count)


def small(random: Any, count: int) -> np.ndarray:
    """Return ``count`` exponential numbers that are known to be below 2^-40.

    These are uniform on (0, 2^-40) but for a relative error of 2^-40.
    """
    return SMALL * np.exp(-_exponential(_aside(random), count))


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


def _aside(random: Any) -> Any:
    """Return a source for additional numbers that leaves a generator where it is.

    It is seeded with what the generator would give next. The operating system's entropy, and
    any other source that is no generator, gives more of its own.
    """
    if not isinstance(random, np.random.Generator):
        return random
    return np.random.default_rng(copy.deepcopy(random).integers(2**32, size=8))
