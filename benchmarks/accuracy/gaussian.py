"""Ways to spend a delta > 0, beside each other: ``python -m benchmarks gaussian``.

Objective perturbation, noisy descent as the default may take it, and Gaussian noise on the end of
a descent without noise, on all data sets and on an eighth of each.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from .cells import EPSILONS, REAL, area, load
from .penalty import FOLDER, PARTS
from .tables import write

FIELDS = ("data", "n", "epsilon", "method", "tau", "chosen", "accuracy", "auc")


def fits(seeds: int) -> Iterator[dict[str, Any]]:
    """Yield the mean over the seeds of what each method reaches on the test rows."""
    from dpanalysis import ERM, Budget, minimize
    from dpanalysis.linear_model.design import design_of
    from dpanalysis.linear_model.runs import (
        LONG,
        default_penalty,
        descent,
        noise_length,
        perturbation,
    )
    from dpanalysis.losses import Logistic
    from dpanalysis.methods import OutputPerturbation
    from dpanalysis.regularizers import L2

    for name, part in itertools.product(REAL, PARTS):
        data = load(name)
        design, _ = design_of(data["columns"], None, data["columns"].d, True, False)
        rows, test, y = design.rows(data["X"]), design.rows(data["X_test"]), data["y_test"]
        kept = np.random.default_rng(0).permutation(len(rows))[: len(rows) // part]
        rows, labels, bound = rows[kept], data["y"][kept], design.row_bound
        for epsilon in EPSILONS:
            budget = Budget(epsilon, len(rows) ** -1.1)
            plain = ERM(rows, labels, Logistic(), row_bound=bound)
            facts = plain.facts(budget.relation)
            strength, tau = default_penalty(facts, budget), noise_length(facts, budget)
            penalised = ERM(rows, labels, Logistic(), L2(strength), row_bound=bound)
            methods: dict[str, Any] = {
                "objective": (plain, replace(perturbation(), ridge=strength)),
                "descent": (plain, descent(facts, budget, always=True)),
                "output": (penalised, OutputPerturbation("gradient_descent", passes=100)),
            }
            for method, (problem, what) in methods.items():
                found = [
                    minimize(problem, what, budget, rng=100 + seed, record=()).w[0]
                    for seed in range(seeds)
                ]
                scores = [test @ w for w in found]
                right = [np.mean(np.where(z > 0, 1.0, -1.0) == y) for z in scores]
                yield {
                    "data": name, "n": len(rows), "epsilon": epsilon, "method": method, "tau": tau,
                    "chosen": (method == "descent") == (tau >= LONG) and method != "output",
                    "accuracy": float(np.mean(right)),
                    "auc": float(np.mean([area(z, y) for z in scores])),
                }  # fmt: skip


def main(argv: list[str]) -> int:
    """Run all and write the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks gaussian", description=__doc__.split("\n\n")[0]
    )
    parser.add_argument("--seeds", type=int, default=2, help="default: %(default)s")
    parser.add_argument("--out", type=Path, default=FOLDER, metavar="DIR", help="of the table")
    arguments = parser.parse_args(argv)
    arguments.out.mkdir(parents=True, exist_ok=True)
    table = []
    for row in fits(arguments.seeds):
        table.append(row)
        print(*(row[name] for name in FIELDS), flush=True)
    write(arguments.out / "gaussian.csv", FIELDS, table)
    return 0
