"""Kuru et al. (2022), Fig. 1: the heavy ball method with noise on a quadratic."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dpanalysis import plotting, theory
from dpanalysis.experiments import Record, sweep, tabulate
from dpanalysis.experiments.records import Table

from ._published import published_panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLE = "Heavy ball on a quadratic (Kuru et al. 2022, Fig. 1)"

L = 1.0
MU = (0.5, 0.1)  # as stated in the text; as drawn in the authors' figure
STEP_SIZES = (0.1, 0.2, 0.5, 0.8, 1.0)
SHOWN = (0.1, 0.5, 1.0)  # the three columns of the paper
MOMENTA = (0.0, 0.3, 0.7)  # and the one with the best rate
NOISE = (1e-4, 1e-2)  # c_w; the standard deviation of each coordinate's noise is T c_w
DISTANCE = 5.0  # ||x_0 - x*||^2, so that ||xi_0 - xi*||^2 = 10 as in the authors' figure
HORIZON = 250
GRID = np.round(np.arange(0.0, 1.0, 0.01), 2)
COARSE = GRID[::2]
CERTIFIED: list[float] = np.round(np.arange(0.0, 0.95, 0.05), 2).tolist()


def settings(scale: str) -> dict[str, Any]:
    """Return the settings, the same at both scales."""
    return {
        "L": L,
        "mu": list(MU),
        "d": 2,
        "step_sizes": list(STEP_SIZES),
        "momenta": [*MOMENTA, "best rate"],
        "c_w": list(NOISE),
        "noise_standard_deviation": "T c_w in each coordinate",
        "initial_error_squared": DISTANCE,
        "horizon": HORIZON,
        "certified_momenta": CERTIFIED,
    }


def certified_rate(step_size: float, momentum: float, mu: float, L: float) -> dict[str, float]:
    """Return the best certified rate for all smooth strongly convex functions, NaN if none."""
    return {"rate": float(theory.heavy_ball_certified_rate(step_size, momentum, mu, L))}


def nesterov_polynomial_rate(
    step_size: float, momentum: np.ndarray, mu: float, L: float
) -> np.ndarray:
    """Return the rate of the authors' figure: the largest root of Nesterov's polynomial."""
    rates = []
    for eigenvalue in (mu, L):
        shrink = 1.0 - step_size * eigenvalue
        p, q = (1.0 + momentum) * shrink, momentum * shrink
        root = np.sqrt(np.asarray(p**2 - 4.0 * q, dtype=complex))
        rates.append(np.maximum(abs(p + root), abs(p - root)) / 2.0)
    return np.maximum(*rates)


def _stack(parts: list[dict[str, Any]]) -> Table:
    """Concatenate parts, broadcasting scalars to columns."""
    return tabulate([Record({}, part) for part in parts])


def _rates() -> Table:
    return _stack(
        [
            {
                "mu": mu,
                "step_size": alpha,
                "momentum": GRID,
                "rate": theory.heavy_ball_rate(alpha, GRID, mu, L),
                "nesterov_polynomial": nesterov_polynomial_rate(alpha, GRID, mu, L),
            }
            for mu in MU
            for alpha in STEP_SIZES
        ]
    )


def _errors() -> Table:
    """Return the error after T iterations when the noise grows with T: exact and bounds."""
    t = np.arange(1, HORIZON + 1)
    start = np.sqrt(DISTANCE / 2.0)
    parts = []
    for mu in MU:
        eigenvalues = (mu, L)
        for alpha in SHOWN:
            best = float(theory.heavy_ball_optimal_momentum(alpha, mu, L))
            for beta in (*MOMENTA, best):
                # All errors are affine in the variance: evaluate at variance 0 and at unit noise.
                quiet, unit = (
                    np.stack(
                        [
                            theory.heavy_ball_gap(eigenvalues, alpha, beta, s, start, HORIZON)[1:],
                            theory.heavy_ball_bound(eigenvalues, alpha, beta, s, start, t),
                            theory.heavy_ball_bound(
                                eigenvalues, alpha, beta, s, start, t, printed=True
                            ),
                        ]
                    )
                    for s in (0.0, 1.0)
                )
                for c_w in NOISE:
                    exact, bound, printed = quiet + (t * c_w) ** 2 * (unit - quiet)
                    parts.append(
                        {
                            "mu": mu,
                            "step_size": alpha,
                            "momentum": beta,
                            "best_rate": beta == best,
                            "c_w": c_w,
                            "T": t,
                            "error": exact,
                            "bound": bound,
                            "printed_bound": printed,
                        }
                    )
    return _stack(parts)


def _best_horizons() -> Table:
    """Return, for each momentum, the least bound over T <= HORIZON, and its T.

    The exact error is unsuitable: it oscillates and can be close to zero at some T by chance.
    """
    t = np.arange(1, HORIZON + 1)
    start = np.sqrt(DISTANCE / 2.0)
    parts = []
    for mu in MU:
        for alpha in STEP_SIZES:
            floor = theory.heavy_ball_stationary_gap((mu, L), alpha, COARSE, 1.0)
            quiet = np.stack(
                [theory.heavy_ball_bound((mu, L), alpha, beta, 0.0, start, t) for beta in COARSE]
            )
            for c_w in NOISE:
                bound = quiet + (t * c_w) ** 2 * np.reshape(floor, (-1, 1))
                parts.append(
                    {
                        "mu": mu,
                        "step_size": alpha,
                        "c_w": c_w,
                        "momentum": COARSE,
                        "bound": bound.min(axis=1),
                        "T": t[bound.argmin(axis=1)],
                    }
                )
    return _stack(parts)


def published() -> dict[str, Table]:
    """Return the points of the authors' figure, if available."""
    tables = {}
    panels = published_panels("quad_rho_vs_beta.eps")
    if panels:
        curves = [curve for panel in panels for curve in panel["curves"]]
        tables["published_rates"] = _stack(
            [
                {
                    "step_size": curve["alpha"],
                    "momentum": np.array(curve["points"])[:, 0],
                    "rate": np.array(curve["points"])[:, 1],
                }
                for curve in curves
            ]
        )
        curves = [
            curve
            for regime in ("less", "more")
            for panel in published_panels(f"quadratic_error_vs_iter_{regime}_noisy_regime.eps")
            for curve in panel["curves"]
        ]
        tables["published_bounds"] = _stack(
            [
                {
                    "step_size": curve["alpha"],
                    "c_w": curve["c_w"],
                    "momentum": curve["beta"],
                    "best_rate": curve["beta_label"] == "beta_opt",
                    "T": np.array(curve["points"])[:, 0].astype(int),
                    "bound": np.exp(np.array(curve["points"])[:, 1]),
                }
                for curve in curves
            ]
        )
    return tables


