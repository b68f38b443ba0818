"""Growth in n, d, R and T over two decades: slopes of log time against log size.

A slope of 1 is linear. The sizes take turns, and the slope is that of the least squares line
through the logarithms of the medians. Each curve begins at a size for which the overhead of a call
does not dominate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import dpanalysis as dpa
from dpanalysis import ERM, clipping, losses, theory

from .accounting import filter_and_ledger
from .measure import Effort, by_turns, here
from .peers import data
from .table import Row

CLIP = clipping.Flat(data.CLIP)
curves: dict[str, dict[str, tuple[list[int], np.ndarray]]] = {}
"""Sizes and milliseconds by panel and curve, kept for the plot."""


def slope(sizes: Any, times: Any) -> float:
    """Return the slope of the least squares line through the logarithms."""
    x, t = np.asarray(sizes, float), np.asarray(times, float)
    if x.size < 2 or x.shape != t.shape or not (np.all(x > 0) and np.all(t > 0)):
        raise ValueError(f"sizes and times must be positive and two at least, got {x}, {t}")
    return float(np.polyfit(np.log(x), np.log(t), 1)[0])


def decades(smallest: int, points: int) -> list[int]:
    """Return sizes over two decades, evenly spaced on the logarithmic scale."""
    return [round(smallest * 100 ** (k / (points - 1))) for k in range(points)]


def gradient(n: int, d: int, R: int = 1) -> Callable[[], object]:
    X, y, _, _ = data.dense(n, d)
    problem, W = ERM(X, y, losses.Logistic()), data.iterates(R, d)
    return partial(problem.sums, W, clipping=CLIP)


def sparse_gradient(n: int) -> Callable[[], object]:
    X, y, w, _ = data.csr(n, 54, 12)
    return partial(ERM(X, y, losses.Logistic()).sums, w, clipping=CLIP)


def minibatch(n: int) -> Callable[[], object]:
    X, y, w, _ = data.dense(n, 20)
    problem, sampling = ERM(X, y, losses.Logistic()), dpa.Poisson(0.05)
    random = np.random.default_rng(0)
    return lambda: problem.sums(w, sampling.draw(n, random), clipping=CLIP)


def optimizer(T: int) -> Callable[[], object]:
    data_set = dpa.datasets.kuru_synthetic(2000, rng=0)
    problem = data_set.problem(losses.Logistic(), dpa.regularizers.L2(0.05))
    method = dpa.methods.Nesterov(1.0 / problem.L, T, problem.mu)
    return partial(dpa.minimize, problem, method, dpa.Budget(1.0), rng=0)


def allocation(T: int) -> Callable[[], object]:
    _, weights = theory.nesterov_weights(T, 1.0, 0.01 * (100 / T) ** 2, 1.0)
    return partial(theory.allocate_epsilon, weights, 1.0, 100_000, 1000)


# Panel, curve, function that builds the work from a size, smallest size (and that of a quick run).
CURVES: list[tuple[str, str, Callable[[int], Callable[[], object]], int, int]] = [
    ("n", "dense gradient, d = 20", partial(gradient, d=20), 20_000, 5_000),
    ("n", "CSR gradient, 12 of 54", sparse_gradient, 10_000, 5_000),
    ("n", "Poisson batch, 5% of n", minibatch, 20_000, 5_000),
    ("d", "dense gradient, n = 10,000", partial(gradient, 10_000), 20, 10),
    ("R", "replicates, 10,000 x 20", partial(gradient, 10_000, 20), 4, 2),
    ("T", "Nesterov, 2,000 x 20", optimizer, 50, 10),
    ("T", "budget, m < n", allocation, 1_000, 1_000),
    ("T", "filter and ledger", lambda T: partial(filter_and_ledger, T), 1_000, 300),
]


def run(quick: bool) -> Iterator[Row]:
    """Measure every curve; quick: fewer and smaller sizes."""
    spent = Effort(2, 0.0, 2) if quick else Effort(5, 0.1, 5)
    curves.clear()
    for panel, name, make, full, small in CURVES:
        sizes = decades(small if quick else full, 4 if quick else 7)
        times = by_turns([here(make(size)) for size in sizes], spent)
        curves.setdefault(panel, {})[name] = (sizes, np.median(times, axis=0))
        fitted = slope(sizes, np.median(times, axis=0))
        case = f"{name}, {panel} from {sizes[0]:,} to {sizes[-1]:,}"
        yield Row(f"growth in {panel}", case, (fitted,), unit="")


def plot(folder: Path) -> list[Path]:
    """Draw the curves of the last run into ``growth.png``; return its path."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 4, figsize=(11, 3.6), layout="constrained")
    for panel, axis in zip("ndRT", axes):
        for name, (sizes, times) in curves.get(panel, {}).items():
            axis.loglog(sizes, times, "o-", ms=3, lw=1, label=f"{name}: {slope(sizes, times):.2f}")
        axis.set(xlabel=panel, title=f"growth in {panel}")
        axis.legend(
            fontsize=7,
            title="slope",
            title_fontsize=7,
            loc="upper center",
            bbox_to_anchor=(0.5, -0.2),
        )
    axes[0].set_ylabel("milliseconds")
    path = folder / "growth.png"
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return [path]
