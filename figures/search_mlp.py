"""A network trained with private line search, DP-SGD and DP-Adam: Fig. 5 of Chen and Lee (2020)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import dpanalysis as dpa
from dpanalysis import methods, plotting, privacy
from dpanalysis.experiments import Record, sweep
from dpanalysis.experiments.records import Table
from dpanalysis.privacy.events import Event, Repeated, Sampled
from dpanalysis.privacy.facts import gradient_event

from . import _clipping, _cnn, _search
from ._clipping import group, stack, where
from ._data import made_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "A network trained with private line search (Chen and Lee 2020, Fig. 5)"

CLIP = 3.0  # C_grad and C_obj
SEARCH_SHARE = 0.1  # of an iteration's rho, for the line search
NAMES = ("DP-BLSGD", "DP-BLSGD, fresh batch", "DP-SGD", "DP-Adam", "non-private Adam")
LOOKS = {
    "DP-BLSGD": (plotting.PALETTE["blue"], "-"),
    "DP-BLSGD, fresh batch": (plotting.PALETTE["sky"], "--"),
    "DP-SGD": (plotting.PALETTE["purple"], "-"),
    "DP-Adam": (plotting.PALETTE["orange"], "-"),
    "non-private Adam": ("#777777", "--"),
}
QUANTITIES = ("test_accuracy", "objective", "step_size")


def settings(scale: str) -> dict[str, Any]:
    """Return what the figure is made with."""
    data = _clipping.data_name(scale)
    mnist = data == "mnist"
    return {
        "data": data,
        "n": _clipping.training_rows(data),
        "hidden": 1000 if mnist else _clipping.hidden_units(data),
        "q": 1 / 200 if mnist else 1 / 20,
        "iterations": 2000 if mnist else 200,
        "every": 50 if mnist else 10,
        "noise_multiplier": 1.0,
        "C_grad": CLIP,
        "C_obj": CLIP,
        "alpha": 0.001,
        "beta": 0.8,
        "sgd_step_size": 0.2,
        "L2": 0.001,
        "delta": _search.DELTA,
        "relation": _search.RELATION,
        "seeds": 2 if mnist else 1,
    }


@lru_cache(maxsize=1)
def load_problem(data: str, hidden: int | str) -> Any:
    """Return the network in single precision, pixels in [-1, 1]; ``"cnn"`` for a CNN."""
    if hidden == "cnn":
        return _cnn.load_problem(data, True, _search.REGULARIZER)
    X, y, _, _ = _clipping.load_data(data, True)
    return dpa.problems.MLP(
        X, y, hidden=(hidden,), n_classes=10, regularizer=_search.REGULARIZER, dtype="float32"
    )


def build_method(name: str, chosen: dict[str, Any]) -> methods.Method | methods.AdaptiveMethod:
    """Return a method whose iteration costs rho = 1/(2 sigma**2) before amplification."""
    sampling, iterations = dpa.Poisson(chosen["q"]), chosen["iterations"]
    rho = 0.5 / chosen["noise_multiplier"] ** 2
    rule = dpa.clipping.Flat(CLIP)
    if name.startswith("DP-BLSGD"):
        return methods.LineSearchSGD(
            sampling,
            iterations=iterations,
            clip_norm=CLIP,
            clip_loss=CLIP,
            sufficient_decrease=chosen["alpha"],
            backtrack=chosen["beta"],
            **_search.SEARCH,
            noise="gaussian",
            rho=(1.0 - SEARCH_SHARE) * rho,
            epsilon=math.sqrt(2.0 * SEARCH_SHARE * rho),
            adapt="never",
            smallest_step=True,
            fresh_batch="fresh" in name,
        )
    scale: Any = chosen["noise_multiplier"] * CLIP / (chosen["q"] * chosen["n"])
    noise = np.full(iterations, scale)
    if name == "DP-SGD":
        return methods.SGD(chosen["sgd_step_size"], iterations, sampling, rule, noise=noise)
    if name == "DP-Adam":
        step_size = chosen.get("adam_step_size", 0.001)
        return methods.Adam(step_size, iterations, sampling, rule, noise=noise)
    return methods.Adam(0.001, iterations, sampling, rule)


def events(name: str, chosen: dict[str, Any]) -> list[Event]:
    """Return what an iteration costs, from public facts alone."""
    method = build_method(name, chosen)
    facts = load_problem(chosen["data"], chosen["hidden"]).facts(chosen["relation"])
    if isinstance(method, methods.LineSearchSGD):
        return method.iteration(
            facts, method.prepare(facts, dpa.Budget(1.0, chosen["delta"]), "tightest")
        )
    # The noise is given in units of the clip; what is charged has the rounding of sums added.
    std = chosen["noise_multiplier"] * CLIP / (chosen["q"] * chosen["n"])
    event = gradient_event(facts, method.sampling, "gaussian", std, dpa.clipping.Flat(CLIP))
    return [Sampled(method.sampling, [event], facts.n)]


def epsilons(name: str, chosen: dict[str, Any], iterations: np.ndarray) -> np.ndarray:
    """Return epsilon after so many iterations: nothing adapts, so all events are planned."""
    spent = [
        privacy.epsilon(
            [Repeated(event, int(count)) for event in events(name, chosen)],
            chosen["delta"],
            chosen["relation"],
            "rdp",
        )
        if count
        else 0.0
        for count in iterations
    ]
    return np.array(spent)


def printed_epsilons(chosen: dict[str, Any], iterations: np.ndarray) -> np.ndarray:
    """Return epsilon as the paper has it, the same for all three methods."""
    guard = _search.PrintedAccounting(dpa.Budget(1.0, chosen["delta"], chosen["relation"]))
    cost = guard.costs(events("DP-SGD", chosen)[0])
    conversion = guard.budget.limit - guard.limits
    return np.where(iterations > 0, (np.outer(iterations, cost) + conversion).min(axis=1), 0.0)


def train_cell(name: str, seed: int, chosen: dict[str, Any]) -> dict[str, np.ndarray]:
    """Train once and return what is drawn, by iteration."""
    problem = load_problem(chosen["data"], chosen["hidden"])
    if chosen["hidden"] == "cnn":
        X_test, y_test = _cnn.test_images(chosen["data"], True)
        w0 = _cnn.start(chosen["data"], seed)
    else:
        _, _, X_test, y_test = _clipping.load_data(chosen["data"], True)
        w0 = problem.initial(rng=seed)
    rows = np.random.default_rng(0).permutation(problem.n)[:5000]

    def test_accuracy(problem: Any, w: np.ndarray) -> np.ndarray:
        return problem.accuracy(w, X_test, y_test)

    def objective(problem: Any, w: np.ndarray) -> np.ndarray:
        losses = problem.sums(w, rows=rows, gradient=False).value / len(rows)
        return losses + problem.regularizer.value(w)

    method = build_method(name, chosen)
    budget: dpa.Budget | None = None
    if isinstance(method, methods.LineSearchSGD):
        # A budget that all the iterations fit: their noise is given in numbers.
        needed = epsilons(name, chosen, np.array([chosen["iterations"]]))[0]
        budget = dpa.Budget(1.05 * needed, chosen["delta"], chosen["relation"])
    result = dpa.minimize(
        problem,
        method,
        budget,
        w0=w0,
        rng=seed,
        record=(test_accuracy, objective),
        every=chosen["every"],
    )
    history = result.history
    steps = history.get("step_size", np.full((len(history["iteration"]), 1), np.nan))
    return {
        "iteration": history["iteration"],
        "test_accuracy": history["test_accuracy"][:, 0],
        "objective": history["objective"][:, 0],
        "step_size": steps[:, 0],
        "seconds": np.array(result.seconds),
    }


def compute(scale: str, *, jobs: int, cache: Path, progress: bool) -> dict[str, Table]:
    """Return the curves, means over the seeds, and the epsilons."""
    chosen = settings(scale)
    cells = [(name, seed, chosen) for seed in range(chosen["seeds"]) for name in NAMES]
    records = trained(cells, chosen, jobs=jobs, cache=cache, progress=progress)
    return tables(records, chosen)


def trained(
    runs: Sequence[tuple[str, int, dict[str, Any]]],
    chosen: dict[str, Any],
    *,
    jobs: int,
    cache: Path,
    progress: bool,
) -> list[Record]:
    """Return the records of runs, each by the method's name, the seed and its settings."""
    cells = [
        {
            "name": name,
            "seed": seed,
            "chosen": {key: own[key] for key in own if key not in ("seeds", "L2")},
        }
        for name, seed, own in runs
    ]
    return sweep(train_cell, cells, folder=cache, jobs=jobs, progress=progress, settings=chosen)


