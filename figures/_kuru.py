"""The experiment behind Figs. 3 and 4 of Kuru et al. (2022): six algorithms on one problem."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import dpanalysis as dpa
from dpanalysis import plotting, theory
from dpanalysis.experiments import Record, sweep, tabulate
from dpanalysis.experiments.records import Table

from ._clipping import stack, where
from ._markdown import markdown
from ._published import FINALS, published_errors

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

EPSILON = 1.0
STRENGTH = 0.02  # lambda ||x||^2 with lambda = .01
SYNTHETIC_SIZE = 100_000
DELTA = 1e-6  # of the (epsilon, delta) guarantee quoted next to the pure one
DATA = {
    "cube": "Rows uniform on [0, 1]^20, labels sign(Xw), one in ten negative.",
    "ball": "Rows uniform in the L1 ball of radius 20, logistic labels, L2 norms clipped to 10.",
    "a9a": "Adult as 123 binary features (a9a), 14 of them set in a row.",
    "breast_cancer": "scikit-learn's breast cancer data, features scaled by declared ranges.",
}
ALGORITHMS = ("DP-GD", "DP-HB", "DP-NAG", "DP-MASG", "DP-NAG-opt", "DP-MASG-opt")
OPTIMAL = ALGORITHMS[4:]
#: T of the published curves.
PUBLISHED_HORIZONS = (100, 200, 500, 1000)


@lru_cache(maxsize=2)
def load_problem(data: str, n: int) -> dpa.ERM:
    """Return the regularized logistic problem of a data scheme, with public row bounds only.

    ``"cube"``: features uniform on [0, 1]^20, labels sign(Xw), one in ten negative.
    ``"ball"``: features uniform in the L1 ball of radius 20, logistic labels; rows are clipped
    to an L2 norm of 10, about the largest norm that this distribution produces. Any other name is
    a data set of :func:`dpanalysis.datasets.load`.
    """
    if data == "cube":
        dataset = dpa.datasets.kuru_synthetic(n, 20, scheme="cube", negative_rate=0.1, rng=0)
        bounds: Any = dataset.row_bound
    elif data == "ball":
        dataset = dpa.datasets.kuru_synthetic(n, 20, scheme="ball", rng=0)
        bounds = (dpa.RowBound(1, 20.0, "check"), dpa.RowBound(2, 10.0, "clip"))
    else:
        dataset = dpa.datasets.load(data)
        bounds = dataset.row_bound
    return dpa.ERM(
        dataset.X, dataset.y, dpa.losses.Logistic(), dpa.regularizers.L2(STRENGTH), bounds
    )


def build_method(
    algorithm: str,
    problem: dpa.ERM,
    m: int,
    c: float,
    iterations: int,
    initial_gap: float | None = None,
) -> dpa.methods.Method:
    """Return one of the six algorithms with the paper's parameters and step size c/L.

    The -opt variants choose the number of iterations from the estimate ``initial_gap``.
    """
    mu, L = problem.mu, problem.L
    step_size = c / L
    options: dict[str, Any] = {}
    if m < problem.n:
        options["sampling"] = dpa.WithoutReplacement(m)
    if algorithm.endswith("-opt"):
        options.update(noise="optimal", choose_iterations=initial_gap)
    family = algorithm.removeprefix("DP-").removesuffix("-opt")
    if family == "GD":
        return dpa.methods.GradientDescent(step_size, iterations, **options)
    if family == "HB":
        momentum = float(theory.nesterov_momentum(step_size, mu))
        return dpa.methods.HeavyBall(step_size, momentum, iterations, **options)
    if family == "NAG":
        return dpa.methods.Nesterov(step_size, iterations, mu, **options)
    return dpa.methods.MultistageNesterov(iterations, mu, L, scale=c, **options)


def run_cell(
    data: str,
    n: int,
    m: int,
    c: float,
    iterations: int,
    algorithm: str,
    start: float,
    initial_gap: float,
    replicates: int,
    every: int,
    seed: int,
    published_noise: bool = False,
) -> dict[str, np.ndarray]:
    """Run one algorithm once and return its mean gap over the replicates.

    ``published_noise`` draws the noise of the authors' public code, which uses b_t as the standard
    deviation instead of the Laplace scale. It is NOT private at the stated epsilon.
    """
    problem = load_problem(data, n)
    method = build_method(algorithm, problem, m, c, iterations, initial_gap)
    budget: dpa.Budget | None = dpa.Budget(EPSILON)
    if published_noise:
        method, budget = with_published_noise(method, problem), None
    result = dpa.minimize(
        problem,
        method,
        budget,
        w0=np.full(problem.d, start),
        replicates=replicates,
        rng=seed,
        record=("gap",),
        every=every,
    )
    gap = result.history["gap"]
    return {
        "iteration": result.history["iteration"],
        "gap": gap.mean(axis=1),
        "spread": gap.std(axis=1, ddof=1) if replicates > 1 else np.zeros(len(gap)),
        "horizon": np.array(result.iterations),
        "epsilon": np.array(result.epsilon(0.0)),
        "epsilon_at_delta": np.array(result.epsilon(DELTA)),
        "accuracy": np.array(problem.accuracy(result.w).mean()),
        "seconds": np.array(result.seconds),
    }


def with_published_noise(method: dpa.methods.Method, problem: dpa.ERM) -> dpa.methods.Method:
    """Return ``method`` with the noise of the authors' code, which is not private.

    Their -opt variants divide epsilon by the weights for full batches, invert (3.5) for the batch
    size, and choose T' for full batches as well; b_t is then used as a standard deviation.
    """
    facts, budget = problem.facts("replace_one"), dpa.Budget(EPSILON)
    if isinstance(method.noise, str) and method.noise == "optimal":
        full = dataclasses.replace(method, sampling=dpa.Full())
        b = full.prepare(facts, budget, "tightest").scales
        S1 = 2.0 * problem.gradient_bound(1)
        m = getattr(method.sampling, "m", problem.n)
        scales = theory.laplace_scales(S1 / (problem.n * b), S1, problem.n, m)
    else:
        scales = method.prepare(facts, budget, "tightest").scales
    return dataclasses.replace(
        method, noise=scales / np.sqrt(2.0), iterations=len(scales), choose_iterations=None
    )


@dataclass(frozen=True)
class Experiment:
    """A figure over a grid: algorithms x step-size constants x numbers of iterations.

    ``batch`` is the fraction m/n, and ``note`` ends the differences from the paper. Quick scale
    keeps the size of the data, which sets the noise, with fewer runs, one step size and one T.
    """

    data: str
    batch: float
    start: float = 10.0
    step_constants: tuple[float, ...] = (0.1, 1.0)
    tried: tuple[int, ...] = PUBLISHED_HORIZONS
    published_noise: bool = False
    note: str = ""

    def horizons(self, scale: str) -> tuple[int, ...]:
        """Return the numbers of iterations T."""
        return (100,) if scale == "quick" else self.tried

    def constants(self, scale: str) -> tuple[float, ...]:
        """Return the step-size constants c."""
        return self.step_constants[-1:] if scale == "quick" else self.step_constants

    def replicates(self, scale: str) -> int:
        """Return the number of independent runs."""
        return 3 if scale == "quick" else 20

    def settings(self, scale: str) -> dict[str, Any]:
        """Return the settings of the figure."""
        problem = load_problem(self.data, SYNTHETIC_SIZE)
        return {
            "data": self.data,
            "n": problem.n,
            "d": problem.d,
            "m": self.batch_size(problem),
            "mu": problem.mu,
            "L": problem.L,
            "record_sensitivity_L1": 2.0 * problem.gradient_bound(1),
            "epsilon": None if self.published_noise else EPSILON,
            "relation": "replace_one",
            "start": self.start,
            "step_size_times_L": list(self.constants(scale)),
            "iterations": list(self.horizons(scale)),
            "replicates": self.replicates(scale),
            "initial_gap_guess": self.initial_gap,
            "published_noise": self.published_noise,
        }

    @property
    def initial_gap(self) -> float:
        """The public estimate of F(w_0) - F*: the paper's, or ln 2, a bound at w_0 = 0."""
        return 10.0 if self.start else math.log(2.0)

    def batch_size(self, problem: dpa.ERM) -> int:
        """Return m."""
        return max(1, round(self.batch * problem.n))

    def cells(self, scale: str) -> list[dict[str, Any]]:
        """Return the parameters of every run."""
        problem = load_problem(self.data, SYNTHETIC_SIZE)
        return [
            {
                "data": self.data,
                "n": problem.n,
                "m": self.batch_size(problem),
                "c": c,
                "iterations": iterations,
                "algorithm": algorithm,
                "start": self.start,
                "initial_gap": self.initial_gap,
                "replicates": self.replicates(scale),
                "every": max(1, iterations // (25 if scale == "quick" else 100)),
                "seed": 0,
                "published_noise": self.published_noise,
            }
            for iterations in reversed(self.horizons(scale))  # the longest first
            for c in self.constants(scale)
            for algorithm in ALGORITHMS
        ]

    def compute(self, scale: str, *, jobs: int, cache: Path, progress: bool) -> dict[str, Table]:
        """Return the curves (one row per record) and a summary (one row per run)."""
        records = sweep(
            run_cell,
            self.cells(scale),
            folder=cache,
            jobs=jobs,
            progress=progress,
            settings=self.settings(scale),
        )
        curves, summary = [], []
        for record in records:
            cell, result = record.parameters, record.result
            key = {name: cell[name] for name in ("algorithm", "m", "c", "iterations")}
            curves.append(Record(key, {k: result[k] for k in ("iteration", "gap", "spread")}))
            summary.append(
                {
                    **key,
                    "iterations_made": int(result["horizon"]),
                    "log10_final_gap": float(np.log10(result["gap"][-1])),
                    "epsilon": float(result["epsilon"]),
                    "epsilon_at_delta_1e-6": float(result["epsilon_at_delta"]),
                    "training_accuracy": float(result["accuracy"]),
                    "seconds": float(result["seconds"]),
                }
            )
        return {"curves": tabulate(curves), "summary": stack(summary), **self.published()}

    def published(self) -> dict[str, Table]:
        """Return the authors' own curves where this figure shows the same experiment."""
        rows = [
            {"algorithm": panel["title"], "c": c, "iterations": curve["T"], "t": t, "log10_gap": y}
            for c in self.step_constants
            if self.is_published
            for panel in published_errors(self.published_batch, c)
            for curve in panel["curves"]
            for t, y in curve["points"]
        ]
        return {"published": stack(rows)} if rows else {}

    @property
    def is_published(self) -> bool:
        """Whether the paper shows this experiment."""
        return self.data == "cube"

    @property
    def is_real(self) -> bool:
        """Whether the data are real; the paper shows no such experiment."""
        return self.data not in ("cube", "ball")

    @property
    def published_batch(self) -> int:
        """The paper's m."""
        return round(self.batch * SYNTHETIC_SIZE)

    def draw(self, tables: dict[str, Table]) -> Figure:
        """Draw one panel for each step-size constant and algorithm; colors and markers are T.

        Each panel has its own horizontal axis because the -opt variants end long before T.
        """
        constants = sorted(set(tables["summary"]["c"].tolist()))
        figure, axes = plotting.panels(
            2 * len(constants), 3, width=plotting.PAGE / 3, height=1.6, sharey=True
        )
        for rows, c in zip(np.split(axes, len(constants)), constants, strict=True):
            finals = FINALS[self.published_batch, c] if self.is_published else {}
            for ax, algorithm in zip(rows.flat, ALGORITHMS, strict=True):
                _draw_panel(ax, tables, algorithm, c, finals.get(algorithm, ()))
        for ax in axes[:, 0]:
            ax.set_ylabel("mean of F(w) - F*")
        for ax in axes[-1]:
            ax.set_xlabel("iteration")
        plotting.shared_legend(figure, axes, columns=3)
        return figure

    def compared(self, tables: dict[str, Table]) -> str:
        """Return the distance of our final gaps from the published ones, "" if there are none."""
        if not self.is_published:
            return ""
        differences = self.ends(tables)
        return (
            f"Ours minus published, log10 of the final gap, over {len(differences)} runs: "
            f"{differences.mean():+.3f} on average, from {differences.min():+.2f} to "
            f"{differences.max():+.2f}."
        )

    def ends(self, tables: dict[str, Table]) -> np.ndarray:
        """Return log10 of our final gaps over the published ones, (runs,)."""
        summary, differences = tables["summary"], []
        for algorithm, c, T, gap in zip(
            *(summary[name] for name in ("algorithm", "c", "iterations", "log10_final_gap")),
            strict=True,
        ):
            ends = FINALS[self.published_batch, float(c)][str(algorithm)]
            differences.append(gap - ends[PUBLISHED_HORIZONS.index(int(T))][1])
        return np.array(differences)

    def best(self, tables: dict[str, Table]) -> str:
        """Return a sentence with each algorithm's best final gap over T and step size."""
        summary = tables["summary"]
        parts = []
        for algorithm in ALGORITHMS:
            row = self._best_row(summary, algorithm)
            parts.append(
                f"{algorithm} {summary['log10_final_gap'][row]:.2f} (c = {summary['c'][row]:g}, "
                f"T = {summary['iterations_made'][row]})"
            )
        return "Best log10 of the mean final gap: " + ", ".join(parts) + "."

    def report(self, tables: dict[str, Table]) -> dict[str, str]:
        """Return the best final gaps as a table, and the epsilons of the runs."""
        summary = tables["summary"]
        rows = [self._best_row(summary, algorithm) for algorithm in ALGORITHMS]
        names = [algorithm.removeprefix("DP-") for algorithm in ALGORITHMS]
        gaps = [f"{summary['log10_final_gap'][row]:.2f}" for row in rows]
        ends = [f"{summary['iterations_made'][row]} ({summary['c'][row]:g})" for row in rows]
        lines = [["log10 of the mean final gap", *gaps], ["after iterations (c)", *ends]]
        found = dict(zip(names, gaps, strict=True))
        return {
            "best": markdown(["", *names], lines),
            "epsilon": self._spent(summary),
            "headline": (
                "- **Accelerated methods** (Kuru et al. 2022), full batches, epsilon "
                f"{summary['epsilon'].max():g}: log10 of the final error: {found['GD']} for "
                f"gradient descent, {found['HB']} for heavy ball, {found['NAG']} for Nesterov's "
                f"method, {found['NAG-opt']} with optimal division, each at the step size and "
                f"number of iterations of least true (non-private) error. {self.verdicts(tables)}, "
                "on their data (001-27)."
            ),
        }

    @staticmethod
    def _grid(summary: Table) -> str:
        """Return the numbers of iterations that were tried."""
        least, most = summary["iterations"].min(), summary["iterations"].max()
        return f"T = {least} to {most}" if least < most else f"T = {least}"

    def _ends(self, summary: Table) -> str:
        """Return which of the algorithms are best at an end of the T tried."""
        tried, made = summary["iterations"], summary["iterations_made"]
        best = {name: made[self._best_row(summary, name)] for name in ALGORITHMS}
        found = ""
        for end in (tried.min(), tried.max()):
            there = [name for name, at in best.items() if at == end]
            if there and tried.min() < tried.max():
                found += f"; {end} is best for {_listed(there)}"
        return found

    def verdicts(self, tables: dict[str, Table]) -> str:
        """Return the verdicts on the paper's comparisons, each algorithm at its best."""
        faster = self._beats(tables, ("DP-HB", "DP-NAG"), ("DP-GD",))
        best = self._beats(tables, OPTIMAL, ("DP-GD", "DP-HB", "DP-NAG", "DP-MASG"))
        if self.is_real:
            return self._on_real_data(tables["summary"], faster, best)
        words = {1: "confirmed", 0: "open", -1: "refuted"}
        return (
            f"That heavy ball and Nesterov's method beat gradient descent is {words[faster]}; that "
            f"the optimal division is best of all is {words[best]}"
        )

    def _on_real_data(self, summary: Table, faster: int, best: int) -> str:
        """Return the comparison on real data, and who is best at an end of the grid."""
        tried, c = summary["iterations"], summary["c"].min()
        rows = {algorithm: self._best_row(summary, algorithm) for algorithm in ALGORITHMS}
        ends = [
            algorithm
            for algorithm, row in rows.items()
            if summary["c"][row] == c
            or (algorithm not in OPTIMAL and tried[row] in (tried.min(), tried.max()))
        ]
        chance = "end, beyond chance, neither all below nor all above"
        words = {1: "end below", 0: chance, -1: "end above"}
        text = (
            "The paper claims nothing on real data. At the best c and T of this grid, heavy ball "
            f"and Nesterov's method {words[faster]} gradient descent, and the optimal divisions "
            f"{words[best]} all others"
        )
        if ends:
            return f"{text}. That is open for {_listed(ends)}: best at an end of the grid"
        return f"{text}; the best are inside the grid"

    def _beats(
        self, tables: dict[str, Table], ours: tuple[str, ...], theirs: tuple[str, ...]
    ) -> int:
        """Return 1 if each of ours ends below each of theirs, each at its best, beyond chance.

        Beyond chance means two standard errors of a difference of logarithms; -1 if each ends
        above, else 0.
        """
        signs = set()
        for one in ours:
            for other in theirs:
                (a, u), (b, v) = (self._best_end(tables, name) for name in (one, other))
                signs.add(int(np.sign(b - a)) if abs(a - b) > 2.0 * math.hypot(u, v) else 0)
        return signs.pop() if len(signs) == 1 else 0

    def _best_end(self, tables: dict[str, Table], algorithm: str) -> tuple[float, float]:
        """Return log10 of an algorithm's least final gap, and its standard error."""
        summary = tables["summary"]
        row = self._best_row(summary, algorithm)
        run = {key: summary[key][row] for key in ("algorithm", "c", "iterations")}
        mine = where(tables["curves"], **run)
        gap, spread = (float(mine[name][-1]) for name in ("gap", "spread"))
        runs = self.replicates("paper")
        return float(summary["log10_final_gap"][row]), spread / (gap * math.log(10.0) * runs**0.5)

    @staticmethod
    def _best_row(summary: Table, algorithm: str) -> int:
        rows = np.flatnonzero(summary["algorithm"] == algorithm)
        return int(rows[summary["log10_final_gap"][rows].argmin()])

    @staticmethod
    def _spent(summary: Table) -> str:
        pure, at_delta = summary["epsilon"], summary["epsilon_at_delta_1e-6"]
        return (
            f"Every run spent a pure epsilon of {pure.min():.6f} to {pure.max():.6f} by its own "
            f"ledger; at delta = 1e-6 the same runs satisfy epsilon from {at_delta.min():.3f} to "
            f"{at_delta.max():.3f}."
        )

    def privacy(self, tables: dict[str, Table]) -> str:
        """Return the privacy statement of the runs."""
        summary = tables["summary"]
        claimed = summary["epsilon"]
        if self.published_noise:
            return (
                "Privacy: the published noise is NOT private at the stated epsilon = 1. The "
                f"ledgers of these runs say epsilon from {claimed.min():.2f} to "
                f"{claimed.max():.2f} (pure, replace-one, basic composition)."
            )
        return (
            f"Privacy: every run is ({EPSILON:g}, 0)-differentially private under replace-one by "
            f"basic composition of exact amplified losses. {self._spent(summary)} The guarantee "
            "holds for one run; the plotted gaps are computed from the data and are not private."
        )

    def differences(self, scale: str) -> str:
        """Return the differences from the paper and their reasons."""
        if self.published_noise:
            return self.note
        remarks = [
            "the noise is the one required by the stated epsilon, with Laplace SCALE b_t (the "
            "authors' code uses b_t as the standard deviation)",
            "L is the public bound R2^2/4 + 2 lambda instead of an eigenvalue of the private data",
            "T' minimizes the bound for the batch size and the variance of that noise; the "
            "authors' code uses half of the variance and full batches (see kuru_horizons)",
        ]
        if self.batch < 1.0:
            remarks.append(
                "like the authors' code, and unlike Remark 4.2, which applies for S1/(b m) << 1, "
                "the -opt variants divide epsilon first and then invert (3.5)"
            )
            remarks.append(
                "in the bound that chooses T' the sampling error is that of gradients of L2 norm "
                "up to R2, which is less than (3.13), the one in kuru_horizons"
            )
        if scale == "quick":
            (runs, most), (all_runs, longest) = (
                (self.replicates(each), max(self.horizons(each))) for each in ("quick", "paper")
            )
            remarks.append(
                f"{runs} runs, one c, T = {most} (the paper: {all_runs}, T up to {longest})"
            )
        return f"Differences from the paper: {'; '.join(remarks)}. {self.note}".strip()

    def caption(self, tables: dict[str, Table], scale: str) -> str:
        """Return the caption: what is shown, the privacy statement, the differences."""
        chosen = self.settings(scale)
        what = (
            "Six algorithms on regularized logistic regression: mean of F(w_t) - F* over "
            f"{chosen['replicates']} runs (line) and plus or minus one standard deviation (band). "
            f"{DATA[self.data]} n = {chosen['n']}, d = {chosen['d']}, batches of "
            f"m = {chosen['m']}, mu = {chosen['mu']:g}, L = {chosen['L']:g}, "
            f"S1 = {chosen['record_sensitivity_L1']:g}, "
            f"all coordinates of w_0 are {chosen['start']:g}, step size c/L. The -opt variants "
            "divide the budget optimally and choose T' <= T by the bound with E_0 = "
            f"{self.initial_gap:.3g}; for T with the same T' the runs are identical, and one curve "
            f"is drawn. {self.best(tables)} Their c and T minimize the true error, which a private "
            f"choice could not use, among {self._grid(tables['summary'])}"
            f"{self._ends(tables['summary'])}."
        )
        if self.is_published:
            dotted = "Dotted: the authors' own curves where available; crosses"
            what += (
                f" {dotted if 'published' in tables else 'Crosses'}: the ends of their curves, "
                f"with their noise, on another draw of the labels. {self.compared(tables)}"
            )
        parts = [what, self.privacy(tables), self.differences(scale), self.finding(tables)]
        return "\n\n".join(filter(None, parts))

    def finding(self, tables: dict[str, Table]) -> str:
        """Return the last sentence of the caption, for private noise only."""
        if self.published_noise:
            return ""
        return f"Finding: {self.verdicts(tables)[0].lower()}{self.verdicts(tables)[1:]}."


def _listed(names: Sequence[str]) -> str:
    """Return names joined by commas and "and"."""
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


#: Of the curves of the numbers of iterations that were tried.
MARKERS = ("o", "s", "^", "D", "v", "P", "X")


def _draw_panel(ax: Axes, tables: dict[str, Table], algorithm: str, c: float, finals: Any) -> None:
    """Draw one algorithm at one step size; ``finals`` are where the published curves end."""
    panel = {"algorithm": algorithm, "c": c}
    curves, summary = where(tables["curves"], **panel), where(tables["summary"], **panel)
    horizons = sorted(set(tables["curves"]["iterations"].tolist()))
    made: dict[int, list[int]] = {}
    for iterations in horizons:
        row = where(summary, iterations=iterations)
        made.setdefault(int(row["iterations_made"][0]), []).append(iterations)
    for k, iterations in enumerate(horizons):
        color, marker = list(plotting.PALETTE.values())[k], MARKERS[k]
        look: dict[str, Any] = {"color": color, "marker": marker, "ms": 3.0, "mfc": "white"}
        ax.plot([], [], label=f"T = {iterations}", **look)  # also if its run equals another's
        if not any(same[0] == iterations for same in made.values()):
            continue
        rows = where(curves, iterations=iterations)
        t, gap, spread = (rows[name] for name in ("iteration", "gap", "spread"))
        ax.plot(t, gap, markevery=[len(t) - 1], **look)
        low = np.maximum(gap - spread, 0.1 * gap)
        ax.fill_between(t, low, gap + spread, color=color, alpha=0.18, linewidth=0)
    if "published" in tables:
        for k, iterations in enumerate(horizons):
            points = where(tables["published"], iterations=iterations, **panel)
            look = {"color": list(plotting.PALETTE.values())[k], "linestyle": ":", "marker": ""}
            x, y = points["t"], 10.0 ** points["log10_gap"]
            plotting.reference(ax, x, y, label="_published", **look)
        ax.plot([], [], ":", color="#555555", lw=0.8, label="published (not private)")
    for k, (t, log10_gap) in enumerate(finals):
        if PUBLISHED_HORIZONS[k] in horizons:
            color = list(plotting.PALETTE.values())[horizons.index(PUBLISHED_HORIZONS[k])]
            ax.plot(t, 10.0**log10_gap, "x", color=color, ms=3.5, mew=0.9, zorder=4)
    if finals:
        ax.plot([], [], "x", color="#555555", ms=3.5, mew=0.9, label="end of a published curve")
    ax.set_yscale("log")
    ends = [t for k, (t, _) in enumerate(finals) if PUBLISHED_HORIZONS[k] in horizons]
    ax.set_xlim(0.0, 1.05 * max([*ends, int(curves["iteration"].max())]))
    if algorithm.endswith("-opt"):
        chosen = [T for T, same in made.items() for _ in same]
        said = "T' = " + ", ".join(map(str, chosen))
        ax.text(0.97, 0.95, said, transform=ax.transAxes, ha="right", va="top", fontsize="x-small")
    ax.set_title(f"{algorithm}, c = {c:g}", x=0.0, ha="left")
