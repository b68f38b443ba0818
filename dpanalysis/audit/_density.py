"""A pair of densities on the real line: where their mass lies, and integrals over it.

Panels start from all scales around the given points, from the smallest float to the largest in
factors of 16: neither a narrow density far away nor a heavy tail needs to be announced.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from .._validation import check_finite, check_reals
from ._integrands import EPS, IMPOSSIBLE, Array, Integrand, rounding
from ._quadrature import NODES, integrate

__all__ = ["Density", "Pair"]

# Distances from a point at which a density is first looked at, and the farthest of them.
_DYADS = np.exp2(np.arange(-1000.0, 1001.0))
_FAR = 2.0**400
# A shell around a point whose mass is below exp(-_SHELLS) of the largest is left out.
_SHELLS = 60.0


@dataclass(frozen=True)
class Density:
    """A density on the real line, given by its logarithm.

    Attributes
    ----------
    logpdf : callable
        Vectorised: x (n,) -> (n,), natural logarithm, ``-inf`` where the density is zero;
        normalised, and accurate to rounding.
    points : sequence of float, default=()
        Where the density has kinks, jumps or centres; the quadrature is cut there.
    support : tuple of float, default=(-inf, inf)
        The density is zero outside.

    Raises
    ------
    TypeError, ValueError
        If ``logpdf`` is no function, a point is not finite or the support is no interval.

    Examples
    --------
    >>> from dpanalysis.audit import renyi_divergence
    >>> unit = Density(lambda x: -np.abs(x) - np.log(2), points=(0.0,))
    >>> renyi_divergence(unit, Density(lambda x: -np.abs(x - 1) - np.log(2), (1.0,)), 2)
    0.61912
    """

    logpdf: Callable[[Array], ArrayLike]
    points: tuple[float, ...] = ()
    support: tuple[float, float] = (-math.inf, math.inf)

    def __post_init__(self) -> None:
        if not callable(self.logpdf):
            raise TypeError(f"logpdf must be a function of an array, got {self.logpdf!r}")
        points = check_finite("points", np.atleast_1d(check_reals("points", self.points)))
        object.__setattr__(self, "points", tuple(points.ravel().tolist()))
        ends = check_reals("support", self.support)
        if ends.shape != (2,) or not ends[0] < ends[1]:
            raise ValueError(f"support must be a pair (low, high), low < high, got {self.support}")
        object.__setattr__(self, "support", tuple(ends.tolist()))

    def __call__(self, x: Array) -> Array:
        """Return the log density at ``x`` (n,); ``-inf`` outside the support."""
        with np.errstate(all="ignore"):
            value = np.asarray(self.logpdf(x), dtype=np.float64)
        if value.shape != x.shape:
            raise ValueError(
                f"logpdf must return one value a point, shape {x.shape}, got shape {value.shape}"
            )
        return np.where((x < self.support[0]) | (x > self.support[1]), -np.inf, value)


class _Infinite(Exception):
    """The integrand is infinite on more than a null set."""


@dataclass(frozen=True)
class Pair:
    """Two densities."""

    p: Density
    q: Density

    @property
    def escapes(self) -> bool:
        """Whether P has mass where Q has none."""
        return self.p.support[0] < self.q.support[0] or self.p.support[1] > self.q.support[1]

    def integral(self, integrand: Integrand, level: float | None = None) -> tuple[float, float]:
        """Return the logarithm of an integral and its relative error.

        ``level``: the panels are also cut where ln p/q crosses it.
        """

        def log_f(x: Array) -> tuple[Array, Array]:
            lp, lq = self._log_densities(x)
            if np.isnan(lp).any() or np.isnan(lq).any():
                at = x[np.isnan(lp) | np.isnan(lq)][0]
                raise ValueError(f"logpdf must not return NaN, got one at x = {at:g}")
            value, sensitivity = self._integrand(integrand, lp, lq)
            # A node on a pole of a density is a null set; elsewhere, P is where Q is not.
            value = np.where(np.isposinf(lp) | np.isposinf(lq), -np.inf, value)
            if np.isposinf(value).any():
                raise _Infinite
            return value[:, None], rounding(lp, lq, sensitivity)[:, None]

        edges, beyond = self._edges(integrand)
        if beyond == math.inf:
            return math.inf, 0.0
        if level is not None and math.isfinite(level):
            edges = np.union1d(edges, self._crossings(level))
        if edges.size < 2:
            return -math.inf, 0.0
        try:
            log_value, error = integrate(log_f, edges)
        except _Infinite:
            return math.inf, 0.0
        missed = math.exp(min(beyond - log_value[0], 700.0)) if beyond > -math.inf else 0.0
        return float(log_value[0]), float(error[0]) + missed

    def supremum(self) -> tuple[float, float]:
        """Return the supremum of ln p/q where p > 0, and its error."""
        for _, x in self._sides[:1] + self._sides[-1:]:
            # Followed outwards: a logarithm that grows by no less each time has no bound.
            ratio, error = self._log_ratio(x)
            seen = np.flatnonzero(np.isfinite(ratio) & (error < 1e-6 * (1.0 + np.abs(ratio))))
            far = ratio[seen[-3:]]
            if seen.size >= 3 and seen[-1] - seen[-3] == 2 and _grows(far):
                return math.inf, 0.0
        x = self._nodes()
        ratio, error = self._log_ratio(x)
        ratio = np.where(np.isnan(ratio), -np.inf, ratio)
        if np.isposinf(ratio).any():
            return math.inf, 0.0
        # Refine around the best nodes: the maximum of a smooth stretch lies between two of them.
        best = int(np.argmax(ratio - error))
        low, high = x[max(best - 1, 0)], x[min(best + 1, x.size - 1)]
        value, width = float(ratio[best]), math.inf
        for _ in range(40):
            grid = np.linspace(low, high, 21)
            ratio, error = self._log_ratio(grid)
            ratio = np.where(np.isnan(ratio), -np.inf, ratio)
            at = int(np.argmax(ratio))
            gained = float(ratio[at]) - value
            value = max(value, float(ratio[at]))
            low, high = grid[max(at - 1, 0)], grid[min(at + 1, 20)]
            if gained <= 0.0 and high - low >= width:
                break
            width = high - low
        return value, 8.0 * EPS * (1.0 + abs(value)) + float(error[at])

    def noise_at(self, level: float) -> float:
        """Return the hockey-stick mass that is in or out by chance.

        That is where ln p/q is the level itself, up to rounding, as it is in whole tails.
        """
        x = self._nodes()
        ratio, error = self._log_ratio(x)
        near = np.isfinite(ratio) & (ratio - error <= level) & (level <= ratio + error)
        density = np.where(near, np.exp(np.minimum(self.p(x), 700.0)) * error, 0.0)
        return 2.0 * float(np.trapezoid(density, x))

    def _log_densities(self, x: Array) -> tuple[Array, Array]:
        return self.p(x), self.q(x)

    def _log_ratio(self, x: Array) -> tuple[Array, Array]:
        """Return ln p/q (NaN where p vanishes) and its rounding error."""
        lp, lq = self._log_densities(x)
        with np.errstate(invalid="ignore", over="ignore"):
            ratio = np.where(lp > -np.inf, lp - lq, np.nan)
            overflow = np.isneginf(lq) & ~(lp > IMPOSSIBLE)
            error = 4.0 * EPS * (1.0 + np.abs(lp) + np.abs(lq))
        return np.where(overflow, np.nan, ratio), np.where(np.isfinite(error), error, 0.0)

    @staticmethod
    def _integrand(integrand: Integrand, lp: Array, lq: Array) -> tuple[Array, Array]:
        with np.errstate(invalid="ignore"):
            value, sensitivity = integrand(lp, lq, lp - lq)
        return np.where(np.isnan(value), -np.inf, value), sensitivity

    @cached_property
    def _anchors(self) -> Array:
        """Return the points and the finite ends of the supports."""
        ends = (*self.p.support, *self.q.support)
        low, high = min(ends), max(ends)
        given = np.array([*self.p.points, *self.q.points, *filter(math.isfinite, ends)])
        inside = np.unique(given[(given >= low) & (given <= high)])
        return inside if inside.size else np.zeros(1)

    @cached_property
    def _sides(self) -> list[tuple[float, Array]]:
        """Return, from left to right, each anchor's side: the anchor and points ever further.

        Between two anchors they stop half way; outside they go to the end of the support.
        """
        ends = (*self.p.support, *self.q.support)
        c = self._anchors
        reach = np.concatenate([[c[0] - min(ends)], 0.5 * np.diff(c), [max(ends) - c[-1]]])
        sides = []
        for i, anchor in enumerate(c.tolist()):
            for sign, limit in ((-1.0, reach[i]), (1.0, reach[i + 1])):
                x = anchor + sign * _DYADS[limit >= _DYADS]
                x = x[(x != anchor) & np.isfinite(x)]
                sides.append((anchor, x[np.append(True, np.diff(x) != 0.0)[: x.size]]))
        return sides

    def _edges(self, integrand: Integrand) -> tuple[Array, float]:
        """Return the edges of the first panels, and the log mass that they may miss.

        That is infinite if the integral is.
        """
        logs, masses = [], []
        for anchor, x in self._sides:
            log_f = self._integrand(integrand, *self._log_densities(x))[0]
            logs.append(log_f)
            masses.append(log_f + np.log(np.abs(x - anchor)))
        top = max((float(mass.max()) for mass in masses if mass.size), default=-math.inf)
        if math.isinf(top):
            return np.empty(0), top
        edges, beyond = [self._anchors], -math.inf
        for i, ((anchor, x), log_f, mass) in enumerate(zip(self._sides, logs, masses, strict=True)):
            seen = np.flatnonzero(np.isfinite(mass))
            if not seen.size:
                continue
            # Where shells have mass up to the last float, outwards or inwards, or even more
            # the further in they are, there is no limit.
            last, first = seen[-1], seen[0]
            outer = i in (0, len(self._sides) - 1)
            far = outer and (abs(x[last] - anchor) >= _FAR or log_f[last] > 1e50)
            near = first == 0 and (
                abs(x[0] - anchor) <= 1.0 / _FAR or not (np.diff(mass[seen[:8]]) > 0.0).any()
            )
            if (far and mass[last] >= top - 20.0) or (near and mass[first] >= top - 20.0):
                return np.empty(0), math.inf
            kept = np.flatnonzero(mass >= top - _SHELLS)
            if kept.size:
                low, high = max(kept[0] - 1, 0), min(kept[-1] + 1, x.size - 1)
                edges += [x[low:high:4], x[high : high + 1]]
                # Shells go on past the last float as a geometric series.
                for end, inner in ((0, 1), (x.size - 1, x.size - 2)):
                    if end in kept and 0 <= inner < x.size and (end == 0 or outer):
                        fall = max(float(mass[inner] - mass[end]), 1e-3)
                        beyond = np.logaddexp(beyond, mass[end] - math.log(math.expm1(fall)))
        return np.unique(np.concatenate(edges)), float(beyond)

    def _nodes(self) -> Array:
        """Return nodes at all scales, wherever p is not impossible."""
        shells = [self._anchors]
        for _, x in self._sides:
            possible = np.flatnonzero(self.p(x) > IMPOSSIBLE)
            if possible.size:
                high = min(possible[-1] + 1, x.size - 1)
                shells += [x[possible[0] : high : 4], x[high : high + 1]]
        edges = np.unique(np.concatenate(shells))
        inner = 0.5 * (edges[:-1] + edges[1:])[:, None] + 0.5 * np.diff(edges)[:, None] * NODES
        return np.unique(np.concatenate([edges, inner.ravel()]))

    def _crossings(self, level: float) -> Array:
        """Return where ln p/q crosses ``level``, to the last bit."""
        x = self._nodes()
        above = self._log_ratio(x)[0] > level
        change = np.flatnonzero(above[1:] != above[:-1])
        low, high, start = x[change], x[change + 1], above[change]
        for _ in range(80):
            middle = 0.5 * (low + high)
            if ((middle == low) | (middle == high)).all():
                break
            same = (self._log_ratio(middle)[0] > level) == start
            low, high = np.where(same, middle, low), np.where(same, high, middle)
        return np.concatenate([low, high])


def _grows(far: Array) -> bool:
    """Return whether three values, each twice as far out, increase without slowing down."""
    first, second = float(far[1] - far[0]), float(far[2] - far[1])
    return first > 1e-6 and second >= 0.9 * first
