"""The runs behind the figures of Xia et al. (2023) and Fang et al. (2023).

Each cell is a run with one rule, one model and one seed.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

import dpanalysis as dpa
from dpanalysis import privacy
from dpanalysis.experiments.records import Record, Table
from dpanalysis.privacy.events import Gaussian, Repeated, Sampled

from ._data import choose, load_part, rows_of

RELATION = "add_or_remove_one"
#: Names of the rules in tables and legends.
RULES = {
    "GC": "GC (DP-SGD)",
    "VC": "VC",
    "Auto-S": "Auto-S",
    "PSAC": "PSAC",
}
COLORS = {"GC": "#0072B2", "VC": "#D55E00", "Auto-S": "#E69F00", "PSAC": "#009E73"}
#: Every series also differs by a marker or a line style.
MARKERS = {"GC": "o", "VC": "s", "Auto-S": "^", "PSAC": "D", "Auto-V": "v"}
SERIES = ("o", "s", "^", "D", "v", "P")  # of clip norms and other numbers
MODELS = {"linear": "linear softmax", "mlp": "MLP"}
# The orders of the RDP accountant behind the published epsilons (the default of Opacus).
_PUBLISHED_ORDERS = np.concatenate([1.0 + np.arange(1, 100) / 10.0, np.arange(12.0, 64.0)])


def data_name(scale: str) -> str:
    """Return the name of the data: MNIST or a part of it where available, else digits."""
    return choose("mnist", "digits", scale)


def training_rows(data: str) -> int:
    """Return n."""
    return 1438 if data == "digits" else rows_of(data) or 60_000


def by_data(data: str, mnist: Any, part: Any, digits: Any) -> Any:
    """Return the value for MNIST, for a part of MNIST, or for digits."""
    if data == "digits":
        return digits
    return mnist if rows_of(data) is None else part


@lru_cache(maxsize=2)
def load_data(data: str, signed: bool) -> tuple[Any, Any, Any, Any]:
    """Return ``X, y, X_test, y_test`` with pixels in [0, 1], or in [-1, 1] when signed."""
    if data != "digits":
        dataset = dpa.datasets.mnist(signed=signed)
        return *load_part(dataset, rows_of(data)), dataset.X_test, dataset.y_test
    dataset = dpa.datasets.load("digits").split(0.2, rng=0)
    low, width = (-1.0, 2.0) if signed else (0.0, 1.0)
    return low + width * dataset.X, dataset.y, low + width * dataset.X_test, dataset.y_test


def row_radius(data: str, signed: bool) -> float:
    """Return the public bound on the rows' L2 norm.

    Signed pixels fill the cube, whose corners have norm 28 (8 for digits). Pixels in [0, 1] are
    mostly 0, so rows are clipped to 10 (4), about their typical norm.
    """
    if signed:
        return 8.0 if data == "digits" else 28.0
    return 4.0 if data == "digits" else 10.0


class Divided(dpa.problems.MLP):
    """An MLP whose bound on gradients, used by value clipping, is ``divisor`` times too small.

    For divisors above 1 the clip norm is enforced by the true norms.
    """

    divisor = 1.0

    def weak_growth(self, w: Any) -> tuple[Any, float]:
        """Return the constants for the smaller bound."""
        beta1, beta2 = super().weak_growth(w)
        return beta1 / self.divisor**2, beta2


@lru_cache(maxsize=2)
def load_problem(data: str, signed: bool, model: str, divisor: float = 1.0) -> Any:
    """Return softmax regression, or the MLP with one hidden layer."""
    X, y, _, _ = load_data(data, signed)
    bound = dpa.RowBound(2, row_radius(data, signed), "clip")
    if model == "linear":
        return dpa.problems.Softmax(X, y, n_classes=10, row_bound=bound)
    hidden = (hidden_units(data),)
    problem = Divided(X, y, hidden=hidden, n_classes=10, bias=False, row_bound=bound)
    problem.divisor = divisor
    return problem


def hidden_units(data: str) -> int:
    """Return the units of the MLP's hidden layer: the paper's 128, or fewer."""
    return int(by_data(data, 128, 64, 32))


def sample_gradients(
    problem: Any, w: np.ndarray, rows: np.ndarray, clipping: Any = None
) -> np.ndarray:
    """Return the (clipped) per-sample gradients at ``w`` of shape (d,), (len(rows), d)."""
    copies = np.broadcast_to(w, (len(rows), len(w)))
    each = [rows[i : i + 1] for i in range(len(rows))]
    return problem.sums(copies, clipping=clipping, rows=each, value=False).gradient


def share_used(problem: Any, w: np.ndarray, clipping: Any) -> np.ndarray:
    """Return the mean norm of 128 clipped gradients divided by the clip norm, shape (1,)."""
    rows = np.sort(np.random.default_rng(0).choice(problem.n, 128, replace=False))
    norms = np.linalg.norm(sample_gradients(problem, w[0], rows, clipping), axis=1)
    return norms.mean(keepdims=True) / clipping.clip_norm


def make_rule(rule: str, clip_norm: float, r: float) -> dpa.clipping.Clipping:
    """Return a clipping rule by its name; value clipping takes the problem's constants."""
    if rule == "GC":
        return dpa.clipping.Flat(clip_norm)
    if rule == "VC":
        return dpa.clipping.Value(clip_norm)
    kind = dpa.clipping.Automatic if rule == "Auto-S" else dpa.clipping.PerSampleAdaptive
    return kind(r, clip_norm)


