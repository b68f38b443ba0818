"""The runs behind the figures of Chen and Lee (2020): data, methods, the printed accounting."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, TypeAlias

import numpy as np
from scipy import special, stats

import dpanalysis as dpa
from dpanalysis import methods, plotting
from dpanalysis.experiments.loop import Loop, Recording
from dpanalysis.experiments.records import Table
from dpanalysis.papers.line_search.printed import printed_above_threshold
from dpanalysis.privacy import rdp_gaussian
from dpanalysis.privacy.accounting.accountant import order_of_most
from dpanalysis.privacy.budget import Filter
from dpanalysis.privacy.events import AboveThreshold, Event, Gaussian, Sampled

from . import _ledger
from ._clipping import group, stack, where
from ._data import choose, load_part, rows_of
from ._spent import epsilon_spent

Array: TypeAlias = np.ndarray

DELTA = 1e-8
RELATION = "add_or_remove_one"
REGULARIZER = dpa.regularizers.L2(0.001)
FOLDS = 10
# eta_0 and max_it, which the paper does not state; with 40 the budget hardly ever grows.
SEARCH: dict[str, Any] = {"step_size": 1.0, "max_queries": 20}
# Usually the budget ends a run, not this limit: rivals are compared at what they actually spent.
MANY: dict[str, Any] = {"iterations": 100_000}
LOSSES = {"logistic": "logistic regression", "svm": "SVM"}
DATA = {
    "adult": "Adult (a9a, training and test part, with an intercept: 48,842 x 124)",
    "adult-10000": "10,000 rows of Adult (a9a, with an intercept 124 columns)",
    "bank": "Bank Marketing (one-hot with an intercept: 45,211 x 52)",
    "census": "a synthetic census (10,000 rows of 8 categories, with an intercept 44 columns)",
}

#: Functions whose results are scalars: the ledger stores them completely.
WHOLE = ("run_cell",)

# ------------------------------------------------------------------ data


def data_names(scale: str) -> list[str]:
    """Return the names of a figure's data: the paper's if available, or a part of one."""
    first = choose("adult", "census", scale)
    return [first, "bank"] if first == "adult" else [first]


@lru_cache(maxsize=1)
def load_folds(data: str) -> list[dpa.datasets.Dataset]:
    """Return the ten folds of a data set."""
    if data == "census":
        whole = synthetic_census(10_000)
    elif data.startswith("adult"):
        whole = dpa.datasets.load("a9a").pooled()
        X, y = load_part(whole, rows_of(data))
        whole = dataclasses.replace(whole, X=X, y=y)
    else:
        whole = dpa.datasets.load(data)
    return list(whole.with_intercept().folds(FOLDS, rng=0))


def synthetic_census(n: int) -> dpa.datasets.Dataset:
    """Return n people with 8 categorical attributes, about a quarter with a high income.

    Categories are uneven, labels logistic in the indicators: a small substitute for Adult.
    """
    random = np.random.default_rng(0)
    blocks, score = [], np.zeros(n)
    for size in (2, 2, 3, 4, 5, 7, 9, 11):
        codes = random.choice(size, n, p=random.dirichlet(np.full(size, 2.0)))
        blocks.append(np.eye(size)[codes])
        score += 1.2 * random.normal(size=size)[codes]
    X = np.hstack(blocks)
    y = np.where(score - np.quantile(score, 0.76) + random.logistic(size=n) > 0.0, 1.0, -1.0)
    bounds = (dpa.RowBound(1, 8.0), dpa.RowBound(2, math.sqrt(8.0)))
    return dpa.datasets.Dataset(X, y, None, None, "census", bounds)


# ------------------------------------------------------------------ folds and seeds


def repetitions(name: str, scale: str, **paper: int) -> dict[str, int]:
    """Return the numbers of folds and seeds of a figure, by ``folds`` and ``seeds`` of ``paper``.

    At paper scale they come from $DPANALYSIS_FOLDS and $DPANALYSIS_SEEDS, else from the stored
    results, which are thereby reproduced, else from the paper; at quick scale they are 1.
    """
    if scale == "quick":
        return dict.fromkeys(list(paper)[:1], 1)
    about = _ledger.RESULTS / name / "about.json"
    stored = json.loads(about.read_text(encoding="utf-8"))["settings"] if about.is_file() else {}
    counts = {}
    for key, most in paper.items():
        asked = os.environ.get(f"DPANALYSIS_{key.upper()}")
        count = int(asked) if asked else int(stored.get(key, 1 if stored else most))
        if not 1 <= count <= most:
            raise ValueError(f"$DPANALYSIS_{key.upper()} must be from 1 to {most}, got {count}")
        if count > 1 or key in stored:
            counts[key] = count
    return counts


def seeds_of(cell: dict[str, Any], chosen: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a cell for each seed; the first one has no seed in its parameters."""
    return [cell, *({**cell, "seed": seed} for seed in range(1, chosen.get("seeds", 1)))]


