"""jax-privacy: accounting of DP-SGD, selection of batches, clipping."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from scipy import special

from dpanalysis.papers.claim import Effort, Evidence, printed

from ..protocol import Worker
from ..registry import Package, register
from ._exact import Setting, composed_delta, margins, replaced_losses
from ._tools import CONFIDENCE

PACKAGE = Package(
    name="jax-privacy",
    version="2.0.0",
    probe=Path(__file__).parents[1] / "probes" / "jax_privacy.py",
    setting="POISSON: a record is added, removed or zeroed. FIXED_BATCH_SIZE: one is replaced.",
)


@register(
    PACKAGE,
    1,
    "docstrings of `accounting.SamplingMethod` and `accounting.DpsgdTrainingAccountant`",
    "`compute_epsilon` is an upper bound, for POISSON under add/remove",
    configuration="one step; batches of 10 to 500 of 1000 records, multipliers from 0.5 to 8, "
    "delta from 1e-7 to 1e-3; both accountants",
    untested="many steps, cycles, truncated batches, schedules",
    verdict="holds",
)
def poisson(worker: Worker, effort: Effort) -> Iterator[Evidence]:
    """Compare the reported epsilon with the exact one."""
    rng = effort.random()
    chosen: list[Setting] = []
    asked = []
    while len(chosen) < effort.cases(30, 300):
        batch, sigma = int(rng.integers(10, 500)), float(rng.uniform(0.5, 8.0))
        setting = Setting(sigma, batch / 1000, 1, float(10.0 ** -rng.uniform(3.0, 7.0)))
        if setting.exact > 0.01:
            chosen.append(setting)
            asked.append(
                {
                    "sigma": sigma,
                    "records": 1000,
                    "batch": batch,
                    "steps": 1,
                    "delta": setting.delta,
                }
            )
    for kind in ("pld", "rdp"):
        reported = worker.call("epsilons", kind=kind, sampling="POISSON", settings=asked)
        least, loose = margins(reported, chosen)
        what = f"{kind}: least (reported - exact); median of reported/exact is {loose:.4f}"
        yield printed(what, least, ">=", 0.0, tolerance=1e-9, cases=len(chosen))


@register(
    PACKAGE,
    2,
    "docstring of `accounting.SamplingMethod`",
    "FIXED_BATCH_SIZE: 'a random subset of size batch_size. Compatible with replace adjacency'",
    configuration="clip norm 1; the record is 1 or -1 and all others are 0, and 2 or 0 beside "
    "others (a shift of all others to -1); 1, 10 and 100 steps at rates 0.01, 0.1, 0.5, delta = "
    "1e-5, both accountants",
    untested="data other than these two pairs, batches that change",
    verdict="holds",
)
def fixed_size(worker: Worker, effort: Effort) -> Iterator[Evidence]:
    """Compare the given delta with a lower bound on delta at the reported epsilon."""
    cases = [(0.01, 1.0, 1), (0.1, 2.0, 10), (0.5, 4.0, 10)]
    cases += [] if effort.quick else [(0.01, 1.0, 100), (0.1, 4.0, 100), (0.5, 8.0, 100)]
    for kind in ("pld", "rdp"):
        worst = 0.0
        for rate, sigma, steps in cases:
            setting = {
                "sigma": sigma,
                "records": 1000,
                "batch": round(1000 * rate),
                "steps": steps,
                "delta": 1e-5,
            }
            reported = worker.call(
                "epsilons", kind=kind, sampling="FIXED_BATCH_SIZE", settings=[setting]
            )
            for moved in ((1.0, -1.0), (2.0, 0.0), (0.0, 2.0)):
                losses, masses = replaced_losses(rate, sigma, moved)
                worst = max(worst, composed_delta(losses, masses, steps, float(reported[0])) / 1e-5)
        what = f"{kind}: largest (delta at the epsilon reported, at least) / delta"
        yield printed(what, worst, "<=", 1.0, cases=3 * len(cases))


@register(
    PACKAGE,
    3,
    "docstring of `batch_selection.CyclicPoissonSampling`",
    "'every index independently appears in each batch ... with probability sampling_prob'; 'with "
    "truncation ... we select truncated_batch_size of them uniformly at random'",
    configuration="three records, rate 0.3, no truncation and truncation to 1; cycle_length=1",
    untested="cycles, partitions, records beyond three, other strategies",
    verdict="holds",
)
def selection(worker: Worker, effort: Effort) -> Iterator[Evidence]:
    """Compare frequencies with the known probabilities of all eight batches, simultaneously."""
    rate, count = 0.3, effort.cases(50_000, 1_000_000)
    codes = np.arange(8)
    sizes = np.array([code.bit_count() for code in range(8)])
    free = rate**sizes * (1.0 - rate) ** (3 - sizes)
    one = np.where(sizes == 0, free, np.where(sizes == 1, (1.0 - free[0]) / 3.0, 0.0))
    for truncated, law in ((None, free), (1, one)):
        drawn = worker.call(
            "batches", records=3, rate=rate, batches=count, truncated=truncated, seed=0
        )
        seen = np.bincount(drawn @ np.array([1, 2, 4]), minlength=8)[codes]
        miss = (1.0 - CONFIDENCE) / 16.0
        low = np.where(
            seen > 0, special.betaincinv(np.maximum(seen, 1), count - seen + 1, miss), 0.0
        )
        high = np.where(
            seen < count, special.betaincinv(seen + 1, np.maximum(count - seen, 1), 1.0 - miss), 1.0
        )
        outside = float(np.max(np.maximum(low - law, law - high)))
        what = f"truncation {truncated}: largest distance of a probability from its interval"
        yield printed(what, max(0.0, outside), "<=", 0.0, cases=count)


@register(
    PACKAGE,
    4,
    "docstring of `clipping.clipped_grad`",
    "'The L2 sensitivity of the returned function ... under add/remove ... is l2_clip_norm'; "
    "nan_safe=True by default",
    configuration="gradient = record; rows of 4 entries from 1e-30 to 1e30, one of NaN, one of "
    "infinity, and one whose gradient overflows; l2_clip_norm=1",
    untested="rescaling, microbatches, user-level clipping, auxiliary outputs",
    verdict="holds",
)
def clipping(worker: Worker, effort: Effort) -> Iterator[Evidence]:
    """Test the norm of one record's contribution."""
    rng, worst, cases = effort.random(), 0.0, effort.cases(30, 300)
    for _ in range(cases):
        row = rng.standard_normal(4) * 10.0 ** rng.uniform(-30.0, 30.0)
        total = worker.call("clipped_sum", rows=row[None].astype(np.float32), clip_norm=1.0)
        worst = max(worst, float(np.linalg.norm(total)))
    yield printed(
        "largest norm of one record, clipped to 1", worst, "<=", 1.0, tolerance=1e-6, cases=cases
    )
    for name, size, factor in (
        ("NaN", np.nan, 1.0),
        ("infinity", np.inf, 1.0),
        ("3e38", 3e38, 10.0),
    ):
        rows = np.array([[size, 0.0], [1.0, 0.0]], dtype=np.float32)
        both = worker.call("clipped_sum", rows=rows, clip_norm=1.0, factor=factor)
        other = worker.call("clipped_sum", rows=rows[1:], clip_norm=1.0, factor=factor)
        moved = float(np.linalg.norm(both - other))
        yield printed(f"{name}: norm of what the record adds", moved, "<=", 1.0, tolerance=1e-6)
