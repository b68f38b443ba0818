r"""Audit a whole training from one run with many canaries, each included by a fair coin.

There are m canaries: records, or pairs of records. A fair coin :math:`s_i` for each decides
whether the record is in the data (or which of the two is), so that changing one coin yields a
neighbouring data set. From the output r canaries are guessed, and W guesses are right. If a claim
holds, many right guesses are unlikely.

**Theorem.** Let :math:`q = e^\epsilon/(1 + e^\epsilon)` and :math:`B \sim \mathrm{Binomial}(r, q)`.
If the training is :math:`(\epsilon, \delta)`-private, then for every v from 1 to r

.. math:: P(W \ge v) \le P(B \ge v)\Bigl(1 + m\delta \frac{P(B < v)}{v\,P(B = v)}\Bigr).

*Proof.* The guesses :math:`t \in \{-1, 0, 1\}^m`, r of them not 0, are computed from the output,
so :math:`M: s \mapsto t` is private too. Let :math:`f(c) = P(W = c)`. Pair (s, t) with c right
guesses, one of them about i, with (s', t), where s' is s but for i: there c - 1 are right. Over
all i and (s, t), the left members have the probability :math:`c f(c) 2^m`, and the right ones
:math:`(r - c + 1) f(c - 1) 2^m`, because i is any of the r - c + 1 wrong guesses. For each i and
s, privacy allows the left members to exceed :math:`e^\epsilon` times the right ones by
:math:`\delta` in all, so

.. math:: c f(c) \le e^\epsilon (r - c + 1) f(c - 1) + e_c, \qquad e_c \ge 0,
          \quad \sum_c e_c \le m \delta.

Set :math:`b_c = P(B = c)`, for which :math:`c\,b_c = e^\epsilon (r - c + 1) b_{c-1}`, and
:math:`d_c = f(c)/b_c - f(c-1)/b_{c-1} \le e_c/(c\,b_c)`, :math:`d_0 = f(0)/b_0`. Then
:math:`f(c)/b_c = \sum_{j \le c} d_j`, and since :math:`\sum_c f(c) = 1`, with
:math:`\beta = P(B \ge v)`

.. math:: P(W \ge v) - \beta = \sum_c (1\{c \ge v\} - \beta)\,b_c \sum_{j \le c} d_j
          = \sum_j d_j\,\bigl(P(B \ge \max(j, v)) - \beta P(B \ge j)\bigr).

The bracket is 0 at j = 0 and never negative, so :math:`d_j` may be replaced by its bound, and
the sum is at most :math:`m\delta` times the largest bracket over :math:`j\,b_j`. Beyond v the
bracket is :math:`(1 - \beta) P(B \ge j)`, which over :math:`j\,b_j` decreases, because the
binomial law's hazard rises. Up to v it is :math:`\beta P(B < j)`, and :math:`P(B < j)/(j\,b_j) =
P(B \le j - 1)/b_{j-1} \cdot e^{-\epsilon}/(r - j + 1)` increases, because the law is log-concave.
So the maximum is at j = v, :math:`\beta P(B < v)/(v\,b_v)`. ∎

At delta = 0 this is the theorem of Steinke, Nasr and Jagielski (2023), and for small delta it
cannot be improved: with :math:`f` a mixture of B and of B given :math:`B \ge v`, all steps are
equalities. Their term for delta, :math:`2 m \delta \max_i P(v > B \ge v - i)/i` in the code of
their Appendix D, enlarges the small probabilities that refute a claim, up to 13 times at
epsilon = 2 and 300 guesses. (Below the mean it is too small: at m = r = 2, v = 1, epsilon = 1 and
delta = .02 it allows .9335, where a private mechanism attains .9345; nothing is refuted there.)

**Gaussian privacy.** Let :math:`h(x) = \Phi(\Phi^{-1}(x) + \mu)`, which is concave. If
:math:`P(M(s) \in E) \le h(P(M(s') \in E))` for neighbours and all events E, then for all k < r

.. math:: \frac1m \sum_{c > k} c f(c) \le
          h\Bigl(\frac1m \sum_{c \ge k} (r - c) f(c)\Bigr).

*Proof.* Pair as above, but all (s, t) at once with more than k right guesses, one of them about i.
For each i and s the left members are an event under s, and the right ones, with at least k right
guesses and a wrong one about i, are the same event under s'. Average over i and s; h is concave. ∎

Let :math:`G_k = P(W \ge k)`, :math:`S_k = \sum_{c \ge k} c f(c)` and g be the inverse of h. Since
:math:`S_k = S_{k+1} + k(G_k - G_{k+1})`, the inequality is

.. math:: (r - k)\,G_k \ge S_{k+1} - k\,G_{k+1} + m\,g(S_{k+1}/m).

Given :math:`G_v = \beta`, :math:`S_v \ge v\beta`. The right side increases in :math:`S_{k+1}` and,
with :math:`S_{k+1} - kG_{k+1} = S_{k+2} - (k+1)G_{k+2} + G_{k+1}`, in the smallest :math:`G_{k+1}`.
So starting from the smallest values and taking the smallest allowed one down to :math:`G_0` gives
the smallest :math:`G_0`. If it exceeds 1, :math:`P(W \ge v) < \beta`. This is the bound of
Mahloujifar, Melis and Chaudhuri (2024). The theorem at each :math:`(\epsilon, \delta(\epsilon))` of
the Gaussian curve bounds the same probability, so the minimum of all these bounds is a bound, too.
If few canaries are guessed or nearly all guesses are right, the new bound is sharper (up to 10% in
:math:`\mu` at 1,000 canaries); if many are guessed and a fair share is wrong, the two agree to 2%,
and either may win. The theorem at a single small delta gives half to two thirds of either
(``python -m benchmarks audit``).

References
----------
Steinke, Nasr, Jagielski, *Privacy auditing with one (1) training run*, NeurIPS 2023.
Mahloujifar, Melis, Chaudhuri, *Auditing f-differential privacy in one run*, 2024.
Dong, Roth, Su, *Gaussian differential privacy*, 2022.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from .._validation import check_fraction, check_int, check_number, check_reals
from ..privacy.accounting.relations import Budget
from ..privacy.accounting.zcdp import gaussian_delta
from ..privacy.mechanisms import Random, spawn
from .verify import GaussianPrivacy, ParsedClaim, VerdictBase, parse_claim

__tracebackhide__ = True  # pytest shows the line that calls this package

_EPSILONS = 16  # points of the Gaussian curve that are tried
_ROUNDING = 1e-9


def guessing_probability(
    correct: int, guesses: int, canaries: int, epsilon: float, delta: float = 0.0
) -> float:
    """Return the theorem's bound on the probability of at least ``correct`` right guesses."""
    correct, guesses, canaries = _counts(correct, guesses, canaries)
    epsilon = check_number("epsilon", epsilon, low=0.0)
    delta = check_number("delta", delta, low=0.0, high=1.0, high_open=True)
    if correct == 0:
        return 1.0
    c = np.arange(guesses + 1)
    log_right = -math.log1p(math.exp(-epsilon))
    log_mass = special.gammaln(guesses + 1) - special.gammaln(c + 1)
    log_mass -= special.gammaln(guesses - c + 1)
    log_mass += c * log_right + (guesses - c) * (log_right - epsilon)
    log_tail = float(np.logaddexp.reduce(log_mass[correct:]))
    if delta > 0.0:
        slope = np.logaddexp.reduce(log_mass[:correct]) - log_mass[correct] - math.log(correct)
        log_tail += float(np.logaddexp(0.0, math.log(canaries * delta) + slope))
    return math.exp(min(0.0, log_tail))


