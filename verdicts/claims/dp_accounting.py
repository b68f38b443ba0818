"""dp-accounting: its two accountants."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from dpanalysis.papers.claim import Effort, Evidence, printed, used
from dpanalysis.privacy.accounting.zcdp import gaussian_epsilon

from ..protocol import Worker
from ..registry import Package, register
from ._exact import margins, settings
from ._tools import asked

PACKAGE = Package(
    name="dp-accounting",
    version="0.6.0",
    probe=Path(__file__).parents[1] / "probes" / "dp_accounting.py",
    setting="Neighbours are named by the accountant's `neighboring_relation`.",
)


@register(
    PACKAGE,
    1,
    "docstring of `PrivacyAccountant.compose`",
    "`compose(event, count)`: 'count: The number of times to compose the event'; later calls "
    "'return values that account for this DpEvent'",
    "`compose(event)`, called `count` times; the Renyi accountant counts either way",
    configuration="`PLDAccountant` and `RdpAccountant`, REPLACE_ONE, "
    "`RandomizedResponseDpEvent(0.5, 2)` ten times, delta = 1e-9",
    untested="`SelfComposedDpEvent`, other numbers of buckets",
    verdict="corrected",
)
def randomized_response(worker: Worker, effort: Effort) -> Iterator[Evidence]:
    """Compare with the exact epsilon of ten losses of +- ln 3, by the binomial distribution."""
    delta, loss, wins = 1e-9, math.log(3.0), np.arange(11)
    mass = np.array([math.comb(10, int(k)) * 0.75**k * 0.25 ** (10 - k) for k in wins])
    losses = (2 * wins - 10) * loss
    low, high = 0.0, 10.0 * loss
    for _ in range(100):
        middle = (low + high) / 2.0
        above = losses > middle
        excess = float(mass[above] @ -np.expm1(middle - losses[above]))
        low, high = (middle, high) if excess > delta else (low, middle)
    for kind, count, loops, evidence in (
        ("pld", 10, 1, printed),
        ("pld", 1, 10, used),
        ("rdp", 10, 1, used),
    ):
        reported = worker.call(
            "randomized_response",
            kind=kind,
            parameter=0.5,
            count=count,
            loops=loops,
            delta=delta,
        )
        what = f"{kind}, {loops} call(s) with count={count}: epsilon reported"
        yield evidence(what, reported, ">=", low, tolerance=1e-9)


@register(
    PACKAGE,
    2,
    "docstring of `GaussianDpEvent`",
    "`GaussianDpEvent`: 'If the norms of the values are bounded ||v_i|| <= C, the noise_multiplier "
    "is defined as s / C': no relation is named, so that this is the multiplier under each",
    "half the multiplier under REPLACE_ONE for the Renyi accountant (reported in the project's "
    "issue 378; its pull request 464 does this): it takes s over the sensitivity, 2 C",
    configuration="`GaussianDpEvent(5)`, 10 times, REPLACE_ONE, delta = 1e-5, both accountants",
    untested="sampling without replacement",
    verdict="corrected",
)
def replace_one(worker: Worker, effort: Effort) -> Iterator[Evidence]:
    """Compare with the exact epsilon: two records of norm C differ by up to 2 C."""
    exact = gaussian_epsilon(5.0 / 2.0 / math.sqrt(10.0), 1e-5)
    for kind, sigma, evidence in (("rdp", 5.0, printed), ("pld", 5.0, printed), ("rdp", 2.5, used)):
        setting = {"sigma": sigma, "rate": 1.0, "steps": 10, "delta": 1e-5}
        reported = worker.call("epsilons", kind=kind, relation="REPLACE_ONE", settings=[setting])
        what = f"{kind} of GaussianDpEvent({sigma:g}): epsilon reported for s = 5 C"
        yield evidence(what, float(reported[0]), ">=", exact)


@register(
    PACKAGE,
    3,
    "docstrings of `PLDAccountant` and `RdpAccountant`, `get_epsilon`",
    "epsilon as reported is an upper bound under ADD_OR_REMOVE_ONE",
    configuration="one step of a Poisson-sampled Gaussian, or up to 200 that are not sampled; "
    "random multipliers from 0.37 to 12, rates from 0.003 to 0.8, delta from 1e-9 to 0.01",
    untested="sampled and composed at once; other mechanisms",
    verdict="holds",
)
def upper_bounds(worker: Worker, effort: Effort) -> Iterator[Evidence]:
    """Compare the reported epsilon with the exact one."""
    chosen = settings(effort.random(), effort.cases(60, 1000))
    for kind in ("pld", "rdp"):
        reported = asked(worker, "epsilons", chosen, kind=kind, relation="ADD_OR_REMOVE_ONE")
        least, loose = margins(reported, chosen)
        what = f"{kind}: least (reported - exact); median of reported/exact is {loose:.4f}"
        yield printed(what, least, ">=", 0.0, tolerance=1e-9, cases=len(chosen))