def tables(records: Sequence[Record], chosen: dict[str, Any]) -> dict[str, Table]:
    """Return the curves, means over the seeds, and the epsilons."""
    rows = [
        {
            "method": record.parameters["name"],
            **dict(zip(("iteration", *QUANTITIES), values, strict=True)),
        }
        for record in records
        for values in zip(
            *(record.result[key].tolist() for key in ("iteration", *QUANTITIES)), strict=True
        )
    ]
    curves = group(stack(rows), ("method", "iteration"), QUANTITIES)
    iterations = np.unique(curves["iteration"])
    spent: Table = {"iteration": iterations, "as printed": printed_epsilons(chosen, iterations)}
    for name in NAMES[:3]:
        spent[name] = epsilons(name, chosen, iterations)
    return {"curves": curves, "epsilons": spent}


def draw(tables: dict[str, Table]) -> Figure:
    """Draw accuracy, objective, epsilon and step size by iteration."""
    curves, spent = tables["curves"], tables["epsilons"]
    figure, axes = plotting.panels(2, 2, width=plotting.PAGE / 2, height=1.9, sharex=True)
    for name, (color, dashes) in LOOKS.items():
        mine = where(curves, method=name)
        look: dict[str, Any] = {"color": color, "linestyle": dashes, "label": name}
        axes[0, 0].plot(mine["iteration"], mine["test_accuracy"], **look)
        axes[0, 1].plot(mine["iteration"], mine["objective"], **look)
        if name in spent:
            shown = {**look, "label": "DP-SGD"} if name == "DP-SGD" else look
            axes[1, 0].plot(spent["iteration"], spent[name], **shown)
        if name.startswith("DP-BLSGD"):
            axes[1, 1].plot(mine["iteration"][1:], mine["step_size"][1:], **look)
    axes[1, 0].plot(
        spent["iteration"], spent["as printed"], "k:", label="as printed, all three, not private"
    )
    ends = curves["test_accuracy"][curves["iteration"] == curves["iteration"].max()]
    low = float(ends.min())  # where the curves end, or all would look like one
    axes[0, 0].set(ylabel="test accuracy", ylim=(low - (1.0 - low), 1.0))
    axes[0, 1].set(ylabel="objective", yscale="log")
    axes[1, 0].set(ylabel=f"epsilon at delta = {_search.DELTA:g}", xlabel="iteration")
    axes[1, 1].set(ylabel="step size chosen", yscale="log", xlabel="iteration")
    plotting.shared_legend(figure, axes, columns=3)
    return figure


