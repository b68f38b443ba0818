"""Time to the best certified rate of one (step size, momentum), beside cvxpy.

Both sides solve the same inequality to the same accuracy in the rate (1e-6). The peers bisect
on a program written in cvxpy: compiled once with the rate as a parameter (DPP), or written
anew for every rate.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from dpanalysis import theory

SETTINGS = [(1.0, 0.2, 0.5), (0.2, 0.5, 0.5), (0.1, 0.8, 0.01)]


def milliseconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return 1e3 * (time.perf_counter() - start)


class Peer:
    """Bisection on the rate with a margin program in cvxpy."""

    def __init__(self, alpha: float, beta: float, mu: float) -> None:
        import cvxpy as cp

        self.exact = float(theory.heavy_ball_rate(alpha, beta, mu, 1.0))
        lmi = theory.lyapunov_lmi(theory.heavy_ball_system(alpha, beta), mu, 1.0)
        step = np.column_stack([lmi.system.A, lmi.system.B])
        pick = np.eye(3)[:2]
        P = cp.Variable((2, 2), symmetric=True)
        c, c0, margin = cp.Variable(nonneg=True), cp.Variable(nonneg=True), cp.Variable()
        self.square = cp.Parameter(nonneg=True)
        # c (1 - square) and square P stay affine in the parameter: the program is DPP.
        shrunk = self.square * (pick.T @ P @ pick - c * lmi.X2)
        residual = c0 * lmi.X0 + c * (lmi.X1 + lmi.X2) + shrunk - step.T @ P @ step
        self.problem = cp.Problem(
            cp.Maximize(margin),
            [0.5 * (residual + residual.T) >> margin * np.eye(3), P >> 0, cp.trace(P) + c == 1],
        )
        self.margin = margin

    def best_rate(self, fresh: Callable[[], Peer] | None = None) -> float:
        low, high = self.exact**2, 1.0
        while high - low > 1e-6:
            program = self if fresh is None else fresh()
            program.square.value = 0.5 * (low + high)
            program.problem.solve(solver="CLARABEL")
            if program.margin.value > 0.0:
                high = 0.5 * (low + high)
            else:
                low = 0.5 * (low + high)
        return float(np.sqrt(high))


def measure(alpha: float, beta: float, mu: float, quick: bool) -> dict[str, float]:
    """Median milliseconds by name, repetitions interleaved."""
    reused = Peer(alpha, beta, mu)
    ours = theory.heavy_ball_certificate(alpha, beta, mu, 1.0).rate
    assert abs(ours - reused.best_rate()) < 1e-5, "the two sides must solve the same problem"
    calls = {
        "ours": lambda: theory.heavy_ball_certificate(alpha, beta, mu, 1.0),
        "cvxpy, compiled once": reused.best_rate,
        "cvxpy, rebuilt": lambda: reused.best_rate(lambda: Peer(alpha, beta, mu)),
    }
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(3 if quick else 9):
        for name, call in calls.items():
            times[name].append(milliseconds(call))
    return {name: statistics.median(values) for name, values in times.items()}


def run(quick: bool) -> list[dict[str, Any]]:
    rows = []
    for alpha, beta, mu in SETTINGS:
        times = measure(alpha, beta, mu, quick)
        ours = times.pop("ours")
        rows += [
            {
                "work": f"best LMI rate, step {alpha:g}, momentum {beta:g}, mu {mu:g}",
                "ours_ms": ours,
                "peer": peer,
                "peer_ms": value,
                "ratio": value / ours,
                "target": "5 ms (floor 30 ms)",
            }
            for peer, value in times.items()
        ]
    return rows
