"""One look at rows that are not held in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..row_bound import Order, RowBound
from .checks import (
    count_not_finite,
    overflowing,
    refuse_labels,
    refuse_not_finite,
    refuse_overflow,
    refuse_rows,
    rows_over,
    wrong_labels,
    zero_or_one,
)

__all__ = ["Survey"]


@dataclass(frozen=True)
class Survey:
    """What one look at every row finds; those of two parts can be added."""

    not_finite: tuple[int, ...]  # in X and in y
    overflow: tuple[int, list[int]]  # see overflowing
    wrong_label: float | None
    zero_or_one: bool
    over: tuple[tuple[int, list[int], float], ...]  # see rows_over, for each bound

    @classmethod
    def of(
        cls,
        X: Any,
        y: Any,
        classification: bool,
        bounds: Sequence[RowBound],
        norms_of: Callable[[Any, Order], Any],
        start: int,
    ) -> Survey:
        """Look at rows that start at number ``start``."""
        wrong = wrong_labels(y) if classification else y[:0]
        over = []
        for bound in bounds:
            count, first, largest = rows_over(norms_of(X, bound.order), bound)
            over.append((count, [start + i for i in first], largest))
        first_wrong = float(wrong[0]) if wrong.size else None
        finite = count_not_finite(X), count_not_finite(y)
        count, first = overflowing(X)
        overflow = count, [start + i for i in first]
        return cls(finite, overflow, first_wrong, zero_or_one(y), tuple(over))

    def __add__(self, other: Survey) -> Survey:
        bad = tuple(a + b for a, b in zip(self.not_finite, other.not_finite))
        wrong = other.wrong_label if self.wrong_label is None else self.wrong_label
        over = tuple(
            (a[0] + b[0], (a[1] + b[1])[:5], max(a[2], b[2])) for a, b in zip(self.over, other.over)
        )
        first = (self.overflow[1] + other.overflow[1])[:5]
        overflow = self.overflow[0] + other.overflow[0], first
        zero_one = self.zero_or_one and other.zero_or_one
        return Survey(bad, overflow, wrong, zero_one, over)

    def check(self, bounds: Sequence[RowBound]) -> None:
        """Raise ValueError where the rows are not what they must be."""
        for name, count in zip(("X", "y"), self.not_finite):
            refuse_not_finite(name, count)
        refuse_overflow(*self.overflow)
        if self.wrong_label is not None:
            refuse_labels(self.wrong_label, self.zero_or_one)
        for bound, found in zip(bounds, self.over):
            if bound.enforce == "check":
                refuse_rows(bound, *found)
