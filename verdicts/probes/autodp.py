"""Runs autodp."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np


def epsilons(settings: list[dict[str, Any]]) -> np.ndarray:
    """Return epsilons of steps of a (Poisson-sampled) Gaussian, by Renyi accounting."""
    from autodp.mechanism_zoo import GaussianMechanism
    from autodp.transformer_zoo import AmplificationBySampling, Composition

    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for setting in settings:
            mechanism = GaussianMechanism(setting["sigma"])
            if setting["rate"] < 1.0:
                mechanism.neighboring = "add_remove"
                amplify = AmplificationBySampling(PoissonSampling=True)
                mechanism = amplify(mechanism, setting["rate"], improved_bound_flag=True)
            composed = Composition()([mechanism], [setting["steps"]])
            found.append(composed.get_approxDP(setting["delta"]))
    return np.array(found, dtype=float)


def profile(name: str, parameter: float, deltas: list[float]) -> np.ndarray:
    """Return the epsilons that a mechanism reports at several deltas."""
    from autodp import mechanism_zoo

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mechanism = getattr(mechanism_zoo, name)(parameter)
        return np.array([mechanism.get_approxDP(delta) for delta in deltas], dtype=float)
