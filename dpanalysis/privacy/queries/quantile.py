"""The query of a quantile: the first of some public numbers that enough of a column lie below."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..._validation import check_choice, check_finite, check_int, check_number, check_reals
from .. import mechanisms
from ..events import AboveThreshold, Event
from ..sampling import Sampling
from .assumptions import check_full
from .base import Query, Records

if TYPE_CHECKING:
    from ..facts import PublicFacts

__all__ = ["NoisyQuantile"]


@dataclass(frozen=True, eq=False)
class NoisyQuantile(Query):
    r"""The sparse vector over public candidates, which finds where a column ends.

    The answer is the first candidate c, from the smallest on, with
    :math:`\#\{i : x_i \le c\} + \nu_c \ge q n + \rho`, and the last where there is none. From
    above it is the largest, in the same way, that enough of the column are at least.

    Parameters
    ----------
    column : int
    level : float
        q in [0, 1].
    candidates : sequence of float
        Public, increasing.
    scale : float
        s > 0, in records: the noise :math:`\rho` of the threshold is Laplace noise of scale s, the
        noise of the counts of scale 2s.
    side : {"below", "above"}
        What is counted.

    Raises
    ------
    ValueError
        If an argument is outside its range.

    Notes
    -----
    A record that is added, removed or replaced moves every count by 1 at most, and neither the
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

    def __post_init__(self) -> None:
        check_int("column", self.column)
        check_number("level", self.level, low=0.0, high=1.0)
        check_number("scale", self.scale, low=0.0, low_open=True)
        check_choice("side", self.side, ("below", "above"))
        values = check_finite("candidates", check_reals("candidates", self.candidates))
        if values.ndim != 1 or not values.size or not (np.diff(values) > 0).all():
            raise ValueError(f"candidates must be increasing numbers, got {self.candidates!r}")

    def event(self, facts: PublicFacts, sampling: Sampling) -> Event | None:
        """Return the cost of the sparse vector."""
        check_full(sampling)
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
        reached = (i for i, count in enumerate(counts) if threshold.reached(float(count), wanted))
        first = next(reached, len(candidates) - 1)
        return float(sign * candidates[first]), 1
