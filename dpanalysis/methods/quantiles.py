"""Private quantiles of columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np

from ..privacy.accounting.relations import Budget
from ..privacy.events import Event
from ..privacy.facts import PublicFacts
from ..privacy.oracle import PrivateOracle
from ..privacy.queries import NoisyQuantile
from .base import FULL, Method, ShortRepr, Step


@dataclass(frozen=True, repr=False)
class Quantiles(ShortRepr, Method):
    """A noisy quantile of every column of a :class:`~dpanalysis.problems.base.ColumnTable`.

    The only iterate is their vector. ``level`` is the share of values on the ``side``; see
    :class:`~dpanalysis.privacy.queries.NoisyQuantile`.
    """

    level: float
    candidates: tuple[float, ...]
    _: KW_ONLY
    side: str = "below"
    released: ClassVar[tuple[str, ...]] = ("w",)

    def __post_init__(self) -> None:
        NoisyQuantile(0, self.level, self.candidates, 1.0, self.side)  # validates the arguments

    def prepare(
        self, facts: PublicFacts, budget: Budget | None, accountant: str
    ) -> list[NoisyQuantile]:
        """Return a query for every column, with equal shares of the budget."""
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
