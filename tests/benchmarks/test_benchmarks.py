"""The reports of the benchmarks; nothing is timed here."""

import importlib
import json
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import (
    BENCHMARKS,
    choices,
    growth,
    measure,
    memory,
    scale,
    shares,
    table,
    targets,
    whole,
)
from benchmarks.__main__ import machine, main
from benchmarks.peers import data, numpy_forms
from benchmarks.table import Row
from dpanalysis import ERM, clipping, losses

TIMES = "dense gradient", targets.ONE_READ  # <= 1.5, <= 1.2
FASTER = "CSR gradient", "SciPy closed form"  # >= 1.2, >= 2.5


def row(key, peer, ours, other, unit="ms"):
    return Row(key, "a case", tuple(ours), unit, peer, tuple(other))


@pytest.mark.parametrize(
    ("ours", "verdict"),
    [(1.2, "goal reached"), (1.21, "floor reached"), (1.5, "floor reached"), (1.51, "NOT reached")],
)
def test_times_is_ours_over_the_other_and_at_most(ours, verdict):
    measured = row(*TIMES, [ours], [1.0])
    assert (measured.ratio, measured.verdict) == (ours, verdict)


@pytest.mark.parametrize(
    ("other", "verdict"),
    [(2.5, "goal reached"), (2.4, "floor reached"), (1.2, "floor reached"), (1.1, "NOT reached")],
)
def test_faster_is_the_other_over_ours_and_at_least(other, verdict):
    measured = row(*FASTER, [1.0], [other])
    assert (measured.ratio, measured.verdict) == (other, verdict)


@pytest.mark.parametrize(
    ("ours", "verdict"), [(5.0, "goal reached"), (30.0, "floor reached"), (31.0, "NOT reached")]
)
def test_at_most_bounds_ours_itself(ours, verdict):
    assert row("best certified rate", "", [ours], []).verdict == verdict


def test_a_floor_without_a_goal_and_a_goal_without_a_floor():
    dense = "CSR gradient, Adult-like", "the same, dense"
    assert row(*dense, [1.0], [2.0]).verdict == "floor reached"
    assert row(*dense, [1.0], [1.9]).verdict == "NOT reached"
    assert row("growth in n", "", [1.05], [], "").verdict == "goal reached"
    assert row("growth in n", "", [1.06], [], "").verdict == "NOT reached"


def test_a_row_without_a_target_says_how_much_faster_we_are():
    measured = row("dense gradient", "NumPy closed form", [2.0], [6.0])
    assert (measured.ratio, measured.verdict, measured.target) == (3.0, "", None)


@given(st.lists(st.tuples(st.floats(0.1, 10.0), st.floats(0.1, 10.0)), min_size=1, max_size=9))
def test_ratios_are_of_medians_and_the_extremes_are_of_turns(turns):
    ours, other = zip(*turns)
    for names, sign in ((TIMES, 1.0), (FASTER, -1.0)):
        measured = row(*names, ours, other)
        quotient = np.median(ours) / np.median(other)
        np.testing.assert_allclose(measured.ratio, quotient**sign, rtol=1e-12)
        each = (np.array(ours) / np.array(other)) ** sign
        best, worst = measured.best_and_worst
        assert best * sign <= worst * sign
        np.testing.assert_allclose(sorted([best, worst]), [each.min(), each.max()], rtol=1e-12)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("x", "peer", [1.0, 2.0], [1.0]), "2 turns beside 1"),
        (("best certified rate", "", [1.0], [], "s"), "measured in s, target in ms"),
        ((*TIMES, [1.0], []), "nothing stands beside"),
    ],
)
def test_a_row_that_makes_no_sense_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        row(*arguments)


def test_the_line_of_a_row():
    line = row(*TIMES, [1.0, 3.0], [1.0, 2.0]).as_markdown()
    assert line == (
        "| dense gradient: a case | 2 ms | one read of X | 1.5 ms | 1.33 (1, 1.5) "
        "| <= 1.5 x | <= 1.2 x | floor reached |"
    )
    alone = row("best certified rate", "", [4.0], []).as_markdown()
    assert alone == (
        "| best certified rate: a case | 4 ms |  |  |  | <= 30 ms | <= 5 ms | goal reached |"
    )


def test_a_reason_is_shown_where_the_floor_is_missed_and_there_only(monkeypatch):
    reasons = {"dense gradient/": "general", f"{'/'.join(TIMES)}/a case": "special"}
    monkeypatch.setattr(targets, "REASONS", reasons)
    assert row(*TIMES, [9.0], [1.0]).as_markdown().endswith("| NOT reached: special |")
    assert row(*TIMES, [1.3], [1.0]).as_markdown().endswith("| floor reached |")
    assert targets.reason("dense gradient/other/case") == "general"
    assert targets.reason("CSR gradient/") == ""