def gaussian_guessing_probability(correct: int, guesses: int, canaries: int, mu: float) -> float:
    """Return a bound on the probability of ``correct`` or more right guesses, mu-Gaussian DP."""
    correct, guesses, canaries = _counts(correct, guesses, canaries)
    mu = check_number("mu", mu, low=0.0)
    if correct == 0:
        return 1.0
    if mu == 0.0:
        return guessing_probability(correct, guesses, canaries, 0.0)
    found = chance_along_curve(correct, guesses, canaries, mu)
    return chance_by_law(correct, guesses, canaries, mu, found)


def _counts(correct: int, guesses: int, canaries: int) -> tuple[int, int, int]:
    """Return the counts of an audit, or raise ValueError if they are invalid."""
    canaries = check_int("canaries", canaries, low=1)
    guesses = check_int("guesses", guesses, low=1, high=canaries)
    return check_int("correct", correct, low=0, high=guesses), guesses, canaries


def chance_along_curve(correct: int, guesses: int, canaries: int, mu: float) -> float:
    """Return the smallest of the theorem's bounds along the curve of mu > 0, for correct > 0."""
    found = 1.0
    for epsilon in mu * np.linspace(0.05, 4.0 + 0.5 * mu, _EPSILONS):
        delta = min(float(gaussian_delta(1.0 / mu, epsilon)) * (1.0 + _ROUNDING), 1.0 - 1e-15)
        bound = guessing_probability(correct, guesses, canaries, float(epsilon), delta)
        found = min(found, bound)
    return found


