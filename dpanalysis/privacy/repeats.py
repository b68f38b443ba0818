r"""How often a mechanism is repeated, where the number of times must be random.

To take the best of a fixed number of runs can cost as much as all of them. After a random number
of runs nobody knows how many the best one has beaten.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._validation import keep_numbers
from .mechanisms import Random

__all__ = ["Repeats"]

_BITS = 192  # of the uniform number that a count is drawn from


@dataclass(frozen=True)
class Repeats:
    r"""A truncated negative binomial law of a count, or Poisson's.

    The probability of k is in proportion to :math:`(1-\gamma)^k \prod_{l<k} (l+\eta)/(l+1)`, for
    :math:`k \ge 1`, where :math:`\gamma` belongs to the mean.

    Parameters
    ----------
    mean : float
        At least 1.
    shape : float
        :math:`\eta \ge 0`: 0 is the logarithmic law, 1 the geometric one, infinity Poisson's, by
        which there may be no run at all. A small shape costs less privacy; a large one is less
        often far below the mean.

    Raises
    ------
    ValueError
        If a number is outside its range.

    References
    ----------
    Papernot, Steinke (2022), Definition 1.

    Examples
    --------
    >>> Repeats(10.0).gamma                       # the geometric law
    0.1
    >>> Repeats(10.0).below([0.5, 1.0])
    array([0.09090909, 1.        ])
    """

    mean: float
    shape: float = 1.0

    def __post_init__(self) -> None:
        keep_numbers(self, "mean", low=1.0)
        if self.shape != math.inf:
            keep_numbers(self, "shape", low=0.0)

    @cached_property
    def gamma(self) -> float:
        r""":math:`\gamma` in (0, 1], which gives the mean; of no use to Poisson's law."""
        if self.mean == 1.0 or self.shape == math.inf:
            return 1.0
        from scipy import optimize  # heavy, hence not at the top

        def excess(log_gamma: float) -> float:
            return math.log(_mean(log_gamma, self.shape) / self.mean)

        low = -1.0
        while excess(low) < 0.0:
            low *= 2.0
        return math.exp(optimize.brentq(excess, low, -1e-16, xtol=1e-15, rtol=1e-14))

    def below(self, x: ArrayLike) -> NDArray[np.float64]:
        """Return the probability that each of the runs, all independent, has an event of chance x.

        Parameters
        ----------
        x : array_like
            In [0, 1].

        Returns
        -------
        ndarray of the shape of ``x``: the mean of x to the power of the count.
        """
        x, g, shape = np.asarray(x, dtype=np.float64), self.gamma, self.shape
        if shape == math.inf:
            return np.exp(self.mean * (x - 1.0))
        if g == 1.0:
            return x
        logs = np.log1p(-(1.0 - g) * x)
        if shape == 0.0:
            return logs / math.log(g)
        return np.expm1(-shape * logs) / math.expm1(-shape * math.log(g))

    def draw(self, random: Random) -> int:
        """Return a count; its law is exact but for 2^-190.

        Parameters
        ----------
        random : source from :func:`dpanalysis.privacy.mechanisms.random_source`

        Returns
        -------
        int
            At least 1; at least 0 for Poisson's law.
        """
        import mpmath  # here: it takes its time

        words = np.asarray(random.integers(0, 2**32, size=_BITS // 32))
        uniform = sum(int(word) << (32 * k) for k, word in enumerate(words))
        with mpmath.workprec(_BITS + 64):
            left = (mpmath.mpf(uniform) + 0.5) / mpmath.mpf(2) ** _BITS
            k, chance = self._first()
            while left > chance and chance > 0:
                left -= chance
                chance *= self._ratio(k)
                k += 1
        return k

    def _first(self) -> tuple[int, Any]:
        """Return the smallest count, and its probability, in the precision that is set."""
        import mpmath

        if self.shape == math.inf:
            return 0, mpmath.exp(-mpmath.mpf(self.mean))
        g, shape = mpmath.mpf(self.gamma), mpmath.mpf(self.shape)
        if g == 1:
            return 1, mpmath.mpf(1)
        if shape == 0:
            return 1, (1 - g) / -mpmath.log(g)
        return 1, (1 - g) * shape / mpmath.expm1(-shape * mpmath.log(g))

    def _ratio(self, k: int) -> Any:
        """Return the probability of k + 1 over that of k."""
        import mpmath

        if self.shape == math.inf:
            return mpmath.mpf(self.mean) / (k + 1)
        return (1 - mpmath.mpf(self.gamma)) * (k + mpmath.mpf(self.shape)) / (k + 1)


def _mean(log_gamma: float, shape: float) -> float:
    """Return the mean of the truncated negative binomial law."""
    odds = math.expm1(-log_gamma)  # (1 - gamma) / gamma
    if shape == 0.0:
        return odds / -log_gamma
    return shape * odds / -math.expm1(shape * log_gamma)
