"""Runs dp-accounting."""

from __future__ import annotations

from typing import Any

import numpy as np


def _accountant(kind: str, relation: str) -> Any:
    import dp_accounting

    made = {"pld": dp_accounting.pld.PLDAccountant, "rdp": dp_accounting.rdp.RdpAccountant}[kind]
    return made(neighboring_relation=dp_accounting.NeighboringRelation[relation])


def epsilons(kind: str, relation: str, settings: list[dict[str, Any]]) -> np.ndarray:
    """Return the epsilons reported by an accountant for steps of a (sampled) Gaussian."""
    import dp_accounting

    found = []
    for setting in settings:
        event: Any = dp_accounting.GaussianDpEvent(setting["sigma"])
        if setting["rate"] < 1.0:
            event = dp_accounting.PoissonSampledDpEvent(setting["rate"], event)
        accountant = _accountant(kind, relation).compose(event, setting["steps"])
        found.append(accountant.get_epsilon(setting["delta"]))
    return np.array(found, dtype=float)


def randomized_response(kind: str, parameter: float, count: int, loops: int, delta: float) -> float:
    """Return epsilon after ``loops`` calls that each compose ``count`` times."""
    import dp_accounting

    accountant = _accountant(kind, "REPLACE_ONE")
    for _ in range(loops):
        accountant.compose(dp_accounting.RandomizedResponseDpEvent(parameter, 2), count)
    return float(accountant.get_epsilon(delta))
