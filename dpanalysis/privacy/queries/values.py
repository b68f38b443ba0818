"""Queries of objective values: line searches, values, selection of a point, and quantiles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..._validation import (
    check_choice,
    check_finite,
    check_int,
    check_number,
    check_positive,
    check_reals,
    check_vector,
)
from .. import mechanisms
from ..accounting.sampling import Sampling
from ..events import AboveThreshold, BoundedRange, Event, Gaussian, Laplace, Pure, Repeated
from .base import Query, Ray, Records, check_full

if TYPE_CHECKING:
    from ..facts import PublicFacts


@dataclass(frozen=True, eq=False)
class FirstDecrease(Query):
    r"""The first step size that decreases the objective enough.

    AboveThreshold, at threshold 0, of the queries

    .. math:: q_k = \frac1B \sum_{i \in \text{batch}} [f_i(w) - f_i(w - \eta_k g)]
              + r(w) - r(w - \eta_k g) - c_k

    with the public penalty r outside the clip and the public batch size B (errata 002-6,
    002-9). Clipping at C bounds the influence of one record:

    - ``query="loss_clip"``, as in the paper, clips every loss to [0, C]. All queries share f(w)
      then, and so cost less (errata 002-1).
    - ``query="difference_clip"`` clips every decrease to [-C, C]. It still counts the decrease of a
      record whose losses are above C.
    - ``query="slope_clip"`` clips every decrease per unit of step. The queries are
      :math:`q_k/\eta_k`, which have the signs of the :math:`q_k`. If C is the Lipschitz constant of
      the records' losses times ||g||, nothing is clipped, and short steps are tried with the same
      noise as long ones (errata 003-7).

    Parameters
    ----------
    points : Ray
        w, the direction g, a private gradient that has been released, and the candidates eta_k
        in the order in which they are tried.
    required : ndarray of shape (K,)
        The required decrease c_k at each.
    clip : float
        C in (0, inf).
    noise : {"laplace", "gaussian"}
    threshold_scale, query_scale : float
        Laplace scales or standard deviations in units of the query; both 0 answer exactly.
    query : {"loss_clip", "difference_clip", "slope_clip"}

    References
    ----------
    Chen and Lee (2020), Algorithm 1.
    """

    points: Ray
    required: np.ndarray
    clip: float
    noise: str
    threshold_scale: float
    query_scale: float
    query: str = "loss_clip"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("clip", self.clip)
        check_choice("noise", self.noise, ("laplace", "gaussian"))
        check_choice("query", self.query, ("loss_clip", "difference_clip", "slope_clip"))
        exact = self.threshold_scale == 0.0 and self.query_scale == 0.0
        for name in ("threshold_scale", "query_scale"):
            check_number(name, getattr(self, name), low=0.0, low_open=not exact)
        self.points.check()
        if self.query == "slope_clip" and min(self.points.step_sizes, default=1.0) <= 0.0:
            raise ValueError(
                "step_sizes must be positive for query='slope_clip', got "
                f"{min(self.points.step_sizes)}"
            )
        sizes = np.shape(self.points.step_sizes)
        if np.shape(check_finite("required", np.asarray(self.required))) != sizes or not sizes[0]:
            raise ValueError(
                "required must hold one number a step size, got shapes "
                f"{np.shape(self.required)} and {sizes}"
            )

    def event(self, facts: PublicFacts, sampling: Sampling) -> AboveThreshold | None:
        """Return the cost of AboveThreshold; see :func:`decrease_sensitivity`."""
        if self.threshold_scale == 0.0 or not facts.has_records:
            return None
        if self.query == "slope_clip":
            for step in self.points.step_sizes:
                facts.check_magnitude(float(step), self.clip, what="clip times a step size")
        return AboveThreshold(
            self.noise,
            self.threshold_scale,
            self.query_scale,
            decrease_sensitivity(facts, sampling, self.clip),
            len(self.required),
            shared=self.query == "loss_clip",
        )

    def iterates(self) -> tuple[np.ndarray, ...]:
        """Return the ends of the ray."""
        return self.points.ends()

    def answer(self, records: Records, random: Any) -> tuple[int | None, int]:
        """Return the index of the step size, None if there is none, and the evaluations."""
        threshold = mechanisms.Threshold(random, self.noise, self.threshold_scale, self.query_scale)
        w, direction, step_sizes = self.points
        losses = records.problem.line_losses(w, direction, records.rows)
        penalty = records.problem.regularizer
        start = clip_losses(losses(0.0), self.clip) if self.query == "loss_clip" else losses(0.0)
        for k, (step, required) in enumerate(zip(step_sizes, self.required)):
            after = losses(float(step))
            unit = float(step) if self.query == "slope_clip" else 1.0
            if self.query == "loss_clip":
                decrease = float(np.sum(start) - np.sum(clip_losses(after, self.clip)))
            else:
                decrease = float(np.sum(_clip(start - after, -unit * self.clip, unit * self.clip)))
            wanted = float(required)
            if penalty is not None:
                wanted -= penalty.value(w) - penalty.value(w - step * direction)
            if threshold.reached(decrease / records.size / unit, wanted / unit):
                return k, k + 2
        return None, len(step_sizes) + 1


def decrease_sensitivity(facts: PublicFacts, sampling: Sampling, clip: float) -> float:
    """Return the sensitivity of a mean decrease of losses clipped at ``clip``, C > 0.

    It is C over the batch size, and twice that under replace-one, where f(w) moves by a number
    in [-C, C], and so does every f(w - eta_k g); likewise a clipped decrease. It is also the length
    of an interval that contains the changes of clamped mean losses at any points.
    """
    facts.check_magnitude(clip, what="clip")
    return facts.sum_sensitivity(clip) / sampling.expected_size(facts.n)


def clip_losses(losses: np.ndarray, clip: float) -> np.ndarray:
    """Clamp losses to [0, clip]."""
    return _clip(losses, 0.0, clip)


def _clip(values: np.ndarray, low: float, high: float) -> np.ndarray:
    """Clip; a NaN counts as 0, since it would reveal its record."""
    clipped = np.clip(values, low, high)
    return np.where(np.isnan(clipped), 0.0, clipped)


# The objective at a public point


@dataclass(frozen=True, eq=False)
class NoisyValue(Query):
    r"""The objective at one point, with losses clamped to [0, C] and Gaussian or Laplace noise.

    .. math:: \frac1B \sum_{i \in \text{batch}} \min(\max(f_i(w), 0), C) + r(w) + \text{noise}

    with the public penalty r and the public batch size B. A record moves it by at most C/B, be
    it replaced, added or removed.

    Parameters
    ----------
    w : ndarray of shape (d,)
        Public.
    clip : float
        C in (0, inf).
    std : float
        Standard deviation, or Laplace scale, >= 0; 0 answers exactly.
    law : {"gaussian", "laplace"}

    References
    ----------
    It replaces (6) of Gao and Wright (2023), whose half-normal noise is not private (errata 003-4).
    """

    w: np.ndarray
    clip: float
    std: float
    law: str = "gaussian"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_vector("w", self.w)
        check_positive("clip", self.clip)
        check_number("std", self.std, low=0.0)
        check_choice("law", self.law, ("gaussian", "laplace"))

    def event(self, facts: PublicFacts, sampling: Sampling) -> Event | None:
        """Return the cost at sensitivity C/B plus the rounding errors of two sums."""
        if self.std == 0.0 or not facts.has_records:
            return None
        facts.check_magnitude(self.clip, what="clip")
        size = sampling.expected_size(facts.n)
        kind = Gaussian if self.law == "gaussian" else Laplace
        return kind(self.std, (1.0 + 2.0 * facts.rounding) * self.clip / size)

    def iterates(self) -> tuple[np.ndarray, ...]:
        """Return the point."""
        return (self.w,)

    def answer(self, records: Records, random: Any) -> tuple[float, int]:
        """Return the noisy value, and 1."""
        losses = records.problem.line_losses(self.w, np.zeros_like(self.w), records.rows)(0.0)
        value = float(np.sum(clip_losses(losses, self.clip))) / records.size
        # Add the noise first: a large penalty would round it away.
        value = float(mechanisms.noisy(random, [value], self.law, self.std)[0])
        penalty = records.problem.regularizer
        return value if penalty is None else value + float(penalty.value(self.w)), 1


# Selection of a public point of small loss


@dataclass(frozen=True, eq=False)
class NoisyMin(Query):
    r"""Report-noisy-min: the index of one of K public points, with high probability of small loss.

    The answer is the index of the smallest of

    .. math:: v_k - \nu_k, \quad v_k = \frac1B \sum_{i \in \text{batch}}
              \min(\max(f_i(w_k), 0), C) + r(w_k)

    with the public penalty r, the public batch size B and independent noise of scale b, which
    is SUBTRACTED: added, as in public code (errata 002-11), it hides nothing.

    Parameters
    ----------
    points : ndarray of shape (K, d), or Ray
        w_k, public; points of a ray are evaluated in one pass over the records.
    clip : float
        C in (0, inf).
    scale : float
        b, in units of the loss; 0 answers exactly.
    noise : {"gumbel", "exponential"}
        Gumbel noise gives the exponential mechanism. At the same scale exponential noise
        ("permute and flip") is at least as likely to find the minimum, and the pure cost is
        the same; but under zCDP the Gumbel scale may be half as large, which is better.
    count : int
        Number of indices, the best first; more than one with Gumbel noise only.

    Notes
    -----
    A record changes every v_k by some :math:`a_k` in one interval of length S: in [0, C/B] if it
    is added, in [-C/B, 0] if it is removed, in [-C/B, C/B] if it is replaced; S is C/B or 2C/B, by
    :func:`decrease_sensitivity`. The penalty does not change.

    *Exponential noise costs S/b.* Fix the noise of all but k. Index k wins if
    :math:`\nu_k > t = v_k - \min_{j \ne k} (v_j - \nu_j)`, which has probability
    :math:`\min(1, e^{-t/b})`. t changes by :math:`a_k` minus a number between the smallest and the
    largest a_j, by at most S; so the logarithm of the probability changes by at most S/b.

    *Gumbel noise costs S/b, and has bounded range.* Index k has probability
    :math:`e^{-v_k/b} / \sum_j e^{-v_j/b}`, whose logarithm changes by :math:`-a_k/b` and a term
    that is the same for all k: by numbers in an interval of length S/b
    (:class:`~dpanalysis.privacy.events.BoundedRange`).

    Neither cost can be less: let each a_k be at an end of the interval.

    *Rounding.* Each computed sum of losses has an error of at most r C, so the interval is 4 r C/B
    longer. S has 2 ``rounding`` C/B for that: each loss of a sum of m passes through at most
    24 + log2(m) additions (NumPy's pairwise summation), and ``rounding`` counts more than 4096.

    *Several indices cost as many choices.* With Gumbel noise, the index of the smallest reveals
    nothing about the order of the others. So the ``count`` smallest are the answers of as many
    exponential mechanisms, one after the other, each among the remaining points.

    References
    ----------
    McKenna, Sheldon (2020), permute and flip; Lee, Kifer (2018), NoisyMin; Durfee, Rogers (2019),
    Lemma 4.2, several indices.
    """

    points: np.ndarray | Ray
    clip: float
    scale: float
    noise: str = "gumbel"
    count: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("clip", self.clip)
        check_number("scale", self.scale, low=0.0)
        check_choice("noise", self.noise, ("gumbel", "exponential"))
        if isinstance(self.points, Ray):
            self.points.check()
        elif np.ndim(check_finite("points", np.asarray(self.points))) != 2:
            raise ValueError(f"points must have shape (K, d), got {np.shape(self.points)}")
        points = self.points.step_sizes if isinstance(self.points, Ray) else self.points
        if not np.size(points):
            raise ValueError("points must hold at least one point, got none")
        most = len(points) if self.noise == "gumbel" else 1
        check_int("count", self.count, low=1, high=most)

    def event(self, facts: PublicFacts, sampling: Sampling) -> Event | None:
        """Return the cost S/b of each choice, see Notes."""
        if self.scale == 0.0 or not facts.has_records:
            return None
        cost = decrease_sensitivity(facts, sampling, self.clip) / self.scale
        choice = BoundedRange(cost) if self.noise == "gumbel" else Pure(cost)
        return choice if self.count == 1 else Repeated(choice, self.count)

    def iterates(self) -> tuple[np.ndarray, ...]:
        """Return the points, or the ends of the ray."""
        return self.points.ends() if isinstance(self.points, Ray) else (self.points,)

    def answer(self, records: Records, random: Any) -> tuple[Any, int]:
        """Return the index, or an array of ``count``, and the number of points."""
        penalty = records.problem.regularizer
        both = [
            (
                float(np.sum(clip_losses(losses, self.clip))) / records.size,
                0.0 if penalty is None else float(penalty.value(point)),
            )
            for point, losses in self._losses(records)
        ]
        values, penalties = np.array(both).T
        # Relative to the least: a large penalty would round away the noise.
        offsets = penalties - penalties.min()
        chosen = mechanisms.smallest(random, values, offsets, self.noise, self.scale, self.count)
        return (int(chosen[0]) if self.count == 1 else chosen), len(values)

    def _losses(self, records: Records) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield each point and the losses of the batch there."""
        if isinstance(self.points, Ray):
            w, direction, step_sizes = self.points
            losses = records.problem.line_losses(w, direction, records.rows)
            for step in step_sizes:
                yield w - step * direction, losses(float(step))
        else:
            for point in self.points:
                yield (
                    point,
                    records.problem.line_losses(point, np.zeros_like(point), records.rows)(0.0),
                )


# Quantiles of a column


@dataclass(frozen=True, eq=False)
class NoisyQuantile(Query):
    r"""A quantile of a column among public candidates, by the sparse vector technique.

    The answer is the first candidate c, from the smallest on, with
    :math:`\#\{i : x_i \le c\} + \nu_c \ge q n + \rho`, and the last if there is none. With
    ``side="above"``, it is in the same way the first from the largest on, counting x_i >= c.

    Parameters
    ----------
    column : int
    level : float
        q in [0, 1].
    candidates : sequence of float
        Public, increasing.
    scale : float
        s > 0, in records: the threshold has Laplace noise :math:`\rho` of scale s, the counts have
        Laplace noise of scale 2s.
    side : {"below", "above"}
        The side of the candidate on which records are counted.

    Notes
    -----
    Adding, removing or replacing a record changes every count by at most 1, and neither the
    nominal size n nor the candidates. So the index is that of a sparse vector with sensitivity 1
    (:class:`~dpanalysis.privacy.events.AboveThreshold`), whose cost is 2/s.

    References
    ----------
    Dwork and Roth (2014), *The algorithmic foundations of differential privacy*, section 3.6.
    """

    column: int
    level: float
    candidates: Sequence[float]
    scale: float
    side: str = "below"

    evaluates = "comparison"
    needs = ("X",)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_int("column", self.column)
        check_number("level", self.level, low=0.0, high=1.0)
        check_positive("scale", self.scale)
        check_choice("side", self.side, ("below", "above"))
        values = check_finite("candidates", check_reals("candidates", self.candidates))
        if values.ndim != 1 or not values.size or not (np.diff(values) > 0).all():
            raise ValueError(f"candidates must be increasing numbers, got {self.candidates!r}")

    def event(self, facts: PublicFacts, sampling: Sampling) -> Event | None:
        """Return the cost of the sparse vector."""
        check_full(sampling)
        check_int("column", self.column, high=facts.d - 1)
        return AboveThreshold("laplace", self.scale, 2.0 * self.scale, 1.0, None)

    def answer(self, records: Records, random: Any) -> tuple[float, int]:
        """Return the candidate, and 1: every record is compared once."""
        sign = 1.0 if self.side == "below" else -1.0
        candidates = np.sort(sign * np.asarray(self.candidates, dtype=np.float64))
        column = sign * records.problem.X[:, self.column]
        # The number of x_i <= c, for all c at once.
        place = np.searchsorted(candidates, column, side="left")
        counts = np.cumsum(np.bincount(place, minlength=len(candidates) + 1))[:-1]
        threshold = mechanisms.Threshold(random, "laplace", self.scale, 2.0 * self.scale)
        wanted = self.level * records.size
        first = threshold.first(counts, wanted)
        return float(sign * candidates[-1 if first is None else first]), 1
