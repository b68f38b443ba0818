"""Integrals of positive functions given by their logarithms, to relative accuracy.

The integrands of an audit range over hundreds of orders of magnitude, and often it is the
rarest part that decides. Everything here stays in logarithms, each of several integrals is
refined until it is accurate relative to itself, and a panel on which the logarithm changes too
fast to be trusted is split, however small the error looks there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["NODES", "integrate"]

Array: TypeAlias = NDArray[np.float64]
# x (n,) -> logarithms (n, m), and the absolute rounding error of each (broadcasts).
LogIntegrand: TypeAlias = Callable[[Array], tuple[Array, Array]]

# Kronrod's 15 points on [-1, 1]; every second one is a point of Gauss' rule of order 7.
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
# Orthonormal functionals of the values at the nodes that vanish for degrees up to 11, times
# the size of the rules' difference, which is one of their combinations. A kink may be where
# that one happens to vanish, but hardly where all three do.
_ROUGHNESS = np.linalg.svd(np.polynomial.legendre.legvander(NODES, 11).T)[2][12:]
_ROUGHNESS *= np.linalg.norm(_DIFFERENCE)

_GAPS = np.diff(NODES)
_END = 1.0 - NODES[-1]
# The ends are looked at from this far inside, in half widths: there may be a jump or a pole.
_INSIDE = 1e-9
# The value there of the polynomial through the nodes; reversed, at the left end.
_AT_END = np.array([
    np.prod([(1.0 - _INSIDE - other) / (node - other) for other in NODES if other != node])
    for node in NODES
])  # fmt: skip
# All sums over the nodes of a panel, in one product.
_RULES = np.stack([_KRONROD, *_ROUGHNESS, _AT_END[::-1], _AT_END])
_EPS = float(np.finfo(np.float64).eps)
# A peak between two nodes may hide this much above the highest node; more is unresolved.
_HIDDEN = 3.0
# A panel whose mass is below exp(-_NEGLIGIBLE) of the integral is not looked at again.
_NEGLIGIBLE = 50.0
# No panel is thinner: half of it would not be a number.
_THINNEST = 1e-300
# Numbers held at once.
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
    """Return the logarithms of m integrals over one interval, and their relative errors.

    Parameters
    ----------
    log_f : callable
        x (n,) -> (logarithms (n, m), their absolute rounding errors, broadcasting to it).
    edges : ndarray
        Increasing; the first panels lie between them.
    cuts : ndarray, optional
        Increasing; a panel is split there rather than in its middle (kinks of the integrand).
    rtol : float
        Aim for each integral; the error returned says what was reached.
    floor : float
        Integrals with a logarithm below need not be found.
    max_nodes : int
        Evaluations after which the error is left as it is.

    Returns
    -------
    log_value, error : ndarray, shape (m,)
        Where the integral is zero the error is zero.
    """
    cuts = np.empty(0) if cuts is None else cuts
    edges = edges[np.append(True, np.diff(edges) > _THINNEST)]
    count = log_f(0.5 * (edges[:1] + edges[1:2]))[0].shape[1]
    size = max(1, _CHUNK // (NODES.size * count))

    def look(panels: Array) -> _Panels:
        starts = range(0, panels.shape[0], size)
        return _joined([_evaluate(log_f, panels[start : start + size]) for start in starts])

    panels = look(np.stack([edges[:-1], edges[1:]], axis=1))
    # A rough pass finds where the mass lies; only then is it known what counts as small.
    used = panels.edges.shape[0] * NODES.size
    leaves, used = _refine(look, panels, cuts, 1e-2, floor, max_nodes // 4, used)
    leaves, _ = _refine(look, leaves, cuts, rtol, floor, max_nodes, used)
    log_value, lost = _log_sum(leaves.value), _log_sum(leaves.lost)
    with np.errstate(invalid="ignore"):
        error = np.exp(np.minimum(lost - log_value, 700.0))
    nothing = np.where(np.isneginf(lost), 0.0, np.inf)
    return log_value, np.where(np.isneginf(log_value), nothing, error)


class _Panels(NamedTuple):
    """Panels, and what their nodes say of the integrals over them, each (panels, m)."""

    edges: Array  # (panels, 2)
    value: Array
    error: Array
    hidden: Array
    noise: Array

    @property
    def lost(self) -> Array:
        """How far an integral may be off, as a logarithm."""
        worst = np.where(self.hidden > _HIDDEN, self.value + self.hidden, self.error)
        return np.logaddexp(worst, self.value + self.noise)

    def where(self, which: Array) -> _Panels:
        """Return some of the panels."""
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
    """Split panels until each integral is resolved; return them, and how many nodes were used."""
    leaves: list[_Panels] = []
    done, log_total = np.array(-np.inf), _log_sum(panels.value)
    while True:
        _, value, error, hidden, noise = panels
        limit = np.logaddexp(value, log_total - np.log(64.0))
        accurate = (error <= limit + np.maximum(np.log(rtol), noise)) & (hidden <= _HIDDEN)
        small = value + hidden <= np.maximum(log_total, floor) - _NEGLIGIBLE
        low, high = panels.edges.T
        thin = high - low <= 64.0 * _EPS * np.maximum(np.abs(low), np.abs(high))
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
    """Return panels with log integral, log error, hidden rise and log noise.

    The error is what of the function is rougher than a polynomial, and what its values at the
    ends of the panel differ from the polynomial's: a kink behind the last node shows only there.
    """
    start, end = panels.T
    middle, half = 0.5 * (start + end), 0.5 * (end - start)
    x = middle[:, None] + half[:, None] * NODES
    # Evaluated behind the nodes; never outside the panel, never on its border.
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
        # A node is off by its own rounding: that moves the logarithm by its slope.
        slope = np.abs(change) * (1.0 / _GAPS)[:, None]
        slope *= (0.5 * _EPS * np.abs(x).max(axis=1) / half)[:, None, None]
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
    rise, log_noise = np.maximum(rise, 0.0), np.maximum(log_noise, np.log(4.0 * _EPS))
    return _Panels(panels, integral, error, rise, log_noise)


def _hidden(value: Array, change: Array) -> Array:
    """Return how high each gap between nodes can reach if the logarithm is concave there.

    A concave function lies below the continuation of its chords from either side.
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
    """Halve panels: at the middle one of the cuts inside, else in the middle."""
    low, high = panels.T
    at = 0.5 * (low + high)
    if cuts.size:
        first = np.searchsorted(cuts, low, side="right")
        last = np.searchsorted(cuts, high, side="left")
        cut = cuts[np.minimum((first + last) // 2, cuts.size - 1)]
        apart = np.minimum(cut - low, high - cut) > _THINNEST
        at = np.where((last > first) & apart, cut, at)
    return np.concatenate([np.stack([low, at], axis=1), np.stack([at, high], axis=1)])
