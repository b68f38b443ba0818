r"""Upper bounds on the Renyi cost of AboveThreshold, with proofs.

AboveThreshold adds noise :math:`\varrho` to a public threshold T and halts at the first query
with :math:`q_i + \nu_i \ge T + \varrho`. Each query has sensitivity 1.

**The coupling.** For any t in [0, 1] compare the run on D at the noise r with the run on D' at
the noise r + t. Releasing the noise as well only adds information, and noise and index compose:

.. math:: R \le R_\varrho(t) + \sup_r D_\alpha(P_r \| P'_{r+t}),

where :math:`R_\varrho(t)` is the cost of a shift by t of the threshold's noise and :math:`P_r` the
law of the halting index at the noise r. Given r, the queries are independent. Query i halts with
probability h on D and h' on D'. With :math:`\bar F(x) = P(\nu \ge x)` these are :math:`h' = \bar
F(x)` and :math:`h = \bar F(x - d)` for some real x and :math:`d = t + q_i - q_i' \in [t-1, t+1]`.

**The recursion.** Let :math:`V_j` bound :math:`\sum_v P_r(v)^\alpha P'_{r+t}(v)^{1-\alpha}` over
the outcomes of any j queries. Without queries there is one outcome, so :math:`V_0 = 1`. Otherwise
the first query halts, or leaves j - 1 queries:

.. math:: V_j = \sup_{x,\,d}\; h^\alpha h'^{1-\alpha} + (1-h)^\alpha (1-h')^{1-\alpha} V_{j-1}.

For fixed x (hence h') this expression is convex in h, as both powers are and :math:`V \ge 0`; so
only the ends d = t - 1 and d = t + 1 matter. Queries may be chosen adaptively: until the run halts
there is a single history. For t = 1 the end d = 0 means h = h', a value of at most
:math:`V_{j-1} \ge 1`, which :math:`x \to \infty` attains too; what remains is d = 2, as in errata
002-2 and 002-3. A number :math:`V \ge 1` that is no smaller than its own image under the recursion
bounds all :math:`V_j` at once, by induction: this is the bound without a cap.

**The simpler bounds.** For t = 1, :math:`h \ge h'`, so no factor :math:`(1-h)/(1-h')` is above 1
and :math:`V_j \le V_{j-1} + e^{(\alpha-1) R_\nu(2)}`. One query reveals no more than its noisy
value, :math:`V_1 \le e^{(\alpha-1) R_\nu(2)}`, so :math:`V_K \le K e^{(\alpha-1) R_\nu(2)}`. With
Laplace noise of scale b no :math:`P_r(v)/P'_{r+1}(v)` is above :math:`e^{2/b}`, so the divergence
is at most 2/b. At t = 0 the queries release no more than all :math:`q_i + \nu_i`:
:math:`K R_\nu(1)`. And the Laplace mechanism is (1/b_threshold + 2/b)-private (Chen and Lee
(2020), Theorem 1), which converts tightly.

**Queries that share a value.** Let :math:`q_i = f_0 - f_i` up to public terms, where one record
moves each f by an amount within an interval of length one: a decrease of a sum of losses clamped
to [0, 1], as in a line search. Then all :math:`q_i - q_i'` lie in one interval [a, a + 1] with
:math:`-1 \le a \le 0`, which is fixed by the pair of neighbours, so the proof may use a. Shift the
threshold by :math:`-a - 1/2 + t/2`, whose absolute value is at most :math:`(1 + t)/2`. Then d lies
in :math:`[(t-1)/2, (t+1)/2]`: the recursion above for queries with noise 2b. At t = 1 this gives
:math:`R_\varrho(1)` and :math:`d \in [0, 1]`, so 2/b becomes 1/b in the simpler bounds. The bound
on the shift is at least 1/2, which is costly where the threshold's noise is small. The bounds for
queries that share nothing hold as well, and the smallest bound is used.

The supremum is taken on a grid that is refined around the maximum of every step. The remaining
error is far below the relative margin of 1e-6 that is added.

References
----------
Chen and Lee (2020), Algorithm 1 and Theorems 1 to 3. Their Renyi statements are not used: the
proof drops the sum over the halting index, and Theorem 3 is false.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from ..._validation import as_scalar, check_choice, check_int, check_number, check_positive
from .events import Event
from .rdp import Array, _log_power_excess, _orders, rdp_gaussian, rdp_laplace, rdp_pure

Indices: TypeAlias = NDArray[np.intp]

# Relative margin for the error of the grid, added to the cost of the queries.
_MARGIN = 1e-6
# Spacing of the first grid in units of the queries' noise, and number of refinements.
_SPACING = 0.03
_REFINEMENTS = 3
# A grid coarser by this factor serves to rule out couplings.
_COARSENING = 8
# The couplings tried for coupling="best".
_SHIFTS = tuple(i / 8.0 for i in range(9))
# Beyond these the recursion takes more time than its gain over the closed forms is worth.
_WIDEST, _FLATTEST = 2000.0, 1e6
# Number of passes that prune points below their neighbours before the hull is computed.
_PRUNINGS = 20
# Number of points above which a grid takes too much memory; the other bounds remain.
_MOST_POINTS = 2_000_000


def rdp_above_threshold(
    orders: ArrayLike,
    noise: str,
    threshold_scale: float,
    query_scale: float,
    max_queries: int | None,
    *,
    coupling: float | str = 1.0,
    shared: bool = False,
) -> Any:
    r"""Return a bound on the Renyi cost of halting at the first noisy query above the threshold.

    Parameters
    ----------
    orders : array_like
        Renyi orders in (1, inf].
    noise : {"laplace", "gaussian"}
        Noise of both the threshold and the queries.
    threshold_scale, query_scale : float
        Laplace scale or standard deviation over the sensitivity of a query, positive.
        (The paper's budgets are eps_1 = 1/threshold_scale and eps_2 = 1/query_scale, its
        variances sigma_1**2 = threshold_scale**2 and sigma_2**2 = query_scale**2.)
    max_queries : int or None
        Cap K on the number of queries; None for no cap, with Laplace noise only.
    coupling : float or "best", default=1.0
        The shift t in [0, 1] of the threshold in the proof. Each gives a valid bound: 1 is
        the classical one, a small t is far better at small orders, "best" tries several.
    shared : bool, default=False
        If true, every query is a common value minus one of its own, and one record moves each
        of these within an interval of length one (see this module's docstring). Costs less.

    Returns
    -------
    float or ndarray
        A proven upper bound, of the shape of ``orders``.

    Raises
    ------
    TypeError, ValueError
        If an argument is outside its range, or Gaussian noise is used without a cap: then no
        bound holds, as the cost grows with the number of queries.

    References
    ----------
    Errata 002-2 and 002-3; the proof is in this module's docstring.

    Examples
    --------
    With a pure budget of 1, and Gaussian noise for which Theorem 3 claims .02:

    >>> rdp_above_threshold(2, "laplace", 2.0, 4.0, 20)
    0.45701
    >>> rdp_above_threshold(2, "gaussian", 150**0.5, 300**0.5, 20)
    0.046376
    >>> rdp_above_threshold(2, "laplace", 2.0, 4.0, 20, coupling="best")
    0.134654
    >>> rdp_above_threshold(2, "laplace", 2.0, 4.0, 20, coupling="best", shared=True)
    0.093221
    """
    order = _orders(orders)
    check_choice("noise", noise, ("laplace", "gaussian"))
    first = check_positive("threshold_scale", threshold_scale)
    second = check_positive("query_scale", query_scale)
    cap = math.inf
    if max_queries is not None and max_queries != math.inf:
        cap = check_int("max_queries", max_queries, low=1)
    shifts = _SHIFTS
    if coupling != "best":
        shifts = (check_number('coupling, if not "best",', coupling, low=0.0, high=1.0),)
    if noise == "gaussian" and math.isinf(cap):
        raise ValueError(
            f"max_queries must be finite with Gaussian noise, got {max_queries!r}: "
            "without a cap there is no bound"
        )
    cost = [_bound(float(a), noise, first, second, cap, shifts, shared) for a in order.flat]
    return as_scalar(np.array(cost).reshape(order.shape))


@lru_cache(maxsize=4096)
def _bound(
    order: float,
    noise: str,
    first: float,
    second: float,
    cap: float,
    shifts: tuple[float, ...],
    shared: bool,
) -> float:
    """Return the smallest of the bounds of this module's docstring at one order."""
    laplace = noise == "laplace"
    release = rdp_laplace if laplace else lambda a, shift: rdp_gaussian(a, 1.0 / shift)
    bounds = [cap * release(order, 1.0 / second)] if math.isfinite(cap) else []
    # Queries that share a value have sensitivity 1 too, and that bound may be smaller.
    kinds = [(2.0 * second, True), (second, False)] if shared else [(second, False)]
    for scale, _ in kinds:
        if laplace:
            bounds.append(rdp_pure(order, 1.0 / first + 2.0 / scale))
            bounds.append(release(order, 1.0 / first) + 2.0 / scale)
        if math.isfinite(order):
            queries = release(order, 2.0 / scale) + math.log(cap) / (order - 1.0)
            bounds.append(release(order, 1.0 / first) + queries)
    if math.isinf(order):
        return min(bounds)
    candidates = []
    for scale, common in kinds:
        if scale > _FLATTEST or 2.0 * (1.0 if laplace else order) / scale > _WIDEST:
            continue
        several = len(shifts) > 1
        least = _queries_at_least(order, noise, scale, cap, shifts) if several else (0.0,)
        for shift, queries in zip(shifts, least):
            moved = 0.5 * (1.0 + shift) if common else shift
            threshold = release(order, moved / first) if moved else 0.0
            candidates.append((threshold + queries, threshold, scale, shift))
    for total, threshold, scale, shift in sorted(candidates):
        if total >= min(bounds):  # no later candidate can be smaller
            break
        queries = (1.0 + _MARGIN) * _queries(order, noise, scale, cap, shift)
        bounds.append(threshold + queries)
    return float(min(bounds))


def _first_grid(
    order: float, noise: str, cap: float, moves: tuple[float, ...], spacing: float
) -> Array:
    least, most = min(*moves, 0.0), max(moves)
    if noise == "laplace":
        left, right = least - 40.0, most + 40.0
    else:  # h**a h'**(1-a) peaks at order times the move, and the maximizer moves out with ln K
        left, right = order * least - 12.0, order * most + 12.0
        right += math.sqrt(2.0 * math.log(cap))
    return np.union1d(np.arange(left, right, spacing), [0.0, *moves])


@lru_cache(maxsize=4096)
def _queries_at_least(
    order: float, noise: str, scale: float, cap: float, shifts: tuple[float, ...]
) -> tuple[float, ...]:
    """Return a quick lower bound on :func:`_queries` at several shifts, from a coarse grid."""
    points, moved, ends = [], [], [0]
    for shift in shifts:
        moves = _moves(scale, shift)
        x = _first_grid(order, noise, cap, moves, _COARSENING * _SPACING)
        for move in moves:
            points.append(x)
            moved.append(np.full(x.size, move))
        ends.append(ends[-1] + len(moves) * x.size)
    if ends[-1] > _MOST_POINTS:
        return (0.0,) * len(shifts)
    log_c, u = _lines(np.concatenate(points), np.concatenate(moved), order, noise)
    found = [_iterate(log_c[lo:hi], u[lo:hi], cap)[0] for lo, hi in pairwise(ends)]
    return tuple(float(np.logaddexp(0.0, log_w)) / (order - 1.0) for log_w in found)


def _moves(scale: float, shift: float) -> tuple[float, ...]:
    """Return the nonzero ends, t + 1 and t - 1, of d in units of the queries' noise."""
    return tuple(move for move in ((1.0 + shift) / scale, (shift - 1.0) / scale) if move != 0.0)


@lru_cache(maxsize=4096)
def _queries(order: float, noise: str, scale: float, cap: float, shift: float) -> float:
    r"""Return :math:`\ln V_K/(\alpha-1)` for the threshold's shift t."""
    moves = _moves(scale, shift)
    x = _first_grid(order, noise, cap, moves, _SPACING)

    def lines(points: Array) -> Array:
        return np.stack([_lines(points, move, order, noise) for move in moves], axis=1)

    known = lines(x)
    for refinements_left in range(_REFINEMENTS)[::-1]:
        if x.size > _MOST_POINTS:
            return math.inf
        log_c, u = known
        log_w, used, weights = _iterate(log_c.ravel(), u.ravel(), cap)
        if not used.size:  # W is unbounded
            return math.inf
        if refinements_left:
            finer = _between(x, log_c, u, used % x.size, weights)
            x, first = np.unique(np.concatenate([x, finer]), return_index=True)
            known = np.concatenate([known, lines(finer)], axis=2)[..., first]
    return float(np.logaddexp(0.0, log_w)) / (order - 1.0)


def _lines(x: Array, move: Array | float, order: float, noise: str) -> Array:
    """Return ln c and u of the steps W -> c + (1 - u) W, where W = V - 1: shape (2, n).

    c = h**a h'**(1-a) + (1-h)**a (1-h')**(1-a) - 1 is summed without cancellation, as
    E'[phi(h/h')] with phi(s) = s**a - 1 - a (s - 1) >= 0.
    """
    logsf = _LOGSF[noise]
    log_c = np.full(x.size, -np.inf)
    for sign in (1.0, -1.0):
        on, off = logsf(sign * (x - move)), logsf(sign * x)
        log_c = np.logaddexp(log_c, off + _log_power_excess(on - off, order))
    stay = order * logsf(-(x - move)) + (1.0 - order) * logsf(-x)
    stay[stay > 700.0] = np.nan  # would overflow: no bound
    return np.stack([log_c, -np.expm1(stay)])


def _iterate(log_c: Array, u: Array, cap: float) -> tuple[float, Indices, Array]:
    """Return ln W_K of W -> max_i c_i + (1 - u_i) W from W = 0, and the maximizers.

    W never decreases (a query that never halts is always possible), so the maximizer walks
    along the upper hull of the points (u, c), and many steps on one line are a geometric sum.
    The k-th maximum of ``a c_i/max(c) - b u_i``, (a, b) = weights[k], was at i = used[k].
    """
    if np.isnan(u).any() or (math.isinf(cap) and (u <= 0.0).any()):
        return math.inf, np.empty(0, dtype=np.intp), np.empty((0, 2))
    top = float(log_c.max())
    c = np.exp(log_c - top)
    if math.isinf(cap):  # the largest fixed point c/u
        best = np.argmax(log_c - np.log(u))
        log_w = float(log_c[best] - math.log(u[best]))
        return log_w, np.array([best]), np.array([[1.0, math.exp(log_w - top)]])
    hull = _hull(c, u)
    c, rate = c[hull], u[hull]
    # Line i + 1 exceeds line i once W reaches this limit, which is infinite if it overflows.
    with np.errstate(over="ignore"):
        limits = [*((c[:-1] - c[1:]) / (rate[:-1] - rate[1:])).tolist(), math.inf]
    heights, rates = c.tolist(), rate.tolist()
    w, scale, left, i = 0.0, 1.0, cap, 0
    used, weights = [], []
    while left > 0:
        i = bisect_right(limits, w, i)
        used.append(i)
        weights.append((scale, w))
        steps = min(left, _steps(w, limits[i], heights[i], rates[i]))
        w, growth = _jump(w, heights[i], rates[i], steps)
        if steps < left and not growth:  # the steps reach the limit, unless they are rounded away
            w = max(w, limits[i])
        if growth:  # W would overflow: measure everything in units of e**growth
            top, unit = top + growth, math.exp(-growth)
            scale, heights = scale * unit, [height * unit for height in heights]
            limits = [limit * unit for limit in limits]
        left -= steps
    return top + math.log(w), hull[used], np.array(weights)


def _hull(c: Array, u: Array) -> Indices:
    """Return the points that maximize c - u W for some W >= 0, in order of increasing W."""
    order = np.lexsort((-c, u))[::-1]
    order = order[int(np.argmax(c[order])) :]
    later = np.append(np.maximum.accumulate(c[order][::-1])[::-1][1:], -np.inf)
    order = order[c[order] > later]
    # Most of the others lie below the line between their neighbours: drop all of these at once.
    for _ in range(_PRUNINGS):
        with np.errstate(over="ignore"):
            between = np.diff(c[order]) / np.diff(u[order])
        keep = np.ones(order.size, dtype=bool)
        keep[1:-1] = between[1:] > between[:-1]
        if keep.all():
            return order
        order = order[keep]
    # The upper hull of the remaining points, by Andrew's monotone chain.
    heights, rates = c[order].tolist(), u[order].tolist()
    hull: list[int] = []
    slopes: list[float] = []
    for k in range(len(heights)):
        while hull:
            # Infinite where only a W that overflows would distinguish the points.
            slope = (heights[k] - heights[hull[-1]]) / (rates[k] - rates[hull[-1]])
            if not slopes or slope > slopes[-1]:
                slopes.append(slope)
                break
            slopes.pop()
            hull.pop()
        hull.append(k)
    return order[hull]


def _steps(w: float, limit: float, c: float, u: float) -> float:
    """Return the number of steps of W -> c + (1 - u) W from w to the limit."""
    if math.isinf(limit):
        return math.inf
    if u == 0.0:
        return max(1, math.ceil((limit - w) / c))
    # The distance to the fixed point c/u shrinks (u > 0) or grows by 1 - u in every step.
    change = (w - limit) / (c / u - w)
    if change <= -1.0:
        return math.inf
    return max(1, math.ceil(math.log1p(change) / math.log1p(-u))) if u < 1.0 else 1


def _jump(w: float, c: float, u: float, steps: float) -> tuple[float, float]:
    """Return (W, growth) after some steps of W -> c + (1 - u) W, with W in units of e**growth."""
    power = steps * math.log1p(-u) if u < 1.0 else -math.inf
    if power > 500.0:
        return w + c * -math.expm1(-power) / -u, power
    w = w * math.exp(power) + c * (-math.expm1(power) / u if u else steps)
    return (1.0, math.log(w)) if w > 1e200 else (w, 0.0)


def _between(x: Array, log_c: Array, u: Array, used: Indices, weights: Array) -> Array:
    """Return 20 more points on either side of every point that may be next to a maximum."""
    # These are the maxima on the grid, and the points around which a function may exceed them
    # between nodes, by less than its second difference (checked for some of the functions).
    c = np.exp(log_c - log_c.max())
    chosen = np.zeros(x.size, dtype=bool)
    chosen[used] = True
    some = np.unique(np.linspace(0, weights.shape[0] - 1, 16).astype(int))
    for a, b in weights[some] if weights.size else ():
        value = a * c - b * u
        rise = np.zeros_like(value)
        rise[:, 1:-1] = np.abs(np.diff(value, n=2, axis=1))
        chosen |= (value + rise >= value.max()).any(axis=0)
    used = np.flatnonzero(chosen)
    left, right = x[np.maximum(used - 1, 0)], x[np.minimum(used + 1, x.size - 1)]
    steps = np.arange(1, 21) / 21.0
    finer = [x[used, None] + np.outer(end - x[used], steps) for end in (left, right)]
    return np.concatenate(finer, axis=None)


def _laplace_logsf(x: Array) -> Array:
    tail = np.abs(x)
    return np.where(x > 0.0, -tail - math.log(2.0), np.log1p(-0.5 * np.exp(-tail)))


# noise -> ln P(nu >= x) at scale one.
_LOGSF: dict[str, Callable[[Array], Array]] = {
    "laplace": _laplace_logsf,
    "gaussian": lambda x: special.log_ndtr(-x),
}


# The event


# Orders at which the curve is computed; from one to the next it grows by a quarter or less.
_RUNGS = np.unique(
    np.concatenate(
        [[1.0, 1.25, 1.5], np.round(np.geomspace(2.0, 1024.0, 29)), 2.0 ** np.arange(11, 28)]
    )
)


@dataclass(frozen=True)
class AboveThreshold(Event):
    """The index of the first noisy query that reaches a noisy threshold, if any does.

    Parameters
    ----------
    noise : {"laplace", "gaussian"}
        Noise of both the threshold and the queries.
    threshold_scale, query_scale : float
        Laplace scales or standard deviations, in the units of the queries, positive.
    sensitivity : float
        Largest change of one query by one record, in [0, inf).
    max_queries : int or None
        Cap on the number of queries; None for no cap, with Laplace noise only.
    shared : bool
        If true, every query is a common value minus one of its own, and one record moves each of
        these within an interval of length ``sensitivity``, as for a decrease of clamped losses.

    Raises
    ------
    ValueError
        If an argument is outside its range, or Gaussian noise is used without a cap.

    Notes
    -----
    The Renyi curve is that of :func:`dpanalysis.privacy.rdp_above_threshold` with the best
    coupling, computed at some orders. (order - 1) times a Renyi divergence is convex in the
    order, so the chord between bounds is a bound.

    References
    ----------
    Chen and Lee (2020), Algorithm 1; errata 002-1 to 002-3.

    Examples
    --------
    The budget of the paper, with queries that share nothing and with those of a line search:

    >>> AboveThreshold("laplace", 2.0, 4.0, 1.0, 20).pure_cost()
    1.0
    >>> AboveThreshold("laplace", 2.0, 4.0, 1.0, 20, shared=True).pure_cost()
    0.75
    """

    noise: str
    threshold_scale: float
    query_scale: float
    sensitivity: float
    max_queries: int | None
    shared: bool = False

    def __post_init__(self) -> None:
        check_choice("noise", self.noise, ("laplace", "gaussian"))
        self._keep_float("threshold_scale", positive=True)
        self._keep_float("query_scale", positive=True)
        self._keep_float("sensitivity")
        if self.max_queries is not None:
            object.__setattr__(
                self, "max_queries", check_int("max_queries", self.max_queries, low=1)
            )
        elif self.noise == "gaussian":
            raise ValueError(
                "max_queries must be finite with Gaussian noise, got None: without a cap the cost "
                "has no bound"
            )

    immutable = True

    def describe(self) -> str:  # noqa: D102
        most = "" if self.max_queries is None else f" of at most {self.max_queries:,}"
        what = f"which query{most} is the first above a threshold (sparse vector)"
        noise = self.noise.capitalize()
        if not self.sensitivity:
            return f"{what}, {noise} noise on what no record changes"
        scales = [each / self.sensitivity for each in (self.threshold_scale, self.query_scale)]
        return (
            f"{what}, {noise} noise of {scales[0]:.4g} times the sensitivity on the threshold and "
            f"{scales[1]:.4g} times on each query"
        )

    def no_worse(self, other: AboveThreshold) -> bool:  # noqa: D102
        if (self.noise, self.shared) != (other.noise, other.shared):
            return False
        if other.sensitivity == 0.0:
            return True
        queries = math.inf if other.max_queries is None else other.max_queries
        return (
            other.sensitivity / other.threshold_scale <= self.sensitivity / self.threshold_scale
            and other.sensitivity / other.query_scale <= self.sensitivity / self.query_scale
            and (self.max_queries is None or queries <= self.max_queries)
        )

    def pure_cost(self) -> float:  # noqa: D102
        if self.sensitivity == 0.0:
            return 0.0
        if self.noise == "gaussian":
            return math.inf
        several = 1.0 if self.shared else 2.0
        together = several * self.sensitivity / self.query_scale
        together += self.sensitivity / self.threshold_scale
        if self.max_queries is None:
            return together
        return min(together, self.max_queries * self.sensitivity / self.query_scale)

    def rdp_cost(self, orders: ArrayLike) -> NDArray[np.float64]:  # noqa: D102
        a = np.asarray(orders, dtype=np.float64)
        if self.sensitivity == 0.0:
            return np.zeros(a.shape)
        cost = np.full(a.shape, self.pure_cost())
        inside = a <= _RUNGS[-1]
        if inside.any():
            last = int(np.searchsorted(_RUNGS, a[inside].max()))
            scales = self.threshold_scale / self.sensitivity, self.query_scale / self.sensitivity
            law = self.noise, *scales, self.max_queries, self.shared
            heights = [0.0] + [_moment(float(rung), *law) for rung in _RUNGS[1 : last + 1]]
            chord = np.interp(a[inside], _RUNGS[: last + 1], heights)
            cost[inside] = np.minimum(cost[inside], chord / (a[inside] - 1.0))
        return cost


@lru_cache(maxsize=65536)
def _moment(
    order: float, noise: str, first: float, second: float, cap: int | None, shared: bool
) -> float:
    """Return (order - 1) times the Renyi cost at sensitivity 1."""
    cost = rdp_above_threshold(order, noise, first, second, cap, coupling="best", shared=shared)
    return (order - 1.0) * float(cost)
