"""smartnoise-synth: preprocessing and synthesizers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from dpanalysis.papers.claim import Effort, Evidence, printed, used
from dpanalysis.privacy.accounting.zcdp import gaussian_epsilon

from ..protocol import Worker
from ..registry import Package, register
from ._tools import found, lower_bound, sampler

PACKAGE = Package(
    name="smartnoise-synth",
    version="1.0.8",
    probe=Path(__file__).parents[1] / "probes" / "smartnoise_synth.py",
    imported="snsynth",
    # The default torch takes gigabytes; packaging is imported, but not declared as a requirement.
    requirements=("torch==2.13.0", "packaging"),
    setting="The documentation does not say who is a neighbour. The noise of counts is that for a "
    "record that is there or not; where the number of records is taken as known, one is replaced.",
)
TRANSFORMS = "https://docs.smartnoise.org/synth/transforms/index.html"


@register(
    PACKAGE,
    1,
    f"docstring of `StandardScaler`, {TRANSFORMS}, and https://docs.smartnoise.org/synth/index.html"
    " ('a differentially private reversible data transform')",
    "`StandardScaler(lower, upper, epsilon)`: 'Some privacy budget is always used to estimate the "
    "mean and variance'",
    "noise for two changes (`d_in=2`), which is one record replaced: with a known number of "
    "records the sensitivity to one change is 0, and so is the noise",
    configuration="epsilon=1, bounds 0 and 1; rows 0, 0, 0 and 1, 0, 0; `mean` and `var` are read, "
    "by which every value is scaled",
    untested="bounds that are inferred; the number of records, and of missing ones",
    verdict="corrected",
)
def standard_scaler(worker: Worker, effort: Effort) -> Iterator[Evidence]:
    """Test the noise of mean and variance."""
    pair = {"rows": [0.0, 0.0, 0.0]}, {"rows": [1.0, 0.0, 0.0]}
    given = {"lower": 0.0, "upper": 1.0, "epsilon": 1.0}
    for distance, evidence in ((1, printed), (2, used)):
        fits = sampler(worker, "scaler", 250, seeded=False, distance=distance, **given)
        verdict = lower_bound(fits, pair, 1.0, effort.cases(250, 500))
        yield evidence(**found(verdict, f"d_in={distance}"))


@register(
    PACKAGE,
    2,
    "docstrings of `Synthesizer.create` and of `MWEMSynthesizer`; the bins are reported in the "
    "project's issue 473, where the answer is that categories are 'provided externally'",
    "`Synthesizer.create('mwem', epsilon)`: 'Create a differentially private synthesizer', "
    "'epsilon: Privacy budget'",
    "records that have the first and the last category in both data sets: the histogram goes from "
    "the smallest to the largest value that is there, whatever the transformer knows",
    configuration="epsilon=1, iterations=1, q_count=1; one column, whose two categories are public "
    "(a transformer fitted to them before); records 0, 0 and 0, 0, 1; read: how many of 20 "
    "synthetic rows are 1. Twin: 0, 1 and 0, 1, 1",
    untested="several columns and iterations, splits; one record replaced, which moves two counts "
    "of a marginal",
    verdict="corrected",
)
def mwem_domain(worker: Worker, effort: Effort) -> Iterator[Evidence]:
    """Test a category that only one record has."""
    fits = sampler(worker, "mwem", seeded=False, samples=20, epsilon=1.0)
    for rows, evidence in (([0, 0], printed), ([0, 1], used)):
        pair = {"rows": rows}, {"rows": [*rows, 1]}
        verdict = lower_bound(fits, pair, 1.0, effort.cases(2_000, 8_000))
        yield evidence(**found(verdict, f"records {rows} and one more"))


@register(
    PACKAGE,
    3,
    "docstring of `DPCTGAN`; the release notes of 0.2.4 and pull request 424 of the project repair "
    "a loss of the same kind",
    "`DPCTGAN(epsilon)`: 'Privacy budget for the model'",
    "one epoch less: the budget is looked at before an epoch, and what the epoch costs is not",
    configuration="epsilon=1, delta=0.001, sigma (the default 5, and 2, 1), 100 records, batches "
    "of 100 or 20, 300 epochs or up to where it stops; what is spent is what its own accountant "
    "says where it stops, in `epsilon_list`",
    untested="that the accountant is right: it counts a step on generated rows, too, assumes "
    "Poisson sampling, and one bound of the gradient where every layer is clipped by itself",
    verdict="corrected",
)
def dpctgan_budget(worker: Worker, effort: Effort) -> Iterator[Evidence]:
    """Compare the spent with the requested epsilon, by the library's accountant."""
    for sigma, batch in ((5.0, 100), (5.0, 20), (2.0, 20), (1.0, 100)):
        given = {"rows": 100, "epsilon": 1.0, "delta": 1e-3, "sigma": sigma, "batch_size": batch}
        spent = worker.call("dpctgan", epochs=300, **given)
        what = f"sigma={sigma:g}, batches of {batch}: epsilon spent in {spent.size - 1} epochs"
        yield printed(what, float(spent[-1]), "<=", 1.0)
        if spent.size > 2:
            # After one epoch less, the accountant's value is the last but one.
            again = worker.call("dpctgan", epochs=spent.size - 2, **given)
            assert np.array_equal(again, spent[: again.size])
            what = what.replace(str(spent.size - 1), str(again.size))
            yield used(what, float(spent[again.size]), "<=", 1.0)


