"""Probe of OpenDP, which draws from the operating system's entropy and cannot be seeded."""

from __future__ import annotations

from typing import Any

import numpy as np


def _measurement(name: str, scale: float, kind: str) -> Any:
    """Return a measurement of a vector; one call releases every entry."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    metric = dp.l1_distance if name == "make_laplace" else dp.l2_distance
    entry = {"int": int, "float": float}[kind]
    atoms = dp.atom_domain(T=float, nan=False) if kind == "float" else dp.atom_domain(T=int)
    return getattr(dp.m, name)(dp.vector_domain(atoms), metric(T=entry), scale=scale)


def privacy_map(name: str, scale: float, kind: str, distance: float) -> float:
    """Return the value of the privacy map at a distance."""
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
    """Return the value of the privacy map of randomized response."""
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
    """Return ``size`` selected indices."""
    made, values = _noisy_max(scale), [float(score) for score in scores]
    return np.array([made(values) for _ in range(size)], dtype=float)


def noisy_max_map(scale: float) -> float:
    """Return the noisy maximum's privacy map for scores that change by up to 1."""
    return float(_noisy_max(scale).map(1.0))


def _amplified(kind: str, sample: int, population: int, scale: float) -> Any:
    """Return an amplified measurement of a simple sample.

    "one" is a noisy sum of records in [0, 1], "parts" a composition of four amplified sums,
    "whole" an amplified composition; "numbers" is Gaussian noise on every record, under the L2
    distance, at delta = 0.1, amplified if the sample is not the population.
    """
    import opendp.prelude as dp

    dp.enable_features("contrib", "honest-but-curious")

    def amplify(measurement: Any) -> Any:
        return dp.c.make_population_amplification(measurement, population_size=population)

    if kind == "numbers":
        domain = dp.vector_domain(dp.atom_domain(T=float, nan=False), size=sample)
        noisy = dp.m.make_gaussian(domain, dp.l2_distance(T=float), scale=scale)
        fixed = dp.c.make_fix_delta(dp.c.make_zCDP_to_approxDP(noisy), delta=0.1)
        return amplify(fixed) if population > sample else fixed
    domain = dp.vector_domain(dp.atom_domain(bounds=(0.0, 1.0)), size=sample)
    noisy = dp.t.make_sum(domain, dp.symmetric_distance()) >> dp.m.then_laplace(scale)
    if kind == "whole":
        return amplify(dp.c.make_composition([noisy] * 4))
    return amplify(noisy) if kind == "one" else dp.c.make_composition([amplify(noisy)] * 4)


def amplified_map(
    kind: str, sample: int, population: int, scale: float, distance: float
) -> np.ndarray:
    """Return the map's epsilon, and delta if there is one, at a distance."""
    whole = distance if kind == "numbers" else int(distance)
    return np.atleast_1d(_amplified(kind, sample, population, scale).map(whole))


def amplified(
    kind: str,
    value: float,
    everybody: bool,
    sample: int,
    population: int,
    scale: float,
    size: int,
    seed: int,
) -> np.ndarray:
    """Return ``size`` releases, each of a new simple sample without replacement.

    The records of the population are 0, except that the first, or all, have ``value``.
    """
    made = _amplified(kind, sample, population, scale)
    people = np.full(population, value) if everybody else np.r_[value, np.zeros(population - 1)]
    rng = np.random.default_rng(seed)
    drawn = (rng.choice(people, sample, replace=False) for _ in range(size))
    return np.array([made([float(x) for x in each]) for each in drawn], dtype=float)
