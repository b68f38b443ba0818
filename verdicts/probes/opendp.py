"""Runs OpenDP, which draws from the operating system's entropy: no seed reaches it."""

from __future__ import annotations

from typing import Any

import numpy as np


def _measurement(name: str, scale: float, kind: str) -> Any:
    """Return a measurement of a vector; a call of it releases every entry."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    metric = dp.l1_distance if name == "make_laplace" else dp.l2_distance
    entry = {"int": int, "float": float}[kind]
    atoms = dp.atom_domain(T=float, nan=False) if kind == "float" else dp.atom_domain(T=int)
    return getattr(dp.m, name)(dp.vector_domain(atoms), metric(T=entry), scale=scale)


def privacy_map(name: str, scale: float, kind: str, distance: float) -> float:
    """Return what the privacy map says for a distance."""
    value = int(distance) if kind == "int" else float(distance)
    return float(_measurement(name, scale, kind).map(value))


def release(name: str, value: float, scale: float, kind: str, size: int) -> np.ndarray:
    """Return ``size`` independent releases of one value: the entries of one vector's release."""
    entry = int(value) if kind == "int" else float(value)
    return np.array(_measurement(name, scale, kind)([entry] * size), dtype=float)


def gaussian_epsilons(settings: list[dict[str, Any]]) -> np.ndarray:
    """Return epsilons at delta of Gaussian measurements cast from zCDP."""
    import opendp.prelude as dp

    found = []
    for setting in settings:
        measurement = _measurement("make_gaussian", setting["sigma"], "float")
        profile = dp.c.make_zCDP_to_approxDP(measurement).map(1.0)
        found.append(profile.epsilon(setting["delta"]))
    return np.array(found, dtype=float)


def response_map(prob: float, categories: int) -> float:
    """Return what the privacy map of randomized response says."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    if categories == 2:
        return float(dp.m.make_randomized_response_bool(prob).map(1))
    return float(dp.m.make_randomized_response(list(range(categories)), prob).map(1))


def _noisy_max(scale: float) -> Any:
    import opendp.prelude as dp

    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T=float, nan=False))
    return dp.m.make_noisy_max(domain, dp.linf_distance(T=float), dp.max_divergence(), scale=scale)


def noisy_max(scores: list[float], scale: float, size: int) -> np.ndarray:
    """Return ``size`` chosen places."""
    made, values = _noisy_max(scale), [float(score) for score in scores]
    return np.array([made(values) for _ in range(size)], dtype=float)


def noisy_max_map(scale: float) -> float:
    """Return what the privacy map of the noisy maximum says for scores that move by up to 1."""
    return float(_noisy_max(scale).map(1.0))
