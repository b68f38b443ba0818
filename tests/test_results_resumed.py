"""Extending the ledger: new cells beside stored ones, and cells of stopped runs."""

import json
import sys
import types

import numpy as np
import pytest

import figures
from dpanalysis import plotting
from dpanalysis.experiments import sweep, tabulate
from dpanalysis.experiments.sweep import SweepLimits
from figures import __main__ as cli
from figures import _ledger, _provenance

WHOLE = ("square",)
CALLS = []


def square(x):
    CALLS.append(x)
    return {"square": x**2 / 7.0, "count": x, "seconds": 0.5}


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Return a function that stores ``count`` squares; it returns the exit code and new cells."""
    module, folders = types.ModuleType("figures.squares"), iter(range(9))

    def compute(scale, *, jobs, cache, progress):
        cells = [{"x": x} for x in range(module.count)]
        return {"squares": tabulate(sweep(square, cells, folder=cache, progress=progress))}

    module.TITLE, module.compute = "Squares", compute
    module.settings = lambda scale: {"count": module.count}
    module.caption = lambda tables, scale: "Squares."
    module.draw = lambda tables: plotting.panels(1, 1)[0]
    monkeypatch.setattr(figures, "FIGURES", {"squares": 1.0})
    monkeypatch.setitem(sys.modules, "figures.squares", module)
    monkeypatch.setattr(_ledger, "RESULTS", tmp_path / "results")
    monkeypatch.setenv("DPANALYSIS_DATA", str(tmp_path))

    def store(count, *arguments, commit="a"):
        module.count = count
        CALLS.clear()
        monkeypatch.setattr(_provenance, "commit", lambda: 40 * commit)
        out = str(tmp_path / f"machine {next(folders)}")  # with no cells kept
        argv = ["--scale", "paper", "--store", "--quiet", "--jobs", "1", "--out", out]
        return cli.main([*argv, *arguments]), sorted(CALLS)

    return store


def makers():
    about = _ledger.read_about("squares")
    rows = _ledger.read_cells("squares")
    return "".join(about["made_by"][row["made_by"]]["commit"][0] for row in rows)


@pytest.mark.slow
def test_more_cells_stand_beside_those_of_the_ledger(run):
    assert run(3) == (0, [0, 1, 2])
    before = _ledger.read_cells("squares")
    assert run(5, commit="b") == (0, [3, 4])
    rows, about = _ledger.read_cells("squares"), _ledger.read_about("squares")
    assert rows[:3] == before and makers() == "aaabb"
    assert about["restored"] == 3 and about["cells"] == 5
    assert rows[2]["digest"] == _ledger.digest({"square": np.array(4 / 7.0), "count": np.array(2)})
    table = _ledger.read("squares")[1]["squares"]
    np.testing.assert_allclose(table["square"], np.arange(5.0) ** 2 / 7.0, rtol=1e-4)
    assert run(5, "--fresh", commit="c") == (0, [0, 1, 2, 3, 4])
    assert makers() == "ccccc" and "restored" not in _ledger.read_about("squares")


@pytest.mark.slow
def test_cells_that_are_incomplete_in_the_ledger_are_computed(run, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "WHOLE", ())
    assert run(2) == (0, [0, 1])
    assert run(3) == (0, [0, 1, 2])


def test_cells_of_a_stopped_run_are_kept_beside_the_entry(run, monkeypatch, tmp_path):
    folder = tmp_path / "results" / "squares"
    assert run(2) == (0, [0, 1])
    entry = {path.name: path.read_bytes() for path in folder.iterdir()}
    with monkeypatch.context() as stopped:
        stopped.setattr(SweepLimits, "may_begin", lambda self: len(CALLS) < 2)
        assert run(7, commit="b") == (75, [2, 3])
        assert run(7, commit="c") == (75, [4, 5])
    left = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert {name: left.pop(name) for name in entry} == entry
    assert set(left) == {"unfinished.csv", "unfinished.json"}
    rows = _ledger.read_cells("squares", "unfinished.csv")
    assert sorted(row["parameter.x"] for row in rows) == [2, 3, 4, 5]  # without those of the entry
    assert run(7, commit="d") == (0, [6])
    assert makers() == "aabbccd"
    assert not list(folder.glob("unfinished.*"))


def test_a_result_that_is_kept_is_not_replaced_by_its_six_digits(run, tmp_path):
    assert run(2) == (0, [0, 1])
    kept = tabulate(sweep(square, [{"x": 1}], folder=tmp_path))
    _ledger.restore("squares", tmp_path)
    assert tabulate(sweep(square, [{"x": 1}], folder=tmp_path))["square"] == kept["square"]


def test_cells_whose_makers_name_no_commit_have_that_of_their_entry(run, tmp_path):
    assert run(2) == (0, [0, 1])
    path = tmp_path / "results" / "squares" / "about.json"
    about = json.loads(path.read_text())
    about["commit"] = about["made_by"][0].pop("commit")
    path.write_text(json.dumps(about))
    assert run(3, commit="b") == (0, [2])
    assert makers() == "aab"
