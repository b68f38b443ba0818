"""The runs behind the figures of Gao and Wright (2023): data, methods, printed results."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from scipy import special, stats

import dpanalysis as dpa
from dpanalysis import methods, theory
from dpanalysis.papers.second_order.printed import PrintedSecondOrder, PrintedTrustRegion

from ._data import at_hand
from ._spent import epsilon_spent

Array: TypeAlias = np.ndarray

DELTA = 1e-6
RELATION = "replace_one"
ROW_BOUND = dpa.RowBound(2, 1.0, "clip")
#: Noise of the Hessian for its true sensitivity, and as in the paper.
SENSITIVITIES = ("sharp", "printed")
#: Runs whose probability of stopping is below this are cut, see :func:`patience`.
HOPELESS = 1e-3

#: Recorded results of a run.
FOUND = (
    "loss",
    "gradient_norm",
    "smallest_eigenvalue",
    "stopped",
    "true_point",
    "iterations",
    "hessians",
    "curvature_steps",
    "gradient_passes",
    "loss_passes",
    "seconds",
    "epsilon_spent",
    "T",
    "n_min",
    "gradient_noise",
    "hessian_noise",
)

# ------------------------------------------------------------------ problems

PENALTIES: dict[str, Any] = {
    "GemanMcClure": dpa.regularizers.GemanMcClure(1e-3),
    "L2": dpa.regularizers.L2(1e-3),
}
_LOOSE, _TIGHT = (0.04, 0.2), (0.02, 0.141)
#: (eps_g, eps_H) of a loose and a tight solution by (data, penalty); all others have the last.
TOLERANCES = {
    ("covertype", "GemanMcClure"): {"loose": (0.06, 0.245), "tight": (0.03, 0.173)},
    None: {"loose": _LOOSE, "tight": _TIGHT},
}


def tolerances(data: str, penalty: str) -> dict[str, tuple[float, float]]:
    """Return (eps_g, eps_H) of the paper's loose and tight solutions."""
    return TOLERANCES.get((data, penalty), TOLERANCES[None])


def data_names(scale: str) -> list[str]:
    """Return the names of the tables' data: the paper's if available, the smaller one if quick."""
    if not at_hand("covertype"):
        return ["clouds"]
    return ["ijcnn1"] if scale == "quick" else ["covertype", "ijcnn1"]


#: Lipschitz constants G and M of gradient and Hessian: those that follow from the bounds, about .25
#: and .10, or 1 and 1. The paper's tolerances imply that M is 1 (its eps_H is the root of M eps_g);
#: it does not give G.
CONSTANTS = ("sharp", "unit")


class UnitConstants(dpa.ERM):
    """A problem planned with G = M = 1, which are valid bounds but larger than necessary."""

    @property
    def L(self) -> float:  # type: ignore[override]
        """G, at least the value that the bounds guarantee."""
        return max(1.0, super().L)

    @property
    def hessian_lipschitz(self) -> float:  # type: ignore[override]
        """M, at least the value that the bounds guarantee."""
        return max(1.0, super().hessian_lipschitz)


@lru_cache(maxsize=2)
def load_problem(data: str, penalty: str, constants: str = "sharp") -> dpa.ERM:
    """Return the logistic loss with a penalty; rows longer than 1 are scaled to norm 1."""
    X, y = clouds(20_000, 10) if data == "clouds" else _real(data)
    kind = UnitConstants if constants == "unit" else dpa.ERM
    return kind(X, y, dpa.losses.Logistic(), PENALTIES[penalty], row_bound=ROW_BOUND)


def _real(data: str) -> tuple[Array, Array]:
    dataset = dpa.datasets.load(data)
    return dataset.X, dataset.y


def clouds(n: int, d: int) -> tuple[Array, Array]:
    """Return two overlapping Gaussian clouds, a fifth of the rows in the smaller one."""
    random = np.random.default_rng(0)
    y = np.where(random.random(n) < 0.2, 1.0, -1.0)
    center = np.linspace(1.0, 0.0, d)
    return y[:, None] * center + random.normal(size=(n, d)), y


#: Margin u at the saddle: above 1.2785, where u/(1 + e^u) is largest, and below sqrt 2.
MARGIN = 1.35
STRENGTH = MARGIN * float(special.expit(-MARGIN))


