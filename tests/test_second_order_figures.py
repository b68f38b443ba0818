"""The figures of Gao and Wright (2023) at a tiny scale: checks of their tables."""

import math
import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

import dpanalysis as dpa
from dpanalysis.papers import registry
from figures import (
    _second_order,
    second_order_complexity,
    second_order_saddle,
    second_order_tables,
)
from figures._clipping import where

pytestmark = pytest.mark.usefixtures("no_data")

DATA = os.environ.get("DPANALYSIS_DATA")


# ---------------------------------------------------------------- the runs


@pytest.mark.slow
@pytest.mark.parametrize("method", _second_order.METHODS)
def test_a_cell_can_be_repeated_and_keeps_its_budget(method):
    cell = {
        "data": "clouds",
        "penalty": "GemanMcClure",
        "tolerance": "loose",
        "method": method,
        "epsilon": 1.0,
        "start": "zero",
        "seed": 0,
        "limit": 4,
    }
    found = _second_order.run_cell(**cell)
    again = _second_order.run_cell(**cell)
    assert all((found[name] == again[name]).all() for name in found if name != "seconds")
    sharp, printed = found["hessian_noise"]
    # Sensitivity 2 sqrt(d)/sqrt 2 times larger, and sqrt 2 more off the diagonal: 2 sqrt(10).
    rounding = _second_order.load_problem("clouds", "GemanMcClure").facts("replace_one").rounding
    ratio = 2.0 * math.sqrt(10.0) / (1.0 + math.sqrt(2.0) * rounding)  # charged where it is sharp
    assert printed / sharp == pytest.approx(ratio, rel=1e-9)
    assert found["gradient_noise"][0] == found["gradient_noise"][1]
    assert found["n_min"][0] <= found["n_min"][1]


@pytest.mark.parametrize(
    ("norm", "curvature", "is_point"), [(1.2, -1.05, 1.0), (1.3, 0.0, 0.0), (0.0, -1.2, 0.0)]
)
def test_a_point_is_judged_with_the_shares_of_noise(monkeypatch, norm, curvature, is_point):
    """At c1 = 1/4 and c = 1/10; what the method says does not count."""
    said = {"second_order_point": 0.0, "hessians": 1.0, "smallest_eigenvalue": 0.0}
    result = SimpleNamespace(
        history={name: np.full((2, 1), value) for name, value in said.items()},
        w=np.zeros((1, 2)),
        iterations=1,
        evaluations={},
        seconds=0.0,
    )
    problem = SimpleNamespace(
        n=1,
        d=2,
        value=lambda w: 0.0,
        gradient=lambda w: np.array([norm, 0.0]),
        hessian=lambda w: np.diag([3.0, curvature]),
    )
    monkeypatch.setattr(_second_order, "planned", lambda *given: (None, {}))
    monkeypatch.setattr(_second_order, "patience", lambda *given: 5)
    monkeypatch.setattr(_second_order, "epsilon_spent", lambda result: 0.0)
    monkeypatch.setattr(dpa, "minimize", lambda *given, **options: result)
    method = SimpleNamespace(eps_g=1.0, eps_H=1.0)
    _, found = _second_order.run_once(problem, method, 1.0, 0, 5, np.zeros(2))
    assert found["true_point"] == is_point and found["stopped"] == 0.0


def test_runs_of_both_sensitivities_are_the_same_until_a_hessian_is_asked_for():
    problem = _second_order.load_problem("clouds", "GemanMcClure")
    ends = []
    for printed in (False, True):
        method = _second_order.METHODS["OPT"](0.04, 0.2, problem.n, printed)
        result, found = _second_order.run_once(problem, method, 0.2, 3, 5)
        assert found["hessians"] == 0.0 and result.private
        assert result.epsilon() <= 0.2 * (1 + 1e-9)
        ends.append(result.w)
    assert (ends[0] == ends[1]).all()


