"""The query of a value: the objective at a public point."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..._validation import check_choice, check_finite, check_number
from .. import mechanisms
from ..events import Event, Gaussian, Laplace
from ..sampling import Sampling
from .base import Query, Records
from .decrease import clip_losses

if TYPE_CHECKING:
    from ..facts import PublicFacts

__all__ = ["NoisyValue"]


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

    Raises
    ------
    ValueError
        If an argument is outside its range.

    References
    ----------
    It replaces (6) of Gao and Wright (2023), whose half-normal noise is not private (errata 003-4).
    """

    w: np.ndarray
    clip: float
    std: float
    law: str = "gaussian"

    def __post_init__(self) -> None:
        check_finite("w", np.asarray(self.w))
        check_number("clip", self.clip, low=0.0, low_open=True)
        check_number("std", self.std, low=0.0)
        check_choice("law", self.law, ("gaussian", "laplace"))

    def event(self, facts: PublicFacts, sampling: Sampling) -> Event | None:
        """Return the cost at sensitivity C/B, and what two sums may round apart."""
        if self.std == 0.0 or not facts.has_records:
            return None
        size = sampling.expected_size(facts.n)
        kind = Gaussian if self.law == "gaussian" else Laplace
        return kind(self.std, (1.0 + 2.0 * facts.rounding) * self.clip / size)

    def iterates(self) -> tuple[np.ndarray, ...]:
        """Return the point."""
        return (self.w,)

    def answer(self, records: Records, random: Any) -> tuple[float, int]:
        """Return the noisy value, and 1."""
        losses = records.problem.along(self.w, np.zeros_like(self.w), records.rows)(0.0)
        value = float(np.sum(clip_losses(losses, self.clip))) / records.size
        # The noise comes first: a large penalty would round away what it has to hide.
        value = float(mechanisms.noisy(random, [value], self.law, self.std)[0])
        penalty = records.problem.regularizer
        return value if penalty is None else value + float(penalty.value(self.w)), 1
