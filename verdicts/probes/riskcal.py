"""Runs riskcal."""

from __future__ import annotations

from typing import Any

import numpy as np


def advantages(settings: list[dict[str, Any]]) -> np.ndarray:
    """Return the advantages reported for steps of a Poisson-sampled Gaussian, (m,)."""
    from riskcal import calibration

    found = [
        calibration.get_advantage_for_dpsgd(each["sigma"], each["rate"], each["steps"])
        for each in settings
    ]
    return np.array(found, dtype=float)


def errors(settings: list[dict[str, Any]], alphas: list[float]) -> np.ndarray:
    """Return the false negative rates reported at false positive rates, (m, len(alphas))."""
    from riskcal import calibration

    found = [
        calibration.get_beta_for_dpsgd(
            each["sigma"], each["rate"], each["steps"], np.array(alphas, dtype=float)
        )
        for each in settings
    ]
    return np.array(found, dtype=float)