def train_cell(
    data: str,
    signed: bool,
    model: str,
    rule: str,
    clip_norm: float,
    r: float,
    step_size: float,
    batch: int,
    epochs: int,
    noise_multiplier: float,
    seed: int,
    curves: bool,
    bound_divisor: float | None = None,
) -> dict[str, np.ndarray]:
    """Train once and return accuracies (and the clipping frequency) by epoch.

    Batches are drawn by Poisson sampling at rate 1/(iterations per epoch). The noise on the sum
    has standard deviation ``noise_multiplier`` times the charged sensitivity (the clip norm plus
    the rounding of sums in single precision), and the sum is divided by the expected batch size,
    which is public. Without ``curves`` only the start and the end are recorded. A
    ``bound_divisor`` divides the bound on a gradient's norm that value clipping uses, and makes
    the run record the used share of the clip norm.
    """
    problem = load_problem(data, signed, model, bound_divisor or 1.0)
    _, _, X_test, y_test = load_data(data, signed)
    steps = steps_per_epoch(problem.n, batch)
    iterations = epochs * steps
    w0 = np.zeros(problem.d) if model == "linear" else problem.initial(rng=seed)
    clipping = make_rule(rule, clip_norm, r)
    method = build_method(problem, clipping, step_size, 1.0 / steps, iterations, noise_multiplier)

    def clipping_frequency(problem: Any, w: np.ndarray) -> np.ndarray:
        return problem.sums(w, clipping=clipping, value=False).clipped / problem.n

    def clip_norm_used(problem: Any, w: np.ndarray) -> np.ndarray:
        return share_used(problem, w, clipping)

    def test_accuracy(problem: Any, w: np.ndarray) -> np.ndarray:
        return problem.accuracy(w, X_test, y_test)

    recorders: list[Any] = ["accuracy", test_accuracy]
    recorders += [clipping_frequency] if curves else []
    recorders += [clip_norm_used] if bound_divisor else []
    with warnings.catch_warnings():
        # The papers' step sizes exceed 2/L for the public L; clipping bounds the updates.
        warnings.filterwarnings("ignore", "step_size .* is above 2/L", UserWarning)
        result = dpa.minimize(
            problem,
            method,
            None,  # the noise is given explicitly; its cost is in the ledger
            w0=w0,
            rng=seed,
            record=recorders,
            every=steps if curves else iterations,
        )
    history = result.history
    return {
        "epoch": history["iteration"] / steps,
        "training_accuracy": history["accuracy"][:, 0],
        **{
            name: history[name][:, 0]
            for name in ("test_accuracy", "clipping_frequency", "clip_norm_used")
            if name in history
        },
        "finished": np.array(result.status == "finished"),
        "seconds": np.array(result.seconds),
    }


