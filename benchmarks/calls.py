"""Calls of the package's own functions: in one step, and before an estimator's first noise.

Calls are counted by ``sys.setprofile``, so that the numbers are equal on all machines. A call of
compiled code counts as one.
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import dpanalysis as dpa
from dpanalysis.linear_model import LogisticRegression

from .table import Row

PACKAGE = str(Path(dpa.__file__).parent)
NOISE = ("noise.py", "exact_noise.py")


def counted(work: Callable[[], object], until: tuple[str, ...] = ()) -> Counter[str]:
    """Return the number of calls per file of the package, until a function in ``until``."""
    found: Counter[str] = Counter()
    on = True

    def note(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal on
        code = frame.f_code
        if not on or event != "call" or not code.co_filename.startswith(PACKAGE):
            return
        name = code.co_filename.removeprefix(PACKAGE)
        # Code that runs once, at import, is not counted.
        if code.co_name == "<module>" or not frame.f_code.co_flags & 0x0002:
            return
        on = not (name.endswith(until) and code.co_name[0] != "_") if until else on
        found[name] += on

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return found


def step() -> Counter[str]:
    """Return the calls of one step of gradient descent on all records, with Laplace noise."""
    X = np.random.default_rng(0).normal(size=(200, 5))
    problem = dpa.ERM(
        X, np.sign(X[:, 0]), dpa.losses.Logistic(), dpa.regularizers.L2(0.1),
        row_bound=dpa.RowBound(2, 1.0),
    )  # fmt: skip

    def run(iterations: int) -> Callable[[], object]:
        method = dpa.methods.GradientDescent(0.1, iterations)
        return lambda: dpa.minimize(problem, method, dpa.Budget(1.0), rng=0, record=())

    run(2)()  # warm up
    short, long = counted(run(12)), counted(run(112))
    long.subtract(short)
    return Counter({name: round(calls / 100) for name, calls in long.items() if calls >= 100})


def before_noise() -> Counter[str]:
    """Return the calls of a fit before its first noise is drawn."""
    X = np.random.default_rng(0).normal(size=(200, 5))
    options = {"bounds": (-4.0, 4.0), "classes": [-1, 1], "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # A fit of another shape imports modules but caches nothing that this one uses.
        LogisticRegression(0.7, **options).fit(X[:150, :3], np.sign(X[:150, 0]))
        return counted(
            lambda: LogisticRegression(1.0, **options).fit(X, np.sign(X[:, 0])), until=NOISE
        )


def run(quick: bool = False) -> Iterator[Row]:
    """Count both."""
    for what, found in (("one full-batch step", step()), ("fit before its noise", before_noise())):
        yield Row(what, f"in {len(+found)} files", (float(sum(found.values())),), unit="calls")
