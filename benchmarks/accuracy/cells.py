"""The cells of the comparison: one fit of one method to one data set, at one budget and seed."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from dpanalysis import datasets
from dpanalysis.datasets import tables
from dpanalysis.preprocessing import PublicColumns

EPSILONS = (0.1, 0.5, 1.0, 4.0)
SEEDS = range(5)
GRID = (0.001, 0.01, 0.1, 10.0)  # of C, around the default 1
REAL = ("adult", "bank", "a9a", "ijcnn1", "covertype")
BUNDLED = ("breast_cancer", "digits")
A9A = (5, 8, 5, 16, 5, 7, 14, 6, 5, 2, 2, 2, 5, 41)  # indicators of each attribute
IJCNN1 = 10  # indicators of the first attribute

ADDED = "dpanalysis, one added or removed"  # the relation of Opacus
TUNED = "dpanalysis, tuned privately"
#: Where the means of five seeds are nearer to each other than their errors: so many, of ours and of
#: diffprivlib's default.
MORE = {"ijcnn1": 25}
#: Method -> the library that runs it (ours: here), and which kinds of delta it takes.
METHODS = {
    "dpanalysis": ("dpanalysis", ("pure", "approximate")),
    ADDED: ("dpanalysis", ("approximate",)),
    TUNED: ("dpanalysis", ("pure",)),
    "diffprivlib": ("diffprivlib", ("pure",)),
    **{f"diffprivlib C={C:g}": ("diffprivlib", ("pure",)) for C in GRID},
    "Opacus DP-SGD": ("opacus", ("approximate",)),
    "scikit-learn": ("sklearn", ("none",)),
}


@dataclass(frozen=True)
class Cell:
    """What is fitted; ``delta`` is ``"pure"``, ``"approximate"`` or ``"none"``."""

    data: str
    method: str
    epsilon: float
    delta: str
    seed: int


def cells(names: tuple[str, ...], seeds: range) -> Iterator[Cell]:
    """Yield all cells, seed by seed, so that what is there early is a whole comparison.

    DP-SGD, whose fits take a minute each, comes after that, and the seeds of ``MORE`` last.
    """
    for slow, seed in itertools.product((False, True), seeds):
        for data in names:
            for method, (library, deltas) in METHODS.items():
                for delta in deltas if (library == "opacus") == slow else ():
                    if delta == "none":
                        if seed == 0:
                            yield Cell(data, method, np.inf, delta, seed)
                        continue
                    for epsilon in EPSILONS:
                        yield Cell(data, method, epsilon, delta, seed)
    if len(seeds) < len(SEEDS):
        return
    for data in set(MORE) & set(names):
        for seed, method in itertools.product(
            range(len(seeds), MORE[data]), ("dpanalysis", "diffprivlib")
        ):
            for epsilon in EPSILONS:
                yield Cell(data, method, epsilon, "pure", seed)


def load(name: str) -> dict[str, Any]:
    """Return training and test rows, dense, labels -1 and +1, and the public columns."""
    data = datasets.load(name)
    if name == "digits":  # one class against another: an even number or not
        data = datasets.Dataset(data.X, np.where(data.y % 2, 1.0, -1.0), None, None, name, ())
    if data.X_test is None:
        data = data.split(0.2, rng=0)
    low, groups = np.zeros(data.d), _groups(name)
    if name == "ijcnn1":
        low[IJCNN1:] = -1.0
    columns = PublicColumns(low, np.ones(data.d), tuple(groups))
    X, X_test = (x.toarray() if sp.issparse(x) else x for x in (data.X, data.X_test))
    X, X_test = (np.clip(x, columns.low, columns.high) for x in (X, X_test))
    return {
        "X": X, "y": data.y, "X_test": X_test, "y_test": data.y_test,
        "radius": columns.radius(2), "columns": columns,
    }  # fmt: skip


def _groups(name: str) -> list[tuple[int, int]]:
    """Return the groups of indicators of which one is lit."""
    if name == "a9a":
        ends = np.cumsum(A9A).tolist()
        return list(zip([0, *ends[:-1]], ends))
    if name == "ijcnn1":
        return [(0, IJCNN1)]
    if name == "covertype":
        return [(10, 14), (14, 54)]
    groups, width = [], 0
    for domain in {"adult": tables.ADULT, "bank": tables.BANK}.get(name, {}).values():
        size = 1 if len(domain) == 2 and not isinstance(domain[0], str) else len(domain)
        if size > 1:
            groups.append((width, width + size))
        width += size
    return groups


def area(scores: np.ndarray, y: np.ndarray) -> float:
    """Return the area under the curve: how often a positive row scores above a negative one."""
    from scipy.stats import mannwhitneyu

    positive, negative = scores[y > 0], scores[y <= 0]
    return float(mannwhitneyu(positive, negative).statistic / (positive.size * negative.size))


class Runner:
    """Runs cells, each library in its own process; data sets are written once for all of them."""

    def __init__(self, pythons: dict[str, str]) -> None:
        self._pythons, self._stack = pythons, ExitStack()
        self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
        self._processes: dict[str, Any] = {}
        self.versions: dict[str, str] = {}
        self._name, self._data = "", {}  # type: ignore[var-annotated]

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *error: Any) -> None:
        for process in self._processes.values():
            process.stdin.close()
            process.wait()
        self._stack.close()

    def run(self, cell: Cell) -> dict[str, Any]:
        """Return the cell with its measures and seconds of the fit, or why it was refused."""
        if cell.data != self._name:
            self._name, self._data = cell.data, self._load(cell.data)
            plain = {k: v for k, v in self._data.items() if k != "columns"}
            np.savez(self._folder / "data.npz", **plain)
        library = self.methods[cell.method][0]
        n = len(self._data["y"])
        delta = n**-1.1 if cell.delta == "approximate" else 0.0
        if library == "dpanalysis":
            scores, seconds = self._ours(cell, delta)
        else:
            answer = self._rival(library, cell, delta)
            if "refused" in answer:
                return {**asdict(cell), **answer}
            scores, seconds = np.load(self._folder / "scores.npy"), answer["seconds"]
        return {**asdict(cell), **self._measures(scores), "seconds": seconds}

    # Of a task

    task = "classification"
    methods = METHODS

    def _load(self, name: str) -> dict[str, Any]:
        return load(name)

    def _measures(self, scores: np.ndarray) -> dict[str, float]:
        y = self._data["y_test"]
        accuracy = float(np.mean(np.where(scores > 0, 1.0, -1.0) == y))
        return {"accuracy": accuracy, "auc": area(scores, y)}

    def _ours(self, cell: Cell, delta: float) -> tuple[np.ndarray, float]:
        from dpanalysis.linear_model import LogisticRegression

        model = LogisticRegression(
            cell.epsilon,
            delta,
            C="private" if cell.method == TUNED else "auto",
            bounds=self._data["columns"],
            relation="add_or_remove_one" if cell.method == ADDED else "replace_one",
            random_state=cell.seed,
        )
        began = time.perf_counter()
        model.fit(self._data["X"], self._data["y"])
        seconds = time.perf_counter() - began
        return model.decision_function(self._data["X_test"]), seconds

    def _rival(self, library: str, cell: Cell, delta: float) -> dict[str, Any]:
        process = self._process(library)
        request = {
            "data": str(self._folder / "data.npz"), "out": str(self._folder / "scores.npy"),
            "epsilon": min(cell.epsilon, 1e9), "delta": delta, "seed": cell.seed, "task": self.task,
        }  # fmt: skip
        if "C=" in cell.method:
            request["C"] = float(cell.method.partition("C=")[2])
        print(json.dumps(request), file=process.stdin, flush=True)
        answer = process.stdout.readline()
        if not answer:
            raise RuntimeError(f"{library} ended at {cell}")
        return dict(json.loads(answer))

    def _process(self, library: str) -> Any:
        if library not in self._processes:
            process = subprocess.Popen(
                [self._pythons[library], str(Path(__file__).with_name("rivals.py")), library],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                cwd=self._folder,
            )
            assert process.stdout is not None
            self.versions.update(json.loads(process.stdout.readline()))
            self._processes[library] = process
        return self._processes[library]


def missing_data(names: tuple[str, ...]) -> bool:
    """Whether one of the data sets is nowhere to be found."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for name in names:
                datasets.load(name)
    except (FileNotFoundError, OSError):
        return True
    return False


def pythons(given: dict[str, str | None]) -> dict[str, str]:
    """Return the interpreter of each library that can be run."""
    found = {"dpanalysis": sys.executable, "sklearn": sys.executable}
    return found | {library: python for library, python in given.items() if python}
