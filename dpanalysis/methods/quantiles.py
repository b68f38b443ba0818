"""Quantiles of columns, one query after the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np

from ..privacy.events import Event
from ..privacy.facts import PublicFacts
from ..privacy.oracle import PrivateOracle
from ..privacy.queries import NoisyQuantile
from ..privacy.relations import Budget
from .base import FULL, Method, Shown, Step

__all__ = ["Quantiles"]


@dataclass(frozen=True, repr=False)
class Quantiles(Shown, Method):
    """A noisy quantile of every column of a :class:`~dpanalysis.problems.table.Table`.

    The one iterate of a run is the vector of them.

    Parameters
    ----------
    level : float
        In [0, 1]: the share that lies on the ``side``.
    candidates : tuple of float
        Public, increasing.
    side : {"below", "above"}
        See :class:`~dpanalysis.privacy.queries.NoisyQuantile`.

    Examples
    --------
    >>> import numpy as np
    >>> import dpanalysis as dpa
    >>> from dpanalysis.methods.quantiles import Quantiles
    >>> from dpanalysis.problems.table import Table
    >>> table = Table(np.random.default_rng(0).normal(40, 10, size=(5000, 1)))
    >>> median = Quantiles(0.5, tuple(range(0, 101, 5)))
    >>> dpa.minimize(table, median, dpa.Budget(0.1), rng=0, record=()).w
    array([[45.]])
    """

    level: float
    candidates: tuple[float, ...]
    _: KW_ONLY
    side: str = "below"
    released: ClassVar[tuple[str, ...]] = ("w",)

    def __post_init__(self) -> None:
        NoisyQuantile(0, self.level, self.candidates, 1.0, self.side)  # checks them

    def prepare(
        self, facts: PublicFacts, budget: Budget | None, accountant: str
    ) -> list[NoisyQuantile]:
        """Return a query for every column, with an equal part of the budget each."""
        if budget is None or budget.epsilon is None:
            raise ValueError(f"budget must be of epsilon for quantiles, got {budget!r}")
        scale = 2.0 * facts.d / budget.epsilon
        return [
            NoisyQuantile(j, self.level, self.candidates, scale, self.side) for j in range(facts.d)
        ]

    def events(self, facts: PublicFacts, plan: list[NoisyQuantile]) -> list[Event]:
        """Return the event of every column."""
        return [event for query in plan if (event := query.event(facts, FULL)) is not None]

    def run(self, w: np.ndarray, oracle: PrivateOracle, plan: Any) -> Iterator[Step]:
        """Yield all quantiles at once."""
        yield Step(np.array([oracle.ask(query, FULL) for query in plan]))

    def length(self, plan: Any) -> int:
        """Return 1."""
        return 1
