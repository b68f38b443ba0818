"""Our own sums, with other values of constants that are fixed for all machines."""

from __future__ import annotations

import importlib
import itertools
import os
from collections.abc import Callable
from typing import Any

from . import data


def sums(
    n: int, d: int, dtype: str, entries: int, rate: float, constants: dict[str, int], cache: str
) -> dict[str, Callable[[], Any]]:
    """Return the sum over all rows, or one batch after another if ``rate`` < 1.

    Rows are sparse if they have a number of ``entries``. The constants are set before the kernels
    are compiled, into the folder ``cache`` of theirs: a cached kernel has the constants it was
    made with.
    """
    os.environ["NUMBA_CACHE_DIR"] = cache
    for name, number in constants.items():
        module, _, constant = name.rpartition(".")
        owner = importlib.import_module(f"dpanalysis.kernels.{module}")
        if not isinstance(getattr(owner, constant), int):
            raise TypeError(f"{name} is not a whole number")
        setattr(owner, constant, number)
    from dpanalysis import ERM, clipping, losses

    X, y, w, _ = data.csr(n, d, entries) if entries else data.dense(n, d, dtype)
    problem, rule = ERM(X, y, losses.Logistic()), clipping.Flat(data.CLIP)
    rows = itertools.cycle([None] if rate == 1 else data.batches(n, rate, False))
    return {"sum": lambda: problem.sums(w, next(rows), clipping=rule, value=False).gradient}
