"""What a run has really spent of its budget."""

from __future__ import annotations

import dpanalysis as dpa

__all__ = ["epsilon_spent"]


def epsilon_spent(result: dpa.Result) -> float:
    """Return what a run has spent of its epsilon, by the notion of its guard.

    The guarantee of an adaptive run is all of the budget, also where it ended before that.
    """
    guard, budget = result.guard, result.budget
    if guard is None:
        return float(result.epsilon(budget.delta))
    if guard.notion == "zcdp":
        return float(dpa.privacy.zcdp_to_epsilon(guard.spent, budget.delta))
    return float(budget.limit - guard.remaining)
