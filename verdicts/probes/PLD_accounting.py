"""Runs PLD_accounting."""

from __future__ import annotations

from typing import Any

import numpy as np


def ranges(settings: list[dict[str, Any]]) -> np.ndarray:
    """Return upper and lower bounds on epsilon of Gaussian noise with random allocation, (m, 2)."""
    import PLD_accounting

    found = [
        PLD_accounting.gaussian_allocation_epsilon_range(
            delta=each["delta"], sigma=each["sigma"], num_steps=each["steps"]
        )
        for each in settings
    ]
    return np.array(found, dtype=float)