def chance_by_law(correct: int, guesses: int, canaries: int, mu: float, most: float = 1.0) -> float:
    """Return the largest P(W >= correct), up to ``most``, that Gaussian privacy allows."""
    low, high = -700.0, math.log(most)  # the probability is below exp(high)
    if _possible(most, correct, guesses, canaries, mu):
        return most
    while high - low > 1e-3:
        middle = 0.5 * (low + high)
        possible = _possible(math.exp(middle), correct, guesses, canaries, mu)
        low, high = (middle, high) if possible else (low, middle)
    return math.exp(high)


def _possible(chance: float, correct: int, guesses: int, canaries: int, mu: float) -> bool:
    """Return whether Gaussian privacy allows a law of W with P(W >= correct) = chance."""
    tail, right = chance, correct * chance  # G and S of the module's docstring
    for k in range(correct - 1, -1, -1):
        wrong = canaries * float(special.ndtr(special.ndtri(right / canaries) - mu))
        least = max(tail, (right - k * tail + wrong) / (guesses - k))
        if least > 1.0 + _ROUNDING:
            return False
        right += k * (least - tail)
        tail = least
    return True


# The audit


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class CanaryVerdict(VerdictBase):
    """The result of a test of a claim by one run with canaries.

    Attributes
    ----------
    refuted, bound, bounded, claim, delta, confidence, notes
        As of a :class:`Verdict`.
    canaries, guesses, correct : int
        How many canaries there were, how many were guessed, how many guesses were right.
    p_value : float
        Bound on the probability of that many right guesses if the claim were true.
    """

    canaries: int
    guesses: int
    correct: int
    p_value: float

    def __str__(self) -> str:
        return self._sentences(
            f"{self.correct:,} of {self.guesses:,} guesses about {self.canaries:,} canaries were "
            f"right; if the claim held, the chance of so many would be at most {self.p_value:.3g}.",
            "canaries or scores",
        )


