"""Runs random-allocation."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np


def epsilons(bound: str, settings: list[dict[str, Any]]) -> np.ndarray:
    """Return epsilons of Gaussian noise with random allocation by one of the bounds, (m,)."""
    from random_allocation import PrivacyParams, SchemeConfig, random_allocation_scheme

    compute = getattr(random_allocation_scheme, f"allocation_epsilon_{bound}")
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for each in settings:
            parameters = PrivacyParams(
                sigma=each["sigma"], num_steps=each["steps"], delta=each["delta"]
            )
            config = SchemeConfig(allocation_direct_alpha_orders=[*range(2, 61)])
            found.append(compute(parameters, config))
    return np.array(found, dtype=float)
