"""Runs prv-accountant."""

from __future__ import annotations

from typing import Any

import numpy as np


def ranges(settings: list[dict[str, Any]], error: float) -> np.ndarray:
    """Return the lower bounds, estimates and upper bounds reported for epsilon, (m, 3)."""
    import prv_accountant

    found = []
    for each in settings:
        prv = prv_accountant.PoissonSubsampledGaussianMechanism(
            sampling_probability=each["rate"], noise_multiplier=each["sigma"]
        )
        accountant = prv_accountant.PRVAccountant(
            prvs=[prv],
            max_self_compositions=[each["steps"]],
            eps_error=error,
            delta_error=1e-3 * each["delta"],
        )
        found.append(accountant.compute_epsilon(each["delta"], [each["steps"]]))
    return np.array(found, dtype=float)
