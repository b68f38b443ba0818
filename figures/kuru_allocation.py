"""Noise over the iterations: uniform, optimal, the best possible, and a lower bound."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cvxpy as cp
import numpy as np

from dpanalysis import methods, plotting, theory
from dpanalysis.experiments import sweep
from dpanalysis.experiments.records import Table

from ._clipping import where

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "No Gaussian noise beats the optimal allocation (Kuru et al. 2022, Prop. 4.2, extended)"

SPECTRUM = np.geomspace(0.01, 1.0, 20)  # of the Hessian: condition number 100
SENSITIVITY, MU = 1e-3, 1e-3
METHODS = ("gradient descent", "Nesterov")
SHORT = tuple(range(2, 9))  # iterations for which all sequences of signs are enumerated


def horizons(scale: str) -> list[int]:
    """Return the numbers of iterations."""
    count = 12 if scale == "quick" else 40
    return np.unique(np.geomspace(5, 700, count).astype(int)).tolist()


def settings(scale: str) -> dict[str, Any]:
    """Return the settings of the figure."""
    return {
        "spectrum": SPECTRUM.tolist(),
        "sensitivity": SENSITIVITY,
        "mu": MU,
        "horizons": horizons(scale),
        "short_horizons": list(SHORT),
    }


def certificate(method: str, T: int) -> theory.NoiseAllocation:
    """Return the certified optimal allocation of a method at step size 1 / L."""
    if method == "Nesterov":
        return theory.allocation_certificate(methods.Nesterov(1.0, T, mu=0.01), SPECTRUM)
    return theory.allocation_certificate(methods.GradientDescent(1.0, T), SPECTRUM)


def errors(method: str, T: int) -> dict[str, Any]:
    """Return the errors of uniform and optimal noise and the bound for all noise, over S^2."""
    found = certificate(method, T)
    return {"uniform": found.uniform, "optimal": found.value, "proved": found.lower}


def correlated(method: str, T: int) -> dict[str, Any]:
    """Return the errors of optimal independent noise and of the best noise for linear models.

    The gradients of a linear model's record lie along its features: those of two neighbours differ
    by ``s_t x``, ``|s_t| <= 1``, and ``s' X s`` is largest at a vector of signs. A semidefinite
    program finds X; the error is computed from X alone.
    """
    found = certificate(method, T)
    M = found.response @ found.response.T
    values, vectors = np.linalg.eigh(M)
    root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    signs = np.array([(1, *rest) for rest in itertools.product((-1, 1), repeat=T - 1)])
    X, P = cp.Variable((T, T), symmetric=True), cp.Variable((T, T), symmetric=True)
    cost = cp.sum(cp.multiply(signs @ X, signs), axis=1)
    program = cp.Problem(
        cp.Minimize(cp.trace(P)), [cp.bmat([[P, root], [root, X]]) >> 0, cost <= 1]
    )
    program.solve(solver=cp.CLARABEL)
    inverse = X.value  # of the covariance
    error = np.trace(M @ np.linalg.inv(inverse)) * np.max(((signs @ inverse) * signs).sum(axis=1))
    return {"optimal": found.value, "correlated": min(float(error), found.value)}


def compute(scale: str, *, jobs: int, cache: Path, progress: bool) -> dict[str, Table]:
    """Return the errors over the number of iterations."""
    tables = {}
    for name, run, steps in (
        ("errors", errors, horizons(scale)),
        ("linear_models", correlated, SHORT),
    ):
        cells = [{"method": method, "T": T} for method in METHODS for T in steps]
        records = sweep(run, cells, folder=cache, jobs=jobs, progress=progress)
        columns = {key: [cell[key] for cell in cells] for key in ("method", "T")}
        columns |= {key: [r.result[key] for r in records] for key in records[0].result}
        tables[name] = {key: np.array(column) for key, column in columns.items()}
    return tables


def _floor() -> float:
    """Return the lower bound in the unit of the errors, S^2 / mu^2."""
    return theory.noise_floor(SPECTRUM, SENSITIVITY, MU) / (SENSITIVITY / MU) ** 2


def draw(tables: dict[str, Table]) -> Figure:
    """Draw the errors over the lower bound, and the gain of correlated noise for linear models."""
    figure, axes = plotting.panels(1, 2, width=plotting.PAGE / 2, height=2.6)
    left, right = axes[0]
    floor = _floor()
    for method, color in zip(METHODS, ("C0", "C1")):
        table = where(tables["errors"], method=method)
        left.loglog(table["T"], table["uniform"] / floor, color + "--", label=f"{method}, uniform")
        left.loglog(table["T"], table["optimal"] / floor, color, label=f"{method}, optimal")
        left.loglog(table["T"], table["proved"] / floor, "k.", ms=3)
        short = where(tables["linear_models"], method=method)
        right.plot(
            short["T"], _gain(short), color + ("o-" if color == "C0" else "s--"), label=method
        )
    left.plot([], [], "k.", ms=3, label="no Gaussian noise has less (proved)")
    left.axhline(1.0, color="0.5", lw=1.0, label="no unbiased release has less")
    left.set_ylim(top=2e3)  # room for the legend
    left.set_xlabel("iterations T")
    left.set_ylabel("error by noise / floor")
    left.legend(frameon=False, fontsize="small")
    right.set_xlabel("iterations T")
    right.set_ylabel("correlated noise, linear models:\nless error (%)")
    right.set_ylim(bottom=0.0)
    right.legend(frameon=False)
    return figure


def _gain(table: dict[str, np.ndarray]) -> np.ndarray:
    return 100.0 * (1.0 - table["correlated"] / table["optimal"])


def caption(tables: dict[str, Table], scale: str) -> str:
    """Return the caption."""
    floor, facts = _floor(), []
    for method in METHODS:
        last = {name: column[-1] for name, column in where(tables["errors"], method=method).items()}
        facts.append(
            f"{method}: {last['uniform'] / floor:.2f} times the floor with uniform noise at T = "
            f"{last['T']}, {last['optimal'] / floor:.2f} times with optimal noise"
        )
    gap = np.abs(1.0 - tables["errors"]["proved"] / tables["errors"]["optimal"]).max()
    gains = _gain(tables["linear_models"])
    same = f"to {gap:.0e}" if gap else "in all stored digits"
    return f"""