def caption(tables: dict[str, Table], scale: str) -> str:
    """Return the caption."""
    chosen, curves, spent = settings(scale), tables["curves"], tables["epsilons"]
    last = {name: where(curves, method=name) for name in NAMES}
    quarter = chosen["iterations"] // 4

    def at(name: str, iteration: int) -> float:
        return float(where(last[name], iteration=iteration)["test_accuracy"][0])

    accuracies = ", ".join(
        f"{name} {at(name, quarter):.3f} and {at(name, chosen['iterations']):.3f}" for name in NAMES
    )
    ends = ", ".join(f"{name} {spent[name][-1]:.2f}" for name in NAMES[:3])
    small = ""
    if chosen["data"] == "digits":
        small = (
            "The data are scikit-learn's digits, q = 1/20 and 32 hidden units (MNIST with --scale "
            "paper and $DPANALYSIS_DATA: q = 1/200 and 1000). "
        )
    return f"""
An MLP with {chosen["hidden"]} relu units on {made_of(chosen)}, pixels in [-1, 1], L2(.001), by
iteration: accuracy on the test part, objective on 5,000 training rows (or all), epsilon at delta =
1e-8, and the step size that the line search chose. C_grad = C_obj = 3, alpha = .001, beta = .8,
eta = .2 for DP-SGD, Adam by default. Every iteration of the private methods costs rho = 1/2 before
amplification (sigma = 1), 10% of it for the line search, with Gaussian noise. Mean over
{chosen["seeds"]} run(s). Test accuracy after {quarter} and {chosen["iterations"]} iterations:
{accuracies}.

Privacy: epsilon at the end by RDP is {ends}; that of DP-Adam is that of DP-SGD. Nothing adapts
here (where no step is found the next smaller one is taken), so all releases are fixed beforehand
and epsilon may be read at any iteration. Under add-or-remove-one with n public. As printed, all
three spend {spent["as printed"][-1]:.2f} by Lemma 4 and Proposition 1: that is Theorem 3, which is
false, and gradient and search of one batch as if they were one Gaussian. Test accuracies,
objectives and the choice of an iteration are not covered; the step sizes are.

Differences from the paper: {small}Its Fig. 5 is a picture without numbers, and its text gives
neither the noise, the number of iterations, max_it = 20 nor eta_0 = 1. It says that DP-BLSGD
reaches a high accuracy in fewer iterations and then converges to one similar to the others', and
that the chosen steps decrease. Networks for Fashion-MNIST and CIFAR-10 and the CNNs are not
reproduced.
"""
