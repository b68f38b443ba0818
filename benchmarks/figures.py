"""A run behind Fig. 3 of Kuru et al. beside the same run in plain NumPy, and the whole grid."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

import dpanalysis as dpa
from figures import _kuru, kuru_fig3

from .measure import Effort, compare, here
from .table import Row

REPLICATES = 20


def ours(problem: dpa.ERM, iterations: int) -> None:
    method = dpa.methods.Nesterov(1.0 / problem.L, iterations, problem.mu)
    dpa.minimize(problem, method, dpa.Budget(1.0), replicates=REPLICATES, rng=0)


def numpy_loop(X: np.ndarray, y: np.ndarray, problem: dpa.ERM, iterations: int) -> None:
    """Run the replicates one after the other with closed-form gradient and objective."""
    rng = np.random.default_rng(0)
    alpha, strength = 1.0 / problem.L, problem.mu
    beta = (1 - np.sqrt(alpha * strength)) / (1 + np.sqrt(alpha * strength))
    scale = 40.0 * iterations / len(y)
    for _ in range(REPLICATES):
        w = previous = np.zeros(X.shape[1])
        for _ in range(iterations):
            z = w + beta * (w - previous)
            weights = -y / (1.0 + np.exp(y * (X @ z)))
            gradient = X.T @ weights / len(y) + strength * z
            previous, w = w, z - alpha * (gradient + rng.laplace(scale=scale, size=len(z)))
            np.logaddexp(0.0, -y * (X @ w)).mean()


def run(quick: bool) -> Iterator[Row]:
    """Time one run against NumPy, then the grid; the quick grid has no target."""
    data = dpa.datasets.kuru_synthetic(rng=0)
    problem = _kuru.load_problem("cube", _kuru.SYNTHETIC_SIZE)
    iterations = 5 if quick else 20
    loop = here(partial(numpy_loop, data.X, data.y, problem, iterations))
    yield from compare(
        "runs with the objective",
        f"{REPLICATES} of {iterations} iterations, n = 100,000, d = 20",
        here(partial(ours, problem, iterations)),
        {"NumPy, run by run": loop},
        Effort(1 if quick else 3, 0.0, 1),
    )
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        scale = "quick" if quick else "paper"
        kuru_fig3.compute(scale, jobs=2, cache=Path(folder), progress=False)
        seconds = time.perf_counter() - start
    key = "quick grid of Fig. 3" if quick else "grid of Fig. 3"
    yield Row(key, "two jobs", (seconds,), unit="s")
