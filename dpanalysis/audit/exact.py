r"""Divergences of two laws to full accuracy: sums over outcomes, or quadrature of densities.

Everything is computed from :math:`u = \ln p/q` as an integral of positive terms,

.. math:: D_\alpha(P\|Q) = \frac{1}{\alpha-1}\ln\Big(1 + (\alpha-1)\int p\,\Big[\kappa(-u)
          + \frac{\kappa((\alpha-1)u)}{\alpha-1}\Big]\Big), \qquad \kappa(x) = e^x - 1 - x \ge 0,

so that tiny and huge divergences keep their relative accuracy, and order 1 is not a special case.
Laws must be normalized; this is checked.

A density may be a plain function. Far out it underflows to 0 although its law has mass there. If
the density of Q *fades* in this way, P is truncated, and a divergence that would need values
beyond raises an error. Where a density jumps to 0, its support ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .._validation import check_finite, check_number, check_reals
from .quadrature import EPS, Array, Density, DensityPair, Integrand, excess, first, moment, rounding

_FLOOR = 1e-300  # below this, floats lose digits
_FADED = 1e-30  # a last value below this share of the peak is underflow, not a jump
_NEGLIGIBLE = -20.0  # logarithm of a negligible share of an integral
_DISTANCES = np.exp2(np.arange(-60.0, 1001.0))


@dataclass(frozen=True)
class Plain(Density):
    """A density given as a plain function; ``faded``: whether it underflows at (low, high)."""

    faded: tuple[bool, bool] = (False, False)

    @classmethod
    def of(cls, name: str, pdf: Callable[[Any], Any]) -> Plain:
        """Find the mode and the support of a density that maps arrays or single numbers."""
        values = _vectorized(name, pdf)
        x = np.concatenate([-_DISTANCES[::-1], [0.0], _DISTANCES])
        mode = float(x[np.argmax(values(x))])
        if not values(np.array([mode]))[0] > 0.0:
            raise ValueError(
                f"{name} is 0 wherever it was evaluated: give Density(logpdf, points) with a "
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
        low, high = (_end(values, mode, sign) for sign in (-1.0, 1.0))
        faded = values(np.array([low, high])) < _FADED * peak

        def logpdf(x: Array) -> Array:
            return np.log(values(x))

        return cls(logpdf, (mode,), (low, high), (bool(faded[0]), bool(faded[1])))


def _vectorized(name: str, pdf: Callable[[Any], Any]) -> Callable[[Array], Array]:
    """Return the density as a function of arrays; values below ``_FLOOR`` become 0."""

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
class CutPair(DensityPair):
    """Two densities, where q is unknown beyond the cuts."""

    cuts: tuple[float, ...] = ()

    @classmethod
    def of(cls, p: Density, q: Plain) -> CutPair:
        """Truncate p where q fades."""
        low, high = (
            end if faded else sign * math.inf
            for end, faded, sign in zip(q.support, q.faded, (-1.0, 1.0))
        )
        support = max(p.support[0], low), min(p.support[1], high)
        for end, beyond in ((low, (p.support[0], low)), (high, (high, p.support[1]))):
            if beyond[0] < beyond[1] and _mass(replace(p, support=beyond))[0] > _NORMALIZED:
                raise cls._unknown(end)
        cuts = tuple(end for end in (low, high) if end in support and math.isfinite(end))
        return cls(replace(p, support=support), q, cuts)

    def integral(self, integrand: Integrand, level: float | None = None) -> tuple[float, float]:
        """Return the logarithm of an integral and its relative error."""
        log_value, error = super().integral(integrand, level)
        for end in self.cuts:
            at = np.array([end])
            last = float(self._integrand(integrand, self.p(at), self.q(at))[0][0])
            width = max(abs(end - point) for point in (*self.p.points, *self.q.points))
            if last + math.log(width) > log_value + _NEGLIGIBLE:
                raise self._unknown(end)
        return log_value, error

    def supremum(self) -> tuple[float, float]:
        """Return the supremum of ln p/q where p > 0, and its error."""
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


# Divergences


# Sums of probabilities and integrals of densities may differ from 1 by this much.
_NORMALIZED = 1e-8


def renyi_divergence(p: Any, q: Any, order: float, *, full_output: bool = False) -> Any:
    """Return the Renyi divergence of P from Q in nats.

    Mironov (2017), Definition 3; Chen and Lee (2020), Definition 2.

    Parameters
    ----------
    p, q : array_like, shape (m,); or Density, frozen scipy.stats distribution or callable
        Probabilities of the same m outcomes, or two densities; a plain callable is x -> p(x),
        of an array or of one number.
    order : float
        In [1, inf]: 1 is the Kullback-Leibler divergence, inf the largest log ratio.
    full_output : bool, default=False
        Also return an estimate of the absolute error, meant to be on the safe side.

    Returns
    -------
    divergence : float
        Infinite if P has mass where Q has none, or the integral diverges.
    error : float
        Only with ``full_output``.

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
    if isinstance(pair, DensityPair) and isinstance(pair.q, Plain):
        pair = CutPair.of(pair.p, pair.q)
    if isinstance(pair, _Finite):
        value, error = pair.renyi(order)
    elif pair.escapes:
        value, error = math.inf, 0.0
    elif math.isinf(order):
        value, error = pair.supremum()
    else:
        value, error = _divergence(*pair.integral(moment(order)), order)
    return (value, error) if full_output else value


