r"""Exact divergences between two laws: finite ones by sums, densities by quadrature.

Everything is computed from :math:`u = \ln p/q` as an integral of positive terms,

.. math:: D_\alpha(P\|Q) = \frac{1}{\alpha-1}\ln\Big(1 + (\alpha-1)\int p\,\Big[\kappa(-u)
          + \frac{\kappa((\alpha-1)u)}{\alpha-1}\Big]\Big), \qquad \kappa(x) = e^x - 1 - x \ge 0,

so that neither a tiny nor a huge divergence loses its relative accuracy, and order 1 is no
special case. Densities are taken as normalised (which is checked), and their panels start from
all scales around the given points, in factors of 16 from the smallest float to the largest:
neither a narrow density far away nor a heavy tail needs to be announced.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._validation import check_finite, check_number, check_reals
from ._quadrature import NODES, integrate

__all__ = ["Density", "hockey_stick", "privacy_profile", "renyi_divergence"]

Array: TypeAlias = NDArray[np.float64]

_EPS = float(np.finfo(np.float64).eps)
# Sums of probabilities and integrals of densities may miss one by this much.
_NORMALISED = 1e-8
# Distances from a point at which a density is first looked at, and the farthest of them.
_DYADS = np.exp2(np.arange(-1000.0, 1001.0))
_FAR = 2.0**400
# A shell around a point whose mass is below exp(-_SHELLS) of the largest is left out.
_SHELLS = 60.0
# Below this log density a point is as good as impossible.
_IMPOSSIBLE = -700.0


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


def renyi_divergence(p: Any, q: Any, order: float, *, full_output: bool = False) -> Any:
    """Return the Renyi divergence of P from Q in nats.

    Parameters
    ----------
    p, q : array_like, shape (m,); or Density; or frozen continuous scipy.stats distribution
        Probabilities of the same m outcomes, or two densities.
    order : float
        In [1, inf]: 1 is the Kullback-Leibler divergence, inf the largest log ratio.
    full_output : bool, default=False
        Also return an estimate of the absolute error, meant to be on the safe side.

    Returns
    -------
    divergence : float
        Infinite where P has mass that Q has not, or the integral diverges.
    error : float
        Only with ``full_output``.

    Raises
    ------
    TypeError, ValueError
        If the order is below 1, or p or q is no law, or the two do not belong together.

    References
    ----------
    Mironov (2017), Definition 3; 002, Definition 2.

    Examples
    --------
    >>> renyi_divergence([0.75, 0.25], [0.25, 0.75], 2)
    0.84730
    >>> from scipy import stats
    >>> renyi_divergence(stats.norm(1), stats.norm(0), 32, full_output=True)[0]
    16.0
    """
    order = check_number("order", order, low=1.0, finite=False)
    pair = _pair(p, q)
    if isinstance(pair, _Finite):
        value, error = pair.renyi(order)
    elif pair.escapes:
        value, error = math.inf, 0.0
    elif math.isinf(order):
        value, error = pair.supremum()
    else:
        value, error = _from_moment(*pair.integral(_moment(order)), order)
    return (value, error) if full_output else value


def hockey_stick(p: Any, q: Any, epsilon: float, *, full_output: bool = False) -> Any:
    r"""Return the largest P(S) - e**epsilon Q(S) over all events S.

    Parameters
    ----------
    p, q : array_like, shape (m,); or Density; or frozen continuous scipy.stats distribution
        Probabilities of the same m outcomes, or two densities.
    epsilon : float
        In (-inf, inf].
    full_output : bool, default=False
        Also return an estimate of the absolute error, meant to be on the safe side.

    Returns
    -------
    delta : float
        :math:`\int (p - e^\epsilon q)_+`, in [0, 1]; one direction.
    error : float
        Only with ``full_output``.

    Raises
    ------
    TypeError, ValueError
        If epsilon is NaN, or p or q is no law, or the two do not belong together.

    Examples
    --------
    >>> hockey_stick([0.75, 0.25], [0.25, 0.75], 0.0)
    0.5
    >>> from scipy import stats
    >>> hockey_stick(stats.norm(1), stats.norm(0), 1.0)
    0.126936
    """
    epsilon = check_number("epsilon", epsilon, low=-math.inf, low_open=True, finite=False)
    pair = _pair(p, q)
    if isinstance(pair, _Finite):
        value, error = pair.hockey_stick(epsilon)
    else:
        log_value, relative = pair.integral(_excess(epsilon), level=epsilon)
        value = min(1.0, math.exp(log_value))
        error = min(1.0, value * relative if value else pair.noise_at(epsilon))
    return (value, error) if full_output else value


def privacy_profile(p: Any, q: Any, epsilon: ArrayLike) -> Any:
    """Return delta(epsilon) of the pair: the larger of both hockey-stick divergences.

    Parameters
    ----------
    p, q : array_like, shape (m,); or Density; or frozen continuous scipy.stats distribution
        Probabilities of the same m outcomes, or two densities.
    epsilon : array_like
        In (-inf, inf].

    Returns
    -------
    float or ndarray
        Of the shape of ``epsilon``.

    Raises
    ------
    TypeError, ValueError
        As in :func:`hockey_stick`.

    Examples
    --------
    >>> privacy_profile([0.8, 0.2], [0.5, 0.5], [0.0, 0.3])
    array([0.3    , 0.23003])
    """
    levels = check_reals("epsilon", epsilon)
    _pair(p, q)
    delta = np.array([max(hockey_stick(p, q, e), hockey_stick(q, p, e)) for e in levels.flat])
    return float(delta[0]) if levels.ndim == 0 else delta.reshape(levels.shape)


def _pair(p: Any, q: Any) -> _Finite | _Continuous:
    continuous = [isinstance(law, Density) or hasattr(law, "logpdf") for law in (p, q)]
    if all(continuous):
        return _Continuous(_density("p", p), _density("q", q))
    if any(continuous):
        raise TypeError(f"p and q must both be probabilities or both densities, got {p!r}, {q!r}")
    pair = _Finite(_probabilities("p", p), _probabilities("q", q))
    if pair.p.shape != pair.q.shape:
        raise ValueError(
            f"p and q must have the same outcomes, got {pair.p.size} and {pair.q.size} of them"
        )
    return pair


def _probabilities(name: str, value: Any) -> Array:
    array = check_finite(name, check_reals(name, value))
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"{name} must have shape (m,), m >= 1, got shape {array.shape}")
    if (array < 0.0).any():
        raise ValueError(f"{name} must have no negative entry, got {array.min():g}")
    total = math.fsum(array)
    if abs(total - 1.0) > _NORMALISED:
        raise ValueError(f"{name} must sum to 1 within {_NORMALISED:g}, got {total!r}")
    return array


def _density(name: str, value: Any) -> Density:
    if not isinstance(value, Density):
        middle = float(value.median())
        low, high = value.support()
        value = Density(value.logpdf, (middle,), (float(low), float(high)))
    total, error = _mass(value)
    if not abs(total - 1.0) <= _NORMALISED + error:
        raise ValueError(f"{name} must integrate to 1 within {_NORMALISED:g}, got {total!r}")
    return value


@lru_cache(maxsize=256)
def _mass(density: Density) -> tuple[float, float]:
    """Return the integral of a density and its error (an unresolved one is no excuse)."""
    log_mass, relative = _Continuous(density, density).integral(_first)
    mass = math.exp(min(log_mass, 700.0))
    return mass, min(mass * relative, 1e-6)


# --- integrands: log p, log q, u = log p/q -> logarithm, and how it reacts to rounding ---

_Integrand: TypeAlias = Callable[[Array, Array, Array], tuple[Array, Array]]


def _first(lp: Array, lq: Array, u: Array) -> tuple[Array, Array]:
    return lp, np.ones_like(lp)


def _moment(order: float) -> _Integrand:
    """Return the integrand of the module's first formula."""
    beta = order - 1.0

    def integrand(lp: Array, lq: Array, u: Array) -> tuple[Array, Array]:
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            value = _log_kappa(-u)
            if beta > 0.0:
                value = np.logaddexp(value, _log_kappa(beta * u) - math.log(beta))
            value = lp + value
            # Where p vanishes, p kappa(-u) tends to q; where both do, nothing is left.
            value = np.where(np.isneginf(lp), lq, value)
            escaped = np.isneginf(lq) & ~np.isneginf(lp)
            value = np.where(escaped, np.where(lp > _IMPOSSIBLE, np.inf, -np.inf), value)
            sensitivity = order + 2.0 / np.abs(u)
        return value, sensitivity

    return integrand