def compute(scale: str, *, jobs: int, cache: Path, progress: bool) -> dict[str, Table]:
    """Return rates, certified rates, errors, best horizons, and published points."""
    cells = [
        {"step_size": alpha, "momentum": beta, "mu": mu, "L": L}
        for mu in MU
        for alpha in STEP_SIZES
        for beta in CERTIFIED
    ]
    certified = sweep(certified_rate, cells, folder=cache, jobs=jobs, progress=progress)
    return {
        "rates": _rates(),
        "certified_rates": tabulate(certified),
        "errors": _errors(),
        "best_horizons": _best_horizons(),
        **published(),
    }


def _where(table: Table, **values: Any) -> Table:
    """Return the rows in which the named columns have the given values."""
    chosen = np.all([np.isclose(table[name], value) for name, value in values.items()], axis=0)
    return {name: column[chosen] for name, column in table.items()}


def _color(position: int) -> str:
    """Return the color of a step size."""
    return list(plotting.PALETTE.values())[position]


#: Markers of the step sizes; colors and markers of the momenta, distinct from the step sizes'.
ALPHA_MARKERS = ("o", "s", "^", "D", "v")
BETA_LOOKS = (("#56B4E9", "<"), ("#8F8F2B", ">"), ("#8C564B", "P"), ("#000000", "*"))


