"""What a query is, and the records that it answers from."""

from __future__ import annotations

from abc import ABC, abstractmethod
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

    @abstractmethod
    def answer(self, records: Records, random: Any) -> tuple[Any, int]:
        """Return the noisy answer, and how often each record was evaluated for it."""
