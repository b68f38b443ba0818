"""The figures of Kuru et al. against what the authors published."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from figures import _kuru, kuru_real

CURVES = Path(os.environ.get("DPANALYSIS_DATA", "."), "published_curves_001.json")
published = pytest.mark.skipif(
    not CURVES.is_file(), reason="needs published_curves_001.json in $DPANALYSIS_DATA"
)


def cell(algorithm, **changes):
    base = {
        "data": "cube",
        "n": 100_000,
        "m": 100_000,
        "c": 1.0,
        "iterations": 100,
        "algorithm": algorithm,
        "start": 10.0,
        "initial_gap": 10.0,
        "replicates": 10,
        "every": 10,
        "seed": 1,
    }
    return _kuru.run_cell(**{**base, **changes})


@published
def test_published_noise_ends_where_the_published_curves_end():
    """With the authors' noise, which is not private, T = 100 and c = 1 are reproduced.

    The final gaps are means over 10 and 20 runs whose log10 has a standard deviation of
    about .04 together; .2 is five of those.
    """
    panels = json.loads(CURVES.read_text())["figures"][_kuru.PUBLISHED[1.0]]["panels"]
    for panel in panels:
        curve = next(curve for curve in panel["curves"] if curve["T"] == 100)
        if panel["title"] == "DP-MASG-opt":
            continue  # published with 89 iterations, ours have 88: L differs
        ours = cell(panel["title"], published_noise=True)
        assert abs(np.log10(ours["gap"][-1]) - curve["points"][-1][1]) < 0.2
        assert ours["epsilon"] == pytest.approx(np.sqrt(2.0))


def test_the_right_noise_costs_a_factor_two_in_the_gap():
    """Where noise dominates, scale instead of standard deviation doubles the mean gap."""
    right, wrong = cell("DP-NAG"), cell("DP-NAG", published_noise=True)
    assert right["epsilon"] == pytest.approx(1.0)
    assert right["gap"][-1] / wrong["gap"][-1] == pytest.approx(2.0, rel=0.3)


def test_published_noise_under_subsampling_is_not_private():
    """Remark 4.2's noise, drawn as a standard deviation: epsilon far above 1 at m = n/100."""
    result = cell("DP-NAG-opt", m=1000, published_noise=True, replicates=1, iterations=1000)
    assert result["epsilon"] > 1.5


def test_same_cell_for_any_number_of_replicates():
    few = cell("DP-HB", replicates=1)
    assert np.isfinite(few["gap"]).all() and (few["spread"] == 0).all()


def test_real_data_fall_back_to_the_embedded_set(monkeypatch):
    monkeypatch.delenv("DPANALYSIS_DATA", raising=False)
    kuru_real.experiment.cache_clear()
    assert kuru_real.experiment().data == "breast_cancer"
    kuru_real.experiment.cache_clear()
