"""Time to divide a budget over iterations with m < n, and its growth with their number.

The paper calls the problem intractable and no library offers it; the peer is SciPy's general
solver (SLSQP) at a size that it can manage. A second row shows the target size, beside a
single vectorised evaluation of the objective: the least that any method must spend.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import minimize

from dpanalysis import theory

N, M, EPSILON = 100_000, 1000, 1.0


def milliseconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return 1e3 * (time.perf_counter() - start)


def cost(weights: np.ndarray, shares: np.ndarray) -> float:
    return float(weights @ theory.laplace_scales(shares, 1.0, N, M) ** 2)


def slsqp(weights: np.ndarray) -> np.ndarray:
    T = weights.size
    result = minimize(
        lambda e: np.log(cost(weights, np.maximum(e, 1e-9))),
        np.full(T, EPSILON / T),
        constraints={"type": "eq", "fun": lambda e: e.sum() - EPSILON},
        bounds=[(1e-6 * EPSILON / T, EPSILON)] * T,
        options={"ftol": 1e-10, "maxiter": 500},
    )
    return np.asarray(result.x)


def measure(weights: np.ndarray, call: Callable[[np.ndarray], object], quick: bool) -> list[float]:
    """Median milliseconds of ours and of the peer, repetitions interleaved."""
    ours, peers = [], []
    for _ in range(3 if quick else 9):
        ours.append(milliseconds(lambda: theory.allocate_epsilon(weights, EPSILON, N, M)))
        peers.append(milliseconds(lambda: call(weights)))
    return [statistics.median(ours), statistics.median(peers)]


def run(quick: bool) -> list[dict[str, Any]]:
    rows = []
    for T, peer, call in [
        (100, "SciPy SLSQP", slsqp),
        (10_000, "one evaluation of the objective", lambda w: cost(w, np.full(w.size, 1e-4))),
        (100_000, "one evaluation of the objective", lambda w: cost(w, np.full(w.size, 1e-5))),
    ]:
        _, weights = theory.nesterov_weights(T, 1.0, 0.01 * (100 / T) ** 2, 1.0)
        if peer == "SciPy SLSQP":
            best = cost(weights, theory.allocate_epsilon(weights, EPSILON, N, M))
            assert best <= cost(weights, slsqp(weights)) * (1 + 1e-6)
        ours_ms, peer_ms = measure(weights, call, quick)
        rows.append(
            {
                "work": f"budget over {T} iterations, m = {M} of n = {N}",
                "ours_ms": ours_ms,
                "peer": peer,
                "peer_ms": peer_ms,
                "ratio": peer_ms / ours_ms,
                "target": "50 ms at 10 000 (floor 200 ms)" if T == 10_000 else "",
            }
        )
    return rows