def hockey_stick(p: Any, q: Any, epsilon: float, *, full_output: bool = False) -> Any:
    r"""Return the largest P(S) - e**epsilon Q(S) over all events S.

    Parameters
    ----------
    p, q, full_output
        As in :func:`renyi_divergence`.
    epsilon : float
        In (-inf, inf].

    Returns
    -------
    delta, error : float
        :math:`\int (p - e^\epsilon q)_+`, in [0, 1]; one direction.

    Examples
    --------
    >>> hockey_stick([0.75, 0.25], [0.25, 0.75], 0.0)
    0.5
    >>> from scipy import stats
    >>> hockey_stick(stats.norm(1), stats.norm(0), 1.0)
    0.12694
    """
    epsilon = check_number("epsilon", epsilon, low=-math.inf, low_open=True, finite=False)
    pair = _pair(p, q)
    if isinstance(pair, _Finite):
        value, error = pair.hockey_stick(epsilon)
    else:
        log_value, relative = pair.integral(excess(epsilon), level=epsilon)
        value = min(1.0, math.exp(log_value))
        error = min(1.0, (value * relative if value else 0.0) + pair.noise_at(epsilon))
    return (value, error) if full_output else value


def privacy_profile(p: Any, q: Any, epsilon: ArrayLike) -> Any:
    """Return delta(epsilon) of the pair: the larger of both hockey-stick divergences.

    Parameters
    ----------
    p, q
        As in :func:`renyi_divergence`.
    epsilon : array_like
        In (-inf, inf].

    Examples
    --------
    >>> privacy_profile([0.8, 0.2], [0.5, 0.5], [0.0, 0.3])
    array([0.3    , 0.23003])
    """
    levels = check_reals("epsilon", epsilon)
    _pair(p, q)
    delta = np.array([max(hockey_stick(p, q, e), hockey_stick(q, p, e)) for e in levels.flat])
    return float(delta[0]) if levels.ndim == 0 else delta.reshape(levels.shape)


def _pair(p: Any, q: Any) -> _Finite | DensityPair:
    continuous = [hasattr(law, "logpdf") or callable(law) for law in (p, q)]
    if all(continuous):
        return DensityPair(_density("p", p), _density("q", q))
    if any(continuous):
        raise TypeError(f"p and q must both be probabilities or both densities, got {p!r}, {q!r}")
    pair = _Finite(_probabilities("p", p), _probabilities("q", q))
    if pair.p.shape != pair.q.shape:
        raise ValueError(
            f"p and q must have the same outcomes, got {pair.p.size} and {pair.q.size} of them"
        )
    return pair


def _probabilities(name: str, value: Any) -> Array:
    if hasattr(value, "logpmf"):
        raise TypeError(
            f"{name} must be an array of probabilities, got a discrete law: give those of its "
            f"outcomes, {name}.pmf(range(m)), with the rest in the last one"
        )
    array = check_finite(name, check_reals(name, value))
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"{name} must have shape (m,), m >= 1, got shape {array.shape}")
    if (array < 0.0).any():
        raise ValueError(f"{name} must have no negative entry, got {array.min():g}")
    total = math.fsum(array)
    if abs(total - 1.0) > _NORMALIZED:
        raise ValueError(f"{name} must sum to 1 within {_NORMALIZED:g}, got {total!r}")
    return array


