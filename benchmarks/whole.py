"""Whole runs, from the budget to the result, beside the same runs without privacy.

Each run is one call: calibration of the noise, the steps, the ledger and the guarantee. The data
of Adult's shape are random numbers with learnable labels; the images are random.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import dpanalysis as dpa
from dpanalysis import (
    ERM,
    BallsInBins,
    Shuffle,
    WithoutReplacement,
    clipping,
    linear_model,
    losses,
    plotting,
)
from dpanalysis.problems import MLP

from .measure import Effort, compare, forget_epsilons, here, peers, thread_counts
from .peers import data
from .shares import spent
from .table import Row
from .targets import WITHOUT

STEP = 0.1
CLIP = clipping.Flat(data.CLIP)
BUDGET = dpa.Budget(1.0, delta=1e-6)
SEARCHES = dpa.Budget(10.0, delta=1e-6)  # of the line search: thirty gradients and searches
TRAINING = dpa.Budget(3.0, delta=1e-6, relation="add_or_remove_one")

shares: dict[str, dict[str, float]] = {}
"""Shares of the time by run and part, kept for the plot; the run's name ends with its time."""


@dataclass(frozen=True)
class Sizes:
    """Sizes of the runs; the features are always those of Adult and MNIST."""

    rows: int = 48_842
    steps: int = 200
    searches: int = 30
    images: int = 60_000
    epochs: int = 5