def test_patience():
    """Runs that are cut could not have stopped: the noise alone exceeds the tolerance."""
    problem = _second_order.load_problem("clouds", "GemanMcClure")
    limits = {}
    for name in ("OPT", "2OPT"):
        for epsilon in (0.02, 1.0):
            method = _second_order.METHODS[name](0.04, 0.2, problem.n, False)
            outlook, said = _second_order.planned(problem, method, epsilon)
            limits[name, epsilon] = _second_order.patience(method, outlook, problem.d, 30)
            std = said["gradient_noise"] * 0.04 / math.sqrt(problem.d)
            draws = np.random.default_rng(0).normal(0.005, std, size=(100_000, problem.d))
            short = np.mean(np.linalg.norm(draws, axis=1) <= 0.04)
            centered = stats.chi2.cdf((0.04 / std) ** 2, problem.d)
            # Five deviations of a mean of so many draws: a false alarm in 3e-7 of the seeds.
            assert short <= centered + 5.0 * math.sqrt(max(centered, 1e-6) / 100_000)
    assert limits["OPT", 0.02] == limits["2OPT", 0.02] == 30
    assert limits["OPT", 1.0] == 4 * 30 and limits["2OPT", 1.0] == 44 + 30


def test_the_saddle_is_stationary_with_negative_curvature():
    problem = _second_order.saddle_problem(30_000, 5)
    w = _second_order.saddle(5)
    assert np.linalg.norm(problem.gradient(w)) < 1e-3  # the noise features: of order n^-1/2
    values, vectors = np.linalg.eigh(problem.hessian(w))
    strength = problem.regularizer.strength
    assert values[0] == pytest.approx(-strength / 2, rel=1e-9)
    assert abs(vectors[:2, 0]) == pytest.approx([math.sqrt(0.5)] * 2, rel=1e-3)
    assert values[1] == pytest.approx(0.0101, abs=1e-3) and values[2] > 0.5
    rows = np.linalg.norm(_second_order.saddle_rows(100, 5)[0], axis=1)
    assert rows == pytest.approx(np.ones(100))
    # Stationary points with a penalty on two weights at 1 have strength .2785 at most.
    margins = np.linspace(0.0, 10.0, 10_001)
    assert strength < np.max(margins / (1.0 + np.exp(margins))) < 0.2785


def test_unit_constants_are_bounds_too():
    """G = M = 1 are valid but larger bounds: steps are shorter, sensitivities unchanged."""
    problem = _second_order.load_problem("clouds", "GemanMcClure", "unit")
    sharp = _second_order.load_problem("clouds", "GemanMcClure")
    assert problem.L == problem.hessian_lipschitz == 1.0 > sharp.L > sharp.hessian_lipschitz
    ours, theirs = (each.facts("replace_one") for each in (problem, sharp))
    assert ours.record_sensitivity(2) == theirs.record_sensitivity(2)
    w = np.full(problem.d, 0.3)
    assert problem.value(w) == sharp.value(w)
    cell = {"data": "clouds", "penalty": "GemanMcClure", "tolerance": "loose", "method": "OPT"}
    cell |= {"epsilon": 1.0, "start": "zero", "seed": 0, "limit": 60}
    unit, plain = (_second_order.run_cell(**cell, constants=c) for c in ("unit", "sharp"))
    assert unit["iterations"][0] > plain["iterations"][0] and unit["T"][0] > plain["T"][0]


@pytest.mark.slow
@pytest.mark.parametrize("data", ["covertype", "ijcnn1"])
def test_the_gradient_at_0(data, monkeypatch):
    if not DATA:
        pytest.skip("needs $DPANALYSIS_DATA")
    monkeypatch.setenv("DPANALYSIS_DATA", DATA)
    problem = _second_order.load_problem(data, "L2")
    norm = np.linalg.norm(problem.gradient(np.zeros(problem.d)))
    assert norm == pytest.approx(_second_order.AT_ZERO[data], abs=5e-5)


def test_settings_whose_start_is_a_point():
    assert _second_order.starts_at_a_point("covertype", "GemanMcClure", "loose")
    assert not _second_order.starts_at_a_point("covertype", "L2", "loose")
    assert not _second_order.starts_at_a_point("clouds", "GemanMcClure", "loose")