@register(
    PACKAGE,
    4,
    f"{TRANSFORMS}, 'Inferring Bounds for Continuous Columns'",
    "'Inferring the min and max requires some privacy budget, specified by the epsilon argument'",
    configuration="`BinTransformer`, epsilon=1; 11 and 12 records at 1.5, at -3 and 11 at 1.5 and "
    "one of 1,000",
    untested="other values; one record replaced, which moves two bins; the smallest and largest "
    "doubles",
    verdict="holds",
)
def inferred_bounds(worker: Worker, effort: Effort) -> Iterator[Evidence]:
    """Test counts at the threshold that a bin must exceed."""
    fits = sampler(worker, "bounds", 500, seeded=False, epsilon=1.0)
    for value, further in ((1.5, 1.5), (-3.0, -3.0), (1.5, 1000.0)):
        pair = {"rows": [value] * 11}, {"rows": [value] * 11 + [further]}
        verdict = lower_bound(fits, pair, 1.0, effort.cases(500, 1_000))
        yield printed(**found(verdict, f"11 records at {value:g}, one more at {further:g}"))


@register(
    PACKAGE,
    5,
    "docstrings of `MSTSynthesizer` and `AIMSynthesizer`; comment in `snsynth.utils.cdp_rho`",
    "'epsilon: privacy budget', 'delta: privacy parameter': the budget of zCDP that they divide "
    "is 'a rho that satisfies (epsilon, delta)'",
    configuration="random epsilon from 0.01 to 10, delta from 1e-9 to 0.01; the exact epsilon of "
    "one Gaussian that costs rho",
    untested="how MST and AIM divide it, and what else they read from the records: a fit takes "
    "seconds; in MST the scores of the selection have sensitivity 2 for one record replaced, and "
    "the number of records is taken as known",
    verdict="holds",
)
def zcdp_budget(worker: Worker, effort: Effort) -> Iterator[Evidence]:
    """Compare rho with the exact epsilon of a Gaussian."""
    random = effort.random()
    chosen = [
        {"epsilon": 10.0 ** random.uniform(-2.0, 1.0), "delta": 10.0 ** -random.uniform(2.0, 9.0)}
        for _ in range(effort.cases(30, 200))
    ]
    rhos = worker.call("rhos", settings=chosen)
    exact = [
        gaussian_epsilon(1.0 / math.sqrt(2.0 * rho), each["delta"])
        for rho, each in zip(rhos, chosen)
    ]
    epsilons = np.array([each["epsilon"] for each in chosen])
    what = f"least (epsilon - exact); median of epsilon/exact is {np.median(epsilons / exact):.2f}"
    yield printed(what, float(np.min(epsilons - exact)), ">=", 0.0, cases=len(chosen))