def _excess(epsilon: float) -> _Integrand:
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


def _from_moment(log_moment: float, relative: float, order: float) -> tuple[float, float]:
    """Return the divergence ln(1 + beta moment)/beta, and its error."""
    beta = order - 1.0

    def divergence(log_x: float) -> float:
        if beta == 0.0:
            return math.exp(log_x) if log_x < 709.0 else math.inf
        return float(np.logaddexp(0.0, math.log(beta) + log_x)) / beta

    value = divergence(log_moment)
    if not math.isfinite(value):
        return value, 0.0
    upper = divergence(log_moment + math.log1p(relative))
    lower = divergence(log_moment + math.log1p(-relative)) if relative < 1.0 else 0.0
    return value, max(upper - value, value - lower) + 4.0 * _EPS * value


@dataclass(frozen=True)
class _Finite:
    """Two laws on the same finite set."""

    p: Array
    q: Array

    @property
    def _logs(self) -> tuple[Array, Array, Array]:
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            lp, lq = np.log(self.p), np.log(self.q)
            near = (self.p - self.q) / self.q
            return lp, lq, np.where(np.abs(near) < 0.5, np.log1p(near), lp - lq)

    def renyi(self, order: float) -> tuple[float, float]:
        if ((self.p > 0.0) & (self.q == 0.0)).any():
            return math.inf, 0.0
        if math.isinf(order):
            value = float(np.max(self._logs[2][self.p > 0.0]))
            return value, 8.0 * _EPS * (1.0 + abs(value))
        return _from_moment(*self._sum(_moment(order)), order)

    def hockey_stick(self, epsilon: float) -> tuple[float, float]:
        log_value, relative = self._sum(_excess(epsilon))
        value = min(1.0, math.exp(log_value))
        return value, value * relative

    def _sum(self, integrand: _Integrand) -> tuple[float, float]:
        """Return the logarithm of the sum over outcomes and its relative error."""
        value, sensitivity = integrand(*self._logs)
        top = float(np.max(value, initial=-np.inf, where=~np.isnan(value)))
        if math.isinf(top):
            return top, 0.0
        weight = np.where(np.isnan(value), 0.0, np.exp(value - top))
        total = math.fsum(weight)
        lost = math.fsum(weight * _rounding(*self._logs[:2], sensitivity))
        return top + math.log(total), lost / total + 4.0 * _EPS