FULL, QUICK = Sizes(), Sizes(48_842 // data.SHRINK, 50, 10, 6_000, 1)
FEATURES, BATCH = 124, 256


def descent(problem: ERM, steps: int, private: bool) -> Any:
    """Return the result of full-batch gradient descent."""
    method = dpa.methods.GradientDescent(
        STEP, steps, mechanism="gaussian", clipping=CLIP if private else None
    )
    return _run(problem, method, BUDGET if private else None)


def search(problem: ERM, steps: int, private: bool) -> Any:
    """Return the result of descent with a line search, which also clips without privacy."""
    method = dpa.methods.LineSearchGD(
        iterations=steps, clip_norm=data.CLIP, clip_loss=2.0, rho=0.01, epsilon=0.2
    )
    return _run(problem, method, SEARCHES if private else None)


def batches(problem: ERM, steps: int, sampling: Any) -> Any:
    """Return the result of DP-SGD with given noise, so that no accounting is timed."""
    method = dpa.methods.SGD(STEP, steps, sampling, CLIP).with_noise_multiplier(1.0, problem.n)
    return dpa.minimize(problem, method, rng=0, record=())


def training(problem: MLP, epochs: int, private: bool) -> Any:
    """Return the result of DP-SGD on a network."""
    method = dpa.methods.SGD(
        STEP,
        epochs * math.ceil(problem.n / BATCH),
        sampling=dpa.Poisson(BATCH / problem.n),
        clipping=clipping.Flat(1.0) if private else None,
    )
    return _run(problem, method, TRAINING if private else None)


def fit(model: str, X: np.ndarray, y: np.ndarray, epsilon: float = 1.0) -> Any:
    """Return a private estimator, fitted with the system's entropy."""
    forget_epsilons()
    return getattr(linear_model, model)(epsilon=epsilon, bounds=(0.0, 1.0)).fit(X, y)


def _run(problem: Any, method: Any, budget: Any) -> Any:
    forget_epsilons()  # as in a first run
    result = dpa.minimize(problem, method, budget, rng=0, record=())
    if budget is not None:
        result.epsilon()
    return result


def beside_itself(
    key: str,
    case: str,
    run: Callable[[bool], Any],
    others: dict[str, Any],
    spent: Effort,
) -> Iterator[Row]:
    """Compare a private run with the same one without privacy, and with others."""
    ours = {WITHOUT: here(partial(run, False))} | others
    yield from compare(key, case, here(partial(run, True)), ours, spent)


def where(name: str, run: Callable[[], object], turns: int) -> Iterator[Row]:
    """Yield the share of each part of a run, in percent."""
    found = [spent(run) for _ in range(turns)]
    totals = [sum(each.values()) for each in found]
    label = f"{name}\n{1e3 * float(np.median(totals)):,.0f} ms"
    for part in found[0]:
        percent = tuple(100.0 * each[part] / total for each, total in zip(found, totals))
        shares.setdefault(label, {})[part] = float(np.median(percent))
        yield Row(f"where the time goes, {name}", part, percent, "%")


def run(quick: bool) -> Iterator[Row]:
    """Run all comparisons; quick: smaller data and fewer steps."""
    size, spent = (QUICK, Effort(1, 0.0, 1)) if quick else (FULL, Effort(5, 0.0, 1))
    threads = thread_counts()[-1]
    shares.clear()
    X, y, _, _ = data.planted(size.rows, FEATURES)
    problem = ERM(X, y, losses.Logistic())
    shape = f"{size.rows:,} x {FEATURES}"

    plain, private = (descent(problem, size.steps, each) for each in (False, True))
    modules, noise = ("numpy_forms", "jax_forms"), float(private.plan.scales[0])
    data_of = {"n": size.rows, "d": FEATURES}
    arguments = data_of | {"iterations": size.steps, "step": STEP, "noise": noise}

    def exact(name: str) -> np.ndarray | None:
        return plain.w if "not private" in name else None

    gradients = partial(descent, problem, size.steps)
    with peers(modules, "descent", threads, arguments, exact) as others:
        case = f"{size.steps} full-batch steps, {shape}"
        yield from beside_itself("whole run, gradient descent", case, gradients, others, spent)

    searches = partial(search, problem, size.searches)
    made = searches(True)
    tried = made.evaluations["loss"] / problem.n / made.iterations
    case = f"{made.iterations} steps, {tried:.1f} passes over the losses each, {shape}"
    same = {"as many gradient steps": here(partial(descent, problem, made.iterations, True))}
    yield from beside_itself("whole run, line search", case, searches, same, spent)

    whole = size.rows // BATCH
    drawn = WithoutReplacement(BATCH)
    for scheme in (BallsInBins(whole), Shuffle(whole)):
        epochs, same = (here(partial(batches, problem, 2 * whole, s)) for s in (scheme, drawn))
        case = f"2 epochs of {whole} batches, {shape}"
        others = {"WithoutReplacement": same}
        yield from compare(f"whole run, {type(scheme).__name__}", case, epochs, others, spent)

    fits = {model: partial(fit, model, X, y) for model in ("LogisticRegression", "LinearSVC")}
    for model, ours in fits.items():
        yield from fitted(model, ours, shape, X, y, threads, spent)
    few, labels, _, _ = data.planted(300, 20)
    exact = here(lambda: fit("LinearSVC", few, labels, 1e6))
    yield from compare("fit of few rows, LinearSVC", "epsilon = 1e6, 300 x 20", exact, {}, spent)

    network = MLP(*data.images(size.images), (128,), n_classes=10)
    epochs = partial(training, network, size.epochs)
    budget = {"epsilon": TRAINING.epsilon, "delta": TRAINING.delta}
    arguments = {"n": size.images, "batch": BATCH, "epochs": size.epochs, **budget}
    modules = ("opacus_forms", "torch_forms")
    with peers(modules, "training", threads, arguments, lambda name: None) as others:
        case = f"784-128-10, {size.images:,} rows, batch {BATCH}, epochs: {size.epochs}"
        few = Effort(min(spent.turns, 2), 0.0, 1)
        yield from beside_itself("whole run, network", case, epochs, others, few)

    runs: dict[str, Callable[[], object]] = {
        "gradient descent": partial(gradients, True),
        "line search": partial(searches, True),
        "LogisticRegression": fits["LogisticRegression"],
        "LinearSVC": fits["LinearSVC"],
        "network": partial(epochs, True),
    }
    for name, call in runs.items():
        yield from where(name, call, min(spent.turns, 3))


def fitted(
    model: str,
    ours: Callable[[], Any],
    shape: str,
    X: np.ndarray,
    y: np.ndarray,
    threads: int,
    spent: Effort,
) -> Iterator[Row]:
    """Compare a fit with those of peers, in time and accuracy."""
    arguments = {"n": len(X), "d": FEATURES, "model": model}
    scores: dict[str, np.ndarray] = {}
    modules = ("sklearn_forms", "diffprivlib_forms")
    with peers(modules, "fit", threads, arguments, lambda name: None, found=scores) as others:
        yield from compare(
            f"whole fit, {model}", f"epsilon = 1, {shape}", here(ours), others, spent
        )
    fits = [ours() for _ in range(spent.turns)]  # each with noise of its own
    own = tuple(100.0 * float(np.mean(fit.predict(X) == y)) for fit in fits)
    for name, score in scores.items():
        theirs = (100.0 * score.item(),) * len(own)
        yield Row(f"accuracy of that fit, {model}", shape, own, "%", name, theirs)


def plot(folder: Path) -> list[Path]:
    """Draw the shares of the last run into ``whole.png``; return its path."""
    with plotting.style():
        figure, axes = plotting.panels(1, 1, height=0.5 + 0.42 * len(shares))
        axis = axes[0, 0]
        draw(axis, shares)
        figure.legend(loc="outside upper center", ncols=3, handlelength=1.2, columnspacing=1.2)
        path = folder / "whole.png"
        figure.savefig(path)
    return [path]


COLORS = ("blue", "green", "orange", "vermillion")


def draw(axis: Any, found: dict[str, dict[str, float]]) -> None:
    """Draw a stacked bar per run, the first on top."""
    names = list(found)
    left = np.zeros(len(names))
    parts = list(next(iter(found.values()), {}))
    for part, color in zip(parts, [*map(plotting.PALETTE.get, COLORS), "#b8b8b8"], strict=True):
        width = np.array([found[name][part] for name in names])
        axis.barh(names, width, left=left, color=color, label=part, edgecolor="white", lw=0.5)
        for place, (begin, wide) in enumerate(zip(left, width)):
            if wide >= 9.0:
                axis.text(
                    begin + wide / 2,
                    place,
                    f"{wide:.0f}",
                    ha="center",
                    va="center",
                    fontsize=7,
                    color="white" if color == plotting.PALETTE["blue"] else "black",
                )
        left += width
    axis.invert_yaxis()
    axis.grid(axis="y", visible=False)
    axis.tick_params(axis="y", length=0)
    axis.set(xlim=(0, 100), xlabel="percent of the run's time")