def build_method(
    problem: Any,
    clipping: dpa.clipping.Clipping,
    step_size: float,
    rate: float,
    iterations: int,
    noise_multiplier: float,
) -> dpa.methods.SGD:
    """Return SGD with the rule and noise of ``noise_multiplier`` times the sensitivity."""
    moved = problem.facts(RELATION).record_sensitivity(2, clipping)
    return dpa.methods.SGD(
        step_size,
        iterations,
        sampling=dpa.Poisson(rate),
        clipping=clipping,
        noise=np.full(iterations, noise_multiplier * moved / (rate * problem.n)),
        mechanism="gaussian",
    )


def steps_per_epoch(n: int, batch: int) -> int:
    """Return the number of iterations per epoch, n/batch rounded up."""
    return math.ceil(n / batch)


# ------------------------------------------------------------------ privacy


def events(rate: float, noise_multiplier: float, iterations: int) -> list[Any]:
    """Return the events of a run of Poisson-sampled SGD with Gaussian noise."""
    step = Sampled(dpa.Poisson(rate), [Gaussian(noise_multiplier, 1.0)])
    return [Repeated(step, iterations)]


@lru_cache(maxsize=64)
def epsilon(
    rate: float, noise_multiplier: float, iterations: int, delta: float, accountant: str
) -> float:
    """Return the epsilon of a run under add-or-remove-one.

    ``accountant`` is ``"pld"``, ``"rdp"`` (the best real order) or ``"rdp-published"`` (the
    orders that the papers' software tries).
    """
    if accountant == "rdp-published":
        each = privacy.rdp_poisson_gaussian(_PUBLISHED_ORDERS, rate, noise_multiplier)
        return float(privacy.rdp_to_epsilon(_PUBLISHED_ORDERS, iterations * each, delta)[0])
    run = events(rate, noise_multiplier, iterations)
    return float(privacy.epsilon(run, delta, RELATION, accountant))


def epsilons(
    rate: float, noise_multiplier: float, iterations: int, delta: float
) -> tuple[float, float]:
    """Return the epsilon of a run by RDP, and by PLD."""
    run = rate, noise_multiplier, iterations, delta
    return epsilon(*run, "rdp"), epsilon(*run, "pld")


@lru_cache(maxsize=64)
def calibrate(
    rate: float, iterations: int, target: float, delta: float, accountant: str = "pld"
) -> float:
    """Return the smallest noise multiplier that satisfies (target, delta)."""
    return privacy.calibrate(
        lambda noise_multiplier: events(rate, noise_multiplier, iterations),
        dpa.Budget(target, delta, RELATION),
        (0.3, 1000.0),
        tol=1e-4,
        accountant=accountant,
    )


def published_epsilons() -> str:
    """Return a sentence on the epsilons of Fang et al. (2023), recomputed by each accountant."""
    parts = []
    for name, rate, iterations in (("MNIST", 1 / 469, 4690), ("CIFAR10", 1 / 390, 1950)):
        got = {
            kind: epsilon(rate, 1.0, iterations, 1e-5, kind)
            for kind in ("rdp-published", "rdp", "pld")
        }
        parts.append(
            f"{name} (q = 1/{round(1 / rate)}, T = {iterations}) {got['rdp-published']:.4f} by RDP "
            f"at the usual orders (as printed), {got['rdp']:.4f} by RDP at the best real order, "
            f"{got['pld']:.4f} by PLD"
        )
    return "The paper's runs at sigma = 1, delta = 1e-5, recomputed: " + "; ".join(parts) + "."


# ------------------------------------------------------------------ tables


def stack(rows: Sequence[dict[str, Any]]) -> Table:
    """Return the rows as columns."""
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def where(table: Table, **values: Any) -> Table:
    """Return the rows of a table in which all named columns have the given values."""
    keep = np.ones(len(next(iter(table.values()))), dtype=bool)
    for name, value in values.items():
        keep &= table[name] == value
    return {name: column[keep] for name, column in table.items()}


