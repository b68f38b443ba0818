r"""Exact divergences between two laws: finite ones by sums, densities by quadrature.

Everything is computed from :math:`u = \ln p/q` as an integral of positive terms,

.. math:: D_\alpha(P\|Q) = \frac{1}{\alpha-1}\ln\Big(1 + (\alpha-1)\int p\,\Big[\kappa(-u)
          + \frac{\kappa((\alpha-1)u)}{\alpha-1}\Big]\Big), \qquad \kappa(x) = e^x - 1 - x \ge 0,

so that neither a tiny nor a huge divergence loses its relative accuracy, and order 1 is no
special case. Laws must be normalised; this is checked.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .._validation import check_finite, check_number, check_reals
from ._density import Density, Pair
from ._integrands import EPS, Array, Integrand, excess, first, moment, rounding
from ._plain import CutPair, Plain

__all__ = ["Density", "hockey_stick", "privacy_profile", "renyi_divergence"]

# Sums of probabilities and integrals of densities may miss one by this much.
_NORMALISED = 1e-8


def renyi_divergence(p: Any, q: Any, order: float, *, full_output: bool = False) -> Any:
    """Return the Renyi divergence of P from Q in nats.

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
        Infinite where P has mass that Q has not, or the integral diverges.
    error : float
        Only with ``full_output``.

    Raises
    ------
    TypeError, ValueError
        If the order is below 1, or p or q is no law, or the two do not belong together.

    References
    ----------
    Mironov (2017), Definition 3; Chen and Lee (2020), Definition 2.

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
    if isinstance(pair, Pair) and isinstance(pair.q, Plain):
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
    p, q : array_like, shape (m,); or Density, frozen scipy.stats distribution or callable
        Probabilities of the same m outcomes, or two densities; a plain callable is x -> p(x),
        of an array or of one number.
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
    p, q : array_like, shape (m,); or Density, frozen scipy.stats distribution or callable
        Probabilities of the same m outcomes, or two densities; a plain callable is x -> p(x),
        of an array or of one number.
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


def _pair(p: Any, q: Any) -> _Finite | Pair:
    continuous = [hasattr(law, "logpdf") or callable(law) for law in (p, q)]
    if all(continuous):
        return Pair(_density("p", p), _density("q", q))
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
        value = _known(value) or Plain.of(name, getattr(value, "pdf", value))
    total, error = _mass(value)
    if not abs(total - 1.0) <= _NORMALISED + error:
        raise ValueError(f"{name} must integrate to 1 within {_NORMALISED:g}, got {total!r}")
    return value


def _known(law: Any) -> Density | None:
    """Return the density of a distribution of SciPy that knows its logarithm, or None."""
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


# How far from each of a density's points it is looked at before its integral is remembered.
_PROBES = np.array([-20.0, -3.0, -1.0, -0.1, 0.0, 0.1, 1.0, 3.0, 20.0])


def _mass(density: Density) -> tuple[float, float]:
    """Return the integral of a density and its error (an unresolved one is no excuse).

    The function behind a density may be that of an object which is changed later. So its values
    at some points belong to what is remembered.
    """
    at = np.add.outer(np.array(density.points or (0.0,)), _PROBES).ravel()
    return _mass_of(density, density(at).tobytes())


@lru_cache(maxsize=256)
def _mass_of(density: Density, values: bytes) -> tuple[float, float]:
    log_mass, relative = Pair(density, density).integral(first)
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
        # Outcomes whose ratio is the level itself, up to rounding, are in or out by chance.
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