def verify_with_canaries(
    train: Callable[[np.ndarray, Random], Any],
    canaries: int,
    claim: float | Budget | GaussianPrivacy,
    *,
    delta: float = 0.0,
    guesses: int | None = None,
    confidence: float = 0.999,
    rng: Any = None,
) -> CanaryVerdict:
    """Test a claim about a whole training by one run with many canaries.

    ``train`` gets a fair coin for each canary, trains once, and returns a score for each. The
    canaries with the highest scores are guessed to be in, those with the lowest to be out (half of
    the guesses each, one more "in" if their number is odd; ties are broken at random). The number
    of right guesses bounds epsilon from below: see the theorem in
    :mod:`~dpanalysis.audit.canaries`. A correct training is refuted with probability at most 1 -
    ``confidence``, whatever the scores are; good scores only make the bound sharp.

    For a training with Gaussian noise and no subsampling, claim a :class:`GaussianPrivacy` and not
    its (epsilon, delta): then every delta of the curve helps to refute it.

    Canaries need not be alike, but masks that differ in one entry must give neighbouring data
    under the relation of the claim. Under "add_or_remove_one", record i is in the data or not.
    Under "replace_one", the data contain record i or another record in its place, for example the
    same features with the other label; the theorem and its proof are the same.

    Parameters
    ----------
    train : callable
        ``train(included, rng)`` with ``included`` an array of shape (canaries,) of bool returns
        scores of shape (canaries,), higher if the canary seems to be in. They may be infinite but
        not NaN, and may use everything that the training releases.
    canaries : int
        m, at least 1.
    claim, delta
        As for :func:`verify_privacy`.
    guesses : int, optional
        r, between 1 and ``canaries``. It must be fixed before the scores are compared with the
        coins: the best r found afterwards would be a maximum over many tests. By default a tenth of
        the canaries or, if that is more, three times the fewest guesses that can refute the claim.
    confidence : float, default=0.999
        In (0, 1).
    rng : None, int, SeedSequence, Generator, SystemRandom or "os"
        Source of randomness; the coins, the training and the ties get independent children.

    Raises
    ------
    ValueError
        If ``guesses`` cannot refute the claim even if all are right, or the scores have the wrong
        shape or are NaN.

    References
    ----------
    Steinke, Nasr, Jagielski (2023); Mahloujifar, Melis, Chaudhuri (2024).

    Examples
    --------
    A histogram with Laplace noise: adding one record changes one count by 1, so it is 1-private
    with noise of scale 1. With a fifth of that noise the claim is refuted.

    >>> def train(included, rng, scale=1.0):
    ...     return included + rng.laplace(0.0, scale, included.size)
    >>> print(verify_with_canaries(train, 1000, claim=1.0, rng=0))
    not refuted: epsilon >= ... where 1 is claimed (delta = 0, confidence 0.999). ...
    >>> def broken(included, rng):
    ...     return train(included, rng, scale=0.2)
    >>> verify_with_canaries(broken, 1000, claim=1.0, rng=0).refuted
    True
    """
    if not callable(train):
        raise TypeError(f"train must be callable, got {train!r}")
    canaries = check_int("canaries", canaries, low=1)
    asked = parse_claim(claim, delta)
    confidence = check_fraction("confidence", confidence)
    miss = 1.0 - confidence
    needed = _guesses_needed(canaries, asked, miss)
    if guesses is None:
        guesses = canaries if needed is None else min(canaries, max(canaries // 10, 3 * needed))
    guesses = check_int("guesses", guesses, low=1, high=canaries)
    if _chance(guesses, guesses, canaries, asked, asked.level) > miss:
        ways = "more canaries, a lower confidence or a smaller claim are" if needed is None else ""
        raise ValueError(
            f"guesses={guesses:,} about canaries={canaries:,} cannot refute "
            f"{asked.limit.describe(asked.level)} and confidence {confidence!r}, even if all are "
            f"right: {ways or f'at least {needed:,} guesses are'} needed"
        )
    coins, noise, ties = spawn(rng, 3)
    included = coins.random(canaries) < 0.5
    scores = check_reals("the output of train", train(included.copy(), noise))
    if scores.shape != (canaries,):
        raise ValueError(
            f"train must return one real score a canary, shape ({canaries},), "
            f"got shape {scores.shape}"
        )
    if np.isnan(scores).any():
        raise ValueError(f"train must not return NaN, got {np.isnan(scores).sum()} NaN scores")
    order = np.lexsort((ties.random(canaries), scores))
    out = guesses // 2
    correct = int(
        (~included[order[:out]]).sum() + included[order[canaries - guesses + out :]].sum()
    )
    found = _lower_bound(correct, guesses, canaries, asked, miss)
    return CanaryVerdict(
        **asked.judged(found, confidence),
        canaries=canaries,
        guesses=guesses,
        correct=correct,
        p_value=_chance(correct, guesses, canaries, asked, asked.level),
    )


def _chance(correct: int, guesses: int, canaries: int, asked: ParsedClaim, level: float) -> float:
    """Return the bound on the probability of that many right guesses at a level of the claim."""
    if asked.name == "mu":
        return gaussian_guessing_probability(correct, guesses, canaries, level)
    return guessing_probability(correct, guesses, canaries, level, asked.delta)


def _guesses_needed(canaries: int, asked: ParsedClaim, miss: float) -> int | None:
    """Return the fewest guesses, all right, that refute the claim; None if not even all do."""
    numbers = range(1, canaries + 1)
    needed = bisect_left(
        numbers, True, key=lambda k: _chance(k, k, canaries, asked, asked.level) <= miss
    )
    return numbers[needed] if needed < canaries else None


def _lower_bound(
    correct: int, guesses: int, canaries: int, asked: ParsedClaim, miss: float
) -> float:
    """Return the largest rejected level by bisection; all smaller levels are rejected, too."""

    def rejected(level: float) -> bool:
        return _chance(correct, guesses, canaries, asked, level) <= miss

    if not rejected(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while rejected(high):
        low, high = high, 2.0 * high
    while high - low > 1e-7 * max(1.0, high):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if rejected(middle) else (low, middle)
    return low
