"""Opacus: accountants, the sampler of batches, per-sample gradients and clipping."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from scipy import special

from dpanalysis.papers.claim import Effort, Evidence, printed, used

from ..protocol import Worker
from ..registry import Package, register
from ._exact import Setting, composed_delta, margins, replaced_losses, settings
from ._tools import CONFIDENCE, asked

PACKAGE = Package(
    name="opacus",
    version="1.6.0",
    probe=Path(__file__).parents[1] / "probes" / "opacus.py",
    requirements=("torch==2.13.0",),
    setting="Records are added or removed; batches are Poisson samples.",
)


@register(
    PACKAGE,
    1,
    "docstrings of `RDPAccountant.get_epsilon` and `PRVAccountant.get_epsilon`",
    "both 'return privacy budget (epsilon) expended so far'; of the second: 'return upper bound as "
    "we want guarantee, not just estimate'",
    configuration="one step that is sampled, or up to 200 that are not; random multipliers from "
    "0.37 to 12, rates from 0.003 to 0.8, delta from 1e-9 to 0.01; 50 calls of `step` against one "
    "entry of the history",
    untested="sampled and composed at once, histories of several multipliers, `eps_error` other "
    "than the default",
    verdict="holds",
)
def upper_bounds(worker: Worker, effort: Effort) -> Iterator[Evidence]:
    """Compare the reported epsilon with the exact one."""
    chosen = settings(effort.random(), effort.cases(60, 1000))
    for mechanism in ("rdp", "prv"):
        reported = asked(worker, "epsilons", chosen, mechanism=mechanism)
        least, loose = margins(reported, chosen)
        what = f"{mechanism}: least (reported - exact); median of reported/exact is {loose:.4f}"
        yield printed(what, least, ">=", 0.0, tolerance=1e-9, cases=len(chosen))
        one = {"sigma": 2.0, "rate": 0.1, "steps": 50, "delta": 1e-5}
        whole = worker.call("epsilons", mechanism=mechanism, settings=[one])[0]
        steps = worker.call("stepped", mechanism=mechanism, **one)
        yield printed(f"{mechanism}: 50 steps, one by one", steps, "==", whole, tolerance=1e-9)


@register(
    PACKAGE,
    2,
    "warning of the constructor of `GaussianAccountant`",
    "'GDP accounting is experimental and can underestimate privacy expenditure': its epsilon is an "
    "estimate",
    configuration="random settings as in claim 1; and 300 steps at rate 0.01, multiplier 1, delta "
    "1e-5, many steps at a small rate, for which its central limit theorem is meant",
    untested="how far below it is elsewhere; the accountants that give bounds, which claim 1 tests",
    verdict="holds",
)
def gaussian_accountant(worker: Worker, effort: Effort) -> Iterator[Evidence]:
    """Test whether the warning is needed: whether epsilon as reported is too small somewhere."""
    chosen = settings(effort.random(1), effort.cases(60, 1000))
    least, loose = margins(asked(worker, "epsilons", chosen, mechanism="gdp"), chosen)
    what = f"least (reported - exact); median of reported/exact is {loose:.4f}"
    yield printed(what, least, "<=", 0.0, cases=len(chosen))
    many = Setting(sigma=1.0, rate=0.01, steps=300, delta=1e-5)
    (reported,) = asked(worker, "epsilons", [many], mechanism="gdp")
    losses, masses = replaced_losses(many.rate, many.sigma, (1.0, 0.0))
    delta = composed_delta(losses, masses, many.steps, float(reported), width=5e-4)
    what = "300 steps: (delta at the epsilon reported, at least) / delta"
    yield printed(what, delta / many.delta, ">=", 1.0)


@register(
    PACKAGE,
    3,
    "docstring of `UniformWithReplacementSampler`; PyTorch's issue 16706 is about its numbers",
    "'Each sample is selected with a probability equal to sample_rate'",
    "rates that are multiples of 2^-24: the numbers that are compared with the rate are float32 "
    "multiples of it, so the probability is ceil(2^24 rate)/2^24",
    configuration="sample_rate=1e-9 and 2^-20, CPU, up to 10^9 draws; and the excess at 1e-6 and "
    "1e-4 by that formula",
    untested="`secure_mode`, devices other than the CPU, several processes; what it costs, which "
    "is little at usual rates: from 1e-4 on the probability exceeds the rate by at most 0.06 %",
    verdict="corrected",
)
def sampler(worker: Worker, effort: Effort) -> Iterator[Evidence]:
    """Test the sampling probability by counts and by the grid of the random numbers."""
    off = worker.call("granularity", draws=10**6, seed=0)
    yield used("distance of uniform numbers from multiples of 2^-24, times 2^24", off, "<=", 0.0)
    records, batches = 10**6, effort.cases(100, 1000)
    draws = records * batches
    for rate, evidence in ((1e-9, printed), (2.0**-20, used)):
        count = worker.call("sampled", records=records, rate=rate, batches=batches, seed=1)
        low = special.betaincinv(count, draws - count + 1, 1.0 - CONFIDENCE) if count else 0.0
        what = f"rate {rate:.3g}: lower bound of the probability over the rate, by {count:,} draws"
        yield evidence(what, float(low) / rate, "<=", 1.0, cases=draws)
    for rate in (1e-6, 1e-4):
        excess = math.ceil(rate * 2**24) / 2**24 / rate
        yield printed(f"rate {rate:g}: probability over the rate", excess, "<=", 1.0)


@register(
    PACKAGE,
    4,
    "docstrings of `GradSampleModule` and `DPOptimizer`",
    "per-sample gradients are those of the records, and 'per sample norm is not above threshold' "
    "after clipping",
    configuration="linear, convolution (1 to 3 dimensions, strides, groups), embedding, "
    "normalisation, a layer used twice, DPLSTM, DPMultiheadAttention; five records each; against "
    "PyTorch, one record at a time. Clipping to 1 of rows of 4 entries from 1e-30 to 1e30",
    untested="ghost clipping, `functorch`, layers of one's own, distributed training, gradients "
    "that overflow (claim 5)",
    verdict="holds",
)
def clipping(worker: Worker, effort: Effort) -> Iterator[Evidence]:
    """Test relative differences of gradients, and the norm of one record's contribution."""
    for layer in worker.call("layers"):
        found = worker.call("gradients", layer=layer, records=5, scale=1.0, seed=0)
        theirs, ours = found["theirs"], found["ours"]
        off = float(np.max(np.abs(theirs - ours)) / np.max(np.abs(ours)))
        what = f"{layer}: largest difference over the largest entry"
        yield printed(what, off, "<=", 0.0, tolerance=1e-5, cases=theirs.size)
    rng, worst, cases = effort.random(), 0.0, effort.cases(50, 1000)
    for _ in range(cases):
        row = rng.standard_normal(4) * 10.0 ** rng.uniform(-30.0, 30.0)
        total = worker.call("clipped_sum", rows=row[None], clip_norm=1.0)
        worst = max(worst, float(np.linalg.norm(total)))
    # The tolerance is for products and sums in float32.
    yield printed(
        "largest norm of one record, clipped to 1", worst, "<=", 1.0, tolerance=1e-6, cases=cases
    )