def _draw_rates(ax: Axes, tables: dict[str, Table], mu: float) -> None:
    for k, alpha in enumerate(STEP_SIZES):
        exact = _where(tables["rates"], mu=mu, step_size=alpha)
        proved = _where(tables["certified_rates"], mu=mu, step_size=alpha)
        look: dict[str, Any] = {"marker": ALPHA_MARKERS[k], "ms": 3.0, "markevery": (4 + 3 * k, 20)}
        label = rf"$\alpha = {alpha:g}/L$"
        ax.plot(exact["momentum"], exact["rate"], color=_color(k), label=label, **look)
        ax.plot(proved["momentum"], proved["rate"], "x", ms=3, mew=0.8, color=_color(k))
    ax.plot([], [], "x", color="#555555", ms=3, label="certified (LMI)")
    ax.set_title(rf"rate (3.18), $\mu = {mu:g}$", x=0.0, ha="left")
    ax.set_xlabel(r"momentum $\beta$")
    ax.set_ylabel(r"rate per iteration")
    ax.set_ylim(None, 1.0)


def _draw_published_rates(ax: Axes, tables: dict[str, Table]) -> None:
    for alpha in SHOWN:
        color = _color(STEP_SIZES.index(alpha))
        rows = _where(tables["rates"], mu=MU[1], step_size=alpha)
        ax.plot(rows["momentum"], rows["rate"], color=color, label="_(3.18)")
        ax.plot(rows["momentum"], rows["nesterov_polynomial"], "--", color=color, lw=1.1)
        if "published_rates" in tables:
            points = _where(tables["published_rates"], step_size=alpha)
            plotting.reference(
                ax,
                points["momentum"],
                points["rate"],
                label="_published",
                color=color,
                linewidth=0,
                marker="o",
                markerfacecolor="white",
                zorder=4,
            )
    ax.plot([], [], "--", color="#555555", lw=1.1, label="Nesterov's polynomial")
    if "published_rates" in tables:
        ax.plot([], [], "o", color="#555555", mfc="white", ms=3.5, label="the repository")
    ax.set_title(rf"repository, $\mu = {MU[1]:g}$", x=0.0, ha="left")
    ax.set_xlabel(r"momentum $\beta$")
    ax.set_ylabel(r"rate per iteration")
    ax.set_ylim(0.53, 1.0)


def _draw_errors(ax: Axes, tables: dict[str, Table], mu: float, alpha: float, c_w: float) -> None:
    """Draw exact errors with both bounds; at the authors' mu also their curves."""
    rows = _where(tables["errors"], mu=mu, step_size=alpha, c_w=c_w)
    for beta in sorted(set(rows["momentum"])):
        mine = _where(rows, momentum=beta)
        best = bool(mine["best_rate"][0])
        color, marker = BETA_LOOKS[-1 if best else MOMENTA.index(beta)]
        name = "best rate" if best else f"{beta:g}"
        look: dict[str, Any] = {"color": color, "marker": marker, "ms": 3.0, "markevery": (25, 75)}
        ax.plot(mine["T"], mine["error"], label=rf"$\beta$: {name}", **look)
        ax.plot(mine["T"], mine["bound"], "--", color=color, lw=0.9)
        ax.plot(mine["T"], mine["printed_bound"], ":", color=color, lw=0.9)
        if mu == MU[1] and "published_bounds" in tables:
            points = _where(tables["published_bounds"], step_size=alpha, c_w=c_w, best_rate=best)
            if not best:
                points = _where(points, momentum=beta)
            look = {"label": "_published", "color": color, "markersize": 1.5, "linewidth": 0.4}
            plotting.reference(ax, points["T"], points["bound"], **look)
    for dashes, label in (("-", "exact"), ("--", "sharper bound"), (":", "(3.17), C_t = t")):
        ax.plot([], [], dashes, color="#555555", lw=0.9, label=label)
    if mu == MU[1] and "published_bounds" in tables:
        ax.plot([], [], ".-", color="#555555", lw=0.4, ms=1.5, label="the authors' repository")
    ax.set_yscale("log")
    power = round(np.log10(c_w))
    told = rf"\mu = {mu:g}" if mu == MU[1] else rf"\alpha = {alpha:g}/L"
    ax.set_title(rf"${told}$, $c_w = 10^{{{power}}}$", x=0.0, ha="left", fontsize="small")
    ax.set_xlabel("iterations $T$")