def by_fold(rows: Table, keys: Sequence[str], values: Sequence[str]) -> Table:
    """Return means over the seeds of each fold, to separate fold variation from noise."""
    return {
        name: column
        for name, column in group(rows, (*keys, "fold"), values).items()
        if not name.endswith("_std") and name != "runs"
    }


def over_folds(rows: Table, keys: Sequence[str], values: Sequence[str]) -> Table:
    """Return means over the folds, each the mean of its seeds, and their number ("runs")."""
    return group(by_fold(rows, keys, values), keys, values)


def paired(rows: Table, keys: Sequence[str], which: str, ours: str) -> Table:
    """Return the lead in accuracy of ``ours`` over each other: 95% intervals over shared folds.

    A fold's data, and so its difficulty, are the same for all, so that differences vary less than
    accuracies; the t interval of these differences ignores that training parts overlap. With fewer
    than three folds low and high are infinite, since two differences may agree to the last digit
    and give an interval of length 0. Empty if there is no other method.
    """
    means, found = by_fold(rows, (*keys, which), ("accuracy",)), []
    for combination in dict.fromkeys(zip(*(means[key].tolist() for key in keys), strict=True)):
        mine = where(means, **dict(zip(keys, combination, strict=True)))
        base = where(mine, **{which: ours})
        for other in dict.fromkeys(mine[which].tolist()):
            rival = where(mine, **{which: other})
            _, here, there = np.intersect1d(base["fold"], rival["fold"], return_indices=True)
            if other == ours or not len(here):
                continue
            lead = base["accuracy"][here] - rival["accuracy"][there]
            half = math.inf
            if len(lead) > 2:
                deviation = float(lead.std(ddof=1)) / math.sqrt(len(lead))
                half = float(stats.t.ppf(0.975, len(lead) - 1)) * deviation
            found.append(
                {
                    **dict(zip(keys, combination, strict=True)),
                    which: other,
                    "lead": float(lead.mean()),
                    "low": float(lead.mean()) - half,
                    "high": float(lead.mean()) + half,
                    "folds": len(lead),
                }
            )
    return stack(found) if found else {}


def repeated(chosen: Mapping[str, Any]) -> str:
    """Return a description of the folds and seeds of a figure."""
    folds, seeds = chosen["folds"], chosen.get("seeds", 1)
    noise = f"{seeds} seeds each" if seeds > 1 else "one seed each"
    if folds == 1:
        return f"one of ten folds, {noise}" if seeds > 1 else "one of ten folds, one seed"
    return f"{'' if folds == FOLDS else f'{folds} of '}ten folds, {noise}"


# ------------------------------------------------------------------ methods


@dataclass(frozen=True)
class Task:
    """The setting of a method: problem, budget, q, and the cost of a first search."""

    problem: dpa.ERM
    labels: Array
    budget: dpa.Budget
    rate: float
    share: int  # a line search costs epsilon/share at first, a gradient half its square


@dataclass(frozen=True)
class Entry:
    """A curve: how to build its method and how to draw it.

    ``printed`` runs it under :class:`PrintedAccounting`. A curve that is not ``private`` does not
    depend on epsilon. A method with a ``width`` fits the SVM by the Huberized hinge loss, the
    others by the hinge loss.
    """

    make: Callable[[Task], Any]
    color: str
    dashes: Any = "-"
    printed: bool = False
    width: float | None = None
    private: bool = True


def line_search(task: Task, times: float = 1.0, **options: Any) -> methods.LineSearchSGD:
    """Return DP-BLSGD with the paper's settings and first searches ``times`` as expensive."""
    each = times * task.budget.limit / task.share
    options = {"epsilon": each, "rho": 0.5 * each**2, **SEARCH, **MANY, **options}
    return methods.LineSearchSGD(dpa.Poisson(task.rate), **options)


