"""The part of its budget that a run has actually spent."""

from __future__ import annotations

import dpanalysis as dpa

__all__ = ["epsilon_spent"]


def epsilon_spent(result: dpa.Result) -> float:
    """Return the epsilon that a run has spent, by the privacy notion of its guard.

    The guarantee of an adaptive run is the whole budget, even if it ended earlier.
    """
    guard, budget = result.guard, result.budget
    if guard is None:
        return float(result.epsilon(budget.delta))
    if guard.notion == "zcdp":
        return float(dpa.privacy.zcdp_to_epsilon(guard.spent, budget.delta))
    return float(budget.limit - guard.remaining)