def _draw_momentum(ax: Axes, tables: dict[str, Table], c_w: float) -> None:
    for alpha in SHOWN:
        color = _color(STEP_SIZES.index(alpha))
        rows = _where(tables["best_horizons"], mu=MU[1], step_size=alpha, c_w=c_w)
        marker = ALPHA_MARKERS[STEP_SIZES.index(alpha)]
        look: dict[str, Any] = {"color": color, "marker": marker, "ms": 3.0, "markevery": (3, 10)}
        ax.plot(rows["momentum"], rows["bound"], label=rf"$\alpha = {alpha:g}/L$", **look)
        best = float(theory.heavy_ball_optimal_momentum(alpha, MU[1], L))
        there = np.interp(best, rows["momentum"], rows["bound"])
        ax.plot(best, there, "o", color=color, mec="black", ms=5, zorder=4)
        least = rows["bound"].argmin()
        star = rows["momentum"][least], rows["bound"][least]
        ax.plot(*star, "*", color=color, mec="black", mew=0.6, ms=8, zorder=5)
    ax.plot([], [], "o", color="white", mec="black", ms=5, label="best rate")
    ax.plot([], [], "*", color="white", mec="black", mew=0.6, ms=8, label="least bound")
    ax.set_yscale("log")
    ax.set_title(rf"best $T$, $c_w = 10^{{{round(np.log10(c_w))}}}$", x=0.0, ha="left")
    ax.set_xlabel(r"momentum $\beta$")


def _draw_best_momentum(ax: Axes, tables: dict[str, Table]) -> None:
    alphas = np.linspace(0.05, 1.0, 96)
    for k, mu in enumerate(MU):
        best = theory.heavy_ball_optimal_momentum(alphas, mu, L)
        ax.plot(alphas, best, "-" if k else "--", color="#555555", label=rf"best, $\mu = {mu:g}$")
        for c_w, marker in zip(NOISE, "v^", strict=True):
            least = []
            for alpha in STEP_SIZES:
                rows = _where(tables["best_horizons"], mu=mu, step_size=alpha, c_w=c_w)
                least.append(rows["momentum"][rows["bound"].argmin()])
            fill = "#555555" if k else "white"
            ax.plot(STEP_SIZES, least, marker, color="#555555", mfc=fill, ms=4)
    for c_w, marker in zip(NOISE, "v^", strict=True):
        power = round(np.log10(c_w))
        ax.plot(
            [], [], marker, color="#555555", mfc="white", label=rf"least, $c_w = 10^{{{power}}}$"
        )
    ax.set_title("best momentum", x=0.0, ha="left")
    ax.set_xlabel(r"step size $\alpha L$")
    ax.set_ylabel(r"momentum $\beta$")
    ax.set_ylim(0, 1)


def draw(tables: dict[str, Table]) -> Figure:
    """Draw rates; error against T for two noise levels; error against momentum.

    The last column of the middle rows uses the mu of the authors' figure, the others that of their
    text.
    """
    figure, axes = plotting.panels(4, 4, width=plotting.PAGE / 4, height=1.75)
    _draw_rates(axes[0, 0], tables, MU[0])
    _draw_rates(axes[0, 1], tables, MU[1])
    _draw_published_rates(axes[0, 2], tables)
    for row, c_w in zip(axes[1:3], NOISE, strict=True):
        for ax, alpha in zip(row, SHOWN, strict=False):
            _draw_errors(ax, tables, MU[0], alpha, c_w)
        _draw_errors(row[3], tables, MU[1], SHOWN[1], c_w)
        row[0].set_ylabel(rf"$E[F(x_T) - F^*]$, $\mu = {MU[0]:g}$")
    for ax, c_w in zip(axes[3, :2], NOISE, strict=True):
        _draw_momentum(ax, tables, c_w)
    axes[3, 0].set_ylabel(r"bound on $E[F(x_T) - F^*]$")
    _draw_best_momentum(axes[3, 2], tables)
    # The free axes hold the legends: of the rates at the top, of the middle rows at the bottom.
    _legend_in(axes[0, 3], [*axes[0, 1:3], axes[3, 0]])
    _legend_in(axes[3, 3], [axes[1, 3], axes[3, 2]])
    panels = [ax for ax in axes.flat if ax.axison]  # legends get no letter
    for letter, ax in zip("abcdefghijklmnop", panels, strict=False):
        ax.set_title(f"({letter})", loc="left", x=-0.42 / (plotting.PAGE / 4), fontweight="bold")
    return figure