@lru_cache(maxsize=1)
def saddle_problem(n: int, d: int) -> dpa.ERM:
    r"""Return a problem with a saddle at (1, 1, 0, ..., 0): two copies of one feature.

    The rows of norm 1 are y (r, r) followed by noise independent of the label. The loss only
    depends on :math:`w_1 + w_2`, while the concave part of the penalty prefers one weight to two:
    along (1, -1, 0, ...) the curvature is -strength/2, its minimum. With r = u/2 the strength
    u/(1 + e^u) = .2779 makes the point stationary, and along (1, 1, 0, ...) the curvature is
    +.0101.
    """
    X, y = saddle_rows(n, d)
    penalty = dpa.regularizers.GemanMcClure(STRENGTH)
    return dpa.ERM(X, y, dpa.losses.Logistic(), penalty, row_bound=ROW_BOUND)


def saddle_rows(n: int, d: int) -> tuple[Array, Array]:
    """Return rows of norm 1 and labels of :func:`saddle_problem`."""
    random = np.random.default_rng(0)
    y = np.where(random.random(n) < 0.5, 1.0, -1.0)
    rest = random.normal(size=(n, d - 2))
    rest *= math.sqrt(1.0 - 0.5 * MARGIN**2) / np.linalg.norm(rest, axis=1, keepdims=True)
    return np.column_stack([0.5 * MARGIN * y, 0.5 * MARGIN * y, rest]), y


def saddle(d: int) -> Array:
    """Return the saddle of :func:`saddle_problem`, which is public, shape (d,)."""
    return np.r_[1.0, 1.0, np.zeros(d - 2)]


# ------------------------------------------------------------------ methods


#: Shares of the tolerances that noise may take: c, c1, c2, and c_g, c_H of the line search. The
#: paper does not state its own; all runs here use these, not the best ones.
SHARES = {
    "short": theory.Shares(0.1, 0.25, 0.1),
    "line_search": theory.Shares(0.1, 0.25, 0.1, 0.35, 0.2),
}


def second_order(eps_g: float, eps_H: float, printed: bool, **options: Any) -> Any:
    """Return the method with these shares."""
    kind = PrintedSecondOrder if printed else methods.SecondOrder
    return kind(eps_g, eps_H, shares=SHARES[options.get("step", "short")], **options)


def _second_order(**options: Any) -> Callable[..., Any]:
    def make(eps_g: float, eps_H: float, n: int, printed: bool) -> Any:
        chosen = dict(options)
        if "batch" in chosen:
            chosen["sampling"] = dpa.WithoutReplacement(math.ceil(chosen.pop("batch") * n))
        return second_order(eps_g, eps_H, printed, **chosen)

    return make


def _trust_region(eps_g: float, eps_H: float, n: int, printed: bool) -> Any:
    return (PrintedTrustRegion if printed else methods.TrustRegion)(eps_g, eps_H)


#: Fraction of the records in a batch.
BATCH = 0.1
#: Every row of the tables, in the paper's order.
METHODS: dict[str, Callable[..., Any]] = {
    "DP-TR": _trust_region,
    "OPT": _second_order(),
    "OPT-B": _second_order(batch=BATCH),
    "OPT-LS": _second_order(step="line_search"),
    "2OPT": _second_order(two_phase=True),
    "2OPT-B": _second_order(two_phase=True, batch=BATCH),
    "2OPT-LS": _second_order(two_phase=True, step="line_search"),
}


def patience(method: Any, outlook: Any, d: int, limit: int) -> int:
    """Return after how many iterations a run that has not stopped is cut.

    A run can only stop if its noisy gradient is within eps_g. For any true gradient, this is at
    most as likely as for noise alone (Anderson 1955). If noise alone is within eps_g in 2T tries
    with probability at most ``HOPELESS``, more than ``limit`` iterations are in vain. Other runs
    get four times as many; those in two phases, whose second has more noise than the first, get
    ``limit`` after the first.
    """
    std = outlook.noise.gradient
    once = stats.chi2.cdf((method.eps_g / std) ** 2, d) if std else 1.0
    if 2 * outlook.iterations * once < HOPELESS:
        return limit
    first = outlook.iterations
    if getattr(method, "two_phase", False):
        first = math.ceil(first / method.speedup) + limit
    return min(first, 4 * limit)