def _density(name: str, value: Any) -> Density:
    if not isinstance(value, Density):
        value = _known(value) or Plain.of(name, getattr(value, "pdf", value))
    total, error = _mass(value)
    if not abs(total - 1.0) <= _NORMALIZED + error:
        raise ValueError(f"{name} must integrate to 1 within {_NORMALIZED:g}, got {total!r}")
    return value


def _known(law: Any) -> Density | None:
    """Return the density of a SciPy distribution that defines its logarithm, or None."""
    owner = getattr(law, "__self__", None)
    if getattr(law, "__name__", "") == "pdf" and hasattr(owner, "logpdf"):
        law = owner
    if not hasattr(law, "logpdf"):
        return None
    family = getattr(law, "dist", law)
    if getattr(family, "name", "") == "laplace":  # SciPy takes the logarithm of its density
        center, scale = float(law.median()), float(law.std()) / math.sqrt(2.0)
        return Density(lambda x: -np.abs(x - center) / scale - math.log(2.0 * scale), (center,))
    from scipy import stats

    if getattr(type(family), "_logpdf", None) is stats.rv_continuous._logpdf:
        return None
    low, high = law.support()
    return Density(law.logpdf, (float(law.median()),), (float(low), float(high)))


# Distances from a density's points; its values there are part of the cache key of its integral.
_PROBES = np.array([-20.0, -3.0, -1.0, -0.1, 0.0, 0.1, 1.0, 3.0, 20.0])


def _mass(density: Density) -> tuple[float, float]:
    """Return the integral of a density and its error, at most 1e-6."""
    # Values at some points are part of the cache key, since the density may be mutated later.
    at = np.add.outer(np.array(density.points or (0.0,)), _PROBES).ravel()
    return _mass_of(density, density(at).tobytes())


@lru_cache(maxsize=256)
def _mass_of(density: Density, values: bytes) -> tuple[float, float]:
    log_mass, relative = DensityPair(density, density).integral(first)
    mass = math.exp(min(log_mass, 700.0))
    return mass, min(mass * relative, 1e-6)


def _divergence(log_moment: float, relative: float, order: float) -> tuple[float, float]:
    """Return the divergence ln(1 + beta moment)/beta, and its error."""
    beta = order - 1.0

    def of(log_x: float) -> float:
        if beta == 0.0:
            return math.exp(log_x) if log_x < 709.0 else math.inf
        return float(np.logaddexp(0.0, math.log(beta) + log_x)) / beta

    value = of(log_moment)
    if not math.isfinite(value):
        return value, 0.0
    upper = of(log_moment + math.log1p(relative))
    lower = of(log_moment + math.log1p(-relative)) if relative < 1.0 else 0.0
    return value, max(upper - value, value - lower) + 4.0 * EPS * value


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
            return value, 8.0 * EPS * (1.0 + abs(value))
        return _divergence(*self._sum(moment(order)), order)

    def hockey_stick(self, epsilon: float) -> tuple[float, float]:
        log_value, relative = self._sum(excess(epsilon))
        value = min(1.0, math.exp(log_value))
        # Rounding decides whether outcomes whose ratio equals the level count.
        lp, lq, u = self._logs
        noise = rounding(lp, lq, np.ones_like(u))
        near = np.abs(np.where(np.isfinite(u), u, np.inf) - epsilon) <= noise
        return value, value * relative + float(np.sum(self.p * noise, where=near))

    def _sum(self, integrand: Integrand) -> tuple[float, float]:
        """Return the logarithm of the sum over outcomes and its relative error."""
        value, sensitivity = integrand(*self._logs)
        top = float(np.max(value, initial=-np.inf, where=~np.isnan(value)))
        if math.isinf(top):
            return top, 0.0
        weight = np.where(np.isnan(value), 0.0, np.exp(value - top))
        total = math.fsum(weight)
        lost = math.fsum(weight * rounding(*self._logs[:2], sensitivity))
        return top + math.log(total), lost / total + 4.0 * EPS