def test_the_page_counts_verdicts_and_names_what_is_missing():
    sections = {"Sums": [row(*TIMES, [9.0], [1.0]), row(*FASTER, [1.0], [9.0])]}
    page = table.page({"Memory": "8 GiB"}, sections, ["x is not installed"], ["images/a.png"])
    assert "1 x goal reached, 0 x floor reached, 1 x NOT reached" in page
    assert "- Memory: 8 GiB\n" in page and "## Sums\n" in page
    assert "![images/a.png](images/a.png)" in page and "- skipped: x is not installed" in page
    missing = page.split("Not measured in this run: ")[1]
    assert "grid of Fig. 3/" in missing and "/".join(TIMES) not in missing


def test_every_floor_is_weaker_than_its_goal_and_every_reason_has_a_target():
    for name, target in targets.TARGETS.items():
        if target.floor is not None and target.goal is not None:
            assert target.meets(target.goal, target.floor), name
    for key in targets.REASONS:
        assert any(key.startswith(name) or name.startswith(key) for name in targets.TARGETS), key


def test_a_peer_that_is_missing_is_skipped_by_name(monkeypatch, capsys):
    monkeypatch.setattr(measure, "skipped", {})
    monkeypatch.setattr(measure.importlib.util, "find_spec", lambda name: None)
    assert not measure.installed("opacus")
    assert not measure.installed("opacus")  # reported once
    said = 'opacus is not installed (pip install "dpanalysis-toolkit[peers]")'
    assert capsys.readouterr().err == f"skipped: {said}\n"
    assert measure.skipped == {"opacus": said}


@pytest.mark.slow
def test_a_peer_that_fails_to_start_is_skipped_with_its_last_words(monkeypatch, capsys):
    monkeypatch.setattr(measure, "skipped", {})
    arguments = {"n": 0, "d": 2, "dtype": "float64", "loss": "logistic", "more": 1}
    with measure.peers(["numpy_forms"], "dense", 1, arguments, lambda name: None) as calls:
        assert calls == {}
    assert "numpy_forms stopped: TypeError" in capsys.readouterr().err
    assert list(measure.skipped) == ["numpy_forms"]


@pytest.mark.slow
def test_a_peer_answers_from_a_process_that_is_tied_to_its_cores(tmp_path):
    arguments = {"n": 50, "d": 3, "dtype": "float64", "loss": "logistic"}
    X, y, w, _ = data.dense(50, 3)
    ours = ERM(X, y, losses.Logistic()).sums(w, clipping=clipping.Flat(data.CLIP)).gradient
    with measure.peers(["numpy_forms"], "dense", 1, arguments, lambda name: ours) as calls:
        (name, times) = next(iter(calls.items()))
        assert name == "NumPy closed form" and len(times(0.0, 3)) == 3
    with (
        pytest.raises(AssertionError, match="tolerance"),
        measure.peers(["numpy_forms"], "dense", 1, arguments, lambda name: 2 * ours),
    ):
        pass


@pytest.mark.parametrize(
    ("name", "loss"),
    [("logistic", losses.Logistic()), ("huberised hinge", losses.HuberizedHinge())],
)
def test_closed_forms_compute_what_we_compute(name, loss):
    X, y, w, _ = data.dense(200, 4)
    ours = ERM(X, y, loss).sums(w, clipping=clipping.Flat(data.CLIP)).gradient
    (peer,) = numpy_forms.dense(200, 4, "float64", name).values()
    np.testing.assert_allclose(peer(), ours, rtol=1e-10)


@pytest.mark.slow
def test_workers_do_not_import_us():
    code = "import sys, benchmarks.worker, benchmarks.peers.numpy_forms as _; print(*sys.modules)"
    modules = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=measure.ROOT
    ).stdout.split()
    assert "benchmarks.worker" in modules and "dpanalysis" not in modules


@given(
    st.floats(-2.0, 3.0),
    st.floats(1e-3, 1e3),
    st.lists(st.integers(1, 10**6), min_size=2, unique=True),
)
def test_the_slope_of_a_power_is_its_exponent(power, factor, sizes):
    fitted = growth.slope(sizes, factor * np.array(sizes, float) ** power)
    np.testing.assert_allclose(fitted, power, atol=1e-6)


