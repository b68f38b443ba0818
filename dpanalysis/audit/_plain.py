"""Densities given as plain functions: where they live, and where a float says 0 too early.

A plain density underflows: far out it is 0 although its law has mass there. Where that of Q
*fades* so, P is cut, and a divergence that would need what is beyond is an error. Where one jumps
to 0, its support ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ._density import Density, Pair
from ._integrands import Array, Integrand

__all__ = ["CutPair", "Plain"]

_FLOOR = 1e-300  # below, floats lose digits
_FADED = 1e-30  # a last value that small, relative to the highest one, is no jump
_NEGLIGIBLE = -20.0  # logarithm
_DISTANCES = np.exp2(np.arange(-60.0, 1001.0))


@dataclass(frozen=True)
class Plain(Density):
    """A density whose logarithm is that of a plain function.

    ``faded`` says which ends of the support, (low, high), are there only because it fades.
    """

    faded: tuple[bool, bool] = (False, False)

    @classmethod
    def of(cls, name: str, pdf: Callable[[Any], Any]) -> Plain:
        """Find the mode and the support of a density of arrays or of one number."""
        values = _vectorized(name, pdf)
        x = np.concatenate([-_DISTANCES[::-1], [0.0], _DISTANCES])
        mode = float(x[np.argmax(values(x))])
        if not values(np.array([mode]))[0] > 0.0:
            raise ValueError(
                f"{name} is 0 wherever it was looked at: give Density(logpdf, points) with a "
                "point near its mode"
            )
        for _ in range(40):  # the grid around the highest point, finer each time
            width = max(abs(mode), 1.0) * np.exp2(np.arange(-50.0, 1.0))
            x = mode + np.concatenate([-width[::-1], [0.0], width])
            highest = float(x[np.argmax(values(x))])
            if highest == mode:
                break
            mode = highest
        peak = float(values(np.array([mode]))[0])
        ends, faded = [], []
        for sign in (-1.0, 1.0):
            end = _end(values, mode, sign)
            ends.append(end)
            faded.append(float(values(np.array([end]))[0]) < _FADED * peak)

        def logpdf(x: Array) -> Array:
            return np.log(values(x))

        return cls(logpdf, (mode,), (ends[0], ends[1]), (faded[0], faded[1]))


def _vectorized(name: str, pdf: Callable[[Any], Any]) -> Callable[[Array], Array]:
    """Return the density of arrays; 0 where it is below the smallest float with all digits."""

    def one(x: float) -> float:
        try:
            return float(pdf(x))
        except OverflowError:  # of the math module, far out
            return 0.0
        except (TypeError, ValueError) as error:
            raise TypeError(f"{name} must map a number to its density: {error}") from error

    def each(x: Array) -> Array:
        return np.array([one(entry) for entry in x.tolist()])

    call = pdf
    with np.errstate(all="ignore"):
        try:
            found = np.asarray(pdf(np.array([0.25, 0.5])), dtype=np.float64)
            if found.shape != (2,):
                call = each
        except (TypeError, ValueError):
            call = each

    def values(x: Array) -> Array:
        with np.errstate(all="ignore"):
            found = np.asarray(call(x), dtype=np.float64)
        if (found < 0.0).any():
            raise ValueError(f"{name} must be a density, got {found.min():g} as a value")
        return np.where(found >= _FLOOR, found, 0.0)

    return values


def _end(values: Callable[[Array], Array], mode: float, sign: float) -> float:
    """Return the last point on one side of the mode where the density is positive."""
    x = mode + sign * _DISTANCES
    positive = np.flatnonzero(values(x) > 0.0)
    if not positive.size:
        return mode
    if positive[-1] == x.size - 1:
        return sign * math.inf
    inside, outside = float(x[positive[-1]]), float(x[positive[-1] + 1])
    for _ in range(1100):
        middle = 0.5 * (inside + outside)
        if middle in (inside, outside):
            break
        if values(np.array([middle]))[0] > 0.0:
            inside = middle
        else:
            outside = middle
    return inside


@dataclass(frozen=True)
class CutPair(Pair):
    """Two densities of which q is not known beyond the cuts."""

    cuts: tuple[float, ...] = ()

    @classmethod
    def of(cls, p: Density, q: Plain) -> CutPair:
        """Cut p where q fades."""
        low, high = (
            end if faded else sign * math.inf
            for end, faded, sign in zip(q.support, q.faded, (-1.0, 1.0))
        )
        support = max(p.support[0], low), min(p.support[1], high)
        cuts = tuple(end for end in (low, high) if end in support and math.isfinite(end))
        return cls(replace(p, support=support), q, cuts)

    def integral(self, integrand: Integrand, level: float | None = None) -> tuple[float, float]:
        """Return the logarithm of an integral and its relative error.

        Raises
        ------
        ValueError
            If the integrand is not negligible at a cut.
        """
        log_value, error = super().integral(integrand, level)
        for end in self.cuts:
            at = np.array([end])
            last = float(self._integrand(integrand, self.p(at), self.q(at))[0][0])
            width = max(abs(end - point) for point in (*self.p.points, *self.q.points))
            if last + math.log(width) > log_value + _NEGLIGIBLE and last > -math.inf:
                raise self._unknown(end)
        return log_value, error

    def supremum(self) -> tuple[float, float]:
        """Return the supremum of ln p/q where p > 0, and its error.

        Raises
        ------
        ValueError
            If the ratio still grows at a cut.
        """
        value, error = super().supremum()
        for end in self.cuts:
            ratio, rounding = self._log_ratio(np.array([end, 0.9 * end]))
            if ratio[0] >= value - 1e-6 and ratio[0] > ratio[1] + 1e-6 + rounding.sum():
                raise self._unknown(end)
        return value, error

    @staticmethod
    def _unknown(end: float) -> ValueError:
        return ValueError(
            f"q is needed beyond x = {end:g}, where the plain density underflows: "
            "give Density(logpdf) instead"
        )
