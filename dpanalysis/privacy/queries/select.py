"""The query of a choice: which of some public points has the least loss."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..._validation import check_choice, check_finite, check_int, check_number
from .. import mechanisms
from ..events import BoundedRange, Event, Pure, Repeated
from ..sampling import Sampling
from .base import Query, Ray, Records
from .decrease import clip_losses, decrease_sensitivity

if TYPE_CHECKING:
    from ..facts import PublicFacts

__all__ = ["NoisyMin"]


@dataclass(frozen=True, eq=False)
class NoisyMin(Query):
    r"""Report-noisy-min: the index of one of K public points, likely one of little loss.

    The answer is the index of the smallest of

    .. math:: v_k - \nu_k, \quad v_k = \frac1B \sum_{i \in \text{batch}}
              \min(\max(f_i(w_k), 0), C) + r(w_k)

    with the public penalty r, the public batch size B and independent noise of scale b, which
    is SUBTRACTED: added, as in public code (errata 002-11), it hides nothing.

    Parameters
    ----------
    points : ndarray of shape (K, d), or Ray
        w_k, public; those along a ray are evaluated in one pass over the records.
    clip : float
        C in (0, inf).
    scale : float
        b, in units of the loss; 0 answers exactly.
    noise : {"gumbel", "exponential"}
        Gumbel noise makes the exponential mechanism. At the same scale exponential noise
        ("permute and flip") is at least as likely to find the minimum, and the pure cost is
        the same; but under zCDP the Gumbel scale may be half as large, which is better.
    count : int
        So many indices, the best first; more than one with Gumbel noise only.

    Raises
    ------
    ValueError
        If an argument is outside its range.

    Notes
    -----
    A record changes every v_k by some :math:`a_k` that lies in one interval of length S: in
    [0, C/B] if it is added, all the other way if it is removed, in [-C/B, C/B] if it is
    replaced; S is C/B or 2C/B, by :func:`decrease_sensitivity`. The penalty does not move.

    *Exponential noise costs S/b.* Fix the noise of all but k. Index k wins if
    :math:`\nu_k > t = v_k - \min_{j \ne k} (v_j - \nu_j)`, which has probability
    :math:`\min(1, e^{-t/b})`. t moves by :math:`a_k` less a number between the smallest and the
    largest a_j, by at most S; so the logarithm of the probability moves by at most S/b.

    *Gumbel noise costs S/b, and has bounded range.* Index k has probability
    :math:`e^{-v_k/b} / \sum_j e^{-v_j/b}`, whose logarithm moves by :math:`-a_k/b` and a term
    that is the same for all k: by numbers in an interval of length S/b
    (:class:`~dpanalysis.privacy.events.BoundedRange`).

    Neither can be less: let the a_k be at either end of their interval.

    *Several indices cost as many choices.* With Gumbel noise, which point is the smallest tells
    nothing about the order of the others. So the ``count`` smallest are the answers of as many
    exponential mechanisms, one after the other, each among the points that are left.

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
        check_number("clip", self.clip, low=0.0, low_open=True)
        check_number("scale", self.scale, low=0.0)
        check_choice("noise", self.noise, ("gumbel", "exponential"))
        parts = self.points if isinstance(self.points, Ray) else (self.points,)
        for part in parts:
            check_finite("points", np.asarray(part))
        if not np.size(parts[-1]):
            raise ValueError("points must hold at least one point, got none")
        most = len(parts[-1]) if self.noise == "gumbel" else 1
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
        # Relative to the least: a large penalty would round away what the noise has to hide.
        offsets = penalties - penalties.min()
        chosen = mechanisms.smallest(random, values, offsets, self.noise, self.scale, self.count)
        return (int(chosen[0]) if self.count == 1 else chosen), len(values)

    def _losses(self, records: Records) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield each point and the losses of the batch there."""
        if isinstance(self.points, Ray):
            w, direction, step_sizes = self.points
            losses = records.problem.along(w, direction, records.rows)
            for step in step_sizes:
                yield w - step * direction, losses(float(step))
        else:
            for point in self.points:
                yield point, records.problem.along(point, np.zeros_like(point), records.rows)(0.0)
