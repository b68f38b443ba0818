"""How the default penalty was found: ``python -m benchmarks penalty``.

Private fits at penalties from far below to far above the rule's, on all data sets and on a part
of each. A rule ``factor * tau**power`` is chosen by the data sets of ``FITTED`` alone: the one
with the least mean regret. The others only show what it is worth.
"""

from __future__ import annotations

import argparse
import csv
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from .cells import EPSILONS, REAL, area, load
from .tables import write

FITTED = ("adult", "bank", "ijcnn1")
PARTS = (1, 8)  # all rows, and one of eight
STEPS = (0.1, 0.2, 0.4, 0.8, 1.6)  # times tau**1.3
FACTORS, POWERS = np.geomspace(0.05, 3.2, 61), np.linspace(1.0, 1.6, 13)
FIELDS = (
    "data", "n", "epsilon", "seed", "tau", "least", "strength", "accuracy", "auc", "log_loss",
)  # fmt: skip
RULES = ("rule", "data", "n", "epsilon", "strength", "accuracy", "auc", "log_loss", "regret")
FOLDER = Path(__file__).parents[2] / "figures" / "results" / "accuracy"


def fits(names: Sequence[str], seeds: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Yield what private fits of many penalties reach on the test rows."""
    from dpanalysis import ERM, Budget, minimize
    from dpanalysis.linear_model.design import design_of
    from dpanalysis.linear_model.runs import least_penalty, noise_length, perturbation
    from dpanalysis.losses import Logistic

    for name, part in itertools.product(names, PARTS):
        data = load(name)
        design, _ = design_of(data["columns"], None, data["columns"].d, True, False)
        rows, test, y = design.rows(data["X"]), design.rows(data["X_test"]), data["y_test"]
        kept = np.random.default_rng(0).permutation(len(rows))[: len(rows) // part]
        problem = ERM(rows[kept], data["y"][kept], Logistic(), row_bound=design.row_bound)
        for epsilon in EPSILONS:
            budget = Budget(epsilon)
            facts = problem.facts(budget.relation)
            tau = noise_length(facts, budget)
            least = least_penalty(facts, budget)
            for strength in sorted({max(step * tau**1.3, least) for step in STEPS}):
                method = replace(perturbation(), ridge=strength)
                for seed in seeds:
                    w = minimize(problem, method, budget, rng=seed, record=()).w[0]
                    z = test @ w
                    yield {
                        "data": name, "n": problem.n, "epsilon": epsilon, "seed": seed,
                        "tau": tau, "least": least, "strength": strength,
                        "accuracy": float(np.mean(np.where(z > 0, 1.0, -1.0) == y)),
                        "auc": area(z, y), "log_loss": float(np.logaddexp(0.0, -y * z).mean()),
                    }  # fmt: skip


class Curves:
    """Mean accuracy, area and log loss over the strength of the penalty, between the fits."""

    def __init__(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self._found: dict[tuple[str, int, float], list[Mapping[str, Any]]] = {}
        for row in rows:
            key = str(row["data"]), int(row["n"]), float(row["epsilon"])
            self._found.setdefault(key, []).append(row)
        self.keys = list(self._found)
        self._curves = {key: self._curve(group) for key, group in self._found.items()}

    @staticmethod
    def _curve(group: Sequence[Mapping[str, Any]]) -> tuple[np.ndarray, np.ndarray]:
        strengths = np.array([float(row["strength"]) for row in group])
        values = np.array(
            [[float(row[k]) for k in ("accuracy", "auc", "log_loss")] for row in group]
        )
        found = np.unique(strengths)
        return np.log(found), np.array([values[strengths == s].mean(axis=0) for s in found])

    def strength(self, key: tuple[str, int, float], factor: float, power: float) -> float:
        """Return the penalty of a rule."""
        row = self._found[key][0]
        return max(factor * float(row["tau"]) ** power, float(row["least"]))

    def at(self, key: tuple[str, int, float], strength: float) -> np.ndarray:
        """Return accuracy, area and log loss at a strength, by lines between the fits."""
        x, values = self._curves[key]
        return np.array([np.interp(np.log(strength), x, column) for column in values.T])

    def regret(self, key: tuple[str, int, float], strength: float) -> float:
        """Return how much is lost to the best of each, added up."""
        values = self._curves[key][1]
        best = np.array([values[:, 0].max(), values[:, 1].max(), values[:, 2].min()])
        return float(np.abs(best - self.at(key, strength)).sum())

    def rule(self, names: Sequence[str]) -> tuple[float, float]:
        """Return factor and power of the rule that is best for some of the data sets."""
        keys = [key for key in self.keys if key[0] in names]

        def loss(rule: tuple[float, float]) -> float:
            return float(sum(self.regret(key, self.strength(key, *rule)) for key in keys))

        factor, power = min(itertools.product(FACTORS, POWERS), key=loss)
        return float(factor), float(power)


def main(argv: list[str]) -> int:
    """Fit, choose the rule, and say what it and the one in use lose."""
    from dpanalysis.linear_model.runs import FACTOR, POWER

    parser = argparse.ArgumentParser(
        prog="python -m benchmarks penalty", description=__doc__.split("\n\n")[0]
    )
    parser.add_argument("--seeds", type=int, default=3, help="default: %(default)s")
    parser.add_argument("--again", action="store_true", help="the rule of the fits that are kept")
    parser.add_argument("--out", type=Path, default=FOLDER, metavar="DIR", help="of the tables")
    arguments = parser.parse_args(argv)
    arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.out / "penalty_fits.csv"
    if not arguments.again:
        # Other seeds than those of the comparison.
        seeds, found = range(100, 100 + arguments.seeds), []
        for row in fits(REAL, seeds):
            print(*(row[name] for name in FIELDS), flush=True)
            found.append(row)
        write(path, FIELDS, found)
    with open(path, newline="", encoding="utf-8") as file:
        curves = Curves(list(csv.DictReader(file)))
    rules = {"in use": (FACTOR, POWER), "best of the fitted": curves.rule(FITTED)}
    rules["best of all"] = curves.rule([key[0] for key in curves.keys])
    table = []
    for name, rule in rules.items():
        for key in curves.keys:
            strength = curves.strength(key, *rule)
            values = dict(zip(("accuracy", "auc", "log_loss"), curves.at(key, strength)))
            regret = curves.regret(key, strength)
            table.append(
                {"rule": name, **dict(zip(RULES[1:4], key)), "strength": strength, **values}
                | {"regret": regret}
            )
        for fitted in (True, False):
            lost = [
                row["regret"]
                for row in table
                if row["rule"] == name and (row["data"] in FITTED) == fitted
            ]
            where = "data sets it was fitted to" if fitted else "data sets held back"
            print(
                f"{name}: {rule[0]:.3g} tau**{rule[1]:.3g}, {where}: mean regret "
                f"{np.mean(lost):.4f}, largest {max(lost):.4f}"
            )
    write(arguments.out / "penalty.csv", RULES, table)
    return 0