def full_search(task: Task) -> methods.LineSearchGD:
    """Return DP-BLGD with the paper's settings."""
    each = task.budget.limit / task.share
    return methods.LineSearchGD(epsilon=each, rho=0.5 * each**2, **SEARCH, **MANY)


def dp_sgd(task: Task) -> methods.SGD:
    """Return DP-SGD with the paper's q and C, and 100 steps of size 1."""
    return methods.SGD(1.0, 100, dpa.Poisson(task.rate), dpa.clipping.Flat(3.0))


def adaptive(task: Task, clip_loss: float = 1.0) -> methods.AdaptiveGD:
    """Return DP-AGD with the settings of its authors' code."""
    return methods.AdaptiveGD(clip_loss=clip_loss)


def output(task: Task, kind: str = "permuted_sgd") -> methods.OutputPerturbation:
    """Return output perturbation: 10 passes in 50 batches, or 200 full steps."""
    passes = {"permuted_sgd": 10, "gradient_descent": 200}[kind]
    return methods.OutputPerturbation(kind, passes=passes, batches=50)


def objective(task: Task) -> methods.ObjectivePerturbation:
    """Return objective perturbation with default settings."""
    return methods.ObjectivePerturbation()


def genetic(task: Task) -> methods.GeneticSearch:
    """Return PrivGene with losses clamped at 3: at 1 it always predicts the larger class."""
    return methods.GeneticSearch(clip_loss=3.0)


def solution(task: Task) -> Array:
    """Return the non-private minimizer, by L-BFGS and Newton's method."""
    return task.problem.solve()


def majority(task: Task) -> Array:
    """Return intercept-only weights that predict the larger class; not private."""
    w = np.zeros(task.problem.d)
    w[-1] = np.sign(task.labels.sum())
    return w


BLUE, SKY, RED, ORANGE, PURPLE, GREEN, BLACK = (
    plotting.PALETTE[name]
    for name in ("blue", "sky", "vermillion", "orange", "purple", "green", "black")
)
GREY, OLIVE = "#777777", "#8F8F2B"
DASHED, DOTTED, MIXED = (0, (5, 1.5)), (0, (1, 1.2)), (0, (5, 1, 1, 1))
WIDTH = 0.5  # of the Huberized hinge loss, as in the paper
AC = partial(line_search, clip_decay=0.05)

#: All curves of Figs. 3 and 4 by name, one line each; names of variants contain a comma.
METHODS: dict[str, Entry] = {
    "DP-BLSGD": Entry(line_search, BLUE),
    "DP-BLSGD-AC": Entry(AC, SKY),
    "DP-BLGD": Entry(full_search, RED),
    "DP-AGD": Entry(adaptive, ORANGE),
    "DP-AGD (C_obj = 3)": Entry(partial(adaptive, clip_loss=3.0), ORANGE, DASHED),
    "DP-SGD": Entry(dp_sgd, PURPLE),
    "OutPert-RSGD": Entry(output, GREEN, width=WIDTH),
    "OutPert-GD": Entry(partial(output, kind="gradient_descent"), GREEN, DASHED, width=WIDTH),
    "ObjPert": Entry(objective, BLACK, width=WIDTH),
    "PrivGene": Entry(genetic, OLIVE),
    "non-private": Entry(solution, GREY, "--", width=0.01, private=False),
    "majority": Entry(majority, GREY, ":", private=False),
    "DP-BLSGD, fresh batch": Entry(partial(line_search, fresh_batch=True), BLUE, DASHED),
    "DP-BLSGD-AC, fresh batch": Entry(partial(AC, fresh_batch=True), SKY, DASHED),
    "DP-BLSGD, as printed": Entry(line_search, BLUE, DOTTED, printed=True),
    "DP-BLSGD-AC, as printed": Entry(AC, SKY, DOTTED, printed=True),
    "DP-BLGD, as printed": Entry(full_search, RED, DOTTED, printed=True),
    "DP-BLSGD, fivefold first cost": Entry(partial(line_search, times=5.0), BLUE, MIXED),
}


