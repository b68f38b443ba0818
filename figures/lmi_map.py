"""A map of the heavy ball rates certified by a linear matrix inequality."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dpanalysis import plotting, theory
from dpanalysis.experiments import sweep
from dpanalysis.experiments.records import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLE = "Certified rates of the heavy ball method (Kuru et al. 2022, Proposition 3.4)"

L = 1.0
MU = (0.5, 0.1)
STEP_SIZES = np.round(np.linspace(0.05, 2.5, 50), 2)
MOMENTA = np.round(np.linspace(0.0, 0.98, 50), 2)


def settings(scale: str) -> dict[str, Any]:
    """Return the settings; quick: every second step size and momentum."""
    every = 2 if scale == "quick" else 1
    return {
        "L": L,
        "mu": list(MU),
        "step_sizes": STEP_SIZES[::every].tolist(),
        "momenta": MOMENTA[::every].tolist(),
    }


def certified(step_size: float, momenta: list[float], mu: float) -> dict[str, np.ndarray]:
    """Return the best certified rate at each momentum, NaN where there is none."""
    return {"rate": np.asarray(theory.heavy_ball_certified_rate(step_size, momenta, mu, L))}


def compute(scale: str, *, jobs: int, cache: Path, progress: bool) -> dict[str, Table]:
    """Return certified and exact rates over the grid."""
    chosen = settings(scale)
    step_sizes, momenta = np.array(chosen["step_sizes"]), np.array(chosen["momenta"])
    cells = [
        {"step_size": alpha, "momenta": momenta.tolist(), "mu": mu}
        for mu in MU
        for alpha in step_sizes.tolist()
    ]
    records = sweep(certified, cells, folder=cache, jobs=jobs, progress=progress)
    shape = (len(MU), len(step_sizes), len(momenta))
    mu, alpha, beta = np.broadcast_arrays(
        np.reshape(MU, (-1, 1, 1)), step_sizes[:, None], momenta[None, :]
    )
    exact = [theory.heavy_ball_rate(step_sizes[:, None], momenta, mu, L) for mu in MU]
    columns = {
        "mu": mu,
        "step_size": alpha,
        "momentum": beta,
        "certified_rate": np.reshape([record.result["rate"] for record in records], shape),
        "rate_on_quadratics": np.stack(exact),
    }
    return {"rates": {name: np.ravel(column) for name, column in columns.items()}}


def _panel(table: Table, mu: float) -> dict[str, np.ndarray]:
    """Return the columns at one ``mu``, as matrices of momentum by step size."""
    rows = table["mu"] == mu
    width = np.unique(table["momentum"]).size
    return {name: column[rows].reshape(-1, width).T for name, column in table.items()}


def _slowdown(panel: dict[str, np.ndarray]) -> np.ndarray:
    """Return the certificate's iterations over those on quadratics; NaN without certificate."""
    return np.log(panel["rate_on_quadratics"]) / np.log(panel["certified_rate"])


def _heat(ax: Axes, panel: dict[str, np.ndarray], values: np.ndarray, **look: Any) -> Any:
    ax.set_facecolor("#d9d9d9")
    ax.set_xlim(0.0, STEP_SIZES[-1])
    ax.set_xlabel(r"step size $\alpha L$")
    return ax.pcolormesh(
        panel["step_size"], panel["momentum"], values, shading="nearest", rasterized=True, **look
    )


def draw(tables: dict[str, Table]) -> Figure:
    """Draw a row for each mu: certified rate, rate on quadratics, and iterations compared."""
    figure, axes = plotting.panels(len(MU), 3, width=plotting.PAGE / 3, height=2.1, sharey=True)
    for row, mu in zip(axes, MU, strict=True):
        panel = _panel(tables["rates"], mu)
        exact = np.where(panel["rate_on_quadratics"] < 1.0, panel["rate_on_quadratics"], np.nan)
        look = {"vmin": np.nanmin(exact), "vmax": 1.0, "cmap": "viridis_r"}
        _heat(row[0], panel, panel["certified_rate"], **look)
        rates = _heat(row[1], panel, exact, **look)
        slower = _heat(row[2], panel, _slowdown(panel), vmin=1.0, vmax=4.0, cmap="cividis")
        figure.colorbar(rates, ax=row[:2], label="rate per iteration")
        figure.colorbar(slower, ax=row[2], label="ratio", extend="max")
        best = np.nanargmin(panel["certified_rate"])
        star = panel["step_size"].flat[best], panel["momentum"].flat[best]
        row[0].plot(*star, "*", color="white", mec="black", ms=8, clip_on=False, zorder=5)
        alphas = np.linspace(1e-3, STEP_SIZES[-1], 400)
        row[1].plot(alphas, theory.heavy_ball_optimal_momentum(alphas, mu, L), "k--", lw=1.2)
        row[0].set_ylabel(r"momentum $\beta$")
        row[0].set_title(rf"certified, $\mu/L = {mu:g}$")
        row[1].set_title("exact, quadratics")
        row[2].set_title("iterations, certified / exact")
        row[0].set_ylim(0.0, 1.0)
    return figure


def caption(tables: dict[str, Table], scale: str) -> str:
    """Return the caption."""
    facts, shares, none = [], [], []
    for mu in MU:
        panel = _panel(tables["rates"], mu)
        rate, exact = panel["certified_rate"], panel["rate_on_quadratics"]
        best = np.nanargmin(rate)
        slower = _slowdown(panel)[np.isfinite(rate)]
        certified = np.isfinite(rate).sum() / (exact < 1).sum()
        none.append(f"{1.0 - certified:.0%}")
        shares.append(f"{certified:.0%} of the settings that converge on quadratics at mu = {mu:g}")
        facts.append(
            f"mu = {mu:g}: a certificate at {np.isfinite(rate).sum()} of the {(exact < 1).sum()} "
            f"settings that converge on quadratics, the best {rate.flat[best]:.3f} at step size "
            f"{panel['step_size'].flat[best]:g} and momentum {panel['momentum'].flat[best]:g} "
            f"(on quadratics {exact.min():.3f} at best); at {(slower < 1.01).mean():.0%} of the "
            f"certified settings it implies at most 1% more iterations than a quadratic takes"
        )
    return f"""
Rate per iteration of the heavy ball method over step size and momentum, L = 1. Left: the best
rate that the linear matrix inequality of Proposition 3.4, corrected, certifies for ALL
mu-strongly convex functions with L-Lipschitz gradient (star: the best one). Middle: the exact rate
on quadratics, from (3.18), with the momentum of the best rate for each step size (dashed). Right:
the ratio of the iterations implied by the certificate to those on a quadratic, log(exact) /
log(certified). Grey: no certificate, or divergence. {"; ".join(facts)}. Every certificate is
verified in NumPy; grey on the left does not mean that the method diverges on some function, only
that there is no Lyapunov function of this form.

Privacy: nothing is run on data here; rates are properties of the method.

Differences from the paper: it states the inequality and shows no map. The inequality is used with
the corrections that the documentation of heavy_ball_certificate lists.

Finding: that (3.15) bounds the error where (3.14) has a solution, as printed, is confirmed with
the corrections above: a solution is found for {" and ".join(shares)}. For the other
{" and ".join(none)} none is found, and the proposition says nothing about them.
"""
