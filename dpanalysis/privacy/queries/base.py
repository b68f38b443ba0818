"""What a query is, and the records that it answers from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..events import Event
from ..sampling import Sampling

if TYPE_CHECKING:
    from ..facts import PublicFacts

__all__ = ["Query", "Ray", "Records"]


@dataclass(frozen=True)
class Records:
    """The batch that a query answers from; no method ever holds one.

    Attributes
    ----------
    problem : EmpiricalRisk
    rows : int array of shape (m,), or None
        The batch drawn, which may be empty; None for all records.
    size : float
        The PUBLIC size that sums are divided by: that which is expected of the batch.
    """

    problem: Any
    rows: np.ndarray | None
    size: float

    @property
    def count(self) -> int:
        """Number of records in the batch."""
        return self.problem.n if self.rows is None else len(self.rows)


class Ray(NamedTuple):
    """Public points ``w - t direction`` (d,) for the t in ``step_sizes`` (K,)."""

    w: np.ndarray
    direction: np.ndarray
    step_sizes: np.ndarray

    def ends(self) -> tuple[np.ndarray, ...]:
        """Return w and the points of the smallest and the largest step; the rest lie between."""
        with np.errstate(over="ignore", invalid="ignore"):  # whoever asks checks them
            least, most = min(self.step_sizes), max(self.step_sizes)
            return self.w, self.w - least * self.direction, self.w - most * self.direction


class Query(ABC):
    """A question about the records of one batch.

    :meth:`event` must bound what :meth:`answer` tells about any one record; it is charged
    before the answer. See :class:`~dpanalysis.privacy.queries.FirstDecrease`.
    """

    #: What one answer evaluates for every record of the batch, for counting.
    evaluates = "loss"

    @abstractmethod
    def event(self, facts: PublicFacts, sampling: Sampling) -> Event | None:
        """Return the cost on a batch drawn by ``sampling``, before amplification.

        None where the answer is exact. Looks at public facts only, and raises where no bound
        makes the answer private.
        """

    def iterates(self) -> Sequence[np.ndarray]:
        """Return the public points, (d,) or (K, d), at which records are evaluated.

        What a record's loss is at a huge point may overflow, or not, by what the record is. So
        the oracle refuses huge points before it answers. Points on a line may be given by its
        ends. Points that the query finds from the records are not public and not listed.
        """
        return ()

    @abstractmethod
    def answer(self, records: Records, random: Any) -> tuple[Any, int]:
        """Return the noisy answer, and how often each record was evaluated for it."""
