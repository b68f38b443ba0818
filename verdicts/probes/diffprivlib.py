"""Probe of diffprivlib, whose random states are NumPy's, seeded by the caller."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np


def mechanism(name: str, value: Any, size: int, seed: int, **arguments: Any) -> np.ndarray:
    """Return ``size`` outputs of a mechanism; shape (size,)."""
    from diffprivlib import mechanisms

    made = getattr(mechanisms, name)(random_state=np.random.RandomState(seed), **arguments)
    return np.array([made.randomise(value) for _ in range(size)], dtype=float)


def variance(name: str, **arguments: Any) -> float:
    """Return the variance that a mechanism reports at 0."""
    from diffprivlib import mechanisms

    return float(getattr(mechanisms, name)(**arguments).variance(0))


def tool(name: str, values: np.ndarray, size: int, seed: int, **arguments: Any) -> np.ndarray:
    """Return ``size`` outputs of a tool, each flattened."""
    from diffprivlib import tools

    state, arguments = np.random.RandomState(seed), _tuples(arguments)
    function = getattr(tools, name)
    answers = (function(values, random_state=state, **arguments) for _ in range(size))
    if name == "histogram":
        answers = (counts for counts, _ in answers)
    return np.array([np.ravel(np.asarray(answer, dtype=float)) for answer in answers])


def fits(
    name: str, X: np.ndarray, y: np.ndarray, size: int, seed: int, read: list[str], **arguments: Any
) -> np.ndarray:
    """Return the attributes ``read`` of ``size`` fitted models; shape (size, numbers)."""
    from diffprivlib import models

    state, arguments = np.random.RandomState(seed), _tuples(arguments)
    rows = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the solver: with noise there may be no optimum
        for _ in range(size):
            model = getattr(models, name)(random_state=state, **arguments).fit(X, y)
            rows.append(np.concatenate([np.ravel(getattr(model, key)) for key in read]))
    return np.array(rows, dtype=float)


def _tuples(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return arguments with bounds as tuples, which messages turn into lists."""
    return {
        key: tuple(value) if isinstance(value, list) else value for key, value in arguments.items()
    }