@lru_cache(maxsize=2)
def load_problem(data: str, loss: str, width: float | None, fold: int) -> dpa.ERM:
    """Return the problem on a fold's training part; an SVM without a width has the hinge loss."""
    chosen: Any = dpa.losses.Logistic()
    if loss == "svm":
        chosen = dpa.losses.Hinge() if width is None else dpa.losses.HuberizedHinge(width)
    return load_folds(data)[fold].problem(chosen, REGULARIZER)


def run_cell(
    data: str,
    loss: str,
    method: str,
    epsilon: float,
    fold: int,
    share: int,
    rate: float = 0.1,
    options: Mapping[str, Any] | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """Train once and return the accuracy on the held-out fold and the cost of the run.

    The objective is the figure's: that of the hinge loss even where its Huberized version was
    minimized.
    """
    entry = METHODS[method]
    judge = load_problem(data, loss, None, fold)
    fitted = load_problem(data, loss, entry.width if loss == "svm" else None, fold)
    held_out = load_folds(data)[fold]
    budget = dpa.Budget(epsilon, DELTA, RELATION)
    made = entry.make(Task(fitted, held_out.y, budget, rate, share))
    rng = fold + FOLDS * seed  # independent noise for each fold and seed
    found: dict[str, Any] = {"iterations": 0, "gradients": 0, "losses": 0, "seconds": 0.0}
    spent = math.inf
    if isinstance(made, np.ndarray):
        w = made
    else:
        made = dataclasses.replace(made, **(options or {}))
        if entry.printed:
            guard = PrintedAccounting(budget)
            result = run_as_printed(fitted, made, guard, rng)
            spent = guard.epsilon()
        else:
            result = dpa.minimize(fitted, made, budget, rng=rng, record=())
            spent = epsilon_spent(result)
        w = result.w[0]
        found = {
            "iterations": result.iterations,
            "gradients": result.evaluations.get("gradient", 0),
            "losses": result.evaluations.get("loss", 0),
            "seconds": result.seconds,
        }
    return {
        **found,
        "epsilon_spent": spent,
        "accuracy": float(judge.accuracy(w, held_out.X_test, held_out.y_test)),
        "objective": float(judge.value(w)),
    }


#: Accountings of the line search by their names in the tables: the method's name and line style.
ACCOUNTINGS: dict[str, tuple[str, Any]] = {
    "correct": ("DP-BLSGD", "-"),
    "as printed, not private": ("DP-BLSGD, as printed", DOTTED),
    "correct, fresh batch": ("DP-BLSGD, fresh batch", DASHED),
}


#: Better names for accountings of the tables.
CALLED = {"as printed, not private": "as printed, unproved"}


def called(accounting: str) -> str:
    """Return the name of an accounting in pictures and captions."""
    return CALLED.get(accounting, accounting)


def accounting_of(method: str) -> str:
    """Return the accounting of a method's name."""
    return next(name for name, (known, _) in ACCOUNTINGS.items() if known == method)


def search_cell(
    data: str, accounting: str, epsilon: float, fold: int, share: int, q: float, **options: Any
) -> dict[str, Any]:
    """Return the parameters of a run of DP-BLSGD for logistic regression."""
    return {
        "data": data,
        "loss": "logistic",
        "method": ACCOUNTINGS[accounting][0],
        "epsilon": epsilon,
        "fold": fold,
        "share": share,
        "rate": q,
        "options": options,
    }


# ------------------------------------------------------------------ the paper's accounting


class PrintedAccounting:
    """The accounting of Chen and Lee (2020) as printed: NOT a privacy guarantee.

    Gradient and line searches of one batch are amplified one by one (errata 002-4, 002-5) by
    Lemma 4 with its factor 3, at the costs of Lemma 1 and Theorems 2 and 3. The run continues
    while some order from 2 to 500 has budget left (002-7) by Proposition 1; delta must be positive.
    ``factor`` is that of Lemma 4 from its fourth term on: 1 suffices for Gaussian noise.
    """

    orders = np.arange(2.0, 501.0)

    def __init__(self, budget: dpa.Budget, factor: float = 3.0) -> None:
        self.budget, self.factor = budget, factor
        self.limits = budget.limit + math.log(budget.delta) / (self.orders - 1.0)
        self.spent = np.zeros(self.orders.size)

    def costs(self, event: Event) -> Array:
        """Return the charge of an event at each order."""
        batch = event if isinstance(event, Sampled) else Sampled(dpa.Full(), [event])
        parts = [_amplified(part, batch.fraction, self.factor) for part in batch.events]
        return np.sum(parts, axis=0)

    def can_spend(self, event: Event) -> bool:
        """Return whether the event fits at some order."""
        return bool((self.spent + self.costs(event) <= self.limits).any())

    def spend(self, event: Event) -> None:
        """Charge the event at every order, or raise if it fits at none."""
        if not self.can_spend(event):
            raise dpa.PrivacyBudgetExceeded(f"{event!r} fits at no order")
        self.spent = self.spent + self.costs(event)

    def epsilon(self) -> float:
        """Return the epsilon spent, at the best order."""
        return float((self.spent + (self.budget.limit - self.limits)).min())

    def affords(self, rate: float, events: Sequence[Event]) -> float:
        """Return how often these events, on one batch each time, fit into a new budget."""
        each = self.costs(Sampled(dpa.Poisson(rate), events))
        return float((self.limits / each).max())


def run_as_printed(problem: Any, method: Any, guard: PrintedAccounting, rng: int) -> Any:
    """Run a method under :class:`PrintedAccounting`, which ``minimize`` does not accept."""
    loop = Loop(method, problem.facts(RELATION), guard.budget, guard, "tightest")
    random = dpa.privacy.mechanisms.spawn(rng, 1)
    recording = Recording(problem, {}, 1, False, None)
    return loop.run(np.zeros((1, problem.d)), loop.oracles(problem, random), random, recording)


def affordable(epsilon: float, share: int, rate: float) -> dict[str, float]:
    """Return how many iterations at the first cost a budget allows under each accounting."""
    budget = dpa.Budget(epsilon, DELTA, RELATION)
    each = epsilon / share
    gradient = Gaussian(1.0 / each, 1.0)
    search = AboveThreshold(
        "laplace", 2.0 / each, 4.0 / each, 1.0, SEARCH["max_queries"], shared=True
    )

    def proved(*batches: Sequence[Event]) -> float:
        events = [Sampled(dpa.Poisson(rate), batch) for batch in batches]
        guard = Filter(budget, order=order_of_most(events, budget))
        return guard.limit / sum(map(guard.cost, events))

    return {
        "as_printed": PrintedAccounting(budget).affords(rate, [gradient, search]),
        "as_printed_factor_1": PrintedAccounting(budget, 1.0).affords(rate, [gradient, search]),
        "as_printed_not_sampled": PrintedAccounting(budget).affords(1.0, [gradient, search]),
        "correct": proved([gradient, search]),
        "fresh_batch": proved([gradient], [search]),
    }


@lru_cache(maxsize=4096)
def _amplified(event: Event, rate: float, factor: float) -> Array:
    """Return the cost of one access to a batch at the orders from 2 to 500, by Lemma 4.

    The binomial probabilities sum to 1; subtracting 1 leaves only positive terms.
    """
    orders = PrintedAccounting.orders
    cost = _printed_cost(event)
    if rate == 1.0:
        return cost
    growth = (orders - 1.0) * cost + np.where(orders > 2.0, math.log(factor), 0.0)
    terms = _log_probabilities(rate) + (growth + np.log(-np.expm1(-growth)))
    return np.logaddexp(0.0, special.logsumexp(terms, axis=1)) / (orders - 1.0)


@lru_cache(maxsize=16)
def _log_probabilities(rate: float) -> Array:
    """Return ln P(Binomial(order, rate) = l), a row per order and a column per l from 2 on."""
    orders = PrintedAccounting.orders
    return np.asarray(stats.binom.logpmf(orders[None, :], orders[:, None], rate))


def _printed_cost(event: Event) -> Array:
    """Return the cost of one access without sampling, by Lemma 1, Theorem 2 or Theorem 3."""
    orders = PrintedAccounting.orders
    if isinstance(event, Gaussian):
        return np.asarray(rdp_gaussian(orders, 1.0 / event.mu))
    if isinstance(event, AboveThreshold):
        scales = event.threshold_scale / event.sensitivity, event.query_scale / event.sensitivity
        return np.asarray(printed_above_threshold(orders, event.noise, *scales))
    raise TypeError(f"the paper states no cost of {event!r}")
