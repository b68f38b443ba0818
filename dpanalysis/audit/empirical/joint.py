r"""A joint test of two counts, of whether a claim allows their pair of probabilities.

An event is counted in n runs of each input: X is Binomial(n, p), Y is Binomial(n, q), and the two
are independent. The claim allows :math:`p \le h(q)` for a rising curve h. Two separate intervals
need both probabilities to be as bad as can be at once; the test here looks at one number,

.. math:: S = X - cY, \qquad c \ge 0 \text{ fixed before counting.}

**The p-value.** Fix a small :math:`\gamma`. Let C be the rectangle of Clopper and Pearson's
intervals of p and of q, each two-sided and missing with probability at most
:math:`\gamma/2`, so that C misses (p, q) with probability at most :math:`\gamma`. Then

.. math:: \pi = \gamma + \sup\{P_{p,q}(S \ge s) : (p, q) \in C, \; p \le h(q)\},

with s the number that was observed, satisfies :math:`P(\pi \le \alpha) \le \alpha` wherever
:math:`p \le h(q)` (Berger and Boos, 1994): either C misses (p, q), or :math:`P_{p,q}(S \ge s) \le
\alpha - \gamma`, and that happens with probability at most :math:`\alpha - \gamma`. If
:math:`h_\theta` rises in :math:`\theta`, so does :math:`\pi`: all levels below one that is
rejected are rejected too, so the largest one found, by whatever search, is a lower bound of
:math:`\theta` that is too high with probability at most :math:`\alpha`.

**The supremum** is bounded, not sampled. :math:`P_{p,q}(S \ge s)` rises in p and falls in q, so
only the curve counts: q from a to b, p = h(q). In :math:`\vartheta = (\mathrm{logit}\,p,
\mathrm{logit}\,q)` the two counts are an exponential family,

.. math:: \ln P_\vartheta(S \ge s) = \ln \sum_{S \ge s} e^{\vartheta_1 x + \vartheta_2 y} w(x, y)
          - n A(\vartheta_1) - n A(\vartheta_2), \qquad A(t) = \ln(1 + e^t).

The first term is convex, and on a segment nA lies above its chord by no less than
:math:`-\tfrac18 n \Delta^2 \max A''`, :math:`A'' = p(1 - p)`. So on a segment the logarithm is at
most the larger of its two ends plus :math:`\tfrac n8 (\Delta_1^2 \max p(1-p) + \Delta_2^2 \max
q(1-q))`. The curve is cut into pieces; each lies below its chord moved up by what it rises above
it (bounded at many places of the piece by the curve's right value and the chord's left value),
and pieces are halved until the remainder is small.

**A probability** :math:`P(S \ge s) = \sum_y P(Y = y) P(X \ge s + cy)` is bounded from above by
blocks of y, with the second factor at the block's left end. All terms are positive. Rounding
errors are those of the regularised incomplete beta function (1e-12, relative), of differences of
the distribution function of Y (1e-16 times a summand's second factor and thus times the sum,
because :math:`P(Y \le y) P(X \ge s + cy) \le P(S \ge s)`) and of s + cy, which is rounded so that
the event grows; a factor of 1 + 1e-9 covers them.

References
----------
Berger, Boos (1994), *P values maximized over a confidence set for the nuisance parameter*;
Clopper, Pearson (1934).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from .limits import Limit

__all__ = ["Counts", "interval", "log_p_value", "lower_bound"]

_SHARE = 1e-3  # of the error allowed: the rectangle's
_BLOCKS = 128  # of y
_PLACES = 64  # of a piece, where the curve is held against its chord
_REMAINDER = 0.1  # of ln P on a piece
_SAFETY = 1e-9  # rounding errors, relative
_SEARCH = 40  # levels tried
_NEAR = 0.01  # how far above its quantile the p-value may stay
_HALVINGS = 12  # of a piece; what is left then is added as it is

_Array = NDArray[np.float64]


@dataclass(frozen=True)
class Counts:
    """How often an event happened, on the likelier input and on the other.

    Attributes
    ----------
    likelier, other : int
    runs : int
        Of each input.
    slope : float
        The c of the test, fixed before counting.
    """

    likelier: int
    other: int
    runs: int
    slope: float


def interval(count: int, runs: int, miss: float) -> tuple[float, float]:
    """Return Clopper and Pearson's interval, which misses with probability at most ``miss``.

    Examples
    --------
    >>> interval(0, 100, 0.05)
    (0.0, 0.03622)
    """
    low = special.betaincinv(count, runs - count + 1, miss / 2) if count else 0.0
    high = special.betainccinv(count + 1, runs - count, miss / 2) if count < runs else 1.0
    return float(low), float(high)


def log_p_value(counts: Counts, limit: Limit, level: float, miss: float) -> tuple[float, float]:
    """Return the logarithm of a bound of the p-value, and the q where it is attained.

    Parameters
    ----------
    counts : Counts
    limit : Limit
        What is allowed at ``level``.
    level : float
    miss : float
        The error with which the p-value is going to be compared; it sets the share of the
        rectangle.

    Returns
    -------
    (float, float)
        The second is NaN where the rectangle holds nothing that is allowed.
    """
    share = _SHARE * miss
    low_p, high_p = interval(counts.likelier, counts.runs, share / 2)
    low, high = interval(counts.other, counts.runs, share / 2)
    low = max(low, float(limit.least(low_p, level)) * (1.0 - _SAFETY))
    if low > high:
        return math.log(share), math.nan
    high = min(high, max(low, float(limit.least(high_p, level)) * (1.0 + _SAFETY)))
    log_tail, q = _supremum(counts, limit, level, low, high, miss)
    return float(np.logaddexp(log_tail + _SAFETY, math.log(share))), q


def _supremum(
    counts: Counts, limit: Limit, level: float, low: float, high: float, miss: float
) -> tuple[float, float]:
    """Return a bound of the largest ln P(S >= s) for q in [low, high], and where it is."""
    # Next to q = 0 and to p = 1 there is no logit: a little piece there is bounded by the
    # larger p and the smaller q.
    little = 1e-4 / counts.runs
    left = min(max(low, little), high)
    right = min(max(float(limit.least(1.0 - little, level)), left), high)
    corners = [(low, left)] * (low < left) + [(right, high)] * (right < high)
    if low == high:
        corners = [(low, high)]
    q = np.array([start for start, _ in corners])
    p = np.minimum(1.0, limit.most(np.array([end for _, end in corners]), level) * (1.0 + 1e-15))
    remainder = 0.0
    if left < right:
        edges = _pieces(counts.runs, limit, level, left, right)
        rise, rest = _remainder(counts.runs, limit, level, edges[:-1], edges[1:])
        moved = special.expit(special.logit(limit.most(edges, level)) + rise.max())
        p, q, remainder = np.append(p, moved), np.append(q, edges), float(rest.max())
    found = _log_tail(counts, p, q, miss) + remainder
    place = int(np.argmax(found))
    return float(found[place]), float(q[place])


def _remainder(
    runs: int, limit: Limit, level: float, left: _Array, right: _Array
) -> tuple[_Array, _Array]:
    """Return by how much each chord is moved up, and what its ends may miss of the largest ln P."""
    t = np.linspace(0.0, 1.0, _PLACES + 1)
    first, last = special.logit(left)[:, None], special.logit(right)[:, None]
    along = first + (last - first) * t
    curve = special.logit(limit.most(special.expit(along), level))
    chord = curve[:, :1] + (curve[:, -1:] - curve[:, :1]) * t
    rise = np.maximum(0.0, (curve[:, 1:] - chord[:, :-1]).max(axis=1))

    def most(edge_a: _Array, edge_b: _Array) -> _Array:
        variance = np.maximum(edge_a * (1.0 - edge_a), edge_b * (1.0 - edge_b))
        return np.where((edge_a < 0.5) & (edge_b > 0.5), 0.25, variance)

    p = special.expit(curve[:, [0, -1]] + rise[:, None])
    p_part = (curve[:, -1] - curve[:, 0]) ** 2 * most(p[:, 0], p[:, 1])
    q_part = (last - first)[:, 0] ** 2 * most(left, right)
    return rise, 0.125 * runs * (p_part + q_part)


def _pieces(runs: int, limit: Limit, level: float, low: float, high: float) -> _Array:
    """Return the borders of pieces of the curve, halved until their remainders are small."""
    first, last = np.arcsin(np.sqrt([low, high])).tolist()
    edges = np.sin(np.linspace(first, last, 9)) ** 2
    edges[0], edges[-1] = low, high
    for _ in range(_HALVINGS):
        rest = _remainder(runs, limit, level, edges[:-1], edges[1:])[1]
        halved = np.flatnonzero(rest > _REMAINDER)
        if not halved.size:
            break
        middle = special.expit(
            0.5 * (special.logit(edges[halved]) + special.logit(edges[halved + 1]))
        )
        edges = np.insert(edges, halved + 1, middle)
    return edges


def _log_tail(counts: Counts, p: _Array, q: _Array, miss: float) -> _Array:
    """Return bounds of ln P(S >= s), one for each pair of probabilities."""
    n, c = counts.runs, counts.slope
    reach = -special.ndtri(min(0.25, miss)) + 2.0
    spread = np.sqrt(n * q * (1.0 - q)) + 1.0
    first = np.maximum(0.0, n * q - reach * spread - 2.0)
    last = np.minimum(float(n), n * q + 5.0 * spread + 10.0)
    t = np.linspace(0.0, 1.0, _BLOCKS)
    inner = np.ceil(first[:, None] + (last - first)[:, None] * t)
    starts = np.concatenate([np.zeros((q.size, 1)), inner], axis=1)
    below = special.betainc(
        n - starts + 1.0, starts, (1.0 - q)[:, None], where=starts > 0.0, out=np.zeros(starts.shape)
    )
    mass = np.diff(below, axis=1, append=1.0)
    steps = c * (starts - counts.other)
    needed = np.ceil(counts.likelier + steps - 1e-9 - 1e-13 * np.abs(steps))
    needed = np.clip(needed, 0.0, n + 1.0)
    some = (needed > 0.0) & (needed <= n)
    above = special.betainc(
        needed, n - needed + 1.0, p[:, None], where=some, out=np.where(needed <= 0.0, 1.0, 0.0)
    )
    with np.errstate(divide="ignore"):
        return np.log(np.sum(np.maximum(mass, 0.0) * above, axis=1))


def lower_bound(
    counts: Counts, limit: Limit, miss: float, start: float = 0.0
) -> tuple[float, tuple[float, float]]:
    """Return a lower bound of the level, and the pair of probabilities that stands in its way.

    Parameters
    ----------
    counts : Counts
    limit : Limit
    miss : float
        In (0, 1): the bound is too high with at most this probability.
    start : float, default=0
        The level to begin with: whether it is rejected is decided and not searched for.

    Returns
    -------
    level : float
        At least 0.
    pair : (float, float)
        Probabilities on the likelier input and on the other that the level allows and that
        are the hardest to reject.
    """
    target = -float(special.ndtri(miss))

    def score(level: float) -> tuple[float, float]:
        """Return the p-value as a quantile of the normal law, in which it is about linear."""
        log_p, q = log_p_value(counts, limit, level, miss)
        return -float(special.ndtri_exp(min(log_p, -1e-12))), q

    tried = {start: score(start)}
    if tried[start][0] < target and start > 0.0:
        tried[0.0] = score(0.0)
    n, error = counts.runs, _error(counts, limit)
    width = error
    estimate = float(limit.level((counts.likelier + 0.5) / (n + 1), (counts.other + 0.5) / (n + 1)))
    guess = estimate - (target + 0.5 * _NEAR) * error
    if guess > 0.0 and guess not in tried:
        tried[guess] = score(guess)
    for _ in range(_SEARCH):
        low = max((level for level, (z, _) in tried.items() if z >= target), default=-1.0)
        high = min((level for level, (z, _) in tried.items() if z < target), default=math.inf)
        if low < 0.0:
            return 0.0, (float(limit.most(tried[0.0][1], 0.0)), tried[0.0][1])
        # If the start is rejected, the bound shall exceed it.
        near = low > start or high <= start
        if (near and tried[low][0] - target < _NEAR) or high - low < 1e-9 * max(1.0, low):
            break
        # The quantile falls about linearly: by one in a standard error.
        last = sorted((abs(z - target), z, at) for at, (z, _) in tried.items())[:2]
        _, z, at = last[0]
        if len(last) == 2 and last[1][0] < 3.0 and z != last[1][1]:
            width = min(max(0.1 * error, (last[1][2] - at) / (z - last[1][1])), 10.0 * error)
        top = high if high < math.inf else max(estimate, low) + 5.0 * error
        at += (z - target - 0.5 * _NEAR) * width
        if not low < at < top:  # NaN, too
            at = 0.5 * (low + top) if top == high else top
        tried[at] = score(at)
    q = tried[low][1]
    return low, (float(limit.most(q, low)), q)


def _error(counts: Counts, limit: Limit) -> float:
    """Return about the standard error of the level."""
    n = counts.runs
    p, q = (counts.likelier + 1.0) / (n + 2.0), (counts.other + 1.0) / (n + 2.0)
    more = [min(1.0 - 0.5 / n, rate + math.sqrt(rate * (1.0 - rate) / n)) for rate in (p, q)]
    at, high, low = (float(limit.level(*pair)) for pair in ((p, q), (more[0], q), (p, more[1])))
    width = math.hypot(high - at, low - at) if math.isfinite(at) else math.nan
    return width if math.isfinite(width) and width > 0.0 else 1.0
