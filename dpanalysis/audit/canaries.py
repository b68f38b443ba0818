r"""An audit of a whole training from one run: many canaries, each put in by a fair coin.

The canaries are m records, or m pairs of records. A fair coin :math:`s_i` for each decides
whether the record is in the data (or which of the two is), so that changing one coin changes the
data to a neighbour. The training's output gives each canary a score; the r most telling canaries
are guessed, the others are left alone, and W counts the right guesses. The chance of so many, if
the claim holds, is bounded in :mod:`.guessing`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._validation import check_int, check_number, check_reals
from ..privacy.mechanisms import Random, spawn
from ..privacy.relations import Budget
from .empirical.verdict import Claimed, Found, GaussianPrivacy, claimed
from .guessing import gaussian_guessing_probability, guessing_probability

__all__ = ["CanaryVerdict", "verify_with_canaries"]


@dataclass(frozen=True, eq=False, repr=False)
class CanaryVerdict(Found):
    """What one run with canaries says about a claim.

    Attributes
    ----------
    refuted : bool
        Whether the lower bound exceeds the claim. False is no certificate.
    bound : float
        Lower bound on the training's epsilon at ``delta``, or on its mu, at least 0; also under
        its name, ``epsilon`` or ``mu``. It is too high with probability at most
        1 - ``confidence``.
    bounded : {"epsilon", "mu"}
    claim, delta, confidence : float
    canaries, guesses, correct : int
        How many canaries there were, how many were guessed, how many guesses were right.
    p_value : float
        Bound on the probability of that many right guesses if the claim were true.
    notes : tuple of str
    """

    refuted: bool
    bound: float
    bounded: str
    claim: float
    delta: float
    confidence: float
    canaries: int
    guesses: int
    correct: int
    p_value: float
    notes: tuple[str, ...] = ()

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
    canaries with the highest scores are guessed to be in, those with the lowest to be out
    (half of the guesses each, one more "in" if they are odd in number; ties are broken at
    random), and the number of right guesses bounds epsilon from below: see the theorem in
    :mod:`.guessing`. A correct training is refuted with probability at most 1 - ``confidence``,
    whatever the scores are; good scores only make the bound sharp.

    Of a training with Gaussian noise and no subsampling, claim a :class:`GaussianPrivacy` and not
    its (epsilon, delta): every delta of the curve then helps to refute it.

    Canaries need not be alike, but masks that differ in one entry must give neighbouring data
    under the relation of the claim. Under "add_or_remove_one" that is: record i is in the data,
    or it is not. Under "replace_one": record i, or another one in its place, for example the
    same features with the other label; the theorem and its proof are the same.

    Parameters
    ----------
    train : callable
        ``train(included, rng)`` with ``included`` an array of shape (canaries,) of bool returns
        scores of shape (canaries,): higher where the canary seems to be in. Infinite is
        allowed, NaN is not. Scores may use all that the training releases.
    canaries : int
        m, at least 1.
    claim : float, Budget or GaussianPrivacy
        Epsilon in [0, inf), or a budget; a zCDP budget is converted at ``delta``. Or mu.
    delta : float, default=0
        In [0, 1); 0 where mu is claimed.
    guesses : int, optional
        r, between 1 and ``canaries``. It must be fixed before the scores are compared with the
        coins: the best r found afterwards would be a maximum over many tests. By default a tenth
        of the canaries, or, if that is more, three times the number without which no outcome
        refutes the claim.
    confidence : float, default=0.999
        In (0, 1).
    rng : None, int, SeedSequence, Generator, SystemRandom or "os"
        The coins, the training and the ties get independent children of it.

    Returns
    -------
    CanaryVerdict

    Raises
    ------
    ValueError
        If a number is outside its range, so many guesses cannot refute the claim even if all
        are right, or the scores have the wrong shape or are NaN.
    TypeError
        If an argument is of the wrong kind.

    References
    ----------
    Steinke, Nasr, Jagielski (2023); Mahloujifar, Melis, Chaudhuri (2024).

    Examples
    --------
    A histogram with Laplace noise: adding one record changes one count by 1, so it is 1-private
    with noise of scale 1. With a fifth of that noise the claim falls.

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
    asked = claimed(claim, delta)
    confidence = check_number(
        "confidence", confidence, low=0.0, high=1.0, low_open=True, high_open=True
    )
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
    scores = check_reals("what train returns", train(included.copy(), noise))
    if scores.shape != (canaries,):
        raise ValueError(
            f"train must return one real score a canary, shape ({canaries},), "
            f"got shape {scores.shape}"
        )
    if np.isnan(scores).any():
        raise ValueError(f"train must not return NaN, got {np.isnan(scores).sum()} such scores")
    order = np.lexsort((ties.random(canaries), scores))
    out = guesses // 2
    correct = int(
        (~included[order[:out]]).sum() + included[order[canaries - guesses + out :]].sum()
    )
    found = _lower_bound(correct, guesses, canaries, asked, miss)
    return CanaryVerdict(
        refuted=found > asked.level,
        bound=found,
        bounded=asked.name,
        claim=asked.level,
        delta=asked.delta,
        confidence=confidence,
        canaries=canaries,
        guesses=guesses,
        correct=correct,
        p_value=_chance(correct, guesses, canaries, asked, asked.level),
        notes=asked.notes,
    )


def _chance(correct: int, guesses: int, canaries: int, asked: Claimed, level: float) -> float:
    """Return the bound on the chance of so many right guesses at a level of what is claimed."""
    if asked.name == "mu":
        return gaussian_guessing_probability(correct, guesses, canaries, level)
    return guessing_probability(correct, guesses, canaries, level, asked.delta)


def _guesses_needed(canaries: int, asked: Claimed, miss: float) -> int | None:
    """Return how many guesses, all right, refute the claim; None where not even all do.

    The best outcome's probability falls with the number of guesses.
    """
    low, high = 0, canaries
    if _chance(high, high, canaries, asked, asked.level) > miss:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        if _chance(middle, middle, canaries, asked, asked.level) <= miss:
            high = middle
        else:
            low = middle
    return high


def _lower_bound(correct: int, guesses: int, canaries: int, asked: Claimed, miss: float) -> float:
    """Return a level that these guesses reject, as large as bisection finds.

    Mechanisms that are private at a smaller level are private at this one too, so all smaller
    ones are rejected with it.
    """

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