def _rounding(lp: Array, lq: Array, sensitivity: Array) -> Array:
    """Return the absolute error of the logarithm of an integrand; 1 is as bad as it gets."""
    with np.errstate(invalid="ignore", over="ignore"):
        size = np.where(np.isfinite(lp), np.abs(lp), 0.0)
        size += np.where(np.isfinite(lq), np.abs(lq), 0.0)
        rounding = 2.0 * _EPS * (1.0 + size) * sensitivity
    return np.where(rounding < 1.0, rounding, 1.0)


@dataclass(frozen=True)
class _Continuous:
    """Two densities."""

    p: Density
    q: Density

    @property
    def escapes(self) -> bool:
        """Whether P lives where Q cannot."""
        return self.p.support[0] < self.q.support[0] or self.p.support[1] > self.q.support[1]

    def integral(self, integrand: _Integrand, level: float | None = None) -> tuple[float, float]:
        """Return the logarithm of an integral and its relative error.

        ``level``: the panels are also cut where ln p/q crosses it.
        """

        def log_f(x: Array) -> tuple[Array, Array]:
            lp, lq = self._log_densities(x)
            if np.isnan(lp).any() or np.isnan(lq).any():
                at = x[np.isnan(lp) | np.isnan(lq)][0]
                raise ValueError(f"logpdf must not return NaN, got one at x = {at:g}")
            value, sensitivity = self._integrand(integrand, lp, lq)
            return value[:, None], _rounding(lp, lq, sensitivity)[:, None]

        edges, diverges = self._edges(integrand)
        if diverges:
            return math.inf, 0.0
        if level is not None and math.isfinite(level):
            edges = np.union1d(edges, self._crossings(level))
        if edges.size < 2:
            return -math.inf, 0.0
        log_value, error = integrate(log_f, edges)
        return float(log_value[0]), float(error[0])

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
        return value, 8.0 * _EPS * (1.0 + abs(value)) + float(np.min(error))

    def noise_at(self, epsilon: float) -> float:
        """Return what a hockey-stick divergence that came out zero could be."""
        highest, error = self.supremum()
        return 0.0 if highest + error < epsilon else 4.0 * _EPS

    def _log_densities(self, x: Array) -> tuple[Array, Array]:
        return self.p(x), self.q(x)

    def _log_ratio(self, x: Array) -> tuple[Array, Array]:
        """Return ln p/q (NaN where p vanishes) and its rounding error."""
        lp, lq = self._log_densities(x)
        with np.errstate(invalid="ignore", over="ignore"):
            ratio = np.where(lp > -np.inf, lp - lq, np.nan)
            overflow = np.isneginf(lq) & ~(lp > _IMPOSSIBLE)
            return np.where(overflow, np.nan, ratio), 4.0 * _EPS * (1.0 + abs(lp) + abs(lq))

    @staticmethod
    def _integrand(integrand: _Integrand, lp: Array, lq: Array) -> tuple[Array, Array]:
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

    def _edges(self, integrand: _Integrand) -> tuple[Array, bool]:
        """Return the edges of the first panels, and whether the integral diverges."""
        logs, masses = [], []
        for anchor, x in self._sides:
            log_f = self._integrand(integrand, *self._log_densities(x))[0]
            logs.append(log_f)
            masses.append(log_f + np.log(np.abs(x - anchor)))
        top = max((float(mass.max()) for mass in masses if mass.size), default=-math.inf)
        if math.isinf(top):
            return np.empty(0), top > 0.0
        edges = [self._anchors]
        for i, ((anchor, x), log_f, mass) in enumerate(zip(self._sides, logs, masses, strict=True)):
            seen = np.flatnonzero(np.isfinite(mass))
            if not seen.size:
                continue
            # The mass of a shell grows up to the end of the floats: there is no limit.
            last, first = seen[-1], seen[0]
            outer = i in (0, len(self._sides) - 1)
            far = abs(x[last] - anchor) >= _FAR or log_f[last] > 1e50
            if outer and far and mass[last] >= top - 20.0:
                return np.empty(0), True
            if anchor == 0.0 and abs(x[first]) <= 1.0 / _FAR and mass[first] >= top - 20.0:
                return np.empty(0), True
            kept = np.flatnonzero(mass >= top - _SHELLS)
            if kept.size:
                low, high = max(kept[0] - 1, 0), min(kept[-1] + 1, x.size - 1)
                edges += [x[low:high:4], x[high : high + 1]]
        return np.unique(np.concatenate(edges)), False

    def _nodes(self) -> Array:
        """Return nodes at all scales, wherever p is not impossible."""
        shells = [self._anchors]
        for _, x in self._sides:
            possible = np.flatnonzero(self.p(x) > _IMPOSSIBLE)
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
            same = (self._log_ratio(middle)[0] > level) == start
            low, high = np.where(same, middle, low), np.where(same, high, middle)
        return np.concatenate([low, high])


def _grows(far: Array) -> bool:
    """Return whether three values, each twice as far out, increase without slowing down."""
    first, second = float(far[1] - far[0]), float(far[2] - far[1])
    return first > 1e-6 and second >= 0.9 * first