def test_published_numbers():
    table = _second_order.published_table()
    row = where(table, data="covertype", penalty="L2", tolerance="tight", method="2OPT-LS")
    assert row["loss"].tolist() == [0.441, 0.447, 0.447]
    assert math.isnan(row["seconds"][0]) and row["seconds"][1:].tolist() == [0.6, 0.7]
    for data, penalty, tolerance in _second_order.PUBLISHED:
        assert tolerance in _second_order.tolerances(data, penalty)
    assert _second_order.tolerances("covertype", "GemanMcClure")["loose"] == (0.06, 0.245)
    assert _second_order.tolerances("covertype", "L2")["loose"] == (0.04, 0.2)


# ---------------------------------------------------------------- the figures


def test_settings_know_the_size_of_the_data():
    chosen = second_order_tables.settings("quick")
    problem = _second_order.load_problem(chosen["data"][0], "L2")
    assert (chosen["n"], chosen["d"]) == ([problem.n], [problem.d])


def test_random_starts():
    first, again, other = (_second_order.start_point("random", 10, seed) for seed in (0, 0, 1))
    assert (first == again).all() and (first != other).all() and first.shape == (10,)
    assert _second_order.start_point("zero", 10, 0) is None
    cell = {"data": "clouds", "penalty": "L2", "tolerance": "loose", "method": "OPT"}
    found = _second_order.run_cell(**cell, epsilon=1.0, start="random", seed=1, limit=3)
    assert found["iterations"][0] <= 3 and np.isnan(found["n_min"]).all()
    assert (found["epsilon_spent"] > 0.0).all() and (found["epsilon_spent"] <= 1.0).all()


def test_failures_among_the_surviving_rows():
    """Claim 003-28 counts the cells of 2OPT-LS with a cross."""
    seconds = where(_second_order.published_table(), method="2OPT-LS")["seconds"]
    (claim,) = (each for each in registry.load("003") if each.id == "003-28")
    assert f"2OPT-LS failed in {np.isnan(seconds).sum()} of {seconds.size}" in claim.says


@pytest.mark.slow
def test_tables(made):
    changes = {"epsilons": [1.0], "seeds": 1, "cut_after": 10, "starts": ["zero"]}
    tables, caption = made(second_order_tables, changes)
    means = where(tables["means"], sensitivity="sharp")
    assert means["method"].tolist() == list(_second_order.METHODS)
    stopped = dict(zip(means["method"].tolist(), means["stopped"].tolist(), strict=True))
    assert all(stopped[name] == 1.0 for name in ("2OPT", "2OPT-LS", "OPT-B"))
    done = means["stopped"] == 1.0
    assert (means["found"] == done).all()
    assert (means["true_point"][done] == 1.0).all() and (means["hessians"][done] >= 1.0).all()
    assert (means["loss"] < math.log(2.0)).all() and (means["smallest_eigenvalue"] > -5.1e-4).all()
    TR, OPT = (where(means, method=name) for name in ("DP-TR", "OPT"))
    assert TR["hessians"][0] == TR["iterations"][0] and OPT["hessians"][0] == 1.0
    assert "6.3 times shorter on two clouds (d = 10)" in caption
    assert "With M = 1, which the paper's tolerances imply, all of this is open" in caption
    report = second_order_tables.report(tables)
    stops, ends = (second_order_tables.counts(means, name) for name in ("found", "true_point"))
    assert all(stops[name] <= ends[name] for name in stops)  # runs that stop at a point end at one
    assert f"| DP-TR | {stops['DP-TR']} of 1 | {ends['DP-TR']} of 1 |" in report["found"]


def test_more_and_fewer():
    means = {
        "method": np.array(["DP-TR", "DP-TR", "DP-TR", "OPT", "OPT", "OPT"]),
        "stopped": np.array([1.0, 1.0, 0.8, 1.0, 1.0, 1.0]),
        "iterations": np.array([5.0, 9.0, 99.0, 6.0, 4.0, 1.0]),
    }
    assert second_order_tables.pairs(means, "DP-TR", "OPT", "iterations") == (2, 1)