def group(table: Table, keys: Sequence[str], values: Sequence[str]) -> Table:
    """Return mean, standard deviation and number of ``values`` for each combination of keys."""
    combinations = list(dict.fromkeys(zip(*(table[key].tolist() for key in keys), strict=True)))
    rows = []
    for combination in combinations:
        chosen = where(table, **dict(zip(keys, combination, strict=True)))
        row: dict[str, Any] = dict(zip(keys, combination, strict=True))
        for name in values:
            many = len(chosen[name]) > 1
            row[name] = float(chosen[name].mean())
            row[f"{name}_std"] = float(chosen[name].std(ddof=1)) if many else 0.0
        row["runs"] = len(chosen[values[0]])
        rows.append(row)
    return stack(rows)


def join(tables: Sequence[Table]) -> Table:
    """Return the concatenation of tables with the same columns."""
    return {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}


# ------------------------------------------------------------------ tuning


def tune(
    run: Callable[[list[dict[str, Any]]], list[Record]],
    entries: Sequence[dict[str, Any]],
    steps: Sequence[float],
    score: Callable[[Record], float],
    *,
    widenings: int,
) -> tuple[list[float], list[bool]]:
    """Return the best step size of each entry, and whether it is inside its grid.

    ``run`` computes cells, which are entries with a ``step_size`` and the ``seed`` 0.
    Where the best step size is an end of the grid, the grid of that entry is extended there by
    the ratio of its last two steps, at most ``widenings`` times.
    """
    grids = [sorted(steps) for _ in entries]
    for turn in range(widenings + 1):
        cells = [
            {**entry, "step_size": step, "seed": 0}
            for entry, grid in zip(entries, grids, strict=True)
            for step in grid
        ]
        scores = iter([score(record) for record in run(cells)])
        places = [int(np.argmax([next(scores) for _ in grid])) for grid in grids]
        if turn < widenings:
            for grid, place in zip(grids, places, strict=True):
                _widen(grid, place)
    pairs = list(zip(grids, places, strict=True))
    return [grid[k] for grid, k in pairs], [0 < k < len(grid) - 1 for grid, k in pairs]


def tuned_runs(
    run: Callable[[list[dict[str, Any]]], list[Record]],
    entries: Sequence[dict[str, Any]],
    chosen: dict[str, Any],
    score: Callable[[Record], float],
) -> tuple[list[Record], list[bool]]:
    """Return the runs of each entry at its best step size, and whether that is inside its grid.

    ``chosen`` are the settings of a figure. The seed of the tuning is not among those of the runs.
    """
    steps, inside = tune(run, entries, chosen["step_sizes"], score, widenings=chosen["widenings"])
    cells = [
        {**entry, "step_size": step, "seed": seed}
        for entry, step in zip(entries, steps, strict=True)
        for seed in range(1, chosen["seeds"] + 1)
    ]
    return run(cells), inside


def _widen(grid: list[float], best: int) -> None:
    """Extend a grid by a step size of three digits at the end where the best one is."""
    if len(grid) > 1 and best == len(grid) - 1:
        grid.append(float(f"{grid[-1] * grid[-1] / grid[-2]:.3g}"))
    elif len(grid) > 1 and best == 0:
        grid.insert(0, float(f"{grid[0] * grid[0] / grid[1]:.3g}"))


def grid_sentence(inside: Iterable[bool], names: Sequence[str] = (), but: str = "") -> str:
    """Return a sentence on how many tuned entries have their best step size inside the grid.

    ``but`` explains an end of the grid where a wider grid would not change the result.

    >>> grid_sentence([True, False], ["GC", "VC"])
    'The best step size is an end of the grid for 1 of 2 entries (VC): a wider grid may change it.'
    """
    inside = [bool(each) for each in inside]
    out = inside.count(False)
    if not out:
        return f"The best step size is inside the grid for all {len(inside)} entries."
    but = but or f"a wider grid may change {'it' if out == 1 else 'them'}"
    listed = [name for name, each in zip(names, inside, strict=False) if not each]
    said = f" ({', '.join(listed)})" if listed else ""
    return (
        f"The best step size is an end of the grid for {out} of {len(inside)} entries{said}: {but}."
    )


def is_inside(steps: Iterable[float], grid: Sequence[float]) -> list[bool]:
    """Return for each step size whether it lies inside the grid, not at an end."""
    return [min(grid) < step < max(grid) for step in steps]


# ------------------------------------------------------------------ words