@lru_cache(maxsize=256)  # the same for all seeds, and slow for batches
def planned(problem: Any, method: Any, epsilon: float) -> tuple[Any, dict[str, float]]:
    """Return the plan of a run from 0 and its columns of the tables.

    The noise of a gradient is its root mean square norm over eps_g; that of a Hessian is the
    limit of its norm for large d, 2 sqrt(d) times the deviation of an entry off the diagonal,
    over eps_H.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "n = .* is below n_min", UserWarning)  # the table has it
        budget = dpa.Budget(epsilon, DELTA, RELATION)
        outlook = method.prepare(problem.facts(RELATION), budget, "tightest")
    root = math.sqrt(problem.d)
    query = method._hessian_query(np.zeros(problem.d), outlook.noise.hessian)
    off_diagonal = query.std * query.off_diagonal
    return outlook, {
        "T": float(outlook.iterations),
        "n_min": float(outlook.n_min),
        "gradient_noise": outlook.noise.gradient * root / method.eps_g,
        "hessian_noise": 2.0 * off_diagonal * root / method.eps_H,
    }


def run_once(
    problem: Any,
    method: Any,
    epsilon: float,
    seed: int,
    limit: int,
    w0: Array | None = None,
    record: Any = (),
) -> tuple[Any, dict[str, float]]:
    """Return the result of a run and its columns of the tables; none of them is private.

    From a start other than 0, T and hence the noise depend on a noisy value there: planned values
    are nan, and such a run is cut after ``limit`` iterations, whatever its chances.
    """
    outlook, said = planned(problem, method, epsilon)
    most = patience(method, outlook, problem.d, limit)
    if w0 is not None:
        most, said = limit, dict.fromkeys(said, math.nan)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "n = .* is below n_min", UserWarning)
        result = dpa.minimize(
            problem,
            method,
            dpa.Budget(epsilon, DELTA, RELATION),
            w0=w0,
            rng=seed,
            record=record,
            callback=lambda iteration, w: iteration >= most,
        )
    history, w = {name: rows[1:] for name, rows in result.history.items()}, result.w[0]
    stopped = bool(history["second_order_point"][-1, 0] == 1.0)
    gradient_norm = float(np.linalg.norm(problem.gradient(w)))
    eigenvalue = float(np.linalg.eigvalsh(problem.hessian(w))[0])
    return result, {
        "loss": float(problem.value(w)),
        "gradient_norm": gradient_norm,
        "smallest_eigenvalue": eigenvalue,
        "stopped": float(stopped),
        "cut": float(not stopped and result.iterations >= most),
        "true_point": float(
            gradient_norm <= (1.0 + SHARES["short"].c1) * method.eps_g
            and eigenvalue >= -(1.0 + SHARES["short"].c) * method.eps_H
        ),
        "iterations": float(result.iterations),
        "hessians": float(history["hessians"][-1, 0]),
        "curvature_steps": float(np.sum(history["smallest_eigenvalue"] < -method.eps_H)),
        "gradient_passes": result.evaluations.get("gradient", 0) / problem.n,
        "loss_passes": result.evaluations.get("loss", 0) / problem.n,
        "seconds": result.seconds,
        "epsilon_spent": epsilon_spent(result),
        **said,
    }


#: Norm of the gradient at 0, without noise: where it is within (1 + c1) eps_g, a run from 0 starts
#: at a solution, since the curvature there is not below -eps_H.
AT_ZERO = {"covertype": 0.0638, "ijcnn1": 0.1522}


def starts_at_a_point(data: str, penalty: str, tolerance: str) -> bool:
    """Return whether w0 = 0 is a point within the tolerances."""
    eps_g = tolerances(data, penalty)[tolerance][0]
    return AT_ZERO.get(data, math.inf) <= (1.0 + SHARES["short"].c1) * eps_g


#: Starts of the runs: 0, where Covertype's gradient is hardly longer than its loose eps_g, or a
#: standard normal point, since losses above ln 2 in the paper's tables suggest a random start.
STARTS = ("zero", "random")


def start_point(start: str, d: int, seed: int) -> Array | None:
    """Return w0 of shape (d,); None stands for 0."""
    if start == "zero":
        return None
    return np.random.default_rng([seed, 1]).normal(size=d)


def run_cell(
    data: str,
    penalty: str,
    tolerance: str,
    method: str,
    epsilon: float,
    start: str,
    seed: int,
    limit: int,
    constants: str = "sharp",
) -> dict[str, Array]:
    """Run with each sensitivity, sharp and printed, with the same random numbers.

    If no Hessian was queried, both are the same run, except for the planned values.
    """
    problem = load_problem(data, penalty, constants)
    eps_g, eps_H = tolerances(data, penalty)[tolerance]
    sharp, printed = (METHODS[method](eps_g, eps_H, problem.n, each) for each in (False, True))
    w0 = start_point(start, problem.d, seed)
    first = run_once(problem, sharp, epsilon, seed, limit, w0)[1]
    if first["hessians"]:
        second = run_once(problem, printed, epsilon, seed, limit, w0)[1]
    else:
        second = {**first, **(planned(problem, printed, epsilon)[1] if w0 is None else {})}
    return {name: np.array([first[name], second[name]]) for name in first}


# ------------------------------------------------------------------ what the paper prints

#: Loss, its standard deviation and seconds (nan for a cross) at epsilon .2, .6 and 1.0: the rows
#: that survive in the paper's text; most do not. Names in brackets are lost there and inferred
#: from the order of the rows.
PUBLISHED: dict[tuple[str, str, str], dict[str, list[tuple[float, float, float]]]] = {
    ("covertype", "GemanMcClure", "loose"): {
        "[OPT-B]": [(0.712, 0.018, 3.1), (0.712, 0.018, 3.2), (0.712, 0.018, 2.9)],
        "OPT-LS": [(0.577, 0.032, math.nan), (0.687, 0.028, 0.4), (0.699, 0.018, 0.4)],
        "2OPT": [(0.626, 0.078, math.nan), (0.712, 0.017, 0.6), (0.712, 0.018, 0.6)],
        "2OPT-B": [(0.712, 0.018, 1.4), (0.712, 0.018, 1.4), (0.712, 0.018, 2.0)],
        "2OPT-LS": [(0.699, 0.018, 0.5), (0.699, 0.018, 0.5), (0.699, 0.018, 0.5)],
    },
    ("covertype", "L2", "loose"): {
        "2OPT": [(0.539, 0.022, 0.3), (0.539, 0.022, 0.3), (0.539, 0.022, 0.4)],
        "2OPT-B": [(0.539, 0.022, 1.0), (0.539, 0.022, 1.0), (0.539, 0.022, 1.0)],
        "2OPT-LS": [(0.539, 0.022, 0.4), (0.539, 0.022, 0.3), (0.539, 0.022, 0.4)],
    },
    ("covertype", "L2", "tight"): {
        "[2OPT-B]": [(0.454, 0.004, 2.0), (0.454, 0.004, 2.0), (0.454, 0.004, 1.8)],
        "2OPT-LS": [(0.441, 0.007, math.nan), (0.447, 0.009, 0.6), (0.447, 0.008, 0.7)],
    },
    ("ijcnn1", "L2", "loose"): {
        "[OPT-B]": [(math.nan, 0.008, 8.6), (0.501, 0.008, 11.0), (0.501, 0.008, 9.0)],
        "OPT-LS": [(0.607, 0.076, math.nan), (0.473, 0.012, math.nan), (0.454, 0.004, math.nan)],
        "2OPT-B": [(0.501, 0.008, 1.0), (0.501, 0.008, 1.4), (0.501, 0.008, 1.1)],
        "2OPT-LS": [(1.002, 0.321, math.nan), (0.501, 0.008, 0.0), (0.501, 0.008, 0.0)],
    },
    ("ijcnn1", "L2", "tight"): {
        "2OPT-B": [(0.502, 0.007, 1.5), (0.502, 0.007, 1.3), (0.502, 0.007, 1.6)],
        "2OPT-LS": [(3.504, 0.98, math.nan), (0.798, 0.081, math.nan), (0.459, 0.01, 0.4)],
    },
}
EPSILONS = (0.2, 0.6, 1.0)


def published_table() -> dict[str, Array]:
    """Return the rows of :data:`PUBLISHED`, one number per row; seconds are nan for a cross."""
    rows = [
        (*item, method, epsilon, *numbers)
        for item, methods_of in PUBLISHED.items()
        for method, each in methods_of.items()
        for epsilon, numbers in zip(EPSILONS, each, strict=True)
    ]
    names = ("data", "penalty", "tolerance", "method", "epsilon", "loss", "loss_std", "seconds")
    return {name: np.array(column) for name, column in zip(names, zip(*rows), strict=True)}
