"""Gradient sums of every width beside NumPy's and SciPy's closed forms, on one thread and on two.

Rows of 4 to 784 numbers, from a thousand to a million rows, in double and single precision;
minibatches; replicates; sparse rows. The peer computes in the precision of the data, ours always in
double precision.
"""

from __future__ import annotations

from collections.abc import Iterator

from . import kernels
from .table import Row

WIDTHS = (4, 8, 14, 20, 32, 54, 124, 784)
ROWS = (1_000, 10_000, 100_000, 1_000_000)
MOST_ENTRIES = 50_000_000  # 400 MB in double precision


def run(quick: bool) -> Iterator[Row]:
    """Run all comparisons; quick: one size of data, and every other width."""
    widths = WIDTHS[1::2] if quick else WIDTHS
    for dtype in ("float64", "float32"):
        key = "dense rows" if dtype == "float64" else f"dense rows, {dtype}"
        for d in widths:
            for n in ROWS[2:3] if quick else ROWS:
                if n * d <= MOST_ENTRIES:
                    yield from kernels.dense(key, n, d, dtype, "logistic", False, quick)
    for d in widths:
        n = 100_000 if d < 124 else 20_000
        yield from kernels.minibatch("minibatch gradient", n, d, 0.01, quick)
        yield from kernels.replicates(n, d, 20, quick)
    for n, d, entries in ((1_000, 124, 14), (32_561, 124, 14), (100_000, 54, 12), (100_000, 20, 5)):
        yield from kernels.sparse("CSR rows", n, d, entries, quick)