def runs_in_words(count: int) -> str:
    """Return "one run", or "mean and standard deviation" of several.

    >>> runs_in_words(1), runs_in_words(5)
    ('one run', 'mean and standard deviation of 5 runs')
    """
    return "one run" if count == 1 else f"mean and standard deviation of {count} runs"


def with_spread(mean: float, std: float, count: int, digits: int = 2) -> str:
    """Return a mean, with its standard deviation if there are several runs.

    >>> with_spread(98.086, 0.16, 5), with_spread(98.086, 0.0, 1)
    ('98.09 ± 0.16', '98.09')
    """
    return f"{mean:.{digits}f}" + (f" ± {std:.{digits}f}" if count > 1 else "")


def error_bars(rows: Table, name: str) -> Any:
    """Return the standard deviations of a column, None for single runs."""
    return rows[f"{name}_std"] if (rows["runs"] > 1).all() else None


def paired(a: Table, b: Table, name: str = "test_accuracy") -> tuple[float, float]:
    """Return the mean of ``a - b`` over shared seeds, and half the width of its 95 % interval.

    Student's interval: runs with the same seed share start, batches and noise stream.

    >>> a = {"seed": np.arange(3), "test_accuracy": np.array([1.0, 2.0, 4.0])}
    >>> b = {"seed": np.arange(3), "test_accuracy": np.array([1.0, 1.0, 2.0])}
    >>> paired(a, b)
    (1.0, 2.48413...)
    """
    from scipy import stats

    if a["seed"].tolist() != b["seed"].tolist() or len(a["seed"]) < 2:
        raise ValueError("paired differences need the same seeds, at least two")
    differences = a[name] - b[name]
    count = len(differences)
    quantile = float(stats.t.ppf(0.975, count - 1))
    return (
        float(differences.mean()),
        quantile * float(differences.std(ddof=1)) / math.sqrt(count),
    )


def welch_half(one: float, other: float, runs: int) -> float:
    """Return half the width of Welch's 95% interval for a difference of two means of ``runs`` runs.

    ``one`` and ``other`` are their standard deviations. With fewer than three runs it is infinite.
    """
    from scipy import stats

    if runs < 3:
        return math.inf
    squares = one**2 + other**2
    if not squares:
        return 0.0
    degrees = (runs - 1) * squares**2 / (one**4 + other**4)
    return float(stats.t.ppf(0.975, degrees)) * math.sqrt(squares / runs)


def interval(mean: float, half: float, digits: int = 3) -> str:
    """Return a difference with its interval as text.

    >>> interval(-0.004, 0.05)
    '-0.004 ± 0.050'
    """
    return f"{mean:.{digits}f} ± {half:.{digits}f}"


def time_in_words(rows: Table) -> str:
    """Return whether value clipping is faster than the private methods that the paper times.

    Those are micro-batching and Opacus. The time of gradient clipping here is added.

    >>> rows = {
    ...     "way": np.array(["VC", "GC", "micro-batching"]),
    ...     "seconds_over_sgd": np.array([1.5, 1.2, 90.0]),
    ...     "seconds_best": np.array([1.0, 0.9, 80.0]),
    ...     "seconds_worst": np.array([2.0, 1.9, 99.0]),
    ... }
    >>> time_in_words(rows)  # doctest: +NORMALIZE_WHITESPACE
    'confirmed (1.50 times SGD, micro-batching 90.00), and GC is faster still (1.20, whiskers
    overlap)'
    """
    took, best, worst = (
        dict(zip(rows["way"].tolist(), rows[name].tolist(), strict=True))
        for name in ("seconds_over_sgd", "seconds_best", "seconds_worst")
    )
    rivals = [way for way in ("micro-batching", "Opacus") if way in took]
    word = "confirmed" if all(took["VC"] < took[way] for way in rivals) else "refuted"

    def timed(way: str) -> str:
        overlap = best[way] < worst["VC"] and best["VC"] < worst[way]
        return f"{took[way]:.2f}{', whiskers overlap' * overlap}"

    listed = ", ".join(f"{way} {timed(way)}" for way in rivals)
    still = "faster still" if took["GC"] < took["VC"] else "slower"
    return f"{word} ({took['VC']:.2f} times SGD, {listed}), and GC is {still} ({timed('GC')})"
