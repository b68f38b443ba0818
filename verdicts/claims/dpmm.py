"""dpmm: preprocessing and marginal models."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from dpanalysis.papers.claim import Effort, Evidence, printed, used
from dpanalysis.privacy.accounting.zcdp import gaussian_epsilon

from ..protocol import Worker
from ..registry import Package, register
from ._tools import found, lower_bound, sampler

PACKAGE = Package(
    name="dpmm",
    version="0.1.9",
    probe=Path(__file__).parents[1] / "probes" / "dpmm.py",
    setting="The documentation does not say who is a neighbour: noise of counts is that for a "
    "record that is there or not; the selection in PrivBayes takes the number of records as known. "
    "That a domain which is not given is read from the records is warned of, and repaired in 0.2.0 "
    "(its issue 18), which is in the repository and not released: here the domain is given. The "
    "README calls the package 'designed for research and exploratory use'.",
)


@register(
    PACKAGE,
    1,
    "README; docstring of `TableBinner`",
    "'end-to-end DP pipelines including data preprocessing': 'data domain is either provided as "
    "input or extracted with DP'",
    "`disable_processing=True`, integers: a column that has one value in the records is taken out "
    "and put back as it is, whatever the domain",
    configuration="`PrivBayesPipeline(epsilon=1, delta=1e-5, proc_epsilon=0.1)`, the domain of "
    "both columns given; records (0, 0), (1, 0), (0, 0) and (0, 0), (1, 0), (0, 1); read: how many "
    "of 20 synthetic values of the second column are above 0.5",
    untested="MST and AIM, which share it; missing values, which are filled in by another record's",
    verdict="corrected",
)
def static_columns(worker: Worker, effort: Effort) -> Iterator[Evidence]:
    """Test a column in which only one record has another value."""
    pair = {"rows": [0, 0, 0]}, {"rows": [0, 0, 1]}
    for kind, epsilon in (("numbers", 1.1), ("integers", 1.0)):
        fits = sampler(worker, "column", 100, seeded=False, kind=kind)
        verdict = lower_bound(fits, pair, epsilon, effort.cases(120, 240), delta=1e-5)
        yield (used if kind == "integers" else printed)(**found(verdict, kind))


@register(
    PACKAGE,
    2,
    "docstring of `PrivBayes`",
    "`PrivBayesGM(epsilon, delta)`: 'relies on the exponential and laplace mechanism to ensure "
    "differential privacy'",
    "sensitivity 1, the range of the score: that of mutual information is used, but the score is "
    "divided by the root of both entropies, so that one record moves it from 0 to 1",
    configuration="epsilon=1, delta=1e-5, three columns of 0 and 1, domain given, 20,000 records "
    "(0, 0, 0), but for (1, 1, 1) or (1, 0, 1), and (0, 0, 1); read: whether the first two columns "
    "share one of the `cliques`, which `store` writes",
    untested="other degrees and tables; what of the cliques the synthetic records tell",
    verdict="corrected",
)
def priv_bayes_selection(worker: Worker, effort: Effort) -> Iterator[Evidence]:
    """Test the score of two columns that become equal by one record."""
    for sensitivity, evidence in ((None, printed), (1.0, used)):
        fits = sampler(
            worker, "cliques", 500, seeded=False, records=20_000, sensitivity=sensitivity
        )
        samples = effort.cases(500, 1_000)
        verdict = lower_bound(fits, ({"value": 1}, {"value": 0}), 1.0, samples, delta=1e-5)
        what = f"sensitivity {'of mutual information' if sensitivity is None else 1}"
        yield evidence(**found(verdict, what))


@register(
    PACKAGE,
    3,
    "docstring of `AIMGM`",
    "`AIMGM(epsilon, delta, rounds)`: 'a differentially private generative model', 'epsilon: "
    "Privacy budget', 'rounds: Number of rounds'",
    "`rounds=None`, the default, 16 for a column: each column is measured at 0.9 of the budget "
    "divided by the rounds, before the budget is looked at",
    configuration="epsilon=1, delta=0.001, 4, 8 or 16 columns of two values; the exact epsilon of "
    "a Gaussian that costs what all `measures` of one fit cost together (twin: 4 columns)",
    untested="that the noise has the standard deviation that `measures` say; the selection, which "
    "costs more",
    verdict="corrected",
)
def aim_rounds(worker: Worker, effort: Effort) -> Iterator[Evidence]:
    """Compare with the total cost of one fit's measurements."""
    for rounds, columns in ((1, 4), (1, 8), (4, 16), (None, 4)):
        rho = worker.call("aim_rho", rounds=rounds, columns=columns, delta=1e-3)
        what = f"{rounds or 'default'} rounds, {columns} columns: epsilon of what is measured"
        exact = float(gaussian_epsilon(1.0 / math.sqrt(2.0 * rho), 1e-3))
        yield (printed if rounds else used)(what, exact, "<=", 1.0)


@register(
    PACKAGE,
    4,
    "docstrings of `PrivTreeBinner.priv_tree` and `approx_bounds`",
    "'The tree is built using the Laplace mechanism to ensure differential privacy'; 'epsilon: The "
    "privacy budget to spend estimating the bounds'",
    configuration="epsilon=1; a tree of up to 3 bins of [0, 1], 4 records and one more near either "
    "end; bounds of 11 and 12 records at 1.5, and of one more at 1,000",
    untested="one record replaced, more bins, `n_bins='auto'`, which takes the number of records "
    "as known, dates",
    verdict="holds",
)
def numeric_bins(worker: Worker, effort: Effort) -> Iterator[Evidence]:
    """Test the edges of the bins."""
    tree = [0.1, 0.1, 0.1, 0.9], [0.1, 0.1, 0.1, 0.1]
    for name, rows, further, samples in (
        ("bins", tree[0], 0.1, effort.cases(2_000, 20_000)),
        ("bins", tree[1], 0.9, effort.cases(2_000, 20_000)),
        ("bounds", [1.5] * 11, 1.5, effort.cases(500, 2_000)),
        ("bounds", [1.5] * 11, 1000.0, effort.cases(500, 2_000)),
    ):
        draws = sampler(worker, name, 1_000, seeded=False, epsilon=1.0)
        verdict = lower_bound(draws, ({"rows": rows}, {"rows": [*rows, further]}), 1.0, samples)
        yield printed(**found(verdict, f"{name} of {len(rows)} records, one more at {further:g}"))