@pytest.mark.parametrize(
    ("sizes", "times"), [([1], [1.0]), ([1, 2], [1.0, 0.0]), ([1, 2], [1.0]), ([0, 2], [1.0, 1.0])]
)
def test_a_slope_needs_two_positive_points(sizes, times):
    with pytest.raises(ValueError, match="positive"):
        growth.slope(sizes, times)


def test_a_second_is_charged_to_the_innermost_part_and_once():
    ticks = iter(range(100))
    clock = shares.Clock(now=lambda: float(next(ticks)))
    inner = clock.around(lambda: 1, "noise")
    outer = clock.around(lambda: inner() + inner(), "accounting")
    assert outer() == 2
    found = clock.read()
    # From tick 0: outer begins at 1, inner runs from 2 to 3 and from 4 to 5, outer ends at 6.
    assert (found["noise"], found["accounting"], found[shares.REST]) == (2.0, 3.0, 2.0)
    assert sum(found.values()) == 7.0


def test_a_part_that_fails_is_charged_and_left():
    ticks = iter(range(100))
    clock = shares.Clock(now=lambda: float(next(ticks)))
    with pytest.raises(ZeroDivisionError):
        clock.around(lambda: 1 / 0, "noise")()
    assert (clock.read()["noise"], clock.read()[shares.REST]) == (1.0, 3.0)


def test_clocks_are_put_around_functions_that_exist_and_taken_away_again():
    names = [where for part in shares.PARTS.values() for where in part]
    before = [vars(holder).get(name) for holder, name in map(shares.owner, names)]
    with shares.clocks():
        inside = [getattr(*shares.owner(name)) for name in names]
        assert all(hasattr(function, "__wrapped__") for function in inside)
    after = [vars(holder).get(name) for holder, name in map(shares.owner, names)]
    assert all(one is other for one, other in zip(before, after, strict=True))


def test_every_part_of_a_private_run_is_seen_and_the_parts_are_the_whole():
    rng = np.random.default_rng(0)
    problem = ERM(rng.random((500, 3)), np.sign(rng.random(500) - 0.5), losses.Logistic())
    found = shares.spent(lambda: whole.descent(problem, 5, True))
    assert set(found) == {*shares.PARTS, shares.REST}
    parts = dict(found)
    assert parts.pop("drawing batches") == 0.0  # all rows in every step
    assert min(parts.values()) > 0.0
    plain = shares.spent(lambda: whole.descent(problem, 5, False))
    assert plain["noise"] == 0.0 and plain["sums over the data"] > 0.0


def test_the_runs_with_and_without_privacy_differ_in_nothing_else():
    X, y, _, norms = data.planted(400, 3)
    problem = ERM(X, y, losses.Logistic())
    calls = numpy_forms.descent(400, 3, 7, whole.STEP, 0.0)
    private, plain = (whole.descent(problem, 7, each) for each in (True, False))
    assert private.private and private.budget == whole.BUDGET and not plain.private
    np.testing.assert_allclose(calls["NumPy loop, not private"](), plain.w[0], rtol=1e-10)
    clip = numpy_forms.clipped(X, y, np.zeros(3), norms, "logistic") / 400
    step = numpy_forms.descent(400, 3, 1, whole.STEP, 0.0)["NumPy loop, clipped and noisy"]()
    np.testing.assert_allclose(step, -whole.STEP * clip, rtol=1e-12)


@pytest.mark.slow
def test_the_shares_are_drawn_one_bar_a_run(tmp_path, monkeypatch):
    parts = [*shares.PARTS, shares.REST]
    found = {name: dict.fromkeys(parts, 20.0) for name in ("first\n3 ms", "second\n4 ms")}
    monkeypatch.setattr(whole, "shares", found)
    (path,) = whole.plot(tmp_path)
    assert path == tmp_path / "whole.png" and path.stat().st_size > 1000
    from matplotlib.figure import Figure

    axis = Figure().add_subplot()
    whole.draw(axis, found)
    assert len(axis.patches) == 2 * len(parts)
    ends = [patch.get_x() + patch.get_width() for patch in axis.patches[-2:]]
    np.testing.assert_allclose(ends, 100.0)


def test_a_peer_may_have_an_interpreter_of_its_own(monkeypatch):
    monkeypatch.setenv("DIFFPRIVLIB_PYTHON", "/a/python")
    assert measure._python("diffprivlib_forms") == "/a/python"
    assert measure._python("numpy_forms") == sys.executable


def test_every_choice_is_one_of_a_constant_of_the_kernels():
    for constants in (choices.DENSE | choices.CSR | choices.TASKS).values():
        for name, number in constants.items():
            module, constant = name.split(".")
            fixed = getattr(importlib.import_module(f"dpanalysis.kernels.{module}"), constant)
            assert isinstance(fixed, int) and fixed != number


