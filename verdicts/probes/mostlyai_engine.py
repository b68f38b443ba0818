"""Probe of the statistics of mostlyai-engine, which draw from NumPy's global generator."""

from __future__ import annotations

import importlib
import sys
import types
from typing import Any

import numpy as np


def _module(name: str) -> Any:
    """Return a module of the package, without the package's own imports.

    Those include torchvision, which cannot be loaded with a torch without CUDA.
    """
    import mostlyai

    if "mostlyai.engine" not in sys.modules:
        package = types.ModuleType("mostlyai.engine")
        package.__path__ = [f"{folder}/engine" for folder in mostlyai.__path__]
        sys.modules["mostlyai.engine"] = package
    return importlib.import_module(f"mostlyai.engine.{name}")


def non_rare(
    counts: dict[str, int], size: int, seed: int, epsilon: float, public: list[str]
) -> np.ndarray:
    """Return, for ``size`` draws, whether category c is selected; public ones are counted too."""
    select = _module("_common").dp_non_rare
    np.random.seed(seed)  # noqa: NPY002, the generator that the package draws from
    counts = {**dict.fromkeys(public, 0), **counts}
    return np.array([float("c" in select(dict(counts), epsilon)[0]) for _ in range(size)])


def ranges(rows: list[float], size: int, seed: int, epsilon: float, encoding: str) -> np.ndarray:
    """Return the range of the first digit, or the ends of the bins, from ``size`` analyses."""
    import pandas as pd

    numeric = _module("_encoding_types.tabular.numeric")
    kind = _module("domain").ModelEncodingType(encoding)
    np.random.seed(seed)  # noqa: NPY002, the generator that the package draws from
    values, keys = pd.Series(rows, name="value"), pd.Series(range(len(rows)), name="key")
    stats = numeric.analyze_numeric(values, keys, None, kind)
    found = []
    for _ in range(size):
        made: dict[str, Any] = numeric.analyze_reduce_numeric([stats], True, epsilon, kind)
        if "bins" in made:
            found.append((made["bins"][0], made["bins"][-1]))
        else:
            found.append((made["min_digits"]["E0"], made["max_digits"]["E0"]))
    return np.array(found, dtype=float)


def quantiles(rows: list[float], size: int, seed: int, epsilon: float, at: list[float]) -> Any:
    """Return ``size`` draws of quantiles; 0 if none is found."""
    estimate = _module("_common").dp_quantiles
    np.random.seed(seed)  # noqa: NPY002, the generator that the package draws from
    drawn = [estimate(rows, at, epsilon) for _ in range(size)]
    return np.array([[0.0 if each is None else each for each in row] for row in drawn])


def bounds(rows: list[float], size: int, seed: int, epsilon: float) -> np.ndarray:
    """Return ``size`` draws of bounds; (0, 0) if none are found."""
    module = _module("_common")
    np.random.seed(seed)  # noqa: NPY002, the generator that the package draws from
    counts = module.compute_log_histogram(np.array(rows))
    drawn = [module.dp_approx_bounds(counts, epsilon) for _ in range(size)]
    return np.array([(0.0, 0.0) if low is None else (low, up) for low, up in drawn])
