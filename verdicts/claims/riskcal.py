"""riskcal: success rates of attacks, by trade-off curves."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from scipy import special

from dpanalysis.papers.claim import Effort, Evidence, printed

from ..protocol import Worker
from ..registry import Package, register
from ._exact import Setting, sampled_delta, settings
from ._tools import asked

PACKAGE = Package(
    name="riskcal",
    version="1.5.1",
    probe=Path(__file__).parents[1] / "probes" / "riskcal.py",
    setting="Neighbours differ in one record that is there or not; batches are Poisson samples.",
)


def advantage(setting: Setting) -> float:
    """Return the largest difference between true and false positive rates: delta at epsilon = 0."""
    return sampled_delta(setting.sigma / math.sqrt(setting.steps), setting.rate, 0.0)


@register(
    PACKAGE,
    1,
    "docstrings of `calibration.get_advantage_for_dpsgd` and `analysis.get_advantage_from_pld`",
    "'Compute advantage for DP-SGD with given parameters'; 'Advantage is the maximum value of "
    "(TPR - FPR) achievable by any attacker'",
    configuration="one step of a Poisson-sampled Gaussian, or up to 200 that are not sampled; "
    "random multipliers from 0.37 to 12, rates from 0.003 to 0.8, grid_step as by default",
    untested="sampled and composed at once",
    verdict="holds",
)
def advantages(worker: Worker, effort: Effort) -> Iterator[Evidence]:
    """Compare the advantage with the exact total variation distance."""
    chosen = settings(effort.random(), effort.cases(20, 400))
    reported = asked(worker, "advantages", chosen)
    exact = np.array([advantage(each) for each in chosen])
    what = (
        f"least (reported - exact); median of reported/exact is {np.median(reported / exact):.5f}"
    )
    yield printed(
        what, float(np.min(reported - exact)), ">=", 0.0, tolerance=1e-9, cases=len(chosen)
    )


@register(
    PACKAGE,
    2,
    "docstring of `calibration.get_beta_for_dpsgd`",
    "'False negative rate(s) corresponding to input alpha', to the grid_step of the loss",
    configuration="up to 200 steps that are not sampled, random multipliers from 0.37 to 12; "
    "alpha = 0.001, 0.01, 0.1, 0.3, 0.5, 0.9; grid_step = 1e-4",
    untested="sampled steps",
    verdict="holds",
)
def curves(worker: Worker, effort: Effort) -> Iterator[Evidence]:
    """Compare with the exact least rate of Gaussian steps, Phi(Phi^-1(1 - alpha) - mu)."""
    drawn = settings(effort.random(), 2 * effort.cases(10, 200))
    chosen, alphas = [each for each in drawn if each.rate == 1.0], [0.001, 0.01, 0.1, 0.3, 0.5, 0.9]
    reported = asked(worker, "errors", chosen, alphas=alphas)
    mu = np.array([math.sqrt(each.steps) / each.sigma for each in chosen])
    exact = special.ndtr(special.ndtri(1.0 - np.array(alphas)) - mu[:, None])
    what = f"largest |reported - exact|; at most {np.max(reported - exact):.2g} above, so no bound"
    yield printed(what, float(np.max(np.abs(reported - exact))), "<=", 1e-4, cases=reported.size)