def test_runs_with_unit_constants(monkeypatch):
    monkeypatch.setattr(second_order_tables._ledger, "RESULTS", Path("nowhere"))
    assert "constants" not in second_order_tables.settings("paper")
    monkeypatch.setenv("DPANALYSIS_UNIT_CONSTANTS", "1")
    assert second_order_tables.settings("paper")["constants"] == ["sharp", "unit"]
    assert "constants" not in second_order_tables.settings("quick")
    cells = second_order_tables.unit_cells("paper")
    assert {cell["start"] for cell in cells} == {"zero"}
    assert len(cells) == len(second_order_tables.cells("paper")) // 2


@pytest.mark.slow
def test_saddle(made):
    tables, caption = made(second_order_saddle, {"seeds": 1, "epsilons": [1.0]})
    means = where(tables["means"], sensitivity="sharp")
    loss = dict(zip(means["method"].tolist(), means["loss"].tolist(), strict=True))
    least = dict(zip(means["method"].tolist(), means["smallest_eigenvalue"].tolist(), strict=True))
    stays = second_order_saddle.GRADIENT_ONLY
    assert loss[stays] == pytest.approx(tables["curves"]["loss"][0], abs=0.02)
    assert least[stays] < -0.1 < -0.02 < least["2OPT"] and loss["2OPT"] < loss[stays] - 0.1
    assert where(means, method="2OPT")["curvature_steps"][0] >= 1.0
    curves = tables["curves"]
    assert curves["along_curvature"].sum() == means["curvature_steps"].sum()
    assert "-0.1390 along" in caption and "nan" not in caption
    assert "where gradients do not is confirmed at epsilon 1." in caption


@pytest.mark.slow
def test_complexity(made):
    changes = {"alphas": [0.01, 0.1], "dimensions": [2, 54, 1000]}
    tables, _ = made(second_order_complexity, changes)
    for name in ("by_alpha", "by_dimension"):
        for step in second_order_complexity.STEPS:
            printed, sharp, best = (
                where(tables[name], step=step, kind=kind)["n"]
                for kind in second_order_complexity.KINDS
            )
            assert (printed >= sharp).all() and (sharp > best).all()
    # The methods' own n_min is that of the theory at the same tolerances.
    target = second_order_complexity.build_target(0.06, 10)
    tolerances = target.tolerances(_second_order.SHARES["short"])
    problem = _second_order.load_problem("clouds", "GemanMcClure")
    method = _second_order.second_order(*tolerances, printed=False)
    n_min = _second_order.planned(problem, method, 1.0)[1]["n_min"]
    row = second_order_complexity.rows(0.06, 10)[1]
    assert (row["step"], row["kind"]) == ("short", "sharp")
    assert row["n"] == pytest.approx(n_min, rel=1e-5)


def test_findings_against_the_trust_region_name_both_starts():
    """Found if most settings of both starts show it; else with the start named, or not found."""

    def rows(start, method, iterations, seconds):
        each = {"start": start, "method": method, "stopped": 1.0, "loss": 1.0}
        return [{**each, "iterations": i, "seconds": s} for i, s in zip(iterations, seconds)]

    listed = [
        *rows("zero", "DP-TR", [5.0, 5.0, 5.0], [1.0, 1.0, 1.0]),
        *rows("zero", "OPT", [5.0, 5.0, 4.0], [0.5, 0.5, 2.0]),
        *rows("random", "DP-TR", [5.0, 5.0, 5.0], [1.0, 1.0, 1.0]),
        *rows("random", "OPT", [4.0, 4.0, 6.0], [0.5, 0.5, 0.5]),
    ]
    means = {name: np.array([row[name] for row in listed]) for name in listed[0]}
    assert second_order_tables.beside_trust_region(means, "OPT") == (
        "fewer iterations in 1 of 3 and 2 of 3 (found from a random start alone), "
        "less time in 2 of 3 and 3 of 3 (found), "
        "ends at a lower loss in 0 of 3 and 0 of 3 (not found)"
    )