@register(
    PACKAGE,
    5,
    "docstring of `DPOptimizer`",
    "'On a high level `DPOptimizer`'s step looks like this: ... Clip `p.grad_sample` so that per "
    "sample norm is not above threshold'",
    "rows that are bounded, so that no gradient overflows float32",
    configuration="a linear model, loss 10 times its output; rows (3e38, 0), (1, 0), finite "
    "float32 numbers, clipped to 1. Twin: (3e36, 0), (1, 0)",
    untested="mixed precision, other losses",
    verdict="corrected",
)
def overflow(worker: Worker, effort: Effort) -> Iterator[Evidence]:
    """Test a gradient that overflows: infinity times the factor 0 is NaN."""
    for size, evidence in ((3e38, printed), (3e36, used)):
        rows = np.array([[size, 0.0], [1.0, 0.0]])
        both = worker.call("clipped_sum", rows=rows, clip_norm=1.0, factor=10.0)
        other = worker.call("clipped_sum", rows=rows[1:], clip_norm=1.0, factor=10.0)
        moved = float(np.nan_to_num(np.linalg.norm(both - other), nan=np.inf))
        what = f"row ({size:g}, 0): norm of what it adds to the sum (infinite if that is NaN)"
        yield evidence(what, moved, "<=", 1.0, tolerance=1e-6)