def _legend_in(place: Axes, panels: list[Axes]) -> None:
    """Use an axes of the grid as the common legend of some panels."""
    entries = {}
    for ax in panels:
        handles, labels = ax.get_legend_handles_labels()
        for handle, label in zip(handles, labels, strict=True):
            entries.setdefault(label, handle)
    place.set_title("", loc="left")
    place.set_axis_off()
    place.legend(entries.values(), entries, loc="center left", fontsize="small")


def caption(tables: dict[str, Table], scale: str) -> str:
    """Return the caption."""
    compared = ""
    if "published_rates" in tables:
        points = tables["published_rates"]
        worst = {"nesterov": 0.0, "heavy ball": 0.0}
        for alpha, beta, rate in zip(*points.values(), strict=True):
            row = _where(tables["rates"], mu=MU[1], step_size=alpha, momentum=abs(beta))
            gaps = abs(row["nesterov_polynomial"][0] - rate), abs(row["rate"][0] - rate)
            worst = {key: max(worst[key], gap) for key, gap in zip(worst, gaps, strict=True)}
        compared = (
            f" At the published points Nesterov's polynomial is off by at most "
            f"{worst['nesterov']:.0e}, (3.18) by up to {worst['heavy ball']:.2f}."
        )
    wrong = theory.nesterov_momentum(0.5 / L, MU[1])
    right = theory.heavy_ball_optimal_momentum(0.5 / L, MU[1], L)
    errors = tables["errors"]
    loose = float((errors["printed_bound"] / errors["error"]).min())
    cost = 1.0
    for mu in MU:
        for alpha in STEP_SIZES:
            best = theory.heavy_ball_optimal_momentum(alpha, mu, L)
            for c_w in NOISE:
                rows = _where(tables["best_horizons"], mu=mu, step_size=alpha, c_w=c_w)
                at_best = np.interp(best, rows["momentum"], rows["bound"])
                cost = max(cost, float(at_best / rows["bound"].min()))
    return f"""
Heavy ball on a quadratic with eigenvalues mu and L = 1 (d = 2). Top: rate per iteration against
momentum, from (3.18), with the rate that a linear matrix inequality certifies for ALL functions
with the same mu and L (crosses; where there is none, none was found). Step sizes and momenta have
different colors and markers. Middle rows, at the mu = 0.5
of the text and, last column, at the mu = 0.1 of the figure in the authors' repository (0.5/L):
error after T iterations when the noise has standard deviation T c_w in each coordinate, the growth
with T that a fixed budget forces; exact error (solid), the sharper bound of 001-7 (dashed), (3.17)
with the paper's C_t = t (dotted), the repository's curves (thin). Bottom, mu = 0.1: the sharper
bound at the best T <= {HORIZON} against momentum, with the momentum of the best rate (disc) and of
the least bound (star); and both kinds of best momentum against the step size (filled: mu = 0.1).

Privacy: nothing is run on data here. Noise of standard deviation T c_w is what T Laplace
releases of sensitivity S1 need under a pure total budget epsilon (delta = 0, replace-one,
full batch, basic composition) if c_w = sqrt(2) S1 / (n epsilon).

Differences from the paper: the text states mu = 0.5 and rate (3.18); the figure in the authors'
repository, of July 2020 (our text of the paper has no figures), follows
the largest root of NESTEROV'S polynomial at mu = 0.1, and its bound mixes that rate, and the
momentum that is best for it ({wrong:.3f} at 0.5/L, for (3.18) it is {right:.3f}), with heavy ball's
noise term, so that the thin curves deviate from the dotted ones. Both rates and both mu are in the
tables.{compared} (3.17) holds for some C_t of order t (001-7), and its noise term is at least twice
the exact one; with C_t = t, which the paper takes "for simplicity", it is {loose:.1f} times the
exact error or more in these panels. The paper also writes the noise variance of the example as
(T/(n epsilon))^2 for S1 = 1, half the variance of Laplace noise. Its observation that the momentum
of the best rate performs well holds: its bound at the best T is at most {cost:.1f} times the least,
over all step sizes, both mu and both noise levels.

Finding: that the momentum of the best rate is a good choice under noise is
{"confirmed" if cost <= 2.0 else "refuted"} (at most {cost:.1f} times the least bound); the printed
rates are not those of the repository's figure, which shows Nesterov's.
"""
