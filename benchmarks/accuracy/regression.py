"""Private linear regression beside its peers: ``python -m benchmarks regression``.

The coefficient of determination on a fifth of the rows, drawn anew for each seed. All get the same
public ranges, which were not read off the rows. AdaSSP (Wang 2018) is computed here from its three
noisy statistics, with noise by the exact accounting of this package. The rules of the estimator
were fitted to the diabetes data among others, and not to the synthetic ones.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .cells import Cell, Runner, pythons
from .penalty import FOLDER
from .tables import by_epsilon, write

EPSILONS = (0.1, 1.0, 10.0)
ADASSP = "AdaSSP"
#: Method -> the library that runs it, and which kinds of delta it takes.
METHODS = {
    "dpanalysis": ("dpanalysis", ("pure", "approximate")),
    ADASSP: ("dpanalysis", ("approximate",)),
    "diffprivlib": ("diffprivlib", ("pure",)),
    "scikit-learn": ("sklearn", ("none",)),
}
FIELDS = (
    "data", "n", "d", "method", "delta", "epsilon", "seeds", "r2", "r2_low", "r2_high", "seconds",
)  # fmt: skip

# Of the ten columns of scikit-learn's diabetes data, and of their target: what adults have.
_LOW = (18, 1, 15, 60, 90, 40, 20, 2, 3, 55)
_HIGH = (80, 2, 45, 140, 310, 250, 100, 10, 6.2, 130)
_TARGET = (25, 346)


def diabetes() -> tuple[np.ndarray, ...]:
    """Return rows, targets and the ends of their ranges of 442 patients."""
    try:
        from sklearn.datasets import load_diabetes
    except ImportError as error:
        raise ImportError("the data need the extra dpanalysis-toolkit[benchmarks]") from error

    X, y = load_diabetes(return_X_y=True, scaled=False)
    return X, y, np.array(_LOW, float), np.array(_HIGH, float), np.array(_TARGET, float)


def synthetic(n: int, d: int) -> tuple[np.ndarray, ...]:
    """Return normal columns with correlations of 1/2, and a linear target with noise."""
    random = np.random.default_rng(d)
    common = random.normal(size=(n, 1))
    X = math.sqrt(0.5) * (common + random.normal(size=(n, d)))
    y = X @ random.normal(size=d) / math.sqrt(d) + 0.5 + 0.5 * random.normal(size=n)
    return X, y, np.full(d, -3.0), np.full(d, 3.0), np.array([-4.0, 4.0])


DATA = {
    "diabetes": diabetes,
    "synthetic, d = 5": lambda: synthetic(10_000, 5),
    "synthetic, d = 30": lambda: synthetic(10_000, 30),
}


def adassp(data: dict[str, Any], epsilon: float, delta: float, seed: int) -> np.ndarray:
    """Return predictions of AdaSSP on rows in [-1, 1] with a constant, targets in [-1, 1].

    One record replaced moves the smallest eigenvalue by R^2 at most, with R^2 = d + 1, the
    covariances by sqrt(2) R^2, in the Frobenius norm, and X'y by 2R; the three have equal parts of
    the budget.
    """
    from dpanalysis import Budget
    from dpanalysis.privacy import calibrate
    from dpanalysis.privacy.events import Gaussian, Repeated

    random = np.random.default_rng(seed)
    low, high, target = data["low"], data["high"], data["target"]
    X, X_test = (
        np.column_stack([np.clip((2 * x - low - high) / (high - low), -1, 1), np.ones(len(x))])
        for x in (data["X"], data["X_test"])
    )
    middle, half = target.mean(), 0.5 * (target[1] - target[0])
    y = np.clip((data["y"] - middle) / half, -1.0, 1.0)
    m = square = X.shape[1]
    std = calibrate(
        lambda std: Repeated(Gaussian(std, 1.0), 3), Budget(epsilon, delta), (1e-3, 1e6)
    )
    A = X.T @ X
    chance = 0.05  # of each of its bounds to fail, as in the paper
    least = np.linalg.eigvalsh(A)[0] + square * std * random.normal()
    least = max(least - square * std * math.sqrt(2.0 * math.log(2.0 / chance)), 0.0)
    # Noise of the upper triangle, in an orthonormal basis of the symmetric matrices.
    noise = math.sqrt(2.0) * square * std * random.normal(size=(m, m))
    noisy = A + 0.5 * (noise + noise.T)
    spread = square * std * math.sqrt(m * math.log(2.0 * m**2 / chance))
    ridge = max(0.0, spread - least)
    b = X.T @ y + 2.0 * math.sqrt(square) * std * random.normal(size=m)
    w = np.linalg.lstsq(noisy + ridge * np.eye(m), b)[0]
    return np.asarray(middle + half * (X_test @ w))


class RegressionRunner(Runner):
    """Runs cells of regression; the rows of the test are drawn by the seed."""

    task = "regression"
    methods = METHODS

    def _load(self, name: str) -> dict[str, Any]:
        name, _, seed = name.rpartition(" #")
        X, y, low, high, target = DATA[name]()
        rows = np.random.default_rng(int(seed)).permutation(len(y))
        test, train = np.split(rows, [len(y) // 5])
        return {
            "X": X[train], "y": y[train], "X_test": X[test], "y_test": y[test],
            "low": low, "high": high, "target": target,
        }  # fmt: skip

    def _measures(self, scores: np.ndarray) -> dict[str, float]:
        y = self._data["y_test"]
        return {"r2": 1.0 - float(np.mean((y - scores) ** 2) / np.var(y))}

    def _ours(self, cell: Cell, delta: float) -> tuple[np.ndarray, float]:
        from dpanalysis.linear_model import Ridge

        data, began = self._data, time.perf_counter()
        if cell.method == ADASSP:
            found = adassp(data, cell.epsilon, delta, cell.seed)
            return found, time.perf_counter() - began
        model = Ridge(
            cell.epsilon,
            delta,
            bounds=(data["low"], data["high"]),
            target_bounds=tuple(data["target"]),
            random_state=cell.seed,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the fits before, and little data
            model.fit(data["X"], data["y"])
        seconds = time.perf_counter() - began
        return model.predict(data["X_test"]), seconds


def cells(seeds: int) -> Iterator[Cell]:
    """Yield all cells, data by data and seed by seed."""
    for data in DATA:
        for seed in range(seeds):
            for method, (_, deltas) in METHODS.items():
                for delta in deltas:
                    for epsilon in (np.inf,) if delta == "none" else EPSILONS:
                        yield Cell(f"{data} #{seed}", method, epsilon, delta, seed)


def main(argv: list[str], machine: dict[str, str]) -> int:
    """Run the comparison and write its table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks regression", description=__doc__.split("\n\n")[0]
    )
    parser.add_argument(
        "--diffprivlib", metavar="PYTHON", default=os.environ.get("DPANALYSIS_DIFFPRIVLIB"),
        help="interpreter of an environment with diffprivlib (or $DPANALYSIS_DIFFPRIVLIB); left "
        "out without one",
    )  # fmt: skip
    parser.add_argument("--seeds", type=int, default=20, help="default: %(default)s")
    parser.add_argument("--out", type=Path, default=FOLDER, metavar="DIR", help="of the tables")
    arguments = parser.parse_args(argv)
    arguments.out.mkdir(parents=True, exist_ok=True)
    where, rows = pythons({"diffprivlib": arguments.diffprivlib}), []
    with RegressionRunner(where) as runner:
        for cell in cells(arguments.seeds):
            if METHODS[cell.method][0] in where:
                rows.append(runner.run(cell))
        versions = dict(runner.versions)
    refused = {
        f"{row['method']}, epsilon {row['epsilon']:g}": row["refused"]
        for row in rows
        if "refused" in row
    }
    table = summary([row for row in rows if "refused" not in row])
    write(arguments.out / "regression.csv", FIELDS, table)
    about = {
        **machine,
        "rivals": versions,
        "not run": sorted(set(METHODS) - {row["method"] for row in rows}),
        "refused": refused,
        "relation": "one record replaced",
        "delta": "0 (pure) or n**-1.1 (approximate)",
        "bounds": "ranges of the columns and of the target, the same for all",
        "rows": "a fifth for the test, drawn anew by each seed",
        "r2": "median and quartiles over the seeds",
    }
    (arguments.out / "regression.json").write_text(
        json.dumps(about, indent=1) + "\n", encoding="utf-8"
    )
    print(by_epsilon(table, EPSILONS, score))
    return 0


def summary(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return medians and quartiles over the seeds: the mean of bad fits is that of the worst."""
    found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        data = row["data"].rpartition(" #")[0]
        found.setdefault((data, row["method"], row["delta"], row["epsilon"]), []).append(row)
    table = []
    for (data, method, delta, epsilon), group in found.items():
        n, d = DATA[data]()[0].shape
        low, middle, high = np.quantile([row["r2"] for row in group], (0.25, 0.5, 0.75)).tolist()
        table.append({
            "data": data, "n": n - n // 5, "d": d, "method": method, "delta": delta,
            "epsilon": epsilon, "seeds": len(group), "r2": middle, "r2_low": low, "r2_high": high,
            "seconds": float(np.median([row["seconds"] for row in group])),
        })  # fmt: skip
    return table


def score(row: Mapping[str, Any]) -> str:
    """Return median and quartiles of a row."""
    return f"{row['r2']:.3g} ({row['r2_low']:.3g}, {row['r2_high']:.3g})"
