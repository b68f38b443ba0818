"""Best certified rate of one (step size, momentum), beside cvxpy, AutoLyap and PEPit.

The cvxpy programs solve our inequality to our accuracy in the rate (1e-6): compiled once with the
rate as a parameter (DPP), or rebuilt for every rate. AutoLyap bisects to the same width in its
own class of Lyapunov functions, and PEPit finds the worst case of five iterations. These answer
different questions about the same method, so that their results are not compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from dpanalysis import theory

from .measure import compare, effort, here, installed, quietly
from .table import Row

SETTINGS = [(1.0, 0.2, 0.5), (0.2, 0.5, 0.5), (0.1, 0.8, 0.01)]


class Program:
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

    def best_rate(self, fresh: Callable[[], Program] | None = None) -> float:
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


def autolyap(alpha: float, beta: float, mu: float) -> Any:
    from autolyap import IterationIndependent, SolverOptions
    from autolyap.algorithms import HeavyBallMethod
    from autolyap.problemclass import InclusionProblem, SmoothStronglyConvex

    problem = InclusionProblem([SmoothStronglyConvex(mu, 1.0)])
    method = HeavyBallMethod(gamma=alpha, delta=beta)
    search = IterationIndependent.LinearConvergence
    P, p, T, t = search.get_parameters_distance_to_solution(method)
    return search.bisection_search_rho(
        *(problem, method, P, T, p, t),
        S_equals_T=True,
        s_equals_t=True,
        remove_C3=True,
        tol=1e-6,
        solver_options=SolverOptions(backend="cvxpy", cvxpy_solver="CLARABEL"),
        verbosity=0,
    )


def pepit(alpha: float, beta: float, mu: float) -> Any:
    from PEPit import PEP
    from PEPit.functions import SmoothStronglyConvexFunction

    problem = PEP()
    f = problem.declare_function(SmoothStronglyConvexFunction, mu=mu, L=1.0)
    solution = f.stationary_point()
    point = before = problem.set_initial_point()
    problem.set_initial_condition(f(point) - f(solution) <= 1)
    for _ in range(5):
        point, before = point - alpha * f.gradient(point) + beta * (point - before), point
    problem.set_performance_metric(f(point) - f(solution))
    return problem.solve(wrapper="cvxpy", solver="CLARABEL", verbose=0)


def run(quick: bool) -> Iterator[Row]:
    """Compare at three settings."""
    for alpha, beta, mu in SETTINGS:
        reused = Program(alpha, beta, mu)
        ours = theory.heavy_ball_certificate(alpha, beta, mu, 1.0).rate
        assert abs(ours - reused.best_rate()) < 1e-5, "the two sides must solve the same problem"
        calls: dict[str, Callable[[], object]] = {
            "cvxpy, compiled once": reused.best_rate,
            "cvxpy, rebuilt": partial(reused.best_rate, partial(Program, alpha, beta, mu)),
        }
        if installed("autolyap"):
            calls["AutoLyap, bisection"] = partial(quietly, partial(autolyap, alpha, beta, mu))
        if installed("pepit"):
            calls["PEPit, five iterations"] = partial(quietly, partial(pepit, alpha, beta, mu))
        yield from compare(
            "best certified rate",
            f"step {alpha:g}, momentum {beta:g}, mu {mu:g}",
            here(partial(theory.heavy_ball_certificate, alpha, beta, mu, 1.0)),
            {name: here(call) for name, call in calls.items()},
            effort(quick),
        )
