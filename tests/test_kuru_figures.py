"""The figures of Kuru et al. against what the authors published."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import dpanalysis as dpa
from dpanalysis import theory
from figures import (
    _kuru,
    _ledger,
    _published,
    kuru_bounds,
    kuru_fig3,
    kuru_fig4,
    kuru_horizons,
    kuru_real,
)

CURVES = Path(os.environ.get("DPANALYSIS_DATA", "."), "published_curves_001.json")
AT_1 = "errors_n_100000_m_100000_c_10_various_T.eps"
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


@pytest.mark.slow
@published
def test_published_noise_ends_where_the_published_curves_end():
    """With the authors' noise, which is not private, T = 100 and c = 1 are reproduced.

    The final gaps are means over 10 and 20 runs whose log10 has a standard deviation of
    about .04 together; .2 is five of those.
    """
    panels = json.loads(CURVES.read_text())["figures"][AT_1]["panels"]
    for panel in panels:
        curve = next(curve for curve in panel["curves"] if curve["T"] == 100)
        if panel["title"] == "DP-MASG-opt":
            continue  # published with 89 iterations, ours have 88: L differs
        ours = cell(panel["title"], published_noise=True)
        assert abs(np.log10(ours["gap"][-1]) - curve["points"][-1][1]) < 0.2
        assert ours["epsilon"] == pytest.approx(np.sqrt(2.0))


@pytest.mark.slow
def test_the_simulated_gap_has_standard_errors_and_both_bounds(monkeypatch):
    results, minimize = [], dpa.minimize
    monkeypatch.setattr(kuru_bounds, "SYNTHETIC_SIZE", 500)
    monkeypatch.setattr(
        dpa,
        "minimize",
        lambda *given, **more: results.append(minimize(*given, **more)) or results[0],
    )
    found = kuru_bounds.run("DP-NAG", 4)
    gap = results[0].history["gap"]
    np.testing.assert_allclose(found["standard_error"], stats.sem(gap, axis=1), rtol=1e-12)
    assert found["bound"][0] == 2.0 * found["printed"][0] == 2.0 * gap[0, 0]


def test_the_counterexample_violates_the_printed_bound_alone():
    table = kuru_bounds.counterexample()
    assert table["iteration"][0] == 0 and table["printed"][0] == table["gap"][0]
    np.testing.assert_array_equal(table["bound"], 2.0 * table["printed"])
    assert (table["gap"] <= table["bound"]).all() and (table["gap"] > table["printed"])[1:10].all()


@pytest.mark.slow
def test_the_right_noise_costs_a_factor_two_in_the_gap():
    """Where noise dominates, scale instead of standard deviation doubles the mean gap."""
    right, wrong = cell("DP-NAG"), cell("DP-NAG", published_noise=True)
    assert right["epsilon"] == pytest.approx(1.0)
    assert right["gap"][-1] / wrong["gap"][-1] == pytest.approx(2.0, rel=0.3)


@pytest.mark.slow
def test_published_noise_under_subsampling_is_not_private():
    """The authors' code inverts (3.5) for the batch, and then draws a standard deviation.

    Used as scales, its standard deviations would cost exactly epsilon = 1; the scales that it
    draws are sqrt(2) smaller, which costs about 1.7 at m = n/100.
    """
    result = cell("DP-NAG-opt", m=1000, published_noise=True, replicates=1, iterations=200)
    assert 1.6 < result["epsilon"] < 1.8
    problem = _kuru.load_problem("cube", 100_000)
    method = _kuru.build_method("DP-NAG-opt", problem, 1000, 1.0, 200, 10.0)
    drawn = _kuru.with_published_noise(method, problem)
    spent = np.log1p((np.exp(40.0 / (1000 * np.sqrt(2.0) * np.array(drawn.noise))) - 1.0) / 100.0)
    assert spent.sum() == pytest.approx(1.0, rel=1e-6)  # the rounding of sums is charged


# ---------------------------------------------------------------- the authors' own figures


def eps(curves):
    """Return a figure of one panel as MATLAB writes it: ticks at 10^-2, 10^0 and 10^2."""
    marks = [f"GS\n92 {y} M\n93.48 {y} L\nS" for y in (144.9, 94.7, 44.5)]
    labels = [f"/Helvetica 8 F\n({k}) t" for k in (-2, 0, 2)]
    lines = []
    for color, heights in curves:
        points = "\n".join(f"{92 + k} {y} {'ML'[k > 0]}" for k, y in enumerate(heights))
        lines.append(f"GS\n{color}\nN\n{points}\nS")
    blocks = [*marks, "GS\n92 95.8 M\n92.74 95.8 L\nS", *labels, "/Helvetica-Bold 11 F\n(DP-GD) t"]
    return "%%EndPageSetup\n" + "\nGR\n".join([*blocks, *lines, "end"])


def test_curves_of_a_vector_figure():
    falling = np.linspace(44.5, 144.9, 60)
    text = eps([("0 1 0 RC", falling), ("", falling[:55])])
    (panel,) = _published.read_eps(text)
    assert panel["title"] == "DP-GD" and [c["T"] for c in panel["curves"]] == [100, 200]
    green, black = (np.array(curve["points"]) for curve in panel["curves"])
    assert len(green) == 60 and len(black) == 55 and green[0].tolist() == [1.0, 2.0]
    np.testing.assert_allclose(green[:, 1], np.linspace(2.0, -2.0, 60), atol=1e-9)
    with pytest.raises(ValueError, match="2 ticks have 3 labels"):
        _published.read_eps(text.replace("92 94.7 M\n93.48 94.7 L", ""))


def test_published_ends_are_those_of_the_curves(monkeypatch):
    """All 96, where a copy of the authors' repository is available; else the 24 that were read."""
    looked = 0
    for (m, c), ends in _published.FINALS.items():
        assert set(ends) == set(_kuru.ALGORITHMS) and all(len(e) == 4 for e in ends.values())
        for panel in _published.published_errors(m, c):
            for curve in panel["curves"]:
                t, gap = curve["points"][-1]
                place = _kuru.PUBLISHED_HORIZONS.index(curve["T"])
                assert ends[panel["title"]][place] == (t, pytest.approx(gap, abs=6e-4))
                looked += 1
    assert looked in ((24, 48, 72, 96) if CURVES.is_file() else (0,))


