r"""Privacy of m draws with replacement, in which a record drawn k times counts k times.

Let D and D' differ in one record (replace-one), and draw m rows of n independently. Mark each
draw with probability 1/n and let the marked draws hit that record: their number K is
Binomial(m, 1/n) with law p_k, and the others hit other records. Given where every draw would
go without its mark, the answer has on D and on D' the laws

.. math:: P = p_0 \mu_0 + \sum_{k \ge 1} p_k \mu_k, \qquad
          Q = p_0 \mu_0 + \sum_{k \ge 1} p_k \mu_k',

and any two of mu_0, mu_k and mu_k' differ by k slots of the batch. A clipped sum then moves by
up to 2 k C and not by k C: on D' the k draws hit a record too.

For alpha >= 1 and weights w_k >= 0 with the sum (alpha - 1) p_0,

.. math:: P - \alpha Q = \sum_{k \ge 1} (p_k \mu_k - w_k \mu_0 - \alpha p_k \mu_k'),

so that with H the hockey-stick divergence and H_k its largest value for k slots

.. math:: H_\alpha(P, Q) \le \sum_{k \ge 1} p_k H_k(\alpha_k), \qquad
          \alpha_k = \alpha + w_k / p_k,

by convexity; Q against P is bounded in the same way. Weights proportional to p_k give Theorem 10
of Balle, Barthe and Gaboardi (2018). For Gaussian noise with shift mu per slot, H_k is that of
N(k mu, 1) against N(0, 1), whose optimal test is x > threshold, and the bound is least if all k
have the same threshold:

.. math:: w_k = p_k (e^{l_k(x)} - \alpha)_+, \qquad l_k(x) = k \mu x - k^2 \mu^2 / 2.

If no term is truncated at zero, this is the divergence of the mixture
:math:`\sum_k p_k N(k \mu, 1)` from N(0, 1), which two data sets attain: all other records are
opposite to the replaced one. In this case the bound is exact.

Under add-or-remove-one the number of records n, and with it the law of every draw, would be
private, so the scheme is refused. For a fixed n the same bound covers that relation, with the
same 2 C: the k draws that would have hit a removed record hit other records.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from ..._validation import check_int, check_number, check_positive
from .pure import amplify
from .rdp import Array, _fixed_size, _log_expm1, _orders, rdp_gaussian
from .zcdp import gaussian_divergence

# Probability of more copies than a law lists; they count as an infinite loss.
_NEGLIGIBLE = 1e-25
# Number of nodes between which thresholds are interpolated.
_NODES = 4000
# Number of draws above which the Renyi bound uses the term of the most copies for all terms.
_MOST_DRAWS = 10_000
# Number of terms of mixtures that are computed at once.
_MOST_TERMS = 2**20


def _sizes(n: int, m: int) -> tuple[int, int]:
    n = check_int("n", n, low=1)
    return n, check_int("m", m, low=1, high=n)


def _log_none(n: int, m: int) -> float:
    """Return ln Pr(K = 0)."""
    return m * math.log1p(-1.0 / n) if n > 1 else -math.inf


@lru_cache(maxsize=64)
def _log_law(n: int, m: int) -> Array:
    """Return ln Pr(K = k) for k = 1..m."""
    k = np.arange(1.0, m + 1.0)
    # Pr(K = k) / Pr(K = k - 1) = (m - k + 1) / (k (n - 1)); for n = 1 only m = k = 1 is left.
    law = _log_none(n, m) + np.cumsum(np.log((m - k + 1.0) / (k * (n - 1.0)))) if n > 1 else k - 1.0
    law.setflags(write=False)
    return law


def copies(n: int, m: int) -> tuple[float, ...]:
    """Return Pr(K = k) for k = 1, 2, ... until the remaining probability is below 1e-25."""
    n, m = _sizes(n, m)
    # Pr(K >= k) is at most (e m / (n k))^k.
    most = 1
    while most < m and most * (1.0 + math.log(m / (n * most))) > math.log(_NEGLIGIBLE):
        most += 1
    return tuple(np.exp(_log_law(n, m)[:most]).tolist())


def gaussian_profile(losses: ArrayLike, n: int, m: int, mu: float) -> Array:
    """Return a bound on the delta of Gaussian noise on m draws of n records, at losses >= 0.

    Every choice of weights gives a valid bound. The common threshold is interpolated and the
    weights are scaled to their exact sum, so that an error of the threshold only increases the
    bound, to second order. More copies than are listed count as an infinite loss.
    """
    n, m = _sizes(n, m)
    mu = check_positive("mu", mu)
    t = np.asarray(losses, dtype=np.float64)
    if n == 1:
        return np.asarray(gaussian_divergence(mu, t))
    law = copies(n, m)
    log_none = _log_none(n, m)
    threshold = _threshold(t, law, log_none, mu)
    # ln(w_k / p_k) up to a common factor, in logarithms since e^l may overflow.
    wanted = []
    for k in range(1, len(law) + 1):
        gap = k * mu * (threshold - 0.5 * k * mu) - t  # l_k - ln alpha
        used = gap > 0.0
        gap = np.where(used, gap, 1.0)
        wanted.append(np.where(used, t + gap + np.log(-np.expm1(-gap)), -np.inf))
    total = special.logsumexp(wanted, axis=0, b=np.reshape(law, (-1,) + (1,) * t.ndim))
    total = np.where(np.isneginf(total), np.inf, total)
    with np.errstate(divide="ignore"):  # at a loss of 0 the weights sum to 0
        factor = t + np.log(-np.expm1(-t)) + log_none - total
    delta = np.full(t.shape, _NEGLIGIBLE if len(law) < m else 0.0)
    for k, (chance, weight) in enumerate(zip(law, wanted, strict=True), 1):
        delta += chance * gaussian_divergence(k * mu, np.logaddexp(t, weight + factor))
    return delta


def _threshold(t: Array, law: tuple[float, ...], log_none: float, mu: float) -> Array:
    """Return the x at which sum_k w_k = (e^t - 1) p_0, interpolated between nodes.

    At a given x, alpha is the mean of 1 (with weight p_0) and of those e^l_k (with weight p_k)
    that exceed alpha: the maximum over j of the mean of 1 and the j largest.
    """
    top = float(t.max(initial=0.0))
    # One copy alone would need the largest threshold.
    odds = math.log1p(-math.expm1(-top) * math.exp(log_none) / law[0])
    nodes = np.linspace(0.5 * mu, (top + odds) / mu + 0.5 * mu, _NODES)
    k = np.arange(1.0, len(law) + 1.0)[:, None]
    losses = k * mu * (nodes - 0.5 * k * mu)
    order = np.argsort(-losses, axis=0)
    chances = np.log(law)[order]
    losses = np.take_along_axis(losses, order, axis=0)
    none = np.full((1, _NODES), log_none)
    above = np.logaddexp.accumulate(np.concatenate([none, chances + losses]), axis=0)
    weight = np.logaddexp.accumulate(np.concatenate([none, chances]), axis=0)
    alpha = np.maximum.accumulate((above - weight).max(axis=0))
    return np.interp(t, alpha, nodes)


def pure_with_replacement(epsilon: float, n: int, m: int) -> float:
    r"""Return the pure loss of an epsilon-private query on m draws of n records: replace-one.

    .. math:: m \ln(1 + (e^\epsilon - 1)/n)

    for a pure loss epsilon in [0, inf] of changing one slot of the batch. Replace the record in one
    draw after the other: each replacement affects a draw of 1 of n records, which amplifies. The
    bound is attained by Laplace noise if the other records are opposite to one of the two.

    Examples
    --------
    >>> pure_with_replacement(1.0, n=100_000, m=1000)
    0.0171827
    """
    n, m = _sizes(n, m)
    return m * float(amplify(epsilon, 1.0 / n))


def rdp_with_replacement(orders: ArrayLike, n: int, m: int, noise_multiplier: float) -> Any:
    r"""Return a bound on the Renyi cost of Gaussian noise on m draws of n records: replace-one.

    The bound of :func:`dpanalysis.privacy.rdp_without_replacement` at the rate 1 - (1 - 1/n)^m,
    where the moments of a batch that contains the record are mixed over its k copies:

    .. math:: e^{(\alpha-1) R(\alpha)} = \sum_{k \ge 1} \Pr(K = k \mid K \ge 1)
              e^{\alpha (\alpha - 1) k^2 / (2 s^2)}.

    The term k = m has the largest exponent, but only probability n^-m. So the bound is useful
    for few draws or much noise; a loss distribution does not suffer from that term.

    Parameters
    ----------
    orders : array_like
        Renyi orders in (1, inf]; between integers the chord of (order - 1) cost is used.
    n, m : int
        Numbers of records and of draws, 1 <= m <= n. Above 10,000 draws the mixture is
        bounded by its term k = m.
    noise_multiplier : float
        s: standard deviation over the L2 sensitivity to a change of one slot, in (0, inf].

    Returns
    -------
    float or ndarray

    Notes
    -----
    The proof of Wang, Balle, Kasiviswanathan (2019), Theorem 9, bounds by convexity the
    divergences between the parts where the record is drawn on D, where it is drawn on D', and
    where it is not. Convexity lets each of them be mixed over k as well.

    Examples
    --------
    >>> rdp_with_replacement([2.0, 8.0], n=1000, m=10, noise_multiplier=20.0)
    array([1.006e-06, 2.013e-05])
    """
    a = _orders(orders)
    n, m = _sizes(n, m)
    s = check_number("noise_multiplier", noise_multiplier, low=0.0, low_open=True, finite=False)
    rate = -math.expm1(_log_none(n, m))

    def present(orders: Array) -> Array:
        if m > _MOST_DRAWS or not 1e-100 <= s <= 1e100:  # a square may overflow
            return np.asarray(rdp_gaussian(orders, max(s / m, 5e-324)))
        squares = np.arange(1.0, m + 1.0) ** 2 * (0.5 / s**2)
        law = _log_law(n, m) - math.log(rate)
        costs = np.full(np.shape(orders), math.inf)
        finite = np.flatnonzero(np.isfinite(orders))
        for some in np.array_split(finite, 1 + finite.size * m // _MOST_TERMS):
            order = np.ravel(orders)[some]
            # The law sums to 1, which is left out to avoid cancellation.
            moments = _log_expm1(np.multiply.outer(order * (order - 1.0), squares))
            excess = special.logsumexp(law + moments, axis=-1)
            costs.flat[some] = np.logaddexp(0.0, excess) / (order - 1.0)
        return costs

    return _fixed_size(a, rate, present)