Error of the last iterate due to Gaussian noise on full batches of a quadratic, at equal privacy,
divided by the floor, the least error of any unbiased release (Hammersley, Chapman, Robbins); 20
eigenvalues from .01 to 1, step size 1/L. {"; ".join(facts)}. The dots are the dual bound on all
Gaussian noise, however correlated over the iterations: it equals the error of the optimal
allocation {same} (claim 001-35). Values below the floor have bias: a short run has not left its
start. Right: for gradients of neighbours that can differ along one direction alone, as in linear
models, the reduction of the error by the best correlated noise, found by a semidefinite program
over all sequences of signs.

Privacy: nothing is run on data here; the errors are those of {MU:g}-GDP noise.

Differences from the paper: it divides independent Laplace noise and has no lower bound. The
theorem and its proof are in the documentation of allocation_certificate.

Finding: that the optimal allocation is the best is confirmed for Gaussian noise, and more: no
correlated Gaussian noise beats it on full batches; for linear models it gains at most
{gains.max():.1f}% for T up to {SHORT[-1]}. Correlated Laplace noise can (claim 001-35).
"""


def report(tables: dict[str, Table]) -> dict[str, str]:
    """Return the sentence shown on the paper's page."""
    floor = _floor()
    ends = []
    for method in METHODS:
        table = where(tables["errors"], method=method)
        ends.append(
            f"{method} {table['uniform'][-1] / floor:.2f} and {table['optimal'][-1] / floor:.2f}"
        )
    gains = _gain(tables["linear_models"])
    return {
        "ends": "Multiples of the floor with uniform and with optimal noise, at 700 iterations and "
        f"condition number 100: {'; '.join(ends)}. For linear models correlated noise reduces the "
        f"error by up to {gains.max():.1f}% (T up to {SHORT[-1]})."
    }