@pytest.mark.slow
def test_horizons_of_the_authors_are_those_of_full_batches():
    """Their curves without and with subsampling end after the same number of iterations."""
    tables = kuru_horizons.compute("paper", jobs=1, cache=None, progress=False)
    horizons = tables["horizons"]
    assert kuru_horizons.off(horizons, "published_T") == 0
    assert kuru_horizons.off(horizons, "printed_bound_T") > 8
    for m in kuru_horizons.BATCHES:
        chosen = kuru_horizons.chosen(horizons, "NAG-opt", 1.0, "published_T", m)
        assert chosen == [100, 136, 136, 136]
    assert "published T' are all those" in " ".join(kuru_horizons.caption(tables, "paper").split())


def test_captions_of_batches_name_the_sampling_error_of_the_bound():
    """With (3.13), as in kuru_horizons, DP-MASG-opt would make 484 iterations, not 88."""
    problem = _kuru.load_problem("cube", 100_000)
    recursion = theory.multistage_recursion(
        *theory.multistage_schedule(1000, problem.mu, problem.L), problem.mu, problem.L
    )
    bounds = theory.horizon_bounds(recursion, 10.0, 20, 40.0, problem.n, 1.0, m=1000)
    method = _kuru.build_method("DP-MASG-opt", problem, 1000, 1.0, 1000, 10.0)
    plan = method.prepare(problem.facts("replace_one"), dpa.Budget(1.0), "tightest")
    assert (bounds.argmin() + 1, len(plan.scales)) == (484, 88)
    said = [kuru.EXPERIMENT.differences("paper") for kuru in (kuru_fig3, kuru_fig4)]
    assert ["less than (3.13)" in each for each in said] == [False, True]


@published
def test_captions_say_what_was_found():
    tables = _ledger.read("kuru_fig3")[1]
    caption = kuru_fig3.caption(tables, "paper")
    assert caption.count("is confirmed") == 2 and "Finding: that heavy ball" in caption
    # An algorithm that ends higher than gradient descent refutes the claim about it.
    summary = dict(tables["summary"])
    slow = np.isin(summary["algorithm"], ("DP-HB", "DP-NAG"))
    summary["log10_final_gap"] = summary["log10_final_gap"] + 5.0 * slow
    worse = kuru_fig3.EXPERIMENT.verdicts({**tables, "summary": summary})
    assert "beat gradient descent is refuted" in worse
    headline = kuru_fig3.report(tables)["headline"]
    assert "non-private" in headline and "-1.03 for gradient descent" in headline
    assert "among T = 100 to 1000; 100 is best for DP-HB, DP-NAG" in caption
    dotted = [
        module.caption(_ledger.read(name)[1], "paper").count("Dotted: the authors' own")
        for name, module in (("kuru_fig3", kuru_fig3), ("kuru_fig4", kuru_fig4))
    ]
    assert dotted == [1, 0]  # captions name the published curves that are drawn, no others


def test_real_data_are_open_where_the_grid_ends():
    tables = _ledger.read("kuru_real")[1]
    said = kuru_real.experiment().verdicts(tables)
    assert "claims nothing on real data" in said and said.endswith("the best are inside the grid")
    assert "Nesterov's method end, beyond chance, neither all below nor all above gradient" in said
    for column, value in (("iterations", 2), ("iterations", 200), ("c", 0.1)):
        summary = dict(tables["summary"])
        best = (summary[column] == value) & (summary["algorithm"] == "DP-NAG")
        summary["log10_final_gap"] = summary["log10_final_gap"] - 5.0 * best
        open_for = kuru_real.experiment().verdicts({**tables, "summary": summary})
        assert open_for.endswith("That is open for DP-NAG: best at an end of the grid")


@pytest.mark.slow
def test_same_cell_for_any_number_of_replicates():
    few = cell("DP-HB", replicates=1)
    assert np.isfinite(few["gap"]).all() and (few["spread"] == 0).all()


def test_real_data_fall_back_to_the_embedded_set(monkeypatch):
    monkeypatch.delenv("DPANALYSIS_DATA", raising=False)
    kuru_real.experiment.cache_clear()
    assert kuru_real.experiment().data == "breast_cancer"
    kuru_real.experiment.cache_clear()
