"""What exact noise costs: a step and the noise alone, by ``rng="os"`` beside a seeded generator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

import dpanalysis as dpa
from dpanalysis.privacy import mechanisms
from dpanalysis.privacy.oracle import PrivateOracle

from .measure import compare, effort, here
from .table import Row
from .targets import SEEDED


def step(problem: dpa.ERM, source: object) -> Callable[[], object]:
    """Return one noisy gradient of all records."""
    oracle = PrivateOracle(problem, problem.facts("replace_one"), None, [source])
    w = np.zeros(problem.d)
    return lambda: oracle.gradient(w, dpa.Full(), "gaussian", 0.01)


def run(quick: bool) -> Iterator[Row]:
    """Run all comparisons; quick: a tenth of the records."""
    spent, sources = effort(quick), [mechanisms.random_source(rng) for rng in ("os", 0)]
    random = np.random.default_rng(0)
    for n, d in ((20_000, 100), (20_000, 1000)):
        X = random.uniform(-1.0, 1.0, size=(n // 10 if quick else n, d))
        y = np.sign(X[:, 0])
        problem = dpa.ERM(X, y, dpa.losses.Logistic(), row_bound=dpa.RowBound(2, d**0.5))
        exact, seeded = (here(step(problem, source)) for source in sources)
        size = f"{problem.n:,} x {d}"
        yield from compare("full-batch step with exact noise", size, exact, {SEEDED: seeded}, spent)
    for law in ("laplace", "gaussian", "spherical"):
        for d in (1000, 100_000) if law != "spherical" else (1000,):
            exact, seeded = (
                here(partial(mechanisms.noisy, source, np.zeros(d), law, 1.0)) for source in sources
            )
            yield from compare(f"exact {law} noise", f"{d:,}", exact, {SEEDED: seeded}, spent)