@pytest.mark.slow
def test_prefetching_changes_no_bit_and_tiles_the_last_ones(tmp_path):
    asked = {"n": 9_001, "d": 20, "entries": 0, "dtype": "float64", "rate": 1}
    smaller = {"dense._NEAR_BYTES": 0}
    sums = []
    for k, constants in enumerate(({}, smaller | {"dense._FAR_TILE_ENTRIES": 4096}, smaller)):
        given = {**asked, "constants": constants, "cache": str(tmp_path / str(k))}
        worker = measure.Worker("choice_forms", "sums", 1, given)
        try:
            assert worker.wait() == ["sum"]
            sums.append(worker.result("sum"))
        finally:
            worker.close()
    np.testing.assert_array_equal(sums[1], sums[0])
    assert (sums[2] != sums[0]).any()
    np.testing.assert_allclose(sums[2], sums[0], rtol=1e-9)


def test_sizes_span_two_decades():
    for points in (4, 7):
        sizes = growth.decades(50, points)
        assert (sizes[0], sizes[-1], len(sizes)) == (50, 5000, points)
    assert {panel for panel, *_ in growth.CURVES} == set("ndRT")


def test_a_forecast_follows_the_line_and_its_interval_has_the_stated_level():
    sizes = [10**k for k in range(4, 9)]
    slopes, ahead = scale.forecast(sizes, 2.0 * np.array(sizes) ** 1.1, 1e9)
    np.testing.assert_allclose(slopes, 1.1, atol=1e-9)
    np.testing.assert_allclose(ahead, 2.0 * 1e9**1.1, rtol=1e-6)
    random, inside = np.random.default_rng(0), np.zeros(2)
    for _ in range(1000):
        noise = np.exp(0.1 * random.standard_normal(6))
        found = scale.forecast(sizes, 3.0 * np.array(sizes) * noise[:-1], 1e9)
        for k, truth in enumerate((1.0, 3.0 * 1e9 * noise[-1])):
            inside[k] += found[k][0] <= truth <= found[k][2]
    assert ((inside > 925) & (inside < 975)).all(), inside  # of 1000, four deviations around 950
    with pytest.raises(ValueError, match="three at least"):
        scale.forecast([1, 2], [1.0, 2.0], 10)


def test_sizes_without_room_are_left_out_by_name(monkeypatch, capsys):
    monkeypatch.setattr(measure, "skipped", {})
    assert scale.fitting([10**6, 10**9], 1e9) == [10**6]
    why = "1,000,000,000 rows need 36.3 GB of the temporary folder, 1.0 GB are free"
    assert measure.skipped == {"1,000,000,000 rows": why}
    assert capsys.readouterr().err == f"skipped: {why}\n"


def test_the_first_rows_of_the_file_are_the_same_problem_as_a_map_and_in_memory(tmp_path):
    memory.write(tmp_path, 3_000)
    rows = np.fromfile(tmp_path / "X", np.float32).reshape(-1, memory.D)[:1_000]
    labels = np.fromfile(tmp_path / "y", np.int8)[:1_000]
    ours = scale.sums("memmap", tmp_path, 1_000)().gradient
    whole_data = ERM(rows, labels, losses.Logistic())
    expected = whole_data.sums(np.full(memory.D, 0.1), clipping=scale.FLAT).gradient
    np.testing.assert_allclose(ours, expected, rtol=1e-6)


def test_every_benchmark_can_be_run_and_has_a_title():
    for name in BENCHMARKS:
        module = importlib.import_module(f"benchmarks.{name}")
        assert callable(module.run) and module.__doc__


def test_the_command_writes_its_rows_and_its_page(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(measure, "skipped", {})

    def few(quick):
        assert quick
        yield row(*TIMES, [1.0], [1.0])

    monkeypatch.setattr(importlib.import_module("benchmarks.allocation"), "run", few)
    files = [str(tmp_path / "rows.json"), str(tmp_path / "page.md")]
    assert main(["allocation", "--quick", "--json", files[0], "--markdown", files[1]]) == 0
    kept = json.loads((tmp_path / "rows.json").read_text())
    assert [one["verdict"] for one in kept["rows"]] == ["goal reached"]
    assert set(machine()) <= set(kept) and "goal reached |" in (tmp_path / "page.md").read_text()
    assert "goal reached |" in capsys.readouterr().out


def test_an_unknown_name_is_refused(capsys):
    with pytest.raises(SystemExit):
        main(["speed"])
    assert "unknown: speed" in capsys.readouterr().err
