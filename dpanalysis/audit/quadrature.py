"""Adaptive quadrature of positive functions given by their logarithms, and pairs of densities.

The integrands of an audit range over hundreds of orders of magnitude, and often the rarest part
matters most. So all values are logarithms, each integral is refined to a relative accuracy, and a
panel on which the logarithm changes too fast is split, however small the estimated error.

The initial panels for a pair of densities cover all scales around the given points, from the
smallest floats to the largest in factors of 16, so that neither a narrow density far away nor a
heavy tail is missed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._validation import check_finite, check_reals

Array: TypeAlias = NDArray[np.float64]
# ln p, ln q, u = ln p/q -> logarithm of the integrand, and its sensitivity to rounding of u.
Integrand: TypeAlias = Callable[[Array, Array, Array], tuple[Array, Array]]

EPS = float(np.finfo(np.float64).eps)
# A point with a log density below this counts as impossible.
IMPOSSIBLE = -700.0


# Integrands


def first(lp: Array, lq: Array, u: Array) -> tuple[Array, Array]:
    """Return the integrand p."""
    return lp, np.ones_like(lp)


def moment(order: float) -> Integrand:
    """Return the integrand of the formula in :mod:`.exact`."""
    beta = order - 1.0

    def integrand(lp: Array, lq: Array, u: Array) -> tuple[Array, Array]:
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            value = _log_kappa(-u)
            if beta > 0.0:
                # Kappa is linear at -infinity; bounded, since ln kappa(-inf) would outweigh p.
                power = np.maximum(beta * u, -1e300)
                value = np.logaddexp(value, _log_kappa(power) - math.log(beta))
            value = lp + value
            # Where p vanishes, p kappa(-u) tends to q; where both vanish, to 0.
            value = np.where(np.isneginf(lp), lq, value)
            escaped = np.isneginf(lq) & ~np.isneginf(lp)
            value = np.where(escaped, np.where(lp > IMPOSSIBLE, np.inf, -np.inf), value)
            sensitivity = order + 2.0 / np.abs(u)
        return value, sensitivity

    return integrand


def excess(epsilon: float) -> Integrand:
    """Return the integrand (p - e**epsilon q)_+."""

    def integrand(lp: Array, lq: Array, u: Array) -> tuple[Array, Array]:
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            above = np.isposinf(u) if math.isinf(epsilon) else u > epsilon
            over = np.where(above & ~np.isposinf(u), u - epsilon, np.inf)
            value = np.where(above, lp + np.log(-np.expm1(-over)), -np.inf)
            return value, 1.0 + 1.0 / over

    return integrand


def _log_kappa(x: Array) -> Array:
    """Return ln(e**x - 1 - x)."""
    t = np.where(np.abs(x) < 0.2, x, 0.0)
    series = np.ones_like(t)
    for k in range(14, 2, -1):
        series = 1.0 + t / k * series
    small = 2.0 * np.log(np.abs(t)) - math.log(2.0) + np.log(series)
    tame = np.clip(x, -np.inf, 30.0)
    middle = np.log(np.expm1(tame) - tame)
    large = x + np.log1p(-(1.0 + x) * np.exp(-x))
    return np.where(np.abs(x) < 0.2, small, np.where(x > 30.0, large, middle))


def rounding(lp: Array, lq: Array, sensitivity: Array) -> Array:
    """Return the absolute error of the logarithm of an integrand, at most 1."""
    with np.errstate(invalid="ignore", over="ignore"):
        size = np.where(np.isfinite(lp), np.abs(lp), 0.0)
        size += np.where(np.isfinite(lq), np.abs(lq), 0.0)
        error = 2.0 * EPS * (1.0 + size) * sensitivity
    return np.where(error < 1.0, error, 1.0)


# Quadrature


# x (n,) -> log integrands (n, m), and the absolute rounding error of each (broadcasts).
LogIntegrand: TypeAlias = Callable[[Array], tuple[Array, Array]]

# Kronrod's 15 nodes on [-1, 1]; every second one is a node of the 7-point Gauss rule.
_HALF_NODES = np.array([
    0.991455371120812639206854697526329, 0.949107912342758524526189684047851,
    0.864864423359769072789712788640926, 0.741531185599394439863864773280788,
    0.586087235467691130294144838258730, 0.405845151377397166906606412076961,
    0.207784955007898467600689403773245, 0.0,
])  # fmt: skip
_HALF_KRONROD = np.array([
    0.022935322010529224963732008058970, 0.063092092629978553290700663189204,
    0.104790010322250183839876322541518, 0.140653259715525918745189590510238,
    0.169004726639267902826583426598550, 0.190350578064785409913256402421014,
    0.204432940075298892414161999234649, 0.209482141084727828012999174891714,
])  # fmt: skip
_HALF_GAUSS = np.array([
    0.0, 0.129484966168869693270611432679082, 0.0, 0.279705391489276667901467771423780,
    0.0, 0.381830050505118944950369775488975, 0.0, 0.417959183673469387755102040816327,
])  # fmt: skip
NODES = np.concatenate([-_HALF_NODES, _HALF_NODES[-2::-1]])
_KRONROD = np.concatenate([_HALF_KRONROD, _HALF_KRONROD[-2::-1]])
_DIFFERENCE = _KRONROD - np.concatenate([_HALF_GAUSS, _HALF_GAUSS[-2::-1]])
# Orthonormal functionals of the node values that vanish for polynomials of degree up to 11, times
# the norm of the difference of the two rules, which is a combination of them. At a kink that
# difference may vanish by chance, but hardly all three functionals.
_ROUGHNESS = np.linalg.svd(np.polynomial.legendre.legvander(NODES, 11).T)[2][12:]
_ROUGHNESS *= np.linalg.norm(_DIFFERENCE)

_GAPS = np.diff(NODES)
_END = 1.0 - NODES[-1]
# The ends are evaluated this far inside, in half widths: an end may be a jump or a pole.
_INSIDE = 1e-9
# Weights of the interpolating polynomial's value at the right end; reversed, at the left end.
_AT_END = np.array([
    np.prod([(1.0 - _INSIDE - other) / (node - other) for other in NODES if other != node])
    for node in NODES
])  # fmt: skip
# All sums over the nodes of a panel as one matrix product.
_RULES = np.stack([_KRONROD, *_ROUGHNESS, _AT_END[::-1], _AT_END])
# Largest log rise of a hidden peak above the highest node at which a panel counts as resolved.
_HIDDEN = 3.0
# A panel whose mass is below exp(-_NEGLIGIBLE) of the integral is not split.
_NEGLIGIBLE = 50.0
# Smallest width of a panel: half of a thinner one might not be representable.
_THINNEST = 1e-300
# Most numbers held at once.
_CHUNK = 200_000


def integrate(
    log_f: LogIntegrand,
    edges: Array,
    *,
    cuts: Array | None = None,
    rtol: float = 1e-13,
    floor: float = -np.inf,
    max_nodes: int = 3_000_000,
) -> tuple[Array, Array]:
    """Return the logarithms of m integrals over one interval, and their relative errors."""
    cuts = np.empty(0) if cuts is None else cuts
    edges = edges[np.append(True, np.diff(edges) > _THINNEST)]
    count = log_f(0.5 * (edges[:1] + edges[1:2]))[0].shape[1]
    size = max(1, _CHUNK // (NODES.size * count))

    def look(panels: Array) -> _Panels:
        starts = range(0, panels.shape[0], size)
        return _joined([_evaluate(log_f, panels[start : start + size]) for start in starts])

    panels = look(np.stack([edges[:-1], edges[1:]], axis=1))
    # A rough pass locates the mass, which determines what counts as small.
    used = panels.edges.shape[0] * NODES.size
    leaves, used = _refine(look, panels, cuts, 1e-2, floor, max_nodes // 4, used)
    leaves, _ = _refine(look, leaves, cuts, rtol, floor, max_nodes, used)
    log_value, lost = _log_sum(leaves.value), _log_sum(leaves.lost)
    with np.errstate(invalid="ignore"):
        error = np.exp(np.minimum(lost - log_value, 700.0))
    nothing = np.where(np.isneginf(lost), 0.0, np.inf)
    return log_value, np.where(np.isneginf(log_value), nothing, error)


class _Panels(NamedTuple):
    """Panels and estimates of the integrals over them, each (panels, m)."""

    edges: Array  # (panels, 2)
    value: Array
    error: Array
    hidden: Array
    noise: Array

    @property
    def lost(self) -> Array:
        """Logarithm of the absolute error."""
        worst = np.where(self.hidden > _HIDDEN, self.value + self.hidden, self.error)
        return np.logaddexp(worst, self.value + self.noise)

    def where(self, which: Array) -> _Panels:
        """Return the selected panels."""
        return _Panels(*(part[which] for part in self))


def _joined(panels: list[_Panels]) -> _Panels:
    return panels[0] if len(panels) == 1 else _Panels(*map(np.concatenate, zip(*panels)))


def _refine(
    look: Callable[[Array], _Panels],
    panels: _Panels,
    cuts: Array,
    rtol: float,
    floor: float,
    max_nodes: int,
    used: int,
) -> tuple[_Panels, int]:
    """Split panels until each integral is resolved; return them and the number of nodes used."""
    leaves: list[_Panels] = []
    done, log_total = np.array(-np.inf), _log_sum(panels.value)
    while True:
        _, value, error, hidden, noise = panels
        limit = np.logaddexp(value, log_total - np.log(64.0))
        accurate = (error <= limit + np.maximum(np.log(rtol), noise)) & (hidden <= _HIDDEN)
        small = value + hidden <= np.maximum(log_total, floor) - _NEGLIGIBLE
        low, high = panels.edges.T
        thin = high - low <= 64.0 * EPS * np.maximum(np.abs(low), np.abs(high))
        keep = (small | accurate).all(axis=1) | thin | (used > max_nodes)
        leaves.append(panels.where(keep))
        if keep.all():
            return _joined(leaves), used
        done = np.logaddexp(done, _log_sum(value[keep]))
        panels = look(_split(panels.edges[~keep], cuts))
        used += panels.edges.shape[0] * NODES.size
        log_total = np.logaddexp(done, _log_sum(panels.value))


def _log_sum(values: Array) -> Array:
    top = values.max(axis=0, initial=-np.inf)
    safe = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        return np.where(np.isposinf(top), np.inf, safe + np.log(np.exp(values - safe).sum(axis=0)))


def _evaluate(log_f: LogIntegrand, panels: Array) -> _Panels:
    """Return panels with log integral, log error, hidden rise and log noise."""
    # The error is the part that no polynomial of the rule's degree fits, plus the polynomial's
    # error at the panel's ends, the only places where a kink beyond the last node shows.
    start, end = panels.T
    middle, half = 0.5 * (start + end), 0.5 * (end - start)
    x = middle[:, None] + half[:, None] * NODES
    # Near the ends, but always in the interior of the panel.
    low = np.maximum(start + _INSIDE * half, np.nextafter(start, np.inf))
    high = np.minimum(end - _INSIDE * half, np.nextafter(end, -np.inf))
    found, rounding = log_f(np.concatenate([x.ravel(), low, high]))
    value = found[: x.size].reshape(*x.shape, -1)
    rounding = np.broadcast_to(rounding, found.shape)[: x.size].reshape(value.shape)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        change = np.diff(value, axis=1)
        change[~np.isfinite(change)] = 0.0
        top = value.max(axis=1)
        shift = np.where(np.isfinite(top), top, 0.0)
        rise = _hidden(value, change).max(axis=1) - shift
        weight = np.exp(value - shift[:, None, :])
        # Rounding of a node changes the logarithm in proportion to its slope.
        slope = np.abs(change) * (1.0 / _GAPS)[:, None]
        slope *= (0.5 * EPS * np.abs(x).max(axis=1) / half)[:, None, None]
        slope = np.concatenate([slope, slope[:, -1:]], axis=1)
        rounding = np.minimum(rounding + slope, 1.0)
        mass, *rough, at_low, at_high = np.moveaxis(_RULES @ weight, 1, 0)
        left, right = np.exp(np.minimum(found[x.size :].reshape(2, *shift.shape) - shift, 700.0))
        error = np.sqrt(sum(part * part for part in rough))
        error += _END * (np.abs(left - at_low) + np.abs(right - at_high))
        noise = np.einsum("j,pjm,pjm->pm", _KRONROD, weight, rounding)
        log_noise = np.where(mass > 0.0, np.log(noise / np.where(mass > 0.0, mass, 1.0)), -np.inf)
        log_half = np.log(half)[:, None] + shift
        integral, error = log_half + np.log(mass), log_half + np.log(error)
    rise, log_noise = np.maximum(rise, 0.0), np.maximum(log_noise, np.log(4.0 * EPS))
    return _Panels(panels, integral, error, rise, log_noise)


def _hidden(value: Array, change: Array) -> Array:
    """Return how high the logarithm can rise in each gap between nodes if it is concave there.

    A concave function lies below the extrapolation of its chords from either side.
    """
    slope = change / _GAPS[:, None]
    left = value[:, 1:-1] + np.maximum(slope[:, :-1], 0.0) * _GAPS[1:, None]
    right = value[:, 1:-1] + np.maximum(-slope[:, 1:], 0.0) * _GAPS[:-1, None]
    # Gap j between nodes j and j+1: from the left for j >= 1, from the right for j <= 12.
    reach = np.minimum(left[:, :-1], right[:, 1:])
    ends = np.maximum(
        np.maximum(right[:, 0], left[:, -1]),
        np.maximum(value[:, 0] - np.minimum(slope[:, 0], 0.0) * _END,
                   value[:, -1] + np.maximum(slope[:, -1], 0.0) * _END),
    )  # fmt: skip
    return np.concatenate([reach, ends[:, None]], axis=1)


def _split(panels: Array, cuts: Array) -> Array:
    """Split each panel at the middle one of the cuts inside it, else at its midpoint."""
    low, high = panels.T
    at = 0.5 * (low + high)
    if cuts.size:
        first = np.searchsorted(cuts, low, side="right")
        last = np.searchsorted(cuts, high, side="left")
        cut = cuts[np.minimum((first + last) // 2, cuts.size - 1)]
        apart = np.minimum(cut - low, high - cut) > _THINNEST
        at = np.where((last > first) & apart, cut, at)
    return np.concatenate([np.stack([low, at], axis=1), np.stack([at, high], axis=1)])


# Pairs of densities


# Distances from a point at which a density is evaluated first, and one that counts as far.
_DYADS = np.exp2(np.arange(-1000.0, 1001.0))
_FAR = 2.0**400
# A shell around a point with mass below exp(-_SHELLS) of the largest one is omitted.
_SHELLS = 60.0


@dataclass(frozen=True)
class Density:
    """A density on the real line, given by its logarithm.

    Attributes
    ----------
    logpdf : callable
        Vectorized: x (n,) -> (n,), natural logarithm, ``-inf`` where the density is zero;
        normalized, and accurate to rounding.
    points : sequence of float, default=()
        Kinks, jumps and centers of the density; panels of the quadrature end there.
    support : tuple of float, default=(-inf, inf)
        The density is zero outside.

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
class DensityPair:
    """Two densities, with integrals of functions of both."""

    p: Density
    q: Density

    @property
    def escapes(self) -> bool:
        """Whether P has mass where Q has none."""
        return self.p.support[0] < self.q.support[0] or self.p.support[1] > self.q.support[1]

    def integral(self, integrand: Integrand, level: float | None = None) -> tuple[float, float]:
        """Return an integral's log and relative error; panels end where ln p/q = ``level``."""

        def log_f(x: Array) -> tuple[Array, Array]:
            lp, lq = self.p(x), self.q(x)
            if np.isnan(lp).any() or np.isnan(lq).any():
                at = x[np.isnan(lp) | np.isnan(lq)][0]
                raise ValueError(f"logpdf must not return NaN, got one at x = {at:g}")
            value, sensitivity = self._integrand(integrand, lp, lq)
            # A pole is a null set; an infinite value elsewhere is mass of P where Q has none.
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
            # Outwards, in factors of 2: a log-ratio whose increments do not shrink is unbounded.
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
        # Refine around the best node: the maximum of a smooth function lies next to it.
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
        """Return the hockey-stick mass where rounding decides whether ln p/q exceeds the level."""
        x = self._nodes()
        ratio, error = self._log_ratio(x)
        near = np.isfinite(ratio) & (ratio - error <= level) & (level <= ratio + error)
        density = np.where(near, np.exp(np.minimum(self.p(x), 700.0)) * error, 0.0)
        return 2.0 * float(np.trapezoid(density, x))

    def _log_ratio(self, x: Array) -> tuple[Array, Array]:
        """Return ln p/q (NaN where both vanish) and its rounding error."""
        lp, lq = self.p(x), self.q(x)
        with np.errstate(invalid="ignore", over="ignore"):
            ratio = lp - lq
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
        """Return, from left to right, each anchor with points at growing distances on one side.

        Between two anchors they stop halfway; outside they reach to the end of the support.
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
        """Return the initial panels' edges and the log mass that they may miss, possibly inf."""
        logs, masses = [], []
        for anchor, x in self._sides:
            log_f = self._integrand(integrand, self.p(x), self.q(x))[0]
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
            # The integral diverges if shells have mass up to the last float, outwards or inwards,
            # or if their mass grows inwards.
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
                # The masses of the shells past the last float form a geometric series.
                for end, inner in ((0, 1), (x.size - 1, x.size - 2)):
                    if end in kept and 0 <= inner < x.size and (end == 0 or outer):
                        fall = max(float(mass[inner] - mass[end]), 1e-3)
                        beyond = np.logaddexp(beyond, mass[end] - math.log(math.expm1(fall)))
        return np.unique(np.concatenate(edges)), float(beyond)

    def _nodes(self) -> Array:
        """Return nodes at all scales, wherever p exceeds ``IMPOSSIBLE``."""
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
        """Return the points where ln p/q crosses ``level``, to the last bit."""
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
    """Return whether values at three doubling distances increase without slowing down."""
    first, second = float(far[1] - far[0]), float(far[2] - far[1])
    return first > 1e-6 and second >= 0.9 * first
